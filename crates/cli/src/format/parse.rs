//! The grammar of formats, projections and keys (`gcloud topic formats`, `gcloud topic
//! projections`):
//!
//! ```text
//! format     = NAME [ "[" attribute { "," attribute } "]" ] [ "(" column { "," column } ")" ]
//! column     = key { ":" attribute }
//! key        = step { "." step | "[" [INTEGER] "]" } with calls NAME "(" arguments ")"
//! attribute  = NAME [ "=" value ]
//! value      = quoted | text up to a delimiter
//! ```

use super::key::{Key, Step};
use super::model::{Align, Column, Format, Kind};
use super::transform::Transform;

/// A position in a text.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the text that was not taken yet.
    pub fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Returns the next character, which is not taken.
    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    pub fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Takes `expected` if it comes next.
    pub fn take(&mut self, expected: &str) -> bool {
        let taken = self.rest().starts_with(expected);
        if taken {
            self.at += expected.len();
        }
        taken
    }

    /// Passes over white space.
    pub fn space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// Takes characters while `wanted` says so.
    pub fn run(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
        self.text.get(start..self.at).unwrap_or("")
    }

    /// Returns a message that shows where it went wrong, as gcloud shows it.
    pub fn wrong(&self, what: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or("").trim_end();
        match self.rest().trim_start() {
            "" => format!("{what} [{before} *HERE*]."),
            rest => format!("{what} [{before} *HERE* {rest}]."),
        }
    }

    /// Takes a quoted text, if one comes next.
    ///
    /// # Errors
    /// A quote without its end.
    pub fn quoted(&mut self) -> Result<Option<String>, String> {
        let Some(quote @ ('"' | '\'')) = self.peek() else {
            return Ok(None);
        };
        self.next();
        let mut out = String::new();
        loop {
            match self.next() {
                None => return Err(self.wrong("More tokens expected")),
                Some('\\') => out.extend(self.next()),
                Some(c) if c == quote => return Ok(Some(out)),
                Some(c) => out.push(c),
            }
        }
    }

    /// Returns a value up to one of `ends`, or a quoted one.
    ///
    /// # Errors
    /// See [`Scanner::quoted`].
    pub fn value(&mut self, ends: &str) -> Result<String, String> {
        match self.quoted()? {
            Some(text) => Ok(text),
            None => Ok(self.run(|c| !ends.contains(c)).trim().to_owned()),
        }
    }

    /// Takes a key, with its transforms.
    ///
    /// # Errors
    /// No key, or one that does not end well, or a transform that there is not.
    pub fn key(&mut self) -> Result<Key, String> {
        let mut key = Key::default();
        loop {
            if let Some(name) = self.quoted()? {
                key.path.push(Step::Name(name));
            } else {
                let name = self.run(|c| c.is_alphanumeric() || "_-@".contains(c));
                if name.is_empty() {
                    return Err(self.wrong("Name expected"));
                }
                if self.take("(") {
                    key.transforms.push(self.call(name)?);
                } else if key.transforms.is_empty() {
                    key.path.push(Step::Name(name.to_owned()));
                } else {
                    return Err(self.wrong("Transform expected"));
                }
            }
            while self.take("[") {
                let index = self.run(|c| c.is_ascii_digit() || c == '-');
                let step = match index {
                    "" => Step::All,
                    n => Step::Index(n.parse().map_err(|_| self.wrong("Index expected"))?),
                };
                if !self.take("]") {
                    return Err(self.wrong("Closing ] expected"));
                }
                key.path.push(step);
            }
            if !self.take(".") {
                return Ok(key);
            }
        }
    }

    /// Returns the arguments of a transform, the opening parenthesis being behind.
    fn call(&mut self, name: &str) -> Result<Transform, String> {
        let mut positional = Vec::new();
        let mut named = Vec::new();
        loop {
            self.space();
            if self.take(")") {
                break;
            }
            if let Some(text) = self.quoted()? {
                positional.push(text);
            } else {
                let word = self.run(|c| !"=,)".contains(c)).trim();
                if self.take("=") {
                    named.push((word.to_owned(), self.value(",)")?));
                } else {
                    positional.push(word.to_owned());
                }
            }
            self.space();
            if !self.take(",") && self.peek() != Some(')') {
                return Err(self.wrong("More tokens expected"));
            }
        }
        Transform::from_name(name, positional, named)
            .ok_or_else(|| self.wrong(&format!("Unknown transform function {name}")))
    }

    fn column(&mut self) -> Result<Column, String> {
        let mut column = Column {
            key: self.key()?,
            ..Column::default()
        };
        self.space();
        while self.take(":") {
            let name = self.run(|c| c.is_alphanumeric() || c == '-').to_owned();
            let value = match self.take("=") {
                true => Some(self.value(":,)")?),
                false => None,
            };
            match (name.as_str(), value.as_deref()) {
                ("label", Some(label)) => column.label = Some(label.to_owned()),
                ("sort", Some(place)) => {
                    let place = place.parse().map_err(|_| self.wrong("Integer expected"))?;
                    column.sort = Some(place);
                }
                ("reverse", _) => column.reverse = true,
                ("optional", _) => column.optional = true,
                ("align", Some("left")) => column.align = Align::Left,
                ("align", Some("center")) => column.align = Align::Center,
                ("align", Some("right")) => column.align = Align::Right,
                // These attributes are for terminals that are too narrow; lines are never cut here.
                ("wrap" | "no-wrap" | "width", _) => {}
                _ => return Err(self.wrong(&format!("Unknown key attribute [{name}]"))),
            }
            self.space();
        }
        Ok(column)
    }
}

const NAMES: &[(&str, Option<Kind>)] = &[
    ("csv", Some(Kind::Csv)),
    ("default", Some(Kind::Yaml)),
    ("disable", Some(Kind::None)),
    ("flattened", Some(Kind::Flattened)),
    ("get", Some(Kind::Get)),
    ("json", Some(Kind::Json)),
    ("list", Some(Kind::List)),
    ("none", Some(Kind::None)),
    ("table", Some(Kind::Table)),
    ("text", Some(Kind::Flattened)),
    ("value", Some(Kind::Value)),
    ("yaml", Some(Kind::Yaml)),
];

/// Parses a `--format` expression.
///
/// # Errors
/// The syntax error, in gcloud's words.
pub fn parse(text: &str) -> Result<Format, String> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    let name = scanner.run(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let kind = NAMES.iter().find(|(n, _)| *n == name).and_then(|(_, k)| *k);
    let Some(kind) = kind else {
        let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
        return Err(format!(
            "Format must be one of {}; received [{text}].",
            names.join(", ")
        ));
    };
    let mut format = Format::plain(kind);
    scanner.space();
    if scanner.take("[") {
        loop {
            scanner.space();
            if scanner.take("]") {
                break;
            }
            let name = scanner.run(|c| c.is_alphanumeric() || c == '-' || c == '_');
            if name.is_empty() {
                return Err(scanner.wrong("Attribute expected"));
            }
            let value = match scanner.take("=") {
                true => Some(scanner.value(",]")?),
                false => None,
            };
            format.attributes.push((name.to_owned(), value));
            scanner.space();
            if !scanner.take(",") && scanner.peek() != Some(']') {
                return Err(scanner.wrong("More tokens expected"));
            }
        }
    }
    scanner.space();
    if scanner.take("(") {
        loop {
            scanner.space();
            if scanner.take(")") {
                break;
            }
            let column = scanner.column()?;
            format.columns.push(column);
            scanner.space();
            if !scanner.take(",") && scanner.peek() != Some(')') {
                return Err(scanner.wrong("More tokens expected"));
            }
        }
    }
    scanner.space();
    if scanner.peek().is_some() {
        return Err(scanner.wrong("Unexpected tokens"));
    }
    Ok(format)
}

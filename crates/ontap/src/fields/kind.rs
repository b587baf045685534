//! Kinds of values that fields are set to, and how they are read from lines and from REST.

use crate::cluster::{Cluster, Failure, Reason};
use crate::refusal::{invalid, not_among};
use crate::storage::NamedKind;
use crate::value;

/// A kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A path; empty is none.
    Path,
    /// True or false.
    Flag,
    /// Bytes, one at least: on lines with a unit or without, in REST a number.
    Size,
    /// A whole number.
    Number,
    /// A part of at most so many percent; on lines with its sign or without.
    Percent(u64),
    /// Permission bits: octal digits or `---rwxr-xr-x`.
    Mode,
    /// One of the words that are separated by `|`, as lines have them; REST has them in small
    /// letters.
    Words(&'static str),
    /// A text that can be taken away: `-`, nothing, or REST's `null`.
    Label,
    /// A limit of bytes or files: 0, `-`, `unlimited`, and in REST -1 and `null`, are none. On
    /// lines, a number without a unit is of so many.
    Limit(u64),
    /// KB/s; 0 and `unlimited` are none.
    Throttle,
    /// A number of tries; `unlimited` is as many as there may be.
    Tries,
    /// A schedule; `-` or nothing takes it away.
    Schedule,
    /// A policy of SnapMirror.
    MirrorPolicy,
    /// A policy of volumes: in REST its name, or an object with its name or its identity.
    Policy(NamedKind),
    /// A storage pool: in REST a list of one.
    Pool,
    /// Operations and bytes a second: `500iops,100MB/s` or `INF`.
    Throughput,
    /// A user: a name or a number.
    Id,
    /// Texts; one is a list of one.
    List,
    /// A list of objects with this one field.
    Objects(&'static str),
    /// Objects of their own, which the resource reads itself.
    Nested,
    /// A machine: in REST its name, or an object with its name or its identity.
    Svm,
}

/// A value that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// None: the field is taken away.
    None,
    /// True or false.
    Flag(bool),
    /// A number of any kind.
    Number(u64),
    /// A text of any kind; a word as lines have it.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl Input {
    /// Returns the text; `None` is none.
    pub fn text(self) -> Option<String> {
        match self {
            Input::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number; `None` is none.
    pub fn number(self) -> Option<u64> {
        match self {
            Input::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the number of 32 bits; `None` is none.
    pub fn small(self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    /// Returns the boolean; `None` is none.
    pub fn flag(self) -> Option<bool> {
        match self {
            Input::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Returns the texts; `None` is none.
    pub fn list(self) -> Option<Vec<String>> {
        match self {
            Input::List(all) => Some(all),
            _ => None,
        }
    }

    /// Returns true if it is this word.
    pub fn is(&self, word: &str) -> bool {
        matches!(self, Input::Text(text) if text == word)
    }
}

const SIZE: &str = "{<integer>[KB|MB|GB|TB|PB]}";

impl Kind {
    /// Returns the word for it in help on commands.
    pub const fn help(self) -> &'static str {
        match self {
            Kind::Text | Kind::Label | Kind::Policy(_) | Kind::Pool | Kind::Svm => "text",
            Kind::Schedule | Kind::MirrorPolicy | Kind::Id | Kind::List => "text",
            Kind::Objects(_) | Kind::Nested => "text",
            Kind::Throughput => "throughput",
            Kind::Path => "path",
            Kind::Flag => "true|false",
            Kind::Size | Kind::Limit(1024) => "size",
            Kind::Number | Kind::Limit(_) | Kind::Tries => "integer",
            Kind::Percent(_) => "percent",
            Kind::Mode => "octal",
            Kind::Words(words) => words,
            Kind::Throttle => "throttle",
        }
    }

    /// Reads a value from a line; `None`: it is not of this kind.
    pub fn of_line(self, text: &str) -> Option<Input> {
        match self {
            Kind::Size => value::bytes(text).map(Input::Number),
            Kind::Objects(_) => Kind::List.of_rest(text),
            Kind::Percent(_) => self.of_rest(text.strip_suffix('%').unwrap_or(text)),
            Kind::Limit(_) if matches!(text, "-" | "unlimited") => Some(Input::None),
            Kind::Limit(unit) => {
                let plain = text.bytes().all(|b| b.is_ascii_digit());
                let unit = if plain { unit } else { 1 };
                let given = value::number(text)? * unit as f64;
                let fits = (1.0..9.0e18).contains(&given);
                fits.then_some(Input::Number(given as u64))
            }
            other => other.of_rest(text),
        }
    }

    /// Reads a value from REST, where numbers and booleans may be texts; `None`: it is not of this
    /// kind.
    pub fn of_rest(self, text: &str) -> Option<Input> {
        match self {
            Kind::Text | Kind::Path | Kind::Policy(_) | Kind::Pool | Kind::Svm | Kind::Id => {
                Some(Input::Text(text.to_owned()))
            }
            Kind::List => {
                let all = text.split(',').map(|one| one.trim().to_owned());
                Some(Input::List(all.collect()))
            }
            Kind::Objects(_) | Kind::Nested => None,
            Kind::Throughput => value::throughput(text).map(|_| Input::Text(text.to_owned())),
            Kind::Label | Kind::Schedule if matches!(text, "-" | "") => Some(Input::None),
            Kind::Label | Kind::Schedule | Kind::MirrorPolicy => Some(Input::Text(text.to_owned())),
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "true" => Some(Input::Flag(true)),
                "false" => Some(Input::Flag(false)),
                _ => None,
            },
            Kind::Size | Kind::Number => text.parse().ok().map(Input::Number),
            Kind::Percent(most) => {
                let percent = text.parse().ok().filter(|percent| *percent <= most);
                percent.map(Input::Number)
            }
            Kind::Mode => value::mode(text).map(|mode| Input::Number(mode.into())),
            Kind::Words(words) => {
                let found = words
                    .split('|')
                    .find(|word| word.eq_ignore_ascii_case(text));
                found.map(|word| Input::Text(word.to_owned()))
            }
            Kind::Limit(_) if matches!(text, "-1" | "-") => Some(Input::None),
            Kind::Limit(_) => text.parse().ok().map(Input::Number),
            Kind::Tries if text == "unlimited" => Some(Input::Number(u32::MAX.into())),
            Kind::Tries => text.parse().ok().map(|n: u32| Input::Number(n.into())),
            Kind::Throttle => {
                value::parse_throttle(text).map(|kbs| kbs.map_or(Input::None, Input::Number))
            }
        }
    }

    /// Returns the words for what REST takes.
    pub fn rest_words(self) -> String {
        match self {
            Kind::Text | Kind::Path | Kind::Label | Kind::Policy(_) | Kind::Svm => {
                "string".to_owned()
            }
            Kind::Id | Kind::Throughput => "string".to_owned(),
            Kind::List => "a list of strings".to_owned(),
            Kind::Objects(field) => format!("a list of objects with \"{field}\""),
            Kind::Nested => "a list of objects".to_owned(),
            Kind::Schedule => "no such schedule".to_owned(),
            Kind::MirrorPolicy => "no such policy".to_owned(),
            Kind::Pool => "a list of one name".to_owned(),
            Kind::Flag => "boolean".to_owned(),
            Kind::Size | Kind::Number | Kind::Limit(_) | Kind::Tries => "integer".to_owned(),
            Kind::Percent(most) => format!("0 to {most}"),
            Kind::Mode => "octal digits".to_owned(),
            Kind::Words(words) => words.to_ascii_lowercase().replace('|', ", "),
            Kind::Throttle => value::throttles(),
        }
    }

    /// Checks that what a line names is there, where the command line says so in its own words.
    ///
    /// # Errors
    /// There is no such policy or schedule.
    pub(crate) fn check_line(self, input: &Input, cluster: &dyn Cluster) -> Result<(), Failure> {
        let Input::Text(name) = input else {
            return Ok(());
        };
        let why = match self {
            Kind::Schedule if !cluster.schedules().iter().any(|s| s.name == *name) => {
                format!("command failed: Schedule \"{name}\" not found.")
            }
            Kind::MirrorPolicy if !cluster.policies().iter().any(|p| p.name == *name) => {
                format!("command failed: Policy lookup for \"{name}\" failed: entry doesn't exist.")
            }
            _ => return Ok(()),
        };
        Err(Failure::new(Reason::NotFound, why))
    }

    /// Returns the refusal of a value on a line.
    pub fn refuse_line(self, name: &str, text: &str) -> String {
        let refusal = match self {
            Kind::Throttle => not_among(text, name, "throttleType", &value::throttles()),
            Kind::Words(words) if !words.contains("true") => {
                not_among(text, name, words, &words.replace('|', ", "))
            }
            Kind::Throughput => invalid(text, name, "qos_tput"),
            Kind::Tries => invalid(text, name, "unsigned32_or_unlimited"),
            Kind::Size => invalid(text, name, SIZE),
            Kind::Limit(1024) => invalid(text, name, &format!("{SIZE}|unlimited|-")),
            Kind::Limit(_) => invalid(text, name, "<integer>[K|M|G|T]|unlimited|-"),
            Kind::Mode => invalid(text, name, "octal digits or ---rwxr-xr-x"),
            other => invalid(text, name, other.help()),
        };
        refusal.message
    }
}

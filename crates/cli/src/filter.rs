//! Filter expressions (`gcloud topic filters`), evaluated here as gcloud evaluates them: on what
//! the server returned.
//!
//! ```text
//! expression = group { group }                      all of them
//! group      = term { "AND" term } | term { "OR" term }
//! term       = [ "NOT" | "-" ] ( "(" expression ")" | key operator operand | word )
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | ":" | "!:" | "~" | "!~"
//! operand    = word | quoted | "(" operand { [","] operand } ")"
//! ```
//!
//! `=` compares whole values without regard to case, as numbers where both are. `:` searches for a
//! part of the text, or for a whole text with `*` for anything. `~` is a regular expression. A list
//! matches when an element does, labels when a key or a value does.

use std::cell::Cell;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::format::{Key, Scanner, number, text};

/// A parsed `--filter`, and the keys it names.
pub struct Filter {
    root: Node,
    /// The keys in it, each with whether any resource has had it.
    keys: Vec<(String, Cell<bool>)>,
}

enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Has(usize, Key, Test),
    Word(String),
}

enum Test {
    Equal(Vec<String>),
    Less(String),
    Greater(String),
    Part(Vec<String>),
    Regex(Regex),
}

/// Expressions nest no deeper than this: the parser recurses.
const DEPTH: usize = 64;

struct Parser<'a> {
    scanner: Scanner<'a>,
    keys: Vec<(String, Cell<bool>)>,
    depth: usize,
}

impl Filter {
    /// Parses an expression.
    ///
    /// # Errors
    /// The syntax error, in gcloud's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            scanner: Scanner::new(text),
            keys: Vec::new(),
            depth: 0,
        };
        let root = parser.expression()?;
        parser.scanner.space();
        if parser.scanner.peek().is_some() {
            let message = parser.scanner.wrong("Unexpected tokens");
            return Err(format!("{} in expression.", message.trim_end_matches('.')));
        }
        Ok(Self {
            root,
            keys: parser.keys,
        })
    }

    /// Returns true if a resource passes.
    pub fn matches(&self, resource: &Value) -> bool {
        self.holds(&self.root, resource)
    }

    /// Keys that no resource had.
    pub fn unknown_keys(&self) -> Vec<&str> {
        let unseen = self.keys.iter().filter(|(_, seen)| !seen.get());
        unseen.map(|(key, _)| key.as_str()).collect()
    }

    fn holds(&self, node: &Node, resource: &Value) -> bool {
        match node {
            // No short cuts: every key is to be searched for.
            Node::All(nodes) => nodes.iter().filter(|n| !self.holds(n, resource)).count() == 0,
            Node::Any(nodes) => nodes.iter().filter(|n| self.holds(n, resource)).count() > 0,
            Node::Not(node) => !self.holds(node, resource),
            Node::Word(word) => contains(resource, word),
            Node::Has(index, key, test) => {
                if key.is_in(resource) {
                    if let Some((_, seen)) = self.keys.get(*index) {
                        seen.set(true);
                    }
                }
                test.holds(&key.get(resource))
            }
        }
    }
}

/// Returns true if a text is anywhere in a resource.
fn contains(value: &Value, word: &str) -> bool {
    match value {
        Value::Object(map) => map.values().any(|v| contains(v, word)),
        Value::Array(items) => items.iter().any(|v| contains(v, word)),
        Value::Null => false,
        other => part_of(word, &text(other)),
    }
}

impl Test {
    fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(|item| self.holds(item)),
            Value::Object(map) => {
                let keys = map.keys().map(|key| Value::from(key.as_str()));
                keys.chain(map.values().cloned()).any(|v| self.holds(&v))
            }
            Value::Null => false,
            scalar => self.holds_for(scalar),
        }
    }

    fn holds_for(&self, scalar: &Value) -> bool {
        let order = |operand: &str| {
            let other = Value::from(operand);
            match (number(scalar), number(&other)) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => text(scalar).to_lowercase().cmp(&operand.to_lowercase()),
            }
        };
        match self {
            Self::Equal(operands) => operands.iter().any(|o| order(o).is_eq()),
            Self::Less(operand) => order(operand).is_lt(),
            Self::Greater(operand) => order(operand).is_gt(),
            Self::Part(operands) => operands.iter().any(|o| part_of(o, &text(scalar))),
            Self::Regex(regex) => regex.is_match(&text(scalar)),
        }
    }
}

/// Returns true if `pattern` is a part of `text`; with a `*`, if it is all of it.
fn part_of(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    if !pattern.contains('*') {
        return text.contains(&pattern);
    }
    let pieces: Vec<&str> = pattern.split('*').collect();
    let (Some((first, rest)), true) = (pieces.split_first(), pieces.len() > 1) else {
        return false;
    };
    let Some((last, middle)) = rest.split_last() else {
        return false;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    for piece in middle {
        match left.find(piece).and_then(|at| left.get(at + piece.len()..)) {
            Some(after) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

impl Parser<'_> {
    fn word_follows(&mut self, word: &str) -> bool {
        self.scanner.space();
        let rest = self.scanner.rest();
        let after = rest.strip_prefix(word).and_then(|r| r.chars().next());
        let follows = rest.starts_with(word) && after.is_none_or(|c| c.is_whitespace() || c == '(');
        follows && self.scanner.take(word)
    }

    fn expression(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("a filter nests at most {DEPTH} levels deep"));
        }
        let mut groups = vec![self.group()?];
        loop {
            self.scanner.space();
            if matches!(self.scanner.peek(), None | Some(')')) {
                break;
            }
            groups.push(self.group()?);
        }
        self.depth -= 1;
        Ok(Node::All(groups))
    }

    fn group(&mut self) -> Result<Node, String> {
        let mut terms = vec![self.term()?];
        let mut any = None;
        loop {
            let or = if self.word_follows("OR") {
                true
            } else if self.word_follows("AND") {
                false
            } else {
                break;
            };
            if any.is_some_and(|any| any != or) {
                return Err(self
                    .scanner
                    .wrong("Parenthesis grouping is required when AND and OR are are combined"));
            }
            any = Some(or);
            terms.push(self.term()?);
        }
        Ok(match any {
            Some(true) => Node::Any(terms),
            _ => Node::All(terms),
        })
    }

    fn term(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("a filter nests at most {DEPTH} levels deep"));
        }
        let node = self.bare_term();
        self.depth -= 1;
        node
    }

    fn bare_term(&mut self) -> Result<Node, String> {
        self.scanner.space();
        if self.word_follows("NOT") || self.scanner.take("-") {
            return Ok(Node::Not(Box::new(self.term()?)));
        }
        if self.scanner.take("(") {
            let inner = self.expression()?;
            self.scanner.space();
            if !self.scanner.take(")") {
                return Err(self.scanner.wrong("More tokens expected"));
            }
            return Ok(inner);
        }
        if matches!(self.scanner.peek(), None | Some(')')) {
            return Err(self.scanner.wrong("Term expected"));
        }
        let rest = self.scanner.rest();
        let mut ahead = Scanner::new(rest);
        let key = ahead.key();
        ahead.space();
        let operator = ["!=", "<=", ">=", "!:", "!~", "=", "<", ">", ":", "~"]
            .into_iter()
            .find(|o| ahead.rest().starts_with(o));
        let (Ok(key), Some(operator)) = (key, operator) else {
            let word = match self.scanner.quoted()? {
                Some(word) => word,
                None => self
                    .scanner
                    .run(|c| !c.is_whitespace() && c != ')')
                    .to_owned(),
            };
            return Ok(Node::Word(word));
        };
        let behind = rest.len() - ahead.rest().len() + operator.len();
        self.scanner.take(rest.get(..behind).unwrap_or(""));
        let operands = self.operands()?;
        let index = self.keys.len();
        self.keys.push((key.written(), Cell::new(false)));
        let first = || operands.first().cloned().unwrap_or_default();
        let (not, test) = match operator {
            "=" => (false, Test::Equal(operands)),
            "!=" => (true, Test::Equal(operands)),
            "<" => (false, Test::Less(first())),
            ">=" => (true, Test::Less(first())),
            ">" => (false, Test::Greater(first())),
            "<=" => (true, Test::Greater(first())),
            ":" | "!:" if operands.iter().any(|o| o == "*") => {
                // `key:*`: there is such a key.
                let exists = Regex::new("").map_err(|error| error.to_string())?;
                (operator == "!:", Test::Regex(exists))
            }
            ":" => (false, Test::Part(operands)),
            "!:" => (true, Test::Part(operands)),
            _ => {
                let regex = RegexBuilder::new(&first())
                    .size_limit(1 << 20)
                    .build()
                    .map_err(|error| format!("Filter expression RE pattern: {error}"))?;
                (operator == "!~", Test::Regex(regex))
            }
        };
        let test = Node::Has(index, key, test);
        Ok(if not { Node::Not(Box::new(test)) } else { test })
    }

    fn operands(&mut self) -> Result<Vec<String>, String> {
        self.scanner.space();
        if !self.scanner.take("(") {
            return Ok(vec![self.operand(")")?]);
        }
        let mut operands = Vec::new();
        loop {
            self.scanner.space();
            if self.scanner.take(")") {
                break;
            }
            if self.word_follows("OR") || self.scanner.take(",") {
                continue;
            }
            operands.push(self.operand(",)")?);
        }
        if operands.is_empty() {
            return Err(self.scanner.wrong("Term operand expected"));
        }
        Ok(operands)
    }

    fn operand(&mut self, ends: &str) -> Result<String, String> {
        if let Some(text) = self.scanner.quoted()? {
            return Ok(text);
        }
        let word = self
            .scanner
            .run(|c| !c.is_whitespace() && !ends.contains(c));
        if word.is_empty() {
            return Err(self.scanner.wrong("Term operand expected"));
        }
        Ok(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passes(filter: &str, resource: &str) -> bool {
        let resource = serde_json::from_str(resource).unwrap();
        Filter::parse(filter).unwrap().matches(&resource)
    }

    #[test]
    fn an_absent_key_is_neither_less_nor_more() {
        assert!(!passes("a<5", "{}"));
        assert!(!passes("a>5", "{}"));
        assert!(passes("a!=5", "{}"));
        assert!(!passes("a:*", "{}"));
        assert!(passes("a:*", r#"{"a":"x"}"#));
    }

    #[test]
    fn stars_stand_for_anything() {
        assert!(part_of("a*c*e", "abcde"));
        assert!(part_of("*cd*", "abcde"));
        assert!(!part_of("a*d", "abcde"));
        assert!(!part_of("b*", "abcde"));
        assert!(!part_of("ab*ab", "aba"));
    }

    #[test]
    fn depth_is_bounded() {
        assert!(Filter::parse(&"(".repeat(100_000)).is_err());
        assert!(Filter::parse(&"-".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[a-c=<>:~!()\" *.\\[\\]ANDORT-]{0,24}") {
            if let Ok(filter) = Filter::parse(&text) {
                filter.matches(&serde_json::json!({"a": "b", "b": [1, 2], "c": {"a": 1.5}}));
            }
        }
    }
}

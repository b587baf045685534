//! Filters over lists: the part of AIP-160 that the public APIs' clients use.
//!
//! ```text
//! expression = sequence { "AND" sequence } ;     AND binds less tightly than OR, as AIP-160 has it
//! sequence   = factor { factor } ;                 side by side means AND
//! factor     = term { "OR" term } ;
//! term       = [ "NOT" | "-" ] ( "(" expression ")" | restriction ) ;
//! restriction= field [ ( "=" | "!=" | "<" | "<=" | ">" | ">=" | ":" ) value ] ;
//! ```
//!
//! A field is named by its path, `labels.team` and `exportPolicy.rules.accessType` included; a path
//! through a list holds if it holds for any element. Values are compared as the field's type:
//! numbers as numbers, times as times, enums by name. In text, `=` takes `*` at either end for
//! anything, and `:` finds a part, whatever the case; `field:*` asks whether the field is set. A
//! bare word is searched for in all text. The field is resolved when the filter is read, so a
//! misspelt one is an error and not an empty list.

use crate::error::{ApiError, ApiResult};
use crate::json::{Object, abbreviate};
use crate::schema::{Kind, Message};
use serde_json::Value;
use std::cmp::Ordering;
use weir_base::limits::api::{MAX_FILTER, MAX_FILTER_DEPTH};

/// A filter that was read.
#[derive(Debug)]
pub struct Filter(Node);

#[derive(Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// A word in any text of the resource, in lower case.
    Word(String),
    Test {
        path: Vec<String>,
        kind: Kind,
        op: Op,
        value: Operand,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Has,
}

#[derive(Debug)]
enum Operand {
    /// `*`: set at all.
    Present,
    Text(String),
    Number(f64),
    Bool(bool),
    Time(jiff::Timestamp),
}

impl Filter {
    /// Reads a filter; text of nothing but blanks is `None`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with what was expected, or the field that there is not.
    pub fn parse(message: &'static Message, text: &str) -> ApiResult<Option<Filter>> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let bad = |why: String| {
            ApiError::field(
                "filter",
                format!("Invalid filter '{}': {why}", abbreviate(text)),
            )
        };
        if text.len() > MAX_FILTER {
            return Err(bad(format!("longer than {MAX_FILTER} bytes")));
        }
        let tokens = tokens(text).map_err(bad)?;
        let mut p = Parser {
            message,
            tokens: &tokens,
            depth: 0,
        };
        let node = p.expression().map_err(bad)?;
        match p.tokens.first() {
            None => Ok(Some(Filter(node))),
            Some(t) => Err(bad(format!("{t} was not expected"))),
        }
    }

    /// Returns true if a resource in normal form passes.
    pub fn matches(&self, resource: &Object) -> bool {
        holds(&self.0, resource)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Op(Op),
    Open,
    Close,
    Minus,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(w) | Token::Quoted(w) => write!(f, "'{}'", abbreviate(w)),
            Token::Op(_) => f.write_str("an operator"),
            Token::Open => f.write_str("'('"),
            Token::Close => f.write_str("')'"),
            Token::Minus => f.write_str("'-'"),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            ':' => Token::Op(Op::Has),
            '=' => Token::Op(Op::Eq),
            '!' if chars.next_if_eq(&'=').is_some() => Token::Op(Op::Ne),
            '<' if chars.next_if_eq(&'=').is_some() => Token::Op(Op::Le),
            '<' => Token::Op(Op::Lt),
            '>' if chars.next_if_eq(&'=').is_some() => Token::Op(Op::Ge),
            '>' => Token::Op(Op::Gt),
            '"' | '\'' => {
                let mut s = String::new();
                loop {
                    match chars.next() {
                        None => return Err("a quotation mark is not closed".to_owned()),
                        Some(e) if e == c => break,
                        Some('\\') => match chars.next() {
                            None => return Err("a quotation mark is not closed".to_owned()),
                            Some(e) => s.push(e),
                        },
                        Some(e) => s.push(e),
                    }
                }
                Token::Quoted(s)
            }
            // A minus is a negation only before a term: `-labels.x:y`. Within words (`my-pool`) and
            // numbers it is part.
            '-' if chars.peek().is_some_and(|n| n.is_alphabetic() || *n == '(')
                && !matches!(out.last(), Some(Token::Op(_))) =>
            {
                Token::Minus
            }
            c => {
                let mut s = String::from(c);
                while let Some(n) = chars.next_if(|n| {
                    !n.is_whitespace()
                        && !matches!(n, '(' | ')' | '=' | '<' | '>' | '!' | '"' | '\'')
                        && (*n != ':' || time_so_far(&s))
                }) {
                    s.push(n);
                }
                if s == "!" {
                    return Err("'!' without '='".to_owned());
                }
                Token::Word(s)
            }
        };
        out.push(token);
    }
    Ok(out)
}

/// Returns true if a word reads like the start of an unquoted time, in which a colon is no
/// operator: `2026-01-01T10`, `2026-01-01T10:30`.
fn time_so_far(word: &str) -> bool {
    word.len() >= 13
        && word.as_bytes().get(10) == Some(&b'T')
        && word.bytes().next().is_some_and(|b| b.is_ascii_digit())
}

struct Parser<'a> {
    message: &'static Message,
    tokens: &'a [Token],
    depth: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first.clone())
    }

    fn keyword(&mut self, word: &str) -> bool {
        let found = matches!(self.tokens.first(), Some(Token::Word(w)) if w == word);
        if found {
            self.next();
        }
        found
    }

    fn expression(&mut self) -> Result<Node, String> {
        let mut all = vec![self.factor()?];
        loop {
            match self.tokens.first() {
                None | Some(Token::Close) => break,
                _ => {
                    self.keyword("AND");
                    all.push(self.factor()?);
                }
            }
        }
        Ok(one_or(all, Node::All))
    }

    fn factor(&mut self) -> Result<Node, String> {
        let mut any = vec![self.term()?];
        while self.keyword("OR") {
            any.push(self.term()?);
        }
        Ok(one_or(any, Node::Any))
    }

    fn term(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_FILTER_DEPTH {
            return Err(format!("more than {MAX_FILTER_DEPTH} levels"));
        }
        let negated = self.tokens.first() == Some(&Token::Minus);
        let node = if negated {
            self.next();
            Node::Not(Box::new(self.term()?))
        } else if self.keyword("NOT") {
            Node::Not(Box::new(self.term()?))
        } else {
            match self.next() {
                Some(Token::Open) => {
                    let inner = self.expression()?;
                    match self.next() {
                        Some(Token::Close) => inner,
                        _ => return Err("a parenthesis is not closed".to_owned()),
                    }
                }
                Some(Token::Word(w)) if w == "AND" || w == "OR" => {
                    return Err(format!("{w} where a term was expected"));
                }
                Some(Token::Word(w)) => self.restriction(w)?,
                Some(Token::Quoted(w)) => Node::Word(w.to_lowercase()),
                Some(t) => return Err(format!("{t} where a term was expected")),
                None => return Err("it ends where a term was expected".to_owned()),
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn restriction(&mut self, word: String) -> Result<Node, String> {
        let Some(Token::Op(op)) = self.tokens.first() else {
            return Ok(Node::Word(word.to_lowercase()));
        };
        let op = *op;
        self.next();
        let (path, kind) = resolve(self.message, &word)?;
        let (text, quoted) = match self.next() {
            Some(Token::Word(w)) => (w, false),
            Some(Token::Quoted(w)) => (w, true),
            _ => return Err(format!("no value after '{}'", abbreviate(&word))),
        };
        let value = operand(&word, kind, op, text, quoted)?;
        Ok(Node::Test {
            path,
            kind,
            op,
            value,
        })
    }
}

fn one_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match (nodes.len(), nodes.pop()) {
        (1, Some(only)) => only,
        (_, Some(last)) => {
            nodes.push(last);
            many(nodes)
        }
        (_, None) => many(nodes),
    }
}

/// Returns the path of a field in JSON names, and the kind at its end.
fn resolve(message: &'static Message, word: &str) -> Result<(Vec<String>, Kind), String> {
    let mut at = message;
    let mut path = Vec::new();
    let mut rest = word;
    loop {
        let (name, tail) = match rest.split_once('.') {
            Some((name, tail)) => (name, Some(tail)),
            None => (rest, None),
        };
        let f = at
            .field(name)
            .ok_or_else(|| format!("there is no field '{}'", abbreviate(word)))?;
        path.push(f.name.to_owned());
        match (f.kind, tail) {
            (kind, None) => return Ok((path, kind)),
            (Kind::Labels, Some(key)) => {
                path.push(key.trim_matches(['"', '`', '\'']).to_owned());
                return Ok((path, Kind::String));
            }
            (Kind::Message(inner), Some(tail)) => {
                at = inner;
                rest = tail;
            }
            _ => return Err(format!("there is no field '{}'", abbreviate(word))),
        }
    }
}

fn operand(field: &str, kind: Kind, op: Op, text: String, quoted: bool) -> Result<Operand, String> {
    let wrong = |what: &str| {
        Err(format!(
            "'{}' is not {what}, as '{}' is",
            abbreviate(&text),
            abbreviate(field)
        ))
    };
    if text == "*" && !quoted && matches!(op, Op::Has | Op::Eq | Op::Ne) {
        return Ok(Operand::Present);
    }
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Double => match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Operand::Number(n)),
            _ => wrong("a number"),
        },
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Operand::Bool(true)),
            "false" => Ok(Operand::Bool(false)),
            _ => wrong("true or false"),
        },
        Kind::Timestamp => match text.parse() {
            Ok(t) => Ok(Operand::Time(t)),
            Err(_) => wrong("a time (RFC 3339)"),
        },
        Kind::Enum(e) if !e.open && e.number(&text.to_ascii_uppercase()).is_none() => {
            wrong("one of its values")
        }
        Kind::Enum(_) => Ok(Operand::Text(text.to_ascii_uppercase())),
        Kind::Message(_) | Kind::Any => Err(format!(
            "'{}' can only be asked for with ':*'",
            abbreviate(field)
        )),
        Kind::Labels if op != Op::Has => {
            Err("labels are asked for with 'labels.KEY=VALUE'".to_owned())
        }
        Kind::String | Kind::Labels => Ok(Operand::Text(text)),
    }
}

fn holds(node: &Node, resource: &Object) -> bool {
    match node {
        Node::All(nodes) => nodes.iter().all(|n| holds(n, resource)),
        Node::Any(nodes) => nodes.iter().any(|n| holds(n, resource)),
        Node::Not(inner) => !holds(inner, resource),
        Node::Word(w) => resource.values().any(|v| has_text(v, w)),
        Node::Test {
            path,
            kind,
            op,
            value,
        } => {
            // `!=` says that no element is equal, and an absent field is not equal to anything.
            let (op, negate) = match op {
                Op::Ne => (Op::Eq, true),
                op => (*op, false),
            };
            let mut found = false;
            let mut any = false;
            let mut steps = path.iter().map(String::as_str);
            let first = steps.next().unwrap_or_default();
            let rest: Vec<&str> = steps.collect();
            visit(resource.get(first), &rest, &mut |v| {
                any = true;
                found = found || test(*kind, v, op, value);
            });
            if !any {
                found = absent(*kind, op, value);
            }
            found != negate
        }
    }
}

/// Returns true if a field that is not there passes: in JSON, a field that has its type's default
/// is left out.
fn absent(kind: Kind, op: Op, value: &Operand) -> bool {
    match (kind, value) {
        (Kind::Bool, Operand::Bool(b)) => !b,
        (Kind::Int32 | Kind::Int64 | Kind::Double, Operand::Number(_)) => {
            test(kind, &Value::from(0), op, value)
        }
        (Kind::String, Operand::Text(t)) => t.is_empty() && op == Op::Eq,
        _ => false,
    }
}

fn visit(value: Option<&Value>, path: &[&str], each: &mut dyn FnMut(&Value)) {
    match (value, path.split_first()) {
        (Some(Value::Array(items)), _) => {
            for item in items {
                visit(Some(item), path, each);
            }
        }
        (Some(v), None) => each(v),
        (Some(Value::Object(o)), Some((first, rest))) => visit(o.get(*first), rest, each),
        _ => {}
    }
}

fn test(kind: Kind, found: &Value, op: Op, value: &Operand) -> bool {
    let order = match (found, value) {
        (_, Operand::Present) => return !found.is_null(),
        (Value::Number(n), Operand::Number(w)) => n.as_f64().and_then(|n| n.partial_cmp(w)),
        (Value::Bool(b), Operand::Bool(w)) => Some(b.cmp(w)),
        (Value::String(s), Operand::Time(w)) => s.parse::<jiff::Timestamp>().ok().map(|t| t.cmp(w)),
        (Value::String(s), Operand::Text(w)) => {
            let text = !matches!(kind, Kind::Enum(_));
            match op {
                Op::Has if text => return s.to_lowercase().contains(&w.to_lowercase()),
                Op::Eq if text => return like(s, w),
                _ => Some(s.as_str().cmp(w)),
            }
        }
        // `labels:team`: whether there is such a key.
        (Value::Object(o), Operand::Text(w)) => return o.contains_key(w),
        _ => None,
    };
    let Some(order) = order else { return false };
    match op {
        Op::Eq | Op::Has => order == Ordering::Equal,
        Op::Ne => order != Ordering::Equal,
        Op::Lt => order == Ordering::Less,
        Op::Le => order != Ordering::Greater,
        Op::Gt => order == Ordering::Greater,
        Op::Ge => order != Ordering::Less,
    }
}

/// Returns true if the text equals the pattern, with `*` at either end for anything.
fn like(text: &str, pattern: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => text.contains(pattern.trim_matches('*')),
        (Some(end), None) => text.ends_with(end),
        (None, Some(start)) => text.starts_with(start),
        (None, None) => text == pattern,
    }
}

fn has_text(value: &Value, word: &str) -> bool {
    match value {
        Value::String(s) => s.to_lowercase().contains(word),
        Value::Array(items) => items.iter().any(|v| has_text(v, word)),
        Value::Object(o) => o.values().any(|v| has_text(v, word)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

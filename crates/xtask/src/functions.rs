//! Functions that are too long to be read at once.

use crate::source::{self, Token};

/// Most lines of a function, from `fn` to its last brace, without those that are empty or a
/// comment.
pub const LINES: usize = 70;

/// A function that is longer than [`LINES`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Long {
    /// Name of the function.
    pub name: String,
    /// Its lines.
    pub lines: usize,
}

/// Returns the functions of a file's product code that are longer than [`LINES`].
pub fn long(text: &str) -> Vec<Long> {
    let (tokens, lines) = source::with_lines(text);
    let source: Vec<&str> = text.lines().collect();
    let begins = |at: usize| tokens.get(at) == Some(&Token::word("fn"));
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| begins(*at)) {
        let Some(Token::Word(name)) = tokens.get(at + 1) else {
            // The type of a function pointer has no name.
            continue;
        };
        let Some(end) = end_of_body(&tokens, at) else {
            // A declaration in a trait has no body.
            continue;
        };
        let body = source.get(lines[at] - 1..lines[end]).unwrap_or_default();
        let counted = body.iter().map(|line| line.trim());
        let counted = counted.filter(|line| !line.is_empty() && !line.starts_with("//"));
        let lines = counted.count();
        if lines > LINES {
            found.push(Long {
                name: name.clone(),
                lines,
            });
        }
    }
    found
}

/// Returns the place of the brace that ends the function that begins at `at`.
fn end_of_body(tokens: &[Token], at: usize) -> Option<usize> {
    let (mut brackets, mut braces) = (0_usize, 0_usize);
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Sign('(' | '[') => brackets += 1,
            Token::Sign(')' | ']') => brackets = brackets.checked_sub(1)?,
            Token::Sign('{') => braces += 1,
            Token::Sign('}') if braces == 1 => return Some(place),
            Token::Sign('}') => braces = braces.checked_sub(1)?,
            Token::Sign(';') if brackets == 0 && braces == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        let body = "    a();\n".repeat(lines - 2);
        format!("fn {name}(a: [u8; 2]) {{\n{body}\n    // Why.\n}}\n")
    }

    #[test]
    fn long_functions_are_found() {
        let text = format!(
            "{}{}trait A {{ fn c(&self); }}\nfn d(f: fn() -> u8) {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            function("a", LINES),
            function("b", LINES + 1),
            function("c", LINES + 1),
        );
        let expected = Long {
            name: "b".to_owned(),
            lines: LINES + 1,
        };
        assert_eq!(long(&text), [expected]);
    }
}

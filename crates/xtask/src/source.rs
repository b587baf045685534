//! As much of Rust's syntax as shows which paths a file names: words, `::`, braces. Comments, texts
//! and what only tests see are left out.

/// A piece of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// An identifier, a keyword or a number.
    Word(String),
    /// Two colons, `::`, between names.
    Separator,
    /// Any other character, on its own.
    Sign(char),
}

impl Token {
    /// A word, from its text.
    pub fn word(text: &str) -> Token {
        Token::Word(text.to_owned())
    }
}

/// The tokens of a file, up to its unit tests.
pub fn tokens(text: &str) -> Vec<Token> {
    let (tokens, _) = with_lines(text);
    tokens
}

/// The tokens of a file, up to its unit tests, and the number of the line that each is on.
pub fn with_lines(text: &str) -> (Vec<Token>, Vec<usize>) {
    let mut out = Vec::new();
    let mut lines = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        let used = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(len) = quoted(rest) {
            len
        } else if c.is_alphanumeric() || c == '_' {
            let len = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            out.push(Token::word(&rest[..len]));
            len
        } else if rest.starts_with("::") {
            out.push(Token::Separator);
            2
        } else {
            if !c.is_whitespace() {
                out.push(Token::Sign(c));
            }
            c.len_utf8()
        };
        lines.resize(out.len(), line);
        line += rest[..used].matches('\n').count();
        rest = &rest[used..];
    }
    let tests = test_modules(&out).find(|at| out.get(at + 2) == Some(&Token::Sign('{')));
    out.truncate(tests.unwrap_or(out.len()));
    lines.truncate(out.len());
    (out, lines)
}

/// Length of the text or character that `rest` begins with.
fn quoted(rest: &str) -> Option<usize> {
    let raw = rest.trim_start_matches(['b', 'c']).strip_prefix('r');
    let hashes = raw.map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    if let Some(text) = raw.and_then(|raw| raw[hashes..].strip_prefix('"')) {
        let end = format!("\"{}", "#".repeat(hashes));
        let before = rest.len() - text.len();
        return Some(before + text.find(&end).map_or(text.len(), |at| at + end.len()));
    }
    let mut chars = rest.char_indices();
    let quote = chars.next()?.1;
    match quote {
        '"' => {
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => _ = chars.next(),
                    '"' => return Some(at + 1),
                    _ => {}
                }
            }
            Some(rest.len())
        }
        // A character, and not a lifetime.
        '\'' if rest.starts_with("'\\") => rest[3..].find('\'').map(|at| at + 4),
        '\'' => chars
            .nth(1)
            .filter(|(_, c)| *c == '\'')
            .map(|(at, _)| at + 1),
        _ => None,
    }
}

/// The places of `mod` behind `#[cfg(test)]`, also of a `mod` with a visibility.
fn test_modules(tokens: &[Token]) -> impl Iterator<Item = usize> + '_ {
    let mark = ["cfg", "test"].map(Token::word);
    let begins = tokens
        .iter()
        .enumerate()
        .filter(|(_, t)| **t == Token::word("mod"));
    begins.map(|(at, _)| at).filter(move |at| {
        let before = without_visibility(tokens.get(..*at).unwrap_or_default());
        let [.., a, open, b, close, end] = before else {
            return false;
        };
        *a == mark[0]
            && *b == mark[1]
            && [open, close, end] == [&Token::Sign('('), &Token::Sign(')'), &Token::Sign(']')]
    })
}

/// The tokens without a `pub` or `pub(…)` at their end.
fn without_visibility(tokens: &[Token]) -> &[Token] {
    let public = Token::word("pub");
    match tokens {
        [rest @ .., word] if *word == public => rest,
        [.., Token::Sign(')')] => {
            let opens = tokens.iter().rposition(|t| *t == Token::Sign('('));
            let word = opens.and_then(|at| at.checked_sub(1));
            match word.filter(|at| tokens.get(*at) == Some(&public)) {
                Some(at) => &tokens[..at],
                None => tokens,
            }
        }
        _ => tokens,
    }
}

/// The modules that a root declares, without those of tests.
pub fn modules(tokens: &[Token]) -> Vec<String> {
    let tests: Vec<usize> = test_modules(tokens).collect();
    let product = declared(tokens).filter(|(at, _)| !tests.contains(at));
    product.map(|(_, name)| name).collect()
}

/// The modules that a module declares for tests only.
pub fn modules_of_tests(tokens: &[Token]) -> Vec<String> {
    let tests: Vec<usize> = test_modules(tokens).collect();
    let of_tests = declared(tokens).filter(|(at, _)| tests.contains(at));
    of_tests.map(|(_, name)| name).collect()
}

/// The declarations of modules that are files, each with its place.
fn declared(tokens: &[Token]) -> impl Iterator<Item = (usize, String)> + '_ {
    let threes = tokens.windows(3).enumerate();
    threes.filter_map(|(at, three)| match three {
        [Token::Word(keyword), Token::Word(name), Token::Sign(';')] if keyword == "mod" => {
            Some((at, name.clone()))
        }
        _ => None,
    })
}

/// The paths that begin at a token: several where braces follow. `self` in braces is the path
/// before them.
pub fn paths(tokens: &[Token], at: usize) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    follow(tokens, at, &[], &mut out);
    out
}

/// Appends the paths that go on from `before` at token `at`; returns the token behind them.
fn follow(tokens: &[Token], mut at: usize, before: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at) {
            Some(Token::Word(word)) => {
                if word != "self" || path.is_empty() {
                    path.push(word.clone());
                }
                at += 1;
            }
            Some(Token::Sign('{'))
                if at > 0 && (path.is_empty() || tokens.get(at - 1) == Some(&Token::Separator)) =>
            {
                at += 1;
                while let Some(token) = tokens.get(at) {
                    match token {
                        Token::Sign('}') => return at + 1,
                        Token::Word(_) | Token::Sign('{') => at = follow(tokens, at, &path, out),
                        _ => at += 1,
                    }
                }
                return at;
            }
            _ => break,
        }
        if tokens.get(at) == Some(&Token::word("as")) {
            at += 2;
        }
        if tokens.get(at) != Some(&Token::Separator) {
            break;
        }
        at += 1;
    }
    out.push(path);
    at
}

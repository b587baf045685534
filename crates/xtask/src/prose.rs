//! Rules of prose that a program can check: width of comments, first words of doc comments, form of
//! messages.

/// Most columns of a line with a comment alone.
const COLUMNS: usize = 100;

/// Words that a doc comment does not start with: it names a thing, or says what a function does.
const OPENINGS: &[&str] = &[
    "What", "Who", "Whether", "How", "Where", "Of", "Has", "Likewise",
];

/// Two words that it does not start with.
const SAME: &str = "The same";

/// Macros and methods whose first text is a message to a user or an operator.
const MESSAGES: &[&str] = &[
    "bail!(", "anyhow!(", "ensure!(", "context(", "error!(", "warn!(", "info!(", "#[error(",
];

/// Beginnings that no message of the form "operation object: cause" has.
const NO_OPERATION: &[&str] = &[
    "what ",
    "who ",
    "whether ",
    "how ",
    "where ",
    "of ",
    "has ",
    "there is ",
    "there are ",
    "it ",
    "the ",
    "a ",
    "this ",
];

/// Phrases that hide the operation or the cause.
const HIDDEN: &[&str] = &[
    "to be had",
    "going on with",
    "be noted",
    "be written down",
    "become of",
    "trying again",
];

/// Faults of a file's prose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Comments over [`COLUMNS`].
    pub wide: usize,
    /// Doc comments with a first word of [`OPENINGS`].
    pub openings: usize,
    /// Messages without the form "operation object: cause".
    pub messages: usize,
}

/// Counts the faults of a file.
pub fn count(text: &str) -> Counts {
    let mut counts = Counts::default();
    let mut before = "";
    for line in text.lines().map(str::trim_start) {
        let (mark, first) = doc_mark(line);
        if !mark.is_empty() && mark != before && starts_badly(first) {
            counts.openings += 1;
        }
        before = mark;
    }
    // Texts of several lines have lines that begin with two slashes as well.
    let begins = |line: &str, mark| line.trim_start().starts_with(mark);
    let comment = |line: &&str| ["// ", "///", "//!"].iter().any(|mark| begins(line, *mark));
    let wide = text.lines().filter(comment);
    counts.wide = wide.filter(|line| line.chars().count() > COLUMNS).count();
    let product = text
        .split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text);
    counts.messages = messages(product).filter(|m| is_malformed(m)).count();
    counts
}

/// The mark of a doc comment that `line` is, and its text.
fn doc_mark(line: &str) -> (&'static str, &str) {
    for mark in ["///", "//!"] {
        if let Some(rest) = line.strip_prefix(mark) {
            return (mark, rest.trim_start());
        }
    }
    ("", "")
}

fn starts_badly(text: &str) -> bool {
    let word = text.split(|c: char| !c.is_alphanumeric()).next();
    word.is_some_and(|word| OPENINGS.contains(&word)) || text.starts_with(SAME)
}

/// Returns the texts of messages in a source file.
fn messages(text: &str) -> impl Iterator<Item = &str> {
    MESSAGES.iter().flat_map(move |mark| {
        let places = text.match_indices(mark);
        places.filter_map(move |(at, mark)| {
            let rest = text.get(at + mark.len()..)?;
            // A message begins an argument, in `ensure!` not the first.
            let begins = if *mark == *"ensure!(" { "," } else { "(,|" };
            let mut end = rest.char_indices().scan(1_usize, |depth, (at, c)| {
                match c {
                    '(' => *depth += 1,
                    ')' => *depth -= 1,
                    _ => {}
                }
                (*depth > 0 && c != ';').then_some((at, c))
            });
            let quote = end.find(|(_, c)| *c == '"')?.0;
            let before = rest[..quote].trim_end().chars().next_back();
            let fits = before.map_or(begins != ",", |c| begins.contains(c));
            let text = rest.get(quote + 1..)?;
            fits.then(|| text.split('"').next().unwrap_or(text))
        })
    })
}

fn is_malformed(message: &str) -> bool {
    let lower = message.to_lowercase();
    NO_OPERATION.iter().any(|start| lower.starts_with(start))
        || HIDDEN.iter().any(|phrase| lower.contains(phrase))
        || message.ends_with(['.', '!'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_prose_are_counted() {
        let wide = format!("// {}", "a".repeat(COLUMNS));
        let text = format!(
            "/// What is there.\n/// What follows.\nstruct A;\n//! Whether it is.\n/// Whatever it is.\n{wide}\n"
        );
        let expected = Counts {
            wide: 1,
            openings: 2,
            messages: 0,
        };
        assert_eq!(count(&text), expected);
    }

    #[test]
    fn messages_are_found_and_judged() {
        for (text, malformed) in [
            ("bail!(\"there is no {file}\");", 1),
            ("bail!(\"no such file: {file}\");", 0),
            (
                "ensure!(name != \"the one\", \"cannot open {name}: busy\");",
                0,
            ),
            ("ensure!(ok, \"it is closed\");", 1),
            (".with_context(|| format!(\"what is noted\"))", 1),
            (
                "tracing::warn!(%name, \"UDP port {} is not to be had\", 1);",
                1,
            ),
            ("#[error(\"The name is taken.\")]", 1),
            ("info!(\"listening on {address}\");", 0),
        ] {
            assert_eq!(count(text).messages, malformed, "{text}");
        }
    }
}

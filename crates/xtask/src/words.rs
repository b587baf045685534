//! Phrases of a private dialect, for which the field has a word.

use std::path::Path;

use anyhow::{Context, Result};

/// Phrases that are not written, and what is instead.
const BANNED: &[(&str, &str)] = &[
    ("is told", "is notified"),
    ("are told", "are notified"),
    ("stands in", "is stored in, is defined in"),
    ("stand in", "are stored in"),
    ("lies in", "is stored in"),
    ("has a look", "reads, checks"),
    ("looks at", "reads, checks, polls"),
    ("goes before", "has priority over"),
    ("let go", "freed, released"),
    ("lets go", "frees, releases"),
    ("given back", "freed, released, refunded"),
    ("gives back", "frees, releases, refunds"),
    ("worked off", "drained"),
    ("what there is", "the thing by its name"),
    ("whoever", "the thing by its name"),
    ("somebody", "the thing by its name"),
];

/// A line for each line of `files` (paths below `root`) with a banned phrase. This file may have
/// them.
pub fn faults<'a>(root: &Path, files: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let read = |file: &&str| {
        let source = file.ends_with(".rs") && !file.ends_with("xtask/src/words.rs");
        source || file.ends_with(".md")
    };
    for file in files.filter(read) {
        let path = root.join(file);
        // A file may be listed and, before a commit, already gone.
        if !path.exists() || file.starts_with("bench/runs/") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
        for (line, text) in text.lines().enumerate() {
            let found = banned(text);
            faults.extend(found.map(|(phrase, instead)| {
                format!("{file}:{} says \"{phrase}\": say {instead}", line + 1)
            }));
        }
    }
    Ok(faults)
}

/// The banned phrases of a line, as whole words.
fn banned(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let line = line.to_lowercase();
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    BANNED.iter().filter(move |(phrase, _)| {
        line.match_indices(phrase).any(|(at, _)| {
            let (before, from) = line.split_at(at);
            let after = from.strip_prefix(phrase).and_then(|s| s.chars().next());
            !inside(before.chars().next_back()) && !inside(after)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_as_words() {
        let found = |line| banned(line).map(|(phrase, _)| *phrase).collect::<Vec<_>>();
        assert_eq!(found("/// Whoever is told"), ["is told", "whoever"]);
        assert_eq!(found("a file that is_told, a bandstand in it"), [""; 0]);
        assert_eq!(found("it is notified"), [""; 0]);
    }
}

//! Defects that are absorbed instead of found: counts that saturate, and silent returns.
//!
//! In the crates that keep counts of what is stored, reserved or charged, `saturating_…` needs a
//! comment `// Saturates: why` in the same paragraph (the lines up to the next empty one, or above
//! within it): arithmetic on times, limits and what comes from outside. A count of things is taken
//! from by `less`, and what cannot be otherwise is an `invariant!` (`weir_base`). And an `else`
//! that does nothing but leave (`return`, `continue`, `break` without a value) says in a comment
//! inside it why there is nothing to do.

use std::path::Path;

use anyhow::{Context, Result};

/// The crates that this is checked in.
const CRATES: &[&str] = &["base", "store", "volume", "qos", "vfs", "replica"];

/// Calls that have to be explained.
const ABSORBS: &str = "saturating_";

/// Beginning of an explanation.
const BECAUSE: &str = "// Saturates: ";

/// A line for each unexplained place in `files` (paths below `root`).
pub fn faults<'a>(root: &Path, files: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in files.filter(|file| concerns(file)) {
        let path = root.join(file);
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
        faults.extend(unexplained(&text).map(|line| {
            format!("{file}:{line} saturates without a `{BECAUSE}…` in its paragraph")
        }));
        faults.extend(
            silent(&text)
                .map(|line| format!("{file}:{line} leaves without a comment that says why")),
        );
    }
    Ok(faults)
}

/// Product code of those crates.
fn concerns(file: &str) -> bool {
    let mut parts = file.split('/');
    let of = (parts.next(), parts.next(), parts.next());
    matches!(of, (Some("crates"), Some(name), Some("src")) if CRATES.contains(&name))
        && file.ends_with(".rs")
        && !file.ends_with("tests.rs")
}

/// The numbers of the lines that saturate without saying why, before the file's tests.
fn unexplained(text: &str) -> impl Iterator<Item = usize> {
    let mut explained = false;
    let product = text.lines().take_while(|line| line.trim() != "mod tests {");
    (1..).zip(product).filter_map(move |(number, line)| {
        explained = !line.trim().is_empty() && (explained || line.trim().starts_with(BECAUSE));
        let code = line.split("//").next().unwrap_or(line);
        (code.contains(ABSORBS) && !explained).then_some(number)
    })
}

/// The numbers of the lines that open an `else` in which there is nothing but leaving.
fn silent(text: &str) -> impl Iterator<Item = usize> {
    let product: Vec<&str> = text
        .lines()
        .take_while(|line| line.trim() != "mod tests {")
        .collect();
    let leaves = |line: &str| matches!(line, "return;" | "return" | "continue;" | "break;");
    let silent = |pair: &[&str]| {
        let [opens, inside] = pair else { return false };
        let opens = opens.trim();
        let short = opens.rsplit_once("else {").map(|(_, rest)| rest.trim());
        match short {
            Some("") => leaves(inside.trim()),
            Some(rest) => rest
                .strip_suffix("};")
                .is_some_and(|rest| leaves(rest.trim())),
            None => false,
        }
    };
    let found: Vec<usize> = (1..)
        .zip(product.windows(2))
        .filter(|(_, pair)| silent(pair))
        .map(|(number, _)| number)
        .collect();
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_saturates_says_why_in_its_paragraph() {
        let found = |text: &str| unexplained(text).collect::<Vec<_>>();
        let line = "let a = b.saturating_sub(c);";
        assert_eq!(found(line), [1]);
        assert!(found(&format!("// Saturates: times.\n{line}\n{line}")).is_empty());
        assert_eq!(found(&format!("// Saturates: times.\n\n{line}")), [3]);
        assert_eq!(
            found("// Saturates:\na.saturating_add(1)"),
            [2],
            "no reason"
        );
        assert!(found("// saturating_sub is no word of ours").is_empty());
        assert!(found(&format!("mod tests {{\n{line}")).is_empty());
    }

    #[test]
    fn leaving_needs_a_reason() {
        let found = |text: &str| silent(text).collect::<Vec<_>>();
        assert_eq!(found("let Some(a) = b else { return };\nc();"), [1]);
        assert_eq!(found("let Some(a) = b else {\n    continue;\n};"), [1]);
        assert!(found("let Some(a) = b else {\n    // Nothing.\n    continue;\n};").is_empty());
        assert!(found("let Some(a) = b else {\n    return None;\n};").is_empty());
    }

    #[test]
    fn only_what_keeps_counts_is_looked_at() {
        assert!(concerns("crates/qos/src/meter.rs"));
        assert!(!concerns("crates/qos/src/tests.rs"));
        assert!(!concerns("crates/qos/tests/shares.rs"));
        assert!(!concerns("crates/bench/src/main.rs"));
    }
}

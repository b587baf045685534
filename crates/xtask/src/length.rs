//! Files that are too long to be one responsibility. Functions have a tighter cap (`functions`).

use std::path::Path;

use anyhow::{Context, Result};

/// Most lines of a source file.
const LINES: usize = 1500;

/// A line for each of `files` (paths below `root`) that is longer than it may be.
pub fn faults<'a>(root: &Path, files: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in files.filter(|file| file.ends_with(".rs")) {
        let path = root.join(file);
        // A file may be listed and, before a commit, already gone.
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
        faults.extend(fault(file, text.lines().count()));
    }
    Ok(faults)
}

fn fault(file: &str, lines: usize) -> Option<String> {
    (lines > LINES).then(|| format!("{file} has {lines} lines; {LINES} is the most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_faults() {
        assert_eq!(fault("a.rs", LINES), None);
        assert!(fault("a.rs", LINES + 1).is_some());
    }
}

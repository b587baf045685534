//! Tests that hold the invariants of the documents: the files, and the tests in them, have to
//! exist.

use std::path::Path;

use anyhow::{Context, Result};

/// Document that lists the invariants.
pub const INVARIANTS: &str = "docs/internals/invariants.md";

/// The files that the document names, with the test that it names in each, if any:
/// `vfs/claims/table.rs`, `vfs/tests/a.rs::name`.
fn test_references(text: &str) -> Vec<(String, Option<String>)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let one = |name: &str| match name.split_once(".rs::") {
        Some((file, test)) => Some((format!("{file}.rs"), Some(test.to_owned()))),
        None => name.ends_with(".rs").then(|| (name.to_owned(), None)),
    };
    quoted.filter_map(one).collect()
}

/// A line for each file and each test that is named and not there.
pub fn faults(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(INVARIANTS))
        .with_context(|| format!("cannot read {INVARIANTS}"))?;
    let mut faults = Vec::new();
    for (file, test) in test_references(&text) {
        let (krate, rest) = file.split_once('/').unwrap_or(("", &file));
        let places = [
            format!("crates/{krate}/src/{rest}"),
            format!("crates/{krate}/{rest}"),
        ];
        let texts = places
            .iter()
            .map(|place| std::fs::read_to_string(root.join(place)));
        let Some(text) = texts.flatten().next() else {
            faults.push(format!("{INVARIANTS}: there is no {file}"));
            continue;
        };
        if let Some(test) = test.filter(|test| !text.contains(&format!("fn {test}("))) {
            faults.push(format!("{INVARIANTS}: {file} has no test {test}"));
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_an_invariant_exists() {
        let root = std::env::temp_dir().join(format!("xtask-{}-held", std::process::id()));
        std::fs::create_dir_all(root.join("crates/x/src")).unwrap();
        std::fs::create_dir_all(root.join("crates/x/tests")).unwrap();
        std::fs::write(root.join("crates/x/src/a.rs"), "fn good() {}").unwrap();
        std::fs::write(root.join("crates/x/tests/b.rs"), "fn good() {}").unwrap();
        std::fs::create_dir_all(root.join("docs/internals")).unwrap();
        for (names, count) in [
            ("`x/a.rs`, `x/tests/b.rs::good`, `tidy`", 0),
            ("`x/a.rs::bad` and `x/c.rs` and `x/b.rs::good`", 3),
        ] {
            std::fs::write(root.join(INVARIANTS), format!("# A\n- {names}\n")).unwrap();
            assert_eq!(faults(&root).unwrap().len(), count, "{names}");
        }
        std::fs::remove_dir_all(&root).unwrap();
        assert!(faults(&root).is_err());
    }
}

//! The sources of the workspace's crates.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::circles::Module;
use crate::modules::{is_test, place};

/// Folders in which each folder is a crate.
const FOLDERS: &[&str] = &["crates/", "bench/", "conformance/"];

/// A source file of a crate.
#[derive(Debug)]
pub struct File {
    /// Path of the module; `None` for what is not below `src`: tests, benchmarks, examples.
    pub module: Option<Module>,
    /// The text.
    pub text: String,
}

impl File {
    /// True if it is a part of the product or of a tool, and no test.
    pub fn is_product(&self) -> bool {
        let tests = self.module.as_ref().map(|module| is_test(module));
        tests == Some(false)
    }
}

/// Reads the sources of each crate, by the crate's name. `files` are paths below `root`.
pub fn read(root: &Path, files: &[&str]) -> Result<BTreeMap<String, Vec<File>>> {
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for path in files.iter().filter(|file| file.ends_with(".rs")) {
        let inside = FOLDERS
            .iter()
            .find_map(|folder| path.strip_prefix(folder)?.split_once('/'));
        let Some((name, rest)) = inside.filter(|_| root.join(path).exists()) else {
            // A file may be listed and, before a commit, already gone.
            continue;
        };
        let text = std::fs::read_to_string(root.join(path))
            .with_context(|| format!("cannot read {path}"))?;
        // Programs below `src/bin` are roots of their own.
        let source = rest
            .strip_prefix("src/")
            .filter(|rest| !rest.starts_with("bin/"));
        let mut module = source.map(place);
        if module.as_ref().is_some_and(|module| *module == ["main"]) {
            module = Some(Vec::new());
        }
        crates
            .entry(name.to_owned())
            .or_default()
            .push(File { module, text });
    }
    Ok(crates)
}

//! The sources of the workspace's crates.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::circles::Module;
use crate::modules::{is_test, place};
use crate::source;

/// Folders in which each folder is a crate.
const FOLDERS: &[&str] = &["crates/", "bench/", "conformance/"];

/// A source file of a crate.
#[derive(Debug)]
pub struct File {
    /// Path of the module; `None` for what is not below `src`: tests, benchmarks, examples.
    pub module: Option<Module>,
    /// The text.
    pub text: String,
    /// True if the module, or one that it is in, is declared for tests only.
    for_tests: bool,
}

impl File {
    /// True if it is a part of the product or of a tool, and no test.
    pub fn is_product(&self) -> bool {
        let tests = self.module.as_ref().map(|module| is_test(module));
        tests == Some(false) && !self.for_tests
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
        crates.entry(name.to_owned()).or_default().push(File {
            module,
            text,
            for_tests: false,
        });
    }
    crates.values_mut().for_each(|files| mark_tests(files));
    Ok(crates)
}

/// Marks the modules that are declared for tests only, and those in them.
fn mark_tests(files: &mut [File]) {
    let declared = files.iter().filter_map(|file| {
        let names = source::modules_of_tests(&source::tokens(&file.text));
        Some((file.module.clone()?, names))
    });
    let declared = declared.flat_map(|(module, names)| {
        let below = move |name| [module.as_slice(), &[name]].concat();
        names.into_iter().map(below)
    });
    let tests: Vec<Module> = declared.collect();
    for file in files {
        let module = file.module.iter();
        file.for_tests = module
            .flat_map(|module| tests.iter().map(move |test| module.starts_with(test)))
            .any(|inside| inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_for_tests_are_no_product() {
        let file = |module: &[&str], text: &str| File {
            module: Some(module.iter().map(|part| (*part).to_owned()).collect()),
            text: text.to_owned(),
            for_tests: false,
        };
        let mut files = [
            file(&[], "mod a; #[cfg(test)] mod b;"),
            file(&["a"], "#[cfg(test)] pub(crate) mod c;"),
            file(&["a", "c"], ""),
            file(&["b"], "mod d;"),
            file(&["b", "d"], ""),
        ];
        mark_tests(&mut files);
        let product: Vec<bool> = files.iter().map(File::is_product).collect();
        assert_eq!(product, [true, true, false, false, false]);
    }
}

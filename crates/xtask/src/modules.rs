//! The direction of dependencies between the modules of a crate: docs/internals/modules.md has a
//! block for each crate whose modules are layered, and for each folder of such a crate whose
//! modules are, with a line for each layer.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::source::{self, Token};

/// Document in which modules are drawn.
pub const MODULES: &str = "docs/internals/modules.md";

/// One crate's layers, the highest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Layers {
    /// Path of the sources below the root: a crate's, as `crates/vfs/src`, or a folder's in it.
    pub source: String,
    /// The folder's place in the crate; empty: the whole crate.
    within: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// The blocks of [`MODULES`] that begin with the path of a crate's sources.
pub fn drawn(text: &str) -> Vec<Layers> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| {
            let mut lines = block.lines().skip(1);
            let head = lines.next()?;
            let (_, within) = head.strip_prefix("crates/")?.split_once("/src")?;
            let names = |line: &str| {
                // Names, then two spaces and what they are about.
                let names = line.trim_start().split("  ").next().unwrap_or_default();
                names.split_whitespace().map(str::to_owned).collect()
            };
            let within = within.split('/').filter(|part| !part.is_empty());
            Some(Layers {
                source: head.to_owned(),
                within: within.map(str::to_owned).collect(),
                lines: lines.map(names).collect(),
            })
        })
        .collect()
}

impl Layers {
    fn layer_index(&self, module: &str) -> Option<usize> {
        self.lines
            .iter()
            .position(|line| line.iter().any(|name| name == module))
    }

    /// A line for each module that is not drawn, or drawn and not there, and for each arrow that
    /// points up. `files` are all paths below `root`.
    pub fn faults(&self, root: &Path, files: &[&str]) -> Result<Vec<String>> {
        let prefix = format!("{}/", self.source);
        let read = |file: &str| {
            let path = root.join(format!("{prefix}{file}"));
            std::fs::read_to_string(path).with_context(|| format!("reading {prefix}{file}"))
        };
        let root_file = match self.within.is_empty() {
            false => "mod.rs",
            true if root.join(format!("{prefix}main.rs")).exists() => "main.rs",
            true => "lib.rs",
        };
        let lib = Library::new(&source::tokens(&read(root_file)?));
        ensure!(
            !lib.modules.is_empty(),
            "{prefix}{root_file} has no modules"
        );
        let mut faults = Vec::new();
        for name in self.lines.iter().flatten() {
            if !lib.modules.contains(name) {
                faults.push(format!("{MODULES}: {prefix} has no module {name}"));
            }
        }
        for name in lib
            .modules
            .iter()
            .filter(|name| self.layer_index(name).is_none())
        {
            faults.push(format!("{MODULES}: {prefix}{name} is in no layer"));
        }
        let inside = files.iter().filter_map(|file| file.strip_prefix(&prefix));
        for file in
            inside.filter(|file| file.ends_with(".rs") && root.join(&prefix).join(file).exists())
        {
            let inside = place(file);
            let (Some(user), false) = (inside.first(), is_test(&inside)) else {
                continue;
            };
            let at = [self.within.as_slice(), &inside].concat();
            for used in lib.uses(&self.within, &at, &source::tokens(&read(file)?)) {
                if let (Some(from), Some(to)) = (self.layer_index(user), self.layer_index(&used)) {
                    if to < from {
                        faults.push(format!("{prefix}{file} may not use {used} ({MODULES})"));
                    }
                }
            }
        }
        Ok(faults)
    }
}

/// The module path of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`, `lib.rs` and `main.rs` the
/// empty one.
pub fn place(file: &str) -> Vec<String> {
    let parts = file.trim_end_matches(".rs").split('/');
    parts
        .filter(|part| !["mod", "lib", "main"].contains(part))
        .map(str::to_owned)
        .collect()
}

/// True if a module holds tests.
pub fn is_test(module: &[String]) -> bool {
    module.iter().any(|part| part == "tests")
}

/// Modules and re-exports of a crate's root.
struct Library {
    modules: Vec<String>,
    /// The modules of names that the root re-exports.
    home: HashMap<String, String>,
}

impl Library {
    fn new(tokens: &[Token]) -> Library {
        let modules = source::modules(tokens);
        let mut home = HashMap::new();
        for (at, token) in tokens.iter().enumerate() {
            if *token == Token::word("use") {
                for path in source::paths(tokens, at + 1) {
                    if let [module, .., name] = path.as_slice() {
                        if modules.contains(module) {
                            home.insert(name.clone(), module.clone());
                        }
                    }
                }
            }
        }
        Library { modules, home }
    }

    /// The other modules of the crate, or of the folder `within` it, that a file at `at` names,
    /// once each.
    fn uses(&self, within: &[String], at: &[String], tokens: &[Token]) -> Vec<String> {
        let mut used = Vec::new();
        for (i, token) in tokens.iter().enumerate() {
            let inner = i > 0 && tokens.get(i - 1) == Some(&Token::Separator);
            let begins = [Token::word("crate"), Token::word("super")].contains(token);
            if inner || !begins || tokens.get(i + 1) != Some(&Token::Separator) {
                continue;
            }
            for path in source::paths(tokens, i) {
                let up = path.iter().take_while(|part| *part == "super").count();
                let rest = path.get(up.max(1)..).unwrap_or_default();
                let base = match up {
                    0 => &[],
                    _ => at.get(..at.len().saturating_sub(up)).unwrap_or_default(),
                };
                let full = [base, rest].concat();
                let Some(first) = full.strip_prefix(within).and_then(<[String]>::first) else {
                    continue;
                };
                let module = match self.modules.contains(first) {
                    true => Some(first),
                    false => self.home.get(first),
                };
                let own = at.get(within.len());
                used.extend(module.filter(|m| Some(*m) != own).cloned());
            }
        }
        used.sort_unstable();
        used.dedup();
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: &str =
        "# A\n```\nmake\n```\nand\n```\ncrates/x/src\n  top left   what it does\n  bottom\n```\n";
    const LIB: &str = "mod top; mod left; pub mod bottom;\n#[cfg(test)]\nmod tests;\npub use bottom::{Thing, deep::{Other}};";

    #[test]
    fn pictures_are_read() {
        let layers = drawn(PICTURE);
        assert_eq!(layers.len(), 1);
        assert_eq!(layers[0].source, "crates/x/src");
        assert_eq!(layers[0].layer_index("left"), Some(0));
        assert_eq!(layers[0].layer_index("bottom"), Some(1));
        assert_eq!(layers[0].layer_index("what"), None);
    }

    fn faults(file: &str, text: &str) -> Vec<String> {
        let root = std::env::temp_dir()
            .join(format!("xtask-{}-{file}", std::process::id()).replace('/', "_"));
        let source = root.join("crates/x/src");
        let path = source.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(source.join("lib.rs"), LIB).unwrap();
        std::fs::write(&path, text).unwrap();
        let listed = format!("crates/x/src/{file}");
        let faults = drawn(PICTURE)[0].faults(&root, &[&listed]).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        faults
    }

    #[test]
    fn arrows_that_point_up_are_faults() {
        for (file, text, bad) in [
            ("top.rs", "use crate::{left::A, bottom::B};", false),
            (
                "left.rs",
                "fn f() -> crate::Thing { super::bottom::g() }",
                false,
            ),
            ("bottom.rs", "use crate::top::X;", true),
            ("bottom.rs", "use super::{bottom, left as l};", true),
            ("bottom/a.rs", "use super::left;", false),
            ("bottom/a.rs", "fn f(x: &super::super::top::X) {}", true),
            ("bottom/mod.rs", "use crate::{self, Thing};", false),
            (
                "bottom.rs",
                "// crate::top::X\nconst A: &str = \"crate::top::X\";",
                false,
            ),
            (
                "bottom.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests { use crate::top::X; }",
                false,
            ),
            ("bottom/tests.rs", "use crate::top::X;", false),
        ] {
            assert_eq!(!faults(file, text).is_empty(), bad, "{file}: {text}");
        }
    }

    #[test]
    fn folders_have_layers_of_their_own() {
        let picture = "```\ncrates/x/src\n  top\n  bottom\n```\n```\ncrates/x/src/top\n  upper  what it does\n  lower\n```\n";
        let [_, inner] = drawn(picture).try_into().unwrap();
        assert_eq!(
            (&*inner.source, inner.layer_index("lower")),
            ("crates/x/src/top", Some(1))
        );
        let root = std::env::temp_dir().join(format!("xtask-{}-folders", std::process::id()));
        let folder = root.join("crates/x/src/top");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mod.rs"), "pub(crate) mod upper; mod lower;").unwrap();
        std::fs::write(
            folder.join("upper.rs"),
            "use crate::top::lower::A; use crate::bottom;",
        )
        .unwrap();
        let files = ["upper.rs", "lower.rs"].map(|file| format!("crates/x/src/top/{file}"));
        let listed: Vec<&str> = files.iter().map(String::as_str).collect();
        for (text, bad) in [
            ("use crate::bottom::B;", false),
            ("use crate::top::upper::C;", true),
            ("use super::upper;", true),
            ("use super::super::bottom;", false),
        ] {
            std::fs::write(folder.join("lower.rs"), text).unwrap();
            let faults = inner.faults(&root, &listed).unwrap();
            assert_eq!(!faults.is_empty(), bad, "{text}: {faults:?}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn modules_and_picture_are_the_same() {
        let mut layers = drawn(&PICTURE.replace("left", "right"));
        let root = std::env::temp_dir().join(format!("xtask-{}-same", std::process::id()));
        std::fs::create_dir_all(root.join("crates/x/src")).unwrap();
        std::fs::write(root.join("crates/x/src/lib.rs"), LIB).unwrap();
        let faults = layers.remove(0).faults(&root, &[]).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}

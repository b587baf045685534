//! Circles of imports between the modules of a crate, found in the sources.
//!
//! A module is a file. It imports another one if it names a path into it, in a `use` or elsewhere;
//! a name that the other module imports itself counts for the module that defines it. Re-exports
//! (`pub use`) of a module's own children are a façade and no imports. What only tests see is left
//! out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::source::{self, Token};

/// Path of a module in its crate; empty for the root.
pub type Module = Vec<String>;

/// Most modules of a circle that need not be listed.
pub const MODULES: usize = 4;

/// The modules of a crate and what each imports.
#[derive(Debug, Default)]
pub struct Graph(BTreeMap<Module, BTreeSet<Module>>);

/// A file as the graph sees it.
struct File {
    tokens: Vec<Token>,
    children: Vec<String>,
    /// The absolute paths of names that the module imports or re-exports.
    imported: HashMap<String, Vec<String>>,
}

impl Graph {
    /// Builds the graph from pairs of a module's path and its text.
    pub fn new(files: impl Iterator<Item = (Module, String)>) -> Graph {
        let files: BTreeMap<Module, File> = files
            .map(|(module, text)| {
                let tokens = source::tokens(&text);
                let children = source::modules(&tokens);
                let imported = imported(&tokens, &module, &children);
                let file = File {
                    tokens,
                    children,
                    imported,
                };
                (module, file)
            })
            .collect();
        let edges = files.iter().map(|(module, file)| {
            let mut used = BTreeSet::new();
            for at in 0..file.tokens.len() {
                if is_reexport(&file.tokens, at) || !begins_path(file, at) {
                    continue;
                }
                for path in source::paths(&file.tokens, at) {
                    let path = absolute(&path, module, &file.children);
                    let target = resolve(&files, &path, 8);
                    used.extend(target.filter(|target| target != module));
                }
            }
            (module.clone(), used)
        });
        Graph(edges.collect())
    }

    /// Returns the circles of more than [`MODULES`] modules, the largest first.
    pub fn circles(&self) -> Vec<Vec<Module>> {
        let mut circles = self.components();
        circles.retain(|circle| circle.len() > MODULES);
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Returns what a module imports of `others`.
    pub fn imports<'a>(
        &'a self,
        module: &Module,
        others: &'a [Module],
    ) -> impl Iterator<Item = &'a Module> {
        let used = self.0.get(module).into_iter().flatten();
        used.filter(|used| others.contains(used))
    }

    /// Returns the layers of the crate, the highest first; each is made of modules, or circles of
    /// them.
    pub fn layers(&self) -> Vec<Vec<Vec<Module>>> {
        let mut layers: Vec<Vec<Vec<Module>>> = Vec::new();
        let mut height: BTreeMap<&Module, usize> = BTreeMap::new();
        // A component comes behind all that it imports.
        let components = self.components();
        for component in &components {
            let imports = component.iter().filter_map(|module| self.0.get(module));
            let below = imports.flatten().filter_map(|used| height.get(used));
            let level = below.max().map_or(0, |level| level + 1);
            height.extend(component.iter().map(|module| (module, level)));
            if layers.len() <= level {
                layers.resize(level + 1, Vec::new());
            }
            layers[level].push(component.clone());
        }
        layers.reverse();
        layers
    }

    /// Returns the strongly connected components (Tarjan), each behind those that it imports.
    fn components(&self) -> Vec<Vec<Module>> {
        let mut search = Search {
            graph: self,
            number: BTreeMap::new(),
            low: BTreeMap::new(),
            stack: Vec::new(),
            found: Vec::new(),
        };
        for module in self.0.keys() {
            if !search.number.contains_key(module) {
                search.visit(module);
            }
        }
        search.found
    }
}

/// State of Tarjan's algorithm.
struct Search<'a> {
    graph: &'a Graph,
    number: BTreeMap<&'a Module, usize>,
    low: BTreeMap<&'a Module, usize>,
    stack: Vec<&'a Module>,
    found: Vec<Vec<Module>>,
}

impl<'a> Search<'a> {
    /// Visits a module and all that can be reached from it; returns the lowest number that it leads
    /// to.
    fn visit(&mut self, module: &'a Module) -> usize {
        let number = self.number.len();
        self.number.insert(module, number);
        self.stack.push(module);
        let mut low = number;
        for used in self.graph.0.get(module).into_iter().flatten() {
            let reached = match self.number.get(used) {
                None => self.visit(used),
                Some(number) if self.stack.contains(&used) => *number,
                // It belongs to a component that is complete.
                Some(_) => continue,
            };
            low = low.min(reached);
        }
        self.low.insert(module, low);
        if low == number {
            let from = self.stack.iter().position(|on| *on == module);
            let component = self.stack.split_off(from.unwrap_or(0));
            self.found.push(component.into_iter().cloned().collect());
        }
        low
    }
}

/// True if a path of this crate begins at `at`.
fn begins_path(file: &File, at: usize) -> bool {
    let Some(Token::Word(word)) = file.tokens.get(at) else {
        return false;
    };
    let before = at.checked_sub(1).and_then(|at| file.tokens.get(at));
    // `pub(in path)` is no import.
    let inner = before == Some(&Token::Separator) || before == Some(&Token::word("in"));
    let leads = ["crate", "super", "self"].contains(&word.as_str()) || file.children.contains(word);
    leads && !inner && file.tokens.get(at + 1) == Some(&Token::Separator)
}

/// True if the path at `at` is that of a `pub use`.
fn is_reexport(tokens: &[Token], at: usize) -> bool {
    let before = tokens.get(..at).unwrap_or_default();
    match before {
        [.., public, word] if *word == Token::word("use") => {
            *public == Token::word("pub") || *public == Token::Sign(')')
        }
        _ => false,
    }
}

/// Makes a path absolute, as seen in `module`.
fn absolute(path: &[String], module: &[String], children: &[String]) -> Vec<String> {
    let up = path.iter().take_while(|part| *part == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("self") => [module, &path[1..]].concat(),
        Some("super") => {
            let base = module.len().checked_sub(up).map(|len| &module[..len]);
            [base.unwrap_or_default(), &path[up..]].concat()
        }
        Some(first) if children.iter().any(|child| child == first) => [module, path].concat(),
        _ => Vec::new(),
    }
}

/// Returns the names that a file imports, with their absolute paths, if these are in the crate.
fn imported(
    tokens: &[Token],
    module: &[String],
    children: &[String],
) -> HashMap<String, Vec<String>> {
    let mut names = HashMap::new();
    let uses = (0..tokens.len()).filter(|at| tokens[*at] == Token::word("use"));
    for at in uses {
        for path in source::paths(tokens, at + 1) {
            let full = absolute(&path, module, children);
            if let Some(name) = full.last() {
                names.insert(name.clone(), full);
            }
        }
    }
    names
}

/// Returns the module that defines what an absolute path names; re-exports are followed `depth`
/// times at most.
fn resolve(files: &BTreeMap<Module, File>, path: &[String], depth: usize) -> Option<Module> {
    let deepest = (0..=path.len())
        .rev()
        .find(|len| files.contains_key(&path[..*len]));
    let (module, rest) = path.split_at(deepest?);
    let imported = rest.first().and_then(|name| {
        let full = files.get(module)?.imported.get(name)?;
        (depth > 0 && full.as_slice() != path).then_some(full)
    });
    match imported {
        Some(full) => {
            let full = [full, rest.get(1..).unwrap_or_default()].concat();
            resolve(files, &full, depth - 1)
        }
        None => Some(module.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        Graph::new(files.iter().map(|(name, text)| {
            let parts = name.split('/').filter(|part| !part.is_empty());
            (parts.map(str::to_owned).collect(), (*text).to_owned())
        }))
    }

    #[test]
    fn circles_are_found_through_reexports() {
        let files = [
            ("", "mod a; mod b; mod c; mod d; mod e; pub use e::Thing;"),
            ("a", "use crate::b::B;"),
            ("b", "use super::c::{C, D};"),
            ("c", "fn f() { crate::d::g() }"),
            ("d", "use crate::Thing;"),
            ("e", "mod f; use self::f::F;"),
            ("e/f", "use super::super::a;"),
        ];
        let circles = graph(&files).circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].len(), 6, "{circles:?}");
        let mut open = files;
        for text in [
            "// crate::d::g()\n#[cfg(test)]\nmod tests { use crate::d::g; }",
            "fn f(g: u8) {}\n#[cfg(test)]\npub(super) mod tests { use crate::d::g; }",
        ] {
            open[3].1 = text;
            assert!(graph(&open).circles().is_empty(), "{text}");
        }
    }

    #[test]
    fn facades_and_visibilities_are_no_imports() {
        let files = [
            ("", "mod a; mod b; pub use a::A; pub(crate) use b::B;"),
            ("a", "use crate::Root; pub(in crate::b) struct A;"),
            ("b", "use crate::A;"),
        ];
        let graph = graph(&files);
        let names = |at: usize| graph.layers()[at].concat().concat();
        assert_eq!(graph.layers().len(), 3);
        assert_eq!(
            (names(0), names(1)),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
    }
}

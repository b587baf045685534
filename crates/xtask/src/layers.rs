//! The direction of dependencies between the crates of the workspace, as ARCHITECTURE.md draws it:
//! a line for each crate, which ends in an arrow and what it uses.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Crates that any crate's tests may use on top of what is drawn, besides reaching further down
/// than one layer.
const TESTS_MAY_USE: [&str; 5] = [
    "weir-sim",
    "weir-testclient",
    "weir-bench",
    "weir-doctor",
    "weir-experiments",
];

/// Crates that each crate may use.
pub struct Picture(BTreeMap<String, Vec<String>>);

/// The package of a crate's folder.
fn package(folder: &str) -> String {
    match folder.rsplit('/').next().unwrap_or(folder) {
        name @ ("weir" | "xtask") => name.to_owned(),
        name => format!("weir-{name}"),
    }
}

impl Picture {
    /// Reads the first block that begins with `crates/`: each line is a folder, what it is, and
    /// perhaps `→` with folders, `all`, or `all but` folders.
    pub fn read(text: &str) -> Result<Picture> {
        let block = text
            .split("```")
            .find(|block| block.starts_with("\ncrates/\n"));
        let lines = block.context("ARCHITECTURE.md draws no crates")?.lines();
        let drawn: Vec<(String, &str)> = lines
            .skip(2)
            .filter_map(|line| {
                let (folder, rest) = line.trim_start().split_once("/ ")?;
                let used = rest.rsplit_once('→').map_or("", |(_, used)| used.trim());
                Some((package(folder), used))
            })
            .collect();
        let mut picture = BTreeMap::new();
        for (user, text) in &drawn {
            let listed = |text: &str| text.split(',').map(|one| package(one.trim())).collect();
            let except: Option<Vec<String>> = match text.strip_prefix("all") {
                Some("") => Some(Vec::new()),
                Some(rest) => rest.strip_prefix(" but ").map(listed),
                None => None,
            };
            let used = match except {
                Some(except) => {
                    let all = drawn.iter().map(|(name, _)| name);
                    let others = all.filter(|name| *name != user && !except.contains(name));
                    others.cloned().collect()
                }
                None if text.is_empty() => Vec::new(),
                None => listed(text),
            };
            picture.insert(user.clone(), used);
        }
        for used in picture.values().flatten() {
            ensure!(
                picture.contains_key(used),
                "ARCHITECTURE.md draws no crate {used}"
            );
        }
        Ok(Picture(picture))
    }

    fn may_use(&self, user: &str, used: &str) -> bool {
        self.0
            .get(user)
            .is_some_and(|drawn| drawn.iter().any(|one| one == used))
    }

    /// True if `used` is somewhere below `user`.
    fn below(&self, user: &str, used: &str) -> bool {
        let drawn = self.0.get(user).into_iter().flatten();
        let mut next = drawn.filter(|next| !TESTS_MAY_USE.contains(&next.as_str()));
        next.any(|next| next == used || self.below(next, used))
    }
}

/// One crate's use of another of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Edge {
    user: String,
    used: String,
    tests_only: bool,
}

/// The packages and edges in the output of `cargo metadata --no-deps`.
pub fn edges(metadata: &str) -> Result<(Vec<String>, Vec<Edge>)> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("no packages in cargo metadata")?;
    let (mut names, mut edges) = (Vec::new(), Vec::new());
    for package in packages {
        let user = package["name"]
            .as_str()
            .context("cannot read cargo metadata: a package has no name")?;
        names.push(user.to_owned());
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Crates of the workspace are the ones with a path.
            if let (Some(used), Some(_)) =
                (dependency["name"].as_str(), dependency["path"].as_str())
            {
                edges.push(Edge {
                    user: user.to_owned(),
                    used: used.to_owned(),
                    tests_only: dependency["kind"] == "dev",
                });
            }
        }
    }
    Ok((names, edges))
}

/// A line for each edge that is not drawn, each crate that is not, and each that is drawn and not
/// there.
pub fn faults(picture: &Picture, edges: &[Edge], packages: &[String]) -> Vec<String> {
    let wrong = edges.iter().filter(|edge| {
        // A crate's tests may ask for a feature of the crate itself.
        let in_tests = edge.used == edge.user
            || TESTS_MAY_USE.contains(&edge.used.as_str())
            || picture.below(&edge.user, &edge.used);
        !(picture.may_use(&edge.user, &edge.used) || edge.tests_only && in_tests)
    });
    let mut faults: Vec<String> = wrong
        .map(|edge| format!("{} may not use {} (ARCHITECTURE.md)", edge.user, edge.used))
        .collect();
    let missing = packages
        .iter()
        .filter(|name| !picture.0.contains_key(*name));
    faults.extend(missing.map(|name| format!("ARCHITECTURE.md does not draw {name}")));
    let gone = picture.0.keys().filter(|name| !packages.contains(name));
    faults.extend(gone.map(|name| format!("ARCHITECTURE.md draws {name}, which does not exist")));
    for (user, used) in &picture.0 {
        let unused = used.iter().filter(|used| {
            let uses = |edge: &Edge| edge.user == *user && edge.used == **used;
            packages.contains(used) && !edges.iter().any(uses)
        });
        faults.extend(
            unused.map(|used| format!("ARCHITECTURE.md draws {user} → {used}, which is not used")),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = "
# A
```
make
```
```
crates/
  weir/   the binary            → all but sim
  nfs/    a protocol            → base, vfs
  vfs/    the waist → as it is  → base, store
  store/  the device            → base
  base/   identifiers
  sim/    simulated disks       → all but weir
```
";

    fn edge(user: &str, used: &str, tests_only: bool) -> Edge {
        let (user, used) = (user.to_owned(), used.to_owned());
        Edge {
            user,
            used,
            tests_only,
        }
    }

    fn list_edges(picture: &Picture) -> Vec<Edge> {
        let pairs = picture
            .0
            .iter()
            .flat_map(|(user, used)| used.iter().map(move |u| (user, u)));
        pairs.map(|(user, used)| edge(user, used, false)).collect()
    }

    #[test]
    fn edges_that_are_not_drawn_are_faults() {
        let picture = Picture::read(DRAWN).unwrap();
        let packages: Vec<String> = picture.0.keys().cloned().collect();
        assert_eq!(
            faults(&picture, &list_edges(&picture), &packages),
            Vec::<String>::new()
        );
        for (user, used, tests_only, bad) in [
            ("weir", "weir-vfs", false, false),
            ("weir", "weir-sim", false, true),
            ("weir-sim", "weir-store", false, false),
            ("weir-vfs", "weir-nfs", false, true),
            ("weir-store", "weir-sim", false, true),
            ("weir-store", "weir-sim", true, false),
            ("weir-nfs", "weir-store", false, true),
            ("weir-nfs", "weir-store", true, false),
            ("weir-base", "weir-store", true, true),
            ("weir-base", "weir-base", true, false),
            ("weir-base", "weir-base", false, true),
        ] {
            let mut edges = list_edges(&picture);
            edges.push(edge(user, used, tests_only));
            assert_eq!(
                !faults(&picture, &edges, &packages).is_empty(),
                bad,
                "{user} -> {used}"
            );
        }
    }

    #[test]
    fn the_picture_has_what_there_is_and_no_more() {
        let picture = Picture::read(DRAWN).unwrap();
        let packages: Vec<String> = picture.0.keys().cloned().collect();
        let mut edges = list_edges(&picture);
        edges.retain(|e| *e != edge("weir-vfs", "weir-store", false));
        assert_eq!(
            faults(&picture, &edges, &packages).len(),
            1,
            "an arrow that is not used"
        );
        let more = [packages.clone(), vec!["weir-new".to_owned()]].concat();
        assert_eq!(
            faults(&picture, &list_edges(&picture), &more).len(),
            1,
            "a crate that is not drawn"
        );
        assert_eq!(
            faults(&picture, &list_edges(&picture), &packages[1..]).len(),
            1,
            "a crate that is gone"
        );
        assert!(Picture::read(&DRAWN.replace("→ base\n", "→ basement\n")).is_err());
    }

    #[test]
    fn metadata_is_read() {
        let text = r#"{"packages":[{"name":"weir-nfs","dependencies":[{"name":"libc","kind":null},
            {"name":"weir-vfs","path":"/somewhere","kind":null},
            {"name":"weir-store","path":"/somewhere","kind":"dev"}]}]}"#;
        let (packages, edges) = edges(text).unwrap();
        assert_eq!(packages, ["weir-nfs"]);
        let expected = [
            edge("weir-nfs", "weir-vfs", false),
            edge("weir-nfs", "weir-store", true),
        ];
        assert_eq!(edges, expected);
    }
}

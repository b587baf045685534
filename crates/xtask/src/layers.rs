//! The direction of dependencies between the crates of the workspace.

use anyhow::{Context, Result};
use serde_json::Value;

/// What each crate may use. The picture is in ARCHITECTURE.md; a new edge belongs there first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("weir-base", &[]),
    ("weir-store", &["weir-base"]),
    ("weir-volume", &["weir-base", "weir-store"]),
    ("weir-qos", &["weir-base"]),
    ("weir-vfs", &["weir-base", "weir-qos", "weir-volume"]),
    ("weir-nfs", &["weir-base", "weir-vfs"]),
    ("weir-bench", &["weir-base"]),
    ("weir-replica", &["weir-base", "weir-qos", "weir-volume"]),
    (
        "weir-control",
        &[
            "weir-base",
            "weir-qos",
            "weir-vfs",
            "weir-volume",
            "weir-replica",
        ],
    ),
    (
        "weir-api",
        &["weir-base", "weir-control", "weir-ontap", "weir-replica"],
    ),
    ("weir-cli", &["weir-base", "weir-ontap"]),
    ("weir-doctor", &[]),
    ("weir-ontap", &["weir-replica"]),
    (
        "weir-sim",
        &[
            "weir-base",
            "weir-store",
            "weir-volume",
            "weir-vfs",
            "weir-nfs",
            "weir-replica",
        ],
    ),
    (
        "weir",
        &[
            "weir-base",
            "weir-store",
            "weir-volume",
            "weir-vfs",
            "weir-nfs",
            "weir-bench",
            "weir-qos",
            "weir-replica",
            "weir-ontap",
            "weir-control",
            "weir-api",
            "weir-cli",
            "weir-doctor",
        ],
    ),
    ("weir-killtest", &["weir-base"]),
    ("xtask", &[]),
];

/// What any crate's tests may use on top of that, besides reaching further down than one layer.
const TESTS_MAY_USE: &str = "weir-sim";

fn may_use(user: &str) -> &'static [&'static str] {
    let entry = MAY_USE.iter().find(|(name, _)| *name == user);
    entry.map_or(&[], |(_, used)| used)
}

/// True if `used` is somewhere below `user`.
fn below(user: &str, used: &str) -> bool {
    may_use(user)
        .iter()
        .any(|next| *next == used || below(next, used))
}

/// One crate's use of another of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Edge {
    user: String,
    used: String,
    tests_only: bool,
}

/// The edges in the output of `cargo metadata --no-deps`.
pub fn edges(metadata: &str) -> Result<Vec<Edge>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("no packages in cargo metadata")?;
    let mut edges = Vec::new();
    for package in packages {
        let user = package["name"]
            .as_str()
            .context("a package without a name")?;
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
    Ok(edges)
}

/// A line for each edge that may not be.
pub fn faults(edges: &[Edge]) -> Vec<String> {
    edges
        .iter()
        .filter(|edge| {
            // A crate's tests may ask for a feature of the crate itself.
            let in_tests = [TESTS_MAY_USE, &edge.user].contains(&edge.used.as_str())
                || below(&edge.user, &edge.used);
            let layer_down = may_use(&edge.user).contains(&edge.used.as_str());
            !(layer_down || edge.tests_only && in_tests)
        })
        .map(|edge| {
            format!(
                "{} may not use {} (crates/xtask/src/layers.rs)",
                edge.user, edge.used
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, used: &str, kind: &str) -> String {
        format!(
            r#"{{"packages":[{{"name":"{name}","dependencies":[
                {{"name":"libc","kind":null}},
                {{"name":"{used}","path":"/somewhere","kind":{kind}}}]}}]}}"#
        )
    }

    #[test]
    fn upward_edges_are_faults() {
        for (user, used, kind, bad) in [
            ("weir-nfs", "weir-vfs", "null", false),
            ("weir-vfs", "weir-nfs", "null", true),
            ("weir-store", "weir-volume", "null", true),
            ("weir-store", "weir-sim", "null", true),
            ("weir-store", "weir-sim", r#""dev""#, false),
            ("weir-nfs", "weir-store", "null", true),
            ("weir-nfs", "weir-store", r#""dev""#, false),
            ("weir-base", "weir-store", r#""dev""#, true),
            ("weir-base", "weir-base", r#""dev""#, false),
            ("weir-base", "weir-base", "null", true),
            ("a-new-crate", "weir-base", "null", true),
        ] {
            let edges = edges(&package(user, used, kind)).unwrap();
            assert_eq!(edges.len(), 1);
            assert_eq!(!faults(&edges).is_empty(), bad, "{user} -> {used}");
        }
    }
}

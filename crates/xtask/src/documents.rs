//! Documents: links lead to files and headings that exist, and what grows has a most size.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Most bytes of a file, or of all files of a folder.
const BYTES: &[(&str, u64)] = &[("bench/runs/", 1_500_000), ("ARCHITECTURE.md", 15 << 10)];

/// Most lines of the newest version's section in the changelog.
const CHANGES: usize = 40;

/// The changelog.
const CHANGELOG: &str = "CHANGELOG.md";

/// Kinds of files in which paths of documents are looked for.
const READ: &[&str] = &[
    "md", "rs", "py", "sh", "ts", "tsx", "mjs", "toml", "yml", "yaml", "service",
];

/// Returns a line for each link that leads nowhere and each document that is too large. `files` are
/// paths below `root`.
pub fn faults(root: &Path, files: &[&str]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut headings: HashMap<PathBuf, Vec<String>> = HashMap::new();
    for file in files.iter().filter(|file| root.join(file).is_file()) {
        let kind = file.rsplit('.').next().unwrap_or_default();
        if !READ.contains(&kind) || file.starts_with("crates/xtask/") {
            continue;
        }
        let text = std::fs::read_to_string(root.join(file))
            .with_context(|| format!("cannot read {file}"))?;
        if kind == "md" {
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            for link in links(&text) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() {
                    root.join(file)
                } else {
                    root.join(folder).join(path)
                };
                if !target.exists() {
                    faults.push(format!("{file}: the link {link} leads to no file"));
                } else if !anchor.is_empty() {
                    let known = match headings.get(&target) {
                        Some(known) => known,
                        None => {
                            let text = std::fs::read_to_string(&target)?;
                            headings.entry(target).or_insert(anchors(&text))
                        }
                    };
                    if !known.iter().any(|one| one == anchor) {
                        faults.push(format!("{file}: the link {link} leads to no heading"));
                    }
                }
            }
        }
        let named = document_paths(&text);
        let missing = named.filter(|name| !root.join(name).exists());
        faults.extend(missing.map(|name| format!("{file}: {name} does not exist")));
    }
    faults.extend(too_large(root, files)?);
    Ok(faults)
}

fn too_large(root: &Path, files: &[&str]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (place, most) in BYTES {
        let inside = files.iter().filter(|file| file.starts_with(place));
        let sizes = inside.filter_map(|file| root.join(file).metadata().ok());
        let bytes: u64 = sizes.map(|metadata| metadata.len()).sum();
        if bytes > *most {
            faults.push(format!("{place} has {bytes} bytes; {most} is the most"));
        }
    }
    let text = std::fs::read_to_string(root.join(CHANGELOG))
        .with_context(|| format!("cannot read {CHANGELOG}"))?;
    let newest = text.split("\n## ").nth(1).unwrap_or_default();
    let lines = newest.trim_end().lines().count();
    if lines > CHANGES {
        faults.push(format!(
            "{CHANGELOG}: the newest version has {lines} lines; {CHANGES} is the most"
        ));
    }
    Ok(faults)
}

/// Returns the targets of a document's links that are no addresses of the web.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("```").step_by(2);
    let found = code.flat_map(|text| text.split("](").skip(1));
    let targets = found.filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Returns the anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines);
    let headings = lines.filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the paths of documents that a text names: `docs/…` with an ending.
fn document_paths(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("docs/").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.')) {
            return None;
        }
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '/' | '-' | '_' | '.'));
        let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
        let ends = [".md", ".svg", ".png"];
        ends.iter().any(|end| name.ends_with(end)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_are_read() {
        let text =
            "# A `b` c: d\n[x](y.md#z) [w](https://e)\n```\n[no](no.md)\n```\n## Where's it?\n";
        assert_eq!(links(text).collect::<Vec<_>>(), ["y.md#z"]);
        assert_eq!(anchors(text), ["a-b-c-d", "wheres-it"]);
    }

    #[test]
    fn documents_named_in_code_are_found() {
        let text = "see docs/a/b.md. or (docs/c.svg) but not https://x/docs/d.md or docs/*.md";
        assert_eq!(
            document_paths(text).collect::<Vec<_>>(),
            ["docs/a/b.md", "docs/c.svg"]
        );
    }
}

//! Writing what the fixes put into files: each is shown first, an existing file is kept beside it, and nothing is run.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::finding::{FileFix, Finding, Together};
use crate::source::Source;

/// `text` with `from` replaced by `to` in its line `line`, counted from 1.
pub fn replace_in_line(text: &str, line: usize, from: &str, to: &str) -> String {
    text.split_inclusive('\n')
        .enumerate()
        .map(|(index, old)| match index + 1 == line {
            true => old.replacen(from, to, 1),
            false => old.to_owned(),
        })
        .collect()
}

/// The files that all fixes write, each once.
fn files<'f>(findings: &'f [Finding], mounts: &'f [Together]) -> Vec<&'f FileFix> {
    let fixes = findings
        .iter()
        .map(|finding| &finding.fix)
        .chain(mounts.iter().map(|mount| &mount.fix));
    let mut all: Vec<&FileFix> = Vec::new();
    for file in fixes.flat_map(|fix| &fix.files) {
        if !all.iter().any(|other| other.path == file.path) {
            all.push(file);
        }
    }
    all
}

/// Shows each file and writes it.
pub fn apply(source: &Source, findings: &[Finding], mounts: &[Together], yes: bool) -> Result<()> {
    let mut written = 0;
    for file in files(findings, mounts) {
        let before = source.read(file.path.trim_start_matches('/'));
        if before.as_deref() == Some(file.content.as_str()) {
            continue;
        }
        show(file, before.as_deref());
        if !yes && !ask()? {
            println!("left alone");
            continue;
        }
        write(Path::new(&file.path), &file.content, before.is_some())?;
        written += 1;
    }
    println!("{written} files written; the commands above are yours to run");
    Ok(())
}

fn show(file: &FileFix, before: Option<&str>) {
    println!(
        "\n--- {}{}",
        file.path,
        if before.is_none() { " (new)" } else { "" }
    );
    let old: Vec<&str> = before.unwrap_or_default().lines().collect();
    let new: Vec<&str> = file.content.lines().collect();
    for line in old.iter().filter(|line| !new.contains(line)) {
        println!("-{line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        println!("+{line}");
    }
}

fn ask() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("--fix asks before each file, and there is no terminal; --yes answers");
    }
    print!("write it? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes beside and renames, so that a file is never half written.
fn write(path: &Path, content: &str, exists: bool) -> Result<()> {
    let failed = || format!("writing {} (are you root?)", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::path::PathBuf::from(name)
    };
    if exists {
        std::fs::copy(path, beside(".before-weir-doctor")).with_context(failed)?;
    }
    let new = beside(".new");
    std::fs::write(&new, content).with_context(failed)?;
    std::fs::rename(&new, path).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_meant_changes() {
        let text = "a b c\na b c\nlast b";
        assert_eq!(replace_in_line(text, 2, "b", "x"), "a b c\na x c\nlast b");
        assert_eq!(replace_in_line(text, 3, "b", "x"), "a b c\na b c\nlast x");
        assert_eq!(replace_in_line(text, 9, "b", "x"), text);
    }

    #[test]
    fn a_file_is_kept_beside_its_new_self() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/x.conf");
        write(&path, "one\n", false).unwrap();
        write(&path, "two\n", true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        let kept = folder.path().join("sub/x.conf.before-weir-doctor");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "one\n");
        assert!(!folder.path().join("sub/x.conf.new").exists());
    }
}

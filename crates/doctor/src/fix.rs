//! Writing what the fixes put into files: each is shown first, an existing file is kept beside it,
//! and nothing is run.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::finding::{FileFix, Plan};
use crate::source::Source;

/// Ending of the name under which the former file is kept; nothing reads files of such names.
pub const KEPT: &str = ".before-weir-doctor";

/// Shows each file of the plan and writes it; returns whether all were written.
pub fn apply(source: &Source, plan: &Plan, yes: bool) -> Result<bool> {
    let mut written = 0;
    for file in &plan.files {
        let before = source.read(file.path.trim_start_matches('/'));
        show(file, before.is_none());
        if !yes && !confirm_write()? {
            println!("left alone");
            continue;
        }
        write(&source.on_disk(&file.path), &file.content)?;
        written += 1;
    }
    println!("{written} files written");
    Ok(written == plan.files.len())
}

fn show(file: &FileFix, new: bool) {
    println!("\n--- {}{}", file.path, if new { " (new)" } else { "" });
    for line in &file.removed {
        println!("-{line}");
    }
    for line in &file.added {
        println!("+{line}");
    }
}

fn confirm_write() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("--fix asks before each file, and there is no terminal; --yes answers");
    }
    print!("write it? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes beside and renames, so that a file is never half written; owner and permissions stay.
/// `path` is a file, never a link to one: a rename would replace the link.
fn write(path: &Path, content: &str) -> Result<()> {
    let failed = || format!("writing {} (are you root?)", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    let before = std::fs::symlink_metadata(path).ok();
    ensure!(
        before.as_ref().is_none_or(std::fs::Metadata::is_file),
        "{} is not a file",
        path.display()
    );
    let new = beside(path, ".weir-doctor-new");
    std::fs::write(&new, content).with_context(failed)?;
    if let Some(before) = before {
        keep(path).with_context(failed)?;
        let mode = std::fs::Permissions::from_mode(before.mode() & 0o7777);
        std::fs::set_permissions(&new, mode).with_context(failed)?;
        std::os::unix::fs::chown(&new, Some(before.uid()), Some(before.gid()))
            .with_context(failed)?;
    }
    std::fs::File::open(&new)
        .and_then(|file| file.sync_all())
        .with_context(failed)?;
    std::fs::rename(&new, path).with_context(failed)
}

/// Copies a file beside itself under a name that is free: a second run does not cost the first
/// one's copy.
fn keep(path: &Path) -> std::io::Result<()> {
    let mut to = beside(path, KEPT);
    for number in 2.. {
        if !to.exists() {
            break;
        }
        to = beside(path, &format!("{KEPT}.{number}"));
    }
    std::fs::copy(path, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_kept_beside_its_new_self() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/x.conf");
        write(&path, "one\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, "two\n").unwrap();
        write(&path, "three\n").unwrap();
        let read = |suffix| std::fs::read_to_string(beside(&path, suffix)).unwrap();
        assert_eq!(read(""), "three\n");
        assert_eq!(read(KEPT), "one\n");
        assert_eq!(read(".before-weir-doctor.2"), "two\n");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
        assert!(!beside(&path, ".weir-doctor-new").exists());
    }

    #[test]
    fn a_link_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert!(write(&link, "x").is_err());
        assert!(link.is_symlink());
    }
}

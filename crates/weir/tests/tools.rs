//! `weir bench` and `weir doctor` run programs of their own.
#![allow(clippy::unwrap_used)] // Tests fail loudly.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with `weir` in it, and nothing beside it.
struct Folder {
    _folder: tempfile::TempDir,
    weir: PathBuf,
    path: PathBuf,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let (beside, path) = (folder.path().join("bin"), folder.path().join("path"));
        std::fs::create_dir(&beside).unwrap();
        std::fs::create_dir(&path).unwrap();
        let weir = beside.join("weir");
        let program = Path::new(env!("CARGO_BIN_EXE_weir"));
        if std::fs::hard_link(program, &weir).is_err() {
            std::fs::copy(program, &weir).unwrap();
        }
        Folder {
            _folder: folder,
            weir,
            path,
        }
    }

    fn script(&self, beside: bool, tool: &str, text: &str) {
        let folder = if beside {
            self.weir.parent().unwrap()
        } else {
            &self.path
        };
        let file = folder.join(tool);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.weir);
        command.args(words).env("PATH", &self.path);
        command.output().unwrap()
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_tool_beside_weir_is_preferred_to_one_in_path() {
    let folder = Folder::new();
    folder.script(false, "weir-bench", "echo \"path: $*\"; exit 3");
    let ran = folder.run(&["bench", "nfs3", "--help"]);
    assert_eq!(ran.status.code(), Some(3), "{}", said(&ran));
    assert_eq!(said(&ran), "path: nfs3 --help\n");
    folder.script(true, "weir-bench", "echo \"beside: $*\"");
    let ran = folder.run(&["help", "bench", "nfs3"]);
    assert!(ran.status.success());
    assert_eq!(said(&ran), "beside: help nfs3\n");
}

#[test]
fn signals_and_exit_codes_are_the_tools() {
    let folder = Folder::new();
    folder.script(true, "weir-doctor", "kill -TERM $$");
    assert_eq!(folder.run(&["doctor"]).status.signal(), Some(15));
}

#[test]
fn a_missing_tool_is_named_with_the_next_step() {
    let folder = Folder::new();
    let ran = folder.run(&["doctor", "--fix"]);
    assert_eq!(ran.status.code(), Some(127));
    assert_eq!(
        said(&ran),
        "weir: cannot run weir-doctor: it is neither beside this program nor in PATH \
         (install the package weir, or build it: make tools)\n"
    );
    let help = said(&folder.run(&["--help"]));
    for word in ["bench ", "doctor "] {
        assert!(help.contains(&format!("\n  {word}")), "{help}");
    }
}

#[test]
fn completions_of_a_tool_come_from_the_tool() {
    let folder = Folder::new();
    let text = "echo \"$COMPLETE $_CLAP_COMPLETE_INDEX $*\"";
    folder.script(true, "weir-bench", text);
    let asked = Command::new(&folder.weir)
        .args(["--", "weir", "bench", "nfs3", "wr"])
        .envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", "3")])
        .output()
        .unwrap();
    assert_eq!(said(&asked), "bash 2 -- weir-bench nfs3 wr\n");
}

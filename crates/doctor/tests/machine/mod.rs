//! A machine in a folder: the files that a distribution installs, and commands that work on them as
//! the real ones do.
#![allow(clippy::unwrap_used, clippy::panic)] // Part of tests: a failure here fails them.
#![allow(dead_code)] // Each test file uses its part of this.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use weir_doctor::finding::{Finding, Plan};
use weir_doctor::source::Source;
use weir_doctor::{diagnose, fix, report};

/// Layout of a distribution's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Debian 12, with nfs-utils 2.6.2.
    Debian12,
    /// Ubuntu 22.04, with nfs-utils 2.6.1: no nfsrahead.
    Ubuntu2204,
    /// With some site's own files and links.
    Rhel9,
}

pub const LAYOUTS: [Layout; 3] = [Layout::Debian12, Layout::Ubuntu2204, Layout::Rhel9];

/// The interpreter itself: what stands first in PATH may be a script that searches for it, at every
/// start.
fn python() -> &'static str {
    static PATH: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PATH.get_or_init(|| {
        let said = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    })
}

/// A machine in a folder.
pub struct Machine {
    pub folder: TempDir,
}

impl Machine {
    pub fn new(layout: Layout) -> Machine {
        let machine = Machine {
            folder: tempfile::tempdir().unwrap(),
        };
        let kernel = match layout {
            Layout::Debian12 => "6.1.0-27-amd64",
            Layout::Ubuntu2204 => "5.15.0-125-generic",
            Layout::Rhel9 => "5.14.0-503.el9.x86_64",
        };
        machine.file(
            "proc/version",
            &format!("Linux version {kernel} (builder) #1\n"),
        );
        for (path, text) in [
            ("proc/self/mountinfo", ""),
            ("proc/self/mountstats", ""),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            (
                "etc/fstab",
                "# /etc/fstab: static file system information.\nUUID=0a1b /               ext4    errors=remount-ro 0       1\n",
            ),
            (
                "etc/sysctl.conf",
                "#\n# /etc/sysctl.conf - Configuration file for setting system variables\n#\n#net.ipv4.ip_forward=1\n",
            ),
            (
                "etc/sysctl.d/README.sysctl",
                "sunrpc.max_tcp_slot_table_entries = 1 is not a setting here\n",
            ),
            (
                "etc/nfs.conf",
                "[general]\npipefs-directory=/run/rpc_pipefs\n[nfsrahead]\n# nfs=15000\n# nfs4=16000\n",
            ),
            (
                "etc/modprobe.d/blacklist.conf",
                "blacklist pcspkr\noptions snd_hda_intel power_save=0\n",
            ),
        ] {
            machine.file(path, text);
        }
        // All three have this link; an edit by both names breaks it.
        machine.link("etc/sysctl.d/99-sysctl.conf", "../sysctl.conf");
        machine.link("lib", "usr/lib");
        match layout {
            Layout::Debian12 => {
                machine.file("usr/lib/modprobe.d/50-nfs.conf", "# Ensure all NFS sysctl settings get applied when modules load\ninstall sunrpc /sbin/modprobe --ignore-install sunrpc $CMDLINE_OPTS && /sbin/sysctl -q --pattern sunrpc --system\n");
                machine.file("usr/libexec/nfsrahead", "");
            }
            Layout::Ubuntu2204 => {
                machine.file("usr/lib/modprobe.d/aliases.conf", "alias net-pf-1 unix\n");
                machine.file(
                    "etc/sysctl.d/10-ptrace.conf",
                    "kernel.yama.ptrace_scope = 1\n",
                );
                machine.file(
                    "etc/modprobe.d/iwlwifi.conf",
                    "remove iwlwifi \\\n(/sbin/lsmod)\n",
                );
            }
            Layout::Rhel9 => {
                machine.file("usr/lib/modprobe.d/50-nfs.conf", "install sunrpc /sbin/modprobe --ignore-install sunrpc && /sbin/sysctl -q --pattern sunrpc --system\n");
                machine.file(
                    "etc/modprobe.d/lockd.conf",
                    "#options lockd nlm_timeout=10\n",
                );
                machine.file(
                    "etc/modprobe.d/sunrpc.conf",
                    "# site\noptions sunrpc tcp_slot_table_entries=16\n",
                );
                machine.file(
                    "etc/modprobe.d/sunrpc.conf.rpmsave",
                    "options sunrpc tcp_max_slot_table_entries=2\n",
                );
                // ostree and configuration managers keep it elsewhere; without a newline at its
                // end.
                machine.file("etc/static/fstab", "UUID=2 / xfs defaults 0 0");
                std::fs::remove_file(machine.resolve_path("etc/fstab")).unwrap();
                machine.link("etc/fstab", "/etc/static/fstab");
                machine.file("usr/libexec/nfsrahead", "");
            }
        }
        machine
    }

    pub fn resolve_path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub fn source(&self) -> Source {
        Source::new(Some(self.folder.path().to_owned()))
    }

    pub fn file(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.resolve_path(path).parent().unwrap()).unwrap();
        std::fs::write(self.resolve_path(path), text).unwrap();
    }

    pub fn append(&self, path: &str, text: &str) {
        let real = self.source().real(path);
        let before = std::fs::read_to_string(self.resolve_path(&real)).unwrap_or_default();
        let gap = if before.is_empty() || before.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        self.file(&real, &format!("{before}{gap}{text}"));
    }

    pub fn link(&self, path: &str, to: &str) {
        std::fs::create_dir_all(self.resolve_path(path).parent().unwrap()).unwrap();
        symlink(to, self.resolve_path(path)).unwrap();
    }

    /// Runs commands of root's with all paths in the tree; each has to succeed.
    pub fn run(&self, commands: &[String]) {
        let bin = self.resolve_path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let kernel = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .join("doctor/tests/machine/kernel.py");
        for name in [
            "modprobe",
            "sysctl",
            "mount",
            "umount",
            "mountpoint",
            "reboot",
        ] {
            let script = format!(
                "#!/bin/sh\nexec python3 {} {name} \"$@\"\n",
                kernel.display()
            );
            let path = bin.join(name);
            std::fs::write(&path, script).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
        }
        let root = self.folder.path().display();
        for command in commands {
            let mut here = format!(" {command}");
            for folder in ["etc", "sys", "proc"] {
                here = here.replace(&format!(" /{folder}/"), &format!(" {root}/{folder}/"));
            }
            let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
            let ran = Command::new("bash")
                .args(["-e", "-c", &here])
                .env("ROOT", self.folder.path())
                .env("PATH", path)
                .output()
                .unwrap();
            assert!(
                ran.status.success(),
                "{command}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
    }

    pub fn shell(&self, command: &str) {
        self.run(&[command.to_owned()]);
    }

    pub fn diagnose(&self) -> (Vec<Finding>, Plan, String) {
        let (facts, found, plan) = diagnose(&self.source(), None).unwrap();
        let mut text = Vec::new();
        report::text(&mut text, &facts, &found, &plan).unwrap();
        (found, plan, String::from_utf8(text).unwrap())
    }

    /// Configuration: files with their texts, links with their targets. Former selves of files are
    /// left out.
    pub fn configuration(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.resolve_path("etc"), self.resolve_path("usr")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.folder.path()).unwrap();
                let name = name.to_str().unwrap().to_owned();
                if path.is_symlink() {
                    let to = std::fs::read_link(&path).unwrap();
                    all.insert(name, format!("-> {}", to.display()));
                } else if path.is_dir() {
                    folders.push(path);
                } else if !name.contains(fix::KEPT) {
                    all.insert(name, std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        all
    }
}

//! The files that are looked at: on this machine, or in a folder captured on another.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Files, and folders whose files are all looked at (one level; `*` stands for each entry).
const LOOKED_AT: &[&str] = &[
    "proc/version",
    "proc/self/mountstats",
    "proc/self/mountinfo",
    "proc/sys/sunrpc/tcp_slot_table_entries",
    "proc/sys/sunrpc/tcp_max_slot_table_entries",
    "proc/sys/net/ipv4/tcp_rmem",
    "proc/sys/net/ipv4/tcp_wmem",
    "proc/fs/cifs/DebugData",
    "sys/module/nfs/parameters/max_session_slots",
    "sys/module/sunrpc/parameters/tcp_max_slot_table_entries",
    "sys/class/bdi/*/read_ahead_kb",
    "etc/fstab",
    "etc/nfs.conf",
    "etc/sysctl.conf",
    "etc/sysctl.d/*",
    "etc/modprobe.d/*",
    "etc/modprobe/d/nfsclient/conf",
];

/// The most that is read of one file: mountstats takes about 6 KiB a mount.
const LONGEST: u64 = 32 << 20;

/// Where the files are.
#[derive(Debug)]
pub struct Source {
    root: PathBuf,
}

impl Source {
    /// This machine, or a captured folder.
    pub fn new(folder: Option<PathBuf>) -> Source {
        Source {
            root: folder.unwrap_or_else(|| PathBuf::from("/")),
        }
    }

    /// A file's text; `None` if there is none or it cannot be read. `path` has no leading slash.
    pub fn read(&self, path: &str) -> Option<String> {
        use std::io::Read;
        let file = std::fs::File::open(self.root.join(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file that holds one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// The files that `pattern`, a path with at most one `*`, stands for, sorted.
    pub fn matching(&self, pattern: &str) -> Vec<String> {
        let Some((folder, rest)) = pattern.split_once('*') else {
            return vec![pattern.to_owned()];
        };
        let Ok(entries) = std::fs::read_dir(self.root.join(folder)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .map(|name| format!("{folder}{name}{rest}"))
            .collect();
        names.sort();
        names
    }

    /// Copies all that is looked at into `to`, which must not exist; the number of files.
    pub fn capture(&self, to: &Path) -> Result<usize> {
        ensure!(!to.exists(), "{} exists already", to.display());
        let mut count = 0;
        for path in LOOKED_AT.iter().flat_map(|pattern| self.matching(pattern)) {
            let Some(text) = self.read(&path) else {
                continue;
            };
            let target = to.join(&path);
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("making {}", folder.display()))?;
            }
            std::fs::write(&target, text)
                .with_context(|| format!("writing {}", target.display()))?;
            count += 1;
        }
        ensure!(
            count > 0,
            "there is nothing to capture; is this Linux, with /proc mounted?"
        );
        Ok(count)
    }
}

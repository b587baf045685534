//! The files that are read: on this machine, or in a folder captured on another.
//!
//! A configuration file may have several names: Debian, Ubuntu and RHEL ship
//! `/etc/sysctl.d/99-sysctl.conf` as a link to `../sysctl.conf`, and `/lib` as a link to `usr/lib`.
//! An edit by the wrong name replaces the link by a file, so that every name is resolved to the
//! file behind it ([`Source::real`]), below the root, before anything is read or planned. A source
//! may carry drafts: files as they would be after an edit, seen by whatever reads through it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Files, and folders of which all files are read (one level; `*` stands for each entry).
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
    "etc/nfs.conf.d/*",
    "etc/sysctl.conf",
    "etc/sysctl.d/*",
    "etc/modprobe.d/*",
    "etc/modprobe/d/nfsclient/conf",
    "usr/lib/modprobe.d/*",
    "lib/modprobe.d/*",
];

/// The most links that are followed for one name, as in the kernel (MAXSYMLINKS).
const LINKS: usize = 40;

/// The most that is read of one file: mountstats takes about 6 KiB a mount.
const LONGEST: u64 = 32 << 20;

/// Folder of the files that are examined.
#[derive(Clone, Debug)]
pub struct Source {
    root: PathBuf,
    /// Texts that are read instead of files, by their real path.
    drafts: BTreeMap<String, String>,
}

impl Source {
    /// This machine, or a captured folder.
    pub fn new(folder: Option<PathBuf>) -> Source {
        Source {
            root: folder.unwrap_or_else(|| PathBuf::from("/")),
            drafts: BTreeMap::new(),
        }
    }

    /// Returns these files with `drafts` (by real path) instead of some.
    pub fn with_drafts(&self, drafts: BTreeMap<String, String>) -> Source {
        Source {
            root: self.root.clone(),
            drafts,
        }
    }

    /// A path of this source on the machine that it is read on.
    pub fn on_disk(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path of the file behind `path`, all links followed below the root; neither has a leading
    /// slash. What does not exist stays as it is named.
    pub fn real(&self, path: &str) -> String {
        let mut done = PathBuf::new();
        let mut rest: Vec<std::ffi::OsString> = Path::new(path)
            .components()
            .rev()
            .map(|part| part.as_os_str().to_owned())
            .collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(_)) => {}
                Some(Component::ParentDir) => {
                    done.pop();
                    continue;
                }
                _ => continue,
            }
            let here = done.join(&part);
            match std::fs::read_link(self.root.join(&here)) {
                Ok(target) if links < LINKS => {
                    links += 1;
                    if target.is_absolute() {
                        done = PathBuf::new();
                    }
                    rest.extend(
                        target
                            .components()
                            .rev()
                            .map(|part| part.as_os_str().to_owned()),
                    );
                }
                _ => done = here,
            }
        }
        done.to_string_lossy().into_owned()
    }

    /// A file's text; `None` if there is none or it cannot be read. `path` has no leading slash.
    pub fn read(&self, path: &str) -> Option<String> {
        use std::io::Read;
        // Paths under /proc and /sys are the kernel's: its links lead where they should.
        let path = match path.starts_with("proc/") || path.starts_with("sys/") {
            true => path.to_owned(),
            false => self.real(path),
        };
        if let Some(draft) = self.drafts.get(&path) {
            return Some(draft.clone());
        }
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
        let entries = std::fs::read_dir(self.root.join(folder))
            .into_iter()
            .flatten();
        let on_disk = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let real = format!("{}/", self.real(folder));
        let drafts = self
            .drafts
            .keys()
            .filter_map(|path| path.strip_prefix(&real));
        let drafts = drafts.filter(|name| !name.contains('/')).map(str::to_owned);
        let mut names: Vec<String> = on_disk
            .chain(drafts)
            .map(|name| format!("{folder}{name}{rest}"))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Copies all that is read into `to`, which must not exist, links of configuration files as
    /// links; the number of files.
    pub fn capture(&self, to: &Path) -> Result<usize> {
        ensure!(!to.exists(), "{} exists already", to.display());
        let mut count = 0;
        for path in LOOKED_AT.iter().flat_map(|pattern| self.matching(pattern)) {
            let Some(text) = self.read(&path) else {
                continue;
            };
            let real = match path.starts_with("proc/") || path.starts_with("sys/") {
                true => path.clone(),
                false => self.real(&path),
            };
            let place = |name: &str| -> Result<PathBuf> {
                let target = to.join(name);
                if let Some(folder) = target.parent() {
                    std::fs::create_dir_all(folder)
                        .with_context(|| format!("making {}", folder.display()))?;
                }
                Ok(target)
            };
            if real != path && path.starts_with("etc/") {
                // Links lead from the root of the copy, wherever it is.
                let link = place(&path)?;
                std::os::unix::fs::symlink(Path::new("/").join(&real), &link)
                    .with_context(|| format!("linking {}", link.display()))?;
            }
            let target = place(&real)?;
            if !target.exists() {
                std::fs::write(&target, text)
                    .with_context(|| format!("writing {}", target.display()))?;
                count += 1;
            }
        }
        ensure!(
            count > 0,
            "nothing to capture; is this Linux, with /proc mounted?"
        );
        Ok(count)
    }
}

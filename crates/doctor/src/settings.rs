//! Lines of configuration files: `name = value` of sysctl.conf(5), `options module name=value` of
//! modprobe.d(5), fstab(5). Read with their place, so that a finding can name it.

use crate::source::Source;

/// Place of a file, as the program that it is meant for sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileVisibility {
    /// The program reads the file.
    Read,
    /// The program ignores the file: its name does not end in `.conf` (sysctl.d(5), modprobe.d(5)).
    Suffix,
    /// The program ignores the file: it is in a folder that a guide misprints.
    Nowhere,
}

/// A line that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file behind all links, with its leading slash.
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// Name of the setting: `sunrpc.tcp_max_slot_table_entries` in both kinds of file.
    pub name: String,
    /// The value, as written, without quotation marks around the line.
    pub value: String,
    /// True if quotation marks around the line make it void.
    pub quoted: bool,
    /// Place of the file.
    pub place: FileVisibility,
}

impl Setting {
    /// Returns true if the line has an effect.
    pub fn in_force(&self) -> bool {
        self.place == FileVisibility::Read && !self.quoted
    }
}

/// A line of fstab that mounts over NFS or SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FstabEntry {
    /// Number of the line, from 1.
    pub line: usize,
    /// Source to mount: `server:/share` or `//server/share`.
    pub what: String,
    /// The mount point, as written.
    pub point: String,
    /// The file system's type.
    pub kind: String,
    /// Options, as written; empty if the line has none.
    pub options: String,
}

fn lines(source: &Source, path: &str) -> Vec<(usize, String)> {
    let text = source.read(path).unwrap_or_default();
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim().to_owned()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#') && !line.starts_with(';'))
        .collect()
}

/// Endings of copies that package managers, editors and `--fix` leave beside a file.
const COPIES: &[&str] = &[
    "~",
    ".bak",
    ".old",
    ".orig",
    ".save",
    ".disabled",
    ".rpmsave",
    ".rpmnew",
    ".rpmorig",
];

/// The files of `folder` behind all links, each once, with whether its program reads it. Copies are
/// left out.
fn files(source: &Source, folder: &str) -> Vec<(String, FileVisibility)> {
    let named = source.matching(&format!("{folder}/*")).into_iter();
    let mut all: Vec<(String, FileVisibility)> = Vec::new();
    let (read, others): (Vec<String>, Vec<String>) =
        named.partition(|path| path.ends_with(".conf"));
    let copy = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("README")
            || COPIES.iter().any(|ending| name.ends_with(ending))
            || [".dpkg-", ".ucf-", crate::fix::KEPT]
                .iter()
                .any(|part| name.contains(part))
    };
    let read = read.into_iter().map(|path| (path, FileVisibility::Read));
    let others = others.into_iter().filter(|path| !copy(path));
    for (path, place) in read.chain(others.map(|path| (path, FileVisibility::Suffix))) {
        let real = source.real(&path);
        if !all.iter().any(|(other, _)| *other == real) {
            all.push((real, place));
        }
    }
    all
}

/// Returns the settings of sysctl.conf and sysctl.d.
pub fn sysctl(source: &Source) -> Vec<Setting> {
    let mut files = files(source, "etc/sysctl.d");
    let main = source.real("etc/sysctl.conf");
    files.retain(|(path, _)| *path != main);
    files.push((main, FileVisibility::Read));
    let mut all = Vec::new();
    for (file, place) in files {
        for (line, text) in lines(source, &file) {
            let Some((name, value)) = text.split_once('=') else {
                continue;
            };
            all.push(Setting {
                file: format!("/{file}"),
                line,
                name: name.trim().trim_start_matches('-').replace('/', "."),
                value: value.trim().to_owned(),
                quoted: false,
                place,
            });
        }
    }
    all
}

/// Returns the options of kernel modules that files set, also files in the place where one guide
/// misprints the folder's name.
pub fn modules(source: &Source) -> Vec<Setting> {
    let mut files = files(source, "etc/modprobe.d");
    files.push((
        source.real("etc/modprobe/d/nfsclient/conf"),
        FileVisibility::Nowhere,
    ));
    let mut all = Vec::new();
    for (file, place) in files {
        for (line, text) in lines(source, &file) {
            // Quotes do not belong here: modprobe takes them as part of the words.
            let bare = text.trim_matches(QUOTES);
            let Some(rest) = bare.strip_prefix("options ") else {
                continue;
            };
            let mut words = rest.split_whitespace();
            let module = words.next().unwrap_or_default();
            for word in words {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                all.push(Setting {
                    file: format!("/{file}"),
                    line,
                    name: format!("{module}.{name}"),
                    value: value.to_owned(),
                    quoted: bare.len() != text.len(),
                    place,
                });
            }
        }
    }
    all
}

/// Marks that guides put around a line.
pub const QUOTES: [char; 4] = ['"', '\'', '“', '”'];

/// Returns true if loading `sunrpc` applies sysctl's settings of it: nfs-utils since 2.5 installs
/// such a line (50-nfs.conf).
pub fn sysctl_at_load(source: &Source) -> bool {
    ["etc/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"]
        .iter()
        .flat_map(|folder| files(source, folder))
        .filter(|(_, place)| *place == FileVisibility::Read)
        .flat_map(|(file, _)| lines(source, &file))
        .any(|(_, line)| line.starts_with("install sunrpc ") && line.contains("sysctl"))
}

/// Returns the mounts over the network that fstab asks for.
pub fn fstab(source: &Source) -> Vec<FstabEntry> {
    let wanted = |(line, text): (usize, String)| {
        let mut words = text.split_whitespace();
        let (what, point, kind) = (words.next()?, words.next()?, words.next()?);
        let point = crate::mountinfo::unescape(point);
        matches!(kind, "nfs" | "nfs4" | "cifs" | "smb3").then(|| FstabEntry {
            line,
            what: crate::mountinfo::unescape(what),
            point: match point.trim_end_matches('/') {
                "" => point,
                trimmed => trimmed.to_owned(),
            },
            kind: kind.to_owned(),
            options: words.next().unwrap_or_default().to_owned(),
        })
    };
    lines(source, "etc/fstab")
        .into_iter()
        .filter_map(wanted)
        .collect()
}

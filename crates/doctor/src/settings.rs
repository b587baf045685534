//! Lines of configuration files: `name = value` of sysctl.conf(5), `options module name=value` of modprobe.d(5),
//! fstab(5). Read with their place, so that a finding can name it.

use crate::source::Source;

/// A line that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file, with its leading slash.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What: `sunrpc.tcp_max_slot_table_entries` in both kinds of file.
    pub name: String,
    /// To what, as written.
    pub value: String,
}

/// A line of fstab that mounts over NFS or SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Counted from 1.
    pub line: usize,
    /// What to mount.
    pub what: String,
    /// Where.
    pub point: String,
    /// Options, as written.
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

/// What sysctl.conf and sysctl.d set.
pub fn sysctl(source: &Source) -> Vec<Setting> {
    let mut files = source.matching("etc/sysctl.d/*");
    files.push("etc/sysctl.conf".to_owned());
    let mut all = Vec::new();
    for file in files {
        for (line, text) in lines(source, &file) {
            let Some((name, value)) = text.split_once('=') else {
                continue;
            };
            all.push(Setting {
                file: format!("/{file}"),
                line,
                name: name.trim().trim_start_matches('-').replace('/', "."),
                value: value.trim().to_owned(),
            });
        }
    }
    all
}

/// What files set as options of kernel modules, also files in the place where one guide misprints the folder's name.
pub fn modules(source: &Source) -> Vec<Setting> {
    let mut files = source.matching("etc/modprobe.d/*");
    files.push("etc/modprobe/d/nfsclient/conf".to_owned());
    let mut all = Vec::new();
    for file in files {
        for (line, text) in lines(source, &file) {
            // Quotes do not belong here: modprobe takes them as part of the words.
            let bare = text.trim_matches(|c| matches!(c, '"' | '\'' | '“' | '”'));
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
                    value: match bare.len() == text.len() {
                        true => value.to_owned(),
                        false => format!("\"{value}\""),
                    },
                });
            }
        }
    }
    all
}

/// What fstab mounts over the network.
pub fn fstab(source: &Source) -> Vec<Wanted> {
    let wanted = |(line, text): (usize, String)| {
        let mut words = text.split_whitespace();
        let (what, point, kind, options) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        matches!(kind, "nfs" | "nfs4" | "cifs" | "smb3").then(|| Wanted {
            line,
            what: crate::mountinfo::unescape(what),
            point: crate::mountinfo::unescape(point),
            options: options.to_owned(),
        })
    };
    lines(source, "etc/fstab")
        .into_iter()
        .filter_map(wanted)
        .collect()
}

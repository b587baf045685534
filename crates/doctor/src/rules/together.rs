//! All changes of a mount's options together: one line of fstab, one mount command, however many rules asked.

use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Change, FileFix, Finding, Fix, Together};
use crate::fix::replace_in_line;

use super::of_server;

/// Options in force that somebody must have given, so that a printed mount command keeps them.
const KEPT: &[&str] = &[
    "vers",
    "rsize",
    "wsize",
    "hard",
    "soft",
    "proto",
    "nconnect",
    "port",
    "mountport",
    "mountproto",
    "nolock",
    "sec",
    "ro",
    "noac",
    "sync",
    "multichannel",
    "max_channels",
];

/// What to do for each mount whose options change; fstab is changed by all of them at once.
pub fn together(facts: &Facts, findings: &[Finding]) -> Vec<Together> {
    let mut fstab = facts.fstab_text.clone();
    let mut all = Vec::new();
    for mount in &facts.mounts {
        let changes: Vec<&Change> = findings
            .iter()
            .filter_map(|finding| finding.fix.change.as_ref())
            .filter(|change| change.point == mount.point && change.what == mount.what)
            .collect();
        if !changes.is_empty() {
            all.push(one(facts, mount, &changes, &mut fstab));
        }
    }
    if fstab != facts.fstab_text {
        let file = FileFix {
            path: "/etc/fstab".to_owned(),
            content: fstab,
        };
        if let Some(last) = all.last_mut() {
            last.fix.files.push(file);
        }
    }
    all
}

fn one(facts: &Facts, mount: &Mount, changes: &[&Change], fstab: &mut String) -> Together {
    let wanted = facts.wanted(mount);
    let options = match wanted {
        Some(wanted) => changed(&wanted.options, changes),
        None => changed(&in_force(mount), changes),
    };
    if let Some(wanted) = wanted {
        *fstab = replace_in_line(fstab, wanted.line, &wanted.options, &options);
    }
    // Connections and slots belong to the server, not to the mount: they are made anew only when the last of its
    // mounts is gone.
    let sharing: Vec<&Mount> = match mount.protocol {
        Protocol::Smb => vec![mount],
        _ => of_server(facts, &mount.server).collect(),
    };
    let mut commands: Vec<String> = sharing
        .iter()
        .map(|m| format!("umount {}", quoted(&m.point)))
        .collect();
    commands.push(match (wanted.is_some(), mount.protocol) {
        (true, _) => format!("mount {}", quoted(&mount.point)),
        (false, protocol) => {
            let kind = if protocol == Protocol::Smb {
                "cifs"
            } else {
                "nfs"
            };
            format!(
                "mount -t {kind} -o {options} {} {}",
                quoted(&mount.what),
                quoted(&mount.point)
            )
        }
    });
    if sharing.len() > 1 {
        commands.push("mount -a   # the others of this server again".to_owned());
    }
    Together {
        subject: format!("{} on {}", mount.what, mount.point),
        options,
        fix: Fix {
            commands,
            effective: match sharing.len() {
                1 => "when it is mounted again; a remount does not do it".to_owned(),
                n => format!(
                    "when all {n} mounts of {} are gone and mounted again; a remount does not do it",
                    mount.server
                ),
            },
            ..Fix::default()
        },
    }
}

fn in_force(mount: &Mount) -> String {
    let kept = mount
        .options
        .iter()
        .filter(|(name, _)| KEPT.contains(&name.as_str()));
    let words = kept.map(|(name, value)| match value.is_empty() {
        true => name.clone(),
        false => format!("{name}={value}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// `options` with words replaced and dropped; `defaults` says nothing once something else stands there.
fn changed(options: &str, changes: &[&Change]) -> String {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let set: Vec<&String> = changes.iter().flat_map(|change| &change.set).collect();
    let gone = |word: &str| {
        let name_of = name(word);
        set.iter().any(|new| name(new) == name_of)
            || changes.iter().any(|change| change.drop.contains(&name_of))
    };
    let mut words: Vec<&str> = options
        .split(',')
        .filter(|word| !word.is_empty() && *word != "defaults" && !gone(word))
        .collect();
    for new in set {
        if !words.iter().any(|word| name(word) == name(new)) {
            words.push(new);
        }
    }
    match words.is_empty() {
        true => "defaults".to_owned(),
        false => words.join(","),
    }
}

fn quoted(path: &str) -> String {
    match path.contains([' ', '\'', '"', '$', '\\']) {
        true => format!("'{}'", path.replace('\'', r"'\''")),
        false => path.to_owned(),
    }
}

//! All fixes together: each file once, one set of options for each mount, and the commands in an
//! order that works.
//!
//! Files come first, because `mount POINT` reads fstab; then the kernel's settings, because
//! connections take them when they are made; then mounts, all of a server and a protocol:
//! connections, slots and sizes belong to the server, and are made anew only after the last of its
//! mounts is unmounted; last the settings that belong to a mount and are lost with it, such as
//! read-ahead.

use crate::draft::{Draft, quoted};
use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Change, Edit, Finding, MountFix, Phase, Plan, Step};
use crate::mountstats;
use crate::source::Source;

/// The plan for all findings.
pub fn plan(source: &Source, facts: &Facts, findings: &[Finding]) -> Plan {
    let mut draft = Draft::new(source);
    let mut edits: Vec<&Edit> = Vec::new();
    for edit in findings.iter().flat_map(|finding| &finding.fix.edits) {
        if !edits.contains(&edit) {
            edits.push(edit);
            draft.apply(edit);
        }
    }
    let changes: Vec<&Change> = findings.iter().flat_map(|f| &f.fix.changes).collect();
    let of = |mount: &Mount| -> Vec<&Change> {
        let all = changes.iter().filter(|c| mount.is(&c.what, &c.point));
        all.copied().collect()
    };
    let mut plan = Plan::default();
    for wanted in &facts.fstab {
        let line = facts
            .lines
            .iter()
            .find(|line| line.line == Some(wanted.line));
        let found = line.map(of).unwrap_or_default();
        let options = changed(&wanted.options, &found);
        if found.is_empty() || options == wanted.options {
            continue;
        }
        draft.fstab_options(wanted.line, &options);
        let live = facts
            .mounts
            .iter()
            .any(|m| m.is(&wanted.what, &wanted.point));
        if !live {
            plan.mounts.push(MountFix {
                subject: format!("/etc/fstab:{}", wanted.line),
                options,
                effective: "the next time that the line is used".to_owned(),
            });
        }
    }
    let mut again: Vec<&Mount> = Vec::new();
    for mount in &facts.mounts {
        let found = of(mount);
        if found.is_empty() {
            continue;
        }
        let remount = found.iter().any(|change| change.remount);
        let sharing = sharing(facts, mount);
        plan.mounts.push(MountFix {
            subject: mount.subject(),
            options: match facts.wanted(mount) {
                Some(wanted) => changed(&wanted.options, &found),
                None => changed(&in_force(mount), &found),
            },
            effective: match (remount, sharing.len()) {
                (false, _) => "the next time that fstab's line is used".to_owned(),
                (true, 1) => "when it is mounted again; a remount does not do it".to_owned(),
                (true, n) => format!(
                    "when all {n} mounts of {} are gone and mounted again; a remount does not do it",
                    mount.server
                ),
            },
        });
        if remount {
            for other in sharing {
                if !again.iter().any(|m| m.point == other.point) {
                    again.push(other);
                }
            }
        }
    }
    plan.files = draft.finish();
    plan.commands = steps(findings, Phase::Kernel);
    // A mount inside another is unmounted before it, and mounted after it.
    again.sort_by_key(|mount| mount.point.split('/').count());
    let mount_again = |mount: &&Mount| match facts.wanted(mount) {
        Some(_) => format!("mount {}", quoted(&mount.point)),
        None => {
            let kind = match mount.protocol {
                Protocol::Smb => "cifs",
                _ => "nfs",
            };
            let options = changed(&in_force(mount), &of(mount));
            let (what, point) = (quoted(&mount.what), quoted(&mount.point));
            format!("mount -t {kind} -o {} {what} {point}", quoted(&options))
        }
    };
    let gone = again.iter().rev();
    plan.commands
        .extend(gone.map(|mount| format!("umount {}", quoted(&mount.point))));
    plan.commands.extend(again.iter().map(mount_again));
    plan.commands.extend(steps(findings, Phase::Mounted));
    plan
}

/// The commands of a phase, each once.
fn steps(findings: &[Finding], phase: Phase) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let steps = findings.iter().flat_map(|finding| &finding.fix.steps);
    for Step { command, .. } in steps.filter(|step| step.phase == phase) {
        if !all.contains(command) {
            all.push(command.clone());
        }
    }
    all
}

/// The mounts that have to be unmounted with `mount`, itself among them.
fn sharing<'f>(facts: &'f Facts, mount: &'f Mount) -> Vec<&'f Mount> {
    let inside = format!("{}/", mount.point.trim_end_matches('/'));
    let with = |other: &&Mount| {
        let same_server = mount.protocol != Protocol::Smb
            && other.protocol == mount.protocol
            && other.server == mount.server;
        other.point == mount.point || same_server || other.point.starts_with(&inside)
    };
    facts.mounts.iter().filter(with).collect()
}

/// Options that the kernel shows and that were not given: derived, or its defaults.
const DERIVED: &[&str] = &[
    "rw",
    "relatime",
    "addr",
    "clientaddr",
    "mountaddr",
    "mountvers",
    "minorversion",
    "namlen",
    "local_lock",
    "bsize",
    "acregmin=3",
    "acregmax=60",
    "acdirmin=30",
    "acdirmax=60",
    "mountport=0",
    "mountport=65535",
    "lookupcache=all",
    "noforceuid",
    "noforcegid",
    "nounix",
    "serverino",
    "mapposix",
    "echo_interval",
    "closetimeo",
];

/// Options of the mount point that were given.
const FLAGS: &[&str] = &[
    "ro",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "nodiratime",
    "strictatime",
];

/// The effective options, as a command would give them: a mount command that leaves one out would
/// undo it.
fn in_force(mount: &Mount) -> String {
    let smb = mount.protocol == Protocol::Smb;
    let words = mount
        .options
        .iter()
        .map(|(name, value)| match value.is_empty() {
            true => (name, name.clone()),
            false => (name, format!("{name}={value}")),
        });
    let derived = |(name, word): &(&String, String)| {
        DERIVED.contains(&name.as_str())
            || DERIVED.contains(&word.as_str())
            // How cifs says its default.
            || (smb && name.as_str() == "soft")
    };
    let given = words.filter(|word| !derived(word)).map(|(_, word)| word);
    let mut all: Vec<String> = given.collect();
    for flag in mountstats::options(&mount.flags).into_keys() {
        if FLAGS.contains(&flag.as_str()) && !all.contains(&flag) {
            all.push(flag);
        }
    }
    if !mount.has_option("nolock")
        && let Some(kept) = mount.options.get("local_lock").filter(|l| *l != "none")
    {
        all.push(format!("local_lock={kept}"));
    }
    all.join(",")
}

/// `options` with words replaced and dropped; `defaults` is dropped once there is another word.
fn changed(options: &str, changes: &[&Change]) -> String {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let set: Vec<&String> = changes.iter().flat_map(|change| &change.set).collect();
    let gone = |word: &str| {
        let name_of = name(word);
        let same = set.iter().any(|new| name(new) == name_of);
        let as_it_is = set.iter().any(|new| new.as_str() == word);
        (same && !as_it_is) || changes.iter().any(|change| change.drop.contains(&name_of))
    };
    let mut words: Vec<&str> = options
        .split(',')
        .filter(|word| !word.is_empty() && !gone(word))
        .collect();
    for new in set {
        if !words.iter().any(|word| name(word) == name(new)) {
            words.push(new);
        }
    }
    if words.len() > 1 {
        words.retain(|word| *word != "defaults");
    }
    match words.is_empty() {
        true => "defaults".to_owned(),
        false => words.join(","),
    }
}

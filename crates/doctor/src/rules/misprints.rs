//! Settings that seem right and do nothing: names that do not exist, and files in places
//! that no program reads.
//!
//! They circulate because guides print them: NetApp Volumes' page has
//! `sunrpc.max_tcp_slot_table_entries` and `sunrpc.max_tpc_slot_table_enteries` for
//! `sunrpc.tcp_max_slot_table_entries`, `/etc/modprobe/d/nfsclient/conf` for
//! `/etc/modprobe.d/nfsclient.conf`, and `systool -v -v nfs` for `systool -v -m nfs`.

use super::slots::{connection_fix, session_fix};
use crate::facts::Facts;
use crate::finding::{Edit, Finding, Fix, Severity};
use crate::settings::{FileVisibility, Setting};

/// Parameters of the modules as the kernel knows them.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "sunrpc",
        &[
            "tcp_slot_table_entries",
            "tcp_max_slot_table_entries",
            "udp_slot_table_entries",
            "rdma_slot_table_entries",
            "min_resvport",
            "max_resvport",
            "auth_hashtable_size",
            "auth_max_cred_cachesize",
            "pool_mode",
            "svc_rpc_per_connection_limit",
            "tcp_fin_timeout",
            "nfs_debug",
            "nfsd_debug",
            "nlm_debug",
            "rpc_debug",
            "transports",
        ],
    ),
    (
        "nfs",
        &[
            "callback_nr_threads",
            "callback_tcpport",
            "delay_retrans",
            "enable_ino64",
            "localio_enabled",
            "max_session_cb_slots",
            "max_session_slots",
            "nfs4_disable_idmapping",
            "nfs4_unique_id",
            "nfs_access_max_cachesize",
            "nfs_idmap_cache_timeout",
            "nfs_mountpoint_expiry_timeout",
            "recover_lost_locks",
            "send_implementation_id",
            "cache_getent",
            "cache_getent_timeout",
        ],
    ),
];

/// Returns the fix that a name which resembles one of the two settings is meant to be.
fn meant(name: &str) -> Option<Fix> {
    let slots = name.contains("slot_table") && name.contains("max");
    let session = name.contains("session") && name.contains("slot") && !name.contains("_cb_");
    match (slots, session) {
        (true, _) => Some(connection_fix()),
        (_, true) => Some(session_fix()),
        _ => None,
    }
}

fn unknown(setting: &Setting) -> bool {
    let Some((module, name)) = setting.name.split_once('.') else {
        return false;
    };
    KNOWN.iter().any(|(known, names)| {
        *known == module && !names.contains(&name) && !name.starts_with("svc_rdma.")
    })
}

/// Only these modules' settings are judged: files of others are none of the doctor's business.
fn ours(setting: &Setting) -> bool {
    KNOWN
        .iter()
        .any(|(module, _)| setting.name.split('.').next() == Some(module))
}

/// The edit that takes a setting out of its file.
fn take_out(setting: &Setting) -> Edit {
    let (file, line) = (setting.file.clone(), setting.line);
    match setting.name.split_once('.') {
        Some((_, name)) if !setting.file.starts_with("/etc/sysctl") => Edit::DropOption {
            file,
            line,
            name: name.to_owned(),
        },
        _ => Edit::DropLine { file, line },
    }
}

fn finding(setting: &Setting, severity: Severity, seen: String, why: &str, fix: Fix) -> Finding {
    Finding {
        rule: "misprint",
        severity,
        subject: format!("{}:{}", setting.file, setting.line),
        seen,
        why: why.to_owned(),
        fix,
        gain: "the setting that was meant is in force".to_owned(),
    }
}

/// Names that no kernel knows, and quotation marks that make a line void.
pub fn names(facts: &Facts) -> Vec<Finding> {
    let all = facts.sysctl.iter().chain(&facts.modules);
    all.filter(|setting| ours(setting))
        .filter_map(|setting| {
            if unknown(setting) {
                let seen = format!(
                    "{} = {}: there is no such parameter",
                    setting.name, setting.value
                );
                let why = "The kernel ignores it without a word.";
                return Some(match meant(&setting.name) {
                    Some(mut fix) => {
                        fix.edits.insert(0, take_out(setting));
                        finding(setting, Severity::Slow, seen, why, fix)
                    }
                    // A later kernel may know it: nothing is deleted that might be right.
                    None => {
                        let module = setting.name.split('.').next().unwrap_or_default();
                        let fix = Fix {
                            advice: vec![format!("what this kernel knows: modinfo -p {module}")],
                            effective: "when the name is right".to_owned(),
                            ..Fix::default()
                        };
                        let seen = format!("{}: not a parameter that is known here", setting.name);
                        finding(setting, Severity::Hint, seen, why, fix)
                    }
                });
            }
            setting.quoted.then(|| {
                let mut fix = meant(&setting.name).unwrap_or_else(|| Fix {
                    effective: "when the module is loaded the next time".to_owned(),
                    ..Fix::default()
                });
                // Only where it is read does the line itself become right; elsewhere `places` takes
                // it out.
                if setting.place == FileVisibility::Read {
                    let (file, line) = (setting.file.clone(), setting.line);
                    fix.edits.insert(0, Edit::Unquote { file, line });
                }
                finding(
                    setting,
                    Severity::Slow,
                    format!("{} is in quotation marks", setting.name),
                    "modprobe takes the marks as part of the line and ignores it.",
                    fix,
                )
            })
        })
        .collect()
}

/// Files that nothing reads, and slots set where they come too late.
pub fn places(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    let unread = facts.sysctl.iter().chain(&facts.modules);
    for setting in unread.filter(|s| s.place != FileVisibility::Read && ours(s) && !unknown(s)) {
        let reader = match setting.file.starts_with("/etc/sysctl") {
            true => "sysctl",
            false => "modprobe",
        };
        let mut fix = meant(&setting.name).unwrap_or_else(|| Fix {
            edits: match (reader, setting.name.split_once('.')) {
                ("modprobe", Some((module, name))) => KNOWN
                    .iter()
                    .filter(|(known, _)| *known == module)
                    .map(|(known, _)| Edit::ModuleOption {
                        module: known,
                        name: name.to_owned(),
                        value: setting.value.clone(),
                    })
                    .collect(),
                _ => Vec::new(),
            },
            effective: "when the module is loaded the next time".to_owned(),
            ..Fix::default()
        });
        match fix.edits.is_empty() {
            true => fix
                .advice
                .push(format!("give {} a name that ends in .conf", setting.file)),
            false => fix.edits.insert(0, take_out(setting)),
        }
        let (seen, why) = match setting.place {
            FileVisibility::Nowhere => (
                format!(
                    "{} is set in a place that modprobe does not read",
                    setting.name
                ),
                "The folder is /etc/modprobe.d, and the file's name has to end in .conf.",
            ),
            _ => (
                format!(
                    "{} is set in a file that {reader} does not read",
                    setting.name
                ),
                "Only files whose names end in .conf count.",
            ),
        };
        all.push(finding(setting, Severity::Slow, seen, why, fix));
    }
    let early = |s: &&Setting| s.name == "sunrpc.tcp_max_slot_table_entries" && s.in_force();
    let also_module = facts.modules.iter().any(|s| early(&s));
    let late = facts.sysctl.iter().filter(early);
    for setting in late.filter(|_| !also_module && !facts.sysctl_at_load) {
        all.push(finding(
            setting,
            Severity::Slow,
            format!("{} is set by sysctl only", setting.name),
            "At the start sysctl files are read before the module sunrpc is loaded, so that the line often has no effect; an option of the module always has.",
            connection_fix(),
        ));
    }
    all
}

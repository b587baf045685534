//! Settings that look right and do nothing: names that do not exist, and files in places that nobody reads.
//!
//! They circulate because guides print them: NetApp Volumes' page has `sunrpc.max_tcp_slot_table_entries` and
//! `sunrpc.max_tpc_slot_table_enteries` for `sunrpc.tcp_max_slot_table_entries`, `/etc/modprobe/d/nfsclient/conf` for
//! `/etc/modprobe.d/nfsclient.conf`, and `systool -v -v nfs` for `systool -v -m nfs`.

use crate::facts::Facts;
use crate::finding::{FileFix, Finding, Fix, Severity};
use crate::settings::Setting;

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

/// Where a module's or a sysctl's name belongs instead.
fn belongs(name: &str) -> Option<(&'static str, &'static str)> {
    let slots = name.contains("slot_table") && name.contains("max");
    let session = name.contains("session") && name.contains("slot");
    match (slots, session) {
        (true, _) => Some((
            "/etc/modprobe.d/sunrpc.conf",
            "options sunrpc tcp_max_slot_table_entries=128\n",
        )),
        (_, true) => Some((
            "/etc/modprobe.d/nfsclient.conf",
            "options nfs max_session_slots=180\n",
        )),
        _ => None,
    }
}

fn unknown(setting: &Setting) -> bool {
    let Some((module, name)) = setting.name.split_once('.') else {
        return false;
    };
    KNOWN
        .iter()
        .any(|(known, names)| *known == module && !names.contains(&name))
}

fn finding(setting: &Setting, seen: String, why: &str) -> Finding {
    Finding {
        rule: "misprint",
        severity: Severity::Slow,
        subject: format!("{}:{}", setting.file, setting.line),
        seen,
        why: why.to_owned(),
        fix: Fix {
            files: belongs(&setting.name)
                .map(|(path, content)| FileFix {
                    path: path.to_owned(),
                    content: content.to_owned(),
                })
                .into_iter()
                .collect(),
            commands: vec![format!("sed -i '{}d' {}   # the line that does nothing", setting.line, setting.file)],
            effective: "for servers mounted afterwards: all mounts of a server have to be gone first, or reboot".to_owned(),
..Fix::default()
},
        gain: "the setting that was meant is in force".to_owned(),
    }
}

/// Names that no kernel knows, and quotation marks that make a line void.
pub fn names(facts: &Facts) -> Vec<Finding> {
    let all = facts.sysctl.iter().chain(&facts.modules);
    all.filter_map(|setting| {
        if unknown(setting) {
            let seen = format!(
                "{} = {}: there is no such parameter",
                setting.name, setting.value
            );
            return Some(finding(
                setting,
                seen,
                "The kernel ignores it without a word.",
            ));
        }
        setting.value.starts_with('"').then(|| {
            let seen = format!("{} stands in quotation marks", setting.name);
            finding(
                setting,
                seen,
                "modprobe takes the marks as part of the line and ignores it.",
            )
        })
    })
    .collect()
}

/// Files where nobody looks, and slots set where they come too late.
pub fn places(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for setting in facts
        .modules
        .iter()
        .filter(|s| s.file == "/etc/modprobe/d/nfsclient/conf")
    {
        let mut found = finding(
            setting,
            format!(
                "{} is set in a place that modprobe does not read",
                setting.name
            ),
            "The folder is /etc/modprobe.d, and the file's name has to end in .conf.",
        );
        found.fix.commands = vec![format!("rm {}", setting.file)];
        all.push(found);
    }
    for setting in facts
        .modules
        .iter()
        .filter(|s| s.file.starts_with("/etc/modprobe.d/") && !s.file.ends_with(".conf"))
    {
        let mut found = finding(
            setting,
            format!(
                "{} is set in a file that modprobe does not read",
                setting.name
            ),
            "Only files whose names end in .conf count.",
        );
        found.fix.commands = vec![format!("mv {0} {0}.conf", setting.file)];
        found.fix.files.clear();
        all.push(found);
    }
    let early = |s: &&Setting| s.name == "sunrpc.tcp_max_slot_table_entries";
    let also_module = facts.modules.iter().any(|s| early(&s));
    for setting in facts.sysctl.iter().filter(early).filter(|_| !also_module) {
        all.push(finding(
            setting,
            format!("{} is set by sysctl only", setting.name),
            "At the start sysctl files are read before the module sunrpc is loaded, so that the line often has no effect; an option of the module always has.",
        ));
    }
    all
}

//! SMB mounts: channels, dialect, caching.

use super::{on, options_fix};
use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Finding, Fix, Severity};

fn smb(facts: &Facts) -> impl Iterator<Item = &Mount> {
    facts
        .mounts
        .iter()
        .filter(|mount| mount.protocol == Protocol::Smb)
}

/// One connection where several are possible.
pub fn channels(facts: &Facts) -> Vec<Finding> {
    smb(facts)
        .filter(|m| !m.has("multichannel") && m.number("max_channels").unwrap_or(1) < 2)
        .map(|mount| {
            on(
                "multichannel",
                if facts.kernel.version >= (5, 8) { Severity::Slow } else { Severity::Hint },
                mount,
                "one connection (no multichannel)".to_owned(),
                "One TCP connection and one core carry everything. The guide sets 4 or 8 channels (ConnectionCountPerRssNetworkInterface on Windows); Linux has them since 5.8.",
                options_fix(mount, &["multichannel", "max_channels=4"], &[]),
                "4, 8 or 16 channels gave twice the 8 KiB reads of one in NetApp Volumes' published test".to_owned(),
            )
        })
        .collect()
}

/// Several connections asked for, and one made.
pub fn missing_channels(facts: &Facts) -> Vec<Finding> {
    smb(facts)
        .filter(|m| m.number("max_channels").is_some_and(|n| n > 1))
        .filter(|m| facts.smb_channels.get(&m.server) == Some(&1))
        .map(|mount| {
            let asked = mount.number("max_channels").unwrap_or(0);
            on(
                "channels-missing",
                Severity::Slow,
                mount,
                format!("max_channels={asked} asked for, but the session has one connection"),
                "The server opened no further channel: it has multichannel switched off, or an earlier mount of the share made the session without it.",
                Fix {
                    commands: vec![
                        "grep -A2 'Extra Channels\\|Server interfaces' /proc/fs/cifs/DebugData   # what the server offers".to_owned(),
                        "# Windows: Set-SmbServerConfiguration -EnableMultiChannel $true; Samba: server multi channel support = yes".to_owned(),
                    ],
                    effective: "when the session is made anew: all mounts of that server gone, then mounted again".to_owned(),
                    ..Fix::default()
                },
                "what the channels were asked for".to_owned(),
            )
        })
        .collect()
}

/// Dialects before 3.1.1.
pub fn dialect(facts: &Facts) -> Vec<Finding> {
    smb(facts)
        .filter_map(|mount| {
            let version = mount.options.get("vers")?;
            let severity = match version.as_str() {
                "1.0" => Severity::Unsafe,
                "2.0" | "2.1" | "3.0" | "3.02" | "3.0.2" => Severity::Slow,
                _ => return None,
            };
            Some(on(
                "smb-dialect",
                severity,
                mount,
                format!("SMB {version}"),
                "3.1.1 protects the negotiation itself, signs and encrypts with AES-GCM at a fraction of the cost; SMB 1 has known holes.",
                options_fix(mount, &["vers=3.1.1"], &[]),
                "safer, and cheaper signing".to_owned(),
            ))
        })
        .collect()
}

/// `cache=none`.
pub fn caching(facts: &Facts) -> Vec<Finding> {
    smb(facts)
        .filter(|m| m.options.get("cache").is_some_and(|c| c == "none"))
        .map(|mount| {
            on(
                "smb-cache",
                Severity::Slow,
                mount,
                "cache=none".to_owned(),
                "Every read and write goes to the server, also while nobody else has the file open; leases make caching safe (cache=strict, the default).",
                options_fix(mount, &["cache=strict"], &[]),
                "repeated reads from memory, gathered writes".to_owned(),
            )
        })
        .collect()
}

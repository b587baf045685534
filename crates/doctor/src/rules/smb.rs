//! SMB mounts: channels, dialect, caching.

use super::mounts::{on, options_fix};
use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Finding, Fix, Severity};

/// The first kernel that has several channels.
const MULTICHANNEL: (u32, u32) = (5, 8);

/// One connection where several are possible.
pub fn channels(facts: &Facts, mount: &Mount) -> Option<Finding> {
    let one = !mount.has_option("multichannel") && mount.number("max_channels").unwrap_or(1) < 2;
    if mount.protocol != Protocol::Smb || !one {
        return None;
    }
    let known = facts.kernel.version >= MULTICHANNEL;
    Some(on(
        "multichannel",
        if known {
            Severity::Slow
        } else {
            Severity::Hint
        },
        mount,
        "one connection (no multichannel)".to_owned(),
        "One TCP connection and one core carry everything. The guide sets 4 or 8 channels (ConnectionCountPerRssNetworkInterface on Windows); Linux has them since 5.8.",
        match known {
            true => options_fix(mount, &["multichannel", "max_channels=4"], &[]),
            // An older kernel refuses to mount with an option that it does not know.
            false => Fix {
                advice: vec![
                    "a kernel of 5.8 or later, then multichannel,max_channels=4".to_owned(),
                ],
                effective: "with a newer kernel".to_owned(),
                ..Fix::default()
            },
        },
        "4, 8 or 16 channels gave twice the 8 KiB reads of one in NetApp Volumes' published test"
            .to_owned(),
    ))
}

/// Several connections asked for, and one made.
pub fn missing_channels(facts: &Facts) -> Vec<Finding> {
    facts
        .mounts
        .iter()
        .filter(|m| m.protocol == Protocol::Smb && m.number("max_channels").is_some_and(|n| n > 1))
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
                    advice: vec![
                        "what the server offers: grep -A2 'Extra Channels\\|Server interfaces' /proc/fs/cifs/DebugData".to_owned(),
                        "on Windows: Set-SmbServerConfiguration -EnableMultiChannel $true; on Samba: server multi channel support = yes".to_owned(),
                    ],
                    effective: "when the session is made anew: all mounts of that server gone, then mounted again".to_owned(),
                    ..Fix::default()
                },
                "what the channels were asked for".to_owned(),
            )
        })
        .collect()
}

/// `vers`: a dialect before 3.1.1.
pub fn dialect(_: &Facts, mount: &Mount) -> Option<Finding> {
    if mount.protocol != Protocol::Smb {
        return None;
    }
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
}

/// `cache=none`: the client caches no data.
pub fn caching(_: &Facts, mount: &Mount) -> Option<Finding> {
    let none = mount.options.get("cache").is_some_and(|c| c == "none");
    (mount.protocol == Protocol::Smb && none).then(|| {
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
}

//! Shares: an export that is one, for the clients that its rules admit over SMB; and IPC$.

use crate::session::Target;
use crate::status::Status;
use std::net::IpAddr;
use weir_base::VolumeId;
use weir_vfs::{ExportTable, Protocol, Share, Transport, Verdict, Vfs};

/// The share for named pipes.
pub const PIPES: &str = "IPC$";

/// All shares that admit a client, by name, without IPC$. What is not listed is found by its name alone.
pub fn all<'t>(vfs: &Vfs, table: &'t ExportTable, client: IpAddr) -> Vec<&'t Share> {
    let shared = table.iter().filter(|export| {
        let verdict = || vfs.verdict(export, client, Protocol::Smb);
        export.share.is_some() && matches!(verdict(), Verdict::Rule(_))
    });
    let mut shares: Vec<&Share> = shared.filter_map(|e| e.share.as_ref()).collect();
    shares.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    shares
}

/// The share that a volume is, if it is one.
pub fn of(table: &ExportTable, volume: VolumeId) -> Option<&Share> {
    table.of_volume(volume)?.share.as_ref()
}

/// Whether only what is encrypted reaches what a tree connect leads to: as the share is now, not as it was when it was connected to.
pub fn must_seal(table: &ExportTable, target: Target) -> bool {
    match target {
        Target::Volume(root) => of(table, root.volume).is_some_and(|share| share.encrypted),
        Target::Pipes => false,
    }
}

/// Whether opens under a tree connect may outlive the server, as the share is now.
pub fn is_continuous(table: &ExportTable, target: Target) -> bool {
    match target {
        Target::Volume(root) => of(table, root.volume).is_some_and(|share| share.continuous),
        Target::Pipes => false,
    }
}

/// What a share of this name, in any case, leads to, and how it is written.
///
/// # Errors
/// There is none, or it is not for the client.
pub fn find(
    vfs: &Vfs,
    table: &ExportTable,
    client: IpAddr,
    name: &str,
) -> Result<(Target, String), Status> {
    if name.eq_ignore_ascii_case(PIPES) {
        return Ok((Target::Pipes, PIPES.to_owned()));
    }
    let lower = name.to_lowercase();
    let found = table.iter().find_map(|export| {
        let share = export.share.as_ref()?;
        (share.name.to_lowercase() == lower).then_some((export, share))
    });
    let (export, share) = found.ok_or(Status::BAD_NETWORK_NAME)?;
    match vfs.verdict(export, client, Protocol::Smb) {
        Verdict::Rule(rule) if rule.transport > Transport::Clear => {
            tracing::warn!(
                %client,
                share = share.name,
                "refused over SMB: --export-options has xprtsec=, and SMB is not served over TLS"
            );
            Err(Status::ACCESS_DENIED)
        }
        Verdict::Rule(_) => Ok((Target::Volume(export.root()), share.name.clone())),
        Verdict::Denied => Err(Status::ACCESS_DENIED),
        // Its name is being looked up: it may try again.
        Verdict::Unknown(_) => Err(Status::RETRY),
    }
}

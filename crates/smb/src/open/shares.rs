//! Shares: exports that have a share, for the clients that their rules admit over SMB, and IPC$.

use crate::open::channel::Channel;
use crate::open::session::Target;
use crate::proto::negotiate::Protection;
use crate::proto::status::Status;
use std::net::{IpAddr, SocketAddr};
use weir_base::VolumeId;
use weir_base::limits::protocol::MAX_LOCATIONS;
use weir_vfs::directory::Directory;
use weir_vfs::{Export, ExportTable, Protocol, Scope, Share, Verdict, Vfs};

/// The port of SMB: targets of referrals have no other.
const PORT: u16 = 445;
/// The share for named pipes.
pub const PIPES: &str = "IPC$";

/// Returns all shares that admit a client of the server's address `local`, by name, without IPC$.
/// Shares that are not browsable are included.
pub fn list_shares<'t>(
    vfs: &Vfs,
    table: &'t ExportTable,
    (client, local): (IpAddr, IpAddr),
) -> Vec<&'t Share> {
    let shared = table.seen_at(local).filter(|export| {
        let verdict = || vfs.verdict(export, client, Protocol::Smb);
        export.share.is_some() && matches!(verdict(), Verdict::Rule(_))
    });
    let mut shares: Vec<&Share> = shared.filter_map(|e| e.share.as_ref()).collect();
    shares.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    shares
}

/// The share that a volume is, if it is one.
pub fn find_by_volume(table: &ExportTable, volume: VolumeId) -> Option<&Share> {
    table.of_volume(volume)?.share.as_ref()
}

/// Returns true if a tree connect's target is reached only by encrypted messages. The share's
/// current settings count, not those at the time of the tree connect.
pub fn must_seal(table: &ExportTable, target: Target) -> bool {
    match target {
        Target::Volume(root) => {
            find_by_volume(table, root.volume).is_some_and(|share| share.encrypted)
        }
        Target::Pipes | Target::Referred => false,
    }
}

/// Returns true if opens under a tree connect may outlive the server, by the share's current
/// settings.
pub fn is_continuous(table: &ExportTable, target: Target) -> bool {
    match target {
        Target::Volume(root) => {
            find_by_volume(table, root.volume).is_some_and(|share| share.continuous)
        }
        Target::Pipes | Target::Referred => false,
    }
}

/// Returns the share of a name, in any case, that clients of the server's address `local` see.
fn find_by_name<'t>(
    table: &'t ExportTable,
    local: IpAddr,
    name: &str,
) -> Option<(&'t Export, &'t Share)> {
    let lower = name.to_lowercase();
    table.seen_at(local).find_map(|export| {
        let share = export.share.as_ref()?;
        (share.name.to_lowercase() == lower).then_some((export, share))
    })
}

/// Returns true if this server has a share of a name, in any case.
pub fn exists(table: &ExportTable, local: IpAddr, name: &str) -> bool {
    find_by_name(table, local, name).is_some()
}

/// A share of another server.
pub struct ShareReferral {
    /// Its name, as it is written.
    pub share: String,
    /// Addresses of its owner.
    pub targets: Vec<IpAddr>,
}

/// Returns the share of a name at another server, for clients of the server's address `local`;
/// `None` if the owner does not serve SMB at its own port.
pub fn elsewhere(
    directory: &Directory,
    table: &ExportTable,
    local: IpAddr,
    name: &str,
) -> Option<ShareReferral> {
    if !matches!(table.scope(local), Scope::All) {
        return None;
    }
    let (share, remote) = directory.of_share(name)?;
    let reached = remote.smb.iter().filter(|at| at.port() == PORT);
    let targets: Vec<IpAddr> = reached.map(SocketAddr::ip).take(MAX_LOCATIONS).collect();
    (!targets.is_empty()).then(|| ShareReferral {
        share: share.to_owned(),
        targets,
    })
}

/// A share that a client may connect to.
pub struct ConnectableShare {
    /// Its target.
    pub target: Target,
    /// Its name, as it is written.
    pub name: String,
    /// The client is to encrypt what it sends there.
    pub encrypted: bool,
}

/// Returns the share of a name, in any case, for the session of a client of the server's address
/// `local`. If the share, or the rule of the export, wants more protection than the session has by
/// itself, the client is to encrypt.
///
/// # Errors
/// There is none, or it is not for the client.
pub fn find(
    vfs: &Vfs,
    table: &ExportTable,
    (client, local): (IpAddr, IpAddr),
    session: &Channel,
    name: &str,
) -> Result<ConnectableShare, Status> {
    if name.eq_ignore_ascii_case(PIPES) {
        return Ok(ConnectableShare {
            target: Target::Pipes,
            name: PIPES.to_owned(),
            encrypted: false,
        });
    }
    let Some((export, share)) = find_by_name(table, local, name) else {
        // The owner decides who may use it.
        let referred = elsewhere(&vfs.directory(), table, local, name);
        return Ok(ConnectableShare {
            target: Target::Referred,
            name: referred.ok_or(Status::BAD_NETWORK_NAME)?.share,
            encrypted: false,
        });
    };
    let rule = match vfs.verdict(export, client, Protocol::Smb) {
        Verdict::Rule(rule) => rule,
        Verdict::Denied => return Err(Status::ACCESS_DENIED),
        // Its name is being looked up: it may try again.
        Verdict::Unknown(_) => return Err(Status::RETRY),
    };
    let signed = session.protection != Protection::Offered;
    let meets = |sealed| {
        let (flavour, transport) = session.security(signed, sealed);
        rule.flavours.contains(flavour) && transport >= rule.transport
    };
    let encrypted = share.encrypted || !meets(false);
    let (user, share_name) = (&session.user, &share.name);
    if !meets(encrypted) {
        tracing::warn!(%client, user, share = share_name, "refused share: its export rule wants Kerberos, or a client's certificate (see sec= and xprtsec= of --export-options)");
        return Err(Status::ACCESS_DENIED);
    }
    if encrypted && session.sealing.is_none() {
        tracing::warn!(%client, user, share = share_name, "SMB share refused to a client that cannot encrypt (see ENCRYPT_DATA, and sec= and xprtsec= of --export-options)");
        return Err(Status::ACCESS_DENIED);
    }
    Ok(ConnectableShare {
        target: Target::Volume(export.root()),
        name: share.name.clone(),
        encrypted,
    })
}

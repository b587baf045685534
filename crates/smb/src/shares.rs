//! Shares: one for each export that admits the client over SMB, under the last word of its path; and IPC$.

use crate::session::Target;
use crate::status::Status;
use std::net::IpAddr;
use weir_vfs::{Export, ExportTable, Protocol, Verdict, Vfs};

/// The share for named pipes.
pub const PIPES: &str = "IPC$";
/// Longest name of a share in UTF-16 units (MS-SRVS §2.2.4.23 and Windows' limit).
pub const MAX_NAME: usize = 80;

/// The name of an export's share; `None` if it has none: SMB's names have no separators.
fn name_of(export: &Export) -> Option<&str> {
    let mut paths = export.paths();
    paths.find_map(|path| {
        let name = path.strip_prefix('/')?;
        let fits = !name.is_empty() && name.encode_utf16().count() <= MAX_NAME;
        let taken = name.eq_ignore_ascii_case(PIPES) || name.contains(['/', '\\']);
        (fits && !taken).then_some(name)
    })
}

/// The names of all shares that admit a client, sorted, without IPC$.
pub fn all(vfs: &Vfs, table: &ExportTable, client: IpAddr) -> Vec<String> {
    let admitted = |e: &&Export| matches!(vfs.verdict(e, client, Protocol::Smb), Verdict::Rule(_));
    let shares = table.iter().filter(admitted);
    let mut names: Vec<String> = shares.filter_map(name_of).map(str::to_owned).collect();
    names.sort_unstable();
    names
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
    let mut found = None;
    for export in table.iter() {
        let Some(own) = name_of(export) else {
            continue;
        };
        if own == name || (found.is_none() && own.to_lowercase() == lower) {
            found = Some((export, own));
        }
    }
    let (export, own) = found.ok_or(Status::BAD_NETWORK_NAME)?;
    match vfs.verdict(export, client, Protocol::Smb) {
        Verdict::Rule(_) => Ok((Target::Volume(export.root()), own.to_owned())),
        Verdict::Denied => Err(Status::ACCESS_DENIED),
        // Its name is being looked up: it may try again.
        Verdict::Unknown(_) => Err(Status::RETRY),
    }
}

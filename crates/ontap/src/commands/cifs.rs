//! `vserver cifs`: volumes as shares of SMB, and who uses them. A volume is one share, or none.

use super::show::{self, Answer};
use crate::cluster::{Change, Cluster, Failure, SmbSession};
use crate::fields::share::{self, FIELDS};
use crate::fields::{Field, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, none};
use crate::table::{self, Column};

/// Fields of sessions.
pub(super) const SESSIONS: &[Field<SmbSession>] = rows! {
    Field::<SmbSession>::column("session-id", "Session ID", |s| s.id.into()).key(),
    Field::<SmbSession>::column("windows-user", "Windows User", |s| s.user.clone().into()),
    Field::<SmbSession>::column("address", "Workstation IP address", |s| s.client.clone().into()),
    Field::<SmbSession>::column(
        "protocol-version", "Protocol Version", |s: &SmbSession| s.dialect.to_owned().into(),
    ),
    Field::<SmbSession>::always("", "auth-mechanism", "Authentication Mechanism", "NTLMv2"),
    Field::<SmbSession>::column("is-session-signed", "Is Session Signed", |s| s.signed.into()),
    Field::<SmbSession>::column("files", "Open Files", |s| s.opens.into()),
    Field::<SmbSession>::column(
        "shares", "Connected Shares", |s: &SmbSession| s.shares.join(",").into(),
    ),
};

/// Runs a command by its last two words.
pub fn run(
    what: &str,
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    match (what, verb) {
        ("session", _) => sessions(parsed, cluster),
        (_, "create") => create(parsed, cluster),
        (_, "delete") => delete(parsed, cluster),
        _ => shares(parsed, cluster),
    }
}

fn shares(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 14).with_field("vserver"),
        Column::new(&["Share"], 13).with_field("share-name"),
        Column::new(&["Path"], 17).with_field("path"),
        Column::new(&["Properties"], 10),
        Column::new(&["Comment"], 8),
        Column::new(&["ACL"], 23).with_field("acl"),
    ];
    let keys = ["vserver", "share-name"];
    show::print(FIELDS, parsed, cluster.shares(), &keys, |all| {
        let rows = all.iter().flat_map(|s| {
            let mut lines = vec![show::cells(FIELDS, COLUMNS, s)];
            for (at, property) in s.properties.iter().enumerate() {
                if at > 0 {
                    lines.push(vec![String::new(); COLUMNS.len()]);
                }
                if let Some(cell) = lines.last_mut().and_then(|line| line.get_mut(3)) {
                    *cell = (*property).to_owned();
                }
            }
            lines
        });
        table::fixed(COLUMNS, &rows.collect::<Vec<_>>())
    })
}

fn sessions(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Session", "ID"], 20).with_field("session-id"),
        Column::new(&["", "Workstation"], 16).with_field("address"),
        Column::new(&["", "Windows User"], 16).with_field("windows-user"),
        Column::new(&["Protocol", "Version"], 8).with_field("protocol-version"),
        Column::new(&["Open", "Files"], 8).with_field("files"),
    ];
    show::list(
        SESSIONS,
        parsed,
        cluster.smb_sessions(),
        &["session-id"],
        COLUMNS,
    )
}

/// Runs `vserver cifs share create`: of the volume that is mounted at the path.
fn create(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let (svm, name) = (
        argument(parsed, "vserver")?,
        argument(parsed, "share-name")?,
    );
    let path = argument(parsed, "path")?;
    let volume = share::of_path(cluster, svm, path).map_err(failed)?;
    let change = Change::Share {
        volume,
        name: Some(name.to_owned()),
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Runs `vserver cifs share delete`
fn delete(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let (svm, name) = (
        argument(parsed, "vserver")?,
        argument(parsed, "share-name")?,
    );
    let mut shares = cluster.shares().into_iter();
    let found = shares.find(|s| s.volume.vserver == svm && s.name.eq_ignore_ascii_case(name));
    let change = Change::Share {
        volume: found.ok_or_else(none)?.volume,
        name: None,
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

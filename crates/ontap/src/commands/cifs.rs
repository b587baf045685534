//! `vserver cifs`: volumes as shares of SMB, and who uses them. A volume is one share, or none.

use super::refusal::{argument, failed, none};
use super::show::{self, Answer, Field};
use crate::cluster::{Change, Cluster, Failure, Reason, Share, SmbSession};
use crate::grammar::Parsed;
use crate::table::{self, Column};

const fn column(heading: &'static [&'static str], width: usize) -> Column {
    Column {
        heading,
        width,
        groups: false,
    }
}

/// Runs a command by its last two words.
pub fn run(
    what: &str,
    verb: &str,
    parsed: &Parsed,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    match (what, verb) {
        ("session", _) => sessions(parsed, cluster),
        (_, "create") => create(parsed, cluster),
        (_, "delete") => delete(parsed, cluster),
        _ => shares(parsed, cluster),
    }
}

fn shares(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Share>] = &[
        Field::key("vserver", "Vserver", |s| s.volume.vserver.clone()),
        Field::key("share-name", "Share", |s| s.name.clone()),
        Field::new("path", "Path", |s| s.path.clone()),
        Field::new("share-properties", "Share Properties", |s: &Share| {
            s.properties.join(",")
        }),
        Field::new("volume", "Volume Name", |s| s.volume.volume.clone()),
        Field::new("acl", "Share ACL", |s| s.acl.to_owned()),
    ];
    const COLUMNS: &[Column] = &[
        column(&["Vserver"], 14),
        column(&["Share"], 13),
        column(&["Path"], 17),
        column(&["Properties"], 10),
        column(&["Comment"], 8),
        column(&["ACL"], 23),
    ];
    let keys = ["vserver", "share-name"];
    show::print(FIELDS, parsed, cluster.shares(), &keys, |all| {
        let rows = all.iter().flat_map(|s| {
            let (first, rest) = match s.properties.split_first() {
                Some((first, rest)) => (*first, rest),
                None => ("-", &[][..]),
            };
            let own = |text: &str| text.to_owned();
            let head = vec![
                s.volume.vserver.clone(),
                s.name.clone(),
                s.path.clone(),
                own(first),
                own("-"),
                own(s.acl),
            ];
            let more = rest.iter().map(move |property| {
                vec![own(""), own(""), own(""), own(property), own(""), own("")]
            });
            [head].into_iter().chain(more)
        });
        table::fixed(COLUMNS, &rows.collect::<Vec<_>>())
    })
}

fn sessions(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<SmbSession>] = &[
        Field::key("session-id", "Session ID", |s| s.id.to_string()),
        Field::new("windows-user", "Windows User", |s| s.user.clone()),
        Field::new("address", "Workstation IP address", |s| s.client.clone()),
        Field::new("protocol-version", "Protocol Version", |s: &SmbSession| {
            s.dialect.to_owned()
        }),
        Field::new("auth-mechanism", "Authentication Mechanism", |_| {
            "NTLMv2".to_owned()
        }),
        Field::new("is-session-signed", "Is Session Signed", |s| {
            s.signed.to_string()
        }),
        Field::new("files", "Open Files", |s| s.opens.to_string()),
        Field::new("shares", "Connected Shares", |s: &SmbSession| {
            s.shares.join(",")
        }),
    ];
    const COLUMNS: &[Column] = &[
        column(&["Session", "ID"], 20),
        column(&["", "Workstation"], 16),
        column(&["", "Windows User"], 16),
        column(&["Protocol", "Version"], 8),
        column(&["Open", "Files"], 8),
    ];
    let keys = ["session-id"];
    show::print(FIELDS, parsed, cluster.smb_sessions(), &keys, |all| {
        let row = |s: &SmbSession| {
            vec![
                s.id.to_string(),
                s.client.clone(),
                s.user.clone(),
                s.dialect.to_owned(),
                s.opens.to_string(),
            ]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs `vserver cifs share create`: of the volume that is mounted at the path.
fn create(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let (svm, name) = (
        argument(parsed, "vserver")?,
        argument(parsed, "share-name")?,
    );
    let path = argument(parsed, "path")?;
    let mut volumes = cluster.volumes().into_iter();
    let found = volumes.find(|v| v.path.vserver == svm && v.junction.as_deref() == Some(path));
    let Some(volume) = found else {
        return Err(failed(Failure::new(
            Reason::NotFound,
            format!(
                "The specified path \"{path}\" is the junction of no volume in Vserver \"{svm}\"."
            ),
        )));
    };
    let mut shares = cluster.shares().into_iter();
    if let Some(share) = shares.find(|s| s.volume == volume.path) {
        return Err(failed(Failure::new(
            Reason::Duplicate,
            format!(
                "Volume \"{}\" is shared as \"{}\" already; a volume is one share.",
                volume.path.volume, share.name
            ),
        )));
    }
    let change = Change::Share {
        volume: volume.path,
        name: Some(name.to_owned()),
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Runs `vserver cifs share delete`
fn delete(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
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

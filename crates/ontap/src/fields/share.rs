//! Volumes as shares of SMB. A volume is one share, or none.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::{Cluster, Failure, Reason, Share};
use crate::value;
use weir_relations::model::Path;

/// Properties of a share that is made here.
const USUAL: &[&str] = &[
    "oplocks",
    "browsable",
    "changenotify",
    "show-previous-versions",
];

/// A share that is made.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its machine.
    pub svm: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// The junction of its volume.
    pub path: Option<String>,
}

/// Returns the share that a volume of a machine becomes.
///
/// # Errors
/// No volume has that path, or it is a share already.
pub fn of_path(cluster: &dyn Cluster, svm: &str, path: &str) -> Result<Path, Failure> {
    let mut volumes = cluster.volumes().into_iter();
    let found = volumes.find(|v| v.path.vserver == svm && v.junction.as_deref() == Some(path));
    let Some(volume) = found else {
        let why = format!(
            "The specified path \"{path}\" is the junction of no volume in Vserver \"{svm}\"."
        );
        return Err(Failure::new(Reason::NotFound, why));
    };
    let mut shares = cluster.shares().into_iter();
    match shares.find(|s| s.volume == volume.path) {
        None => Ok(volume.path),
        Some(share) => {
            let why = format!(
                "Volume \"{}\" is shared as \"{}\" already; a volume is one share.",
                volume.path.volume, share.name
            );
            Err(Failure::new(Reason::Duplicate, why))
        }
    }
}

/// Returns a share as it is when it has been made.
pub fn usual(volume: Path, name: &str, path: &str) -> Share {
    Share {
        volume,
        name: name.to_owned(),
        path: path.to_owned(),
        properties: USUAL.to_vec(),
        acl: "",
    }
}

fn has_property(share: &Share, property: &str) -> Value {
    share.properties.contains(&property).into()
}

fn acl(share: &Share) -> Value {
    let entry = match share.acl.split_once(" / ") {
        Some((user, "Full Control")) => Some(Value::Object(vec![
            ("user_or_group", text(user)),
            ("type", "windows".into()),
            ("permission", "full_control".into()),
        ])),
        _ => None,
    };
    let rest = Value::List(entry.into_iter().collect());
    Value::Apart(share.acl.to_owned(), Box::new(rest))
}

type F = Field<Share, Draft>;

/// The fields. Properties are settings of the volume, which the NetApp Volumes API changes.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver", |s| text(&s.volume.vserver)).key()
        .creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::new("name", "share-name", "Share", |s| text(&s.name)).key()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::new("path", "path", "Path", |s| text(&s.path)).same()
        .creates(Kind::Path, |d, v| d.path = v.text()).required(),
    F::column("share-properties", "Share Properties", |s| text(s.properties.join(","))),
    F::new("volume.name", "volume", "Volume Name", |s| text(&s.volume.volume)),
    F::new("acls", "acl", "Share ACL", acl).parts(&["user_or_group", "type", "permission"]),
    F::rest("oplocks", |s| has_property(s, "oplocks")).same(),
    F::rest("browsable", |s| has_property(s, "browsable")).same(),
    F::rest("change_notify", |s| has_property(s, "changenotify")).same(),
    F::rest("show_previous_versions", |s| has_property(s, "show-previous-versions")).same(),
    F::rest("access_based_enumeration", |s| has_property(s, "access-based-enumeration")).same(),
    F::rest("encryption", |s| has_property(s, "encrypt-data")).same(),
    F::rest("continuously_available", |s| has_property(s, "continuously-available")).same(),
    F::fixed("home_directory", "", "", "false"),
    F::fixed("allow_unencrypted_access", "", "", "false"),
    F::fixed("namespace_caching", "", "", "false"),
    F::fixed("no_strict_security", "", "", "false"),
    F::rest("svm.uuid", |s| identity("svm", &s.volume.vserver)),
};

/// The resource.
pub const TABLE: Table<Share, Draft> = Table {
    path: "protocols/cifs/shares",
    command: &["vserver", "cifs", "share"],
    fields: FIELDS,
    absent: rows! {
        "comment", "dir_umask", "file_umask", "force_group_for_create", "offline_files",
        "unix_symlink", "vscan_profile", "volume.uuid", "max_connections_per_share",
        "attribute_cache", "branch_cache",
    },
    keys: &["svm.uuid", "svm.name", "name"],
    order: &["svm.name", "name"],
    ids: |s| vec![value::identity("svm", &s.volume.vserver), s.name.clone()],
    why: "it is a setting of the volume, which the NetApp Volumes API changes",
};

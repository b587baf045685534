//! Qtrees.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::{Cluster, Volume};
use crate::storage::{NamedKind, Qtree};

/// A qtree with its volume.
#[derive(Clone, Debug)]
pub struct Row {
    /// The qtree.
    pub qtree: Qtree,
    /// Its volume.
    pub volume: Volume,
}

impl Row {
    /// Returns the name of the export policy that counts in it.
    pub fn export_policy(&self) -> &str {
        let own = self.qtree.export_policy.as_deref();
        own.unwrap_or(&self.volume.details.export_policy)
    }

    /// Returns the path at which clients see it, if they do.
    fn path(&self) -> Value {
        let path = |junction: &String| match self.qtree.name.as_str() {
            "" => junction.clone(),
            name => format!("{}/{name}", junction.trim_end_matches('/')),
        };
        self.volume.junction.as_ref().map(path).into()
    }
}

/// Returns a volume's own qtree, number 0.
pub fn own(volume: &Volume) -> Row {
    let qtree = Qtree {
        volume: volume.path.clone(),
        number: 0,
        name: String::new(),
        permissions: volume.details.permissions,
        owner: 0,
        group: 0,
        export_policy: None,
    };
    Row {
        qtree,
        volume: volume.clone(),
    }
}

/// Returns the qtrees of all volumes, each volume's own first.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let mut qtrees = cluster.qtrees(None);
    let mut rows = Vec::new();
    for volume in cluster.volumes() {
        rows.push(own(&volume));
        let here = qtrees.extract_if(.., |qtree| qtree.volume == volume.path);
        rows.extend(here.map(|qtree| Row {
            qtree,
            volume: volume.clone(),
        }));
    }
    rows
}

/// A qtree that is made or changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Permission bits of its folder.
    pub permissions: Option<u32>,
    /// Name of its own export policy; empty: that of the volume.
    pub export_policy: Option<String>,
}

type F = Field<Row, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver Name", |r| text(&r.volume.path.vserver)).key().same()
        .creates(Kind::Nested, |_, _| {}),
    F::new("volume.name", "volume", "Volume Name", |r| text(&r.volume.path.volume)).key().same()
        .creates(Kind::Nested, |_, _| {}),
    F::new("name", "qtree", "Qtree Name", |r| text(&r.qtree.name)).key()
        .sets(Kind::Text, |d, v| d.name = v.text()),
    F::column("qtree-path", "Qtree Path", |r| {
        let path = format!("/vol/{}/{}", r.volume.path.volume, r.qtree.name);
        text(path.trim_end_matches('/'))
    }),
    F::new("security_style", "security-style", "Security Style",
        |r| text(r.volume.details.security_style())).same(),
    F::fixed("", "oplock-mode", "Oplock Mode", "enable"),
    F::new("unix_permissions", "unix-permissions", "Unix Permissions",
        |r| Value::Mode(r.qtree.permissions)).sets(Kind::Mode, |d, v| d.permissions = v.small()),
    F::new("id", "id", "Qtree Id", |r| r.qtree.number.into()).same().rest_only(),
    F::always("", "status", "Qtree Status", "normal"),
    F::new("export_policy.name", "export-policy", "Export Policy", |r| text(r.export_policy()))
        .sets(Kind::Policy(NamedKind::Export), |d, v| d.export_policy = v.text()),
    F::column("is-export-policy-inherited", "Is Export Policy Inherited",
        |r| text(r.qtree.export_policy.is_none().to_string())),
    F::rest("svm.uuid", |r| identity("svm", &r.volume.path.vserver)).same(),
    F::rest("volume.uuid", |r| text(&r.volume.uuid)).same().creates(Kind::Nested, |_, _| {}),
    F::rest("user.id", |r| text(r.qtree.owner.to_string())).same(),
    F::rest("group.id", |r| text(r.qtree.group.to_string())).same(),
    F::rest("path", Row::path).same(),
    F::rest("nas.path", Row::path).same(),
    F::rest("export_policy.id", |_| Value::None).same(),
    F::rest("qos_policy.name", |_| Value::None).same(),
    F::rest("qos_policy.uuid", |_| Value::None).same(),
    F::rest("user.name", |_| Value::None).same(),
    F::rest("group.name", |_| Value::None).same(),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/qtrees",
    command: &["volume", "qtree"],
    fields: FIELDS,
    absent: &[],
    keys: &["id", "name", "svm", "volume"],
    order: &["svm.name", "volume.name", "volume.uuid", "name"],
    ids: |r| vec![r.volume.uuid.clone(), r.qtree.number.to_string()],
    why: "qtrees have what their volume has",
};

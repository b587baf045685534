//! Snapshots of volumes.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::{Cluster, Snapshot, Volume};

/// A snapshot with the identity of its volume.
#[derive(Clone, Debug)]
pub struct Row {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The identity of its volume.
    pub volume: String,
}

impl std::ops::Deref for Row {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// Returns the snapshots of a volume, oldest first.
pub fn of_volume(cluster: &dyn Cluster, volume: &Volume) -> Vec<Row> {
    let all = cluster.snapshots(Some(&volume.path)).into_iter();
    let row = |snapshot| Row {
        snapshot,
        volume: volume.uuid.clone(),
    };
    all.map(row).collect()
}

/// Returns a record like those of a volume's snapshots.
pub fn like(volume: &Volume) -> Row {
    Row {
        snapshot: Snapshot {
            path: volume.path.clone(),
            name: String::new(),
            created: 0,
            size: 0,
            label: None,
            comment: String::new(),
            uuid: String::new(),
        },
        volume: volume.uuid.clone(),
    }
}

/// A snapshot that is made or changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Its label; `Some(None)` is none.
    pub label: Option<Option<String>>,
    /// Free text; empty is none.
    pub comment: Option<String>,
}

type F = Field<Row, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver", |s| text(&s.path.vserver)).key().same(),
    F::new("volume.name", "volume", "Volume", |s| text(&s.path.volume)).key().same(),
    F::new("name", "snapshot", "Snapshot", |s| text(&s.name)).key()
        .sets(Kind::Text, |d, v| d.name = v.text()),
    F::new("create_time", "create-time", "Creation Time", |s| Value::Time(s.created)),
    F::new("size", "size", "Snapshot Size", |s| Value::Bytes(s.size)),
    F::new("snapmirror_label", "snapmirror-label", "SnapMirror Label", |s| s.label.clone().into())
        .sets(Kind::Label, |d, v| d.label = Some(v.text())),
    F::new(
        "comment", "comment", "Comment",
        |s| Some(s.comment.clone()).filter(|text| !text.is_empty()).into(),
    ).sets(Kind::Text, |d, v| d.comment = v.text()),
    F::new("uuid", "snapshot-uuid", "Snapshot UUID", |s| text(&s.uuid)),
    F::rest("svm.uuid", |s| identity("svm", &s.path.vserver)).same(),
    F::rest("volume.uuid", |s| text(&s.volume)).same(),
    F::always("state", "", "", "valid"),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/volumes/*/snapshots",
    command: &["snapshot"],
    fields: FIELDS,
    absent: rows! {
        "expiry_time", "snaplock.expiry_time", "snaplock.expired", "snaplock_expiry_time",
        "logical_size", "version_uuid", "owners", "provenance_volume.uuid",
    },
    keys: &["uuid", "name"],
    order: &["create_time", "name"],
    ids: |s| vec![s.volume.clone(), s.uuid.clone()],
    why: "a snapshot stays with its volume",
};

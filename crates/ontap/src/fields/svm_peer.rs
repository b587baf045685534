//! Pairs of machines that relationships lead between. Relationships need none: nodes are paired as
//! wholes, so a pair is there as soon as a relationship is.

use std::collections::BTreeSet;

use weir_relations::model::Path;

use super::value::{identity, text};
use super::{Field, Table, Value};
use crate::cluster::Cluster;
use crate::value;

/// A pair of machines, as one of them sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The machine here.
    pub svm: String,
    /// The other one.
    pub peer: String,
    /// The cluster of the other one.
    pub cluster: String,
}

impl Row {
    fn uuid(&self) -> String {
        let name = format!("{}/{}/{}", self.svm, self.cluster, self.peer);
        value::identity("svm-peer", &name)
    }
}

/// Returns the pairs of all relationships that have an end here.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let mut pairs = BTreeSet::new();
    let own = cluster.name();
    let mut add = |here: &Path, there: &Path| {
        let local = here.cluster.is_empty();
        let differs = here.vserver != there.vserver || here.cluster != there.cluster;
        if local && differs {
            pairs.insert(Row {
                svm: here.vserver.clone(),
                peer: there.vserver.clone(),
                cluster: match there.cluster.as_str() {
                    "" => own.clone(),
                    other => other.to_owned(),
                },
            });
        }
    };
    let all = cluster.relationships().into_iter();
    for r in all
        .chain(cluster.destinations())
        .filter(|r| r.synchronous.is_none())
    {
        add(&r.source, &r.destination);
        add(&r.destination, &r.source);
    }
    pairs.into_iter().collect()
}

type F = Field<Row>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Local Vserver Name", |p| text(&p.svm)).key(),
    F::new("name", "peer-vserver", "Peer Vserver Name", |p| text(&p.peer)).key(),
    F::always("state", "peer-state", "Peering State", "peered"),
    F::new("applications", "applications", "Peering Applications",
        |_| Value::List(vec![text("snapmirror")])),
    F::new("peer.cluster.name", "peer-cluster", "Peer Cluster Name", |p| text(&p.cluster)).key(),
    F::new("peer.svm.name", "remote-vserver-name", "Remote Vserver Name", |p| text(&p.peer)),
    F::rest("uuid", |p| text(p.uuid())),
    F::rest("svm.uuid", |p| identity("svm", &p.svm)),
    F::rest("peer.svm.uuid", |p| identity("svm", &p.peer)),
    F::rest("peer.cluster.uuid", |p| identity("cluster", &p.cluster)),
};

/// The resource.
pub const TABLE: Table<Row> = Table {
    path: "svm/peers",
    command: &["vserver", "peer"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["svm.name", "name", "peer.cluster.name"],
    ids: |p| vec![p.uuid()],
    why: "",
};

//! The cluster: who it is, and what a peer is created with.

use super::value::text;
use super::{Field, Table, node};
use crate::cluster::Cluster;

/// The cluster.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its identity.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// The address at which it listens for peers.
    pub address: Option<String>,
    /// SHA-256 of its certificate, hexadecimal.
    pub fingerprint: String,
}

/// Returns the cluster.
pub fn row(cluster: &dyn Cluster) -> Row {
    Row {
        uuid: cluster.uuid(),
        name: cluster.name(),
        address: cluster.peer_address(),
        fingerprint: cluster.fingerprint(),
    }
}

type F = Field<Row>;

/// The fields. ONTAP has none for where peers connect to, and by what they know the cluster.
pub const FIELDS: &[F] = rows! {
    F::new("uuid", "uuid", "Cluster UUID", |c| text(&c.uuid)).key(),
    F::new("name", "name", "Cluster Name", |c| text(&c.name)),
    F::new("peering.address", "peering-address", "Peering Address", |c| c.address.clone().into()),
    F::new("peering.fingerprint", "fingerprint", "Certificate Fingerprint",
        |c| text(&c.fingerprint)),
    F::rest("version.full", |_| text(node::version())),
    F::rest("version.generation", |_| node::RELEASE.0.into()),
    F::rest("version.major", |_| node::RELEASE.1.into()),
    F::rest("version.minor", |_| node::RELEASE.2.into()),
};

/// The resource, which is one record without a list.
pub const TABLE: Table<Row> = Table {
    path: "cluster",
    command: &["cluster", "identity"],
    fields: FIELDS,
    absent: rows! { "contact", "location", "dns_domains", "name_servers", "ntp_servers" },
    keys: &["uuid", "name"],
    order: &["uuid"],
    ids: |_| Vec::new(),
    why: "",
};

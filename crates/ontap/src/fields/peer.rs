//! Other nodes that this one is paired with.

use super::value::{identity, text};
use super::{Field, Table, Value};
use crate::cluster::Peer;
use crate::value;

type F = Field<Peer>;

/// The fields. The certificate's fingerprint, by which both ends know each other, has no field in
/// ONTAP's interface.
pub const FIELDS: &[F] = rows! {
    F::new("name", "cluster", "Peer Cluster Name", |p| text(&p.name)).key(),
    F::new("remote.ip_addresses", "peer-addrs", "Remote Addresses",
        |p| Value::List(p.address.iter().map(text).collect())),
    F::new(
        "status.state",
        "availability",
        "Availability of the Remote Cluster",
        |p| match p.available {
            Some(true) => Value::Spelled("Available", "available"),
            Some(false) => Value::Spelled("Unavailable", "unavailable"),
            None => Value::Spelled("Pending", "pending"),
        },
    ),
    F::new("fingerprint", "fingerprint", "Certificate Fingerprint", |p| text(&p.fingerprint)),
    F::new("reason", "unavailable-reason", "Reason for Unavailability",
        |p| p.reason.clone().into()),
    F::rest("uuid", |p| identity("peer", &p.name)),
    F::rest("remote.name", |p| text(&p.name)),
};

/// The resource.
pub const TABLE: Table<Peer> = Table {
    path: "cluster/peers",
    command: &["cluster", "peer"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["name"],
    ids: |p| vec![value::identity("peer", &p.name)],
    why: "",
};

//! Other nodes that this one is paired with.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Peer;
use crate::value;

/// A peer that is made: with its fingerprint, by an offer, or by joining with a passphrase.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name here.
    pub name: Option<String>,
    /// Its name at itself, which stands for the other one where that is not given.
    pub remote: Option<String>,
    /// Addresses at which it listens.
    pub addresses: Option<Vec<String>>,
    /// SHA-256 of its certificate, as it was given.
    pub fingerprint: Option<String>,
    /// True to offer pairing with a passphrase.
    pub generates: bool,
    /// The passphrase of the other node's offer.
    pub passphrase: Option<String>,
}

type F = Field<Peer, Draft>;

/// The fields. The certificate's fingerprint, by which both ends know each other, has no field in
/// ONTAP's interface.
pub const FIELDS: &[F] = rows! {
    F::new("name", "cluster", "Peer Cluster Name", |p| text(&p.name)).key().optional()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::new("remote.ip_addresses", "peer-addrs", "Remote Addresses",
        |p| Value::List(p.address.iter().map(text).collect()))
        .creates(Kind::List, |d, v| d.addresses = v.list()),
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
    F::new("fingerprint", "fingerprint", "Certificate Fingerprint", |p| text(&p.fingerprint))
        .creates(Kind::Text, |d, v| d.fingerprint = v.text()),
    F::new("reason", "unavailable-reason", "Reason for Unavailability",
        |p| p.reason.clone().into()),
    F::rest("uuid", |p| identity("peer", &p.name)),
    F::rest("remote.name", |p| text(&p.name)).creates(Kind::Text, |d, v| d.remote = v.text()),
    F::rest("authentication.generate_passphrase", |_| Value::None)
        .creates(Kind::Flag, |d, v| d.generates = v.flag() == Some(true)),
    F::rest("authentication.passphrase", |_| Value::None)
        .creates(Kind::Text, |d, v| d.passphrase = v.text()),
};

/// The resource.
pub const TABLE: Table<Peer, Draft> = Table {
    path: "cluster/peers",
    command: &["cluster", "peer"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["name"],
    ids: |p| vec![value::identity("peer", &p.name)],
    why: "",
};

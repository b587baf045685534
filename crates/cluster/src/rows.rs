//! Rows of the cluster's tables, and what they are together: a view.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::limits::cluster::{NAME_MAX, NODE_SILENCE};

use crate::shares::Share;
use crate::shares::message::LimitReport;

/// Role of a child in its aggregate, as it reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Role {
    /// It has not answered yet, or waits for its next start.
    #[default]
    Starting,
    /// It stands by.
    Standby,
    /// It owns the aggregate.
    Owner,
}

/// A server of an aggregate on one node, as the node's daemon reports it in its heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Child {
    /// Its role.
    pub role: Role,
    /// Epoch of the aggregate as the child knows it; 0 if it does not.
    pub epoch: u64,
    /// Seconds for which it has had the role.
    pub role_seconds: u64,
    /// Its process, in the words of `weir cluster show`.
    pub process: String,
    /// Owner that the child has seen, in the same words.
    pub owner: Option<String>,
    /// Fault of the child, or reason of its last end.
    pub fault: Option<String>,
    /// Number of its ends since the daemon's start.
    pub ends: u64,
    /// Its parts in limits that it shares with other servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<LimitReport>,
    /// Name that the server has given to these reports.
    #[serde(skip)]
    pub shares_as_of: String,
}

impl Child {
    /// Replaces a report by a newer one without shares: those stay while the server owns its
    /// aggregate.
    pub fn replace(&mut self, newer: Child) {
        let before = std::mem::replace(self, newer);
        if self.role == Role::Owner {
            self.shares = before.shares;
            self.shares_as_of = before.shares_as_of;
        }
    }
}

/// Place at which a node answers the cluster's API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeApi {
    /// Address and port, as other nodes reach it.
    pub address: std::net::SocketAddr,
    /// SHA-256 of its certificate, hexadecimal; `None` without TLS.
    pub certificate: Option<String>,
}

/// A token of the API, which is valid at every node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// The role that it grants, as the API names it.
    pub role: String,
    /// Hash of its secret.
    pub hash: String,
    /// Seconds of the Unix time at which it was created.
    pub created: i64,
    /// Name of the caller that created it.
    pub created_by: String,
    /// Seconds of the Unix time at which it expires; `None`: it does not.
    pub expires: Option<i64>,
}

/// A machine with a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// IP address at which its servers listen.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// Bytes of memory for its servers.
    pub memory: u64,
    /// True if it is to have no aggregates.
    pub drained: bool,
    /// Time since its last heartbeat, by the database's clock.
    pub silent: Duration,
    /// Its servers, by aggregate.
    pub children: BTreeMap<String, Child>,
    /// Place at which it answers the API; `None` if it does not.
    #[serde(default)]
    pub api: Option<NodeApi>,
}

impl Node {
    /// Returns true if the node sends heartbeats.
    pub fn is_up(&self) -> bool {
        self.silent < NODE_SILENCE
    }

    /// Returns true if the node may be given aggregates.
    pub fn takes_aggregates(&self) -> bool {
        self.is_up() && !self.drained
    }
}

/// Storage below an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Objects of a pool of Ceph.
    Rados,
    /// Two nodes with a copy each.
    Pair,
}

impl Kind {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rados => "rados",
            Kind::Pair => "pair",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        match text {
            "rados" => Ok(Kind::Rados),
            "pair" => Ok(Kind::Pair),
            _ => Err(format!("'{text}' is no kind of aggregate")),
        }
    }
}

/// Options of an aggregate's servers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Place at which NFS is served.
    pub nfs: Option<Listen>,
    /// Place at which SMB is served; `None` for none.
    pub smb: Option<Listen>,
    /// Place at which the API is served; `None` for none.
    pub api: Option<Listen>,
    /// Addresses that move with the aggregate: `ADDR/PREFIX@IFACE`.
    pub addresses: Vec<String>,
    /// Bytes of memory of each server.
    pub memory: u64,
}

/// Address to listen at: a port at the node's own address, or an address and a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen {
    /// The address; `None` for the node's.
    pub address: Option<std::net::IpAddr>,
    /// The port.
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if let Ok(port) = text.parse() {
            return Ok(Listen {
                address: None,
                port,
            });
        }
        let at: Result<std::net::SocketAddr, _> = text.parse();
        let at = at.map_err(|_| {
            format!(
                "'{text}' is neither a port (2049) nor an IP address with a port (10.0.0.50:2049)"
            )
        })?;
        Ok(Listen {
            address: Some(at.ip()),
            port: at.port(),
        })
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Listen, String> {
        text.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => std::net::SocketAddr::new(address, self.port).fmt(f),
            None => self.port.fmt(f),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> String {
        listen.to_string()
    }
}

/// A wanted change of the owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The node that is to own the aggregate.
    pub node: String,
    /// Epoch of the aggregate at which this was wanted. In another epoch it holds no more.
    pub epoch: u64,
}

/// Nodes of an aggregate: the part of its row that the leader changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Assignment {
    /// The wanted owner.
    pub owner: Option<String>,
    /// The wanted standby.
    pub standby: Option<String>,
    /// The wanted change of the owner.
    pub target: Option<Target>,
    /// Greatest epoch that an owner has reported.
    pub epoch: u64,
}

impl Assignment {
    /// Returns true if the node is the owner or the standby.
    pub fn has_node(&self, node: &str) -> bool {
        self.owner.as_deref() == Some(node) || self.standby.as_deref() == Some(node)
    }
}

/// An aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Aggregate {
    /// Its name.
    pub name: String,
    /// Storage below it.
    pub kind: Kind,
    /// Its place, such as `rados:POOL/ID`.
    pub place: String,
    /// Options of its servers.
    pub settings: Settings,
    /// Its nodes.
    pub nodes: Assignment,
    /// True if its servers are to end, and its row is to go.
    pub deleting: bool,
    /// Seconds of the Unix time at which it was created.
    pub created: i64,
    /// Number of changes of the row.
    pub version: i64,
}

impl Aggregate {
    /// Returns the nodes of a pair and the data folders of its servers there, in the order of its
    /// place, `pair:NODE=DIR,NODE=DIR`; empty for other kinds.
    pub fn sides(&self) -> Vec<(&str, &Path)> {
        let sides = self.place.strip_prefix("pair:").unwrap_or_default();
        let sides = sides.split(',').filter_map(|side| side.split_once('='));
        sides
            .map(|(node, folder)| (node, Path::new(folder)))
            .collect()
    }

    /// Returns true if the node is to keep a server of the aggregate running, or to watch one.
    pub fn belongs_to(&self, node: &str) -> bool {
        match self.kind {
            Kind::Rados => self.nodes.has_node(node),
            Kind::Pair => self.sides().iter().any(|(side, _)| *side == node),
        }
    }
}

/// The leader, as the row has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Leader {
    /// Its node.
    pub node: String,
    /// Its term: one more with each new leader.
    pub term: i64,
}

/// All rows at a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Aggregates by name.
    pub aggregates: BTreeMap<String, Aggregate>,
    /// The leader; `None` if no lease holds.
    pub leader: Option<Leader>,
    /// Tokens of the API.
    #[serde(default)]
    pub tokens: Vec<Token>,
    /// Shares of limits, by limit and part; not kept over a restart.
    #[serde(skip)]
    pub shares: BTreeMap<(u64, u8), Share>,
}

impl View {
    /// Returns the node that owns an aggregate, and its epoch: of those that report it, the one
    /// with the greatest epoch. Older epochs than the row's were shut out by RADOS.
    pub fn real_owner(&self, aggregate: &Aggregate) -> Option<(&Node, &Child)> {
        let up = self.nodes.values().filter(|node| node.is_up());
        let children = up.filter_map(|node| Some((node, node.children.get(&aggregate.name)?)));
        children
            .filter(|(_, child)| child.role == Role::Owner && child.epoch >= aggregate.nodes.epoch)
            .max_by_key(|(_, child)| child.epoch)
    }

    /// Returns true if the standby of an aggregate reports that it stands by.
    pub fn has_standby(&self, aggregate: &Aggregate) -> bool {
        let node = aggregate.nodes.standby.as_deref();
        let child = node.and_then(|node| self.child(node, &aggregate.name));
        child.is_some_and(|child| child.role == Role::Standby)
    }

    /// Returns the server of an aggregate on a node that is up.
    pub fn child(&self, node: &str, aggregate: &str) -> Option<&Child> {
        let node = self.nodes.get(node).filter(|node| node.is_up())?;
        node.children.get(aggregate)
    }
}

/// Checks the name of a node or an aggregate: letters, digits, `-`, `_` and `.`, so that it is a
/// file's name and an object's namespace.
///
/// # Errors
/// The reason why it is none.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) || name.starts_with('.')
    {
        return Err(format!(
            "'{name}' is no name: it must be 1 to {NAME_MAX} letters, digits, '-', '_' and '.', and not begin with '.'"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        assert!(check_name("agg-1.b_C").is_ok());
        for wrong in ["", ".", "..", "a/b", "a b", &"x".repeat(65)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        for text in ["2049", "10.0.0.50:2049", "[fd00::1]:2049"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert!("localhost:2049".parse::<Listen>().is_err());
        let settings: Settings = serde_json::from_str(r#"{"nfs": "2049", "memory": 5}"#).unwrap();
        assert_eq!(settings.nfs.unwrap().port, 2049);
        assert_eq!(settings.smb, None);
    }
}

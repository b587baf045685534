//! The directory of the cluster: the volumes of every aggregate, and where they are served.
//!
//! The owner of an aggregate reports its volumes to its daemon. The daemon puts the list into the
//! tables if it has changed, with the owner's epoch, and reads the lists of the others. It writes
//! all of them into a file in the data folder of each of its servers. So an older directory stays
//! in force while the daemon or the database is down, and over restarts of the server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::SipKey;
use weir_base::limits::cluster::{DIRECTORY_VOLUMES_MAX, FORGET_LISTING, LISTED_VOLUMES_MAX};

/// Name of the file in a server's data folder.
pub const FILE: &str = "cluster-directory.json";

/// Volume of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListedVolume {
    /// Paths that clients of NFS mount.
    pub paths: Vec<String>,
    /// Name of its share, if it has one.
    pub share: Option<String>,
    /// The constituent of a large volume that it is: the large volume's identity, and the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constituent: Option<(u64, u8)>,
    /// Aggregate, by the first digits of its identity, and number under which its file handles are
    /// made, if it came from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<(String, u64)>,
}

/// Place at which a server sends and receives volumes that move.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transfers {
    /// The place.
    pub at: SocketAddr,
    /// Fingerprint of the certificate that the server shows there.
    pub fingerprint: String,
}

/// Reply of an owner that is asked for its volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exports {
    /// Name of this state of the list.
    pub token: String,
    /// The list; `None` if the daemon has this state.
    pub served: Option<OwnerListing>,
}

/// Volumes of an owner, and where it listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerListing {
    /// Identity of the aggregate, as 32 hexadecimal digits.
    pub identity: String,
    /// Place at which it listens for NFS.
    pub nfs: SocketAddr,
    /// Place at which it listens for SMB.
    pub smb: Option<SocketAddr>,
    /// The addresses that move with the aggregate.
    pub addresses: Vec<IpAddr>,
    /// Place of transfers.
    #[serde(default)]
    pub transfers: Option<Transfers>,
    /// Its volumes, at most [`LISTED_VOLUMES_MAX`].
    pub volumes: Vec<ListedVolume>,
    /// Number of volumes that are not listed.
    pub left_out: usize,
}

impl OwnerListing {
    /// Leaves out volumes beyond the bound.
    pub fn bound(&mut self) {
        self.left_out = self.volumes.len().saturating_sub(LISTED_VOLUMES_MAX);
        self.volumes.truncate(LISTED_VOLUMES_MAX);
    }

    /// Returns the list of the aggregate whose owner is on the node with the address `own`.
    pub fn listing(&self, own: IpAddr) -> Listing {
        let moves = !self.addresses.is_empty();
        let unspecified = self.nfs.ip().is_unspecified();
        let places = |at: SocketAddr| -> Vec<SocketAddr> {
            if !at.ip().is_unspecified() {
                vec![at]
            } else if moves {
                let all = self.addresses.iter();
                all.map(|ip| SocketAddr::new(*ip, at.port())).collect()
            } else {
                vec![SocketAddr::new(own, at.port())]
            }
        };
        Listing {
            identity: self.identity.clone(),
            nfs: places(self.nfs),
            smb: self.smb.map(places).unwrap_or_default(),
            at_node: self.nfs.ip() == own || unspecified && !moves,
            transfers: self.transfers.as_ref().map(|transfers| Transfers {
                at: match transfers.at.ip().is_unspecified() {
                    // Servers reach each other by their nodes.
                    true => SocketAddr::new(own, transfers.at.port()),
                    false => transfers.at,
                },
                fingerprint: transfers.fingerprint.clone(),
            }),
            volumes: self.volumes.clone(),
            left_out: self.left_out,
        }
    }
}

/// Volumes of an aggregate and the addresses of its owner.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listing {
    /// Identity of the aggregate, as 32 hexadecimal digits.
    pub identity: String,
    /// Places of NFS.
    pub nfs: Vec<SocketAddr>,
    /// Places of SMB.
    pub smb: Vec<SocketAddr>,
    /// True if these are the node's own address, so that another owner has others.
    pub at_node: bool,
    /// Place of transfers.
    pub transfers: Option<Transfers>,
    /// The volumes.
    pub volumes: Vec<ListedVolume>,
    /// Number of volumes that are not listed.
    pub left_out: usize,
}

/// The list of an aggregate as of an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// Epoch of the owner that has reported it.
    pub epoch: u64,
    /// Hash of the list.
    pub digest: i64,
    /// The list.
    pub listing: Listing,
}

impl Entry {
    /// Returns the entry of a list, and its text for the tables.
    pub fn new(epoch: u64, listing: Listing) -> serde_json::Result<(Entry, String)> {
        let text = serde_json::to_string(&listing)?;
        let entry = Entry {
            epoch,
            digest: digest(text.as_bytes()),
            listing,
        };
        Ok((entry, text))
    }
}

/// Returns a hash that tells contents apart which nobody chooses to be alike.
pub fn digest(text: &[u8]) -> i64 {
    SipKey::new([0; 16]).hash(text).cast_signed()
}

/// Everything that a daemon knows of the aggregates' volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Directory {
    /// Secret of the cluster, as 32 hexadecimal digits; empty while it is not known.
    pub secret: String,
    /// Lists by the aggregates' names.
    pub entries: BTreeMap<String, Entry>,
    /// Monotonic times since which the tables lack aggregates that have a list.
    #[serde(skip)]
    missing: BTreeMap<String, Duration>,
}

impl Directory {
    /// Takes a list unless a newer owner's is known. Returns true if it is news.
    pub fn take(&mut self, aggregate: &str, entry: Entry) -> bool {
        let known = self.entries.get(aggregate);
        if known.is_some_and(|known| known.epoch > entry.epoch || *known == entry) {
            return false;
        }
        self.entries.insert(aggregate.to_owned(), entry);
        true
    }

    /// Removes lists of aggregates that are not in the tables for [`FORGET_LISTING`]: tables that
    /// were restored lack an aggregate until its owner enters it again.
    pub fn forget(&mut self, now: Duration, is_in_tables: impl Fn(&str) -> bool) {
        let missing = &mut self.missing;
        missing.retain(|name, _| !is_in_tables(name));
        self.entries.retain(|name, _| {
            if is_in_tables(name) {
                return true;
            }
            let since = *missing.entry(name.clone()).or_insert(now);
            now.saturating_sub(since) < FORGET_LISTING
        });
    }

    /// Returns the contents of the servers' file. `nodes` are the addresses of all nodes.
    pub fn file(&self, nodes: &[IpAddr]) -> ServersFile {
        let mut left = DIRECTORY_VOLUMES_MAX;
        let servers = self.entries.iter().map(|(name, entry)| {
            let listing = &entry.listing;
            let count = listing.volumes.len().min(left);
            left -= count;
            let elsewhere = |at: &SocketAddr| {
                let nodes = nodes.iter().filter(|ip| listing.at_node && **ip != at.ip());
                nodes
                    .map(|ip| SocketAddr::new(*ip, at.port()))
                    .collect::<Vec<_>>()
            };
            ServerEntry {
                aggregate: name.clone(),
                identity: listing.identity.clone(),
                nfs: listing.nfs.clone(),
                smb: listing.smb.clone(),
                others: listing.nfs.first().map(elsewhere).unwrap_or_default(),
                transfers: listing.transfers.clone(),
                volumes: listing.volumes.iter().take(count).cloned().collect(),
            }
        });
        ServersFile {
            secret: self.secret.clone(),
            servers: servers.collect(),
        }
    }
}

/// Contents of the file in a server's data folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServersFile {
    /// Secret of the cluster, as 32 hexadecimal digits.
    pub secret: String,
    /// All aggregates, with the server's own.
    pub servers: Vec<ServerEntry>,
}

/// An aggregate in the file of a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Its name.
    pub aggregate: String,
    /// Its identity, as 32 hexadecimal digits.
    pub identity: String,
    /// Places of NFS.
    pub nfs: Vec<SocketAddr>,
    /// Places of SMB.
    pub smb: Vec<SocketAddr>,
    /// Places of NFS on other nodes, if another owner has another address.
    pub others: Vec<SocketAddr>,
    /// Place of transfers.
    #[serde(default)]
    pub transfers: Option<Transfers>,
    /// Its volumes.
    pub volumes: Vec<ListedVolume>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(nfs: &str, addresses: &[&str]) -> OwnerListing {
        OwnerListing {
            identity: "00".repeat(16),
            nfs: nfs.parse().unwrap(),
            smb: Some("0.0.0.0:445".parse().unwrap()),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            transfers: None,
            volumes: vec![ListedVolume::default(); LISTED_VOLUMES_MAX + 3],
            left_out: 0,
        }
    }

    #[test]
    fn places_are_those_that_clients_reach() {
        let own = "10.0.0.11".parse().unwrap();
        let at = |served: &OwnerListing| {
            let listing = served.listing(own);
            let text = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
            (text(&listing.nfs), text(&listing.smb), listing.at_node)
        };
        let (nfs, smb, at_node) = at(&served("10.0.0.11:2049", &[]));
        assert_eq!(
            (nfs, smb),
            (
                vec!["10.0.0.11:2049".to_owned()],
                vec!["10.0.0.11:445".to_owned()]
            )
        );
        assert!(at_node);
        let (nfs, smb, at_node) = at(&served("0.0.0.0:2049", &["10.0.0.50", "10.0.0.51"]));
        assert_eq!(nfs, ["10.0.0.50:2049", "10.0.0.51:2049"]);
        assert_eq!(smb, ["10.0.0.50:445", "10.0.0.51:445"]);
        assert!(!at_node);
        assert!(!at(&served("10.0.0.50:2049", &[])).2);
        let mut many = served("10.0.0.50:2049", &[]);
        many.bound();
        assert_eq!((many.volumes.len(), many.left_out), (LISTED_VOLUMES_MAX, 3));
    }

    #[test]
    fn lists_follow_owners_and_outlive_restored_tables() {
        let mut directory = Directory::default();
        let entry = |epoch, port: u16| {
            let nfs = SocketAddr::from(([10, 0, 0, 1], port));
            let listing = Listing {
                nfs: vec![nfs],
                at_node: true,
                ..Listing::default()
            };
            Entry::new(epoch, listing).unwrap().0
        };
        assert!(directory.take("a", entry(2, 1)));
        assert!(!directory.take("a", entry(2, 1)));
        assert!(!directory.take("a", entry(1, 5)), "of an older owner");
        assert!(directory.take("a", entry(2, 3)));
        let nodes = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let file = directory.file(&nodes);
        assert_eq!(file.servers[0].others, ["10.0.0.2:3".parse().unwrap()]);
        directory.forget(Duration::from_secs(1), |_| false);
        directory.forget(FORGET_LISTING, |_| false);
        assert_eq!(directory.entries.len(), 1);
        directory.forget(FORGET_LISTING, |_| true);
        directory.forget(FORGET_LISTING * 2, |_| false);
        assert_eq!(directory.entries.len(), 1, "its time begins anew");
        directory.forget(FORGET_LISTING * 3, |_| false);
        assert_eq!(directory.entries.len(), 0);
    }
}

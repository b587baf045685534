//! The directory of a cluster: the volumes of other servers' aggregates, and where they are served.
//!
//! Clients may use any server's address. Of a volume that another server has, NFSv4 and SMB tell a
//! client the owner's address, and calls of NFSv3 are forwarded to it. Exports and shares of this
//! server have precedence over those of others; of others, the first aggregate by name.
//!
//! The directory is immutable and is replaced as a whole, as the table of exports is.

use crate::handle::{AGGREGATE_BYTES, HANDLE_BYTES, HandleKey};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::VolumeId;

/// Server that owns an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name of the aggregate in the cluster.
    pub aggregate: String,
    /// Identity of the aggregate.
    pub identity: [u8; 16],
    /// Addresses at which it serves NFS.
    pub nfs: Vec<SocketAddr>,
    /// Addresses at which it serves SMB.
    pub smb: Vec<SocketAddr>,
    /// Further addresses at which NFS may be served after a takeover that is not known yet.
    pub others: Vec<SocketAddr>,
    /// Addresses at which it sends and receives volumes that move.
    pub transfers: Vec<SocketAddr>,
    /// Fingerprint of the certificate that it shows there.
    pub fingerprint: String,
}

/// Volume of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteVolume {
    /// Paths that clients of NFS mount.
    pub paths: Vec<String>,
    /// Name of the share.
    pub share: Option<String>,
    /// The constituent that it is: identity of the large volume, and number.
    pub constituent: Option<(u64, u8)>,
    /// The aggregate, by the first bytes of its identity, and the number under which its handles
    /// are made, if it came from there.
    pub origin: Option<([u8; AGGREGATE_BYTES], VolumeId)>,
}

/// This server's part in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// Identity of its aggregate.
    pub own: [u8; 16],
    /// The secret by which servers of the cluster know each other.
    pub secret: [u8; 16],
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Directory {
    generation: u64,
    membership: Option<Membership>,
    remotes: Vec<Arc<Remote>>,
    by_path: BTreeMap<String, Arc<Remote>>,
    by_share: HashMap<String, (String, Arc<Remote>)>,
    by_constituent: HashMap<(u64, u8), Arc<Remote>>,
    /// Volumes that are not in the aggregate that their handles name.
    moved: HashMap<([u8; AGGREGATE_BYTES], VolumeId), Arc<Remote>>,
}

impl Directory {
    /// Creates a directory of servers and their volumes. Without a membership no call is forwarded.
    pub fn new(
        membership: Option<Membership>,
        servers: Vec<(Remote, Vec<RemoteVolume>)>,
    ) -> Directory {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut directory = Directory {
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            membership,
            ..Directory::default()
        };
        let mut servers = servers;
        servers.sort_by(|(a, _), (b, _)| a.aggregate.cmp(&b.aggregate));
        for (remote, volumes) in servers {
            let remote = Arc::new(remote);
            directory.remotes.push(Arc::clone(&remote));
            for volume in volumes {
                for path in volume.paths {
                    let path = path.trim_end_matches('/').to_owned();
                    let server = || Arc::clone(&remote);
                    directory.by_path.entry(path).or_insert_with(server);
                }
                if let Some(constituent) = volume.constituent {
                    let server = Arc::clone(&remote);
                    directory.by_constituent.insert(constituent, server);
                }
                if let Some(origin) = volume.origin {
                    directory.moved.insert(origin, Arc::clone(&remote));
                }
                if let Some(share) = volume.share {
                    let server = Arc::clone(&remote);
                    let lower = share.to_lowercase();
                    directory.by_share.entry(lower).or_insert((share, server));
                }
            }
        }
        directory
    }

    /// Returns a number that distinguishes this directory from every other; 0 without a cluster.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns this server's part in the cluster, once it is known.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// Returns true if other servers have shares.
    pub fn has_shares(&self) -> bool {
        !self.by_share.is_empty()
    }

    /// Returns the paths of other servers' volumes, in their order.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &Arc<Remote>)> {
        self.by_path.iter().map(|(path, remote)| (&**path, remote))
    }

    /// Returns the server of the volume that `path` is, or is below. The longest path wins.
    pub fn of_path(&self, path: &str) -> Option<&Arc<Remote>> {
        let mut path = path.trim_end_matches('/');
        loop {
            if let Some(remote) = self.by_path.get(path) {
                return Some(remote);
            }
            path = path.get(..path.rfind('/')?)?;
        }
    }

    /// Returns the share of a name, in any case: its name as it is written, and its server.
    pub fn of_share(&self, name: &str) -> Option<(&str, &Arc<Remote>)> {
        let (name, remote) = self.by_share.get(&name.to_lowercase())?;
        Some((name, remote))
    }

    /// Returns the server of an aggregate as it is known now.
    pub fn of_aggregate(&self, identity: &[u8; 16]) -> Option<&Arc<Remote>> {
        let mut remotes = self.remotes.iter();
        remotes.find(|remote| remote.identity == *identity)
    }

    /// Returns the server of a constituent of a large volume.
    pub fn of_constituent(&self, large: u64, constituent: u8) -> Option<&Arc<Remote>> {
        self.by_constituent.get(&(large, constituent))
    }

    /// Returns the servers, in the order of their aggregates' names.
    pub fn servers(&self) -> &[Arc<Remote>] {
        &self.remotes
    }

    /// Returns the server that has the volume of the aggregate and number that `handle` names, if
    /// it has moved there.
    pub(crate) fn of_moved(&self, handle: &[u8]) -> Option<&Arc<Remote>> {
        if self.moved.is_empty() {
            return None;
        }
        self.moved.get(&HandleKey::parts_of(handle)?)
    }

    /// Returns true if another server lists the volume with this origin.
    pub fn has_moved(&self, origin: [u8; 16], volume: VolumeId) -> bool {
        let [a, b, c, ..] = origin;
        self.moved.contains_key(&([a, b, c], volume))
    }

    /// Returns the server of the aggregate that `handle` names. Aggregates whose identities begin
    /// alike differ in the hash, so a handle of this server's own is to be ruled out.
    pub(crate) fn of_handle(&self, handle: &[u8]) -> Option<&Arc<Remote>> {
        if self.remotes.is_empty() || handle.len() != HANDLE_BYTES {
            return None;
        }
        let aggregate = HandleKey::aggregate_of(handle)?;
        let mut remotes = self.remotes.iter();
        remotes.find(|remote| remote.identity.starts_with(&aggregate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{FileId, Namespace};
    use weir_base::{Ino, VolumeId};

    fn remote(name: &str, identity: u8) -> Remote {
        Remote {
            aggregate: name.to_owned(),
            identity: [identity; 16],
            nfs: vec!["10.0.0.1:2049".parse().unwrap()],
            smb: Vec::new(),
            others: Vec::new(),
            transfers: Vec::new(),
            fingerprint: String::new(),
        }
    }

    fn volume(path: &str, share: &str) -> RemoteVolume {
        RemoteVolume {
            paths: vec![path.to_owned()],
            share: Some(share.to_owned()),
            constituent: None,
            origin: None,
        }
    }

    #[test]
    fn paths_shares_and_handles_lead_to_servers() {
        let directory = Directory::new(
            None,
            vec![
                (remote("b", 2), vec![volume("/vol1", "Vol1")]),
                (
                    remote("a", 1),
                    vec![volume("/vol1", "vol1"), volume("/vol1/x", "X")],
                ),
            ],
        );
        let name = |remote: Option<&Arc<Remote>>| remote.map(|r| r.aggregate.clone());
        assert_eq!(name(directory.of_path("/vol1/")).as_deref(), Some("a"));
        assert_eq!(name(directory.of_path("/vol1/x/y")).as_deref(), Some("a"));
        assert_eq!(directory.of_path("/vol"), None);
        assert_eq!(directory.of_path("/"), None);
        let (share, server) = directory.of_share("VOL1").unwrap();
        assert_eq!((share, &*server.aggregate), ("vol1", "a"));
        let file = FileId {
            volume: VolumeId(1),
            ino: Ino(1),
            namespace: Namespace::Live,
        };
        let other = HandleKey::new([8; 16], [2; 16]);
        let far = HandleKey::new([9; 16], [1; 16]);
        let of = |handle: [u8; 32]| name(directory.of_handle(&handle));
        assert_eq!(of(other.encode(file)).as_deref(), Some("b"));
        assert_eq!(of(far.encode(file)).as_deref(), Some("a"));
        assert_eq!(
            of(HandleKey::new([9; 16], [3; 16]).encode(file)),
            None,
            "an aggregate that is in no cluster"
        );
        assert_eq!(directory.of_handle(b"short"), None);
    }

    #[test]
    fn handles_of_a_volume_that_moved_lead_to_where_it_is() {
        let key = HandleKey::new([8; 16], [2; 16]);
        let (own, moved) = ([3; 16], |number| FileId {
            volume: VolumeId(number),
            ino: Ino(1),
            namespace: Namespace::Live,
        });
        let mut there = volume("/vol1", "Vol1");
        there.origin = Some(([2; AGGREGATE_BYTES], VolumeId(5)));
        let servers = vec![(remote("b", 2), vec![]), (remote("a", 1), vec![there])];
        let vfs = crate::Vfs::new(HandleKey::new([7; 16], own));
        vfs.publish_directory(Directory::new(None, servers));
        let server = |number| {
            let found = vfs.remote_of(&key.encode(moved(number))).unwrap();
            (found.server.aggregate.clone(), found.left)
        };
        assert_eq!(server(5), ("a".to_owned(), false));
        assert_eq!(server(6), ("b".to_owned(), false));
        assert!(vfs.directory().has_moved([2; 16], VolumeId(5)));
        let here = vfs.handle_of(moved(5));
        assert!(vfs.remote_of(&here).is_none(), "its own");
        vfs.relocations
            .depart(VolumeId(5), [1; 16], vec!["/x".to_owned()]);
        let found = vfs.remote_of(&here).unwrap();
        assert!(found.left && found.server.aggregate == "a");
        let path = vfs.departed_path("/x/y").unwrap();
        assert_eq!(path.aggregate, "a");
    }
}

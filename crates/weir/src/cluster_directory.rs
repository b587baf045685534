//! The directory of the cluster at a server: its own volumes for the daemon of its node, and those
//! of all servers from the file that the daemon writes.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context as _, Result};
use weir_base::{Rng as _, SystemRng, VolumeId, hex};
use weir_cluster::directory::{Exports, FILE, ListedVolume, OwnerListing, ServersFile, Transfers};
use weir_vfs::Vfs;
use weir_vfs::directory::{Directory, Membership, Remote, RemoteVolume};

use crate::shared_limits::SharedLimits;

/// Places at which a server listens.
pub struct Places {
    /// NFS.
    pub nfs: SocketAddr,
    /// SMB.
    pub smb: Option<SocketAddr>,
    /// The addresses that move with the aggregate.
    pub addresses: Vec<IpAddr>,
    /// Place at which volumes that move are sent and received.
    pub transfers: Option<Transfers>,
}

/// Volumes of this server, as its daemon asks for them.
pub struct Exporter {
    vfs: Weak<Vfs>,
    /// Number of this start, so that no list of another one has the same token.
    start: u64,
    served: OwnerListing,
    /// The limits that this server shares with others.
    pub limits: Arc<SharedLimits>,
}

impl Exporter {
    /// Describes the volumes of `vfs`, and where they are served.
    pub fn new(
        vfs: &Arc<Vfs>,
        identity: [u8; 16],
        places: Places,
        limits: Arc<SharedLimits>,
    ) -> Exporter {
        Exporter {
            limits,
            vfs: Arc::downgrade(vfs),
            start: SystemRng.next_u64(),
            served: OwnerListing {
                identity: hexadecimal(identity),
                nfs: places.nfs,
                smb: places.smb,
                addresses: places.addresses,
                transfers: places.transfers,
                volumes: Vec::new(),
                left_out: 0,
            },
        }
    }

    /// Returns the volumes, or nothing but `token` if that is the name of their current state.
    pub fn exports(&self, token: &str) -> Exports {
        let Some(vfs) = self.vfs.upgrade() else {
            return Exports::default();
        };
        let table = vfs.exports();
        let now = format!("{:x}-{}", self.start, table.generation());
        if now == token {
            return Exports {
                token: now,
                served: None,
            };
        }
        let mut served = self.served.clone();
        let volumes = table.iter().map(|export| ListedVolume {
            paths: export.paths().map(str::to_owned).collect(),
            share: export.share.as_ref().map(|share| share.name.clone()),
            constituent: export.constituent.as_ref().map(|member| {
                let membership = member.membership();
                (membership.large, membership.own.0)
            }),
            origin: { vfs.relocations.origin(export.volume()) }
                .map(|(aggregate, number)| (hex::encode(&aggregate), number.0)),
        });
        served.volumes = volumes.collect();
        served.volumes.sort_by(|a, b| a.paths.cmp(&b.paths));
        served.bound();
        Exports {
            token: now,
            served: Some(served),
        }
    }
}

fn hexadecimal(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

fn sixteen_bytes(text: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| number.to_be_bytes())
}

/// Publishes the directory in a data folder whenever the daemon has replaced it, and ends shares of
/// limits with their leases.
pub struct Follower {
    path: PathBuf,
    own: [u8; 16],
    vfs: Arc<Vfs>,
    /// Inode and time of change of the file that was read last.
    seen: Option<(u64, i64, i64)>,
    limits: Arc<SharedLimits>,
}

impl Follower {
    /// Begins with the directory that is there.
    pub fn begin(data: &Path, own: [u8; 16], vfs: Arc<Vfs>, limits: Arc<SharedLimits>) -> Follower {
        let mut follower = Follower {
            path: data.join(FILE),
            own,
            vfs,
            seen: None,
            limits,
        };
        follower.poll();
        follower
    }

    /// Reads the directory if it was replaced. One that cannot be read leaves the one before in
    /// force.
    pub fn poll(&mut self) {
        self.limits.poll();
        let Ok(found) = fs::metadata(&self.path) else {
            return;
        };
        let seen = (found.ino(), found.mtime(), found.mtime_nsec());
        if self.seen == Some(seen) {
            return;
        }
        self.seen = Some(seen);
        match self.read() {
            Ok(directory) => self.vfs.publish_directory(directory),
            Err(error) => tracing::error!("cannot read the directory of the cluster: {error:#}"),
        }
    }

    fn read(&self) -> Result<Directory> {
        let text = fs::read(&self.path).with_context(|| self.path.display().to_string())?;
        let file: ServersFile = serde_json::from_slice(&text)?;
        directory(file, self.own).context("cannot use its secret: it is no number of 128 bits")
    }
}

/// Returns the directory of the other servers of a file.
fn directory(file: ServersFile, own: [u8; 16]) -> Option<Directory> {
    // The daemon has not reached the tables yet: nothing can be forwarded, and all else can be.
    let membership = match file.secret.as_str() {
        "" => None,
        text => Some(Membership {
            own,
            secret: sixteen_bytes(text)?,
        }),
    };
    let servers = file.servers.into_iter().filter_map(|server| {
        let identity = sixteen_bytes(&server.identity).filter(|identity| *identity != own)?;
        let remote = Remote {
            aggregate: server.aggregate,
            identity,
            nfs: server.nfs,
            smb: server.smb,
            others: server.others,
            transfers: server
                .transfers
                .iter()
                .map(|transfers| transfers.at)
                .collect(),
            fingerprint: { server.transfers }
                .map_or_else(String::new, |transfers| transfers.fingerprint),
        };
        let volume = |one: ListedVolume| RemoteVolume {
            paths: one.paths,
            share: one.share,
            constituent: one.constituent,
            origin: one.origin.and_then(|(aggregate, number)| {
                let aggregate = u32::from_str_radix(&aggregate, 16).ok()?;
                let [_, first @ ..] = aggregate.to_be_bytes();
                Some((first, VolumeId(number)))
            }),
        };
        Some((remote, server.volumes.into_iter().map(volume).collect()))
    });
    Some(Directory::new(membership, servers.collect()))
}

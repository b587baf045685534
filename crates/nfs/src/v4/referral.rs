//! Referrals (RFC 8881 §11.3, §11.9): paths that lead to file systems of other servers.
//!
//! In the pseudo file system such a path is a file system of its own that is *absent*: it has a
//! name, and nothing else. A client may look the name up. Every operation on it fails with
//! NFS4ERR_MOVED, so no client ever gets a handle of it. A client can ask for the locations of the
//! file system (`fs_locations`), and for the few attributes that distinguish file systems.

use crate::rpc::xdr::Put;
use std::net::SocketAddr;
use weir_base::limits::protocol::MAX_LOCATIONS;
use weir_vfs::directory::Directory;

/// Port of NFS, which clients use for a location without one.
const PORT: u16 = 2049;
/// Bytes of `fls_info` (RFC 8881 §11.17.1), by their indices.
const INFO: [u8; 12] = [
    // FSLI4GF_WRITABLE.
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// A path of this server that refers clients to other servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// The path, such as `/projects/b`.
    pub path: String,
    /// Locations of the file system; each has all of it.
    pub locations: Vec<Location>,
}

/// A location of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The server: a name, an address, or an address with a port as a universal address (RFC 5665
    /// §5.2.3.3).
    pub server: String,
    /// The path there.
    pub path: String,
}

impl Location {
    /// Returns the location of a path at an address. An address with another port than NFS's own is
    /// a universal address.
    pub fn from_address(address: SocketAddr, path: &str) -> Location {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        Location {
            server: match port {
                PORT => ip.to_string(),
                port => format!("{ip}.{}.{}", port >> 8, port & 0xff),
            },
            path: path.to_owned(),
        }
    }
}

/// Returns the referrals to the other servers of a cluster.
pub(super) fn of_directory(directory: &Directory) -> impl Iterator<Item = Referral> {
    let served = directory
        .paths()
        .filter(|(path, remote)| !path.is_empty() && !remote.nfs.is_empty());
    served.map(|(path, remote)| {
        let places = remote.nfs.iter().take(MAX_LOCATIONS);
        Referral {
            path: path.to_owned(),
            locations: places.map(|at| Location::from_address(*at, path)).collect(),
        }
    })
}

impl Referral {
    /// Appends `fs_locations4` (RFC 8881 §11.16).
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_path(out, &self.path);
        out.put_u32(self.locations.len() as u32);
        for location in &self.locations {
            out.put_u32(1);
            out.put_opaque(location.server.as_bytes());
            put_path(out, &location.path);
        }
    }

    /// Appends `fs_locations_info4` (RFC 8881 §11.17): each location as it is now, for clients to
    /// read and write, and none to be preferred.
    pub(super) fn put_info(&self, out: &mut Vec<u8>) {
        out.put_u32(0);
        // Seconds for which clients may rely on it: the location is that of now.
        out.put_u32(0);
        put_path(out, &self.path);
        out.put_u32(self.locations.len() as u32);
        for location in &self.locations {
            out.put_u32(1);
            // Its content is current.
            out.put_u32(0);
            out.put_opaque(&INFO);
            out.put_opaque(location.server.as_bytes());
            put_path(out, &location.path);
        }
    }
}

/// Returns the names in a path.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

fn put_path(out: &mut Vec<u8>, path: &str) {
    out.put_u32(names(path).count() as u32);
    names(path).for_each(|name| out.put_opaque(name.as_bytes()));
}

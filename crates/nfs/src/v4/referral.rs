//! Referrals (RFC 8881 §11.3, §11.9): paths that lead to file systems of other servers.
//!
//! In the pseudo file system such a path is a file system of its own that is *absent*: it has a
//! name, and nothing else. A client may look the name up. Every operation on it fails with
//! NFS4ERR_MOVED, so no client ever gets a handle of it. A client can ask for the locations of the
//! file system (`fs_locations`), and for the few attributes that distinguish file systems.

use crate::rpc::xdr::Put;

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
}

/// Returns the names in a path.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

fn put_path(out: &mut Vec<u8>, path: &str) {
    out.put_u32(names(path).count() as u32);
    names(path).for_each(|name| out.put_opaque(name.as_bytes()));
}

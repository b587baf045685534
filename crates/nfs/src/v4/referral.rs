//! Referrals (RFC 8881 §11.3, §11.9): paths below which another server's file system is.
//!
//! In the pseudo file system such a path is a file system of its own that is *absent*: it has a name, and nothing else. An
//! operation that names it goes there; whatever is then done there fails with NFS4ERR_MOVED, so that no client ever gets a handle of it.
//! What a client can ask is where the file system is (`fs_locations`), and with that the few attributes that tell one file system from another.

use crate::rpc::xdr::Put;

/// A path of this server that refers its clients to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// The path, such as `/projects/b`.
    pub path: String,
    /// Where the file system is; each place has all of it.
    pub locations: Vec<Location>,
}

/// A place of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The server: a name, an address, or with a port a universal address (RFC 5665 §5.2.3.3).
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

/// The names in a path.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

fn put_path(out: &mut Vec<u8>, path: &str) {
    out.put_u32(names(path).count() as u32);
    names(path).for_each(|name| out.put_opaque(name.as_bytes()));
}

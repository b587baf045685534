//! The pseudo file system (RFC 8881 §7): directories from the root to the exports, along their
//! paths.
//!
//! A client sees the exports that admit it over NFSv4, and the directories above them. The tree is
//! made once for each table of exports and shared; the visible part is determined at each request.
//! Directories are identified by a hash of their path, so handles to them survive restarts and
//! changes of other paths. They are handles of a volume that does not exist.
//!
//! An export below another export's path is not reachable through that export: a LOOKUP within a
//! volume finds only objects of the volume.
//!
//! An address of the server that is dedicated to a single export has a root of its own, which leads
//! to that export only.
//!
//! A referral ([`super::referral`]) is an empty directory that every client sees. A path of an
//! export, or above one, cannot be a referral.

use super::referral::{self, Referral};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Ino, Time, VolumeId};
use weir_vfs::volume::{Attr, FileKind, Guard};
use weir_vfs::{ExportTable, FileId, Namespace, Protocol, Scope, Verdict, Vfs};

/// The volume in handles of the pseudo file system. No volume has its number.
pub const VOLUME: VolumeId = VolumeId(u64::MAX);
/// File system identifier of the pseudo file system.
pub const FSID: u64 = u64::MAX;
/// Number of the root directory.
const ROOT: u64 = 1;
/// Number of the root directory at an address that is for a single export, while no export has it.
const EMPTY_ROOT: u64 = 2;

/// A directory on the path to an export or a referral.
#[derive(Default)]
pub struct Node {
    /// Number of the directory above; the root's own for the root.
    pub parent: u64,
    /// Directories below, by name.
    pub children: BTreeMap<Box<[u8]>, u64>,
    /// The volume of the export with this path.
    pub export: Option<VolumeId>,
    /// The other servers to use in its place.
    referral: Option<Arc<Referral>>,
}

/// The tree of one table of exports.
pub struct Pseudo {
    nodes: HashMap<u64, Node>,
    /// Change attribute of all directories: the time at which the tree was made.
    change: u64,
}

/// Returns the number of a path, for clients of an address with a root of its own or of the others.
/// It is 62 bits of FNV-1a, with the next bit set, so that it is neither 0 nor the root's. Paths
/// come from administrators.
fn number(own: Option<IpAddr>, path: &str) -> u64 {
    // A path begins with a slash, so it differs from an address followed by a path.
    let address = own.map_or_else(String::new, |own| own.to_string());
    let bytes = address.bytes().chain(path.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 2 | 1 << 62
}

/// Returns the number of the root for clients of an address with a root of its own, or of the
/// others.
fn root_number(own: Option<IpAddr>) -> u64 {
    own.map_or(ROOT, |_| number(own, ""))
}

/// Adds a root directory.
fn plant(nodes: &mut HashMap<u64, Node>, root: u64) {
    let node = Node {
        parent: root,
        ..Node::default()
    };
    nodes.insert(root, node);
}

impl Pseudo {
    /// Makes the tree of `table` and of `referrals`.
    pub fn new(table: &ExportTable, referrals: &[Arc<Referral>], change: u64) -> Pseudo {
        let mut nodes = HashMap::new();
        for root in [ROOT, EMPTY_ROOT] {
            plant(&mut nodes, root);
        }
        for export in table.iter() {
            for path in export.paths() {
                if let Some(node) = lead(&mut nodes, None, path) {
                    node.export = Some(export.volume());
                }
            }
        }
        for (address, export) in table.homes() {
            plant(&mut nodes, root_number(Some(address)));
            let home = export.home.as_ref().map_or("", |(_, path)| path);
            if let Some(node) = lead(&mut nodes, Some(address), home) {
                node.export = Some(export.volume());
            }
        }
        for referral in referrals {
            if let Some(node) = lead(&mut nodes, None, &referral.path)
                && node.export.is_none()
                && node.referral.is_none()
                && node.children.is_empty()
            {
                node.referral = Some(Arc::clone(referral));
            }
        }
        Pseudo { nodes, change }
    }

    /// Returns the other servers to use in place of a directory.
    pub fn referral(&self, number: u64) -> Option<&Arc<Referral>> {
        self.nodes.get(&number)?.referral.as_ref()
    }

    /// Returns the directory with this number, if there is one.
    pub fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number)
    }

    /// Returns the root directory for clients of the server's address `local`.
    pub fn root(&self, table: &ExportTable, local: IpAddr) -> u64 {
        match table.scope(local) {
            Scope::All => ROOT,
            Scope::Own(None) => EMPTY_ROOT,
            Scope::Own(Some(_)) => root_number(Some(local.to_canonical())),
        }
    }

    /// Returns the directory that an export covers, by the export's first path, or by its path at
    /// the address `local`.
    pub fn covered(&self, table: &ExportTable, local: IpAddr, volume: VolumeId) -> Option<u64> {
        let export = table.of_volume(volume)?;
        let own = match table.scope(local) {
            Scope::Own(Some((own, path))) if own.volume() == volume => Some(path),
            _ => None,
        };
        let number = match own {
            Some(path) => number(Some(local.to_canonical()), path.trim_end_matches('/')),
            None => number(None, export.path.trim_end_matches('/')),
        };
        self.nodes.contains_key(&number).then_some(number)
    }

    /// Returns true if the client may see a directory. A client whose name is not known yet sees
    /// the export; the export itself refuses it.
    pub fn visible(&self, vfs: &Vfs, table: &ExportTable, client: IpAddr, number: u64) -> bool {
        let Some(node) = self.nodes.get(&number) else {
            return false;
        };
        let own = node.export.and_then(|volume| table.of_volume(volume));
        let admitted = own.is_some_and(|export| {
            !matches!(
                vfs.verdict(export, client, Protocol::Nfsv4),
                Verdict::Denied
            )
        });
        let mut below = node.children.values();
        admitted
            || node.parent == number
            || node.referral.is_some()
            || below.any(|n| self.visible(vfs, table, client, *n))
    }

    /// Returns the attributes of a directory.
    pub fn attr(&self, number: u64) -> Attr {
        let links = self.nodes.get(&number).map_or(0, |n| n.children.len());
        Attr {
            kind: FileKind::Directory,
            mode: 0o555,
            nlink: 2 + u32::try_from(links).unwrap_or(u32::MAX - 2),
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            rdev: (0, 0),
            fsid: FSID,
            tree: 0,
            constituent: 0,
            ino: Ino(number),
            atime: Time::EPOCH,
            mtime: Time::EPOCH,
            ctime: Time::EPOCH,
            btime: Time::EPOCH,
            dos: 0,
            change: self.change,
            guard: Guard::Mode,
        }
    }
}

/// Adds the directory with this path below the root of `own`, and those above it, and returns it;
/// `None` for the root.
fn lead<'n>(
    nodes: &'n mut HashMap<u64, Node>,
    own: Option<IpAddr>,
    path: &str,
) -> Option<&'n mut Node> {
    let root = root_number(own);
    let mut at = root;
    let mut so_far = String::new();
    for name in referral::names(path) {
        so_far.push('/');
        so_far.push_str(name);
        let next = number(own, &so_far);
        let above: &mut Node = nodes.entry(at).or_default();
        above.children.insert(name.as_bytes().into(), next);
        nodes.entry(next).or_default().parent = at;
        at = next;
    }
    nodes.get_mut(&at).filter(|_| at != root)
}

/// Returns the file id of a directory of the pseudo file system, for its handle.
pub fn file(number: u64) -> FileId {
    FileId {
        volume: VOLUME,
        ino: Ino(number),
        namespace: Namespace::Live,
    }
}

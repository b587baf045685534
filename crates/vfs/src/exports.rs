//! Export policy: which client may use which volume, how, and as whom.
//!
//! The table is immutable and is replaced as a whole, so the data path reads it
//! without a lock. Rules are looked at in order and the first that matches a
//! client decides, as administrators expect of access lists; a client that no
//! rule matches does not see the export.

use crate::Volume;
use crate::identity::Creds;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::VolumeId;

/// `nobody`: the identity of squashed and anonymous callers unless an export
/// says otherwise.
pub const NOBODY: u32 = 65_534;

/// Which callers lose their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None: root is root.
    None,
    /// Callers with user id 0 or group id 0 lose those ids.
    Root,
    /// All callers are anonymous.
    All,
}

/// A set of client addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Everyone.
    Any,
    /// The addresses whose first `prefix` bits are those of `address`.
    Net {
        /// Any address of the network.
        address: IpAddr,
        /// Bits that must agree.
        prefix: u8,
    },
}

impl Clients {
    /// Whether `client` is one of them. An IPv4 address mapped into IPv6 is the
    /// IPv4 address.
    pub fn contains(&self, client: IpAddr) -> bool {
        let Clients::Net { address, prefix } = *self else {
            return true;
        };
        match (address.to_canonical(), client.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.leading_zeros() >= u32::from(prefix.min(32))
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.leading_zeros() >= u32::from(prefix.min(128))
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Clients::Any => f.write_str("*"),
            Clients::Net { address, prefix } => write!(f, "{address}/{prefix}"),
        }
    }
}

/// What one set of clients may do with an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The clients.
    pub clients: Clients,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whose identity is taken away.
    pub squash: Squash,
    /// User id of anonymous callers.
    pub anon_uid: u32,
    /// Group id of anonymous callers.
    pub anon_gid: u32,
}

impl Rule {
    /// Everyone, read and write, with `squash`.
    pub fn open(squash: Squash) -> Rule {
        Rule {
            clients: Clients::Any,
            read_only: false,
            squash,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
        }
    }

    /// The identity that the caller acts under; `None` is a caller that gave
    /// no identity.
    pub fn identity(&self, caller: Option<Creds>) -> Creds {
        let anonymous = || Creds {
            uid: self.anon_uid,
            gid: self.anon_gid,
            gids: Default::default(),
        };
        let Some(mut c) = caller else {
            return anonymous();
        };
        match self.squash {
            Squash::None => {}
            Squash::All => return anonymous(),
            Squash::Root => {
                if c.uid == 0 {
                    return anonymous();
                }
                if c.gid == 0 {
                    c.gid = self.anon_gid;
                }
                for gid in c.gids.iter_mut().filter(|g| **g == 0) {
                    *gid = self.anon_gid;
                }
            }
        }
        c
    }
}

/// A volume under a path.
pub struct Export {
    /// Absolute path that clients mount, such as `/vol1`.
    pub path: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Who may use it; the first match decides.
    pub rules: Vec<Rule>,
}

impl Export {
    /// The rule for `client`, or `None` if it may not use the export.
    pub fn rule(&self, client: IpAddr) -> Option<&Rule> {
        self.rules.iter().find(|r| r.clients.contains(client))
    }
}

/// All exports.
#[derive(Default)]
pub struct ExportTable {
    /// Sorted by volume id.
    exports: Vec<Export>,
}

impl ExportTable {
    /// A table of `exports`; a volume has one export.
    pub fn new(mut exports: Vec<Export>) -> ExportTable {
        exports.sort_by_key(|e| e.volume.id());
        exports.dedup_by_key(|e| e.volume.id());
        ExportTable { exports }
    }

    /// The export of a volume.
    pub fn of_volume(&self, id: VolumeId) -> Option<&Export> {
        let at = self
            .exports
            .binary_search_by_key(&id, |e| e.volume.id())
            .ok()?;
        self.exports.get(at)
    }

    /// The export that `path` is, or is below; with the rest of the path.
    pub fn of_path<'p>(&self, path: &'p str) -> Option<(&Export, &'p str)> {
        let path = path.trim_end_matches('/');
        self.exports.iter().find_map(|e| {
            let rest = path.strip_prefix(e.path.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then_some((e, rest))
        })
    }

    /// All exports.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(s: &str, prefix: u8) -> Clients {
        Clients::Net {
            address: s.parse().unwrap(),
            prefix,
        }
    }

    #[test]
    fn clients_match_by_prefix() {
        let at = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(Clients::Any.contains(at("::1")));
        assert!(net("10.1.2.3", 8).contains(at("10.200.0.1")));
        assert!(net("10.1.2.3", 8).contains(at("::ffff:10.200.0.1")));
        assert!(!net("10.1.2.3", 8).contains(at("11.1.2.3")));
        assert!(net("10.1.2.3", 32).contains(at("10.1.2.3")));
        assert!(!net("10.1.2.3", 32).contains(at("10.1.2.2")));
        assert!(net("10.1.2.3", 0).contains(at("1.1.1.1")));
        assert!(!net("10.1.2.3", 0).contains(at("fe80::1")));
        assert!(net("fd00::", 8).contains(at("fdff::1")));
        assert!(!net("fd00::", 8).contains(at("fe80::1")));
    }

    #[test]
    fn squashing_takes_identities_away() {
        let caller = |uid, gid, gids: &[u32]| Creds {
            uid,
            gid,
            gids: gids.into(),
        };
        let as_is = caller(0, 0, &[0, 5]);
        assert_eq!(
            Rule::open(Squash::None).identity(Some(as_is.clone())),
            as_is
        );
        let nobody = caller(NOBODY, NOBODY, &[]);
        assert_eq!(Rule::open(Squash::Root).identity(Some(as_is)), nobody);
        assert_eq!(
            Rule::open(Squash::Root).identity(Some(caller(7, 0, &[0, 5]))),
            caller(7, NOBODY, &[NOBODY, 5])
        );
        assert_eq!(
            Rule::open(Squash::All).identity(Some(caller(7, 7, &[]))),
            nobody
        );
        assert_eq!(Rule::open(Squash::None).identity(None), nobody);
    }
}

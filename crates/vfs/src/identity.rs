//! The identity of a caller, seen from both sides, as a POSIX user and as a Windows one.

use smallvec::SmallVec;
use std::sync::Arc;

/// Groups up to which membership is a search through all of them: as many as AUTH_SYS carries.
const FEW: usize = weir_base::limits::MAX_GROUPS;

/// Supplementary groups, any number of them. More than [`FEW`] are kept sorted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Groups(SmallVec<[u32; FEW]>);

impl Groups {
    /// Returns all of them.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Returns true if `gid` is one of them.
    pub fn contains(&self, gid: u32) -> bool {
        match self.0.len() {
            0..=FEW => self.0.contains(&gid),
            _ => self.0.binary_search(&gid).is_ok(),
        }
    }

    /// Returns these groups with `to` in place of `from`.
    fn replaced(&self, from: u32, to: u32) -> Groups {
        let groups = self.0.iter().copied();
        groups
            .map(|gid| if gid == from { to } else { gid })
            .collect()
    }
}

impl FromIterator<u32> for Groups {
    fn from_iter<I: IntoIterator<Item = u32>>(gids: I) -> Groups {
        let mut gids: SmallVec<[u32; FEW]> = gids.into_iter().collect();
        if gids.len() > FEW {
            gids.sort_unstable();
            gids.dedup();
        }
        Groups(gids)
    }
}

impl From<&[u32]> for Groups {
    fn from(gids: &[u32]) -> Groups {
        gids.iter().copied().collect()
    }
}

/// The POSIX side of an identity: numbers, as the client sent them or as they were mapped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Creds {
    /// User id; 0 is root.
    pub uid: u32,
    /// Primary group id: that of new files, unless their directory has the set-group-ID bit.
    pub gid: u32,
    /// Supplementary group ids, for permission checks.
    pub gids: Groups,
}

impl Creds {
    /// Returns true if the identity is a member of `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(gid)
    }

    /// Returns true if permission checks do not apply.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// A Windows security identifier (MS-DTYP §2.4.2) in its binary form: revision, count, authority,
/// sub-authorities.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(SmallVec<[u8; 28]>);

impl Sid {
    /// Returns a SID from its binary form; `None` if it is not one: 8 to 68 bytes, as the count of
    /// sub-authorities says.
    pub fn from_bytes(bytes: &[u8]) -> Option<Sid> {
        const MOST: u8 = 15;
        let [1, count @ 0..=MOST, ..] = bytes else {
            return None;
        };
        (bytes.len() == 8 + 4 * usize::from(*count)).then(|| Sid(bytes.into()))
    }

    /// Returns its binary form: 8 to 68 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Numbers that stand for users and groups of Windows domains: each for one identifier, which is a
/// user's or a group's. No user of a machine has one of them.
pub const DOMAIN_NUMBERS: std::ops::Range<u32> = 1 << 30..1 << 31;

/// The Windows side of an identity, fixed when its session was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The SID of the user.
    pub user: Sid,
    /// All groups, nested ones included, sorted.
    pub groups: Box<[Sid]>,
}

/// The identity of a caller. A protocol fills in the sides that it knows; what is squashed loses
/// its Windows side.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// The POSIX side: what mode bits are checked against.
    pub unix: Creds,
    /// The Windows side; `None` where nothing maps the user to one.
    pub windows: Option<Arc<Token>>,
}

impl Identity {
    /// Returns a user known by numbers only.
    pub fn unix(uid: u32, gid: u32, gids: Groups) -> Identity {
        Identity {
            unix: Creds { uid, gid, gids },
            windows: None,
        }
    }

    /// Returns the user without group 0, in place of which `gid` stands; `None` if it is not a
    /// member of it.
    pub(crate) fn without_root_group(&self, gid: u32) -> Option<Identity> {
        let Creds {
            uid,
            gid: primary,
            gids,
        } = &self.unix;
        self.unix.in_group(0).then(|| {
            let primary = if *primary == 0 { gid } else { *primary };
            Identity::unix(*uid, primary, gids.replaced(0, gid))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AUTH_SYS carries 16; name services and Kerberos give as many as there are.
    #[test]
    fn membership_is_known_of_any_number_of_groups() {
        for count in [0u32, 1, 15, 16, 17, 1000] {
            let gids: Groups = (0..count).rev().map(|n| 2 * n + 1).collect();
            for gid in 0..2 * count + 2 {
                let expected = gid % 2 == 1 && gid < 2 * count;
                assert_eq!(gids.contains(gid), expected, "{gid} of {count}");
            }
        }
    }

    #[test]
    fn sids_are_as_long_as_they_say() {
        let domain_user = [
            1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0xf4, 1, 0, 0,
        ];
        let sid = Sid::from_bytes(&domain_user).unwrap();
        assert_eq!(sid.as_bytes(), domain_user);
        for cut in 0..domain_user.len() {
            assert_eq!(Sid::from_bytes(&domain_user[..cut]), None);
        }
        assert_eq!(Sid::from_bytes(&[2, 0, 0, 0, 0, 0, 0, 5]), None);
        assert_eq!(Sid::from_bytes(&[1, 16, 0, 0, 0, 0, 0, 5]), None);
    }
}

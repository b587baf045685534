//! Security identifiers (MS-DTYP §2.4.2).

use crate::domains::SidMap;
use crate::wire::{DecodeError, Put, Reader};
use weir_vfs::acl::Principal;
use weir_vfs::volume::Attr;
use weir_vfs::{DOMAIN_NUMBERS, Sid as Whole};

/// Someone or some, by an identifier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    pub(crate) authority: u8,
    pub(crate) subs: Vec<u32>,
}

/// An identifier: its authority, and what follows.
pub fn sid(authority: u8, subs: &[u32]) -> Sid {
    Sid {
        authority,
        subs: subs.to_vec(),
    }
}

impl Sid {
    /// A user's.
    pub fn user(uid: u32) -> Sid {
        sid(22, &[1, uid])
    }

    /// A group's.
    pub fn group(gid: u32) -> Sid {
        sid(22, &[2, gid])
    }

    /// The user that it is, if it is one.
    pub fn as_user(&self) -> Option<u32> {
        match (self.authority, &self.subs[..]) {
            (22, [1, uid]) | (5, [88, 1, uid]) => Some(*uid),
            _ => None,
        }
    }

    /// The group that it is, if it is one.
    pub fn as_group(&self) -> Option<u32> {
        match (self.authority, &self.subs[..]) {
            (22, [2, gid]) | (5, [88, 2, gid]) => Some(*gid),
            _ => None,
        }
    }

    /// The one of its domain that ends so.
    #[must_use]
    pub fn with(&self, relative: u32) -> Sid {
        let mut subs = self.subs.clone();
        subs.push(relative);
        Sid {
            authority: self.authority,
            subs,
        }
    }

    /// The domain that it is of, and what it is there (MS-DTYP §2.4.2.4).
    pub fn in_domain(&self) -> Option<(Sid, u32)> {
        match (self.authority, &self.subs[..]) {
            (5, [21, a, b, c, relative]) => Some((sid(5, &[21, *a, *b, *c]), *relative)),
            _ => None,
        }
    }

    /// Its binary form.
    pub fn whole(&self) -> Option<Whole> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        Whole::from_bytes(&bytes)
    }

    /// Returns the number of subauthorities.
    pub fn count(&self) -> u32 {
        self.subs.len() as u32
    }

    /// Returns the last subauthority: the relative identifier within its domain.
    pub fn last(&self) -> Option<u32> {
        self.subs.last().copied()
    }

    /// Writes it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put(&[1, self.subs.len() as u8, 0, 0, 0, 0, 0, self.authority]);
        self.subs.iter().for_each(|sub| out.put_u32(*sub));
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(r: &mut Reader<'_>) -> Result<Sid, DecodeError> {
        let [1, count @ 0..=15, 0, 0, 0, 0, 0, authority] = r.array()? else {
            return Err(DecodeError);
        };
        let mut subs = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            subs.push(r.u32()?);
        }
        Ok(Sid { authority, subs })
    }

    /// Returns the principal that it stands for on a file with this owner and group; `None`: no one
    /// here.
    pub fn principal(&self, attr: &Attr, known: &SidMap) -> Option<Principal> {
        if let Some(number) = known.number(self) {
            let either = DOMAIN_NUMBERS.contains(&number);
            return Some(match number {
                uid if uid == attr.uid => Principal::Owner,
                gid if gid == attr.gid && either => Principal::Group,
                gid if either => Principal::NamedGroup(gid),
                uid => Principal::User(uid),
            });
        }
        if let Some(uid) = self.as_user() {
            return Some(match uid == attr.uid {
                true => Principal::Owner,
                false => Principal::User(uid),
            });
        }
        if let Some(gid) = self.as_group() {
            return Some(match gid == attr.gid {
                true => Principal::Group,
                false => Principal::NamedGroup(gid),
            });
        }
        match (self.authority, &self.subs[..]) {
            // Everyone; authenticated users; users.
            (1, [0]) | (5, [11]) | (5, [32, 545]) => Some(Principal::Everyone),
            (3, [0]) => Some(Principal::Owner),
            (3, [1]) => Some(Principal::Group),
            _ => None,
        }
    }

    /// Returns true if it stands for the owner or group of files that are created in a directory.
    pub fn is_creator(&self) -> bool {
        self.authority == 3
    }
}

impl std::fmt::Display for Sid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "S-1-{}", self.authority)?;
        self.subs.iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

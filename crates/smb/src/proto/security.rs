//! Encoding and decoding of files' security descriptors (MS-DTYP §2.4.6): owner, group and access
//! control list.
//!
//! **One list.** Files store the access list of NFSv4 ([`weir_vfs::acl`]), whose entries and masks
//! are those of Windows. A file without a list is shown with one entry each for owner, group and
//! everyone, made from its mode. So both protocols enforce the same access, and a mode set over NFS
//! changes the list that Windows shows.
//!
//! **Identifiers.** Users and groups are numbers: S-1-22-1-uid and S-1-22-2-gid, as in Samba and
//! Linux. S-1-5-88-1 and -2 are accepted too, as clients with `idsfromsid` send them. Users and
//! groups of Active Directory domains keep their identifiers ([`weir_auth::domains`]). The file's
//! own owner and group become entries for owner and group, so that they show in the mode. All
//! authenticated users are everyone. An entry for any other identifier can apply to no user here,
//! and is left out.

use crate::proto::mask;
use crate::proto::status::Status;
use weir_auth::domains::SidMap;
use weir_auth::sid::{Sid, sid};
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_vfs::DOMAIN_NUMBERS;
use weir_vfs::acl::{Acl, Entry, MAX_ENTRIES, Principal, flags};
use weir_vfs::volume::Attr;

/// Bits of the parts of a descriptor (§2.4.7). This one is the owner.
pub const OWNER: u32 = 1;
/// The group.
pub const GROUP: u32 = 2;
/// The discretionary list.
pub const DACL: u32 = 4;
/// The system access control list, for auditing, which no file has.
pub const SACL: u32 = 8;

/// All parts that a client may set or query.
pub const ALL: u32 = OWNER | GROUP | DACL;

/// Control bits (§2.4.6).
const SELF_RELATIVE: u16 = 0x8000;
const DACL_PRESENT: u16 = 0x4;
/// Kinds of entries (§2.4.4.1).
const ALLOWED: u8 = 0;
const DENIED: u8 = 1;
/// Entries of a list that is taken; more could not be stored.
const MOST: usize = MAX_ENTRIES;

/// The access that three bits of a mode mean.
fn access(bits: u32, owner: bool) -> u32 {
    let mut out = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE | mask::READ_EA;
    if bits & 4 != 0 {
        out |= mask::READ_DATA;
    }
    if bits & 2 != 0 {
        out |= mask::WRITE_DATA
            | mask::APPEND_DATA
            | mask::WRITE_EA
            | mask::WRITE_ATTRIBUTES
            | mask::DELETE_CHILD;
    }
    if bits & 1 != 0 {
        out |= mask::EXECUTE;
    }
    if owner {
        out |= mask::WRITE_DAC | mask::WRITE_OWNER | mask::WRITE_ATTRIBUTES;
    }
    out
}

/// The entries of a file's list: whether each allows, its flags, whom it concerns, and the access.
fn entries(attr: &Attr, list: Option<&Acl>, known: &SidMap) -> Vec<(bool, u8, Sid, u32)> {
    let (owner, group) = (known.user(attr.uid), known.group(attr.gid));
    let Some(list) = list else {
        return vec![
            (true, 0, owner, access(attr.mode >> 6, true)),
            (true, 0, group, access(attr.mode >> 3, false)),
            (true, 0, sid(1, &[0]), access(attr.mode, false)),
        ];
    };
    let shown = list.0.iter().map(|entry| {
        let later = entry.flags & flags::INHERIT_ONLY != 0;
        let who = match entry.who {
            Principal::Owner if later => sid(3, &[0]),
            Principal::Group if later => sid(3, &[1]),
            Principal::Owner => owner.clone(),
            Principal::Group => group.clone(),
            Principal::Everyone => sid(1, &[0]),
            Principal::User(uid) => known.user(uid),
            Principal::NamedGroup(gid) => known.group(gid),
        };
        // The flags have the same numbers (§2.4.4.1).
        (entry.allows, entry.flags, who, entry.mask)
    });
    shown.collect()
}

/// The parts of a file's descriptor that are asked for, self-relative. `list`: its access control
/// list, if it has one; `known`: the domains.
pub fn descriptor(attr: &Attr, list: Option<&Acl>, parts: u32, known: &SidMap) -> Vec<u8> {
    let (owner, group) = (known.user(attr.uid), known.group(attr.gid));
    let has_list = parts & DACL != 0;
    let mut out = Vec::with_capacity(200);
    out.put_u8(1);
    out.put_u8(0);
    out.put_u16(SELF_RELATIVE | if has_list { DACL_PRESENT } else { 0 });
    out.put_zeroes(16);
    for (part, at, sid) in [(OWNER, 4, &owner), (GROUP, 8, &group)] {
        if parts & part != 0 {
            let here = out.len() as u32;
            out.set_u32(at, here);
            sid.put(&mut out);
        }
    }
    if has_list {
        let here = out.len();
        out.set_u32(16, here as u32);
        let entries = entries(attr, list, known);
        out.put_u16(2);
        out.put_u16(0);
        out.put_u16(entries.len() as u16);
        out.put_u16(0);
        for (allows, flags, sid, access) in entries {
            out.put_u8(if allows { ALLOWED } else { DENIED });
            out.put_u8(flags);
            out.put_u16((16 + 4 * sid.count()) as u16);
            out.put_u32(access);
            sid.put(&mut out);
        }
        let len = (out.len() - here) as u16;
        out[here + 2..here + 4].copy_from_slice(&len.to_le_bytes());
    }
    out
}

/// The descriptor that a client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorUpdate {
    owner: Option<Sid>,
    group: Option<Sid>,
    /// `Some(None)`: everyone may do everything.
    list: Option<Option<Vec<Ace>>>,
}

/// An entry of a list that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ace {
    allows: bool,
    flags: u8,
    mask: u32,
    who: Sid,
}

impl DescriptorUpdate {
    /// Reads those parts of a self-relative descriptor.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(bytes: &[u8], parts: u32) -> Result<DescriptorUpdate, Status> {
        let bad = |_: DecodeError| Status::INVALID_SECURITY_DESCR;
        let mut r = Reader::new(bytes);
        let [1, _] = r.array().map_err(bad)? else {
            return Err(Status::INVALID_SECURITY_DESCR);
        };
        let control = r.u16().map_err(bad)?;
        let mut offsets = [0; 4];
        for offset in &mut offsets {
            *offset = r.u32().map_err(bad)? as usize;
        }
        let [owner, group, _, list] = offsets;
        let someone = |part: u32, at: usize| -> Result<Option<Sid>, Status> {
            if parts & part == 0 || at == 0 {
                return Ok(None);
            }
            let rest = bytes.get(at..).ok_or(Status::INVALID_SECURITY_DESCR)?;
            Ok(Some(Sid::read(&mut Reader::new(rest)).map_err(bad)?))
        };
        Ok(DescriptorUpdate {
            owner: someone(OWNER, owner)?,
            group: someone(GROUP, group)?,
            list: match (parts & DACL, control & DACL_PRESENT, list) {
                (0, ..) => None,
                (_, 0, _) | (_, _, 0) => Some(None),
                (_, _, at) => {
                    let rest = bytes.get(at..).ok_or(Status::INVALID_SECURITY_DESCR)?;
                    Some(Some(aces(rest).map_err(bad)?))
                }
            },
        })
    }

    /// The owner that is wanted.
    ///
    /// # Errors
    /// It is no user.
    pub fn uid(&self, attr: &Attr, known: &SidMap) -> Result<Option<u32>, Status> {
        match self.owner.as_ref().map(|sid| sid.principal(attr, known)) {
            None => Ok(None),
            // A group of a domain may own a file, as a user who has its number.
            Some(Some(Principal::Group)) if DOMAIN_NUMBERS.contains(&attr.gid) => {
                Ok(Some(attr.gid))
            }
            Some(Some(Principal::NamedGroup(id))) if DOMAIN_NUMBERS.contains(&id) => Ok(Some(id)),
            Some(Some(Principal::Owner)) => Ok(Some(attr.uid)),
            Some(Some(Principal::User(uid))) => Ok(Some(uid)),
            Some(_) => Err(Status::INVALID_OWNER),
        }
    }

    /// The group that is wanted.
    ///
    /// # Errors
    /// It is none.
    pub fn gid(&self, attr: &Attr, known: &SidMap) -> Result<Option<u32>, Status> {
        match self.group.as_ref().map(|sid| sid.principal(attr, known)) {
            None => Ok(None),
            Some(Some(Principal::Owner)) if DOMAIN_NUMBERS.contains(&attr.uid) => {
                Ok(Some(attr.uid))
            }
            Some(Some(Principal::Group)) => Ok(Some(attr.gid)),
            Some(Some(Principal::NamedGroup(gid))) => Ok(Some(gid)),
            Some(_) => Err(Status::INVALID_PRIMARY_GROUP),
        }
    }

    /// The list that is wanted, of a file with these attributes.
    pub fn list(&self, attr: &Attr, directory: bool, known: &SidMap) -> Option<Acl> {
        let everyone = || Entry {
            allows: true,
            who: Principal::Everyone,
            mask: mask::ALL,
            flags: 0,
        };
        let entry = |ace: &Ace| {
            let mut flags = ace.flags & flags::ALL;
            if ace.who.is_creator() && flags & (flags::FILE | flags::DIRECTORY) != 0 {
                flags |= flags::INHERIT_ONLY;
            }
            let useless = !directory && flags & flags::INHERIT_ONLY != 0;
            let who = ace.who.principal(attr, known).filter(|_| !useless)?;
            Some(Entry {
                allows: ace.allows,
                who,
                mask: crate::proto::mask::generic(ace.mask) & mask::ALL,
                flags: if directory { flags } else { 0 },
            })
        };
        self.list.as_ref().map(|list| match list {
            None => Acl(vec![everyone()]),
            Some(aces) => Acl(aces.iter().filter_map(entry).collect()),
        })
    }
}

fn aces(bytes: &[u8]) -> Result<Vec<Ace>, DecodeError> {
    let mut r = Reader::new(bytes);
    r.u16()?;
    let size = usize::from(r.u16()?);
    let count = usize::from(r.u16()?);
    r.u16()?;
    let mut rest = bytes.get(8..size).ok_or(DecodeError)?;
    if count > MOST {
        return Err(DecodeError);
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let mut r = Reader::new(rest);
        let (kind, flags, len) = (r.u8()?, r.u8()?, usize::from(r.u16()?));
        let ace = rest.get(4..len).ok_or(DecodeError)?;
        rest = rest.get(len..).ok_or(DecodeError)?;
        if !matches!(kind, ALLOWED | DENIED) {
            // It is for auditing, or has conditions that nobody here meets.
            continue;
        }
        let mut r = Reader::new(ace);
        all.push(Ace {
            allows: kind == ALLOWED,
            flags,
            mask: r.u32()?,
            who: Sid::read(&mut r)?,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_base::{Ino, Time};
    use weir_vfs::volume::{FileKind, Guard};

    /// No domain is known.
    fn none() -> SidMap {
        SidMap::default()
    }

    fn attr(mode: u32) -> Attr {
        Attr {
            kind: FileKind::Directory,
            mode,
            nlink: 2,
            uid: 10,
            gid: 20,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 1,
            tree: 0,
            constituent: 0,
            ino: Ino(9),
            atime: Time::EPOCH,
            mtime: Time::EPOCH,
            ctime: Time::EPOCH,
            btime: Time::EPOCH,
            dos: 0,
            change: 0,
            guard: Guard::Mode,
        }
    }

    #[test]
    fn a_list_comes_back_as_it_was_shown() {
        let entry = |allows, who, mask, flags| Entry {
            allows,
            who,
            mask,
            flags,
        };
        let list = Acl(vec![
            entry(false, Principal::User(7), mask::DELETE, 0),
            entry(
                true,
                Principal::Owner,
                mask::ALL,
                flags::FILE | flags::INHERIT_ONLY,
            ),
            entry(true, Principal::Owner, mask::ALL, 0),
            entry(
                true,
                Principal::NamedGroup(8),
                mask::READ_DATA,
                flags::DIRECTORY,
            ),
            entry(true, Principal::Group, mask::READ_DATA, 0),
            entry(true, Principal::Everyone, mask::READ_ATTRIBUTES, 0),
        ]);
        let attr = attr(0o755);
        let shown = descriptor(&attr, Some(&list), OWNER | GROUP | DACL, &none());
        let wanted = DescriptorUpdate::decode(&shown, OWNER | GROUP | DACL).unwrap();
        assert_eq!(wanted.list(&attr, true, &none()), Some(list));
        assert_eq!(
            (wanted.uid(&attr, &none()), wanted.gid(&attr, &none())),
            (Ok(Some(10)), Ok(Some(20)))
        );
        // A part that was not asked for is neither encoded nor decoded.
        let owner = descriptor(&attr, None, OWNER, &none());
        let wanted = DescriptorUpdate::decode(&owner, OWNER | DACL).unwrap();
        assert_eq!(
            wanted.list(&attr, true, &none()),
            Some(Acl(vec![entry(true, Principal::Everyone, mask::ALL, 0)]))
        );
        assert_eq!(
            DescriptorUpdate::decode(&shown, OWNER)
                .unwrap()
                .list(&attr, true, &none()),
            None
        );
        assert_eq!(wanted.gid(&attr, &none()), Ok(None));
    }

    /// Identifiers of a domain serve as owner, in a list, and as a new owner.
    #[test]
    fn users_and_groups_of_a_domain_have_its_identifiers() {
        let domain = sid(5, &[21, 1, 2, 3]);
        let domains = weir_auth::domains::Domains::default();
        let logon = weir_auth::pac::Logon {
            name: "alice".into(),
            domain: "WEIR".into(),
            user: domain.with(1105),
            primary: domain.with(513),
            groups: Vec::new(),
            is_machine: false,
        };
        let alice = domains.meet(&logon, None).unwrap().unix;
        let known = domains.known();
        let attr = Attr {
            uid: alice.uid,
            gid: alice.gid,
            ..attr(0o750)
        };
        let number = |relative| DOMAIN_NUMBERS.start + relative;
        let entry = |who| Entry {
            allows: true,
            who,
            mask: mask::READ_DATA,
            flags: 0,
        };
        let list = Acl(vec![
            entry(Principal::Owner),
            entry(Principal::Group),
            entry(Principal::NamedGroup(number(1200))),
            entry(Principal::User(10)),
        ]);
        let shown = descriptor(&attr, Some(&list), ALL, &known);
        let wanted = DescriptorUpdate::decode(&shown, ALL).unwrap();
        assert_eq!(wanted.owner, Some(domain.with(1105)));
        assert_eq!(wanted.group, Some(domain.with(513)));
        assert_eq!(wanted.list(&attr, true, &known), Some(list));
        // The same of a file that is the other user's.
        let other = Attr {
            uid: 0,
            gid: 0,
            ..attr
        };
        assert_eq!(wanted.uid(&other, &known), Ok(Some(number(1105))));
        assert_eq!(wanted.gid(&other, &known), Ok(Some(number(513))));
        let who: Vec<Principal> = wanted
            .list(&other, true, &known)
            .unwrap()
            .0
            .iter()
            .map(|e| e.who)
            .collect();
        let groups = [1105, 513, 1200].map(|relative| Principal::NamedGroup(number(relative)));
        assert_eq!(who, [&groups[..], &[Principal::User(10)]].concat());
        // To who does not know the domain, they are nobody.
        assert_eq!(wanted.uid(&other, &none()), Err(Status::INVALID_OWNER));
    }

    #[test]
    fn who_is_nobody_here_has_no_entry_and_owns_nothing() {
        let attr = attr(0o755);
        let mut shown = descriptor(&attr, None, OWNER | DACL, &none());
        // The owner becomes BUILTIN\Administrators, in both places.
        let administrators = |bytes: &mut [u8]| {
            bytes[7] = 5;
            bytes[8..12].copy_from_slice(&32u32.to_le_bytes());
            bytes[12..16].copy_from_slice(&544u32.to_le_bytes());
        };
        administrators(&mut shown[20..36]);
        administrators(&mut shown[52..68]);
        let wanted = DescriptorUpdate::decode(&shown, OWNER | DACL).unwrap();
        assert_eq!(wanted.uid(&attr, &none()), Err(Status::INVALID_OWNER));
        let list = wanted.list(&attr, true, &none()).unwrap();
        let who: Vec<Principal> = list.0.iter().map(|entry| entry.who).collect();
        assert_eq!(who, [Principal::Group, Principal::Everyone]);
    }

    proptest! {
        #[test]
        fn any_descriptor_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..110, with in any::<u8>()) {
            let _ = DescriptorUpdate::decode(&bytes, 7);
            let attr = attr(0o640);
            let mut shown = descriptor(&attr, None, 7, &none());
            if let Some(byte) = shown.get_mut(at) {
                *byte = with;
            }
            if let Ok(wanted) = DescriptorUpdate::decode(&shown, 7) {
                let _ = (wanted.list(&attr, false, &none()), wanted.uid(&attr, &none()), wanted.gid(&attr, &none()));
            }
        }
    }
}

//! Access control lists as NFSv4 has them (RFC 8881 §6): stored, evaluated, and kept in step with the mode.
//!
//! A file without a list is checked by its mode alone, and costs nothing here. A file with one is checked by the list, over
//! every protocol; the mode that is shown then is what the list gives to owner, group and others (§6.3.2).
//!
//! - **Evaluation** (§6.2.1): entries in their order; the first that concerns the caller and a bit decides about the bit. What no
//!   entry allows is denied.
//! - **Setting a list** sets the mode's nine bits to what it comes to (§6.4.1.2).
//! - **Setting a mode** puts entries for owner, group and everyone in the place of those that were there, and leaves
//!   entries for named users and groups no more of reading, writing and executing than the group has (§6.4.1.1). So `chmod
//!   go=` closes a file whatever its list said.
//!
//! Entries that are inherited are not taken: a list concerns one file.

use crate::identity::Creds;
use weir_volume::Attr;

/// Entries of a list at most.
pub const MAX_ENTRIES: usize = 400;

/// Bits of an access mask (RFC 8881 §6.2.1.3).
pub mod mask {
    /// Read data, list a directory.
    pub const READ: u32 = 0x1;
    /// Write data, make a file in a directory.
    pub const WRITE: u32 = 0x2;
    /// Append data, make a directory in a directory.
    pub const APPEND: u32 = 0x4;
    /// Execute a file, search a directory.
    pub const EXECUTE: u32 = 0x20;
    /// Delete an entry of a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Set times.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// Delete the file.
    pub const DELETE: u32 = 0x1_0000;
    /// Set mode and list.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// All that there are.
    pub const ALL: u32 = 0x1f_01ff;
    /// What the owner of a file and everyone may do whatever its list says: read attributes and list.
    pub(super) const ALWAYS: u32 = 0x80 | 0x2_0000;
}

/// Whom an entry concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// `OWNER@`.
    Owner,
    /// `GROUP@`.
    Group,
    /// `EVERYONE@`.
    Everyone,
    /// A user id.
    User(u32),
    /// A group id.
    NamedGroup(u32),
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it allows or denies.
    pub allows: bool,
    /// Whom it concerns.
    pub who: Principal,
    /// Bits of an access mask.
    pub mask: u32,
}

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(pub Vec<Entry>);

/// Version of the stored form, its first byte.
const VERSION: u8 = 1;
/// Bytes of a stored entry: allows, kind of principal, two of zero, mask, id.
const ENTRY: usize = 12;

/// Bits that belong to a class of the mode.
const READS: u32 = mask::READ;
const WRITES: u32 = mask::WRITE | mask::APPEND;
const EXECUTES: u32 = mask::EXECUTE;
const DATA: u32 = READS | WRITES | EXECUTES | mask::DELETE_CHILD;

/// What three bits of a mode allow.
fn of_mode(bits: u32, directory: bool) -> u32 {
    let on = |bit: u32, mask: u32| if bits & bit != 0 { mask } else { 0 };
    let writes = match directory {
        true => WRITES | mask::DELETE_CHILD,
        false => WRITES,
    };
    on(4, READS) | on(2, writes) | on(1, EXECUTES)
}

impl Acl {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for entry in &self.0 {
            let (kind, id) = match entry.who {
                Principal::Owner => (0, 0),
                Principal::Group => (1, 0),
                Principal::Everyone => (2, 0),
                Principal::User(id) => (3, id),
                Principal::NamedGroup(id) => (4, id),
            };
            out.extend([u8::from(entry.allows), kind, 0, 0]);
            out.extend(entry.mask.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    /// The list of a stored form; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Acl> {
        let (VERSION, entries) = bytes.split_first().map(|(v, rest)| (*v, rest))? else {
            return None;
        };
        if entries.len() % ENTRY != 0 || entries.len() / ENTRY > MAX_ENTRIES {
            return None;
        }
        let word = |at: &[u8]| Some(u32::from_le_bytes(at.try_into().ok()?));
        let entry = |bytes: &[u8]| {
            let id = word(bytes.get(8..12)?)?;
            let who = match bytes.get(1)? {
                0 => Principal::Owner,
                1 => Principal::Group,
                2 => Principal::Everyone,
                3 => Principal::User(id),
                4 => Principal::NamedGroup(id),
                _ => return None,
            };
            Some(Entry {
                allows: *bytes.first()? != 0,
                who,
                mask: word(bytes.get(4..8)?)?,
            })
        };
        entries
            .chunks_exact(ENTRY)
            .map(entry)
            .collect::<Option<_>>()
            .map(Acl)
    }

    fn decided(&self, concerns: impl Fn(Principal) -> bool) -> u32 {
        let (mut open, mut granted) = (mask::ALL, 0);
        for entry in self.0.iter().filter(|entry| concerns(entry.who)) {
            let decides = entry.mask & open;
            if entry.allows {
                granted |= decides;
            }
            open &= !decides;
        }
        granted
    }

    /// What a caller may do with the file of `attr`, which has this list.
    pub fn granted(&self, attr: &Attr, who: &Creds) -> u32 {
        let concerns = |principal| match principal {
            Principal::Owner => who.uid == attr.uid,
            Principal::Group => who.in_group(attr.gid),
            Principal::Everyone => true,
            Principal::User(uid) => who.uid == uid,
            Principal::NamedGroup(gid) => who.in_group(gid),
        };
        self.decided(concerns) | mask::ALWAYS
    }

    /// The nine bits of the mode that the list comes to (§6.3.2).
    pub fn mode(&self) -> u32 {
        let bits = |class: Principal| {
            let granted = self.decided(|who| who == class || who == Principal::Everyone);
            let on = |mask: u32, bit: u32| if granted & mask == mask { bit } else { 0 };
            on(READS, 4) | on(WRITES, 2) | on(EXECUTES, 1)
        };
        bits(Principal::Owner) << 6 | bits(Principal::Group) << 3 | bits(Principal::Everyone)
    }

    /// The list that says what a mode does.
    pub fn of(mode: u32, directory: bool) -> Acl {
        Acl::default().under(mode, directory)
    }

    /// The list after the mode was set.
    #[must_use]
    pub fn under(&self, mode: u32, directory: bool) -> Acl {
        let [owner, group, others] = [6, 3, 0].map(|shift| of_mode(mode >> shift & 7, directory));
        let named = |who| matches!(who, Principal::User(_) | Principal::NamedGroup(_));
        let kept = self.0.iter().filter(|entry| named(entry.who)).copied();
        let mut entries: Vec<Entry> = kept
            .map(|entry| match entry.allows {
                true => Entry {
                    mask: entry.mask & (group | !DATA),
                    ..entry
                },
                false => entry,
            })
            .collect();
        let mut put = |allows, who, mask| {
            if mask != 0 {
                entries.push(Entry { allows, who, mask });
            }
        };
        // One class of the mode applies: what a later one would give is denied before.
        put(false, Principal::Owner, (group | others) & !owner);
        let extra = mask::WRITE_ATTRIBUTES | mask::WRITE_ACL;
        put(true, Principal::Owner, owner | extra);
        put(false, Principal::Group, others & !group);
        put(true, Principal::Group, group);
        put(true, Principal::Everyone, others | mask::ALWAYS);
        Acl(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_volume::{FileKind, Guard};

    fn attr(mode: u32) -> Attr {
        Attr {
            guard: Guard::Acl,
            ..crate::access::tests::attr(FileKind::Regular, mode, 10, 20)
        }
    }

    fn who(uid: u32, gid: u32) -> Creds {
        Creds {
            uid,
            gid,
            gids: (&[] as &[u32]).into(),
        }
    }

    /// The list that a mode comes to allows each class what the mode does, and shows that mode.
    #[test]
    fn a_mode_and_its_list_say_the_same() {
        for mode in 0..0o1000 {
            let acl = Acl::of(mode, false);
            assert_eq!(acl.mode(), mode, "{mode:o}");
            assert_eq!(Acl::decode(&acl.encode()), Some(acl.clone()));
            for (shift, caller) in [(6, who(10, 99)), (3, who(11, 20)), (0, who(11, 99))] {
                let granted = acl.granted(&attr(mode), &caller);
                assert_eq!(
                    granted & DATA,
                    of_mode(mode >> shift & 7, false),
                    "{mode:o}"
                );
            }
        }
    }

    #[test]
    fn the_first_entry_that_concerns_a_bit_decides() {
        let entry = |allows, who, mask| Entry { allows, who, mask };
        let acl = Acl(vec![
            entry(false, Principal::User(11), mask::WRITE),
            entry(true, Principal::NamedGroup(30), mask::READ | mask::WRITE),
            entry(true, Principal::User(11), mask::WRITE | mask::EXECUTE),
            entry(false, Principal::Everyone, mask::READ),
            entry(true, Principal::Everyone, mask::READ | mask::APPEND),
        ]);
        let data = |caller: &Creds| acl.granted(&attr(0), caller) & DATA;
        assert_eq!(
            data(&who(11, 30)),
            mask::READ | mask::EXECUTE | mask::APPEND
        );
        assert_eq!(data(&who(12, 30)), mask::READ | mask::WRITE | mask::APPEND);
        assert_eq!(data(&who(12, 31)), mask::APPEND);
        assert_eq!(acl.mode(), 0, "of writing only a part");
    }

    #[test]
    fn a_mode_closes_what_a_list_had_opened() {
        let allowed = Entry {
            allows: true,
            who: Principal::User(11),
            mask: mask::READ | mask::WRITE | mask::APPEND | mask::DELETE,
        };
        let mut acl = Acl::of(0o640, false);
        acl.0.insert(0, allowed);
        let of = |acl: &Acl| acl.granted(&attr(0), &who(11, 99)) & DATA;
        assert_eq!(of(&acl), READS | WRITES);
        let (open, closed) = (acl.under(0o660, false), acl.under(0o600, false));
        assert_eq!((of(&open), open.mode()), (READS | WRITES, 0o660));
        assert_eq!((of(&closed), closed.mode()), (0, 0o600));
        assert_eq!(closed.0[0].mask, mask::DELETE, "what no mode says stays");
        // Again and again it grows no longer.
        assert_eq!(open.under(0o640, false).0.len(), acl.0.len());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bytes in [&[][..], &[2], &[1, 0], &[1; 13][..12]] {
            assert_eq!(Acl::decode(bytes), None);
        }
        let mut bytes = Acl::of(0o644, false).encode();
        bytes[2] = 5;
        assert_eq!(Acl::decode(&bytes), None);
        assert_eq!(Acl::decode(&[1]), Some(Acl::default()));
    }
}

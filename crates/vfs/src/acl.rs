//! Access control lists as NFSv4 has them (RFC 8881 §6): stored, evaluated, and kept in step with
//! the mode.
//!
//! A file without a list is checked by its mode alone, and costs nothing here. A file with one is
//! checked by the list, over every protocol. The mode that is shown then is what the list gives to
//! owner, group and others (§6.3.2).
//!
//! - **Evaluation** (§6.2.1): entries in their order; the first that concerns the caller and a bit
//!   decides about the bit. What no entry allows is denied.
//! - **Setting a list** sets the mode's nine bits to what it comes to (§6.4.1.2).
//! - **Setting a mode** puts entries for owner, group and everyone in the place of those that were
//!   there, and leaves entries for named users and groups no more of reading, writing and executing
//!   than the group has (§6.4.1.1). So `chmod go=` closes a file whatever its list said.
//!
//! - **Making a file** in a directory whose list has entries that are passed on gives the file a
//!   list of those (§6.4.3). The mode that it is made with limits them, and stands for owner, group
//!   or others if no entry for that class is passed on. The umask counts only for these (RFC 8275
//!   §3): what a directory passes on is what its owner wants, whatever the umask of who makes files
//!   there.
//! - In a volume of NTFS style the list alone counts: what a directory passes on is not limited by
//!   a mode, what is made where nothing is passed on is its owner's alone, and the root of a new
//!   volume is everyone's (see `acl_cache`).
//! - What a directory passes on is no part of what it allows itself if it is *inherit-only*. An
//!   entry of which both is true becomes two when the mode is set: one that is passed on as it was,
//!   and one for the directory, which the mode limits.

use crate::identity::{Creds, DOMAIN_NUMBERS};
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
    /// Access mask of the owner of a file and of everyone, whatever the list says: read attributes
    /// and list.
    pub(super) const ALWAYS: u32 = 0x80 | 0x2_0000;
}

/// Flags of an entry (RFC 8881 §6.2.1.4): to what is made in a directory it is passed on.
pub mod flags {
    /// To files.
    pub const FILE: u8 = 0x1;
    /// To directories.
    pub const DIRECTORY: u8 = 0x2;
    /// By those directories no further.
    pub const NO_PROPAGATE: u8 = 0x4;
    /// The entry does not concern the directory itself.
    pub const INHERIT_ONLY: u8 = 0x8;
    /// All that there are.
    pub const ALL: u8 = 0xf;
}

/// Principal that an entry concerns.
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
    /// True if it allows, false if it denies.
    pub allows: bool,
    /// Principal that it concerns.
    pub who: Principal,
    /// Bits of an access mask.
    pub mask: u32,
    /// Bits of [`flags`]; none in the list of anything but a directory.
    pub flags: u8,
}

impl Entry {
    /// Returns true if it is passed on.
    fn is_inheritable(&self) -> bool {
        self.flags & (flags::FILE | flags::DIRECTORY) != 0
    }

    /// Returns true if it concerns the object whose list has it.
    fn is_effective(&self) -> bool {
        self.flags & flags::INHERIT_ONLY == 0
    }

    /// Returns the entry for what is made in the directory alone.
    fn passed_on(self) -> Entry {
        Entry {
            flags: self.flags | flags::INHERIT_ONLY,
            ..self
        }
    }

    /// Returns the entry for the object alone. For a named user or group it allows of reading,
    /// writing and executing no more than `most`.
    fn limited(self, most: u32) -> Entry {
        let named = matches!(self.who, Principal::User(_) | Principal::NamedGroup(_));
        let mask = match self.allows && named {
            true => self.mask & (most | !DATA),
            false => self.mask,
        };
        Entry {
            mask,
            flags: 0,
            ..self
        }
    }
}

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(pub Vec<Entry>);

/// Version of the stored form, its first byte.
const VERSION: u8 = 1;
/// Entries of a stored list at most: of those set each may have become two, and the mode has up to
/// five.
const MAX_STORED: usize = 2 * MAX_ENTRIES + 5;
/// Bytes of a stored entry: allows, kind of principal, flags, zero, mask, id.
const ENTRY: usize = 12;

/// Bits that belong to a class of the mode.
const READS: u32 = mask::READ;
const WRITES: u32 = mask::WRITE | mask::APPEND;
const EXECUTES: u32 = mask::EXECUTE;
const DATA: u32 = READS | WRITES | EXECUTES | mask::DELETE_CHILD;

/// Returns the access mask that three bits of a mode allow.
fn of_mode(bits: u32, directory: bool) -> u32 {
    let on = |bit: u32, mask: u32| if bits & bit != 0 { mask } else { 0 };
    let writes = match directory {
        true => WRITES | mask::DELETE_CHILD,
        false => WRITES,
    };
    on(4, READS) | on(2, writes) | on(1, EXECUTES)
}

impl Acl {
    /// Returns the stored form.
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
            out.extend([u8::from(entry.allows), kind, entry.flags, 0]);
            out.extend(entry.mask.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    /// Returns the list of a stored form; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Acl> {
        let (VERSION, entries) = bytes.split_first().map(|(v, rest)| (*v, rest))? else {
            return None;
        };
        if entries.len() % ENTRY != 0 || entries.len() / ENTRY > MAX_STORED {
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
                flags: *bytes.get(2)? & flags::ALL,
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
        let effective = self.0.iter().filter(|entry| entry.is_effective());
        for entry in effective.filter(|entry| concerns(entry.who)) {
            let decides = entry.mask & open;
            if entry.allows {
                granted |= decides;
            }
            open &= !decides;
        }
        granted
    }

    /// Returns the access mask that a caller has on the file of `attr`, which has this list.
    pub fn granted(&self, attr: &Attr, who: &Creds) -> u32 {
        let concerns = |principal| match principal {
            Principal::Owner => who.uid == attr.uid,
            Principal::Group => who.in_group(attr.gid),
            Principal::Everyone => true,
            Principal::User(uid) => who.uid == uid,
            // Numbers of a domain do not say which is a user and which a group.
            Principal::NamedGroup(id) if DOMAIN_NUMBERS.contains(&id) => {
                who.uid == id || who.in_group(id)
            }
            Principal::NamedGroup(gid) => who.in_group(gid),
        };
        self.decided(concerns) | mask::ALWAYS
    }

    /// Returns the nine bits of the mode that the list comes to (§6.3.2).
    pub fn mode(&self) -> u32 {
        let bits = |class: Principal| {
            let granted = self.decided(|who| who == class || who == Principal::Everyone);
            let on = |mask: u32, bit: u32| if granted & mask == mask { bit } else { 0 };
            on(READS, 4) | on(WRITES, 2) | on(EXECUTES, 1)
        };
        bits(Principal::Owner) << 6 | bits(Principal::Group) << 3 | bits(Principal::Everyone)
    }

    /// Returns a list with all access for `who`, passed on to all that is made below a directory if
    /// `passed_on`.
    pub fn full(who: Principal, passed_on: bool) -> Acl {
        Acl(vec![Entry {
            allows: true,
            who,
            mask: mask::ALL,
            flags: match passed_on {
                true => flags::FILE | flags::DIRECTORY,
                false => 0,
            },
        }])
    }

    /// Returns the list that says what a mode does.
    pub fn from_mode(mode: u32, directory: bool) -> Acl {
        Acl::default().under(mode, directory)
    }

    /// Returns the list after the mode was set.
    #[must_use]
    pub fn under(&self, mode: u32, directory: bool) -> Acl {
        self.limited(mode, mode, directory)
    }

    /// Returns the list with what `mode` allows in the place of entries for owner, group and
    /// everyone. Named users and groups have no more than the group has in `most`.
    fn limited(&self, mode: u32, most: u32, directory: bool) -> Acl {
        let [owner, group, others] = [6, 3, 0].map(|shift| of_mode(mode >> shift & 7, directory));
        let most = of_mode(most >> 3 & 7, directory);
        let named = |who| matches!(who, Principal::User(_) | Principal::NamedGroup(_));
        let mut entries = Vec::with_capacity(self.0.len() + 5);
        for entry in &self.0 {
            if entry.is_inheritable() {
                entries.push(entry.passed_on());
            }
            if entry.is_effective() && named(entry.who) {
                entries.push(entry.limited(most));
            }
        }
        let mut put = |allows, who, mask| {
            if mask != 0 {
                entries.push(Entry {
                    allows,
                    who,
                    mask,
                    flags: 0,
                });
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

    /// Returns true if anything is passed on.
    pub fn is_inheritable(&self) -> bool {
        self.0.iter().any(Entry::is_inheritable)
    }

    /// Returns the list of what is made in a directory with this list; `None` if nothing is passed
    /// on.
    pub fn passed_on(&self, directory: bool) -> Option<Acl> {
        let wanted = match directory {
            true => flags::DIRECTORY,
            false => flags::FILE,
        };
        let onwards = |entry: &Entry| match directory && entry.flags & flags::NO_PROPAGATE == 0 {
            true => entry.flags & (flags::FILE | flags::DIRECTORY),
            false => 0,
        };
        let passed = self.0.iter().filter(|entry| entry.is_inheritable());
        let passed = passed.filter_map(|entry| {
            let concerns = entry.flags & wanted != 0;
            let flags = match (onwards(entry), concerns) {
                (0, false) => return None,
                (flags, true) => flags,
                (flags, false) => flags | flags::INHERIT_ONLY,
            };
            Some(Entry { flags, ..*entry })
        });
        let list = Acl(passed.collect());
        (!list.0.is_empty()).then_some(list)
    }

    /// Returns the list of what is made with `mode`, under a umask, in a directory with this list;
    /// `None` if nothing is passed on to it.
    pub fn inherited(&self, directory: bool, mode: u32, umask: u32) -> Option<Acl> {
        let list = self.passed_on(directory)?;
        let effective = |class| list.0.iter().any(|e| e.is_effective() && e.who == class);
        let given = list.mode();
        let classes = [
            (Principal::Owner, 0o700),
            (Principal::Group, 0o070),
            (Principal::Everyone, 0o007),
        ];
        let bits = classes.map(|(class, bits)| match effective(class) {
            true => given & mode & bits,
            false => mode & !umask & bits,
        });
        let [owner, group, others] = bits;
        Some(list.limited(owner | group | others, mode, directory))
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
            let acl = Acl::from_mode(mode, false);
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
        let entry = |allows, who, mask| Entry {
            allows,
            who,
            mask,
            flags: 0,
        };
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

    /// An entry for a user or group of a domain, of whom only the number is known.
    #[test]
    fn an_entry_of_a_domain_concerns_the_user_or_the_group_with_its_number() {
        let of = |id: u32| {
            let entry = Entry {
                allows: true,
                who: Principal::NamedGroup(id),
                mask: mask::READ,
                flags: 0,
            };
            let list = Acl(vec![entry]);
            [who(id, 99), who(11, id), who(11, 99)]
                .map(|caller| list.granted(&attr(0), &caller) & DATA != 0)
        };
        assert_eq!(of(DOMAIN_NUMBERS.start + 1105), [true, true, false]);
        assert_eq!(of(DOMAIN_NUMBERS.end - 1), [true, true, false]);
        assert_eq!(of(DOMAIN_NUMBERS.start - 1), [false, true, false]);
        assert_eq!(of(DOMAIN_NUMBERS.end), [false, true, false]);
    }

    #[test]
    fn a_mode_closes_what_a_list_had_opened() {
        let allowed = Entry {
            allows: true,
            who: Principal::User(11),
            mask: mask::READ | mask::WRITE | mask::APPEND | mask::DELETE,
            flags: 0,
        };
        let mut acl = Acl::from_mode(0o640, false);
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

    /// Returns the list of a file or directory that is made below a directory with this entry.
    fn below(who: Principal, flags: u8, directory: bool, mode: u32, umask: u32) -> Option<Acl> {
        let mut acl = Acl::from_mode(0o755, true);
        let entry = Entry {
            allows: true,
            who,
            mask: READS | WRITES,
            flags,
        };
        acl.0.insert(0, entry);
        acl.inherited(directory, mode, umask)
    }

    #[test]
    fn entries_are_passed_on_as_their_flags_say() {
        use flags::{DIRECTORY, FILE, INHERIT_ONLY, NO_PROPAGATE};
        let user = Principal::User(11);
        // The flags that the entry has below, and whether it is effective there.
        let cases = [
            (FILE, false, Some((0, true))),
            (DIRECTORY, false, None),
            (0, false, None),
            (0, true, None),
            (FILE | DIRECTORY | INHERIT_ONLY, false, Some((0, true))),
            (FILE, true, Some((FILE, false))),
            (FILE | NO_PROPAGATE, true, None),
            (DIRECTORY, true, Some((DIRECTORY, true))),
            (FILE | DIRECTORY, true, Some((FILE | DIRECTORY, true))),
            (DIRECTORY | NO_PROPAGATE, true, Some((0, true))),
            (DIRECTORY | NO_PROPAGATE, false, None),
        ];
        for (flags, directory, expected) in cases {
            // Others have nothing by the mode.
            let acl = below(user, flags, directory, 0o770, 0);
            let seen = acl.as_ref().map(|acl| {
                let own = acl.0.iter().filter(|e| e.who == user);
                let passed = own.fold(0, |all, e| all | e.flags) & !INHERIT_ONLY;
                let granted = acl.granted(&attr(0), &who(11, 99)) & WRITES;
                (passed, granted == WRITES)
            });
            assert_eq!(seen, expected, "{flags:x} to a directory: {directory}");
            if let Some(acl) = acl {
                assert_eq!(Acl::decode(&acl.encode()), Some(acl.clone()));
                // From one to the next it grows no longer, and no more is passed on.
                let next = acl.inherited(true, 0o770, 0);
                assert!(next.is_none_or(|next| next.0.len() <= acl.0.len()));
            }
        }
    }

    #[test]
    fn the_mode_limits_what_is_inherited_and_the_umask_what_is_not() {
        use flags::FILE;
        let inherited = |who, mode, umask| below(who, FILE, false, mode, umask).unwrap();
        // For a named user the umask does not count, the mode does.
        let named = inherited(Principal::User(11), 0o666, 0o027);
        assert_eq!(named.mode(), 0o640);
        assert_eq!(named.granted(&attr(0), &who(11, 99)) & DATA, READS | WRITES);
        let closed = inherited(Principal::User(11), 0o600, 0);
        assert_eq!(closed.granted(&attr(0), &who(11, 99)) & DATA, 0);
        // A class that is passed on has no more than that, and no more than the mode.
        for (class, asked, umask, mode) in [
            (Principal::Owner, 0o777, 0o077, 0o600),
            (Principal::Owner, 0o444, 0, 0o444),
            (Principal::Group, 0o777, 0o077, 0o760),
            (Principal::Everyone, 0o777, 0o077, 0o706),
            (Principal::Everyone, 0o740, 0, 0o740),
        ] {
            let acl = inherited(class, asked, umask);
            assert_eq!(acl.mode(), mode, "{class:?} {asked:o} under {umask:o}");
        }
        // Made with the mode that a directory passes on for itself, chmod leaves what is passed on.
        let dir = below(Principal::User(11), FILE | flags::DIRECTORY, true, 0o777, 0).unwrap();
        let closed = dir.under(0o700, true);
        assert_eq!(closed.granted(&attr(0), &who(11, 99)) & DATA, 0);
        let file = closed.inherited(false, 0o660, 0).unwrap();
        assert_eq!(file.granted(&attr(0), &who(11, 99)) & DATA, READS | WRITES);
        assert_eq!(closed.under(0o750, true).0.len(), closed.0.len() + 1);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bytes in [&[][..], &[2], &[1, 0], &[1; 13][..12]] {
            assert_eq!(Acl::decode(bytes), None);
        }
        let mut bytes = Acl::from_mode(0o644, false).encode();
        bytes[2] = 5;
        assert_eq!(Acl::decode(&bytes), None);
        assert_eq!(Acl::decode(&[1]), Some(Acl::default()));
    }
}

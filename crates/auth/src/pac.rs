//! The privilege attribute certificate of an Active Directory ticket (MS-PAC): the user and their
//! groups, as Windows numbers them.
//!
//! Decodes KERB_VALIDATION_INFO (§2.5), an NDR structure that is followed by the objects of its
//! pointers, in order. The domain signed it for this server's key, which the acceptor of the ticket
//! has verified. It is still decoded as untrusted input.

use crate::sid::Sid;
use crate::wire::{DecodeError, Reader, from_utf16};

/// Groups of one kind at most: as many as a token has room for.
const MOST: u32 = 8192;
/// An account of a machine (MS-SAMR §2.2.1.12: workstation, server, interdomain trust).
const MACHINE: u32 = 0x80 | 0x100 | 0x40;
/// The attribute of a group that counts (MS-PAC §2.2.1, SE_GROUP_ENABLED).
const ENABLED: u32 = 4;

/// The account that a ticket was issued to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logon {
    /// The user's name.
    pub name: String,
    /// The domain's short name.
    pub domain: String,
    /// The user.
    pub user: Sid,
    /// The group that new files have.
    pub primary: Sid,
    /// All groups, nested ones and those of other domains included.
    pub groups: Vec<Sid>,
    /// True for an account that is no person's.
    pub is_machine: bool,
}

/// NDR (C706 §14), little-endian, with four bytes for a pointer.
struct Ndr<'a> {
    r: Reader<'a>,
    all: usize,
}

impl Ndr<'_> {
    /// Skips to a multiple of four bytes.
    fn align(&mut self) -> Result<(), DecodeError> {
        let at = self.all - self.r.rest().len();
        self.r.bytes(at.next_multiple_of(4) - at)?;
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.align()?;
        self.r.u32()
    }

    /// A string's fixed part (RPC_UNICODE_STRING): whether anything follows.
    fn has_text(&mut self) -> Result<bool, DecodeError> {
        self.align()?;
        self.r.u32()?; // Its lengths, which the array itself has again.
        Ok(self.r.u32()? != 0)
    }

    fn text(&mut self, is_there: bool) -> Result<String, DecodeError> {
        if !is_there {
            return Ok(String::new());
        }
        let (_most, first, units) = (self.u32()?, self.u32()?, self.u32()?);
        if first != 0 {
            return Err(DecodeError);
        }
        let bytes = usize::try_from(units).map_err(|_| DecodeError)?;
        from_utf16(self.r.bytes(bytes.checked_mul(2).ok_or(DecodeError)?)?)
    }

    /// An identifier, with the count of its numbers in front.
    fn sid(&mut self, is_there: bool) -> Result<Option<Sid>, DecodeError> {
        if !is_there {
            return Ok(None);
        }
        let count = self.u32()?;
        let sid = Sid::read(&mut self.r)?;
        match sid.count() == count {
            true => Ok(Some(sid)),
            false => Err(DecodeError),
        }
    }

    /// Reads `count` groups of a domain. Returns the relative identifiers of those that are
    /// enabled.
    fn groups(&mut self, count: u32, is_there: bool) -> Result<Vec<u32>, DecodeError> {
        if !is_there || count == 0 {
            return Ok(Vec::new());
        }
        if count > MOST || self.u32()? != count {
            return Err(DecodeError);
        }
        let mut all = Vec::new();
        for _ in 0..count {
            let (relative, attributes) = (self.u32()?, self.u32()?);
            if attributes & ENABLED != 0 {
                all.push(relative);
            }
        }
        Ok(all)
    }
}

impl Logon {
    /// Reads the buffer of type 1.
    ///
    /// # Errors
    /// It is malformed, or says nothing of who the user is.
    pub fn decode(bytes: &[u8]) -> Result<Logon, DecodeError> {
        let mut r = Reader::new(bytes);
        // Version 1, little-endian (MS-RPCE §2.2.6.1), the length of what follows (§2.2.6.2), and a
        // pointer.
        if r.array()? != [1, 0x10, 8, 0, 0xcc, 0xcc, 0xcc, 0xcc] {
            return Err(DecodeError);
        }
        let all = r.rest().len();
        let mut n = Ndr { r, all };
        n.r.bytes(8)?;
        if n.u32()? == 0 {
            return Err(DecodeError);
        }
        n.r.bytes(6 * 8)?; // Times.
        let mut texts = [false; 6];
        for text in &mut texts {
            *text = n.has_text()?;
        }
        n.r.bytes(4)?; // Counts of logons and of wrong passwords.
        let (user, primary) = (n.u32()?, n.u32()?);
        let (count, groups) = (n.u32()?, n.u32()? != 0);
        n.u32()?; // What else is there: it shows.
        n.r.bytes(16)?; // A session key, unused with Kerberos.
        let (_server, domain) = (n.has_text()?, n.has_text()?);
        let domain_sid = n.u32()? != 0;
        n.r.bytes(8)?;
        let account = n.u32()?;
        n.r.bytes(7 * 4)?; // A status, times and a count of failures.
        let (extra_count, extra) = (n.u32()?, n.u32()? != 0);
        let resource_sid = n.u32()? != 0;
        let (resource_count, resource) = (n.u32()?, n.u32()? != 0);

        let [name, more @ ..] = texts;
        let name = n.text(name)?;
        for text in more {
            n.text(text)?;
        }
        let groups = n.groups(count, groups)?;
        n.text(_server)?;
        let domain = n.text(domain)?;
        let within = n.sid(domain_sid)?.ok_or(DecodeError)?;
        let mut all: Vec<Sid> = groups.iter().map(|group| within.with(*group)).collect();
        if extra && extra_count > 0 {
            if extra_count > MOST || n.u32()? != extra_count {
                return Err(DecodeError);
            }
            let mut those = Vec::new();
            for _ in 0..extra_count {
                let (sid, attributes) = (n.u32()? != 0, n.u32()?);
                those.push((sid, attributes & ENABLED != 0));
            }
            for (is_there, counts) in those {
                all.extend(n.sid(is_there)?.filter(|_| counts));
            }
        }
        let resources = n.sid(resource_sid)?;
        let resource = n.groups(resource_count, resource)?;
        if let Some(of) = resources {
            all.extend(resource.iter().map(|group| of.with(*group)));
        }
        Ok(Logon {
            name,
            domain,
            user: within.with(user),
            primary: within.with(primary),
            groups: all,
            is_machine: account & MACHINE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sid::sid;
    use crate::wire::Put;
    use crate::wire::utf16;
    use proptest::prelude::*;

    /// A certificate as a domain makes it.
    fn made(resources: bool) -> Vec<u8> {
        let mut out = vec![1, 0x10, 8, 0, 0xcc, 0xcc, 0xcc, 0xcc];
        out.put_zeroes(8);
        let p = 0x0002_0004;
        out.put_u32(p);
        out.put_zeroes(48);
        let text = |out: &mut Vec<u8>, text: &str| {
            let len = 2 * text.len() as u16;
            out.put_u16(len);
            out.put_u16(len);
            out.put_u32(p);
        };
        for word in ["alice", "Alice Liddell", "", "", "", ""] {
            text(&mut out, word);
        }
        out.put_u32(7);
        for v in [1105, 513, 3, p, 0x20] {
            out.put_u32(v);
        }
        out.put_zeroes(16);
        text(&mut out, "DC");
        text(&mut out, "WEIR");
        out.put_u32(p);
        out.put_zeroes(8);
        out.put_u32(0x10);
        out.put_zeroes(28);
        for v in [1, p] {
            out.put_u32(v);
        }
        let resource = if resources { [p, 1, p] } else { [0; 3] };
        resource.iter().for_each(|v| out.put_u32(*v));
        let letters = |out: &mut Vec<u8>, text: &str| {
            let units = text.len() as u32;
            for v in [units, 0, units] {
                out.put_u32(v);
            }
            out.put(&utf16(text));
            out.align(0, 4);
        };
        for word in ["alice", "Alice Liddell", "", "", "", ""] {
            letters(&mut out, word);
        }
        out.put_u32(3);
        for v in [513, 7, 1106, 7, 1107, 0] {
            out.put_u32(v);
        }
        letters(&mut out, "DC");
        letters(&mut out, "WEIR");
        let whole = |out: &mut Vec<u8>, sid: &Sid| {
            out.put_u32(sid.count());
            sid.put(out);
        };
        whole(&mut out, &sid(5, &[21, 1, 2, 3]));
        for v in [1, p, 7] {
            out.put_u32(v);
        }
        whole(&mut out, &sid(5, &[21, 7, 8, 9, 1200]));
        if resources {
            whole(&mut out, &sid(5, &[21, 1, 2, 3]));
            for v in [1, 1300, 7] {
                out.put_u32(v);
            }
        }
        out
    }

    #[test]
    fn user_and_groups_are_found() {
        for resources in [false, true] {
            let logon = Logon::decode(&made(resources)).unwrap();
            assert_eq!((&*logon.name, &*logon.domain), ("alice", "WEIR"));
            assert_eq!(logon.user, sid(5, &[21, 1, 2, 3, 1105]));
            assert_eq!(logon.primary, sid(5, &[21, 1, 2, 3, 513]));
            let mut expected = vec![
                sid(5, &[21, 1, 2, 3, 513]),
                sid(5, &[21, 1, 2, 3, 1106]),
                sid(5, &[21, 7, 8, 9, 1200]),
            ];
            if resources {
                expected.push(sid(5, &[21, 1, 2, 3, 1300]));
            }
            assert_eq!(logon.groups, expected);
            assert!(!logon.is_machine);
        }
        let whole = made(true);
        for cut in 0..whole.len() {
            assert_eq!(Logon::decode(&whole[..cut]), Err(DecodeError), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_none(
            at in 0usize..700,
            with in any::<u8>(),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut changed = made(true);
            if let Some(byte) = changed.get_mut(at) {
                *byte = with;
            }
            let _ = Logon::decode(&changed);
            let _ = Logon::decode(&bytes);
        }
    }
}

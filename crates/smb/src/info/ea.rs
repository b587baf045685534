//! Extended attributes (MS-FSCC §2.4.16), which are the `user.` attributes of NFSv4.2. Names are
//! compared in any case here. The open's access decides (FILE_READ_EA, FILE_WRITE_EA).

use crate::context::run::{Failure, Operand, Run};
use crate::open::session::{Access, File, Open, Session};
use crate::proto::mask;
use crate::proto::status::Status;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_vfs::volume::{Done, SetHow};
use weir_vfs::{ChargeProof, Error, MetadataRead, MetadataWrite, Stop};

/// Attributes that one request sets at most.
const MOST: usize = 1024;
/// Bytes of an entry besides name and value.
const FIXED: usize = 9;

/// An attribute to be set; without a value it is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ea {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The name and the value of an attribute that is there.
type ExtendedAttribute = (Vec<u8>, Vec<u8>);

/// Reads a list of FILE_FULL_EA_INFORMATION.
///
/// # Errors
/// It is malformed, or too long.
pub(crate) fn decode(mut rest: &[u8]) -> Result<Vec<Ea>, Status> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let mut r = Reader::new(rest);
        let next = r.u32()? as usize;
        r.u8()?;
        let (name_len, value_len) = (usize::from(r.u8()?), usize::from(r.u16()?));
        let name = r.bytes(name_len)?.to_vec();
        if r.u8()? != 0 {
            return Err(Status::INVALID_PARAMETER);
        }
        if name.is_empty()
            || name
                .iter()
                .any(|b| *b < 0x20 || b"\"*+,/:;<=>?[\\]|".contains(b))
        {
            return Err(Status::INVALID_EA_NAME);
        }
        let value = r.bytes(value_len)?.to_vec();
        all.push(Ea { name, value });
        if all.len() > MOST {
            return Err(Status::EA_TOO_LARGE);
        }
        match next {
            0 => break,
            next if next % 4 != 0 => return Err(Status::EA_LIST_INCONSISTENT),
            next => rest = rest.get(next..).ok_or(DecodeError)?,
        }
    }
    Ok(all)
}

/// Reads a list of names (FILE_GET_EA_INFORMATION, §2.4.16.1).
fn names(mut rest: &[u8]) -> Result<Vec<Vec<u8>>, Status> {
    let mut all = Vec::new();
    while !rest.is_empty() && all.len() <= MOST {
        let mut r = Reader::new(rest);
        let next = r.u32()? as usize;
        let len = usize::from(r.u8()?);
        all.push(r.bytes(len)?.to_vec());
        match next {
            0 => break,
            next => rest = rest.get(next..).ok_or(DecodeError)?,
        }
    }
    Ok(all)
}

/// Bytes of a file's attributes as FileEaInformation counts them; 0 if there are none.
pub(crate) fn size(all: &[ExtendedAttribute]) -> u32 {
    let each = all.iter().map(|(name, value)| 5 + name.len() + value.len());
    match all.is_empty() {
        true => 0,
        false => 4 + each.sum::<usize>() as u32,
    }
}

impl Run<'_> {
    /// All attributes of an open file that clients of SMB can see: name and value.
    pub(crate) fn eas(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
    ) -> Result<Vec<ExtendedAttribute>, Stop<Failure>> {
        let mut all = Vec::new();
        let access = Access::Made(&open.owner, &open.key);
        let (operand, charged) = self.enter(session, file.main().id, access, MetadataRead)?;
        for name in operand.xattrs(&mut self.c.cx, charged)? {
            let (operand, charged) = self.enter(session, file.main().id, access, MetadataRead)?;
            let value = match operand.xattr(&mut self.c.cx, charged, &name) {
                // Removed meanwhile.
                Err(Stop::Failed(Error::NotFound)) => continue,
                value => value?,
            };
            // A name or value that is longer has no place in an entry.
            if value.len() <= usize::from(u16::MAX) && name.len() <= usize::from(u8::MAX) {
                all.push((name, value));
            }
        }
        Ok(all)
    }

    /// FileFullEaInformation: all attributes, or those that the request names.
    pub(crate) fn query_eas(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        (wanted, most): (&[u8], usize),
    ) -> Result<(Status, Vec<u8>), Stop<Failure>> {
        if !open.may(mask::READ_EA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let there = self.eas(session, open, file)?;
        let wanted = names(wanted)?;
        let all: Vec<ExtendedAttribute> = match wanted.is_empty() {
            true if there.is_empty() => return Err(Status::NO_EAS_ON_FILE.into()),
            true => there,
            // An attribute that does not exist has an empty value.
            false => wanted
                .into_iter()
                .map(|name| {
                    let found = there.iter().find(|(n, _)| n.eq_ignore_ascii_case(&name));
                    found.cloned().unwrap_or((name, Vec::new()))
                })
                .collect(),
        };
        let (mut out, mut last) = (Vec::new(), None);
        for (name, value) in &all {
            let at = out.len().next_multiple_of(4);
            if at + FIXED + name.len() + value.len() > most {
                return match last {
                    None => Err(Status::BUFFER_TOO_SMALL.into()),
                    Some(_) => Ok((Status::BUFFER_OVERFLOW, out)),
                };
            }
            out.align(0, 4);
            if let Some(last) = last.replace(at) {
                out.set_u32(last, (at - last) as u32);
            }
            out.put_u32(0);
            out.put_u8(0);
            out.put_u8(name.len() as u8);
            out.put_u16(value.len() as u16);
            out.put(name);
            out.put_u8(0);
            out.put(value);
        }
        Ok((Status::SUCCESS, out))
    }

    /// Sets and removes attributes. Each is a change of its own; to make one twice changes nothing
    /// more.
    pub(crate) fn set_eas(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        list: &[u8],
    ) -> Result<(), Stop<Failure>> {
        if !open.may(mask::WRITE_EA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let list = decode(list)?;
        let access = Access::Made(&open.owner, &open.key);
        let (operand, charged) = self.enter(session, file.main().id, access, MetadataRead)?;
        let there = operand.xattrs(&mut self.c.cx, charged)?;
        for ea in &list {
            let (operand, charged) = self.enter(session, file.main().id, access, MetadataWrite)?;
            self.set_ea(&operand, charged, &there, ea)?;
        }
        Ok(())
    }

    /// Sets one of the attributes of a file that has those that are `there`.
    pub(crate) fn set_ea(
        &mut self,
        operand: &Operand<'_>,
        charged: ChargeProof<MetadataWrite>,
        there: &[Vec<u8>],
        ea: &Ea,
    ) -> Result<(), Stop<Failure>> {
        let own = there
            .iter()
            .find(|name| name.eq_ignore_ascii_case(&ea.name));
        let name = own.unwrap_or(&ea.name);
        let value = Some(&*ea.value).filter(|value| !value.is_empty());
        let cx = &mut self.c.cx;
        match operand.set_xattr(cx, charged, name, value, SetHow::Either) {
            Err(Stop::Failed(Error::NotFound)) if value.is_none() => Ok(()),
            done => {
                let Done { lsn, .. } = done?;
                self.c.wait_for(lsn);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(next: u32, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(next);
        out.put_u8(0);
        out.put_u8(name.len() as u8);
        out.put_u16(value.len() as u16);
        out.put(name);
        out.put_u8(0);
        out.put(value);
        out
    }

    #[test]
    fn a_list_is_read_entry_by_entry() {
        let list = [entry(16, b"Name", b"abc"), entry(0, b"gone", b"")].concat();
        let ea = |name: &[u8], value: &[u8]| Ea {
            name: name.to_vec(),
            value: value.to_vec(),
        };
        assert_eq!(
            decode(&list),
            Ok(vec![ea(b"Name", b"abc"), ea(b"gone", b"")])
        );
        assert_eq!(decode(&entry(0, b"a:b", b"")), Err(Status::INVALID_EA_NAME));
        assert_eq!(decode(&entry(0, b"", b"")), Err(Status::INVALID_EA_NAME));
        assert_eq!(
            decode(&entry(7, b"ab", b"")),
            Err(Status::EA_LIST_INCONSISTENT)
        );
        assert_eq!(decode(&list[..20]), Err(Status::INVALID_PARAMETER));
        assert_eq!(size(&[]), 0);
        assert_eq!(size(&[(b"ab".to_vec(), b"cde".to_vec())]), 14);
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = names(&bytes);
        }
    }
}

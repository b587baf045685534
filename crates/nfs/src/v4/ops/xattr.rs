//! Extended attributes (RFC 8276 §8.4). Names are in the name space of users, without the prefix
//! "user." that clients show.

use crate::rpc::xdr::{Put, padding};
use crate::v4::cursor::{Access, Fh, OperationResult, Run};
use crate::v4::status::Status;
use crate::v4::types::put_change;
use weir_base::limits::{MAX_NAME, MAX_XATTR};
use weir_vfs::volume::SetHow;
use weir_vfs::{Error, FileId, MetadataRead, MetadataWrite, Stop};

/// Decodes `setxattr_option4`: SETXATTR4_EITHER, SETXATTR4_CREATE, SETXATTR4_REPLACE.
fn how(how: u32) -> Result<SetHow, Status> {
    match how {
        0 => Ok(SetHow::Either),
        1 => Ok(SetHow::Create),
        2 => Ok(SetHow::Replace),
        _ => Err(Status::BadXdr),
    }
}

fn failed(why: Stop) -> Stop<Status> {
    match why {
        Stop::Failed(Error::NotFound) => Status::NoXattr.into(),
        why => why.into(),
    }
}

fn check(name: &[u8]) -> Result<(), Status> {
    match name.len() {
        0 => Err(Status::Inval),
        n if n > MAX_NAME => Err(Status::NameTooLong),
        _ => Ok(()),
    }
}

impl Run<'_> {
    /// Returns the current object; `of_pseudo` in the pseudo file system, which has no attributes.
    fn attributed(&self, of_pseudo: Status) -> Result<FileId, Status> {
        match self.here()? {
            Fh::File(file) => Ok(file),
            _ => Err(of_pseudo),
        }
    }

    /// GETXATTR (RFC 8276 §8.4.1): returns the value of an attribute.
    pub(in crate::v4) fn getxattr(&mut self, name: &[u8]) -> OperationResult {
        let file = self.attributed(Status::NoXattr)?;
        check(name)?;
        let (operand, charged) = self.enter(file, Access::Mode(None), MetadataRead)?;
        let value = operand.xattr(&mut self.c.cx, charged, name);
        self.c.out.put_opaque(&value.map_err(failed)?);
        Ok(Status::Ok)
    }

    /// SETXATTR (RFC 8276 §8.4.2): creates or replaces an attribute.
    pub(in crate::v4) fn setxattr(
        &mut self,
        option: u32,
        name: &[u8],
        value: &[u8],
    ) -> OperationResult {
        let how = how(option)?;
        if value.len() > MAX_XATTR {
            self.here()?;
            return Err(Status::Xattr2Big.into());
        }
        self.change_xattr(name, Some(value), how)
    }

    /// REMOVEXATTR (RFC 8276 §8.4.4): removes an attribute.
    pub(in crate::v4) fn removexattr(&mut self, name: &[u8]) -> OperationResult {
        self.change_xattr(name, None, SetHow::Either)
    }

    fn change_xattr(&mut self, name: &[u8], value: Option<&[u8]>, how: SetHow) -> OperationResult {
        let file = self.attributed(Status::RoFs)?;
        check(name)?;
        let client = self.client();
        let (operand, charged) = self.enter(file, client.outside(), MetadataWrite)?;
        let done = operand.set_xattr(&mut self.c.cx, charged, name, value, how);
        let done = done.map_err(failed)?;
        self.c.wait_for(done.lsn);
        let (before, after) = (done.value.before.change, done.value.after.change);
        put_change(&mut self.c.out, before, after);
        Ok(Status::Ok)
    }

    /// LISTXATTRS (RFC 8276 §8.4.3). A cookie is the number of names before it.
    pub(in crate::v4) fn listxattrs(&mut self, cookie: u64, maxcount: u32) -> OperationResult {
        let names = match self.here()? {
            Fh::File(file) => {
                let (operand, charged) = self.enter(file, Access::Mode(None), MetadataRead)?;
                operand.xattrs(&mut self.c.cx, charged)?
            }
            _ => Vec::new(),
        };
        let most = (maxcount as usize).min(self.c.room());
        // Cookie, count of names, eof.
        let mut room = most.checked_sub(8 + 4 + 4).ok_or(Status::TooSmall)?;
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        if skip > names.len() {
            return Err(Status::BadCookie.into());
        }
        let rest = names.get(skip..).unwrap_or_default();
        let fits = rest.iter().take_while(|name| {
            let bytes = 4 + name.len() + padding(name.len());
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        });
        let count = fits.count();
        if count == 0 && !rest.is_empty() {
            return Err(Status::TooSmall.into());
        }
        let out = &mut self.c.out;
        out.put_u64((skip + count) as u64);
        out.put_u32(count as u32);
        for name in rest.iter().take(count) {
            out.put_opaque(name);
        }
        out.put_bool(count == rest.len());
        Ok(Status::Ok)
    }
}

//! READDIR (§18.23).
//!
//! The client bounds the result in bytes, and that bound is kept exactly: an entry is appended only
//! if it, the end of the list and the eof flag still fit. If not even one entry fits, the answer is
//! TOOSMALL. "." and ".." are not listed (§18.23.3), and no entry has the cookies 0 to 2.

use crate::idmap::Names;
use crate::rpc::xdr::{Put, padding};
use crate::v4::args::ReadDir;
use crate::v4::attrs::{self, Absent, Object};
use crate::v4::cursor::{Access, Fh, Operand, OperationResult, Run};
use crate::v4::status::Status;
use crate::v4::types::Bitmap;
use weir_base::limits::net::MAX_LISTING;
use weir_vfs::volume::{Attr, DirEntry, ReadDirLimit};
use weir_vfs::{Error, FileId, FileRef, MetadataRead, Namespace, OpContext, Stop, Suspend};

/// Verifier, end of the list, eof.
const FIXED: usize = 8 + 4 + 4;
/// Minimum size of an entry: follows-flag, cookie, length of the name, bitmap and length of the
/// attributes.
const ENTRY: usize = 4 + 8 + 4 + 4 + 4;

/// A listing under construction.
struct Listing<'l> {
    out: &'l mut Vec<u8>,
    room: usize,
    start: usize,
    any: bool,
    full: bool,
}

impl Listing<'_> {
    /// Appends an entry, if it fits.
    fn entry(&mut self, cookie: u64, name: &[u8], put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.out.len();
        let bare = ENTRY + name.len() + padding(name.len());
        if self.full || before - self.start + bare > self.room {
            self.full = true;
            return false;
        }
        self.out.put_bool(true);
        self.out.put_u64(cookie);
        self.out.put_opaque(name);
        put(self.out);
        if self.out.len() - self.start > self.room {
            self.out.truncate(before);
            self.full = true;
            return false;
        }
        self.any = true;
        true
    }
}

/// An entry of a directory of snapshots, whose attributes must be fetched.
type Bare = (u64, Vec<u8>);

impl Run<'_> {
    /// READDIR (§18.23): entries after a cookie, with attributes.
    pub(in crate::v4) fn readdir(&mut self, a: &ReadDir) -> OperationResult {
        let here = self.here()?;
        if attrs::write_only(&a.mask) {
            return Err(Status::Inval.into());
        }
        if matches!(a.cookie, 1 | 2) {
            return Err(Status::BadCookie.into());
        }
        let most = (a.maxcount as usize).min(MAX_LISTING);
        let most = most.min(self.c.room());
        if most < FIXED {
            return Err(Status::TooSmall.into());
        }
        let start = self.c.out.len();
        let mut out = std::mem::take(&mut self.c.out);
        out.put_fixed(&[0; 8]);
        let mut listing = Listing {
            start: out.len(),
            out: &mut out,
            room: most - FIXED,
            any: false,
            full: false,
        };
        let listed = match here {
            Fh::Pseudo(number) => self.list_pseudo(number, a, &mut listing),
            Fh::File(dir) => self.list_volume(dir, a, &mut listing),
            Fh::None => unreachable!("a handle that was tested"),
        };
        let (any, full) = (listing.any, listing.full);
        self.c.out = out;
        let (eof, verifier) = listed?;
        let eof = eof && !full;
        if !any && !eof {
            return Err(Status::TooSmall.into());
        }
        if let Some(place) = self.c.out.get_mut(start..start + 8) {
            place.copy_from_slice(&verifier);
        }
        self.c.out.put_bool(false);
        self.c.out.put_bool(eof);
        Ok(Status::Ok)
    }

    fn list_volume(
        &mut self,
        dir: FileId,
        a: &ReadDir,
        listing: &mut Listing<'_>,
    ) -> Result<(bool, [u8; 8]), Stop<Status>> {
        let (operand, charged) = self.enter(dir, Access::Mode(None), MetadataRead)?;
        let limit = ReadDirLimit {
            entries: listing.room / (ENTRY + 8) + 1,
            // The limit counts names and 24 bytes for each entry, while attributes take most of the
            // room.
            bytes: (listing.room / 4).max(2048).min(listing.room),
            attrs: true,
        };
        let (minor, s) = (self.c.minor, self.s);
        let mut bare: Vec<Bare> = Vec::new();
        let snapshots = dir.namespace == Namespace::Snapshots;
        let of = attrs::wants_volume(&a.mask).then(|| operand.getattr(&mut self.c.cx));
        let space = of.transpose()?.map(|attr| operand.statfs(&attr));
        let names = self.names_sent();
        let mut each = |e: &DirEntry<'_>, file: Option<FileRef>| {
            if matches!(e.name, b"." | b"..") {
                return true;
            }
            if snapshots {
                bare.push((e.cookie, e.name.to_vec()));
                return bare.len() < limit.entries;
            }
            listing.entry(e.cookie, e.name, |out| match (&e.attr, file) {
                (Some(attr), Some(file)) => {
                    let handle = match a.mask.contains(attrs::FILEHANDLE) {
                        true => s.vfs.handle(dir.volume, file),
                        false => [0; weir_vfs::HANDLE_BYTES],
                    };
                    let object = Object {
                        minor,
                        attr,
                        handle: &handle,
                        covers: None,
                        space,
                        acl: None,
                        names: names.as_ref(),
                    };
                    object.put(&a.mask, out);
                }
                _ => attrs::put_unreadable(&a.mask, out),
            })
        };
        let out = operand.readdir(&mut self.c.cx, charged, a.cookie, limit, &mut each)?;
        if let Some(coming) = names.as_ref().and_then(Names::lacked) {
            return Err(Suspend::Users(coming).into());
        }
        if a.cookie != 0 && a.verifier != out.verifier {
            return Err(Error::BadCookie.into());
        }
        for (cookie, name) in bare {
            let fits = list_bare(
                &mut self.c.cx,
                &operand,
                minor,
                &a.mask,
                listing,
                cookie,
                &name,
                |file| s.vfs.handle(dir.volume, file),
            )?;
            if !fits {
                break;
            }
        }
        Ok((out.eof, out.verifier))
    }

    fn list_pseudo(
        &mut self,
        number: u64,
        a: &ReadDir,
        listing: &mut Listing<'_>,
    ) -> Result<(bool, [u8; 8]), Stop<Status>> {
        let pseudo = self.pseudo();
        let node = pseudo.node(number).ok_or(Status::Stale)?;
        // In the order of their numbers, which are the cookies: these stay when others come and go.
        let mut children: Vec<_> = node.children.iter().map(|(n, id)| (*id, n)).collect();
        children.sort_unstable();
        let after = children.into_iter().filter(|(id, _)| *id > a.cookie);
        for (id, name) in after {
            if !self.sees(&pseudo, id) {
                continue;
            }
            if let Some(referral) = pseudo.referral(id) {
                // §11.4.2.
                let error = match (
                    attrs::wants_locations(&a.mask),
                    a.mask.contains(attrs::RDATTR_ERROR),
                ) {
                    (true, _) => Status::Ok,
                    (false, true) => Status::Moved,
                    (false, false) => return Err(Status::Moved.into()),
                };
                let absent = Absent {
                    number: id,
                    referral,
                    error,
                };
                if !listing.entry(id, name, |out| absent.put(&a.mask, out)) {
                    return Ok((false, [0; 8]));
                }
                continue;
            }
            let fh = self.crossed(&pseudo, id);
            let (attr, space) = match fh {
                Fh::File(root) => {
                    let operand = self.look(root)?;
                    let attr = operand.getattr(&mut self.c.cx)?;
                    let space = attrs::wants_volume(&a.mask).then(|| operand.statfs(&attr));
                    (attr, space)
                }
                _ => (pseudo.attr(id), None),
            };
            let handle = self.handle(fh);
            let object = Object {
                minor: self.c.minor,
                attr: &attr,
                handle: &handle,
                covers: Some(id),
                space,
                acl: None,
                names: None,
            };
            if !listing.entry(id, name, |out| object.put(&a.mask, out)) {
                return Ok((false, [0; 8]));
            }
        }
        Ok((true, [0; 8]))
    }
}

/// Appends an entry of a directory of snapshots.
#[allow(clippy::too_many_arguments)]
fn list_bare(
    cx: &mut OpContext,
    operand: &Operand<'_, '_>,
    minor: u32,
    mask: &Bitmap,
    listing: &mut Listing<'_>,
    cookie: u64,
    name: &[u8],
    handle: impl FnOnce(FileRef) -> [u8; weir_vfs::HANDLE_BYTES],
) -> Result<bool, Stop<Status>> {
    let (attr, file): (Attr, FileRef) = match operand.listed(cx, name) {
        Ok((found, file)) => (found.attr, file),
        // The entry was deleted meanwhile.
        Err(weir_vfs::Stop::Failed(Error::NotFound)) => return Ok(true),
        Err(why) => return Err(why.into()),
    };
    let handle = handle(file);
    let object = Object {
        minor,
        attr: &attr,
        handle: &handle,
        covers: None,
        space: None,
        acl: None,
        names: None,
    };
    Ok(listing.entry(cookie, name, |out| object.put(mask, out)))
}

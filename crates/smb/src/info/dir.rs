//! QUERY_DIRECTORY (MS-SMB2 §3.3.5.18): a listing in the order of cookies. The open keeps its
//! position.

use crate::context::run::{CommandResult as Answer, Operand, Run};
use crate::info::access::listed;
use crate::info::apple::{EXTRA_AT, Extra, Form};
use crate::info::entry::Entry;
use crate::open::session::{Access, File, Listing};
use crate::open::shares;
use crate::proto::dialect::MAX_TRANSFER;
use crate::proto::status::Status;
use crate::proto::{mask, names};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_auth::domains::SidMap;
use weir_auth::wire::{Put, Reader, from_utf16, part};
use weir_vfs::volume::{Attr, DirEntry, ReadDirLimit};
use weir_vfs::{ChargeProof, Error, FileId, FileRef, MetadataRead, OpContext, OpResult, Stop};

/// Entries of one look into the directory, and bytes of their names.
const ENTRIES: usize = 1024;
/// Bytes of the response before the entries.
const FIXED: usize = 8;

const RESTART: u8 = 1;
const SINGLE: u8 = 2;
const REOPEN: u8 = 0x10;

/// Entries on their way into a response, each aligned and with the distance to the next.
pub(crate) struct Entries<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    most: usize,
    last: Option<usize>,
    class: Entry,
    known: Arc<SidMap>,
}

impl<'o> Entries<'o> {
    /// Begins a list of entries of `most` bytes at most behind the contents of `out`.
    pub fn new(out: &'o mut Vec<u8>, most: usize, class: Entry, known: Arc<SidMap>) -> Entries<'o> {
        Entries {
            start: out.len(),
            out,
            most,
            last: None,
            class,
            known,
        }
    }

    /// Returns true if an entry was added.
    pub fn any(&self) -> bool {
        self.last.is_some()
    }

    /// Adds an entry, with its attributes for macOS in `extra`. Returns false if there is no room
    /// for it.
    pub fn add(&mut self, name: &str, attr: &Attr, extra: Option<&Extra>) -> bool {
        let before = self.out.len();
        self.out.align(self.start, 8);
        let at = self.out.len();
        self.class.put(self.out, name, attr, &self.known);
        if let Some(extra) = extra {
            let place = at + EXTRA_AT;
            self.out[place..place + extra.len()].copy_from_slice(extra);
        }
        if self.out.len() - self.start > self.most {
            self.out.truncate(before);
            return false;
        }
        if let Some(last) = self.last.replace(at) {
            self.out.set_u32(last, (at - last) as u32);
        }
        true
    }
}

/// A response's bytes before the entries, of which the length is missing.
fn put_head(out: &mut Vec<u8>) {
    out.put_u16(9);
    out.put_u16((crate::proto::header::HEADER + FIXED) as u16);
    out.put_u32(0);
}

/// Returns the cookies of the next entries that the caller may read, for access-based enumeration.
/// An entry that is added between this and the listing itself is not listed.
fn readable(
    dir: &Operand<'_>,
    cx: &mut OpContext,
    charged: &ChargeProof<MetadataRead>,
    cookie: u64,
    limit: ReadDirLimit,
) -> OpResult<Vec<u64>> {
    let mut next = Vec::new();
    dir.list_on(cx, charged, cookie, limit, &mut |entry, _| {
        next.push((entry.cookie, entry.attr));
        true
    })?;
    let mut visible = Vec::with_capacity(next.len());
    for (cookie, attr) in next {
        let may = match attr {
            Some(attr) => dir.may_read_entry(cx, &attr)?,
            // It is gone, or it is the directory itself.
            None => true,
        };
        if may {
            visible.push(cookie);
        }
    }
    Ok(visible)
}

impl Run<'_> {
    /// Returns true if listings of a volume's share leave out files that the user may not read.
    pub(crate) fn is_access_based(&self, file: FileId) -> bool {
        shares::find_by_volume(self.table, file.volume).is_some_and(|share| share.access_based)
    }

    /// QUERY_DIRECTORY.
    pub(crate) fn query_directory(&mut self) -> Answer {
        let mut r = Reader::new(self.body());
        if r.u16()? != 33 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (class, flags) = (r.u8()?, r.u8()?);
        r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let most = r.u32()?;
        let pattern = from_utf16(part(self.message, offset, len)?)?;
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = open.file().ok_or(Status::INVALID_PARAMETER)?;
        if !file.directory() {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if most > MAX_TRANSFER {
            return Err(Status::INVALID_PARAMETER.into());
        }
        self.charged(most as usize)?;
        let class = Entry::from_class(class)
            .filter(|class| *class != Entry::Posix || session.negotiated.offer.posix)
            .ok_or(Status::INVALID_INFO_CLASS)?;
        if !open.may(mask::READ_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let mut listing = file.listing.lock().clone();
        if flags & (RESTART | REOPEN) != 0 {
            let kept = listing
                .pattern
                .filter(|_| flags & REOPEN == 0 && pattern.is_empty());
            listing = Listing {
                pattern: kept,
                ..Listing::default()
            };
        }
        let wanted = listing
            .pattern
            .get_or_insert_with(|| match pattern.is_empty() {
                true => "*".to_owned(),
                false => pattern,
            });
        let wanted = wanted.clone();
        if let form @ (Form::First | Form::Second) =
            Form::from_number(session.listings.load(Ordering::Relaxed))
            && class == Entry::IdBoth
        {
            let single = flags & SINGLE != 0;
            let asked = (&*wanted, most as usize, single);
            let mut out = Vec::new();
            let (any, full) = self.list_with_attributes(
                &session,
                (&open, file),
                asked,
                &mut listing,
                (form, &mut out),
            )?;
            let body = self.c.out.len();
            put_head(&mut self.c.out);
            self.c.out.put(&out);
            return self.listed(file, listing, body, (any, full));
        }
        let (dir, charged) = self.enter(&session, file.id, Access::Open(&open), MetadataRead)?;
        let access_based = self.is_access_based(file.id);
        let body = self.c.out.len();
        put_head(&mut self.c.out);
        let known = self.s.domains().known();
        let mut entries = Entries::new(&mut self.c.out, most as usize, class, known);
        let cx = &mut self.c.cx;
        let mut full = false;
        let mut visible = access_based.then(Vec::new);
        if !names::is_wild(&wanted) && wanted != "." && wanted != ".." {
            // One name: no listing.
            if !listing.any {
                match listed(&dir, cx, &names::stored(&wanted)?, file.posix) {
                    Ok((found, _, _)) if access_based && !dir.permitted(&found.attr).read => {}
                    Ok((found, _, stored)) => {
                        full = !entries.add(&file.to_client_name(&stored), &found.attr, None);
                    }
                    Err(Stop::Failed(Error::NotFound)) => {}
                    Err(why) => return Err(why.into()),
                }
            }
        } else {
            let here = dir.getattr(cx)?;
            let single = flags & SINGLE != 0;
            loop {
                let limit = ReadDirLimit {
                    entries: ENTRIES,
                    bytes: (most as usize).clamp(4096, 64 << 10),
                    attrs: true,
                };
                let mut cookie = listing.cookie;
                if let Some(visible) = &mut visible {
                    *visible = readable(&dir, cx, &charged, cookie, limit)?;
                }
                let out = dir.list_on(
                    cx,
                    &charged,
                    cookie,
                    limit,
                    &mut |entry: &DirEntry<'_>, _: Option<FileRef>| {
                        let (name, attr) = match (entry.name, entry.attr) {
                            (b"." | b"..", attr) => (
                                String::from_utf8_lossy(entry.name).into_owned(),
                                attr.unwrap_or(here),
                            ),
                            (name, Some(attr)) => (file.to_client_name(name), attr),
                            // It is gone, or cannot be read.
                            (_, None) => {
                                cookie = entry.cookie;
                                return true;
                            }
                        };
                        let hidden = visible.as_ref().is_some_and(|v| !v.contains(&entry.cookie));
                        if !hidden && names::matches(&wanted, &name) {
                            if (single && entries.any()) || !entries.add(&name, &attr, None) {
                                full = true;
                                return false;
                            }
                        }
                        cookie = entry.cookie;
                        true
                    },
                )?;
                listing.cookie = cookie;
                if full || out.eof {
                    break;
                }
                if entries.any() && entries.out.len() - entries.start > most as usize / 2 {
                    break;
                }
            }
        }
        let any = entries.any();
        self.listed(file, listing, body, (any, full))
    }

    /// The end of a response of which the entries are written, if there are any: they are all, or
    /// one had no room. `body`: where it begins.
    fn listed(
        &mut self,
        file: &File,
        mut listing: Listing,
        body: usize,
        (any, full): (bool, bool),
    ) -> Answer {
        if !any {
            self.c.out.truncate(body);
            let status = match (full, listing.any) {
                (true, _) => Status::INFO_LENGTH_MISMATCH,
                (false, true) => Status::NO_MORE_FILES,
                (false, false) => Status::NO_SUCH_FILE,
            };
            *file.listing.lock() = listing;
            return Err(status.into());
        }
        listing.any = true;
        *file.listing.lock() = listing;
        let start = body + FIXED;
        let len = self.c.out.len() - start;
        self.c.out.set_u32(start - 4, len as u32);
        Ok(Status::SUCCESS)
    }
}

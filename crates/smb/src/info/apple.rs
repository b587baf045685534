//! Extensions of MS-SMB2 for macOS: the create context AAPL, and listings with more attributes
//! (Apple's public source of its client, `smb_2.h`; Samba's `vfs_fruit` answers the same).
//!
//! **The query.** With its first CREATE on a share a client asks for the server's capabilities. The
//! answer offers listings with attributes, modes as on Unix, and a FLUSH that makes durable, which
//! `F_FULLFSYNC` and so Time Machine need. It does not offer names that differ only in case, files
//! found by their number (RESOLVE_ID), copies of whole files with their streams in one request
//! (OSX_COPYFILE), or modes set by an entry of a list (NFS_ACE). Other commands of the context get
//! no answer.
//!
//! **Listings.** From then on, entries of FileIdBothDirectoryInformation in that session have other
//! data in place of the length of EAs and the short name: the access of the user, the size of the
//! stream `AFP_Resource`, and the Finder's type, creator and flags from `AFP_AfpInfo`. A file
//! without streams costs no more than its attributes. A stream is read only if the user may read
//! the file. In the second form, for clients that know it, an entry also says that the file has no
//! streams.

use crate::context::run::{Failure, Operand, Run};
use crate::context::step::ResolvedFile;
use crate::info::access::{allowed, listed};
use crate::info::dir::Entries;
use crate::info::entry::Entry;
use crate::open::session::{Access, File, Listing, Open, OpenName, Session};
use crate::proto::names;
use weir_auth::wire::{DecodeError, Put, Reader, utf16};
use weir_vfs::volume::{Attr, DirEntry, FileKind, ReadDirLimit};
use weir_vfs::{ChargeProof, DataRead, Error, FileId, FileRef, MetadataRead, Stop};

/// The name of the context.
pub(crate) const TAG: &[u8; 4] = b"AAPL";
/// The command that asks what the server can do.
const SERVER_QUERY: u32 = 1;

/// Bits of the parts of a query and of its answer.
const SERVER_CAPS: u64 = 1;
const VOLUME_CAPS: u64 = 2;
const MODEL: u64 = 4;

/// Capabilities of a server.
const READ_DIR_ATTR: u64 = 0x1;
const UNIX_BASED: u64 = 0x4;
const READ_DIR_ATTR_2: u64 = 0x10;

/// Capability of a volume: FLUSH makes durable.
const FULL_SYNC: u64 = 4;

/// The streams that macOS keeps what belongs to a file in.
const INFO: &[u8] = b"AFP_AfpInfo";
const RESOURCE: &[u8] = b"AFP_Resource";
/// Range of the Finder's information in `AFP_AfpInfo`.
const FINDER: std::ops::Range<usize> = 16..48;
/// 2000-01-01, from which dates are counted, in seconds of Unix.
const DATES_FROM: i64 = 946_684_800;

/// Entries of a listing that are read for one response. If a read has to wait for a disk, the
/// response starts again with the first entry.
const ENTRIES: usize = 256;

/// Form of a session's listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As for other clients.
    Plain = 0,
    /// With access, modes and Finder information.
    First = 1,
    /// As `First`, and marks files that have no streams.
    Second = 2,
}

impl Form {
    /// The form that a session has stored as this number; `Plain` for one that is none.
    pub fn from_number(number: u8) -> Form {
        match number {
            1 => Form::First,
            2 => Form::Second,
            _ => Form::Plain,
        }
    }
}

/// Parts that a client asks for (SERVER_QUERY), and its own capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    asked: u64,
    client: u64,
}

impl Query {
    /// Decodes the data of the context; `None` for another command.
    pub fn decode(data: &[u8]) -> Result<Option<Query>, DecodeError> {
        let mut r = Reader::new(data);
        let command = r.u32()?;
        if command != SERVER_QUERY {
            return Ok(None);
        }
        r.u32()?;
        let (asked, client) = (r.u64()?, r.u64()?);
        Ok(Some(Query { asked, client }))
    }

    /// Returns the form of listings from now on, if capabilities were asked for.
    pub fn form(self) -> Option<Form> {
        let form = match self.client {
            caps if caps & READ_DIR_ATTR_2 != 0 => Form::Second,
            caps if caps & READ_DIR_ATTR != 0 => Form::First,
            _ => Form::Plain,
        };
        (self.asked & SERVER_CAPS != 0).then_some(form)
    }

    /// The data of the response's context.
    pub fn answer(self) -> Vec<u8> {
        let asked = self.asked & (SERVER_CAPS | VOLUME_CAPS | MODEL);
        let mut out = Vec::new();
        out.put_u32(SERVER_QUERY);
        out.put_u32(0);
        out.put_u64(asked);
        if let Some(form) = self.form() {
            out.put_u64(
                UNIX_BASED
                    | match form {
                        Form::Plain => 0,
                        Form::First => READ_DIR_ATTR,
                        Form::Second => READ_DIR_ATTR_2,
                    },
            );
        }
        if asked & VOLUME_CAPS != 0 {
            out.put_u64(FULL_SYNC);
        }
        if asked & MODEL != 0 {
            let model = utf16("Weir");
            out.put_u32(0);
            out.put_u32(model.len() as u32);
            out.put(&model);
        }
        out
    }
}

/// The bytes of an entry from EaSize up to FileId: the access, the flags or the length of the data
/// in place of the short name, those data, and the mode.
pub(crate) type Extra = [u8; 32];
/// Offset of [`Extra`] in an entry.
pub(crate) const EXTRA_AT: usize = 64;

fn extra(form: Form, access: u32, streams: &Streams, attr: &Attr) -> Extra {
    const SHORT_NAME: u16 = 24;
    const NO_STREAMS: u16 = 1;
    let kind: u32 = match attr.kind {
        FileKind::Fifo => 0o010_000,
        FileKind::Char => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::Block => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    };
    let regular = attr.kind == FileKind::Regular;
    let mut out = Vec::with_capacity(32);
    out.put_u32(access);
    out.put_u16(match (form, streams.any) {
        (Form::Second, false) => NO_STREAMS,
        (Form::Second, true) => 0,
        _ => SHORT_NAME,
    });
    out.put_u64(if regular { streams.resource } else { 0 });
    // Type and creator of a file; flags, and more of them.
    let finder = &streams.finder;
    let of_file = if regular { &finder[..8] } else { &[0; 8] };
    out.put(of_file);
    out.put(&finder[8..10]);
    out.put(&finder[24..26]);
    // When it was added: for want of anything better, when it was made. Big-endian, as all of the
    // Finder's.
    let added = attr.btime.secs.saturating_sub(DATES_FROM);
    let added = added.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    out.put(&added.to_be_bytes());
    out.put_u16((kind | attr.mode & 0o7777) as u16);
    let mut all = [0; 32];
    all.copy_from_slice(&out);
    all
}

/// Information from the streams of a file.
#[derive(Default)]
struct Streams {
    any: bool,
    /// The size of the resource fork.
    resource: u64,
    finder: [u8; 32],
}

/// An entry that a listing comes to.
struct Next {
    cookie: u64,
    name: String,
    at: Option<FileRef>,
    attr: Option<Attr>,
}

impl Run<'_> {
    /// Appends the entries of a directory behind `listing` that match `wanted` to `out`: one if
    /// `single`, otherwise as many as `most` bytes and one response have room for. Returns whether
    /// there are any, and whether one more had no room.
    pub(crate) fn list_with_attributes(
        &mut self,
        session: &Session,
        (open, file): (&Open, &File),
        (wanted, most, single): (&str, usize, bool),
        listing: &mut Listing,
        (form, out): (Form, &mut Vec<u8>),
    ) -> Result<(bool, bool), Stop<Failure>> {
        let (dir, charged) = self.enter(session, file.id, Access::Open(open), MetadataRead)?;
        let access_based = self.is_access_based(file.id);
        let here = dir.getattr(&mut self.c.cx)?;
        let mut entries = Entries::new(out, most, Entry::IdBoth, self.s.domains().known());
        let one = !names::is_wild(wanted) && wanted != "." && wanted != "..";
        loop {
            let (next, eof) = match one {
                true => (self.named_one(&dir, wanted, file, listing)?, true),
                false => self.following(&dir, &charged, (&here, file), listing.cookie, most)?,
            };
            for Next {
                cookie,
                name,
                at,
                attr,
            } in next
            {
                let before = std::mem::replace(&mut listing.cookie, cookie);
                // The entry is gone, or cannot be read.
                let (Some(at), Some(attr)) = (at, attr) else {
                    continue;
                };
                if !one && !names::matches(wanted, &name) {
                    continue;
                }
                let dots = name == "." || name == "..";
                let operand = dir.with_file(at);
                let attr = match dots {
                    true => attr,
                    false => match operand.getattr(&mut self.c.cx) {
                        Err(Stop::Failed(_)) => continue,
                        attr => attr?,
                    },
                };
                let may = operand.permitted(&attr);
                if access_based && !dots && !may.read {
                    continue;
                }
                let streams = match dots {
                    true => Streams::default(),
                    false => self.streams_of(session, &operand, &charged, may.read)?,
                };
                let found = ResolvedFile {
                    file: at,
                    attr,
                    named: OpenName::default(),
                    removable: (!dots).then(|| dir.removes(&here, &attr)),
                    made: false,
                    base: None,
                };
                let extra = extra(form, allowed(&operand, &found), &streams, &attr);
                let full = single && entries.any();
                if full || !entries.add(&name, &attr, Some(&extra)) {
                    listing.cookie = before;
                    return Ok((entries.any(), true));
                }
            }
            if eof || entries.any() {
                return Ok((entries.any(), false));
            }
        }
    }

    /// The entry of one name, unless it was returned before.
    fn named_one(
        &mut self,
        dir: &Operand<'_>,
        wanted: &str,
        file: &File,
        listing: &Listing,
    ) -> Result<Vec<Next>, Stop<Failure>> {
        if listing.any {
            return Ok(Vec::new());
        }
        match listed(dir, &mut self.c.cx, &names::stored(wanted)?, file.posix) {
            Ok((found, at, stored)) => Ok(vec![Next {
                cookie: listing.cookie,
                name: file.to_client_name(&stored),
                at: Some(at),
                attr: Some(found.attr),
            }]),
            Err(Stop::Failed(Error::NotFound)) => Ok(Vec::new()),
            Err(why) => Err(why.into()),
        }
    }

    /// Entries behind a cookie, and whether they are the last ones.
    fn following(
        &mut self,
        dir: &Operand<'_>,
        charged: &ChargeProof<MetadataRead>,
        (here, file): (&Attr, &File),
        cookie: u64,
        most: usize,
    ) -> Result<(Vec<Next>, bool), Stop<Failure>> {
        let limit = ReadDirLimit {
            entries: ENTRIES,
            bytes: most.clamp(4096, 64 << 10),
            attrs: true,
        };
        let mut all = Vec::new();
        let each = &mut |entry: &DirEntry<'_>, at: Option<FileRef>| {
            let dots = matches!(entry.name, b"." | b"..");
            all.push(Next {
                cookie: entry.cookie,
                name: match dots {
                    true => String::from_utf8_lossy(entry.name).into_owned(),
                    false => file.to_client_name(entry.name),
                },
                at: at.or(dots.then(|| dir.file())),
                attr: entry.attr.or(dots.then_some(*here)),
            });
            true
        };
        let out = dir.list_on(&mut self.c.cx, charged, cookie, limit, each)?;
        Ok((all, out.eof))
    }

    /// Returns the information from an entry's streams. Contents are left out if the caller may not
    /// read the file.
    fn streams_of(
        &mut self,
        session: &Session,
        operand: &Operand<'_>,
        charged: &ChargeProof<MetadataRead>,
        may_read: bool,
    ) -> Result<Streams, Stop<Failure>> {
        let all = match operand.streams_on(&mut self.c.cx, charged) {
            Err(Stop::Failed(_)) => Vec::new(),
            all => all?,
        };
        let called = |name: &[u8]| all.iter().find(|s| s.name.eq_ignore_ascii_case(name));
        let mut out = Streams {
            any: !all.is_empty(),
            resource: called(RESOURCE).map_or(0, |stream| stream.attr.size),
            finder: [0; 32],
        };
        let Some(info) = called(INFO).filter(|_| may_read) else {
            return Ok(out);
        };
        let id = FileId {
            ino: info.attr.ino,
            ..operand.file_id()
        };
        // The permissions of a stream are its file's.
        let access = Access::Made(&session.walker, &session.walker.who);
        let (stream, read) = self.enter(session, id, access, DataRead(FINDER.end))?;
        match stream.read(&mut self.c.cx, read, 0) {
            // Locked, or gone.
            Err(Stop::Failed(_)) => {}
            data => {
                let bytes = data?.to_vec();
                if let Some(finder) = bytes.get(FINDER).filter(|_| bytes.starts_with(b"AFP\0")) {
                    out.finder.copy_from_slice(finder);
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_answered_with_what_it_asks_for() {
        let ask = |command: u32, asked: u64, client: u64| {
            let mut data = Vec::new();
            data.put_u32(command);
            data.put_u32(0);
            data.put_u64(asked);
            data.put_u64(client);
            Query::decode(&data)
        };
        let answer = |asked, client| {
            let answer = ask(1, asked, client).unwrap().unwrap().answer();
            let (words, _) = answer.as_chunks::<8>();
            words
                .iter()
                .map(|w| u64::from_le_bytes(*w))
                .collect::<Vec<u64>>()
        };
        assert_eq!(answer(1, 0x3f), [1, 1, 0x14]);
        assert_eq!(answer(1, 0x0f), [1, 1, 0x05]);
        assert_eq!(answer(1, 0), [1, 1, 0x04]);
        // Unknown parts of a query are not in the answer.
        assert_eq!(answer(0xffff_fff2, 0x3f), [1, 2, 4]);
        let weir = u64::from_le_bytes(*b"W\0e\0i\0r\0");
        assert_eq!(answer(7, 0x3f), [1, 7, 0x14, 4, 8 << 32, weir]);
        assert_eq!(answer(0, 0x3f), [1, 0]);
        assert_eq!(ask(2, 7, 0x3f), Ok(None));
        assert_eq!(Query::decode(&[1, 0, 0, 0, 0]), Err(DecodeError));
        let forms = [0, 1, 0x10].map(|client| ask(1, 1, client).unwrap().unwrap().form());
        assert_eq!(forms, [Form::Plain, Form::First, Form::Second].map(Some));
        assert_eq!(ask(1, 6, 0x3f).unwrap().unwrap().form(), None);
    }
}

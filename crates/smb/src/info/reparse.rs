//! Symbolic links as clients of SMB see them: reparse points of the tag SYMLINK (MS-FSCC §2.1.2.4,
//! MS-SMB2 §2.2.2.2.1).
//!
//! The server follows no link. A CREATE whose path leads over one fails with STOPPED_ON_SYMLINK.
//! The response has the link's target and the length of the path behind the link. The client joins
//! both to another path, if its own rules let it follow the link, and opens that. A CREATE with
//! FILE_OPEN_REPARSE_POINT opens the link itself. So a link gives access to nothing outside of a
//! share: only the client interprets the target, and needs access to it.
//!
//! **Creation.** A client creates an empty file, or a directory if the target is one, and sets its
//! reparse point (FSCTL_SET_REPARSE_POINT). Then it is a link for all protocols, with the same id
//! ([`weir_vfs::Operand::convert`]). Setting the point of a link changes its target. Deleting it
//! (FSCTL_DELETE_REPARSE_POINT) restores the empty file or directory. A reparse point with the tag
//! NFS, whose path has the form of NFS, makes the same link, which is shown with the tag SYMLINK.
//!
//! A target is shown with backslashes, and its names as names of files are
//! ([`names::to_client_name`]). A target that begins with `/` is an absolute path of NFS clients.
//! It is shown without the flag for relative targets, and means nothing to Windows. Setting a
//! target as it is shown makes the same link, so copies of links are exact. A relative target that
//! begins with `\` starts at the share's root. File systems have no such target, so it becomes a
//! path from the link's directory. Absolute targets of Windows (`\??\C:\…`, `\??\UNC\…`) are
//! refused: the server does not know which of them are in this share, and NFS clients could not use
//! any other. A target has 4,095 bytes at most, and each is at most one unit of UTF-16, so that
//! both copies fit in a message many times over.

use crate::context::run::{Failure, Run};
use crate::info::entry::{TAG_NFS, TAG_SYMLINK};
use crate::open::session::{Access, File, Open, Session};
use crate::proto::dialect::Dialect;
use crate::proto::status::Status;
use crate::proto::{filter, mask, names};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_auth::wire::{Put, Reader, from_utf16};
use weir_base::limits::MAX_SYMLINK;
use weir_vfs::volume::{Attr, FileKind};
use weir_vfs::{Error, FileId, FileRef, MetadataRead, MetadataWrite, Namespace, Stop};

/// "SYML" (MS-SMB2 §2.2.2.2.1).
const ERROR_TAG: u32 = 0x4c4d_5953;
/// SYMLINK_FLAG_RELATIVE.
const RELATIVE: u32 = 1;

/// Bytes of a reparse point at most (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
const MOST: usize = 16_384;
/// Bytes of its header, and of the GUID that follows with tags that are not Microsoft's.
const HEADER: usize = 8;
const GUID: usize = 16;
/// NFS_SPECFILE_LNK, and the other kinds of the tag NFS: CHR, BLK, FIFO and SOCK (MS-FSCC
/// §2.1.2.6).
const NFS_LINK: u64 = 0x014b_4e4c;
const NFS_OTHERS: [u64; 4] = [0x0052_4843, 0x004b_4c42, 0x4f46_4946, 0x4b43_4f53];

/// Returns true for a symbolic link.
pub(crate) fn is_link(attr: &Attr) -> bool {
    attr.kind == FileKind::Symlink
}

/// Returns the target in bytes of UTF-16, and its flags.
fn encode_target(target: &[u8]) -> (Vec<u8>, u32) {
    let all: Vec<String> = target
        .split(|byte| *byte == b'/')
        .map(names::to_client_name)
        .collect();
    let mut out = Vec::new();
    out.put_utf16(&all.join("\\"));
    let relative = !target.starts_with(b"/");
    (out, if relative { RELATIVE } else { 0 })
}

/// Joins the names of a target. `separator` separates them in `text`, and `stored` encodes each.
fn joined(
    text: &str,
    separator: char,
    stored: impl Fn(&str) -> Result<Vec<u8>, Status>,
) -> Result<Vec<u8>, Status> {
    let names: Result<Vec<Vec<u8>>, Status> = text.split(separator).map(stored).collect();
    let names = names.map_err(|_| Status::IO_REPARSE_DATA_INVALID)?;
    Ok(names.join(&b'/'))
}

/// The tag of a reparse point that is to be set or deleted, the length that it says, and what is
/// behind the header, which is as long or has a GUID as well (MS-FSA §2.1.5.10.3, §2.1.5.10.37).
fn header(input: &[u8]) -> Result<(u32, usize, &[u8]), Status> {
    let bad = Status::IO_REPARSE_DATA_INVALID;
    if input.len() > MOST {
        return Err(bad);
    }
    let mut r = Reader::new(input);
    let mut head = || Some((r.u32().ok()?, r.u16().ok()?, r.u16().ok()?));
    let (tag, len, _) = head().ok_or(bad)?;
    let data = input.get(HEADER..).unwrap_or_default();
    let len = usize::from(len);
    if data.len() != len && data.len() != len + GUID {
        return Err(bad);
    }
    match tag {
        0 | 1 => Err(Status::IO_REPARSE_TAG_INVALID),
        tag => Ok((tag, len, data)),
    }
}

/// The tag and the target of a link that is to be made of a file with so many directories above it,
/// below the share's root.
fn wanted(input: &[u8], depth: usize) -> Result<(u32, Vec<u8>), Status> {
    let bad = Status::IO_REPARSE_DATA_INVALID;
    let (tag, len, data) = header(input)?;
    let target = match tag {
        TAG_SYMLINK if len == data.len() => symlink(data, depth)?,
        TAG_NFS if len == data.len() => of_nfs(data)?,
        TAG_SYMLINK | TAG_NFS => return Err(bad),
        _ => return Err(Status::NOT_SUPPORTED),
    };
    match target.len() {
        0 => Err(bad),
        1..=MAX_SYMLINK => Ok((tag, target)),
        _ => Err(Status::NAME_TOO_LONG),
    }
}

/// The target in the data of the tag SYMLINK (MS-FSCC §2.1.2.4), the other way round than
/// [`encode_target`]. The name to be printed is nobody's business, but has to be one.
fn symlink(data: &[u8], depth: usize) -> Result<Vec<u8>, Status> {
    let bad = Status::IO_REPARSE_DATA_INVALID;
    let mut r = Reader::new(data);
    let mut fields = || {
        let mut place = || Some((r.u16().ok()?, r.u16().ok()?));
        let (name, printed) = (place()?, place()?);
        Some((name, printed, r.u32().ok()?))
    };
    let (name, printed, flags) = fields().ok_or(bad)?;
    let names = r.rest();
    let text = |(offset, len): (u16, u16)| {
        let (offset, len) = (usize::from(offset), usize::from(len));
        let bytes = names.get(offset..offset + len).ok_or(bad)?;
        match offset % 2 {
            0 => from_utf16(bytes).map_err(|_| bad),
            _ => Err(bad),
        }
    };
    let (name, _) = (text(name)?, text(printed)?);
    if name.is_empty() || flags & !RELATIVE != 0 {
        return Err(bad);
    }
    let path = |text: &str| joined(text, '\\', names::stored);
    match (flags == RELATIVE, name.strip_prefix('\\')) {
        (true, None) => path(&name),
        (true, Some(below)) => {
            let mut way = vec![b"..".to_vec(); depth];
            if !below.is_empty() {
                way.push(path(below)?);
            } else if depth == 0 {
                way.push(b".".to_vec());
            }
            Ok(way.join(&b'/'))
        }
        (false, Some(rest)) if !rest.starts_with("??\\") => path(&name),
        (false, _) => Err(Status::NOT_SUPPORTED),
    }
}

/// The target in the data of the tag NFS (MS-FSCC §2.1.2.6): a path with `/` between its names,
/// which have any other character.
fn of_nfs(data: &[u8]) -> Result<Vec<u8>, Status> {
    let bad = Status::IO_REPARSE_DATA_INVALID;
    let mut r = Reader::new(data);
    match r.u64().map_err(|_| bad)? {
        NFS_LINK => {}
        kind if NFS_OTHERS.contains(&kind) => return Err(Status::NOT_SUPPORTED),
        _ => return Err(bad),
    }
    let text = from_utf16(r.rest()).map_err(|_| bad)?;
    joined(&text, '/', |name| names::stored(&names::of_posix(name)))
}

/// Writes the part that the two forms share, from SubstituteNameOffset on. The substitute name
/// equals the print name.
fn put_names(out: &mut Vec<u8>, name: &[u8], flags: u32) -> Option<()> {
    let len = u16::try_from(name.len()).ok()?;
    for (offset, len) in [(0, len), (len, len)] {
        out.put_u16(offset);
        out.put_u16(len);
    }
    out.put_u32(flags);
    out.put(name);
    out.put(name);
    Some(())
}

/// Bytes of what [`put_names`] writes.
fn length(name: &[u8]) -> Option<u16> {
    u16::try_from(12 + 2 * name.len()).ok()
}

/// REPARSE_DATA_BUFFER of a link.
fn buffer(target: &[u8]) -> Option<Vec<u8>> {
    let (name, flags) = encode_target(target);
    let mut out = Vec::new();
    out.put_u32(TAG_SYMLINK);
    out.put_u16(length(&name)?);
    out.put_u16(0);
    put_names(&mut out, &name, flags)?;
    Some(out)
}

/// The Symbolic Link Error Response; `unparsed`: bytes of the path behind the link.
fn stopped(target: &[u8], unparsed: usize) -> Option<Vec<u8>> {
    let (name, flags) = encode_target(target);
    let mut out = Vec::new();
    out.put_u32(0);
    out.put_u32(ERROR_TAG);
    out.put_u32(TAG_SYMLINK);
    out.put_u16(length(&name)?);
    out.put_u16(u16::try_from(unparsed).ok()?);
    put_names(&mut out, &name, flags)?;
    let len = out.len() as u32 - 4;
    out.set_u32(0, len);
    Some(out)
}

/// Returns the part of a path behind the component that `others` components follow, from its
/// separator or colon on.
fn behind(path: &str, others: usize) -> &str {
    let path = path.strip_suffix('\\').unwrap_or(path);
    let mut separators = path.rmatch_indices('\\');
    let at = match others.checked_sub(1) {
        Some(nth) => separators.nth(nth).map(|(at, _)| at),
        None => {
            let last = separators.next().map_or(0, |(at, _)| at);
            path[last..].find(':').map(|colon| last + colon)
        }
    };
    at.map_or("", |at| &path[at..])
}

/// Checks that the access of an open allows it to set and delete its file's reparse point.
fn may_convert(open: &Open, file: &File) -> Result<(), Status> {
    if open.access & (mask::WRITE_DATA | mask::WRITE_ATTRIBUTES) == 0 {
        return Err(Status::ACCESS_DENIED);
    }
    if file.id.namespace != Namespace::Live {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    match file.base {
        // A stream is neither a file nor a directory.
        Some(_) => Err(Status::INVALID_PARAMETER),
        None => Ok(()),
    }
}

impl Run<'_> {
    /// The response to a CREATE whose path leads over a link, with `others` components behind it.
    pub(crate) fn stopped_on(
        &mut self,
        session: &Session,
        (root, link): (FileId, FileRef),
        path: &str,
        others: usize,
    ) -> Stop<Failure> {
        let target = match self.target(session, root, link) {
            Ok(target) => target,
            Err(why) => return why,
        };
        let unparsed = 2 * behind(path, others).encode_utf16().count();
        let Some(response) = stopped(&target, unparsed) else {
            return Status::IO_DEVICE_ERROR.into();
        };
        let (contexts, data) = match self.conn.dialect() {
            Some(Dialect::Smb311) => {
                // §2.2.2.1: as a context, of the usual kind.
                let mut context = Vec::new();
                context.put_u32(response.len() as u32);
                context.put_u32(0);
                context.put(&response);
                (1, context)
            }
            _ => (0, response),
        };
        Stop::Failed(Failure::With(Status::STOPPED_ON_SYMLINK, contexts, data))
    }

    fn target(
        &mut self,
        session: &Session,
        root: FileId,
        link: FileRef,
    ) -> Result<Vec<u8>, Stop<Failure>> {
        let access = Access::Permissions(&session.walker);
        let (operand, charged) = self.enter(session, root, access, MetadataRead)?;
        let (target, _) = operand.with_file(link).readlink(&mut self.c.cx, charged)?;
        Ok(target)
    }

    /// FSCTL_GET_REPARSE_POINT (MS-FSCC §2.3.30).
    pub(crate) fn reparse_point(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        file: &File,
    ) -> Result<Vec<u8>, Stop<Failure>> {
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), MetadataRead)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        if !is_link(&attr) || file.base.is_some() {
            return Err(Status::NOT_A_REPARSE_POINT.into());
        }
        let (target, _) = operand.readlink(&mut self.c.cx, charged)?;
        Ok(buffer(&target).ok_or(Status::IO_DEVICE_ERROR)?)
    }

    /// FSCTL_SET_REPARSE_POINT (MS-FSCC §2.3.81, MS-FSA §2.1.5.10.37).
    pub(crate) fn set_reparse_point(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        input: &[u8],
    ) -> Result<(), Stop<Failure>> {
        may_convert(open, file)?;
        let depth = file.named.lock().path.matches('\\').count();
        let (tag, target) = wanted(input, depth)?;
        if self.is_link_now(session, open, file)? && tag != TAG_SYMLINK {
            return Err(Status::IO_REPARSE_TAG_MISMATCH.into());
        }
        self.convert(session, open, file, Some(&target))
    }

    /// FSCTL_DELETE_REPARSE_POINT (MS-FSCC §2.3.5, MS-FSA §2.1.5.10.3).
    pub(crate) fn delete_reparse_point(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        input: &[u8],
    ) -> Result<(), Stop<Failure>> {
        may_convert(open, file)?;
        let (tag, len, _) = header(input)?;
        if len != 0 {
            return Err(Status::IO_REPARSE_DATA_INVALID.into());
        }
        if !self.is_link_now(session, open, file)? {
            return Err(Status::NOT_A_REPARSE_POINT.into());
        }
        if tag != TAG_SYMLINK {
            return Err(Status::IO_REPARSE_TAG_MISMATCH.into());
        }
        self.convert(session, open, file, None)
    }

    /// Returns true if an open file has become a link.
    fn is_link_now(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
    ) -> Result<bool, Stop<Failure>> {
        let (operand, _) = self.enter(session, file.id, Access::Open(open), MetadataRead)?;
        Ok(is_link(&operand.getattr(&mut self.c.cx)?))
    }

    /// Turns an open file or directory into a link to `target`, or with `None` a link back. Nothing
    /// is done twice: all waits are before the change.
    fn convert(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        target: Option<&[u8]>,
    ) -> Result<(), Stop<Failure>> {
        let named = file.named.lock().clone();
        // A share's root has no name.
        let dir = named.dir.ok_or(Status::ACCESS_DENIED)?;
        let dir = FileId {
            ino: dir,
            ..file.id
        };
        let (dir, charged) = self.enter(session, dir, Access::Open(open), MetadataWrite)?;
        let here = dir.with_file(dir.near(file.id.ino));
        let place = (&dir, &*named.name);
        let done = match here.convert(&mut self.c.cx, charged, place, target) {
            // It has content, streams or several names, or is neither file nor directory.
            Err(Stop::Failed(Error::Invalid)) => return Err(Status::NOT_SUPPORTED.into()),
            done => done?,
        };
        self.c.wait_for(done.lsn);
        let directory = done.value.after.kind == FileKind::Directory;
        file.directory.store(directory, Ordering::Relaxed);
        self.modified(session, open, filter::ATTRIBUTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_behind_a_link_is_counted_from_its_separator() {
        for (path, others, rest) in [
            ("link", 0, ""),
            ("link\\a\\b", 2, "\\a\\b"),
            ("dir\\link\\b", 1, "\\b"),
            ("dir\\link", 0, ""),
            ("dir\\link:stream", 0, ":stream"),
            ("dir\\link\\f:stream", 1, "\\f:stream"),
            ("dir\\link\\", 0, ""),
        ] {
            assert_eq!(behind(path, others), rest, "{path}");
        }
    }

    #[test]
    fn the_longest_target_fits() {
        let longest = [0xffu8; 4096];
        let response = stopped(&longest, 2 * 32_000).unwrap();
        assert_eq!(response.len(), 28 + 4 * 4096);
        assert_eq!(buffer(&longest).unwrap().len(), 20 + 4 * 4096);
        assert_eq!(stopped(&[b'a'; 1 << 15], 0), None);
        assert_eq!(buffer(&[b'a'; 1 << 15]), None);
    }

    proptest! {
        /// A target that is encoded and decoded is the same.
        #[test]
        fn targets_come_back(target in prop::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(b'\\'), 1u8..], 1..80)) {
            let sent = buffer(&target).unwrap();
            prop_assert_eq!(wanted(&sent, 3), Ok((TAG_SYMLINK, target)));
        }

        /// Any bytes are decoded or refused.
        #[test]
        fn any_bytes_end(mut input in prop::collection::vec(any::<u8>(), 0..60), nfs: bool) {
            let tag = if nfs { TAG_NFS } else { TAG_SYMLINK };
            if let Some(head) = input.first_chunk_mut::<4>() {
                *head = tag.to_le_bytes();
            }
            let len = (input.len() as u16).saturating_sub(8);
            if let Some(place) = input.get_mut(4..6) {
                place.copy_from_slice(&len.to_le_bytes());
            }
            if let Ok((_, target)) = wanted(&input, 2) {
                prop_assert!((1..=MAX_SYMLINK).contains(&target.len()) && !target.contains(&0));
            }
        }
    }

    #[test]
    fn what_leads_from_the_root_on_is_relative_to_the_links_directory() {
        let sent = |text: &str, flags: u32| {
            let mut out = Vec::new();
            let name = weir_auth::wire::utf16(text);
            out.put_u32(TAG_SYMLINK);
            out.put_u16(length(&name).unwrap());
            out.put_u16(0);
            put_names(&mut out, &name, flags).unwrap();
            out
        };
        for (text, depth, target) in [
            ("\\a\\b", 0, "a/b"),
            ("\\a\\b", 2, "../../a/b"),
            ("\\", 0, "."),
            ("\\", 1, ".."),
        ] {
            let made = wanted(&sent(text, RELATIVE), depth);
            assert_eq!(
                made,
                Ok((TAG_SYMLINK, target.as_bytes().to_vec())),
                "{text}"
            );
        }
    }
}

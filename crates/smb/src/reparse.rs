//! Symbolic links as clients of SMB see them: reparse points of the tag SYMLINK (MS-FSCC §2.1.2.4, MS-SMB2 §2.2.2.2.1).
//!
//! The server follows no link. A CREATE whose path leads over one fails with STOPPED_ON_SYMLINK, and the response says where the link
//! points, and how much of the path is behind it; the client makes another path of both, by its own rules of which links it follows, and
//! asks for that. A CREATE with FILE_OPEN_REPARSE_POINT opens the link itself. So nothing outside of a share is reached by a link: what a
//! target means, only the client decides, and it has to be let in where it goes.
//!
//! A target is shown with backslashes, its names as names are shown ([`names::shown`]). One that begins with `/` is an absolute path of
//! NFS's clients: it is shown without the flag that says it is relative, and means nothing to Windows. A target has 4,095 bytes at most, of which
//! each is one unit of UTF-16 at most, so that both copies of it fit in a message many times over.

use crate::chain::{Fail, Run};
use crate::info::TAG_SYMLINK;
use crate::names;
use crate::negotiate::Dialect;
use crate::session::{Access, File, Open, Session};
use crate::status::Status;
use crate::wire::Put;
use std::sync::Arc;
use weir_vfs::volume::{Attr, FileKind};
use weir_vfs::{FileId, FileRef, Looks};

/// "SYML" (MS-SMB2 §2.2.2.2.1).
const ERROR_TAG: u32 = 0x4c4d_5953;
/// SYMLINK_FLAG_RELATIVE.
const RELATIVE: u32 = 1;

/// Whether it is a symbolic link.
pub(crate) fn is_link(attr: &Attr) -> bool {
    attr.kind == FileKind::Symlink
}

/// The target in bytes of UTF-16, and its flags.
fn shown(target: &[u8]) -> (Vec<u8>, u32) {
    let all: Vec<String> = target
        .split(|byte| *byte == b'/')
        .map(names::shown)
        .collect();
    let mut out = Vec::new();
    out.put_utf16(&all.join("\\"));
    let relative = !target.starts_with(b"/");
    (out, if relative { RELATIVE } else { 0 })
}

/// What the two forms have in common: from SubstituteNameOffset on. The name that is substituted is the one that is shown.
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
    let (name, flags) = shown(target);
    let mut out = Vec::new();
    out.put_u32(TAG_SYMLINK);
    out.put_u16(length(&name)?);
    out.put_u16(0);
    put_names(&mut out, &name, flags)?;
    Some(out)
}

/// The Symbolic Link Error Response; `unparsed`: bytes of the path behind the link.
fn stopped(target: &[u8], unparsed: usize) -> Option<Vec<u8>> {
    let (name, flags) = shown(target);
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

/// Of a path, what is behind the component that so many others follow, from its separator or colon on.
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

impl Run<'_> {
    /// The response to a CREATE whose path leads over a link, with `others` components behind it.
    pub(crate) fn stopped_on(
        &mut self,
        session: &Session,
        (root, link): (FileId, FileRef),
        path: &str,
        others: usize,
    ) -> Fail {
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
        Fail::With(Status::STOPPED_ON_SYMLINK, contexts, data)
    }

    fn target(&mut self, session: &Session, root: FileId, link: FileRef) -> Result<Vec<u8>, Fail> {
        let access = Access::Permissions(&session.walker);
        let (operand, charged) = self.enter(session, root, access, Looks)?;
        let (target, _) = operand.at(link).readlink(&mut self.c.cx, charged)?;
        Ok(target)
    }

    /// FSCTL_GET_REPARSE_POINT (MS-FSCC §2.3.30).
    pub(crate) fn reparse_point(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        file: &File,
    ) -> Result<Vec<u8>, Fail> {
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), Looks)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        if !is_link(&attr) || file.base.is_some() {
            return Err(Status::NOT_A_REPARSE_POINT.into());
        }
        let (target, _) = operand.readlink(&mut self.c.cx, charged)?;
        Ok(buffer(&target).ok_or(Status::IO_DEVICE_ERROR)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

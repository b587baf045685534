//! Named streams (MS-FSCC §2.1.5): opened by `file:stream`, listed with their file, renamed within
//! it. Also the other properties that a file gets when it is created.
//!
//! A stream has its own data and claims. Attributes, permissions and identity are its file's. To
//! create a stream of a file that does not exist creates the file too. NFS does not see streams.

use crate::context::run::{Failure, Operand, Run};
use crate::context::step::{ResolvedFile, Step};
use crate::info::entry::{self, attributes};
use crate::open::session::{Access, Base, File, Open, OpenName, Session};
use crate::ops::create::has_room;
use crate::ops::read_write::is_regular;
use crate::ops::request::{Request, option};
use crate::proto::names;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::wire::{Put, utf16};
use weir_vfs::claims::Modes;
use weir_vfs::volume::{Attr, FileKind};
use weir_vfs::{Error, FileId, MetadataRead, MetadataWrite, Stop, Suspend};

/// The attributes of a stream as clients see them: its own size, and all else of its file.
pub(crate) fn merged(base: &Attr, stream: &Attr) -> Attr {
    Attr {
        kind: FileKind::Regular,
        size: stream.size,
        used: stream.used,
        ..*base
    }
}

impl Run<'_> {
    /// Gives what was made the attributes and the descriptor that it is to have from the beginning.
    pub(crate) fn dress(
        &mut self,
        session: &Session,
        root: &Operand<'_>,
        found: &ResolvedFile,
        request: &Request,
    ) -> Result<(), Stop<Failure>> {
        let (file, access) = (
            root.with_file(found.file).file_id(),
            Access::Made(&session.walker, &session.walker.who),
        );
        if found.base.is_some() {
            // These are its file's.
            return Ok(());
        }
        for ea in &request.eas {
            let (operand, charged) = self.enter(session, file, access, MetadataWrite)?;
            self.set_ea(&operand, charged, &[], ea)?;
        }
        if let Some(wanted) = &request.security {
            let directory = found.attr.kind == FileKind::Directory;
            let base = Base {
                id: file,
                directory,
            };
            self.put_security(session, base, &session.walker, wanted)?;
        }
        Ok(())
    }

    /// Finds a stream of what was found, or makes it.
    pub(crate) fn stream(
        &mut self,
        session: &Session,
        root: &Operand<'_>,
        of: ResolvedFile,
        name: &[u8],
        request: &Request,
    ) -> Result<ResolvedFile, Stop<Failure>> {
        if request.asks(option::DIRECTORY) {
            return Err(Status::NOT_A_DIRECTORY.into());
        }
        let here = root.with_file(of.file);
        let base = Base {
            id: here.file_id(),
            directory: of.attr.kind == FileKind::Directory,
        };
        if let Some(removal) = self.s.vfs.claims.removing(base.id) {
            return Err(Suspend::Recall(removal).into());
        }
        if self.s.vfs.claims.delete_pending(base.id) {
            return Err(Status::DELETE_PENDING.into());
        }
        let (found, file, made) = match here.stream(&mut self.c.cx, name) {
            Ok((found, file)) => (found, file, false),
            Err(Stop::Failed(Error::NotFound)) => {
                if !request.disposition.makes() {
                    return Err(Status::OBJECT_NAME_NOT_FOUND.into());
                }
                if u32::from(of.attr.dos) & attributes::READONLY != 0 {
                    return Err(Status::ACCESS_DENIED.into());
                }
                let access = match of.made {
                    true => Access::Made(&session.walker, &session.walker.who),
                    false => Access::Permissions(&session.walker),
                };
                let (operand, charged) = self.enter(session, base.id, access, MetadataWrite)?;
                has_room(&operand, &of.attr, request.allocation, 0)?;
                match operand.make_stream(&mut self.c.cx, charged, name) {
                    Err(Stop::Failed(Error::Exists)) => return Err(Suspend::Turn.into()),
                    made => {
                        let (done, file) = made?;
                        self.c.wait_for(done.lsn);
                        (done.value, file, true)
                    }
                }
            }
            Err(why) => return Err(why.into()),
        };
        let shown = String::from_utf8_lossy(&found.name);
        let found = ResolvedFile {
            file,
            attr: merged(&of.attr, &found.attr),
            named: OpenName {
                dir: Some(base.id.ino),
                path: format!("{}:{shown}", of.named.path),
                name: found.name.clone(),
            },
            removable: of.removable,
            made,
            base: Some(base),
        };
        if made {
            self.c.step = Step::Made(Box::new(found.clone()));
        }
        Ok(found)
    }

    /// FileStreamInformation (MS-FSCC §2.4.49): the file's own data, which a directory has not, and
    /// its streams.
    pub(crate) fn put_streams(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop<Failure>> {
        let base = file.main();
        let access = Access::Made(&open.owner, &open.key);
        let (operand, charged) = self.enter(session, base.id, access, MetadataRead)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        let mut all = Vec::new();
        if is_regular(&attr) {
            all.push((String::new(), attr));
        }
        for stream in operand.streams(&mut self.c.cx, charged)? {
            all.push((
                String::from_utf8_lossy(&stream.name).into_owned(),
                stream.attr,
            ));
        }
        let mut last: Option<usize> = None;
        for (name, attr) in &all {
            out.align(0, 8);
            let at = out.len();
            if let Some(last) = last.replace(at) {
                out.set_u32(last, (at - last) as u32);
            }
            let name = utf16(&format!(":{name}:$DATA"));
            out.put_u32(0);
            out.put_u32(name.len() as u32);
            out.put_u64(attr.size);
            out.put_u64(entry::allocated(attr));
            out.put(&name);
        }
        Ok(())
    }

    /// FileRenameInformation of a stream, which stays its file's.
    pub(crate) fn rename_stream(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        (file, base): (&File, Base),
        (to, replace): (&str, bool),
    ) -> Result<(), Stop<Failure>> {
        let ("", Some(name)) = names::split_stream(to)? else {
            return Err(Status::INVALID_PARAMETER.into());
        };
        let old = file.named.lock().clone();
        let access = Access::Made(&open.owner, &open.key);
        let (operand, charged) = self.enter(session, base.id, access, MetadataWrite)?;
        match operand.stream(&mut self.c.cx, &name) {
            Ok((other, at)) if replace && at.ino != file.id.ino => {
                let taken = FileId {
                    ino: at.ino,
                    ..base.id
                };
                // A stream that others have open is not replaced.
                if !self.passes(session, taken, Modes::BOTH | Modes::DELETE)? {
                    return Err(Status::ACCESS_DENIED.into());
                }
                let (operand, charged) = self.enter(session, base.id, access, MetadataWrite)?;
                let done = operand.move_stream(&mut self.c.cx, charged, &other.name, None)?;
                self.c.wait_for(done.lsn);
            }
            Ok(_) | Err(Stop::Failed(Error::NotFound)) => {}
            Err(why) => return Err(why.into()),
        }
        let done = operand.move_stream(&mut self.c.cx, charged, &old.name, Some(&name))?;
        self.c.wait_for(done.lsn);
        self.c.step = Step::Done;
        let (of, _) = old.path.split_once(':').unwrap_or((&old.path, ""));
        let path = format!("{of}:{}", String::from_utf8_lossy(&name));
        *file.named.lock() = OpenName {
            name: name.into(),
            path,
            ..old
        };
        Ok(())
    }
}

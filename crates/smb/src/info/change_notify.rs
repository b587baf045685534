//! CHANGE_NOTIFY (MS-SMB2 §3.3.5.19). See [`crate::open::notify`].

use crate::context::run::{CommandResult, Run};
use crate::context::step::Step;
use crate::open::feed::Got;
use crate::open::notify::{OpenWatch, TREE, Watch};
use crate::open::session::{Access, File, Open, Session};
use crate::proto::dialect::MAX_TRANSFER;
use crate::proto::mask;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::wire::{Put, Reader};
use weir_vfs::claims::{Event as Claimed, Style};
use weir_vfs::notify::Event;
use weir_vfs::{AccessModel, Exempt, FileId, MetadataRead, Stop, Suspend};

impl Run<'_> {
    /// CHANGE_NOTIFY.
    pub(crate) fn change_notify(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 32 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (flags, len) = (r.u16()?, r.u32()?);
        let halves = (r.u64()?, r.u64()?);
        let bits = r.u32()?;
        let asked = match std::mem::take(&mut self.c.step) {
            Step::Watches(asked) => *asked,
            _ => {
                if len > MAX_TRANSFER {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                self.charged(len as usize)?;
                let (session, open) = (self.session()?, self.open(halves)?);
                let file = open.file().filter(|file| file.directory());
                let file = file.ok_or(Status::INVALID_PARAMETER)?;
                if !open.may(mask::READ_DATA) {
                    return Err(Status::ACCESS_DENIED.into());
                }
                // It costs nothing, but it is of a directory that the session may use.
                let _ = self.enter(&session, file.id, Access::Open(&open), Exempt)?;
                let what = (bits, flags & TREE != 0);
                let asked = match self
                    .watch(file, what, len as usize)?
                    .request_changes(len as usize)
                {
                    Ok(got) => return self.put_changes(got),
                    Err(asked) => asked,
                };
                if self.s.vfs.claims.delete_pending(file.id) {
                    return Err(Status::DELETE_PENDING.into());
                }
                asked
            }
        };
        let got = asked.waiter.got.lock().take();
        match got {
            Some(got) => self.put_changes(got),
            None => {
                let came = Arc::clone(&asked.waiter.came);
                self.c.step = Step::Watches(Box::new(asked));
                Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
                    came.settled().await;
                }))))
            }
        }
    }

    /// The watch of an open directory, which begins now if it has none.
    fn watch(&self, file: &File, what: (u32, bool), len: usize) -> Result<Arc<Watch>, Status> {
        let mut watching = file.watch.lock();
        match &*watching {
            OpenWatch::By(watch) => return Ok(Arc::clone(watch)),
            OpenWatch::Over => return Err(Status::FILE_CLOSED),
            OpenWatch::Nothing => {}
        }
        let begin = || self.s.watches.begin(file.id, what, len);
        let new = self.s.with_room(self.conn.peer, begin, Option::is_none);
        let new = new.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        *watching = OpenWatch::By(Arc::clone(&new));
        Ok(new)
    }

    fn put_changes(&mut self, got: Got) -> CommandResult {
        let (data, status) = match got {
            Ok(data) => (data, Status::SUCCESS),
            Err(Status::NOTIFY_ENUM_DIR) => (Vec::new(), Status::NOTIFY_ENUM_DIR),
            Err(status) => return Err(status.into()),
        };
        let out = &mut self.c.out;
        out.put_u16(9);
        out.put_u16((crate::proto::header::HEADER + 8) as u16);
        out.put_u32(data.len() as u32);
        out.put(&data);
        Ok(status)
    }

    /// Reports that something of an open file was changed, by the name that it was opened by.
    pub(crate) fn modified(&mut self, session: &Session, open: &Open, bits: u32) {
        let Some(file) = open.file().filter(|file| file.base.is_none()) else {
            return;
        };
        let vfs = &self.s.vfs;
        let (watched, claimed) = (
            vfs.watchers.is_active(),
            !vfs.claims.version_in(file.id.volume).none(),
        );
        if !watched && !claimed {
            return;
        }
        let named = file.named.lock().clone();
        let Some(dir) = named.dir else {
            return;
        };
        if claimed {
            // Listings that clients cache show sizes, times and attributes. The change is made:
            // whatever this says.
            let listing = FileId {
                ino: dir,
                ..file.id
            };
            let by = Access::Open(open);
            let entries = Claimed::Entries;
            let _ = vfs.claims.names(listing, by.actor(), entries, Style::Unix);
        }
        if !watched {
            return;
        }
        let entered = self.enter(session, file.id, Access::Open(open), MetadataRead);
        if let Ok((operand, _)) = entered {
            let what = (file.id.ino, file.directory());
            operand.report(dir, &named.name, what, Event::Modified(bits));
        }
    }
}

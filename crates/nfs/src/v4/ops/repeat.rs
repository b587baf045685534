//! Requests of before a restart that are sent again: what their operations came to. See
//! [`crate::v4::persistent`].

use super::deleg::Given;
use crate::rpc::xdr::Put;
use crate::v4::args::{Args, How, Open as OpenArgs};
use crate::v4::cursor::{Fh, Operand, OperationResult, Run};
use crate::v4::persistent::{FAILED, Repeated, Request, failed_with};
use crate::v4::session::Session;
use crate::v4::slot::Seen;
use crate::v4::status::Status;
use crate::v4::types::{Bitmap, SessionId, StateId};
use std::sync::Arc;
use weir_base::{Ino, VolumeId};
use weir_vfs::{FileId, Namespace, Stop};

/// A `change_info4` that is of no one moment.
fn put_present(out: &mut Vec<u8>, change: u64) {
    out.put_bool(false);
    out.put_u64(change);
    out.put_u64(change);
}

impl Run<'_> {
    /// A session that is not known, whose request may have been carried out before the restart. Then it is taken up under a session
    /// of this request's own.
    ///
    /// # Errors
    /// BADSESSION for any other; DELAY if there is no memory, or if it changed a strict volume of a mirror whose partner is lost.
    pub(in crate::v4) fn session_before(
        &mut self,
        id: &SessionId,
        request: &Request,
    ) -> Result<(Arc<Session>, Repeated), Status> {
        let found = self.s.before_start.find(id, request, self.c.count);
        let found = found.ok_or(Status::BadSession)?;
        // One side of a mirror alone does not report it. The client asks again.
        if found
            .0
            .iter()
            .any(|(_, volume, _)| self.s.vfs.holds(*volume))
        {
            return Err(Status::Delay);
        }
        let address = self.conn.peer.ip().to_canonical();
        let session = self.s.registry.session_that_was(*id, address)?;
        match session.slots.begin(0, 1, request.checksum) {
            Some(Seen::New) => Ok((session, found)),
            _ => unreachable!("the first request of a session"),
        }
    }

    /// What the operation at hand came to before the restart, if it was carried out then.
    pub(in crate::v4) fn done_before(&self) -> Option<(VolumeId, Ino)> {
        self.c.repeated.as_ref()?.at(self.c.index)
    }

    /// An operation of a session that has ended, which was not carried out before the restart: what makes state is for another
    /// session.
    pub(in crate::v4) fn may_follow(&self, args: &Args<'_>) -> Result<(), Status> {
        match args {
            _ if self.c.repeated.is_none() => Ok(()),
            Args::Open(_) | Args::Lock { .. } | Args::ReclaimComplete(_) => Err(Status::Grace),
            _ => Ok(()),
        }
    }

    /// The operation at hand has failed after what it made was in the log, with its key: a retransmission after a restart is to
    /// fail as well.
    pub(in crate::v4) fn leave_failure(
        &mut self,
        operand: &Operand<'_, '_>,
        status: Status,
    ) -> Result<(), Stop<Status>> {
        let ino = Ino(FAILED | status as u64);
        let lsn = operand.note_call(&mut self.c.cx, ino)?;
        self.c.depends_on(lsn);
        Ok(())
    }

    /// The change counter of an object; 0 if that is gone.
    fn change_of(&mut self, fh: Fh) -> Result<u64, Stop<Status>> {
        let Fh::File(file) = fh else {
            return Ok(0);
        };
        let attr = match self.look(file) {
            Ok(operand) => operand.getattr(&mut self.c.cx),
            Err(Stop::Suspended(wait)) => return Err(wait.into()),
            Err(Stop::Failed(_)) => return Ok(0),
        };
        match attr {
            Ok(attr) => Ok(attr.change),
            Err(Stop::Suspended(wait)) => Err(wait.into()),
            Err(Stop::Failed(_)) => Ok(0),
        }
    }

    fn put_present(&mut self, fh: Fh) -> Result<(), Stop<Status>> {
        let change = self.change_of(fh)?;
        put_present(&mut self.c.out, change);
        Ok(())
    }

    /// Answers an operation that was carried out before the restart, with the inode that it made or changed.
    pub(in crate::v4) fn repeat(
        &mut self,
        args: &Args<'_>,
        (volume, ino): (VolumeId, Ino),
    ) -> OperationResult {
        let current = self.here()?;
        if let Some(status) = failed_with(ino) {
            return Err(status.into());
        }
        let file = FileId {
            volume,
            ino,
            namespace: Namespace::Live,
        };
        match args {
            Args::Create { attrs, .. } => {
                self.put_present(current)?;
                attrs.mask.put(&mut self.c.out);
                self.goes_to(file);
            }
            Args::Open(open) => self.repeat_open(open, file)?,
            Args::Link(_) | Args::Remove(_) | Args::SetXattr { .. } | Args::RemoveXattr(_) => {
                self.put_present(current)?;
            }
            Args::Rename(..) => {
                self.put_present(self.c.saved)?;
                self.put_present(current)?;
            }
            Args::SetAttr(_, attrs) => attrs.mask.put(&mut self.c.out),
            _ => return Err(Status::ServerFault.into()),
        }
        Ok(Status::Ok)
    }

    /// The same of an OPEN that made or cut a file.
    fn repeat_open(&mut self, a: &OpenArgs<'_>, file: FileId) -> Result<(), Stop<Status>> {
        let set = match &a.how {
            How::NoCreate | How::Exclusive(_) => Bitmap::default(),
            How::Unchecked(attrs) | How::Guarded(attrs) | How::ExclusiveWith(_, attrs) => {
                self.new_attrs(attrs, true)?.mask
            }
        };
        let change = self.change_of(self.c.current)?;
        let Some(hold) = &self.c.hold else {
            unreachable!("an operation of a session has a slot");
        };
        // Distinct for each open, as clients expect of stateids.
        let [.., a1, a2, a3, a4] = hold
            .request
            .key(self.s.before_start.secret, &hold.session.id, self.c.index)
            .0;
        let [client @ .., _, _, _, _, _, _, _, _] = hold.session.id;
        let mut other = [0; 12];
        other[..8].copy_from_slice(&client);
        other[8..].copy_from_slice(&[a1, a2, a3, a4]);
        let state = StateId { seqid: 1, other };
        let out = &mut self.c.out;
        state.put(out);
        put_present(out, change);
        out.put_u32(super::open::RESULT);
        set.put(out);
        Given::NONE.put(a.access, out);
        self.goes_to(file);
        self.c.state = state;
        Ok(())
    }
}

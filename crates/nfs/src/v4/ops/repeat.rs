//! Requests from before a restart that are sent again: repeats the results of their operations. See
//! [`crate::v4::persistent`].

use super::deleg::Given;
use crate::rpc::xdr::Put;
use crate::v4::args::{Args, Open as OpenArgs, OpenFlag};
use crate::v4::cursor::{Fh, Operand, OperationResult, Run};
use crate::v4::persistent::{FAILED, RecoveredResults, Request, failed_with};
use crate::v4::session::Session;
use crate::v4::slot::SlotOutcome;
use crate::v4::status::Status;
use crate::v4::types::{Bitmap, SessionId, StateId};
use std::sync::Arc;
use weir_base::{Ino, VolumeId};
use weir_vfs::{FileId, Namespace, Stop};

/// Appends a `change_info4` that is not atomic.
fn put_present(out: &mut Vec<u8>, change: u64) {
    out.put_bool(false);
    out.put_u64(change);
    out.put_u64(change);
}

impl Run<'_> {
    /// Finds a request of an unknown session that was carried out before the restart. Returns a
    /// session for this request alone, and the recorded results.
    ///
    /// # Errors
    /// BADSESSION for any other request; DELAY if there is no memory, or if the request changed a
    /// strict volume whose mirror partner is lost.
    pub(in crate::v4) fn session_before(
        &mut self,
        id: &SessionId,
        request: &Request,
    ) -> Result<(Arc<Session>, RecoveredResults), Status> {
        let found = self.s.before_start.find(id, request, self.c.count);
        let found = found.ok_or(Status::BadSession)?;
        // While the mirror's partner is lost, a strict volume does not confirm changes. The client
        // tries again.
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
            Some(SlotOutcome::New) => Ok((session, found)),
            _ => unreachable!("the first request of a session"),
        }
    }

    /// Returns the recorded result of the current operation, if it was carried out before the
    /// restart.
    pub(in crate::v4) fn done_before(&self) -> Option<(VolumeId, Ino)> {
        self.c.repeated.as_ref()?.find_at(self.c.index)
    }

    /// Checks an operation of an old session that was not carried out before the restart.
    /// Operations that create state are refused: they belong to another session.
    pub(in crate::v4) fn may_follow(&self, args: &Args<'_>) -> Result<(), Status> {
        match args {
            _ if self.c.repeated.is_none() => Ok(()),
            Args::Open(_) | Args::Lock { .. } | Args::ReclaimComplete(_) => Err(Status::Grace),
            _ => Ok(()),
        }
    }

    /// Records that the current operation has failed after its new object was in the log under its
    /// key, so that a retransmission after a restart fails as well.
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

    /// Returns the change counter of an object; 0 if the object is gone.
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

    /// Answers an operation that was carried out before the restart, with the inode that it created
    /// or changed.
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

    /// Answers an OPEN that created or truncated a file before the restart.
    fn repeat_open(&mut self, a: &OpenArgs<'_>, file: FileId) -> Result<(), Stop<Status>> {
        let set = match &a.how {
            OpenFlag::NoCreate | OpenFlag::Exclusive(_) => Bitmap::default(),
            OpenFlag::Unchecked(attrs)
            | OpenFlag::Guarded(attrs)
            | OpenFlag::ExclusiveWith(_, attrs) => self.new_attrs(attrs, true)?.mask,
        };
        let change = self.change_of(self.c.current)?;
        let Some(hold) = &self.c.hold else {
            unreachable!("an operation of a session has a slot");
        };
        // Unique to each open, as clients expect of stateids.
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

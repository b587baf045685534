//! Runner of a COMPOUND (RFC 8881 §16.2): decodes its operations, and carries them out in order.
//! See the parent module.

use super::args::{self, Args, OP_ILLEGAL};
use super::cursor::{ACCESS, Fh, GETATTR, GETFH, OperationResult, Run};
use super::persistent::must_run_once;
use super::status::Status;
use super::types::StateId;
use crate::rpc::failure::Cut;
use crate::rpc::operation;
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::{Put, Reader};
use weir_base::{Lsn, VolumeId};
use weir_vfs::stats::Done;
use weir_vfs::{Stop, Suspend};

/// Maximum size in bytes of the result of an operation without data: OPEN with its stateid, change,
/// bitmap and delegation.
const SMALL_RESULT: usize = 256;

/// Result of a run of a cursor.
pub(super) enum Ran {
    /// All operations were carried out, or one has failed.
    Ended,
    /// The request is a retransmission, and this is its reply.
    Replay(ReplyBuf, Option<Lsn>),
    Waits(Suspend),
}

impl Run<'_> {
    /// Carries operations out until the end, a failure, or a wait.
    pub(super) fn run(mut self) -> Ran {
        while self.c.index < self.c.count {
            let mut r = Reader::new(self.args.get(self.c.at..).unwrap_or_default());
            let Ok(operation) = r.u32() else {
                // The arguments end before the operation's number.
                return self.fails(OP_ILLEGAL, Status::BadXdr);
            };
            if let Some(unread) = self.unread.filter(|_| args::is_long(operation)) {
                return self.fails(operation, unread.status);
            }
            let args = match args::decode(self.c.minor, operation, &mut r) {
                Ok(Args::Illegal) => return self.fails(OP_ILLEGAL, Status::OpIllegal),
                Ok(args) => args,
                Err(_) => return self.fails(operation, Status::BadXdr),
            };
            let behind = self.args.len() - r.rest().len();
            self.c.next = r.u32().ok();
            if let Err(ran) = self.step(operation, &args) {
                return ran;
            }
            self.c.at = behind;
            self.c.index += 1;
        }
        self.c.close(Status::Ok, self.c.count);
        Ran::Ended
    }

    fn fails(&mut self, operation: u32, status: Status) -> Ran {
        self.c.operation_at_hand = operation;
        self.c.fail(status);
        Ran::Ended
    }

    /// Runs one decoded operation.
    fn step(&mut self, operation: u32, args: &Args<'_>) -> Result<(), Ran> {
        self.c.operation_at_hand = operation;
        if !matches!(operation, ACCESS | GETATTR | GETFH) {
            self.c.seen = None;
        }
        if let Some(payload) = self.c.payload.take() {
            // Another result follows the data.
            payload.flatten(&mut self.c.out);
        }
        let (start, lsn) = (self.c.out.len(), self.c.lsn);
        if let Err(status) = self.in_order(operation, args) {
            return Err(self.fails(operation, status));
        }
        let head = u64::from(operation) << 32 | u64::from(Status::Ok as u32);
        self.c.out.put_u64(head);
        let body = self.c.out.len();
        let outcome = match args {
            Args::Sequence(sequence) => match self.sequence(sequence) {
                Ok(None) => Ok(Status::Ok),
                Ok(Some((reply, lsn))) => return Err(Ran::Replay(reply, lsn)),
                Err(status) => Err(Stop::Failed(status)),
            },
            args => match self.done_before() {
                Some(done) => self.repeat(args, done),
                None => self.operate_once(operation, args),
            },
        };
        let outcome = match outcome {
            // The operation changed nothing: for those that do, `in_order` checked the room before.
            Ok(Status::Ok) if self.too_long() => Err(Stop::Failed(self.too_big())),
            outcome => outcome,
        };
        if self.c.lsn != lsn && self.c.cut.is_none() {
            self.c.cut = Some(Cut {
                bytes: (start - self.c.results) as u32,
                before: self.c.index,
                operation,
            });
        }
        match outcome {
            Ok(Status::Ok) => {
                self.finish(operation);
                Ok(())
            }
            Ok(status) => {
                self.c.put_at(body - 4, status as u32);
                self.c.close(status, self.c.index + 1);
                self.finish(operation);
                Err(Ran::Ended)
            }
            Err(Stop::Failed(status)) => {
                self.c.out.truncate(start);
                self.c.payload = None;
                self.finish(operation);
                Err(self.fails(operation, status))
            }
            Err(Stop::Suspended(wait)) => {
                self.c.out.truncate(start);
                self.c.payload = None;
                Err(Ran::Waits(wait))
            }
        }
    }

    /// Ends an operation: the next one has a context of its own.
    fn finish(&mut self, operation: u32) {
        self.c.made = None;
        self.c.copying = None;
        if !std::mem::take(&mut self.c.used) {
            return;
        }
        if let Fh::File(file) = self.c.current {
            self.count(file.volume, operation);
        }
        self.renew_context();
    }

    /// Counts an operation on a volume. Attributes that are read along with another operation are
    /// not counted.
    fn count(&mut self, volume: VolumeId, operation: u32) {
        if matches!(operation, ACCESS | GETATTR) && self.c.counted.is_some() {
            return;
        }
        let bytes = u32::try_from(self.c.cx.moved()).unwrap_or(u32::MAX);
        if let (Some(operation), Some(arrived)) = (operation::nfs4(operation), self.c.now.monotonic)
        {
            self.c.count(Done {
                volume,
                operation,
                bytes,
                arrived,
            });
        }
    }

    /// Checks that the operation is allowed at this position (§2.10.2.1.3, §18.46.3), and that
    /// there may be room for its result.
    #[inline]
    fn in_order(&self, operation: u32, args: &Args<'_>) -> Result<(), Status> {
        let first = self.c.index == 0;
        match args {
            Args::Sequence(_) if !first => return Err(Status::SequencePos),
            Args::Sequence(_) => return Ok(()),
            Args::ExchangeId(_)
            | Args::CreateSession(_)
            | Args::DestroySession(_)
            | Args::DestroyClientId(_)
            | Args::BindConn { .. } => {
                // Alone, or in a session. A connection is bound alone in any case (§18.34.3).
                let alone = first && self.c.count == 1;
                let bind = matches!(args, Args::BindConn { .. });
                if !alone && (self.c.hold.is_none() || bind) {
                    return Err(Status::NotOnlyOp);
                }
            }
            _ if self.c.hold.is_none() => return Err(Status::OpNotInSession),
            _ => {}
        }
        if changes(operation) && self.c.room() < SMALL_RESULT {
            return Err(self.too_big());
        }
        Ok(())
    }

    fn too_long(&self) -> bool {
        self.c.hold.as_ref().is_some_and(|h| self.c.len() > h.most)
    }

    /// Carries an operation out. One that must not run twice leaves its key in the log.
    #[inline]
    fn operate_once(&mut self, operation: u32, args: &Args<'_>) -> OperationResult {
        self.may_follow(args)?;
        if must_run_once(operation) {
            self.leave_key();
        }
        self.operate(args)
    }

    fn operate(&mut self, args: &Args<'_>) -> OperationResult {
        match args {
            Args::Access(asked) => self.access(*asked),
            Args::Close(state) => self.close_open(state),
            Args::Commit(offset, count) => self.commit(*offset, *count),
            Args::Create { make, name, attrs } => self.create(make, name, attrs),
            Args::DelegReturn(state) => self.delegreturn(state),
            Args::GetAttr(mask) => self.getattr(mask),
            Args::GetFh => self.getfh(),
            Args::Link(name) => self.link(name),
            Args::Lock {
                range,
                reclaim,
                locker,
            } => self.lock(range, *reclaim, locker),
            Args::LockT { range, owner } => self.lockt(range, owner),
            Args::LockU { range, state } => self.locku(range, state),
            Args::Lookup(name) => self.lookup(name),
            Args::LookupP => self.lookupp(),
            Args::Verify(attrs) => self.verify(attrs, true),
            Args::NVerify(attrs) => self.verify(attrs, false),
            Args::Open(open) => self.open(open),
            Args::OpenDowngrade {
                state,
                access,
                deny,
            } => self.downgrade(state, *access, *deny),
            Args::PutFh(handle) => self.putfh(handle),
            Args::PutPubFh | Args::PutRootFh => {
                self.c.current = Fh::Pseudo(self.pseudo_root());
                self.c.state = StateId::ANONYMOUS;
                Ok(Status::Ok)
            }
            Args::Read(bytes) => self.read(bytes),
            Args::ReadPlus(bytes) => self.read_plus(bytes),
            Args::ReadDir(a) => self.readdir(a),
            Args::ReadLink => self.readlink(),
            Args::Remove(name) => self.remove(name),
            Args::Rename(from, to) => self.rename(from, to),
            Args::RestoreFh => {
                if self.c.saved == Fh::None {
                    return Err(Status::NoFileHandle.into());
                }
                (self.c.current, self.c.state) = (self.c.saved, self.c.saved_state);
                self.may_stand()
            }
            Args::SaveFh => {
                self.here()?;
                (self.c.saved, self.c.saved_state) = (self.c.current, self.c.state);
                Ok(Status::Ok)
            }
            Args::SecInfo(name) => self.secinfo(name),
            Args::SecInfoNoName(style) => self.secinfo_no_name(*style),
            Args::SetAttr(state, attrs) => self.setattr(state, attrs),
            Args::Write(write) => self.write(write),
            Args::BackChannelCtl(program, security) => self.backchannel_ctl(*program, security),
            Args::BindConn { session, direction } => self.bind_conn(session, *direction),
            Args::ExchangeId(a) => self.exchange_id(a),
            Args::CreateSession(a) => self.create_session(a),
            Args::DestroySession(session) => self.destroy_session(session),
            Args::DestroyClientId(client) => self.destroy_client(*client),
            Args::FreeStateId(state) => self.free_stateid(state),
            Args::TestStateId(states) => self.test_stateids(states),
            Args::WantDelegation(want, claim) => self.want_delegation(*want, claim),
            Args::ReclaimComplete(one_fs) => self.reclaim_complete(*one_fs),
            Args::Allocate(bytes) => self.allocate(bytes),
            Args::Deallocate(bytes) => self.deallocate(bytes),
            Args::IoAdvise(bytes, hints) => self.io_advise(bytes, hints),
            Args::Clone(a) => self.clone_range(a),
            Args::GetXattr(name) => self.getxattr(name),
            Args::SetXattr { how, name, value } => self.setxattr(*how, name, value),
            Args::ListXattrs { cookie, maxcount } => self.listxattrs(*cookie, *maxcount),
            Args::RemoveXattr(name) => self.removexattr(name),
            Args::Copy(copy) => self.copy(copy),
            Args::OffloadCancel(copy) => self.offload_cancel(copy),
            Args::OffloadStatus(copy) => self.offload_status(copy),
            Args::Seek {
                state,
                offset,
                what,
            } => self.seek(state, *offset, *what),
            Args::DelegPurge | Args::NotServed => Err(Status::NotSupp.into()),
            Args::Sequence(_) | Args::Illegal => unreachable!("served before"),
        }
    }
}

/// Returns true if an operation changes something, so that its result must have room beforehand.
fn changes(operation: u32) -> bool {
    matches!(
        operation,
        4 | 6 | 11 | 12 | 14 | 18 | 21 | 28 | 29 | 34 | 38 | 56 | 59..=62 | 71 | 73 | 75
    )
}

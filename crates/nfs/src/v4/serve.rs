//! The service: calls in, replies out, suspended calls in between; notices of the table of claims.

use super::args::{self, Head};
use super::compound::Ran;
use super::connection_cache::ConnInfo;
use super::cursor::{Cursor, Run, Unread};
use super::server::Nfs4;
use super::status::Status;
use super::types::SessionId;
use crate::rpc;
use crate::rpc::message::{Call, Message, Refusal};
use crate::rpc::operation;
use crate::rpc::outcome::{HELD_OVERHEAD, Outcome, count_outcome, refusal, refuse};
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::{Put, Reader};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_base::Lsn;
use weir_conn::{Arrival, Parts as RequestParts, Request, WaitOutcome, resume};
use weir_vfs::Suspend;
use weir_vfs::claims::Notice;

impl Nfs4 {
    /// Serves one COMPOUND or NULL call.
    pub(crate) fn call(
        self: &Arc<Self>,
        conn: &ConnInfo,
        call: &Call<'_>,
        now: Arrival,
    ) -> Outcome {
        match call.procedure {
            0 => {
                let mut head = ReplyBuf::start(64);
                rpc::put_accepted(&mut head, call.xid);
                return Outcome::Reply(ReplyBuf::whole(head, None), None);
            }
            super::types::COMPOUND => {}
            _ => return refuse(call.xid, Refusal::ProcUnavail),
        }
        let mut r = Reader::new(call.args);
        let Ok(head) = Head::decode(&mut r) else {
            return refuse(call.xid, Refusal::GarbageArgs);
        };
        let at = call.args.len() - r.rest().len();
        let mut cursor = Cursor::new(call.xid, &head, at, now, conn.id);
        if !matches!(head.minor, 1 | 2) {
            cursor.close(Status::MinorVersMismatch, 0);
            let (reply, _) = cursor.take_reply(self, conn);
            return Outcome::Reply(reply, None);
        }
        match self.run(conn, call, &mut cursor) {
            Ok(Ran::Ended) => self.ended(conn, &mut cursor),
            Ok(Ran::Replay(reply, lsn)) => Outcome::Reply(reply, lsn),
            Err(why) => refuse(call.xid, why),
            Ok(Ran::Waits(wait)) => {
                // The memory of a call that is deferred by limits is charged to its client's
                // credit.
                let held = wait.is_limit().then(|| {
                    let bytes = call.bytes() + HELD_OVERHEAD;
                    self.vfs.throttle.hold(conn.peer.ip(), bytes)
                });
                if let (Some(hold), None) = (&cursor.hold, &cursor.repeated) {
                    let session = Arc::clone(&hold.session);
                    conn.state.session.replace(Some(session));
                }
                let waiting = SuspendedCompound {
                    service: Arc::clone(self),
                    cursor: Some(Box::new(cursor)),
                    conn: conn.clone(),
                    record: call.record(call.args),
                };
                Outcome::suspended(
                    wait,
                    |wait| Box::pin(resume(waiting, wait, held)),
                    || self.delayed(conn, call),
                )
            }
        }
    }

    fn run(&self, conn: &ConnInfo, call: &Call<'_>, cursor: &mut Cursor) -> Result<Ran, Refusal> {
        self.run_all_but(conn, call, call.bytes(), cursor, None)
    }

    fn run_all_but(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        bytes: usize,
        cursor: &mut Cursor,
        unread: Option<Unread>,
    ) -> Result<Ran, Refusal> {
        // Revoked state must not be used any more.
        self.poll_notices();
        let credential = call.credential()?;
        let table = self.vfs.exports();
        let run = Run {
            s: self,
            conn,
            credential: &credential,
            table: &table,
            bytes,
            args: call.args,
            unread,
            c: cursor,
        };
        let ran = run.run();
        self.poll_notices();
        Ok(ran)
    }

    /// Processes the pending notices of the table of claims; without any, this is one relaxed load.
    /// The caller must hold no lock on a client's states.
    pub(crate) fn poll_notices(&self) {
        if self.any_notice.load(Ordering::Relaxed) {
            self.take_notices();
        }
    }

    fn ended(&self, conn: &ConnInfo, cursor: &mut Cursor) -> Outcome {
        let (reply, lsn) = cursor.take_reply(self, conn);
        Outcome::Reply(reply, lsn)
    }

    /// Returns the reply that asks the client to try again later: the slot does not move.
    pub(crate) fn delayed(&self, conn: &ConnInfo, call: &Call<'_>) -> ReplyBuf {
        self.refused(conn, call, Status::Delay)
    }

    /// Returns the reply to a request whose SEQUENCE fails with `status`: the slot does not move.
    pub(crate) fn refused(&self, conn: &ConnInfo, call: &Call<'_>, status: Status) -> ReplyBuf {
        let sequence = operation::nfs4(args::SEQUENCE);
        self.vfs.count_failure(conn.id, sequence, status as u32);
        let mut out = ReplyBuf::start(64);
        rpc::put_accepted(&mut out, call.xid);
        let head = Head::decode(&mut Reader::new(call.args));
        let tag = head.map_or(&[][..], |head| head.tag);
        out.put_u32(status as u32);
        out.put_opaque(tag);
        for word in [1, args::SEQUENCE, status as u32] {
            out.put_u32(word);
        }
        ReplyBuf::whole(out, None)
    }

    /// Returns the reply to a long request of `bytes` of which only `head` has arrived, and whose
    /// data cannot be written. Carries out its operations up to the one with the data, which fails
    /// with `status`.
    pub(crate) fn refuse_data(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        head: &[u8],
        bytes: usize,
        status: Status,
    ) -> (ReplyBuf, Option<Lsn>) {
        let mut r = Reader::new(call.args);
        let Ok(compound) = Head::decode(&mut r) else {
            unreachable!("a request that shows what it is to write");
        };
        let at = call.args.len() - r.rest().len();
        let mut cursor = Cursor::new(call.xid, &compound, at, self.current_time().into(), conn.id);
        let unread = Unread {
            bytes: bytes - head.len(),
            status,
        };
        match self.run_all_but(conn, call, bytes, &mut cursor, Some(unread)) {
            Ok(Ran::Ended) => cursor.take_reply(self, conn),
            Ok(Ran::Replay(reply, lsn)) => (reply, lsn),
            Ok(Ran::Waits(_)) => {
                cursor.abandon(self);
                (self.delayed(conn, call), None)
            }
            Err(why) => (refusal(call.xid, why), None),
        }
    }

    /// Returns the handle of the file that a long request writes, read from its head. `None` if the
    /// head does not contain it.
    ///
    /// # Errors
    /// BADSESSION. It tells the client of a restart, after which it sends the request again in a
    /// new session. A refusal by RPC would be an error for the program that writes.
    pub(crate) fn long<'h>(
        &self,
        conn: &ConnInfo,
        args: &'h [u8],
    ) -> Option<Result<&'h [u8], Status>> {
        let (session, handle): (SessionId, _) = args::long(args)?;
        let known = self.registry.session(conn, &session);
        Some(known.map(|_| handle).ok_or(Status::BadSession))
    }

    /// Does the periodic work, and parks and removes clients whose leases have expired. Call it
    /// about once a second.
    pub(crate) fn tick(&self) {
        self.take_notices();
        self.tick_callbacks();
        self.tick_slots();
        self.tick_blocked();
        self.patience.tick();
        if let Some(idmap) = self.idmap.get() {
            idmap.tick();
        }
        self.before_start.tick(self.monotonic());
        let passed = self.registry.tick(self.monotonic());
        for client in passed.courteous {
            self.vfs.claims.park(&client.claims);
            if !client.is_courteous() {
                // The client came back in between.
                self.vfs.claims.unpark(&client.claims);
            }
        }
        for client in passed.gone {
            self.end(&client);
        }
        if !self.vfs.grace.runs(self.monotonic()) {
            self.forget_before();
            self.trim_records();
        }
    }

    /// Processes the pending notices of the table of claims. They are queued, since the table
    /// reports from within calls that may hold the lock on a client's states.
    fn take_notices(&self) {
        if !self.any_notice.swap(false, Ordering::AcqRel) {
            return;
        }
        let notices = std::mem::take(&mut *self.notices.lock());
        for notice in notices {
            match notice {
                Notice::Dropped { owner, .. } => {
                    if let Some(client) = self.client_of(&owner) {
                        self.registry.remove(&client);
                        self.end(&client);
                    }
                }
                Notice::Break {
                    file,
                    owner,
                    answer: true,
                    ..
                } => {
                    if let Some(client) = self.client_of(&owner) {
                        self.recall(&client, file);
                    }
                }
                Notice::Asked { file, owner } => {
                    if let Some(client) = self.client_of(&owner) {
                        self.ask(&client, file);
                    }
                }
                Notice::Revoked { file, owner } => {
                    if let Some(client) = self.client_of(&owner) {
                        self.revoked(&client, file);
                    }
                }
                Notice::Lost { file, owner } => {
                    if let Some(client) = self.client_of(&owner) {
                        self.lost(&client, file, &owner);
                    }
                }
                Notice::Granted(grant) => self.granted(grant),
                Notice::Recall => {
                    self.recall_any();
                    self.lower_slots();
                }
                // Every break of a delegation is answered, and NFSv4 marks no file for deletion.
                Notice::Break { .. } | Notice::Delete { .. } => {}
            }
        }
    }
}

/// A suspended request. If it is dropped, it releases its slot as [`Cursor::abandon`] describes.
struct SuspendedCompound {
    service: Arc<Nfs4>,
    cursor: Option<Box<Cursor>>,
    conn: ConnInfo,
    record: Vec<u8>,
}

impl Drop for SuspendedCompound {
    fn drop(&mut self) {
        if let Some(mut cursor) = self.cursor.take() {
            cursor.abandon(&self.service);
        }
    }
}

fn waiting_cursor(cursor: &mut Option<Box<Cursor>>) -> &mut Cursor {
    match cursor {
        Some(cursor) => cursor,
        None => unreachable!("a cursor that waits is there"),
    }
}

impl Request for SuspendedCompound {
    type Reply = ReplyBuf;
    type Cancel = Infallible;

    fn parts(&mut self) -> RequestParts<'_, Infallible> {
        RequestParts {
            vfs: &self.service.vfs,
            cx: &mut waiting_cursor(&mut self.cursor).cx,
            patience: Some(&self.service.patience),
            cancelled: None,
        }
    }

    fn resume(&mut self, resumed: WaitOutcome<Infallible>) -> Result<Outcome, Suspend> {
        let Message::Call(call) = rpc::message(&self.record) else {
            return Ok(Outcome::Close("not an RPC message"));
        };
        let cursor = waiting_cursor(&mut self.cursor);
        let failed = match resumed {
            WaitOutcome::Ready => None,
            WaitOutcome::NotRecalled | WaitOutcome::NotNamed => Some(Status::Delay),
            WaitOutcome::Failed(error) => Some(Status::from(error)),
            WaitOutcome::Cancelled(never) => match never {},
        };
        let ran = match failed {
            Some(status) => {
                cursor.fail(status);
                Ok(Ran::Ended)
            }
            None => self.service.run(&self.conn, &call, cursor),
        };
        match ran {
            Ok(Ran::Waits(again)) => Err(again),
            Ok(Ran::Ended) => {
                let outcome = self.service.ended(&self.conn, cursor);
                self.cursor = None;
                Ok(outcome)
            }
            Ok(Ran::Replay(reply, lsn)) => Ok(Outcome::Reply(reply, lsn)),
            Err(why) => {
                let outcome = refuse(call.xid, why);
                count_outcome(&self.service.vfs, self.conn.id, &outcome);
                Ok(outcome)
            }
        }
    }
}

//! Persistent sessions: a request is carried out once even if the server crashes before its reply has come (RFC 8881 §2.10.6.5).
//!
//! **What is stored.** An operation that must not be carried out twice has a key in its own log record: its place in the
//! COMPOUND, and a keyed hash of session, slot, sequence number and request ([`Request`]). So the log says that it was carried
//! out exactly if it was, at no write of its own; the engine keeps the newest keys over checkpoints, with the inode that each
//! operation made ([`DoneCall`]). Sessions themselves are not stored: they end with the server.
//!
//! **After a restart** a client sends the requests again that it has no reply to, over the session that it had. One that has
//! left a key is a retransmission. It is run from its start in the name of the session that was; the operations with keys are
//! not carried out but answered with what they came to ([`Run::repeat`]), those around them, which change nothing, are run.
//! Of change counters the reply has the present ones, not of one moment (`atomic` is false), so the client drops what it
//! has cached of the directory. A request that has left no key changed nothing, and is answered BADSESSION as any other: its client
//! makes a new session, claims what it had open, and sends it there.
//!
//! **OPEN** of a file that it made is answered with a stateid that means nothing, as any of before the restart. The client claims
//! the open with the others: its record was durable before the open's. One that failed after it had made the file, since another
//! client denied it the open, leaves that in the log under the same key.
//!
//! **Bound.** As for NFSv3 ([`crate::drc`]), with which it shares the engine's places for 16,384 calls.

use super::args::{Args, Channel, CreateSession, How, Open as OpenArgs, Security};
use super::client::Client;
use super::compound::{Fh, Hold, Operand, OperationResult, Run};
use super::deleg_ops::Given;
use super::serve::Nfs4;
use super::session::{MAX_OPERATIONS, PERSIST, Session};
use super::slot::Seen;
use super::status::Status;
use super::types::{Bitmap, SessionId, StateId};
use crate::xdr::Put;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use weir_base::limits::protocol::REPLY_AGE_RECOVERED;
use weir_base::{Ino, SipKey, VolumeId};
use weir_vfs::volume::{CallKey, DoneCall};
use weir_vfs::{FileId, Namespace, Stop};

/// The first byte of a key is this and the operation's place in the COMPOUND. The keys of NFSv3 begin with a procedure's number,
/// below 22.
const FIRST: u8 = 0x80;
const _: () = assert!(MAX_OPERATIONS <= 64, "a place has six bits");

/// Whether a key is that of an operation of NFSv4.
pub(crate) fn is_operation(key: &CallKey) -> bool {
    let [first, ..] = key.0;
    first & 0xc0 == FIRST
}

/// Whether running an operation twice would reply differently or do harm: CREATE, LINK, OPEN, REMOVE, RENAME, SETATTR, SETXATTR,
/// REMOVEXATTR. As in version 3, WRITE is not among them, nor what else only writes a range (COPY, CLONE, DEALLOCATE).
pub(super) fn must_run_once(operation: u32) -> bool {
    matches!(operation, 6 | 11 | 18 | 28 | 29 | 34 | 73 | 75)
}

/// A request of a session, as the log knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub slot: u32,
    pub sequence: u32,
    /// Of the request's first bytes and its length.
    pub checksum: u32,
}

impl Request {
    /// The key of the operation at `place`.
    pub(super) fn key(&self, secret: SipKey, session: &SessionId, place: u32) -> CallKey {
        CallKey(at_place(self.hash(secret, session), place))
    }

    fn hash(&self, secret: SipKey, session: &SessionId) -> [u8; CallKey::LEN] {
        let mut numbers = [0; 12];
        let words = [self.slot, self.sequence, self.checksum];
        for (to, word) in numbers.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        secret.hash128(&[session, &numbers]).to_le_bytes()
    }
}

fn at_place(mut hash: [u8; CallKey::LEN], place: u32) -> [u8; CallKey::LEN] {
    hash[0] = FIRST | place as u8;
    hash
}

/// What the operations of a request that was carried out before the restart came to.
pub(super) struct Repeated(Vec<(u32, VolumeId, Ino)>);

impl Repeated {
    fn at(&self, place: u32) -> Option<(VolumeId, Ino)> {
        let found = self.0.iter().find(|(at, ..)| *at == place);
        found.map(|(_, volume, ino)| (*volume, *ino))
    }
}

/// Stands for the inode of an operation that failed after what it had made was in the log, with the status in its last bits.
const FAILED: u64 = 1 << 63;

/// What such an operation is known by in the log: the status, of those that such an operation may fail with.
fn failed_with(ino: Ino) -> Option<Status> {
    let all = [Status::ShareDenied, Status::Expired];
    let status = |number: u64| all.into_iter().find(|status| *status as u64 == number);
    // Whatever else, the client asks again.
    let of = |number| status(number).unwrap_or(Status::Delay);
    (ino.0 & FAILED != 0).then(|| of(ino.0 & !FAILED))
}

/// The operations that were carried out before the start.
pub(crate) struct Before {
    secret: SipKey,
    done: Mutex<HashMap<CallKey, (VolumeId, Ino)>>,
    /// Until when clients may ask, on the monotonic clock.
    until: Duration,
}

impl Before {
    /// What is known at `now`, the start.
    pub(crate) fn new(secret: SipKey, done: &[DoneCall], now: Duration) -> Before {
        let mut known = HashMap::with_capacity(done.len());
        for call in done {
            let of = known.entry(call.key).or_insert((call.volume, call.ino));
            // The last word on an operation, in whatever order the two come.
            if failed_with(call.ino).is_some() {
                *of = (call.volume, call.ino);
            }
        }
        Before {
            secret,
            done: Mutex::new(known),
            until: now + Duration::from_secs(REPLY_AGE_RECOVERED.unsigned_abs()),
        }
    }

    /// What a request came to that has `count` operations; `None` if it changed nothing.
    fn find(&self, session: &SessionId, request: &Request, count: u32) -> Option<Repeated> {
        let done = self.done.lock();
        if done.is_empty() {
            return None;
        }
        let hash = request.hash(self.secret, session);
        let found = (0..count.min(MAX_OPERATIONS)).filter_map(|place| {
            let (volume, ino) = done.get(&CallKey(at_place(hash, place)))?;
            Some((place, *volume, *ino))
        });
        let found: Vec<_> = found.collect();
        (!found.is_empty()).then_some(Repeated(found))
    }

    /// Forgets all when the time for questions is over.
    pub(super) fn tick(&self, now: Duration) {
        if now >= self.until {
            *self.done.lock() = HashMap::new();
        }
    }
}

/// A `change_info4` that is of no one moment.
fn put_present(out: &mut Vec<u8>, change: u64) {
    out.put_bool(false);
    out.put_u64(change);
    out.put_u64(change);
}

impl Nfs4 {
    /// The key of the operation at `place` of the request in a slot, if that is to outlive the server.
    pub(super) fn key_of(&self, hold: &Hold, place: u32) -> Option<CallKey> {
        let key = || {
            hold.request
                .key(self.before_start.secret, &hold.session.id, place)
        };
        hold.session.is_persistent().then(key)
    }
}

impl Run<'_> {
    /// A session that is not known, whose request may have been carried out before the restart. Then it is taken up under a session
    /// of this request's own.
    ///
    /// # Errors
    /// BADSESSION for any other; DELAY if there is no memory, or if it changed a strict volume of a mirror whose partner is lost.
    pub(super) fn session_before(
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
    pub(super) fn done_before(&self) -> Option<(VolumeId, Ino)> {
        self.c.repeated.as_ref()?.at(self.c.index)
    }

    /// An operation of a session that has ended, which was not carried out before the restart: what makes state is for another
    /// session.
    pub(super) fn may_follow(&self, args: &Args<'_>) -> Result<(), Status> {
        match args {
            _ if self.c.repeated.is_none() => Ok(()),
            Args::Open(_) | Args::Lock { .. } | Args::ReclaimComplete(_) => Err(Status::Grace),
            _ => Ok(()),
        }
    }

    /// The operation at hand has failed after what it made was in the log, with its key: a retransmission after a restart is to
    /// fail as well.
    pub(super) fn leave_failure(
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
    pub(super) fn repeat(
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
        out.put_u32(super::open_ops::RESULT);
        set.put(out);
        Given::NONE.put(a.access, out);
        self.goes_to(file);
        self.c.state = state;
        Ok(())
    }
}

/// The client id that a session's id begins with.
pub(super) fn client_of(id: &SessionId) -> u64 {
    let [client @ .., _, _, _, _, _, _, _, _] = *id;
    u64::from_be_bytes(client)
}

/// A session of before the restart as it would be asked for now: one slot, for one request, and limits that the request does not exceed.
pub(super) fn as_asked(client: &Client) -> CreateSession<'static> {
    let channel = Channel {
        header_pad: 0,
        max_request: u32::MAX,
        max_response: u32::MAX,
        max_cached: u32::MAX,
        max_operations: MAX_OPERATIONS,
        max_requests: 1,
    };
    CreateSession {
        client: client.id,
        sequence: 1,
        flags: PERSIST,
        fore: channel,
        back: channel,
        program: 0,
        security: Security::None,
    }
}

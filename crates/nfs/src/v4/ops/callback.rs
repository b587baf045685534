//! Callbacks: calls to clients over connections that they have bound to a back channel (RFC 8881
//! §2.10.3.1, §20).
//!
//! **Choice of the session.** A session has a back channel: limits, slots, the program and
//! credential requested by the client, and the connections for calls. A call goes over the newest
//! session of the client whose channel works. If none does, the call is kept until a channel is
//! bound. If a channel fails, another session of the client takes over its queued calls. A call
//! that was sent already is sent anew over the other session *and* repeated over its own, since
//! only there the client can tell that it has executed the call (§18.46.3). CB_RECALL_SLOT stays
//! with its session.
//!
//! **Calls.** Each call is a CB_SEQUENCE and one operation. A slot of the back channel has one call
//! under way. A call whose connection is lost is repeated in the same slot, under the same number,
//! over another connection. Replies are matched by connection and transaction id.
//!
//! **A client that does not react** harms only itself. SEQUENCE reports a channel without
//! connections, and one whose calls are refused or not answered. On all sessions of a client it
//! reports that none has a connection. A recall without effect ends by revocation
//! ([`BREAK_PATIENCE`](weir_vfs::claims::BREAK_PATIENCE)). A client may receive a recall before the
//! reply that granted the delegation. Then it does not know the stateid, and the recall is repeated
//! some times, at each tick.
//!
//! **Bounds.** Calls under way are bounded by the granted slots. A queued call must not be dropped,
//! which would cost its client the delegation. So its memory is charged with its subject: a
//! delegation is charged for its recall and one question. Only the newest CB_RECALL_ANY and
//! CB_RECALL_SLOT are queued; requests for locks and copies have bounds of their own (`blocked`,
//! `offload`).

use crate::rpc;
use crate::rpc::message::{AUTH_NONE, CALL, RPC_VERSION};
use crate::rpc::xdr::{Put, Reader};
use crate::v4::attrs::{SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use crate::v4::backchannel::{Slot, back_sessions, flag, note_path, working};
use crate::v4::callback::{CHANGE, CallState, Callback, Entry, WITH_TIMES, op};
use crate::v4::calls::Call;
use crate::v4::client::Client;
use crate::v4::connection_cache::ConnInfo;
use crate::v4::server::Nfs4;
use crate::v4::session::Session;
use crate::v4::types::{Bitmap, time};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_vfs::claims::HolderAttr;

/// Version of the callback program (RFC 8881 §20).
const VERSION: u32 = 1;
/// Procedure CB_COMPOUND.
const CB_COMPOUND: u32 = 1;
/// Time in seconds without a shortage of memory before clients may use more slots.
const CALM: u64 = 30;
/// Maximum number of times that a refused call is sent.
const TRIES: u8 = 5;
/// Time without a reply after which the channel counts as faulty.
const SILENCE: Duration = Duration::from_secs(15);

/// Statuses in clients' replies to callbacks.
mod status {
    pub const OK: u32 = 0;
    pub const BADHANDLE: u32 = 10_001;
    pub const DELAY: u32 = 10_008;
    pub const BAD_STATEID: u32 = 10_025;
    pub const BADSLOT: u32 = 10_053;
    pub const SEQ_MISORDERED: u32 = 10_063;
    pub const RETRY_UNCACHED_REP: u32 = 10_068;
    pub const SEQ_FALSE_RETRY: u32 = 10_076;
}

/// Reply of a client.
enum Reply<'r> {
    /// The call was refused by RPC, or the reply is malformed.
    Refused,
    /// CB_SEQUENCE failed.
    Sequence(u32),
    /// The operation's status and results.
    Operation(u32, Reader<'r>),
}

fn parse(body: &[u8]) -> Option<Reply<'_>> {
    let mut r = Reader::new(rpc::accepted_results(body)?);
    let whole = r.u32().ok()?;
    r.opaque(1024).ok()?;
    if r.u32().ok()? == 0 {
        return Some(Reply::Sequence(whole));
    }
    if r.u32().ok()? != op::SEQUENCE {
        return None;
    }
    match r.u32().ok()? {
        status::OK => {}
        failed => return Some(Reply::Sequence(failed)),
    }
    r.fixed::<16>().ok()?;
    r.fixed::<16>().ok()?;
    let _operation = r.u32().ok()?;
    let status = r.u32().ok()?;
    Some(Reply::Operation(status, r))
}

/// Decodes a `fattr4` that begins with change and size, followed by the holder's times if it has
/// them.
fn attributes(mut r: Reader<'_>) -> Option<HolderAttr> {
    let mask = Bitmap::decode(&mut r).ok()?;
    let mut values = Reader::new(r.string().ok()?);
    if !mask.contains(CHANGE) || !mask.contains(SIZE) || !mask.within(&WITH_TIMES) {
        return None;
    }
    let (change, size) = (values.u64().ok()?, values.u64().ok()?);
    let mut time = |number| match mask.contains(number) {
        true => {
            let sent = time(&mut values).ok().filter(|t| t.nanos < 1_000_000_000);
            sent.map(Some)
        }
        false => Some(None),
    };
    Some(HolderAttr {
        size,
        change,
        accessed: time(TIME_DELEG_ACCESS)?,
        modified: time(TIME_DELEG_MODIFY)?,
    })
}

impl Nfs4 {
    /// Binds a connection to the back channel of a session.
    pub(in crate::v4) fn bind_back(&self, session: &Arc<Session>, conn: &ConnInfo) {
        if !session.back.is_asked() {
            return;
        }
        let connection = conn.id;
        if conn.has_ended() {
            return note_path(&session.client);
        }
        {
            let mut calls = self.callbacks.calls.lock();
            let bound = calls.bound.entry(connection).or_default();
            bound.retain(|s| s.upgrade().is_some_and(|s| s.id != session.id));
            bound.push(Arc::downgrade(session));
        }
        session.back.bind(connection);
        let client = &session.client;
        note_path(client);
        {
            let due = std::mem::take(&mut *client.due.lock());
            let mut inner = session.back.inner.lock();
            inner.queue.extend(due.into_iter().map(Entry::new));
        }
        self.pump(session);
        for other in back_sessions(client) {
            if !other.back.is_up() {
                self.hand_over(&other);
            }
        }
    }

    /// Repeats the calls of a lost connection over another one.
    pub(crate) fn connection_ended(&self, connection: u64) {
        let (sessions, lost) = {
            let mut calls = self.callbacks.calls.lock();
            let Some(sessions) = calls.bound.remove(&connection) else {
                return;
            };
            let under_way = &mut calls.under_way;
            let lost: Vec<Call> = under_way
                .extract_if(|(c, _), _| *c == connection)
                .map(|(_, call)| call)
                .collect();
            (sessions, lost)
        };
        for call in lost {
            // The call may have been executed; then its repetition is a retransmission.
            call.session.back.inner.lock().lose(call.slot, call.entry);
        }
        for session in sessions.iter().filter_map(Weak::upgrade) {
            session.back.lost(connection);
            note_path(&session.client);
            if !session.back.is_up() {
                self.hand_over(&session);
            }
            self.pump(&session);
        }
    }

    /// Hands the calls of a destroyed session to another session of its client.
    pub(in crate::v4) fn session_ended(&self, session: &Arc<Session>) {
        let calls: Vec<Call> = {
            let mut calls = self.callbacks.calls.lock();
            let ended = |call: &mut Call| Arc::ptr_eq(&call.session, session);
            let ended = calls.under_way.extract_if(|_, call| ended(call));
            ended.map(|(_, call)| call).collect()
        };
        let waiting = {
            let mut inner = session.back.inner.lock();
            let later = std::mem::take(&mut inner.later);
            let queue = std::mem::take(&mut inner.queue);
            queue.into_iter().chain(later)
        };
        note_path(&session.client);
        let all = calls.into_iter().map(|call| call.entry).chain(waiting);
        for entry in all.filter(|e| e.what.may_move() && e.made != CallState::Elsewhere) {
            self.call_back(&session.client, entry.what);
        }
    }

    /// Hands the calls of a session whose channel fails to another session of the client, if one
    /// works.
    fn hand_over(&self, session: &Arc<Session>) {
        let Some(other) = working(&session.client) else {
            return;
        };
        let mut calls = Vec::new();
        session
            .back
            .inner
            .lock()
            .queue
            .retain_mut(|entry| entry.hand_over(&mut calls));
        if calls.is_empty() {
            return;
        }
        other.back.inner.lock().queue.extend(calls);
        self.pump(&other);
    }

    /// Calls a client, over any of its sessions.
    pub(in crate::v4) fn call_back(&self, client: &Client, what: Callback) {
        // Locked before the sessions are examined, so that a session bound meanwhile takes the
        // call.
        let mut due = client.due.lock();
        let session = working(client).or_else(|| back_sessions(client).pop());
        if let Some(session) = session {
            drop(due);
            self.call_back_over(&session, what);
        } else {
            // A delegation whose recall is not sent in time is revoked.
            due.retain(|earlier| !what.replaces(earlier));
            due.push(what);
        }
    }

    /// Calls a client over this session.
    fn call_back_over(&self, session: &Arc<Session>, what: Callback) {
        session.back.inner.lock().add(what);
        self.pump(session);
    }

    /// Halves the number of slots that clients are to use, when memory is short.
    pub(in crate::v4) fn lower_slots(&self) {
        let now = self.monotonic().as_secs() + 1;
        self.pressed.store(now, Ordering::Relaxed);
        for session in self.registry.sessions() {
            if let Some(target) = session.slots.lower()
                && session.back.is_asked()
            {
                self.call_back_over(&session, Callback::RecallSlot(target - 1));
            }
        }
    }

    /// Lowers the number of slots that clients are to use if replies were not kept, and raises it
    /// when memory has sufficed for a while. Call it about once a second.
    pub(in crate::v4) fn tick_slots(&self) {
        let sessions = self.registry.sessions();
        // Counts instead of using `any`, to reset the flag of each session.
        let short = sessions.iter().filter(|s| s.slots.take_pressed()).count();
        if short > 0 {
            return self.lower_slots();
        }
        let pressed = self.pressed.load(Ordering::Relaxed);
        let now = self.monotonic().as_secs() + 1;
        if pressed == 0 || now < pressed + CALM {
            return;
        }
        // Clients learn of it in the replies to their next requests.
        let raised = sessions.iter().filter(|s| s.slots.raise()).count();
        let next = if raised > 0 { now } else { 0 };
        self.pressed.store(next, Ordering::Relaxed);
    }

    /// Sends the calls of a session for which there are slots.
    fn pump(&self, session: &Arc<Session>) {
        let Some(sender) = self.callbacks.sender.get() else {
            return;
        };
        let mut inner = session.back.inner.lock();
        let inner = &mut *inner;
        while let Some(connection) = inner.connections.last().copied() {
            let Some((slot, entry)) = inner.next() else {
                return;
            };
            // A call that may have been executed is repeated until the client has replied.
            if entry.what.is_over() && entry.slot.is_none() {
                continue;
            }
            let before = inner.slots[slot];
            let sequence = before.sequence.wrapping_add(1);
            let highest = inner.slots.len() as u32 - 1;
            let what = entry.what.clone();
            let xid = {
                let mut calls = self.callbacks.calls.lock();
                calls.next = calls.next.wrapping_add(1);
                let xid = calls.next;
                let call = Call {
                    session: Arc::clone(session),
                    slot,
                    entry,
                    since: self.monotonic(),
                };
                calls.under_way.insert((connection, xid), call);
                xid
            };
            let mut out = Vec::with_capacity(512);
            for word in [xid, CALL, RPC_VERSION, inner.program, VERSION, CB_COMPOUND] {
                out.put_u32(word);
            }
            out.extend_from_slice(&inner.credential);
            for word in [AUTH_NONE, 0, 0, session.minor, 0, 2, op::SEQUENCE] {
                out.put_u32(word);
            }
            out.put_fixed(&session.id);
            // The reply is not kept, and there are no referring calls.
            for word in [sequence, slot as u32, highest, 0, 0] {
                out.put_u32(word);
            }
            what.encode(&mut out, |file| self.vfs.handle_of(file).to_vec());
            inner.slots[slot] = Slot {
                sequence,
                busy: true,
            };
            if !sender(connection, out.into()) {
                inner.slots[slot] = before;
                let mut calls = self.callbacks.calls.lock();
                let call = calls.under_way.remove(&(connection, xid));
                drop(calls);
                if let Some(call) = call {
                    inner.queue.push_front(call.entry);
                }
                self.callbacks.try_again(session);
                return;
            }
        }
    }

    /// Processes a reply to a call by this server.
    pub(crate) fn replied(&self, connection: u64, xid: u32, body: &[u8]) {
        let call = self
            .callbacks
            .calls
            .lock()
            .under_way
            .remove(&(connection, xid));
        let Some(Call {
            session,
            slot,
            mut entry,
            ..
        }) = call
        else {
            // The reply is to a call that was repeated, or to none.
            return;
        };
        entry.tries += 1;
        (entry.made, entry.slot) = (CallState::Not, None);
        let reply = parse(body).unwrap_or(Reply::Refused);
        let refused = match &reply {
            Reply::Operation(..) => false,
            Reply::Sequence(s) => *s != status::DELAY && *s != status::RETRY_UNCACHED_REP,
            Reply::Refused => true,
        };
        if session.back.mark(flag::BACKCHANNEL_FAULT, refused) {
            note_path(&session.client);
        }
        {
            let mut inner = session.back.inner.lock();
            if let Some(slot) = inner.slots.get_mut(slot) {
                slot.busy = false;
                match reply {
                    Reply::Sequence(status::SEQ_MISORDERED) => slot.sequence = 0,
                    // The client has executed a call under this number.
                    Reply::Sequence(status::RETRY_UNCACHED_REP | status::SEQ_FALSE_RETRY)
                    | Reply::Operation(..) => {}
                    Reply::Sequence(_) | Reply::Refused => {
                        slot.sequence = slot.sequence.wrapping_sub(1);
                    }
                }
            }
            if matches!(reply, Reply::Sequence(status::BADSLOT)) && slot > 0 {
                inner.slots.truncate(slot);
            }
        }
        let again = match &reply {
            Reply::Operation(status, r) => self.outcome(&session.client, &entry, *status, r),
            Reply::Sequence(_) | Reply::Refused => true,
        };
        let again = again && entry.tries < TRIES;
        if again {
            session.back.inner.lock().later.push(entry);
        }
        if again {
            self.callbacks.try_again(&session);
        }
        self.pump(&session);
    }

    /// Processes a client's reply. Returns true if the call is to be repeated.
    fn outcome(&self, client: &Client, entry: &Entry, status: u32, r: &Reader<'_>) -> bool {
        let unknown = matches!(status, status::BADHANDLE | status::BAD_STATEID);
        let last = entry.tries >= TRIES;
        match &entry.what {
            Callback::Recall(delegation) if unknown && last => {
                // The client does not know the delegation, which counts as returned.
                self.end_delegation(client, delegation);
                false
            }
            Callback::Recall(_) => unknown || status == status::DELAY,
            Callback::GetAttr(delegation) => {
                let held = match status {
                    status::OK => attributes(r.clone()),
                    _ if !last => return true,
                    _ => None,
                };
                let (change, size) = delegation.granted;
                let held = held.unwrap_or(HolderAttr {
                    size,
                    change,
                    ..HolderAttr::default()
                });
                let changed = (held.change, held.size) != delegation.granted;
                let times = (held.accessed, held.modified);
                let times = delegation.vetted(times, self.current_time());
                let (accessed, modified) = times.unwrap_or_default();
                let answer = HolderAttr {
                    size: held.size,
                    change: changed.into(),
                    accessed,
                    modified,
                };
                self.vfs.claims.reply(delegation.file, &client.own, answer);
                false
            }
            Callback::NotifyLock { .. } | Callback::RecallAny(_) | Callback::RecallSlot(_) => false,
            Callback::Offload(_) if status == status::DELAY && !last => true,
            Callback::Offload(offload) => {
                self.forget_offload(client, offload);
                false
            }
        }
    }

    /// Repeats calls, and detects those that are not answered. Call it about once a second.
    pub(in crate::v4) fn tick_callbacks(&self) {
        self.note_silence();
        let again = {
            let mut calls = self.callbacks.calls.lock();
            calls.under_way.retain(|_, call| !call.session.is_dead());
            calls.bound.retain(|_, sessions| {
                sessions.retain(|s| s.strong_count() > 0);
                !sessions.is_empty()
            });
            std::mem::take(&mut calls.again)
        };
        for session in again {
            {
                let mut inner = session.back.inner.lock();
                let later = std::mem::take(&mut inner.later);
                inner.queue.extend(later);
            }
            if !session.back.is_up() {
                self.hand_over(&session);
            }
            self.pump(&session);
        }
    }

    /// Detects calls without replies. Another session of the client, if one works, sends them as
    /// well.
    fn note_silence(&self) {
        let now = self.monotonic();
        let silent: Vec<((u64, u32), Arc<Session>)> = {
            let calls = self.callbacks.calls.lock();
            let silent = calls.under_way.iter();
            let silent = silent.filter(|(_, call)| now.saturating_sub(call.since) >= SILENCE);
            silent
                .map(|(at, c)| (*at, Arc::clone(&c.session)))
                .collect()
        };
        for (_, session) in &silent {
            session.back.mark(flag::BACKCHANNEL_FAULT, true);
        }
        for (at, session) in silent {
            note_path(&session.client);
            let Some(other) = working(&session.client) else {
                continue;
            };
            let mut entries = Vec::new();
            if let Some(call) = self.callbacks.calls.lock().under_way.get_mut(&at) {
                call.entry.hand_over(&mut entries);
            }
            other.back.inner.lock().queue.extend(entries);
            self.pump(&other);
        }
    }
}

#[cfg(test)]
mod tests;

//! The service: calls in, replies out, what waits in between; clients that come, go and are recorded.

use super::args::{self, Head};
use super::blocked::Blocked;
use super::callback::Callbacks;
use super::client::{Caller, Client, IN_USE, Record, Registry, SERVICE};
use super::compound::{Cursor, Ran, Run, Unread};
use super::deleg_ops::Recalled;
use super::offload::Offloads;
use super::persistent::Before;
use super::protect::Principal;
use super::pseudo::Pseudo;
use super::recorded::{self, MAX_ADDRESSES};
use super::referral::Referral;
use super::remembered::ConnInfo;
use super::status::Status;
use super::types::SessionId;
use crate::idmap::IdMap;
use crate::outcome::{HELD_OVERHEAD, Outcome, PATIENCE_NFS4, refusal, refuse};
use crate::reply::ReplyBuf;
use crate::rpc::{self, Call, Message, Refusal};
use crate::xdr::{Put, Reader};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use weir_base::{Clock, Lsn, Rng, SipKey, Time};
use weir_conn::{Arrival, Parts as RequestParts, Patience, Request, Resumed, resume};
use weir_vfs::claims::{Notice, Sink};
use weir_vfs::grace::{Bound, Claimant, RecordId, Records};
use weir_vfs::volume::DoneCall;
use weir_vfs::{Error, ExportTable, OpResult, Stop, Suspend, Vfs};

/// What the service is made of.
pub(crate) struct Parts {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) records: Arc<Records>,
    pub(crate) grace: Duration,
    pub(crate) name: String,
    /// The calls and operations that were carried out before the start.
    pub(crate) done: Vec<DoneCall>,
}

/// Seconds between two times at which records are trimmed.
const TRIM: u64 = 60;

/// A record of before the start, of a client that has not come back.
struct Expected {
    id: RecordId,
    bound: Bound,
    addresses: Vec<IpAddr>,
    /// A caller elsewhere was refused, and that was logged.
    reported: bool,
}

/// The service. See the parent module.
pub(crate) struct Nfs4 {
    pub(super) vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    records: Arc<Records>,
    /// Records of before the start, of clients that have not come back.
    before: Mutex<HashMap<Box<[u8]>, Expected>>,
    /// When records are trimmed next, in seconds on the monotonic clock.
    next_trim: AtomicU64,
    /// What was carried out before the start.
    pub(super) before_start: Before,
    /// Distinguishes owners of opens and locks in the table of claims.
    pub(super) owners: SipKey,
    /// `so_major_id` and the server's scope: the same over restarts, another for another server.
    pub(super) identity: Box<[u8]>,
    /// The pseudo file system of the newest table of exports, with the table's generation.
    pseudo: RwLock<(u64, Arc<Pseudo>)>,
    pub(crate) callbacks: Callbacks,
    pub(super) recalled: Recalled,
    pub(super) blocked: Blocked,
    pub(crate) offloads: Offloads,
    /// Names of users and groups, if clients may use them.
    pub(crate) idmap: OnceLock<IdMap>,
    /// Paths for which clients are to go to other servers.
    pub(crate) referrals: OnceLock<Vec<Arc<Referral>>>,
    /// Itself, for work in the background.
    pub(super) me: Weak<Nfs4>,
    /// When memory was short last, in seconds on the monotonic clock, from 1; 0: all may use all of their slots.
    pub(super) pressed: AtomicU64,
    patience: Patience,
    notices: Mutex<Vec<Notice>>,
    any_notice: AtomicBool,
    /// Whether callers can be established by Kerberos.
    pub(crate) kerberos: AtomicBool,
}

impl Nfs4 {
    /// Starts the service: clients that had state before the start are expected.
    pub(crate) fn start(p: Parts) -> Arc<Nfs4> {
        let owners = p.vfs.derive_secret(b"nfs4 owners");
        let sessions = p.vfs.derive_secret(b"nfs4 sessions");
        let server = p.vfs.derive_secret(b"nfs4 server").hash128(&[]);
        let identity = format!("{}/{server:032x}", p.name);
        let budget = Arc::clone(p.vfs.claims.budget());
        let mut before = HashMap::new();
        for (id, record) in p.records.all(SERVICE) {
            match recorded::decode(&record, owners) {
                Some(known) => {
                    let expected = Expected {
                        id,
                        bound: known.bound,
                        addresses: known.addresses,
                        reported: false,
                    };
                    before.insert(known.name, expected);
                }
                None => tracing::warn!(?record, "cannot decode the record of an NFSv4 client"),
            }
        }
        let expected = before.iter().map(|(name, expected)| {
            let (service, name) = (SERVICE, name.as_ref().into());
            (Claimant { service, name }, expected.bound)
        });
        let now = p.clock.monotonic();
        p.vfs.grace.begin_bound(expected, now, p.grace);
        Arc::new_cyclic(|this: &Weak<Nfs4>| {
            let sink: Weak<dyn Sink> = this.clone();
            p.vfs.claims.attach(SERVICE, sink);
            Nfs4 {
                registry: Registry::new(budget, p.rng, move |owner| recorded::name(owners, owner)),
                vfs: p.vfs,
                clock: p.clock,
                records: p.records,
                before: Mutex::new(before),
                next_trim: AtomicU64::new(0),
                before_start: Before::new(sessions, &p.done, now),
                owners,
                identity: identity.into_bytes().into(),
                pseudo: RwLock::new((0, Arc::new(Pseudo::new(&ExportTable::default(), &[], 0)))),
                callbacks: Callbacks::default(),
                recalled: Recalled::default(),
                blocked: Blocked::default(),
                offloads: Offloads::default(),
                idmap: OnceLock::new(),
                referrals: OnceLock::new(),
                me: this.clone(),
                pressed: AtomicU64::new(0),
                patience: Patience::of(PATIENCE_NFS4),
                notices: Mutex::default(),
                any_notice: AtomicBool::new(false),
                kerberos: AtomicBool::new(false),
            }
        })
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The pseudo file system of a table of exports.
    pub(super) fn pseudo(&self, table: &ExportTable) -> Arc<Pseudo> {
        let generation = table.generation();
        {
            let cached = self.pseudo.read();
            if cached.0 == generation {
                return Arc::clone(&cached.1);
            }
        }
        // The time distinguishes it from those of before the start.
        let now = self.clock.now();
        let change = (now.secs as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.nanos.into());
        let referrals = self.referrals.get().map_or(&[][..], Vec::as_slice);
        let made = Arc::new(Pseudo::new(table, referrals, change));
        let mut cached = self.pseudo.write();
        if cached.0 < generation {
            *cached = (generation, Arc::clone(&made));
        }
        made
    }

    /// Serves one COMPOUND or NULL call.
    pub(crate) fn call(
        self: &Arc<Self>,
        conn: &ConnInfo,
        call: &Call<'_>,
        record: &[u8],
        now: Arrival,
    ) -> Outcome {
        match call.procedure {
            0 => {
                let mut head = ReplyBuf::start(64);
                rpc::put_accepted(&mut head, call.xid);
                return Outcome::Reply(ReplyBuf::whole(head, None), None);
            }
            super::COMPOUND => {}
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
        match self.run(conn, call, record.len(), &mut cursor) {
            Ok(Ran::Ended) => self.ended(conn, &mut cursor),
            Ok(Ran::Replay(reply, lsn)) => Outcome::Reply(reply, lsn),
            Err(why) => refuse(call.xid, why),
            Ok(Ran::Waits(wait)) => {
                // The memory of a call that waits for its limits is accounted to its client's credit.
                let held = wait.is_limit().then(|| {
                    let bytes = record.len() + HELD_OVERHEAD;
                    self.vfs.throttle.hold(conn.peer.ip(), bytes)
                });
                if let (Some(hold), None) = (&cursor.hold, &cursor.repeated) {
                    let session = Arc::clone(&hold.session);
                    conn.state.session.replace(Some(session));
                }
                let waiting = Waiting {
                    service: Arc::clone(self),
                    cursor: Some(Box::new(cursor)),
                    conn: conn.clone(),
                    record: record.to_vec(),
                };
                Outcome::suspended(
                    wait,
                    |wait| Box::pin(resume(waiting, wait, held)),
                    || Nfs4::delayed(call),
                )
            }
        }
    }

    fn run(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        bytes: usize,
        cursor: &mut Cursor,
    ) -> Result<Ran, Refusal> {
        self.run_all_but(conn, call, bytes, cursor, None)
    }

    fn run_all_but(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        bytes: usize,
        cursor: &mut Cursor,
        unread: Option<Unread>,
    ) -> Result<Ran, Refusal> {
        // What was revoked must not be used any more.
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

    /// Deals with what the table of claims has reported, if anything: one relaxed load. No state of a client may be locked.
    pub(crate) fn poll_notices(&self) {
        if self.any_notice.load(Ordering::Relaxed) {
            self.take_notices();
        }
    }

    fn ended(&self, conn: &ConnInfo, cursor: &mut Cursor) -> Outcome {
        let (reply, lsn) = cursor.take_reply(self, conn);
        Outcome::Reply(reply, lsn)
    }

    /// The reply to a request that is to be sent again later: its slot does not move.
    pub(crate) fn delayed(call: &Call<'_>) -> ReplyBuf {
        Nfs4::refused(call, Status::Delay)
    }

    /// The reply to a request whose SEQUENCE fails so: its slot does not move.
    pub(crate) fn refused(call: &Call<'_>, status: Status) -> ReplyBuf {
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

    /// The reply to a long request of `bytes` of which only `head` is there, because what it is to write cannot be written: its
    /// operations are carried out up to the one that has the data, which fails with `status`.
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
        let mut cursor = Cursor::new(call.xid, &compound, at, self.now().into(), conn.id);
        let unread = Unread {
            bytes: bytes - head.len(),
            status,
        };
        match self.run_all_but(conn, call, bytes, &mut cursor, Some(unread)) {
            Ok(Ran::Ended) => cursor.take_reply(self, conn),
            Ok(Ran::Replay(reply, lsn)) => (reply, lsn),
            Ok(Ran::Waits(_)) => {
                cursor.abandon(self);
                (Nfs4::delayed(call), None)
            }
            Err(why) => (refusal(call.xid, why), None),
        }
    }

    /// What the head of a long request shows: the handle of the file that it is to write. `None` if it shows none.
    ///
    /// # Errors
    /// BADSESSION. A client learns so of a restart, and sends the request again in a new session; whatever else RPC refuses
    /// its request with, the program that writes sees as an error.
    pub(crate) fn long<'h>(
        &self,
        conn: &ConnInfo,
        args: &'h [u8],
    ) -> Option<Result<&'h [u8], Status>> {
        let (session, handle): (SessionId, _) = args::long(args)?;
        let known = self.registry.session(conn, &session);
        Some(known.map(|_| handle).ok_or(Status::BadSession))
    }

    /// Parks and forgets clients whose leases have run out; about once a second.
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
                // It came back in between.
                self.vfs.claims.unpark(&client.claims);
            }
        }
        for client in passed.gone {
            self.end(&client);
        }
        if !self.vfs.grace.runs(self.monotonic()) {
            // A client that has not come back has lost what it had.
            for (_, gone) in self.before.lock().drain() {
                self.records.change_some_time(gone.id, None);
            }
            self.trim_records();
        }
    }

    /// Removes from the records, once in a while, what clients have given up: after a restart nobody waits for it.
    fn trim_records(&self) {
        let now = self.monotonic().as_secs();
        if now < self.next_trim.load(Ordering::Relaxed) {
            return;
        }
        self.next_trim.store(now + TRIM, Ordering::Relaxed);
        for client in self.registry.clients() {
            let states = client.states.read();
            let bound = states.bound();
            let mut record = client.record.lock();
            match record.as_mut() {
                Some(gone) if bound == Bound::NOWHERE => {
                    self.records.change_some_time(gone.id, None);
                    *record = None;
                }
                Some(trimmed) if trimmed.bound != bound => {
                    trimmed.bound = bound;
                    let encoded = recorded::encode(&client.recorded, &bound, &trimmed.addresses);
                    self.records.change_some_time(trimmed.id, Some(&encoded));
                }
                _ => {}
            }
        }
    }

    /// The client has nothing any more.
    pub(super) fn end(&self, client: &Client) {
        // A thread that enters a claim for it holds its states and has seen that it has not expired: what is released
        // behind them is all there will be.
        client.expire();
        // Pins are dropped where nothing is locked.
        let states = {
            let mut states = client.states.write();
            std::mem::replace(&mut *states, super::state::States::new(0, 0))
        };
        states.end();
        drop(states);
        self.forget_waiting(client);
        client.offloads.lock().clear();
        self.vfs
            .claims
            .release(std::slice::from_ref(&client.claims));
        if let Some(record) = client.record.lock().take() {
            self.records.change_some_time(record.id, None);
        }
        self.vfs.grace.finished(&client.claimant());
    }

    /// Records that a client may have such claims. A claim must not be acknowledged before the LSN is durable.
    pub(super) fn record(&self, client: &Client, bound: Bound) -> OpResult<Lsn> {
        let mut record = client.record.lock();
        if let Some(record) = record.as_ref().filter(|record| record.bound.covers(bound)) {
            return Ok(record.lsn);
        }
        if client.is_expired() {
            return Err(Error::Delay.into());
        }
        let name = client.recorded.as_ref();
        let mut before = self.before.lock();
        let known = record.as_ref();
        let known = known.map(|record| (record.id, record.bound, &record.addresses));
        let old = before
            .get(name)
            .map(|old| (old.id, old.bound, &old.addresses));
        let known = known.or(old);
        let bound = known.map_or(bound, |(_, had, _)| had.or(bound));
        let addresses = addresses(client, known.map_or(&[], |(_, _, had)| had));
        let encoded = || recorded::encode(name, &bound, &addresses);
        let made = match known {
            // It is durable since before the start.
            Some((id, had, at)) if had == bound && *at == addresses => Ok((id, Lsn(0))),
            Some((id, ..)) => self.records.replace(id, &encoded()).map(|lsn| (id, lsn)),
            None => self.records.add(SERVICE, &encoded()),
        };
        let (id, lsn) = made.map_err(|stop| Stop::of_record(&self.records, stop))?;
        before.remove(name);
        *record = Some(Record {
            id,
            lsn,
            bound,
            addresses,
        });
        Ok(lsn)
    }

    /// Records that a client has another address, if it is recorded.
    pub(super) fn record_addresses(&self, client: &Client) {
        if let Some(record) = client.record.lock().as_mut() {
            record.addresses = addresses(client, &record.addresses);
            let encoded = recorded::encode(&client.recorded, &record.bound, &record.addresses);
            self.records.change_some_time(record.id, Some(&encoded));
        }
    }

    /// Returns true if a name is that of a client that may claim again what it had, which is not at the caller's address. The
    /// first such caller is logged.
    pub(super) fn is_recorded_elsewhere(&self, owner: &[u8], caller: &Caller<'_>) -> bool {
        if !self.vfs.grace.runs(caller.now) || Principal::of(caller.credential).is_proven() {
            return false;
        }
        let mut before = self.before.lock();
        let Some(expected) = before.get_mut(&recorded::name(self.owners, owner)) else {
            return false;
        };
        let from = caller.conn.address();
        let elsewhere = !expected.addresses.is_empty() && !expected.addresses.contains(&from);
        if elsewhere && !std::mem::replace(&mut expected.reported, true) {
            let (name, at) = (String::from_utf8_lossy(owner), &expected.addresses);
            tracing::warn!(%from, ?name, ?at, "{}", IN_USE);
        }
        elsewhere
    }

    /// Deals with what the table of claims has reported. It reports from within calls that may hold a client's states.
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

/// The addresses to record of a client: its own, then those that were recorded.
fn addresses(client: &Client, had: &[IpAddr]) -> Vec<IpAddr> {
    let mut all = client.reach.lock().addresses().to_vec();
    for address in had {
        if all.len() < MAX_ADDRESSES && !all.contains(address) {
            all.push(*address);
        }
    }
    all
}

impl Sink for Nfs4 {
    fn notify(&self, notice: Notice) {
        self.notices.lock().push(notice);
        self.any_notice.store(true, Ordering::Release);
    }
}

/// A cursor that waits. One that is dropped leaves its slot as it must.
struct Waiting {
    service: Arc<Nfs4>,
    cursor: Option<Box<Cursor>>,
    conn: ConnInfo,
    record: Vec<u8>,
}

impl Drop for Waiting {
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

impl Request for Waiting {
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

    fn resume(&mut self, resumed: Resumed<Infallible>) -> Result<Outcome, Suspend> {
        let Message::Call(call) = rpc::message(&self.record) else {
            return Ok(Outcome::Close("not an RPC message"));
        };
        let cursor = waiting_cursor(&mut self.cursor);
        let failed = match resumed {
            Resumed::Ready => None,
            Resumed::NotRecalled | Resumed::NotNamed => Some(Status::Delay),
            Resumed::Failed(error) => Some(Status::from(error)),
            Resumed::Cancelled(never) => match never {},
        };
        let ran = match failed {
            Some(status) => {
                cursor.fail(status);
                Ok(Ran::Ended)
            }
            None => self
                .service
                .run(&self.conn, &call, self.record.len(), cursor),
        };
        match ran {
            Ok(Ran::Waits(again)) => Err(again),
            Ok(Ran::Ended) => {
                let outcome = self.service.ended(&self.conn, cursor);
                self.cursor = None;
                Ok(outcome)
            }
            Ok(Ran::Replay(reply, lsn)) => Ok(Outcome::Reply(reply, lsn)),
            Err(why) => Ok(refuse(call.xid, why)),
        }
    }
}

//! One call in, one reply out.
//!
//! `handle` runs on the thread that read the call. If all data is in memory it runs to the end:
//! decode in place, check, operate, encode. Only a call that needs something from the device
//! becomes a future. The future owns a copy of the call, and starts again from the beginning once
//! the pages are in memory (operations change nothing before they have all they need).

use crate::forward::{self, Forward, NOT_FORWARDED};
use crate::groups::{Directory, FULL, GroupsLookup, ResolvedGroups, UserGroups};
use crate::gss::Gss;
use crate::idmap::{Accounts, IdMap};
use crate::mount3::{self, Mounts};
use crate::nlm::{self, LockService};
use crate::nsm;
use crate::rpc::call_queue::{Outbox, OutgoingCall};
use crate::rpc::deferred_calls::HeldCalls;
use crate::rpc::drc::{Drc, ReplyLookup, Ticket};
use crate::rpc::failure::Failure;
use crate::rpc::message::{
    AuthStat, Call, Credential, MOUNT_PROGRAM, Message, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM,
    RQUOTA_PROGRAM, Refusal,
};
use crate::rpc::outcome::{
    Begin, HELD_OVERHEAD, Outcome, PATIENCE_NFS3, count_outcome, count_refusal, refusal, refuse,
};
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::Reader;
use crate::rpc::{self, operation};
use crate::rquota;
use crate::v3::{self, procedure, status::Status};
use crate::v4::{self, ConnInfo, Nfs4};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use weir_auth::gss::Acceptor;
use weir_base::limits::net::LARGE_WRITE;
use weir_base::{Clock, Ino, Lsn, Rng, SipKey, VolumeId};
use weir_conn::{Arrival, Parts, Patience, Request, WaitOutcome, resume};
use weir_vfs::grace::Records;
use weir_vfs::names::Wait;
use weir_vfs::stats::Done;
use weir_vfs::volume::DoneCall;
use weir_vfs::{
    Error, FileId, Flavour, Namespace, OpContext, Protocol, Redirect, Stop, Suspend, Transport, Vfs,
};

/// Configuration and dependencies of the service.
pub struct Config {
    /// Exports, file handles, claims and limits.
    pub vfs: Arc<Vfs>,
    /// Time for lock grace periods.
    pub clock: Arc<dyn Clock>,
    /// Randomness for transaction ids.
    pub rng: Arc<dyn Rng>,
    /// Maximum size of the duplicate-request cache in bytes.
    pub drc_bytes: usize,
    /// The calls that were carried out before the start.
    pub done_calls: Vec<DoneCall>,
    /// Records of clients that survive restarts, in the aggregate.
    pub records: Arc<Records>,
    /// Grace period after a start in which locks can only be reclaimed, if any were held before.
    /// Clients need it to notice the restart: 45 s is usual.
    pub grace: Duration,
    /// Host name by which clients know this server.
    pub name: String,
}

/// The NFS service: NFS, MOUNT, NLM and NSM behind one entrance.
pub struct Service {
    vfs: Arc<Vfs>,
    drc: Arc<Drc>,
    mounts: Mounts,
    locks: Arc<LockService>,
    records: Arc<Records>,
    clock: Arc<dyn Clock>,
    outbox: Arc<Outbox>,
    held: Arc<HeldCalls>,
    patience: Patience,
    pub(crate) nfs4: Arc<Nfs4>,
    gss: OnceLock<Arc<Gss>>,
    groups: OnceLock<UserGroups>,
    /// The way to other servers of the cluster.
    forwards: OnceLock<Arc<dyn Forward>>,
    /// Secret of the challenges to other servers.
    challenges: SipKey,
    /// True if connections can be protected by TLS.
    tls: AtomicBool,
    rng: Arc<dyn Rng>,
}

/// Refusal of an NFSv3 call over a connection without the protection that the export requires.
const UNPROTECTED: Refusal = Refusal::Auth(AuthStat::TooWeak);

/// Events that a run of a call may still wait for.
#[derive(Clone, Copy)]
struct MayWait {
    /// Another client gives up a delegation or another grant. If this is false, the client is to
    /// try again.
    recalls: bool,
    /// The name service has resolved the client's name.
    names: bool,
    /// The client's record as a holder of locks becomes durable.
    records: bool,
}

impl MayWait {
    const ALL: MayWait = MayWait {
        recalls: true,
        names: true,
        records: true,
    };
}

/// The answer to a call.
struct Answer {
    reply: ReplyBuf,
    lsn: Option<Lsn>,
    /// True if the call has changed something, so that its reply is to be kept.
    done: bool,
}

impl From<ReplyBuf> for Answer {
    fn from(reply: ReplyBuf) -> Answer {
        Answer {
            reply,
            lsn: None,
            done: false,
        }
    }
}

/// Result of one run of a call: it is answered, refused by RPC, or suspended.
type RunResult = Result<Answer, Stop<Refusal>>;

impl From<Refusal> for Stop<Refusal> {
    fn from(why: Refusal) -> Stop<Refusal> {
        Stop::Failed(why)
    }
}

/// A suspended call of NFSv3, MOUNT, NLM, NSM or RQUOTA. On drop, charges for bytes that were not
/// moved are refunded.
struct SuspendedCall {
    service: Arc<Service>,
    conn: ConnInfo,
    record: Vec<u8>,
    ticket: Option<Ticket>,
    cx: OpContext,
    may_wait: MayWait,
    /// True if it waits for a record that it has written.
    recording: bool,
}

impl Drop for SuspendedCall {
    fn drop(&mut self) {
        self.cx.settle_charge(&self.service.vfs.throttle);
    }
}

impl Request for SuspendedCall {
    type Reply = ReplyBuf;
    type Cancel = Infallible;

    fn parts(&mut self) -> Parts<'_, Infallible> {
        Parts {
            vfs: &self.service.vfs,
            cx: &mut self.cx,
            patience: Some(&self.service.patience),
            cancelled: None,
        }
    }

    fn resume(&mut self, resumed: WaitOutcome<Infallible>) -> Result<Outcome, Suspend> {
        let Message::Call(call) = rpc::message(&self.record) else {
            return Ok(Outcome::Close("not an RPC message"));
        };
        match resumed {
            WaitOutcome::Ready => {}
            WaitOutcome::NotRecalled => self.may_wait.recalls = false,
            WaitOutcome::NotNamed => self.may_wait.names = false,
            WaitOutcome::Failed(_) if self.recording => self.may_wait.records = false,
            WaitOutcome::Failed(error) => {
                let outcome = self.service.failed(&self.conn, &call, error);
                count_outcome(&self.service.vfs, self.conn.id, &outcome);
                return Ok(outcome);
            }
            WaitOutcome::Cancelled(never) => match never {},
        }
        let service = &self.service;
        // It may have waited until its volume had moved to another server.
        if call.flavour <= rpc::AUTH_SYS && service.owner_of(&self.conn, &call).is_some() {
            if takes_data(&call) && self.cx.has_data() {
                // The call is not complete any more: the client connects again and repeats it.
                return Ok(Outcome::Close("its volume has moved to another server"));
            }
            self.ticket = None;
            if let Some(outcome) = service.elsewhere(&self.conn, &call, &self.record) {
                return Ok(outcome);
            }
        }
        match service.run(&self.conn, &call, &mut self.cx, self.may_wait) {
            Ok(answer) => Ok(finish(self.ticket.take(), answer)),
            Err(Stop::Failed(why)) => {
                let outcome = refuse(call.xid, why);
                count_outcome(&service.vfs, self.conn.id, &outcome);
                Ok(outcome)
            }
            Err(Stop::Suspended(suspend)) => {
                self.recording = matches!(suspend, Suspend::Record(..));
                Err(suspend)
            }
        }
    }
}

/// Returns the lowest and the highest served version of a program.
fn versions_of(program: u32) -> Option<(u32, u32)> {
    Some(match program {
        NFS_PROGRAM => (3, 4),
        MOUNT_PROGRAM => (3, 3),
        NLM_PROGRAM => (4, 4),
        NSM_PROGRAM => (1, 1),
        RQUOTA_PROGRAM => (1, 2),
        _ => return None,
    })
}

/// Returns the refusal if the program or its version is not served.
fn not_served(call: &Call<'_>) -> Option<Refusal> {
    match versions_of(call.program) {
        None => Some(Refusal::ProgUnavail),
        Some((low, high)) if call.version < low || call.version > high => {
            Some(Refusal::ProgMismatch { low, high })
        }
        Some(_) => None,
    }
}

fn is_nfs4(call: &Call<'_>) -> bool {
    call.program == NFS_PROGRAM && call.version == 4
}

/// Returns a key that nobody else has.
fn random_key(rng: &dyn Rng) -> SipKey {
    let (low, high) = (rng.next_u64(), rng.next_u64());
    SipKey::new((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

/// Returns the procedure of an NFSv3 call.
fn nfs3(call: &Call<'_>) -> Option<u32> {
    (call.program == NFS_PROGRAM && call.version == 3).then_some(call.procedure)
}

impl Service {
    /// Creates a service and starts its lock services.
    pub fn new(config: Config) -> Arc<Service> {
        let secret = config.vfs.derive_secret(b"duplicate-request cache");
        let drc = Drc::new(config.drc_bytes, secret);
        let (of_4, of_3) = { config.done_calls.into_iter() }
            .partition(|call: &DoneCall| v4::persistent::is_operation(&call.key));
        drc.recover(of_3, config.clock.current_time());
        let outbox = Arc::new(Outbox::default());
        let nfs4 = Nfs4::start(v4::Parts {
            vfs: Arc::clone(&config.vfs),
            clock: Arc::clone(&config.clock),
            rng: Arc::clone(&config.rng),
            records: Arc::clone(&config.records),
            grace: config.grace,
            name: config.name.clone(),
            done: of_4,
        });
        let locks = LockService::start(nlm::Parts {
            vfs: Arc::clone(&config.vfs),
            clock: Arc::clone(&config.clock),
            rng: Arc::clone(&config.rng),
            records: Arc::clone(&config.records),
            grace: config.grace,
            name: config.name,
            outbox: Arc::clone(&outbox),
        });
        Arc::new(Service {
            patience: Patience::new(PATIENCE_NFS3),
            vfs: config.vfs,
            drc,
            mounts: Mounts::default(),
            locks,
            records: config.records,
            clock: config.clock,
            outbox,
            held: Arc::default(),
            nfs4,
            gss: OnceLock::new(),
            groups: OnceLock::new(),
            forwards: OnceLock::new(),
            challenges: random_key(&*config.rng),
            tls: AtomicBool::new(false),
            rng: config.rng,
        })
    }

    /// Lets this mechanism establish callers from now on. Only the first call has an effect.
    pub fn accept_contexts(&self, acceptor: Arc<dyn Acceptor>) {
        let (clock, rng) = (Arc::clone(&self.clock), Arc::clone(&self.rng));
        let budget = Arc::clone(self.vfs.claims.budget());
        let gss = Gss::new(acceptor, budget, clock, rng);
        let _ = self.gss.set(Arc::new(gss));
        self.nfs4.kerberos.store(true, Ordering::Relaxed);
    }

    /// Replaces the groups of users whose credentials are full by those that `directory` knows,
    /// from now on. Only the first call has an effect.
    pub fn look_groups_up(&self, directory: Arc<dyn Directory>) {
        let groups = UserGroups::new(directory, Arc::clone(&self.clock));
        let _ = self.groups.set(groups);
    }

    /// Answers clients' probes for TLS with yes, from now on.
    pub fn offer_tls(&self) {
        self.tls.store(true, Ordering::Relaxed);
    }

    /// Sets `run` as the executor of background work: copies that clients request in the
    /// background. Without it they are carried out before the reply. `run` is called from within
    /// `handle` and must not block.
    pub fn run_in_background(&self, run: Arc<dyn Fn(v4::Background) + Send + Sync>) {
        self.nfs4.offloads.run_with(run);
    }

    /// Lets clients name users and groups in this domain, resolved by `accounts`, from now on. Only
    /// the first call has an effect.
    pub fn map_names(&self, domain: &str, accounts: Arc<dyn Accounts>) {
        let idmap = IdMap::new(domain, accounts, Arc::clone(&self.clock));
        let _ = self.nfs4.idmap.set(idmap);
    }

    /// Refers clients of NFSv4 to other servers for these paths. Only the first call has an effect,
    /// and it must precede any request.
    pub fn refer(&self, referrals: Vec<v4::Referral>) {
        let referrals = referrals.into_iter().map(Arc::new).collect();
        let _ = self.nfs4.referrals.set(referrals);
    }

    /// Forwards calls about other servers' aggregates by `forwards`, from now on. Only the first
    /// call has an effect.
    pub fn forward_by(&self, forwards: Arc<dyn Forward>) {
        let _ = self.forwards.set(forwards);
    }

    /// Returns the current numbers of clients and sessions of NFSv4.
    pub fn nfs4_counts(&self) -> v4::Counts {
        self.nfs4.registry.counts()
    }

    /// Returns the security contexts, if callers can be established.
    pub fn gss(&self) -> Option<&Arc<Gss>> {
        self.gss.get()
    }

    /// Records in which files clients have claims, so that the grace period after the next start
    /// waits for nothing else. Call it when no client is served any more, at an orderly stop.
    pub fn list_claims(&self) {
        self.nfs4.list_claims();
        self.locks.list_claims();
    }

    /// Does the periodic work. Call it about once a second.
    pub fn tick(&self) {
        self.locks.tick();
        self.nfs4.tick();
        self.patience.tick();
        if let Some(gss) = self.gss() {
            gss.tick();
        }
        if let Some(groups) = self.groups.get() {
            groups.tick();
        }
        // Ends only once the clients of all services have reclaimed their claims.
        if self.vfs.grace.end_if_over(self.clock.monotonic()) {
            self.records.end_grace();
        }
        self.records.tick();
        self.vfs.names.tick();
        self.vfs.throttle.tidy();
    }

    /// Takes a call that is to be sent to a client. `may` tells if a destination may be called now.
    /// Destinations take turns.
    pub fn next_outgoing(&self, mut may: impl FnMut(IpAddr) -> bool) -> Option<OutgoingCall> {
        self.outbox.take(&mut may)
    }

    /// Sets `wake`, which is called whenever there is a call to take. It is called from within
    /// `handle` and must only pass on the notification.
    pub fn on_outgoing(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.outbox.on_push(wake);
    }

    /// Sets `send`, which sends a callback to a client: it gets the number of the connection, and
    /// an RPC call without record mark. It returns false if there is no room for the call now, and
    /// must not block.
    pub fn on_callback(&self, send: Arc<dyn Fn(u64, Box<[u8]>) -> bool + Send + Sync>) {
        self.nfs4.callbacks.send_with(send);
    }

    /// Handles the end of the peer's half of a connection.
    pub fn connection_ended(&self, conn: &ConnInfo) {
        conn.end();
        self.nfs4.connection_ended(conn.id);
        if let Some(forwards) = self.forwards.get() {
            forwards.ended(conn.id);
        }
    }

    /// Processes the result of a call taken from [`Service::next_outgoing`]: the RPC reply message
    /// without record mark, or `None` if there was none. The service repeats calls by itself if
    /// necessary.
    pub fn outgoing_done(&self, token: u64, reply: Option<&[u8]>) {
        self.locks.outgoing_done(token, reply);
    }

    /// Serves one RPC message (without record marks) that arrived on `conn` at
    /// `now`.
    pub fn handle(
        self: &Arc<Self>,
        conn: &ConnInfo,
        record: &[u8],
        now: impl Into<Arrival>,
    ) -> Outcome {
        let outcome = self.handle_message(conn, record, now.into());
        count_outcome(&self.vfs, conn.id, &outcome);
        outcome
    }

    fn handle_message(self: &Arc<Self>, conn: &ConnInfo, record: &[u8], now: Arrival) -> Outcome {
        match rpc::message(record) {
            Message::Call(call) if call.flavour > rpc::AUTH_SYS => {
                let gss = self.gss().filter(|_| call.flavour == rpc::RPCSEC_GSS);
                match (gss, not_served(&call)) {
                    (_, Some(why)) => refuse(call.xid, why),
                    (..) if call.flavour == rpc::AUTH_TLS => self.start_tls(conn, &call),
                    (Some(gss), None) => match gss.open(conn.id, &call, record) {
                        Ok(opened) => {
                            let outcome = self.serve(conn, &opened.call(&call), now);
                            opened.seal.outcome(outcome)
                        }
                        Err(outcome) => outcome,
                    },
                    (None, None) if call.is_established() => {
                        refuse(call.xid, Refusal::Auth(AuthStat::BadCred))
                    }
                    // NULL needs no identity; other procedures refuse a credential that they cannot
                    // decode.
                    (None, None) => self.serve(conn, &call, now),
                }
            }
            Message::Call(call) => {
                if let Some(outcome) = self.elsewhere(conn, &call, record) {
                    return outcome;
                }
                match self.groups.get() {
                    Some(groups) => self.complete(groups, conn, &call, now),
                    None => self.serve(conn, &call, now),
                }
            }
            Message::Refuse(xid, why) => refuse(xid, why),
            Message::Reply(xid, body) => {
                self.nfs4.replied(conn.id, xid, body);
                Outcome::Drop
            }
            Message::Nonsense => Outcome::Close("not an RPC message"),
        }
    }

    /// Serves a call that another server of the cluster makes, and forwards one about another
    /// server's aggregate; `None` for all others.
    fn elsewhere(&self, conn: &ConnInfo, call: &Call<'_>, record: &[u8]) -> Option<Outcome> {
        if call.program == forward::PROGRAM {
            return Some(forward::introduce(&self.vfs, self.challenges, conn, call));
        }
        let forwards = self.forwards.get()?;
        let owner = match self.owner_of(conn, call)? {
            Redirect { left: false, .. } if conn.forwarded => return self.disagreed(conn, call),
            elsewhere => elsewhere.server.identity,
        };
        if self.held.contains(conn.id, call.xid) {
            return Some(Outcome::Drop);
        }
        let held = self.held.enter(conn.id, call.xid);
        let forwarded = forwards.forward(conn, owner, forward::marked(record));
        Some(Outcome::Later(Box::pin(async move {
            let reply = forwarded.await;
            drop(held);
            match reply {
                Some(reply) => Outcome::Reply(ReplyBuf::whole(reply, None), None),
                None => Outcome::Drop,
            }
        })))
    }

    /// Answers a call that another server has forwarded here, and that is about a third one: the
    /// directories differ for a moment.
    #[cold]
    fn disagreed(&self, conn: &ConnInfo, call: &Call<'_>) -> Option<Outcome> {
        let delay = || Outcome::Reply(self.nfs_failure(conn, call, Error::Delay), None);
        (call.program == NFS_PROGRAM).then(delay)
    }

    /// Returns true if the call that `head` begins is to be forwarded, or waits until its volume
    /// has moved.
    fn is_elsewhere(&self, conn: &ConnInfo, head: &[u8]) -> bool {
        let Message::Call(call) = rpc::message(head) else {
            return false;
        };
        if self.forwards.get().is_none() || call.flavour > rpc::AUTH_SYS {
            return false;
        }
        self.owner_of(conn, &call).is_some() || self.is_held(&call)
    }

    /// Returns true if requests about the file of an NFSv3 call are held.
    fn is_held(&self, call: &Call<'_>) -> bool {
        let handle = nfs3(call).and_then(|_| v3::types::handle(&mut Reader::new(call.args)).ok());
        handle.is_some_and(|handle| self.vfs.is_moving(handle))
    }

    /// Returns the other server that a call is about.
    fn owner_of(&self, conn: &ConnInfo, call: &Call<'_>) -> Option<Redirect> {
        let directory = self.vfs.directory();
        directory.membership()?;
        forward::owner_of(&self.vfs, &directory, conn, call)
    }

    /// Answers the probe for TLS: NULL of any program, in the clear (RFC 9289 §4.1).
    fn start_tls(&self, conn: &ConnInfo, call: &Call<'_>) -> Outcome {
        let probe = call.procedure == 0 && call.cred.is_empty() && call.args.is_empty();
        let offered = self.tls.load(Ordering::Relaxed);
        if !probe || !offered || conn.transport != Transport::Clear {
            return refuse(call.xid, Refusal::Auth(AuthStat::BadCred));
        }
        let mut out = ReplyBuf::start(64);
        rpc::put_start_tls(&mut out, call.xid);
        Outcome::StartTls(ReplyBuf::whole(out, None))
    }

    /// Serves a call whose user may have more groups than its credential contains, see
    /// [`crate::groups`].
    fn complete(
        self: &Arc<Self>,
        groups: &UserGroups,
        conn: &ConnInfo,
        call: &Call<'_>,
        now: Arrival,
    ) -> Outcome {
        let uid = match call.credential() {
            Ok(Credential::Sys(who)) if who.unix.gids.as_slice().len() >= FULL => who.unix.uid,
            _ => return self.serve(conn, call, now),
        };
        let coming = match groups.find_groups(uid) {
            GroupsLookup::Yes(found) => return self.completed(conn, call, found, now),
            GroupsLookup::Coming(coming) => coming,
        };
        let (service, conn, record) = (Arc::clone(self), conn.clone(), call.record(call.args));
        Outcome::Later(Box::pin(async move {
            let found = coming.await;
            let Message::Call(call) = rpc::message(&record) else {
                return Outcome::Close("not an RPC message");
            };
            let outcome = service.completed(&conn, &call, found, now);
            let outcome = outcome.finished().await;
            count_outcome(&service.vfs, conn.id, &outcome);
            outcome
        }))
    }

    fn completed(
        self: &Arc<Self>,
        conn: &ConnInfo,
        call: &Call<'_>,
        found: ResolvedGroups,
        now: Arrival,
    ) -> Outcome {
        let more = found.filter(|groups| groups.as_slice().len() > FULL);
        match (more, call.credential()) {
            (Some(gids), Ok(Credential::Sys(mut who))) => {
                who.unix.gids = gids;
                let credential = rpc::established(&who, 0);
                let call = call.established(Flavour::Sys, &credential, call.args);
                self.serve(conn, &call, now)
            }
            _ => self.serve(conn, call, now),
        }
    }

    fn serve(self: &Arc<Self>, conn: &ConnInfo, call: &Call<'_>, now: Arrival) -> Outcome {
        if is_nfs4(call) {
            return self.nfs4.call(conn, call, now);
        }
        if let Some(why) = not_served(call) {
            return refuse(call.xid, why);
        }
        // Security contexts are between the client and this server, so that the owner could not
        // verify such a call.
        if call.is_established() && !conn.forwarded && self.owner_of(conn, call).is_some() {
            return match call.program {
                NFS_PROGRAM => Outcome::Reply(self.nfs_failure(conn, call, NOT_FORWARDED), None),
                _ => refuse(call.xid, Refusal::Auth(AuthStat::TooWeak)),
            };
        }
        let mut ticket = None;
        if nfs3(call).is_some_and(procedure::must_run_once) {
            match self.drc.begin(conn, call, now.time) {
                ReplyLookup::New(t) => ticket = Some(t),
                ReplyLookup::Twin => {}
                ReplyLookup::Running => return Outcome::Drop,
                // While the mirror's partner is lost, a strict volume does not confirm changes. The
                // client tries again.
                ReplyLookup::Recovered(volume, _) if self.vfs.holds(volume) => {
                    return Outcome::Drop;
                }
                ReplyLookup::Recovered(volume, ino) => {
                    return Outcome::Reply(self.recovered(call, volume, ino), None);
                }
                ReplyLookup::Answered(reply, lsn) => return Outcome::Reply(reply, lsn),
            }
        }
        if nfs3(call).is_some_and(procedure::may_be_held) && self.held.contains(conn.id, call.xid) {
            return Outcome::Drop;
        }
        let mut cx = OpContext::new(now.time, conn.id, now.monotonic);
        cx.set_call(ticket.as_ref().map(Ticket::key));
        cx.set_reads(now.reads);
        match self.run(conn, call, &mut cx, MayWait::ALL) {
            Ok(answer) => {
                cx.settle_charge(&self.vfs.throttle);
                finish(ticket, answer)
            }
            Err(Stop::Failed(why)) => refuse(call.xid, why),
            Err(Stop::Suspended(suspend)) => self.suspend(conn, call, suspend, ticket, cx),
        }
    }

    /// Suspends a call after its first run.
    #[cold]
    fn suspend(
        self: &Arc<Self>,
        conn: &ConnInfo,
        call: &Call<'_>,
        suspend: Suspend,
        ticket: Option<Ticket>,
        cx: OpContext,
    ) -> Outcome {
        // The memory of a call that is deferred by limits is charged to its client's credit.
        let held = suspend.is_limit().then(|| {
            let bytes = call.bytes() + HELD_OVERHEAD;
            let bytes = self.vfs.throttle.hold(conn.peer.ip(), bytes);
            (self.held.enter(conn.id, call.xid), bytes)
        });
        let suspended = SuspendedCall {
            service: Arc::clone(self),
            conn: conn.clone(),
            record: call.record(kept(call, &cx)),
            ticket,
            cx,
            may_wait: MayWait::ALL,
            recording: matches!(suspend, Suspend::Record(..)),
        };
        Outcome::suspended(
            suspend,
            // A call that is forwarded after its wait waits again.
            |suspend| {
                Box::pin(async move { resume(suspended, suspend, held).await.finished().await })
            },
            || self.nfs_failure(conn, call, Error::Delay),
        )
    }

    /// Decides about a record of `bytes` of which only `head` has arrived. At [`Begin::Wait`], the
    /// task of `cx` is woken when it should ask again.
    ///
    /// Only a WRITE is that long, or an NFSv4 request with data, and file handles cannot be forged.
    /// A caller with a handle of an export that admits it is therefore a client. No other caller
    /// can claim memory.
    pub fn begin(&self, conn: &ConnInfo, head: &[u8], bytes: usize, cx: &Context<'_>) -> Begin {
        let call = match rpc::message(head) {
            Message::Call(call) => call,
            Message::Refuse(xid, why) => return Begin::Refuse(refusal(xid, why), None),
            Message::Reply(..) => return Begin::Close("a reply that is too long"),
            Message::Nonsense => return Begin::Close("not an RPC message"),
        };
        let refuse = |why| Begin::Refuse(refusal(call.xid, why), None);
        if let Some(why) = not_served(&call) {
            return refuse(why);
        }
        if call.flavour > rpc::AUTH_SYS {
            // The operation is not known before the call is decrypted, but the context cannot be
            // forged.
            let gss = self.gss().filter(|_| call.flavour == rpc::RPCSEC_GSS);
            return match gss {
                Some(gss) if gss.takes(&call, bytes) => Begin::Go(None),
                Some(_) => refuse(Refusal::Auth(AuthStat::GssCred)),
                None => refuse(Refusal::Auth(AuthStat::BadCred)),
            };
        }
        let handle = match (call.program, call.version, call.procedure) {
            (NFS_PROGRAM, 4, v4::COMPOUND) => match self.nfs4.long(conn, call.args) {
                Some(Ok(handle)) => Some(handle),
                Some(Err(why)) => {
                    return Begin::Refuse(self.nfs4.refused(conn, &call, why), None);
                }
                None => None,
            },
            (NFS_PROGRAM, 3, procedure::WRITE) => {
                v3::types::handle(&mut Reader::new(call.args)).ok()
            }
            _ => None,
        };
        let Some(handle) = handle else {
            return refuse(Refusal::GarbageArgs);
        };
        let credential = match call.credential() {
            Ok(credential) => credential,
            Err(why) => return refuse(why),
        };
        let table = self.vfs.exports();
        let mut session = v3::session(conn, &credential);
        if is_nfs4(&call) {
            session.protocol = Protocol::Nfsv4;
        }
        let volume = match self.vfs.admit(&table, handle, &session) {
            Ok(admitted) => admitted.volume(),
            Err(Stop::Suspended(_)) if is_nfs4(&call) => {
                return Begin::Refuse(self.nfs4.delayed(conn, &call), None);
            }
            Err(Stop::Failed(error)) if is_nfs4(&call) => {
                let nfs4 = &self.nfs4;
                let (reply, lsn) = nfs4.refuse_data(conn, &call, head, bytes, error.into());
                return Begin::Refuse(reply, lsn);
            }
            Err(Stop::Failed(Error::Unprotected)) => return refuse(UNPROTECTED),
            Err(why) => {
                let error = match why {
                    Stop::Failed(error) => error,
                    Stop::Suspended(_) => Error::Delay,
                };
                return Begin::Refuse(self.nfs_failure(conn, &call, error), None);
            }
        };
        if bytes < LARGE_WRITE {
            return Begin::Go(None);
        }
        let (client, bytes) = (conn.peer.ip(), bytes + HELD_OVERHEAD);
        let credit = self.vfs.throttle.poll_begin(volume, client, bytes, cx);
        match credit {
            Poll::Ready(credit) => Begin::Go(credit),
            Poll::Pending => Begin::Wait,
        }
    }

    /// Decides as [`Service::begin`] does, and counts the call if RPC refuses it.
    pub fn begin_counted(
        &self,
        conn: &ConnInfo,
        head: &[u8],
        bytes: usize,
        cx: &Context<'_>,
    ) -> Begin {
        if self.is_elsewhere(conn, head) {
            // The owner decides. Until then the memory is charged to the connection.
            return Begin::Go(None);
        }
        let begin = self.begin(conn, head, bytes, cx);
        if let Begin::Refuse(reply, _) = &begin {
            count_refusal(&self.vfs, conn.id, reply);
        }
        begin
    }

    /// Returns the reply to a call that was done before the start: success, and the handle of `ino`
    /// if the call made it.
    fn recovered(&self, call: &Call<'_>, volume: VolumeId, ino: Ino) -> ReplyBuf {
        let mut head = ReplyBuf::start(128);
        rpc::put_accepted(&mut head, call.xid);
        procedure::put_done(&mut head, call.procedure, || {
            let namespace = Namespace::Live;
            self.vfs.handle_of(FileId {
                volume,
                ino,
                namespace,
            })
        });
        ReplyBuf::whole(head, Some(Failure::from_procedure(call.procedure)))
    }

    /// Counts a call that failed with this status of its protocol.
    fn count_failure(&self, conn: &ConnInfo, call: &Call<'_>, status: u32) {
        let operation = operation::number(call.program, call.procedure);
        self.vfs.count_failure(conn.id, operation, status);
    }

    /// Returns the reply to an NFS call that failed before it reached any object, and counts it.
    fn nfs_failure(&self, conn: &ConnInfo, call: &Call<'_>, error: Error) -> ReplyBuf {
        self.count_failure(conn, call, Status::from_error(call.procedure, error) as u32);
        let mut head = ReplyBuf::start(64);
        rpc::put_accepted(&mut head, call.xid);
        procedure::put_failure(&mut head, call.procedure, error);
        ReplyBuf::whole(head, None)
    }

    /// Returns the outcome of a call whose volume failed to do the work that the call was suspended
    /// for.
    fn failed(&self, conn: &ConnInfo, call: &Call<'_>, error: Error) -> Outcome {
        let mut head = ReplyBuf::start(64);
        rpc::put_accepted(&mut head, call.xid);
        match call.program {
            NFS_PROGRAM => return Outcome::Reply(self.nfs_failure(conn, call, error), None),
            MOUNT_PROGRAM => {
                if let Err(why) = mount3::failure(call.procedure, &mut head) {
                    return refuse(call.xid, why);
                }
            }
            _ => return refuse(call.xid, Refusal::SystemErr),
        }
        let reply = ReplyBuf::whole(head, None);
        if let Some(status) = mount3::failed_with(call.procedure, reply.results()) {
            self.count_failure(conn, call, status);
        }
        Outcome::Reply(reply, None)
    }

    /// Runs a call once from its start.
    fn run(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        cx: &mut OpContext,
        may_wait: MayWait,
    ) -> RunResult {
        let mut head = ReplyBuf::start(256);
        rpc::put_accepted(&mut head, call.xid);
        let run = match call.program {
            NFS_PROGRAM => self.nfs(conn, call, cx, head, may_wait),
            MOUNT_PROGRAM => self.mount(conn, call, cx, head, may_wait),
            NLM_PROGRAM => self.nlm(conn, call, cx, head, may_wait),
            RQUOTA_PROGRAM => self.rquota(conn, call, head, may_wait),
            _ => self.nsm(conn, call, head, may_wait),
        };
        // The call may have affected claims of NFSv4 clients.
        self.nfs4.poll_notices();
        run
    }

    fn nfs(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        cx: &mut OpContext,
        mut head: Vec<u8>,
        may_wait: MayWait,
    ) -> RunResult {
        let args = match takes_data(call) && cx.has_data() {
            true => v3::args::decode_without_data(call.args),
            false => v3::args::decode(call.procedure, call.args).ok_or(Refusal::ProcUnavail)?,
        };
        let credential = match call.procedure {
            0 => Credential::None,
            _ => call.credential()?,
        };
        let args = args.map_err(|_| Refusal::GarbageArgs)?;
        let table = self.vfs.exports();
        let mut payload = None;
        let mut op = v3::Op {
            vfs: &self.vfs,
            table: &table,
            session: v3::session(conn, &credential),
            procedure: call.procedure,
            cx,
            out: &mut head,
            payload: &mut payload,
            volume: None,
            unprotected: false,
            patient: may_wait.recalls,
        };
        let outcome = op.run(&args);
        let volume = op.volume;
        if op.unprotected {
            return Err(UNPROTECTED.into());
        }
        let (lsn, done) = match outcome {
            Ok(lsn) => (lsn, true),
            Err(Stop::Failed(status)) => {
                self.count_failure(conn, call, status as u32);
                (None, false)
            }
            Err(Stop::Suspended(Suspend::NameService(wait)))
                if !(wait.coming && may_wait.names) =>
            {
                return Ok(self.nfs_failure(conn, call, Error::Delay).into());
            }
            Err(Stop::Suspended(suspend)) => return Err(suspend.into()),
        };
        let mut reply =
            ReplyBuf::with_payload(head, payload, Some(Failure::from_procedure(call.procedure)));
        if let Some(done) = volume.and_then(|id| counted_as(cx, id, call)) {
            reply.count_as(done);
        }
        Ok(Answer { reply, lsn, done })
    }

    fn mount(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        cx: &mut OpContext,
        mut head: Vec<u8>,
        may_wait: MayWait,
    ) -> RunResult {
        let args = mount3::decode(call.procedure, call.args).ok_or(Refusal::ProcUnavail)?;
        let args = args.map_err(|_| Refusal::GarbageArgs)?;
        let table = self.vfs.exports();
        let mut op = mount3::Op {
            vfs: &self.vfs,
            table: &table,
            mounts: &self.mounts,
            client: conn.peer.ip().to_canonical(),
            local: conn.local.ip(),
            kerberos: self.gss().is_some(),
            cx,
            out: &mut head,
            unknown: None,
            volume: None,
        };
        let outcome = op.run(&args);
        let (unknown, volume) = (op.unknown, op.volume);
        let done = volume.and_then(|id| counted_as(cx, id, call));
        let answer = ended(outcome, unknown, (head, done), may_wait)?;
        if let Some(status) = mount3::failed_with(call.procedure, answer.reply.results()) {
            self.count_failure(conn, call, status);
        }
        Ok(answer)
    }

    fn nlm(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        cx: &mut OpContext,
        mut head: Vec<u8>,
        may_wait: MayWait,
    ) -> RunResult {
        let args = nlm::wire::decode(call.procedure, call.args).ok_or(Refusal::ProcUnavail)?;
        let args = args.map_err(|_| Refusal::GarbageArgs)?;
        let table = self.vfs.exports();
        let credential = match nlm::takes_identity(&args) {
            true => call.credential()?,
            false => Credential::None,
        };
        let local = conn.local.ip().to_canonical();
        let session = v3::session(conn, &credential);
        let mut op = nlm::Op::new(&self.locks, &table, session, local, cx, &mut head);
        let outcome = op.run(&args);
        let (unknown, unrecorded, volume) = (op.unknown, op.unrecorded.take(), op.volume);
        let failed = op.failed;
        let done = volume.and_then(|id| counted_as(cx, id, call));
        let answer = ended(outcome, unknown, (head, done), may_wait)?;
        match unrecorded {
            Some(lsn) if may_wait.records => {
                Err(Suspend::Record(Arc::clone(&self.records), lsn).into())
            }
            _ => {
                if let Some(status) = failed {
                    self.count_failure(conn, call, status);
                }
                Ok(answer)
            }
        }
    }

    fn rquota(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        mut head: Vec<u8>,
        may_wait: MayWait,
    ) -> RunResult {
        let args = rquota::decode(call.version, call.procedure, call.args);
        let args = args.ok_or(Refusal::ProcUnavail)?;
        let args = args.map_err(|_| Refusal::GarbageArgs)?;
        let table = self.vfs.exports();
        let mut op = rquota::Op {
            vfs: &self.vfs,
            table: &table,
            client: conn.peer.ip().to_canonical(),
            local: conn.local.ip(),
            credential: match call.procedure {
                0 => Credential::None,
                _ => call.credential()?,
            },
            out: &mut head,
        };
        let unknown = op.run(&args);
        ended(Ok(()), unknown, (head, None), may_wait)
    }

    fn nsm(
        &self,
        conn: &ConnInfo,
        call: &Call<'_>,
        mut head: Vec<u8>,
        may_wait: MayWait,
    ) -> RunResult {
        let args = nsm::decode(call.procedure, call.args).ok_or(Refusal::ProcUnavail)?;
        let args = args.map_err(|_| Refusal::GarbageArgs)?;
        let unknown = nsm::serve(&self.locks, conn.peer, &args, &mut head);
        ended(Ok(()), unknown, (head, None), may_wait)
    }
}

/// Returns the result of a run of MOUNT, NLM or NSM. Takes the encoded results and the operation
/// that they are counted as.
fn ended(
    outcome: Result<(), Suspend>,
    unknown: Option<Wait>,
    (head, done): (Vec<u8>, Option<Done>),
    may_wait: MayWait,
) -> RunResult {
    outcome?;
    if let Some(wait) = unknown.filter(|wait| wait.coming && may_wait.names) {
        return Err(Suspend::NameService(wait).into());
    }
    let mut reply = ReplyBuf::whole(head, None);
    if let Some(done) = done {
        reply.count_as(done);
    }
    Ok(reply.into())
}

/// Returns the operation that a call on a volume is counted as.
fn counted_as(cx: &OpContext, volume: VolumeId, call: &Call<'_>) -> Option<Done> {
    Some(Done {
        volume,
        operation: operation::number(call.program, call.procedure)?,
        bytes: u32::try_from(cx.moved()).ok()?,
        arrived: cx.arrived()?,
    })
}

fn finish(ticket: Option<Ticket>, answer: Answer) -> Outcome {
    let Answer { reply, lsn, done } = answer;
    if let (Some(ticket), true, Some(bytes)) = (ticket, done, reply.head()) {
        ticket.keep(bytes, lsn);
    }
    Outcome::Reply(reply, lsn)
}

/// Returns the part of a call's arguments that is needed to run it again.
fn kept<'a>(call: &Call<'a>, cx: &OpContext) -> &'a [u8] {
    let data = Some(call.args).filter(|_| takes_data(call) && cx.has_data());
    let data = data.and_then(v3::args::before_data);
    data.and_then(|at| call.args.get(..at)).unwrap_or(call.args)
}

/// Returns true for a WRITE, whose data may be in the engine while the call is suspended.
fn takes_data(call: &Call<'_>) -> bool {
    nfs3(call) == Some(procedure::WRITE)
}

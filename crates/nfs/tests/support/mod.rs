//! A server for tests, without a network, and its clients.

#![allow(dead_code)] // Each test binary uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test helper fails loudly.

pub mod callbacks;
pub mod compound;
pub mod gss;
pub mod locker;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_base::{BlockAddr, Budget, Clock, Lsn, ManualClock, SeededRng, Time};
use weir_nfs::{Arrival, Config, ConnInfo, Later, Outcome, OutgoingCall, ReplyBuf, Service};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::device::{Device, Io};
use weir_store::{Frame, FrameMut, FramePool, IoError, IoKind, MemDevice};
use weir_testclient::nfs3::{CreateHow3, FILE_SYNC, Sattr};
use weir_testclient::{Call, Caller, In, Out, Reply, rpc};
use weir_vfs::claims::ServiceId;
use weir_vfs::grace::Records;
use weir_vfs::stats::{Done, Stats};
use weir_vfs::throttle::{CreditLimits, Throttle};
use weir_vfs::{Export, HandleKey, Rule, Squash, Transport, Vfs, Volume};
use weir_volume::{Engine, EngineOptions};

pub use weir_testclient::nfs3::Fattr;
pub use weir_testclient::{Args as X, Fields as R};

pub const NFS: (u32, u32) = (100_003, 3);
pub const MOUNT: (u32, u32) = (100_005, 3);
pub const NLM: (u32, u32) = (100_021, 4);
pub const NSM: (u32, u32) = (100_024, 1);

pub struct Server {
    pub service: Arc<Service>,
    pub vfs: Arc<Vfs>,
    pub volume: Arc<Volume>,
    pub engine: Engine,
    pub disks: Disks,
    pub clock: Arc<ManualClock>,
    pub records: Arc<Records>,
    pub xid: std::cell::Cell<u32>,
    pub peer: std::cell::Cell<SocketAddr>,
    pub local: std::cell::Cell<SocketAddr>,
    pub uid: std::cell::Cell<(u32, u32)>,
    /// The number of the connection that requests come over.
    pub connection: std::cell::Cell<u64>,
    pub transport: std::cell::Cell<Transport>,
    /// Connections that stay open, by the client's address and port.
    pub kept: std::cell::RefCell<HashMap<SocketAddr, ConnInfo>>,
    pub last_lsn: std::cell::Cell<Option<Lsn>>,
    /// LSN up to which clients rely on the log, since they have the replies.
    pub acknowledged: std::cell::Cell<Option<Lsn>>,
    /// Operation that the last reply is counted as.
    pub last_done: std::cell::Cell<Option<Done>>,
}

pub const GRACE: Duration = Duration::from_secs(45);

impl Server {
    pub fn new() -> Server {
        Server::with(vec![Rule::open(Squash::None)])
    }

    pub fn with(rules: Vec<Rule>) -> Server {
        Server::with_records(rules, &[])
    }

    /// A server that finds these records of the lock manager.
    pub fn with_records(rules: Vec<Rule>, before: &[&[u8]]) -> Server {
        let key = HandleKey::new([9; 16], [0; 16]);
        let limits = CreditLimits::of_budget(0);
        let throttle = Throttle::new(Arc::new(ManualClock::default()), 1, limits);
        let claims = Budget::new(weir_base::limits::protocol::CLAIM_BYTES);
        let vfs = Vfs::counting(key, throttle, claims, Some(Arc::new(Stats::new(1))));
        Server::behind(vfs, rules, before)
    }

    /// A server whose clients may have so many bytes.
    pub fn with_memory(bytes: usize) -> Server {
        let key = HandleKey::new([9; 16], [0; 16]);
        let limits = CreditLimits::of_budget(0);
        let throttle = Throttle::new(Arc::new(ManualClock::default()), 1, limits);
        let vfs = Vfs::with_throttle(key, throttle, Budget::new(bytes));
        Server::behind(vfs, vec![Rule::open(Squash::None)], &[])
    }

    fn behind(vfs: Arc<Vfs>, rules: Vec<Rule>, before: &[&[u8]]) -> Server {
        let disks = Disks::new();
        let (engine, volume) = disks.format();
        for (number, record) in (1..).zip(before) {
            let records = engine.client_records();
            records.set_blocking(number, Some(record)).unwrap();
        }
        vfs.publish(vec![Export::new("/vol1", Arc::clone(&volume), rules)]);
        vfs.follow(&engine);
        let clock = Arc::new(ManualClock::default());
        let records = Records::from_engine(&engine);
        let service = Service::new(Config {
            vfs: Arc::clone(&vfs),
            clock: clock.clone(),
            rng: Arc::new(SeededRng::new(1)),
            drc_bytes: 1 << 20,
            done_calls: engine.done_calls(),
            records: records.clone(),
            grace: GRACE,
            name: "weir".into(),
        });
        let peer = "10.0.0.1:900".parse().unwrap();
        Server {
            service,
            vfs,
            volume,
            engine,
            disks,
            clock,
            records,
            xid: 1.into(),
            peer: std::cell::Cell::new(peer),
            local: std::cell::Cell::new("10.0.0.99:2049".parse().unwrap()),
            uid: (0, 0).into(),
            connection: 1.into(),
            transport: Transport::Clear.into(),
            kept: std::cell::RefCell::default(),
            last_lsn: None.into(),
            acknowledged: None.into(),
            last_done: None.into(),
        }
    }

    /// Starts a new service on the same data.
    pub fn restart(&mut self) {
        self.records = Records::from_engine(&self.engine);
        self.vfs.claims.release_all(ServiceId(0));
        self.service = Service::new(Config {
            vfs: Arc::clone(&self.vfs),
            clock: self.clock.clone(),
            rng: Arc::new(SeededRng::new(2)),
            drc_bytes: 1 << 20,
            done_calls: self.engine.done_calls(),
            records: self.records.clone(),
            grace: GRACE,
            name: "weir".into(),
        });
    }

    /// Stops everything and starts again with an empty cache.
    pub fn cold_start(&mut self) {
        self.engine.shutdown().unwrap();
        self.crash();
    }

    /// As [`Server::cold_start`], without a last checkpoint. What clients were answered is durable.
    pub fn crash(&mut self) {
        self.engine.wait_durable(self.acknowledged.get()).unwrap();
        let rules = {
            let table = self.vfs.exports();
            let export = table.iter().next().unwrap();
            export.rules.clone()
        };
        self.vfs.publish(Vec::new());
        // The old one ends before the next one begins.
        let another = Disks::new().format().0;
        drop(std::mem::replace(&mut self.engine, another));
        (self.engine, self.volume) = self.disks.open();
        self.vfs.follow(&self.engine);
        self.vfs
            .publish(vec![Export::new("/vol1", Arc::clone(&self.volume), rules)]);
        self.restart();
    }

    /// Returns the lock manager's records of hosts, in the order in which they came: their
    /// addresses, names, and the server's addresses that they use.
    pub fn recorded_hosts(&self) -> Vec<Vec<u8>> {
        let all = self.records.list_records(ServiceId(0)).into_iter();
        let hosts = all.filter(|(_, record)| matches!(record[0], 2 | 4));
        hosts.map(|(_, record)| record.to_vec()).collect()
    }

    /// Keeps the connection from an address open; it is the one that requests from there come over.
    pub fn keep(&self, addr: &str) {
        self.connection.set(self.connection.get() + 1);
        let conn = self.from(addr).conn();
        self.kept.borrow_mut().insert(conn.peer, conn);
    }

    /// Ends the connection from an address that was kept open.
    pub fn hang_up(&self, addr: &str) {
        let peer = self.from(addr).peer.get();
        self.kept.borrow_mut().remove(&peer).unwrap().end();
    }

    pub fn conn(&self) -> ConnInfo {
        if let Some(kept) = self.kept.borrow().get(&self.peer.get()) {
            return kept.clone();
        }
        let mut conn = ConnInfo::new(self.connection.get(), self.peer.get(), self.local.get());
        conn.transport = self.transport.get();
        conn
    }

    pub fn from(&self, addr: &str) -> &Server {
        self.peer
            .set(SocketAddr::new(addr.parse::<IpAddr>().unwrap(), 900));
        self
    }

    /// Sends further calls over connections with this protection.
    pub fn use_transport(&self, transport: Transport) -> &Server {
        self.transport.set(transport);
        self
    }

    pub fn as_user(&self, uid: u32, gid: u32) -> &Server {
        self.uid.set((uid, gid));
        self
    }

    pub fn current_time(&self) -> Time {
        self.clock.current_time()
    }

    /// The encoded call, and its transaction id.
    pub fn encode(&self, program: (u32, u32), procedure: u32, args: &X) -> Vec<u8> {
        let xid = self.xid.replace(self.xid.get() + 1);
        let mut call = rpc::call(xid, program.0, program.1, procedure, &self.caller());
        call.0.extend(&args.0);
        call.0
    }

    fn caller(&self) -> Caller {
        let (uid, gid) = self.uid.get();
        Caller {
            stamp: 77,
            uid,
            gid,
            gids: vec![gid],
        }
    }

    /// Handles a record to its end. For NFSv3, lets time pass until a call has waited long enough
    /// for other clients.
    pub fn handle(&self, record: &[u8]) -> Outcome {
        let is_nfs3 = record.get(12..20) == Some(&[0, 1, 0x86, 0xa3, 0, 0, 0, 3]);
        match self.begin(record) {
            Outcome::Parked(f, ..) if is_nfs3 => block_on_ticking(f, || self.service.tick()),
            Outcome::Later(f) | Outcome::Held(f) | Outcome::Parked(f, ..) => block_on(f),
            now => now,
        }
    }

    pub fn begin(&self, record: &[u8]) -> Outcome {
        let arrival = Arrival {
            time: self.current_time(),
            monotonic: u64::try_from(self.clock.monotonic().as_nanos()).ok(),
            reads: usize::MAX,
        };
        self.service.handle(&self.conn(), record, arrival)
    }

    pub fn send(&self, record: &[u8]) -> R {
        let Outcome::Reply(reply, lsn) = self.handle(record) else {
            panic!("no reply")
        };
        self.last_lsn.set(lsn);
        self.acknowledged.set(self.acknowledged.get().max(lsn));
        self.last_done.set(reply.done().next());
        check_framing(&reply);
        R(reply.message(), 0)
    }

    /// All calls that wait to be made to clients.
    pub fn outgoing(&self) -> Vec<OutgoingCall> {
        std::iter::from_fn(|| self.service.next_outgoing(|_| true)).collect()
    }

    /// A call that the RPC layer accepts; the results.
    pub fn call(&self, program: (u32, u32), procedure: u32, args: &X) -> R {
        let record = self.encode(program, procedure, args);
        let mut r = self.send(&record);
        assert_eq!(r.raw(4), record[..4], "xid");
        assert_eq!(
            (r.u(), r.u(), r.u(), r.u(), r.u()),
            (1, 0, 0, 0, 0),
            "not accepted"
        );
        r
    }

    pub fn nfs(&self, procedure: u32, args: &X) -> R {
        self.call(NFS, procedure, args)
    }

    /// The reply to a call, decoded to its end.
    pub fn send_call(&self, call: &Call) -> Reply {
        let (program, version, procedure) = call.procedure();
        let mut args = Out::default();
        call.encode(&mut args);
        let results = self.call((program, version), procedure, &X(args.0));
        call.decode(In(&results.0[results.1..])).unwrap()
    }

    pub fn root(&self) -> Vec<u8> {
        match self.send_call(&Call::Mnt(b"/vol1".into())) {
            Reply::Root(root) => root,
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, call: &Call) -> Vec<u8> {
        match self.send_call(call) {
            Reply::Made(Some(made), ..) => made,
            other => panic!("{call:?}: {other:?}"),
        }
    }

    /// Creates a file (UNCHECKED) and returns its handle.
    pub fn create(&self, dir: &[u8], name: &[u8], mode: u32) -> Vec<u8> {
        let how = CreateHow3::Unchecked(Sattr::mode(mode));
        self.make(&Call::Create(dir.into(), name.into(), how))
    }

    pub fn mkdir(&self, dir: &[u8], name: &[u8], mode: u32) -> Vec<u8> {
        self.make(&Call::Mkdir(dir.into(), name.into(), Sattr::mode(mode)))
    }

    pub fn write(&self, file: &[u8], offset: u64, data: &[u8]) {
        let reply = self.send_call(&Call::Write {
            fh: file.into(),
            offset,
            stable: FILE_SYNC,
            data: data.into(),
        });
        assert!(matches!(reply, Reply::Written { .. }), "{reply:?}");
    }

    pub fn read(&self, file: &[u8], offset: u64, count: u32) -> (Vec<u8>, bool) {
        let fh = file.into();
        match self.send_call(&Call::Read { fh, offset, count }) {
            Reply::Data { data, eof } => (data, eof),
            other => panic!("{other:?}"),
        }
    }

    pub fn getattr(&self, object: &[u8]) -> Fattr {
        match self.send_call(&Call::Getattr(object.into())) {
            Reply::Attr(attr) => attr,
            other => panic!("{other:?}"),
        }
    }

    /// Status of a call.
    pub fn status(&self, procedure: u32, args: &X) -> u32 {
        self.nfs(procedure, args).u()
    }
}

fn check_framing(reply: &ReplyBuf) {
    let mut slices = Vec::new();
    reply.slices(0, &mut slices);
    let all: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
    assert_eq!(all.len(), reply.len());
    let mark = u32::from_be_bytes(all[..4].try_into().unwrap());
    assert_eq!(mark, (all.len() as u32 - 4) | 1 << 31);
    assert_eq!(reply.message(), all[4..]);
    for skip in [1, 5, all.len() / 2, all.len() - 1, all.len()] {
        let mut rest = Vec::new();
        reply.slices(skip, &mut rest);
        assert_eq!(
            rest.iter().flat_map(|s| s.to_vec()).collect::<Vec<u8>>(),
            all[skip..]
        );
    }
}

/// Returns the last word of the reply to a parked call.
pub fn wait(later: &mut Later) -> u32 {
    match block_on(later) {
        Outcome::Reply(reply, _) => {
            let message = reply.message();
            u32::from_be_bytes(message[message.len() - 4..].try_into().unwrap())
        }
        _ => panic!("no reply"),
    }
}

/// Runs a future, with a tick whenever it waits.
fn block_on_ticking<F: Future>(f: F, tick: impl Fn()) -> F::Output {
    let mut f = std::pin::pin!(f);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return v;
        }
        tick();
    }
}

pub fn block_on<F: Future>(f: F) -> F::Output {
    let mut f = std::pin::pin!(f);
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) {
            return v;
        }
        std::thread::park();
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A device in memory that may be slow or broken.
pub struct SlowDevice {
    inner: MemDevice,
    /// Writes wait for as long as this is locked.
    pub slow: Mutex<()>,
    /// True if writes fail from now on.
    pub broken: AtomicBool,
}

impl SlowDevice {
    fn new(blocks: u64) -> SlowDevice {
        SlowDevice {
            inner: MemDevice::new(blocks),
            slow: Mutex::default(),
            broken: AtomicBool::new(false),
        }
    }
}

impl Device for SlowDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.inner.read(addr, into)
    }
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        drop(self.slow.lock().unwrap());
        match self.broken.load(Ordering::Relaxed) {
            true => {
                let full = std::io::ErrorKind::StorageFull.into();
                let count = from.len() as u64;
                Io::ready(Err(IoError::new(IoKind::Write, addr, count, full)))
            }
            false => self.inner.write(addr, from),
        }
    }
    fn flush(&self) -> Io<()> {
        self.inner.flush()
    }
    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        self.inner.discard(addr, count)
    }
    fn length(&self) -> u64 {
        self.inner.length()
    }
    fn grow(&self, blocks: u64) -> std::io::Result<u64> {
        self.inner.grow(blocks)
    }
}

/// Devices in memory, which survive a restart.
pub struct Disks {
    device: Arc<MemDevice>,
    pub log: Arc<SlowDevice>,
}

/// Returns the record of a host with an IPv4 address that has used these addresses of the server,
/// and only locks. `nlm/record_encoding.rs` describes its form.
pub fn host_record(address: &str, name: &[u8], locals: &[&str]) -> Vec<u8> {
    let octets = |address: &str| {
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        [&[4][..], &address.octets()].concat()
    };
    let mut out = vec![4];
    out.extend(octets(address));
    out.push(name.len() as u8);
    out.extend(name);
    out.extend(locals.iter().flat_map(|local| octets(local)));
    out
}

impl Disks {
    fn new() -> Disks {
        Disks {
            device: Arc::new(MemDevice::new(64 << 8)),
            log: Arc::new(SlowDevice::new(4 << 8)),
        }
    }

    fn env() -> Env {
        Env {
            pool: FramePool::new(8192).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(43)),
        }
    }

    /// A new aggregate with one volume.
    fn format(&self) -> (Engine, Arc<Volume>) {
        let rng = SeededRng::new(42);
        let (agg, replay) =
            Aggregate::create_on(self.device.clone(), self.log.clone(), Disks::env()).unwrap();
        let engine = Engine::open(agg, replay, &rng, EngineOptions::default()).unwrap();
        let now = weir_base::Clock::current_time(&ManualClock::default());
        let volume = engine
            .create_volume("vol1", (0, 0), 0o755, now, &rng)
            .unwrap();
        (engine, volume)
    }

    /// Opens the disks with an empty cache.
    fn open(&self) -> (Engine, Arc<Volume>) {
        let rng = SeededRng::new(44);
        let (agg, replay) =
            Aggregate::open_on(self.device.clone(), self.log.clone(), Disks::env()).unwrap();
        let engine = Engine::open(agg, replay, &rng, EngineOptions::default()).unwrap();
        let volume = engine.volume("vol1").unwrap();
        (engine, volume)
    }
}

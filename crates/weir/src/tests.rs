//! Nothing blocks an event loop: the device, the catalog's disk, the name service and a client's
//! host answer only when the test lets them. Every event loop continues to serve the requests that
//! need none of them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use weir_base::{BlockAddr, Budget, Clock, Rng, SystemClock, SystemRng, Time};
use weir_control::{Actor, Control, Levels, Options, Role};
use weir_nfs::Service;
use weir_store::device::{Completer, Device, Io};
use weir_store::{Aggregate, Env, Frame, FrameMut, FramePool, MemDevice};
use weir_vfs::grace::Records;
use weir_vfs::names::{Resolver, Unavailable};
use weir_vfs::stats::Stats;
use weir_vfs::throttle::{CreditLimits, Throttle};
use weir_vfs::volume::{CreateHow, SetAttr, Stability};
use weir_vfs::{
    Clients, EngineContext, Export, FileId, HandleKey, Namespace, Rule, Squash, Vfs, Volume,
};
use weir_volume::{Engine, EngineOptions};

use crate::protocols::callbacks;
use crate::protocols::reply_gate::ReplyGate;
use crate::serve::storage::{Protocols, Rpc, Wire};
use weir_net::{self as net, Cores, Ledger, Settings, Wakeups};
use weir_node::backend::{self, Node};
use weir_pair_node::Lease;

/// Holds back replies until the test opens it.
#[derive(Default)]
struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
    /// Number of threads that reached the gate while it was held.
    waiting: AtomicUsize,
}

impl Gate {
    fn hold(&self) {
        *self.held.lock() = true;
    }

    fn open(&self) {
        *self.held.lock() = false;
        self.opened.notify_all();
    }

    /// Waits until it is open, blocking the thread.
    fn pass(&self) {
        let mut held = self.held.lock();
        if *held {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        while *held {
            self.opened.wait(&mut held);
        }
    }
}

type Later = Box<dyn FnOnce(&MemDevice) + Send>;

/// A device that answers when it may.
struct GatedDevice {
    inner: MemDevice,
    /// Operations deferred while the device is held; `None`: it replies at once.
    asked: Mutex<Option<Vec<Later>>>,
}

impl GatedDevice {
    fn new(blocks: u64) -> Arc<GatedDevice> {
        Arc::new(GatedDevice {
            inner: MemDevice::new(blocks),
            asked: Mutex::new(None),
        })
    }

    fn hold(&self) {
        self.asked.lock().get_or_insert_default();
    }

    fn open(&self) {
        let asked = self.asked.lock().take();
        for answer in asked.into_iter().flatten() {
            answer(&self.inner);
        }
    }

    fn waiting(&self) -> usize {
        self.asked.lock().as_ref().map_or(0, Vec::len)
    }

    fn submit_operation<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&MemDevice) -> Io<T> + Send + 'static,
    ) -> Io<T> {
        match &mut *self.asked.lock() {
            None => operation(&self.inner),
            Some(asked) => {
                let (completer, io): (Completer<T>, Io<T>) = Io::pair();
                asked.push(Box::new(move |device| {
                    completer.complete(operation(device).wait());
                }));
                io
            }
        }
    }
}

impl Device for GatedDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.submit_operation(move |device| device.read(addr, into))
    }
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        self.submit_operation(move |device| device.write(addr, from))
    }
    fn flush(&self) -> Io<()> {
        self.submit_operation(|device| device.flush())
    }
    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        self.submit_operation(move |device| device.discard(addr, count))
    }
    fn length(&self) -> u64 {
        self.inner.length()
    }
    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.inner.grow(blocks)
    }
}

/// A zone in which the host of an export rule is the second client, and that takes its time.
struct Zone(Arc<Gate>);

impl Resolver for Zone {
    fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Unavailable> {
        self.0.pass();
        Ok(vec![client(2)])
    }
    fn name(&self, _: IpAddr) -> Result<Option<String>, Unavailable> {
        self.0.pass();
        Ok(None)
    }
}

fn client(n: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, n])
}

fn env(clock: &Arc<dyn Clock>) -> Env {
    Env {
        pool: FramePool::new(8192).unwrap(),
        clock: Arc::clone(clock),
        rng: Arc::new(SystemRng),
    }
}

/// One call of NFS with AUTH_SYS as root; `xid` is also what its reply begins with.
fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [xid, 0, 2, 100_003, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
        body.extend_from_slice(&u32::to_be_bytes(word));
    }
    body.extend_from_slice(args);
    let mark = body.len() as u32 | 0x8000_0000;
    [&mark.to_be_bytes()[..], &body].concat()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    assert_eq!(bytes.len() % 4, 0);
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// READ of the file's first 4,096 bytes.
fn read(handle: &[u8]) -> Vec<u8> {
    let range = [0u64.to_be_bytes().to_vec(), 4096u32.to_be_bytes().to_vec()];
    [opaque(handle), range.concat()].concat()
}

/// Stable WRITE of four bytes.
fn write(handle: &[u8]) -> Vec<u8> {
    let mut args = [opaque(handle), 0u64.to_be_bytes().to_vec()].concat();
    for word in [4u32, 2] {
        args.extend_from_slice(&word.to_be_bytes());
    }
    args.extend_from_slice(&opaque(b"data"));
    args
}

struct Conn(TcpStream);

impl Conn {
    fn new(server: SocketAddr, from: u8) -> Conn {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket
            .bind(&SocketAddr::new(client(from), 0).into())
            .unwrap();
        socket.connect(&server.into()).unwrap();
        let stream = TcpStream::from(socket);
        let limit = Some(Duration::from_secs(30));
        stream.set_read_timeout(limit).unwrap();
        Conn(stream)
    }

    fn send(&mut self, xid: u32, procedure: u32, args: &[u8]) {
        self.0.write_all(&call(xid, procedure, args)).unwrap();
    }

    /// The next reply: what it answers and its status.
    fn reply(&mut self) -> (u32, u32) {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut body).unwrap();
        let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        (word(0), word(24))
    }

    /// Returns true if nothing was received.
    fn silent(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let silent = self.0.peek(&mut [0]).is_err();
        self.0.set_nonblocking(false).unwrap();
        silent
    }
}

/// Writes a file of `len` bytes and returns it.
fn file(volume: &Volume, name: &str, len: usize) -> FileId {
    let now = Time { secs: 1, nanos: 0 };
    let mut cx = EngineContext::new(now);
    let (root, attrs) = (volume.root(), SetAttr::default());
    let made = volume.drive_blocking(&mut cx, |cx| {
        volume.create(cx, root, name.as_bytes(), CreateHow::Guarded, &attrs)
    });
    let ino = made.unwrap().value.ino;
    let data = vec![1; len];
    let mut cx = EngineContext::new(now);
    volume
        .drive_blocking(&mut cx, |cx| {
            volume.write(cx, ino, 0, &data, Stability::FileSync)
        })
        .unwrap();
    FileId {
        volume: volume.id(),
        ino,
        namespace: Namespace::Live,
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    // A bound for a test that fails, not a time that anything takes.
    let clock = SystemClock::new();
    let end = clock.monotonic() + Duration::from_secs(30);
    while !done() {
        assert!(clock.monotonic() < end, "{what}");
        std::thread::yield_now();
    }
}

/// The control plane on a thread of its own, which makes a token when asked to.
struct Plane {
    make: Option<tokio::sync::oneshot::Sender<()>>,
    made: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Plane {
    fn start(url: String, node: Arc<Node>) -> Plane {
        let (make, asked) = tokio::sync::oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let options = Options {
                    catalog: url,
                    levels: Levels::built_in().unwrap(),
                    instance_addresses: None,
                    backend: node,
                    clock: Arc::new(SystemClock::new()),
                    rng: Arc::new(SystemRng),
                    device_bytes: 1 << 40,
                    copy: None,
                    first_place: weir_control::LocationName::local(),
                };
                let control = Control::open(options).await.unwrap();
                ready.send(()).unwrap();
                asked.await.unwrap();
                let actor = Actor::local();
                let token = control.create_token("t", Role::Admin, &actor);
                token.await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                control.close().await;
            });
        });
        started.recv().unwrap();
        Plane {
            make: Some(make),
            made,
            thread: Some(thread),
        }
    }
}

/// Another process's transaction on the catalog: no other process writes it until this is over.
struct CatalogHeld {
    open: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CatalogHeld {
    fn new(url: String) -> CatalogHeld {
        let (open, asked) = tokio::sync::oneshot::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                use sqlx::Connection as _;
                sqlx::any::install_default_drivers();
                let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
                let run = async |connection: &mut sqlx::AnyConnection, statement: &'static str| {
                    sqlx::query(statement).execute(connection).await.unwrap();
                };
                run(&mut connection, "BEGIN IMMEDIATE").await;
                ready.send(()).unwrap();
                asked.await.ok();
                run(&mut connection, "ROLLBACK").await;
                connection.close().await.unwrap();
            });
        });
        started.recv().unwrap();
        CatalogHeld {
            open: Some(open),
            thread: Some(thread),
        }
    }

    fn open(&mut self) {
        drop(self.open.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Makes the calls of `service` to clients, whose hosts answer once `may` is true. Counts those
/// under way.
fn call_clients(
    service: Arc<Service>,
    mut may: watch::Receiver<bool>,
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, async move {
            let answers = may.clone();
            let dispatch = callbacks::dispatch(service, move |_| {
                begun.fetch_add(1, Ordering::SeqCst);
                let (mut may, ended) = (answers.clone(), Arc::clone(&ended));
                async move {
                    may.wait_for(|may| *may).await.ok();
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok(Vec::new())
                }
            });
            tokio::select! {
                () = dispatch => {}
                // The test is over.
                () = async { while may.changed().await.is_ok() {} } => {}
            }
        });
    });
}

struct Nobody;

impl weir_auth::users::Users for Nobody {
    fn list_users(&self) -> Arc<[Arc<weir_auth::users::User>]> {
        Arc::default()
    }

    fn with_uid(&self, _: u32) -> Option<Arc<weir_auth::users::User>> {
        None
    }

    fn find(&self, _: &str) -> Option<Arc<weir_auth::users::User>> {
        None
    }
}

#[test]
fn what_does_not_answer_keeps_no_event_loop_from_the_others() {
    const LOOPS: usize = 2;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/catalog.db", folder.path().display());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);

    // A volume with a file that is in memory and one that is not.
    let (device, log) = (GatedDevice::new(64 << 8), GatedDevice::new(16 << 8));
    let (aggregate, replay) =
        Aggregate::create_on(device.clone(), log.clone(), env(&clock)).unwrap();
    let engine = Engine::open(aggregate, replay, &*rng, EngineOptions::default()).unwrap();
    let made = engine.create_volume("vol1", (0, 0), 0o755, clock.current_time(), &*rng);
    let files = ["hot", "cold"].map(|name| file(made.as_ref().unwrap(), name, 1 << 20));
    drop(made);
    engine.shutdown().unwrap();
    drop(engine);
    let (aggregate, replay) = Aggregate::open_on(device.clone(), log.clone(), env(&clock)).unwrap();
    let engine = Engine::open(aggregate, replay, &*rng, EngineOptions::default()).unwrap();
    let engine = Arc::new(engine);
    // Record of a host that held locks before the start, in the encoding of the lock manager
    // (service 0): it is called.
    let host = [2, 4, 127, 0, 0, 3, 1, b'a', 4, 127, 0, 0, 1];
    engine
        .client_records()
        .set_blocking(1, Some(&host))
        .unwrap();

    // The server, as `serve` puts it together.
    let wakeups = Wakeups::new(LOOPS);
    let throttle = Throttle::new(Arc::clone(&clock), LOOPS, CreditLimits::of_budget(64 << 20));
    let key = HandleKey::new([7; 16], [7; 16]);
    let vfs = Vfs::with_throttle(key, Arc::clone(&throttle), Budget::new(1 << 20));
    let rule = |clients: &str| Rule {
        clients: Clients::parse(clients).unwrap(),
        ..Rule::open(Squash::None)
    };
    let rules = vec![rule("127.0.0.1"), rule("second.example")];
    let volume = engine.volume("vol1").unwrap();
    vfs.publish(vec![Export::new("/vol1", volume, rules.clone())]);
    let names = Arc::new(Gate::default());
    let (zone, resolving) = (Zone(Arc::clone(&names)), Arc::clone(&vfs));
    let resolver = std::thread::spawn(move || resolving.names.serve(&zone));
    let service = Service::new(weir_nfs::Config {
        vfs: Arc::clone(&vfs),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
        drc_bytes: 1 << 20,
        done_calls: Vec::new(),
        records: Records::from_engine(&engine),
        grace: Duration::from_secs(45),
        name: "weir".into(),
    });
    let advancing = wakeups.clone();
    let log_thread = Arc::clone(engine.aggregate().log());
    log_thread.on_advance(Arc::new(move || advancing.log_advanced()));
    let smb = crate::protocols::smb::Smb::new(
        weir_smb::Service::new(weir_smb::Config {
            protection: weir_smb::negotiate::Protection::Signed,
            records: Records::from_engine(&engine),
            done_calls: Vec::new(),
            vfs: Arc::clone(&vfs),
            clock: Arc::clone(&clock),
            rng: Arc::clone(&rng),
            users: Arc::new(Nobody),
            name: "weir".into(),
        }),
        Arc::clone(&throttle),
        Arc::new(Stats::new(LOOPS)),
        Arc::clone(&clock),
        Arc::clone(&engine),
    );
    let rpc = Rpc::new(
        Arc::clone(&service),
        throttle,
        Arc::new(Stats::new(LOOPS)),
        Arc::clone(&clock),
        Arc::clone(&engine),
    );
    let lease = Arc::new(Lease::unlimited(Arc::clone(&clock)));
    let gate = ReplyGate::new(Arc::clone(&engine), lease);
    let protocols = Arc::new(Protocols::new(gate, rpc, smb));
    let settings = Settings {
        cores: LOOPS,
        ledger: Ledger::new(64 << 20, 1 << 16),
        connected: Arc::default(),
        stall: Duration::from_secs(60),
        clock: Arc::clone(&clock),
    };
    let cores = Cores::start(&settings, &wakeups, &protocols).unwrap();
    let listener = net::reserve("127.0.0.1:0".parse().unwrap(), false)
        .and_then(net::ReservedAddress::listen)
        .unwrap();
    let server = listener.local_addr().unwrap();
    let queues = cores.queues();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(net::accept(listener, queues, Wire::Rpc));
    });
    let node = Node::new(backend::Parts::new(
        Arc::clone(&engine),
        Arc::clone(&vfs),
        Arc::clone(&clock),
        rng,
        rules,
    ));
    let mut plane = Plane::start(url.clone(), Arc::new(node));
    // The control plane knows nothing of the volume and has taken it out of what is served.
    let volume = engine.volume("vol1").unwrap();
    let rules = vec![rule("127.0.0.1"), rule("second.example")];
    vfs.publish(vec![Export::new("/vol1", volume, rules)]);

    // Connections are assigned to the loops in turn: one for requests that need held parts, one for
    // the others.
    let handles = files.map(|file| vfs.handle_of(file));
    let [hot, cold] = &handles;
    let conns = |from: u8| -> Vec<Conn> { (0..LOOPS).map(|_| Conn::new(server, from)).collect() };
    let (mut others, mut reading, mut writing, mut named) =
        (conns(1), conns(1), conns(1), conns(2));
    for c in &mut others {
        c.send(1, 6, &read(hot));
        assert_eq!(c.reply(), (1, 0));
    }

    // Everything stops answering, and is asked.
    let (may, answers) = watch::channel(false);
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begin, end) = (Arc::clone(&begun), Arc::clone(&ended));
    call_clients(Arc::clone(&service), answers, begin, end);
    names.hold();
    let mut catalog = CatalogHeld::new(url);
    device.hold();
    log.hold();
    for (c, xid) in reading.iter_mut().zip(100..) {
        c.send(xid, 6, &read(cold));
    }
    until("reads of the device", || device.waiting() > 0);
    for (c, xid) in writing.iter_mut().zip(200..) {
        c.send(xid, 7, &write(hot));
    }
    until("writes of the log", || log.waiting() > 0);
    for (c, xid) in named.iter_mut().zip(300..) {
        c.send(xid, 1, &opaque(hot));
    }
    until("questions to the name service", || {
        names.waiting.load(Ordering::SeqCst) > 0
    });
    plane.make.take().unwrap().send(()).unwrap();
    until("calls to a client's host", || {
        begun.load(Ordering::SeqCst) > 0
    });

    // Every loop serves the requests that need no held part: on other connections, and on those
    // that wait.
    let serve = |others: &mut [Conn], xid: u32| {
        for c in others {
            for _ in 0..20 {
                c.send(xid, 6, &read(hot));
                assert_eq!(c.reply(), (xid, 0));
                c.send(xid, 1, &opaque(hot));
                assert_eq!(c.reply(), (xid, 0));
            }
        }
    };
    serve(&mut others, 2);
    serve(&mut reading, 3);
    serve(&mut writing, 4);
    let mut late: Vec<_> = (0..LOOPS).map(|_| Conn::new(server, 1)).collect();
    serve(&mut late, 5);
    let silent = |conns: &[Conn]| conns.iter().all(Conn::silent);
    assert!(silent(&reading) && silent(&writing) && silent(&named));
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    assert_eq!(plane.made.load(Ordering::SeqCst), 0);

    // One after the other answers, and what waited for it goes on; the others still wait.
    names.open();
    for (c, xid) in named.iter_mut().zip(300..) {
        assert_eq!(c.reply(), (xid, 0));
    }
    assert!(silent(&reading) && silent(&writing));
    device.open();
    for (c, xid) in reading.iter_mut().zip(100..) {
        assert_eq!(c.reply(), (xid, 0));
    }
    assert!(silent(&writing));
    log.open();
    for (c, xid) in writing.iter_mut().zip(200..) {
        assert_eq!(c.reply(), (xid, 0));
    }
    assert_eq!(plane.made.load(Ordering::SeqCst), 0);
    catalog.open();
    plane.thread.take().unwrap().join().unwrap();
    assert_eq!(plane.made.load(Ordering::SeqCst), 1);
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    may.send(true).unwrap();
    until("the host's replies", || ended.load(Ordering::SeqCst) > 0);

    drop((others, reading, writing, named, late, may));
    cores.stop();
    vfs.names.close();
    resolver.join().unwrap();
    vfs.publish(Vec::new());
    engine.shutdown().unwrap();
}

//! The connection loop against a service made of one-letter commands.

use std::collections::HashMap;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use weir_base::{Lsn, SystemClock};
use weir_conn::{DirectTcp, Pieces, RecordMarks};

use super::event_loop::{Core, StallState, Watch, looks_for};
use super::*;

mod unasked;

struct Bytes(Vec<u8>);

impl Reply for Bytes {
    fn bytes(&self) -> usize {
        self.0.len()
    }
    fn pieces<'a>(&'a self, skip: usize, out: &mut Pieces<'a>) {
        out.extend(self.0[skip..].chunks(4096).map(IoSlice::new));
    }
    fn into_failure(self) -> Bytes {
        Bytes(marked(b"failed"))
    }
}

fn marked(body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    out.extend_from_slice(body);
    out
}

/// Protocol of the tests: `e…` echoes; `s<u64>…` echoes once that log number is durable; `w<u64>`
/// waits for [`Stub::release`], `l<u64>` for that and then for the log number; `c<u64>` waits
/// likewise, charged as if it had come to [`limits::CONNECTION_IN_FLIGHT`] bytes more; `b<u64>`
/// returns that many bytes; `d` drops; `x` closes. `p<u64>` waits on purpose, for `r<u64>` from
/// anywhere; `i` returns the connection's number. A large request that begins with `?` is refused.
#[derive(Default)]
struct Stub {
    durable: AtomicU64,
    failed: AtomicBool,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    parked: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    handled: AtomicU64,
    /// Replies that have waited for the log.
    logged: Mutex<Vec<Vec<u8>>>,
    gone: AtomicU64,
}

impl Stub {
    fn release(&self, id: u64) {
        loop {
            if let Some(sender) = self.waiting.lock().unwrap().remove(&id) {
                sender.send(()).unwrap();
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl Log for Arc<Stub> {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    fn log_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }
}

impl Backend for Stub {
    type Framing = RecordMarks;
    type Reply = Bytes;
    type State = ();
    type Log = Arc<Stub>;

    fn unasked(&self, message: mail::Message) -> Bytes {
        Bytes(marked(&message))
    }

    fn handle(&self, conn: &ConnInfo, record: &[u8], now: Arrival) -> Outcome<Bytes> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        let number = || u64::from_be_bytes(record[1..9].try_into().unwrap());
        match record.first() {
            Some(b'e') => Outcome::Reply(Bytes(marked(record)), None),
            Some(b's') => Outcome::Reply(Bytes(marked(record)), Some(Lsn(number()))),
            Some(b'b') => Outcome::Reply(Bytes(marked(&vec![b'b'; number() as usize])), None),
            Some(b'g') => {
                let bytes = (number() as usize).min(now.reads);
                Outcome::Reply(Bytes(marked(&vec![b'g'; bytes])), None)
            }
            Some(letter @ (b'w' | b'l' | b'c')) => {
                let after = (*letter == b'l').then(|| Lsn(number()));
                let (sender, receiver) = oneshot::channel();
                self.waiting.lock().unwrap().insert(number(), sender);
                let record = record.to_vec();
                let larger = *letter == b'c';
                let work = Outcome::Later(Box::pin(async move {
                    receiver.await.ok();
                    Outcome::Reply(Bytes(marked(&record)), after)
                }));
                match larger {
                    false => work,
                    true => Outcome::Larger(Box::new(work), limits::CONNECTION_IN_FLIGHT),
                }
            }
            Some(b'i') => Outcome::Reply(Bytes(marked(&conn.id.to_be_bytes())), None),
            Some(b'p') => {
                let (sender, receiver) = oneshot::channel();
                self.parked.lock().unwrap().insert(number(), sender);
                let interim = record.get(9).map(|_| Bytes(marked(b"pending")));
                let record = record.to_vec();
                let done = async move {
                    receiver.await.ok();
                    Outcome::Reply(Bytes(marked(&record)), None)
                };
                Outcome::Parked(Box::pin(done), Bytes(marked(b"too many")), interim)
            }
            Some(b'r') => {
                let parked = self.parked.lock().unwrap().remove(&number());
                parked.unwrap().send(()).ok();
                Outcome::Drop
            }
            Some(b'd') => Outcome::Drop,
            _ => Outcome::Close("not a command"),
        }
    }

    fn logged(&self, _conn: &ConnInfo, waited: &mut dyn Iterator<Item = (&Bytes, u64)>) {
        let replies = waited.map(|(reply, _)| reply.0.clone());
        self.logged.lock().unwrap().extend(replies);
    }

    fn begin(
        &self,
        _conn: &ConnInfo,
        head: &[u8],
        _bytes: usize,
        _cx: &mut Context<'_>,
    ) -> Begin<Bytes> {
        match head.first() {
            Some(b'?') => Begin::Refuse(Bytes(marked(b"refused")), None),
            _ => Begin::Go(None),
        }
    }

    fn reply_bound(&self, record: &[u8], reads: usize) -> usize {
        let asked = |record: &[u8]| u64::from_be_bytes(record[1..9].try_into().unwrap());
        match record.first() {
            Some(b'g') => (asked(record) as usize).min(reads),
            _ => 0,
        }
    }

    fn knows(&self, _conn: &ConnInfo) -> bool {
        self.handled.load(Ordering::SeqCst) > 0
    }

    fn ended(&self, _conn: &ConnInfo) {
        self.gone.fetch_add(1, Ordering::SeqCst);
    }
}

/// Echoes messages in SMB's framing.
struct Echo;

impl Backend for Echo {
    type Framing = DirectTcp;
    type Reply = Bytes;
    type State = ();
    type Log = Arc<Stub>;

    fn unasked(&self, message: mail::Message) -> Bytes {
        Bytes([&DirectTcp::mark(message.len())[..], &message].concat())
    }

    fn handle(&self, _: &ConnInfo, message: &[u8], _: Arrival) -> Outcome<Bytes> {
        Outcome::Reply(self.unasked(message.into()), None)
    }

    fn ended(&self, _: &ConnInfo) {}
}

#[derive(Clone, Copy)]
enum Wire {
    Rpc,
    Smb,
}

/// Two protocols on the same event loops.
struct Both(Arc<Stub>, Arc<Echo>);

impl Services for Both {
    type Log = Arc<Stub>;
    type Wire = Wire;

    fn log(&self) -> Arc<Stub> {
        Arc::clone(&self.0)
    }

    fn serve(
        &self,
        seat: LoopSlot<'_, Arc<Stub>>,
        stream: TcpStream,
        wire: Wire,
    ) -> io::Result<()> {
        match wire {
            Wire::Rpc => seat.serve(&self.0, stream),
            Wire::Smb => seat.serve(&self.1, stream),
        }
    }
}

struct Server {
    stub: Arc<Stub>,
    wakeups: Wakeups,
    ledger: Arc<Ledger>,
    address: SocketAddr,
    /// Address of the SMB listener.
    smb: SocketAddr,
    cores: Option<Cores<Wire>>,
}

impl Server {
    fn start(budget: usize, stall: Duration) -> Server {
        let stub = Arc::new(Stub::default());
        let wakeups = Wakeups::new(2);
        let ledger = Ledger::new(budget, 1 << 20);
        let settings = Settings {
            cores: 2,
            ledger: Arc::clone(&ledger),
            connected: Arc::default(),
            stall,
            clock: Arc::new(SystemClock::new()),
        };
        let services = Arc::new(Both(Arc::clone(&stub), Arc::new(Echo)));
        let cores = Cores::start(&settings, &wakeups, &services).unwrap();
        let [address, smb] = [Wire::Rpc, Wire::Smb].map(|wire| {
            let listener = reserve("127.0.0.1:0".parse().unwrap(), false)
                .and_then(ReservedAddress::listen)
                .unwrap();
            let address = listener.local_addr().unwrap();
            let queues = cores.queues();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(accept(listener, queues, wire));
            });
            address
        });
        Server {
            smb,
            stub,
            wakeups,
            ledger,
            address,
            cores: Some(cores),
        }
    }

    fn usual() -> Server {
        Server::start(64 << 20, limits::STALL)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    }

    fn durable(&self, lsn: u64) {
        self.stub.durable.store(lsn, Ordering::SeqCst);
        self.wakeups.log_advanced();
    }

    /// Waits until that many requests have been handled.
    fn handled(&self, count: u64) {
        while self.stub.handled.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

fn command(letter: u8, number: u64) -> Vec<u8> {
    let mut body = vec![letter];
    body.extend_from_slice(&number.to_be_bytes());
    marked(&body)
}

fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

fn ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn many_requests_in_one_packet_and_one_request_in_many() {
    let server = Server::usual();
    let mut c = server.connect();
    let mut out = Vec::new();
    for i in 0..500u32 {
        out.extend_from_slice(&marked(format!("e{i}").as_bytes()));
    }
    c.write_all(&out).unwrap();
    for i in 0..500u32 {
        assert_eq!(reply(&mut c), format!("e{i}").as_bytes());
    }
    for byte in marked(b"eslow") {
        c.write_all(&[byte]).unwrap();
    }
    assert_eq!(reply(&mut c), b"eslow");
    let mut large = vec![b'e'; 1 << 20];
    for (i, byte) in large.iter_mut().enumerate().skip(1) {
        *byte = (i % 251) as u8;
    }
    for _ in 0..3 {
        c.write_all(&marked(&large)).unwrap();
    }
    for _ in 0..3 {
        assert!(reply(&mut c) == large);
    }
}

#[test]
fn answers_wait_for_the_log_and_only_those() {
    let server = Server::usual();
    let mut c = server.connect();
    c.write_all(&[command(b's', 7), command(b's', 5), marked(b"enow")].concat())
        .unwrap();
    assert_eq!(reply(&mut c), b"enow");
    server.durable(5);
    assert_eq!(reply(&mut c), &command(b's', 5)[4..]);
    server.durable(6);
    c.write_all(&marked(b"estill")).unwrap();
    assert_eq!(reply(&mut c), b"estill");
    server.durable(9);
    assert_eq!(reply(&mut c), &command(b's', 7)[4..]);
    // Only those are counted as having waited, once each.
    let logged = server.stub.logged.lock().unwrap();
    assert_eq!(*logged, [command(b's', 5), command(b's', 7)]);
}

#[test]
fn a_failed_log_turns_the_answers_that_waited_for_it_into_failures() {
    let server = Server::usual();
    let mut c = server.connect();
    c.write_all(&[command(b's', 2), command(b's', 1)].concat())
        .unwrap();
    server.handled(2);
    server.stub.durable.store(1, Ordering::SeqCst);
    server.stub.failed.store(true, Ordering::SeqCst);
    server.wakeups.log_advanced();
    let mut answers = [reply(&mut c), reply(&mut c)];
    answers.sort();
    assert_eq!(
        answers,
        [b"failed".to_vec(), command(b's', 1)[4..].to_vec()]
    );
    c.write_all(&marked(b"ealive")).unwrap();
    assert_eq!(reply(&mut c), b"ealive");
}

#[test]
fn a_waiting_request_holds_up_nobody() {
    let server = Server::usual();
    let mut c = server.connect();
    c.write_all(&[command(b'w', 1), command(b'w', 2), marked(b"efirst")].concat())
        .unwrap();
    assert_eq!(reply(&mut c), b"efirst");
    server.stub.release(2);
    assert_eq!(reply(&mut c), &command(b'w', 2)[4..]);
    server.stub.release(1);
    assert_eq!(reply(&mut c), &command(b'w', 1)[4..]);
}

/// A compressed request counts with its uncompressed size: nothing more is read from its connection
/// while it waits.
#[test]
fn a_request_that_came_to_more_is_charged_for_it_until_its_answer() {
    let server = Server::usual();
    let mut c = server.connect();
    c.write_all(&[command(b'c', 1), marked(b"ebehind")].concat())
        .unwrap();
    while server.ledger.used() < limits::CONNECTION_IN_FLIGHT {
        std::thread::yield_now();
    }
    let mut other = server.connect();
    for _ in 0..20 {
        other.write_all(&marked(b"eother")).unwrap();
        assert_eq!(reply(&mut other), b"eother");
    }
    let handled = server.stub.handled.load(Ordering::SeqCst);
    assert_eq!(handled, 21, "what is behind it waits");
    server.stub.release(1);
    assert_eq!(reply(&mut c), &command(b'c', 1)[4..]);
    assert_eq!(reply(&mut c), b"ebehind");
    while server.ledger.used() >= limits::CONNECTION_IN_FLIGHT {
        std::thread::yield_now();
    }
}

#[test]
fn an_answer_that_waited_may_have_to_wait_for_the_log_too() {
    let server = Server::usual();
    let mut c = server.connect();
    let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for round in 1..20 {
        c.write_all(&command(b'l', round)).unwrap();
        server.stub.release(round);
        // By the time that these are answered the other has been served.
        for other in &mut others {
            other.write_all(&marked(b"eround")).unwrap();
            assert_eq!(reply(other), b"eround");
        }
        server.durable(round);
        assert_eq!(reply(&mut c), &command(b'l', round)[4..]);
    }
}

#[test]
fn half_closed_peers_still_get_their_answers() {
    let server = Server::usual();
    let mut c = server.connect();
    c.write_all(&[command(b's', 3), command(b'w', 4)].concat())
        .unwrap();
    c.shutdown(Shutdown::Write).unwrap();
    server.stub.release(4);
    assert_eq!(reply(&mut c), &command(b'w', 4)[4..]);
    server.durable(3);
    assert_eq!(reply(&mut c), &command(b's', 3)[4..]);
    assert!(ended(&mut c));
}

#[test]
fn protocol_breakers_are_closed_and_others_served() {
    let server = Server::usual();
    let mut good = server.connect();
    for bad in [
        marked(b"?"),
        vec![0xff; 8],
        marked(b""),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let mut c = server.connect();
        c.write_all(&marked(b"ebefore")).unwrap();
        assert_eq!(reply(&mut c), b"ebefore");
        c.write_all(&bad).unwrap();
        assert!(ended(&mut c), "{bad:?}");
        good.write_all(&marked(b"estill here")).unwrap();
        assert_eq!(reply(&mut good), b"estill here");
    }
}

#[test]
fn a_peer_that_reads_nothing_is_bounded_and_dropped() {
    let server = Server::start(64 << 20, Duration::from_secs(2));
    let mut c = server.connect();
    c.set_nonblocking(true).unwrap();
    // Ask for far more than the connection may hold; stop when the server stops reading.
    let ask = command(b'b', 1 << 20).repeat(20_000);
    let mut at = 0;
    let dropped = loop {
        match c.write(&ask[at..]) {
            Ok(n) => at = (at + n) % ask.len(),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // The server neither reads nor could send: it must end this itself.
                assert!(server.ledger.used() <= limits::CONNECTION_IN_FLIGHT + (2 << 20));
                std::thread::yield_now();
            }
            Err(e) => break e,
        }
    };
    assert!(matches!(
        dropped.kind(),
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
    ));
    while server.ledger.used() > 0 || server.stub.gone.load(Ordering::SeqCst) < 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_request_left_unfinished_is_dropped() {
    let server = Server::start(64 << 20, Duration::from_secs(1));
    let mut c = server.connect();
    c.write_all(&[0x80, 0, 0, 100, b'e']).unwrap();
    assert!(ended(&mut c));
    // A connection at rest is not unfinished.
    let mut idle = server.connect();
    idle.write_all(&marked(b"e1")).unwrap();
    assert_eq!(reply(&mut idle), b"e1");
}

/// With a budget for little more than one request, many connections still all get served.
#[test]
fn a_tight_budget_delays_but_does_not_lock_up() {
    let server = Server::start(3 << 20, limits::STALL);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut c = server.connect();
                for _ in 0..8 {
                    c.write_all(&[command(b'b', 1 << 20), command(b'b', 900_000)].concat())
                        .unwrap();
                    assert_eq!(reply(&mut c).len(), 1 << 20);
                    assert_eq!(reply(&mut c).len(), 900_000);
                }
            });
        }
    });
    while server.ledger.used() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn stopping_lets_answers_under_way_leave() {
    let mut server = Server::usual();
    let mut c = server.connect();
    let mut idle = server.connect();
    c.write_all(&[command(b's', 2), command(b'w', 1)].concat())
        .unwrap();
    server.handled(2);
    let cores = server.cores.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| cores.stop());
        assert!(ended(&mut idle));
        server.stub.release(1);
        server.durable(2);
        let mut bodies = [reply(&mut c), reply(&mut c)];
        bodies.sort();
        assert_eq!(
            bodies,
            [
                command(b's', 2)[4..].to_vec(),
                command(b'w', 1)[4..].to_vec()
            ]
        );
        assert!(ended(&mut c));
    });
}

/// An event loop that runs, and sweeps, only when a test says so.
struct ByHand {
    runtime: tokio::runtime::Runtime,
    tasks: tokio::task::LocalSet,
    core: Rc<Core<Arc<Stub>>>,
    stub: Arc<Stub>,
    listener: std::net::TcpListener,
}

impl ByHand {
    fn new(budget: usize, descriptors: usize) -> ByHand {
        let settings = Settings {
            cores: 1,
            ledger: Ledger::new(budget, descriptors),
            connected: Arc::default(),
            stall: limits::STALL,
            clock: Arc::new(SystemClock::new()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stub = Arc::new(Stub::default());
        let log = Arc::clone(&stub);
        let core = Rc::new(Core::new(&settings, Wakeups::new(1), log, 0));
        let tasks = tokio::task::LocalSet::new();
        let wakeup = Rc::clone(&core);
        tasks.spawn_local(async move { wakeup.answer_bell().await });
        ByHand {
            runtime,
            tasks,
            core,
            stub,
            listener: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// A connection from 127.0.0.`from`; `None` if the server does not take it.
    fn connect(&self, from: u8) -> Option<TcpStream> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let source = SocketAddr::from(([127, 0, 0, from], 0));
        socket.bind(&source.into()).unwrap();
        let server = self.listener.local_addr().unwrap();
        socket.connect(&server.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let _context = self.runtime.enter();
        let (core, stub) = (Rc::clone(&self.core), Arc::clone(&self.stub));
        let conn = super::connection::Conn::new(core, stub, stream).ok()?;
        self.tasks.spawn_local(conn);
        Some(socket.into())
    }

    /// Runs the loop until `done` is `Some`.
    fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        let end = Duration::from_secs(30);
        self.tasks.block_on(&self.runtime, async {
            tokio::time::timeout(end, async {
                loop {
                    if let Some(value) = done() {
                        return value;
                    }
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("it never came to that")
        })
    }

    /// Sends `bytes`, running the loop as needed.
    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) {
        let mut at = 0;
        self.until(|| {
            match stream.write(&bytes[at..]) {
                Ok(n) => at += n,
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
            (at == bytes.len()).then_some(())
        });
    }

    /// Returns the next reply, or `None` if the server has closed the connection.
    fn reply(&self, stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.until(|| {
            let wanted = match bytes.first_chunk::<4>() {
                Some(mark) => 4 + (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize,
                None => 4,
            };
            if bytes.len() > 4 && bytes.len() == wanted {
                return Some(Some(bytes.split_off(4)));
            }
            let mut buffer = vec![0; wanted - bytes.len()];
            match stream.read(&mut buffer) {
                Ok(0) => Some(None),
                Ok(n) => {
                    bytes.extend_from_slice(&buffer[..n]);
                    None
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => None,
                Err(_) => Some(None),
            }
        })
    }

    /// Waits until the server has read everything that was sent to it, and waits for more.
    fn quiet(&self, received: u64) {
        let sum = || {
            self.core
                .watched()
                .iter()
                .map(|w| w.received.get())
                .sum::<u64>()
        };
        self.until(|| (sum() == received).then_some(()));
    }

    /// Sweeps, and runs the consequences.
    fn sweep(&self) {
        self.core.sweep_once(limits::STALL);
        self.tasks.block_on(&self.runtime, async {
            for _ in 0..30 {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// The first bytes of a request of `bytes`.
fn begun(letter: u8, bytes: u32, sent: usize) -> Vec<u8> {
    let mut out = (bytes | 0x8000_0000).to_be_bytes().to_vec();
    out.resize(4 + sent, letter);
    out
}

const BEGUN: usize = 2048;

#[test]
fn what_strangers_announce_costs_next_to_nothing() {
    let by_hand = ByHand::new(4 << 20, 1 << 20);
    let mut many: Vec<_> = (0..200).map(|_| by_hand.connect(1).unwrap()).collect();
    for c in &mut many {
        by_hand.send(c, &begun(b'?', 1_000_000, BEGUN));
    }
    by_hand.quiet(200 * (BEGUN as u64 + 4));
    assert_eq!(by_hand.core.ledger.used(), 0);
    let mut client = by_hand.connect(1).unwrap();
    let large = vec![b'e'; 1 << 20];
    by_hand.send(&mut client, &[marked(b"esmall"), marked(&large)].concat());
    assert_eq!(by_hand.reply(&mut client).unwrap(), b"esmall");
    assert!(by_hand.reply(&mut client).unwrap() == large);
    // A client that continues gets a reply, and its next requests are understood.
    by_hand.send(&mut many[7], &vec![b'?'; 1_000_000 - BEGUN]);
    by_hand.send(&mut many[7], &marked(b"enext"));
    assert_eq!(by_hand.reply(&mut many[7]).unwrap(), b"refused");
    assert_eq!(by_hand.reply(&mut many[7]).unwrap(), b"enext");
}

/// A client's large requests that it began and left, including those that wait for memory, are
/// dropped as soon as a complete one from the same address needs the memory.
#[test]
fn what_is_begun_and_left_goes_when_others_need_its_memory() {
    let by_hand = ByHand::new(8 << 20, 1 << 20);
    let mut left: Vec<_> = (0..40).map(|_| by_hand.connect(1).unwrap()).collect();
    for c in &mut left {
        by_hand.send(c, &begun(b'e', 1_000_000, BEGUN));
    }
    let used = by_hand.core.ledger.used();
    assert!(used < 40 * 4 * BEGUN, "{used}");
    // Its part of 4 MiB is reserved. Another address does not notice; the same one waits until the
    // sweeper has run.
    let large = vec![b'e'; 1 << 20];
    for (from, sweeps) in [(2, 0), (1, 4)] {
        let mut client = by_hand.connect(from).unwrap();
        by_hand.send(&mut client, &marked(b"esmall"));
        assert_eq!(by_hand.reply(&mut client).unwrap(), b"esmall");
        let request = marked(&large);
        let mut sent = match sweeps {
            0 => 0,
            _ => client.write(&request).unwrap(),
        };
        for _ in 0..sweeps {
            // A byte now and then is no progress.
            for c in &mut left {
                let _ = c.write(b"e");
            }
            by_hand.sweep();
            sent += client.write(&request[sent..]).unwrap_or(0);
        }
        by_hand.send(&mut client, &request[sent..]);
        assert!(by_hand.reply(&mut client).unwrap() == large);
    }
}

#[test]
fn a_peer_has_to_keep_the_least_rate() {
    let by_hand = ByHand::new(64 << 20, 1 << 20);
    let (mut trickles, mut slow) = (by_hand.connect(1).unwrap(), by_hand.connect(2).unwrap());
    let mut received = 2 * (BEGUN as u64 + 4);
    by_hand.send(&mut trickles, &begun(b'e', 1_000_000, BEGUN));
    by_hand.send(&mut slow, &begun(b'e', 1_000_000, BEGUN));
    by_hand.quiet(received);
    by_hand.sweep();
    let ticks = limits::STALL.as_secs() as usize;
    for _ in 0..ticks - 1 {
        by_hand.send(&mut trickles, b"e");
        by_hand.send(&mut slow, &[b'e'; limits::LEAST_RATE as usize]);
        received += 1 + limits::LEAST_RATE;
        by_hand.quiet(received);
        by_hand.sweep();
    }
    by_hand.sweep();
    assert_eq!(by_hand.reply(&mut trickles), None);
    let sent = BEGUN + (ticks - 1) * limits::LEAST_RATE as usize;
    by_hand.send(&mut slow, &vec![b'e'; 1_000_000 - sent]);
    assert_eq!(by_hand.reply(&mut slow).unwrap().len(), 1_000_000);
}

/// Peers that take a byte of their replies now and then are closed when others need the memory.
#[test]
fn replies_that_nobody_takes_go_when_others_need_their_memory() {
    let by_hand = ByHand::new(16 << 20, 1 << 20);
    let mut greedy: Vec<_> = (0..8).map(|_| by_hand.connect(1).unwrap()).collect();
    for c in &mut greedy {
        by_hand.send(c, &command(b'b', 1 << 20).repeat(64));
    }
    // Another address is served meanwhile, in small and in large.
    let mut other = by_hand.connect(2).unwrap();
    by_hand.send(
        &mut other,
        &[marked(b"esmall"), command(b'b', 1 << 20)].concat(),
    );
    assert_eq!(by_hand.reply(&mut other).unwrap(), b"esmall");
    assert_eq!(by_hand.reply(&mut other).unwrap().len(), 1 << 20);
    assert!(by_hand.core.ledger.used() <= 12 << 20);
    let mut same = by_hand.connect(1).unwrap();
    by_hand.send(&mut same, &marked(b"esmall"));
    for _ in 0..15 {
        for c in &mut greedy {
            let _ = c.read(&mut [0; 1]);
        }
        by_hand.sweep();
    }
    assert_eq!(by_hand.reply(&mut same).unwrap(), b"esmall");
}

/// While memory is short, a peer that stops taking replies is kept longer the more it has taken.
#[test]
fn a_peer_that_took_its_replies_is_given_time_to_go_on() {
    let by_hand = ByHand::new(16 << 20, 1 << 20);
    let fill = command(b'b', 1 << 20);
    let (mut proven, mut fresh) = (by_hand.connect(1).unwrap(), by_hand.connect(2).unwrap());
    let taken = 4;
    for _ in 0..taken {
        by_hand.send(&mut proven, &fill);
        assert_eq!(by_hand.reply(&mut proven).unwrap().len(), 1 << 20);
    }
    for peer in [&mut proven, &mut fresh] {
        by_hand.send(peer, &fill.repeat(16));
    }
    let writing = || {
        let watched = by_hand.core.watched();
        let waits = |w: &Rc<Watch>| w.waits.get() == StallState::Writing;
        (watched.iter().filter(|w| waits(w)).count() == 2).then_some(())
    };
    by_hand.until(writing);
    // So many that each one's equal part is below one reply.
    let other = |n| by_hand.core.ledger.connect([10, 0, 1, n].into()).unwrap();
    let mut crowd: Vec<_> = (0..100).map(other).collect();
    crowd[0].set(13 << 20, 0);
    let dropped = |looks: u32| {
        for _ in 0..looks {
            by_hand.core.relieve();
        }
        let watched = by_hand.core.watched();
        watched.iter().filter(|w| w.dropped.get().is_some()).count()
    };
    // The first check only sees the bytes that were taken until then.
    assert_eq!(dropped(limits::RELIEF_LOOKS), 0);
    assert_eq!(dropped(1), 1, "one that has taken nothing");
    assert_eq!(dropped(taken - 2), 1);
    assert_eq!(dropped(2), 2);
    assert_eq!(looks_for(u64::MAX), limits::MOST_RELIEF_LOOKS);
}

/// Sweeps may find a peer taking replies each time, but a different one each time.
#[test]
fn a_peer_that_takes_one_reply_after_the_other_is_not_in_the_way() {
    let by_hand = ByHand::new(16 << 20, 1 << 20);
    let connect = |n| by_hand.core.ledger.connect([10, 0, 1, n].into()).unwrap();
    let mut crowd: Vec<_> = (0..100).map(connect).collect();
    crowd[0].set(13 << 20, 0);
    let mut peers = Vec::new();
    for n in 101..103 {
        let mut holding = connect(n);
        holding.set(1 << 20, 0);
        let watch = by_hand.core.watch(u64::from(n), &holding);
        watch.waits.set(StallState::Writing);
        watch.holds.set(1 << 20);
        peers.push((holding, watch));
    }
    let [(_, quick), (_, slow)] = &peers[..] else {
        unreachable!()
    };
    for _ in 0..2 * limits::OLD.as_secs() {
        quick.sent.set(quick.sent.get() + limits::MAX_RECORD as u64);
        slow.sent.set(slow.sent.get() + limits::LEAST_RATE);
        by_hand.core.sweep_once(limits::STALL);
    }
    let dropped = |watch: &Watch| watch.dropped.get().is_some();
    assert_eq!((dropped(quick), dropped(slow)), (false, true));
}

#[test]
fn reads_grow_with_what_a_peer_takes_while_memory_is_short() {
    let by_hand = ByHand::new(16 << 20, 1 << 20);
    let get = |peer: &mut TcpStream, bytes| {
        by_hand.send(peer, &command(b'g', bytes));
        by_hand.reply(peer).unwrap().len()
    };
    let mut early = by_hand.connect(1).unwrap();
    assert_eq!(get(&mut early, 1 << 20), 1 << 20, "memory is not short");
    let mut crowd = by_hand.core.ledger.connect([10, 0, 0, 9].into()).unwrap();
    crowd.set(13 << 20, 0);
    let mut late = by_hand.connect(2).unwrap();
    let mut taken = limits::SMALL_REPLY;
    for _ in 0..4 {
        let got = get(&mut late, 1 << 20);
        assert!(
            got >= limits::SMALL_REPLY && got <= taken + 64,
            "{got} of {taken}"
        );
        taken += got;
    }
    assert_eq!(
        get(&mut early, 1 << 18),
        1 << 18,
        "it has taken as much before"
    );
    drop(crowd);
    assert_eq!(get(&mut late, 1 << 20), 1 << 20);
}

#[test]
fn strangers_give_way_to_new_connections() {
    let by_hand = ByHand::new(64 << 20, limits::OWN_DESCRIPTORS + 18);
    let mut first = by_hand.connect(1).unwrap();
    let idle: Vec<_> = (0..100)
        .map(|_| {
            by_hand.sweep();
            by_hand.connect(1)
        })
        .collect();
    assert!(idle.iter().all(Option::is_some));
    assert_eq!(by_hand.reply(&mut first), None);
    let mut client = by_hand.connect(1).unwrap();
    by_hand.send(&mut client, &marked(b"ehere"));
    assert_eq!(by_hand.reply(&mut client).unwrap(), b"ehere");
    by_hand.sweep();
    assert_eq!(by_hand.core.watched().len(), 12);
}

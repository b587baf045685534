//! Three constituents at three servers: threads, messages that are lost, and servers that end in
//! the midst and start again.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use parking_lot::Mutex;
use weir_base::signal::Signal;
use weir_base::{Ino, Rng, SeededRng, SystemClock, Time};
use weir_large::{
    Attributes, Constituent, Link, Member, Membership, Parts, ROOT, Refusal, Reply, Request,
};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_volume::{
    CallKey, CreateHow, Engine, EngineContext, EngineOptions, FileKind, FsError, SetAttr, Volume,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T: Copy>(signal: Arc<Signal<T>>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut settled = pin!(signal.settled());
    loop {
        match settled.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A network that loses one frame of `loses`.
struct Network {
    members: Mutex<BTreeMap<Constituent, Weak<Member>>>,
    sent: AtomicU64,
    loses: u64,
}

impl Link for Network {
    fn send(&self, large: u64, to: Constituent, frame: Vec<u8>) {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        if sent % self.loses == self.loses - 1 {
            return;
        }
        let member = self.members.lock().get(&to).and_then(Weak::upgrade);
        assert_eq!(weir_large::frame::destination(&frame), Some((large, to)));
        if let Some(member) = member {
            member.deliver(&frame);
        }
    }
}

struct Server {
    device: Arc<MemDevice>,
    log: Arc<MemDevice>,
    rng: Arc<SeededRng>,
    own: Constituent,
    network: Arc<Network>,
    running: Option<(Arc<Engine>, Arc<Member>)>,
}

impl Server {
    fn new(own: u8, network: &Arc<Network>) -> Server {
        let mut server = Server {
            device: Arc::new(MemDevice::new(64 << 8)),
            log: Arc::new(MemDevice::new(4 << 8)),
            rng: Arc::new(SeededRng::new(u64::from(own))),
            own: Constituent(own),
            network: Arc::clone(network),
            running: None,
        };
        let (device, log) = (Arc::clone(&server.device), Arc::clone(&server.log));
        let (agg, replay) = Aggregate::create_on(device, log, server.env()).unwrap();
        let engine = Engine::open(agg, replay, &*server.rng, EngineOptions::default()).unwrap();
        let volume = engine.create_volume("part", (0, 0), 0o755, Time::EPOCH, &*server.rng);
        server.serve(engine, volume.unwrap());
        server
    }

    fn env(&self) -> Env {
        Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::new(SystemClock::default()),
            rng: Arc::clone(&self.rng) as Arc<dyn Rng>,
        }
    }

    fn serve(&mut self, engine: Engine, volume: Arc<Volume>) {
        let engine = Arc::new(engine);
        let log = Arc::downgrade(&engine);
        let member = Member::start(Parts {
            membership: Membership {
                large: 77,
                secret: [7; 16],
                own: self.own,
                members: 3,
            },
            volume,
            clock: Arc::new(SystemClock::default()),
            link: Arc::clone(&self.network) as Arc<dyn Link>,
            durable: Arc::new(move |lsn| log.upgrade().ok_or(FsError::Delay)?.wait_durable(lsn)),
        });
        let member = member.unwrap();
        let weak = Arc::downgrade(&member);
        self.network.members.lock().insert(self.own, weak);
        self.running = Some((engine, member));
    }

    /// Ends the server without a checkpoint, in the midst of whatever it does.
    fn kill(&mut self) {
        if let Some((engine, member)) = self.running.take() {
            self.network.members.lock().remove(&self.own);
            member.stop();
            drop((member, engine));
        }
    }

    fn start(&mut self) {
        let (device, log) = (Arc::clone(&self.device), Arc::clone(&self.log));
        let (agg, replay) = Aggregate::open_on(device, log, self.env()).unwrap();
        let engine = Engine::open(agg, replay, &*self.rng, EngineOptions::default()).unwrap();
        let volume = engine.volume("part").unwrap();
        self.serve(engine, volume);
    }

    fn member(&self) -> &Arc<Member> {
        &self.running.as_ref().unwrap().1
    }
}

fn three(loses: u64) -> Vec<Server> {
    let network = Arc::new(Network {
        members: Mutex::default(),
        sent: AtomicU64::new(0),
        loses,
    });
    (0..3).map(|own| Server::new(own, &network)).collect()
}

/// Requests a change at its decider.
fn request_change(servers: &[Server], request: &Request) -> Arc<Signal<Reply>> {
    let decider = usize::from(request.decider().0);
    servers[decider].member().request(request.clone(), None)
}

fn make_directory(directory: Ino, name: &str, on: u8) -> Request {
    Request::MakeDirectory {
        directory,
        name: name.as_bytes().into(),
        on: Constituent(on),
        attributes: Attributes {
            mode: 0o750,
            uid: 10,
            gid: 20,
        },
    }
}

fn rename(from_directory: Ino, from: &str, to_directory: Ino, to: &str) -> Request {
    Request::Rename {
        from_directory,
        from: from.as_bytes().into(),
        to_directory,
        to: to.as_bytes().into(),
    }
}

/// Returns what an entry names, in the large volume.
fn entry(servers: &[Server], directory: Ino, name: &str) -> Option<Ino> {
    let member = servers[usize::from(Constituent::of_inode(directory).0)].member();
    let (volume, dir) = (member.volume(), member.stored(directory));
    loop {
        let held = member.hold().and_then(|held| {
            held.lookup(dir, name.as_bytes())?;
            Ok(held)
        });
        let _held = match held {
            Ok(held) => held,
            Err(change) => {
                wait(change);
                continue;
            }
        };
        let mut cx = EngineContext::new(Time::EPOCH);
        let found = volume.drive_blocking(&mut cx, |cx| volume.entry(cx, dir, name.as_bytes()));
        return match found {
            Ok((ino, _)) => Some(member.global(ino)),
            Err(FsError::NotFound) => None,
            Err(error) => panic!("{name}: {error}"),
        };
    }
}

fn create(server: &Server, directory: Ino, name: &str) -> Ino {
    let member = server.member();
    let (volume, dir) = (member.volume(), member.stored(directory));
    let mut cx = EngineContext::new(Time::EPOCH);
    let made = volume.drive_blocking(&mut cx, |cx| {
        volume.create(
            cx,
            dir,
            name.as_bytes(),
            CreateHow::Guarded,
            &SetAttr::default(),
        )
    });
    let made = made.unwrap();
    let engine = &server.running.as_ref().unwrap().0;
    engine.wait_durable(made.lsn).unwrap();
    member.global(made.value.ino)
}

/// Waits until no change is under way anywhere.
fn wait_until_idle(servers: &[Server]) {
    while !servers.iter().all(|server| server.member().is_idle()) {
        std::thread::yield_now();
    }
}

#[test]
fn changes_of_several_constituents_are_carried_out_although_messages_are_lost() {
    let servers = three(5);
    let done = |request: &Request| wait(request_change(&servers, request));
    let a = done(&make_directory(ROOT, "a", 1)).unwrap().unwrap();
    let b = done(&make_directory(ROOT, "b", 2)).unwrap().unwrap();
    assert_eq!(Constituent::of_inode(a), Constituent(1));
    assert_eq!(entry(&servers, ROOT, "b"), Some(b));
    assert_eq!(
        done(&make_directory(ROOT, "a", 2)),
        Err(Refusal::Exists),
        "the name is taken"
    );
    let seen = wait(servers[0].member().inspect(a, None)).unwrap();
    assert_eq!((seen.node.kind, seen.node.uid), (FileKind::Directory, 10));
    assert_eq!(seen.node.mode, 0o750);

    // A file that is renamed into a directory elsewhere stays where it is.
    let file = create(&servers[1], a, "f");
    assert_eq!(done(&rename(a, "f", b, "g")), Ok(None));
    assert_eq!(entry(&servers, a, "f"), None);
    assert_eq!(entry(&servers, b, "g"), Some(file));
    let link = Request::Link {
        file,
        directory: ROOT,
        name: b"h"[..].into(),
    };
    assert_eq!(done(&link), Ok(None));
    let seen = wait(servers[1].member().inspect(b, Some(b"g"))).unwrap();
    let child = seen.child.unwrap();
    assert_eq!((child.ino, child.directory), (file, false));
    assert_eq!(child.node, None, "it is in another constituent");

    // A directory below itself is refused; elsewhere it moves.
    assert_eq!(done(&rename(ROOT, "a", b, "a")), Ok(None));
    assert_eq!(done(&rename(ROOT, "b", a, "b")), Err(Refusal::Loop));
    let remove = |directory, name: &str| Request::Remove {
        directory,
        name: name.as_bytes().into(),
    };
    assert_eq!(done(&remove(b, "g")), Ok(None));
    assert_eq!(done(&remove(ROOT, "h")), Ok(None));
    // The constituent with the file hears of the decision.
    wait_until_idle(&servers);
    let gone = wait(servers[0].member().inspect(file, None));
    assert_eq!(gone, Err(Refusal::Stale), "with its last link");
    let rmdir = |directory, name: &str| Request::RemoveDirectory {
        directory,
        name: name.as_bytes().into(),
    };
    assert_eq!(done(&rmdir(ROOT, "b")), Err(Refusal::NotEmpty));
    assert_eq!(done(&rmdir(b, "a")), Ok(None));
    assert_eq!(done(&rmdir(ROOT, "b")), Ok(None));
    wait_until_idle(&servers);
    let space = servers[0].member().space();
    let own = servers[0].member().volume().statfs();
    assert!(space.total > 2 * own.total, "{space:?}");
}

#[test]
fn a_call_that_is_sent_again_has_the_reply_of_the_first() {
    let mut servers = three(1000);
    let call = CallKey([9; CallKey::LEN]);
    let request = make_directory(ROOT, "once", 1);
    let member = servers[0].member();
    assert!(member.recall(call).is_none());
    // The client goes away while the change waits for a server.
    servers[1].kill();
    drop(servers[0].member().request(request, Some(call)));
    servers[1].start();
    let made = wait(servers[0].member().recall(call).unwrap());
    let ino = made.unwrap().unwrap();
    assert_eq!(entry(&servers, ROOT, "once"), Some(ino));
    // The key is in the record of the decision, so that a restart does not forget it.
    servers[0].kill();
    servers[0].start();
    let done = servers[0].running.as_ref().unwrap().0.done_calls();
    let stored = servers[0].member().stored(ino);
    assert!(
        done.iter()
            .any(|done| done.key == call && done.ino == stored)
    );
}

#[test]
fn servers_that_end_in_the_midst_settle_everything_when_they_are_back() {
    let mut servers = three(11);
    let mut made = Vec::new();
    for round in 0..9_u8 {
        let requests: Vec<Request> = (0..4)
            .map(|i| make_directory(ROOT, &format!("d{round}-{i}"), (round + i) % 3))
            .collect();
        let replies: Vec<_> = requests
            .iter()
            .map(|r| request_change(&servers, r))
            .collect();
        // The first reply says that the rest is under way.
        let first = wait(Arc::clone(&replies[0]));
        let victim = usize::from(round % 3);
        servers[victim].kill();
        servers[victim].start();
        assert!(first.is_ok(), "{first:?}");
        for (i, (request, reply)) in requests.iter().zip(replies).enumerate() {
            let again = || wait(request_change(&servers, request));
            let ended = match wait(reply) {
                Err(Refusal::Busy) => again(),
                ended => ended,
            };
            assert!(
                matches!(ended, Ok(Some(_)) | Err(Refusal::Exists)),
                "{ended:?}"
            );
            made.push(format!("d{round}-{i}"));
        }
        if let [.., from, _] = made.as_slice() {
            let ino = entry(&servers, ROOT, from).unwrap();
            let to = entry(&servers, ROOT, &made[0]).unwrap();
            let moved = wait(request_change(&servers, &rename(ROOT, from, to, from)));
            assert!(moved.is_ok(), "{moved:?}");
            assert_eq!(entry(&servers, to, from), Some(ino));
            let back = wait(request_change(&servers, &rename(to, from, ROOT, from)));
            assert!(back.is_ok(), "{back:?}");
        }
    }
    wait_until_idle(&servers);
    for name in &made {
        let ino = entry(&servers, ROOT, name).unwrap();
        let seen = wait(servers[0].member().inspect(ino, None));
        assert!(seen.is_ok(), "{name} is {seen:?}");
    }
    for server in &mut servers {
        server.kill();
        let pool = FramePool::new(4096).unwrap();
        let options = weir_volume::check::CheckOptions::default();
        let (device, log) = (Arc::clone(&server.device), Arc::clone(&server.log));
        let report = weir_volume::check::check_on(device, log, &pool, &options).unwrap();
        assert!(report.clean(), "{report:?}");
    }
}

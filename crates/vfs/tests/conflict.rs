//! Operations against caches that are granted while they run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_base::{Budget, Clock, ManualClock, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_vfs::claims::{CacheRights, Client, Kind, Notice, Owner, OwnerId, ServiceId, Sink};
use weir_vfs::stats::{Stats, UNATTRIBUTED};
use weir_vfs::throttle::{CreditLimits, Throttle};
use weir_vfs::volume::{CreateHow, SetAttr, Stability};
use weir_vfs::waits::WaitTimer;
use weir_vfs::{
    AccessModel, Admissions, DataWrite, EngineContext, Error, Export, FileId, Flavour, Groups,
    HandleKey, Identity, Namespace, OpContext, OpResult, Protocol, Rule, Session, Squash, Stop,
    Suspend, Transport, Vfs, Volume,
};
use weir_volume::{Attr, Engine, EngineOptions};

fn current_time() -> Time {
    ManualClock::default().current_time()
}

/// An access model that allows everything.
#[derive(Clone, Copy)]
struct Open;

impl AccessModel for Open {
    fn may_read(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        Ok(())
    }
    fn may_write(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        Ok(())
    }
}

struct Server {
    _engine: Engine,
    volume: Arc<Volume>,
    vfs: Arc<Vfs>,
    file: FileId,
}

impl Server {
    fn new() -> Server {
        let env = Env {
            pool: FramePool::new(8192).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(43)),
        };
        let device = Arc::new(MemDevice::new(64 << 8));
        let log = Arc::new(MemDevice::new(16 << 8));
        let (agg, replay) = Aggregate::create_on(device, log, env).unwrap();
        let rng = SeededRng::new(42);
        let engine = Engine::open(agg, replay, &rng, EngineOptions::default()).unwrap();
        let volume = engine.create_volume("vol1", (0, 0), 0o777, current_time(), &rng);
        let volume = volume.unwrap();
        let vfs = Vfs::new(HandleKey::new([9; 16], [9; 16]));
        let rules = vec![Rule::open(Squash::None)];
        vfs.publish(vec![Export::new("/vol1", Arc::clone(&volume), rules)]);
        let made = volume.drive_blocking(&mut EngineContext::new(current_time()), |cx| {
            let attrs = SetAttr::default();
            volume.create(cx, volume.root(), b"file", CreateHow::Guarded, &attrs)
        });
        let file = FileId {
            volume: volume.id(),
            ino: made.unwrap().value.ino,
            namespace: Namespace::Live,
        };
        Server {
            _engine: engine,
            volume,
            vfs,
            file,
        }
    }

    /// A WRITE of `len` bytes from the beginning, once.
    fn write(&self, cx: &mut OpContext, byte: u8, len: usize) -> OpResult<()> {
        let table = self.vfs.exports();
        let admitted = Admissions::default();
        let who = Identity::unix(0, 0, Groups::default());
        let session = self.session(&admitted, &who);
        let handle = self.vfs.handle_of(self.file);
        let file = self.vfs.admit(&table, &handle, &session)?;
        let (file, charged) = file.charge(&self.vfs, cx, DataWrite(len))?;
        let data = vec![byte; len];
        file.write(cx, charged, 0, &data, Stability::Unstable)?;
        Ok(())
    }

    fn session<'s>(&self, admitted: &'s Admissions, who: &'s Identity) -> Session<'s, Open> {
        let origin = IpAddr::from([10, 0, 0, 1]);
        Session {
            origin,
            protocol: Protocol::Nfsv3,
            flavour: Flavour::Sys,
            transport: Transport::Clear,
            identity: Some(who),
            access: Open,
            client: origin.into(),
            admitted,
        }
    }

    /// The first byte, as a client that caches the file reads it.
    fn first(&self) -> Option<u8> {
        let mut cx = EngineContext::new(current_time());
        let read = |cx: &mut EngineContext| self.volume.read(cx, self.file.ino, 0, 1);
        let out = self.volume.drive_blocking(&mut cx, read).unwrap();
        out.slices().next().and_then(|bytes| bytes.first().copied())
    }
}

#[derive(Default)]
struct Breaks(AtomicUsize);

impl Sink for Breaks {
    fn notify(&self, notice: Notice) {
        assert!(matches!(notice, Notice::Break { .. }), "{notice:?}");
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn holder() -> Owner {
    Owner {
        client: Client {
            service: ServiceId(2),
            address: IpAddr::from([10, 0, 0, 7]),
            name: Arc::from(&b"guid"[..]),
        },
        who: OwnerId::key(1),
        shown: Arc::default(),
    }
}

fn attached(s: &Server) -> Arc<Breaks> {
    let breaks = Arc::new(Breaks::default());
    let sink: Weak<dyn Sink> = Arc::downgrade(&(breaks.clone() as Arc<dyn Sink>));
    s.vfs.claims.attach(ServiceId(2), sink);
    breaks
}

/// Ends the other thread's waiting for rounds when this one ends, in whatever way.
struct Rounds<'a>(&'a AtomicUsize);

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::SeqCst);
    }
}

/// In each round one thread writes while another is granted a cache and reads into it: unless a
/// break has begun, what it has read is what the file has when the round is over.
#[test]
fn no_cache_outlives_a_write_that_began_before_it_was_granted() {
    const ROUNDS: usize = 3000;
    let s = Server::new();
    let breaks = attached(&s);
    let (begun, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let written = Rounds(&written);
            for n in 1..=ROUNDS {
                while begun.load(Ordering::SeqCst) < n {
                    std::thread::yield_now();
                }
                // A cache of reads alone is forgotten without an answer.
                let mut cx = OpContext::new(current_time(), 1, None);
                while let Err(why) = s.write(&mut cx, n as u8, 64 << 10) {
                    let Stop::Suspended(suspend) = why else {
                        panic!("a write failed");
                    };
                    block_on(cx.resume(&s.vfs, suspend)).unwrap();
                }
                written.0.store(n, Ordering::SeqCst);
            }
        });
        let owner = holder();
        let mut broken = 0;
        let begun = Rounds(&begun);
        for n in 1..=ROUNDS {
            let before = breaks.0.load(Ordering::SeqCst);
            begun.0.store(n, Ordering::SeqCst);
            // Not always at the same moment of the write.
            (0..n % 64).for_each(|_| std::hint::spin_loop());
            let claims = &s.vfs.claims;
            let given = claims.grant(s.file, &owner, Kind::Lease, CacheRights::READ);
            assert_eq!(given, CacheRights::READ);
            let cached = s.first();
            while written.load(Ordering::SeqCst) < n {
                std::thread::yield_now();
            }
            let now = s.first();
            let asked = breaks.0.load(Ordering::SeqCst) > before;
            assert!(now == cached || asked, "{n}: {cached:?} is now {now:?}");
            broken += usize::from(asked);
        }
        assert!(broken > 0);
    });
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Returns true if a future waits.
fn waits<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    future
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

#[test]
fn a_wait_for_a_recall_is_counted_when_it_is_over() {
    let s = Server::new();
    let _breaks = attached(&s);
    let clock = Arc::new(ManualClock::default());
    let throttle = Throttle::new(
        Arc::clone(&clock) as Arc<dyn Clock>,
        1,
        CreditLimits::of_budget(0),
    );
    let stats = Arc::new(Stats::new(1));
    let counting = Vfs::counting(
        HandleKey::new([9; 16], [9; 16]),
        throttle,
        Budget::new(1 << 20),
        Some(Arc::clone(&stats)),
    );
    let all = CacheRights::READ | CacheRights::WRITE;
    assert_eq!(s.vfs.claims.grant(s.file, &holder(), Kind::Lease, all), all);
    let mut cx = OpContext::new(current_time(), 1, None);
    let Err(Stop::Suspended(suspend)) = s.write(&mut cx, 7, 9) else {
        panic!("nothing to wait for");
    };
    let begun = WaitTimer::start(&counting, &cx, &suspend).unwrap();
    clock.advance(Duration::from_millis(3));
    assert!(stats.waits().is_empty());
    begun.end(&counting);
    let [log, device, claim] = stats.waits()[&UNATTRIBUTED];
    assert_eq!((log, device, claim), (0, 0, 3_000_000));
    // The limits count their own waits, and a turn is no wait.
    assert!(WaitTimer::start(&counting, &cx, &Suspend::Turn).is_none());
}

#[test]
fn an_operation_waits_for_a_recall_and_has_done_nothing() {
    let s = Server::new();
    let breaks = attached(&s);
    let owner = holder();
    let claims = &s.vfs.claims;
    for timeout in [false, true] {
        let all = CacheRights::READ | CacheRights::WRITE;
        assert_eq!(claims.grant(s.file, &owner, Kind::Lease, all), all);
        let before = s.first();
        let mut cx = OpContext::new(current_time(), 1, None);
        let Err(Stop::Suspended(suspend)) = s.write(&mut cx, 7 + u8::from(timeout), 9) else {
            panic!("nothing to wait for");
        };
        assert!(matches!(suspend, Suspend::Recall(_)));
        assert_eq!(breaks.0.swap(0, Ordering::SeqCst), 1);
        assert_eq!(s.first(), before, "nothing was done");
        {
            let mut resumed = std::pin::pin!(cx.resume(&s.vfs, suspend));
            assert!(waits(resumed.as_mut()));
            match timeout {
                false => assert!(claims.acknowledge(s.file, &owner, CacheRights::NONE)),
                true => {
                    // Only the client that asked is notified of the end.
                    claims.attach(ServiceId(2), Weak::<Breaks>::new());
                    claims.tick(Duration::from_secs(1));
                    assert!(waits(resumed.as_mut()));
                    claims.tick(Duration::from_secs(36));
                }
            }
            block_on(resumed).unwrap();
        }
        s.write(&mut cx, 7 + u8::from(timeout), 9).ok().unwrap();
        assert_eq!(s.first(), Some(7 + u8::from(timeout)));
    }
}

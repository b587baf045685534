//! Ownership of an aggregate on a simulated cluster: takeovers while the old owner lives, its
//! operations under way, OSDs that learn of the fence late, a full pool.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use weir_base::{BlockAddr, Clock, ManualClock, SeededRng};
use weir_rados::{Objects, Step};
use weir_rados_store::{
    AggregateObjects, LOCK, OWNER, OwnerState, Process, RadosAggregate, Sizes, StandbyObserver,
    Standbys,
};
use weir_sim::rados::{Client, Cluster};
use weir_sim::rand::Choices;
use weir_store::log::Record;
use weir_store::{
    Aggregate, AggregateDevices, Class, Device, Env, Frame, FramePool, Io, Location, TreeRoot,
};

const SIZES: Sizes = Sizes {
    max_blocks: 1 << 20,
    log_bytes: 16 << 20,
};

struct Machine {
    client: Client,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new(cluster: &Arc<Cluster>, number: u64) -> Machine {
        Machine {
            client: cluster.client(number),
            clock: Arc::new(ManualClock::default()),
        }
    }

    fn connected(&self) -> AggregateObjects {
        let client: Arc<dyn Objects> = Arc::new(self.client.clone());
        AggregateObjects::on("rados:sim/a", Arc::clone(&client), client)
    }

    /// Takes the aggregate, with `meanwhile` at each pause.
    fn take(&self, meanwhile: &dyn Fn()) -> Result<RadosAggregate, String> {
        self.acquire(meanwhile, None)
    }

    /// Takes the aggregate, as a standby if it is `waiting`.
    fn acquire(
        &self,
        meanwhile: &dyn Fn(),
        waiting: Option<&StandbyObserver<'_>>,
    ) -> Result<RadosAggregate, String> {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        // An unknown process: nobody can see whether it has ended.
        let process = Process::default();
        let patience = |time| {
            meanwhile();
            self.clock.advance(time);
        };
        let taken = self
            .connected()
            .take(&process, &["f"], SIZES, &clock, &patience, waiting);
        taken.map_err(|e| e.to_string())
    }

    /// Takes an aggregate that nobody owns, and waits until data may be written.
    fn own(&self) -> RadosAggregate {
        let owned = self.take(&|| {}).unwrap();
        wait_for_data(&owned);
        owned
    }

    fn env(&self) -> Env {
        Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::clone(&self.clock) as _,
            rng: Arc::new(SeededRng::new(1)),
        }
    }
}

fn wait_for_data(owned: &RadosAggregate) {
    let (tell, told) = channel();
    let done = move |allowed| tell.send(allowed).unwrap();
    owned.session().when_data_may_be_written(Box::new(done));
    told.recv().unwrap().unwrap();
}

fn block(pool: &FramePool, with: u8) -> Vec<Frame> {
    let mut frame = pool.alloc(Class::Foreground).unwrap();
    frame.fill(with);
    vec![frame.freeze()]
}

fn first_byte(device: &dyn Device, pool: &FramePool, at: u64) -> u8 {
    let into = vec![pool.alloc(Class::Foreground).unwrap()];
    device.read(BlockAddr(at), into).wait().unwrap()[0][0]
}

fn code(result: Result<(), weir_store::IoError>) -> Option<i32> {
    result.err().and_then(|e| e.source.raw_os_error())
}

fn waits(write: &mut Io<()>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(write).poll(&mut context).is_pending()
}

#[test]
fn an_owner_that_lives_is_left_alone() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let owner = first.take(&|| {}).unwrap();
    let touches = AtomicUsize::new(0);
    let touch = || {
        // As the owner's thread does, which waits for the real time.
        let count = touches.fetch_add(1, Ordering::Relaxed);
        let touch = Step::Set {
            attribute: "touch",
            value: format!("again {count}").into_bytes(),
        };
        first.client.operate_wait("owner", vec![touch]).unwrap();
    };
    let refused = second.take(&touch).err().unwrap();
    assert!(refused.contains("stop that server first"), "{refused}");
    assert!(!owner.session().is_lost());
    // One that ended as it should needs no patience.
    drop(owner);
    second.take(&|| panic!("nobody has it")).unwrap();
}

/// Touches the aggregate for its owner, whose own thread waits for the real time.
fn touch(client: &Client, count: usize) {
    let touch = Step::Set {
        attribute: "touch",
        value: count.to_string().into_bytes(),
    };
    client.operate_wait(OWNER, vec![touch]).unwrap();
}

#[test]
fn a_standby_waits_for_as_long_as_the_owner_lives_and_then_takes_over() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let owner = Mutex::new(Some(first.own()));
    let looks = AtomicUsize::new(0);
    let patience = || {
        // Ten seconds of the owner's life, then its end.
        match looks.load(Ordering::Relaxed) {
            count @ ..100 => touch(&first.client, 1_000 + count),
            _ => drop(owner.lock().unwrap().take()),
        }
    };
    let waiting = |seen: &OwnerState| {
        assert_eq!((seen.epoch, seen.fault.is_none()), (Some(1), true));
        assert!(seen.owner.is_some());
        looks.fetch_add(1, Ordering::Relaxed);
        true
    };
    let taken = second.acquire(&patience, Some(&waiting)).unwrap();
    assert_eq!(
        looks.load(Ordering::Relaxed),
        100,
        "its end needs no patience"
    );
    taken
        .owner()
        .finish_takeover(&|_| panic!("nobody else can answer"));
}

#[test]
fn a_standby_can_be_ended_and_outlives_a_cluster_that_is_out_of_reach() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let _owner = first.own();
    let looks = AtomicUsize::new(0);
    let patience = || touch(&first.client, 1_000 + looks.load(Ordering::Relaxed));
    let waiting = |_: &OwnerState| looks.fetch_add(1, Ordering::Relaxed) < 50;
    let ended = second.acquire(&patience, Some(&waiting)).err().unwrap();
    assert!(ended.contains("does not stand by any more"), "{ended}");
    assert_eq!(looks.load(Ordering::Relaxed), 51);
    // Shut out by an administrator, it would wait for ever.
    first.client.fence("10.0.0.2:0/2").unwrap();
    let ended = second.acquire(&patience, Some(&|_| true)).err().unwrap();
    assert!(ended.contains("os error 108"), "{ended}");
}

#[test]
fn an_aggregate_that_is_reserved_is_left_to_its_heir_for_a_while() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let owner = first.own();
    let heir = Process::this("elsewhere");
    owner.session().reserve_for(&heir);
    drop(owner);
    let began = second.clock.monotonic();
    let taken = second.take(&|| {}).unwrap();
    let waited = second.clock.monotonic() - began;
    assert!(waited >= Duration::from_millis(1500), "{waited:?}");
    // The reservation ends with that.
    wait_for_data(&taken);
    taken
        .owner()
        .finish_takeover(&|time| second.clock.advance(time));
    drop(taken);
    first.take(&|| panic!("nobody has it")).unwrap();
}

/// A process of a machine that nobody else can see into.
fn process(host: &str) -> Process {
    let text = format!(r#"{{"host":"{host}","process":1,"boot":"","namespace":"","start":0}}"#);
    Process::parse(text.as_bytes())
}

/// Waits for a state that another thread brings about.
fn until(what: &str, test: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if test() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not in 10 s: {what}");
}

#[test]
fn standbys_see_each_other_and_vanish_when_they_end_or_stand_still() {
    let cluster = Cluster::new();
    let machines = [1, 2, 3].map(|number| Machine::new(&cluster, number));
    let hosts = ["a", "b", "c"];
    let watch = |number: usize| {
        let machine: &Machine = &machines[number];
        let clock: Arc<dyn Clock> = Arc::clone(&machine.clock) as _;
        let connected = machine.connected();
        connected.standbys(&process(hosts[number]), &clock).unwrap()
    };
    let [owner, one, other] = [0, 1, 2].map(watch);
    assert!(!owner.were_there() && owner.others().is_empty());
    one.join();
    other.join();
    let listed = |by: &Standbys| {
        let mut hosts: Vec<_> = by.others().into_iter().map(|s| s.process.host).collect();
        hosts.sort();
        hosts.concat()
    };
    until("both are listed", || listed(&owner) == "bc");
    until("the other one is listed", || {
        listed(&one) == "c" && listed(&other) == "b"
    });
    // In order, and without a trace.
    one.leave();
    until("one has ended", || {
        listed(&owner) == "c" && listed(&other).is_empty()
    });
    assert!(owner.were_there());
    // Killed: its count stands still, by the owner's clock.
    cluster.kill_after(&machines[2].client, 0);
    machines[0].clock.advance(Duration::from_secs(60));
    until("the other one has vanished", || listed(&owner).is_empty());
    assert!(owner.were_there());
}

#[test]
fn after_a_takeover_the_old_owner_changes_nothing() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let old = first.own();
    let pool = FramePool::new(64).unwrap();
    let (data, log) = (old.device(), old.log_device());
    for at in [0, 5000, 2048] {
        data.write(BlockAddr(at), block(&pool, 1)).wait().unwrap();
    }
    log.write(BlockAddr(2), block(&pool, 1)).wait().unwrap();
    old.session().write_file("f", b"old").unwrap();
    let lost = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&lost);
    old.session().on_loss(move |loss, _| {
        assert!(loss.begins_anew());
        told.fetch_add(1, Ordering::Relaxed);
    });
    // Suspended: it sends nothing, and what it has sent is still under way.
    cluster.hold(&first.client, true);
    let under_way = [
        log.write(BlockAddr(3), block(&pool, 2)),
        data.write(BlockAddr(16), block(&pool, 2)),
        data.write(BlockAddr(5001), block(&pool, 2)),
    ];
    let began = second.clock.monotonic();
    let new = second.take(&|| {}).unwrap();
    assert!(second.clock.monotonic() >= began + Duration::from_millis(1500));
    let waited = AtomicUsize::new(0);
    new.owner().finish_takeover(&|time| {
        waited.fetch_add(time.as_millis() as usize, Ordering::Relaxed);
    });
    assert!(
        waited.load(Ordering::Relaxed) > 2000,
        "its lease may still hold"
    );
    let (new_data, new_log) = (new.device(), new.log_device());
    // All that it writes from now on, and reads, is its own.
    new_data
        .write(BlockAddr(5001), block(&pool, 3))
        .wait()
        .unwrap();
    cluster.release(&Choices::new(7));
    cluster.hold(&first.client, false);
    for write in under_way {
        assert!(code(write.wait()).is_some());
    }
    assert_eq!(lost.load(Ordering::Relaxed), 1, "it is notified once");
    assert!(old.session().is_lost());
    assert_eq!(
        code(data.write(BlockAddr(5001), block(&pool, 4)).wait()),
        Some(108)
    );
    assert!(old.session().write_file("f", b"older").is_err());
    for (at, wanted) in [(0, 1), (16, 0), (2048, 1), (5000, 1), (5001, 3)] {
        assert_eq!(first_byte(&*new_data, &pool, at), wanted, "block {at}");
    }
    assert_eq!(first_byte(&*new_log, &pool, 2), 1);
    assert_eq!(first_byte(&*new_log, &pool, 3), 0);
    assert_eq!(new.session().read_file("f").unwrap().unwrap(), b"old");
}

#[test]
fn the_seal_alone_stops_log_and_superblocks_but_not_data() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let old = first.own();
    cluster.allow_fencing(false);
    let new = second.take(&|| {}).unwrap();
    let pool = FramePool::new(64).unwrap();
    let refused = new.device().write(BlockAddr(5000), block(&pool, 3)).wait();
    assert_eq!(
        code(refused),
        Some(108),
        "it is not written, nor waited for"
    );
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reasons);
    new.session().on_loss(move |loss, why| {
        assert!(!loss.begins_anew(), "it would be refused again");
        told.lock().unwrap().push(why.to_owned());
    });
    let reasons = reasons.lock().unwrap();
    assert!(reasons[0].contains("osd blocklist"), "{reasons:?}");
    // Why a takeover without the fence is refused: the cluster takes data blocks.
    let write = Step::Write {
        offset: 0,
        bytes: vec![1],
    };
    let data = "d.0000000000000004";
    first.client.operate_wait(data, vec![write]).unwrap();
    assert_eq!(cluster.bytes(data), Some(vec![1]));
    for (device, at) in [(old.log_device(), 2), (old.device(), 0)] {
        let refused = code(device.write(BlockAddr(at), block(&pool, 1)).wait());
        assert!(matches!(refused, Some(108 | 125)), "{refused:?}");
    }
    assert!(old.session().is_lost());
}

#[test]
fn the_log_is_written_before_the_old_owner_is_shut_out_and_data_after() {
    let cluster = Cluster::new();
    let (first, second) = (Machine::new(&cluster, 1), Machine::new(&cluster, 2));
    let old = first.own();
    cluster.hold(&first.client, true);
    cluster.stall_monitors(true);
    let new = second.take(&|| {}).unwrap();
    let pool = FramePool::new(64).unwrap();
    let (data, log) = (new.device(), new.log_device());
    let mut write = data.write(BlockAddr(5000), block(&pool, 3));
    let mut superblock = data.write(BlockAddr(0), block(&pool, 3));
    log.write(BlockAddr(2), block(&pool, 3)).wait().unwrap();
    new.session().write_file("f", b"new").unwrap();
    assert!(waits(&mut write) && waits(&mut superblock));
    // Operations of the old one get in until then.
    let under_way = old.device().write(BlockAddr(5000), block(&pool, 1));
    cluster.hold(&first.client, false);
    cluster.release(&Choices::new(1));
    under_way.wait().unwrap();
    cluster.stall_monitors(false);
    write.wait().unwrap();
    superblock.wait().unwrap();
    assert_eq!(first_byte(&*data, &pool, 5000), 3);
    let late = old.device().write(BlockAddr(5000), block(&pool, 1));
    assert_eq!(code(late.wait()), Some(108));
}

#[test]
fn an_owner_that_finds_the_lock_free_writes_data_with_the_map_of_another_ones_blocklist() {
    let cluster = Cluster::new();
    let machine = |number| Machine::new(&cluster, number);
    // All connect before the blocklist.
    let (first, second, third) = (machine(1), machine(2), machine(3));
    let old = first.own();
    cluster.hold(&first.client, true);
    let pool = FramePool::new(64).unwrap();
    // On objects of several OSDs.
    let places = (4..12).map(|object| object * 1024);
    let old_device = old.device();
    let begun = |at| old_device.write(BlockAddr(at), block(&pool, 1));
    let under_way: Vec<Io<()>> = places.clone().map(begun).collect();
    // It shuts the first out, breaks the lock, and dies.
    let holders = second.client.holders(OWNER, LOCK).unwrap();
    second.client.fence(&holders[0].address).unwrap();
    let broken = second.client.break_lock(OWNER, LOCK, &holders[0]);
    broken.unwrap();
    let new = third.take(&|| {}).unwrap();
    let device = new.device();
    for at in places.clone() {
        let write = device.write(BlockAddr(at), block(&pool, 3));
        write.wait().unwrap();
    }
    cluster.hold(&first.client, false);
    cluster.release(&Choices::new(1));
    for late in under_way {
        assert_eq!(code(late.wait()), Some(108));
    }
    for at in places {
        assert_eq!(first_byte(&*device, &pool, at), 3);
    }
}

#[test]
fn a_takeover_that_comes_to_the_lock_late_shuts_no_later_owner_out() {
    for _ in 0..20 {
        let cluster = Cluster::new();
        let machine = |number| Machine::new(&cluster, number);
        let (first, second, third) = (machine(1), machine(2), machine(3));
        let old = first.own();
        cluster.hold(&first.client, true);
        cluster.stall_monitors(true);
        let half = second.take(&|| {}).unwrap();
        let pool = FramePool::new(64).unwrap();
        let late = half.device().write(BlockAddr(5000), block(&pool, 2));
        cluster.hold(&second.client, true);
        let new = third.take(&|| {}).unwrap();
        // Now both go on to the lock, in any order.
        cluster.stall_monitors(false);
        let written = new.device().write(BlockAddr(5000), block(&pool, 3));
        written.wait().unwrap();
        for client in [&first.client, &second.client] {
            cluster.hold(client, false);
        }
        cluster.release(&Choices::new(1));
        assert_eq!(code(late.wait()), Some(108));
        assert!(!new.session().is_lost());
        assert_eq!(first_byte(&*new.device(), &pool, 5000), 3);
        drop(old);
    }
}

#[test]
fn an_owner_that_ends_before_an_earlier_lease_does_not_say_that_nobody_answers() {
    let cluster = Cluster::new();
    let machine = |number| Machine::new(&cluster, number);
    let (first, second, third) = (machine(1), machine(2), machine(3));
    let old = first.own();
    cluster.hold(&first.client, true);
    let new = second.take(&|| {}).unwrap();
    // The lease of the first runs on.
    drop(new);
    let began = third.clock.monotonic();
    let last = third.take(&|| {}).unwrap();
    assert!(third.clock.monotonic() >= began + Duration::from_millis(1500));
    let waited = AtomicUsize::new(0);
    last.owner().finish_takeover(&|time| {
        waited.fetch_add(time.as_millis() as usize, Ordering::Relaxed);
    });
    assert!(waited.load(Ordering::Relaxed) > 2000);
    cluster.hold(&first.client, false);
    drop(old);
}

#[test]
fn one_of_two_that_take_over_at_once_wins() {
    for seed in 0..20 {
        let cluster = Cluster::new();
        let first = Machine::new(&cluster, 1);
        let old = first.own();
        cluster.hold(&first.client, true);
        let choices = Choices::new(seed);
        let at = choices.below(15);
        let (second, third) = (Machine::new(&cluster, 2), Machine::new(&cluster, 3));
        let pauses = AtomicUsize::new(0);
        let overtaken = std::cell::RefCell::new(None);
        let ours = second.take(&|| {
            if pauses.fetch_add(1, Ordering::Relaxed) as u64 == at {
                *overtaken.borrow_mut() = Some(third.take(&|| {}).unwrap());
            }
        });
        let theirs = overtaken.borrow_mut().take();
        // The third may have taken it before the second looked: its touches are seen then.
        let refused = ours
            .err()
            .unwrap_or_else(|| panic!("seed {seed}: two owners"));
        let words = ["at this moment", "stop that server first"];
        assert!(
            words.iter().any(|w| refused.contains(w)),
            "seed {seed}: {refused}"
        );
        assert!(!theirs.unwrap().session().is_lost());
        cluster.hold(&first.client, false);
        cluster.lose();
        drop(old);
    }
}

#[test]
fn a_takeover_that_dies_anywhere_leaves_no_owner_unfenced() {
    let mut completed = 0;
    // It looks with 112 calls at an owner that is silent.
    for calls in (0..106).step_by(30).chain(106..156) {
        let cluster = Cluster::new();
        let pool = FramePool::new(64).unwrap();
        let first = Machine::new(&cluster, 1);
        let old = first.own();
        let device = old.device();
        cluster.hold(&first.client, true);
        let log = old.log_device().write(BlockAddr(2), block(&pool, 2));
        let under_way: Vec<_> = (3..9)
            .map(|n| device.write(BlockAddr(n * 1024), block(&pool, 2)))
            .collect();
        // It dies at any call, or after it has taken the aggregate.
        let second = Machine::new(&cluster, 2);
        cluster.kill_after(&second.client, calls);
        let half = second.take(&|| {});
        completed += u32::from(half.is_ok());
        cluster.kill_after(&second.client, 0);
        let third = Machine::new(&cluster, 3);
        let new = third.take(&|| {}).unwrap();
        let new_device = new.device();
        for n in 3..9 {
            let written = new_device.write(BlockAddr(n * 1024), block(&pool, 3));
            written.wait().unwrap();
        }
        cluster.release(&Choices::new(calls));
        cluster.hold(&first.client, false);
        assert!(log.wait().is_err(), "{calls} calls");
        for (n, write) in (3..9).zip(under_way) {
            assert_eq!(code(write.wait()), Some(108), "{calls} calls");
            assert_eq!(first_byte(&*new_device, &pool, n * 1024), 3);
        }
    }
    assert!(completed > 5, "{completed}");
}

#[test]
fn a_pool_that_is_nearly_full_refuses_growth_and_a_full_one_refuses_writes() {
    const MIB: u64 = 1 << 20;
    let cluster = Cluster::new();
    cluster.set_capacity(Some(400 * MIB));
    let machine = Machine::new(&cluster, 1);
    let owner = machine.take(&|| {}).unwrap();
    let (device, pool) = (owner.device(), FramePool::new(64).unwrap());
    let length = device.length();
    // 400 MiB without the floor of 256.
    assert_eq!(device.host_free(), Some(144 * MIB / 4096));
    assert_eq!(device.grow(length + 100).unwrap(), length + 100);
    let refused = device.grow(length + 145 * MIB / 4096).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(
        refused
            .to_string()
            .contains("the pool of rados:sim/a is full"),
        "{refused}"
    );
    cluster.set_capacity(Some(0));
    let refused = device
        .write(BlockAddr(5000), block(&pool, 1))
        .wait()
        .unwrap_err();
    assert_eq!(refused.source.kind(), io::ErrorKind::StorageFull);
    assert!(!owner.session().is_lost(), "a full pool is no loss");
    cluster.set_capacity(None);
    device
        .write(BlockAddr(5000), block(&pool, 1))
        .wait()
        .unwrap();
    device.discard(BlockAddr(4096), 1024).wait().unwrap();
    assert_eq!(cluster.bytes("d.0000000000000004"), None);
}

/// An owner that serves: its devices and its aggregate.
struct ServingOwner {
    machine: Machine,
    devices: Arc<RadosAggregate>,
    aggregate: Arc<Aggregate>,
}

impl ServingOwner {
    /// Takes the aggregate over, compares its log with the `acknowledged` number of records, and
    /// takes a checkpoint. `meanwhile` is called between the takeover and the opening.
    fn start(machine: Machine, acknowledged: u64, meanwhile: impl FnOnce()) -> ServingOwner {
        let devices = Arc::new(machine.take(&|| {}).unwrap());
        meanwhile();
        let place = Location::Devices(Arc::clone(&devices) as _);
        let (aggregate, replay) = Aggregate::open_or_create(&place, machine.env()).unwrap();
        let mut last = aggregate.cut().next.0 - 1;
        for record in replay.records {
            let record = record.unwrap();
            last += 1;
            assert_eq!(record.meta, last.to_le_bytes(), "record {last}");
        }
        assert!(
            last >= acknowledged,
            "{acknowledged} acknowledged, {last} found"
        );
        let serving = ServingOwner {
            machine,
            devices,
            aggregate,
        };
        serving.checkpoint();
        serving
    }

    fn checkpoint(&self) {
        let cut = self.aggregate.log().cut();
        let cp = self.aggregate.begin().unwrap();
        let committed = self.aggregate.commit(cp, TreeRoot::EMPTY, cut);
        assert!(committed.is_ok() || self.devices.session().is_lost());
    }

    /// Appends a record that has its own number, with some pages.
    fn append(&self, choices: &Choices, pool: &FramePool) -> Option<weir_base::Lsn> {
        let log = self.aggregate.log();
        let next = log.cut().next;
        let pages = (0..choices.below(3)).map(|_| block(pool, 9).remove(0));
        let record = Record {
            meta: next.0.to_le_bytes().to_vec(),
            pages: pages.collect(),
        };
        let lsn = log.append(record).ok()?;
        assert_eq!(lsn, next);
        Some(lsn)
    }
}

#[test]
fn takeovers_under_load_lose_nothing_that_was_acknowledged() {
    for seed in 0..60 {
        let choices = Choices::new(seed);
        let cluster = Cluster::new();
        let pool = FramePool::new(4096).unwrap();
        let mut acknowledged = 0;
        let mut serving = ServingOwner::start(Machine::new(&cluster, 1), 0, || {});
        for number in 2..6 {
            for _ in 0..choices.below(60) {
                let Some(lsn) = serving.append(&choices, &pool) else {
                    continue;
                };
                if choices.chance(1, 3) {
                    serving.aggregate.log().wait_written(lsn).unwrap();
                    acknowledged = acknowledged.max(lsn.0);
                }
                if choices.chance(1, 20) {
                    serving.checkpoint();
                }
            }
            // From here on nothing is acknowledged, and a batch may be under way.
            cluster.hold(&serving.machine.client, true);
            for _ in 0..choices.below(5) {
                serving.append(&choices, &pool);
            }
            let lost = choices.chance(1, 3);
            let early = choices.chance(1, 2);
            let end = || match lost {
                true => cluster.lose(),
                false => cluster.release(&choices),
            };
            let next = Machine::new(&cluster, number);
            let next = ServingOwner::start(next, acknowledged, || {
                if early {
                    end();
                }
            });
            cluster.hold(&serving.machine.client, false);
            end();
            let old = std::mem::replace(&mut serving, next);
            assert!(
                old.append(&choices, &pool)
                    .is_none_or(|lsn| { old.aggregate.log().wait_written(lsn).is_err() })
            );
        }
    }
}

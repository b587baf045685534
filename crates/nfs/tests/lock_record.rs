//! The durable record of the hosts that hold locks, and what bounds them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::locker::*;
use support::{NLM, Server, X, host_record};
use weir_nfs::{Arrival, Later, Outcome};
use weir_vfs::claims::ServiceId;
use weir_vfs::{Rule, Squash};

fn anybody() -> Vec<Rule> {
    vec![Rule::open(Squash::None)]
}

#[test]
fn records_that_are_not_understood_do_not_stop_the_server() {
    let whole = host_record("10.0.0.1", b"alpha", &["10.0.0.99"]);
    let s = Server::with_records(anybody(), &[&whole[..9], &[99], &[1], &[3, 0, 0]]);
    let file = s.create(&s.root(), b"file", 0o644);
    assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 0), GRANTED);
}

/// Sends a lock call and leaves it pending.
fn begin(l: &Locker<'_>) -> Outcome {
    let s = l.s.from(l.addr);
    let record = s.encode(NLM, 2, &l.lock_args(false, true, 0, 1, false));
    let arrival = Arrival {
        time: s.current_time(),
        monotonic: None,
        reads: usize::MAX,
    };
    s.service.handle(&s.conn(), &record, arrival)
}

fn parked(l: &Locker<'_>) -> Later {
    match begin(l) {
        Outcome::Later(later) => later,
        _ => panic!("a first lock is not answered at once"),
    }
}

fn poll(later: &mut Later) -> Option<u32> {
    match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => None,
        Poll::Ready(Outcome::Reply(reply, _)) => {
            let message = reply.message();
            Some(u32::from_be_bytes(
                message[message.len() - 4..].try_into().unwrap(),
            ))
        }
        Poll::Ready(_) => panic!("no reply"),
    }
}

#[test]
fn a_first_lock_waits_for_the_record_and_holds_up_nobody() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    let slow = s.disks.log.slow.lock().unwrap();
    // The disk does not answer. Hosts that come meanwhile wait; this thread does not.
    let mut first = parked(&a);
    assert_eq!(poll(&mut first), None);
    assert_eq!(
        s.vfs.claims.totals().held,
        0,
        "not before it is in the record"
    );
    // A repetition over another connection is not granted either.
    let mut again = parked(&a);
    assert_eq!(poll(&mut again), None);
    let others: Vec<Later> = (1..=100)
        .map(|n| {
            parked(&Locker {
                addr: ["10.1.0.1", "10.1.0.2", "10.1.0.3"][n % 3],
                host: Box::leak(format!("h{n}").into_boxed_str()),
                ..c.clone()
            })
        })
        .collect();
    assert_eq!(
        s.as_user(0, 0).getattr(&root).kind,
        2,
        "other calls are served"
    );
    drop(slow);
    assert_eq!(support::wait(&mut first), GRANTED);
    assert_eq!(support::wait(&mut again), GRANTED);
    for mut other in others {
        assert_eq!(support::wait(&mut other), DENIED);
    }
    let recorded = s.recorded_hosts();
    assert_eq!(recorded.len(), 101);
    assert_eq!(
        recorded[0],
        host_record("10.0.0.1", b"alpha", &["10.0.0.99"])
    );
    // Once it is in the record, nothing is waited for or written.
    let end = s.engine.aggregate().log().cut().next;
    assert!(matches!(begin(&a), Outcome::Reply(..)));
    assert_eq!(s.engine.aggregate().log().cut().next, end);
}

#[test]
fn a_host_that_cannot_be_recorded_gets_no_lock() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    s.disks.log.broken.store(true, Ordering::Relaxed);
    assert_eq!(c.lock(false, true, 5, 1), NOLOCKS, "never durable");
    assert_eq!(c.lock(false, true, 5, 1), NOLOCKS, "nor asked for again");
    assert_eq!(
        a.lock(false, true, 1, 1),
        GRANTED,
        "hosts in the record go on"
    );
    assert_eq!(s.vfs.claims.totals().held, 1, "joined");
}

/// Kills the server and restarts it from its disks.
fn killed(mut s: Server) -> Server {
    s.crash();
    s
}

#[test]
fn after_a_kill_only_the_recorded_host_gets_its_lock() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 1), GRANTED);
    let s = killed(s);
    {
        let [a, _, c] = lockers(&s, &file);
        assert_eq!(c.lock(false, true, 0, 1), GRACE_PERIOD);
        assert_eq!(c.reclaim(0, 1), DENIED, "it held nothing");
        let written = s.engine.aggregate().log().cut().next;
        assert_eq!(a.reclaim(0, 1), GRANTED);
        assert_eq!(
            s.engine.aggregate().log().cut().next,
            written,
            "recorded already"
        );
        assert_eq!(c.lock(false, true, 0, 1), GRACE_PERIOD);
        s.clock.advance(support::GRACE);
        s.service.tick();
        assert_eq!(c.lock(false, true, 0, 1), DENIED, "it was claimed again");
    }
    // From a checkpoint, and once more in vain: nobody claims it.
    s.engine.cp_now().unwrap();
    let s = killed(s);
    {
        let c = lockers(&s, &file)[2].clone();
        assert_eq!(c.lock(false, true, 0, 1), GRACE_PERIOD);
        s.clock.advance(support::GRACE);
        s.service.tick();
        assert_eq!(c.lock(false, true, 0, 1), GRANTED);
        assert_eq!(c.unlock(0, 1), GRANTED);
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
    }
    s.engine.cp_now().unwrap();
    // A host that came back to nothing is in no record any more.
    let s = killed(s);
    assert!(s.recorded_hosts().is_empty());
    assert_eq!(lockers(&s, &file)[2].lock(false, true, 0, 1), GRANTED);
}

/// Returns true if an open file that has lost its name still exists.
fn is_there(s: &Server, file: &[u8]) -> bool {
    s.engine.cp_now().unwrap();
    s.status(1, &X::new().o(file)) == 0
}

#[test]
fn open_files_without_a_name_stay_until_the_grace_period_is_over() {
    for locks in [true, false] {
        let s = Server::new();
        let root = s.root();
        let file = s.create(&root, b"file", 0o644);
        if locks {
            assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 1), GRANTED);
        }
        let ino = s.vfs.file_id(&file).unwrap().ino;
        let mut cx = weir_vfs::EngineContext::new(s.current_time());
        let pin = s.volume.pin(&mut cx, ino).unwrap();
        assert_eq!(s.status(12, &X::new().o(&root).o(b"file")), 0);
        assert!(is_there(&s, &file));
        let mut s = s;
        // As a crash leaves it: the pin never ends.
        std::mem::forget(pin);
        s.crash();
        if locks {
            s.service.tick();
            assert!(is_there(&s, &file), "its clients may claim it again");
            s.clock.advance(support::GRACE - Duration::from_nanos(1));
            s.service.tick();
            assert!(is_there(&s, &file));
            s.clock.advance(Duration::from_nanos(1));
            assert!(is_there(&s, &file), "nobody said that it is over");
        }
        // Without state to claim there is no period.
        s.service.tick();
        assert!(!is_there(&s, &file), "locks: {locks}");
    }
}

#[test]
fn hosts_are_notified_at_each_of_their_addresses() {
    let state = [1, 0, 0, 0, 7];
    let alpha = host_record("10.0.0.1", b"alpha", &["10.0.0.99", "10.0.0.98"]);
    let s = Server::with_records(anybody(), &[&state, &alpha]);
    let told: Vec<(String, String)> = s
        .outgoing()
        .iter()
        .map(|n| (n.to.to_string(), n.from.to_string()))
        .collect();
    let expected = ["10.0.0.99", "10.0.0.99", "10.0.0.98", "10.0.0.98"]
        .map(|from| ("10.0.0.1".to_owned(), from.to_owned()));
    assert_eq!(told, expected, "by both names, from both addresses");
    let now = s.records.list_records(ServiceId(0));
    assert_eq!(*now[0].1, [1, 0, 0, 0, 9], "the state of this start");
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(c.reclaim(0, 1), DENIED, "it held nothing");
    assert_eq!(a.reclaim(0, 1), GRANTED);
    // It comes over one more of our addresses.
    let from = "10.0.0.97:2049".parse().unwrap();
    s.local.set(from);
    assert_eq!(a.lock(false, true, 0, 1), GRACE_PERIOD);
    assert_eq!(a.reclaim(1, 1), GRANTED);
    // The latest last.
    let locals = ["10.0.0.98", "10.0.0.99", "10.0.0.97"];
    assert_eq!(
        s.recorded_hosts(),
        [host_record("10.0.0.1", b"alpha", &locals)]
    );
}

#[test]
fn names_and_hosts_are_bounded() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    let named = |host: String| Locker {
        host: Box::leak(host.into_boxed_str()),
        ..a.clone()
    };
    assert_eq!(named("n".repeat(255)).lock(false, false, 0, 1), GRANTED);
    assert_eq!(named("n".repeat(256)).lock(false, false, 0, 1), NOLOCKS);
    let granted = (0..400)
        .filter(|n| named(format!("host{n}")).lock(false, false, 0, 1) == GRANTED)
        .count();
    assert_eq!(granted, 255, "256 names at an address");
    assert_eq!(c.lock(false, false, 0, 1), GRANTED);
    // Those that hold nothing are forgotten, and give the memory back.
    let used = s.vfs.claims.budget().used();
    s.vfs.claims.release_all(ServiceId(0));
    s.clock.advance(Duration::from_secs(61));
    s.service.tick();
    assert!(used > 0 && s.vfs.claims.budget().used() == 0);
    let mut again = s;
    again.restart();
    assert_eq!(again.outgoing(), []);
}

#[test]
fn grants_that_nobody_answers_are_bounded() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    for n in 0..6000 {
        let waits = Locker {
            svid: 10 + n,
            ..c.clone()
        };
        assert_eq!(a.lock(false, true, 0, 1), GRANTED);
        assert_eq!(waits.lock(true, true, 0, 1), BLOCKED);
        a.unlock(0, 1);
        waits.unlock(0, 1);
    }
    let used = s.vfs.claims.budget().used();
    assert!(used < 4200 * 1024, "{used}");
    assert!(s.outgoing().len() <= 64);
    for _ in 0..13 {
        s.clock.advance(Duration::from_secs(10));
        s.service.tick();
    }
    let left = s.vfs.claims.budget().used();
    assert!(left < 4096, "{left}");
}

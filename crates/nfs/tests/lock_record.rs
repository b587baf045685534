//! The durable record of the hosts that hold locks, and what bounds them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::locker::*;
use support::{NLM, Server, X};
use weir_nfs::{Arrival, Handled, Later};
use weir_vfs::claims::ServiceId;
use weir_vfs::grace::Records;
use weir_vfs::{Rule, Squash};

#[test]
fn a_record_that_cannot_be_read_does_not_stop_the_server() {
    for text in [
        "",
        "something else",
        "weir client records, version 1\nhost x y\nhost x = y\nnsm-state = -1\nmonitor = 1\nhost 1.2.3.4 zz = 1.2.3.4\n",
    ] {
        let store = support::MemoryStore::of(text.as_bytes());
        let s = Server::with(vec![weir_vfs::Rule::open(weir_vfs::Squash::None)], store);
        let file = s.create(&s.root(), b"file", 0o644);
        assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 0), GRANTED);
    }
}

/// Sends a lock call and leaves it where it is.
fn begin(l: &Locker<'_>) -> Handled {
    let s = l.s.from(l.addr);
    let record = s.encode(NLM, 2, &l.lock_args(false, true, 0, 1, false));
    let arrival = Arrival {
        time: s.now(),
        monotonic: None,
    };
    s.service.handle(&s.conn(), &record, arrival)
}

fn parked(l: &Locker<'_>) -> Later {
    match begin(l) {
        Handled::Later(later) => later,
        _ => panic!("a first lock is not answered at once"),
    }
}

fn poll(later: &mut Later) -> Option<u32> {
    match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => None,
        Poll::Ready(Handled::Reply(reply, _)) => {
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
    let slow = s.store.slow.lock().unwrap();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| s.records.keep());
        // The disk does not answer. Hosts that come meanwhile wait; this thread does not.
        let mut first = parked(&a);
        assert_eq!(poll(&mut first), None);
        assert_eq!(
            s.vfs.claims.totals().held,
            0,
            "not before it is in the record"
        );
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
        let writes = s.store.writes.lock().unwrap().0;
        drop(slow);
        assert_eq!(support::wait(&mut first), GRANTED);
        for mut other in others {
            assert_eq!(support::wait(&mut other), DENIED);
        }
        assert!(
            s.store.writes.lock().unwrap().0 <= writes + 2,
            "two batches at most"
        );
        let text = s.store.text();
        assert!(
            text.contains("host 10.0.0.1 616c706861 = 10.0.0.99\n")
                && text.matches("\nhost ").count() == 101,
            "{text}"
        );
        // Once it is in the record, nothing is waited for or written.
        let writes = *s.store.writes.lock().unwrap();
        assert!(matches!(begin(&a), Handled::Reply(..)));
        assert_eq!(*s.store.writes.lock().unwrap(), writes);
        s.records.close();
        keeper.join().unwrap();
    });
}

#[test]
fn a_host_that_cannot_be_recorded_gets_no_lock() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(a.lock(false, true, 0, 1), GRANTED);
    s.store.broken.store(true, Ordering::Relaxed);
    assert_eq!(c.lock(false, true, 5, 1), NOLOCKS);
    assert_eq!(
        a.lock(false, true, 1, 1),
        GRANTED,
        "hosts in the record go on"
    );
    assert_eq!(s.vfs.claims.totals().held, 1, "joined");
    // A disk that is mended, with half a line behind the record: it is replaced as a whole.
    s.store.broken.store(false, Ordering::Relaxed);
    let wholes = s.store.writes.lock().unwrap().1;
    assert_eq!(c.lock(false, true, 5, 1), GRANTED);
    assert_eq!(s.store.writes.lock().unwrap().1, wholes + 1);
    let text = s.store.text();
    assert_eq!(text.matches("\nhost ").count(), 2, "{text}");
}

#[test]
fn the_record_is_replaced_when_it_is_mostly_old() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, _] = lockers(&s, &file);
    for round in 0..3000 {
        assert_eq!(a.lock(false, true, 0, 1), GRANTED);
        s.from(a.addr)
            .call(NLM, 23, &X::new().o(b"alpha").u(0))
            .end();
        s.records.write();
        assert!(
            s.store.record.lock().unwrap().as_ref().unwrap().len() < 200 << 10,
            "{round}"
        );
    }
    let (writes, wholes) = *s.store.writes.lock().unwrap();
    assert!(
        writes > 6000 && (2..20).contains(&wholes),
        "{writes} {wholes}"
    );
}

#[test]
fn a_record_is_read_as_far_as_it_was_written() {
    let text = "weir client records, version 1\nnsm-state = 7\nhost 10.0.0.1 616c706861 = 10.0.0.99\nhost 10.0.0.2 62 = 10.0.0.99\n\
        host 10.0.0.1 616c706861 = 10.0.0.99 10.0.0.98\nhost 10.0.0.2 62 -\nmonitor 1 3 61 = 2 00000000000000000000000000000000\n\
        monitor 1 3 61 -\nhost 10.0.0.3 61 = 10.0.0.9";
    let s = Server::with(
        vec![Rule::open(Squash::None)],
        support::MemoryStore::of(text.as_bytes()),
    );
    let told: Vec<(String, String)> = s
        .outgoing()
        .iter()
        .map(|n| (n.to.to_string(), n.from.to_string()))
        .collect();
    let expected = ["10.0.0.99", "10.0.0.99", "10.0.0.98", "10.0.0.98"]
        .map(|from| ("10.0.0.1".to_owned(), from.to_owned()));
    assert_eq!(told, expected, "by both names, from both addresses");
    let text = s.store.text();
    assert!(
        text.starts_with("weir client records, version 1\n") && text.contains("\nnsm-state = 9\n"),
        "{text}"
    );
    let file = s.create(&s.root(), b"file", 0o644);
    let [a, _, c] = lockers(&s, &file);
    assert_eq!(c.reclaim(0, 1), DENIED, "it held nothing");
    assert_eq!(a.reclaim(0, 1), GRANTED);
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
    s.records.write();
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

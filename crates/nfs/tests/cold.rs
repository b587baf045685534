//! Calls that find nothing in memory: they wait for the device, are run again,
//! and answer as if they had not waited.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::{NFS, Server, X, block_on};
use weir_nfs::Outcome;
use weir_qos::{Limits, Plan, Rate, VolumePlan};

/// A server with a file of `len` bytes, nothing of it in memory.
fn cold(len: usize) -> (Server, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let data: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
    for (i, part) in data.chunks(1 << 16).enumerate() {
        s.write(&file, (i << 16) as u64, part);
    }
    for i in 0..300 {
        s.create(&root, format!("other{i}").as_bytes(), 0o600);
    }
    s.cold_start();
    (s, root, file, data)
}

fn later(s: &Server, record: &[u8]) -> weir_nfs::Later {
    match s.service.handle(&s.conn(), record, s.current_time()) {
        Outcome::Later(f) => f,
        _ => panic!("nothing to wait for"),
    }
}

#[test]
fn every_kind_of_call_waits_and_succeeds() {
    let (s, root, file, data) = cold(200_000);
    // A mount below the root, names, data and listings, all from the device.
    assert!(matches!(
        s.service.handle(
            &s.conn(),
            &s.encode(NFS, 1, &X::new().o(&file)),
            s.current_time()
        ),
        Outcome::Later(_)
    ));
    assert_eq!(s.getattr(&file).size, 200_000);
    assert_eq!(s.read(&file, 0, 1 << 20), (data, true));
    assert_eq!(s.status(3, &X::new().o(&root).o(b"other299")), 0);
    assert_eq!(s.status(12, &X::new().o(&root).o(b"other7")), 0);
    let mut r = s.nfs(17, &X::new().o(&root).h(0).h(0).u(65536).u(65536));
    assert_eq!(r.u(), 0);
}

#[test]
fn a_repetition_of_a_waiting_call_is_dropped_and_an_abandoned_call_runs_later() {
    let (s, root, _, _) = cold(10);
    let remove = s.encode(NFS, 12, &X::new().o(&root).o(b"other3"));
    let waiting = later(&s, &remove);
    assert!(matches!(s.handle(&remove), Outcome::Drop));
    // The connection closes before the page is there: nothing was done.
    drop(waiting);
    let waiting = later(&s, &remove);
    let Outcome::Reply(first, lsn) = block_on(waiting) else {
        panic!("no reply")
    };
    let first = first.message();
    assert_eq!(first[24..28], [0; 4]);
    assert!(lsn.is_some());
    let Outcome::Reply(again, same) = s.handle(&remove) else {
        panic!("no replay")
    };
    assert_eq!((again.message(), same), (first, lsn));
}

/// A call that is abandoned while it waits for the device has moved nothing.
#[test]
fn an_abandoned_call_is_charged_for_nothing() {
    let (s, _, file, _) = cold(200_000);
    let limits = Limits {
        total: Rate {
            bytes: Some(1 << 30),
            ops: None,
        },
        ..Limits::default()
    };
    s.vfs.throttle.apply(&Plan {
        volumes: vec![VolumePlan {
            volume: s.volume.id().0,
            name: "vol1".into(),
            pool: 0,
            limits,
            client: Limits::default(),
            source: "a test".into(),
            shared: None,
        }],
        ..Plan::default()
    });
    let charged = || {
        let status = s.vfs.throttle.status(s.volume.id()).unwrap();
        status.usage.bytes.iter().sum::<u64>()
    };
    let read = s.encode(NFS, 6, &X::new().o(&file).h(0).u(100_000));
    let waiting = later(&s, &read);
    assert_eq!(charged(), 100_000);
    drop(waiting);
    assert_eq!(charged(), 0);
    let Outcome::Reply(..) = block_on(later(&s, &read)) else {
        panic!("no reply")
    };
    assert_eq!(charged(), 100_000);
}

#[test]
fn handles_and_exclusive_verifiers_survive() {
    let mut s = Server::new();
    let root = s.root();
    let exclusive = |v: u64| X::new().o(&root).o(b"excl").u(2).h(v);
    let mut r = s.nfs(8, &exclusive(77));
    assert_eq!((r.u(), r.u()), (0, 1));
    let handle = r.o();
    let before = s.volume.write_verifier();
    s.cold_start();
    assert_ne!(
        s.volume.write_verifier(),
        before,
        "a new verifier at each start"
    );
    assert_eq!(s.root(), root);
    let mut r = s.nfs(8, &exclusive(77));
    assert_eq!((r.u(), r.u(), r.o()), (0, 1, handle));
    assert_eq!(s.status(8, &exclusive(78)), 17);
}

#[test]
fn a_mount_below_the_root_waits_too() {
    let mut s = Server::new();
    let root = s.root();
    let below = s.mkdir(&root, b"below", 0o755);
    s.cold_start();
    let mut r = s.call(support::MOUNT, 1, &X::new().o(b"/vol1/below"));
    assert_eq!((r.u(), r.o()), (0, below));
}

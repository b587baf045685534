//! The grace period after a restart: claims go on at once unless they conflict with a possible
//! reclaim.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::callbacks::*;
use support::compound::*;
use support::locker::{GRACE_PERIOD, GRANTED, lockers};
use support::{NFS, Server, X};
use weir_vfs::claims::ServiceId;
use weir_vfs::{Rule, Squash};

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const JUKEBOX: u32 = 10_008;
const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;

/// Kinds of claims that a client may have of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Had {
    Open,
    NoReaders,
    NoWriters,
    Lock,
    ReadDelegation,
    WriteDelegation,
}

impl Had {
    const ALL: [Had; 6] = [
        Had::Open,
        Had::NoReaders,
        Had::NoWriters,
        Had::Lock,
        Had::ReadDelegation,
        Had::WriteDelegation,
    ];

    /// Makes a client take this claim on a new file `f`; returns the file's handle.
    fn take(self, s: &Server, calls: &Callbacks) -> Vec<u8> {
        let a = Client::new(s, HOST, b"a");
        match self {
            Had::Open => a.open(b"f", b"o", (3, 0)).0,
            Had::NoReaders => a.open(b"f", b"o", (3, 1)).0,
            Had::NoWriters => a.open(b"f", b"o", (3, 2)).0,
            Had::Lock => {
                let (file, state) = a.open(b"f", b"o", (3, 0));
                let lock = Ops::new().fh(&file).lock(2, (0, 1), &state, b"l");
                assert_eq!(a.status(&lock), OK);
                file
            }
            Had::ReadDelegation => delegated(&a, b"f", 1 | WANT_READ).0,
            Had::WriteDelegation => {
                let (file, _, given) = delegated(&a, b"f", 3 | WANT_WRITE);
                assert!(matches!(given, DelegationGrant::Write(_)));
                assert!(calls.next().is_none());
                file
            }
        }
    }

    fn binds_reads(self) -> bool {
        matches!(self, Had::NoReaders | Had::WriteDelegation)
    }

    fn binds_writes(self) -> bool {
        matches!(
            self,
            Had::NoWriters | Had::ReadDelegation | Had::WriteDelegation
        )
    }

    fn binds_locks(self) -> bool {
        self == Had::Lock || self.binds_reads() || self.binds_writes()
    }
}

/// The handle of a file of the root.
fn find(s: &Server, name: &[u8]) -> Vec<u8> {
    let mut r = s.from(OTHER).call(NFS, 3, &X::new().o(&s.root()).o(name));
    assert_eq!(r.u(), OK);
    r.o()
}

/// A host of NLM gives everything up, and is forgotten.
fn free_all(s: &Server, addr: &str, host: &str) {
    let args = X::new().o(host.as_bytes()).u(0);
    s.from(addr).call(support::NLM, 23, &args);
}

/// Another client performs every allowed operation on other files of the volume.
fn elsewhere(s: &Server) {
    let root = s.root();
    let v3 = |procedure, args: &X| s.from(OTHER).call(NFS, procedure, args).u();
    let create = X::new().o(&root).o(b"g").u(0).sattr(Some(0o666), Some(0));
    assert_eq!(v3(8, &create), OK, "CREATE");
    let g = X::new().o(&find(s, b"g"));
    assert_eq!(v3(6, &g.clone().h(0).u(1)), OK, "READ");
    assert_eq!(v3(7, &g.h(0).u(1).u(2).o(b"x")), OK, "WRITE");
    let rename = X::new().o(&root).o(b"g").o(&root).o(b"h");
    assert_eq!(v3(14, &rename), OK, "RENAME");
    let c = Client::new(s, OTHER, b"c");
    let mut r = c.run(&open(&c, b"h", (3, 3)).getfh());
    r.ok(22);
    let state = r.opened();
    let h = r.handle();
    let lock = Ops::new().fh(&h).lock(2, (0, 1), &state, b"l");
    assert_eq!(c.status(&lock), OK, "LOCK");
    assert_eq!(lockers(s, &h)[2].lock(false, true, 5, 1), GRANTED, "NLM");
    free_all(s, OTHER, "beta");
    assert_eq!(c.status(&Ops::new().fh(&h).close(&state)), OK);
    let remove = X::new().o(&root).o(b"h");
    assert_eq!(v3(12, &remove), OK, "REMOVE");
}

fn refused(is: bool, status: u32) -> u32 {
    if is { status } else { OK }
}

#[test]
fn an_absent_client_is_waited_for_where_it_may_conflict_and_nowhere_else() {
    for had in Had::ALL {
        let mut s = Server::new();
        let file = had.take(&s, &Callbacks::attach_to(&s));
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let (reads, writes) = (had.binds_reads(), had.binds_writes());
        let root = s.root();
        let v3 = |procedure, args: &X| s.from(OTHER).call(NFS, procedure, args).u();
        let handle = X::new().o(&file);
        assert_eq!(v3(1, &handle), OK, "GETATTR");
        let read = handle.clone().h(0).u(1);
        assert_eq!(v3(6, &read), refused(reads, JUKEBOX), "READ {had:?}");
        let write = handle.h(0).u(1).u(2).o(b"x");
        assert_eq!(v3(7, &write), refused(writes, JUKEBOX), "WRITE {had:?}");
        let make = X::new().o(&root).o(b"dir").sattr(None, None);
        assert_eq!(v3(9, &make), OK, "nobody had anything of what is new");
        let rename = X::new().o(&root).o(b"f").o(&root).o(b"f");
        let expected = refused(writes, JUKEBOX);
        assert_eq!(v3(14, &rename), expected, "RENAME {had:?}");
        elsewhere(&s);
        let b = Client::new(&s, OTHER, b"b");
        // Outside of an open NFSv4 waits as well.
        let zeros = [0; 16];
        let read4 = Ops::new().fh(&file).op(25, X::new().raw(&zeros).h(0).u(1));
        let write4 = X::new().raw(&zeros).h(0).u(2).o(b"x");
        let write4 = Ops::new().fh(&file).op(38, write4);
        for (waits, name, ops) in [(reads, b"reader", read4), (writes, b"writer", write4)] {
            let other = Client::new(&s, OTHER, name);
            match waits {
                true => drop(parked(&other, &ops)),
                false => assert_eq!(other.status(&ops), OK, "{had:?}"),
            }
        }
        let opens = |shares| b.status(&open(&b, b"f", shares));
        assert_eq!(opens((1, 0)), refused(reads, GRACE), "{had:?}");
        assert_eq!(opens((2, 0)), refused(writes, GRACE), "{had:?}");
        assert_eq!(opens((3, 2)), GRACE, "a denial conflicts with any open");
        let lock = lockers(&s, &file)[2].lock(false, true, 0, 1);
        let expected = if had.binds_locks() {
            GRACE_PERIOD
        } else {
            GRANTED
        };
        assert_eq!(lock, expected, "{had:?}");
        let lockt = X::new().u(2).h(5).h(1).h(0).o(b"l");
        let lockt = b.status(&Ops::new().fh(&file).op(13, lockt));
        assert_eq!(lockt, refused(had.binds_locks(), GRACE), "{had:?}");
        if !reads {
            // No delegation is given beside what may be claimed again.
            let mut r = b.run(&open(&b, b"f", (1 | WANT_READ, 0)));
            r.ok(22);
            assert_eq!(opened(&mut r).1, DelegationGrant::Not(2), "{had:?}");
        }
        s.clock.advance(support::GRACE);
        s.service.tick();
        assert_eq!(v3(6, &read), OK);
        assert_eq!(opens((3, 0)), OK);
    }
}

#[test]
fn a_client_claims_again_what_is_recorded_of_it() {
    for had in Had::ALL {
        let mut s = Server::new();
        let file = had.take(&s, &Callbacks::attach_to(&s));
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let _calls = Callbacks::attach_to(&s);
        let a = Client::reclaiming(&s, HOST, b"a", 1);
        let again = |deny| Ops::new().fh(&file).open_again(b"o", (3, deny));
        let known = had == Had::WriteDelegation;
        let denies = |deny| had == deny || known;
        for (deny, recorded) in [
            (1, denies(Had::NoReaders)),
            (2, denies(Had::NoWriters) || had == Had::ReadDelegation),
        ] {
            let expected = refused(!recorded, RECLAIM_BAD);
            assert_eq!(a.status(&again(deny)), expected, "{had:?} {deny}");
        }
        let mut r = a.run(&again(0));
        r.ok(22);
        let state = r.opened();
        let lock = X::new().u(2).u(1).h(0).h(1).u(1).u(0).raw(&state);
        let lock = Ops::new().fh(&file).op(12, lock.u(0).h(0).o(b"l"));
        let expected = refused(had != Had::Lock && !known, RECLAIM_BAD);
        assert_eq!(a.status(&lock), expected, "{had:?}");
    }
}

#[test]
fn a_client_is_recorded_again_only_for_another_kind_of_claim() {
    let s = Server::new();
    let a = Client::new(&s, HOST, b"a");
    let (file, _) = a.open(b"f", b"o", (1, 0));
    let end = || s.engine.aggregate().log().cut().next;
    let opens = |owner: &[u8], deny| Ops::new().fh(&file).open_fh(owner, (1, deny));
    let before = end();
    assert_eq!(a.status(&opens(b"another", 0)), OK);
    assert_eq!(end(), before, "nothing new");
    let state = a.run(&opens(b"third", 2)).tail_open();
    assert!(end() > before, "a denial");
    let records = || s.records.list_records(ServiceId(1));
    assert_eq!(records().len(), 1);
    // Released claims are removed from the record, and stop nobody after the next start.
    let with_denial = records();
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
    s.clock.advance(Duration::from_secs(61));
    s.service.tick();
    assert!(records().len() == 1 && records() != with_denial);
}

#[test]
fn a_client_that_gave_up_all_is_recorded_no_more() {
    let mut s = Server::new();
    {
        let a = Client::new(&s, HOST, b"a");
        let (file, state) = a.open(b"f", b"o", (3, 2));
        assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
        assert_eq!(s.records.list_records(ServiceId(1)).len(), 1);
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
        assert!(s.records.list_records(ServiceId(1)).is_empty());
        // It is recorded anew with its next claim, and gives it up.
        let (file, state) = a.open(b"f", b"o", (3, 3));
        assert_eq!(s.records.list_records(ServiceId(1)).len(), 1);
        assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OK);
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
    }
    s.crash();
    let b = Client::new(&s, OTHER, b"b");
    b.open(b"f", b"o", (3, 3));
}

#[test]
fn a_client_that_an_older_version_recorded_may_have_had_any_claim() {
    let mut s = Server::with(vec![Rule::open(Squash::None)]);
    let file = s.create(&s.root(), b"file", 0o644);
    s.records.add(ServiceId(1), b"\0a").unwrap();
    s.engine.cp_now().unwrap();
    s.crash();
    let read = X::new().o(&file).h(0).u(1);
    assert_eq!(s.from(OTHER).call(NFS, 6, &read).u(), JUKEBOX);
    let b = Client::new(&s, OTHER, b"b");
    assert_eq!(b.status(&open(&b, b"file", (1, 0))), GRACE);
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    let again = |shares| Ops::new().fh(&file).open_again(b"o", shares);
    assert_eq!(a.status(&again((3, 3))), OK);
    assert_eq!(a.status(&Ops::new().op(58, X::new().u(0))), OK);
    assert_eq!(b.status(&open(&b, b"file", (1, 0))), SHARE_DENIED);
}

#[test]
fn share_reservations_of_nlm_are_waited_for_by_opens_alone() {
    let mut s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let share = |s: &Server, deny: u32, reclaim: u32| {
        let x = X::new().o(b"cookie").o(b"alpha").o(&file).o(b"owner");
        let mut r = s
            .from(HOST)
            .call(support::NLM, 20, &x.u(1).u(deny).u(reclaim));
        r.o();
        r.u()
    };
    assert_eq!(lockers(&s, &file)[0].lock(false, true, 0, 1), GRANTED);
    for (shares, expected) in [(false, OK), (true, GRACE)] {
        if shares {
            s.clock.advance(support::GRACE);
            s.service.tick();
            assert_eq!(share(&s, 1, 0), GRANTED);
        }
        s.vfs.claims.release_all(ServiceId(0));
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let b = Client::new(&s, OTHER, b"b");
        assert_eq!(b.status(&open(&b, b"file", (1, 0))), expected, "{shares}");
        let read = X::new().o(&file).h(0).u(1);
        assert_eq!(s.from(OTHER).call(NFS, 6, &read).u(), OK);
        let lock = lockers(&s, &file)[2].lock(false, true, 0, 1);
        assert_eq!(lock, GRACE_PERIOD);
        drop(b);
    }
    assert_eq!(share(&s, 1, 1), GRANTED, "it is claimed again");
}

/// Names of so many files, each with one byte more than another.
fn names(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| format!("file {n}").into_bytes())
        .collect()
}

/// Gives a client read delegations of files that are there; returns the first's handle.
fn delegate_many(s: &Server, count: u32) -> Vec<u8> {
    let _calls = Callbacks::attach_to(s);
    let names = names(count);
    for name in &names {
        s.create(&s.root(), name, 0o666);
    }
    let a = Client::new(s, HOST, b"a");
    for name in &names {
        let (_, _, given) = delegated(&a, name, 1 | WANT_READ);
        assert!(matches!(given, DelegationGrant::Read(_)), "{given:?}");
    }
    find(s, &names[0])
}

#[test]
fn many_files_of_a_client_are_listed_once_it_takes_no_more() {
    for (count, settles) in [(10, false), (300, false), (300, true), (4000, true)] {
        let mut s = Server::with_memory(64 << 20);
        let first = delegate_many(&s, count);
        if settles {
            s.clock.advance(Duration::from_secs(61));
            s.service.tick();
        }
        let many = s.records.list_records(ServiceId(1)).len();
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let root = s.root();
        let v3 = |procedure, args: &X| s.from(OTHER).call(NFS, procedure, args).u();
        let write = |file: &[u8]| v3(7, &X::new().o(file).h(0).u(1).u(2).o(b"x"));
        // Read first, since data on the device only would suspend the call.
        assert_eq!(v3(1, &X::new().o(&first)), OK);
        assert_eq!(write(&first), JUKEBOX);
        let other = s.create(&root, b"other", 0o666);
        // A client with more files than are listed may have something anywhere.
        let listed = count < 20 || (settles && count < 1000);
        assert_eq!(
            write(&other),
            refused(!listed, JUKEBOX),
            "{count} {settles}"
        );
        assert_eq!(many > 1, settles && listed, "{many} records");
        // It comes back for one of them, and loses the others when it has finished.
        let _calls = Callbacks::attach_to(&s);
        let a = Client::reclaiming(&s, HOST, b"a", 1);
        let again = Ops::new().fh(&first).open_again(b"o", (1, 0));
        assert_eq!(a.status(&again), OK);
        let bad = Ops::new().fh(&other).open_again(b"o", (1, 0));
        assert_eq!(a.status(&bad), refused(listed, RECLAIM_BAD));
        assert_eq!(a.status(&Ops::new().op(58, X::new().u(0))), OK);
        assert_eq!(write(&first), OK);
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
        assert_eq!(
            s.records.list_records(ServiceId(1)).len(),
            1,
            "of what it has"
        );
    }
}

#[test]
fn after_a_stop_in_order_only_the_files_are_waited_for_that_clients_had() {
    for had in Had::ALL {
        let mut s = Server::new();
        let file = had.take(&s, &Callbacks::attach_to(&s));
        let locked = s.create(&s.root(), b"locked", 0o666);
        assert_eq!(lockers(&s, &locked)[0].lock(false, true, 0, 1), GRANTED);
        s.service.list_claims();
        s.vfs.claims.release_all(ServiceId(1));
        s.cold_start();
        let v3 = |procedure, args: &X| s.from(OTHER).call(NFS, procedure, args).u();
        elsewhere(&s);
        let _calls = Callbacks::attach_to(&s);
        let b = Client::new(&s, OTHER, b"b");
        // A delegation too is given beside them.
        let (_, _, given) = delegated(&b, b"other", 1 | WANT_READ);
        assert!(matches!(given, DelegationGrant::Read(_)), "{had:?}");
        let write = X::new().o(&file).h(0).u(1).u(2).o(b"x");
        assert_eq!(
            v3(7, &write),
            refused(had.binds_writes(), JUKEBOX),
            "{had:?}"
        );
        assert_eq!(b.status(&open(&b, b"f", (3, 2))), GRACE, "{had:?}");
        let lock = lockers(&s, &file)[2].lock(false, true, 9, 1);
        let expected = if had.binds_locks() {
            GRACE_PERIOD
        } else {
            GRANTED
        };
        assert_eq!(lock, expected, "{had:?}");
        free_all(&s, OTHER, "beta");
        // So it is after a crash in that time.
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        elsewhere(&s);
        let [alpha, _, beta] = lockers(&s, &locked);
        assert_eq!(beta.lock(false, true, 0, 1), GRACE_PERIOD);
        assert_eq!(alpha.reclaim(0, 1), GRANTED);
        let b = Client::new(&s, OTHER, b"b");
        assert_eq!(b.status(&open(&b, b"f", (3, 2))), GRACE, "{had:?}");
        let a = Client::reclaiming(&s, HOST, b"a", 1);
        let again = Ops::new().fh(&file).open_again(b"o", (3, 0));
        assert_eq!(a.status(&again), OK, "{had:?}");
        let bad = Ops::new().fh(&locked).open_again(b"o", (3, 0));
        assert_eq!(a.status(&bad), RECLAIM_BAD, "it had nothing there");
        // A host that has come back may have locks anywhere when the server is killed.
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let other = s.create(&s.root(), b"another", 0o666);
        assert_eq!(lockers(&s, &other)[2].lock(false, true, 0, 1), GRACE_PERIOD);
        s.clock.advance(support::GRACE);
        s.service.tick();
        assert_eq!(lockers(&s, &locked)[2].lock(false, true, 0, 1), GRANTED);
        s.clock.advance(Duration::from_secs(61));
        s.service.tick();
        assert!(
            s.records
                .list_records(ServiceId(0))
                .iter()
                .all(|(_, record)| record[0] != 7)
        );
    }
}

#[test]
fn a_stop_in_the_grace_period_keeps_what_was_not_claimed_again_yet() {
    let mut s = Server::new();
    let files = {
        let a = Client::new(&s, HOST, b"a");
        [b"f", b"g"].map(|name| a.open(name, b"o", (3, 3)).0)
    };
    for _ in 0..2 {
        s.vfs.claims.release_all(ServiceId(1));
        s.crash();
        let a = Client::reclaiming(&s, HOST, b"a", 1);
        let again = |file: &[u8]| a.status(&Ops::new().fh(file).open_again(b"o", (3, 3)));
        assert_eq!(again(&files[0]), OK);
        s.service.list_claims();
    }
    s.vfs.claims.release_all(ServiceId(1));
    s.cold_start();
    let b = Client::new(&s, OTHER, b"b");
    for name in [&b"f"[..], b"g"] {
        assert_eq!(b.status(&open(&b, name, (1, 0))), GRACE);
    }
}

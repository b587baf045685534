//! NFSv4.1 and 4.2 through the whole service: sessions, files, opens, locks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use support::compound::*;
use support::{NFS, Server, X};
use weir_nfs::Outcome;
use weir_vfs::{Export, Flavours, Protocols, Rule, Squash};

const HOST: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const ANONYMOUS: [u8; 16] = [0; 16];
const BOTH: (u32, u32) = (3, 0);
const TO_END: u64 = u64::MAX;

#[test]
fn a_session_is_made_and_ended() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    assert_eq!(c.status(&Ops::new().root()), OK);
    // Introduced once more with the same verifier: the same client.
    let mut r = c.alone(42, exchange(b"client", 1, 0));
    let r = r.ok(42);
    assert_eq!((r.h(), r.u()), (c.id, 2));
    assert_eq!(r.u() & 0x8000_0000, 0x8000_0000, "confirmed");
    let destroy = X::new().raw(&c.session);
    assert_eq!(c.alone(57, X::new().h(c.id)).status, 10_074, "busy");
    assert_eq!(c.alone(44, destroy.clone()).status, OK);
    assert_eq!(c.alone(44, destroy).status, BADSESSION);
    assert_eq!(
        c.send(&c.next_args(&Ops::new().root(), false)).status,
        BADSESSION
    );
    assert_eq!(c.alone(57, X::new().h(c.id)).status, OK);
    assert_eq!(c.alone(57, X::new().h(c.id)).status, 10_022, "stale");
    assert_eq!(s.vfs.claims.budget().used(), 0);
}

#[test]
fn a_client_that_has_restarted_loses_what_it_had() {
    let s = Server::new();
    let first = Client::new(&s, HOST, b"client");
    let (_, state) = first.open(b"f", b"o", (1, 3));
    let other = Client::new(&s, OTHER, b"other");
    let root = other.volume();
    let open = Ops::new().fh(&root).open(b"f", b"o", (1, 0), None);
    assert_eq!(other.status(&open), SHARE_DENIED);
    let again = Client::again(&s, HOST, b"client", 2);
    assert_ne!(again.id, first.id);
    assert_eq!(
        first.send(&first.next_args(&Ops::new(), false)).status,
        BADSESSION
    );
    assert_eq!(other.status(&open), OK);
    let root = Ops::new().fh(&root).lookup(b"f").close(&state);
    assert_eq!(again.status(&root), BAD_STATEID);
}

#[test]
fn a_compound_is_refused_as_the_rfc_says() {
    let s = Server::new();
    let mut c = Client::new(&s, HOST, b"client");
    assert_eq!(c.alone(24, X::new()).status, OP_NOT_IN_SESSION);
    let two = Ops::new().op(42, exchange(b"x", 1, 0)).root();
    assert_eq!(c.send(&c.compound(&two)).status, NOT_ONLY_OP);
    let second = Ops::new()
        .root()
        .op(53, X::new().raw(&c.session).u(9).u(0).u(0).u(0));
    assert_eq!(c.status(&second), 10_064, "SEQUENCE_POS");
    // An operation that is none, one that is cut off, and those before them are carried out.
    let mut r = c.run(&Ops::new().root().op(2000, X::new()));
    assert_eq!((r.status, r.count), (OP_ILLEGAL, 3));
    r.ok(24);
    assert_eq!(r.next(OP_ILLEGAL), OP_ILLEGAL);
    r.r.end();
    let mut r = c.run(&Ops::new().root().op(15, X::new().u(100)));
    assert_eq!((r.status, r.count), (BADXDR, 3));
    r.ok(24);
    assert_eq!(r.next(15), BADXDR);
    assert_eq!(c.status(&Ops::new().op(70, X::new())), 10_004, "WRITE_SAME");
    let many = (0..9).fold(Ops::new(), |ops, _| ops.root());
    let args = c.compound(&c.in_slot(&many, 1, 1, false));
    assert_eq!(c.send(&args).status, TOO_MANY_OPS);
    // A SEQUENCE that fails leaves its slot as it was.
    let few = c.compound(&c.in_slot(&Ops::new().root(), 1, 1, false));
    assert_eq!(c.send(&few).status, OK);
    for minor in [0, 3] {
        c.minor = minor;
        let r = c.send(&c.compound(&Ops::new().root()));
        assert_eq!((r.status, r.count), (MINOR_VERS_MISMATCH, 0));
    }
}

/// RFC 8881 §2.6.3.1: which operation says that the flavour is wrong, and how a client learns the
/// right one.
#[test]
fn a_volume_for_kerberos_says_so_where_a_client_can_choose() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let volume = c.volume();
    let (file, _) = c.open(b"f", b"o", BOTH);
    let publish = |flavours| {
        let rule = Rule {
            flavours,
            writers: flavours,
            ..Rule::open(Squash::None)
        };
        let volume = Arc::clone(&s.volume);
        s.vfs
            .publish(vec![Export::new("/vol1", volume, vec![rule])]);
    };
    // The last operation that was run, with its status.
    let last = |ops: Ops| {
        let mut r = c.run(&ops);
        let mut words = Vec::new();
        while r.r.1 < r.r.0.len() {
            words.push(r.r.u());
        }
        (r.count, words[words.len().saturating_sub(2)..].to_vec())
    };
    let (secinfo, no_name) = (X::new().o(b"vol1"), X::new().u(0));
    let stat = |ops: Ops| ops.getattr(&[1]);
    for refused in [Flavours::KRB5, Flavours::KRB5_PRIVACY] {
        publish(refused);
        assert_eq!(
            last(stat(Ops::new().root().lookup(b"vol1"))),
            (3, vec![15, WRONGSEC])
        );
        assert_eq!(last(stat(Ops::new().fh(&file))), (2, vec![22, WRONGSEC]));
        let saved = Ops::new().fh(&file).save().root().op(31, X::new());
        assert_eq!(last(stat(saved)), (5, vec![31, WRONGSEC]));
        let below = Ops::new().fh(&volume).lookup(b"f");
        assert_eq!(last(stat(below)), (3, vec![15, WRONGSEC]));
        let open = Ops::new().fh(&volume).open(b"g", b"o", BOTH, Some(0));
        assert_eq!(last(open), (3, vec![18, WRONGSEC]));
        assert_eq!(
            c.status(&Ops::new().fh(&file)),
            OK,
            "nothing is asked of it"
        );
        // None that this server could establish.
        let ask = Ops::new().root().op(33, secinfo.clone());
        assert_eq!(last(ask), (3, vec![OK, 0]));
        let below = Ops::new().fh(&volume).op(33, X::new().o(b"f"));
        assert_eq!(last(below), (3, vec![OK, 0]));
    }
    publish(Flavours::KRB5.or(Flavours::SYS));
    assert_eq!(c.status(&stat(Ops::new().fh(&file))), OK);
    for ask in [
        Ops::new().root().op(33, secinfo),
        Ops::new().fh(&volume).op(52, no_name),
    ] {
        assert_eq!(last(ask), (3, vec![1, 1]), "one: AUTH_SYS");
    }
}

#[test]
fn a_request_is_carried_out_once() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let root = c.volume();
    let ops = Ops::new().fh(&root).open(b"f", b"o", BOTH, Some(1)).getfh();
    let args = c.next_args(&ops, true);
    let first = c.send(&args);
    let lsn = c.last_lsn.get();
    assert!(lsn.is_some(), "it waits for the log");
    let again = c.send(&args);
    assert_eq!(first.r.0[24..], again.r.0[24..]);
    assert_eq!(c.last_lsn.get(), lsn, "and so does its replay");
    // Executed twice, GUARDED would have failed.
    assert_eq!(again.status, OK);
    let mut other = args.clone();
    let at = other.0.len() - 1;
    other.0[at] ^= 1;
    assert_eq!(c.send(&other).status, SEQ_FALSE_RETRY);
    let number = c.slots.borrow()[0];
    let late = c.compound(&c.in_slot(&ops, 0, number + 2, true));
    assert_eq!(c.send(&late).status, SEQ_MISORDERED);
    let uncached = c.next_args(&Ops::new().root(), false);
    assert_eq!(c.send(&uncached).status, OK);
    assert_eq!(c.send(&uncached).status, RETRY_UNCACHED_REP);
}

#[test]
fn a_reply_that_is_too_long_changes_nothing() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (file, state) = c.open(b"f", b"o", BOTH);
    assert_eq!(
        c.status(&Ops::new().fh(&file).write(&state, 0, &[7; 8000])),
        OK
    );
    // 3428 bytes are kept at most: the READ is shortened, what follows has no room.
    let args = Ops::new().fh(&file).read(&state, 0, 8000);
    let mut r = c.run(&args);
    r.ok(22);
    let read = r.ok(25);
    assert_eq!(read.u(), 0, "not the end");
    assert!(read.o().len() < 3428);
    let more = args.read(&state, 0, 8000);
    assert_eq!(c.status(&more), 10_067, "REP_TOO_BIG_TO_CACHE");
}

#[test]
fn files_are_made_written_read_and_removed() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (file, state) = c.open(b"file", b"owner", BOTH);
    let mut r = c.run(
        &Ops::new()
            .fh(&file)
            .write(&state, 0, b"hello world")
            .getattr(&[4]),
    );
    r.ok(22);
    let written = r.ok(38);
    assert_eq!((written.u(), written.u()), (11, 2));
    written.raw(8);
    assert_eq!(r.attrs().h(), 11);
    // Data in the middle of a reply.
    let read = Ops::new().fh(&file).read(&state, 6, 100).getattr(&[4]);
    let mut r = c.run(&read);
    r.ok(22);
    let data = r.ok(25);
    assert_eq!((data.u(), data.o()), (1, b"world".to_vec()));
    assert_eq!(r.attrs().h(), 11);
    r.r.end();
    // Over version 3 it is the same file.
    assert_eq!(s.read(&file, 0, 5).0, b"hello");
    let root = c.volume();
    let close = Ops::new().fh(&file).close(&state).fh(&root).remove(b"file");
    assert_eq!(c.status(&close.lookup(b"file")), NOENT);
    assert_eq!(c.status(&Ops::new().fh(&file).getattr(&[4])), STALE);
}

#[test]
fn a_clone_shares_what_its_source_has() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (from, reads) = c.open(b"from", b"o", (1, 0));
    let (to, writes) = c.open(b"to", b"o", BOTH);
    let root = c.volume();
    let mut r = c.run(&Ops::new().fh(&root).open(b"from", b"w", (2, 0), None));
    r.ok(22);
    let filling = r.opened();
    assert_eq!(
        c.status(&Ops::new().fh(&from).write(&filling, 0, &[7; 8192])),
        OK
    );
    let clone = |source: &[u8], target: &[u8], at: u64| {
        let x = X::new().raw(source).raw(target).h(0).h(at).h(0);
        Ops::new().fh(&from).save().fh(&to).op(71, x)
    };
    assert_eq!(
        c.status(&clone(&reads, &writes, 100)),
        INVAL,
        "within a block"
    );
    assert_eq!(c.status(&clone(&writes, &writes, 0)), BAD_STATEID);
    assert_eq!(c.status(&clone(&reads, &writes, 4096)), OK);
    assert!(c.last_lsn.get().is_some());
    assert_eq!(s.read(&to, 4096, 9000).0, [7; 8192]);
    assert_eq!(c.status(&Ops::new().fh(&to).close(&writes)), OK);
    assert_eq!(c.status(&clone(&reads, &writes, 4096)), BAD_STATEID);
}

#[test]
fn a_removed_file_lives_while_it_is_open() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (file, state) = c.open(b"f", b"o", BOTH);
    let root = c.volume();
    assert_eq!(c.status(&Ops::new().fh(&root).remove(b"f")), OK);
    assert_eq!(
        c.status(&Ops::new().fh(&file).write(&state, 0, b"data")),
        OK
    );
    let mut r = c.run(&Ops::new().fh(&file).getattr(&[35]));
    r.ok(22);
    assert_eq!(r.attrs().u(), 0, "no links");
    assert_eq!(c.status(&Ops::new().fh(&file).close(&state)), OK);
    s.service.tick();
    s.engine.cp_now().unwrap();
    assert_eq!(c.status(&Ops::new().fh(&file).getattr(&[35])), STALE);
}

#[test]
fn shares_are_respected_between_opens_and_by_version_3() {
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, state) = a.open(b"f", b"one", (3, 2));
    let root = b.volume();
    let open = |shares| Ops::new().fh(&root).open(b"f", b"two", shares, None);
    assert_eq!(b.status(&open((2, 0))), SHARE_DENIED);
    assert_eq!(b.status(&open((1, 1))), SHARE_DENIED, "it reads");
    assert_eq!(b.status(&open((1, 0))), OK);
    let anonymous = Ops::new().fh(&file).write(&ANONYMOUS, 0, b"x");
    assert_eq!(b.status(&anonymous), LOCKED);
    let write = X::new().o(&file).h(0).u(1).u(2).o(b"x");
    assert_eq!(s.from(OTHER).call(NFS, 7, &write).u(), ACCESS);
    assert_eq!(a.status(&Ops::new().fh(&file).write(&state, 0, b"x")), OK);
    // Down to reading without denial, as it was opened before.
    let mut r = a.run(&Ops::new().fh(&file).open_fh(b"one", (1, 0)));
    r.ok(22);
    let upgraded = r.opened();
    assert_eq!(upgraded[4..], state[4..], "the same open");
    assert_eq!(a.status(&Ops::new().fh(&file).close(&state)), OLD_STATEID);
    let down = |shares: (u32, u32)| {
        let x = X::new().raw(&upgraded).u(0).u(shares.0).u(shares.1);
        Ops::new().fh(&file).op(21, x)
    };
    assert_eq!(a.status(&down((2, 2))), INVAL, "it was never opened so");
    let mut r = a.run(&down((1, 0)));
    r.ok(22);
    let lower = r.ok(21).raw(16);
    assert_eq!(b.status(&open((3, 0))), OK);
    assert_eq!(
        a.status(&Ops::new().fh(&file).write(&lower, 0, b"x")),
        OPENMODE
    );
}

#[test]
fn locks_conflict_between_clients_and_with_nlm() {
    use support::locker::{DENIED as NLM_DENIED, GRANTED, Locker};
    let s = Server::new();
    let (a, b) = (Client::new(&s, HOST, b"a"), Client::new(&s, OTHER, b"b"));
    let (file, open_a) = a.open(b"f", b"o", BOTH);
    let (_, open_b) = b.open(b"f", b"o", BOTH);
    let at = |ops: Ops| Ops { ..ops }.clone();
    let lock =
        |open: &[u8], range, kind| at(Ops::new().fh(&file)).lock(kind, range, open, b"process");
    let mut r = a.run(&lock(&open_a, (10, 10), 2));
    r.ok(22);
    let held = r.ok(12).raw(16);
    let mut r = b.run(&lock(&open_b, (0, TO_END), 1));
    r.ok(22);
    assert_eq!(r.next(12), DENIED);
    assert_eq!((r.r.h(), r.r.h(), r.r.u()), (10, 10, 2));
    assert_eq!((r.r.h(), r.r.o()), (a.id, b"process".to_vec()));
    r.r.end();
    let nlm = Locker {
        s: &s,
        host: "third",
        addr: "10.0.0.3",
        svid: 1,
        file: file.clone(),
    };
    assert_eq!(nlm.lock(false, true, 19, 1), NLM_DENIED);
    assert_eq!(nlm.lock(false, true, 20, 1), GRANTED);
    assert_eq!(a.status(&lock(&open_a, (20, 1), 1)), DENIED);
    // A lock owner with something locked keeps its stateid.
    let free = |state: &[u8]| Ops::new().op(45, X::new().raw(state));
    assert_eq!(a.status(&free(&held)), LOCKS_HELD);
    let mut r = a.run(&Ops::new().fh(&file).locku((0, TO_END), &held));
    r.ok(22);
    let unlocked = r.ok(14).raw(16);
    assert_eq!(a.status(&free(&unlocked)), OK);
    assert_eq!(a.status(&free(&unlocked)), BAD_STATEID);
    assert_eq!(b.status(&lock(&open_b, (0, 20), 4)), OK);
    // CLOSE unlocks.
    assert_eq!(b.status(&Ops::new().fh(&file).close(&open_b)), OK);
    assert_eq!(a.status(&lock(&open_a, (0, 20), 2)), OK);
    assert_eq!(a.status(&lock(&open_a, (5, 0), 2)), INVAL);
    assert_eq!(a.status(&lock(&open_a, (5, TO_END - 2), 2)), INVAL);
}

#[test]
fn a_courteous_client_keeps_its_state_until_it_conflicts() {
    let s = Server::new();
    let a = Client::new(&s, HOST, b"a");
    let (file, state) = a.open(b"f", b"o", (3, 3));
    let late = std::time::Duration::from_secs(40);
    s.clock.advance(late);
    s.service.tick();
    assert_eq!(a.status(&Ops::new().fh(&file).write(&state, 0, b"x")), OK);
    s.clock.advance(late);
    s.service.tick();
    let b = Client::new(&s, OTHER, b"b");
    b.open(b"f", b"o", BOTH);
    assert_eq!(a.send(&a.next_args(&Ops::new(), false)).status, BADSESSION);
}

#[test]
fn claims_of_before_a_restart_are_made_again_in_the_grace_period() {
    let mut s = Server::new();
    let file = {
        let a = Client::new(&s, HOST, b"a");
        a.open(b"f", b"o", (3, 2)).0
    };
    s.vfs.claims.release_all(weir_vfs::claims::ServiceId(1));
    s.restart();
    let b = Client::reclaiming(&s, OTHER, b"b", 1);
    let root = b.volume();
    let open = Ops::new().fh(&root).open(b"f", b"o", (1, 0), None);
    let write = Ops::new().fh(&root).open(b"f", b"o", (2, 0), None);
    assert_eq!(b.status(&open), GRACE, "it has not finished");
    let again = |shares| Ops::new().fh(&file).open_again(b"o", shares);
    assert_eq!(b.status(&again((1, 0))), RECLAIM_BAD);
    let complete = Ops::new().op(58, X::new().u(0));
    assert_eq!(b.status(&complete), OK);
    assert_eq!(b.status(&write), GRACE);
    let a = Client::reclaiming(&s, HOST, b"a", 1);
    assert_eq!(a.status(&again((3, 2))), OK);
    assert_eq!(a.status(&open), GRACE, "it has not finished");
    assert_eq!(a.status(&complete), OK);
    assert_eq!(a.status(&complete), 10_054, "COMPLETE_ALREADY");
    assert_eq!(a.status(&again((3, 2))), NO_GRACE);
    // The only client that was expected has finished: the period is over.
    assert_eq!(b.status(&open), OK);
    assert_eq!(b.status(&write), SHARE_DENIED);
}

#[test]
fn the_pseudo_root_shows_what_the_client_may_use() {
    let s = Server::new();
    let rule = |protocols| Rule {
        protocols,
        ..Rule::open(Squash::None)
    };
    let v3 = Protocols {
        nfsv3: true,
        nfsv4: false,
        smb: false,
    };
    let publish = |path: &str, protocols| {
        let volume = Arc::clone(&s.volume);
        s.vfs
            .publish(vec![Export::new(path, volume, vec![rule(protocols)])]);
    };
    publish("/a/b/vol", Protocols::ALL);
    let c = Client::new(&s, HOST, b"client");
    let root = Ops::new().root();
    let path = root
        .clone()
        .lookup(b"a")
        .lookup(b"b")
        .lookup(b"vol")
        .getfh();
    assert_eq!(c.status(&path), OK);
    // Up again from the volume's root.
    let up = path.op(16, X::new()).lookup(b"vol");
    assert_eq!(c.status(&up), OK);
    let list = |ops: Ops| {
        let x = bitmap(X::new().h(0).h(0).u(4096).u(4096), &[20, 55]);
        let mut r = c.run(&ops.op(26, x));
        assert_eq!(r.status, OK);
        r.ok(24);
        let r = r.ok(26);
        r.raw(8);
        let mut names = Vec::new();
        while r.u() == 1 {
            r.h();
            names.push(r.o());
            let words = r.u() as usize;
            r.raw(words * 4);
            assert_ne!(r.o()[..8], [0; 8], "no file has number 0");
        }
        assert_eq!(r.u(), 1, "the end");
        names
    };
    assert_eq!(list(root.clone()), [b"a".to_vec()]);
    assert_eq!(c.status(&root.clone().lookup(b"vol1")), NOENT);
    assert_eq!(c.status(&root.clone().remove(b"a")), ROFS);
    publish("/a/b/vol", v3);
    assert_eq!(list(root.clone()), Vec::<Vec<u8>>::new());
    assert_eq!(c.status(&root.lookup(b"a")), NOENT);
}

#[test]
fn attributes_are_compared_and_set() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (file, _) = c.open(b"f", b"o", BOTH);
    let size = |op, value: u64| {
        let x = bitmap(X::new(), &[4]).o(&value.to_be_bytes());
        Ops::new().fh(&file).op(op, x)
    };
    assert_eq!(c.status(&size(37, 0)), OK);
    assert_eq!(c.status(&size(37, 1)), NOT_SAME);
    assert_eq!(c.status(&size(17, 0)), SAME);
    let mode = bitmap(X::new().raw(&ANONYMOUS), &[33]).o(&0o600u32.to_be_bytes());
    let mut r = c.run(&Ops::new().fh(&file).op(34, mode).getattr(&[33]));
    r.ok(22);
    let set = r.ok(34);
    assert_eq!((set.u(), set.u(), set.u()), (2, 0, 2), "the mode");
    assert_eq!(r.attrs().u(), 0o600);
    // A failed SETATTR has set nothing, and reports that.
    let change = bitmap(X::new().raw(&ANONYMOUS), &[3]).o(&[0; 8]);
    let mut r = c.run(&Ops::new().fh(&file).op(34, change));
    r.ok(22);
    assert_eq!((r.next(34), r.r.u()), (INVAL, 0));
    r.r.end();
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (file, _) = c.open(b"f", b"o", BOTH);
    let set = |how, name: &[u8], value: &[u8]| {
        Ops::new()
            .fh(&file)
            .op(73, X::new().u(how).o(name).o(value))
    };
    assert_eq!(c.status(&set(2, b"a", b"1")), NOXATTR);
    assert_eq!(c.status(&set(1, b"a", b"1")), OK);
    assert_eq!(c.status(&set(1, b"a", b"2")), EXIST);
    assert_eq!(c.status(&set(0, b"bb", b"2")), OK);
    let get = |name: &[u8]| Ops::new().fh(&file).op(72, X::new().o(name));
    let mut r = c.run(&get(b"a"));
    r.ok(22);
    assert_eq!(r.ok(72).o(), b"1");
    let list = Ops::new().fh(&file).op(74, X::new().h(0).u(4096));
    let mut r = c.run(&list);
    r.ok(22);
    let r = r.ok(74);
    assert_eq!((r.h(), r.u()), (2, 2));
    let mut names = [r.o(), r.o()];
    names.sort();
    assert_eq!(names, [b"a".to_vec(), b"bb".to_vec()]);
    assert_eq!(r.u(), 1);
    assert_eq!(c.status(&Ops::new().fh(&file).op(75, X::new().o(b"a"))), OK);
    assert_eq!(c.status(&get(b"a")), NOXATTR);
}

/// An operation that waits for the device suspends its COMPOUND, which goes on there; dropped, it
/// was never made.
#[test]
fn a_compound_waits_at_its_operation() {
    let mut s = Server::new();
    {
        let c = Client::new(&s, HOST, b"client");
        let (file, state) = c.open(b"f", b"o", BOTH);
        assert_eq!(
            c.status(&Ops::new().fh(&file).write(&state, 0, b"cold")),
            OK
        );
        assert_eq!(c.status(&Ops::new().fh(&file).close(&state)), OK);
        assert_eq!(c.alone(44, X::new().raw(&c.session)).status, OK);
        assert_eq!(c.alone(57, X::new().h(c.id)).status, OK);
        let root = s.root();
        for i in 0..300 {
            s.create(&root, format!("other{i}").as_bytes(), 0o600);
        }
    }
    s.cold_start();
    let c = Client::new(&s, HOST, b"client");
    let ops = Ops::new().root().lookup(b"vol1").lookup(b"f").getattr(&[4]);
    let args = c.next_args(&ops, true);
    let Outcome::Later(waiting) = c.begin(&args) else {
        panic!("the file is not in memory");
    };
    assert_eq!(c.send(&args).status, DELAY, "it is under way");
    drop(waiting);
    let mut r = c.send(&args);
    assert_eq!((r.status, r.count), (OK, 5));
    r.sequence();
    r.ok(24);
    r.ok(15);
    r.ok(15);
    assert_eq!(r.attrs().h(), 4);
}

/// When the log fails, the reply ends at the operation whose change is lost.
#[test]
fn a_reply_is_cut_where_the_log_has_failed() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let root = c.volume();
    let ops = Ops::new().fh(&root).open(b"f", b"o", BOTH, Some(1)).getfh();
    let args = c.next_args(&ops, true);
    let Outcome::Reply(reply, lsn) = c.begin(&args) else {
        panic!("no reply");
    };
    assert!(lsn.is_some());
    let mut r = support::R(reply.into_failure().message(), 24);
    assert_eq!((r.u(), r.o(), r.u()), (5, b"tag".to_vec(), 3));
    let mut r = Results {
        status: 5,
        count: 3,
        r,
    };
    r.sequence();
    r.ok(22);
    assert_eq!(r.next(18), 5);
    r.r.end();
}

/// Linux sends the umask with the CREATE of anything; it does not apply to a link.
#[test]
fn a_link_has_every_permission_whatever_the_umask() {
    let s = Server::new();
    let mut c = Client::new(&s, HOST, b"client");
    c.minor = 2;
    let root = c.volume();
    let masked = |x: X| bitmap(x, &[81]).o(&[0u8, 0, 1, 0o377, 0, 0, 0, 0o22]);
    let link = masked(X::new().u(5).o(b"target").o(b"link"));
    let dir = masked(X::new().u(2).o(b"dir"));
    for (name, args, mode) in [(&b"link"[..], link, 0o777), (b"dir", dir, 0o755)] {
        assert_eq!(c.status(&Ops::new().fh(&root).op(6, args)), OK);
        let mut r = c.run(&Ops::new().fh(&root).lookup(name).getattr(&[33]));
        r.ok(22);
        r.ok(15);
        assert_eq!(r.attrs().u(), mode);
    }
}

/// Closes a file and ends the client.
fn leave(c: &Client<'_>, file: &[u8], state: &[u8]) {
    assert_eq!(c.status(&Ops::new().fh(file).close(state)), OK);
    assert_eq!(c.alone(44, X::new().raw(&c.session)).status, OK);
    assert_eq!(c.alone(57, X::new().h(c.id)).status, OK);
}

/// SEEK: data or hole from an offset on; the status, eof, and where.
fn seek(c: &Client<'_>, file: &[u8], state: &[u8], from: u64, what: u32) -> (u32, bool, u64) {
    let x = X::new().raw(state).h(from).u(what);
    let mut r = c.run(&Ops::new().fh(file).op(69, x));
    r.ok(22);
    match r.next(69) {
        OK => (OK, r.r.u() == 1, r.r.h()),
        status => (status, false, 0),
    }
}

#[test]
fn data_and_holes_are_found() {
    const DATA: u32 = 0;
    const HOLE: u32 = 1;
    const FAR: u64 = 300 << 20;
    let mut s = Server::new();
    let all = |s: &Server| {
        let c = Client::new(s, HOST, b"client");
        let (file, state) = c.open(b"f", b"o", BOTH);
        let at = |from, what| seek(&c, &file, &state, from, what);
        assert_eq!(at(0, DATA), (OK, false, 8192));
        assert_eq!(at(9000, DATA), (OK, false, 9000));
        assert_eq!(at(0, HOLE), (OK, false, 0));
        assert_eq!(at(8192, HOLE), (OK, false, 16_384));
        // The search for a hole takes several steps.
        assert_eq!(at(16_384, DATA), (OK, false, FAR));
        assert_eq!(at(FAR, HOLE), (OK, true, FAR + 5), "the end is a hole");
        assert_eq!(at(FAR + 4, DATA), (OK, false, FAR + 4));
        assert_eq!(at(FAR + 5, DATA).0, 6, "NXIO");
        assert_eq!(at(FAR + 5, HOLE).0, 6);
        assert_eq!(at(0, 2).0, 10_090, "UNION_NOTSUPP");
        // READ_PLUS: a hole, data, the end.
        let plus = |from: u64, count: u32| {
            let x = X::new().raw(&state).h(from).u(count);
            let mut r = c.run(&Ops::new().fh(&file).op(68, x));
            r.ok(22);
            let r = r.ok(68);
            let (eof, segments) = (r.u() == 1, r.u());
            (0..segments).fold((eof, Vec::new()), |mut all, _| {
                let (kind, at) = (r.u(), r.h());
                let len = match kind {
                    0 => r.o().len() as u64,
                    _ => r.h(),
                };
                all.1.push((kind, at, len));
                all
            })
        };
        assert_eq!(plus(0, 2000), (false, vec![(1, 0, 2000)]));
        assert_eq!(plus(8192, 2000), (false, vec![(0, 8192, 2000)]));
        assert_eq!(plus(FAR, 2000), (true, vec![(0, FAR, 5)]));
        assert_eq!(plus(FAR + 5, 2000), (true, vec![]));
        leave(&c, &file, &state);
    };
    {
        let c = Client::new(&s, HOST, b"first");
        let (file, state) = c.open(b"f", b"o", BOTH);
        let fill = Ops::new().fh(&file).write(&state, 8192, &[7; 8192]);
        assert_eq!(c.status(&fill.write(&state, FAR, b"12345")), OK);
        leave(&c, &file, &state);
    }
    all(&s);
    s.engine.cp_now().unwrap();
    all(&s);
    // The tree and the changes above it.
    {
        let c = Client::new(&s, HOST, b"second");
        let (file, state) = c.open(b"f", b"o", BOTH);
        let punch = X::new().raw(&state).h(8192).h(4096);
        assert_eq!(c.status(&Ops::new().fh(&file).op(62, punch)), OK);
        assert_eq!(seek(&c, &file, &state, 0, DATA), (OK, false, 12_288));
        assert_eq!(seek(&c, &file, &state, 8192, HOLE), (OK, false, 8192));
        let fill = Ops::new().fh(&file).write(&state, 8192, &[7; 4096]);
        assert_eq!(c.status(&fill), OK);
        leave(&c, &file, &state);
    }
    all(&s);
    s.cold_start();
    all(&s);
}

/// COPY: the status, and what was copied with the stability.
fn copy(
    c: &Client<'_>,
    from: (&[u8], &[u8], u64),
    to: (&[u8], &[u8], u64),
    count: u64,
) -> (u32, u64, u32) {
    let x = X::new().raw(from.1).raw(to.1).h(from.2).h(to.2).h(count);
    let ops = Ops::new().fh(from.0).save().fh(to.0);
    let mut r = c.run(&ops.op(60, x.u(1).u(0).u(0)));
    r.ok(22);
    r.ok(32);
    r.ok(22);
    match r.next(60) {
        OK => {
            let r = &mut r.r;
            assert_eq!(r.u(), 0, "no stateid");
            let copied = (OK, r.h(), r.u());
            r.raw(8);
            assert_eq!((r.u(), r.u()), (1, 1), "in order, before the reply");
            r.end();
            copied
        }
        status => (status, 0, 0),
    }
}

#[test]
fn files_are_copied_within_the_server() {
    let s = Server::new();
    let c = Client::new(&s, HOST, b"client");
    let (from, reads) = c.open(b"from", b"o", BOTH);
    let (to, writes) = c.open(b"to", b"o", BOTH);
    let pattern: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
    let fill = Ops::new().fh(&from).write(&reads, 0, &pattern);
    assert_eq!(c.status(&fill), OK);
    let run = |at, target, count| copy(&c, (&from, &reads, at), (&to, &writes, target), count);
    // Whole blocks are shared, all else is read and written.
    assert_eq!(run(0, 0, 8192), (OK, 8192, 2));
    assert_eq!(run(1, 8192, 100), (OK, 100, 0));
    assert_eq!(
        s.read(&to, 0, 9000).0,
        [&pattern[..8192], &pattern[1..101]].concat()
    );
    assert_eq!(run(0, 0, 0), (OK, 9000, 2), "to the end");
    assert_eq!(s.read(&to, 0, 10_000).0, pattern);
    assert_eq!(run(9000, 0, 0), (OK, 0, 2));
    assert_eq!(run(9001, 0, 0).0, INVAL);
    assert_eq!(run(8999, 0, 2).0, INVAL);
    // Within one file, into what is read.
    let own = (&from[..], &reads[..]);
    assert_eq!(
        copy(&c, (own.0, own.1, 0), (own.0, own.1, 9000), 500),
        (OK, 500, 0)
    );
    assert_eq!(s.read(&from, 9000, 500).0, pattern[..500]);
    // A long one is copied in part, where it is data.
    s.write(&from, 9500, &vec![7; (1 << 16) - 9500]);
    for at in 1..20 << 4 {
        s.write(&from, at << 16, &vec![7; 1 << 16]);
    }
    assert_eq!(run(1, 0, 10 << 20), (OK, 4 << 20, 0));
    assert_eq!(s.read(&to, 0, 8999).0, pattern[1..9000]);
    assert_eq!(s.read(&to, 1 << 20, 8999).0, [7; 8999], "what follows");
    // The stateids must allow it.
    let read_only = c
        .run(&Ops::new().fh(&to).open_fh(b"reader", (1, 0)))
        .tail_open();
    let denied = copy(&c, (&from, &reads, 0), (&to, &read_only, 0), 1);
    assert_eq!(denied.0, OPENMODE);
    let between = X::new().raw(&reads).raw(&writes).h(0).h(0).h(0).u(1).u(1);
    let between = between.u(1).u(1).o(b"other");
    let ops = Ops::new().fh(&from).save().fh(&to).op(60, between);
    assert_eq!(c.status(&ops), 10_004, "NOTSUPP between servers");
}

#[test]
fn lists_decide_over_every_protocol_and_follow_the_mode() {
    const READ: u32 = 1;
    const WRITE: u32 = 6;
    const DELETE: u32 = 0x1_0000;
    let mut s = Server::new();
    let file = {
        let c = Client::new(&s, HOST, b"client");
        let (file, state) = c.open(b"f", b"o", BOTH);
        assert_eq!(
            c.status(&Ops::new().fh(&file).write(&state, 0, b"data")),
            OK
        );
        let set = |x: X| bitmap(X::new().raw(&ANONYMOUS), &[12]).o(&x.0);
        let list = acl(&[
            (0, 0, READ | WRITE, b"500"),
            (1, 0x40, WRITE, b"77"),
            (0, 0x40, READ | WRITE, b"77"),
            (0, 0, READ | WRITE, b"OWNER@"),
            (0, 0, READ, b"EVERYONE@"),
        ]);
        let ops = Ops::new().fh(&file).op(34, set(list.clone()));
        assert_eq!(c.status(&ops.clone().getattr(&[33])), OK);
        // It is sent as it was set, and shows in the mode.
        let mut r = c.run(&Ops::new().fh(&file).getattr(&[12, 13, 33]));
        r.ok(22);
        let values = r.attrs().0;
        assert_eq!(
            values,
            [&list.0[..], &[0, 0, 0, 3, 0, 0, 1, 0o244]].concat()
        );
        // Others than the owner may not set it.
        s.as_user(500, 1);
        assert_eq!(c.status(&ops), 1, "PERM");
        s.as_user(0, 0);
        leave(&c, &file, &state);
        file
    };
    let may = |s: &Server, uid: u32, gid: u32| {
        s.as_user(uid, gid);
        let read = s.status(6, &X::new().o(&file).h(0).u(4));
        let write = s.status(7, &X::new().o(&file).h(0).u(1).u(2).o(b"d"));
        let mut r = s.call(NFS, 4, &X::new().o(&file).u(0xd));
        assert_eq!(r.u(), OK);
        r.post_op();
        let granted = r.u();
        assert_eq!(granted & 1 != 0, read == OK, "READ of ACCESS");
        assert_eq!(granted & 4 != 0, write == OK, "MODIFY of ACCESS");
        s.as_user(0, 0);
        (read, write)
    };
    for round in 0..2 {
        assert_eq!(may(&s, 500, 1), (OK, OK), "{round}");
        assert_eq!(may(&s, 501, 77), (OK, ACCESS), "{round}");
        assert_eq!(may(&s, 501, 1), (OK, ACCESS), "{round}");
        if round == 0 {
            s.cold_start();
        }
    }
    // Over version 4 at OPEN.
    {
        let c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let open = |shares| Ops::new().fh(&root).open(b"f", b"w", shares, None);
        s.as_user(501, 77);
        assert_eq!(c.status(&open((2, 0))), ACCESS);
        assert_eq!(c.status(&open((1, 0))), OK);
        s.as_user(0, 0);
        // chmod closes it, and what is left of the list says so.
        let mode = X::new().o(&file).sattr(Some(0o600), None).u(0);
        assert_eq!(s.from(HOST).call(NFS, 2, &mode).u(), OK);
    }
    assert_eq!(may(&s, 500, 1), (ACCESS, ACCESS));
    let c = Client::new(&s, HOST, b"another");
    let mut r = c.run(&Ops::new().fh(&file).getattr(&[33]));
    r.ok(22);
    assert_eq!(r.attrs().u(), 0o600);
    // In a directory: making files, and deleting what the list lets.
    let root = c.volume();
    let make = X::new().u(2).o(b"dir");
    let make = bitmap(make, &[33]).o(&0o755u32.to_be_bytes());
    let mut r = c.run(&Ops::new().fh(&root).op(6, make).getfh());
    r.ok(22);
    let r6 = r.ok(6);
    r6.raw(20);
    let words = r6.u() as usize;
    r6.raw(4 * words);
    let dir = r.handle();
    let list = acl(&[(0, 0, 0x23, b"500"), (0, 0, 0x21, b"EVERYONE@")]);
    let set = bitmap(X::new().raw(&ANONYMOUS), &[12]).o(&list.0);
    assert_eq!(c.status(&Ops::new().fh(&dir).op(34, set)), OK);
    let create = |uid: u32| {
        s.as_user(uid, 1);
        let x = X::new().o(&dir).o(b"new").u(0).sattr(Some(0o644), None);
        let status = s.from(HOST).call(NFS, 8, &x).u();
        s.as_user(0, 0);
        status
    };
    let mkdir = |uid: u32| {
        s.as_user(uid, 1);
        let x = X::new().o(&dir).o(b"sub").sattr(Some(0o755), None);
        let status = s.from(HOST).call(NFS, 9, &x).u();
        s.as_user(0, 0);
        status
    };
    let remove = |uid: u32| {
        s.as_user(uid, 1);
        let status = s.from(HOST).call(NFS, 12, &X::new().o(&dir).o(b"new")).u();
        s.as_user(0, 0);
        status
    };
    assert_eq!((create(501), create(500)), (ACCESS, OK));
    assert_eq!(mkdir(500), ACCESS, "files only");
    assert_eq!(remove(500), ACCESS, "neither list lets it");
    let own = acl(&[(0, 0, DELETE, b"500"), (0, 0, READ, b"EVERYONE@")]);
    let set = bitmap(X::new().raw(&ANONYMOUS), &[12]).o(&own.0);
    let on_file = Ops::new().fh(&dir).lookup(b"new").op(34, set);
    assert_eq!(c.status(&on_file), OK);
    assert_eq!((remove(501), remove(500)), (ACCESS, OK));
}

//! Effects of other protocols' claims on NFSv3. Their opens, ranges and caches are entered directly
//! into the table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::{Server, X};
use weir_base::Clock;
use weir_nfs::{Later, Outcome};
use weir_vfs::claims::{
    CacheRights, Client, Kind, Lock, Modes, Notice, OpenOutcome, OpenRequest, Owner, OwnerId,
    Range, ServiceId, Sink, Style, Verdict,
};
use weir_vfs::grace::{Claimant, Had, Kinds, PossibleClaims};
use weir_vfs::{Export, FileId, Rule, Squash};

const OK: u32 = 0;
const ACCES: u32 = 13;
const JUKEBOX: u32 = 10008;

/// A client of SMB.
struct Other {
    file: FileId,
    owner: Owner,
    notices: Arc<Notices>,
}

#[derive(Default)]
struct Notices(Mutex<Vec<Notice>>);

impl Sink for Notices {
    fn notify(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Other {
    fn new(s: &Server, handle: &[u8]) -> Other {
        let notices = Arc::new(Notices::default());
        let sink: Weak<dyn Sink> = Arc::downgrade(&(notices.clone() as Arc<dyn Sink>));
        s.vfs.claims.attach(ServiceId(2), sink);
        Other {
            file: s.vfs.file_id(handle).unwrap(),
            owner: Owner {
                client: Client {
                    service: ServiceId(2),
                    address: "10.0.0.7".parse().unwrap(),
                    name: Arc::from(&b"guid"[..]),
                },
                who: OwnerId::key(1),
                shown: Arc::default(),
            },
            notices,
        }
    }

    fn open(&self, s: &Server, access: Modes, deny: Modes) {
        let request = OpenRequest {
            owner: &self.owner,
            key: &self.owner.who,
            access,
            deny,
            enforced: true,
            overwrite: false,
        };
        assert_eq!(s.vfs.claims.open(self.file, &request), OpenOutcome::Granted);
    }

    fn cache(&self, s: &Server, caching: CacheRights) {
        let given = s
            .vfs
            .claims
            .grant(self.file, &self.owner, Kind::Lease, caching);
        assert_eq!(given, caching);
    }

    /// Returns what the client may still cache, if it was asked to give up more.
    fn broken_to(&self) -> Option<CacheRights> {
        let notices = std::mem::take(&mut *self.notices.0.lock().unwrap());
        assert!(notices.len() < 2, "{notices:?}");
        notices.first().map(|n| match n {
            Notice::Break { to, answer, .. } => {
                assert!(answer);
                *to
            }
            other => panic!("{other:?}"),
        })
    }

    fn answer(&self, s: &Server, keeps: CacheRights) {
        assert!(s.vfs.claims.acknowledge(self.file, &self.owner, keeps));
    }
}

fn read(s: &Server, file: &[u8], offset: u64, count: u32) -> u32 {
    s.status(6, &X::new().o(file).h(offset).u(count))
}

fn write(s: &Server, file: &[u8], offset: u64) -> u32 {
    s.status(7, &X::new().o(file).h(offset).u(3).u(2).o(b"new"))
}

fn cut(s: &Server, file: &[u8], size: u64) -> u32 {
    s.status(2, &X::new().o(file).sattr(None, Some(size)).u(0))
}

#[test]
fn denials_and_ranges_of_others_stop_reads_and_writes() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    s.write(&file, 0, &[1; 100]);
    let other = Other::new(&s, &file);
    other.open(&s, Modes::READ, Modes::WRITE);
    assert_eq!(
        (
            read(&s, &file, 0, 9),
            write(&s, &file, 0),
            cut(&s, &file, 0)
        ),
        (OK, ACCES, ACCES)
    );
    assert_eq!(s.getattr(&file).size, 100);
    // CREATE of what exists cuts it as well.
    let create = X::new().o(&root).o(b"file").u(0);
    assert_eq!(s.status(8, &create.clone().sattr(None, Some(0))), ACCES);
    assert_eq!(s.status(8, &create.sattr(None, None)), OK);
    other.open(&s, Modes::READ, Modes::READ);
    assert_eq!((read(&s, &file, 0, 9), write(&s, &file, 0)), (ACCES, OK));
    s.vfs.claims.close(other.file, &other.owner);

    let lock = |exclusive| Lock {
        owner: other.owner.clone(),
        range: Range::exact(10, 10).unwrap(),
        exclusive,
        mandatory: true,
    };
    let ask = |exclusive| {
        let lock = lock(exclusive);
        s.vfs.claims.lock(other.file, &lock, &lock.owner.who, false)
    };
    assert_eq!(ask(true), Verdict::Granted);
    assert_eq!(read(&s, &file, 0, 100), OK);
    for (offset, status) in [(7, OK), (8, ACCES), (19, ACCES), (20, OK)] {
        assert_eq!(write(&s, &file, offset), status, "{offset}");
    }
    assert_eq!(
        (cut(&s, &file, 20), cut(&s, &file, 19), cut(&s, &file, 50)),
        (OK, ACCES, OK)
    );
    let range = lock(true).range;
    assert!(s.vfs.claims.unlock_exact(other.file, &other.owner, range));
    assert_eq!(ask(false), Verdict::Granted);
    assert_eq!(write(&s, &file, 10), OK, "a shared range does not stop NFS");
}

#[test]
fn operations_wait_for_others_caches() {
    let s = Server::new();
    let root = s.root();
    let dir = s.mkdir(&root, b"dir", 0o755);
    let file = s.create(&dir, b"file", 0o644);
    let from = || X::new().o(&dir).o(b"file");
    let (old, new) = (from(), X::new().o(&dir).o(b"new"));
    let rename = X(old.0.iter().chain(&new.0).copied().collect());
    let back = X(new.0.iter().chain(&old.0).copied().collect());
    let link = X::new().o(&file).o(&dir).o(b"link");
    let other = Other::new(&s, &file);
    let (none, h) = (CacheRights::NONE, CacheRights::READ_HANDLE);
    let rw = CacheRights::READ | CacheRights::WRITE;
    // Name of the call, what is cached, the call, and what may still be cached afterwards.
    type Do<'a> = (
        &'a str,
        CacheRights,
        &'a dyn Fn() -> u32,
        Option<CacheRights>,
    );
    let cases: [Do<'_>; 9] = [
        ("READ", h, &|| read(&s, &file, 0, 1), None),
        (
            "READ",
            rw,
            &|| read(&s, &file, 0, 1),
            Some(CacheRights::READ),
        ),
        ("WRITE", h, &|| write(&s, &file, 0), Some(none)),
        ("SETATTR", h, &|| cut(&s, &file, 1), Some(none)),
        (
            "RENAME",
            h,
            &|| s.status(14, &rename),
            Some(CacheRights::READ),
        ),
        (
            "RENAME",
            h,
            &|| s.status(14, &back),
            Some(CacheRights::READ),
        ),
        ("GETATTR", h, &|| s.status(1, &X::new().o(&file)), None),
        ("LINK", h, &|| s.status(15, &link), None),
        (
            "REMOVE",
            h,
            &|| s.status(12, &from()),
            Some(CacheRights::READ),
        ),
    ];
    for (what, caching, call, to) in cases {
        other.cache(&s, caching);
        let Some(to) = to else {
            assert_eq!((call(), other.broken_to()), (OK, None), "{what}");
            other.answer(&s, none);
            continue;
        };
        assert_eq!((call(), other.broken_to()), (JUKEBOX, Some(to)), "{what}");
        assert_eq!((call(), other.broken_to()), (JUKEBOX, None), "{what} again");
        other.answer(&s, to);
        assert_eq!((call(), other.broken_to()), (OK, None), "{what}, answered");
        other.answer(&s, none);
    }
    // A client that does not answer loses it.
    let file = s.create(&dir, b"file", 0o644);
    let other = Other::new(&s, &file);
    other.cache(&s, rw);
    assert_eq!(read(&s, &file, 0, 1), JUKEBOX);
    s.service.tick();
    s.clock.advance(Duration::from_secs(35));
    s.service.tick();
    assert_eq!(read(&s, &file, 0, 1), OK);
}

/// Returns the status of a suspended call, once it is answered.
fn poll(waiting: &mut Later) -> Option<u32> {
    let mut cx = Context::from_waker(Waker::noop());
    match waiting.as_mut().poll(&mut cx) {
        Poll::Pending => None,
        Poll::Ready(Outcome::Reply(reply, _)) => {
            let message = reply.message();
            Some(u32::from_be_bytes(*message[24..].first_chunk().unwrap()))
        }
        Poll::Ready(_) => panic!("no reply"),
    }
}

fn parked(s: &Server, procedure: u32, args: &X) -> Later {
    match s.begin(&s.encode(support::NFS, procedure, args)) {
        Outcome::Parked(mut waiting, ..) => {
            assert_eq!(poll(&mut waiting), None);
            waiting
        }
        _ => panic!("it does not wait"),
    }
}

#[test]
fn a_call_goes_on_as_soon_as_others_let_it_and_is_told_to_come_back_if_they_do_not() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let other = Other::new(&s, &file);
    let write = X::new().o(&file).h(0).u(3).u(2).o(b"new");
    let remove = X::new().o(&root).o(b"file");
    other.cache(&s, CacheRights::READ_HANDLE);
    let mut calls = [parked(&s, 7, &write), parked(&s, 12, &remove)];
    s.service.tick();
    assert_eq!(calls.each_mut().map(poll), [None; 2]);
    other.answer(&s, CacheRights::NONE);
    assert_eq!(calls.each_mut().map(poll), [Some(OK); 2]);
    // One that does not answer.
    let file = s.create(&root, b"file", 0o644);
    let other = Other::new(&s, &file);
    other.cache(&s, CacheRights::READ_HANDLE);
    let mut call = parked(&s, 12, &remove);
    for _ in 0..2 {
        s.service.tick();
        assert_eq!(poll(&mut call), None);
    }
    s.service.tick();
    assert_eq!(poll(&mut call), Some(JUKEBOX));
    other.answer(&s, CacheRights::NONE);
    // Those that may claim again.
    let claimant = Claimant {
        service: ServiceId(2),
        name: Arc::from(&b"one"[..]),
    };
    let now = s.clock.monotonic();
    s.vfs.grace.begin([claimant.clone()], now, support::GRACE);
    let write = X::new().o(&file).h(0).u(3).u(2).o(b"new");
    let mut call = parked(&s, 7, &write);
    s.service.tick();
    assert_eq!(poll(&mut call), None);
    s.vfs.grace.finished(&claimant);
    assert_eq!(poll(&mut call), Some(OK));
    // The period may end before all have.
    s.vfs.grace.begin([claimant], now, support::GRACE);
    let mut call = parked(&s, 12, &remove);
    s.clock.advance(support::GRACE);
    s.service.tick();
    assert_eq!(poll(&mut call), Some(OK));
}

#[test]
fn what_replaces_a_cached_file_waits() {
    let s = Server::new();
    let root = s.root();
    s.create(&root, b"new", 0o644);
    let file = s.create(&root, b"old", 0o644);
    let other = Other::new(&s, &file);
    other.cache(&s, CacheRights::READ_HANDLE);
    let rename = X::new().o(&root).o(b"new").o(&root).o(b"old");
    assert_eq!(s.status(14, &rename), JUKEBOX);
    other.answer(&s, CacheRights::NONE);
    assert_eq!(s.status(14, &rename), OK);
}

#[test]
fn a_cached_directory_is_broken_by_changes_of_its_entries() {
    let s = Server::new();
    let root = s.root();
    let dir = s.mkdir(&root, b"dir", 0o755);
    let other = Other::new(&s, &dir);
    let at = |name: &[u8]| X::new().o(&dir).o(name);
    let file = s.create(&root, b"file", 0o644);
    let cases = [
        (8, at(b"a").u(0).sattr(Some(0o644), None)),
        (9, at(b"b").sattr(Some(0o755), None)),
        (10, at(b"c").sattr(None, None).o(b"target")),
        (15, X::new().o(&file).o(&dir).o(b"d")),
        (14, X::new().o(&root).o(b"file").o(&dir).o(b"e")),
        (12, at(b"a")),
        (13, at(b"b")),
    ];
    for (procedure, args) in cases {
        other.cache(&s, CacheRights::READ_HANDLE);
        assert_eq!(s.status(procedure, &args), JUKEBOX, "{procedure}");
        other.answer(&s, CacheRights::NONE);
        assert_eq!(s.status(procedure, &args), OK, "{procedure}");
    }
    // Elsewhere nobody waits.
    other.cache(&s, CacheRights::READ_HANDLE);
    s.create(&root, b"elsewhere", 0o644);
}

/// Statuses of calls that change or read a file of the root, by its handle and its name; those that
/// move or remove it are last.
fn calls_at(s: &Server, file: &[u8], name: &[u8]) -> [u32; 7] {
    let root = s.root();
    let other = [name, b"2"].concat();
    let cuts = X::new().o(&root).o(name).u(0).sattr(None, Some(0));
    let link = X::new().o(file).o(&root).o(&other);
    let rename = |from: &[u8], to: &[u8]| X::new().o(&root).o(from).o(&root).o(to);
    [
        read(s, file, 0, 1),
        write(s, file, 0),
        cut(s, file, 1),
        s.status(8, &cuts),
        s.status(15, &link),
        s.status(14, &rename(name, &other)),
        s.status(12, &X::new().o(&root).o(name)),
    ]
}

fn claimant(name: &[u8]) -> Claimant {
    Claimant {
        service: ServiceId(2),
        name: Arc::from(name),
    }
}

#[test]
fn nothing_is_done_that_could_conflict_with_what_may_be_claimed_again() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let make = |name: &[u8]| X::new().o(&root).o(name).sattr(None, None);
    let create = X::new().o(&root).o(b"new").u(1).sattr(None, None);
    let moved = X::new().o(&root).o(b"made").o(&root).o(b"moved");
    let now = s.clock.monotonic();
    let here = PossibleClaims::in_volume(Kinds::ALL, s.volume.id());
    let elsewhere = PossibleClaims::in_volume(Kinds::ALL, weir_base::VolumeId(s.volume.id().0 + 1));
    let expected = [
        (claimant(b"one"), here.into()),
        (claimant(b"two"), elsewhere.into()),
        (claimant(b"three"), PossibleClaims::NOWHERE.into()),
    ];
    s.vfs.grace.begin_bound(expected, now, support::GRACE);
    assert_eq!(calls_at(&s, &file, b"file"), [JUKEBOX; 7]);
    assert_eq!(s.getattr(&file).size, 0);
    // Nobody had anything of what is new, or of a directory.
    assert_eq!(s.status(8, &create), OK);
    assert_eq!(s.status(9, &make(b"made")), OK);
    assert_eq!(s.status(10, &make(b"link").o(b"target")), OK);
    assert_eq!(s.status(14, &moved), OK);
    assert_eq!(s.status(13, &X::new().o(&root).o(b"moved")), OK);
    s.vfs.grace.finished(&claimant(b"one"));
    assert!(s.vfs.grace.runs(now));
    assert_eq!(calls_at(&s, &file, b"file"), [OK; 7]);
}

#[test]
fn only_the_files_in_which_an_absent_client_had_something_are_waited_for() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let other = s.create(&root, b"other", 0o644);
    let mut had = Had::default();
    let key = s.vfs.file_id(&file).unwrap().into();
    had.add(Kinds::ALL, key, 1);
    let now = s.clock.monotonic();
    s.vfs
        .grace
        .begin_bound([(claimant(b"one"), had)], now, support::GRACE);
    assert_eq!(calls_at(&s, &other, b"other"), [OK; 7]);
    assert_eq!(calls_at(&s, &file, b"file"), [JUKEBOX; 7]);
    s.vfs.grace.finished(&claimant(b"one"));
    assert_eq!(calls_at(&s, &file, b"file"), [OK; 7]);
}

#[test]
fn a_denial_of_deletion_counts_on_volumes_of_ntfs_style() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    s.create(&root, b"new", 0o644);
    let other = Other::new(&s, &file);
    other.open(&s, Modes::READ, Modes::DELETE);
    let remove = || s.status(12, &X::new().o(&root).o(b"file"));
    let rename = |from: &[u8], to: &[u8]| {
        let args = X::new().o(&root).o(from).o(&root).o(to);
        s.status(14, &args)
    };
    let style = |style| {
        let rules = vec![Rule::open(Squash::None)];
        let mut export = Export::new("/vol1", Arc::clone(&s.volume), rules);
        export.style = style;
        s.vfs.publish(vec![export]);
    };
    style(Style::Ntfs);
    assert_eq!(
        (remove(), rename(b"file", b"else"), rename(b"new", b"file")),
        (ACCES, ACCES, ACCES)
    );
    // An open that shares deletion stops no other.
    other.open(&s, Modes::READ, Modes::WRITE);
    assert_eq!(rename(b"file", b"else"), OK);
    other.open(&s, Modes::READ, Modes::DELETE);
    assert_eq!(rename(b"else", b"file"), ACCES);
    style(Style::Unix);
    assert_eq!((rename(b"else", b"file"), remove()), (OK, OK));
}

/// Makes claims of all kinds, queues a request, and has a client asked to give up its cache.
fn claim_everything(s: &Server, other: &Other) {
    let claims = &s.vfs.claims;
    other.open(s, Modes::BOTH, Modes::NONE);
    other.cache(s, CacheRights::READ_HANDLE);
    assert_eq!(write(s, &s.vfs.handle_of(other.file), 0), JUKEBOX);
    assert_eq!(other.broken_to(), Some(CacheRights::NONE));
    let lock = |who| Lock {
        owner: Owner {
            who: OwnerId::key(who),
            ..other.owner.clone()
        },
        range: Range::exact(100, 10).unwrap(),
        exclusive: true,
        mandatory: true,
    };
    let ask = |who| claims.lock(other.file, &lock(who), &other.owner.who, true);
    assert_eq!((ask(1), ask(2)), (Verdict::Granted, Verdict::Queued));
}

#[test]
fn claims_end_with_what_they_were_made_of() {
    let mut s = Server::new();
    s.clock.advance(Duration::from_secs(1));
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let now = s.current_time();
    s.volume.snapshot_create("before", now).unwrap();
    let other = Other::new(&s, &file);
    let owners = [1, 2].map(|who| Owner {
        who: OwnerId::key(who),
        ..other.owner.clone()
    });
    let lost = || {
        let mut all: Vec<Owner> = other
            .notices
            .0
            .lock()
            .unwrap()
            .drain(..)
            .map(|n| match n {
                Notice::Lost { file, owner } if file == other.file => owner,
                other => panic!("{other:?}"),
            })
            .collect();
        all.sort_by_key(|owner| format!("{:?}", owner.who));
        all
    };
    type Replace = fn(&mut Server);
    let ways: [(&str, Replace); 2] = [
        ("revert", |s| s.engine.revert("vol1", "before").unwrap()),
        ("deletion", |s| {
            s.vfs.publish(Vec::new());
            s.engine.delete_volume("vol1").unwrap();
        }),
    ];
    for (what, replace) in ways {
        claim_everything(&s, &other);
        replace(&mut s);
        assert_eq!(lost(), owners, "{what}");
        let totals = s.vfs.claims.totals();
        let none = (0, 0, 0, 0);
        assert_eq!(
            (totals.held, totals.grants, totals.waiting, totals.bytes),
            none,
            "{what}"
        );
        let status = write(&s, &file, 0);
        assert_eq!(status, if what == "revert" { OK } else { 70 }, "{what}");
    }
}

#[test]
fn caches_end_when_a_destination_shows_another_snapshot() {
    let s = Server::new();
    let file = s.create(&s.root(), b"file", 0o644);
    let other = Other::new(&s, &file);
    other.open(&s, Modes::READ, Modes::NONE);
    other.cache(&s, CacheRights::READ_HANDLE);
    s.vfs
        .claims
        .revoke_caches(weir_base::VolumeId(s.volume.id().0 + 1));
    assert_eq!(other.notices.0.lock().unwrap().len(), 0);
    s.vfs.claims.revoke_caches(s.volume.id());
    let revoked = Notice::Revoked {
        file: other.file,
        owner: other.owner.clone(),
    };
    assert_eq!(*other.notices.0.lock().unwrap(), [revoked]);
    let totals = s.vfs.claims.totals();
    assert_eq!((totals.held, totals.grants), (1, 0), "the open stays");
    assert_eq!(write(&s, &file, 0), OK);
}

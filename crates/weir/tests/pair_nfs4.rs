//! State of NFSv4.2 clients over a takeover: opens, locks, and requests that are carried out once.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use pairs::{World, does};
use weir_testclient::compound::{
    BAD_STATEID, BADSESSION, DENIED, GRACE, OK, Ops, READ_WRITE, UNCHECKED, UNSTABLE,
};
use weir_testclient::nfs4::Client4;

/// WRITE_LT, of the first 100 bytes.
const EXCLUSIVE: (u32, (u64, u64)) = (2, (0, 100));

/// State of two clients at the primary, and a request of the first with an unknown outcome.
struct Before {
    holder: Client4,
    other: Client4,
    file: Vec<u8>,
    state: Vec<u8>,
    verifier: Vec<u8>,
    root: Vec<u8>,
    removal: Ops,
}

fn before(world: &World) -> Before {
    let mut holder = Client4::new(world.a.nfs, "holder");
    let mut other = Client4::new(world.a.nfs, "other");
    let root = holder.volume();
    let (file, state) = holder.open("file");
    holder.open("removed");
    other.open("another");
    let mut r = holder.run(
        &Ops::new()
            .fh(&file)
            .lock(EXCLUSIVE.0, EXCLUSIVE.1, &state, "l"),
    );
    r.ok(22);
    r.locked();
    let write = Ops::new()
        .fh(&file)
        .write_as(UNSTABLE, &state, 0, b"unstable");
    let mut r = holder.run(&write);
    r.ok(22);
    let (8, 0, verifier) = r.written() else {
        panic!("what is not stable is so")
    };
    let removal = holder.request(&Ops::new().fh(&root).remove("removed"));
    assert_eq!(holder.sends(&removal).status, OK);
    Before {
        holder,
        other,
        file,
        state,
        verifier,
        root,
        removal,
    }
}

/// At the new primary; returns the write verifier there.
fn after(mut was: Before, world: &World) -> Vec<u8> {
    let (holder, other) = (&mut was.holder, &mut was.other);
    holder.moves(world.b.nfs);
    other.moves(world.b.nfs);
    // As if the reply had been lost: it is carried out once, in the session that was.
    let mut again = holder.sends(&was.removal);
    assert_eq!(again.status, OK);
    again.ok(22);
    again.ok(28);
    let new = holder.request(&Ops::new().fh(&was.root).remove("file"));
    assert_eq!(holder.sends(&new).status, BADSESSION);
    holder.introduce();
    other.introduce();
    // Nobody else gets what may be claimed again.
    assert_eq!(other.run(&Ops::new().reclaim_complete()).status, OK);
    let open = Ops::new()
        .fh(&was.root)
        .open("file", "o", READ_WRITE, Some(UNCHECKED))
        .getfh();
    let mut r = other.run(&open);
    assert_eq!(r.status, OK, "an open that denies nothing takes nothing");
    r.ok(22);
    let theirs = r.opened();
    let lock = Ops::new()
        .fh(&was.file)
        .lock(EXCLUSIVE.0, EXCLUSIVE.1, &theirs, "m");
    assert_eq!(other.run(&lock).status, GRACE);
    let stale = Ops::new().fh(&was.file).write(&was.state, 0, b"x");
    assert_eq!(holder.run(&stale).status, BAD_STATEID);
    let mut r = holder.run(&Ops::new().fh(&was.file).open_again("o", READ_WRITE));
    r.ok(22);
    let state = r.opened();
    let mut r = holder.run(&Ops::new().fh(&was.file).lock_again(
        EXCLUSIVE.0,
        EXCLUSIVE.1,
        &state,
        "l",
    ));
    r.ok(22);
    r.locked();
    // All that were there have come back: the time for claims ends.
    assert_eq!(holder.run(&Ops::new().reclaim_complete()).status, OK);
    assert_eq!(other.run(&lock).status, DENIED);
    let mut r = holder.run(&Ops::new().fh(&was.file).read(&state, 0, 100));
    r.ok(22);
    assert_eq!(r.data(), b"unstable");
    let write = Ops::new()
        .fh(&was.file)
        .write_as(UNSTABLE, &state, 0, b"stable..");
    let mut r = holder.run(&write);
    r.ok(22);
    r.written().2
}

#[test]
fn opens_and_locks_are_claimed_again_where_the_standby_has_taken_over() {
    let mut world = World::in_sync();
    let was = before(&world);
    let verifier = was.verifier.clone();
    world.a.process().kill();
    world.b.serves();
    assert_ne!(after(was, &world), verifier, "data may have been lost");
}

#[test]
fn opens_and_locks_are_claimed_again_after_a_switch_and_nothing_is_written_again() {
    let world = World::in_sync();
    let was = before(&world);
    let verifier = was.verifier.clone();
    does(&["pair", "switch", "--data", world.a.data()]);
    world.b.serves();
    assert_eq!(after(was, &world), verifier);
}

#[test]
fn a_client_that_stays_away_after_a_switch_holds_up_its_own_files_alone() {
    let world = World::in_sync();
    let mut was = before(&world);
    does(&["pair", "switch", "--data", world.a.data()]);
    world.b.serves();
    // The holder does not come. The other one has nothing to claim again.
    let other = &mut was.other;
    other.moves(world.b.nfs);
    other.introduce();
    assert_eq!(other.run(&Ops::new().reclaim_complete()).status, OK);
    let (new, state) = other.open("new");
    let write = Ops::new().fh(&new).write(&state, 0, b"x");
    assert_eq!(other.run(&write).status, OK);
    let lock = Ops::new()
        .fh(&new)
        .lock(EXCLUSIVE.0, EXCLUSIVE.1, &state, "m");
    assert_eq!(other.run(&lock).status, OK);
    let rename = Ops::new().fh(&was.root).remove("new");
    assert_eq!(other.run(&rename).status, OK);
    let (_, theirs) = other.open("file");
    let lock = Ops::new()
        .fh(&was.file)
        .lock(EXCLUSIVE.0, EXCLUSIVE.1, &theirs, "m");
    assert_eq!(
        other.run(&lock).status,
        GRACE,
        "until the holder had its time"
    );
}

//! Transfers between two engines, over a pipe in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Machine, change, create, dump, finish, fixed_time, run, transfer, write};
use weir_base::{Rng, SeededRng};
use weir_transfer::batch::Forgery;
use weir_transfer::pipe::{Pipe, Ran};
use weir_transfer::progress::{Phase, TransferError};
use weir_transfer::receive::{Receiver, SnapshotRange};
use weir_transfer::send::SendOptions;
use weir_transfer::wire::Reason;
use weir_volume::{CreateHow, FsError, SetAttr, Stop};

#[test]
fn a_copy_and_its_updates_equal_the_source() {
    let rng = SeededRng::new(1);
    let (a, b) = (Machine::new(1), Machine::new(2));
    let (source, target) = (a.format(), b.format());
    let src = a.volume(&source, "src");
    let dst = b.destination(&target, "dst");
    assert!(matches!(dst.serving(), Err(Stop::Fail(FsError::Access))));
    let mut before: Option<String> = None;
    for round in 0..8 {
        change(&src, &rng, 60);
        let name = format!("s{round}");
        src.snapshot_take(&name, "daily", fixed_time()).unwrap();
        let options = SendOptions {
            compress: (round % 2 == 1).then_some(3),
            count: true,
        };
        let mut pipe = Pipe::new(&src, before.as_deref(), &name, &dst, options, 0).unwrap();
        let id = finish(&mut pipe).unwrap();
        let (sent, received) = (pipe.sender.progress(), pipe.receiver.progress());
        assert_eq!(src.snapshot_delete(&name), Err(FsError::Busy));
        drop(pipe);
        assert_eq!((sent.logical, sent.wire), (received.logical, received.wire));
        assert_eq!(received.phase, Phase::Done);
        let total = received.total.unwrap();
        assert!(
            received.logical.abs_diff(total) <= total / 50 + 100,
            "{received:?}"
        );
        let view = dst.serving().unwrap().unwrap();
        assert_eq!(view.fsid(), dst.fsid());
        let want = dump(&src.open_snapshot(&name).unwrap());
        assert_eq!(dump(&view), want);
        assert_eq!(dump(&dst.open_snapshot(&name).unwrap()), want);
        let (x, y) = (src.snapshot(&name).unwrap(), dst.snapshot(&name).unwrap());
        assert_eq!(y.id, id);
        assert_eq!(
            (x.identity, x.created, &x.label),
            (y.identity, y.created, &y.label)
        );
        assert_eq!(x.referenced, y.referenced);
        assert_eq!(dst.snapshot_delete(&name), Err(FsError::Busy));
        if let Some(before) = before.replace(name) {
            dst.snapshot_delete(&before).unwrap();
            src.snapshot_delete(&before).unwrap();
        }
    }
    // No client writes to it.
    let set = SetAttr::default();
    let made = run(&dst, |cx| {
        dst.create(cx, dst.root(), b"x", CreateHow::Guarded, &set)
    });
    assert_eq!(made.map(|_| ()), Err(FsError::ReadOnly));
    assert_eq!(
        dst.snapshot_take("own", "", fixed_time()),
        Err(FsError::ReadOnly)
    );
    drop((src, dst));
    source.shutdown().unwrap();
    target.shutdown().unwrap();
    drop((source, target));
    for machine in [a, b] {
        let report = machine.check();
        assert!(report.clean(), "{report}");
    }
}

/// The end of a transfer waits for a checkpoint that includes all of it, not for one that had begun
/// before.
#[test]
fn what_has_come_is_proven_while_others_make_checkpoints() {
    let machine = Machine::new(41);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    let file = create(&src, src.root(), "file");
    // The more volumes a checkpoint takes, the longer it takes to begin.
    let others: Vec<_> = (0..24)
        .map(|n| machine.volume(&engine, &format!("o{n}")))
        .map(|v| (create(&v, v.root(), "file"), v))
        .collect();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                others
                    .iter()
                    .for_each(|(file, v)| write(v, *file, 0, &[1; 8]));
                engine.cp_now().unwrap();
            }
        });
        let mut base: Option<String> = None;
        let done = (0..1200_u32).try_for_each(|round| {
            write(&src, file, 0, &round.to_le_bytes());
            let name = format!("s{round}");
            src.snapshot_take(&name, "", fixed_time())
                .map_err(|e| e.to_string())?;
            let sent = transfer(&src, base.as_deref(), &name, &dst);
            sent.map_err(|e| format!("{name}: {e}"))?;
            if let Some(before) = base.replace(name) {
                dst.snapshot_delete(&before).map_err(|e| e.to_string())?;
                src.snapshot_delete(&before).map_err(|e| e.to_string())?;
            }
            Ok::<_, String>(())
        });
        stop.store(true, Ordering::Relaxed);
        done
    });
    assert_eq!(done, Ok(()));
}

/// Returns a file's change counter and content as clients of a destination see them.
fn read_served(dst: &std::sync::Arc<weir_volume::Volume>, file: weir_base::Ino) -> (u64, Vec<u8>) {
    let view = dst.serving().unwrap().unwrap_or_else(|| dst.clone());
    let attr = run(&view, |cx| view.getattr(cx, file)).unwrap();
    let data = run(&view, |cx| view.read(cx, file, 0, 8)).unwrap();
    (attr.change, data.to_vec())
}

/// The source's counter continues from where the copy began, and so does the copy's once it is
/// broken off: with the same values, but for other contents.
#[test]
fn a_destination_shows_one_change_value_for_one_content() {
    let machine = Machine::new(31);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    let file = create(&src, src.root(), "file");
    let mut seen = std::collections::BTreeMap::new();
    let mut last = 0;
    let mut look = || {
        let (change, data) = read_served(&dst, file);
        assert!(change >= last, "from {last} back to {change}");
        last = change;
        let known = seen.insert(change, data.clone());
        assert!(
            known.as_ref().is_none_or(|known| *known == data),
            "{change}: {known:?}, {data:?}"
        );
    };
    write(&src, file, 0, &[1; 8]);
    src.snapshot_take("s0", "", fixed_time()).unwrap();
    transfer(&src, None, "s0", &dst).unwrap();
    look();
    let mut base = "s0".to_owned();
    for round in 1..5u8 {
        engine.break_off("dst").unwrap();
        look();
        for step in 0..3 {
            write(&dst, file, 0, &[100 + round, step]);
            look();
        }
        let identity = src.snapshot(&base).unwrap().identity;
        engine.resync("dst", identity).unwrap();
        look();
        for step in 0..round {
            write(&src, file, 0, &[round, step]);
        }
        let next = format!("s{round}");
        src.snapshot_take(&next, "", fixed_time()).unwrap();
        transfer(&src, Some(&base), &next, &dst).unwrap();
        look();
        base = next;
    }
}

#[test]
fn an_update_costs_what_has_changed() {
    let machine = Machine::new(3);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    for i in 0..3000 {
        create(&src, src.root(), &format!("file-{i}"));
    }
    let big = create(&src, src.root(), "big");
    for mib in 0..8 {
        write(&src, big, mib << 20, &[mib as u8 + 1; 1 << 20]);
    }
    src.snapshot_take("one", "", fixed_time()).unwrap();
    let whole = transfer(&src, None, "one", &dst).unwrap();
    assert!(
        whole.logical > 8 << 20 && whole.logical < 10 << 20,
        "{whole:?}"
    );
    write(&src, big, 5 << 20, &[99; 4096]);
    create(&src, src.root(), "new");
    src.snapshot_take("two", "", fixed_time()).unwrap();
    let update = transfer(&src, Some("one"), "two", &dst).unwrap();
    assert!(update.logical < 6000, "{update:?}");
    let seen = dump(&dst.serving().unwrap().unwrap());
    assert_eq!(seen, dump(&src.open_snapshot("two").unwrap()));
    // A repeated transfer finds the snapshot there already.
    let again = transfer(&src, Some("one"), "two", &dst).unwrap();
    assert_eq!(again.logical, 0);
    // A transfer cannot build on a snapshot that the destination's readers do not see.
    src.snapshot_take("three", "", fixed_time()).unwrap();
    let refused = transfer(&src, Some("one"), "three", &dst);
    let Err(TransferError::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.reason, Reason::NoCommonSnapshot);
}

#[test]
fn what_is_cut_short_goes_on_behind_its_checkpoint() {
    let (mut cuts, mut reports) = (0, 0);
    for seed in 0..12 {
        let rng = SeededRng::new(seed);
        let machine = Machine::new(seed);
        let mut engine = machine.format();
        let src = machine.volume(&engine, "src");
        machine.destination(&engine, "dst");
        change(&src, &rng, 120);
        src.snapshot_take("one", "", fixed_time()).unwrap();
        let mut base: Option<&str> = None;
        let mut last = 0;
        for target in ["one", "two"] {
            // Data that the destination has reported as durable survives a crash.
            let mut acked = 0;
            loop {
                let (src, dst) = (engine.volume("src").unwrap(), engine.volume("dst").unwrap());
                let visible = base.map(|base| dump(&src.open_snapshot(base).unwrap()));
                let mut pipe =
                    Pipe::new(&src, base, target, &dst, SendOptions::default(), 0).unwrap();
                let frames = 2 + rng.below(24) as usize;
                let mut done = pipe.run(frames, 0).unwrap();
                if done == Ran::More && rng.below(2) == 0 {
                    engine.cp_now().unwrap();
                    // Reported with the next frames.
                    done = pipe.run(1 + rng.below(3) as usize, 0).unwrap();
                }
                let progress = pipe.receiver.progress();
                assert!(progress.resumed >= acked, "{} of {acked}", progress.resumed);
                acked = pipe.sender.progress().durable;
                reports += usize::from(acked > progress.resumed);
                assert!(progress.logical >= last);
                last = progress.logical;
                if done != Ran::More {
                    break;
                }
                cuts += 1;
                drop(pipe);
                let seen = match dst.serving() {
                    Ok(view) => Some(dump(&view.unwrap())),
                    Err(Stop::Fail(FsError::Access)) => None,
                    Err(stop) => panic!("{stop:?}"),
                };
                assert_eq!(seen, visible);
                match rng.below(3) {
                    // Within the same process nothing is lost.
                    0 => {}
                    // A checkpoint, then a crash: nothing is lost either.
                    1 => {
                        engine.cp_now().unwrap();
                        drop((src, dst, engine));
                        assert!(machine.check().clean(), "{}", machine.check());
                        engine = machine.open();
                    }
                    // A crash: back to the last checkpoint.
                    _ => {
                        drop((src, dst, engine));
                        assert!(machine.check().clean(), "{}", machine.check());
                        engine = machine.open();
                        last = 0;
                    }
                }
            }
            let (src, dst) = (engine.volume("src").unwrap(), engine.volume("dst").unwrap());
            let seen = dump(&dst.serving().unwrap().unwrap());
            assert_eq!(seen, dump(&src.open_snapshot(target).unwrap()));
            if target == "one" {
                change(&src, &rng, 120);
                src.snapshot_take("two", "", fixed_time()).unwrap();
            }
            base = Some("one");
            last = 0;
        }
        drop(src);
        engine.shutdown().unwrap();
        drop(engine);
        let report = machine.check();
        assert!(report.clean(), "{report}");
    }
    assert!(cuts > 20 && reports > 5, "{cuts}, {reports}");
}

#[test]
fn a_break_and_a_resync_go_back_to_what_was_complete() {
    let rng = SeededRng::new(9);
    let machine = Machine::new(9);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    assert_eq!(engine.break_off("dst"), Err(FsError::Invalid));
    change(&src, &rng, 60);
    src.snapshot_take("one", "", fixed_time()).unwrap();
    transfer(&src, None, "one", &dst).unwrap();
    let one = dump(&src.open_snapshot("one").unwrap());
    change(&src, &rng, 60);
    src.snapshot_take("two", "", fixed_time()).unwrap();
    // Half of an update, then a break.
    let mut pipe = Pipe::new(&src, Some("one"), "two", &dst, SendOptions::default(), 0).unwrap();
    assert_eq!(pipe.run(8, 0).unwrap(), Ran::More);
    assert_eq!(engine.break_off("dst"), Err(FsError::Busy));
    drop(pipe);
    engine.cp_now().unwrap();
    engine.break_off("dst").unwrap();
    assert_eq!(dst.mirror(), None);
    assert!(dst.serving().unwrap().is_none());
    assert_eq!(dump(&dst), one);
    // The destination is writable, and its own inodes collide with none of the source's.
    let own = create(&dst, dst.root(), "own");
    assert!(own.0 > create(&src, src.root(), "its").0 + (1 << 30));
    dst.snapshot_take("mine", "", fixed_time()).unwrap();
    let refused = Pipe::new(&src, Some("one"), "two", &dst, SendOptions::default(), 0);
    assert!(refused.is_err());
    // Reverse direction: the copy's changes go to the source.
    engine
        .resync("src", src.snapshot("one").unwrap().identity)
        .unwrap();
    let back = transfer(&dst, Some("one"), "mine", &src).unwrap();
    assert!(back.logical < 4000, "{back:?}");
    assert_eq!(
        dump(&src.serving().unwrap().unwrap()),
        dump(&dst.open_snapshot("mine").unwrap())
    );
    let (x, y) = (dst.snapshot("mine").unwrap(), src.snapshot("mine").unwrap());
    assert_eq!(x.identity, y.identity);
    assert_eq!(src.snapshot("two"), None);
    // And the original direction again.
    engine.break_off("src").unwrap();
    change(&src, &rng, 30);
    src.snapshot_take("three", "", fixed_time()).unwrap();
    engine
        .resync("dst", dst.snapshot("mine").unwrap().identity)
        .unwrap();
    transfer(&src, Some("mine"), "three", &dst).unwrap();
    assert_eq!(
        dump(&dst.serving().unwrap().unwrap()),
        dump(&src.open_snapshot("three").unwrap())
    );
    drop((src, dst));
    engine.shutdown().unwrap();
    drop(engine);
    let report = machine.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn another_transfer_discards_what_a_first_one_left() {
    let rng = SeededRng::new(4);
    let machine = Machine::new(4);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    for name in ["one", "two"] {
        change(&src, &rng, 80);
        src.snapshot_take(name, "", fixed_time()).unwrap();
        let mut pipe = Pipe::new(&src, None, name, &dst, SendOptions::default(), 0).unwrap();
        pipe.run(10, 0).unwrap();
        assert_eq!(pipe.receiver.progress().resumed, 0);
        drop(pipe);
        engine.cp_now().unwrap();
        assert!(dst.mirror().unwrap().partial.is_some());
    }
    transfer(&src, None, "two", &dst).unwrap();
    assert_eq!(
        dump(&dst.serving().unwrap().unwrap()),
        dump(&src.open_snapshot("two").unwrap())
    );
    engine.delete_volume("dst").unwrap();
    drop((src, dst));
    engine.shutdown().unwrap();
    drop(engine);
    let report = machine.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn a_damaged_stream_never_becomes_visible() {
    let rng = SeededRng::new(5);
    let machine = Machine::new(5);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    change(&src, &rng, 60);
    src.snapshot_take("one", "", fixed_time()).unwrap();
    transfer(&src, None, "one", &dst).unwrap();
    let one = dump(&src.open_snapshot("one").unwrap());
    change(&src, &rng, 60);
    src.snapshot_take("two", "", fixed_time()).unwrap();
    let mut failed = 0;
    for round in 0..200 {
        let options = SendOptions {
            compress: (round % 2 == 0).then_some(1),
            count: false,
        };
        let mut pipe = Pipe::new(&src, Some("one"), "two", &dst, options, 0).unwrap();
        let which = rng.below(6);
        let mut frame = 0;
        let end = (0..60).find_map(|_| {
            let ran = pipe.step(0, &mut |bytes| {
                if frame == which {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
                frame += 1;
            });
            match ran {
                Ok(Ran::More) => None,
                other => Some(other),
            }
        });
        assert!(!matches!(end, Some(Ok(_))), "{end:?}");
        failed += u32::from(end.is_some());
        drop(pipe);
        assert_eq!(dump(&dst.serving().unwrap().unwrap()), one);
        engine.discard_partial("dst").unwrap();
    }
    assert!(failed > 150, "{failed}");
    transfer(&src, Some("one"), "two", &dst).unwrap();
    assert_eq!(
        dump(&dst.serving().unwrap().unwrap()),
        dump(&src.open_snapshot("two").unwrap())
    );
}

/// A valid stream that does not have the source's tree: only the comparison at the end can detect
/// it.
#[test]
fn what_fails_the_proof_is_not_shown() {
    let rng = SeededRng::new(60);
    let machine = Machine::new(61);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    change(&src, &rng, 40);
    src.snapshot_take("one", "", fixed_time()).unwrap();
    let first = dst.mirror().unwrap();
    for how in [Forgery::Attributes, Forgery::Contents, Forgery::Omission] {
        let mut pipe = Pipe::new(&src, None, "one", &dst, SendOptions::default(), 0).unwrap();
        pipe.forger.how = Some(how);
        let failed = finish(&mut pipe);
        assert!(pipe.forger.forged, "{how:?}");
        assert!(
            matches!(failed, Err(TransferError::Different(_))),
            "{how:?}: {failed:?}"
        );
        drop(pipe);
        assert_eq!(
            dst.mirror().unwrap(),
            first,
            "{how:?}: all of it is discarded"
        );
        assert!(matches!(dst.serving(), Err(Stop::Fail(FsError::Access))));
    }
    transfer(&src, None, "one", &dst).unwrap();
    let one = dump(&src.open_snapshot("one").unwrap());
    change(&src, &rng, 40);
    src.snapshot_take("two", "", fixed_time()).unwrap();
    for how in [Forgery::Attributes, Forgery::Contents, Forgery::Omission] {
        let mut pipe =
            Pipe::new(&src, Some("one"), "two", &dst, SendOptions::default(), 0).unwrap();
        pipe.forger.how = Some(how);
        let failed = finish(&mut pipe);
        assert!(pipe.forger.forged, "{how:?}");
        let Err(TransferError::Different(found)) = failed else {
            panic!("{how:?}: {failed:?}");
        };
        assert_eq!((found.name.as_str(), found.base), ("two", false));
        drop(pipe);
        // The destination has only the last good snapshot, and clients see it.
        assert_eq!(dst.mirror().unwrap().partial, None);
        assert_eq!(dump(&dst.serving().unwrap().unwrap()), one, "{how:?}");
        assert_eq!(dst.snapshots().len(), 1);
    }
    transfer(&src, Some("one"), "two", &dst).unwrap();
    assert_eq!(
        dump(&dst.serving().unwrap().unwrap()),
        dump(&src.open_snapshot("two").unwrap())
    );
    drop((src, dst));
    engine.shutdown().unwrap();
    drop(engine);
    let report = machine.check();
    assert!(report.clean(), "{report}");
}

/// Two aggregates made from one image assign the same identities, even at the same moment.
#[test]
fn a_base_that_is_not_the_same_is_not_built_upon() {
    let (one, other, third) = (Machine::new(70), Machine::new(70), Machine::new(71));
    let (a, b, c) = (one.format(), other.format(), third.format());
    let (x, y) = (one.volume(&a, "src"), other.volume(&b, "src"));
    let dst = third.destination(&c, "dst");
    create(&x, x.root(), "file");
    create(&y, y.root(), "else");
    for vol in [&x, &y] {
        vol.snapshot_take("one", "", fixed_time()).unwrap();
        create(vol, vol.root(), "later");
        vol.snapshot_take("two", "", fixed_time()).unwrap();
    }
    let identity = |vol: &weir_volume::Volume| vol.snapshot("one").unwrap().identity;
    assert_eq!(
        identity(&x),
        identity(&y),
        "the generators were seeded alike"
    );
    transfer(&x, None, "one", &dst).unwrap();
    let seen = dump(&dst.serving().unwrap().unwrap());
    let failed = transfer(&y, Some("one"), "two", &dst);
    let Err(TransferError::Different(found)) = failed else {
        panic!("{failed:?}");
    };
    assert!(
        found.base && found.source_content != found.destination,
        "{found}"
    );
    // An existing snapshot is not taken for another one offered under its identity.
    let failed = transfer(&y, None, "one", &dst);
    assert!(
        matches!(failed, Err(TransferError::Different(_))),
        "{failed:?}"
    );
    assert_eq!(dump(&dst.serving().unwrap().unwrap()), seen);
    transfer(&x, Some("one"), "two", &dst).unwrap();
}

/// A snapshot other than the requested one is not accepted from the source.
#[test]
fn only_what_was_asked_for_is_received() {
    let machine = Machine::new(80);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    for name in ["one", "two"] {
        create(&src, src.root(), name);
        src.snapshot_take(name, "", fixed_time()).unwrap();
    }
    let mut pipe = Pipe::new(&src, None, "one", &dst, SendOptions::default(), 0).unwrap();
    let wanted = SnapshotRange {
        base: None,
        target: src.snapshot("two").unwrap().identity,
    };
    pipe.receiver = Receiver::new(&dst, wanted, 0).unwrap();
    let refused = finish(&mut pipe);
    assert!(
        matches!(refused, Err(TransferError::Refused(_))),
        "{refused:?}"
    );
}

/// The hash computed from a difference equals the hash computed from everything; it is stored, and
/// survives a restart.
#[test]
fn hashes_of_contents_are_incremental_and_lasting() {
    let rng = SeededRng::new(90);
    let machine = Machine::new(91);
    let engine = machine.format();
    let src = machine.volume(&engine, "src");
    let dst = machine.destination(&engine, "dst");
    let mut before = None;
    for round in 0..5 {
        change(&src, &rng, 30);
        let name = format!("s{round}");
        src.snapshot_take(&name, "", fixed_time()).unwrap();
        transfer(&src, before.as_deref(), &name, &dst).unwrap();
        before = Some(name);
    }
    let known = |vol: &weir_volume::Volume| -> Vec<_> {
        let all = vol.snapshots().into_iter();
        all.map(|s| vol.content(s.identity).expect("it is known"))
            .collect()
    };
    let hashes = known(&src);
    assert_eq!(hashes, known(&dst));
    drop((src, dst));
    engine.shutdown().unwrap();
    drop(engine);
    let engine = machine.open();
    let (src, dst) = (engine.volume("src").unwrap(), engine.volume("dst").unwrap());
    assert_eq!((known(&src), known(&dst)), (hashes.clone(), hashes.clone()));
    // A clone of the newest has the same records, but none of its stored hashes.
    let name = before.unwrap();
    engine.clone_volume("src", &name, "clone").unwrap();
    let clone = engine.volume("clone").unwrap();
    clone.snapshot_take("as it is", "", fixed_time()).unwrap();
    let identity = clone.snapshot("as it is").unwrap().identity;
    assert_eq!(clone.content(identity), None);
    let whole = clone.content_walk(identity).unwrap().finish().unwrap();
    assert_eq!(Some(&whole), hashes.last());
    assert_eq!(clone.content(identity), Some(whole));
}

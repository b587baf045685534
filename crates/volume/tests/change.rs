//! The change counter: one value never stands for two contents, whatever was lost or undone in
//! between.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::*;
use weir_base::Ino;
use weir_volume::{Engine, SetAttr, Stability, Volume};

/// The observations of a client that never forgets, for some files: the content by the counter, and
/// the highest counter.
#[derive(Default)]
struct Client {
    seen: HashMap<(Ino, u64), (Vec<u8>, u32)>,
    last: HashMap<Ino, u64>,
}

impl Client {
    fn look(&mut self, vol: &Volume, files: &[Ino]) {
        for file in files {
            let attr = run(vol, |cx| vol.getattr(cx, *file)).unwrap();
            let now = (read(vol, *file, 0, 100), attr.mode);
            let known = self.seen.insert((*file, attr.change), now.clone());
            assert!(
                known.as_ref().is_none_or(|known| *known == now),
                "{} names {known:?} and {now:?}",
                attr.change
            );
            let last = self.last.insert(*file, attr.change).unwrap_or(0);
            assert!(attr.change >= last, "from {last} back to {}", attr.change);
        }
    }
}

/// Simulates a power failure: changes that were not durable are lost.
fn crash_now(m: &Machine, engine: Engine, vol: Arc<Volume>) -> (Engine, Arc<Volume>) {
    drop((engine, vol));
    assert!(m.check().clean(), "{}", m.check());
    m.open()
}

fn files(vol: &Volume) -> [Ino; 3] {
    ["a", "b", "c"].map(|name| {
        let file = create(vol, vol.root(), name);
        write(vol, file, 0, name.as_bytes(), Stability::FileSync);
        file
    })
}

#[test]
fn a_value_shown_before_a_crash_is_not_shown_for_something_else_after_it() {
    let m = Machine {
        background: false,
        ..Machine::new(41)
    };
    let mut client = Client::default();
    let (mut engine, mut vol) = m.format();
    let all = files(&vol);
    let [a, b, c] = all;
    engine.cp_now().unwrap();
    client.look(&vol, &all);
    for life in 0..6u8 {
        for step in 0..4 {
            // Lost in most lives.
            write(&vol, a, 0, &[life, step], Stability::Unstable);
            client.look(&vol, &all);
        }
        match life {
            // Only the record of the start is in the log.
            0 | 3 => {}
            1 => write(&vol, b, 0, &[life; 3], Stability::FileSync),
            // The log is empty, and later changes are lost.
            _ => {
                engine.cp_now().unwrap();
                write(&vol, a, 1, &[life], Stability::Unstable);
                write(&vol, c, 0, &[life], Stability::Unstable);
            }
        }
        client.look(&vol, &all);
        (engine, vol) = crash_now(&m, engine, vol);
        client.look(&vol, &all);
    }
}

#[test]
fn a_clean_stop_leaves_the_counters_as_they_are() {
    let m = Machine::new(42);
    let (engine, vol) = m.format();
    let all = files(&vol);
    let counters = |vol: &Volume| all.map(|f| run(vol, |cx| vol.getattr(cx, f)).unwrap().change);
    let mut before = counters(&vol);
    engine.shutdown().unwrap();
    let set = SetAttr::default();
    let late = run(&vol, |cx| vol.setattr(cx, all[0], &set, None));
    assert_eq!(late.map(|_| ()), Err(weir_volume::FsError::Delay));
    drop((engine, vol));
    for clean in [true, true, false, true] {
        let (engine, vol) = m.open();
        assert_eq!(counters(&vol), before);
        assert!(!engine.recovered().unclean);
        if clean {
            engine.shutdown().unwrap();
            drop((engine, vol));
        } else {
            let (engine, vol) = crash_now(&m, engine, vol);
            assert!(engine.recovered().unclean);
            let after = counters(&vol);
            assert!(after.iter().zip(before).all(|(now, then)| *now > then));
            before = after;
            engine.shutdown().unwrap();
        }
    }
}

#[test]
fn a_value_shown_before_a_revert_is_not_shown_for_something_else_after_it() {
    let m = Machine::new(43);
    let mut client = Client::default();
    let (mut engine, mut vol) = m.format();
    let all = files(&vol);
    let [a, b, c] = all;
    vol.snapshot_create("then", fixed_time()).unwrap();
    for round in 0..5u8 {
        client.look(&vol, &all);
        write(&vol, a, 0, &[round, 1], Stability::Unstable);
        client.look(&vol, &all);
        write(&vol, b, 0, &[round, 2], Stability::FileSync);
        vol.snapshot_create(&format!("later-{round}"), fixed_time())
            .unwrap();
        write(&vol, b, 1, &[round, 3], Stability::Unstable);
        client.look(&vol, &all);
        if round % 2 == 1 {
            // Comes back with the volume, and its counter with it.
            write(&vol, c, 0, &[round; 9], Stability::Unstable);
            client.look(&vol, &all);
            run(&vol, |cx| vol.remove(cx, vol.root(), b"c")).unwrap();
        }
        let view = vol.open_snapshot("then").unwrap();
        let in_view = run(&view, |cx| view.getattr(cx, a)).unwrap().change;
        engine.revert("vol1", "then").unwrap();
        client.look(&vol, &all);
        assert_eq!(
            run(&view, |cx| view.getattr(cx, a)).unwrap().change,
            in_view,
            "a snapshot stays what it is"
        );
        if round == 2 {
            drop(view);
            engine.shutdown().unwrap();
            drop((engine, vol));
            (engine, vol) = m.open();
        }
    }
}

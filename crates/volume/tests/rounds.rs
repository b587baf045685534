//! Marks, rounds to them, and the trees that both keep.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::*;
use weir_base::Time;
use weir_volume::{EngineContext, FsError, Stability, Stop, StreamPosition, Volume};

/// A round brings a copy to a mark, and everything is reverted to before it. Once, the next mark of
/// the same term had the same number. The copy, which still had the first mark, took the difference
/// from the second one for a difference from its own.
#[test]
fn a_mark_that_is_gone_leaves_its_number_to_none() {
    let m = Machine::new(61);
    let (mut engine, mut vol) = m.format();
    let at = StreamPosition {
        term: 3,
        sequence: 0,
    };
    run(&vol, |_| engine.note_position(at)).unwrap();
    vol.snapshot_create("before", Time::EPOCH).unwrap();
    let mut last = engine.begin_round(None, None).unwrap().0.mark();
    for round in 0..9 {
        match round % 3 {
            0 => engine.revert(vol.name(), "before").unwrap(),
            _ => engine.drop_marks(|_| true).unwrap(),
        }
        assert_eq!(engine.marks(), []);
        if round > 2 {
            match round % 2 {
                0 => engine.shutdown().unwrap(),
                _ => engine.cp_now().unwrap(),
            }
            drop((engine, vol));
            (engine, vol) = m.open();
        }
        let mark = engine.begin_round(None, None).unwrap().0.mark();
        assert!(mark > last, "{mark} after {last}");
        last = mark;
    }
}

/// A volume is deleted while a round sends it, and while a client reads a snapshot of it. Once, the
/// blocks were freed under both, and had other contents by the time they were read.
#[test]
fn what_is_read_of_a_deleted_volume_is_kept_until_then() {
    let m = Machine::new(62);
    let (engine, vol) = m.format();
    let doomed = engine.create_volume("doomed", (0, 0), 0o755, Time::EPOCH, &*m.rng);
    let doomed = doomed.unwrap();
    let fill = |vol: &Volume, byte: u8| -> Result<(), FsError> {
        let file = create(vol, vol.root(), &format!("f{byte}"));
        let data = vec![byte; 1 << 18];
        for at in 0..8 {
            let put =
                |cx: &mut EngineContext| vol.write(cx, file, at << 18, &data, Stability::FileSync);
            run(vol, put)?;
        }
        engine.cp_now()
    };
    const FILES: u8 = 5;
    (1..=FILES).for_each(|n| fill(&doomed, n).unwrap());
    doomed.snapshot_create("s", Time::EPOCH).unwrap();
    engine.cp_now().unwrap();
    let view = doomed.open_snapshot("s").unwrap();
    let (mut round, _) = engine.begin_round(None, None).unwrap();
    for _ in 0..4 {
        round.advance().unwrap().unwrap();
    }
    engine.delete_volume("doomed").unwrap();
    assert_eq!(
        run(&view, |cx| view.getattr(cx, view.root())).err(),
        Some(FsError::Stale)
    );
    assert!(matches!(doomed.view(1), Err(Stop::Fail(FsError::Stale))));
    // New data in place of the freed blocks.
    let full = (FILES + 1..).find_map(|n| fill(&vol, n).err());
    assert_eq!(full, Some(FsError::NoSpace));
    let mut pages = Vec::new();
    while let Some(entry) = round.advance().unwrap() {
        pages.extend(entry.pages.iter().map(|page| page[0]));
    }
    for n in 1..=FILES {
        assert_eq!(
            pages.iter().filter(|byte| **byte == n).count(),
            512,
            "file {n}"
        );
    }
    assert_eq!(pages.len(), 512 * usize::from(FILES));
}

//! Cases that the stories leave out.

use super::*;

/// No client of the standby's has anything open there: the primary says when an inode without a
/// name ends.
#[test]
fn what_ends_with_its_last_pin_ends_at_the_standby() {
    let choices = Choices::new(1);
    let machine = Machine::new(Sizes::small(), &choices).unwrap();
    let mut diary = Vec::new();
    let mut story = Story::begin(&choices, machine, 2, &mut diary).unwrap();
    let mirror = story.mirror.get_mut();
    let (engine, vol) = (&story.running.engine, &story.running.volume);
    let records = engine.client_records();
    records.set(1, None).unwrap();
    records.end_grace();
    let mut cx = EngineContext::new(Time::EPOCH);
    let name = b"open";
    let made = vol.drive_blocking(&mut cx, |cx| {
        let set = SetAttr::default();
        vol.create(cx, vol.root(), name, CreateHow::Guarded, &set)
    });
    let ino = made.unwrap().value.ino;
    let pin = vol.drive_blocking(&mut cx, |cx| vol.pin(cx, ino)).unwrap();
    let gone = vol.drive_blocking(&mut cx, |cx| vol.remove(cx, vol.root(), name));
    gone.unwrap();
    finish_background_jobs(engine).unwrap();
    mirror.drain(engine).unwrap();
    mirror.partner.engine().unwrap().cp_now().unwrap();
    let there = Arc::clone(&mirror.partner.running.as_ref().unwrap().volume);
    let look = |cx: &mut EngineContext| there.getattr(cx, ino);
    assert!(there.drive_blocking(&mut cx, look).is_ok(), "it is open");
    drop(pin);
    finish_background_jobs(engine).unwrap();
    mirror.drain(engine).unwrap();
    assert_eq!(
        there.drive_blocking(&mut cx, look).map(drop),
        Err(FsError::Stale)
    );
    mirror.partner.machine.world.release_all(LOG);
    let standby = mirror.partner.engine().unwrap();
    finish_background_jobs(standby).unwrap();
    assert_eq!(engine.state_hash(), standby.state_hash());
}

/// Entries come in an order in which the changes of all threads can be done again, whatever that
/// order was.
#[test]
fn what_many_threads_do_is_the_same_at_the_standby() {
    let choices = Choices::new(4);
    let machine = Machine::new(Sizes::small(), &choices).unwrap();
    let mut diary = Vec::new();
    let mut story = Story::begin(&choices, machine, 2, &mut diary).unwrap();
    let mirror = story.mirror.get_mut();
    let (engine, vol) = (&story.running.engine, &story.running.volume);
    let mut failed = None;
    std::thread::scope(|scope| {
        let work = |thread: u8| {
            move || {
                for step in 0..120u32 {
                    let random = Choices::new(u64::from(step) << 8 | u64::from(thread));
                    many(vol, thread, &random).unwrap();
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        let snapshots = scope.spawn(|| {
            for n in 0..10 {
                vol.snapshot_create(&format!("s{n}"), Time::EPOCH).unwrap();
                engine.cp_now().unwrap();
            }
        });
        while !threads.iter().all(|thread| thread.is_finished()) || !snapshots.is_finished() {
            if let Err(what) = mirror.drain(engine) {
                // Nobody is to wait for it.
                engine.end_stream();
                failed = Some(what);
                break;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(failed, None);
    finish_background_jobs(engine).unwrap();
    mirror.drain(engine).unwrap();
    mirror.partner.machine.world.release_all(LOG);
    let standby = mirror.partner.engine().unwrap();
    finish_background_jobs(standby).unwrap();
    assert_eq!(engine.position(), standby.position());
    assert_eq!(engine.state_hash(), standby.state_hash());
}

/// One step of one of several threads on a few names that all of them use.
fn many(vol: &Arc<weir_volume::Volume>, thread: u8, random: &Choices) -> Result<(), FsError> {
    let mut cx = EngineContext::new(Time::EPOCH);
    let root = vol.root();
    let name = |n: u64| format!("n{n}").into_bytes();
    let (from, to) = (name(random.below(4)), name(random.below(4)));
    let set = SetAttr::default();
    let done = match random.below(6) {
        0 => vol
            .drive_blocking(&mut cx, |cx| vol.remove(cx, root, &from))
            .map(drop),
        1 => vol
            .drive_blocking(&mut cx, |cx| vol.rename(cx, root, &from, root, &to))
            .map(drop),
        _ => {
            let how = CreateHow::Unchecked;
            let made = vol
                .drive_blocking(&mut cx, |cx| vol.create(cx, root, &from, how, &set))?
                .value
                .ino;
            let data = vec![thread + 1; 1 + random.below(600_000) as usize];
            let off = random.below(50_000);
            let stability = match random.below(3) {
                0 => Stability::FileSync,
                _ => Stability::Unstable,
            };
            let written =
                vol.drive_blocking(&mut cx, |cx| vol.write(cx, made, off, &data, stability));
            written.and_then(|_| {
                let mut cx = EngineContext::new(Time::EPOCH);
                let commit = random.below(3) == 0;
                match commit {
                    true => vol
                        .drive_blocking(&mut cx, |cx| vol.commit(cx, made, 0, 0))
                        .map(drop),
                    false => Ok(()),
                }
            })
        }
    };
    match done {
        // Another thread was first.
        Err(FsError::NotFound | FsError::Stale | FsError::Exists | FsError::Delay) => Ok(()),
        done => done,
    }
}

/// The changes of a transfer are in no stream.
#[test]
fn an_aggregate_with_a_destination_has_no_stream() {
    let choices = Choices::new(2);
    let machine = Machine::new(Sizes::small(), &choices).unwrap();
    let running = machine.boot().unwrap();
    let engine = &running.engine;
    let rng = weir_base::SeededRng::new(3);
    let make = |name: &str| engine.create_volume(name, (0, 0), 0o755, machine.current_time(), &rng);
    make("copy").unwrap();
    engine.protect("copy").unwrap();
    let at = StreamPosition {
        term: 1,
        sequence: 0,
    };
    let begun = |at| engine.begin_stream(at, WINDOW).map(drop);
    assert_eq!(begun(at), Err(FsError::NotSupported));
    engine.delete_volume("copy").unwrap();
    make("late").unwrap();
    assert_eq!(begun(at), Ok(()));
    assert_eq!(begun(at), Err(FsError::Busy));
    assert_eq!(engine.protect("late"), Err(FsError::NotSupported));
    engine.end_stream();
    assert_eq!(engine.protect("late"), Ok(()));
}

//! Random verbs and events against a model of what is allowed.

use std::collections::BTreeMap;

use super::*;

/// The allowed actions of a relationship, stated independently of the manager.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ExpectedState {
    state: MirrorState,
    quiesced: bool,
    /// The job that was begun: whether it is a transfer, and whether it is being aborted.
    job: Option<(u64, bool)>,
}

#[test]
fn random_verbs_against_a_model() {
    for seed in 1..=60u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let disk = Disk::default();
        let mut m = disk.open();
        let mut model: BTreeMap<u64, ExpectedState> = BTreeMap::new();
        let mut now = START;
        for step in 0..400 {
            now = now.plus(next(20) as i64);
            let n = next(6);
            let to = path(&format!("s:d{n}"));
            let known = model.get(&n).copied();
            let idle = known.is_some_and(|k| k.job.is_none());
            let state = known.map(|k| k.state);
            let awake = known.is_some_and(|k| !k.quiesced);
            let mirrored = state == Some(MirrorState::Snapmirrored);
            let (verb, may) = match next(9) {
                0 => (create("s:src", &format!("s:d{n}")), known.is_none()),
                1 => {
                    let may = idle && awake && state == Some(MirrorState::Uninitialized);
                    (initialize(&to.to_string()), may)
                }
                2 => (update(&to.to_string()), idle && awake && mirrored),
                3 => (Verb::Quiesce(to.clone()), known.is_some()),
                4 => (Verb::Resume(to.clone()), known.is_some()),
                5 => {
                    let transfers = known.is_some_and(|k| k.job.is_some_and(|(_, moves)| moves));
                    let destination = to.clone();
                    let hard = next(2) == 0;
                    (Verb::Abort { destination, hard }, transfers)
                }
                6 => (Verb::Break(to.clone()), idle && mirrored),
                7 => {
                    let destination = to.clone();
                    let may =
                        idle && awake && state.is_some_and(|s| s != MirrorState::Uninitialized);
                    let source = None;
                    (
                        Verb::Resync {
                            destination,
                            source,
                        },
                        may,
                    )
                }
                _ => (Verb::Delete(to.clone()), idle),
            };
            let before = m.rows.clone();
            let answer = m.change(verb.clone(), &preconditions(), now);
            assert_eq!(
                answer.is_ok(),
                may,
                "seed {seed} step {step}: {verb:?} {known:?}: {answer:?}"
            );
            if !may {
                assert_eq!(m.rows, before);
            }
            let job = started(&mut m).pop();
            if may {
                let fresh = ExpectedState {
                    state: MirrorState::Uninitialized,
                    quiesced: false,
                    job: None,
                };
                match &verb {
                    Verb::Delete(_) => {
                        model.remove(&n);
                    }
                    verb => {
                        let entry = model.entry(n).or_insert(fresh);
                        match verb {
                            Verb::Quiesce(_) => entry.quiesced = true,
                            Verb::Resume(_) => entry.quiesced = false,
                            _ => {}
                        }
                        if let Some(job) = &job {
                            entry.job = Some((job.id, matches!(job.task, Task::Transfer(_))));
                        }
                    }
                }
            }
            // Something ends now and then.
            let busy: Vec<(u64, u64, bool)> = model
                .iter()
                .filter_map(|(n, e)| e.job.map(|(id, moves)| (*n, id, moves)))
                .collect();
            if let Some((n, id, moves)) = busy.get(next(busy.len() as u64 + 3) as usize) {
                let fails = next(4) == 0;
                let event = match fails {
                    true => Event::Ended(Err(Failure::Final("no".to_owned()))),
                    false => done(),
                };
                m.event(*id, event, now);
                let entry = model.get_mut(n).unwrap();
                entry.job = None;
                match (fails, moves) {
                    (true, _) => {}
                    (false, true) => entry.state = MirrorState::Snapmirrored,
                    (false, false) => {
                        entry.state = MirrorState::BrokenOff;
                        entry.quiesced = false;
                    }
                }
            }
            for (n, expected) in &model {
                let shown = m.relationship(&path(&format!("s:d{n}"))).unwrap();
                assert_eq!(shown.state, expected.state, "seed {seed} step {step}");
                let rests = matches!(shown.status, Status::Idle | Status::Quiesced);
                assert_eq!(
                    rests,
                    expected.job.is_none(),
                    "seed {seed} step {step}: {shown:?}"
                );
            }
            assert_eq!(m.relationships().len(), model.len());
            assert_eq!(
                disk.open().rows,
                m.rows,
                "seed {seed} step {step}: the disk is behind"
            );
        }
    }
}

use super::*;
use proptest::prelude::*;
use weir_base::{Ino, VolumeId};

fn file(n: u64) -> FileId {
    FileId {
        place: crate::Place::Live,
        volume: VolumeId(1),
        ino: Ino(n),
    }
}

fn owner(n: u32) -> Owner {
    Owner {
        client: Arc::from(&b"host"[..]),
        process: n,
        shown: Arc::from(&b""[..]),
    }
}

fn lock(n: u32, start: u64, length: u64, exclusive: bool) -> Lock {
    Lock {
        owner: owner(n),
        range: Range::new(start, length).unwrap(),
        exclusive,
    }
}

#[test]
fn ranges_reach_to_the_end_and_refuse_overflow() {
    assert_eq!(
        Range::new(5, 0),
        Some(Range {
            start: 5,
            last: u64::MAX
        })
    );
    assert_eq!(
        Range::new(u64::MAX, 1),
        Some(Range {
            start: u64::MAX,
            last: u64::MAX
        })
    );
    assert_eq!(Range::new(u64::MAX, 2), None);
    assert_eq!(Range::new(5, 3).unwrap().length(), 3);
    assert_eq!(Range::new(5, 0).unwrap().length(), 0);
}

#[test]
fn a_queue_is_served_in_order() {
    let t = LockTable::default();
    assert_eq!(
        t.lock(file(1), lock(1, 0, 10, true), true),
        Verdict::Granted
    );
    for n in 2..5 {
        assert_eq!(
            t.lock(file(1), lock(n, 0, 10, n == 2), true),
            Verdict::Queued
        );
    }
    // Asking again does not queue twice.
    assert_eq!(t.lock(file(1), lock(2, 0, 10, true), true), Verdict::Queued);
    assert_eq!(t.total(), 4);
    let granted = |g: Vec<Grant>| g.iter().map(|g| g.lock.owner.process).collect::<Vec<_>>();
    assert_eq!(
        granted(t.unlock(file(1), &owner(1), Range::new(0, 0).unwrap())),
        [2]
    );
    // Both readers go together.
    assert_eq!(
        granted(t.unlock(file(1), &owner(2), Range::new(0, 0).unwrap())),
        [3, 4]
    );
    assert!(t.holds(file(1), &lock(3, 2, 2, false)));
    assert!(!t.holds(file(1), &lock(3, 2, 2, true)));
    t.release(|c| **c == *b"host");
    assert_eq!(t.total(), 0);
}

#[test]
fn cancelled_requests_are_not_granted() {
    let t = LockTable::default();
    t.lock(file(1), lock(1, 0, 10, true), false);
    t.lock(file(1), lock(2, 0, 10, true), true);
    assert!(t.cancel(file(1), &lock(2, 0, 10, true)));
    assert!(!t.cancel(file(1), &lock(2, 0, 10, true)));
    assert!(
        t.unlock(file(1), &owner(1), Range::new(0, 0).unwrap())
            .is_empty()
    );
}

#[test]
fn circles_of_waiting_owners_are_refused() {
    let t = LockTable::default();
    for n in 1..4 {
        assert_eq!(
            t.lock(file(n.into()), lock(n, 0, 1, true), false),
            Verdict::Granted
        );
    }
    assert_eq!(t.lock(file(2), lock(1, 0, 1, true), true), Verdict::Queued);
    assert_eq!(t.lock(file(3), lock(2, 0, 1, true), true), Verdict::Queued);
    assert_eq!(
        t.lock(file(1), lock(3, 0, 1, true), true),
        Verdict::Deadlock
    );
    assert_eq!(t.lock(file(1), lock(3, 5, 1, true), true), Verdict::Granted);
    // Without waiting there is no circle.
    assert!(matches!(
        t.lock(file(1), lock(3, 0, 1, true), false),
        Verdict::Denied(_)
    ));
}

#[test]
fn reservations_exclude_what_they_deny() {
    let t = LockTable::default();
    assert_eq!(t.share(file(1), &owner(1), 1, 2), Verdict::Granted);
    assert_eq!(t.share(file(1), &owner(2), 1, 0), Verdict::Granted);
    assert!(matches!(
        t.share(file(1), &owner(3), 2, 0),
        Verdict::Denied(_)
    ));
    assert!(matches!(
        t.share(file(1), &owner(3), 1, 1),
        Verdict::Denied(_)
    ));
    t.unshare(file(1), &owner(1));
    assert_eq!(t.share(file(1), &owner(3), 2, 0), Verdict::Granted);
}

/// The model: for each byte, who holds it and how.
#[derive(Default, Clone)]
struct Model {
    bytes: Vec<Vec<(u32, bool)>>,
}

const BYTES: u64 = 40;
/// Starts are below this and lengths below half of it, so that only a range to
/// the end of the file passes the model's last byte.
const STARTS: u64 = 24;

impl Model {
    fn conflicts(&self, l: &Lock) -> bool {
        (l.range.start..=l.range.last.min(BYTES - 1)).any(|b| {
            self.bytes[b as usize]
                .iter()
                .any(|&(o, x)| o != l.owner.process && (x || l.exclusive))
        })
    }

    fn clear(&mut self, process: u32, r: Range) {
        for b in r.start..=r.last.min(BYTES - 1) {
            self.bytes[b as usize].retain(|&(o, _)| o != process);
        }
    }

    fn set(&mut self, l: &Lock) {
        self.clear(l.owner.process, l.range);
        for b in l.range.start..=l.range.last.min(BYTES - 1) {
            self.bytes[b as usize].push((l.owner.process, l.exclusive));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lock(u32, u64, u64, bool),
    Unlock(u32, u64, u64),
    Test(u32, u64, u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..STARTS, 0..STARTS / 2);
    let step = prop_oneof![
        (1..4u32, range(), any::<bool>()).prop_map(|(o, (s, l), x)| Step::Lock(o, s, l, x)),
        (1..4u32, range()).prop_map(|(o, (s, l))| Step::Unlock(o, s, l)),
        (1..4u32, range(), any::<bool>()).prop_map(|(o, (s, l), x)| Step::Test(o, s, l, x)),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(steps in steps()) {
        let t = LockTable::default();
        let mut model = Model { bytes: vec![Vec::new(); BYTES as usize] };
        for step in steps {
            match step {
                Step::Lock(o, s, l, x) => {
                    let want = lock(o, s, l, x);
                    let clash = model.conflicts(&want);
                    let got = t.lock(file(1), want.clone(), false);
                    prop_assert_eq!(matches!(got, Verdict::Denied(_)), clash);
                    if !clash {
                        prop_assert_eq!(got, Verdict::Granted);
                        model.set(&want);
                    }
                }
                Step::Unlock(o, s, l) => {
                    let r = Range::new(s, l).unwrap();
                    t.unlock(file(1), &owner(o), r);
                    model.clear(o, r);
                }
                Step::Test(o, s, l, x) => {
                    let want = lock(o, s, l, x);
                    prop_assert_eq!(t.test(file(1), &want).is_some(), model.conflicts(&want));
                }
            }
            // Nobody holds a byte twice, and every byte is as the model has it.
            let state = t.state.lock();
            let held = state.files.get(&file(1)).map(|f| f.held.as_slice()).unwrap_or_default();
            for b in 0..BYTES {
                let mut now: Vec<(u32, bool)> = held
                    .iter()
                    .filter(|l| l.range.start <= b && b <= l.range.last)
                    .map(|l| (l.owner.process, l.exclusive))
                    .collect();
                let mut want = model.bytes[b as usize].clone();
                now.sort();
                want.sort();
                prop_assert_eq!(now, want, "byte {}", b);
            }
            prop_assert_eq!(state.total, held.len());
        }
    }
}

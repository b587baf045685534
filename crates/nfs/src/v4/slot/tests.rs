use super::*;
use proptest::prelude::*;

fn results(seen: Option<SlotOutcome>) -> Result<Option<Vec<u8>>, Status> {
    match seen.expect("memory for the slot") {
        SlotOutcome::New => Ok(None),
        SlotOutcome::Answered(kept) => Ok(Some(kept.results.bytes.to_vec())),
        SlotOutcome::Refused(status) => Err(status),
    }
}

fn reply_of(bytes: Vec<u8>) -> Results {
    Results {
        bytes: bytes.into(),
        lsn: None,
        cut: None,
    }
}

/// The table in the words of RFC 8881 §2.10.6.1.
#[derive(Default, Clone)]
struct Naive {
    sequence: u32,
    /// The request that has it: nothing before the first.
    request: Option<u32>,
    busy: bool,
    reply: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Step {
    Begin { slot: u32, ahead: u32, request: u32 },
    End { slot: u32, keep: bool },
    Undo { slot: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u32, prop_oneof![Just(0u32), Just(1), Just(2), Just(u32::MAX)], 1..3u32)
            .prop_map(|(slot, ahead, request)| Step::Begin { slot, ahead, request }),
        4 => (0..3u32, any::<bool>()).prop_map(|(slot, keep)| Step::End { slot, keep }),
        1 => (0..3u32).prop_map(|slot| Step::Undo { slot }),
    ]
}

proptest! {
    #[test]
    fn slots_do_what_the_rfc_says(steps in proptest::collection::vec(step(), 1..80)) {
        let budget = Budget::new(1 << 20);
        let slots = Slots::new(3, &budget).unwrap();
        let rest = budget.used();
        let mut naive = vec![Naive::default(); 3];
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Begin { slot, ahead, request } => {
                    let Some(model) = naive.get_mut(slot as usize) else {
                        prop_assert_eq!(results(slots.begin(slot, 1, request)), Err(Status::BadSlot));
                        continue;
                    };
                    let sequence = model.sequence.wrapping_add(ahead);
                    let expected = match (ahead, model.request) {
                        (1, _) if model.busy => Err(Status::SeqMisordered),
                        (1, _) => {
                            *model = Naive { sequence, request: Some(request), busy: true, reply: None };
                            Ok(None)
                        }
                        (0, Some(_)) if model.busy => Err(Status::Delay),
                        (0, Some(first)) if first != request => Err(Status::SeqFalseRetry),
                        (0, Some(_)) => match &model.reply {
                            Some(reply) => Ok(Some(reply.clone())),
                            None => Err(Status::RetryUncachedRep),
                        },
                        _ => Err(Status::SeqMisordered),
                    };
                    prop_assert_eq!(results(slots.begin(slot, sequence, request)), expected);
                }
                Step::End { slot, keep } => {
                    let model = &mut naive[slot as usize];
                    if model.busy {
                        let reply = keep.then(|| vec![n as u8; 40]);
                        slots.end(slot, reply.clone().map(reply_of));
                        (model.busy, model.reply) = (false, reply);
                    }
                }
                Step::Undo { slot } => {
                    let model = &mut naive[slot as usize];
                    if model.busy {
                        slots.undo(slot);
                        let sequence = model.sequence.wrapping_sub(1);
                        *model = Naive { sequence, ..Naive::default() };
                    }
                }
            }
            let busy = naive.iter().any(|m| m.busy);
            prop_assert_eq!(slots.busy_beside(None), busy);
        }
        let kept = naive.iter().filter_map(|m| m.reply.as_ref());
        let bytes: usize = kept.map(|r| r.len() + KEPT_OVERHEAD).sum();
        prop_assert_eq!(budget.used(), rest + bytes);
    }
}

#[test]
fn sequence_numbers_wrap() {
    let slots = Slots::new(1, &Budget::new(1 << 20)).unwrap();
    // The sequence number of a client that began at 1, after 2^32 requests.
    slots.slot(0).unwrap().state.lock().sequence = u32::MAX;
    assert_eq!(results(slots.begin(0, 0, 5)), Ok(None));
    slots.end(0, None);
    assert_eq!(results(slots.begin(0, 0, 5)), Err(Status::RetryUncachedRep));
    assert_eq!(results(slots.begin(0, 1, 5)), Ok(None));
}

#[test]
fn slots_are_charged_when_they_are_used() {
    let table = 64 * size_of::<OnceLock<Group>>();
    let budget = Budget::new(table + bytes_of(2 * GROUP));
    assert!(Slots::new(10_000, &budget).is_none() && budget.used() == 0);
    let slots = Slots::new(1024, &budget).unwrap();
    assert_eq!(results(slots.begin(15, 1, 9)), Ok(None));
    assert_eq!(budget.used(), table + bytes_of(GROUP));
    assert_eq!(results(slots.begin(1023, 1, 9)), Ok(None));
    assert_eq!(budget.available(), 0);
    assert!(slots.begin(16, 1, 9).is_none() && slots.take_pressed());
    assert_eq!(results(slots.begin(1024, 1, 9)), Err(Status::BadSlot));
    slots.end(1023, None);
    assert_eq!(results(slots.begin(1008, 1, 9)), Ok(None));
    drop(slots);
    assert_eq!(budget.used(), 0);
}

#[test]
fn without_memory_replies_are_not_kept() {
    let budget = Budget::new(size_of::<OnceLock<Group>>() + bytes_of(2) + 10);
    let slots = Slots::new(2, &budget).unwrap();
    assert_eq!(results(slots.begin(1, 1, 9)), Ok(None));
    slots.end(1, Some(reply_of(vec![0; 100])));
    assert_eq!(results(slots.begin(1, 1, 9)), Err(Status::RetryUncachedRep));
    assert_eq!(slots.highest(), 1);
    drop(slots);
    assert_eq!(budget.used(), 0);
}

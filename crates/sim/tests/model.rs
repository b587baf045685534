//! The model and the generator against each other: every kind of operation must succeed and must
//! fail now and then, or a profile tests less than it claims.

#![allow(clippy::panic)]

use std::collections::BTreeMap;

use weir_base::Time;
use weir_sim::generate::{Generator, Profile};
use weir_sim::model::{Body, Kind, Model, ROOT, RootAttr, Rules, Slot};
use weir_sim::rand::Choices;

fn fresh() -> Model {
    Model::new(
        RootAttr {
            mode: 0o755,
            uid: 0,
            gid: 0,
            time: Time::EPOCH,
        },
        Rules::ENGINE,
    )
}

/// Link counts and parents follow from the entries.
fn assert_consistent(model: &Model) {
    let mut links: BTreeMap<Slot, u32> = BTreeMap::new();
    for (slot, node) in model.nodes() {
        let Body::Dir { entries, .. } = &node.body else {
            continue;
        };
        for child in entries.values() {
            *links.entry(*child).or_default() += 1;
            let Some(child) = model.node(*child) else {
                panic!("an entry of {slot:?} leads to an object that is gone");
            };
            if let Body::Dir { parent, .. } = &child.body {
                assert_eq!(*parent, slot);
            }
        }
    }
    for (slot, node) in model.nodes() {
        let named = links.get(&slot).copied().unwrap_or(0);
        if node.kind() == Kind::Dir {
            assert_eq!(named, u32::from(slot != ROOT));
        } else {
            assert_eq!(named, node.nlink);
        }
    }
}

#[test]
fn generated_sequences_are_rich_and_keep_the_model_consistent() {
    let mut outcomes: BTreeMap<(String, bool), u32> = BTreeMap::new();
    for seed in 0..20 {
        let choices = Choices::new(seed);
        let mut generator = Generator::new(choices.fork(), Profile::mixed());
        let mut model = fresh();
        for id in 1..1000u32 {
            let op = generator.next(&model);
            let now = Time {
                secs: i64::from(id),
                nanos: 0,
            };
            let result = model.apply(&op, now, Slot(id));
            let name: String = format!("{op:?}")
                .chars()
                .take_while(char::is_ascii_alphabetic)
                .collect();
            *outcomes.entry((name, result.is_ok())).or_default() += 1;
        }
        assert_consistent(&model);
        assert!(model.len() > 10, "seed {seed}: {} objects", model.len());
    }
    assert_eq!(
        outcomes.len(),
        42,
        "every operation succeeds and fails: {outcomes:#?}"
    );
    for (outcome, times) in outcomes {
        assert!(times >= 5, "{outcome:?} only {times} times");
    }
}

//! Names looked up in any case, against plain maps: random changes with checkpoints and restarts
//! between. A failure prints its seed.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::BTreeMap;

use common::{Machine, mkdir, names, run};
use weir_base::{Rng, SeededRng};
use weir_volume::{CreateHow, FsError, SetAttr, Volume};

/// Stems, each of which is spelled in several cases.
const STEMS: &[&str] = &["makefile", "a", "straße", "βάση", "жук", "ﬁ", "x\u{301}y"];

/// Each letter in upper case or unchanged. The standard library's mapping equals the format's for
/// these letters.
fn spelled(stem: &str, rng: &SeededRng) -> String {
    let upper = |c: char| {
        let mut all = c.to_uppercase();
        match (all.next(), all.next()) {
            (Some(one), None) if rng.below(2) == 0 => one,
            _ => c,
        }
    };
    stem.chars().map(upper).collect()
}

fn folded(name: &str) -> String {
    let upper = |c: char| {
        let all: Vec<char> = c.to_uppercase().collect();
        match all[..] {
            [one] => one,
            _ => c,
        }
    };
    name.chars().map(upper).collect()
}

/// Looks up a name in any case. Returns the stored name and its inode.
fn lookup_any_case(
    vol: &Volume,
    dir: weir_base::Ino,
    name: &str,
) -> Result<(String, u64), FsError> {
    let (found, stored) = run(vol, |cx| vol.lookup_folded(cx, dir, name.as_bytes()))?;
    Ok((String::from_utf8(stored.into()).unwrap(), found.ino.0))
}

fn story(seed: u64) {
    println!("seed {seed}");
    let rng = SeededRng::new(seed);
    let machine = Machine::new(seed);
    let (mut engine, mut vol) = machine.format();
    let dir = mkdir(&vol, vol.root(), "dir");
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    let any = || spelled(STEMS[rng.below(STEMS.len() as u64) as usize], &rng);
    for _ in 0..120 {
        let (name, other) = (any(), any());
        let set = SetAttr::default();
        match rng.below(20) {
            0..=7 => {
                let made = run(&vol, |cx| {
                    vol.create(cx, dir, name.as_bytes(), CreateHow::Unchecked, &set)
                });
                model.insert(name, made.unwrap().value.ino.0);
            }
            8..=12 => {
                let gone = run(&vol, |cx| vol.remove(cx, dir, name.as_bytes()));
                let expected = model.remove(&name).map(drop).ok_or(FsError::NotFound);
                assert_eq!(gone.map(drop), expected);
            }
            13..=16 => {
                let moved = run(&vol, |cx| {
                    vol.rename(cx, dir, name.as_bytes(), dir, other.as_bytes())
                });
                match model.remove(&name) {
                    Some(ino) => drop(model.insert(other, ino)),
                    None => assert_eq!(moved.map(drop), Err(FsError::NotFound)),
                }
            }
            17 | 18 => engine.cp_now().unwrap(),
            _ => {
                common::crash(engine, vol);
                (engine, vol) = machine.open();
            }
        }
        // The directory is listed in the order of the cookies.
        let listed: Vec<String> = names(&vol, dir).into_iter().map(|(_, name)| name).collect();
        assert_eq!(listed.len(), model.len());
        for asked in [any(), any()] {
            let variants = || listed.iter().filter(|n| folded(n) == folded(&asked));
            let found = variants().find(|n| **n == asked).or(variants().next());
            let expected = found
                .map(|n| (n.clone(), model[n]))
                .ok_or(FsError::NotFound);
            assert_eq!(
                lookup_any_case(&vol, dir, &asked),
                expected,
                "{asked} among {listed:?}"
            );
        }
    }
}

#[test]
fn names_are_found_in_any_case_as_the_model_says() {
    for seed in 1..=12 {
        story(seed);
    }
}

#[test]
fn what_is_no_name_is_refused_as_in_an_exact_lookup() {
    let (_engine, vol) = Machine::new(1).format();
    let root = vol.root();
    assert_eq!(lookup_any_case(&vol, root, ".").unwrap().1, root.0);
    assert_eq!(lookup_any_case(&vol, root, "..").unwrap().1, root.0);
    assert_eq!(lookup_any_case(&vol, root, "a/b"), Err(FsError::Invalid));
    assert_eq!(
        lookup_any_case(&vol, root, &"a".repeat(256)),
        Err(FsError::NameTooLong)
    );
    let file = common::create(&vol, root, "a");
    assert_eq!(lookup_any_case(&vol, file, "A"), Err(FsError::NotDir));
}

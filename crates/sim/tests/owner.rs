//! The simulated takeovers of an aggregate on RADOS, and that they notice each rule that is left
//! out.

#![allow(clippy::panic)]

use weir_sim::owner::{BUGS, run};
use weir_sim::rand::seeds;

#[test]
fn one_owner_answers_and_nothing_that_was_reported_is_lost() {
    let (mut takeovers, mut early, mut checkpoints) = (0, 0, 0);
    let seeds = seeds(100);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let counts = run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        takeovers += counts.takeovers;
        early += counts.early;
        checkpoints += counts.checkpoints;
    }
    println!(
        "{count} seeds: {takeovers} takeovers, {early} writes before the blocklist, {checkpoints} checkpoints"
    );
    assert!(takeovers > 2 * count && checkpoints > 10 * count && early > count);
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    for (bug, first) in BUGS {
        let found =
            (first..first + 4_000).find_map(|seed| Some((seed, run(seed, Some(bug)).err()?)));
        let Some((seed, why)) = found else {
            panic!("{bug:?} is not noticed");
        };
        println!("{bug:?}: seed {seed}: {why}");
    }
}

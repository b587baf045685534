//! The simulated large volumes, and that they notice each rule that is left out.

#![allow(clippy::panic)]

use weir_sim::large::{BUGS, run};
use weir_sim::rand::seeds;

#[test]
fn a_large_volume_is_one_tree_whatever_becomes_of_its_constituents() {
    let seeds = seeds(300);
    let count = seeds.end - seeds.start;
    let (mut changes, mut tokens, mut moves, mut settled, mut snapshots) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let counts = run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        changes += counts.changes;
        tokens += counts.tokens;
        moves += counts.moves;
        settled += counts.settled;
        snapshots += counts.snapshots;
    }
    println!(
        "{count} seeds: {changes} changes, {tokens} of several constituents, {moves} moves of \
         directories, {settled} parts settled after crashes, {snapshots} snapshots"
    );
    assert!(tokens > 10 * count && moves > count && settled > 5 * count && snapshots > count / 2);
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    for (bug, first) in BUGS {
        let found =
            (first..first + 2_000).find_map(|seed| Some((seed, run(seed, Some(bug)).err()?)));
        let Some((seed, why)) = found else {
            panic!("{bug:?} is not noticed");
        };
        println!("{bug:?}: seed {seed}: {why}");
    }
}

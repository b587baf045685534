//! The bounded fuzz run of the test suite: every target, a few thousand reproducible mutations.
//!
//! `WEIR_FUZZ_SEED` and `WEIR_FUZZ_COUNT` choose another run; see also `weir-sim fuzz`.

use weir_sim::fuzz::{mutate, targets};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn no_target_panics() {
    let seed = number("WEIR_FUZZ_SEED", 1);
    let count = number("WEIR_FUZZ_COUNT", 20_000);
    std::panic::set_hook(Box::new(|_| {}));
    let crashes: Vec<_> = targets()
        .iter()
        .filter_map(|target| mutate::run(target, seed, count).err())
        .collect();
    let _ = std::panic::take_hook();
    assert!(crashes.is_empty(), "seed {seed}: {crashes:#02x?}");
}

#[test]
fn every_target_has_valid_seeds_to_start_from() {
    for target in targets() {
        assert!(!(target.seeds)().is_empty(), "{}", target.name);
    }
}

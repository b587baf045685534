//! The simulated suites, some seeds each; `WEIR_SEEDS` and `WEIR_SEED`, or the `weir-sim` command,
//! run more.

#![allow(clippy::panic)]

use weir_sim::rand::seeds;
use weir_sim::suites::suite;

fn run(name: &str, count: u64) {
    let Some(suite) = suite(name) else {
        panic!("no suite {name}");
    };
    suite.run_all(seeds(count));
}

#[test]
fn the_engine_agrees_with_the_model_through_restarts() {
    run("restart", 100);
}

#[test]
fn what_was_acknowledged_survives_any_crash() {
    run("crash", 200);
}

#[test]
fn volumes_and_snapshots_hold_their_history() {
    run("histories", 120);
}

#[test]
fn a_copy_is_always_some_snapshot_of_its_source() {
    run("mirrors", 60);
}

#[test]
fn a_large_volume_is_one_tree_over_volumes_of_the_engine() {
    run("large-engine", 40);
}

#[test]
fn a_standby_holds_a_prefix_of_what_its_primary_did() {
    run("pair", 60);
}

#[test]
fn a_copy_is_brought_up_while_its_primary_changes() {
    run("pair-sync", 40);
}

/// A volume is reverted to before the mark to which a copy returns; its clone has the mark.
#[test]
fn a_copy_returns_to_a_mark_that_a_clone_alone_has() {
    suite("pair-sync").unwrap().run_all(780_012..780_013);
}

#[test]
fn the_nfs_surface_agrees_with_the_model() {
    run("nfs", 40);
}

#[test]
fn what_the_nfs_surface_acknowledged_survives_crashes() {
    run("nfs-crash", 80);
}

#[test]
fn a_call_that_is_repeated_after_a_crash_was_carried_out_once() {
    run("nfs-repeat", 80);
}

#[test]
fn a_request_of_a_persistent_session_was_carried_out_once() {
    run("nfs4-repeat", 80);
}

#[test]
fn clients_keep_what_they_were_granted_over_crashes_and_no_other_gets_it() {
    run("nfs4-state", 25);
}

#[test]
fn a_failed_write_poisons_and_loses_nothing() {
    run("failed-write", 100);
}

#[test]
fn a_failed_read_is_an_error_and_nothing_else() {
    run("failed-reads", 60);
}

#[test]
fn a_damaged_block_costs_what_it_covers() {
    run("rot", 60);
}

#[test]
fn a_damaged_superblock_falls_back() {
    run("superblock", 60);
}

#[test]
fn space_that_the_host_gave_to_others_is_missed_by_no_checkpoint() {
    run("discarded", 6);
}

#[test]
fn a_full_disk_refuses_writes_and_allows_removal() {
    run("full", 6);
}

#[test]
fn threads_see_what_they_wrote() {
    run("threads", 40);
}

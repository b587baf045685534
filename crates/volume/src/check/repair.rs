//! Repairing what can be repaired without loss.

use std::sync::Arc;

use weir_store::StoreError;
use weir_store::aggregate::{Aggregate, Env, Replay};
use weir_store::space::Usage;

use super::{Fault, Report};
use crate::lifecycle::engine::{Engine, EngineOptions};

/// Faults that repair takes care of.
fn mendable(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Superblock(_) | Fault::Map(_) | Fault::Leak { .. } | Fault::NotAllocated { .. }
    )
}

/// Whether there is anything to do, and it is safe: a tree that cannot be read
/// may refer to blocks that the map would lose, and a log that cannot be replayed
/// must not be passed over.
pub(super) fn possible(report: &Report) -> bool {
    let unsafe_to_write = |f: &Fault| {
        matches!(
            f,
            Fault::Node { .. } | Fault::TwoOwners { .. } | Fault::Log(_)
        )
    };
    report.faults.iter().any(mendable) && !report.faults.iter().any(unsafe_to_write)
}

/// Rebuilds the map, takes in the log, and makes the consistency point that
/// writes everything anew. Opening has already healed the superblock's copies.
pub(super) fn run(
    opened: (Arc<Aggregate>, Replay),
    usage: &Usage,
    report: &Report,
    env: &Env,
) -> Result<Vec<String>, StoreError> {
    let (agg, replay) = opened;
    let map = |f: &Fault| {
        matches!(
            f,
            Fault::Map(_) | Fault::Leak { .. } | Fault::NotAllocated { .. }
        )
    };
    let mut done = Vec::new();
    if report.faults.iter().any(map) {
        agg.space().rebuild(usage);
        done.push("allocation map rebuilt from the trees".to_owned());
    }
    if report
        .faults
        .iter()
        .any(|f| matches!(f, Fault::Superblock(_)))
    {
        done.push("superblock written anew".to_owned());
    }
    let options = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let engine = Engine::open(agg, replay, &*env.rng, options)?;
    // The second one writes the other superblock slot.
    for _ in 0..2 {
        engine
            .cp_now()
            .map_err(|e| StoreError::Format(format!("repair: {e}").into()))?;
    }
    engine
        .shutdown()
        .map_err(|e| StoreError::Format(format!("repair: {e}").into()))?;
    Ok(done)
}

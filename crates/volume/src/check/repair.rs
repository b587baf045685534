//! Repairs faults that can be repaired without loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::VolumeId;
use weir_store::StoreError;
use weir_store::aggregate::{Aggregate, Env, Replay};
use weir_store::space::Usage;

use super::report::{Fault, Report};
use super::usage::WrongUsage;
use crate::checkpoint::checkpointer::Checkpointer;
use crate::format::usage::Usages;
use crate::lifecycle::engine::{Engine, EngineOptions};

/// Returns true for faults that repair handles.
fn mendable(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Superblock(_)
            | Fault::Map(_)
            | Fault::Leak { .. }
            | Fault::NotAllocated { .. }
            | Fault::References { live: true, .. }
            | Fault::Usage(WrongUsage { live: true, .. })
    )
}

/// Returns true if there is something to repair, and it is safe. An unreadable tree may refer to
/// blocks that the map would lose, and a log that cannot be replayed must not be passed over.
pub(super) fn possible(report: &Report) -> bool {
    let unsafe_to_write = |f: &Fault| {
        matches!(
            f,
            Fault::Node { .. } | Fault::TwoOwners { .. } | Fault::Log(_)
        )
    };
    report.faults.iter().any(mendable) && !report.faults.iter().any(unsafe_to_write)
}

/// Rebuilds the map, replays the log, and takes the checkpoint that rewrites everything. Opening
/// has already repaired the superblock's copies.
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
    // Before the log is applied: a checkpoint during the replay may drop references.
    let engine = Engine::open_prepared(agg, replay, &*env.rng, options, |cp| {
        if correct(cp, report) {
            done.push("counts of references made anew from the trees".to_owned());
        }
        if correct_usage(cp, report) {
            done.push("usage of owners made anew from the trees".to_owned());
        }
    })?;
    // The second checkpoint writes the other superblock slot.
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

/// Makes the next checkpoint set the wrong counts. Returns true if there are any.
fn correct(cp: &Checkpointer, report: &Report) -> bool {
    let mut any = false;
    for fault in &report.faults {
        let Fault::References {
            volume,
            live: true,
            addr,
            birth,
            found,
            ..
        } = fault
        else {
            // The fault is not about the volume's own counts.
            continue;
        };
        if let Some(vol) = cp.table().get(*volume) {
            let mut catalog = vol.live().catalog.lock();
            catalog.corrections.push(((*addr, *birth), *found));
            cp.core().schedule.note_changed(*volume);
            any = true;
        }
    }
    any
}

/// Makes the next checkpoint change the wrong usage of owners. Returns true if there is any.
fn correct_usage(cp: &Checkpointer, report: &Report) -> bool {
    let mut wrong: BTreeMap<VolumeId, Usages> = BTreeMap::new();
    for fault in &report.faults {
        if let Fault::Usage(usage) = fault
            && usage.live
        {
            let mut change = usage.found;
            change.add(usage.recorded.negated());
            wrong
                .entry(usage.volume)
                .or_default()
                .insert(usage.id, change);
        }
    }
    let any = !wrong.is_empty();
    for (volume, changes) in wrong {
        if let Some(vol) = cp.table().get(volume) {
            vol.quota.correct(changes, None);
            cp.core().schedule.note_changed(volume);
        }
    }
    any
}

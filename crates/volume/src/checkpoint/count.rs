//! Counts all inodes of a volume whose tree was begun without usage, so that its quotas can hold.
//!
//! One root is walked, beside operations and checkpoints. The difference between its inodes and its
//! own records of usage is that of every later tree as well, because checkpoints change both alike.
//! So a later checkpoint adds it, and notes that the tree is counted
//! ([`crate::format::usage`]). If the volume's contents were replaced meanwhile, the result is
//! dropped, and the new tree is counted.

use std::ops::ControlFlow;

use weir_base::Ino;
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::TreeRoot;

use crate::format::reading::{after, scan};
use crate::format::record::{InodeRec, kind};
use crate::format::usage::{self, Usages};
use crate::overlay::volume::{LiveVolume, Volume};

/// Counts the volume's inodes if its quotas wait for that: on a thread of its own, if the engine
/// has threads.
pub(super) fn count_if_needed(vol: &LiveVolume) {
    if vol.protected() || !vol.quota.begin_count() {
        return;
    }
    let counted = vol.clone();
    let run = move || {
        weir_base::idle_priority();
        count_now(&counted);
    };
    if !vol.core.schedule.background() {
        return count_now(vol);
    }
    let spawned = std::thread::Builder::new()
        .name("weir-quota".into())
        .spawn(run);
    if let Err(error) = spawned {
        tracing::error!(volume = %vol.id, %error, "cannot start a thread to count usage: the volume's quotas do not hold");
    }
}

fn count_now(vol: &LiveVolume) {
    let lineage = vol.quota.lineage();
    match difference(vol) {
        Ok(changes) => {
            vol.quota.correct(changes, Some(lineage));
            vol.quota.end_count();
            vol.core.schedule.note_changed(vol.id);
            vol.core.schedule.want(vol.core.epoch_lock().epoch());
        }
        Err(error) => {
            tracing::error!(volume = %vol.id, %error, "cannot count usage: the volume's quotas do not hold");
        }
    }
}

/// Returns what the usage in the volume's tree lacks.
fn difference(vol: &Volume) -> Result<Usages, StoreError> {
    // Held, so that no block of it is used again meanwhile.
    let root = vol.root.load_full();
    let src = vol.core.agg.source();
    let (stored, _) = usage::read(&src, &root.root)?;
    let mut sum = Usages::new();
    inodes(vol, &root.root, &mut |rec| {
        usage::add(
            &mut sum,
            usage::Owners::from_record(rec),
            usage::of_inode(rec.blocks),
        );
    })?;
    for (id, usage) in stored {
        sum.entry(id).or_default().add(usage.negated());
    }
    Ok(sum)
}

/// Passes all inodes of a tree to `each`.
fn inodes(
    vol: &Volume,
    root: &TreeRoot,
    each: &mut dyn FnMut(&InodeRec),
) -> Result<(), StoreError> {
    let src = vol.core.agg.source();
    let mut from = Key::new(1, kind::INODE, 0);
    let mut bad = None;
    // In parts, so that a stop of the engine need not wait for the end.
    while !vol.core.schedule.stopped() {
        let (mut seen, mut last) = (0, None);
        let to = Key::new(u64::MAX - 1, u8::MAX, u64::MAX);
        scan(&src, root, from, to, &mut |key, value| {
            (seen, last) = (seen + 1, Some(key));
            if key.kind == kind::INODE {
                match InodeRec::decode(value) {
                    Some(rec) => each(&rec),
                    None => bad = Some(Ino(key.ino)),
                }
            }
            match seen < weir_base::limits::engine::COUNT_PART && bad.is_none() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        match (bad, last) {
            (Some(ino), _) => {
                return Err(StoreError::Format(
                    format!("the record of inode {ino} is malformed").into(),
                ));
            }
            (None, Some(last)) if seen == weir_base::limits::engine::COUNT_PART => {
                from = after(last);
            }
            _ => return Ok(()),
        }
    }
    Err(StoreError::Format("the engine stops".into()))
}

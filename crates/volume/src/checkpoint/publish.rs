//! Publishes the results of a checkpoint for a volume.

use std::sync::Arc;

use weir_base::invariant;

use crate::checkpoint::build::{Done, LoadedUsage, MergedVolume, UsageNews};
use crate::checkpoint::count::count_if_needed;
use crate::checkpoint::split::Split;
use crate::checkpoint::table::VolumeTable;
use crate::overlay::core::Core;
use crate::overlay::role::Ancestry;
use crate::overlay::root::RootState;
use crate::overlay::volume::{LiveVolume, Volume};

/// Publishes a volume's new root and drops the overlays that it contains.
pub(super) fn publish(
    core: &Core,
    table: &VolumeTable,
    built: MergedVolume,
    before: &Arc<weir_store::RootPin>,
) {
    let MergedVolume {
        vol,
        root,
        segment,
        parts,
        mut changes,
        snapshots,
        reverted,
        unlinked,
        change_base,
        received,
        split,
        usage,
    } = built;
    let live = vol.live();
    let asked = changes.revert.is_some() || changes.empty;
    if !reverted {
        changes.revert = None;
    }
    match split {
        Split::None => {}
        Split::Failed => live.ancestry.lock().stay(),
        Split::Done(origin) => {
            *live.ancestry.lock() = Ancestry::Own;
            table.forget_clone(origin);
        }
    }
    if reverted {
        // Until the new root is published, nothing is loaded; states loaded before are not used any
        // more.
        live.standing.begin_swap();
        vol.table.retire(false);
        drop_overlays(&vol, &parts, segment);
    }
    if let Some(unlinked) = unlinked {
        if !unlinked.is_empty() {
            core.schedule.note_changed(vol.id);
        }
        live.unlinked.replace(unlinked);
    }
    if let Some(base) = change_base {
        // No reader can combine it with a state of another base. Nothing is loaded of a reverted
        // volume, and clients of a destination see a view, which has its own base.
        vol.counters.set_base(base);
    }
    let old = vol.root.load_full();
    if old.root != root {
        old.supersede(Arc::clone(before));
        vol.root.store(RootState::new(root));
    }
    drop(old);
    let gone_views;
    {
        let mut snaps = live.snaps.lock();
        if let Some((id, ..)) = &received.arrived {
            snapshots
                .iter()
                .filter(|rec| rec.id == *id)
                .for_each(|rec| snaps.take_in(rec));
        }
        gone_views = snaps.publish(changes, snapshots);
    }
    for view in gone_views {
        view.retire(before);
    }
    vol.publish_mirror(&received);
    if !reverted {
        drop_overlays(&vol, &parts, segment);
    }
    publish_usage(&vol, usage, reverted || !received.batch.is_empty());
    if asked {
        live.standing.turned();
        core.schedule.notify();
    }
}

/// Publishes the usage in the new tree for the quotas of a volume.
fn publish_usage(vol: &LiveVolume, usage: UsageNews, replaced: bool) {
    if replaced {
        vol.quota.note_replaced();
    }
    if !matches!(usage.loaded, LoadedUsage::Anew(_)) {
        vol.quota.publish(&usage.changes, &usage.ended);
    }
    match usage.loaded {
        LoadedUsage::Nothing => {}
        LoadedUsage::Below(usages) => vol.quota.load(usages),
        LoadedUsage::Anew(usages) => vol.quota.replace(usages),
        LoadedUsage::Uncounted => vol.quota.await_count(),
    }
    count_if_needed(vol);
}

/// Drops the overlays up to `segment`.
fn drop_overlays(vol: &Volume, parts: &[Done], segment: u64) {
    for part in parts {
        drop_part(vol, part, segment);
    }
}

fn drop_part(vol: &Volume, part: &Done, segment: u64) {
    let core = &vol.core;
    let mut blocks = part.inode_blocks.iter().peekable();
    let mut inodes = part.inodes.iter();
    for (i, (ino, delta)) in part.deltas.iter().enumerate() {
        let count = blocks.next_if(|(at, _)| *at == i).map(|(_, n)| *n);
        let Some(inode) = inodes.by_ref().find(|inode| inode.ino == *ino) else {
            invariant!(core.agg.guard() => false, "inode {ino} was merged and is not among those that were taken");
            continue;
        };
        let mut st = inode.state.write();
        let counted = vol.quota.note(&st);
        if let Some(count) = count {
            st.rec.blocks = count;
        }
        st.frozen.retain(|d| d.segment > segment);
        if st.active.is_none() && st.frozen.is_empty() {
            st.unlogged = false;
        }
        vol.quota.change(counted, &st);
        drop(st);
        vol.discharge(delta);
    }
}

//! Checks the reference counts of blocks shared within a volume.

use std::collections::HashMap;
use std::ops::ControlFlow;

use weir_base::{BlockAddr, VolumeId};
use weir_store::tree::{self, NodeSource, TreeRoot};

use super::report::Fault;
use crate::format::record::StoredBlock;
use crate::format::shared_runs::{self, Count, Group};

/// The references to shared blocks of one tree: recorded and found.
#[derive(Default)]
pub(super) struct References(HashMap<BlockAddr, (Count, u64)>);

impl References {
    /// Reads the recorded counts of a tree. Unreadable ones are left out: walking the tree reports
    /// them.
    pub(super) fn read(src: &impl NodeSource, root: &TreeRoot) -> References {
        let mut found = HashMap::new();
        let (from, to) = (shared_runs::key(0), shared_runs::key(u64::MAX));
        let _ = tree::scan(src, root, from, to, &mut |key, value| {
            let group = Group::decode(value);
            for (addr, count) in group.iter().flat_map(|group| group.blocks(key.sub)) {
                found.insert(addr, (count, 0));
            }
            ControlFlow::Continue(())
        });
        References(found)
    }

    /// Counts a reference to a block. Returns true if another place referred to it before, and the
    /// block is shared.
    pub(super) fn note(&mut self, block: &StoredBlock) -> bool {
        match self.0.get_mut(&block.addr) {
            Some((count, found)) if count.birth == block.birth => {
                *found += 1;
                *found > 1
            }
            _ => false,
        }
    }

    /// Reports the wrong counts, in the order of the blocks.
    pub(super) fn faults(self, volume: VolumeId, live: bool) -> Vec<Fault> {
        let wrong = self.0.into_iter();
        let wrong = wrong.filter(|(_, (count, found))| count.references != *found);
        let mut wrong: Vec<(BlockAddr, (Count, u64))> = wrong.collect();
        wrong.sort_unstable_by_key(|(addr, _)| *addr);
        let fault = |(addr, (count, found)): (BlockAddr, (Count, u64))| Fault::References {
            volume,
            live,
            addr,
            birth: count.birth,
            recorded: count.references,
            found,
        };
        wrong.into_iter().map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, machine, run, write};
    use crate::types::SetIds;

    /// A volume with a file, the clone of its second half, and a reference count in each kind of
    /// wrong state.
    #[test]
    fn wrong_counts_are_found_and_made_right() {
        for wrong in [0, 3, 100] {
            let (machine, engine, vol) = machine(5);
            let [a, b] = [&b"a"[..], b"b"].map(|name| create(&vol, name));
            write(&vol, a, 0, &[7; 80 * 4096]);
            engine.cp_now().unwrap();
            let clone = |cx: &mut _| vol.clone_range(SetIds::Keep, cx, (a, 40 * 4096), (b, 0), 0);
            run(&vol, clone);
            engine.cp_now().unwrap();

            let root = vol.root.load().root;
            let found = References::read(&vol.core.agg.source(), &root);
            assert_eq!(found.0.len(), 40);
            let (addr, (count, _)) = found.0.into_iter().min_by_key(|(at, _)| *at).unwrap();
            assert_eq!(count.references, 2);
            let block = (addr, count.birth);
            vol.live()
                .unwrap()
                .catalog
                .lock()
                .corrections
                .push((block, wrong));
            vol.core.schedule.note_changed(vol.id);
            engine.cp_now().unwrap();
            drop((vol, engine));

            let report = machine.check();
            if wrong == 0 {
                // Without a count there are two owners, and nothing shows which one is right.
                assert!(matches!(
                    &report.faults[..],
                    [Fault::TwoOwners { count: 1, .. }, ..]
                ));
                continue;
            }
            let fault = Fault::References {
                volume: VolumeId(1),
                live: true,
                addr,
                birth: count.birth,
                recorded: wrong,
                found: 2,
            };
            assert_eq!(report.faults, [fault]);
            let again = machine.repair();
            assert!(again.clean(), "{again}");
            assert_eq!(again.repaired.len(), 1);
            assert!(machine.check().clean());
        }
    }
}

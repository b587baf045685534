//! Measured performance of volumes: the difference of two readings of the counters of operations
//! and of the shaper.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_base::VolumeId;
use weir_control::Surface;
use weir_node::counters::sums;
use weir_ontap::cluster::{Performance, Rate};
use weir_relations::model::Path;
use weir_vfs::stats::{ByOperation, Tally};

use crate::AsUser;

/// Returns the rate between two readings. Counters never decrease, but start at zero when a volume
/// is served again.
fn rate(before: &Tally, now: &Tally, millis: u128) -> Rate {
    let more = |before: u64, now: u64| u128::from(now.checked_sub(before).unwrap_or(now));
    let per_second = |sum: u128| u64::try_from(sum * 1000 / millis.max(1)).unwrap_or(u64::MAX);
    let count = more(before.count, now.count);
    let mean = more(before.nanos, now.nanos).checked_div(count);
    Rate {
        ops: per_second(count),
        bytes: per_second(more(before.bytes, now.bytes)),
        nanos: u64::try_from(mean.unwrap_or(0)).unwrap_or(u64::MAX),
    }
}

impl AsUser {
    /// Waits for the interval, and returns the performance of each volume in it.
    pub(crate) fn measured(&self, over: Duration) -> Vec<Performance> {
        let server = &self.server;
        let counters = &server.counters;
        let view = server.control.view();
        let volumes = view.every_volume(Surface::Netapp);
        let volumes: Vec<_> = volumes
            .filter_map(|volume| Some((volume, VolumeId(volume.number?))))
            .collect();
        let read = || {
            let done = counters.stats.volumes();
            let waited: BTreeMap<VolumeId, u64> = volumes
                .iter()
                .map(|(_, id)| (*id, counters.waited(*id)))
                .collect();
            (server.clock.monotonic(), done, waited)
        };
        let (began, before, waited) = read();
        std::thread::sleep(over);
        let (ended, now, waited_now) = read();
        // Saturates: times.
        let millis = ended.saturating_sub(began).as_millis();
        let of =
            |all: &BTreeMap<VolumeId, ByOperation>, id| all.get(id).map(sums).unwrap_or_default();
        let each = volumes.iter().map(|(volume, id)| {
            let (before, now) = (of(&before, id), of(&now, id));
            let [reads, writes, others] =
                std::array::from_fn(|at| rate(&before[at], &now[at], millis));
            let count = |sums: &[Tally; 3]| sums.iter().map(|tally| tally.count).sum::<u64>();
            let (first, last) = (waited.get(id), waited_now.get(id));
            let wait = last
                .copied()
                .unwrap_or(0)
                .checked_sub(first.copied().unwrap_or(0));
            let (earlier, later) = (count(&before), count(&now));
            let ops = later.checked_sub(earlier).unwrap_or(later);
            let name = &volume.name;
            Performance {
                path: Path::local(&name.place.project, &name.id),
                aggregate: volume
                    .pooled()
                    .map(|p| p.pool.to_string())
                    .unwrap_or_default(),
                id: id.0,
                reads,
                writes,
                others,
                waited: wait.unwrap_or(0).checked_div(ops).unwrap_or(0),
            }
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_came_in_between() {
        let tally = |count, bytes, nanos| Tally {
            count,
            bytes,
            nanos,
            ..Tally::default()
        };
        let (before, now) = (tally(10, 100, 5_000), tally(30, 4_100, 25_000));
        let two_seconds = rate(&before, &now, 2_000);
        assert_eq!(
            two_seconds,
            Rate {
                ops: 10,
                bytes: 2_000,
                nanos: 1_000
            }
        );
        assert_eq!(rate(&now, &before, 1_000).ops, 10, "it was counted anew");
        assert_eq!(rate(&now, &now, 0), Rate::default());
    }
}

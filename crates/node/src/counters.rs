//! Counters of operations, bytes and waits.

use std::sync::Arc;

use weir_base::VolumeId;
use weir_vfs::Vfs;
use weir_vfs::stats::{ByOperation, Stats, Tally};

use crate::metrics::operation_name;

/// Counters of the data path.
#[derive(Clone)]
pub struct Counters {
    /// Operations, bytes and latencies.
    pub stats: Arc<Stats>,
    /// Source of the waiting times of requests and of clients' claims.
    pub vfs: Arc<Vfs>,
}

/// Sums until a moment: of reads, of writes, and of all other operations.
pub type Sums = [Tally; 3];

/// Adds up a volume's operations.
pub fn sums(done: &ByOperation) -> Sums {
    let mut sums = Sums::default();
    for (operation, tally) in done {
        let name = operation_name(*operation).map(|(_, name)| name);
        let [reads, writes, others] = &mut sums;
        match name {
            Some("READ" | "READ_PLUS") => reads.add(tally),
            Some("WRITE") => writes.add(tally),
            _ => others.add(tally),
        }
    }
    sums
}

impl Counters {
    /// Returns the number of bytes that clients have written to all volumes that exist.
    pub fn bytes_written(&self) -> u64 {
        let volumes = self.stats.volumes();
        let written = volumes.values().map(|done| {
            let [_, writes, _] = sums(done);
            writes.bytes
        });
        written.sum()
    }

    /// Returns the nanoseconds that a volume's requests have waited for limits.
    pub fn waited(&self, volume: VolumeId) -> u64 {
        let status = self.vfs.throttle.status(volume);
        status.map_or(0, |status| status.usage.waited.iter().sum())
    }
}

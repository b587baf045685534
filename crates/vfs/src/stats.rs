//! What was done, counted: operations, bytes and latencies by volume, and by client.
//!
//! Every event loop counts for itself and the sums are made when they are read, so counting shares nothing between
//! cores. An event loop counts all replies of one write to a socket at once: one uncontended lock, one reading of the
//! clock, one look-up of the client, and some additions a reply. Latency is the server's part: from the moment a call was
//! read off its socket to the moment its reply may leave, with whatever it waited for in between (limits, the device, the
//! log).
//!
//! Memory is bounded: operations that a volume never sees have no counters, and clients beyond a thousand share theirs,
//! so clients take less than half a mebibyte an event loop.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use weir_base::limits::net::MAX_COUNTED_CLIENTS;
use weir_base::{VolumeId, invariant};

/// Operations that are counted separately, of all protocols.
pub const OPERATIONS: usize = 160;
/// The first number of SMB's operations; those of NFS and its companions are below.
pub const SMB: u8 = 128;
/// Buckets of a latency histogram: the first holds what took less than [`FIRST_BUCKET`], each further one up to twice as
/// much as the one before, the last everything.
pub const BUCKETS: usize = 22;
/// Upper bound of the first bucket, in nanoseconds.
pub const FIRST_BUCKET: u64 = 1 << 14;
/// The address under which those beyond are counted.
pub const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// An operation that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The volume that the operation was on.
    pub volume: VolumeId,
    /// Number of the operation, below [`OPERATIONS`].
    pub operation: u8,
    /// Bytes of data moved.
    pub bytes: u32,
    /// When it was read off its socket: nanoseconds on the monotonic clock.
    pub arrived: u64,
}

/// Counters of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Operations that were counted.
    pub count: u64,
    /// Bytes of data moved.
    pub bytes: u64,
    /// All latencies together, in nanoseconds.
    pub nanos: u64,
    /// How many by latency.
    pub buckets: [u64; BUCKETS],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            count: 0,
            bytes: 0,
            nanos: 0,
            buckets: [0; BUCKETS],
        }
    }
}

/// The bucket of a latency.
fn bucket_of(nanos: u64) -> usize {
    let doublings = u64::BITS - (nanos / FIRST_BUCKET).leading_zeros();
    (doublings as usize).min(BUCKETS - 1)
}

impl Tally {
    /// `bucket` is that of `nanos`: determined once for all tallies that count the operation.
    fn record(&mut self, bytes: u64, nanos: u64, bucket: usize) {
        self.count += 1;
        self.bytes += bytes;
        self.nanos += nanos;
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
    }

    /// Adds the counts of another tally to these.
    pub fn add(&mut self, other: &Tally) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }
}

/// Counters of a volume, by operation.
pub type ByOperation = BTreeMap<u8, Tally>;

struct VolumeCells {
    id: VolumeId,
    operations: [Option<Box<Tally>>; OPERATIONS],
}

#[derive(Default)]
struct Volumes {
    places: HashMap<VolumeId, usize>,
    cells: Vec<VolumeCells>,
    /// Where the last one counted stands.
    last: usize,
}

impl Volumes {
    fn cell(&mut self, id: VolumeId, operation: u8) -> Option<&mut Tally> {
        if self.cells.get(self.last).is_none_or(|last| last.id != id) {
            let fresh = self.cells.len();
            self.last = *self.places.entry(id).or_insert(fresh);
            if self.last == fresh {
                self.cells.push(VolumeCells {
                    id,
                    operations: std::array::from_fn(|_| None),
                });
            }
        }
        let operations = &mut self.cells.get_mut(self.last)?.operations;
        let cell = operations.get_mut(usize::from(operation))?;
        Some(cell.get_or_insert_default())
    }
}

/// Counters of clients, by address: all operations of one together.
#[derive(Default)]
struct Clients(HashMap<IpAddr, Tally>);

impl Clients {
    fn cell(&mut self, client: IpAddr) -> &mut Tally {
        let known = self.0.len() < MAX_COUNTED_CLIENTS || self.0.contains_key(&client);
        let place = if known { client } else { OTHERS };
        self.0.entry(place).or_default()
    }
}

#[derive(Default)]
struct Lane {
    volumes: Volumes,
    clients: Clients,
}

/// The counters of all event loops.
pub struct Stats {
    lanes: Box<[Mutex<Lane>]>,
}

impl Stats {
    /// Counters for so many event loops.
    pub fn new(lanes: usize) -> Stats {
        Stats {
            lanes: (0..lanes.max(1)).map(|_| Mutex::default()).collect(),
        }
    }

    /// Counts what is answered at `now` to one client. `lane` is any number that differs between event loops.
    pub fn record(&self, lane: u64, client: IpAddr, now: u64, done: impl Iterator<Item = Done>) {
        let at = usize::try_from(lane).unwrap_or(0) % self.lanes.len().max(1);
        let Some(mut lane) = self.lanes.get(at).map(Mutex::lock) else {
            invariant!(
                false,
                "there are {} lanes, and none at {at}",
                self.lanes.len()
            );
            return;
        };
        let Lane { volumes, clients } = &mut *lane;
        let client = clients.cell(client.to_canonical());
        for one in done {
            // Saturates: times of several threads.
            let nanos = now.saturating_sub(one.arrived);
            let (bytes, bucket) = (u64::from(one.bytes), bucket_of(nanos));
            client.record(bytes, nanos, bucket);
            if let Some(cell) = volumes.cell(one.volume, one.operation) {
                cell.record(bytes, nanos, bucket);
            }
        }
    }

    /// Sums over all event loops, by volume.
    pub fn volumes(&self) -> BTreeMap<VolumeId, ByOperation> {
        let mut sums: BTreeMap<VolumeId, ByOperation> = BTreeMap::new();
        for lane in &self.lanes {
            for volume in &lane.lock().volumes.cells {
                let of = sums.entry(volume.id).or_default();
                for (number, tally) in (0u8..).zip(&volume.operations) {
                    if let Some(tally) = tally {
                        of.entry(number).or_default().add(tally);
                    }
                }
            }
        }
        sums
    }

    /// Sums by client, at most `most` of them: those that moved and asked for most; what is left is under [`OTHERS`].
    pub fn clients(&self, most: usize) -> Vec<(IpAddr, Tally)> {
        let mut sums: HashMap<IpAddr, Tally> = HashMap::new();
        for lane in &self.lanes {
            for (ip, tally) in &lane.lock().clients.0 {
                sums.entry(*ip).or_default().add(tally);
            }
        }
        let mut others = sums.remove(&OTHERS).unwrap_or_default();
        let mut all: Vec<_> = sums.into_iter().collect();
        // An operation weighs as much as a block.
        all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.count * 4096 + tally.bytes));
        for (_, tally) in all.drain(most.min(all.len())..) {
            others.add(&tally);
        }
        if others.count > 0 {
            all.push((OTHERS, others));
        }
        all
    }

    /// Forgets volumes that `keep` does not want: they are gone.
    pub fn retain(&self, keep: impl Fn(VolumeId) -> bool) {
        for lane in &self.lanes {
            let mut lane = lane.lock();
            let volumes = &mut lane.volumes;
            if volumes.cells.iter().all(|volume| keep(volume.id)) {
                continue;
            }
            volumes.cells.retain(|volume| keep(volume.id));
            volumes.places = (0..)
                .zip(&volumes.cells)
                .map(|(at, volume)| (volume.id, at))
                .collect();
            volumes.last = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(volume: u64, operation: u8, bytes: u32, arrived: u64) -> Done {
        Done {
            volume: VolumeId(volume),
            operation,
            bytes,
            arrived,
        }
    }

    #[test]
    fn sums_are_made_over_event_loops() {
        let stats = Stats::new(2);
        for (lane, client) in [(0, 1), (1, 1), (2, 2), (5, 2)] {
            let ops = [
                done(7, 6, 4096, 1_000_000),
                done(7, 1, 0, 999_000),
                done(9, 6, 10, 0),
            ];
            stats.record(lane, [10, 0, 0, client].into(), 1_020_000, ops.into_iter());
        }
        let volumes = stats.volumes();
        let reads = &volumes[&VolumeId(7)][&6];
        assert_eq!(
            (reads.count, reads.bytes, reads.nanos),
            (4, 4 * 4096, 80_000)
        );
        // 20 µs falls into the second bucket: 16.4 to 32.8 µs.
        assert_eq!(reads.buckets[..3], [0, 4, 0]);
        assert_eq!(volumes[&VolumeId(9)][&6].nanos, 4 * 1_020_000);
        assert_eq!(volumes[&VolumeId(7)].len(), 2);
        let clients = stats.clients(10);
        assert_eq!(clients.len(), 2);
        assert!(clients.iter().all(|(_, tally)| tally.count == 6));
        // Each client's, over its operations and volumes: 20 µs twice, 21 µs twice, and 1 ms twice.
        assert!(
            clients
                .iter()
                .all(|(_, tally)| tally.buckets[..8] == [0, 4, 0, 0, 0, 0, 2, 0])
        );
        stats.retain(|id| id == VolumeId(9));
        assert_eq!(
            stats.volumes().keys().copied().collect::<Vec<_>>(),
            [VolumeId(9)]
        );
        stats.record(0, OTHERS, 1, [done(8, 1, 0, 0)].into_iter());
        assert_eq!(stats.volumes().len(), 2);
    }

    #[test]
    fn any_number_of_clients_takes_bounded_memory() {
        let stats = Stats::new(1);
        for n in 0..5000u32 {
            stats.record(
                0,
                IpAddr::from(n.to_be_bytes()),
                1,
                [done(1, 1, 0, 0)].into_iter(),
            );
        }
        assert!(stats.lanes[0].lock().clients.0.len() <= MAX_COUNTED_CLIENTS + 1);
        let top = stats.clients(10);
        assert_eq!(top.len(), 11);
        assert_eq!(top.iter().map(|(_, tally)| tally.count).sum::<u64>(), 5000);
        let in_buckets = top.iter().flat_map(|(_, tally)| tally.buckets).sum::<u64>();
        assert_eq!(in_buckets, 5000);
        assert_eq!(top.last().map(|(ip, _)| *ip), Some(OTHERS));
    }

    #[test]
    fn every_latency_has_a_bucket() {
        let mut tally = Tally::default();
        for nanos in [
            0,
            FIRST_BUCKET - 1,
            FIRST_BUCKET,
            2 * FIRST_BUCKET,
            u64::MAX,
        ] {
            tally.nanos = 0;
            tally.record(0, nanos, bucket_of(nanos));
        }
        assert_eq!(tally.buckets[..3], [2, 1, 1]);
        assert_eq!(tally.buckets[BUCKETS - 1], 1);
    }
}

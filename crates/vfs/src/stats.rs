//! Counts of operations, bytes and latencies by volume, and by client.
//!
//! Every event loop counts for itself and the sums are made when they are read, so counting shares
//! nothing between cores. An event loop counts all replies of one write to a socket at once. That
//! takes one uncontended lock, one reading of the clock, one look-up of the client, and some
//! additions a reply. Latency is the server's part, from the moment a call was read off its socket
//! to the moment its reply may leave. It contains whatever the call waited for in between (limits,
//! the device, the log).
//!
//! Failures are counted when they happen, by operation and status, with one more lock of the same
//! kind each; their table has its memory from the start.
//!
//! Memory is bounded: operations that a volume never sees have no counters. Clients beyond a
//! thousand share theirs, so clients take less than half a mebibyte an event loop.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use weir_base::latency::{Latencies, bucket_of};
use weir_base::limits::net::{
    MAX_COUNTED_CLIENTS, MAX_COUNTED_FAILURES, MAX_COUNTED_VOLUME_CLIENTS,
};
use weir_base::{VolumeId, invariant};

pub use weir_base::latency::{BUCKETS, FIRST_BUCKET};

/// Number of operations that are counted separately, of all protocols.
pub const OPERATIONS: usize = 161;
/// Calls that RPC refuses, whatever they are of: the last number.
pub const REFUSED_CALL: u8 = OPERATIONS as u8 - 1;
/// The first number of SMB's operations; those of NFS and its companions are below.
pub const SMB: u8 = 128;
/// The address under which those beyond are counted.
pub const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The intent log has to be durable before the reply leaves.
    Log,
    /// The volume's device, or something that its engine is short of.
    Device,
    /// Another client gives up what it was granted.
    Claim,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 3] = [Cause::Log, Cause::Device, Cause::Claim];

    /// Returns the name that metrics have for it.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Log => "log",
            Cause::Device => "device",
            Cause::Claim => "claim",
        }
    }
}

/// Nanoseconds waited, by cause.
pub type WaitTimes = [u64; Cause::ALL.len()];

/// Volume of waits that cannot be attributed: no volume has this number.
pub const UNATTRIBUTED: VolumeId = VolumeId(0);

/// Status under which an operation's failures beyond [`MAX_COUNTED_FAILURES`] are counted.
pub const OTHER_STATUS: u32 = u32::MAX;

/// Numbers of failures, by operation and by the protocol's number of the status.
pub type Failures = BTreeMap<(u8, u32), u64>;

/// An operation that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The volume that the operation was on.
    pub volume: VolumeId,
    /// Number of the operation, below [`OPERATIONS`].
    pub operation: u8,
    /// Bytes of data moved.
    pub bytes: u32,
    /// Time at which it was read off its socket: nanoseconds on the monotonic clock.
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
    /// Numbers of operations by latency.
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

impl Tally {
    /// Counts an operation. `bucket` is that of `nanos`: determined once for all tallies that count
    /// the operation.
    fn record(&mut self, bytes: u64, nanos: u64, bucket: usize) {
        self.count += 1;
        self.bytes += bytes;
        self.nanos += nanos;
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
    }

    /// Returns the latencies that were counted.
    pub fn latencies(&self) -> Latencies {
        Latencies {
            count: self.count,
            nanos: self.nanos,
            buckets: self.buckets,
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

/// Kinds of operations by what limits and people distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Anything else.
    Other,
}

/// The class of each operation, by its number.
pub type Classes = [Class; OPERATIONS];

/// Sums over operations, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations, by class.
    pub count: [u64; 3],
    /// Bytes of data moved, by class.
    pub bytes: [u64; 3],
    /// All latencies together, in nanoseconds.
    pub nanos: u64,
    /// Numbers of all operations, by latency.
    pub buckets: [u64; BUCKETS],
}

impl Totals {
    fn add(&mut self, class: Class, tally: &Tally) {
        let at = class as usize;
        if let (Some(count), Some(bytes)) = (self.count.get_mut(at), self.bytes.get_mut(at)) {
            *count += tally.count;
            *bytes += tally.bytes;
        }
        self.nanos += tally.nanos;
        for (mine, theirs) in self.buckets.iter_mut().zip(tally.buckets) {
            *mine += theirs;
        }
    }

    /// Adds other sums to these.
    pub fn add_all(&mut self, other: &Totals) {
        self.nanos += other.nanos;
        let pairs = self.count.iter_mut().zip(other.count);
        let pairs = pairs.chain(self.bytes.iter_mut().zip(other.bytes));
        for (mine, theirs) in pairs.chain(self.buckets.iter_mut().zip(other.buckets)) {
            *mine += theirs;
        }
    }

    /// Returns what was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Totals) -> Totals {
        // Saturates: a client that had been counted among the others may come back.
        let less = |now: u64, then: u64| now.saturating_sub(then);
        let of_class = |now: [u64; 3], then: [u64; 3]| [0, 1, 2].map(|at| less(now[at], then[at]));
        let mut buckets = self.buckets;
        for (now, then) in buckets.iter_mut().zip(before.buckets) {
            *now = less(*now, then);
        }
        Totals {
            count: of_class(self.count, before.count),
            bytes: of_class(self.bytes, before.bytes),
            nanos: less(self.nanos, before.nanos),
            buckets,
        }
    }

    /// Returns the latency in nanoseconds that `share` of the operations did not exceed,
    /// interpolated within its bucket; 0 without operations.
    pub fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.buckets.iter().sum();
        let wanted = share * all as f64;
        let mut below = 0.0;
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let upper = (FIRST_BUCKET << at) as f64;
                let lower = if at == 0 { 0.0 } else { upper / 2.0 };
                return lower + (upper - lower) * ((wanted - below) / count).clamp(0.0, 1.0);
            }
            below += count;
        }
        0.0
    }
}

/// Operations and bytes, by class.
pub type ClassTotals = [(u64, u64); 3];

/// Counters of a client: all its operations together, and what it read and wrote.
#[derive(Clone, Debug, Default)]
struct Client {
    all: Tally,
    moved: ClassTotals,
}

/// A client on a volume, by its address.
pub type OnVolume = (VolumeId, IpAddr);

/// Counters of clients on volumes.
#[derive(Default)]
struct VolumeClients {
    places: HashMap<OnVolume, usize>,
    cells: Vec<(OnVolume, ClassTotals)>,
    /// Place of the last one counted.
    last: usize,
}

impl VolumeClients {
    fn cell(&mut self, volume: VolumeId, client: IpAddr) -> Option<&mut ClassTotals> {
        let wanted = (volume, client);
        if self
            .cells
            .get(self.last)
            .is_none_or(|(last, _)| *last != wanted)
        {
            let known = self.places.contains_key(&wanted);
            let fits = known || self.cells.len() < MAX_COUNTED_VOLUME_CLIENTS;
            let counted = if fits { wanted } else { (volume, OTHERS) };
            let fresh = self.cells.len();
            self.last = *self.places.entry(counted).or_insert(fresh);
            if self.last == fresh {
                self.cells.push((counted, ClassTotals::default()));
            }
        }
        self.cells.get_mut(self.last).map(|(_, moved)| moved)
    }
}

fn count(moved: &mut ClassTotals, class: Class, bytes: u64) {
    if let Some((count, sum)) = moved.get_mut(class as usize) {
        *count += 1;
        *sum += bytes;
    }
}

/// Counters of a volume, by operation.
pub type ByOperation = BTreeMap<u8, Tally>;

struct VolumeCells {
    id: VolumeId,
    waited: WaitTimes,
    operations: [Option<Box<Tally>>; OPERATIONS],
}

#[derive(Default)]
struct Volumes {
    places: HashMap<VolumeId, usize>,
    cells: Vec<VolumeCells>,
    /// Place of the last one counted.
    last: usize,
}

impl Volumes {
    fn cell(&mut self, id: VolumeId, operation: u8) -> Option<&mut Tally> {
        let operations = &mut self.volume_cells(id)?.operations;
        let cell = operations.get_mut(usize::from(operation))?;
        Some(cell.get_or_insert_default())
    }

    /// Returns the counters of a volume.
    fn volume_cells(&mut self, id: VolumeId) -> Option<&mut VolumeCells> {
        if self.cells.get(self.last).is_none_or(|last| last.id != id) {
            let fresh = self.cells.len();
            self.last = *self.places.entry(id).or_insert(fresh);
            if self.last == fresh {
                self.cells.push(VolumeCells {
                    id,
                    waited: WaitTimes::default(),
                    operations: std::array::from_fn(|_| None),
                });
            }
        }
        self.cells.get_mut(self.last)
    }
}

/// Counters of clients, by address: all operations of one together.
#[derive(Default)]
struct Clients(HashMap<IpAddr, Client>);

impl Clients {
    fn cell(&mut self, client: IpAddr) -> &mut Client {
        let known = self.0.len() < MAX_COUNTED_CLIENTS || self.0.contains_key(&client);
        let place = if known { client } else { OTHERS };
        self.0.entry(place).or_default()
    }
}

struct Lane {
    volumes: Volumes,
    clients: Clients,
    pairs: VolumeClients,
    failures: HashMap<(u8, u32), u64>,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            volumes: Volumes::default(),
            clients: Clients::default(),
            pairs: VolumeClients::default(),
            failures: HashMap::with_capacity(MAX_COUNTED_FAILURES + OPERATIONS),
        }
    }
}

/// The counters of all event loops.
pub struct Stats {
    lanes: Box<[Mutex<Lane>]>,
    classes: Classes,
}

impl Stats {
    /// Returns counters for so many event loops, which know no operation's class.
    pub fn new(lanes: usize) -> Stats {
        Stats::classed(lanes, [Class::Other; OPERATIONS])
    }

    /// Returns counters for so many event loops, over operations of these classes.
    pub fn classed(lanes: usize, classes: Classes) -> Stats {
        Stats {
            lanes: (0..lanes.max(1)).map(|_| Mutex::default()).collect(),
            classes,
        }
    }

    fn class(&self, operation: u8) -> Class {
        let class = self.classes.get(usize::from(operation));
        class.copied().unwrap_or(Class::Other)
    }

    /// Counts what is answered at `now` to one client. `lane` is any number that differs between
    /// event loops.
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
        let Lane {
            volumes,
            clients,
            pairs,
            ..
        } = &mut *lane;
        let address = client.to_canonical();
        let client = clients.cell(address);
        for one in done {
            // Saturates: times of several threads.
            let nanos = now.saturating_sub(one.arrived);
            let (bytes, bucket) = (u64::from(one.bytes), bucket_of(nanos));
            client.all.record(bytes, nanos, bucket);
            let class = self.class(one.operation);
            count(&mut client.moved, class, bytes);
            if let Some(pair) = pairs.cell(one.volume, address) {
                count(pair, class, bytes);
            }
            if let Some(cell) = volumes.cell(one.volume, one.operation) {
                cell.record(bytes, nanos, bucket);
            }
        }
    }

    /// Counts waits of requests, each of a volume, that are over; `lane` as in [`Stats::record`].
    pub fn wait_all(&self, lane: u64, cause: Cause, waits: impl Iterator<Item = (VolumeId, u64)>) {
        let at = usize::try_from(lane).unwrap_or(0) % self.lanes.len().max(1);
        // There is a lane at each number below their count.
        if let Some(mut lane) = self.lanes.get(at).map(Mutex::lock) {
            for (volume, nanos) in waits {
                let cells = lane.volumes.volume_cells(volume);
                if let Some(waited) = cells.and_then(|cells| cells.waited.get_mut(cause as usize)) {
                    *waited += nanos;
                }
            }
        }
    }

    /// Counts a wait of one request.
    pub fn wait(&self, lane: u64, volume: VolumeId, cause: Cause, nanos: u64) {
        self.wait_all(lane, cause, std::iter::once((volume, nanos)));
    }

    /// Counts an operation that failed; `lane` as in [`Stats::record`], `status` by its number in
    /// the operation's protocol.
    pub fn fail(&self, lane: u64, operation: u8, status: u32) {
        if usize::from(operation) >= OPERATIONS {
            return;
        }
        let at = usize::try_from(lane).unwrap_or(0) % self.lanes.len().max(1);
        // There is a lane at each number below their count.
        if let Some(mut lane) = self.lanes.get(at).map(Mutex::lock) {
            let failures = &mut lane.failures;
            let wanted = (operation, status);
            let known = failures.len() < MAX_COUNTED_FAILURES || failures.contains_key(&wanted);
            let counted = if known {
                wanted
            } else {
                (operation, OTHER_STATUS)
            };
            *failures.entry(counted).or_default() += 1;
        }
    }

    /// Returns the numbers of failures over all event loops.
    pub fn failures(&self) -> Failures {
        let mut sums = Failures::new();
        for lane in &self.lanes {
            for (key, count) in &lane.lock().failures {
                *sums.entry(*key).or_default() += count;
            }
        }
        sums
    }

    /// Returns the nanoseconds that requests have waited, by volume, over all event loops.
    pub fn waits(&self) -> BTreeMap<VolumeId, WaitTimes> {
        let mut sums: BTreeMap<VolumeId, WaitTimes> = BTreeMap::new();
        for lane in &self.lanes {
            for volume in &lane.lock().volumes.cells {
                let of = sums.entry(volume.id).or_default();
                for (sum, more) in of.iter_mut().zip(volume.waited) {
                    *sum += more;
                }
            }
        }
        sums
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

    /// Returns the number of operations of each volume, over all event loops.
    pub fn counts(&self) -> HashMap<VolumeId, u64> {
        let mut sums: HashMap<VolumeId, u64> = HashMap::new();
        for lane in &self.lanes {
            for volume in &lane.lock().volumes.cells {
                let tallies = volume.operations.iter().flatten();
                *sums.entry(volume.id).or_default() += tallies.map(|t| t.count).sum::<u64>();
            }
        }
        sums
    }

    /// Returns sums over all event loops of one volume.
    pub fn of_volume(&self, id: VolumeId) -> ByOperation {
        let mut sums = ByOperation::new();
        for lane in &self.lanes {
            let volumes = &lane.lock().volumes;
            let cells = volumes.places.get(&id);
            let cells = cells.and_then(|at| volumes.cells.get(*at));
            let tallies = cells.map(|cells| (0u8..).zip(&cells.operations));
            for (number, tally) in tallies.into_iter().flatten() {
                if let Some(tally) = tally {
                    sums.entry(number).or_default().add(tally);
                }
            }
        }
        sums
    }

    /// Returns sums over all event loops and operations, by volume.
    pub fn totals(&self) -> HashMap<VolumeId, Totals> {
        let mut sums: HashMap<VolumeId, Totals> = HashMap::new();
        for lane in &self.lanes {
            for volume in &lane.lock().volumes.cells {
                let of = sums.entry(volume.id).or_default();
                for (number, tally) in (0u8..).zip(&volume.operations) {
                    if let Some(tally) = tally {
                        of.add(self.class(number), tally);
                    }
                }
            }
        }
        sums
    }

    /// Returns sums over all event loops and operations, by client.
    pub fn client_totals(&self) -> HashMap<IpAddr, Totals> {
        let mut sums: HashMap<IpAddr, Totals> = HashMap::new();
        for lane in &self.lanes {
            for (ip, client) in &lane.lock().clients.0 {
                let [count, bytes] = [
                    client.moved.map(|(count, _)| count),
                    client.moved.map(|(_, bytes)| bytes),
                ];
                let buckets = client.all.buckets;
                sums.entry(*ip).or_default().add_all(&Totals {
                    count,
                    bytes,
                    nanos: client.all.nanos,
                    buckets,
                });
            }
        }
        sums
    }

    /// Returns sums over all event loops, by volume and client.
    pub fn volume_clients(&self) -> HashMap<OnVolume, ClassTotals> {
        let mut sums: HashMap<OnVolume, ClassTotals> = HashMap::new();
        for lane in &self.lanes {
            for (key, moved) in &lane.lock().pairs.cells {
                let of = sums.entry(*key).or_default();
                for ((count, bytes), (more, moved)) in of.iter_mut().zip(moved) {
                    *count += more;
                    *bytes += moved;
                }
            }
        }
        sums
    }

    /// Sums by client, at most `most` of them: those that moved and asked for most; what is left is
    /// under [`OTHERS`].
    pub fn clients(&self, most: usize) -> Vec<(IpAddr, Tally)> {
        let mut sums: HashMap<IpAddr, Tally> = HashMap::new();
        for lane in &self.lanes {
            for (ip, client) in &lane.lock().clients.0 {
                sums.entry(*ip).or_default().add(&client.all);
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
            let pairs = &mut lane.pairs;
            pairs.cells.retain(|((volume, _), _)| keep(*volume));
            pairs.places = (0..)
                .zip(&pairs.cells)
                .map(|(at, (key, _))| (*key, at))
                .collect();
            pairs.last = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operation 6 reads.
    fn classes() -> Classes {
        let mut classes = [Class::Other; OPERATIONS];
        classes[6] = Class::Read;
        classes
    }

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
        let stats = Stats::classed(2, classes());
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
        let totals = stats.totals()[&VolumeId(7)];
        assert_eq!((totals.count, totals.bytes), ([4, 0, 4], [4 * 4096, 0, 0]));
        let of_client = stats.client_totals()[&IpAddr::from([10, 0, 0, 1])];
        assert_eq!(
            (of_client.count, of_client.bytes),
            ([4, 0, 2], [2 * 4106, 0, 0])
        );
        assert_eq!(of_client.buckets[..8], [0, 4, 0, 0, 0, 0, 2, 0]);
        let pairs = stats.volume_clients();
        assert_eq!(pairs.len(), 4);
        let of_pair = pairs[&(VolumeId(7), IpAddr::from([10, 0, 0, 1]))];
        assert_eq!(of_pair, [(2, 8192), (0, 0), (2, 0)]);
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
        assert_eq!(stats.volume_clients().len(), 2);
        assert_eq!(
            stats.volumes().keys().copied().collect::<Vec<_>>(),
            [VolumeId(9)]
        );
        stats.record(0, OTHERS, 1, [done(8, 1, 0, 0)].into_iter());
        assert_eq!(stats.volumes().len(), 2);
    }

    #[test]
    fn waits_are_summed_by_volume_and_cause() {
        let stats = Stats::new(2);
        for lane in 0..4 {
            stats.wait(lane, VolumeId(7), Cause::Device, 10);
            let two = [(VolumeId(7), 1), (VolumeId(8), 2)];
            stats.wait_all(lane, Cause::Log, two.into_iter());
        }
        let waits = stats.waits();
        assert_eq!(waits[&VolumeId(7)], [4, 40, 0]);
        assert_eq!(waits[&VolumeId(8)], [8, 0, 0]);
        stats.retain(|id| id == VolumeId(8));
        assert_eq!(stats.waits().len(), 1);
    }

    #[test]
    fn failures_are_summed_in_a_table_that_does_not_grow() {
        let stats = Stats::new(2);
        stats.fail(0, 3, 2);
        stats.fail(1, 3, 2);
        stats.fail(2, 3, 70);
        stats.fail(0, OPERATIONS as u8, 70);
        let known = [((3, 2), 2), ((3, 70), 1)];
        assert_eq!(stats.failures(), Failures::from(known));
        let room = stats.lanes[0].lock().failures.capacity();
        for operation in 0..OPERATIONS as u8 {
            for status in 100..200 {
                stats.fail(0, operation, status);
            }
        }
        stats.fail(0, 3, 2);
        assert_eq!(stats.lanes[0].lock().failures.capacity(), room);
        let all = stats.failures();
        assert!(all.len() <= MAX_COUNTED_FAILURES + OPERATIONS);
        assert_eq!(all.values().sum::<u64>(), 100 * OPERATIONS as u64 + 4);
        assert_eq!(all[&(3, 2)], 3);
        let last = OPERATIONS as u8 - 1;
        assert_eq!(all[&(last, OTHER_STATUS)], 100);
    }

    #[test]
    fn any_number_of_clients_takes_bounded_memory() {
        let stats = Stats::classed(1, classes());
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
        let pairs = stats.volume_clients();
        assert!(pairs.len() <= MAX_COUNTED_VOLUME_CLIENTS + 1);
        assert_eq!(pairs.values().map(|moved| moved[2].0).sum::<u64>(), 5000);
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since() {
        let mut before = Totals::default();
        assert_eq!(before.quantile(0.5), 0.0);
        before.buckets[0] = 5;
        let mut now = before;
        now.buckets[1] += 98;
        now.buckets[4] += 2;
        let second = now.since(&before);
        assert_eq!(second.buckets[..5], [0, 98, 0, 0, 2]);
        let of = |share: f64| second.quantile(share) / FIRST_BUCKET as f64;
        assert!((of(0.49) - 1.5).abs() < 1e-9, "{}", of(0.49));
        assert!((of(0.99) - 12.0).abs() < 1e-9, "{}", of(0.99));
        // Counters that were taken over by others are behind.
        assert_eq!(before.since(&now), Totals::default());
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

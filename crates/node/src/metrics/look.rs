//! Rows of figures by the second, from the difference of two readings of the counters.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use weir_api::live::{FIRST_SECONDS, Kind, LATENCIES, OperationTimes, Row, WAITS, bound_by};
use weir_base::VolumeId;
use weir_nfs::operation as nfs;
use weir_qos::{LEVELS, Limit, LimitDelays};
use weir_smb::operation as smb;
use weir_vfs::stats::{
    BUCKETS, Cause, Class, ClassTotals, Classes, FIRST_BUCKET, OPERATIONS, Totals, WaitTimes,
};
use weir_vfs::throttle::{PoolStatus, VolumeStatus};

use super::client_name;

/// Id of the pool in plans under which instances hang: no resource has it.
const INSTANCES: u64 = 0;

const _: () = assert!(LATENCIES == BUCKETS && FIRST_SECONDS * 1e9 == FIRST_BUCKET as f64);
const _: () = assert!(WAITS.len() == LEVELS + Cause::ALL.len());

/// Returns the class of each operation by its name.
pub fn classes() -> Classes {
    let mut classes = [Class::Other; OPERATIONS];
    for (number, class) in (0u8..).zip(&mut classes) {
        let name = nfs::name(number).or_else(|| smb::name(number));
        *class = match name.map(|(_, name)| name) {
            Some("READ" | "READ_PLUS") => Class::Read,
            Some("WRITE") => Class::Write,
            _ => Class::Other,
        };
    }
    classes
}

/// Nanoseconds for which limits held something back: level, limit, direction.
type LimitNanos = Vec<(usize, Limit, u64)>;

/// Returns what limits of the first `levels` levels have held.
fn held(bound: Option<&LimitDelays>, levels: usize) -> LimitNanos {
    let times = bound.into_iter().flat_map(LimitDelays::times);
    times
        .filter(|(level, ..)| *level < levels)
        .map(|(level, _, limit, nanos)| (level, limit, nanos))
        .collect()
}

/// Nanoseconds that requests waited, in the order of [`WAITS`].
type Waits = [u64; WAITS.len()];

/// Returns how long a volume's requests have waited for limits and for the rest.
fn waits(bound: Option<&LimitDelays>, other: Option<&WaitTimes>) -> Waits {
    let mut all = Waits::default();
    let limits = bound.map(LimitDelays::waited).unwrap_or_default();
    let other = other.copied().unwrap_or_default();
    for (all, nanos) in all.iter_mut().zip(limits.into_iter().chain(other)) {
        *all = nanos;
    }
    all
}

/// Returns a span's operations, their time and their waits, for each second of the span.
fn spent(totals: &Totals, now: &Waits, before: Option<&Waits>, span: f64) -> OperationTimes {
    let seconds = |nanos: u64| (nanos as f64 / 1e9 / span) as f32;
    let mut waits = [0.0; WAITS.len()];
    for (at, (wait, now)) in waits.iter_mut().zip(now).enumerate() {
        let before = before.and_then(|before| before.get(at)).copied();
        // Counters begin anew when a volume changes its pool.
        *wait = seconds(now.checked_sub(before.unwrap_or(0)).unwrap_or(*now));
    }
    OperationTimes {
        count: (totals.count.iter().sum::<u64>() as f64 / span) as f32,
        operations: seconds(totals.nanos),
        waits,
    }
}

/// Counters at the last reading.
#[derive(Default)]
pub struct Before {
    volumes: HashMap<VolumeId, Totals>,
    clients: HashMap<IpAddr, Totals>,
    pairs: HashMap<(VolumeId, IpAddr), ClassTotals>,
    held_volumes: HashMap<VolumeId, LimitNanos>,
    held_pools: HashMap<u64, LimitNanos>,
    waits: HashMap<VolumeId, Waits>,
}

/// Counters now.
pub struct Now<'a> {
    pub pools: &'a [PoolStatus],
    pub volumes: &'a [VolumeStatus],
    pub totals: HashMap<VolumeId, Totals>,
    pub clients: HashMap<IpAddr, Totals>,
    pub pairs: HashMap<(VolumeId, IpAddr), ClassTotals>,
    pub waits: BTreeMap<VolumeId, WaitTimes>,
}

/// Sets a row's figures of what was done in `span` seconds.
fn done(row: &mut Row, totals: &Totals, span: f64) {
    let [reads, writes, others] = totals.count.map(|n| n as f64 / span);
    let [read, written, _] = totals.bytes.map(|n| n as f64 / span);
    (row.reads, row.writes, row.others) = (reads, writes, others);
    (row.read_bytes, row.write_bytes) = (read, written);
    row.p50 = totals.quantile(0.5) / 1e9;
    row.p99 = totals.quantile(0.99) / 1e9;
    // None is lost where a reading came late; a conversion to integers saturates.
    row.latencies = totals.buckets.map(|n| (n as f64 / span).ceil() as u32);
}

/// Sets a row's figures of what limits held in `span` seconds.
fn bound(row: &mut Row, now: &LimitNanos, before: Option<&LimitNanos>, span: f64) {
    // Counters begin anew when a volume changes its pool.
    let less = |at: usize, nanos: u64| {
        let before = before.and_then(|before| before.get(at)).map_or(0, |b| b.2);
        nanos.checked_sub(before).unwrap_or(nanos)
    };
    let mut most = 0;
    for (at, (level, limit, nanos)) in now.iter().enumerate() {
        let grown = less(at, *nanos);
        if grown > most {
            most = grown;
            row.bound_by = bound_by(*level, limit.name());
        }
    }
    // A reading may count what was held since before the last one.
    row.bound = (most as f64 / 1e9 / span).min(1.0);
}

/// Adds a row for each pool, from the sums over its volumes. Returns how long pools' limits held.
fn pool_rows(
    rows: &mut Vec<(Kind, Arc<str>, Row)>,
    before: &Before,
    pools: &[PoolStatus],
    (totals, spent): (&HashMap<u64, Totals>, &HashMap<u64, OperationTimes>),
    span: f64,
) -> HashMap<u64, LimitNanos> {
    let mut held_pools = HashMap::new();
    for pool in pools {
        let mut row = Row {
            waiting: pool.usage.waiting() as f64,
            waiting_bytes: pool.usage.queued_bytes.iter().sum::<u64>() as f64,
            limit: pool.limits.total.bytes.unwrap_or(0) as f64,
            ..Row::default()
        };
        let totals = totals.get(&pool.id).copied().unwrap_or_default();
        done(&mut row, &totals, span);
        row.spent = spent.get(&pool.id).copied().unwrap_or_default();
        // What the limits of its volumes hold is theirs.
        let times = held(pool.bound.as_deref(), 1);
        bound(&mut row, &times, before.held_pools.get(&pool.id), span);
        held_pools.insert(pool.id, times);
        if pool.id != INSTANCES {
            rows.push((Kind::Pool, Arc::clone(&pool.name), row));
        }
    }
    held_pools
}

/// Returns a row for each pool, and for each volume and client that was not idle, over the `span`
/// seconds since the last reading.
pub fn rows(before: &mut Before, now: Now<'_>, span: f64) -> Vec<(Kind, Arc<str>, Row)> {
    let mut rows = Vec::new();
    let mut of_pools: HashMap<u64, Totals> = HashMap::new();
    let mut waiting: HashMap<IpAddr, (f64, f64)> = HashMap::new();
    let mut waiting_pairs: HashMap<(VolumeId, IpAddr), (f64, f64)> = HashMap::new();
    let mut names: HashMap<VolumeId, Arc<str>> = HashMap::new();
    let mut held_volumes = HashMap::new();
    let mut volume_waits = HashMap::new();
    let mut spent_pools: HashMap<u64, OperationTimes> = HashMap::new();
    for volume in now.volumes {
        let id = volume.volume;
        names.insert(id, Arc::clone(&volume.name));
        let mut row = Row {
            waiting: volume.usage.waiting() as f64,
            waiting_bytes: volume.usage.queued_bytes.iter().sum::<u64>() as f64,
            limit: volume.limits.total.bytes.unwrap_or(0) as f64,
            ..Row::default()
        };
        // A volume that was not there before has counters from its first moment on.
        let none = Totals::default();
        let was = before.volumes.get(&id).unwrap_or(&none);
        let totals = now.totals.get(&id).map(|t| t.since(was)).unwrap_or(none);
        done(&mut row, &totals, span);
        of_pools.entry(volume.pool).or_default().add_all(&totals);
        let waited = waits(volume.bound.as_deref(), now.waits.get(&id));
        row.spent = spent(&totals, &waited, before.waits.get(&id), span);
        spent_pools.entry(volume.pool).or_default().add(&row.spent);
        volume_waits.insert(id, waited);
        let times = held(volume.bound.as_deref(), LEVELS);
        bound(&mut row, &times, before.held_volumes.get(&id), span);
        held_volumes.insert(id, times);
        for client in volume.clients.iter().filter(|c| c.usage.waiting() > 0) {
            if let weir_vfs::ClientKey::Address(ip) = client.client {
                let bytes = client.usage.queued_bytes.iter().sum::<u64>() as f64;
                let requests = client.usage.waiting() as f64;
                let sums = waiting.entry(ip).or_default();
                (sums.0, sums.1) = (sums.0 + requests, sums.1 + bytes);
                waiting_pairs.insert((id, ip), (requests, bytes));
            }
        }
        rows.push((Kind::Volume, Arc::clone(&volume.name), row));
    }
    let sums = (&of_pools, &spent_pools);
    let held_pools = pool_rows(&mut rows, before, now.pools, sums, span);
    for (ip, totals) in &now.clients {
        let none = Totals::default();
        let was = before.clients.get(ip).unwrap_or(&none);
        let (waiting, waiting_bytes) = waiting.get(ip).copied().unwrap_or_default();
        let mut row = Row {
            waiting,
            waiting_bytes,
            ..Row::default()
        };
        done(&mut row, &totals.since(was), span);
        if !row.is_idle() {
            rows.push((Kind::Client, client_name(*ip).into(), row));
        }
    }
    for ((volume, ip), moved) in &now.pairs {
        let none = ClassTotals::default();
        let was = before.pairs.get(&(*volume, *ip)).unwrap_or(&none);
        // Saturates: event loops are read one after the other.
        let less = |class: Class| {
            let at = class as usize;
            let ((count, bytes), (count_was, bytes_was)) = (moved[at], was[at]);
            (
                count.saturating_sub(count_was) as f64 / span,
                bytes.saturating_sub(bytes_was) as f64 / span,
            )
        };
        let (requests, bytes) = waiting_pairs
            .get(&(*volume, *ip))
            .copied()
            .unwrap_or_default();
        let ((reads, read_bytes), (writes, write_bytes)) = (less(Class::Read), less(Class::Write));
        let row = Row {
            read_bytes,
            write_bytes,
            reads,
            writes,
            others: less(Class::Other).0,
            waiting: requests,
            waiting_bytes: bytes,
            ..Row::default()
        };
        if let (false, Some(name)) = (row.is_idle(), names.get(volume)) {
            let name = format!("{name} {}", client_name(*ip));
            rows.push((Kind::VolumeClient, name.into(), row));
        }
    }
    *before = Before {
        volumes: now.totals,
        clients: now.clients,
        pairs: now.pairs,
        held_volumes,
        held_pools,
        waits: volume_waits,
    };
    rows
}

//! The page of `/metrics`: all counters in the Prometheus text format (version 0.0.4).
//!
//! Families, with their labels:
//!
//! - `weir_operation_seconds` (pool, volume, protocol, operation): histogram of the time from a
//!   call's arrival to its reply
//! - `weir_operation_bytes_total` (as above): data moved
//! - `weir_operation_errors_total` (protocol, operation, status): operations that failed
//! - `weir_log_write_seconds`: histogram of [`crate::device_metrics`]
//! - `weir_device_operation_seconds` (operation): histogram of [`crate::device_metrics`]
//! - `weir_client_operation_seconds` (client): histogram over all operations of a client, for the
//!   busiest
//! - `weir_client_bytes_total` (client): data moved, for the busiest
//! - `weir_limit_bytes_per_second`, `…_operations_…` (level, pool, volume, direction): limits in
//!   force
//! - `weir_limit_used_…` (as above, and client): use of limits in the last second
//! - `weir_limit_bound_seconds_total` (level, pool, volume, limit, direction): time in which
//!   requests of the volume waited for this limit
//! - `weir_limit_binding` (level, pool, volume, limit): 1 if this limit was the last to
//!   throttle the volume in the last second
//! - `weir_throttled_seconds_total`, `weir_throttled_operations_total` (pool, volume, direction):
//!   time that requests waited, and number of these requests
//! - `weir_throttle_queue_length`, `…_queue_bytes` (pool, volume, direction): requests
//!   that wait now
//! - `weir_limit_metadata_operations_total` (level, pool, volume): metadata operations charged
//!   to a limit on operations
//! - `weir_client_throttled_…` (pool, volume, client): throttled and permitted requests of
//!   clients of limited volumes
//! - `weir_held_bytes`, `weir_held_limit_bytes`: memory of requests that wait
//! - `weir_nfs4_clients` (state): clients of NFSv4: `active`, or `courteous` (silent for longer
//!   than a lease)
//! - `weir_nfs4_sessions`, `weir_nfs4_slots`: sessions of NFSv4 clients, and slots of
//!   all sessions
//! - `weir_smb_states` (kind): state of SMB users: `session`, `tree_connect`, `open`;
//!   `persistent_open`, with a session or without
//! - `weir_nfs4_states` (kind): state of NFSv4 clients: `open`, `lock_owner`, `delegation`, and
//!   `revoked` until the client frees it
//! - `weir_security_contexts`: users established by Kerberos; only with `--krb5-keytab`
//! - `weir_operation_wait_seconds_total` (pool, volume, wait): time that requests waited: for
//!   limits of a level (`pool`, `volume`, `client`), for the log to be durable (`log`), for the
//!   device (`device`), for a claim of another client (`claim`). Without a volume: waits that could
//!   not be attributed to one
//! - `weir_checksum_errors_total`, `weir_damaged_blocks` (reader): blocks not as written
//! - `weir_scrub_…`: scrubs since the start
//! - `weir_condition` (kind, severity, resource): 1 while a condition of `/v1/conditions` holds
//! - `weir_build_info` (version): 1
//! - `process_cpu_seconds_total`, `process_resident_memory_bytes`, `weir_uptime_seconds`: the
//!   server
//!
//! Protocols are `nfsv3`, `nfsv4`, `smb`, `mountv3` and `nlmv4`; calls that are refused earlier
//! count as `rpc`. A direction is the class of an operation for limits: `read` is READ, `write` is
//! WRITE; nothing else is limited. A pool's figures are the sum over its volumes, histograms
//! included. A rate is a counter's growth: `rate(…_count[1m])`.
//!
//! Sums run from the server's start (for limits: from when they began to apply). The number of
//! series is bounded: the [`DETAILED`] busiest volumes have histograms, and the [`CLIENTS`] busiest
//! clients series of their own.

mod look;
mod page;
mod sampler;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::scrub_counters::{ScrubCounters, ScrubFacts};
pub use look::classes;
use page::Page;
pub use page::{Family, Pieces};
use parking_lot::Mutex;
pub use sampler::Sampler;
use weir_api::live::{Live, Report};
use weir_base::latency::Latencies;
use weir_base::{Clock, VolumeId};
use weir_nfs::{Service, operation};
use weir_qos::{Direction, Limit, Limits, Usage};
use weir_store::Cache;
use weir_store::cache::CacheStats;
use weir_vfs::stats::{Cause, Failures, OTHER_STATUS, OTHERS, Stats, UNATTRIBUTED, WaitTimes};
use weir_vfs::throttle::{Level, PoolStatus, VolumeStatus};
use weir_vfs::{ClientKey, Vfs};

/// Volumes that have histograms.
const DETAILED: usize = 500;
/// Clients that have series of their own.
const CLIENTS: usize = 200;
/// Clients of limited volumes that have series of their own.
const THROTTLED_CLIENTS: usize = 1000;

/// The parts of the server whose counters are shown.
pub struct Metrics {
    vfs: Arc<Vfs>,
    stats: Arc<Stats>,
    clock: Arc<dyn Clock>,
    cache: Arc<Cache>,
    rates: Mutex<Rates>,
    live: Arc<Live>,
    nfs: Option<Arc<Service>>,
    smb: Option<Arc<weir_smb::Service>>,
    scrubs: Arc<ScrubCounters>,
}

/// Key of a node of the limits.
type Node = (Level, u64, Option<ClientKey>);

/// Rates by the difference of two readings.
#[derive(Default)]
struct Rates {
    at: f64,
    /// Counts readings.
    reading: u64,
    /// Usage of each node at its last reading, and the number of that reading.
    last: HashMap<Node, (Usage, u64)>,
    rates: HashMap<Node, NodeRates>,
    before: look::Before,
}

/// Usage of a node per second, between the last two readings.
struct NodeRates {
    /// Bytes, by direction.
    bytes: [f64; 2],
    /// Operations, by direction.
    ops: [f64; 2],
    /// Operations that metadata was charged.
    metadata: f64,
}

impl Rates {
    fn note(&mut self, span: f64, node: Node, usage: Usage) {
        let Some((before, _)) = self.last.insert(node, (usage, self.reading)) else {
            // It is new.
            return;
        };
        // Saturates: a refund may be behind what it refunds.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / span;
        let each =
            |now: [u64; 2], before: [u64; 2]| [rate(now[0], before[0]), rate(now[1], before[1])];
        let used = NodeRates {
            bytes: each(usage.bytes, before.bytes),
            ops: each(usage.ops, before.ops),
            metadata: rate(usage.metadata, before.metadata),
        };
        self.rates.insert(node, used);
    }

    /// Returns a node's usage of a limit, per second.
    fn used(&self, node: Node, limit: Limit) -> Option<f64> {
        let NodeRates {
            bytes,
            ops,
            metadata,
        } = self.rates.get(&node)?;
        Some(match limit {
            Limit::TotalBytes => bytes.iter().sum(),
            Limit::TotalOps => ops.iter().sum::<f64>() + metadata,
            Limit::ReadBytes => bytes[0],
            Limit::WriteBytes => bytes[1],
            Limit::ReadOps => ops[0],
            Limit::WriteOps => ops[1],
        })
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Metrics {
    /// Shows these counters and limits, and the clients of `services`.
    pub fn new(
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        clock: Arc<dyn Clock>,
        cache: Arc<Cache>,
        live: Arc<Live>,
        services: (Option<Arc<Service>>, Option<Arc<weir_smb::Service>>),
    ) -> Metrics {
        let (nfs, smb) = services;
        Metrics {
            vfs,
            stats,
            clock,
            cache,
            rates: Mutex::default(),
            live,
            nfs,
            smb,
            scrubs: Arc::default(),
        }
    }

    /// Returns the counters that scrubs fill.
    pub fn scrubs(&self) -> Arc<ScrubCounters> {
        Arc::clone(&self.scrubs)
    }

    /// Reads all counters. Called once a second, so that rates do not depend on the times of
    /// scrapes. `at` is the present second, since 1970.
    pub fn sample(&self, at: u64) {
        let mut rates = self.rates.lock();
        let rates = &mut *rates;
        let now = self.clock.monotonic().as_secs_f64();
        let span = (now - rates.at).max(1e-3);
        rates.at = now;
        rates.reading += 1;
        rates.rates.clear();
        let pools = self.vfs.throttle.pools();
        let volumes = self.vfs.throttle.volumes();
        for pool in &pools {
            rates.note(span, (Level::Pool, pool.id, None), pool.usage);
        }
        for volume in &volumes {
            let id = volume.volume.0;
            rates.note(span, (Level::Volume, id, None), volume.usage);
            let limited = volume.client_limits.is_limited();
            for client in volume.clients.iter().filter(|_| limited) {
                let node = (Level::Client, id, Some(client.client));
                rates.note(span, node, client.usage);
            }
        }
        let now = look::Now {
            pools: &pools,
            volumes: &volumes,
            totals: self.stats.totals(),
            clients: self.stats.client_totals(),
            pairs: self.stats.volume_clients(),
            waits: self.stats.waits(),
        };
        let first = rates.reading == 1;
        let rows = look::rows(&mut rates.before, now, span);
        // What was counted before the first reading is not of its second.
        if !first {
            self.live.book.record(at, rows);
        }
        let reading = rates.reading;
        rates.last.retain(|_, (_, seen)| *seen == reading);
    }

    /// Returns the page of `/metrics`, which is built as it is read. Meanwhile it keeps a few bytes
    /// a volume.
    pub fn pieces(self: &Arc<Self>) -> Pieces {
        let scrape = Arc::new(Scrape {
            pools: self.vfs.throttle.pools().into(),
            volumes: self.vfs.throttle.numbers().into(),
            metrics: Arc::clone(self),
        });
        let mut page = Pieces::default();
        scrape.operations(&mut page);
        let failures = self.stats.failures();
        page.then(move |page| errors(page, &failures));
        self.clients(&mut page);
        scrape.limits(&mut page);
        scrape.throttled(&mut page);
        scrape.over_volumes(
            &mut page,
            (
                "weir_operation_wait_seconds_total",
                "counter",
                "Time that requests waited, by what for.",
            ),
            waits,
        );
        scrape.other_waits(&mut page);
        scrape.metadata(&mut page);
        throttled_clients(&mut page, &scrape);
        let metrics = Arc::clone(self);
        page.then(move |page| metrics.rest(page));
        page
    }

    /// Adds what is counted once for the whole server.
    fn rest(&self, page: &mut Page) {
        let (held, credit) = self.vfs.throttle.held();
        page.family(
            "weir_held_bytes",
            "gauge",
            "Memory of requests that wait for limits.",
        );
        page.sample("weir_held_bytes", &[], held);
        page.family("weir_held_limit_bytes", "gauge", "How much that may be.");
        page.sample("weir_held_limit_bytes", &[], credit.total);
        self.locks(page);
        if let Some(service) = self.nfs.as_ref() {
            nfs4(page, service);
        }
        if let Some(service) = self.smb.as_ref() {
            smb(page, service);
        }
        let stats = self.cache.stats();
        cache(page, stats);
        integrity(page, stats.damaged, &self.scrubs.facts());
        process(page, &*self.clock);
        conditions(page, &self.live.conditions.report());
        let family = "weir_build_info";
        page.family(family, "gauge", "The version of the server, as a label.");
        page.sample(family, &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let family = "weir_uptime_seconds";
        page.family(family, "gauge", "The clock that rates are to be made by.");
        page.sample(family, &[], self.clock.monotonic().as_secs_f64());
    }

    fn locks(&self, page: &mut Page) {
        let totals = self.vfs.claims.totals();
        let family = "weir_locks";
        page.family(family, "gauge", "Byte-range locks and opens.");
        page.sample(family, &[("state", "held")], totals.held);
        page.sample(family, &[("state", "waiting")], totals.waiting);
        let family = "weir_delegations";
        page.family(family, "gauge", "Delegations of NFSv4.");
        page.sample(family, &[], totals.grants);
        let (recalled, revoked) = self.vfs.claims.recalls();
        let family = "weir_recalls_total";
        page.family(
            family,
            "counter",
            "Delegations that were recalled, and those of them that were revoked.",
        );
        page.sample(family, &[("result", "recalled")], recalled);
        page.sample(family, &[("result", "revoked")], revoked);
        let family = "weir_lock_bytes";
        page.family(
            family,
            "gauge",
            "Memory of locks and of what belongs to them.",
        );
        page.sample(family, &[], totals.bytes);
        let family = "weir_lock_limit_bytes";
        page.family(family, "gauge", "How much that may be.");
        page.sample(family, &[], self.vfs.claims.budget().total());
    }

    fn clients(&self, page: &mut Pieces) {
        let clients = self.stats.clients(CLIENTS).into_iter();
        let clients: Arc<[_]> = clients
            .map(|(ip, tally)| (client_name(ip), tally))
            .collect();
        let family = "weir_client_operation_seconds";
        page.family((
            family,
            "histogram",
            "From a call's arrival to its reply, of all operations of a client.",
        ));
        page.each(&clients, move |page, (client, tally)| {
            histogram(
                page,
                family,
                &[("client", client)],
                &tally.latencies(),
                true,
            );
        });
        let family = "weir_client_bytes_total";
        page.family((family, "counter", "Data moved for a client."));
        page.each(&clients, move |page, (client, tally)| {
            page.sample(family, &[("client", client)], tally.bytes);
        });
    }
}

/// A client on a volume as a page shows it.
struct OfClient {
    volume: VolumeId,
    name: Arc<str>,
    pool: u64,
    client: ClientKey,
    limits: Limits,
    usage: Usage,
}

/// State that the steps of one page share.
struct Scrape {
    metrics: Arc<Metrics>,
    pools: Arc<[PoolStatus]>,
    /// The volumes that the plan names.
    volumes: Arc<[VolumeId]>,
}

impl Scrape {
    fn pool(&self, id: u64) -> &str {
        pool_name(&self.pools, id)
    }

    /// Adds a family over limited volumes, one after the other.
    fn over_volumes(
        self: &Arc<Self>,
        page: &mut Pieces,
        family: Family,
        row: impl Fn(&mut Page, &'static str, &str, &VolumeStatus) + Send + 'static,
    ) {
        page.family(family);
        self.rows(page, family.0, row);
    }

    /// Adds rows of limited volumes to the family begun last.
    fn rows(
        self: &Arc<Self>,
        page: &mut Pieces,
        family: &'static str,
        row: impl Fn(&mut Page, &'static str, &str, &VolumeStatus) + Send + 'static,
    ) {
        let scrape = Arc::clone(self);
        page.each(&self.volumes, move |page, id| {
            if let Some(volume) = scrape.metrics.vfs.throttle.status_alone(*id) {
                row(page, family, scrape.pool(volume.pool), &volume);
            }
        });
    }

    /// Adds to the waits for limits those for the log, the device and other clients' claims.
    fn other_waits(self: &Arc<Self>, page: &mut Pieces) {
        let waits = self.metrics.stats.waits();
        let volumes: Arc<[(VolumeId, WaitTimes)]> = waits.into_iter().collect();
        let scrape = Arc::clone(self);
        page.each(&volumes, move |page, (id, waited)| {
            let mut show = |pool: &str, volume: &str| {
                for (cause, nanos) in Cause::ALL.into_iter().zip(waited) {
                    let labels = [("pool", pool), ("volume", volume), ("wait", cause.name())];
                    page.sample(
                        "weir_operation_wait_seconds_total",
                        &labels,
                        seconds(*nanos),
                    );
                }
            };
            match *id {
                UNATTRIBUTED => show("", ""),
                id => scrape.with_volume_name(id, show),
            }
        });
    }

    /// Shows a volume's counters under its name and that of its pool, unless it is gone.
    fn with_volume_name(&self, id: VolumeId, show: impl FnOnce(&str, &str)) {
        let metrics = &self.metrics;
        match metrics.vfs.throttle.name(id) {
            Some((name, pool)) => show(self.pool(pool), &name),
            None => {
                let exports = metrics.vfs.exports();
                if let Some(export) = exports.of_volume(id) {
                    show("", export.path.trim_start_matches('/'));
                }
            }
        }
    }

    fn operations(self: &Arc<Self>, page: &mut Pieces) {
        let mut busiest = Vec::new();
        for (id, count) in self.metrics.stats.counts() {
            self.with_volume_name(id, |_, _| busiest.push((id, count)));
        }
        busiest.sort_unstable_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
        let volumes = busiest.into_iter().enumerate();
        let volumes: Arc<[_]> = volumes.map(|(at, (id, _))| (id, at < DETAILED)).collect();
        let family = "weir_operation_seconds";
        page.family((family, "histogram", "From a call's arrival to its reply."));
        let scrape = Arc::clone(self);
        page.each(&volumes, move |page, (id, detailed)| {
            scrape.with_volume_name(*id, |pool, name| {
                for (operation, tally) in scrape.metrics.stats.of_volume(*id) {
                    let labels = labels(pool, name, operation);
                    histogram(page, family, &labels, &tally.latencies(), *detailed);
                }
            });
        });
        let family = "weir_operation_bytes_total";
        page.family((family, "counter", "Data moved."));
        let scrape = Arc::clone(self);
        page.each(&volumes, move |page, (id, _)| {
            scrape.with_volume_name(*id, |pool, name| {
                for (operation, tally) in scrape.metrics.stats.of_volume(*id) {
                    if tally.bytes > 0 {
                        page.sample(family, &labels(pool, name, operation), tally.bytes);
                    }
                }
            });
        });
    }

    fn limits(self: &Arc<Self>, page: &mut Pieces) {
        let clients = self.busiest_clients(|volume| volume.client_limits.is_limited());
        for shown in LIMIT_FAMILIES {
            page.family(shown.family);
            let scrape = Arc::clone(self);
            page.each(&self.pools, move |page, pool| {
                let node = (Level::Pool, pool.id, None);
                scrape.limit(page, shown, node, (&pool.name, ""), &pool.limits);
            });
            let scrape = Arc::clone(self);
            self.rows(page, shown.family.0, move |page, _, pool, volume| {
                let (id, of) = (volume.volume.0, (pool, &*volume.name));
                let node = (Level::Volume, id, None);
                scrape.limit(page, shown, node, of, &volume.limits);
                // What each client uses differs from client to client, and comes below.
                let node = (Level::Client, id, None);
                scrape.limit(page, shown, node, of, &volume.client_limits);
            });
            if shown.used {
                let scrape = Arc::clone(self);
                page.each(&clients, move |page, row| {
                    let node = (Level::Client, row.volume.0, Some(row.client));
                    let of = (scrape.pool(row.pool), &*row.name);
                    scrape.limit(page, shown, node, of, &row.limits);
                });
            }
        }
        let family = (
            "weir_limit_bound_seconds_total",
            "counter",
            "Time in which requests of the volume waited for the limit.",
        );
        self.over_volumes(page, family, bound);
        let family = (
            "weir_limit_binding",
            "gauge",
            "1: the limit held requests of the volume back last, in the last second.",
        );
        self.over_volumes(page, family, |page, family, pool, volume| {
            if let Some(binding) = volume.binding {
                let labels = [
                    ("level", binding.level.name()),
                    ("pool", pool),
                    ("volume", &volume.name),
                    ("limit", binding.limit.name()),
                ];
                page.sample(family, &labels, 1);
            }
        });
    }

    /// Adds the limits that are set for a node, in one unit, or their use as far as it is known.
    fn limit(
        &self,
        page: &mut Page,
        shown: &LimitFamily,
        node: Node,
        (pool, volume): (&str, &str),
        limits: &Limits,
    ) {
        let client = node.2.map(|client| client.to_string());
        for (limit, rate) in rates_of(limits) {
            let (bytes, direction) = unit_of(limit);
            if bytes != shown.bytes {
                continue;
            }
            let value = if shown.used {
                self.metrics.rates.lock().used(node, limit)
            } else {
                Some(rate as f64)
            };
            let Some(value) = value else {
                continue;
            };
            let mut labels = vec![
                ("level", node.0.name()),
                ("pool", pool),
                ("volume", volume),
                ("direction", direction),
            ];
            labels.extend(client.as_deref().map(|client| ("client", client)));
            page.sample(shown.family.0, &labels, value);
        }
    }

    /// Returns the busiest clients of the volumes that `fits` accepts.
    fn busiest_clients(&self, fits: impl Fn(&VolumeStatus) -> bool) -> Arc<[OfClient]> {
        let mut rows: Vec<OfClient> = Vec::new();
        let keep = |rows: &mut Vec<OfClient>| {
            rows.sort_by_key(|row| {
                std::cmp::Reverse((row.usage.waiting(), row.usage.ops.iter().sum::<u64>()))
            });
            rows.truncate(THROTTLED_CLIENTS);
        };
        let throttle = &self.metrics.vfs.throttle;
        throttle.each_volume(true, &mut |volume| {
            if !fits(&volume) {
                return;
            }
            rows.extend(volume.clients.iter().map(|client| OfClient {
                volume: volume.volume,
                name: Arc::clone(&volume.name),
                pool: volume.pool,
                client: client.client,
                limits: volume.client_limits,
                usage: client.usage,
            }));
            if rows.len() > 2 * THROTTLED_CLIENTS {
                keep(&mut rows);
            }
        });
        keep(&mut rows);
        rows.into()
    }

    /// Adds one family by direction over limited volumes.
    fn by_direction<V: std::fmt::Display>(
        self: &Arc<Self>,
        page: &mut Pieces,
        family: Family,
        values: impl Fn(&Usage) -> [V; 2] + Send + 'static,
    ) {
        self.over_volumes(page, family, move |page, family, pool, volume| {
            for (direction, value) in ["read", "write"].into_iter().zip(values(&volume.usage)) {
                let labels = [
                    ("pool", pool),
                    ("volume", &*volume.name),
                    ("direction", direction),
                ];
                page.sample(family, &labels, value);
            }
        });
    }

    fn throttled(self: &Arc<Self>, page: &mut Pieces) {
        let family = (
            "weir_throttled_seconds_total",
            "counter",
            "Time that requests waited for limits.",
        );
        self.by_direction(page, family, |usage| usage.waited.map(seconds));
        let family = (
            "weir_throttled_operations_total",
            "counter",
            "Requests that had to wait for limits.",
        );
        self.by_direction(page, family, |usage| usage.delayed);
        let family = (
            "weir_throttle_queue_length",
            "gauge",
            "Requests that wait for limits now.",
        );
        self.by_direction(page, family, |usage| usage.queued);
        let family = (
            "weir_throttle_queue_bytes",
            "gauge",
            "Data of the requests that wait for limits now.",
        );
        self.by_direction(page, family, |usage| usage.queued_bytes);
    }

    /// Adds what metadata took of limits on operations.
    fn metadata(self: &Arc<Self>, page: &mut Pieces) {
        let family = "weir_limit_metadata_operations_total";
        page.family((
            family,
            "counter",
            "What metadata took of a limit on operations.",
        ));
        let row = move |page: &mut Page, level: Level, names: [&str; 2], limits: &Limits, used| {
            if limits.total.ops.is_some() {
                let [pool, volume] = names;
                let labels = [("level", level.name()), ("pool", pool), ("volume", volume)];
                page.sample(family, &labels, used);
            }
        };
        page.each(&self.pools, move |page, pool| {
            let used = pool.usage.metadata;
            row(page, Level::Pool, [&pool.name, ""], &pool.limits, used);
        });
        self.rows(page, family, move |page, _, pool, volume| {
            let (names, used) = ([pool, &*volume.name], volume.usage.metadata);
            row(page, Level::Volume, names, &volume.limits, used);
        });
    }
}

/// A family of limits, or of their use, in one unit.
struct LimitFamily {
    family: Family,
    /// The use of the last second, not the limit.
    used: bool,
    /// Bytes a second, not operations.
    bytes: bool,
}

const LIMIT_FAMILIES: &[LimitFamily] = &[
    LimitFamily {
        family: (
            "weir_limit_bytes_per_second",
            "gauge",
            "Limits on data in force.",
        ),
        used: false,
        bytes: true,
    },
    LimitFamily {
        family: (
            "weir_limit_operations_per_second",
            "gauge",
            "Limits on operations in force.",
        ),
        used: false,
        bytes: false,
    },
    LimitFamily {
        family: (
            "weir_limit_used_bytes_per_second",
            "gauge",
            "Data that counted for a limit in the last second.",
        ),
        used: true,
        bytes: true,
    },
    LimitFamily {
        family: (
            "weir_limit_used_operations_per_second",
            "gauge",
            "Operations that counted for a limit in the last second.",
        ),
        used: true,
        bytes: false,
    },
];

/// Returns whether a limit is on bytes, not operations, and the direction that it limits.
fn unit_of(limit: Limit) -> (bool, &'static str) {
    match limit {
        Limit::TotalBytes => (true, "both"),
        Limit::ReadBytes => (true, "read"),
        Limit::WriteBytes => (true, "write"),
        Limit::TotalOps => (false, "both"),
        Limit::ReadOps => (false, "read"),
        Limit::WriteOps => (false, "write"),
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// Adds for how long each limit held requests of a volume back.
fn bound(page: &mut Page, family: &str, pool: &str, volume: &VolumeStatus) {
    let Some(bound) = &volume.bound else {
        return;
    };
    for (level, direction, limit, nanos) in bound.times().filter(|(.., nanos)| *nanos > 0) {
        let labels = [
            (
                "level",
                Level::ALL.get(level).map_or("", |level| level.name()),
            ),
            ("pool", pool),
            ("volume", &volume.name),
            ("limit", limit.name()),
            ("direction", direction_name(direction)),
        ];
        page.sample(family, &labels, seconds(nanos));
    }
}

/// Adds the time that requests of a volume waited for limits, by the level of the limit that held
/// them.
fn waits(page: &mut Page, family: &str, pool: &str, volume: &VolumeStatus) {
    let waited = volume.bound.as_ref().map(|bound| bound.waited());
    for (level, nanos) in Level::ALL.into_iter().zip(waited.unwrap_or_default()) {
        let labels = [
            ("pool", pool),
            ("volume", &*volume.name),
            ("wait", level.name()),
        ];
        page.sample(family, &labels, seconds(nanos));
    }
}

/// Adds a sample for each condition that holds.
fn conditions(page: &mut Page, report: &Report) {
    let family = "weir_condition";
    page.family(
        family,
        "gauge",
        "1: the condition holds; /v1/conditions has the words.",
    );
    for (condition, _) in &report.conditions {
        let labels = [
            ("kind", condition.kind.as_str()),
            ("severity", condition.severity.as_str()),
            ("resource", &*condition.resource),
        ];
        page.sample(family, &labels, 1);
    }
}

fn pool_name(pools: &[PoolStatus], id: u64) -> &str {
    match pools.binary_search_by_key(&id, |pool| pool.id) {
        Ok(at) => pools.get(at).map_or("", |pool| &pool.name),
        Err(_) => "",
    }
}

/// The protocol and the name of an operation by its number.
pub fn operation_name(number: u8) -> Option<(&'static str, &'static str)> {
    operation::name(number).or_else(|| weir_smb::operation::name(number))
}

/// Adds the operations that failed.
fn errors(page: &mut Page, failures: &Failures) {
    let family = "weir_operation_errors_total";
    page.family(family, "counter", "Operations that failed, by status.");
    for ((number, status), count) in failures {
        let (protocol, operation) = operation_name(*number).unwrap_or(("other", "other"));
        let name = match (protocol, *status) {
            (_, OTHER_STATUS) => Some("other"),
            ("nfsv4", status) => weir_nfs::v4::status::Status::name(status),
            ("smb", status) => weir_smb::status::Status::name(status),
            ("nlmv4", status) => weir_nfs::nlm::wire::status_name(status),
            ("rpc", status) => operation::refusal_name(status),
            // MOUNT's statuses are a part of NFSv3's.
            (_, status) => weir_nfs::v3::status::Status::name(status),
        };
        let number = name.is_none().then(|| status.to_string());
        let status = name.or(number.as_deref()).unwrap_or_default();
        let labels = [
            ("protocol", protocol),
            ("operation", operation),
            ("status", status),
        ];
        page.sample(family, &labels, *count);
    }
}

fn client_name(ip: std::net::IpAddr) -> String {
    match ip {
        OTHERS => "others".to_owned(),
        ip => ip.to_string(),
    }
}

fn labels<'a>(pool: &'a str, name: &'a str, operation: u8) -> [(&'static str, &'a str); 4] {
    let (protocol, operation) = operation_name(operation).unwrap_or(("other", "other"));
    [
        ("pool", pool),
        ("volume", name),
        ("protocol", protocol),
        ("operation", operation),
    ]
}

/// Adds a histogram; without `buckets`, only the bucket that has everything, which there must be.
pub(crate) fn histogram(
    page: &mut Page,
    family: &str,
    labels: &[(&str, &str)],
    latencies: &Latencies,
    buckets: bool,
) {
    let name = format!("{family}_bucket");
    for (bound, count) in latencies.cumulative() {
        let bound = match bound.is_infinite() {
            true => "+Inf".to_owned(),
            false if !buckets => continue,
            false => bound.to_string(),
        };
        let with_bound = [labels, &[("le", &bound)]].concat();
        page.sample(&name, &with_bound, count);
    }
    page.sample(&format!("{family}_sum"), labels, latencies.seconds());
    page.sample(&format!("{family}_count"), labels, latencies.count);
}

/// The limits that are set.
fn rates_of(limits: &Limits) -> impl Iterator<Item = (Limit, u64)> {
    [
        (Limit::TotalBytes, limits.total.bytes),
        (Limit::TotalOps, limits.total.ops),
        (Limit::ReadBytes, limits.read.bytes),
        (Limit::ReadOps, limits.read.ops),
        (Limit::WriteBytes, limits.write.bytes),
        (Limit::WriteOps, limits.write.ops),
    ]
    .into_iter()
    .filter_map(|(limit, rate)| Some((limit, rate?)))
}

fn smb(page: &mut Page, service: &weir_smb::Service) {
    let (sessions, trees, opens) = service.counts();
    let family = "weir_smb_states";
    page.family(family, "gauge", "What users have over SMB.");
    for (kind, count) in [
        ("session", sessions),
        ("tree_connect", trees),
        ("open", opens),
        ("persistent_open", service.persistent()),
    ] {
        page.sample(family, &[("kind", kind)], count);
    }
}

/// Clients and sessions of NFSv4, and security contexts.
fn nfs4(page: &mut Page, service: &Service) {
    let counts = service.nfs4_counts();
    let family = "weir_nfs4_clients";
    page.family(family, "gauge", "Clients of NFSv4.");
    page.sample(family, &[("state", "active")], counts.clients);
    page.sample(family, &[("state", "courteous")], counts.courteous);
    let family = "weir_nfs4_sessions";
    page.family(family, "gauge", "Sessions of NFSv4.");
    page.sample(family, &[], counts.sessions);
    let family = "weir_nfs4_slots";
    page.family(family, "gauge", "Slots of all sessions of NFSv4.");
    page.sample(family, &[], counts.slots);
    let family = "weir_nfs4_states";
    page.family(family, "gauge", "What clients of NFSv4 have.");
    for (kind, count) in [
        ("open", counts.states.opens),
        ("lock_owner", counts.states.lock_owners),
        ("delegation", counts.states.delegations),
        ("revoked", counts.states.revoked),
    ] {
        page.sample(family, &[("kind", kind)], count);
    }
    if let Some(gss) = service.gss() {
        let family = "weir_security_contexts";
        page.family(family, "gauge", "Users established by Kerberos.");
        page.sample(family, &[], gss.contexts());
    }
}

fn throttled_clients(page: &mut Pieces, scrape: &Arc<Scrape>) {
    let rows = scrape.busiest_clients(|_| true);
    let mut value = |family: Family, of: fn(&Usage) -> f64| {
        page.family(family);
        let scrape = Arc::clone(scrape);
        page.each(&rows, move |page, row| {
            let labels = [
                ("pool", scrape.pool(row.pool)),
                ("volume", &*row.name),
                ("client", &row.client.to_string()),
            ];
            page.sample(family.0, &labels, of(&row.usage));
        });
    };
    value(
        (
            "weir_client_throttled_bytes_total",
            "counter",
            "Data let through for a client.",
        ),
        |u| u.bytes.iter().sum::<u64>() as f64,
    );
    value(
        (
            "weir_client_throttled_operations_total",
            "counter",
            "Requests let through for a client.",
        ),
        |u| u.ops.iter().sum::<u64>() as f64,
    );
    value(
        (
            "weir_client_throttled_seconds_total",
            "counter",
            "Time that a client's requests waited.",
        ),
        |u| seconds(u.waited.iter().sum()),
    );
    value(
        (
            "weir_client_throttled_queue_length",
            "gauge",
            "A client's requests that wait now.",
        ),
        |u| u.waiting() as f64,
    );
}

/// Processor time and memory, as the kernel says; nothing where it does not.
fn cache(page: &mut Page, stats: CacheStats) {
    let family = "weir_cache_lookups_total";
    page.family(family, "counter", "Lookups of blocks in the cache.");
    page.sample(family, &[("result", "hit")], stats.hits);
    page.sample(family, &[("result", "miss")], stats.misses);
    let family = "weir_read_ahead_blocks_total";
    page.family(family, "counter", "Blocks of 4 KiB read ahead of requests.");
    page.sample(family, &[], stats.ahead);
    let family = "weir_read_ahead_wasted_blocks_total";
    page.family(family, "counter", "Of those, dropped without a request.");
    page.sample(family, &[], stats.ahead_wasted);
}

/// Adds damaged blocks and scrubs.
fn integrity(page: &mut Page, damaged: u64, scrubs: &ScrubFacts) {
    let family = "weir_checksum_errors_total";
    let help = "Blocks read whose contents did not match their checksum.";
    page.family(family, "counter", help);
    page.sample(family, &[("reader", "request")], damaged);
    page.sample(family, &[("reader", "scrub")], scrubs.faults);
    let family = "weir_damaged_blocks";
    let help = "Damaged blocks of the last scrub, and reads that met one since it began.";
    page.family(family, "gauge", help);
    page.sample(family, &[], scrubs.known(damaged));
    let family = "weir_scrub_read_bytes_total";
    page.family(family, "counter", "Data read and verified by scrubs.");
    page.sample(family, &[], scrubs.read_bytes);
    let family = "weir_scrub_running";
    page.family(family, "gauge", "1: a scrub runs.");
    page.sample(family, &[], u8::from(scrubs.running));
    let family = "weir_scrub_finished_timestamp_seconds";
    let help = "End of the last complete scrub since the server's start, since 1970; 0: none.";
    page.family(family, "gauge", help);
    page.sample(family, &[], scrubs.finished.unwrap_or(0));
}

fn process(page: &mut Page, clock: &dyn Clock) {
    let family = "process_start_time_seconds";
    page.family(family, "gauge", "When the server began, since 1970.");
    let now = clock.current_time();
    let now = now.secs as f64 + f64::from(now.nanos) / 1e9;
    page.sample(family, &[], (now - clock.monotonic().as_secs_f64()).round());
    let family = "process_cpu_seconds_total";
    page.family(family, "counter", "Processor time of the server.");
    page.sample(family, &[], crate::os::cpu_seconds());
    if let Some((open, most)) = crate::os::open_files() {
        let family = "process_open_fds";
        page.family(family, "gauge", "Files that the server has open.");
        page.sample(family, &[], open);
        if let Some(most) = most {
            let family = "process_max_fds";
            page.family(family, "gauge", "Files that the server may have open.");
            page.sample(family, &[], most);
        }
    }
    if let Some(bytes) = crate::os::resident_bytes() {
        let family = "process_resident_memory_bytes";
        page.family(family, "gauge", "Memory of the server.");
        page.sample(family, &[], bytes);
    }
}

//! Rates of the time between two samples of the counters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::page::Sample;

/// A sample of all counters.
pub struct MetricsSample {
    /// Seconds since some fixed moment, by the server's clock if it reports one.
    pub at: f64,
    /// All series that the server reports.
    pub samples: Vec<Sample>,
}

/// A pool, volume or client over the time between two samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The pool's name; empty for a client.
    pub pool: String,
    /// The volume's or client's name; empty for a pool.
    pub name: String,
    /// Bytes read a second.
    pub read: f64,
    /// Bytes written a second.
    pub written: f64,
    /// Bytes either way a second.
    pub bytes: f64,
    /// Operations a second, of all kinds.
    pub ops: f64,
    /// Mean latency in seconds.
    pub mean: f64,
    /// 99th percentile of the latency in seconds: the upper bound of its bucket.
    pub p99: f64,
    /// The part of the tightest limit that is used, 0 to 1 and a little more; none without limits.
    pub share: Option<f64>,
    /// The tightest limit in its own unit, of which `share` is the part: bytes or operations a
    /// second.
    pub limit: f64,
    /// Its name, such as `bytes` or `read_ops`; empty without limits.
    pub limit_name: String,
    /// Limit that held requests back in the time shown: `volume bytes`.
    pub throttled: String,
    /// Requests that wait for limits.
    pub queue: f64,
    /// Maximum time that a client's requests waited on one volume, in seconds a second.
    pub worst: f64,
}

impl Row {
    /// Returns `pool/volume`, or the one of them that is set.
    pub fn full_name(&self) -> String {
        match (self.pool.as_str(), self.name.as_str()) {
            ("", "") => "(no pool)".to_owned(),
            (pool, "") => pool.to_owned(),
            ("", name) => name.to_owned(),
            (pool, name) => format!("{pool}/{name}"),
        }
    }

    /// Returns true if nothing was done, and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.ops == 0.0 && self.bytes == 0.0 && self.queue == 0.0
    }

    /// Takes a limit over if more of it is used than of the one known.
    fn limited(&mut self, share: f64, limit: f64, name: &str) {
        if self.share.is_none_or(|known| known < share) {
            self.share = Some(share);
            self.limit = limit;
            name.clone_into(&mut self.limit_name);
        }
    }
}

/// All of them, the busiest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Pools, the busiest first.
    pub pools: Vec<Row>,
    /// Volumes, the busiest first.
    pub volumes: Vec<Row>,
    /// Clients, the busiest first.
    pub clients: Vec<Row>,
    /// Operations of all volumes by protocol and name, the busiest first.
    pub operations: Vec<Row>,
    /// Counts of NFSv4.
    pub nfs4: Nfs4,
    /// The pair that the server is one of.
    pub pair: Option<Pair>,
    /// Memory of requests that wait, in bytes, and how much that may be.
    pub held: (f64, f64),
    /// Processor time of the server, in cores.
    pub cores: f64,
    /// Its memory in bytes.
    pub resident: f64,
    /// Physical space.
    pub space: Space,
}

/// Physical space of the server, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    /// All space; 0: the server does not say.
    pub size: f64,
    /// Held by data, metadata and reservations.
    pub used: f64,
    /// Left for writes.
    pub free: f64,
    /// Capacity of all storage pools and instances.
    pub provisioned: f64,
}

/// A synchronous mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// Replies wait for both nodes.
    pub in_sync: bool,
    /// Bytes that the partner has not acknowledged.
    pub lag: f64,
    /// Time for which it has lacked something, in seconds.
    pub behind: f64,
    /// Average time for which replies waited for it in the last minute longer than for the server's
    /// own log, in seconds.
    pub mean: f64,
    /// Time, in seconds, of all replies but one in a hundred.
    pub p99: f64,
    /// Bytes sent to it for each byte that clients wrote in the last minute, if they wrote any.
    pub sent: Option<f64>,
}

/// Counts of what clients of NFSv4 have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nfs4 {
    /// Clients, those that are silent included.
    pub clients: f64,
    /// Sessions of NFSv4 clients.
    pub sessions: f64,
    /// The slots of all sessions.
    pub slots: f64,
    /// Files held open over NFSv4, once a stateid.
    pub opens: f64,
    /// Delegations out.
    pub delegations: f64,
    /// Delegations recalled a second.
    pub recalls: f64,
}

/// Name and labels of a series.
type Series<'a> = (&'a str, Vec<(&'a str, &'a str)>);

fn series(sample: &Sample) -> Series<'_> {
    let labels = sample.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    (&sample.name, labels.collect())
}

impl MetricsSample {
    /// Creates a server's metrics; `at` is used if they have no uptime.
    pub fn new(samples: Vec<Sample>, at: f64) -> MetricsSample {
        let told = samples.iter().find(|s| s.name == "weir_uptime_seconds");
        MetricsSample {
            at: told.map_or(at, |s| s.value),
            samples,
        }
    }
}

/// Returns the last part of a resource's name: `v` of `projects/p/locations/l/volumes/v`.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns a resource's name without what they all have: `p/l/v`.
fn long(name: &str) -> String {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", project, "locations", location, _, id] => format!("{project}/{location}/{id}"),
        _ => name.to_owned(),
    }
}

/// Shortens names to their last parts, where these are unique.
fn abridge<'a>(names: impl Iterator<Item = &'a mut String> + 'a) {
    let mut names: Vec<&mut String> = names.collect();
    let mut count: HashMap<String, BTreeSet<String>> = HashMap::new();
    for name in &names {
        let of = count.entry(short(name).to_owned()).or_default();
        of.insert((*name).clone());
    }
    for name in &mut names {
        **name = match count.get(short(name)) {
            Some(alike) if alike.len() > 1 => long(name),
            _ => short(name).to_owned(),
        };
    }
}

/// Beginning of the names of the families that say how much of a limit is used.
const USED: &str = "weir_limit_used_";

/// Returns the name of the limit that a sample of a family `FAMILY{bytes,operations}_per_second` is
/// about, such as `read_bytes`.
fn limit_of(s: &Sample, family: &str) -> Option<String> {
    let unit = match s.name.strip_prefix(family)? {
        "bytes_per_second" => "bytes",
        "operations_per_second" => "ops",
        _ => return None,
    };
    Some(match s.label("direction") {
        direction @ ("read" | "write") => format!("{direction}_{unit}"),
        _ => unit.to_owned(),
    })
}

/// Limits in force by level, pool, volume and name.
type Limits = HashMap<([String; 3], String), f64>;

fn limits(now: &MetricsSample) -> Limits {
    let of = |s: &Sample| Some(((levels(s), limit_of(s, "weir_limit_")?), s.value));
    now.samples.iter().filter_map(of).collect()
}

/// Returns the labels that a limit and its use have in common.
fn levels(s: &Sample) -> [String; 3] {
    ["level", "pool", "volume"].map(|name| s.label(name).to_owned())
}

/// Rows that grow sample by sample, by what they are about.
#[derive(Default)]
struct Sums {
    /// Volumes, by pool and name.
    volumes: BTreeMap<(String, String), Sum>,
    pools: BTreeMap<String, Sum>,
    clients: BTreeMap<String, Sum>,
    /// Operations, by protocol and name.
    operations: BTreeMap<String, Sum>,
}

/// A row whose `mean` is still a sum of latencies, and the histogram of its latencies.
#[derive(Default)]
struct Sum {
    row: Row,
    buckets: Buckets,
}

impl Sum {
    fn count_in_bucket(&mut self, s: &Sample, rate: f64) {
        *self.buckets.entry(bound_of(s)).or_default() += rate;
    }

    fn count_bytes(&mut self, s: &Sample, rate: f64) {
        match s.label("operation") {
            "READ" => self.row.read += rate,
            _ => self.row.written += rate,
        }
        self.row.bytes += rate;
    }

    fn finish(mut self) -> Row {
        self.row.mean /= self.row.ops.max(f64::MIN_POSITIVE);
        self.row.p99 = quantile(&self.buckets, 0.99);
        self.row
    }
}

/// Makes a view of two samples.
pub fn between(before: &MetricsSample, now: &MetricsSample) -> View {
    let span = (now.at - before.at).max(1e-3);
    let old: HashMap<Series<'_>, f64> = before
        .samples
        .iter()
        .map(|s| (series(s), s.value))
        .collect();
    // A series that is new since the last sample began at zero; one that was set back has begun
    // anew.
    let rate = |s: &Sample| {
        (s.value
            - old
                .get(&series(s))
                .filter(|old| **old <= s.value)
                .unwrap_or(&0.0))
            / span
    };
    let mut view = View::default();
    let mut sums = Sums::default();
    let limits = limits(now);
    let bound = held_back(now, rate);
    for s in &now.samples {
        sums.count(s, rate(s), &limits);
        sums.count_of_client(s, rate(s), &bound);
        view.set(s, rate(s));
    }
    view.put(sums, &bound);
    abridge(view.pools.iter_mut().map(|row| &mut row.pool));
    abridge(view.volumes.iter_mut().map(|row| &mut row.pool));
    abridge(view.volumes.iter_mut().map(|row| &mut row.name));
    for rows in [
        &mut view.pools,
        &mut view.volumes,
        &mut view.clients,
        &mut view.operations,
    ] {
        // An operation weighs as much as a block.
        let weight = |row: &Row| row.bytes + row.ops * 4096.0 + row.queue;
        rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    }
    view
}

impl Sums {
    fn volume(&mut self, s: &Sample) -> &mut Sum {
        let key = (s.label("pool").to_owned(), s.label("volume").to_owned());
        self.volumes.entry(key).or_default()
    }

    fn client(&mut self, s: &Sample) -> &mut Sum {
        let client = s.label("client").to_owned();
        self.clients.entry(client).or_default()
    }

    fn pool(&mut self, s: &Sample) -> &mut Sum {
        self.pools.entry(s.label("pool").to_owned()).or_default()
    }

    fn operation(&mut self, s: &Sample) -> &mut Sum {
        let name = format!("{} {}", s.label("protocol"), s.label("operation"));
        self.operations.entry(name).or_default()
    }

    /// Counts a sample of a pool, a volume or an operation, and of the use of a limit.
    fn count(&mut self, s: &Sample, rate: f64, limits: &Limits) {
        match s.name.as_str() {
            "weir_operation_seconds_count" => {
                self.volume(s).row.ops += rate;
                self.operation(s).row.ops += rate;
            }
            "weir_operation_seconds_sum" => {
                self.volume(s).row.mean += rate;
                self.operation(s).row.mean += rate;
            }
            "weir_operation_seconds_bucket" => {
                self.volume(s).count_in_bucket(s, rate);
                self.pool(s).count_in_bucket(s, rate);
                self.operation(s).count_in_bucket(s, rate);
            }
            "weir_operation_bytes_total" => {
                self.volume(s).count_bytes(s, rate);
                self.operation(s).count_bytes(s, rate);
            }
            "weir_throttle_queue_length" => self.volume(s).row.queue += s.value,
            name if name.starts_with(USED) => {
                let limit = limit_of(s, USED).unwrap_or_default();
                let of = (levels(s), limit.clone());
                if let Some(most) = limits.get(&of).filter(|most| **most > 0.0) {
                    let sum = match s.label("level") {
                        "pool" => self.pool(s),
                        "client" => self.client(s),
                        _ => self.volume(s),
                    };
                    sum.row.limited(s.value / most, *most, &limit);
                }
            }
            _ => {}
        }
    }

    /// Counts a sample of a client. `bound` has the limits that hold volumes back.
    fn count_of_client(&mut self, s: &Sample, rate: f64, bound: &BindingLimits<'_>) {
        let (pool, name) = (s.label("pool"), s.label("volume"));
        match s.name.as_str() {
            "weir_client_operation_seconds_bucket" => self.client(s).count_in_bucket(s, rate),
            "weir_client_operation_seconds_count" => self.client(s).row.ops += rate,
            "weir_client_operation_seconds_sum" => self.client(s).row.mean += rate,
            "weir_client_bytes_total" => self.client(s).row.bytes += rate,
            "weir_client_throttled_queue_length" if s.value > 0.0 => {
                let row = &mut self.client(s).row;
                row.queue += s.value;
                // Unless one that has been let through says more.
                if row.worst == 0.0 {
                    row.throttled = held_on(name, bound.get(&(pool, name)));
                }
            }
            "weir_client_throttled_seconds_total" if rate > 0.0 => {
                let row = &mut self.client(s).row;
                // One that waited on several volumes was held back most by one of them.
                if row.worst <= rate {
                    row.worst = rate;
                    row.throttled = held_on(name, bound.get(&(pool, name)));
                }
            }
            _ => {}
        }
    }
}

impl View {
    /// Sets the field that a sample of the whole server is the value of.
    fn set(&mut self, s: &Sample, rate: f64) {
        match s.name.as_str() {
            "weir_aggregate_size_bytes" => self.space.size = s.value,
            "weir_aggregate_used_bytes" => self.space.used = s.value,
            "weir_aggregate_free_bytes" => self.space.free = s.value,
            "weir_aggregate_provisioned_bytes" => self.space.provisioned = s.value,
            "weir_pair_in_sync" => self.pair.get_or_insert_default().in_sync = s.value > 0.0,
            "weir_pair_lag_bytes" => self.pair.get_or_insert_default().lag = s.value,
            "weir_pair_behind_seconds" => self.pair.get_or_insert_default().behind = s.value,
            "weir_pair_cost_mean_seconds" => self.pair.get_or_insert_default().mean = s.value,
            "weir_pair_cost_p99_seconds" => self.pair.get_or_insert_default().p99 = s.value,
            "weir_pair_sent_per_written" => self.pair.get_or_insert_default().sent = Some(s.value),
            "weir_nfs4_clients" => self.nfs4.clients += s.value,
            "weir_nfs4_sessions" => self.nfs4.sessions = s.value,
            "weir_nfs4_slots" => self.nfs4.slots = s.value,
            "weir_nfs4_states" => match s.label("kind") {
                "open" => self.nfs4.opens = s.value,
                "delegation" => self.nfs4.delegations = s.value,
                _ => {}
            },
            "weir_recalls_total" if s.label("result") == "recalled" => self.nfs4.recalls = rate,
            "weir_held_bytes" => self.held.0 = s.value,
            "weir_held_limit_bytes" => self.held.1 = s.value,
            "process_cpu_seconds_total" => self.cores = rate,
            "process_resident_memory_bytes" => self.resident = s.value,
            _ => {}
        }
    }

    /// Takes over the sums as rows.
    fn put(&mut self, mut sums: Sums, bound: &BindingLimits<'_>) {
        for ((pool, name), sum) in sums.volumes {
            let mut row = sum.finish();
            let by = bound.get(&(pool.as_str(), name.as_str()));
            row.throttled = by.cloned().unwrap_or_default();
            let of_pool = &mut sums.pools.entry(pool.clone()).or_default().row;
            // Means are weighed by operations, and put right by `finish`.
            of_pool.mean += row.mean * row.ops;
            of_pool.read += row.read;
            of_pool.written += row.written;
            of_pool.bytes += row.bytes;
            of_pool.ops += row.ops;
            of_pool.queue += row.queue;
            if row.throttled.starts_with("pool") {
                of_pool.throttled.clone_from(&row.throttled);
            }
            self.volumes.push(Row { pool, name, ..row });
        }
        for (pool, sum) in sums.pools {
            let row = sum.finish();
            self.pools.push(Row { pool, ..row });
        }
        for (name, sum) in sums.clients {
            let row = sum.finish();
            self.clients.push(Row { name, ..row });
        }
        for (name, sum) in sums.operations {
            let row = sum.finish();
            self.operations.push(Row { name, ..row });
        }
    }
}

/// Returns the limit that holds a client back, and on which volume: `v: pool bytes`.
fn held_on(volume: &str, by: Option<&String>) -> String {
    match by {
        Some(by) => format!("{}: {by}", short(volume)),
        None => short(volume).to_owned(),
    }
}

/// Limits that hold volumes back, by pool and volume.
type BindingLimits<'n> = HashMap<(&'n str, &'n str), String>;

/// Returns the limit that held each volume's requests back for the longest between two samples. The
/// server counts the time, up to the sample.
fn held_back<'n>(now: &'n MetricsSample, rate: impl Fn(&Sample) -> f64) -> BindingLimits<'n> {
    let place = |s: &'n Sample| (s.label("pool"), s.label("volume"));
    let named = |s: &Sample| format!("{} {}", s.label("level"), s.label("limit"));
    let mut times: HashMap<(&str, &str), BTreeMap<String, f64>> = HashMap::new();
    for s in &now.samples {
        if s.name == "weir_limit_bound_seconds_total" && rate(s) > 0.0 {
            // Both directions are counted together.
            *times
                .entry(place(s))
                .or_default()
                .entry(named(s))
                .or_default() += rate(s);
        }
    }
    let longest = |times: BTreeMap<String, f64>| {
        let longest = times.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        longest.map(|(name, _)| name)
    };
    let held = times.into_iter();
    held.filter_map(|(place, times)| Some((place, longest(times)?)))
        .collect()
}

/// A latency histogram: operations a second up to so many nanoseconds, cumulative.
type Buckets = BTreeMap<u64, f64>;

/// Returns the upper bound of a sample's bucket in nanoseconds.
fn bound_of(sample: &Sample) -> u64 {
    let bound = sample.label("le").parse().unwrap_or(f64::INFINITY);
    (bound * 1e9).min(u64::MAX as f64) as u64
}

/// Returns the upper bound, in seconds, of the bucket that holds a quantile.
fn quantile(buckets: &Buckets, quantile: f64) -> f64 {
    let all = buckets
        .values()
        .fold(0.0f64, |most, count| most.max(*count));
    let reached = buckets
        .iter()
        .find(|(_, count)| all > 0.0 && **count >= all * quantile);
    reached.map_or(0.0, |(bound, _)| match bound {
        &u64::MAX => f64::INFINITY,
        bound => *bound as f64 / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::parse;
    use super::*;

    fn look(at: f64, count: u64, bytes: u64) -> MetricsSample {
        let labels = r#"pool="p",volume="v",protocol="nfsv3",operation="READ""#;
        let page = format!(
            "weir_operation_seconds_count{{{labels}}} {count}\n\
             weir_operation_seconds_sum{{{labels}}} {}\n\
             weir_operation_seconds_bucket{{{labels},le=\"0.001\"}} 0\n\
             weir_operation_seconds_bucket{{{labels},le=\"0.004\"}} {count}\n\
             weir_operation_seconds_bucket{{{labels},le=\"+Inf\"}} {count}\n\
             weir_operation_bytes_total{{{labels}}} {bytes}\n\
             weir_client_bytes_total{{client=\"10.0.0.1\"}} {bytes}\n\
             weir_client_operation_seconds_bucket{{client=\"10.0.0.1\",le=\"0.002\"}} 1\n\
             weir_client_operation_seconds_bucket{{client=\"10.0.0.1\",le=\"0.008\"}} {count}\n\
             weir_client_operation_seconds_bucket{{client=\"10.0.0.1\",le=\"+Inf\"}} {count}\n\
             weir_client_operation_seconds_count{{client=\"10.0.0.1\"}} {count}\n\
             weir_limit_bytes_per_second{{level=\"volume\",pool=\"p\",volume=\"v\",direction=\"both\"}} 2000\n\
             weir_limit_used_bytes_per_second{{level=\"volume\",pool=\"p\",volume=\"v\",direction=\"both\"}} 1000\n\
             weir_limit_bound_seconds_total{{level=\"volume\",pool=\"p\",volume=\"v\",limit=\"bytes\"}} {at}\n\
             weir_throttle_queue_length{{pool=\"p\",volume=\"v\"}} 3\n",
            count as f64 * 0.002
        );
        MetricsSample {
            at,
            samples: parse(&page),
        }
    }

    #[test]
    fn rates_are_what_lies_between_two_looks() {
        let view = between(&look(10.0, 100, 4000), &look(12.0, 300, 8000));
        let volume = &view.volumes[0];
        assert_eq!((volume.pool.as_str(), volume.name.as_str()), ("p", "v"));
        assert_eq!(
            (volume.ops, volume.read, volume.written),
            (100.0, 2000.0, 0.0)
        );
        assert!((volume.mean - 0.002).abs() < 1e-9);
        assert_eq!((volume.p99, volume.share), (0.004, Some(0.5)));
        assert_eq!(
            (volume.throttled.as_str(), volume.queue),
            ("volume bytes", 3.0)
        );
        assert_eq!((view.pools[0].ops, view.pools[0].bytes), (100.0, 2000.0));
        assert_eq!(view.pools[0].p99, 0.004);
        let client = &view.clients[0];
        assert_eq!(
            (client.bytes, client.ops, client.p99),
            (2000.0, 100.0, 0.008)
        );
    }

    #[test]
    fn names_are_as_short_as_tells_them_apart() {
        let mut names = [
            "projects/weir/locations/local/volumes/a",
            "projects/weir/locations/local/volumes/b",
            "projects/weir/locations/other/volumes/b",
            "projects/weir/locations/local/volumes/a",
            "vol1",
        ]
        .map(str::to_owned);
        abridge(names.iter_mut());
        assert_eq!(names, ["a", "weir/local/b", "weir/other/b", "a", "vol1"]);
    }

    #[test]
    fn a_client_is_held_back_by_what_holds_its_volume_back() {
        let page = "weir_uptime_seconds 7.5\n\
             weir_limit_operations_per_second{level=\"client\",pool=\"p\",volume=\"projects/x/locations/l/volumes/v\",direction=\"read\"} 50\n\
             weir_limit_used_operations_per_second{level=\"client\",pool=\"p\",volume=\"projects/x/locations/l/volumes/v\",client=\"10.0.0.1\",direction=\"read\"} 40\n\
             weir_limit_bound_seconds_total{level=\"client\",pool=\"p\",volume=\"projects/x/locations/l/volumes/v\",limit=\"read_ops\"} 1\n\
             weir_client_throttled_seconds_total{pool=\"p\",volume=\"projects/x/locations/l/volumes/v\",client=\"10.0.0.1\"} 9\n\
             weir_client_throttled_queue_length{pool=\"p\",volume=\"projects/x/locations/l/volumes/v\",client=\"10.0.0.1\"} 4\n";
        let look = MetricsSample::new(parse(page), 0.0);
        assert_eq!(look.at, 7.5);
        let before = MetricsSample::new(parse("weir_uptime_seconds 6.5\n"), 0.0);
        let client = &between(&before, &look).clients[0];
        assert_eq!((client.share, client.queue), (Some(0.8), 4.0));
        assert_eq!(client.throttled, "v: client read_ops");
    }

    #[test]
    fn the_limit_that_bound_for_longest_is_shown() {
        let look = |at: f64, volume: f64, pool: f64| {
            let page = format!(
                "weir_operation_seconds_count{{pool=\"p\",volume=\"v\",operation=\"READ\"}} {at}\n\
                 weir_limit_bound_seconds_total{{level=\"volume\",pool=\"p\",volume=\"v\",limit=\"bytes\",direction=\"read\"}} {volume}\n\
                 weir_limit_bound_seconds_total{{level=\"volume\",pool=\"p\",volume=\"v\",limit=\"bytes\",direction=\"write\"}} {volume}\n\
                 weir_limit_bound_seconds_total{{level=\"pool\",pool=\"p\",volume=\"v\",limit=\"ops\",direction=\"read\"}} {pool}\n"
            );
            MetricsSample {
                at,
                samples: parse(&page),
            }
        };
        let by = |before: &MetricsSample, now: &MetricsSample| {
            between(before, now).volumes[0].throttled.clone()
        };
        assert_eq!(
            by(&look(1.0, 5.0, 5.0), &look(2.0, 5.4, 5.7)),
            "volume bytes"
        );
        assert_eq!(by(&look(1.0, 5.0, 5.0), &look(2.0, 5.1, 5.7)), "pool ops");
        assert_eq!(by(&look(1.0, 5.0, 5.0), &look(2.0, 5.0, 5.0)), "");
    }

    #[test]
    fn a_server_that_began_anew_is_counted_from_zero() {
        let view = between(&look(10.0, 1000, 8000), &look(11.0, 5, 100));
        assert_eq!((view.volumes[0].ops, view.volumes[0].read), (5.0, 100.0));
    }
}

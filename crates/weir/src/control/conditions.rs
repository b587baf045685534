//! Conditions, found once a second for `/v1/conditions`, the metrics and the console.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_api::live::{Condition, ConditionKind as Kind, Live, Severity, limit_of};
use weir_base::Time;
use weir_control::{Collection, Control, QosType, Surface, View, Volume};
use weir_relations::model::{ABORTED, Relationship};
use weir_relations::schedule::Schedule;
use weir_vfs::Vfs;
use weir_volume::Engine;

use crate::cluster::Member;
use crate::control::certificate::{self, Validity};
use crate::control::condition_words as texts;
use crate::control::soft_limits::SoftLimits;
use weir_api::words::Words;
use weir_node::health::{Health, Subject};
use weir_node::scrub_counters::ScrubCounters;
use weir_pair_node::Pair;
use weir_replication_node::Replication;

/// Seconds for which a limit has to hold a volume to be a condition, and to be a warning.
const HELD: [u64; 2] = [10, 300];
/// Percent of a pool whose allocation is a condition.
const ALLOCATED: u64 = 90;
/// Percent of a volume, or of the memory of waiting requests, in use at which that is a condition.
const FULL: u64 = 95;
/// Days before its end at which a certificate is a warning, and an error.
const EXPIRES: [i64; 2] = [30, 7];
/// Seconds over which writes of the log are averaged, and the average that is too long.
const LOG_SPAN: usize = 10;
const LOG_SLOW: Duration = Duration::from_millis(100);
/// Seconds between two checks of the certificate's file.
const CERTIFICATE_PERIOD: u64 = 60;
const GIB: u64 = 1 << 30;
const DAY: i64 = 86_400;

/// Sources that conditions are derived from.
pub struct Sources {
    /// The live data that shows them, with the rows by the second.
    pub live: Arc<Live>,
    /// The engine.
    pub engine: Arc<Engine>,
    /// Problems of the server as a whole.
    pub health: Arc<Health>,
    /// The limits.
    pub vfs: Arc<Vfs>,
    /// The control plane.
    pub control: Arc<Control>,
    /// The relationships whose destination is here.
    pub replication: Arc<Replication>,
    /// The pair that this node is one of.
    pub pair: Option<Arc<Pair>>,
    /// This server's part in an aggregate on RADOS.
    pub member: Option<Arc<Member>>,
    /// The API's certificate.
    pub certificate: Option<PathBuf>,
    /// Scrubs, and damaged blocks that they found.
    pub scrubs: Arc<ScrubCounters>,
}

/// Finds conditions.
pub struct Finder {
    sources: Sources,
    log: VecDeque<weir_volume::LogWrites>,
    validity: Option<Validity>,
    looked: u64,
    soft_limits: SoftLimits,
}

/// Returns the last part of a resource's name, as people call it.
fn short(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

fn percent(used: u64, of: u64) -> u64 {
    let percent = u128::from(used) * 100 / u128::from(of.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

impl Finder {
    /// Returns one that has found nothing yet.
    pub fn new(sources: Sources) -> Finder {
        Finder {
            sources,
            log: VecDeque::new(),
            validity: None,
            looked: 0,
            soft_limits: SoftLimits::default(),
        }
    }

    /// Finds what holds at `at`, in seconds since 1970.
    pub fn find(&mut self, at: u64) {
        let view = self.sources.control.view();
        let now = i64::try_from(at).unwrap_or(i64::MAX);
        let mut found = Vec::new();
        self.held(at, &view, &mut found);
        let volumes = self.space(at, &view, &mut found);
        let engine = &self.sources.engine;
        found.extend(self.soft_limits.find(at, &view, |volume| {
            let volume = engine.volume(&volume.key);
            volume.map_or_else(Vec::new, |volume| volume.quota_report())
        }));
        self.server(&mut found);
        found.extend(self.damage());
        self.certificate(at, now, &mut found);
        self.pair(&mut found);
        found.extend(self.standby());
        let member = self.sources.member.iter();
        found.extend(
            member
                .flat_map(|member| member.facts())
                .map(|fact| fact.condition()),
        );
        let relations = &view.relations;
        let schedule = |name: &str| relations.schedule(name);
        for relationship in self.sources.replication.relationships() {
            found.extend(replicated(&relationship, now, &schedule));
        }
        self.sources.live.conditions.update(now, found, volumes);
    }

    /// Finds volumes that limits hold.
    fn held(&self, at: u64, view: &View, found: &mut Vec<Condition>) {
        let held = self.sources.live.book.held();
        let long = held
            .iter()
            .filter(|held| at.saturating_sub(held.since) >= HELD[0]);
        let long: Vec<_> = long.collect();
        if long.is_empty() {
            return;
        }
        let volumes = view.every_volume(Surface::Netapp);
        let volumes: HashMap<String, &Volume> = volumes
            .map(|volume| (volume.name.to_string(), &**volume))
            .collect();
        for held in long {
            let Some((level, limit)) = limit_of(held.row.bound_by) else {
                continue;
            };
            let name = short(&held.name);
            let bytes = held.row.limit > 0.0 && level == "VOLUME" && limit == "BYTES";
            let message = texts::held(name, level, bytes.then_some(held.row.limit as u64));
            let severity = match at.saturating_sub(held.since) {
                long if long >= HELD[1] => Severity::Warning,
                _ => Severity::Info,
            };
            let mut condition =
                Condition::new(Kind::LimitBinds, severity, &*held.name, message, "");
            condition.since = i64::try_from(held.since).ok();
            (condition.action, condition.command) =
                relief(level, volumes.get(&*held.name).copied(), view);
            for (key, value) in [
                ("boundBy", json!(format!("{level}/{limit}"))),
                ("waitingRequests", json!(held.row.waiting as u64)),
                ("waitingBytes", json!(held.row.waiting_bytes as u64)),
                ("limitBytesPerSecond", json!(held.row.limit as u64)),
            ] {
                condition.details.insert(key.to_owned(), value);
            }
            found.push(condition);
        }
    }

    /// Finds pools that are allocated and volumes that are full; returns the number of volumes.
    fn space(&self, at: u64, view: &View, found: &mut Vec<Condition>) -> usize {
        for pool in view.every_pool() {
            let figures = view.pool_figures(pool);
            let total = figures.total_throughput_mibps.unwrap_or(0.0);
            let free = figures.available_throughput_mibps.unwrap_or(total);
            let manual = pool.qos_type == QosType::Manual && total > 0.0;
            let throughput = if manual {
                (1.0 - free / total) * 100.0
            } else {
                0.0
            };
            let capacity = percent(figures.volume_capacity_gib, pool.capacity_gib);
            // A volume that has a pool for itself has all of it on purpose.
            if figures.volume_count < 2 {
                continue;
            }
            let full = pool.name.full(Collection::Pools);
            let name = short(&full);
            let throughput = (throughput > ALLOCATED as f64).then_some(throughput);
            let capacity = (capacity > ALLOCATED).then_some(capacity);
            let Some(message) = texts::allocated(name, throughput, capacity) else {
                continue;
            };
            let action = texts::enlarge_early();
            found.push(Condition::new(
                Kind::PoolAllocated,
                Severity::Info,
                full.clone(),
                message,
                action,
            ));
        }
        let all = [Surface::Netapp, Surface::Filestore].into_iter();
        let mut volumes = 0;
        for volume in all.flat_map(|surface| view.every_volume(surface)) {
            volumes += 1;
            found.extend(self.filled(volume));
            found.extend(self.closed_trees(at, volume));
        }
        volumes
    }

    fn filled(&self, volume: &Volume) -> Option<Condition> {
        let used = self.sources.engine.volume(&volume.key)?.used();
        let size = volume.capacity_gib.saturating_mul(GIB);
        let full = percent(used, size);
        let severity = match full {
            100.. => Severity::Error,
            FULL..100 => Severity::Warning,
            _ => return None,
        };
        let name = volume.name.to_string();
        let message = texts::filled(short(&name), full, used, size);
        let action = texts::make_room();
        let mut condition = Condition::new(Kind::VolumeFull, severity, name, message, action);
        condition
            .details
            .insert("usedBytes".to_owned(), json!(used));
        condition
            .details
            .insert("sizeBytes".to_owned(), json!(size));
        Some(condition)
    }

    /// Finds the qtrees of a volume that admit nobody, because their policies are not known.
    fn closed_trees(&self, at: u64, volume: &Volume) -> Option<Condition> {
        let unknown = |number: &u32| volume.trees.get(number)?.unknown.clone();
        if !volume.trees.keys().any(|number| unknown(number).is_some()) {
            return None;
        }
        let now = Time {
            secs: i64::try_from(at).unwrap_or(i64::MAX),
            nanos: 0,
        };
        let trees = self.sources.engine.volume(&volume.key)?.trees(now);
        let trees = trees.ok()?.into_iter().filter_map(|tree| {
            let policy = unknown(&tree.number)?.to_string();
            Some((String::from_utf8_lossy(&tree.name).into_owned(), policy))
        });
        let trees: Vec<(String, String)> = trees.collect();
        if trees.is_empty() {
            return None;
        }
        let name = volume.name.to_string();
        let (message, action) = texts::unknown_policies(short(&name), &trees);
        let kind = Kind::QtreePolicyUnknown;
        Some(Condition::new(
            kind,
            Severity::Warning,
            name,
            message,
            action,
        ))
    }

    /// Finds damaged blocks.
    fn damage(&self) -> Option<Condition> {
        let reads = self.sources.engine.aggregate().cache().stats().damaged;
        let known = self.sources.scrubs.facts().known(reads);
        if known == 0 {
            return None;
        }
        let (message, action) = texts::damaged(known);
        let kind = Kind::ChecksumFault;
        let mut condition = Condition::new(kind, Severity::Error, "aggregate", message, action);
        condition
            .details
            .insert("damagedBlocks".to_owned(), json!(known));
        Some(condition)
    }

    /// Finds what is wrong with the server as a whole.
    fn server(&mut self, found: &mut Vec<Condition>) {
        for problem in self.sources.health.problems() {
            let (kind, resource) = match problem.about {
                Subject::Aggregate => (Kind::AggregateReadOnly, "aggregate"),
                Subject::Catalog => (Kind::Catalog, "catalog"),
                Subject::Lock => (Kind::LockFile, "server"),
                Subject::Space => (Kind::AggregateSpace, "aggregate"),
            };
            let severity = match problem.fatal {
                true => Severity::Error,
                false => Severity::Warning,
            };
            // Causes name the next step themselves.
            let (message, action) = match problem.why.split_once(" (") {
                Some((message, action)) => (message, action.trim_end_matches(')')),
                None => problem.why.split_once(": ").unwrap_or((&problem.why, "")),
            };
            found.push(Condition::new(kind, severity, resource, message, action));
        }
        let (held, credit) = self.sources.vfs.throttle.held();
        if percent(held as u64, credit.total as u64) >= FULL {
            let (message, action) = texts::held_memory(held as u64, credit.total as u64);
            found.push(Condition::new(
                Kind::HeldMemory,
                Severity::Warning,
                "server",
                message,
                action,
            ));
        }
        let violations = weir_base::violations();
        if violations > 0 {
            let (message, action) = texts::defects(violations);
            found.push(Condition::new(
                Kind::Defect,
                Severity::Error,
                "server",
                message,
                action,
            ));
        }
        self.log.push_back(self.sources.engine.log_writes());
        if self.log.len() > LOG_SPAN {
            let before = self.log.pop_front();
            let mean = before.and_then(|b| self.log.back()?.mean_since(b));
            if let Some(mean) = mean.filter(|mean| *mean >= LOG_SLOW) {
                let (message, action) = texts::log_slow(mean.as_millis(), LOG_SPAN);
                found.push(Condition::new(
                    Kind::LogSlow,
                    Severity::Warning,
                    "server",
                    message,
                    action,
                ));
            }
        }
    }

    fn certificate(&mut self, at: u64, now: i64, found: &mut Vec<Condition>) {
        let Some(path) = &self.sources.certificate else {
            return;
        };
        if self.looked == 0 || at.saturating_sub(self.looked) >= CERTIFICATE_PERIOD {
            self.looked = at;
            self.validity = certificate::validity_of(path);
        }
        let Some(validity) = self.validity else {
            return;
        };
        let days = (validity.not_after - now).div_euclid(DAY);
        let severity = match days {
            days if days < EXPIRES[1] => Severity::Error,
            days if days < EXPIRES[0] => Severity::Warning,
            _ => return,
        };
        let (message, action) = texts::certificate(days);
        let resource = "certificates/api";
        found.push(Condition::new(
            Kind::CertificateExpires,
            severity,
            resource,
            message,
            action,
        ));
    }

    /// Finds that nobody stands by any more.
    fn standby(&self) -> Option<Condition> {
        let member = self.sources.member.as_ref()?;
        if !member.lacks_standby() {
            return None;
        }
        let (message, action) = texts::no_standby();
        let kind = Kind::StandbyMissing;
        let mut condition = Condition::new(kind, Severity::Warning, "aggregate", message, action);
        condition.command = Some("weir cluster show".to_owned());
        Some(condition)
    }

    fn pair(&self, found: &mut Vec<Condition>) {
        let Some(pair) = &self.sources.pair else {
            return;
        };
        let standing = pair.standing();
        let trouble = standing.fault.unwrap_or_default();
        let lost = standing
            .witness_lost
            .filter(|_| !trouble.starts_with("the witness"));
        if let Some(words) = lost {
            let action = texts::start_witness(true);
            let severity = Severity::Warning;
            let condition = Condition::new(Kind::PairWitnessLost, severity, "pair", words, action);
            found.push(condition);
        }
        if trouble.starts_with("the witness") {
            let action = texts::start_witness(false);
            found.push(Condition::new(
                Kind::PairWitnessLost,
                Severity::Warning,
                "pair",
                &*trouble,
                action,
            ));
        }
        if let Some(since) = standing.behind_since {
            let (message, action) = texts::out_of_sync(&standing.partner, &trouble);
            let kind = Kind::PairOutOfSync;
            let mut condition = Condition::new(kind, Severity::Warning, "pair", message, action);
            condition.since = Some(since);
            condition.command = Some("weir pair show".to_owned());
            found.push(condition);
        }
    }
}

/// Returns what relieves a volume that a limit of this level holds, in words and as a command.
fn relief(level: &str, volume: Option<&Volume>, view: &View) -> (Words, Option<String>) {
    match level {
        "POOL" => (texts::enlarge_or_move(), None),
        "CLIENT" => (texts::raise_clients(), None),
        _ => {
            let pool = volume.and_then(|volume| view.pool_of(volume));
            let Some((volume, pool)) = volume.zip(pool) else {
                return (texts::raise_limit(), None);
            };
            let full = pool.name.full(Collection::Pools);
            let of_pool = short(&full);
            let free = view.pool_figures(pool).available_throughput_mibps;
            match (pool.qos_type, free, volume.throughput_mibps()) {
                (QosType::Manual, Some(free), Some(now)) if free >= 1.0 => (
                    texts::raise_throughput(of_pool, free),
                    Some(format!(
                        "weir volumes update {} --throughput-mibps={:.0}",
                        volume.name.id,
                        (now + free).floor()
                    )),
                ),
                (QosType::Manual, ..) => (texts::enlarge_pool(of_pool), None),
                _ => (texts::enlarge_volume(), None),
            }
        }
    }
}

/// Returns what is wrong with a relationship.
fn replicated(
    r: &Relationship,
    now: i64,
    schedule: &dyn Fn(&str) -> Option<Schedule>,
) -> Vec<Condition> {
    let mut found = Vec::new();
    let to = r.destination.to_string();
    let failed = r.last.as_ref().and_then(|last| {
        let error = last.error.as_ref()?;
        (error != ABORTED).then(|| (error.clone(), last.end))
    });
    if !r.healthy || failed.is_some() {
        let why = r.unhealthy_reason.clone();
        let why = why.or(failed.as_ref().map(|(error, _)| error.clone()));
        let (message, action) = texts::fails(&r.source.to_string(), &to, why.as_deref());
        let kind = Kind::ReplicationFailing;
        let mut condition = Condition::new(kind, Severity::Warning, &*to, message, action);
        condition.since = failed.map(|(_, end)| end);
        found.push(condition);
    }
    let schedule = r.schedule.as_deref().and_then(schedule);
    let lag = r.lag(now).and_then(|lag| i64::try_from(lag).ok());
    let (Some(schedule), Some(lag), None) = (schedule, lag, r.synchronous) else {
        return found;
    };
    let first = schedule.next(now);
    let period = first.and_then(|first| Some(schedule.next(first)? - first));
    if let Some(period) = period.filter(|period| lag > 2 * period) {
        let message = texts::late(&r.source.to_string(), &to, lag / 60, period / 60);
        let held = r.transfer.as_ref().and_then(|t| t.bound_by.clone());
        let action = texts::hurry(held.as_deref());
        let kind = Kind::ReplicationLate;
        let mut condition = Condition::new(kind, Severity::Warning, &*to, message, action);
        condition
            .details
            .insert("lagSeconds".to_owned(), json!(lag));
        condition
            .details
            .insert("scheduleSeconds".to_owned(), json!(period));
        condition.since = Some(now - lag + 2 * period);
        found.push(condition);
    }
    found
}

//! Throughput limits that this server has together with others of the cluster: its shares, as the
//! daemon of its node grants them, and what its clients ask for ([`weir_cluster::shares`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::cluster::SHARED_LIMITS_MAX;
use weir_base::{Clock, Rng as _, SystemRng};
use weir_cluster::shares::Holder;
use weir_cluster::shares::message::{LimitReport, Reply, Request};
use weir_vfs::Vfs;
use weir_vfs::throttle::SharedStatus;

/// Time over which the demand for a share is measured. It bridges pauses of clients, so that a
/// share does not come and go with them.
const WINDOW: Duration = Duration::from_secs(3);
/// Minimum time between two measurements.
const STEP: Duration = Duration::from_millis(250);

/// State of a limit over the last [`STEP`] or longer.
#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    /// Bytes charged since the last sample.
    rate: u64,
    /// Clients that waited for the share; 0 if none did.
    waiting: u32,
}

/// Demand of the clients for a share.
#[derive(Default)]
struct Demand {
    /// Time and bytes of the newest sample.
    last: Option<(Duration, u64)>,
    samples: VecDeque<Sample>,
}

impl Demand {
    /// Takes a sample at `now`, unless one was taken just now.
    fn measure(&mut self, status: &SharedStatus, now: Duration) {
        let Some((at, bytes)) = self.last else {
            self.last = Some((now, status.bytes));
            return;
        };
        // Saturates: samples are taken by several threads.
        let time = now.saturating_sub(at);
        if time < STEP {
            return;
        }
        self.last = Some((now, status.bytes));
        // Saturates: counters begin anew when the volume gets another place.
        let moved = status.bytes.saturating_sub(bytes);
        let rate = u128::from(moved) * 1000 / time.as_millis().max(1);
        self.samples.push_back(Sample {
            at: now,
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
            waiting: if status.waits {
                status.waiting.max(1)
            } else {
                0
            },
        });
        // Saturates: as above.
        let is_old = |sample: &Sample| now.saturating_sub(sample.at) > WINDOW;
        while self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
    }

    /// Returns the bytes a second that clients ask for, with some to grow, and their weight.
    fn wants(&self) -> (u64, u32) {
        let waiting = self.samples.iter().map(|one| one.waiting).max();
        match waiting.unwrap_or(0) {
            0 => {
                let rate = self.samples.iter().map(|one| one.rate).max().unwrap_or(0);
                // Saturates: u64::MAX stands for clients that wait.
                (rate.saturating_add(rate / 4), 1)
            }
            waiting => (u64::MAX, waiting),
        }
    }
}

/// A limit of which this server has a part.
struct SharedLimit {
    status: SharedStatus,
    holder: Holder,
    demand: Demand,
}

impl SharedLimit {
    /// Returns the whole limit in bytes a second, and the number of its parts.
    fn whole(&self) -> (u64, usize) {
        let (part, provisioned) = (self.status.part, self.status.provisioned);
        // Saturates: no cluster has as much.
        let whole = provisioned.saturating_mul(u64::from(part.parts));
        (whole, usize::from(part.parts))
    }
}

/// See the module's head.
pub struct SharedLimits {
    vfs: Weak<Vfs>,
    clock: Arc<dyn Clock>,
    /// Number of this start, which no other one has.
    start: u64,
    limits: Mutex<BTreeMap<u64, SharedLimit>>,
}

impl SharedLimits {
    /// Begins without shares: each limit has the least one until a row is read.
    pub fn new(vfs: &Arc<Vfs>, clock: Arc<dyn Clock>) -> Arc<SharedLimits> {
        Arc::new(SharedLimits {
            vfs: Arc::downgrade(vfs),
            clock,
            start: SystemRng.next_u64(),
            limits: Mutex::default(),
        })
    }

    /// Puts the shares in force that hold now, and measures the demand. To be called once a second:
    /// a share ends with its lease.
    pub fn poll(&self) {
        self.update(&mut self.limits.lock(), self.clock.monotonic());
    }

    fn update(&self, limits: &mut BTreeMap<u64, SharedLimit>, now: Duration) {
        let Some(vfs) = self.vfs.upgrade() else {
            return;
        };
        let mut here = vfs.throttle.shared();
        here.truncate(SHARED_LIMITS_MAX);
        limits.retain(|limit, _| here.iter().any(|status| status.part.limit == *limit));
        for status in here {
            let id = status.part.limit;
            let limit = limits.entry(id).or_insert_with(|| SharedLimit {
                status,
                holder: Holder::new(now),
                demand: Demand::default(),
            });
            limit.status = status;
            limit.demand.measure(&status, now);
            let (whole, parts) = limit.whole();
            vfs.throttle
                .set_share(id, limit.holder.rate(whole, parts, now));
        }
    }

    /// Follows the rows that the daemon of the node has read. Returns the reports.
    pub fn exchange(&self, request: &Request) -> Reply {
        let now = self.clock.monotonic();
        let mut limits = self.limits.lock();
        if let Some(as_of) = self.time_of(&request.as_of) {
            for grant in &request.grants {
                if let Some(limit) = limits.get_mut(&grant.limit)
                    && limit.status.part.part == grant.part
                {
                    limit.holder.read(Some(grant.share), request.term, as_of);
                }
            }
        }
        self.update(&mut limits, now);
        let report = |(id, limit): (&u64, &SharedLimit)| LimitReport {
            limit: *id,
            part: limit.status.part.part,
            parts: limit.status.part.parts,
            provisioned: limit.status.provisioned,
            report: limit
                .holder
                .report(limit.whole(), limit.demand.wants(), now),
        };
        Reply {
            as_of: format!("{:x}-{}", self.start, now.as_nanos()),
            reports: limits.iter().map(report).collect(),
        }
    }

    /// Returns the time that a name of a reply stands for; `None` if it is of another start.
    fn time_of(&self, as_of: &str) -> Option<Duration> {
        let (start, time) = as_of.split_once('-')?;
        let own = u64::from_str_radix(start, 16).ok() == Some(self.start);
        own.then_some(Duration::from_nanos(time.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_vfs::SharedPart;

    fn status(bytes: u64, waiting: u32) -> SharedStatus {
        SharedStatus {
            part: SharedPart {
                limit: 1,
                part: 0,
                parts: 2,
            },
            provisioned: 1000,
            bytes,
            waits: waiting > 0,
            waiting,
        }
    }

    #[test]
    fn clients_that_waited_within_the_window_want_all_and_others_what_they_use() {
        let at = Duration::from_secs;
        let mut demand = Demand::default();
        demand.measure(&status(0, 0), at(0));
        assert_eq!(demand.wants(), (0, 1));
        demand.measure(&status(1000, 0), at(1));
        // Too soon.
        demand.measure(&status(9000, 5), at(1) + STEP / 2);
        assert_eq!(demand.wants(), (1250, 1));
        demand.measure(&status(2000, 3), at(2));
        demand.measure(&status(3000, 0), at(4));
        assert_eq!(demand.wants(), (u64::MAX, 3));
        demand.measure(&status(4600, 0), at(6));
        assert_eq!(demand.wants(), (1000, 1), "800 a second, and some to grow");
        demand.measure(&status(0, 0), at(10));
        assert_eq!(demand.wants(), (0, 1), "its counters began anew");
    }

    #[test]
    fn replies_of_another_start_have_no_time() {
        let clock = weir_base::ManualClock::default();
        clock.advance(Duration::from_secs(9));
        let limits = SharedLimits {
            vfs: Weak::new(),
            clock: Arc::new(clock),
            start: 0xab,
            limits: Mutex::default(),
        };
        let reply = limits.exchange(&Request::default());
        assert_eq!(limits.time_of(&reply.as_of), Some(Duration::from_secs(9)));
        for other in ["", "ac-9", "ab", "ab-x"] {
            assert_eq!(limits.time_of(other), None, "{other}");
        }
    }
}

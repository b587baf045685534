//! Limits of a node of the limit tree: its configuration and the meters made from it.

use crate::meter::{Meter, Nanos};

/// The direction in which a request moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Data moves from the volume to the client.
    Read = 0,
    /// Data moves from the client to the volume.
    Write = 1,
}

impl Direction {
    /// Both directions, in the order of their numbers.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Write];
}

/// A metadata operation, or one that maintains protocol state. It never waits, neither for a limit
/// nor behind data, since a client that cannot look up, lock or renew does not merely go slower. It
/// moves no data and costs nothing of a limit on bytes. From a limit on operations of both
/// directions ([`Limits::total`]) it takes its cost, up to a half of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metadata {
    /// Locks, liveness, and COMMIT, whose data was charged when it was written: free.
    Protocol,
    /// Reads of attributes and names: an eighth of an operation. They are served from memory, as a
    /// small READ is, but move nothing, and clients send many for each that a program asks for.
    Look,
    /// Changes of attributes and names: one operation. They take a place in the log, as a small
    /// WRITE does.
    Change,
}

/// Fractions of an operation in which costs of metadata are counted.
pub(crate) const METADATA_PARTS: u64 = 8;

impl Metadata {
    /// Returns the cost in units of 1 / [`METADATA_PARTS`] of an operation.
    pub(crate) fn cost(self) -> u64 {
        match self {
            Metadata::Protocol => 0,
            Metadata::Look => 1,
            Metadata::Change => METADATA_PARTS,
        }
    }
}

/// A rate limit on bytes, on operations, on both, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second; `None` is no limit.
    pub bytes: Option<u64>,
    /// Operations a second; `None` is no limit.
    pub ops: Option<u64>,
}

impl Rate {
    /// No limit on bytes or operations.
    pub const NONE: Rate = Rate {
        bytes: None,
        ops: None,
    };

    /// Limits bytes to `rate` a second; operations are unlimited.
    pub const fn bytes(rate: u64) -> Rate {
        Rate {
            bytes: Some(rate),
            ops: None,
        }
    }

    /// Limits operations to `rate` a second; bytes are unlimited.
    pub const fn ops(rate: u64) -> Rate {
        Rate {
            bytes: None,
            ops: Some(rate),
        }
    }

    /// Returns true if bytes or operations are limited.
    pub fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.ops.is_some()
    }
}

/// The configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit of reads and writes together. Metadata takes up to half of its operations
    /// ([`Metadata`]).
    pub total: Rate,
    /// Limit of reads alone.
    pub read: Rate,
    /// Limit of writes alone.
    pub write: Rate,
    /// Rate that the node gets before any sibling gets more than its own minimum, while the parent
    /// binds. The sum over siblings has to stay within the parent's limit; the configuring code
    /// checks that.
    pub minimum: Rate,
    /// Share among siblings while the parent binds, relative to theirs; 1 ..= 65,536.
    pub weight: u32,
    /// Nanoseconds by which a request may start earlier than the steady rate allows: after idling,
    /// `rate × burst` may pass at once.
    pub burst: Nanos,
}

/// Default burst: ten milliseconds. That is a 2,000th of the 20 s over which an accuracy of 1 % is
/// wanted, and far more than timers are late by.
pub const DEFAULT_BURST: Nanos = 10_000_000;

impl Limits {
    /// Returns true if any limit can delay a request here.
    pub fn is_limited(&self) -> bool {
        self.total.is_limited() || self.read.is_limited() || self.write.is_limited()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: Rate::NONE,
            read: Rate::NONE,
            write: Rate::NONE,
            minimum: Rate::NONE,
            weight: 1,
            burst: DEFAULT_BURST,
        }
    }
}

/// One of a node's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of reads and writes together.
    TotalBytes,
    /// Operations of reads and writes together.
    TotalOps,
    /// Bytes of reads, [`Limits::read`].
    ReadBytes,
    /// Read operations, [`Limits::read`].
    ReadOps,
    /// Bytes of writes, [`Limits::write`].
    WriteBytes,
    /// Write operations, [`Limits::write`].
    WriteOps,
}

impl Limit {
    /// Returns the limit's name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Limit::TotalBytes => "bytes",
            Limit::TotalOps => "ops",
            Limit::ReadBytes => "read_bytes",
            Limit::ReadOps => "read_ops",
            Limit::WriteBytes => "write_bytes",
            Limit::WriteOps => "write_ops",
        }
    }
}

const TOTAL_BYTES: usize = 0;
const TOTAL_OPS: usize = 1;
/// Meters that a direction is charged to, with the limit that each enforces.
const CHARGED: [[(usize, Limit); PLACES]; 2] = [
    [
        (TOTAL_BYTES, Limit::TotalBytes),
        (TOTAL_OPS, Limit::TotalOps),
        (2, Limit::ReadBytes),
        (3, Limit::ReadOps),
    ],
    [
        (TOTAL_BYTES, Limit::TotalBytes),
        (TOTAL_OPS, Limit::TotalOps),
        (4, Limit::WriteBytes),
        (5, Limit::WriteOps),
    ],
];

/// Number of limits that a direction is charged to.
pub(crate) const PLACES: usize = 4;

/// Returns the limit at a place among those that a direction is charged to.
pub(crate) fn charged_limit(dir: Direction, place: usize) -> Option<Limit> {
    Some(CHARGED.get(dir as usize)?.get(place)?.1)
}

/// The meters of a node.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    /// Bytes at even places, operations at odd ones; see [`CHARGED`].
    maxima: [Option<Meter>; 6],
    minimum: [Option<Meter>; 2],
    /// Meter for the operations that metadata may take: half of them.
    metadata: Option<Meter>,
    /// Cost of metadata that does not add up to a whole operation yet, in parts of one.
    metadata_parts: u64,
}

/// Returns the operations a second that metadata may take.
fn metadata_rate(limits: &Limits) -> Option<u64> {
    limits.total.ops.map(|rate| rate.div_ceil(2))
}

impl Meters {
    pub(crate) fn new(limits: &Limits) -> Self {
        let meter = |rate: Option<u64>| rate.map(|rate| Meter::new(rate, limits.burst));
        Self {
            maxima: maxima(limits).map(meter),
            minimum: [limits.minimum.bytes, limits.minimum.ops].map(meter),
            metadata: meter(metadata_rate(limits)),
            metadata_parts: 0,
        }
    }

    /// Applies a new configuration. An existing limit keeps its debt; a new one starts with its
    /// burst.
    pub(crate) fn retune(&mut self, now: Nanos, limits: &Limits) {
        let change = |meter: &mut Option<Meter>, rate: Option<u64>| match (meter.as_mut(), rate) {
            (Some(meter), Some(rate)) => meter.retune(now, rate, limits.burst),
            _ => *meter = rate.map(|rate| Meter::new(rate, limits.burst)),
        };
        for (meter, rate) in self.maxima.iter_mut().zip(maxima(limits)) {
            change(meter, rate);
        }
        for (meter, rate) in self
            .minimum
            .iter_mut()
            .zip([limits.minimum.bytes, limits.minimum.ops])
        {
            change(meter, rate);
        }
        change(&mut self.metadata, metadata_rate(limits));
    }

    fn charged(&self, dir: Direction) -> impl Iterator<Item = (&Meter, Limit)> {
        let places = CHARGED.get(dir as usize).into_iter().flatten();
        places.filter_map(|(at, limit)| Some((self.maxima.get(*at)?.as_ref()?, *limit)))
    }

    /// Calls `what` with each meter that a request of this direction is charged to.
    #[inline]
    fn each(&mut self, dir: Direction, mut what: impl FnMut(&mut Meter, Limit)) {
        for (at, limit) in CHARGED.get(dir as usize).into_iter().flatten() {
            if let Some(Some(meter)) = self.maxima.get_mut(*at) {
                what(meter, *limit);
            }
        }
    }

    /// Returns the time at which the node lets the next request of this direction start.
    pub(crate) fn ready_at(&self, dir: Direction) -> Nanos {
        self.charged(dir)
            .map(|(meter, _)| meter.ready_at())
            .max()
            .unwrap_or(0)
    }

    /// Returns the limit that lets the next request of this direction start last: the time, and its
    /// place among those that the direction is charged to ([`charged_limit`]).
    pub(crate) fn last(&self, dir: Direction) -> Option<(Nanos, usize)> {
        let places = CHARGED.get(dir as usize)?.iter().enumerate();
        let ready = places.filter_map(|(place, (at, _))| {
            Some((self.maxima.get(*at)?.as_ref()?.ready_at(), place))
        });
        ready.max()
    }

    /// Returns the time at which the node falls behind its minimum; `None` without one.
    pub(crate) fn due_at(&self) -> Option<Nanos> {
        self.minimum.iter().flatten().map(Meter::ready_at).max()
    }

    /// Charges `ops` requests of `bytes` in all. Returns their cost at this node: the time for
    /// which they take up the tightest limit; `None` without limits.
    pub(crate) fn charge(
        &mut self,
        now: Nanos,
        dir: Direction,
        bytes: u64,
        ops: u64,
    ) -> Option<Nanos> {
        let mut cost = None;
        self.each(dir, |meter, limit| {
            cost = cost.max(Some(meter.charge(now, units(limit, bytes, ops))));
        });
        for (meter, units) in self.minimum.iter_mut().zip([bytes, ops]) {
            if let Some(meter) = meter {
                meter.charge(now, units);
            }
        }
        cost
    }

    /// Drains the credit that has accumulated below the limits.
    pub(crate) fn drain_credit(&mut self, now: Nanos) {
        for meter in self.maxima.iter_mut().flatten() {
            meter.drain_credit(now);
        }
    }

    /// Returns true if the next request of this direction could start at `now` after `ops` requests
    /// of `bytes` in all, and after all outstanding reservations.
    pub(crate) fn has_room(&self, now: Nanos, dir: Direction, bytes: u64, ops: u64) -> bool {
        self.charged(dir)
            .all(|(meter, limit)| meter.has_room(now, units(limit, bytes, ops)))
    }

    /// Reserves `ops` requests of `bytes` in all, which may then start without another check.
    pub(crate) fn reserve(&mut self, dir: Direction, bytes: u64, ops: u64) {
        self.each(dir, |meter, limit| meter.reserve(units(limit, bytes, ops)));
    }

    /// Settles a reservation, as requests and their bytes: `came` have started by `at`, `left` are
    /// released.
    pub(crate) fn settle_reservation(
        &mut self,
        at: Nanos,
        dir: Direction,
        came: (u64, u64),
        left: (u64, u64),
    ) {
        self.each(dir, |meter, limit| {
            let [came, left] = [came, left].map(|(ops, bytes)| units(limit, bytes, ops));
            meter.settle_reservation(at, came, left);
        });
        for (meter, units) in self.minimum.iter_mut().zip([came.1, came.0]) {
            if let Some(meter) = meter {
                meter.charge(at, units);
            }
        }
    }

    /// Charges metadata, as far as it may take operations from data. Returns the operations
    /// charged.
    pub(crate) fn charge_metadata(&mut self, now: Nanos, kind: Metadata) -> u64 {
        let (Some(share), Some(Some(ops))) = (&mut self.metadata, self.maxima.get_mut(TOTAL_OPS))
        else {
            return 0;
        };
        self.metadata_parts += kind.cost();
        let whole = self.metadata_parts / METADATA_PARTS;
        self.metadata_parts %= METADATA_PARTS;
        if whole == 0 || share.ready_at() > now {
            return 0;
        }
        share.charge(now, whole);
        ops.charge(now, whole);
        whole
    }

    /// Refunds bytes and operations of an earlier charge.
    pub(crate) fn refund(&mut self, dir: Direction, bytes: u64, ops: u64) {
        self.each(dir, |meter, limit| meter.refund(units(limit, bytes, ops)));
        for (meter, units) in self.minimum.iter_mut().zip([bytes, ops]) {
            if let Some(meter) = meter {
                meter.refund(units);
            }
        }
    }

    /// Returns true if every charge has drained at `now`.
    pub(crate) fn settled(&self, now: Nanos) -> bool {
        let settled = |meter: &Meter| meter.settled_at() <= now;
        self.maxima.iter().flatten().all(settled)
    }
}

fn maxima(limits: &Limits) -> [Option<u64>; 6] {
    let Limits {
        total, read, write, ..
    } = limits;
    [
        total.bytes,
        total.ops,
        read.bytes,
        read.ops,
        write.bytes,
        write.ops,
    ]
}

fn units(limit: Limit, bytes: u64, ops: u64) -> u64 {
    match limit {
        Limit::TotalBytes | Limit::ReadBytes | Limit::WriteBytes => bytes,
        Limit::TotalOps | Limit::ReadOps | Limit::WriteOps => ops,
    }
}

//! How a call stands with the limits of its volume.
//!
//! READ and WRITE are charged once, when their caller was admitted and before the volume acts; a call that is run again,
//! because it had to wait for its limits or for the device, keeps its charge. What was charged and not moved is given
//! back at the end, whatever the end was.

use crate::operation;
use crate::rpc::Call;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_base::VolumeId;
use weir_vfs::stats::Done;
use weir_vfs::throttle::{Charge, Held, Request, Throttle};
use weir_vfs::volume::Stop;
use weir_vfs::{Direction, Subject, Upkeep, Vfs};

/// Why a call did not come to its end.
pub enum Halt {
    /// It changed nothing, and is to be run again after that.
    Stop(Stop),
    /// It waits for its limits.
    Held(Box<Held>),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Stop(stop)
    }
}

/// What a call was charged.
pub struct Limited {
    /// Its connection.
    flow: u64,
    /// When it arrived, in nanoseconds on the monotonic clock, if the caller knows.
    now: Option<u64>,
    charge: Option<Charge>,
    /// Whether it has been at the gate.
    passed: bool,
    moved: u64,
}

impl Limited {
    /// A call that has not been charged yet.
    pub fn new(flow: u64, now: Option<u64>) -> Limited {
        Limited {
            flow,
            now,
            charge: None,
            passed: false,
            moved: 0,
        }
    }

    /// Charges a call that is about to move `bytes`, or holds it.
    pub(crate) fn pass(
        &mut self,
        vfs: &Vfs,
        subject: &Subject<'_>,
        client: IpAddr,
        direction: Direction,
        bytes: usize,
    ) -> Result<(), Halt> {
        if self.passed {
            return Ok(());
        }
        let request = Request {
            volume: subject.export.volume.id(),
            client,
            flow: self.flow,
            direction,
            bytes: bytes as u64,
        };
        let gate = vfs.throttle.gate(&request, self.now, &mut self.charge);
        self.passed = gate.is_ok();
        gate.map_err(Halt::Held)
    }

    /// The call, which concerns metadata, was carried out.
    pub(crate) fn charge_upkeep(
        &self,
        throttle: &Throttle,
        volume: VolumeId,
        client: IpAddr,
        kind: Upkeep,
    ) {
        throttle.charge_upkeep(volume, client, kind, self.now);
    }

    /// The call was released.
    pub(crate) fn released(&mut self, charge: Option<Charge>) {
        (self.charge, self.passed) = (charge, true);
    }

    /// What the call counts as at its end.
    pub(crate) fn done(&self, volume: VolumeId, call: &Call<'_>) -> Option<Done> {
        Some(Done {
            volume,
            operation: operation::number(call.program, call.procedure)?,
            bytes: u32::try_from(self.moved).ok()?,
            arrived: self.now?,
        })
    }

    /// So many bytes were moved.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.moved = bytes as u64;
    }

    /// The call has come to its end.
    pub(crate) fn settle(&mut self, throttle: &Throttle) {
        // Looked at where it stands: to take it out means copying it, which costs more than the rest.
        if let Some(charge) = &self.charge {
            throttle.refund(charge, self.moved);
        }
        self.charge = None;
    }
}

/// Locks over which the calls that wait are spread.
const SHARDS: usize = 16;

/// A connection and a transaction id on it.
type CallKey = (u64, u32);

/// The calls that wait for their limits. A client that gets no answer in time sends its call again, and a second copy
/// would take up a second place, credit and charge: a call that waits already on its connection is dropped. One that
/// comes over another connection is not: the first connection is then gone, and what waits on it goes with it.
#[derive(Default)]
pub(crate) struct HeldCalls {
    count: AtomicUsize,
    shards: [Mutex<HashSet<CallKey>>; SHARDS],
}

impl HeldCalls {
    fn shard(&self, flow: u64) -> &Mutex<HashSet<CallKey>> {
        &self.shards[(flow % SHARDS as u64) as usize]
    }

    /// Whether a call waits.
    pub(crate) fn contains(&self, flow: u64, xid: u32) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.shard(flow).lock().contains(&(flow, xid))
    }

    /// Enters a call that does not wait yet.
    pub(crate) fn enter(self: &Arc<Self>, flow: u64, xid: u32) -> HeldCall {
        self.shard(flow).lock().insert((flow, xid));
        self.count.fetch_add(1, Ordering::Relaxed);
        HeldCall {
            calls: Arc::clone(self),
            key: (flow, xid),
        }
    }
}

/// A call's entry among those that wait.
pub(crate) struct HeldCall {
    calls: Arc<HeldCalls>,
    key: CallKey,
}

impl Drop for HeldCall {
    fn drop(&mut self) {
        self.calls.shard(self.key.0).lock().remove(&self.key);
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_once_on_its_connection() {
        let calls = Arc::new(HeldCalls::default());
        assert!(!calls.contains(7, 1));
        let first = calls.enter(7, 1);
        assert!(calls.contains(7, 1));
        assert!(
            !calls.contains(23, 1),
            "another connection, in the same shard"
        );
        drop(first);
        assert!(!calls.contains(7, 1));
        assert!(calls.shards.iter().all(|s| s.lock().is_empty()));
    }
}

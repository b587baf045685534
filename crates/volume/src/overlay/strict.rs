//! Strict volumes: none of their changes is reported while only one machine has it.
//!
//! The primary of a pair that loses its partner continues alone, for volumes whose owners prefer
//! availability. Changes of a *strict* volume are held meanwhile; reads continue. Three mechanisms
//! ensure that:
//!
//! - **New changes are held before they have an effect**: an operation that is about to change a
//!   strict volume waits for the partner ([`Strict::admits`]). After a while, the node makes it
//!   fail, so that clients' slots and connections are not used up: clients have to retry
//!   ([`Strict::refuse`]).
//! - **Changes in progress when the partner was lost** are already made on this side, and their
//!   replies wait for the partner's acknowledgement. Other volumes' replies leave when the primary
//!   continues alone. Those of strict volumes stay withheld ([`Strict::withholds`]), identified by
//!   their records, which are kept here from the append until the acknowledgement. An operation
//!   admitted just before changes are held is among them.
//! - **A retransmission after a restart** is not answered from the log either, as long as changes
//!   are held ([`crate::Volume::is_held`]).
//!
//! There are at most as many such records as entries in the stream's window and changes in
//! progress: its bound is theirs.
//!
//! The control plane names the strict volumes at each start, before their clients are admitted;
//! this is not stored here.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};
use weir_base::{Lsn, VolumeId};

use crate::types::{Backpressure, FsError, Stop};

/// State: changes of strict volumes are made.
const ADMITTED: u8 = 0;
/// State: changes wait.
const HELD: u8 = 1;
/// State: changes are refused.
const REFUSED: u8 = 2;

/// The strict volumes and the state of their changes.
#[derive(Default)]
pub(crate) struct Strict {
    state: AtomicU8,
    volumes: RwLock<HashSet<VolumeId>>,
    /// True if there are strict volumes.
    any: AtomicBool,
    /// Records of their changes that the partner has not acknowledged.
    open: Mutex<BTreeMap<Lsn, VolumeId>>,
}

impl Strict {
    /// Checks that a volume may be changed now.
    #[inline]
    pub(crate) fn admits(&self, volume: VolumeId) -> Result<(), Stop> {
        match self.state.load(Ordering::Relaxed) {
            ADMITTED => Ok(()),
            state => self.admits_in(state, volume),
        }
    }

    #[cold]
    fn admits_in(&self, state: u8, volume: VolumeId) -> Result<(), Stop> {
        match (self.volumes.read().contains(&volume), state) {
            (false, _) => Ok(()),
            (true, HELD) => Err(Stop::Wait(Backpressure::Partner)),
            (true, _) => Err(FsError::Delay.into()),
        }
    }

    /// Returns true if changes wait: they continue when it becomes false.
    pub(crate) fn waits(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// Notes that a record of this volume was appended; its reply has not been made yet.
    #[inline]
    pub(crate) fn appended(&self, volume: VolumeId, lsn: Lsn) {
        if self.any.load(Ordering::Relaxed) && self.volumes.read().contains(&volume) {
            self.open.lock().insert(lsn, volume);
        }
    }

    /// Notes that the partner has acknowledged everything up to this record.
    pub(crate) fn acknowledged(&self, upto: Lsn) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut open = self.open.lock();
        while let Some(first) = open.first_entry().filter(|first| *first.key() <= upto) {
            first.remove();
        }
    }

    /// Returns true if the reply that waits for this record has to be withheld although the record
    /// is durable. Call it after the record was found durable: a record durable on one side alone
    /// is so since changes are held.
    #[inline]
    pub(crate) fn withholds(&self, lsn: Lsn) -> bool {
        self.state.load(Ordering::Relaxed) != ADMITTED && self.open.lock().contains_key(&lsn)
    }

    /// Makes a volume strict, or not: then its withheld replies are released.
    pub(crate) fn set(&self, volume: VolumeId, strict: bool) {
        let mut volumes = self.volumes.write();
        let changed = match strict {
            true => volumes.insert(volume),
            false => volumes.remove(&volume),
        };
        if changed {
            self.any.store(!volumes.is_empty(), Ordering::Relaxed);
            drop(volumes);
            if !strict {
                self.open.lock().retain(|_, of| *of != volume);
            }
        }
    }

    pub(crate) fn is_strict(&self, volume: VolumeId) -> bool {
        self.any.load(Ordering::Relaxed) && self.volumes.read().contains(&volume)
    }

    /// Returns true if changes of this volume are held or refused now.
    pub(crate) fn holds(&self, volume: VolumeId) -> bool {
        self.state.load(Ordering::Acquire) != ADMITTED && self.is_strict(volume)
    }

    /// Holds changes. Call it before anything becomes durable on one side alone.
    pub(crate) fn hold(&self) {
        self.state.store(HELD, Ordering::Release);
    }

    /// Refuses waiting and further changes. Returns true if some may have waited until now.
    pub(crate) fn refuse(&self) -> bool {
        let state = &self.state;
        let before = state.compare_exchange(HELD, REFUSED, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok()
    }

    /// Admits changes, which wait for the partner's acknowledgement like others.
    pub(crate) fn admit(&self) {
        self.state.store(ADMITTED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: VolumeId = VolumeId(7);
    const OTHER: VolumeId = VolumeId(8);

    #[test]
    fn changes_of_strict_volumes_alone_are_held_then_refused() {
        let strict = Strict::default();
        strict.set(STRICT, true);
        assert_eq!(strict.admits(STRICT), Ok(()));
        strict.hold();
        assert_eq!(
            strict.admits(STRICT),
            Err(Stop::Wait(Backpressure::Partner))
        );
        assert_eq!(strict.admits(OTHER), Ok(()));
        assert!(strict.holds(STRICT) && !strict.holds(OTHER));
        assert!(strict.refuse());
        assert!(!strict.refuse() && !strict.waits());
        assert_eq!(strict.admits(STRICT), Err(Stop::Fail(FsError::Delay)));
        assert_eq!(strict.admits(OTHER), Ok(()));
        strict.admit();
        assert_eq!(strict.admits(STRICT), Ok(()));
        assert!(!strict.refuse());
        assert_eq!(strict.admits(STRICT), Ok(()), "nothing is held");
    }

    #[test]
    fn what_the_partner_has_not_acknowledged_is_withheld_until_it_has_or_the_volume_is_strict_no_more()
     {
        let strict = Strict::default();
        strict.appended(STRICT, Lsn(1));
        strict.set(STRICT, true);
        for (volume, lsn) in [(STRICT, 2), (OTHER, 3), (STRICT, 4), (STRICT, 6)] {
            strict.appended(volume, Lsn(lsn));
        }
        let withheld = || {
            (1..8)
                .filter(|n| strict.withholds(Lsn(*n)))
                .collect::<Vec<_>>()
        };
        assert!(withheld().is_empty(), "both sides have what is durable");
        strict.acknowledged(Lsn(3));
        strict.hold();
        assert_eq!(withheld(), [4, 6]);
        assert!(strict.refuse());
        assert_eq!(withheld(), [4, 6]);
        strict.acknowledged(Lsn(5));
        assert_eq!(withheld(), [6]);
        strict.set(STRICT, false);
        assert!(withheld().is_empty());
    }
}

//! Strict volumes: no change of theirs is reported that one machine alone has.
//!
//! The primary of a mirror that loses its partner goes on alone, for volumes whose owners would rather write than wait. Changes
//! of a *strict* volume are held meanwhile; reads go on. Three things make that so.
//!
//! - **What is new is held before it changes anything**: an operation that is about to change a strict volume waits for the partner
//!   ([`Strict::admits`]). After a while, the node has it refused, so that clients' slots and connections are not
//!   used up: they are to try again ([`Strict::refuse`]).
//! - **What was under way when the partner was lost** has changed this side already, and its reply waits for the partner's
//!   acknowledgement. Other volumes' replies leave when the primary goes on alone; those of strict volumes stay withheld
//!   ([`Strict::withholds`]), known by their records, which are kept here from when they are appended until they are acknowledged.
//!   An operation that was admitted just before changes are held is among them.
//! - **What a client repeats after a restart** is not answered from the log either, as long as changes are held
//!   ([`crate::Volume::is_held`]).
//!
//! The records are those of entries that the stream's window has, and of what was under way at most: its bound is theirs.
//!
//! Which volumes are strict the control plane says at each start, before their clients are admitted; nothing of it is stored here.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};
use weir_base::{Lsn, VolumeId};

use crate::types::{Backpressure, FsError, Stop};

/// Changes of strict volumes are made.
const ADMITTED: u8 = 0;
/// They wait.
const HELD: u8 = 1;
/// They are refused.
const REFUSED: u8 = 2;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Strict {
    state: AtomicU8,
    volumes: RwLock<HashSet<VolumeId>>,
    /// There are such volumes.
    any: AtomicBool,
    /// The records of their changes that the partner has not acknowledged.
    open: Mutex<BTreeMap<Lsn, VolumeId>>,
}

impl Strict {
    /// Whether a volume may be changed now.
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

    /// Whether changes wait: what waits goes on when they do not any more.
    pub(crate) fn waits(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// A record of this volume was appended; its reply has not been made yet.
    #[inline]
    pub(crate) fn appended(&self, volume: VolumeId, lsn: Lsn) {
        if self.any.load(Ordering::Relaxed) && self.volumes.read().contains(&volume) {
            self.open.lock().insert(lsn, volume);
        }
    }

    /// The partner has acknowledged everything up to this record.
    pub(crate) fn acknowledged(&self, upto: Lsn) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut open = self.open.lock();
        while let Some(first) = open.first_entry().filter(|first| *first.key() <= upto) {
            first.remove();
        }
    }

    /// Whether the reply that waits for this record is not to be sent although it is durable. To be called after it was
    /// found durable: what is durable on one side alone is so since changes are held.
    #[inline]
    pub(crate) fn withholds(&self, lsn: Lsn) -> bool {
        self.state.load(Ordering::Relaxed) != ADMITTED && self.open.lock().contains_key(&lsn)
    }

    /// Makes a volume strict, or lets it be like others: what was withheld of it leaves then.
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

    /// Whether changes of this volume are held or refused now.
    pub(crate) fn holds(&self, volume: VolumeId) -> bool {
        self.state.load(Ordering::Acquire) != ADMITTED && self.is_strict(volume)
    }

    /// From now on changes wait. To be called before anything becomes durable on one side alone.
    pub(crate) fn hold(&self) {
        self.state.store(HELD, Ordering::Release);
    }

    /// From now on those that wait, and further ones, are refused. Returns whether some may have waited until now.
    pub(crate) fn refuse(&self) -> bool {
        let state = &self.state;
        let before = state.compare_exchange(HELD, REFUSED, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok()
    }

    /// Changes are made, and wait for the partner's acknowledgement as others do.
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

//! The log's front end: appends the records of operations and their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::{Ino, Lsn, VolumeId};
use weir_store::aggregate::Aggregate;
use weir_store::log::advance::InAdvance;
use weir_store::log::stream::Sequence;
use weir_store::log::{AppendError, Record};

use crate::format::calls::DoneCall;
use crate::format::catalog::StreamPosition;
use crate::format::edit::Edits;
use crate::format::volume_change::VolumeChange;
use crate::overlay::calls::Calls;
use crate::overlay::context::EngineContext;
use crate::overlay::strict::Strict;
use crate::types::{Backpressure, FsError, Stop};

/// Appends edits to the log and the stream.
pub(crate) struct LogFront {
    agg: Arc<Aggregate>,
    /// The last appended record; 0: none.
    last: AtomicU64,
    calls: Calls,
    /// The last recorded position of a stream of changes; all zero: none.
    position: Mutex<StreamPosition>,
    strict: Strict,
}

impl LogFront {
    pub(crate) fn new(agg: &Arc<Aggregate>) -> LogFront {
        LogFront {
            agg: Arc::clone(agg),
            last: AtomicU64::new(0),
            calls: Calls::default(),
            position: Mutex::default(),
            strict: Strict::default(),
        }
    }

    /// Returns the calls carried out last.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the strict volumes, whose changes are not reported while only one machine has them.
    pub(crate) fn strict(&self) -> &Strict {
        &self.strict
    }

    /// Returns true if changes go to a stream as well; the caller holds the epoch lock.
    pub(crate) fn ships(&self) -> bool {
        self.agg.log().ships()
    }

    /// Appends an operation's edits. The caller changes memory only afterwards.
    pub(crate) fn append(&self, edits: Edits) -> Result<Lsn, Stop> {
        let volume = edits.volume();
        let lsn = self.appended(self.agg.log().append(edits.into_record()))?;
        self.strict.appended(volume, lsn);
        Ok(lsn)
    }

    /// Like [`LogFront::append`], but a stream gets `shipped` in place of the edits; some of its
    /// pages may have been sent before. It is for edits that refer to blocks of this device, and
    /// for data that has been in the stream since it was written.
    pub(crate) fn append_as(
        &self,
        edits: Edits,
        shipped: impl FnOnce() -> (Edits, Option<InAdvance>),
    ) -> Result<Lsn, Stop> {
        if !self.ships() {
            return self.append(edits);
        }
        let (log, volume) = (self.agg.log(), edits.volume());
        let (shipped, advance) = shipped();
        let lsn =
            self.appended(log.append_as(edits.into_record(), shipped.into_record(), advance))?;
        self.strict.appended(volume, lsn);
        Ok(lsn)
    }

    /// Adds unlogged edits to the stream.
    pub(crate) fn ship(&self, edits: Edits) -> Result<(), Stop> {
        self.shipped(edits.into_record())
    }

    /// Adds a change of a whole volume to the stream.
    pub(crate) fn ship_change(
        &self,
        volume: VolumeId,
        change: &VolumeChange<'_>,
    ) -> Result<(), Stop> {
        if !self.ships() {
            return Ok(());
        }
        self.shipped(Record {
            meta: change.encode(volume),
            ..Record::default()
        })
    }

    fn shipped(&self, record: Record) -> Result<(), Stop> {
        match self.agg.log().ship(record) {
            Ok(()) => Ok(()),
            Err(AppendError::TooLarge) => Err(Stop::Fail(FsError::Invalid)),
            Err(AppendError::Full | AppendError::Poisoned(_)) => Err(Stop::Fail(FsError::ReadOnly)),
        }
    }

    fn appended(&self, result: Result<Lsn, AppendError>) -> Result<Lsn, Stop> {
        match result {
            Ok(lsn) => {
                // The caller's locks order this before the effect becomes visible.
                self.last.fetch_max(lsn.0, Ordering::Relaxed);
                Ok(lsn)
            }
            Err(AppendError::Full) => Err(Stop::Wait(Backpressure::Log)),
            Err(AppendError::Poisoned(_)) => Err(Stop::Fail(FsError::ReadOnly)),
            Err(AppendError::TooLarge) => Err(Stop::Fail(FsError::Invalid)),
        }
    }

    /// Appends a call's edits, with the key of the call; the reply to it names `ino` (0: none).
    pub(crate) fn append_call(
        &self,
        cx: &EngineContext,
        volume: VolumeId,
        mut edits: Edits,
        ino: Ino,
    ) -> Result<Lsn, Stop> {
        let Some(key) = cx.call else {
            return self.append(edits);
        };
        let secs = cx.now.secs;
        edits.call(ino, &key, secs);
        let lsn = self.append(edits)?;
        self.calls.push(DoneCall {
            key,
            volume,
            ino,
            secs,
        });
        Ok(lsn)
    }

    /// Returns the record that must be durable for every visible change to be durable.
    pub(crate) fn last_appended(&self) -> Option<Lsn> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            n => Some(Lsn(n)),
        }
    }

    /// Returns the position in a stream of changes: of the one attached to this log, or the last
    /// recorded one. All zero: none.
    pub(crate) fn position(&self) -> StreamPosition {
        let noted = *self.position.lock();
        match self.agg.log().streamed() {
            Some(Sequence(sequence)) => StreamPosition { sequence, ..noted },
            None => noted,
        }
    }

    /// Records a position, unless a later one is known; the caller has appended it.
    pub(crate) fn note_position(&self, at: StreamPosition) {
        let mut position = self.position.lock();
        // Positions of a round are not ordered with those of a stream: there is one caller then.
        let other = at.mark().is_some() || position.mark().is_some();
        *position = if other { at } else { at.max(*position) };
    }
}

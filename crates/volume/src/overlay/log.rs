//! The log's front end: what operations append, and the calls that they do it for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::{Ino, Lsn, VolumeId};
use weir_store::aggregate::Aggregate;
use weir_store::log::{AppendError, Record};

use crate::format::calls::DoneCall;
use crate::format::catalog::StreamPosition;
use crate::format::edit::Edits;
use crate::overlay::calls::Calls;
use crate::overlay::context::EngineContext;
use crate::types::{Backpressure, FsError, Stop};

/// Where edits are appended.
pub(crate) struct LogFront {
    agg: Arc<Aggregate>,
    /// The last record that was appended; 0: none.
    last: AtomicU64,
    calls: Calls,
    /// The last position of a stream of changes that was noted; none if it is 0.
    position: Mutex<StreamPosition>,
}

impl LogFront {
    pub(crate) fn new(agg: &Arc<Aggregate>) -> LogFront {
        LogFront {
            agg: Arc::clone(agg),
            last: AtomicU64::new(0),
            calls: Calls::default(),
            position: Mutex::default(),
        }
    }

    /// The calls that were carried out last.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Appends an operation's edits. The caller changes memory only afterwards.
    pub(crate) fn append(&self, edits: Edits) -> Result<Lsn, Stop> {
        let record = Record {
            meta: edits.meta,
            pages: edits.pages,
        };
        match self.agg.log().append(record) {
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

    /// Appends what a call did, with what the call is known by; the reply to it names `ino` (0: none).
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

    /// The record that must be durable for everything visible now to be so.
    pub(crate) fn last_appended(&self) -> Option<Lsn> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            n => Some(Lsn(n)),
        }
    }

    /// The last position of a stream of changes that was noted; all zero: none.
    pub(crate) fn position(&self) -> StreamPosition {
        *self.position.lock()
    }

    /// Notes a position, unless a later one is known; the caller has appended it.
    pub(crate) fn note_position(&self, at: StreamPosition) {
        let mut position = self.position.lock();
        *position = at.max(*position);
    }
}

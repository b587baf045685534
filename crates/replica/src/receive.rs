//! The destination's side of a transfer.

use std::sync::Arc;

use weir_volume::Volume;

use crate::transfer::{Nanos, Phase, Progress, TransferError};
use crate::wire::Frame;

/// What a frame did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The transfer has begun; so many bytes of it had come before.
    Began {
        /// Bytes before compression.
        resumed: u64,
    },
    /// Data, so many bytes on the wire: ask the throttle before the next frame is read.
    Data(u64),
    /// Nothing to be noted.
    Nothing,
    /// The snapshot is complete and durable, and is what clients see.
    Done {
        /// Its identity in the destination volume.
        snapshot: u32,
    },
}

/// The destination's side of one transfer.
///
/// Hand in the frames that come and send what it appends to `out`, until it answers [`Received::Done`]. It blocks while
/// the destination's engine is behind, at the end for a consistency point, so it wants a thread. Dropping it
/// ends the transfer; what has arrived is kept, and the next transfer of the same snapshot goes on behind it.
pub struct Receiver {
    _volume: Arc<Volume>,
}

impl Receiver {
    /// Receives into `volume`, which must be protected ([`weir_volume::Engine::protect`]).
    ///
    /// # Errors
    /// `Volume(Invalid)` if it is not, `Volume(Busy)` if another transfer into it is running.
    pub fn new(_volume: &Arc<Volume>, _now: Nanos) -> Result<Receiver, TransferError> {
        Err(TransferError::Source("not yet".into()))
    }

    /// Takes in a frame; appends answers to `out`.
    ///
    /// # Errors
    /// The transfer is over. `out` has what is to be sent to the other side before closing.
    pub fn frame(
        &mut self,
        _frame: &Frame<'_>,
        _out: &mut Vec<u8>,
        _now: Nanos,
    ) -> Result<Received, TransferError> {
        Err(TransferError::Source("not yet".into()))
    }

    /// To be called about once a second, data or not: sees to it that a checkpoint is never older than some seconds.
    pub fn tick(&mut self, _out: &mut Vec<u8>, _now: Nanos) {}

    /// How far it is.
    pub fn progress(&self) -> Progress {
        no_progress()
    }

    /// Appends the word for the other side that the transfer ends on request.
    pub fn abort(self, _out: &mut Vec<u8>) {}
}

pub(crate) fn no_progress() -> Progress {
    Progress {
        phase: Phase::Setup,
        logical: 0,
        wire: 0,
        resumed: 0,
        durable: 0,
        total: None,
        began: 0,
        data_began: None,
        data_ended: None,
        ended: None,
    }
}

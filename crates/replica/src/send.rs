//! The source's side of a transfer.

use std::sync::Arc;

use weir_volume::{SnapshotHold, Volume};

use crate::transfer::{Nanos, Progress, TransferError};
use crate::wire::Frame;

/// How a transfer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Compress with zstd at this level (1 to 19); `None`: not.
    pub compress: Option<i32>,
    /// Count beforehand what will be sent: reads the difference's records twice, its data not.
    pub count: bool,
}

/// What a step of the sender gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// `out` has a frame of data more, of so many bytes on the wire, at most [`crate::throttle::PIECE`]: ask the
    /// throttle before they go.
    Data(u64),
    /// `out` has something more that no throttle counts.
    Control,
    /// There is nothing to send before the other side has spoken.
    Wait,
    /// The transfer has ended well.
    Done,
}

/// The source's side of one transfer.
///
/// Drive it: call [`Sender::step`], which appends to `out`, send that, and hand in what the other side sends
/// ([`Sender::frame`]), until it answers `Done`. Steps read from the disk and block; so they want a thread. Dropping the
/// sender ends the transfer; the destination keeps what it has.
pub struct Sender {
    _hold: Arc<SnapshotHold>,
}

impl Sender {
    /// Sends `target` as its difference to `base`, both snapshots of `volume` by name; without a base, all of it.
    /// Both are held: they cannot be deleted meanwhile.
    ///
    /// # Errors
    /// `Volume(NotFound)` if there is no such snapshot, `Volume(Invalid)` if the base is newer.
    pub fn new(
        _volume: &Arc<Volume>,
        _base: Option<&str>,
        _target: &str,
        _options: SendOptions,
        _now: Nanos,
    ) -> Result<Sender, TransferError> {
        Err(TransferError::Source("not yet".into()))
    }

    /// Appends the next frame to `out`. Blocks while it reads.
    ///
    /// # Errors
    /// The transfer is over. Unless it is `Wire`, `out` has what is to be sent to the other side before closing.
    pub fn step(&mut self, _out: &mut Vec<u8>, _now: Nanos) -> Result<SendStep, TransferError> {
        Err(TransferError::Source("not yet".into()))
    }

    /// Takes in a frame of the other side.
    ///
    /// # Errors
    /// The transfer is over.
    pub fn frame(&mut self, _frame: &Frame<'_>, _now: Nanos) -> Result<(), TransferError> {
        Err(TransferError::Source("not yet".into()))
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        crate::receive::no_progress()
    }

    /// Appends the word for the other side that the transfer ends on request.
    pub fn abort(self, _out: &mut Vec<u8>) {}
}

//! Both sides of a transfer in one process, joined by a pipe in memory. For tests, simulations and
//! measurements, which may inspect and damage the frames.

use std::sync::Arc;

use weir_volume::{FsError, Volume};

use crate::batch::{self, Forgery};
use crate::progress::{Nanos, TransferError};
use crate::receive::{FrameEffect, Receiver, SnapshotRange};
use crate::send::{SendOptions, SendStep, Sender};
use crate::wire::{Decoder, End, Frame, Kind, Message};

/// A transfer whose frames are passed in memory.
pub struct Pipe {
    /// The source's side of the transfer.
    pub sender: Sender,
    /// The destination's side of the transfer.
    pub receiver: Receiver,
    /// Changes frames on their way to the destination.
    pub forger: Forger,
    forth: Decoder,
    back: Decoder,
    out: Vec<u8>,
}

/// Changes frames so that the stream is still valid but has other content: only a comparison of the
/// trees can detect it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forger {
    /// Change of the next payload that allows it.
    pub how: Option<Forgery>,
    /// True if a payload was changed.
    pub forged: bool,
}

impl Forger {
    /// Changes a frame on its way to `receiver`, if a change is pending.
    ///
    /// # Errors
    /// The source has sent something malformed.
    pub fn pass(
        &mut self,
        frame: &mut Frame<'_>,
        receiver: &Receiver,
    ) -> Result<(), TransferError> {
        match (frame.kind, self.how) {
            (Kind::Records, Some(how)) if batch::forge(frame.payload.to_mut(), how) => {
                (self.how, self.forged) = (None, true);
            }
            (Kind::End, _) if self.forged => {
                let mut end = End::decode(&frame.payload)?;
                end.digest = receiver.digest();
                frame.payload.to_mut().clear();
                end.put(frame.payload.to_mut());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Result of running a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// There are more frames to send.
    More,
    /// The transfer has succeeded.
    Done {
        /// The snapshot's identity at the destination.
        snapshot: u32,
    },
}

impl Pipe {
    /// Creates a transfer between two volumes of `target` as the difference to `base`, by their
    /// names at the source.
    ///
    /// # Errors
    /// As [`Sender::new`] and [`Receiver::new`].
    pub fn new(
        from: &Arc<Volume>,
        base: Option<&str>,
        target: &str,
        to: &Arc<Volume>,
        options: SendOptions,
        now: Nanos,
    ) -> Result<Pipe, TransferError> {
        let named = |name| from.snapshot(name).ok_or(FsError::NotFound);
        let target = named(target)?.identity;
        let base = base.map(named).transpose()?.map(|s| s.identity);
        let wanted = SnapshotRange { base, target };
        Ok(Pipe {
            sender: Sender::new(from, base, target, options, now)?,
            receiver: Receiver::new(to, wanted, now)?,
            forger: Forger::default(),
            forth: Decoder::new(),
            back: Decoder::new(),
            out: Vec::new(),
        })
    }

    /// Moves one frame from the source, and the replies to it. `on_way` may change the frame's
    /// bytes.
    ///
    /// # Errors
    /// The transfer has failed.
    pub fn step(
        &mut self,
        now: Nanos,
        on_way: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<Ran, TransferError> {
        self.out.clear();
        let step = self.sender.step(&mut self.out, now)?;
        if !matches!(step, SendStep::Wait | SendStep::Working) {
            on_way(&mut self.out);
        }
        self.forth.feed(&self.out);
        self.out.clear();
        let mut ran = Ran::More;
        while let Some(mut frame) = self.forth.frame()? {
            self.forger.pass(&mut frame, &self.receiver)?;
            let mut received = self.receiver.frame(&frame, &mut self.out, now)?;
            while received == FrameEffect::Proving {
                received = self.receiver.prove(&mut self.out, now)?;
            }
            if let FrameEffect::Done { snapshot } = received {
                ran = Ran::Done { snapshot };
            }
        }
        self.back.feed(&self.out);
        while let Some(frame) = self.back.frame()? {
            self.sender.frame(&frame, now)?;
        }
        Ok(ran)
    }

    /// Moves at most `frames` frames.
    ///
    /// # Errors
    /// The transfer has failed.
    pub fn run(&mut self, frames: usize, now: Nanos) -> Result<Ran, TransferError> {
        for _ in 0..frames {
            let ran = self.step(now, &mut |_| {})?;
            if ran != Ran::More {
                return Ok(ran);
            }
        }
        Ok(Ran::More)
    }
}

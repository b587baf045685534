//! Both sides of a transfer in one place, joined by a pipe in memory: for tests, simulations and measurements, which
//! may look at and damage what goes through it.

use std::sync::Arc;

use weir_volume::Volume;

use crate::receive::{Received, Receiver};
use crate::send::{SendOptions, SendStep, Sender};
use crate::transfer::{Nanos, TransferError};
use crate::wire::Decoder;

/// See the module's head.
pub struct Pipe {
    /// The source's side.
    pub sender: Sender,
    /// The destination's side.
    pub receiver: Receiver,
    forth: Decoder,
    back: Decoder,
    out: Vec<u8>,
}

/// How far a pipe was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// There is more to be sent.
    More,
    /// The transfer has ended well.
    Done {
        /// The snapshot's identity at the destination.
        snapshot: u32,
    },
}

impl Pipe {
    /// A transfer of `target` as the difference to `base` from one volume into another.
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
        Ok(Pipe {
            sender: Sender::new(from, base, target, options, now)?,
            receiver: Receiver::new(to, now)?,
            forth: Decoder::new(),
            back: Decoder::new(),
            out: Vec::new(),
        })
    }

    /// Moves one frame from the source and the answers to it. `on_way` may change the frame's bytes.
    ///
    /// # Errors
    /// The transfer is over.
    pub fn step(
        &mut self,
        now: Nanos,
        on_way: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<Ran, TransferError> {
        self.out.clear();
        let step = self.sender.step(&mut self.out, now)?;
        if step != SendStep::Wait {
            on_way(&mut self.out);
        }
        self.forth.feed(&self.out);
        self.out.clear();
        let mut ran = Ran::More;
        while let Some(frame) = self.forth.frame()? {
            if let Received::Done { snapshot } = self.receiver.frame(&frame, &mut self.out, now)? {
                ran = Ran::Done { snapshot };
            }
        }
        self.back.feed(&self.out);
        while let Some(frame) = self.back.frame()? {
            self.sender.frame(&frame, now)?;
        }
        Ok(ran)
    }

    /// Moves at most so many frames.
    ///
    /// # Errors
    /// The transfer is over.
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

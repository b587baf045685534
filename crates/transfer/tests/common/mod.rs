//! A transfer over a pipe in memory, between engines on devices in memory.
#![allow(dead_code)]

mod volumes;

use std::sync::Arc;

use weir_transfer::pipe::{Pipe, Ran};
use weir_transfer::progress::{Progress, TransferError};
use weir_transfer::send::SendOptions;
use weir_volume::Volume;

pub use volumes::*;

/// Runs a whole transfer to its end, over a [`Pipe`].
pub fn transfer(
    from: &Arc<Volume>,
    base: Option<&str>,
    target: &str,
    to: &Arc<Volume>,
) -> Result<Progress, TransferError> {
    let mut pipe = Pipe::new(from, base, target, to, SendOptions::default(), 0)?;
    finish(&mut pipe)?;
    let (a, b) = (pipe.sender.progress(), pipe.receiver.progress());
    assert_eq!((a.logical, a.wire), (b.logical, b.wire));
    Ok(b)
}

/// Runs a transfer to its end.
pub fn finish(pipe: &mut Pipe) -> Result<u32, TransferError> {
    match pipe.run(usize::MAX, 0)? {
        Ran::Done { snapshot } => Ok(snapshot),
        Ran::More => unreachable!(),
    }
}

//! Transfer of one snapshot between two volumes.
//!
//! - [`send`] and [`receive`]: the two sides; [`progress`]: their phases, counters and errors;
//! - [`wire`]: frames; [`batch`]: records and blocks within a frame;
//! - [`session`]: messages by which two nodes agree on a transfer;
//! - [`pipe`]: both sides in one process.
//!
//! The caller passes in the time and moves the bytes.

pub mod batch;
pub mod pipe;
pub mod progress;
pub mod receive;
pub mod send;
pub mod session;
pub mod wire;

//! Requests as limits see them, and what they are charged.

use super::client::ClientKey;
use weir_base::VolumeId;
use weir_qos::{Direction, NodeId};

/// A request as limits see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The volume that it reads or writes.
    pub volume: VolumeId,
    /// The client to which it is charged.
    pub client: ClientKey,
    /// The number of its connection.
    pub flow: u64,
    /// Direction: it reads or writes.
    pub direction: Direction,
    /// Bytes of data that it is to move.
    pub bytes: u64,
}

/// Charge of a request, for giving it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub(super) volume: VolumeId,
    pub(super) domain: u64,
    pub(super) node: NodeId,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
}

impl Charge {
    /// Returns the volume that it was made for.
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }
}

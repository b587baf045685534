//! The container of all volumes: an aggregate is one device, one intent log and the trees on it.
//! Only this crate writes volume data.

pub mod aggregate;
pub mod block;
pub mod cache;
pub mod checkpoint;
pub mod device;
pub mod direct_write_batch;
#[cfg(test)]
mod document;
pub mod error;
pub mod features;
pub mod folder;
pub mod frame;
pub mod layout;
pub mod life;
pub mod log;
pub mod node;
pub mod space;
pub mod superblock;
pub mod task;
pub mod tree;
pub mod verify;

pub use aggregate::{Aggregate, AggregateDevices, Env, FolderLocation, Location, Replay};
pub use block::BlockPtr;
pub use cache::Cache;
pub use checkpoint::{CpWriter, Run};
pub use device::{Device, Discards, FileDevice, FileOptions, Io, MemDevice, Meter, Pace};
pub use direct_write_batch::DirectWriteBatcher;
pub use error::{IoError, IoKind, StoreError};
pub use frame::{Class, Frame, FrameMut, FramePool, Populator};
pub use life::RootPin;
pub use node::Key;
pub use space::{Physical, Space, Stream};
pub use superblock::Superblock;
pub use tree::{Edit, NodeSource, Pressure, Stop, TreeRoot, Value};

//! The reference model of a volume and the operations on it.

pub mod content;
mod errors;
pub mod op;
pub mod tree;

pub use content::{Content, PAGE};
pub use op::{
    CreateMode, Data, Errno, Errors, Guard, Kind, Name, Op, ROOT, Set, SetTo, Slot, Stable,
};
pub use tree::{Body, Expect, Model, Node, RootAttr, Rules, WriteAttr, listed_xattrs};

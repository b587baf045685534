//! Intended state: pools, volumes, service levels; the catalog that keeps it and the reconciler that makes the node match.

pub mod backend;
mod control;
pub mod levels;
pub mod model;
pub mod mutation;
pub mod name;
pub mod refusal;
pub mod rules;
mod stamp;
mod view;

pub use control::{Control, OpenError, Options};
pub use levels::Levels;
pub use model::*;
pub use mutation::*;
pub use name::{Collection, Name, Place, SnapshotName, SnapshotOf, Target};
pub use refusal::{Refusal, Status};
pub use stamp::Stamp;
pub use view::{PoolUse, View, Within};

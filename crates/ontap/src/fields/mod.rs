//! Fields of ONTAP's resources: one table for each resource, from which REST and the command line
//! are both rendered.
//!
//! A row says how a field is called in REST (`space.size`), as a column (`size`) and in `show
//! -instance` ("Volume Size"), how it is read, and how it is set at creation and by a change.
//! [`Value`] has the spellings of a value; [`Kind`] reads one that is given. A resource's draft
//! collects what a body or a line sets, and becomes the resource's [`crate::Change`].

/// A table of fields, a row each: in braces, where the form of rows is left alone.
macro_rules! rows {
    {$($rows:tt)*} => { &[$($rows)*] };
}
pub(crate) use rows;

pub mod aggregate;
pub mod export;
mod field;
pub mod identity;
pub mod interface;
pub mod job;
mod kind;
pub mod mirror_policy;
pub mod nfs;
pub mod node;
mod parameters;
pub mod peer;
pub mod qos;
pub mod qtree;
pub mod quota;
pub mod relationship;
pub mod schedule;
pub mod share;
pub mod snapshot;
pub mod snapshot_policy;
pub mod svm;
pub mod svm_peer;
pub mod transfer;
mod value;
pub mod volume;

pub use field::{Access, Field, FieldDescription, Read, Resource, Set, Table, is_only, read};
pub use kind::{Input, Kind};
pub(crate) use parameters::options;
pub use parameters::{Way, count, parameters};
pub use value::{Scalar, Value, pool_uuid};

/// All resources, by their paths in REST.
pub const ALL: &[&dyn Resource] = &[
    &identity::TABLE,
    &job::TABLE,
    &node::TABLE,
    &peer::TABLE,
    &schedule::TABLE,
    &interface::TABLE,
    &export::TABLE,
    &export::RULES,
    &share::TABLE,
    &nfs::TABLE,
    &mirror_policy::TABLE,
    &relationship::TABLE,
    &transfer::TABLE,
    &aggregate::TABLE,
    &qos::TABLE,
    &qtree::TABLE,
    &quota::REPORTS,
    &quota::TABLE,
    &snapshot_policy::TABLE,
    &snapshot_policy::SCHEDULES,
    &volume::TABLE,
    &snapshot::TABLE,
    &svm_peer::TABLE,
    &svm::TABLE,
];

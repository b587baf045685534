//! A client of Ceph RADOS: the calls that an aggregate on objects needs.
//!
//! [`Objects`] is the interface: atomic operations of several steps on one object, locks, and the
//! fence against another client. [`Pool`] implements it with Ceph's own client library, which is
//! loaded when a pool is first connected to; a build or a server without Ceph needs none of it.
//! A simulated cluster implements it for tests.
//!
//! Guarantees that are relied upon: an operation on one object is atomic and durable on all
//! replicas once it is complete; operations on different objects are independent; a read after a
//! completed write sees it.

mod cluster;
mod library;
mod objects;
mod pool;
mod window;

pub use cluster::{Cluster, Options};
pub use objects::{Comparison, Done, Holder, Objects, PoolSpace, Step};
pub use pool::{Bounds, Pool};

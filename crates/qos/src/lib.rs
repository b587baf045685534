//! Throughput as a resource: a hierarchical shaper, pure and deterministic under a clock that the
//! caller hands in.
//!
//! - [`meter`]: one rate limit as a virtual clock, exact to the nanosecond's fraction;
//! - [`limits`]: the limits of a node: bytes and operations a second, for reads, writes, both;
//!   minimum, weight, burst;
//! - [`shaper`]: a tree of such nodes (pool → volume → client), which releases requests at their
//!   time in a fair order;
//! - [`plan`]: the limits to be effective, as data;
//! - [`wheel`]: the timing wheel by which a core wakes the trees that have requests to release.
//!
//! Nothing here reads a clock, takes a lock or does I/O: instants are monotonic nanoseconds that
//! the caller hands in.

pub mod limits;
pub mod meter;
pub mod plan;
mod queue;
pub mod shaper;
pub mod wheel;

pub use limits::{DEFAULT_BURST, Direction, Limit, Limits, Metadata, Rate};
pub use meter::{Meter, Nanos};
pub use plan::{Change, Plan, PoolPlan, SharedPart, VolumePlan};
pub use shaper::{EvictedRequest, LEVELS, LimitDelays, NodeId, Shaper, SubmitOutcome, Usage};
pub use wheel::Wheel;

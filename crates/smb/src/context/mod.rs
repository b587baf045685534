//! The context that commands run in, and what they keep while they wait.

pub(crate) mod lock_wait;
pub(crate) mod run;
pub(crate) mod step;

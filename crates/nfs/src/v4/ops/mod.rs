//! Operations of a COMPOUND. Each runs in the context of [`super::cursor`], and does not depend on
//! the runner.

mod callback;
mod copy;
mod deleg;
mod dir;
mod lock;
mod lock_waiters;
mod name;
mod offload;
mod open;
mod read_write;
mod repeat;
mod session;
mod xattr;

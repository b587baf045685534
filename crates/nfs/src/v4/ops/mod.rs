//! The operations of a COMPOUND. Each runs in the context that [`super::cursor`] gives it, and
//! knows nothing of the runner.

mod blocked;
mod callback;
mod copy;
mod deleg;
mod dir;
mod lock;
mod name;
mod offload;
mod open;
mod read_write;
mod repeat;
mod session;
mod xattr;

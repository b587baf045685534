//! The operations of a COMPOUND. Each runs in the context that [`super::cursor`] gives it, and knows nothing of the runner.

mod blocked;
mod callback;
mod copy;
mod deleg;
mod dir;
mod file;
mod lock;
mod name;
mod offload;
mod open;
mod repeat;
mod session;
mod xattr;

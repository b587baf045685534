//! The process: log lines, signals, the service manager, and the process that ran before.

pub mod interrupt;
pub mod logging;
pub mod notify;
pub mod predecessor;

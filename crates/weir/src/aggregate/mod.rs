//! Place of an aggregate, its ownership, and the files that go with it.

pub mod kept_files;
pub mod log_device;
pub mod place;
pub mod rados;
pub mod standby;

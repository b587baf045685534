//! One node of the storage: its volumes as the control plane sees them, its files on the host, its
//! counters.
//!
//! - [`backend`]: volumes, exports and limits, as the control plane asks for them; [`exports`]: the
//!   default rules;
//! - [`snapshot_files`]: files of snapshots for the API; [`tree`]: access to a volume's files;
//! - [`metrics`], [`space_metrics`], [`device_metrics`], [`counters`], [`scrub_counters`]: figures;
//!   [`health`]: problems of the server as a whole;
//! - [`watch`], [`room`], [`fill`]: the files and the space of the host; [`data_folder`]: their
//!   protection;
//! - [`control_socket`], [`scrub`]: requests of commands to a running server;
//! - [`os`], [`port`], [`size`]: the operating system, its ports, sizes in words.

pub mod backend;
pub mod backups;
pub mod control_socket;
pub mod counters;
pub mod data_folder;
pub mod device_metrics;
pub mod exports;
pub mod fill;
pub mod health;
pub mod metrics;
pub mod os;
pub mod port;
pub mod qtrees;
pub mod room;
pub mod scrub;
pub mod scrub_counters;
pub mod size;
pub mod snapshot_files;
pub mod space_metrics;
pub mod tree;
pub mod watch;

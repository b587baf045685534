//! The HTTP surfaces: NetApp Volumes v1 and Filestore v1 over REST and gRPC, ONTAP's REST, metrics.
//!
//! Clients that exist (gcloud, Terraform, the client libraries) are the specification here. What
//! they send is read by tables of the public definitions ([`schema`]), and turned into the control
//! plane's model ([`netapp`], [`filestore`]). Responses have the shapes that they parse ([`lro`],
//! [`error`]).

pub mod active_directory;
mod admin;
mod app;
pub mod assertion;
pub mod backups;
mod benchmarks;
mod blocking;
mod body;
mod connections;
mod console;
pub mod error;
mod fields;
pub mod files;
pub mod filestore;
pub mod filter;
pub mod fleet;
mod gate;
pub mod grpc;
mod handlers;
pub mod json;
mod listen;
pub mod live;
mod logins;
pub mod lro;
pub mod mask;
mod metrics;
mod mount;
pub mod netapp;
mod ontap;
pub mod openapi;
pub mod page;
mod preview;
pub mod query;
mod quota_rules;
mod replications;
mod requests;
pub mod route;
pub mod schema;
mod service;
mod space;
mod state;
mod stream;
pub mod throughput;
mod tls;
mod verdict;
pub mod words;
mod work;

pub use app::router;
pub use benchmarks::Benchmarks;
pub use body::MAX_BODY;
pub use listen::{Access, ListenError, serve, serve_daemon};
pub use metrics::{Metrics, Pieces};
pub use mount::{Mounts, nfs_command};
pub use state::{AppState, Ends, Gate, Problem, Problems};
pub use tls::Tls;

//! The control plane within the server, its API, and the conditions that they show.

pub mod bucket;
pub mod certificate;
pub mod condition_words;
pub mod conditions;
pub mod daemon_view;
pub mod descriptions;
pub mod instances;
pub mod plane;
pub mod soft_limits;

//! Intended state: pools, volumes, service levels; the catalog that keeps it and the reconciler that makes the node match.

pub mod backend;

//! Reasons why a catalog is not served.

use crate::catalog::{Catalog, CatalogError};

/// Reason why the control plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The catalog's database could not be opened, read or written.
    #[error("cannot use the catalog {0}: {1}{hint}", hint = damage_hint(.1))]
    Catalog(String, CatalogError),
    /// The catalog needs a service level or tier that no levels file has.
    #[error(
        "{0} has service level {1}, which no levels file defines; start with the --service-levels file that it was made with"
    )]
    Level(String, String),
    /// The engine has volumes, and the catalog is empty.
    #[error(
        "opening catalog {catalog}: it is empty, but the aggregate has {count} volumes that a catalog has known: {volumes}. Nothing is \
         served and nothing was changed. If the catalog is elsewhere, name it with --catalog; if it was lost, put a copy \
         of it back, or make it anew from the engine's records with `weir catalog rebuild`"
    )]
    Lost {
        /// Address of the empty catalog.
        catalog: String,
        /// Number of such volumes in the engine.
        count: usize,
        /// Names of the first of them.
        volumes: String,
    },
    /// The catalog belongs to another aggregate.
    #[error(
        "opening catalog {catalog}: it belongs to aggregate {theirs}, and this is {ours}. Nothing is served and nothing was changed: \
         name the right one with --catalog, or put it back"
    )]
    Foreign {
        /// Address of the other aggregate's catalog.
        catalog: String,
        /// Identity of the aggregate that it belongs to.
        theirs: String,
        /// Identity of the engine's aggregate.
        ours: String,
    },
    /// The node could not be reconciled.
    #[error("bringing the volumes to what the catalog says: {0}")]
    Backend(String),
}

impl OpenError {
    pub(crate) fn from_catalog(catalog: &Catalog, error: CatalogError) -> OpenError {
        OpenError::Catalog(catalog.url().to_owned(), error)
    }
}

/// Returns advice for a damaged catalog.
fn damage_hint(error: &CatalogError) -> &'static str {
    match error.is_damage() {
        true => {
            ". Put a copy of it back, or make it anew from the engine's records with `weir catalog rebuild`"
        }
        false => "",
    }
}

//! The facade: reads from the view, changes through the catalog.

use crate::backend::Backend;
use crate::levels::Levels;
use crate::model::{Actor, Instance, Operation, Snapshot, Volume};
use crate::mutation::Mutation;
use crate::name::Name;
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_base::{Clock, Rng};

/// What [`Control::open`] needs.
pub struct Options {
    /// `sqlite:///path/catalog.db` or `postgres://…`.
    pub catalog: String,
    /// Service levels.
    pub levels: Levels,
    /// The node.
    pub backend: Arc<dyn Backend>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, fit for tokens.
    pub rng: Arc<dyn Rng>,
    /// Bytes that the device holds: the capacity of the pool that the first start makes.
    pub device_bytes: u64,
}

/// Why the control plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The catalog's database could not be opened, read or written.
    #[error("the catalog {0}: {1}")]
    Catalog(String, String),
    /// A newer program has written it.
    #[error(
        "the catalog {url} has version {found}; this program knows versions up to {known}. A newer Weir has written it: use that one, or a copy of the catalog from before"
    )]
    Newer {
        /// Which catalog.
        url: String,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// The node could not be made to match.
    #[error("bringing the volumes to what the catalog says: {0}")]
    Backend(String),
}

/// The control plane. Cheap to share; everything in it is safe to call from any thread.
pub struct Control {
    view: Arc<View>,
}

impl Control {
    /// Opens the catalog, finishes what a crash cut short, makes the node match and publishes what is to be served.
    /// When it returns, the data path may begin. Needs a tokio runtime, on which it goes on working in the background.
    pub async fn open(options: Options) -> Result<Arc<Control>, OpenError> {
        Ok(Arc::new(Control {
            view: Arc::new(View::empty(Arc::new(options.levels))),
        }))
    }

    /// Everything as it is intended now and written in the catalog. Never waits.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Checks a change against the rules, writes it into the catalog, and begins it. What is quick has ended when this
    /// returns ([`Operation::done`]); for the rest see [`Control::wait`]. A refusal has changed nothing.
    pub async fn submit(
        &self,
        mutation: Mutation,
        _actor: &Actor,
    ) -> Result<Arc<Operation>, Refusal> {
        let what = mutation.verb();
        Err(Refusal::new(
            Status::Unimplemented,
            "NOT_YET",
            format!("{what} of a {}", mutation.target().noun()),
        ))
    }

    /// What [`Control::submit`] would refuse, without doing anything (`validateOnly`).
    pub fn check(&self, _mutation: &Mutation, _actor: &Actor) -> Result<(), Refusal> {
        Ok(())
    }

    /// Waits until an operation has ended, or `limit` has passed: then it is returned as it is.
    pub async fn wait(&self, name: &Name, _limit: Duration) -> Result<Arc<Operation>, Refusal> {
        self.operation(name)
    }

    /// An operation.
    pub fn operation(&self, name: &Name) -> Result<Arc<Operation>, Refusal> {
        self.view.operation(name).cloned().ok_or_else(|| {
            let name = name.full(crate::name::Collection::Operations);
            Refusal::new(Status::NotFound, "NOT_FOUND", format!("there is no {name}"))
        })
    }

    /// Forgets an operation that has ended.
    pub async fn delete_operation(&self, name: &Name, _actor: &Actor) -> Result<(), Refusal> {
        self.operation(name).map(|_| ())
    }

    /// Who holds this token. `UNAUTHENTICATED` if nobody, or if it was revoked. Looks into the catalog each time, since
    /// another process may have changed it.
    pub async fn authenticate(
        &self,
        _token: &str,
        _from: Option<IpAddr>,
    ) -> Result<Actor, Refusal> {
        Err(Refusal::new(
            Status::Unauthenticated,
            "TOKEN_UNKNOWN",
            "this token is not known",
        ))
    }

    /// Whether any token counts at all (a non-loopback listener needs one).
    pub async fn has_tokens(&self) -> Result<bool, Refusal> {
        Ok(false)
    }

    /// Bytes that a volume's data holds, as of a second ago at most.
    pub async fn volume_used(&self, _volume: &Volume) -> u64 {
        0
    }

    /// The same of an instance.
    pub async fn instance_used(&self, _instance: &Instance) -> u64 {
        0
    }

    /// Bytes that only this snapshot holds, as of a second ago at most.
    pub async fn snapshot_used(&self, _snapshot: &Snapshot) -> u64 {
        0
    }

    /// Ends the work in the background and closes the catalog. Operations not yet done go on with the next start.
    pub async fn close(&self) {}
}

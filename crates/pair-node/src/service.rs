//! Service of clients by the node that serves: the server's parts, the addresses that move, and how
//! it ends.

use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_control::Control;
use weir_node::counters::Counters;

use crate::address::{Address, Addresses};
use crate::clients::{Connections, KnownConnections};
use crate::traffic::Traffic;

/// Parts of the server that exist once it serves clients.
pub struct ServiceParts {
    /// The control plane.
    pub control: Arc<Control>,
    /// Connections of clients.
    pub connections: Arc<dyn Connections>,
    /// Counters of the data path.
    pub counters: Counters,
}

/// State of the way to the witness.
#[derive(Clone, Debug, Default)]
pub struct WitnessContact {
    /// Time of its last reply, on the monotonic clock.
    pub at: Option<Duration>,
    /// Reason why it did not reply to the last question.
    pub fault: Option<String>,
}

/// Service of clients.
pub struct Service {
    /// Set when this node begins to serve, once in a process.
    serving: OnceLock<ServiceParts>,
    /// Addresses that move with the pair.
    addresses: Addresses,
    /// Program that is run when this node begins and ceases to serve.
    hook: Option<std::path::PathBuf>,
    /// Connections of the partner's clients, while that serves.
    clients: KnownConnections,
    /// Bytes sent for the bytes that clients write.
    traffic: Traffic,
    /// Time at which a node that ends stops waiting for its partner, by the clock.
    deadline: OnceLock<Duration>,
    /// Notified when a user has the other side serve.
    switch: Notify,
    /// Last reply of the witness, or why there was none.
    heard: Mutex<WitnessContact>,
}

impl Service {
    /// Begins with a node that does not serve.
    ///
    /// # Errors
    /// The addresses cannot be managed.
    pub fn new(addresses: Vec<Address>, hook: Option<std::path::PathBuf>) -> Result<Service> {
        Ok(Service {
            serving: OnceLock::new(),
            // Before anything that a primary which was killed has left could be taken for this
            // node's.
            addresses: Addresses::open(addresses)?,
            hook,
            clients: KnownConnections::default(),
            traffic: Traffic::default(),
            deadline: OnceLock::new(),
            switch: Notify::new(),
            heard: Mutex::default(),
        })
    }

    /// Begins to serve; only the first call counts.
    pub fn begin(&self, serving: ServiceParts) {
        let _ = self.serving.set(serving);
    }

    /// Returns the parts of the server, once it serves.
    pub fn serving(&self) -> Option<&ServiceParts> {
        self.serving.get()
    }

    /// Returns what was heard of the witness.
    pub fn heard(&self) -> &Mutex<WitnessContact> {
        &self.heard
    }

    /// Returns the addresses that move with the pair.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the connections of the partner's clients.
    pub fn clients(&self) -> &KnownConnections {
        &self.clients
    }

    /// Returns the counters of bytes sent to the partner.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the number of bytes that clients have written since this node serves.
    pub fn bytes_written(&self) -> u64 {
        let serving = self.serving.get();
        serving.map_or(0, |serving| serving.counters.bytes_written())
    }

    /// Removes the addresses, and waits for the partner only until `deadline`; the first deadline
    /// counts.
    pub fn end(&self, deadline: Duration) {
        self.addresses.end();
        let _ = self.deadline.set(deadline);
    }

    /// Returns true if a node that ends has waited for its partner for long enough.
    pub fn has_ended(&self, now: Duration) -> bool {
        self.deadline.get().is_some_and(|deadline| now >= *deadline)
    }

    /// Asks for the other side to serve.
    pub fn switch(&self) {
        self.switch.notify_one();
    }

    /// Waits until a user has the other side serve.
    pub async fn switched(&self) {
        self.switch.notified().await;
    }

    /// Runs the hook with `word`: `add` when this node begins to serve, `remove` when it ceases to.
    pub fn run_hook(&self, word: &str) {
        let Some(program) = &self.hook else {
            return;
        };
        match Command::new(program).arg(word).status() {
            Ok(status) if status.success() => {}
            Ok(status) => tracing::error!("{} {word}: {status}", program.display()),
            Err(error) => tracing::error!("{} {word}: {error}", program.display()),
        }
    }
}

//! Access for tests of the crates above.

use std::sync::Arc;

use parking_lot::MutexGuard;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use weir_base::{Clock, Rng};
use weir_control::{Control, Volume};
use weir_node::counters::Counters;
use weir_relations::manager::{Done, Failure, Job, Now, Relations, Step, Take, VerbRefusal};
use weir_transfer::pipe::Forger;
use weir_volume::Engine;

use crate::job;
use crate::state::Replication;

impl Replication {
    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the control plane.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the control plane's runtime.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the source of random numbers.
    pub fn rng(&self) -> &Arc<dyn Rng> {
        &self.rng
    }

    /// Returns the counters of the data path.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the time of rules.
    pub fn time(&self) -> Now {
        self.current_time()
    }

    /// Returns the rows.
    pub fn relations(&self) -> Relations {
        self.rows()
    }

    /// Returns a volume of this node.
    ///
    /// # Errors
    /// See [`weir_control::rules::replication::local_volume`].
    pub fn local_volume(&self, vserver: &str, volume: &str) -> Result<Arc<Volume>, VerbRefusal> {
        self.local(vserver, volume)
    }

    /// Returns what happens to frames that come in, locked.
    pub fn forger(&self) -> MutexGuard<'_, Forger> {
        self.forger.lock()
    }

    /// Lets all offers of pairing expire.
    pub fn expire_offers(&self) {
        self.offers.expire();
    }

    /// Returns the TLS settings for connections of peers.
    pub fn tls_server(&self) -> Arc<ServerConfig> {
        self.peers
            .server()
            .unwrap_or_else(|_| unreachable!("the certificate has its key"))
    }

    /// Returns the TLS settings for nodes that join.
    pub fn tls_offering(&self) -> Arc<ServerConfig> {
        self.peers
            .offering()
            .unwrap_or_else(|_| unreachable!("the certificate has its key"))
    }

    /// Returns the TLS settings for joining a node.
    pub fn tls_joining(&self) -> Arc<ClientConfig> {
        self.peers
            .joining()
            .unwrap_or_else(|_| unreachable!("the certificate has its key"))
    }

    /// Takes a scheduled snapshot of a copy.
    pub fn take_scheduled(&self, take: &Take) {
        self.take(take);
    }

    /// Writes into the rows what has happened.
    pub fn record(&self, step: Step) {
        self.happened(step);
    }

    /// Makes the catalog's list of a volume's snapshots what the engine has.
    pub async fn adopt_snapshots(&self, key: &str) {
        self.adopt(key).await;
    }

    /// Aborts a transfer.
    pub fn abort_job(&self, id: u64) -> bool {
        let jobs = self.jobs.lock();
        jobs.get(&id).is_some_and(|job| {
            job.send_replace(true);
            true
        })
    }

    /// Returns the number of transfers that run.
    pub fn jobs(&self) -> usize {
        self.jobs.lock().len()
    }

    /// Runs a transfer on this thread.
    ///
    /// # Errors
    /// The transfer's.
    pub fn run_job(
        self: &Arc<Self>,
        job: &Job,
        aborted: watch::Receiver<bool>,
    ) -> Result<Done, Failure> {
        job::run(self, job, aborted)
    }
}

//! Tests of the whole control plane, on a simulated node.

mod agreement;
mod catalog_loss;
pub mod crash;
mod domains;
mod faults;
mod flows;
mod limits;
mod many;
mod moves;
mod paths;
mod policies;
mod postgres;
mod quotas;
mod random;
mod refusals;
mod replication;
mod schedules;
mod space;
mod trees;

use crate::sim::SimBackend;
use crate::{
    Actor, Control, Levels, LocationName, Mutation, Name, NewPool, NewVolume, Operation, Options,
    Outcome, PooledSettings, Presentation, Protocol, QosType, Refusal, VolumeName,
};
use std::path::Path;
use std::sync::Arc;
use weir_base::network::AddressBlock;
use weir_base::{SeededRng, SystemClock};

/// A control plane on a node, with a catalog in a temporary folder.
pub struct Bench {
    pub control: Arc<Control>,
    pub node: SimBackend,
    pub url: String,
    _folder: Option<tempfile::TempDir>,
}

pub fn url_in(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("catalog.db").display())
}

pub async fn open(
    url: &str,
    node: &SimBackend,
    seed: u64,
) -> Result<Arc<Control>, crate::OpenError> {
    open_with(url, node, seed, None).await
}

async fn open_with(
    url: &str,
    node: &SimBackend,
    seed: u64,
    instance_addresses: Option<AddressBlock>,
) -> Result<Arc<Control>, crate::OpenError> {
    Control::open(Options {
        catalog: url.to_owned(),
        levels: Levels::built_in().unwrap(),
        instance_addresses,
        backend: Arc::new(node.clone()),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SeededRng::new(seed)),
        device_bytes: 100 << 30,
        copy: None,
        first_place: crate::LocationName::local(),
    })
    .await
}

impl Bench {
    pub async fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let url = url_in(folder.path());
        let node = SimBackend::new();
        Bench {
            control: open(&url, &node, 1).await.unwrap(),
            node,
            url,
            _folder: Some(folder),
        }
    }

    /// Shuts it down, and starts it again.
    pub async fn restart(&mut self, seed: u64) {
        self.restart_with(seed, None).await;
    }

    /// Shuts it down, and starts it again with addresses for instances.
    pub async fn restart_with(&mut self, seed: u64, addresses: Option<AddressBlock>) {
        self.control.close().await;
        self.node.revive();
        let opened = open_with(&self.url, &self.node, seed, addresses).await;
        self.control = opened.unwrap();
    }

    /// Shuts it down, loses its catalog, rebuilds that, and starts it again.
    pub async fn rebuild(&mut self, seed: u64) {
        self.control.close().await;
        self.node.revive();
        catalog_loss::remove(&self.url);
        let options = catalog_loss::options(&self.url, &self.node, seed);
        Control::rebuild(options).await.unwrap();
        self.restart(seed).await;
    }

    pub async fn submit(&self, mutation: Mutation) -> Result<Arc<Operation>, Refusal> {
        self.control.submit(mutation, &Actor::local()).await
    }

    pub async fn done(&self, mutation: Mutation) {
        let operation = self.submit(mutation.clone()).await;
        let operation = operation.unwrap_or_else(|e| panic!("{mutation:?}: {e}"));
        match &operation.outcome {
            Some(Outcome::Done | Outcome::Deleted) => {}
            other => panic!("{mutation:?}: {other:?}"),
        }
    }

    pub async fn refused(&self, mutation: Mutation) -> Refusal {
        match self.submit(mutation.clone()).await {
            Err(refusal) => refusal,
            Ok(operation) => panic!("{mutation:?} was accepted: {operation:?}"),
        }
    }
}

pub fn place() -> LocationName {
    LocationName::new("p1", "us-central1")
}

pub fn name(id: &str) -> Name {
    place().name(id)
}

pub fn vol(id: &str) -> VolumeName {
    place().volume(id)
}

pub fn inst(id: &str) -> VolumeName {
    place().instance(id)
}

pub fn pool(id: &str, level: &str, gib: u64, qos: QosType) -> Mutation {
    let new = NewPool {
        service_level: level.to_owned(),
        capacity_gib: gib,
        qos_type: Some(qos),
        ..NewPool::default()
    };
    Mutation::CreatePool(name(id), new)
}

pub fn new_volume(id: &str, pool: &str, gib: u64) -> NewVolume {
    NewVolume {
        presentation: Presentation::in_pool(pool),
        share_name: format!("share-{id}"),
        capacity_gib: gib,
        protocols: vec![Protocol::Nfsv3],
        ..NewVolume::default()
    }
}

/// Returns a volume with assigned MiB/s of its pool.
pub fn given(mibps: f64, mut new: NewVolume) -> NewVolume {
    pooled(&mut new).throughput_mibps = Some(mibps);
    new
}

pub fn pooled(new: &mut NewVolume) -> &mut PooledSettings {
    match &mut new.presentation {
        Presentation::Netapp(pooled) => pooled,
        Presentation::Filestore(tiered) => panic!("{tiered:?}"),
    }
}

pub fn volume(id: &str, pool: &str, gib: u64) -> Mutation {
    Mutation::CreateVolume(vol(id), new_volume(id, pool, gib))
}

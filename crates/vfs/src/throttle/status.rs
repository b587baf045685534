//! What limits do now, for users to see.

use super::{Entry, Pool, Throttle};
use crate::session::ClientKey;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Limit, Limits, Usage};

/// Where a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The pool's, which its volumes share.
    Pool,
    /// The volume's, which its clients share.
    Volume,
    /// That of each client.
    Client,
}

impl Level {
    /// Its name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Level::Pool => "pool",
            Level::Volume => "volume",
            Level::Client => "client",
        }
    }
}

/// The limit that holds requests back now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The level at which it is set.
    pub level: Level,
    /// Which of the level's limits it is.
    pub limit: Limit,
}

/// A pool's limits and what they have let through.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The pool's id in the plan.
    pub id: u64,
    /// As its users call it.
    pub name: Arc<str>,
    /// The limits in force.
    pub limits: Limits,
    /// Where they come from.
    pub source: Arc<str>,
    /// Sums since the pool came under limits.
    pub usage: Usage,
}

/// A volume's limits and what they have let through.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// The engine's number of the volume.
    pub volume: VolumeId,
    /// As its users call it.
    pub name: Arc<str>,
    /// The pool's id in the plan.
    pub pool: u64,
    /// In force for the volume.
    pub limits: Limits,
    /// In force for each client.
    pub client_limits: Limits,
    /// Where they come from.
    pub source: Arc<str>,
    /// Sums since the volume came under limits.
    pub usage: Usage,
    /// What holds its requests back now, if any wait.
    pub binding: Option<Binding>,
    /// Its clients, by address; empty unless they were asked for.
    pub clients: Vec<ClientStatus>,
}

/// A client on a volume.
#[derive(Clone, Copy, Debug)]
pub struct ClientStatus {
    /// The client; [`ClientKey::OTHERS`] for all beyond those that are counted one by one.
    pub client: ClientKey,
    /// Sums since the client was last new.
    pub usage: Usage,
}

impl Throttle {
    /// The status of all pools, with sums as of now.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let table = self.table.load();
        let now = self.now();
        let status = |pool: &Arc<Pool>| {
            let mut state = pool.domain.lock();
            state.count_leases(now);
            let usage = state.shaper.usage(state.shaper.root(), now);
            PoolStatus {
                id: pool.plan.id,
                name: Arc::clone(&pool.plan.name),
                limits: pool.plan.limits,
                source: Arc::clone(&pool.plan.source),
                usage: usage.unwrap_or_default(),
            }
        };
        let mut all: Vec<PoolStatus> = table.pools.iter().map(|(_, pool)| status(pool)).collect();
        all.sort_unstable_by_key(|pool| pool.id);
        all
    }

    /// All volumes that the plan names, with their clients.
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        let table = self.table.load();
        let each = table
            .volumes
            .iter()
            .map(|(number, entry)| self.describe(VolumeId(number), entry, true));
        let mut all: Vec<VolumeStatus> = each.collect();
        all.sort_unstable_by_key(|volume| volume.volume);
        all
    }

    /// What limits a volume now; `None` if the plan does not name it.
    pub fn status(&self, volume: VolumeId) -> Option<VolumeStatus> {
        let table = self.table.load();
        let entry = table.volume(volume)?;
        Some(self.describe(volume, entry, true))
    }

    /// What a plan's number was last applied.
    pub fn generation(&self) -> u64 {
        self.table.load().generation
    }

    fn describe(&self, volume: VolumeId, entry: &Entry, with_clients: bool) -> VolumeStatus {
        let now = self.now();
        let mut state = entry.domain.lock();
        state.count_leases(now);
        let node = state
            .volumes
            .get(entry.slot)
            .and_then(Option::as_ref)
            .map(|volume| volume.node);
        let usage = node
            .and_then(|node| state.shaper.usage(node, now))
            .unwrap_or_default();
        let clients = state.clients(entry.slot, now);
        let pool = state.shaper.usage(state.shaper.root(), now);
        let at = |level, limit: Option<Limit>| limit.map(|limit| Binding { level, limit });
        let binding = match usage.waiting() {
            0 => None,
            _ => at(Level::Volume, usage.binding)
                .or_else(|| {
                    let clients = clients.iter().map(|(_, usage)| usage.binding);
                    at(Level::Client, clients.flatten().next())
                })
                .or_else(|| at(Level::Pool, pool.and_then(|usage| usage.binding))),
        };
        drop(state);
        let clients = clients
            .into_iter()
            .filter(|_| with_clients)
            .map(|(client, usage)| ClientStatus { client, usage });
        VolumeStatus {
            volume,
            name: Arc::clone(&entry.plan.name),
            pool: entry.plan.pool,
            limits: entry.plan.limits,
            client_limits: entry.plan.client,
            source: Arc::clone(&entry.plan.source),
            usage,
            binding,
            clients: clients.collect(),
        }
    }
}

//! State of the limits now, for users to see.

use super::Throttle;
use super::client::ClientKey;
use super::entry::{Entry, Pool};
use super::shared_limits::SharedStatus;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Limit, LimitDelays, Limits, Nanos, SharedPart, Usage};

/// Maximum time since a limit held requests back for which it is said to bind: a second, in
/// nanoseconds.
const OF_LATE: Nanos = 1_000_000_000;

/// Level of the tree at which a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The pool's, which its volumes share.
    Pool,
    /// The volume's, which its clients share.
    Volume,
    /// The limit of each client.
    Client,
}

impl Level {
    /// All levels, from the root of a pool's tree.
    pub const ALL: [Level; 3] = [Level::Pool, Level::Volume, Level::Client];

    /// Returns its name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Level::Pool => "pool",
            Level::Volume => "volume",
            Level::Client => "client",
        }
    }
}

/// The limit that held requests back last, within the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The level at which it is set.
    pub level: Level,
    /// The limit among the level's limits.
    pub limit: Limit,
}

/// A pool's limits and what they have let through.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The pool's id in the plan.
    pub id: u64,
    /// Name that its users give it.
    pub name: Arc<str>,
    /// The limits in force.
    pub limits: Limits,
    /// Origin of the limits.
    pub source: Arc<str>,
    /// Sums since the pool came under limits.
    pub usage: Usage,
    /// Time for which limits held its requests back, if any did.
    pub bound: Option<Box<LimitDelays>>,
}

/// A volume's limits and what they have let through.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// The engine's number of the volume.
    pub volume: VolumeId,
    /// Name that its users give it.
    pub name: Arc<str>,
    /// The pool's id in the plan.
    pub pool: u64,
    /// The limits in force for the volume.
    pub limits: Limits,
    /// The limits in force for each client.
    pub client_limits: Limits,
    /// Origin of the limits.
    pub source: Arc<str>,
    /// Sums since the volume came under limits.
    pub usage: Usage,
    /// Time for which limits held its requests back, if any did.
    pub bound: Option<Box<LimitDelays>>,
    /// The limit that held its requests back in the last second.
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
    /// Returns the status of all pools, with sums as of now.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let table = self.table.load();
        let now = self.current_time();
        let status = |pool: &Arc<Pool>| {
            let mut state = pool.domain.lock();
            state.count_leases(now);
            let root = state.shaper.root();
            PoolStatus {
                id: pool.plan.id,
                name: Arc::clone(&pool.plan.name),
                limits: pool.plan.limits,
                source: Arc::clone(&pool.plan.source),
                usage: state.shaper.usage(root).unwrap_or_default(),
                bound: state.shaper.bound(root, now).copied().map(Box::new),
            }
        };
        let mut all: Vec<PoolStatus> = table.pools.iter().map(|(_, pool)| status(pool)).collect();
        all.sort_unstable_by_key(|pool| pool.id);
        all
    }

    /// Returns all volumes that the plan names, with their clients.
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        let mut all = Vec::new();
        self.each_volume(true, &mut |status| all.push(status));
        all.sort_unstable_by_key(|volume| volume.volume);
        all
    }

    /// Visits all volumes that the plan names, one after the other and in no order: there may be
    /// very many.
    pub fn each_volume(&self, with_clients: bool, visit: &mut dyn FnMut(VolumeStatus)) {
        let table = self.table.load_full();
        for (number, entry) in table.volumes.iter() {
            visit(self.describe(VolumeId(number), entry, with_clients));
        }
    }

    /// Returns the limits of a volume and their state now; `None` if the plan does not name it.
    pub fn status(&self, volume: VolumeId) -> Option<VolumeStatus> {
        let table = self.table.load();
        let entry = table.volume(volume)?;
        Some(self.describe(volume, entry, true))
    }

    /// Returns the status of a volume without its clients; `None` if the plan does not name it.
    pub fn status_alone(&self, volume: VolumeId) -> Option<VolumeStatus> {
        let table = self.table.load();
        let entry = table.volume(volume)?;
        Some(self.describe(volume, entry, false))
    }

    /// Returns the shared limits of which this server has a part.
    pub fn shared(&self) -> Vec<SharedStatus> {
        let provisioned = self.applying.lock();
        let volumes = provisioned.volumes();
        let mut all: Vec<SharedStatus> = volumes
            .filter_map(|(part, provisioned, volume)| {
                let status = self.status(VolumeId(volume))?;
                let clients = status.clients.iter();
                let waiting = clients.filter(|one| one.usage.waiting() > 0).count();
                Some(SharedStatus {
                    part,
                    provisioned,
                    bytes: status.usage.bytes.iter().sum(),
                    waits: status.binding.is_some_and(is_of_share),
                    // Saturates: a weight.
                    waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
                })
            })
            .collect();
        all.extend(provisioned.pools().filter_map(|of| self.shared_pool(of)));
        all.sort_unstable_by_key(|one| one.part.limit);
        all
    }

    /// Returns the state of a pool with a part in a limit.
    fn shared_pool(&self, (part, provisioned, id): (SharedPart, u64, u64)) -> Option<SharedStatus> {
        let table = self.table.load();
        let pool = table.pools.get(id)?;
        let now = self.current_time();
        let mut state = pool.domain.lock();
        state.count_leases(now);
        let root = state.shaper.root();
        let binding = state.shaper.bound(root, now);
        let binding = binding.and_then(|bound| binding_of(bound, now));
        let shaper = &state.shaper;
        let volumes = state.volumes.iter().flatten().filter(|volume| {
            let usage = shaper.usage(volume.node);
            usage.is_some_and(|usage| usage.waiting() > 0)
        });
        let weights = volumes.filter_map(|volume| Some(shaper.limits(volume.node)?.weight));
        Some(SharedStatus {
            part,
            provisioned,
            bytes: shaper.usage(root)?.bytes.iter().sum(),
            waits: binding.is_some_and(|b| b.level == Level::Pool && is_of_share(b)),
            // Saturates: a weight.
            waiting: weights.fold(0, u32::saturating_add),
        })
    }

    /// Returns the name of a volume, and the id of its pool; `None` if the plan does not name it.
    pub fn name(&self, volume: VolumeId) -> Option<(Arc<str>, u64)> {
        let table = self.table.load();
        let plan = &table.volume(volume)?.plan;
        Some((Arc::clone(&plan.name), plan.pool))
    }

    /// Returns the volumes that the plan names, in order.
    pub fn numbers(&self) -> Vec<VolumeId> {
        let table = self.table.load();
        let mut all: Vec<_> = table.volumes.iter().map(|(id, _)| VolumeId(id)).collect();
        all.sort_unstable();
        all
    }

    /// Returns the number of the plan that was applied last.
    pub fn generation(&self) -> u64 {
        self.table.load().generation
    }

    fn describe(&self, volume: VolumeId, entry: &Entry, with_clients: bool) -> VolumeStatus {
        let now = self.current_time();
        let mut state = entry.domain.lock();
        state.count_leases(now);
        let node = state
            .volumes
            .get(entry.slot)
            .and_then(Option::as_ref)
            .map(|volume| volume.node);
        let usage = node.and_then(|node| state.shaper.usage(node));
        let bound = node.and_then(|node| state.shaper.bound(node, now).copied());
        let binding = bound.as_ref().and_then(|bound| binding_of(bound, now));
        let clients = match with_clients {
            true => state.clients(entry.slot),
            false => Vec::new(),
        };
        drop(state);
        let clients = clients
            .into_iter()
            .map(|(client, usage)| ClientStatus { client, usage });
        VolumeStatus {
            volume,
            name: Arc::clone(&entry.plan.name),
            pool: entry.plan.pool,
            limits: entry.plan.limits,
            client_limits: entry.plan.client,
            source: Arc::clone(&entry.plan.source),
            usage: usage.unwrap_or_default(),
            bound: bound.map(Box::new),
            binding,
            clients: clients.collect(),
        }
    }
}

/// Returns true for a limit that a share is: the volume's, or the pool's that follows it.
fn is_of_share(binding: Binding) -> bool {
    binding.limit == Limit::TotalBytes && binding.level != Level::Client
}

/// Returns the limit that held something back last, within the last second.
fn binding_of(bound: &LimitDelays, now: Nanos) -> Option<Binding> {
    let (level, limit) = bound.latest(now, OF_LATE)?;
    let level = *Level::ALL.get(level)?;
    Some(Binding { level, limit })
}

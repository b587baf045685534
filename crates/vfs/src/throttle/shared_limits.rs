//! Limits of which this server has a part, while other servers of a cluster have the rest.
//!
//! A plan has an equal part as the limit. In force is the *share* instead, which the cluster's
//! daemon sets online (`Throttle::set_share`). The pool's limit follows: it grows by what a
//! volume has beyond its part, and shrinks by what the volume has given away. Until a share is
//! known, the least one is in force.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use weir_base::limits::cluster::SHARE_FLOOR;
use weir_qos::{Change, Limits, PoolPlan, SharedPart, VolumePlan};

/// A shared limit at this server: its provisioned part, and the demand for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedStatus {
    /// The part.
    pub part: SharedPart,
    /// Bytes a second of an equal part.
    pub provisioned: u64,
    /// Bytes charged since the limit is in force.
    pub bytes: u64,
    /// True if requests waited for the share within the last second.
    pub waits: bool,
    /// Weight of what waits now: the number of a volume's clients, or the sum of the weights of a
    /// pool's volumes.
    pub waiting: u32,
}

/// Plans with shared limits as they were provisioned, and the shares in force.
#[derive(Default)]
pub(super) struct Provisioned {
    pools: BTreeMap<u64, PoolPlan>,
    /// Volumes that have a part in a limit, by number.
    volumes: BTreeMap<u64, VolumePlan>,
    /// Bytes a second, by limit.
    shares: BTreeMap<u64, u64>,
}

/// Returns the limit that a share replaces.
fn part_of(limits: &Limits, shared: Option<SharedPart>) -> Option<(SharedPart, u64)> {
    shared.zip(limits.total.bytes)
}

impl Provisioned {
    /// Notes a change of plans. Returns it with the shares in place of equal parts.
    pub(super) fn effective<'c>(&mut self, change: &'c Change) -> Cow<'c, Change> {
        if change.whole {
            self.pools.clear();
            self.volumes.clear();
        }
        let mut touched = BTreeSet::new();
        for id in &change.pools_gone {
            self.pools.remove(id);
        }
        for plan in &change.pools {
            self.pools.insert(plan.id, plan.clone());
            touched.insert(plan.id);
        }
        let replaced = change.volumes.iter().map(|plan| plan.volume);
        for number in change.volumes_gone.iter().copied().chain(replaced) {
            let gone = self.volumes.remove(&number);
            touched.extend(gone.map(|plan| plan.pool));
        }
        for plan in &change.volumes {
            if part_of(&plan.limits, plan.shared).is_some() {
                self.volumes.insert(plan.volume, plan.clone());
                touched.insert(plan.pool);
            }
        }
        let shared = self.pools.values().any(|pool| pool.shared.is_some());
        if self.volumes.is_empty() && !shared && change.pools.len() == touched.len() {
            self.shares.clear();
            return Cow::Borrowed(change);
        }
        let here: BTreeSet<u64> = self.parts().map(|(part, _)| part.limit).collect();
        self.shares.retain(|limit, _| here.contains(limit));
        Cow::Owned(Change {
            pools: self.pools_in_force(&touched),
            volumes: change.volumes.iter().map(|p| self.volume(p)).collect(),
            ..change.clone()
        })
    }

    /// Sets a share. Returns the change of plans, if there is one.
    pub(super) fn set(&mut self, limit: u64, rate: u64, generation: u64) -> Option<Change> {
        if !self.parts().any(|(part, _)| part.limit == limit)
            || self.shares.insert(limit, rate) == Some(rate)
        {
            return None;
        }
        let is = |shared: Option<SharedPart>| shared.is_some_and(|part| part.limit == limit);
        let volumes = self.volumes.values().filter(|plan| is(plan.shared));
        let pools = self.pools.values().filter(|plan| is(plan.shared));
        let touched = volumes.clone().map(|plan| plan.pool);
        let touched = touched.chain(pools.map(|plan| plan.id)).collect();
        Some(Change {
            generation,
            pools: self.pools_in_force(&touched),
            volumes: volumes.map(|plan| self.volume(plan)).collect(),
            ..Change::default()
        })
    }

    /// Returns the volumes with a part in a limit: part, bytes a second of an equal part, number.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (SharedPart, u64, u64)> {
        let volumes = self.volumes.values();
        volumes.filter_map(|plan| {
            let (part, provisioned) = part_of(&plan.limits, plan.shared)?;
            Some((part, provisioned, plan.volume))
        })
    }

    /// Returns the pools with a part in a limit: part, bytes a second of an equal part, id.
    pub(super) fn pools(&self) -> impl Iterator<Item = (SharedPart, u64, u64)> {
        let pools = self.pools.values();
        pools.filter_map(|plan| {
            let (part, provisioned) = part_of(&plan.limits, plan.shared)?;
            Some((part, provisioned, plan.id))
        })
    }

    /// Returns the parts that this server has, each with the bytes a second of an equal part.
    fn parts(&self) -> impl Iterator<Item = (SharedPart, u64)> {
        let volumes = self.volumes.values();
        let volumes = volumes.filter_map(|plan| part_of(&plan.limits, plan.shared));
        let pools = self.pools.values();
        volumes.chain(pools.filter_map(|plan| part_of(&plan.limits, plan.shared)))
    }

    /// Returns the share in force of a part.
    fn share(&self, (part, provisioned): (SharedPart, u64)) -> u64 {
        let share = self.shares.get(&part.limit);
        share.copied().unwrap_or(provisioned / SHARE_FLOOR)
    }

    fn pools_in_force(&self, ids: &BTreeSet<u64>) -> Vec<PoolPlan> {
        let pools = ids.iter().filter_map(|id| self.pools.get(id));
        pools.map(|plan| self.pool(plan)).collect()
    }

    fn volume(&self, plan: &VolumePlan) -> VolumePlan {
        let mut plan = plan.clone();
        if let Some(part) = part_of(&plan.limits, plan.shared) {
            plan.limits.total.bytes = Some(self.share(part));
        }
        plan
    }

    fn pool(&self, plan: &PoolPlan) -> PoolPlan {
        let mut plan = plan.clone();
        let own = part_of(&plan.limits, plan.shared).map(|part| self.share(part));
        if let Some(bytes) = own.or(plan.limits.total.bytes) {
            let below = self
                .volumes
                .values()
                .filter(|volume| volume.pool == plan.id);
            let parts = below.filter_map(|volume| part_of(&volume.limits, volume.shared));
            // Saturates: shares may be more than the pool has.
            let moved = parts.fold(bytes, |bytes, part| {
                bytes
                    .saturating_add(self.share(part))
                    .saturating_sub(part.1)
            });
            plan.limits.total.bytes = Some(moved.max(1));
        }
        plan
    }
}

//! The next table of limits, as far as it is different from the last.

use super::domain::Domain;
use super::entry::{Entry, Pool};
use super::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Limits, Nanos, PoolPlan, VolumePlan};

/// Next table, as far as it is different from the last.
pub(super) struct Next<'t> {
    pub(super) old: &'t Table,
    pub(super) now: Nanos,
    pub(super) pools: BTreeMap<u64, Option<Arc<Pool>>>,
    pub(super) volumes: BTreeMap<u64, Option<Arc<Entry>>>,
    /// Pools in which something may start that could not before.
    pub(super) touched: BTreeSet<u64>,
}

impl Next<'_> {
    pub(super) fn put_pool(&mut self, plan: &PoolPlan) -> Arc<Pool> {
        let old = self.old;
        let was = old.pools.get(plan.id);
        let is = merge_pool(was, plan, self.now, &mut self.touched);
        self.pools.insert(plan.id, Some(Arc::clone(&is)));
        let matters = |limits: &Limits| (limits.is_limited(), limits.total.ops.is_some());
        if was.is_some_and(|was| matters(&was.plan.limits) != matters(&plan.limits)) {
            let state = is.domain.lock();
            let ids: Vec<VolumeId> = state.volumes.iter().flatten().map(|v| v.id).collect();
            drop(state);
            for id in ids {
                let entry = old.volume(id).map(|entry| entry.plan.clone());
                // Those that are to go stay gone.
                if let Some(plan) = entry.filter(|_| !self.volumes.contains_key(&id.0)) {
                    self.put_volume(&plan);
                }
            }
        }
        is
    }

    pub(super) fn put_volume(&mut self, plan: &VolumePlan) {
        let id = VolumeId(plan.volume);
        let pool = match self.pools.get(&plan.pool) {
            Some(pool) => pool.clone(),
            None => self.old.pools.get(plan.pool).cloned(),
        };
        // A volume whose pool is not in the plan has its own limits all the same.
        let pool = pool.unwrap_or_else(|| {
            self.put_pool(&PoolPlan {
                id: plan.pool,
                name: "".into(),
                limits: Limits::default(),
                source: "".into(),
                shared: None,
            })
        });
        let old = match self.volumes.get(&plan.volume) {
            Some(Some(entry)) => Some(Arc::clone(entry)),
            _ => self.old.volume(id).cloned(),
        };
        let entry = merge_volume(old.as_ref(), id, plan, &pool, self.now, &mut self.touched);
        self.volumes.insert(plan.volume, entry);
    }
}

fn merge_pool(
    old: Option<&Arc<Pool>>,
    plan: &PoolPlan,
    now: Nanos,
    touched: &mut BTreeSet<u64>,
) -> Arc<Pool> {
    let domain = match old {
        Some(old) if old.plan == *plan => return Arc::clone(old),
        Some(old) => {
            if old.plan.limits != plan.limits {
                let mut state = old.domain.lock();
                let root = state.shaper.root();
                state.end_leases(now);
                state.shaper.configure(root, plan.limits, now);
                touched.insert(plan.id);
            }
            Arc::clone(&old.domain)
        }
        None => Domain::new(plan.id, plan.limits),
    };
    Arc::new(Pool {
        domain,
        plan: plan.clone(),
    })
}

fn merge_volume(
    old: Option<&Arc<Entry>>,
    id: VolumeId,
    plan: &VolumePlan,
    pool: &Pool,
    now: Nanos,
    touched: &mut BTreeSet<u64>,
) -> Option<Arc<Entry>> {
    let path = [&pool.plan.limits, &plan.limits, &plan.client];
    let limited = path.iter().any(|limits| limits.is_limited());
    let counts_metadata = path.iter().any(|limits| limits.total.ops.is_some());
    let as_before = |old: &Entry| {
        old.plan == *plan && old.limited == limited && old.counts_metadata == counts_metadata
    };
    let stays = old.filter(|old| Arc::ptr_eq(&old.domain, &pool.domain));
    let slot = match stays {
        Some(old) if as_before(old) => return Some(Arc::clone(old)),
        Some(old) => {
            let mut state = pool.domain.lock();
            state.configure(old.slot, plan.limits, plan.client, now);
            touched.insert(pool.plan.id);
            old.slot
        }
        None => pool
            .domain
            .lock()
            .add_volume(id, plan.limits, plan.client)?,
    };
    Some(Arc::new(Entry {
        domain: Arc::clone(&pool.domain),
        slot,
        limited,
        counts_metadata,
        plan: plan.clone(),
    }))
}

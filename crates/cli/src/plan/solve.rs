//! Layouts of pools; the theory is at the head of the module above.

use super::input::{Need, Prices};
use super::levels::Level;

/// Distribution of a pool's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Qos {
    /// Each volume gets throughput by its capacity
    Auto,
    /// Each volume's throughput is set by hand
    Manual,
    /// Volumes share the pool's throughput
    Shared,
    /// Volumes share it, and it is bought apart from capacity
    Custom,
}

/// A volume in a pool.
#[derive(Debug, Clone)]
pub struct PlacedVolume {
    /// The volume's name, as in the input
    pub name: String,
    /// Capacity to provision, in GiB
    pub gib: u64,
    /// Throughput wanted, in MiB/s
    pub mibps: f64,
    /// True if it is a large volume
    pub large: bool,
    /// Larger than its data for the sake of throughput
    pub grown: bool,
}

/// A pool to provision, with the volumes in it.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The name of its service level
    pub level: String,
    /// Distribution of its throughput
    pub qos: Qos,
    /// Capacity to provision, in GiB
    pub gib: u64,
    /// Throughput in all, in MiB/s
    pub mibps: f64,
    /// Operations a second to provision (custom performance)
    pub iops: u64,
    /// The volumes placed in it
    pub volumes: Vec<PlacedVolume>,
}

/// A way to place all volumes.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The levels in it, joined with `+`
    pub levels: String,
    /// Distribution of the throughput
    pub qos: Qos,
    /// The pools to provision
    pub pools: Vec<Pool>,
    /// Capacity of all pools in GiB
    pub gib: u64,
    /// Its price, if all prices are known
    pub cost: Option<f64>,
    /// Caps that changed it
    pub caps: Vec<String>,
}

/// All layouts, and which is the cheapest.
#[derive(Debug)]
pub struct Plan {
    /// The volumes to place
    pub needs: Vec<Need>,
    /// The layouts that work
    pub layouts: Vec<Layout>,
    /// Levels that do not, with the reason
    pub refused: Vec<(String, String)>,
    /// The place of the cheapest
    pub cheapest: usize,
    /// No layout with manual QoS can be cheaper than this (a price, or TiB)
    pub bound: Option<f64>,
}

/// Returns the GiB that give `mibps` at `rate` MiB/s for each TiB. A rounding error of the division
/// is no GiB.
fn gib_for(mibps: f64, rate: f64) -> u64 {
    (mibps * 1024.0 / rate - 1e-6).ceil().max(0.0) as u64
}

/// Returns a volume with what a level's caps make of it.
fn placed(
    need: &Need,
    level: &Level,
    gib: u64,
    caps: &mut Vec<String>,
) -> Result<PlacedVolume, String> {
    let name = &need.name;
    let gib = gib.max(level.volume_gib.min);
    let fast = level.volume_max_mibps.is_some_and(|most| need.mibps > most);
    let big = gib > level.volume_gib.max;
    let mut placed = PlacedVolume {
        name: name.clone(),
        gib,
        mibps: need.mibps,
        large: false,
        grown: gib > need.gib,
    };
    if !(fast || big || need.large) {
        return Ok(placed);
    }
    let Some(large) = level.large_volumes else {
        return Err(format!(
            "volume {name}: {} has no large volumes",
            level.name
        ));
    };
    if need.mibps > large.max_throughput_mibps {
        return Err(format!(
            "volume {name}: {} MiB/s are more than the {} MiB/s of a large volume",
            need.mibps, large.max_throughput_mibps
        ));
    }
    if gib > large.capacity_gib.max {
        return Err(format!(
            "volume {name}: {gib} GiB are more than the {} GiB of a large volume",
            large.capacity_gib.max
        ));
    }
    if fast {
        caps.push(format!(
            "volume {name}: {} MiB/s are more than the {} MiB/s of a volume; it has to be a large one",
            need.mibps,
            level.volume_max_mibps.unwrap_or_default()
        ));
    } else if big {
        caps.push(format!(
            "volume {name}: {gib} GiB are more than the {} GiB of a volume; it has to be a large one",
            level.volume_gib.max
        ));
    }
    placed.large = true;
    if gib < large.capacity_gib.min {
        caps.push(format!(
            "volume {name}: a large volume has {} GiB at least",
            large.capacity_gib.min
        ));
        placed.gib = large.capacity_gib.min;
        placed.grown = true;
    }
    Ok(placed)
}

/// Returns the capacity of a pool that holds `gib` and does `mibps`.
fn pool_gib(level: &Level, qos: Qos, gib: u64, mibps: f64) -> u64 {
    let fast = match (qos, level.mibps_per_tib) {
        (Qos::Manual | Qos::Shared, Some(rate)) => gib_for(mibps, rate),
        _ => 0,
    };
    gib.max(fast).max(level.pool_gib.min)
}

/// Puts volumes into as few pools as first fit finds, the largest first.
fn pack(
    mut volumes: Vec<PlacedVolume>,
    level: &Level,
    qos: Qos,
    iops: u64,
    caps: &mut Vec<String>,
) -> Result<Vec<Pool>, String> {
    volumes.sort_by(|a, b| b.gib.cmp(&a.gib).then(b.mibps.total_cmp(&a.mibps)));
    let most = level.custom_performance.filter(|_| qos == Qos::Custom);
    let mut sums: Vec<(u64, f64, Vec<PlacedVolume>)> = Vec::new();
    for volume in volumes {
        let fits = |gib: u64, mibps: f64| {
            pool_gib(level, qos, gib, mibps) <= level.pool_gib.max
                && most.is_none_or(|m| mibps <= m.max_throughput_mibps)
        };
        if !fits(volume.gib, volume.mibps) {
            return Err(format!(
                "volume {}: no pool of {} is large or fast enough",
                volume.name, level.name
            ));
        }
        let room = sums
            .iter_mut()
            .find(|(g, m, _)| fits(*g + volume.gib, *m + volume.mibps));
        match room {
            Some((gib, mibps, inside)) => {
                *gib += volume.gib;
                *mibps += volume.mibps;
                inside.push(volume);
            }
            None => sums.push((volume.gib, volume.mibps, vec![volume])),
        }
    }
    if sums.len() > 1 {
        caps.push(format!(
            "{} pools: one has at most {} GiB{}",
            sums.len(),
            level.pool_gib.max,
            most.map(|m| format!(" and {} MiB/s", m.max_throughput_mibps))
                .unwrap_or_default()
        ));
    }
    let pools = u64::try_from(sums.len()).unwrap_or(u64::MAX).max(1);
    let each = iops.div_ceil(pools);
    if let Some(m) = most.filter(|m| each > m.max_iops) {
        return Err(format!(
            "{iops} operations a second: a pool does {} at most",
            m.max_iops
        ));
    }
    let rate = level.mibps_per_tib;
    let pool = |(gib, wanted, volumes): (u64, f64, Vec<PlacedVolume>)| {
        let gib = pool_gib(level, qos, gib, wanted);
        let by_capacity = rate.map_or(wanted, |r| gib as f64 * r / 1024.0);
        Pool {
            level: level.name.clone(),
            qos,
            gib,
            mibps: if qos == Qos::Custom {
                wanted
            } else {
                by_capacity
            },
            iops: if qos == Qos::Custom { each } else { 0 },
            volumes,
        }
    };
    Ok(sums.into_iter().map(pool).collect())
}

/// Pools of one level for some volumes.
fn pools(
    needs: &[&Need],
    level: &Level,
    qos: Qos,
    caps: &mut Vec<String>,
) -> Result<Vec<Pool>, String> {
    let volume = |need: &&Need| {
        let gib = match (qos, level.mibps_per_tib) {
            (Qos::Auto, Some(rate)) => need.gib.max(gib_for(need.mibps, rate)),
            _ => need.gib,
        };
        placed(need, level, gib, caps)
    };
    let volumes: Result<Vec<PlacedVolume>, String> = needs.iter().map(volume).collect();
    let iops = needs.iter().fold(0u64, |sum, n| {
        sum.saturating_add(n.read_iops).saturating_add(n.write_iops)
    });
    pack(volumes?, level, qos, iops, caps)
}

fn price(pools: &[Pool], prices: &Prices) -> Option<f64> {
    pools.iter().try_fold(0.0, |sum, pool| {
        let mut cost = pool.gib as f64 / 1024.0 * prices.per_tib.get(&pool.level)?;
        if pool.qos == Qos::Custom {
            cost += pool.mibps * prices.per_mibps.get(&pool.level)?;
            cost +=
                pool.iops as f64 / 1000.0 * prices.per_1000_iops.get(&pool.level).unwrap_or(&0.0);
        }
        Some(sum + cost)
    })
}

fn layout(
    levels: &[&str],
    qos: Qos,
    pools: Vec<Pool>,
    caps: Vec<String>,
    prices: &Prices,
) -> Layout {
    Layout {
        levels: levels.join("+"),
        qos,
        gib: pools.iter().map(|p| p.gib).sum(),
        cost: price(&pools, prices),
        pools,
        caps,
    }
}

/// Returns the number that layouts are compared by.
fn weight(layout: &Layout, priced: bool) -> f64 {
    match layout.cost {
        Some(cost) if priced => cost,
        None if priced => f64::INFINITY,
        _ => layout.gib as f64 / 1024.0,
    }
}

/// Returns the layouts for some volumes.
pub fn plan(needs: &[Need], levels: &[Level], prices: &Prices) -> Result<Plan, String> {
    let priced = !prices.per_tib.is_empty();
    let all: Vec<&Need> = needs.iter().collect();
    let mut layouts = Vec::new();
    let mut refused = Vec::new();
    for level in levels {
        let kinds: &[Qos] = match (level.follows.as_str(), level.manual_qos) {
            ("volume", true) => &[Qos::Auto, Qos::Manual],
            ("volume", false) => &[Qos::Auto],
            _ if level.custom_performance.is_some() => &[Qos::Shared, Qos::Custom],
            _ => &[Qos::Shared],
        };
        for qos in kinds {
            let mut caps = Vec::new();
            match pools(&all, level, *qos, &mut caps) {
                Ok(pools) => layouts.push(layout(&[&level.name], *qos, pools, caps, prices)),
                Err(reason) => refused.push((level.name.clone(), reason)),
            }
        }
    }
    refused.dedup();
    let own: Vec<&Level> = levels
        .iter()
        .filter(|l| l.follows == "volume" && l.mibps_per_tib.is_some())
        .collect();
    if priced && needs.len() > 1 {
        layouts.extend(mixed_auto(&all, &own, prices, &layouts));
        layouts.extend(mixed_manual(&all, &own, prices, &layouts));
    }
    let best = |(_, a): &(usize, &Layout), (_, b): &(usize, &Layout)| {
        weight(a, priced)
            .total_cmp(&weight(b, priced))
            .then(a.qos.cmp(&b.qos))
    };
    let Some((cheapest, found)) = layouts.iter().enumerate().min_by(best) else {
        let reasons: Vec<String> = refused.iter().map(|(l, r)| format!("{l}: {r}")).collect();
        return Err(format!("no service level suffices: {}", reasons.join("; ")));
    };
    if priced && found.cost.is_none() {
        return Err(format!("there is no price for {}", found.levels));
    }
    Ok(Plan {
        bound: bound(needs, &own, prices, priced),
        needs: needs.to_vec(),
        layouts,
        refused,
        cheapest,
    })
}

/// Returns the layout with every volume in the level that is cheapest for it; none if one level is
/// as cheap.
fn mixed_auto(
    needs: &[&Need],
    levels: &[&Level],
    prices: &Prices,
    single: &[Layout],
) -> Option<Layout> {
    let mut groups: Vec<Vec<&Need>> = vec![Vec::new(); levels.len()];
    for need in needs {
        let cost = |level: &&Level| -> Option<f64> {
            let alone = pools(&[need], level, Qos::Auto, &mut Vec::new()).ok()?;
            price(&alone, prices)
        };
        let costs = levels
            .iter()
            .enumerate()
            .filter_map(|(i, l)| Some((i, cost(l)?)));
        let (best, _) = costs.min_by(|a, b| a.1.total_cmp(&b.1))?;
        groups.get_mut(best)?.push(need);
    }
    better(join(&groups, levels, Qos::Auto, prices)?, single)
}

/// Returns the best split between two levels with manual QoS; none if one level is as cheap.
fn mixed_manual(
    needs: &[&Need],
    levels: &[&Level],
    prices: &Prices,
    single: &[Layout],
) -> Option<Layout> {
    let mut sorted = needs.to_vec();
    sorted.sort_by(|a, b| (b.mibps / b.gib as f64).total_cmp(&(a.mibps / a.gib as f64)));
    // The cost of a split is found from sums; only the best one is laid out.
    let mut prefix = vec![(0u64, 0f64)];
    for need in &sorted {
        let (gib, mibps) = prefix.last().copied().unwrap_or_default();
        prefix.push((gib + need.gib, mibps + need.mibps));
    }
    let (all_gib, all_mibps) = prefix.last().copied()?;
    let mut best: Option<(f64, usize, usize, usize)> = None;
    for (f, fast) in levels.iter().enumerate().filter(|(_, l)| l.manual_qos) {
        for (s, slow) in levels.iter().enumerate().filter(|(_, l)| l.manual_qos) {
            let (Some(fast_price), Some(slow_price)) = (
                prices.per_tib.get(&fast.name),
                prices.per_tib.get(&slow.name),
            ) else {
                continue;
            };
            if fast.mibps_per_tib <= slow.mibps_per_tib {
                continue;
            }
            for (n, (gib, mibps)) in prefix.iter().enumerate().skip(1).take(needs.len() - 1) {
                let cost = pool_gib(fast, Qos::Manual, *gib, *mibps) as f64 * fast_price
                    + pool_gib(slow, Qos::Manual, all_gib - gib, all_mibps - mibps) as f64
                        * slow_price;
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, n, f, s));
                }
            }
        }
    }
    let (_, n, f, s) = best?;
    let mut groups: Vec<Vec<&Need>> = vec![Vec::new(); levels.len()];
    *groups.get_mut(f)? = sorted.get(..n)?.to_vec();
    *groups.get_mut(s)? = sorted.get(n..)?.to_vec();
    better(join(&groups, levels, Qos::Manual, prices)?, single)
}

fn join(groups: &[Vec<&Need>], levels: &[&Level], qos: Qos, prices: &Prices) -> Option<Layout> {
    let mut caps = Vec::new();
    let mut all = Vec::new();
    let mut names = Vec::new();
    for (group, level) in groups.iter().zip(levels).filter(|(g, _)| !g.is_empty()) {
        all.extend(pools(group, level, qos, &mut caps).ok()?);
        names.push(level.name.as_str());
    }
    Some(layout(&names, qos, all, caps, prices))
}

/// Returns a mixed layout that is cheaper than every one of the same kind with a single level.
fn better(mixed: Layout, single: &[Layout]) -> Option<Layout> {
    let cost = mixed.cost?;
    let same = single.iter().filter(|l| l.qos == mixed.qos);
    let cheaper = same.filter_map(|l| l.cost).all(|other| cost < other - 1e-9);
    (cheaper && mixed.levels.contains('+')).then_some(mixed)
}

/// Returns the optimum of the linear program: at each of its vertices one or two levels are bought.
fn bound(needs: &[Need], levels: &[&Level], prices: &Prices, priced: bool) -> Option<f64> {
    let capacity = needs.iter().map(|n| n.gib as f64).sum::<f64>() / 1024.0;
    let throughput: f64 = needs.iter().map(|n| n.mibps).sum();
    let cost = |level: &Level| {
        if priced {
            prices.per_tib.get(&level.name).copied()
        } else {
            Some(1.0)
        }
    };
    let known: Vec<(f64, f64)> = levels
        .iter()
        .filter_map(|l| Some((l.mibps_per_tib?, cost(l)?)))
        .filter(|(rate, _)| *rate > 0.0)
        .collect();
    let mut least: Option<f64> = None;
    let mut consider = |cost: f64| least = Some(least.map_or(cost, |l: f64| l.min(cost)));
    for (rate, price) in &known {
        consider(capacity.max(throughput / rate) * price);
        for (other, other_price) in &known {
            // Both constraints hold exactly: x + y = C and rate·x + other·y = T.
            let x = (throughput - other * capacity) / (rate - other);
            if rate > other && (0.0..=capacity).contains(&x) {
                consider(x * price + (capacity - x) * other_price);
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::levels;
    use proptest::prelude::*;

    fn needs(wants: &[(u64, f64)]) -> Vec<Need> {
        let need = |(i, (gib, mibps)): (usize, &(u64, f64))| Need {
            name: format!("v{i}"),
            gib: *gib,
            mibps: *mibps,
            large: false,
            read_mibps: *mibps,
            write_mibps: *mibps,
            read_iops: 0,
            write_iops: 0,
        };
        wants.iter().enumerate().map(need).collect()
    }

    fn usual() -> Vec<Level> {
        let names: Vec<String> = ["STANDARD", "PREMIUM", "EXTREME"].map(str::to_owned).into();
        levels::chosen(
            &levels::table(None).unwrap().pool_level,
            &names,
            |l| &l.name,
            "",
        )
        .unwrap()
    }

    /// The least cost of all ways to deal volumes to levels, by trying them.
    fn by_trying(needs: &[Need], levels: &[Level], prices: &Prices) -> f64 {
        let ways = levels.len().pow(needs.len() as u32);
        let cost = |mut way: usize| {
            let mut groups = vec![Vec::new(); levels.len()];
            for need in needs {
                groups[way % levels.len()].push(need);
                way /= levels.len();
            }
            let refs: Vec<&Level> = levels.iter().collect();
            join(&groups, &refs, Qos::Manual, prices)
                .and_then(|l| l.cost)
                .unwrap_or(f64::INFINITY)
        };
        (0..ways).map(cost).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn between_the_bound_and_what_anyone_would_buy(
            wants in proptest::collection::vec((1u64..20_000, 0u32..4000), 1..6),
            (a, b, c) in (1u32..100, 1u32..100, 1u32..100),
        ) {
            let wants: Vec<(u64, f64)> = wants.iter().map(|(g, t)| (*g, f64::from(*t))).collect();
            let (needs, levels) = (needs(&wants), usual());
            let mut prices = Prices::default();
            for (level, price) in levels.iter().zip([a, a + b, a + b + c]) {
                prices.per_tib.insert(level.name.clone(), f64::from(price));
            }
            let plan = plan(&needs, &levels, &prices).unwrap();
            let cost = plan.layouts[plan.cheapest].cost.unwrap();
            prop_assert!(cost >= plan.bound.unwrap() - 1e-6);
            let tried = by_trying(&needs, &levels, &prices);
            prop_assert!(tried <= cost + 1e-6, "{} is better than the best, {}", cost, tried);
            prop_assert!(plan.bound.unwrap() <= tried + 1e-6);
            for level in &levels {
                let of = |qos: Qos| {
                    plan.layouts.iter().find(|l| l.levels == level.name && l.qos == qos).unwrap()
                };
                prop_assert!(of(Qos::Manual).gib <= of(Qos::Auto).gib);
                for layout in [of(Qos::Auto), of(Qos::Manual)] {
                    check(layout, &needs, level)?;
                }
            }
        }
    }

    /// Everything that was wanted is in a layout, within its limits.
    fn check(layout: &Layout, needs: &[Need], level: &Level) -> Result<(), TestCaseError> {
        let rate = level.mibps_per_tib.unwrap() / 1024.0;
        let placed: Vec<&PlacedVolume> = layout.pools.iter().flat_map(|p| &p.volumes).collect();
        prop_assert_eq!(placed.len(), needs.len());
        for need in needs {
            let volume = placed.iter().find(|v| v.name == need.name).unwrap();
            prop_assert!(volume.gib >= need.gib);
            if layout.qos == Qos::Auto {
                prop_assert!(volume.gib as f64 * rate >= need.mibps - 1e-6);
                let less = volume.gib - 1;
                prop_assert!(less < need.gib || (less as f64 * rate) < need.mibps || volume.large);
            }
        }
        for pool in &layout.pools {
            prop_assert!(pool.gib >= pool.volumes.iter().map(|v| v.gib).sum::<u64>());
            let wanted: f64 = pool.volumes.iter().map(|v| v.mibps).sum();
            prop_assert!(pool.gib as f64 * rate >= wanted - 1e-6);
        }
        Ok(())
    }
}

//! Rules for creating, changing, moving and deleting volumes of either surface.

use super::policies::{self, DirectSettings};
use super::{active_directory, exports, names, paths, smb, tier, trees};
use crate::backend::{Capacity, VolumeSpec};
use crate::bootstrap;
use crate::figures::words::{count, decimal, gib, mibps};
use crate::figures::{automatic, bytes_of, pool_throughput, volume_cap};
use crate::levels::{Follows, MIB, PoolLevel};
use crate::model::{
    Pool, PooledSettings, Presentation, Protocol, QosType, Runs, SecurityStyle, State, TreeExport,
    Volume,
};
use crate::mutation::{NewVolume, VolumeChange};
use crate::name::{Surface, VolumeName};
use crate::policy;
use crate::policy_assignment::PolicyAssignment;
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::invariant;

/// Default permission bits of a root.
const ROOT_MODE: u32 = 0o755;
const GIB: u64 = 1 << 30;

/// Returns a new volume, or the refusal.
pub fn create(
    view: &View,
    name: &VolumeName,
    new: &NewVolume,
    id: u64,
    now: Stamp,
) -> Result<Volume, Refusal> {
    invariant!(
        name.surface == new.presentation.surface(),
        "{name} is presented as {:?}",
        new.presentation.surface()
    );
    names::check(&name.place, &name.id)?;
    names::check_share(&new.share_name)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.volume(name).is_some() {
        return Err(super::names::taken(name.surface.noun(), &name.id));
    }
    let mut presentation = new.presentation.clone();
    let mut alone = false;
    if let Presentation::Filestore(tiered) = &mut presentation {
        tiered.address = paths::address(view)?;
        alone = tiered.address.is_some();
    }
    let paths = paths::new_volume_paths(view, name, &new.share_name, alone)?;
    check_protocols(name.surface, &new.protocols)?;
    exports::check(new.export_rules.as_deref().unwrap_or_default())?;
    check_policies(view, name, new)?;
    check_reserve(new.snap_reserve)?;
    let mut share = new.smb.clone();
    share.style = share.style.or_else(|| usual_style(view, new));
    let usual = match share.style {
        Some(SecurityStyle::Ntfs) => smb::NTFS_MODE,
        Some(SecurityStyle::Unix) | None => ROOT_MODE,
    };
    let mode = new.unix_permissions.unwrap_or(usual);
    check_mode(mode)?;
    if let Presentation::Netapp(pooled) = &new.presentation {
        pool_of(view, name, &pooled.pool)?;
    }
    check_source(view, name, new)?;
    let mut volume = Volume {
        id,
        key: format!("v-{id:016x}").into(),
        number: None,
        name: name.clone(),
        revision: 1,
        state: State::Creating,
        state_details: String::new(),
        created: now,
        presentation,
        share_name: new.share_name.as_str().into(),
        paths,
        capacity_gib: new.capacity_gib,
        protocols: new.protocols.clone(),
        export_rules: new.export_rules.clone(),
        smb: share,
        unix_permissions: mode,
        snapshot_directory: new.snapshot_directory.unwrap_or(true),
        snap_reserve: new.snap_reserve,
        snapshot_policy: new.snapshot_policy.clone(),
        snapshot_runs: Runs::new(),
        backup: new.backup.clone(),
        backup_runs: Runs::new(),
        deletion_restricted: new.deletion_restricted,
        clone_of: new.clone_of.clone(),
        restore_of: new.restore_of.clone(),
        splitting: false,
        protection: new.protection,
        assigned: PolicyAssignment::default(),
        trees: came_with(view, name, new),
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
        ..bootstrap::volume(name.clone(), id, new.capacity_gib, now)
    };
    let given = DirectSettings::default();
    let of = (&*name.place.project, &PolicyAssignment::default());
    let pool = view.pool_of(&volume).map(|pool| &**pool);
    let named = policies::resolve_policies(view, pool, of, &new.assign, given)?;
    if let (Some(_), Presentation::Netapp(pooled)) = (named.throughput, &mut volume.presentation) {
        pooled.throughput_mibps = named.throughput;
    }
    named.apply(view, &new.assign, &mut volume)?;
    smb::check(view, &volume)?;
    active_directory::check_volume(view, &volume)?;
    fit(view, &mut volume, None, None)?;
    Ok(volume)
}

/// Returns the security style of a new volume without a given one. With SMB as the only protocol it
/// is NTFS, so that authenticated users can write at once; a given mode means UNIX. A clone has the
/// root of its parent.
fn usual_style(view: &View, new: &NewVolume) -> Option<SecurityStyle> {
    if new.protocols != [Protocol::Smb] || new.unix_permissions.is_some() {
        return None;
    }
    match &new.clone_of {
        Some(of) => view.volume(&of.parent)?.smb.style,
        None => Some(SecurityStyle::Ntfs),
    }
}

/// Checks that a volume has the revision that its change was made for.
fn check_revision(volume: &Volume, wanted: Option<u64>) -> Result<(), Refusal> {
    let Some(revision) = wanted.filter(|revision| *revision != volume.revision) else {
        return Ok(());
    };
    Err(Refusal::new(
        Status::Aborted,
        "ETAG_MISMATCH",
        format!(
            "{} {} has changed since it was read (revision {}, not {revision}); read it again",
            volume.name.surface.noun(),
            volume.name.id,
            volume.revision
        ),
    ))
}

/// Returns the changed volume. `used` is the size of its data, if known.
pub fn update(
    view: &View,
    volume: &Volume,
    change: &VolumeChange,
    used: Option<u64>,
) -> Result<Volume, Refusal> {
    check_revision(volume, change.if_revision)?;
    let mut next = volume.clone();
    next.revision += 1;
    match &mut next.presentation {
        Presentation::Netapp(pooled) => {
            if let Some(pool) = &change.pool {
                pooled.pool = pool.as_str().into();
            }
        }
        Presentation::Filestore(tiered) => {
            if let Some(performance) = change.performance {
                tiered.performance = performance;
            }
        }
    }
    if let Some(capacity) = change.capacity_gib {
        next.capacity_gib = capacity;
    }
    if let Some(protocols) = &change.protocols {
        check_protocols(next.name.surface, protocols)?;
        next.protocols.clone_from(protocols);
    }
    if let Some(rules) = &change.export_rules {
        exports::check(rules)?;
        next.export_rules = Some(rules.clone());
    }
    if let Some(settings) = &change.smb_settings {
        next.smb.settings.clone_from(settings);
    }
    if let Some(name) = &change.smb_name {
        next.smb.name = (**name != *next.share_name).then(|| name.as_str().into());
    }
    if next.protocols != volume.protocols || next.smb != volume.smb {
        smb::check(view, &next)?;
        active_directory::check_volume(view, &next)?;
    }
    if let Some(mode) = change.unix_permissions {
        check_mode(mode)?;
        next.unix_permissions = mode;
        if next.smb.style == Some(SecurityStyle::Ntfs) {
            smb::check(view, &next)?;
        }
    }
    if let Some(visible) = change.snapshot_directory {
        next.snapshot_directory = visible;
    }
    if change.snap_reserve.is_some() {
        check_reserve(change.snap_reserve)?;
        next.snap_reserve = change.snap_reserve;
    }
    follow_policies(view, change, &mut next)?;
    let restricted = change.deletion_restricted;
    next.deletion_restricted = restricted.unwrap_or(next.deletion_restricted);
    next.quotas.off = change.quotas_on.map_or(next.quotas.off, |on| !on);
    if let Some(description) = &change.description {
        next.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        next.labels.clone_from(labels);
    }
    let given = DirectSettings {
        export: change.export_rules.is_some(),
        snapshot: change.snapshot_policy.is_some(),
        throughput: change.throughput_mibps.is_some(),
    };
    let of = (&*volume.name.place.project, &volume.assigned);
    let pool = view.pool_of(&next).map(|pool| &**pool);
    let named = policies::resolve_policies(view, pool, of, &change.assign, given)?;
    let throughput = named.throughput.or(change.throughput_mibps);
    named.apply(view, &change.assign, &mut next)?;
    names::merge(&mut next.extra, change.extra.clone());
    names::check_words(&next.description, &next.labels, &next.extra)?;
    let resized = next.capacity_gib != volume.capacity_gib;
    let provisions =
        resized || change.pool.is_some() || throughput.is_some() || change.performance.is_some();
    let fits = |next: &mut Volume| match provisions {
        true => fit(view, next, Some(volume), throughput),
        false => Ok(()),
    };
    // Sizes that a tier never allows are refused as such, whatever the volume's usage.
    if next.tiered().is_some() {
        fits(&mut next)?;
    }
    if resized || next.snap_reserve != volume.snap_reserve {
        above_used(&next.name.id, next.capacity_gib, next.snap_reserve, used)?;
    }
    if next.pooled().is_some() {
        fits(&mut next)?;
    }
    Ok(next)
}

/// Changes the volume's snapshot policy and its scheduled backups.
fn follow_policies(view: &View, change: &VolumeChange, next: &mut Volume) -> Result<(), Refusal> {
    if let Some(policy) = &change.snapshot_policy {
        policy::parse(policy)?;
        next.snapshot_policy = Some(policy.clone()).filter(|policy| !policy.is_null());
    }
    if let Some(config) = &change.backup {
        super::backup::check_config(view, &next.name.place, config)?;
        next.backup = Some(config.clone()).filter(|config| *config != Default::default());
    }
    Ok(())
}

/// Checks that the volume may be deleted.
pub fn delete(view: &View, volume: &Volume, force: bool) -> Result<(), Refusal> {
    let id = &volume.name.id;
    if volume.deletion_restricted {
        let (reason, words) = match volume.name.surface {
            Surface::Netapp => (
                "DELETION_RESTRICTED",
                format!("volume {id} has DELETE among its restrictedActions; take it out first"),
            ),
            Surface::Filestore => (
                "DELETION_PROTECTED",
                format!(
                    "instance {id} is protected against deletion; take deletionProtectionEnabled off first"
                ),
            ),
        };
        return Err(Refusal::new(Status::FailedPrecondition, reason, words));
    }
    super::snapshot::none_left(view, &volume.name, force)
}

/// Returns the capacity of a volume for the engine.
pub fn capacity(view: &View, volume: &Volume) -> Capacity {
    let whole = view.pool_of(volume).is_some_and(|pool| {
        let level = view.levels.pool(&pool.service_level);
        level.is_some_and(|level| level.overcommit) && volume.capacity_gib >= pool.capacity_gib
    });
    if whole {
        return Capacity::default();
    }
    let bytes = volume.capacity_gib.saturating_mul(GIB);
    Capacity {
        bytes: Some(bytes),
        reserve: bytes - room(volume.capacity_gib, volume.snap_reserve),
    }
}

/// Checks the snapshot policy of a new volume, and its scheduled backups.
fn check_policies(view: &View, name: &VolumeName, new: &NewVolume) -> Result<(), Refusal> {
    if let Some(policy) = &new.snapshot_policy {
        policy::parse(policy)?;
    }
    match &new.backup {
        Some(config) => super::backup::check_config(view, &name.place, config),
        None => Ok(()),
    }
}

/// Checks the snapshot or the backup that a new volume is made of.
fn check_source(view: &View, name: &VolumeName, new: &NewVolume) -> Result<(), Refusal> {
    if let Some(source) = &new.clone_of {
        let snapshot = view.snapshot(source);
        let ready = snapshot.is_some_and(|snapshot| snapshot.state == State::Ready);
        if source.parent.surface != name.surface || !ready {
            return Err(Refusal::new(
                Status::NotFound,
                "SOURCE_SNAPSHOT_NOT_FOUND",
                format!("there is no snapshot {source} to copy"),
            ));
        }
    }
    if let Some(backup) = &new.restore_of {
        super::backup::restore(view, backup, new.capacity_gib)?;
    }
    Ok(())
}

/// Returns the export policies of the qtrees that a new volume has from the start.
fn came_with(view: &View, name: &VolumeName, new: &NewVolume) -> BTreeMap<u32, TreeExport> {
    let parent = new.clone_of.as_ref().map(|of| view.volume(&of.parent));
    let backup = new.restore_of.as_ref().map(|of| view.backup(of));
    let names = match (parent.flatten(), backup.flatten()) {
        (Some(parent), _) => trees::names(view, parent),
        (None, Some(backup)) => backup.trees.clone(),
        (None, None) => return BTreeMap::new(),
    };
    trees::resolve(view, &name.place.project, &names)
}

/// Returns the specification of a volume for the engine.
pub fn spec(view: &View, volume: &Volume) -> VolumeSpec {
    let clone_of = volume.clone_of.as_ref().and_then(|name| {
        let parent = view.volume(&name.parent)?;
        Some((parent.key.to_string(), name.id.to_string()))
    });
    VolumeSpec {
        key: volume.key.to_string(),
        capacity: capacity(view, volume),
        root_mode: volume.unix_permissions,
        clone_of,
        protection: volume.protection,
        constituent: volume.constituent(),
    }
}

/// Checks that a clone can be split from its origin.
pub fn split(view: &View, volume: &Volume) -> Result<(), Refusal> {
    let id = &volume.name.id;
    let refuse = |reason, message| Err(Refusal::new(Status::FailedPrecondition, reason, message));
    if volume.splitting {
        let words = format!("volume {id} is being split already");
        return Err(Refusal::new(Status::Aborted, "RESOURCE_BUSY", words));
    }
    if volume.clone_of.is_none() {
        return refuse(
            "VOLUME_IS_NO_CLONE",
            format!("volume {id} is no clone, and depends on no other"),
        );
    }
    let snapshots = view.snapshots(&volume.name, None).count();
    if snapshots > 0 {
        return refuse(
            "HAS_SNAPSHOTS",
            format!(
                "volume {id} has {} snapshots, which share blocks with the volume that it is a clone of; delete them first",
                count(snapshots as u64)
            ),
        );
    }
    Ok(())
}

/// Returns the bytes of a capacity that are not reserved for snapshots.
pub fn room(capacity_gib: u64, reserve: Option<f64>) -> u64 {
    let all = capacity_gib.saturating_mul(GIB);
    // Percentages have few digits: a ten-thousandth of one is exact enough, and whole numbers stay
    // whole.
    let parts = (reserve.unwrap_or(0.0).clamp(0.0, 90.0) * 10_000.0).round() as u64;
    let kept = u128::from(all) * u128::from(parts) / 1_000_000;
    all.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX))
}

/// Checks the capacity of a volume of a level.
pub fn check_size(level: &PoolLevel, volume: &Volume, large: bool) -> Result<(), Refusal> {
    let (name, capacity) = (&volume.name, volume.capacity_gib);
    let (range, what) = match level.large_volumes {
        Some(rules) if large => (rules.capacity_gib, "large volume"),
        None if large => {
            return Err(Refusal::new(
                Status::InvalidArgument,
                "LARGE_VOLUMES_NOT_OFFERED",
                format!("there are no large volumes at service level {}", level.name),
            )
            .field("largeCapacity"));
        }
        _ => (level.volume_gib, "volume"),
    };
    if let Some(constituent) = volume.constituent() {
        // The whole is bounded; its parts may be small.
        let whole = capacity.saturating_mul(u64::from(constituent.members));
        return match capacity > 0 && whole <= range.max {
            true => Ok(()),
            false => Err(too_large(name, whole, range.max)),
        };
    }
    if range.holds(capacity) {
        return Ok(());
    }
    let larger = match level.large_volumes {
        Some(rules) if !large && rules.capacity_gib.holds(capacity) => {
            "; a large volume (largeCapacity, when it is made) could have that much"
        }
        _ => "",
    };
    Err(Refusal::new(
        Status::InvalidArgument,
        "VOLUME_CAPACITY_RANGE",
        format!(
            "the capacity of a {what} at service level {} must be {} to {}; received: {} GiB for {}{larger}",
            level.name,
            gib(range.min),
            gib(range.max),
            count(capacity),
            name.id
        ),
    )
    .field("capacityGib")
    .with("minGib", range.min)
    .with("maxGib", range.max)
    .with("capacityGib", capacity))
}

fn too_large(name: &VolumeName, whole: u64, most: u64) -> Refusal {
    Refusal::new(
        Status::InvalidArgument,
        "VOLUME_CAPACITY_RANGE",
        format!(
            "the capacity of a large volume must be at most {}; received: {} GiB for {}",
            gib(most),
            count(whole),
            name.id
        ),
    )
    .field("capacityGib")
}

/// Completes the surface-specific fields of the volume, and checks them against its pool or tier.
/// `before` is the present volume, whose share of its pool is free for the new one. `asked` is the
/// requested throughput, unless the volume has it.
pub(super) fn fit(
    view: &View,
    next: &mut Volume,
    before: Option<&Volume>,
    asked: Option<f64>,
) -> Result<(), Refusal> {
    let given = match &next.presentation {
        Presentation::Filestore(tiered) => return tier::fit(view, tiered, next, before),
        Presentation::Netapp(pooled) => {
            let was = before.and_then(|before| Some((before.pooled()?, before.capacity_gib)));
            throughput(view, pooled, next, was, asked)?
        }
    };
    if let Presentation::Netapp(pooled) = &mut next.presentation {
        pooled.throughput_mibps = given;
    }
    Ok(())
}

/// Returns the MiB/s of a volume in its pool, which has to have the capacity as well.
fn throughput(
    view: &View,
    pooled: &PooledSettings,
    next: &Volume,
    before: Option<(&PooledSettings, u64)>,
    asked: Option<f64>,
) -> Result<Option<f64>, Refusal> {
    let (pool, level) = pool_of(view, &next.name, &pooled.pool)?;
    check_size(level, next, pooled.large)?;
    let mut taken = view.pool_use(&pool.name);
    let moved = before.is_some_and(|(before, _)| before.pool != pooled.pool);
    if let Some((before, capacity_gib)) = before.filter(|_| !moved) {
        taken.volumes = taken.volumes.saturating_sub(1);
        taken.capacity_gib = taken.capacity_gib.saturating_sub(capacity_gib);
        let given = before.throughput_mibps.map_or(0, bytes_of);
        taken.throughput = taken.throughput.saturating_sub(given);
    }
    // A new volume contains its own request.
    let asked = match before {
        Some(_) => asked,
        None => pooled.throughput_mibps,
    };
    holds_capacity(pool, level, next, taken.capacity_gib)?;
    if pool.qos_type != QosType::Manual || level.follows != Follows::Volume {
        return match asked {
            Some(asked) => Err(needs_manual_qos(pool, level, next, asked)),
            None => Ok(None),
        };
    }
    let total = pool_throughput(level, pool).unwrap_or(u64::MAX);
    let left = total.saturating_sub(taken.throughput);
    let cap = volume_cap(level, pooled.large).unwrap_or(u64::MAX);
    let kept = pooled.throughput_mibps.filter(|_| !moved);
    let Some(wanted) = asked.or(kept) else {
        // Nothing was requested: the automatic throughput, as far as any is left.
        let share = automatic(level, next.capacity_gib, pooled.large).unwrap_or(left);
        let given = share.min(left);
        if given == 0 {
            return Err(exceeded(pool, level, next, share, taken.throughput, total));
        }
        return Ok(Some(given as f64 / MIB));
    };
    if !(wanted > 0.0 && wanted.is_finite()) || bytes_of(wanted) == 0 {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "THROUGHPUT_INVALID",
            format!(
                "the throughput must be greater than 0; received: {wanted} MiB/s for volume {}; up to {} fit",
                next.name.id,
                mibps(left.min(cap))
            ),
        )
        .field("throughputMibps"));
    }
    let bytes = bytes_of(wanted);
    if bytes > cap {
        return Err(above_cap(level, pooled, next, bytes, cap));
    }
    if bytes > left {
        return Err(exceeded(pool, level, next, bytes, taken.throughput, total));
    }
    Ok(Some(wanted))
}

fn needs_manual_qos(pool: &Pool, level: &PoolLevel, volume: &Volume, asked: f64) -> Refusal {
    let by = match level.follows {
        Follows::Volume => "follows the volume's capacity, for its QoS is automatic",
        Follows::Pool => "is shared by all of its volumes",
    };
    Refusal::new(
        Status::InvalidArgument,
        "THROUGHPUT_NEEDS_MANUAL_QOS",
        format!(
            "{} MiB/s for volume {}: throughput in storage pool {} {by}. It can be given to volumes of pools with qosType MANUAL",
            decimal(asked),
            volume.name.id,
            pool.name.id
        ),
    )
    .field("throughputMibps")
}

fn above_cap(
    level: &PoolLevel,
    pooled: &PooledSettings,
    volume: &Volume,
    bytes: u64,
    cap: u64,
) -> Refusal {
    let larger = larger(level, pooled);
    Refusal::new(
        Status::InvalidArgument,
        "VOLUME_THROUGHPUT_CAP",
        format!(
            "a volume at service level {} does up to {}; {} for {} is more{larger}",
            level.name,
            mibps(cap),
            mibps(bytes),
            volume.name.id
        ),
    )
    .field("throughputMibps")
    .with("requestedThroughputMibps", bytes as f64 / MIB)
    .with("maxThroughputMibps", cap as f64 / MIB)
}

/// Returns the rest of a sentence on a volume that asks for too much: a large one could have more.
fn larger(level: &PoolLevel, pooled: &PooledSettings) -> String {
    match level.large_volumes {
        Some(rules) if !pooled.large => {
            let most = decimal(rules.max_throughput_mibps);
            format!("; a large volume (largeCapacity, when it is made) does up to {most} MiB/s")
        }
        _ => String::new(),
    }
}

fn exceeded(
    pool: &Pool,
    level: &PoolLevel,
    next: &Volume,
    wanted: u64,
    given: u64,
    total: u64,
) -> Refusal {
    let rate = level.mibps_per_tib.unwrap_or(1.0);
    let needed = ((given.saturating_add(wanted)) as f64 / (rate * 1024.0)).ceil() as u64;
    let left = total.saturating_sub(given);
    Refusal::new(
        Status::FailedPrecondition,
        "POOL_THROUGHPUT_EXCEEDED",
        format!(
            "storage pool {} does {} ({}: {} MiB/s per TiB × {}), of which {} are given to other volumes. {} for {} do not fit: up to {} do, or a pool of {} GiB",
            pool.name.id,
            mibps(total),
            level.name,
            decimal(rate),
            gib(pool.capacity_gib),
            mibps(given),
            mibps(wanted),
            next.name.id,
            mibps(left),
            count(needed)
        ),
    ).field("throughputMibps")
    .with("requestedThroughputMibps", wanted as f64 / MIB)
    .with("availableThroughputMibps", left as f64 / MIB)
    .with("totalThroughputMibps", total as f64 / MIB)
    .with("poolGibNeeded", needed)
}

fn holds_capacity(
    pool: &Pool,
    level: &PoolLevel,
    next: &Volume,
    taken: u64,
) -> Result<(), Refusal> {
    let taken = if level.overcommit { 0 } else { taken };
    let left = pool.capacity_gib.saturating_sub(taken);
    if next.capacity_gib <= left {
        return Ok(());
    }
    let needed = taken.saturating_add(next.capacity_gib);
    Err(Refusal::new(
        Status::FailedPrecondition,
        "POOL_CAPACITY_EXCEEDED",
        format!(
            "storage pool {} has {} GiB, of which {} GiB are given to other volumes. {} GiB for {} do not fit: up to {} GiB do, or a pool of {} GiB",
            pool.name.id,
            count(pool.capacity_gib),
            count(taken),
            count(next.capacity_gib),
            next.name.id,
            count(left),
            count(needed)
        ),
    ).field("capacityGib")
    .with("requestedGib", next.capacity_gib)
    .with("availableGib", left)
    .with("poolGibNeeded", needed))
}

/// Refuses a capacity below the usage.
pub fn above_used(
    id: &Arc<str>,
    capacity_gib: u64,
    reserve: Option<f64>,
    used: Option<u64>,
) -> Result<(), Refusal> {
    let Some(used) = used.filter(|used| *used > room(capacity_gib, reserve)) else {
        return Ok(());
    };
    let free = 1.0 - reserve.unwrap_or(0.0) / 100.0;
    let least = (used as f64 / GIB as f64 / free).ceil() as u64;
    Err(Refusal::new(
        Status::FailedPrecondition,
        "CAPACITY_BELOW_USED",
        format!(
            "{id} holds {} GiB of data and cannot have {} GiB{}; at least {} GiB fit",
            decimal(used as f64 / GIB as f64),
            count(capacity_gib),
            reserve
                .filter(|percent| *percent > 0.0)
                .map_or_else(String::new, |percent| format!(
                    " of which {} % are kept for snapshots",
                    decimal(percent)
                )),
            count(least)
        ),
    )
    .field("capacityGib")
    .with("minCapacityGib", least))
}

fn pool_of<'v>(
    view: &'v View,
    volume: &VolumeName,
    pool: &str,
) -> Result<(&'v Arc<Pool>, &'v PoolLevel), Refusal> {
    let name = volume.place.name(pool);
    let Some(pool) = view.pool(&name) else {
        return Err(Refusal::new(
            Status::NotFound,
            "POOL_NOT_FOUND",
            format!(
                "there is no storage pool {name}",
                name = name.full(crate::name::Collection::Pools)
            ),
        )
        .field("storagePool"));
    };
    let Some(level) = view.levels.pool(&pool.service_level) else {
        return Err(Refusal::new(
            Status::Internal,
            "SERVICE_LEVEL_UNKNOWN",
            format!("service level {} is in no levels file", pool.service_level),
        ));
    };
    Ok((pool, level))
}

fn check_protocols(surface: Surface, protocols: &[Protocol]) -> Result<(), Refusal> {
    let (field, message) = match surface {
        Surface::Netapp if protocols.is_empty() => (
            "protocols",
            "a volume needs NFSV3, NFSV4 or SMB as its protocol",
        ),
        Surface::Filestore if protocols.contains(&Protocol::Smb) => (
            "protocol",
            "instances have no SMB; make the instance with protocol NFS_V3 or NFS_V4_1",
        ),
        _ => return Ok(()),
    };
    let refusal = Refusal::new(Status::InvalidArgument, "PROTOCOL_NOT_OFFERED", message);
    Err(refusal.field(field))
}

fn check_mode(mode: u32) -> Result<(), Refusal> {
    if mode <= 0o7777 {
        return Ok(());
    }
    Err(Refusal::new(
        Status::InvalidArgument,
        "UNIX_PERMISSIONS_INVALID",
        format!("{mode:o} are no permission bits: 0 to 7777 (octal)"),
    )
    .field("unixPermissions"))
}

fn check_reserve(percent: Option<f64>) -> Result<(), Refusal> {
    match percent {
        Some(percent) if !(0.0..=90.0).contains(&percent) => Err(Refusal::new(
            Status::InvalidArgument,
            "SNAP_RESERVE_RANGE",
            format!("snapReserve must be 0 to 90 percent; received: {percent}"),
        )
        .field("snapReserve")),
        _ => Ok(()),
    }
}

//! Rebuilds the catalog from the engine's volumes: `weir catalog rebuild`.
//!
//! Engine volumes that the catalog does not know get rows again, from their records
//! ([`crate::record`]). The rows have name, share, paths, capacity, pool and service level or tier,
//! security style, share settings and quota rules. Their snapshots are adopted as at any start.
//! Values that a record lacks get safe defaults: export rules admit no client, also those of qtrees
//! whose policies are not in the catalog, and schedules are off.
//! Export rules do not apply to users of SMB, so that protocol is left out until it is set again. A
//! volume without a readable record is named by its key and gets the engine's limit as its
//! capacity. Pools are made as large as their volumes need. Every difference is reported
//! ([`Rebuilt`]).

use crate::backend::{VolumeState, is_keyed};
use crate::bootstrap;
use crate::catalog::Catalog;
use crate::jobs::JobContext;
use crate::model::{
    Pool, Presentation, Protocol, QosType, SecurityStyle, TieredSettings, TreeExport, Volume,
};
use crate::name::{LocationName, Name, SnapshotName, VolumeName};
use crate::open_error::OpenError;
use crate::policy_assignment::PolicyAssignment;
use crate::record::Record;
use crate::rules::{self, paths};
use crate::store::Transaction;
use crate::view::View;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weir_base::Rng;

const GIB: u64 = 1 << 30;
/// Tier of an instance whose record has none.
const TIER: &str = "BASIC_HDD";

/// Results of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Volumes that have rows again, by name.
    pub volumes: Vec<RebuiltVolume>,
    /// Their pools that were created, or enlarged for them, by name.
    pub pools: Vec<RebuiltPool>,
}

/// A storage pool of rebuilt volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltPool {
    /// Name, for the command that enlarges it.
    pub name: Name,
    /// Its capacity now, in GiB: the need of its volumes, not the former value.
    pub capacity_gib: u64,
    /// True if its row existed, with less capacity.
    pub known: bool,
}

/// A rebuilt volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltVolume {
    /// The volume.
    pub name: VolumeName,
    /// Export paths: absolute, the canonical one first.
    pub paths: Vec<String>,
    /// True if it had no record: its name and path are derived from the engine's key.
    pub made_up: bool,
    /// True if its permissions are those of Windows.
    pub ntfs: bool,
    /// Its former protocols, which it has again except SMB. Empty: the record has none.
    pub protocols: Vec<Protocol>,
    /// Other lost settings, in words for users.
    pub lost: Vec<String>,
    /// Origin of its contents, if it was the destination of a relationship, which only the catalog
    /// had.
    pub copy_of: Option<CopyOf>,
}

/// Origin of a destination, according to its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOf {
    /// This volume.
    Here(VolumeName),
    /// The aggregate with this identity.
    Elsewhere(String),
    /// Unknown: it has no snapshot yet, or its source does not exist any more.
    Unknown,
}

/// Returns the place of creation of a destination's newest snapshot.
pub(crate) fn origin(view: &View, name: &VolumeName, aggregate: &str) -> CopyOf {
    let made = view.snapshots(name, None).filter_map(|s| s.engine);
    let Some(newest) = made.max_by_key(|engine| engine.number) else {
        return CopyOf::Unknown;
    };
    let made_in = newest.identity.aggregate.to_string();
    if made_in != aggregate {
        return CopyOf::Elsewhere(made_in);
    }
    let mut volumes = view.volumes.values();
    let source = volumes.find(|volume| volume.number == Some(newest.identity.volume.0));
    source.map_or(CopyOf::Unknown, |volume| CopyOf::Here(volume.name.clone()))
}

/// Returns true if the control plane has created or named this volume, so that a catalog must have
/// known it.
pub(crate) fn was_known(state: &VolumeState) -> bool {
    is_keyed(&state.key) || !state.annotation.is_empty()
}

/// A volume without a row.
struct LostVolume<'a> {
    state: &'a VolumeState,
    record: Option<Record>,
    id: u64,
    snapshot: Option<(String, String)>,
    /// Its qtrees: numbers and names.
    trees: Vec<(u32, String)>,
}

/// Creates rows for the volumes of `engine` that the catalog does not know. `spare` are the keys
/// pending deletion.
pub(crate) async fn run(
    context: &JobContext,
    engine: &[VolumeState],
    spare: &[String],
    rng: &dyn Rng,
    device_bytes: u64,
) -> Result<Rebuilt, OpenError> {
    let view = context.store.view();
    let lost = find_lost(context, &view, engine, spare, rng).await?;
    for LostVolume { record, .. } in &lost {
        let tier = record.as_ref().and_then(|record| record.tier.as_ref());
        if let (Some(tier), Some(record)) = (tier, record)
            && view.levels.tier(tier).is_none()
        {
            return Err(OpenError::Level(record.name.clone(), tier.to_string()));
        }
    }
    let pools: Vec<u64> = lost.iter().map(|_| (rng.next_u64() >> 1).max(1)).collect();
    let made = context.store.commit_with_retry(|tx| {
        let mut rebuilt: Vec<RebuiltVolume> = Vec::new();
        let before = tx.view.clone();
        let mut names: HashMap<String, VolumeName> = HashMap::new();
        for (lost, pool_id) in lost.iter().zip(&pools) {
            let one = put(tx, lost, *pool_id, device_bytes, &names);
            names.insert(lost.state.key.clone(), one.name.clone());
            rebuilt.push(one);
        }
        enlarge_pools(tx);
        tx.audit(
            &crate::model::Actor::local(),
            "rebuild",
            format!("{} volumes", rebuilt.len()),
            "done",
        );
        let pools = tx.view.pools.values();
        let pools = pools.filter_map(|pool| {
            let was = before.pool(&pool.name);
            let changed = was.is_none_or(|was| was.capacity_gib != pool.capacity_gib);
            changed.then(|| RebuiltPool {
                name: pool.name.clone(),
                capacity_gib: pool.capacity_gib,
                known: was.is_some(),
            })
        });
        Rebuilt {
            pools: pools.collect(),
            volumes: rebuilt,
        }
    });
    let (mut rebuilt, _) = made
        .await
        .map_err(|refusal| OpenError::Backend(refusal.message))?;
    rebuilt.volumes.sort_by(|a, b| a.name.cmp(&b.name));
    rebuilt.pools.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rebuilt)
}

/// Returns a free and valid name for it.
fn name_for(tx: &Transaction<'_>, lost: &LostVolume<'_>) -> VolumeName {
    let recorded = lost.record.as_ref().and_then(Record::name);
    let name = recorded
        .filter(|name| rules::names::check(&name.place, &name.id).is_ok())
        .unwrap_or_else(|| LocationName::local().volume(&lost.state.key));
    if tx.view.volume(&name).is_none() {
        return name;
    }
    // Its namesake was created after its deletion, which a crash has undone.
    let tail = format!("-{}", lost.state.number);
    let room = 63usize.saturating_sub(tail.len());
    let head: String = name.id.chars().take(room).collect();
    name.place
        .volume_name(name.surface, &format!("{head}{tail}"))
}

/// Returns the volumes of the engine that have no row, the oldest first.
async fn find_lost<'a>(
    context: &JobContext,
    view: &View,
    engine: &'a [VolumeState],
    spare: &[String],
    rng: &dyn Rng,
) -> Result<Vec<LostVolume<'a>>, OpenError> {
    let known = |key: &str| view.volumes.values().any(|volume| &*volume.key == key);
    let mut lost = Vec::new();
    for state in engine {
        if known(&state.key) || spare.contains(&state.key) {
            continue;
        }
        let key = state.key.clone();
        let snapshot = context.call_node(move |node| node.origin(&key)).await;
        let key = state.key.clone();
        let trees = context.ask_with_retries(move |node| node.trees(&key)).await;
        lost.push(LostVolume {
            state,
            record: Record::read(&state.annotation),
            id: (rng.next_u64() >> 1).max(1),
            snapshot: snapshot.unwrap_or_default(),
            trees: trees.map_err(|error| OpenError::Backend(error.to_string()))?,
        });
    }
    // In the order of their creation: of two that claim a path the older has it.
    lost.sort_by_key(|lost| lost.state.number);
    Ok(lost)
}

fn put(
    tx: &mut Transaction<'_>,
    lost: &LostVolume<'_>,
    pool_id: u64,
    device_bytes: u64,
    names: &HashMap<String, VolumeName>,
) -> RebuiltVolume {
    let LostVolume { state, record, .. } = lost;
    let name = name_for(tx, lost);
    let recorded = record.as_ref().map(|record| record.share.clone());
    let share: Arc<str> = recorded
        .filter(|share| rules::names::check_share(share).is_ok())
        .unwrap_or_else(|| Arc::clone(&name.id));
    let own = paths_for(&tx.view, lost, &name, &share);
    let had = record.as_ref().and_then(Record::protocols);
    let smb = record.as_ref().map(Record::share).unwrap_or_default();
    let ntfs = smb.style == Some(SecurityStyle::Ntfs);
    let trees = trees_for(&tx.view, lost, &name);
    let mut lacks = unknown_policies(&trees, &lost.trees);
    lacks.extend(record.iter().flat_map(|record| record.lost.clone()));
    if had.is_none() {
        lacks.push("security style (it has UNIX now) and settings of SMB".to_owned());
    }
    let rebuilt = RebuiltVolume {
        name: name.clone(),
        paths: own.iter().map(|path| format!("/{path}")).collect(),
        made_up: record.is_none(),
        ntfs,
        protocols: had.clone().unwrap_or_default(),
        lost: lacks,
        // Its snapshots tell the origin once they are in the catalog.
        copy_of: state.protection.then_some(CopyOf::Unknown),
    };
    let gib = record.as_ref().map(|record| record.gib);
    let limit = Some(state.limit).filter(|limit| *limit > 0);
    let gib = gib.unwrap_or_else(|| limit.unwrap_or(device_bytes).div_ceil(GIB).max(1));
    let mut made = Volume {
        key: state.key.as_str().into(),
        number: Some(state.number),
        presentation: presentation_for(&tx.view, record.as_ref()),
        share_name: share,
        paths: own,
        export_rules: Some(Vec::new()),
        unix_permissions: mode(record.as_ref(), ntfs),
        smb,
        snapshot_directory: !record.as_ref().is_some_and(|record| record.hides_snapshots),
        snap_reserve: record.as_ref().and_then(|record| record.reserve),
        deletion_restricted: record.as_ref().is_some_and(|record| record.kept),
        protection: state.protection,
        assigned: record.as_ref().map(assigned).unwrap_or_default(),
        trees,
        quotas: record.as_ref().map(|record| record.quotas(tx.now)).unwrap_or_default(),
        clone_of: clone_of(&tx.view, lost, names),
        splitting: state.splitting,
        description: "its row was made anew from the engine's record; no client may use it until it has export rules"
            .to_owned(),
        ..bootstrap::volume(name, lost.id, gib, tx.now)
    };
    match had {
        Some(had) => made.protocols = had,
        // An instance then has NFSv3.
        None if made.tiered().is_some() => made.protocols.clear(),
        None => {}
    }
    // Nobody may use it yet, and export rules do not apply to users of SMB.
    made.protocols.retain(|protocol| *protocol != Protocol::Smb);
    put_pool_of(tx, &made, record.as_ref(), pool_id);
    tx.put_volume(made);
    rebuilt
}

/// Returns the export policies of a volume's qtrees. Without a record of them each qtree is closed.
fn trees_for(view: &View, lost: &LostVolume<'_>, name: &VolumeName) -> BTreeMap<u32, TreeExport> {
    let names = match &lost.record {
        Some(record) if !record.trees_left_out => record.trees.clone(),
        _ => lost
            .trees
            .iter()
            .map(|(number, _)| (*number, None))
            .collect(),
    };
    rules::trees::resolve(view, &name.place.project, &names)
}

/// Returns the lost policies of qtrees, in words for users.
fn unknown_policies(exports: &BTreeMap<u32, TreeExport>, trees: &[(u32, String)]) -> Vec<String> {
    let unknown = trees.iter().filter_map(|(number, tree)| {
        let policy = exports.get(number)?.unknown.as_ref()?;
        Some(match policy.is_empty() {
            true => format!("export policy of qtree {tree:?}, which admits nobody now"),
            false => format!("export policy {policy:?} of qtree {tree:?}, which admits nobody now"),
        })
    });
    unknown.collect()
}

/// Returns the export paths of a volume: of those in its record the ones that are free, else new
/// ones.
fn paths_for(view: &View, lost: &LostVolume<'_>, name: &VolumeName, share: &str) -> Vec<Arc<str>> {
    let recorded = lost.record.iter().flat_map(|record| &record.paths);
    let free: Vec<Arc<str>> = recorded
        .filter(|path| view.is_path_free(path))
        .cloned()
        .collect();
    if !free.is_empty() {
        return free;
    }
    let record = lost.record.as_ref();
    let alone = record.is_some_and(|record| record.address.is_some());
    // No other volume has the key.
    paths::new_volume_paths(view, name, share, alone)
        .unwrap_or_else(|_| vec![lost.state.key.as_str().into()])
}

/// Returns the snapshot that a volume is a clone of. `names` are those of rebuilt volumes by key.
fn clone_of(
    view: &View,
    lost: &LostVolume<'_>,
    names: &HashMap<String, VolumeName>,
) -> Option<SnapshotName> {
    let (key, snapshot) = lost.snapshot.as_ref()?;
    let parent = names.get(key).cloned().or_else(|| {
        let found = view.volumes.values().find(|volume| *volume.key == **key);
        found.map(|volume| volume.name.clone())
    })?;
    Some(parent.snapshot(snapshot))
}

/// Returns the pool, or the tier and address, of a volume.
fn presentation_for(view: &View, record: Option<&Record>) -> Presentation {
    let recorded = record.map_or_else(
        || Presentation::in_pool(bootstrap::POOL),
        |record| record.presentation(bootstrap::POOL, TIER),
    );
    match recorded {
        // Another instance got it after this one's deletion, which a crash has undone.
        Presentation::Filestore(tiered)
            if tiered.address.is_some_and(|own| !view.is_address_free(own)) =>
        {
            Presentation::Filestore(TieredSettings {
                address: None,
                ..tiered
            })
        }
        other => other,
    }
}

/// Creates the volume's pool, if there is none.
fn put_pool_of(tx: &mut Transaction<'_>, volume: &Volume, record: Option<&Record>, id: u64) {
    let Some(pool) = volume.pool().filter(|pool| tx.view.pool(pool).is_none()) else {
        return;
    };
    let level = record.and_then(|record| record.level.clone());
    let level = level.filter(|level| tx.view.levels.pool(level).is_some());
    tx.put_pool(Pool {
        service_level: level.unwrap_or_else(|| bootstrap::LEVEL.into()),
        qos_type: match volume.throughput_mibps() {
            Some(_) => QosType::Manual,
            None => QosType::Auto,
        },
        description: "made anew from the engine's records of its volumes".to_owned(),
        ..bootstrap::pool(pool, id, 1, tx.now)
    });
}

/// Returns the permission bits of its root.
fn mode(record: Option<&Record>, ntfs: bool) -> u32 {
    let recorded = record.and_then(|record| record.mode);
    recorded.unwrap_or(match ntfs {
        true => rules::smb::NTFS_MODE,
        false => bootstrap::ROOT_MODE,
    })
}

/// Returns its assignment without policies, which only the catalog had.
fn assigned(record: &Record) -> PolicyAssignment {
    PolicyAssignment {
        offline: record.offline,
        unmounted: record.unmounted,
        synchronous: record.synchronous,
        ..PolicyAssignment::default()
    }
}

/// Enlarges pools that are smaller than the sum of their volumes.
fn enlarge_pools(tx: &mut Transaction<'_>) {
    let levels = Arc::clone(&tx.view.levels);
    let mut larger: BTreeMap<Name, Pool> = BTreeMap::new();
    for pool in tx.view.pools.values() {
        let Some(level) = levels.pool(&pool.service_level) else {
            continue;
        };
        let taken = tx.view.pool_use(&pool.name);
        let of_throughput = level.mibps_per_tib.map_or(0, |rate| {
            (taken.throughput as f64 / (rate * 1024.0)).ceil() as u64
        });
        let volumes = tx.view.volumes_of(&pool.name);
        let of_volumes = match level.overcommit {
            true => volumes.map(|volume| volume.capacity_gib).max().unwrap_or(0),
            false => taken.capacity_gib,
        };
        let needed = of_volumes.max(of_throughput).max(level.pool_gib.min);
        if pool.capacity_gib < needed {
            let mut next = Pool::clone(pool);
            next.capacity_gib = needed;
            larger.insert(pool.name.clone(), next);
        }
    }
    for pool in larger.into_values() {
        tx.put_pool(pool);
    }
}

/// Refuses to begin with an empty catalog if the engine has volumes that one must have known.
pub(crate) fn refuse_empty(catalog: &str, engine: &[VolumeState]) -> Result<(), OpenError> {
    let mut lost: Vec<String> = engine
        .iter()
        .filter(|state| was_known(state))
        .map(|state| {
            let record = Record::read(&state.annotation);
            record.map_or_else(|| state.key.clone(), |record| record.name)
        })
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    lost.sort_unstable();
    Err(OpenError::Lost {
        catalog: catalog.to_owned(),
        count: lost.len(),
        volumes: shortened(&lost),
    })
}

/// Formats the first few entries of a list.
pub(crate) fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).map(String::as_str);
    let shown: Vec<&str> = shown.collect();
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

/// Returns true if the catalog's own mark names another aggregate.
pub(crate) async fn belongs(catalog: &Catalog, aggregate: &str) -> Result<bool, OpenError> {
    let marked = catalog.aggregate().await;
    match marked.map_err(|e| OpenError::from_catalog(catalog, e))? {
        Some(other) if other != aggregate => Err(OpenError::Foreign {
            catalog: catalog.url().to_owned(),
            theirs: other,
            ours: aggregate.to_owned(),
        }),
        marked => Ok(marked.is_some()),
    }
}

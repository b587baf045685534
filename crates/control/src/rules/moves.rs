//! Rules for moves of volumes to other aggregates: the volumes that can move, and their arrival.

use super::{Inputs, names, smb, volume};
use crate::levels::Follows;
use crate::model::{Presentation, Protocol, QosType, Snapshot, State, Volume, VolumeMove};
use crate::name::{Surface, VolumeName};
use crate::policies::NamedPolicy;
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A volume that departs, as the destination gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepartingRows {
    /// Its row.
    pub volume: Volume,
    /// The rows of its snapshots.
    pub snapshots: Vec<Snapshot>,
    /// The policies that it refers to.
    pub policies: Vec<NamedPolicy>,
}

/// Start of the keys of volumes that are being copied here.
const ARRIVING: &str = "m-";

/// Returns the engine's key of the copy of a move.
pub fn arriving_key(id: u64) -> String {
    format!("{ARRIVING}{id:016x}")
}

/// Returns true for the key of a volume that is being copied here, or came here by a move.
pub fn is_arriving(key: &str) -> bool {
    key.starts_with(ARRIVING)
}

fn refuse<T>(reason: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(Status::FailedPrecondition, reason, message))
}

/// Returns the move that begins, to the storage pool and the aggregate of these names.
pub fn start(
    view: &View,
    volume: &Volume,
    (pool, aggregate): (Option<&str>, Option<&str>),
    inputs: &Inputs,
    now: Stamp,
) -> Result<VolumeMove, Refusal> {
    let id = &volume.name.id;
    if volume.moving.is_some() {
        let words = format!("volume {id} is being moved already");
        return Err(Refusal::new(Status::Aborted, "RESOURCE_BUSY", words));
    }
    if pool.is_none() && aggregate.is_none() {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "DESTINATION_MISSING",
            format!("name the storage pool or the aggregate that gets volume {id}"),
        ));
    }
    if let Some(pool) = pool
        && view.pool(&volume.name.place.name(pool)).is_some()
    {
        return refuse(
            "POOL_IN_SAME_AGGREGATE",
            format!(
                "storage pool {pool} is in the aggregate that volume {id} is in; change the volume's storage pool instead"
            ),
        );
    }
    if volume.state != State::Ready {
        return refuse("VOLUME_CANNOT_MOVE", format!("volume {id} is not READY"));
    }
    movable(view, volume)?;
    Ok(VolumeMove {
        id: inputs.id,
        pool: pool.map(Into::into),
        aggregate: aggregate.map(Into::into),
        began: now,
        handed_over: None,
    })
}

/// Refuses a volume that cannot be moved as it is.
pub fn movable(view: &View, volume: &Volume) -> Result<(), Refusal> {
    let id = &volume.name.id;
    let why = if volume.name.surface != Surface::Netapp {
        "it is an instance"
    } else if volume.constituent().is_some() {
        "it is a part of a large volume"
    } else if volume.clone_of.is_some() || volume.splitting {
        "it is a clone (split it first)"
    } else if volume.protection && crate::rules::replication::is_copy(view, &volume.name) {
        "it is the destination of a replication"
    } else if volume.assigned.offline || volume.assigned.synchronous.is_some() {
        "it is offline, or has a policy of its pair"
    } else if volume.protocols.contains(&Protocol::Smb) {
        "it is served over SMB, whose users are those of its aggregate"
    } else if volume.backup.is_some() {
        "it has scheduled backups, whose vault is in its aggregate (end them first)"
    } else if has_clones(view, &volume.name) {
        "other volumes are clones of it (split them first)"
    } else {
        return Ok(());
    };
    let message = format!("volume {id} cannot move to another aggregate: {why}");
    refuse("VOLUME_CANNOT_MOVE", message)
}

fn has_clones(view: &View, name: &VolumeName) -> bool {
    let of = |volume: &Arc<Volume>| volume.clone_of.as_ref().map(|of| of.parent == *name);
    view.volumes.values().any(|volume| of(volume) == Some(true))
}

/// Checks that a move can still be ended by its user.
pub fn abort(volume: &Volume) -> Result<(), Refusal> {
    match volume.moving {
        Some(_) => Ok(()),
        None => refuse(
            "VOLUME_DOES_NOT_MOVE",
            format!("volume {} is not being moved", volume.name.id),
        ),
    }
}

/// A volume that arrives, with what comes with it.
#[derive(Debug)]
pub struct ArrivingVolume {
    pub volume: Volume,
    pub policies: Vec<NamedPolicy>,
}

/// Returns the volume that arrives in a storage pool, without its number in the engine. `id` is the
/// first of the numbers that may be used for new rows.
pub fn arrive(
    view: &View,
    departing: &DepartingRows,
    pool: Option<&str>,
    id: u64,
) -> Result<ArrivingVolume, Refusal> {
    let mut next = departing.volume.clone();
    let name = &departing.volume.name;
    if view.volume(name).is_some() {
        return Err(names::taken(name.surface.noun(), &name.id));
    }
    if let Some(taken) = next.paths.iter().find(|path| !view.is_path_free(path)) {
        return refuse(
            "SHARE_NAME_TAKEN",
            format!("the aggregate has another volume at, above or below /{taken}"),
        );
    }
    next.id = id;
    next.number = None;
    next.state = State::Ready;
    next.state_details.clear();
    next.moving = None;
    next.restore_of = None;
    next.protection = false;
    let pool = into_pool(view, &next, pool)?;
    let policies = adopt_policies(view, departing, &mut next, id)?;
    if let Presentation::Netapp(pooled) = &mut next.presentation {
        pooled.pool = pool;
        let place = &departing.volume.name.place;
        let manual = view.pool(&place.name(&pooled.pool)).is_some_and(|pool| {
            let level = view.levels.pool(&pool.service_level);
            pool.qos_type == QosType::Manual
                && level.is_some_and(|level| level.follows == Follows::Volume)
        });
        pooled.throughput_mibps = pooled.throughput_mibps.filter(|_| manual);
    }
    smb::check(view, &next)?;
    volume::fit(view, &mut next, None, None)?;
    Ok(ArrivingVolume {
        volume: next,
        policies,
    })
}

/// Returns the storage pool that gets a volume: the named one, or the only one of its place.
fn into_pool(view: &View, volume: &Volume, pool: Option<&str>) -> Result<Arc<str>, Refusal> {
    let place = &volume.name.place;
    let missing = |message: String| Err(Refusal::new(Status::NotFound, "POOL_NOT_FOUND", message));
    if let Some(pool) = pool {
        return match view.pool(&place.name(pool)) {
            Some(pool) => Ok(Arc::clone(&pool.name.id)),
            None => missing(format!(
                "the aggregate has no storage pool {pool} in location {}",
                place.location
            )),
        };
    }
    let mut pools = view.every_pool().filter(|pool| pool.name.place == *place);
    match (pools.next(), pools.next()) {
        (Some(only), None) => Ok(Arc::clone(&only.name.id)),
        (None, _) => missing(format!(
            "the aggregate has no storage pool in location {}",
            place.location
        )),
        (Some(one), Some(other)) => missing(format!(
            "the aggregate has several storage pools in location {}: name one, such as {} or {}",
            place.location, one.name.id, other.name.id
        )),
    }
}

/// Makes the volume refer to the policies of this aggregate. Returns those that it lacks.
fn adopt_policies(
    view: &View,
    departing: &DepartingRows,
    next: &mut Volume,
    id: u64,
) -> Result<Vec<NamedPolicy>, Refusal> {
    let mut lacking = Vec::new();
    let mut numbers = Vec::new();
    for (policy, id) in departing.policies.iter().zip(id..) {
        let number = match view.policy(&policy.name) {
            Some(there) if there.body == policy.body => there.id,
            Some(_) => {
                return refuse(
                    "POLICY_DIFFERS",
                    format!(
                        "{} {} is another one in the aggregate; rename one of the two, or make them alike",
                        policy.name.kind.noun(),
                        policy.name.id
                    ),
                );
            }
            None => {
                let mut made = policy.clone();
                made.id = id;
                lacking.push(made);
                id
            }
        };
        numbers.push((policy.id, number));
    }
    let renumber = |policy: &mut Option<u64>| {
        if let Some(id) = policy {
            let found = numbers.iter().find(|(before, _)| before == id);
            *policy = found.map(|(_, now)| *now);
        }
    };
    renumber(&mut next.assigned.export);
    renumber(&mut next.assigned.qos);
    renumber(&mut next.assigned.snapshot);
    for tree in next.trees.values_mut() {
        renumber(&mut tree.policy);
    }
    Ok(lacking)
}

/// Returns the policies that a volume refers to.
pub fn policies_of(view: &View, volume: &Volume) -> Vec<NamedPolicy> {
    let assigned = &volume.assigned;
    let named = [assigned.export, assigned.qos, assigned.snapshot];
    let trees = volume.trees.values().map(|tree| tree.policy);
    let ids: Vec<u64> = named.into_iter().chain(trees).flatten().collect();
    let policies = view.policies().filter(|policy| ids.contains(&policy.id));
    policies.map(|policy| NamedPolicy::clone(policy)).collect()
}

/// Returns the reason why a volume cannot be handed over yet: the destination lacks a snapshot that
/// is newer than the cut, or something is being done to the volume.
pub fn unsettled(view: &View, volume: &Volume, cut: u32) -> Option<String> {
    if volume.state != State::Ready {
        return Some(format!(
            "volume {} is {}",
            volume.name.id,
            volume.state.as_str()
        ));
    }
    let newer = |snapshot: &&Arc<Snapshot>| {
        snapshot.state != State::Ready || snapshot.engine.is_none_or(|engine| engine.number > cut)
    };
    if let Some(snapshot) = view.snapshots(&volume.name, None).find(newer) {
        return Some(format!(
            "snapshot {} is newer than the copy",
            snapshot.name.id
        ));
    }
    let mut pending = view.pending.keys().filter_map(|name| view.operation(name));
    let other = pending.find(|operation| {
        let target = view.volume_of(&operation.target());
        target.is_some_and(|of| of.name == volume.name) && operation.verb() != "move"
    });
    other.map(|operation| format!("operation {} has not ended", operation.name.id))
}

//! Warnings in the reply to an accepted change: nothing is wrong, but users may not expect the
//! effect.

use super::space;
use crate::figures::words::{count, decimal, gib, size};
use crate::figures::{volume_throughput, words};
use crate::levels::{Follows, MIB};
use crate::model::{Protocol, QosType, SecurityStyle, Volume};
use crate::mutation::{Mutation, NewVolume};
use crate::rules::Inputs;
use crate::view::View;

/// Maximum number of names in one warning.
const NAMED: usize = 3;

/// Returns the warnings for a change from `before` to `after`.
pub fn change_warnings(
    before: &View,
    after: &View,
    mutation: &Mutation,
    inputs: &Inputs,
) -> Vec<String> {
    let mut all = Vec::new();
    match mutation {
        Mutation::CreatePool(name, _) | Mutation::UpdatePool(name, _) => {
            let (was, is) = (before.pool(name), after.pool(name));
            let capacity = |pool: Option<&std::sync::Arc<crate::model::Pool>>| {
                pool.map_or(0, |pool| pool.capacity_gib)
            };
            if capacity(is) > capacity(was) {
                let total = after.provisioned_gib;
                all.extend(space::overcommitted(PROMISES, total, &inputs.facts));
            }
            let slow = |view: &View| -> Vec<String> {
                let volumes = view.volumes_of(name).filter(|v| slow(view, v).is_some());
                volumes.map(|v| v.name.id.to_string()).collect()
            };
            let (was, is) = (slow(before), slow(after));
            if is.len() > was.len() {
                let named = is
                    .iter()
                    .take(NAMED)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", ");
                let more = match is.len().checked_sub(NAMED) {
                    Some(more @ 1..) => format!(" and {} more", count(more as u64)),
                    _ => String::new(),
                };
                all.push(format!(
                    "automatic QoS now limits {named}{more} to less than 1 MiB/s: limits follow capacity and service level"
                ));
            }
        }
        Mutation::CreateVolume(name, new) => {
            if let Some(volume) = after.volume(name) {
                created(after, volume, new, inputs, &mut all);
            }
        }
        Mutation::UpdateVolume(name, _) => {
            if let (Some(was), Some(is)) = (before.volume(name), after.volume(name)) {
                updated((before, was), (after, is), inputs, &mut all);
            }
        }
        _ => {}
    }
    all
}

/// The owners of provisioned capacity.
const PROMISES: &str = "storage pools and instances";

fn created(view: &View, volume: &Volume, new: &NewVolume, inputs: &Inputs, all: &mut Vec<String>) {
    // A clone shares the blocks of its parent, and a clone of a large volume is large.
    all.extend(beyond(view, volume, inputs));
    all.extend(slow(view, volume));
    all.extend(smb_off(volume, inputs));
    let shared = volume.protocols.contains(&Protocol::Smb);
    let chosen = new.smb.style.is_some();
    if shared && volume.protocols.len() > 1 && !chosen {
        all.push(style(volume));
    }
}

fn updated(
    (before, was): (&View, &Volume),
    (after, is): (&View, &Volume),
    inputs: &Inputs,
    all: &mut Vec<String>,
) {
    if is.capacity_gib > was.capacity_gib {
        all.extend(beyond(after, is, inputs));
    }
    if is.capacity_gib < was.capacity_gib {
        let held = inputs.used.map_or_else(String::new, |used| {
            format!("; its data holds {}", size(used))
        });
        all.push(format!(
            "{} {} shrinks from {} to {}{held}",
            is.name.surface.noun(),
            is.name.id,
            gib(was.capacity_gib),
            gib(is.capacity_gib),
        ));
    }
    if slow(before, was).is_none() {
        all.extend(slow(after, is));
    }
    let shared = |volume: &Volume| volume.protocols.contains(&Protocol::Smb);
    if shared(is) && !shared(was) {
        all.extend(smb_off(is, inputs));
    }
}

/// Warns of capacity beyond the physical space. An instance is a promise like a pool; a volume is a
/// part of one.
fn beyond(view: &View, volume: &Volume, inputs: &Inputs) -> Option<String> {
    let (whose, total) = match volume.pool() {
        None => (PROMISES, view.provisioned_gib),
        Some(_) => ("volumes", view.volumes_gib),
    };
    space::overcommitted(whose, total, &inputs.facts)
}

/// Warns of an automatic limit of less than 1 MiB/s.
fn slow(view: &View, volume: &Volume) -> Option<String> {
    let pool = view.pool_of(volume)?;
    let level = view.levels.pool(&pool.service_level)?;
    if pool.qos_type != QosType::Auto || level.follows != Follows::Volume {
        return None;
    }
    let limit = volume_throughput(&view.levels, pool, volume)?;
    let rate = level.mibps_per_tib?;
    (limit < MIB as u64).then(|| {
        format!(
            "volume {} is limited to {} by automatic QoS ({} MiB/s per TiB, and it has {}): give it more capacity, or a pool with manual QoS",
            volume.name.id,
            words::mibps(limit),
            decimal(rate),
            gib(volume.capacity_gib),
        )
    })
}

fn smb_off(volume: &Volume, inputs: &Inputs) -> Option<String> {
    let off = inputs.facts.smb_off && volume.protocols.contains(&Protocol::Smb);
    off.then(|| {
        format!(
            "this server does not serve SMB (--smb off): clients of SMB cannot reach {} {} until it is started with --smb ADDR:PORT",
            volume.name.surface.noun(),
            volume.name.id,
        )
    })
}

/// Describes the security style of a volume with several protocols.
fn style(volume: &Volume) -> String {
    let id = &volume.name.id;
    match volume.smb.style {
        Some(SecurityStyle::Ntfs) => format!(
            "volume {id} has security style NTFS: its permissions are those that clients of SMB set"
        ),
        Some(SecurityStyle::Unix) | None => format!(
            "volume {id} has security style UNIX: clients of SMB write as the UNIX user that they log on as, and its root belongs to user 0 with mode {:04o}. Security style NTFS, when the volume is made, lets authenticated users of SMB write",
            volume.unix_permissions,
        ),
    }
}

//! `spaceStatus` of pools, volumes and instances: what they hold, and the physical space below
//! them.

use crate::json::Object;
use serde_json::{Value, json};
use weir_control::backend::Facts;
use weir_control::{View, Volume};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Rounds physical space down to whole MiB: the host's own files change it by the block.
fn physical(bytes: u64) -> u64 {
    bytes & !(MIB - 1)
}

/// Returns the status of a storage pool, whose volumes hold `used` bytes.
pub fn of_pool(view: &View, used: u64, facts: &Facts) -> Value {
    let space = facts.space;
    let provisioned = view.provisioned_gib().saturating_mul(GIB);
    let ratio = provisioned as f64 / space.size.max(1) as f64;
    json!({
        "usedBytes": used,
        "physicalSizeBytes": physical(space.size),
        "physicalUsedBytes": physical(space.size) - physical(space.free),
        "physicalFreeBytes": physical(space.free),
        "provisionedBytes": provisioned,
        "overcommitRatio": (ratio * 100.0).round() / 100.0,
    })
}

/// Returns the status of a volume or an instance that holds `used` bytes.
pub fn of_volume(volume: &Volume, used: u64, facts: &Facts) -> Value {
    let space = facts.space;
    let capacity = volume.capacity_gib.saturating_mul(GIB);
    // Saturates: a volume may have been shrunk below what it holds.
    let left = capacity.saturating_sub(used);
    json!({
        "usedBytes": used,
        "freeBytes": left.min(physical(space.free)),
        "physicalSizeBytes": physical(space.size),
        "physicalFreeBytes": physical(space.free),
    })
}

/// Adds a status to a resource. Without a known size there is none.
pub fn set(resource: &mut Object, status: Value, facts: &Facts) {
    if facts.space.size > 0 {
        resource.insert("spaceStatus".to_owned(), status);
    }
}

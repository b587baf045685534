//! Provisioned capacity against physical space.
//!
//! Storage pools and instances are promises: they may exceed the disk. `--overcommit` limits the
//! sum of the promises to a multiple of the physical space. A change that raises the sum beyond the
//! disk gets a warning.

use crate::backend::Facts;
use crate::figures::words::{count, decimal, gib, size};
use crate::refusal::{Refusal, Status};
use crate::view::View;

const GIB: u64 = 1 << 30;

/// Refuses a change from `before` to `after` that provisions more than the limit. A change that
/// does not raise the sum is never refused, so that folders of a server without a limit can be
/// tidied.
pub fn check(before: &View, after: &View, facts: &Facts) -> Result<(), Refusal> {
    let (was, is) = (before.provisioned_gib, after.provisioned_gib);
    let Some(factor) = facts.overcommit else {
        return Ok(());
    };
    let physical = facts.space.size;
    let most = (physical as f64 * factor / GIB as f64).floor() as u64;
    if is <= was || is <= most || physical == 0 {
        return Ok(());
    }
    let left = most.saturating_sub(was);
    let fits = match left {
        0 => "nothing more fits".to_owned(),
        left => format!("{} GiB more fit", count(left)),
    };
    Err(Refusal::new(
        Status::FailedPrecondition,
        "OVERCOMMIT",
        format!(
            "storage pools and instances would have {} in all, and --overcommit {} allows {} GiB on {} of physical space; {fits}",
            gib(is),
            decimal(factor),
            count(most),
            size(physical),
        ),
    )
    .field("capacityGib")
    .with("provisionedGib", was)
    .with("maxProvisionedGib", most))
}

/// Returns a warning if `total_gib`, the capacity of `whose`, exceeds the physical space.
pub fn overcommitted(whose: &str, total_gib: u64, facts: &Facts) -> Option<String> {
    let space = facts.space;
    if space.size == 0 || total_gib.saturating_mul(GIB) <= space.size {
        return None;
    }
    Some(format!(
        "{whose} have {} in all, and this server has {} of physical space ({} free): writes fail with \"no space\" when that is used up",
        gib(total_gib),
        size(space.size),
        size(space.free),
    ))
}

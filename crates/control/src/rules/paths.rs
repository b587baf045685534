//! Export paths of volumes.
//!
//! Share names are unique only within an instance, as in the public APIs, and paths are unique in
//! the server. Clients of an instance mount `IP:/SHARE`, which they construct from the API's reply.
//! So an instance gets an address of its own where the server has addresses for instances
//! (`--instance-addresses`): at that address its share is at `/SHARE` and nothing else is to be
//! seen. Without such addresses all instances are at the server's address, and an instance whose
//! `/SHARE` is taken is refused: its clients would mount the files of another. At the server's
//! address an instance's share is exported under `/INSTANCE/SHARE` as well. A volume's path is the
//! one in its `mountOptions`, so it has only one: `/SHARE`, or if that is taken
//! `/VOLUME/SHARE`. If another project has that as well, project and location are prefixed. Paths
//! do not change while their volume exists, not even when a shorter one becomes free: clients have
//! them in their mount tables. No path is below another one, so a mount is never ambiguous.

use crate::name::{Surface, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::net::IpAddr;
use std::sync::Arc;

/// Returns the address of a new instance, the first that is free; `None` where the server has no
/// addresses for instances.
///
/// # Errors
/// RESOURCE_EXHAUSTED: all are taken.
pub fn address(view: &View) -> Result<Option<IpAddr>, Refusal> {
    let Some(block) = view.instance_addresses else {
        return Ok(None);
    };
    let free = block.hosts().find(|host| view.is_address_free(*host));
    let full = || {
        Refusal::new(
            Status::ResourceExhausted,
            "NO_ADDRESS",
            format!(
                "all addresses of {block} belong to instances; delete one, or restart the server with a larger \
                 --instance-addresses"
            ),
        )
    };
    free.map(Some).ok_or_else(full)
}

/// Returns the paths of a new volume at the server's address, the canonical one first. `alone` is
/// true for an instance with an address of its own.
pub fn new_volume_paths(
    view: &View,
    name: &VolumeName,
    share: &str,
    alone: bool,
) -> Result<Vec<Arc<str>>, Refusal> {
    let short = share.to_owned();
    let own = format!("{}/{share}", name.id);
    let full = full(name, &own);
    if name.surface == Surface::Netapp || alone {
        let short = Some(short).filter(|_| !alone);
        let found = first_free(view, short.into_iter().chain([own, full]));
        return found
            .map(|path| vec![path])
            .ok_or_else(|| taken(view, name, share));
    }
    if !view.is_path_free(share) {
        return Err(mistaken(view, share));
    }
    // If an instance and its share have one name, the short path would be above the canonical one.
    let below = format!("{share}/");
    let canonical = first_free(view, [own, full]);
    let canonical = canonical.filter(|path| !path.starts_with(&below));
    Ok(canonical.into_iter().chain([short.into()]).collect())
}

fn full(name: &VolumeName, own: &str) -> String {
    format!("{}/{}/{own}", name.place.project, name.place.location)
}

fn first_free(view: &View, candidates: impl IntoIterator<Item = String>) -> Option<Arc<str>> {
    let mut candidates = candidates.into_iter();
    candidates
        .find(|path| view.is_path_free(path))
        .map(Arc::from)
}

/// Returns the name of the volume that has a path, for people.
fn owner(view: &View, path: &str) -> String {
    let owner = view.export(path).map(ToString::to_string);
    owner.unwrap_or_else(|| "another volume".to_owned())
}

/// Returns the refusal of an instance whose clients would mount another volume.
fn mistaken(view: &View, share: &str) -> Refusal {
    let owner = owner(view, share);
    Refusal::new(
        Status::AlreadyExists,
        "SHARE_NAME_TAKEN",
        format!(
            "clients would mount share {share} at this server's address as /{share}, where they find {owner}; choose \
             another share name, or start the server with --instance-addresses ADDR/BITS, which gives each instance \
             an address of its own"
        ),
    )
    .field("fileShares[0].name")
}

fn taken(view: &View, name: &VolumeName, share: &str) -> Refusal {
    let owner = owner(view, share);
    Refusal::new(
        Status::AlreadyExists,
        "SHARE_NAME_TAKEN",
        format!(
            "share name {share} would be exported as /{share}, /{id}/{share} or /{full}, and none of these paths is free \
             ({owner} has one of them); choose another",
            id = name.id,
            full = full(name, &format!("{}/{share}", name.id)),
        ),
    )
    .field("shareName")
}

//! Export paths of volumes.
//!
//! Share names are unique only within an instance, as in the public APIs, and paths are unique in
//! the server. An instance's share is exported under `/INSTANCE/SHARE`, and also under `/SHARE` if
//! that is free at its creation: the path that clients construct from the API's reply. A volume's
//! path is the one in its `mountOptions`, so it has only one: `/SHARE`, or if that is taken
//! `/VOLUME/SHARE`. If another project has that as well, project and location are prefixed. Paths
//! do not change while their volume exists, not even when a shorter one becomes free: clients have
//! them in their mount tables. No path is below another one, so a mount is never ambiguous.

use crate::name::{Surface, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::sync::Arc;

/// Returns the paths of a new volume, the canonical one first.
pub fn of(view: &View, name: &VolumeName, share: &str) -> Result<Vec<Arc<str>>, Refusal> {
    let own = format!("{}/{share}", name.id);
    // If an instance and its share have one name, the short path would be above the canonical one.
    if name.surface == Surface::Netapp || share == &*name.id {
        let found = first_free(view, [share.to_owned(), own.clone(), full(name, &own)]);
        return found
            .map(|path| vec![path])
            .ok_or_else(|| taken(view, name, share));
    }
    let found = first_free(view, [own.clone(), full(name, &own)]);
    let canonical = found.ok_or_else(|| taken(view, name, share))?;
    let above = canonical.starts_with(&format!("{share}/"));
    let alias = Some(share).filter(|share| !above && view.is_path_free(share));
    Ok([canonical]
        .into_iter()
        .chain(alias.map(Arc::from))
        .collect())
}

fn full(name: &VolumeName, own: &str) -> String {
    format!("{}/{}/{own}", name.place.project, name.place.location)
}

fn first_free<const N: usize>(view: &View, candidates: [String; N]) -> Option<Arc<str>> {
    let mut candidates = candidates.into_iter();
    candidates
        .find(|path| view.is_path_free(path))
        .map(|path| path.as_str().into())
}

fn taken(view: &View, name: &VolumeName, share: &str) -> Refusal {
    let owner = view.export(share).map(ToString::to_string);
    let owner = owner.unwrap_or_else(|| "another volume".to_owned());
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

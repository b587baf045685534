//! Identifiers: of the server, made of the names that Kubernetes gives; and of CSI, which hold a
//! location besides.

use aws_lc_rs::digest::{SHA256, digest};
use weir_base::hex;
use weir_base::limits::csi::{MAX_ID, MAX_LOCATION};

/// Bytes of a hash in an identifier, as two digits each.
const HASH: usize = 8;

/// Returns 16 hexadecimal digits of the SHA-256 of a text.
pub fn hash(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    hex::encode(&digest.as_ref()[..HASH])
}

fn good(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn is_id(text: &str) -> bool {
    text.len() <= MAX_ID
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(good)
}

/// Returns the identifier for a name: the name itself where the server takes it, else its beginning
/// and a hash of all of it. The same name has the same identifier.
pub fn id_for(name: &str) -> String {
    if is_id(name) {
        return name.to_owned();
    }
    let mut id: String = name
        .chars()
        .map(|c| if good(c) { c } else { '-' })
        .collect();
    if !id.starts_with(|c: char| c.is_ascii_alphabetic()) {
        id.insert_str(0, "v-");
    }
    id.truncate(MAX_ID - 2 * HASH - 1);
    format!("{id}-{}", hash(name))
}

/// A volume: `LOCATION/VOLUME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeId {
    /// The location.
    pub location: String,
    /// The identifier in it.
    pub id: String,
}

impl VolumeId {
    /// Reads the id that CSI knows a volume by.
    ///
    /// `None`: the driver gives no such ids, so there is no such volume.
    pub fn parse(text: &str) -> Option<VolumeId> {
        let (location, id) = text.split_once('/')?;
        let part = |text: &str| {
            let good = |c: char| good(c) || c == '.' || c == ':';
            (1..=100).contains(&text.len()) && text != "-" && text.chars().all(good)
        };
        (part(location) && part(id) && !id.starts_with('.')).then(|| VolumeId {
            location: location.to_owned(),
            id: id.to_owned(),
        })
    }

    /// Reads a resource's name, `projects/P/locations/L/volumes/V`.
    pub fn of_resource(name: &str) -> Option<VolumeId> {
        match name.split('/').collect::<Vec<_>>().as_slice() {
            [_, _, _, location, "volumes", id, ..] => Some(VolumeId {
                location: (*location).to_owned(),
                id: (*id).to_owned(),
            }),
            _ => None,
        }
    }
}

impl std::fmt::Display for VolumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.location, self.id)
    }
}

/// A snapshot: `LOCATION/VOLUME/SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The volume that it is of.
    pub volume: VolumeId,
    /// The identifier in it.
    pub id: String,
}

impl SnapshotId {
    /// Reads the id that CSI knows a snapshot by.
    ///
    /// `None`: the driver gives no such ids, so there is no such snapshot.
    pub fn parse(text: &str) -> Option<SnapshotId> {
        let (volume, id) = text.rsplit_once('/')?;
        let good = |c: char| c.is_ascii_graphic() && c != '/';
        let named = (1..=63).contains(&id.len()) && !id.starts_with('.') && id.chars().all(good);
        Some(SnapshotId {
            volume: VolumeId::parse(volume).filter(|_| named)?,
            id: id.to_owned(),
        })
    }

    /// Reads a resource's name, `projects/P/locations/L/volumes/V/snapshots/S`.
    pub fn of_resource(name: &str) -> Option<SnapshotId> {
        let (_, id) = name.rsplit_once("/snapshots/")?;
        Some(SnapshotId {
            volume: VolumeId::of_resource(name)?,
            id: id.to_owned(),
        })
    }
}

impl std::fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.volume, self.id)
    }
}

/// Returns true for a location whose volumes' and snapshots' ids keep to CSI's 128 bytes.
pub fn is_location(text: &str) -> bool {
    let good = |c: char| good(c) || c == '.';
    (1..=MAX_LOCATION).contains(&text.len()) && text != "-" && text.chars().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_short_and_of_one_name() {
        let uuid = "pvc-123e4567-e89b-12d3-a456-426614174000";
        assert_eq!(id_for(uuid), uuid);
        let long = "x".repeat(128);
        for name in [&*long, "1", "a b", "-", "ends-", "ä", "", "a/../b"] {
            let id = id_for(name);
            assert!(is_id(&id), "{name}: {id}");
            assert_eq!(id, id_for(name));
            assert_ne!(id, id_for(&format!("{name}y")));
        }
        let whole = SnapshotId {
            volume: VolumeId {
                location: "l".repeat(MAX_LOCATION),
                id: id_for(&long),
            },
            id: id_for(&long),
        };
        assert!(whole.to_string().len() <= 128);
        assert_eq!(SnapshotId::parse(&whole.to_string()), Some(whole));
    }

    #[test]
    fn ids_of_others_are_none() {
        for text in ["", "v", "a/b/c", "/v", "l/", "-/v", "l/..", "l/a b"] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        for text in ["", "v", "a/b", "a/b/", "a/b/c/d", "a/b/.."] {
            assert_eq!(SnapshotId::parse(text), None, "{text}");
        }
        let name = "projects/p/locations/l/volumes/v/snapshots/s";
        assert_eq!(SnapshotId::of_resource(name).unwrap().to_string(), "l/v/s");
        assert_eq!(VolumeId::of_resource(name).unwrap().to_string(), "l/v");
    }
}

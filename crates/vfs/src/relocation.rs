//! Volumes that move between aggregates, as clients meet them.
//!
//! Near the end of a move the source *holds* requests: they wait. When the volume has *departed*,
//! they are evaluated again, and calls of NFSv3 are forwarded to the destination.
//!
//! Handles do not change by a move. A volume has the *origin* under which its first handles were
//! made: the key of that aggregate, and its number there. Wherever it is served, its handles are
//! made and verified by its origin, so that clients see the same inodes. Only handles into
//! snapshots are those of the aggregate that serves: numbers of snapshots differ between
//! aggregates, and a handle of the origin must not lead to another snapshot.
//!
//! A server that has nothing of all this reads one word for each request.

use crate::handle::{AGGREGATE_BYTES, BadHandle, FileId, HANDLE_BYTES, HandleKey, Namespace};
use crate::rare::{Contents, Rare};
use crate::signal::Signal;
use std::collections::HashMap;
use std::sync::Arc;
use weir_base::VolumeId;

/// Identity under which a volume's handles are made.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Key of the aggregate in which the volume was created.
    pub key: HandleKey,
    /// Number of the volume in it.
    pub volume: VolumeId,
}

/// A volume that another server has now, although its row is still here.
#[derive(Clone, Debug)]
struct DepartedVolume {
    /// Identity of the aggregate that has it.
    to: [u8; 16],
    /// Paths that lead to it.
    paths: Vec<String>,
}

#[derive(Clone, Default)]
struct Table {
    held: HashMap<VolumeId, Arc<Signal<()>>>,
    departed: HashMap<VolumeId, DepartedVolume>,
    origins: HashMap<VolumeId, Origin>,
    /// Volumes by their origin: first bytes of the aggregate's identity, and number.
    locals: HashMap<([u8; AGGREGATE_BYTES], VolumeId), VolumeId>,
}

impl Contents for Table {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.departed.is_empty() && self.origins.is_empty()
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Relocations {
    table: Rare<Table>,
}

impl Relocations {
    /// Returns true if a volume of this server is moving, has moved or came from elsewhere.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.table.is_used()
    }

    /// Holds requests about a volume from now on.
    pub fn hold(&self, volume: VolumeId) {
        self.table.change(|table| {
            table.held.entry(volume).or_default();
        });
    }

    /// Evaluates the requests that were held again.
    pub fn release(&self, volume: VolumeId) {
        let mut held = None;
        self.table.change(|table| held = table.held.remove(&volume));
        if let Some(held) = held {
            held.set(());
        }
    }

    /// Forwards requests about a volume to another aggregate from now on, those that are held among
    /// them. `paths` lead to the volume.
    pub fn depart(&self, volume: VolumeId, to: [u8; 16], paths: Vec<String>) {
        self.table.change(|table| {
            table.departed.insert(volume, DepartedVolume { to, paths });
        });
        self.release(volume);
    }

    /// Makes and verifies a volume's handles by its origin from now on.
    pub fn arrive(&self, volume: VolumeId, origin: Origin) {
        self.table.change(|table| {
            table.origins.insert(volume, origin);
            let former = (origin.key.aggregate(), origin.volume);
            table.locals.insert(former, volume);
        });
    }

    /// Forgets a volume that is served no longer.
    pub fn forget(&self, volume: VolumeId) {
        if !self.is_used() {
            return;
        }
        self.table.change(|table| {
            table.departed.remove(&volume);
            table.origins.remove(&volume);
            table.locals.retain(|_, local| *local != volume);
        });
        self.release(volume);
    }

    /// Returns the event that requests about a volume wait for, if they are held.
    #[inline]
    pub(crate) fn held(&self, volume: VolumeId) -> Option<Arc<Signal<()>>> {
        self.table.read()?.held.get(&volume).cloned()
    }

    /// Returns the aggregate, by the first bytes of its identity, and the number under which a
    /// volume's handles are made, if it came from another aggregate.
    pub fn origin(&self, volume: VolumeId) -> Option<([u8; AGGREGATE_BYTES], VolumeId)> {
        let table = self.table.read()?;
        let origin = table.origins.get(&volume)?;
        Some((origin.key.aggregate(), origin.volume))
    }

    /// Returns the identity of the aggregate that a volume has departed to.
    #[inline]
    pub(crate) fn departed(&self, volume: VolumeId) -> Option<[u8; 16]> {
        Some(self.table.read()?.departed.get(&volume)?.to)
    }

    /// Returns the identity of the aggregate to which the volume at this path, or above it, has
    /// departed.
    pub(crate) fn departed_path(&self, path: &str) -> Option<[u8; 16]> {
        let is_in = |of: &String| {
            let below = path.strip_prefix(of.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let table = self.table.read()?;
        let mut departed = table.departed.values();
        let found = departed.find(|departed| departed.paths.iter().any(is_in));
        found.map(|departed| departed.to)
    }

    /// Returns the handle of a file; `own` is the key of the aggregate that is served.
    #[inline]
    pub(crate) fn encode(&self, own: &HandleKey, file: FileId) -> [u8; HANDLE_BYTES] {
        let table = self.table.read();
        let origin = table.as_ref().and_then(|t| t.origins.get(&file.volume));
        match origin {
            Some(origin) if !matches!(file.namespace, Namespace::Snapshot(_)) => {
                origin.key.encode(FileId {
                    volume: origin.volume,
                    ..file
                })
            }
            _ => own.encode(file),
        }
    }

    /// Returns the file that a handle names.
    #[inline]
    pub(crate) fn decode(&self, own: &HandleKey, handle: &[u8]) -> Result<FileId, BadHandle> {
        let Some(table) = self.table.read() else {
            return own.decode(handle);
        };
        let former = HandleKey::parts_of(handle).ok_or(BadHandle)?;
        let local = table.locals.get(&former).copied();
        let found = local.and_then(|local| Some((local, table.origins.get(&local)?)));
        match found {
            Some((local, origin)) => {
                let file = origin.key.decode(handle)?;
                match file.namespace {
                    Namespace::Snapshot(_) => Err(BadHandle),
                    _ => Ok(FileId {
                        volume: local,
                        ..file
                    }),
                }
            }
            None => own.decode(handle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::Ino;

    fn file(volume: u64, namespace: Namespace) -> FileId {
        FileId {
            volume: VolumeId(volume),
            ino: Ino(9),
            namespace,
        }
    }

    #[test]
    fn handles_are_those_of_the_origin_wherever_the_volume_is() {
        let (a, b) = (
            HandleKey::new([1; 16], [0xa; 16]),
            HandleKey::new([2; 16], [0xb; 16]),
        );
        let relocations = Relocations::default();
        let before = a.encode(file(5, Namespace::Live));
        assert!(relocations.decode(&b, &before).is_err());
        let origin = Origin {
            key: a,
            volume: VolumeId(5),
        };
        relocations.arrive(VolumeId(70), origin);
        for namespace in [Namespace::Live, Namespace::Snapshots] {
            let here = file(70, namespace);
            let handle = relocations.encode(&b, here);
            assert_eq!(handle, a.encode(file(5, namespace)));
            assert_eq!(relocations.decode(&b, &handle), Ok(here));
        }
        // Numbers of snapshots are not those of the origin.
        let snapshot = file(70, Namespace::Snapshot(3));
        let handle = relocations.encode(&b, snapshot);
        assert_eq!(relocations.decode(&b, &handle), Ok(snapshot));
        let old = a.encode(file(5, Namespace::Snapshot(3)));
        assert!(relocations.decode(&b, &old).is_err());
        // Others are not touched, and forged ones are refused.
        let other = file(71, Namespace::Live);
        assert_eq!(relocations.encode(&b, other), b.encode(other));
        assert_eq!(relocations.decode(&b, &b.encode(other)), Ok(other));
        let forged = HandleKey::new([9; 16], [0xa; 16]).encode(file(5, Namespace::Live));
        assert!(relocations.decode(&b, &forged).is_err());
        // A volume that came back: its handles name a number that is not used any more.
        relocations.arrive(VolumeId(72), Origin { key: b, ..origin });
        let again = b.encode(file(5, Namespace::Live));
        let found = relocations.decode(&b, &again).map(|file| file.volume);
        assert_eq!(found, Ok(VolumeId(72)));
        relocations.forget(VolumeId(70));
        assert!(relocations.decode(&b, &before).is_err());
    }

    #[test]
    fn requests_wait_until_the_volume_is_released_or_has_departed() {
        let (volume, relocations) = (VolumeId(4), Relocations::default());
        assert!(relocations.held(volume).is_none());
        relocations.hold(volume);
        let first = relocations.held(volume).unwrap();
        relocations.hold(volume);
        assert!(relocations.held(VolumeId(5)).is_none());
        relocations.release(volume);
        assert_eq!(first.get(), Some(()), "a second hold keeps the first");
        assert!(relocations.held(volume).is_none());
        relocations.hold(volume);
        let held = relocations.held(volume).unwrap();
        relocations.depart(volume, [7; 16], vec!["/a/b".to_owned()]);
        assert_eq!(held.get(), Some(()));
        assert_eq!(relocations.departed(volume), Some([7; 16]));
        for (path, is_there) in [
            ("/a/b", true),
            ("/a/b/c", true),
            ("/a/bc", false),
            ("/a", false),
        ] {
            assert_eq!(
                relocations.departed_path(path).is_some(),
                is_there,
                "{path}"
            );
        }
        relocations.forget(volume);
        assert_eq!(relocations.departed(volume), None);
        assert!(!relocations.is_used());
    }
}

//! Comparable summary of the state that two copies of an aggregate have in common: for
//! verification, and for tests.

use std::sync::Arc;

use weir_base::{Time, VolumeId};
use weir_store::tree::{Diff, TreeRoot};

use crate::format::content::{ContentHash, RecordHasher};
use crate::format::mark::MarkId;
use crate::format::record::{InodeRec, kind};
use crate::lifecycle::engine::Engine;
use crate::lifecycle::sending::Source;
use crate::overlay::context::EngineContext;
use crate::overlay::volume::Volume;
use crate::types::FsError;

/// State of a volume, without the data that each copy chooses itself: addresses, generations,
/// access times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeState {
    /// Number of the volume.
    pub id: VolumeId,
    /// Name of the volume.
    pub name: String,
    /// Capacity in bytes; 0: no limit.
    pub limit: u64,
    /// The text that is stored with the volume.
    pub annotation: Arc<str>,
    /// Volume and snapshot that it is a clone of.
    pub origin: Option<(VolumeId, u32)>,
    /// Hash of its tree.
    pub contents: ContentHash,
    /// Number, name, label, creation and contents of its snapshots, oldest first.
    pub snapshots: Vec<(u32, String, String, Time, ContentHash)>,
}

impl Volume {
    fn hash_tree(&self) -> Result<ContentHash, FsError> {
        let root = self.root.load_full();
        let keyed = RecordHasher::new(self.key.get());
        let mut diff = Diff::new(&TreeRoot::EMPTY, &root.root);
        let mut hash = ContentHash::default();
        let source = Source(self);
        let mut inode = None;
        while let Some(found) = diff.advance(&source).map_err(|_| FsError::Io)? {
            let Some(mut value) = found.new.map(|value| value.to_vec()) else {
                // Nothing is removed in the difference to the empty tree.
                continue;
            };
            if found.key.kind == kind::INODE {
                inode = Some(found.key.ino);
            }
            if inode != Some(found.key.ino) {
                // Each side deletes the records of removed inodes at its own pace; an unlinked
                // inode's own record says that it has no name.
                continue;
            }
            if found.key.kind == kind::INODE {
                let mut rec = InodeRec::decode(&value).ok_or(FsError::Io)?;
                rec.atime = Time::EPOCH;
                value.clear();
                rec.encode(&mut value);
            }
            let element = keyed
                .element(&found.key, &value)
                .map_err(|()| FsError::Io)?;
            if let Some(element) = element {
                hash.add(element);
            }
        }
        Ok(hash)
    }
}

impl Engine {
    /// Returns the state of all volumes as of the last checkpoint, by number. Two copies at one
    /// position of a stream have the same state, once both have taken a checkpoint and freed
    /// removed data ([`Engine::reclaiming`]). Reads all nodes; blocks the thread.
    ///
    /// # Errors
    /// `Io`.
    pub fn state_hash(&self) -> Result<Vec<VolumeState>, FsError> {
        let mut all = Vec::new();
        for vol in self.volumes() {
            let mut snapshots = Vec::new();
            for s in vol.snapshots() {
                let view = vol.open_snapshot(&s.name)?;
                snapshots.push((s.id, s.name, s.label, s.created, view.hash_tree()?));
            }
            all.push(VolumeState {
                id: vol.id(),
                name: vol.name().to_owned(),
                limit: vol.space.limit(),
                annotation: vol.annotation(),
                origin: vol.origin(),
                contents: vol.hash_tree()?,
                snapshots,
            });
        }
        Ok(all)
    }

    /// Returns the state of each volume at a mark, by number, in the form in which it is sent. Two
    /// copies that have the mark from one stream have the same state, once a checkpoint of each has
    /// it. Reads all nodes; blocks the thread.
    ///
    /// # Errors
    /// `Io`; `NotFound` if the mark is being dropped.
    pub fn mark_hashes(
        &self,
        mark: MarkId,
    ) -> Result<Vec<(VolumeId, [u8; ContentHash::LEN])>, FsError> {
        let mut all = Vec::new();
        for vol in self.cp.table().list_volumes() {
            let marks = vol.live().snaps.lock().marks();
            let Some((_, id)) = marks.into_iter().find(|(of, _)| *of == mark) else {
                // The volume was made after the mark.
                continue;
            };
            let mut cx = EngineContext::new(Time::EPOCH);
            let view = vol.drive_blocking(&mut cx, |_| vol.volume().view(id))?;
            all.push((vol.id, view.hash_tree()?.encode()));
        }
        Ok(all)
    }
}

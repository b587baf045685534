//! Computes the hash of a snapshot's contents ([`ContentHash`]), and verifies a completed transfer
//! with it.

use std::sync::Arc;

use smallvec::SmallVec;
use weir_base::Ino;
use weir_store::tree::{Diff, TreeRoot};

use crate::format::content::{ContentHash, RecordHasher};
use crate::lifecycle::mirror::SnapshotHold;
use crate::lifecycle::receive::Receive;
use crate::lifecycle::sending::Source;
use crate::overlay::inode::malformed;
use crate::overlay::root::RootState;
use crate::overlay::volume::{Live, Volume};
use crate::types::FsError;
use weir_base::SnapshotIdentity;

/// The computation of a [`ContentHash`], in steps: from that of an older snapshot over the
/// difference, or over everything.
pub struct ContentWalk {
    volume: Arc<Volume>,
    /// Both roots, held so that none of their blocks is reused.
    _roots: [Arc<RootState>; 2],
    _holds: SmallVec<[SnapshotHold; 2]>,
    diff: Diff,
    keyed: RecordHasher,
    hash: ContentHash,
    /// The snapshot whose hash is computed, to be stored there.
    target: Option<u32>,
    done: bool,
}

impl ContentWalk {
    fn new(
        volume: &Arc<Volume>,
        old: Option<(Arc<RootState>, ContentHash)>,
        new: Arc<RootState>,
        holds: SmallVec<[SnapshotHold; 2]>,
        target: Option<u32>,
    ) -> ContentWalk {
        let empty = || (RootState::new(TreeRoot::EMPTY), ContentHash::default());
        let (old, hash) = old.unwrap_or_else(empty);
        ContentWalk {
            diff: Diff::new(&old.root, &new.root),
            keyed: RecordHasher::new(volume.key.get()),
            volume: Arc::clone(volume),
            _roots: [old, new],
            _holds: holds,
            hash,
            target,
            done: false,
        }
    }

    /// Processes up to `most` differences; returns `None` if more remain. Blocks the thread while
    /// it reads.
    ///
    /// # Errors
    /// `Io` if the tree cannot be read.
    pub fn advance(&mut self, most: usize) -> Result<Option<ContentHash>, FsError> {
        for _ in 0..most {
            if self.done {
                break;
            }
            let found = self.diff.advance(&Source(&self.volume));
            let found = found.map_err(|stop| {
                let error = crate::format::reading::blocking(stop);
                tracing::error!(volume = %self.volume.id, %error, "cannot read a snapshot to verify it");
                FsError::Io
            })?;
            let Some(found) = found else {
                self.done = true;
                if let Some(id) = self.target {
                    self.volume.note_content(id, self.hash);
                }
                break;
            };
            let element = |value: &[u8]| {
                self.keyed.element(&found.key, value).map_err(|()| {
                    malformed(self.volume.id, Ino(found.key.ino), "extent");
                    FsError::Io
                })
            };
            let old = found.old.as_deref().map(element).transpose()?.flatten();
            let new = found.new.as_deref().map(element).transpose()?.flatten();
            if let Some(old) = old {
                self.hash.sub(old);
            }
            if let Some(new) = new {
                self.hash.add(new);
            }
        }
        Ok(self.done.then_some(self.hash))
    }

    /// Continues to the end.
    ///
    /// # Errors
    /// As [`ContentWalk::advance`].
    pub fn finish(mut self) -> Result<ContentHash, FsError> {
        loop {
            if let Some(hash) = self.advance(usize::MAX)? {
                return Ok(hash);
            }
        }
    }
}

impl Volume {
    /// Returns the hash of a snapshot's contents, if it was computed before.
    pub fn content(&self, identity: SnapshotIdentity) -> Option<ContentHash> {
        let snaps = self.as_live()?.snaps.lock();
        snaps.content(snaps.with_identity(identity)?)
    }

    fn note_content(&self, id: u32, hash: ContentHash) {
        let news = |live: &Live| live.snaps.lock().note_content(id, hash);
        if self.as_live().is_some_and(news) {
            self.core.schedule.note_changed(self.id);
        }
    }

    /// Starts computing the hash of a snapshot's contents, from the nearest older snapshot with a
    /// known hash. Both are held meanwhile. If the snapshot is very new, blocks until a checkpoint
    /// has made it.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`.
    pub fn content_walk(
        self: &Arc<Self>,
        identity: SnapshotIdentity,
    ) -> Result<ContentWalk, FsError> {
        let mut holds = SmallVec::new();
        let target = self.hold_identity(identity)?;
        let id = target.id();
        let new = self.open_held(&target)?.root.load_full();
        holds.push(target);
        let known = self.live()?.snaps.lock().known_content(id);
        let old = match known {
            Some((older, hash)) => {
                let hold = self.hold_identity(older)?;
                let root = self.open_held(&hold)?.root.load_full();
                holds.push(hold);
                Some((root, hash))
            }
            None => None,
        };
        Ok(ContentWalk::new(self, old, new, holds, Some(id)))
    }
}

impl Receive {
    /// Starts computing the hash of the received contents, from this volume's own tree: as of the
    /// last checkpoint, and starting from the snapshot that clients see.
    ///
    /// # Errors
    /// `NotFound` if the hash of that snapshot is not known: call [`Volume::content_walk`] first.
    pub fn content_walk(&self) -> Result<ContentWalk, FsError> {
        let volume = self.volume();
        let mut holds = SmallVec::new();
        let old = match self.base() {
            Some(base) => {
                let hash = volume.content(base).ok_or(FsError::NotFound)?;
                let hold = volume.hold_identity(base)?;
                let root = volume.open_held(&hold)?.root.load_full();
                holds.push(hold);
                Some((root, hash))
            }
            None => None,
        };
        let new = volume.root.load_full();
        Ok(ContentWalk::new(volume, old, new, holds, None))
    }
}

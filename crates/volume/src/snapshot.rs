//! Snapshots: roots that are kept, dead lists, and the difference of two roots.
//!
//! Making a snapshot is writing down a root. From then on a block that the volume
//! drops is freed only if it was born after the newest snapshot; if not, the
//! snapshot refers to it, and it is noted in that snapshot's *dead list* (Matthew
//! Ahrens, "Is it magic? How ZFS implements snapshots", 2005). The list of
//! snapshot S so holds what died between S and its successor, and deleting S is
//! deciding for each block on it: born after S's predecessor P, nobody else refers
//! to it and it is freed; born before, P refers to it, and it moves to P's list.
//! That costs what the list holds, however large the volume is.
//!
//! Requests are carried out by the next consistency point, which makes them
//! atomic and durable with everything before them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_base::{Generation, Ino, Time};
use weir_store::cp::Run;
use weir_store::node::Key;
use weir_store::tree::{self, Edit, NodeSource, TreeRoot};
use weir_store::{CpWriter, StoreError};

use crate::catalog::{
    Catalog, DEAD_RUNS, DeadRun, MAX_VOLUME_NAME, SnapshotRec, VolumeRec, decode_dead, encode_dead,
};
use crate::merge::{blocking, scan};
use crate::record::kind;
use crate::types::FsError;
use crate::volume::{RootState, Volume};

/// A snapshot, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Number within the volume; later ones are greater.
    pub number: u32,
    /// Name.
    pub name: String,
    /// When it was made.
    pub created: Time,
}

/// One difference between two roots of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// The inode.
    pub ino: Ino,
    /// Which of its records.
    pub part: Part,
    /// The old root has the record.
    pub in_old: bool,
    /// The new root has the record.
    pub in_new: bool,
}

/// A sort of record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Attributes.
    Inode,
    /// A piece of a link target.
    Symlink,
    /// The directory entry with this cookie.
    Entry(u64),
    /// The 32 file blocks from this one on.
    Data(u64),
    /// Internal records.
    Other,
}

/// What a consistency point knows of a volume when its tree is merged.
pub(crate) struct VolumeState {
    pub(crate) root: TreeRoot,
    pub(crate) next_ino: u64,
    pub(crate) limit: u64,
    pub(crate) used: u64,
    pub(crate) retained: Vec<Run>,
}

impl Catalog {
    /// Carries out requested deletions. Before the volume's own merge.
    pub(crate) fn delete_snapshots(
        &mut self,
        vol: &Volume,
        cp: &mut CpWriter,
        src: &impl NodeSource,
        edits: &mut Vec<Edit>,
    ) -> Result<(), StoreError> {
        for number in std::mem::take(&mut self.pending_delete) {
            let Some(doomed) = self.snapshots.remove(&number) else {
                continue;
            };
            let older = self
                .snapshots
                .range_mut(..number)
                .next_back()
                .map(|(_, s)| s);
            let since = older.as_ref().map_or(Generation(0), |s| s.generation);
            let mut moved = Vec::new();
            let root = vol.core.agg.root();
            let from = SnapshotRec::dead_key(vol.id, number, 0);
            let to = SnapshotRec::dead_key(vol.id, number, u32::MAX);
            let mut list = Vec::new();
            scan(src, &root, from, to, &mut |key, value| {
                list.push((key, decode_dead(value)));
                ControlFlow::Continue(())
            })?;
            for (key, runs) in list {
                let runs =
                    runs.ok_or_else(|| StoreError::Format("a dead list is malformed".into()))?;
                for run in runs {
                    if run.birth > since {
                        cp.release(Run {
                            addr: run.addr,
                            count: run.count,
                            birth: run.birth,
                        });
                    } else {
                        moved.push(run);
                    }
                }
                edits.push(Edit::Del(key));
            }
            if let Some(older) = older {
                append_dead(vol, older, &moved, edits);
                edits.push(Edit::Put(
                    SnapshotRec::key(vol.id, older.number),
                    older.encode(),
                ));
            }
            edits.push(Edit::Del(SnapshotRec::key(vol.id, doomed.number)));
        }
        Ok(())
    }

    /// Writes down the volume as it is after its merge, and the snapshots that
    /// were asked for.
    pub(crate) fn record(
        &mut self,
        vol: &Volume,
        generation: Generation,
        state: VolumeState,
        edits: &mut Vec<Edit>,
    ) {
        if let Some(newest) = self.snapshots.values_mut().next_back()
            && !state.retained.is_empty()
        {
            let runs: Vec<DeadRun> = state
                .retained
                .iter()
                .map(|r| DeadRun {
                    addr: r.addr,
                    count: r.count,
                    birth: r.birth,
                })
                .collect();
            append_dead(vol, newest, &runs, edits);
            let key = SnapshotRec::key(vol.id, newest.number);
            edits.retain(|e| e.key() != key);
            edits.push(Edit::Put(key, newest.encode()));
        }
        for (name, created) in std::mem::take(&mut self.pending_create) {
            let number = self.rec.next_snapshot;
            self.rec.next_snapshot += 1;
            let snapshot = SnapshotRec {
                number,
                name,
                root: state.root,
                generation,
                created,
                dead_pieces: 0,
            };
            edits.push(Edit::Put(
                SnapshotRec::key(vol.id, number),
                snapshot.encode(),
            ));
            self.snapshots.insert(number, snapshot);
        }
        let rec = VolumeRec {
            root: state.root,
            next_ino: state.next_ino,
            limit: state.limit,
            used: state.used,
            ..self.rec.clone()
        };
        if !self.stored || rec != self.rec {
            edits.push(Edit::Put(VolumeRec::key(vol.id), rec.encode()));
            self.stored = true;
        }
        self.rec = rec;
    }
}

/// Adds runs to a snapshot's dead list. The snapshot's own record is put by the
/// caller.
fn append_dead(vol: &Volume, snapshot: &mut SnapshotRec, runs: &[DeadRun], edits: &mut Vec<Edit>) {
    for piece in runs.chunks(DEAD_RUNS) {
        let key = SnapshotRec::dead_key(vol.id, snapshot.number, snapshot.dead_pieces);
        snapshot.dead_pieces += 1;
        edits.push(Edit::Put(key, encode_dead(piece)));
    }
}

impl Volume {
    /// Makes a snapshot of everything that has been answered until now. Waits for
    /// the consistency point that does it.
    ///
    /// # Errors
    /// `Exists`, `Invalid` for an empty name, `NameTooLong`, `ReadOnly`.
    pub fn snapshot_create(&self, name: &str, now: Time) -> Result<(), FsError> {
        if name.is_empty() {
            return Err(FsError::Invalid);
        }
        if name.len() > MAX_VOLUME_NAME {
            return Err(FsError::NameTooLong);
        }
        {
            let mut catalog = self.catalog.lock();
            let pending = catalog.pending_create.iter().any(|(n, _)| n == name);
            if pending || catalog.snapshots.values().any(|s| s.name == name) {
                return Err(FsError::Exists);
            }
            catalog.pending_create.push((name.to_owned(), now));
        }
        self.core.cp_now()
    }

    /// Deletes a snapshot. Waits for the consistency point that does it.
    ///
    /// # Errors
    /// `NotFound`, `ReadOnly`.
    pub fn snapshot_delete(&self, name: &str) -> Result<(), FsError> {
        {
            let mut catalog = self.catalog.lock();
            let number = catalog
                .snapshots
                .values()
                .find(|s| s.name == name)
                .map(|s| s.number)
                .ok_or(FsError::NotFound)?;
            catalog.pending_delete.push(number);
        }
        self.core.cp_now()
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.catalog
            .lock()
            .snapshots
            .values()
            .map(|s| Snapshot {
                number: s.number,
                name: s.name.clone(),
                created: s.created,
            })
            .collect()
    }

    /// A snapshot as a volume that cannot be changed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_snapshot(&self, name: &str) -> Result<Arc<Volume>, FsError> {
        let catalog = self.catalog.lock();
        let snapshot = catalog
            .snapshots
            .values()
            .find(|s| s.name == name)
            .ok_or(FsError::NotFound)?;
        let root = RootState::new(snapshot.root, self.core.agg.life());
        let rec = VolumeRec {
            root: snapshot.root,
            ..catalog.rec.clone()
        };
        let mut view = Volume::new(Arc::clone(&self.core), self.id, rec, root);
        view.read_only = true;
        view.used
            .store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(Arc::new(view))
    }

    /// What differs between the committed trees of two views of one volume, at a
    /// cost proportional to the difference. Blocks the calling thread.
    ///
    /// # Errors
    /// As the store's.
    pub fn diff(&self, newer: &Volume) -> Result<Vec<Difference>, StoreError> {
        let (old, new) = (self.root.load_full(), newer.root.load_full());
        let src = self.core.agg.source();
        let mut out = Vec::new();
        tree::diff(&src, &old.root, &new.root, &mut |key, a, b| {
            out.push(Difference {
                ino: Ino(key.ino),
                part: part_of(&key),
                in_old: a.is_some(),
                in_new: b.is_some(),
            });
            Ok(())
        })
        .map_err(blocking)?;
        Ok(out)
    }
}

fn part_of(key: &Key) -> Part {
    match key.kind {
        kind::INODE => Part::Inode,
        kind::SYMLINK => Part::Symlink,
        kind::DIRENT => Part::Entry(key.sub),
        kind::EXTENT => Part::Data(key.sub),
        _ => Part::Other,
    }
}

//! Makes and drops marks ([`crate::format::mark`]).
//!
//! **Validity.** A mark contains unstable writes, as any snapshot does. A crash of the primary
//! before the next checkpoint loses them there, but not at the partner, which logs everything. So a
//! mark that is in the log only is not replayed, unless it came as an entry of a stream.

use weir_base::limits::engine::SEALED_MOST;

use crate::format::edit::{Edits, SnapshotEdit};
use crate::format::mark::MarkId;
use crate::lifecycle::engine::Engine;
use crate::overlay::snapshots::{Change, SnapshotProperties};
use crate::overlay::volume::LiveVolume;
use crate::types::{FsError, Stop};

/// Number of marks that are kept.
const KEPT: usize = 2;

impl Engine {
    /// Returns the marks of this side, oldest first. Volumes made after a mark, and clones split
    /// since, may lack it.
    pub fn marks(&self) -> Vec<MarkId> {
        let mut all: Vec<MarkId> = Vec::new();
        for vol in self.cp.table().list_volumes() {
            all.extend(
                vol.live()
                    .snaps
                    .lock()
                    .marks()
                    .iter()
                    .map(|(mark, _)| *mark),
            );
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Makes a mark, at the partner too if there is a stream, and drops all but the two newest.
    /// Durable on this side on return.
    ///
    /// # Errors
    /// `Busy` while a clone is being split or a volume is being reverted; `NoSpace` if a volume can
    /// have no more snapshots; `ReadOnly`, `Delay`.
    pub fn make_mark(&self) -> Result<MarkId, FsError> {
        let volumes = self.cp.table().list_volumes();
        let admins: Vec<_> = volumes.iter().map(|vol| vol.live().admin.lock()).collect();
        self.prepare_mark(&volumes)?;
        let mark = self.next_mark();
        let core = &self.core;
        core.epoch_lock()
            .exclusive(|| self.seal_mark(mark, &volumes))?;
        drop(admins);
        self.cp_now()?;
        let marks = self.marks();
        // Saturates: there may be fewer.
        let dropped = marks.len().saturating_sub(KEPT);
        let dropped = marks.get(..dropped).unwrap_or_default();
        self.drop_marks(|mark| dropped.contains(&mark))?;
        Ok(mark)
    }

    pub(crate) fn next_mark(&self) -> MarkId {
        let term = self.position().term;
        MarkId::after(self.core.last_mark(), term)
    }

    /// Waits for the resources that [`Engine::seal_mark`] needs. The caller holds the volumes'
    /// `admin` locks.
    pub(crate) fn prepare_mark(&self, volumes: &[LiveVolume]) -> Result<(), FsError> {
        let bytes = 128 * (1 + volumes.len() as u64);
        self.core.schedule.admit_blocking(bytes)?;
        let many = |vol: &LiveVolume| vol.live().segments.sealed() >= SEALED_MOST;
        if volumes.iter().any(many) {
            self.cp_now()?;
        }
        Ok(())
    }

    /// Makes the snapshots of a mark. The epoch lock is held exclusively.
    pub(crate) fn seal_mark(&self, mark: MarkId, volumes: &[LiveVolume]) -> Result<(), FsError> {
        let core = &self.core;
        let (name, now) = (mark.name(), core.agg.clock().current_time());
        let mut ids = Vec::with_capacity(volumes.len());
        for vol in volumes {
            vol.live().standing.free()?;
            if vol.splitting() {
                return Err(FsError::Busy);
            }
            ids.push(vol.live().snaps.lock().place_for_mark()?);
        }
        for (vol, id) in volumes.iter().zip(ids) {
            let mut edits = Edits::new(vol.id, 64);
            edits.snapshot(SnapshotEdit::Made {
                id,
                created: now,
                name: &name,
                label: "",
            });
            core.log.append(edits).map_err(Stop::refusal)?;
            let made = SnapshotProperties {
                id,
                name: name.clone(),
                label: String::new(),
                created: now,
                place: 0,
            };
            vol.seal(vol.live(), made);
        }
        Ok(())
    }

    /// Drops marks, at the partner too if there is a stream; their space is freed in the
    /// background.
    ///
    /// # Errors
    /// `ReadOnly`, `Delay`.
    pub fn drop_marks(&self, dropped: impl Fn(MarkId) -> bool) -> Result<(), FsError> {
        for vol in self.cp.table().list_volumes() {
            let _admin = vol.live().admin.lock();
            self.drop_marks_of(&vol, &dropped)?;
        }
        Ok(())
    }

    /// Like [`Engine::drop_marks`], for one volume; the caller holds its `admin` lock.
    pub(crate) fn drop_marks_of(
        &self,
        vol: &LiveVolume,
        dropped: impl Fn(MarkId) -> bool,
    ) -> Result<(), FsError> {
        let marks = vol.live().snaps.lock().marks();
        for (_, id) in marks.into_iter().filter(|(mark, _)| dropped(*mark)) {
            self.core.schedule.admit_blocking(64)?;
            let _pass = self.core.epoch_lock().enter();
            let mut edits = Edits::new(vol.id, 16);
            edits.snapshot(SnapshotEdit::Gone { id });
            self.core.log.append(edits).map_err(Stop::refusal)?;
            vol.live().snaps.lock().apply(Change::Remove(id));
            self.core.schedule.note_changed(vol.id);
        }
        Ok(())
    }
}

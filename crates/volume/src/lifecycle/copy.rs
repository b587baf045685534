//! The receiving side of a [`Round`](crate::Round): a copy is brought up to a mark.
//!
//! Its entries are applied like those of a stream ([`crate::lifecycle::standby`]), in order. They
//! are records of the log's form, which are logged, and steps ([`crate::format::step`]), each of
//! which is a checkpoint. So an interrupted copy resumes exactly after the last entry that it has.
//!
//! From the first entry to the last the copy is in a state that the primary never had, which its
//! position records. It neither takes over nor becomes a primary. The snapshots of the mark from
//! which it began are complete meanwhile.

use weir_base::{Lsn, VolumeId};

use crate::format::catalog::StreamPosition;
use crate::format::mark::MarkId;
use crate::format::step::{Step, VolumeStep};
use crate::lifecycle::engine::Engine;
use crate::lifecycle::standby::StandbyError;
use crate::overlay::snapshots::Change;
use crate::overlay::volume::LiveVolume;
use crate::types::{FsError, Stop};

/// Returns the snapshot of a mark in a volume.
fn mark_of(vol: &LiveVolume, mark: MarkId) -> Option<u32> {
    let marks = vol.live().snaps.lock().marks();
    let found = marks.into_iter().find(|(of, _)| *of == mark);
    found.map(|(_, id)| id)
}

impl Engine {
    /// Carries out a step of the round that brings this copy up to a mark.
    pub(crate) fn apply_step(
        &self,
        at: StreamPosition,
        step: Step<'_>,
    ) -> Result<Lsn, StandbyError> {
        let mark = at.mark().ok_or_else(|| {
            StandbyError::Malformed("the stream contains a step of a round".to_owned())
        })?;
        let mut after = at;
        match step {
            Step::Begin { base } => self.return_to(mark, base)?,
            Step::Volume(step) => self.take_volume(&step)?,
            Step::Forget => self.core.epoch_lock().exclusive(|| {
                self.core.log.calls().clear();
                for (number, _) in self.core.clients.list() {
                    self.core.clients.replay(number, None);
                }
                self.core.schedule.note_change();
            }),
            Step::Calls(calls) => self.core.epoch_lock().exclusive(|| {
                for call in calls {
                    self.core.log.calls().push(call);
                }
                self.core.schedule.note_change();
            }),
            Step::End {
                next_volume,
                at: whole,
            } => {
                self.delete_where(&|vol| mark_of(vol, mark).is_none())?;
                self.cp.table().begin_at(next_volume);
                let marks = self.marks();
                // Keep this mark and the base of the difference.
                // Saturates: there may be fewer.
                let old = marks.get(..marks.len().saturating_sub(2));
                self.drop_marks(|mark| old.is_some_and(|old| old.contains(&mark)))?;
                after = whole;
            }
        }
        self.cp_now()?;
        self.note_position(after)
            .map_err(|stop| stop.refusal().into())
    }

    /// Reverts the copy to the mark, or empties it. Before anything is lost, the position that
    /// marks the copy as incomplete is durable.
    fn return_to(&self, target: MarkId, base: Option<MarkId>) -> Result<(), StandbyError> {
        if let Some(base) = base
            && !self.marks().contains(&base)
        {
            return Err(StandbyError::NoMark(base));
        }
        let begun = self.note_position(StreamPosition::in_round(target, 0, 0));
        let begun = begun.map_err(Stop::refusal)?;
        let written = self.core.agg.log().wait_written(begun);
        written.map_err(|_| FsError::Io)?;
        let base_of = |vol: &LiveVolume| mark_of(vol, base?);
        // A volume reverted to before the mark has lost it; its clones may have it.
        self.delete_with_clones(&|vol| base_of(vol).is_none())?;
        let core = &self.core;
        for vol in self.cp.table().list_volumes() {
            let live = vol.live();
            let _admin = live.admin.lock();
            let Some(id) = base_of(&vol) else {
                // Volumes without the mark were deleted above.
                weir_base::invariant!(false, "{} came up in a copy that returns", vol.id);
                continue;
            };
            core.epoch_lock().exclusive(|| {
                live.standing.free()?;
                live.snaps.lock().begin_return_to(id)?;
                live.standing.begin_turn(core.epoch_lock().epoch(), None)?;
                core.schedule.note_changed(vol.id);
                Ok::<_, FsError>(())
            })?;
        }
        Ok(())
    }

    /// Deletes volumes, and waits until they are freed: their numbers may be reused.
    fn delete_where(&self, doomed: &dyn Fn(&LiveVolume) -> bool) -> Result<(), StandbyError> {
        let mut deleted = false;
        loop {
            let all = self.cp.table().list_volumes();
            let mut left = all.iter().filter(|vol| doomed(vol)).peekable();
            if left.peek().is_none() {
                break;
            }
            let mut some = false;
            for vol in left {
                match self.retire_volume(vol.name()) {
                    Ok(_) => some = true,
                    // A clone of it has to be deleted first.
                    Err(FsError::Busy) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            if !some {
                let what = "what is to go has clones that stay";
                return Err(StandbyError::Diverged(what.to_owned()));
            }
            deleted = true;
            self.cp_now()?;
        }
        while deleted && self.reclaiming() {
            self.cp_now()?;
        }
        Ok(())
    }

    /// Deletes volumes with all their clones.
    fn delete_with_clones(&self, first: &dyn Fn(&LiveVolume) -> bool) -> Result<(), StandbyError> {
        let all = self.cp.table().list_volumes();
        let mut doomed: Vec<VolumeId> = Vec::new();
        loop {
            let more: Vec<VolumeId> = all
                .iter()
                .filter(|vol| !doomed.contains(&vol.id))
                .filter(|vol| {
                    let origin = vol.origin().map(|(origin, _)| origin);
                    first(vol) || origin.is_some_and(|origin| doomed.contains(&origin))
                })
                .map(|vol| vol.id)
                .collect();
            if more.is_empty() {
                break;
            }
            doomed.extend(more);
        }
        self.delete_where(&|vol| doomed.contains(&vol.id))
    }

    fn take_volume(&self, step: &VolumeStep<'_>) -> Result<(), StandbyError> {
        let table = self.cp.table();
        let vol = match step.base {
            Some(base) => {
                let vol = table.get(step.number);
                let there = |vol: &LiveVolume| mark_of(vol, base).is_some();
                let vol = vol.filter(there).ok_or(StandbyError::NoMark(base))?;
                self.keep(&vol, base, &step.kept)?;
                vol
            }
            None => {
                let there = table
                    .get(step.number)
                    .or_else(|| table.find_by_name(step.name));
                // To look for clones among very many volumes takes long.
                if there.is_some() {
                    let this = |vol: &LiveVolume| vol.id == step.number || *vol.name == *step.name;
                    self.delete_with_clones(&this)?;
                }
                self.make_volume(step)?
            }
        };
        self.set_limit(&vol, step.limit);
        self.annotate(&vol, step.annotation)?;
        let (base, top) = step.change;
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            vol.counters.set_base(vol.counters.base().max(base));
            vol.counters.raise_top(top);
            core.schedule.note_changed(vol.id);
        });
        // Saturates: no volume gets the last number.
        table.begin_at(step.number.0.saturating_add(1));
        Ok(())
    }

    fn make_volume(&self, step: &VolumeStep<'_>) -> Result<LiveVolume, StandbyError> {
        let table = self.cp.table();
        let Some((origin, snapshot)) = step.origin else {
            let _pass = self.core.epoch_lock().enter();
            return Ok(table.add_empty(&self.core, step.number, step.key, step.name));
        };
        let missing =
            || StandbyError::Diverged(format!("there is no snapshot {origin}.{snapshot}"));
        let parent = table.get(origin).ok_or_else(missing)?;
        let of = parent.live().snaps.lock().get(snapshot);
        let of = of.ok_or_else(missing)?;
        self.patiently("a volume is cloned", || {
            self.clone_as(parent.name(), &of.name, step.name, Some(step.number))
        })?;
        table.get(step.number).ok_or_else(missing)
    }

    /// Keeps only these snapshots among those up to the mark; they have to exist.
    fn keep(&self, vol: &LiveVolume, base: MarkId, kept: &[u32]) -> Result<(), StandbyError> {
        let here: Vec<u32> = vol.snapshots().iter().map(|s| s.id).collect();
        if kept.iter().any(|id| !here.contains(id)) {
            return Err(StandbyError::NoMark(base));
        }
        for id in here.into_iter().filter(|id| !kept.contains(id)) {
            self.delete_with_clones(&|other| other.origin() == Some((vol.id, id)))?;
            let _pass = self.core.epoch_lock().enter();
            vol.live().snaps.lock().apply(Change::Remove(id));
            self.core.schedule.note_changed(vol.id);
        }
        Ok(())
    }
}

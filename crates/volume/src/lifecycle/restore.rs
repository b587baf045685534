//! The start: creates the volumes from the aggregate's tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use weir_base::VolumeId;
use weir_base::limits::engine::RESTORE_ROOTS;
use weir_store::node::Key;
use weir_store::tree::NodeSource as _;
use weir_store::{BlockPtr, StoreError};

use crate::checkpoint::checkpointer::Checkpointer;
use crate::checkpoint::job::Jobs;
use crate::checkpoint::orphans::{Orphans, read_orphans};
use crate::format::calls::{self, DoneCall};
use crate::format::catalog::{self, AggregateRec, Job, SnapshotRec, VolumeRec};
use crate::format::clients;
use crate::format::reading::scan;
use crate::overlay::volume::LiveVolume;

/// A volume in the aggregate's tree.
struct ReadVolume {
    id: VolumeId,
    rec: VolumeRec,
    snapshots: BTreeMap<u32, SnapshotRec>,
    annotation: String,
    pieces: u64,
}

/// Contents of the aggregate's tree.
#[derive(Default)]
struct Read {
    volumes: Vec<ReadVolume>,
    jobs: Jobs,
    aggregate: AggregateRec,
    calls: Vec<(u64, u64, Vec<DoneCall>)>,
    clients: Vec<(u64, Box<[u8]>)>,
}

impl Read {
    fn take(&mut self, key: Key, value: &[u8]) -> Option<()> {
        let id = VolumeId(key.ino);
        match key.kind {
            catalog::kind::VOLUME => {
                self.volumes.push(ReadVolume {
                    id,
                    rec: VolumeRec::decode(value)?,
                    snapshots: BTreeMap::new(),
                    annotation: String::new(),
                    pieces: 0,
                });
            }
            catalog::kind::SNAPSHOT => {
                let of = self.volumes.last_mut().filter(|of| of.id == id)?;
                let rec = SnapshotRec::decode(key.sub, value)?;
                of.snapshots.insert(rec.number, rec);
            }
            catalog::kind::ANNOTATION => {
                let of = self.volumes.last_mut().filter(|of| of.id == id)?;
                if key.sub != of.pieces {
                    return None;
                }
                of.pieces += 1;
                of.annotation.push_str(&catalog::decode_annotation(value)?);
                if of.annotation.len() > catalog::MAX_ANNOTATION {
                    return None;
                }
            }
            catalog::kind::JOB => self.jobs.restore(id, key.sub, Job::decode(value)?),
            catalog::kind::CALLS => {
                let (next, calls) = calls::decode(key.sub, value)?;
                self.calls.push((key.sub, next, calls));
            }
            catalog::kind::CLIENT => {
                let record = clients::decode(value)?;
                self.clients.push((key.sub, record.into()));
            }
            catalog::kind::AGGREGATE => self.aggregate = AggregateRec::decode(value)?,
            _ => return None,
        }
        Some(())
    }
}

/// Creates the volumes of the aggregate's tree.
pub(crate) fn restore(cp: &Checkpointer) -> Result<(), StoreError> {
    let (core, table) = (cp.core(), cp.table());
    let src = core.agg.source();
    let mut read = Read::default();
    let mut bad = None;
    let root = core.agg.root();
    scan(
        &src,
        &root,
        Key::MIN,
        Key::MAX,
        &mut |key, value| match read.take(key, value) {
            Some(()) => ControlFlow::Continue(()),
            None => {
                bad = Some(format!("the record {key} of the aggregate is malformed"));
                ControlFlow::Break(())
            }
        },
    )?;
    if let Some(what) = bad {
        return Err(StoreError::Format(what.into()));
    }
    let mut next = read.aggregate.next_volume.max(1);
    let of_volume =
        |volume: &ReadVolume| volume.rec.root.ptr.filter(|_| volume.rec.mirror.is_none());
    let roots: Vec<Option<BlockPtr>> = read.volumes.iter().map(of_volume).collect();
    for (at, volume) in read.volumes.into_iter().enumerate() {
        let ReadVolume { id, rec, .. } = volume;
        if at.is_multiple_of(RESTORE_ROOTS) {
            // Their trees are read one after the other: each by itself would wait for the device.
            let soon = roots.iter().skip(at).take(RESTORE_ROOTS);
            src.prefetch(&soon.copied().flatten().collect::<Vec<_>>());
        }
        // Saturates: the number comes from the disk.
        next = next.max(id.0.saturating_add(1));
        // Removed inodes in a destination's tree are the source's concern.
        let orphans = match rec.mirror {
            Some(_) => Orphans::default(),
            None => read_orphans(&src, &rec.root)?,
        };
        let vol = LiveVolume::new(Arc::clone(core), id, rec);
        let live = vol.live();
        live.snaps.lock().restore(&volume.snapshots);
        {
            let mut catalog = live.catalog.lock();
            catalog.stored = true;
            catalog.snapshots = volume.snapshots;
            let annotation: Arc<str> = volume.annotation.into();
            *live.annotation.lock() = Arc::clone(&annotation);
            catalog.annotation = annotation;
            if !orphans.dying.is_empty() || !orphans.unlinked.is_empty() {
                core.schedule.note_changed(id);
            }
            catalog.orphans = orphans.dying;
            live.unlinked.replace(orphans.unlinked);
        }
        table.insert(vol);
    }
    for vol in table.list_volumes() {
        let origin = vol.live().catalog.lock().rec.origin;
        if let Some(origin) = origin
            && let Some(parent) = table.get(origin.volume)
        {
            parent
                .live()
                .snaps
                .lock()
                .count_clone(origin.snapshot, true);
        }
    }
    for id in read.jobs.splits() {
        if let Some(vol) = table.get(id) {
            vol.live().ancestry.lock().begin_split();
            core.schedule.note_changed(id);
        }
    }
    core.log.calls().restore(read.calls);
    core.clients.restore(read.clients);
    core.log.note_position(read.aggregate.position);
    core.note_mark(read.aggregate.last_mark);
    table.begin_at(next);
    cp.restore(read.jobs, read.aggregate);
    Ok(())
}

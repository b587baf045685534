//! The part of a checkpoint that concerns a transfer: it takes the batch, and once that is durable
//! clients see the received data.

use crate::format::catalog::MirrorRec;
use crate::overlay::transfer_state::{Batch, DestinationState, TakenBatch};
use crate::overlay::volume::LiveVolume;

impl LiveVolume {
    /// Drops received data that is in no checkpoint.
    pub(crate) fn drop_batch(&self, receiving: &mut DestinationState) {
        let batch = receiving.drop_batch();
        self.discharge_batch(&batch);
    }

    pub(crate) fn discharge_batch(&self, batch: &Batch) {
        let taken = batch.charge.blocks;
        self.space
            .discharge(self.core.agg.guard(), taken, "a batch");
        self.core.totals().sub(batch.charge);
        self.core.agg.space().release_reserved(batch.charge.blocks);
    }

    /// Takes the received batch. Called while the epoch lock is held exclusively.
    pub(crate) fn take_batch(&self) -> TakenBatch {
        let mut receiving = self.live().receiving.lock();
        let (batch, ended) = receiving.take();
        let mut rec = receiving.rec;
        let mut arrived = None;
        if let Some((incoming, _)) = &batch.arriving {
            arrived = self.live().snaps.lock().receive(&incoming.name);
            if let Some((id, ..)) = &arrived {
                rec = Some(MirrorRec {
                    exported: *id,
                    transfer: None,
                });
            }
        }
        TakenBatch {
            batch,
            rec,
            arrived,
            ended,
        }
    }

    /// Notes that the taken batch is in a published checkpoint.
    fn batch_is_durable(&self, taken: &TakenBatch) {
        self.discharge_batch(&taken.batch);
        self.live().receiving.lock().merged(taken);
    }

    /// Notes that a checkpoint has been published with the volume in this state.
    pub(crate) fn publish_mirror(&self, taken: &TakenBatch) {
        self.batch_is_durable(taken);
        if !self.protected() {
            return;
        }
        if taken.ended {
            // The transfer was broken off: the volume is the snapshot already.
            self.live().snaps.lock().export(None);
            self.live().standing.release();
            self.live().exported.store(None);
            return;
        }
        // A batch in progress when the volume became a destination has no record.
        let Some(rec) = taken.rec else {
            // See above.
            return;
        };
        if taken.arrived.is_some() {
            self.live().snaps.lock().export(Some(rec.exported));
            if let Ok(view) = self.view_as(rec.exported, true) {
                self.live().exported.store(Some(view));
            }
        }
    }
}

//! The primary's side of a pair: the stream of an engine's changes ([`weir_store::log::stream`]).
//!
//! **Contents.** Every record of the log, unchanged, and changes that the log does not have:
//!
//! - unstable writes, when they are made;
//! - for data written in place, the data instead of its location ([`crate::overlay::direct`]);
//! - for a commit, the attributes, as the data came before;
//! - the end of unlinked inodes that were open ([`crate::ops::pin`]);
//! - changes of whole volumes ([`crate::format::volume_change`]).
//!
//! Not in it are access times, which are in memory only (a later record of the inode has them).
//! Neither are data that each side chooses itself (blocks, generations, checkpoints, jobs, snapshot
//! reserves, content hashes), and starts. Data received by destinations of a replication is not in
//! it either. So an engine with such volumes has no stream, and with a stream no volume becomes a
//! destination.
//!
//! **Beginning.** Earlier changes are not in it: the partner has to have them, including those in
//! memory only.

use std::sync::Arc;

use weir_base::Lsn;
use weir_base::latency::Latencies;
use weir_store::IoKind;
use weir_store::log::stream::{ChangeStream, NotShipped, Sequence};
use weir_store::log::{LogWrites, PartnerCost};

use crate::format::catalog::StreamPosition;
use crate::lifecycle::engine::Engine;
use crate::overlay::volume::Volume;
use crate::types::{FsError, Stop};

impl Engine {
    /// Begins a stream: every further change is an entry of it, and durable only when the partner
    /// has acknowledged it as well. `at`: the partner's position, in a term that is this engine's
    /// alone. `window`: bytes that unacknowledged entries may take; operations wait when it is full
    /// ([`Backpressure::Mirror`](crate::Backpressure::Mirror)).
    ///
    /// # Errors
    /// `Busy` if there is a stream already, or a volume is being reverted; `Invalid` for a position
    /// before the present one; `NotSupported` if a volume is the destination of a replication.
    pub fn begin_stream(
        &self,
        at: StreamPosition,
        window: u32,
    ) -> Result<Arc<ChangeStream>, FsError> {
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            if at < core.log.position() {
                return Err(FsError::Invalid);
            }
            for vol in self.cp.table().list_volumes() {
                if vol.protected() {
                    return Err(FsError::NotSupported);
                }
                vol.live().standing.free()?;
            }
            let stream = core.agg.log().attach(Sequence(at.sequence), window);
            let stream = stream.ok_or(FsError::Busy)?;
            core.log.note_position(at);
            core.schedule.note_change();
            Ok(stream)
        })
    }

    /// Sets the mode in which nothing is durable before a checkpoint has it. It is for a log device
    /// that may be lost with its machine, without a partner that is sure to serve its contents.
    /// Checkpoints are then taken one after the other as long as something waits for them.
    pub fn rely_on_checkpoints(&self, relies: bool) {
        let core = Arc::downgrade(&self.core);
        let ask = move || {
            if let Some(core) = core.upgrade() {
                core.schedule.hasten();
            }
        };
        let log = self.core.agg.log();
        log.ask_for_checkpoints_by(Box::new(ask));
        log.rely_on_checkpoints(relies);
    }

    /// Continues without the partner, in a term that begins at `at`. This is durable here before
    /// any change is that the partner does not have. The caller has made sure, at the witness, that
    /// the partner does not take over.
    ///
    /// # Errors
    /// `Invalid` for a position before the present one; `ReadOnly` or `Io`: the partner is still
    /// waited for.
    pub fn go_alone(&self, at: StreamPosition) -> Result<(), FsError> {
        let core = &self.core;
        if at < core.log.position() {
            return Err(FsError::Invalid);
        }
        let noted = self.note_position(at).map_err(Stop::refusal)?;
        let written = core.agg.log().wait_written(noted);
        written.map_err(|_| FsError::Io)?;
        self.end_stream();
        Ok(())
    }

    /// Like [`Engine::go_alone`], but the stream stays for a partner that comes back while there is
    /// room for its entries ([`Log::follow`](weir_store::log::Log::follow)).
    ///
    /// # Errors
    /// As [`Engine::go_alone`].
    pub fn follow_partner(&self, stream: &ChangeStream, term: u64) -> Result<(), FsError> {
        let core = &self.core;
        let at = StreamPosition {
            term,
            sequence: stream.last().0,
        };
        if at < core.log.position() {
            return Err(FsError::Invalid);
        }
        let noted = self.note_position(at).map_err(Stop::refusal)?;
        let written = core.agg.log().wait_written(noted);
        written.map_err(|_| FsError::Io)?;
        core.agg.log().follow(stream);
        core.schedule.notify();
        Ok(())
    }

    /// Makes replies wait for the partner, which has nearly all of a stream that was only followed
    /// ([`Engine::begin_round`], [`Engine::follow_partner`]). The partner is in sync once it has
    /// acknowledged the newest entry of now. Returns `false` if the stream was overrun, and the
    /// partner needs another start.
    pub fn join_partner(&self, stream: &ChangeStream) -> bool {
        let joined = self.core.agg.log().join(stream);
        self.core.schedule.notify();
        joined
    }

    /// Ends the stream: from now on a change is durable if this side has it. It is for a stop;
    /// [`Engine::go_alone`] is for continuing.
    pub fn end_stream(&self) {
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            let at = core.log.position();
            core.agg.log().detach();
            core.log.note_position(at);
        });
        core.schedule.notify();
    }

    /// Returns the writes of the intent log on this side, and their times.
    pub fn log_writes(&self) -> LogWrites {
        self.core.agg.log().writes()
    }

    /// Returns the latencies of the intent log's writes on this side, of a batch each.
    pub fn log_latencies(&self) -> Latencies {
        self.core.agg.log().latencies()
    }

    /// Returns the durations of the checkpoints since the start.
    pub fn checkpoint_latencies(&self) -> Latencies {
        self.cp.latencies()
    }

    /// Returns the latencies of the device's operations, by kind; nothing of a device that does not
    /// measure them.
    pub fn device_latencies(&self) -> Vec<(IoKind, Latencies)> {
        let meter = self.core.agg.device().meter();
        meter.map_or_else(Vec::new, |meter| meter.latencies().to_vec())
    }

    /// Returns the cost of waiting for the partner in the last minute.
    pub fn partner_cost(&self) -> PartnerCost {
        self.core.agg.log().partner_cost()
    }

    /// Notes that the partner has everything up to `sequence` durable.
    ///
    /// # Errors
    /// [`NotShipped`].
    pub fn acknowledge(&self, stream: &ChangeStream, sequence: u64) -> Result<(), NotShipped> {
        let log = self.core.agg.log();
        log.acknowledge(stream, Sequence(sequence))?;
        let strict = self.core.log.strict();
        strict.acknowledged(stream.acknowledged_record());
        // Operations may wait for room in the window.
        self.core.schedule.notify();
        Ok(())
    }

    /// Returns the write verifier, which tells clients whether unstable writes were lost.
    pub fn write_verifier(&self) -> u64 {
        self.core.verifier()
    }

    /// Takes over the write verifier of the other side of the pair, which has handed over with all
    /// of its data, so that clients resend nothing. `None`: that is not the case, or no longer.
    /// Call it before any client is served.
    pub fn take_verifier(&self, handed: Option<u64>) {
        self.core.take_verifier(handed);
    }

    /// Makes a volume strict, or not. Changes of a strict volume are suspended while they are
    /// [held](Engine::hold_strict), and no change is reported that only one machine has. Call it at
    /// each start, before clients are admitted.
    pub fn set_strict(&self, volume: &Volume, strict: bool) {
        self.core.log.strict().set(volume.id, strict);
        self.core.schedule.notify();
    }

    /// Suspends changes of strict volumes. Call it before the partner is no longer waited for.
    pub fn hold_strict(&self) {
        self.core.log.strict().hold();
    }

    /// Refuses held changes from now on: clients have to retry later.
    pub fn refuse_strict(&self) {
        if self.core.log.strict().refuse() {
            self.core.schedule.notify();
        }
    }

    /// Resumes changes of strict volumes. The partner has all entries of `stream` up to the
    /// acknowledged one, and everything before the stream; further changes are reported when both
    /// sides have them.
    pub fn admit_strict(&self, stream: &ChangeStream) {
        let strict = self.core.log.strict();
        strict.acknowledged(stream.acknowledged_record());
        strict.admit();
        self.core.schedule.notify();
    }

    /// Returns true if the reply that waits for this record is withheld although the record is
    /// durable. Then it belongs to a strict volume, and the partner does not have it. Call it after
    /// the record was found durable.
    #[inline]
    pub fn withholds(&self, lsn: Lsn) -> bool {
        self.core.log.strict().withholds(lsn)
    }

    /// Waits until every change so far is durable at the partner, too, if there is one: for changes
    /// in no record of the log.
    ///
    /// # Errors
    /// `ReadOnly` if the aggregate is poisoned.
    pub(crate) fn mirrored(&self) -> Result<(), FsError> {
        let core = &self.core;
        let Some(at) = core.agg.log().streamed() else {
            return Ok(());
        };
        core.schedule.wait_acknowledged(at)
    }

    /// # Errors
    /// `NotSupported` while there is a stream; the caller keeps one from beginning.
    pub(crate) fn not_in_a_stream(&self) -> Result<(), FsError> {
        match self.core.log.ships() {
            true => Err(FsError::NotSupported),
            false => Ok(()),
        }
    }
}

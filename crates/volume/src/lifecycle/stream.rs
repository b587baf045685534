//! The primary's side of a mirror: the stream of an engine's changes ([`weir_store::log::stream`]).
//!
//! **What is in it.** Every record of the log as it is, and what the log does not have:
//!
//! - data written without stability, as it is written;
//! - for data that went to a place of its own, the data in place of the place ([`crate::overlay::direct`]);
//! - of a commit the attributes, the data having come before;
//! - the end of inodes that were open without a name ([`crate::ops::pin`]);
//! - what is done to volumes as a whole ([`crate::format::volume_change`]).
//!
//! Not in it: times of access, which are in memory only (a later record of the inode has them); what each side decides for
//! itself (blocks, generations, checkpoints, jobs, snapshot reserves, hashes of contents); starts. What transfers bring to destinations of
//! replication is not either, so an engine with such volumes has no stream, and while it has one none becomes one.
//!
//! **Where it begins.** All that was done before is not in it: the partner has to have it, what is in memory only included.

use std::sync::Arc;

use weir_base::Lsn;
use weir_store::log::stream::{ChangeStream, NotShipped, Sequence};
use weir_store::log::{LogWrites, PartnerCost};

use crate::format::catalog::StreamPosition;
use crate::lifecycle::engine::Engine;
use crate::overlay::volume::Volume;
use crate::types::{FsError, Stop};

impl Engine {
    /// From now on every change is an entry of a stream, and durable when the partner has acknowledged it as well. `at`: where
    /// the partner is, in a term that is this engine's alone. `window`: bytes that unacknowledged entries may
    /// take; operations wait when it is full ([`Backpressure::Mirror`](crate::Backpressure::Mirror)).
    ///
    /// # Errors
    /// `Busy` if there is a stream already, or a volume is being reverted; `Invalid` for a position before the present one; `NotSupported` if a volume is the
    /// destination of a replication.
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
            for vol in self.cp.table().all() {
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

    /// Whether the log's device may be lost with its machine, and no partner is sure to serve what is in it: then nothing is durable before a
    /// checkpoint has it, and checkpoints are made one after the other for as long as something waits for that.
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

    /// Goes on without the partner, in a term that begins at `at`. That it is so is durable here before anything is that the
    /// partner does not have. The caller has made sure, at the witness, that the partner does not take over.
    ///
    /// # Errors
    /// `Invalid` for a position before the present one; `ReadOnly` or `Io`: the partner is still waited for.
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

    /// As [`Engine::go_alone`], but the stream stays for a partner that comes back while there is room for its entries
    /// ([`Log::follow`](weir_store::log::Log::follow)).
    ///
    /// # Errors
    /// As there.
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

    /// Replies wait for the partner from now on, which has nearly all of a stream that was only followed
    /// ([`Engine::begin_round`], [`Engine::follow_partner`]). It is in sync once it has acknowledged the newest entry of now.
    /// `false`: the stream was overrun, and the partner needs another beginning.
    pub fn join_partner(&self, stream: &ChangeStream) -> bool {
        let joined = self.core.agg.log().join(stream);
        self.core.schedule.notify();
        joined
    }

    /// Ends the stream: from now on what this side has is durable. For one that stops; [`Engine::go_alone`] for one that goes on.
    pub fn end_stream(&self) {
        let core = &self.core;
        core.epoch_lock().exclusive(|| {
            let at = core.log.position();
            core.agg.log().detach();
            core.log.note_position(at);
        });
        core.schedule.notify();
    }

    /// What the intent log has written here, and how long that took.
    pub fn log_writes(&self) -> LogWrites {
        self.core.agg.log().writes()
    }

    /// What waiting for the partner has cost in the last minute.
    pub fn partner_cost(&self) -> PartnerCost {
        self.core.agg.log().partner_cost()
    }

    /// The partner has everything up to `sequence` durable.
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

    /// What clients know by that no data was lost which was written without stability.
    pub fn write_verifier(&self) -> u64 {
        self.core.verifier()
    }

    /// The other side of the mirror has handed over, and this one has all that was written there: clients are to see its
    /// verifier, so that they send nothing again. `None`: that is not so, or not any more. Before any client is served.
    pub fn take_verifier(&self, handed: Option<u64>) {
        self.core.take_verifier(handed);
    }

    /// Makes a volume strict, or lets it be like others: its changes are not made while
    /// [they are held](Engine::hold_strict), and none is reported that one machine alone has. To be said at each start, before
    /// its clients are admitted.
    pub fn set_strict(&self, volume: &Volume, strict: bool) {
        self.core.log.strict().set(volume.id, strict);
        self.core.schedule.notify();
    }

    /// From now on changes of strict volumes wait. To be called before the partner is waited for no more.
    pub fn hold_strict(&self) {
        self.core.log.strict().hold();
    }

    /// Changes that are held are refused from now on: clients are to try again later.
    pub fn refuse_strict(&self) {
        if self.core.log.strict().refuse() {
            self.core.schedule.notify();
        }
    }

    /// The partner has everything of `stream` up to what it has acknowledged, and all that was before; what comes is
    /// reported when both have it. Strict volumes are changed again.
    pub fn admit_strict(&self, stream: &ChangeStream) {
        let strict = self.core.log.strict();
        strict.acknowledged(stream.acknowledged_record());
        strict.admit();
        self.core.schedule.notify();
    }

    /// Whether the reply that waits for this record stays although it is durable: it is of a strict volume, and the partner
    /// does not have it. To be called after the record was found durable.
    #[inline]
    pub fn withholds(&self, lsn: Lsn) -> bool {
        self.core.log.strict().withholds(lsn)
    }

    /// Waits until everything that has been done is durable at the partner, too, if there is one: for what is in no
    /// record of the log.
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

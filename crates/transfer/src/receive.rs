//! The destination's side of a transfer.
//!
//! No transfer starts on a base that differs between the two ends. No snapshot becomes visible to
//! clients before the destination's own tree was compared with the source's
//! ([`weir_volume::ContentHash`]). So a transfer that has succeeded has been proven. If the proof
//! fails, the data is discarded, and clients continue to see the previous snapshot.

use std::sync::Arc;

use weir_base::SnapshotIdentity;
use weir_base::invariant;
use weir_base::limits::replica::BATCH_AGE as AGE;
use weir_volume::{
    ContentHash, ContentWalk, FsError, Mark, Position, Receive, TransferHeader, Volume,
};

use crate::batch::{self, ApplyError};
use crate::progress::{Difference, Nanos, Phase, Progress, TransferError};
use crate::wire::{
    Ack, Begin, Done, End, Frame, Kind, Message, Pace, Reason, Refusal, Resume, WireError,
};

/// Number of differing records hashed in a step; takes some milliseconds.
const HASH_STEP: usize = 16_384;

/// Snapshots that the destination has requested from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRange {
    /// Base of the difference; `None` requests everything.
    pub base: Option<SnapshotIdentity>,
    /// The snapshot to transfer.
    pub target: SnapshotIdentity,
}

/// Effect of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEffect {
    /// The transfer has begun or resumed.
    Began {
        /// Bytes before compression that an earlier attempt has received.
        resumed: u64,
    },
    /// Data of so many bytes on the wire: ask the throttle before reading the next frame.
    Data(u64),
    /// No effect that the caller has to handle.
    Nothing,
    /// All data has arrived and is being compared: call [`Receiver::prove`] until it returns
    /// something else.
    Proving,
    /// The snapshot is complete and durable, and clients see it.
    Done {
        /// The snapshot's number in the destination volume.
        snapshot: u32,
    },
}

enum State {
    /// No transfer was offered yet.
    Idle,
    Data(Box<Receive>),
    /// All data has arrived; the trees are being compared.
    Proving(Box<Proof>),
    /// The snapshot existed before the transfer: its number, and the hash of its content here.
    There(u32, ContentHash),
    Over,
}

struct Proof {
    receive: Receive,
    walk: ContentWalk,
    /// Content of the snapshot at the source.
    content: ContentHash,
}

/// The destination's side of one transfer.
///
/// The caller passes in the frames that arrive and sends the replies appended to `out`, until
/// [`FrameEffect::Done`] is returned. Calls block while the destination's engine is behind, and at
/// the end for a checkpoint, so the receiver needs its own thread. Dropping it ends the transfer;
/// received data is kept, and the next transfer of the same snapshot resumes after it.
pub struct Receiver {
    volume: Arc<Volume>,
    wanted: SnapshotRange,
    state: State,
    digest: u64,
    acked: u64,
    begin: Option<Begin>,
    pace: Pace,
    progress: Progress,
}

impl Receiver {
    /// Creates a receiver of `wanted`, and of nothing else, into `volume`, which must be protected
    /// ([`weir_volume::Engine::protect`]).
    ///
    /// # Errors
    /// `Volume(Invalid)` if `volume` is not protected.
    pub fn new(
        volume: &Arc<Volume>,
        wanted: SnapshotRange,
        now: Nanos,
    ) -> Result<Receiver, TransferError> {
        if !volume.protected() {
            return Err(FsError::Invalid.into());
        }
        Ok(Receiver {
            volume: Arc::clone(volume),
            wanted,
            state: State::Idle,
            digest: 0,
            acked: 0,
            begin: None,
            pace: Pace::Free,
            progress: Progress::new(now),
        })
    }

    /// Handles a frame, and appends replies to `out`.
    ///
    /// # Errors
    /// The transfer has failed. `out` has a refusal to send to the other side before closing.
    pub fn frame(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        now: Nanos,
    ) -> Result<FrameEffect, TransferError> {
        let result = self.take(frame, out, now);
        match &result {
            // The other side has ended the transfer itself.
            Err(TransferError::Refused(_)) if frame.kind == Kind::Refusal => {
                self.state = State::Over;
                result
            }
            _ => self.ended(result, out),
        }
    }

    /// Continues the comparison of the received data with the source's; appends replies to `out`.
    /// Blocks the thread for some milliseconds, and at the end for a checkpoint.
    ///
    /// # Errors
    /// The transfer has failed, as in [`Receiver::frame`]. `Different` if the proof has failed; the
    /// received data is then discarded.
    pub fn prove(&mut self, out: &mut Vec<u8>, now: Nanos) -> Result<FrameEffect, TransferError> {
        let result = self.compare(out, now);
        self.ended(result, out)
    }

    /// Reports to the source why a transfer has ended.
    fn ended(
        &mut self,
        result: Result<FrameEffect, TransferError>,
        out: &mut Vec<u8>,
    ) -> Result<FrameEffect, TransferError> {
        if let Err(error) = &result {
            self.state = State::Over;
            let reason = match error {
                TransferError::Refused(refusal) => refusal.reason,
                TransferError::Wire(_) | TransferError::Corrupt(_) => Reason::Corrupt,
                TransferError::Different(_) => Reason::Different,
                TransferError::Volume(FsError::NoSpace) => Reason::NoSpace,
                TransferError::Volume(FsError::Busy) => Reason::Busy,
                TransferError::Volume(_) | TransferError::Source(_) => Reason::Io,
            };
            let text = error.to_string();
            Refusal { reason, text }.frame(out)?;
        }
        result
    }

    fn take(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        now: Nanos,
    ) -> Result<FrameEffect, TransferError> {
        match (frame.kind, &mut self.state) {
            (Kind::Begin, State::Idle) => {
                let begin = Begin::decode(&frame.payload)?;
                self.begin(begin, out, now)
            }
            (Kind::Records, State::Data(receive)) => {
                let position =
                    batch::apply(&frame.payload, &mut **receive).map_err(|why| match why {
                        ApplyError::Malformed(what) => TransferError::Corrupt(what),
                        ApplyError::Volume(e) => TransferError::Volume(e),
                    })?;
                self.digest = batch::digest(self.digest, &frame.payload);
                let progress = &mut self.progress;
                progress.phase = Phase::Data;
                progress.data_began.get_or_insert(now);
                progress.data_ended = Some(now);
                progress.logical += frame.payload.len() as u64;
                progress.wire += frame.wire as u64;
                let mark = Mark {
                    position,
                    digest: self.digest,
                    logical: progress.logical,
                    wire: progress.wire,
                };
                receive.commit(mark).map_err(|e| match e {
                    FsError::Invalid => TransferError::Corrupt("records out of order"),
                    e => e.into(),
                })?;
                self.acknowledge(out)?;
                Ok(FrameEffect::Data(frame.wire as u64))
            }
            (Kind::End, State::Data(_)) => {
                let end = End::decode(&frame.payload)?;
                self.complete(end)
            }
            (Kind::End, State::There(snapshot, content)) => {
                let (snapshot, content) = (*snapshot, *content);
                let end = End::decode(&frame.payload)?;
                self.equal(false, end.content, content)?;
                self.end_transfer(now);
                Done { snapshot }.frame(out)?;
                Ok(FrameEffect::Done { snapshot })
            }
            (Kind::Pace, State::Data(_) | State::There(..)) => {
                self.pace = Pace::decode(&frame.payload)?;
                Ok(FrameEffect::Nothing)
            }
            (Kind::Refusal, _) => {
                let refusal = Refusal::decode(&frame.payload)?;
                Err(TransferError::Refused(refusal))
            }
            _ => Err(WireError::Malformed("a message at the wrong time").into()),
        }
    }

    fn begin(
        &mut self,
        begin: Begin,
        out: &mut Vec<u8>,
        now: Nanos,
    ) -> Result<FrameEffect, TransferError> {
        let refuse = |reason, text: &str| {
            let text = text.to_owned();
            TransferError::Refused(Refusal { reason, text })
        };
        let base = begin.base.map(|base| base.identity);
        let offered = SnapshotRange {
            base,
            target: begin.target,
        };
        if offered != self.wanted {
            return Err(refuse(
                Reason::Other,
                "the source offers another snapshot than the one that it was asked for",
            ));
        }
        let incoming = TransferHeader {
            base,
            target: begin.target,
            name: begin.name.clone(),
            label: begin.label.clone(),
            created: begin.created,
            next_ino: begin.next_ino,
            key: begin.key,
        };
        self.progress.total = begin.total;
        let source = begin.base.map(|base| base.content);
        self.begin = Some(begin);
        let nothing_common = || {
            refuse(
                Reason::NoCommonSnapshot,
                "the destination does not have the snapshot that the transfer builds on",
            )
        };
        // The reply at the end of an earlier attempt was lost.
        if let Some(there) = self.volume.snapshot_with(incoming.target) {
            let content = self.volume.content_walk(incoming.target)?.finish()?;
            self.state = State::There(there.id, content);
            let nothing = Resume {
                position: Position::END,
                digest: 0,
                logical: 0,
                wire: 0,
            };
            nothing.frame(out)?;
            self.progress.data_began.get_or_insert(now);
            return Ok(FrameEffect::Began { resumed: 0 });
        }
        if let (Some(base), Some(source)) = (base, source) {
            let own = match self.volume.content_walk(base) {
                Ok(walk) => walk.finish()?,
                Err(FsError::NotFound) => return Err(nothing_common()),
                Err(e) => return Err(e.into()),
            };
            self.equal(true, source, own)?;
        }
        let receive = match self.volume.receive(&incoming) {
            Ok(receive) => receive,
            Err(FsError::CrossDevice) => return Err(nothing_common()),
            Err(FsError::Invalid) => {
                return Err(refuse(
                    Reason::NotProtected,
                    "the destination is not a data protection volume",
                ));
            }
            Err(e) => return Err(e.into()),
        };
        let mark = receive.mark();
        self.digest = mark.digest;
        self.progress.logical = mark.logical;
        self.progress.wire = mark.wire;
        self.progress.resumed = mark.logical;
        self.progress.resumed_wire = mark.wire;
        self.state = State::Data(Box::new(receive));
        let resume = Resume {
            position: mark.position,
            digest: mark.digest,
            logical: mark.logical,
            wire: mark.wire,
        };
        resume.frame(out)?;
        // Less may be durable than was received.
        self.acknowledge(out)?;
        Ok(FrameEffect::Began {
            resumed: mark.logical,
        })
    }

    /// Refuses content that differs between the two ends.
    fn equal(
        &self,
        base: bool,
        source: ContentHash,
        own: ContentHash,
    ) -> Result<(), TransferError> {
        if source == own {
            return Ok(());
        }
        let identity = match base {
            true => self.wanted.base.unwrap_or(self.wanted.target),
            false => self.wanted.target,
        };
        let named = self.volume.snapshot_with(identity).map(|s| s.name);
        let offered = self.begin.as_ref().map(|begin| begin.name.clone());
        Err(TransferError::Different(Difference {
            name: named.or(offered).unwrap_or_default(),
            base,
            source_content: source,
            destination: own,
        }))
    }

    /// Handles the end of the data: makes it durable, so that the tree is final, and begins the
    /// comparison.
    fn complete(&mut self, end: End) -> Result<FrameEffect, TransferError> {
        let State::Data(mut receive) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(WireError::Malformed("a message at the wrong time").into());
        };
        if end.digest != self.digest {
            // Frames were lost, though each that arrived was valid: none of the data can be relied
            // on.
            receive.discard()?;
            return Err(TransferError::Corrupt("parts of the stream are missing"));
        }
        self.progress.phase = Phase::Finalise;
        let mark = Mark {
            position: Position::END,
            digest: self.digest,
            logical: self.progress.logical,
            wire: self.progress.wire,
        };
        receive.commit(mark)?;
        receive.checkpoint()?;
        self.state = State::Proving(Box::new(Proof {
            walk: receive.content_walk()?,
            receive: *receive,
            content: end.content,
        }));
        Ok(FrameEffect::Proving)
    }

    fn compare(&mut self, out: &mut Vec<u8>, now: Nanos) -> Result<FrameEffect, TransferError> {
        let State::Proving(proof) = &mut self.state else {
            return Err(WireError::Malformed("there is nothing to compare").into());
        };
        let Some(own) = proof.walk.advance(HASH_STEP)? else {
            return Ok(FrameEffect::Proving);
        };
        let State::Proving(proof) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(WireError::Malformed("there is nothing to compare").into());
        };
        let Proof {
            receive, content, ..
        } = *proof;
        if let Err(different) = self.equal(false, content, own) {
            receive.discard()?;
            return Err(different);
        }
        let snapshot = receive.finish(own)?;
        self.end_transfer(now);
        Done { snapshot }.frame(out)?;
        Ok(FrameEffect::Done { snapshot })
    }

    fn end_transfer(&mut self, now: Nanos) {
        self.state = State::Over;
        self.progress.phase = Phase::Done;
        self.progress.durable = self.progress.logical;
        self.progress.ended = Some(now);
    }

    /// Reports to the source the data that has become durable since the last report.
    fn acknowledge(&mut self, out: &mut Vec<u8>) -> Result<(), TransferError> {
        if let State::Data(receive) = &self.state {
            let logical = receive.durable();
            let (came, acked) = (self.progress.logical, self.acked);
            invariant!(
                (acked..=came).contains(&logical),
                "{logical} bytes are durable of {came} that came, after {acked}"
            );
            if logical > self.acked {
                self.acked = logical;
                self.progress.durable = logical;
                Ack { logical }.frame(out)?;
            }
        }
        Ok(())
    }

    /// Limits the age of a checkpoint to some seconds. To be called about once a second, whether
    /// data arrives or not.
    pub fn tick(&mut self, out: &mut Vec<u8>, _now: Nanos) {
        if let State::Data(receive) = &self.state {
            receive.age(AGE);
        }
        // A frame of this length is never refused.
        let _ = self.acknowledge(out);
    }

    /// Returns the source's offer; `None` before it has arrived.
    pub fn offered(&self) -> Option<&Begin> {
        self.begin.as_ref()
    }

    /// Returns the limit that the source last reported to wait for.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns the digest of the received data.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the counters and times so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Appends the word for the other side that the transfer ends on request.
    pub fn abort(self, out: &mut Vec<u8>) {
        crate::progress::aborted(out);
    }
}

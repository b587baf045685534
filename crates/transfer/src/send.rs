//! The source's side of a transfer.
//!
//! In parallel with the difference, a second walk over the records computes the hash by which the
//! destination proves at the end that it has the source's content ([`weir_volume::ContentWalk`]).
//! The hash is made from the tree, not from the data that was sent. A part of it is done with each
//! frame, so that it is ready after the last data.
//!
//! The difference is read ahead by [`AHEAD_BLOCKS`] blocks, which are fetched together, so that the
//! disk gets long reads. These and the frame under construction are all the memory that a transfer
//! uses. A frame is at most as long as a throttle's grant.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::SnapshotIdentity;
use weir_base::limits::replica::{
    SEND_AHEAD_BLOCKS as AHEAD_BLOCKS, SEND_AHEAD_BYTES as AHEAD_BYTES, THROTTLE_PIECE as PIECE,
};
use weir_base::{BLOCK_SIZE, invariant};
use weir_volume::{BlockRef, ContentHash, ContentWalk, DiffItem, Position, SnapshotDiff, Volume};

use crate::batch::{self, GONE_SIZE, Ops, PREFIX, data_size, put_size};
use crate::progress::{Nanos, Phase, Progress, TransferError};
use crate::wire::{
    self, Ack, Base, Begin, Done, End, Frame, HEADER, Kind, Message, Reason, Refusal, Resume,
    WireError,
};

/// Number of differing records hashed with each frame: more than a frame holds.
const HASH_AHEAD: usize = 1024;

/// Number of differing records hashed in a step once all data has been sent; takes some
/// milliseconds.
const HASH_STEP: usize = 16_384;

/// Maximum number of bytes of a payload.
const ROOM: usize = PIECE as usize - HEADER;

/// Options of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Level of compression with zstd (1 to 19); `None` is no compression.
    pub compress: Option<i32>,
    /// True to count the bytes beforehand: reads the difference's records twice, but not its data.
    pub count: bool,
}

/// Result of a step of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// `out` has another frame of data, of so many bytes on the wire, at most
    /// [`weir_relations::throttle::PIECE`]: ask the throttle before sending it.
    Data(u64),
    /// `out` has another frame that no throttle counts.
    Control,
    /// There is nothing to send yet; the next step continues the work.
    Working,
    /// There is nothing to send before the other side has replied.
    Wait,
    /// The transfer has succeeded.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The offer has to be made.
    Begin,
    /// The offer was made; the destination has not replied.
    Offered,
    Data,
    /// All data has been sent; the destination has not confirmed the snapshot.
    Ended,
    Done,
    Failed,
}

/// The source's side of one transfer.
///
/// The caller repeats [`Sender::step`], sends the frames appended to `out`, and passes the other
/// side's frames to [`Sender::frame`], until a step returns `Done`. Steps read from the disk and
/// block, so the sender needs its own thread. Dropping it ends the transfer; the destination keeps
/// the received data.
pub struct Sender {
    outgoing: SnapshotDiff,
    options: SendOptions,
    state: State,
    /// Base of the transfer, with the hash of its content here; `None` sends everything.
    base: Option<Base>,
    /// Walk that computes `content`.
    walk: ContentWalk,
    content: Option<ContentHash>,
    /// Operations that were read and not sent.
    queue: VecDeque<DiffItem>,
    pages: VecDeque<weir_volume::Frame>,
    /// True if the difference has been read completely.
    read_all: bool,
    digest: u64,
    progress: Progress,
}

impl Sender {
    /// Creates a sender of `target` as its difference to `base`, both snapshots of `volume`;
    /// without a base, of all of it. Neither can be deleted before the sender is dropped. Blocks
    /// until a checkpoint has made very new snapshots durable. Blocks also while the whole base is
    /// hashed if its hash is not known ([`weir_volume::Volume::content_walk`]).
    ///
    /// # Errors
    /// `Volume(NotFound)` if there is no such snapshot, `Volume(Invalid)` if the base is newer.
    pub fn new(
        volume: &Arc<Volume>,
        base: Option<SnapshotIdentity>,
        target: SnapshotIdentity,
        options: SendOptions,
        now: Nanos,
    ) -> Result<Sender, TransferError> {
        let mut outgoing = SnapshotDiff::new(volume, base, target)?;
        let base = match base {
            Some(identity) => Some(Base {
                identity,
                content: volume.content_walk(identity)?.finish()?,
            }),
            None => None,
        };
        let walk = volume.content_walk(target)?;
        let total = match options.count {
            true => Some(count(&mut outgoing)?),
            false => None,
        };
        Ok(Sender {
            outgoing,
            options,
            state: State::Begin,
            base,
            walk,
            content: None,
            queue: VecDeque::new(),
            pages: VecDeque::new(),
            read_all: false,
            digest: 0,
            progress: Progress {
                total,
                ..Progress::new(now)
            },
        })
    }

    /// Appends the next frame to `out`. Blocks while it reads.
    ///
    /// # Errors
    /// The transfer has failed. `out` has a refusal to send to the other side before closing.
    pub fn step(&mut self, out: &mut Vec<u8>, now: Nanos) -> Result<SendStep, TransferError> {
        match self.state {
            State::Begin => {
                let incoming = self.outgoing.incoming();
                let begin = Begin {
                    base: self.base,
                    target: incoming.target,
                    name: incoming.name.clone(),
                    label: incoming.label.clone(),
                    created: incoming.created,
                    next_ino: incoming.next_ino,
                    key: incoming.key,
                    referenced: self.outgoing.referenced(),
                    total: self.progress.total,
                };
                begin.frame(out)?;
                self.state = State::Offered;
                Ok(SendStep::Control)
            }
            State::Offered | State::Ended => Ok(SendStep::Wait),
            State::Done => Ok(SendStep::Done),
            State::Failed => Err(TransferError::Corrupt("the transfer is over")),
            State::Data => match self.data(out, now) {
                Err(error) => {
                    self.state = State::Failed;
                    let refusal = Refusal {
                        reason: Reason::Io,
                        text: error.to_string(),
                    };
                    refusal.frame(out)?;
                    Err(error)
                }
                step => step,
            },
        }
    }

    fn data(&mut self, out: &mut Vec<u8>, now: Nanos) -> Result<SendStep, TransferError> {
        if self.queue.is_empty() {
            self.read_ahead()?;
        }
        if self.queue.is_empty() {
            let Some(content) = self.hash(HASH_STEP)? else {
                return Ok(SendStep::Working);
            };
            let end = End {
                digest: self.digest,
                content,
            };
            end.frame(out)?;
            self.state = State::Ended;
            self.progress.phase = Phase::Finalise;
            self.progress.data_ended = Some(now);
            return Ok(SendStep::Control);
        }
        if self.progress.data_began.is_none() {
            self.progress.data_began = Some(now);
            self.progress.phase = Phase::Data;
        }
        let begin = wire::begin_frame(out);
        self.fill(out);
        let payload = out.get(begin + HEADER..).unwrap_or_default();
        self.digest = batch::digest(self.digest, payload);
        self.progress.logical += payload.len() as u64;
        let bytes = wire::end_frame(out, begin, Kind::Records, self.options.compress)?;
        self.progress.wire += bytes as u64;
        self.hash(HASH_AHEAD)?;
        Ok(SendStep::Data(bytes as u64))
    }

    /// Continues hashing, and returns the hash of the snapshot's content once it is complete.
    fn hash(&mut self, records: usize) -> Result<Option<ContentHash>, TransferError> {
        if self.content.is_none() {
            self.content = self.walk.advance(records)?;
        }
        Ok(self.content)
    }

    /// Reads the next operations, and the blocks that they need.
    fn read_ahead(&mut self) -> Result<(), TransferError> {
        let mut wanted: Vec<BlockRef> = Vec::with_capacity(AHEAD_BLOCKS + 32);
        let mut bytes = 0;
        while !self.read_all && wanted.len() < AHEAD_BLOCKS && bytes < AHEAD_BYTES {
            let Some(sent) = self.outgoing.advance()? else {
                self.read_all = true;
                break;
            };
            bytes += size(&sent);
            if let DiffItem::Data { blocks, .. } = &sent {
                wanted.extend(blocks.iter().map(|(_, block)| *block));
            }
            self.queue.push_back(sent);
        }
        if !wanted.is_empty() {
            self.pages.extend(self.outgoing.read(&wanted)?);
        }
        Ok(())
    }

    /// Appends a payload of operations that were read.
    fn fill(&mut self, out: &mut Vec<u8>) {
        let mut ops = Ops::begin(out);
        let mut data = 0;
        let mut position = Position::END;
        while let Some(sent) = self.queue.front_mut() {
            // Saturates: one operation may be longer than the limit.
            let room = ROOM.saturating_sub(ops.len() + data);
            match sent {
                DiffItem::Put { at, value } => {
                    if put_size(value.len()) > room {
                        position = *at;
                        break;
                    }
                    ops.put(*at, value);
                    position = at.behind();
                }
                DiffItem::Gone { at } => {
                    if GONE_SIZE > room {
                        position = *at;
                        break;
                    }
                    ops.gone(*at);
                    position = at.behind();
                }
                DiffItem::Data { at, blocks, holes } => {
                    let each = BLOCK_SIZE + 4;
                    // Saturates for the same reason.
                    let fit = (room.saturating_sub(data_size(0)) / each).min(blocks.len());
                    if fit == 0 && (!blocks.is_empty() || data_size(0) > room) {
                        position = *at;
                        break;
                    }
                    let part = blocks.get(..fit).unwrap_or_default();
                    let puts = part.iter().fold(0u32, |mask, (place, _)| mask | 1 << place);
                    let crcs = part.iter().map(|(_, block)| block.crc());
                    ops.data(*at, puts, *holes, crcs);
                    data += fit * BLOCK_SIZE;
                    if fit < blocks.len() {
                        blocks.drain(..fit);
                        *holes = 0;
                        position = *at;
                        break;
                    }
                    position = at.behind();
                }
            }
            self.queue.pop_front();
        }
        if self.queue.is_empty() && self.read_all {
            position = Position::END;
        }
        ops.end(position);
        let (read, sent) = (self.pages.len(), data / BLOCK_SIZE);
        invariant!(read >= sent, "{sent} pages are sent, and {read} were read");
        for page in self.pages.drain(..sent) {
            out.extend_from_slice(&page[..]);
        }
    }

    /// Handles a frame of the other side.
    ///
    /// # Errors
    /// The transfer has failed.
    pub fn frame(&mut self, frame: &Frame<'_>, now: Nanos) -> Result<(), TransferError> {
        let taken = self.take(frame, now);
        if taken.is_err() {
            self.state = State::Failed;
        }
        taken
    }

    fn take(&mut self, frame: &Frame<'_>, now: Nanos) -> Result<(), TransferError> {
        match (frame.kind, self.state) {
            (Kind::Resume, State::Offered) => {
                let resume = Resume::decode(&frame.payload)?;
                if resume.position > Position::START {
                    self.outgoing.seek(resume.position)?;
                }
                self.digest = resume.digest;
                self.progress.logical = resume.logical;
                self.progress.wire = resume.wire;
                self.progress.resumed = resume.logical;
                self.progress.resumed_wire = resume.wire;
                self.state = State::Data;
                Ok(())
            }
            (Kind::Done, State::Ended) => {
                Done::decode(&frame.payload)?;
                self.state = State::Done;
                self.progress.phase = Phase::Done;
                self.progress.durable = self.progress.logical;
                self.progress.ended = Some(now);
                Ok(())
            }
            (Kind::Ack, State::Data | State::Ended) => {
                self.progress.durable = Ack::decode(&frame.payload)?.logical;
                Ok(())
            }
            (Kind::Refusal, _) => {
                let refusal = Refusal::decode(&frame.payload)?;
                Err(TransferError::Refused(refusal))
            }
            _ => Err(WireError::Malformed("a message at the wrong time").into()),
        }
    }

    /// Returns the counters and times so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Appends the refusal that tells the other side that the transfer ends on request.
    pub fn abort(self, out: &mut Vec<u8>) {
        crate::progress::aborted(out);
    }
}

/// Returns the bytes of an operation in a payload, without pages.
fn size(sent: &DiffItem) -> usize {
    match sent {
        DiffItem::Put { value, .. } => put_size(value.len()),
        DiffItem::Gone { .. } => GONE_SIZE,
        DiffItem::Data { blocks, .. } => data_size(blocks.len()),
    }
}

/// Returns the bytes that will be sent before compression, within a few bytes for each frame.
fn count(outgoing: &mut SnapshotDiff) -> Result<u64, TransferError> {
    let (mut bytes, mut frame) = (0u64, PREFIX);
    while let Some(sent) = outgoing.advance()? {
        let data = match &sent {
            DiffItem::Data { blocks, .. } => blocks.len() * BLOCK_SIZE,
            _ => 0,
        };
        frame += size(&sent) + data;
        if frame > ROOM {
            bytes += frame as u64;
            frame = PREFIX;
        }
    }
    outgoing.seek(Position::START)?;
    Ok(bytes + frame as u64)
}

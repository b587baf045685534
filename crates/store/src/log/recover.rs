//! Reads the log back: finds its end, verifies that this is the true end, and returns its records.
//! The reasoning is at the head of [`super`].
//!
//! Two passes. The first checks every batch and finds the end, so that damage is known before
//! anything is replayed. The second hands the records out one by one, so that a full log need not
//! fit in memory twice. Both read through one window, because a log of small batches is read in
//! thousands of small pieces.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, BlockAddr, Lsn};

use super::error::LogError;
use super::format::{
    BodyRecord, FIXED_BLOCKS, HEAD, Head, LogHeader, Ring, decode_body, decode_log_header,
};
use super::position::{LogCut, LogId, LogPos};
use super::prepare;
use super::writer::fill_meta;
use crate::block::page_crc;
use crate::device::Device;
use crate::frame::{Class, Frame, FrameMut, FramePool};

/// Blocks of the read window, if the pool has as many frames: 1 MiB.
const WINDOW: usize = 256;

/// Prepares the beginning of the ring, if the device gains from that, then writes the header.
/// Returns the ring, and true if it is prepared to its end.
pub(super) fn format(
    device: &dyn Device,
    id: LogId,
    at_once: u64,
) -> Result<(Ring, bool), LogError> {
    let ring = Ring::for_device(device.length()).ok_or(LogError::TooSmall)?;
    let whole = device.hints().prepared || prepare::begin(device, ring, at_once)?;
    prepare::write_header(device, id, ring, whole)?;
    Ok((ring, whole))
}

fn small_pool(frames: usize) -> Result<Arc<FramePool>, LogError> {
    FramePool::new(frames).map_err(|_| LogError::NoMemory)
}

/// Result of the first pass.
pub(super) struct ScanResult {
    pub ring: Ring,
    /// True if every block of the ring has been written.
    pub whole: bool,
    from: LogPos,
    /// End of the last undamaged batch.
    end: LogPos,
    /// The LSN after the last record.
    pub next: Lsn,
    pub replay: Replay,
}

pub(super) fn survey(
    device: &Arc<dyn Device>,
    id: LogId,
    from: LogCut,
    pool: &Arc<FramePool>,
) -> Result<ScanResult, LogError> {
    let mut window = Window::new(Arc::clone(device), pool)?;
    let (ring, whole) = read_header(&mut window, id)?;
    if FIXED_BLOCKS
        .checked_add(ring.blocks)
        .is_none_or(|end| end > device.length())
    {
        return Err(LogError::Inconsistent {
            at: LogPos(0),
            what: "the device is shorter",
        });
    }
    // Beyond this the positions of the next laps could overflow; no log gets that far.
    if from.pos.0 > u64::MAX / 4 {
        return Err(LogError::Inconsistent {
            at: from.pos,
            what: "no log reaches this position",
        });
    }
    let mut survey = Survey {
        window,
        id,
        ring,
        limit: LogPos(from.pos.0 + ring.blocks),
    };
    let (mut end, mut next) = (from.pos, from.next);
    let mut batches = VecDeque::new();
    while let Some(head) = survey.following(end, next)? {
        end = head.end();
        next = Lsn(next.0 + u64::from(head.records));
        if head.records > 0 {
            batches.push_back(head);
        }
    }
    survey.prove_end(end)?;
    let replay = Replay {
        window: survey.window,
        ring,
        pool: Arc::clone(pool),
        behind: from,
        batches,
        current: None,
        progress: Arc::new(ReplayProgress {
            found: next.0 - from.next.0,
            handed: AtomicU64::new(0),
        }),
        failed: false,
    };
    Ok(ScanResult {
        ring,
        // A log in its second lap has written every block.
        whole: whole || end.0 > ring.blocks,
        from: from.pos,
        end,
        next,
        replay,
    })
}

/// Covers the remains of a torn write at the end with an empty batch. Returns the new end.
pub(super) fn mark_end(
    device: &dyn Device,
    id: LogId,
    found: &ScanResult,
) -> Result<LogPos, LogError> {
    if found.end.0 >= found.from.0 + found.ring.blocks {
        // The ring is full to the last block: no batch can have been torn there.
        return Ok(found.end);
    }
    let head = Head {
        pos: found.end,
        prev_end: found.end,
        first: found.next,
        records: 0,
        pages: 0,
        meta_bytes: HEAD as u32,
        body_sum: crc32c::crc32c(&[]),
    };
    let pool = small_pool(1)?;
    let mut frames = Vec::new();
    if !fill_meta(&pool, &head, id, &[], &mut frames) {
        return Err(LogError::NoMemory);
    }
    device.write(found.ring.addr(found.end), frames).wait()?;
    Ok(head.end())
}

fn read_header(window: &mut Window, id: LogId) -> Result<(Ring, bool), LogError> {
    for copy in 0..FIXED_BLOCKS {
        match decode_log_header(window.block(BlockAddr(copy), 1)?) {
            LogHeader::Good(found, ..) if found != id => return Err(LogError::WrongId(found)),
            LogHeader::Good(_, ring, whole) => {
                if copy > 0 {
                    tracing::warn!(
                        "cannot read the first header block of the intent log: damaged; using the second"
                    );
                }
                return Ok((ring, whole));
            }
            LogHeader::Version(v) => return Err(LogError::Version(v)),
            LogHeader::Bad => {}
        }
    }
    Err(LogError::NotALog)
}

/// A piece of the device in memory.
struct Window {
    device: Arc<dyn Device>,
    frames: Vec<FrameMut>,
    /// Block of the first frame; frames beyond `filled` hold nothing.
    start: u64,
    filled: usize,
}

impl Window {
    fn new(device: Arc<dyn Device>, pool: &Arc<FramePool>) -> Result<Window, LogError> {
        // A quarter of the pool at most: replay needs the rest.
        let want = WINDOW.min(pool.total() / 4).max(1);
        let frames: Vec<_> = (0..want).map_while(|_| pool.alloc(Class::Cp)).collect();
        if frames.is_empty() {
            return Err(LogError::NoMemory);
        }
        Ok(Window {
            device,
            frames,
            start: 0,
            filled: 0,
        })
    }

    /// Returns the block at `addr`. If it has to be read, up to `ahead` blocks from `addr` on are
    /// read with it.
    fn block(&mut self, addr: BlockAddr, ahead: u64) -> Result<&[u8; BLOCK_SIZE], LogError> {
        let held = addr
            .0
            .checked_sub(self.start)
            .filter(|i| *i < self.filled as u64);
        let index = match held {
            Some(index) => index as usize,
            None => {
                // Saturates: the address comes from the disk.
                let left = self.device.length().saturating_sub(addr.0);
                let count = (self.frames.len() as u64).min(ahead).min(left).max(1) as usize;
                let rest = self.frames.split_off(count.min(self.frames.len()));
                self.filled = 0;
                let into = std::mem::take(&mut self.frames);
                self.frames = self.device.read(addr, into).wait()?;
                self.start = addr.0;
                self.filled = self.frames.len();
                self.frames.extend(rest);
                0
            }
        };
        self.frames
            .get(index)
            .map(|f| &**f)
            .ok_or(LogError::NoMemory)
    }
}

/// Records and page checksums of an undamaged batch.
type Body = (Vec<BodyRecord>, Vec<u32>);

/// Reads the body of a batch; `None` if it does not match the head.
fn read_body(window: &mut Window, ring: Ring, head: &Head) -> Result<Option<Body>, LogError> {
    let mut bytes = Vec::with_capacity(head.meta_bytes as usize);
    let slot = ring.addr(head.pos).0;
    for i in 0..head.meta_blocks() {
        let block = window.block(BlockAddr(slot + i), WINDOW as u64)?;
        let want = (head.meta_bytes as usize - bytes.len()).min(BLOCK_SIZE);
        bytes.extend(block.iter().take(want));
    }
    let body = bytes.get(HEAD..).unwrap_or_default();
    if crc32c::crc32c(body) != head.body_sum {
        return Ok(None);
    }
    match decode_body(head, body) {
        Some(body) => Ok(Some(body)),
        // The checksum holds, so these bytes were written like this.
        None => Err(LogError::Inconsistent {
            at: head.pos,
            what: "the batch's lengths do not match its head",
        }),
    }
}

struct Survey {
    window: Window,
    id: LogId,
    ring: Ring,
    /// One lap from the start: no batch can end beyond.
    limit: LogPos,
}

impl Survey {
    /// Returns the undamaged batch that follows a batch that ended at `end`.
    fn following(&mut self, end: LogPos, next: Lsn) -> Result<Option<Head>, LogError> {
        if let Some(head) = self.whole(end, end, next)? {
            return Ok(Some(head));
        }
        if self.ring.left_in_segment(end) == self.ring.segment {
            return Ok(None);
        }
        self.whole(self.ring.next_segment(end), end, next)
    }

    /// Returns the batch at `at`, if it continues a log that ended at `prev_end` and is undamaged.
    fn whole(&mut self, at: LogPos, prev_end: LogPos, next: Lsn) -> Result<Option<Head>, LogError> {
        if at >= self.limit {
            return Ok(None);
        }
        let slot = self.ring.addr(at);
        let block = self.window.block(slot, WINDOW as u64)?;
        let head = match Head::decode(block, self.id, self.ring, slot) {
            Some(h) if h.pos == at && h.prev_end == prev_end && h.end() <= self.limit => h,
            _ => return Ok(None),
        };
        if head.first != next {
            return Err(LogError::Inconsistent {
                at,
                what: "records are missing before it",
            });
        }
        let Some((_, sums)) = read_body(&mut self.window, self.ring, &head)? else {
            return Ok(None);
        };
        for (page, sum) in (slot.0 + head.meta_blocks()..).zip(sums) {
            if page_crc(self.window.block(BlockAddr(page), WINDOW as u64)?) != sum {
                return Ok(None);
            }
        }
        Ok(Some(head))
    }

    /// Searches for a batch that was written after something durable beyond `end`.
    ///
    /// It reads the rest of the segment of `end` and all of the next one. Of every other segment it
    /// reads the first block, which is a head if the segment was ever reached.
    fn prove_end(&mut self, end: LogPos) -> Result<(), LogError> {
        let ring = self.ring;
        let next = ring.next_segment(end);
        let full = end.0..next.0 + ring.segment;
        let heads = (2..ring.blocks / ring.segment).map(|i| next.0 + (i - 1) * ring.segment);
        for (at, ahead) in full
            .map(|at| (at, ring.left_in_segment(LogPos(at))))
            .chain(heads.map(|at| (at, 1)))
        {
            let slot = ring.addr(LogPos(at));
            let block = self.window.block(slot, ahead)?;
            if let Some(head) = Head::decode(block, self.id, ring, slot)
                && head.prev_end > end
            {
                return Err(LogError::DamagedMiddle {
                    at: end,
                    later: head.pos,
                });
            }
        }
        Ok(())
    }
}

/// A record that was found in the log.
#[derive(Debug)]
pub struct ReplayedRecord {
    /// LSN of the record.
    pub lsn: Lsn,
    /// Meta as appended.
    pub meta: Vec<u8>,
    /// Pages as appended, checksums verified.
    pub pages: Vec<Frame>,
}

/// The records found, in order. Ends after the first error.
pub struct Replay {
    window: Window,
    ring: Ring,
    pool: Arc<FramePool>,
    /// Boundary after the last batch whose records have all been handed out.
    behind: LogCut,
    batches: VecDeque<Head>,
    current: Option<Current>,
    progress: Arc<ReplayProgress>,
    failed: bool,
}

/// Counters of a replay in progress, for other threads to read.
#[derive(Debug)]
pub struct ReplayProgress {
    /// Number of records found.
    pub found: u64,
    handed: AtomicU64,
}

impl ReplayProgress {
    /// Returns the number of records that were handed out.
    pub fn done(&self) -> u64 {
        self.handed.load(Ordering::Relaxed)
    }
}

/// The batch whose records are being handed out.
struct Current {
    pos: LogPos,
    end: LogPos,
    lsn: u64,
    /// Block of the next payload page.
    page: u64,
    records: VecDeque<BodyRecord>,
    sums: VecDeque<u32>,
}

impl Replay {
    /// Returns the number of records found, including those handed out already.
    pub fn found(&self) -> u64 {
        self.progress.found
    }

    /// Returns counters that follow this replay.
    pub fn progress(&self) -> Arc<ReplayProgress> {
        Arc::clone(&self.progress)
    }

    /// Returns the position from which the log would have to be read if a checkpoint contained all
    /// records handed out so far; `None` within a batch.
    pub fn boundary(&self) -> Option<LogCut> {
        match &self.current {
            Some(current) if !current.records.is_empty() => None,
            Some(current) => Some(LogCut {
                pos: current.end,
                next: Lsn(current.lsn),
            }),
            None => Some(self.behind),
        }
    }

    /// Passes the meta and the number of pages of each remaining record to `each`, in order.
    ///
    /// # Errors
    /// Any [`LogError`].
    pub fn peek(&mut self, each: &mut dyn FnMut(&[u8], usize)) -> Result<(), LogError> {
        for record in self.current.iter().flat_map(|current| &current.records) {
            each(&record.meta, record.pages as usize);
        }
        for head in &self.batches {
            let Some((records, _)) = read_body(&mut self.window, self.ring, head)? else {
                return Err(changed(head.pos));
            };
            for record in &records {
                each(&record.meta, record.pages as usize);
            }
        }
        Ok(())
    }

    /// Returns the next record, its pages in frames that `frame` provides.
    ///
    /// # Errors
    /// Any [`LogError`], among them [`LogError::NoMemory`] if `frame` provided none. The replay
    /// ends after an error.
    pub fn next_in(
        &mut self,
        frame: &mut dyn FnMut() -> Option<FrameMut>,
    ) -> Option<Result<ReplayedRecord, LogError>> {
        if self.failed {
            return None;
        }
        let item = self.take(frame).transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }

    fn take(
        &mut self,
        frame: &mut dyn FnMut() -> Option<FrameMut>,
    ) -> Result<Option<ReplayedRecord>, LogError> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(record) = current.records.pop_front() {
                    let mut pages = Vec::with_capacity(record.pages as usize);
                    for _ in 0..record.pages {
                        let block = self.window.block(BlockAddr(current.page), WINDOW as u64)?;
                        let mut frame = frame().ok_or(LogError::NoMemory)?;
                        frame.copy_from_slice(block);
                        if current.sums.pop_front() != Some(page_crc(&frame)) {
                            return Err(changed(current.pos));
                        }
                        pages.push(frame.freeze());
                        current.page += 1;
                    }
                    let lsn = Lsn(current.lsn);
                    current.lsn += 1;
                    self.progress.handed.fetch_add(1, Ordering::Relaxed);
                    return Ok(Some(ReplayedRecord {
                        lsn,
                        meta: record.meta,
                        pages,
                    }));
                }
                self.behind = LogCut {
                    pos: current.end,
                    next: Lsn(current.lsn),
                };
                self.current = None;
            }
            let Some(head) = self.batches.pop_front() else {
                return Ok(None);
            };
            let Some((records, sums)) = read_body(&mut self.window, self.ring, &head)? else {
                return Err(changed(head.pos));
            };
            self.current = Some(Current {
                pos: head.pos,
                end: head.end(),
                lsn: head.first.0,
                page: self.ring.addr(head.pos).0 + head.meta_blocks(),
                records: records.into(),
                sums: sums.into(),
            });
        }
    }
}

/// Creates the error for a batch that was undamaged in the first pass and has changed since.
fn changed(at: LogPos) -> LogError {
    LogError::Inconsistent {
        at,
        what: "the batch changed between two reads",
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replay({:?})", self.progress)
    }
}

impl Iterator for Replay {
    type Item = Result<ReplayedRecord, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pool = Arc::clone(&self.pool);
        self.next_in(&mut || pool.alloc(Class::Cp))
    }
}

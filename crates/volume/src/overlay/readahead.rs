//! Predicts the next requested blocks of a file: finds sequential streams among the reads of all
//! clients.
//!
//! **Problem.** A client that reads a file from start to end has a few requests in flight. If each
//! of them goes to the device when it arrives, the device is idle while replies and requests
//! travel. The client waits for the device with every request. The next requests are predictable,
//! so their blocks can be read in advance. Blocks that are read and never requested cost device
//! time and memory, so the prediction needs evidence.
//!
//! **Evidence.** Linux (`mm/readahead.c`, on-demand readahead) keeps one position for each open
//! file, which NFSv3 does not have. It takes a request for sequential if it begins where the last
//! one ended. Requests of one client arrive out of order when it spreads them over connections
//! (nconnect), and several clients read one file. Therefore, as in OpenZFS (`dmu_zfetch.c`),
//! streams are recognised by position alone, and a file may have several.
//!
//! A request that no stream expects becomes a *candidate*: a range of blocks. A request that begins
//! or ends where a candidate ends or begins extends it, and joins two of them if it fills the gap
//! between them. So the first requests of a stream give one range whatever order they arrive in. A
//! candidate that was extended often enough ([`Candidate::is_sequential`]) becomes a stream. Random
//! requests touch one another by chance only, strided ones never.
//!
//! **Window.** A stream's first window is twice the request, and each further one twice the one
//! before, up to [`MOST`]. So the blocks read in vain when a stream ends are in proportion to those
//! that it has read (as in mountpoint-s3's `prefetch.rs` and Linux). The next part is read when
//! half of the window is used up, so that it is there in time and the device gets large requests.
//! Requests within the window or near it belong to the stream in any order ([`Stream::expects`]).
//!
//! **Going astray.** While fewer than half of the blocks that a stream has passed over have been
//! requested, nothing is read ahead for it. If that lasts (it has become strided, or random
//! requests met by chance) the stream is forgotten.
//!
//! **Bounds.** The tables have a fixed size: the oldest candidate makes room for a new one, and the
//! stream that has been idle for longest. The caller gives the number of blocks that may be read
//! ahead (`room`). The cache knows it ([`weir_store::Cache::ahead_room`]), and drops the oldest
//! unread blocks when there are too many.
//!
//! Only reads that miss the cache, or are the first to hit read-ahead blocks, are reported: cached
//! loads pay nothing.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_base::Ino;
use weir_base::limits::engine::{
    READ_AHEAD_IDLE as OLD, READ_AHEAD_ROUNDS as ROUNDS, READ_AHEAD_STREAMS as STREAMS,
    READ_AHEAD_WINDOW as MOST,
};
use weir_store::node::Key;
use weir_store::task::detach;
use weir_store::tree::{self, NodeSource};
use weir_store::{BlockPtr, Cache, Frame};

use crate::format::record::{Window, kind};
use crate::overlay::root::RootState;

/// Number of blocks (128 KiB) from which on two adjacent requests are enough evidence. Random
/// requests of that size rarely touch, and readers that use them are mostly sequential.
const LARGE: u64 = 32;

/// Maximum distance of a request from its stream's position, in request lengths: a client's
/// requests in flight are out of order by at most that (nconnect=16, four on each connection).
const REACH: u64 = 64;

/// Number of candidates of one shard, and of places in their indexes. Powers of two.
const CANDIDATES: usize = 64;
const INDEX: usize = 256;

/// Number of independent tables, by file. A power of two.
const SHARDS: usize = 32;

/// A file of one volume or snapshot: the view's number and the inode's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileId {
    pub(crate) view: u32,
    pub(crate) ino: Ino,
}

/// A range of blocks covered by requests.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    file: FileId,
    start: u64,
    end: u64,
    /// Number of requests that extended it.
    touches: u32,
}

impl Candidate {
    /// Returns true if the candidate is a sequential pattern. `len`: blocks of the last request.
    fn is_sequential(&self, len: u64) -> bool {
        self.touches >= 2 || (self.touches == 1 && (self.start == 0 || len >= LARGE))
    }
}

/// The last [`CANDIDATES`] ranges, found by either end: a random request costs two probes and a
/// store.
struct Candidates {
    ring: [Option<Candidate>; CANDIDATES],
    next: u8,
    /// Places in the ring by the hash of a range's start, and of its end. An entry may be outdated:
    /// then the range found there is a different one.
    by_start: [u8; INDEX],
    by_end: [u8; INDEX],
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates {
            ring: [None; CANDIDATES],
            next: 0,
            by_start: [0; INDEX],
            by_end: [0; INDEX],
        }
    }
}

fn hash(file: FileId, block: u64) -> usize {
    let n = block ^ file.ino.0.rotate_left(40) ^ u64::from(file.view).rotate_left(20);
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - INDEX.trailing_zeros())) as usize
}

impl Candidates {
    /// Takes out the candidate in this place if it is the wanted one.
    fn take(
        &mut self,
        place: Option<u8>,
        wanted: impl FnOnce(&Candidate) -> bool,
    ) -> Option<Candidate> {
        let slot = self.ring.get_mut(usize::from(place?))?;
        slot.take_if(|found| wanted(found))
    }

    /// Takes out the candidates that the request touches, and joins them with it.
    fn extend(&mut self, file: FileId, blocks: &Range<u64>) -> Candidate {
        let place = self.by_end.get(hash(file, blocks.start)).copied();
        let before = self.take(place, |c| c.file == file && c.end == blocks.start);
        let place = self.by_start.get(hash(file, blocks.end)).copied();
        let after = self.take(place, |c| c.file == file && c.start == blocks.end);
        let touches = |c: Option<Candidate>| c.map_or(0, |c| c.touches + 1);
        Candidate {
            file,
            start: before.map_or(blocks.start, |c| c.start),
            end: after.map_or(blocks.end, |c| c.end),
            touches: touches(before) + touches(after),
        }
    }

    fn put(&mut self, new: Candidate) {
        let place = self.next;
        self.next = (place + 1) % CANDIDATES as u8;
        if let Some(slot) = self.ring.get_mut(usize::from(place)) {
            *slot = Some(new);
        }
        if let Some(start) = self.by_start.get_mut(hash(new.file, new.start)) {
            *start = place;
        }
        if let Some(end) = self.by_end.get_mut(hash(new.file, new.end)) {
            *end = place;
        }
    }
}

#[derive(Clone, Debug)]
struct Stream {
    file: FileId,
    /// Block from which [`Stream::asked`] counts.
    start: u64,
    /// End of the foremost request.
    end: u64,
    /// Number of blocks requested since `start`.
    asked: u64,
    /// Number of blocks to be ahead by.
    window: u64,
    /// Block before which everything has been requested or read ahead.
    ahead: u64,
    /// The detector's clock at the last request.
    used: u64,
}

/// The streams and candidates of a shard.
#[derive(Default)]
struct Detector {
    streams: Vec<Stream>,
    candidates: Candidates,
    /// Number of requests so far: the detector's unit of time.
    clock: u64,
}

impl Detector {
    /// Notes a request for `blocks` of a file of `size` blocks, and returns the blocks to read
    /// ahead now. `room`: number of blocks that may be read ahead.
    fn request(
        &mut self,
        file: FileId,
        blocks: Range<u64>,
        size: u64,
        room: u64,
    ) -> Option<Range<u64>> {
        debug_assert!(blocks.start < blocks.end && blocks.end <= size);
        self.clock += 1;
        if let Some(at) = self.streams.iter().position(|s| s.expects(file, &blocks)) {
            return self.follow(at, blocks, size, room);
        }
        let len = blocks.end - blocks.start;
        let candidate = self.candidates.extend(file, &blocks);
        if !candidate.is_sequential(len) {
            self.candidates.put(candidate);
            return None;
        }
        let mut stream = Stream {
            file,
            start: candidate.start,
            end: candidate.end,
            asked: candidate.end - candidate.start,
            window: len,
            ahead: candidate.end,
            used: self.clock,
        };
        let next = stream.advance(size, room);
        self.insert(stream);
        next
    }

    /// Notes a request of the stream in this place.
    fn follow(
        &mut self,
        at: usize,
        blocks: Range<u64>,
        size: u64,
        room: u64,
    ) -> Option<Range<u64>> {
        let len = blocks.end - blocks.start;
        let stream = self.streams.get_mut(at)?;
        stream.used = self.clock;
        stream.end = stream.end.max(blocks.end);
        stream.asked += len;
        // Saturates: requested blocks may be before the stream's start.
        let passed = stream.end.saturating_sub(stream.start);
        let astray = stream.asked < passed / 2;
        if passed > 4 * stream.window.max(REACH * len) {
            if astray {
                self.streams.swap_remove(at);
                return None;
            }
            // Older requests count less.
            stream.start += passed / 2;
            stream.asked -= stream.asked / 2;
        }
        if astray {
            // Or requests were overtaken: they will come.
            return None;
        }
        stream.advance(size, room)
    }

    /// Adds a stream. The one that has been idle for longest makes room.
    fn insert(&mut self, new: Stream) {
        let now = self.clock;
        self.streams.retain(|s| now - s.used < OLD);
        if self.streams.len() < STREAMS {
            self.streams.push(new);
        } else if let Some(idle) = self.streams.iter_mut().min_by_key(|s| s.used) {
            *idle = new;
        }
    }
}

impl Stream {
    /// Returns true if a request belongs to this stream.
    fn expects(&self, file: FileId, blocks: &Range<u64>) -> bool {
        let reach = (REACH * (blocks.end - blocks.start)).max(self.window);
        // Saturates: the offsets come from clients.
        self.file == file
            && blocks.end.saturating_add(reach) >= self.end
            && blocks.start <= self.ahead.max(self.end).saturating_add(reach)
    }

    /// Returns the blocks to read now to be ahead by the window again.
    fn advance(&mut self, size: u64, room: u64) -> Option<Range<u64>> {
        self.ahead = self.ahead.max(self.end);
        let outstanding = self.ahead - self.end;
        let window = self.window.min(room);
        if outstanding > window / 2 {
            return None;
        }
        self.window = (self.window * 2).min(MOST);
        let goal = (self.end + self.window.min(room)).min(size);
        if goal <= self.ahead {
            return None;
        }
        let next = self.ahead..goal;
        self.ahead = goal;
        Some(next)
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Detector>);

/// The streams of an aggregate's files.
#[derive(Default)]
pub(crate) struct ReadAhead {
    shards: [Shard; SHARDS],
}

impl ReadAhead {
    /// Notes a request: see the module's head. `blocks` is neither empty nor does it go beyond
    /// `size`, both in blocks of the file.
    pub(crate) fn request(
        &self,
        file: FileId,
        blocks: Range<u64>,
        size: u64,
        room: u64,
    ) -> Option<Range<u64>> {
        let at = file.ino.0.wrapping_add(u64::from(file.view)) as usize % SHARDS;
        let shard = self.shards.get(at)?;
        shard.0.lock().request(file, blocks, size, room)
    }
}

/// Blocks to be read ahead.
pub(crate) struct Plan {
    /// Root that keeps the blocks from being reused until they are read.
    root: Arc<RootState>,
    ino: Ino,
    blocks: Range<u64>,
}

impl Plan {
    pub(crate) fn new(root: Arc<RootState>, ino: Ino, blocks: Range<u64>) -> Plan {
        Plan { root, ino, blocks }
    }

    /// Starts the reads. Blocks covered by an overlay are read as well: they are few, or nothing
    /// would have to be read.
    pub(crate) fn start(self, cache: &Arc<Cache>) {
        let cache = Arc::clone(cache);
        detach(async move {
            let mut from = self.blocks.start;
            // Enough for all leaves of the longest plan, and for the path that leads to them.
            for _ in 0..ROUNDS {
                let (found, missing) = self.locate(&cache, from);
                let ptrs: Vec<_> = found.iter().map(|(_, ptr)| *ptr).collect();
                cache.read_ahead(&ptrs, &self.root);
                if missing.is_empty() || cache.fetch(&missing).await.is_err() {
                    // A read that needs the block gets the error.
                    return;
                }
                // A window's blocks are found together: those before are done.
                from = found.last().map_or(from, |(block, _)| block + 1);
            }
        });
    }

    /// Returns the locations of the blocks from `from` on, and the nodes that have to be read to
    /// find more.
    fn locate(&self, cache: &Cache, from: u64) -> (Vec<(u64, BlockPtr)>, Vec<BlockPtr>) {
        let mut found = Vec::with_capacity((self.blocks.end - from) as usize);
        let first = Key::new(self.ino.0, kind::EXTENT, Window::start_of(from));
        let last = Key::new(self.ino.0, kind::EXTENT, self.blocks.end - 1);
        let mut each = |key: Key, value: &[u8]| {
            // The request that needs a malformed record reports it.
            if let Some(window) = Window::decode(value) {
                let stored = (key.sub..).zip(window.blocks);
                let wanted = stored.filter(|(b, _)| (from..self.blocks.end).contains(b));
                found.extend(wanted.filter_map(|(b, s)| Some((b, s?.ptr()))));
            }
            ControlFlow::Continue(())
        };
        let nodes = InMemory(cache);
        match tree::scan(&nodes, &self.root.root, first, last, &mut each) {
            Err(tree::Stop::Fetch(missing)) => (found, missing.into_vec()),
            Ok(()) | Err(_) => (found, Vec::new()),
        }
    }
}

/// A source of the nodes in memory.
struct InMemory<'a>(&'a Cache);

impl NodeSource for InMemory<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, tree::Stop> {
        self.0.get(ptr).ok_or_else(|| tree::Stop::fetch(*ptr))
    }
}

#[cfg(test)]
mod tests;

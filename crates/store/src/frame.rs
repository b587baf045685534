//! Page frames: the bulk of the memory budget, in one arena.
//!
//! File data and tree nodes are held in *frames*: pages of 4096 bytes, aligned to their size so
//! that the device can transfer them directly. They are reference-counted, so that a reply, the log
//! and the cache can share one without a copy. A shared frame is immutable. Only
//! [`Frame::try_into_mut`] makes it writable again, and only for its sole holder.
//!
//! The arena is one anonymous mapping, reserved up front and touched lazily, so an idle server is
//! small and a busy one cannot grow past its budget. Beside it is one word of bookkeeping for each
//! frame: its reference count, or its link in a free list while it is free. So neither taking,
//! sharing nor returning a frame allocates.
//!
//! Free lists are sharded by thread, as magazines (Bonwick and Adams: "Magazines and Vmem", USENIX
//! 2001). A thread takes and returns frames in two short lists of its own, and exchanges a whole
//! list at a time with a depot. The threads that take frames (requests) are not those that return
//! most of them (the log, checkpoints). With lists that only their own threads use, the former
//! touched ever more fresh memory while the latter hoarded free frames. Fresh frames are touched
//! only when the depot has no used ones. Used frames come back last in, first out, so that the
//! working set stays as small as the load allows. (Without that, a server that overwrote 64 MiB
//! over and over had grown to several GiB, and the kernel's clearing of pages took half of its
//! processor time.)
//!
//! A count of all free frames is kept beside the lists. It is decremented *before* a list is
//! searched and incremented *after* a frame was pushed. So a thread that the count admits is
//! certain to find a frame, and the share reserved for checkpoints is exact.
//!
//! **Lifetime.** A [`Frame`] is two words: its page and its pool. It holds no counted reference to
//! the pool, which would be one more contended atomic for each clone. Instead, dropping the pool
//! closes every list under its lock and counts the frames that are still out. Each late return
//! decrements that number, and the one that brings it to zero unmaps the arena.

mod ahead;
mod fill;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use weir_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use weir_base::sync::{Mutex, thread_number};
use weir_base::{BLOCK_SIZE, invariant};

use ahead::Ahead;
pub use ahead::Populator;
pub use fill::{Reread, fill};

type Page = [u8; BLOCK_SIZE];

/// Priority of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Requests: refused when only the reserve is left.
    Foreground,
    /// Checkpoints, which free memory in the end: may use all frames.
    Cp,
}

/// Number of free lists, a power of two. More than the cores of a common machine gain nothing,
/// because a list is held for a few instructions.
const SHARDS: usize = if cfg!(model) { 2 } else { 16 };

/// Frames in a magazine: 256 KiB. The depot's lock is then taken once per magazine.
const MAGAZINE: u32 = if cfg!(model) { 1 } else { 64 };

/// Fresh frames that a shard takes from the depot at a time.
const FRESH: u32 = if cfg!(model) { 1 } else { 16 };

/// Divisor of all frames: the share reserved for [`Class::Cp`].
const CP_SHARE: usize = 16;

/// Alignment of a transparent huge page in bytes.
const HUGE: usize = 2 << 20;

/// End of a free list.
const NIL: u32 = u32::MAX;

#[repr(align(64))]
struct Shard(Mutex<FreeList>);

/// Frames linked through their bookkeeping words.
#[derive(Clone, Copy)]
struct Magazine {
    head: u32,
    len: u32,
}

impl Magazine {
    const EMPTY: Magazine = Magazine { head: NIL, len: 0 };
}

/// Frames never handed out yet: `next..end`.
#[derive(Clone, Copy)]
struct FreshFrames {
    next: u32,
    end: u32,
}

impl FreshFrames {
    fn len(self) -> u32 {
        self.end - self.next
    }

    fn split(&mut self, most: u32) -> FreshFrames {
        let next = self.next;
        self.next += most.min(self.len());
        FreshFrames {
            next,
            end: self.next,
        }
    }
}

struct FreeList {
    /// Magazine that frames are taken from and returned to; of any length up to [`MAGAZINE`].
    loaded: Magazine,
    /// Magazine of [`MAGAZINE`] frames or none.
    spare: Magazine,
    fresh: FreshFrames,
    /// True after the pool was dropped: returning a frame must be counted.
    closed: bool,
}

impl FreeList {
    fn len(&self) -> usize {
        (self.loaded.len + self.spare.len + self.fresh.len()) as usize
    }
}

/// Frames that no shard has. Its lock is taken with a shard's lock held, never the other way round.
struct Depot {
    /// Full magazines; the last one was filled last.
    full: Vec<Magazine>,
    fresh: FreshFrames,
}

#[repr(align(64))]
struct CachePadded<T>(T);

struct Inner {
    base: NonNull<u8>,
    map: NonNull<u8>,
    map_len: usize,
    total: u32,
    reserve: usize,
    /// One word for each frame: its reference count while it is out, the next free frame while it
    /// is not.
    words: Box<[AtomicU32]>,
    shards: [Shard; SHARDS],
    depot: CachePadded<Mutex<Depot>>,
    free: CachePadded<AtomicUsize>,
    ahead: Ahead,
    /// Frames still out once the pool is dropped.
    orphans: AtomicUsize,
}

// SAFETY: `base` and `map` are an anonymous mapping owned by this value. Its pages are reached only
// through `FrameMut` (unique) and `Frame` (shared, read-only); the rest is atomics and mutexes.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// The arena of page frames.
pub struct FramePool {
    inner: NonNull<Inner>,
}

// SAFETY: a pool owns an `Inner`, which is both.
unsafe impl Send for FramePool {}
// SAFETY: as above.
unsafe impl Sync for FramePool {}

impl FramePool {
    /// Reserves address space for `frames` frames.
    ///
    /// # Errors
    /// If the address space cannot be reserved, or `frames` is beyond 2^32 − 2 (16 TiB).
    pub fn new(frames: usize) -> io::Result<Arc<FramePool>> {
        let total = u32::try_from(frames)
            .ok()
            .filter(|n| *n < NIL)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "more than the 16 TiB that can be addressed",
                )
            })?;
        let bytes = frames
            .checked_mul(BLOCK_SIZE)
            .and_then(|b| b.checked_add(HUGE));
        let map_len = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let map = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                map_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let map = NonNull::new(map.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = map.as_ptr().align_offset(HUGE);
        // SAFETY: the mapping is HUGE bytes longer than the frames, and `skip` < HUGE.
        let base = unsafe { map.add(skip) };
        #[cfg(target_os = "linux")]
        // SAFETY: the range is inside the mapping. A refusal of the advice is no error.
        let _ = unsafe {
            let len = frames * BLOCK_SIZE;
            mm::madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage)
        };
        let shards = std::array::from_fn(|_| {
            Shard(Mutex::new(FreeList {
                loaded: Magazine::EMPTY,
                spare: Magazine::EMPTY,
                fresh: FreshFrames { next: 0, end: 0 },
                closed: false,
            }))
        });
        let inner = Box::new(Inner {
            base,
            map,
            map_len,
            total,
            reserve: frames / CP_SHARE,
            words: (0..frames).map(|_| AtomicU32::new(0)).collect(),
            shards,
            depot: CachePadded(Mutex::new(Depot {
                full: Vec::new(),
                fresh: FreshFrames {
                    next: 0,
                    end: total,
                },
            })),
            free: CachePadded(AtomicUsize::new(frames)),
            ahead: Ahead::default(),
            orphans: AtomicUsize::new(0),
        });
        Ok(Arc::new(FramePool {
            inner: NonNull::from(Box::leak(inner)),
        }))
    }

    fn inner(&self) -> &Inner {
        // SAFETY: `Inner` lives at least until this pool is dropped.
        unsafe { self.inner.as_ref() }
    }

    /// Takes a frame, or returns `None` if none is free for this class. Its contents are left over
    /// from its last holder.
    pub fn alloc(&self, class: Class) -> Option<FrameMut> {
        let inner = self.inner();
        let floor = match class {
            Class::Foreground => inner.reserve,
            Class::Cp => 0,
        };
        // Acquire pairs with the release in `give_back`: the counted frame is in its list.
        inner
            .free
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| {
                (n > floor).then(|| n - 1)
            })
            .ok()?;
        let mut at = thread_number();
        loop {
            // `at` is masked, so `get` always finds the shard.
            if let Some(index) = inner
                .shards
                .get(at & (SHARDS - 1))
                .and_then(|s| inner.pop(s))
            {
                return Some(inner.hand_out(self.inner, index));
            }
            // The count guarantees a frame. It may have been pushed to a list that this search has
            // passed, so the search goes round.
            at += 1;
            #[cfg(model)]
            weir_base::sync::thread::yield_now();
        }
    }

    /// Like [`FramePool::alloc`], filled with zeroes.
    pub fn zeroed(&self, class: Class) -> Option<FrameMut> {
        let mut frame = self.alloc(class)?;
        frame.fill(0);
        Some(frame)
    }

    /// Returns the number of frames in the arena.
    pub fn total(&self) -> usize {
        self.inner().total as usize
    }

    /// Returns the number of frames without a holder.
    pub fn free(&self) -> usize {
        self.inner().free.0.load(Ordering::Relaxed)
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        let inner = self.inner();
        // With all lists locked no return is half done, and none can be missed: a frame is in a
        // list already, or its return will see `closed`.
        let mut lists: Vec<_> = inner.shards.iter().map(|s| s.0.lock()).collect();
        let free = {
            let depot = inner.depot.0.lock();
            let full: usize = depot.full.iter().map(|m| m.len as usize).sum();
            let lists = lists.iter().map(|l| l.len()).sum::<usize>();
            lists + full + depot.fresh.len() as usize
        };
        let out = inner.total as usize - free;
        // One more than are out, so that no return frees the arena under this guard.
        inner.orphans.store(out + 1, Ordering::Relaxed);
        for list in &mut lists {
            list.closed = true;
        }
        drop(lists);
        // SAFETY: this thread holds the one count that `out` was raised by, and does not use
        // `inner` any more.
        unsafe { Inner::orphan_returned(self.inner) }
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} free)", self.free(), self.total())
    }
}

impl Inner {
    fn pop(&self, shard: &Shard) -> Option<u32> {
        let mut list = shard.0.lock();
        let list = &mut *list;
        if list.loaded.len == 0 {
            if list.spare.len > 0 {
                std::mem::swap(&mut list.loaded, &mut list.spare);
            } else if list.fresh.len() == 0 {
                let mut depot = self.depot.0.lock();
                match depot.full.pop() {
                    Some(full) => list.loaded = full,
                    None => {
                        list.fresh = depot.fresh.split(FRESH);
                        self.ahead.taken(list.fresh.end);
                    }
                }
            }
        }
        if list.loaded.len > 0 {
            let index = list.loaded.head;
            list.loaded.head = self.words.get(index as usize)?.load(Ordering::Relaxed);
            list.loaded.len -= 1;
            return Some(index);
        }
        let fresh = list.fresh.split(1);
        (fresh.len() == 1).then_some(fresh.next)
    }

    fn hand_out(&self, pool: NonNull<Inner>, index: u32) -> FrameMut {
        if let Some(word) = self.words.get(index as usize) {
            word.store(1, Ordering::Relaxed);
        }
        // SAFETY: `index` is below `total`, so the page is inside the mapping.
        let page = unsafe { self.base.add(index as usize * BLOCK_SIZE) }.cast::<Page>();
        FrameMut { page, pool }
    }

    fn index_of(&self, page: NonNull<Page>) -> usize {
        (page.as_ptr() as usize - self.base.as_ptr() as usize) / BLOCK_SIZE
    }

    fn word(&self, page: NonNull<Page>) -> &AtomicU32 {
        let index = self.index_of(page);
        debug_assert!(index < self.words.len());
        // SAFETY: `page` came from `hand_out`, so its index is below `total`,
        // which is the length of `words`.
        unsafe { self.words.get_unchecked(index) }
    }

    /// Returns a frame without a holder to a list.
    ///
    /// # Safety
    /// `pool` is the pool of `page`, the caller held the last reference to the
    /// page, and uses neither afterwards.
    unsafe fn give_back(pool: NonNull<Inner>, page: NonNull<Page>) {
        // SAFETY: a frame that is out keeps its pool's `Inner` alive.
        let inner = unsafe { pool.as_ref() };
        let index = inner.index_of(page) as u32;
        let [first, ..] = &inner.shards;
        // Masked, so that it is always found.
        let shard = inner.shards.get(thread_number() & (SHARDS - 1));
        let mut list = shard.unwrap_or(first).0.lock();
        if list.loaded.len >= MAGAZINE {
            let full = std::mem::replace(&mut list.loaded, Magazine::EMPTY);
            let before = std::mem::replace(&mut list.spare, full);
            if before.len > 0 {
                inner.depot.0.lock().full.push(before);
            }
        }
        inner.word(page).store(list.loaded.head, Ordering::Relaxed);
        list.loaded.head = index;
        list.loaded.len += 1;
        let closed = list.closed;
        // Counted under the lock: once a list is closed and this lock released, only the orphan
        // count keeps `inner` alive.
        let free = inner.free.0.fetch_add(1, Ordering::Release);
        debug_assert!(
            free < inner.total as usize,
            "more frames are free than there are"
        );
        drop(list);
        if closed {
            // SAFETY: the pool counted this frame among those out.
            unsafe { Inner::orphan_returned(pool) }
        }
    }

    /// Takes one from the count of frames still out; the last one frees everything.
    ///
    /// # Safety
    /// The pool was dropped and the caller owns one of the counted references.
    unsafe fn orphan_returned(pool: NonNull<Inner>) {
        // SAFETY: the count is not zero before this call, so `Inner` is alive.
        // As with `Arc`, release orders this thread's uses before the end and the fence orders the
        // end after every thread's.
        if unsafe { pool.as_ref() }
            .orphans
            .fetch_sub(1, Ordering::Release)
            == 1
        {
            fence(Ordering::Acquire);
            // SAFETY: it came from `Box::leak`, and nothing else refers to it.
            drop(unsafe { Box::from_raw(pool.as_ptr()) });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; no frame refers to it any more.
        let unmapped = unsafe { mm::munmap(self.map.as_ptr().cast(), self.map_len) };
        invariant!(
            unmapped.is_ok(),
            "a mapping that was made can be taken back"
        );
    }
}

/// A frame that only its owner can see, and may write.
pub struct FrameMut {
    page: NonNull<Page>,
    pool: NonNull<Inner>,
}

// SAFETY: a `FrameMut` is the unique owner of the page.
unsafe impl Send for FrameMut {}
// SAFETY: a shared reference to a `FrameMut` only reads.
unsafe impl Sync for FrameMut {}

impl FrameMut {
    /// Makes the frame immutable, so that it can be shared.
    pub fn freeze(self) -> Frame {
        let frame = Frame {
            page: self.page,
            pool: Some(self.pool),
        };
        std::mem::forget(self);
        frame
    }
}

impl Deref for FrameMut {
    type Target = Page;
    fn deref(&self) -> &Page {
        // SAFETY: the page is mapped and initialised (anonymous memory is zero
        // at first), and only this owner writes it.
        unsafe { self.page.as_ref() }
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut Page {
        // SAFETY: as above, and `&mut self` makes this the only access.
        unsafe { self.page.as_mut() }
    }
}

impl Drop for FrameMut {
    fn drop(&mut self) {
        // SAFETY: this was the only reference.
        unsafe { Inner::give_back(self.pool, self.page) }
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameMut({:p})", self.page)
    }
}

/// A page that may have several holders, and so is immutable.
pub struct Frame {
    page: NonNull<Page>,
    /// `None` for the page of zeroes, which is not counted.
    pool: Option<NonNull<Inner>>,
}

// SAFETY: the page is immutable while it is shared, and the count is atomic.
unsafe impl Send for Frame {}
// SAFETY: as above.
unsafe impl Sync for Frame {}

#[repr(align(4096))]
struct ZeroPage(Page);

static ZERO: ZeroPage = ZeroPage([0; BLOCK_SIZE]);

impl Frame {
    /// Returns the page of zeroes that stands for holes.
    pub fn zero() -> Frame {
        Frame {
            page: NonNull::from(&ZERO.0),
            pool: None,
        }
    }

    /// Returns true if this is [`Frame::zero`].
    pub fn is_zero_page(&self) -> bool {
        self.pool.is_none()
    }

    /// Returns the reference count; the page of zeroes has none.
    fn count(&self) -> Option<&AtomicU32> {
        // SAFETY: a frame that is out keeps its pool's `Inner` alive.
        self.pool
            .map(|pool| unsafe { pool.as_ref() }.word(self.page))
    }

    /// Returns true if this is the frame's only holder. Only a `true` lasts, and only for an owner
    /// that does not hand the frame out meanwhile.
    pub fn is_unique(&self) -> bool {
        // Acquire: the last other holder's reads happened before a write that relies on this
        // result.
        self.count().is_some_and(|n| n.load(Ordering::Acquire) == 1)
    }

    /// Returns the frame as a writable one, if this is its only holder.
    ///
    /// # Errors
    /// The frame itself if it is shared.
    pub fn try_into_mut(self) -> Result<FrameMut, Frame> {
        match self.pool {
            Some(pool) if self.is_unique() => {
                let frame = FrameMut {
                    page: self.page,
                    pool,
                };
                std::mem::forget(self);
                Ok(frame)
            }
            _ => Err(self),
        }
    }

    /// Returns the bytes of `frames` in order, in as few slices as possible: pages that are
    /// neighbours in the arena form one slice.
    pub fn joined(frames: &[Frame]) -> impl Iterator<Item = &[u8]> {
        let mut rest = frames;
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let mut end = first.page.as_ptr().wrapping_add(1);
            let same = |f: &&Frame| {
                let next = f.pool == first.pool && f.pool.is_some() && f.page.as_ptr() == end;
                end = end.wrapping_add(usize::from(next));
                next
            };
            let count = 1 + rest.iter().skip(1).take_while(same).count();
            let (run, after) = rest.split_at(count);
            rest = after;
            let start = run.first()?.page.as_ptr().cast::<u8>();
            // SAFETY: all pages of `run` follow one another in the mapping of one pool, from which
            // the pointer to the first one derives too. `frames` is borrowed for as long as the
            // slice, so none of them is returned to the pool or written.
            Some(unsafe { std::slice::from_raw_parts(start, count * BLOCK_SIZE) })
        })
    }

    /// Returns true if both are the same page in memory.
    pub fn same_page(&self, other: &Frame) -> bool {
        self.page == other.page
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        if let Some(count) = self.count() {
            // Relaxed, as with `Arc`: the cloned handle keeps the frame alive.
            if count.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
                // Two thousand million leaked handles: the count is about to overflow, and
                // continuing would be unsound.
                std::process::abort();
            }
        }
        Frame {
            page: self.page,
            pool: self.pool,
        }
    }
}

impl Deref for Frame {
    type Target = Page;
    fn deref(&self) -> &Page {
        // SAFETY: the page is mapped, initialised, and not written while shared.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let (Some(pool), Some(count)) = (self.pool, self.count()) else {
            // The page of zeroes is not counted.
            return;
        };
        // As with `Arc`: release orders this holder's reads before the reuse, the fence orders the
        // reuse after every holder's reads.
        let before = count.fetch_sub(1, Ordering::Release);
        debug_assert!(
            before > 0 && before < u32::MAX / 2,
            "a frame is dropped that nobody holds"
        );
        if before == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last reference.
            unsafe { Inner::give_back(pool, self.page) }
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:p})", self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_distinct_and_bounded() {
        let pool = FramePool::new(64).unwrap();
        let mut held: Vec<FrameMut> = Vec::new();
        while let Some(f) = pool.alloc(Class::Foreground) {
            held.push(f);
        }
        assert_eq!(held.len(), 60, "one in sixteen is kept back");
        while let Some(f) = pool.alloc(Class::Cp) {
            held.push(f);
        }
        assert_eq!((held.len(), pool.free()), (64, 0));
        let mut at: Vec<usize> = held.iter().map(|f| f.as_ptr() as usize).collect();
        at.sort_unstable();
        at.dedup();
        assert_eq!(at.len(), 64);
        assert!(at.iter().all(|a| a % BLOCK_SIZE == 0));
        held.clear();
        assert_eq!(pool.free(), 64);
    }

    #[test]
    fn only_the_last_holder_may_write() {
        let pool = FramePool::new(16).unwrap();
        let mut f = pool.zeroed(Class::Cp).unwrap();
        f[0] = 1;
        let a = f.freeze();
        let b = a.clone();
        assert!(!a.is_unique());
        let a = a.try_into_mut().unwrap_err();
        drop(b);
        assert!(a.is_unique());
        let mut m = a.try_into_mut().unwrap();
        m[0] += 1;
        assert_eq!(m.freeze()[0], 2);
        assert_eq!(pool.free(), 16);
    }

    #[test]
    fn the_zero_page_is_shared_and_never_writable() {
        let z = Frame::zero();
        assert!(z.iter().all(|b| *b == 0));
        assert!(z.same_page(&Frame::zero()));
        assert!(!z.is_unique());
        assert_eq!(z.as_ptr() as usize % BLOCK_SIZE, 0);
        assert!(z.clone().try_into_mut().is_err());
    }

    #[test]
    fn neighbours_in_memory_are_joined() {
        let pool = FramePool::new(64).unwrap();
        let mut frames: Vec<Frame> = (0..40u8)
            .map(|i| {
                let mut f = pool.alloc(Class::Cp).unwrap();
                f.fill(i);
                f.freeze()
            })
            .collect();
        frames.swap(5, 20);
        frames.insert(9, Frame::zero());
        frames.insert(9, Frame::zero());
        for from in 0..=frames.len() {
            let want: Vec<u8> = frames[from..]
                .iter()
                .flat_map(|f| f.iter().copied())
                .collect();
            assert_eq!(
                Frame::joined(&frames[from..]).collect::<Vec<_>>().concat(),
                want
            );
        }
        frames.sort_by_key(|f| f.as_ptr() as usize);
        let slices = Frame::joined(&frames).count();
        let gaps = frames
            .windows(2)
            .filter(|w| w[1].as_ptr() as usize != w[0].as_ptr() as usize + BLOCK_SIZE);
        assert!(slices <= gaps.count() + 1, "{slices}");
        assert!(slices < 20, "{slices}");
    }

    #[test]
    fn frames_outlive_their_pool() {
        let pool = FramePool::new(32).unwrap();
        let mut kept: Vec<Frame> = (0..8u8)
            .map(|i| {
                let mut f = pool.alloc(Class::Cp).unwrap();
                f.fill(i);
                f.freeze()
            })
            .collect();
        kept.push(kept[0].clone());
        drop(pool);
        std::thread::scope(|s| {
            for f in kept {
                s.spawn(move || assert!(f.iter().all(|b| *b == f[0])));
            }
        });
    }

    /// One thread takes, another returns: the amount of touched memory stays small.
    #[test]
    fn used_frames_are_taken_before_fresh_ones() {
        let pool = FramePool::new(64 * MAGAZINE as usize).unwrap();
        let (send, receive) = std::sync::mpsc::sync_channel::<Frame>(16);
        let mut touched = std::collections::HashSet::new();
        std::thread::scope(|s| {
            s.spawn(move || {
                for frame in receive {
                    drop(frame);
                }
            });
            for _ in 0..200 * MAGAZINE {
                let frame = pool.alloc(Class::Foreground).unwrap();
                touched.insert(frame.as_ptr() as usize);
                send.send(frame.freeze()).unwrap();
            }
            drop(send);
        });
        // Two magazines on each side, one in transfer, and the frames in the channel.
        assert!(touched.len() <= 6 * MAGAZINE as usize, "{}", touched.len());
        assert_eq!(pool.free(), pool.total());
    }

    #[test]
    fn an_empty_pool_has_nothing() {
        assert!(FramePool::new(0).unwrap().alloc(Class::Cp).is_none());
        assert!(FramePool::new(usize::MAX).is_err());
    }

    /// Threads take, share across threads, mark and return frames; a frame with two owners would
    /// show a foreign mark.
    #[test]
    fn concurrent_use_never_hands_a_frame_to_two() {
        let pool = FramePool::new(48).unwrap();
        let (send, receive) = std::sync::mpsc::sync_channel::<(u64, Frame)>(8);
        let receive = Mutex::new(receive);
        std::thread::scope(|s| {
            for t in 0..3u64 {
                let (send, pool) = (send.clone(), &pool);
                s.spawn(move || {
                    for i in 0..4000u64 {
                        let Some(mut f) = pool.alloc(Class::Foreground) else {
                            std::thread::yield_now();
                            continue;
                        };
                        let mark = (t << 32) | i;
                        f[..8].copy_from_slice(&mark.to_le_bytes());
                        f[4088..].copy_from_slice(&mark.to_le_bytes());
                        let f = f.freeze();
                        send.send((mark, f.clone())).unwrap();
                        assert_eq!(f[..8], mark.to_le_bytes());
                    }
                });
            }
            drop(send);
            for _ in 0..2 {
                s.spawn(|| {
                    loop {
                        let next = receive.lock().recv();
                        let Ok((mark, f)) = next else { return };
                        assert_eq!(f[..8], mark.to_le_bytes());
                        assert_eq!(f[4088..], mark.to_le_bytes());
                    }
                });
            }
        });
        assert_eq!(pool.free(), 48);
    }

    #[cfg(model)]
    mod orders {
        use weir_base::sync::{model, set_thread_number, thread};

        use super::*;

        /// Two threads with lists of their own, and a pool of `frames` frames.
        fn both(frames: usize, work: fn(&FramePool, usize)) {
            model(move || {
                let pool = FramePool::new(frames).unwrap();
                let threads = [0, 1].map(|number| {
                    let pool = Arc::clone(&pool);
                    thread::spawn(move || {
                        set_thread_number(number);
                        work(&pool, number);
                    })
                });
                for thread in threads {
                    thread.join().unwrap();
                }
                assert_eq!(pool.free(), frames);
            });
        }

        #[test]
        fn a_thread_that_the_count_admits_finds_a_frame() {
            both(2, |pool, _| {
                let frame = pool.alloc(Class::Cp);
                assert!(frame.is_some());
                drop(frame);
                drop(pool.alloc(Class::Cp));
            });
        }

        #[test]
        fn no_frame_is_handed_out_twice() {
            both(3, |pool, number| {
                let mut frame = pool.alloc(Class::Cp).unwrap();
                frame[0] = number as u8;
                thread::yield_now();
                assert_eq!(frame[0], number as u8);
            });
        }

        #[test]
        fn the_last_holder_alone_may_write() {
            model(|| {
                let pool = FramePool::new(1).unwrap();
                let mut frame = pool.alloc(Class::Cp).unwrap();
                frame[0] = 1;
                let frame = frame.freeze();
                let reader = {
                    let frame = frame.clone();
                    thread::spawn(move || {
                        thread::yield_now();
                        assert_eq!(frame[0], 1);
                    })
                };
                if let Ok(mut frame) = frame.try_into_mut() {
                    frame[0] = 2;
                }
                reader.join().unwrap();
                assert_eq!(pool.free(), 1);
            });
        }

        #[test]
        fn frames_outlive_their_pool() {
            model(|| {
                let pool = FramePool::new(2).unwrap();
                let out = [0, 1].map(|_| pool.alloc(Class::Cp).unwrap().freeze());
                let holders = out.map(|frame| {
                    thread::spawn(move || {
                        assert_eq!(frame.len(), BLOCK_SIZE);
                        drop(frame);
                    })
                });
                drop(pool);
                for holder in holders {
                    holder.join().unwrap();
                }
            });
        }
    }
}

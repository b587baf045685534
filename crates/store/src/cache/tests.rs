use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex as Lock;
use proptest::prelude::*;
use weir_base::{BLOCK_SIZE, Generation};

use super::*;
use crate::device::{Completer, Io, MemDevice};
use crate::error::{IoError, IoKind, StoreError};

type HeldRead = (BlockAddr, Vec<FrameMut>, Completer<Vec<FrameMut>>);

/// A device that counts reads, delays them on request, and fails reads of bad blocks.
struct Slow {
    disk: MemDevice,
    reads: Lock<Vec<(u64, usize)>>,
    hold: Lock<Option<Vec<HeldRead>>>,
    bad: Lock<Vec<u64>>,
}

impl Slow {
    fn new(blocks: u64) -> Arc<Slow> {
        Arc::new(Slow {
            disk: MemDevice::new(blocks),
            reads: Lock::default(),
            hold: Lock::default(),
            bad: Lock::default(),
        })
    }

    fn read_blocks(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Result<Vec<FrameMut>, IoError> {
        let range = addr.0..addr.0 + into.len() as u64;
        if self.bad.lock().iter().any(|b| range.contains(b)) {
            let e = io::Error::from_raw_os_error(libc::EIO);
            return Err(IoError::new(IoKind::Read, addr, into.len() as u64, e));
        }
        self.disk.read(addr, into).wait()
    }

    fn release(&self) {
        for (addr, into, done) in self.hold.lock().take().unwrap_or_default() {
            done.complete(self.read_blocks(addr, into));
        }
    }
}

impl Device for Slow {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.reads.lock().push((addr.0, into.len()));
        if let Some(held) = &mut *self.hold.lock() {
            let (done, io) = Io::pair();
            held.push((addr, into, done));
            return io;
        }
        Io::ready(self.read_blocks(addr, into))
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        self.disk.write(addr, from)
    }

    fn flush(&self) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        self.disk.discard(addr, count)
    }

    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.disk.grow(blocks)
    }
}

fn content(addr: u64, birth: u64) -> [u8; BLOCK_SIZE] {
    let mut page = [0; BLOCK_SIZE];
    page[..8].copy_from_slice(&addr.to_le_bytes());
    page[4088..].copy_from_slice(&birth.to_le_bytes());
    page
}

fn ptr(addr: u64, birth: u64) -> BlockPtr {
    BlockPtr::to_page(BlockAddr(addr), Generation(birth), &content(addr, birth))
}

fn setup(frames: usize, blocks: u64) -> (Arc<Slow>, Arc<Cache>) {
    let device = Slow::new(blocks);
    for n in 0..blocks {
        device.disk.tamper(BlockAddr(n), |b| *b = content(n, 1));
    }
    let cache = Cache::new(FramePool::new(frames).unwrap(), device.clone());
    (device, Arc::new(cache))
}

fn poll<F: Future>(f: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    f.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn neighbours_are_read_at_once_and_only_once() {
    let (device, cache) = setup(256, 64);
    let ptrs: Vec<_> = [9, 3, 4, 5, 40, 4].map(|n| ptr(n, 1)).into();
    let pages = cache.fetch_blocking(&ptrs).unwrap();
    for (p, page) in ptrs.iter().zip(&pages) {
        assert_eq!(page[..], content(p.addr.0, 1));
    }
    assert_eq!(*device.reads.lock(), [(3, 3), (9, 1), (40, 1)]);
    assert!(pages[1..].iter().any(|p| p.same_page(&pages[5])));
    cache.fetch_blocking(&ptrs).unwrap();
    assert_eq!(device.reads.lock().len(), 3, "the second time from memory");
    assert_eq!(cache.get(&ptr(4, 1)).unwrap()[..], content(4, 1));
    assert_eq!(
        cache.stats(),
        CacheStats {
            hits: 1,
            pages: 5,
            ..CacheStats::default()
        }
    );
}

#[test]
fn only_address_and_birth_together_hit() {
    let (_, cache) = setup(64, 8);
    cache.fetch_blocking(&[ptr(2, 1)]).unwrap();
    assert!(cache.get(&ptr(2, 2)).is_none());
    assert!(cache.get(&ptr(3, 1)).is_none());
    // The device holds birth 1, so a pointer of birth 2 does not verify.
    match cache.fetch_blocking(&[ptr(2, 2)]) {
        Err(StoreError::Corrupt {
            addr: BlockAddr(2), ..
        }) => {}
        other => panic!("{other:?}"),
    }
    let mut f = cache.alloc(Class::Foreground).unwrap();
    *f = content(2, 2);
    cache.insert(ptr(2, 2), f.freeze());
    assert_eq!(cache.get(&ptr(2, 2)).unwrap()[..], content(2, 2));
    assert!(cache.get(&ptr(2, 1)).is_none());
    cache.insert(ptr(2, 1), Frame::zero());
    assert!(
        cache.get(&ptr(2, 2)).is_some(),
        "an older life does not displace a newer"
    );
    cache.forget(BlockAddr(0), 8);
    assert_eq!(cache.stats().pages, 0);
}

#[test]
fn readers_of_one_block_share_one_read() {
    let (device, cache) = setup(64, 8);
    *device.hold.lock() = Some(vec![]);
    let (p, q) = ([ptr(1, 1)], [ptr(1, 1), ptr(2, 1)]);
    let mut first = pin!(cache.fetch(&p));
    let mut second = pin!(cache.fetch(&q));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(*device.reads.lock(), [(1, 1), (2, 1)]);
    device.release();
    // The second read has its own block, but waits for the first to verify the other.
    assert!(poll(second.as_mut()).is_pending());
    let Poll::Ready(Ok(a)) = poll(first) else {
        panic!()
    };
    let Poll::Ready(Ok(b)) = poll(second) else {
        panic!()
    };
    assert!(a[0].same_page(&b[0]));
}

#[test]
fn a_cancelled_read_is_taken_over() {
    let (device, cache) = setup(64, 8);
    *device.hold.lock() = Some(vec![]);
    let p = [ptr(1, 1)];
    let mut second = pin!(cache.fetch(&p));
    {
        let mut first = pin!(cache.fetch(&p));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
    }
    assert_eq!(device.reads.lock().len(), 1);
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(device.reads.lock().len(), 2, "it reads for itself now");
    device.release();
    let Poll::Ready(Ok(pages)) = poll(second) else {
        panic!()
    };
    assert_eq!(pages[0][..], content(1, 1));
    let mut third = pin!(cache.fetch(&p));
    assert!(matches!(poll(third.as_mut()), Poll::Ready(Ok(_))));
}

#[test]
fn a_bad_block_does_not_take_its_neighbours_with_it() {
    let (device, cache) = setup(64, 16);
    device.bad.lock().push(5);
    device.disk.tamper(BlockAddr(7), |b| b[100] ^= 1);
    let ptrs: Vec<_> = (2..10).map(|n| ptr(n, 1)).collect();
    match cache.fetch_blocking(&ptrs) {
        Err(StoreError::Io(e)) => assert_eq!((e.addr, e.count), (BlockAddr(5), 1)),
        other => panic!("{other:?}"),
    }
    let there: Vec<u64> = (2..10)
        .filter(|n| cache.get(&ptr(*n, 1)).is_some())
        .collect();
    assert_eq!(there, [2, 3, 4, 6, 8, 9]);
    assert!(matches!(
        cache.fetch_blocking(&[ptr(7, 1)]),
        Err(StoreError::Corrupt {
            addr: BlockAddr(7),
            ..
        })
    ));
    device.disk.tamper(BlockAddr(7), |b| b[100] ^= 1);
    cache.fetch_blocking(&[ptr(7, 1)]).unwrap();
}

#[test]
fn pages_in_use_stay_and_memory_runs_out_honestly() {
    let (_, cache) = setup(64, 256);
    let held: Vec<Frame> = (0..60)
        .map(|n| cache.fetch_blocking(&[ptr(n, 1)]).unwrap().remove(0))
        .collect();
    assert!(
        cache.alloc(Class::Foreground).is_none(),
        "the reserve is not for requests"
    );
    assert!(matches!(
        pollster(cache.fetch(&[ptr(100, 1)])),
        Err(StoreError::NoMemory)
    ));
    let kept: Vec<_> = (0..4).map(|_| cache.alloc(Class::Cp).unwrap()).collect();
    assert!(cache.alloc(Class::Cp).is_none());
    for (n, f) in held.iter().enumerate() {
        assert!(cache.get(&ptr(n as u64, 1)).unwrap().same_page(f));
    }
    drop(held);
    let got: Vec<_> = std::iter::from_fn(|| cache.alloc(Class::Cp)).collect();
    assert_eq!(
        (got.len(), cache.stats().pages),
        (60, 0),
        "all of it can be had again"
    );
    drop((got, kept));
    assert_eq!(cache.pool().free(), 64);
}

fn pollster<F: Future>(f: F) -> F::Output {
    match poll(pin!(f)) {
        Poll::Ready(out) => out,
        Poll::Pending => panic!("nothing to wait for"),
    }
}

#[test]
fn a_scan_does_not_displace_what_is_used() {
    let (_, cache) = setup(4096, 40_000);
    // As a request does: when repeated, it finds the fetched blocks in the cache.
    let request = |blocks: std::ops::Range<u64>| {
        let ptrs: Vec<_> = blocks.map(|n| ptr(n, 1)).collect();
        if ptrs.iter().any(|p| cache.get(p).is_none()) {
            cache.fetch_blocking(&ptrs).unwrap();
            assert!(ptrs.iter().all(|p| cache.get(p).is_some()));
        }
        ptrs
    };
    let hot = request(0..800);
    request(0..800);
    for start in (1000..40_000).step_by(100) {
        request(start..start + 100);
    }
    let left = hot.iter().filter(|p| cache.get(p).is_some()).count();
    assert!(left > 720, "{left} of 800 are left");
}

#[test]
fn what_comes_back_soon_is_kept_longer() {
    // One shard only: the blocks of one group, many births apart.
    let pool = FramePool::new(64).unwrap();
    let mut shard = Shard::new(32, Arc::new(Ahead::new(64)));
    let page = || pool.alloc(Class::Cp).unwrap().freeze();
    for n in 0..20 {
        shard.insert(ptr(n, 1), page(), Fresh::No);
    }
    let mut out = vec![];
    shard.evict(20, 100, false, &mut out);
    assert_eq!((out.len(), shard.len()), (20, 0));
    shard.insert(ptr(3, 1), page(), Fresh::No);
    for n in 30..40 {
        shard.insert(ptr(n, 1), page(), Fresh::No);
    }
    out.clear();
    shard.evict(9, 100, false, &mut out);
    assert!(
        shard.get(&ptr(3, 1)).is_some(),
        "it was remembered, and skipped the small queue"
    );
}

#[test]
fn removing_leaves_no_trace_in_the_end() {
    let pool = FramePool::new(64).unwrap();
    let mut shard = Shard::new(4, Arc::new(Ahead::new(64)));
    for n in 0..10_000u64 {
        let page = pool.alloc(Class::Cp).unwrap().freeze();
        shard.insert(ptr(n, 1), page, Fresh::No);
        if n >= 8 {
            assert!(shard.remove(n - 8).is_some());
        }
        assert!(shard.slab_len() < 64);
    }
    assert_eq!(shard.len(), 8);
}

fn ptrs(blocks: std::ops::Range<u64>) -> Vec<BlockPtr> {
    blocks.map(|n| ptr(n, 1)).collect()
}

#[test]
fn what_is_read_ahead_waits_in_memory_and_is_accounted_for() {
    let (device, cache) = setup(1024, 64);
    cache.fetch_blocking(&ptrs(5..6)).unwrap();
    device.reads.lock().clear();
    assert_eq!(cache.read_ahead(&ptrs(2..12), &Arc::new(())), 9);
    assert_eq!(*device.reads.lock(), [(2, 3), (6, 6)]);
    assert_eq!(cache.read_ahead(&ptrs(2..12), &Arc::new(())), 0);
    assert_eq!(cache.stats().ahead_unread, 9);
    let mut found = 0;
    let foreseen = cache.get_run(BlockAddr(0), Generation(1), 8, |f| {
        found += usize::from(f.is_some());
    });
    assert_eq!((found, foreseen), (6, 5), "one of them was not read ahead");
    for n in 2..12 {
        assert_eq!(cache.get(&ptr(n, 1)).unwrap()[..], content(n, 1));
    }
    cache.read_ahead(&ptrs(20..24), &Arc::new(()));
    cache.forget(BlockAddr(20), 3);
    let stats = cache.stats();
    let seen = (stats.ahead, stats.ahead_wasted, stats.ahead_unread);
    assert_eq!(seen, (13, 3, 1));
    assert_eq!(
        device.reads.lock().len(),
        3,
        "requests read nothing themselves"
    );
}

#[test]
fn a_request_joins_what_is_being_read_ahead() {
    let (device, cache) = setup(1024, 64);
    *device.hold.lock() = Some(vec![]);
    let keep = Arc::new(());
    cache.read_ahead(&ptrs(0..8), &keep);
    assert_eq!(
        Arc::strong_count(&keep),
        2,
        "held while the read is under way"
    );
    let wanted = ptrs(3..5);
    let mut request = pin!(cache.fetch(&wanted));
    assert!(poll(request.as_mut()).is_pending());
    assert_eq!(cache.stats().ahead_unread, 6);
    device.release();
    let Poll::Ready(Ok(pages)) = poll(request) else {
        panic!()
    };
    assert_eq!(pages[1][..], content(4, 1));
    assert_eq!(*device.reads.lock(), [(0, 8)]);
    let repeated = cache.get_run(BlockAddr(0), Generation(1), 8, |f| assert!(f.is_some()));
    assert_eq!(repeated, 6, "two had been asked for before they came");
    assert_eq!(cache.stats().ahead_unread, 0);
    assert_eq!(Arc::strong_count(&keep), 1);
}

#[test]
fn a_failure_to_read_ahead_concerns_nobody() {
    let (device, cache) = setup(1024, 64);
    device.bad.lock().push(5);
    device.disk.tamper(BlockAddr(33), |b| b[100] ^= 1);
    *device.hold.lock() = Some(vec![]);
    cache.read_ahead(&ptrs(0..8), &Arc::new(()));
    cache.read_ahead(&ptrs(32..36), &Arc::new(()));
    let wanted = ptrs(0..4);
    let mut request = pin!(cache.fetch(&wanted));
    assert!(poll(request.as_mut()).is_pending());
    device.release();
    assert!(
        matches!(poll(request), Poll::Ready(Ok(_))),
        "it reads for itself"
    );
    assert!(cache.get(&ptr(32, 1)).is_some());
    assert!(cache.get(&ptr(33, 1)).is_none());
    assert!(matches!(
        cache.fetch_blocking(&ptrs(33..34)),
        Err(StoreError::Corrupt { .. })
    ));
    assert!(matches!(
        cache.fetch_blocking(&ptrs(5..6)),
        Err(StoreError::Io(_))
    ));
    let stats = cache.stats();
    assert_eq!((stats.ahead_wasted, stats.ahead_unread), (5, 2));
}

#[test]
fn what_is_read_ahead_and_never_asked_for_is_dropped() {
    let (_, cache) = setup(1600, 100_000);
    let (limit, mut most) = (100, 0);
    for start in (0..100_000).step_by(16) {
        assert!(cache.ahead_room() > 0);
        cache.read_ahead(&ptrs(start..start + 16), &Arc::new(()));
        most = most.max(cache.stats().ahead_unread);
    }
    assert!(most <= limit, "{most} blocks unread");
    let stats = cache.stats();
    assert_eq!(stats.pages, stats.ahead_unread);
    assert_eq!(
        stats.ahead_wasted + stats.ahead_unread as u64,
        stats.ahead,
        "each block is accounted for once"
    );
}

/// Streams share the room without being counted, and the blocks that a stream has left behind do
/// not keep others from reading ahead.
#[test]
fn streams_share_what_may_be_read_ahead() {
    let (_, cache) = setup(16_000, 100_000);
    let mut shares = vec![];
    for stream in 0..16u64 {
        let room = cache.ahead_room();
        shares.push(room);
        let start = stream * 5000;
        cache.read_ahead(&ptrs(start..start + room), &Arc::new(()));
    }
    assert_eq!(shares[0], 500);
    assert!(shares.iter().all(|room| *room >= 31), "{shares:?}");
    assert!(cache.stats().ahead_unread <= 1000);
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64),
    Fetch(u64, u64),
    Rewrite(u64, bool),
    Forget(u64, u64),
    Hold(u64),
    Take(usize),
    Give,
}

fn op() -> impl Strategy<Value = Op> {
    let addr = 0u64..96;
    prop_oneof![
        4 => addr.clone().prop_map(Op::Get),
        4 => (addr.clone(), 1u64..12).prop_map(|(a, n)| Op::Fetch(a, n)),
        3 => (addr.clone(), any::<bool>()).prop_map(|(a, b)| Op::Rewrite(a, b)),
        1 => (addr.clone(), 0u64..30).prop_map(|(a, n)| Op::Forget(a, n)),
        1 => addr.prop_map(Op::Hold),
        2 => (1usize..20).prop_map(Op::Take),
        2 => Just(Op::Give),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    /// Compares with a plain map of each block's contents: a page that the cache returns is the one
    /// that the pointer names, and a held page never changes.
    #[test]
    fn agrees_with_a_plain_map(ops in proptest::collection::vec(op(), 1..150)) {
        let (device, cache) = setup(48, 128);
        let mut births: HashMap<u64, u64> = (0..128).map(|n| (n, 1)).collect();
        let mut held: Vec<(u64, u64, Frame)> = vec![];
        let mut taken: Vec<FrameMut> = vec![];
        let mut next = 2;
        for op in ops {
            match op {
                Op::Get(a) => {
                    if let Some(f) = cache.get(&ptr(a, births[&a])) {
                        prop_assert!(f[..] == content(a, births[&a]));
                    }
                    prop_assert!(cache.get(&ptr(a, next)).is_none());
                    // A run across groups, of the birth of its first block, returns the same pages
                    // as its blocks one by one.
                    let (birth, count) = (births[&a], 1 + a % 40);
                    let mut run = vec![];
                    cache.get_run(BlockAddr(a), Generation(birth), count, |f| run.push(f));
                    prop_assert_eq!(run.len() as u64, count);
                    for (at, f) in (a..).zip(run) {
                        let one = cache.get(&ptr(at, birth));
                        prop_assert_eq!(one.is_some(), f.is_some());
                        if let (Some(one), Some(f)) = (one, f) {
                            prop_assert!(one.same_page(&f) && f[..] == content(at, birth));
                        }
                    }
                }
                Op::Fetch(a, n) => {
                    let ptrs: Vec<_> = (a..a + n).map(|a| ptr(a, births[&a])).collect();
                    match cache.fetch_blocking(&ptrs) {
                        Ok(pages) => for (p, f) in ptrs.iter().zip(pages) {
                            prop_assert!(f[..] == content(p.addr.0, p.birth.0));
                        },
                        Err(StoreError::NoMemory) => {
                            prop_assert!(taken.len() + held.len() + n as usize > 48);
                        }
                        Err(e) => prop_assert!(false, "{e}"),
                    }
                }
                Op::Rewrite(a, keep) => {
                    let Some(mut f) = cache.alloc(Class::Cp) else { continue };
                    *f = content(a, next);
                    let f = f.freeze();
                    device.disk.write(BlockAddr(a), vec![f.clone()]).wait().unwrap();
                    births.insert(a, next);
                    if keep {
                        cache.insert(ptr(a, next), f);
                    } else {
                        cache.forget(BlockAddr(a), 1);
                    }
                    next += 1;
                }
                Op::Forget(a, n) => {
                    cache.forget(BlockAddr(a), n);
                    for a in a..a + n {
                        let birth = births.get(&a).copied().unwrap_or(1);
                        prop_assert!(cache.get(&ptr(a, birth)).is_none());
                    }
                }
                Op::Hold(a) => {
                    if let Ok(mut f) = cache.fetch_blocking(&[ptr(a, births[&a])]) {
                        held.push((a, births[&a], f.remove(0)));
                    }
                }
                Op::Take(n) => taken.extend((0..n).map_while(|_| cache.alloc(Class::Foreground))),
                Op::Give => {
                    taken.clear();
                    held.truncate(5);
                }
            }
            for f in &mut taken {
                f.fill(0xEE);
            }
            for (a, birth, f) in &held {
                prop_assert!(f[..] == content(*a, *birth), "a held page changed");
            }
        }
        drop((held, taken));
        prop_assert_eq!(cache.pool().free() + cache.stats().pages, 48);
    }
}

#[test]
fn threads_see_only_what_they_ask_for() {
    let (_, cache) = setup(128, 512);
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let cache = &cache;
            s.spawn(move || {
                for i in 0..3000u64 {
                    let a = (i * 7919 + t * 131) % 500;
                    let ptrs = [ptr(a, 1), ptr(a + 1, 1), ptr((a * 3) % 512, 1)];
                    match cache.fetch_blocking(&ptrs) {
                        Ok(pages) => {
                            for (p, f) in ptrs.iter().zip(pages) {
                                assert!(f[..] == content(p.addr.0, 1));
                            }
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert_eq!(cache.pool().free() + cache.stats().pages, 128);
}

/// The free list returns frames last in, first out: without sorting, the second read would have as
/// many segments as blocks.
#[test]
fn a_run_is_read_into_neighbouring_frames() {
    let pool = FramePool::new(64).unwrap();
    let cache = Cache::new(pool, Slow::new(64));
    for _ in 0..3 {
        let frames = cache.frames(48, Class::Foreground).unwrap();
        let at: Vec<usize> = frames.iter().map(|f| f.as_ptr() as usize).collect();
        assert!(at.windows(2).all(|two| two[0] + BLOCK_SIZE == two[1]));
    }
}

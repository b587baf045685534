//! The allocator against a model of every block's state, with restarts and checkpoints that do not
//! become durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Generation, Rng, SeededRng};

use super::*;
use crate::device::{Discards, MemDevice};
use crate::layout;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Reserved,
    Allocated,
    /// Freed by a checkpoint that is not durable yet.
    Freed,
    /// Freed by a durable checkpoint, but not reusable yet.
    Waiting,
}

struct Harness {
    device: Arc<MemDevice>,
    pool: Arc<FramePool>,
    space: Space,
    generation: Generation,
    blocks: BTreeMap<u64, Block>,
    /// References of the newest superblock, and the map that they have to lead to.
    root: Vec<IndexRef>,
    durable: BTreeMap<u64, Block>,
    written: Vec<BlockAddr>,
    /// Blocks that the device has discarded.
    discarded: u64,
}

impl Harness {
    fn new(length: u64, max: u64) -> Harness {
        Harness::on(MemDevice::growable(length, max))
    }

    fn on(device: MemDevice) -> Harness {
        let device = Arc::new(device);
        let pool = FramePool::new(256).unwrap();
        Harness {
            space: Space::open(device.clone(), &[]).unwrap(),
            device,
            pool,
            generation: Generation(1),
            blocks: BTreeMap::new(),
            root: Vec::new(),
            durable: BTreeMap::new(),
            written: Vec::new(),
            discarded: 0,
        }
    }

    fn mark(&mut self, addr: BlockAddr, count: u32, from: Option<Block>, to: Option<Block>) {
        for block in addr.0..addr.0 + u64::from(count) {
            let before = match to {
                Some(to) => self.blocks.insert(block, to),
                None => self.blocks.remove(&block),
            };
            assert_eq!(before, from, "block {block} to {to:?}");
        }
    }

    /// Picks a run of blocks in a state.
    fn pick(&self, rng: &SeededRng, state: Block) -> Option<(BlockAddr, u32)> {
        let from = rng.next_u64() % self.device.length();
        let is = |block: u64| self.blocks.get(&block) == Some(&state);
        let first = *self.blocks.range(from..).find(|(_, s)| **s == state)?.0;
        let most = rng.next_u64() % 40 + 1;
        let count = (first..first + most).take_while(|block| is(*block)).count();
        Some((BlockAddr(first), count as u32))
    }

    fn write_out(&mut self) -> MapRoot {
        self.generation = self.generation.next();
        let (device, pool) = (&self.device, &self.pool);
        let written = &mut self.written;
        written.clear();
        self.space
            .write_out(
                self.generation,
                &mut || pool.alloc(Class::Cp).ok_or(StoreError::NoMemory),
                &mut |addr, frame| {
                    written.push(addr);
                    Ok(device.write(addr, vec![frame]).wait()?)
                },
            )
            .unwrap()
    }

    /// Takes a checkpoint that becomes durable.
    fn checkpoint(&mut self) {
        self.root = self.write_out().index;
        for state in self.blocks.values_mut() {
            if *state == Block::Freed {
                *state = Block::Waiting;
            }
        }
        self.durable = self.blocks.clone();
        self.durable.retain(|_, state| *state == Block::Allocated);
    }

    fn reopen(&mut self) {
        self.space = Space::open(self.device.clone(), &self.root).unwrap();
        self.blocks = self.durable.clone();
    }

    fn restart(&mut self) {
        self.reopen();
        self.check();
    }

    fn check(&self) {
        let mut usage = Usage::new();
        for (block, state) in &self.blocks {
            if *state == Block::Allocated {
                assert_eq!(usage.claim(BlockAddr(*block), 1), 0);
            }
        }
        assert_eq!(self.space.compare(&usage).unwrap(), []);
        assert_eq!(self.space.faults(), []);
        let chunks = layout::chunks(self.device.length()).unwrap();
        let fixed: u32 = (0..chunks)
            .flat_map(layout::fixed)
            .map(|(_, count)| count)
            .sum();
        let stats = self.space.stats();
        assert_eq!(stats.total, layout::usable(self.device.length()));
        assert_eq!(
            stats.free,
            stats.total - u64::from(fixed) - self.blocks.len() as u64 - stats.holes
        );
        for block in self.blocks.keys() {
            assert!(!self.device.any_hole(BlockAddr(*block), 1), "block {block}");
        }
        if self.device.discards() == Discards::Hint {
            assert_eq!(stats.holes, 0);
        }
    }

    /// Writes the first and the last of newly allocated blocks, which need space for that.
    fn fill(&self, addr: BlockAddr, count: u32) {
        for at in [addr.0, addr.0 + u64::from(count) - 1] {
            let mut page = self.pool.alloc(Class::Cp).unwrap();
            page.fill(at as u8 | 1);
            let written = self.device.write(BlockAddr(at), vec![page.freeze()]);
            written.wait().unwrap();
        }
    }

    /// Discards up to `times` runs, and checks that they were free.
    fn discard(&mut self, leave: u64, times: u64) {
        for _ in 0..times {
            if !self.space.discard(leave) {
                break;
            }
            let stats = self.space.stats();
            assert!(stats.free >= stats.reserved + stats.floor + leave);
            self.discarded = self.discarded.max(self.device.discarded());
        }
    }
}

/// Puts a cursor anywhere, so that space above the lowest is allocated, too.
fn scatter(space: &Space, rng: &SeededRng) {
    let state = &mut *space.state.lock();
    let cursor = [&mut state.data, &mut state.meta];
    let chunk = rng.below(state.chunks.len() as u64) as u32;
    let bit = rng.below(u64::from(CHUNK_BLOCKS)) as u32;
    for cursor in cursor {
        if rng.below(2) == 0 {
            *cursor = Cursor { chunk, bit };
        }
    }
}

fn run(seed: u64, discards: Discards) -> u64 {
    println!("seed {seed}, {discards:?}");
    let rng = SeededRng::new(seed);
    let length = 4096 + rng.next_u64() % 40_000;
    let device = MemDevice::growable(length, length + 100_000);
    let mut h = Harness::on(device.discarding(discards));
    for _ in 0..1500 {
        if rng.next_u64().is_multiple_of(20) {
            h.device.set_host_full(rng.next_u64().is_multiple_of(4));
            let leave = rng.next_u64() % 3 * 10_000;
            h.discard(leave, rng.next_u64() % 8);
            scatter(&h.space, &rng);
        }
        match rng.next_u64() % 16 {
            0..=5 => {
                let want = 1 << (rng.next_u64() % 9);
                let near = h
                    .pick(&rng, Block::Allocated)
                    .map(|(a, n)| BlockAddr(a.0 + u64::from(n)));
                let near = near.filter(|_| rng.next_u64().is_multiple_of(2));
                let stream = if rng.next_u64().is_multiple_of(2) {
                    Stream::Data
                } else {
                    Stream::Meta
                };
                let class = if rng.next_u64().is_multiple_of(2) {
                    Class::Cp
                } else {
                    Class::Foreground
                };
                if let Ok((addr, count)) = h.space.allocate(want, near, stream, class) {
                    assert!((1..=want).contains(&count));
                    assert!(addr.0 + u64::from(count) <= h.device.length());
                    h.mark(addr, count, None, Some(Block::Reserved));
                    h.fill(addr, count);
                }
            }
            6..=8 => {
                if let Some((addr, count)) = h.pick(&rng, Block::Reserved) {
                    h.space.commit(addr, count).unwrap();
                    assert!(h.space.commit(addr, count).is_err());
                    h.mark(addr, count, Some(Block::Reserved), Some(Block::Allocated));
                }
            }
            9 => {
                if let Some((addr, count)) = h.pick(&rng, Block::Reserved) {
                    h.space.abandon(addr, count);
                    h.mark(addr, count, Some(Block::Reserved), None);
                }
            }
            10..=11 => {
                if let Some((addr, count)) = h.pick(&rng, Block::Allocated) {
                    h.space.free(addr, count).unwrap();
                    assert!(h.space.free(addr, count).is_err());
                    h.mark(addr, count, Some(Block::Allocated), Some(Block::Freed));
                }
            }
            12..=13 => {
                if let Some((addr, count)) = h.pick(&rng, Block::Waiting) {
                    h.space.reuse(addr, count);
                    h.mark(addr, count, Some(Block::Waiting), None);
                }
            }
            14 => h.checkpoint(),
            _ if !rng.next_u64().is_multiple_of(8) => {}
            _ if rng.next_u64().is_multiple_of(2) => {
                // A crash has left parts of pieces without space, in use or not.
                h.device.set_host_full(false);
                if discards == Discards::Deprovision {
                    let last = h.device.length() - 100;
                    for _ in 0..rng.next_u64() % 4 {
                        let at = BlockAddr(rng.next_u64() % last);
                        h.device.discard(at, 100).wait().unwrap();
                    }
                }
                h.restart();
            }
            _ => {
                // A checkpoint whose pages are torn or lost: the newest superblock must lead to the
                // same map as before.
                h.write_out();
                for addr in h.written.clone() {
                    h.device
                        .tamper(addr, |page| page[rng.next_u64() as usize % 4096] ^= 0x55);
                }
                h.generation = Generation(h.generation.0 - 1);
                h.restart();
                h.device.set_host_full(false);
                // Blocks named by the log are marked again, and cannot be handed out.
                let (addr, count) = h.space.allocate(8, None, Stream::Data, Class::Cp).unwrap();
                h.space.abandon(addr, count);
                assert_eq!(h.space.mark_recovered(addr, count).unwrap(), 0);
                assert_eq!(h.space.mark_recovered(addr, 1).unwrap(), 0, "again");
                h.mark(addr, count, None, Some(Block::Reserved));
                // Nor if they are where the host has taken the space.
                if let Some(hole) = h
                    .device
                    .first_hole()
                    .filter(|a| !h.blocks.contains_key(&a.0))
                {
                    assert_eq!(h.space.mark_recovered(hole, 1).unwrap(), 0);
                    h.mark(hole, 1, None, Some(Block::Reserved));
                    h.fill(hole, 1);
                }
            }
        }
    }
    h.check();
    h.checkpoint();
    h.device.set_host_full(false);
    h.restart();
    h.discarded
}

#[test]
fn every_block_is_where_the_model_has_it() {
    for seed in 0..8 {
        run(seed, Discards::Never);
    }
}

#[test]
fn every_block_is_where_the_model_has_it_while_space_is_discarded() {
    let mut discarded = [0, 0];
    for seed in 0..12 {
        discarded[0] += run(seed, Discards::Deprovision);
        discarded[1] += run(seed, Discards::Hint);
    }
    assert!(
        discarded.iter().all(|blocks| *blocks > 30_000),
        "{discarded:?}"
    );
}

/// Fills `chunks` chunks, frees all of it by a durable checkpoint, and lets it be used again.
fn emptied(chunks: u64, discards: Discards) -> Harness {
    let blocks = chunks * u64::from(CHUNK_BLOCKS);
    let mut h = Harness::on(MemDevice::growable(blocks, 2 * blocks).discarding(discards));
    let mut runs = Vec::new();
    let spare = h.space.stats().floor + u64::from(layout::PIECE_BLOCKS) - 1;
    while h.space.stats().free > spare {
        let want = (h.space.stats().free - spare) as u32;
        let (addr, n) = h
            .space
            .allocate(want, None, Stream::Data, Class::Cp)
            .unwrap();
        h.space.commit(addr, n).unwrap();
        runs.push((addr, n));
    }
    h.checkpoint();
    for (addr, n) in &runs {
        h.space.free(*addr, *n).unwrap();
    }
    assert!(!h.space.discard(0), "freed by no durable checkpoint");
    h.checkpoint();
    assert!(!h.space.discard(0), "readers may use it");
    for (addr, n) in runs {
        h.space.reuse(addr, n);
    }
    h
}

#[test]
fn free_space_goes_to_the_host_and_comes_back_from_its_lower_end() {
    let mut h = emptied(8, Discards::Deprovision);
    let before = h.space.stats();
    h.discard(u64::from(CHUNK_BLOCKS), u64::MAX);
    let after = h.space.stats();
    assert_eq!(after.holes, h.device.holes());
    assert_eq!(before.free - after.free, after.holes);
    assert_eq!(after.capacity(), before.capacity());
    assert_eq!(after.available(), before.available());
    let left = after.free - after.floor;
    let piece = u64::from(layout::PIECE_BLOCKS);
    assert!(
        (0..piece).contains(&(left - u64::from(CHUNK_BLOCKS))),
        "{left} are left"
    );
    assert!(h.device.first_hole().unwrap().0 > u64::from(CHUNK_BLOCKS) / 2);
    h.check();

    // Nothing but the host knows where the holes are.
    h.checkpoint();
    h.restart();
    assert_eq!(
        h.space.stats(),
        Stats {
            reserved: 0,
            ..after
        }
    );
    let (lowest, length) = (h.device.first_hole().unwrap(), h.device.length());
    assert!(h.space.reserve(left + 1));
    assert!(!h.device.any_hole(lowest, 1));
    assert_eq!(h.device.length(), length, "holes are used first");
    assert_eq!(h.space.stats().capacity(), after.capacity());
}

#[test]
fn what_the_host_has_given_to_others_is_no_space_until_it_has_some_again() {
    let mut h = emptied(4, Discards::Deprovision);
    h.discard(0, u64::MAX);
    h.device.set_host_full(true);
    let stats = h.space.stats();
    let more = stats.free - stats.floor + 1;
    assert!(stats.available() > more && !h.space.reserve(more));
    assert_eq!(h.space.stats().growth, 0);
    // Checkpoints have the floor.
    let floor = h.space.stats().floor as u32;
    let (addr, n) = h
        .space
        .allocate(floor / 2, None, Stream::Data, Class::Cp)
        .unwrap();
    h.mark(addr, n, None, Some(Block::Reserved));
    h.fill(addr, n);
    h.device.set_host_full(false);
    assert!(
        !h.space.reserve(more),
        "it is asked once for each checkpoint"
    );
    h.space.prepare(Some(h.device.holes()), 0);
    assert!(h.space.reserve(more));
    h.check();
}

#[test]
fn a_hint_is_given_once() {
    let mut h = emptied(4, Discards::Hint);
    let free = h.space.stats().free;
    let cursor = |h: &Harness, chunk| h.space.state.lock().data = Cursor { chunk, bit: 5000 };
    cursor(&h, 2);
    h.discard(0, u64::MAX);
    let all = h.device.discarded();
    assert!(all > 2 * u64::from(CHUNK_BLOCKS), "{all}");
    assert_eq!(h.space.stats().free, free);
    h.discard(0, u64::MAX);
    assert_eq!(h.device.discarded(), all);
    cursor(&h, 1);
    let (addr, n) = h.space.allocate(10, None, Stream::Data, Class::Cp).unwrap();
    h.space.abandon(addr, n);
    cursor(&h, 2);
    h.discard(0, u64::MAX);
    assert_eq!(h.device.discarded() - all, u64::from(layout::PIECE_BLOCKS));
    h.check();
}

#[test]
fn searching_for_space_to_discard_keeps_no_maps() {
    let mut h = emptied(20, Discards::Deprovision);
    h.reopen();
    h.discard(0, u64::MAX);
    assert!(h.device.holes() > 18 * u64::from(CHUNK_BLOCKS));
    let state = h.space.state.lock();
    assert_eq!(state.chunks.iter().filter(|c| c.map.is_some()).count(), 0);
}

/// Counts a thread down, also if it panics.
struct CountdownGuard<'a>(&'a AtomicU64);

impl Drop for CountdownGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[test]
fn nothing_is_allocated_where_space_is_being_discarded() {
    let h = emptied(4, Discards::Deprovision);
    let (space, device) = (&h.space, &h.device);
    let running = &AtomicU64::new(1);
    std::thread::scope(|s| {
        for thread in 0..3 {
            s.spawn(move || {
                let rng = SeededRng::new(thread);
                while running.load(Ordering::Acquire) > 0 {
                    let want = rng.next_u64() as u32 % 3000 + 1;
                    let class = [Class::Foreground, Class::Cp][rng.below(2) as usize];
                    scatter(space, &rng);
                    if let Ok((addr, n)) = space.allocate(want, None, Stream::Data, class) {
                        assert!(!device.any_hole(addr, u64::from(n)));
                        space.abandon(addr, n);
                    }
                }
            });
        }
        s.spawn(|| {
            let rng = SeededRng::new(9);
            let _ended = CountdownGuard(running);
            for _ in 0..300 {
                if !space.discard(rng.below(3) * 20_000) {
                    space.prepare(None, 0);
                }
            }
        });
    });
    assert_eq!(space.stats().reserved, 0);
    h.check();
}

#[test]
fn who_must_not_wait_gets_blocks_without_reading_the_map() {
    let mut h = Harness::new(3 * u64::from(CHUNK_BLOCKS), 3 * u64::from(CHUNK_BLOCKS));
    let reserve = |h: &Harness, want, most| {
        assert!(h.space.reserve(u64::from(want)));
        let before = h.space.stats();
        let runs = h.space.allocate_reserved(want, most);
        let after = h.space.stats();
        match &runs {
            Some(runs) => {
                assert_eq!(runs.iter().map(|(_, count)| count).sum::<u32>(), want);
                assert_eq!(before.free - after.free, u64::from(want));
                assert_eq!(before.reserved - after.reserved, u64::from(want));
            }
            None => {
                assert_eq!(before, after);
                h.space.release_reserved(u64::from(want));
            }
        }
        runs
    };
    let [(addr, 100)] = reserve(&h, 100, 1).unwrap()[..] else {
        panic!("one run of a new device")
    };
    h.space.commit(addr, 100).unwrap();
    h.mark(addr, 100, None, Some(Block::Allocated));
    h.checkpoint();
    h.reopen();
    // The map of the first chunk has been written; those of the others never were.
    let [(next, 64)] = reserve(&h, 64, 1).unwrap()[..] else {
        panic!("one run of an empty chunk")
    };
    assert_ne!(
        next.0 / u64::from(CHUNK_BLOCKS),
        addr.0 / u64::from(CHUNK_BLOCKS)
    );
    // The remaining free space is scattered.
    let h = Harness::new(8192, 8192);
    loop {
        let (addr, count) = h.space.allocate(16, None, Stream::Data, Class::Cp).unwrap();
        h.space.abandon(addr, count.min(8));
        if count <= 8 {
            break;
        }
    }
    assert!(reserve(&h, 64, 7).is_none());
    assert!(reserve(&h, 64, 8).is_some());
}

#[test]
fn the_map_is_read_ahead_of_need() {
    let length = 2 * u64::from(CHUNK_BLOCKS);
    let mut h = Harness::new(length, length);
    for _ in 0..2 {
        for near in [0, u64::from(CHUNK_BLOCKS)] {
            let near = Some(BlockAddr(near + 9000));
            let (addr, count) = h.space.allocate(10, near, Stream::Data, Class::Cp).unwrap();
            h.space.commit(addr, count).unwrap();
            h.mark(addr, count, None, Some(Block::Allocated));
        }
    }
    h.checkpoint();
    h.reopen();
    assert!(h.space.reserve(10));
    assert_eq!(h.space.allocate_reserved(10, 1), None, "no map is there");
    h.space.prepare(None, 1000);
    assert!(h.space.allocate_reserved(10, 1).is_some());
}

#[test]
fn foreground_leaves_promises_and_the_floor_alone() {
    let h = Harness::new(8192, 8192);
    let stats = h.space.stats();
    assert!(h.space.reserve(1000));
    let mut taken = 0;
    let mut runs = Vec::new();
    while let Ok(run) = h.space.allocate(100, None, Stream::Data, Class::Foreground) {
        taken += u64::from(run.1);
        runs.push(run);
    }
    assert_eq!(taken, stats.free - 1000 - stats.floor);
    assert!(!h.space.reserve(1));
    // Checkpoints get the rest, to the last block.
    while let Ok((_, count)) = h.space.allocate(100, None, Stream::Meta, Class::Cp) {
        taken += u64::from(count);
    }
    assert_eq!(taken, stats.free);
    assert_eq!(h.space.stats().free, 0);
    for (addr, count) in runs {
        h.space.abandon(addr, count);
    }
    h.space.release_reserved(1000);
    assert!(h.space.reserve(500));
}

#[test]
fn concurrent_promises_and_reservations_never_exceed_what_is_there() {
    let h = Harness::new(16_384, 16_384);
    let space = &h.space;
    std::thread::scope(|s| {
        for thread in 0..4 {
            s.spawn(move || {
                let rng = SeededRng::new(thread);
                for _ in 0..2000 {
                    let n = rng.next_u64() % 4000 + 1;
                    if rng.next_u64().is_multiple_of(2) {
                        if space.reserve(n) {
                            let s = space.stats();
                            assert!(s.reserved + s.floor <= s.total);
                            space.release_reserved(n);
                        }
                    } else if let Ok((addr, count)) =
                        space.allocate(n as u32, None, Stream::Data, Class::Foreground)
                    {
                        assert!(space.stats().free >= space.stats().floor);
                        space.abandon(addr, count);
                    }
                }
            });
        }
    });
    assert_eq!(space.stats().reserved, 0);
    h.check();
}

#[test]
fn the_device_grows_and_the_map_with_it() {
    let mut h = Harness::new(4096, 300_000);
    let mut count = 0;
    while let Ok((addr, n)) = h
        .space
        .allocate(5000, None, Stream::Data, Class::Foreground)
    {
        h.space.commit(addr, n).unwrap();
        h.mark(addr, n, None, Some(Block::Allocated));
        count += u64::from(n);
        if count % 7 == 0 {
            h.checkpoint();
        }
    }
    assert!(h.device.length() > 299_000, "grew to {}", h.device.length());
    h.checkpoint();
    h.restart();
    assert!(
        h.space
            .allocate(1, None, Stream::Data, Class::Foreground)
            .is_err()
    );
    assert!(matches!(
        Space::open(Arc::new(MemDevice::new(4095)), &[]),
        Err(StoreError::Format(_))
    ));
}

#[test]
fn a_damaged_map_page_is_passed_over_and_rebuilt() {
    let mut h = Harness::new(3 * 32_768, 3 * 32_768);
    let mut runs = Vec::new();
    for _ in 0..2000 {
        let (addr, n) = h.space.allocate(32, None, Stream::Data, Class::Cp).unwrap();
        h.space.commit(addr, n).unwrap();
        h.mark(addr, n, None, Some(Block::Allocated));
        runs.push((addr, n));
    }
    h.checkpoint();
    let page = *h
        .written
        .iter()
        .find(|a| a.0 == layout::map_page(1, layout::Slot::B).0)
        .unwrap();
    h.device.tamper(page, |page| page[100] ^= 1);
    h.space = Space::open(h.device.clone(), &h.root).unwrap();
    while let Ok((addr, n)) = h.space.allocate(64, None, Stream::Data, Class::Cp) {
        assert!((addr.0..addr.0 + u64::from(n)).all(|b| b / 32_768 != 1));
    }
    for (addr, n) in &runs {
        h.space.free(*addr, *n).unwrap();
    }
    assert_eq!(h.space.faults().len(), 1);

    h.space = Space::open(h.device.clone(), &h.root).unwrap();
    let mut usage = Usage::new();
    runs.iter()
        .for_each(|(addr, n)| assert_eq!(usage.claim(*addr, *n), 0));
    assert_eq!(usage.claim(runs[0].0, 2), 2);
    assert_eq!(h.space.compare(&usage).unwrap(), []);
    h.space.rebuild(&usage);
    h.checkpoint();
    h.restart();

    // Now the index is damaged: nothing is known of the whole group.
    h.device
        .tamper(layout::index_page(0, h.root[0].slot), |page| page[200] ^= 1);
    h.space = Space::open(h.device.clone(), &h.root).unwrap();
    assert_eq!(h.space.faults().len(), 3);
    assert!(h.space.allocate(1, None, Stream::Data, Class::Cp).is_err());
    assert_eq!(h.space.stats().free, 0);
    h.space.rebuild(&usage);
    h.checkpoint();
    h.restart();
}

#[test]
fn leaks_and_missing_blocks_are_found() {
    let h = Harness::new(8192, 8192);
    let (addr, count) = h.space.allocate(10, None, Stream::Data, Class::Cp).unwrap();
    h.space.commit(addr, count).unwrap();
    let mut usage = Usage::new();
    usage.claim(BlockAddr(addr.0 + 4), 10);
    usage.claim(BlockAddr(40_000), 1);
    assert_eq!(
        h.space.compare(&usage).unwrap(),
        [
            Mismatch::Leak(addr, 4),
            Mismatch::Missing(BlockAddr(addr.0 + 10), 4),
            Mismatch::Missing(BlockAddr(40_000), 1),
        ]
    );
    h.space.rebuild(&usage);
    assert_eq!(
        h.space.compare(&usage).unwrap(),
        [Mismatch::Missing(BlockAddr(40_000), 1)]
    );
    assert_eq!(Usage::new().claim(BlockAddr(u64::MAX - 3), 8), 8);
}

#[test]
fn maps_that_nothing_uses_are_dropped_and_read_again() {
    let mut h = Harness::new(40 * 32_768, 40 * 32_768);
    let loaded = |h: &Harness| {
        let state = h.space.state.lock();
        state.chunks.iter().filter(|c| c.map.is_some()).count()
    };
    let mut runs = Vec::new();
    while let Ok((addr, n)) = h.space.allocate(4096, None, Stream::Data, Class::Cp) {
        h.space.commit(addr, n).unwrap();
        h.mark(addr, n, None, Some(Block::Allocated));
        runs.push((addr, n));
    }
    assert_eq!(loaded(&h), 40);
    // Written by this checkpoint, idle at the next, dropped by the one after.
    h.checkpoint();
    assert_eq!(loaded(&h), 40);
    h.checkpoint();
    assert_eq!(loaded(&h), 0);

    // Only the map knows blocks that are freed and not yet reusable.
    let (addr, n) = runs[runs.len() / 2];
    h.space.free(addr, n).unwrap();
    h.mark(addr, n, Some(Block::Allocated), Some(Block::Freed));
    for _ in 0..3 {
        h.checkpoint();
        assert_eq!(loaded(&h), 1);
        assert!(h.space.allocate(1, None, Stream::Data, Class::Cp).is_err());
    }
    h.space.reuse(addr, n);
    h.mark(addr, n, Some(Block::Waiting), None);
    for _ in 0..2 {
        h.checkpoint();
    }
    assert_eq!(loaded(&h), 0);
    let again = h.space.allocate(n, None, Stream::Data, Class::Cp).unwrap();
    assert_eq!(again, (addr, n));
    h.mark(addr, n, None, Some(Block::Reserved));
    h.check();
    // An allocation, too, is known to the map alone.
    h.checkpoint();
    h.checkpoint();
    assert_eq!(loaded(&h), 1);
}

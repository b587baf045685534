//! One shard of the cache: a map from groups of neighbouring addresses to their pages, and
//! S3-FIFO's queues over the pages.
//!
//! A read asks for many consecutive blocks. With a map entry for each block, every one costs three
//! or four cache lines in unrelated places. At 256 KiB a read spent a quarter of the server's time
//! there, 180 ns a block. Hence the map leads to a *group*, the slots of [`GROUP`] consecutive
//! addresses side by side. A walk takes one probe and then a sequential walk, half a cache line a
//! block. Identity and replacement remain those of the single page.
//!
//! Groups live in a slab and the queues hold slot numbers, so neither a hit nor an eviction
//! allocates. A slot is in one queue at most. A removed page leaves its empty slot in its queue, so
//! that removing needs no search. The slot leaves when the queue reaches it, or when empty slots
//! are the majority and all are collected. A page inserted there meanwhile reuses the queue entry.
//! A group is freed when none of its slots is queued, so the slab stays in proportion to the pages.
//! It takes 32 bytes a page if groups are full, 512 if each has one page only.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use weir_base::{Generation, invariant};

use super::GROUP_BITS;
use super::ahead::Ahead;
use super::load::Load;
use crate::block::BlockPtr;
use crate::frame::Frame;

/// Maximum value of a page's use counter.
const MAX_USES: u8 = 3;

/// Uses in the small queue that promote a page to the main one. The insertion is not counted.
const PROMOTE: u8 = 1;

/// Divisor of all entries: the target share of the small queue.
const SMALL_SHARE: usize = 10;

/// Multiplicative hash of one block number; the map mixes no further.
#[derive(Default)]
pub(super) struct AddrHasher(u64);

impl Hasher for AddrHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        // The map takes its bucket from the low bits and its tag from the high ones. A
        // multiplication alone would leave the low bits weak.
        let h = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ (h >> 32);
    }
}

type AddrMap<V> = HashMap<u64, V, BuildHasherDefault<AddrHasher>>;

/// Consecutive addresses in one group.
const GROUP: usize = 1 << GROUP_BITS;

/// Reason why a page is in memory that no lookup has found yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Fresh {
    /// A lookup has found the page, or the page was written.
    #[default]
    No,
    /// A request has read it. The request is repeated and then finds the page, which is no second
    /// use.
    Asked,
    /// Read-ahead fetched the page.
    Ahead,
}

/// One page and its replacement state. Two slots fill a cache line.
#[derive(Default)]
#[repr(align(32))]
struct Slot {
    /// `None` while the slot is empty.
    frame: Option<Frame>,
    birth: Generation,
    uses: u8,
    fresh: Fresh,
}

#[derive(Default)]
struct Group {
    /// Address of the first slot divided by [`GROUP`].
    key: u64,
    /// Slots that are in a queue, one bit each. Every slot with a page is.
    queued: u16,
}

const _: () = assert!(GROUP == u16::BITS as usize && size_of::<Slot>() == 32);

pub(super) struct Shard {
    /// Maps group keys to places in `groups` and `slots`.
    map: AddrMap<u32>,
    groups: Vec<Group>,
    slots: Vec<[Slot; GROUP]>,
    vacant: Vec<u32>,
    /// Slot numbers: place of the group times [`GROUP`] plus place within.
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    pages: usize,
    /// Fingerprints of pages evicted from the small queue. The hash of a page determines its place,
    /// where a newer fingerprint overwrites an older one.
    ghosts: Box<[u32]>,
    /// Reads in flight, by address.
    pub loading: AddrMap<Arc<Load>>,
    pub hits: u64,
    pub misses: u64,
    /// Accounting of read-ahead, shared by all shards.
    ahead: Arc<Ahead>,
}

impl Slot {
    fn lookup(&mut self, birth: Generation) -> Option<Frame> {
        if self.birth != birth {
            return None;
        }
        let frame = self.frame.clone()?;
        // Not written once it is at its maximum: most hits leave the line clean.
        if self.fresh == Fresh::No && self.uses < MAX_USES {
            self.uses += 1;
        }
        Some(frame)
    }

    /// Notes a lookup. Returns true for the first lookup of a read-ahead page.
    fn looked_up(&mut self) -> bool {
        self.fresh != Fresh::No && std::mem::take(&mut self.fresh) == Fresh::Ahead
    }
}

/// Returns the group key of an address, and its slot within the group.
fn key_of(addr: u64) -> (u64, usize) {
    (addr >> GROUP_BITS, addr as usize & (GROUP - 1))
}

impl Shard {
    /// Creates a shard that expects to hold `share` pages.
    pub fn new(share: usize, ahead: Arc<Ahead>) -> Shard {
        let groups = share.div_ceil(GROUP);
        Shard {
            map: HashMap::with_capacity_and_hasher(groups, BuildHasherDefault::default()),
            groups: Vec::with_capacity(groups),
            slots: Vec::with_capacity(groups),
            vacant: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            pages: 0,
            ghosts: vec![0; share.max(16).next_power_of_two()].into(),
            loading: AddrMap::default(),
            hits: 0,
            misses: 0,
            ahead,
        }
    }

    pub fn len(&self) -> usize {
        self.pages
    }

    pub fn get(&mut self, ptr: &BlockPtr) -> Option<Frame> {
        let found = self.peek(ptr);
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found
    }

    /// Like [`Shard::get`], but not counted as a lookup.
    pub fn peek(&mut self, ptr: &BlockPtr) -> Option<Frame> {
        let (key, at) = key_of(ptr.addr.0);
        let group = *self.map.get(&key)?;
        let slot = self.slots.get_mut(group as usize)?.get_mut(at)?;
        let found = slot.lookup(ptr.birth)?;
        if slot.looked_up() {
            self.ahead.asked_for(1);
        }
        Some(found)
    }

    /// Returns true if the page is in memory. Not counted as a lookup.
    pub fn contains(&self, ptr: &BlockPtr) -> bool {
        let (key, at) = key_of(ptr.addr.0);
        let group = self.map.get(&key);
        let slots = group.and_then(|group| self.slots.get(*group as usize));
        slots
            .and_then(|slots| slots.get(at))
            .is_some_and(|slot| slot.frame.is_some() && slot.birth == ptr.birth)
    }

    /// Calls [`Shard::get`] for the blocks `first ..= last` of one group, all of one birth. Returns
    /// the number of read-ahead pages found for the first time.
    pub fn get_run(
        &mut self,
        first: u64,
        last: u64,
        birth: Generation,
        each: &mut impl FnMut(Option<Frame>),
    ) -> usize {
        let ((key, from), (_, to)) = (key_of(first), key_of(last));
        let group = self.map.get(&key).copied();
        let slots = group
            .and_then(|g| self.slots.get_mut(g as usize)?.get_mut(from..=to))
            .unwrap_or_default();
        if slots.is_empty() {
            self.misses += last - first + 1;
            (first..=last).for_each(|_| each(None));
            return 0;
        }
        let mut foreseen = 0;
        for slot in slots {
            let found = slot.lookup(birth);
            match found {
                Some(_) => {
                    self.hits += 1;
                    foreseen += usize::from(slot.looked_up());
                }
                None => self.misses += 1,
            }
            each(found);
        }
        if foreseen > 0 {
            self.ahead.asked_for(foreseen);
        }
        foreseen
    }

    /// Inserts a page. Returns a frame to be dropped outside the lock.
    pub fn insert(&mut self, ptr: BlockPtr, frame: Frame, fresh: Fresh) -> Option<Frame> {
        if self.small.len() + self.main.len() > 2 * self.pages + 4 * GROUP {
            self.collect();
        }
        let (key, at) = key_of(ptr.addr.0);
        let place = match self.map.get(&key) {
            Some(place) => *place,
            None => self.add_group(key),
        };
        let (Some(group), Some(slot)) = (
            self.groups.get_mut(place as usize),
            self.slots
                .get_mut(place as usize)
                .and_then(|s| s.get_mut(at)),
        ) else {
            return Some(frame);
        };
        // A read of the block's earlier life may end after its later life was written; and an equal
        // page that is here already is as good.
        if slot.frame.is_some() && slot.birth >= ptr.birth {
            if fresh == Fresh::Ahead {
                self.ahead.wasted(1);
            }
            return Some(frame);
        }
        if slot.frame.is_some() && slot.fresh == Fresh::Ahead {
            self.ahead.wasted(1);
        }
        slot.birth = ptr.birth;
        slot.uses = 0;
        slot.fresh = fresh;
        let displaced = slot.frame.replace(frame);
        self.pages += usize::from(displaced.is_none());
        if group.queued & (1 << at) == 0 {
            group.queued |= 1 << at;
            let number = place * GROUP as u32 + at as u32;
            if self.take_ghost(&ptr) {
                self.main.push_back(number);
            } else {
                self.small.push_back(number);
            }
        }
        displaced
    }

    fn add_group(&mut self, key: u64) -> u32 {
        let group = Group { key, queued: 0 };
        let place = match self.vacant.pop() {
            Some(place) => {
                if let Some(old) = self.groups.get_mut(place as usize) {
                    *old = group;
                }
                place
            }
            None => {
                self.groups.push(group);
                self.slots.push(Default::default());
                (self.groups.len() - 1) as u32
            }
        };
        self.map.insert(key, place);
        place
    }

    pub fn remove(&mut self, addr: u64) -> Option<Frame> {
        let (key, at) = key_of(addr);
        let place = *self.map.get(&key)?;
        let slot = self.slots.get_mut(place as usize)?.get_mut(at)?;
        let frame = slot.frame.take()?;
        if slot.looked_up() {
            self.ahead.wasted(1);
        }
        self.pages -= 1;
        Some(frame)
    }

    /// Removes a read-ahead page, unless it has been requested.
    pub fn remove_unread(&mut self, addr: u64, birth: Generation) -> Option<Frame> {
        let (key, at) = key_of(addr);
        let place = *self.map.get(&key)?;
        let slot = self.slots.get_mut(place as usize)?.get_mut(at)?;
        if slot.fresh != Fresh::Ahead || slot.birth != birth {
            return None;
        }
        self.remove(addr)
    }

    fn slot(&mut self, number: u32) -> Option<&mut Slot> {
        let place = number as usize / GROUP;
        self.slots.get_mut(place)?.get_mut(number as usize % GROUP)
    }

    /// Notes that an empty slot has left its queue.
    fn unqueued(&mut self, number: u32) {
        let place = number / GROUP as u32;
        let Some(group) = self.groups.get_mut(place as usize) else {
            invariant!(
                false,
                "slot {number} was in a queue, and there is no such slot"
            );
            return;
        };
        debug_assert!(
            group.queued >> (number as usize % GROUP) & 1 == 1,
            "slot {number} is in no queue"
        );
        group.queued &= !(1 << (number as usize % GROUP));
        if group.queued == 0 {
            self.map.remove(&group.key);
            self.vacant.push(place);
        }
    }

    /// Removes all empty slots from the queues.
    fn collect(&mut self) {
        for main in [false, true] {
            let queue = if main {
                &mut self.main
            } else {
                &mut self.small
            };
            let mut queue = std::mem::take(queue);
            queue.retain(|number| {
                let full = self.slot(*number).is_some_and(|s| s.frame.is_some());
                if !full {
                    self.unqueued(*number);
                }
                full
            });
            *(if main {
                &mut self.main
            } else {
                &mut self.small
            }) = queue;
        }
    }

    /// Moves up to `want` pages without another holder to `victims`, examining no more than `steps`
    /// slots. If `ruthless`, popularity does not protect a page, and each slot is examined only
    /// once.
    pub fn evict(&mut self, want: usize, steps: usize, ruthless: bool, victims: &mut Vec<Frame>) {
        let steps = if ruthless {
            steps.min(self.small.len() + self.main.len())
        } else {
            steps
        };
        // Pages of the small queue that were spared, and are now at its end.
        let mut spared = 0;
        for _ in 0..steps {
            if victims.len() >= want {
                return;
            }
            let small_is_due = self.small.len() * SMALL_SHARE > self.pages;
            let from_small = self.small.len() > spared && (small_is_due || self.main.is_empty());
            let next = if from_small {
                self.small.pop_front()
            } else {
                self.main.pop_front()
            };
            let Some(number) = next else {
                // Both queues are empty.
                return;
            };
            let Some(slot) = self.slot(number) else {
                invariant!(
                    false,
                    "slot {number} is in a queue, and there is no such slot"
                );
                continue;
            };
            let Some(frame) = &slot.frame else {
                self.unqueued(number);
                continue;
            };
            if !frame.is_unique() {
                self.main.push_back(number);
            } else if slot.fresh == Fresh::Ahead && !ruthless {
                // Unread read-ahead. There is little of it (`cache/ahead.rs`).
                spared += 1;
                self.small.push_back(number);
            } else if from_small && slot.uses >= PROMOTE && !ruthless {
                slot.uses = 0;
                self.main.push_back(number);
            } else if !from_small && slot.uses > 0 && !ruthless {
                slot.uses -= 1;
                self.main.push_back(number);
            } else {
                let birth = slot.birth;
                victims.extend(slot.frame.take());
                if slot.looked_up() {
                    self.ahead.wasted(1);
                }
                self.pages -= 1;
                let group = self.groups.get(number as usize / GROUP);
                let first = group.map_or(0, |g| g.key << GROUP_BITS);
                self.unqueued(number);
                if from_small {
                    self.leave_ghost(first + u64::from(number) % GROUP as u64, birth);
                }
            }
        }
    }

    fn ghost(&mut self, addr: u64, birth: Generation) -> (Option<&mut u32>, u32) {
        let mut h = AddrHasher::default();
        h.write_u64(addr ^ birth.0.rotate_left(40));
        let h = h.finish();
        let mask = self.ghosts.len() - 1;
        // 0 marks an empty place.
        (self.ghosts.get_mut(h as usize & mask), (h >> 32) as u32 | 1)
    }

    fn leave_ghost(&mut self, addr: u64, birth: Generation) {
        if let (Some(place), print) = self.ghost(addr, birth) {
            *place = print;
        }
    }

    /// Returns true if this page was recently evicted from the small queue, and forgets that.
    fn take_ghost(&mut self, ptr: &BlockPtr) -> bool {
        let (place, print) = self.ghost(ptr.addr.0, ptr.birth);
        place.is_some_and(|p| *p == print && std::mem::take(p) != 0)
    }
}

#[cfg(test)]
impl Shard {
    /// Returns the number of groups in the slab.
    pub fn slab_len(&self) -> usize {
        self.groups.len()
    }
}

//! One shard: a map from address to entry, and S3-FIFO's queues over the
//! entries.
//!
//! Entries live in a slab and the queues hold slab indexes, so neither a hit nor
//! an eviction allocates. An entry is in exactly one queue. A page that is
//! removed leaves an empty entry in its queue, to be collected when the queue
//! reaches it, or when empty entries are the most: removing takes no search, and
//! the slab stays in proportion to the pages.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use weir_base::Generation;

use super::load::Load;
use crate::block::BlockPtr;
use crate::frame::Frame;

/// Uses are counted up to this.
const MAX_USES: u8 = 3;

/// Uses in the small queue that earn a place in the main one. The insertion is
/// not counted.
const PROMOTE: u8 = 1;

/// The small queue is kept at one part in this many of all entries.
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
        // The map takes its bucket from the low bits and its tag from the high
        // ones, a multiplication alone would leave the low ones weak.
        let h = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ (h >> 32);
    }
}

type AddrMap<V> = HashMap<u64, V, BuildHasherDefault<AddrHasher>>;

struct Entry {
    addr: u64,
    birth: Generation,
    /// `None` once removed.
    frame: Option<Frame>,
    uses: u8,
}

pub(super) struct Shard {
    map: AddrMap<u32>,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Fingerprints of pages evicted from the small queue, each in the place that
    /// its hash gives it: a newer one overwrites an older one.
    ghosts: Box<[u32]>,
    /// Reads in flight, by address.
    pub loading: AddrMap<Arc<Load>>,
    pub hits: u64,
    pub misses: u64,
}

impl Shard {
    /// A shard that expects to hold `share` pages.
    pub fn new(share: usize) -> Shard {
        Shard {
            map: HashMap::with_capacity_and_hasher(share, BuildHasherDefault::default()),
            entries: Vec::with_capacity(share),
            vacant: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: vec![0; share.max(16).next_power_of_two()].into(),
            loading: AddrMap::default(),
            hits: 0,
            misses: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn get(&mut self, ptr: &BlockPtr) -> Option<Frame> {
        let found = self.peek(ptr);
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found
    }

    /// As [`Shard::get`], not counted as a lookup.
    pub fn peek(&mut self, ptr: &BlockPtr) -> Option<Frame> {
        let index = *self.map.get(&ptr.addr.0)?;
        let entry = self.entries.get_mut(index as usize)?;
        if entry.birth != ptr.birth {
            return None;
        }
        if entry.uses < MAX_USES {
            entry.uses += 1;
        }
        entry.frame.clone()
    }

    /// Answers a frame to be dropped outside the lock.
    pub fn insert(&mut self, ptr: BlockPtr, frame: Frame) -> Option<Frame> {
        if let Some(index) = self.map.get(&ptr.addr.0) {
            let Some(entry) = self.entries.get_mut(*index as usize) else {
                return Some(frame);
            };
            // A read of the block's earlier life may end after its later life
            // was written; and the page that is here already is as good.
            if entry.birth >= ptr.birth {
                return Some(frame);
            }
            entry.birth = ptr.birth;
            entry.uses = 0;
            return entry.frame.replace(frame);
        }
        let entry = Entry {
            addr: ptr.addr.0,
            birth: ptr.birth,
            frame: Some(frame),
            uses: 0,
        };
        if self.vacant.is_empty() && self.entries.len() > 2 * self.map.len() + 16 {
            self.collect();
        }
        let index = match self.vacant.pop() {
            Some(index) => {
                if let Some(place) = self.entries.get_mut(index as usize) {
                    *place = entry;
                }
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.map.insert(ptr.addr.0, index);
        if self.take_ghost(&ptr) {
            self.main.push_back(index);
        } else {
            self.small.push_back(index);
        }
        None
    }

    pub fn remove(&mut self, addr: u64) -> Option<Frame> {
        let index = self.map.remove(&addr)?;
        self.entries.get_mut(index as usize)?.frame.take()
    }

    /// Takes all empty entries out of the queues.
    fn collect(&mut self) {
        let (entries, vacant) = (&self.entries, &mut self.vacant);
        let mut keep = |index: &u32| {
            let full = entries
                .get(*index as usize)
                .is_some_and(|e| e.frame.is_some());
            if !full {
                vacant.push(*index);
            }
            full
        };
        self.small.retain(&mut keep);
        self.main.retain(&mut keep);
    }

    /// Moves up to `want` pages that nobody else holds to `victims`, looking at no
    /// more than `steps` entries, and in any case at each only once if
    /// `ruthless`: then popularity does not protect.
    pub fn evict(&mut self, want: usize, steps: usize, ruthless: bool, victims: &mut Vec<Frame>) {
        let steps = if ruthless {
            steps.min(self.small.len() + self.main.len())
        } else {
            steps
        };
        for _ in 0..steps {
            if victims.len() >= want {
                return;
            }
            let small_is_due = self.small.len() * SMALL_SHARE > self.map.len();
            let from_small = !self.small.is_empty() && (small_is_due || self.main.is_empty());
            let next = if from_small {
                self.small.pop_front()
            } else {
                self.main.pop_front()
            };
            let Some(index) = next else { return };
            let Some(entry) = self.entries.get_mut(index as usize) else {
                continue;
            };
            let Some(frame) = &entry.frame else {
                self.vacant.push(index);
                continue;
            };
            if !frame.is_unique() {
                self.main.push_back(index);
            } else if from_small && entry.uses >= PROMOTE && !ruthless {
                entry.uses = 0;
                self.main.push_back(index);
            } else if !from_small && entry.uses > 0 && !ruthless {
                entry.uses -= 1;
                self.main.push_back(index);
            } else {
                let (addr, birth) = (entry.addr, entry.birth);
                victims.extend(entry.frame.take());
                self.map.remove(&addr);
                self.vacant.push(index);
                if from_small {
                    self.leave_ghost(addr, birth);
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

    /// Whether this page was evicted from the small queue not long ago.
    fn take_ghost(&mut self, ptr: &BlockPtr) -> bool {
        let (place, print) = self.ghost(ptr.addr.0, ptr.birth);
        place.is_some_and(|p| *p == print && std::mem::take(p) != 0)
    }
}

#[cfg(test)]
impl Shard {
    pub fn slab_len(&self) -> usize {
        self.entries.len()
    }
}

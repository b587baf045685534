//! Targets of what a damaged or foreign disk holds: tree nodes and their records.
//!
//! Checksums would stop nearly every mutation at the door, so the sources here do not verify them:
//! the decoders must stand on their own, since a fault in our own writer comes with a right
//! checksum.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use weir_base::AggregateId;
use weir_base::{BLOCK_SIZE, BlockAddr, Generation, VolumeId};
use weir_store::log::{Log, LogCut, LogId, Record};
use weir_store::superblock::{IndexRef, Superblock};
use weir_store::tree::{self, NodeSink, NodeSource, Visitor};
use weir_store::{
    BlockPtr, Class, Edit, Frame, FrameMut, FramePool, Key, Stop, StoreError, TreeRoot,
};

use super::Target;
use crate::disk::{DiskId, DiskOptions, World};

/// The targets of this module.
pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "tree_nodes",
            run: tree_nodes,
            seeds: tree_seeds,
        },
        Target {
            name: "superblock",
            run: superblock,
            seeds: superblock_seeds,
        },
        Target {
            name: "log_ring",
            run: log_ring,
            seeds: log_seeds,
        },
        Target {
            name: "log_record",
            run: log_record,
            seeds: super::service::log_records,
        },
        Target {
            name: "tree_record",
            run: tree_record,
            seeds: super::service::tree_records,
        },
    ]
}

/// The checksum is made right where the length makes sense.
fn superblock(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Some(&[a, b, c, d]) = bytes.get(12..16) {
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if (20..=bytes.len()).contains(&length) {
            bytes[16..20].fill(0);
            let crc = crc32c::crc32c(&bytes[..length]);
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        }
    }
    if let Ok(found) = Superblock::decode(&bytes) {
        let again = found.encode().expect("what was decoded can be encoded");
        assert_eq!(Superblock::decode(&again), Ok(found));
    }
}

fn superblock_seeds() -> Vec<Vec<u8>> {
    [0usize, 1, 7]
        .iter()
        .filter_map(|&groups| {
            Superblock {
                id: AggregateId([5; 16]),
                generation: Generation(12),
                log: LogId([6; 16]),
                cut: LogCut::START,
                length: 32768,
                root: TreeRoot {
                    ptr: Some(BlockPtr::default()),
                    height: 2,
                },
                index: vec![IndexRef::default(); groups],
            }
            .encode()
        })
        .collect()
}

/// The number of pages, then the edits of a record.
fn log_record(input: &[u8]) {
    if let Some((&pages, meta)) = input.split_first() {
        let _ = weir_volume::verify_record(meta, usize::from(pages));
    }
}

/// A key, then the value of a record of a volume's tree.
fn tree_record(input: &[u8]) {
    if let Some((key, value)) = input.split_first_chunk::<17>() {
        let _ = weir_volume::verify_tree_record(weir_volume::Position(*key), value);
    }
}

/// Blocks of the log that [`log_ring`] damages.
const LOG_BLOCKS: u64 = 129;
const LOG_ID: LogId = LogId([9; 16]);

/// A log's device with a few batches on it.
fn log_image() -> &'static Arc<World> {
    static IMAGE: OnceLock<Arc<World>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let world = World::new(&[DiskOptions {
            length: LOG_BLOCKS,
            max: LOG_BLOCKS,
            durable: true,
        }]);
        let log = Log::create(world.device(DiskId(0)), LOG_ID).unwrap();
        for n in 0..6u8 {
            let record = Record {
                meta: vec![n; 100 * usize::from(n)],
                pages: (0..n % 3).map(|_| frame_of(&[n; 50])).collect(),
            };
            let lsn = log.append(record).unwrap();
            log.wait_blocking(lsn).unwrap();
        }
        drop(log);
        world
    })
}

/// The input is patches (block, offset, length, bytes) of a log's device; what recovery makes of it
/// may be anything but a panic.
fn log_ring(input: &[u8]) {
    let world = log_image().copy();
    let mut rest = input;
    while let Some((&[block, high, low, len], tail)) = rest.split_first_chunk::<4>() {
        let patch = &tail[..tail.len().min(usize::from(len))];
        let at = usize::from(high & 15) << 8 | usize::from(low);
        world.damage(DiskId(0), u64::from(block) % LOG_BLOCKS, |content| {
            for (to, from) in content[at..].iter_mut().zip(patch) {
                *to = *from;
            }
        });
        rest = &tail[patch.len()..];
    }
    if let Ok((_log, replay)) = Log::recover(world.device(DiskId(0)), LOG_ID, LogCut::START, pool())
    {
        for record in replay {
            if record.is_err() {
                break;
            }
        }
    }
}

fn log_seeds() -> Vec<Vec<u8>> {
    let image = log_image();
    let mut seeds: Vec<Vec<u8>> = vec![Vec::new()];
    for block in 0..12u8 {
        let mut seed = vec![block, 0, 0, 128];
        seed.extend_from_slice(&image.peek(DiskId(0), u64::from(block))[..128]);
        // The same head elsewhere, as a misdirected write leaves it.
        seed.push(block.wrapping_add(3));
        seed.extend_from_slice(&[0, 0, 128]);
        seed.extend_from_slice(&image.peek(DiskId(0), u64::from(block))[..128]);
        seeds.push(seed);
    }
    seeds
}

/// Frames for everything in this module.
fn pool() -> &'static Arc<FramePool> {
    static POOL: OnceLock<Arc<FramePool>> = OnceLock::new();
    POOL.get_or_init(|| FramePool::new(4096).unwrap())
}

fn frame_of(bytes: &[u8]) -> Frame {
    let mut frame = pool().alloc(Class::Cp).unwrap();
    frame.fill(0);
    let len = bytes.len().min(BLOCK_SIZE);
    frame[..len].copy_from_slice(&bytes[..len]);
    frame.freeze()
}

/// Nodes by address, without verification. Stops after some thousand reads: a damaged tree may be a
/// forest of references to one node.
struct Pages {
    pages: Vec<Frame>,
    reads: Cell<u32>,
}

impl NodeSource for Pages {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        self.reads.set(self.reads.get() + 1);
        let missing = StoreError::Corrupt {
            addr: ptr.addr,
            what: "no such page",
        };
        if self.reads.get() > 2000 {
            return Err(Stop::Fail(missing));
        }
        let index = usize::try_from(ptr.addr.0).unwrap_or(usize::MAX);
        self.pages.get(index).cloned().ok_or(Stop::Fail(missing))
    }
}

#[derive(Default)]
struct CountingVisitor {
    nodes: u32,
    records: u32,
}

impl Visitor for CountingVisitor {
    fn node(&mut self, _ptr: &BlockPtr, _level: u8) -> bool {
        self.nodes += 1;
        self.nodes < 2000
    }
    fn record(&mut self, _key: Key, value: &[u8]) {
        assert!(value.len() <= BLOCK_SIZE);
        self.records += 1;
    }
    fn fault(&mut self, _ptr: &BlockPtr, _first: Key, _error: &StoreError) {}
}

/// The input is the pages of a tree, the root last.
fn tree_nodes(input: &[u8]) {
    let pages: Vec<Frame> = input.chunks(BLOCK_SIZE).map(frame_of).collect();
    let Some(last) = pages.last() else {
        return;
    };
    let mut birth = [0; 8];
    birth.copy_from_slice(&last[16..24]);
    let root = TreeRoot {
        ptr: Some(BlockPtr {
            addr: BlockAddr(pages.len() as u64 - 1),
            birth: Generation(u64::from_le_bytes(birth)),
            crc: 0,
        }),
        height: last[4].saturating_add(1),
    };
    let src = Pages {
        pages,
        reads: Cell::new(0),
    };
    let again = || src.reads.set(0);
    let keys = [
        Key::new(0, 0, 0),
        Key::new(7, 4, 12),
        Key::new(u64::MAX, u8::MAX, u64::MAX),
    ];
    for key in &keys {
        let _ = tree::get(&src, &root, key);
        let _ = tree::last_le(&src, &root, key);
        again();
    }
    let mut seen = 0u32;
    let _ = tree::scan(&src, &root, keys[0], keys[2], &mut |_, value| {
        assert!(value.len() <= BLOCK_SIZE);
        seen += 1;
        if seen < 10_000 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    again();
    tree::walk(&src, &root, &mut CountingVisitor::default());
    again();
    let _ = tree::diff(&src, &TreeRoot::EMPTY, &root, &mut |_, _, _| Ok(()));
    again();
    let edits = keys.iter().map(|key| Edit::Put(*key, vec![1; 700]));
    let mut sink = Collect::new(9);
    let _ = tree::apply(&mut sink, &src, VolumeId(1), &root, edits);
}

/// Collects written nodes; addresses are positions.
struct Collect {
    generation: Generation,
    first: u64,
    nodes: Vec<Frame>,
}

impl Collect {
    fn new(generation: u64) -> Collect {
        Collect {
            generation: Generation(generation),
            first: 0,
            nodes: Vec::new(),
        }
    }
}

impl NodeSink for Collect {
    fn generation(&self) -> Generation {
        self.generation
    }
    fn frame(&mut self) -> Result<FrameMut, StoreError> {
        pool().alloc(Class::Cp).ok_or(StoreError::NoMemory)
    }
    fn write_node(&mut self, node: FrameMut) -> Result<BlockPtr, StoreError> {
        let addr = BlockAddr(self.first + self.nodes.len() as u64);
        let ptr = BlockPtr::to_page(addr, self.generation, &node);
        self.nodes.push(node.freeze());
        Ok(ptr)
    }
    fn freed(&mut self, _ptr: BlockPtr) {}
}

fn tree_seeds() -> Vec<Vec<u8>> {
    let nothing = Pages {
        pages: Vec::new(),
        reads: Cell::new(0),
    };
    let mut seeds = Vec::new();
    for (records, size) in [(1u64, 10usize), (30, 40), (12, 900), (40, 600)] {
        let edits = (0..records).map(|n| {
            Edit::Put(
                Key::new(2 + n / 5, (n % 5) as u8, n * 3),
                vec![n as u8; size],
            )
        });
        let mut sink = Collect::new(3);
        if tree::apply(&mut sink, &nothing, VolumeId(1), &TreeRoot::EMPTY, edits).is_ok() {
            seeds.push(
                sink.nodes
                    .iter()
                    .flat_map(|node| node.iter().copied())
                    .collect(),
            );
        }
    }
    seeds
}

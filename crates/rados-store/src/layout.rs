//! Blocks of a device as ranges of objects.

use weir_base::BlockAddr;
use weir_base::limits::rados::OBJECT_BLOCKS;
use weir_store::layout::{Slot, superblock};

/// Blocks of the log before its ring: its two header blocks.
const LOG_HEADER_BLOCKS: u64 = 2;

/// Name of the object with the log's header blocks.
pub const LOG_HEADER: &str = "l.h";

/// Device whose blocks are in objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The device for data, nodes and map.
    Data,
    /// The intent log.
    Log,
}

/// A range of blocks in one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Name of the object.
    pub object: String,
    /// First block in the object.
    pub block: u64,
    /// Number of blocks.
    pub count: u64,
    /// True if writes compare the epoch.
    pub guarded: bool,
}

fn data_object(number: u64) -> String {
    format!("d.{number:016x}")
}

fn log_object(segment: u64) -> String {
    format!("l.{segment:016x}")
}

/// Numbers of the device's objects that have superblocks and their mirrors.
fn superblock_objects() -> impl Iterator<Item = u64> {
    let slots = Slot::BOTH.into_iter().flat_map(superblock);
    let mut numbers: Vec<u64> = slots.map(|at| at.0 / OBJECT_BLOCKS).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter()
}

/// Returns the names of all guarded objects of a device and a log of `segments` segments.
pub fn guarded(segments: u64) -> Vec<String> {
    let log = (0..segments).map(log_object);
    let data = superblock_objects().map(data_object);
    log.chain(data).chain([LOG_HEADER.to_owned()]).collect()
}

/// Returns the number of blocks of a log with so many segments.
pub fn log_blocks(segments: u64) -> u64 {
    LOG_HEADER_BLOCKS + segments * OBJECT_BLOCKS
}

fn piece(kind: Kind, addr: u64) -> Piece {
    let within = |block: u64, object: String, guarded: bool| Piece {
        object,
        block: block % OBJECT_BLOCKS,
        count: OBJECT_BLOCKS - block % OBJECT_BLOCKS,
        guarded,
    };
    match (kind, addr.checked_sub(LOG_HEADER_BLOCKS)) {
        (Kind::Data, _) => {
            let number = addr / OBJECT_BLOCKS;
            let guarded = superblock_objects().any(|n| n == number);
            within(addr, data_object(number), guarded)
        }
        (Kind::Log, Some(block)) => within(block, log_object(block / OBJECT_BLOCKS), true),
        (Kind::Log, None) => Piece {
            object: LOG_HEADER.to_owned(),
            block: addr,
            count: LOG_HEADER_BLOCKS - addr,
            guarded: true,
        },
    }
}

/// Cuts `count` blocks from `addr` on at the borders of objects.
pub fn pieces(kind: Kind, addr: BlockAddr, count: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut at, mut left) = (addr.0, count);
    while left > 0 {
        let mut next = piece(kind, at);
        next.count = next.count.min(left);
        at += next.count;
        left -= next.count;
        pieces.push(next);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(kind: Kind, addr: u64, count: u64) -> Vec<(String, u64, u64)> {
        let pieces = pieces(kind, BlockAddr(addr), count);
        let short = |name: String| name.replace("00000000000000", "");
        pieces
            .into_iter()
            .map(|p| (short(p.object), p.block, p.count))
            .collect()
    }

    fn parts(parts: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        let owned =
            |(object, block, count): &(&str, u64, u64)| ((*object).to_owned(), *block, *count);
        parts.iter().map(owned).collect()
    }

    #[test]
    fn blocks_are_cut_at_the_borders_of_objects() {
        assert_eq!(cut(Kind::Data, 0, 16), parts(&[("d.00", 0, 16)]));
        assert_eq!(
            cut(Kind::Data, 1023, 1026),
            parts(&[("d.00", 1023, 1), ("d.01", 0, 1024), ("d.02", 0, 1)])
        );
        assert_eq!(cut(Kind::Data, 5, 0), parts(&[]));
    }

    #[test]
    fn a_segment_of_the_log_is_an_object() {
        assert_eq!(cut(Kind::Log, 0, 1), parts(&[("l.h", 0, 1)]));
        assert_eq!(cut(Kind::Log, 1, 1), parts(&[("l.h", 1, 1)]));
        // The ring begins at block 2, and a segment has 1,024 blocks.
        assert_eq!(cut(Kind::Log, 2, 1024), parts(&[("l.00", 0, 1024)]));
        assert_eq!(cut(Kind::Log, 2 + 1024, 1), parts(&[("l.01", 0, 1)]));
        assert_eq!(
            cut(Kind::Log, 0, 1030),
            parts(&[("l.h", 0, 2), ("l.00", 0, 1024), ("l.01", 0, 4)])
        );
        assert_eq!(log_blocks(4), 4098);
    }

    #[test]
    fn superblocks_and_the_log_are_guarded() {
        let guarded = guarded(4);
        assert_eq!(guarded.len(), 4 + 2 + 1);
        for (kind, addr, wanted) in [
            (Kind::Data, 0, true),
            (Kind::Data, 16, true),
            (Kind::Data, 1024, false),
            (Kind::Data, 2048, true),
            (Kind::Data, 2064, true),
            (Kind::Data, 3072, false),
            (Kind::Log, 0, true),
            (Kind::Log, 2, true),
            (Kind::Log, 4097, true),
        ] {
            let piece = &pieces(kind, BlockAddr(addr), 1)[0];
            assert_eq!(piece.guarded, wanted, "{kind:?} {addr}");
            assert_eq!(guarded.contains(&piece.object), wanted, "{kind:?} {addr}");
        }
    }
}

//! A manifest: all records of a snapshot, in the order of their keys, in segments.
//!
//! The bytes of entries and lists are in docs/internals/format.md.

use std::collections::VecDeque;

use weir_base::BLOCK_SIZE;
use weir_volume::Position;

use crate::chunk::{Chunk, Reader};
use crate::error::BackupError;
use crate::vault::Vault;

/// Blocks of a window.
pub(crate) const WINDOW: usize = 32;

/// A block of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// Its place in the window.
    pub place: u8,
    /// The piece that has its contents.
    pub piece: u8,
    /// Its number among the piece's blocks.
    pub nth: u8,
    pub crc: u32,
}

/// Contents of a window of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    pub pieces: Vec<Chunk>,
    /// In the order of their places.
    pub blocks: Vec<Block>,
}

/// An entry of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Record { at: Position, value: Vec<u8> },
    Window { at: Position, window: Window },
}

const RECORD: u8 = 1;
const WINDOW_KIND: u8 = 2;

impl Window {
    /// Replaces blocks: those of `piece` are at `places`, in order, with their checksums.
    pub(crate) fn set(&mut self, piece: Chunk, places: &[(u8, u32)]) {
        self.clear(places.iter().fold(0, |mask, (place, _)| mask | 1 << place));
        let number = self.pieces.len() as u8;
        self.pieces.push(piece);
        let new = places.iter().zip(0..).map(|(&(place, crc), nth)| Block {
            place,
            piece: number,
            nth,
            crc,
        });
        self.blocks.extend(new);
        self.blocks.sort_by_key(|block| block.place);
    }

    /// Removes the blocks of a mask, and the pieces that no block needs any more.
    pub(crate) fn clear(&mut self, mask: u32) {
        self.blocks.retain(|block| mask >> block.place & 1 == 0);
        let mut kept = Vec::with_capacity(self.pieces.len());
        for (number, piece) in self.pieces.iter().enumerate() {
            let new = kept.len() as u8;
            let mut needed = false;
            for block in &mut self.blocks {
                // Numbers only fall, so that none is taken for another's.
                if usize::from(block.piece) == number {
                    block.piece = new;
                    needed = true;
                }
            }
            if needed {
                kept.push(*piece);
            }
        }
        self.pieces = kept;
    }

    /// Returns the contents of a block, out of those of its piece.
    pub(crate) fn contents<'a>(block: &Block, piece: &'a [u8]) -> Option<&'a [u8]> {
        let from = usize::from(block.nth) * BLOCK_SIZE;
        piece.get(from..from + BLOCK_SIZE)
    }

    fn sound(&self) -> bool {
        let pieces = self.pieces.len();
        let known =
            |block: &Block| usize::from(block.place) < WINDOW && usize::from(block.piece) < pieces;
        let ascends = self.blocks.is_sorted_by(|a, b| a.place < b.place);
        !self.blocks.is_empty() && ascends && self.blocks.iter().all(known)
    }
}

impl Entry {
    pub(crate) fn position(&self) -> Position {
        match self {
            Entry::Record { at, .. } | Entry::Window { at, .. } => *at,
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Entry::Record { at, value } => {
                out.push(RECORD);
                out.extend_from_slice(&at.0);
                out.extend_from_slice(&(value.len() as u16).to_le_bytes());
                out.extend_from_slice(value);
            }
            Entry::Window { at, window } => {
                out.push(WINDOW_KIND);
                out.extend_from_slice(&at.0);
                out.push(window.pieces.len() as u8);
                window.pieces.iter().for_each(|piece| piece.put(out));
                out.push(window.blocks.len() as u8);
                for block in &window.blocks {
                    out.extend_from_slice(&[block.place, block.piece, block.nth]);
                    out.extend_from_slice(&block.crc.to_le_bytes());
                }
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Option<Entry> {
        let kind = reader.byte()?;
        let at = Position(reader.bytes()?);
        match kind {
            RECORD => {
                let length = u16::from_le_bytes(reader.bytes()?);
                let value = reader.slice(usize::from(length))?.to_vec();
                Some(Entry::Record { at, value })
            }
            WINDOW_KIND => {
                let mut window = Window::default();
                for _ in 0..reader.byte()? {
                    window.pieces.push(Chunk::take(reader)?);
                }
                for _ in 0..reader.byte()? {
                    let [place, piece, nth] = reader.bytes()?;
                    let crc = u32::from_le_bytes(reader.bytes()?);
                    window.blocks.push(Block {
                        place,
                        piece,
                        nth,
                        crc,
                    });
                }
                window.sound().then_some(Entry::Window { at, window })
            }
            _ => None,
        }
    }
}

/// A part of a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Position of its first entry.
    pub first: Position,
    pub chunk: Chunk,
}

impl Segment {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first.0);
        self.chunk.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Segment> {
        Some(Segment {
            first: Position(reader.bytes()?),
            chunk: Chunk::take(reader)?,
        })
    }

    /// Reads its entries.
    pub(crate) fn entries(&self, vault: &Vault) -> Result<VecDeque<Entry>, BackupError> {
        let bytes = vault.chunk(&self.chunk)?;
        decode_entries(&bytes).ok_or_else(|| vault.lost(&self.chunk))
    }
}

/// Decodes the entries of a segment. `None` if one is malformed, or they do not ascend.
pub(crate) fn decode_entries(bytes: &[u8]) -> Option<VecDeque<Entry>> {
    let entries: Option<VecDeque<Entry>> = decode_list(bytes, Entry::take);
    let ascends = |entries: &VecDeque<Entry>| {
        entries
            .iter()
            .is_sorted_by(|a, b| a.position() < b.position())
    };
    entries.filter(ascends)
}

/// Decodes a list of segments. `None` if it is cut off.
pub(crate) fn decode_segments(bytes: &[u8]) -> Option<VecDeque<Segment>> {
    decode_list(bytes, Segment::take)
}

fn decode_list<T, C: FromIterator<T>>(
    bytes: &[u8],
    take: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> Option<C> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(|| match reader.is_empty() {
        true => None,
        false => Some(take(&mut reader)),
    })
    .collect()
}

/// The segments of a manifest, from its first or from a position on.
pub(crate) struct Segments<'v> {
    vault: &'v Vault,
    lists: VecDeque<Chunk>,
    loaded: VecDeque<Segment>,
}

impl<'v> Segments<'v> {
    pub(crate) fn new(vault: &'v Vault, lists: Vec<Chunk>) -> Segments<'v> {
        Segments {
            vault,
            lists: lists.into(),
            loaded: VecDeque::new(),
        }
    }

    fn load(&mut self, count: usize) -> Result<(), BackupError> {
        while self.loaded.len() < count {
            let Some(list) = self.lists.pop_front() else {
                break;
            };
            let bytes = self.vault.chunk(&list)?;
            let segments = decode_segments(&bytes);
            self.loaded
                .extend(segments.ok_or_else(|| self.vault.lost(&list))?);
        }
        Ok(())
    }

    /// Returns the next segment, and the position of the first entry behind it.
    pub(crate) fn peek(&mut self) -> Result<Option<(Segment, Position)>, BackupError> {
        self.load(2)?;
        let end = self.loaded.get(1).map_or(Position::END, |next| next.first);
        Ok(self.loaded.front().map(|segment| (*segment, end)))
    }

    /// Passes the segment that [`Segments::peek`] returned.
    pub(crate) fn pass(&mut self) {
        self.loaded.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::PackId;
    use crate::seal::ChunkId;
    use proptest::prelude::*;

    fn chunk(n: u8) -> Chunk {
        Chunk {
            id: ChunkId([n; 16]),
            pack: PackId([n; 16]),
            at: u32::from(n),
            length: 7,
        }
    }

    #[test]
    fn entries_read_as_written_and_nothing_else_is_one() {
        let mut window = Window::default();
        window.set(chunk(1), &[(0, 10), (5, 11), (31, 12)]);
        let entries = [
            Entry::Record {
                at: Position([1; 17]),
                value: b"value".to_vec(),
            },
            Entry::Window {
                at: Position([2; 17]),
                window,
            },
        ];
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.put(&mut bytes));
        assert_eq!(
            decode_list::<_, Vec<_>>(&bytes, Entry::take).unwrap(),
            entries
        );
        for cut in 1..bytes.len() {
            let read = decode_list::<_, Vec<_>>(&bytes[..cut], Entry::take);
            assert!(read.is_none_or(|read| read.len() == 1), "{cut}");
        }
    }

    proptest! {
        /// A window has at each place what was put there last.
        #[test]
        fn a_window_is_what_was_set_last(
            steps in prop::collection::vec((any::<u32>(), any::<u32>()), 1..12)
        ) {
            let (mut window, mut model) = (Window::default(), [None; WINDOW]);
            for (step, (set, clear)) in (0u8..).zip(steps) {
                let bits = |mask: u32| (0..WINDOW as u8).filter(move |place| mask >> place & 1 == 1);
                let places: Vec<(u8, u32)> =
                    bits(set).map(|place| (place, u32::from(step) << 8 | u32::from(place))).collect();
                if !places.is_empty() {
                    window.set(chunk(step), &places);
                }
                for (nth, &(place, crc)) in places.iter().enumerate() {
                    model[usize::from(place)] = Some((chunk(step), nth as u8, crc));
                }
                window.clear(clear);
                bits(clear).for_each(|place| model[usize::from(place)] = None);
                let mut got = [None; WINDOW];
                for block in &window.blocks {
                    let piece = window.pieces[usize::from(block.piece)];
                    got[usize::from(block.place)] = Some((piece, block.nth, block.crc));
                }
                prop_assert_eq!(got, model);
                prop_assert!(window.blocks.is_empty() || window.sound());
                let used = |n: usize| window.blocks.iter().any(|b| usize::from(b.piece) == n);
                prop_assert!((0..window.pieces.len()).all(used));
            }
        }

        #[test]
        fn any_bytes_are_entries_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Some(entries) = decode_list::<_, Vec<_>>(&bytes, Entry::take) {
                let mut again = Vec::new();
                entries.iter().for_each(|entry| entry.put(&mut again));
                prop_assert_eq!(again, bytes);
            }
        }
    }
}

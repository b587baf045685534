//! The records of a volume's tree: inodes, directory entries, link targets and
//! extents (byte layouts in docs/format.md).
//!
//! **Extents come in windows.** A file's map is cut into windows of 32 blocks
//! (128 KiB); the record of a window lists the runs of device blocks within it,
//! each with its birth number and the checksum of every block. The obvious
//! alternative, one record an extent keyed by its first block, makes an overwrite
//! in the middle of an extent touch up to three keys and a lookup search for the
//! greatest key not above. With windows an overwrite of any number of blocks in a
//! window replaces one record, and a lookup is an exact get. A window of 32
//! single-block runs takes 673 bytes, well below the limit of a tree value.

use smallvec::SmallVec;
use weir_base::{BlockAddr, Generation, Ino, Time};

use crate::codec::{Put, Reader};
use crate::types::FileKind;

/// Kinds of key below an inode number.
pub(crate) mod kind {
    /// The inode record (sub 0).
    pub(crate) const INODE: u8 = 0;
    /// A piece of a link target (sub = number of the piece).
    pub(crate) const SYMLINK: u8 = 2;
    /// A directory entry (sub = cookie).
    pub(crate) const DIRENT: u8 = 3;
    /// A window of a file's map (sub = first file block).
    pub(crate) const EXTENT: u8 = 4;
    /// A removed inode whose records are still to be deleted (inode 0, sub = ino).
    pub(crate) const ORPHAN: u8 = 5;
}

/// The root directory's inode number.
pub(crate) const ROOT_INO: Ino = Ino(2);

/// The first number given to a new inode; below are reserved ones.
pub(crate) const FIRST_INO: u64 = 16;

/// Blocks in a window of a file's map.
pub(crate) const WINDOW: u64 = weir_base::limits::MAX_EXTENT_BLOCKS as u64;

/// Bytes of a link target in one record.
pub(crate) const SYMLINK_PIECE: usize = weir_base::limits::MAX_VALUE;

const INODE_VERSION: u8 = 1;
const HAS_VERIFIER: u8 = 1;

/// An inode as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeRec {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Bytes of a file or link target; 0 for a directory.
    pub(crate) size: u64,
    /// Data blocks as of the last consistency point. Only consistency points
    /// change it; in the log it is meaningless.
    pub(crate) blocks: u64,
    pub(crate) rdev: (u32, u32),
    pub(crate) change: u64,
    /// Parent of a directory.
    pub(crate) parent: Ino,
    /// Entries of a directory, without "." and "..".
    pub(crate) entries: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    /// Verifier of the exclusive create that made it.
    pub(crate) verifier: Option<[u8; 8]>,
}

impl InodeRec {
    pub(crate) const LEN: usize = 121;

    /// A fresh inode with one link (two for a directory).
    pub(crate) fn new(kind: FileKind, mode: u32, now: Time) -> InodeRec {
        InodeRec {
            kind,
            mode: (mode & 0o7777) as u16,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            rdev: (0, 0),
            change: 1,
            parent: Ino(0),
            entries: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            verifier: None,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(Self::LEN);
        out.put_u8(INODE_VERSION);
        out.put_u8(self.kind as u8);
        out.put_u16(self.mode);
        out.put_u32(self.nlink);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u64(self.size);
        out.put_u64(self.blocks);
        out.put_u32(self.rdev.0);
        out.put_u32(self.rdev.1);
        out.put_u64(self.change);
        out.put_u64(self.parent.0);
        out.put_u64(self.entries);
        for t in [self.atime, self.mtime, self.ctime, self.btime] {
            out.put_i64(t.secs);
            out.put_u32(t.nanos);
        }
        out.put(&self.verifier.unwrap_or_default());
        out.put_u8(if self.verifier.is_some() {
            HAS_VERIFIER
        } else {
            0
        });
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<InodeRec> {
        let mut r = Reader::new(bytes);
        if r.u8()? != INODE_VERSION {
            return None;
        }
        let kind = FileKind::from_number(r.u8()?)?;
        let mode = r.u16()?;
        let (nlink, uid, gid) = (r.u32()?, r.u32()?, r.u32()?);
        let (size, blocks) = (r.u64()?, r.u64()?);
        let rdev = (r.u32()?, r.u32()?);
        let (change, parent, entries) = (r.u64()?, Ino(r.u64()?), r.u64()?);
        let mut time = || {
            let t = Time {
                secs: r.i64()?,
                nanos: r.u32()?,
            };
            (t.nanos < 1_000_000_000).then_some(t)
        };
        let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
        let verifier = r.array::<8>()?;
        let flags = r.u8()?;
        if flags & !HAS_VERIFIER != 0 || !r.is_empty() || mode > 0o7777 {
            return None;
        }
        Some(InodeRec {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size,
            blocks,
            rdev,
            change,
            parent,
            entries,
            atime,
            mtime,
            ctime,
            btime,
            verifier: (flags & HAS_VERIFIER != 0).then_some(verifier),
        })
    }
}

/// A directory entry as it is stored; its cookie is the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dirent {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) name: Box<[u8]>,
}

/// A directory entry, its name borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirentRef<'a> {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
}

impl Dirent {
    pub(crate) fn borrowed(&self) -> DirentRef<'_> {
        DirentRef {
            ino: self.ino,
            kind: self.kind,
            name: &self.name,
        }
    }
}

impl<'a> DirentRef<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(9 + self.name.len());
        out.put_u64(self.ino.0);
        out.put_u8(self.kind as u8);
        out.put(self.name);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<DirentRef<'a>> {
        let mut r = Reader::new(bytes);
        let ino = Ino(r.u64()?);
        let kind = FileKind::from_number(r.u8()?)?;
        let name = r.bytes(bytes.len().checked_sub(9)?)?;
        if name.is_empty() || name.len() > weir_base::limits::MAX_NAME {
            return None;
        }
        Some(DirentRef { ino, kind, name })
    }

    pub(crate) fn to_owned(self) -> Dirent {
        Dirent {
            ino: self.ino,
            kind: self.kind,
            name: self.name.into(),
        }
    }
}

/// Where one file block is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) addr: BlockAddr,
    pub(crate) birth: Generation,
    pub(crate) crc: u32,
}

/// The decoded map of one window: what each of its 32 blocks is stored as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) blocks: [Option<Stored>; WINDOW as usize],
}

impl Window {
    pub(crate) const EMPTY: Window = Window {
        blocks: [None; WINDOW as usize],
    };

    /// First file block of the window that holds `block`.
    pub(crate) fn start_of(block: u64) -> u64 {
        block & !(WINDOW - 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.iter().all(Option::is_none)
    }

    /// Number of blocks stored.
    pub(crate) fn stored(&self) -> u64 {
        self.blocks.iter().flatten().count() as u64
    }

    /// Runs of blocks that are contiguous in file and device and born together:
    /// (first block within the window, blocks).
    fn runs(&self) -> SmallVec<[(usize, usize); 8]> {
        let mut runs: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        let mut before: Option<Stored> = None;
        for (i, slot) in self.blocks.iter().enumerate() {
            if let Some(s) = slot {
                let follows = before.is_some_and(|b| {
                    b.birth == s.birth && b.addr.0.checked_add(1) == Some(s.addr.0)
                });
                match runs.last_mut() {
                    Some(run) if follows => run.1 += 1,
                    _ => runs.push((i, 1)),
                }
            }
            before = *slot;
        }
        runs
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let runs = self.runs();
        out.put_u8(runs.len() as u8);
        for (start, count) in runs {
            let slots = self.blocks.get(start..start + count).unwrap_or_default();
            let Some(first) = slots.first().copied().flatten() else {
                continue;
            };
            out.put_u8(start as u8);
            out.put_u8(count as u8);
            out.put_u64(first.addr.0);
            out.put_u64(first.birth.0);
            for s in slots.iter().flatten() {
                out.put_u32(s.crc);
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Window> {
        let mut window = Window::EMPTY;
        let mut r = Reader::new(bytes);
        let mut next_free = 0usize;
        for _ in 0..r.u8()? {
            let (start, count) = (usize::from(r.u8()?), usize::from(r.u8()?));
            let (addr, birth) = (r.u64()?, Generation(r.u64()?));
            if start < next_free || count == 0 {
                return None;
            }
            next_free = start + count;
            addr.checked_add(count as u64)?;
            for (i, slot) in window
                .blocks
                .get_mut(start..next_free)?
                .iter_mut()
                .enumerate()
            {
                *slot = Some(Stored {
                    addr: BlockAddr(addr + i as u64),
                    birth,
                    crc: r.u32()?,
                });
            }
        }
        r.is_empty().then_some(window)
    }

    /// The entry of one block from an encoded window, without decoding the rest:
    /// the lookup of the read path. `Err` if the record is malformed.
    pub(crate) fn find(bytes: &[u8], index: usize) -> Result<Option<Stored>, Malformed> {
        Self::find_inner(bytes, index).ok_or(Malformed)
    }

    fn find_inner(bytes: &[u8], index: usize) -> Option<Option<Stored>> {
        Some(match Self::span_inner(bytes, index)? {
            Some(span) => Some(span.get(0)?),
            None => None,
        })
    }

    /// The blocks from this one on that are contiguous in file and device and
    /// born together, at least it itself; `None` if it is not stored. `Err` if the
    /// record is malformed.
    pub(crate) fn span(bytes: &[u8], index: usize) -> Result<Option<Span<'_>>, Malformed> {
        Self::span_inner(bytes, index).ok_or(Malformed)
    }

    fn span_inner(bytes: &[u8], index: usize) -> Option<Option<Span<'_>>> {
        let mut r = Reader::new(bytes);
        for _ in 0..r.u8()? {
            let (start, count) = (usize::from(r.u8()?), usize::from(r.u8()?));
            let (addr, birth) = (r.u64()?, Generation(r.u64()?));
            let crcs = r.bytes(count * 4)?;
            if let Some(i) = index.checked_sub(start).filter(|i| *i < count) {
                return Some(Some(Span {
                    addr: BlockAddr(addr.checked_add(i as u64)?),
                    birth,
                    crcs: crcs.get(i * 4..)?,
                }));
            }
        }
        Some(None)
    }
}

/// Blocks of a window that follow one another on the device, see [`Window::span`].
pub(crate) struct Span<'a> {
    pub(crate) addr: BlockAddr,
    pub(crate) birth: Generation,
    crcs: &'a [u8],
}

impl Span<'_> {
    /// Number of blocks.
    pub(crate) fn len(&self) -> u64 {
        self.crcs.len() as u64 / 4
    }

    /// The entry of one of the blocks.
    pub(crate) fn get(&self, index: usize) -> Option<Stored> {
        let crc = self.crcs.get(index * 4..)?.first_chunk::<4>()?;
        Some(Stored {
            addr: BlockAddr(self.addr.0.checked_add(index as u64)?),
            birth: self.birth,
            crc: u32::from_le_bytes(*crc),
        })
    }
}

/// A record that cannot be decoded although its checksum is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Number of blocks that `size` bytes reach into.
pub(crate) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(weir_base::BLOCK_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    fn sample() -> InodeRec {
        let mut rec = InodeRec::new(FileKind::Regular, 0o4755, Time { secs: -7, nanos: 5 });
        rec.size = u64::MAX >> 1;
        rec.uid = u32::MAX;
        rec.change = 99;
        rec.rdev = (1, 2);
        rec.parent = Ino(77);
        rec
    }

    #[test]
    fn inode_round_trip() {
        for verifier in [None, Some([9; 8])] {
            let rec = InodeRec {
                verifier,
                ..sample()
            };
            let mut out = Vec::new();
            rec.encode(&mut out);
            assert_eq!(out.len(), InodeRec::LEN);
            assert_eq!(InodeRec::decode(&out), Some(rec));
            assert_eq!(InodeRec::decode(&out[1..]), None);
            out.push(0);
            assert_eq!(InodeRec::decode(&out), None);
        }
    }

    #[test]
    fn dirent_round_trip() {
        let name = [0xFFu8; 255];
        let e = DirentRef {
            ino: Ino(5),
            kind: FileKind::Fifo,
            name: &name,
        };
        let mut out = Vec::new();
        e.encode(&mut out);
        assert_eq!(DirentRef::decode(&out), Some(e));
        assert_eq!(e.to_owned().borrowed(), e);
        assert_eq!(DirentRef::decode(&out[..9]), None);
        assert_eq!(DirentRef::decode(&[]), None);
    }

    #[test]
    fn windows_round_trip_and_stay_small() {
        let rng = SeededRng::new(3);
        for round in 0..2000 {
            let mut w = Window::EMPTY;
            for (i, slot) in w.blocks.iter_mut().enumerate() {
                if rng.below(4) > 0 {
                    *slot = Some(Stored {
                        addr: BlockAddr(if round % 2 == 0 {
                            i as u64
                        } else {
                            rng.below(1 << 50)
                        }),
                        birth: Generation(rng.below(3)),
                        crc: rng.next_u64() as u32,
                    });
                }
            }
            let mut out = Vec::new();
            w.encode(&mut out);
            assert!(out.len() <= weir_base::limits::MAX_VALUE);
            assert_eq!(Window::decode(&out).as_ref(), Some(&w));
            for (i, slot) in w.blocks.iter().enumerate() {
                assert_eq!(Window::find(&out, i), Ok(*slot));
                let Some(span) = Window::span(&out, i).unwrap() else {
                    assert_eq!(*slot, None);
                    continue;
                };
                assert!(span.len() > 0);
                for n in 0..span.len() as usize {
                    let stored = span.get(n);
                    assert_eq!(stored, w.blocks[i + n]);
                    let place = stored.map(|s| (s.addr.0, s.birth));
                    assert_eq!(place, Some((span.addr.0 + n as u64, span.birth)));
                }
            }
            if !w.is_empty() {
                assert_eq!(Window::decode(&out[..out.len() - 1]), None);
            }
        }
    }

    #[test]
    fn malformed_windows_are_refused() {
        let rng = SeededRng::new(4);
        for _ in 0..5000 {
            let mut bytes = vec![0u8; rng.below(60) as usize];
            rng.fill(&mut bytes);
            if let Some(w) = Window::decode(&bytes) {
                let mut again = Vec::new();
                w.encode(&mut again);
                assert_eq!(Window::decode(&again), Some(w));
            }
            let _ = Window::find(&bytes, 31);
        }
    }
}

//! The records of a volume's tree: inodes, directory entries, link targets and extents (byte
//! layouts in docs/internals/format.md).
//!
//! **Extents come in windows.** A file's map is cut into windows of 32 blocks (128 KiB). The record
//! of a window lists the runs of device blocks within it, each with its birth number and the
//! checksum of every block. The obvious alternative is one record an extent, keyed by its first
//! block. An overwrite in the middle of an extent would then touch up to three keys, and a lookup
//! would search for the greatest key not above. With windows an overwrite of any number of blocks
//! in a window replaces one record, and a lookup is an exact get. A window of 32 single-block runs
//! takes 673 bytes, well below the limit of a tree value.

use smallvec::SmallVec;
use weir_base::{BlockAddr, Generation, Ino, Time, invariant};
use weir_store::BlockPtr;

use crate::format::codec::{Put, Reader};
use crate::types::{FileKind, LOCAL_BITS};

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
    /// A piece of an extended attribute (sub = hash of its name, disambiguator, number of the
    /// piece).
    pub(crate) const XATTR: u8 = 6;
    /// A piece of the access control list (sub = number of the piece).
    pub(crate) const ACL: u8 = 7;
    /// A named stream (sub = cookie): an entry that leads to the stream's inode.
    pub(crate) const STREAM: u8 = 8;
    /// Counts of references to blocks that files share ([`crate::format::shared_runs`]).
    pub(crate) const SHARED: u8 = 9;
    /// Blocks and inodes of an owner ([`crate::format::usage`]).
    pub(crate) const USAGE: u8 = 10;

    /// A token of a constituent, beside the root directory ([`crate::ops::constituent`]).
    pub(crate) const TOKEN: u8 = 11;

    /// Kinds of records that each copy of a volume has for itself.
    pub(crate) const OWN: [u8; 2] = [SHARED, USAGE];

    /// Kinds of records beside an inode, whatever its own kind, that only their owner interprets.
    pub(crate) const SIDE: [u8; 4] = [XATTR, ACL, STREAM, TOKEN];
}

/// The root directory's inode number.
pub(crate) const ROOT_INO: Ino = Ino(2);

/// The first number of a new inode; lower ones are reserved.
pub(crate) const FIRST_INO: u64 = 16;

/// Returns true for the number, in an entry or as a parent, of an inode of another constituent.
#[must_use]
pub fn is_elsewhere(ino: Ino) -> bool {
    ino.0 >> LOCAL_BITS != 0
}

/// Returns the number by which a constituent names the inode that has `local` in the constituent
/// `other`; `None` if a number is too large.
#[must_use]
pub fn elsewhere(other: u8, local: Ino) -> Option<Ino> {
    let top = u64::from(other.checked_add(1)?);
    (!is_elsewhere(local)).then_some(Ino(top << LOCAL_BITS | local.0))
}

/// Blocks in a window of a file's map.
pub(crate) const WINDOW: u64 = weir_base::limits::MAX_EXTENT_BLOCKS as u64;

/// Bytes of a link target in one record.
pub(crate) const SYMLINK_PIECE: usize = weir_base::limits::MAX_VALUE;

/// Version of the record of an inode outside of any tree. Version 1 was never released.
const INODE_VERSION: u8 = 2;

/// Version of the record of an inode in a tree, whose number follows the rest.
const INODE_IN_TREE: u8 = 3;

/// Flags of an inode for its additional records. A clear bit saves a search.
pub(crate) mod flag {
    /// The inode was created exclusively; the verifier is stored in it.
    pub(super) const VERIFIER: u16 = 1;
    /// The inode has records of kind [`super::kind::ACL`].
    pub(crate) const ACL: u16 = 2;
    /// The inode has, or had, records of kind [`super::kind::XATTR`].
    pub(crate) const XATTRS: u16 = 4;
    /// The inode has, or had, records of kind [`super::kind::STREAM`].
    pub(crate) const STREAMS: u16 = 8;
    /// The inode is a stream of the file whose number is stored in place of the parent's.
    pub(crate) const STREAM: u16 = 16;

    pub(super) const ALL: u16 = VERIFIER | ACL | XATTRS | STREAMS | STREAM;
}

/// DOS attributes that an inode can have (MS-FSCC section 2.6): all 16 bits except DIRECTORY and
/// NORMAL, which follow from its kind, and two without a meaning.
pub const DOS_ATTRIBUTES: u16 = 0xFF27;

/// DOS attribute of a symbolic link that was made from a directory. It is the bit of REPARSE_POINT,
/// which follows from the kind as well, and is meaningless on other inodes.
pub const DIRECTORY_LINK: u16 = 0x0400;

/// Stored record of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeRec {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Length of a file or link target in bytes; 0 for a directory.
    pub(crate) size: u64,
    /// Number of data blocks as of the last checkpoint. Only checkpoints change it; in the log it
    /// is meaningless.
    pub(crate) blocks: u64,
    pub(crate) rdev: (u32, u32),
    pub(crate) change: u64,
    /// Parent of a directory.
    pub(crate) parent: Ino,
    /// Number of entries of a directory, without "." and "..".
    pub(crate) entries: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    /// Verifier of the exclusive create that made the inode.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Bits of [`flag`] except the verifier's.
    pub(crate) flags: u16,
    /// DOS attributes, a subset of [`DOS_ATTRIBUTES`].
    pub(crate) dos: u16,
    /// Number of the tree that the inode belongs to; 0: none. Never changes.
    pub(crate) tree: u32,
}

impl InodeRec {
    /// Length of the record of an inode outside of any tree, in bytes.
    pub(crate) const LEN: usize = 100;
    /// Length of the record of an inode in a tree, in bytes.
    pub(crate) const TREE_LEN: usize = Self::LEN + 4;

    /// Creates an inode with one link (two for a directory).
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
            flags: 0,
            dos: 0,
            tree: 0,
        }
    }

    /// Decodes a record that other bytes follow.
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<InodeRec> {
        let len = InodeRec::length(*r.rest().first()?)?;
        InodeRec::decode(r.bytes(len)?)
    }

    /// Returns the length of a record that begins with this byte; `None`: no version has it.
    fn length(first: u8) -> Option<usize> {
        match first {
            INODE_VERSION => Some(Self::LEN),
            INODE_IN_TREE => Some(Self::TREE_LEN),
            _ => None,
        }
    }

    /// Encodes the eight bytes whose meaning depends on the kind: a directory's or a stream's
    /// parent, a device's numbers, or a regular file's verifier.
    fn own(&self) -> [u8; 8] {
        match self.kind {
            FileKind::Directory => self.parent.0.to_le_bytes(),
            FileKind::Block | FileKind::Char => {
                let (major, minor) = self.rdev;
                (u64::from(minor) << 32 | u64::from(major)).to_le_bytes()
            }
            _ if self.flags & flag::STREAM != 0 => self.parent.0.to_le_bytes(),
            _ => self.verifier.unwrap_or_default(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(
            self.kind == FileKind::Directory || self.entries == 0,
            "entries of no directory: {self:?}"
        );
        debug_assert!(
            self.verifier.is_none()
                || self.kind == FileKind::Regular && self.flags & flag::STREAM == 0,
            "verifier of no regular file: {self:?}"
        );
        let verifier = match self.verifier {
            Some(_) => flag::VERIFIER,
            None => 0,
        };
        let before = out.len();
        let (version, len) = match self.tree {
            0 => (INODE_VERSION, Self::LEN),
            _ => (INODE_IN_TREE, Self::TREE_LEN),
        };
        out.reserve(len);
        out.put_u8(version);
        out.put_u8(self.kind as u8);
        out.put_u16(self.mode);
        out.put_u32(self.nlink);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u64(match self.kind {
            FileKind::Directory => self.entries,
            _ => self.size,
        });
        out.put_u64(self.blocks);
        out.put(&self.own());
        out.put_u64(self.change);
        out.put_u16(self.flags | verifier);
        out.put_u16(self.dos);
        for t in [self.atime, self.mtime, self.ctime, self.btime] {
            out.put_i64(t.secs);
            out.put_u32(t.nanos);
        }
        if self.tree != 0 {
            out.put_u32(self.tree);
        }
        debug_assert_eq!(out.len() - before, len);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<InodeRec> {
        let mut r = Reader::new(bytes);
        let len = InodeRec::length(r.u8()?)?;
        let kind = FileKind::from_number(r.u8()?)?;
        let mode = r.u16()?;
        let (nlink, uid, gid) = (r.u32()?, r.u32()?, r.u32()?);
        let (length, blocks) = (r.u64()?, r.u64()?);
        let own = r.array::<8>()?;
        let change = r.u64()?;
        let (flags, dos) = (r.u16()?, r.u16()?);
        let mut time = || {
            let t = Time {
                secs: r.i64()?,
                nanos: r.u32()?,
            };
            (t.nanos < 1_000_000_000).then_some(t)
        };
        let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
        let tree = if len > Self::LEN { r.u32()? } else { 0 };
        let known = flags & !flag::ALL == 0 && dos & !DOS_ATTRIBUTES == 0;
        if !known || !r.is_empty() || mode > 0o7777 || (tree != 0) != (len > Self::LEN) {
            return None;
        }
        let mut rec = InodeRec {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size: length,
            blocks,
            rdev: (0, 0),
            change,
            parent: Ino(0),
            entries: 0,
            atime,
            mtime,
            ctime,
            btime,
            verifier: None,
            flags: flags & !flag::VERIFIER,
            dos,
            tree,
        };
        let regular = kind == FileKind::Regular;
        if flags & (flag::STREAM | flag::VERIFIER) != 0 && !regular {
            return None;
        }
        let number = u64::from_le_bytes(own);
        match kind {
            FileKind::Directory => {
                (rec.size, rec.entries) = (0, length);
                rec.parent = Ino(number);
            }
            FileKind::Block | FileKind::Char => rec.rdev = (number as u32, (number >> 32) as u32),
            _ if flags & flag::STREAM != 0 => {
                if flags & flag::VERIFIER != 0 {
                    return None;
                }
                rec.parent = Ino(number);
            }
            _ if flags & flag::VERIFIER != 0 => rec.verifier = Some(own),
            _ if number != 0 => return None,
            _ => {}
        }
        Some(rec)
    }
}

/// Stored record of a directory entry; its cookie is the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dirent {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) name: Box<[u8]>,
}

/// A directory entry with a borrowed name.
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

/// Location of one stored file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoredBlock {
    pub(crate) addr: BlockAddr,
    pub(crate) birth: Generation,
    pub(crate) crc: u32,
}

impl StoredBlock {
    /// Returns the pointer for readers.
    pub(crate) fn ptr(&self) -> BlockPtr {
        BlockPtr {
            addr: self.addr,
            birth: self.birth,
            crc: self.crc,
        }
    }
}

/// Location of a page's contents that are already stored in reserved blocks, which a log record
/// refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlacedPage {
    pub(crate) addr: BlockAddr,
    pub(crate) crc: u32,
}

impl PlacedPage {
    /// Returns the pointer for readers. The block is born when a checkpoint takes it.
    pub(crate) fn ptr(&self) -> BlockPtr {
        BlockPtr {
            addr: self.addr,
            birth: Generation(0),
            crc: self.crc,
        }
    }
}

/// The decoded map of one window: the location of each of its 32 blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) blocks: [Option<StoredBlock>; WINDOW as usize],
}

impl Window {
    pub(crate) const EMPTY: Window = Window {
        blocks: [None; WINDOW as usize],
    };

    /// Returns the first file block of the window that contains `block`.
    pub(crate) fn start_of(block: u64) -> u64 {
        block & !(WINDOW - 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.iter().all(Option::is_none)
    }

    /// Returns the number of stored blocks.
    pub(crate) fn stored(&self) -> u64 {
        self.blocks.iter().flatten().count() as u64
    }

    /// Returns the runs of blocks that are contiguous in file and device and have one birth: (first
    /// block within the window, blocks).
    fn runs(&self) -> SmallVec<[(usize, usize); 8]> {
        let mut runs: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        let mut before: Option<StoredBlock> = None;
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
                invariant!(
                    false,
                    "{count} blocks from {start} on are a run, and not there"
                );
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
                *slot = Some(StoredBlock {
                    addr: BlockAddr(addr + i as u64),
                    birth,
                    crc: r.u32()?,
                });
            }
        }
        r.is_empty().then_some(window)
    }

    /// Returns the location of one block from an encoded window without decoding the rest: the
    /// lookup of the read path. `Err` if the record is malformed.
    pub(crate) fn find(bytes: &[u8], index: usize) -> Result<Option<StoredBlock>, MalformedRecord> {
        Self::find_inner(bytes, index).ok_or(MalformedRecord)
    }

    fn find_inner(bytes: &[u8], index: usize) -> Option<Option<StoredBlock>> {
        Some(match Self::span_inner(bytes, index)? {
            Some(span) => Some(span.get(0)?),
            None => None,
        })
    }

    /// Returns the blocks from this one on, itself included, that are contiguous in file and device
    /// and have one birth. `None` if it is not stored, `Err` if the record is malformed.
    pub(crate) fn span(bytes: &[u8], index: usize) -> Result<Option<Span<'_>>, MalformedRecord> {
        Self::span_inner(bytes, index).ok_or(MalformedRecord)
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
    /// Returns the number of blocks: one for each checksum.
    pub(crate) fn len(&self) -> u64 {
        self.crcs.len() as u64 / 4
    }

    /// Returns the location of one of the blocks.
    pub(crate) fn get(&self, index: usize) -> Option<StoredBlock> {
        let crc = self.crcs.get(index * 4..)?.first_chunk::<4>()?;
        Some(StoredBlock {
            addr: BlockAddr(self.addr.0.checked_add(index as u64)?),
            birth: self.birth,
            crc: u32::from_le_bytes(*crc),
        })
    }
}

/// A record that cannot be decoded although its checksum is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedRecord;

/// Returns the number of blocks that `size` bytes extend over.
pub(crate) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(weir_base::BLOCK_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    /// Returns a random valid inode.
    fn any_inode(rng: &SeededRng) -> InodeRec {
        let time = || Time {
            secs: rng.next_u64() as i64,
            nanos: rng.below(1_000_000_000) as u32,
        };
        let word = || rng.next_u64() >> rng.below(64);
        let kind = FileKind::from_number(1 + rng.below(7) as u8).unwrap();
        let mut rec = InodeRec {
            mode: rng.below(0o10000) as u16,
            nlink: word() as u32,
            uid: word() as u32,
            gid: word() as u32,
            blocks: word(),
            change: word(),
            flags: rng.next_u64() as u16 & (flag::ACL | flag::XATTRS | flag::STREAMS),
            dos: rng.next_u64() as u16 & DOS_ATTRIBUTES,
            tree: rng.below(3) as u32,
            atime: time(),
            mtime: time(),
            ctime: time(),
            btime: time(),
            ..InodeRec::new(kind, 0, Time::EPOCH)
        };
        match kind {
            FileKind::Directory => (rec.entries, rec.parent) = (word(), Ino(word())),
            FileKind::Block | FileKind::Char => rec.rdev = (word() as u32, word() as u32),
            FileKind::Regular if rng.below(3) == 0 => {
                (rec.flags, rec.parent) = (rec.flags | flag::STREAM, Ino(word()));
            }
            FileKind::Regular if rng.below(2) == 0 => {
                rec.verifier = Some(rng.below(3).to_le_bytes());
            }
            _ => {}
        }
        if kind != FileKind::Directory {
            rec.size = word();
        }
        rec
    }

    #[test]
    fn inodes_round_trip() {
        let rng = SeededRng::new(5);
        for _ in 0..5000 {
            let rec = any_inode(&rng);
            let mut out = Vec::new();
            rec.encode(&mut out);
            let len = InodeRec::length(out[0]).unwrap();
            assert_eq!((out.len(), rec.tree > 0), (len, len > InodeRec::LEN));
            assert_eq!(InodeRec::decode(&out), Some(rec));
            assert_eq!(InodeRec::decode(&out[..len - 1]), None);
            // Every other form is refused, or is another inode: none has two forms.
            let at = rng.below(len as u64) as usize;
            out[at] ^= 1 << rng.below(8);
            if let Some(other) = InodeRec::decode(&out) {
                let mut again = Vec::new();
                other.encode(&mut again);
                assert_eq!(again, out);
            }
            out[0] = 1;
            assert_eq!(InodeRec::decode(&out), None, "of an earlier version");
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
                    *slot = Some(StoredBlock {
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

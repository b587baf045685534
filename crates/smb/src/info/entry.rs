//! Encoding of information about files (MS-FSCC §2.4) and file systems (§2.5).

use crate::info::attributes::NetworkOpenInfo;
use crate::open::session::{File, Open};
use crate::proto::status::Status;
use std::sync::atomic::Ordering;
use weir_auth::domains::SidMap;
use weir_auth::wire::{Put, filetime};
use weir_base::BLOCK_SIZE;
use weir_vfs::volume::{Attr, DIRECTORY_LINK, FileKind, QuotaState, StatFs};

/// File attributes (§2.6).
#[allow(missing_docs)]
pub mod attributes {
    pub const READONLY: u32 = 0x1;
    pub const HIDDEN: u32 = 0x2;
    pub const SYSTEM: u32 = 0x4;
    pub const DIRECTORY: u32 = 0x10;
    pub const ARCHIVE: u32 = 0x20;
    pub const NORMAL: u32 = 0x80;
    pub const TEMPORARY: u32 = 0x100;
    pub const SPARSE: u32 = 0x200;
    pub const REPARSE_POINT: u32 = 0x400;
    /// Attributes that a client may set: those above that are stored, and NOT_CONTENT_INDEXED.
    pub const SETTABLE: u32 = READONLY | HIDDEN | SYSTEM | ARCHIVE | 0x2000;
}

/// IO_REPARSE_TAG_SYMLINK (§2.1.2.1).
pub const TAG_SYMLINK: u32 = 0xa000_000c;
/// IO_REPARSE_TAG_NFS: what a client of NFS would make (§2.1.2.6).
pub const TAG_NFS: u32 = 0x8000_0014;

/// Returns the tag of a reparse point; 0: it is none.
fn tag(attr: &Attr) -> u32 {
    match attr.kind {
        FileKind::Symlink => TAG_SYMLINK,
        _ => 0,
    }
}

/// Returns true if clients are to take it for a directory: it is one, or a link that was made from
/// one, as clients make links to directories.
pub fn shows_directory(attr: &Attr) -> bool {
    match attr.kind {
        FileKind::Directory => true,
        FileKind::Symlink => attr.dos & DIRECTORY_LINK != 0,
        _ => false,
    }
}

/// The attributes of a file as SMB has them.
pub fn dos(attr: &Attr) -> u32 {
    let stored = u32::from(attr.dos) & (attributes::SETTABLE | attributes::SPARSE);
    match (attr.kind, stored) {
        (FileKind::Directory, stored) => stored | attributes::DIRECTORY,
        (FileKind::Symlink, stored) if shows_directory(attr) => {
            stored | attributes::REPARSE_POINT | attributes::DIRECTORY
        }
        (FileKind::Symlink, stored) => stored | attributes::REPARSE_POINT,
        (_, 0) => attributes::NORMAL,
        (_, stored) => stored,
    }
}

/// Bytes that are allocated to a file, in whole blocks.
pub fn allocated(attr: &Attr) -> u64 {
    attr.used.next_multiple_of(BLOCK_SIZE as u64)
}

/// Numbers of information about files that can be asked for (§2.4).
pub mod class {
    #![allow(missing_docs)]
    pub const BASIC: u8 = 4;
    pub const STANDARD: u8 = 5;
    pub const INTERNAL: u8 = 6;
    pub const EA: u8 = 7;
    pub const ACCESS: u8 = 8;
    pub const RENAME: u8 = 10;
    pub const LINK: u8 = 11;
    pub const DISPOSITION: u8 = 13;
    pub const POSITION: u8 = 14;
    pub const FULL_EA: u8 = 15;
    pub const MODE: u8 = 16;
    pub const ALIGNMENT: u8 = 17;
    pub const ALL: u8 = 18;
    pub const ALLOCATION: u8 = 19;
    pub const END_OF_FILE: u8 = 20;
    pub const ALTERNATE_NAME: u8 = 21;
    pub const STREAM: u8 = 22;
    pub const COMPRESSION: u8 = 28;
    pub const NETWORK_OPEN: u8 = 34;
    pub const ATTRIBUTE_TAG: u8 = 35;
    pub const NORMALIZED_NAME: u8 = 48;
    pub const ID: u8 = 59;
    pub const DISPOSITION_EX: u8 = 64;
    pub const RENAME_EX: u8 = 65;
    pub const POSIX: u8 = 100;
}

fn put_basic(out: &mut Vec<u8>, attr: &Attr) {
    let shown = NetworkOpenInfo::from_attr(attr);
    shown.times.iter().for_each(|time| out.put_u64(*time));
    out.put_u32(shown.attributes);
    out.put_u32(0);
}

fn put_standard(out: &mut Vec<u8>, attr: &Attr, deleting: bool) {
    let shown = NetworkOpenInfo::from_attr(attr);
    out.put_u64(shown.allocated);
    out.put_u64(shown.size);
    // A file that is to be deleted has a link less (MS-FSA §2.1.5.12.27).
    out.put_u32(
        attr.nlink
            .saturating_sub(u32::from(deleting))
            .max(u32::from(!deleting)),
    );
    out.put_u8(u8::from(deleting));
    out.put_u8(u8::from(shows_directory(attr)));
    out.put_u16(0);
}

fn put_name(out: &mut Vec<u8>, path: &str, root: &str) {
    let at = out.len();
    out.put_u32(0);
    out.put_utf16(root);
    out.put_utf16(path);
    let len = (out.len() - at - 4) as u32;
    out.set_u32(at, len);
}

/// Writes what POSIX extensions say of a file beside what SMB does: links, the kind of reparse
/// point, mode, owner and group (POSIX-SMB2 §2.2.14.2.16).
pub fn put_posix(out: &mut Vec<u8>, attr: &Attr, known: &SidMap) {
    // Its kind is in the attributes, and is said here only where those have none: then above the
    // permissions. Linux before 6.13 takes for permissions all that is here.
    let kind: u32 = match attr.kind {
        FileKind::Regular | FileKind::Directory | FileKind::Symlink => 0,
        FileKind::Char => 3,
        FileKind::Block => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
    };
    out.put_u32(attr.nlink);
    out.put_u32(tag(attr));
    out.put_u32(attr.mode & 0o7777 | kind << 12);
    known.user(attr.uid).put(out);
    known.group(attr.gid).put(out);
}

/// FilePosixInformation (POSIX-FSCC §2.3.1.1), in an entry up to the name.
fn put_all_posix(out: &mut Vec<u8>, attr: &Attr, known: &SidMap) {
    let shown = NetworkOpenInfo::from_attr(attr);
    shown.times.iter().for_each(|time| out.put_u64(*time));
    out.put_u64(shown.size);
    out.put_u64(shown.allocated);
    out.put_u32(shown.attributes);
    out.put_u64(attr.ino.0);
    // The device, which is the share.
    out.put_u32(0);
    out.put_u32(0);
    put_posix(out, attr, known);
}

/// Writes a class of information about an open file. `deleting`: it is to be deleted; `eas`:
/// the bytes of its extended attributes; `known`: the domains.
///
/// # Errors
/// The class is not known.
pub fn put_file(
    out: &mut Vec<u8>,
    class: u8,
    (open, file): (&Open, &File),
    attr: &Attr,
    (deleting, eas): (bool, u32),
    known: &SidMap,
) -> Result<(), Status> {
    let path = || file.named.lock().path.clone();
    match class {
        class::BASIC => put_basic(out, attr),
        class::STANDARD => put_standard(out, attr, deleting),
        class::INTERNAL => out.put_u64(attr.ino.0),
        class::EA => out.put_u32(eas),
        class::MODE | class::ALIGNMENT => out.put_u32(0),
        class::ACCESS => out.put_u32(open.access),
        class::POSITION => out.put_u64(file.position.load(Ordering::Relaxed)),
        class::ALL => {
            put_basic(out, attr);
            put_standard(out, attr, deleting);
            out.put_u64(attr.ino.0);
            out.put_u32(eas);
            out.put_u32(open.access);
            out.put_u64(file.position.load(Ordering::Relaxed));
            out.put_u32(0);
            out.put_u32(0);
            put_name(out, &path(), "\\");
        }
        // There are no short names.
        class::ALTERNATE_NAME => return Err(Status::OBJECT_NAME_NOT_FOUND),
        // The caller has put them.
        class::STREAM => {}
        class::COMPRESSION => {
            out.put_u64(attr.size);
            out.put_u64(0);
        }
        class::NETWORK_OPEN => {
            NetworkOpenInfo::from_attr(attr).put(out);
            out.put_u32(0);
        }
        class::ATTRIBUTE_TAG => {
            out.put_u32(dos(attr));
            out.put_u32(tag(attr));
        }
        class::NORMALIZED_NAME => put_name(out, &path(), ""),
        class::ID => {
            out.put_u64(attr.fsid);
            out.put_u64(attr.ino.0);
            out.put_u64(0);
        }
        class::POSIX if file.posix => put_all_posix(out, attr, known),
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(())
}

/// FileFsControlInformation.
pub const FS_CONTROL: u8 = fs::CONTROL;

/// Numbers of information about file systems (§2.5).
mod fs {
    pub const VOLUME: u8 = 1;
    pub const SIZE: u8 = 3;
    pub const DEVICE: u8 = 4;
    pub const ATTRIBUTE: u8 = 5;
    pub const CONTROL: u8 = 6;
    pub const FULL_SIZE: u8 = 7;
    pub const OBJECT_ID: u8 = 8;
    pub const SECTOR_SIZE: u8 = 11;
    pub const POSIX: u8 = 100;
}

/// Attributes of file systems (§2.5.1): names keep their case, are Unicode, and are found in any.
const PRESERVES_CASE: u32 = 0x2;
const UNICODE: u32 = 0x4;
const HAS_ACLS: u32 = 0x8;
const VOLUME_QUOTAS: u32 = 0x20;
const SPARSE: u32 = 0x40;
const REPARSE_POINTS: u32 = 0x80;
/// Files have ids and extended attributes, and may share blocks.
const OBJECT_IDS: u32 = 0x1_0000;
const NAMED_STREAMS: u32 = 0x4_0000;
const EXTENDED_ATTRIBUTES: u32 = 0x80_0000;
const BLOCK_REFCOUNTING: u32 = 0x800_0000;

/// The least room in bytes that a class of information about file systems needs.
pub fn least_fs(class: u8) -> usize {
    match class {
        fs::VOLUME | fs::SIZE => 24,
        fs::DEVICE => 8,
        fs::ATTRIBUTE => 16,
        fs::CONTROL => 48,
        fs::FULL_SIZE => 32,
        fs::OBJECT_ID => 64,
        fs::SECTOR_SIZE => 28,
        fs::POSIX => 56,
        _ => 0,
    }
}

/// Space of a file system, as the caller has it.
#[derive(Clone, Copy, Debug)]
pub struct FsSpace {
    pub stat: StatFs,
    /// Bytes that the caller can use in all.
    pub total_for_caller: u64,
    pub quotas: QuotaState,
    /// Limits of users without a rule of their own, in bytes; 0: none.
    pub hard_bytes: u64,
    pub soft_bytes: u64,
}

/// Writes FileFsControlInformation (§2.5.2).
fn put_control(out: &mut Vec<u8>, space: &FsSpace) {
    const TRACK: u32 = 1;
    const ENFORCE: u32 = 2;
    const INCOMPLETE: u32 = 0x100;
    const REBUILDING: u32 = 0x200;
    let limit = |bytes| match bytes {
        0 => u64::MAX,
        bytes => bytes,
    };
    // Filtering of contents, which is not served.
    out.put_zeroes(24);
    out.put_u64(limit(space.soft_bytes));
    out.put_u64(limit(space.hard_bytes));
    out.put_u32(match space.quotas {
        QuotaState::Off => 0,
        QuotaState::Initializing => TRACK | INCOMPLETE | REBUILDING,
        QuotaState::On => TRACK | ENFORCE,
    });
    out.put_u32(0);
}

/// Returns the attributes of a file system (§2.5.1).
fn fs_attributes(space: &FsSpace) -> u32 {
    let names = PRESERVES_CASE | UNICODE | HAS_ACLS;
    let data = SPARSE | REPARSE_POINTS | OBJECT_IDS | NAMED_STREAMS;
    let quotas = match space.quotas {
        QuotaState::Off => 0,
        QuotaState::Initializing | QuotaState::On => VOLUME_QUOTAS,
    };
    names | data | quotas | EXTENDED_ATTRIBUTES | BLOCK_REFCOUNTING
}

/// Writes a class of information about the file system of `attr`, under the share's name.
///
/// # Errors
/// The class is not known.
pub fn put_fs(
    out: &mut Vec<u8>,
    class: u8,
    share: &str,
    attr: &Attr,
    space: &FsSpace,
) -> Result<(), Status> {
    const UNIT: u64 = BLOCK_SIZE as u64;
    let stat = &space.stat;
    match class {
        fs::VOLUME => {
            out.put_u64(filetime(attr.btime));
            // A serial number of 32 bits out of the identity.
            out.put_u32((attr.fsid ^ attr.fsid >> 32) as u32);
            let at = out.len();
            out.put_u32(0);
            out.put_u16(0);
            out.put_utf16(share);
            let len = (out.len() - at - 6) as u32;
            out.set_u32(at, len);
        }
        fs::SIZE => {
            out.put_u64(space.total_for_caller / UNIT);
            out.put_u64(stat.available / UNIT);
            out.put_u32(1);
            out.put_u32(UNIT as u32);
        }
        fs::DEVICE => {
            const DISK: u32 = 7;
            const MOUNTED: u32 = 0x20;
            out.put_u32(DISK);
            out.put_u32(MOUNTED);
        }
        fs::ATTRIBUTE => {
            out.put_u32(fs_attributes(space));
            out.put_u32(255);
            out.put_u32(8);
            // Clients look for this name before they use what it has.
            out.put_utf16("NTFS");
        }
        fs::CONTROL => put_control(out, space),
        fs::FULL_SIZE => {
            out.put_u64(space.total_for_caller / UNIT);
            out.put_u64(stat.available / UNIT);
            out.put_u64(stat.free / UNIT);
            out.put_u32(1);
            out.put_u32(UNIT as u32);
        }
        fs::OBJECT_ID => {
            out.put_u64(attr.fsid);
            out.put_zeroes(56);
        }
        fs::SECTOR_SIZE => {
            for _ in 0..4 {
                out.put_u32(UNIT as u32);
            }
            // Aligned, as a partition is.
            out.put_u32(3);
            out.put_u32(0);
            out.put_u32(0);
        }
        // FilePosixFsInformation (POSIX-FSCC §2.3.2.1).
        fs::POSIX => {
            out.put_u32(UNIT as u32);
            out.put_u32(UNIT as u32);
            for blocks in [stat.total, stat.free, stat.available] {
                out.put_u64(blocks / UNIT);
            }
            out.put_u64(stat.files);
            out.put_u64(stat.files_free);
            out.put_u64(attr.fsid);
        }
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(())
}

/// Numbers of information about the entries of a directory (§2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// FileDirectoryInformation.
    Directory,
    /// FileFullDirectoryInformation.
    Full,
    /// FileIdFullDirectoryInformation.
    IdFull,
    /// FileBothDirectoryInformation.
    Both,
    /// FileIdBothDirectoryInformation.
    IdBoth,
    /// FileNamesInformation.
    Names,
    /// FilePosixInformation.
    Posix,
}

impl Entry {
    /// The class of this number.
    pub fn from_class(class: u8) -> Option<Entry> {
        Some(match class {
            1 => Entry::Directory,
            2 => Entry::Full,
            3 => Entry::Both,
            12 => Entry::Names,
            37 => Entry::IdBoth,
            38 => Entry::IdFull,
            100 => Entry::Posix,
            _ => return None,
        })
    }

    /// Writes an entry; the distance to the next is 0. `known`: the domains.
    pub fn put(self, out: &mut Vec<u8>, name: &str, attr: &Attr, known: &SidMap) {
        let units = 2 * name.encode_utf16().count() as u32;
        out.put_u32(0);
        out.put_u32(0);
        if self == Entry::Posix {
            put_all_posix(out, attr, known);
        } else if self != Entry::Names {
            let shown = NetworkOpenInfo::from_attr(attr);
            shown.times.iter().for_each(|time| out.put_u64(*time));
            out.put_u64(shown.size);
            out.put_u64(shown.allocated);
            out.put_u32(shown.attributes);
        }
        out.put_u32(units);
        match self {
            Entry::Directory | Entry::Names | Entry::Posix => {}
            // EaSize: no EAs, or the tag of a reparse point (§2.4.8).
            Entry::Full => out.put_u32(tag(attr)),
            Entry::IdFull => {
                out.put_u32(tag(attr));
                out.put_u32(0);
                out.put_u64(attr.ino.0);
            }
            Entry::Both => {
                out.put_u32(tag(attr));
                out.put_zeroes(26);
            }
            Entry::IdBoth => {
                out.put_u32(tag(attr));
                out.put_zeroes(26);
                out.put_u16(0);
                out.put_u64(attr.ino.0);
            }
        }
        out.put_utf16(name);
    }
}

//! Attributes (RFC 8881 §5, RFC 7862 §12.2, RFC 8275, RFC 8276 §8.3): the supported ones, their
//! encoding, and their setting.
//!
//! Owners are numbers in decimal, as clients send and expect them under AUTH_SYS (RFC 7530 §5.9),
//! or names ([`crate::idmap`]). Every object has the same attributes, in the pseudo file system
//! too: clients assume that everything below a root supports the attributes of the root.

use super::args::Attrs;
use super::pseudo;
use super::referral::Referral;
use super::status::Status;
use super::types::{self, Bitmap};
use crate::idmap::Names;
use crate::rpc::xdr::{Put, Reader, padding};
use weir_base::limits::{MAX_FILE_SIZE, MAX_IO, MAX_LINKS, MAX_NAME};
use weir_base::{BLOCK_SIZE, Time};
use weir_vfs::acl::{Acl, Entry, MAX_ENTRIES, Principal, flags, mask};
use weir_vfs::grace::LEASE;
use weir_vfs::volume::{Attr, FileKind, SetAttr, SetTime, StatFs};

const SUPPORTED_ATTRS: u32 = 0;
const TYPE: u32 = 1;
const FH_EXPIRE_TYPE: u32 = 2;
const CHANGE: u32 = 3;
/// The length of a file.
pub const SIZE: u32 = 4;
const LINK_SUPPORT: u32 = 5;
const SYMLINK_SUPPORT: u32 = 6;
const NAMED_ATTR: u32 = 7;
const FSID: u32 = 8;
const UNIQUE_HANDLES: u32 = 9;
const LEASE_TIME: u32 = 10;
/// Error of an entry whose attributes could not be read.
pub const RDATTR_ERROR: u32 = 11;
/// The access control list.
pub const ACL: u32 = 12;
const ACLSUPPORT: u32 = 13;
const ARCHIVE: u32 = 14;
const CANSETTIME: u32 = 15;
const CASE_INSENSITIVE: u32 = 16;
const CASE_PRESERVING: u32 = 17;
const CHOWN_RESTRICTED: u32 = 18;
/// `filehandle`.
pub const FILEHANDLE: u32 = 19;
const FILEID: u32 = 20;
const FILES_AVAIL: u32 = 21;
const FILES_FREE: u32 = 22;
const FILES_TOTAL: u32 = 23;
/// Locations of a file system: none, except of one on another server.
pub const FS_LOCATIONS: u32 = 24;
const HIDDEN: u32 = 25;
const HOMOGENEOUS: u32 = 26;
const MAXFILESIZE: u32 = 27;
const MAXLINK: u32 = 28;
const MAXNAME: u32 = 29;
const MAXREAD: u32 = 30;
const MAXWRITE: u32 = 31;
const MODE: u32 = 33;
const NO_TRUNC: u32 = 34;
const NUMLINKS: u32 = 35;
const OWNER: u32 = 36;
const OWNER_GROUP: u32 = 37;
const QUOTA_AVAIL_HARD: u32 = 38;
const QUOTA_AVAIL_SOFT: u32 = 39;
const QUOTA_USED: u32 = 40;
const RAWDEV: u32 = 41;
const SPACE_AVAIL: u32 = 42;
const SPACE_FREE: u32 = 43;
const SPACE_TOTAL: u32 = 44;
const SPACE_USED: u32 = 45;
const SYSTEM: u32 = 46;
const TIME_ACCESS: u32 = 47;
const TIME_ACCESS_SET: u32 = 48;
const TIME_CREATE: u32 = 50;
const TIME_DELTA: u32 = 51;
const TIME_METADATA: u32 = 52;
const TIME_MODIFY: u32 = 53;
const TIME_MODIFY_SET: u32 = 54;
const MOUNTED_ON_FILEID: u32 = 55;
/// The access control list in its form since minor version 1, with flags of its own.
const DACL: u32 = 58;
/// Locations of a file system, with what each is good for.
pub const FS_LOCATIONS_INFO: u32 = 67;
const MODE_SET_MASKED: u32 = 74;
const SUPPATTR_EXCLCREAT: u32 = 75;
const FS_CHARSET_CAP: u32 = 76;
const CLONE_BLKSIZE: u32 = 77;
const CHANGE_ATTR_TYPE: u32 = 79;
const MODE_UMASK: u32 = 81;
const XATTR_SUPPORT: u32 = 82;
/// Time at which the holder of a delegation last read the file, or wrote it (RFC 9754 §5).
pub const TIME_DELEG_ACCESS: u32 = 84;
/// See [`TIME_DELEG_ACCESS`].
pub const TIME_DELEG_MODIFY: u32 = 85;
const OPEN_ARGUMENTS: u32 = 86;

/// Attributes of minor version 1.
const OF_1: Bitmap = Bitmap::from_numbers(&[
    SUPPORTED_ATTRS,
    TYPE,
    FH_EXPIRE_TYPE,
    CHANGE,
    SIZE,
    LINK_SUPPORT,
    SYMLINK_SUPPORT,
    NAMED_ATTR,
    FSID,
    UNIQUE_HANDLES,
    LEASE_TIME,
    RDATTR_ERROR,
    ACL,
    ACLSUPPORT,
    ARCHIVE,
    CANSETTIME,
    CASE_INSENSITIVE,
    CASE_PRESERVING,
    CHOWN_RESTRICTED,
    FILEHANDLE,
    FILEID,
    FILES_AVAIL,
    FILES_FREE,
    FILES_TOTAL,
    FS_LOCATIONS,
    HIDDEN,
    HOMOGENEOUS,
    MAXFILESIZE,
    MAXLINK,
    MAXNAME,
    MAXREAD,
    MAXWRITE,
    MODE,
    NO_TRUNC,
    NUMLINKS,
    OWNER,
    OWNER_GROUP,
    QUOTA_AVAIL_HARD,
    QUOTA_AVAIL_SOFT,
    QUOTA_USED,
    RAWDEV,
    SPACE_AVAIL,
    SPACE_FREE,
    SPACE_TOTAL,
    SPACE_USED,
    SYSTEM,
    TIME_ACCESS,
    TIME_ACCESS_SET,
    TIME_CREATE,
    TIME_DELTA,
    TIME_METADATA,
    TIME_MODIFY,
    TIME_MODIFY_SET,
    MOUNTED_ON_FILEID,
    DACL,
    FS_LOCATIONS_INFO,
    MODE_SET_MASKED,
    SUPPATTR_EXCLCREAT,
    FS_CHARSET_CAP,
]);
/// Attributes of minor version 2, including those of version 1.
const OF_2: Bitmap = OF_1.or(&Bitmap::from_numbers(&[
    CLONE_BLKSIZE,
    CHANGE_ATTR_TYPE,
    MODE_UMASK,
    XATTR_SUPPORT,
    TIME_DELEG_ACCESS,
    TIME_DELEG_MODIFY,
    OPEN_ARGUMENTS,
]));
/// First consecutive attributes that Linux asks of every object.
const FIRST: Bitmap = Bitmap::from_numbers(&[TYPE, CHANGE, SIZE, FSID]);
/// Consecutive attributes from MODE on that Linux asks of every object (`nfs4_fattr_bitmap`). The
/// last is [`MOUNTED_ON_FILEID`].
const SECOND: Bitmap = Bitmap::from_numbers(&[
    MODE,
    NUMLINKS,
    OWNER,
    OWNER_GROUP,
    RAWDEV,
    SPACE_USED,
    TIME_ACCESS,
    TIME_METADATA,
    TIME_MODIFY,
    MOUNTED_ON_FILEID,
]);
/// All attributes that Linux asks of every object, in two words.
const WHOLE: Bitmap = FIRST.or(&SECOND).or(&Bitmap::from_numbers(&[FILEID]));
const WHOLE_WORDS: u64 = match WHOLE.two_words() {
    Some([first, second]) => (first as u64) << 32 | second as u64,
    None => unreachable!(),
};
/// Options that OPEN supports (`open_arguments4`, RFC 9754 §3): `share_access` and `share_deny`,
/// the wishes that are respected (ANY_DELEG, NO_DELEG, CANCEL, DELEG_TIMESTAMPS,
/// OPEN_XOR_DELEGATION), claims (except those from before a restart of the client), ways of
/// creating.
const OPEN_TAKES: [Bitmap; 5] = [
    Bitmap::from_numbers(&[1, 2, 3]),
    Bitmap::from_numbers(&[0, 1, 2, 3]),
    Bitmap::from_numbers(&[3, 4, 5, 20, 21]),
    Bitmap::from_numbers(&[0, 1, 2, 4, 5]),
    Bitmap::from_numbers(&[0, 1, 2, 3]),
];
/// Attributes that can only be set.
const WRITE_ONLY: Bitmap = Bitmap::from_numbers(&[
    TIME_ACCESS_SET,
    TIME_MODIFY_SET,
    MODE_SET_MASKED,
    MODE_UMASK,
    TIME_DELEG_ACCESS,
    TIME_DELEG_MODIFY,
]);
/// Attributes that only the holder of a delegation sets.
const OF_HOLDER: Bitmap = Bitmap::from_numbers(&[TIME_DELEG_ACCESS, TIME_DELEG_MODIFY]);
/// Attributes that can be set.
const SETTABLE: Bitmap = Bitmap::from_numbers(&[
    SIZE,
    ACL,
    ARCHIVE,
    HIDDEN,
    MODE,
    OWNER,
    OWNER_GROUP,
    SYSTEM,
    TIME_ACCESS_SET,
    TIME_CREATE,
    TIME_MODIFY_SET,
    DACL,
    MODE_SET_MASKED,
    MODE_UMASK,
    TIME_DELEG_ACCESS,
    TIME_DELEG_MODIFY,
]);
/// Attributes of the volume's space and inodes.
const OF_VOLUME: Bitmap = Bitmap::from_numbers(&[
    FILES_AVAIL,
    FILES_FREE,
    FILES_TOTAL,
    QUOTA_AVAIL_HARD,
    QUOTA_AVAIL_SOFT,
    QUOTA_USED,
    SPACE_AVAIL,
    SPACE_FREE,
    SPACE_TOTAL,
]);
/// The access control list, in both forms.
const LISTS: Bitmap = Bitmap::from_numbers(&[ACL, DACL]);
/// Attributes that are bits of DOS attributes (MS-FSCC §2.6).
const DOS: [(u32, u16); 3] = [(ARCHIVE, 0x20), (HIDDEN, 0x2), (SYSTEM, 0x4)];

/// Attributes that change with the content.
const OF_CONTENT: Bitmap =
    Bitmap::from_numbers(&[CHANGE, SIZE, TIME_ACCESS, TIME_METADATA, TIME_MODIFY]);

/// Returns all attributes of a minor version.
pub fn supported(minor: u32) -> Bitmap {
    match minor {
        0 | 1 => OF_1,
        _ => OF_2,
    }
}

/// Returns true if the volume's space or inodes are asked for.
pub fn wants_volume(mask: &Bitmap) -> bool {
    mask.any(&OF_VOLUME)
}

/// Returns true if an attribute is asked for that the holder of a write delegation may know better.
pub fn of_content(mask: &Bitmap) -> bool {
    mask.any(&OF_CONTENT)
}

/// Returns true if a file's handle, its access control list or its volume must be read.
pub fn wants_more(mask: &Bitmap) -> bool {
    mask.contains(FILEHANDLE) || wants_list(mask) || wants_volume(mask)
}

/// Returns true if the access control list is asked for.
pub fn wants_list(mask: &Bitmap) -> bool {
    mask.any(&LISTS)
}

/// Returns true if `mask` has attributes that can only be set.
pub fn write_only(mask: &Bitmap) -> bool {
    mask.any(&WRITE_ONLY)
}

/// An object whose attributes are sent.
pub struct Object<'a> {
    /// The minor version, which decides which attributes are supported.
    pub minor: u32,
    /// The object's attributes in the volume.
    pub attr: &'a Attr,
    /// The file handle, for the attribute `filehandle`.
    pub handle: &'a [u8],
    /// File number of the directory that it covers, if it is the root of an export.
    pub covers: Option<u64>,
    /// Space and inodes of its volume, if they are asked for.
    pub space: Option<StatFs>,
    /// Its access control list, if that is asked for.
    pub acl: Option<Acl>,
    /// Resolves the names of users and groups; `None` to send numbers.
    pub names: Option<&'a Names<'a>>,
}

impl Object<'_> {
    /// Appends a `fattr4` with the supported attributes among `mask`.
    pub fn put(&self, mask: &Bitmap, out: &mut Vec<u8>) {
        let mut mask = mask.and(&supported(self.minor));
        if self.acl.is_none() {
            // The entries of a listing have no lists.
            mask = mask.minus(&LISTS);
        }
        if mask == WHOLE && self.names.is_none() {
            return self.put_whole(out);
        }
        mask.put(out);
        let start = out.len();
        out.put_u32(0);
        self.put_values(&mask, out);
        let len = (out.len() - start - 4) as u32;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Appends the values alone. `mask` has supported attributes only.
    pub fn put_values(&self, mask: &Bitmap, out: &mut Vec<u8>) {
        let a = self.attr;
        let space = self.space.unwrap_or(StatFs {
            total: 0,
            free: 0,
            available: 0,
            files: 0,
            files_free: 0,
        });
        let mut mask = *mask;
        if mask.starts_with(&FIRST, FSID) {
            mask = mask.minus(&FIRST);
            out.extend_from_slice(&self.first());
        }
        let second = self.names.is_none() && mask.is_all_from(&SECOND, MODE);
        if second {
            mask = mask.minus(&SECOND);
        }
        for number in mask.iter() {
            match number {
                SUPPORTED_ATTRS => supported(self.minor).put(out),
                TYPE => out.put_u32(kind(a.kind)),
                FH_EXPIRE_TYPE | RDATTR_ERROR => out.put_u32(0),
                ACL => put_acl(out, self.acl.as_ref(), self.names),
                DACL => {
                    // No flags: a directory's later changes are not inherited by existing objects.
                    out.put_u32(0);
                    put_acl(out, self.acl.as_ref(), self.names);
                }
                ARCHIVE | HIDDEN | SYSTEM => {
                    let bit = DOS.iter().find(|(n, _)| *n == number);
                    out.put_bool(bit.is_some_and(|(_, bit)| a.dos & bit != 0));
                }
                // ACL4_SUPPORT_ALLOW_ACL, ACL4_SUPPORT_DENY_ACL.
                ACLSUPPORT => out.put_u32(3),
                CHANGE => out.put_u64(a.change),
                SIZE => out.put_u64(a.size),
                LINK_SUPPORT | SYMLINK_SUPPORT | UNIQUE_HANDLES | CANSETTIME | CASE_PRESERVING
                | CHOWN_RESTRICTED | HOMOGENEOUS | NO_TRUNC | XATTR_SUPPORT => out.put_bool(true),
                NAMED_ATTR | CASE_INSENSITIVE => out.put_bool(false),
                FSID => {
                    out.put_u64(a.fsid);
                    out.put_u64(0);
                }
                LEASE_TIME => out.put_u32(LEASE.as_secs() as u32),
                FILEHANDLE => out.put_opaque(self.handle),
                FILEID => out.put_u64(a.ino.0),
                FILES_AVAIL | FILES_FREE => out.put_u64(space.files_free),
                FILES_TOTAL => out.put_u64(space.files),
                FS_LOCATIONS | FS_LOCATIONS_INFO => out.put_fixed(no_locations(number)),
                MAXFILESIZE => out.put_u64(MAX_FILE_SIZE),
                MAXLINK => out.put_u32(MAX_LINKS),
                MAXNAME => out.put_u32(MAX_NAME as u32),
                MAXREAD | MAXWRITE => out.put_u64(MAX_IO as u64),
                MODE => out.put_u32(a.mode & 0o7777),
                NUMLINKS => out.put_u32(a.nlink),
                OWNER => put_who(out, self.names, false, a.uid),
                OWNER_GROUP => put_who(out, self.names, true, a.gid),
                RAWDEV => {
                    out.put_u32(a.rdev.0);
                    out.put_u32(a.rdev.1);
                }
                // The owner's quotas are already taken into account.
                SPACE_AVAIL | QUOTA_AVAIL_HARD | QUOTA_AVAIL_SOFT => out.put_u64(space.available),
                QUOTA_USED => out.put_u64(space.total - space.free.min(space.total)),
                SPACE_FREE => out.put_u64(space.free),
                SPACE_TOTAL => out.put_u64(space.total),
                SPACE_USED => out.put_u64(a.used),
                TIME_ACCESS => types::put_time(out, a.atime),
                TIME_CREATE => types::put_time(out, a.btime),
                // Times have nanoseconds.
                TIME_DELTA => {
                    out.put_u64(0);
                    out.put_u32(1);
                }
                TIME_METADATA => types::put_time(out, a.ctime),
                TIME_MODIFY => types::put_time(out, a.mtime),
                MOUNTED_ON_FILEID => out.put_u64(self.covers.unwrap_or(a.ino.0)),
                SUPPATTR_EXCLCREAT => {
                    let all = SETTABLE.and(&supported(self.minor));
                    all.minus(&OF_HOLDER).put(out);
                }
                // FSCHARSET_CAP4_CONTAINS_NON_UTF8 (RFC 8881 §14.4): names may be any bytes.
                FS_CHARSET_CAP => out.put_u32(1),
                CLONE_BLKSIZE => out.put_u32(BLOCK_SIZE as u32),
                OPEN_ARGUMENTS => OPEN_TAKES.iter().for_each(|map| map.put(out)),
                // NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR (RFC 7862 §12.2.3).
                CHANGE_ATTR_TYPE => out.put_u32(0),
                // Attributes that can only be set were refused earlier.
                _ => {}
            }
        }
        if second {
            self.put_second(out);
        }
    }

    /// Appends [`WHOLE`], with the bitmap and the length, in one piece. Nearly all requests of
    /// clients are for it.
    fn put_whole(&self, out: &mut Vec<u8>) {
        const HEAD: usize = 16;
        const VALUES: usize = 36 + 8 + 8 + 2 * 16 + 60;
        let a = self.attr;
        let mut b = [0; HEAD + VALUES];
        b[3] = 2;
        b[4..12].copy_from_slice(&WHOLE_WORDS.to_be_bytes());
        b[16..52].copy_from_slice(&self.first());
        b[52..60].copy_from_slice(&a.ino.0.to_be_bytes());
        b[60..68].copy_from_slice(&self.mode_and_links().to_be_bytes());
        let mut at = 68;
        for number in [a.uid, a.gid] {
            let (text, len) = decimal(number);
            b[at..at + 16].copy_from_slice(&text);
            at += len;
        }
        b[at..at + 60].copy_from_slice(&self.last());
        at += 60;
        b[12..HEAD].copy_from_slice(&((at - HEAD) as u32).to_be_bytes());
        out.extend_from_slice(b.get(..at).unwrap_or_default());
    }

    /// Encodes [`FIRST`] in one piece.
    fn first(&self) -> [u8; 36] {
        let a = self.attr;
        let mut b = [0; 36];
        b[0..4].copy_from_slice(&kind(a.kind).to_be_bytes());
        b[4..12].copy_from_slice(&a.change.to_be_bytes());
        b[12..20].copy_from_slice(&a.size.to_be_bytes());
        b[20..28].copy_from_slice(&a.fsid.to_be_bytes());
        b
    }

    fn mode_and_links(&self) -> u64 {
        u64::from(self.attr.mode & 0o7777) << 32 | u64::from(self.attr.nlink)
    }

    /// Appends [`SECOND`]; everything but the owners is encoded in one piece.
    fn put_second(&self, out: &mut Vec<u8>) {
        out.put_u64(self.mode_and_links());
        put_number(out, self.attr.uid);
        put_number(out, self.attr.gid);
        out.extend_from_slice(&self.last());
    }

    /// Encodes the attributes behind the owners.
    fn last(&self) -> [u8; 60] {
        let a = self.attr;
        let mut b = [0; 60];
        b[0..4].copy_from_slice(&a.rdev.0.to_be_bytes());
        b[4..8].copy_from_slice(&a.rdev.1.to_be_bytes());
        b[8..16].copy_from_slice(&a.used.to_be_bytes());
        b[16..28].copy_from_slice(&types::wire_time(a.atime));
        b[28..40].copy_from_slice(&types::wire_time(a.ctime));
        b[40..52].copy_from_slice(&types::wire_time(a.mtime));
        b[52..60].copy_from_slice(&self.covers.unwrap_or(a.ino.0).to_be_bytes());
        b
    }
}

/// Appends a user or group by its name, or by its number.
fn put_who(out: &mut Vec<u8>, names: Option<&Names<'_>>, group: bool, number: u32) {
    match names.and_then(|names| names.name(group, number)) {
        Some(name) => out.put_opaque(&name),
        None => put_number(out, number),
    }
}

/// Appends the number of a user or group, in decimal.
fn put_number(out: &mut Vec<u8>, number: u32) {
    let (text, len) = decimal(number);
    out.extend_from_slice(text.get(..len).unwrap_or_default());
}

/// Encodes a number in decimal as a string: length, digits, padding. Returns it with its length in
/// bytes.
fn decimal(mut number: u32) -> ([u8; 16], usize) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let digits = digits.get(at..).unwrap_or_default();
    let mut b = [0; 16];
    b[0..4].copy_from_slice(&(digits.len() as u32).to_be_bytes());
    b[4..4 + digits.len()].copy_from_slice(digits);
    (b, 4 + digits.len() + padding(digits.len()))
}

/// `nfsace4` (RFC 8881 §6.2.1): flag ACE4_IDENTIFIER_GROUP.
const IDENTIFIER_GROUP: u32 = 0x40;

fn put_acl(out: &mut Vec<u8>, acl: Option<&Acl>, names: Option<&Names<'_>>) {
    let entries = acl.map_or(&[][..], |acl| &acl.0);
    out.put_u32(entries.len() as u32);
    for entry in entries {
        out.put_u32(u32::from(!entry.allows));
        let group = match entry.who {
            Principal::Group | Principal::NamedGroup(_) => IDENTIFIER_GROUP,
            _ => 0,
        };
        out.put_u32(group | u32::from(entry.flags));
        out.put_u32(entry.mask);
        match entry.who {
            Principal::Owner => out.put_opaque(b"OWNER@"),
            Principal::Group => out.put_opaque(b"GROUP@"),
            Principal::Everyone => out.put_opaque(b"EVERYONE@"),
            Principal::User(id) => put_who(out, names, false, id),
            Principal::NamedGroup(id) => put_who(out, names, true, id),
        }
    }
}

/// Decodes an access control list. Entries that audit are refused.
fn acl(r: &mut Reader<'_>, names: &Names<'_>) -> Result<Acl, Status> {
    let xdr = |_| Status::BadXdr;
    let count = r.u32().map_err(xdr)?;
    if count as usize > MAX_ENTRIES {
        return Err(Status::NoSpc);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let (kind, flags, mask) = (
            r.u32().map_err(xdr)?,
            r.u32().map_err(xdr)?,
            r.u32().map_err(xdr)?,
        );
        let name = r.string().map_err(xdr)?;
        let allows = match kind {
            0 => true,
            1 => false,
            _ => return Err(Status::AttrNotSupp),
        };
        let inherits = u32::from(flags::ALL);
        if flags & !(IDENTIFIER_GROUP | inherits) != 0 || mask & !mask::ALL != 0 {
            return Err(Status::Inval);
        }
        let who = match name {
            b"OWNER@" => Principal::Owner,
            b"GROUP@" => Principal::Group,
            b"EVERYONE@" => Principal::Everyone,
            name if flags & IDENTIFIER_GROUP != 0 => Principal::NamedGroup(who(name, true, names)?),
            name => Principal::User(who(name, false, names)?),
        };
        entries.push(Entry {
            allows,
            who,
            mask,
            flags: (flags & inherits) as u8,
        });
    }
    Ok(Acl(entries))
}

/// Returns the `nfs_ftype4` of a kind.
fn kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Block => 3,
        FileKind::Char => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Appends the attributes of an entry that cannot be read: the error, if it is asked for.
pub fn put_unreadable(mask: &Bitmap, out: &mut Vec<u8>) {
    let error = Bitmap::from_numbers(&[RDATTR_ERROR]);
    let sent = mask.and(&error);
    sent.put(out);
    match sent.is_empty() {
        true => out.put_u32(0),
        false => {
            out.put_u32(4);
            out.put_u32(Status::Io as u32);
        }
    }
}

/// Attributes of a file system on another server (§11.4.1).
pub struct Absent<'a> {
    /// File number of the directory that the file system would cover.
    pub number: u64,
    /// The servers that have it, and its paths there.
    pub referral: &'a Referral,
    /// Value of RDATTR_ERROR: OK, or MOVED if the client does not ask for the locations.
    pub error: Status,
}

/// Attributes that a file system on another server has (RFC 8881 §11.3).
const OF_ABSENT: Bitmap = Bitmap::from_numbers(&[
    FSID,
    RDATTR_ERROR,
    FS_LOCATIONS,
    MOUNTED_ON_FILEID,
    FS_LOCATIONS_INFO,
]);

/// Returns the value of one of the attributes of locations, without any.
fn no_locations(number: u32) -> &'static [u8] {
    if number == FS_LOCATIONS {
        // No path, no locations.
        &[0; 8]
    } else {
        // No flags and no time either.
        &[0; 16]
    }
}

/// Returns true if the locations of a file system are asked for.
pub fn wants_locations(mask: &Bitmap) -> bool {
    mask.contains(FS_LOCATIONS) || mask.contains(FS_LOCATIONS_INFO)
}

impl Absent<'_> {
    /// Returns true if it has all of these attributes.
    pub fn has_all(mask: &Bitmap) -> bool {
        mask.within(&OF_ABSENT)
    }

    /// Appends a `fattr4` with those attributes of `mask` that it has.
    pub fn put(&self, mask: &Bitmap, out: &mut Vec<u8>) {
        let mask = mask.and(&OF_ABSENT);
        let mut values = Vec::new();
        self.put_values(&mask, &mut values);
        mask.put(out);
        out.put_opaque(&values);
    }

    /// Appends the values alone. `mask` has only attributes that it has.
    pub fn put_values(&self, mask: &Bitmap, out: &mut Vec<u8>) {
        for number in mask.iter() {
            match number {
                // An identifier that no other file system has.
                FSID => {
                    out.put_u64(pseudo::FSID);
                    out.put_u64(self.number);
                }
                RDATTR_ERROR => out.put_u32(self.error as u32),
                FS_LOCATIONS => self.referral.put(out),
                MOUNTED_ON_FILEID => out.put_u64(self.number),
                FS_LOCATIONS_INFO => self.referral.put_info(out),
                _ => {}
            }
        }
    }
}

/// Decoded attributes to set.
#[derive(Clone, Copy, Debug, Default)]
pub struct New {
    /// The attributes that do not depend on the present ones.
    pub set: SetAttr,
    /// MODE_SET_MASKED: value, and the bits of the mode to set.
    pub masked: Option<(u32, u32)>,
    /// Value, and the bits of the DOS attributes to set.
    dos: (u16, u16),
    /// Numbers of the attributes to set.
    pub mask: Bitmap,
    /// Times at which the holder of a delegation last read and wrote the file.
    pub held: (Option<Time>, Option<Time>),
    /// Position of the access control list among the values.
    list: Option<usize>,
}

impl New {
    /// Decodes attributes to set.
    ///
    /// # Errors
    /// INVAL for attributes that cannot be set, ATTRNOTSUPP, BADXDR, BADOWNER.
    pub fn decode(minor: u32, attrs: &Attrs<'_>, names: &Names<'_>) -> Result<New, Status> {
        let mask = attrs.mask;
        if !mask.within(&supported(minor)) {
            return Err(Status::AttrNotSupp);
        }
        let twice = (mask.contains(MODE) && mask.contains(MODE_UMASK))
            || (mask.contains(ACL) && mask.contains(DACL));
        if !mask.within(&SETTABLE) || twice {
            return Err(Status::Inval);
        }
        let mut r = Reader::new(attrs.values);
        let mut new = New {
            mask,
            ..New::default()
        };
        let set = &mut new.set;
        let xdr = |_| Status::BadXdr;
        if mask.contains(SIZE) {
            set.size = Some(r.u64().map_err(xdr)?);
        }
        if mask.contains(ACL) {
            new.list = Some(attrs.values.len() - r.rest().len());
            acl(&mut r, names)?;
        }
        dos_bit(&mut r, &mask, ARCHIVE, &mut new.dos)?;
        dos_bit(&mut r, &mask, HIDDEN, &mut new.dos)?;
        if mask.contains(MODE) {
            set.mode = Some(mode(r.u32().map_err(xdr)?)?);
        }
        if mask.contains(OWNER) {
            set.uid = Some(who(r.string().map_err(xdr)?, false, names)?);
        }
        if mask.contains(OWNER_GROUP) {
            set.gid = Some(who(r.string().map_err(xdr)?, true, names)?);
        }
        dos_bit(&mut r, &mask, SYSTEM, &mut new.dos)?;
        if mask.contains(TIME_ACCESS_SET) {
            set.atime = set_time(&mut r)?;
        }
        if mask.contains(TIME_CREATE) {
            set.btime = Some(valid(types::time(&mut r).map_err(xdr)?)?);
        }
        if mask.contains(TIME_MODIFY_SET) {
            set.mtime = set_time(&mut r)?;
        }
        if mask.contains(DACL) {
            if r.u32().map_err(xdr)? != 0 {
                // None is kept.
                return Err(Status::AttrNotSupp);
            }
            new.list = Some(attrs.values.len() - r.rest().len());
            acl(&mut r, names)?;
        }
        if mask.contains(MODE_SET_MASKED) {
            let (value, bits) = (r.u32().map_err(xdr)?, r.u32().map_err(xdr)?);
            new.masked = Some((mode(value)?, mode(bits)?));
        }
        if mask.contains(MODE_UMASK) {
            let (value, umask) = (r.u32().map_err(xdr)?, r.u32().map_err(xdr)?);
            new.set.mode = Some(mode(value)?);
            new.set.umask = umask & 0o777;
        }
        for (number, time) in [
            (TIME_DELEG_ACCESS, &mut new.held.0),
            (TIME_DELEG_MODIFY, &mut new.held.1),
        ] {
            if mask.contains(number) {
                *time = Some(valid(types::time(&mut r).map_err(xdr)?)?);
            }
        }
        match r.rest().is_empty() {
            true => Ok(new),
            false => Err(Status::BadXdr),
        }
    }

    /// Returns the access control list to set.
    ///
    /// # Errors
    /// BADOWNER if a name is not known any more; other errors were found by [`New::decode`].
    pub fn list(&self, attrs: &Attrs<'_>, names: &Names<'_>) -> Result<Option<Acl>, Status> {
        let values = self.list.and_then(|at| attrs.values.get(at..));
        values
            .map(|values| acl(&mut Reader::new(values), names))
            .transpose()
    }

    /// Decodes the attributes of a new file.
    ///
    /// # Errors
    /// As [`New::decode`]; INVAL for the times of a delegation.
    pub fn decode_for_creation(
        minor: u32,
        attrs: &Attrs<'_>,
        names: &Names<'_>,
    ) -> Result<New, Status> {
        match () {
            () if minor > 1 && attrs.mask.any(&OF_HOLDER) => Err(Status::Inval),
            () => New::decode(minor, attrs, names),
        }
    }

    /// Returns true if it sets anything but a list and the times of a delegation.
    pub fn sets_more(&self) -> bool {
        !self.mask.minus(&LISTS).minus(&OF_HOLDER).is_empty()
    }

    /// Returns true if it sets times that only the holder of a delegation sets.
    pub fn is_of_holder(&self) -> bool {
        self.mask.any(&OF_HOLDER)
    }

    /// Returns true if the present mode or DOS attributes are needed.
    pub fn needs_old(&self) -> bool {
        self.masked.is_some() || self.dos.1 != 0
    }

    /// Combines the attributes to set with the present mode `old` and DOS attributes `dos`.
    pub fn combine_with(&self, (old, dos): (u32, u16)) -> SetAttr {
        let masked = self.masked.map(|(value, bits)| old & !bits | value & bits);
        let (value, bits) = self.dos;
        SetAttr {
            mode: self.set.mode.or(masked),
            dos: (bits != 0).then_some(dos & !bits | value),
            ..self.set
        }
    }
}

/// Decodes one of the DOS attributes, if it is in `mask`, into the values and the bits to set.
fn dos_bit(
    r: &mut Reader<'_>,
    mask: &Bitmap,
    number: u32,
    dos: &mut (u16, u16),
) -> Result<(), Status> {
    let known = DOS.iter().find(|(n, _)| *n == number);
    if let Some((_, bit)) = known.filter(|_| mask.contains(number)) {
        let on = r.bool().map_err(|_| Status::BadXdr)?;
        *dos = (if on { dos.0 | bit } else { dos.0 }, dos.1 | bit);
    }
    Ok(())
}

fn mode(mode: u32) -> Result<u32, Status> {
    match mode & !0o7777 {
        0 => Ok(mode),
        _ => Err(Status::Inval),
    }
}

fn valid(t: Time) -> Result<Time, Status> {
    match t.nanos {
        0..1_000_000_000 => Ok(t),
        _ => Err(Status::Inval),
    }
}

fn set_time(r: &mut Reader<'_>) -> Result<SetTime, Status> {
    let xdr = |_| Status::BadXdr;
    match r.u32().map_err(xdr)? {
        0 => Ok(SetTime::Server),
        1 => Ok(SetTime::Client(valid(types::time(r).map_err(xdr)?)?)),
        _ => Err(Status::BadXdr),
    }
}

/// Returns the number of a user or group that a client names.
fn who(text: &[u8], group: bool, names: &Names<'_>) -> Result<u32, Status> {
    if text.is_empty() {
        return Err(Status::Inval);
    }
    names.number(group, text).ok_or(Status::BadOwner)
}

#[cfg(test)]
mod tests;

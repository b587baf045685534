//! What the callers of a volume see: attributes, requests, results and errors.
//!
//! Two ideas shape these types.
//!
//! **Operations do not wait.** An operation is a plain function over memory. If it needs a block that is not there, or
//! the engine is short of something, it changes nothing and returns [`Stop`]; the caller waits and runs it again from
//! the start. So no lock is ever held over I/O, a cached operation costs no allocation for a future, and cancelling a
//! request is always safe.
//!
//! **An effect and its durability are two events.** A mutation is visible when its function returns, and durable when
//! the intent log has reached [`Done::lsn`]. The server holds the reply to a client until then.

use smallvec::SmallVec;
use std::ops::Range;
use weir_base::{BLOCK_SIZE, Ino, Lsn, Time};
use weir_store::{BlockPtr, Frame};

/// What an inode is. The numbers are those of RFC 1813 `ftype3` and of the
/// on-disk format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file: RFC 1813 `NF3REG`.
    Regular = 1,
    /// Directory: RFC 1813 `NF3DIR`.
    Directory = 2,
    /// Block special device: RFC 1813 `NF3BLK`.
    Block = 3,
    /// Character special device: RFC 1813 `NF3CHR`.
    Char = 4,
    /// Symbolic link: RFC 1813 `NF3LNK`.
    Symlink = 5,
    /// Socket: RFC 1813 `NF3SOCK`.
    Socket = 6,
    /// Named pipe: RFC 1813 `NF3FIFO`.
    Fifo = 7,
}

impl FileKind {
    /// The kind with this number, if there is one.
    pub fn from_number(n: u8) -> Option<FileKind> {
        Some(match n {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::Block,
            4 => FileKind::Char,
            5 => FileKind::Symlink,
            6 => FileKind::Socket,
            7 => FileKind::Fifo,
            _ => return None,
        })
    }
}

/// Attributes of an inode at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// File type, RFC 1813 `ftype3`.
    pub kind: FileKind,
    /// Permission and special bits: the low 12 bits of the POSIX mode.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
    /// Size of the content in bytes.
    pub size: u64,
    /// Bytes of storage used: exact at each checkpoint, an upper
    /// estimate for what was written since.
    pub used: u64,
    /// Device numbers (major, minor) of block and character devices.
    pub rdev: (u32, u32),
    /// File-system ID: differs between volumes, and between a volume and its snapshots.
    pub fsid: u64,
    /// Inode number, unique in the volume.
    pub ino: Ino,
    /// Last access; kept in memory only, so it may fall back after a restart.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of content or attributes; strictly increases.
    pub ctime: Time,
    /// Time of creation; a client may set it.
    pub btime: Time,
    /// DOS attributes, of [`DOS_ATTRIBUTES`](crate::DOS_ATTRIBUTES).
    pub dos: u16,
    /// Greater after every change of content or attributes, also if that change, or another since, has been lost by a
    /// crash or undone by a revert: one value never names two states of the inode.
    pub change: u64,
    /// What decides who may do what with it.
    pub guard: Guard,
}

/// What decides who may do what with an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guard {
    /// Its mode.
    #[default]
    Mode,
    /// Its access control list, which has to be read.
    Acl,
    /// Its access control list, which grants the caller this: bits of NFSv4's access mask. The volume itself never says so.
    Granted(u32),
}

/// How a time stamp is to be set (RFC 1813 `set_atime`, `set_mtime`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetTime {
    /// Leave as it is.
    #[default]
    Keep,
    /// Set to the server's time.
    Server,
    /// Set to this time.
    Client(Time),
}

/// Attributes to set; `None` and [`SetTime::Keep`] leave what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission and special bits; bits above the low 12 are ignored.
    pub mode: Option<u32>,
    /// Bits that the mode of what is made is without, unless its directory says otherwise. The volume itself ignores it.
    pub umask: u32,
    /// User ID of the new owner.
    pub uid: Option<u32>,
    /// Group ID of the new owner.
    pub gid: Option<u32>,
    /// Size in bytes (regular files only).
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: SetTime,
    /// Time of the last change of the content.
    pub mtime: SetTime,
    /// Change time: this one instead of the server's. What is changed later has a later one all the same.
    pub ctime: Option<Time>,
    /// Time of creation to set.
    pub btime: Option<Time>,
    /// DOS attributes; bits that are none of [`DOS_ATTRIBUTES`](crate::DOS_ATTRIBUTES) are ignored.
    pub dos: Option<u16>,
}

/// Effect of a hole that reaches behind the end of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// The size stays.
    Keep,
    /// The file ends where the hole does.
    Grow,
}

/// What is searched for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// What is stored.
    Data,
    /// What is not, and reads as zeroes.
    Hole,
}

/// What a search in a file has come to, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// It begins here.
    At(u64),
    /// There is none before the file's end, which is here.
    End(u64),
    /// There is none before this; the search is to go on there.
    NotBefore(u64),
}

/// Attributes immediately before and after an operation, taken atomically with
/// it: the weak cache consistency data of RFC 1813.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Attributes immediately before the operation.
    pub before: Attr,
    /// Attributes immediately after the operation.
    pub after: Attr,
}

/// The result of a mutation, and when it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done<T> {
    /// The operation's result, for the reply.
    pub value: T,
    /// The reply may be sent once the intent log is durable up to here; `None`: at once.
    pub lsn: Option<Lsn>,
}

/// How durable a write is to be when its reply is sent (RFC 1813 `stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stability {
    /// May be lost by a crash until a commit.
    Unstable,
    /// Data durable, and the attributes needed to read it back.
    DataSync,
    /// Data and attributes durable.
    FileSync,
}

/// How create treats an existing name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// An existing regular file is returned, truncated if the request sets the size to 0; its other attributes stay.
    Unchecked,
    /// An existing name is an error.
    Guarded,
    /// As `Guarded`, but a repetition with the same verifier succeeds.
    Exclusive([u8; 8]),
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Inode number that the name refers to.
    pub ino: Ino,
    /// Attributes of that inode.
    pub attr: Attr,
    /// The directory's attributes at the time of the operation.
    pub dir: Attr,
}

/// Result of a read. The bytes are `len` bytes from offset `first` of the
/// concatenated pages.
#[derive(Clone)]
pub struct ReadOut {
    /// 4 KiB pages, shared with the cache.
    pub pages: SmallVec<[Frame; 16]>,
    /// Offset of the first byte within the first page.
    pub first: usize,
    /// Number of bytes read.
    pub len: usize,
    /// Whether the bytes reach the end of the file.
    pub eof: bool,
    /// Attributes at the time of the read.
    pub attr: Attr,
}

impl ReadOut {
    /// The bytes as one vector (tests and tools; the server sends the pages).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        self.slices().for_each(|s| out.extend_from_slice(s));
        out
    }

    /// Whether all of it is a hole.
    pub fn is_hole(&self) -> bool {
        let zero = Frame::zero();
        self.len > 0 && self.pages.iter().all(|page| page.same_page(&zero))
    }

    /// Those of its bytes that are in `part`.
    pub fn part(&self, part: Range<usize>) -> Vec<u8> {
        let mut out = Vec::with_capacity(part.len());
        let mut at = 0;
        for slice in self.slices() {
            // Saturates: a slice before the part.
            let within = |edge: usize| edge.saturating_sub(at).min(slice.len());
            out.extend_from_slice(&slice[within(part.start)..within(part.end)]);
            at += slice.len();
        }
        out
    }

    /// The longest range of its bytes from `at` on that is all hole or all data, as its end, and whether it is a hole; `None` at
    /// its end.
    pub fn run(&self, at: usize) -> Option<(usize, bool)> {
        let zero = Frame::zero();
        let mut rest = self.pages.iter().skip((self.first + at) / BLOCK_SIZE);
        let hole = rest.next().filter(|_| at < self.len)?.same_page(&zero);
        let alike = 1 + rest
            .take_while(|page| page.same_page(&zero) == hole)
            .count();
        let end = ((self.first + at) / BLOCK_SIZE + alike) * BLOCK_SIZE - self.first;
        Some((end.min(self.len), hole))
    }

    /// The bytes in order, in as few slices as memory allows.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.first;
        let mut left = self.len;
        Frame::joined(&self.pages).map_while(move |run| {
            // Saturates: lengths from a caller.
            let end = skip.saturating_add(left).min(run.len());
            let part = run.get(skip..end).filter(|p| !p.is_empty())?;
            left -= part.len();
            skip = 0;
            Some(part)
        })
    }
}

/// What a write does to the file's set-user-ID and set-group-ID bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetIds {
    /// They stay: the writer is privileged.
    Keep,
    /// They go, as [`without_set_ids`] says, with the data.
    Clear,
}

/// The mode that is left of a regular file's when an unprivileged caller changes its content or owner: set-user-ID goes,
/// and set-group-ID where it means execution; without group execution it is mandatory locking, and stays.
pub fn without_set_ids(mode: u32) -> u32 {
    const S_ISUID: u32 = 0o4000;
    const S_ISGID: u32 = 0o2000;
    const S_IXGRP: u32 = 0o010;
    let cleared = if mode & S_IXGRP == 0 { 0 } else { S_ISGID };
    mode & !(S_ISUID | cleared)
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes written: fewer than were given if one log record cannot hold all that is to be stable.
    pub len: usize,
    /// The file's attributes around the write.
    pub change: Change,
    /// The stability given, at least the one requested.
    pub granted: Stability,
}

/// Result of creating something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Created {
    /// Number of the new inode, or of the existing file that was opened.
    pub ino: Ino,
    /// Attributes of that inode.
    pub attr: Attr,
    /// The directory's attributes around the operation.
    pub dir: Change,
}

/// Result of removing a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The directory's attributes around the operation.
    pub dir: Change,
    /// The inode that the name referred to, after the operation (`nlink` 0: it is gone).
    pub child: Attr,
}

/// Result of a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The source directory's attributes around the operation.
    pub from: Change,
    /// The target directory's; equal to `from` if it is the same directory.
    pub to: Change,
    /// Number of the inode that was renamed.
    pub moved: Ino,
    /// What had the new name before and has lost it.
    pub replaced: Option<Ino>,
}

/// Result of making a hard link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linked {
    /// The directory's attributes around the operation.
    pub dir: Change,
    /// The linked inode's attributes after it.
    pub attr: Attr,
}

/// One directory entry, lent to the sink of a listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Position after this entry: stable for as long as the entry exists.
    pub cookie: u64,
    /// Name: any bytes but NUL and `/`.
    pub name: &'a [u8],
    /// Inode number that the name refers to.
    pub ino: Ino,
    /// Kind of the inode.
    pub kind: FileKind,
    /// Attributes, if requested and readable.
    pub attr: Option<Attr>,
}

/// How much of a directory to collect at most.
#[derive(Clone, Copy, Debug)]
pub struct ReadDirLimit {
    /// Number of entries at most.
    pub entries: usize,
    /// Bytes of names, plus 24 for each entry.
    pub bytes: usize,
    /// Whether attributes are wanted.
    pub attrs: bool,
}

/// Result of reading a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDirOut {
    /// Whether the entries given reach the end.
    pub eof: bool,
    /// The directory's attributes at the time of the operation.
    pub dir: Attr,
    /// Cookie verifier; constant, since cookies never become invalid.
    pub verifier: [u8; 8],
}

/// Space and inodes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Capacity in bytes: the volume's limit, or what the aggregate offers.
    pub total: u64,
    /// Bytes free, never more than the aggregate has.
    pub free: u64,
    /// Bytes that may still be written now.
    pub available: u64,
    /// Inodes that could exist.
    pub files: u64,
    /// Inodes that could still be made.
    pub files_free: u64,
}

/// Why an operation cannot be done: one value for each error that protocols distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FsError {
    /// No such name, attribute or snapshot.
    NotFound,
    /// A name, attribute or snapshot to be made exists already.
    Exists,
    /// The operation needs a directory, and the inode is none.
    NotDir,
    /// The operation is not possible on a directory.
    IsDir,
    /// The directory to be removed has entries.
    NotEmpty,
    /// Name longer than 255 bytes.
    NameTooLong,
    /// The aggregate or the volume is full.
    NoSpace,
    /// A quota is exceeded.
    Quota,
    /// Offset beyond the largest file size.
    FileTooBig,
    /// Snapshot, or an aggregate that a failed write has poisoned.
    ReadOnly,
    /// The inode no longer exists.
    Stale,
    /// Malformed or meaningless request.
    Invalid,
    /// Link count at its limit.
    TooManyLinks,
    /// Source and target are in different volumes.
    CrossDevice,
    /// A block could not be read or its checksum is wrong.
    Io,
    /// The guard of a SETATTR did not match.
    NotSync,
    /// A directory cookie that cannot be.
    BadCookie,
    /// Operation not permitted, whatever the caller's permissions.
    Perm,
    /// Permission denied (given by the layer above).
    Access,
    /// Not supported on this kind of object.
    NotSupported,
    /// Temporarily impossible: the client is to try again.
    Delay,
    /// Something else depends on it: a clone on a snapshot.
    Busy,
}

impl std::fmt::Display for FsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FsError::NotFound => "no such file or directory",
            FsError::Exists => "file exists",
            FsError::NotDir => "not a directory",
            FsError::IsDir => "is a directory",
            FsError::NotEmpty => "directory not empty",
            FsError::NameTooLong => "name too long",
            FsError::NoSpace => "no space left",
            FsError::Quota => "quota exceeded",
            FsError::FileTooBig => "file too large",
            FsError::ReadOnly => "read-only",
            FsError::Stale => "stale file handle",
            FsError::Invalid => "invalid argument",
            FsError::TooManyLinks => "too many links",
            FsError::CrossDevice => "cross-device link",
            FsError::Io => "input/output error",
            FsError::NotSync => "attributes changed since",
            FsError::BadCookie => "bad directory cookie",
            FsError::Perm => "operation not permitted",
            FsError::Access => "permission denied",
            FsError::NotSupported => "not supported",
            FsError::Delay => "try again later",
            FsError::Busy => "in use",
        })
    }
}

impl std::error::Error for FsError {}

/// What the engine is short of while an operation has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backpressure {
    /// Page frames: everything is dirty or pinned.
    Memory,
    /// Room in the intent log.
    Log,
    /// Provisioned space on the device.
    Space,
    /// The checkpoint of this number has to complete.
    Epoch(u64),
    /// The checkpoint that is being written has to get further than this
    /// many bytes.
    Pace(u64),
    /// The partner of a mirror has to acknowledge some of what it was sent.
    Mirror,
    /// The partner of a mirror has to be back: the volume is strict, and one machine alone reports no change of it.
    Partner,
}

/// What has become of a volume, whatever its clients had in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is deleted, or is another one now: reverted, or made a destination.
    Whole,
    /// A destination's clients see another snapshot from now on.
    Content,
}

/// Why an operation did not finish. It is to be run again with the same context; until then it has changed nothing that
/// is visible to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// These blocks must be read; then the operation is run again.
    Fetch(SmallVec<[BlockPtr; 4]>),
    /// The engine is short of something; wait, then run it again.
    Wait(Backpressure),
    /// Its data is on its way to the device; when that is durable it is run again. It needs
    /// the data no more then, but its length.
    Land,
    /// It cannot be done.
    Fail(FsError),
}

impl Stop {
    /// The error for a caller that does not wait and repeat.
    pub(crate) fn refusal(self) -> FsError {
        match self {
            Stop::Fail(e) => e,
            Stop::Wait(_) | Stop::Fetch(_) | Stop::Land => FsError::Delay,
        }
    }
}

impl From<FsError> for Stop {
    fn from(e: FsError) -> Stop {
        Stop::Fail(e)
    }
}

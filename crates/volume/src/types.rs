//! Types for the callers of a volume: attributes, requests, results and errors.
//!
//! Two principles shape these types.
//!
//! **Operations do not wait.** An operation is a plain function over memory. If it needs a block
//! that is not in memory, or the engine lacks a resource, it changes nothing and returns [`Stop`].
//! The caller waits and runs it again from the start. So no lock is ever held over I/O, a cached
//! operation costs no allocation for a future, and cancelling a request is always safe.
//!
//! **An effect and its durability are two events.** A mutation is visible when its function
//! returns, and durable when the intent log has reached [`Done::lsn`]. The server holds the reply
//! to a client until then.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_base::{BLOCK_SIZE, Ino, Lsn, Time};
use weir_store::{BlockPtr, Frame};

/// Type of an inode. The numbers are those of RFC 1813 `ftype3` and of the on-disk format.
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
    /// Returns the kind with this number, if there is one.
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

/// Bits of an inode's number below those that name another constituent of a large volume.
pub(crate) const LOCAL_BITS: u32 = 56;

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
    /// Bytes of storage used: exact at each checkpoint, an upper estimate for later changes.
    pub used: u64,
    /// Device numbers (major, minor) of block and character devices.
    pub rdev: (u32, u32),
    /// File-system ID: differs between volumes, and between a volume and its snapshots.
    pub fsid: u64,
    /// Inode number, unique in the volume.
    pub ino: Ino,
    /// Last access; kept in memory only, so it may go back after a restart.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of content or attributes; strictly increases.
    pub ctime: Time,
    /// Time of creation; a client may set it.
    pub btime: Time,
    /// DOS attributes, a subset of [`DOS_ATTRIBUTES`](crate::DOS_ATTRIBUTES).
    pub dos: u16,
    /// Change counter, greater after every change of content or attributes, even if a change has
    /// been lost in a crash or undone by a revert. One value never stands for two states of the
    /// inode.
    pub change: u64,
    /// Source of the access decision.
    pub guard: Guard,
    /// Number of the tree (qtree) that the inode belongs to; 0: none.
    pub tree: u32,
    /// Number of the constituent that the volume is of a large volume, plus 1; 0: none.
    pub constituent: u8,
}

impl Attr {
    /// Returns the number by which clients know the inode: unique in the file system of `fsid`.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self.constituent.checked_sub(1) {
            None => self.ino.0,
            Some(constituent) => u64::from(constituent) << LOCAL_BITS | self.ino.0,
        }
    }
}

/// Source of access decisions for an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guard {
    /// The mode.
    #[default]
    Mode,
    /// The access control list, which has to be read.
    Acl,
    /// The access control list, which grants the caller these bits of NFSv4's access mask. The
    /// volume itself never returns this.
    Granted(u32),
}

/// Setting of a timestamp (RFC 1813 `set_atime`, `set_mtime`).
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

/// Attributes to set; `None` and [`SetTime::Keep`] leave the current value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission and special bits; bits above the low 12 are ignored.
    pub mode: Option<u32>,
    /// Mode bits to clear in a new inode, unless its directory says otherwise. The volume itself
    /// ignores it.
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
    /// Change time, instead of the server's. Later changes have a later one all the same.
    pub ctime: Option<Time>,
    /// Time of creation to set.
    pub btime: Option<Time>,
    /// DOS attributes; bits outside [`DOS_ATTRIBUTES`](crate::DOS_ATTRIBUTES) are ignored.
    pub dos: Option<u16>,
}

/// Effect of a hole that reaches beyond the end of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// The size stays.
    Keep,
    /// The file grows to the end of the hole.
    Grow,
}

/// Target of a search in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Stored data.
    Data,
    /// A hole, which reads as zeroes.
    Hole,
}

/// Result of a search in a file, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// The target begins here.
    At(u64),
    /// There is none before the file's end, which is here.
    End(u64),
    /// There is none before this offset, from which the search has to continue.
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

/// The result of a mutation, and the record that makes it durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done<T> {
    /// The operation's result, for the reply.
    pub value: T,
    /// The reply may be sent once the intent log is durable up to here; `None`: at once.
    pub lsn: Option<Lsn>,
}

/// Durability of a write when its reply is sent (RFC 1813 `stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stability {
    /// May be lost by a crash until a commit.
    Unstable,
    /// Data durable, and the attributes needed to read it back.
    DataSync,
    /// Data and attributes durable.
    FileSync,
}

/// Treatment of an existing name by create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// An existing regular file is returned, truncated if the request sets the size to 0; its other
    /// attributes stay.
    Unchecked,
    /// An existing name is an error.
    Guarded,
    /// Like `Guarded`, but a retransmission with the same verifier succeeds.
    Exclusive([u8; 8]),
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupOut {
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
    /// First byte's offset within the first page.
    pub first: usize,
    /// Number of bytes read.
    pub len: usize,
    /// True if the bytes reach the end of the file.
    pub eof: bool,
    /// Attributes at the time of the read.
    pub attr: Attr,
}

impl ReadOut {
    /// Returns the bytes as one vector (tests and tools; the server sends the pages).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        self.slices().for_each(|s| out.extend_from_slice(s));
        out
    }

    /// Returns true if all of it is a hole.
    pub fn is_hole(&self) -> bool {
        let zero = Frame::zero();
        self.len > 0 && self.pages.iter().all(|page| page.same_page(&zero))
    }

    /// Returns the bytes in `part`.
    pub fn part(&self, part: Range<usize>) -> Vec<u8> {
        let mut out = Vec::with_capacity(part.len());
        let mut at = 0;
        for slice in self.slices() {
            // Saturates: a slice may be before the part.
            let within = |edge: usize| edge.saturating_sub(at).min(slice.len());
            out.extend_from_slice(&slice[within(part.start)..within(part.end)]);
            at += slice.len();
        }
        out
    }

    /// Returns the longest range of its bytes from `at` on that is all hole or all data: its end,
    /// and true for a hole; `None` at the end.
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

    /// Returns the bytes in order, in as few slices as possible.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.first;
        let mut left = self.len;
        Frame::joined(&self.pages).map_while(move |run| {
            // Saturates: the lengths come from a caller.
            let end = skip.saturating_add(left).min(run.len());
            let part = run.get(skip..end).filter(|p| !p.is_empty())?;
            left -= part.len();
            skip = 0;
            Some(part)
        })
    }
}

/// Effect of a write on the file's set-user-ID and set-group-ID bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetIds {
    /// The bits stay: the writer is privileged.
    Keep,
    /// The bits are cleared, by [`without_set_ids`], with the data.
    Clear,
}

impl SetIds {
    /// Returns the mode of a file after a write.
    pub(crate) fn after_write(self, mode: u16) -> u16 {
        match self {
            SetIds::Keep => mode,
            // Only bits of 16 remain.
            SetIds::Clear => without_set_ids(u32::from(mode)) as u16,
        }
    }
}

/// Returns the mode of a regular file after an unprivileged caller changed its content or owner.
/// Set-user-ID is cleared, and set-group-ID where it means execution; without group execution it
/// means mandatory locking, and stays.
pub fn without_set_ids(mode: u32) -> u32 {
    const S_ISUID: u32 = 0o4000;
    const S_ISGID: u32 = 0o2000;
    const S_IXGRP: u32 = 0o010;
    let cleared = if mode & S_IXGRP == 0 { 0 } else { S_ISGID };
    mode & !(S_ISUID | cleared)
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOut {
    /// Number of bytes written: fewer than given if one log record cannot hold all stable data.
    pub len: usize,
    /// The file's attributes around the write.
    pub change: Change,
    /// The stability given, at least the one requested.
    pub granted: Stability,
}

/// Result of creating something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateOut {
    /// Number of the new inode, or of the existing file that was opened.
    pub ino: Ino,
    /// Attributes of that inode.
    pub attr: Attr,
    /// The directory's attributes around the operation.
    pub dir: Change,
}

/// Result of removing a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveOut {
    /// The directory's attributes around the operation.
    pub dir: Change,
    /// The inode that the name referred to, after the operation (`nlink` 0: deleted).
    pub child: Attr,
}

/// Result of a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenameOut {
    /// The source directory's attributes around the operation.
    pub from: Change,
    /// The target directory's attributes around the operation; equal to `from` if it is the same
    /// directory.
    pub to: Change,
    /// Number of the inode that was renamed.
    pub moved: Ino,
    /// The inode that lost the new name.
    pub replaced: Option<Ino>,
}

/// Result of making a hard link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOut {
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

/// Limits of one directory read.
#[derive(Clone, Copy, Debug)]
pub struct ReadDirLimit {
    /// Maximum number of entries.
    pub entries: usize,
    /// Bytes of names, plus 24 for each entry.
    pub bytes: usize,
    /// True if attributes are requested.
    pub attrs: bool,
}

/// Result of reading a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadDirOut {
    /// True if the returned entries reach the end.
    pub eof: bool,
    /// The directory's attributes at the time of the operation.
    pub dir: Attr,
    /// Cookie verifier; constant, since cookies never become invalid.
    pub verifier: [u8; 8],
}

/// Space and inodes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Capacity in bytes: the volume's limit, or the aggregate's capacity.
    pub total: u64,
    /// Free bytes, never more than the aggregate has.
    pub free: u64,
    /// Bytes that may still be written now.
    pub available: u64,
    /// Inodes that could exist.
    pub files: u64,
    /// Inodes that could still be created.
    pub files_free: u64,
}

/// Reason why an operation fails: one value for each error that protocols distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FsError {
    /// No such name, attribute or snapshot.
    NotFound,
    /// A name, attribute or snapshot to be created exists already.
    Exists,
    /// The operation needs a directory, and the inode is not one.
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
    /// An offset beyond the largest file size.
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
    /// An invalid directory cookie.
    BadCookie,
    /// Operation not permitted, whatever the caller's permissions.
    Perm,
    /// Permission denied (given by the layer above).
    Access,
    /// Not supported on this kind of object.
    NotSupported,
    /// Temporarily impossible: the client has to retry.
    Delay,
    /// Another object depends on it: a clone on a snapshot.
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

/// Resource or event that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backpressure {
    /// Page frames: all are dirty or pinned.
    Memory,
    /// Room in the intent log.
    Log,
    /// Provisioned space on the device.
    Space,
    /// The checkpoint of this number has to complete.
    Epoch(u64),
    /// The current checkpoint has to get further than this many bytes.
    Pace(u64),
    /// The partner of a pair has to acknowledge some of the sent entries.
    Mirror,
    /// The partner of a pair has to be back: the volume is strict, and its changes are not reported
    /// while only one machine has them.
    Partner,
}

/// Kind of replacement of a volume, whatever state its clients had in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementKind {
    /// The volume is deleted, or was replaced: reverted, or made a destination.
    Whole,
    /// A destination's clients see another snapshot from now on.
    Content,
}

/// Reason why an operation did not finish. It has to be run again with the same context; until then
/// it has changed nothing that is visible to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Blocks that must be read before the retry.
    Fetch(SmallVec<[BlockPtr; 4]>),
    /// The engine lacks a resource; wait for it, then retry.
    Wait(Backpressure),
    /// The operation's data is being written in place; retry when that is durable. The retry needs
    /// only the length of the data.
    Land,
    /// The operation has failed.
    Fail(FsError),
}

impl Stop {
    /// Returns the error for a caller that does not wait and retry.
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

/// Kind of owner that usage is counted for, and quotas are set for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// The owner of an inode.
    User,
    /// The group of an inode.
    Group,
    /// The tree (qtree) that an inode belongs to.
    Tree,
}

/// A user, a group or a tree, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QuotaId {
    /// The kind of owner.
    pub kind: QuotaKind,
    /// Number of the user, the group or the tree.
    pub id: u32,
}

impl std::hash::Hash for QuotaId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64((self.kind as u64) << 32 | u64::from(self.id));
    }
}

impl QuotaId {
    /// Returns the user with this number.
    pub fn user(id: u32) -> QuotaId {
        let kind = QuotaKind::User;
        QuotaId { kind, id }
    }

    /// Returns the group with this number.
    pub fn group(id: u32) -> QuotaId {
        let kind = QuotaKind::Group;
        QuotaId { kind, id }
    }

    /// Returns the tree with this number.
    pub fn tree(id: u32) -> QuotaId {
        let kind = QuotaKind::Tree;
        QuotaId { kind, id }
    }
}

/// Space and inodes that count for an owner, or a change of them.
///
/// The space of an inode is that of its file blocks that are no holes. A block that several files
/// share counts for each of them. Blocks that only snapshots refer to do not count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaUsage {
    /// Blocks of 4096 bytes.
    pub blocks: i64,
    /// Inodes of any kind, named streams included.
    pub files: i64,
}

impl QuotaUsage {
    /// Adds a change.
    pub(crate) fn add(&mut self, change: QuotaUsage) {
        self.blocks += change.blocks;
        self.files += change.files;
    }

    /// Returns the opposite change.
    pub(crate) fn negated(self) -> QuotaUsage {
        QuotaUsage {
            blocks: -self.blocks,
            files: -self.files,
        }
    }
}

/// Limits of an owner's usage; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaLimit {
    /// Bytes that usage cannot exceed.
    pub bytes: u64,
    /// Bytes above which usage is reported.
    pub soft_bytes: u64,
    /// Inodes that usage cannot exceed.
    pub files: u64,
    /// Inodes above which usage is reported.
    pub soft_files: u64,
}

impl QuotaLimit {
    /// Returns true if a growth of `usage` is within the hard limits. What does not grow may be
    /// above its limit.
    pub(crate) fn admits(&self, usage: QuotaUsage, growth: QuotaUsage) -> bool {
        let below = |limit: u64, used: i64, more: i64| {
            limit == 0 || more <= 0 || u64::try_from(used + more).is_ok_and(|sum| sum <= limit)
        };
        below(self.bytes / BLOCK_SIZE as u64, usage.blocks, growth.blocks)
            && below(self.files, usage.files, growth.files)
    }
}

/// The quotas of a volume.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct QuotaRules {
    /// Limits of users, groups and trees that have their own.
    pub own: BTreeMap<QuotaId, QuotaLimit>,
    /// Limits of every other user but root.
    pub default_user: Option<QuotaLimit>,
    /// Limits of every other group but that of root.
    pub default_group: Option<QuotaLimit>,
    /// Limits of every other tree.
    pub default_tree: Option<QuotaLimit>,
}

impl QuotaRules {
    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        let defaults = [self.default_user, self.default_group, self.default_tree];
        self.own.is_empty() && defaults.iter().all(Option::is_none)
    }

    /// Returns the limits of an owner; `None`: it has none.
    pub fn limit_of(&self, id: QuotaId) -> Option<QuotaLimit> {
        let default = match id.kind {
            _ if id.id == 0 => None,
            QuotaKind::User => self.default_user,
            QuotaKind::Group => self.default_group,
            QuotaKind::Tree => self.default_tree,
        };
        self.own.get(&id).copied().or(default)
    }
}

/// A tree (qtree): a folder in the root directory of a volume. What is made below it belongs to it,
/// is counted for it, and cannot be linked or renamed out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Number of the tree, unique in the volume and not 0.
    pub number: u32,
    /// Inode of the folder.
    pub ino: Ino,
    /// Name of the folder, 1 to 255 bytes.
    pub name: Box<[u8]>,
    /// Attributes of the folder.
    pub attr: Attr,
}

/// State of a volume's quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaState {
    /// There are no rules.
    Off,
    /// Usage is being read, or counted; limits do not hold yet.
    Initializing,
    /// Limits hold.
    On,
}

/// Usage and limits of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaEntry {
    /// The owner.
    pub id: QuotaId,
    /// Usage of the owner.
    pub usage: QuotaUsage,
    /// Its limits; all 0: none.
    pub limit: QuotaLimit,
}

impl QuotaEntry {
    /// Returns the bytes that may still be written; `None`: without limit.
    pub fn left(&self) -> Option<u64> {
        let used = u64::try_from(self.usage.blocks).unwrap_or(0) * BLOCK_SIZE as u64;
        // Saturates: a limit may be below the usage.
        (self.limit.bytes > 0).then(|| self.limit.bytes.saturating_sub(used))
    }
}

//! Operations as the tests speak of them, independent of engine and protocol.
//!
//! Objects are named by [`Slot`]: the number of the operation that created them. Slots stay
//! meaningful when operations are removed from a sequence, and so a sequence can be minimised
//! automatically: a removed creation merely turns the operations on its slot into no-ops.

use weir_base::Time;

/// An object: the id of the operation that created it. Slot 0 is the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The root directory of the volume.
pub const ROOT: Slot = Slot(0);

/// File kinds of RFC 1813 §2.3.1 (`ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Block device node.
    Block,
    /// Character device node.
    Char,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

/// Stability that the caller asks for (RFC 1813 `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stable {
    /// May be lost until COMMIT.
    Unstable,
    /// Data and what is needed to read it.
    Data,
    /// Data and all metadata.
    File,
}

/// A settable time (RFC 1813 §2.6, `set_atime` and `set_mtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetTo {
    /// Leave the time unchanged.
    #[default]
    Keep,
    /// The server's present time.
    Server,
    /// The time that the client gives.
    Client(Time),
}

/// Attributes to set (RFC 1813 `sattr3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Set {
    /// Permission bits; `None` leaves them unchanged, as for all fields.
    pub mode: Option<u32>,
    /// Numeric id of the owner.
    pub uid: Option<u32>,
    /// Numeric id of the group.
    pub gid: Option<u32>,
    /// Length in bytes, to truncate or extend to.
    pub size: Option<u64>,
    /// Change of the access time.
    pub atime: SetTo,
    /// Change of the modification time.
    pub mtime: SetTo,
}

/// Treatment of an existing name by CREATE (RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// An existing regular file is fine.
    Unchecked,
    /// An existing name is an error.
    Guarded,
    /// An existing name is an error unless it was made with the same verifier.
    Exclusive([u8; 8]),
}

/// Written data: reproducible from two numbers, so that operations print short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Number of the pattern; 0 means zeros.
    pub pattern: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Data {
    /// The `len` bytes of the pattern.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len as usize);
        if self.pattern == 0 {
            out.resize(self.len as usize, 0);
            return out;
        }
        let mut state = u64::from(self.pattern).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while out.len() < self.len as usize {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            out.extend_from_slice(&state.to_le_bytes());
        }
        out.truncate(self.len as usize);
        out
    }
}

/// A file name: any bytes. Prints short.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

impl std::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Name {
        Name(name.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.0.get(..24).unwrap_or(&self.0);
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if self.0.len() > shown.len() {
            write!(f, "…({})", self.0.len())?;
        }
        Ok(())
    }
}

/// One operation on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Lookup {
        dir: Slot,
        name: Name,
    },
    Getattr {
        object: Slot,
    },
    Setattr {
        object: Slot,
        set: Set,
        guard: Guard,
    },
    Readlink {
        object: Slot,
    },
    Read {
        object: Slot,
        offset: u64,
        len: u32,
    },
    Write {
        object: Slot,
        offset: u64,
        data: Data,
        stable: Stable,
    },
    Commit {
        object: Slot,
        offset: u64,
        len: u32,
    },
    Create {
        dir: Slot,
        name: Name,
        how: CreateMode,
        set: Set,
    },
    Mkdir {
        dir: Slot,
        name: Name,
        set: Set,
    },
    Symlink {
        dir: Slot,
        name: Name,
        target: Name,
        set: Set,
    },
    Mknod {
        dir: Slot,
        name: Name,
        kind: Kind,
        rdev: (u32, u32),
        set: Set,
    },
    Remove {
        dir: Slot,
        name: Name,
    },
    Rmdir {
        dir: Slot,
        name: Name,
    },
    Rename {
        from_dir: Slot,
        from: Name,
        to_dir: Slot,
        to: Name,
    },
    Link {
        object: Slot,
        dir: Slot,
        name: Name,
    },
    Readdir {
        dir: Slot,
        entries: u32,
    },
    /// Makes a hole. NFSv3 has no such operation, nor any of those below.
    Punch {
        object: Slot,
        offset: u64,
        len: u64,
    },
    /// Gives a range of one file the contents of a range of another; no length: up to the source's
    /// end.
    Clone {
        source: Slot,
        from: u64,
        object: Slot,
        to: u64,
        len: u64,
    },
    /// Makes a link of what has this name, or a file or directory of a link.
    Convert {
        object: Slot,
        dir: Slot,
        name: Name,
        target: Option<Name>,
    },
    /// Sets an extended attribute, or removes it.
    SetXattr {
        object: Slot,
        name: Name,
        value: Option<Data>,
    },
    /// All extended attributes, with their values.
    Xattrs {
        object: Slot,
    },
    /// Opens the object until the machine stops: it lives on without a name.
    Open {
        object: Slot,
    },
}

/// Ctime that a SETATTR gives as its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The SETATTR carries no guard.
    None,
    /// The object's present ctime.
    Right,
    /// Another time: the SETATTR must fail with NOT_SYNC.
    Wrong,
}

impl Op {
    /// Returns true if a successful run creates an object, which then has the operation's id as its
    /// slot.
    #[must_use]
    pub fn creates(&self) -> bool {
        matches!(
            self,
            Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Mknod { .. }
        )
    }

    /// Returns true if the operation may change anything.
    #[must_use]
    pub fn mutates(&self) -> bool {
        !matches!(
            self,
            Op::Lookup { .. }
                | Op::Getattr { .. }
                | Op::Readlink { .. }
                | Op::Read { .. }
                | Op::Readdir { .. }
                | Op::Xattrs { .. }
        )
    }

    /// Returns the slots that the operation names.
    #[must_use]
    pub fn slots(&self) -> [Option<Slot>; 2] {
        match self {
            Op::Lookup { dir, .. }
            | Op::Create { dir, .. }
            | Op::Mkdir { dir, .. }
            | Op::Symlink { dir, .. }
            | Op::Mknod { dir, .. }
            | Op::Remove { dir, .. }
            | Op::Rmdir { dir, .. }
            | Op::Readdir { dir, .. } => [Some(*dir), None],
            Op::Getattr { object }
            | Op::Setattr { object, .. }
            | Op::Readlink { object }
            | Op::Read { object, .. }
            | Op::Write { object, .. }
            | Op::Commit { object, .. }
            | Op::Punch { object, .. }
            | Op::SetXattr { object, .. }
            | Op::Xattrs { object }
            | Op::Open { object } => [Some(*object), None],
            Op::Rename {
                from_dir, to_dir, ..
            } => [Some(*from_dir), Some(*to_dir)],
            Op::Link { object, dir, .. } | Op::Convert { object, dir, .. } => {
                [Some(*object), Some(*dir)]
            }
            Op::Clone { source, object, .. } => [Some(*source), Some(*object)],
        }
    }
}

/// The error kinds that the tests distinguish: the NFSv3 status codes of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Errno {
    Perm,
    NotFound,
    Io,
    Access,
    Exists,
    CrossDevice,
    NotDir,
    IsDir,
    Invalid,
    FileTooBig,
    NoSpace,
    ReadOnly,
    TooManyLinks,
    NameTooLong,
    NotEmpty,
    Quota,
    Stale,
    NotSync,
    BadCookie,
    NotSupported,
    TooSmall,
    ServerFault,
    BadType,
    Delay,
}

/// A set of acceptable errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errors(u32);

impl Errors {
    /// The empty set: no error.
    pub const NONE: Errors = Errors(0);

    /// The set of `list`.
    #[must_use]
    pub const fn from_list(list: &[Errno]) -> Errors {
        let mut bits = 0;
        let mut i = 0;
        while i < list.len() {
            bits |= 1 << list[i] as u8;
            i += 1;
        }
        Errors(bits)
    }

    /// The set as bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Errors {
        Errors(bits)
    }

    /// Returns true if `errno` is in the set.
    #[must_use]
    pub fn admits(self, errno: Errno) -> bool {
        self.0 & (1 << errno as u8) != 0
    }
}

impl std::fmt::Debug for Errors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const ALL: [Errno; 24] = [
            Errno::Perm,
            Errno::NotFound,
            Errno::Io,
            Errno::Access,
            Errno::Exists,
            Errno::CrossDevice,
            Errno::NotDir,
            Errno::IsDir,
            Errno::Invalid,
            Errno::FileTooBig,
            Errno::NoSpace,
            Errno::ReadOnly,
            Errno::TooManyLinks,
            Errno::NameTooLong,
            Errno::NotEmpty,
            Errno::Quota,
            Errno::Stale,
            Errno::NotSync,
            Errno::BadCookie,
            Errno::NotSupported,
            Errno::TooSmall,
            Errno::ServerFault,
            Errno::BadType,
            Errno::Delay,
        ];
        f.debug_set()
            .entries(ALL.iter().filter(|e| self.admits(**e)))
            .finish()
    }
}

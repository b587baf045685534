//! Calls of NFSv3 (RFC 1813) and MNT, and their replies.

use crate::rpc::{self, Caller};
use crate::xdr::{DecodeError, In, Out};

/// RPC program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// RPC program number of MOUNT.
pub const MOUNT_PROGRAM: u32 = 100_005;

/// `NFS3ERR_STALE`.
pub const STALE: u32 = 70;
/// `NFS3ERR_JUKEBOX`: to be asked again later.
pub const JUKEBOX: u32 = 10_008;

/// Values of `stable_how`.
pub const UNSTABLE: u32 = 0;
/// Data and all metadata are durable before the reply.
pub const FILE_SYNC: u32 = 2;

/// `ftype3`: a regular file.
pub const REG: u32 = 1;
/// `ftype3`: a directory.
pub const DIR: u32 = 2;
/// `ftype3`: a block device.
pub const BLK: u32 = 3;
/// `ftype3`: a character device.
pub const CHR: u32 = 4;
/// `ftype3`: a symbolic link.
pub const LNK: u32 = 5;
/// `ftype3`: a socket.
pub const SOCK: u32 = 6;
/// `ftype3`: a FIFO.
pub const FIFO: u32 = 7;

/// A file handle.
pub type Fh = Vec<u8>;
/// A name in a directory.
pub type Name = Vec<u8>;
/// A write, create or cookie verifier.
pub type Verifier = [u8; 8];
/// Seconds and nanoseconds since 1970.
pub type Time = (u32, u32);

/// `set_atime` and `set_mtime`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub enum SetTime {
    #[default]
    Keep,
    Server,
    Client(Time),
}

/// `sattr3`: what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Sattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

fn put_time(out: &mut Out, time: Time) {
    out.u32(time.0).u32(time.1);
}

fn get_time(d: &mut In<'_>) -> Result<Time, DecodeError> {
    match (d.u32()?, d.u32()?) {
        (_, 1_000_000_000..) => Err(DecodeError("nanoseconds of a second or more")),
        time => Ok(time),
    }
}

impl Sattr {
    /// Nothing but the permission bits.
    #[must_use]
    pub fn mode(mode: u32) -> Sattr {
        Sattr {
            mode: Some(mode),
            ..Sattr::default()
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Out) {
        for v in [self.mode, self.uid, self.gid] {
            out.optional(v, |out, v| {
                out.u32(v);
            });
        }
        out.optional(self.size, |out, v| {
            out.u64(v);
        });
        for time in [self.atime, self.mtime] {
            match time {
                SetTime::Keep => {
                    out.u32(0);
                }
                SetTime::Server => {
                    out.u32(1);
                }
                SetTime::Client(time) => put_time(out.u32(2), time),
            }
        }
    }
}

/// `fattr3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Fattr {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

impl Fattr {
    /// Takes it off the front.
    ///
    /// # Errors
    /// An unknown type of file, or no such time.
    pub fn decode(d: &mut In<'_>) -> Result<Fattr, DecodeError> {
        let kind = d.u32()?;
        if !(REG..=FIFO).contains(&kind) {
            return Err(DecodeError("unknown file type"));
        }
        Ok(Fattr {
            kind,
            mode: d.u32()?,
            nlink: d.u32()?,
            uid: d.u32()?,
            gid: d.u32()?,
            size: d.u64()?,
            used: d.u64()?,
            rdev: (d.u32()?, d.u32()?),
            fsid: d.u64()?,
            fileid: d.u64()?,
            atime: get_time(d)?,
            mtime: get_time(d)?,
            ctime: get_time(d)?,
        })
    }

    /// A `post_op_attr`.
    ///
    /// # Errors
    /// As [`Fattr::decode`].
    pub fn optional(d: &mut In<'_>) -> Result<Option<Fattr>, DecodeError> {
        d.bool()?.then(|| Fattr::decode(d)).transpose()
    }
}

/// `wcc_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Before {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
}

/// `wcc_data`: attributes around an operation, as far as the server gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Wcc {
    pub before: Option<Before>,
    pub after: Option<Fattr>,
}

impl Wcc {
    /// Takes it off the front.
    ///
    /// # Errors
    /// As [`Fattr::decode`].
    pub fn decode(d: &mut In<'_>) -> Result<Wcc, DecodeError> {
        let before = match d.bool()? {
            false => None,
            true => Some(Before {
                size: d.u64()?,
                mtime: get_time(d)?,
                ctime: get_time(d)?,
            }),
        };
        let after = Fattr::optional(d)?;
        Ok(Wcc { before, after })
    }
}

/// `createhow3`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum CreateHow3 {
    Unchecked(Sattr),
    Guarded(Sattr),
    Exclusive(Verifier),
}

/// A call with its arguments.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Call {
    Mnt(Vec<u8>),
    Getattr(Fh),
    /// With the guard: the change time that the object must have.
    Setattr(Fh, Sattr, Option<Time>),
    Lookup(Fh, Name),
    Readlink(Fh),
    Read {
        fh: Fh,
        offset: u64,
        count: u32,
    },
    Write {
        fh: Fh,
        offset: u64,
        stable: u32,
        data: Vec<u8>,
    },
    Create(Fh, Name, CreateHow3),
    Mkdir(Fh, Name, Sattr),
    Symlink(Fh, Name, Sattr, Vec<u8>),
    Mknod {
        dir: Fh,
        name: Name,
        kind: u32,
        attr: Sattr,
        /// Numbers of a device.
        rdev: (u32, u32),
    },
    Remove(Fh, Name),
    Rmdir(Fh, Name),
    Rename {
        from: (Fh, Name),
        to: (Fh, Name),
    },
    Link {
        fh: Fh,
        to: (Fh, Name),
    },
    Readdir {
        dir: Fh,
        cookie: u64,
        verifier: Verifier,
        count: u32,
    },
    Readdirplus {
        dir: Fh,
        cookie: u64,
        verifier: Verifier,
        dircount: u32,
        maxcount: u32,
    },
    Commit {
        fh: Fh,
        offset: u64,
        count: u32,
    },
}

/// An entry of a directory; attributes and handle come with READDIRPLUS only.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Entry {
    pub fileid: u64,
    pub name: Name,
    pub cookie: u64,
    pub attr: Option<Fattr>,
    pub fh: Option<Fh>,
}

/// The results of a call.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Reply {
    /// Any status but OK.
    Error(u32),
    Root(Fh),
    Attr(Fattr),
    Found(Fh, Option<Fattr>),
    Target(Vec<u8>),
    Data {
        data: Vec<u8>,
        eof: bool,
    },
    Written {
        count: u32,
        committed: u32,
        verifier: Verifier,
        around: Wcc,
    },
    Made(Option<Fh>, Option<Fattr>, Wcc),
    Linked(Option<Fattr>, Wcc),
    Entries {
        entries: Vec<Entry>,
        verifier: Verifier,
        eof: bool,
    },
    Committed(Verifier, Wcc),
    /// SETATTR and REMOVE of one object, RENAME of two directories.
    Done(Vec<Wcc>),
}

fn fh(d: &mut In<'_>) -> Result<Fh, DecodeError> {
    Ok(d.opaque()?.to_vec())
}

fn optional_fh(d: &mut In<'_>) -> Result<Option<Fh>, DecodeError> {
    d.bool()?.then(|| fh(d)).transpose()
}

impl Call {
    /// Program, version and procedure.
    #[must_use]
    pub fn procedure(&self) -> (u32, u32, u32) {
        let p = match self {
            Call::Mnt(_) => return (MOUNT_PROGRAM, 3, 1),
            Call::Getattr(_) => 1,
            Call::Setattr(..) => 2,
            Call::Lookup(..) => 3,
            Call::Readlink(_) => 5,
            Call::Read { .. } => 6,
            Call::Write { .. } => 7,
            Call::Create(..) => 8,
            Call::Mkdir(..) => 9,
            Call::Symlink(..) => 10,
            Call::Mknod { .. } => 11,
            Call::Remove(..) => 12,
            Call::Rmdir(..) => 13,
            Call::Rename { .. } => 14,
            Call::Link { .. } => 15,
            Call::Readdir { .. } => 16,
            Call::Readdirplus { .. } => 17,
            Call::Commit { .. } => 21,
        };
        (PROGRAM, 3, p)
    }

    /// The whole message, without a record mark.
    #[must_use]
    pub fn message(&self, xid: u32, caller: &Caller) -> Vec<u8> {
        let (program, version, procedure) = self.procedure();
        let mut out = rpc::call(xid, program, version, procedure, caller);
        self.encode(&mut out);
        out.0
    }

    /// Appends the arguments.
    pub fn encode(&self, out: &mut Out) {
        match self {
            Call::Mnt(path) => {
                out.opaque(path);
            }
            Call::Getattr(fh) | Call::Readlink(fh) => {
                out.opaque(fh);
            }
            Call::Setattr(fh, attr, guard) => {
                attr.encode(out.opaque(fh));
                out.optional(*guard, put_time);
            }
            Call::Lookup(dir, name) | Call::Remove(dir, name) | Call::Rmdir(dir, name) => {
                out.opaque(dir).opaque(name);
            }
            Call::Read { fh, offset, count } | Call::Commit { fh, offset, count } => {
                out.opaque(fh).u64(*offset).u32(*count);
            }
            Call::Write {
                fh,
                offset,
                stable,
                data,
            } => {
                out.opaque(fh).u64(*offset).u32(data.len() as u32);
                out.u32(*stable).opaque(data);
            }
            Call::Create(dir, name, how) => {
                out.opaque(dir).opaque(name);
                match how {
                    CreateHow3::Unchecked(a) => a.encode(out.u32(0)),
                    CreateHow3::Guarded(a) => a.encode(out.u32(1)),
                    CreateHow3::Exclusive(v) => {
                        out.u32(2).fixed(v);
                    }
                }
            }
            Call::Mkdir(dir, name, attr) => attr.encode(out.opaque(dir).opaque(name)),
            Call::Symlink(dir, name, attr, target) => {
                attr.encode(out.opaque(dir).opaque(name));
                out.opaque(target);
            }
            Call::Mknod {
                dir,
                name,
                kind,
                attr,
                rdev,
            } => {
                out.opaque(dir).opaque(name).u32(*kind);
                if [BLK, CHR, SOCK, FIFO].contains(kind) {
                    attr.encode(out);
                }
                if [BLK, CHR].contains(kind) {
                    out.u32(rdev.0).u32(rdev.1);
                }
            }
            Call::Rename { from, to } => {
                out.opaque(&from.0).opaque(&from.1);
                out.opaque(&to.0).opaque(&to.1);
            }
            Call::Link { fh, to } => {
                out.opaque(fh).opaque(&to.0).opaque(&to.1);
            }
            Call::Readdir {
                dir,
                cookie,
                verifier,
                count,
            } => {
                out.opaque(dir).u64(*cookie).fixed(verifier).u32(*count);
            }
            Call::Readdirplus {
                dir,
                cookie,
                verifier,
                dircount,
                maxcount,
            } => {
                out.opaque(dir).u64(*cookie).fixed(verifier);
                out.u32(*dircount).u32(*maxcount);
            }
        }
    }

    /// The results that `d` consists of.
    ///
    /// # Errors
    /// If that is not what the call may return, status and all.
    pub fn decode(&self, mut d: In<'_>) -> Result<Reply, DecodeError> {
        let reply = match d.u32()? {
            0 => self.success(&mut d)?,
            status => {
                self.failure(&mut d)?;
                Reply::Error(status)
            }
        };
        d.end()?;
        Ok(reply)
    }

    /// Reads the results behind a status that is not OK.
    fn failure(&self, d: &mut In<'_>) -> Result<(), DecodeError> {
        match self {
            Call::Mnt(_) | Call::Getattr(_) => {}
            Call::Lookup(..)
            | Call::Readlink(_)
            | Call::Read { .. }
            | Call::Readdir { .. }
            | Call::Readdirplus { .. } => {
                Fattr::optional(d)?;
            }
            Call::Rename { .. } => {
                Wcc::decode(d)?;
                Wcc::decode(d)?;
            }
            Call::Link { .. } => {
                Fattr::optional(d)?;
                Wcc::decode(d)?;
            }
            _ => {
                Wcc::decode(d)?;
            }
        }
        Ok(())
    }

    fn success(&self, d: &mut In<'_>) -> Result<Reply, DecodeError> {
        Ok(match self {
            Call::Mnt(_) => {
                let root = fh(d)?;
                for _ in 0..d.u32()? {
                    let _flavour = d.u32()?;
                }
                Reply::Root(root)
            }
            Call::Getattr(_) => Reply::Attr(Fattr::decode(d)?),
            Call::Lookup(..) => {
                let found = Reply::Found(fh(d)?, Fattr::optional(d)?);
                let _dir = Fattr::optional(d)?;
                found
            }
            Call::Readlink(_) => {
                Fattr::optional(d)?;
                Reply::Target(d.opaque()?.to_vec())
            }
            Call::Read { .. } => {
                Fattr::optional(d)?;
                let (count, eof, data) = (d.u32()?, d.bool()?, d.opaque()?.to_vec());
                if data.len() != count as usize {
                    return Err(DecodeError("READ count and data length differ"));
                }
                Reply::Data { data, eof }
            }
            Call::Write { .. } => {
                let around = Wcc::decode(d)?;
                let (count, committed) = (d.u32()?, d.u32()?);
                if committed > FILE_SYNC {
                    return Err(DecodeError("unknown stability"));
                }
                Reply::Written {
                    count,
                    committed,
                    verifier: d.fixed()?,
                    around,
                }
            }
            Call::Create(..) | Call::Mkdir(..) | Call::Symlink(..) | Call::Mknod { .. } => {
                Reply::Made(optional_fh(d)?, Fattr::optional(d)?, Wcc::decode(d)?)
            }
            Call::Link { .. } => Reply::Linked(Fattr::optional(d)?, Wcc::decode(d)?),
            Call::Readdir { .. } => Call::page(d, false)?,
            Call::Readdirplus { .. } => Call::page(d, true)?,
            Call::Commit { .. } => {
                let around = Wcc::decode(d)?;
                Reply::Committed(d.fixed()?, around)
            }
            Call::Setattr(..) | Call::Remove(..) | Call::Rmdir(..) => {
                Reply::Done(vec![Wcc::decode(d)?])
            }
            Call::Rename { .. } => Reply::Done(vec![Wcc::decode(d)?, Wcc::decode(d)?]),
        })
    }

    /// A page of a directory.
    fn page(d: &mut In<'_>, plus: bool) -> Result<Reply, DecodeError> {
        Fattr::optional(d)?;
        let verifier = d.fixed()?;
        let mut entries = Vec::new();
        while d.bool()? {
            entries.push(Entry {
                fileid: d.u64()?,
                name: d.opaque()?.to_vec(),
                cookie: d.u64()?,
                attr: if plus { Fattr::optional(d)? } else { None },
                fh: if plus { optional_fh(d)? } else { None },
            });
        }
        Ok(Reply::Entries {
            entries,
            verifier,
            eof: d.bool()?,
        })
    }
}

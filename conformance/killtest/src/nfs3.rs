//! The NFSv3 calls (RFC 1813) that the test makes, as values: a call encodes itself, and decodes its reply.

use crate::xdr::{Dec, Enc, Fault};

pub const PROGRAM: u32 = 100_003;
pub const MOUNT_PROGRAM: u32 = 100_005;

pub const OK: u32 = 0;
pub const STALE: u32 = 70;
pub const JUKEBOX: u32 = 10_008;

pub const UNSTABLE: u32 = 0;
pub const FILE_SYNC: u32 = 2;

pub const REG: u32 = 1;
pub const DIR: u32 = 2;
pub const LNK: u32 = 5;
pub const SOCK: u32 = 6;
pub const FIFO: u32 = 7;

pub type Fh = Vec<u8>;
pub type Name = Vec<u8>;
pub type Verifier = [u8; 8];

/// sattr3. Times are set to the client's value or left alone.
#[derive(Clone, Debug, Default)]
pub struct Sattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub mtime: Option<(u32, u32)>,
}

impl Sattr {
    fn encode(&self, e: &mut Enc) {
        for v in [self.mode, self.uid, self.gid] {
            match v {
                Some(v) => e.u32(1).u32(v),
                None => e.u32(0),
            };
        }
        match self.size {
            Some(v) => e.u32(1).u64(v),
            None => e.u32(0),
        };
        e.u32(0); // atime
        match self.mtime {
            Some((s, n)) => e.u32(2).u32(s).u32(n),
            None => e.u32(0),
        };
    }
}

/// fattr3, without what the test does not look at.
#[derive(Clone, Copy, Debug)]
pub struct Fattr {
    pub ftype: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub fileid: u64,
    pub mtime: (u32, u32),
}

impl Fattr {
    fn decode(d: &mut Dec<'_>) -> Result<Self, Fault> {
        let (ftype, mode, nlink, uid, gid) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        let size = d.u64()?;
        d.fixed(8 + 8 + 8)?; // used, rdev, fsid
        let fileid = d.u64()?;
        d.fixed(8)?; // atime
        let mtime = (d.u32()?, d.u32()?);
        d.fixed(8)?; // ctime
        Ok(Fattr {
            ftype,
            mode,
            nlink,
            uid,
            gid,
            size,
            fileid,
            mtime,
        })
    }

    fn optional(d: &mut Dec<'_>) -> Result<Option<Self>, Fault> {
        d.flag()?.then(|| Self::decode(d)).transpose()
    }
}

/// createhow3.
#[derive(Clone, Debug)]
pub enum How {
    Unchecked(Sattr),
    Guarded(Sattr),
    Exclusive(Verifier),
}

#[derive(Clone, Debug)]
pub enum Call {
    Mnt(Vec<u8>),
    Getattr(Fh),
    Setattr(Fh, Sattr),
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
    Create(Fh, Name, How),
    Mkdir(Fh, Name, Sattr),
    Symlink(Fh, Name, Vec<u8>),
    Mknod(Fh, Name, u32, Sattr),
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
    Readdirplus {
        dir: Fh,
        cookie: u64,
        verifier: Verifier,
    },
    Commit {
        fh: Fh,
        offset: u64,
        count: u32,
    },
}

/// One entry of a READDIRPLUS reply.
#[derive(Debug)]
pub struct Entry {
    pub fileid: u64,
    pub name: Name,
    pub cookie: u64,
    pub attr: Option<Fattr>,
    pub fh: Option<Fh>,
}

#[derive(Debug)]
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
    },
    Made(Option<Fh>, Option<Fattr>),
    Entries {
        entries: Vec<Entry>,
        verifier: Verifier,
        eof: bool,
    },
    Committed(Verifier),
    Done,
}

fn wcc(d: &mut Dec<'_>) -> Result<(), Fault> {
    if d.flag()? {
        d.fixed(8 + 8 + 8)?;
    }
    Fattr::optional(d).map(drop)
}

fn verifier(d: &mut Dec<'_>) -> Result<Verifier, Fault> {
    d.fixed(8)?
        .try_into()
        .map_err(|_| "a verifier is eight bytes".into())
}

impl Call {
    /// Program, version, procedure.
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
            Call::Mknod(..) => 11,
            Call::Remove(..) => 12,
            Call::Rmdir(..) => 13,
            Call::Rename { .. } => 14,
            Call::Link { .. } => 15,
            Call::Readdirplus { .. } => 17,
            Call::Commit { .. } => 21,
        };
        (PROGRAM, 3, p)
    }

    pub fn encode(&self, e: &mut Enc) {
        match self {
            Call::Mnt(path) => {
                e.opaque(path);
            }
            Call::Getattr(fh) | Call::Readlink(fh) => {
                e.opaque(fh);
            }
            Call::Setattr(fh, attr) => {
                e.opaque(fh);
                attr.encode(e);
                e.u32(0); // no guard
            }
            Call::Lookup(dir, name) | Call::Remove(dir, name) | Call::Rmdir(dir, name) => {
                e.opaque(dir).opaque(name);
            }
            Call::Read { fh, offset, count } => {
                e.opaque(fh).u64(*offset).u32(*count);
            }
            Call::Write {
                fh,
                offset,
                stable,
                data,
            } => {
                e.opaque(fh)
                    .u64(*offset)
                    .u32(data.len() as u32)
                    .u32(*stable)
                    .opaque(data);
            }
            Call::Create(dir, name, how) => {
                e.opaque(dir).opaque(name);
                match how {
                    How::Unchecked(a) => a.encode(e.u32(0)),
                    How::Guarded(a) => a.encode(e.u32(1)),
                    How::Exclusive(v) => {
                        e.u32(2).fixed(v);
                    }
                }
            }
            Call::Mkdir(dir, name, attr) => attr.encode(e.opaque(dir).opaque(name)),
            Call::Symlink(dir, name, target) => {
                Sattr::default().encode(e.opaque(dir).opaque(name));
                e.opaque(target);
            }
            Call::Mknod(dir, name, ftype, attr) => {
                attr.encode(e.opaque(dir).opaque(name).u32(*ftype))
            }
            Call::Rename { from, to } => {
                e.opaque(&from.0)
                    .opaque(&from.1)
                    .opaque(&to.0)
                    .opaque(&to.1);
            }
            Call::Link { fh, to } => {
                e.opaque(fh).opaque(&to.0).opaque(&to.1);
            }
            Call::Readdirplus {
                dir,
                cookie,
                verifier,
            } => {
                e.opaque(dir)
                    .u64(*cookie)
                    .fixed(verifier)
                    .u32(8192)
                    .u32(65_536);
            }
            Call::Commit { fh, offset, count } => {
                e.opaque(fh).u64(*offset).u32(*count);
            }
        }
    }

    /// The results of an accepted reply.
    pub fn decode(&self, d: &mut Dec<'_>) -> Result<Reply, Fault> {
        let status = d.u32()?;
        if status != OK {
            d.0 = &[]; // attributes that the test does not look at
            return Ok(Reply::Error(status));
        }
        Ok(match self {
            Call::Mnt(_) => {
                let root = d.opaque()?.to_vec();
                for _ in 0..d.u32()? {
                    d.u32()?; // an authentication flavour
                }
                Reply::Root(root)
            }
            Call::Getattr(_) => Reply::Attr(Fattr::decode(d)?),
            Call::Lookup(..) => {
                let found = Reply::Found(d.opaque()?.to_vec(), Fattr::optional(d)?);
                Fattr::optional(d)?;
                found
            }
            Call::Readlink(_) => {
                Fattr::optional(d)?;
                Reply::Target(d.opaque()?.to_vec())
            }
            Call::Read { .. } => {
                Fattr::optional(d)?;
                let count = d.u32()?;
                let eof = d.flag()?;
                let data = d.opaque()?.to_vec();
                if data.len() != count as usize {
                    return Err(format!(
                        "READ counts {count} bytes and carries {}",
                        data.len()
                    ));
                }
                Reply::Data { data, eof }
            }
            Call::Write { .. } => {
                wcc(d)?;
                Reply::Written {
                    count: d.u32()?,
                    committed: d.u32()?,
                    verifier: verifier(d)?,
                }
            }
            Call::Create(..) | Call::Mkdir(..) | Call::Symlink(..) | Call::Mknod(..) => {
                let fh = if d.flag()? {
                    Some(d.opaque()?.to_vec())
                } else {
                    None
                };
                let attr = Fattr::optional(d)?;
                wcc(d)?;
                Reply::Made(fh, attr)
            }
            Call::Readdirplus { .. } => {
                Fattr::optional(d)?;
                let verifier = verifier(d)?;
                let mut entries = Vec::new();
                while d.flag()? {
                    let (fileid, name, cookie) = (d.u64()?, d.opaque()?.to_vec(), d.u64()?);
                    let attr = Fattr::optional(d)?;
                    let fh = if d.flag()? {
                        Some(d.opaque()?.to_vec())
                    } else {
                        None
                    };
                    entries.push(Entry {
                        fileid,
                        name,
                        cookie,
                        attr,
                        fh,
                    });
                }
                Reply::Entries {
                    entries,
                    verifier,
                    eof: d.flag()?,
                }
            }
            Call::Commit { .. } => {
                wcc(d)?;
                Reply::Committed(verifier(d)?)
            }
            Call::Setattr(..) | Call::Remove(..) | Call::Rmdir(..) => {
                wcc(d)?;
                Reply::Done
            }
            Call::Rename { .. } => {
                wcc(d)?;
                wcc(d)?;
                Reply::Done
            }
            Call::Link { .. } => {
                Fattr::optional(d)?;
                wcc(d)?;
                Reply::Done
            }
        })
    }
}

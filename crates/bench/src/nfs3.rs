//! NFS version 3 and MOUNT version 3 (RFC 1813): arguments out, results in.
//!
//! Results are checked as strictly as a client can: what follows the last field,
//! a data length that differs from the count, an attribute block that is cut, are
//! all reported, because a generator that lets them pass measures a server that
//! does something else.

use crate::rpc::{self, CallPrefix, Credential};
use crate::xdr::{Reader, XdrError, padding, put_opaque, put_u32, put_u64};

/// RPC program number of NFS.
pub const NFS_PROGRAM: u32 = 100_003;
/// RPC program number of MOUNT.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both.
pub const VERSION: u32 = 3;
/// Greatest file handle (RFC 1813 §2.4), in bytes.
pub const MAX_HANDLE: usize = 64;
/// Greatest file handle of any version (`NFS4_FHSIZE`, RFC 8881 §3.2), in bytes.
const HANDLE_ROOM: usize = 128;
/// NFS3ERR_JUKEBOX: come back later (RFC 1813 §2.6).
pub const JUKEBOX: u32 = 10_008;
/// NFS3ERR_EXIST: the name exists (RFC 1813 §2.6).
pub const EXIST: u32 = 17;
/// NFS3ERR_NOTEMPTY: the directory has entries (RFC 1813 §2.6).
pub const NOTEMPTY: u32 = 66;
/// NFS3ERR_NOSPC: the device is full (RFC 1813 §2.6).
pub const NOSPC: u32 = 28;
/// NFS3ERR_DQUOT: the quota is exhausted (RFC 1813 §2.6).
pub const DQUOT: u32 = 69;
/// NFS3ERR_NOENT: no such name (RFC 1813 §2.6).
pub const NOENT: u32 = 2;

const FATTR3: usize = 84;
const MAX_NAME: u32 = 255;

/// Procedure numbers (RFC 1813 §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Proc {
    Null = 0,
    Getattr = 1,
    Setattr = 2,
    Lookup = 3,
    Access = 4,
    Read = 6,
    Write = 7,
    Create = 8,
    Mkdir = 9,
    Remove = 12,
    Rmdir = 13,
    Rename = 14,
    Readdir = 16,
    Readdirplus = 17,
    Fsstat = 18,
    Fsinfo = 19,
    Commit = 21,
}

/// The durability a WRITE asks for or a reply claims (stable_how, RFC 1813 §3.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[clap(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Stable {
    /// Data may be lost in a crash until a COMMIT.
    Unstable,
    /// Data is on stable storage before the reply.
    DataSync,
    /// Data and all metadata are on stable storage before the reply.
    FileSync,
}

impl Stable {
    /// The value on the wire; `None` for one that no version knows.
    pub fn from_wire(v: u32) -> Option<Self> {
        match v {
            0 => Some(Self::Unstable),
            1 => Some(Self::DataSync),
            2 => Some(Self::FileSync),
            _ => None,
        }
    }
}

/// A file as calls name it: its handle, kept in its XDR encoding so that a call is a copy away, and
/// the stateid of an open of it, where there is one (NFSv4).
#[derive(Clone, Copy)]
pub struct Handle {
    encoded: [u8; 4 + HANDLE_ROOM],
    len: u8,
    /// All zeros, the anonymous stateid: not open.
    state: [u8; 16],
}

impl Handle {
    /// The handle of no bytes, which no server gives out. For NFSv4, the server's root.
    pub const fn empty() -> Self {
        Self {
            encoded: [0; 4 + HANDLE_ROOM],
            len: 4,
            state: [0; 16],
        }
    }

    /// Keeps a handle; `None` when it is longer than 128 bytes.
    pub fn new(opaque: &[u8]) -> Option<Self> {
        let mut encoded = [0; 4 + HANDLE_ROOM];
        let len = u8::try_from(opaque.len()).ok()?;
        encoded
            .get_mut(..4)?
            .copy_from_slice(&u32::from(len).to_be_bytes());
        encoded
            .get_mut(4..4 + opaque.len())?
            .copy_from_slice(opaque);
        Some(Self {
            encoded,
            len: u8::try_from(4 + opaque.len() + padding(opaque.len())).ok()?,
            state: [0; 16],
        })
    }

    /// Returns the handle of this file, open with this stateid.
    #[must_use]
    pub const fn opened(self, state: [u8; 16]) -> Self {
        Self { state, ..self }
    }

    /// The stateid of its open; all zeros if it is not open.
    pub const fn state(&self) -> &[u8; 16] {
        &self.state
    }

    /// Returns true if the file is open.
    pub fn is_open(&self) -> bool {
        self.state != [0; 16]
    }

    /// Returns true if it is the handle of no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 4
    }

    /// The handle's XDR encoding.
    pub fn xdr(&self) -> &[u8] {
        self.encoded
            .get(..usize::from(self.len))
            .unwrap_or(&self.encoded)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({} bytes)", self.len - 4)
    }
}

/// A generated file name: a letter and a number, always 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// The family the name belongs to.
    pub letter: u8,
    /// Its number within the family.
    pub number: u64,
}

impl Name {
    /// The 16 bytes of the name: the letter and 15 hexadecimal digits.
    pub fn bytes(self) -> [u8; 16] {
        let mut out = [self.letter; 16];
        let mut n = self.number;
        for b in out.iter_mut().skip(1).rev() {
            let digit = (n & 15) as u8;
            *b = if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            };
            n >>= 4;
        }
        out
    }
}

/// Encodes calls for one user.
#[derive(Debug, Clone)]
pub struct Calls {
    prefixes: Vec<CallPrefix>,
}

impl Calls {
    /// Prepares the beginnings of all procedures' calls.
    pub fn new(cred: Option<&Credential>) -> Self {
        Self {
            prefixes: (0..22)
                .map(|p| CallPrefix::new(NFS_PROGRAM, VERSION, p, cred))
                .collect(),
        }
    }

    fn call(
        &self,
        out: &mut Vec<u8>,
        xid: u32,
        proc: Proc,
        detached: usize,
        args: impl FnOnce(&mut Vec<u8>),
    ) {
        // Proc's numbers are all below 22.
        if let Some(prefix) = self.prefixes.get(proc as usize) {
            let start = prefix.begin(out, xid);
            args(out);
            rpc::finish(out, start, detached);
        }
    }

    /// NULL: does nothing.
    pub fn null(&self, out: &mut Vec<u8>, xid: u32) {
        self.call(out, xid, Proc::Null, 0, |_| {});
    }

    /// GETATTR, FSSTAT or FSINFO, which take a handle and nothing else.
    pub fn of_handle(&self, out: &mut Vec<u8>, xid: u32, proc: Proc, fh: &Handle) {
        self.call(out, xid, proc, 0, |o| o.extend_from_slice(fh.xdr()));
    }

    /// SETATTR of the mode, whenever the file was changed last.
    pub fn set_mode(&self, out: &mut Vec<u8>, xid: u32, fh: &Handle, mode: u32) {
        self.call(out, xid, Proc::Setattr, 0, |o| {
            o.extend_from_slice(fh.xdr());
            put_sattr(o, mode);
            put_u32(o, 0);
        });
    }

    /// ACCESS for the given bits.
    pub fn access(&self, out: &mut Vec<u8>, xid: u32, fh: &Handle, bits: u32) {
        self.call(out, xid, Proc::Access, 0, |o| {
            o.extend_from_slice(fh.xdr());
            put_u32(o, bits);
        });
    }

    /// READ of `count` bytes at `offset`.
    pub fn read(&self, out: &mut Vec<u8>, xid: u32, fh: &Handle, offset: u64, count: u32) {
        self.call(out, xid, Proc::Read, 0, |o| {
            o.extend_from_slice(fh.xdr());
            put_u64(o, offset);
            put_u32(o, count);
        });
    }

    /// WRITE up to and including the data's length; the caller sends `count` bytes
    /// after it. `count` is a multiple of four, so no padding follows.
    pub fn write_head(
        &self,
        out: &mut Vec<u8>,
        xid: u32,
        fh: &Handle,
        offset: u64,
        count: u32,
        stable: Stable,
    ) {
        self.call(out, xid, Proc::Write, count as usize, |o| {
            o.extend_from_slice(fh.xdr());
            put_u64(o, offset);
            put_u32(o, count);
            put_u32(o, stable as u32);
            put_u32(o, count);
        });
    }

    /// COMMIT of the whole file.
    pub fn commit(&self, out: &mut Vec<u8>, xid: u32, fh: &Handle) {
        self.call(out, xid, Proc::Commit, 0, |o| {
            o.extend_from_slice(fh.xdr());
            put_u64(o, 0);
            put_u32(o, 0);
        });
    }

    /// LOOKUP, REMOVE or RMDIR, which take a directory and a name.
    pub fn of_name(&self, out: &mut Vec<u8>, xid: u32, proc: Proc, dir: &Handle, name: &[u8]) {
        self.call(out, xid, proc, 0, |o| {
            o.extend_from_slice(dir.xdr());
            put_opaque(o, name);
        });
    }

    /// CREATE, guarded, with mode 0644.
    pub fn create(&self, out: &mut Vec<u8>, xid: u32, dir: &Handle, name: &[u8]) {
        self.call(out, xid, Proc::Create, 0, |o| {
            o.extend_from_slice(dir.xdr());
            put_opaque(o, name);
            put_u32(o, 1);
            put_sattr(o, 0o644);
        });
    }

    /// MKDIR with mode 0755.
    pub fn mkdir(&self, out: &mut Vec<u8>, xid: u32, dir: &Handle, name: &[u8]) {
        self.call(out, xid, Proc::Mkdir, 0, |o| {
            o.extend_from_slice(dir.xdr());
            put_opaque(o, name);
            put_sattr(o, 0o755);
        });
    }

    /// RENAME within or across directories.
    pub fn rename(
        &self,
        out: &mut Vec<u8>,
        xid: u32,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) {
        self.call(out, xid, Proc::Rename, 0, |o| {
            o.extend_from_slice(from.0.xdr());
            put_opaque(o, from.1);
            o.extend_from_slice(to.0.xdr());
            put_opaque(o, to.1);
        });
    }

    /// READDIR, or READDIRPLUS with `plus`, with room for `count` bytes of reply.
    pub fn readdir(
        &self,
        out: &mut Vec<u8>,
        xid: u32,
        dir: &Handle,
        position: (u64, [u8; 8]),
        count: u32,
        plus: bool,
    ) {
        let proc = if plus {
            Proc::Readdirplus
        } else {
            Proc::Readdir
        };
        self.call(out, xid, proc, 0, |o| {
            o.extend_from_slice(dir.xdr());
            put_u64(o, position.0);
            o.extend_from_slice(&position.1);
            if plus {
                put_u32(o, count / 4);
            }
            put_u32(o, count);
        });
    }
}

/// sattr3 that sets the mode and nothing else.
fn put_sattr(out: &mut Vec<u8>, mode: u32) {
    put_u32(out, 1);
    put_u32(out, mode);
    for _ in 0..5 {
        put_u32(out, 0);
    }
}

/// Skips a post_op_attr (RFC 1813 §2.6).
fn attributes(r: &mut Reader<'_>) -> Result<(), XdrError> {
    if r.bool()? {
        r.fixed(FATTR3)?;
    }
    Ok(())
}

/// Skips a wcc_data (RFC 1813 §2.6).
fn wcc(r: &mut Reader<'_>) -> Result<(), XdrError> {
    if r.bool()? {
        r.fixed(24)?;
    }
    attributes(r)
}

fn handle(r: &mut Reader<'_>) -> Result<Handle, XdrError> {
    let bytes = r.opaque(MAX_HANDLE as u32)?;
    Handle::new(bytes).ok_or(XdrError::Truncated)
}

/// The beginning of a successful READ's results; the data follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadHead {
    /// Bytes the server says it read.
    pub count: u32,
    /// True if the file ends behind them.
    pub eof: bool,
    /// Bytes of data that follow.
    pub data_len: u32,
}

/// Takes a successful READ's results up to the data.
pub fn read_head(r: &mut Reader<'_>) -> Result<ReadHead, XdrError> {
    attributes(r)?;
    Ok(ReadHead {
        count: r.u32()?,
        eof: r.bool()?,
        data_len: r.u32()?,
    })
}

/// A successful WRITE's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteReply {
    /// Bytes that the server has written.
    pub count: u32,
    /// The durability they have; `None` for a value that RFC 1813 does not know.
    pub committed: Option<Stable>,
    /// The server's write verifier.
    pub verifier: [u8; 8],
}

/// Takes a successful WRITE's results.
pub fn written(r: &mut Reader<'_>) -> Result<WriteReply, XdrError> {
    wcc(r)?;
    Ok(WriteReply {
        count: r.u32()?,
        committed: Stable::from_wire(r.u32()?),
        verifier: r.verifier()?,
    })
}

/// Takes a successful COMMIT's results: the write verifier.
pub fn committed(r: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
    wcc(r)?;
    r.verifier()
}

/// Takes a successful CREATE's or MKDIR's results: the handle, if the server gave it.
pub fn created(r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
    let fh = if r.bool()? { Some(handle(r)?) } else { None };
    attributes(r)?;
    wcc(r)?;
    Ok(fh)
}

/// Takes a successful LOOKUP's results.
pub fn found(r: &mut Reader<'_>) -> Result<Handle, XdrError> {
    let fh = handle(r)?;
    attributes(r)?;
    attributes(r)?;
    Ok(fh)
}

/// Takes a successful GETATTR's results: size in bytes and file id.
pub fn got_attributes(r: &mut Reader<'_>) -> Result<(u64, u64), XdrError> {
    r.fixed(20)?;
    let size = r.u64()?;
    r.fixed(24)?;
    let fileid = r.u64()?;
    r.fixed(24)?;
    Ok((size, fileid))
}

/// Takes a successful SETATTR's results.
pub fn mode_set(r: &mut Reader<'_>) -> Result<(), XdrError> {
    wcc(r)
}

/// Takes a successful ACCESS's results: the bits granted.
pub fn accessed(r: &mut Reader<'_>) -> Result<u32, XdrError> {
    attributes(r)?;
    r.u32()
}

/// Takes a successful REMOVE's or RMDIR's results.
pub fn removed(r: &mut Reader<'_>) -> Result<(), XdrError> {
    wcc(r)
}

/// Takes a successful RENAME's results.
pub fn renamed(r: &mut Reader<'_>) -> Result<(), XdrError> {
    wcc(r)?;
    wcc(r)
}

/// One reply of a directory listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListingReply {
    /// Entries in this reply.
    pub entries: u32,
    /// Position of the next call: last cookie and the cookie verifier.
    pub position: (u64, [u8; 8]),
    /// True if the listing is complete.
    pub eof: bool,
}

/// Takes a successful READDIR's or READDIRPLUS's results.
pub fn listed(r: &mut Reader<'_>, plus: bool) -> Result<ListingReply, XdrError> {
    attributes(r)?;
    let verifier = r.verifier()?;
    let mut entries = 0;
    let mut cookie = 0;
    while r.bool()? {
        r.u64()?;
        r.opaque(MAX_NAME)?;
        cookie = r.u64()?;
        if plus {
            attributes(r)?;
            if r.bool()? {
                r.opaque(MAX_HANDLE as u32)?;
            }
        }
        entries += 1;
    }
    Ok(ListingReply {
        entries,
        position: (cookie, verifier),
        eof: r.bool()?,
    })
}

/// Properties of the server (RFC 1813 §3.3.19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Fsinfo {
    /// Greatest READ, in bytes.
    pub rtmax: u32,
    /// Greatest WRITE, in bytes.
    pub wtmax: u32,
    /// Preferred READDIR size, in bytes.
    pub dtpref: u32,
}

/// Takes a successful FSINFO's results.
pub fn fsinfo(r: &mut Reader<'_>) -> Result<Fsinfo, XdrError> {
    attributes(r)?;
    let rtmax = r.u32()?;
    r.fixed(8)?;
    let wtmax = r.u32()?;
    r.fixed(8)?;
    let dtpref = r.u32()?;
    r.fixed(8 + 8 + 4)?;
    Ok(Fsinfo {
        rtmax,
        wtmax,
        dtpref,
    })
}

/// Takes a successful FSSTAT's results: the bytes free for the caller (RFC 1813 §3.3.18).
pub fn fsstat(r: &mut Reader<'_>) -> Result<u64, XdrError> {
    attributes(r)?;
    r.fixed(8 + 8)?;
    let available = r.u64()?;
    r.fixed(8 + 8 + 8 + 4)?;
    Ok(available)
}

/// Takes a successful MNT's results: the export's root (RFC 1813 §5.2.1).
pub fn mounted(r: &mut Reader<'_>) -> Result<Handle, XdrError> {
    let fh = handle(r)?;
    for _ in 0..r.u32()? {
        r.u32()?;
    }
    Ok(fh)
}

/// The name RFC 1813 gives to a status, for messages.
pub fn status_name(status: u32) -> &'static str {
    match status {
        0 => "NFS3_OK",
        1 => "NFS3ERR_PERM",
        2 => "NFS3ERR_NOENT",
        5 => "NFS3ERR_IO",
        6 => "NFS3ERR_NXIO",
        13 => "NFS3ERR_ACCES",
        17 => "NFS3ERR_EXIST",
        18 => "NFS3ERR_XDEV",
        19 => "NFS3ERR_NODEV",
        20 => "NFS3ERR_NOTDIR",
        21 => "NFS3ERR_ISDIR",
        22 => "NFS3ERR_INVAL",
        27 => "NFS3ERR_FBIG",
        28 => "NFS3ERR_NOSPC",
        30 => "NFS3ERR_ROFS",
        31 => "NFS3ERR_MLINK",
        63 => "NFS3ERR_NAMETOOLONG",
        66 => "NFS3ERR_NOTEMPTY",
        69 => "NFS3ERR_DQUOT",
        70 => "NFS3ERR_STALE",
        71 => "NFS3ERR_REMOTE",
        10_001 => "NFS3ERR_BADHANDLE",
        10_002 => "NFS3ERR_NOT_SYNC",
        10_003 => "NFS3ERR_BAD_COOKIE",
        10_004 => "NFS3ERR_NOTSUPP",
        10_005 => "NFS3ERR_TOOSMALL",
        10_006 => "NFS3ERR_SERVERFAULT",
        10_007 => "NFS3ERR_BADTYPE",
        10_008 => "NFS3ERR_JUKEBOX",
        other => crate::nfs4::results::status_name(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(out: &[u8], prefix: usize) -> Reader<'_> {
        let mut r = Reader::new(out);
        r.fixed(prefix).unwrap();
        r
    }

    #[test]
    fn arguments_are_laid_out_as_rfc_1813_says() {
        let calls = Calls::new(None);
        let fh = Handle::new(&[9; 5]).unwrap();
        // Without credential a call's beginning has 4 + 10 * 4 bytes.
        let mut out = Vec::new();
        calls.read(&mut out, 1, &fh, 1 << 33, 4096);
        let mut r = body(&out, 44);
        assert_eq!(r.opaque(64), Ok(&[9u8; 5][..]));
        assert_eq!((r.u64(), r.u32()), (Ok(1 << 33), Ok(4096)));
        assert!(r.rest().is_empty());

        out.clear();
        calls.write_head(&mut out, 1, &fh, 512, 4096, Stable::FileSync);
        let mark = Reader::new(&out).u32().unwrap() & !rpc::LAST_FRAGMENT;
        assert_eq!(mark as usize, out.len() - 4 + 4096);
        let mut r = body(&out, 44);
        r.opaque(64).unwrap();
        assert_eq!(r.u64(), Ok(512));
        assert_eq!((r.u32(), r.u32(), r.u32()), (Ok(4096), Ok(2), Ok(4096)));

        out.clear();
        calls.set_mode(&mut out, 1, &fh, 0o600);
        let mut r = body(&out, 44);
        r.opaque(64).unwrap();
        let words: Vec<u32> = (0..8).map(|_| r.u32().unwrap()).collect();
        assert_eq!(words, [1, 0o600, 0, 0, 0, 0, 0, 0]);
        assert!(r.rest().is_empty());

        out.clear();
        calls.create(&mut out, 1, &fh, b"abc");
        let mut r = body(&out, 44);
        r.opaque(64).unwrap();
        assert_eq!(r.opaque(255), Ok(&b"abc"[..]));
        let words: Vec<u32> = (0..8).map(|_| r.u32().unwrap()).collect();
        assert_eq!(words, [1, 1, 0o644, 0, 0, 0, 0, 0]);
        assert!(r.rest().is_empty());
    }

    #[test]
    fn results_are_read_to_their_last_byte() {
        let mut b = Vec::new();
        put_u32(&mut b, 1);
        b.extend_from_slice(&[0; 84]);
        for v in [4096, 0, 4096] {
            put_u32(&mut b, v);
        }
        let mut r = Reader::new(&b);
        let head = read_head(&mut r).unwrap();
        assert_eq!(
            head,
            ReadHead {
                count: 4096,
                eof: false,
                data_len: 4096
            }
        );
        assert!(r.rest().is_empty());
        for cut in 0..b.len() {
            assert!(read_head(&mut Reader::new(&b[..cut])).is_err());
        }

        let mut b = Vec::new();
        put_u32(&mut b, 1);
        b.extend_from_slice(&[0; 24]);
        put_u32(&mut b, 0);
        put_u32(&mut b, 8192);
        put_u32(&mut b, 1);
        b.extend_from_slice(b"verifier");
        let w = written(&mut Reader::new(&b)).unwrap();
        assert_eq!(w.count, 8192);
        assert_eq!(w.committed, Some(Stable::DataSync));
        assert_eq!(&w.verifier, b"verifier");
        assert!(w.committed < Some(Stable::FileSync));
    }

    #[test]
    fn a_listing_is_walked() {
        let mut b = Vec::new();
        put_u32(&mut b, 0);
        b.extend_from_slice(b"cookievf");
        for i in 1..=3u64 {
            put_u32(&mut b, 1);
            put_u64(&mut b, i);
            put_opaque(&mut b, &vec![b'n'; i as usize]);
            put_u64(&mut b, i * 10);
            put_u32(&mut b, 0);
            put_u32(&mut b, 1);
            put_opaque(&mut b, &[1; 32]);
        }
        put_u32(&mut b, 0);
        put_u32(&mut b, 1);
        let l = listed(&mut Reader::new(&b), true).unwrap();
        assert_eq!(
            l,
            ListingReply {
                entries: 3,
                position: (30, *b"cookievf"),
                eof: true
            }
        );
    }

    #[test]
    fn names_are_distinct_and_of_one_length() {
        let a = Name {
            letter: b'f',
            number: 0xabc,
        };
        assert_eq!(&a.bytes(), b"f000000000000abc");
        assert_eq!(Handle::new(&[0; 129]).map(|_| ()), None);
    }
}

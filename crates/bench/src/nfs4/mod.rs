//! NFS version 4.1 and 4.2 (RFC 8881, RFC 7862): COMPOUNDs as the Linux client builds them.
//!
//! | call of the load | operations behind SEQUENCE |
//! |---|---|
//! | READ | PUTFH READ |
//! | WRITE | PUTFH WRITE GETATTR (change, size, times: what a buffered write asks for) |
//! | COMMIT | PUTFH COMMIT |
//! | GETATTR | PUTFH GETATTR |
//! | ACCESS | PUTFH ACCESS GETATTR |
//! | LOOKUP | PUTFH LOOKUP GETFH GETATTR |
//! | CREATE | PUTFH OPEN GETFH ACCESS GETATTR, and at the file's end PUTFH CLOSE GETATTR |
//! | MKDIR | PUTFH CREATE GETFH GETATTR |
//! | REMOVE, RMDIR | PUTFH REMOVE |
//! | RENAME | PUTFH SAVEFH PUTFH RENAME |
//! | READDIR(PLUS) | PUTFH READDIR |
//!
//! `sa_cachethis` is set where Linux sets it: for what changes names or state, and COMMIT. READs
//! and WRITEs go by the stateid of an open, with the sequence number 0 (fs/nfs/nfs4state.c); opens
//! ask for no delegation, because the generator has no back channel.
//!
//! | part | what |
//! |---|---|
//! | this | encoding |
//! | [`results`] | decoding |
//! | [`client`] | EXCHANGE_ID to DESTROY_CLIENTID, walk to the export, opening the working set |
//!
//! Written apart from the server's codec on purpose, as [`crate::xdr`] is.

pub mod client;
pub mod results;

pub use client::Client;

use crate::nfs3::{Fsinfo, Handle, ListingReply, NFS_PROGRAM, Proc, ReadHead, Stable, WriteReply};
use crate::rpc::{self, CallPrefix, Credential};
use crate::wire::{Head, Id, Turn, Wire};
use crate::xdr::{Reader, XdrError, put_opaque, put_u32, put_u64, put_words};
use results::Mask;

/// The version of the program.
pub const VERSION: u32 = 4;
/// NFS4ERR_GRACE: reclaims only, for now (RFC 8881 §15.1.9.2).
pub const GRACE: u32 = 10_013;
/// NFS4ERR_DELAY: come back later (RFC 8881 §15.1.1.3).
pub const DELAY: u32 = 10_008;

/// Numbers of operations (RFC 8881 §16.2.1).
pub mod op {
    #![allow(missing_docs)] // The names are the protocol's.
    pub const ACCESS: u32 = 3;
    pub const CLOSE: u32 = 4;
    pub const COMMIT: u32 = 5;
    pub const CREATE: u32 = 6;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LOOKUP: u32 = 15;
    pub const OPEN: u32 = 18;
    pub const PUTFH: u32 = 22;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const READDIR: u32 = 26;
    pub const REMOVE: u32 = 28;
    pub const RENAME: u32 = 29;
    pub const SAVEFH: u32 = 32;
    pub const SETATTR: u32 = 34;
    pub const WRITE: u32 = 38;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const DESTROY_SESSION: u32 = 44;
    pub const SEQUENCE: u32 = 53;
    pub const DESTROY_CLIENTID: u32 = 57;
    pub const RECLAIM_COMPLETE: u32 = 58;
}

/// OPEN4_SHARE_ACCESS_BOTH, with OPEN4_SHARE_ACCESS_WANT_NO_DELEG (RFC 8881 §18.16.1).
const READ_AND_WRITE: u32 = 3 | 0x0400;
/// The open owner of all opens.
const OWNER: &[u8] = b"weir-bench";
/// The stateid of the OPEN before in the same COMPOUND (RFC 8881 §8.2.3).
const CURRENT: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Distance of the number of operations from the end of a COMPOUND's beginning:
/// itself, SEQUENCE, the session id.
const COUNT_BEFORE_END: usize = 4 + 4 + 16;
/// All bits of ACCESS that an OPEN of Linux asks for: READ, MODIFY, EXTEND, EXECUTE.
const OPEN_ACCESS: u32 = 0x2d;

/// A session, with what its calls begin with.
#[derive(Debug, Clone)]
pub struct Session {
    null: CallPrefix,
    /// Up to the session id of SEQUENCE.
    compound: CallPrefix,
    client: u64,
    id: [u8; 16],
    slots: u32,
}

impl Session {
    fn new(cred: Option<&Credential>, minor: u32, client: u64, id: [u8; 16], slots: u32) -> Self {
        let mut sequence = Vec::new();
        // An empty tag; as many operations as each call has.
        put_words(&mut sequence, [0, minor, 0, op::SEQUENCE]);
        sequence.extend_from_slice(&id);
        Self {
            null: CallPrefix::new(NFS_PROGRAM, VERSION, 0, cred),
            compound: CallPrefix::new(NFS_PROGRAM, VERSION, 1, cred).followed_by(&sequence),
            client,
            id,
            slots,
        }
    }

    /// Slots that the server granted.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// A COMPOUND of `count` operations behind SEQUENCE. `detached` bytes follow on the wire.
    fn compound(
        &self,
        out: &mut Vec<u8>,
        id: Id,
        (count, cached): (u32, bool),
        detached: usize,
        operations: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.compound.begin(out, id.xid);
        let behind = out.len() - COUNT_BEFORE_END;
        if let Some(place) = out.get_mut(behind..behind + 4) {
            place.copy_from_slice(&(count + 1).to_be_bytes());
        }
        let Turn { sequence, slot } = id.turn;
        put_words(out, [sequence, slot, self.slots - 1, u32::from(cached)]);
        operations(out);
        rpc::finish(out, start, detached);
    }

    /// OPEN of a file by its handle, for reading and writing.
    fn open(&self, out: &mut Vec<u8>, id: Id, fh: &Handle) {
        const CLAIM_FH: u32 = 4;
        self.compound(out, id, (4, true), 0, |o| {
            put_fh(o, fh);
            self.put_open_head(o);
            put_words(o, [0, CLAIM_FH]);
            put_access(o, OPEN_ACCESS);
            put_getattr(o, Mask::ALL);
        });
    }

    /// OPEN up to its owner.
    fn put_open_head(&self, o: &mut Vec<u8>) {
        put_words(o, [op::OPEN, 0, READ_AND_WRITE, 0]);
        put_u64(o, self.client);
        put_opaque(o, OWNER);
    }

    /// OPEN that creates the file, guarded, with mode 0644.
    fn put_open_new(&self, o: &mut Vec<u8>, name: &[u8]) {
        const CREATE: u32 = 1;
        const GUARDED: u32 = 1;
        const CLAIM_NULL: u32 = 0;
        self.put_open_head(o);
        put_words(o, [CREATE, GUARDED]);
        put_mode(o, 0o644);
        put_u32(o, CLAIM_NULL);
        put_opaque(o, name);
    }
}

/// PUTFH, or PUTROOTFH for the handle of no bytes.
fn put_fh(o: &mut Vec<u8>, fh: &Handle) {
    if fh.is_empty() {
        return put_u32(o, op::PUTROOTFH);
    }
    put_u32(o, op::PUTFH);
    o.extend_from_slice(fh.xdr());
}

fn put_getattr(o: &mut Vec<u8>, mask: Mask) {
    let [first, second] = mask.words();
    put_words(o, [op::GETATTR, 2, first, second]);
}

fn put_access(o: &mut Vec<u8>, bits: u32) {
    put_words(o, [op::ACCESS, bits]);
}

/// An operation whose argument is a name.
fn put_named(o: &mut Vec<u8>, operation: u32, name: &[u8]) {
    put_u32(o, operation);
    put_opaque(o, name);
}

/// fattr4 with the mode and nothing else.
fn put_mode(o: &mut Vec<u8>, mode: u32) {
    Mask::MODE.put(o);
    put_u32(o, 4);
    put_u32(o, mode);
}

/// READ or WRITE up to the offset. In the stateid the sequence number 0 means the newest (RFC 8881
/// §8.2.2).
fn put_data_head(o: &mut Vec<u8>, operation: u32, fh: &Handle, offset: u64) {
    let mut head = [0; 28];
    head[..4].copy_from_slice(&operation.to_be_bytes());
    head[8..20].copy_from_slice(&fh.state()[4..]);
    head[20..].copy_from_slice(&offset.to_be_bytes());
    o.extend_from_slice(&head);
}

impl Wire for Session {
    fn null(&self, out: &mut Vec<u8>, id: Id) {
        let start = self.null.begin(out, id.xid);
        rpc::finish(out, start, 0);
    }

    fn of_handle(&self, out: &mut Vec<u8>, id: Id, proc: Proc, fh: &Handle) {
        let mask = match proc {
            Proc::Fsinfo => Mask::LIMITS,
            Proc::Fsstat => Mask::SPACE,
            _ => Mask::ALL,
        };
        self.compound(out, id, (2, false), 0, |o| {
            put_fh(o, fh);
            put_getattr(o, mask);
        });
    }

    fn set_mode(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, mode: u32) {
        self.compound(out, id, (3, true), 0, |o| {
            put_fh(o, fh);
            put_u32(o, op::SETATTR);
            // The anonymous stateid: the mode is no matter of an open (RFC 8881 §18.30.3).
            o.extend_from_slice(&[0; 16]);
            put_mode(o, mode);
            put_getattr(o, Mask::CONSISTENCY);
        });
    }

    fn access(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, bits: u32) {
        self.compound(out, id, (3, false), 0, |o| {
            put_fh(o, fh);
            put_access(o, bits);
            put_getattr(o, Mask::ALL);
        });
    }

    fn read(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, offset: u64, count: u32) {
        self.compound(out, id, (2, false), 0, |o| {
            put_fh(o, fh);
            put_data_head(o, op::READ, fh, offset);
            put_u32(o, count);
        });
    }

    fn write_head(
        &self,
        out: &mut Vec<u8>,
        id: Id,
        fh: &Handle,
        offset: u64,
        count: u32,
        stable: Stable,
    ) {
        let tail = 4 + Mask::BYTES;
        self.compound(out, id, (3, false), count as usize + tail, |o| {
            put_fh(o, fh);
            put_data_head(o, op::WRITE, fh, offset);
            put_words(o, [stable as u32, count]);
        });
    }

    fn write_tail(&self, out: &mut Vec<u8>) {
        put_getattr(out, Mask::CONSISTENCY);
    }

    fn commit(&self, out: &mut Vec<u8>, id: Id, fh: &Handle) {
        self.compound(out, id, (2, true), 0, |o| {
            put_fh(o, fh);
            put_words(o, [op::COMMIT, 0, 0, 0]);
        });
    }

    fn of_name(&self, out: &mut Vec<u8>, id: Id, proc: Proc, dir: &Handle, name: &[u8]) {
        if proc != Proc::Lookup {
            return self.compound(out, id, (2, true), 0, |o| {
                put_fh(o, dir);
                put_named(o, op::REMOVE, name);
            });
        }
        self.compound(out, id, (4, false), 0, |o| {
            put_fh(o, dir);
            put_named(o, op::LOOKUP, name);
            put_u32(o, op::GETFH);
            put_getattr(o, Mask::ALL);
        });
    }

    fn create(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        self.compound(out, id, (5, true), 0, |o| {
            put_fh(o, dir);
            self.put_open_new(o, name);
            put_u32(o, op::GETFH);
            put_access(o, OPEN_ACCESS);
            put_getattr(o, Mask::ALL);
        });
    }

    fn make(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        self.compound(out, id, (4, true), 0, |o| {
            put_fh(o, dir);
            self.put_open_new(o, name);
            put_words(o, [op::GETFH, op::CLOSE, 0]);
            o.extend_from_slice(&CURRENT);
        });
    }

    fn close(&self, out: &mut Vec<u8>, id: Id, fh: &Handle) {
        self.compound(out, id, (3, true), 0, |o| {
            put_fh(o, fh);
            put_words(o, [op::CLOSE, 0]);
            o.extend_from_slice(fh.state());
            put_getattr(o, Mask::CONSISTENCY);
        });
    }

    fn mkdir(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        const NF4DIR: u32 = 2;
        self.compound(out, id, (4, true), 0, |o| {
            put_fh(o, dir);
            put_words(o, [op::CREATE, NF4DIR]);
            put_opaque(o, name);
            put_mode(o, 0o755);
            put_u32(o, op::GETFH);
            put_getattr(o, Mask::ALL);
        });
    }

    fn rename(&self, out: &mut Vec<u8>, id: Id, from: (&Handle, &[u8]), to: (&Handle, &[u8])) {
        self.compound(out, id, (4, true), 0, |o| {
            put_fh(o, from.0);
            put_u32(o, op::SAVEFH);
            put_fh(o, to.0);
            put_named(o, op::RENAME, from.1);
            put_opaque(o, to.1);
        });
    }

    fn readdir(
        &self,
        out: &mut Vec<u8>,
        id: Id,
        dir: &Handle,
        position: (u64, [u8; 8]),
        count: u32,
        plus: bool,
    ) {
        let mask = if plus { Mask::ENTRIES } else { Mask::NAMES };
        self.compound(out, id, (2, false), 0, |o| {
            put_fh(o, dir);
            put_u32(o, op::READDIR);
            put_u64(o, position.0);
            o.extend_from_slice(&position.1);
            // The share of names, as the client guesses it.
            put_u32(o, if plus { count / 2 } else { count });
            put_u32(o, count);
            mask.put(o);
        });
    }

    fn head(&self, r: &mut Reader<'_>, turn: Turn) -> Result<Head, XdrError> {
        results::head(r, &self.id, turn)
    }

    fn again(&self, status: u32) -> bool {
        matches!(status, DELAY | GRACE)
    }

    fn read_head(&self, r: &mut Reader<'_>) -> Result<ReadHead, XdrError> {
        results::read_head(r)
    }

    fn written(&self, r: &mut Reader<'_>) -> Result<WriteReply, XdrError> {
        let written = results::written(r)?;
        results::attributes(r, Mask::CONSISTENCY)?;
        Ok(written)
    }

    fn committed(&self, r: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
        results::ok(r, op::COMMIT)?;
        r.verifier()
    }

    fn found(&self, r: &mut Reader<'_>) -> Result<Handle, XdrError> {
        results::ok(r, op::LOOKUP)?;
        let fh = results::got_handle(r)?;
        results::attributes(r, Mask::ALL)?;
        Ok(fh)
    }

    fn created(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        let state = results::opened(r)?;
        let fh = results::got_handle(r)?;
        results::accessed(r)?;
        results::attributes(r, Mask::ALL)?;
        Ok(Some(fh.opened(state)))
    }

    fn made(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        results::opened(r)?;
        let fh = results::got_handle(r)?;
        results::closed(r)?;
        Ok(Some(fh))
    }

    fn closed(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        results::closed(r)?;
        results::attributes(r, Mask::CONSISTENCY)?;
        Ok(())
    }

    fn made_directory(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        results::ok(r, op::CREATE)?;
        results::change(r)?;
        Mask::take(r)?;
        let fh = results::got_handle(r)?;
        results::attributes(r, Mask::ALL)?;
        Ok(Some(fh))
    }

    fn got_attributes(&self, r: &mut Reader<'_>) -> Result<(u64, u64), XdrError> {
        results::size_and_fileid(r)
    }

    fn mode_set(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        results::ok(r, op::SETATTR)?;
        Mask::take(r)?;
        results::attributes(r, Mask::CONSISTENCY)?;
        Ok(())
    }

    fn accessed(&self, r: &mut Reader<'_>) -> Result<u32, XdrError> {
        let granted = results::accessed(r)?;
        results::attributes(r, Mask::ALL)?;
        Ok(granted)
    }

    fn removed(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        results::ok(r, op::REMOVE)?;
        results::change(r)
    }

    fn renamed(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        results::ok(r, op::RENAME)?;
        results::change(r)?;
        results::change(r)
    }

    fn listed(&self, r: &mut Reader<'_>, plus: bool) -> Result<ListingReply, XdrError> {
        results::listed(r, if plus { Mask::ENTRIES } else { Mask::NAMES })
    }

    fn fsinfo(&self, r: &mut Reader<'_>) -> Result<Fsinfo, XdrError> {
        results::limits(r)
    }

    fn fsstat(&self, r: &mut Reader<'_>) -> Result<u64, XdrError> {
        results::space(r)
    }
}

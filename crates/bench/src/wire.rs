//! Interface of loads to a protocol: calls encoded, results taken apart.
//!
//! The loads ([`mod@crate::load`]), the working set ([`crate::working_set`]) and the calls before
//! and after a measurement ([`crate::control`]) are written once, over [`Wire`]; [`crate::nfs3`]
//! and [`crate::nfs4`] implement it. So both versions get the same operations on the same files in
//! the same order, and what differs between two runs is the protocol.
//!
//! A call over version 4 occupies a slot of its session with a number that grows by one for each
//! call (RFC 8881 §2.10.6). Both are a [`Turn`], which the caller keeps; version 3 ignores it. The
//! dynamic dispatch costs 2 ns a call beside the 300 ns and more that a call costs the generator.

use crate::nfs3::{self, Calls, Fsinfo, Handle, ListingReply, Proc, ReadHead, Stable, WriteReply};
use crate::xdr::{Reader, XdrError};

/// A call's place in its session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// The slot.
    pub slot: u32,
    /// The call's number in the slot, from 1.
    pub sequence: u32,
}

/// Identity of a call on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The RPC transaction id.
    pub xid: u32,
    /// The place in the session.
    pub turn: Turn,
}

/// The beginning of a reply's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// nfsstat3 or nfsstat4: of the COMPOUND, which is that of its last operation.
    pub status: u32,
    /// True if the call used up its number in the slot. Version 3: always.
    pub sequenced: bool,
}

/// A protocol's calls and results. Results are checked as strictly as a client can.
///
/// Every encoder appends one record to `out`, record mark included. Every decoder takes the results
/// of a call that succeeded, behind what [`Wire::head`] took, and fails with [`XdrError`] where
/// they are not what the call asked for.
pub trait Wire: Send + Sync {
    /// NULL: does nothing, and has no results.
    fn null(&self, out: &mut Vec<u8>, id: Id);
    /// GETATTR, FSSTAT or FSINFO.
    fn of_handle(&self, out: &mut Vec<u8>, id: Id, proc: Proc, fh: &Handle);
    /// SETATTR of the mode.
    fn set_mode(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, mode: u32);
    /// ACCESS for the given bits (RFC 1813 §3.3.4, RFC 8881 §18.1).
    fn access(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, bits: u32);
    /// READ of `count` bytes at `offset`.
    fn read(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, offset: u64, count: u32);
    /// WRITE up to and including the data's length; `count` bytes, a multiple of four, follow on
    /// the wire, and then [`Wire::write_tail`].
    fn write_head(
        &self,
        out: &mut Vec<u8>,
        id: Id,
        fh: &Handle,
        offset: u64,
        count: u32,
        stable: Stable,
    );
    /// Appends what follows the data of a WRITE.
    fn write_tail(&self, out: &mut Vec<u8>);
    /// COMMIT of the whole file.
    fn commit(&self, out: &mut Vec<u8>, id: Id, fh: &Handle);
    /// LOOKUP, REMOVE or RMDIR.
    fn of_name(&self, out: &mut Vec<u8>, id: Id, proc: Proc, dir: &Handle, name: &[u8]);
    /// CREATE, guarded, with mode 0644. Where files are opened, the file is open afterwards.
    fn create(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]);
    /// As [`Wire::create`], but the file is not open afterwards.
    fn make(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]);
    /// CLOSE of a file that is open.
    fn close(&self, out: &mut Vec<u8>, id: Id, fh: &Handle);
    /// MKDIR with mode 0755.
    fn mkdir(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]);
    /// RENAME.
    fn rename(&self, out: &mut Vec<u8>, id: Id, from: (&Handle, &[u8]), to: (&Handle, &[u8]));
    /// READDIR, with attributes and handles if `plus`, with room for `count` bytes of reply.
    fn readdir(
        &self,
        out: &mut Vec<u8>,
        id: Id,
        dir: &Handle,
        position: (u64, [u8; 8]),
        count: u32,
        plus: bool,
    );

    /// Takes the results up to those of the operation itself.
    fn head(&self, r: &mut Reader<'_>, turn: Turn) -> Result<Head, XdrError>;
    /// Returns true if a call with this status is to be sent again later.
    fn again(&self, status: u32) -> bool;
    /// READ's results up to the data.
    fn read_head(&self, r: &mut Reader<'_>) -> Result<ReadHead, XdrError>;
    /// WRITE's results.
    fn written(&self, r: &mut Reader<'_>) -> Result<WriteReply, XdrError>;
    /// COMMIT's results: the write verifier.
    fn committed(&self, r: &mut Reader<'_>) -> Result<[u8; 8], XdrError>;
    /// LOOKUP's results.
    fn found(&self, r: &mut Reader<'_>) -> Result<Handle, XdrError>;
    /// CREATE's results: the file, if the server returned its handle.
    fn created(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError>;
    /// The results of [`Wire::make`].
    fn made(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError>;
    /// CLOSE's results.
    fn closed(&self, r: &mut Reader<'_>) -> Result<(), XdrError>;
    /// MKDIR's results: the directory, if the server returned its handle.
    fn made_directory(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError>;
    /// GETATTR's results: size in bytes and file id.
    fn got_attributes(&self, r: &mut Reader<'_>) -> Result<(u64, u64), XdrError>;
    /// The results of [`Wire::set_mode`].
    fn mode_set(&self, r: &mut Reader<'_>) -> Result<(), XdrError>;
    /// ACCESS's results: the bits granted.
    fn accessed(&self, r: &mut Reader<'_>) -> Result<u32, XdrError>;
    /// REMOVE's or RMDIR's results.
    fn removed(&self, r: &mut Reader<'_>) -> Result<(), XdrError>;
    /// RENAME's results.
    fn renamed(&self, r: &mut Reader<'_>) -> Result<(), XdrError>;
    /// READDIR's results.
    fn listed(&self, r: &mut Reader<'_>, plus: bool) -> Result<ListingReply, XdrError>;
    /// FSINFO's results.
    fn fsinfo(&self, r: &mut Reader<'_>) -> Result<Fsinfo, XdrError>;
    /// FSSTAT's results: the bytes free for the caller.
    fn fsstat(&self, r: &mut Reader<'_>) -> Result<u64, XdrError>;
}

impl Wire for Calls {
    fn null(&self, out: &mut Vec<u8>, id: Id) {
        self.null(out, id.xid);
    }

    fn of_handle(&self, out: &mut Vec<u8>, id: Id, proc: Proc, fh: &Handle) {
        self.of_handle(out, id.xid, proc, fh);
    }

    fn set_mode(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, mode: u32) {
        self.set_mode(out, id.xid, fh, mode);
    }

    fn access(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, bits: u32) {
        self.access(out, id.xid, fh, bits);
    }

    fn read(&self, out: &mut Vec<u8>, id: Id, fh: &Handle, offset: u64, count: u32) {
        self.read(out, id.xid, fh, offset, count);
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
        self.write_head(out, id.xid, fh, offset, count, stable);
    }

    fn write_tail(&self, _out: &mut Vec<u8>) {}

    fn commit(&self, out: &mut Vec<u8>, id: Id, fh: &Handle) {
        self.commit(out, id.xid, fh);
    }

    fn of_name(&self, out: &mut Vec<u8>, id: Id, proc: Proc, dir: &Handle, name: &[u8]) {
        self.of_name(out, id.xid, proc, dir, name);
    }

    fn create(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        self.create(out, id.xid, dir, name);
    }

    fn make(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        self.create(out, id.xid, dir, name);
    }

    /// NULL: no file is ever open.
    fn close(&self, out: &mut Vec<u8>, id: Id, _fh: &Handle) {
        weir_base::invariant!(false, "a file is open over NFSv3");
        self.null(out, id.xid);
    }

    fn mkdir(&self, out: &mut Vec<u8>, id: Id, dir: &Handle, name: &[u8]) {
        self.mkdir(out, id.xid, dir, name);
    }

    fn rename(&self, out: &mut Vec<u8>, id: Id, from: (&Handle, &[u8]), to: (&Handle, &[u8])) {
        self.rename(out, id.xid, from, to);
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
        self.readdir(out, id.xid, dir, position, count, plus);
    }

    fn head(&self, r: &mut Reader<'_>, _turn: Turn) -> Result<Head, XdrError> {
        Ok(Head {
            status: r.u32()?,
            sequenced: true,
        })
    }

    fn again(&self, status: u32) -> bool {
        status == nfs3::JUKEBOX
    }

    fn read_head(&self, r: &mut Reader<'_>) -> Result<ReadHead, XdrError> {
        nfs3::read_head(r)
    }

    fn written(&self, r: &mut Reader<'_>) -> Result<WriteReply, XdrError> {
        nfs3::written(r)
    }

    fn committed(&self, r: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
        nfs3::committed(r)
    }

    fn found(&self, r: &mut Reader<'_>) -> Result<Handle, XdrError> {
        nfs3::found(r)
    }

    fn created(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        nfs3::created(r)
    }

    fn made(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        nfs3::created(r)
    }

    fn closed(&self, _r: &mut Reader<'_>) -> Result<(), XdrError> {
        Ok(())
    }

    fn made_directory(&self, r: &mut Reader<'_>) -> Result<Option<Handle>, XdrError> {
        nfs3::created(r)
    }

    fn got_attributes(&self, r: &mut Reader<'_>) -> Result<(u64, u64), XdrError> {
        nfs3::got_attributes(r)
    }

    fn mode_set(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        nfs3::mode_set(r)
    }

    fn accessed(&self, r: &mut Reader<'_>) -> Result<u32, XdrError> {
        nfs3::accessed(r)
    }

    fn removed(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        nfs3::removed(r)
    }

    fn renamed(&self, r: &mut Reader<'_>) -> Result<(), XdrError> {
        nfs3::renamed(r)
    }

    fn listed(&self, r: &mut Reader<'_>, plus: bool) -> Result<ListingReply, XdrError> {
        nfs3::listed(r, plus)
    }

    fn fsinfo(&self, r: &mut Reader<'_>) -> Result<Fsinfo, XdrError> {
        nfs3::fsinfo(r)
    }

    fn fsstat(&self, r: &mut Reader<'_>) -> Result<u64, XdrError> {
        nfs3::fsstat(r)
    }
}

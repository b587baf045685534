//! What clients are asked and notified of (RFC 8881 §20), and the calls that wait to be made. How
//! they are made is in `callback_ops`.

use super::attrs::{SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use super::offload::Offload;
use super::state::Delegation;
use super::status::Status;
use super::types::{Bitmap, put_written};
use crate::rpc::xdr::Put;
use std::sync::Arc;
use weir_vfs::FileId;
use weir_vfs::volume::Stability;

/// Callback operations (RFC 8881 §20).
pub(super) mod op {
    pub const GETATTR: u32 = 3;
    pub const RECALL: u32 = 4;
    pub const RECALL_ANY: u32 = 8;
    pub const RECALL_SLOT: u32 = 10;
    pub const SEQUENCE: u32 = 11;
    pub const NOTIFY_LOCK: u32 = 13;
    pub const OFFLOAD: u32 = 15;
}

/// What a client is asked or notified of.
#[derive(Clone)]
pub enum Callback {
    /// CB_RECALL (§20.2): to return a delegation.
    Recall(Arc<Delegation>),
    /// CB_GETATTR (§20.1): change and size of a file that it may have written.
    GetAttr(Arc<Delegation>),
    /// CB_NOTIFY_LOCK (§20.11): a lock of this file that this owner of the client was denied is free.
    NotifyLock {
        /// The file.
        file: FileId,
        /// The client id.
        client: u64,
        /// The lock owner's bytes.
        owner: Arc<[u8]>,
    },
    /// CB_RECALL_ANY (§20.6): to keep no more delegations than this.
    RecallAny(u32),
    /// CB_RECALL_SLOT (§20.8): to use no slot of this session beyond this one.
    RecallSlot(u32),
    /// CB_OFFLOAD (RFC 7862 §16.1): a copy in the background has ended.
    Offload(Arc<Offload>),
}

impl Callback {
    /// Whether another session of the client does as well.
    pub(super) fn may_move(&self) -> bool {
        !matches!(self, Callback::RecallSlot(_))
    }

    /// Whether it says all that `earlier` does, which waits.
    pub(super) fn replaces(&self, earlier: &Callback) -> bool {
        matches!(
            (self, earlier),
            (Callback::RecallAny(_), Callback::RecallAny(_))
                | (Callback::RecallSlot(_), Callback::RecallSlot(_))
        )
    }

    /// Whether nothing is to be asked any more.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Callback::Recall(delegation) | Callback::GetAttr(delegation) => delegation.is_over(),
            Callback::NotifyLock { .. } | Callback::RecallAny(_) | Callback::RecallSlot(_) => false,
            Callback::Offload(offload) => offload.is_cancelled(),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, handle: impl Fn(FileId) -> Vec<u8>) {
        match self {
            Callback::Recall(delegation) => {
                out.put_u32(op::RECALL);
                delegation.id.put(out);
                out.put_bool(false);
                out.put_opaque(&handle(delegation.file));
            }
            Callback::GetAttr(delegation) => {
                out.put_u32(op::GETATTR);
                out.put_opaque(&handle(delegation.file));
                match delegation.has_times() {
                    true => WITH_TIMES.put(out),
                    false => Bitmap::of(&[CHANGE, SIZE]).put(out),
                }
            }
            Callback::NotifyLock {
                file,
                client,
                owner,
            } => {
                out.put_u32(op::NOTIFY_LOCK);
                out.put_opaque(&handle(*file));
                out.put_u64(*client);
                out.put_opaque(owner);
            }
            Callback::RecallAny(keep) => {
                out.put_u32(op::RECALL_ANY);
                out.put_u32(*keep);
                // RCA4_TYPE_MASK_RDATA_DLG, RCA4_TYPE_MASK_WDATA_DLG.
                Bitmap::of(&[0, 1]).put(out);
            }
            Callback::RecallSlot(highest) => {
                out.put_u32(op::RECALL_SLOT);
                out.put_u32(*highest);
            }
            Callback::Offload(offload) => {
                out.put_u32(op::OFFLOAD);
                out.put_opaque(&handle(offload.file));
                offload.id.put(out);
                let status = offload.ended().unwrap_or(Status::ServerFault);
                out.put_u32(status as u32);
                match status {
                    Status::Ok => {
                        // `write_response4`, without a stateid.
                        out.put_u32(0);
                        let (count, how) = (offload.copied(), Stability::Unstable);
                        put_written(out, count, how, &offload.verifier);
                    }
                    _ => out.put_u64(offload.copied()),
                }
            }
        }
    }
}

pub(super) const CHANGE: u32 = 3;

/// What is asked of a holder that keeps the file's times.
pub(super) const WITH_TIMES: Bitmap =
    Bitmap::of(&[CHANGE, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY]);

/// State of a call over its session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Nothing, or the client has refused it.
    Not,
    /// It may have been executed, and is to be made again over the same session.
    Lost,
    /// Likewise, and another session has it as well.
    Elsewhere,
}

/// A call that waits for its turn, or is under way.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) what: Callback,
    /// Times that the client has refused it.
    pub(super) tries: u8,
    pub(super) made: Made,
    /// The slot that was lost with it, and is kept for it.
    pub(super) slot: Option<usize>,
}

impl Entry {
    pub(super) fn new(what: Callback) -> Entry {
        Entry {
            what,
            tries: 0,
            made: Made::Not,
            slot: None,
        }
    }

    /// Gives the call to another session by way of `to`; whether its own keeps it.
    pub(super) fn hand_over(&mut self, to: &mut Vec<Entry>) -> bool {
        if !self.what.may_move() || self.made == Made::Elsewhere {
            return true;
        }
        let stays = self.made == Made::Lost;
        to.push(Entry {
            made: Made::Not,
            slot: None,
            ..self.clone()
        });
        self.made = Made::Elsewhere;
        stays
    }
}

/// Bytes that a call takes while it waits: its place in a queue that has grown to twice what is in it.
pub(super) const CALL_BYTES: usize = 2 * size_of::<Entry>();

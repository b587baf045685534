//! Calls to clients (RFC 8881 §20): their contents, and those that wait to be sent. `ops::callback`
//! sends them.

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

/// A call to a client.
#[derive(Clone)]
pub enum Callback {
    /// CB_RECALL (§20.2): asks to return a delegation.
    Recall(Arc<Delegation>),
    /// CB_GETATTR (§20.1): asks for change and size of a file that the client may have written.
    GetAttr(Arc<Delegation>),
    /// CB_NOTIFY_LOCK (§20.11): a lock that this owner was denied is free.
    NotifyLock {
        /// The file.
        file: FileId,
        /// The client id.
        client: u64,
        /// The lock owner's bytes.
        owner: Arc<[u8]>,
    },
    /// CB_RECALL_ANY (§20.6): asks to keep no more delegations than this.
    RecallAny(u32),
    /// CB_RECALL_SLOT (§20.8): asks to use no slot of this session beyond this one.
    RecallSlot(u32),
    /// CB_OFFLOAD (RFC 7862 §16.1): a copy in the background has ended.
    Offload(Arc<Offload>),
}

impl Callback {
    /// Returns true if the call may be sent over any session of the client.
    pub(super) fn may_move(&self) -> bool {
        !matches!(self, Callback::RecallSlot(_))
    }

    /// Returns true if the call makes the queued call `earlier` superfluous.
    pub(super) fn replaces(&self, earlier: &Callback) -> bool {
        matches!(
            (self, earlier),
            (Callback::RecallAny(_), Callback::RecallAny(_))
                | (Callback::RecallSlot(_), Callback::RecallSlot(_))
        )
    }

    /// Returns true if the call is no longer needed.
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
                    false => Bitmap::from_numbers(&[CHANGE, SIZE]).put(out),
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
                Bitmap::from_numbers(&[0, 1]).put(out);
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

/// Attributes asked of a holder that keeps the file's times.
pub(super) const WITH_TIMES: Bitmap =
    Bitmap::from_numbers(&[CHANGE, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY]);

/// State of a call over its session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// Not executed: not sent yet, or refused by the client.
    Not,
    /// The reply was lost. The call may have been executed, and is to be repeated over the same
    /// session.
    Lost,
    /// As `Lost`; in addition the call was handed to another session.
    Elsewhere,
}

/// A queued call, or one that is under way.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) what: Callback,
    /// Number of refusals by the client.
    pub(super) tries: u8,
    pub(super) made: CallState,
    /// The slot that is kept for the repetition of a lost call.
    pub(super) slot: Option<usize>,
}

impl Entry {
    pub(super) fn new(what: Callback) -> Entry {
        Entry {
            what,
            tries: 0,
            made: CallState::Not,
            slot: None,
        }
    }

    /// Hands the call to another session by way of `to`. Returns true if its own session keeps it.
    pub(super) fn hand_over(&mut self, to: &mut Vec<Entry>) -> bool {
        if !self.what.may_move() || self.made == CallState::Elsewhere {
            return true;
        }
        let stays = self.made == CallState::Lost;
        to.push(Entry {
            made: CallState::Not,
            slot: None,
            ..self.clone()
        });
        self.made = CallState::Elsewhere;
        stays
    }
}

/// Number of bytes that a queued call takes: twice its size, since a queue grows by doubling.
pub(super) const CALL_BYTES: usize = 2 * size_of::<Entry>();

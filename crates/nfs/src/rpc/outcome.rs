//! The outcome of one RPC message.

use crate::rpc;
use crate::rpc::message::Refusal;
use crate::rpc::reply::ReplyBuf;
use weir_vfs::Vfs;
use weir_vfs::stats::REFUSED_CALL;

/// The outcome of one RPC message. A suspended request has no interim reply.
pub type Outcome = weir_conn::Outcome<ReplyBuf>;

/// A call that is suspended.
pub type Later = weir_conn::RequestFuture<ReplyBuf>;

/// The decision about a large record whose head only has arrived.
pub type Begin = weir_conn::Begin<ReplyBuf>;

/// Memory of a suspended call besides its record, in bytes: the future, its slot and its place in
/// the tree.
pub(crate) const HELD_OVERHEAD: usize = 1024;

/// Maximum number of seconds that a request of NFSv4 waits for another client, the first second in
/// part: more than a responsive client needs. Clients wait for a second before they try again. A
/// client that tries ten times (pynfs) must not have kept another of its sessions silent for a
/// lease.
pub(crate) const PATIENCE_NFS4: u64 = 1;
/// Maximum number of seconds that a request of NFSv3 waits for another client. It is longer than
/// for NFSv4: a client of NFSv4 that finds its server restarted needs some round trips.
pub(crate) const PATIENCE_NFS3: u64 = 3;

/// Returns the reply to a call that RPC refuses.
pub(crate) fn refusal(xid: u32, why: Refusal) -> ReplyBuf {
    let mut head = ReplyBuf::start(64);
    rpc::put_refusal(&mut head, xid, why);
    ReplyBuf::whole(head, None)
}

/// Counts a reply by which RPC refuses a call that came by the connection `conn`.
pub(crate) fn count_refusal(vfs: &Vfs, conn: u64, reply: &ReplyBuf) {
    if let Some(number) = reply.refusal() {
        vfs.count_failure(conn, Some(REFUSED_CALL), number);
    }
}

/// Counts an outcome by which RPC refuses a call.
pub(crate) fn count_outcome(vfs: &Vfs, conn: u64, outcome: &Outcome) {
    if let Outcome::Reply(reply, _) = outcome {
        count_refusal(vfs, conn, reply);
    }
}

/// Returns the outcome of a call that RPC refuses.
pub(crate) fn refuse(xid: u32, why: Refusal) -> Outcome {
    Outcome::Reply(refusal(xid, why), None)
}

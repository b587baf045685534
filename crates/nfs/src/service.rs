//! One call in, one reply out.
//!
//! `handle` runs on the thread that read the call, and for all that is in
//! memory it runs to the end: decode in place, check, operate, encode. Only a
//! call that needs something from the device becomes a future; it owns a copy
//! of the call and starts again from the beginning once the pages are there
//! (operations change nothing before they have all they need).

use crate::failure::Failure;
use crate::reply::ReplyBuf;
use crate::rpc::{self, Call, Message, Refusal};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use weir_base::{Clock, Lsn, Rng, Time};

/// Program number of NFS (RFC 1813 §3).
pub const NFS_PROGRAM: u32 = 100_003;
/// Program number of MOUNT (RFC 1813 Appendix I).
pub const MOUNT_PROGRAM: u32 = 100_005;
/// Program number of the network lock manager (RFC 1813 Appendix II).
pub const NLM_PROGRAM: u32 = 100_021;
/// Program number of the network status monitor (X/Open XNFS, SM).
pub const NSM_PROGRAM: u32 = 100_024;

/// The connection that a call came over.
#[derive(Clone, Copy, Debug)]
pub struct ConnInfo {
    /// Number of the connection, unique in this run of the server.
    pub id: u64,
    /// The client's end.
    pub peer: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// A reply that is not there yet.
pub type Later = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// What became of a call.
pub enum Handled {
    /// The reply. With an [`Lsn`], it may be sent when the log has become
    /// durable up to there; if the log is poisoned before, send
    /// [`ReplyBuf::into_failure`] in its place.
    Reply(ReplyBuf, Option<Lsn>),
    /// The call waits for the device. Poll it on the connection's own thread;
    /// other calls of the connection go on meanwhile. It never resolves to
    /// `Later` again.
    Later(Later),
    /// No reply at all: a retransmission of a call in progress, or a reply to a
    /// call of ours that was consumed.
    Drop,
    /// Close the connection: what came is not RPC.
    Close(&'static str),
}

/// What the service is made of.
pub struct Config {
    /// Time for lock grace periods and timestamps.
    pub clock: Arc<dyn Clock>,
    /// Randomness for transaction ids and verifiers.
    pub rng: Arc<dyn Rng>,
    /// Bytes that the duplicate-request cache may hold.
    pub drc_bytes: usize,
}

/// The NFS service: NFS, MOUNT, NLM and NSM behind one entrance.
pub struct Service {
    #[allow(dead_code)]
    config: Config,
}

impl Service {
    /// A service over `config`.
    pub fn new(config: Config) -> Arc<Service> {
        Arc::new(Service { config })
    }

    /// Serves one RPC message (without record marks) that arrived on `conn` at
    /// `now`.
    pub fn handle(self: &Arc<Self>, conn: &ConnInfo, record: &[u8], now: Time) -> Handled {
        let _ = (conn, now);
        match rpc::message(record) {
            Message::Call(call) => self.call(&call),
            Message::Refuse(xid, why) => refuse(xid, why),
            Message::Reply(..) => Handled::Drop,
            Message::Nonsense => Handled::Close("not an RPC message"),
        }
    }

    fn call(&self, call: &Call<'_>) -> Handled {
        let version = match call.program {
            NFS_PROGRAM | MOUNT_PROGRAM => 3,
            NLM_PROGRAM => 4,
            NSM_PROGRAM => 1,
            _ => return refuse(call.xid, Refusal::ProgUnavail),
        };
        if call.version != version {
            return refuse(
                call.xid,
                Refusal::ProgMismatch {
                    low: version,
                    high: version,
                },
            );
        }
        if call.procedure != 0 {
            return refuse(call.xid, Refusal::ProcUnavail);
        }
        let mut head = ReplyBuf::start(64);
        rpc::put_accepted(&mut head, call.xid);
        Handled::Reply(ReplyBuf::whole(head, Some(Failure::of(0))), None)
    }
}

fn refuse(xid: u32, why: Refusal) -> Handled {
    let mut head = ReplyBuf::start(64);
    rpc::put_refusal(&mut head, xid, why);
    Handled::Reply(ReplyBuf::whole(head, None), None)
}

//! The outcome of one message, for every protocol.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use weir_base::Lsn;
use weir_vfs::Suspend;
use weir_vfs::throttle::HeldBytes;

/// Future of a suspended request. It belongs to its connection's thread, and never resolves to an
/// outcome that waits again. Dropping it is safe: the remaining steps are then not
/// done.
pub type RequestFuture<R> = Pin<Box<dyn Future<Output = Outcome<R>>>>;

/// The outcome of one message.
pub enum Outcome<R> {
    /// The reply. With an [`Lsn`], it may be sent when the log is durable up to there. If the log
    /// fails before, its [failure](crate::Reply::into_failure) is sent instead.
    Reply(R, Option<Lsn>),
    /// A request that waits for something, such as a device read.
    Later(RequestFuture<R>),
    /// A request that waits for the limits of its volume. Its memory is charged to the client's
    /// credit instead of the connection's limit in flight, so that other requests are served
    /// meanwhile.
    Held(RequestFuture<R>),
    /// A request that waits on purpose, for what another client does: a blocking lock, a notice of
    /// A request that waits on purpose for an action of another client: a blocking lock, a change
    /// notification, the break of a lease. It does not count against the connection's limit in
    /// flight. If too many wait on the connection
    /// ([`CONNECTION_PARKED`](weir_base::limits::net::CONNECTION_PARKED)), the second value is sent
    /// as its reply. Otherwise the third is sent at once, before its own reply.
    Parked(RequestFuture<R>, R, Option<R>),
    /// A waiting request (first value) of a compressed message. It takes up so many bytes more than
    /// arrived.
    Larger(Box<Outcome<R>>, usize),
    /// The reply, in the clear. All further bytes on the connection are TLS (RFC 9289 §4.1).
    StartTls(R),
    /// The reply. All further messages on the connection are those of this client, which another
    /// server of the cluster passes on.
    SpeaksFor(R, SocketAddr),
    /// No reply: no request waits for one, or the request is a retransmission of one that is still
    /// running.
    Drop,
    /// Not the protocol: the connection has to be closed. The cause.
    Close(&'static str),
}

impl<R> Outcome<R> {
    /// Returns the outcome of a suspended request. `work` makes the future. `refusal` makes the
    /// reply for a request that waits on purpose but cannot be kept waiting.
    pub fn suspended(
        suspend: Suspend,
        work: impl FnOnce(Suspend) -> RequestFuture<R>,
        refusal: impl FnOnce() -> R,
    ) -> Outcome<R> {
        let (limit, deliberate) = (suspend.is_limit(), suspend.is_deliberate());
        let work = work(suspend);
        if limit {
            Outcome::Held(work)
        } else if deliberate {
            Outcome::Parked(work, refusal(), None)
        } else {
            Outcome::Later(work)
        }
    }

    /// Waits for the outcome of a suspended request.
    pub async fn finished(self) -> Outcome<R> {
        let outcome = match self {
            Outcome::Larger(outcome, _) => *outcome,
            outcome => outcome,
        };
        match outcome {
            Outcome::Later(work) | Outcome::Held(work) | Outcome::Parked(work, ..) => work.await,
            outcome => outcome,
        }
    }

    /// Returns the reply and the log record that it waits for, if there is a reply.
    pub fn reply(self) -> Option<(R, Option<Lsn>)> {
        match self {
            Outcome::Reply(reply, after) => Some((reply, after)),
            _ => None,
        }
    }
}

/// Decision about a large message of which only the head has arrived.
pub enum Begin<R> {
    /// It may be read. The memory is charged to the client's credit until the message is complete.
    Go(Option<HeldBytes>),
    /// It is not read for now.
    Wait,
    /// It is skipped without taking memory, and gets this reply once the log is durable up to
    /// there.
    Refuse(R, Option<Lsn>),
    /// No valid message is that long: the connection has to be closed. The cause.
    Close(&'static str),
}

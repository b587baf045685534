//! The outcome of one message, for every protocol.

use std::future::Future;
use std::pin::Pin;

use weir_base::Lsn;
use weir_vfs::Suspend;
use weir_vfs::throttle::HeldBytes;

/// A request that is suspended. It has to be polled on its connection's thread, and never resolves
/// to an outcome that waits again. Dropping it is safe: what has not been done then is not done.
pub type Pending<R> = Pin<Box<dyn Future<Output = Outcome<R>> + Send>>;

/// The outcome of one message.
pub enum Outcome<R> {
    /// The reply. With an [`Lsn`], it may be sent when the log is durable up to there; if the log
    /// fails before, its [failure](crate::Reply::into_failure) is sent in its place.
    Reply(R, Option<Lsn>),
    /// A request that waits for something, such as a device read.
    Later(Pending<R>),
    /// A request that waits for the limits of its volume. Its memory is accounted to the client's
    /// credit instead of to what the connection may have under way, so that other requests are
    /// served meanwhile.
    Held(Pending<R>),
    /// A request that waits on purpose, for what another client does: a blocking lock, a notice of
    /// change, the break of a grant. It does not count against what the connection may have under
    /// way. The second is sent in its place if more wait so on the connection than may
    /// ([`CONNECTION_PARKED`](weir_base::limits::net::CONNECTION_PARKED)); otherwise the third at
    /// once, before its own reply.
    Parked(Pending<R>, R, Option<R>),
    /// The first, a request that waits, of a message that takes up so many bytes more than arrived:
    /// it was compressed.
    Larger(Box<Outcome<R>>, usize),
    /// The reply, in the clear; all that follows on the connection is TLS (RFC 9289 §4.1).
    StartTls(R),
    /// No reply: a reply that no request waits for, a retransmission of a request that is still
    /// running.
    Drop,
    /// Not the protocol: the connection has to be closed, for this reason.
    Close(&'static str),
}

impl<R> Outcome<R> {
    /// Returns the outcome of a request that is suspended. `work` makes the future; `refusal` makes
    /// the reply to a request that waits on purpose, for the case that it cannot be kept waiting.
    pub fn suspended(
        suspend: Suspend,
        work: impl FnOnce(Suspend) -> Pending<R>,
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

    /// Waits for the outcome of a request that is suspended.
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

/// The decision about a large message of which only the head has arrived.
pub enum Begin<R> {
    /// It may be read; the memory is accounted to the client's credit until the message is there.
    Go(Option<HeldBytes>),
    /// It stays unread for the time being.
    Wait,
    /// It is read past without taking memory, and gets this reply, once the log is durable up to
    /// there.
    Refuse(R, Option<Lsn>),
    /// No such message is that long: the connection has to be closed.
    Close(&'static str),
}

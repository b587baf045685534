//! The network side of the server: listeners, one event loop per core, connections.
//!
//! # What it has to do
//! Take requests from many TCP connections, run each one, and send the answers, at a cost that is
//! mostly the kernel's. A cached 4 KiB READ costs well under a microsecond of engine time and
//! three to five microseconds in the TCP stack, so what decides throughput is how many system
//! calls and task switches stand between the two.
//!
//! # How
//! One thread per core, each with its own single-threaded event loop; a connection stays on the
//! core that it was dealt to, so nothing about it is shared or locked. Serving it is one
//! hand-written future (`connection::Conn`): one `readv` takes as many requests as the socket
//! holds, each whole request is run right there by [`Backend::handle`], and one `writev` sends all
//! the answers, with READ data taken from the block cache by reference. A request that has to wait
//! (for the device) becomes a future of its own connection; an answer that has to wait for the
//! intent log is parked with its log sequence number and costs no task. Answers therefore leave in
//! the order in which they become true, not in the order of the requests; RPC's transaction ids
//! allow that.
//!
//! What a connection speaks is its listener's choice ([`Services`]): a [`Backend`] with its
//! [`Framing`] for each protocol, all on the same event loops. Which it is is known when it is
//! compiled, so that a request costs no indirect call for it.
//!
//! A connection goes over to TLS when its protocol says so ([`Outcome::StartTls`]); bytes are then
//! opened and sealed between socket and messages, on the same event loop.
//!
//! Messages that a client did not ask for reach it on its own connection, from any thread
//! ([`Wakeups::send`]).
//!
//! # Why not otherwise
//! A task per request costs more than the request. A work-stealing runtime moves a connection's
//! state between caches and forces locks. Native-ring networking (io_uring) has been seen to win
//! and to win nothing for this kind of load; it can come behind the same interface when it is
//! measured to pay.
//!
//! # Bounds
//! They are constants in [`weir_base::limits::net`], which says how they belong together;
//! [`ledger`] counts.
//! - A connection at rest holds no buffer: requests are read into its core's buffer.
//! - A connection with more than [`limits::CONNECTION_IN_FLIGHT`] bytes under way is not read from.
//! - What all connections hold is charged to one budget, and to a part of it for each address. When
//!   either is used up, only peers that have taken their replies are served, small calls first: a
//!   request whose reply is large waits until that fits, with a part of the budget for addresses
//!   that hold little. Requests that wait have peers dropped that take nothing, of the addresses
//!   that hold most.
//! - A request costs what has arrived of it, and one that was compressed and waits, what it came
//!   to. A large one is read only if its head names a file of an export that admits the peer.
//! - Requests that wait for limits are bounded by their client's credit; at its end the client is
//!   not read from.
//! - Requests that wait on purpose ([`Outcome::Parked`]) keep nothing else from being read, since
//!   what ends their waiting may come over the same connection. They are bounded in number.
//! - A peer that does not take its replies, or does not go on with a request, at the least rate, is
//!   dropped after [`limits::STALL`] (sooner when memory is short, and at once if it is in the way
//!   of others).
//! - Connections are bounded by the memory and by the address; strangers give way to clients.

mod connected;
mod connection;
mod datagram;
mod event_loop;
mod ledger;
mod listener;
mod mail;
mod pacer;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::TcpStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use tokio_rustls::rustls::ServerConfig;
use weir_base::Lsn;
#[allow(unused_imports)] // For the documentation.
use weir_base::limits::net as limits;
use weir_conn::{Arrival, Begin, ConnInfo, Framing, Outcome, Reply};

pub use connected::Connected;
pub use connection::kernel_tls;
pub use datagram::datagrams;
pub use event_loop::{Accepted, Cores, Seat, Settings, Wakeups};
pub use ledger::Ledger;
pub use listener::{Reserved, accept, reserve};
pub use mail::{Full, Message};
pub use pacer::pace;

/// The log that replies wait for.
pub trait Log: 'static {
    /// Log records up to this number are durable.
    fn durable(&self) -> Lsn;

    /// True when the log has failed: what is not durable now never will be.
    fn log_failed(&self) -> bool;

    /// Whether the reply to a change stays although its record is durable. Called after the record was found durable.
    fn withholds(&self, _lsn: Lsn) -> bool {
        false
    }

    /// Whether replies may leave at all now: a node of a pair may have lost its role without knowing it yet.
    fn may_reply(&self) -> bool {
        true
    }
}

/// What the event loops serve.
pub trait Services: Send + Sync + 'static {
    /// What replies wait for.
    type Log: Log;

    /// What a listener's connections speak.
    type Wire: Copy + Send + 'static;

    /// Returns the log that replies wait for.
    fn log(&self) -> Self::Log;

    /// Serves a connection: gives `seat` the backend of what it speaks.
    ///
    /// # Errors
    /// It is lost already, or there are too many.
    fn serve(
        &self,
        seat: Seat<'_, Self::Log>,
        stream: StdStream,
        wire: Self::Wire,
    ) -> io::Result<()>;

    /// What is to run on an event loop for ever, besides its connections.
    fn background_task(&self, _event_loop: usize) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        None
    }
}

/// The service of one protocol, behind its connections.
pub trait Backend: Send + Sync + 'static {
    /// How the stream is split into messages.
    type Framing: Framing;

    /// A finished reply, as it is sent on the stream.
    type Reply: Reply;

    /// The state that the service keeps of a connection.
    type State: Clone + Default + Unpin + 'static;

    /// What replies wait for.
    type Log: Log;

    /// A message that the peer did not ask for, made ready to be sent.
    fn unasked(&self, message: mail::Message) -> Self::Reply;

    /// Runs one request: `record` is a whole message without its framing.
    fn handle(
        &self,
        conn: &ConnInfo<Self::State>,
        record: &[u8],
        now: Arrival,
    ) -> Outcome<Self::Reply>;

    /// Returns the settings of TLS for a connection on which it begins ([`Outcome::StartTls`]).
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    /// Runs `calls`, which [handles](Backend::handle) what one read brought: what it logs may be written together.
    fn together<T>(&self, calls: impl FnOnce() -> T) -> T {
        calls()
    }

    /// Whether the client's credit allows more of its requests to be read. If not, the task of `cx` is woken when it is
    /// worth asking again.
    fn may_read(&self, _conn: &ConnInfo<Self::State>, _cx: &mut Context<'_>) -> bool {
        true
    }

    /// Whether memory may be taken for a large request of which only `head` is there, of `bytes` in all. At
    /// [`Begin::Wait`], the task of `cx` is woken when it is worth asking again.
    fn begin(
        &self,
        _conn: &ConnInfo<Self::State>,
        _head: &[u8],
        _bytes: usize,
        _cx: &mut Context<'_>,
    ) -> Begin<Self::Reply> {
        Begin::Go(None)
    }

    /// Returns the most bytes of data that the reply to a whole message may have, without running it, if a READ that may be
    /// answered in part returns no more than `reads`.
    fn reply_bound(&self, _record: &[u8], _reads: usize) -> usize {
        0
    }

    /// Whether the peer has been admitted to an export.
    fn knows(&self, _conn: &ConnInfo<Self::State>) -> bool {
        true
    }

    /// True when so much waits for limits that requests should be checked before much of them is read.
    fn under_pressure(&self) -> bool {
        false
    }

    /// These replies may leave, as of now.
    fn answered(
        &self,
        _conn: &ConnInfo<Self::State>,
        _replies: &mut dyn Iterator<Item = &Self::Reply>,
    ) {
    }

    /// Takes note that replies have waited for the log, each for so many nanoseconds.
    fn logged(
        &self,
        _conn: &ConnInfo<Self::State>,
        _waited: &mut dyn Iterator<Item = (&Self::Reply, u64)>,
    ) {
    }

    /// The peer sends no more, or the connection is over: called at least once.
    fn ended(&self, conn: &ConnInfo<Self::State>);
}

//! The network side of the server: listeners, one event loop per core, connections.
//!
//! # What it has to do
//! Takes requests from many TCP connections, runs each one and sends the replies, at a cost that is
//! mostly the kernel's. A cached 4 KiB READ costs well under a microsecond of engine time, and
//! three to five microseconds in the TCP stack. Throughput therefore depends on the number of
//! system calls and task switches between the two.
//!
//! # How
//! There is one thread per core, each with its own single-threaded event loop. A connection stays
//! on the core that it was dealt to, so none of its state is shared or locked. It is served by one
//! hand-written future (`connection::Conn`): one `readv` takes as many requests as the socket
//! holds, [`Backend::handle`] runs each whole request at once, and one `writev` sends all replies,
//! with READ data taken from the block cache by reference. A request that has to wait for the
//! device becomes a future of its connection. A reply that has to wait for the intent log is parked
//! with its log sequence number and costs no task. Replies therefore leave in the order in which
//! they become durable, not in the order of the requests; RPC's transaction ids allow that.
//!
//! The protocol of a connection depends on its listener ([`Services`]): each protocol is a
//! [`Backend`] with its [`Framing`], and all share the event loops. The choice is static, so that a
//! request costs no indirect call.
//!
//! A connection changes to TLS when its protocol requests it ([`Outcome::StartTls`]). Bytes are
//! then decrypted and encrypted between socket and messages, on the same event loop.
//!
//! Messages that a client did not ask for are sent on its own connection, from any thread
//! ([`Wakeups::send`]).
//!
//! # Why not otherwise
//! A task per request costs more than the request. A work-stealing runtime moves a connection's
//! state between caches and requires locks. Native-ring networking (io_uring) has gained in some
//! measurements of this kind of load and nothing in others; it can be added behind the same
//! interface once it is measured to pay.
//!
//! # Bounds
//! The limits are constants in [`weir_base::limits::net`], which explains how they depend on each
//! other; [`ledger`] counts.
//! - A connection at rest holds no buffer: requests are read into its core's buffer.
//! - A connection with more than [`limits::CONNECTION_IN_FLIGHT`] bytes in flight is not read from.
//! - Memory of all connections is charged to one budget, and to a part of it for each address. When
//!   either is used up, only peers that have taken their replies are served, small calls first. A
//!   request with a large reply waits until the reply fits; a part of the budget is kept for
//!   addresses that hold little. While requests wait, peers that take nothing are dropped, those of
//!   the addresses that hold most first.
//! - A request costs the bytes that have arrived, and a compressed one that waits costs its
//!   uncompressed size. A large one is read only if its head names a file of an export that admits
//!   the peer.
//! - Requests that wait for limits are bounded by their client's credit. When it is used up, the
//!   client is not read from.
//! - Requests that wait on purpose ([`Outcome::Parked`]) do not stop reading, because the event
//!   that ends their wait may come over the same connection. Their number is bounded.
//! - A peer that takes its replies, or continues a request, more slowly than the least rate is
//!   dropped after [`limits::STALL`]. It is dropped sooner when memory is short, and at once if it
//!   blocks others.
//! - The number of connections is bounded by the memory and by the address; connections without an
//!   export give way to clients.

mod connection;
mod connections;
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

pub use connection::kernel_tls;
pub use connections::ConnectionRegistry;
pub use datagram::datagrams;
pub use event_loop::{AcceptedConnection, Cores, LoopSlot, Settings, Wakeups};
pub use ledger::Ledger;
pub use listener::{ReservedAddress, accept, reserve};
pub use mail::{Full, Message};
pub use pacer::pace;

/// The log that replies wait for.
pub trait Log: 'static {
    /// Returns the number up to which log records are durable.
    fn durable(&self) -> Lsn;

    /// Returns true if the log has failed: records that are not durable now never will be.
    fn log_failed(&self) -> bool;

    /// Returns true if the reply to a change has to wait although its record is durable. Called
    /// after the record was found durable.
    fn withholds(&self, _lsn: Lsn) -> bool {
        false
    }

    /// Returns false if no reply may leave now: a node of a pair may have lost its role without
    /// knowing it yet.
    fn may_reply(&self) -> bool {
        true
    }
}

/// The services behind the event loops, one for each protocol.
pub trait Services: Send + Sync + 'static {
    /// Log that replies wait for.
    type Log: Log;

    /// Protocol of a listener's connections.
    type Wire: Copy + Send + 'static;

    /// Returns the log that replies wait for.
    fn log(&self) -> Self::Log;

    /// Serves a connection: passes the backend of its protocol to `seat`.
    ///
    /// # Errors
    /// The connection is lost already, or there are too many.
    fn serve(
        &self,
        seat: LoopSlot<'_, Self::Log>,
        stream: StdStream,
        wire: Self::Wire,
    ) -> io::Result<()>;

    /// Returns a future to run on an event loop besides its connections, until the server stops.
    fn background_task(&self, _event_loop: usize) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        None
    }
}

/// The service of one protocol, behind its connections.
pub trait Backend: Send + Sync + 'static {
    /// Framing of messages in the stream.
    type Framing: Framing;

    /// A finished reply, in the form that is sent.
    type Reply: Reply;

    /// State of the service for each connection.
    type State: Clone + Default + Unpin + 'static;

    /// Log that replies wait for.
    type Log: Log;

    /// Returns a message that the peer did not ask for in the form that is sent.
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

    /// Runs `calls`, which [handles](Backend::handle) the requests of one read. Their log records
    /// may be written together.
    fn together<T>(&self, calls: impl FnOnce() -> T) -> T {
        calls()
    }

    /// Returns true if the client's credit allows more of its requests to be read. If not, the task
    /// of `cx` is woken when it is worth asking again.
    fn may_read(&self, _conn: &ConnInfo<Self::State>, _cx: &mut Context<'_>) -> bool {
        true
    }

    /// Checks whether memory may be taken for a large request of `bytes` in all, of which only
    /// `head` has arrived. At [`Begin::Wait`], the task of `cx` is woken when it is worth asking
    /// again.
    fn begin(
        &self,
        _conn: &ConnInfo<Self::State>,
        _head: &[u8],
        _bytes: usize,
        _cx: &mut Context<'_>,
    ) -> Begin<Self::Reply> {
        Begin::Go(None)
    }

    /// Returns the most bytes of data that the reply to a whole message may have, without running
    /// it, if a READ that may be answered in part returns no more than `reads`.
    fn reply_bound(&self, _record: &[u8], _reads: usize) -> usize {
        0
    }

    /// Returns true if the peer has been admitted to an export.
    fn knows(&self, _conn: &ConnInfo<Self::State>) -> bool {
        true
    }

    /// Returns true if so many requests wait for limits that a request should be checked before
    /// much of it is read.
    fn under_pressure(&self) -> bool {
        false
    }

    /// Called when replies may leave.
    fn answered(
        &self,
        _conn: &ConnInfo<Self::State>,
        _replies: &mut dyn Iterator<Item = &Self::Reply>,
    ) {
    }

    /// Records that replies have waited for the log, each for so many nanoseconds.
    fn logged(
        &self,
        _conn: &ConnInfo<Self::State>,
        _waited: &mut dyn Iterator<Item = (&Self::Reply, u64)>,
    ) {
    }

    /// Called at least once when the peer sends no more or the connection is over.
    fn ended(&self, conn: &ConnInfo<Self::State>);
}

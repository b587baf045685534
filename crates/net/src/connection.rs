//! One connection: a future that reads requests, runs them and sends the replies.
//!
//! It is a hand-written state machine because its parts overlap: while some replies wait for the
//! socket, others wait for the log or the device, and more requests may be read. Each `poll`
//! repeats these steps until nothing moves: collect what became ready (log, device), write, read
//! and run.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use tokio::io::Interest;
use tokio::net::TcpStream;
use weir_base::limits::net as limits;
use weir_base::{BLOCK_SIZE, Lsn, invariant};
use weir_conn::{
    Admit, Arrival, Begin, Broken, ConnInfo, Flow, Inbox, Outbox, Outcome, Receiver, Reply,
    RequestFuture,
};
use weir_vfs::throttle::HeldBytes;

use super::connections::Present;
use super::event_loop::{Core, StallState, Watch, untaken};
use super::ledger::{ConnectionMemory, MemoryLevel};
use super::{Backend, Log};
use tls::Layer;

pub mod kernel_tls;
mod tls;

/// A reply that waits for the log.
struct ParkedReply<R> {
    /// Number up to which the log has to be durable before the reply may be sent.
    after: Lsn,
    /// Start of the wait: nanoseconds on the monotonic clock.
    since: u64,
    reply: R,
}

/// A reply and the log record that has to be durable before it may be sent.
type Answer<R> = (R, Option<Lsn>);

/// State of a connection's intake of requests.
enum Intake {
    /// Requests are read as they arrive.
    Open,
    /// The peer sends no more, or must not. Requests in flight are finished, then the connection is
    /// closed.
    Closed,
}

/// Requests that wait for the device, with the bytes they are charged.
struct PendingRequests<R> {
    set: FuturesUnordered<ChargedRequest<R>>,
    bytes: usize,
}

impl<R> PendingRequests<R> {
    fn add(to: &mut Option<Box<PendingRequests<R>>>, work: RequestFuture<R>, bytes: usize) {
        let waiting = to.get_or_insert_with(|| {
            Box::new(PendingRequests {
                set: FuturesUnordered::new(),
                bytes: 0,
            })
        });
        waiting.bytes += bytes;
        waiting.set.push(ChargedRequest { bytes, work });
    }

    /// Returns the answer of the next request that is done, if any.
    fn next(
        from: &mut Option<Box<PendingRequests<R>>>,
        cx: &mut Context<'_>,
    ) -> Option<Option<Answer<R>>> {
        let waiting = from.as_mut()?;
        match Pin::new(&mut waiting.set).poll_next(cx) {
            Poll::Ready(Some((bytes, answer))) => {
                if invariant!(
                    waiting.bytes >= bytes,
                    "a request is larger than all that wait"
                ) {
                    waiting.bytes -= bytes;
                }
                Some(answer)
            }
            Poll::Ready(None) => {
                *from = None;
                None
            }
            Poll::Pending => None,
        }
    }
}

/// A waiting request that remembers its charge.
struct ChargedRequest<R> {
    bytes: usize,
    work: RequestFuture<R>,
}

impl<R> Future for ChargedRequest<R> {
    type Output = (usize, Option<Answer<R>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let bytes = self.bytes;
        let outcome = self.work.as_mut().poll(cx);
        outcome.map(|outcome| (bytes, outcome.reply()))
    }
}

/// The requests and answers of a connection in flight.
struct Traffic<R> {
    outbox: Outbox<R>,
    /// Answers that wait for the log, in no order.
    parked: Vec<ParkedReply<R>>,
    parked_bytes: usize,
    waiting: Option<Box<PendingRequests<R>>>,
    /// Requests that wait for limits; they are charged to the client's credit.
    held: Option<Box<PendingRequests<R>>>,
    /// Requests that wait on purpose for an action of another client.
    parked_calls: Option<Box<PendingRequests<R>>>,
}

impl<R: Reply> Traffic<R> {
    fn new() -> Traffic<R> {
        Traffic {
            outbox: Outbox::new(),
            parked: Vec::new(),
            parked_bytes: 0,
            waiting: None,
            held: None,
            parked_calls: None,
        }
    }

    /// Returns the bytes that count against the connection's limit in flight.
    fn bytes(&self) -> usize {
        self.outbox.bytes() + self.parked_bytes + self.waiting.as_ref().map_or(0, |w| w.bytes)
    }

    /// Returns the bytes of memory: [`Traffic::bytes`], and the requests that wait for limits or on
    /// purpose.
    fn memory(&self) -> usize {
        let apart = [&self.held, &self.parked_calls];
        self.bytes() + apart.into_iter().flatten().map(|w| w.bytes).sum::<usize>()
    }

    fn idle(&self) -> bool {
        self.outbox.is_empty()
            && self.parked.is_empty()
            && self.waiting.is_none()
            && self.held.is_none()
            && self.parked_calls.is_none()
    }

    /// Returns true if a waiting request may now be able to make progress.
    fn any_waiting(&self) -> bool {
        self.waiting.is_some() || self.held.is_some() || self.parked_calls.is_some()
    }

    /// Returns true if no more requests may be accepted. `in_flight_max` bytes may be in flight,
    /// `unsent_max` of them as replies for the socket.
    fn full(&self, in_flight_max: usize, unsent_max: usize) -> bool {
        self.bytes() >= in_flight_max
            || self.outbox.bytes() >= unsent_max
            || self
                .waiting
                .as_ref()
                .is_some_and(|w| w.set.len() >= limits::CONNECTION_PENDING)
    }

    /// Queues a reply, or parks it until the log is durable up to `after`. `now` reads the
    /// monotonic clock, in nanoseconds.
    fn answer(
        &mut self,
        reply: R,
        after: Option<Lsn>,
        durable: Lsn,
        log: &impl Log,
        now: impl FnOnce() -> u64,
    ) {
        match after {
            Some(lsn) if lsn > durable || log.withholds(lsn) => {
                self.parked_bytes += reply.bytes();
                self.parked.push(ParkedReply {
                    after: lsn,
                    since: now(),
                    reply,
                });
            }
            _ => self.outbox.push(reply),
        }
    }

    fn wait(&mut self, work: RequestFuture<R>, bytes: usize) {
        PendingRequests::add(&mut self.waiting, work, bytes);
    }

    fn hold(&mut self, work: RequestFuture<R>, bytes: usize) {
        PendingRequests::add(&mut self.held, work, bytes);
    }

    /// Parks a request that waits on purpose, and sends `interim` first. If too many are parked,
    /// sends `refusal` as its reply instead.
    fn park(&mut self, work: RequestFuture<R>, refusal: R, interim: Option<R>, bytes: usize) {
        let parked = self.parked_calls.as_ref().map_or(0, |w| w.set.len());
        if parked >= limits::CONNECTION_PARKED {
            self.outbox.push(refusal);
            return;
        }
        if let Some(interim) = interim {
            self.outbox.push(interim);
        }
        PendingRequests::add(&mut self.parked_calls, work, bytes);
    }

    /// Moves answers whose log record is durable to the outbox. `waited` sees them once, before
    /// they are moved.
    fn release(
        &mut self,
        durable: Lsn,
        log: &impl Log,
        waited: impl FnOnce(&mut dyn Iterator<Item = &ParkedReply<R>>),
    ) {
        // Moves the answers that still wait to the front.
        let mut waiting = 0;
        for at in 0..self.parked.len() {
            let waits =
                |parked: &ParkedReply<R>| parked.after > durable || log.withholds(parked.after);
            if self.parked.get(at).is_some_and(waits) {
                self.parked.swap(waiting, at);
                waiting += 1;
            }
        }
        let released = self.parked.get(waiting..).unwrap_or_default();
        if released.is_empty() {
            return;
        }
        waited(&mut released.iter());
        for ParkedReply { reply, .. } in self.parked.drain(waiting..) {
            let bytes = reply.bytes();
            if invariant!(
                self.parked_bytes >= bytes,
                "a reply is larger than all that are parked"
            ) {
                self.parked_bytes -= bytes;
            }
            self.outbox.push(reply);
        }
        if self.parked.is_empty() && self.parked.capacity() > 64 {
            self.parked = Vec::new();
        }
    }

    /// Returns the number of the first log record beyond `durable` that a parked answer waits for.
    fn first_due(&self, durable: Lsn) -> Option<Lsn> {
        let due = self.parked.iter().map(|parked| parked.after);
        due.filter(|lsn| *lsn > durable).min()
    }

    /// Returns true if answers are parked for another reason than the log.
    fn withheld(&self, durable: Lsn) -> bool {
        self.parked.iter().any(|parked| parked.after <= durable)
    }

    /// Turns all parked answers into failures.
    fn fail_parked(&mut self) {
        self.parked_bytes = 0;
        for parked in self.parked.drain(..) {
            self.outbox.push(parked.reply.into_failure());
        }
    }

    /// Polls waiting requests, and takes their answers.
    fn poll_waiting(&mut self, cx: &mut Context<'_>, log: &impl Log, now: impl Fn() -> u64) {
        loop {
            let done = PendingRequests::next(&mut self.held, cx)
                .or_else(|| PendingRequests::next(&mut self.waiting, cx))
                .or_else(|| PendingRequests::next(&mut self.parked_calls, cx));
            match done {
                Some(Some((reply, after))) => {
                    self.answer(reply, after, log.durable(), log, &now);
                }
                Some(None) => {}
                None => return,
            }
        }
    }
}

/// Borrowed state for serving the records of one read.
struct ServeContext<'a, 'c, B: Backend> {
    core: &'a Core<B::Log>,
    backend: &'a B,
    info: &'a ConnInfo<B::State>,
    traffic: &'a mut Traffic<B::Reply>,
    holding: &'a mut ConnectionMemory,
    watch: &'a Rc<Watch>,
    /// Credit of the request under assembly.
    credit: &'a mut Option<HeldBytes>,
    /// Reply to the request that is being skipped.
    refusal: &'a mut Option<(B::Reply, Option<Lsn>)>,
    layer: &'a mut Layer,
    /// The client whose messages follow, once the peer has said so.
    speaks_for: &'a mut Option<SocketAddr>,
    cx: &'a mut Context<'c>,
    now: Arrival,
    durable: Lsn,
    /// Maximum number of bytes in flight.
    most: usize,
    /// Maximum bytes of replies for the socket; beyond it no more requests run.
    unsent_max: usize,
    room: MemoryLevel,
    /// True if large replies take turns.
    crowded: bool,
    /// Bytes reserved for the request under assembly.
    announced: usize,
}

impl<B: Backend> ServeContext<'_, '_, B> {
    fn next(&self) -> Flow {
        match self.traffic.full(self.most, self.unsent_max) {
            true => Flow::Pause,
            false => Flow::Continue,
        }
    }

    /// Returns the maximum size of a READ's reply: while memory is short, as many whole blocks as
    /// the peer has taken bytes before. A peer that takes nothing then has its first replies in the
    /// kernel, and none in the budget.
    fn reads(&self) -> usize {
        match self.room {
            MemoryLevel::Ample => usize::MAX,
            _ => {
                let taken = usize::try_from(self.watch.sent.get()).unwrap_or(usize::MAX);
                (taken - taken % BLOCK_SIZE).max(limits::SMALL_REPLY)
            }
        }
    }

    fn answer(&mut self, reply: B::Reply, after: Option<Lsn>) {
        if after.is_some_and(|lsn| lsn > self.durable) {
            self.durable = self.core.log.durable();
        }
        let log = &self.core.log;
        let now = self.now.monotonic.unwrap_or_default();
        self.traffic.answer(reply, after, self.durable, log, || now);
    }
}

impl<B: Backend> Receiver for ServeContext<'_, '_, B> {
    fn admit(&mut self, head: &[u8], bytes: usize) -> Admit {
        let credit = match self.backend.begin(self.info, head, bytes, self.cx) {
            Begin::Go(credit) => credit,
            Begin::Wait => return Admit::Wait,
            Begin::Refuse(reply, after) => {
                *self.refusal = Some((reply, after));
                return Admit::Skip;
            }
            Begin::Close(why) => return Admit::Close(why),
        };
        let more = bytes.saturating_sub(head.len() + self.announced);
        if !self.holding.promise(more) {
            // Tries again: memory that was freed in between wakes no task.
            self.core.wait_for_memory(self.watch);
            if !self.holding.promise(more) {
                return Admit::Wait;
            }
        }
        self.holding.waits_no_more();
        self.announced += more;
        *self.credit = credit;
        Admit::Take
    }

    fn ready(&mut self, message: &[u8]) -> bool {
        let crowded = self.crowded;
        if self.room == MemoryLevel::Ample && !crowded {
            return true;
        }
        let bytes = self.backend.reply_bound(message, self.reads());
        if self.room != MemoryLevel::Ample
            && !self.holding.lends(self.traffic.outbox.bytes(), bytes)
        {
            return false;
        }
        let now = self.now.monotonic.unwrap_or_default();
        bytes <= limits::SMALL_REPLY || !crowded || self.core.takes_turn(self.watch, bytes, now)
    }

    fn record(&mut self, message: &[u8]) -> Flow {
        let backend = self.backend;
        self.watch.requests.set(self.watch.requests.get() + 1);
        // The request is complete. If it has to wait, the credit that it arrived with is its own.
        let lent = self.credit.take().map(HeldBytes::lend);
        let now = Arrival {
            reads: self.reads(),
            ..self.now
        };
        let handled = backend.handle(self.info, message, now);
        drop(lent);
        match handled {
            Outcome::Reply(reply, after) => self.answer(reply, after),
            Outcome::Later(work) => {
                let reply = backend.reply_bound(message, now.reads);
                return self.without_reply(Outcome::Later(work), message.len() + reply);
            }
            handled => return self.without_reply(handled, message.len()),
        }
        self.next()
    }

    fn skipped(&mut self) -> Flow {
        self.watch.requests.set(self.watch.requests.get() + 1);
        if let Some((reply, after)) = self.refusal.take() {
            self.answer(reply, after);
        }
        self.next()
    }
}

impl<B: Backend> ServeContext<'_, '_, B> {
    /// Handles a request of `bytes` that has no reply yet.
    fn without_reply(&mut self, handled: Outcome<B::Reply>, bytes: usize) -> Flow {
        match handled {
            Outcome::Reply(reply, after) => self.answer(reply, after),
            Outcome::Larger(handled, more) => return self.without_reply(*handled, bytes + more),
            Outcome::Later(work) => {
                self.traffic.wait(work, bytes + limits::PENDING_OVERHEAD);
            }
            Outcome::Held(work) => {
                self.traffic.hold(work, bytes);
                // The credit also applies to requests that arrived in the same read.
                if !self.backend.may_read(self.info, self.cx) {
                    return Flow::Pause;
                }
            }
            Outcome::Parked(work, refusal, interim) => {
                let bytes = bytes + limits::PENDING_OVERHEAD;
                self.traffic.park(work, refusal, interim, bytes);
            }
            Outcome::StartTls(reply) => {
                let Some(config) = self.backend.tls() else {
                    return Flow::Close("TLS is offered without settings");
                };
                if !self.traffic.idle() {
                    return Flow::Close("requests are under way as TLS is to begin");
                }
                self.traffic.outbox.push(reply);
                *self.layer = Layer::Starting(config);
                return Flow::Pause;
            }
            Outcome::SpeaksFor(reply, client) => {
                if !self.traffic.idle() {
                    return Flow::Close(
                        "requests are under way as those of a client are announced",
                    );
                }
                self.traffic.outbox.push(reply);
                *self.speaks_for = Some(client);
                return Flow::Pause;
            }
            Outcome::Drop => {}
            Outcome::Close(why) => return Flow::Close(why),
        }
        self.next()
    }
}

/// A connection. Resolves when it is over; dropping it closes the socket.
pub(super) struct Conn<B: Backend> {
    core: Rc<Core<B::Log>>,
    backend: Arc<B>,
    stream: TcpStream,
    layer: Layer,
    info: ConnInfo<B::State>,
    inbox: Inbox<B::Framing>,
    /// Requests that were read but may not run yet.
    backlog: Vec<u8>,
    traffic: Traffic<B::Reply>,
    /// Credit of the request under assembly.
    incoming: Option<HeldBytes>,
    /// Reply to the request that is being skipped.
    refusal: Option<(B::Reply, Option<Lsn>)>,
    intake: Intake,
    /// True if the last round ended with waiting for the peer to send.
    reading: bool,
    /// Delay of the next check whether the peer has taken its replies.
    untaken_pause: Duration,
    holding: ConnectionMemory,
    watch: Rc<Watch>,
    _present: Present,
}

impl<B: Backend> Conn<B> {
    /// Creates the future that serves `stream`. Fails if the stream is lost already, or if there
    /// are too many connections.
    pub fn new(core: Rc<Core<B::Log>>, backend: Arc<B>, stream: StdStream) -> io::Result<Conn<B>> {
        let info = ConnInfo::new(
            core.connection_number(),
            stream.peer_addr()?,
            stream.local_addr()?,
        );
        let stream = TcpStream::from_std(stream)?;
        let holding = core.ledger.connect(info.peer.ip());
        let holding = holding.ok_or_else(|| io::Error::other("too many connections"))?;
        tracing::debug!(peer = %info.peer, "connected");
        let watch = core.watch(info.id, &holding);
        watch.socket.set(Some(stream.as_raw_fd()));
        Ok(Conn {
            watch,
            _present: core.connected.enter(info.local, info.peer),
            holding,
            core,
            backend,
            stream,
            layer: Layer::Clear,
            info,
            inbox: Inbox::new(limits::MAX_RECORD),
            backlog: Vec::new(),
            traffic: Traffic::new(),
            incoming: None,
            refusal: None,
            intake: Intake::Open,
            reading: false,
            untaken_pause: limits::UNTAKEN_PAUSE,
        })
    }

    /// Sends ready replies until the socket takes no more.
    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(mut fresh) = self.traffic.outbox.fresh() {
            self.backend.answered(&self.info, &mut fresh);
        }
        match self.layer.is_bare() {
            true => self.flush_clear(cx),
            false => self.flush_layer(cx),
        }
    }

    /// Sends the replies unencrypted by this process.
    #[inline]
    fn flush_clear(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.traffic.outbox.is_empty() {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Ok(()),
            }
            let (pieces, total) = self.traffic.outbox.gather();
            let mut written = 0;
            let done = self.stream.try_io(Interest::WRITABLE, || {
                written = rustix::io::writev(&self.stream, &pieces)?;
                // A short write means a full socket buffer. Reporting it as `WouldBlock` saves the
                // next call, which would only return that.
                if written < total {
                    Err(io::ErrorKind::WouldBlock.into())
                } else {
                    Ok(())
                }
            });
            drop(pieces);
            self.watch.sent.set(self.watch.sent.get() + written as u64);
            self.traffic.outbox.advance(written);
            match done {
                Ok(()) => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Accepts no more requests. Those that wait for limits or on purpose are dropped: no client
    /// waits for their replies any more, and none has begun.
    fn close(&mut self) {
        self.intake = Intake::Closed;
        self.backend.ended(&self.info);
        self.traffic.held = None;
        self.traffic.parked_calls = None;
    }

    /// Reads once and runs complete requests. `Pending` if the peer has sent nothing more. With
    /// `only_begun`, reads at most the rest of the request that memory was reserved for. The less
    /// `room` there is, the less is read.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        only_begun: bool,
        room: MemoryLevel,
    ) -> Poll<io::Result<()>> {
        debug_assert!(
            self.backlog.is_empty(),
            "what was read before is run before more is read"
        );
        if !self.layer.is_bare() {
            return self.fill_layer(cx, only_begun, room);
        }
        match self.stream.poll_read_ready(cx) {
            Poll::Ready(ready) => ready?,
            Poll::Pending => return Poll::Pending,
        }
        let core = Rc::clone(&self.core);
        let mut buffer = core.receive.borrow_mut();
        let beyond = match () {
            () if only_begun => self.inbox.skips(),
            () if room == MemoryLevel::Scant => limits::SCANT_READ,
            () if room != MemoryLevel::Ample || self.backend.under_pressure() => {
                limits::CROWDED_READ
            }
            () => buffer.len(),
        };
        let beyond = beyond.min(buffer.len());
        let spare = self.inbox.spare();
        let direct = spare.len();
        let parts = [
            libc::iovec {
                iov_base: spare.as_mut_ptr().cast(),
                iov_len: direct,
            },
            libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: beyond,
            },
        ];
        let capacity = direct + beyond;
        // Without an open fragment the first part is empty and omitted.
        let parts = if direct > 0 { &parts[..] } else { &parts[1..] };
        let fd = self.stream.as_raw_fd();
        let clear = matches!(self.layer, Layer::Clear);
        let mut read = 0;
        let mut end = false;
        let done = self.stream.try_io(Interest::READABLE, || {
            // SAFETY: both parts are live, writable and not otherwise borrowed for the length of
            // the call; `fd` is open as long as `self.stream`.
            let n = unsafe { libc::readv(fd, parts.as_ptr(), parts.len() as libc::c_int) };
            read = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            end = read == 0;
            // A short read means an empty socket, see `flush_clear`; or the end of a record.
            if !end && read < capacity && clear {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        match done {
            Ok(()) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Poll::Ready(self.interrupted(e)),
        }
        if end {
            if self.inbox.partial() {
                tracing::debug!(peer = %self.info.peer, "connection ended within a request");
            }
            self.close();
            return Poll::Ready(Ok(()));
        }
        self.watch
            .received
            .set(self.watch.received.get() + read as u64);
        let placed = read.min(direct);
        // SAFETY: the kernel filled the parts in order, so the first `placed` bytes of `spare`.
        unsafe { self.inbox.filled(placed) };
        let rest = buffer.get(..read - placed).unwrap_or_default();
        if read > 0 {
            let used = self.run(rest, cx, room);
            self.backlog = rest.get(used..).unwrap_or_default().to_vec();
        }
        Poll::Ready(Ok(()))
    }

    /// Runs the complete records in `input` and returns the bytes that they took. The rest may not
    /// run yet.
    fn run(&mut self, input: &[u8], cx: &mut Context<'_>, room: MemoryLevel) -> usize {
        let backend = &*self.backend;
        let announced = self.inbox.announced();
        let mut speaks_for = None;
        let mut serving = ServeContext {
            core: &self.core,
            backend,
            info: &self.info,
            traffic: &mut self.traffic,
            holding: &mut self.holding,
            watch: &self.watch,
            credit: &mut self.incoming,
            refusal: &mut self.refusal,
            layer: &mut self.layer,
            speaks_for: &mut speaks_for,
            cx,
            now: Arrival {
                time: self.core.clock.current_time(),
                monotonic: Some(self.core.monotonic()),
                reads: usize::MAX,
            },
            durable: self.core.log.durable(),
            most: in_flight(room),
            unsent_max: self.core.turn_bytes(self.watch.sent.get()),
            room,
            crowded: self.core.is_crowded(),
            announced,
        };
        let accepted = backend.together(|| self.inbox.accept(input, &mut serving));
        let used = accepted.and_then(|used| match &self.layer {
            Layer::Starting(_) if used < input.len() => Err(Broken::Refused(
                "the peer went on in the clear behind its probe for TLS",
            )),
            _ => Ok(used),
        });
        let used = used.and_then(|used| match speaks_for {
            Some(client) => self.speak_for(client).map(|()| used),
            None => Ok(used),
        });
        match used {
            Ok(used) => used,
            Err(error) => {
                tracing::warn!(peer = %self.info.peer, "connection closed: {error}");
                self.layer = Layer::Clear;
                self.intake = Intake::Closed;
                self.incoming = None;
                self.inbox = Inbox::new(limits::MAX_RECORD);
                input.len()
            }
        }
    }

    /// Serves and charges further messages as those of `client`.
    fn speak_for(&mut self, client: SocketAddr) -> Result<(), Broken> {
        let holding = self.core.ledger.connect(client.ip());
        let holding = holding.ok_or(Broken::Refused("too many connections of the client"))?;
        tracing::debug!(peer = %self.info.peer, %client, "a server passes on a client's messages");
        self.info.peer = client;
        self.info.forwarded = true;
        let watch = self.core.watch(self.info.id, &holding);
        watch.received.set(self.watch.received.get());
        watch.sent.set(self.watch.sent.get());
        watch.requests.set(self.watch.requests.get());
        watch.socket.set(self.watch.socket.take());
        watch.waker.swap(&self.watch.waker);
        self.watch = watch;
        self.holding = holding;
        Ok(())
    }

    /// Reads and runs requests if there is room for more. Returns true if anything moved.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.reading = false;
        self.holding.waits_no_more();
        let unsent_max = self.core.turn_bytes(self.watch.sent.get());
        if matches!(self.intake, Intake::Closed)
            || self.traffic.full(limits::CONNECTION_IN_FLIGHT, unsent_max)
        {
            return Ok(false);
        }
        // A request that has begun has its memory and its credit, so its rest is read: half read,
        // it would hold both for ever, and enough such connections would hold all of them.
        let mut only_begun = false;
        let begun = |inbox: &mut Inbox<B::Framing>| !inbox.spare().is_empty() || inbox.skips() > 0;
        if !self.backend.may_read(&self.info, cx) {
            only_begun = true;
            if !begun(&mut self.inbox) {
                self.watch.paused.set(Some(self.stream.as_raw_fd()));
                return Ok(false);
            }
        }
        self.watch.paused.set(None);
        let mut room = self.holding.room();
        if room != MemoryLevel::Ample {
            // The connection must not wait for bytes that it holds itself and has not settled yet.
            self.update_ledger();
            self.core.wait_for_memory(&self.watch);
            room = self.holding.room();
            let untaken = room != MemoryLevel::Ample && !self.has_taken();
            if untaken {
                // Others wait neither for the bytes that it would need nor for it.
                self.holding.waits_no_more();
                self.core.come_back(&self.watch, self.untaken_pause);
                self.untaken_pause = (self.untaken_pause * 2).min(limits::UNTAKEN_LONGEST);
            }
            let full = room != MemoryLevel::Ample && self.traffic.full(in_flight(room), unsent_max);
            let stops = room == MemoryLevel::None || full;
            if stops || untaken {
                only_begun = true;
                if !begun(&mut self.inbox) {
                    return Ok(false);
                }
            }
        }
        if !only_begun && (!self.backlog.is_empty() || self.inbox.waits()) {
            let mut input = std::mem::take(&mut self.backlog);
            let used = self.run(&input, cx, room);
            if used > 0 {
                input = input.split_off(used.min(input.len()));
            }
            self.backlog = input;
            let waits = self.inbox.waits();
            if waits {
                self.watch.paused.set(Some(self.stream.as_raw_fd()));
            }
            // The replies have to be sent, whatever waits behind them.
            return Ok(!waits || used > 0);
        }
        match self.fill(cx, only_begun, room) {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => {
                self.reading = true;
                Ok(false)
            }
        }
    }

    /// Returns true if the peer has taken its replies. While memory is short, only such peers get
    /// more.
    fn has_taken(&mut self) -> bool {
        let taken = self.traffic.outbox.is_empty()
            && !self.layer.is_writing()
            && untaken(self.stream.as_raw_fd()) <= limits::UNTAKEN;
        if taken {
            self.untaken_pause = limits::UNTAKEN_PAUSE;
        }
        taken
    }

    /// Queues the messages that the peer did not ask for. A peer that takes neither them nor its
    /// replies is dropped.
    fn take_mail(&mut self) {
        while let Some(message) = self.watch.mail.borrow_mut().pop_front() {
            // Replies alone stay below this limit, because reading of requests stops earlier.
            if self.traffic.outbox.bytes() > 2 * limits::CONNECTION_IN_FLIGHT {
                return self.watch.drop_because("takes no messages");
            }
            self.traffic.outbox.push(self.backend.unasked(message));
        }
    }

    /// Repeats rounds until nothing moves. Returns true when the connection is over.
    fn advance(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.watch.sent.get();
        for _ in 0..limits::TURN {
            // Before the log is polled, because these answers may have to wait for it.
            if self.traffic.any_waiting() {
                let core = &self.core;
                self.traffic
                    .poll_waiting(cx, &core.log, || core.monotonic());
            }
            self.take_mail();
            if !self.traffic.parked.is_empty() {
                let log = &self.core.log;
                let (backend, info) = (&*self.backend, &self.info);
                let waited = |released: &mut dyn Iterator<Item = &ParkedReply<B::Reply>>| {
                    let now = self.core.monotonic();
                    backend.logged(
                        info,
                        // Saturates: replies that were parked by a clock of a moment later.
                        &mut released.map(|one| (&one.reply, now.saturating_sub(one.since))),
                    );
                };
                let mut durable = log.durable();
                self.traffic.release(durable, log, waited);
                if !self.traffic.parked.is_empty() && log.log_failed() {
                    // Read after the failure was seen: records that became durable before it are
                    // durable.
                    durable = log.durable();
                    self.traffic.release(durable, log, waited);
                    self.traffic.fail_parked();
                }
                if let Some(due) = self.traffic.first_due(durable) {
                    self.core.wait_for_log(&self.watch, due);
                }
                if self.traffic.withheld(durable) {
                    self.core.come_back(&self.watch, limits::WITHHELD_PAUSE);
                }
            }
            if !self.traffic.outbox.is_empty() && !self.core.log.may_reply() {
                self.core.come_back(&self.watch, limits::LEASE_PAUSE);
                return Ok(false);
            }
            self.flush(cx)?;
            if self.core.draining.get() {
                self.close();
            }
            if matches!(self.intake, Intake::Closed) && self.traffic.idle() {
                return match self.layer {
                    Layer::Clear => Ok(true),
                    _ => self.end_layer(cx),
                };
            }
            if self.watch.sent.get() - before >= self.core.turn_bytes(self.watch.sent.get()) as u64
            {
                break;
            }
            if !self.take_requests(cx)? {
                return Ok(false);
            }
        }
        // Gives other connections their turn.
        cx.waker().wake_by_ref();
        Ok(false)
    }

    /// Updates the ledger with the bytes that are held.
    fn update_ledger(&mut self) {
        let used =
            self.traffic.memory() + self.inbox.held() + self.backlog.capacity() + self.layer.held();
        if self.holding.set(used, self.inbox.announced()) {
            self.core.wakeups.memory_released();
        }
        self.watch
            .holds
            .set(self.holding.bytes() + self.holding.waits_for());
        if self.holding.is_stranger() && self.backend.knows(&self.info) {
            self.holding.admitted();
        }
    }
}

/// Returns the maximum number of bytes in flight of a connection.
fn in_flight(room: MemoryLevel) -> usize {
    match room {
        MemoryLevel::Ample => limits::CONNECTION_IN_FLIGHT,
        MemoryLevel::Short | MemoryLevel::Scant | MemoryLevel::None => limits::SHORT_IN_FLIGHT,
    }
}

impl<B: Backend> Drop for Conn<B> {
    fn drop(&mut self) {
        self.watch.paused.set(None);
        self.watch.socket.set(None);
        if self.holding.set(0, 0) {
            self.core.wakeups.memory_released();
        }
        self.core.forget(self.info.id);
        self.backend.ended(&self.info);
        tracing::debug!(peer = %self.info.peer, "disconnected");
    }
}

impl<B: Backend> Future for Conn<B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(why) = this.watch.dropped.get() {
            tracing::warn!(peer = %this.info.peer, "connection dropped: the peer {why}");
            return Poll::Ready(());
        }
        match this.advance(cx) {
            Ok(true) => return Poll::Ready(()),
            Ok(false) => {}
            Err(error) => {
                // A peer that went away is normal; any other error deserves a line.
                match error.kind() {
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                        tracing::debug!(peer = %this.info.peer, %error, "connection lost");
                    }
                    _ => tracing::warn!(peer = %this.info.peer, %error, "connection closed"),
                }
                return Poll::Ready(());
            }
        }
        this.update_ledger();
        let waits = match () {
            () if !this.traffic.outbox.is_empty() || this.layer.is_writing() => StallState::Writing,
            () if this.reading && (this.inbox.partial() || this.layer.is_handshaking()) => {
                StallState::Reading
            }
            () if this.inbox.waits() && this.holding.waits_for() > 0 => {
                this.watch.backlog.set(this.backlog.len());
                this.watch.rest.set(this.inbox.rest());
                StallState::Waiting
            }
            () => StallState::No,
        };
        this.watch.waits.set(waits);
        let mut waker = this.watch.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

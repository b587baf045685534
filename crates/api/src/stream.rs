//! A connection's bytes, with a time for each thing that the peer has to do.
//!
//! Reading: see [`Slot::deadline`]. Writing: a peer that takes none of a reply for [`WRITE_TIME`]
//! is gone. Closing: bytes that the peer has sent and the server did not read make the kernel send
//! a reset, which overtakes the reply in clients that are still sending. So the socket of a peer
//! that was not admitted stays open for [`LINGER`] behind the last byte of its refusal. Nothing is
//! read from it meanwhile.

use crate::connections::Slot;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A reply has to make progress within this.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Time that a refused peer has for reading the refusal.
const LINGER: Duration = Duration::from_secs(1);

/// A stream with its deadlines.
pub struct DeadlineStream<S> {
    stream: S,
    /// Bytes that were read before, to find out what is spoken.
    ahead: Vec<u8>,
    slot: Arc<Slot>,
    timer: Pin<Box<Sleep>>,
    /// Since when the peer takes nothing.
    stuck: Option<Instant>,
    /// Until when the closed stream stays open.
    lingers: Option<Instant>,
    /// Reading has no deadline of its own: see [`DeadlineStream::unhurried`].
    unhurried: bool,
}

impl<S> DeadlineStream<S> {
    /// Creates a stream with deadlines; `ahead` was read from `stream` already.
    pub fn new(stream: S, ahead: Vec<u8>, slot: Arc<Slot>) -> DeadlineStream<S> {
        DeadlineStream {
            stream,
            ahead,
            slot,
            timer: Box::pin(sleep_until(Instant::now())),
            stuck: None,
            lingers: None,
            unhurried: false,
        }
    }

    /// Leaves the deadlines of reading to the caller, which can say goodbye to the peer.
    pub fn unhurried(mut self) -> DeadlineStream<S> {
        self.unhurried = true;
        self
    }

    /// Polls the timer: ready once it is `at`.
    fn poll_time(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Returns the result of a write that came to `done`, or an error if the peer takes nothing for
    /// too long.
    fn progress<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stuck = None;
            return done;
        }
        let since = *self.stuck.get_or_insert_with(Instant::now);
        ready!(self.poll_time(since + WRITE_TIME, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for DeadlineStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let n = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..n]);
            this.ahead.drain(..n);
            this.slot.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if let Poll::Ready(done) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            if buf.filled().len() > before {
                this.slot.received();
            }
            return Poll::Ready(done);
        }
        // A reply that the peer does not take has a time of its own.
        let patient = this.unhurried || this.stuck.is_some();
        match this.slot.deadline().filter(|_| !patient) {
            None => Poll::Pending,
            Some(at) => {
                ready!(this.poll_time(at, cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for DeadlineStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.progress(done, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress(done, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingers.is_none() {
            let done = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.progress(done, cx))?;
            if self.slot.is_known() {
                return Poll::Ready(Ok(()));
            }
        }
        let until = *self.lingers.get_or_insert_with(|| Instant::now() + LINGER);
        self.poll_time(until, cx).map(Ok)
    }
}

//! TLS on a connection that began in the clear (RFC 9289 §4.1).
//!
//! The protocol above replies to a probe with [`Outcome::StartTls`](weir_conn::Outcome). That reply
//! The protocol above replies to a probe with [`Outcome::StartTls`](weir_conn::Outcome). That reply
//! leaves in the clear; after it each byte in either direction is TLS's. Bytes that came behind the
//! probe in the clear would be taken for requests of the peer that later shows its certificate,
//! although anyone may have inserted them. The connection is therefore closed.
//!
//! The handshake runs on the event loop: its two steps cost a signature and a key agreement, some
//! hundred microseconds. Between them only the socket is waited for, so a peer that stops there is
//! dropped like one that leaves a request unfinished.
//!
//! **Memory.** Records are decrypted into one buffer of the core ([`Core::opened`](super::Core)).
//! Replies are encrypted [`limits::TLS_BATCH`] bytes at a time, each batch after the socket has
//! taken the previous one. The session's own memory is charged to the connection
//! ([`limits::TLS_SESSION`]).
//!
//! **The kernel's TLS** takes over after the handshake if there is one ([`kernel_tls`]), unless
//! data of the peer arrived with the handshake's last record. To avoid that, the handshake is read
//! record by record ([`Boundary`]).

use std::io::{self, IoSlice, Read as _, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};
use weir_base::invariant;
use weir_base::limits::net as limits;
use weir_vfs::Transport;

use super::{Backend, Conn, MemoryLevel, kernel_tls};

/// Layer between the socket and the messages.
#[derive(Default)]
pub(super) enum Layer {
    /// No layer.
    #[default]
    Clear,
    /// TLS begins once the reply that announces it has left.
    Starting(Arc<ServerConfig>),
    /// TLS in this process.
    Tls(Box<Session>),
    /// TLS in the kernel.
    Kernel,
}

impl Layer {
    /// Returns the bytes of memory that it holds.
    pub fn held(&self) -> usize {
        match self {
            Layer::Clear | Layer::Kernel => 0,
            Layer::Starting(_) => limits::TLS_SESSION,
            Layer::Tls(session) if session.tls.wants_write() => {
                limits::TLS_SESSION + limits::TLS_BATCH
            }
            Layer::Tls(_) => limits::TLS_SESSION,
        }
    }

    /// Returns true if messages pass the socket unchanged.
    pub fn is_bare(&self) -> bool {
        matches!(self, Layer::Clear | Layer::Kernel)
    }

    /// Returns true if it has bytes that the peer has not taken.
    pub fn is_writing(&self) -> bool {
        matches!(self, Layer::Tls(session) if session.tls.wants_write())
    }

    /// Returns true if the peer has to continue the handshake.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Layer::Tls(session) if session.tls.is_handshaking())
    }
}

/// The server's side of TLS on one connection.
pub(super) struct Session {
    tls: ServerConnection,
    boundary: Boundary,
}

/// Progress of reading a record: bytes of its header, then the bytes that remain.
#[derive(Default)]
struct Boundary {
    header: [u8; HEADER],
    have: usize,
    left: usize,
}

/// Bytes of a record's header: a type, a version, and a length (RFC 8446 §5.1).
const HEADER: usize = 5;

impl Boundary {
    /// Returns the bytes to read so that no more than this record arrives.
    fn wants(&self) -> usize {
        match self.have {
            HEADER => self.left,
            have => HEADER - have,
        }
    }

    /// Accounts for bytes that were read, at most as many as [`Boundary::wants`] returned.
    fn took(&mut self, bytes: &[u8]) {
        if self.have < HEADER {
            let end = self.have + bytes.len();
            self.header[self.have..end].copy_from_slice(bytes);
            self.have = end;
            if self.have < HEADER {
                return;
            }
            self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        } else {
            self.left -= bytes.len();
        }
        if self.left == 0 {
            self.have = 0;
        }
    }
}

impl Session {
    fn new(config: &Arc<ServerConfig>) -> io::Result<Session> {
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(limits::TLS_BATCH));
        Ok(Session {
            tls,
            boundary: Boundary::default(),
        })
    }

    /// Decrypts bytes from the socket, and appends the content to `out`.
    ///
    /// # Errors
    /// The bytes are not TLS, or not what the session has agreed to. The alert for the peer then
    /// waits to be written.
    fn open(&mut self, mut sealed: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        // After the peer has closed, no more bytes are taken.
        while self.tls.read_tls(&mut sealed)? > 0 {
            let state = self.tls.process_new_packets();
            let state = state.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
            let start = out.len();
            out.resize(start + state.plaintext_bytes_to_read(), 0);
            if let Some(room) = out.get_mut(start..).filter(|room| !room.is_empty()) {
                self.tls.reader().read_exact(room)?;
            }
        }
        Ok(())
    }

    /// Returns true if the peer has announced that it sends no more.
    fn peer_has_closed(&mut self) -> bool {
        let state = self.tls.process_new_packets();
        state.is_ok_and(|state| state.peer_has_closed())
    }

    /// Returns the protection of the connection after the handshake.
    fn transport(&self) -> Transport {
        match self.tls.peer_certificates() {
            Some(_) => Transport::MutualTls,
            None => Transport::Tls,
        }
    }

    /// Returns true if the kernel can take over now.
    fn may_leave(&self) -> bool {
        let suite = self.tls.negotiated_cipher_suite();
        !self.tls.wants_write()
            && suite.is_some_and(|suite| kernel_tls::ciphers().contains(&suite.suite()))
    }
}

/// A socket to write to.
struct Socket<'s>(&'s TcpStream);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, pieces)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of a socket call unless it is temporary.
fn lasting(done: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    match done {
        Err(error) if !matches!(error.kind(), WouldBlock | Interrupted) => Err(error),
        _ => Ok(()),
    }
}

impl<B: Backend> Conn<B> {
    /// As [`Conn::flush`], on a connection that is no longer in the clear.
    #[cold]
    pub(super) fn flush_layer(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Layer::Starting(config) = &self.layer {
            let config = Arc::clone(config);
            self.flush_clear(cx)?;
            if !self.traffic.outbox.is_empty() {
                return Ok(());
            }
            self.layer = Layer::Tls(Box::new(Session::new(&config)?));
        }
        let Layer::Tls(session) = &mut self.layer else {
            return Ok(());
        };
        let tls = &mut session.tls;
        loop {
            while tls.wants_write() {
                match self.stream.poll_write_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => return Ok(()),
                }
                let mut written = 0;
                let done = self.stream.try_io(Interest::WRITABLE, || {
                    written = tls.write_tls(&mut Socket(&self.stream))?;
                    Ok(())
                });
                self.watch.sent.set(self.watch.sent.get() + written as u64);
                lasting(done)?;
            }
            if self.traffic.outbox.is_empty() || tls.is_handshaking() {
                return Ok(());
            }
            let (pieces, _) = self.traffic.outbox.gather();
            let sealed = tls.writer().write_vectored(&pieces)?;
            drop(pieces);
            if !invariant!(sealed > 0, "TLS has no room although nothing waits in it") {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.traffic.outbox.advance(sealed);
        }
    }

    /// As [`Conn::fill`], on a connection that is no longer in the clear.
    #[cold]
    pub(super) fn fill_layer(
        &mut self,
        cx: &mut Context<'_>,
        only_begun: bool,
        room: MemoryLevel,
    ) -> Poll<io::Result<()>> {
        let Layer::Tls(session) = &mut self.layer else {
            // Waits for the socket to take the reply.
            return Poll::Pending;
        };
        if session.peer_has_closed() {
            self.close();
            return Poll::Ready(Ok(()));
        }
        match self.stream.poll_read_ready(cx) {
            Poll::Ready(ready) => ready?,
            Poll::Pending => return Poll::Pending,
        }
        let core = Rc::clone(&self.core);
        let mut buffer = core.receive.borrow_mut();
        // Encrypted bytes are longer than their content, so at most the request that has begun
        // arrives, and the rest of a record.
        let most = match () {
            () if only_begun => self.inbox.spare().len() + self.inbox.skips(),
            () if room == MemoryLevel::Scant => limits::SCANT_READ,
            () if room != MemoryLevel::Ample || self.backend.under_pressure() => {
                limits::CROWDED_READ
            }
            () => buffer.len(),
        };
        let most = match session.tls.is_handshaking() {
            true => session.boundary.wants(),
            false => most,
        };
        let most = most.min(buffer.len());
        let space = buffer.get_mut(..most).unwrap_or_default();
        let (mut read, mut end) = (0, false);
        let done = self.stream.try_io(Interest::READABLE, || {
            read = rustix::io::read(&self.stream, &mut *space)?;
            end = read == 0;
            // A short read means an empty socket, see `flush_clear`.
            match end || read == most {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        lasting(done)?;
        if end {
            self.close();
            return Poll::Ready(Ok(()));
        }
        self.watch
            .received
            .set(self.watch.received.get() + read as u64);
        let mut opened = core.opened.borrow_mut();
        opened.clear();
        let before = session.tls.is_handshaking();
        let sealed = buffer.get(..read).unwrap_or_default();
        if before {
            session.boundary.took(sealed);
        }
        if let Err(error) = session.open(sealed, &mut opened) {
            // Sends the alert to the peer if its socket takes it.
            let _ = session.tls.write_tls(&mut Socket(&self.stream));
            return Poll::Ready(Err(error));
        }
        if before && !session.tls.is_handshaking() {
            self.info.transport = session.transport();
            let leaves = session.may_leave();
            tracing::debug!(peer = %self.info.peer, transport = ?self.info.transport, kernel = leaves, "TLS");
            if leaves && let Layer::Tls(session) = std::mem::replace(&mut self.layer, Layer::Kernel)
            {
                kernel_tls::hand_over(&self.stream, session.tls)?;
                return Poll::Ready(Ok(()));
            }
        }
        if !opened.is_empty() {
            let used = self.run(&opened, cx, room);
            self.backlog = opened.get(used..).unwrap_or_default().to_vec();
        }
        Poll::Ready(Ok(()))
    }

    /// Announces the end to the peer. Returns true when the socket has taken that.
    #[cold]
    pub(super) fn end_layer(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match &mut self.layer {
            Layer::Tls(session) => session.tls.send_close_notify(),
            Layer::Kernel => {
                let said = kernel_tls::say_end(&self.stream);
                return match said {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
                    said => said.map(|()| true),
                };
            }
            Layer::Clear | Layer::Starting(_) => {}
        }
        self.flush_layer(cx)?;
        Ok(!self.layer.is_writing())
    }

    /// Handles a failed read from the kernel's TLS. The kernel fails at a record that is not data.
    ///
    /// # Errors
    /// The record is not the one that a peer sends at its end.
    #[cold]
    pub(super) fn interrupted(&mut self, error: io::Error) -> io::Result<()> {
        let by_record = error.raw_os_error() == Some(libc::EIO);
        if !(matches!(self.layer, Layer::Kernel) && by_record) {
            return Err(error);
        }
        match kernel_tls::is_end(&self.stream)? {
            true => {
                self.close();
                Ok(())
            }
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a record of TLS that asks for what the kernel does not do",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads records of several lengths, one of them empty, in pieces of all sizes:
    /// [`Boundary::wants`] never extends beyond a record.
    #[test]
    fn no_more_is_read_than_the_record_at_hand() {
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for len in [1, 0, 300, 5, 16_640] {
            stream.extend_from_slice(&[22, 3, 3]);
            stream.extend_from_slice(&u16::to_be_bytes(len));
            stream.resize(stream.len() + usize::from(len), 0xff);
            ends.push(stream.len());
        }
        for most in [1, 2, 3, 7, 299, 20_000] {
            let mut boundary = Boundary::default();
            let (mut at, mut found) = (0, Vec::new());
            while at < stream.len() {
                let len = boundary.wants().min(most);
                assert!(len > 0, "something is always wanted");
                boundary.took(&stream[at..at + len]);
                at += len;
                if boundary.have == 0 {
                    found.push(at);
                }
            }
            assert_eq!(found, ends, "at most {most} at a time");
        }
    }
}

//! Connections to other servers of the cluster, over which messages of the constituents of large
//! volumes are sent ([`weir_nfs::forward`]).
//!
//! Each other aggregate has a thread here, from the first message on. It connects to where the
//! directory says that the aggregate is served. Messages may be lost: while there is no connection
//! they are dropped, and their senders repeat them.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::cluster::LARGE_OUTBOX_MAX;
use weir_large::{Constituent, Link};
use weir_nfs::forward;
use weir_vfs::Vfs;

/// Time for which one address is tried, and for which a write may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of the reply to an introduction.
const REPLY_BYTES: usize = 4096;
/// Bit of a record mark that says that the fragment is the last (RFC 5531 §11).
const LAST: u32 = 1 << 31;

/// See the module's head.
pub struct LargeLink {
    vfs: Weak<Vfs>,
    /// The threads, by the identities of the aggregates.
    threads: Mutex<HashMap<[u8; 16], SyncSender<Vec<u8>>>>,
}

impl LargeLink {
    /// Creates a link that looks servers up in the directory of `vfs`.
    pub fn new(vfs: &Arc<Vfs>) -> Arc<LargeLink> {
        Arc::new(LargeLink {
            vfs: Arc::downgrade(vfs),
            threads: Mutex::default(),
        })
    }
}

impl Link for LargeLink {
    fn send(&self, large: u64, to: Constituent, frame: Vec<u8>) {
        let Some(vfs) = self.vfs.upgrade() else {
            return;
        };
        let directory = vfs.directory();
        let Some(remote) = directory.of_constituent(large, to.0) else {
            return;
        };
        let mut threads = self.threads.lock();
        let sender = threads.entry(remote.identity).or_insert_with(|| {
            let (sender, frames) = sync_channel(LARGE_OUTBOX_MAX);
            let peer = Peer {
                vfs: Weak::clone(&self.vfs),
                aggregate: remote.identity,
                frames,
            };
            let thread = std::thread::Builder::new().name("large-link".to_owned());
            if let Err(error) = thread.spawn(move || peer.run()) {
                tracing::error!("cannot start the link to {}: {error}", remote.aggregate);
            }
            sender
        });
        // The outbox is full, or the thread could not be started: the frame is sent again.
        let _ = sender.try_send(frame);
    }
}

/// The way to the server of an aggregate.
struct Peer {
    vfs: Weak<Vfs>,
    aggregate: [u8; 16],
    frames: Receiver<Vec<u8>>,
}

/// A connection to the server of an aggregate.
struct Connection {
    stream: TcpStream,
    at: SocketAddr,
    /// The reply with the challenge.
    challenge: Vec<u8>,
}

impl Peer {
    /// Sends until the link is dropped.
    fn run(self) {
        let mut connection: Option<Connection> = None;
        while let Ok(frame) = self.frames.recv() {
            if connection.as_ref().is_some_and(|c| !self.is_at(c.at)) {
                connection = None;
            }
            if connection.is_none() {
                connection = self.connect();
                if connection.is_none() {
                    // Old ones are worth nothing; their senders repeat them.
                    while self.frames.try_recv().is_ok() {}
                    continue;
                }
            }
            let sent = connection.as_mut().map(|c| self.send(c, &frame));
            if let Some(Err(error)) = sent {
                tracing::debug!("cannot send to a constituent: {error}");
                connection = None;
            }
        }
    }

    /// Returns the addresses to try: where the aggregate is known to be, then where it may be.
    fn places(&self) -> Vec<SocketAddr> {
        let Some(vfs) = self.vfs.upgrade() else {
            return Vec::new();
        };
        let directory = vfs.directory();
        let remote = directory.of_aggregate(&self.aggregate);
        let places = remote.map(|remote| remote.nfs.iter().chain(&remote.others).copied());
        places.into_iter().flatten().collect()
    }

    fn is_at(&self, at: SocketAddr) -> bool {
        self.places().contains(&at)
    }

    fn connect(&self) -> Option<Connection> {
        for at in self.places() {
            match self.introduce(at) {
                Ok(connection) => return Some(connection),
                Err(error) => tracing::debug!(%at, "cannot reach a constituent: {error}"),
            }
        }
        None
    }

    fn introduce(&self, at: SocketAddr) -> io::Result<Connection> {
        let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&forward::hello(self.aggregate))?;
        let challenge = record(&mut stream)?;
        let connection = Connection {
            stream,
            at,
            challenge,
        };
        // Only its owner answers with a challenge.
        self.message(&connection, &[])?;
        Ok(connection)
    }

    fn message(&self, connection: &Connection, frame: &[u8]) -> io::Result<Vec<u8>> {
        let vfs = self.vfs.upgrade();
        let vfs = vfs.ok_or_else(|| io::Error::other("the server ends"))?;
        let directory = vfs.directory();
        let call = directory.membership().and_then(|membership| {
            forward::message(membership, self.aggregate, &connection.challenge, frame)
        });
        call.ok_or_else(|| io::Error::other("it does not own the aggregate"))
    }

    fn send(&self, connection: &mut Connection, frame: &[u8]) -> io::Result<()> {
        let call = self.message(connection, frame)?;
        connection.stream.write_all(&call)
    }
}

/// Reads a reply of one fragment.
fn record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mark = u32::from_be_bytes(mark);
    let len = (mark & !LAST) as usize;
    if mark & LAST == 0 || len > REPLY_BYTES {
        return Err(io::Error::other("the reply is too long"));
    }
    let mut reply = vec![0; len];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

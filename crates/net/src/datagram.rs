//! Messages over UDP: the lock manager and the status monitor.
//!
//! NFS itself is served over TCP only, but Linux calls the status monitor over UDP whatever the
//! mount uses: `sm-notify` of a client that has rebooted does, and so does the kernel of a client
//! on this machine. These are a few small messages an hour, so one task on the main thread
//! suffices. A request that has to wait (a host's first lock waits for the record of lock holders)
//! becomes a task. If [`WAITING`] of them wait, further ones are dropped, and their senders retry.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;
use weir_base::Clock;
use weir_base::limits::net::{DATAGRAM as MAX_MESSAGE, DATAGRAMS as WAITING};
use weir_conn::{Arrival, ConnInfo, Outcome, Reply};

use super::Backend;
use super::listener::bind_early;

/// Bytes of a record mark, which datagrams do not have.
const MARK: usize = 4;

/// Opens the UDP port of `address`. Returns the future that serves the messages selected by
/// `is_served`, within a local task set. With `early`, this machine need not have the address yet.
pub fn datagrams<B: Backend>(
    address: SocketAddr,
    early: bool,
    backend: Arc<B>,
    clock: Arc<dyn Clock>,
    is_served: fn(&[u8]) -> bool,
) -> io::Result<impl Future<Output = ()> + 'static> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    bind_early(&socket, address, early)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    let socket = Rc::new(UdpSocket::from_std(socket.into())?);
    Ok(async move {
        let waiting = Rc::new(Cell::new(0));
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            // An error concerns an earlier reply that could not be delivered.
            let Ok((len, peer)) = socket.recv_from(&mut buffer).await else {
                continue;
            };
            let message = buffer.get(..len).unwrap_or_default();
            if !is_served(message) {
                continue;
            }
            let conn = ConnInfo::new(0, peer, address);
            let arrival = Arrival {
                time: clock.current_time(),
                monotonic: u64::try_from(clock.monotonic().as_nanos()).ok(),
                reads: usize::MAX,
            };
            match backend.handle(&conn, message, arrival) {
                Outcome::Reply(reply, None) => send(&socket, &*backend, &conn, &reply).await,
                Outcome::Later(work) if waiting.get() < WAITING => {
                    let (socket, backend) = (Rc::clone(&socket), Arc::clone(&backend));
                    let waiting = Rc::clone(&waiting);
                    waiting.set(waiting.get() + 1);
                    tokio::task::spawn_local(async move {
                        if let Outcome::Reply(reply, None) = work.await {
                            send(&socket, &*backend, &conn, &reply).await;
                        }
                        waiting.set(waiting.get() - 1);
                    });
                }
                _ => {}
            }
        }
    })
}

async fn send<B: Backend>(
    socket: &UdpSocket,
    backend: &B,
    conn: &ConnInfo<B::State>,
    reply: &B::Reply,
) {
    backend.answered(conn, &mut std::iter::once(reply));
    let answer: Vec<u8> = {
        let mut pieces = Vec::new();
        reply.pieces(MARK, &mut pieces);
        pieces.iter().flat_map(|p| p.iter().copied()).collect()
    };
    // As unreliable as the transport: the caller retries.
    let _ = socket.send_to(&answer, conn.peer).await;
}

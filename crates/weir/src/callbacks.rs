//! Calls that the service makes to clients: a lock that was waited for is granted, the server
//! has restarted. The service writes the messages; this finds the client's port (its rpcbind
//! knows), sends them, and brings back the answers.
//!
//! One small task a call, a bounded number at once; a client that is gone costs a task and some
//! seconds, and delays nobody else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use weir_base::{Rng, SystemRng};
use weir_nfs::portmap::{self, Entry, Transport};
use weir_nfs::{Outgoing, Service};

/// Calls under way at once.
const AT_ONCE: usize = 64;
/// How long one attempt over UDP may take.
const TRY: Duration = Duration::from_secs(1);
/// Attempts over UDP.
const TRIES: usize = 3;
/// How long a call over TCP may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer taken: these calls answer with a few words.
const MAX_ANSWER: usize = 4096;
/// How often the service does what is due by time.
const TICK: Duration = Duration::from_secs(1);

/// Makes the service's calls for ever, and tells it the time. Runs within a local task set.
pub async fn run(service: Arc<Service>) {
    let news = Arc::new(Notify::new());
    let bell = Arc::clone(&news);
    service.on_outgoing(Arc::new(move || bell.notify_one()));
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = news.notified() => {}
            _ = tick.tick() => service.tick(),
        }
        for call in service.take_outgoing() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let service = Arc::clone(&service);
            tokio::task::spawn_local(async move {
                let reply = deliver(&call).await;
                if let Err(error) = &reply {
                    tracing::debug!(to = %call.to, program = call.program, %error, "call to a client failed");
                }
                service.outgoing_done(call.token, reply.ok().as_deref());
                drop(slot);
            });
        }
    }
}

/// Sends a call over whatever the client has; TCP if both.
async fn deliver(call: &Outgoing) -> io::Result<Vec<u8>> {
    for transport in [Transport::Tcp, Transport::Udp] {
        let entry = Entry {
            program: call.program,
            version: call.version,
            transport,
        };
        let xid = SystemRng.next_u64() as u32;
        let rpcbind = SocketAddr::new(call.to, portmap::PORT);
        let answer = ask(rpcbind, call.from, &portmap::getport(xid, entry)).await?;
        if let Some(port) = portmap::reply_port(xid, &answer) {
            let to = SocketAddr::new(call.to, port);
            return match transport {
                Transport::Tcp => timeout(PATIENCE, over_tcp(to, call.from, &call.message)).await?,
                Transport::Udp => over_udp(to, call.from, &call.message).await,
            };
        }
    }
    Err(io::Error::other("the program is not registered there"))
}

/// Asks over UDP, or over TCP if nobody answers that.
async fn ask(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    match over_udp(to, from, message).await {
        Ok(answer) => Ok(answer),
        Err(_) => timeout(PATIENCE, over_tcp(to, from, message)).await?,
    }
}

/// Where to call from: an address that the client knows us by, or any if that is not ours any more
/// (or not of the same family).
fn sources(to: SocketAddr, from: IpAddr) -> [SocketAddr; 2] {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = if from.is_ipv4() == to.is_ipv4() {
        from
    } else {
        any
    };
    [SocketAddr::new(from, 0), SocketAddr::new(any, 0)]
}

async fn over_udp(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(&sources(to, from)[..]).await?;
    socket.connect(to).await?;
    let mut answer = vec![0; MAX_ANSWER];
    for _ in 0..TRIES {
        socket.send(message).await?;
        match timeout(TRY, socket.recv(&mut answer)).await {
            // A transaction id of another call: a late answer to an earlier attempt of someone.
            Ok(Ok(len)) if answer.get(..4) == message.get(..4) => {
                answer.truncate(len);
                return Ok(answer);
            }
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

async fn over_tcp(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = if to.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    let [known, any] = sources(to, from);
    socket.bind(known).or_else(|_| socket.bind(any))?;
    let mut stream = socket.connect(to).await?;
    let mark = 0x8000_0000 | message.len() as u32;
    stream
        .write_all(&[&mark.to_be_bytes()[..], message].concat())
        .await?;
    let len = (stream.read_u32().await? & 0x7fff_ffff) as usize;
    if len > MAX_ANSWER {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

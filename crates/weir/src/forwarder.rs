//! Connections to other servers of the cluster, over which calls of clients are carried
//! ([`weir_nfs::forward`]).
//!
//! A connection of a client has a connection of its own to each owner that it asks. It is made with
//! the first call and ends with the client's. If it breaks, or the owner is elsewhere by now, the
//! calls that have no reply yet are sent again over another one, with the same transaction ids. The
//! owner knows them by its duplicate-request cache, as it knows those of a client that reconnects.
//! Without an owner they wait. Their memory, and that of their replies, is charged to the client's
//! connection, which is not read from any further when it has too much in flight.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{interval, sleep, timeout};
use weir_base::limits::net::MAX_RECORD;
use weir_conn::MARK_BYTES;
use weir_nfs::forward::{self, Forward, ForwardFuture};
use weir_nfs::{ConnInfo, Service};
use weir_vfs::Vfs;

/// Time for which one address is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// First pause after all addresses of an owner have been tried. It doubles with each round.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time without an acknowledgement after which the owner's machine is gone.
const SILENCE: Duration = Duration::from_secs(4);
/// Pause between two looks whether the owner is elsewhere.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of replies that are read at once.
const BUFFER: usize = 64 << 10;
/// Bit of a record mark that says that the fragment is the last (RFC 5531 §11).
const LAST: u32 = 1 << 31;

/// A call that has no reply yet.
struct Job {
    record: Arc<[u8]>,
    reply: oneshot::Sender<Vec<u8>>,
}

/// The link of a connection to an owner, by the identity of the aggregate.
type Links = Vec<([u8; 16], mpsc::UnboundedSender<Job>)>;

/// Calls that were forwarded since the start.
#[derive(Default)]
struct Counters {
    answered: AtomicU64,
    /// Calls whose client has gone before their reply.
    abandoned: AtomicU64,
    call_bytes: AtomicU64,
    reply_bytes: AtomicU64,
    /// Nanoseconds from calls to their replies.
    nanos: AtomicU64,
}

/// A call that is counted as abandoned unless it is answered.
struct CallGuard {
    counters: Arc<Counters>,
    began: u64,
    answered: bool,
}

impl CallGuard {
    fn answer(&mut self, bytes: usize, now: u64) {
        let Counters {
            answered,
            reply_bytes,
            nanos,
            ..
        } = &*self.counters;
        answered.fetch_add(1, Ordering::Relaxed);
        reply_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        // Saturates: the clock may be read on another thread.
        nanos.fetch_add(now.saturating_sub(self.began), Ordering::Relaxed);
        self.answered = true;
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.answered {
            self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// See the module's head.
pub struct Forwarder {
    vfs: Arc<Vfs>,
    counters: Arc<Counters>,
    /// Links of the clients' connections, by their numbers. A connection is served by one thread.
    links: Mutex<HashMap<u64, Links>>,
}

impl Forwarder {
    /// Lets `service` forward calls to the owners in the directory of `vfs`.
    pub fn install(service: &Service, vfs: &Arc<Vfs>) -> Arc<Forwarder> {
        let forwarder = Arc::new(Forwarder {
            vfs: Arc::clone(vfs),
            counters: Arc::default(),
            links: Mutex::default(),
        });
        service.forward_by(Arc::clone(&forwarder) as _);
        forwarder
    }

    /// Returns the metrics of forwarded calls.
    pub fn render(&self) -> String {
        let Counters {
            answered,
            abandoned,
            call_bytes,
            reply_bytes,
            nanos,
        } = &*self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = Duration::from_nanos(read(nanos)).as_secs_f64();
        let mut out = String::new();
        let mut family = |name: &str, help: &str, rows: &[(&str, u64)]| {
            out += &format!("# HELP {name} {help}\n# TYPE {name} counter\n");
            for (labels, value) in rows {
                out += &format!("{name}{{{labels}}} {value}\n");
            }
        };
        family(
            "weir_forwarded_calls_total",
            "Calls of NFSv3 that were passed on to other servers of the cluster. Abandoned: the client has gone before the reply.",
            &[
                ("result=\"answered\"", read(answered)),
                ("result=\"abandoned\"", read(abandoned)),
            ],
        );
        family(
            "weir_forwarded_bytes_total",
            "Bytes of calls that were passed on, and of their replies.",
            &[
                ("direction=\"calls\"", read(call_bytes)),
                ("direction=\"replies\"", read(reply_bytes)),
            ],
        );
        out += "# HELP weir_forwarded_seconds_total Time from calls that were passed on to their replies, in sum.\n\
                # TYPE weir_forwarded_seconds_total counter\n";
        out + &format!("weir_forwarded_seconds_total {seconds}\n")
    }
}

impl Forward for Forwarder {
    fn forward(&self, conn: &ConnInfo, owner: [u8; 16], record: Vec<u8>) -> ForwardFuture {
        let (reply, replied) = oneshot::channel();
        let bytes = record.len() as u64;
        self.counters.call_bytes.fetch_add(bytes, Ordering::Relaxed);
        let job = Job {
            record: record.into(),
            reply,
        };
        let mut links = self.links.lock();
        let links = links.entry(conn.id).or_default();
        let found = links.iter().find(|(identity, _)| *identity == owner);
        let sender = found.map(|(_, sender)| sender.clone());
        let sender = sender.unwrap_or_else(|| {
            let (sender, jobs) = mpsc::unbounded_channel();
            let link = Link {
                vfs: Arc::clone(&self.vfs),
                owner,
                client: conn.peer,
                jobs,
                under_way: Mutex::default(),
            };
            // On the event loop that serves the connection.
            tokio::spawn(link.run());
            links.push((owner, sender.clone()));
            sender
        });
        // A link ends after its senders.
        let _ = sender.send(job);
        let vfs = Arc::clone(&self.vfs);
        let mut counted = CallGuard {
            counters: Arc::clone(&self.counters),
            began: vfs.throttle.current_time(),
            answered: false,
        };
        Box::pin(async move {
            let reply = replied.await.ok()?;
            counted.answer(reply.len(), vfs.throttle.current_time());
            Some(reply)
        })
    }

    fn ended(&self, connection: u64) {
        self.links.lock().remove(&connection);
    }
}

/// Calls that were taken and have no reply, by transaction id, with their order.
#[derive(Default)]
struct UnderWay {
    next: u64,
    calls: HashMap<[u8; 4], (u64, Job)>,
}

impl UnderWay {
    fn add(&mut self, job: Job) -> Arc<[u8]> {
        let record = Arc::clone(&job.record);
        let xid = xid(record.get(MARK_BYTES..).unwrap_or_default());
        self.next += 1;
        self.calls.insert(xid, (self.next, job));
        record
    }

    /// Returns the calls in their order, without those whose client is gone.
    fn again(&mut self) -> Vec<Arc<[u8]>> {
        self.calls.retain(|_, (_, job)| !job.reply.is_closed());
        let calls = self.calls.values();
        let mut all: Vec<_> = calls
            .map(|(order, job)| (*order, Arc::clone(&job.record)))
            .collect();
        all.sort_unstable_by_key(|(order, _)| *order);
        all.into_iter().map(|(_, record)| record).collect()
    }
}

fn xid(message: &[u8]) -> [u8; 4] {
    message.first_chunk().copied().unwrap_or_default()
}

/// The way of a client's connection to an owner.
struct Link {
    vfs: Arc<Vfs>,
    owner: [u8; 16],
    client: SocketAddr,
    jobs: mpsc::UnboundedReceiver<Job>,
    under_way: Mutex<UnderWay>,
}

/// End of a connection to an owner.
enum End {
    /// The client's connection is over.
    Client,
    /// The connection is lost, or the owner is elsewhere.
    Owner,
}

impl Link {
    async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            if self.under_way.lock().again().is_empty() {
                match self.jobs.recv().await {
                    Some(job) => drop(self.under_way.lock().add(job)),
                    None => return,
                }
            }
            let Some((stream, at)) = self.connect().await else {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            };
            pause = PAUSE;
            if matches!(self.carry(stream, at).await, End::Client) {
                return;
            }
        }
    }

    /// Returns the addresses to try: where the owner is known to be, then where it may be.
    fn places(&self) -> Vec<SocketAddr> {
        let directory = self.vfs.directory();
        let remote = directory.of_aggregate(&self.owner);
        let places = remote.map(|remote| remote.nfs.iter().chain(&remote.others).copied());
        places.into_iter().flatten().collect()
    }

    /// Connects to the owner; `None` if none of its addresses answers as the owner.
    async fn connect(&self) -> Option<(TcpStream, SocketAddr)> {
        for at in self.places() {
            match timeout(PATIENCE, self.introduce(at)).await {
                Ok(Ok(stream)) => return Some((stream, at)),
                Ok(Err(error)) => tracing::debug!(%at, "cannot forward calls: {error}"),
                Err(_) => tracing::debug!(%at, "cannot forward calls: no answer"),
            }
        }
        None
    }

    async fn introduce(&self, at: SocketAddr) -> io::Result<TcpStream> {
        let refused = || io::Error::other("it does not own the aggregate");
        let mut stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        let silence = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(&stream, silence)?;
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, SILENCE)?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
        stream.write_all(&forward::hello(self.owner)).await?;
        let reply = record(&mut stream).await?;
        let reply = reply.get(MARK_BYTES..).unwrap_or_default();
        let call = {
            let directory = self.vfs.directory();
            let membership = directory.membership().ok_or_else(refused)?;
            forward::speak_for(membership, self.owner, reply, self.client)
        };
        stream.write_all(&call.ok_or_else(refused)?).await?;
        let reply = record(&mut stream).await?;
        let accepted = forward::is_accepted(reply.get(MARK_BYTES..).unwrap_or_default());
        accepted.then_some(stream).ok_or_else(refused)
    }

    /// Carries calls and replies until the connection or the client's ends.
    async fn carry(&mut self, stream: TcpStream, at: SocketAddr) -> End {
        let known = self.vfs.directory().generation();
        let (read, mut write) = stream.into_split();
        let under_way = &self.under_way;
        let again = under_way.lock().again();
        let jobs = &mut self.jobs;
        let calls = async {
            for record in again {
                if write.write_all(&record).await.is_err() {
                    return End::Owner;
                }
            }
            while let Some(job) = jobs.recv().await {
                let record = under_way.lock().add(job);
                if write.write_all(&record).await.is_err() {
                    return End::Owner;
                }
            }
            End::Client
        };
        let replies = async {
            let mut read = BufReader::with_capacity(BUFFER, read);
            while let Ok(reply) = record(&mut read).await {
                let xid = xid(reply.get(MARK_BYTES..).unwrap_or_default());
                if let Some((_, job)) = under_way.lock().calls.remove(&xid) {
                    // The client may be gone.
                    let _ = job.reply.send(reply);
                }
            }
            End::Owner
        };
        let moves = async {
            let mut looks = interval(LOOK);
            loop {
                looks.tick().await;
                let directory = self.vfs.directory();
                let remote = directory.of_aggregate(&self.owner);
                let is_there = remote.is_some_and(|remote| remote.nfs.contains(&at));
                if directory.generation() != known && !is_there {
                    return End::Owner;
                }
            }
        };
        tokio::select! {
            end = calls => end,
            end = replies => end,
            end = moves => end,
        }
    }
}

/// Reads a message in fragments, and returns it behind room for its mark.
async fn record(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; MARK_BYTES];
    loop {
        let mark = stream.read_u32().await?;
        let (last, len) = (mark & LAST != 0, (mark & !LAST) as usize);
        let begin = message.len();
        if begin + len > MAX_RECORD {
            return Err(io::Error::other("a reply is too long"));
        }
        message.resize(begin + len, 0);
        stream
            .read_exact(message.get_mut(begin..).unwrap_or_default())
            .await?;
        if last {
            return Ok(message);
        }
    }
}

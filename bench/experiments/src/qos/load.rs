//! The load of `bench/experiment qos`: several clients on several volumes at once, every completion
//! recorded.
//!
//! Limits slow a closed loop down, so this load needs no speed for its own sake (what needs it is
//! measured with [`weir_bench::engine`]); what it needs is to report afterwards, for any stretch of
//! time, how much of which flow was completed in it. So every completion is kept: its time, its
//! bytes, its latency. A flow is one client (an address), one file of a volume, some connections,
//! and one kind of call; flows that are to disturb each other only through the server run on
//! threads of their own.

use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use weir_bench::clock;
use weir_bench::error::BenchError;
use weir_bench::nfs3::{Calls, Handle, Name, Proc, Stable};
use weir_bench::rpc::Credential;

/// Bits of a transaction id that hold the slot.
const SLOT_BITS: u32 = 10;
/// Bytes of a reply's beginning that say whether it is a success: mark, transaction id, message
/// type, reply status, verifier (flavour and a length of zero), accept status, NFS status.
const HEAD: usize = 32;
/// Receive buffer of a connection.
const BUFFER: usize = 256 << 10;
/// Longest wait for an event, in nanoseconds.
const TICK: u64 = 2_000_000;

/// Operation of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// READs of one block.
    Read,
    /// Unstable WRITEs of one block.
    Write,
    /// READ and WRITE in alternation.
    Mixed,
    /// GETATTR of the file.
    Getattr,
    /// CREATE of new files.
    Create,
}

impl Kind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Mixed => "mixed",
            Kind::Getattr => "getattr",
            Kind::Create => "create",
        }
    }
}

/// A flow: one client's calls of one kind.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Last number of the client's address, 127.0.0.N.
    pub client: u8,
    /// The directory for CREATE.
    pub dir: Handle,
    /// The file, and its size.
    pub file: Handle,
    /// Its size in bytes.
    pub size: u64,
    /// The kind of call.
    pub kind: Kind,
    /// Bytes of a READ or WRITE.
    pub block: u32,
    /// Number of connections.
    pub connections: u32,
    /// Calls in flight on each.
    pub depth: u32,
    /// The thread that it runs on.
    pub thread: usize,
    /// The number of the flow whose connections it uses, with `depth` calls of its own in flight on
    /// each, instead of opening some: one client that uses two volumes. That flow runs on the same
    /// thread.
    pub on: Option<usize>,
    /// Nanoseconds from one call to the next, all connections together, if it is not to send as
    /// fast as replies come.
    pub every: Option<u64>,
}

/// A paced flow's slots that have their reply and wait until the next call is due.
struct Pace {
    every: u64,
    /// When the next one is.
    due: u64,
    /// Connections and slots that wait.
    resting: VecDeque<(usize, usize)>,
}

impl Pace {
    /// The next slot for which a call is due. Calls that could not be sent in time are not sent all
    /// at once later.
    fn next(&mut self, now: u64) -> Option<(usize, usize)> {
        if self.due > now {
            return None;
        }
        let next = self.resting.pop_front()?;
        self.due = (self.due + self.every).max(now.saturating_sub(self.every));
        Some(next)
    }
}

/// A completed call of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// When, in nanoseconds on the monotonic clock.
    pub at: u64,
    /// Duration in nanoseconds.
    pub took: u32,
    /// Bytes of file data moved.
    pub bytes: u32,
}

/// Completions by the number of their flow.
type FlowCompletions = Vec<(usize, Vec<Done>)>;

/// A running load. Dropping it ends it.
pub struct RunningLoad {
    stop: std::sync::Arc<LoadState>,
    threads: Vec<std::thread::JoinHandle<Result<FlowCompletions, BenchError>>>,
    flows: usize,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    names: AtomicU64,
}

/// Starts flows against the server at `addr`. When this returns, every flow has sent as much as it
/// could at first: what a thousand connections have to make and send takes a second, in which
/// replies would gather unseen.
pub fn start(addr: SocketAddr, flows: &[Flow]) -> Result<RunningLoad, BenchError> {
    let shared = std::sync::Arc::new(LoadState::default());
    shared.names.store(clock::now_ns(), Ordering::Relaxed);
    let mut running = RunningLoad {
        stop: std::sync::Arc::clone(&shared),
        threads: Vec::new(),
        flows: flows.len(),
    };
    let (begun, all_begun) = mpsc::channel();
    let most = flows.iter().map(|flow| flow.thread).max().unwrap_or(0);
    for thread in 0..=most {
        let own: Vec<(usize, Flow)> = flows
            .iter()
            .cloned()
            .enumerate()
            .filter(|(_, flow)| flow.thread == thread)
            .collect();
        let mut connections = Vec::new();
        for (at, (number, flow)) in own.iter().enumerate() {
            if flow.on.is_some() {
                continue;
            }
            let guests: Vec<(usize, &Flow)> = own
                .iter()
                .enumerate()
                .filter(|(_, (_, guest))| guest.on == Some(*number))
                .map(|(at, (_, guest))| (at, guest))
                .collect();
            for n in 0..flow.connections {
                let mut connection = Connection::open(addr, at, flow, n)?;
                for (at, guest) in &guests {
                    connection.join(*at, guest);
                }
                connections.push(connection);
            }
        }
        let (shared, begun) = (std::sync::Arc::clone(&shared), begun.clone());
        let spawned = std::thread::Builder::new()
            .name(format!("flows-{thread}"))
            .spawn(move || run(own, connections, &shared, begun))
            .map_err(BenchError::io("start a thread"))?;
        running.threads.push(spawned);
    }
    drop(begun);
    // A thread that fails before it begins reports that when it is joined.
    all_begun.iter().take(most + 1).for_each(drop);
    Ok(running)
}

impl RunningLoad {
    /// Ends the load; the completions of each flow, in the order of time.
    pub fn finish(mut self) -> Result<Vec<Vec<Done>>, BenchError> {
        self.stop.stop.store(true, Ordering::Relaxed);
        let mut all = vec![Vec::new(); self.flows];
        for thread in self.threads.drain(..) {
            let result = thread
                .join()
                .unwrap_or_else(|_| Err(BenchError::Usage("a generator thread failed".into())));
            for (flow, done) in result? {
                if let Some(place) = all.get_mut(flow) {
                    *place = done;
                }
            }
        }
        Ok(all)
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop.stop.store(true, Ordering::Relaxed);
    }
}

/// A call in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    flow: usize,
    sent: u64,
    bytes: u32,
}

struct Connection {
    stream: TcpStream,
    slots: Vec<Slot>,
    sequence: u32,
    turn: u64,
    out: Vec<u8>,
    sent: usize,
    head: Vec<u8>,
    /// Bytes of the current reply still to come, and its slot.
    rest: Option<(usize, usize)>,
}

impl Connection {
    fn open(
        addr: SocketAddr,
        at: usize,
        flow: &Flow,
        number: u32,
    ) -> Result<Connection, BenchError> {
        let failed = || BenchError::io(format!("connect to {addr} as 127.0.0.{}", flow.client));
        let socket =
            Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).map_err(failed())?;
        if addr.ip().is_loopback() {
            let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, flow.client));
            socket
                .bind(&SocketAddr::new(ip, 0).into())
                .map_err(failed())?;
        }
        socket.connect(&addr.into()).map_err(failed())?;
        socket.set_tcp_nodelay(true).map_err(failed())?;
        let stream: TcpStream = socket.into();
        stream.set_nonblocking(true).map_err(failed())?;
        let blocks = flow.size / u64::from(flow.block.max(1));
        Ok(Connection {
            stream,
            slots: vec![
                Slot {
                    flow: at,
                    ..Slot::default()
                };
                flow.depth as usize
            ],
            sequence: clock::now_ns() as u32 ^ number << 20,
            turn: blocks / u64::from(flow.connections.max(1)) * u64::from(number),
            out: Vec::new(),
            sent: 0,
            head: Vec::with_capacity(HEAD),
            rest: None,
        })
    }

    /// Adds the calls of another flow.
    fn join(&mut self, at: usize, flow: &Flow) {
        let slot = Slot {
            flow: at,
            ..Slot::default()
        };
        let len = self.slots.len() + flow.depth as usize;
        self.slots.resize(len, slot);
    }

    fn issue(
        &mut self,
        slot: usize,
        flow: &Flow,
        calls: &Calls,
        region: &[u8],
        shared: &LoadState,
        now: u64,
    ) {
        self.sequence = self.sequence.wrapping_add(1);
        let xid = self.sequence << SLOT_BITS | slot as u32;
        self.turn += 1;
        let blocks = (flow.size / u64::from(flow.block.max(1))).max(1);
        // A stride that visits all blocks in no order that a read-ahead could guess.
        let offset = self.turn.wrapping_mul(7919) % blocks * u64::from(flow.block);
        let write = match flow.kind {
            Kind::Write => true,
            Kind::Mixed => self.turn % 2 == 0,
            _ => false,
        };
        let bytes = match flow.kind {
            Kind::Getattr | Kind::Create => 0,
            _ => flow.block,
        };
        match flow.kind {
            Kind::Getattr => calls.of_handle(&mut self.out, xid, Proc::Getattr, &flow.file),
            Kind::Create => {
                let number = shared.names.fetch_add(1, Ordering::Relaxed);
                let name = Name {
                    letter: b'q',
                    number,
                }
                .bytes();
                calls.create(&mut self.out, xid, &flow.dir, &name);
            }
            _ if write => {
                calls.write_head(
                    &mut self.out,
                    xid,
                    &flow.file,
                    offset,
                    flow.block,
                    Stable::Unstable,
                );
                self.out
                    .extend_from_slice(region.get(..flow.block as usize).unwrap_or_default());
            }
            _ => calls.read(&mut self.out, xid, &flow.file, offset, flow.block),
        }
        if let Some(slot) = self.slots.get_mut(slot) {
            (slot.sent, slot.bytes) = (now, bytes);
        }
    }

    /// Sends what is waiting to be; true if something is left.
    fn send(&mut self) -> Result<bool, BenchError> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(BenchError::Io("send".into(), e)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(false)
    }

    /// Takes in received bytes; `each` gets the slots with complete replies.
    fn take(&mut self, mut input: &[u8], each: &mut Vec<usize>) -> Result<(), BenchError> {
        while !input.is_empty() {
            if let Some((left, slot)) = &mut self.rest {
                let n = input.len().min(*left);
                input = input.get(n..).unwrap_or_default();
                *left -= n;
                if *left == 0 {
                    each.push(*slot);
                    self.rest = None;
                }
                continue;
            }
            let n = input.len().min(HEAD - self.head.len());
            let (head, more) = input.split_at(n);
            self.head.extend_from_slice(head);
            input = more;
            if self.head.len() < HEAD {
                return Ok(());
            }
            let word = |at: usize| {
                let bytes = self.head.get(at..at + 4).and_then(|b| b.try_into().ok());
                u32::from_be_bytes(bytes.unwrap_or_default())
            };
            let len = (word(0) & 0x7fff_ffff) as usize + 4;
            let slot = (word(4) & ((1 << SLOT_BITS) - 1)) as usize;
            if word(24) != 0 || word(28) != 0 || len < HEAD {
                return Err(BenchError::Protocol(format!(
                    "a call was refused: accept status {}, status {}",
                    word(24),
                    word(28)
                )));
            }
            self.head.clear();
            match len - HEAD {
                0 => each.push(slot),
                left => self.rest = Some((left, slot)),
            }
        }
        Ok(())
    }
}

fn run(
    flows: Vec<(usize, Flow)>,
    mut connections: Vec<Connection>,
    shared: &LoadState,
    begun: mpsc::Sender<()>,
) -> Result<FlowCompletions, BenchError> {
    let mut begun = Some(begun);
    let calls = Calls::new(Some(&Credential { uid: 0, gid: 0 }));
    let region: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut done: Vec<Vec<Done>> = vec![Vec::new(); flows.len()];
    let mut polls: Vec<libc::pollfd> = connections
        .iter()
        .map(|c| libc::pollfd {
            fd: c.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: libc::POLLIN | libc::POLLOUT,
        })
        .collect();
    let now = clock::now_ns();
    for c in &mut connections {
        for at in 0..c.slots.len() {
            let flow = c.slots.get(at).and_then(|slot| flows.get(slot.flow));
            if let Some((_, flow)) = flow {
                c.issue(at, flow, &calls, &region, shared, now);
            }
        }
    }
    let mut paces: Vec<Option<Pace>> = flows
        .iter()
        .map(|(_, flow)| {
            Some(Pace {
                every: flow.every?,
                due: now,
                resting: VecDeque::new(),
            })
        })
        .collect();
    let mut buffer = vec![0u8; BUFFER];
    let mut whole = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for (number, (c, poll)) in connections.iter_mut().zip(&mut polls).enumerate() {
            if poll.revents == 0 {
                continue;
            }
            loop {
                match c.stream.read(&mut buffer) {
                    Ok(0) => {
                        return Err(BenchError::Protocol(
                            "the server closed a connection".into(),
                        ));
                    }
                    Ok(n) => {
                        c.take(buffer.get(..n).unwrap_or_default(), &mut whole)?;
                        if n < buffer.len() {
                            break;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(BenchError::Io("receive".into(), e)),
                }
            }
            let now = clock::now_ns();
            for at in whole.drain(..) {
                let Slot { flow, sent, bytes } = c.slots.get(at).copied().unwrap_or_default();
                if let Some(done) = done.get_mut(flow) {
                    done.push(Done {
                        at: now,
                        took: u32::try_from(now.saturating_sub(sent)).unwrap_or(u32::MAX),
                        bytes,
                    });
                }
                if let Some(Some(pace)) = paces.get_mut(flow) {
                    pace.resting.push_back((number, at));
                } else if let Some((_, flow)) = flows.get(flow) {
                    c.issue(at, flow, &calls, &region, shared, now);
                }
            }
            let blocked = c.send()?;
            poll.events = libc::POLLIN | if blocked { libc::POLLOUT } else { 0 };
        }
        if let Some(begun) = begun.take() {
            // The receiver is gone if another thread has failed.
            let _ = begun.send(());
        }
        let mut wait = TICK;
        for (pace, (_, flow)) in paces.iter_mut().zip(&flows) {
            let Some(pace) = pace else { continue };
            let now = clock::now_ns();
            while let Some((number, at)) = pace.next(now) {
                if let Some(c) = connections.get_mut(number) {
                    c.issue(at, flow, &calls, &region, shared, now);
                    let blocked = c.send()?;
                    if let Some(poll) = polls.get_mut(number) {
                        poll.events = libc::POLLIN | if blocked { libc::POLLOUT } else { 0 };
                    }
                }
            }
            if !pace.resting.is_empty() {
                wait = wait.min(pace.due.saturating_sub(now));
            }
        }
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: wait as libc::c_long,
        };
        // SAFETY: the array is valid for its length, and so is the timeout; no signals are masked.
        let n = unsafe {
            libc::ppoll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                &raw const timeout,
                std::ptr::null(),
            )
        };
        if n < 0 {
            let e = std::io::Error::last_os_error();
            if e.kind() != ErrorKind::Interrupted {
                return Err(BenchError::Io("poll".into(), e));
            }
            polls.iter_mut().for_each(|poll| poll.revents = 0);
        }
    }
    Ok(flows.into_iter().map(|(at, _)| at).zip(done).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_flow_asks_at_its_rate_and_makes_up_for_one_call_at_the_most() {
        let mut pace = Pace {
            every: 100,
            due: 1000,
            resting: (0..40).map(|slot| (0, slot)).collect(),
        };
        assert_eq!(pace.next(999), None);
        let asked = |pace: &mut Pace, now| std::iter::from_fn(|| pace.next(now)).count();
        assert_eq!(asked(&mut pace, 1000), 1);
        // A little late each time costs nothing of the rate.
        let late: usize = (11..=20).map(|n| asked(&mut pace, n * 100 + 30)).sum();
        assert_eq!(late, 10);
        assert!(asked(&mut pace, 9000) <= 3);
        pace.resting.clear();
        assert_eq!(pace.next(u64::MAX), None);
    }
}

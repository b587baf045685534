//! One run of a load: prepare, warm up, measure, clean up, report.

use crate::args::{LoadKind, NfsArgs, Version};
use crate::arrivals::Arrivals;
use crate::clock;
use crate::control::{Control, rpcbind_port};
use crate::counters::Tally;
use crate::eda_mix;
use crate::engine::{self, Link, Options, Stage};
use crate::error::BenchError;
use crate::load::{ClientContext, Load, RunState, region_len};
use crate::machine;
use crate::nfs3::{Calls, Handle, MOUNT_PROGRAM};
use crate::nfs4::client::{self, MAX_SLOTS};
use crate::nfs4::{Client, Session};
use crate::pattern;
use crate::phases::{Moment, Observer, Sample, Schedule, race};
use crate::report::{Report, ReportInput};
use crate::rpc::Credential;
use crate::wire::Wire;
use crate::working_set::WorkingSet;
use socket2::{Domain, Protocol, Socket, Type};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// From this block size on, replies' heads are received apart from their data.
/// Measured on loopback (bench/README.md).
const HEADS_ONLY_MIN: u64 = 32 << 10;
const RPCBIND_PORT: u16 = 111;

/// Follows nothing, with the default samples.
struct NullObserver;

impl Observer for NullObserver {}

/// Follows nothing either, with samples as fine as they come.
struct Finely;

impl Observer for Finely {
    fn interval(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// A run, with what its report leaves out.
pub struct Outcome {
    /// The report of the measurement.
    pub report: Report,
    /// All counts and latencies.
    pub tally: Tally,
    /// Start of the measurement, on the monotonic clock in nanoseconds.
    pub began_ns: u64,
    /// The measurement over time.
    pub samples: Vec<Sample>,
    /// The user ended it before its time.
    pub cut_short: bool,
}

/// Runs the load that `args` describes.
pub fn nfs(args: &NfsArgs) -> Result<Report, BenchError> {
    let Some(path) = &args.samples else {
        return observed(args, &NullObserver).map(|o| o.report);
    };
    let outcome = observed(args, &Finely)?;
    let began_s = outcome.began_ns as f64 / 1e9;
    let samples = outcome.samples.iter();
    let lines: String = samples
        .map(|s| format!("{:.6} {}\n", began_s + s.at_s, s.ops))
        .collect();
    std::fs::write(path, lines).map_err(BenchError::io(format!("write {}", path.display())))?;
    Ok(outcome.report)
}

/// As [`nfs`], followed by an observer; ends early when the user asks for it.
pub fn observed(args: &NfsArgs, observer: &dyn Observer) -> Result<Outcome, BenchError> {
    check(args)?;
    observer.see(Moment::Preparing);
    let mut reach = Reach::new(args)?;
    let set = if args.load == LoadKind::Null {
        WorkingSet::none()
    } else {
        let root = reach.root(args)?;
        WorkingSet::prepare(&mut reach.control, root, args)?
    };
    let limit = match args.load {
        LoadKind::Write => set.fsinfo.wtmax,
        LoadKind::Read => set.fsinfo.rtmax,
        load if load.is_data() => set.fsinfo.rtmax.min(set.fsinfo.wtmax),
        _ => u32::MAX,
    };
    if args.block_size > u64::from(limit) {
        return Err(BenchError::Usage(format!(
            "the server moves at most {limit} bytes a call"
        )));
    }

    let shared = RunState::default();
    let mut outcome = drive(args, &reach, &set, &shared, observer)?;
    // What was measured stands, whatever becomes of the cleaning up.
    if let Err(e) = clean(args, reach, &set, &shared) {
        outcome
            .report
            .figures
            .notes
            .push(format!("cleaning up: {e}"));
    }
    Ok(outcome)
}

/// Removes what is not to be kept.
fn clean(
    args: &NfsArgs,
    mut reach: Reach,
    set: &WorkingSet,
    shared: &RunState,
) -> Result<(), BenchError> {
    let created = shared.next.load(Ordering::Relaxed);
    // Files that the load itself made are not reused.
    if !args.run.keep {
        set.remove(&mut reach.control, &args.dir, args.load, created)?;
    } else if args.load.is_blend() {
        set.remove_made(&mut reach.control, args.load, created)?;
    }
    reach.leave()
}

/// The way to a server for what is not measured.
struct Reach {
    /// The address that `control` goes to.
    first: SocketAddr,
    /// The addresses that clients are spread over, the first one among them.
    addresses: Vec<SocketAddr>,
    cred: Credential,
    control: Control,
    /// The client id of `control`'s calls (NFSv4).
    client: Option<Client>,
}

impl Reach {
    fn new(args: &NfsArgs) -> Result<Self, BenchError> {
        let timeout = Duration::from_secs_f64(args.timeout);
        let addresses = resolve_all(&args.server)?;
        let &[first, ..] = addresses.as_slice() else {
            return Err(BenchError::Usage("no address of a server".into()));
        };
        let cred = Credential {
            uid: args.uid,
            gid: args.gid,
        };
        // Different in each run, for the sake of duplicate-request caches.
        let first_xid = (clock::now_ns() >> 8) as u32;
        let mut control = Control::connect(first, Some(&cred), first_xid, timeout)?;
        let client = match args.version {
            Version::V3 => None,
            Version::V4(v4) => {
                let (minor, block) = (v4.minor, args.block_size);
                Some(Client::begin(&mut control, &cred, minor, block, 0)?.0)
            }
        };
        Ok(Self {
            first,
            addresses,
            cred,
            control,
            client,
        })
    }

    /// The export's root.
    fn root(&mut self, args: &NfsArgs) -> Result<Handle, BenchError> {
        match &self.client {
            None => mount(args, self.first, &self.cred),
            Some(_) => client::walk(&mut self.control, &args.export),
        }
    }

    /// The address of the client numbered `number`.
    fn address_of(&self, number: u32) -> SocketAddr {
        let mut in_turn = self.addresses.iter().cycle();
        in_turn.nth(number as usize).copied().unwrap_or(self.first)
    }

    /// Ends the client id.
    fn leave(mut self) -> Result<(), BenchError> {
        match self.client {
            None => Ok(()),
            Some(client) => client.end(&mut self.control),
        }
    }
}

/// Makes the working set that a run with these settings finds with `reuse`.
pub fn prepare(args: &NfsArgs) -> Result<(), BenchError> {
    check(args)?;
    let mut reach = Reach::new(args)?;
    let root = reach.root(args)?;
    WorkingSet::prepare(&mut reach.control, root, args)?;
    reach.leave()
}

/// Removes the working set that a run with these settings left with `keep`.
pub fn discard(args: &NfsArgs) -> Result<(), BenchError> {
    let mut reach = Reach::new(args)?;
    let root = reach.root(args)?;
    if let Some(set) = WorkingSet::open(&mut reach.control, root, args)? {
        set.remove(&mut reach.control, &args.dir, args.load, 0)?;
    }
    reach.leave()
}

fn check(args: &NfsArgs) -> Result<(), BenchError> {
    let block = args.block_size;
    if block == 0 || block % 4 != 0 || block > 4 << 20 {
        return Err(BenchError::Usage(
            "the block size must be a multiple of 4 and at most 4 MiB".into(),
        ));
    }
    let parts = match args.load {
        LoadKind::EdaFrontEnd => eda_mix::PARTS,
        _ => 1,
    };
    if block % (parts * 4) != 0 {
        return Err(BenchError::Usage(format!(
            "eda-front-end needs blocks of a multiple of {} bytes: it reads and writes quarters",
            parts * 4
        )));
    }
    if args.run.verify && block % (parts * pattern::BLOCK as u64) != 0 {
        return Err(BenchError::Usage(format!(
            "--verify needs blocks of a multiple of {} bytes",
            parts * pattern::BLOCK as u64
        )));
    }
    if let Some(n) = args.in_flight {
        let most = u64::from(args.connections) * u64::from(args.depth);
        if !(u64::from(args.connections)..=most).contains(&u64::from(n)) {
            return Err(BenchError::Usage(format!(
                "--in-flight {n}: at least one a connection, and at most {most} with this --depth"
            )));
        }
    }
    let addresses = args.server.split(',').count();
    if addresses > args.clients as usize {
        return Err(BenchError::Usage(format!(
            "{} client(s) do not all reach {addresses} addresses; give --clients {addresses} or more",
            args.clients
        )));
    }
    let slots = u64::from(args.connections) * u64::from(args.depth);
    if args.load == LoadKind::Rename && args.file_count() < slots {
        return Err(BenchError::Usage(format!(
            "rename with {slots} calls in flight needs as many files"
        )));
    }
    if args.rate.is_some_and(|r| !(1e-3..=1e9).contains(&r)) {
        return Err(BenchError::Usage(
            "the rate is 0.001 to 1,000,000,000 operations a second".into(),
        ));
    }
    if args.file_count() > u64::from(u32::MAX) {
        return Err(BenchError::Usage("too many files".into()));
    }
    let seconds = [args.run.duration, args.timeout, args.warmup_seconds()];
    if seconds.iter().any(|s| !(0.0..1e7).contains(s)) {
        return Err(BenchError::Usage("times are 0 to 10,000,000 s".into()));
    }
    Ok(())
}

/// The first address of HOST:PORT.
pub fn resolve(server: &str) -> Result<SocketAddr, BenchError> {
    server
        .to_socket_addrs()
        .map_err(BenchError::io(format!("address {server:?}")))?
        .next()
        .ok_or_else(|| BenchError::Usage(format!("{server:?} has no address")))
}

/// The addresses of a list of HOST:PORT with commas between them: the first one of each.
pub fn resolve_all(servers: &str) -> Result<Vec<SocketAddr>, BenchError> {
    servers.split(',').map(resolve).collect()
}

fn mount(args: &NfsArgs, nfs: SocketAddr, cred: &Credential) -> Result<Handle, BenchError> {
    let timeout = Duration::from_secs_f64(args.timeout);
    let mut addr = nfs;
    if args.rpcbind {
        let mut rpcbind = nfs;
        rpcbind.set_port(RPCBIND_PORT);
        addr.set_port(rpcbind_port(rpcbind, MOUNT_PROGRAM, timeout)?);
    } else if let Some(port) = args.mount_port {
        addr.set_port(port);
    }
    let xid = (clock::now_ns() >> 8) as u32 ^ 0x5a5a_0000;
    Control::connect(addr, Some(cred), xid, timeout)?.mount(&args.export, Some(cred))
}

/// A client of the load, with the calls in flight on each of its connections.
struct Guest<'s> {
    /// The server's address that it connects to.
    address: SocketAddr,
    wire: Arc<dyn Wire>,
    /// The working set's files; open, where files are.
    files: Cow<'s, [Handle]>,
    depths: Vec<usize>,
    /// Its client id, and the connection for what is not measured (NFSv4).
    behind: Option<(Client, Control, Arc<Session>)>,
}

impl<'s> Guest<'s> {
    /// The guest numbered `number` of `args.clients`.
    fn new(
        args: &NfsArgs,
        reach: &Reach,
        set: &'s WorkingSet,
        number: u32,
    ) -> Result<Self, BenchError> {
        let each = args.connections.div_ceil(args.clients);
        let first = (number * each).min(args.connections);
        let connections = first..(first + each).min(args.connections);
        let depths: Vec<usize> = connections.map(|index| depth_of(args, index)).collect();
        let address = reach.address_of(number);
        let Version::V4(v4) = args.version else {
            return Ok(Self {
                address,
                wire: Arc::new(Calls::new(Some(&reach.cred))),
                files: Cow::Borrowed(&set.files),
                depths,
                behind: None,
            });
        };
        let stream = connect(address, number, args.clients)
            .map_err(BenchError::io(format!("connection to {address}")))?;
        let timeout = Duration::from_secs_f64(args.timeout);
        let xid = (clock::now_ns() >> 8) as u32;
        let mut control = Control::from_stream(stream, Some(&reach.cred), xid, timeout)?;
        let (minor, block) = (v4.minor, args.block_size);
        let (mut client, first) =
            Client::begin(&mut control, &reach.cred, minor, block, number + 1)?;
        let wanted: usize = depths.iter().sum();
        let asked = v4.slots.unwrap_or(MAX_SLOTS).min(wanted as u32).max(1);
        let load = client.session(&mut control, asked)?;
        // Reads and writes go by the stateid of an open.
        let files = match args.load.is_data() {
            true => Cow::Owned(client::open_all(&mut control, &first, &set.files)?),
            false => Cow::Borrowed(set.files.as_slice()),
        };
        Ok(Self {
            address,
            files,
            depths: dealt(&depths, load.slots() as usize),
            wire: load.clone(),
            behind: Some((client, control, load)),
        })
    }

    /// Closes the files and ends the client.
    fn leave(self) -> Result<(), BenchError> {
        let Some((client, mut control, _)) = self.behind else {
            return Ok(());
        };
        let files = self.files.iter().copied();
        let open: Vec<Handle> = files.filter(Handle::is_open).collect();
        client::close_all(&mut control, &open)?;
        client.end(&mut control)
    }
}

/// Slots dealt out to connections that want these many each: all of it where there are enough, else
/// as evenly as it goes.
fn dealt(wanted: &[usize], slots: usize) -> Vec<usize> {
    if wanted.iter().sum::<usize>() <= slots {
        return wanted.to_vec();
    }
    let count = wanted.len();
    let before = |i: usize| slots * i / count;
    let even = wanted
        .iter()
        .enumerate()
        .map(|(i, w)| (before(i + 1) - before(i)).min(*w));
    even.collect()
}

/// Runs the threads through the phases.
fn drive(
    args: &NfsArgs,
    reach: &Reach,
    set: &WorkingSet,
    shared: &RunState,
    observer: &dyn Observer,
) -> Result<Outcome, BenchError> {
    let guests: Vec<Guest<'_>> = (0..args.clients)
        .map(|number| Guest::new(args, reach, set, number))
        .collect::<Result<_, _>>()?;
    let mut outcome = drive_guests(args, set, &guests, shared, observer)?;
    for guest in guests {
        if let Err(e) = guest.leave() {
            outcome
                .report
                .figures
                .notes
                .push(format!("closing files: {e}"));
        }
    }
    Ok(outcome)
}

/// Connects the clients; returns the connections of each thread.
fn connected<'s>(
    args: &'s NfsArgs,
    set: &'s WorkingSet,
    guests: &'s [Guest<'_>],
    shared: &'s RunState,
) -> Result<Vec<Vec<Link<'s>>>, BenchError> {
    let jobs = args.jobs.min(args.connections);
    let mut shares: Vec<Vec<Link<'s>>> = (0..jobs).map(|_| Vec::new()).collect();
    let mut index = 0;
    for (client, guest) in guests.iter().enumerate() {
        let mut first_slot = 0;
        for &depth in &guest.depths {
            let address = guest.address;
            let stream = connect(address, client as u32, args.clients)
                .map_err(BenchError::io(format!("connection {index} to {address}")))?;
            stream
                .set_nodelay(true)
                .map_err(BenchError::io("socket options"))?;
            let seat = ClientContext {
                wire: &*guest.wire,
                files: &guest.files,
                first_slot,
            };
            first_slot += depth as u32;
            let load = Load::new(args, set, shared, seat, index);
            if let Some(share) = shares.get_mut((index % jobs) as usize) {
                let arrivals = args.rate.map(|rate| {
                    Arrivals::new(
                        args.arrivals,
                        rate / f64::from(args.connections),
                        clock::now_ns(),
                        args.run.seed ^ u64::from(index).wrapping_mul(0xd134_2543_de82_ef95),
                    )
                });
                share.push(Link {
                    stream,
                    load,
                    depth,
                    arrivals,
                });
            }
            index += 1;
        }
    }
    Ok(shares)
}

/// Runs the threads through the phases, for clients that are ready.
fn drive_guests(
    args: &NfsArgs,
    set: &WorkingSet,
    guests: &[Guest<'_>],
    shared: &RunState,
    observer: &dyn Observer,
) -> Result<Outcome, BenchError> {
    let mut region = vec![0; region_len(args.block_size) as usize];
    // Seeded apart from the working set: these bytes stand for no file's place.
    let mut rand = pattern::Rand::new(!args.run.seed);
    for word in region.chunks_mut(8) {
        let bytes = rand.draw().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    let options = Options {
        region: &region,
        timeout_ns: (args.timeout * 1e9) as u64,
        heads_only: args.load == LoadKind::Read && args.block_size >= HEADS_ONLY_MIN,
    };
    let shares = connected(args, set, guests, shared)?;
    let stage = Stage::new(args.run.ops);
    let schedule = Schedule {
        warmup_s: args.warmup_seconds(),
        duration_s: args.run.duration,
        server_pid: args.server_pid,
        sample: machine::process,
    };
    let raced = race(schedule, &stage, observer, shares, |share| {
        engine::run(share, options, &stage)
    })?;
    let report = Report::new(ReportInput {
        args,
        fsinfo: set.fsinfo,
        slots: guests
            .iter()
            .filter_map(|g| g.behind.as_ref())
            .map(|(_, _, session)| session.slots())
            .min(),
        raced: &raced,
    });
    Ok(Outcome {
        report,
        tally: raced.tally,
        began_ns: raced.began_ns,
        samples: raced.samples,
        cut_short: raced.cut_short,
    })
}

/// Calls in flight on the connection numbered `index`: where the whole does not divide
/// evenly, connections with one more are spread evenly among the others.
fn depth_of(args: &NfsArgs, index: u32) -> usize {
    let Some(all) = args.in_flight else {
        return args.depth as usize;
    };
    let before = |i: u32| u64::from(all) * u64::from(i) / u64::from(args.connections);
    let depth = before(index + 1) - before(index);
    (depth as usize).min(args.depth as usize)
}

/// Connects as the client with this number: on loopback, each of several clients has a
/// source address of its own.
pub(crate) fn connect(addr: SocketAddr, client: u32, clients: u32) -> std::io::Result<TcpStream> {
    let loopback = matches!(addr.ip(), IpAddr::V4(ip) if ip.is_loopback());
    if clients <= 1 || !loopback {
        return TcpStream::connect(addr);
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    let last = u8::try_from(client + 2).unwrap_or(1);
    let source = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    socket.bind(&source.into())?;
    socket.connect(&addr.into())?;
    Ok(socket.into())
}

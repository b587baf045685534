//! One run of the NFSv3 load: prepare, warm up, measure, clean up, report.

use crate::args::{LoadKind, Nfs3Args};
use crate::clock;
use crate::control::{Control, rpcbind_port};
use crate::engine::{self, Options, Phase, Stage, ThreadResult};
use crate::error::BenchError;
use crate::load::{Load, Shared, region_len};
use crate::machine::{self, MachineSample, ProcessSample};
use crate::nfs3::{Calls, Handle, MOUNT_PROGRAM};
use crate::pattern;
use crate::report::{Measured, Report};
use crate::rpc::Credential;
use crate::set::WorkingSet;
use crate::tally::Tally;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// From this block size on, replies' heads are received apart from their data.
/// Measured on loopback (bench/README.md).
const HEADS_ONLY_MIN: u64 = 32 << 10;
const RPCBIND_PORT: u16 = 111;
/// Stack of a generator thread, in bytes.
const STACK: usize = 1 << 20;

/// Runs the load that `args` describes.
pub fn nfs3(args: &Nfs3Args) -> Result<Report, BenchError> {
    check(args)?;
    let timeout = Duration::from_secs_f64(args.timeout);
    let addr = resolve(&args.server)?;
    let cred = Credential {
        uid: args.uid,
        gid: args.gid,
    };
    // Different in each run, for the sake of duplicate-request caches.
    let first_xid = (clock::now_ns() >> 8) as u32;
    let mut control = Control::connect(addr, Some(&cred), first_xid, timeout)?;
    let set = if args.load == LoadKind::Null {
        WorkingSet::none()
    } else {
        let root = mount(args, addr, &cred, timeout)?;
        WorkingSet::prepare(&mut control, root, args)?
    };
    let limit = match args.load {
        LoadKind::Write => set.fsinfo.wtmax,
        LoadKind::Read => set.fsinfo.rtmax,
        LoadKind::Mix => set.fsinfo.rtmax.min(set.fsinfo.wtmax),
        _ => u32::MAX,
    };
    if args.block_size > u64::from(limit) {
        return Err(BenchError::Usage(format!(
            "the server moves at most {limit} bytes a call"
        )));
    }

    let calls = Calls::new(Some(&cred));
    let shared = Shared::default();
    let mut report = drive(args, addr, &set, &calls, &shared)?;
    if !args.keep {
        let created = shared.next.load(Ordering::Relaxed);
        // What was measured stands, whatever becomes of the cleaning up.
        let cleaned = set.remove(&mut control, &args.dir, args.load, created);
        if let Err(e) = cleaned {
            report.notes.push(format!("cleaning up: {e}"));
        }
    }
    Ok(report)
}

fn check(args: &Nfs3Args) -> Result<(), BenchError> {
    let block = args.block_size;
    if block == 0 || block % 4 != 0 || block > 4 << 20 {
        return Err(BenchError::Usage(
            "the block size must be a multiple of 4 and at most 4 MiB".into(),
        ));
    }
    if args.verify && block % pattern::BLOCK as u64 != 0 {
        return Err(BenchError::Usage(format!(
            "--verify needs blocks of a multiple of {} bytes",
            pattern::BLOCK
        )));
    }
    let slots = u64::from(args.connections) * u64::from(args.depth);
    if args.load == LoadKind::Rename && args.file_count() < slots {
        return Err(BenchError::Usage(format!(
            "rename with {slots} calls in flight needs as many files"
        )));
    }
    if args.file_count() > u64::from(u32::MAX) {
        return Err(BenchError::Usage("too many files".into()));
    }
    let seconds = [args.duration, args.timeout, args.warmup_seconds()];
    if seconds.iter().any(|s| !(0.0..1e7).contains(s)) {
        return Err(BenchError::Usage("times are 0 to 10,000,000 s".into()));
    }
    Ok(())
}

fn resolve(server: &str) -> Result<SocketAddr, BenchError> {
    server
        .to_socket_addrs()
        .map_err(BenchError::io(format!("address {server:?}")))?
        .next()
        .ok_or_else(|| BenchError::Usage(format!("{server:?} has no address")))
}

fn mount(
    args: &Nfs3Args,
    nfs: SocketAddr,
    cred: &Credential,
    timeout: Duration,
) -> Result<Handle, BenchError> {
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

/// What the conductor sampled at the measurement's start.
struct Start {
    ns: u64,
    unix_time: u64,
    server: Option<ProcessSample>,
    machine: MachineSample,
    progress: u64,
}

impl Start {
    /// Samples, and lets the threads count from now on.
    fn now(args: &Nfs3Args, stage: &Stage) -> Self {
        let start = Self {
            server: args.server_pid.and_then(machine::process),
            machine: machine::machine(),
            unix_time: clock::unix_seconds(),
            ns: clock::now_ns(),
            progress: stage.progress.load(Ordering::Relaxed),
        };
        stage.enter(Phase::Measure);
        start
    }
}

/// Runs the threads through the phases.
fn drive(
    args: &Nfs3Args,
    addr: SocketAddr,
    set: &WorkingSet,
    calls: &Calls,
    shared: &Shared,
) -> Result<Report, BenchError> {
    let mut region = vec![0; region_len(args.block_size) as usize];
    // Seeded apart from the working set: these bytes stand for no file's place.
    let mut rand = pattern::Rand::new(!args.seed);
    for word in region.chunks_mut(8) {
        let bytes = rand.draw().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    let options = Options {
        region: &region,
        timeout_ns: (args.timeout * 1e9) as u64,
        heads_only: args.load == LoadKind::Read && args.block_size >= HEADS_ONLY_MIN,
        depth: args.depth as usize,
    };
    let jobs = args.jobs.min(args.connections);
    let mut shares: Vec<Vec<(TcpStream, Load<'_>)>> = (0..jobs).map(|_| Vec::new()).collect();
    for index in 0..args.connections {
        let stream = TcpStream::connect(addr)
            .map_err(BenchError::io(format!("connection {index} to {addr}")))?;
        stream
            .set_nodelay(true)
            .map_err(BenchError::io("socket options"))?;
        let load = Load::new(args, set, shared, calls, index);
        if let Some(share) = shares.get_mut((index % jobs) as usize) {
            share.push((stream, load));
        }
    }
    let stage = Stage::new(args.ops);
    // Without warm-up, not even the first replies may go uncounted.
    let at_once = (args.warmup_seconds() == 0.0).then(|| Start::now(args, &stage));
    let (results, (start, series)) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for share in shares {
            let stage = &stage;
            let spawned = std::thread::Builder::new()
                .name("weir-bench".into())
                .stack_size(STACK)
                .spawn_scoped(scope, move || engine::run(share, options, stage));
            match spawned {
                Ok(t) => threads.push(t),
                Err(e) => {
                    stage.enter(Phase::Abort);
                    return Err(BenchError::Io("start a thread".into(), e));
                }
            }
        }
        let conducted = conduct(args, &stage, threads.len() as u64, at_once);
        let results: Vec<Result<ThreadResult, BenchError>> = threads
            .into_iter()
            .map(|t| {
                t.join()
                    .unwrap_or_else(|_| Err(BenchError::Usage("a generator thread failed".into())))
            })
            .collect();
        Ok((results, conducted))
    })?;
    let server_after = args.server_pid.and_then(machine::process);
    let machine_after = machine::machine();
    if stage.phase() == Phase::Abort {
        return Err(results
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| BenchError::Usage("a generator thread failed".into())));
    }
    let mut tally = Tally::default();
    let mut thread_cpu_ns = Vec::new();
    let mut end_ns = start.ns + 1;
    for result in results {
        let r = result?;
        tally.add(&r.tally);
        thread_cpu_ns.push(r.cpu_ns);
        end_ns = end_ns.max(r.end_ns);
    }
    if args.server_pid.is_some() && (start.server.is_none() || server_after.is_none()) {
        return Err(BenchError::Usage("--server-pid: no such process".into()));
    }
    Ok(Report::new(Measured {
        args,
        fsinfo: set.fsinfo,
        tally: &tally,
        unix_time: start.unix_time,
        elapsed_ns: end_ns - start.ns,
        thread_cpu_ns: &thread_cpu_ns,
        series,
        server: start.server.zip(server_after),
        machine: (start.machine, machine_after),
    }))
}

/// Leads the threads through warm-up (unless `start` says that there is none),
/// measurement and drain. Returns the start, and the operations of each second.
fn conduct(
    args: &Nfs3Args,
    stage: &Stage,
    threads: u64,
    start: Option<Start>,
) -> (Start, Vec<u64>) {
    let over = || stage.finished.load(Ordering::SeqCst) == threads || stage.phase() == Phase::Abort;
    let wait_until = |until_ns: u64| {
        while !over() {
            let now = clock::now_ns();
            if now >= until_ns {
                break;
            }
            std::thread::sleep(Duration::from_nanos((until_ns - now).min(20_000_000)));
        }
    };
    let start = start.unwrap_or_else(|| {
        wait_until(clock::now_ns() + (args.warmup_seconds() * 1e9) as u64);
        Start::now(args, stage)
    });
    let end_ns = start.ns + (args.duration * 1e9) as u64;
    let mut series = Vec::new();
    let mut counted = start.progress;
    let mut tick = start.ns;
    while clock::now_ns() < end_ns && !over() {
        tick += 1_000_000_000;
        wait_until(tick.min(end_ns));
        let progress = stage.progress.load(Ordering::Relaxed);
        if clock::now_ns() >= tick {
            series.push(progress.saturating_sub(counted));
            counted = progress;
        }
    }
    stage.enter(Phase::Drain);
    while !over() {
        std::thread::sleep(Duration::from_millis(1));
    }
    (start, series)
}

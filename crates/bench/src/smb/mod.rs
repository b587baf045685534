//! SMB 3.1.1: a client of its own, written apart from the server as the NFS generator is.
//!
//! | load | a message |
//! |---|---|
//! | read, write, mix | READ or WRITE of a block of a file that is open |
//! | create | CREATE and CLOSE of a new file |
//! | create-write | CREATE, WRITE of a block and CLOSE of a new file |
//! | stat | CREATE, QUERY_INFO and CLOSE: what clients ask to see a file's attributes |
//! | list | QUERY_DIRECTORY with attributes, 64 KiB at most |
//! | remove | CREATE with delete on close, and CLOSE |
//! | mkdir | CREATE of a directory, and CLOSE |
//! | echo | ECHO |
//!
//! A client is a ClientGuid with one session, whose connections are its channels. It caches
//! nothing: it asks for no oplock and no lease, so that each operation reaches the server.
//!
//! | part | what |
//! |---|---|
//! | [`crypto`] | NTLMv2, keys, signatures, encryption |
//! | [`wire`] | requests and responses |
//! | [`link`] | a connection: numbers, credits, protection |
//! | [`load`] | which operation comes next, and whether its responses are right |
//! | [`engine`] | many operations at a time |
//! | this, [`working_set`] | a run, and what it needs to be there |

pub mod args;
pub mod crypto;
pub mod engine;
pub mod link;
pub mod load;
pub mod wire;
pub mod working_set;

use crate::counters::Tally;
use crate::engine::Stage;
use crate::error::BenchError;
use crate::figures::{Figures, TOOL};
use crate::phases::{Moment, Observer, RunResults, Sample, Schedule, race};
use crate::run::{connect, resolve};
pub use args::{Protection, SmbArgs, SmbLoad};
use link::{Account, Link};
use load::{Load, Work};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use working_set::{Client, Set};

impl SmbArgs {
    fn account(&self) -> Result<Account, BenchError> {
        let path = self.password_file.display();
        let text = std::fs::read_to_string(&self.password_file)
            .map_err(BenchError::io(format!("read {path}")))?;
        Ok(Account {
            user: self.user.clone(),
            password: text.lines().next().unwrap_or_default().to_owned(),
            protection: self.protection,
            signing: self.signing,
            cipher: self.cipher,
            timeout: Duration::from_secs_f64(self.timeout),
        })
    }
}

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct SmbReport {
    /// Name and version of the generator.
    pub tool: String,
    /// Start, in seconds since 1970.
    pub unix_time: u64,
    /// All settings of the run.
    pub settings: SmbArgs,
    /// Counts, rates and times of the measurement, without what came before it.
    #[serde(flatten)]
    pub figures: Figures,
}

impl SmbReport {
    /// The report as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        let a = &self.settings;
        let protected = match a.protection {
            Protection::None => "neither signed nor encrypted".to_owned(),
            Protection::Sign => format!("signed by {:?}", a.signing),
            Protection::Encrypt => format!("encrypted by {:?}", a.cipher),
        };
        writeln!(
            out,
            "SMB 3.1.1, {:?} {:?}, {} B blocks, {} connections of {} clients × {} deep, {} thread(s), {:.2} s; {protected}{}",
            a.load,
            a.pattern,
            a.block_size,
            a.connections,
            a.clients,
            a.depth,
            a.jobs,
            self.figures.elapsed_s,
            if a.write_through {
                "; write-through"
            } else {
                ""
            }
        )?;
        self.figures.write_table(out)?;
        self.figures.write_faults(out)
    }
}

/// Follows nothing.
struct NullObserver;

impl Observer for NullObserver {}

/// Result of a run.
pub struct Outcome {
    /// The report of the measurement.
    pub report: SmbReport,
    /// All counts and latencies.
    pub tally: Tally,
    /// The measurement over time.
    pub samples: Vec<Sample>,
    /// The user ended it before its time.
    pub cut_short: bool,
}

/// Runs the load that `args` describes.
pub fn run(args: &SmbArgs) -> Result<SmbReport, BenchError> {
    observed(args, &NullObserver).map(|outcome| outcome.report)
}

/// Logs on, and says how many bytes the server moves a request.
///
/// # Errors
/// The server is none of SMB 3.1.1, or does not let the user in.
pub fn probe(args: &SmbArgs) -> Result<u32, BenchError> {
    let clients = log_on(args, &args.account()?)?;
    let links = clients.iter().flat_map(|client| &client.links);
    let limits = links.flat_map(|link| link.limits).min();
    limits.ok_or_else(|| BenchError::Usage("a client without a connection".into()))
}

/// Makes the working set, and runs no load.
pub fn prepare(args: &SmbArgs) -> Result<(), BenchError> {
    args.check()?;
    let mut clients = log_on(args, &args.account()?)?;
    let set = Set::prepare(args, &mut clients)?;
    set.leave(args, &mut clients, 0)
}

/// Removes the working set that a run with these settings left with `keep`.
pub fn discard(args: &SmbArgs) -> Result<(), BenchError> {
    let mut args = args.clone();
    args.run.keep = false;
    let mut clients = log_on(&args, &args.account()?)?;
    Set::open(&args).leave(&args, &mut clients, 0)
}

/// Runs the load that `args` describes, followed by `observer`.
pub fn observed(args: &SmbArgs, observer: &dyn Observer) -> Result<Outcome, BenchError> {
    args.check()?;
    observer.see(Moment::Preparing);
    let account = args.account()?;
    let mut clients = log_on(args, &account)?;
    let set = Set::prepare(args, &mut clients)?;
    let next = AtomicU64::new(0);
    let work = Work::Load(args.load);
    let raced = drive(args, &mut clients, &set, work, &next, observer)?;
    let faults = raced.tally.faults_named(wire::status_name);
    let mut figures = Figures::new(&raced, faults);
    // What was measured stands, whatever becomes of the cleaning up.
    if let Err(e) = set.leave(args, &mut clients, next.load(Ordering::Relaxed)) {
        figures.notes.push(format!("cleaning up: {e}"));
    }
    let report = SmbReport {
        tool: TOOL.into(),
        unix_time: raced.unix_time,
        settings: args.clone(),
        figures,
    };
    Ok(Outcome {
        report,
        tally: raced.tally,
        samples: raced.samples,
        cut_short: raced.cut_short,
    })
}

/// The clients, each with its session on its connections.
fn log_on(args: &SmbArgs, account: &Account) -> Result<Vec<Client>, BenchError> {
    let addr = resolve(&args.server)?;
    let seed = crate::clock::now_ns() ^ u64::from(std::process::id()) << 40;
    let each = args.connections.div_ceil(args.clients);
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let first = (number * each).min(args.connections);
        let last = (first + each).min(args.connections);
        let mut guid = [0x5a; 16];
        guid[..8].copy_from_slice(&seed.to_le_bytes());
        guid[8..12].copy_from_slice(&number.to_le_bytes());
        let mut client = Client::default();
        let mut session = None;
        for index in first..last {
            let stream = connect(addr, number, args.clients)
                .map_err(BenchError::io(format!("connection {index} to {addr}")))?;
            let salt = seed.wrapping_mul(u64::from(index) * 2 + 1);
            let channel = index - first;
            let mut link = Link::new(stream, account, &guid, session.clone(), channel, salt)?;
            if session.is_none() {
                let host = addr.ip().to_string();
                session = Some(link.connect(&host, &args.share)?);
            }
            // Of the greatest operation that a slot may send, or of what fills the set.
            let each = load::MOST as u32 - 1 + (args.block_size.max(load::CHUNK) >> 16) as u32;
            link.stock(args.depth * (each + 1))?;
            client.links.push(link);
        }
        let limits = client.links.iter().flat_map(|link| link.limits).min();
        if limits.is_some_and(|most| args.block_size > u64::from(most)) {
            return Err(BenchError::Usage(format!(
                "the server moves at most {} bytes a request",
                limits.unwrap_or(0)
            )));
        }
        if !client.links.is_empty() {
            clients.push(client);
        }
    }
    Ok(clients)
}

/// Runs `work` on all connections to its end: a load as long as the settings say, what prepares and
/// cleans up to the last of it.
fn drive(
    args: &SmbArgs,
    clients: &mut [Client],
    set: &Set,
    work: Work,
    next: &AtomicU64,
    observer: &dyn Observer,
) -> Result<RunResults, BenchError> {
    let measured = matches!(work, Work::Load(_));
    let schedule = match measured {
        true => args.schedule(),
        false => Schedule {
            warmup_s: 0.0,
            duration_s: 1e7,
            server_pid: None,
            ..args.schedule()
        },
    };
    let stage = Stage::new(args.run.ops.filter(|_| measured));
    let jobs = args.jobs.min(args.connections) as usize;
    let mut shares: Vec<Vec<(&mut Link, Load<'_>)>> = (0..jobs).map(|_| Vec::new()).collect();
    let mut index = 0;
    for client in clients {
        let (files, listings) = (&client.files, &client.listings);
        for link in &mut client.links {
            let load = Load::new(args, set, work, next, (files, listings), index);
            shares[index as usize % jobs].push((link, load));
            index += 1;
        }
    }
    let region = Arc::new(load::region(args));
    let raced = race(schedule, &stage, observer, shares, |share| {
        engine::run(share, args, &region, &stage)
    })?;
    let faults = raced.tally.faults_named(wire::status_name);
    match faults.is_empty() || measured {
        true => Ok(raced),
        false => Err(BenchError::Protocol(format!(
            "{work:?}: {}",
            faults.join("; ")
        ))),
    }
}

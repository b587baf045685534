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
//! | this, [`set`] | a run, and what it needs to be there |

pub mod crypto;
pub mod engine;
pub mod link;
pub mod load;
pub mod set;
pub mod wire;

use crate::args::{Pattern, RunArgs, parse_size};
use crate::engine::Stage;
use crate::error::BenchError;
use crate::figures::{Figures, TOOL};
use crate::machine;
use crate::pattern;
use crate::race::{Moment, Observer, Raced, Sample, Schedule, race};
use crate::run::{connect, resolve};
use crate::tally::Tally;
use clap::{Args, ValueEnum};
use crypto::{Cipher, Signing};
use link::{Account, Link};
use load::{Load, Work};
use serde::Serialize;
use set::{Client, Set};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The operation that is repeated.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[clap(rename_all = "kebab-case")]
pub enum SmbLoad {
    /// READ.
    Read,
    /// WRITE, with FLUSH of each file after a pass over it and at the end.
    Write,
    /// READ and WRITE, --read-percent of the one.
    Mix,
    /// CREATE and CLOSE of a new file.
    Create,
    /// CREATE, WRITE of one block and CLOSE of a new file, counted as one operation.
    CreateWrite,
    /// CREATE, QUERY_INFO and CLOSE of random files.
    Stat,
    /// QUERY_DIRECTORY of whole directories; an operation is one response.
    List,
    /// Deletion of files made beforehand; the run ends with the last of them.
    Remove,
    /// CREATE and CLOSE of a new directory.
    Mkdir,
    /// ECHO: what a request costs that does nothing.
    Echo,
}

impl SmbLoad {
    /// Whether the load moves data in files that stay open.
    pub fn is_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Mix)
    }

    /// Whether it needs many small files.
    pub fn needs_files(self) -> bool {
        matches!(self, Self::Stat | Self::List | Self::Remove)
    }
}

/// How messages are protected.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Not at all, which a server may refuse, as Weir does.
    None,
    /// Signed.
    Sign,
    /// Encrypted.
    Encrypt,
}

/// Load on an SMB 3.1.1 server. In flight are at most connections × depth operations.
#[derive(Args, Debug, Clone, Serialize)]
pub struct SmbArgs {
    /// The operation to repeat.
    pub load: SmbLoad,
    /// Address of the server: HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:4450")]
    pub server: String,
    /// Name of the share.
    #[arg(long, default_value = "vol1")]
    pub share: String,
    /// Name of the user.
    #[arg(long)]
    pub user: String,
    /// File whose first line is the user's password.
    #[arg(long)]
    pub password_file: PathBuf,
    /// How messages are protected.
    #[arg(long, value_enum, default_value = "sign")]
    pub protection: Protection,
    /// How messages are signed. Channels and the end of a logon are always.
    #[arg(long, value_enum, default_value = "gmac")]
    pub signing: Signing,
    /// How messages are encrypted.
    #[arg(long, value_enum, default_value = "aes-128-gcm")]
    pub cipher: Cipher,
    /// Directory within the share that holds the working set.
    #[arg(long, default_value = "weir-bench")]
    pub dir: String,
    /// TCP connections, of all clients.
    #[arg(long, short = 'c', default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub connections: u32,
    /// Clients that the connections are divided among: each has a session, and its connections are
    /// the session's channels.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// Operations in flight on each connection.
    #[arg(long, short = 'd', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: u32,
    /// Threads of the generator; the connections are spread over them.
    #[arg(long, short = 'j', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Bytes of each READ or WRITE: 4k, 64KiB, 1m.
    #[arg(long, short = 'b', default_value = "4k", value_parser = parse_size)]
    pub block_size: u64,
    /// Bytes of the whole working set of data loads.
    #[arg(long, short = 's', default_value = "512m", value_parser = parse_size)]
    pub size: u64,
    /// Files of the working set [default: one a connection for data, 10,000 otherwise].
    #[arg(long)]
    pub files: Option<u64>,
    /// Directories over which the files of metadata loads are spread.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub dirs: u32,
    /// Order of the blocks.
    #[arg(long, short = 'p', value_enum, default_value = "random")]
    pub pattern: Pattern,
    /// Share of READs in a mix, in percent.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub read_percent: u32,
    /// Ask of each WRITE that it be durable before its response.
    #[arg(long)]
    pub write_through: bool,
    /// Seconds of load before the measurement [default: 2, or 0 with a count of operations and for
    /// remove].
    #[arg(long)]
    pub warmup: Option<f64>,
    /// How long it runs, and what becomes of its working set.
    #[command(flatten)]
    #[serde(flatten)]
    pub run: RunArgs,
    /// Process id of the server on this machine: report the CPU time and memory of it and of its
    /// children.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Give up when a connection gets no response for so many seconds.
    #[arg(long, default_value_t = 60.0)]
    pub timeout: f64,
    /// Write the result as JSON to this file ("-": to the standard output, in place
    /// of the table).
    #[arg(long)]
    #[serde(skip)]
    pub json: Option<PathBuf>,
    /// A name for the run, repeated in its result.
    #[arg(long, default_value = "")]
    pub label: String,
}

impl SmbArgs {
    /// Files of the working set.
    pub fn file_count(&self) -> u64 {
        self.files.unwrap_or(if self.load.is_data() {
            u64::from(self.connections)
        } else {
            10_000
        })
    }

    /// What WRITEs ask for, in words.
    pub fn durability(&self) -> &'static str {
        match (self.load, self.write_through) {
            (SmbLoad::Mix, _) if self.read_percent == 100 => "nothing written",
            (SmbLoad::Write | SmbLoad::Mix | SmbLoad::CreateWrite, true) => "write-through",
            (SmbLoad::Write | SmbLoad::Mix, false) => "FLUSH after each pass and at the end",
            (SmbLoad::CreateWrite, false) => "memory",
            _ => "nothing written",
        }
    }

    fn schedule(&self) -> Schedule {
        let none = self.run.ops.is_some() || self.load == SmbLoad::Remove;
        Schedule {
            warmup_s: self.warmup.unwrap_or(if none { 0.0 } else { 2.0 }),
            duration_s: self.run.duration,
            server_pid: self.server_pid,
            sample: machine::family,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let block = self.block_size;
        if block == 0 || block > 8 << 20 {
            return Err(BenchError::Usage(
                "the block size is 1 byte to 8 MiB".into(),
            ));
        }
        if self.run.verify && block % pattern::BLOCK as u64 != 0 {
            return Err(BenchError::Usage(format!(
                "--verify needs blocks of a multiple of {} bytes",
                pattern::BLOCK
            )));
        }
        let schedule = self.schedule();
        let seconds = [self.run.duration, self.timeout, schedule.warmup_s];
        if seconds.iter().any(|s| !(0.0..1e7).contains(s)) || self.timeout == 0.0 {
            return Err(BenchError::Usage("times are 0 to 10,000,000 s".into()));
        }
        if self.clients > self.connections {
            return Err(BenchError::Usage("fewer connections than clients".into()));
        }
        if self.file_count() == 0 || self.file_count() > u64::from(u32::MAX) {
            return Err(BenchError::Usage("the files are 1 to 4,294,967,295".into()));
        }
        Ok(())
    }

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
struct Unobserved;

impl Observer for Unobserved {}

/// What a run came to.
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
    observed(args, &Unobserved).map(|outcome| outcome.report)
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
) -> Result<Raced, BenchError> {
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

//! Settings of a load on an SMB server.

use super::crypto::{Cipher, Signing};
use crate::args::{Pattern, RunArgs, parse_size};
use crate::error::BenchError;
use crate::machine;
use crate::pattern;
use crate::phases::Schedule;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;

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
    /// Returns true if the load moves data in files that stay open.
    pub fn is_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Mix)
    }

    /// Returns true if it needs many small files.
    pub fn needs_files(self) -> bool {
        matches!(self, Self::Stat | Self::List | Self::Remove)
    }
}

/// Protection of messages.
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
    /// Protection of messages.
    #[arg(long, value_enum, default_value = "sign")]
    pub protection: Protection,
    /// Signing algorithm. Channels and the end of a logon are always.
    #[arg(long, value_enum, default_value = "gmac")]
    pub signing: Signing,
    /// Cipher.
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
    /// Duration, and the fate of the working set.
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

    /// Returns the durability that WRITEs ask for, in words.
    pub fn durability(&self) -> &'static str {
        match (self.load, self.write_through) {
            (SmbLoad::Mix, _) if self.read_percent == 100 => "nothing written",
            (SmbLoad::Write | SmbLoad::Mix | SmbLoad::CreateWrite, true) => "write-through",
            (SmbLoad::Write | SmbLoad::Mix, false) => "FLUSH after each pass and at the end",
            (SmbLoad::CreateWrite, false) => "memory",
            _ => "nothing written",
        }
    }

    pub(super) fn schedule(&self) -> Schedule {
        let none = self.run.ops.is_some() || self.load == SmbLoad::Remove;
        Schedule {
            warmup_s: self.warmup.unwrap_or(if none { 0.0 } else { 2.0 }),
            duration_s: self.run.duration,
            server_pid: self.server_pid,
            sample: machine::family,
        }
    }

    pub(super) fn check(&self) -> Result<(), BenchError> {
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
}

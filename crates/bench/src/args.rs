//! Settings of loads, as the command line has them.

use crate::arrivals::Spacing;
use crate::nfs3::Stable;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The operation that is repeated.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[clap(rename_all = "kebab-case")]
pub enum LoadKind {
    /// READ.
    Read,
    /// WRITE, with COMMITs when unstable.
    Write,
    /// READ and WRITE, --read-percent of the one.
    Mix,
    /// CREATE of an empty file.
    Create,
    /// CREATE, WRITE of one block and COMMIT, counted as one operation.
    CreateWriteCommit,
    /// LOOKUP of random names.
    Lookup,
    /// GETATTR of random files.
    Getattr,
    /// ACCESS of random files.
    Access,
    /// READDIR of whole directories; an operation is one reply.
    Readdir,
    /// READDIRPLUS of whole directories; an operation is one reply.
    Readdirplus,
    /// REMOVE of files made beforehand; the run ends with the last of them.
    Remove,
    /// RENAME of files, to and fro within their directory.
    Rename,
    /// MKDIR.
    Mkdir,
    /// A blend like that of chip design: names and attributes of many small files, some
    /// made and removed, data in large pieces.
    Eda,
    /// The front end of chip design: names and attributes of small files of one block in many
    /// directories; whole files and quarters of them read and written, some made and removed.
    EdaFrontEnd,
    /// The back end of chip design: READ and WRITE, --read-percent of the one, of large files that
    /// are spread over directories.
    EdaBackEnd,
    /// NULL: what a call costs that does nothing.
    Null,
}

impl LoadKind {
    /// Returns true if the load reads or writes files whose contents were made beforehand.
    pub fn is_data(self) -> bool {
        matches!(
            self,
            Self::Read | Self::Write | Self::Mix | Self::Eda | Self::EdaFrontEnd | Self::EdaBackEnd
        )
    }

    /// Returns true if the load is a blend of operations on many small files.
    pub fn is_blend(self) -> bool {
        matches!(self, Self::Eda | Self::EdaFrontEnd)
    }

    /// Returns true if the load uses up what was made beforehand.
    pub fn consumes(self) -> bool {
        self == Self::Remove
    }
}

/// Order of the blocks in the files.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every connection reads or writes its own files from start to end, again and again.
    Sequential,
    /// Blocks drawn evenly from the whole working set, block-aligned.
    Random,
}

/// The protocol that a load speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// NFSv3.
    #[default]
    V3,
    /// NFSv4.1 or 4.2.
    V4(SessionArgs),
}

/// Sessions of NFSv4.
#[derive(Args, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionArgs {
    /// Minor version of NFSv4: 1, or 2 (RFC 7862).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub minor: u32,
    /// Slots that each client's session asks for: calls in flight of the client, over all its
    /// connections [default: connections × depth, 1024 at most].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: Option<u32>,
}

impl Default for SessionArgs {
    fn default() -> Self {
        Self {
            minor: 1,
            slots: None,
        }
    }
}

impl Version {
    /// Reads 3, 4, 4.1 or 4.2; 4 is 4.1.
    pub fn parse(text: &str) -> Result<Self, String> {
        let minor = match text {
            "3" => return Ok(Self::V3),
            "4" | "4.1" => 1,
            "4.2" => 2,
            _ => return Err(format!("version {text:?}: 3, 4.1 or 4.2")),
        };
        Ok(Self::V4(SessionArgs {
            minor,
            ..SessionArgs::default()
        }))
    }

    /// Returns the version with so many slots; NFSv3 has none.
    pub fn with_slots(self, slots: Option<u32>) -> Self {
        match (self, slots) {
            (Self::V4(v4), Some(_)) => Self::V4(SessionArgs { slots, ..v4 }),
            _ => self,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::V3 => write!(f, "NFSv3"),
            Self::V4(v4) => write!(f, "NFSv4.{}", v4.minor),
        }
    }
}

/// Load on an NFSv4.1 or 4.2 server, with COMPOUNDs as the Linux client builds them. Each client
/// has one session over its connections; in flight are at most its slots.
#[derive(Args, Debug, Clone)]
pub struct Nfs4Args {
    /// Load, connections and depth.
    #[command(flatten)]
    pub load: NfsArgs,
    /// Minor version and slots of the sessions that the clients make.
    #[command(flatten)]
    pub session: SessionArgs,
}

impl Nfs4Args {
    /// The load's settings with the sessions'.
    pub fn settings(&self) -> NfsArgs {
        NfsArgs {
            version: Version::V4(self.session),
            ..self.load.settled()
        }
    }
}

/// Settings that the loads on all protocols have in common.
#[derive(Args, Debug, Clone, Serialize)]
pub struct RunArgs {
    /// Seconds of the measurement.
    #[arg(long, short = 't', default_value_t = 10.0)]
    pub duration: f64,
    /// End after this many operations, if --duration has not passed before.
    #[arg(long, short = 'n')]
    pub ops: Option<u64>,
    /// Check all data read against what belongs there.
    #[arg(long)]
    pub verify: bool,
    /// Use a working set that an earlier run left with --keep.
    #[arg(long)]
    pub reuse: bool,
    /// Leave the working set behind.
    #[arg(long)]
    pub keep: bool,
    /// Do not read the working set once before a load that reads.
    #[arg(long)]
    pub no_preread: bool,
    /// Seed of offsets and contents.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl RunArgs {
    /// For so many seconds, with a working set that is reused and left behind, and read beforehand
    /// only where that is asked for.
    pub fn kept(duration: f64) -> Self {
        Self {
            duration,
            ops: None,
            verify: false,
            reuse: true,
            keep: true,
            no_preread: true,
            seed: 1,
        }
    }
}

/// Load on an NFSv3 server. In flight are at most connections × depth calls.
#[derive(Args, Debug, Clone, Serialize)]
pub struct NfsArgs {
    /// The version of NFS that the calls are of; each has a command of its own.
    #[arg(skip)]
    pub version: Version,
    /// The operation to repeat.
    pub load: LoadKind,
    /// Address of the server: HOST:PORT of its NFS service. Several with commas between them are
    /// addresses of one file system: clients are spread over them in turn.
    #[arg(long, default_value = "127.0.0.1:2049")]
    pub server: String,
    /// Port of the MOUNT service [default: the NFS port]. NFSv4 has none.
    #[arg(long)]
    pub mount_port: Option<u16>,
    /// Ask the server's rpcbind (port 111) for the MOUNT port.
    #[arg(long, conflicts_with = "mount_port")]
    pub rpcbind: bool,
    /// Path of the export.
    #[arg(long, default_value = "/vol1")]
    pub export: String,
    /// Directory within the export that holds the working set.
    #[arg(long, default_value = "weir-bench")]
    pub dir: String,
    /// TCP connections, of all clients.
    #[arg(long, short = 'c', default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub connections: u32,
    /// TCP connections of each client, in place of --connections.
    #[arg(long, conflicts_with = "connections", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nconnect: Option<u32>,
    /// Calls in flight on each connection.
    #[arg(long, short = 'd', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Calls in flight in all, spread over the connections as evenly as it goes, --depth
    /// at most on each [default: connections × depth].
    #[arg(long)]
    pub in_flight: Option<u32>,
    /// Clients that the connections are divided among. On loopback each has an address
    /// of its own (127.0.0.2, 127.0.0.3, …), so that the server can tell them apart.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// Open loop: begin so many operations a second in all, whatever the replies do, and
    /// count latency from the moment an operation was due.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Spacing of the operations of an open loop.
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Spacing,
    /// Threads of the generator; the connections are spread over them.
    #[arg(long, short = 'j', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Bytes of each READ, WRITE or (for the listings) reply: 4k, 64KiB, 1m.
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
    /// Durability that WRITEs ask for.
    #[arg(long, value_enum, default_value = "unstable")]
    pub stability: Stable,
    /// COMMIT a file whenever this many bytes of it were written by one connection;
    /// besides, at the end of each pass over a file and of the run. 0: only then.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    pub commit_every: u64,
    /// Seconds of load before the measurement [default: 2, or 0 with a count of operations].
    #[arg(long)]
    pub warmup: Option<f64>,
    /// Duration, and the fate of the working set.
    #[command(flatten)]
    #[serde(flatten)]
    pub run: RunArgs,
    /// User id of the calls.
    #[arg(long, default_value_t = 0)]
    pub uid: u32,
    /// Group id of the calls.
    #[arg(long, default_value_t = 0)]
    pub gid: u32,
    /// Process id of the server on this machine: report its CPU time and memory.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Give up when a connection gets no reply for so many seconds.
    #[arg(long, default_value_t = 60.0)]
    pub timeout: f64,
    /// Write the result as JSON to this file ("-": to the standard output, in place
    /// of the table).
    #[arg(long)]
    #[serde(skip)]
    pub json: Option<PathBuf>,
    /// Write to this file how many operations had been completed when: fifty lines a second,
    /// of the monotonic clock's seconds and the number.
    #[arg(long)]
    #[serde(skip)]
    pub samples: Option<PathBuf>,
    /// A name for the run, repeated in its result.
    #[arg(long, default_value = "")]
    pub label: String,
}

impl NfsArgs {
    /// The settings with the number of connections that they come to.
    pub fn settled(&self) -> Self {
        let connections = self
            .nconnect
            .map_or(self.connections, |each| each * self.clients);
        Self {
            connections,
            ..self.clone()
        }
    }

    /// Files of the working set.
    pub fn file_count(&self) -> u64 {
        self.files.unwrap_or(if self.load.is_data() {
            u64::from(self.connections)
        } else {
            10_000
        })
    }

    /// Seconds of load before the measurement.
    pub fn warmup_seconds(&self) -> f64 {
        self.warmup
            .unwrap_or(if self.run.ops.is_some() || self.load.consumes() {
                0.0
            } else {
                2.0
            })
    }
}

/// Settings of the measurement of TCP over loopback.
#[derive(Args, Debug, Clone, Serialize)]
pub struct TcpArgs {
    /// Connections at once.
    #[arg(long, short = 'c', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub connections: u32,
    /// Bytes of each send.
    #[arg(long, short = 'b', default_value = "256k", value_parser = parse_size)]
    pub block_size: u64,
    /// Seconds of the measurement.
    #[arg(long, short = 't', default_value_t = 3.0)]
    pub duration: f64,
    /// Let the kernel discard what is received instead of copying it.
    #[arg(long)]
    pub discard: bool,
    /// Write the result as JSON to this file ("-": to the standard output).
    #[arg(long)]
    #[serde(skip)]
    pub json: Option<PathBuf>,
}

/// Reads a size such as `4096`, `4k`, `64KiB`, `1m`, `2GiB` (all powers of two).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a size"))?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        other => return Err(format!("unknown unit {other:?} (k, m, g, t)")),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4k"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("2 g"), Ok(2 << 30));
        assert_eq!(parse_size("7"), Ok(7));
        assert!(parse_size("").is_err());
        assert!(parse_size("k").is_err());
        assert!(parse_size("4q").is_err());
        assert!(parse_size("99999999999t").is_err());
    }
}

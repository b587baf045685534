//! The result of a run of an NFS load: as JSON for machines, as a table for people.

use crate::args::NfsArgs;
use crate::figures::{Figures, TOOL};
use crate::nfs3::Fsinfo;
use crate::phases::RunResults;
use serde::Serialize;
use std::fmt::Write as _;

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name and version of the generator.
    pub tool: String,
    /// Start, in seconds since 1970.
    pub unix_time: u64,
    /// All settings of the run.
    pub settings: NfsArgs,
    /// Limits that the server states.
    pub fsinfo: Fsinfo,
    /// Slots of a client's session (NFSv4): the least that the server granted one.
    pub slots: Option<u32>,
    /// The durability that the counted operations asked for.
    pub durability: String,
    /// Operations a second that an open loop offered.
    pub offered_ops_per_s: Option<f64>,
    /// Replies NFS3ERR_JUKEBOX or NFS4ERR_DELAY, which were repeated.
    pub jukebox: u64,
    /// Counts, rates and times of the measurement, without what came before it.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Measured values, for [`Report::new`].
pub struct ReportInput<'a> {
    /// The settings of the run.
    pub args: &'a NfsArgs,
    /// The server's limits, from FSINFO.
    pub fsinfo: Fsinfo,
    /// Slots of a client's session (NFSv4).
    pub slots: Option<u32>,
    /// Counts of the threads.
    pub raced: &'a RunResults,
}

impl Report {
    /// Derives the report from what was measured.
    pub fn new(m: ReportInput<'_>) -> Self {
        Self {
            tool: TOOL.into(),
            unix_time: m.raced.unix_time,
            settings: m.args.clone(),
            fsinfo: m.fsinfo,
            slots: m.slots,
            durability: durability(m.args),
            offered_ops_per_s: m.args.rate,
            jukebox: m.raced.tally.jukebox,
            figures: Figures::new(m.raced, m.raced.tally.faults()),
        }
    }

    /// The report as a table for a terminal.
    pub fn table(&self) -> String {
        let a = &self.settings;
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut out, a);
        out
    }

    fn write_table(&self, out: &mut String, a: &NfsArgs) -> std::fmt::Result {
        writeln!(
            out,
            "{}, {:?} {:?}, {} B blocks, {} connections × {} deep{}, {} thread(s), {:.2} s; durability: {}",
            a.version,
            a.load,
            a.pattern,
            a.block_size,
            a.connections,
            a.depth,
            self.slots
                .map_or(String::new(), |n| format!(", {n} slots a client")),
            a.jobs,
            self.figures.elapsed_s,
            self.durability
        )?;
        self.figures.write_table(out)?;
        if self.jukebox > 0 {
            writeln!(
                out,
                "{} calls repeated after NFS3ERR_JUKEBOX or NFS4ERR_DELAY",
                self.jukebox
            )?;
        }
        self.figures.write_faults(out)
    }
}

/// The durability that a load's operations ask the server for, in words.
fn durability(a: &NfsArgs) -> String {
    use crate::args::LoadKind as K;
    use crate::nfs3::Stable;
    let writes = match a.stability {
        Stable::Unstable if a.commit_every > 0 => {
            format!(
                "UNSTABLE, COMMIT every {} bytes and at the end",
                a.commit_every
            )
        }
        Stable::Unstable => "UNSTABLE, COMMIT after each pass and at the end".into(),
        Stable::DataSync => "DATA_SYNC".into(),
        Stable::FileSync => "FILE_SYNC".into(),
    };
    match a.load {
        K::Write => writes,
        K::Mix | K::EdaBackEnd if a.read_percent < 100 => writes,
        K::Eda | K::EdaFrontEnd => format!("{writes}; names as the server makes them durable"),
        K::CreateWriteCommit if a.stability == Stable::Unstable => {
            "CREATE, UNSTABLE WRITE, COMMIT".into()
        }
        K::CreateWriteCommit => format!("CREATE, {writes} WRITE"),
        K::Create | K::Remove | K::Rename | K::Mkdir => {
            "as the server makes namespace changes (RFC 1813 §1: before the reply)".into()
        }
        _ => "nothing written".into(),
    }
}

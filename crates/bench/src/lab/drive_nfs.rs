//! A point of the matrix on an NFS export, through the own generator.
//!
//! What a host with `nconnect` does is repeated on the wire: each client has that many
//! connections, and its jobs' operations are spread over them. Every job has a file of
//! its own. The working set is made once for all points that share it, and removed at
//! the end of the run.

use super::driver::{self, Context, Driver};
use super::live::{GeneratorMeasurement, Live, TIMEOUT_S};
use super::outcome::{Point, Repetition, TargetFacts};
use super::plan::Set;
use super::progress::Display;
use super::spec::{Cache, Durability, Kind, Table};
use super::target::Nfs;
use crate::args::{LoadKind, NfsArgs, Pattern, RunArgs};
use crate::arrivals::Spacing;
use crate::error::BenchError;
use crate::nfs3::Stable;
use crate::run;
use std::collections::BTreeSet;

/// The driver of one export.
pub struct NfsDriver {
    nfs: Nfs,
    /// Sets that were made; to be removed.
    made: BTreeSet<Set>,
    /// Sets that were read once.
    warmed: BTreeSet<Set>,
}

impl NfsDriver {
    /// Without any working set yet.
    pub fn new(nfs: Nfs) -> Self {
        Self {
            nfs,
            made: BTreeSet::new(),
            warmed: BTreeSet::new(),
        }
    }

    fn arguments(&self, context: &Context<'_>, table: &Table, point: &Point, set: &Set) -> NfsArgs {
        let load = match (table.kind, point.read_percent) {
            (Kind::Eda | Kind::EdaFrontEnd | Kind::EdaBackEnd, _) => load_of(table.kind),
            (Kind::Data, 100) => LoadKind::Read,
            (Kind::Data, 0) => LoadKind::Write,
            (Kind::Data, _) => LoadKind::Mix,
        };
        let each = point.jobs * point.depth;
        let per_client = point.nconnect.min(each);
        let connections = point.clients * per_client;
        let mut a = self.set_arguments(set, context.definition.time.measure);
        a.load = load;
        a.connections = connections;
        a.depth = each.div_ceil(per_client);
        a.in_flight = Some(point.clients * each);
        a.clients = point.clients;
        a.rate = point.rate;
        a.arrivals = table.arrivals.unwrap_or(Spacing::Poisson);
        a.jobs = context.threads().min(connections);
        a.block_size = table.block_size.0;
        a.pattern = table.pattern.into();
        a.read_percent = point.read_percent;
        a.stability = match context.definition.durability(table) {
            Durability::Stable => Stable::FileSync,
            Durability::Unstable => Stable::Unstable,
        };
        a.warmup = Some(context.warmup(table));
        a.server_pid = context.settings.server_pid;
        a
    }

    /// The settings that name a working set; the rest are defaults.
    fn set_arguments(&self, set: &Set, duration: f64) -> NfsArgs {
        NfsArgs {
            load: load_of(set.kind),
            version: self.nfs.version,
            server: self.nfs.servers.clone(),
            mount_port: Some(self.nfs.mount_port),
            rpcbind: false,
            export: self.nfs.export.clone(),
            dir: format!("weir-bench-{}", set.name()),
            connections: 1,
            nconnect: None,
            depth: 1,
            in_flight: None,
            clients: 1,
            rate: None,
            arrivals: Spacing::Poisson,
            jobs: 1,
            block_size: 4096,
            size: set.bytes(),
            files: Some(set.files),
            dirs: set.dirs,
            pattern: Pattern::Random,
            read_percent: 100,
            stability: Stable::Unstable,
            commit_every: 0,
            warmup: None,
            run: RunArgs::kept(duration),
            uid: 0,
            gid: 0,
            server_pid: None,
            timeout: TIMEOUT_S,
            json: None,
            samples: None,
            label: String::new(),
        }
    }
}

/// The load that makes and removes the working set of a kind of load, and that is all of it but
/// for the shares of reads and writes.
fn load_of(kind: Kind) -> LoadKind {
    match kind {
        Kind::Data => LoadKind::Read,
        Kind::Eda => LoadKind::Eda,
        Kind::EdaFrontEnd => LoadKind::EdaFrontEnd,
        Kind::EdaBackEnd => LoadKind::EdaBackEnd,
    }
}

impl Driver for NfsDriver {
    fn describe(&self, facts: &mut TargetFacts) {
        facts.generator = driver::OWN_GENERATOR.into();
    }

    fn measure(
        &mut self,
        context: &Context<'_>,
        point: &Point,
        display: &Display,
    ) -> Result<Repetition, BenchError> {
        let (table, set) = driver::table_and_set(context, point)?;
        let mut args = self.arguments(context, table, point, &set);
        let cache = context.definition.cache(table);
        if cache == Cache::Cold {
            driver::make_cold(
                context,
                || match self.made.insert(set) {
                    true => {
                        display.draw("making the working set", 0.0);
                        run::prepare(&args)
                    }
                    false => Ok(()),
                },
                || self.nfs.answers(),
            )?;
        }
        let reads = args.load != LoadKind::Write;
        args.run.no_preread = !(reads && cache == Cache::Warm && !self.warmed.contains(&set));
        self.made.insert(set);
        let live = Live::new(context, display);
        let outcome = run::observed(&args, &live)?;
        if reads && !args.run.no_preread {
            self.warmed.insert(set);
        }
        let report = &outcome.report;
        let measured = GeneratorMeasurement {
            figures: &report.figures,
            tally: &outcome.tally,
            samples: &outcome.samples,
            cut_short: outcome.cut_short,
            durability: report.durability.clone(),
            // The blend's writes are as durable as any.
            read_percent: match args.load.is_blend() {
                true => 0,
                false => point.read_percent,
            },
            note: (report.jukebox > 0).then(|| {
                format!(
                    "{} calls repeated after NFS3ERR_JUKEBOX or NFS4ERR_DELAY",
                    report.jukebox
                )
            }),
        };
        let local = self.nfs.is_local();
        Ok(live.finished(context, table, point, &measured, local))
    }

    fn alive(&self) -> Result<(), BenchError> {
        self.nfs.answers()
    }

    fn clean(&mut self) -> Result<(), BenchError> {
        for set in std::mem::take(&mut self.made) {
            run::discard(&self.set_arguments(&set, 1.0))?;
        }
        Ok(())
    }
}

//! A point of the matrix on an SMB share, through the own generator.
//!
//! A client has one session, whose channels are as many as NFS would have connections with
//! `nconnect`; its jobs' operations are spread over them evenly, so there are as many channels as
//! divide what is in flight. The working set is made once for all points that share it, and removed
//! at the end of the run.

use super::driver::{self, Context, Driver};
use super::live::{GeneratorMeasurement, Live, TIMEOUT_S};
use super::outcome::{Point, Repetition, TargetFacts};
use super::plan::Set;
use super::progress::Display;
use super::spec::{Cache, Definition, Durability, Kind, Table};
use super::target::Smb;
use crate::args::RunArgs;
use crate::error::BenchError;
use crate::smb::{self, SmbArgs, SmbLoad};
use std::collections::BTreeSet;

/// The driver of one share.
pub struct SmbDriver {
    smb: Smb,
    /// Sets that were made; to be removed.
    made: BTreeSet<Set>,
    /// Sets that were read once.
    warmed: BTreeSet<Set>,
}

/// The most channels, up to `most`, among which `in_flight` operations are divided evenly.
fn channels(in_flight: u32, most: u32) -> u32 {
    let mut even = (1..=most.min(in_flight)).rev();
    even.find(|n| in_flight % n == 0).unwrap_or(1)
}

impl SmbDriver {
    /// Without any working set yet.
    ///
    /// # Errors
    /// The definition has a load that is only of NFS.
    pub fn new(smb: Smb, definition: &Definition) -> Result<Self, BenchError> {
        let other = |t: &&Table| t.kind != Kind::Data || t.rate.is_some();
        if let Some(table) = definition.tables.iter().find(other) {
            return Err(BenchError::Usage(format!(
                "{}: over SMB there are reads and writes in a closed loop only; give an nfs:// target",
                table.heading()
            )));
        }
        Ok(Self {
            smb,
            made: BTreeSet::new(),
            warmed: BTreeSet::new(),
        })
    }

    fn arguments(&self, context: &Context<'_>, table: &Table, point: &Point, set: &Set) -> SmbArgs {
        let each = point.jobs * point.depth;
        let channels = channels(each, point.nconnect);
        let mut a = self.set_arguments(set, context.definition.time.measure);
        a.load = match point.read_percent {
            100 => SmbLoad::Read,
            0 => SmbLoad::Write,
            _ => SmbLoad::Mix,
        };
        a.connections = point.clients * channels;
        a.clients = point.clients;
        a.depth = each / channels;
        a.jobs = context.threads().min(a.connections);
        a.block_size = table.block_size.0;
        a.pattern = table.pattern.into();
        a.read_percent = point.read_percent;
        a.write_through = context.definition.durability(table) == Durability::Stable;
        a.warmup = Some(context.warmup(table));
        a.server_pid = context.settings.server_pid;
        a
    }

    /// The settings that name a working set; the rest are defaults.
    fn set_arguments(&self, set: &Set, duration: f64) -> SmbArgs {
        SmbArgs {
            dir: format!("weir-bench-{}", set.name()),
            size: set.bytes(),
            files: Some(set.files),
            run: RunArgs::kept(duration),
            timeout: TIMEOUT_S,
            ..self.smb.arguments()
        }
    }
}

impl Driver for SmbDriver {
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
                        smb::prepare(&args)
                    }
                    false => Ok(()),
                },
                || smb::probe(&self.smb.arguments()).map(|_| ()),
            )?;
        }
        let warms = point.read_percent > 0 && cache == Cache::Warm && !self.warmed.contains(&set);
        args.run.no_preread = !warms;
        self.made.insert(set);
        let live = Live::new(context, display);
        let outcome = smb::observed(&args, &live)?;
        if warms {
            self.warmed.insert(set);
        }
        let measured = GeneratorMeasurement {
            figures: &outcome.report.figures,
            tally: &outcome.tally,
            samples: &outcome.samples,
            cut_short: outcome.cut_short,
            durability: args.durability().into(),
            read_percent: point.read_percent,
            note: None,
        };
        let local = self.smb.address.ip().is_loopback();
        Ok(live.finished(context, table, point, &measured, local))
    }

    fn alive(&self) -> Result<(), BenchError> {
        smb::probe(&self.smb.arguments()).map(|_| ())
    }

    fn clean(&mut self) -> Result<(), BenchError> {
        for set in std::mem::take(&mut self.made) {
            smb::discard(&self.set_arguments(&set, 1.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_divided_evenly_among_channels() {
        for (in_flight, most, expected) in [
            (32, 16, 16),
            (24, 16, 12),
            (24, 4, 4),
            (7, 4, 1),
            (1, 16, 1),
        ] {
            assert_eq!(
                channels(in_flight, most),
                expected,
                "{in_flight} by at most {most}"
            );
        }
    }
}

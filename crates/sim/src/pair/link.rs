//! The link between a primary and its standby, and the standby's end of it. Messages under way
//! arrive when the story says so.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_volume::{ChangeStream, Engine, Sequence, StandbyError, StreamPosition};

use crate::machine::{LOG, Machine, RunningEngine};

use super::CheckResult;
use super::arrivals::Arrivals;

/// A standby and its end of the link.
pub(super) struct Partner {
    pub(super) machine: Machine,
    pub(super) running: Option<RunningEngine>,
    /// Number of the last entry that was applied.
    pub(super) applied: u64,
    /// Entries that may not be durable yet, with their records.
    pub(super) lsns: VecDeque<(u64, u64)>,
    pub(super) durable: u64,
    /// Number of the last entry whose acknowledgement reached the primary.
    pub(super) acknowledged: u64,
    /// Acknowledgements on their way.
    pub(super) acks: VecDeque<u64>,
    pub(super) arrivals: Arrivals,
    pub(super) up: bool,
}

/// State shared by both ends, and the link.
pub(super) struct Mirror {
    pub(super) term: u64,
    pub(super) stream: Option<Arc<ChangeStream>>,
    pub(super) partner: Partner,
    pub(super) failed: Option<String>,
    /// True if the primary is alone, and has recorded it.
    pub(super) alone: bool,
}

impl Partner {
    pub(super) fn engine(&self) -> CheckResult<&Engine> {
        let running = self.running.as_ref();
        running
            .map(|r| &r.engine)
            .ok_or("the standby is off".into())
    }

    pub(super) fn off(&self) -> bool {
        self.running.is_none() || self.machine.world.crashed()
    }

    /// Notes what has become durable.
    pub(super) fn look(&mut self) -> CheckResult {
        let durable = self.engine()?.durable().0;
        while let Some((sequence, _)) = self.lsns.front().filter(|(_, lsn)| *lsn <= durable) {
            self.durable = *sequence;
            self.lsns.pop_front();
        }
        Ok(())
    }

    /// The log's disk completes a write, or all of them.
    pub(super) fn write(&mut self, all: bool) -> CheckResult {
        if self.off() {
            return Ok(());
        }
        let world = Arc::clone(&self.machine.world);
        let Some(last) = self.lsns.back().map(|(_, lsn)| *lsn) else {
            return Ok(());
        };
        loop {
            let engine = self.engine()?;
            world.wait_until(|held| {
                held.iter().any(|h| h.disk == LOG)
                    || engine.durable().0 >= last
                    || engine.poisoned().is_some()
                    || world.crashed()
            });
            let before = engine.durable();
            if let Some(held) = world.held().into_iter().find(|h| h.disk == LOG) {
                world.release(held.id);
                world.wait_until(|_| {
                    engine.durable() > before || engine.poisoned().is_some() || world.crashed()
                });
            }
            let done = engine.durable().0 >= last || engine.poisoned().is_some();
            self.look()?;
            if !all || done || world.crashed() {
                return Ok(());
            }
        }
    }
}

impl Mirror {
    /// Delivers the pages that were sent before their entries.
    pub(super) fn arrive(&mut self) {
        let partner = &mut self.partner;
        if let (Some(stream), Some(running)) = (&self.stream, &partner.running)
            && partner.up
            && !partner.machine.world.crashed()
        {
            partner.arrivals.arrive(stream, &running.engine);
        }
    }

    /// Delivers up to `count` entries.
    pub(super) fn deliver(&mut self, count: u64) -> CheckResult {
        let Some(stream) = self.stream.clone() else {
            return Ok(());
        };
        let term = self.term;
        let partner = &mut self.partner;
        if !partner.up || partner.off() {
            return Ok(());
        }
        let world = Arc::clone(&partner.machine.world);
        world.release_all(LOG);
        if let Some(running) = &partner.running {
            partner.arrivals.arrive(&stream, &running.engine);
        }
        let (mut entries, mut pages) = (Vec::new(), 0);
        let mut at = partner.applied;
        while let Some(entry) = stream.after(Sequence(at)) {
            // What waits while it is applied comes alone.
            let waits = entry.meta.first() == Some(&0) || snapshot(&entry.meta);
            pages += entry.pages.len();
            let enough = entries.len() as u64 == count || pages > 160;
            if (enough || waits) && !entries.is_empty() {
                break;
            }
            at = entry.sequence.0;
            entries.push(entry);
            if waits {
                break;
            }
        }
        let engine = match &partner.running {
            Some(running) => &running.engine,
            None => return Ok(()),
        };
        let waits = entries.iter().any(|entry| entry.meta.first() == Some(&0));
        let mut lsns = Vec::new();
        let mut parts: Vec<_> = entries
            .iter()
            .map(|entry| partner.arrivals.entry(entry))
            .collect();
        let mut apply = || -> Result<(), StandbyError> {
            for (entry, (pages, ahead)) in entries.iter().zip(&mut parts) {
                engine.prepare_entry(&entry.meta, pages.len(), ahead.as_mut())?;
            }
            world.hold(LOG, !waits);
            for (entry, (came, ahead)) in entries.iter().zip(parts.drain(..)) {
                let mut pages = Vec::new();
                for page in &came {
                    let mut frame = engine.blank_page()?;
                    frame.copy_from_slice(&page[..]);
                    pages.push(frame.freeze());
                }
                let at = StreamPosition {
                    term,
                    sequence: entry.sequence.0,
                };
                let lsn = engine.apply_entry(at, &entry.meta, pages, ahead)?;
                lsns.push((entry.sequence.0, lsn.0));
            }
            Ok(())
        };
        let result = apply();
        partner.applied = lsns
            .last()
            .map_or(partner.applied, |(sequence, _)| *sequence);
        partner.lsns.extend(lsns);
        match result {
            Err(e) if !world.crashed() => Err(format!("the standby: {e}")),
            _ => Ok(()),
        }
    }

    /// The standby says what it has.
    pub(super) fn send_ack(&mut self) -> CheckResult {
        let partner = &mut self.partner;
        if partner.off() || !partner.up {
            return Ok(());
        }
        partner.look()?;
        partner.acks.push_back(partner.durable);
        Ok(())
    }

    pub(super) fn receive_ack(&mut self, primary: &Engine) -> CheckResult {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        if let Some(sequence) = self.partner.acks.pop_front() {
            primary
                .acknowledge(stream, sequence)
                .map_err(|e| e.to_string())?;
            self.partner.acknowledged = self.partner.acknowledged.max(sequence);
        }
        Ok(())
    }

    /// Delivers all entries, makes them durable, and acknowledges them.
    pub(super) fn drain(&mut self, primary: &Engine) -> CheckResult {
        let Some(stream) = self.stream.clone() else {
            return Ok(());
        };
        while self.partner.up && !self.partner.off() && self.partner.acknowledged < stream.last().0
        {
            self.deliver(8)?;
            self.partner.write(true)?;
            self.send_ack()?;
            while !self.partner.acks.is_empty() {
                self.receive_ack(primary)?;
            }
        }
        Ok(())
    }

    /// The primary goes on alone: the standby does not take over any more. Its log's disk completes
    /// what is written.
    pub(super) fn leave(&mut self, primary: &Engine) {
        if self.stream.take().is_none() {
            return;
        }
        self.partner.up = false;
        let at = StreamPosition {
            term: self.term + 1,
            sequence: 0,
        };
        let noted = primary.go_alone(at);
        match noted {
            Ok(()) => self.alone = true,
            Err(e) if primary.poisoned().is_none() => {
                self.failed.get_or_insert(format!("alone: {e}"));
            }
            // Nothing is durable any more.
            Err(_) => primary.end_stream(),
        }
    }
}

/// Returns true if `meta` may be a record about a snapshot, for which a checkpoint may have to be
/// made.
fn snapshot(meta: &[u8]) -> bool {
    meta.get(9).is_some_and(|tag| (8..=10).contains(tag))
}

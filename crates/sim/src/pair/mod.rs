//! Stories of a mirror: a primary, its standby, and a link between them that is cut; the power
//! fails at either.
//!
//! One thread drives everything. The disks of both logs are held, entries and acknowledgements wait
//! on the link until they are delivered, so the seed decides who has what when something fails. Of
//! each place of the stream the story keeps the model as it was. Whenever the standby starts, and
//! whenever it takes over, it has to hold *exactly* the state of the place at which it says that it
//! is (data without stability included), and no less than what was acknowledged to it, or by the
//! primary to clients. Now and then the link is drained: then both hold the same, by the hashes of
//! their trees.

mod arrivals;
mod commits;
mod link;
pub(crate) mod sync;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_base::Time;
use weir_volume::{
    CallKey, CreateHow, Engine, EngineContext, FsError, SetAttr, Stability, Stop, StreamPosition,
};

use crate::engine::EngineSubject;
use crate::generate::{Generator, Profile};
use crate::histories::finish_background_jobs;
use crate::machine::{DATA, LOG, Machine, RunningEngine, Sizes, VOLUME};
use crate::model::{Model, Op, Rules, Slot};
use crate::rand::Choices;
use crate::runner::Runner;
use arrivals::Arrivals;
use link::{Mirror, Partner};

type CheckResult<T = ()> = Result<T, String>;

/// Bytes of the window: it is full now and then.
const WINDOW: u32 = 1 << 20;

/// A place in the stream, and what the primary held there.
struct StreamPoint {
    sequence: u64,
    /// The record that the reply waits for, if it promises that something is durable; 0: the reply
    /// waits for nothing.
    promised: Option<u64>,
    id: Slot,
    model: Model,
}

struct Story<'a> {
    choices: &'a Choices,
    machine: Machine,
    running: RunningEngine,
    mirror: Mutex<Mirror>,
    places: Vec<StreamPoint>,
    /// Before each operation: a record, and a place of the stream by which it is in that.
    records: Vec<(u64, u64)>,
    serial: u32,
    diary: &'a mut Vec<String>,
}

/// Runs the story that `seed` determines.
///
/// # Errors
/// What was wrong, with the last things that happened.
pub fn story(seed: u64) -> CheckResult {
    let mut diary = Vec::new();
    tell(&Choices::new(seed), &mut diary).map_err(|what| {
        let last = diary.len().saturating_sub(40);
        format!("{what}\nlast events:\n{}", diary[last..].join("\n"))
    })
}

fn sizes(choices: &Choices) -> Sizes {
    Sizes {
        frames: *choices.pick(&[2048, 4096]),
        log_blocks: *choices.pick(&[2049, 4097]),
        ..Sizes::varied(choices)
    }
}

fn tell(choices: &Choices, diary: &mut Vec<String>) -> CheckResult {
    let profile = *choices.pick(&[
        Profile::mutations(),
        Profile::names(),
        Profile::data(),
        Profile::mixed(),
    ]);
    let mut machine = Machine::new(sizes(choices), choices)?;
    let mut generator = Generator::new(choices.fork(), profile);
    let mut runner: Option<Runner> = None;
    let lives = choices.between(1, 3);
    for life in 1..=lives {
        let life = 2 * life;
        diary.push(format!("--- life {life}"));
        let mut story = Story::begin(choices, machine, life, diary)?;
        let result = story.live(&mut runner, &mut generator);
        let result = result.and_then(|()| match &mut runner {
            Some(runner) => story.end(runner),
            None => Err("nothing was done".into()),
        });
        machine = match result {
            Ok(survivor) => survivor,
            Err(what) => {
                // No thread is to wait for held disks.
                story.machine.world.crash();
                story.mirror.lock().partner.machine.world.crash();
                return Err(what);
            }
        };
    }
    Ok(())
}

fn start(machine: &Machine, at: StreamPosition) -> CheckResult<RunningEngine> {
    let running = machine.boot()?;
    let noted = running.engine.note_position(at);
    let lsn = noted.map_err(|stop| format!("a new term: {stop:?}"))?;
    let durable = running.engine.wait_durable(Some(lsn));
    durable.map_err(|e| e.to_string())?;
    Ok(running)
}

impl<'a> Story<'a> {
    /// Two machines with one state, the second made of a copy of the first one's disks, and a term
    /// of their own.
    fn begin(
        choices: &'a Choices,
        mut machine: Machine,
        term: u64,
        diary: &'a mut Vec<String>,
    ) -> CheckResult<Story<'a>> {
        let mut twin = machine.twin(sizes(choices), choices)?;
        machine.set_standby(false);
        twin.set_standby(true);
        let at = StreamPosition { term, sequence: 0 };
        let running = start(&machine, at)?;
        let partner = Partner {
            running: Some(start(&twin, at)?),
            machine: twin,
            applied: 0,
            lsns: VecDeque::new(),
            durable: 0,
            acknowledged: 0,
            acks: VecDeque::new(),
            arrivals: Arrivals::default(),
            up: true,
        };
        let stream = running.engine.begin_stream(at, WINDOW);
        let stream = stream.map_err(|e| e.to_string())?;
        Ok(Story {
            choices,
            machine,
            running,
            mirror: Mutex::new(Mirror {
                term,
                stream: Some(stream),
                partner,
                failed: None,
                alone: false,
            }),
            places: Vec::new(),
            records: Vec::new(),
            serial: 0,
            diary,
        })
    }

    fn note(&mut self, what: String) {
        self.diary.push(what);
    }

    fn crashed(&self) -> bool {
        self.machine.world.crashed()
    }

    fn sequence(&self) -> u64 {
        let mirror = self.mirror.lock();
        // Alone, nothing that is done concerns the standby.
        mirror
            .stream
            .as_ref()
            .map_or(u64::MAX, |stream| stream.last().0)
    }

    fn live(&mut self, runner: &mut Option<Runner>, generator: &mut Generator) -> CheckResult {
        let choices = self.choices;
        let world = Arc::clone(&self.machine.world);
        if runner.is_none() {
            let durable = || 0;
            let mut subject = EngineSubject {
                volume: Arc::clone(&self.running.volume),
                durable: &durable,
                on_wait: &|_| {},
                pins: &self.running.pins,
            };
            let new = Runner::new(&mut subject, self.machine.current_time(), Rules::ENGINE);
            *runner = Some(new.map_err(|m| m.0)?);
        }
        let Some(runner) = runner else {
            return Err("nothing to compare with".into());
        };
        self.place(runner, None, Slot(0));
        world.hold(LOG, true);
        if choices.chance(1, 2) {
            world.crash_at(world.counts().events + choices.between(1, 400));
        }
        for _ in 0..choices.between(20, 250) {
            if self.crashed() {
                break;
            }
            match choices.weighted(&[30, 12, 4, 8, 4, 6, 6, 2, 2, 2, 1, 3, 1, 2, 8]) {
                0 => {
                    let op = generator.next(&runner.model);
                    let id = runner.next_id();
                    self.operate(runner, id, &op)?;
                }
                1 => self.release_log(runner),
                2 => {
                    world.release_all(LOG);
                    let result = self.running.engine.cp_now();
                    self.note(format!("checkpoint: {result:?}"));
                    world.hold(LOG, true);
                }
                3 => {
                    let count = choices.between(1, 6);
                    self.mirror.get_mut().deliver(count)?;
                }
                4 => self.mirror.get_mut().partner.write(false)?,
                5 => self.mirror.get_mut().send_ack()?,
                6 => {
                    let engine = &self.running.engine;
                    self.mirror.get_mut().receive_ack(engine)?;
                }
                7 => self.cut(),
                8 => self.restart_standby(runner)?,
                9 => self.checkpoint_of_standby()?,
                10 => self.compare(runner)?,
                11 => {
                    for _ in 0..choices.between(1, 6) {
                        self.volumes()?;
                    }
                }
                12 => self.lose_partner(runner)?,
                14 => self.mirror.get_mut().arrive(),
                _ => {
                    self.commits()?;
                    if choices.chance(1, 3) {
                        self.compare(runner)?;
                    }
                }
            }
            self.acknowledge(runner)?;
        }
        Ok(())
    }

    fn place(&mut self, runner: &Runner, promised: Option<u64>, id: Slot) {
        self.places.push(StreamPoint {
            sequence: self.sequence(),
            promised,
            id,
            model: runner.model.clone(),
        });
    }

    /// Notes what clients have replies for.
    fn acknowledge(&mut self, runner: &mut Runner) -> CheckResult {
        if let Some(failed) = self.mirror.get_mut().failed.take() {
            return Err(failed);
        }
        let durable = self.running.engine.durable().0;
        runner.acknowledge(durable);
        Ok(())
    }

    fn settle_log(&self, runner: &Runner) {
        let last = runner.last_lsn();
        let engine = &self.running.engine;
        let world = &self.machine.world;
        world.wait_until(|held| {
            held.iter().any(|h| h.disk == LOG)
                || engine.aggregate().log().written().0 >= last
                || engine.poisoned().is_some()
                || world.crashed()
        });
    }

    fn release_log(&mut self, runner: &Runner) {
        let world = Arc::clone(&self.machine.world);
        if let Some(held) = world.held().into_iter().find(|h| h.disk == LOG) {
            world.release(held.id);
        }
        self.settle_log(runner);
    }

    fn operate(&mut self, runner: &mut Runner, id: Slot, op: &Op) -> CheckResult {
        let written = self.running.engine.aggregate().log().written().0;
        let sequence = self.sequence();
        self.records
            .push((written.max(runner.last_lsn()), sequence));
        self.note(format!("{id:?} {op:?}"));
        let world = Arc::clone(&self.machine.world);
        let (running, mirror) = (&self.running, &self.mirror);
        let durable = || running.engine.durable().0;
        let on_wait = |begins: bool| {
            if !begins {
                world.hold(LOG, true);
                return;
            }
            world.release_all(DATA);
            world.release_all(LOG);
            let mut mirror = mirror.lock();
            if let Err(what) = mirror.drain(&running.engine) {
                mirror.failed.get_or_insert(what);
            }
            // With a full window and nobody to empty it nothing would go on.
            if running.engine.aggregate().log().stream_full() {
                mirror.leave(&running.engine);
            }
        };
        let mut subject = EngineSubject {
            volume: Arc::clone(&running.volume),
            durable: &durable,
            on_wait: &on_wait,
            pins: &running.pins,
        };
        match runner.step(&mut subject, id, op) {
            Err(_) if self.crashed() => {
                runner.in_doubt(id, op);
                Ok(())
            }
            Err(mismatch) => Err(format!("{op:?}: {mismatch}")),
            Ok(()) => {
                // A commit without a record to wait for says that all is durable already.
                let lsn = runner.lsn_of(id);
                let commit = matches!(op, Op::Commit { .. });
                self.place(runner, lsn.filter(|lsn| *lsn > 0 || commit), id);
                self.settle_log(runner);
                Ok(())
            }
        }
    }

    /// The connection breaks: what is on its way is lost. A new one begins where the standby is.
    fn cut(&mut self) {
        let up = {
            let mirror = self.mirror.get_mut();
            let partner = &mut mirror.partner;
            partner.acks.clear();
            partner.arrivals.lose();
            partner.up = !partner.up && !partner.off() && mirror.stream.is_some();
            partner.up
        };
        self.note(format!("the link is up: {up}"));
    }

    /// Checks that the standby holds exactly what it says.
    fn inspect(&mut self, runner: &mut Runner, at: u64) -> CheckResult {
        let place = self.places.iter().rev().find(|p| p.sequence <= at);
        let place = place.ok_or("before the beginning")?;
        let partner = &self.mirror.get_mut().partner;
        let running = partner.running.as_ref().ok_or("the standby is off")?;
        let durable = || 0;
        let mut subject = EngineSubject {
            volume: Arc::clone(&running.volume),
            durable: &durable,
            on_wait: &|_| {},
            pins: &running.pins,
        };
        let held = runner.holds(&mut subject, &place.model, self.choices);
        held.map_err(|m| format!("the standby at {at}, the place {}: {m}", place.sequence))
    }

    /// The standby's power fails, and comes back, perhaps to fail in the middle of its start.
    fn restart_standby(&mut self, runner: &mut Runner) -> CheckResult {
        let choices = self.choices;
        let partner = &mut self.mirror.get_mut().partner;
        partner.machine.world.crash();
        partner.arrivals.lose();
        partner.running = None;
        partner.acks.clear();
        partner.machine.reboot(choices);
        let check = |machine: &Machine| {
            let checked = machine.check();
            checked.map_err(|e| format!("the standby after a crash: {e}"))
        };
        check(&partner.machine)?;
        if choices.chance(1, 4) {
            partner.machine.world.crash_at(choices.between(1, 25));
            let started = partner.machine.boot();
            drop(started);
            partner.machine.reboot(choices);
            check(&partner.machine)?;
        }
        partner.running = Some(partner.machine.boot()?);
        let at = partner.engine()?.position();
        let (applied, acknowledged) = (partner.applied, partner.acknowledged);
        partner.applied = at.sequence;
        partner.durable = at.sequence;
        partner.lsns.clear();
        let was = partner.up;
        let term = self.mirror.get_mut().term;
        self.note(format!("the standby is at {at:?} of {applied}, link {was}"));
        if at.term != term || at.sequence < acknowledged || at.sequence > applied {
            return Err(format!(
                "the standby is at {at:?}, had acknowledged {acknowledged} and applied {applied}"
            ));
        }
        self.inspect(runner, at.sequence)
    }

    fn checkpoint_of_standby(&mut self) -> CheckResult {
        let partner = &mut self.mirror.get_mut().partner;
        if partner.off() {
            return Ok(());
        }
        let world = Arc::clone(&partner.machine.world);
        if self.choices.chance(1, 5) {
            world.crash_at(world.counts().events + self.choices.between(1, 20));
        }
        world.release_all(LOG);
        let result = partner.engine()?.cp_now();
        let crashed = world.crashed();
        self.note(format!("checkpoint of the standby: {result:?}"));
        match result {
            Err(e) if !crashed => Err(format!("checkpoint of the standby: {e}")),
            _ => Ok(()),
        }
    }

    /// Both are the same once everything has arrived.
    fn compare(&mut self, runner: &mut Runner) -> CheckResult {
        let world = Arc::clone(&self.machine.world);
        let mirror = self.mirror.get_mut();
        if mirror.stream.is_none() || !mirror.partner.up || mirror.partner.off() {
            return Ok(());
        }
        world.release_all(LOG);
        let engine = &self.running.engine;
        let settled = finish_background_jobs(engine).and_then(|()| mirror.drain(engine));
        let partner = &mut mirror.partner;
        if world.crashed() || partner.off() {
            return Ok(());
        }
        settled?;
        partner.machine.world.release_all(LOG);
        let theirs = partner.engine()?;
        let standby = finish_background_jobs(theirs);
        if partner.off() {
            return Ok(());
        }
        standby?;
        let position = theirs.position();
        if position != engine.position() {
            let ours = engine.position();
            return Err(format!("the positions differ: {ours:?}, {position:?}"));
        }
        let hashes = |engine: &Engine| engine.state_hash().map_err(|e| e.to_string());
        let (ours, others) = (hashes(engine)?, hashes(theirs)?);
        if ours != others {
            return Err(format!("the trees differ:\n{ours:#?}\n{others:#?}"));
        }
        let calls = |engine: &Engine| {
            let mut calls: Vec<String> = engine
                .done_calls()
                .iter()
                .map(|c| format!("{c:?}"))
                .collect();
            calls.sort();
            calls
        };
        let clients = |engine: &Engine| engine.client_records().list_records();
        if calls(engine) != calls(theirs) || clients(engine) != clients(theirs) {
            return Err("the calls or the clients differ".into());
        }
        let at = position.sequence;
        world.hold(LOG, true);
        self.note(format!("both hold the same at {at}"));
        self.inspect(runner, at)
    }

    /// Runs something that waits for the partner, on a thread of its own.
    fn waiting<T: Send>(
        &mut self,
        act: impl FnOnce(&Engine) -> Result<T, FsError> + Send,
    ) -> CheckResult<Result<T, FsError>> {
        let world = Arc::clone(&self.machine.world);
        let engine = &self.running.engine;
        let mirror = self.mirror.get_mut();
        let left = mirror.stream.is_some() && (!mirror.partner.up || mirror.partner.off());
        world.release_all(LOG);
        if left {
            mirror.leave(engine);
        }
        let mut drained = Ok(());
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(|| act(engine));
            while !thread.is_finished() {
                if drained.is_ok() {
                    drained = mirror.drain(engine);
                }
                if drained.is_err() || mirror.partner.off() {
                    mirror.leave(engine);
                }
                std::thread::yield_now();
            }
            thread.join()
        });
        world.hold(LOG, true);
        drained?;
        result.map_err(|panic| crate::suite::panic_text(&*panic))
    }

    /// Something happens to volumes as a whole.
    fn volumes(&mut self) -> CheckResult {
        self.serial += 1;
        let choices = self.choices;
        let serial = self.serial;
        let now = self.machine.current_time();
        let names: Vec<String> = {
            let all = self.running.engine.volumes();
            let others = all.iter().filter(|vol| vol.name() != VOLUME);
            others.map(|vol| vol.name().to_owned()).collect()
        };
        let some = (!names.is_empty()).then(|| choices.pick(&names).clone());
        let kind = choices.below(10);
        let bits = choices.bits();
        let done = self.waiting(move |engine| {
            let rng = weir_base::SeededRng::new(bits);
            let made = format!("v{serial}");
            let Some(name) = some else {
                return engine
                    .create_volume(&made, (0, 0), 0o755, now, &rng)
                    .map(|_| format!("volume {made}"));
            };
            let vol = engine.volume(&name).ok_or(FsError::NotFound)?;
            let snapshots = vol.snapshots();
            let snapshot = snapshots.get(bits as usize % snapshots.len().max(1));
            let did = match (kind, snapshot) {
                (0, _) => {
                    engine.set_limit(&vol, 1 << (30 + bits % 4));
                    "limit"
                }
                (1, _) => {
                    engine.annotate(&vol, &format!("text {serial}"))?;
                    "text"
                }
                (2 | 3, _) => {
                    vol.snapshot_take(&made, "label", now)?;
                    "snapshot"
                }
                (4, Some(s)) => {
                    engine.revert(&name, &s.name)?;
                    "revert"
                }
                (5, Some(s)) => {
                    engine.clone_volume(&name, &s.name, &made)?;
                    "clone"
                }
                (6, Some(s)) => {
                    vol.snapshot_delete(&s.name)?;
                    "delete of a snapshot"
                }
                (7, _) => match vol.origin() {
                    Some(_) => {
                        engine.split_clone(&name)?;
                        "split"
                    }
                    None => {
                        engine.delete_volume(&name)?;
                        "deletion"
                    }
                },
                (8, _) => {
                    let record = (bits % 3 > 0).then_some(&*made);
                    let records = engine.client_records();
                    records.set_blocking(2 + bits % 4, record.map(str::as_bytes))?;
                    "a client"
                }
                _ => {
                    write_some(&vol, serial)?;
                    "writes"
                }
            };
            Ok(format!("{did} of {name}"))
        })?;
        self.note(format!("volumes: {done:?}"));
        match done {
            // What the moment does not admit.
            Err(FsError::Busy | FsError::NotFound | FsError::Exists) | Ok(_) => Ok(()),
            Err(e) if self.crashed() => {
                self.note(format!("power off: {e}"));
                Ok(())
            }
            Err(e) => Err(format!("volumes: {e}")),
        }
    }

    /// The primary goes on without its standby.
    fn lose_partner(&mut self, runner: &mut Runner) -> CheckResult {
        if !self.choices.chance(1, 4) {
            return Ok(());
        }
        let mirror = self.mirror.get_mut();
        if mirror.stream.is_none() {
            return Ok(());
        }
        self.machine.world.release_all(LOG);
        mirror.leave(&self.running.engine);
        self.machine.world.hold(LOG, true);
        self.note("the primary is alone".into());
        self.acknowledge(runner)
    }

    /// The end of a life: the primary is lost, or stops. Returns the machine that goes on.
    fn end(&mut self, runner: &mut Runner) -> CheckResult<Machine> {
        let choices = self.choices;
        self.mirror.get_mut().partner.arrivals.lose();
        if self.mirror.get_mut().stream.is_none() {
            return self.end_alone(runner);
        }
        if !self.crashed() && choices.chance(1, 2) {
            if !self.mirror.get_mut().partner.up || self.mirror.get_mut().partner.off() {
                self.restart_standby(runner)?;
                self.mirror.get_mut().partner.up = true;
            }
            self.compare(runner)?;
        }
        // The last that clients were told.
        let durable = self.running.engine.durable().0;
        self.machine.world.crash();
        let kept = |p: &&StreamPoint| p.promised.is_some_and(|lsn| lsn <= durable);
        // A reply may wait for an older record, which says nothing of what was written without
        // stability since.
        let before = |lsn: u64| {
            self.records
                .iter()
                .find(|(last, _)| lsn > 0 && *last >= lsn)
        };
        let told = self.places.iter().filter(kept).map(|p| {
            let record = p.promised.and_then(before);
            record.map_or(p.sequence, |(_, sequence)| p.sequence.min(*sequence))
        });
        let told = told.max().unwrap_or(0);
        let partner = &self.mirror.get_mut().partner;
        partner.machine.world.crash_at(0);
        // What it has received it applies; but its power may have failed, too.
        if partner.off() || choices.chance(1, 2) {
            self.restart_standby(runner)?;
        }
        let partner = &mut self.mirror.get_mut().partner;
        let at = partner.engine()?.position().sequence;
        self.note(format!("takeover at {at}, told up to {told}"));
        if at < told {
            return Err(format!("clients were told {told}, the standby has {at}"));
        }
        self.inspect(runner, at)?;
        let place = self.places.iter().rev().find(|p| p.sequence <= at);
        let place = place.ok_or("before the beginning")?;
        let kept: Vec<Slot> = self
            .places
            .iter()
            .filter(|p| p.sequence <= at)
            .map(|p| p.id)
            .collect();
        runner.taken_over(&place.model, |id| kept.contains(&id));
        let mirror = self.mirror.get_mut();
        let partner = &mut mirror.partner;
        partner.machine.world.release_all(LOG);
        let next = StreamPosition {
            term: mirror.term + 1,
            sequence: 0,
        };
        let taken = partner.engine()?.take_over(next);
        taken.map_err(|e| format!("takeover: {e}"))?;
        let ended = partner.engine()?.shutdown();
        ended.map_err(|e| format!("shutdown of the standby: {e}"))?;
        partner.running = None;
        partner.machine.check()?;
        let spare = Machine::new(Sizes::small(), choices)?;
        Ok(std::mem::replace(&mut partner.machine, spare))
    }

    /// There is no standby any more: it is what its log says.
    fn end_alone(&mut self, runner: &mut Runner) -> CheckResult<Machine> {
        let choices = self.choices;
        self.acknowledge(runner)?;
        self.machine.world.crash();
        self.mirror.get_mut().partner.machine.world.crash();
        let spare = Machine::new(Sizes::small(), choices)?;
        let mut machine = std::mem::replace(&mut self.machine, spare);
        let running = self.machine.boot()?;
        drop(std::mem::replace(&mut self.running, running));
        machine.reboot(choices);
        machine.check()?;
        let running = machine.boot()?;
        let (at, mirror) = (running.engine.position(), self.mirror.get_mut());
        if mirror.alone && at.term != mirror.term + 1 {
            let term = mirror.term;
            return Err(format!("alone after term {term} is forgotten: {at:?}"));
        }
        let durable = || 0;
        let mut subject = EngineSubject {
            volume: Arc::clone(&running.volume),
            durable: &durable,
            on_wait: &|_| {},
            pins: &running.pins,
        };
        let recovered = runner.recovered(&mut subject, choices);
        recovered.map_err(|m| m.0)?;
        running.engine.shutdown().map_err(|e| e.to_string())?;
        Ok(machine)
    }
}

/// Makes a file and writes to it, without stability.
fn write_some(vol: &weir_volume::Volume, serial: u32) -> Result<(), FsError> {
    let mut cx = EngineContext::new(Time::EPOCH);
    cx.call = Some(CallKey([serial as u8; CallKey::LEN]));
    let name = format!("f{}", serial % 5);
    let set = SetAttr::default();
    let made = vol.drive_blocking(&mut cx, |cx| {
        vol.create(cx, vol.root(), name.as_bytes(), CreateHow::Unchecked, &set)
    })?;
    let data = vec![serial as u8; 10_000];
    let write = |cx: &mut EngineContext| -> Result<_, Stop> {
        vol.write(
            cx,
            made.value.ino,
            u64::from(serial % 7) * 4000,
            &data,
            Stability::Unstable,
        )
    };
    vol.drive_blocking(&mut cx, write)?;
    Ok(())
}

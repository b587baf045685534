//! Stories of a copy that is brought up: from nothing, or from a mark after the two were apart,
//! while its primary changes all the time.
//!
//! The power of either fails at any moment; the standby takes over; the old primary comes back as
//! what is to be brought up. What has to come out is one thing: once the two are joined they hold
//! the same, by the hashes of their trees, and so they do after everything that happens then. Both
//! are checked when they are stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Ino, SeededRng, Time};
use weir_volume::{
    Ahead, ChangeStream, Conversion, CreateHow, Engine, EngineContext, Frame, FsError, MarkId,
    Round, Sequence, SetAttr, SetIds, Stability, StandbyError, StreamPosition, Volume, VolumeState,
};

use crate::histories::finish_background_jobs;
use crate::machine::{Machine, Sizes};
use crate::rand::Choices;

use super::arrivals::{Arrivals, boxes};
use super::{CheckResult, sizes, write_some};

/// Bytes of the window: it is overrun now and then.
const WINDOW: u32 = 512 << 10;

/// One of the two machines.
struct Side {
    machine: Machine,
    engine: Option<Engine>,
}

impl Side {
    fn engine(&self) -> CheckResult<&Engine> {
        self.engine.as_ref().ok_or("it is off".into())
    }

    fn crashed(&self) -> bool {
        self.machine.world.crashed()
    }

    /// Its power fails, and comes back.
    fn reboot(&mut self, choices: &Choices, standby: bool) -> CheckResult {
        self.machine.world.crash();
        self.engine = None;
        self.machine.set_standby(standby);
        loop {
            self.machine.reboot(choices);
            self.machine.check()?;
            if choices.chance(1, 6) {
                self.machine.world.crash_at(choices.between(1, 30));
                drop(self.machine.start());
                continue;
            }
            self.engine = Some(self.machine.start()?);
            return Ok(());
        }
    }

    fn stop(&mut self) -> CheckResult {
        let ended = self.engine()?.shutdown();
        ended.map_err(|e| format!("shutdown: {e}"))?;
        self.engine = None;
        self.machine.check()
    }
}

struct Story<'a> {
    choices: &'a Choices,
    primary: Side,
    copy: Side,
    term: u64,
    round: Option<Round>,
    stream: Option<Arc<ChangeStream>>,
    joined: bool,
    arrivals: Arrivals,
    serial: u32,
    /// Contents of both sides at some positions; a copy that reports such a position must hold the
    /// same.
    known: BTreeMap<StreamPosition, Vec<VolumeState>>,
    /// Number of times that the power may still fail.
    failures: u64,
    diary: &'a mut Vec<String>,
}

/// Runs the story that `seed` determines.
///
/// # Errors
/// What was wrong, with the last things that happened.
pub fn story(seed: u64) -> CheckResult {
    let mut diary = Vec::new();
    let choices = Choices::new(seed);
    tell(&choices, &mut diary).map_err(|what| {
        let last = diary.len().saturating_sub(60);
        format!("{what}\nlast events:\n{}", diary[last..].join("\n"))
    })
}

fn tell(choices: &Choices, diary: &mut Vec<String>) -> CheckResult {
    let machine = Machine::new(roomy(choices), choices)?;
    let blank = machine.blank_copy(roomy(choices), choices)?;
    let engine = Some(machine.start()?);
    let copy = Side {
        engine: Some(blank.start()?),
        machine: blank,
    };
    let mut story = Story {
        choices,
        primary: Side { machine, engine },
        copy,
        term: 1,
        round: None,
        stream: None,
        joined: false,
        arrivals: Arrivals::default(),
        serial: 0,
        known: BTreeMap::new(),
        failures: choices.below(6),
        diary,
    };
    let told = story.tell();
    if told.is_err() {
        story.primary.machine.world.crash();
        story.copy.machine.world.crash();
    }
    told
}

/// Both hold marks beside what clients made.
fn roomy(choices: &Choices) -> Sizes {
    Sizes {
        chunks: 16,
        ..sizes(choices)
    }
}

impl Story<'_> {
    fn note(&mut self, what: String) {
        self.diary.push(what);
    }

    fn tell(&mut self) -> CheckResult {
        self.begin_term()?;
        for life in 0..self.choices.between(1, 3) {
            self.note(format!("--- life {life}"));
            for _ in 0..self.choices.between(3, 40) {
                self.act(true)?;
            }
            self.bring_up()?;
            self.compare()?;
            self.in_sync()?;
            if self.choices.chance(1, 2) {
                self.compare()?;
            }
            if life == 0 && self.choices.chance(1, 3) {
                break;
            }
            self.part()?;
        }
        self.bring_up()?;
        self.compare()?;
        self.copy.machine.world.crash_at(u64::MAX);
        if self.copy.crashed() {
            self.restart_copy()?;
            self.compare()?;
        }
        self.end_stream()?;
        self.primary.stop()?;
        self.copy.stop()
    }

    /// The primary answers by itself from now on.
    fn begin_term(&mut self) -> CheckResult {
        let engine = self.primary.engine()?;
        let at = StreamPosition {
            term: self.term,
            sequence: 0,
        };
        let noted = engine.note_position(at);
        let lsn = noted.map_err(|stop| format!("a term: {stop:?}"))?;
        let durable = engine.wait_durable(Some(lsn));
        durable.map_err(|e| format!("a term: {e}"))
    }

    fn end_stream(&mut self) -> CheckResult {
        self.arrivals.lose();
        self.stream = None;
        self.joined = false;
        self.primary.engine()?.end_stream();
        Ok(())
    }

    /// The primary's power has failed: it comes back and is the primary.
    fn restart_primary(&mut self) -> CheckResult {
        self.note("the primary restarts".into());
        self.arrivals.lose();
        (self.round, self.stream, self.joined) = (None, None, false);
        self.primary.reboot(self.choices, false)?;
        self.term += 1;
        self.begin_term()
    }

    fn restart_copy(&mut self) -> CheckResult {
        self.arrivals.lose();
        self.copy.reboot(self.choices, true)?;
        let at = self.copy.engine()?.position();
        self.note(format!("the copy restarts at {at:?}"));
        let Some(known) = self.known.get(&at) else {
            return Ok(());
        };
        let copy = self.copy.engine()?;
        finish_background_jobs(copy)?;
        let now = copy.state_hash().map_err(|e| e.to_string())?;
        match now == *known {
            true => Ok(()),
            false => Err(format!(
                "the copy says that it is at {at:?}:\n{now:#?}\n{known:#?}"
            )),
        }
    }

    /// The power of one of them is going to fail.
    fn fail(&mut self) {
        if self.failures == 0 || !self.choices.chance(1, 12) {
            return;
        }
        self.failures -= 1;
        let of_primary = self.choices.chance(1, 2) && !self.joined;
        let side = if of_primary {
            &self.primary
        } else {
            &self.copy
        };
        let world = &side.machine.world;
        world.crash_at(world.counts().events + self.choices.between(1, 60));
        self.note(format!(
            "a power failure comes: of the primary {of_primary}"
        ));
    }

    /// Something is changed at the primary; `whole`: perhaps volumes as a whole.
    fn act(&mut self, whole: bool) -> CheckResult {
        self.serial += 1;
        let (choices, serial) = (self.choices, self.serial);
        let now = self.primary.machine.current_time();
        let engine = self.primary.engine()?;
        let volumes = engine.volumes();
        let vol = choices.pick(&volumes);
        let done = match whole && choices.chance(1, 3) {
            true => admin(engine, vol, choices, serial, now),
            false => change(vol, choices, serial).map(str::to_owned),
        };
        let name = vol.name().to_owned();
        self.note(format!("{serial}: {name}: {done:?}"));
        match done {
            Err(_) if self.primary.crashed() => self.restart_primary(),
            Err(
                FsError::NotFound
                | FsError::Exists
                | FsError::Busy
                | FsError::Stale
                | FsError::IsDir
                | FsError::NotDir
                | FsError::NotEmpty
                | FsError::Invalid
                | FsError::NoSpace
                | FsError::Delay,
            )
            | Ok(_) => Ok(()),
            Err(e) => Err(format!("a change: {e}")),
        }
    }

    /// Runs until replies wait for the copy and it has everything.
    fn bring_up(&mut self) -> CheckResult {
        for _ in 0..20_000 {
            self.fail();
            if self.choices.chance(1, 4) && !self.joined {
                self.act(true)?;
            }
            if self.primary.crashed() {
                self.restart_primary()?;
            }
            match self.step() {
                Ok(true) if !self.primary.crashed() => return Ok(()),
                Ok(true) => {}
                Ok(false) => {}
                Err(_) if self.primary.crashed() => self.restart_primary()?,
                Err(_) if self.copy.crashed() => self.restart_copy()?,
                Err(what) => return Err(what),
            }
            if self.choices.chance(1, 40) {
                // The connection breaks.
                self.note("cut".into());
                if let Some(round) = &mut self.round {
                    round.rewind();
                }
            }
        }
        Err("the copy is not brought up".into())
    }

    /// Applies one more entry. Returns true once the copy has joined and has everything.
    fn step(&mut self) -> CheckResult<bool> {
        let at = self.copy.engine()?.position();
        if self.in_stream(at) {
            return self.stream_on(at);
        }
        self.find_round(at)?;
        let Some(round) = &mut self.round else {
            return Err("no round".into());
        };
        let entry = round.advance().map_err(|e| format!("a round: {e}"))?;
        let Some(entry) = entry else {
            self.round = None;
            return Ok(false);
        };
        self.apply(entry.at, &entry.meta, &entry.pages, None)?;
        Ok(false)
    }

    fn in_stream(&self, at: StreamPosition) -> bool {
        let goes_on = |stream: &Arc<ChangeStream>| {
            !stream.is_overrun() && at.sequence >= stream.acknowledged().0
        };
        at.mark().is_none() && at.term == self.term && self.stream.as_ref().is_some_and(goes_on)
    }

    /// A round that goes on where the copy is, or a new one.
    fn find_round(&mut self, at: StreamPosition) -> CheckResult {
        let choices = self.choices;
        let theirs = self.copy.engine()?.marks();
        if let Some(round) = &mut self.round {
            if round.goes_on_at(at) {
                return Ok(());
            }
            if round.seek(at).map_err(|e| format!("to go on: {e}"))? {
                return Ok(());
            }
        }
        let ours = self.primary.engine()?.marks();
        let newest = theirs
            .iter()
            .rev()
            .find(|m| Some(**m) != at.mark() || at.is_whole());
        if let Some(mark) = at.mark().filter(|_| !at.is_whole()) {
            let reopened = self.primary.engine()?.reopen_round(newest.copied(), at);
            match reopened {
                Ok(mut round) => {
                    let found = round.seek(at).map_err(|e| format!("to go on: {e}"))?;
                    self.note(format!("goes on towards {mark} at {at:?}: {found}"));
                    if found {
                        self.round = Some(round);
                        return Ok(());
                    }
                }
                Err(FsError::NotFound) => {}
                Err(e) => return Err(format!("to take up a round: {e}")),
            }
        }
        let whole = |m: &&MarkId| Some(**m) != at.mark() || at.is_whole();
        let base = theirs.iter().rev().filter(whole).find(|m| ours.contains(m));
        let base = base.copied();
        if self.stream.is_some() {
            self.end_stream()?;
        }
        // Nothing has a number twice in one term.
        let mut from = self.primary.engine()?.position();
        from.sequence += 1;
        let follow = (choices.chance(2, 3)).then_some((from, WINDOW));
        let begun = loop {
            match self.primary.engine()?.begin_round(base, follow) {
                // A clone is being split.
                Err(FsError::Busy) => {
                    let done = self.primary.engine()?.cp_now();
                    done.map_err(|e| format!("checkpoint: {e}"))?;
                }
                begun => break begun,
            }
        };
        let (round, stream) = begun.map_err(|e| format!("to begin a round: {e}"))?;
        let to = round.mark();
        self.note(format!("a round from {base:?} to {to}, {follow:?}"));
        self.round = Some(round);
        self.stream = stream;
        Ok(())
    }

    fn apply(
        &mut self,
        at: StreamPosition,
        meta: &[u8],
        pages: &[Frame],
        mut ahead: Option<Ahead>,
    ) -> CheckResult {
        let engine = self.copy.engine()?;
        // As the product does: what needs nothing from the disk is applied at once.
        let mut put = || -> Result<_, StandbyError> {
            if let Some(lsn) = engine.try_entry(at, meta, &boxes(pages), &mut ahead)? {
                return Ok(lsn);
            }
            engine.prepare_entry(meta, pages.len(), ahead.as_mut())?;
            let mut own = Vec::new();
            for page in pages {
                let mut frame = engine.blank_page()?;
                frame.copy_from_slice(&page[..]);
                own.push(frame.freeze());
            }
            engine.apply_entry(at, meta, own, ahead.take())
        };
        match put() {
            Ok(lsn) => {
                if let Some(stream) = self.stream.clone().filter(|_| at.mark().is_none())
                    && (self.joined || self.choices.chance(1, 3))
                    && engine.wait_durable(Some(lsn)).is_ok()
                {
                    let acknowledged = self.primary.engine()?.acknowledge(&stream, at.sequence);
                    acknowledged.map_err(|e| e.to_string())?;
                }
                Ok(())
            }
            Err(StandbyError::NoMark(mark)) => {
                self.note(format!("the copy has no {mark}"));
                self.round = None;
                let engine = self.copy.engine()?;
                let dropped = engine.drop_marks(|m| m <= mark);
                dropped.map_err(|e| format!("to drop a mark: {e}"))
            }
            Err(e) => Err(format!("the copy, {at:?}: {e}")),
        }
    }

    /// The copy is at a place of the stream.
    fn stream_on(&mut self, at: StreamPosition) -> CheckResult<bool> {
        let Some(stream) = self.stream.clone() else {
            return Err("no stream".into());
        };
        self.round = None;
        let copy = self.copy.engine.as_ref().ok_or("it is off")?;
        self.arrivals.arrive(&stream, copy);
        if let Some(entry) = stream.after(Sequence(at.sequence)) {
            let (pages, ahead) = self.arrivals.entry(&entry);
            let next = StreamPosition {
                sequence: entry.sequence.0,
                ..at
            };
            self.apply(next, &entry.meta, &pages, ahead)?;
        } else if stream.last().0 > at.sequence && !stream.is_overrun() {
            return Err(format!("no entry after {at:?} of {stream:?}"));
        }
        let left = stream
            .last()
            .0
            .wrapping_sub(self.copy.engine()?.position().sequence);
        if !self.joined && left < 4 && !stream.is_overrun() {
            // Nothing that clients have replies for may be lost from now on.
            self.primary.machine.world.crash_at(u64::MAX);
            self.joined = self.primary.engine()?.join_partner(&stream);
            self.note(format!("joined: {}", self.joined));
        }
        Ok(self.joined && left == 0)
    }

    /// Applies all entries that are left.
    fn drain(&mut self) -> CheckResult {
        for _ in 0..5_000 {
            match self.step() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) if self.copy.crashed() => self.restart_copy()?,
                Err(what) => return Err(what),
            }
        }
        Err("the stream has no end".into())
    }

    fn compare(&mut self) -> CheckResult {
        let mut tries = 0;
        loop {
            finish_background_jobs(self.primary.engine()?)?;
            self.drain()?;
            match finish_background_jobs(self.copy.engine()?) {
                Ok(()) => break,
                Err(_) if self.copy.crashed() && tries < 8 => self.restart_copy()?,
                Err(what) => return Err(what),
            }
            tries += 1;
        }
        let (ours, theirs) = (self.primary.engine()?, self.copy.engine()?);
        if ours.position() != theirs.position() {
            let (ours, theirs) = (ours.position(), theirs.position());
            return Err(format!("the positions differ: {ours:?}, {theirs:?}"));
        }
        let hashes = |engine: &Engine| engine.state_hash().map_err(|e| e.to_string());
        let (a, b) = (hashes(ours)?, hashes(theirs)?);
        if a != b {
            return Err(format!("the trees differ:\n{a:#?}\n{b:#?}"));
        }
        let calls = |engine: &Engine| {
            let all = engine.done_calls();
            let mut all: Vec<String> = all.iter().map(|c| format!("{c:?}")).collect();
            all.sort();
            all
        };
        if calls(ours) != calls(theirs) {
            return Err("the calls differ".into());
        }
        if ours.client_records().list_records() != theirs.client_records().list_records() {
            return Err("the clients differ".into());
        }
        let at = ours.position();
        self.known.insert(at, a);
        self.note(format!("both hold the same at {at:?}"));
        Ok(())
    }

    /// Changes while the two are in sync, with marks.
    fn in_sync(&mut self) -> CheckResult {
        for _ in 0..self.choices.below(30) {
            self.act(false)?;
            if self.choices.chance(1, 8) {
                let mark = self.primary.engine()?.make_mark();
                self.note(format!("mark: {mark:?}"));
                match mark {
                    Ok(_) | Err(FsError::Busy) => {}
                    Err(e) => return Err(format!("a mark: {e}")),
                }
            }
            self.fail();
            self.drain()?;
        }
        Ok(())
    }

    /// Loses one of the two machines, with the entries under way.
    fn part(&mut self) -> CheckResult {
        let choices = self.choices;
        for _ in 0..choices.below(4) {
            self.act(false)?;
        }
        self.failures += choices.below(3);
        self.round = None;
        self.arrivals.lose();
        if choices.chance(1, 3) {
            return self.fail_at_a_mark();
        }
        if choices.chance(1, 2) {
            self.note("the copy is lost".into());
            self.term += 1;
            let at = StreamPosition {
                term: self.term,
                sequence: 0,
            };
            let alone = self.primary.engine()?.go_alone(at);
            alone.map_err(|e| format!("alone: {e}"))?;
            (self.stream, self.joined) = (None, false);
            if choices.chance(1, 2) {
                self.restart_copy()?;
            }
            return Ok(());
        }
        self.note("the primary is lost, the copy takes over".into());
        self.primary.machine.world.crash();
        self.copy.machine.world.crash_at(u64::MAX);
        if self.copy.crashed() {
            self.restart_copy()?;
        }
        // Where a primary stood when its power failed says nothing of what it has.
        self.known.clear();
        (self.stream, self.joined) = (None, false);
        self.term += 1;
        let at = StreamPosition {
            term: self.term,
            sequence: 0,
        };
        let taken = self.copy.engine()?.take_over(at);
        taken.map_err(|e| format!("takeover: {e}"))?;
        std::mem::swap(&mut self.primary, &mut self.copy);
        self.restart_copy()
    }
}

impl Story<'_> {
    /// The primary's power fails while it makes a mark, of which the copy has got everything. It
    /// comes back as the primary.
    fn fail_at_a_mark(&mut self) -> CheckResult {
        let world = Arc::clone(&self.primary.machine.world);
        world.crash_at(world.counts().events + self.choices.between(1, 15));
        let made = self.primary.engine()?.make_mark();
        self.note(format!("a mark, and a power failure: {made:?}"));
        self.drain()?;
        self.restart_primary()
    }
}

/// Something is done to a file or a name.
fn change(vol: &Volume, choices: &Choices, serial: u32) -> Result<&'static str, FsError> {
    let mut cx = EngineContext::new(Time::EPOCH);
    let cx = &mut cx;
    let set = SetAttr::default();
    let root = vol.root();
    let name = |n: u64| format!("n{n}").into_bytes();
    let (a, b) = (name(choices.below(8)), name(choices.below(8)));
    let open = |cx: &mut EngineContext, name: &[u8]| -> Result<Ino, FsError> {
        let made = vol.drive_blocking(cx, |cx| {
            vol.create(cx, root, name, CreateHow::Unchecked, &set)
        })?;
        Ok(made.value.ino)
    };
    match choices.below(14) {
        0 => vol.drive_blocking(cx, |cx| vol.remove(cx, root, &a).map(|_| "remove")),
        1 => vol.drive_blocking(cx, |cx| {
            vol.rename(cx, root, &a, root, &b).map(|_| "rename")
        }),
        2 => vol.drive_blocking(cx, |cx| vol.mkdir(cx, root, &a, &set).map(|_| "mkdir")),
        3 => {
            let target = vec![b't'; 1 + choices.below(3000) as usize];
            vol.drive_blocking(cx, |cx| {
                vol.symlink(cx, root, &a, &target, &set).map(|_| "symlink")
            })
        }
        4 => {
            let ino = open(cx, &a)?;
            let size = Some(choices.below(400_000));
            let set = SetAttr { size, ..set };
            vol.drive_blocking(cx, |cx| vol.setattr(cx, ino, &set, None).map(|_| "size"))
        }
        5 => {
            let ino = open(cx, &a)?;
            let (off, len) = (choices.below(300_000), 1 + choices.below(100_000));
            vol.drive_blocking(cx, |cx| vol.punch(cx, ino, off, len).map(|_| "punch"))
        }
        6 => {
            let (from, to) = (open(cx, &a)?, open(cx, &b)?);
            vol.drive_blocking(cx, |cx| {
                vol.clone_range(SetIds::Keep, cx, (from, 0), (to, 0), 40_960)
                    .map(|_| "clone of a range")
            })
        }
        7 => {
            let ino = open(cx, &a)?;
            vol.drive_blocking(cx, |cx| vol.commit(cx, ino, 0, 0).map(|_| "commit"))
        }
        8 => write_some(vol, serial).map(|()| "write some"),
        9 | 10 => {
            let ino = vol.drive_blocking(cx, |cx| Ok(vol.lookup(cx, root, &a)?.ino))?;
            // Of some targets the first pieces are the same.
            let target = vec![b't'; 1 + choices.below(4095) as usize];
            let to = match choices.below(3) {
                0 => Conversion::Plain(None),
                _ => Conversion::Link(&target),
            };
            vol.drive_blocking(cx, |cx| {
                vol.convert(cx, (root, &a), ino, to).map(|_| "convert")
            })
        }
        _ => {
            let ino = open(cx, &a)?;
            let data = vec![serial as u8; 1 + choices.below(150_000) as usize];
            let off = choices.below(300_000);
            let how = match choices.below(3) {
                0 => Stability::FileSync,
                _ => Stability::Unstable,
            };
            vol.drive_blocking(cx, |cx| {
                vol.write(cx, ino, off, &data, how).map(|_| "write")
            })
        }
    }
}

/// Something is done to a volume as a whole.
fn admin(
    engine: &Engine,
    vol: &Arc<Volume>,
    choices: &Choices,
    serial: u32,
    now: Time,
) -> Result<String, FsError> {
    let (name, made) = (vol.name(), format!("v{serial}"));
    let snapshots = vol.snapshots();
    let snapshot = snapshots.get(choices.below(4) as usize);
    // Space is freed in pieces.
    if engine.volumes().len() > 5 {
        let clone = engine
            .volumes()
            .into_iter()
            .rev()
            .find(|v| !v.has_snapshots());
        if let Some(vol) = clone.filter(|v| v.id().0 > 1) {
            engine.delete_volume(vol.name())?;
            return Ok(format!("deletion of {}", vol.name()));
        }
    }
    Ok(match (choices.below(12), snapshot) {
        (0, _) => {
            let rng = SeededRng::new(choices.bits());
            engine.create_volume(&made, (0, 0), 0o755, now, &rng)?;
            format!("volume {made}")
        }
        (1, _) => {
            engine.set_limit(vol, 1 << (30 + choices.below(4)));
            "limit".into()
        }
        (2, _) => {
            engine.annotate(vol, &format!("text {serial}"))?;
            "text".into()
        }
        (3 | 4, _) => {
            vol.snapshot_take(&made, "label", now)?;
            format!("snapshot {made}")
        }
        (5, Some(s)) => {
            engine.revert(name, &s.name)?;
            format!("revert to {}", s.name)
        }
        (6, Some(s)) => {
            engine.clone_volume(name, &s.name, &made)?;
            format!("clone {made} of {}", s.name)
        }
        (7, Some(s)) => {
            vol.snapshot_delete(&s.name)?;
            format!("deletion of {}", s.name)
        }
        (8, Some(s)) => {
            vol.snapshot_rename(&s.name, &made)?;
            format!("{} is {made}", s.name)
        }
        (9, _) if vol.origin().is_some() => {
            engine.split_clone(name)?;
            "split".into()
        }
        (10, _) if vol.id().0 > 1 => {
            engine.delete_volume(name)?;
            "deletion".into()
        }
        _ => {
            let record = choices.chance(2, 3).then_some(made.as_bytes());
            let records = engine.client_records();
            records.set_blocking(2 + choices.below(4), record)?;
            "a client".into()
        }
    })
}

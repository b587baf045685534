//! Simulated devices that lose power, tear, reorder, fail, rot and fill up.
//!
//! A [`World`] holds the disks of one machine, because power fails for all of them at the same
//! moment. Every disk keeps two images: what a read sees, and what survives a crash; between them
//! is the list of writes that no flush has covered yet. When the power goes, each of those writes,
//! and each write still in flight, may have reached the medium wholly, not at all, or in any subset
//! of its 512-byte sectors, in any order: that is all a disk promises, and what a file with a
//! volatile cache below it does. A disk opened as durable (the intent log: O_DSYNC) has only its
//! in-flight writes at risk.
//!
//! A disk without that is thin: what is discarded has no space until it is provisioned, and a write
//! to it is a fault of the engine. A crash undoes unflushed discards like writes, wholly, not at
//! all, or in part.
//!
//! Nothing here keeps time. I/O completes at once, unless the test holds it: held operations
//! complete when, and in which order, the test says so, so that a seed reproduces an interleaving;
//! or a scrambler thread completes them in random order, for tests with many threads.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use weir_base::{BLOCK_SIZE, BlockAddr};
use weir_store::device::Completer;
use weir_store::{Device, Discards, Frame, FrameMut, Io, IoError, IoKind};

use crate::rand::Choices;

/// Bytes that a disk writes atomically: the logical sector of common disks.
const SECTOR: usize = 512;

type Block = Arc<[u8; BLOCK_SIZE]>;
type Image = HashMap<u64, Block>;

/// Index of a disk in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskId(pub usize);

/// Options of a new disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Length in blocks at first.
    pub length: u64,
    /// Maximum length in blocks.
    pub max: u64,
    /// True if completed writes are durable without a flush.
    pub durable: bool,
}

/// An injected failure of calls to one disk.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The disk whose calls fail.
    pub disk: DiskId,
    /// The kind of call that fails.
    pub on: IoKind,
    /// Blocks that a call must touch to fail; `None` for any. Ignored for flushes.
    pub blocks: Option<Range<u64>>,
    /// Number of matching calls that succeed first.
    pub skip: u64,
    /// Number of matching calls that fail after those; `None` for all of them.
    pub times: Option<u64>,
}

/// Counters of a world, for tests that choose a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes, flushes and discards submitted so far: the clock of crash tests.
    pub events: u64,
    /// Reads submitted so far.
    pub reads: u64,
    /// Calls that failed by injection.
    pub failed: u64,
}

/// A change that a crash may undo.
enum Change {
    Write(u64, Vec<Block>),
    Discard(Range<u64>),
    Provision(Range<u64>),
}

struct UnflushedChange {
    sequence: u64,
    change: Change,
}

/// Contents of a disk, and its blocks without space.
#[derive(Clone, Default)]
struct Medium {
    image: Image,
    holes: BTreeSet<u64>,
}

impl Medium {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Write(addr, blocks) => {
                for (n, block) in (addr..).zip(blocks) {
                    self.image.insert(n, block);
                    self.holes.remove(&n);
                }
            }
            // Contents are undefined afterwards: a pattern exposes code that relies on them.
            Change::Discard(range) => {
                let rubbish: Block = Arc::new([0xD5; BLOCK_SIZE]);
                for n in range {
                    self.image.insert(n, Arc::clone(&rubbish));
                    self.holes.insert(n);
                }
            }
            Change::Provision(range) => self.holes.retain(|n| !range.contains(n)),
        }
    }

    /// Applies a change that was at risk in a crash.
    fn land(&mut self, change: &Change, choices: &Choices) {
        let (range, discards) = match change {
            Change::Write(addr, blocks) => {
                if land(&mut self.image, *addr, blocks, choices) {
                    let range = *addr..*addr + blocks.len() as u64;
                    self.holes.retain(|n| !range.contains(n));
                }
                return;
            }
            Change::Discard(range) => (range, true),
            Change::Provision(range) => (range, false),
        };
        let fate = choices.below(3);
        for part in range.clone().step_by(PART as usize) {
            let part = part..range.end.min(part + PART);
            match fate {
                0 => {}
                2 if choices.chance(1, 2) => {}
                _ if discards => self.apply(Change::Discard(part)),
                _ => self.apply(Change::Provision(part)),
            }
        }
    }
}

/// Blocks of a discard that land together.
const PART: u64 = 256;

struct Disk {
    seen: Medium,
    safe: Medium,
    unflushed: Vec<UnflushedChange>,
    length: u64,
    max: u64,
    durable: bool,
    hold: bool,
    hold_reads: bool,
}

enum Work {
    Read {
        addr: u64,
        into: Vec<FrameMut>,
        done: Completer<Vec<FrameMut>>,
    },
    Write {
        addr: u64,
        blocks: Vec<Block>,
        done: Completer<()>,
    },
    Flush {
        upto: u64,
        done: Completer<()>,
    },
}

/// A held operation, as the test sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldOperation {
    /// Number for [`World::release`], unique in its world.
    pub id: u64,
    /// The disk that it was submitted to.
    pub disk: DiskId,
    /// The kind of the operation.
    pub kind: IoKind,
}

struct State {
    disks: Vec<Disk>,
    held: Vec<(HeldOperation, Work)>,
    faults: Vec<Fault>,
    counts: Counts,
    sequence: u64,
    next_held: u64,
    crash_at: Option<u64>,
    off: bool,
    closing: bool,
    /// Blocks that the host can still provision.
    host_free: u64,
    /// Writes in flight when the power failed: they may be torn.
    in_flight: Vec<(DiskId, Change)>,
    /// A fault of the engine.
    wrong: Option<String>,
    watch: Option<Watch>,
}

/// Number of written blocks (128 MiB) above which a check takes long and is made only once in
/// [`SELDOM`] times.
const MANY: usize = 32_768;
const SELDOM: u64 = 8;

/// Checks the disks when some blocks of one have become durable.
pub(crate) type DurabilityCheck = Arc<dyn Fn(&Arc<World>) + Send + Sync>;

struct Watch {
    disk: DiskId,
    blocks: Vec<u64>,
    look: DurabilityCheck,
    /// True if one of the blocks was written and not checked yet.
    written: bool,
    /// Number of flushes after which a check was due.
    times: u64,
}

/// The disks of a simulated machine.
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// One disk of a [`World`], as the store sees it.
pub struct SimDevice {
    world: Arc<World>,
    id: DiskId,
}

fn failure(kind: IoKind, addr: u64, count: u64, why: &str) -> IoError {
    IoError::new(
        kind,
        BlockAddr(addr),
        count,
        io::Error::other(why.to_owned()),
    )
}

impl World {
    /// A machine with these disks, all zeros.
    #[must_use]
    pub fn new(disks: &[DiskOptions]) -> Arc<World> {
        let disks = disks
            .iter()
            .map(|options| Disk {
                seen: Medium::default(),
                safe: Medium::default(),
                unflushed: Vec::new(),
                length: options.length,
                max: options.max.max(options.length),
                durable: options.durable,
                hold: false,
                hold_reads: false,
            })
            .collect();
        World::with(disks, u64::MAX)
    }

    fn with(disks: Vec<Disk>, host_free: u64) -> Arc<World> {
        Arc::new(World {
            state: Mutex::new(State {
                disks,
                held: Vec::new(),
                faults: Vec::new(),
                counts: Counts::default(),
                sequence: 0,
                next_held: 0,
                crash_at: None,
                off: false,
                closing: false,
                host_free,
                in_flight: Vec::new(),
                wrong: None,
                watch: None,
            }),
            changed: Condvar::new(),
        })
    }

    /// The disk as a device.
    #[must_use]
    pub fn device(self: &Arc<Self>, id: DiskId) -> Arc<SimDevice> {
        Arc::new(SimDevice {
            world: Arc::clone(self),
            id,
        })
    }

    /// The counters since the world was made.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Cuts the power at the submission of event number `event` (see [`Counts::events`]): that
    /// write is in flight.
    pub fn crash_at(&self, event: u64) {
        self.state.lock().crash_at = Some(event);
    }

    /// Cuts the power now.
    pub fn crash(&self) {
        self.power_off(&mut self.state.lock());
    }

    /// Returns true if the power is off.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.state.lock().off
    }

    /// Adds a failure to those already injected.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes every injected failure.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// Lets the host provision only `blocks` more.
    pub fn set_host_free(&self, blocks: u64) {
        self.state.lock().host_free = blocks;
    }

    /// Calls `look` with a copy of the disks whenever one of these blocks was written and its disk
    /// is flushed, until a block is damaged or a call fails by injection.
    pub(crate) fn watch(&self, disk: DiskId, blocks: Vec<u64>, look: DurabilityCheck) {
        self.state.lock().watch = Some(Watch {
            disk,
            blocks,
            look,
            written: false,
            times: 0,
        });
    }

    /// Returns the blocks and the check that [`World::watch`] has set, while it is in force.
    pub(crate) fn watched(&self) -> Option<(Vec<u64>, DurabilityCheck)> {
        let state = self.state.lock();
        let watch = state.watch.as_ref()?;
        Some((watch.blocks.clone(), Arc::clone(&watch.look)))
    }

    /// Returns the check that is due after a flush of this disk, if any.
    fn due(&self, disk: DiskId) -> Option<DurabilityCheck> {
        let state = &mut *self.state.lock();
        let watch = state.watch.as_mut().filter(|w| w.disk == disk)?;
        if state.off || !std::mem::take(&mut watch.written) {
            return None;
        }
        watch.times += 1;
        let written = state.disks.get(disk.0)?.seen.image.len();
        let turn = watch.times.is_multiple_of(SELDOM);
        (written < MANY || turn).then(|| Arc::clone(&watch.look))
    }

    /// Changes a block at rest, as rot or a misdirected write would.
    pub fn damage(&self, disk: DiskId, block: u64, with: impl FnOnce(&mut [u8; BLOCK_SIZE])) {
        let mut state = self.state.lock();
        state.watch = None;
        let disk = &mut state.disks[disk.0];
        let mut content = disk.seen.image.get(&block).map_or([0; BLOCK_SIZE], |b| **b);
        with(&mut content);
        let content = Arc::new(content);
        disk.seen.image.insert(block, Arc::clone(&content));
        disk.safe.image.insert(block, content);
    }

    /// Returns the content that a read of the block would see.
    #[must_use]
    pub fn peek(&self, disk: DiskId, block: u64) -> [u8; BLOCK_SIZE] {
        let state = self.state.lock();
        state.disks[disk.0]
            .seen
            .image
            .get(&block)
            .map_or([0; BLOCK_SIZE], |b| **b)
    }

    /// Returns the numbers of the blocks that were ever written, ascending.
    #[must_use]
    pub fn written(&self, disk: DiskId) -> Vec<u64> {
        let mut list: Vec<u64> = self.state.lock().disks[disk.0]
            .seen
            .image
            .keys()
            .copied()
            .collect();
        list.sort_unstable();
        list
    }

    /// Number of blocks that were discarded and not provisioned again.
    #[must_use]
    pub fn holes(&self, disk: DiskId) -> u64 {
        self.state.lock().disks[disk.0].seen.holes.len() as u64
    }

    /// Makes writes and flushes on `disk` wait until they are released; with `false`, they complete
    /// at once again, and those already held stay held.
    pub fn hold(&self, disk: DiskId, on: bool) {
        self.state.lock().disks[disk.0].hold = on;
    }

    /// Does the same as [`World::hold`] for reads.
    pub fn hold_reads(&self, disk: DiskId, on: bool) {
        self.state.lock().disks[disk.0].hold_reads = on;
    }

    /// Returns the held operations, oldest first.
    #[must_use]
    pub fn held(&self) -> Vec<HeldOperation> {
        self.state
            .lock()
            .held
            .iter()
            .map(|(held, _)| *held)
            .collect()
    }

    /// Completes a held operation. Returns false if it is not held any more.
    pub fn release(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.held.iter().position(|(held, _)| held.id == id) else {
            return false;
        };
        let (held, work) = state.held.remove(at);
        let finish = state.perform(held.disk, work);
        drop(state);
        finish.run();
        self.changed.notify_all();
        true
    }

    /// Completes everything held on `disk`, oldest first, and holds nothing there any more.
    pub fn release_all(&self, disk: DiskId) {
        self.hold(disk, false);
        self.hold_reads(disk, false);
        while let Some(held) = self.held().into_iter().find(|held| held.disk == disk) {
            self.release(held.id);
        }
    }

    /// Blocks until `ready` says yes; it is asked again whenever an operation is submitted or
    /// completed, and at short intervals because it may depend on states that this world does not
    /// see.
    pub fn wait_until(&self, mut ready: impl FnMut(&[HeldOperation]) -> bool) {
        let mut state = self.state.lock();
        loop {
            let held: Vec<HeldOperation> = state.held.iter().map(|(held, _)| *held).collect();
            if parking_lot::MutexGuard::unlocked(&mut state, || ready(&held)) {
                return;
            }
            self.changed
                .wait_for(&mut state, std::time::Duration::from_micros(200));
        }
    }

    /// Starts a thread that completes held operations in random order until the guard is dropped.
    #[must_use]
    pub fn scramble(self: &Arc<Self>, choices: Choices) -> Scrambler {
        let world = Arc::clone(self);
        let thread = std::thread::spawn(move || {
            let mut state = world.state.lock();
            while !state.closing {
                if state.held.is_empty() {
                    world.changed.wait(&mut state);
                    continue;
                }
                // Let others queue up behind, so that there is an order to change.
                for _ in 0..choices.below(4) {
                    parking_lot::MutexGuard::unlocked(&mut state, std::thread::yield_now);
                }
                if state.held.is_empty() {
                    continue;
                }
                let at = choices.index(state.held.len());
                let (held, work) = state.held.swap_remove(at);
                let finish = state.perform(held.disk, work);
                parking_lot::MutexGuard::unlocked(&mut state, || finish.run());
            }
        });
        Scrambler {
            world: Arc::clone(self),
            thread: Some(thread),
        }
    }

    /// Starts the machine again with the content that its disks kept. Turns the power off first, if
    /// it is on.
    #[must_use]
    pub fn reboot(&self, choices: &Choices) -> Arc<World> {
        let mut state = self.state.lock();
        self.power_off(&mut state);
        state.expect_right();
        let mut in_flight = std::mem::take(&mut state.in_flight);
        let host_free = state.host_free;
        let mut disks = Vec::new();
        for (index, disk) in state.disks.iter_mut().enumerate() {
            let mut safe = std::mem::take(&mut disk.safe);
            let mut at_risk: Vec<Change> = std::mem::take(&mut disk.unflushed)
                .into_iter()
                .map(|unflushed| unflushed.change)
                .collect();
            let (here, elsewhere) = std::mem::take(&mut in_flight)
                .into_iter()
                .partition(|(id, _)| id.0 == index);
            in_flight = elsewhere;
            at_risk.extend(Vec::into_iter(here).map(|(_, change)| change));
            choices.shuffle(&mut at_risk);
            for change in &at_risk {
                safe.land(change, choices);
            }
            disk.seen = Medium::default();
            disks.push(Disk {
                seen: safe.clone(),
                safe,
                unflushed: Vec::new(),
                length: disk.length,
                max: disk.max,
                durable: disk.durable,
                hold: false,
                hold_reads: false,
            });
        }
        World::with(disks, host_free)
    }

    /// A copy of this machine as it would be after an orderly power-off: for trying a crash twice
    /// from one state.
    #[must_use]
    pub fn copy(&self) -> Arc<World> {
        let state = self.state.lock();
        state.expect_right();
        let disks = state
            .disks
            .iter()
            .map(|disk| Disk {
                seen: disk.seen.clone(),
                safe: disk.seen.clone(),
                unflushed: Vec::new(),
                length: disk.length,
                max: disk.max,
                durable: disk.durable,
                hold: false,
                hold_reads: false,
            })
            .collect();
        World::with(disks, state.host_free)
    }

    fn power_off(&self, state: &mut State) {
        if state.off {
            return;
        }
        state.off = true;
        let held = std::mem::take(&mut state.held);
        for (held, work) in held {
            if let Work::Write { addr, blocks, done } = work {
                let count = blocks.len() as u64;
                state
                    .in_flight
                    .push((held.disk, Change::Write(addr, blocks)));
                done.complete(Err(failure(IoKind::Write, addr, count, "power lost")));
            }
            // The completers of reads and flushes return an error when they are dropped.
        }
        self.changed.notify_all();
    }

    /// The write, flush or discard counts as an event, at which the power may fail.
    fn event(&self, state: &mut State) {
        state.counts.events += 1;
        if state.crash_at == Some(state.counts.events) {
            self.power_off(state);
        }
    }
}

/// Lands a write that was at risk, or a part of it; false: none of it.
fn land(safe: &mut Image, addr: u64, blocks: &[Block], choices: &Choices) -> bool {
    let fate = choices.below(4);
    match fate {
        0 => {}
        1 => {
            for (n, block) in (addr..).zip(blocks) {
                safe.insert(n, Arc::clone(block));
            }
        }
        _ => {
            // A prefix of its sectors (how most disks tear), or any subset.
            let sectors = blocks.len() * (BLOCK_SIZE / SECTOR);
            let cut = choices.index(sectors + 1);
            for (index, (n, block)) in (addr..).zip(blocks).enumerate() {
                let mut content = safe.get(&n).map_or([0; BLOCK_SIZE], |b| **b);
                for sector in 0..BLOCK_SIZE / SECTOR {
                    let lands = if fate == 2 {
                        index * (BLOCK_SIZE / SECTOR) + sector < cut
                    } else {
                        choices.chance(1, 2)
                    };
                    if lands {
                        let range = sector * SECTOR..(sector + 1) * SECTOR;
                        content[range.clone()].copy_from_slice(&block[range]);
                    }
                }
                safe.insert(n, Arc::new(content));
            }
        }
    }
    fate != 0
}

/// Ends the scrambler thread when dropped; everything held completes first.
pub struct Scrambler {
    world: Arc<World>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Scrambler {
    fn drop(&mut self) {
        let disks = {
            let mut state = self.world.state.lock();
            state.closing = true;
            self.world.changed.notify_all();
            state.disks.len()
        };
        if let Some(thread) = self.thread.take() {
            // A panic of the scrambler shows as a test that hangs or fails; nothing to add here.
            let _ = thread.join();
        }
        for disk in 0..disks {
            self.world.release_all(DiskId(disk));
        }
        self.world.state.lock().closing = false;
    }
}

/// A result that is handed out after the world's lock is released, because it may run a waiter.
enum Finish {
    Read(Completer<Vec<FrameMut>>, Vec<FrameMut>),
    Done(Completer<()>),
}

impl Finish {
    fn run(self) {
        match self {
            Finish::Read(done, frames) => done.complete(Ok(frames)),
            Finish::Done(done) => done.complete(Ok(())),
        }
    }
}

impl State {
    /// Panics if the engine made a fault: not where it made it, because its threads survive panics.
    fn expect_right(&self) {
        if let Some(wrong) = &self.wrong {
            panic!("{wrong}");
        }
    }

    /// Returns true if an injected fault hits this call, and counts the call against the faults.
    fn fails(&mut self, id: DiskId, kind: IoKind, addr: u64, count: u64) -> bool {
        let mut hit = false;
        for fault in &mut self.faults {
            let touches = kind == IoKind::Flush
                || fault.blocks.as_ref().is_none_or(|range| {
                    addr < range.end && range.start < addr.saturating_add(count)
                });
            if fault.disk != id || fault.on != kind || !touches || hit {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times != Some(0) {
                fault.times = fault.times.map(|times| times - 1);
                hit = true;
            }
        }
        self.counts.failed += u64::from(hit);
        if hit {
            self.watch = None;
        }
        hit
    }

    fn perform(&mut self, id: DiskId, work: Work) -> Finish {
        self.sequence += 1;
        let sequence = self.sequence;
        if let (Some(watch), Work::Write { addr, blocks, .. }) = (&mut self.watch, &work) {
            let range = *addr..addr + blocks.len() as u64;
            watch.written |= watch.disk == id && watch.blocks.iter().any(|b| range.contains(b));
        }
        let disk = &mut self.disks[id.0];
        match work {
            Work::Read {
                addr,
                mut into,
                done,
            } => {
                for (n, frame) in (addr..).zip(&mut into) {
                    match disk.seen.image.get(&n) {
                        Some(block) => frame.copy_from_slice(&block[..]),
                        None => frame.fill(0),
                    }
                }
                Finish::Read(done, into)
            }
            Work::Write { addr, blocks, done } => {
                if disk.durable {
                    disk.safe.apply(Change::Write(addr, blocks.clone()));
                }
                disk.seen.apply(Change::Write(addr, blocks.clone()));
                if !disk.durable {
                    disk.unflushed.push(UnflushedChange {
                        sequence,
                        change: Change::Write(addr, blocks),
                    });
                }
                Finish::Done(done)
            }
            Work::Flush { upto, done } => {
                let (covered, rest) = std::mem::take(&mut disk.unflushed)
                    .into_iter()
                    .partition::<Vec<_>, _>(|change| change.sequence <= upto);
                disk.unflushed = rest;
                for unflushed in covered {
                    disk.safe.apply(unflushed.change);
                }
                Finish::Done(done)
            }
        }
    }

    /// Discards the blocks of `range`; a crash may undo that until a flush or a provisioning.
    fn discard(&mut self, id: DiskId, range: Range<u64>) {
        self.sequence += 1;
        let sequence = self.sequence;
        let disk = &mut self.disks[id.0];
        let before = disk.seen.holes.len();
        disk.seen.apply(Change::Discard(range.clone()));
        let more = disk.seen.holes.len() - before;
        disk.unflushed.push(UnflushedChange {
            sequence,
            change: Change::Discard(range),
        });
        if self.host_free != u64::MAX {
            self.host_free += more as u64;
        }
    }

    /// Provisions the blocks of `range` durably, if the host has space for them.
    fn provision(&mut self, id: DiskId, range: Range<u64>) -> io::Result<()> {
        let disk = &mut self.disks[id.0];
        let more = disk.seen.holes.range(range.clone()).count() as u64;
        if more > self.host_free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.host_free != u64::MAX {
            self.host_free -= more;
        }
        let (discards, rest) = std::mem::take(&mut disk.unflushed)
            .into_iter()
            .partition::<Vec<_>, _>(|unflushed| matches!(unflushed.change, Change::Discard(_)));
        disk.unflushed = rest;
        for unflushed in discards {
            disk.safe.apply(unflushed.change);
        }
        disk.seen.apply(Change::Provision(range.clone()));
        disk.safe.apply(Change::Provision(range));
        Ok(())
    }

    fn check(&self, id: DiskId, kind: IoKind, addr: u64, count: u64) -> Result<(), IoError> {
        let length = self.disks[id.0].length;
        if self.off {
            return Err(failure(kind, addr, count, "power lost"));
        }
        if addr.checked_add(count).is_none_or(|end| end > length) {
            return Err(failure(kind, addr, count, "beyond the end of the device"));
        }
        Ok(())
    }
}

impl SimDevice {
    /// Performs the work, or holds it.
    fn submit(&self, mut state: parking_lot::MutexGuard<'_, State>, kind: IoKind, work: Work) {
        let disk = &state.disks[self.id.0];
        let hold = if kind == IoKind::Read {
            disk.hold_reads
        } else {
            disk.hold
        };
        if hold {
            state.next_held += 1;
            let held = HeldOperation {
                id: state.next_held,
                disk: self.id,
                kind,
            };
            state.held.push((held, work));
            drop(state);
        } else {
            let finish = state.perform(self.id, work);
            drop(state);
            finish.run();
        }
        self.world.changed.notify_all();
    }
}

impl Device for SimDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        let count = into.len() as u64;
        let mut state = self.world.state.lock();
        state.counts.reads += 1;
        if let Err(error) = state.check(self.id, IoKind::Read, addr.0, count) {
            return Io::ready(Err(error));
        }
        if state.fails(self.id, IoKind::Read, addr.0, count) {
            return Io::ready(Err(failure(IoKind::Read, addr.0, count, "injected")));
        }
        let (done, io) = Io::pair();
        let work = Work::Read {
            addr: addr.0,
            into,
            done,
        };
        self.submit(state, IoKind::Read, work);
        io
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        let count = from.len() as u64;
        let mut state = self.world.state.lock();
        if let Err(error) = state.check(self.id, IoKind::Write, addr.0, count) {
            return Io::ready(Err(error));
        }
        let blocks: Vec<Block> = from.iter().map(|frame| Arc::new(**frame)).collect();
        self.world.event(&mut state);
        let fails = state.fails(self.id, IoKind::Write, addr.0, count);
        if state.off || fails {
            // A failed write may have reached the medium all the same, or a part of it.
            state
                .in_flight
                .push((self.id, Change::Write(addr.0, blocks)));
            let why = if fails { "injected" } else { "power lost" };
            return Io::ready(Err(failure(IoKind::Write, addr.0, count, why)));
        }
        let range = addr.0..addr.0 + count;
        if let Some(hole) = state.disks[self.id.0].seen.holes.range(range).next() {
            state.wrong = Some(format!("a write to block {hole}, which has no space"));
            return Io::ready(Err(failure(IoKind::Write, addr.0, count, "no space")));
        }
        let (done, io) = Io::pair();
        let work = Work::Write {
            addr: addr.0,
            blocks,
            done,
        };
        self.submit(state, IoKind::Write, work);
        io
    }

    fn flush(&self) -> Io<()> {
        let mut state = self.world.state.lock();
        if let Err(error) = state.check(self.id, IoKind::Flush, 0, 0) {
            return Io::ready(Err(error));
        }
        self.world.event(&mut state);
        if state.off {
            return Io::ready(Err(failure(IoKind::Flush, 0, 0, "power lost")));
        }
        if state.fails(self.id, IoKind::Flush, 0, 0) {
            return Io::ready(Err(failure(IoKind::Flush, 0, 0, "injected")));
        }
        let upto = state.sequence;
        let (done, io) = Io::pair();
        self.submit(state, IoKind::Flush, Work::Flush { upto, done });
        if let Some(look) = self.world.due(self.id) {
            look(&self.world.copy());
        }
        io
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        let mut state = self.world.state.lock();
        if let Err(error) = state.check(self.id, IoKind::Discard, addr.0, count) {
            return Io::ready(Err(error));
        }
        self.world.event(&mut state);
        let range = addr.0..addr.0 + count;
        let fails = state.fails(self.id, IoKind::Discard, addr.0, count);
        if state.off || fails {
            state.in_flight.push((self.id, Change::Discard(range)));
            let why = if fails { "injected" } else { "power lost" };
            return Io::ready(Err(failure(IoKind::Discard, addr.0, count, why)));
        }
        state.discard(self.id, range);
        Io::ready(Ok(()))
    }

    fn discards(&self) -> Discards {
        match self.world.state.lock().disks[self.id.0].durable {
            true => Discards::Never,
            false => Discards::Deprovision,
        }
    }

    fn provision(&self, addr: BlockAddr, count: u64) -> io::Result<()> {
        let mut state = self.world.state.lock();
        let checked = state.check(self.id, IoKind::Write, addr.0, count);
        checked.map_err(io::Error::other)?;
        self.world.event(&mut state);
        let range = addr.0..addr.0 + count;
        if state.off {
            state.in_flight.push((self.id, Change::Provision(range)));
            return Err(io::Error::other("power lost"));
        }
        state.provision(self.id, range)
    }

    fn find_discarded(&self, found: &mut dyn FnMut(BlockAddr, u64)) -> io::Result<()> {
        let holes = self.world.state.lock().disks[self.id.0].seen.holes.clone();
        holes.into_iter().for_each(|n| found(BlockAddr(n), 1));
        Ok(())
    }

    fn length(&self) -> u64 {
        self.world.state.lock().disks[self.id.0].length
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        let mut state = self.world.state.lock();
        let free = state.host_free;
        let disk = &mut state.disks[self.id.0];
        if blocks <= disk.length {
            return Ok(disk.length);
        }
        let more = blocks - disk.length;
        if blocks > disk.max || more > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.length = blocks;
        if free != u64::MAX {
            state.host_free -= more;
        }
        Ok(blocks)
    }
}

//! A process that takes the aggregate and serves it: carries out what the rules say.

use std::io;
use std::time::Duration;

use weir_base::limits::rados::{
    BLOCKLIST_RETRY, LEASE, LEASE_WAIT, LOOK_PERIOD, SILENCE, TOUCH_PERIOD,
};
use weir_mirror::{ObservedOwner, Owner, OwnerAction, OwnerRole, OwnerTiming};
use weir_rados::{Holder, Objects, Step};
use weir_rados_store::{Epoch, LOCK, OWNER, Record, steps};

use super::image::{
    self, DIRECT, ENTRIES, Entry, GUARDED, Image, PLACES, RING, RawImage, WriteSet,
};
use super::{Bug, Event, TICK, World};
use crate::rados::Client;

const TIMING: OwnerTiming = OwnerTiming {
    lease: LEASE,
    wait: LEASE_WAIT,
    touch: TOUCH_PERIOD,
    silence: SILENCE,
    look: LOOK_PERIOD,
    retry: BLOCKLIST_RETRY,
    // So that it comes to pass in a story.
    expiry: Duration::from_secs(4),
};

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ESHUTDOWN: i32 = 108;
const ECANCELED: i32 = 125;

/// An operation of a process.
#[derive(Clone, Debug)]
pub enum Request {
    Look,
    Steps(Vec<Step>),
    Read,
    Lock(String),
    Holders,
    Blocklist(Vec<Holder>),
    Break(Vec<Holder>),
    ConfirmLock(Vec<Step>),
    Unlock(String),
}

/// The cluster's answer.
pub enum Reply {
    Done(io::Result<()>),
    Bytes(io::Result<Vec<u8>>),
    Found(io::Result<ObservedOwner>),
    Holders(io::Result<Vec<Holder>>),
}

impl Reply {
    /// Returns the number of the error; 0 if there is none.
    fn code(&self) -> i32 {
        match self {
            Reply::Done(Err(error)) | Reply::Bytes(Err(error)) => code(error),
            Reply::Found(Err(error)) | Reply::Holders(Err(error)) => code(error),
            _ => 0,
        }
    }
}

/// Purpose of an operation.
#[derive(Clone, Debug)]
pub enum Tag {
    Look,
    TakeEpoch,
    Seal(&'static str),
    Create,
    Lock,
    Holders,
    Blocklist(Vec<Holder>),
    Break(Vec<Holder>),
    ConfirmLock,
    Touch(Duration),
    Part(Part),
    Batch(Vec<Entry>),
    Half,
    Superblock,
    Direct(Entry),
    Release,
    Unlock,
}

/// A part of what is read at the replay.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    Superblock,
    Half(usize),
    Segment(usize),
    Direct(usize),
}

/// A checkpoint under way.
struct Checkpoint {
    to: image::Superblock,
    halves: usize,
    /// Places of direct data that it makes free.
    frees: Vec<u64>,
}

pub struct Process {
    pub machine: usize,
    pub client: Client,
    pub rules: Owner,
    pub epoch: Epoch,
    /// True once it knows that it has the epoch.
    taken: bool,
    pub dead: bool,
    /// True if its operations are lost with it.
    pub loses: bool,
    /// End of the time for which it is suspended.
    pub suspended: u64,
    /// True if its operations wait for the end of that.
    pub holds: bool,
    /// True if it ends once everything is complete.
    pub stopping: bool,
    /// True if it has found the aggregate free once.
    found_free: bool,
    /// Operations without an answer.
    pub outstanding: usize,
    pub image: Image,
    /// End of its lease, as the rules said it last.
    until: Duration,
    /// Guarded objects that are not sealed yet.
    unsealed: usize,
    touches: u64,
    reading: RawImage,
    /// Parts that are not read yet.
    unread: usize,
    /// True once the rules want the result.
    replaying: bool,
    /// Writes for the next batches.
    queue: Vec<Entry>,
    batch: bool,
    /// Writes that are durable and not reported yet.
    durable: Vec<u64>,
    /// Direct data under way.
    placing: Vec<u64>,
    checkpoint: Option<Checkpoint>,
    blocklisted: bool,
}

/// Returns a process as an attribute.
fn encode_process(process: usize) -> Vec<u8> {
    (process + 1).to_string().into_bytes()
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

impl World {
    pub fn start(&mut self, machine: usize) {
        self.machines[machine].starting = false;
        if self.machines[machine].process.is_some() {
            return;
        }
        self.clients += 1;
        let number = self.processes.len();
        self.processes.push(Process {
            machine,
            client: self.cluster.client(self.clients),
            rules: Owner::start(TIMING, Duration::ZERO),
            epoch: Epoch(0),
            taken: false,
            dead: false,
            loses: false,
            suspended: 0,
            holds: false,
            stopping: false,
            found_free: false,
            outstanding: 0,
            image: Image {
                superblock: None,
                writes: WriteSet::default(),
                next: 0,
                direct: Vec::new(),
            },
            until: Duration::ZERO,
            unsealed: 0,
            touches: 0,
            reading: RawImage::default(),
            unread: 0,
            replaying: false,
            queue: Vec::new(),
            batch: false,
            durable: Vec::new(),
            placing: Vec::new(),
            checkpoint: None,
            blocklisted: false,
        });
        let now = self.clock(number);
        let mut timing = TIMING;
        if !self.calm {
            // Nothing that is promised depends on it.
            let silence = self.choices.between(200, SILENCE.as_millis() as u64);
            timing.silence = Duration::from_millis(silence);
        }
        self.processes[number].rules = match self.choices.chance(1, 2) {
            true => Owner::standby(timing, now),
            false => Owner::start(timing, now),
        };
        self.machines[machine].process = Some(number);
        self.schedule_event(0, Event::Tick(number));
    }

    /// Ends a process; its machine starts another one.
    pub fn end(&mut self, process: usize, loses: bool) {
        let of = &mut self.processes[process];
        if std::mem::replace(&mut of.dead, true) {
            return;
        }
        of.loses = loses;
        let machine = of.machine;
        self.machines[machine].process = None;
        self.start_later(machine, 3_000_000);
    }

    pub fn tick(&mut self, process: usize) -> Result<(), String> {
        let now = self.clock(process);
        let actions = self.processes[process].rules.tick(now);
        self.act(process, actions)?;
        if self.processes[process].dead {
            return Ok(());
        }
        if self.processes[process].stopping {
            self.stop(process);
        } else {
            self.report_durable(process)?;
        }
        self.schedule_event(TICK, Event::Tick(process));
        Ok(())
    }

    /// Ends a process that stops, once nothing is under way.
    fn stop(&mut self, process: usize) {
        let now = self.clock(process);
        let of = &self.processes[process];
        let idle = of.outstanding == 0 && of.queue.is_empty() && of.checkpoint.is_none();
        if !idle {
            if of.outstanding == 0 {
                // The log may be full.
                self.begin_checkpoint(process);
            }
            return;
        }
        let early = self.has_bug(Bug::ReleasesEarly) && of.rules.role() == OwnerRole::Owning;
        match of.rules.may_release(now) || early {
            true => {
                let epoch = of.epoch;
                let heir = self.heir(process);
                let release = Request::Steps(steps::release(epoch, heir));
                self.send(process, OWNER, release, Tag::Release);
            }
            false => self.end(process, false),
        }
    }

    /// Returns the process for which one that stops reserves the aggregate, if it does.
    fn heir(&mut self, process: usize) -> Vec<u8> {
        let of = self.processes[process].machine;
        let machine = self.choices.index(self.machines.len());
        let heir = self.machines[machine].process;
        let heir = heir.filter(|_| machine != of && self.choices.chance(1, 2));
        heir.map_or_else(Vec::new, encode_process)
    }

    /// Returns true if a reply of this process may leave now.
    pub fn may_reply(&self, process: usize) -> bool {
        let now = self.clock(process);
        let of = &self.processes[process];
        if of.dead || of.stopping || of.rules.role() != OwnerRole::Owning {
            return false;
        }
        match self.bug {
            Some(Bug::NoLease) => now >= of.rules.replies_from(),
            Some(Bug::NoWait) => now < of.until,
            Some(Bug::KeepsFree) if of.found_free => now < of.until,
            _ => of.rules.may_reply(now),
        }
    }

    fn may_write_data(&self, process: usize) -> bool {
        let of = &self.processes[process];
        match self.bug {
            Some(Bug::WritesBeforeBlocklist) => true,
            Some(Bug::WritesBeforeLock) => of.blocklisted || of.rules.may_write_data(),
            _ => of.rules.may_write_data(),
        }
    }

    pub fn act(&mut self, process: usize, actions: Vec<OwnerAction>) -> Result<(), String> {
        for action in actions {
            match action {
                OwnerAction::Look => self.send(process, OWNER, Request::Look, Tag::Look),
                OwnerAction::TakeEpoch { before, epoch } => self.take(process, before, epoch),
                OwnerAction::Seal(_) => self.seal(process)?,
                OwnerAction::Lock(epoch) => {
                    let cookie = steps::cookie(Epoch(epoch));
                    self.send(process, OWNER, Request::Lock(cookie), Tag::Lock);
                }
                OwnerAction::Blocklist => self.send(process, OWNER, Request::Holders, Tag::Holders),
                // It is sent with what was put on the blocklist.
                OwnerAction::BreakLock => {}
                OwnerAction::ConfirmLock(_) if self.has_bug(Bug::NoMap) => {
                    let actions = self.processes[process].rules.lock_confirmed();
                    self.act(process, actions)?;
                }
                OwnerAction::ConfirmLock(epoch) => {
                    let steps = match self.has_bug(Bug::LateLock) {
                        true => Vec::new(),
                        false => steps::confirm(Epoch(epoch)),
                    };
                    self.send(
                        process,
                        OWNER,
                        Request::ConfirmLock(steps),
                        Tag::ConfirmLock,
                    );
                }
                OwnerAction::Replay => {
                    self.processes[process].replaying = true;
                    match self.has_bug(Bug::ReadsEarly) {
                        true => self.replay(process)?,
                        false => self.begin_reading(process),
                    }
                }
                OwnerAction::AllowChanges => self.counts.takeovers += 1,
                OwnerAction::AllowData => {}
                OwnerAction::Touch { sent, alone } => self.touch(process, sent, alone),
                OwnerAction::AllowReplies { until, .. } => self.processes[process].until = until,
                OwnerAction::Drop(_) => {
                    // Operations that its library has sent may arrive.
                    let loses = self.choices.chance(1, 2);
                    self.end(process, loses);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, process: usize, before: Option<u64>, epoch: u64) {
        let holder = encode_process(process);
        let mut steps = steps::take_epoch(before.map(Epoch), Epoch(epoch), holder.clone());
        let mut epoch = Epoch(epoch);
        if self.has_bug(Bug::TrustsRow) {
            epoch = Epoch(self.row + 1);
            steps = steps::take_epoch(None, epoch, holder);
            steps.remove(0);
        }
        self.row = self.row.max(epoch.0);
        self.processes[process].epoch = epoch;
        if before.is_none() {
            self.send(
                process,
                OWNER,
                Request::Steps(steps::make_record()),
                Tag::Create,
            );
        }
        self.send(process, OWNER, Request::Steps(steps), Tag::TakeEpoch);
    }

    fn touch(&mut self, process: usize, sent: Duration, alone: bool) {
        let of = &mut self.processes[process];
        of.touches += 1;
        let mut steps = steps::touch(of.epoch, of.touches, alone);
        if self.has_bug(Bug::UnguardedTouch) {
            steps.remove(0);
        }
        self.send(process, OWNER, Request::Steps(steps), Tag::Touch(sent));
    }

    fn seal(&mut self, process: usize) -> Result<(), String> {
        let count = self.sealed();
        let epoch = self.processes[process].epoch;
        self.processes[process].unsealed = count;
        for object in &GUARDED[..count] {
            let seal = Request::Steps(steps::seal(epoch));
            self.send(process, object, seal, Tag::Seal(object));
        }
        if self.has_bug(Bug::ReadsEarly) {
            self.begin_reading(process);
        }
        match count {
            0 => {
                let actions = self.processes[process].rules.sealed();
                self.act(process, actions)
            }
            _ => Ok(()),
        }
    }

    fn begin_reading(&mut self, process: usize) {
        self.read_part(process, image::SUPERBLOCK.to_owned(), Part::Superblock);
    }

    fn read_part(&mut self, process: usize, object: String, part: Part) {
        self.processes[process].unread += 1;
        self.send(process, &object, Request::Read, Tag::Part(part));
    }

    fn part_read(&mut self, process: usize, part: Part, bytes: Vec<u8>) -> Result<(), String> {
        let of = &mut self.processes[process];
        of.unread -= 1;
        match part {
            Part::Superblock => {
                of.reading.superblock = bytes;
                if let Some(root) = of.reading.superblock()? {
                    for half in 0..2 {
                        let object = image::data(root.place, half);
                        self.read_part(process, object, Part::Half(half as usize));
                    }
                }
                for segment in 0..image::SEGMENTS as usize {
                    self.read_part(process, format!("l.{segment}"), Part::Segment(segment));
                }
                for place in 0..DIRECT {
                    let part = Part::Direct(place as usize);
                    self.read_part(process, image::direct(place), part);
                }
            }
            Part::Half(at) => of.reading.halves[at] = bytes,
            Part::Segment(at) => of.reading.segments[at] = bytes,
            Part::Direct(at) => of.reading.direct[at] = bytes,
        }
        self.replay(process)
    }

    fn replay(&mut self, process: usize) -> Result<(), String> {
        let of = &mut self.processes[process];
        if of.unread > 0 || !of.replaying {
            return Ok(());
        }
        of.replaying = false;
        let epoch = of.epoch.0;
        // A later owner may have gone on, and this one does not know yet.
        let later = |other: &Process| other.taken && other.epoch.0 > epoch;
        let overtaken = self.processes.iter().any(later);
        let of = &mut self.processes[process];
        match of.reading.image() {
            Ok(image) => of.image = image,
            Err(_) if overtaken => return Ok(()),
            Err(why) => return Err(format!("owner {epoch}: {why}")),
        }
        if let Some(lost) = of.image.writes.lacks(&self.reported).filter(|_| !overtaken) {
            return Err(format!(
                "owner {epoch} does not find {lost}, which was reported"
            ));
        }
        let actions = of.rules.replayed();
        self.act(process, actions)
    }

    /// Returns the aggregate as it is on the objects.
    pub fn on_objects(&self) -> Result<Image, String> {
        let bytes = |object: String| self.cluster.bytes(&object).unwrap_or_default();
        let mut reading = RawImage {
            superblock: bytes(image::SUPERBLOCK.to_owned()),
            ..RawImage::default()
        };
        if let Some(root) = reading.superblock()? {
            reading.halves = [0, 1].map(|half| bytes(image::data(root.place, half)));
        }
        reading.segments = [0, 1, 2, 3].map(|segment| bytes(format!("l.{segment}")));
        reading.direct = [0, 1, 2, 3].map(|place| bytes(image::direct(place)));
        reading.image()
    }

    /// Carries out an operation that has arrived at the cluster.
    pub fn arrive(&mut self, process: usize, object: &str, request: Request) -> Reply {
        let reply = self.carry_out(process, object, request.clone());
        if self.has_bug(Bug::ReconnectsAfterShutdown) && reply.code() == ESHUTDOWN {
            self.clients += 1;
            self.processes[process].client = self.cluster.client(self.clients);
            return self.carry_out(process, object, request);
        }
        reply
    }

    fn carry_out(&self, process: usize, object: &str, request: Request) -> Reply {
        let of = &self.processes[process];
        let client = &of.client;
        match request {
            Request::Look => Reply::Found(self.look(process)),
            Request::Steps(steps) => Reply::Done(client.operate_wait(object, steps)),
            Request::Read => match client.read_wait(object, usize::MAX / 2) {
                Err(error) if code(&error) == ENOENT => Reply::Bytes(Ok(Vec::new())),
                read => Reply::Bytes(read),
            },
            Request::Lock(cookie) => Reply::Done(client.lock(object, LOCK, &cookie, "")),
            Request::Holders => Reply::Holders(client.holders(object, LOCK)),
            Request::Break(holders) => {
                let mut holders = holders.iter();
                let broken = holders.try_for_each(|h| client.break_lock(object, LOCK, h));
                Reply::Done(broken)
            }
            Request::ConfirmLock(steps) => {
                let confirmed = client.operate_wait(object, steps);
                Reply::Done(confirmed.and_then(|()| client.update_map()))
            }
            Request::Unlock(cookie) => Reply::Done(client.unlock(object, LOCK, &cookie)),
            Request::Blocklist(holders) => {
                let refused = self.refusing > self.now && !self.calm;
                self.cluster.allow_fencing(!refused);
                let without_map = self.cluster.client(1_000_000);
                let by: &Client = match self.bug {
                    Some(Bug::NoMap) => &without_map,
                    _ => client,
                };
                let mut holders = holders.iter();
                Reply::Done(match self.has_bug(Bug::NoBlocklist) {
                    true => Ok(()),
                    false => holders.try_for_each(|holder| by.fence(&holder.address)),
                })
            }
        }
    }

    fn look(&self, process: usize) -> io::Result<ObservedOwner> {
        let of = &self.processes[process];
        let record = Record::read(&of.client)?;
        let locks = of.client.holders(OWNER, LOCK)?;
        let locks: Vec<u64> = locks
            .iter()
            .map(|h| steps::cookie_epoch(&h.cookie))
            .collect();
        let holder = std::str::from_utf8(&record.holder).unwrap();
        let owner = holder.parse::<usize>().ok().map(|n| &self.processes[n - 1]);
        // Only a process of the same machine is known to have ended.
        let ended = owner.is_some_and(|owner| owner.machine == of.machine && owner.dead);
        Ok(ObservedOwner {
            epoch: record.epoch.map(|epoch| epoch.0),
            touch: record.touch,
            described: owner.is_some(),
            ended,
            alone: record.alone || self.has_bug(Bug::TrustsNewest),
            reserved: record.is_reserved(&encode_process(process)),
            locks,
        })
    }

    pub fn answered(&mut self, process: usize, tag: Tag, reply: Reply) -> Result<(), String> {
        let error = reply.code();
        let now = self.clock(process);
        let rules = &mut self.processes[process].rules;
        let actions = match (error, &tag) {
            (ESHUTDOWN, _) => rules.shut_out(),
            (ECANCELED, Tag::TakeEpoch) => rules.epoch_refused(now),
            (ECANCELED, _) => rules.guard_refused(),
            (EACCES | EPERM, Tag::Blocklist(_)) => rules.blocklist_refused(),
            (EBUSY, Tag::Lock) => rules.lock_held(),
            (ENOENT, Tag::Seal(object)) => {
                let object = *object;
                let create = Request::Steps(steps::create(self.processes[process].epoch));
                self.send(process, object, create, Tag::Seal(object));
                return Ok(());
            }
            (EEXIST, Tag::Seal(object)) => {
                // Another owner has created it at the same moment.
                let object = *object;
                let seal = Request::Steps(steps::seal(self.processes[process].epoch));
                self.send(process, object, seal, Tag::Seal(object));
                return Ok(());
            }
            (ENOENT, Tag::Unlock) | (0, _) => return self.done(process, now, tag, reply),
            (error, _) => return Err(format!("{tag:?} gets error {error}")),
        };
        self.act(process, actions)
    }

    fn done(
        &mut self,
        process: usize,
        now: Duration,
        tag: Tag,
        reply: Reply,
    ) -> Result<(), String> {
        let late = self.has_bug(Bug::LateTouch);
        let shuts_out_later = self.has_bug(Bug::LateLock);
        let of = &mut self.processes[process];
        let actions = match (tag, reply) {
            (Tag::Look, Reply::Found(Ok(found))) => {
                of.found_free |= !found.described;
                of.rules.found(now, &found)
            }
            (Tag::TakeEpoch, _) => {
                of.taken = true;
                of.rules.epoch_taken(now)
            }
            (Tag::Seal(_), _) => {
                of.unsealed -= 1;
                match of.unsealed {
                    0 => of.rules.sealed(),
                    _ => Vec::new(),
                }
            }
            (Tag::Lock, _) => of.rules.locked(),
            (Tag::Holders, Reply::Holders(Ok(holders))) => {
                let mut epochs = holders.iter().map(|h| steps::cookie_epoch(&h.cookie));
                if !shuts_out_later && !epochs.all(|epoch| of.rules.may_shut_out(epoch)) {
                    let actions = of.rules.guard_refused();
                    return self.act(process, actions);
                }
                self.send_fence(process, holders);
                Vec::new()
            }
            (Tag::Blocklist(holders), _) => {
                of.blocklisted = true;
                for action in of.rules.blocklisted() {
                    assert_eq!(action, OwnerAction::BreakLock);
                    let request = Request::Break(holders.clone());
                    self.send(process, OWNER, request, Tag::Break(Vec::new()));
                }
                Vec::new()
            }
            (Tag::Break(left), _) if !left.is_empty() => {
                let request = Request::Blocklist(left.clone());
                self.send(process, OWNER, request, Tag::Blocklist(left));
                Vec::new()
            }
            (Tag::Break(_), _) => of.rules.lock_broken(),
            (Tag::ConfirmLock, _) => of.rules.lock_confirmed(),
            (Tag::Touch(sent), _) => of.rules.touched(if late { now } else { sent }),
            (Tag::Part(part), Reply::Bytes(Ok(bytes))) => {
                return self.part_read(process, part, bytes);
            }
            (Tag::Release, _) => {
                let unlock = Request::Unlock(steps::cookie(of.epoch));
                self.send(process, OWNER, unlock, Tag::Unlock);
                Vec::new()
            }
            (Tag::Unlock, _) => {
                self.end(process, false);
                Vec::new()
            }
            (tag, _) => return self.written(process, tag),
        };
        self.act(process, actions)
    }

    fn send_fence(&mut self, process: usize, holders: Vec<Holder>) {
        match self.has_bug(Bug::BreaksLockFirst) {
            true => {
                let request = Request::Break(holders.clone());
                self.send(process, OWNER, request, Tag::Break(holders));
            }
            false => {
                let request = Request::Blocklist(holders.clone());
                self.send(process, OWNER, request, Tag::Blocklist(holders));
            }
        }
    }

    /// Notes that something of the aggregate is written.
    fn written(&mut self, process: usize, tag: Tag) -> Result<(), String> {
        let of = &mut self.processes[process];
        match tag {
            Tag::Batch(entries) => {
                of.batch = false;
                of.durable.extend(entries.iter().map(|entry| entry.write));
                self.send_batch(process);
                return self.report_durable(process);
            }
            Tag::Direct(entry) => {
                of.placing.retain(|place| Some(*place) != entry.direct);
                of.image.direct.extend(entry.direct);
                of.image.writes.insert(entry.write);
                of.queue.push(entry);
                self.send_batch(process);
            }
            Tag::Half => self.half_written(process),
            Tag::Superblock => {
                if let Some(done) = of.checkpoint.take() {
                    of.image.superblock = Some(done.to);
                    of.image.direct.retain(|place| !done.frees.contains(place));
                    self.counts.checkpoints += 1;
                    self.send_batch(process);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn report_durable(&mut self, process: usize) -> Result<(), String> {
        if !self.may_reply(process) {
            return Ok(());
        }
        let writes = std::mem::take(&mut self.processes[process].durable);
        self.report(process, &writes)
    }

    pub fn write(&mut self) -> Result<(), String> {
        let Some(process) = self.any_owner() else {
            return Ok(());
        };
        self.next += 1;
        let write = self.next;
        let used = |of: &Process, place: &u64| {
            of.image.direct.contains(place) || of.placing.contains(place)
        };
        let of = &self.processes[process];
        let places: Vec<u64> = (0..DIRECT).filter(|place| !used(of, place)).collect();
        let by_place = self.choices.chance(1, 4) && self.may_write_data(process);
        if by_place && !places.is_empty() {
            let place = *self.choices.pick(&places);
            let entry = Entry {
                write,
                direct: Some(place),
            };
            self.processes[process].placing.push(place);
            let bytes = image::direct_bytes(write);
            let steps = Request::Steps(vec![Step::Write { offset: 0, bytes }]);
            self.send(process, &image::direct(place), steps, Tag::Direct(entry));
            return Ok(());
        }
        let of = &mut self.processes[process];
        of.image.writes.insert(write);
        of.queue.push(Entry {
            write,
            direct: None,
        });
        self.send_batch(process);
        if self.has_bug(Bug::ReportsEarly) && self.may_reply(process) {
            return self.report(process, &[write]);
        }
        Ok(())
    }

    /// Writes the next batch, if none is under way and the log has room.
    fn send_batch(&mut self, process: usize) {
        let of = &mut self.processes[process];
        let start = of.image.superblock.map_or(0, |root| root.start);
        if of.batch || of.queue.is_empty() || of.image.next - start >= RING {
            return;
        }
        let count = of.queue.len().min(ENTRIES);
        let entries: Vec<Entry> = of.queue.drain(..count).collect();
        let (segment, offset, bytes) = image::batch(of.image.next, &entries);
        of.image.next += 1;
        of.batch = true;
        let write = Step::Write { offset, bytes };
        self.write_guarded(process, &segment, write, Tag::Batch(entries));
    }

    pub fn begin_checkpoint(&mut self, process: usize) {
        let of = &self.processes[process];
        if !self.may_write_data(process) || of.checkpoint.is_some() {
            return;
        }
        let before = of.image.superblock;
        let free = |place: &u64| before.is_none_or(|root| root.place != *place);
        let places: Vec<u64> = (0..PLACES).filter(free).collect();
        let to = image::Superblock {
            generation: before.map_or(1, |root| root.generation + 1),
            place: *self.choices.pick(&places),
            start: of.image.next,
        };
        let writes = of.image.writes.clone();
        // Entries that wait are logged behind its start, and refer to their places still.
        let waiting = of.queue.iter().filter_map(|entry| entry.direct);
        let waiting: Vec<u64> = waiting.collect();
        let direct = of.image.direct.iter().copied();
        let frees = direct.filter(|place| !waiting.contains(place)).collect();
        self.processes[process].checkpoint = Some(Checkpoint {
            to,
            halves: 2,
            frees,
        });
        for half in 0..2 {
            let bytes = image::half(to.generation, &writes, half);
            let steps = Request::Steps(vec![Step::Write { offset: 0, bytes }]);
            self.send(process, &image::data(to.place, half), steps, Tag::Half);
        }
    }

    fn half_written(&mut self, process: usize) {
        let of = &mut self.processes[process];
        let Some(checkpoint) = &mut of.checkpoint else {
            return;
        };
        checkpoint.halves -= 1;
        if checkpoint.halves == 0 {
            let bytes = checkpoint.to.bytes();
            let write = Step::Write { offset: 0, bytes };
            self.write_guarded(process, image::SUPERBLOCK, write, Tag::Superblock);
        }
    }

    /// Writes to a guarded object. One that is not sealed has no guard.
    fn write_guarded(&mut self, process: usize, object: &str, write: Step, tag: Tag) {
        let guard = steps::guard(self.processes[process].epoch);
        let sealed = &GUARDED[..self.sealed()];
        let steps = match sealed.contains(&object) {
            true => vec![guard, write],
            false => vec![write],
        };
        self.send(process, object, Request::Steps(steps), tag);
    }

    /// Returns the number of guarded objects that are sealed.
    fn sealed(&self) -> usize {
        match self.bug {
            Some(Bug::NoSeal) => 0,
            Some(Bug::SealHalf) => GUARDED.len() / 2,
            _ => GUARDED.len(),
        }
    }
}

//! Taking an aggregate over, and keeping it: carries out what the rules say.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_base::Clock;
use weir_base::limits::rados::{
    BLOCKLIST_RETRY, EXPIRY, LEASE, LEASE_WAIT, LOOK_PERIOD, SILENCE, SPACE_PERIOD, TOUCH_PERIOD,
};
use weir_mirror::owner::{self as rules, Loss, ObservedOwner, OwnerAction, OwnerTiming};
use weir_rados::Objects;
use weir_store::StoreError;

use crate::layout::guarded;
use crate::process::Process;
use crate::record::{Epoch, LOCK, OWNER, Record};
use crate::session::{Session, file_object, loss_text};
use crate::steps;

/// Times of the owners of aggregates on RADOS.
const TIMING: OwnerTiming = OwnerTiming {
    lease: LEASE,
    wait: LEASE_WAIT,
    touch: TOUCH_PERIOD,
    silence: SILENCE,
    look: LOOK_PERIOD,
    retry: BLOCKLIST_RETRY,
    expiry: EXPIRY,
};

/// Waits for so long. A test's may only move its clock.
pub type Patience<'a> = dyn Fn(Duration) + 'a;

/// An aggregate's objects and who asks for them.
pub struct Claim<'a> {
    /// Name of the aggregate for messages: `rados:POOL/ID`.
    pub name: &'a str,
    /// The objects.
    pub objects: &'a Arc<dyn Objects>,
    /// This process.
    pub process: &'a Process,
    /// Files that are kept as objects.
    pub files: &'a [&'a str],
    /// Returns the number of the log's segments.
    pub segments: &'a dyn Fn(&Record) -> u64,
    pub clock: &'a Arc<dyn Clock>,
    pub patience: &'a Patience<'a>,
    /// Given if this process waits while another one owns the aggregate.
    pub waiting: Option<&'a StandbyObserver<'a>>,
}

/// State of an aggregate that a standby waits for.
#[derive(Clone, Debug, Default)]
pub struct OwnerState {
    /// Process that owns the aggregate, or owned it last; `None` if that ended properly.
    pub owner: Option<Process>,
    /// The owner's epoch; `None` if the aggregate does not exist.
    pub epoch: Option<u64>,
    /// Error of the newest look; the rest is from the one before.
    pub fault: Option<String>,
}

/// Receives what a standby has seen, after each look. Returns false to end the wait.
pub type StandbyObserver<'a> = dyn Fn(&OwnerState) -> bool + 'a;

/// Ownership of an aggregate. Keeps touching it until it is dropped, which gives the aggregate up.
pub struct Ownership {
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    /// Ends the threads when dropped.
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) fn refuse(name: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Format(format!("{name}: {why}").into())
}

impl Ownership {
    /// Takes the aggregate over: waits until its owner is silent, takes the next epoch, and sets it
    /// in all guarded objects. A standby waits for as long as the owner touches the aggregate.
    /// Blocks, for seconds if there was an owner. Returns the record that was found.
    ///
    /// Shutting earlier owners' clients out goes on meanwhile; writes of data wait for it, and if
    /// the cluster refuses it, the aggregate [is lost](Session::on_loss).
    ///
    /// # Errors
    /// [`StoreError::Format`] if another server owns the aggregate and touches it, or takes it over
    /// at the same time, and this is no standby; if the wait was ended; or with the cluster's
    /// reason.
    pub(crate) fn open(claim: &Claim<'_>) -> Result<(Ownership, Record), StoreError> {
        let Claim { name, clock, .. } = *claim;
        let failed = |what: &str, error: io::Error| refuse(name, format!("cannot {what}: {error}"));
        let (owner, record, epoch, begun) = claim.acquire()?;
        let objects = Arc::clone(claim.objects);
        let session = Arc::new(Session::new(name, objects, epoch, Arc::clone(clock), owner));
        let process = claim.process.to_string();
        let mut touches = Touches::default();
        let mut pending = Vec::new();
        for action in begun {
            match action {
                OwnerAction::Touch { sent, alone } => touches.touch(&session, sent, alone),
                OwnerAction::Lock(_) => pending = lock_step(&session, &process, action),
                _ => {}
            }
        }
        let mut ownership = Ownership {
            session: Arc::clone(&session),
            clock: Arc::clone(clock),
            stop: Vec::new(),
            threads: Vec::new(),
        };
        let started = ownership.start(process, touches, pending);
        started.map_err(|e| failed("start a thread", e))?;
        if let Err(error) = claim.seal(epoch, (claim.segments)(&record)) {
            let error = session.judge(error, true);
            return Err(match session.loss() {
                Some(loss) => refuse(name, loss_text(loss)),
                None => failed("set the epoch", error),
            });
        }
        session.advance(|owner, _| owner.sealed());
        match claim.objects.space() {
            Ok(space) => session.note_space(space),
            Err(error) => tracing::warn!("{name}: cannot tell how full the pool is: {error}"),
        }
        tracing::info!("{name}: owner {} since now", epoch.0);
        Ok((ownership, record))
    }

    /// Returns the right that the devices use.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Notes that everything that earlier owners acknowledged has been read, and waits until no
    /// reply of theirs can leave any more. Nothing may be answered before.
    pub fn finish_takeover(&self, patience: &Patience<'_>) {
        self.session.advance(|owner, _| owner.replayed());
        let from = self.session.replies_from();
        // Saturates: it may be over.
        let left = from.saturating_sub(self.clock.monotonic());
        if !left.is_zero() {
            patience(left);
        }
    }

    /// Starts the threads that keep the aggregate. `pending`: steps to the lock that are due.
    fn start(
        &mut self,
        process: String,
        touches: Touches,
        pending: Vec<OwnerAction>,
    ) -> io::Result<()> {
        let (fence, fences) = channel();
        for action in pending {
            // Cannot fail: the receiver is below.
            let _ = fence.send(action);
        }
        let session = Arc::clone(&self.session);
        let shutting = move || shut_out(&session, &process, &fences);
        self.spawn("rados-fence", shutting)?;
        let (stop, stopped) = channel();
        self.stop.push(stop);
        let session = Arc::clone(&self.session);
        let touching = move || keep(&session, touches, &stopped, &fence);
        self.spawn("rados-touch", touching)?;
        let (stop, stopped) = channel();
        self.stop.push(stop);
        let session = Arc::clone(&self.session);
        self.spawn("rados-space", move || watch_space(&session, &stopped))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into());
        self.threads.push(thread.spawn(run)?);
        Ok(())
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            // It has reported its panic.
            let _ = thread.join();
        }
        let session = &self.session;
        if session.may_release() {
            // Everything is complete: the next owner need not wait, nor shut this client out.
            let epoch = session.epoch();
            let release = steps::release(epoch, session.heir());
            let freed = session.objects().operate_wait(OWNER, release);
            let unlock = |()| {
                let cookie = steps::cookie(epoch);
                session.objects().unlock(OWNER, LOCK, &cookie)
            };
            if let Err(error) = freed.and_then(unlock) {
                tracing::warn!("cannot release the lock of the aggregate: {error}");
            }
        }
        session.close();
    }
}

pub(crate) fn stopped_after(stopped: &Receiver<()>, period: Duration) -> bool {
    !matches!(stopped.recv_timeout(period), Err(RecvTimeoutError::Timeout))
}

/// Counts the touches of an owner.
#[derive(Default)]
struct Touches(u64);

impl Touches {
    /// Touches the aggregate; the lease counts from `sent`.
    fn touch(&mut self, session: &Session, sent: Duration, alone: bool) {
        self.0 += 1;
        let touch = steps::touch(session.epoch(), self.0, alone);
        match session.operate(OWNER, touch) {
            Ok(()) => drop(session.advance(|owner, _| owner.touched(sent))),
            // It has been reported.
            Err(_) if session.is_lost() => {}
            Err(error) => tracing::warn!("cannot renew the lease of the aggregate: {error}"),
        }
    }
}

/// Renews the lease until `stopped`, or the aggregate is lost. Passes steps to the lock on to the
/// thread that may block in them.
fn keep(
    session: &Session,
    mut touches: Touches,
    stopped: &Receiver<()>,
    fence: &Sender<OwnerAction>,
) {
    while !stopped_after(stopped, TOUCH_PERIOD) && !session.is_lost() {
        for action in session.advance(|owner, now| owner.tick(now)) {
            match action {
                OwnerAction::Touch { sent, alone } => touches.touch(session, sent, alone),
                // Fails if the thread has ended, as it does once the lock is confirmed.
                OwnerAction::Blocklist | OwnerAction::ConfirmLock(_) => {
                    let _ = fence.send(action);
                }
                _ => {}
            }
        }
    }
}

/// Puts each holder of the lock on the blocklist, then takes the lock, and confirms it.
fn shut_out(session: &Session, process: &str, asked: &Receiver<OwnerAction>) {
    while let Ok(action) = asked.recv() {
        let mut next = vec![action];
        while let Some(action) = next.pop() {
            next = lock_step(session, process, action);
        }
        if session.is_lost() || session.may_write_data() {
            return;
        }
    }
}

/// Carries out a step to the lock, and returns the next one.
fn lock_step(session: &Session, process: &str, action: OwnerAction) -> Vec<OwnerAction> {
    let objects = session.objects();
    let done = match action {
        OwnerAction::Lock(_) => {
            let cookie = steps::cookie(session.epoch());
            match objects.lock(OWNER, LOCK, &cookie, process) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return session.advance(|owner, _| owner.lock_held());
                }
                locked => locked.map(|()| session.advance(|owner, _| owner.locked())),
            }
        }
        OwnerAction::Blocklist => session
            .blocklist_holders()
            .map(|()| session.advance(|owner, _| owner.blocklisted())),
        OwnerAction::BreakLock => session
            .break_locks()
            .map(|()| session.advance(|owner, _| owner.lock_broken())),
        OwnerAction::ConfirmLock(_) => session
            .operate(OWNER, steps::confirm(session.epoch()))
            .and_then(|()| objects.update_map())
            .map(|()| session.advance(|owner, _| owner.lock_confirmed())),
        _ => Ok(Vec::new()),
    };
    done.unwrap_or_else(|error| lock_failed(session, action, &error))
}

/// Notes that a step to the lock failed.
fn lock_failed(session: &Session, action: OwnerAction, error: &io::Error) -> Vec<OwnerAction> {
    if session.is_lost() {
        // It has been reported.
        return Vec::new();
    }
    if error.raw_os_error() == Some(libc::ESHUTDOWN) {
        return session.advance(|owner, _| owner.shut_out());
    }
    let step = match action {
        OwnerAction::ConfirmLock(_) => "get the cluster's newest map",
        _ if error.kind() == io::ErrorKind::PermissionDenied => {
            return session.advance(|owner, _| owner.blocklist_refused());
        }
        _ => "shut the previous owner of the aggregate out",
    };
    tracing::warn!("cannot {step}: {error}; checkpoints wait for that, retrying");
    session.advance(|owner, now| {
        owner.lock_failed(now);
        Vec::new()
    })
}

fn watch_space(session: &Session, stopped: &Receiver<()>) {
    let mut known = true;
    while !stopped_after(stopped, SPACE_PERIOD) {
        match session.objects().space() {
            Ok(space) => {
                session.note_space(space);
                known = true;
            }
            // The last figure counts on.
            Err(error) if known => {
                tracing::warn!("cannot tell how full the pool is: {error}");
                known = false;
            }
            Err(_) => {}
        }
    }
}

impl Claim<'_> {
    fn failed(&self, what: &str, error: io::Error) -> StoreError {
        refuse(self.name, format!("cannot {what}: {error}"))
    }

    /// Waits until nobody owns the aggregate, or its owner is silent, and takes the next epoch.
    /// Returns the record that was found, the epoch, and the actions that are due.
    fn acquire(&self) -> Result<(rules::Owner, Record, Epoch, Vec<OwnerAction>), StoreError> {
        let now = self.clock.monotonic();
        let mut owner = match self.waiting {
            Some(_) => rules::Owner::standby(TIMING, now),
            None => rules::Owner::start(TIMING, now),
        };
        loop {
            let (record, epoch) = self.find(&mut owner)?;
            if let Some(begun) = self.take_epoch(&mut owner, &record, epoch)? {
                return Ok((owner, record, epoch, begun));
            }
        }
    }

    /// Waits until the epoch may be taken. Returns the record, and the epoch to take.
    fn find(&self, owner: &mut rules::Owner) -> Result<(Record, Epoch), StoreError> {
        let mut seen = None;
        loop {
            if owner.tick(self.clock.monotonic()) == [OwnerAction::Look] {
                let (record, found) = self.look_patiently(&mut seen)?;
                let process = Process::parse(&record.holder);
                match owner.found(self.clock.monotonic(), &found)[..] {
                    [OwnerAction::TakeEpoch { epoch, .. }] => {
                        let epoch = Epoch(epoch);
                        if !epoch.is_valid() {
                            return Err(refuse(self.name, loss_text(Loss::NoEpoch)));
                        }
                        if !found.locks.is_empty() {
                            tracing::warn!("{}: taking over from {process}", self.name);
                        }
                        return Ok((record, epoch));
                    }
                    [OwnerAction::Drop(Loss::Served)] => {
                        let why = format!("it is served by {process}: stop that server first");
                        return Err(refuse(self.name, why));
                    }
                    [OwnerAction::Drop(loss)] => {
                        return Err(refuse(self.name, loss_text(loss)));
                    }
                    _ => {}
                }
                let now = seen.insert(OwnerState {
                    owner: found.described.then_some(process),
                    epoch: found.epoch,
                    fault: None,
                });
                self.wait(now)?;
            }
            (self.patience)(LOOK_PERIOD);
        }
    }

    /// Reports what a standby has seen.
    fn wait(&self, seen: &OwnerState) -> Result<(), StoreError> {
        match self.waiting.is_none_or(|waiting| waiting(seen)) {
            true => Ok(()),
            false => Err(refuse(self.name, "this server does not stand by any more")),
        }
    }

    /// Reads the record and the lock. A standby that has seen the aggregate looks again after a
    /// failure: the cluster may be out of reach for a while.
    fn look_patiently(
        &self,
        seen: &mut Option<OwnerState>,
    ) -> Result<(Record, ObservedOwner), StoreError> {
        loop {
            let error = match self.look() {
                Ok(found) => return Ok(found),
                Err((what, error)) => (error.raw_os_error(), self.failed(what, error)),
            };
            let lasting = matches!(error.0, None | Some(libc::ESHUTDOWN | libc::EPERM));
            match seen {
                Some(seen) if self.waiting.is_some() && !lasting => {
                    if seen.fault.is_none() {
                        tracing::warn!("{}; retrying", error.1);
                    }
                    seen.fault = Some(error.1.to_string());
                    self.wait(seen)?;
                }
                _ => return Err(error.1),
            }
            (self.patience)(LOOK_PERIOD);
        }
    }

    /// Reads the record and the lock.
    ///
    /// # Errors
    /// The step that failed, and the cluster's error.
    fn look(&self) -> Result<(Record, ObservedOwner), (&'static str, io::Error)> {
        let record = Record::read(&**self.objects).map_err(|e| ("read the owner's record", e))?;
        let holders = match self.objects.holders(OWNER, LOCK) {
            // There is no record yet.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Vec::new(),
            holders => holders.map_err(|e| ("read who holds the lock", e))?,
        };
        let locks = holders.iter().map(|h| steps::cookie_epoch(&h.cookie));
        let found = ObservedOwner {
            epoch: record.epoch.map(|epoch| epoch.0),
            touch: record.touch,
            described: !record.holder.is_empty(),
            ended: Process::parse(&record.holder).has_ended(),
            alone: record.alone,
            reserved: record.is_reserved(&self.process.text()),
            locks: locks.collect(),
        };
        Ok((record, found))
    }

    /// Makes this process the owner: from now on touches of the previous one are refused. Returns
    /// `None` to a standby if another process came first.
    fn take_epoch(
        &self,
        owner: &mut rules::Owner,
        record: &Record,
        epoch: Epoch,
    ) -> Result<Option<Vec<OwnerAction>>, StoreError> {
        if record.epoch.is_none() {
            // A comparison needs an object.
            let made = self.objects.operate_wait(OWNER, steps::make_record());
            made.map_err(|e| self.failed("become the owner", e))?;
        }
        let steps = steps::take_epoch(record.epoch, epoch, self.process.text());
        match self.objects.operate_wait(OWNER, steps) {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                match owner.epoch_refused(self.clock.monotonic())[..] {
                    [OwnerAction::Drop(loss)] => Err(refuse(self.name, loss_text(loss))),
                    _ => Ok(None),
                }
            }
            taken => {
                taken.map_err(|e| self.failed("become the owner", e))?;
                Ok(Some(owner.epoch_taken(self.clock.monotonic())))
            }
        }
    }

    /// Sets the epoch in all other guarded objects, which are created if they are missing.
    fn seal(&self, epoch: Epoch, segments: u64) -> io::Result<()> {
        let mut names = guarded(segments);
        names.extend(self.files.iter().map(|name| file_object(name)));
        while !names.is_empty() {
            let failed = |results: Vec<(String, io::Result<()>)>, code| {
                let left = results.into_iter().filter_map(|(name, done)| match done {
                    Err(error) if error.raw_os_error() == Some(code) => Some(Ok(name)),
                    Err(error) => Some(Err(error)),
                    Ok(()) => None,
                });
                left.collect::<io::Result<Vec<String>>>()
            };
            let sealed = self.operate_all(names, || steps::seal(epoch))?;
            let missing = failed(sealed, libc::ENOENT)?;
            let created = self.operate_all(missing, || steps::create(epoch))?;
            // Another owner may have created them at the same moment.
            names = failed(created, libc::EEXIST)?;
        }
        Ok(())
    }

    /// Carries out an operation on each object, all at once. Returns when all are complete: nothing
    /// may be read before all guards are in force.
    fn operate_all(
        &self,
        names: Vec<String>,
        steps: impl Fn() -> Vec<weir_rados::Step>,
    ) -> io::Result<Vec<(String, io::Result<()>)>> {
        let (tell, told) = channel();
        for name in &names {
            let (tell, object) = (tell.clone(), name.clone());
            let done = Box::new(move |result| drop(tell.send((object, result))));
            self.objects.operate(name, steps(), done);
        }
        drop(tell);
        let results: Vec<_> = told.iter().collect();
        match results.len() == names.len() {
            true => Ok(results),
            false => Err(io::Error::other("an operation was lost")),
        }
    }
}

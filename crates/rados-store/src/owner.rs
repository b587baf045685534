//! Taking an aggregate over, and keeping it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_base::Clock;
use weir_base::limits::rados::{LEASE, LEASE_WAIT, SILENCE, SPACE_PERIOD, TOUCH_PERIOD};
use weir_rados::{Comparison, Holder, Objects, Step};
use weir_store::StoreError;

use crate::layout::guarded;
use crate::process::Process;
use crate::record::{EPOCH, Epoch, HOLDER, LOCK, OWNER, Record, TOUCH};
use crate::session::{Session, file_object};

/// Pause between two reads of another owner's touches.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

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
    /// Segments of the log: of the one that there is, else of a new one.
    pub segments: u64,
    pub clock: &'a Arc<dyn Clock>,
    pub patience: &'a Patience<'a>,
}

/// The owner of an aggregate. Keeps touching it until it is dropped, which gives the aggregate up.
pub struct Owner {
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
    cookie: String,
    /// Time from which no reply of the previous owner can leave any more.
    settled: Duration,
    /// Ends the threads when dropped.
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) fn refuse(name: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Format(format!("{name}: {why}").into())
}

/// Refusal of one of two servers that take an aggregate over at once.
const AT_ONCE: &str = "another server takes the aggregate over at this moment";

/// Returns the name under which an owner holds the lock.
fn cookie(epoch: Epoch) -> String {
    format!("epoch-{}", epoch.0)
}

/// Previous owner of an aggregate.
struct Previous {
    holders: Vec<Holder>,
    /// True if a process may still answer from its memory.
    may_answer: bool,
}

impl Owner {
    /// Takes the aggregate over: takes the lock, or breaks that of an owner that is silent; sets
    /// the next epoch in `owner` and all other guarded objects; shuts the previous owner's client
    /// out of the cluster. Blocks, for seconds if there was an owner.
    ///
    /// # Errors
    /// [`StoreError::Format`] if another server owns the aggregate and touches it, or takes it over
    /// at the same time; if this client may not shut others out; or with the cluster's reason.
    pub(crate) fn open(claim: &Claim<'_>, record: &Record) -> Result<Owner, StoreError> {
        let Claim { name, objects, .. } = *claim;
        let failed = |what: &str, error: io::Error| refuse(name, format!("cannot {what}: {error}"));
        let before = record.epoch.unwrap_or_default();
        let epoch = before.next();
        let epoch = epoch.ok_or_else(|| refuse(name, "no epoch is left"))?;
        let cookie = cookie(epoch);
        let previous = claim.previous(record, &cookie)?;
        claim.take_epoch(record.epoch, epoch)?;
        let settled = match previous.may_answer {
            true => claim.clock.monotonic() + LEASE_WAIT,
            false => Duration::ZERO,
        };
        let addresses: Vec<String> = previous.holders.iter().map(|h| h.address.clone()).collect();
        let theirs = Arc::clone(objects);
        // A commit of the monitors, for which the seal need not wait.
        let fencing = std::thread::spawn(move || {
            let mut addresses = addresses.iter();
            addresses.try_for_each(|address| theirs.fence(address))
        });
        let sealed = claim.seal(epoch);
        let fenced = fencing
            .join()
            .map_err(|_| refuse(name, "the fencing thread panicked"))?;
        sealed.map_err(|e| failed("set the epoch", e))?;
        fenced.map_err(|e| {
            let what =
                "shut the previous owner out (the Ceph user needs the right to `osd blocklist`)";
            failed(what, e)
        })?;
        // Only now: if this fails before, the next one finds the lock, and fences its holder.
        for holder in &previous.holders {
            let broken = objects.break_lock(OWNER, LOCK, holder);
            broken.map_err(|e| failed("break the lock of the previous owner", e))?;
        }
        if !previous.holders.is_empty() {
            claim.lock(&cookie)?.map_err(|_| refuse(name, AT_ONCE))?;
        }
        let session = Arc::new(Session::new(name, Arc::clone(objects), epoch));
        let space = objects.space();
        match space {
            Ok(space) => session.note_space(space),
            Err(error) => tracing::warn!("{name}: cannot tell how full the pool is: {error}"),
        }
        tracing::info!("{name}: owner {} since now", epoch.0);
        let mut owner = Owner {
            session,
            clock: Arc::clone(claim.clock),
            cookie,
            settled,
            stop: Vec::new(),
            threads: Vec::new(),
        };
        owner.start().map_err(|e| failed("start a thread", e))?;
        Ok(owner)
    }

    /// Returns the right that the devices use.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Waits until no reply of the previous owner can leave any more. Nothing may be answered
    /// before.
    pub fn settle(&self, patience: &Patience<'_>) {
        // Saturates: it may be over.
        let left = self.settled.saturating_sub(self.clock.monotonic());
        if !left.is_zero() {
            patience(left);
        }
    }

    /// Starts the threads that touch the aggregate and watch the pool's space.
    fn start(&mut self) -> io::Result<()> {
        let (stop, stopped) = channel();
        let (session, clock) = (Arc::clone(&self.session), Arc::clone(&self.clock));
        self.stop.push(stop);
        let touching = move || touch(&session, &*clock, &stopped);
        let thread = std::thread::Builder::new().name("rados-touch".into());
        self.threads.push(thread.spawn(touching)?);
        let (stop, stopped) = channel();
        let session = Arc::clone(&self.session);
        self.stop.push(stop);
        let watching = move || watch_space(&session, &stopped);
        let thread = std::thread::Builder::new().name("rados-space".into());
        self.threads.push(thread.spawn(watching)?);
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if !self.session.is_lost() {
            // Everything is complete: the next owner need not wait, nor shut this client out.
            let ended = Step::Set {
                attribute: HOLDER,
                value: Vec::new(),
            };
            let freed = self.session.operate(OWNER, vec![ended]);
            let objects = self.session.objects();
            let freed = freed.and_then(|()| objects.unlock(OWNER, LOCK, &self.cookie));
            if let Err(error) = freed {
                tracing::warn!("cannot release the lock of the aggregate: {error}");
            }
        }
    }
}

fn stopped_after(stopped: &Receiver<()>, period: Duration) -> bool {
    !matches!(stopped.recv_timeout(period), Err(RecvTimeoutError::Timeout))
}

/// Renews the lease until `stopped`, or the aggregate is lost.
fn touch(session: &Session, clock: &dyn Clock, stopped: &Receiver<()>) {
    let mut count = 0u64;
    loop {
        // The lease counts from before the touch was sent.
        let sent = clock.monotonic();
        count += 1;
        let touch = Step::Set {
            attribute: TOUCH,
            value: count.to_string().into_bytes(),
        };
        match session.operate(OWNER, vec![touch]) {
            Ok(()) => session.renew(sent + LEASE),
            Err(_) if session.is_lost() => return,
            Err(error) => tracing::warn!("cannot renew the lease of the aggregate: {error}"),
        }
        if stopped_after(stopped, TOUCH_PERIOD) {
            return;
        }
    }
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

    /// Takes the lock if it is free; the inner error means that it is held.
    fn lock(&self, cookie: &str) -> Result<io::Result<()>, StoreError> {
        let description = self.process.to_string();
        match self.objects.lock(OWNER, LOCK, cookie, &description) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Err(error)),
            other => other
                .map(Ok)
                .map_err(|e| self.failed("lock the aggregate", e)),
        }
    }

    /// Takes the lock, or finds its holders, who have not touched the aggregate for a while.
    fn previous(&self, record: &Record, ours: &str) -> Result<Previous, StoreError> {
        if self.lock(ours)?.is_ok() {
            // An owner that ends removes its description first. With one, a server that took over
            // died between breaking the previous owner's lock and taking its own.
            return Ok(Previous {
                holders: Vec::new(),
                may_answer: !record.holder.is_empty(),
            });
        }
        let holders = self.objects.holders(OWNER, LOCK);
        let holders = holders.map_err(|e| self.failed("find the owner", e))?;
        let process = Process::parse(&record.holder);
        // One that failed to take over may have replaced the description of the lock's holder.
        let described = record.epoch.map(cookie).unwrap_or_default();
        let ended = holders.iter().all(|h| h.cookie == described) && process.has_ended();
        if !ended {
            self.wait_for_silence(&process)?;
        }
        tracing::warn!("{}: taking over from {process}", self.name);
        Ok(Previous {
            holders,
            may_answer: !ended,
        })
    }

    /// # Errors
    /// The owner touches the aggregate.
    fn wait_for_silence(&self, process: &Process) -> Result<(), StoreError> {
        let read = || {
            let touched = self.objects.attribute(OWNER, TOUCH);
            touched.map_err(|e| self.failed("find out whether the owner lives", e))
        };
        let first = read()?;
        let begun = self.clock.monotonic();
        while self.clock.monotonic() < begun + SILENCE {
            (self.patience)(LOOK_PERIOD);
            if read()? != first {
                let why = format!("it is served by {process}: stop that server first");
                return Err(refuse(self.name, why));
            }
        }
        Ok(())
    }

    /// Makes this process the owner: from now on touches of the previous one are refused.
    fn take_epoch(&self, before: Option<Epoch>, epoch: Epoch) -> Result<(), StoreError> {
        let set = |attribute, value| Step::Set { attribute, value };
        let steps = vec![
            Step::Compare {
                attribute: EPOCH,
                comparison: Comparison::Equal,
                value: before.map_or_else(Vec::new, Epoch::text),
            },
            set(EPOCH, epoch.text()),
            set(HOLDER, self.process.text()),
        ];
        match self.objects.operate_wait(OWNER, steps) {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                Err(refuse(self.name, AT_ONCE))
            }
            other => other.map_err(|e| self.failed("become the owner", e)),
        }
    }

    /// Sets the epoch in all other guarded objects, which are created if they are missing.
    fn seal(&self, epoch: Epoch) -> io::Result<()> {
        let mut names = guarded(self.segments);
        names.extend(self.files.iter().map(|name| file_object(name)));
        let set = || Step::Set {
            attribute: EPOCH,
            value: epoch.text(),
        };
        let newer = Step::Compare {
            attribute: EPOCH,
            comparison: Comparison::GreaterOrEqual,
            value: epoch.text(),
        };
        let mut missing = Vec::new();
        for (name, sealed) in self.operate_all(names, || vec![newer.clone(), set()])? {
            match sealed {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => missing.push(name),
                sealed => sealed?,
            }
        }
        let created =
            self.operate_all(missing, || vec![Step::Create { exclusive: true }, set()])?;
        created.into_iter().try_for_each(|(_, created)| created)
    }

    /// Carries out an operation on each object, all at once. Returns when all are complete: nothing
    /// may be read before all guards are in force.
    fn operate_all(
        &self,
        names: Vec<String>,
        steps: impl Fn() -> Vec<Step>,
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

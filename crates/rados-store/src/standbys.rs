//! The standbys of an aggregate, as its owner and each other see them.
//!
//! Each standby writes an object of its own, one of [`STANDBYS_MAX`], and counts up in it. Clocks
//! of machines differ, so everyone judges by its own clock how long a count stands still. Nothing
//! that is promised depends on the list.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_base::Clock;
use weir_base::limits::rados::{STANDBY_PERIOD, STANDBY_SILENCE, STANDBYS_MAX};
use weir_rados::{Comparison, Objects, Step};

use crate::owner::stopped_after;
use crate::process::Process;

/// Attribute of a standby's object: an [`Entry`].
const ENTRY: &str = "standby";

/// A standby in its object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    process: Process,
    /// Begin of the wait in seconds of the Unix time.
    since: i64,
    /// Counts up.
    beat: u64,
}

/// A standby that lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standby {
    /// Its process.
    pub process: Process,
    /// Begin of its wait in seconds of the Unix time, by its own clock.
    pub since: i64,
    /// Time since the last change of its object was seen.
    pub silent: Duration,
}

/// An object of a standby as it was read last.
#[derive(Clone, Default)]
struct Slot {
    /// Contents of the attribute; empty if there is no standby.
    text: Vec<u8>,
    /// Time since which the contents are these; `None` before they were read.
    since: Option<Duration>,
    /// True if the contents have changed since they were read first: until then they may be what a
    /// process left that was killed.
    lives: bool,
}

impl Slot {
    fn read(&mut self, now: Duration, text: Vec<u8>) {
        if self.since.is_none() || self.text != text {
            self.lives = self.since.replace(now).is_some();
            self.text = text;
        }
    }

    fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since.unwrap_or(now))
    }

    fn entry(&self) -> Option<Entry> {
        serde_json::from_slice(&self.text).ok()
    }

    /// Returns true if no other standby has the object than `this`.
    fn is_free(&self, now: Duration, this: &Process) -> bool {
        let ended = |entry: Entry| entry.process == *this || entry.process.has_ended();
        let silent = self.silent(now) >= STANDBY_SILENCE;
        self.text.is_empty() || silent || self.entry().is_none_or(ended)
    }

    fn standby(&self, now: Duration) -> Option<Standby> {
        let entry = self.entry()?;
        let silent = self.silent(now);
        let lives = self.lives && silent < STANDBY_SILENCE && !entry.process.has_ended();
        lives.then_some(Standby {
            process: entry.process,
            since: entry.since,
            silent,
        })
    }
}

/// This process's own entry.
struct Own {
    entry: Entry,
    /// Number of its object, once it has one.
    slot: Option<usize>,
}

struct WorkerState {
    name: String,
    objects: Arc<dyn Objects>,
    clock: Arc<dyn Clock>,
    process: Process,
    slots: Mutex<Vec<Slot>>,
    /// `None` while this process is no standby.
    own: Mutex<Option<Own>>,
    /// True once a standby was seen.
    had: AtomicBool,
}

/// Watches the standbys of an aggregate until it is dropped, and is one of them if it has to be.
pub struct Standbys {
    shared: Arc<WorkerState>,
    watching: Option<(Sender<()>, JoinHandle<()>)>,
}

fn object(slot: usize) -> String {
    format!("s.{slot}")
}

fn set(before: &[u8], value: Vec<u8>) -> Vec<Step> {
    let compare = Step::Compare {
        attribute: ENTRY,
        comparison: Comparison::Equal,
        value: before.to_vec(),
    };
    let attribute = ENTRY;
    vec![compare, Step::Set { attribute, value }]
}

impl Standbys {
    /// Starts to watch the standbys of the aggregate `name`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(
        name: &str,
        objects: &Arc<dyn Objects>,
        clock: &Arc<dyn Clock>,
        process: &Process,
    ) -> io::Result<Standbys> {
        let shared = Arc::new(WorkerState {
            name: name.to_owned(),
            objects: Arc::clone(objects),
            clock: Arc::clone(clock),
            process: process.clone(),
            slots: Mutex::new(vec![Slot::default(); STANDBYS_MAX]),
            own: Mutex::default(),
            had: AtomicBool::new(false),
        });
        let (stop, stopped) = channel();
        let watched = Arc::clone(&shared);
        let watch = move || {
            let mut known = true;
            loop {
                match watched.round() {
                    Err(error) if known => {
                        tracing::warn!("{}: cannot list the standbys: {error}", watched.name);
                        known = false;
                    }
                    done => known = done.is_ok(),
                }
                if stopped_after(&stopped, STANDBY_PERIOD) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("rados-standby".into());
        Ok(Standbys {
            shared,
            watching: Some((stop, thread.spawn(watch)?)),
        })
    }

    /// Makes this process a standby, until [`Standbys::leave`].
    pub fn join(&self) {
        let entry = Entry {
            process: self.shared.process.clone(),
            since: self.shared.clock.current_time().secs,
            beat: 0,
        };
        *self.shared.own.lock() = Some(Own { entry, slot: None });
        self.shared.had.store(true, Ordering::Relaxed);
    }

    /// Returns the other standbys that live.
    #[must_use]
    pub fn others(&self) -> Vec<Standby> {
        let shared = &self.shared;
        let now = shared.clock.monotonic();
        let slots = shared.slots.lock();
        let all = slots.iter().filter_map(|slot| slot.standby(now));
        all.filter(|one| one.process != shared.process).collect()
    }

    /// Returns true if there was a standby at some time.
    #[must_use]
    pub fn were_there(&self) -> bool {
        self.shared.had.load(Ordering::Relaxed)
    }

    /// Ends the wait of this process: it is no standby any more.
    pub fn leave(&self) {
        if let Err(error) = self.shared.leave() {
            tracing::warn!("{}: cannot remove a standby: {error}", self.shared.name);
        }
    }
}

impl Drop for Standbys {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.watching.take() {
            drop(stop);
            // It has reported its panic.
            let _ = thread.join();
        }
        self.leave();
    }
}

impl WorkerState {
    /// Reads all objects, and counts up in this process's own.
    fn round(&self) -> io::Result<()> {
        for number in 0..STANDBYS_MAX {
            let text = self.objects.attribute(&object(number), ENTRY)?;
            let text = text.unwrap_or_default();
            let now = self.clock.monotonic();
            if let Some(slot) = self.slots.lock().get_mut(number) {
                slot.read(now, text);
                if slot
                    .entry()
                    .is_some_and(|entry| entry.process != self.process)
                {
                    self.had.store(true, Ordering::Relaxed);
                }
            }
        }
        let mut own = self.own.lock();
        match &mut *own {
            Some(own) => self.beat(own),
            None => Ok(()),
        }
    }

    /// Counts up in the own object, or takes one that no standby has.
    fn beat(&self, own: &mut Own) -> io::Result<()> {
        own.entry.beat += 1;
        let text = serde_json::to_vec(&own.entry)?;
        let now = self.clock.monotonic();
        let slots = self.slots.lock().clone();
        let mut free = (0..).zip(&slots).filter(|(number, slot)| {
            own.slot.is_none_or(|own| own == *number) && slot.is_free(now, &self.process)
        });
        let Some((number, slot)) = free.next() else {
            if own.slot.take().is_none() && own.entry.beat == 1 {
                tracing::warn!(
                    "{}: there are {STANDBYS_MAX} standbys; this one is not listed",
                    self.name
                );
            }
            return Ok(());
        };
        let object = object(number);
        if slot.text.is_empty() {
            // A comparison needs an object.
            let create = vec![Step::Create { exclusive: false }];
            self.objects.operate_wait(&object, create)?;
        }
        match self
            .objects
            .operate_wait(&object, set(&slot.text, text.clone()))
        {
            Ok(()) => {
                own.slot = Some(number);
                if let Some(slot) = self.slots.lock().get_mut(number) {
                    slot.read(now, text);
                }
                Ok(())
            }
            // Another one has taken it.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                own.slot = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn leave(&self) -> io::Result<()> {
        let Some(Own {
            slot: Some(number), ..
        }) = self.own.lock().take()
        else {
            return Ok(());
        };
        let text = self.slots.lock().get(number).map(|slot| slot.text.clone());
        let compare = Step::Compare {
            attribute: ENTRY,
            comparison: Comparison::Equal,
            value: text.unwrap_or_default(),
        };
        let removed = self
            .objects
            .operate_wait(&object(number), vec![compare, Step::Remove]);
        match removed {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::ENOENT)) => {
                Ok(())
            }
            removed => removed,
        }
    }
}

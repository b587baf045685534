//! The right to an aggregate, as its devices use it: the epoch, and its loss.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::BLOCK_SIZE;
use weir_base::limits::rados::{FILE_BYTES, FLOOR_MIN, FLOOR_SHARE};
use weir_rados::{Comparison, Done, Objects, PoolSpace, Step};

use crate::record::{EPOCH, Epoch, LENGTH, OWNER};

/// Attribute of a file's object: its length in bytes. Without it there is no file.
const BYTES: &str = "bytes";

/// Value of [`Session::free`] while the pool's space is unknown.
const UNKNOWN: u64 = u64::MAX;

type OnLoss = Box<dyn FnOnce(&str) + Send>;
type OnRenewal = Box<dyn Fn(Duration) + Send + Sync>;

#[derive(Default)]
struct Loss {
    reason: Option<String>,
    tell: Option<OnLoss>,
}

#[derive(Default)]
struct Renewal {
    /// End of the lease in the clock's time.
    until: Duration,
    tell: Option<OnRenewal>,
}

/// An owner's right to an aggregate, until another owner takes it.
pub struct Session {
    /// The pool, for messages.
    name: String,
    objects: Arc<dyn Objects>,
    epoch: Epoch,
    lost: AtomicBool,
    loss: Mutex<Loss>,
    renewal: Mutex<Renewal>,
    /// Blocks that the pool can still take above its floor.
    free: AtomicU64,
}

/// Error of every call after the right was lost.
fn shut_down() -> io::Error {
    io::Error::from_raw_os_error(libc::ESHUTDOWN)
}

impl Session {
    pub(crate) fn new(name: &str, objects: Arc<dyn Objects>, epoch: Epoch) -> Session {
        Session {
            name: name.to_owned(),
            objects,
            epoch,
            lost: AtomicBool::new(false),
            loss: Mutex::default(),
            renewal: Mutex::default(),
            free: AtomicU64::new(UNKNOWN),
        }
    }

    /// Calls `tell` once, when another owner has taken the aggregate or the cluster has shut this
    /// client out: nothing may be answered any more. Calls it at once if that is so already.
    pub fn on_loss(&self, tell: impl FnOnce(&str) + Send + 'static) {
        let mut loss = self.loss.lock();
        match loss.reason.clone() {
            Some(reason) => {
                drop(loss);
                tell(&reason);
            }
            None => loss.tell = Some(Box::new(tell)),
        }
    }

    /// Calls `renewed` with the end of the lease in the clock's time, now and whenever it moves.
    pub fn on_renewal(&self, renewed: impl Fn(Duration) + Send + Sync + 'static) {
        let mut renewal = self.renewal.lock();
        renewed(renewal.until);
        renewal.tell = Some(Box::new(renewed));
    }

    pub(crate) fn renew(&self, until: Duration) {
        let mut renewal = self.renewal.lock();
        renewal.until = until;
        if let Some(renewed) = &renewal.tell {
            renewed(until);
        }
    }

    /// Returns true once the right is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Refuses what is asked for after the right was lost.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.is_lost() {
            true => Err(shut_down()),
            false => Ok(()),
        }
    }

    fn lose(&self, reason: &str) {
        self.lost.store(true, Ordering::Release);
        let mut loss = self.loss.lock();
        if loss.reason.is_none() {
            loss.reason = Some(reason.to_owned());
            let tell = loss.tell.take();
            drop(loss);
            tracing::error!("{}: {reason}", self.name);
            if let Some(tell) = tell {
                tell(reason);
            }
        }
    }

    /// Notes an operation's error if it means that the right is lost, and names the cause of a full
    /// pool. `guarded`: the operation compared the epoch.
    pub(crate) fn judge(&self, error: io::Error, guarded: bool) -> io::Error {
        match error.raw_os_error() {
            Some(libc::ESHUTDOWN) => {
                self.lose(
                    "the cluster has shut this server out: another one took the aggregate over",
                );
                error
            }
            Some(libc::ECANCELED) if guarded => {
                self.lose("another server has taken the aggregate over");
                error
            }
            Some(libc::ENOSPC | libc::EDQUOT) => self.full(),
            _ => error,
        }
    }

    fn full(&self) -> io::Error {
        let why = format!(
            "the pool of {} is full (add space to it, or raise its quota)",
            self.name
        );
        io::Error::new(io::ErrorKind::StorageFull, why)
    }

    /// Returns the step that refuses an operation of an earlier owner.
    pub(crate) fn guard(&self) -> Step {
        Step::Compare {
            attribute: EPOCH,
            comparison: Comparison::Equal,
            value: self.epoch.text(),
        }
    }

    /// Carries a guarded operation out, and blocks until it is complete.
    pub(crate) fn operate(&self, object: &str, steps: Vec<Step>) -> io::Result<()> {
        self.check()?;
        let guarded = std::iter::once(self.guard()).chain(steps).collect();
        let done = self.objects.operate_wait(object, guarded);
        done.map_err(|error| self.judge(error, true))
    }

    pub(crate) fn objects(&self) -> &Arc<dyn Objects> {
        &self.objects
    }

    pub(crate) fn note_space(&self, space: PoolSpace) {
        // Saturates: the numbers are the cluster's.
        let floor = (space.used.saturating_add(space.available) / FLOOR_SHARE).max(FLOOR_MIN);
        let free = space.available.saturating_sub(floor) / BLOCK_SIZE as u64;
        self.free.store(free, Ordering::Release);
    }

    /// Returns the number of blocks that the pool can still take, if known.
    pub(crate) fn free(&self) -> Option<u64> {
        let free = self.free.load(Ordering::Acquire);
        (free != UNKNOWN).then_some(free)
    }

    /// Refuses `blocks` more blocks if the pool cannot take them.
    pub(crate) fn check_room(&self, blocks: u64) -> io::Result<()> {
        self.check()?;
        match self.free() {
            Some(free) if free < blocks => Err(self.full()),
            _ => Ok(()),
        }
    }

    /// Records the length of the device. Does not block.
    pub(crate) fn record_length(&self, blocks: u64, done: Done<()>) {
        let length = Step::Set {
            attribute: LENGTH,
            value: blocks.to_string().into_bytes(),
        };
        self.objects
            .operate(OWNER, vec![self.guard(), length], done);
    }

    /// Reads a file that is kept with the aggregate; `None` if there is none of this name.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.check()?;
        let object = file_object(name);
        let length = self.objects.attribute(&object, BYTES);
        let Some(length) = length.map_err(|e| self.judge(e, false))? else {
            return Ok(None);
        };
        let length = std::str::from_utf8(&length).ok();
        let length: Option<usize> = length.and_then(|text| text.parse().ok());
        let length = length.filter(|length| *length <= FILE_BYTES);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged"));
        let length = length.ok_or_else(damaged)?;
        let bytes = self.objects.read_wait(&object, length.max(1));
        let bytes = bytes.map_err(|error| self.judge(error, false))?;
        match bytes.len() == length {
            true => Ok(Some(bytes)),
            false => Err(damaged()),
        }
    }

    /// Replaces a file that is kept with the aggregate. Durable on return.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] above [`FILE_BYTES`]; those of the cluster.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > FILE_BYTES {
            let why = format!(
                "{name} has {} bytes, more than an object takes",
                bytes.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let length = Step::Set {
            attribute: BYTES,
            value: bytes.len().to_string().into_bytes(),
        };
        self.operate(
            &file_object(name),
            vec![Step::Replace(bytes.to_vec()), length],
        )
    }
}

/// Returns the name of a file's object.
pub fn file_object(name: &str) -> String {
    format!("f.{name}")
}

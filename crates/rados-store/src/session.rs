//! The right to an aggregate, as its devices use it: the epoch, its loss, and the time from which
//! on data may be written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::limits::rados::{FILE_BYTES, FLOOR_MIN, FLOOR_SHARE};
use weir_base::{BLOCK_SIZE, Clock};
use weir_mirror::{Loss, Owner, OwnerAction, OwnerRole};
use weir_rados::{Done, Holder, Objects, PoolSpace, Step};

use crate::process::Process;
use crate::record::{Epoch, LENGTH, LOCK, OWNER};
use crate::steps;

/// Attribute of a file's object: its length in bytes. Without it there is no file.
const BYTES: &str = "bytes";

/// Value of [`Session::free`] while the pool's space is unknown.
const UNKNOWN: u64 = u64::MAX;

type OnLoss = Box<dyn FnOnce(Loss, &str) + Send>;
type OnRenewal = Box<dyn Fn(Duration) + Send + Sync>;
/// A write of data that waits for the blocklist.
type DeferredWrite = Box<dyn FnOnce(io::Result<()>) + Send>;

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
    clock: Arc<dyn Clock>,
    rules: Mutex<Owner>,
    /// The cluster's holders of the lock that this owner has put on the blocklist.
    fenced: Mutex<Vec<Holder>>,
    lost: AtomicBool,
    on_loss: Mutex<Option<OnLoss>>,
    renewal: Mutex<Renewal>,
    /// True once data may be written.
    admits_data: AtomicBool,
    /// Writes of data that wait; `None` once they need not wait, or will not happen.
    deferred: Mutex<Option<Vec<DeferredWrite>>>,
    /// Blocks that the pool can still take above its floor.
    free: AtomicU64,
    /// Process for which this one ends; empty if it ends for none.
    heir: Mutex<Vec<u8>>,
}

/// Error of every call after the right was lost.
fn shut_down() -> io::Error {
    io::Error::from_raw_os_error(libc::ESHUTDOWN)
}

/// Returns the reason of a loss for messages.
pub(crate) fn loss_text(loss: Loss) -> &'static str {
    match loss {
        Loss::Served => "another server serves the aggregate",
        Loss::AtOnce => "another server takes the aggregate over at this moment",
        Loss::NoEpoch => "no epoch is left",
        Loss::Taken => "another server has taken the aggregate over",
        Loss::ShutOut => {
            "the cluster has shut this server out: another one took the aggregate over"
        }
        Loss::Expired => "the cluster has not answered this server for a minute",
        Loss::MayNotBlocklist => {
            "cannot shut the previous owner out (the Ceph user needs the right to `osd blocklist`)"
        }
    }
}

impl Session {
    pub(crate) fn new(
        name: &str,
        objects: Arc<dyn Objects>,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        owner: Owner,
    ) -> Session {
        Session {
            name: name.to_owned(),
            objects,
            epoch,
            clock,
            rules: Mutex::new(owner),
            fenced: Mutex::default(),
            lost: AtomicBool::new(false),
            on_loss: Mutex::default(),
            renewal: Mutex::default(),
            admits_data: AtomicBool::new(false),
            deferred: Mutex::new(Some(Vec::new())),
            free: AtomicU64::new(UNKNOWN),
            heir: Mutex::default(),
        }
    }

    /// Reserves the aggregate for `heir` once this process has given it up. Others wait for as long
    /// as they would for a silent owner.
    pub fn reserve_for(&self, heir: &Process) {
        *self.heir.lock() = heir.text();
    }

    pub(crate) fn heir(&self) -> Vec<u8> {
        self.heir.lock().clone()
    }

    /// Returns the owner's epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Hands an event to the rules, and carries out those of their actions that concern the
    /// session. Returns all.
    pub(crate) fn advance(
        &self,
        event: impl FnOnce(&mut Owner, Duration) -> Vec<OwnerAction>,
    ) -> Vec<OwnerAction> {
        let now = self.clock.monotonic();
        let actions = event(&mut self.rules.lock(), now);
        for action in &actions {
            match action {
                OwnerAction::AllowData => {
                    tracing::info!("{}: earlier owners are shut out", self.name);
                    self.admits_data.store(true, Ordering::Release);
                    self.end_deferred(|| Ok(()));
                }
                OwnerAction::AllowReplies { until, .. } => self.renew(*until),
                OwnerAction::Drop(loss) => self.lose(*loss),
                _ => {}
            }
        }
        actions
    }

    /// Calls `tell` once, when another owner has taken the aggregate or the cluster has shut this
    /// client out: nothing may be answered any more. Calls it at once if that is so already.
    pub fn on_loss(&self, tell: impl FnOnce(Loss, &str) + Send + 'static) {
        let mut on_loss = self.on_loss.lock();
        match self.loss() {
            Some(loss) => {
                drop(on_loss);
                tell(loss, loss_text(loss));
            }
            None => *on_loss = Some(Box::new(tell)),
        }
    }

    /// Calls `renewed` with the end of the lease in the clock's time, now and whenever it moves.
    pub fn on_renewal(&self, renewed: impl Fn(Duration) + Send + Sync + 'static) {
        let mut renewal = self.renewal.lock();
        renewed(renewal.until);
        renewal.tell = Some(Box::new(renewed));
    }

    fn renew(&self, until: Duration) {
        let mut renewal = self.renewal.lock();
        renewal.until = renewal.until.max(until);
        if let Some(renewed) = &renewal.tell {
            renewed(renewal.until);
        }
    }

    /// Returns true once the right is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns why the right is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.rules.lock().role() {
            OwnerRole::Dropped(loss) => Some(loss),
            _ => None,
        }
    }

    /// Returns the time from which on no earlier owner replies.
    pub(crate) fn replies_from(&self) -> Duration {
        self.rules.lock().replies_from()
    }

    /// Returns true if this owner, which has completed everything, may say so in the record.
    pub(crate) fn may_release(&self) -> bool {
        self.rules.lock().may_release(self.clock.monotonic())
    }

    /// Returns true once data blocks may be written.
    pub(crate) fn may_write_data(&self) -> bool {
        self.admits_data.load(Ordering::Acquire)
    }

    /// Calls `begin` once data blocks may be written: with an error if they never may.
    pub fn when_data_may_be_written(&self, begin: Box<dyn FnOnce(io::Result<()>) + Send>) {
        let mut deferred = self.deferred.lock();
        if let Some(waiting) = &mut *deferred {
            waiting.push(begin);
            return;
        }
        drop(deferred);
        begin(self.check());
    }

    fn end_deferred(&self, result: impl Fn() -> io::Result<()>) {
        let waiting = self.deferred.lock().take();
        for begin in waiting.into_iter().flatten() {
            begin(result());
        }
    }

    /// Ends what waits for the right to write data.
    pub(crate) fn close(&self) {
        self.end_deferred(|| Err(shut_down()));
    }

    /// Refuses what is asked for after the right was lost.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.is_lost() {
            true => Err(shut_down()),
            false => Ok(()),
        }
    }

    fn lose(&self, loss: Loss) {
        self.lost.store(true, Ordering::Release);
        tracing::error!("{}: {}", self.name, loss_text(loss));
        let tell = self.on_loss.lock().take();
        if let Some(tell) = tell {
            tell(loss, loss_text(loss));
        }
        self.close();
    }

    /// Notes an operation's error if it means that the right is lost, and names the cause of a full
    /// pool. `guarded`: the operation compared the epoch.
    pub(crate) fn judge(&self, error: io::Error, guarded: bool) -> io::Error {
        match error.raw_os_error() {
            Some(libc::ESHUTDOWN) => {
                self.advance(|owner, _| owner.shut_out());
                error
            }
            Some(libc::ECANCELED) if guarded => {
                self.advance(|owner, _| owner.guard_refused());
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
        steps::guard(self.epoch)
    }

    /// Carries an operation out that compares the epoch, and blocks until it is complete.
    pub(crate) fn operate(&self, object: &str, guarded: Vec<Step>) -> io::Result<()> {
        self.check()?;
        let done = self.objects.operate_wait(object, guarded);
        done.map_err(|error| self.judge(error, true))
    }

    /// Puts all holders of the lock on the blocklist. Blocks until the monitors have committed it.
    pub(crate) fn blocklist_holders(&self) -> io::Result<()> {
        let holders = self.objects.holders(OWNER, LOCK)?;
        let epochs = holders.iter().map(|h| steps::cookie_epoch(&h.cookie));
        let refused = {
            let owner = self.rules.lock();
            epochs.into_iter().any(|epoch| !owner.may_shut_out(epoch))
        };
        if refused {
            self.advance(|owner, _| owner.guard_refused());
            return Err(shut_down());
        }
        for holder in &holders {
            self.objects.fence(&holder.address)?;
        }
        *self.fenced.lock() = holders;
        Ok(())
    }

    /// Breaks the locks of those who were put on the blocklist.
    pub(crate) fn break_locks(&self) -> io::Result<()> {
        let fenced = std::mem::take(&mut *self.fenced.lock());
        let mut fenced = fenced.iter();
        fenced.try_for_each(|holder| self.objects.break_lock(OWNER, LOCK, holder))
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
        let read = read_file(&*self.objects, name);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => error,
            _ => self.judge(error, false),
        })
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
            vec![self.guard(), Step::Replace(bytes.to_vec()), length],
        )
    }
}

/// Reads a file that is kept with an aggregate, without owning that; `None` if there is none of
/// this name.
///
/// # Errors
/// Those of the cluster; [`io::ErrorKind::InvalidData`] if it is damaged.
pub fn read_file(objects: &dyn Objects, name: &str) -> io::Result<Option<Vec<u8>>> {
    let object = file_object(name);
    let Some(length) = objects.attribute(&object, BYTES)? else {
        return Ok(None);
    };
    let length = std::str::from_utf8(&length).ok();
    let length: Option<usize> = length.and_then(|text| text.parse().ok());
    let length = length.filter(|length| *length <= FILE_BYTES);
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged"));
    let length = length.ok_or_else(damaged)?;
    let bytes = objects.read_wait(&object, length.max(1))?;
    match bytes.len() == length {
        true => Ok(Some(bytes)),
        false => Err(damaged()),
    }
}

/// Returns the name of a file's object.
pub fn file_object(name: &str) -> String {
    format!("f.{name}")
}

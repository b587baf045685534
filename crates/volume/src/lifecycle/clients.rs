//! Records of the protocols' client state ([`crate::overlay::clients`]).

use std::sync::Arc;

use weir_base::Lsn;

use crate::checkpoint::checkpointer::Checkpointer;
use crate::format::catalog::AGGREGATE_TREE;
use crate::format::clients::MAX_CLIENT;
use crate::format::edit::Edits;
use crate::lifecycle::engine::Engine;
use crate::overlay::core::Core;
use crate::overlay::event::block_on;
use crate::types::{FsError, Stop};

/// The client records of an aggregate, for the protocols. May be cloned, and does not keep an
/// engine open.
#[derive(Clone)]
pub struct ClientRecords {
    core: Arc<Core>,
    cp: Arc<Checkpointer>,
}

impl ClientRecords {
    /// Stores a client record under a number, in place of an earlier one; `None` removes it. It is
    /// durable once the returned LSN is.
    ///
    /// # Errors
    /// `Invalid` for a record that is empty or longer than [`MAX_CLIENT`]; `NoSpace` if there are
    /// [`MAX_CLIENTS`](crate::MAX_CLIENTS) already; `ReadOnly`; a wait for room in the log.
    pub fn set(&self, number: u64, record: Option<&[u8]>) -> Result<Lsn, Stop> {
        if record.is_some_and(|record| !(1..=MAX_CLIENT).contains(&record.len())) {
            return Err(FsError::Invalid.into());
        }
        let core = &self.core;
        if core.is_poisoned() {
            return Err(FsError::ReadOnly.into());
        }
        core.schedule
            .admit(64 + record.map_or(0, <[u8]>::len) as u64)?;
        // Record and memory change in one epoch, and in one order.
        let _pass = core.epoch_lock().enter();
        core.clients.record(number, record, || {
            let mut edits = Edits::new(AGGREGATE_TREE, 16 + record.map_or(0, <[u8]>::len));
            edits.client(number, record);
            core.log.append(edits)
        })
    }

    /// Like [`ClientRecords::set`], but blocks the thread until the record is durable: for records
    /// made at a start.
    ///
    /// # Errors
    /// As [`ClientRecords::set`]; `Io` if it never will be durable.
    pub fn set_blocking(&self, number: u64, record: Option<&[u8]>) -> Result<(), FsError> {
        let lsn = loop {
            match self.set(number, record) {
                Ok(lsn) => break lsn,
                Err(stop) => block_on(self.resume(stop))?,
            }
        };
        let log = self.core.agg.log();
        log.wait_blocking(lsn).map_err(|_| FsError::Io)
    }

    /// Waits for the cause of `stop`, so that the change can be retried.
    ///
    /// # Errors
    /// The cause of `stop`, if it is an error.
    pub async fn resume(&self, stop: Stop) -> Result<(), FsError> {
        match stop {
            Stop::Fail(error) => Err(error),
            Stop::Wait(pressure) => self.core.relieved(pressure).await,
            Stop::Fetch(_) | Stop::Land => unreachable!("all records are in memory"),
        }
    }

    /// Returns all records, by number.
    pub fn list_records(&self) -> Vec<(u64, Box<[u8]>)> {
        self.core.clients.list()
    }

    /// Returns the log record up to which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.core.agg.log().durable()
    }

    /// Waits until `lsn` is durable; returns false if it never will be.
    pub async fn settled(&self, lsn: Lsn) -> bool {
        self.core.agg.log().wait(lsn).await.is_ok()
    }

    /// Ends the grace period: clients have reclaimed their opens from before the start, or never
    /// will. From now on unlinked inodes are deleted when no client has them open
    /// ([`Volume::pin`](crate::Volume::pin)). Before the first call after a start none is deleted,
    /// if any client was recorded.
    pub fn end_grace(&self) {
        if !self.core.end_grace() {
            return;
        }
        for vol in self.cp.table().list_volumes() {
            if !vol.live().unlinked.is_empty() {
                self.core.schedule.note_changed(vol.id);
            }
        }
    }
}

impl Engine {
    /// Returns the records of the protocols' clients.
    pub fn client_records(&self) -> ClientRecords {
        ClientRecords {
            core: Arc::clone(&self.core),
            cp: Arc::clone(&self.cp),
        }
    }
}

//! Recording the protocols' state of their clients ([`crate::overlay::clients`]).

use std::sync::Arc;

use weir_base::Lsn;

use crate::checkpoint::cp::Checkpointer;
use crate::format::catalog::AGGREGATE_TREE;
use crate::format::clients::MAX_CLIENT;
use crate::format::edit::Edits;
use crate::lifecycle::engine::Engine;
use crate::overlay::core::Core;
use crate::overlay::event::block_on;
use crate::types::{FsError, Stop};

/// The records of an aggregate, for the protocols that keep some; may be cloned, and keeps no engine from ending.
#[derive(Clone)]
pub struct ClientRecords {
    core: Arc<Core>,
    cp: Arc<Checkpointer>,
}

impl ClientRecords {
    /// Records something of a client under a number, in place of what was recorded before; `None` removes it. Nothing is
    /// durable before the LSN is.
    ///
    /// # Errors
    /// `Invalid` for a record that is empty or longer than [`MAX_CLIENT`]; `NoSpace` if there are [`MAX_CLIENTS`](crate::MAX_CLIENTS) already;
    /// `ReadOnly`; a wait for room in the log.
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
        // Record and memory are in one epoch, and in one order.
        let _pass = core.epoch_lock().enter();
        core.clients.record(number, record, || {
            let mut edits = Edits::new(AGGREGATE_TREE, 16 + record.map_or(0, <[u8]>::len));
            edits.client(number, record);
            core.log.append(edits)
        })
    }

    /// As [`ClientRecords::set`], durable when it returns: blocks the thread, for what is recorded at a start.
    ///
    /// # Errors
    /// As there; `Io` if it never will be durable.
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

    /// Resolves what `stop` waits for, so that the change can be tried again.
    ///
    /// # Errors
    /// The reason, if it has failed.
    pub async fn resume(&self, stop: Stop) -> Result<(), FsError> {
        match stop {
            Stop::Fail(error) => Err(error),
            Stop::Wait(pressure) => self.core.relieved(pressure).await,
            Stop::Fetch(_) | Stop::Land => unreachable!("all records are in memory"),
        }
    }

    /// All of them, by number.
    pub fn all(&self) -> Vec<(u64, Box<[u8]>)> {
        self.core.clients.list()
    }

    /// Everything up to this record of the log is durable.
    pub fn durable(&self) -> Lsn {
        self.core.agg.log().durable()
    }

    /// Waits until `lsn` is durable; false if it never will be.
    pub async fn settled(&self, lsn: Lsn) -> bool {
        self.core.agg.log().wait(lsn).await.is_ok()
    }

    /// Clients have reclaimed what they had open before the start, or never will: from now on inodes without a name are
    /// deleted when no client has them open ([`Volume::pin`](crate::Volume::pin)). Until the first call of this after a
    /// start, none is, if anything was recorded of a client.
    pub fn end_grace(&self) {
        if !self.core.end_grace() {
            return;
        }
        for vol in self.cp.table().all() {
            if !vol.live().unlinked.is_empty() {
                self.core.schedule.note_changed(vol.id);
            }
        }
    }
}

impl Engine {
    /// What protocols record of their clients.
    pub fn client_records(&self) -> ClientRecords {
        ClientRecords {
            core: Arc::clone(&self.core),
            cp: Arc::clone(&self.cp),
        }
    }
}

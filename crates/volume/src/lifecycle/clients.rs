//! Recording what protocols know of their clients ([`crate::overlay::clients`]).

use weir_base::Lsn;

use crate::format::catalog::AGGREGATE_TREE;
use crate::format::clients::MAX_CLIENT;
use crate::format::edit::Edits;
use crate::lifecycle::engine::Engine;
use crate::types::{FsError, Stop};

impl Engine {
    /// Records something of a client under a number, in place of what was recorded before; `None` removes it. Nothing is
    /// durable before the LSN is.
    ///
    /// # Errors
    /// `Invalid` for a record that is empty or longer than [`MAX_CLIENT`]; `NoSpace` if there are [`MAX_CLIENTS`](crate::MAX_CLIENTS) already;
    /// `ReadOnly`; a wait for room in the log.
    pub fn record_client(&self, number: u64, record: Option<&[u8]>) -> Result<Lsn, Stop> {
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
        let _pass = core.gate().enter();
        core.clients.record(number, record, || {
            let mut edits = Edits::new(AGGREGATE_TREE, 16 + record.map_or(0, <[u8]>::len));
            edits.client(number, record);
            core.log.append(edits)
        })
    }

    /// All that is recorded of clients, by number.
    pub fn clients(&self) -> Vec<(u64, Box<[u8]>)> {
        self.core.clients.list()
    }
}

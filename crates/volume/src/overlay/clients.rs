//! Records of the protocols' clients, so that after a restart the grace period knows which clients
//! may reclaim state.
//!
//! Records are opaque, identified by a number that the protocol chooses, and belong to the
//! aggregate: they move with it. They are logged like any change, so that a reply that depends on
//! one waits only for its LSN. Checkpoints write the changed ones into the aggregate's tree. All of
//! them are in memory: at most [`MAX_CLIENTS`].

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use weir_store::node::Key;

use crate::format::catalog::kind;
use crate::format::clients::{MAX_CLIENTS, encode};
use crate::types::FsError;

#[derive(Default)]
struct Inner {
    records: BTreeMap<u64, Box<[u8]>>,
    /// Numbers of the records that differ from the tree.
    changed: BTreeSet<u64>,
}

/// The client records: see the module's head.
#[derive(Default)]
pub(crate) struct Clients(Mutex<Inner>);

impl Inner {
    fn set(&mut self, number: u64, record: Option<&[u8]>) {
        match record {
            Some(record) => self.records.insert(number, record.into()),
            None => self.records.remove(&number),
        };
        self.changed.insert(number);
    }
}

impl Clients {
    /// Stores a record under a number, in place of an earlier one; `None` removes it. `log` is
    /// called once the change is known to be possible, and before it is visible to others.
    ///
    /// # Errors
    /// `NoSpace` if there are [`MAX_CLIENTS`] already, and the errors of `log`.
    pub(crate) fn record<T, E: From<FsError>>(
        &self,
        number: u64,
        record: Option<&[u8]>,
        log: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut inner = self.0.lock();
        let new = record.is_some() && !inner.records.contains_key(&number);
        if new && inner.records.len() >= MAX_CLIENTS {
            return Err(FsError::NoSpace.into());
        }
        let logged = log()?;
        inner.set(number, record);
        Ok(logged)
    }

    /// Returns all records, by number.
    pub(crate) fn list(&self) -> Vec<(u64, Box<[u8]>)> {
        let inner = self.0.lock();
        let all = inner.records.iter();
        all.map(|(number, record)| (*number, record.clone()))
            .collect()
    }

    pub(crate) fn replay(&self, number: u64, record: Option<&[u8]>) {
        self.0.lock().set(number, record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().records.is_empty()
    }

    /// Adds the records of the tree.
    pub(crate) fn restore(&self, read: Vec<(u64, Box<[u8]>)>) {
        self.0.lock().records.extend(read);
    }

    /// Takes the records for the next checkpoint to write. Called while the epoch lock is held
    /// exclusively.
    pub(crate) fn take_changed(&self) -> Vec<(Key, Option<Vec<u8>>)> {
        let mut inner = self.0.lock();
        let changed = std::mem::take(&mut inner.changed);
        let value = |number: &u64| inner.records.get(number).map(|record| encode(record));
        changed
            .iter()
            .map(|number| (Key::new(0, kind::CLIENT, *number), value(number)))
            .collect()
    }
}

//! What protocols record of their clients, so that a grace period after a restart knows who may reclaim state.
//!
//! Records are opaque, known by a number that the protocol chooses, and belong to the aggregate: they move with it. They are
//! logged as any change is, so that a reply that depends on one waits for its LSN and for nothing else; consistency
//! points write those that have changed into the aggregate's tree. All of them are in memory: there are [`MAX_CLIENTS`] at most.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use weir_base::Lsn;
use weir_store::node::Key;

use crate::format::catalog::{AGGREGATE_TREE, kind};
use crate::format::codec::Reader;
use crate::format::edit::Edits;
use crate::lifecycle::engine::Engine;
use crate::types::{FsError, Stop};

/// Longest record of a client in bytes: with its version it fits into a value of the tree.
pub const MAX_CLIENT: usize = 1000;

/// Most records of clients in an aggregate.
pub const MAX_CLIENTS: usize = 16_384;

pub(crate) const VERSION: u8 = 1;

#[derive(Default)]
struct Inner {
    records: BTreeMap<u64, Box<[u8]>>,
    /// Those that are not in the tree as they are here.
    changed: BTreeSet<u64>,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Clients(Mutex<Inner>);

/// The record in a value of the tree.
pub(crate) fn decode(value: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(value);
    if r.u8()? != VERSION {
        return None;
    }
    let record = r.rest();
    (1..=MAX_CLIENT).contains(&record.len()).then_some(record)
}

fn encode(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + record.len());
    out.push(VERSION);
    out.extend_from_slice(record);
    out
}

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
    pub(crate) fn replay(&self, number: u64, record: Option<&[u8]>) {
        self.0.lock().set(number, record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().records.is_empty()
    }

    /// Takes in what the tree has.
    pub(crate) fn restore(&self, read: Vec<(u64, Box<[u8]>)>) {
        self.0.lock().records.extend(read);
    }

    /// What the next consistency point has to write. Called while the gate is closed.
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

impl Engine {
    /// Records something of a client under a number, in place of what was recorded before; `None` removes it. Nothing is
    /// durable before the LSN is.
    ///
    /// # Errors
    /// `Invalid` for a record that is empty or longer than [`MAX_CLIENT`]; `NoSpace` if there are [`MAX_CLIENTS`] already;
    /// `ReadOnly`; a wait for room in the log.
    pub fn record_client(&self, number: u64, record: Option<&[u8]>) -> Result<Lsn, Stop> {
        if record.is_some_and(|record| !(1..=MAX_CLIENT).contains(&record.len())) {
            return Err(FsError::Invalid.into());
        }
        let core = &self.core;
        if core.is_poisoned() {
            return Err(FsError::ReadOnly.into());
        }
        core.admit(64 + record.map_or(0, <[u8]>::len) as u64)?;
        // Record and memory are in one epoch, and in one order.
        let _pass = core.gate.enter();
        let mut inner = core.clients.0.lock();
        let new = record.is_some() && !inner.records.contains_key(&number);
        if new && inner.records.len() >= MAX_CLIENTS {
            return Err(FsError::NoSpace.into());
        }
        let mut edits = Edits::new(AGGREGATE_TREE, 16 + record.map_or(0, <[u8]>::len));
        edits.client(number, record);
        let lsn = core.append(edits)?;
        inner.set(number, record);
        Ok(lsn)
    }

    /// All that is recorded of clients, by number.
    pub fn clients(&self) -> Vec<(u64, Box<[u8]>)> {
        let inner = self.core.clients.0.lock();
        let all = inner.records.iter();
        all.map(|(number, record)| (*number, record.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        for len in [1, 7, MAX_CLIENT] {
            let record = vec![9; len];
            let value = encode(&record);
            assert!(value.len() <= weir_base::limits::MAX_VALUE);
            assert_eq!(decode(&value), Some(&*record));
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&encode(&[])), None);
        assert_eq!(decode(&encode(&vec![1; MAX_CLIENT + 1])), None);
        assert_eq!(decode(&[2, 1, 1]), None);
    }
}

//! Records of clients that survive restarts, in the aggregate.
//!
//! A record is a few bytes that only its service understands, with a number. The engine logs it as
//! it logs any change, in the current batch: no flush of its own, no file, no thread. A service
//! that depends on a record waits for its LSN before it replies or calls. Checkpoints carry the
//! records, and they move with the aggregate to another node.
//!
//! **Which aggregate.** A client's record is in every aggregate in whose volumes it has claims, and
//! in no other. So the server that serves these volumes next finds all clients that may claim
//! something in them, and has a grace period for no others. A service that takes a claim in a
//! volume therefore uses the records of that volume's aggregate. A node has one today.

use crate::claims::ServiceId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::Lsn;
use weir_volume::{self as volume, ClientRecords, Engine, FsError};

/// The number of a record: its service in the highest byte, then a number that is not used again in
/// this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(u64);

/// Bit of a record's number at which the number of its service begins.
const SERVICE: u32 = 56;

impl RecordId {
    fn service(self) -> u64 {
        self.0 >> SERVICE
    }

    /// Returns the number in big-endian bytes, for records that belong to others.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Returns the record that another belongs to ([`RecordId::to_bytes`]).
    pub fn from_bytes(bytes: [u8; 8]) -> RecordId {
        RecordId(u64::from_be_bytes(bytes))
    }
}

/// The records of all services' clients in one aggregate. See the module's head.
pub struct Records {
    kept: ClientRecords,
    /// The next number, of whatever service.
    next: AtomicU64,
    /// Changes that nobody waits for and for which the log had no room yet.
    late: Mutex<BTreeMap<RecordId, Option<Box<[u8]>>>>,
}

impl Records {
    /// Returns the records in the aggregate of `engine`.
    pub fn from_engine(engine: &Engine) -> Arc<Records> {
        let kept = engine.client_records();
        let numbers = kept.list_records().into_iter();
        let used = numbers.map(|(number, _)| number & ((1 << SERVICE) - 1));
        let next = used.max().map_or(1, |highest| highest + 1);
        Arc::new(Records {
            kept,
            next: AtomicU64::new(next),
            late: Mutex::default(),
        })
    }

    /// Returns a service's records, in the order in which they were first made.
    pub fn list_records(&self, service: ServiceId) -> Vec<(RecordId, Box<[u8]>)> {
        let all = self.kept.list_records().into_iter();
        all.map(|(number, record)| (RecordId(number), record))
            .filter(|(id, _)| id.service() == u64::from(service.0))
            .collect()
    }

    /// Returns a number for a new record.
    fn number(&self, service: ServiceId) -> RecordId {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        RecordId(u64::from(service.0) << SERVICE | next)
    }

    /// Makes a record of 1 to [`MAX_CLIENT`](weir_volume::MAX_CLIENT) bytes. A claim that needs it
    /// must not be acknowledged before the LSN is durable.
    ///
    /// # Errors
    /// `NoSpace`: there are too many; `Invalid`: the length; `ReadOnly`; a wait for room in the
    /// log.
    pub fn add(&self, service: ServiceId, record: &[u8]) -> Result<(RecordId, Lsn), volume::Stop> {
        let id = self.number(service);
        Ok((id, self.kept.set(id.0, Some(record))?))
    }

    /// Puts a record in place of another.
    ///
    /// # Errors
    /// As [`Records::add`].
    pub fn replace(&self, id: RecordId, record: &[u8]) -> Result<Lsn, volume::Stop> {
        self.set(id, Some(record))
    }

    /// Removes a record. A client that gains something at the cost of this one must not learn of it
    /// before the LSN is durable.
    ///
    /// # Errors
    /// `ReadOnly`; a wait for room in the log.
    pub fn remove(&self, id: RecordId) -> Result<Lsn, volume::Stop> {
        self.set(id, None)
    }

    fn set(&self, id: RecordId, record: Option<&[u8]>) -> Result<Lsn, volume::Stop> {
        // Held over the change, so that an older one that is late does not come after it.
        let mut late = self.late.lock();
        let lsn = self.kept.set(id.0, record)?;
        late.remove(&id);
        Ok(lsn)
    }

    /// Changes (`None`: removes) a record when there is room in the log; for callers that need not
    /// know when.
    pub fn change_some_time(&self, id: RecordId, record: Option<&[u8]>) {
        let mut late = self.late.lock();
        late.insert(id, record.map(Box::from));
        self.catch_up(&mut late);
    }

    /// Makes changes for which there was no room. To be called about once a second.
    pub fn tick(&self) {
        self.catch_up(&mut self.late.lock());
    }

    fn catch_up(&self, late: &mut BTreeMap<RecordId, Option<Box<[u8]>>>) {
        while let Some(first) = late.first_entry() {
            match self.kept.set(first.key().0, first.get().as_deref()) {
                Ok(_) => {}
                Err(volume::Stop::Fail(error)) => {
                    tracing::error!(%error, "cannot change the record of a client");
                }
                // Later.
                Err(_) => return,
            }
            first.remove();
        }
    }

    /// Makes a record or changes one, durably: blocks the thread, for a start.
    ///
    /// # Errors
    /// As [`Records::add`]; `Io`.
    pub fn set_at_start(
        &self,
        service: ServiceId,
        id: Option<RecordId>,
        record: &[u8],
    ) -> Result<RecordId, FsError> {
        let id = id.unwrap_or_else(|| self.number(service));
        self.kept.set_blocking(id.0, Some(record))?;
        Ok(id)
    }

    /// Returns true if a change is durable.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.kept.durable()
    }

    /// Waits until a change is durable; false if it never will be.
    pub async fn settled(&self, lsn: Lsn) -> bool {
        self.kept.settled(lsn).await
    }

    /// Returns the records at which to wait for what a change was refused for.
    pub(crate) fn kept(&self) -> &ClientRecords {
        &self.kept
    }

    /// Notes that the grace period is over: files that are open no more and have no name may go.
    /// Costs a load when it was over already.
    pub fn end_grace(&self) {
        self.kept.end_grace();
    }
}

//! Records of clients: the claims that each may have, so that after a restart only conflicting
//! requests have to wait ([`weir_vfs::grace`]).
//!
//! **Time.** A claim that the client's record does not cover is recorded before it is acknowledged
//! ([`Nfs4::record`]): by its file while the record has room ([`record_encoding::room`]), and then
//! as "anywhere in the volume", which covers all further claims. So a client with many claims waits
//! for few records. Regularly ([`TRIM`]), and at an orderly stop of the server, the record is
//! narrowed to the client's present claims ([`Nfs4::narrow`]): again by file, in additional records
//! if there are many.
//!
//! **A record never covers less than the client has**, at whichever of its changes a crash comes.
//! The log preserves their order. To list files in additional records, a client's own record first
//! says "anywhere", then the lists are written, then its own record relies on them.

use super::client::{Caller, Client, IN_USE, SERVICE};
use super::client_records::{More, Record, RecordContent};
use super::protect::Principal;
use super::record_encoding::{self, MAX_ADDRESSES, MORE_FILES};
use super::server::Nfs4;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_base::Lsn;
use weir_base::limits::protocol::MAX_FILE_RECORDS;
use weir_vfs::grace::{FileKey, Had, Kinds, PossibleClaims, RecordId};
use weir_vfs::{Error, OpResult, Stop, volume};

/// Interval in seconds at which records are trimmed.
const TRIM: u64 = 60;
/// Maximum number of listed files of one client; for more, volumes are recorded.
const MOST_FILES: usize = 64 * MORE_FILES;

impl Nfs4 {
    /// Records that a client may have a claim; with `None`, that it may have some soon. The claim
    /// must not be acknowledged before the LSN is durable.
    pub(super) fn record(&self, client: &Client, claim: Option<(FileKey, Kinds)>) -> OpResult<Lsn> {
        let mut record = client.record.lock();
        if let Some(record) = &*record
            && record.kept.covers(claim)
        {
            return Ok(record.lsn);
        }
        if client.is_expired() {
            return Err(Error::Delay.into());
        }
        let name = client.recorded.as_ref();
        let mut before = self.before.lock();
        let old = || before.clients.get(name).map(|expected| &expected.kept);
        let known = record.as_ref().map(|record| &record.kept).or_else(old);
        let had = known.map_or_else(Had::default, |kept| kept.had.clone());
        let addresses = addresses(client, known.map_or(&[], |kept| &kept.addresses));
        let more = known.map_or_else(Arc::default, |kept| Arc::clone(&kept.more));
        let id = known.map(|kept| kept.id);
        let durable = known.is_some_and(|kept| kept.covers(claim) && kept.addresses == addresses);
        let mut kept = RecordContent {
            id: RecordId::from_bytes([0; 8]),
            had,
            more,
            addresses,
        };
        if let Some((file, kinds)) = claim.filter(|_| !kept.covers(claim)) {
            kept.had.add(kinds, file, record_encoding::room(name));
        }
        let encoded = || record_encoding::encode(name, &kept.had, &kept.addresses);
        let made = match id {
            // Durable since before the start.
            Some(id) if durable => Ok((id, Lsn(0))),
            Some(id) => self.records.replace(id, &encoded()).map(|lsn| (id, lsn)),
            None => self.records.add(SERVICE, &encoded()),
        };
        let (id, lsn) = made.map_err(|stop| Stop::of_record(&self.records, stop))?;
        before.clients.remove(name);
        kept.id = id;
        *record = Some(Record { kept, lsn });
        Ok(lsn)
    }

    /// Records another address of a client that has a record.
    pub(super) fn record_addresses(&self, client: &Client) {
        if let Some(Record { kept, .. }) = client.record.lock().as_mut() {
            kept.addresses = addresses(client, &kept.addresses);
            let encoded = record_encoding::encode(&client.recorded, &kept.had, &kept.addresses);
            self.records.change_some_time(kept.id, Some(&encoded));
        }
    }

    /// Removes a record.
    pub(super) fn forget(&self, kept: &RecordContent) {
        self.records.change_some_time(kept.id, None);
        self.forget_more(&kept.more.ids);
    }

    fn forget_more(&self, ids: &[RecordId]) {
        self.file_records.fetch_sub(ids.len(), Ordering::Relaxed);
        for id in ids {
            self.records.change_some_time(*id, None);
        }
    }

    /// Removes the records of clients that have not come back in time, and so have lost their
    /// claims.
    pub(super) fn forget_before(&self) {
        for (_, gone) in self.before.lock().clients.drain() {
            self.forget(&gone.kept);
        }
    }

    /// Removes released claims from the records at regular intervals, so that nobody waits for them
    /// after a restart.
    pub(super) fn trim_records(&self) {
        let now = self.monotonic().as_secs();
        if now < self.next_trim.load(Ordering::Relaxed) {
            return;
        }
        self.next_trim.store(now + TRIM, Ordering::Relaxed);
        self.registry.clients().iter().for_each(|c| self.narrow(c));
    }

    /// Narrows the records to the clients' present claims, for the next start. Call it when no
    /// client is served any more. The record of a client that may still reclaim is left unchanged.
    pub(crate) fn list_claims(&self) {
        let grace = self.vfs.grace.runs(self.monotonic());
        for client in self.registry.clients() {
            if !grace || client.reclaimed.load(Ordering::Acquire) {
                self.narrow(&client);
            }
        }
    }

    /// Narrows a client's record to its present claims. On an error the record stays as it is.
    fn narrow(&self, client: &Client) {
        let states = client.states.read();
        let mut slot = client.record.lock();
        let Some(record) = slot.as_mut() else {
            return;
        };
        let room = record_encoding::room(&client.recorded) / 2;
        let had = states.had(room);
        if had.is_empty() {
            let gone = slot.take();
            drop((slot, states));
            gone.iter().for_each(|gone| self.forget(&gone.kept));
            return;
        }
        let fits = had.whole == PossibleClaims::NOWHERE;
        let all = if fits { had } else { states.had(MOST_FILES) };
        let elsewhere = !fits && !all.files.is_empty();
        if record.kept.covered_claims() == all && elsewhere != record.kept.more.ids.is_empty() {
            return;
        }
        let _ = match elsewhere {
            true => self.narrow_more(client, record, all),
            false => self.narrow_own(client, record, all),
        };
    }

    fn replace_own(
        &self,
        client: &Client,
        record: &mut Record,
        had: Had,
    ) -> Result<(), volume::Stop> {
        let encoded = record_encoding::encode(&client.recorded, &had, &record.kept.addresses);
        record.lsn = self.records.replace(record.kept.id, &encoded)?;
        record.kept.had = had;
        Ok(())
    }

    /// Makes a client's own record cover all its claims.
    fn narrow_own(
        &self,
        client: &Client,
        record: &mut Record,
        all: Had,
    ) -> Result<(), volume::Stop> {
        self.replace_own(client, record, all)?;
        let more = std::mem::take(&mut record.kept.more);
        self.forget_more(&more.ids);
        Ok(())
    }

    /// Lists files in additional records: all claims but those that the client's own record has as
    /// whole volumes. This leaves room for further files in its own record.
    fn narrow_more(
        &self,
        client: &Client,
        record: &mut Record,
        all: Had,
    ) -> Result<(), volume::Stop> {
        let anywhere = all.files.iter().fold(all.whole, |bound, (file, kinds)| {
            bound.or(PossibleClaims::in_volume(*kinds, file.volume))
        });
        self.replace_own(client, record, anywhere.into())?;
        let old = std::mem::take(&mut record.kept.more);
        let mut free = old.ids.iter();
        let files: Vec<_> = all
            .files
            .iter()
            .map(|(file, kinds)| (*file, *kinds))
            .collect();
        let mut ids = Vec::new();
        let mut written = Ok(());
        for files in files.chunks(MORE_FILES) {
            let encoded = record_encoding::encode_more(record.kept.id, files);
            let id = match free.next().copied() {
                Some(id) => self.records.replace(id, &encoded).map(|_| id),
                None => self.add_more(&encoded),
            };
            match id {
                Ok(id) => ids.push(id),
                Err(stop) => {
                    written = Err(stop);
                    break;
                }
            }
        }
        // The remaining records list files that the client no longer has.
        self.forget_more(free.as_slice());
        let had = Had {
            whole: PossibleClaims::NOWHERE,
            files: all.files,
        };
        // Files that were not written are covered by the client's own record.
        let had = written.as_ref().map_or_else(|_| Had::default(), |()| had);
        record.kept.more = Arc::new(More { ids, had });
        written?;
        let rest = Had {
            whole: all.whole,
            files: BTreeMap::new(),
        };
        self.replace_own(client, record, rest)
    }

    fn add_more(&self, encoded: &[u8]) -> Result<RecordId, volume::Stop> {
        if self.file_records.fetch_add(1, Ordering::Relaxed) < MAX_FILE_RECORDS {
            let added = self.records.add(SERVICE, encoded);
            if let Ok((id, _)) = added {
                return Ok(id);
            }
        }
        self.file_records.fetch_sub(1, Ordering::Relaxed);
        Err(volume::FsError::NoSpace.into())
    }

    /// Returns true if a name is that of a client that may still reclaim, and that is not at the
    /// caller's address. The first such caller is logged.
    pub(super) fn is_recorded_elsewhere(&self, owner: &[u8], caller: &Caller<'_>) -> bool {
        if !self.vfs.grace.runs(caller.now)
            || Principal::from_credential(caller.credential).is_proven()
        {
            return false;
        }
        let mut before = self.before.lock();
        let Some(expected) = before
            .clients
            .get_mut(&record_encoding::name(self.owners, owner))
        else {
            return false;
        };
        let from = caller.conn.address();
        let known = &expected.kept.addresses;
        let elsewhere = !known.is_empty() && !known.contains(&from);
        if elsewhere && !std::mem::replace(&mut expected.reported, true) {
            let (name, at) = (String::from_utf8_lossy(owner), &expected.kept.addresses);
            tracing::warn!(%from, ?name, ?at, "{}", IN_USE);
        }
        elsewhere
    }
}

/// Returns the addresses of a client to record: its own, then those recorded before.
fn addresses(client: &Client, had: &[IpAddr]) -> Vec<IpAddr> {
    let mut all = client.reach.lock().addresses().to_vec();
    for address in had {
        if all.len() < MAX_ADDRESSES && !all.contains(address) {
            all.push(*address);
        }
    }
    all
}

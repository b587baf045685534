//! Persistent opens (MS-SMB2 §3.3.5.9.10, §3.3.5.9.12): they outlive the server.
//!
//! On a share with CONTINUOUSLY_AVAILABLE a client may ask for an open that is durable whatever it
//! caches, that no other client's request ends, and that is restored after a restart. Each such
//! open has a record in the aggregate, as clients of NFS have ([`weir_vfs::grace::Records`]). It is
//! logged with the batch that is being written anyway, so it costs no flush of its own.
//!
//! **Order.** A change is durable before a client learns of it: the response to CREATE waits for
//! the record, that to LOCK for the record with the lock, that to a rename for the new name. A
//! release is durable before another client profits from it: a CLOSE and an unlock change the
//! record, wait until that is durable, and only then give up the claims. So after a crash no record
//! has a lock or a denial that conflicts with a later grant to another client.
//!
//! **After a start**, before any client is served, [`Service::restore`](crate::Service::restore)
//! enters the claims of all records into the table of claims: denials, byte ranges and caching
//! rights. Clients of every protocol meet them there as those of a connected client, so no grace
//! period is needed. New claims of SMB clients wait for the grace period of the other protocols
//! (`ops::reconnect`). An open that its client does not take over ends after its time.
//!
//! **Caching.** A record does not follow its open's lease, which other opens of the client may
//! raise. After a start a lease gets all rights that the other opens leave room for, which is never
//! less than the client had. The client's return reduces it to the rights that the client asks for.
//! A break before that waits for the client, as long as breaks wait at all
//! ([`crate::open::leases`]).
//!
//! **Restored state.** Access, ShareAccess, locks and their sequences, the name, the mark for
//! deletion, the CreateGuid, the CreateAction, the user and the POSIX extensions are as before. The
//! rest of an open needs no record: directories and streams are not persistent, so no listing,
//! watch or stream is; its writes are all durable; the channel sequence comes with the client's
//! return. Two things are reset: the position (FilePositionInformation) to 0, which READ and WRITE
//! do not use, and the changes that CLOSE reports to watches, since no watch from before the start
//! is left.
//!
//! **Once.** A CREATE that is sent again, with its CreateGuid, is carried out once even if the
//! server has crashed in between. The record tells what it has opened. Before the record is
//! durable, the log record that made the file has a key that is derived from the CreateGuid, as
//! those of NFS's calls are ([`weir_vfs::volume::DoneCall`]). So the file is known to have been
//! made by this CREATE ([`CreatedFiles`]). To truncate a file again, which has not been written to
//! since, changes nothing.
//!
//! **Data.** Each WRITE through such an open is durable before it is answered, because an SMB
//! client could not learn that a restart has lost it.

use crate::SERVICE;
use crate::open::durable::{Durable, Name};
use crate::open::leases::{self, Hold};
use crate::open::session::{ByteRangeLock, File, LockSequences, Open, OpenName};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_base::limits::protocol::{MAX_PERSISTENT_OPENS, REPLY_AGE_RECOVERED};
use weir_base::{Ino, Lsn, Reservation, SipKey, VolumeId};
use weir_vfs::claims::{Claims, DeleteMode, Range};
use weir_vfs::grace::{RecordId, Records};
use weir_vfs::volume::{self, CallKey, DoneCall, FsError, MAX_CLIENT};
use weir_vfs::{FileId, OpResult, Stop};

pub(crate) const VERSION: u8 = 1;
/// Bytes of a lock in a record.
pub(crate) const LOCK: usize = 17;
/// Bytes that a record has room for whatever is locked: those of all places of lock sequences, and
/// their number.
pub(crate) const SEQUENCES: usize = 1 + 64 * 2;
/// Beside ShareAccess in a record: the open is one of POSIX extensions.
pub(crate) const POSIX: u8 = 0x80;
/// Bytes of memory that a persistent open takes beside its record, of which the engine has one
/// copy.
pub(crate) const OVERHEAD: usize = 256;

/// The part of a record that stays the same for the life of its open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The open's number.
    pub id: u64,
    /// Time for which it is kept without a session, in ms; 0 leaves it to the server.
    pub timeout: u32,
    /// The ClientGuid.
    pub guid: [u8; 16],
    /// The CreateGuid.
    pub create_guid: [u8; 16],
    /// The address that its claims are charged to.
    pub address: IpAddr,
    pub volume: VolumeId,
    pub ino: Ino,
    /// Access that was granted.
    pub access: u32,
    /// ShareAccess, as it was asked for.
    pub share: u8,
    /// It was opened with POSIX extensions ([`File::posix`]).
    pub posix: bool,
    /// CreateAction.
    pub action: u8,
    /// The oplock level; 0 if the open has a lease.
    pub level: u8,
    pub lease: Option<leases::LeaseRequest>,
    /// The user's name, as it was created.
    pub user: String,
}

/// Deletion of the file with the open's close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletes {
    /// This open has not asked for deletion.
    No,
    /// The file is marked for deletion with the close (`Now`: it is marked already), and loses its
    /// name with the last close, or with this one if `alone`.
    Yes { when: DeleteMode, alone: bool },
}

impl Deletes {
    pub(crate) const ON_CLOSE: u8 = 1;
    pub(crate) const NOW: u8 = 2;
    pub(crate) const ALONE: u8 = 4;

    pub(crate) fn byte(self) -> u8 {
        match self {
            Deletes::No => 0,
            Deletes::Yes { when, alone } => {
                let when = match when {
                    DeleteMode::OnClose => Deletes::ON_CLOSE,
                    DeleteMode::Now => Deletes::NOW,
                };
                when | if alone { Deletes::ALONE } else { 0 }
            }
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Deletes> {
        let when = match byte & !Deletes::ALONE {
            0 if byte == 0 => return Some(Deletes::No),
            Deletes::ON_CLOSE => DeleteMode::OnClose,
            Deletes::NOW => DeleteMode::Now,
            _ => return None,
        };
        let alone = byte & Deletes::ALONE != 0;
        Some(Deletes::Yes { when, alone })
    }
}

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenRecord {
    pub head: Head,
    pub deletes: Deletes,
    pub named: OpenName,
    pub locks: Vec<ByteRangeLock>,
    /// Places and numbers of the LOCKs that were carried out last.
    pub sequences: Vec<(u8, u8)>,
}

impl Head {
    pub(crate) fn durable(&self) -> Durable {
        Durable::persistent(self.timeout, self.create_guid)
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = vec![VERSION];
        out.put_u64(self.id);
        out.put_u32(self.timeout);
        out.put(&self.guid);
        out.put(&self.create_guid);
        out.put(&match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        out.put_u64(self.volume.0);
        out.put_u64(self.ino.0);
        out.put_u32(self.access);
        let posix = if self.posix { POSIX } else { 0 };
        out.put(&[self.share | posix, self.action, self.level]);
        leases::LeaseRequest::record(self.lease.as_ref(), &mut out);
        out.put_u8(u8::try_from(self.user.len()).ok()?);
        out.put(self.user.as_bytes());
        Some(out)
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Head, DecodeError> {
        if r.u8()? != VERSION {
            return Err(DecodeError);
        }
        let (id, timeout) = (r.u64()?, r.u32()?);
        let (guid, create_guid) = (r.array()?, r.array()?);
        let address = IpAddr::from(r.array::<16>()?).to_canonical();
        let (volume, ino) = (VolumeId(r.u64()?), Ino(r.u64()?));
        let access = r.u32()?;
        let [share, action, level] = r.array()?;
        let lease = leases::LeaseRequest::recorded(r)?;
        let len = usize::from(r.u8()?);
        let user = String::from_utf8(r.bytes(len)?.into()).map_err(|_| DecodeError)?;
        Ok(Head {
            id,
            timeout,
            guid,
            create_guid,
            address,
            volume,
            ino,
            access,
            share: share & !POSIX,
            posix: share & POSIX != 0,
            action,
            level,
            lease,
            user,
        })
    }
}

/// Bytes of a record behind its head without locks.
pub(crate) fn fixed(named: &OpenName) -> usize {
    1 + 8 + 1 + named.name.len() + 2 + named.path.len() + SEQUENCES
}

/// A record; `None` if it would be too long.
pub(crate) fn encode(
    head: &[u8],
    deletes: Deletes,
    named: &OpenName,
    locks: &[ByteRangeLock],
    sequences: &[(u8, u8)],
) -> Option<Vec<u8>> {
    if head.len() + fixed(named) + locks.len() * LOCK > MAX_CLIENT {
        return None;
    }
    let mut out = head.to_vec();
    out.put_u8(deletes.byte());
    // No directory has this number.
    out.put_u64(named.dir.map_or(0, |dir| dir.0));
    out.put_u8(u8::try_from(named.name.len()).ok()?);
    out.put(&named.name);
    out.put_u16(u16::try_from(named.path.len()).ok()?);
    out.put(named.path.as_bytes());
    out.put_u8(u8::try_from(sequences.len()).ok()?);
    sequences.iter().for_each(|(at, n)| out.put(&[*at, *n]));
    for held in locks {
        out.put_u64(held.range.start);
        out.put_u64(held.range.last);
        out.put_u8(u8::from(held.exclusive));
    }
    Some(out)
}

impl OpenRecord {
    /// A record as it is stored.
    ///
    /// # Errors
    /// It is none of this version.
    pub fn decode(record: &[u8]) -> Result<OpenRecord, DecodeError> {
        let r = &mut Reader::new(record);
        let head = Head::decode(r)?;
        let deletes = Deletes::from_byte(r.u8()?).ok_or(DecodeError)?;
        let dir = Some(Ino(r.u64()?)).filter(|dir| dir.0 != 0);
        let len = usize::from(r.u8()?);
        let name = r.bytes(len)?.into();
        let len = usize::from(r.u16()?);
        let path = String::from_utf8(r.bytes(len)?.into()).map_err(|_| DecodeError)?;
        let count = r.u8()?;
        let sequences = (0..count).map(|_| Ok((r.u8()?, r.u8()?)));
        let sequences = sequences.collect::<Result<_, DecodeError>>()?;
        let mut locks = Vec::new();
        while !r.rest().is_empty() {
            let range = Range {
                start: r.u64()?,
                last: r.u64()?,
            };
            let exclusive = r.u8()? != 0;
            locks.push(ByteRangeLock { range, exclusive });
        }
        Ok(OpenRecord {
            head,
            deletes,
            named: OpenName { dir, name, path },
            locks,
            sequences,
        })
    }
}

/// All persistent opens, with or without a session.
pub struct Persistents {
    /// The records of persistent opens.
    pub records: Arc<Records>,
    pub(crate) count: AtomicUsize,
    /// Opens by number.
    pub(crate) opens: Mutex<HashMap<u64, Weak<Open>>>,
}

/// Persistence that was granted to an open.
pub struct Persistent {
    pub(crate) all: Arc<Persistents>,
    /// Durability as responses report it.
    pub durable: Durable,
    pub(crate) record: RecordId,
    /// The open's number.
    pub(crate) open: u64,
    pub(crate) head: Box<[u8]>,
    pub(crate) deletes: Mutex<Deletes>,
    /// Its record is removed. Held over each change of the record, so that the last one has all
    /// that was done before.
    pub(crate) erased: Mutex<bool>,
    pub(crate) _memory: Reservation,
}

impl Drop for Persistent {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Ordering::Relaxed);
        self.all.opens.lock().remove(&self.open);
    }
}

impl Persistents {
    /// Starts without opens.
    pub fn new(records: Arc<Records>) -> Arc<Persistents> {
        Arc::new(Persistents {
            records,
            count: AtomicUsize::new(0),
            opens: Mutex::default(),
        })
    }

    /// Adds an open that has become persistent.
    pub(crate) fn enter(&self, open: &Arc<Open>) {
        let mut opens = self.opens.lock();
        opens.insert(open.id, Arc::downgrade(open));
    }

    /// An open has lost its claims, as what it was of is no more: it is not to be there again after
    /// a start.
    pub(crate) fn lost(&self, open: u64) {
        let found = self.opens.lock().get(&open).and_then(Weak::upgrade);
        if let Some(persistent) = found.as_ref().and_then(|open| open.persistent.get()) {
            persistent.forget();
        }
    }

    /// A file that was to be deleted stays, as one of its opens has said: no record of another is
    /// to say otherwise. When that is durable, as far as there was room in the log.
    pub(crate) fn stays(&self, id: FileId) -> Option<Lsn> {
        let opens: Vec<Arc<Open>> = match self.count() {
            0 => return None,
            _ => self
                .opens
                .lock()
                .values()
                .filter_map(Weak::upgrade)
                .collect(),
        };
        let of_it = opens.iter().filter_map(|open| {
            let file = open.file().filter(|file| file.id == id)?;
            let persistent = open.persistent.get()?;
            let was = std::mem::replace(&mut *persistent.deletes.lock(), Deletes::No);
            (was != Deletes::No).then(|| persistent.note_some_time(file))
        });
        of_it.flatten().max()
    }

    /// Returns the number of persistent opens.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Records an open that is about to become persistent; it is when the LSN is durable. `None`:
    /// it cannot be, as there is no room for its record.
    pub(crate) fn add(
        self: &Arc<Self>,
        claims: &Claims,
        head: &Head,
        file: &File,
        deletes: Deletes,
    ) -> OpResult<Option<(Persistent, Lsn)>> {
        let record = head.encode().and_then(|head| {
            let record = encode(&head, deletes, &file.named.lock(), &[], &[])?;
            Some((head, record))
        });
        let Some((bytes, record)) = record else {
            return Ok(None);
        };
        let Some(memory) = self.room(claims) else {
            return Ok(None);
        };
        let (id, lsn) = match self.records.add(SERVICE, &record) {
            Ok(added) => added,
            Err(volume::Stop::Fail(FsError::NoSpace)) => {
                self.count.fetch_sub(1, Ordering::Relaxed);
                return Ok(None);
            }
            Err(stop) => {
                self.count.fetch_sub(1, Ordering::Relaxed);
                return Err(Stop::of_record(&self.records, stop));
            }
        };
        let durable = head.durable();
        Ok(Some((
            self.one(id, (head.id, durable, bytes), deletes, memory),
            lsn,
        )))
    }

    /// One that is recorded already. `None`: there is no memory for it.
    pub(crate) fn restored(
        self: &Arc<Self>,
        claims: &Claims,
        id: RecordId,
        recorded: &OpenRecord,
    ) -> Option<Persistent> {
        let bytes = recorded.head.encode()?;
        let memory = self.room(claims)?;
        let durable = recorded.head.durable();
        Some(self.one(
            id,
            (recorded.head.id, durable, bytes),
            recorded.deletes,
            memory,
        ))
    }

    /// Counts one more, and reserves its memory.
    pub(crate) fn room(&self, claims: &Claims) -> Option<Reservation> {
        let order = Ordering::Relaxed;
        let more = |count: usize| Some(count + 1).filter(|all| *all <= MAX_PERSISTENT_OPENS);
        self.count.fetch_update(order, order, more).ok()?;
        let memory = claims.budget().try_reserve(MAX_CLIENT + OVERHEAD);
        if memory.is_none() {
            self.count.fetch_sub(1, order);
        }
        memory
    }

    pub(crate) fn one(
        self: &Arc<Self>,
        record: RecordId,
        (open, durable, head): (u64, Durable, Vec<u8>),
        deletes: Deletes,
        memory: Reservation,
    ) -> Persistent {
        Persistent {
            all: Arc::clone(self),
            durable,
            record,
            open,
            head: head.into(),
            deletes: Mutex::new(deletes),
            erased: Mutex::new(false),
            _memory: memory,
        }
    }
}

impl Persistent {
    pub(crate) fn encode(&self, file: &File) -> Option<Vec<u8>> {
        let deletes = *self.deletes.lock();
        // In this order: a LOCK holds the locks when it asks for room.
        let locks = file.locks.lock();
        let named = file.named.lock();
        let sequences = file.sequences.lock().entries();
        encode(&self.head, deletes, &named, &locks, &sequences)
    }

    /// Returns true if its record has room for `locks` locks and the name `named`.
    pub(crate) fn has_room(&self, named: &OpenName, locks: usize) -> bool {
        self.head.len() + fixed(named) + locks * LOCK <= MAX_CLIENT
    }

    /// Records the open as it is now; nothing, if it is being closed.
    pub(crate) fn note(&self, file: &File) -> OpResult<Option<Lsn>> {
        let erased = self.erased.lock();
        // Changes that do not fit were refused before.
        let Some(record) = self.encode(file).filter(|_| !*erased) else {
            return Ok(None);
        };
        let noted = self.all.records.replace(self.record, &record);
        noted
            .map(Some)
            .map_err(|stop| Stop::of_record(&self.all.records, stop))
    }

    /// Records the open as [`Persistent::note`] does, or in the background if the log has no room
    /// now.
    pub(crate) fn note_some_time(&self, file: &File) -> Option<Lsn> {
        if let Ok(lsn) = self.note(file) {
            return lsn;
        }
        let erased = self.erased.lock();
        if let Some(record) = self.encode(file).filter(|_| !*erased) {
            let records = &self.all.records;
            records.change_some_time(self.record, Some(&record));
        }
        None
    }

    /// Sets the deletion of the file. The next [`Persistent::note`] records it.
    pub(crate) fn deletes(&self, deletes: Deletes) {
        *self.deletes.lock() = deletes;
    }

    /// Returns true if its record is removed, because it is being closed.
    pub(crate) fn is_erased(&self) -> bool {
        *self.erased.lock()
    }

    /// Removes its record. Its claims must not be given up before the LSN is durable; `None`: it
    /// was removed before.
    pub(crate) fn erase(&self) -> OpResult<Option<Lsn>> {
        let mut erased = self.erased.lock();
        if *erased {
            return Ok(None);
        }
        let removed = self.all.records.remove(self.record);
        let lsn = removed.map_err(|stop| Stop::of_record(&self.all.records, stop))?;
        *erased = true;
        Ok(Some(lsn))
    }

    /// Removes its record some time: its claims are given up, and nobody waits.
    pub(crate) fn forget(&self) {
        let mut erased = self.erased.lock();
        if !std::mem::replace(&mut *erased, true) {
            self.all.records.change_some_time(self.record, None);
        }
    }
}

impl Open {
    /// Returns the fixed part of the record that the open has if it becomes persistent. `None`: it
    /// is no file or has no CreateGuid.
    pub(crate) fn head(
        &self,
        user: &str,
        share: u32,
        timeout: u32,
        lease: Option<leases::LeaseRequest>,
    ) -> Option<Head> {
        let (file, (guid, create_guid)) = (self.file()?, self.create_guid?);
        let level = match &self.hold {
            Hold::Oplock(oplock) => oplock.level(),
            Hold::Nothing | Hold::Lease(_) => leases::level::NONE,
        };
        Some(Head {
            id: self.id,
            timeout,
            guid,
            create_guid,
            address: self.owner.client.address,
            volume: file.id.volume,
            ino: file.id.ino,
            access: self.access,
            share: share as u8,
            posix: file.posix,
            action: self.action.load(Ordering::Relaxed) as u8,
            level,
            lease,
            user: user.to_owned(),
        })
    }

    /// Returns true if it outlives the server, and is not being closed.
    pub fn is_persistent(&self) -> bool {
        self.persistent.get().is_some_and(|p| !p.is_erased())
    }

    /// Returns its durability, as responses report it.
    pub fn durable(&self) -> Option<&Durable> {
        let persistent = self.persistent.get().map(|p| &p.durable);
        persistent.or(self.durable.as_ref())
    }
}

/// Files that CREATEs with persistent opens made before the start.
pub struct CreatedFiles {
    pub(crate) secret: SipKey,
    pub(crate) before: HashMap<CallKey, (VolumeId, Ino)>,
    /// End of the time in which clients may ask, on the monotonic clock.
    pub(crate) until: Duration,
}

/// The first byte of a key: those of NFSv3 begin with a number below 22, those of NFSv4 with 128
/// and more.
pub(crate) const FIRST: u8 = 0x40;

impl CreatedFiles {
    /// Collects the CREATEs that the log has at `now`, the start.
    pub fn new(secret: SipKey, done: &[DoneCall], now: Duration) -> CreatedFiles {
        let ours = done.iter().filter(|call| call.key.0[0] == FIRST);
        CreatedFiles {
            secret,
            before: ours
                .map(|call| (call.key, (call.volume, call.ino)))
                .collect(),
            until: now + Duration::from_secs(REPLY_AGE_RECOVERED.unsigned_abs()),
        }
    }

    /// Returns the log's key of the CREATE with this name.
    pub(crate) fn key(&self, (client, create): Name) -> CallKey {
        let mut hash = self.secret.hash128(&[&client, &create]).to_le_bytes();
        hash[0] = FIRST;
        CallKey(hash)
    }

    /// The file that a CREATE made before the start.
    pub(crate) fn before(&self, name: Name, now: Duration) -> Option<(VolumeId, Ino)> {
        if self.before.is_empty() || now >= self.until {
            return None;
        }
        self.before.get(&self.key(name)).copied()
    }
}

/// The sequences of a record.
pub(crate) fn sequences(all: &[(u8, u8)]) -> LockSequences {
    let mut out = LockSequences::default();
    let number = |(place, number): &(u8, u8)| u32::from(*place) << 4 | u32::from(*number);
    all.iter().map(number).for_each(|one| out.done(one));
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            id: 7,
            timeout: 30_000,
            guid: [1; 16],
            create_guid: [2; 16],
            address: [10, 0, 0, 1].into(),
            volume: VolumeId(3),
            ino: Ino(99),
            access: 0x1f_01ff,
            share: 3,
            posix: false,
            action: 2,
            level: 9,
            lease: None,
            user: "Alice".into(),
        }
    }

    fn held(start: u64) -> ByteRangeLock {
        ByteRangeLock {
            range: Range {
                start,
                last: start + 9,
            },
            exclusive: start.is_multiple_of(2),
        }
    }

    #[test]
    fn records_come_back() {
        let named = OpenName {
            dir: Some(Ino(2)),
            name: Box::from(&b"Gr\xfc\xdfe"[..]),
            path: "dir\\Grüße".into(),
        };
        let lease = |data: &[u8]| Some(leases::LeaseRequest::decode(data).unwrap());
        let mut second = [[5; 16], [7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        second.resize(52, 6);
        let heads = [
            head(),
            Head {
                address: "2001:db8::1".parse().unwrap(),
                lease: lease(&second),
                posix: true,
                ..head()
            },
            Head {
                lease: lease(&second[..32]),
                ..head()
            },
        ];
        for head in heads {
            let locks: Vec<ByteRangeLock> = (0..5).map(held).collect();
            let sequences = [(1, 5), (64, 15)];
            let bytes = head.encode().unwrap();
            let deletes = Deletes::Yes {
                when: DeleteMode::OnClose,
                alone: head.posix,
            };
            let bytes = encode(&bytes, deletes, &named, &locks, &sequences).unwrap();
            let read = OpenRecord::decode(&bytes).unwrap();
            assert_eq!(read.head.lease.map(|l| l.key), head.lease.map(|l| l.key));
            let again = read.head.encode().unwrap();
            assert!(bytes.starts_with(&again));
            assert_eq!(
                (&read.named, &read.locks, &*read.sequences),
                (&named, &locks, &sequences[..])
            );
            assert_eq!(read.deletes, deletes);
            assert_eq!(
                (read.head.address, read.head.share, read.head.posix),
                (head.address, head.share, head.posix)
            );
            let whole = bytes.len() - locks.len() * LOCK;
            for cut in 0..bytes.len() {
                let decoded = OpenRecord::decode(&bytes[..cut]);
                let between = cut >= whole && (cut - whole).is_multiple_of(LOCK);
                assert_eq!(decoded.is_ok(), between, "cut at {cut}");
            }
        }
    }

    #[test]
    fn deletions_are_bytes() {
        let known = (0..=u8::MAX).filter_map(|byte| Some((byte, Deletes::from_byte(byte)?)));
        let known: Vec<_> = known.collect();
        assert!(known.iter().all(|(byte, of)| of.byte() == *byte));
        let bytes: Vec<u8> = known.iter().map(|(byte, _)| *byte).collect();
        assert_eq!(bytes, [0, 1, 2, 5, 6]);
    }

    #[test]
    fn what_is_too_long_is_none() {
        let bytes = head().encode().unwrap();
        let mut named = OpenName {
            path: "p".repeat(300),
            ..OpenName::default()
        };
        let most = (MAX_CLIENT - bytes.len() - fixed(&named)) / LOCK;
        let locks: Vec<ByteRangeLock> = (0..most as u64 + 1).map(held).collect();
        let all: Vec<(u8, u8)> = (1..=64).map(|place| (place, 1)).collect();
        let longest = encode(&bytes, Deletes::No, &named, &locks[..most], &all).unwrap();
        assert!(longest.len() <= MAX_CLIENT && most > 10);
        assert_eq!(encode(&bytes, Deletes::No, &named, &locks, &[]), None);
        named.path = "p".repeat(MAX_CLIENT);
        assert_eq!(encode(&bytes, Deletes::No, &named, &[], &[]), None);
        let user = "u".repeat(256);
        assert_eq!(Head { user, ..head() }.encode(), None);
    }
}

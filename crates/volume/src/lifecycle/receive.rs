//! Receives a transfer: records of another volume's tree go into this one's.
//!
//! A transfer sends, in the order of their keys, the records in which two roots of the source
//! differ, and the blocks that differ. The destination's tree equals the older root, so when the
//! whole difference has been applied it equals the newer one: inode numbers, link counts, cookies
//! and all. Nothing above records has to be interpreted for that, and overlays are not used: no
//! client sees this tree before it is complete ([`crate::lifecycle::mirror`]).
//!
//! **Durability.** Nothing goes to the intent log. Records and pages are collected in a *batch*,
//! which the next checkpoint merges into the tree. The same checkpoint stores in the volume's own
//! record the key up to which the tree is the newer root. Nothing can come between the two, so an
//! interrupted transfer resumes exactly at its last checkpoint. If only the sender changes within
//! the same process, the transfer resumes at its last mark, batch included.
//!
//! **Bounds.** A checkpoint is requested when a batch has [`SOON`] bytes, and receiving pauses
//! while [`MOST`] bytes are on their way to the disk. That bounds the loss in a crash, and the
//! memory of a transfer. The next batch fills while one is written, so that the network does not
//! idle while the disk works.
//!
//! Received data is untrusted: keys must ascend, records must be well formed, and pages must have
//! the checksum that the source has stored for them.

use std::sync::Arc;
use std::time::Duration;

use weir_base::limits::engine::{RECEIVE_MOST as MOST, RECEIVE_SOON as SOON};
use weir_base::{BLOCK_SIZE, Ino, Time};
use weir_store::FrameMut;
use weir_store::block::page_crc;
use weir_store::node::Key;
use weir_store::tree::Edit;

use crate::format::catalog::{MAX_LABEL, MAX_VOLUME_NAME, TransferRec};
use crate::format::content::ContentHash;
use crate::format::hash::{DISAMBIGUATOR_BITS, HashKey, VARIANTS, hash_of};
use crate::format::record::{DirentRef, InodeRec, SYMLINK_PIECE, WINDOW, kind};
use crate::format::side;
use crate::lifecycle::mirror::Position;
use crate::overlay::context::EngineContext;
use crate::overlay::delta::Charge;
use crate::overlay::transfer_state::{Batch, ChangedWindow, TransferHeader};
use crate::overlay::volume::{LiveVolume, Volume};
use crate::types::{Backpressure, FileKind, FsError, ReplacementKind, Stop};
use weir_base::SnapshotIdentity;

/// Approximate memory in bytes of a record besides its value.
const RECORD_BYTES: u64 = 64;

/// Progress of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Position before which everything has been received.
    pub position: Position,
    /// Digest of the received data, for sources that compute one.
    pub digest: u64,
    /// Bytes received, before compression.
    pub logical: u64,
    /// Bytes received on the wire, after compression.
    pub wire: u64,
}

impl Volume {
    /// Begins to receive, or resumes an interrupted transfer at [`Receive::mark`]. The data of a
    /// different interrupted transfer is discarded.
    ///
    /// # Errors
    /// `Invalid` if the volume is not a destination, or `incoming` is inconsistent; `Busy` if a
    /// transfer is being received already; `CrossDevice` if clients do not see the base; `Exists`
    /// if the snapshot exists; `ReadOnly`; `Stale`.
    pub fn receive(self: &Arc<Self>, incoming: &TransferHeader) -> Result<Receive, FsError> {
        let names = incoming.name.len() <= MAX_VOLUME_NAME && incoming.label.len() <= MAX_LABEL;
        if incoming.name.is_empty() || !names || incoming.next_ino >= 1 << 62 {
            return Err(FsError::Invalid);
        }
        let fits = |transfer: &TransferRec| {
            transfer.base == incoming.base && transfer.target == incoming.target
        };
        let vol = self.to_live()?;
        let live = vol.live();
        let _admin = live.admin.lock();
        self.writable().map_err(Stop::refusal)?;
        let other = {
            let receiving = live.receiving.lock();
            receiving.idle()?;
            let rec = receiving.rec.ok_or(FsError::Invalid)?;
            let snaps = live.snaps.lock();
            if snaps.with_identity(incoming.target).is_some() {
                return Err(FsError::Exists);
            }
            let exported = match rec.exported {
                0 => None,
                id => Some(snaps.identity(id).ok_or(FsError::Stale)?),
            };
            let known = self.key.get() == HashKey(incoming.key.0, incoming.key.1);
            if exported != incoming.base || exported.is_some() && !known {
                return Err(FsError::CrossDevice);
            }
            rec.transfer.is_some_and(|t| !fits(&t))
        };
        if other {
            vol.discard()?;
        }
        let mut receiving = live.receiving.lock();
        let rec = receiving.rec.as_mut().ok_or(FsError::Invalid)?;
        if rec.exported == 0 {
            self.key.set(HashKey(incoming.key.0, incoming.key.1));
        }
        let transfer = rec.transfer.get_or_insert(TransferRec {
            base: incoming.base,
            target: incoming.target,
            position: Key::MIN,
            digest: 0,
            logical: 0,
            wire: 0,
        });
        let (position, logical) = (transfer.position, transfer.logical);
        receiving.begin(logical);
        drop(receiving);
        self.counters.begin_inodes_at(incoming.next_ino);
        Ok(Receive {
            vol: vol.clone(),
            incoming: incoming.clone(),
            last: position,
            next: Batch::default(),
        })
    }
}

/// A transfer into a volume. Dropping it ends the transfer; received data is kept.
pub struct Receive {
    vol: LiveVolume,
    incoming: TransferHeader,
    /// Lower bound of further keys.
    last: Key,
    /// Data received since the last mark.
    next: Batch,
}

impl Drop for Receive {
    fn drop(&mut self) {
        self.vol.live().receiving.lock().end();
    }
}

fn key_of(at: Position) -> Key {
    Key::decode(&at.0)
}

/// Returns true if a volume's tree can contain such a record.
fn well_formed(key: Key, value: &[u8]) -> bool {
    match key.kind {
        kind::INODE => key.ino != 0 && key.sub == 0 && InodeRec::decode(value).is_some(),
        kind::SYMLINK => key.ino != 0 && key.sub < 8 && value.len() <= SYMLINK_PIECE,
        kind::DIRENT => {
            let place = key.sub >= 1 << DISAMBIGUATOR_BITS && key.sub - hash_of(key.sub) < VARIANTS;
            let entry = DirentRef::decode(value);
            key.ino != 0 && place && entry.is_some_and(|e| is_valid_name(e.name))
        }
        kind::STREAM => {
            let entry = DirentRef::decode(value);
            key.ino != 0
                && entry.is_some_and(|e| e.kind == FileKind::Regular && is_valid_name(e.name))
        }
        kind::ORPHAN => key.ino == 0 && value.is_empty(),
        kind::XATTR | kind::ACL | kind::TOKEN => side::well_formed(key, value),
        _ => false,
    }
}

/// Returns true if a volume's tree can contain such a record: the entry for fuzzing.
pub fn verify_tree_record(at: Position, value: &[u8]) -> bool {
    let key = key_of(at);
    let good = well_formed(key, value);
    if let (kind::INODE, Some(rec)) = (key.kind, InodeRec::decode(value)) {
        let mut again = Vec::new();
        rec.encode(&mut again);
        assert_eq!(again, value, "an inode has one form");
    }
    good
}

/// A record of an inode that leads to another inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads<'v> {
    /// An entry of a directory.
    Entry {
        /// Its name.
        name: &'v [u8],
        /// The inode of that name.
        ino: Ino,
    },
    /// A named stream of a file.
    Stream {
        /// The stream's inode.
        ino: Ino,
    },
}

/// Returns the inode that a sent record leads to; `None` for other records.
pub fn leads(at: Position, value: &[u8]) -> Option<Leads<'_>> {
    let kind = key_of(at).kind;
    if !matches!(kind, kind::DIRENT | kind::STREAM) {
        return None;
    }
    let DirentRef { ino, name, .. } = DirentRef::decode(value)?;
    Some(match kind {
        kind::STREAM => Leads::Stream { ino },
        _ => Leads::Entry { name, ino },
    })
}

fn is_valid_name(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

impl Receive {
    /// Returns the position from which the transfer resumes.
    pub fn mark(&self) -> Mark {
        let receiving = self.vol.live().receiving.lock();
        let transfer = receiving.rec.and_then(|rec| rec.transfer);
        transfer.map_or(
            Mark {
                position: Position::START,
                digest: 0,
                logical: 0,
                wire: 0,
            },
            |t| Mark {
                position: Position(t.position.encode()),
                digest: t.digest,
                logical: t.logical,
                wire: t.wire,
            },
        )
    }

    /// Returns the number of durable bytes of the transfer, before compression.
    pub fn durable(&self) -> u64 {
        self.vol.live().receiving.lock().durable()
    }

    fn ascend(&mut self, key: Key) -> Result<(), FsError> {
        if key < self.last {
            return Err(FsError::Invalid);
        }
        self.last = key;
        Ok(())
    }

    /// Receives a record with this value.
    ///
    /// # Errors
    /// `Invalid` for an invalid record, or one out of order; `NotSupported` for an inode in a tree,
    /// if the format has none.
    pub fn put(&mut self, at: Position, value: &[u8]) -> Result<(), FsError> {
        let key = key_of(at);
        if !well_formed(key, value) {
            return Err(FsError::Invalid);
        }
        let in_tree = || InodeRec::decode(value).is_some_and(|rec| rec.tree != 0);
        if key.kind == kind::INODE && !self.vol.core.has_trees() && in_tree() {
            tracing::error!(volume = %self.vol.id, "cannot receive an inode of a qtree: the data folder has no qtrees (stop the server and run `weir upgrade`)");
            return Err(FsError::NotSupported);
        }
        self.ascend(key)?;
        self.next.bytes += RECORD_BYTES + value.len() as u64;
        self.next.records.push(Edit::Put(key, value.to_vec()));
        Ok(())
    }

    /// Receives the removal of a record.
    ///
    /// # Errors
    /// As [`Receive::put`].
    pub fn gone(&mut self, at: Position) -> Result<(), FsError> {
        let key = key_of(at);
        let kinds = [
            kind::INODE,
            kind::SYMLINK,
            kind::DIRENT,
            kind::ORPHAN,
            kind::XATTR,
            kind::ACL,
            kind::STREAM,
            kind::TOKEN,
        ];
        if !kinds.contains(&key.kind) {
            return Err(FsError::Invalid);
        }
        self.ascend(key)?;
        self.next.bytes += RECORD_BYTES;
        self.next.records.push(Edit::Del(key));
        Ok(())
    }

    /// Receives blocks of the window of 32 file blocks at `at`. Those in `holes` are holes; those
    /// in `puts` have the contents in `pages`, 4096 bytes each in order, with checksums to match.
    /// May be called several times for a window, each time with a part of it. Blocks the thread for
    /// memory.
    ///
    /// # Errors
    /// `Invalid` for invalid data, or data out of order; `Io` if a page does not match its
    /// checksum; `ReadOnly`, `Delay`.
    pub fn data(
        &mut self,
        at: Position,
        puts: u32,
        holes: u32,
        crcs: &[u32],
        pages: &[u8],
    ) -> Result<(), FsError> {
        let key = key_of(at);
        let count = puts.count_ones() as usize;
        let window = key.kind == kind::EXTENT && key.ino != 0 && key.sub % WINDOW == 0;
        let (blocks, rest) = pages.as_chunks::<BLOCK_SIZE>();
        let whole = rest.is_empty() && blocks.len() == count && crcs.len() == count;
        if !window || !whole || puts & holes != 0 || puts | holes == 0 {
            return Err(FsError::Invalid);
        }
        self.ascend(key)?;
        for (block, crc) in blocks.iter().zip(crcs) {
            if page_crc(block) != *crc {
                return Err(FsError::Io);
            }
        }
        let places = (0..WINDOW as u8).filter(|i| puts >> i & 1 == 1);
        for (place, block) in places.zip(blocks) {
            let mut frame = self.frame()?;
            frame.copy_from_slice(block);
            self.next.pages.push((place, frame.freeze()));
        }
        self.next.bytes += RECORD_BYTES + (count * BLOCK_SIZE) as u64;
        match self.next.windows.last_mut().filter(|last| last.key == key) {
            // Two parts of a window between two marks: the sender does not do that, but could.
            Some(_) => return Err(FsError::Invalid),
            None => self.next.windows.push(ChangedWindow {
                key,
                holes,
                pages: count,
            }),
        }
        Ok(())
    }

    fn frame(&self) -> Result<FrameMut, FsError> {
        let mut cx = EngineContext::new(Time::EPOCH);
        self.vol.drive_blocking(&mut cx, |_| self.vol.frame())
    }

    /// Ends the group of records received since the last mark, which belong together. Blocks the
    /// thread under back-pressure of the engine.
    ///
    /// # Errors
    /// `Invalid` if the mark is before the received data; `NoSpace`; `ReadOnly`, `Delay`, `Stale`.
    pub fn commit(&mut self, mark: Mark) -> Result<(), FsError> {
        let position = key_of(mark.position);
        if position < self.last {
            return Err(FsError::Invalid);
        }
        let vol = &self.vol;
        let next = &mut self.next;
        // A leaf for each record, unless all are new and come side by side.
        let leaves = match self.incoming.base {
            Some(_) => next.records.len() as u64,
            None => next.records.len() as u64 / 8,
        };
        let windows = next.windows.len() as u64;
        let pages = next.pages.len() as u64;
        let mut cx = EngineContext::new(Time::EPOCH);
        let charge = vol.drive_blocking(&mut cx, |cx| {
            let blocks = pages + windows + leaves + 2;
            let mut reservation = vol.reserve(cx, blocks)?;
            vol.core.schedule.admit(0)?;
            Ok(reservation.take(blocks))
        })?;
        next.charge = Charge {
            pages,
            heap: next.bytes - pages * BLOCK_SIZE as u64,
            ..charge
        };
        vol.space.charge(charge.blocks);
        vol.core.totals().add(next.charge);
        let (staged, in_flight) = {
            // A checkpoint either contains the batch, or is not one that the caller waits for.
            let _pass = vol.core.epoch_lock().enter();
            let mut receiving = vol.live().receiving.lock();
            let staged = receiving.add(next, vol.core.agg.clock().monotonic());
            if let Some(transfer) = receiving.rec.as_mut().and_then(|r| r.transfer.as_mut()) {
                transfer.position = position;
                transfer.digest = mark.digest;
                transfer.logical = mark.logical;
                transfer.wire = mark.wire;
            }
            vol.core.schedule.note_changed(vol.id);
            staged
        };
        self.last = position;
        if staged >= SOON {
            vol.core.schedule.want(vol.core.epoch_lock().epoch());
        }
        if staged + in_flight >= MOST {
            let epoch = vol.core.epoch_lock().epoch();
            let running = if in_flight > 0 { epoch - 1 } else { epoch };
            let stop = Stop::Wait(Backpressure::Epoch(running));
            vol.resume_blocking(&mut cx, stop)?;
        }
        Ok(())
    }

    /// Requests a checkpoint if received data has waited for one for longer than `age`.
    pub fn age(&self, age: Duration) {
        let now = self.vol.core.agg.clock().monotonic();
        let since = self.vol.live().receiving.lock().since();
        // Saturates: the numbers are times.
        if since.is_some_and(|since| now.saturating_sub(since) >= age) {
            self.vol
                .core
                .schedule
                .want(self.vol.core.epoch_lock().epoch());
        }
    }

    /// Makes all data up to the mark durable. Blocks the thread.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn checkpoint(&self) -> Result<(), FsError> {
        self.vol.core.schedule.cp_now()
    }

    /// Returns the base of the difference.
    pub(crate) fn base(&self) -> Option<SnapshotIdentity> {
        self.incoming.base
    }

    /// Completes the transfer: everything has been received, and is verified to equal the source
    /// ([`Receive::content_walk`]). The volume becomes the snapshot, which clients see from now on.
    /// Returns the snapshot's number in this volume. Durable on return.
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace` if there can be no more snapshots.
    pub fn finish(self, content: ContentHash) -> Result<u32, FsError> {
        let vol = &self.vol;
        {
            let _pass = vol.core.epoch_lock().enter();
            let mut receiving = vol.live().receiving.lock();
            assert!(
                receiving.batch.is_empty(),
                "what was proven is not all that has come"
            );
            receiving.batch.arriving = Some((self.incoming.clone(), content));
            vol.core.schedule.note_changed(vol.id);
        }
        let done = vol.core.schedule.cp_now();
        vol.core.replaced(vol.id, ReplacementKind::Content);
        done?;
        let found = vol.snapshot_with(self.incoming.target);
        found.map(|s| s.id).ok_or(FsError::NoSpace)
    }

    /// Discards the received data as unreliable: the next transfer begins from its start. Blocks
    /// the thread.
    ///
    /// # Errors
    /// `ReadOnly`, `Stale`.
    pub fn discard(self) -> Result<(), FsError> {
        let vol = self.vol.clone();
        drop(self);
        let _admin = vol.live().admin.lock();
        vol.discard()
    }

    /// Returns the volume that the transfer writes.
    pub fn volume(&self) -> &Arc<Volume> {
        self.vol.volume()
    }
}

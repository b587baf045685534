//! CLOSE, FLUSH, READ, WRITE and LOCK (MS-SMB2 §3.3.5.10 to §3.3.5.14).
//!
//! **Durability.** A WRITE is in memory when it is answered, as NFS's UNSTABLE is; FLUSH makes all
//! before it durable, as COMMIT does. If the open or the WRITE asks for WRITE_THROUGH, or the open
//! is persistent, it is one stable write, as NFS's FILE_SYNC is, and durable when it is answered.
//! CLOSE makes nothing durable. Locks are durable of persistent opens alone
//! ([`crate::open::persistent`]).

use crate::context::lock_wait::LockWait;
use crate::context::run::{CommandResult, Failure, Run};
use crate::context::step::{Step, UnlockedRanges};
use crate::info::attributes::NetworkOpenInfo;
use crate::open::session::{Access, ByteRangeLock, File, Kind, MAX_LOCKS, Open, Session};
use crate::ops::streams::merged;
use crate::proto::dialect::{Dialect, MAX_TRANSFER};
use crate::proto::status::Status;
use crate::proto::{filter, mask};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_auth::wire::{Put, Reader, part};
use weir_base::Lsn;
use weir_vfs::claims::{Lock, Range, Verdict};
use weir_vfs::grace::Kinds;
use weir_vfs::volume::{Attr, FileKind, Stability};
use weir_vfs::{DataRead, DataWrite, Error, Exempt, MetadataRead, Stop, Suspend};

/// Bytes of a READ up to which they are copied: by reference they would cost more.
const COPIED: usize = 4096;
/// SMB2_READFLAG_REQUEST_COMPRESSED (§2.2.19).
const REQUEST_COMPRESSED: u8 = 2;
/// Bit of a WRITE: it is to be durable (§2.2.21).
const WRITE_THROUGH: u32 = 1;
/// Offset of a WRITE at the file's end (§3.3.5.13).
const AT_END: u64 = u64::MAX;
/// Bits of a lock (§2.2.26.1).
const SHARED: u32 = 1;
const EXCLUSIVE: u32 = 2;
const UNLOCK: u32 = 4;
const FAIL_IMMEDIATELY: u32 = 0x10;

/// The file that is open, for what a pipe cannot do.
fn file_of(open: &Open) -> Result<&File, Status> {
    open.file().ok_or(Status::INVALID_DEVICE_REQUEST)
}

impl Run<'_> {
    /// CLOSE (§3.3.5.10).
    pub(crate) fn close(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 24 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let wants_attributes = r.u16()? & 1 != 0;
        r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        let session = self.session()?;
        let (deletion, attr) = match std::mem::take(&mut self.c.step) {
            Step::Deleting(deletion, attr) => (Some(*deletion), attr),
            step => {
                let (open, attr) = match step {
                    Step::Erased(open, attr) => (open, attr),
                    _ => {
                        let open = self.open(halves)?;
                        let attr = match (wants_attributes, open.file()) {
                            (true, Some(file)) => self.attr(&session, &open, file)?,
                            _ => None,
                        };
                        if let Some(persistent) = open.persistent.get()
                            && let Some(lsn) = persistent.erase()?
                        {
                            // The record is removed durably before another client can profit from
                            // the close.
                            self.c.step = Step::Erased(open, attr);
                            return Err(self.recorded(lsn));
                        }
                        (open, attr)
                    }
                };
                session.take(open.id);
                let end = || open.end(&self.s.vfs, &self.s.leases);
                let file = open.file();
                let deletion = match file {
                    Some(file) => self.s.news.deletions.close(file.id, end),
                    None => {
                        end();
                        None
                    }
                };
                if let (Some(file), None) = (file, &deletion) {
                    let bits = file.unreported.load(Ordering::Relaxed);
                    if bits != 0 {
                        self.modified(&session, &open, bits);
                    }
                    if file.directory() && self.s.vfs.claims.delete_pending(file.id) {
                        self.s.watches.goes(file.id);
                    }
                }
                (deletion, attr)
            }
        };
        if let Some(deletion) = deletion {
            match self.s.remove(&deletion, &mut self.c.cx) {
                Ok(lsn) => self.c.wait_for(lsn),
                Err(Stop::Failed(error)) => {
                    tracing::debug!(?error, "a file to be deleted with its last close stays");
                }
                Err(Stop::Suspended(suspend)) => {
                    self.c.step = Step::Deleting(Box::new(deletion), attr);
                    return Err(suspend.into());
                }
            }
        }
        let out = &mut self.c.out;
        out.put_u16(60);
        out.put_u16(u16::from(attr.is_some()));
        out.put_u32(0);
        match attr {
            Some(attr) => NetworkOpenInfo::from_attr(&attr).put(out),
            None => out.put_zeroes(52),
        }
        Ok(Status::SUCCESS)
    }

    /// Suspends a command until a change of a record is durable.
    pub(crate) fn recorded(&self, lsn: Lsn) -> Stop<Failure> {
        let records = Arc::clone(&self.s.leases.persistents.records);
        Suspend::Record(records, lsn).into()
    }

    /// The attributes of an open file, if it still has any.
    pub(crate) fn attr(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
    ) -> Result<Option<Attr>, Stop<Failure>> {
        let (operand, _) = match self.enter(session, file.id, Access::Open(open), MetadataRead) {
            Err(Stop::Failed(Failure::Status(_))) => return Ok(None),
            entered => entered?,
        };
        let attr = match operand.getattr(&mut self.c.cx) {
            Err(Stop::Failed(_)) => return Ok(None),
            attr => attr?,
        };
        match self.whole(session, open, file, attr) {
            Err(Stop::Failed(Failure::Status(_))) => Ok(None),
            attr => Ok(Some(attr?)),
        }
    }

    /// The attributes of an open as clients see them, of those that its inode has.
    pub(crate) fn whole(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        attr: Attr,
    ) -> Result<Attr, Stop<Failure>> {
        let Some(base) = file.base else {
            return Ok(attr);
        };
        let (operand, _) = self.enter(
            session,
            base.id,
            Access::Made(&open.owner, &open.owner.who),
            MetadataRead,
        )?;
        let base = operand.getattr(&mut self.c.cx)?;
        Ok(merged(&base, &attr))
    }

    /// FLUSH (§3.3.5.11).
    pub(crate) fn flush(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 24 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        r.bytes(6)?;
        let halves = (r.u64()?, r.u64()?);
        let (session, open) = (self.session()?, self.open(halves)?);
        if let Some(file) = open.file() {
            if open.access & (mask::WRITE_DATA | mask::APPEND_DATA) == 0 {
                return Err(Status::ACCESS_DENIED.into());
            }
            // Changes of a directory are durable when they are answered.
            if !file.directory() {
                self.commit(&session, &open, file, (0, 0))?;
            }
        }
        self.c.out.put_u16(4);
        self.c.out.put_u16(0);
        Ok(Status::SUCCESS)
    }

    /// Makes what was written to a range of an open file durable before the response; of all of it,
    /// if the length is 0.
    pub(crate) fn commit(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        (offset, len): (u64, u64),
    ) -> Result<(), Stop<Failure>> {
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), Exempt)?;
        let done = operand.commit(&mut self.c.cx, charged, offset, len)?;
        self.c.wait_for(done.lsn);
        Ok(())
    }

    /// READ (§3.3.5.12).
    pub(crate) fn read(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 49 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (_padding, flags) = (r.u8()?, r.u8()?);
        let (len, offset) = (r.u32()?, r.u64()?);
        let halves = (r.u64()?, r.u64()?);
        let least = r.u32()?;
        if len > MAX_TRANSFER {
            return Err(Status::INVALID_PARAMETER.into());
        }
        self.charged(len as usize)?;
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = match &open.kind {
            Kind::Pipe(pipe) => {
                let (data, more) = pipe.lock().read(len as usize);
                if data.is_empty() {
                    return Err(Status::END_OF_FILE.into());
                }
                put_read(&mut self.c.out, data.len());
                self.c.out.put(&data);
                return Ok(match more {
                    true => Status::BUFFER_OVERFLOW,
                    false => Status::SUCCESS,
                });
            }
            Kind::File(file) => file,
            Kind::Quotas(..) => return Err(Status::INVALID_DEVICE_REQUEST.into()),
        };
        if file.directory() {
            return Err(Status::INVALID_DEVICE_REQUEST.into());
        }
        if open.access & (mask::READ_DATA | mask::EXECUTE) == 0 {
            return Err(Status::ACCESS_DENIED.into());
        }
        if offset > i64::MAX as u64 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if len == 0 && least == 0 {
            // No lock is in the way of nothing.
            put_read(&mut self.c.out, 0);
            return Ok(Status::SUCCESS);
        }
        let cost = DataRead(len as usize);
        let (operand, charged) = self.enter(&session, file.id, Access::Open(&open), cost)?;
        let data = match operand.read(&mut self.c.cx, charged, offset) {
            Err(Stop::Failed(Error::Locked)) => {
                return Err(Status::FILE_LOCK_CONFLICT.into());
            }
            data => data?,
        };
        let past = offset >= data.attr.size;
        if past || data.len < least as usize {
            return Err(Status::END_OF_FILE.into());
        }
        let end = offset + data.len as u64;
        file.position.store(end, Ordering::Relaxed);
        put_read(&mut self.c.out, data.len);
        match data.len {
            0..=COPIED => data.slices().for_each(|slice| self.c.out.put(slice)),
            _ => {
                self.c.payload = Some(Box::new(data));
                if flags & REQUEST_COMPRESSED != 0 {
                    self.c.compresses = self.conn.compression();
                }
            }
        }
        Ok(Status::SUCCESS)
    }

    /// WRITE (§3.3.5.13).
    pub(crate) fn write(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 49 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (at, len, offset) = (usize::from(r.u16()?), r.u32()?, r.u64()?);
        let halves = (r.u64()?, r.u64()?);
        r.u64()?;
        let flags = {
            r.u32()?;
            r.u32()?
        };
        if len > MAX_TRANSFER {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let data = part(self.message, at, len as usize)?;
        self.charged(data.len())?;
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = match &open.kind {
            Kind::Pipe(pipe) => {
                self.transact(pipe, data)?;
                put_written(&mut self.c.out, data.len());
                return Ok(Status::SUCCESS);
            }
            Kind::File(file) => file,
            Kind::Quotas(..) => return Err(Status::INVALID_DEVICE_REQUEST.into()),
        };
        if file.directory() {
            return Err(Status::INVALID_DEVICE_REQUEST.into());
        }
        let appends = open.may(mask::APPEND_DATA) && !open.may(mask::WRITE_DATA);
        if !open.may(mask::WRITE_DATA) && !appends {
            return Err(Status::ACCESS_DENIED.into());
        }
        if offset != AT_END
            && offset
                .checked_add(data.len() as u64)
                .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let how = match open.writes_through() || flags & WRITE_THROUGH != 0 {
            true => Stability::FileSync,
            false => Stability::Unstable,
        };
        let written = self.write_all(&session, &open, file, (offset, appends), data, how)?;
        if offset != AT_END {
            file.position
                .store(offset + written as u64, Ordering::Relaxed);
        }
        put_written(&mut self.c.out, written);
        Ok(Status::SUCCESS)
    }

    /// Writes all of `data` to an open file, at `offset` or at its end. A stable write may be cut
    /// to one record of the log; then the rest is an operation of its own, charged for itself.
    fn write_all(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        (offset, appends): (u64, bool),
        data: &[u8],
        how: Stability,
    ) -> Result<usize, Stop<Failure>> {
        let mut written = match self.c.step {
            Step::Written(written) => written,
            _ => 0,
        };
        loop {
            let rest = data.get(written..).unwrap_or_default();
            let cost = DataWrite(rest.len());
            let (operand, charged) = self.enter(session, file.id, Access::Open(open), cost)?;
            if rest.is_empty() {
                break;
            }
            let (cx, at) = (&mut self.c.cx, || offset + written as u64);
            let done = match (offset, appends) {
                (AT_END, _) => operand.append(cx, charged, rest),
                (_, true) => operand.append_at(cx, charged, at(), rest, how),
                (_, false) => operand.write(cx, charged, at(), rest, how),
            };
            let done = match done {
                Err(Stop::Failed(Error::Locked)) => {
                    return Err(Status::FILE_LOCK_CONFLICT.into());
                }
                done => done?,
            };
            self.c.wait_for(done.lsn);
            if written == 0 {
                self.s.leases.changes(&open.hold);
                open.changed(filter::SIZE | filter::LAST_WRITE);
            }
            written += done.value.len;
            self.c.step = Step::Written(written);
            if written >= data.len() {
                break;
            }
            self.c.renew(&self.s.vfs);
        }
        if offset == AT_END && how != Stability::Unstable {
            self.commit(session, open, file, (0, 0))?;
        }
        Ok(written)
    }

    /// LOCK (§3.3.5.14).
    pub(crate) fn lock(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 48 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if let Step::Waits(waiting) = &self.c.step
            && waiting.is_over()
        {
            // Its open was closed meanwhile.
            return Err(Status::RANGE_NOT_LOCKED.into());
        }
        let count = usize::from(r.u16()?);
        let sequence = r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        if count == 0 || r.rest().len() < 24 * count {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = file_of(&open)?;
        if file.directory() {
            return Err(Status::INVALID_DEVICE_REQUEST.into());
        }
        // A client without access to the data must not keep others from them.
        let data = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
        if open.access & data == 0 {
            return Err(Status::ACCESS_DENIED.into());
        }
        // It costs nothing, but it is of a file that the session may use.
        let access = Access::Open(&open);
        let _ = self.enter(&session, file.id, access, Exempt)?;
        let freed = match std::mem::take(&mut self.c.step) {
            // Its ranges are unlocked now that this is recorded.
            Step::Recorded(freed) => {
                drop(freed);
                put_locked(&mut self.c.out);
                return Ok(Status::SUCCESS);
            }
            Step::Locked(freed) => freed,
            step => {
                self.c.step = step;
                // Only clients that may lose a channel, or the open's session, send again what was
                // done.
                let repeats =
                    session.negotiated.dialect >= Dialect::Smb300 || open.durable().is_some();
                let sequence = Some(sequence).filter(|_| repeats);
                if sequence.is_some_and(|sequence| file.sequences.lock().was_done(sequence)) {
                    put_locked(&mut self.c.out);
                    return Ok(Status::SUCCESS);
                }
                if !matches!(self.c.step, Step::Waits(_)) && locks(&r) && file.base.is_none() {
                    self.outlast_grace(Kinds::against_lock(true), file.id)?;
                }
                let freed = self.lock_all(&open, file, count, r)?;
                if let Some(sequence) = sequence {
                    file.sequences.lock().done(sequence);
                }
                freed
            }
        };
        if let Some(persistent) = open.persistent.get() {
            let lsn = match persistent.note(file) {
                Ok(lsn) => lsn,
                Err(why) => {
                    self.c.step = Step::Locked(freed);
                    return Err(why.into());
                }
            };
            match lsn {
                Some(lsn) if !freed.is_empty() => {
                    // The unlock is durable before another client can profit from it.
                    self.c.step = Step::Recorded(freed);
                    return Err(self.recorded(lsn));
                }
                lsn => self.c.wait_for(lsn),
            }
        }
        put_locked(&mut self.c.out);
        Ok(Status::SUCCESS)
    }

    /// Locks and unlocks what a LOCK says, all or none; what was unlocked stays so (§3.3.5.14.1),
    /// and is freed when what is returned is dropped.
    fn lock_all(
        &mut self,
        open: &Arc<Open>,
        file: &File,
        count: usize,
        mut r: Reader<'_>,
    ) -> Result<UnlockedRanges, Stop<Failure>> {
        let mut freed = UnlockedRanges {
            vfs: Arc::clone(&self.s.vfs),
            open: Arc::clone(open),
            ranges: Vec::new(),
        };
        let mut locked: Vec<Range> = Vec::new();
        let mut unlocks = None;
        for _ in 0..count {
            let (offset, len, flags) = (r.u64()?, r.u64()?, r.u32()?);
            r.u32()?;
            // The first says which of the two the request is (§3.3.5.14).
            let unlocks = *unlocks.get_or_insert(flags & UNLOCK != 0);
            let range = Range::exact(offset, len).ok_or(Status::INVALID_LOCK_RANGE);
            let result = match (range, unlocks, flags & !FAIL_IMMEDIATELY) {
                (Ok(range), true, UNLOCK) if flags == UNLOCK => {
                    take_lock(file, range).map(|()| freed.ranges.push(range))
                }
                (Ok(range), false, kind @ (SHARED | EXCLUSIVE))
                    if count == 1 && flags & FAIL_IMMEDIATELY == 0 =>
                {
                    self.lock_waiting(open, file, range, kind == EXCLUSIVE)
                }
                // Several wait for nothing (§3.3.5.14.2).
                (Ok(_), false, SHARED | EXCLUSIVE) if flags & FAIL_IMMEDIATELY == 0 => {
                    Err(Status::INVALID_PARAMETER.into())
                }
                (Ok(range), false, kind @ (SHARED | EXCLUSIVE)) => self
                    .lock_one(open, file, range, kind == EXCLUSIVE)
                    .inspect(|()| locked.push(range)),
                (Err(status), ..) => Err(status.into()),
                _ => Err(Status::INVALID_PARAMETER.into()),
            };
            if let Err(why) = result {
                for range in locked {
                    // It is there: it was locked a moment ago.
                    if take_lock(file, range).is_ok() {
                        freed.ranges.push(range);
                    }
                }
                if let Some(persistent) = open.persistent.get()
                    && !freed.is_empty()
                {
                    let _ = persistent.note_some_time(file);
                }
                return Err(why);
            }
        }
        Ok(freed)
    }

    fn lock_one(
        &self,
        open: &Arc<Open>,
        file: &File,
        range: Range,
        exclusive: bool,
    ) -> Result<(), Stop<Failure>> {
        let mut locks = file.locks.lock();
        if !has_room(open, file, locks.len() + 1) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let want = Lock {
            owner: open.owner.clone(),
            range,
            exclusive,
            mandatory: true,
        };
        let claims = &self.s.vfs.claims;
        let ask = || claims.lock(file.id, &want, &open.key, false);
        let full = |verdict: &Verdict| *verdict == Verdict::Full;
        match self.s.with_room(want.owner.client.address, ask, full) {
            Verdict::Granted => {
                self.s.leases.changes(&open.hold);
                locks.push(ByteRangeLock { range, exclusive });
                Ok(())
            }
            Verdict::Denied(_) | Verdict::Queued | Verdict::Deadlock => {
                Err(Status::LOCK_NOT_GRANTED.into())
            }
            Verdict::Breaking(ticket) => Err(Suspend::Recall(ticket).into()),
            Verdict::Full => Err(Status::INSUFFICIENT_RESOURCES.into()),
        }
    }

    /// Locks a range, or waits until that is possible.
    fn lock_waiting(
        &mut self,
        open: &Arc<Open>,
        file: &File,
        range: Range,
        exclusive: bool,
    ) -> Result<(), Stop<Failure>> {
        let mut waiting = match std::mem::take(&mut self.c.step) {
            Step::Waits(waiting) => waiting,
            _ => {
                if !has_room(open, file, file.locks.lock().len() + 1) {
                    return Err(Status::INSUFFICIENT_RESOURCES.into());
                }
                let want = Lock {
                    owner: open.owner.clone(),
                    range,
                    exclusive,
                    mandatory: true,
                };
                let ask = || LockWait::request_lock(self.s, file.id, want.clone(), &open.key);
                let full = |asked: &(Verdict, _)| asked.0 == Verdict::Full;
                match self.s.with_room(want.owner.client.address, ask, full) {
                    (Verdict::Queued, Some(waiting)) => Box::new(waiting),
                    (Verdict::Granted, _) => {
                        self.s.leases.changes(&open.hold);
                        file.locks.lock().push(ByteRangeLock { range, exclusive });
                        return Ok(());
                    }
                    (Verdict::Breaking(ticket), _) => return Err(Suspend::Recall(ticket).into()),
                    (Verdict::Full, _) => return Err(Status::INSUFFICIENT_RESOURCES.into()),
                    _ => return Err(Status::LOCK_NOT_GRANTED.into()),
                }
            }
        };
        match waiting.take() {
            true => {
                let mut locks = file.locks.lock();
                if !has_room(open, file, locks.len() + 1) {
                    drop(locks);
                    let claims = &self.s.vfs.claims;
                    claims.unlock_exact(file.id, &open.owner, range);
                    return Err(Status::INSUFFICIENT_RESOURCES.into());
                }
                locks.push(ByteRangeLock { range, exclusive });
                Ok(())
            }
            false => {
                let over = waiting.end_signal();
                self.c.step = Step::Waits(waiting);
                Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
                    over.settled().await;
                }))))
            }
        }
    }
}

/// Returns true if an open may have `locks` ranges locked.
fn has_room(open: &Open, file: &File, locks: usize) -> bool {
    let recorded = open.persistent.get();
    locks <= MAX_LOCKS && recorded.is_none_or(|p| p.has_room(&file.named.lock(), locks))
}

/// Returns true if a LOCK locks ranges rather than unlocks them, as its first element says.
fn locks(elements: &Reader<'_>) -> bool {
    let flags = elements.rest().get(16..20);
    flags
        .and_then(|flags| flags.first())
        .is_some_and(|flags| u32::from(*flags) & UNLOCK == 0)
}

/// Takes out a range that an open has locked.
fn take_lock(file: &File, range: Range) -> Result<(), Stop<Failure>> {
    let mut locks = file.locks.lock();
    let at = locks.iter().position(|held| held.range == range);
    let at = at.ok_or(Status::RANGE_NOT_LOCKED)?;
    locks.swap_remove(at);
    Ok(())
}

/// The body of the response to LOCK.
fn put_locked(out: &mut Vec<u8>) {
    out.put_u16(4);
    out.put_u16(0);
}

/// Returns true for a file with data that can be read and written.
pub(crate) fn is_regular(attr: &Attr) -> bool {
    attr.kind == FileKind::Regular
}

fn put_read(out: &mut Vec<u8>, len: usize) {
    const FIXED: usize = 16;
    out.put_u16(17);
    out.put_u8((crate::proto::header::HEADER + FIXED) as u8);
    out.put_u8(0);
    out.put_u32(len as u32);
    out.put_u32(0);
    out.put_u32(0);
}

fn put_written(out: &mut Vec<u8>, len: usize) {
    out.put_u16(17);
    out.put_u16(0);
    out.put_u32(len as u32);
    out.put_u32(0);
    out.put_u32(0);
}

//! LOCK, LOCKT, LOCKU (RFC 8881 §18.10 to §18.12). A client that is denied a lock asks again;
//! `blocked` decides when it is notified.

use super::open::{Claiming, OwnerKind};
use crate::rpc::xdr::Put;
use crate::v4::args::{self, Locker};
use crate::v4::client::SERVICE;
use crate::v4::cursor::{Access, OperationResult, Run};
use crate::v4::state::{DELEGATIONS, LOCK_BYTES, READ, State, WRITE};
use crate::v4::status::Status;
use crate::v4::types::StateId;
use std::sync::Arc;
use weir_vfs::claims::{Actor, Full, Lock, Owner, Passage, Range, Verdict};
use weir_vfs::grace::Kinds;
use weir_vfs::volume::FileKind;
use weir_vfs::{Exempt, FileId, Stop, Suspend};

/// `nfs_lock_type4`: READ_LT, WRITE_LT (§18.10.1).
const READ_LT: u32 = 1;
const WRITE_LT: u32 = 2;

/// Returns true if a `nfs_lock_type4` is exclusive.
fn exclusive(kind: u32) -> bool {
    kind % 2 == 0
}

/// Returns the bytes in a range.
fn range(r: &args::Range) -> Result<Range, Status> {
    let length = match r.length {
        0 => return Err(Status::Inval),
        u64::MAX => 0,
        length => length,
    };
    match Range::new(r.offset, length) {
        // Treated as to the end of the file, since no byte can follow.
        Some(range) => Ok(range),
        None => Err(Status::Inval),
    }
}

impl Run<'_> {
    /// Returns the current file, if it can be locked and the caller is admitted to it.
    fn lockable(&mut self) -> Result<FileId, Stop<Status>> {
        let file = self.file(Status::IsDir)?;
        let (operand, _charged) = self.enter(file, Access::Mode(None), Exempt)?;
        match operand.getattr(&mut self.c.cx)?.kind {
            FileKind::Regular => Ok(file),
            FileKind::Directory => Err(Status::IsDir.into()),
            FileKind::Symlink => Err(Status::Symlink.into()),
            _ => Err(Status::WrongType.into()),
        }
    }

    /// Appends a `LOCK4denied`: the conflicting lock, and its owner.
    fn put_denied(&mut self, lock: &Lock) {
        let out = &mut self.c.out;
        out.put_u64(lock.range.start);
        out.put_u64(match lock.range.last {
            u64::MAX => u64::MAX,
            _ => lock.range.length(),
        });
        out.put_u32(if lock.exclusive { WRITE_LT } else { READ_LT });
        let client = &lock.owner.client;
        let id = match client.service {
            SERVICE => client
                .name
                .as_ref()
                .try_into()
                .map_or(0, u64::from_be_bytes),
            // An owner of another protocol.
            _ => 0,
        };
        out.put_u64(id);
        let shown = &lock.owner.shown;
        out.put_opaque(shown.get(..1024).unwrap_or(shown));
    }

    /// LOCK (§18.10), under an open's or a lock's stateid.
    pub(in crate::v4) fn lock(
        &mut self,
        r: &args::Range,
        reclaim: bool,
        locker: &Locker<'_>,
    ) -> OperationResult {
        let file = self.lockable()?;
        let bytes = range(r)?;
        let client = self.client();
        let (open, owner, known) = match locker {
            Locker::New { open, owner } => {
                let open = self.open_of(open)?;
                (open, self.owner(OwnerKind::Lock, owner), None)
            }
            Locker::Known(id) => {
                let id = self.resolved(id)?;
                match client.states.read().find(&id)? {
                    State::Locks(locks) if locks.open.file == file => {
                        (Arc::clone(&locks.open), locks.owner.clone(), Some(locks))
                    }
                    _ => return Err(Status::BadStateId.into()),
                }
            }
        };
        let needs = if exclusive(r.kind) { WRITE } else { READ };
        if open.shares().0 & needs == 0 {
            return Err(Status::OpenMode.into());
        }
        let claim = Claiming {
            reclaim,
            file,
            kinds: Kinds::RANGES,
            against: Kinds::against_lock(exclusive(r.kind)),
        };
        self.may_claim(&client, &claim)?;
        let want = Lock {
            owner,
            range: bytes,
            exclusive: exclusive(r.kind),
            mandatory: false,
        };
        let mut states = client.claiming()?;
        self.record(&client, Kinds::RANGES, file)?;
        let known = known.or_else(|| states.locks_of(file, &want.owner));
        if known.is_none() && !client.memory.lock().grow(LOCK_BYTES) {
            return Err(Status::Delay.into());
        }
        let (s, claims) = (self.s, &self.s.vfs.claims);
        let kept = s.asks_again(file, &want);
        let alone = || s.blocked.contains(file, &want) || !claims.has_in(file, &want.owner);
        let waits = r.kind > WRITE_LT && !reclaim && self.is_callable() && alone();
        let waits = waits && s.blocked.enter(file, &want, &open, &client, s.monotonic());
        let mut verdict = claims.lock(file, &want, &DELEGATIONS, waits);
        if waits && verdict != Verdict::Queued {
            s.not_waiting(file, &want.owner);
            if matches!(verdict, Verdict::Deadlock | Verdict::Full) {
                // Tries without queueing, so that the client asks again: the requests that it would
                // wait for may have been given up.
                verdict = claims.lock(file, &want, &DELEGATIONS, false);
            }
        }
        if kept && verdict != Verdict::Granted {
            s.give_up(file, &want.owner);
        }
        let state = match (&verdict, &known) {
            (Verdict::Granted, Some(locks)) => Some(states.change_locks(locks)?),
            (Verdict::Granted, None) => Some(states.add_locks(&open, want.owner.clone())),
            _ => None,
        };
        drop(states);
        if state.is_none() && known.is_none() {
            let mut memory = client.memory.lock();
            let left = memory.bytes() - LOCK_BYTES;
            memory.shrink_to(left);
        }
        match verdict {
            Verdict::Denied(lock) => {
                self.put_denied(&lock);
                return Ok(Status::Denied);
            }
            Verdict::Granted => {}
            Verdict::Deadlock => return Err(Status::Deadlock.into()),
            Verdict::Breaking(ticket) => return Err(Suspend::Recall(ticket).into()),
            Verdict::Queued => {
                let holder = self.s.vfs.claims.test(file, &want);
                self.put_denied(&holder.ok_or(Status::Delay)?);
                return Ok(Status::Denied);
            }
            Verdict::Full => return Err(Status::Delay.into()),
        }
        if let Some(state) = state {
            state.put(&mut self.c.out);
            self.c.state = state;
        }
        Ok(Status::Ok)
    }

    /// LOCKT (§18.11): tests for a conflict, without a stateid.
    pub(in crate::v4) fn lockt(&mut self, r: &args::Range, owner: &[u8]) -> OperationResult {
        let file = self.lockable()?;
        let want = Lock {
            owner: self.owner(OwnerKind::Lock, owner),
            range: range(r)?,
            exclusive: exclusive(r.kind),
            mandatory: false,
        };
        let (grace, now) = (&self.s.vfs.grace, self.s.monotonic());
        let against = Kinds::against_lock(want.exclusive);
        let admitted = grace.admit_new(against, file, now);
        admitted.map_err(|_| Status::Grace)?;
        let claims = &self.s.vfs.claims;
        if !claims.version_of(file).none() {
            // The holder of a write delegation may have locked the file by itself.
            let client = self.client();
            let actor = Actor::Client { owner: &client.own };
            if let Passage::Breaking(ticket) = claims.io(file, actor, false, want.range) {
                return Err(Suspend::Recall(ticket).into());
            }
        }
        match claims.test(file, &want) {
            None => Ok(Status::Ok),
            Some(lock) => {
                self.put_denied(&lock);
                Ok(Status::Denied)
            }
        }
    }

    /// LOCKU (§18.12): unlocks a range.
    pub(in crate::v4) fn locku(&mut self, r: &args::Range, id: &StateId) -> OperationResult {
        let file = self.lockable()?;
        let bytes = range(r)?;
        let id = self.resolved(id)?;
        let client = self.client();
        let states = client.states.write();
        let locks = match states.find(&id)? {
            State::Locks(locks) if locks.open.file == file => locks,
            _ => return Err(Status::BadStateId.into()),
        };
        let owner: &Owner = &locks.owner;
        match self.s.vfs.claims.unlock(file, owner, bytes) {
            Ok(()) => {}
            Err(Full) => return Err(Status::Delay.into()),
        }
        let state = states.change_locks(&locks)?;
        drop(states);
        state.put(&mut self.c.out);
        self.c.state = state;
        Ok(Status::Ok)
    }
}

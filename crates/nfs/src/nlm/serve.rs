//! The procedures of NLM version 4.

use super::wire::{Alock, Args, LockArgs, ShareArgs, Stat, Verb, put_result, put_share_result};
use super::{LockService, SERVICE, claimant};
use crate::v3::Session;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Lsn, VolumeId};
use weir_vfs::claims::{
    Client, Grant, Lock, Modes, OpenOutcome, OpenRequest, Owner, OwnerId, Range, Verdict,
};
use weir_vfs::grace::{GraceRefusal, Kinds};
use weir_vfs::names::Wait;
use weir_vfs::{Error, Exempt, ExportTable, FileId, LockAccess, OpContext, Stop, Suspend};

/// A call being served.
pub(crate) struct Op<'a> {
    pub(crate) service: &'a LockService,
    pub(crate) table: &'a ExportTable,
    /// Session of the caller. Locking needs the permissions of reading and writing.
    pub(crate) session: Session<'a>,
    pub(crate) local: IpAddr,
    pub(crate) cx: &'a mut OpContext,
    pub(crate) out: &'a mut Vec<u8>,
    /// Set when the client's admission depends on a name that is not known yet.
    pub(crate) unknown: Option<Wait>,
    /// LSN that must be durable before the host can claim anything: that of its record. `out` has
    /// the results in case it never becomes durable.
    pub(crate) unrecorded: Option<Lsn>,
    /// Number of the status that the call failed with.
    pub(crate) failed: Option<u32>,
    /// The volume of the call's file, once that is known.
    pub(crate) volume: Option<VolumeId>,
    /// True if the client may not use the file's volume, or has no handle of this server.
    stranger: bool,
}

/// A claim requested by a host, as far as the grace period is concerned.
struct ClaimRequest {
    nsm_state: u32,
    reclaim: bool,
    /// True if the host is to be notified of a restart.
    monitored: bool,
    file: FileId,
    kinds: Kinds,
    /// Kinds of others' claims that this claim conflicts with.
    against: Kinds,
}

/// Returns true if a procedure takes locks, so that the caller's identity matters.
pub(crate) fn takes_identity(args: &Args<'_>) -> bool {
    match args {
        Args::Sync(verb, _) | Args::Async(verb, _) => matches!(verb, Verb::Test | Verb::Lock),
        Args::Unmonitored(_) | Args::Share(_) => true,
        _ => false,
    }
}

/// Converts `fsh4_access` and `fsh4_mode` (X/Open XNFS, NLM): bit 0 is reading, bit 1 writing.
fn modes(number: u32) -> Modes {
    match number {
        0 => Modes::NONE,
        1 => Modes::READ,
        2 => Modes::WRITE,
        _ => Modes::BOTH,
    }
}

impl<'a> Op<'a> {
    /// Creates the context of a call by `session` that arrived at the server's address `local`.
    pub(crate) fn new(
        service: &'a LockService,
        table: &'a ExportTable,
        session: Session<'a>,
        local: IpAddr,
        cx: &'a mut OpContext,
        out: &'a mut Vec<u8>,
    ) -> Op<'a> {
        Op {
            service,
            table,
            session,
            local,
            cx,
            out,
            unknown: None,
            unrecorded: None,
            failed: None,
            volume: None,
            stranger: false,
        }
    }

    /// Serves a call whose arguments are decoded; appends its results.
    pub(crate) fn run(&mut self, args: &Args<'_>) -> Result<(), Suspend> {
        match args {
            Args::Null | Args::Notify => {}
            Args::Sync(verb, a) => {
                let (stat, holder) = self.lock_call(*verb, a, true)?;
                self.failed = stat.failed();
                put_result(self.out, a.cookie, stat, holder.as_ref());
            }
            Args::Unmonitored(a) => {
                let a = LockArgs { block: false, ..*a };
                let (stat, _) = self.lock_call(Verb::Lock, &a, false)?;
                self.failed = stat.failed();
                put_result(self.out, a.cookie, stat, None);
            }
            Args::Async(verb, a) => {
                let (stat, holder) = self.lock_call(*verb, a, true)?;
                self.failed = stat.failed();
                // Strangers are not called: otherwise any host could have any other host called. A
                // call that is run again later has no result yet.
                if self.stranger || self.unknown.is_some() || self.unrecorded.is_some() {
                    return Ok(());
                }
                let mut results = Vec::with_capacity(64);
                put_result(&mut results, a.cookie, stat, holder.as_ref());
                // TEST_RES to GRANTED_RES are numbered in the order of the verbs.
                let procedure = match verb {
                    Verb::Test => 11,
                    Verb::Lock => 12,
                    Verb::Cancel => 13,
                    Verb::Unlock => 14,
                    Verb::Granted => 15,
                };
                self.service
                    .send_once(self.session.origin, self.local, procedure, &results);
            }
            Args::Result(verb, cookie, stat) => {
                if let (Verb::Granted, Ok(token)) = (verb, <[u8; 8]>::try_from(*cookie)) {
                    let token = u64::from_be_bytes(token);
                    self.service
                        .answered(token, Some(self.session.origin), Some(*stat));
                }
            }
            Args::Share(a) => {
                let stat = self.share(a)?;
                self.failed = stat.failed();
                put_share_result(self.out, a.cookie, stat);
            }
            Args::Unshare(a) => {
                let stat = self.unshare(a);
                self.failed = stat.failed();
                put_share_result(self.out, a.cookie, stat);
            }
            Args::FreeAll(name) => {
                self.unknown = self.service.host_gone(self.session.origin, name);
            }
        }
        Ok(())
    }

    /// Returns the file of a handle, if the client may use it, it still exists, and the caller may
    /// lock it with this access.
    fn file(&mut self, handle: &[u8], access: LockAccess) -> Result<Result<FileId, Stat>, Suspend> {
        let vfs = &self.service.vfs;
        let admitted = match vfs.admit_locker(self.table, handle, &self.session) {
            Ok(admitted) => admitted,
            Err(Stop::Failed(Error::Stale)) => return Ok(Err(Stat::StaleHandle)),
            Err(why) => {
                self.stranger = true;
                if let Stop::Suspended(Suspend::NameService(wait)) = why {
                    self.unknown = Some(wait);
                }
                return Ok(Err(match why {
                    // Locks are not forwarded: the owner could not tell the client of a restart.
                    Stop::Failed(Error::BadHandle) if vfs.remote_of(handle).is_some() => {
                        Stat::DeniedNoLocks
                    }
                    Stop::Failed(Error::BadHandle) => Stat::StaleHandle,
                    _ => Stat::Failed,
                }));
            }
        };
        self.volume = Some(admitted.volume());
        let charged = admitted.charge(vfs, self.cx, Exempt);
        let may = charged.and_then(|(file, charged)| {
            file.may_lock(self.cx, charged, access)?;
            Ok(file.file_id())
        });
        match may {
            Ok(file) => Ok(Ok(file)),
            Err(Stop::Failed(Error::Stale)) => Ok(Err(Stat::StaleHandle)),
            Err(Stop::Failed(Error::ReadOnly)) => Ok(Err(Stat::ReadOnly)),
            // NLM has no status for a missing permission; the Linux server returns this one.
            Err(Stop::Failed(_)) => Ok(Err(Stat::Failed)),
            Err(Stop::Suspended(suspend)) => Err(suspend),
        }
    }

    /// Returns the file of a handle that is to be unlocked. A client may give up a lock whatever
    /// has changed since: the file, its export, or the caller's permission.
    fn locked_file(&mut self, handle: &[u8]) -> Result<FileId, Stat> {
        let vfs = &self.service.vfs;
        let admitted = vfs.admit_locker(self.table, handle, &self.session);
        self.stranger = !matches!(admitted, Ok(_) | Err(Stop::Failed(Error::Stale)));
        let file = vfs.file_id(handle).map_err(|_| Stat::StaleHandle)?;
        self.volume = Some(file.volume);
        Ok(file)
    }

    fn client_of(&self, name: &[u8]) -> Client {
        Client {
            service: SERVICE,
            address: self.session.origin,
            name: Arc::from(name),
        }
    }

    fn owner(&self, a: &Alock<'_>) -> Owner {
        Owner {
            client: self.client_of(a.caller),
            who: OwnerId::Process(a.svid),
            shown: Arc::from(a.owner),
        }
    }

    fn lock_call(
        &mut self,
        verb: Verb,
        a: &LockArgs<'_>,
        monitored: bool,
    ) -> Result<(Stat, Option<Lock>), Suspend> {
        if verb == Verb::Granted {
            // This server holds no locks of its own anywhere.
            self.stranger = true;
            return Ok((Stat::Denied, None));
        }
        let file = match verb {
            Verb::Lock if a.exclusive => self.file(a.lock.file, LockAccess::Write)?,
            Verb::Lock | Verb::Test => self.file(a.lock.file, LockAccess::Any)?,
            Verb::Cancel | Verb::Unlock | Verb::Granted => self.locked_file(a.lock.file),
        };
        let file = match file {
            Ok(file) => file,
            Err(stat) => return Ok((stat, None)),
        };
        let Some(range) = Range::new(a.lock.offset, a.lock.length) else {
            return Ok((Stat::TooBig, None));
        };
        tracing::debug!(client = %self.session.origin, ?verb, process = a.lock.svid, ino = %file.ino, ?range, a.exclusive, a.block, "lock call");
        let lock = Lock {
            owner: self.owner(&a.lock),
            range,
            exclusive: a.exclusive,
            mandatory: false,
        };
        Ok(match verb {
            Verb::Test => self.test(file, &lock),
            Verb::Lock => (self.lock(file, &lock, a, monitored)?, None),
            Verb::Cancel => (self.cancel(file, &lock), None),
            Verb::Unlock | Verb::Granted => {
                match self.service.unlock(file, &lock.owner, lock.range) {
                    true => (Stat::Granted, None),
                    false => (Stat::DeniedNoLocks, None),
                }
            }
        })
    }

    fn test(&self, file: FileId, lock: &Lock) -> (Stat, Option<Lock>) {
        let (grace, now) = (&self.service.vfs.grace, self.service.clock.monotonic());
        let against = Kinds::against_lock(lock.exclusive);
        if grace.admit_new(against, file, now).is_err() {
            return (Stat::DeniedGracePeriod, None);
        }
        match self.service.vfs.claims.test(file, lock) {
            Some(holder) => (Stat::Denied, Some(holder)),
            None => (Stat::Granted, None),
        }
    }

    /// Checks that a request is allowed in or after the grace period, and records the host.
    fn admit_host(
        &mut self,
        client: &Client,
        asked: &ClaimRequest,
    ) -> Result<Result<(), Stat>, Suspend> {
        if client.name.len() > super::record_encoding::MAX_NAME {
            return Ok(Err(Stat::DeniedNoLocks));
        }
        let now = self.service.clock.monotonic();
        let grace = &self.service.vfs.grace;
        let admitted = if asked.reclaim {
            let claimant = claimant(client.address);
            grace.admit_again(&claimant, asked.kinds, asked.file, now)
        } else {
            grace.admit_new(asked.against, asked.file, now)
        };
        match admitted {
            Ok(()) => {}
            Err(GraceRefusal::Grace) => return Ok(Err(Stat::DeniedGracePeriod)),
            Err(GraceRefusal::NoGrace | GraceRefusal::NotExpected) => return Ok(Err(Stat::Denied)),
        }
        if asked.monitored {
            let shares = asked.kinds != Kinds::RANGES;
            let mut state = self.service.state.lock();
            // A lock is granted only if its holder can be notified of a restart.
            let added = state
                .hosts
                .add(client, self.local, asked.nsm_state, now, shares);
            match added {
                Ok(lsn) if self.service.records.is_durable(lsn) => {}
                Ok(lsn) => {
                    self.unrecorded = Some(lsn);
                    return Ok(Err(Stat::DeniedNoLocks));
                }
                Err(Stop::Failed(_)) => return Ok(Err(Stat::DeniedNoLocks)),
                Err(Stop::Suspended(suspend)) => return Err(suspend),
            }
        }
        Ok(Ok(()))
    }

    fn lock(
        &mut self,
        file: FileId,
        lock: &Lock,
        a: &LockArgs<'_>,
        monitored: bool,
    ) -> Result<Stat, Suspend> {
        let asked = ClaimRequest {
            nsm_state: a.state,
            reclaim: a.reclaim,
            monitored,
            file,
            kinds: Kinds::RANGES,
            against: Kinds::against_lock(a.exclusive),
        };
        if let Err(stat) = self.admit_host(&lock.owner.client, &asked)? {
            return Ok(stat);
        }
        let claims = &self.service.vfs.claims;
        Ok(match claims.lock(file, lock, &lock.owner.who, a.block) {
            Verdict::Granted => Stat::Granted,
            Verdict::Denied(_) => Stat::Denied,
            Verdict::Queued => Stat::Blocked,
            Verdict::Deadlock => Stat::Deadlock,
            Verdict::Full => Stat::DeniedNoLocks,
            // The only status after which clients ask again by themselves.
            Verdict::Breaking(_) => Stat::DeniedGracePeriod,
        })
    }

    /// Cancels a queued request. If it was granted meanwhile and the client has not confirmed, the
    /// lock is released.
    fn cancel(&self, file: FileId, lock: &Lock) -> Stat {
        if self.service.vfs.claims.cancel(file, lock) {
            return Stat::Granted;
        }
        let mut state = self.service.state.lock();
        let granted = state.pending.iter().find(|(_, p)| {
            let of = |g: &Grant| g.file == file && g.lock == *lock;
            p.grant.as_ref().is_some_and(|(g, _)| of(g))
        });
        let Some(token) = granted.map(|(token, _)| *token) else {
            return Stat::Denied;
        };
        LockService::take_pending(&mut state, token);
        drop(state);
        match self.service.unlock(file, &lock.owner, lock.range) {
            true => Stat::Granted,
            false => Stat::DeniedNoLocks,
        }
    }

    /// Reservations have no process number; the owner bytes distinguish them.
    fn sharer(&self, a: &ShareArgs<'_>) -> Owner {
        Owner {
            client: self.client_of(a.caller),
            who: OwnerId::Opaque(Arc::from(a.owner)),
            shown: Arc::default(),
        }
    }

    fn share(&mut self, a: &ShareArgs<'_>) -> Result<Stat, Suspend> {
        if a.access > 3 || a.deny > 3 {
            return Ok(Stat::Failed);
        }
        let access = match a.access {
            0 => LockAccess::Any,
            1 => LockAccess::Read,
            2 => LockAccess::Write,
            _ => LockAccess::ReadWrite,
        };
        let file = match self.file(a.file, access)? {
            Ok(file) => file,
            Err(stat) => return Ok(stat),
        };
        let owner = self.sharer(a);
        let asked = ClaimRequest {
            nsm_state: 0,
            reclaim: a.reclaim,
            monitored: true,
            file,
            kinds: Kinds::OPENS.or(Kinds::SHARES),
            against: Kinds::against_open(a.access & 1 != 0, a.access & 2 != 0, a.deny != 0),
        };
        if let Err(stat) = self.admit_host(&owner.client, &asked)? {
            return Ok(stat);
        }
        let request = OpenRequest {
            owner: &owner,
            key: &owner.who,
            access: modes(a.access),
            deny: modes(a.deny),
            enforced: false,
            overwrite: false,
        };
        Ok(match self.service.vfs.claims.open(file, &request) {
            OpenOutcome::Granted => Stat::Granted,
            OpenOutcome::Denied | OpenOutcome::DeletePending => Stat::Denied,
            OpenOutcome::Full => Stat::DeniedNoLocks,
            OpenOutcome::Breaking(_) => Stat::DeniedGracePeriod,
        })
    }

    fn unshare(&mut self, a: &ShareArgs<'_>) -> Stat {
        match self.locked_file(a.file) {
            Ok(file) => {
                let owner = self.sharer(a);
                self.service.vfs.claims.close(file, &owner);
                Stat::Granted
            }
            Err(stat) => stat,
        }
    }
}

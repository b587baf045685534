//! The procedures of NLM version 4.

use super::wire::{Alock, Args, LockArgs, ShareArgs, Stat, Verb, put_result, put_share_result};
use super::{Host, LockService};
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_vfs::locks::{Client, Lock, Owner, Range, Verdict};
use weir_vfs::names::Wait;
use weir_vfs::volume::{FsError, Stop};
use weir_vfs::{Client as Caller, Cx, Export, ExportTable, FileId, NoSubject};

/// A call being served.
pub(crate) struct Op<'a> {
    pub(crate) service: &'a LockService,
    pub(crate) table: &'a ExportTable,
    pub(crate) client: Caller<'a>,
    pub(crate) local: IpAddr,
    pub(crate) cx: &'a mut Cx,
    pub(crate) out: &'a mut Vec<u8>,
    /// Set when it takes a name that is not known to tell whether the client is admitted.
    pub(crate) unknown: Option<Wait>,
    /// The volume of the file that it is about, once that is known.
    pub(crate) volume: Option<VolumeId>,
}

/// Why the call is not done yet: the volume has to do this first.
pub(crate) type Stopped<'a> = (Stop, &'a Export);

/// The host of a caller: its name and its address, since names alone are not
/// unique ("localhost").
fn client_of(name: &[u8], addr: IpAddr) -> Client {
    let mut id = name.to_vec();
    id.push(0);
    id.extend_from_slice(addr.to_string().as_bytes());
    Arc::from(id)
}

impl<'a> Op<'a> {
    /// Serves decoded arguments.
    pub(crate) fn run(&mut self, args: &Args<'_>) -> Result<(), Stopped<'a>> {
        match args {
            Args::Null | Args::Notify => {}
            Args::Sync(verb, a) => {
                let (stat, holder) = self.lock_call(*verb, a, true)?;
                put_result(self.out, a.cookie, stat, holder.as_ref());
            }
            Args::Unmonitored(a) => {
                let a = LockArgs { block: false, ..*a };
                let (stat, _) = self.lock_call(Verb::Lock, &a, false)?;
                put_result(self.out, a.cookie, stat, None);
            }
            Args::Async(verb, a) => {
                let (stat, holder) = self.lock_call(*verb, a, true)?;
                let mut results = Vec::with_capacity(64);
                put_result(&mut results, a.cookie, stat, holder.as_ref());
                // TEST_RES to GRANTED_RES follow each other as the verbs do.
                let procedure = match verb {
                    Verb::Test => 11,
                    Verb::Lock => 12,
                    Verb::Cancel => 13,
                    Verb::Unlock => 14,
                    Verb::Granted => 15,
                };
                self.service
                    .send_once(self.client.address, self.local, procedure, &results);
            }
            Args::Result(verb, cookie, stat) => {
                if let (Verb::Granted, Ok(token)) = (verb, <[u8; 8]>::try_from(*cookie)) {
                    self.service
                        .answered(u64::from_be_bytes(token), Some(*stat));
                }
            }
            Args::Share(a) => {
                let stat = self.share(a, true)?;
                put_share_result(self.out, a.cookie, stat);
            }
            Args::Unshare(a) => {
                let stat = self.share(a, false)?;
                put_share_result(self.out, a.cookie, stat);
            }
            Args::FreeAll(name) => self.service.host_gone(self.client.address, name),
        }
        Ok(())
    }

    /// The file of a handle, if the client may use it and it still exists.
    fn file(&mut self, handle: &[u8]) -> Result<Result<FileId, Stat>, Stopped<'a>> {
        let service = self.service;
        let (subject, ino) = match service.vfs.admit(self.table, handle, &self.client, None) {
            Ok(s) => s,
            Err(NoSubject::BadHandle | NoSubject::Stale) => return Ok(Err(Stat::StaleHandle)),
            Err(NoSubject::Denied) => return Ok(Err(Stat::Failed)),
            Err(NoSubject::Unknown(wait)) => {
                self.unknown = Some(wait);
                return Ok(Err(Stat::Failed));
            }
        };
        self.volume = Some(subject.export.volume.id());
        match subject.getattr(self.cx, ino) {
            Ok(_) => Ok(Ok(FileId {
                volume: subject.export.volume.id(),
                ino,
                place: subject.place,
            })),
            Err(Stop::Fail(FsError::Stale)) => Ok(Err(Stat::StaleHandle)),
            Err(Stop::Fail(_)) => Ok(Err(Stat::Failed)),
            Err(stop) => Err((stop, subject.export)),
        }
    }

    fn owner(&self, a: &Alock<'_>) -> Owner {
        Owner {
            client: client_of(a.caller, self.client.address),
            process: a.svid,
            shown: Arc::from(a.owner),
        }
    }

    fn lock_call(
        &mut self,
        verb: Verb,
        a: &LockArgs<'_>,
        monitored: bool,
    ) -> Result<(Stat, Option<Lock>), Stopped<'a>> {
        if verb == Verb::Granted {
            // We hold no locks anywhere.
            return Ok((Stat::Denied, None));
        }
        let file = match self.file(a.lock.file)? {
            Ok(file) => file,
            Err(stat) => return Ok((stat, None)),
        };
        let Some(range) = Range::new(a.lock.offset, a.lock.length) else {
            return Ok((Stat::TooBig, None));
        };
        tracing::debug!(client = %self.client.address, ?verb, process = a.lock.svid, ino = %file.ino, ?range, a.exclusive, a.block, "lock call");
        let lock = Lock {
            owner: self.owner(&a.lock),
            range,
            exclusive: a.exclusive,
        };
        Ok(match verb {
            Verb::Test => self.test(file, &lock),
            Verb::Lock => (self.lock(file, lock, a, monitored), None),
            Verb::Cancel => (self.cancel(file, &lock), None),
            Verb::Unlock | Verb::Granted => {
                let grants = self.service.vfs.locks.unlock(file, &lock.owner, lock.range);
                self.service.grant(grants);
                (Stat::Granted, None)
            }
        })
    }

    fn test(&self, file: FileId, lock: &Lock) -> (Stat, Option<Lock>) {
        if self.service.in_grace(&self.service.state.lock()) {
            return (Stat::DeniedGracePeriod, None);
        }
        match self.service.vfs.locks.test(file, lock) {
            Some(holder) => (Stat::Denied, Some(holder)),
            None => (Stat::Granted, None),
        }
    }

    /// Whether a request fits the time: only claims of old locks during the
    /// grace period, and none afterwards. Writes the host down.
    fn admit_host(
        &self,
        client: &Client,
        name: &[u8],
        reclaim: bool,
        monitored: bool,
    ) -> Result<(), Stat> {
        let mut state = self.service.state.lock();
        match (self.service.in_grace(&state), reclaim) {
            (true, false) => return Err(Stat::DeniedGracePeriod),
            (false, true) => return Err(Stat::Denied),
            _ => {}
        }
        if monitored {
            let host = Host {
                name: Arc::from(name),
                addr: self.client.address,
                local: self.local,
            };
            // A lock whose holder could not be told of a restart is none.
            let now = self.service.clock.monotonic();
            state
                .hosts
                .add(client, host, now)
                .map_err(|_| Stat::DeniedNoLocks)?;
        }
        Ok(())
    }

    fn lock(&self, file: FileId, lock: Lock, a: &LockArgs<'_>, monitored: bool) -> Stat {
        if let Err(stat) = self.admit_host(&lock.owner.client, a.lock.caller, a.reclaim, monitored)
        {
            return stat;
        }
        match self.service.vfs.locks.lock(file, lock, a.block) {
            Verdict::Granted => Stat::Granted,
            Verdict::Denied(_) => Stat::Denied,
            Verdict::Queued => Stat::Blocked,
            Verdict::Deadlock => Stat::Deadlock,
            Verdict::Full => Stat::DeniedNoLocks,
        }
    }

    /// Takes a queued request back. If it was granted meanwhile and the client
    /// has not confirmed, the grant is taken back.
    fn cancel(&self, file: FileId, lock: &Lock) -> Stat {
        if self.service.vfs.locks.cancel(file, lock) {
            return Stat::Granted;
        }
        let mut state = self.service.state.lock();
        let granted = state
            .pending
            .iter()
            .find(|(_, p)| {
                p.grant
                    .as_ref()
                    .is_some_and(|g| g.file == file && g.lock == *lock)
            })
            .map(|(token, _)| *token);
        let Some(token) = granted else {
            return Stat::Denied;
        };
        state.pending.remove(&token);
        drop(state);
        let grants = self.service.vfs.locks.unlock(file, &lock.owner, lock.range);
        self.service.grant(grants);
        Stat::Granted
    }

    fn share(&mut self, a: &ShareArgs<'_>, take: bool) -> Result<Stat, Stopped<'a>> {
        let file = match self.file(a.file)? {
            Ok(file) => file,
            Err(stat) => return Ok(stat),
        };
        let client = client_of(a.caller, self.client.address);
        // Reservations have no process number; the owner bytes tell them apart.
        let id = Client::from([&client[..], b"\0", a.owner].concat());
        let owner = Owner {
            client: client.clone(),
            process: crc32c::crc32c(&id),
            shown: Arc::from(a.owner),
        };
        if !take {
            self.service.vfs.locks.unshare(file, &owner);
            return Ok(Stat::Granted);
        }
        if a.access > 3 || a.deny > 3 {
            return Ok(Stat::Failed);
        }
        if let Err(stat) = self.admit_host(&client, a.caller, a.reclaim, true) {
            return Ok(stat);
        }
        Ok(
            match self.service.vfs.locks.share(file, &owner, a.access, a.deny) {
                Verdict::Granted => Stat::Granted,
                Verdict::Full => Stat::DeniedNoLocks,
                _ => Stat::Denied,
            },
        )
    }
}

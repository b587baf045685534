//! OPEN, OPEN_DOWNGRADE, CLOSE, FREE_STATEID (RFC 8881 §18.16, §18.18, §18.2, §18.38).
//!
//! OPEN has these steps. The client is recorded (the reply waits for that to be durable). The file
//! is found or created. The caller's access is checked. The file is pinned. The claim, which may
//! conflict with other clients' opens, is added together with the stateid. The file is truncated,
//! if that was requested. The cursor remembers the finished steps, so that a suspended OPEN repeats
//! none of them.
//!
//! A file that this OPEN creates is open to its creator whatever its mode, as with open(2).

use super::deleg::Given;
use super::name::check_name;
use crate::rpc::xdr::Put;
use crate::v4::args::{Attrs, Claim, Open as OpenArgs, OpenFlag};
use crate::v4::attrs::{New, SIZE};
use crate::v4::client::Client;
use crate::v4::cursor::{Access, Fh, OpenProgress, Operand, OperationResult, Run};
use crate::v4::state::{
    DELEGATIONS, LOCK_BYTES, OPEN_BYTES, Open, READ, State, WRITE, modes, open_kinds,
};
use crate::v4::status::Status;
use crate::v4::types::{Bitmap, StateId, put_change};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_vfs::claims::{OpenOutcome, OpenRequest, Owner, OwnerId, Range};
use weir_vfs::grace::{FileKey, GraceRefusal, Kinds};
use weir_vfs::volume::{Change, CreateHow, FileKind, Pin, SetAttr};
use weir_vfs::{ChargeProof, Error, FileId, FileRef, MetadataWrite, Stop, Suspend};

/// Bits of `share_access` with wishes for delegations.
pub(in crate::v4) const WISHES: u32 = 0x003f_ff00;
/// Bits of `rflags`: OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_RESULT_PRESERVE_UNLINKED.
pub(in crate::v4) const RESULT: u32 = 0x04 | 0x08;
/// OPEN4_RESULT_NO_OPEN_STATEID (RFC 9754 §4), OPEN4_RESULT_MAY_NOTIFY_LOCK.
const NO_STATEID: u32 = 0x10;
const MAY_NOTIFY: u32 = 0x20;
/// Kind of an owner: owners of opens and of locks are distinct.
#[derive(Clone, Copy)]
pub(in crate::v4) enum OwnerKind {
    Open,
    Lock,
}

/// A claim requested by a client, as far as the grace period is concerned.
pub(in crate::v4) struct Claiming {
    pub(in crate::v4) reclaim: bool,
    pub(in crate::v4) file: FileId,
    pub(in crate::v4) kinds: Kinds,
    /// Kinds of others' claims that this claim conflicts with.
    pub(in crate::v4) against: Kinds,
}

/// Returns the status for a claim at the wrong time.
fn refused(why: GraceRefusal) -> Status {
    match why {
        GraceRefusal::Grace => Status::Grace,
        GraceRefusal::NoGrace => Status::NoGrace,
        GraceRefusal::NotExpected => Status::ReclaimBad,
    }
}

impl<'a> Run<'a> {
    /// Returns an owner of opens or locks in the table of claims. Other clients are shown the bytes
    /// of a lock owner.
    pub(in crate::v4) fn owner(&self, kind: OwnerKind, bytes: &[u8]) -> Owner {
        let (word, shown): (&[u8], Arc<[u8]>) = match kind {
            OwnerKind::Open => (b"open", Arc::default()),
            OwnerKind::Lock => (b"lock", bytes.into()),
        };
        // 0 is the key of delegations.
        let key = self.s.owners.hash128(&[word, bytes]).max(1);
        Owner {
            client: self.client_ref().claims.clone(),
            who: OwnerId::key(key),
            shown,
        }
    }

    /// Checks that a client may reclaim, or may make a new claim.
    fn in_time(client: &Client, reclaim: bool) -> Result<(), Status> {
        // A client must not make new claims until it has reported the end of its reclaims
        // (§18.51.3).
        match (reclaim, client.reclaimed.load(Ordering::Acquire)) {
            (true, true) => Err(Status::NoGrace),
            (false, false) => Err(Status::Grace),
            _ => Ok(()),
        }
    }

    /// Checks that the grace period admits a claim.
    fn admit_claim(&self, client: &Client, claim: &Claiming) -> Result<(), Status> {
        let (grace, now) = (&self.s.vfs.grace, self.s.monotonic());
        let admitted = if claim.reclaim {
            let claimant = client.claimant();
            let again = |kinds| grace.admit_again(&claimant, kinds, claim.file, now);
            again(claim.kinds).or_else(|why| {
                // An OPEN created the file, and the server stopped before that was recorded.
                match self.s.before_start.has_unrecorded(claim.file) {
                    true => again(Kinds::NONE),
                    false => Err(why),
                }
            })
        } else {
            grace.admit_new(claim.against, claim.file, now)
        };
        admitted.map_err(refused)
    }

    /// Checks that a claim is admitted now, and records it.
    pub(in crate::v4) fn may_claim(
        &mut self,
        client: &Client,
        claim: &Claiming,
    ) -> Result<(), Stop<Status>> {
        Run::in_time(client, claim.reclaim)?;
        self.admit_claim(client, claim)?;
        self.record(client, claim.kinds, claim.file)
    }

    /// Records that a client may have claims of these kinds in a file; the reply waits until that
    /// is durable. It is repeated under the lock on the client's states when the claim is added,
    /// since the record may have been trimmed meanwhile.
    pub(in crate::v4) fn record(
        &mut self,
        client: &Client,
        kinds: Kinds,
        file: FileId,
    ) -> Result<(), Stop<Status>> {
        self.record_claim(client, Some((file.into(), kinds)))
    }

    fn record_claim(
        &mut self,
        client: &Client,
        claim: Option<(FileKey, Kinds)>,
    ) -> Result<(), Stop<Status>> {
        let lsn = match self.s.record(client, claim) {
            // The limit is on clients; the disk has space.
            Err(Stop::Failed(Error::NoSpace)) => return Err(Status::Delay.into()),
            recorded => recorded?,
        };
        self.c.depends_on(Some(lsn));
        Ok(())
    }

    /// OPEN (§18.16): opens or creates a file, or upgrades an open.
    pub(in crate::v4) fn open(&mut self, a: &OpenArgs<'_>) -> OperationResult {
        let here = self.here()?;
        let shares = (a.access & 3, a.deny);
        if shares.0 == 0 || a.deny > 3 || a.access & !(3 | WISHES) != 0 {
            return Err(Status::Inval.into());
        }
        let (reclaim, name) = match a.claim {
            Claim::Null(name) => (false, Some(name)),
            Claim::Fh => (false, None),
            Claim::Previous(_) => (true, None),
            Claim::DelegateCur(_, name) => (false, Some(name)),
            Claim::DelegCurFh(_) => (false, None),
            Claim::DelegatePrev(_) | Claim::DelegPrevFh => return Err(Status::NotSupp.into()),
        };
        match name {
            Some(name) => check_name(name)?,
            None if !matches!(a.how, OpenFlag::NoCreate) => return Err(Status::Inval.into()),
            None => {}
        }
        if matches!(a.claim, Claim::DelegateCur(..)) && !matches!(a.how, OpenFlag::NoCreate) {
            return Err(Status::Inval.into());
        }
        let Fh::File(base) = here else {
            // The pseudo file system has only directories.
            return match (name, a.how) {
                (None, _) => Err(Status::IsDir.into()),
                (Some(name), OpenFlag::NoCreate) => {
                    self.lookup(name).and(Err(Status::IsDir.into()))
                }
                _ => Err(Status::RoFs.into()),
            };
        };
        let client = self.client();
        let kinds = open_kinds(shares.1);
        if self.c.made.is_none() {
            Run::in_time(&client, reclaim)?;
            // A new file may have to be reclaimed before its claim is recorded.
            self.record_claim(&client, None)?;
        }
        // Conflicting claims are excluded by the delegation.
        let delegated = matches!(a.claim, Claim::DelegateCur(..) | Claim::DelegCurFh(_));
        let claiming = |file, cuts: bool| {
            let writes = shares.0 & WRITE != 0 || cuts;
            let against = Kinds::against_open(shares.0 & READ != 0, writes, shares.1 != 0);
            Claiming {
                reclaim,
                file,
                kinds,
                against: against.when(!delegated),
            }
        };
        if name.is_none() && self.c.made.is_none() {
            self.admit_claim(&client, &claiming(base, false))?;
        }
        let owner = self.owner(OwnerKind::Open, a.owner);
        let access = match reclaim {
            true => Access::Reclaim(&owner),
            false => Access::Mode(Some(&owner)),
        };
        let (operand, charged) = self.enter(base, access, MetadataWrite)?;
        let (found, charged) = match (self.c.made, name) {
            (Some(made), _) => (made, Some(charged)),
            (None, Some(name)) => self.find(&operand, charged, name, &a.how)?,
            (None, None) => (OpenProgress::found(base), Some(charged)),
        };
        if let Claim::DelegateCur(id, _) | Claim::DelegCurFh(id) = &a.claim {
            self.delegated(id, found.file)?;
        }
        if name.is_some() && !found.made && found.opened.is_none() {
            self.admit_claim(&client, &claiming(found.file, found.cut))?;
        }
        let operand = operand.with_file(FileRef {
            ino: found.file.ino,
            namespace: found.file.namespace,
        });
        let state = match found.opened {
            Some(state) => state,
            None => match self.enter_open(&client, &operand, &found, &owner, shares) {
                Err(Stop::Failed(status)) if found.made => {
                    self.leave_failure(&operand, status)?;
                    return Err(status.into());
                }
                entered => entered?,
            },
        };
        if found.cut
            && let Some(charged) = charged
        {
            self.c.made = Some(OpenProgress {
                opened: Some(state),
                ..found
            });
            self.cut_opened(&client, &operand, charged, (found.file, &owner))?;
        }
        let given = self.delegate(&client, &operand, &found, a);
        let instead = given.instead_of_open(a).filter(|_| {
            let open = client.states.read().open_of(found.file, &owner);
            let open = open.filter(|open| open.is_new());
            open.inspect(|open| self.end_open(&client, open)).is_some()
        });
        self.put_opened(a, &found, instead.is_none().then_some(state), &given);
        self.goes_to(found.file);
        self.c.state = instead.unwrap_or(state);
        Ok(Status::Ok)
    }

    /// Truncates a file after its open.
    fn cut_opened(
        &mut self,
        client: &Client,
        operand: &Operand<'_, '_>,
        charged: ChargeProof<MetadataWrite>,
        (file, owner): (FileId, &Owner),
    ) -> Result<(), Stop<Status>> {
        let set = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        match operand.setattr(&mut self.c.cx, charged, &set, None) {
            Ok(done) => self.c.wait_for(done.lsn),
            Err(Stop::Failed(error)) => {
                // The client does not learn of the open, so it is ended.
                let open = client.states.read().open_of(file, owner);
                if let Some(open) = open.filter(|o| o.is_new()) {
                    self.end_open(client, &open);
                }
                return Err(error.into());
            }
            Err(why) => return Err(why.into()),
        }
        Ok(())
    }

    /// Finds the file with a name, or creates it if that was requested.
    fn find(
        &mut self,
        dir: &Operand<'a, '_>,
        charged: ChargeProof<MetadataWrite>,
        name: &[u8],
        how: &OpenFlag<'_>,
    ) -> Result<(OpenProgress, Option<ChargeProof<MetadataWrite>>), Stop<Status>> {
        let volume = dir.file_id().volume;
        let place = |file: FileRef| FileId {
            volume,
            ino: file.ino,
            namespace: file.namespace,
        };
        let new = |attrs: &Attrs<'_>| {
            let new = self.new_attrs(attrs, true)?;
            let list = self.new_list(&new, attrs)?;
            Ok::<_, Stop<Status>>((new, list))
        };
        let none = || (New::default(), None);
        let (create, (new, list)) = match how {
            OpenFlag::NoCreate => (None, none()),
            OpenFlag::Unchecked(attrs) => (Some(CreateHow::Unchecked), new(attrs)?),
            OpenFlag::Guarded(attrs) => (Some(CreateHow::Guarded), new(attrs)?),
            OpenFlag::Exclusive(verifier) => (Some(CreateHow::Exclusive(*verifier)), none()),
            OpenFlag::ExclusiveWith(verifier, attrs) => {
                (Some(CreateHow::Exclusive(*verifier)), new(attrs)?)
            }
        };
        if matches!(create, None | Some(CreateHow::Unchecked)) {
            match dir.listed(&mut self.c.cx, name) {
                Ok((found, file)) => {
                    // The only attribute that is set on an existing file is the size, and only to 0
                    // (§18.16.3).
                    let cut = create.is_some() && new.set.size == Some(0);
                    let mut set = Bitmap::default();
                    if cut {
                        set.set(SIZE);
                    }
                    let found = OpenProgress {
                        dir: Some((found.dir.change, found.dir.change)),
                        cut: cut && found.attr.kind == FileKind::Regular,
                        set,
                        ..OpenProgress::found(place(file))
                    };
                    return Ok((found, Some(charged)));
                }
                Err(Stop::Failed(Error::NotFound)) if create.is_some() => {}
                Err(why) => return Err(why.into()),
            }
        }
        // A file that another client creates meanwhile is found by the next try.
        let how = match create {
            Some(CreateHow::Unchecked) => CreateHow::Guarded,
            Some(how) => how,
            None => unreachable!("what is not made was found"),
        };
        let attrs = new.combine_with((0, 0));
        let place_of = dir.with_file(dir.file()).with_list(list);
        let done = match place_of.create(&mut self.c.cx, charged, name, how, &attrs) {
            Err(Stop::Failed(Error::Exists)) if create == Some(CreateHow::Unchecked) => {
                return Err(Status::Delay.into());
            }
            Err(Stop::Failed(error)) if create == Some(CreateHow::Guarded) => {
                // EXIST has priority over other errors, as in open(2).
                return match dir.listed(&mut self.c.cx, name) {
                    Ok(_) => Err(Status::Exist.into()),
                    Err(Stop::Suspended(wait)) => Err(wait.into()),
                    Err(Stop::Failed(_)) => Err(error.into()),
                };
            }
            done => done?,
        };
        self.c.wait_for(done.lsn);
        let Change { before, after } = done.value.dir;
        let made = OpenProgress {
            dir: Some((before.change, after.change)),
            made: true,
            set: new.mask,
            ..OpenProgress::found(place(dir.near(done.value.ino)))
        };
        self.c.made = Some(made);
        self.note_seen(made.file, &done.value.attr);
        Ok((made, None))
    }

    /// Adds the claim of an open, and its stateid.
    fn enter_open(
        &mut self,
        client: &Client,
        operand: &Operand<'_, '_>,
        found: &OpenProgress,
        owner: &Owner,
        (access, deny): (u32, u32),
    ) -> Result<StateId, Stop<Status>> {
        let (read, write) = (access & READ != 0, access & WRITE != 0);
        // A file created by this OPEN is regular, and open to its creator.
        let may = match found.made {
            true => Ok(()),
            false => operand.may_open(&mut self.c.cx, read, write).map(drop),
        };
        match may {
            Ok(()) => {}
            Err(Stop::Failed(Error::Invalid)) => {
                let attr = operand.attr_at_hand(&mut self.c.cx);
                let link = attr.is_some_and(|a| a.kind == FileKind::Symlink);
                let status = if link {
                    Status::Symlink
                } else {
                    Status::WrongType
                };
                return Err(status.into());
            }
            Err(why) => return Err(why.into()),
        }
        let pin = operand.pin(&mut self.c.cx)?;
        let file = found.file;
        let mut states = client.claiming()?;
        self.record(client, open_kinds(deny), file)?;
        let known = states.open_of(file, owner);
        let (had, denied) = known.as_ref().map_or((0, 0), |open| open.shares());
        let all = (had | access, denied | deny);
        let request = OpenRequest {
            owner,
            key: &DELEGATIONS,
            access: modes(all.0),
            deny: modes(all.1),
            enforced: true,
            overwrite: found.cut,
        };
        match self.s.vfs.claims.open(file, &request) {
            OpenOutcome::Granted => {}
            OpenOutcome::Denied | OpenOutcome::DeletePending => {
                return Err(Status::ShareDenied.into());
            }
            OpenOutcome::Breaking(ticket) => return Err(Suspend::Recall(ticket).into()),
            OpenOutcome::Full => return Err(Status::Delay.into()),
        }
        if let Some(open) = known {
            return Ok(states.change_open(&open, all, Some((access, deny)))?);
        }
        if !client.memory.lock().grow(OPEN_BYTES) {
            self.s.vfs.claims.close(file, owner);
            return Err(Status::Delay.into());
        }
        let pin: Option<Pin> = pin;
        Ok(states.add_open(file, owner.clone(), all, pin))
    }

    /// Appends the result: the open's stateid, if there is an open, and the delegation.
    fn put_opened(
        &mut self,
        a: &OpenArgs<'_>,
        found: &OpenProgress,
        state: Option<StateId>,
        given: &Given,
    ) {
        let mut flags = RESULT;
        if state.is_none() {
            flags |= NO_STATEID;
        }
        if self.is_callable() {
            flags |= MAY_NOTIFY;
        }
        let out = &mut self.c.out;
        state.unwrap_or(StateId::ANONYMOUS).put(out);
        let (before, after) = found.dir.unwrap_or_default();
        put_change(out, before, after);
        out.put_u32(flags);
        found.set.put(out);
        given.put(a.access, out);
    }

    /// Returns the open of the current file that a stateid names.
    pub(in crate::v4) fn open_of(&self, id: &StateId) -> Result<Arc<Open>, Status> {
        let file = match self.here()? {
            Fh::File(file) => file,
            _ => return Err(Status::BadStateId),
        };
        let id = self.resolved(id)?;
        match self.client_ref().states.read().find(&id)? {
            State::Open(open) if open.file == file => Ok(open),
            _ => Err(Status::BadStateId),
        }
    }

    /// OPEN_DOWNGRADE (§18.18): gives up some of an open's shares.
    pub(in crate::v4) fn downgrade(
        &mut self,
        id: &StateId,
        access: u32,
        deny: u32,
    ) -> OperationResult {
        let open = self.open_of(id)?;
        let (had, denied) = open.shares();
        let access = access & 3;
        let within = access & !had == 0 && deny & !denied == 0;
        if access == 0 || deny > 3 || !within || !open.was_opened_as(access, deny) {
            return Err(Status::Inval.into());
        }
        let client = self.client();
        let states = client.states.write();
        let request = OpenRequest {
            owner: &open.owner,
            key: &DELEGATIONS,
            access: modes(access),
            deny: modes(deny),
            enforced: true,
            overwrite: false,
        };
        match self.s.vfs.claims.open(open.file, &request) {
            OpenOutcome::Granted => {}
            _ => return Err(Status::Delay.into()),
        }
        let state = states.change_open(&open, (access, deny), None)?;
        drop(states);
        state.put(&mut self.c.out);
        self.c.state = state;
        Ok(Status::Ok)
    }

    /// CLOSE (§18.2). Locks under the open are released (§18.2.4).
    pub(in crate::v4) fn close_open(&mut self, id: &StateId) -> OperationResult {
        let open = self.open_of(id)?;
        let client = self.client();
        self.end_open(&client, &open);
        StateId::INVALID.put(&mut self.c.out);
        self.c.state = StateId::INVALID;
        Ok(Status::Ok)
    }

    fn end_open(&self, client: &Client, open: &Arc<Open>) {
        let claims = &self.s.vfs.claims;
        let mut states = client.states.write();
        self.s.end_waiting_under(open);
        let ended = states.close(open);
        for locks in &ended {
            // A complete unlock splits nothing, so it needs no memory.
            let unlocked = claims.unlock(open.file, &locks.owner, Range::ALL);
            assert!(unlocked.is_ok(), "an unlock of everything needs memory");
        }
        claims.close(open.file, &open.owner);
        drop(states);
        let bytes = OPEN_BYTES + ended.len() * LOCK_BYTES;
        let mut memory = client.memory.lock();
        let left = memory.bytes() - bytes;
        memory.shrink_to(left);
    }

    /// FREE_STATEID (§18.38): frees a lock owner's state without locks, or a revoked state.
    pub(in crate::v4) fn free_stateid(&mut self, id: &StateId) -> OperationResult {
        let id = self.resolved(id)?;
        let client = self.client();
        if self.s.free_revoked(&client, &id) {
            return Ok(Status::Ok);
        }
        let mut states = client.states.write();
        match states.find(&id)? {
            State::Open(_) | State::Delegation(_) => Err(Status::LocksHeld.into()),
            State::Locks(locks) => {
                if self.s.vfs.claims.has_in(locks.open.file, &locks.owner) {
                    return Err(Status::LocksHeld.into());
                }
                states.free_locks(&locks);
                drop(states);
                let mut memory = client.memory.lock();
                let left = memory.bytes() - LOCK_BYTES;
                memory.shrink_to(left);
                Ok(Status::Ok)
            }
        }
    }
}

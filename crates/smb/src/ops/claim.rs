//! The claim of a CREATE: others see from here on what the open may do, denies and caches.
//!
//! Lease, claim and open are entered in this order. When a later one fails, the earlier ones are
//! left in the opposite order: an attachment to a lease is left when it is dropped, claim and
//! caches by [`Open::end`].

use crate::context::run::{Failure, Operand, Run};
use crate::context::step::ResolvedFile;
use crate::info::access::{denied, modes};
use crate::open::deletions::{Marker, RemovalKind};
use crate::open::durable::{self, Durable};
use crate::open::leases::{self, Hold, LeaseAttachment};
use crate::open::session::{Access, File, Kind, Open, Session, Tree};
use crate::ops::delete::outlast_caches;
use crate::ops::request::{Disposition, Request, option};
use crate::proto::mask;
use crate::proto::status::Status;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use weir_vfs::claims::{
    DeleteMode, MarkOutcome, Modes, OpenOutcome, OpenRequest, Owner, OwnerId, Removal,
};
use weir_vfs::grace::Kinds;
use weir_vfs::volume::{FileKind, Pin};
use weir_vfs::{FileId, Namespace, Stop, Suspend};

/// CreateAction (MS-SMB2 §2.2.14).
pub(super) mod action {
    pub const SUPERSEDED: u32 = 0;
    pub const OPENED: u32 = 1;
    pub const CREATED: u32 = 2;
    pub const OVERWRITTEN: u32 = 3;
}

/// A file that is found or made, and what its CREATE wants of it.
struct ClaimContext<'a> {
    session: &'a Arc<Session>,
    file: FileId,
    found: &'a ResolvedFile,
    /// The access that was granted, bits of [`mask`].
    granted: u32,
    request: &'a Request,
}

impl ClaimContext<'_> {
    fn directory(&self) -> bool {
        self.found.attr.kind == FileKind::Directory
    }

    fn live(&self) -> bool {
        self.file.namespace == Namespace::Live
    }

    /// Returns true if the open deletes the file when it is closed.
    fn deletes(&self) -> bool {
        self.request.asks(option::DELETE_ON_CLOSE)
    }

    /// Returns true if clients of NFS may have had claims of the file before a restart: they had
    /// some of files alone, and none of what is new.
    fn is_old(&self) -> bool {
        self.live() && !self.directory() && !self.found.made && self.found.base.is_none()
    }

    fn overwrites(&self) -> bool {
        self.request.disposition.cuts() && !self.found.made
    }

    /// Returns the CreateAction.
    fn action(&self) -> u32 {
        match (self.found.made, self.request.disposition) {
            (true, _) => action::CREATED,
            (false, Disposition::Supersede) => action::SUPERSEDED,
            (false, disposition) if disposition.cuts() => action::OVERWRITTEN,
            (false, _) => action::OPENED,
        }
    }
}

/// The lease of an open to be: the one that is asked for, and the attachment to it.
type AttachedLease = Option<(leases::LeaseRequest, LeaseAttachment)>;

impl Run<'_> {
    /// Enters the claim, and the open.
    pub(super) fn claim(
        &mut self,
        session: &Arc<Session>,
        tree: &Tree,
        operand: &Operand<'_>,
        found: &ResolvedFile,
        granted: u32,
        request: &Request,
    ) -> Result<Arc<Open>, Stop<Failure>> {
        let pin = operand.pin(&mut self.c.cx)?;
        let wanted = ClaimContext {
            session,
            file: operand.file_id(),
            found,
            granted,
            request,
        };
        let (file, directory) = (wanted.file, wanted.directory());
        let empties = wanted.deletes() && directory && !found.made;
        if empties && !self.is_empty(session, file, &session.walker)? {
            return Err(Status::DIRECTORY_NOT_EMPTY.into());
        }
        let id = self.s.open_number();
        self.outlast_earlier(&wanted)?;
        let may_cache = !wanted.is_old() || !self.s.vfs.grace.binds(Kinds::ALL, file);
        let parent = self.lease(request);
        let parent = parent.and_then(|wanted| wanted.parent(&session.client));
        let leased = self.attach(&wanted, may_cache)?;
        let (owner, key) = owner_and_key(session, id, leased.as_ref());
        self.enter_claim(&wanted, &owner, &key)?;
        let hold = self.hold(&wanted, id, &owner, leased, may_cache);
        let durable = self.durable(request);
        let open = Arc::new(Open {
            id,
            session: AtomicU64::new(0),
            tree: AtomicU32::new(tree.id),
            kind: Kind::File(Box::new(file_of(&wanted, pin))),
            access: granted,
            owner,
            key,
            durable: durable
                .filter(|_| hold.outlives() && !directory)
                .map(Durable::new),
            persistent: OnceLock::new(),
            parent,
            create_guid: match durable {
                Some(durable::DurableRequest::Second { guid, .. }) => {
                    Some((session.negotiated.offer.guid, guid))
                }
                _ => None,
            },
            hold,
            action: AtomicU32::new(wanted.action()),
            sequence: AtomicU16::new(self.header.sequence),
            write_through: request.asks(option::WRITE_THROUGH),
        });
        self.mark_deletion(&wanted, &open)?;
        self.add(session, &open)?;
        self.s.leases.durables.enter(&open);
        self.c.file = Some(id);
        Ok(open)
    }

    /// Waits until no client of NFS can reclaim what the open conflicts with.
    fn outlast_earlier(&self, wanted: &ClaimContext<'_>) -> Result<(), Stop<Failure>> {
        let granted = wanted.granted;
        let binds = modes(granted) != Modes::NONE || granted & mask::DELETE != 0;
        if !wanted.is_old() || !binds {
            return Ok(());
        }
        let has = |of: Modes| modes(granted).any(of);
        let writes = has(Modes::WRITE | Modes::DELETE) || wanted.request.disposition.cuts();
        // Clients of NFS open nothing for deletion.
        let denies = denied(wanted.request.share).any(Modes::BOTH);
        let against = Kinds::against_open(has(Modes::READ), writes, denies);
        self.outlast_grace(against, wanted.file)
    }

    /// Attaches the open to be to the lease that its client asks for, if it may have that.
    fn attach(&self, wanted: &ClaimContext<'_>, may_cache: bool) -> Result<AttachedLease, Status> {
        let (session, file) = (wanted.session, wanted.file);
        let Some(asked) = self.lease(wanted.request) else {
            return Ok(None);
        };
        // Also if none is granted.
        if self.s.leases.is_elsewhere(session, file, &asked) {
            return Err(Status::INVALID_PARAMETER);
        }
        let directory = wanted.directory();
        let lease = match directory {
            true if session.negotiated.offer.has_directory_leases() => asked.of_directory(),
            true => None,
            false => Some(asked),
        };
        let Some(lease) = lease.filter(|_| wanted.live() && may_cache) else {
            return Ok(None);
        };
        let (leases, number) = (&self.s.leases, || self.s.open_number());
        let attached = leases.attach(session, (file, directory), &lease, number)?;
        Ok(Some((lease, attached)))
    }

    /// Enters the claim of a file that is not of a snapshot.
    fn enter_claim(
        &self,
        wanted: &ClaimContext<'_>,
        owner: &Owner,
        key: &OwnerId,
    ) -> Result<(), Stop<Failure>> {
        if !wanted.live() {
            return Ok(());
        }
        let (vfs, file) = (&self.s.vfs, wanted.file);
        if wanted.deletes() && !wanted.directory() && !wanted.found.made {
            outlast_caches(vfs, file, Access::Made(owner, key))?;
        }
        let access = modes(wanted.granted);
        let open = OpenRequest {
            owner,
            key,
            access,
            deny: match access {
                Modes::NONE => Modes::NONE,
                _ => denied(wanted.request.share),
            },
            enforced: true,
            overwrite: wanted.overwrites(),
        };
        let (address, ask) = (owner.client.address, || vfs.claims.open(file, &open));
        match self.s.with_room(address, ask, |o| *o == OpenOutcome::Full) {
            OpenOutcome::Granted => Ok(()),
            OpenOutcome::Denied => Err(Status::SHARING_VIOLATION.into()),
            OpenOutcome::DeletePending => Err(Status::DELETE_PENDING.into()),
            OpenOutcome::Breaking(ticket) => Err(Suspend::Recall(ticket).into()),
            OpenOutcome::Full => Err(Status::INSUFFICIENT_RESOURCES.into()),
        }
    }

    /// Grants the lease, or else the oplock that is asked for.
    fn hold(
        &mut self,
        wanted: &ClaimContext<'_>,
        id: u64,
        owner: &Owner,
        leased: AttachedLease,
        may_cache: bool,
    ) -> Hold {
        if let Some((lease, attached)) = leased {
            self.c.lease = Some(self.s.leases.grant(&attached, &lease));
            return Hold::Lease(attached);
        }
        if !wanted.live() || wanted.directory() || !may_cache {
            return Hold::Nothing;
        }
        let (session, file) = (wanted.session, wanted.file);
        let leases = &self.s.leases;
        let oplock = leases.oplock(session, id, file, owner, wanted.request.oplock);
        oplock.map_or(Hold::Nothing, Hold::Oplock)
    }

    /// Marks the file for deletion when the open is closed, if its CREATE asks for that.
    fn mark_deletion(&self, wanted: &ClaimContext<'_>, open: &Open) -> Result<(), Status> {
        let named = &wanted.found.named;
        let Some(dir) = named.dir.filter(|_| wanted.deletes()) else {
            return Ok(());
        };
        let removal = Removal {
            dir,
            name: Arc::from(&*named.name),
            alone: wanted.request.posix.is_some(),
        };
        let (vfs, file) = (&self.s.vfs, wanted.file);
        let deletions = &self.s.news.deletions;
        let what = RemovalKind::from_base(wanted.found.base.as_ref());
        let by = (self.conn.peer, self.security());
        let marker = Marker::from_session(wanted.session, open.parent.clone(), by);
        deletions.mark(file, marker, what);
        match vfs
            .claims
            .mark(file, &open.owner, DeleteMode::OnClose, &removal)
        {
            MarkOutcome::Yes => Ok(()),
            MarkOutcome::NotOpen | MarkOutcome::Full => {
                deletions.unmark(file);
                open.end(vfs, &self.s.leases);
                Err(Status::INSUFFICIENT_RESOURCES)
            }
        }
    }

    /// Adds the open to its session, under the name that the file has by now.
    fn add(&self, session: &Session, open: &Arc<Open>) -> Result<(), Status> {
        let moves = self.s.moves.read();
        if let Some(file) = open.file().filter(|file| file.claimed) {
            let mut named = file.named.lock();
            moves.follow(self.c.walked, file.id.volume, &mut named.path);
        }
        let added = session.add(Arc::clone(open));
        drop(moves);
        if added {
            return Ok(());
        }
        open.end(&self.s.vfs, &self.s.leases);
        Err(Status::INSUFFICIENT_RESOURCES)
    }
}

/// Returns the owner of an open's claims, and the key under which its client caches: under a lease
/// as the client that holds it, which may have come from another address.
fn owner_and_key(
    session: &Session,
    id: u64,
    leased: Option<&(leases::LeaseRequest, LeaseAttachment)>,
) -> (Owner, OwnerId) {
    let holder = leased.map(|(_, attached)| attached.owner());
    let owner = leases::owner(holder.map_or(&session.client, |o| &o.client), id);
    let key = holder.map_or(&owner.who, |o| &o.who).clone();
    (owner, key)
}

/// Returns the open file.
fn file_of(wanted: &ClaimContext<'_>, pin: Option<Pin>) -> File {
    File {
        id: wanted.file,
        directory: AtomicBool::new(wanted.directory()),
        base: wanted.found.base,
        named: Mutex::new(wanted.found.named.clone()),
        listing: Mutex::default(),
        position: AtomicU64::new(0),
        locks: Mutex::default(),
        sequences: Mutex::default(),
        claimed: wanted.live(),
        watch: Mutex::default(),
        unreported: AtomicU32::new(0),
        pin,
        posix: wanted.request.posix.is_some(),
    }
}

//! CREATEs that come back to a durable open, and room for new ones. See [`crate::open::durable`].

use crate::conn::server::Service;
use crate::context::run::{CommandResult, Failure, Run};
use crate::context::step::{PendingCreate, Step};
use crate::open::durable::{Back, CreateState, DurableRequest, Durables};
use crate::open::session::{Open, Session, Target, Tree};
use crate::ops::request::Request;
use crate::proto::dialect::Dialect;
use crate::proto::header::flag;
use crate::proto::status::Status;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_vfs::grace::Kinds;
use weir_vfs::signal::Signal;
use weir_vfs::{FileId, Stop, Suspend};

impl Durables {
    /// Takes out the open that a client comes back to.
    fn take(&self, back: Back, session: &Session, request: &Request) -> Result<Arc<Open>, Status> {
        let none = Status::OBJECT_NAME_NOT_FOUND;
        let client = session.negotiated.offer.guid;
        // A persistent open is also found by its CreateGuid alone.
        let by_guid = || {
            let guid = back.guid.filter(|_| back.persistent)?;
            match self.made.lock().get(&(client, guid))? {
                CreateState::Open(open) => Some(open.upgrade()?.id),
                CreateState::Pending => None,
            }
        };
        let other = by_guid();
        let mut all = self.kept.lock();
        let id = match all.by_id.contains_key(&back.id) {
            true => back.id,
            false => other.ok_or(none)?,
        };
        let kept = all.by_id.get(&id).ok_or(none)?;
        let open = &kept.open;
        let same_client = kept.guid == client;
        if open.is_persistent() && !back.persistent {
            return Err(none);
        }
        // The first version asks by the number alone; an open that it made has an id of zeroes
        // (§3.3.5.9.7, §3.3.5.9.12).
        let guid = open.create_guid.map_or([0; 16], |(_, guid)| guid);
        if back.guid.is_some_and(|asked| asked != guid) {
            return Err(none);
        }
        match (open.hold.lease(), &request.lease) {
            (None, None) => {}
            (Some(lease), Some(wanted)) if same_client && lease.is_the_one(wanted) => {
                // The name is only compared where the client has to say it.
                let named = open.file().map(|file| file.named.lock().path.clone());
                let same = |path: String| path.eq_ignore_ascii_case(&request.path);
                if !named.is_some_and(same) {
                    return Err(Status::INVALID_PARAMETER);
                }
            }
            _ => return Err(none),
        }
        if kept.user != session.user {
            return Err(Status::ACCESS_DENIED);
        }
        let kept = all.remove(id).ok_or(none)?;
        Ok(kept.open)
    }
}

impl Service {
    /// Ends the durable opens that have been without a session longest, to make room in the table
    /// of claims for a request from an address: its own, or if it has none and its share of the
    /// table is not used up, any. Returns false if there are none.
    pub(crate) fn make_room(&self, address: IpAddr) -> bool {
        let any = !self.vfs.claims.share_used_up(address);
        let gone = self.leases.durables.take_oldest(address, any);
        if !gone.is_empty() {
            tracing::debug!(%address, opens = gone.len(), "durable opens without a session yield");
        }
        let end = |open: &Arc<Open>| open.end(&self.vfs, &self.leases);
        gone.iter().for_each(end);
        !gone.is_empty()
    }

    /// Asks the table of claims; a second time, if it has no room and opens without a session
    /// yield.
    pub(crate) fn with_room<T>(
        &self,
        address: IpAddr,
        ask: impl Fn() -> T,
        is_full: impl Fn(&T) -> bool,
    ) -> T {
        let first = ask();
        match is_full(&first) && self.make_room(address) {
            true => ask(),
            false => first,
        }
    }

    /// Returns true if another session of the user has this open, and it is durable.
    fn has_open_elsewhere(&self, session: &Session, open: u64) -> bool {
        let others = self.all_sessions().into_iter();
        let mut others = others.filter(|o| o.id != session.id && o.user == session.user);
        others.any(|other| other.open(open).is_some_and(|o| o.durable().is_some()))
    }
}

impl Run<'_> {
    /// Returns the durability that a CREATE asks for, if the dialect has that version.
    pub(crate) fn durable(&self, request: &Request) -> Option<DurableRequest> {
        let second = self.conn.dialect() >= Some(Dialect::Smb300);
        let has = |wanted: &DurableRequest| second || *wanted == DurableRequest::First;
        request.durable.filter(has)
    }

    /// A CREATE that was sent before: what it has opened (§3.3.5.9.10). `None`: it was not, and is
    /// now under way.
    pub(crate) fn replayed(
        &mut self,
        session: &Arc<Session>,
        tree: &Tree,
        guid: [u8; 16],
        request: &Request,
    ) -> Result<Option<CommandResult>, Status> {
        if self.c.creating.is_some() {
            return Ok(None);
        }
        let name = (session.negotiated.offer.guid, guid);
        let replay = self.header.has_flag(flag::REPLAY);
        let mut made = self.s.leases.durables.made.lock();
        let found = match made.get(&name) {
            None => None,
            Some(CreateState::Pending) if replay => return Err(Status::FILE_NOT_AVAILABLE),
            Some(CreateState::Pending) => return Err(Status::DUPLICATE_OBJECTID),
            Some(CreateState::Open(open)) => open.upgrade(),
        };
        let Some(open) = found else {
            made.insert(name, CreateState::Pending);
            drop(made);
            self.c.creating = Some(PendingCreate {
                leases: Arc::clone(&self.s.leases),
                name,
            });
            return Ok(None);
        };
        drop(made);
        if !replay {
            return Err(Status::DUPLICATE_OBJECTID);
        }
        // CreateAction of the CREATE that was carried out.
        let action = Some(open.action.load(Ordering::Relaxed));
        if session.open(open.id).is_none() {
            // As it is, to the session that has it; a persistent one also to the next, since the
            // response may be lost with the session, or the server.
            return match open.is_persistent() {
                true => {
                    let back = Back {
                        id: open.id,
                        guid: Some(guid),
                        persistent: true,
                    };
                    Ok(Some(self.take_over(session, tree, request, (back, action))))
                }
                false => Err(Status::DUPLICATE_OBJECTID),
            };
        }
        let same = match (open.hold.lease(), &request.lease) {
            (Some(lease), Some(wanted)) => lease.is_the_one(wanted),
            (None, None) => true,
            _ => false,
        };
        match same {
            true => Ok(Some(self.again(session, open, request, action))),
            false => Err(Status::ACCESS_DENIED),
        }
    }

    /// A CREATE that takes over an open of a session that is no more (§3.3.5.9.7, §3.3.5.9.12).
    pub(crate) fn come_back(
        &mut self,
        session: &Arc<Session>,
        tree: &Tree,
        request: &Request,
        back: Back,
    ) -> CommandResult {
        self.take_over(session, tree, request, (back, None))
    }

    /// Takes over an open that is kept; with `action`, as the response to the CREATE that has made
    /// it.
    fn take_over(
        &mut self,
        session: &Arc<Session>,
        tree: &Tree,
        request: &Request,
        (back, action): (Back, Option<u32>),
    ) -> CommandResult {
        let open = match std::mem::take(&mut self.c.step) {
            // Since then it has its session.
            Step::Opened(open) => open,
            step => {
                let durables = &self.s.leases.durables;
                let (came, first) = (Arc::<Signal<()>>::default(), matches!(step, Step::Nothing));
                if first {
                    durables.awaited.lock().push(Arc::clone(&came));
                }
                // Until the session has it.
                let _moves = self.s.moves.read();
                let open = match durables.take(back, session, request) {
                    // The client has noticed before the server that its connection is lost: for a
                    // second that may be.
                    Err(Status::OBJECT_NAME_NOT_FOUND)
                        if first && self.s.has_open_elsewhere(session, back.id) =>
                    {
                        self.c.step = Step::Awaited;
                        return Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
                            came.settled().await;
                        }))));
                    }
                    taken => taken?,
                };
                let volume = match tree.target {
                    Target::Volume(root) => Some(root.volume),
                    Target::Pipes | Target::Referred => None,
                };
                let there = open.file().map(|file| file.id.volume) == volume;
                open.tree.store(tree.id, Ordering::Relaxed);
                open.sequence.store(self.header.sequence, Ordering::Relaxed);
                self.s
                    .leases
                    .returns(&open.hold, session, request.lease.as_ref());
                // It may have been broken as it was taken out.
                let lives = open.is_persistent() || open.hold.outlives();
                if !there || !lives || !session.add(Arc::clone(&open)) {
                    open.end(&self.s.vfs, &self.s.leases);
                    return Err(Status::OBJECT_NAME_NOT_FOUND.into());
                }
                open
            }
        };
        self.c.step = Step::Opened(Arc::clone(&open));
        self.again(session, open, request, action)
    }

    /// Holds a request for a new claim in a file, which conflicts with these kinds, for as long as
    /// clients may claim something of them again ([`weir_vfs::grace`]). A client's return to a
    /// persistent open is no new claim.
    pub(crate) fn outlast_grace(&self, against: Kinds, file: FileId) -> Result<(), Stop<Failure>> {
        let (grace, now) = (&self.s.vfs.grace, self.s.clock.monotonic());
        if grace.admit_new(against, file, now).is_ok() {
            return Ok(());
        }
        // Each second it looks again: a period may end before its time.
        let over = Arc::<Signal<()>>::default();
        self.s
            .leases
            .durables
            .awaited
            .lock()
            .push(Arc::clone(&over));
        Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
            over.settled().await;
        }))))
    }

    /// The response to a CREATE of an open that was there, with the action that it had, or a new
    /// one.
    pub(crate) fn again(
        &mut self,
        session: &Arc<Session>,
        open: Arc<Open>,
        request: &Request,
        action: Option<u32>,
    ) -> CommandResult {
        self.c.file = Some(open.id);
        self.c.lease = open
            .hold
            .lease()
            .map(|lease| self.s.leases.encode_lease_context(lease));
        let attr = match open.file() {
            Some(file) => self.attr(session, &open, file)?,
            None => None,
        };
        let attr = attr.ok_or(Stop::Failed(Failure::Status(Status::OBJECT_NAME_NOT_FOUND)))?;
        let durable = action.is_some();
        self.opened(
            session,
            open,
            &attr,
            (action.unwrap_or(1), durable),
            request,
        )
    }
}

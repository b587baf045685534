//! Durable opens (MS-SMB2 §3.3.5.9.6, §3.3.5.9.7, §3.3.5.9.10, §3.3.5.9.12, §3.3.7.1): they outlive the connections of their session.
//!
//! An open is durable if its CREATE asks for it and nobody else can want the file without the client being asked first: under a batch
//! oplock, or a lease with H. When the session loses its last connection, or is replaced by another of its client, such an open is
//! kept with all its claims: denials, locks, what it caches. The client's next CREATE takes it over, on another session of the
//! same user. What ends it before: its time, or anything that would have it asked, as nobody is there to answer. A persistent one is
//! kept whatever it caches, and ended by its time alone ([`crate::persistent`]).
//!
//! Kept opens yield to requests: where the table of claims has no room for one, the durable opens that have been without a session
//! longest end first ([`Service::make_room`]). So no client is locked out by what it had open before it lost its connection.
//!
//! The second version has an id that the client makes up (CreateGuid): a CREATE that is sent again, since its answer was lost,
//! finds what the first one has opened.

use crate::chain::{CommandResult, Failure, Run, Step};
use crate::header::flag;
use crate::leases::Leases;
use crate::negotiate::Dialect;
use crate::request::Request;
use crate::service::Service;
use crate::session::{Open, Session, Target, Tree};
use crate::status::Status;
use crate::wire::{Malformed, Put, Reader};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_base::VolumeId;
use weir_vfs::grace::Kinds;
use weir_vfs::signal::Signal;
use weir_vfs::{Stop, Suspend, Vfs};

/// How long an open of the first version is kept: as Windows does.
const FIRST: Duration = Duration::from_secs(16 * 60);
/// Likewise of the second version, if the client says nothing, and at most.
const SECOND: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(300);
/// Likewise of a persistent one, if the client says nothing: a server that has to be started on another machine takes longer.
const PERSISTENT: Duration = Duration::from_secs(120);
/// Opens without a session that are kept, of all clients.
const MOST_KEPT: usize = 65_536;
/// Opens without a session that end at once where there is no room for a request.
const YIELDING: usize = 16;

/// By what a client's CREATE is found: its GUID, and the CreateGuid.
pub type Name = ([u8; 16], [u8; 16]);

/// What a CREATE asks for (§2.2.13.2.3, §2.2.13.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A durable open of the first version.
    First,
    /// Of the second.
    Second {
        /// For how long in ms; 0 leaves it to the server.
        timeout: u32,
        /// The CreateGuid.
        guid: [u8; 16],
        /// It is to outlive the server.
        persistent: bool,
    },
}

/// SMB2_DHANDLE_FLAG_PERSISTENT.
const FLAG_PERSISTENT: u32 = 2;

/// The open that a CREATE takes over (§2.2.13.2.4, §2.2.13.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Its number.
    id: u64,
    /// Of the second version.
    guid: Option<[u8; 16]>,
    /// It says that the open is persistent.
    persistent: bool,
}

impl Wanted {
    /// From the data of DHnQ.
    pub fn first(data: &[u8]) -> Result<Wanted, Malformed> {
        Reader::new(data).bytes(16)?;
        Ok(Wanted::First)
    }

    /// From the data of DH2Q.
    pub fn second(data: &[u8]) -> Result<Wanted, Malformed> {
        let mut r = Reader::new(data);
        let (timeout, flags) = (r.u32()?, r.u32()?);
        r.bytes(8)?;
        Ok(Wanted::Second {
            timeout,
            guid: r.array()?,
            persistent: flags & FLAG_PERSISTENT != 0,
        })
    }

    /// Whether the open is to outlive the server.
    pub fn is_persistent(self) -> bool {
        matches!(self, Wanted::Second { persistent, .. } if persistent)
    }

    /// How long the open is kept.
    fn time(self) -> Duration {
        match self {
            Wanted::First => FIRST,
            Wanted::Second {
                timeout: 0,
                persistent,
                ..
            } => match persistent {
                true => PERSISTENT,
                false => SECOND,
            },
            Wanted::Second { timeout, .. } => {
                Duration::from_millis(u64::from(timeout)).min(LONGEST)
            }
        }
    }
}

impl Back {
    /// From the data of DHnC.
    pub fn first(data: &[u8]) -> Result<Back, Malformed> {
        let id = Reader::new(data).u64()?;
        Ok(Back {
            id,
            guid: None,
            persistent: false,
        })
    }

    /// From the data of DH2C.
    pub fn second(data: &[u8]) -> Result<Back, Malformed> {
        let mut r = Reader::new(data);
        let id = r.u64()?;
        r.u64()?;
        let guid = Some(r.array()?);
        // The flags are not there with every client.
        let flags = r.u32().unwrap_or(0);
        Ok(Back {
            id,
            guid,
            persistent: flags & FLAG_PERSISTENT != 0,
        })
    }

    /// Whether it is of the first version.
    pub fn is_first(&self) -> bool {
        self.guid.is_none()
    }
}

/// Of an open: that it is durable.
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    wanted: Wanted,
}

impl Durable {
    /// As it was asked for, but not persistent.
    pub fn new(wanted: Wanted) -> Durable {
        let wanted = match wanted {
            Wanted::Second { timeout, guid, .. } => Wanted::Second {
                timeout,
                guid,
                persistent: false,
            },
            first => first,
        };
        Durable { wanted }
    }

    /// Of a persistent open, by the time in ms that it asked for, and its CreateGuid.
    pub fn persistent(timeout: u32, guid: [u8; 16]) -> Durable {
        let wanted = Wanted::Second {
            timeout,
            guid,
            persistent: true,
        };
        Durable { wanted }
    }

    /// The context of the response that says so.
    pub fn context(&self) -> (&'static [u8; 4], Vec<u8>) {
        let mut out = Vec::new();
        match self.wanted {
            Wanted::First => {
                out.put_u64(0);
                (b"DHnQ", out)
            }
            Wanted::Second { persistent, .. } => {
                out.put_u32(self.wanted.time().as_millis() as u32);
                out.put_u32(if persistent { FLAG_PERSISTENT } else { 0 });
                (b"DH2Q", out)
            }
        }
    }
}

/// An open without a session.
struct Kept {
    open: Arc<Open>,
    user: String,
    guid: [u8; 16],
    /// On the monotonic clock.
    until: Duration,
    /// Its place in the order in which opens are put here.
    since: u64,
}

/// Opens without a session, by number; those that are not persistent also in the order in which they lost it.
#[derive(Default)]
struct AllKept {
    by_id: HashMap<u64, Kept>,
    /// Numbers of opens by [`Kept::since`].
    order: BTreeMap<u64, u64>,
    /// Numbers of the opens that are charged to an address, in this order.
    of_address: HashMap<IpAddr, BTreeMap<u64, u64>>,
    next: u64,
}

impl AllKept {
    fn insert(&mut self, mut new: Kept) {
        let (id, address) = (new.open.id, new.open.owner.client.address);
        self.next += 1;
        new.since = self.next;
        if !new.open.is_persistent() {
            self.order.insert(new.since, id);
            let here = self.of_address.entry(address).or_default();
            here.insert(new.since, id);
        }
        if let Some(old) = self.by_id.insert(id, new) {
            self.unlist(&old);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Kept> {
        let kept = self.by_id.remove(&id)?;
        self.unlist(&kept);
        Some(kept)
    }

    fn unlist(&mut self, kept: &Kept) {
        self.order.remove(&kept.since);
        let address = kept.open.owner.client.address;
        if let Some(here) = self.of_address.get_mut(&address) {
            here.remove(&kept.since);
            if here.is_empty() {
                self.of_address.remove(&address);
            }
        }
    }

    /// Takes out up to `most` of the opens that came first: of an address, or if it has none and `any` is set, of all.
    fn take_oldest(&mut self, address: IpAddr, any: bool, most: usize) -> Vec<Arc<Open>> {
        let all = any.then_some(&self.order);
        let from = self.of_address.get(&address).or(all);
        let oldest: Vec<u64> =
            from.map_or_else(Vec::new, |from| from.values().take(most).copied().collect());
        let out = oldest.into_iter().filter_map(|id| self.remove(id));
        out.map(|kept| kept.open).collect()
    }
}

/// What a CreateGuid stands for.
enum Made {
    /// The CREATE is being run.
    Pending,
    Open(Weak<Open>),
}

/// All durable opens without a session, and all opens that have a CreateGuid.
#[derive(Default)]
pub struct Durables {
    kept: Mutex<AllKept>,
    made: Mutex<HashMap<Name, Made>>,
    /// Who waits for an open to lose its session.
    awaited: Mutex<Vec<Arc<Signal<()>>>>,
}

/// A CREATE with a CreateGuid, while it is run.
pub(crate) struct Creating {
    leases: Arc<Leases>,
    name: Name,
}

impl Drop for Creating {
    fn drop(&mut self) {
        let mut made = self.leases.durables.made.lock();
        if let Some(Made::Pending) = made.get(&self.name) {
            made.remove(&self.name);
        }
    }
}

impl Durables {
    /// Keeps an open whose session has lost its connections, if it is durable still. `None`: it is not kept; otherwise the opens that
    /// have been kept longest and yield to it, which are the caller's to end.
    pub fn keep(
        &self,
        open: &Arc<Open>,
        session: &Session,
        vfs: &Vfs,
        now: Duration,
    ) -> Option<Vec<Arc<Open>>> {
        let file = open.file()?;
        let stays = match open.persistent.get() {
            // It is being closed.
            Some(persistent) => !persistent.is_erased(),
            None => open.hold.outlives() && !vfs.claims.delete_pending(file.id),
        };
        if !stays || open.durable().is_none() {
            return None;
        }
        let gone = {
            let mut kept = self.kept.lock();
            match kept.by_id.len() < MOST_KEPT {
                true => Vec::new(),
                false => kept.take_oldest(open.owner.client.address, true, 1),
            }
        };
        let guid = session.negotiated.offer.guid;
        self.put(Arc::clone(open), &session.user, guid, now);
        self.arrived();
        Some(gone)
    }

    /// Takes out the opens that have been kept longest, of an address, or if it has none and `any` is set, of all. Persistent ones stay.
    fn take_oldest(&self, address: IpAddr, any: bool) -> Vec<Arc<Open>> {
        self.kept.lock().take_oldest(address, any, YIELDING)
    }

    /// Keeps an open without a session, of a client's user, for its time.
    pub fn put(&self, open: Arc<Open>, user: &str, guid: [u8; 16], now: Duration) {
        // What is not durable is not kept.
        let time = open.durable().map_or(Duration::ZERO, |d| d.wanted.time());
        let new = Kept {
            user: user.to_owned(),
            guid,
            until: now + time,
            since: 0,
            open,
        };
        self.kept.lock().insert(new);
    }

    /// The opens that `which` selects.
    pub(crate) fn all(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let kept = self.kept.lock();
        let all = kept.by_id.values().map(|kept| &kept.open);
        all.filter(|open| which(open)).cloned().collect()
    }

    /// Whether a persistent open is kept of something below a directory of a volume.
    pub fn has_persistent_below(&self, volume: VolumeId, path: &str) -> bool {
        let kept = self.kept.lock();
        let mut all = kept.by_id.values().map(|kept| &kept.open);
        all.any(|open| open.is_persistent() && open.is_below(volume, path))
    }

    /// Has those who wait look again: an open was put here, or they have waited long enough.
    pub fn arrived(&self) {
        let all = std::mem::take(&mut *self.awaited.lock());
        all.iter().for_each(|signal| signal.set(()));
    }

    /// Takes out what is kept and no more wanted.
    pub fn take_all(&self, goes: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let mut kept = self.kept.lock();
        let all = kept.by_id.values().filter(|k| goes(&k.open));
        let all: Vec<u64> = all.map(|k| k.open.id).collect();
        let out = all.iter().filter_map(|id| kept.remove(*id));
        out.map(|k| k.open).collect()
    }

    /// Takes out the open of this number.
    pub fn take_one(&self, id: u64) -> Option<Arc<Open>> {
        self.kept.lock().remove(id).map(|kept| kept.open)
    }

    /// Takes out what was kept for its time.
    pub fn expired(&self, now: Duration) -> Vec<Arc<Open>> {
        let mut kept = self.kept.lock();
        let due = kept.by_id.values().filter(|k| k.until <= now);
        let due: Vec<u64> = due.map(|k| k.open.id).collect();
        let out = due.iter().filter_map(|id| kept.remove(*id));
        out.map(|k| k.open).collect()
    }

    /// Takes out the open that a client comes back to.
    fn take(&self, back: Back, session: &Session, request: &Request) -> Result<Arc<Open>, Status> {
        let none = Status::OBJECT_NAME_NOT_FOUND;
        let client = session.negotiated.offer.guid;
        // A persistent open is also found by its CreateGuid alone.
        let by_guid = || {
            let guid = back.guid.filter(|_| back.persistent)?;
            match self.made.lock().get(&(client, guid))? {
                Made::Open(open) => Some(open.upgrade()?.id),
                Made::Pending => None,
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
        // The first version asks by the number alone; an open that it made has an id of zeroes (§3.3.5.9.7, §3.3.5.9.12).
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

    /// Enters the CreateGuid of an open.
    pub fn enter(&self, open: &Arc<Open>) {
        if let Some(name) = open.create_guid {
            let mut made = self.made.lock();
            made.insert(name, Made::Open(Arc::downgrade(open)));
        }
    }

    /// An open is over.
    pub fn forget(&self, open: &Open) {
        let Some(name) = open.create_guid else {
            return;
        };
        let mut made = self.made.lock();
        if let Some(Made::Open(of)) = made.get(&name)
            && std::ptr::eq(of.as_ptr(), open)
        {
            made.remove(&name);
        }
    }
}

impl Service {
    /// Ends the durable opens that have been without a session longest, to make room in the table of claims for a request from an
    /// address: its own, or if it has none and its share of the table is not used up, any. Returns false if there are none.
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

    /// Asks the table of claims; a second time, if it has no room and opens without a session yield.
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

    /// Whether another session of the user has this open, and it is durable.
    fn has(&self, session: &Session, open: u64) -> bool {
        let others = self.all_sessions().into_iter();
        let mut others = others.filter(|o| o.id != session.id && o.user == session.user);
        others.any(|other| other.open(open).is_some_and(|o| o.durable().is_some()))
    }
}

impl Run<'_> {
    /// What a CREATE asks for of durable opens, as far as the dialect has it.
    pub(crate) fn durable(&self, request: &Request) -> Option<Wanted> {
        let second = self.conn.dialect() >= Some(Dialect::Smb300);
        let has = |wanted: &Wanted| second || *wanted == Wanted::First;
        request.durable.filter(has)
    }

    /// A CREATE that was sent before: what it has opened (§3.3.5.9.10). `None`: it was not, and is now under way.
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
        let replay = self.header.has(flag::REPLAY);
        let mut made = self.s.leases.durables.made.lock();
        let found = match made.get(&name) {
            None => None,
            Some(Made::Pending) if replay => return Err(Status::FILE_NOT_AVAILABLE),
            Some(Made::Pending) => return Err(Status::DUPLICATE_OBJECTID),
            Some(Made::Open(open)) => open.upgrade(),
        };
        let Some(open) = found else {
            made.insert(name, Made::Pending);
            drop(made);
            self.c.creating = Some(Creating {
                leases: Arc::clone(&self.s.leases),
                name,
            });
            return Ok(None);
        };
        drop(made);
        if !replay {
            return Err(Status::DUPLICATE_OBJECTID);
        }
        // What it came to when it was carried out.
        let action = Some(open.action.load(Ordering::Relaxed));
        if session.open(open.id).is_none() {
            // As it is, to the session that has it; a persistent one also to the next, since the response may be lost with the
            // session, or the server.
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

    /// Takes over an open that is kept; with `action`, as the response to the CREATE that has made it.
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
                    // The client has noticed before the server that its connection is lost: for a second that may be.
                    Err(Status::OBJECT_NAME_NOT_FOUND) if first && self.s.has(session, back.id) => {
                        self.c.step = Step::Awaited;
                        return Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
                            came.settled().await;
                        }))));
                    }
                    taken => taken?,
                };
                let volume = match tree.target {
                    Target::Volume(root) => Some(root.volume),
                    Target::Pipes => None,
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

    /// Holds a request for a new claim in a volume, which conflicts with these kinds, for as long as clients may claim
    /// something of them again ([`weir_vfs::grace`]). A client's return to a persistent open is no new claim.
    pub(crate) fn outlast_grace(
        &self,
        against: Kinds,
        volume: VolumeId,
    ) -> Result<(), Stop<Failure>> {
        let (grace, now) = (&self.s.vfs.grace, self.s.clock.monotonic());
        if grace.admit_new(against, volume, now).is_ok() {
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

    /// The response to a CREATE of an open that was there, with the action that it had, or a new one.
    pub(crate) fn again(
        &mut self,
        session: &Arc<Session>,
        open: Arc<Open>,
        request: &Request,
        action: Option<u32>,
    ) -> CommandResult {
        self.c.file = Some(open.id);
        self.c.lease = open.hold.lease().map(|lease| self.s.leases.shown(lease));
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

//! Durable opens (MS-SMB2 §3.3.5.9.6, §3.3.5.9.7, §3.3.5.9.10, §3.3.5.9.12, §3.3.7.1): they outlive
//! the connections of their session.
//!
//! An open is durable if its CREATE asks for it, and nobody else can use the file without a break
//! to its client: under a batch oplock, or a lease with H. When the session loses its last
//! connection, or its client replaces it, the open is kept with all its claims: denials, locks and
//! caching rights. The client's next CREATE takes it over, on another session of the same user. The
//! open ends earlier when its time is over or a break is due, since nobody is there to answer. A
//! persistent open is kept whatever it caches, and only its time ends it
//! ([`crate::open::persistent`]).
//!
//! Kept opens yield to requests: when the table of claims has no room, the durable opens that have
//! been without a session longest end first (`ops::reconnect`). So no client is locked out by
//! its own opens of before it lost its connection.
//!
//! The second version has an id that the client chooses (CreateGuid). With it, a CREATE that is
//! sent again because its response was lost finds the open of the first one.

use crate::open::session::{Open, Session};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_base::VolumeId;
use weir_vfs::Vfs;
use weir_vfs::signal::Signal;

/// Time for which a version 1 open is kept, as Windows does.
pub(crate) const FIRST: Duration = Duration::from_secs(16 * 60);
/// Default and maximum time for which a version 2 open is kept.
pub(crate) const SECOND: Duration = Duration::from_secs(60);
pub(crate) const LONGEST: Duration = Duration::from_secs(300);
/// Default time for which a persistent open is kept. It is longer because a server that has to be
/// started on another machine takes longer.
pub(crate) const PERSISTENT: Duration = Duration::from_secs(120);
/// Opens without a session that are kept, of all clients.
pub(crate) const MOST_KEPT: usize = 65_536;
/// Opens without a session that end at once where there is no room for a request.
pub(crate) const YIELDING: usize = 16;

/// Name by which a client's CREATE is found: the ClientGuid and the CreateGuid.
pub type Name = ([u8; 16], [u8; 16]);

/// The durability that a CREATE asks for (§2.2.13.2.3, §2.2.13.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableRequest {
    /// A durable open of the first version.
    First,
    /// A durable or persistent open of the second version.
    Second {
        /// Time for which the open is to be kept, in ms; 0 leaves it to the server.
        timeout: u32,
        /// The CreateGuid.
        guid: [u8; 16],
        /// True if the open is to outlive the server.
        persistent: bool,
    },
}

/// SMB2_DHANDLE_FLAG_PERSISTENT.
pub(crate) const FLAG_PERSISTENT: u32 = 2;

/// The open that a CREATE takes over (§2.2.13.2.4, §2.2.13.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// Its number.
    pub(crate) id: u64,
    /// The CreateGuid; `None` in version 1.
    pub(crate) guid: Option<[u8; 16]>,
    /// True if the client says that the open is persistent.
    pub(crate) persistent: bool,
}

impl DurableRequest {
    /// Decodes the data of DHnQ.
    pub fn first(data: &[u8]) -> Result<DurableRequest, DecodeError> {
        Reader::new(data).bytes(16)?;
        Ok(DurableRequest::First)
    }

    /// Decodes the data of DH2Q.
    pub fn second(data: &[u8]) -> Result<DurableRequest, DecodeError> {
        let mut r = Reader::new(data);
        let (timeout, flags) = (r.u32()?, r.u32()?);
        r.bytes(8)?;
        Ok(DurableRequest::Second {
            timeout,
            guid: r.array()?,
            persistent: flags & FLAG_PERSISTENT != 0,
        })
    }

    /// Returns true if the open is to outlive the server.
    pub fn is_persistent(self) -> bool {
        matches!(self, DurableRequest::Second { persistent, .. } if persistent)
    }

    /// Returns the time for which the open is kept: the requested one up to [`LONGEST`], or the
    /// default of its kind.
    pub(crate) fn time(self) -> Duration {
        match self {
            DurableRequest::First => FIRST,
            DurableRequest::Second {
                timeout: 0,
                persistent,
                ..
            } => match persistent {
                true => PERSISTENT,
                false => SECOND,
            },
            DurableRequest::Second { timeout, .. } => {
                Duration::from_millis(u64::from(timeout)).min(LONGEST)
            }
        }
    }
}

impl Back {
    /// Decodes the data of DHnC.
    pub fn first(data: &[u8]) -> Result<Back, DecodeError> {
        let id = Reader::new(data).u64()?;
        Ok(Back {
            id,
            guid: None,
            persistent: false,
        })
    }

    /// Decodes the data of DH2C.
    pub fn second(data: &[u8]) -> Result<Back, DecodeError> {
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

    /// Returns true for the first version.
    pub fn is_first(&self) -> bool {
        self.guid.is_none()
    }
}

/// Durability that was granted to an open.
#[derive(Clone, Copy, Debug)]
pub struct Durable {
    pub(crate) wanted: DurableRequest,
}

impl Durable {
    /// Grants durability as it was asked for, but not persistence.
    pub fn new(wanted: DurableRequest) -> Durable {
        let wanted = match wanted {
            DurableRequest::Second { timeout, guid, .. } => DurableRequest::Second {
                timeout,
                guid,
                persistent: false,
            },
            first => first,
        };
        Durable { wanted }
    }

    /// Grants persistence, with the requested `timeout` in ms (0: the default) and the CreateGuid.
    pub fn persistent(timeout: u32, guid: [u8; 16]) -> Durable {
        let wanted = DurableRequest::Second {
            timeout,
            guid,
            persistent: true,
        };
        Durable { wanted }
    }

    /// Returns the create context of the response.
    pub fn context(&self) -> (&'static [u8; 4], Vec<u8>) {
        let mut out = Vec::new();
        match self.wanted {
            DurableRequest::First => {
                out.put_u64(0);
                (b"DHnQ", out)
            }
            DurableRequest::Second { persistent, .. } => {
                out.put_u32(self.wanted.time().as_millis() as u32);
                out.put_u32(if persistent { FLAG_PERSISTENT } else { 0 });
                (b"DH2Q", out)
            }
        }
    }
}

/// An open without a session.
pub(crate) struct DisconnectedOpen {
    pub(crate) open: Arc<Open>,
    pub(crate) user: String,
    pub(crate) guid: [u8; 16],
    /// End of the time that it is kept, on the monotonic clock.
    pub(crate) until: Duration,
    /// Its place in the order in which opens are put here.
    pub(crate) since: u64,
}

/// Opens without a session, by number; those that are not persistent also in the order in which
/// they lost it.
#[derive(Default)]
pub(crate) struct AllKept {
    pub(crate) by_id: HashMap<u64, DisconnectedOpen>,
    /// Numbers of opens by [`DisconnectedOpen::since`].
    pub(crate) order: BTreeMap<u64, u64>,
    /// Numbers of the opens that are charged to an address, in this order.
    pub(crate) of_address: HashMap<IpAddr, BTreeMap<u64, u64>>,
    pub(crate) next: u64,
}

impl AllKept {
    pub(crate) fn insert(&mut self, mut new: DisconnectedOpen) {
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

    pub(crate) fn remove(&mut self, id: u64) -> Option<DisconnectedOpen> {
        let kept = self.by_id.remove(&id)?;
        self.unlist(&kept);
        Some(kept)
    }

    pub(crate) fn unlist(&mut self, kept: &DisconnectedOpen) {
        self.order.remove(&kept.since);
        let address = kept.open.owner.client.address;
        if let Some(here) = self.of_address.get_mut(&address) {
            here.remove(&kept.since);
            if here.is_empty() {
                self.of_address.remove(&address);
            }
        }
    }

    /// Takes out up to `most` of the opens that came first: of an address, or if it has none and
    /// `any` is set, of all.
    pub(crate) fn take_oldest(
        &mut self,
        address: IpAddr,
        any: bool,
        most: usize,
    ) -> Vec<Arc<Open>> {
        let all = any.then_some(&self.order);
        let from = self.of_address.get(&address).or(all);
        let oldest: Vec<u64> =
            from.map_or_else(Vec::new, |from| from.values().take(most).copied().collect());
        let out = oldest.into_iter().filter_map(|id| self.remove(id));
        out.map(|kept| kept.open).collect()
    }
}

/// State of the CREATE with a CreateGuid.
pub(crate) enum CreateState {
    /// The CREATE is being run.
    Pending,
    Open(Weak<Open>),
}

/// All durable opens without a session, and all opens that have a CreateGuid.
#[derive(Default)]
pub struct Durables {
    pub(crate) kept: Mutex<AllKept>,
    pub(crate) made: Mutex<HashMap<Name, CreateState>>,
    /// Signals of the CREATEs that wait for an open to lose its session.
    pub(crate) awaited: Mutex<Vec<Arc<Signal<()>>>>,
}

impl Durables {
    /// Keeps an open whose session has lost its connections, if it is still durable. Returns `None`
    /// if it is not kept. Otherwise returns the opens that have been kept longest and yield to it;
    /// the caller has to end them.
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

    /// Takes out the opens that have been kept longest, of an address, or if it has none and `any`
    /// is set, of all. Persistent ones stay.
    pub(crate) fn take_oldest(&self, address: IpAddr, any: bool) -> Vec<Arc<Open>> {
        self.kept.lock().take_oldest(address, any, YIELDING)
    }

    /// Keeps an open without a session, of a client's user, for its time.
    pub fn put(&self, open: Arc<Open>, user: &str, guid: [u8; 16], now: Duration) {
        // An open that is not durable is not kept.
        let time = open.durable().map_or(Duration::ZERO, |d| d.wanted.time());
        let new = DisconnectedOpen {
            user: user.to_owned(),
            guid,
            until: now + time,
            since: 0,
            open,
        };
        self.kept.lock().insert(new);
    }

    /// The opens that `which` selects.
    pub(crate) fn select_opens(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let kept = self.kept.lock();
        let all = kept.by_id.values().map(|kept| &kept.open);
        all.filter(|open| which(open)).cloned().collect()
    }

    /// Returns true if a persistent open below this directory of a volume is kept.
    pub fn has_persistent_below(&self, volume: VolumeId, path: &str) -> bool {
        let kept = self.kept.lock();
        let mut all = kept.by_id.values().map(|kept| &kept.open);
        all.any(|open| open.is_persistent() && open.is_below(volume, path))
    }

    /// Wakes the CREATEs that wait for an open. Called when an open was put here, and when they
    /// have waited long enough.
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

    /// Enters the CreateGuid of an open.
    pub fn enter(&self, open: &Arc<Open>) {
        if let Some(name) = open.create_guid {
            let mut made = self.made.lock();
            made.insert(name, CreateState::Open(Arc::downgrade(open)));
        }
    }

    /// An open is over.
    pub fn forget(&self, open: &Open) {
        let Some(name) = open.create_guid else {
            return;
        };
        let mut made = self.made.lock();
        if let Some(CreateState::Open(of)) = made.get(&name)
            && std::ptr::eq(of.as_ptr(), open)
        {
            made.remove(&name);
        }
    }
}

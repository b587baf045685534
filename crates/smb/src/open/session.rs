//! Sessions, tree connects and opens (MS-SMB2 §3.3.1.8 to §3.3.1.10).
//!
//! A session ends with its last connection, at its LOGOFF, or when its client sets up another in
//! its place. Its opens end with it, except durable ones ([`crate::open::durable`]): all their
//! claims are released, and files that they were to delete are deleted.

use crate::SERVICE;
use crate::open::durable::{self, Durable};
use crate::open::leases::{Hold, Leases};
use crate::open::line::Line;
use crate::open::notify::OpenWatch;
use crate::open::persistent::Persistent;
use crate::pipes::pipe::Pipe;
use crate::proto::encryption::Sealing;
use crate::proto::keys::Signer;
use crate::proto::mask;
use crate::proto::names::{self, below};
use crate::proto::negotiate::{Negotiation, Protection};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use weir_base::{Clock, Ino, VolumeId};
use weir_vfs::access::{R, W, permits};
use weir_vfs::claims::{Actor, Client, Owner, OwnerId, Range};
use weir_vfs::volume::{Attr, Pin};
use weir_vfs::{AccessModel, ClientKey, Error, FileId, Identity, Vfs};

/// Opens that a session may have: as many as Windows allows by default.
pub const MAX_OPENS: usize = 16_384;
/// Tree connects that a session may have.
pub const MAX_TREES: usize = 1024;
/// Byte ranges that an open may have locked.
pub const MAX_LOCKS: usize = 4096;

/// An authenticated user.
pub struct Session {
    /// Its number, never 0.
    pub id: u64,
    /// The user's name, as it was created.
    pub user: String,
    /// The identity that it acts as.
    pub identity: Arc<Identity>,
    /// Result of NEGOTIATE, the same on all its connections.
    pub negotiated: Negotiation,
    /// Signs on its first connection, and authenticates the binding of others.
    pub signer: Arc<Signer>,
    /// Encrypts its messages, if the client can.
    pub sealing: Option<Sealing>,
    /// Protection without which its messages are refused; a share may demand more.
    pub protection: Protection,
    /// The key that limits charge it under: the ClientGuid.
    pub client_key: ClientKey,
    /// The client that its claims belong to.
    pub client: Client,
    /// The owner of its operations outside of an open.
    pub walker: Owner,
    trees: Mutex<HashMap<u32, Arc<Tree>>>,
    opens: Mutex<HashMap<u64, Arc<Open>>>,
    next_tree: AtomicU32,
    ended: AtomicBool,
    /// Its connections.
    pub channels: Mutex<Channels>,
    /// End of its user's ticket.
    pub expires: Expiry,
    /// Kerberos has established its user, each time that they were authenticated.
    pub kerberos: AtomicBool,
    /// The form in which its client wants directories listed ([`crate::info::apple::Form`]).
    pub listings: AtomicU8,
    /// Its client is one of macOS: it has asked what the server can do ([`crate::info::apple`]).
    pub is_apple: AtomicBool,
}

/// Time at which a session's authentication ends. Reauthentication puts it off.
pub struct Expiry(AtomicU64);

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry(AtomicU64::new(Expiry::NEVER))
    }
}

impl Expiry {
    const NEVER: u64 = u64::MAX;

    /// Sets the end, on the monotonic clock; `None`: never.
    pub fn set(&self, at: Option<Duration>) {
        let at = at.and_then(|at| u64::try_from(at.as_millis()).ok());
        self.0.store(at.unwrap_or(Expiry::NEVER), Ordering::Relaxed);
    }

    /// Returns true if the end has passed.
    pub fn has_passed(&self, clock: &dyn Clock) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Expiry::NEVER => false,
            at => clock.monotonic() >= Duration::from_millis(at),
        }
    }
}

/// The keys of a session.
pub struct Keys {
    /// See [`Session::signer`].
    pub signer: Arc<Signer>,
    /// See [`Session::sealing`].
    pub sealing: Option<Sealing>,
    /// See [`Session::protection`].
    pub protection: Protection,
}

/// The object of a tree connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// IPC$: named pipes.
    Pipes,
    /// A volume, by its root.
    Volume(FileId),
    /// A share of another server of the cluster.
    Referred,
}

/// A tree connect.
#[derive(Debug)]
pub struct Tree {
    /// Its number within the session, never 0.
    pub id: u32,
    /// The object that it gives access to.
    pub target: Target,
    /// The share's name, as it is published.
    pub share: String,
    /// Set when it has been disconnected.
    gone: AtomicBool,
}

impl Tree {
    /// Returns true if it has been disconnected.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Session {
    /// A session without tree connects and opens.
    pub fn new(
        id: u64,
        (user, identity): (String, Arc<Identity>),
        negotiated: Negotiation,
        keys: Keys,
        address: IpAddr,
    ) -> Session {
        let guid = negotiated.offer.guid;
        let client = Client {
            service: SERVICE,
            address,
            name: Arc::from(&guid[..]),
        };
        let walker = Owner {
            client: client.clone(),
            who: OwnerId::key(u128::from(id) << 64),
            shown: Arc::default(),
        };
        Session {
            id,
            user,
            identity,
            negotiated,
            signer: keys.signer,
            sealing: keys.sealing,
            protection: keys.protection,
            client_key: ClientKey::Id(guid),
            client,
            walker,
            trees: Mutex::default(),
            opens: Mutex::default(),
            next_tree: AtomicU32::new(1),
            ended: AtomicBool::new(false),
            channels: Mutex::default(),
            expires: Expiry::default(),
            kerberos: AtomicBool::new(false),
            listings: AtomicU8::new(0),
            is_apple: AtomicBool::new(false),
        }
    }

    /// Returns true if it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Adds a tree connect; `None` if there are too many.
    pub fn connect(&self, target: Target, share: String) -> Option<Arc<Tree>> {
        let mut trees = self.trees.lock();
        if trees.len() >= MAX_TREES {
            return None;
        }
        let id = self.next_tree.fetch_add(1, Ordering::Relaxed);
        let tree = Arc::new(Tree {
            id,
            target,
            share,
            gone: AtomicBool::new(false),
        });
        trees.insert(id, Arc::clone(&tree));
        Some(tree)
    }

    /// The tree connect of this number.
    pub fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees.lock().get(&id).cloned()
    }

    /// Ends a tree connect and all opens under it. Returns false if there is none.
    pub fn disconnect(&self, id: u32, vfs: &Vfs, leases: &Leases) -> bool {
        let Some(tree) = self.trees.lock().remove(&id) else {
            return false;
        };
        tree.gone.store(true, Ordering::Release);
        let mut gone = Vec::new();
        self.opens.lock().retain(|_, open| {
            let stays = open.tree.load(Ordering::Relaxed) != id;
            if !stays {
                open.session.store(0, Ordering::Release);
                gone.push(Arc::clone(open));
            }
            stays
        });
        gone.iter().for_each(|open| open.end(vfs, leases));
        true
    }

    /// The opens under a tree connect.
    pub fn opens_under(&self, tree: u32) -> Vec<Arc<Open>> {
        let opens = self.opens.lock();
        let under = opens
            .values()
            .filter(|open| open.tree.load(Ordering::Relaxed) == tree);
        under.cloned().collect()
    }

    /// Adds an open. False, and it is not added, if there are too many or the session has ended.
    pub fn add(&self, open: Arc<Open>) -> bool {
        let mut opens = self.opens.lock();
        if opens.len() >= MAX_OPENS || self.has_ended() {
            return false;
        }
        open.session.store(self.id, Ordering::Release);
        opens.insert(open.id, open);
        true
    }

    /// The open of this number.
    pub fn open(&self, id: u64) -> Option<Arc<Open>> {
        self.opens.lock().get(&id).cloned()
    }

    /// Takes an open out; its claims are the caller's to end.
    pub fn take(&self, id: u64) -> Option<Arc<Open>> {
        let open = self.opens.lock().remove(&id);
        open.inspect(|open| open.session.store(0, Ordering::Release))
    }

    /// The opens that `which` selects.
    pub fn opens(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let opens = self.opens.lock();
        opens.values().filter(|open| which(open)).cloned().collect()
    }

    /// Returns true if a file below a directory of a volume is open, by the paths at which files
    /// were opened.
    pub fn has_open_below(&self, volume: VolumeId, path: &str) -> bool {
        let opens = self.opens.lock();
        opens.values().any(|open| open.is_below(volume, path))
    }

    /// The names of the shares that it is connected to.
    pub fn shares(&self) -> Vec<String> {
        let trees = self.trees.lock();
        let mut names: Vec<String> = trees.values().map(|tree| tree.share.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Numbers of tree connects and opens.
    pub fn counts(&self) -> (usize, usize) {
        (self.trees.lock().len(), self.opens.lock().len())
    }

    /// Ends it. Returns its connections and its opens, the oldest first; the caller has to end
    /// them.
    pub fn end(&self) -> (Vec<Arc<Line>>, Vec<Arc<Open>>) {
        let connections = self.channels.lock().end();
        self.ended.store(true, Ordering::Release);
        let opens = std::mem::take(&mut *self.opens.lock());
        let gone = |open: &Arc<Open>| open.session.store(0, Ordering::Release);
        opens.values().for_each(gone);
        self.trees.lock().clear();
        let mut opens: Vec<Arc<Open>> = opens.into_values().collect();
        opens.sort_unstable_by_key(|open| open.id);
        (connections, opens)
    }
}

/// The name under which something was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenName {
    /// The directory that has the name.
    pub dir: Option<Ino>,
    /// The name in it, as it is stored; empty for a share's root.
    pub name: Box<[u8]>,
    /// The path from the share's root, as clients see it, without a separator in front.
    pub path: String,
}

/// Position of a directory listing.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Pattern that names have to match, until the listing starts anew.
    pub pattern: Option<String>,
    /// The cookie of the last entry that was returned.
    pub cookie: u64,
    /// True if an entry was returned.
    pub any: bool,
    /// Number of the first user that the next listing of quotas returns; above `u32::MAX`: none.
    pub next_user: u64,
}

/// An open of a file, a directory or a pipe.
pub struct Open {
    /// Its number: both halves of the FileId.
    pub id: u64,
    /// The session that has it, by its number; 0: none.
    pub session: AtomicU64,
    /// The tree connect that it was made under.
    pub tree: AtomicU32,
    /// The open object.
    pub kind: Kind,
    /// The access that was granted, bits of [`mask`].
    pub access: u32,
    /// The owner of its claims.
    pub owner: Owner,
    /// The key under which its client caches: another open of it does not take that away.
    pub key: OwnerId,
    /// The holder of the client's lease on its directory, as far as its CREATE has said.
    pub parent: Option<Owner>,
    /// Its oplock or lease.
    pub hold: Hold,
    /// It outlives its session's connections.
    pub durable: Option<Durable>,
    /// It outlives the server.
    pub persistent: OnceLock<Persistent>,
    /// The id that its client made up for it.
    pub create_guid: Option<durable::Name>,
    /// CreateAction of its CREATE.
    pub action: AtomicU32,
    /// The newest channel sequence that a request of it had.
    pub sequence: AtomicU16,
    /// Every WRITE is to be durable before it is answered, as its CREATE has asked; see
    /// [`Open::writes_through`].
    pub write_through: bool,
}

/// An open object.
pub enum Kind {
    /// A named pipe.
    Pipe(Box<Mutex<Pipe>>),
    /// A file or directory.
    File(Box<File>),
    /// The index of the quotas of a volume, by the volume's root, and the position of its listing
    /// ([`crate::ops::quota`]).
    Quotas(FileId, Box<Mutex<Listing>>),
}

/// The file or directory that a stream belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    /// The file.
    pub id: FileId,
    /// It is a directory.
    pub directory: bool,
}

impl File {
    /// Returns true for a directory, but not for a symbolic link to one.
    pub fn directory(&self) -> bool {
        self.directory.load(Ordering::Relaxed)
    }

    /// Returns a name in this directory as its client sees it.
    pub fn to_client_name(&self, name: &[u8]) -> String {
        match self.posix {
            true => names::to_posix_name(name),
            false => names::to_client_name(name),
        }
    }

    /// The file that attributes, permissions and identity are of.
    pub fn main(&self) -> Base {
        self.base.unwrap_or(Base {
            id: self.id,
            directory: self.directory(),
        })
    }
}

/// The numbers of the LOCKs of an open that were carried out last (§3.3.5.14): one that is sent
/// again, because its response was lost with its channel, changes nothing. A client has several
/// under way by giving each a place of its own, of 1 to 64; place 0 is of those that are not sent
/// again. It takes memory when the first one has a place.
#[derive(Default)]
pub struct LockSequences(Option<Box<[Option<u8>; 64]>>);

impl LockSequences {
    fn place(&mut self, sequence: u32) -> Option<&mut Option<u8>> {
        let place = (sequence >> 4).checked_sub(1)?;
        let all = self.0.get_or_insert_with(|| Box::new([None; 64]));
        all.get_mut(place as usize)
    }

    /// Returns true if a LOCK with this sequence was carried out last. If not, its place is
    /// cleared.
    pub fn was_done(&mut self, sequence: u32) -> bool {
        let number = (sequence & 0xf) as u8;
        match self.place(sequence) {
            Some(last) if *last == Some(number) => true,
            Some(last) => {
                *last = None;
                false
            }
            None => false,
        }
    }

    /// Places that have a last one, and its number.
    pub fn entries(&self) -> Vec<(u8, u8)> {
        let all = self.0.iter().flat_map(|all| all.iter().enumerate());
        all.filter_map(|(at, last)| Some((at as u8 + 1, (*last)?)))
            .collect()
    }

    /// Notes that a LOCK with this sequence was carried out.
    pub fn done(&mut self, sequence: u32) {
        if let Some(last) = self.place(sequence) {
            *last = Some((sequence & 0xf) as u8);
        }
    }
}

/// A byte range that an open has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRangeLock {
    /// The bytes.
    pub range: Range,
    /// Others may not read them either.
    pub exclusive: bool,
}

/// An open file, directory or stream.
pub struct File {
    /// The file.
    pub id: FileId,
    /// True for a directory. An empty directory can become a symbolic link.
    pub directory: AtomicBool,
    /// The file or directory that it is a stream of.
    pub base: Option<Base>,
    /// Its name at this open, which a rename changes.
    pub named: Mutex<OpenName>,
    /// Position of its listing.
    pub listing: Mutex<Listing>,
    /// Position after the last READ or WRITE, in bytes, which clients may ask for.
    pub position: AtomicU64,
    /// Byte ranges that it has locked.
    pub locks: Mutex<Vec<ByteRangeLock>>,
    /// Sequence numbers of its last LOCK requests.
    pub sequences: Mutex<LockSequences>,
    /// It has a claim in the table.
    pub claimed: bool,
    /// Its watch, if it is a directory.
    pub watch: Mutex<OpenWatch>,
    /// Changes that are reported with its CLOSE, bits of [`crate::proto::filter`].
    pub unreported: AtomicU32,
    /// Keeps the inode when it loses its name.
    pub pin: Option<Pin>,
    /// It was opened with POSIX extensions: its new names are exact, and it loses the name with its
    /// own close.
    pub posix: bool,
}

impl Open {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::File(file) => Some(file),
            Kind::Pipe(_) | Kind::Quotas(..) => None,
        }
    }

    /// Returns a file of the volume that it is in, and the access by which a session reaches it;
    /// `None` for a pipe.
    pub(crate) fn in_volume<'s>(
        self: &'s Arc<Self>,
        session: &'s Session,
    ) -> Option<(FileId, Access<'s>)> {
        match &self.kind {
            Kind::File(file) => Some((file.main().id, Access::Open(self))),
            Kind::Quotas(root, _) => Some((*root, Access::Permissions(&session.walker))),
            Kind::Pipe(_) => None,
        }
    }

    /// Returns the position of its listings; `None` for a pipe.
    pub fn listing(&self) -> Option<&Mutex<Listing>> {
        match &self.kind {
            Kind::File(file) => Some(&file.listing),
            Kind::Quotas(_, listing) => Some(listing),
            Kind::Pipe(_) => None,
        }
    }

    /// Returns true if it was opened below this directory of a volume.
    pub fn is_below(&self, volume: VolumeId, path: &str) -> bool {
        self.has_path(volume, |own| below(own, path).is_some())
    }

    /// Returns true if its path is this one of a volume.
    pub fn is_at(&self, volume: VolumeId, path: &str) -> bool {
        self.has_path(volume, |own| own == path)
    }

    /// Returns true if its path in a volume is such a one. Opens in snapshots keep their path, and
    /// do not count.
    fn has_path(&self, volume: VolumeId, such: impl Fn(&str) -> bool) -> bool {
        let file = self.file();
        let file = file.filter(|file| file.claimed && file.id.volume == volume);
        file.is_some_and(|file| such(&file.named.lock().path))
    }

    /// Takes note of a request's channel sequence (§3.3.5.2.10). False if the client has lost the
    /// channel that the request came on, and may have sent it again on another: it is too old to
    /// change anything.
    pub fn is_current(&self, sequence: u16) -> bool {
        let newest = self.sequence.load(Ordering::Relaxed);
        match sequence.wrapping_sub(newest) {
            0 => true,
            1..=0x7fff => {
                self.sequence.store(sequence, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Something was changed that is reported with CLOSE.
    pub fn changed(&self, bits: u32) {
        if let Some(file) = self.file()
            && file.unreported.load(Ordering::Relaxed) & bits != bits
        {
            file.unreported.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Returns true if its writes are durable when they are answered.
    pub fn writes_through(&self) -> bool {
        self.write_through || self.persistent.get().is_some()
    }

    /// Returns true if all bits of `wanted` were granted.
    pub fn may(&self, wanted: u32) -> bool {
        self.access & wanted == wanted
    }

    /// Takes back all that it claims.
    pub fn end(&self, vfs: &Vfs, leases: &Leases) {
        leases.durables.forget(self);
        if let Some(persistent) = self.persistent.get() {
            persistent.forget();
        }
        self.hold.stands_alone();
        // Before what it cached: who waits for that goes on as soon as it is given up, and is not
        // to find a denial.
        self.unclaim(vfs, leases);
        leases.end(&self.hold);
    }

    fn unclaim(&self, vfs: &Vfs, leases: &Leases) {
        let Some(file) = self.file() else {
            return;
        };
        leases.waits.end(self.id);
        let watch = std::mem::replace(&mut *file.watch.lock(), OpenWatch::Over);
        if let OpenWatch::By(watch) = watch {
            watch.end();
        }
        for held in std::mem::take(&mut *file.locks.lock()) {
            vfs.claims.unlock_exact(file.id, &self.owner, held.range);
        }
        if file.claimed {
            vfs.claims.close(file.id, &self.owner);
        }
    }
}

/// Access check of an operation on contents (see [`AccessModel`]).
#[derive(Clone, Copy)]
pub enum Access<'o> {
    /// Checks permissions, before and outside of an open.
    Permissions(&'o Owner),
    /// Checks permissions, for a client that has this lease on the directory in which entries are
    /// changed.
    Within(&'o Owner, Option<&'o Owner>),
    /// Checks the access that an open was granted.
    Open(&'o Open),
    /// Checks nothing: this request has made the file. Has the key of its grant.
    Made(&'o Owner, &'o OwnerId),
}

impl AccessModel for Access<'_> {
    fn may_read(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let may = match self {
            Access::Permissions(_) | Access::Within(..) => permits(attr, &who.unix, R),
            Access::Open(open) => open.access & (mask::READ_DATA | mask::EXECUTE) != 0,
            Access::Made(..) => true,
        };
        may.then_some(()).ok_or(Error::Access)
    }

    fn may_write(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let may = match self {
            Access::Permissions(_) | Access::Within(..) => permits(attr, &who.unix, W),
            Access::Open(open) => open.access & (mask::WRITE_DATA | mask::APPEND_DATA) != 0,
            Access::Made(..) => true,
        };
        may.then_some(()).ok_or(Error::Access)
    }

    fn actor(&self) -> Actor<'_> {
        let (owner, key, parent) = match self {
            Access::Permissions(owner) => (*owner, &owner.who, None),
            Access::Within(owner, parent) => (*owner, &owner.who, *parent),
            Access::Made(owner, key) => (*owner, *key, None),
            Access::Open(open) => (&open.owner, &open.key, open.parent.as_ref()),
        };
        Actor::Mandatory { owner, key, parent }
    }
}

/// Channels that a session may have: as many as Windows allows (§3.3.5.5.2).
pub const MAX_CHANNELS: usize = 32;

/// The connections of a session.
#[derive(Default)]
pub struct Channels {
    /// The number of the next channel: none is used twice, for the sake of the nonces.
    next: u16,
    on: Vec<Weak<Line>>,
    ended: bool,
}

impl Channels {
    /// Adds a channel; its number. `None` if there are too many, or the session has ended.
    pub fn add(&mut self, on: &Arc<Line>) -> Option<u16> {
        if self.ended || self.on.len() >= MAX_CHANNELS {
            return None;
        }
        let number = self.next;
        self.next = number.checked_add(1)?;
        self.on.push(Arc::downgrade(on));
        Some(number)
    }

    /// Removes the channel on a connection. Returns true if it was the last one.
    pub fn remove(&mut self, connection: u64) -> bool {
        let is = |on: &Weak<Line>| on.upgrade().is_some_and(|on| on.id == connection);
        self.on.retain(|on| on.strong_count() > 0 && !is(on));
        self.on.is_empty()
    }

    /// Takes all out: no other can be added.
    pub fn end(&mut self) -> Vec<Arc<Line>> {
        self.ended = true;
        let all = std::mem::take(&mut self.on);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Their connections, the newest first.
    pub fn newest_first(&self) -> Vec<Arc<Line>> {
        self.on.iter().rev().filter_map(Weak::upgrade).collect()
    }
}

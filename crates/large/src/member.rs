//! The constituent as operations of clients see it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use weir_base::limits::cluster::{LARGE_INBOX_MAX, LARGE_REQUESTS_MAX, LARGE_SILENCE};
use weir_base::signal::Signal;
use weir_base::{Clock, Ino, Lsn};
use weir_constituents::number::CONSTITUENTS_MAX;
use weir_constituents::placement::{Fill, place_directory};
use weir_constituents::{Constituent, Protocol, Refusal, Reply, Request};
use weir_volume::{CallKey, EngineContext, FsError, StatFs, Volume};

use crate::frame::{self, Child, Content, InodeAnswer, Node, Space};
use crate::names::{Names, Numbers};
use crate::worker::{Inbox, Input, Worker};

/// The place of a volume in a large volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// Identity of the large volume, which clients see as the identity of the file system.
    pub large: u64,
    /// Secret of its file handles.
    pub secret: [u8; 16],
    /// Number of the constituent.
    pub own: Constituent,
    /// Number of constituents.
    pub members: u8,
}

impl Membership {
    /// Returns true if the numbers are possible.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        usize::from(self.members) <= CONSTITUENTS_MAX && self.own.0 < self.members
    }
}

/// The way to the servers of other constituents.
pub trait Link: Send + Sync {
    /// Sends a frame to the server of a constituent. A frame may be lost. Does not block.
    fn send(&self, large: u64, to: Constituent, frame: Vec<u8>);
}

/// Waits until a record is durable.
pub type WaitDurable = Arc<dyn Fn(Option<Lsn>) -> Result<(), FsError> + Send + Sync>;

/// Parts of a [`Member`].
pub struct Parts {
    /// The place of the volume.
    pub membership: Membership,
    /// The volume.
    pub volume: Arc<Volume>,
    /// The server's clock.
    pub clock: Arc<dyn Clock>,
    /// The way to the other constituents.
    pub link: Arc<dyn Link>,
    /// Waits until a record of the volume is durable.
    pub durable: WaitDurable,
}

/// The rules with the names that they change.
pub(crate) struct State {
    pub(crate) protocol: Protocol,
    pub(crate) names: Names,
}

/// State that operations and the thread share.
pub(crate) struct SharedState {
    pub(crate) parts: Parts,
    pub(crate) state: RwLock<State>,
    pub(crate) inbox: Inbox,
    /// Set when the state has changed; then replaced.
    changed: Mutex<Arc<Signal<()>>>,
    /// Space of the other constituents, and the monotonic time at which it was heard of.
    spaces: Mutex<BTreeMap<Constituent, (Space, Duration)>>,
    turn: AtomicU64,
}

impl SharedState {
    /// Returns the signal of the next change of the state.
    fn next_change(&self) -> Arc<Signal<()>> {
        Arc::clone(&self.changed.lock())
    }

    /// Wakes operations that wait for a change of the state.
    pub(crate) fn note_change(&self) {
        let before = std::mem::take(&mut *self.changed.lock());
        before.set(());
    }

    /// Notes the space of another constituent.
    pub(crate) fn note_space(&self, of: Constituent, space: Space) {
        let now = self.parts.clock.monotonic();
        if of.0 < self.parts.membership.members {
            self.spaces.lock().insert(of, (space, now));
        }
    }

    /// Returns the space of this constituent.
    pub(crate) fn own_space(&self) -> Space {
        let StatFs {
            total,
            free,
            files,
            files_free,
            ..
        } = self.parts.volume.statfs();
        Space {
            total,
            free,
            files,
            files_free,
        }
    }

    /// Reads an inode of this constituent, and what an entry of it names.
    pub(crate) fn look(&self, ino: Ino, name: Option<&[u8]>) -> Result<InodeAnswer, Refusal> {
        let numbers = Numbers(self.parts.membership.own);
        let volume = &self.parts.volume;
        let mut cx = EngineContext::new(self.parts.clock.current_time());
        let mut node_of = |ino: Ino| {
            let found = volume.drive_blocking(&mut cx, |cx| volume.constituent_inode(cx, ino));
            found.ok().map(|found| Node {
                kind: found.attr.kind,
                // Permission bits are twelve.
                mode: (found.attr.mode & 0o7777) as u16,
                uid: found.attr.uid,
                gid: found.attr.gid,
            })
        };
        let ino = numbers.stored(ino);
        let node = node_of(ino).ok_or(Refusal::Stale)?;
        let mut child = None;
        if let Some(name) = name {
            let mut cx = EngineContext::new(self.parts.clock.current_time());
            let found = volume.drive_blocking(&mut cx, |cx| volume.entry(cx, ino, name));
            child = found.ok().map(|(ino, kind)| {
                let here = !weir_volume::is_elsewhere(ino);
                Child {
                    ino: numbers.global(ino),
                    directory: kind == weir_volume::FileKind::Directory,
                    node: here.then(|| node_of(ino)).flatten(),
                }
            });
        }
        Ok(InodeAnswer { node, child })
    }
}

/// The newest changes that clients' calls have requested, by the keys of the calls.
#[derive(Default)]
struct Recent {
    replies: HashMap<CallKey, Arc<Signal<Reply>>>,
    order: VecDeque<CallKey>,
}

/// A constituent of a large volume at its server. Its thread ends with it.
pub struct Member {
    shared: Arc<SharedState>,
    recent: Mutex<Recent>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The names of a constituent, held so that no part of a change of several constituents is prepared
/// or finished meanwhile. Each check returns the signal of the change to wait for.
pub struct NamesGuard<'a> {
    state: RwLockReadGuard<'a, State>,
    shared: &'a SharedState,
}

impl NamesGuard<'_> {
    fn checked(
        &self,
        check: impl FnOnce(&Protocol) -> Result<(), Refusal>,
    ) -> Result<(), Arc<Signal<()>>> {
        check(&self.state.protocol).map_err(|_| self.shared.next_change())
    }

    fn global(&self, ino: Ino) -> Ino {
        self.state.names.numbers.global(ino)
    }

    /// Checks that an entry can be changed by an operation on this constituent alone.
    pub fn name(&self, dir: Ino, name: &[u8]) -> Result<(), Arc<Signal<()>>> {
        self.checked(|rules| rules.check_name(self.global(dir), name))
    }

    /// Checks that an inode can get or lose a link by an operation on this constituent alone.
    pub fn inode(&self, ino: Ino) -> Result<(), Arc<Signal<()>>> {
        self.checked(|rules| rules.check_inode(self.global(ino)))
    }

    /// Checks that a directory can be removed by an operation on this constituent alone.
    pub fn emptiness(&self, dir: Ino) -> Result<(), Arc<Signal<()>>> {
        self.checked(|rules| rules.check_emptiness(self.global(dir)))
    }

    /// Checks that a name can be looked up.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<(), Arc<Signal<()>>> {
        self.checked(|rules| rules.check_lookup(self.global(dir), name))
    }

    /// Checks that the attributes of an inode, or the entries of a directory, can be read.
    pub fn attributes(&self, ino: Ino) -> Result<(), Arc<Signal<()>>> {
        self.checked(|rules| rules.check_attributes(self.global(ino)))
    }
}

impl Member {
    /// Starts the constituent: reads the state of the rules from the volume, begins a new epoch,
    /// and settles with the others what was under way.
    ///
    /// # Errors
    /// The volume's: `NotSupported` if its format has no constituents; `Invalid` if the membership
    /// is impossible; `Delay` if the start cannot be logged now.
    pub fn start(parts: Parts) -> Result<Arc<Member>, FsError> {
        let membership = parts.membership;
        if !membership.is_valid() {
            return Err(FsError::Invalid);
        }
        let (mut names, durable) = Names::open(membership.own, &parts.volume, &parts.clock)?;
        let members = (0..membership.members).map(Constituent).collect();
        let protocol = Protocol::start(membership.own, members, durable, &mut names);
        let protocol = protocol.map_err(|refusal| match refusal {
            Refusal::Full => FsError::NoSpace,
            _ => FsError::Delay,
        })?;
        (parts.durable)(names.last)?;
        let Membership { large, own, .. } = membership;
        parts.volume.show_as_constituent(large, own.0);
        let shared = Arc::new(SharedState {
            parts,
            state: RwLock::new(State { protocol, names }),
            inbox: Inbox::default(),
            changed: Mutex::default(),
            spaces: Mutex::default(),
            turn: AtomicU64::new(0),
        });
        let worker = Worker::new(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name(format!("large-{own}"));
        let thread = thread.spawn(move || worker.run());
        let thread = thread.map_err(|error| {
            tracing::error!("cannot start the thread of a constituent: {error}");
            FsError::Delay
        })?;
        Ok(Arc::new(Member {
            shared,
            recent: Mutex::default(),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Returns the place of the volume.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.shared.parts.membership
    }

    /// Returns the volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.shared.parts.volume
    }

    /// Returns the number in the large volume of an inode that the volume names.
    #[must_use]
    pub fn global(&self, ino: Ino) -> Ino {
        Numbers(self.membership().own).global(ino)
    }

    /// Returns the number by which the volume names an inode of the large volume.
    #[must_use]
    pub fn stored(&self, ino: Ino) -> Ino {
        Numbers(self.membership().own).stored(ino)
    }

    /// Holds the names for an operation on this constituent alone.
    ///
    /// # Errors
    /// The signal to wait for: a change is being carried out.
    pub fn hold(&self) -> Result<NamesGuard<'_>, Arc<Signal<()>>> {
        let change = self.shared.next_change();
        let shared = &*self.shared;
        match shared.state.try_read() {
            Some(state) => Ok(NamesGuard { state, shared }),
            None => Err(change),
        }
    }

    /// Returns the reply to the change that a call has requested before: a client that has lost its
    /// connection sends its calls again, and a change under way goes on without it.
    #[must_use]
    pub fn recall(&self, call: CallKey) -> Option<Arc<Signal<Reply>>> {
        self.recent.lock().replies.get(&call).cloned()
    }

    fn remember(&self, call: CallKey, reply: &Arc<Signal<Reply>>) {
        let mut recent = self.recent.lock();
        recent.replies.insert(call, Arc::clone(reply));
        recent.order.push_back(call);
        if recent.order.len() > LARGE_REQUESTS_MAX
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.replies.remove(&oldest);
        }
    }

    /// Requests a change that this constituent decides. A change that has to wait for others is
    /// made again, one without a `call` until the signal is dropped. `call` identifies the client's
    /// call, for [`Member::recall`].
    #[must_use]
    pub fn request(&self, request: Request, call: Option<CallKey>) -> Arc<Signal<Reply>> {
        let reply = Arc::new(Signal::default());
        let input = Input::Request {
            request,
            call,
            reply: Arc::clone(&reply),
        };
        match (self.shared.inbox.push(input, LARGE_REQUESTS_MAX), call) {
            (false, _) => reply.set(Err(Refusal::Busy)),
            (true, Some(call)) => self.remember(call, &reply),
            (true, None) => {}
        }
        reply
    }

    /// Asks the constituent that has an inode for it, and for what an entry of it names. It is
    /// asked again until it answers or the signal is dropped. A change that is decided and has not
    /// ended there may not be seen yet.
    #[must_use]
    pub fn inspect(
        &self,
        ino: Ino,
        name: Option<&[u8]>,
    ) -> Arc<Signal<Result<InodeAnswer, Refusal>>> {
        let answer = Arc::new(Signal::default());
        let input = Input::Inspect {
            ino,
            name: name.map(Box::from),
            answer: Arc::clone(&answer),
        };
        if !self.shared.inbox.push(input, LARGE_REQUESTS_MAX) {
            answer.set(Err(Refusal::Busy));
        }
        answer
    }

    /// Takes a frame from another server. Malformed ones are dropped.
    pub fn deliver(&self, frame: &[u8]) {
        let Some((from, content)) = frame::decode(frame) else {
            return;
        };
        if let Content::Space(space) = content {
            self.shared.note_space(from, space);
            return;
        }
        // The sender repeats what is dropped.
        self.shared
            .inbox
            .push(Input::Frame(from, content), LARGE_INBOX_MAX);
    }

    /// Returns the constituent of a new directory at `depth`.
    #[must_use]
    pub fn place(&self, depth: u8) -> Constituent {
        let own = self.membership().own;
        let now = self.shared.parts.clock.monotonic();
        let fill = |constituent: Constituent, space: &Space, reachable| Fill {
            constituent,
            capacity_bytes: space.total,
            free_bytes: space.free,
            load_permille: 0,
            reachable,
        };
        let mut fills = vec![fill(own, &self.shared.own_space(), true)];
        for (other, (space, heard)) in &*self.shared.spaces.lock() {
            fills.push(fill(
                *other,
                space,
                now.saturating_sub(*heard) < LARGE_SILENCE,
            ));
        }
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
        place_directory(own, depth, &fills, turn)
    }

    /// Returns the space of the whole large volume, as far as it is known.
    #[must_use]
    pub fn space(&self) -> StatFs {
        let mut sum = self.shared.own_space();
        for (other, _) in self.shared.spaces.lock().values() {
            // Saturates: the numbers come from other servers.
            sum.total = sum.total.saturating_add(other.total);
            sum.free = sum.free.saturating_add(other.free);
            sum.files = sum.files.saturating_add(other.files);
            sum.files_free = sum.files_free.saturating_add(other.files_free);
        }
        StatFs {
            total: sum.total,
            free: sum.free,
            available: sum.free,
            files: sum.files,
            files_free: sum.files_free,
        }
    }

    /// Returns true if no change of several constituents is under way here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.state.read().protocol.is_idle()
    }

    /// Ends the thread, and waits for it. What waits is refused as busy.
    pub fn stop(&self) {
        self.shared.inbox.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("cannot end the thread of a constituent in order: it has panicked");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.inbox.stop();
    }
}

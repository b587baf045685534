//! The types of claims: clients and owners, ranges, modes, caching, and the results of requests.

use super::rules::{Event, Kind};
use crate::handle::FileId;
use crate::signal::{Signal, SignalFuture};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::{Arc, OnceLock};
use weir_base::{Ino, Time};

/// Service that a client belongs to, and so receiver of its notices (see
/// [`super::Claims::attach`]). The table attaches no other meaning to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u8);

impl ServiceId {
    /// Services at most; numbers are below this.
    pub const COUNT: usize = 4;
}

/// A client of a service: a host of NLM, a client id of NFSv4, a client GUID of SMB.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The service that knows it.
    pub service: ServiceId,
    /// The address that its memory is charged to: where its requests come from. For a protocol
    /// whose sessions span several addresses, it is the one at which the client introduced itself.
    pub address: IpAddr,
    /// Name that distinguishes it from others of its service at the address.
    pub name: Arc<[u8]>,
}

/// Process, open file, open owner or lease key of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnerId {
    /// The process with this number.
    Process(u32),
    /// An open owner, file id or lease key ([`OwnerId::key`]).
    Key(u64, u64),
    /// Bytes by which the client distinguishes it.
    Opaque(Arc<[u8]>),
}

impl OwnerId {
    /// Returns an open owner, file id or lease key.
    pub const fn key(number: u128) -> OwnerId {
        OwnerId::Key((number >> 64) as u64, number as u64)
    }
}

/// The owner of a claim that is held or wanted.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The client on whose behalf the owner acts.
    pub client: Client,
    /// The client's process or open.
    pub who: OwnerId,
    /// Bytes by which the protocol shows others the owner; they take no part in equality.
    pub shown: Arc<[u8]>,
}

impl Owner {
    /// Returns the number of the process; 0 for what has none.
    pub fn process(&self) -> u32 {
        match self.who {
            OwnerId::Process(number) => number,
            OwnerId::Opaque(_) | OwnerId::Key(..) => 0,
        }
    }

    /// Returns the bytes on the heap that only this owner has.
    pub(super) fn extra(&self) -> usize {
        let bytes = match &self.who {
            OwnerId::Process(_) | OwnerId::Key(..) => 0,
            OwnerId::Opaque(bytes) => bytes.len(),
        };
        bytes + self.shown.len()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.who == other.who && self.client == other.client
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client.hash(state);
        self.who.hash(state);
    }
}

/// Bytes `start` to `last`, both included. `last` of `u64::MAX` means: to the end of the file
/// wherever it moves. An empty range (SMB) stands between two bytes: `last` is then `start - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte, counted from the start of the file.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX`: to the end of the file; `start - 1`: an empty range.
    pub last: u64,
}

impl Range {
    /// Every byte, whatever the file's size.
    pub const ALL: Range = Range {
        start: 0,
        last: u64::MAX,
    };

    /// The empty range in front of the first byte, which overlaps nothing (MS-FSA 2.1.4.10).
    pub const NOWHERE: Range = Range {
        start: u64::MAX,
        last: 0,
    };

    /// Creates the range of `length` bytes from `start`; length 0 means to the end of the file.
    /// `None` if the range passes the largest offset.
    pub fn new(start: u64, length: u64) -> Option<Range> {
        let last = match length {
            0 => u64::MAX,
            n => start.checked_add(n - 1)?,
        };
        Some(Range { start, last })
    }

    /// Creates the range of `length` bytes from `start` where length 0 means none, as in SMB and in
    /// READ and WRITE. `None` if the range passes the largest offset.
    pub fn exact(start: u64, length: u64) -> Option<Range> {
        match (start, length) {
            (0, 0) => Some(Range::NOWHERE),
            (_, 0) => Some(Range {
                start,
                last: start - 1,
            }),
            (_, n) => Some(Range {
                start,
                last: start.checked_add(n - 1)?,
            }),
        }
    }

    /// Returns the length; 0 for a range to the end of the file, and for an empty one.
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX || self.is_empty() {
            0
        } else {
            self.last - self.start + 1
        }
    }

    /// Returns true if it has no byte.
    pub fn is_empty(&self) -> bool {
        self.last < self.start
    }

    /// Returns true if they have a byte in common, or one is empty and lies within the other.
    pub(super) fn overlaps(&self, other: &Range) -> bool {
        *self != Range::NOWHERE
            && *other != Range::NOWHERE
            && self.start <= other.last
            && other.start <= self.last
    }

    pub(super) fn hull(&self, other: &Range) -> Range {
        Range {
            start: self.start.min(other.start),
            last: self.last.max(other.last),
        }
    }

    /// Returns what is left of it outside of `cut`, which overlaps it.
    pub(super) fn without(self, cut: &Range) -> impl Iterator<Item = Range> + use<> {
        let before = (self.start < cut.start).then(|| Range {
            start: self.start,
            last: cut.start - 1,
        });
        let after = (self.last > cut.last).then(|| Range {
            start: cut.last + 1,
            last: self.last,
        });
        before.into_iter().chain(after)
    }
}

/// A byte-range lock that is held or wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The owner that holds or wants it.
    pub owner: Owner,
    /// The bytes that it covers.
    pub range: Range,
    /// Exclusive (write) or shared (read).
    pub exclusive: bool,
    /// True if it binds reads and writes: SMB's do. Advisory ones follow fcntl(2).
    pub mandatory: bool,
}

macro_rules! flags {
    ($name:ident) => {
        impl $name {
            /// The empty set.
            pub const NONE: $name = $name(0);

            /// Returns true if all of `other` are in it.
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns true if any of `other` is in it.
            pub const fn any(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the union of both sets.
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Returns true if nothing is in it.
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }
        }

        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl BitAnd for $name {
            type Output = $name;
            fn bitand(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }
        }

        impl Not for $name {
            type Output = $name;
            fn not(self) -> $name {
                $name(!self.0 & 7)
            }
        }
    };
}

/// Modes that an open uses, or denies to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes(pub(super) u8);

impl Modes {
    /// Use or denial of reading data.
    pub const READ: Modes = Modes(1);
    /// Use or denial of writing data.
    pub const WRITE: Modes = Modes(2);
    /// Use or denial of deleting and renaming.
    pub const DELETE: Modes = Modes(4);
    /// [`Modes::READ`] and [`Modes::WRITE`], without deletion.
    pub const BOTH: Modes = Modes(3);
}

flags!(Modes);

/// Caching that a holder is granted: R of reads, W of writes, H of opens and closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheRights(pub(super) u8);

impl CacheRights {
    /// Read caching: data that was read is good until a break.
    pub const READ: CacheRights = CacheRights(1);
    /// Write caching: data that was written need not be sent before a break.
    pub const WRITE: CacheRights = CacheRights(2);
    /// A close need not be sent before a break.
    pub const HANDLE: CacheRights = CacheRights(4);
    /// An NFSv4 read delegation; a directory's lease or delegation.
    pub const READ_HANDLE: CacheRights = CacheRights(5);
    /// All: an NFSv4 write delegation.
    pub const ALL: CacheRights = CacheRights(7);
}

flags!(CacheRights);

/// Open that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// The owner that opens. An owner has one open of a file; its second replaces the first
    /// (upgrade, downgrade).
    pub owner: &'a Owner,
    /// The grant of the same client under this key, which the open does not break.
    pub key: &'a OwnerId,
    /// The modes that it uses.
    pub access: Modes,
    /// The modes that it denies to others.
    pub deny: Modes,
    /// True if its denial also stops reads and writes that come without an open. NLM's SHARE does
    /// not.
    pub enforced: bool,
    /// True if it cuts the file.
    pub overwrite: bool,
}

/// Outcome of an open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// The owner has the open now.
    Granted,
    /// Another's open excludes it.
    Denied,
    /// The file goes with its last close.
    DeletePending,
    /// A holder of cached state must answer a break first, or the file is being removed: look the
    /// name up and ask again then.
    Breaking(Ticket),
    /// The budget or the client's part of it is used up.
    Full,
}

/// The name that goes with a close of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The directory that holds the name.
    pub dir: Ino,
    /// The name in it.
    pub name: Arc<[u8]>,
    /// True if the name goes with the close of the open that marked the file, and other opens go on
    /// with a file without it (MS-FSCC §2.4.12, FILE_DISPOSITION_POSIX_SEMANTICS). If false, the
    /// name goes with the last close.
    pub alone: bool,
}

/// Outcome of a mark for deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOutcome {
    /// The mark is set.
    Yes,
    /// The owner has no open that uses deletion.
    NotOpen,
    /// The budget or the client's part of it is used up.
    Full,
}

/// Outcome of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lock is held now.
    Granted,
    /// Another owner's lock is in the way.
    Denied(Lock),
    /// Another owner's lock is in the way as well, but the request is queued.
    Queued,
    /// A holder of cached state must answer a break first: ask again then.
    Breaking(Ticket),
    /// Waiting would never end.
    Deadlock,
    /// The budget or the client's part of it is used up, or too many wait.
    Full,
}

/// Answer of the table to an operation: as far as others' claims are concerned, it may go ahead or
/// not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The operation may go ahead.
    Free,
    /// No: another's open denies it.
    Denied,
    /// No: another's byte range does.
    Locked,
    /// A break must be answered first: ask again then.
    Breaking(Ticket),
}

/// On whose behalf an operation is performed.
#[derive(Clone, Copy, Debug)]
pub enum Actor<'a> {
    /// Nobody with claims: NFSv3.
    Stateless,
    /// Nobody with an open, but a client that may have a grant: changes of names and attributes of
    /// NFSv4, and its special stateids. Bound as [`Actor::Stateless`] is, but for the client's own
    /// grant.
    Client {
        /// The client under the key of its grant.
        owner: &'a Owner,
    },
    /// The holder of an open under NFS's rules: others' advisory ranges do not bind it.
    Advisory {
        /// The owner of the open.
        owner: &'a Owner,
        /// The key of its grant.
        key: &'a OwnerId,
    },
    /// The holder of an open under SMB's rules: everybody's ranges bind it.
    Mandatory {
        /// The owner of the open.
        owner: &'a Owner,
        /// The key of its lease.
        key: &'a OwnerId,
        /// The holder of the client's lease on the directory, which its own changes of entries do
        /// not break (ParentLeaseKey).
        parent: Option<&'a Owner>,
    },
}

impl<'a> Actor<'a> {
    /// Returns the owner and the key, if it has any.
    pub(super) fn holder(self) -> Option<(&'a Owner, &'a OwnerId)> {
        match self {
            Actor::Stateless => None,
            Actor::Client { owner } => Some((owner, &owner.who)),
            Actor::Advisory { owner, key } | Actor::Mandatory { owner, key, .. } => {
                Some((owner, key))
            }
        }
    }

    /// Returns the owner and the key of the grant that an event does not break.
    pub(super) fn holder_for(self, event: Event) -> Option<(&'a Owner, &'a OwnerId)> {
        match (self, event) {
            (
                Actor::Mandatory {
                    parent: Some(parent),
                    ..
                },
                Event::Entries,
            ) => Some((parent, &parent.who)),
            _ => self.holder(),
        }
    }

    /// Returns the owner of the open, if it acts under one.
    pub(super) fn owner(self) -> Option<&'a Owner> {
        match self {
            Actor::Stateless | Actor::Client { .. } => None,
            Actor::Advisory { owner, .. } | Actor::Mandatory { owner, .. } => Some(owner),
        }
    }

    /// Returns true if it acts without an open.
    pub(crate) fn is_stateless(self) -> bool {
        self.owner().is_none()
    }
}

/// The budget or the client's part of it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A queued request that was granted: its owner must be notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The file whose bytes are locked.
    pub file: FileId,
    /// The lock that is held now.
    pub lock: Lock,
}

/// A break that is under way. Resolves when its holder has answered, given up or lost what it had.
/// Or a removal: then it resolves when the name is gone. Or clients that may claim again: then it
/// resolves when one of them has finished.
#[derive(Clone)]
pub struct Ticket(pub(crate) Arc<Signal<()>>);

impl Ticket {
    /// Returns true if it is over.
    pub fn is_over(&self) -> bool {
        self.0.get().is_some()
    }

    /// Resolves when it is over.
    pub fn wait(self) -> SignalFuture<()> {
        self.0.settled()
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.is_over())
    }
}

impl PartialEq for Ticket {
    fn eq(&self, other: &Ticket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Ticket {}

/// Attributes of a file as the holder of a write cache states them (CB_GETATTR, RFC 8881 §20.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HolderAttr {
    /// Size in bytes with what it has not sent yet.
    pub size: u64,
    /// The change counter, as the protocol counts changes at the holder.
    pub change: u64,
    /// Time at which the file was last read at the holder, if it keeps that time.
    pub accessed: Option<Time>,
    /// Time at which it was last written there, if the holder keeps that time.
    pub modified: Option<Time>,
}

/// A question to a holder that is under way, or answered.
#[derive(Clone)]
pub struct Question {
    pub(super) ticket: Ticket,
    pub(super) answer: Arc<OnceLock<HolderAttr>>,
}

impl Question {
    /// Returns the ticket for the answer. It is over as well when the holder has given up its
    /// cache, or lost it.
    pub fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// Returns the answer; `None` once it is over: the holder caches nothing any more, and the
    /// file's own attributes hold.
    pub fn answer(&self) -> Option<HolderAttr> {
        self.answer.get().copied()
    }
}

/// News for the service of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A queued request was granted.
    Granted(Grant),
    /// The holder must give up part of its cached state, or (`answer` false) has lost it.
    Break {
        /// The file that the cached state belongs to.
        file: FileId,
        /// The holder of the cached state.
        owner: Owner,
        /// Kind of the grant.
        kind: Kind,
        /// Caching that it may keep.
        to: CacheRights,
        /// True if it must answer ([`super::Claims::acknowledge`]).
        answer: bool,
    },
    /// The holder of a write cache is asked for the file's attributes ([`super::Claims::reply`]).
    Asked {
        /// The file whose attributes are asked for.
        file: FileId,
        /// The holder of the write cache.
        owner: Owner,
    },
    /// The holder did not answer a break or a question in time; it caches nothing any more.
    Revoked {
        /// The file whose cached state is revoked.
        file: FileId,
        /// The holder that was too late.
        owner: Owner,
    },
    /// The holder was parked and conflicted with a request, or its memory was needed: it has
    /// nothing in the file any more.
    Dropped {
        /// The file in which the claims were dropped.
        file: FileId,
        /// The holder that was parked.
        owner: Owner,
    },
    /// The file's volume was deleted or is something else now. The holder has nothing in the file
    /// any more, and does not get what it waited for there. (NFS4ERR_ADMIN_REVOKED,
    /// STATUS_FILE_FORCED_CLOSED.)
    Lost {
        /// The file whose volume is gone or changed.
        file: FileId,
        /// The holder that lost its claims.
        owner: Owner,
    },
    /// The last open of a file was closed that the owner's open marked for deletion: the name is to
    /// be removed, and that reported ([`super::Claims::deleted`]).
    Delete {
        /// The file, which has no open any more.
        file: FileId,
        /// The owner whose open marked it.
        owner: Owner,
        /// The name to remove.
        removal: Removal,
    },
    /// Memory is short: clients should return what they do not need (CB_RECALL_ANY).
    Recall,
}

/// Receiver of a service's notices. It is called while no lock of the table is held, on whatever
/// thread caused the notice. It must not block, and may call the table.
pub trait Sink: Send + Sync {
    /// Takes one notice; see [`Sink`] for what it may do.
    fn notify(&self, notice: Notice);
}

/// Numbers of claims in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Byte ranges and opens.
    pub held: usize,
    /// Caching grants: leases and delegations.
    pub grants: usize,
    /// Queued requests for byte ranges.
    pub waiting: usize,
    /// Bytes of memory charged to clients.
    pub bytes: usize,
}

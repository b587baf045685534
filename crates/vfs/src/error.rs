//! Reasons why an operation gives no result: it failed, or it waits.
//!
//! **Failures** are this crate's own. They say what is so, in no protocol's numbers. The protocol's
//! crate decides which number a client sees for one, and whether two of them are the same to it.
//!
//! **Waiting.** An operation that suspends has changed nothing and says what it waits for. Once
//! that has come it is run again from its start with the same [`OpContext`](crate::OpContext). One
//! that changes something runs to its end.

use crate::claims::Ticket;
use crate::grace::Records;
use crate::names::Wait;
use crate::signal::Signal;
use crate::throttle::LimitWait;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use weir_base::Lsn;
use weir_volume::{self as volume, ClientRecords, FsError, Volume};

/// Cause for which an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// Not a handle of this server.
    BadHandle,
    /// The export is not for this client.
    Denied,
    /// The export is for this client, if it establishes the caller's identity in another way.
    WrongFlavour,
    /// The export is for this client, over a connection that is protected better.
    Unprotected,
    /// A name that nothing can have.
    Name(BadName),
    /// There is no entry of this name.
    NotFound,
    /// There is an entry of this name already.
    Exists,
    /// The object is not a directory, but the operation needs one.
    NotDir,
    /// The object is a directory, and the operation does not take one.
    IsDir,
    /// The directory to be removed or replaced has entries.
    NotEmpty,
    /// Name longer than [`MAX_NAME`](weir_base::limits::MAX_NAME) bytes, or link target longer than
    /// [`MAX_SYMLINK`](weir_base::limits::MAX_SYMLINK).
    NameTooLong,
    /// The aggregate or the volume is full.
    NoSpace,
    /// A quota is exceeded.
    Quota,
    /// Offset beyond the largest file size.
    FileTooBig,
    /// The export, a snapshot, or an aggregate that a failed write has poisoned.
    ReadOnly,
    /// The volume is not exported any more, or the inode does not exist.
    Stale,
    /// Malformed or meaningless request.
    Invalid,
    /// Link count at its limit.
    TooManyLinks,
    /// Source and target are in different volumes.
    CrossDevice,
    /// A block could not be read or its checksum is wrong.
    Io,
    /// The guard of a SETATTR did not match.
    NotSync,
    /// A directory cookie that cannot be.
    BadCookie,
    /// Operation not permitted: not the owner's, or root's.
    Perm,
    /// The permission bits or the access granted at open forbid it.
    Access,
    /// Another client's open or lock forbids it.
    Locked,
    /// Not supported on this kind of object.
    NotSupported,
    /// The operation cannot be done now; the client should repeat the call later.
    Delay,
    /// Something else depends on it.
    Busy,
}

/// Fault of a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BadName {
    /// The name has no byte.
    Empty,
    /// `.` where something is to be made or removed.
    Dot,
    /// `..` where something is to be made or removed.
    DotDot,
    /// NUL or `/` in it.
    Character,
}

impl From<FsError> for Error {
    fn from(e: FsError) -> Error {
        match e {
            FsError::NotFound => Error::NotFound,
            FsError::Exists => Error::Exists,
            FsError::NotDir => Error::NotDir,
            FsError::IsDir => Error::IsDir,
            FsError::NotEmpty => Error::NotEmpty,
            FsError::NameTooLong => Error::NameTooLong,
            FsError::NoSpace => Error::NoSpace,
            FsError::Quota => Error::Quota,
            FsError::FileTooBig => Error::FileTooBig,
            FsError::ReadOnly => Error::ReadOnly,
            FsError::Stale => Error::Stale,
            FsError::Invalid => Error::Invalid,
            FsError::TooManyLinks => Error::TooManyLinks,
            FsError::CrossDevice => Error::CrossDevice,
            FsError::Io => Error::Io,
            FsError::NotSync => Error::NotSync,
            FsError::BadCookie => Error::BadCookie,
            FsError::Perm => Error::Perm,
            FsError::Access => Error::Access,
            FsError::NotSupported => Error::NotSupported,
            FsError::Delay => Error::Delay,
            FsError::Busy => Error::Busy,
        }
    }
}

/// Thing that an operation waits for.
pub enum Suspend {
    /// The volume's device, or something that its engine is short of.
    Device(DeviceWait),
    /// Room in the log for a record of the client.
    Room(Box<RoomWait>),
    /// The limits of the volume.
    Limit(Box<LimitWait>),
    /// The name of the client, on which an export rule depends.
    NameService(Wait),
    /// The name service's answer about a user or group.
    Users(Arc<Signal<()>>),
    /// A change of what is recorded of its client, which is to be durable before others gain
    /// anything by it.
    Record(Arc<Records>, Lsn),
    /// Nothing but other requests' turn: it has taken up the event loop for long enough, and goes
    /// on where it was.
    Turn,
    /// Another client, which has been asked to give up what it caches. It does, or loses it after
    /// [`BREAK_PATIENCE`](crate::claims::BREAK_PATIENCE): that is longer than most protocols let a
    /// call wait. Or clients that may claim again what they had before a start.
    Recall(Ticket),
    /// Another client's action, in the form in which the protocol observes it.
    Client(Event),
    /// Another thread of the server, likewise.
    Thread(Event),
}

/// An event that a protocol defines.
pub type Event = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Suspend {
    /// Returns true if the request waits on purpose, for what another client does. That client's
    /// part in it may come over the same connection, so such a request must not delay others.
    pub fn is_deliberate(&self) -> bool {
        matches!(self, Suspend::Recall(_) | Suspend::Client(_))
    }

    /// Returns true if the request waits for the limits of its volume.
    pub fn is_limit(&self) -> bool {
        matches!(self, Suspend::Limit(_))
    }
}

/// The wait of [`Suspend::Device`]: for the device, or for what the engine is short of.
pub struct DeviceWait {
    pub(crate) stop: volume::Stop,
    pub(crate) volume: Arc<Volume>,
}

/// The wait of [`Suspend::Room`]: for room in the log, to record something of a client.
pub struct RoomWait {
    stop: volume::Stop,
    records: ClientRecords,
}

impl RoomWait {
    /// Waits for the room; fails with the reason if there will be none.
    pub(crate) async fn wait_for_room(self) -> Result<(), FsError> {
        self.records.resume(self.stop).await
    }
}

/// The reason why an operation has no result: it failed, or it is suspended and has changed
/// nothing.
///
/// Protocols use it with failures of their own, into which those of this crate convert
/// ([`Failure`]).
pub enum Stop<F = Error> {
    /// The operation cannot be done.
    Failed(F),
    /// The operation waits, and has changed nothing.
    Suspended(Suspend),
}

/// A protocol's failure.
pub trait Failure: From<Error> {}

impl Stop {
    /// Returns the reason why a record of a client could not be changed.
    #[cold]
    pub fn of_record(records: &Records, stop: volume::Stop) -> Stop {
        match stop {
            volume::Stop::Fail(e) => Stop::Failed(e.into()),
            stop => Stop::Suspended(Suspend::Room(Box::new(RoomWait {
                stop,
                records: records.kept().clone(),
            }))),
        }
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

impl<F> From<Suspend> for Stop<F> {
    fn from(s: Suspend) -> Stop<F> {
        Stop::Suspended(s)
    }
}

impl<F: Failure> From<Error> for Stop<F> {
    fn from(e: Error) -> Stop<F> {
        Stop::Failed(e.into())
    }
}

impl<F: Failure> From<Stop> for Stop<F> {
    fn from(stop: Stop) -> Stop<F> {
        match stop {
            Stop::Failed(e) => Stop::Failed(e.into()),
            Stop::Suspended(s) => Stop::Suspended(s),
        }
    }
}

/// Result of an operation.
pub type OpResult<T> = Result<T, Stop>;

/// As [`Stop`], within this crate: what the volume stops for is not known together with the volume
/// yet.
pub(crate) enum Halt {
    Failed(Error),
    Stopped(volume::Stop),
    /// Others have claims that were not asked about, or have changed since: to be asked about, at
    /// once.
    Claimed,
    /// The file has an access control list that was not read.
    Unread,
    Recall(Ticket),
    /// A change of several constituents is under way.
    Waits(Arc<Signal<()>>),
}

impl From<Arc<Signal<()>>> for Halt {
    fn from(change: Arc<Signal<()>>) -> Halt {
        Halt::Waits(change)
    }
}

impl From<Error> for Halt {
    fn from(e: Error) -> Halt {
        Halt::Failed(e)
    }
}

impl From<BadName> for Halt {
    fn from(name: BadName) -> Halt {
        Halt::Failed(Error::Name(name))
    }
}

impl From<FsError> for Halt {
    fn from(e: FsError) -> Halt {
        Halt::Failed(e.into())
    }
}

impl From<volume::Stop> for Halt {
    fn from(stop: volume::Stop) -> Halt {
        match stop {
            volume::Stop::Fail(e) => Halt::Failed(e.into()),
            stop => Halt::Stopped(stop),
        }
    }
}

impl Halt {
    /// Returns the outcome with the volume that stopped.
    #[cold]
    pub(crate) fn into_stop(self, volume: &Arc<Volume>) -> Stop {
        match self {
            Halt::Failed(e) => Stop::Failed(e),
            Halt::Stopped(stop) => Stop::Suspended(Suspend::Device(DeviceWait {
                stop,
                volume: Arc::clone(volume),
            })),
            Halt::Recall(ticket) => Stop::Suspended(Suspend::Recall(ticket)),
            Halt::Waits(change) => Stop::Suspended(Suspend::Thread(Box::pin(change.settled()))),
            Halt::Claimed => unreachable!("readers of the hints ask the table"),
            Halt::Unread => unreachable!("what finds a list reads it"),
        }
    }
}

//! Progress of commands, so that one that is resumed after a wait repeats nothing.

use crate::conn::connection::{Setup, SetupSubject};
use crate::open::durable::{CreateState, Name};
use crate::open::leases::Leases;
use crate::open::session::{Base, Open, OpenName};
use parking_lot::Mutex;
use std::sync::Arc;
use weir_auth::spnego::Mechanism;
use weir_auth::tickets::TicketOutcome;
use weir_base::Lsn;
use weir_vfs::claims::Range;
use weir_vfs::volume::{Attr, ReadOut};
use weir_vfs::{FileRef, Vfs};

/// Progress of a command that must not be repeated when it resumes.
#[derive(Default)]
pub(crate) enum Step {
    /// No step is done.
    #[default]
    Nothing,
    /// CREATE has made the file.
    Made(Box<ResolvedFile>),
    /// CREATE has opened the file, and has to truncate it.
    Opened(Arc<Open>),
    /// CREATE has an open in its final state.
    Claimed(ClaimedOpen),
    /// WRITE has written so many bytes.
    Written(usize),
    /// CLOSE has closed, and a name is to be removed. The attributes for the response.
    Deleting(
        Box<crate::open::deletions::Deletion>,
        Option<weir_vfs::volume::Attr>,
    ),
    /// CLOSE has removed the record of a persistent open, with the attributes for the response.
    Erased(Arc<Open>, Option<weir_vfs::volume::Attr>),
    /// TREE_DISCONNECT removes records of persistent opens: the last one's LSN so far; `None`: it
    /// has waited for that.
    Disconnects(Option<Option<Lsn>>),
    /// LOCK is carried out and has to be recorded. Holds the ranges that it unlocks.
    Locked(UnlockedRanges),
    /// LOCK is recorded.
    Recorded(UnlockedRanges),
    /// LOCK waits for another's lock.
    Waits(Box<crate::context::lock_wait::LockWait>),
    /// CHANGE_NOTIFY waits for a change.
    Watches(Box<crate::open::notify::NotifyWait>),
    /// CREATE has waited for the open that it takes over.
    Awaited,
    /// A rename is done.
    Done,
    /// A copy within the server is in progress.
    Copying(Box<CopyProgress>),
    /// SESSION_SETUP waits for a ticket to be accepted.
    Authenticates(Box<TicketWait>),
    /// A search for allocated ranges is in progress.
    Ranges(Box<Ranges>),
}

/// The file that a CREATE has found or made.
#[derive(Clone)]
pub(crate) struct ResolvedFile {
    pub file: FileRef,
    pub attr: Attr,
    pub named: OpenName,
    /// True if the caller may remove the name; `None` if it has none that could be removed.
    pub removable: Option<bool>,
    pub made: bool,
    /// The file or directory that it is a stream of.
    pub base: Option<Base>,
}

/// A CREATE that has its open, and what else its response says.
#[derive(Clone)]
pub(crate) struct ClaimedOpen {
    pub(crate) open: Arc<Open>,
    pub(crate) attr: Box<Attr>,
}

impl ClaimedOpen {
    pub(crate) fn new(open: Arc<Open>, attr: Attr) -> ClaimedOpen {
        ClaimedOpen {
            open,
            attr: Box::new(attr),
        }
    }
}

/// Ranges that a LOCK has unlocked. They are freed when this is dropped.
pub(crate) struct UnlockedRanges {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) open: Arc<Open>,
    pub(crate) ranges: Vec<Range>,
}

impl UnlockedRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl Drop for UnlockedRanges {
    fn drop(&mut self) {
        if let Some(file) = self.open.file() {
            for range in std::mem::take(&mut self.ranges) {
                let claims = &self.vfs.claims;
                claims.unlock_exact(file.id, &self.open.owner, range);
            }
        }
    }
}

/// Progress of a server-side copy.
#[derive(Default)]
pub(crate) struct CopyProgress {
    /// Chunks that are done.
    pub(crate) chunks: usize,
    /// Bytes of the next chunk that are done.
    pub(crate) within: u32,
    /// Bytes done in all.
    pub(crate) total: u32,
    /// True if the blocks of the next chunk cannot be shared.
    pub(crate) piecewise: bool,
    /// All data of the next chunk, since it may be written over its source.
    pub(crate) read: Option<ReadOut>,
}

/// Progress of a search for allocated ranges.
#[derive(Clone, Default)]
pub(crate) struct Ranges {
    pub(crate) found: Vec<(u64, u64)>,
    /// Offset at which the search continues.
    pub(crate) from: u64,
    /// Start of the range whose end is searched for.
    pub(crate) begun: Option<u64>,
}

/// A CREATE with a CreateGuid, while it is run.
pub(crate) struct PendingCreate {
    pub(crate) leases: Arc<Leases>,
    pub(crate) name: Name,
}

impl Drop for PendingCreate {
    fn drop(&mut self) {
        let mut made = self.leases.durables.made.lock();
        if let Some(CreateState::Pending) = made.get(&self.name) {
            made.remove(&self.name);
        }
    }
}

/// A SESSION_SETUP that waits for a ticket to be accepted.
pub(crate) struct TicketWait {
    pub(crate) mechanism: Mechanism,
    /// True if the client has to prove which mechanisms it offered.
    pub(crate) proves: bool,
    /// The request and the session that is being set up.
    pub(crate) about: Option<(SetupSubject, Setup)>,
    /// The client's integrity code over its mechanisms.
    pub(crate) code: Option<Vec<u8>>,
    pub(crate) accepted: Arc<Mutex<Option<TicketOutcome>>>,
}

impl TicketWait {
    /// Returns a wait for a client that has chosen `mechanism` itself.
    pub fn believed(mechanism: Mechanism) -> TicketWait {
        TicketWait {
            mechanism,
            proves: false,
            about: None,
            code: None,
            accepted: Arc::default(),
        }
    }

    /// Returns a wait for a client that was asked to use `mechanism`.
    pub fn proves(mechanism: Mechanism) -> TicketWait {
        TicketWait {
            proves: true,
            ..TicketWait::believed(mechanism)
        }
    }
}

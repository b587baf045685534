//! What commands have done that is not to be done again when they go on after a wait.

use crate::auth::kerberos::Accepted;
use crate::auth::spnego::Mechanism;
use crate::conn::connection::{Asked, Setup};
use crate::open::durable::{Made, Name};
use crate::open::leases::Leases;
use crate::open::session::{Base, Named, Open};
use parking_lot::Mutex;
use std::sync::Arc;
use weir_base::Lsn;
use weir_vfs::claims::Range;
use weir_vfs::volume::{Attr, ReadOut};
use weir_vfs::{FileRef, Vfs};

/// What a command has done that is not to be done again when it goes on.
#[derive(Default)]
pub(crate) enum Step {
    /// Nothing.
    #[default]
    Nothing,
    /// CREATE has made the file.
    Made(Box<Found>),
    /// CREATE has opened it, and it is to be cut.
    Opened(Arc<Open>),
    /// CREATE has an open that is as it is to be.
    Claimed(Claimed),
    /// WRITE has written so many bytes.
    Written(usize),
    /// CLOSE has closed, and a name is to be removed. The attributes for the response.
    Deleting(
        Box<crate::open::deletions::Deletion>,
        Option<weir_vfs::volume::Attr>,
    ),
    /// CLOSE has removed the record of a persistent open, with the attributes for the response.
    Erased(Arc<Open>, Option<weir_vfs::volume::Attr>),
    /// TREE_DISCONNECT removes records of persistent opens: the last one's LSN so far; `None`: it has waited for that.
    Disconnects(Option<Option<Lsn>>),
    /// LOCK has done all of it, and is to be recorded; what it frees.
    Locked(Freed),
    /// LOCK is recorded.
    Recorded(Freed),
    /// LOCK waits for another's lock.
    Waits(Box<crate::context::lock_wait::Waiting>),
    /// CHANGE_NOTIFY waits for a change.
    Watches(Box<crate::open::notify::Asked>),
    /// CREATE has waited for the open that it takes over.
    Awaited,
    /// The last cursor of a longer search.
    Done,
    /// A copy within the server has come so far.
    Copying(Box<Copying>),
    /// SESSION_SETUP waits for what becomes of a ticket.
    Authenticates(Box<TicketWait>),
    /// A search for what is allocated has.
    Ranges(Box<Ranges>),
}

/// What a CREATE has found or made.
#[derive(Clone)]
pub(crate) struct Found {
    pub file: FileRef,
    pub attr: Attr,
    pub named: Named,
    /// True if the caller may remove the name; `None` if it has none that could be removed.
    pub removable: Option<bool>,
    pub made: bool,
    /// What it is a stream of.
    pub base: Option<Base>,
}

/// A CREATE that has its open, and what else its response says.
#[derive(Clone)]
pub(crate) struct Claimed {
    pub(crate) open: Arc<Open>,
    pub(crate) attr: Box<Attr>,
}

impl Claimed {
    pub(crate) fn new(open: Arc<Open>, attr: Attr) -> Claimed {
        Claimed {
            open,
            attr: Box::new(attr),
        }
    }
}

/// What a LOCK has unlocked, which is freed when this is dropped.
pub(crate) struct Freed {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) open: Arc<Open>,
    pub(crate) ranges: Vec<Range>,
}

impl Freed {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(file) = self.open.file() {
            for range in std::mem::take(&mut self.ranges) {
                let claims = &self.vfs.claims;
                claims.unlock_exact(file.id, &self.open.owner, range);
            }
        }
    }
}

/// How far a copy has come.
#[derive(Default)]
pub(crate) struct Copying {
    /// Chunks that are done.
    pub(crate) chunks: usize,
    /// Bytes of the next one that are.
    pub(crate) within: u32,
    /// Bytes in all.
    pub(crate) total: u32,
    /// The blocks of the next one cannot be shared.
    pub(crate) piecewise: bool,
    /// All of the next one: it may be written over its source.
    pub(crate) read: Option<ReadOut>,
}

/// What a search for ranges has found.
#[derive(Clone, Default)]
pub(crate) struct Ranges {
    pub(crate) found: Vec<(u64, u64)>,
    /// Where it goes on.
    pub(crate) from: u64,
    /// Where the range begins whose end is searched for.
    pub(crate) begun: Option<u64>,
}

/// A CREATE with a CreateGuid, while it is run.
pub(crate) struct Creating {
    pub(crate) leases: Arc<Leases>,
    pub(crate) name: Name,
}

impl Drop for Creating {
    fn drop(&mut self) {
        let mut made = self.leases.durables.made.lock();
        if let Some(Made::Pending) = made.get(&self.name) {
            made.remove(&self.name);
        }
    }
}

/// A SESSION_SETUP that waits for what becomes of a ticket.
pub(crate) struct TicketWait {
    pub(crate) mechanism: Mechanism,
    /// The client has to prove which mechanisms it offered.
    pub(crate) proves: bool,
    /// What is being set up.
    pub(crate) about: Option<(Asked, Setup)>,
    /// The client's integrity code over its mechanisms.
    pub(crate) code: Option<Vec<u8>>,
    pub(crate) accepted: Arc<Mutex<Option<Accepted>>>,
}

impl TicketWait {
    /// For a client that has chosen `mechanism` itself.
    pub fn believed(mechanism: Mechanism) -> TicketWait {
        TicketWait {
            mechanism,
            proves: false,
            about: None,
            code: None,
            accepted: Arc::default(),
        }
    }

    /// For one that was asked for it.
    pub fn proves(mechanism: Mechanism) -> TicketWait {
        TicketWait {
            proves: true,
            ..TicketWait::believed(mechanism)
        }
    }
}

//! Pages sent to the partner before the stream entry that contains them.
//!
//! Large stable data is written in place first, and then a record names its location. If the
//! partner got the data with the record, it would begin to write only when this side has written.
//! So the pages are sent when their local write starts. The partner writes them to a place of its
//! own meanwhile, and the entry then refers to them ([`InAdvance`]).
//!
//! An advance is not part of the stream's order, and nothing depends on one. The entry holds all
//! its pages until it is acknowledged, and a connection that has not carried them before sends them
//! with it. So an advance may be given up at any time: by its request, which then [takes it
//! back](Advance::Back), and with a connection. Nothing waits for an
//! advance either.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::stream::ChangeStream;
use crate::frame::Frame;

/// Number of an advance, used once in a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdvanceId(pub u64);

/// A message that the sender sends before the next entry.
#[derive(Debug)]
pub enum Advance {
    /// Pages sent before their entry.
    Pages {
        /// Number by which an entry will refer to the pages.
        id: AdvanceId,
        /// The pages, at least one.
        pages: Vec<Frame>,
        /// Their checksums (CRC32C), in order.
        sums: SmallVec<[u32; 16]>,
    },
    /// No entry will contain the pages of this advance.
    Back(AdvanceId),
}

/// Pages of an entry that may have been sent before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InAdvance {
    /// Number of the advance.
    pub id: AdvanceId,
    /// Index of the first such page in the entry.
    pub first: usize,
    /// Number of such pages, at least one.
    pub count: usize,
}

/// Advances that have not been sent.
#[derive(Default)]
pub(super) struct Advances {
    pub(super) queue: Mutex<Queue>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Advance>,
    pub(super) last: u64,
    /// Number of the current carrier: the newest.
    pub(super) carrier: Option<u64>,
    carriers: u64,
}

/// The sender of a stream's advances, until it is dropped or another carrier replaces it.
#[derive(Debug)]
pub struct Carrier {
    stream: Arc<ChangeStream>,
    number: u64,
}

impl Carrier {
    /// Becomes the carrier of `stream`, in place of any earlier one.
    pub fn new(stream: &Arc<ChangeStream>) -> Carrier {
        let mut queue = stream.advances().queue.lock();
        queue.carriers += 1;
        let number = queue.carriers;
        queue.carrier = Some(number);
        // The previous carrier has not sent them.
        let gone = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(gone);
        Carrier {
            stream: Arc::clone(stream),
            number,
        }
    }

    /// Returns true if this is the carrier of `stream`.
    pub fn is_of(&self, stream: &Arc<ChangeStream>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }

    /// Takes the advances to send now, in order. Call it after looking up the entries that are sent
    /// behind them.
    pub fn take(&self) -> VecDeque<Advance> {
        let mut queue = self.stream.advances().queue.lock();
        match queue.carrier == Some(self.number) {
            true => std::mem::take(&mut queue.waiting),
            false => VecDeque::new(),
        }
    }

    /// Returns true if there is nothing to send.
    pub fn is_idle(&self) -> bool {
        let queue = self.stream.advances().queue.lock();
        queue.carrier != Some(self.number) || queue.waiting.is_empty()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let mut queue = self.stream.advances().queue.lock();
        if queue.carrier == Some(self.number) {
            queue.carrier = None;
            let gone = std::mem::take(&mut queue.waiting);
            drop(queue);
            // Dropped outside the lock: these may be the last references to the pages.
            drop(gone);
        }
    }
}

/// Pages sent before their entry. Dropping it takes them back, unless an entry contains them.
#[derive(Debug)]
pub struct AdvancedPages {
    pub(super) stream: Arc<ChangeStream>,
    pub(super) id: AdvanceId,
    pub(super) count: usize,
    pub(super) used: bool,
}

impl AdvancedPages {
    /// Returns the reference for an entry that has the pages from its page `first` on.
    pub fn within(&self, first: usize) -> InAdvance {
        InAdvance {
            id: self.id,
            first,
            count: self.count,
        }
    }

    /// Notes that an entry contains the pages.
    pub fn used(mut self) {
        self.used = true;
    }
}

impl Drop for AdvancedPages {
    fn drop(&mut self) {
        if self.used {
            return;
        }
        let mut queue = self.stream.advances().queue.lock();
        if queue.carrier.is_some() {
            queue.waiting.push_back(Advance::Back(self.id));
        }
        drop(queue);
        self.stream.ring();
    }
}

//! Pages that are sent to the partner before the entry that has them.
//!
//! Large data that has to be stable is written to its place first, and then a record says where it is. If the partner got the data with the
//! record, it would begin to write when this side has written. So the pages are sent when they set out for their place here; the partner writes them
//! to a place of its own meanwhile, and the entry then refers to them ([`InAdvance`]).
//!
//! An advance is no part of the stream's order, and nothing depends on one. The entry has all its pages for as long as it is not
//! acknowledged, and a connection that has not carried them before takes them with it. So one may be given up anywhere: by the request whose
//! data it is, which then [takes it back](Advance::Back), and with a connection. Nobody waits for one either.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::Log;
use super::stream::ChangeStream;
use crate::frame::Frame;

/// Number of an advance, used once in a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdvanceId(pub u64);

/// What the one who sends entries is to send before the next of them.
#[derive(Debug)]
pub enum Advance {
    /// These pages.
    Pages {
        /// How an entry will refer to them.
        id: AdvanceId,
        /// At least one.
        pages: Vec<Frame>,
        /// Their checksums (CRC32C), in order.
        sums: SmallVec<[u32; 16]>,
    },
    /// No entry will have the pages of this one.
    Back(AdvanceId),
}

/// Which of an entry's pages may have been sent before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InAdvance {
    /// With which number.
    pub id: AdvanceId,
    /// The first of them.
    pub first: usize,
    /// How many, at least one.
    pub count: usize,
}

/// Advances that have not been sent.
#[derive(Default)]
pub(super) struct Advances {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Advance>,
    last: u64,
    /// The one who sends them: the newest.
    carrier: Option<u64>,
    carriers: u64,
}

/// Sends the advances of a stream, for as long as it is held and nobody else does.
#[derive(Debug)]
pub struct Carrier {
    stream: Arc<ChangeStream>,
    number: u64,
}

impl Carrier {
    /// Becomes the one who sends what is to be sent in advance from now on.
    pub fn of(stream: &Arc<ChangeStream>) -> Carrier {
        let mut queue = stream.advances().queue.lock();
        queue.carriers += 1;
        let number = queue.carriers;
        queue.carrier = Some(number);
        // The one before has not sent it.
        let gone = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(gone);
        Carrier {
            stream: Arc::clone(stream),
            number,
        }
    }

    /// Whether it is this stream's.
    pub fn is_of(&self, stream: &Arc<ChangeStream>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }

    /// What is to be sent now, in order. To be taken after the entries that are sent behind it were looked up.
    pub fn take(&self) -> VecDeque<Advance> {
        let mut queue = self.stream.advances().queue.lock();
        match queue.carrier == Some(self.number) {
            true => std::mem::take(&mut queue.waiting),
            false => VecDeque::new(),
        }
    }

    /// Whether there is nothing to be sent.
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
            // Their pages may be the last references.
            drop(gone);
        }
    }
}

/// Pages that are sent before their entry. Dropping it takes them back, unless an entry has them.
#[derive(Debug)]
pub struct Advanced {
    stream: Arc<ChangeStream>,
    id: AdvanceId,
    count: usize,
    used: bool,
}

impl Advanced {
    /// What an entry says that has the pages from its page `first` on.
    pub fn within(&self, first: usize) -> InAdvance {
        InAdvance {
            id: self.id,
            first,
            count: self.count,
        }
    }

    /// An entry has them.
    pub fn used(mut self) {
        self.used = true;
    }
}

impl Drop for Advanced {
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

impl Log {
    /// Whether pages can be sent to a partner before their entry.
    pub fn advances(&self) -> bool {
        let stream = self.stream();
        stream.is_some_and(|stream| stream.advances().queue.lock().carrier.is_some())
    }

    /// Sends pages, at least one, each with its checksum (CRC32C), to the partner before the entry that will have them. `None`: nobody carries
    /// them.
    pub fn advance(&self, pages: impl Iterator<Item = (Frame, u32)>) -> Option<Advanced> {
        let stream = self.stream()?;
        let (pages, sums): (Vec<Frame>, SmallVec<[u32; 16]>) = pages.unzip();
        let count = pages.len();
        let mut queue = stream.advances().queue.lock();
        queue.carrier?;
        queue.last += 1;
        let id = AdvanceId(queue.last);
        queue.waiting.push_back(Advance::Pages { id, pages, sums });
        drop(queue);
        stream.ring();
        Some(Advanced {
            stream,
            id,
            count,
            used: false,
        })
    }
}

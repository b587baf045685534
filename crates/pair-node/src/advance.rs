//! Pages that are sent before their entry ([`weir_store::log::advance`]), at both ends of one
//! connection.
//!
//! The receiver announces how many bytes of such pages it keeps, and the sender has no more than
//! that unclaimed by entries. Pages beyond the limit travel with their entry. This bounds the
//! receiver's memory, and a sender that exceeds the limit is refused.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use weir_base::BLOCK_SIZE;
use weir_mirror::wire::{self, Before};
use weir_store::Frame;
use weir_volume::{Advance, AdvanceId, AdvanceWrite, Ahead, Entry, InAdvance};

/// Advances sent over one connection that no entry has referred to, with their sizes in bytes.
pub struct SentAdvances {
    under_way: HashMap<AdvanceId, usize>,
    bytes: usize,
    /// Maximum number of bytes that the receiver keeps.
    most: usize,
}

/// A message on the wire: its encoded front, then two runs of pages by reference.
pub type WireMessage<'a> = (Vec<u8>, &'a [Frame], &'a [Frame]);

impl SentAdvances {
    /// Creates the record of a new connection to a receiver that keeps up to `most` bytes.
    pub fn new(most: u32) -> SentAdvances {
        SentAdvances {
            under_way: HashMap::new(),
            bytes: 0,
            most: most as usize,
        }
    }

    /// Returns true if `advance` is to be sent, and counts its pages. Pages that exceed the
    /// receiver's limit are not, and neither is the withdrawal of pages that were not sent.
    pub fn admits(&mut self, advance: &Advance) -> bool {
        match advance {
            Advance::Pages { id, pages, .. } => {
                let bytes = pages.len() * BLOCK_SIZE;
                if self.bytes + bytes > self.most {
                    return false;
                }
                self.bytes += bytes;
                self.under_way.insert(*id, bytes);
                true
            }
            Advance::Back(id) => self.ends(*id),
        }
    }

    /// Forgets an advance. Returns true if it had been sent.
    fn ends(&mut self, id: AdvanceId) -> bool {
        let bytes = self.under_way.remove(&id);
        self.bytes -= bytes.unwrap_or_default();
        bytes.is_some()
    }

    /// Encodes an entry of `term`, without the pages that were sent in advance.
    pub fn entry<'a>(&mut self, term: u64, entry: &'a Entry) -> WireMessage<'a> {
        let (sequence, pages) = (entry.sequence.0, &entry.pages[..]);
        if let Some(advance) = entry.advance.filter(|advance| self.ends(advance.id)) {
            let (head, tail) = around(pages, advance);
            let (sums, more) = around(&entry.sums, advance);
            let before = Before {
                id: advance.id.0,
                first: advance.first as u16,
            };
            let sums = [sums, more].concat();
            let front = wire::rest_front(term, sequence, before, &entry.meta, &sums);
            return (front, head, tail);
        }
        let front = wire::entry_front(term, sequence, &entry.meta, &entry.sums);
        (front, pages, &[])
    }
}

/// Returns the items before and after the pages that were sent in advance.
fn around<T>(all: &[T], advance: InAdvance) -> (&[T], &[T]) {
    let (head, rest) = all.split_at(advance.first);
    (head, rest.split_at(advance.count).1)
}

/// Encodes an advance.
pub fn outgoing(advance: &Advance) -> WireMessage<'_> {
    match advance {
        Advance::Pages { id, pages, sums } => (wire::advance_front(id.0, sums), pages, &[]),
        Advance::Back(id) => (wire::Message::Back { id: id.0 }.encode(), &[], &[]),
    }
}

/// State of an advance at the receiver.
pub enum AdvanceState {
    /// The pages are being written to their place.
    Placed(AdvanceWrite),
    /// The pages wait in memory for their entry.
    Pages(Vec<Box<[u8]>>),
}

/// Advances received over one connection that no entry has referred to, with their sizes in bytes.
pub struct ReceivedAdvances {
    held: HashMap<u64, (AdvanceState, usize)>,
    bytes: usize,
    /// Maximum number of bytes kept.
    most: usize,
}

impl ReceivedAdvances {
    /// Creates the record of a new connection that keeps up to `most` bytes.
    pub fn new(most: u32) -> ReceivedAdvances {
        ReceivedAdvances {
            held: HashMap::new(),
            bytes: 0,
            most: most as usize,
        }
    }

    /// Keeps the pages of advance `id`; `place` begins to write them, or returns them.
    ///
    /// # Errors
    /// The partner exceeds the limit.
    pub fn keep(
        &mut self,
        id: u64,
        pages: Vec<Box<[u8]>>,
        place: impl FnOnce(Vec<Box<[u8]>>) -> AdvanceState,
    ) -> Result<()> {
        // Numbers begin anew with a stream.
        self.forget(id);
        let bytes = pages.len() * BLOCK_SIZE;
        self.bytes += bytes;
        ensure!(
            self.bytes <= self.most,
            "cannot keep an advance: the partner sends more than was announced"
        );
        self.held.insert(id, (place(pages), bytes));
        Ok(())
    }

    /// Drops an advance that no entry will refer to.
    pub fn forget(&mut self, id: u64) {
        drop(self.take(id));
    }

    fn take(&mut self, id: u64) -> Option<AdvanceState> {
        let (held, bytes) = self.held.remove(&id)?;
        self.bytes -= bytes;
        Some(held)
    }

    /// Joins the pages that `before` names to those of their entry. Pages that are not being
    /// written are inserted into `pages`; otherwise the result says where they belong.
    pub fn join(&mut self, before: Before, pages: &mut Vec<Box<[u8]>>) -> Result<Option<Ahead>> {
        let held = self.take(before.id);
        let held = held.context("an entry refers to pages that did not come before it")?;
        let first = usize::from(before.first);
        ensure!(
            first <= pages.len(),
            "an entry refers to pages behind its own"
        );
        Ok(match held {
            AdvanceState::Placed(placing) => Some(Ahead { first, placing }),
            AdvanceState::Pages(more) => {
                pages.splice(first..first, more);
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(bytes: std::ops::Range<u8>) -> Vec<Box<[u8]>> {
        bytes.map(|byte| vec![byte; BLOCK_SIZE].into()).collect()
    }

    #[test]
    fn what_has_no_place_becomes_pages_of_its_entry() {
        let mut arrived = ReceivedAdvances::new(1 << 20);
        for id in [1, 2, 2] {
            arrived.keep(id, pages(2..4), AdvanceState::Pages).unwrap();
        }
        assert_eq!(
            arrived.bytes,
            4 * BLOCK_SIZE,
            "the second 2 took the first one's place"
        );
        let mut own = [pages(1..2), pages(4..6)].concat();
        let before = |id, first| Before { id, first };
        assert!(arrived.join(before(2, 1), &mut own).unwrap().is_none());
        assert_eq!(own, pages(1..6));
        assert!(arrived.join(before(2, 1), &mut own).is_err(), "it was used");
        assert!(
            arrived.join(before(1, 6), &mut own).is_err(),
            "behind its pages"
        );
        assert_eq!((arrived.bytes, arrived.held.len()), (0, 0));
        arrived.keep(3, pages(0..1), AdvanceState::Pages).unwrap();
        arrived.forget(3);
        assert!(
            arrived.join(before(3, 0), &mut own).is_err(),
            "it was taken back"
        );
    }

    #[test]
    fn no_more_is_under_way_than_is_admitted() {
        // Room for four advances of 512 pages.
        const MOST: u32 = 8 << 20;
        let (mut carried, mut arrived) = (SentAdvances::new(MOST), ReceivedAdvances::new(MOST));
        let some = |id| Advance::Pages {
            id: AdvanceId(id),
            pages: vec![Frame::zero(); 512],
            sums: std::iter::repeat_n(0, 512).collect(),
        };
        let zeros = || vec![vec![0; BLOCK_SIZE].into(); 512];
        for id in 1..=4 {
            assert!(carried.admits(&some(id)));
            arrived.keep(id, zeros(), AdvanceState::Pages).unwrap();
        }
        assert!(!carried.admits(&some(5)));
        assert!(
            !carried.admits(&Advance::Back(AdvanceId(5))),
            "it was not sent"
        );
        assert!(arrived.keep(5, zeros(), AdvanceState::Pages).is_err());
        assert!(carried.admits(&Advance::Back(AdvanceId(3))));
        assert!(carried.admits(&some(6)));
    }
}

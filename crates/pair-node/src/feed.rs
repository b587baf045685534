//! Queue of a round's entries, between the thread that reads them and the link that sends them.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use weir_base::BLOCK_SIZE;
use weir_volume::{Frame, MarkId, RoundEntry, StreamPosition};

/// Maximum number of bytes of entries read ahead of the link.
const AHEAD: usize = 4 << 20;
/// An entry that is to be sent.
pub struct FeedEntry {
    pub at: StreamPosition,
    pub meta: Vec<u8>,
    pub pages: Vec<Frame>,
    /// The pages' checksums.
    pub sums: Vec<u32>,
}

impl FeedEntry {
    /// Prepares an entry of a round.
    pub fn from_round_entry(entry: RoundEntry) -> FeedEntry {
        let RoundEntry { at, meta, pages } = entry;
        let sums = pages
            .iter()
            .map(|page| weir_store::block::page_crc(page))
            .collect();
        FeedEntry {
            at,
            meta,
            pages: pages.into_vec(),
            sums,
        }
    }

    /// Returns the number of bytes that the entry counts for in the queue.
    pub fn weight(&self) -> usize {
        self.meta.len() + self.pages.len() * BLOCK_SIZE + 64
    }
}

/// Outcome of a round.
pub enum End {
    /// All entries were read. The position is the beginning of the stream that the copy can then
    /// join.
    Whole(Option<StreamPosition>),
    Failed(String),
    /// The link is closed.
    Closed,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<FeedEntry>,
    bytes: usize,
    end: Option<End>,
}

/// Result of taking from a feed.
pub enum TakeOutcome {
    Entries(Vec<FeedEntry>),
    /// No entry is ready yet.
    Nothing,
    /// All entries were taken.
    Whole(Option<StreamPosition>),
    Failed(String),
}

/// Bounded queue between the thread that reads a round and the link that sends it.
#[derive(Default)]
pub struct Feed {
    queue: Mutex<Queue>,
    /// Signals, with `queue`, that there is room or that the feed is closed.
    changed: Condvar,
    /// Marks between which the round brings the copy; a round from nothing has no base.
    marks: OnceLock<(Option<MarkId>, MarkId)>,
    /// Number of bytes sent over this link.
    sent: AtomicU64,
    /// Rate in bytes a second to which the round is [held back](crate::resync_rate::ResyncRate); 0
    /// is no limit.
    rate: AtomicU64,
}

impl Feed {
    /// Notes the marks between which the round brings the copy; only the first call counts.
    pub fn set_marks(&self, base: Option<MarkId>, mark: MarkId) {
        let _ = self.marks.set((base, mark));
    }

    /// Notes the rate in bytes a second to which the round is held back; 0 is none.
    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Closes the feed and drops the entries in it.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.end = Some(End::Closed);
        queue.ready.clear();
        self.changed.notify_all();
    }

    /// Returns true if nothing more is taken.
    pub fn is_closed(&self) -> bool {
        matches!(self.queue.lock().end, Some(End::Closed))
    }

    /// Waits for room and appends an entry. Returns false if the feed has ended.
    pub fn put(&self, ready: FeedEntry) -> bool {
        let mut queue = self.queue.lock();
        while queue.end.is_none() && queue.bytes >= AHEAD {
            self.changed.wait(&mut queue);
        }
        if queue.end.is_some() {
            return false;
        }
        queue.bytes += ready.weight();
        queue.ready.push_back(ready);
        true
    }

    /// Ends the feed behind what was put into it.
    pub fn end(&self, end: End) {
        let mut queue = self.queue.lock();
        if queue.end.is_none() {
            queue.end = Some(end);
        }
    }

    /// Entries of about so many bytes.
    pub fn take(&self, bytes: usize) -> TakeOutcome {
        let mut queue = self.queue.lock();
        let mut taken = Vec::new();
        let mut weight = 0;
        while weight < bytes
            && let Some(ready) = queue.ready.pop_front()
        {
            weight += ready.weight();
            taken.push(ready);
        }
        if !taken.is_empty() {
            queue.bytes -= weight;
            self.changed.notify_all();
            self.sent.fetch_add(weight as u64, Ordering::Relaxed);
            return TakeOutcome::Entries(taken);
        }
        match &queue.end {
            Some(End::Whole(follow)) => TakeOutcome::Whole(*follow),
            Some(End::Failed(why)) => TakeOutcome::Failed(why.clone()),
            Some(End::Closed) | None => TakeOutcome::Nothing,
        }
    }

    /// Returns the number of bytes sent over this link.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Describes the progress for `weir pair show`.
    pub fn describe_progress(&self) -> String {
        let mib = self.sent() >> 20;
        let held_back = match self.rate.load(Ordering::Relaxed) >> 20 {
            0 => String::new(),
            rate => format!(", held back to {rate} MiB/s for clients' writes"),
        };
        match self.marks.get() {
            Some((Some(base), to)) => {
                format!("{mib} MiB sent of the difference from mark {base} to {to}{held_back}")
            }
            Some((None, to)) => format!("{mib} MiB sent of everything, up to mark {to}{held_back}"),
            None => "a mark is being made".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ready(bytes: usize) -> FeedEntry {
        FeedEntry {
            at: StreamPosition::default(),
            meta: vec![0; bytes],
            pages: Vec::new(),
            sums: Vec::new(),
        }
    }

    #[test]
    fn a_feed_holds_no_more_than_its_bytes_and_ends_behind_the_last_entry() {
        const ENTRIES: usize = 60;
        let feed = Arc::new(Feed::default());
        let puts = Arc::clone(&feed);
        let thread = std::thread::spawn(move || {
            for _ in 0..ENTRIES {
                assert!(puts.put(ready(AHEAD / 2)));
            }
            puts.end(End::Whole(None));
        });
        let mut entries = 0;
        loop {
            assert!(feed.queue.lock().bytes <= AHEAD + AHEAD / 2 + 200);
            match feed.take(1) {
                TakeOutcome::Entries(taken) => entries += taken.len(),
                TakeOutcome::Nothing => std::thread::yield_now(),
                TakeOutcome::Whole(None) => break,
                _ => panic!("it fails"),
            }
        }
        assert_eq!(entries, ENTRIES);
        assert_eq!(feed.sent(), (ENTRIES * (AHEAD / 2 + 64)) as u64);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_feed_that_is_closed_stops_the_thread_that_reads() {
        let feed = Arc::new(Feed::default());
        assert!(feed.put(ready(AHEAD)));
        let puts = Arc::clone(&feed);
        let thread = std::thread::spawn(move || puts.put(ready(10)));
        feed.close();
        assert_eq!(thread.join().ok(), Some(false));
        assert!(matches!(feed.take(1), TakeOutcome::Nothing));
    }
}

//! Changes that are kept for the watches of a directory, or of the tree under it.
//!
//! All watches of one directory read one feed, each from its own position. A change is encoded and
//! kept once, whatever the number of watches, and answers each waiting request. Changes that all
//! watches have read are dropped.
//!
//! **Bounds.** A feed keeps [`KEPT`] bytes. All feeds and watches together leave half of the budget
//! of the claims free. A watch has to list the directory if changes were dropped before it read
//! them, or if it would read more at once than the response to its first request could take.

use crate::proto::names;
use crate::proto::status::Status;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use weir_auth::wire::Put;
use weir_base::{Budget, Reservation};
use weir_vfs::signal::Signal;

/// FILE_ACTION_MODIFIED (MS-FSCC §2.7.1).
pub(crate) const MODIFIED: u32 = 3;
/// Bytes that a watch reads at once at most.
pub(crate) const MOST: usize = 64 << 10;
/// Bytes that a feed keeps at most.
const KEPT: usize = 2 * MOST;
/// Memory of a change that is kept, beside its record, in bytes.
const AROUND: usize = 64;
/// Memory of a feed, and of a watch, beside what is kept, in bytes.
const FIXED: usize = 512;

/// Result of a request: records, or a status without any.
pub(crate) type Got = Result<Vec<u8>, Status>;

/// A change that is kept.
struct Change {
    /// Bits of [`crate::proto::filter`].
    bits: u32,
    action: u32,
    /// FILE_NOTIFY_INFORMATION without a successor.
    record: Box<[u8]>,
}

/// Changes of a directory, or of the tree under it.
pub(crate) struct Feed {
    state: Mutex<State>,
}

struct State {
    kept: VecDeque<Change>,
    /// Number of the first change that is kept.
    first: u64,
    /// Bytes that these take.
    bytes: usize,
    charged: Reservation,
    /// Watches by number.
    watches: HashMap<u64, FeedReader>,
    /// Watches that have read all and have waiting requests, with their filters: every change is
    /// compared with these.
    waiting: HashMap<u64, u32>,
    /// Number of the other watches that have read all.
    idle: usize,
    next_watch: u64,
}

/// State of a watch.
struct FeedReader {
    filter: u32,
    /// Bytes that it reads at once at most.
    room: usize,
    /// Number of the change that it reads next; of no meaning while requests wait.
    from: u64,
    /// True if it has missed changes and has to list the directory.
    lost: bool,
    waiters: VecDeque<Arc<Waiter>>,
    _memory: Reservation,
}

/// A request that waits.
pub(crate) struct Waiter {
    /// Bytes that its response takes.
    most: usize,
    pub came: Arc<Signal<()>>,
    pub got: Mutex<Option<Got>>,
}

impl Waiter {
    fn get(&self, got: Got) {
        *self.got.lock() = Some(got);
        self.came.set(());
    }
}

/// A record of a change.
fn record(action: u32, path: &str) -> Box<[u8]> {
    let mut record = Vec::with_capacity(12 + 2 * path.len());
    record.put_u32(0);
    record.put_u32(action);
    record.put_u32(0);
    record.put_utf16(path);
    let len = (record.len() - 12) as u32;
    record.set_u32(8, len);
    record.into()
}

impl State {
    /// Number of the change that comes next.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Drops all that is kept: who has not read it has lost it.
    fn drop_all(&mut self) {
        self.first = self.end();
        self.kept = VecDeque::new();
        self.bytes = 0;
        self.charged.shrink_to(FIXED);
    }

    /// Drops what is kept, if all have read it.
    fn drop_read(&mut self) {
        if !self.kept.is_empty() && self.idle + self.waiting.len() == self.watches.len() {
            self.drop_all();
        }
    }

    /// Keeps a change, if memory is `free`.
    fn keep(&mut self, free: bool, change: Change) {
        let bytes = change.record.len() + AROUND;
        self.idle = 0;
        if !free || bytes > KEPT || !self.charged.grow(bytes) {
            self.drop_all();
            // The change itself is lost as well.
            self.first += 1;
            return;
        }
        self.kept.push_back(change);
        self.bytes += bytes;
        while self.bytes > KEPT
            && let Some(old) = self.kept.pop_front()
        {
            self.first += 1;
            self.bytes -= old.record.len() + AROUND;
        }
        self.charged.shrink_to(FIXED + self.bytes);
    }

    /// Takes what a watch has not read, from `from` on, as a response of `most` bytes has it;
    /// `None`: there is nothing.
    fn read(&self, reading: &FeedReader, from: u64, most: usize) -> Option<Got> {
        if reading.lost || from < self.first {
            return Some(Err(Status::NOTIFY_ENUM_DIR));
        }
        let mut out = Vec::new();
        let mut last: Option<(usize, &Change)> = None;
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        for change in self.kept.iter().skip(skip) {
            if change.bits & reading.filter == 0 {
                continue;
            }
            if let Some((_, before)) = last
                && change.action == MODIFIED
                && before.record == change.record
            {
                // A repeated change is reported once.
                continue;
            }
            out.align(0, 4);
            let at = out.len();
            if at + change.record.len() > reading.room.min(most) {
                return Some(Err(Status::NOTIFY_ENUM_DIR));
            }
            if let Some((before, _)) = last {
                out.set_u32(before, (at - before) as u32);
            }
            out.put(&change.record);
            last = Some((at, change));
        }
        (!out.is_empty()).then_some(Ok(out))
    }

    /// Answers the request of a watch that has waited longest, if there is something for it behind
    /// `from`.
    fn hand_over(&mut self, watch: u64, from: u64) {
        let end = self.end();
        let Some(reading) = self.watches.get(&watch) else {
            return;
        };
        let Some(most) = reading.waiters.front().map(|waiter| waiter.most) else {
            return;
        };
        let Some(got) = self.read(reading, from, most) else {
            return;
        };
        let Some(reading) = self.watches.get_mut(&watch) else {
            return;
        };
        (reading.from, reading.lost) = (end, false);
        if let Some(waiter) = reading.waiters.pop_front() {
            waiter.get(got);
        }
        if reading.waiters.is_empty() && self.waiting.remove(&watch).is_some() {
            self.idle += 1;
        }
    }
}

impl Feed {
    /// A feed without watches; `None` if there is no memory for it.
    pub fn new(budget: &Arc<Budget>) -> Option<Feed> {
        Some(Feed {
            state: Mutex::new(State {
                kept: VecDeque::new(),
                first: 0,
                bytes: 0,
                charged: budget.try_reserve(FIXED)?,
                watches: HashMap::new(),
                waiting: HashMap::new(),
                idle: 0,
                next_watch: 0,
            }),
        })
    }

    /// Adds a watch that reads from now on; its number. `None` if there is no memory for it.
    pub fn add(&self, budget: &Arc<Budget>, filter: u32, room: usize) -> Option<u64> {
        let memory = budget.try_reserve(FIXED)?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let (number, from) = (state.next_watch, state.end());
        state.next_watch += 1;
        state.idle += 1;
        let reading = FeedReader {
            filter,
            room: room.min(MOST),
            from,
            lost: false,
            waiters: VecDeque::new(),
            _memory: memory,
        };
        state.watches.insert(number, reading);
        Some(number)
    }

    /// Takes a watch out, and answers its requests. Returns true if it was the last one.
    pub fn remove(&self, watch: u64, status: Status) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let end = state.end();
        if let Some(reading) = state.watches.remove(&watch) {
            let waited = state.waiting.remove(&watch).is_some();
            if !waited && reading.from == end && !reading.lost {
                state.idle -= 1;
            }
            for waiter in reading.waiters {
                waiter.get(Err(status));
            }
        }
        state.drop_read();
        state.watches.is_empty()
    }

    /// Answers all requests that wait with a status.
    pub fn answer_all(&self, status: Status) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let end = state.end();
        let all: Vec<u64> = state.waiting.drain().map(|(watch, _)| watch).collect();
        for watch in all {
            if let Some(reading) = state.watches.get_mut(&watch) {
                reading.from = end;
                std::mem::take(&mut reading.waiters)
                    .iter()
                    .for_each(|waiter| waiter.get(Err(status)));
                state.idle += 1;
            }
        }
        state.drop_read();
    }

    /// Keeps changes of names below `prefix`, if memory is `free`, and answers the requests that
    /// wait for such.
    pub fn push(&self, free: bool, bits: u32, prefix: &str, changes: &[(u32, &[u8])]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let from = state.end();
        for (action, name) in changes {
            let path = format!("{prefix}{}", names::to_client_name(name));
            let change = Change {
                bits,
                action: *action,
                record: record(*action, &path),
            };
            state.keep(free, change);
        }
        state.answer_waiting(bits, from);
    }

    /// Loses a change: nobody knows its path.
    pub fn lose(&self, bits: u32) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let from = state.end();
        state.drop_all();
        (state.first, state.idle) = (state.first + 1, 0);
        state.answer_waiting(bits, from);
    }

    /// Returns what a watch has not read, or has the request wait.
    pub fn request_changes(&self, watch: u64, most: usize) -> Result<Got, Arc<Waiter>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let end = state.end();
        let Some(reading) = state.watches.get(&watch) else {
            return Ok(Err(Status::NOTIFY_CLEANUP));
        };
        let waits = !reading.waiters.is_empty();
        let from = if waits { end } else { reading.from };
        let (got, was_idle) = (
            state.read(reading, from, most),
            !waits && from == end && !reading.lost,
        );
        let filter = reading.filter;
        let Some(reading) = state.watches.get_mut(&watch) else {
            return Ok(Err(Status::NOTIFY_CLEANUP));
        };
        (reading.from, reading.lost) = (end, false);
        let out = match got {
            Some(got) => {
                state.idle += usize::from(!was_idle && !waits);
                Ok(got)
            }
            None => {
                let waiter = Arc::new(Waiter {
                    most,
                    came: Arc::default(),
                    got: Mutex::default(),
                });
                reading.waiters.push_back(Arc::clone(&waiter));
                state.idle -= usize::from(was_idle);
                state.waiting.insert(watch, filter);
                Err(waiter)
            }
        };
        state.drop_read();
        out
    }

    /// Takes back a request that waits. Changes that it received and did not take are lost, and the
    /// next request is notified of that.
    pub fn cancel(&self, watch: u64, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let end = state.end();
        let Some(reading) = state.watches.get_mut(&watch) else {
            return;
        };
        let waited = !reading.waiters.is_empty();
        reading.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        let waits = !reading.waiters.is_empty();
        let lost = matches!(
            waiter.got.lock().take(),
            Some(Ok(_) | Err(Status::NOTIFY_ENUM_DIR))
        );
        let was_idle = !waited && reading.from == end && !reading.lost;
        reading.lost |= lost;
        if waited && !waits {
            reading.from = end;
            state.waiting.remove(&watch);
            state.idle += usize::from(!lost);
        } else if was_idle && lost {
            state.idle -= 1;
        }
        state.hand_over(watch, end);
        state.drop_read();
    }
}

impl State {
    /// Answers requests that wait for such changes, of which the first had the number `from`. The
    /// others have read them.
    fn answer_waiting(&mut self, bits: u32, from: u64) {
        let concerned = self
            .waiting
            .iter()
            .filter(|(_, filter)| **filter & bits != 0);
        let concerned: Vec<u64> = concerned.map(|(watch, _)| *watch).collect();
        for watch in concerned {
            self.hand_over(watch, from);
        }
        self.drop_read();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: u32 = 1;
    const B: u32 = 2;

    fn got(asked: Result<Got, Arc<Waiter>>) -> Option<Got> {
        match asked {
            Ok(got) => Some(got),
            Err(waiter) => waiter.got.lock().take(),
        }
    }

    #[test]
    fn a_change_is_kept_once_for_all_and_dropped_when_all_have_read_it() {
        let budget = Budget::new(1 << 20);
        let feed = Feed::new(&budget).unwrap();
        let all: Vec<u64> = (0..100)
            .map(|_| feed.add(&budget, A, 1000).unwrap())
            .collect();
        let other = feed.add(&budget, B, 1000).unwrap();
        let before = budget.used();
        feed.push(true, A, "dir\\", &[(1, b"name")]);
        assert_eq!(budget.used() - before, 12 + 16 + AROUND);
        for watch in all {
            let records = got(feed.request_changes(watch, 1000)).unwrap().unwrap();
            assert_eq!(records, &*record(1, "dir\\name"));
        }
        assert!(budget.used() > before);
        let waits = feed.request_changes(other, 1000).err().unwrap();
        assert_eq!(budget.used(), before);
        feed.push(true, A, "", &[(1, b"a")]);
        assert!(waits.got.lock().is_none());
        feed.push(true, B, "", &[(1, b"b")]);
        assert_eq!(waits.got.lock().take(), Some(Ok(record(1, "b").into())));
    }

    #[test]
    fn who_has_not_read_what_was_dropped_is_told() {
        let budget = Budget::new(1 << 20);
        let feed = Feed::new(&budget).unwrap();
        let (slow, waits) = (
            feed.add(&budget, A, MOST).unwrap(),
            feed.add(&budget, B, MOST).unwrap(),
        );
        let waiter = feed.request_changes(waits, MOST).err().unwrap();
        for _ in 0..KEPT / AROUND {
            feed.push(true, A, "", &[(1, b"f")]);
        }
        assert!(budget.used() < KEPT + 8 * FIXED);
        assert_eq!(
            got(feed.request_changes(slow, MOST)),
            Some(Err(Status::NOTIFY_ENUM_DIR))
        );
        feed.push(true, B, "", &[(1, b"b")]);
        assert_eq!(waiter.got.lock().take(), Some(Ok(record(1, "b").into())));
        // Without memory, or a path, likewise.
        feed.push(false, A, "", &[(1, b"f")]);
        assert_eq!(
            got(feed.request_changes(slow, MOST)),
            Some(Err(Status::NOTIFY_ENUM_DIR))
        );
        let waiter = feed.request_changes(slow, MOST).err().unwrap();
        feed.lose(B);
        assert!(waiter.got.lock().is_none());
        feed.lose(A);
        assert_eq!(waiter.got.lock().take(), Some(Err(Status::NOTIFY_ENUM_DIR)));
    }

    proptest! {
        /// Each watch reads what it would read of a list of its own, and nothing is kept that all
        /// have read.
        #[test]
        fn watches_read_what_each_would_keep(steps in prop::collection::vec((0usize..6, 0u8..4), 1..80)) {
            let budget = Budget::new(1 << 20);
            let feed = Feed::new(&budget).unwrap();
            let filters = [A, A, B, A | B];
            let numbers = filters.map(|filter| feed.add(&budget, filter, MOST).unwrap());
            let before = budget.used();
            let mut lists: [Vec<String>; 4] = Default::default();
            let mut waiting: [VecDeque<Arc<Waiter>>; 4] = Default::default();
            let mut read = [true; 4];
            let names = |got: Got| -> Vec<String> {
                let (bytes, mut at, mut out) = (got.unwrap(), 0, Vec::new());
                loop {
                    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                    let name = &bytes[at + 12..at + 12 + word(at + 8)];
                    out.push(weir_auth::wire::from_utf16(name).unwrap());
                    match word(at) {
                        0 => return out,
                        next => at += next,
                    }
                }
            };
            for (n, (step, which)) in steps.into_iter().enumerate() {
                let which = usize::from(which);
                match step {
                    0..=2 => {
                        let bits = [A, B, A | B][step];
                        feed.push(true, bits, "", &[(1, n.to_string().as_bytes())]);
                        for (at, filter) in filters.iter().enumerate() {
                            read[at] = !waiting[at].is_empty();
                            if filter & bits == 0 {
                                continue;
                            }
                            match waiting[at].pop_front() {
                                Some(waiter) => {
                                    let got = waiter.got.lock().take().expect("it was answered");
                                    prop_assert_eq!(names(got), [n.to_string()]);
                                }
                                None => lists[at].push(n.to_string()),
                            }
                        }
                    }
                    3 | 4 => {
                        read[which] = true;
                        match feed.request_changes(numbers[which], MOST) {
                            Ok(got) => {
                                prop_assert_eq!(names(got), std::mem::take(&mut lists[which]));
                            }
                            Err(waiter) => {
                                prop_assert!(lists[which].is_empty());
                                waiting[which].push_back(waiter);
                            }
                        }
                    }
                    _ => {
                        if let Some(waiter) = waiting[which].pop_back() {
                            feed.cancel(numbers[which], &waiter);
                        }
                    }
                }
                prop_assert!(read != [true; 4] || budget.used() == before);
            }
            let last = numbers.map(|number| feed.remove(number, Status::NOTIFY_CLEANUP));
            prop_assert_eq!(last, [false, false, false, true]);
            prop_assert!(waiting.iter().flatten().all(|w| w.got.lock().take() == Some(Err(Status::NOTIFY_CLEANUP))));
        }
    }
}

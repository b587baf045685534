//! Contents that a file may have after a crash.
//!
//! Bytes acknowledged as stable must be there. Bytes of a write that is unacknowledged, or
//! acknowledged as UNSTABLE and not committed since, may be there or not, independently of each
//! other (RFC 1813, section 3.3.7: the server may lose uncommitted data, in any order). So a file
//! is its stable bytes and the list of pending writes; what is read after a crash is right when its
//! size is the stable size or a pending write's end beyond it, and each byte is the stable one or
//! that of a pending write. The bytes themselves are random, so that a stale or misplaced page
//! cannot pass for the right one.

use crate::fault::Fault;

#[derive(Clone, Debug)]
struct PendingWrite {
    offset: usize,
    data: Vec<u8>,
}

impl PendingWrite {
    fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

/// A file's stable bytes and pending writes, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Content {
    stable: Vec<u8>,
    pending: Vec<PendingWrite>,
    /// The latest write may be there in part: it was in flight, to a server that does not write
    /// whole.
    torn: bool,
}

fn put(bytes: &mut Vec<u8>, w: &PendingWrite) {
    if w.data.is_empty() {
        return;
    }
    if bytes.len() < w.end() {
        bytes.resize(w.end(), 0);
    }
    if let Some(place) = bytes.get_mut(w.offset..w.end()) {
        place.copy_from_slice(&w.data);
    }
}

impl Content {
    /// Returns the bytes that a client reads while the server runs.
    pub fn view(&self) -> Vec<u8> {
        let mut bytes = self.stable.clone();
        self.pending.iter().for_each(|w| put(&mut bytes, w));
        bytes
    }

    pub fn size(&self) -> usize {
        self.pending
            .iter()
            .map(PendingWrite::end)
            .chain([self.stable.len()])
            .max()
            .unwrap_or(0)
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A write was sent: from now on its bytes may be there.
    pub fn sent(&mut self, offset: u64, data: &[u8]) {
        self.pending.push(PendingWrite {
            offset: offset as usize,
            data: data.to_vec(),
        });
    }

    /// The latest write was in flight at the crash of a server that may do half of one.
    pub fn may_be_torn(&mut self) {
        self.torn = true;
    }

    /// The latest write was acknowledged as stable.
    pub fn settle_last(&mut self) {
        if let Some(w) = self.pending.pop() {
            put(&mut self.stable, &w);
            self.clip(w.offset, w.end());
        }
    }

    /// A COMMIT of this range was acknowledged; `count` 0 means to the end.
    pub fn commit(&mut self, offset: u64, count: u32) {
        let from = offset as usize;
        let to = if count == 0 {
            usize::MAX
        } else {
            from.saturating_add(count as usize)
        };
        for w in &self.pending {
            let (a, b) = (w.offset.max(from), w.end().min(to));
            if a < b {
                let data = w
                    .data
                    .get(a - w.offset..b - w.offset)
                    .unwrap_or_default()
                    .to_vec();
                put(&mut self.stable, &PendingWrite { offset: a, data });
            }
        }
        self.clip(from, to);
    }

    /// The size was set, durably: pending bytes beyond it are gone for good.
    pub fn truncate(&mut self, size: u64) {
        let size = size as usize;
        // Growing: the hole up to the new end is as durable as the size. Pending bytes stay
        // pending.
        self.stable.resize(size, 0);
        self.clip(size, usize::MAX);
    }

    /// Takes the range out of all pending writes.
    fn clip(&mut self, from: usize, to: usize) {
        let old = std::mem::take(&mut self.pending);
        for w in old {
            for (a, b) in [(w.offset, w.end().min(from)), (w.offset.max(to), w.end())] {
                if a < b {
                    let data = w
                        .data
                        .get(a - w.offset..b - w.offset)
                        .unwrap_or_default()
                        .to_vec();
                    self.pending.push(PendingWrite { offset: a, data });
                }
            }
        }
    }

    /// Checks that a crash may leave `found`.
    pub fn admits(&self, found: &[u8]) -> Result<(), Fault> {
        let sizes: Vec<usize> = self
            .pending
            .iter()
            .map(PendingWrite::end)
            .filter(|e| *e > self.stable.len())
            .chain([self.stable.len()])
            .collect();
        let torn = |size: usize| {
            self.torn
                && self
                    .pending
                    .last()
                    .is_some_and(|w| size > self.stable.len().max(w.offset) && size < w.end())
        };
        if !sizes.contains(&found.len()) && !torn(found.len()) {
            return Err(format!(
                "size {}; stable size {}, possible {sizes:?}",
                found.len(),
                self.stable.len()
            ));
        }
        let wrong = |at: usize, byte: u8| {
            byte != self.stable.get(at).copied().unwrap_or(0)
                && !self
                    .pending
                    .iter()
                    .any(|w| at.checked_sub(w.offset).and_then(|i| w.data.get(i)) == Some(&byte))
        };
        let mut bad = found
            .iter()
            .enumerate()
            .filter(|(at, byte)| wrong(*at, **byte))
            .map(|(at, _)| at);
        match bad.next() {
            None => Ok(()),
            Some(first) => {
                let more = bad.clone().count();
                let last = bad.next_back().unwrap_or(first);
                let zeros = found
                    .get(first..=last)
                    .is_some_and(|b| b.iter().all(|x| *x == 0));
                Err(format!(
                    "{} wrong bytes between {first} and {last}{} of {}; {} pending writes",
                    more + 1,
                    if zeros { " (all zero)" } else { "" },
                    found.len(),
                    self.pending.len()
                ))
            }
        }
    }

    /// After a crash: what was found is the state from now on.
    pub fn adopt(&mut self, found: Vec<u8>) {
        self.stable = found;
        self.pending.clear();
        self.torn = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unstable(c: &mut Content, offset: u64, byte: u8, len: usize) {
        c.sent(offset, &vec![byte; len]);
    }

    #[test]
    fn a_stable_write_must_be_there() {
        let mut c = Content::default();
        unstable(&mut c, 0, 1, 10);
        assert!(c.admits(&[]).is_ok());
        assert!(c.admits(&[1; 10]).is_ok());
        c.settle_last();
        assert!(c.admits(&[]).is_err());
        assert!(c.admits(&[1; 10]).is_ok());
        assert!(c.admits(&[0; 10]).is_err());
        assert!(c.admits(&[1; 9]).is_err());
    }

    #[test]
    fn unstable_bytes_may_be_either_until_committed() {
        let mut c = Content::default();
        unstable(&mut c, 0, 1, 10);
        c.settle_last();
        unstable(&mut c, 4, 2, 4);
        unstable(&mut c, 8, 3, 8);
        assert!(c.admits(&[1, 1, 1, 1, 1, 2, 1, 2, 1, 3]).is_ok());
        assert!(c.admits(&[1, 1, 1, 1, 1, 3, 1, 2, 1, 3]).is_err());
        assert!(
            c.admits(&[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 0])
                .is_ok()
        );
        assert!(c.admits(&[1; 12]).is_err(), "no write ends at 12");
        c.commit(4, 4);
        assert!(c.admits(&[1; 10]).is_err());
        assert!(c.admits(&[1, 1, 1, 1, 2, 2, 2, 2, 1, 1]).is_ok());
        c.commit(0, 0);
        assert!(!c.has_pending());
        assert_eq!(c.view(), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn a_stable_write_ends_what_was_pending_below_it() {
        let mut c = Content::default();
        unstable(&mut c, 0, 1, 10);
        unstable(&mut c, 2, 2, 4);
        c.settle_last();
        assert!(c.admits(&[0, 0, 1, 2, 2, 2]).is_err());
        assert!(c.admits(&[0, 0, 2, 2, 2, 2]).is_ok());
        assert!(c.admits(&[1, 0, 2, 2, 2, 2, 0, 0, 0, 1]).is_ok());
    }

    #[test]
    fn a_cut_takes_pending_bytes_with_it() {
        let mut c = Content::default();
        unstable(&mut c, 0, 1, 10);
        c.truncate(5);
        c.truncate(8);
        assert!(c.admits(&[1, 1, 0, 1, 1, 0, 0, 0]).is_ok());
        assert!(c.admits(&[1, 1, 1, 1, 1, 1, 0, 0]).is_err());
        assert!(c.admits(&[1; 5]).is_err());
    }
}

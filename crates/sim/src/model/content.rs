//! Content of a regular file in the reference model: a sparse map of 4 KiB pages, each with the set
//! of older contents that a crash may legitimately bring back.
//!
//! UNSTABLE data may be lost until it is committed (RFC 1813 §3.3.7), so after a crash every page
//! is either what the client last wrote or any content it had since the page was last made stable.
//! The model therefore keeps, for every page, the present content plus those *unsettled*
//! predecessors; a stable write or COMMIT over the page drops them. Truncation applies to the
//! predecessors as well: bytes cut away by an acknowledged SETATTR must never return.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// One content of a page; `None` is a hole and equal to zeros.
pub type Version = Option<Arc<[u8; PAGE as usize]>>;

/// Shared page of zeros, for comparisons with holes.
pub static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// The bytes of a version.
#[must_use]
pub fn bytes(version: &Version) -> &[u8; PAGE as usize] {
    version.as_deref().unwrap_or(&ZEROS)
}

#[derive(Clone, Debug, Default)]
struct Page {
    now: Version,
    unsettled: Vec<Version>,
}

/// Sparse content with crash alternatives.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pages: BTreeMap<u64, Page>,
}

impl Content {
    /// Writes `data` at `offset`. An unstable write leaves the earlier contents possible after a
    /// crash.
    pub fn write(&mut self, offset: u64, data: &[u8], stable: bool) {
        let mut done = 0usize;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let take = (PAGE as usize - within).min(data.len() - done);
            let page = self.pages.entry(index).or_default();
            let mut next = *bytes(&page.now);
            next[within..within + take].copy_from_slice(&data[done..done + take]);
            let before = page.now.replace(Arc::new(next));
            if stable {
                page.unsettled.clear();
            } else {
                page.unsettled.push(before);
            }
            done += take;
        }
    }

    /// Cuts the content to `size` bytes in every version.
    pub fn truncate(&mut self, size: u64) {
        let first_gone = size.div_ceil(PAGE);
        self.pages.split_off(&first_gone);
        if size % PAGE != 0 {
            let keep = (size % PAGE) as usize;
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                let versions = std::iter::once(&mut page.now).chain(&mut page.unsettled);
                for content in versions.flatten() {
                    Arc::make_mut(content)[keep..].fill(0);
                }
            }
        }
    }

    /// Zeroes `[offset, end)` in every version: no older content of it can come back.
    pub fn punch(&mut self, offset: u64, end: u64) {
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        if whole.start < whole.end {
            let mut behind = self.pages.split_off(&whole.start);
            self.pages.append(&mut behind.split_off(&whole.end));
        }
        for index in [offset / PAGE, end / PAGE] {
            let start = index * PAGE;
            let (from, to) = (offset.max(start), end.min(start.saturating_add(PAGE)));
            if from >= to {
                continue;
            }
            if let Some(page) = self.pages.get_mut(&index) {
                let versions = std::iter::once(&mut page.now).chain(&mut page.unsettled);
                for content in versions.flatten() {
                    Arc::make_mut(content)[(from - start) as usize..(to - start) as usize].fill(0);
                }
            }
        }
    }

    /// Returns the current contents of these pages, without holes, with their index in the range.
    #[must_use]
    pub fn range(&self, first: u64, count: u64) -> Vec<(u64, Version)> {
        let pages = self.pages.range(first..first + count);
        let filled = pages.filter(|(_, page)| page.now.is_some());
        filled
            .map(|(index, page)| (index - first, page.now.clone()))
            .collect()
    }

    /// Replaces these pages by contents of a [`Content::range`], stable at once.
    pub fn put_range(&mut self, first: u64, count: u64, contents: Vec<(u64, Version)>) {
        let mut behind = self.pages.split_off(&first);
        self.pages.append(&mut behind.split_off(&(first + count)));
        for (index, now) in contents {
            let unsettled = Vec::new();
            self.pages.insert(first + index, Page { now, unsettled });
        }
    }

    /// Makes everything in `[offset, end)` stable (COMMIT).
    pub fn mark_stable(&mut self, offset: u64, end: u64) {
        if offset >= end {
            return;
        }
        for (_, page) in self.pages.range_mut(offset / PAGE..=(end - 1) / PAGE) {
            page.unsettled.clear();
        }
    }

    /// Returns the bytes of `[offset, offset + len)`, holes as zeros. The caller clips to the file
    /// size.
    #[must_use]
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        if len == 0 {
            return out;
        }
        let end = offset.saturating_add(len as u64);
        for (&index, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
            let start = index * PAGE;
            let (from, to) = (offset.max(start), end.min(start.saturating_add(PAGE)));
            if from < to {
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                    &bytes(&page.now)[(from - start) as usize..(to - start) as usize],
                );
            }
        }
        out
    }

    /// Returns the indexes of the pages that hold, or may hold, something other than a hole.
    pub fn indexes(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Returns the number of pages that were ever written and not cut away.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Returns true if `found`, the page's bytes after a crash (clipped to the file's size), is a
    /// legitimate content.
    #[must_use]
    pub fn admits(&self, index: u64, found: &[u8]) -> bool {
        let Some(page) = self.pages.get(&index) else {
            return found.iter().all(|&b| b == 0);
        };
        std::iter::once(&page.now)
            .chain(page.unsettled.iter())
            .any(|version| &bytes(version)[..found.len()] == found)
    }

    /// Takes the content that the server returned after a crash as the stable one.
    pub fn adopt(&mut self, index: u64, found: &[u8]) {
        let mut content = [0; PAGE as usize];
        content[..found.len()].copy_from_slice(found);
        self.pages.insert(
            index,
            Page {
                now: Some(Arc::new(content)),
                unsettled: Vec::new(),
            },
        );
    }

    /// Returns true if no page has alternatives any more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pages.values().all(|page| page.unsettled.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unstable_pages_keep_their_past_until_settled() {
        let mut content = Content::default();
        content.write(0, b"one", true);
        content.write(0, b"two", false);
        let mut old = [0u8; 4096];
        old[..3].copy_from_slice(b"one");
        assert!(content.admits(0, &old));
        assert_eq!(content.read(0, 3), b"two");
        content.mark_stable(0, 1);
        assert!(!content.admits(0, &old));
    }

    #[test]
    fn truncation_reaches_every_version() {
        let mut content = Content::default();
        content.write(0, b"abcdef", true);
        content.write(0, b"ghijkl", false);
        content.truncate(2);
        let mut old = [0u8; 4096];
        old[..2].copy_from_slice(b"ab");
        assert!(content.admits(0, &old));
        old[..6].copy_from_slice(b"abcdef");
        assert!(!content.admits(0, &old));
        content.truncate(0);
        assert_eq!(content.page_count(), 0);
        assert!(content.admits(0, &[0; 4096]));
    }

    #[test]
    fn reads_cross_pages_and_holes() {
        let mut content = Content::default();
        content.write(4090, &[7; 20], false);
        content.write(3 * 4096, &[9; 1], true);
        let got = content.read(4089, 22);
        assert_eq!(got[0], 0);
        assert!(got[1..21].iter().all(|&b| b == 7));
        assert_eq!(got[21], 0);
        assert_eq!(content.read(3 * 4096 - 1, 3), [0, 9, 0]);
    }
}

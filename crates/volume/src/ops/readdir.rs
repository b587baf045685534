//! Lists directories.
//!
//! Entries are ordered by cookie, and an entry's cookie never changes. So a listing is "entries
//! with cookies above this one", whatever changed in between, and the directory keeps no state for
//! a reader. Entries are collected in portions under the directory's lock, merged from the overlays
//! and the tree. Their attributes are looked up after it is released.

use std::ops::ControlFlow;

use smallvec::SmallVec;
use weir_base::Ino;
use weir_base::limits::engine::READDIR_ENTRIES as MOST;
use weir_store::BlockPtr;
use weir_store::node::Key;
use weir_store::tree;

use crate::format::record::{Dirent, DirentRef, kind};
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::delta::Name;
use crate::overlay::inode::{State, alive_dir, malformed};
use crate::overlay::volume::Volume;
use crate::types::{Attr, DirEntry, FileKind, FsError, ReadDirLimit, ReadDirOut, Stop};

/// Cookie of ".", and of ".." after it.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// The lowest cookie of a real entry.
const FIRST: u64 = 1 << crate::format::hash::DISAMBIGUATOR_BITS;

struct ListedEntry {
    cookie: u64,
    entry: Dirent,
}

impl Volume {
    /// Passes the entries after `cookie` (0: from the start) to `sink`, in order, until it returns
    /// `false`: that entry did not fit and is not counted.
    ///
    /// # Errors
    /// `NotDir`, `BadCookie`, `Stale`, `Io`.
    pub fn readdir(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        cookie: u64,
        limit: ReadDirLimit,
        sink: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<ReadDirOut, Stop> {
        if (DOT_DOT + 1..FIRST).contains(&cookie) || cookie > i64::MAX as u64 {
            return Err(FsError::BadCookie.into());
        }
        let inode = self.inode(cx, dir)?;
        let (entries, mut eof, dir_attr) = {
            let st = inode.state.read();
            alive_dir(&st)?;
            let mut entries = Vec::new();
            let dots = [
                (DOT, &b"."[..], dir),
                (DOT_DOT, &b".."[..], self.parent_of(dir, &st)),
            ];
            for (c, name, ino) in dots {
                if c > cookie {
                    entries.push(ListedEntry {
                        cookie: c,
                        entry: Dirent {
                            ino,
                            kind: FileKind::Directory,
                            name: name.into(),
                        },
                    });
                }
            }
            entries.truncate(limit.entries.max(1));
            // The dot entries may already reach the limit.
            let eof = entries.len() < limit.entries.max(1)
                && self.collect(cx, dir, &st, cookie.max(FIRST - 1), limit, &mut entries)?;
            (entries, eof, self.attr_of(dir, &st))
        };
        let mut attrs: Vec<Option<Attr>> = Vec::new();
        if limit.attrs {
            attrs = self.attrs_of(cx, &entries)?;
        }
        for (i, c) in entries.iter().enumerate() {
            let taken = sink(&DirEntry {
                cookie: c.cookie,
                name: &c.entry.name,
                ino: c.entry.ino,
                kind: c.entry.kind,
                attr: attrs.get(i).copied().flatten(),
            });
            if !taken {
                eof = false;
                break;
            }
        }
        Ok(ReadDirOut {
            eof,
            dir: dir_attr,
            verifier: [0; 8],
        })
    }

    /// Collects entries with cookies above `after`. Returns true if these are all. Once it has some
    /// entries, it returns early rather than requesting a block.
    fn collect(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        after: u64,
        limit: ReadDirLimit,
        out: &mut Vec<ListedEntry>,
    ) -> Result<bool, Stop> {
        let mut room = limit.bytes;
        let most = limit.entries.clamp(1, MOST);
        let mut from = after;
        loop {
            // Saturates: the limit may be reached.
            let want = most.saturating_sub(out.len());
            let mut tree_part: Vec<ListedEntry> = Vec::new();
            let exhausted = match self.tree_entries(cx, dir, st, from, want, room, &mut tree_part) {
                Ok(exhausted) => exhausted,
                Err(Stop::Fetch(_)) if !out.is_empty() || !tree_part.is_empty() => {
                    // The entries collected before the missing leaf are complete up to the last
                    // cookie.
                    if tree_part.is_empty() {
                        return Ok(false);
                    }
                    false
                }
                Err(stop) => return Err(stop),
            };
            // Up to here the tree's part is known; the overlays are merged in.
            let upto = match tree_part.last() {
                Some(last) if !exhausted => last.cookie,
                _ => u64::MAX,
            };
            let mut base = tree_part.into_iter().peekable();
            let mut over = OverlayEntries::new(st, from, upto);
            loop {
                let next = match (base.peek().map(|c| c.cookie), over.peek()) {
                    (None, None) => break,
                    (Some(b), Some(o)) if b < o => base.next(),
                    (Some(b), Some(o)) if b == o => {
                        base.next();
                        over.next()
                    }
                    (Some(_), None) => base.next(),
                    (_, Some(_)) => over.next(),
                };
                let Some(next) = next else { continue };
                let bytes = next.entry.name.len() + 24;
                if out.len() >= most || (bytes > room && !out.is_empty()) {
                    return Ok(false);
                }
                // Saturates: the first entry is returned whatever its size.
                room = room.saturating_sub(bytes);
                out.push(next);
            }
            if upto == u64::MAX {
                return Ok(true);
            }
            from = upto;
            if out.len() >= most || room == 0 {
                return Ok(false);
            }
        }
    }

    /// Collects entries of the committed tree with cookies above `from`. Returns true if there are
    /// no more.
    #[expect(clippy::too_many_arguments)]
    fn tree_entries(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        from: u64,
        want: usize,
        room: usize,
        out: &mut Vec<ListedEntry>,
    ) -> Result<bool, Stop> {
        if st.layers().any(|d| d.new) {
            return Ok(true);
        }
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let mut bad = false;
        let mut bytes = 0;
        let mut full = false;
        tree::scan(
            &src,
            &root.root,
            // Saturates: the cookie comes from a client.
            Key::new(dir.0, kind::DIRENT, from.saturating_add(1)),
            Key::new(dir.0, kind::DIRENT, u64::MAX),
            &mut |key, value| {
                // One entry more than requested, so that the end is noticed.
                if out.len() > want || bytes > room {
                    full = true;
                    return ControlFlow::Break(());
                }
                match DirentRef::decode(value) {
                    Some(entry) => {
                        bytes += entry.name.len() + 24;
                        out.push(ListedEntry {
                            cookie: key.sub,
                            entry: entry.to_owned(),
                        });
                        ControlFlow::Continue(())
                    }
                    None => {
                        bad = true;
                        ControlFlow::Break(())
                    }
                }
            },
        )
        .map_err(|s| self.stop(cx, &root, s))?;
        if bad {
            return Err(malformed(self.id, dir, "directory entry"));
        }
        Ok(!full)
    }

    /// Returns the attributes of the entries' inodes. All blocks to be read for them are requested
    /// at once; entries that vanished meanwhile have none.
    fn attrs_of(
        &self,
        cx: &mut EngineContext,
        entries: &[ListedEntry],
    ) -> Result<Vec<Option<Attr>>, Stop> {
        let mut missing: SmallVec<[BlockPtr; 4]> = SmallVec::new();
        let mut attrs = Vec::with_capacity(entries.len());
        for c in entries.iter() {
            attrs.push(match self.inode(cx, c.entry.ino) {
                Ok(inode) => {
                    let st = inode.state.read();
                    (!st.dead).then(|| self.attr_of(c.entry.ino, &st))
                }
                Err(Stop::Fetch(ptrs)) => {
                    if missing.len() < 256 {
                        for ptr in ptrs {
                            if !missing.contains(&ptr) {
                                missing.push(ptr);
                            }
                        }
                    }
                    None
                }
                // A damaged inode costs its attributes, not the listing.
                Err(Stop::Fail(_)) => None,
                Err(stop) => return Err(stop),
            });
        }
        if missing.is_empty() {
            Ok(attrs)
        } else {
            Err(Stop::Fetch(missing))
        }
    }
}

/// The overlays' entries in a range, merged; `None` for a removed one.
struct OverlayEntries<'a> {
    /// One iterator for each layer, the newest first.
    layers: SmallVec<[std::iter::Peekable<EntryRange<'a>>; 2]>,
}

type EntryRange<'a> = Box<dyn Iterator<Item = (u64, &'a Name)> + 'a>;

impl<'a> OverlayEntries<'a> {
    /// Creates an iterator over entries with cookies above `from` up to `upto`.
    fn new(st: &'a State, from: u64, upto: u64) -> Self {
        let mut layers = SmallVec::new();
        if from < upto {
            for delta in st.layers() {
                let range = delta.names().range(from + 1..=upto).map(|(c, e)| (*c, e));
                layers.push((Box::new(range) as EntryRange<'a>).peekable());
            }
        }
        OverlayEntries { layers }
    }

    fn peek(&mut self) -> Option<u64> {
        self.layers
            .iter_mut()
            .filter_map(|layer| layer.peek().map(|(cookie, _)| *cookie))
            .min()
    }

    /// Returns the next entry; `None` for a removal.
    fn next(&mut self) -> Option<ListedEntry> {
        let at = self.peek()?;
        let mut newest = None;
        for layer in &mut self.layers {
            let found = layer.next_if(|(c, _)| *c == at);
            newest = newest.or(found);
        }
        let (cookie, entry) = newest?;
        let entry = entry.entry().cloned();
        entry.map(|entry| ListedEntry { cookie, entry })
    }
}

//! Finds a name in a directory, or a free cookie for one: by the hash of the folded name, in the
//! overlays and in the tree.

use std::ops::ControlFlow;

use weir_base::Ino;
use weir_store::node::Key;
use weir_store::tree;

use crate::format::fold::fold;
use crate::format::hash::{VARIANTS, first_cookie};
use crate::format::record::{DirentRef, kind};
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::inode::{State, malformed};
use crate::overlay::volume::Volume;
use crate::types::{FileKind, FsError, Stop};

/// A directory entry found for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    pub(crate) cookie: u64,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
}

/// A free cookie for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Free {
    pub(crate) cookie: u64,
    /// True if neither overlays nor the tree mention the cookie.
    pub(crate) bare: bool,
}

/// Result of a search for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Search {
    Hit(Hit),
    /// Absent, with a free cookie for the name, if there is one.
    Miss(Option<Free>),
}

impl Search {
    /// Returns the entry, if there is one.
    pub(crate) fn hit(self) -> Option<Hit> {
        match self {
            Search::Hit(hit) => Some(hit),
            Search::Miss(_) => None,
        }
    }

    /// Returns the result of a search in a directory whose change number was `then`, if that is
    /// still current: every change of a directory's entries raises it.
    pub(crate) fn still(self, then: u64, st: &State) -> Option<Search> {
        (st.rec.change == then).then_some(self)
    }
}

/// Checks that a directory can contain this name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Stop> {
    if name.len() > weir_base::limits::MAX_NAME {
        return Err(Stop::Fail(FsError::NameTooLong));
    }
    if name.is_empty() || name.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Stop::Fail(FsError::Invalid));
    }
    Ok(())
}

/// Returns true for "." and "..", which cannot be created or removed.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Bit sets over the disambiguators of one hash: those decided by an upper layer, and those taken
/// by another name.
#[derive(Default)]
struct VariantSets {
    decided: Variants,
    taken: Variants,
}

impl Volume {
    /// Searches for a name in a directory, whose lock the caller holds.
    pub(crate) fn find(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<Search, Stop> {
        let first = first_cookie(self.key.get(), name);
        let mut found = None;
        let seen = self.variants(cx, dir, st, first, |hit, stored| {
            match stored == name {
                true => found = Some(hit),
                false => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        })?;
        Ok(match found {
            Some(hit) => Search::Hit(hit),
            None => Search::Miss(free_place(first, &seen.taken, &seen.decided)),
        })
    }

    /// Searches for a name in any case in a directory, whose lock the caller holds, and returns its
    /// stored form. The exact name has priority; of several others, the one with the lowest cookie,
    /// so that the result does not vary.
    pub(crate) fn find_folded(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<Option<Box<[u8]>>, Stop> {
        let (key, folded) = (self.key.get(), fold(name));
        let mut best: Option<(u64, Box<[u8]>)> = None;
        self.variants(cx, dir, st, first_cookie(key, name), |hit, stored| {
            if stored == name {
                best = Some((hit.cookie, stored.into()));
                return ControlFlow::Break(());
            }
            // Unrelated names may have the same hash.
            if best.as_ref().is_none_or(|(cookie, _)| hit.cookie < *cookie)
                && fold(stored) == folded
            {
                best = Some((hit.cookie, stored.into()));
            }
            ControlFlow::Continue(())
        })?;
        Ok(best.map(|(_, name)| name))
    }

    /// Passes the entries of a directory, whose lock the caller holds, with the hash of the cookie
    /// `first` to `visit`, in no order, until it breaks off. `VariantSets` is complete only if it
    /// did not.
    #[inline]
    fn variants(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        st: &State,
        first: u64,
        mut visit: impl FnMut(Hit, &[u8]) -> ControlFlow<()>,
    ) -> Result<VariantSets, Stop> {
        let last = first | (VARIANTS - 1);
        let mut seen = VariantSets::default();
        let VariantSets { decided, taken } = &mut seen;
        let bit = |cookie: u64| {
            let at = cookie % VARIANTS;
            ((at / 64) as usize, 1u64 << (at % 64))
        };
        for delta in st.layers() {
            let before = *decided;
            for (cookie, entry) in delta.names().range(first..=last) {
                let (word, mask) = bit(*cookie);
                if before.get(word).is_some_and(|w| w & mask != 0) {
                    continue;
                }
                if let Some(w) = decided.get_mut(word) {
                    *w |= mask;
                }
                if let Some(entry) = entry.entry() {
                    let hit = Hit {
                        cookie: *cookie,
                        ino: entry.ino,
                        kind: entry.kind,
                    };
                    if visit(hit, &entry.name).is_break() {
                        return Ok(seen);
                    }
                    if let Some(w) = taken.get_mut(word) {
                        *w |= mask;
                    }
                }
            }
            if delta.new {
                return Ok(seen);
            }
        }
        let mut bad = false;
        let mut done = false;
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        tree::scan(
            &src,
            &root.root,
            Key::new(dir.0, kind::DIRENT, first),
            Key::new(dir.0, kind::DIRENT, last),
            &mut |key, value| {
                let (word, mask) = bit(key.sub);
                if decided.get(word).is_some_and(|w| w & mask != 0) {
                    return ControlFlow::Continue(());
                }
                let Some(entry) = DirentRef::decode(value) else {
                    bad = true;
                    return ControlFlow::Continue(());
                };
                let hit = Hit {
                    cookie: key.sub,
                    ino: entry.ino,
                    kind: entry.kind,
                };
                if visit(hit, entry.name).is_break() {
                    done = true;
                    return ControlFlow::Break(());
                }
                if let Some(w) = taken.get_mut(word) {
                    *w |= mask;
                }
                ControlFlow::Continue(())
            },
        )
        .map_err(|s| self.stop(cx, &root, s))?;
        match bad && !done {
            true => Err(malformed(self.id, dir, "directory entry")),
            false => Ok(seen),
        }
    }
}

/// A bit for each name with one hash.
type Variants = [u64; VARIANTS as usize / 64];

/// Returns the lowest cookie that is not taken. It is bare unless an overlay has decided about it:
/// then a lower layer may still have the hidden entry.
fn free_place(first: u64, taken: &Variants, decided: &Variants) -> Option<Free> {
    taken
        .iter()
        .zip(decided)
        .enumerate()
        .find(|(_, (taken, _))| **taken != u64::MAX)
        .map(|(i, (taken, decided))| Free {
            cookie: first | (i as u64 * 64 + u64::from(taken.trailing_ones())),
            bare: decided >> taken.trailing_ones() & 1 == 0,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_disambiguator() {
        const FIRST: u64 = 1 << 16;
        let bits = |low: u64, next: u64| {
            let mut all: Variants = [0; _];
            [all[0], all[1]] = [low, next];
            all
        };
        let place = |taken: Variants, decided: Variants| {
            free_place(FIRST, &taken, &decided).map(|f| (f.cookie - FIRST, f.bare))
        };
        let none = bits(0, 0);
        assert_eq!(place(none, none), Some((0, true)));
        assert_eq!(place(none, bits(1, 0)), Some((0, false)));
        assert_eq!(place(bits(0b1011, 0), bits(0b1011, 0)), Some((2, true)));
        assert_eq!(place(bits(0b1011, 0), bits(0b100, 0)), Some((2, false)));
        assert_eq!(place(bits(u64::MAX, 1), bits(0, 2)), Some((65, false)));
        assert_eq!(place([u64::MAX; _], none), None);
    }
}

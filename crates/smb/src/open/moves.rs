//! Paths of opens when a directory above them is renamed.
//!
//! An open remembers the path that it was opened by ([`crate::open::session::OpenName`]): its
//! client queries it, takes a durable open over by it, and a record contains it. Clients of macOS
//! and those with POSIX extensions may rename a directory with open files below. That changes the
//! path of each of these opens. An operation that looks up a path and stores it later (CREATE, a
//! rename) notes the number of renames at the look-up, and applies the later ones when it stores
//! the path. Both happen under one lock, which CREATEs share. Renames over NFS are not followed.

use crate::proto::names::below;
use std::collections::VecDeque;
use weir_base::VolumeId;

/// Renames that a path is compared with as it is remembered: of the longest time between the two.
pub(crate) const REMEMBERED: usize = 16;

/// A rename of a directory.
pub(crate) struct Move {
    pub(crate) volume: VolumeId,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The last renames of directories.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) count: u64,
    pub(crate) last: VecDeque<Move>,
}

impl Moves {
    /// Renames so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Changes a path that was looked up after `seen` renames to what it is now.
    pub fn follow(&self, seen: u64, volume: VolumeId, path: &mut String) {
        let since = usize::try_from(self.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let known = self.last.len().saturating_sub(since);
        for moved in self.last.iter().skip(known) {
            if moved.volume == volume
                && let Some(rest) = below(path, &moved.from)
            {
                *path = format!("{}{rest}", moved.to);
            }
        }
    }

    /// Takes note of a rename.
    pub(crate) fn add(&mut self, moved: Move) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(moved);
        self.count += 1;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_renames_since_it_was_looked_up() {
        let mut moves = Moves::default();
        let volume = VolumeId(1);
        let mut add = |from: &str, to: &str| {
            moves.add(Move {
                volume,
                from: from.into(),
                to: to.into(),
            });
        };
        add("a", "b");
        add("b\\c", "d");
        add("ab", "x");
        let followed = |seen, volume, path: &str| {
            let mut path = path.to_owned();
            moves.follow(seen, volume, &mut path);
            path
        };
        assert_eq!(followed(0, volume, "a\\c\\f"), "d\\f");
        assert_eq!(followed(0, volume, "a:s"), "b:s");
        assert_eq!(followed(1, volume, "a\\c\\f"), "a\\c\\f");
        assert_eq!(followed(2, volume, "abc\\f"), "abc\\f");
        assert_eq!(followed(0, VolumeId(2), "a\\f"), "a\\f");
    }
}

//! Paths of opens, when a directory above them gets another name.
//!
//! An open remembers the path that it was opened by ([`crate::session::Named`]): its client asks for it, comes back to a durable open
//! by it, and a record has it. A rename of a directory, which clients of macOS and those with POSIX extensions may do with open files
//! below, changes the path of each of these opens. What looks a path up and remembers it later (CREATE, a rename) notes how many
//! renames there were; what has been renamed since, its path follows as it is remembered. Both happen under one lock, which a
//! CREATE shares with others. Renames over NFS are not followed.

use crate::service::Service;
use crate::session::{Named, Open};
use std::collections::VecDeque;
use std::sync::Arc;
use weir_base::VolumeId;

/// Renames that a path is compared with as it is remembered: of the longest time between the two.
const REMEMBERED: usize = 16;

/// A rename of a directory.
struct Move {
    volume: VolumeId,
    from: String,
    to: String,
}

/// The last renames of directories.
#[derive(Default)]
pub(crate) struct Moves {
    count: u64,
    last: VecDeque<Move>,
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
    fn add(&mut self, moved: Move) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(moved);
        self.count += 1;
    }
}

/// The rest of a path below a directory, with the separator; of a stream of the directory likewise.
pub(crate) fn below<'p>(path: &'p str, dir: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(dir)?;
    rest.starts_with(['\\', ':']).then_some(rest)
}

impl Service {
    /// Every open of a volume below a directory that has been renamed, or of the directory, with a session or without.
    fn opens_under(&self, volume: VolumeId, dir: &str) -> Vec<Arc<Open>> {
        let under = |open: &Open| open.is_below(volume, dir) || open.is_at(volume, dir);
        let mut out = self.leases.durables.all(under);
        for session in self.all_sessions() {
            out.extend(session.opens(under));
        }
        out
    }

    /// Returns false if the record of a persistent open below a directory has no room for a longer path.
    pub(crate) fn may_move(&self, volume: VolumeId, from: &str, to: &str) -> bool {
        let fits = |open: &Arc<Open>| {
            let (Some(persistent), Some(file)) = (open.persistent.get(), open.file()) else {
                return true;
            };
            let locks = file.locks.lock().len();
            let named = file.named.lock().clone();
            let path = match below(&named.path, from) {
                Some(rest) => format!("{to}{rest}"),
                None => return true,
            };
            persistent.has_room(&Named { path, ..named }, locks)
        };
        self.opens_under(volume, from).iter().all(fits)
    }

    /// Gives an open directory, and all opens below it, the path that it has after a rename that was decided after `seen` renames.
    /// Returns the persistent opens whose record is to change.
    pub(crate) fn moved(
        &self,
        volume: VolumeId,
        dir: &Open,
        mut new: Named,
        seen: u64,
    ) -> Vec<Arc<Open>> {
        let Some(file) = dir.file() else {
            return Vec::new();
        };
        let mut moves = self.moves.write();
        moves.follow(seen, volume, &mut new.path);
        let from = file.named.lock().path.clone();
        let mut persistent = Vec::new();
        for open in self.opens_under(volume, &from) {
            let Some(other) = open.file() else {
                continue;
            };
            let mut named = other.named.lock();
            match below(&named.path, &from) {
                Some(rest) => named.path = format!("{}{rest}", new.path),
                None if other.id == file.id => *named = new.clone(),
                None => {}
            }
            drop(named);
            if open.persistent.get().is_some() {
                persistent.push(open);
            }
        }
        // Also if it was closed meanwhile.
        file.named.lock().clone_from(&new);
        moves.add(Move {
            volume,
            from,
            to: new.path,
        });
        persistent
    }
}

#[cfg(test)]
mod tests {
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

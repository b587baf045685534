//! Renames of directories, and the opens below them. See [`crate::open::moves`].

use crate::conn::server::Service;
use crate::open::moves::Move;
use crate::open::session::{Open, OpenName};
use crate::proto::names::below;
use std::sync::Arc;
use weir_base::VolumeId;

impl Service {
    /// Every open of a volume below a directory that has been renamed, or of the directory, with a
    /// session or without.
    fn opens_under(&self, volume: VolumeId, dir: &str) -> Vec<Arc<Open>> {
        let under = |open: &Open| open.is_below(volume, dir) || open.is_at(volume, dir);
        let mut out = self.leases.durables.select_opens(under);
        for session in self.all_sessions() {
            out.extend(session.opens(under));
        }
        out
    }

    /// Returns false if the record of a persistent open below a directory has no room for a longer
    /// path.
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
            persistent.has_room(&OpenName { path, ..named }, locks)
        };
        self.opens_under(volume, from).iter().all(fits)
    }

    /// Gives an open directory, and all opens below it, the path that it has after a rename that
    /// was decided after `seen` renames. Returns the persistent opens whose record is to change.
    pub(crate) fn moved(
        &self,
        volume: VolumeId,
        dir: &Open,
        mut new: OpenName,
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

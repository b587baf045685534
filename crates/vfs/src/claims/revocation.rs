//! Revocation of claims whose holders answer: their volume is gone, or has become something else.

use super::types::{CacheRights, Notice};
use super::{Claims, Effects};
use crate::handle::FileId;
use weir_base::VolumeId;

impl Claims {
    /// Ends all that clients have in the files of a volume, and what they wait for there. The
    /// volume was deleted, or what is in it is no longer what they opened. Each holder's service is
    /// notified ([`Notice::Lost`]). Costs a pass over all files with claims, a part of them under a
    /// lock at a time.
    pub fn revoke(&self, volume: VolumeId) {
        for file in self.files_of(volume) {
            self.in_shard(file, |shard, effects| {
                let holders = shard
                    .get(&file)
                    .map_or_else(Vec::new, |f| f.holders_of(|_| true));
                if let Some(f) = shard.get_mut(&file) {
                    self.end_doomed(f, file);
                }
                for holder in &holders {
                    let owner = holder.owner.clone();
                    effects.notices.push(Notice::Lost { file, owner });
                    self.strip(shard, file, holder, effects);
                }
                for holder in &holders {
                    self.leave(shard, file, holder);
                }
                // If nobody had it open any more.
                self.leave_empty(shard, file);
            });
        }
    }

    /// Ends all that clients cache of a volume: its content was replaced without their being asked.
    /// Opens and ranges stay.
    pub fn revoke_caches(&self, volume: VolumeId) {
        for file in self.files_of(volume) {
            self.in_shard(file, |shard, effects| self.end_caches(shard, file, effects));
        }
    }

    fn end_caches(&self, shard: &mut super::Shard, file: FileId, effects: &mut Effects) {
        let holders = shard.get(&file).map_or_else(Vec::new, |f| {
            let mut all = f.holders_of(|_| true);
            all.retain(|h| f.more().is_some_and(|m| m.grants.get(h.id).is_some()));
            all
        });
        for holder in &holders {
            let owner = holder.owner.clone();
            effects.notices.push(Notice::Revoked { file, owner });
            self.reduce(shard, file, holder, CacheRights::NONE);
            self.leave(shard, file, holder);
        }
    }

    /// Returns the files of a volume in which anything is claimed.
    fn files_of(&self, volume: VolumeId) -> Vec<FileId> {
        let mut files = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            files.extend(shard.keys().filter(|f| f.volume == volume));
        }
        files
    }
}

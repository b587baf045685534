//! Checks the usage of owners in one tree.

use std::fmt;

use weir_base::VolumeId;
use weir_store::node::Key;

use crate::format::record::InodeRec;
use crate::format::usage::{self, Owners, Usages};
use crate::types::{QuotaId, QuotaKind, QuotaUsage};

/// Usage in a tree: as its inodes have it, and as it is recorded.
#[derive(Default)]
pub(super) struct Counts {
    found: Usages,
    recorded: Usages,
    /// True if all inodes are recorded.
    counted: bool,
}

impl Counts {
    /// Notes an inode, if its record could be decoded. Returns it.
    pub(super) fn inode(&mut self, rec: Option<InodeRec>) -> Option<InodeRec> {
        if let Some(rec) = &rec {
            let counted = usage::of_inode(rec.blocks);
            usage::add(&mut self.found, Owners::from_record(rec), counted);
        }
        rec
    }

    /// Notes a record. Returns false if it is malformed.
    pub(super) fn record(&mut self, key: &Key, value: &[u8]) -> bool {
        if *key == usage::COUNTED {
            self.counted = true;
            return value == [usage::VERSION];
        }
        match (usage::id_of(key), usage::decode(value)) {
            (Some(id), Some(usage)) => {
                self.recorded.insert(id, usage);
                true
            }
            _ => false,
        }
    }

    /// Returns the owners whose usage is recorded wrongly. A tree in which not all inodes are
    /// recorded has none. `live`: it is the volume's own, and not a snapshot's.
    pub(super) fn wrong(&self, volume: VolumeId, live: bool) -> Vec<WrongUsage> {
        if !self.counted {
            return Vec::new();
        }
        let mut ids: Vec<_> = self.found.keys().chain(self.recorded.keys()).collect();
        ids.sort_unstable();
        ids.dedup();
        let of = |usages: &Usages, id: &QuotaId| usages.get(id).copied().unwrap_or_default();
        let usage = |id: &QuotaId| WrongUsage {
            volume,
            live,
            id: *id,
            recorded: of(&self.recorded, id),
            found: of(&self.found, id),
        };
        let all = ids.into_iter().map(usage);
        all.filter(|usage| usage.found != usage.recorded).collect()
    }
}

/// Wrongly recorded usage of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongUsage {
    /// The volume whose tree has the record.
    pub volume: VolumeId,
    /// True for the volume's own tree, false for a snapshot's.
    pub live: bool,
    /// The owner.
    pub id: QuotaId,
    /// Recorded usage.
    pub recorded: QuotaUsage,
    /// Usage of the inodes that the walk of the tree found.
    pub found: QuotaUsage,
}

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = if self.live { "" } else { " in a snapshot" };
        let who = match self.id.kind {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Tree => "tree",
        };
        let (recorded, found) = (self.recorded, self.found);
        write!(
            f,
            "volume {}: usage of {who} {}{tree} is recorded as {} blocks and {} inodes, and is {} and {}",
            self.volume, self.id.id, recorded.blocks, recorded.files, found.blocks, found.files
        )
    }
}

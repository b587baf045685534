//! Owners that have something in a file.

use super::tree::HolderId;
use crate::claims::types::Owner;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_base::invariant;

/// An owner that has something in the file. Shared by the indexes of the file; the counts change
/// under the shard's lock only.
pub(in crate::claims) struct Holder {
    pub(in crate::claims) owner: Owner,
    pub(in crate::claims) id: HolderId,
    /// Ranges, waiting requests, open and grant.
    uses: AtomicU32,
    /// Waiting requests among them.
    waits: AtomicU32,
}

impl Holder {
    /// Creates an owner's entry that has nothing yet.
    pub(super) fn new(owner: Owner, id: HolderId) -> Holder {
        Holder {
            owner,
            id,
            uses: AtomicU32::new(0),
            waits: AtomicU32::new(0),
        }
    }

    pub(in crate::claims) fn count(&self, waits: bool, by: i64) {
        let add = |n: &AtomicU32| {
            let new = i64::from(n.load(Ordering::Relaxed)) + by;
            if !invariant!(new >= 0, "an owner's count below zero") {
                return;
            }
            n.store(u32::try_from(new).unwrap_or(u32::MAX), Ordering::Relaxed);
        };
        add(&self.uses);
        if waits {
            add(&self.waits);
        }
    }

    pub(in crate::claims) fn idle(&self) -> bool {
        self.uses.load(Ordering::Relaxed) == 0
    }

    pub(in crate::claims) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed) > 0
    }
}

/// A holder, found by its owner.
pub(super) struct ByOwner(pub(super) Arc<Holder>);

impl Borrow<Owner> for ByOwner {
    fn borrow(&self) -> &Owner {
        &self.0.owner
    }
}

impl Hash for ByOwner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.owner.hash(state);
    }
}

impl PartialEq for ByOwner {
    fn eq(&self, other: &ByOwner) -> bool {
        self.0.owner == other.0.owner
    }
}

impl Eq for ByOwner {}

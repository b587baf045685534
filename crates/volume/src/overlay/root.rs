//! A committed tree, and how long its blocks are kept.

use std::sync::{Arc, OnceLock};

use weir_store::RootPin;
use weir_store::tree::TreeRoot;

/// A committed tree. While it is held, none of its blocks is reused.
///
/// As long as it is the root of its volume or snapshot nothing that it refers to is freed. When it
/// no longer is, the root that replaces it gives it the pin ([`weir_store::RootPin`]) of the last
/// checkpoint that had it, and from then on that pin keeps the blocks. So a volume that is
/// not changed keeps nothing.
pub(crate) struct RootState {
    pub(crate) root: TreeRoot,
    life: OnceLock<Arc<RootPin>>,
}

impl RootState {
    pub(crate) fn new(root: TreeRoot) -> Arc<RootState> {
        Arc::new(RootState {
            root,
            life: OnceLock::new(),
        })
    }

    /// It is about to be replaced; `life` is the pin of the last checkpoint that had it.
    /// Before blocks that only it refers to can be reused.
    pub(crate) fn supersede(&self, life: Arc<RootPin>) {
        // The first is the one: a root is superseded once.
        let _ = self.life.set(life);
    }
}

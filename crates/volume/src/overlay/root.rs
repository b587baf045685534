//! A committed tree, and the lifetime of its blocks.

use std::sync::{Arc, OnceLock};

use weir_store::RootPin;
use weir_store::tree::TreeRoot;

/// A committed tree. While it is held, none of its blocks is reused.
///
/// As long as it is the root of its volume or snapshot none of its blocks is freed. When it is
/// replaced, it gets the pin ([`weir_store::RootPin`]) of the last checkpoint that had it, which
/// keeps the blocks from then on. So an unchanged volume pins nothing.
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

    /// Notes that it is about to be replaced; `life` is the pin of the last checkpoint that had it.
    /// Call it before blocks that only it refers to can be reused.
    pub(crate) fn supersede(&self, life: Arc<RootPin>) {
        // A root is superseded once.
        let _ = self.life.set(life);
    }
}

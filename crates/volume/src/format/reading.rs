//! Reads a tree with a source that blocks: for checkpoints, the start, and tools.

use std::ops::ControlFlow;

use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::{self, NodeSource, TreeRoot};

/// Returns the next key in order.
pub(crate) fn after(key: Key) -> Key {
    match key.sub.checked_add(1) {
        Some(sub) => Key { sub, ..key },
        // Saturates: there is no such kind.
        None => Key::new(key.ino, key.kind.saturating_add(1), 0),
    }
}

/// Converts a stop of a source that blocks, which never requests a repetition, into an error.
pub(crate) fn blocking(stop: tree::Stop) -> StoreError {
    match stop {
        tree::Stop::Fail(e) => e,
        tree::Stop::Fetch(_) => StoreError::Format("a blocking read requested a retry".into()),
        tree::Stop::Wait(_) => StoreError::NoMemory,
    }
}

pub(crate) fn get(
    src: &impl NodeSource,
    root: &TreeRoot,
    key: &Key,
) -> Result<Option<tree::Value>, StoreError> {
    tree::get(src, root, key).map_err(blocking)
}

pub(crate) fn scan(
    src: &impl NodeSource,
    root: &TreeRoot,
    from: Key,
    to: Key,
    each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    tree::scan(src, root, from, to, each).map_err(blocking)
}

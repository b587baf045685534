//! Changes of a checkpoint to the aggregate's own tree.

use std::collections::BTreeMap;

use weir_base::VolumeId;
use weir_store::node::Key;
use weir_store::tree::Edit;

use crate::format::catalog::Job;

/// The edits of the aggregate's tree; the last one for a key counts.
#[derive(Default)]
pub(crate) struct Edits(BTreeMap<Key, Edit>);

impl Edits {
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.0.insert(key, Edit::Put(key, value));
    }

    /// Returns the edits in the order of their keys.
    pub(crate) fn into_sorted(self) -> impl Iterator<Item = Edit> {
        self.0.into_values()
    }

    pub(crate) fn del(&mut self, key: Key) {
        self.0.insert(key, Edit::Del(key));
    }
}

/// Adds the edit for a volume's job to those of the aggregate's tree.
pub(crate) fn put_job(edits: &mut Edits, id: VolumeId, number: u64, job: Option<&Job>) {
    match job {
        Some(job) => edits.put(Job::key(id, number), job.encode()),
        None => edits.del(Job::key(id, number)),
    }
}

//! What a checkpoint changes in the aggregate's own tree.

use std::collections::BTreeMap;

use weir_base::VolumeId;
use weir_store::node::Key;
use weir_store::tree::Edit;

use crate::format::catalog::Job;

/// The edits of the aggregate's tree; of several for one key the last one counts.
#[derive(Default)]
pub(crate) struct Edits(BTreeMap<Key, Edit>);

impl Edits {
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.0.insert(key, Edit::Put(key, value));
    }

    /// Edits in the order of their keys.
    pub(crate) fn into_sorted(self) -> impl Iterator<Item = Edit> {
        self.0.into_values()
    }

    pub(crate) fn del(&mut self, key: Key) {
        self.0.insert(key, Edit::Del(key));
    }
}

/// A job of a volume, for the aggregate's tree.
pub(crate) fn put_job(edits: &mut Edits, id: VolumeId, number: u64, job: Option<&Job>) {
    match job {
        Some(job) => edits.put(Job::key(id, number), job.encode()),
        None => edits.del(Job::key(id, number)),
    }
}

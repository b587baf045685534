//! The usage of owners: changed with the inodes that are merged ([`crate::format::usage`]).

use weir_base::Ino;
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::{Edit, NodeSource, TreeRoot};

use super::{Merge, damaged};
use crate::format::reading::get;
use crate::format::record::{InodeRec, kind};
use crate::format::usage::{self, Owners};
use crate::types::QuotaUsage;

impl<S: NodeSource> Merge<'_, S> {
    /// Adds a change of what an inode counts for its owners.
    pub(super) fn count_inode(&mut self, owners: Owners, change: QuotaUsage) {
        if self.vol.core.counts_usage() {
            usage::add(&mut self.usage, owners, change);
        }
    }

    /// Counts the end of an unlinked inode whose records are all in the old tree. One whose
    /// deletion is being continued was counted before.
    pub(super) fn count_ended(&mut self, ino: Ino) -> Result<(), StoreError> {
        if !self.vol.core.counts_usage() {
            return Ok(());
        }
        if let Some(rec) = self.stored_inode(ino)? {
            let gone = usage::of_inode(rec.blocks).negated();
            usage::add(&mut self.usage, Owners::from_record(&rec), gone);
            usage::add(&mut self.ended, Owners::from_record(&rec), gone);
        }
        Ok(())
    }

    /// Counts a received record, if it is an inode's.
    pub(super) fn count_record(&mut self, edit: &Edit) -> Result<(), StoreError> {
        let key = edit.key();
        if key.kind != kind::INODE || !self.vol.core.counts_usage() {
            return Ok(());
        }
        if let Some(rec) = self.stored_inode(Ino(key.ino))? {
            self.count_inode(
                Owners::from_record(&rec),
                usage::of_inode(rec.blocks).negated(),
            );
        }
        if let Edit::Put(_, value) = edit {
            let rec = InodeRec::decode(value).ok_or_else(|| damaged(key))?;
            self.count_inode(Owners::from_record(&rec), usage::of_inode(rec.blocks));
        }
        Ok(())
    }

    /// Edits the records of usage, after all others.
    pub(super) fn count(&mut self) -> Result<(), StoreError> {
        if !self.vol.core.counts_usage() {
            return Ok(());
        }
        if self.fresh && (self.root != TreeRoot::EMPTY || !self.edits.is_empty()) {
            self.put(usage::COUNTED, vec![usage::VERSION]);
        }
        self.usage
            .retain(|_, change| *change != QuotaUsage::default());
        let changes: Vec<_> = self
            .usage
            .iter()
            .map(|(id, change)| (*id, *change))
            .collect();
        for (id, change) in changes {
            let key: Key = usage::key(id);
            let stored = match get(self.src, &self.root, &key)? {
                Some(value) => usage::decode(&value).ok_or_else(|| damaged(key))?,
                None => QuotaUsage::default(),
            };
            let mut usage = stored;
            usage.add(change);
            match usage == QuotaUsage::default() {
                true => self.del(key),
                false => self.put(key, usage::encode(usage)),
            }
            self.apply_if_full()?;
        }
        Ok(())
    }
}

//! Locks of entries and inodes. None is waited for: a change that meets one is refused as busy, so
//! that there are no deadlocks.

use std::collections::BTreeMap;

use weir_base::{Ino, invariant};

use crate::message::Token;
use crate::part::{Part, PreparedPart};

/// Lock of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// A change that this constituent decides is going to make, replace or remove the entry. Until
    /// the decision the entry is as it was, and can be read. The lock ends with the process, as the
    /// change does.
    Deciding,
    /// The entry leaves by a change that another directory decides. Whether it has left is known
    /// only there.
    Leaving(Token),
}

/// The locks of a constituent.
#[derive(Default, Debug)]
pub(crate) struct Locks {
    inodes: BTreeMap<Ino, Token>,
    entries: BTreeMap<Ino, BTreeMap<Box<[u8]>, Hold>>,
    moves: Option<Token>,
}

impl Locks {
    /// Returns true if the inode is locked.
    pub(crate) fn has_inode(&self, ino: Ino) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// Returns true if the lock of moves is taken.
    pub(crate) fn has_moves(&self) -> bool {
        self.moves.is_some()
    }

    /// Returns the lock of an entry.
    pub(crate) fn entry(&self, directory: Ino, name: &[u8]) -> Option<Hold> {
        self.entries.get(&directory)?.get(name).copied()
    }

    /// Returns the locks of a directory's entries.
    pub(crate) fn entries_in(&self, directory: Ino) -> impl Iterator<Item = Hold> {
        let entries = self.entries.get(&directory);
        entries
            .into_iter()
            .flat_map(|entries| entries.values().copied())
    }

    /// Returns true if an entry is leaving the directory.
    pub(crate) fn has_leaving(&self, directory: Ino) -> bool {
        self.entries_in(directory)
            .any(|hold| hold != Hold::Deciding)
    }

    pub(crate) fn lock_entry(&mut self, directory: Ino, name: &[u8], hold: Hold) {
        let entries = self.entries.entry(directory).or_default();
        let before = entries.insert(name.into(), hold);
        invariant!(before.is_none(), "an entry of {directory} is locked twice");
    }

    pub(crate) fn unlock_entry(&mut self, directory: Ino, name: &[u8]) {
        let entries = self.entries.get_mut(&directory);
        let before = entries.and_then(|entries| entries.remove(name));
        invariant!(before.is_some(), "an entry of {directory} was not locked");
        if self.entries.get(&directory).is_some_and(BTreeMap::is_empty) {
            self.entries.remove(&directory);
        }
    }

    /// Takes the locks of a prepared part.
    pub(crate) fn lock(&mut self, prepared: &PreparedPart) {
        if let Some(ino) = prepared.locked_inode() {
            let before = self.inodes.insert(ino, prepared.token);
            invariant!(before.is_none(), "inode {ino} is locked twice");
        }
        match &prepared.part {
            Part::TakeEntry { directory, name } => {
                self.lock_entry(*directory, name, Hold::Leaving(prepared.token));
            }
            Part::LockMoves => self.moves = Some(prepared.token),
            _ => {}
        }
    }

    /// Releases the locks of a prepared part.
    pub(crate) fn unlock(&mut self, prepared: &PreparedPart) {
        if let Some(ino) = prepared.locked_inode() {
            let before = self.inodes.remove(&ino);
            invariant!(before.is_some(), "inode {ino} was not locked");
        }
        match &prepared.part {
            Part::TakeEntry { directory, name } => self.unlock_entry(*directory, name),
            Part::LockMoves => self.moves = None,
            _ => {}
        }
    }
}

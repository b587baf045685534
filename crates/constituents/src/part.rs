//! Parts of a change: what one constituent contributes.
//!
//! A part is *prepared* by a record of its constituent, locks what it concerns until it is
//! *finished* by another record, and can be finished either way at any time in between.

use weir_base::Ino;

use crate::message::{Ticket, Token};
use crate::record::{Change, Kind, Object, Target};
use crate::request::Attributes;

/// A part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A new directory whose entry is in another constituent. It exists from the preparation on,
    /// and nobody can use it before the end.
    MakeDirectory {
        /// Directory that has the entry.
        parent: Ino,
        /// Depth of the new directory.
        depth: u8,
        /// Attributes of the new directory.
        attributes: Attributes,
    },
    /// A directory that loses its entry. It is empty, and stays so.
    RemoveDirectory {
        /// The directory.
        directory: Ino,
    },
    /// A file that gets another link.
    AddLink {
        /// The file.
        file: Ino,
    },
    /// A file that loses a link, and goes with the last one.
    DropLink {
        /// The file.
        file: Ino,
    },
    /// An entry that leaves its directory.
    TakeEntry {
        /// Directory that has the entry.
        directory: Ino,
        /// Name of the entry.
        name: Box<[u8]>,
    },
    /// A directory that gets another parent.
    MoveDirectory {
        /// The directory.
        directory: Ino,
        /// Its parent afterwards.
        to: Ino,
        /// Its depth afterwards.
        depth: u8,
    },
    /// The lock of moves: at most one directory of a large volume gets another parent at a time.
    /// It is a part of the constituent that has the root.
    LockMoves,
    /// The state of the constituent while its gate is closed.
    Snapshot {
        /// Closing of the gate.
        closing: Ticket,
    },
}

impl Part {
    /// Returns true for the part of a snapshot, which a closed gate lets pass.
    pub(crate) fn is_snapshot(&self) -> bool {
        matches!(self, Part::Snapshot { .. })
    }

    /// Returns the inode that the part locks for itself.
    pub(crate) fn locked_inode(&self) -> Option<Ino> {
        match self {
            Part::RemoveDirectory { directory } | Part::MoveDirectory { directory, .. } => {
                Some(*directory)
            }
            Part::AddLink { file } | Part::DropLink { file } => Some(*file),
            Part::MakeDirectory { .. }
            | Part::TakeEntry { .. }
            | Part::LockMoves
            | Part::Snapshot { .. } => None,
        }
    }
}

/// A part that a constituent has prepared, as its records have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedPart {
    /// Change that the part belongs to.
    pub token: Token,
    /// The part.
    pub part: Part,
    /// Inode that the part concerns: of a new directory its own, of an entry the one that it names.
    pub target: Option<Target>,
}

impl PreparedPart {
    /// Returns the inode that is locked: the part's own, or the new directory.
    pub(crate) fn locked_inode(&self) -> Option<Ino> {
        match (&self.part, self.target) {
            (Part::MakeDirectory { .. }, Some(target)) => Some(target.ino),
            (part, _) => part.locked_inode(),
        }
    }

    /// Returns the changes that go with the preparation.
    pub(crate) fn changes(&self) -> Vec<Change> {
        match (&self.part, self.target) {
            (
                Part::MakeDirectory {
                    parent,
                    depth,
                    attributes,
                },
                Some(target),
            ) => {
                let object = Object::directory(*parent, *depth);
                vec![Change::Make {
                    ino: target.ino,
                    object,
                    attributes: *attributes,
                }]
            }
            (Part::Snapshot { .. }, _) => vec![Change::TakeSnapshot { token: self.token }],
            _ => Vec::new(),
        }
    }

    /// Returns the changes of the end.
    pub(crate) fn end(&self, commit: bool) -> Vec<Change> {
        let change = match (&self.part, commit) {
            (Part::MakeDirectory { .. }, false) => {
                self.target.map(|made| Change::Delete { ino: made.ino })
            }
            (Part::RemoveDirectory { directory }, true) => Some(Change::Delete { ino: *directory }),
            (Part::AddLink { file }, true) => Some(Change::AddLink { ino: *file }),
            (Part::DropLink { file }, true) => Some(Change::DropLink { ino: *file }),
            (Part::TakeEntry { directory, name }, true) => {
                let kind = self.target.map_or(Kind::File, |target| target.kind);
                Some(Change::Remove {
                    directory: *directory,
                    name: name.clone(),
                    kind,
                })
            }
            (
                Part::MoveDirectory {
                    directory,
                    to,
                    depth,
                },
                true,
            ) => Some(Change::SetParent {
                ino: *directory,
                parent: *to,
                depth: *depth,
            }),
            (Part::Snapshot { .. }, true) => Some(Change::KeepSnapshot { token: self.token }),
            (Part::Snapshot { .. }, false) => Some(Change::DropSnapshot { token: self.token }),
            (Part::MakeDirectory { .. }, true) | (Part::LockMoves, _) | (_, false) => None,
        };
        change.into_iter().collect()
    }
}

//! Requests of clients and their results.

use weir_base::Ino;

use crate::number::Constituent;

/// Attributes of a new inode. The rules pass them on.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
}

/// A change that a client requests. It goes to the [constituent that decides](Request::decider).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Makes a file.
    Create {
        /// Directory of the new entry.
        directory: Ino,
        /// Name of the new entry.
        name: Box<[u8]>,
    },
    /// Makes a directory.
    MakeDirectory {
        /// Directory of the new entry.
        directory: Ino,
        /// Name of the new entry.
        name: Box<[u8]>,
        /// Constituent that gets the new directory.
        on: Constituent,
        /// Attributes of the new directory.
        attributes: Attributes,
    },
    /// Removes an entry of a file.
    Remove {
        /// Directory that has the entry.
        directory: Ino,
        /// Name of the entry.
        name: Box<[u8]>,
    },
    /// Removes a directory, which has to be empty.
    RemoveDirectory {
        /// Directory that has the entry.
        directory: Ino,
        /// Name of the entry.
        name: Box<[u8]>,
    },
    /// Renames an entry, replacing another.
    Rename {
        /// Directory that has the entry.
        from_directory: Ino,
        /// Name of the entry.
        from: Box<[u8]>,
        /// Directory of the new entry.
        to_directory: Ino,
        /// Name of the new entry.
        to: Box<[u8]>,
    },
    /// Gives a file another name.
    Link {
        /// The file.
        file: Ino,
        /// Directory of the new entry.
        directory: Ino,
        /// Name of the new entry.
        name: Box<[u8]>,
    },
    /// Takes a snapshot of all constituents at one moment.
    Snapshot,
}

impl Request {
    /// Returns the entry that the decision changes: directory and name.
    #[must_use]
    pub fn entry(&self) -> Option<(Ino, &[u8])> {
        match self {
            Request::Create { directory, name }
            | Request::MakeDirectory {
                directory, name, ..
            }
            | Request::Remove { directory, name }
            | Request::RemoveDirectory { directory, name }
            | Request::Link {
                directory, name, ..
            } => Some((*directory, name)),
            Request::Rename {
                to_directory, to, ..
            } => Some((*to_directory, to)),
            Request::Snapshot => None,
        }
    }

    /// Returns the constituent that decides: that of the entry's directory, or of the root.
    #[must_use]
    pub fn decider(&self) -> Constituent {
        let root = crate::number::ROOT;
        let directory = self.entry().map_or(root, |(directory, _)| directory);
        Constituent::of_inode(directory)
    }
}

/// Reason why a request is not carried out. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such entry.
    NotFound,
    /// There is such an entry.
    Exists,
    /// The inode is not a directory.
    NotDirectory,
    /// The inode is a directory.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The inode does not exist any more.
    Stale,
    /// A directory would be below itself.
    Loop,
    /// The constituent has no space for the change.
    Full,
    /// The file or the directory has as many links as there can be.
    TooManyLinks,
    /// Another change has not ended, or a constituent does not answer: the request is to be made
    /// again.
    Busy,
}

/// Result of a request: the inode that was made, if it makes one.
pub type Reply = Result<Option<Ino>, Refusal>;

//! Log records of a constituent, and what the rules need of its namespace.

use weir_base::Ino;

use crate::message::{Ticket, Token};
use crate::number::Constituent;
use crate::part::PreparedPart;
use crate::request::{Attributes, Refusal};

/// Kind of an inode, as far as the rules distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Directory.
    Directory,
    /// Anything else.
    File,
}

/// Inode that an entry names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Target {
    /// Number of the inode.
    pub ino: Ino,
    /// Kind of the inode.
    pub kind: Kind,
}

/// An inode, as far as the rules need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Kind of the inode.
    pub kind: Kind,
    /// Number of links: of a file its names, of a directory 2 and one for each directory in it.
    pub links: u32,
    /// Number of entries of a directory.
    pub entries: u64,
    /// Parent of a directory; of a file it has no meaning.
    pub parent: Ino,
    /// Depth of a directory when it was made or moved; saturates. It only guides placement.
    pub depth: u8,
}

impl Object {
    /// Returns an empty directory.
    #[must_use]
    pub fn directory(parent: Ino, depth: u8) -> Object {
        Object {
            kind: Kind::Directory,
            links: 2,
            entries: 0,
            parent,
            depth,
        }
    }

    /// Returns a file with one link.
    #[must_use]
    pub fn file() -> Object {
        Object {
            kind: Kind::File,
            links: 1,
            entries: 0,
            parent: Ino(0),
            depth: 0,
        }
    }
}

/// One change of a constituent's namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes an inode.
    Make {
        /// Number of the inode.
        ino: Ino,
        /// The inode.
        object: Object,
        /// Its attributes.
        attributes: Attributes,
    },
    /// Deletes a directory, which is empty.
    Delete {
        /// Number of the inode.
        ino: Ino,
    },
    /// Adds a link to a file.
    AddLink {
        /// Number of the inode.
        ino: Ino,
    },
    /// Removes a link of a file, and the file with the last one.
    DropLink {
        /// Number of the inode.
        ino: Ino,
    },
    /// Gives a directory another parent.
    SetParent {
        /// The directory.
        ino: Ino,
        /// Its new parent.
        parent: Ino,
        /// Its new depth.
        depth: u8,
    },
    /// Adds an entry; an entry of a directory adds a link to the directory that it is in.
    Insert {
        /// Directory that gets the entry.
        directory: Ino,
        /// Name of the entry.
        name: Box<[u8]>,
        /// Inode that the entry names, of whatever constituent.
        target: Target,
    },
    /// Removes an entry; an entry of a directory had a link to the directory that it is in.
    Remove {
        /// Directory that has the entry.
        directory: Ino,
        /// Name of the entry.
        name: Box<[u8]>,
        /// Kind of the inode that it names.
        kind: Kind,
    },
    /// Takes a snapshot of the constituent's state before this record.
    TakeSnapshot {
        /// The snapshot.
        token: Token,
    },
    /// Makes a snapshot visible.
    KeepSnapshot {
        /// The snapshot.
        token: Token,
    },
    /// Deletes a snapshot that not all constituents have.
    DropSnapshot {
        /// The snapshot.
        token: Token,
    },
}

/// State of the protocol that a record changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The record is of a change within the constituent.
    None,
    /// The constituent has started.
    Epoch(u64),
    /// A part was prepared.
    Prepared {
        /// Ticket of the part.
        ticket: Ticket,
        /// The part.
        prepared: PreparedPart,
    },
    /// A part was finished.
    Finished(Ticket),
    /// A change was decided, with the parts that have to be finished.
    Decided {
        /// The change.
        token: Token,
        /// Constituents that have prepared parts.
        parts: Vec<(Constituent, Ticket)>,
    },
    /// All parts of a change that was decided are finished.
    Forgotten(Token),
}

/// A log record. Either all of it is carried out or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Changes of the namespace, in order.
    pub changes: Vec<Change>,
    /// Change of the protocol's state.
    pub note: Note,
    /// Request that the record carries out, as its caller numbered it.
    pub caller: Option<u64>,
}

/// A constituent's part of the tree.
pub trait Namespace {
    /// Returns an inode of this constituent.
    fn object(&self, ino: Ino) -> Option<Object>;

    /// Returns what an entry of a directory of this constituent names.
    fn entry(&self, directory: Ino, name: &[u8]) -> Option<Target>;

    /// Returns a number for a new inode, never given before.
    fn new_number(&mut self) -> Ino;

    /// Appends a record to the log, and carries it out in memory.
    ///
    /// # Errors
    /// [`Refusal::Full`], or [`Refusal::Busy`] if the constituent has to wait for something.
    /// Nothing was changed then.
    fn append(&mut self, record: Record) -> Result<(), Refusal>;
}

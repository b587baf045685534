//! Faults that a check finds, and its report.

use super::usage::WrongUsage;
use crate::format::mark::MarkId;
use std::collections::BTreeSet;
use std::fmt;
use weir_base::{BlockAddr, Generation, Ino, VolumeId};

/// An inconsistency that a check has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A fault of the superblocks, described by the text.
    Superblock(String),
    /// The intent log cannot be replayed.
    Log(String),
    /// A part of the allocation map is damaged.
    Map(String),
    /// A tree node cannot be read or is damaged; its subtree is not checked.
    Node {
        /// The tree: a volume, or 0 for the aggregate's own.
        tree: VolumeId,
        /// The node's block on the device.
        addr: BlockAddr,
        /// The inode of the first record below the node.
        from: Ino,
        /// Description of the fault, for people.
        what: String,
    },
    /// A data block cannot be read or its checksum is wrong.
    Data {
        /// The volume whose tree has the block.
        volume: VolumeId,
        /// The file's inode number.
        ino: Ino,
        /// Block within the file.
        block: u64,
        /// Block on the device.
        addr: BlockAddr,
        /// Description of the fault, for people.
        what: String,
    },
    /// An inode's records contradict each other.
    Inode {
        /// The volume whose tree has the inode.
        volume: VolumeId,
        /// The inode of the records.
        ino: Ino,
        /// The contradiction, for people.
        what: String,
    },
    /// The recorded number of references to a shared block is wrong.
    References {
        /// The volume whose tree has the block.
        volume: VolumeId,
        /// True for the volume's own tree, false for a snapshot's.
        live: bool,
        /// The shared block's address on the device.
        addr: BlockAddr,
        /// The checkpoint that wrote the block.
        birth: Generation,
        /// Recorded number of references.
        recorded: u64,
        /// Number of references that the walk of the tree found.
        found: u64,
    },
    /// The recorded usage of an owner is wrong.
    Usage(WrongUsage),
    /// A mark has a higher number than any recorded one. A later mark may get that number again,
    /// and a copy may confuse the two.
    Mark {
        /// The volume that has the mark's snapshot.
        volume: VolumeId,
        /// The volume's name.
        name: String,
        /// Number of the mark.
        mark: MarkId,
        /// The newest mark in the aggregate's record.
        last: MarkId,
    },
    /// Blocks that two owners refer to.
    TwoOwners {
        /// The tree that claimed the blocks second.
        tree: VolumeId,
        /// Address of the first block.
        addr: BlockAddr,
        /// Number of consecutive blocks.
        count: u32,
    },
    /// Allocated blocks that nothing refers to.
    Leak {
        /// Address of the first block.
        addr: BlockAddr,
        /// Number of consecutive blocks.
        count: u32,
    },
    /// Blocks in use that the map has as free.
    NotAllocated {
        /// Address of the first block.
        addr: BlockAddr,
        /// Number of consecutive blocks.
        count: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Superblock(what) => write!(f, "superblock: {what}"),
            Fault::Log(what) => write!(f, "{what}"),
            Fault::Map(what) => write!(f, "allocation map: {what}"),
            Fault::Node {
                tree,
                addr,
                from,
                what,
            } => write!(
                f,
                "tree {tree}: node at block {addr} (records of inode {from} and following): {what}"
            ),
            Fault::Data {
                volume,
                ino,
                block,
                addr,
                what,
            } => write!(
                f,
                "volume {volume}, inode {ino}: file block {block} at block {addr}: {what}"
            ),
            Fault::Inode { volume, ino, what } => {
                write!(f, "volume {volume}, inode {ino}: {what}")
            }
            Fault::Usage(wrong) => wrong.fmt(f),
            Fault::References {
                volume,
                live,
                addr,
                recorded,
                found,
                ..
            } => {
                let of = if *live { "" } else { ", a snapshot" };
                write!(
                    f,
                    "volume {volume}{of}: block {addr} is referred to {found} times, not {recorded}"
                )
            }
            Fault::Mark {
                volume,
                name,
                mark,
                last,
            } => write!(
                f,
                "volume {volume} ({name}): mark {mark} has number {}, greater than {}, the last that the aggregate's record knows",
                mark.0, last.0
            ),
            Fault::TwoOwners { tree, addr, count } => write!(
                f,
                "tree {tree}: {count} blocks from {addr} on have another owner, too"
            ),
            Fault::Leak { addr, count } => {
                write!(f, "{count} blocks from {addr} on are allocated but unused")
            }
            Fault::NotAllocated { addr, count } => {
                write!(
                    f,
                    "{count} blocks from {addr} on are in use but marked free"
                )
            }
        }
    }
}

/// Results of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The aggregate's identity, from its superblock.
    pub aggregate: String,
    /// The newest checkpoint.
    pub generation: u64,
    /// Number of volumes checked.
    pub volumes: u64,
    /// Number of snapshots of all volumes.
    pub snapshots: u64,
    /// Inodes of all live trees.
    pub inodes: u64,
    /// Directory entries of all live trees.
    pub entries: u64,
    /// Tree nodes read; a node that several trees share counts once.
    pub nodes: u64,
    /// Data blocks; a shared one counts once.
    pub blocks: u64,
    /// Records in the intent log.
    pub log_records: u64,
    /// Names of the volumes: those of the trees, and those that the log has created since.
    pub names: BTreeSet<String>,
    /// Faults, in the order found.
    pub faults: Vec<Fault>,
    /// Descriptions of the repairs made.
    pub repaired: Vec<String>,
}

impl Report {
    /// Returns true if no fault was found.
    pub fn clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "fault: {fault}")?;
        }
        for done in &self.repaired {
            writeln!(f, "repaired: {done}")?;
        }
        write!(
            f,
            "checkpoint {}: {} volumes, {} snapshots, {} inodes, {} entries, {} tree nodes, \
             {} data blocks, {} log records: ",
            self.generation,
            self.volumes,
            self.snapshots,
            self.inodes,
            self.entries,
            self.nodes,
            self.blocks,
            self.log_records
        )?;
        match self.faults.len() {
            0 => f.write_str("clean"),
            1 => f.write_str("1 fault"),
            n => write!(f, "{n} faults"),
        }
    }
}

//! The bytes of messages between the servers of a large volume.
//!
//! A frame is the large volume's identity, the constituents that it is from and for, and one of:
//! a message of the rules, a question about an inode, the answer, and the sender's space. Numbers
//! are little-endian.

use weir_base::Ino;
use weir_base::limits::MAX_NAME;
use weir_constituents::{Constituent, Message, Refusal};
use weir_volume::FileKind;

/// Bytes before the content of a frame.
const HEAD: usize = 8 + 1 + 1 + 1;

/// Space of a constituent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Capacity in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Inodes that there can be.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
}

/// Attributes of an inode that permissions depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Kind of the inode.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
}

/// Inode that an entry names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// Its number in the large volume.
    pub ino: Ino,
    /// True for a directory.
    pub directory: bool,
    /// Its attributes, if it is in the same constituent as the entry.
    pub node: Option<Node>,
}

/// Answer to a question about an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeAnswer {
    /// The inode.
    pub node: Node,
    /// Inode that the entry names which was asked for, if there is one.
    pub child: Option<Child>,
}

/// Content of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Rules(Message),
    /// Asks for an inode, and for what an entry of it names.
    Question {
        number: u64,
        ino: Ino,
        name: Option<Box<[u8]>>,
    },
    /// The answer to a question of this number.
    Answer {
        number: u64,
        answer: Result<InodeAnswer, Refusal>,
    },
    Space(Space),
}

/// Returns the large volume and the constituent that a frame is for.
#[must_use]
pub fn destination(frame: &[u8]) -> Option<(u64, Constituent)> {
    let large = u64::from_le_bytes(*frame.first_chunk()?);
    Some((large, Constituent(*frame.get(9)?)))
}

/// Encodes a frame.
pub(crate) fn encode(large: u64, from: Constituent, to: Constituent, content: &Content) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&large.to_le_bytes());
    out.extend_from_slice(&[from.0, to.0]);
    match content {
        Content::Rules(message) => {
            out.push(0);
            out.extend_from_slice(&message.encode());
        }
        Content::Question { number, ino, name } => {
            out.push(1);
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&ino.0.to_le_bytes());
            out.extend_from_slice(name.as_deref().unwrap_or_default());
        }
        Content::Answer { number, answer } => {
            out.push(2);
            out.extend_from_slice(&number.to_le_bytes());
            if let Ok(seen) = answer {
                put_seen(&mut out, seen);
            }
        }
        Content::Space(space) => {
            out.push(3);
            for number in [space.total, space.free, space.files, space.files_free] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    out
}

/// Decodes the sender and the content of a frame; `None` if it is malformed.
pub(crate) fn decode(frame: &[u8]) -> Option<(Constituent, Content)> {
    let from = Constituent(*frame.get(8)?);
    let tag = *frame.get(HEAD - 1)?;
    let mut reader = Reader(frame.get(HEAD..)?);
    let content = match tag {
        0 => Content::Rules(Message::decode(reader.0)?),
        1 => {
            let (number, ino) = (reader.u64()?, Ino(reader.u64()?));
            let name = Some(reader.0).filter(|name| !name.is_empty());
            if reader.0.len() > MAX_NAME {
                return None;
            }
            Content::Question {
                number,
                ino,
                name: name.map(Box::from),
            }
        }
        2 => {
            let number = reader.u64()?;
            // Without more the inode does not exist.
            let answer = match reader.0.is_empty() {
                true => Err(Refusal::Stale),
                false => Ok(reader.seen()?),
            };
            Content::Answer { number, answer }
        }
        3 => Content::Space(Space {
            total: reader.u64()?,
            free: reader.u64()?,
            files: reader.u64()?,
            files_free: reader.u64()?,
        }),
        _ => return None,
    };
    Some((from, content))
}

fn put_node(out: &mut Vec<u8>, node: &Node) {
    out.push(node.kind as u8);
    out.extend_from_slice(&node.mode.to_le_bytes());
    out.extend_from_slice(&node.uid.to_le_bytes());
    out.extend_from_slice(&node.gid.to_le_bytes());
}

fn put_seen(out: &mut Vec<u8>, seen: &InodeAnswer) {
    put_node(out, &seen.node);
    if let Some(child) = &seen.child {
        out.extend_from_slice(&child.ino.0.to_le_bytes());
        out.push(u8::from(child.directory));
        if let Some(node) = &child.node {
            put_node(out, node);
        }
    }
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn node(&mut self) -> Option<Node> {
        let [kind] = self.bytes()?;
        Some(Node {
            kind: FileKind::from_number(kind)?,
            mode: u16::from_le_bytes(self.bytes()?),
            uid: u32::from_le_bytes(self.bytes()?),
            gid: u32::from_le_bytes(self.bytes()?),
        })
    }

    fn seen(&mut self) -> Option<InodeAnswer> {
        let node = self.node()?;
        if self.0.is_empty() {
            return Some(InodeAnswer { node, child: None });
        }
        let ino = Ino(self.u64()?);
        let [directory] = self.bytes()?;
        let of_child = match self.0.is_empty() {
            true => None,
            false => Some(self.node()?),
        };
        let child = Child {
            ino,
            directory: directory != 0,
            node: of_child,
        };
        Some(InodeAnswer {
            node,
            child: Some(child),
        })
    }
}

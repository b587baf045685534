//! What the managers of two nodes say to each other, in control frames ([`crate::wire::Kind::Control`]): JSON, one
//! question and one reply at a time. The destination's node sends the questions. After [`Told::Sending`] the connection
//! belongs to the transfer until that has ended, and then to questions again.

use serde::{Deserialize, Serialize};

use weir_base::SnapshotIdentity;
use weir_volume::ContentHash;

use weir_relations::plan::Volume;

/// A question of the destination's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// What is there of this volume.
    Volume(Named),
    /// Take a snapshot for a relationship, or find it taken.
    Take {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// The name that the snapshot is to have.
        name: String,
    },
    /// The destination has this snapshot and goes on from it: keep it for the next transfer. Sent at each transfer's
    /// end, since the one that sent the snapshot may have failed after it.
    Keep {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// UUID of the relationship.
        relationship: String,
        /// Where to: `svm:volume` at the node that asks.
        destination: String,
        /// The newest snapshot of the destination.
        newest: SnapshotIdentity,
    },
    /// Delete snapshots of a relationship's own that no transfer needs any more.
    Drop {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// UUID of the relationship.
        relationship: String,
        /// The names of the snapshots.
        names: Vec<String>,
    },
    /// What a snapshot holds: compared before anything is built upon it.
    Content {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// The snapshot whose content is requested.
        snapshot: SnapshotIdentity,
    },
    /// Send a file of a snapshot over this connection: after [`Told::File`], frames of
    /// [`Kind::Records`](crate::wire::Kind::Records), each the offset of a piece (8 bytes, little-endian) and its bytes, and
    /// then [`Told::FileEnd`].
    File {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// The snapshot that has the file.
        snapshot: SnapshotIdentity,
        /// From the volume's root.
        path: String,
        /// The restore's throttle, KB/s.
        throttle: Option<u64>,
        /// Compress frames on the wire.
        compress: bool,
    },
    /// Send a snapshot over this connection.
    Send {
        /// The source volume, on the node that is asked.
        volume: Named,
        /// UUID of the relationship.
        relationship: String,
        /// Where to: `svm:volume` at the node that asks.
        destination: String,
        /// As a difference to this one; `None`: as a whole.
        base: Option<SnapshotIdentity>,
        /// The snapshot to send.
        target: SnapshotIdentity,
        /// The relationship's throttle, KB/s.
        throttle: Option<u64>,
        /// Compress frames on the wire.
        compress: bool,
    },
}

/// What belongs to a file besides its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Bytes.
    pub size: u64,
    /// The low 12 bits of the POSIX mode.
    pub mode: u32,
    /// The owner's user ID.
    pub uid: u32,
    /// Its group ID.
    pub gid: u32,
    /// Last access: seconds since 1970, and nanoseconds.
    pub atime: (i64, u32),
    /// Last change of the contents.
    pub mtime: (i64, u32),
    /// Creation.
    pub btime: (i64, u32),
    /// DOS attributes.
    pub dos: u16,
    /// Extended attributes: names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The access control list, as the engine stores it.
    pub acl: Option<Vec<u8>>,
    /// Named streams: names and bytes.
    pub streams: Vec<(Vec<u8>, u64)>,
}

/// A volume of the node that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The storage virtual machine.
    pub vserver: String,
    /// The volume's name in it.
    pub volume: String,
}

/// The reply to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// To [`Ask::Volume`]: the volume's state.
    Volume(Box<Volume>),
    /// That is what it holds.
    Content(ContentHash),
    /// It takes longer; the reply is still to come.
    Working,
    /// What was requested is done.
    Done,
    /// The transfer's frames follow.
    Sending,
    /// To [`Ask::File`]; the pieces of its contents that are not all zeroes follow, then those of its streams, each behind the
    /// end of what comes before.
    File(Box<FileHead>),
    /// They have been sent: SHA-256 of the size (8 bytes) and of each piece's offset (8 bytes) and bytes, little-endian.
    FileEnd([u8; 32]),
    /// No, and asking again will not help.
    Refused(String),
    /// Not now; asking again later may help.
    Later(String),
}

/// Encodes a message as JSON.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Values without maps of odd keys always have a JSON form.
    serde_json::to_vec(message).unwrap_or_default()
}

/// Decodes a message from JSON.
///
/// # Errors
/// They are no such message.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes)
        .map_err(|e| format!("the peer sent a message of another shape: {e}"))
}

//! Messages between two nodes around transfers, in control frames ([`crate::wire::Kind::Control`]):
//! JSON, one request and one reply at a time. The destination's node sends the requests. After
//! [`PeerReply::Sending`] the connection is used by the transfer until that has ended, and then for
//! requests again.
//!
//! A move to another aggregate is begun by its source, with [`Ask::Arrive`]. If the destination
//! accepts it, the two exchange their parts: from then on the destination asks, until
//! [`Ask::End`].

use serde::{Deserialize, Serialize};

use weir_base::SnapshotIdentity;
use weir_volume::ContentHash;

use weir_relations::cutover::Decision;
use weir_relations::plan::Volume;

/// Request of the destination's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Describe this volume.
    Volume(PeerVolumeName),
    /// Take a snapshot for a relationship, or find it if it was taken.
    Take {
        /// Source volume.
        volume: PeerVolumeName,
        /// Name of the snapshot.
        name: String,
    },
    /// The destination has this snapshot and continues from it: keep it for the next transfer. Sent
    /// at each transfer's end, because the sender of the snapshot may have failed after sending.
    Keep {
        /// Source volume.
        volume: PeerVolumeName,
        /// UUID of the relationship.
        relationship: String,
        /// Destination as `svm:volume` on the requesting node.
        destination: String,
        /// The newest snapshot of the destination.
        newest: SnapshotIdentity,
    },
    /// Delete a relationship's own snapshots that no transfer needs any more.
    Drop {
        /// Source volume.
        volume: PeerVolumeName,
        /// UUID of the relationship.
        relationship: String,
        /// Names of the snapshots.
        names: Vec<String>,
    },
    /// Return the hash of a snapshot's content. It is compared before the snapshot becomes a base.
    Content {
        /// Source volume.
        volume: PeerVolumeName,
        /// The snapshot to hash.
        snapshot: SnapshotIdentity,
    },
    /// Send a file of a snapshot over this connection. [`PeerReply::File`] is followed by frames of
    /// [`Kind::Records`](crate::wire::Kind::Records), each with the offset of a piece (8 bytes,
    /// little-endian) and its bytes, and then by [`PeerReply::FileEnd`].
    File {
        /// Source volume.
        volume: PeerVolumeName,
        /// The snapshot that has the file.
        snapshot: SnapshotIdentity,
        /// Path from the volume's root.
        path: String,
        /// Throttle of the restore in KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// True to compress frames on the wire.
        compress: bool,
    },
    /// Get a volume that moves here ([`weir_relations::cutover`]).
    Arrive(Offer),
    /// Take a snapshot of the volume that moves, and describe the volume. Earlier ones may go.
    Cut {
        /// True to hold requests of clients from now on.
        hold: bool,
        /// Number of failed attempts to end the move, which are given more time.
        attempt: u32,
        /// The snapshot that the next difference builds on.
        base: Option<SnapshotIdentity>,
    },
    /// Let this aggregate decide who serves the volume.
    HandOver {
        /// Number of the cut whose contents the destination has.
        cut: u32,
    },
    /// End the move: the volume has arrived, or stays for this reason.
    End(Result<(), Stays>),
    /// Decide on an attempt of which the source has lost the outcome.
    Decide {
        /// Project and location of the volume.
        place: (String, String),
        /// Number of the attempt.
        attempt: u64,
    },
    /// Send a snapshot over this connection.
    Send {
        /// Source volume.
        volume: PeerVolumeName,
        /// UUID of the relationship.
        relationship: String,
        /// Destination as `svm:volume` on the requesting node.
        destination: String,
        /// Base of the difference; `None` sends everything.
        base: Option<SnapshotIdentity>,
        /// The snapshot to send.
        target: SnapshotIdentity,
        /// Throttle of the relationship in KB/s; `None` is unlimited.
        throttle: Option<u64>,
        /// True to compress frames on the wire.
        compress: bool,
    },
}

/// A volume that is to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Number of the move.
    pub id: u64,
    /// The volume, by its name on the asking node.
    pub volume: PeerVolumeName,
    /// Storage pool that gets it; `None`: the only one in its location.
    pub pool: Option<String>,
    /// Rows of the volume, as the control plane encodes them.
    pub departing: String,
}

/// Reason why a volume stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stays {
    /// The destination cannot get it.
    Refused(String),
    /// A further try may succeed.
    Later(String),
}

/// A snapshot of a volume that moves, and what the destination has to know of the volume then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Number of the snapshot in the source's volume, which is that of the cut.
    pub number: u32,
    /// The source's volume with its snapshots.
    pub volume: Box<Volume>,
}

/// A volume that is handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Number of the attempt, which identifies the decision.
    pub attempt: u64,
    /// Rows of the volume, as the control plane encodes them.
    pub departing: String,
    /// Identity under which clients know it, likewise.
    pub origin: String,
}

/// Size and metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Size of the contents in bytes.
    pub size: u64,
    /// The low 12 bits of the POSIX mode.
    pub mode: u32,
    /// The owner's user ID.
    pub uid: u32,
    /// The owner's group ID.
    pub gid: u32,
    /// Time of the last access: seconds since 1970, and nanoseconds.
    pub atime: (i64, u32),
    /// Time of the last change of the contents, like `atime`.
    pub mtime: (i64, u32),
    /// Time of creation, like `atime`.
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

/// Name of a volume on the node that receives the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerVolumeName {
    /// Name of the storage virtual machine.
    pub vserver: String,
    /// Name of the volume in it.
    pub volume: String,
}

/// The reply to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// To [`Ask::Volume`]: the volume's state.
    Volume(Box<Volume>),
    /// To [`Ask::Content`]: the hash of the snapshot's content.
    Content(ContentHash),
    /// To [`Ask::Cut`]: the snapshot was taken.
    Cut(Cut),
    /// To [`Ask::HandOver`]: the asking aggregate decides from now on.
    HandedOver(HandedOver),
    /// To [`Ask::Decide`]: the decision.
    Decided(Decision),
    /// The request takes longer; the reply follows.
    Working,
    /// The request was carried out.
    Done,
    /// To [`Ask::Send`]: the transfer's frames follow.
    Sending,
    /// To [`Ask::File`]. The pieces of its contents that are not all zeroes follow, then those of
    /// its streams. The offsets of each stream start after the end of the previous one.
    File(Box<FileHead>),
    /// All pieces have been sent. SHA-256 of the size (8 bytes), and of each piece's offset (8
    /// bytes) and bytes; numbers are little-endian.
    FileEnd([u8; 32]),
    /// The request is refused, and a retry would be too.
    Refused(String),
    /// The request cannot be carried out now; a retry may succeed.
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
/// The bytes are no such message.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes)
        .map_err(|e| format!("the peer sent a message of another shape: {e}"))
}

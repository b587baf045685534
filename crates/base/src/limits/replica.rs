//! The bounds of replication: what a peer sends, and what users name and write.

use std::time::Duration;

/// Most bytes of a frame's payload, before compression and after.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Least throttle of a relationship, KB/s.
pub const THROTTLE_LEAST: u64 = 4;

/// Greatest throttle of a relationship: 2 TB/s in KB/s.
pub const THROTTLE_MOST: u64 = 2 * 1024 * 1024 * 1024;

/// Most rules of a policy (ONTAP's).
pub const MAX_POLICY_RULES: usize = 10;

/// Most snapshots that one rule of a policy keeps (ONTAP's).
pub const MAX_KEPT: u32 = 1019;

/// Most bytes of the name of a policy, schedule or peer.
pub const MAX_GIVEN_NAME: usize = 256;

/// Most bytes of a comment.
pub const MAX_COMMENT: usize = 4096;

/// What was received waits no longer for a checkpoint, whatever the rate.
pub const BATCH_AGE: Duration = Duration::from_secs(3);

/// A failed transfer is tried again after this, then after twice as long, and so on.
pub const RETRY_FIRST_MS: u64 = 5_000;

/// But no longer than this.
pub const RETRY_MOST_MS: u64 = 300_000;

/// Transfers at once; the others are queued. As many as ONTAP runs on a node.
pub const TRANSFERS_AT_ONCE: usize = 100;

/// How often a transfer is tried unless the relationship says otherwise.
pub const TRANSFER_TRIES: u32 = 8;

/// Blocks that are read at once: 1 MiB.
pub const SEND_AHEAD_BLOCKS: usize = 256;

/// Bytes of records that are read ahead.
pub const SEND_AHEAD_BYTES: usize = 256 << 10;

/// The longest that a slot can be away: 29 February on a given weekday comes within 40 years.
pub const SCHEDULE_DAYS: i64 = 366 * 40;

/// What a transfer may ask for at once: the larger, the fewer wake-ups; the smaller, the smoother. At 4 KB/s, the least
/// throttle, a piece takes 16 s.
pub const THROTTLE_PIECE: u64 = 64 << 10;

/// Connections of paired nodes at once. A node needs one for each transfer, so this is several busy nodes.
pub const PEER_CONNECTIONS: usize = 512;

/// Two nodes have to agree to become peers within this.
pub const PEER_PAIRING: Duration = Duration::from_secs(10);

/// A node that connects to another one, or to a witness, has to show its certificate within this.
pub const NODE_HANDSHAKE: Duration = Duration::from_secs(1);

/// Connections to one port for nodes that have not shown who they are, at once. As many again may come from addresses
/// where a node has been.
pub const NODE_STRANGERS: usize = 128;

/// Addresses that a port for nodes remembers as those of nodes.
pub const KNOWN_ADDRESSES: usize = 64;

/// A connection on which nothing is asked for so long is closed.
pub const PEER_IDLE: Duration = Duration::from_secs(600);

/// A connection has to come about within this.
pub const PEER_CONNECT: Duration = Duration::from_secs(10);

/// What is read from a link at once.
pub const LINK_CHUNK: usize = 64 << 10;

/// How much may have come in that was not looked at yet while something is being sent.
pub const LINK_AHEAD: usize = 1 << 20;

/// An answer to a question has to come within this, or the word that it is being worked on. Taking a snapshot waits for a
/// checkpoint at worst.
pub const LINK_REPLY: Duration = Duration::from_secs(60);

/// The pipe within a node: as much as a TCP connection holds without being asked.
pub const LINK_PIPE: usize = 1 << 20;

/// What is left to say to the other side at an abort has to be said within this.
pub const LINK_FAREWELL: Duration = Duration::from_secs(2);

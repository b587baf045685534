//! Limits of replication: on the frames of a peer, and on the names and rules that users give.

use std::time::Duration;

/// Maximum payload of a frame in bytes, before and after compression.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Minimum throttle of a relationship in KB/s.
pub const THROTTLE_LEAST: u64 = 4;

/// Maximum throttle of a relationship in KB/s: 2 TB/s.
pub const THROTTLE_MOST: u64 = 2 * 1024 * 1024 * 1024;

/// Maximum number of rules of a policy (as in ONTAP).
pub const MAX_POLICY_RULES: usize = 10;

/// Maximum number of snapshots that one rule of a policy keeps (as in ONTAP).
pub const MAX_KEPT: u32 = 1019;

/// Maximum length in bytes of the name of a policy, schedule or peer.
pub const MAX_GIVEN_NAME: usize = 256;

/// Maximum length of a comment in bytes.
pub const MAX_COMMENT: usize = 4096;

/// Maximum time that received data waits for a checkpoint, whatever the rate.
pub const BATCH_AGE: Duration = Duration::from_secs(3);

/// Delay before the first retry of a failed transfer. Each further retry doubles it.
pub const RETRY_FIRST_MS: u64 = 5_000;

/// Maximum delay before a retry of a failed transfer.
pub const RETRY_MOST_MS: u64 = 300_000;

/// Maximum number of concurrent transfers; further ones are queued. ONTAP runs as many on a node.
pub const TRANSFERS_AT_ONCE: usize = 100;

/// Attempts of a transfer, unless the relationship gives another number.
pub const TRANSFER_TRIES: u32 = 8;

/// Blocks read at once by the sender: 1 MiB.
pub const SEND_AHEAD_BLOCKS: usize = 256;

/// Bytes of records that the sender reads ahead.
pub const SEND_AHEAD_BYTES: usize = 256 << 10;

/// Days searched for the next slot of a schedule: 29 February on a given weekday comes within 40
/// years.
pub const SCHEDULE_DAYS: i64 = 366 * 40;

/// Maximum number of bytes that a transfer requests from the throttle at once. A larger value means
/// fewer wake-ups, a smaller one a smoother rate. At 4 KB/s, the minimum throttle, a piece takes 16
/// s.
pub const THROTTLE_PIECE: u64 = 64 << 10;

/// Maximum number of connections of paired nodes. A node needs one for each transfer, so this is
/// enough for several busy nodes.
pub const PEER_CONNECTIONS: usize = 512;

/// Time within which two nodes have to agree to become peers.
pub const PEER_PAIRING: Duration = Duration::from_secs(10);

/// Time within which a node that connects to another node, or to a witness, has to present its
/// certificate.
pub const NODE_HANDSHAKE: Duration = Duration::from_secs(1);

/// Maximum number of unauthenticated connections to one port for nodes. The same number again is
/// allowed from addresses where a node has been authenticated.
pub const NODE_STRANGERS: usize = 128;

/// Addresses of authenticated nodes that a port for nodes remembers.
pub const KNOWN_ADDRESSES: usize = 64;

/// Time without a request after which a peer connection is closed.
pub const PEER_IDLE: Duration = Duration::from_secs(600);

/// Time within which a peer connection has to be established.
pub const PEER_CONNECT: Duration = Duration::from_secs(10);

/// Bytes read from a link at once.
pub const LINK_CHUNK: usize = 64 << 10;

/// Maximum number of received and unprocessed bytes while a message is being sent.
pub const LINK_AHEAD: usize = 1 << 20;

/// Time within which a request must be answered, or reported as in progress. At worst, taking a
/// snapshot waits for a checkpoint.
pub const LINK_REPLY: Duration = Duration::from_secs(60);

/// Capacity of the pipe within a node in bytes: about the amount that a TCP connection buffers.
pub const LINK_PIPE: usize = 1 << 20;

/// Time within which the last message to the other side has to be sent at an abort.
pub const LINK_FAREWELL: Duration = Duration::from_secs(2);

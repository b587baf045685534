//! The bounds of replication: what a peer sends, and what users name and write.

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

/// Most bytes of what client programs want kept with a relationship.
pub const MAX_CLIENT_ANNOTATION: usize = 32 << 10;

//! The bounds of what is taken out of `--memory` at the start.

/// Most bytes of a new intent log. 8 KiB writes all over 256 MiB, each durable, then cost 1.2 times their size in writes, against
/// 1.9 times with 256 MiB.
pub const MAX_DEFAULT_LOG: u64 = 2 << 30;

/// Most bytes of the duplicate request cache.
pub const MAX_DRC: u64 = 32 << 20;

/// Most bytes that locks and what belongs to them take: a million locks.
pub const MAX_LOCK_MEMORY: u64 = 256 << 20;

/// Bytes that a volume takes in memory as long as it exists, measured over 18,125 without their cached blocks: its tables in the
/// engine, its record and indexes in the control plane, its export and its limits. They are 11.3 KiB after a start, and 13.2 KiB
/// once a client has mounted each and created a file in it.
pub const VOLUME_BYTES: u64 = 14 << 10;

/// The part of the memory that volumes may take.
pub const VOLUME_SHARE: u64 = 8;

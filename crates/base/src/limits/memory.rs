//! Limits of the memory that is taken out of `--memory` at the start.

/// Maximum default size of a new intent log in bytes. With it, durable 8 KiB writes all over 256
/// MiB cost 1.2 times their size in device writes; with a log of 256 MiB they cost 1.9 times.
pub const MAX_DEFAULT_LOG: u64 = 2 << 30;

/// Maximum number of bytes of the duplicate request cache.
pub const MAX_DRC: u64 = 32 << 20;

/// Maximum number of bytes of locks and their bookkeeping: a million locks.
pub const MAX_LOCK_MEMORY: u64 = 256 << 20;

/// Memory in bytes that a volume takes as long as it exists: its tables in the engine, its record
/// and indexes in the control plane, its export and its limits. Measured over 18,125 volumes
/// without their cached blocks: 11.3 KiB after a start, and 13.2 KiB once a client has mounted each
/// and created a file in it.
pub const VOLUME_BYTES: u64 = 14 << 10;

/// Divisor of the memory: the share that volumes may take.
pub const VOLUME_SHARE: u64 = 8;

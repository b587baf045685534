//! Limits of the synchronous pair: the addresses and connections that move with it.

/// Maximum number of floating addresses of a pair. Each is renewed five times a second.
pub const MAX_MOVING_ADDRESSES: usize = 16;

/// Seconds between two questions to the witness that only find out whether it replies.
pub const WITNESS_PERIOD: u64 = 10;

/// Maximum number of log batches whose wait for the partner is measured: 32 bytes each. Further
/// batches wait without being counted.
pub const MAX_MEASURED_BATCHES: usize = 65_536;

/// Maximum number of client connections that a standby knows, in order to end them at a takeover:
/// some 100 bytes each. Further clients notice by their own retransmissions.
pub const MAX_KNOWN_CONNECTIONS: usize = 16_384;

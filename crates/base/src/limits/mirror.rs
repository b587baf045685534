//! The bounds of the synchronous mirror: what a pair moves with it, and what one node tells the other of its clients.

/// Most addresses that move with a pair. Each is renewed five times a second.
pub const MAX_MOVING_ADDRESSES: usize = 16;

/// Most batches of the log that wait for the partner and are measured: 32 bytes each. Those beyond wait without being counted.
pub const MAX_MEASURED_BATCHES: usize = 65_536;

/// Most connections of clients that a standby knows, to end them when it takes over: some 100 bytes each. Clients beyond that notice by
/// their own retransmissions.
pub const MAX_KNOWN_CONNECTIONS: usize = 16_384;

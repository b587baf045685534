//! The bounds of the network side, in one place.

use std::time::Duration;

use weir_base::limits::MAX_IO;

/// Longest RPC record in bytes: a WRITE of the largest size, and room for its header (24 bytes,
/// two credentials of at most 408, a file handle of at most 68, 20 bytes of arguments).
pub const MAX_RECORD: usize = MAX_IO + 4096;

/// Bytes of a core's receive buffer. Eyeballed against the L2 cache (256 KiB to 2 MiB) and
/// the size of a socket's receive queue under load; the system call is amortised long before.
pub const RECEIVE_BUFFER: usize = 256 << 10;

/// Bytes read at a time while much waits for limits: enough for some calls, and for the beginning of a WRITE, which
/// says whether the rest may be taken.
pub const CROWDED_READ: usize = 8 << 10;

/// Bytes that a connection may have under way (answers not yet taken by the kernel, requests
/// that wait) before it is no longer read from: some READs of the largest size, and more
/// than a Linux client's 128 slots need at the usual sizes.
pub const CONNECTION_IN_FLIGHT: usize = 4 << 20;

/// Requests of one connection that may wait for a device at once. Linux clients send at most
/// 128 at a time; beyond that the connection is no longer read from.
pub const CONNECTION_PENDING: usize = 256;

/// What a waiting request is charged beyond the bytes of its call.
pub const PENDING_OVERHEAD: usize = 4096;

/// Reads of one connection before the others of its core have their turn.
pub const TURN: usize = 8;

/// How long a peer may take no answer, or leave a request unfinished, before it is dropped.
/// Linux clients retransmit after 60 s of silence (`timeo=600`).
pub const STALL: Duration = Duration::from_secs(60);

/// The same while the network budget is used up.
pub const STALL_SHORT_OF_MEMORY: Duration = Duration::from_secs(5);

/// How often stalled peers are looked for.
pub const SWEEP: Duration = Duration::from_secs(1);

/// How long answers under way may take to leave when the server stops.
pub const DRAIN: Duration = Duration::from_secs(5);

const _: () = {
    assert!(MAX_RECORD >= MAX_IO + 24 + 2 * 408 + 68 + 20);
    assert!(CONNECTION_IN_FLIGHT >= MAX_RECORD);
};

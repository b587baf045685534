//! The bounds of the network side: what peers may make the server hold, and for how long.
//!
//! **Memory.** Connections share one budget, an eighth of `--memory`. It is divided in sixteenths: one address may hold
//! [`PER_ADDRESS`] of it, requests that wait for limits on throughput [`HELD`], and the last [`RESERVE`] is for small
//! calls alone, so that GETATTR is served whatever large requests and replies take up.
//!
//! **Records.** A small record costs what has arrived of it, times [`RECORD_GROWTH`] at most, never what its mark announces. A
//! record beyond [`SMALL_RECORD`] can only be a WRITE; memory for it is taken when its first [`RECORD_HEAD`] bytes show a
//! file handle of an export that admits the peer, and as long as all that is announced fits the budget and the address's part.
//! What of it is still to come is counted apart and keeps no small call out.
//!
//! **Time.** Both directions have a least rate. A peer may fall behind it by [`STALL`], or by
//! [`STALL_SHORT_OF_MEMORY`] when memory is short; what is oldest and slow is closed sooner if others wait for its memory.

use std::time::Duration;

use super::{MAX_IO, MAX_NAME, MAX_SYMLINK};

/// Most bytes that an RPC message has before its arguments: six words, and a credential and a verifier of at most 400
/// bytes with their flavours and lengths (RFC 5531 §8.2, §9).
pub const MAX_CALL_HEADER: usize = 24 + 2 * (8 + 400);

/// Most bytes of an encoded file handle with its length (RFC 1813 §2.4).
pub const MAX_HANDLE: usize = 4 + 64;

/// Longest RPC record in bytes: a WRITE of the largest size with its header.
pub const MAX_RECORD: usize = MAX_IO + 4096;

/// Longest RPC record in bytes that is no WRITE. The longest are SYMLINK and the lock manager's calls, which carry three
/// opaque fields of 1 KiB.
pub const SMALL_RECORD: usize = 8 << 10;

/// Bytes of a record that identify it: the header of a call and the file handle of a WRITE.
pub const RECORD_HEAD: usize = 1024;

/// Memory for a small record under assembly is at most so many times what has arrived of it (and at least [`RECORD_HEAD`]).
pub const RECORD_GROWTH: usize = 4;

/// Most fragments of one record. A record of the largest size in TCP segments of the smallest usual size is below this;
/// empty fragments without end are not.
pub const MAX_FRAGMENTS: u32 = 4096;

/// WRITEs from this many bytes on take credit of their client before they are read, if their volume is limited.
pub const LARGE_WRITE: usize = 64 << 10;

/// Bytes of a core's receive buffer. Estimated from the L2 cache (256 KiB to 2 MiB) and the size of a socket's receive
/// queue under load; the system call is amortised long before.
pub const RECEIVE_BUFFER: usize = 256 << 10;

/// Bytes read at a time while the budget is used up: one call.
pub const SCANT_READ: usize = 1 << 10;

/// Bytes read at a time while memory is short or much waits for limits: enough for some calls, and for the beginning of
/// a WRITE, which says whether the rest may be taken.
pub const CROWDED_READ: usize = 8 << 10;

/// Bytes that a connection may have under way (replies not yet taken by the kernel, requests
/// that wait) before it is no longer read from: some READs of the largest size, and more
/// than a Linux client's 128 slots need at the usual sizes.
pub const CONNECTION_IN_FLIGHT: usize = 4 << 20;

/// The same while memory is short; one reply may go beyond it.
pub const SHORT_IN_FLIGHT: usize = 64 << 10;

/// Bytes of replies in the kernel at which a peer counts as one that has not taken them, while memory is short.
pub const UNTAKEN: u64 = 64 << 10;

/// A connection whose peer has not taken its replies checks so often whether it has, while memory is short; twice as long
/// each time, up to [`UNTAKEN_LONGEST`].
pub const UNTAKEN_PAUSE: Duration = Duration::from_millis(10);

/// See [`UNTAKEN_PAUSE`].
pub const UNTAKEN_LONGEST: Duration = Duration::from_millis(640);

/// Bytes of a reply that need no room of their own while memory is short: its peer has taken all before it, so that it goes
/// to the kernel at once. A READ over NFS returns no more then, unless its peer has taken more before.
pub const SMALL_REPLY: usize = 16 << 10;

/// Requests of one connection that may wait for a device at once. Linux clients send at most
/// 128 at a time; beyond that the connection is no longer read from.
pub const CONNECTION_PENDING: usize = 256;

/// Requests of one connection that may wait on purpose at once: as many as Windows allows (MS-SMB2 §3.3.1.2).
pub const CONNECTION_PARKED: usize = 512;

/// Bytes of unsolicited messages that one core's mailbox holds until the core drains it.
pub const MAILBOX: usize = 256 << 10;

/// Longest message of SMB in bytes that the receiver is not asked about. What is longer is a WRITE: names, security
/// descriptors and tickets end below it.
pub const SMB_SMALL: usize = 64 << 10;

/// Bytes of a message of SMB that identify it: the header that encryption puts in front, the message's own, and the fixed
/// part of a WRITE (MS-SMB2 §2.2.41, §2.2.1, §2.2.21).
pub const SMB_HEAD: usize = 256;

/// Bytes that a session of TLS is charged at rest: a record of 16 KiB that has begun, and the session's own state.
pub const TLS_SESSION: usize = 24 << 10;
/// Bytes of replies that are sealed at a time.
pub const TLS_BATCH: usize = 128 << 10;
/// What a waiting request is charged beyond the bytes of its call.
pub const PENDING_OVERHEAD: usize = 4096;

/// Reads of one connection before the others of its core are served.
pub const TURN: usize = 8;

/// Replies that a connection may have for its socket before it is no longer read from, and send before
/// the others of its core are served, in bytes, on a core with more than [`CROWD`] connections.
/// Signing that many takes some hundred microseconds. On other cores the bound is [`SEND_BYTES`]: fewer
/// large READs in a `writev` cost 20 µs more for each 256 KiB.
pub const CROWDED_TURN_BYTES: usize = 256 << 10;

/// Connections of one core beyond which requests with replies larger than [`SMALL_REPLY`] take turns, so that small calls
/// wait for one of them and not for all, and [`CROWDED_TURN_BYTES`] holds.
pub const CROWD: usize = 16;

/// Bytes of such replies that are run without turns in [`LARGE_EVERY`].
pub const LARGE_BYTES: usize = 1 << 20;

/// See [`LARGE_BYTES`].
pub const LARGE_EVERY: Duration = Duration::from_millis(1);

/// The parts that the budget is divided in.
pub const PARTS: usize = 16;

/// Parts of the budget that one address may hold: an IPv4 address, or the 64 bits of an IPv6 address that a network is
/// given. Half: one client alone keeps its speed, and no client alone takes the room of all others.
pub const PER_ADDRESS: usize = 8;

/// Parts of the budget that are for small calls alone.
pub const RESERVE: usize = 4;

/// Parts of the reserve that one address may hold beyond [`PER_ADDRESS`].
pub const RESERVE_PER_ADDRESS: usize = 4;

/// Parts of the budget that requests may hold which wait for limits on throughput.
pub const HELD: usize = 8;

/// The same for those of one client.
pub const HELD_PER_CLIENT: usize = 2;

/// Bytes of the budget for each connection that there may be. One at rest costs about as much, of other memory.
pub const BUDGET_PER_CONNECTION: usize = 1024;

/// Parts of all connections that one address may have.
pub const CONNECTIONS_PER_ADDRESS: usize = 12;

/// Descriptors that are kept for the server's own files and for connections to others.
pub const OWN_DESCRIPTORS: usize = 256;

/// Fewest descriptors that a server starts with: as many for connections as for itself.
pub const LEAST_DESCRIPTORS: u64 = 2 * OWN_DESCRIPTORS as u64;

/// A node of a pair that may not reply for now checks so often whether it may again.
pub const LEASE_PAUSE: Duration = Duration::from_millis(10);

/// A connection with replies that are withheld, of strict volumes while the partner of a mirror is lost, checks so often whether they
/// still are.
pub const WITHHELD_PAUSE: Duration = Duration::from_millis(20);

/// How far a peer may fall behind [`LEAST_RATE`] in taking replies, or in sending the rest of a request, before it is
/// dropped. Linux clients retransmit after 60 s of silence (`timeo=600`).
pub const STALL: Duration = Duration::from_secs(60);

/// The same while memory is short.
pub const STALL_SHORT_OF_MEMORY: Duration = Duration::from_secs(5);

/// Bytes a second that a peer has to move while a request or a reply is under way: a slow telephone line.
pub const LEAST_RATE: u64 = 4 << 10;

/// A connection that is so far behind [`LEAST_RATE`] is closed if others wait for its memory, the oldest first.
pub const SLOW: Duration = Duration::from_secs(2);

/// A request that has been under way for so long is closed if others wait for its memory and its address holds more
/// than its equal part.
pub const OLD: Duration = Duration::from_secs(5);

/// Bytes of a large request that have to be in the socket (or all of the rest, if that is less) while it waits for memory;
/// otherwise its peer counts as slow. Below what the kernel holds of a connection that is not read from.
pub const WAITING_BYTES: usize = 32 << 10;

/// How often peers are searched for that take nothing while others wait for memory.
pub const RELIEF: Duration = Duration::from_millis(100);

/// Checks that find such a peer to have taken nothing before it is dropped, if its address holds more than its equal part.
pub const RELIEF_LOOKS: u32 = 3;

/// How often stalled peers are searched for.
pub const SWEEP: Duration = Duration::from_secs(1);

/// How long replies under way may take to leave when the server stops.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Clients that one event loop counts apart; those beyond share one entry.
pub const MAX_COUNTED_CLIENTS: usize = 1000;

/// Pairs of a volume and a client that one event loop counts apart; beyond, the clients of a volume share one entry.
pub const MAX_COUNTED_VOLUME_CLIENTS: usize = 2000;

/// Clients of a volume that are limited apart. The tree must not grow with each address that requests come from; those beyond
/// share one place, like one client.
pub const MAX_LIMITED_CLIENTS: usize = 4096;

/// Most entries of the list that DUMP shows. The list informs and nothing
/// depends on it; the oldest is dropped first.
pub const MAX_MOUNTS: usize = 4096;

/// Bytes of the longest list that EXPORT shows. It informs as well; Linux reads it for `showmount` only.
pub const MAX_EXPORT_LIST: usize = 1 << 20;

/// Most bytes of results of a READDIR or READDIRPLUS, whatever it asks for: enough for some 600 entries with attributes, little
/// enough that a listing does not keep a core from other requests (the same as FSINFO's dtpref).
pub const MAX_LISTING: usize = 65_536;

const _: () = {
    assert!(MAX_RECORD >= MAX_IO + MAX_CALL_HEADER + MAX_HANDLE + 20);
    assert!(CONNECTION_IN_FLIGHT >= MAX_RECORD);
    assert!(RECORD_HEAD >= MAX_CALL_HEADER + MAX_HANDLE);
    assert!(
        SMALL_RECORD >= MAX_CALL_HEADER + MAX_HANDLE + 2 * (MAX_NAME + 8) + 64 + MAX_SYMLINK + 8,
        "SYMLINK is a small call"
    );
    assert!(
        SMALL_RECORD >= MAX_CALL_HEADER + 4 * (1024 + 8) + 64,
        "so are the lock manager's"
    );
    assert!(CROWDED_READ >= RECORD_HEAD && CROWDED_READ <= RECEIVE_BUFFER);
    assert!(SMALL_RECORD < LARGE_WRITE && LARGE_WRITE < MAX_RECORD);
    assert!(SMB_HEAD >= 52 + 64 + 48 && SMB_HEAD <= SMB_SMALL);
    assert!(
        CONNECTION_PARKED > CONNECTION_PENDING,
        "what waits on purpose is not what stops the reading"
    );
    assert!(SHORT_IN_FLIGHT >= SMALL_RECORD && SHORT_IN_FLIGHT < CONNECTION_IN_FLIGHT);
    assert!(
        PER_ADDRESS + RESERVE < PARTS,
        "when one address holds all it may, others still have room for large requests"
    );
    assert!(
        HELD + RESERVE < PARTS,
        "requests that wait for limits leave room for others"
    );
    assert!(HELD_PER_CLIENT < HELD && HELD_PER_CLIENT < PER_ADDRESS);
    assert!(RESERVE_PER_ADDRESS < PARTS && CONNECTIONS_PER_ADDRESS < PARTS);
    assert!(SLOW.as_secs() < STALL_SHORT_OF_MEMORY.as_secs());
    assert!(STALL_SHORT_OF_MEMORY.as_secs() < STALL.as_secs());
    assert!(SWEEP.as_millis() <= SLOW.as_millis() / 2);
    assert!(SWEEP.as_millis() % RELIEF.as_millis() == 0);
    assert!(SMALL_REPLY <= SHORT_IN_FLIGHT && SEND_BYTES <= CONNECTION_IN_FLIGHT);
    assert!(SCANT_READ >= RECORD_HEAD && SCANT_READ <= CROWDED_READ);
};

/// Longest message taken over UDP: lock arguments are some hundred bytes, names in them at most 1 KiB.
pub const DATAGRAM: usize = 8192;

/// Requests over UDP that wait at once.
pub const DATAGRAMS: usize = 64;

/// Most pieces of one `writev` (`UIO_MAXIOV` of Linux).
pub const SEND_PIECES: usize = 1024;

/// Most bytes offered to one `writev`. A socket's send buffer seldom takes more, and gathering
/// what will not be taken costs time.
pub const SEND_BYTES: usize = 2 << 20;

/// Calls to clients under way at once.
pub const CALLBACKS_AT_ONCE: usize = 64;

/// Of these, to one destination.
pub const CALLBACKS_PER_HOST: usize = 4;

/// Of these, to all that did not reply lately.
pub const CALLBACKS_TO_SILENT: usize = 16;

/// Destinations remembered as silent at most.
pub const MAX_SILENT: usize = 4096;

/// How long one attempt of such a call over UDP may take.
pub const CALLBACK_TRY: Duration = Duration::from_secs(1);

/// Attempts over UDP.
pub const CALLBACK_TRIES: usize = 3;

/// How long a call over TCP may take.
pub const CALLBACK_PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer taken: these calls are answered with a few words.
pub const MAX_CALLBACK_REPLY: usize = 4096;

/// Lookups of names at once. One that hangs (a name server that is gone takes half a minute) must not hold up all others;
/// more threads would only ask the same server.
pub const NAME_THREADS: usize = 4;

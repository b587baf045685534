//! Limits of the network side: the memory that peers may make the server hold, and for how long.
//!
//! **Memory.** Connections share one budget, an eighth of `--memory`. It is divided in sixteenths.
//! One address may hold [`PER_ADDRESS`] of it, and requests that wait for limits on throughput
//! [`HELD`]. The last [`RESERVE`] is for small calls alone, so that GETATTR is served whatever
//! large requests and replies take up.
//!
//! **Records.** A small record costs at most [`RECORD_GROWTH`] times the bytes that have arrived,
//! never its announced length. A record beyond [`SMALL_RECORD`] can only be a WRITE. Memory for a
//! WRITE is reserved once its first [`RECORD_HEAD`] bytes show a file handle of an export that
//! admits the peer. The announced length must fit the budget and the address's part. Bytes that are
//! still to arrive are counted separately and keep no small call out.
//!
//! **Time.** Both directions have a minimum rate. A peer may fall behind it by [`STALL`], or by
//! [`STALL_SHORT_OF_MEMORY`] when memory is short. The oldest slow connections are closed sooner if
//! others wait for their memory.

use std::time::Duration;

use super::{MAX_IO, MAX_NAME, MAX_SYMLINK};

/// Maximum number of bytes before the arguments of an RPC message. They are six words, and a
/// credential and a verifier of at most 400 bytes with their flavours and lengths (RFC 5531 §8.2,
/// §9).
pub const MAX_CALL_HEADER: usize = 24 + 2 * (8 + 400);

/// Maximum size in bytes of an encoded file handle with its length (RFC 1813 §2.4).
pub const MAX_HANDLE: usize = 4 + 64;

/// Maximum length of an RPC record in bytes: a WRITE of the largest size with its header.
pub const MAX_RECORD: usize = MAX_IO + 4096;

/// Maximum length in bytes of an RPC record that is not a WRITE. The longest are SYMLINK and the
/// lock manager's calls, which carry three opaque fields of 1 KiB.
pub const SMALL_RECORD: usize = 8 << 10;

/// Bytes of a record that identify it: the header of a call and the file handle of a WRITE.
pub const RECORD_HEAD: usize = 1024;

/// Maximum ratio of the memory of a small record under assembly to its received bytes. The memory
/// is at least [`RECORD_HEAD`] bytes.
pub const RECORD_GROWTH: usize = 4;

/// Maximum number of fragments of one record. A record of the largest size in the smallest usual
/// TCP segments stays below it; an endless row of empty fragments does not.
pub const MAX_FRAGMENTS: u32 = 4096;

/// Minimum size in bytes of a WRITE that takes its client's credit before it is read, if its volume
/// is limited.
pub const LARGE_WRITE: usize = 64 << 10;

/// Size of a core's receive buffer in bytes. Estimated from the L2 cache (256 KiB to 2 MiB) and the
/// length of a socket's receive queue under load. The system call is amortised long before.
pub const RECEIVE_BUFFER: usize = 256 << 10;

/// Bytes read at a time while the budget is used up: one call.
pub const SCANT_READ: usize = 1 << 10;

/// Bytes read at a time while memory is short or much is throttled. They hold some calls, or the
/// beginning of a WRITE, which decides whether the rest may be received.
pub const CROWDED_READ: usize = 8 << 10;

/// Bytes in flight (replies not yet taken by the kernel, waiting requests) at which a connection is
/// no longer read from. That is some READs of the largest size, and more than a Linux client's 128
/// slots need at the usual sizes.
pub const CONNECTION_IN_FLIGHT: usize = 4 << 20;

/// [`CONNECTION_IN_FLIGHT`] while memory is short. One reply may exceed it.
pub const SHORT_IN_FLIGHT: usize = 64 << 10;

/// Bytes of replies in the kernel at which a peer counts as not taking its replies, while memory is
/// short.
pub const UNTAKEN: u64 = 64 << 10;

/// First interval at which a connection checks whether its peer has taken its replies, while memory
/// is short. The interval doubles each time, up to [`UNTAKEN_LONGEST`].
pub const UNTAKEN_PAUSE: Duration = Duration::from_millis(10);

/// Maximum interval of these checks (see [`UNTAKEN_PAUSE`]).
pub const UNTAKEN_LONGEST: Duration = Duration::from_millis(640);

/// Maximum size in bytes of a reply that needs no memory of its own while memory is short. Its peer
/// has taken all earlier replies, so it goes to the kernel at once. A READ over NFS returns no more
/// then, unless its peer has taken more before.
pub const SMALL_REPLY: usize = 16 << 10;

/// Maximum number of requests of one connection that wait for a device. Linux clients send at most
/// 128 at a time; beyond the limit the connection is no longer read from.
pub const CONNECTION_PENDING: usize = 256;

/// Maximum number of parked requests of one connection: as many as Windows allows (MS-SMB2
/// §3.3.1.2).
pub const CONNECTION_PARKED: usize = 512;

/// Bytes of unsolicited messages that one core's mailbox holds until the core drains it.
pub const MAILBOX: usize = 256 << 10;

/// Maximum length in bytes of an SMB message that is received without asking its receiver. A longer
/// message is a WRITE: names, security descriptors and tickets are shorter.
pub const SMB_SMALL: usize = 64 << 10;

/// Bytes of an SMB message that identify it: the transform header of encryption, the message
/// header, and the fixed part of a WRITE (MS-SMB2 §2.2.41, §2.2.1, §2.2.21).
pub const SMB_HEAD: usize = 256;

/// Bytes charged for a TLS session at rest: a partial record of 16 KiB, and the session's own
/// state.
pub const TLS_SESSION: usize = 24 << 10;
/// Bytes of replies that are encrypted at a time.
pub const TLS_BATCH: usize = 128 << 10;
/// Bytes charged for a waiting request beyond the bytes of its call.
pub const PENDING_OVERHEAD: usize = 4096;

/// Reads from one connection before the others of its core are served.
pub const TURN: usize = 8;

/// Bytes of unsent replies at which a connection is no longer read from, and bytes written to it
/// before the others of its core are served, on a core with more than [`CROWD`] connections.
/// Signing that many takes some hundred microseconds. On other cores the bound is [`SEND_BYTES`]
/// once the peer is a [`PROVEN_READER`]: a READ of 256 KiB costs 20 µs less there.
pub const CROWDED_TURN_BYTES: usize = 256 << 10;

/// Bytes sent on a connection at which its peer counts as one that reads its replies. The buffers
/// of two sockets hold less.
pub const PROVEN_READER: u64 = 16 << 20;

/// Connections of one core beyond which [`CROWDED_TURN_BYTES`] holds and requests with replies
/// larger than [`SMALL_REPLY`] take turns. Small calls then wait for one such request and not for
/// all.
pub const CROWD: usize = 16;

/// Bytes of such replies that may be produced in each [`LARGE_EVERY`] without taking turns.
pub const LARGE_BYTES: usize = 1 << 20;

/// Interval to which [`LARGE_BYTES`] applies.
pub const LARGE_EVERY: Duration = Duration::from_millis(1);

/// Number of parts that the budget is divided into.
pub const PARTS: usize = 16;

/// Parts of the budget that one address may hold. An address is an IPv4 address, or the 64 bits of
/// an IPv6 address that a network is given. With half of the budget one client keeps its speed, and
/// no client takes the room of all others.
pub const PER_ADDRESS: usize = 8;

/// Parts of the budget reserved for small calls.
pub const RESERVE: usize = 4;

/// Parts of the reserve that one address may hold beyond [`PER_ADDRESS`].
pub const RESERVE_PER_ADDRESS: usize = 4;

/// Parts of the budget that throttled requests may hold.
pub const HELD: usize = 8;

/// Parts of the budget that the throttled requests of one client may hold.
pub const HELD_PER_CLIENT: usize = 2;

/// Bytes of the budget for each permitted connection. A connection at rest costs about as much
/// other memory.
pub const BUDGET_PER_CONNECTION: usize = 1024;

/// Parts of all connections that one address may have.
pub const CONNECTIONS_PER_ADDRESS: usize = 12;

/// File descriptors kept for the server's own files and for outgoing connections.
pub const OWN_DESCRIPTORS: usize = 256;

/// Minimum number of file descriptors with which a server starts: as many for connections as for
/// itself.
pub const LEAST_DESCRIPTORS: u64 = 2 * OWN_DESCRIPTORS as u64;

/// Interval at which a node of a pair that may not reply checks whether it may again.
pub const LEASE_PAUSE: Duration = Duration::from_millis(10);

/// Interval at which a connection checks whether its replies are still withheld. Replies of strict
/// volumes are withheld while the partner of the pair is lost.
pub const WITHHELD_PAUSE: Duration = Duration::from_millis(20);

/// Time by which a peer may fall behind [`LEAST_RATE`], in taking replies or in sending the rest of
/// a request, before it is dropped. Linux clients retransmit after 60 s of silence (`timeo=600`).
pub const STALL: Duration = Duration::from_secs(60);

/// [`STALL`] while memory is short.
pub const STALL_SHORT_OF_MEMORY: Duration = Duration::from_secs(5);

/// Minimum rate in bytes a second that a peer has to sustain while a request or a reply is in
/// flight: a slow telephone line.
pub const LEAST_RATE: u64 = 4 << 10;

/// Time behind [`LEAST_RATE`] after which a connection is closed if others wait for its memory. The
/// oldest is closed first.
pub const SLOW: Duration = Duration::from_secs(2);

/// Age of a request in flight, or time in which a peer takes less than a reply of the largest size,
/// after which the connection is closed if others wait for its memory. This holds only while its
/// address holds more than its equal part.
pub const OLD: Duration = Duration::from_secs(5);

/// Bytes of a large request that have to be in the socket while it waits for memory, or all of the
/// rest if that is less. Otherwise its peer counts as slow. The value is below the amount that the
/// kernel buffers for a connection that is not read from.
pub const WAITING_BYTES: usize = 32 << 10;

/// Interval of the search for peers that take no replies while others wait for memory.
pub const RELIEF: Duration = Duration::from_millis(100);

/// Consecutive checks without progress after which such a peer is dropped, if its address holds
/// more than its equal part. A peer gets one check more for each reply of the largest size that it
/// has taken, up to [`MOST_RELIEF_LOOKS`]: who held memory for longer had to read for it first.
pub const RELIEF_LOOKS: u32 = 3;

/// Consecutive checks without progress after which any such peer is dropped: 2 s. A lost packet may
/// cost a peer that takes its replies some hundred milliseconds (RFC 6298 §2.4), a busy machine as
/// much.
pub const MOST_RELIEF_LOOKS: u32 = 20;

/// Interval of the search for stalled peers.
pub const SWEEP: Duration = Duration::from_secs(1);

/// Time that replies in flight may take to be sent when the server stops.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Clients that one event loop counts individually; further ones share one entry.
pub const MAX_COUNTED_CLIENTS: usize = 1000;

/// Pairs of a volume and a client that one event loop counts individually. Beyond it, the clients
/// of a volume share one entry.
pub const MAX_COUNTED_VOLUME_CLIENTS: usize = 2000;

/// Pairs of an operation and the status it failed with that one event loop counts individually.
/// Beyond it, the failures of an operation share one entry.
pub const MAX_COUNTED_FAILURES: usize = 400;

/// Clients of a volume that are limited individually. The tree must not grow with each address that
/// sends requests, so further clients share one node, like one client.
pub const MAX_LIMITED_CLIENTS: usize = 4096;

/// Maximum number of entries of the list that DUMP returns. The list is informative; the oldest
/// entry is dropped first.
pub const MAX_MOUNTS: usize = 4096;

/// Maximum length in bytes of the list that EXPORT returns. It is informative as well; Linux reads
/// it for `showmount` only.
pub const MAX_EXPORT_LIST: usize = 1 << 20;

/// Maximum number of result bytes of a READDIR or READDIRPLUS, whatever the call asks for. It is
/// enough for some 600 entries with attributes, and a listing of this size does not keep a core
/// from other requests. FSINFO reports it as dtpref.
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

/// Maximum length in bytes of a message received over UDP. Lock arguments are some hundred bytes,
/// names in them at most 1 KiB.
pub const DATAGRAM: usize = 8192;

/// Maximum number of waiting requests that came over UDP.
pub const DATAGRAMS: usize = 64;

/// Maximum number of buffers in one `writev` (`UIO_MAXIOV` of Linux).
pub const SEND_PIECES: usize = 1024;

/// Maximum number of bytes offered to one `writev`. A socket's send buffer seldom takes more, and
/// gathering bytes that are not taken costs time.
pub const SEND_BYTES: usize = 2 << 20;

/// Maximum number of concurrent calls to clients.
pub const CALLBACKS_AT_ONCE: usize = 64;

/// Maximum number of concurrent calls to one destination.
pub const CALLBACKS_PER_HOST: usize = 4;

/// Maximum number of concurrent calls to all destinations that did not reply lately.
pub const CALLBACKS_TO_SILENT: usize = 16;

/// Maximum number of destinations remembered as silent.
pub const MAX_SILENT: usize = 4096;

/// Time that one attempt of a call over UDP may take.
pub const CALLBACK_TRY: Duration = Duration::from_secs(1);

/// Attempts of a call over UDP.
pub const CALLBACK_TRIES: usize = 3;

/// Time that a call over TCP may take.
pub const CALLBACK_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum length in bytes of a reply to such a call. Replies are a few words.
pub const MAX_CALLBACK_REPLY: usize = 4096;

/// Concurrent name lookups. One that hangs (half a minute if the name server is gone) must not hold
/// up all others; more threads would only ask the same server.
pub const NAME_THREADS: usize = 4;

//! The bounds of the engine, `store` and `volume`: how much of memory, of the device and of time each of its stages takes at once.

use std::time::Duration;

/// Views of snapshots that a volume keeps.
pub const SNAPSHOT_VIEWS: usize = 32;

/// Inodes that one insertion checks to find one that can be evicted.
pub const EVICTION_TRIES: usize = 8;

/// Most blocks in one device write: 256 KiB, from where on the disks measured gain
/// nothing more, and a write of the intent log does not wait long for one.
pub const CHECKPOINT_WRITE: usize = 64;

/// Blocks from which on stable data may go to its place at once: 64 KiB.
pub const DIRECT_LEAST: u64 = 16;

/// Runs of blocks that data is written to are at least this long on the average: 32 KiB.
/// Where free space is more scattered it goes another way.
pub const DIRECT_RUN: usize = 8;

/// How long a checkpoint that is not in a hurry and ahead of its schedule waits at least, for each write of [`CHECKPOINT_WRITE`] blocks: then it goes on if
/// the log wants nothing.
pub const CHECKPOINT_FIRST_YIELD: Duration = Duration::from_micros(250);

/// How long it waits each time after that, at most.
pub const CHECKPOINT_YIELD: Duration = Duration::from_millis(2);

/// How often it does.
pub const CHECKPOINT_YIELDS: usize = 5;

/// How long it then waits for the log to begin a write, to write behind that. Disks of 240 MB/s take 5 ms for a batch of the log of 24 writes of 64 KiB.
pub const CHECKPOINT_BEHIND_LOG: Duration = Duration::from_millis(5);

/// Bytes that a checkpoint may be ahead of its schedule.
pub const CHECKPOINT_LEAD: u64 = 4 << 20;

/// Most blocks that are read ahead of a stream: 4 MiB, what a device of 4 GB/s transfers in a millisecond, which is
/// long for a request in a full queue. More would only make others wait behind it.
pub const READ_AHEAD_WINDOW: u64 = 1024;

/// Streams that are followed in one shard. They are found by looking at all of them.
pub const READ_AHEAD_STREAMS: usize = 32;

/// Requests of a shard's files after which an idle stream is forgotten.
pub const READ_AHEAD_IDLE: u64 = 4096;

/// Times that reading ahead waits for nodes of the tree.
pub const READ_AHEAD_ROUNDS: usize = 16;

/// Most entries collected for one call, whatever the limit says.
pub const READDIR_ENTRIES: usize = 16_384;

/// Times that a request waits for memory to read into before it is put off.
pub const MEMORY_WAITS: u8 = 4;

/// Times that an operation waits for space before it fails for want of it.
pub const SPACE_WAITS: u8 = 2;

/// Pages that a clone of a range copies, and ranges that it logs, at most: 256 KiB in one record of the log.
pub const CLONE_PIECES: usize = 64;

/// Records of shared blocks that are kept in memory although they were not changed.
pub const SHARED_RUNS_KEPT: usize = 8192;

/// Directories between a directory and the root, at most; more is a cycle.
pub const MAX_DEPTH: usize = 1 << 20;

/// Pages up to which a commit goes through the log: 256 KiB. At the rates that
/// were measured for the log (1.3 ms a MiB) that costs less than a flush of its own.
pub const COMMIT_LOG_PAGES: usize = 64;

/// The same while the log keeps up: 1 MiB. One write that is durable by itself takes less
/// time than writing to places, a flush and a record.
pub const COMMIT_IDLE_LOG_PAGES: usize = 256;

/// Most pages that a commit sends to their places, all in one round: 8 MiB.
pub const COMMIT_ROUND: usize = 2048;

/// Rounds of a commit after which the rest is left to a checkpoint.
pub const COMMIT_ROUNDS: u16 = 4;

/// Longest record of a client in bytes: with its version it fits into a value of the tree.
pub const MAX_CLIENT_RECORD: usize = 1000;

/// Most records of clients in an aggregate: 16,384 each of hosts of NLM, clients of NFSv4 and persistent opens of SMB.
pub const MAX_CLIENT_RECORDS: usize = 49_152;

/// Calls that were carried out and are remembered, of one of eight shards.
pub const CALLS_PER_SHARD: usize = 2048;

/// Times that a checkpoint tries to read a node. Giving up poisons the
/// aggregate, so an error that passes should not be enough for it.
pub const CHECKPOINT_READ_TRIES: usize = 5;

/// Blocks that one checkpoint copies: 32 MiB, which a device takes in some tens
/// of milliseconds.
pub const SPLIT_BLOCKS: usize = 8192;

/// Leaves that one step of a split reads.
pub const SPLIT_LEAVES: usize = 4096;

/// Most blocks in one device write: 1 MiB.
pub const SPLIT_WRITE: usize = 256;

/// Bytes of edits that are collected before they are applied.
pub const MERGE_EDITS: usize = 8 << 20;

/// Windows that one checkpoint frees for removed files: 4 GiB of data.
/// Eyeballed: well below a second of work.
pub const REAP_WINDOWS: u64 = 32_768;

/// Windows looked at in one scan.
pub const SCAN_WINDOWS: usize = 512;

/// Steps in which progress is reported.
pub const MERGE_REPORT: u64 = 1 << 20;

/// Blocks that one checkpoint frees for jobs: 512 MiB.
pub const JOB_BLOCKS: u64 = 131_072;

/// Pieces of dead lists looked at in one scan.
pub const SCAN_PIECES: usize = 256;

/// The least rest of work in the background between two pieces.
pub const JOB_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of what a transfer has brought at which a checkpoint is asked for. At the rates of fast disks that is some ten a second, of
/// which each costs two flushes.
pub const RECEIVE_SOON: u64 = 32 << 20;

/// Bytes of a transfer that are received and not durable, at most.
pub const RECEIVE_MOST: u64 = 64 << 20;

/// Segments of a volume's history after which a checkpoint is asked for.
pub const SEALED_SOON: usize = 4;

/// Segments after which a snapshot waits for it.
pub const SEALED_MOST: usize = 512;

/// Times that a block is asked for while there is no memory to read it into.
pub const SEND_MEMORY_WAITS: usize = 64;

/// Blocks of a scrub's slice at least, 1 MiB: at the end of each the device's queue
/// runs empty.
pub const SCRUB_LEAST: u64 = 256;

/// Blocks of a slice at most, 256 MiB: its root is held for so long.
pub const SCRUB_MOST: u64 = 1 << 16;

/// Blocks after which a batch is closed, if more is queued: 1 MiB.
///
/// The time of a durable write is flat up to 128 KiB (133 µs for 4 KiB, 165 µs for
/// 128 KiB on a virtio disk) and linear from there (1.3 ms for 1 MiB). So 1 MiB is
/// near the full rate, and a larger batch would only make its first operations
/// wait for its last. Records of 4 KiB, 64 at a time, then cost 0.9 µs of
/// processor time each, all threads together (`benches/io.rs`).
pub const LOG_BATCH: u64 = 256;

/// Longest meta of one record in bytes.
pub const MAX_RECORD_META: usize = 256 << 10;

/// Blocks that are written when a log is made: 32 MiB. Small logs are whole at once.
pub const PREPARE_AT_ONCE: u64 = 8192;

/// Blocks that are ready for the log while it is in use: 32 MiB, what a fast device logs
/// in some rests.
pub const PREPARE_AHEAD: u64 = 8192;

/// Rest after a write while the log is in use, so that its writes, which wait behind
/// these, have most of the device.
pub const PREPARE_REST: Duration = Duration::from_millis(10);

/// Blocks of tree nodes in one write: 256 KiB, from where on the disks measured gain nothing more.
pub const NODE_WRITE: usize = 64;

/// Blocks taken from the allocator at a time for tree nodes.
pub const NODE_RESERVE: u32 = 256;

/// Most blocks of a checkpoint in flight: 2 MiB, a millisecond of a fast disk. More does not make it any
/// faster, and writes of the intent log, for which clients wait, queue up behind it.
pub const CHECKPOINT_IN_FLIGHT: usize = 512;

/// Most blocks of one in flight that nobody waits for: two writes, so that the device has the next when it has done one.
pub const CHECKPOINT_CALM_IN_FLIGHT: usize = 128;

/// One part of memory in this many may be nodes that wait to be written, and as
/// much again nodes in flight. Together that is half of what is kept back for
/// checkpoints; the other half is for the nodes that have to be read.
pub const CHECKPOINT_MEMORY_SHARE: usize = 64;

/// Threads that write data to its place outside of checkpoints and flush.
pub const SETTLE_THREADS: usize = 2;

/// Most blocks that one of them has in flight: 2 MiB.
pub const SETTLE_IN_FLIGHT: usize = 512;

/// Most blocks that it makes durable by one flush, unless one request has more: 4 MiB.
pub const SETTLE_TURN: usize = 1024;

/// Most pages evicted at a time: the next allocations then need no search.
pub const EVICT_BATCH: usize = 32;

/// But no more than one page in this many of a shard, or a small shard would be
/// emptied whatever its pages are worth.
pub const EVICT_SHARE: usize = 16;

/// Queue entries examined under one lock.
pub const EVICT_SEARCH: usize = 256;

/// Most blocks in one device read ahead: 512 KiB. A request that joins waits for the whole of it.
pub const AHEAD_READ: usize = 128;

/// One part in this many of the page frames may be read ahead and unread. Less than the cache's
/// small queue has (`cache/shard.rs`), or pages would be evicted before they are asked for.
pub const AHEAD_SHARE: usize = 16;

/// At most so many blocks are read ahead and unread (8 MiB), however much memory there is. With four times as many, sixteen
/// streams had so much in the device's queue that a scheduler which sorts (mq-deadline) served the stream
/// that its head was at for up to half a second while the others waited (p99 of 256 KiB 130 ms, not 35).
pub const AHEAD_MOST: usize = 2048;

/// One part in this many of what may be unread can be read ahead even if there is no room: dropping
/// the oldest makes some.
pub const AHEAD_LEAST: usize = 32;

/// Blocks of a buffer that scattered operations of a device go through: 512 KiB, the longest read ahead.
pub const STAGING_BLOCKS: usize = AHEAD_READ;

/// Such buffers of an aggregate's device: 8 MiB, enough in flight for any disk.
pub const STAGING_BUFFERS: usize = 16;

/// Such buffers of a log: 2 MiB, its one batch and the longest record that still joined it.
pub const LOG_STAGING_BUFFERS: usize = 4;

/// But for each of the two no more than one frame in this many of the pool.
pub const STAGING_SHARE: usize = 32;

/// Most blocks in one device read of the cache: 1 MiB.
pub const CACHE_READ: usize = 256;

/// Shorter runs of free blocks than this are passed over while there are longer ones: 32 KiB.
/// Estimated; extents hold 32 blocks, and short runs fragment them.
pub const LEAST_RUN: u32 = 8;

/// The device grows by an eighth, but by no less than this (128 MiB) …
pub const GROWTH_LEAST_STEP: u64 = 32_768;

/// … and no more than this (1 GiB): fallocate takes milliseconds for it.
pub const GROWTH_MOST_STEP: u64 = 262_144;

/// How long a caller that must not wait tries for the allocator's lock: it is held for a few
/// microseconds, except while a map page is read.
pub const SPACE_LOCK: Duration = Duration::from_micros(100);

/// The smallest step worth growing by when a larger one is refused: 1 MiB.
pub const LEAST_GROWTH: u64 = 256;

/// How often a device's lock is tried: for 10 s, which is for the I/O of a killed predecessor to end.
pub const LOCK_TRIES: u32 = 500;

/// How long after one another.
pub const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Bytes that a growing device leaves free on the host's file system, for what has to be written beside it when that is
/// full.
pub const HOST_MARGIN: u64 = 32 << 20;

/// Threads of a device without io_uring. Enough to keep a disk's own queue busy; each costs a stack that is hardly
/// touched.
pub const DEVICE_THREADS: usize = 16;

/// Most pieces in one vectored call (`UIO_MAXIOV`).
pub const DEVICE_PIECES: usize = 1024;

/// Operations in flight with io_uring. Disks gain nothing beyond; more wait in the queue.
pub const DEVICE_DEPTH: usize = 256;

/// Most blocks in one read of a verification: 256 KiB, from which on larger ones are no faster.
pub const VERIFY_READ: usize = 64;

/// Such reads in flight. Sixteen of that length saturate what was measured (1.2 GB/s).
pub const VERIFY_DEPTH: usize = 16;

/// Blocks that a sweep sorts at a time: 256 MiB.
pub const VERIFY_BATCH: usize = 1 << 16;

/// Roots of volumes' trees that a start reads at once: as many as a device takes requests at a time.
pub const RESTORE_ROOTS: usize = 256;

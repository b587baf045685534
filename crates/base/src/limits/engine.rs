//! Limits of the engine (`store` and `volume`): the memory, device transfers and time that each
//! stage may use at once.

use std::time::Duration;

/// Maximum number of snapshot views that a volume keeps open.
pub const SNAPSHOT_VIEWS: usize = 32;

/// Inodes that one insertion examines in search of one to evict.
pub const EVICTION_TRIES: usize = 8;

/// Maximum number of blocks in one device write of a checkpoint: 256 KiB. Larger writes gained
/// nothing on the disks measured, and a write of the intent log would wait longer behind one.
pub const CHECKPOINT_WRITE: usize = 64;

/// Minimum number of blocks of a direct write: 64 KiB. Smaller stable writes go through the intent
/// log.
pub const DIRECT_LEAST: u64 = 16;

/// Minimum average run length, in blocks, of the free space given to a direct write: 32 KiB. If
/// free space is more scattered, the data goes through the log or a checkpoint.
pub const DIRECT_RUN: usize = 8;

/// Minimum pause after each write of [`CHECKPOINT_WRITE`] blocks, for a checkpoint that is not
/// urgent and is ahead of its schedule. After the pause it continues if the log has nothing to
/// write.
pub const CHECKPOINT_FIRST_YIELD: Duration = Duration::from_micros(250);

/// Maximum length of each further pause.
pub const CHECKPOINT_YIELD: Duration = Duration::from_millis(2);

/// Maximum number of further pauses after one write.
pub const CHECKPOINT_YIELDS: usize = 5;

/// Maximum time that a checkpoint then waits for the log to begin a write, so that its own write
/// queues behind the log's. Disks of 240 MB/s take 5 ms for a log batch of 24 writes of 64 KiB.
pub const CHECKPOINT_BEHIND_LOG: Duration = Duration::from_millis(5);

/// Bytes by which a checkpoint may be ahead of its schedule.
pub const CHECKPOINT_LEAD: u64 = 4 << 20;

/// Maximum read-ahead of one stream in blocks: 4 MiB, the amount that a device of 4 GB/s transfers
/// in a millisecond. More would make other requests wait behind it.
pub const READ_AHEAD_WINDOW: u64 = 1024;

/// Maximum number of sequential streams tracked in one shard. The search for a stream is linear.
pub const READ_AHEAD_STREAMS: usize = 32;

/// Requests to a shard's files after which an idle stream is forgotten.
pub const READ_AHEAD_IDLE: u64 = 4096;

/// Maximum number of tree-node reads that one read-ahead waits for.
pub const READ_AHEAD_ROUNDS: usize = 16;

/// Maximum number of entries collected for one READDIR call, whatever limit the call gives.
pub const READDIR_ENTRIES: usize = 16_384;

/// Number of times that a request waits for memory to read into before it is deferred.
pub const MEMORY_WAITS: u8 = 4;

/// Number of times that an operation waits for space before it fails with "no space".
pub const SPACE_WAITS: u8 = 2;

/// Number of records that a count of a volume's inodes reads before it checks whether the engine
/// stops.
pub const COUNT_PART: usize = 10_000;

/// Maximum number of pages that one clone of a range copies, and of ranges that it logs: 256 KiB in
/// one log record.
pub const CLONE_PIECES: usize = 64;

/// Maximum number of unmodified shared-block records kept in memory.
pub const SHARED_RUNS_KEPT: usize = 8192;

/// Maximum depth of a directory below the root. A longer chain of parents is a cycle.
pub const MAX_DEPTH: usize = 1 << 20;

/// Maximum number of pages that COMMIT writes through the log: 256 KiB. At the measured rate of the
/// log (1.3 ms a MiB) that costs less than a flush of its own.
pub const COMMIT_LOG_PAGES: usize = 64;

/// [`COMMIT_LOG_PAGES`] while the log is idle: 1 MiB. One durable log write takes less time than
/// writing the pages in place, a flush and a record.
pub const COMMIT_IDLE_LOG_PAGES: usize = 256;

/// Maximum number of pages that a commit writes in place in one round: 8 MiB.
pub const COMMIT_ROUND: usize = 2048;

/// Maximum number of rounds of a commit. The remaining pages are left to a checkpoint.
pub const COMMIT_ROUNDS: u16 = 4;

/// Maximum length of a client record in bytes. With its version it fits into a value of the tree.
pub const MAX_CLIENT_RECORD: usize = 1000;

/// Maximum number of client records in an aggregate: 16,384 each for NLM hosts, NFSv4 clients and
/// persistent SMB opens, and 4,096 each for the files of NLM hosts and of NFSv4 clients.
pub const MAX_CLIENT_RECORDS: usize = 57_344;

/// Completed calls remembered by one of the eight shards.
pub const CALLS_PER_SHARD: usize = 2048;

/// Attempts of a checkpoint to read a node. Giving up poisons the aggregate, so a transient error
/// should not be enough.
pub const CHECKPOINT_READ_TRIES: usize = 5;

/// Maximum number of shared blocks that one checkpoint copies while it splits a clone: 32 MiB, some
/// tens of milliseconds of device time.
pub const SPLIT_BLOCKS: usize = 8192;

/// Maximum number of leaves that one step of a split reads.
pub const SPLIT_LEAVES: usize = 4096;

/// Maximum number of blocks in one device write of a split: 1 MiB.
pub const SPLIT_WRITE: usize = 256;

/// Bytes of edits collected before they are applied to the trees.
pub const MERGE_EDITS: usize = 8 << 20;

/// Maximum number of 128 KiB windows of removed files that one checkpoint frees: 4 GiB of data.
/// Estimated to take well below a second.
pub const REAP_WINDOWS: u64 = 32_768;

/// Windows examined in one scan.
pub const SCAN_WINDOWS: usize = 512;

/// Steps between two progress reports of a merge.
pub const MERGE_REPORT: u64 = 1 << 20;

/// Maximum number of blocks that one checkpoint frees for background jobs: 512 MiB.
pub const JOB_BLOCKS: u64 = 131_072;

/// Dead-list pieces examined in one scan.
pub const SCAN_PIECES: usize = 256;

/// Minimum pause between two pieces of background work.
pub const JOB_PAUSE: Duration = Duration::from_millis(100);

/// Bytes received by a transfer after which a checkpoint is requested. On fast disks that is about
/// ten checkpoints a second, at two flushes each.
pub const RECEIVE_SOON: u64 = 32 << 20;

/// Maximum number of bytes that a transfer has received and not yet made durable.
pub const RECEIVE_MOST: u64 = 64 << 20;

/// Sealed segments of a volume's history after which a checkpoint is requested.
pub const SEALED_SOON: usize = 4;

/// Sealed segments of a volume's history after which a snapshot waits for the checkpoint.
pub const SEALED_MOST: usize = 512;

/// Attempts to read a block for a transfer while there is no memory to read it into.
pub const SEND_MEMORY_WAITS: usize = 64;

/// Minimum number of blocks in a scrub slice: 1 MiB. The device's queue runs empty at the end of
/// each slice.
pub const SCRUB_LEAST: u64 = 256;

/// Maximum number of blocks in a scrub slice: 256 MiB. The slice's root is held until the slice
/// ends.
pub const SCRUB_MOST: u64 = 1 << 16;

/// Blocks after which a log batch is closed if more is queued: 1 MiB.
///
/// The time of a durable write is flat up to 128 KiB and linear from there. On a virtio disk it was
/// 133 µs for 4 KiB, 165 µs for 128 KiB and 1.3 ms for 1 MiB. So 1 MiB is near the full rate; a
/// larger batch would only make its first operations wait for its last. Records of 4 KiB, 64 at a
/// time, then cost 0.9 µs of processor time each, all threads together (`benches/io.rs`).
pub const LOG_BATCH: u64 = 256;

/// Maximum length of one record's metadata in bytes.
pub const MAX_RECORD_META: usize = 256 << 10;

/// Blocks prepared when a log is created: 32 MiB. Smaller logs are prepared as a whole.
pub const PREPARE_AT_ONCE: u64 = 8192;

/// Prepared blocks kept ahead of the log's head while the log is in use: 32 MiB. A fast device logs
/// that much in a few pauses ([`PREPARE_REST`]).
pub const PREPARE_AHEAD: u64 = 8192;

/// Pause after each preparing write while the log is in use. Log writes queue behind these, so the
/// pause leaves them most of the device.
pub const PREPARE_REST: Duration = Duration::from_millis(10);

/// Blocks of tree nodes in one write: 256 KiB. Larger writes gained nothing on the disks measured.
pub const NODE_WRITE: usize = 64;

/// Blocks taken from the allocator at a time for tree nodes.
pub const NODE_RESERVE: u32 = 256;

/// Maximum number of checkpoint blocks in flight: 2 MiB, a millisecond of a fast disk. More does
/// not make the checkpoint faster and delays the intent log, for which clients wait.
pub const CHECKPOINT_IN_FLIGHT: usize = 512;

/// Maximum number of blocks in flight of a checkpoint that nothing waits for: two writes, so that
/// the device always has the next one queued.
pub const CHECKPOINT_CALM_IN_FLIGHT: usize = 128;

/// Divisor of the memory for nodes that wait to be written, and again for nodes in flight. Together
/// they take half of the memory reserved for checkpoints; the other half is for nodes that have to
/// be read.
pub const CHECKPOINT_MEMORY_SHARE: usize = 64;

/// Threads that write data in place outside of checkpoints, and flush it.
pub const DIRECT_WRITE_THREADS: usize = 2;

/// Maximum number of blocks in flight of one such thread: 2 MiB.
pub const DIRECT_WRITE_IN_FLIGHT: usize = 512;

/// Maximum number of blocks that one such thread makes durable with one flush: 4 MiB. A single
/// larger request may exceed it.
pub const DIRECT_WRITE_TURN: usize = 1024;

/// Maximum number of pages evicted at a time, so that the next allocations need no search.
pub const EVICT_BATCH: usize = 32;

/// Divisor of a shard's pages: the maximum share evicted at a time. Otherwise a small shard would
/// be emptied, whatever its pages are worth.
pub const EVICT_SHARE: usize = 16;

/// Eviction-queue entries examined under one lock.
pub const EVICT_SEARCH: usize = 256;

/// Maximum number of blocks in one read-ahead from the device: 512 KiB. A request that joins waits
/// for the whole of it.
pub const AHEAD_READ: usize = 128;

/// Divisor of the page frames: the maximum share that may hold unread read-ahead. It is less than
/// the share of the cache's small queue (`cache/shard.rs`), or pages would be evicted before they
/// are requested.
pub const AHEAD_SHARE: usize = 16;

/// Maximum number of unread read-ahead blocks: 8 MiB, whatever the size of memory. With four times
/// as many, a sorting scheduler (mq-deadline) served one of sixteen streams for up to half a second
/// while the others waited. The p99 of 256 KiB reads was then 130 ms instead of 35 ms.
pub const AHEAD_MOST: usize = 2048;

/// Divisor of the unread read-ahead limit: this share may be read ahead even if the limit is
/// reached, because the oldest pages are dropped for it.
pub const AHEAD_LEAST: usize = 32;

/// Blocks of one staging buffer for scattered device operations: 512 KiB, the longest read-ahead.
pub const STAGING_BLOCKS: usize = AHEAD_READ;

/// Staging buffers of an aggregate's device: 8 MiB, enough in flight for any disk.
pub const STAGING_BUFFERS: usize = 16;

/// Staging buffers of a log: 2 MiB, for one batch and the longest record that can still join it.
pub const LOG_STAGING_BUFFERS: usize = 4;

/// Divisor of the pool's frames: the maximum share that the staging buffers of the device, or of
/// the log, may take.
pub const STAGING_SHARE: usize = 32;

/// Maximum number of blocks in one device read of the cache: 1 MiB.
pub const CACHE_READ: usize = 256;

/// Minimum run of free blocks that is allocated while longer runs exist: 32 KiB. Estimated; extents
/// hold 32 blocks, and short runs fragment them.
pub const LEAST_RUN: u32 = 8;

/// Minimum growth of a device in blocks: 128 MiB. A device grows by an eighth of its size within
/// these bounds.
pub const GROWTH_LEAST_STEP: u64 = 32_768;

/// Maximum growth of a device in blocks: 1 GiB. fallocate takes milliseconds for it.
pub const GROWTH_MOST_STEP: u64 = 262_144;

/// Time for which a caller that must not block tries to take the allocator's lock. The lock is held
/// for a few microseconds, except while a map page is read.
pub const SPACE_LOCK: Duration = Duration::from_micros(100);

/// Minimum growth of a device in blocks after a larger step was refused: 1 MiB.
pub const LEAST_GROWTH: u64 = 256;

/// Attempts to lock a device or a folder. They span 10 s, so that the I/O of a killed predecessor
/// can end.
pub const LOCK_TRIES: u32 = 500;

/// Pause between two attempts to lock a device or a folder.
pub const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Extents of a device's file that one call reads, when holes are searched for at a start: 14 KiB.
pub const EXTENTS_READ: usize = 256;

/// Pieces of free space that are discarded at a time: 124 MiB, as much as a chunk has beside its
/// map. A hole of any length costs a file system about the same.
pub const DISCARD_PIECES: u32 = 31;

/// Steps of growth that stay provisioned when free space is discarded. One is provisioned again
/// after each checkpoint; the second keeps space from being discarded and provisioned in turns.
pub const DISCARD_LEAVES_STEPS: u64 = 2;

/// Pause after each discard. File systems hold all I/O to a file while they make a hole in it.
pub const DISCARD_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that a growing device leaves free on the host's file system, for the files beside it that
/// must still be written.
pub const HOST_MARGIN: u64 = 32 << 20;

/// Threads of a device without io_uring. They keep a disk's own queue busy; each costs a stack that
/// is hardly touched.
pub const DEVICE_THREADS: usize = 16;

/// Maximum number of buffers in one vectored call (`UIO_MAXIOV`).
pub const DEVICE_PIECES: usize = 1024;

/// Operations in flight with io_uring. Disks gain nothing from more; further operations wait in the
/// queue.
pub const DEVICE_DEPTH: usize = 256;

/// Maximum number of blocks in one read of a verification: 256 KiB. Larger reads are no faster.
pub const VERIFY_READ: usize = 64;

/// Verification reads in flight. Sixteen reads of [`VERIFY_READ`] blocks saturate the disks
/// measured (1.2 GB/s).
pub const VERIFY_DEPTH: usize = 16;

/// Blocks that a sweep sorts at a time: 256 MiB.
pub const VERIFY_BATCH: usize = 1 << 16;

/// Roots of volume trees that a start reads at once: the number of requests that a device takes at
/// a time.
pub const RESTORE_ROOTS: usize = 256;

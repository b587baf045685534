//! Limits of aggregates on Ceph RADOS.

use std::time::Duration;

use super::BLOCK_SIZE;

/// Blocks of an object: 4 MiB, the size that Ceph's own block devices use.
pub const OBJECT_BLOCKS: u64 = 1024;

/// Operations that the client library admits at a time (`objecter_inflight_ops`). A further call
/// blocks its thread.
const LIBRARY_OPERATIONS: usize = 1024;

/// Bytes of writes that the client library admits at a time (`objecter_inflight_op_bytes`): 100
/// MiB.
const LIBRARY_BYTES: usize = 100 << 20;

/// Maximum number of data operations in flight; more wait in a queue of their own.
pub const DATA_OPERATIONS: usize = 512;

/// Maximum number of bytes of data operations in flight: 64 MiB.
pub const DATA_BYTES: usize = 64 << 20;

/// Maximum number of operations in flight on the log, the owner's object and files.
pub const LOG_OPERATIONS: usize = 256;

/// Maximum number of bytes in flight on the log, the owner's object and files: 16 MiB. One larger
/// operation is admitted alone.
pub const LOG_BYTES: usize = 16 << 20;

const _: () = assert!(DATA_OPERATIONS + LOG_OPERATIONS < LIBRARY_OPERATIONS);
const _: () = assert!(DATA_BYTES + LOG_BYTES < LIBRARY_BYTES);

/// Maximum number of blocks in one write of a checkpoint: an object.
pub const LONGEST_WRITE: usize = OBJECT_BLOCKS as usize;

/// Maximum number of blocks that a checkpoint has in flight: 32 MiB. At 5 ms a write that is 6
/// GB/s; direct writes and the log need the rest of [`DATA_BYTES`].
pub const WRITES_IN_FLIGHT: usize = 8192;

/// Minimum number of segments in a log: recovery needs four of 4 MiB.
pub const LOG_SEGMENTS_MIN: u64 = 4;

/// Maximum number of segments in a log: 512 MiB. Replaying the log is a part of each takeover.
pub const LOG_SEGMENTS_MAX: u64 = 128;

/// Bytes of a new device.
pub const FIRST_BYTES: u64 = 64 << 20;

/// Divisor of a pool's size: the share that stays free, so that a full pool is an error and never a
/// hang. Ceph's statistics are some seconds old.
pub const FLOOR_SHARE: u64 = 20;

/// Minimum number of bytes that stay free in a pool: 256 MiB.
pub const FLOOR_MIN: u64 = 256 << 20;

/// Pause between two reads of the pool's free space.
pub const SPACE_PERIOD: Duration = Duration::from_secs(2);

/// Time within which an owner may answer after it has sent a touch that was accepted.
pub const LEASE: Duration = Duration::from_secs(2);

/// Pause between two touches.
pub const TOUCH_PERIOD: Duration = Duration::from_millis(500);

/// Time for which a new owner waits after the last touch could have been accepted: the lease, 1 %
/// for clocks of different speeds, and the time between sending and noting.
pub const LEASE_WAIT: Duration = Duration::from_millis(2_120);

/// Time without a touch after which an owner is taken for dead.
pub const SILENCE: Duration = Duration::from_millis(1_500);

/// Pause between two checks of another owner's touches.
pub const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Maximum number of standbys of an aggregate that are listed. Each one reads the objects of all.
pub const STANDBYS_MAX: usize = 8;

/// Pause between two beats of a standby.
pub const STANDBY_PERIOD: Duration = Duration::from_secs(1);

/// Time without a beat after which a standby is not listed any more.
pub const STANDBY_SILENCE: Duration = Duration::from_secs(5);

/// Pause between two attempts to shut earlier owners out.
pub const BLOCKLIST_RETRY: Duration = Duration::from_secs(1);

/// Time after the end of its lease after which an owner drops everything and starts again: what it
/// has queued for the cluster must not arrive much later.
pub const EXPIRY: Duration = Duration::from_secs(60);

const _: () = assert!(SILENCE.as_millis() > 2 * TOUCH_PERIOD.as_millis());
const _: () = assert!(LEASE_WAIT.as_millis() * 100 > LEASE.as_millis() * 101);

/// Seconds for which a fenced owner stays on the blocklist: a year. A suspended machine may sleep
/// for longer than Ceph's default of an hour, and its library then sends writes of data again.
pub const BLOCKLIST_SECONDS: u32 = 365 * 86_400;

/// Seconds that a connection to the monitors, or an answer of theirs, may take.
pub const MONITOR_SECONDS: u32 = 30;

/// Maximum number of bytes of a file that is kept as an object: 64 MiB. RADOS takes 90 MB in a
/// write.
pub const FILE_BYTES: usize = 64 << 20;

/// Maximum number of bytes of an attribute that is read.
pub const ATTRIBUTE_BYTES: usize = 4096;

const _: () = assert!(OBJECT_BLOCKS as usize * BLOCK_SIZE <= LOG_BYTES);

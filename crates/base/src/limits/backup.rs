//! Limits of backups: on the objects of a bucket, and on the memory that a backup takes.

use std::time::Duration;

/// Size in bytes at which a pack of chunks is uploaded.
pub const PACK_BYTES: usize = 16 << 20;

/// Maximum size of an object that is read as a whole, in bytes: a pack is somewhat larger than
/// [`PACK_BYTES`], and one chunk may come on top.
pub const MAX_OBJECT: u64 = 2 * PACK_BYTES as u64;

/// Size in bytes, before compression, at which a segment of a manifest is closed.
pub const SEGMENT_BYTES: usize = 256 << 10;

/// Maximum size of a chunk in bytes, before compression. A window of a file has half of it, and a
/// segment may grow beyond [`SEGMENT_BYTES`] by an entry.
pub const MAX_CHUNK: usize = 1 << 20;

/// Segments that one list of segments refers to.
pub const SEGMENTS_PER_LIST: usize = 8192;

/// Chunks that a backup knows beside those of its base, so as not to upload them again. They take
/// some 64 MB of memory.
pub const KNOWN_CHUNKS: usize = 1 << 20;

/// Chunks that one object of the index names.
pub const INDEX_CHUNKS: usize = 1 << 14;

/// Segments and objects of the index of which a vault notes the packs that they refer to. They take
/// some 100 MB of memory; further ones are read.
pub const KNOWN_SEGMENTS: usize = 1 << 20;

/// Size in bytes at which an object with such notes is closed.
pub const REFS_BYTES: usize = 4 << 20;

/// Blocks of a volume that are read ahead for a backup.
pub const AHEAD_BLOCKS: usize = 2048;

/// Bytes of chunks that a restore fetches at a time.
pub const FETCH_BYTES: usize = 8 << 20;

/// Requests that a restore has in flight.
pub const FETCHES_AT_ONCE: usize = 4;

/// Maximum length of the name of a vault or of a backup in bytes.
pub const MAX_NAME: usize = 63;

/// Attempts of a request that the bucket does not answer.
pub const TRIES: u32 = 6;

/// Pause before the second attempt. Each further pause is twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Time within which a bucket has to answer a request, with its data.
pub const REQUEST_TIME: Duration = Duration::from_secs(120);

const _: () = assert!(SEGMENT_BYTES * 2 <= MAX_CHUNK && MAX_CHUNK < PACK_BYTES);

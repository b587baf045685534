//! The bounds of the control plane: what users may ask for, and what a client of the API may make the server hold.

/// Most rules of one export policy.
pub const MAX_EXPORT_RULES: usize = 64;

/// Most clients of one rule of an export policy.
pub const MAX_RULE_CLIENTS: usize = 256;

/// Most bytes of a snapshot policy.
pub const MAX_SNAPSHOT_POLICY: usize = 16 << 10;

/// Greatest weight of a volume in the shaper.
pub const MAX_WEIGHT: u64 = 65_536;

/// Most bytes of a request's body. The largest that means anything, an export policy of long rules, is a tenth of it.
pub const MAX_BODY: usize = 256 << 10;

/// Most bytes of all bodies that are being read or worked on.
pub const MAX_BODIES: usize = 8 << 20;

/// Most bytes of a refused body that are read and discarded: a client that is still sending would otherwise see its
/// connection break instead of the reply.
pub const MAX_DISCARD: u64 = 1 << 30;

/// Most resources in a page, whatever the client says.
pub const MAX_PAGE: usize = 1000;

/// Most fields to order by.
pub const MAX_ORDER_KEYS: usize = 8;

/// Most bytes of a filter.
pub const MAX_FILTER: usize = 8192;

/// Most parentheses and negations within each other, which bounds the recursion.
pub const MAX_FILTER_DEPTH: usize = 32;

/// Most connections at once.
pub const MAX_API_CONNECTIONS: usize = 512;

/// Most connections of one address that have not shown a token.
pub const MAX_UNKNOWN_PER_ADDRESS: usize = 128;

/// Seconds that a sign-in of a browser lasts.
pub const LOGIN_SECONDS: i64 = 12 * 3600;

/// Most sign-ins at once; beyond it the oldest ends.
pub const MAX_LOGINS: usize = 1000;

/// Most bytes of a request to sign in: a token and little more.
pub const MAX_LOGIN_BODY: u64 = 4096;

/// Wrong tokens after which an address has to wait before it tries to sign in again.
pub const MAX_WRONG_TOKENS: u32 = 10;

/// Seconds for which wrong tokens count.
pub const WRONG_TOKEN_SECONDS: i64 = 60;

/// Most addresses whose wrong tokens are counted.
pub const MAX_WRONG_ADDRESSES: usize = 4096;

/// Most bytes of a request's head.
pub const MAX_HEAD: usize = 64 << 10;

/// Most paths of an update mask: more than any message has fields.
pub const MAX_MASK_PATHS: usize = 256;

/// Most labels of a resource (the public APIs' rule).
pub const MAX_RESOURCE_LABELS: usize = 64;

/// Most bytes of a label's key or value (the public APIs' rule).
pub const MAX_RESOURCE_LABEL: usize = 63;

/// Seconds that rings of rows by the second hold.
pub const LIVE_SECONDS: u64 = 600;

/// Minutes that rings of rows by the minute hold.
pub const LIVE_MINUTES: u64 = 1440;

/// Most pools with rows.
pub const LIVE_POOLS: usize = 100;

/// Most volumes with rows: the busiest.
pub const LIVE_VOLUMES: usize = 500;

/// Most clients with rows: the busiest.
pub const LIVE_CLIENTS: usize = 200;

/// Most pairs of a volume and a client with rows: the busiest.
pub const LIVE_VOLUME_CLIENTS: usize = 400;

/// The part of the memory that rows may take.
pub const LIVE_SHARE: u64 = 256;

/// Most bytes of all rows.
pub const LIVE_BYTES: u64 = 12 << 20;

/// Most terms of a selection of rows.
pub const LIVE_TERMS: usize = 64;

/// Most streams of live data at once.
pub const LIVE_READERS: usize = 32;

/// Most missed seconds that a stream which goes on begins with.
pub const LIVE_PAST: u64 = 120;

/// Seconds that a reader of live data may be behind before it is dropped.
pub const LIVE_BEHIND: u64 = 10;

/// Bytes of text after which a piece of the metrics is handed to its reader.
pub const METRICS_PIECE: usize = 16 << 10;

/// Most readers of the metrics at once.
pub const METRICS_READERS: usize = 8;

/// Seconds within which a reader has to take all metrics.
pub const METRICS_SECONDS: u64 = 60;

/// Most bytes of a file's path in a request, as Linux's PATH_MAX.
pub const MAX_FILE_PATH: usize = 4096;

/// Most versions of a file in one response: the newest.
pub const MAX_FILE_VERSIONS: usize = 1000;

/// Most searches for files and restores of files at once.
pub const MAX_FILE_JOBS: usize = 4;

/// Most downloads out of snapshots at once.
pub const MAX_DOWNLOADS: usize = 16;

/// Bytes of a download that are in memory at a time.
pub const DOWNLOAD_PIECE: u64 = 256 << 10;

/// Most conditions in a list.
pub const MAX_CONDITIONS: usize = 1000;

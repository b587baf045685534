//! Limits of the control plane: on the resources of users, and on the memory that a client of the
//! API may hold.

/// Maximum number of rules of one export policy.
pub const MAX_EXPORT_RULES: usize = 64;

/// Maximum number of clients of one rule of an export policy.
pub const MAX_RULE_CLIENTS: usize = 256;

/// Maximum size of a snapshot policy in bytes.
pub const MAX_SNAPSHOT_POLICY: usize = 16 << 10;

/// Maximum weight of a volume in the shaper.
pub const MAX_WEIGHT: u64 = 65_536;

/// Maximum size of a request's body in bytes. The largest meaningful body, an export policy of long
/// rules, is a tenth of it.
pub const MAX_BODY: usize = 256 << 10;

/// Maximum number of bytes of all bodies that are being read or processed.
pub const MAX_BODIES: usize = 8 << 20;

/// Maximum number of bytes of a refused body that are read and discarded. Otherwise a client that
/// is still sending would see its connection break instead of the reply.
pub const MAX_DISCARD: u64 = 1 << 30;

/// Maximum number of resources in a page, whatever the client asks for.
pub const MAX_PAGE: usize = 1000;

/// Maximum number of fields to order by.
pub const MAX_ORDER_KEYS: usize = 8;

/// Maximum length of a filter in bytes.
pub const MAX_FILTER: usize = 8192;

/// Maximum nesting of parentheses and negations in a filter, which bounds the recursion.
pub const MAX_FILTER_DEPTH: usize = 32;

/// Maximum number of API connections.
pub const MAX_API_CONNECTIONS: usize = 512;

/// Maximum number of connections from one address that have not presented a token.
pub const MAX_UNKNOWN_PER_ADDRESS: usize = 128;

/// Lifetime of a browser's sign-in in seconds.
pub const LOGIN_SECONDS: i64 = 12 * 3600;

/// Maximum number of sign-ins. Beyond it the oldest ends.
pub const MAX_LOGINS: usize = 1000;

/// Maximum size in bytes of a sign-in request: a token and little more.
pub const MAX_LOGIN_BODY: u64 = 4096;

/// Wrong tokens after which an address has to wait before it tries to sign in again.
pub const MAX_WRONG_TOKENS: u32 = 10;

/// Seconds for which a wrong token counts.
pub const WRONG_TOKEN_SECONDS: i64 = 60;

/// Maximum number of addresses whose wrong tokens are counted.
pub const MAX_WRONG_ADDRESSES: usize = 4096;

/// Maximum size of a request's head in bytes.
pub const MAX_HEAD: usize = 64 << 10;

/// Maximum number of calls over gRPC that one connection has under way. A library that has more
/// queues them.
pub const MAX_CALLS_PER_CONNECTION: u32 = 32;

/// Maximum number of bytes of a gRPC connection's calls that have arrived and are not read, and of
/// a reply that are queued for a peer that reads slowly.
pub const CALL_WINDOW: u32 = 64 << 10;

/// Maximum size of a call's head in bytes.
pub const MAX_CALL_HEAD: u32 = 16 << 10;

/// Maximum size in bytes of a signed assertion: the claims of a service account, and its signature.
pub const MAX_ASSERTION: usize = 4096;

/// Maximum lifetime in seconds of what a service account has signed, and of the access token that
/// it gets.
pub const ASSERTION_SECONDS: i64 = 3600;

/// Seconds by which the clock of a service account's user may be ahead or behind.
pub const CLOCK_SKEW_SECONDS: i64 = 60;

/// Maximum size of a service account's public key in PEM: one of 8192 bits, and its frame.
pub const MAX_PUBLIC_KEY: usize = 2048;

/// Maximum number of paths of an update mask: more than any message has fields.
pub const MAX_MASK_PATHS: usize = 256;

/// Maximum number of labels of a resource (the public APIs' rule).
pub const MAX_RESOURCE_LABELS: usize = 64;

/// Maximum length in bytes of a label's key or value (the public APIs' rule).
pub const MAX_RESOURCE_LABEL: usize = 63;

/// Seconds that the per-second rings of live rows hold.
pub const LIVE_SECONDS: u64 = 600;

/// Minutes that the per-minute rings of live rows hold.
pub const LIVE_MINUTES: u64 = 1440;

/// Maximum number of pools with live rows.
pub const LIVE_POOLS: usize = 100;

/// Maximum number of volumes with live rows: the busiest.
pub const LIVE_VOLUMES: usize = 500;

/// Maximum number of clients with live rows: the busiest.
pub const LIVE_CLIENTS: usize = 200;

/// Maximum number of pairs of a volume and a client with live rows: the busiest.
pub const LIVE_VOLUME_CLIENTS: usize = 400;

/// Divisor of the memory: the share that live rows may take.
pub const LIVE_SHARE: u64 = 128;

/// Maximum number of bytes of all live rows: enough for as many series as there may be, none of
/// which was idle for a second of the day (68 KB each of a pool or volume, 57 KB of a client).
pub const LIVE_BYTES: u64 = 80 << 20;

/// Maximum number of terms in a selection of live rows.
pub const LIVE_TERMS: usize = 64;

/// Maximum number of concurrent streams of live data.
pub const LIVE_READERS: usize = 32;

/// Maximum number of missed seconds that a resumed stream begins with.
pub const LIVE_PAST: u64 = 120;

/// Seconds by which a reader of live data may lag before it is dropped.
pub const LIVE_BEHIND: u64 = 10;

/// Bytes of text after which a piece of the metrics is handed to its reader.
pub const METRICS_PIECE: usize = 16 << 10;

/// Maximum number of concurrent readers of the metrics.
pub const METRICS_READERS: usize = 8;

/// Seconds within which a reader has to take all metrics.
pub const METRICS_SECONDS: u64 = 60;

/// Maximum length in bytes of a file's path in a request, as Linux's PATH_MAX.
pub const MAX_FILE_PATH: usize = 4096;

/// Maximum number of versions of a file in one response: the newest.
pub const MAX_FILE_VERSIONS: usize = 1000;

/// Maximum number of concurrent searches for files and restores of files.
pub const MAX_FILE_JOBS: usize = 4;

/// Maximum number of concurrent downloads out of snapshots.
pub const MAX_DOWNLOADS: usize = 16;

/// Bytes of a download that are in memory at a time.
pub const DOWNLOAD_PIECE: u64 = 256 << 10;

/// Maximum number of conditions in a list.
pub const MAX_CONDITIONS: usize = 1000;

/// Columns of a heat map of latencies.
pub const LIVE_HEAT_COLUMNS: u64 = 120;

/// Maximum number of changes of limits of pools and volumes that are kept, of the last day.
pub const LIVE_LIMIT_STEPS: usize = 4096;

/// Maximum number of changes of a limit in one response: the newest.
pub const MAX_LIMIT_CHANGES: u32 = 200;

/// Maximum number of runs of benchmarks in one response: those whose folders changed last.
pub const MAX_BENCHMARKS: usize = 100;

/// Maximum number of entries of the folder of benchmarks that are looked at.
pub const MAX_BENCHMARKS_SEEN: usize = 10_000;

/// Maximum length in bytes of a benchmark's name.
pub const MAX_BENCHMARK_NAME: usize = 100;

/// Maximum length in bytes of a benchmark's summary.
pub const MAX_BENCHMARK_SUMMARY: u64 = 256 << 10;

/// Maximum length in bytes of a benchmark's report.
pub const MAX_BENCHMARK_REPORT: u64 = 8 << 20;

/// Maximum number of requests that read benchmarks at once.
pub const MAX_BENCHMARK_READERS: usize = 4;

/// Maximum number of files of a backup that are restored by one request.
pub const MAX_RESTORED_FILES: usize = 100;

/// Maximum number of backups that a schedule of a backup policy keeps.
pub const MAX_SCHEDULED_BACKUPS: u32 = 1000;

/// Maximum number of quota rules of a volume.
pub const MAX_QUOTA_RULES: usize = 1000;

/// Maximum number of qtrees of a volume that have an export policy of their own.
pub const MAX_TREE_POLICIES: usize = 1000;

/// Maximum number of resources that a node of a cluster gets from all aggregates for one page.
pub const MAX_CLUSTER_LIST: usize = 4000;

/// Maximum number of aggregates that a node asks at once for one request.
pub const MAX_CLUSTER_ASKED: usize = 16;

/// Maximum number of bytes of one reply that a node reads from a server.
pub const MAX_CLUSTER_ANSWER: usize = 8 << 20;

/// Maximum number of bytes of all replies of servers that a node has read and not passed on.
pub const CLUSTER_ANSWERS: usize = 64 << 20;

/// Maximum number of resources whose aggregate a node remembers.
pub const MAX_CLUSTER_NAMES: usize = 20_000;

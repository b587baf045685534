//! The bounds of what clients claim and of what is kept for protocols: locks, grants, names, replies.

use std::time::Duration;

/// How long after its last sign of life a client keeps its claims against all others (lease, RFC 8881 §8.3).
pub const LEASE: Duration = Duration::from_secs(30);

/// The grace period: a lease, and the time in which clients notice the restart. NLM clients need it as well.
pub const GRACE: Duration = Duration::from_secs(45);

/// Queued requests of one client address at most.
pub const MAX_WAITING: usize = 1024;

/// Queued requests for one file at most.
pub const MAX_WAITING_FILE: usize = 16_384;

/// How long a holder has to answer a break (MS-SMB2 3.3.2.5 has 35 s; the lease of NFSv4 is shorter).
pub const BREAK_PATIENCE: Duration = Duration::from_secs(35);

/// Comparisons of one search for a deadlock at most.
pub const DEADLOCK_SEARCH: usize = 4096;

/// Times that a request makes room and is tried again: clients with little may be parked.
pub const GRANT_ATTEMPTS: usize = 64;

/// Bytes of claims where the owner of the waist sets no budget.
pub const CLAIM_BYTES: usize = 64 << 20;

/// Names and addresses that are remembered, of each kind: about 4 MiB at the most.
pub const NAME_ENTRIES: usize = 16_384;

/// An answer in use is looked up again after this time. The system's resolver tells no lifetimes; a minute is what
/// name service caches of clients (nscd, sssd) take by default or less. All times are in seconds.
pub const NAME_FRESH: u64 = 60;

/// A question without an answer is asked again after this time.
pub const NAME_RETRY: u64 = 10;

/// An answer that could not be confirmed for so long does not count any more.
pub const NAME_STALE: u64 = 3600;

/// Connections ask again after this time.
pub const NAME_RECHECK: u64 = 30;

/// An entry that nobody asked for in this time is dropped.
pub const NAME_UNUSED: u64 = 600;

/// Time between two tries of a call to a client of the lock manager.
pub const GRANT_RETRY: Duration = Duration::from_secs(10);

/// Tries of GRANTED: two minutes, four times the interval at which clients ask
/// by themselves.
pub const GRANT_TRIES: u32 = 12;

/// Tries of SM_NOTIFY: 15 minutes, as sm-notify(8) does.
pub const NOTIFY_TRIES: u32 = 90;

/// Time between two searches for hosts that hold nothing any more; also how long
/// such a host is remembered at least.
pub const PRUNE: Duration = Duration::from_secs(60);

/// Grants that wait for an answer, at most. A client that is not called any more asks by itself.
pub const MAX_GRANTS: usize = 4096;

/// Most hosts that have locks and are recorded.
pub const MAX_HOSTS: usize = 16_384;

/// Most of them at one address: behind address translation several hosts share one.
pub const MAX_HOST_NAMES: usize = 256;

/// Most opens of SMB that outlive the server: each has a record of up to [`MAX_CLIENT_RECORD`](super::engine::MAX_CLIENT_RECORD) bytes.
pub const MAX_PERSISTENT_OPENS: usize = 16_384;

/// Most hosts that have asked to be notified of a restart.
pub const MAX_MONITORS: usize = 1024;

/// Own addresses remembered of each host.
pub const MAX_LOCALS: usize = 4;

/// Most calls to clients that wait for one destination. What does not fit is not lost if it matters: the service repeats it.
pub const MAX_CALLS: usize = 64;

/// Bytes of all that wait.
pub const MAX_CALL_BYTES: usize = 1 << 20;

/// Seconds for which a reply is kept. Clients send again after at most a minute
/// or so; knfsd keeps replies for 120 s as well.
pub const REPLY_AGE: i64 = 120;

/// Seconds for which calls of before a restart are known. Linux clients that have tried in vain for long try again every
/// five minutes.
pub const REPLY_AGE_RECOVERED: i64 = 600;

/// How long a call waits for the name of its client, where an export rule depends on it. Long enough for a
/// resolver that works; a client that gets JUKEBOX retries after about as long.
pub const NAME_WAIT: u64 = 5;

/// Paths that refer clients of NFSv4 to other servers. Each table of exports makes the tree of paths anew.
pub const MAX_REFERRALS: usize = 1024;
/// Places of one such path: all of them are in one reply.
pub const MAX_LOCATIONS: usize = 16;

/// Longest name of a host that is monitored (`SM_MAXSTRLEN`).
pub const MAX_MONITOR_NAME: usize = 1024;

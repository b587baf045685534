//! Limits of client claims and of protocol state: locks, grants, names, replies.

use std::time::Duration;

/// Time after its last sign of life for which a client keeps its claims (lease, RFC 8881 §8.3).
pub const LEASE: Duration = Duration::from_secs(30);

/// Grace period: a lease, and the time in which clients notice the restart. NLM clients need it as
/// well.
pub const GRACE: Duration = Duration::from_secs(45);

/// Maximum number of queued lock requests of one client address.
pub const MAX_WAITING: usize = 1024;

/// Maximum number of queued lock requests for one file.
pub const MAX_WAITING_FILE: usize = 16_384;

/// Time that a holder has to acknowledge a break. MS-SMB2 3.3.2.5 allows 35 s; the lease of NFSv4
/// is shorter.
pub const BREAK_PATIENCE: Duration = Duration::from_secs(35);

/// Maximum number of comparisons in one search for a deadlock.
pub const DEADLOCK_SEARCH: usize = 4096;

/// Number of times that a request frees memory and is retried. Clients that hold little may be
/// parked.
pub const GRANT_ATTEMPTS: usize = 64;

/// Bytes of claims where the owner of the claims table sets no budget.
pub const CLAIM_BYTES: usize = 64 << 20;

/// Maximum number of cached names and of cached addresses: about 4 MiB in all.
pub const NAME_ENTRIES: usize = 16_384;

/// Age in seconds after which a cached answer that is in use is looked up again. The system's
/// resolver reports no lifetimes; name service caches of clients (nscd, sssd) default to a minute
/// or less.
pub const NAME_FRESH: u64 = 60;

/// Seconds before a failed lookup is retried.
pub const NAME_RETRY: u64 = 10;

/// Age in seconds after which an unconfirmed answer no longer counts.
pub const NAME_STALE: u64 = 3600;

/// Seconds after which a connection looks up the name again.
pub const NAME_RECHECK: u64 = 30;

/// Seconds without use after which a cached entry is dropped.
pub const NAME_UNUSED: u64 = 600;

/// Time between two attempts to call a client of the lock manager.
pub const GRANT_RETRY: Duration = Duration::from_secs(10);

/// Attempts of GRANTED: two minutes, four times the interval at which clients ask by themselves.
pub const GRANT_TRIES: u32 = 12;

/// Attempts of SM_NOTIFY: 15 minutes, as sm-notify(8) does.
pub const NOTIFY_TRIES: u32 = 90;

/// Time between two searches for hosts that hold no locks any more, and the minimum time that such
/// a host is remembered.
pub const PRUNE: Duration = Duration::from_secs(60);

/// Maximum number of grants that wait for a reply. A client that is no longer called asks by
/// itself.
pub const MAX_GRANTS: usize = 4096;

/// Maximum number of recorded hosts with locks.
pub const MAX_HOSTS: usize = 16_384;

/// Maximum number of recorded hosts at one address. Behind address translation several hosts share
/// one.
pub const MAX_HOST_NAMES: usize = 256;

/// Maximum number of records of files in which NFSv4 clients have claims, and of those in which
/// hosts of NLM have some.
pub const MAX_FILE_RECORDS: usize = 4096;

/// Maximum number of SMB opens that survive a restart. Each has a record of up to
/// [`MAX_CLIENT_RECORD`](super::engine::MAX_CLIENT_RECORD) bytes.
pub const MAX_PERSISTENT_OPENS: usize = 16_384;

/// Maximum number of hosts that have asked to be notified of a restart.
pub const MAX_MONITORS: usize = 1024;

/// Local addresses remembered for each host.
pub const MAX_LOCALS: usize = 4;

/// Maximum number of queued calls to one destination. The service repeats calls that do not fit, if
/// they matter.
pub const MAX_CALLS: usize = 64;

/// Maximum number of bytes of all queued calls.
pub const MAX_CALL_BYTES: usize = 1 << 20;

/// Seconds for which a reply is kept. Clients retransmit after at most about a minute; knfsd keeps
/// replies for 120 s as well.
pub const REPLY_AGE: i64 = 120;

/// Seconds for which calls from before a restart are remembered. Linux clients whose retries have
/// long failed retry every five minutes.
pub const REPLY_AGE_RECOVERED: i64 = 600;

/// Seconds that a call waits for the name of its client if an export rule depends on it. A working
/// resolver needs less; a client that gets JUKEBOX retries after about as long.
pub const NAME_WAIT: u64 = 5;

/// Maximum number of paths that refer NFSv4 clients to other servers. Each table of exports
/// rebuilds the tree of paths.
pub const MAX_REFERRALS: usize = 1024;
/// Maximum number of locations of one referral. All of them are in one reply.
pub const MAX_LOCATIONS: usize = 16;

/// Maximum length of the name of a monitored host in bytes (`SM_MAXSTRLEN`).
pub const MAX_MONITOR_NAME: usize = 1024;

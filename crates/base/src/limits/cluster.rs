//! Limits of a cluster: the daemons of its machines, and its tables in PostgreSQL.

use std::time::Duration;

/// Pause between two rounds of a node's daemon: its children, its heartbeat, the view.
pub const ROUND: Duration = Duration::from_secs(1);

/// Time without a heartbeat, by the database's clock, after which a node is down.
pub const NODE_SILENCE: Duration = Duration::from_secs(5);

/// Time for which the leader's lease holds, by the database's clock.
pub const LEADER_LEASE: Duration = Duration::from_secs(5);

/// Time after the begin of a term, or after an outage of the database, in which the leader only
/// reads: every node that lives has sent a heartbeat by then.
pub const LEARNING: Duration = Duration::from_secs(8);

/// Time after which a question to the database has failed.
pub const DATABASE_PATIENCE: Duration = Duration::from_secs(3);

/// Time between two rounds after which the leader learns anew: its own process or the database
/// stood still.
pub const GAP: Duration = Duration::from_secs(4);

/// First pause before a child that ended is started again. It doubles with each end.
pub const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Maximum pause before a child is started again.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time for which a child has to run until its pauses begin anew.
pub const RESTART_CALM: Duration = Duration::from_secs(60);

/// Time after which a child that was asked to end is killed: a checkpoint under load takes seconds.
pub const CHILD_END: Duration = Duration::from_secs(60);

/// Maximum number of nodes of a cluster.
pub const NODES_MAX: usize = 64;

/// Maximum number of aggregates of a cluster.
pub const AGGREGATES_MAX: usize = 1024;

/// Maximum number of tokens of a cluster.
pub const TOKENS_MAX: usize = 1000;

/// Minimum number of bytes of memory of a server: 64 MiB, which `weir serve` takes.
pub const SERVER_MEMORY_MIN: u64 = 64 << 20;

/// Maximum length of the name of a node or an aggregate, in bytes.
pub const NAME_MAX: usize = 64;

/// Maximum number of bytes of an aggregate's settings, as JSON.
pub const SETTINGS_BYTES: usize = 4096;

/// Maximum length of a fault in a heartbeat, in bytes.
pub const FAULT_BYTES: usize = 300;

/// Maximum number of volumes of an aggregate that the other servers of the cluster know.
pub const LISTED_VOLUMES_MAX: usize = 4096;

/// Maximum number of volumes of all aggregates that a server knows.
pub const DIRECTORY_VOLUMES_MAX: usize = 16_384;

/// Maximum size of the list of an aggregate's volumes, as JSON.
pub const LISTING_BYTES: usize = 4 << 20;

/// Time after which the volumes of an aggregate are forgotten that the tables do not have.
pub const FORGET_LISTING: Duration = Duration::from_secs(600);

/// Time after which a server that has not read the tables has no more than an equal part of a limit
/// that several servers have together.
pub const SHARE_LEASE: Duration = Duration::from_secs(6);

/// Smallest change of a share, as a part of an equal one.
pub const SHARE_STEP: u64 = 64;

/// Share of a server without load, as a part of an equal one.
pub const SHARE_FLOOR: u64 = 16;

/// Maximum number of limits of a server that are shared with others. It has equal parts of further
/// ones.
pub const SHARED_LIMITS_MAX: usize = 256;

const _: () = assert!(
    SHARE_LEASE.as_millis() < LEARNING.as_millis(),
    "the leases of all servers have to be over before a new leader grants"
);
/// Maximum number of changes of several constituents that wait at one constituent of a large
/// volume.
pub const LARGE_REQUESTS_MAX: usize = 4096;

/// Maximum number of messages from other constituents that wait at one constituent. Further ones
/// are dropped, and are sent again.
pub const LARGE_INBOX_MAX: usize = 16_384;

/// Maximum number of messages that wait for the connection to another server. Further ones are
/// dropped, and are sent again.
pub const LARGE_OUTBOX_MAX: usize = 16_384;

/// Maximum size of a message between constituents, in bytes.
pub const LARGE_FRAME_BYTES: usize = 1024;

/// Time after which messages between constituents are sent again that have no answer.
pub const LARGE_TICK: Duration = Duration::from_millis(200);

/// Time after which a constituent that was not heard of gets no new directories.
pub const LARGE_SILENCE: Duration = Duration::from_secs(5);

const _: () = assert!(
    LEARNING.as_millis() > NODE_SILENCE.as_millis() + 2 * ROUND.as_millis(),
    "a node that lives has to be heard before anything is decided about it"
);
const _: () = assert!(DATABASE_PATIENCE.as_millis() < GAP.as_millis());
const _: () = assert!(LEADER_LEASE.as_millis() > GAP.as_millis());

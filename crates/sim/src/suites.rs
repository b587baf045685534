//! The suites by name.

use crate::suite::Suite;

/// All suites that run from a seed.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "restart",
        about: "random operations against the engine, with checkpoints and clean restarts",
        run: crate::restart::story,
    },
    Suite {
        name: "crash",
        about: "power failures at any moment, recovery included",
        run: crate::crash::story,
    },
    Suite {
        name: "histories",
        about: "snapshots, clones, reverts, splits and deletions under power failures",
        run: crate::histories::story,
    },
    Suite {
        name: "mirrors",
        about: "transfers between two machines, cut short, damaged, and under power failures of either",
        run: crate::mirrors::story,
    },
    Suite {
        name: "pair",
        about: "a primary and its standby: cut links, power failures of either, takeovers",
        run: crate::pair::story,
    },
    Suite {
        name: "pair-sync",
        about: "a copy brought up from nothing or from a mark while its primary changes; power failures of either, takeovers",
        run: crate::pair::sync::story,
    },
    Suite {
        name: "owner",
        about: "takeovers of an aggregate on RADOS: deaths, suspensions, cuts, OSDs that are late, refused blocklists",
        run: crate::owner::story,
    },
    Suite {
        name: "large",
        about: "a large volume over constituents: crashes, partitions, repeated and late messages, snapshots",
        run: crate::large::story,
    },
    Suite {
        name: "large-engine",
        about: "the same protocol on three machines with volumes of the engine: power failures, repeated and late messages",
        run: crate::large_engine::story,
    },
    Suite {
        name: "nfs",
        about: "random operations through the NFSv3 service, with clean restarts",
        run: crate::nfs::story::restarts,
    },
    Suite {
        name: "nfs-crash",
        about: "power failures under the NFSv3 service",
        run: crate::nfs::story::crashes,
    },
    Suite {
        name: "nfs-repeat",
        about: "calls repeated after power failures: each is carried out exactly once",
        run: crate::nfs::repeat::story,
    },
    Suite {
        name: "nfs4-repeat",
        about: "the same of requests of persistent NFSv4 sessions",
        run: crate::nfs::repeat::story4,
    },
    Suite {
        name: "nfs4-state",
        about: "clients of NFSv4.1 with opens, locks and delegations, and their claims after power failures",
        run: crate::nfs::delegations::story,
    },
    Suite {
        name: "failed-write",
        about: "failing writes and flushes: poisoning, reading on, recovery",
        run: crate::faults::failed_write,
    },
    Suite {
        name: "failed-reads",
        about: "failing reads: an error, and nothing else",
        run: crate::faults::failed_reads,
    },
    Suite {
        name: "rot",
        about: "a damaged block: right answers or errors, and check notices",
        run: crate::faults::rot,
    },
    Suite {
        name: "superblock",
        about: "a damaged superblock: the other copy or the older one serves",
        run: crate::faults::superblock,
    },
    Suite {
        name: "full",
        about: "a full disk: no space, removal works, checkpoints never fail",
        run: crate::faults::full,
    },
    Suite {
        name: "discarded",
        about: "free space that the host gives to others: no space, removal works, checkpoints never fail",
        run: crate::faults::discarded,
    },
    Suite {
        name: "threads",
        about: "many threads on shared directories and files",
        run: crate::threads::story,
    },
];

/// The suite of this name.
#[must_use]
pub fn suite(name: &str) -> Option<Suite> {
    SUITES.iter().find(|suite| suite.name == name).copied()
}

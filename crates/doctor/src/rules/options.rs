//! Mount options that cost data or make every operation wait.

use super::{nfs, on, options_fix};
use crate::facts::Facts;
use crate::finding::{Finding, Severity};

/// `soft`: an operation that timed out fails, and buffered writes are lost.
pub fn soft(facts: &Facts) -> Vec<Finding> {
    let risky = nfs(facts).filter(|m| (m.has("soft") || m.has("softerr")) && !m.has("ro"));
    risky
        .map(|mount| {
            let seconds = mount.number("timeo").unwrap_or(600) as f64 / 10.0 * (mount.number("retrans").unwrap_or(2) + 1) as f64;
            on(
                "soft",
                Severity::Unsafe,
                mount,
                format!("mounted soft: after about {seconds:.0} s without an answer an operation fails"),
                "A write that was buffered and then fails is lost, and many programs never look. A hard mount waits until the server is back.",
                options_fix(mount, &["hard"], &["soft", "softerr"]),
                "no data lost when the server or the network is away for a while".to_owned(),
            )
        })
        .collect()
}

/// `sync`: each write is a round trip and a write to the server's disk.
pub fn synchronous(facts: &Facts) -> Vec<Finding> {
    nfs(facts)
        .filter(|m| m.has("sync"))
        .map(|mount| {
            on(
                "sync",
                Severity::Slow,
                mount,
                "mounted sync: every write waits for the server's disk".to_owned(),
                "Without it (async, the default) the client gathers writes, sends many at once, and still has everything durable when fsync() or close() returns.",
                options_fix(mount, &[], &["sync"]),
                "writes limited by bandwidth, no longer by one round trip each".to_owned(),
            )
        })
        .collect()
}

/// `noac`, `actimeo=0`: each look at a file asks the server.
pub fn uncached(facts: &Facts) -> Vec<Finding> {
    let none = |m: &crate::facts::Mount| {
        m.has("noac")
            || ["acregmin", "acregmax", "acdirmin", "acdirmax"]
                .iter()
                .all(|o| m.number(o) == Some(0))
    };
    nfs(facts)
        .filter(|m| none(m))
        .map(|mount| {
            on(
                "attribute-cache",
                Severity::Slow,
                mount,
                "attributes are not cached (noac or actimeo=0)".to_owned(),
                "Every stat, open and path step asks the server, and noac makes writes synchronous too. Closing and opening files already gives programs on several clients a common view.",
                options_fix(mount, &[], &["noac", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax"]),
                "metadata from memory for 3 to 60 s; often most of an application's calls".to_owned(),
            )
        })
        .collect()
}

/// NFS over UDP.
pub fn datagrams(facts: &Facts) -> Vec<Finding> {
    nfs(facts)
        .filter(|m| m.options.get("proto").is_some_and(|p| p.starts_with("udp")))
        .map(|mount| {
            on(
                "udp",
                Severity::Unsafe,
                mount,
                "mounted over UDP".to_owned(),
                "Fragments of large requests can be put together wrongly on fast networks, and one lost fragment repeats the whole request.",
                options_fix(mount, &["proto=tcp"], &["udp"]),
                "no corruption by reassembly; larger transfers and several connections".to_owned(),
            )
        })
        .collect()
}

/// Locks that only this client sees.
pub fn local_locks(facts: &Facts) -> Vec<Finding> {
    let local = nfs(facts).filter(|m| {
        m.has("nolock")
            || m.options
                .get("local_lock")
                .is_some_and(|l| l == "all" || l == "posix")
    });
    local
        .map(|mount| {
            on(
                "local-locks",
                Severity::Hint,
                mount,
                "locks are kept on this client only (nolock or local_lock)".to_owned(),
                "Programs on two clients can both believe that they hold a lock. That is harmless only where a single client uses the volume.",
                options_fix(mount, &[], &["nolock", "local_lock"]),
                "locks that hold between clients (needs rpcbind and rpc.statd, or NFSv4)".to_owned(),
            )
        })
        .collect()
}

/// Timeouts below what the guides recommend.
pub fn timeouts(facts: &Facts) -> Vec<Finding> {
    let short = nfs(facts).filter(|m| {
        m.options
            .get("proto")
            .is_none_or(|p| p.starts_with("tcp") || p == "rdma")
    });
    short
        .filter_map(|mount| {
            let timeo = mount.number("timeo").filter(|t| *t < 600)?;
            Some(on(
                "timeo",
                Severity::Slow,
                mount,
                format!("timeo={timeo}: requests are sent again after {:.1} s", timeo as f64 / 10.0),
                "Over TCP nothing is lost that needs sending again; a throttled or busy server only gets more to do. The guides' value is timeo=600 (60 s).",
                options_fix(mount, &["timeo=600", "retrans=3"], &[]),
                "no repeated requests and no needless disconnects while the server is busy".to_owned(),
            ))
        })
        .collect()
}

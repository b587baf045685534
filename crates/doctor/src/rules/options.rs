//! Mount options that cost data or make every operation wait.

use super::mounts::{on, options_fix};
use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Finding, Fix, Severity};

fn is_nfs(mount: &Mount) -> bool {
    mount.protocol != Protocol::Smb
}

/// `soft`: an operation that timed out fails, and buffered writes are lost.
pub fn soft(_: &Facts, mount: &Mount) -> Option<Finding> {
    let risky = is_nfs(mount)
        && (mount.has_option("soft") || mount.has_option("softerr"))
        && !mount.has_option("ro");
    risky.then(|| {
        let timeo = mount.number("timeo").unwrap_or(600) as f64 / 10.0;
        let seconds = timeo * (mount.number("retrans").unwrap_or(2) + 1) as f64;
        on(
            "soft",
            Severity::Unsafe,
            mount,
            format!("soft: after about {seconds:.0} s without an answer an operation fails"),
            "A write that was buffered and then fails is lost, and many programs never look. A hard mount waits until the server is back.",
            options_fix(mount, &["hard"], &["soft", "softerr"]),
            "no data lost when the server or the network is away for a while".to_owned(),
        )
    })
}

/// `sync`: each write is a round trip and a write to the server's disk.
pub fn synchronous(_: &Facts, mount: &Mount) -> Option<Finding> {
    (is_nfs(mount) && mount.has_option("sync")).then(|| {
        on(
            "sync",
            Severity::Slow,
            mount,
            "sync: every write waits for the server's disk".to_owned(),
            "Without it (async, the default) the client gathers writes, sends many at once, and still has everything durable when fsync() or close() returns.",
            options_fix(mount, &[], &["sync"]),
            "writes limited by bandwidth, no longer by one round trip each".to_owned(),
        )
    })
}

/// `noac`, `actimeo=0`: each question about a file goes to the server.
pub fn uncached(_: &Facts, mount: &Mount) -> Option<Finding> {
    let none = mount.has_option("noac")
        || ["acregmin", "acregmax", "acdirmin", "acdirmax"]
            .iter()
            .all(|o| mount.number(o) == Some(0));
    (is_nfs(mount) && none).then(|| {
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
}

/// `proto=udp`: fragments of large requests can be put together wrongly.
pub fn datagrams(_: &Facts, mount: &Mount) -> Option<Finding> {
    let udp = mount
        .options
        .get("proto")
        .is_some_and(|p| p.starts_with("udp"));
    (is_nfs(mount) && udp).then(|| {
        on(
            "udp",
            Severity::Unsafe,
            mount,
            "NFS over UDP".to_owned(),
            "Fragments of large requests can be put together wrongly on fast networks, and one lost fragment repeats the whole request.",
            // UDP's timeouts are a second or so: too short for TCP.
            options_fix(mount, &["proto=tcp"], &["udp", "timeo", "retrans"]),
            "no corruption by reassembly; larger transfers and several connections".to_owned(),
        )
    })
}

/// Locks that only this client sees. Whether the server offers others is nothing that this
/// machine's files say, and a mount without `nolock` of a server without a lock service fails every
/// lock: advice, and no change.
pub fn local_locks(_: &Facts, mount: &Mount) -> Option<Finding> {
    let local = mount.has_option("nolock")
        || mount
            .options
            .get("local_lock")
            .is_some_and(|l| l == "all" || l == "posix");
    (is_nfs(mount) && local).then(|| {
        on(
            "local-locks",
            Severity::Hint,
            mount,
            "locks are kept on this client only (nolock or local_lock)".to_owned(),
            "Programs on two clients can both believe that they hold a lock. That is harmless only where a single client uses the volume.",
            Fix {
                advice: vec![format!(
                    "if `rpcinfo -T tcp {} nlockmgr 4` answers, mount without nolock and local_lock, with rpcbind and rpc.statd running here",
                    mount.server
                )],
                effective: "when it is mounted again".to_owned(),
                ..Fix::default()
            },
            "locks that hold between clients".to_owned(),
        )
    })
}

/// `sec=krb5i`, `krb5p`: messages are summed or encrypted by the client's and the server's
/// processors, a copy of all data each. What that costs differs between servers; Azure NetApp
/// Files' guide has it for one (70 and 85 % of sequential throughput).
pub fn protection(_: &Facts, mount: &Mount) -> Option<Finding> {
    let (flavour, what, cost) = match mount.options.get("sec").map(String::as_str) {
        Some("krb5i") => ("krb5i", "summed", 70),
        Some("krb5p") => ("krb5p", "encrypted", 85),
        _ => return None,
    };
    is_nfs(mount).then(|| {
        on(
            "protection",
            Severity::Hint,
            mount,
            format!("sec={flavour}: each message is {what}"),
            "Client and server go over each byte once more on their processors, for all users of the mount. That is right where the network is not trusted, and costs throughput everywhere.",
            Fix {
                advice: vec![
                    "where only the connection has to be protected: sec=krb5 with xprtsec=tls (Linux 6.5, tlshd on the client, TLS on the server)".to_owned(),
                    "where the network is trusted: sec=krb5, if the export's rule admits it".to_owned(),
                ],
                effective: "when it is mounted again".to_owned(),
                ..Fix::default()
            },
            format!("up to {cost} % of sequential throughput is lost to it on some servers"),
        )
    })
}

/// Timeouts below what the guides recommend.
pub fn timeouts(_: &Facts, mount: &Mount) -> Option<Finding> {
    let stream = mount
        .options
        .get("proto")
        .is_none_or(|p| p.starts_with("tcp") || p == "rdma");
    if !is_nfs(mount) || !stream {
        return None;
    }
    let timeo = mount.number("timeo").filter(|t| *t < 600)?;
    Some(on(
        "timeo",
        Severity::Slow,
        mount,
        format!(
            "timeo={timeo}: requests are sent again after {:.1} s",
            timeo as f64 / 10.0
        ),
        "Over TCP nothing is lost that needs sending again; a throttled or busy server only gets more to do. The guides' value is timeo=600 (60 s).",
        options_fix(mount, &["timeo=600", "retrans=3"], &[]),
        "no repeated requests and no needless disconnects while the server is busy".to_owned(),
    ))
}

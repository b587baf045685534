//! What the server needs to know of, and ask from, the operating system.

use std::fs;
use std::io;

use crate::size::Size;

/// Descriptors to ask for: a client connection takes one, and ten thousand idle connections are
/// an ordinary day for a file server.
const DESCRIPTORS: u64 = 1 << 20;

/// Raises the limit on open files as far as this process may. Returns the limit in force.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the kernel to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A privileged process may raise the hard limit too; others get what they are allowed.
    for max in [limit.rlim_max.max(DESCRIPTORS), limit.rlim_max] {
        let wish = libc::rlimit {
            rlim_cur: max,
            rlim_max: max,
        };
        // SAFETY: `wish` is a valid limit for the kernel to read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wish) } == 0 {
            return Ok(max);
        }
    }
    Ok(limit.rlim_cur)
}

/// Leaves what this process makes from now on to its own user alone: folders 0700, files 0600. Returns the mask before.
///
/// For a process as a whole, so to be called before there are other threads.
pub fn own_files_only() -> u32 {
    // SAFETY: it cannot fail and touches no memory.
    unsafe { libc::umask(0o077) }
}

/// Memory that this process may use: the machine's, or its control group's if that is less.
pub fn usable_memory() -> Option<Size> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        kib.checked_mul(1024)
    });
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| {
            let path = text
                .lines()
                .find_map(|line| line.strip_prefix("0::"))?
                .to_owned();
            let max = fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?;
            max.trim().parse().ok()
        });
    match (machine, group) {
        (Some(a), Some(b)) => Some(Size(a.min(b))),
        (a, b) => a.or(b).map(Size),
    }
}

/// Cores that this process may run on.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What this machine calls itself.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Processor time of this process so far.
pub fn cpu_seconds() -> Option<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is as large as it expects.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed and then filled.
    let usage = unsafe { usage.assume_init() };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Some(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// Memory that this process has resident, in bytes.
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

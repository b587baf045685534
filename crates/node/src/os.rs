//! Facts about the operating system, and settings of this process.

use std::fs;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use rustix::time::{ClockId, clock_gettime};

use crate::size::Size;

/// Descriptors to ask for: a client connection takes one, and ten thousand idle connections are
/// an ordinary day for a file server.
const DESCRIPTORS: u64 = 1 << 20;

/// Raises the limit on open files as far as this process may. Returns the limit in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // A privileged process may raise the hard limit too; others get up to their hard limit. `None`
    // is no limit.
    let most = limit.maximum.unwrap_or(u64::MAX);
    for max in [most.max(DESCRIPTORS), most] {
        let wish = Rlimit {
            current: Some(max),
            maximum: Some(max),
        };
        if setrlimit(Resource::Nofile, wish).is_ok() {
            return max;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// Sets the mask for new files of this process: folders 0700, files 0600. Returns the former mask.
///
/// The mask is that of the whole process: call this before there are other threads.
pub fn own_files_only() -> u32 {
    umask(Mode::RWXG | Mode::RWXO).as_raw_mode()
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

/// Returns the name of this machine.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Processor time of this process so far.
pub fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Returns the number of files that this process has open, and how many it may have.
pub fn open_files() -> Option<(u64, Option<u64>)> {
    // The listing holds one itself.
    let open = fs::read_dir("/proc/self/fd")
        .ok()?
        .count()
        .saturating_sub(1);
    Some((open as u64, getrlimit(Resource::Nofile).current))
}

/// Memory that this process has resident, in bytes.
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

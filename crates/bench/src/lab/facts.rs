//! The machine and kernel that a result was made with.

use super::units::Size;
use std::collections::BTreeMap;
use std::fs;

/// Kernel parameters that change what an NFS or TCP benchmark measures.
const PARAMETERS: [(&str, &str); 8] = [
    ("tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
    (
        "congestion control",
        "/proc/sys/net/ipv4/tcp_congestion_control",
    ),
    ("dirty_ratio", "/proc/sys/vm/dirty_ratio"),
    (
        "sunrpc slots",
        "/proc/sys/sunrpc/tcp_max_slot_table_entries",
    ),
    (
        "clock source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "frequency governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    ),
    (
        "transparent huge pages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ),
];

/// The facts, by name.
pub fn machine() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let read = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|s| !s.is_empty())
    };
    let mut note = |key: &str, value: Option<String>| {
        if let Some(v) = value {
            facts.insert(key.to_owned(), v);
        }
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    note("processor", value_of(&cpuinfo, "model name", ':'));
    note("cores", Some(cores().to_string()));
    note("memory", Some(memory().to_string()));
    note(
        "kernel",
        read("/proc/sys/kernel/osrelease").map(|r| format!("Linux {r}")),
    );
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    note(
        "system",
        value_of(&system, "PRETTY_NAME", '=').map(|v| v.trim_matches('"').to_owned()),
    );
    note(
        "hypervisor",
        cpuinfo
            .lines()
            .any(|l| l.starts_with("flags") && l.contains(" hypervisor"))
            .then(|| "a virtual machine".to_owned()),
    );
    note("load average at the start", read("/proc/loadavg"));
    for (key, path) in PARAMETERS {
        note(key, read(path));
    }
    facts
}

fn value_of(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines()
        .filter_map(|l| l.split_once(separator))
        .find(|(k, _)| k.trim() == key)
        .map(|(_, v)| v.trim().to_owned())
}

/// Cores that this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Memory of the machine.
pub fn memory() -> Size {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = value_of(&text, "MemTotal", ':')
        .and_then(|v| {
            v.split_whitespace()
                .next()
                .and_then(|n| n.parse::<u64>().ok())
        })
        .unwrap_or(0);
    Size(kib * 1024)
}

/// Milliseconds that each whole disk had work so far, by name (the tenth field behind
/// the name in `/proc/diskstats`, "time spent doing I/Os").
pub fn disk_busy_ms() -> BTreeMap<String, u64> {
    parse_disks(&fs::read_to_string("/proc/diskstats").unwrap_or_default())
}

fn parse_disks(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let f: Vec<&str> = line.split_whitespace().collect();
            let name = *f.get(2)?;
            let busy: u64 = f.get(12)?.parse().ok()?;
            // Devices that only pass on what another one does would count twice.
            (!["loop", "ram", "zram"].iter().any(|p| name.starts_with(p)) && busy > 0)
                .then(|| (name.to_owned(), busy))
        })
        .collect()
}

/// Share of `seconds` in which the busiest disk had work.
pub fn disk_busy(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    seconds: f64,
) -> Option<f64> {
    after
        .iter()
        .map(|(name, ms)| ms.saturating_sub(before.get(name).copied().unwrap_or(0)))
        .max()
        .filter(|_| seconds > 0.0)
        .map(|ms| (ms as f64 / 1000.0 / seconds).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_disk_is_found() {
        let before =
            parse_disks("254 0 vda 1 2 3 4 5 6 7 8 0 1000 9\n7 0 loop0 1 2 3 4 5 6 7 8 0 99 9\n");
        let after = parse_disks(
            "254 0 vda 1 2 3 4 5 6 7 8 0 2900 9\n254 16 vdb 1 2 3 4 5 6 7 8 0 500 9\nshort\n",
        );
        assert_eq!(before.len(), 1, "loop devices are left out");
        let busy = disk_busy(&before, &after, 2.0).unwrap();
        assert!((busy - 0.95).abs() < 1e-9);
        assert_eq!(disk_busy(&before, &BTreeMap::new(), 2.0), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let facts = machine();
        assert!(facts["kernel"].starts_with("Linux "));
        assert!(memory() > Size(1 << 20) && cores() > 0);
    }
}

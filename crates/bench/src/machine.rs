//! Counters of the kernel about the server process and the machine (proc(5)).

use serde::Serialize;
use std::fs;

/// A process's use of the machine so far.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ProcessSample {
    /// User time of all threads, ended ones included, in nanoseconds.
    pub user_ns: u64,
    /// System time of all threads, ended ones included, in nanoseconds.
    pub system_ns: u64,
    /// Number of threads now.
    pub threads: u64,
    /// Resident memory now, in bytes.
    pub rss: u64,
    /// Greatest resident memory so far, in bytes.
    pub peak_rss: u64,
}

/// Processor time of the whole machine so far, in nanoseconds summed over cores.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MachineSample {
    /// Everything but idle and waiting for I/O; includes stolen time.
    pub busy_ns: u64,
    /// Time that the hypervisor gave to others.
    pub steal_ns: u64,
}

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second()
}

/// Samples the process `pid`; `None` when there is no such process.
pub fn process(pid: u32) -> Option<ProcessSample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_process(&stat, &status, tick_ns())
}

/// Samples the process `pid` and all that descend from it, which are there now; `None` when there
/// is no such process. Memory that they share counts for each.
pub fn family(pid: u32) -> Option<ProcessSample> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|child: u32| {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            Some((child, parent.parse().ok()?))
        })
        .collect();
    let mut all = process(pid)?;
    let mut members = vec![pid];
    while let Some(parent) = members.pop() {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        for &(child, _) in children {
            members.push(child);
            if let Some(one) = process(child) {
                all.user_ns += one.user_ns;
                all.system_ns += one.system_ns;
                all.threads += one.threads;
                all.rss += one.rss;
                all.peak_rss += one.peak_rss;
            }
        }
    }
    Some(all)
}

fn parse_process(stat: &str, status: &str, tick: u64) -> Option<ProcessSample> {
    // The command may hold spaces and brackets: the fields begin behind its last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Field 3 of proc(5) is the first here: utime is field 14, stime 15, threads 20.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let memory = |key: &str| {
        let line = status.lines().find(|l| l.starts_with(key))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(ProcessSample {
        user_ns: number(14)? * tick,
        system_ns: number(15)? * tick,
        threads: number(20)?,
        rss: memory("VmRSS:").unwrap_or(0),
        peak_rss: memory("VmHWM:").unwrap_or(0),
    })
}

/// Samples the machine's processors, from `/proc/stat`.
pub fn machine() -> MachineSample {
    fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|s| parse_machine(&s, tick_ns()))
        .unwrap_or_default()
}

fn parse_machine(stat: &str, tick: u64) -> Option<MachineSample> {
    let line = stat.lines().find(|l| l.starts_with("cpu "))?;
    let v: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    let at = |i: usize| v.get(i).copied().unwrap_or(0);
    // user nice system idle iowait irq softirq steal; guest time is within user.
    let busy = at(0) + at(1) + at(2) + at(5) + at(6) + at(7);
    Some(MachineSample {
        busy_ns: busy * tick,
        steal_ns: at(7) * tick,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 99 1 2";
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
        let p = parse_process(stat, status, 10_000_000).unwrap();
        assert_eq!(p.user_ns, 2_500_000_000);
        assert_eq!(p.system_ns, 500_000_000);
        assert_eq!(p.threads, 7);
        assert_eq!((p.rss, p.peak_rss), (1 << 20, 2 << 20));
        assert!(process(std::process::id()).is_some());
    }

    #[test]
    fn busy_time_is_all_but_idle_and_waiting() {
        let m = parse_machine("cpu  1 2 3 100 200 4 5 6 0 0\ncpu0 9 9\n", 10).unwrap();
        assert_eq!(m.busy_ns, 210);
        assert_eq!(m.steal_ns, 60);
    }
}

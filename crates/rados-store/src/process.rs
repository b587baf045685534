//! The process that owns an aggregate, as another one on any host sees it.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process that owns an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Name of its host.
    pub host: String,
    /// Its number on the host.
    pub process: u32,
    /// The host's start; another one after each start of the kernel.
    boot: String,
    /// Namespace of the process's number.
    namespace: String,
    /// Start of the process since the host's, in clock ticks.
    start: u64,
}

/// Returns the start of a process in clock ticks (field 22 of proc(5) stat); `None` if there is no
/// such process, or it has ended and waits for its parent.
fn start(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command's name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().trim().to_owned()
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid");
    link.map_or_else(
        |_| String::new(),
        |link| link.to_string_lossy().into_owned(),
    )
}

impl Process {
    /// Returns this process, on the host of this name.
    pub fn this(host: &str) -> Process {
        let process = std::process::id();
        Process {
            host: host.to_owned(),
            process,
            boot: boot(),
            namespace: namespace(),
            start: start(process).unwrap_or(0),
        }
    }

    /// Returns the process as an attribute.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses an attribute; an unknown process if it is damaged.
    pub fn parse(text: &[u8]) -> Process {
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// Returns true if the process has certainly ended: it ran on this host, since its last start,
    /// where this process could see it.
    pub fn has_ended(&self) -> bool {
        let comparable = !self.boot.is_empty() && !self.namespace.is_empty() && self.start > 0;
        comparable
            && self.boot == boot()
            && self.namespace == namespace()
            && start(self.process) != Some(self.start)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.is_empty() {
            true => f.write_str("an unknown host"),
            false => write!(f, "{} (process {})", self.host, self.process),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_host_is_known_to_have_ended() {
        let this = Process::this("here");
        assert!(!this.has_ended());
        assert_eq!(Process::parse(&this.text()), this);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let other = Process {
            process: child.id(),
            start: 1,
            ..this.clone()
        };
        child.wait().unwrap();
        assert!(other.has_ended());
        let elsewhere = Process {
            boot: "another".to_owned(),
            ..other.clone()
        };
        assert!(!elsewhere.has_ended());
        assert!(!Process::parse(b"{").has_ended());
    }
}

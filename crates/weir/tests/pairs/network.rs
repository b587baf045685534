//! Network namespaces of a test's own, and a switch between them. Takes root, and `ip` of iproute2.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::mpsc;

/// The namespace of a machine, which goes with this.
pub struct Machine {
    namespace: File,
    /// A thread in it, by which `ip` finds it.
    thread: libc::pid_t,
    _ends: mpsc::Sender<()>,
}

impl Machine {
    /// One without a network.
    pub fn new() -> Machine {
        let (made, taken) = mpsc::channel();
        let (ends, waits) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            // SAFETY: this thread alone gets another network.
            let done = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            let error = std::io::Error::last_os_error();
            assert_eq!(
                done, 0,
                "a network of its own (this test needs root): {error}"
            );
            // SAFETY: a number.
            let thread = unsafe { libc::gettid() };
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            made.send((namespace, thread)).unwrap();
            // Until the machine is dropped.
            let _ = waits.recv();
        });
        let (namespace, thread) = taken.recv().unwrap();
        let machine = Machine {
            namespace,
            thread,
            _ends: ends,
        };
        machine.ip("link set lo up");
        machine
    }

    /// Does something there, on a thread of its own.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.remote().enter();
                what()
            });
            thread.join().unwrap()
        })
    }

    /// Returns a handle by which another thread enters the machine.
    pub fn remote(&self) -> Remote {
        Remote(self.namespace.try_clone().unwrap())
    }

    /// Runs `ip` in the machine; returns its output.
    pub fn ip(&self, words: &str) -> String {
        let out = self.run(|| Command::new("ip").args(words.split(' ')).output().unwrap());
        let why = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "ip {words}: {why}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Returns true if the machine has an address.
    pub fn has_address(&self, address: &str) -> bool {
        let all = self.ip("-o addr show");
        all.split_whitespace()
            .any(|word| word.split('/').next() == Some(address))
    }
}

/// The way into a machine.
pub struct Remote(File);

impl Remote {
    /// Moves the calling thread into the machine.
    pub fn enter(&self) {
        // SAFETY: this thread alone moves.
        let done = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Makes a switch in a machine of its own with the addresses `own`, and connects the `eth0` of each
/// other machine to it.
pub fn connected<const N: usize>(own: &[&str], others: [&[&str]; N]) -> (Machine, [Machine; N]) {
    let here = Machine::new();
    here.ip("link add br0 type bridge");
    let add = |machine: &Machine, addresses: &[&str], interface: &str| {
        for address in addresses {
            // No other machine can have it.
            let nodad = if address.contains(':') { " nodad" } else { "" };
            machine.ip(&format!("addr add {address} dev {interface}{nodad}"));
        }
        machine.ip(&format!("link set {interface} up"));
    };
    add(&here, own, "br0");
    let mut n = 0;
    let machines = others.map(|addresses| {
        let machine = Machine::new();
        let port = format!("port{n}");
        n += 1;
        here.ip(&format!(
            "link add {port} type veth peer name eth0 netns {}",
            machine.thread
        ));
        here.ip(&format!("link set {port} master br0 up"));
        add(&machine, addresses, "eth0");
        machine
    });
    (here, machines)
}

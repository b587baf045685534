//! Fixes tried: trees as Debian, Ubuntu and RHEL install them, with what guides and their readers
//! put into them. Every printed command is run on such a tree, by itself or after `--fix`, and the
//! tree is examined again, also as it would be after a restart.
#![allow(clippy::unwrap_used, clippy::panic)]

mod machine;

use machine::{LAYOUTS, Layout, Machine};
use weir_doctor::finding::{Finding, Plan};
use weir_doctor::source::Source;
use weir_doctor::{diagnose, fix};

fn names(found: &[Finding]) -> Vec<String> {
    let all = found.iter();
    all.map(|f| format!("{} {}: {}", f.rule, f.subject, f.seen))
        .collect()
}

fn commands(plan: &Plan) -> Vec<String> {
    let files = plan.files.iter().flat_map(|file| file.commands.clone());
    files.chain(plan.commands.clone()).collect()
}

/// Fixes one copy of a machine by the printed commands, another by `--fix` and then the printed
/// commands (those for the files too, as a cautious person would), and examines both, before and
/// after a restart.
fn repaired(make: &dyn Fn() -> Machine) -> (Machine, Plan) {
    let by_hand = make();
    let (found, plan, text) = by_hand.diagnose();
    assert!(!found.is_empty());
    for command in commands(&plan) {
        assert!(
            text.lines().any(|line| line.trim_start() == command),
            "not printed: {command}"
        );
    }
    let before = by_hand.configuration();
    by_hand.run(&commands(&plan));

    let by_fix = make();
    let (_, same, _) = by_fix.diagnose();
    assert!(fix::apply(&by_fix.source(), &same, true).unwrap());
    let written = by_fix.configuration();
    by_fix.run(&commands(&same));

    assert_eq!(
        by_fix.configuration(),
        written,
        "commands after --fix change files"
    );
    assert_eq!(
        by_hand.configuration(),
        written,
        "commands and --fix differ"
    );
    for (path, text) in before.iter().filter(|(_, text)| text.starts_with("-> ")) {
        assert_eq!(written.get(path), Some(text), "the link {path}");
    }
    for (path, text) in &before {
        let meant = plan
            .files
            .iter()
            .any(|file| file.path == format!("/{path}"));
        assert!(meant || written.get(path) == Some(text), "{path} changed");
    }
    for machine in [&by_hand, &by_fix] {
        let (left, nothing, _) = machine.diagnose();
        assert_eq!(names(&left), [""; 0]);
        assert_eq!(nothing, Plan::default());
    }
    by_fix.shell("reboot");
    (by_hand, plan)
}

/// A mount as it is on the machine now.
fn mounted(machine: &Machine, kind: &str, options: &str, what: &str, point: &str) {
    machine.shell(&format!("mount -t {kind} -o {options} {what} {point}"));
}

const GOOD: &str =
    "vers=3,proto=tcp,hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576,nconnect=16";

fn tuned(machine: &Machine, point: &str) {
    machine.shell(&format!(
        "echo 15360 > /sys/class/bdi/$(mountpoint -d {point})/read_ahead_kb"
    ));
    machine.shell("sysctl -w sunrpc.tcp_max_slot_table_entries=128");
    machine.shell("echo 180 > /sys/module/nfs/parameters/max_session_slots");
}

/// Lines that guides print, taken literally, in every place at once.
#[test]
fn guides_taken_literally() {
    for layout in LAYOUTS {
        let make = || {
            let machine = Machine::new(layout);
            machine.append(
                "etc/sysctl.conf",
                "sunrpc.max_tcp_slot_table_entries = 128\nvm.swappiness=10\nsunrpc.max_tpc_slot_table_enteries=128\n",
            );
            // Right, but for its value; and a line that another one overrides.
            machine.file(
                "etc/sysctl.d/60-nfs.conf",
                "sunrpc.tcp_max_slot_table_entries=2\n",
            );
            machine.file(
                "etc/sysctl.d/70-nfs",
                "sunrpc.tcp_max_slot_table_entries=64\nvm.dirty_ratio=3\n",
            );
            machine.file(
                "etc/modprobe.d/nfsclient.conf",
                "\"options nfs max_session_slots=180\"\noptions nfs callback_tcpport=4000\n",
            );
            machine.file(
                "etc/modprobe/d/nfsclient/conf",
                "\"options nfs max_session_slots=180\"\n",
            );
            machine.file(
                "etc/modprobe.d/nfs",
                "options sunrpc tcp_slot_table_entries=16 tcp_max_slot_table_entries=64\n",
            );
            machine.append("etc/fstab", "filer:/a /a nfs vers=4.1,hard 0 0\n");
            mounted(&machine, "nfs", "vers=3,hard", "filer:/b", "/b");
            machine.shell("mount /a");
            machine
        };
        let (machine, plan) = repaired(&make);
        let paths: Vec<&str> = plan.files.iter().map(|file| file.path.as_str()).collect();
        let mut once = paths.clone();
        once.dedup();
        assert_eq!(paths, once, "each file once");
        assert!(
            paths.contains(&"/etc/sysctl.conf") && !paths.contains(&"/etc/sysctl.d/99-sysctl.conf")
        );
        let read = |path: &str| std::fs::read_to_string(machine.resolve_path(path)).unwrap();
        assert!(read("etc/sysctl.conf").ends_with("vm.swappiness=10\n"));
        assert_eq!(read("etc/sysctl.d/70-nfs"), "vm.dirty_ratio=3\n");
        assert_eq!(
            read("etc/modprobe.d/nfsclient.conf"),
            "options nfs max_session_slots=180\noptions nfs callback_tcpport=4000\n"
        );
        assert!(read("etc/modprobe.d/sunrpc.conf").contains("tcp_slot_table_entries=16"));
        let first = plan
            .commands
            .iter()
            .position(|c| c == "modprobe sunrpc")
            .unwrap();
        let then = plan
            .commands
            .iter()
            .position(|c| c.starts_with("sysctl -w sunrpc"))
            .unwrap();
        assert!(first < then);
    }
}

/// A bad line behind a good mount: the line is what is fixed, and the mount is left alone.
#[test]
fn a_bad_line_of_fstab_behind_a_good_mount() {
    let layout = Layout::Rhel9;
    let make = || {
        let machine = Machine::new(layout);
        mounted(&machine, "nfs", GOOD, "nas:/data", "/data");
        tuned(&machine, "/data");
        machine.append(
            "etc/fstab",
            "nas:/data\t/data  nfs   soft,udp,timeo=50,rsize=32768,wsize=32768,sync,noac,vers=3,_netdev 0 0\n\
             //win/share /win cifs credentials=/etc/cred,vers=1.0,cache=none,multichannel,max_channels=4,noauto 0 0\n",
        );
        machine
    };
    let (found, ..) = make().diagnose();
    let mut rules: Vec<&str> = found.iter().map(|f| f.rule).collect();
    rules.sort_unstable();
    assert_eq!(
        rules,
        [
            "attribute-cache",
            "nconnect",
            "smb-cache",
            "smb-dialect",
            "soft",
            "sync",
            "transfer-size",
            "udp"
        ]
    );
    assert!(
        found.iter().all(|f| f.subject.starts_with("/etc/fstab:")),
        "{:?}",
        names(&found)
    );
    let (machine, plan) = repaired(&make);
    assert!(plan.commands.is_empty(), "{:?}", plan.commands);
    let fstab = machine.source().read("etc/fstab").unwrap();
    assert!(
        fstab.contains(
            "nas:/data\t/data  nfs   vers=3,_netdev,hard,proto=tcp,rsize=1048576,wsize=1048576,nconnect=16"
        ),
        "{fstab}"
    );
    assert!(!fstab.contains("soft") && !fstab.contains("udp"), "{fstab}");
}

/// Several mounts of a server, one inside another, one not in fstab, one with flags that were
/// given: all are unmounted and mounted again as they were, but for what is fixed.
#[test]
fn mounts_that_share_connections() {
    let layout = Layout::Debian12;
    let make = || {
        let machine = Machine::new(layout);
        machine.append(
            "etc/fstab",
            "nas:/a /a nfs vers=3,soft 0 0\nnas:/b /b\\040c nfs vers=3,nconnect=8 0 0\nnas:/later /later nfs vers=3 0 0\nother:/x /x nfs4\n",
        );
        machine.shell("mount /a");
        machine.shell("mount '/b c'");
        mounted(
            &machine,
            "nfs",
            "vers=3,nosuid,noexec,ro,timeo=600,retrans=5",
            "nas:/a/in",
            "/a/in",
        );
        machine
    };
    let (machine, plan) = repaired(&make);
    let at = |wanted: &str| {
        let found = plan
            .commands
            .iter()
            .position(|c| c == wanted || c.starts_with(&format!("{wanted} -t ")));
        found.unwrap_or_else(|| panic!("{wanted} in {:?}", plan.commands))
    };
    assert!(at("umount /a/in") < at("umount /a"));
    assert!(at("mount /a") < at("mount"));
    assert!(!plan.commands.iter().any(|c| c.contains("mount -a")));
    let inner = &plan.commands[at("mount")];
    for word in ["nosuid", "noexec", "ro", "retrans=5", "nconnect=8"] {
        assert!(inner.contains(word), "{word} in {inner}");
    }
    let fstab = machine.source().read("etc/fstab").unwrap();
    for line in [
        "nas:/a /a nfs vers=3,hard,nconnect=8 0 0",
        "nas:/later /later nfs vers=3,nconnect=8 0 0",
        "other:/x /x nfs4 nconnect=16",
    ] {
        assert!(fstab.contains(line), "{line} in {fstab}");
    }
}

/// A server far away: the buffers grow to what the distance needs, and no line elsewhere makes them
/// small again.
#[test]
fn buffers_for_the_distance() {
    let layout = Layout::Ubuntu2204;
    let make = || {
        let machine = Machine::new(layout);
        machine.append(
            "etc/sysctl.conf",
            "net.ipv4.tcp_rmem = 4096 87380 1048576\n",
        );
        machine.append("etc/fstab", &format!("far:/data /data nfs {GOOD} 0 0\n"));
        machine.shell("mount /data");
        tuned(&machine, "/data");
        machine.append(
            "proc/self/mountstats",
            "\tGETATTR: 1000 1000 0 1 1 0 100000 100000 0\n",
        );
        machine
    };
    let (machine, _) = repaired(&make);
    let conf = std::fs::read_to_string(machine.resolve_path("etc/sysctl.conf")).unwrap();
    assert!(
        conf.contains("net.ipv4.tcp_rmem = 4096 131072 16777216\n")
            || conf.contains("net.ipv4.tcp_rmem = 4096 131072 "),
        "{conf}"
    );
}

/// After a restart the machine is as it was fixed: the slots, the connections, the options.
#[test]
fn it_holds_after_a_restart() {
    for layout in LAYOUTS {
        let machine = Machine::new(layout);
        machine.append(
            "etc/fstab",
            "nas:/a /a nfs vers=3,soft 0 0\nnas:/b /b nfs4 sync 0 0\n",
        );
        machine.file(
            "etc/sysctl.d/60-nfs.conf",
            "sunrpc.tcp_max_slot_table_entries=2\n",
        );
        machine.shell("mount /a");
        machine.shell("mount /b");
        let (_, plan, _) = machine.diagnose();
        machine.run(&commands(&plan));
        machine.shell("reboot");
        let (found, ..) = machine.diagnose();
        // nfs-utils of Ubuntu 22.04 (2.6.1) has no nfsrahead yet, as the finding says.
        let ahead = if layout == Layout::Ubuntu2204 { 2 } else { 0 };
        let others: Vec<&Finding> = found.iter().filter(|f| f.rule != "read-ahead").collect();
        assert!(
            others.is_empty() && found.len() == ahead,
            "{layout:?}: {:?}",
            names(&found)
        );
    }
}

/// A file that is captured and examined elsewhere is examined as here, its links too.
#[test]
fn captured_with_its_links() {
    let machine = Machine::new(Layout::Rhel9);
    machine.append("etc/fstab", "nas:/a /a nfs vers=3,soft 0 0\n");
    machine.append(
        "etc/sysctl.conf",
        "sunrpc.max_tcp_slot_table_entries = 128\n",
    );
    machine.shell("mount /a");
    let to = machine.resolve_path("copy");
    machine.source().capture(&to).unwrap();
    assert!(to.join("etc/sysctl.d/99-sysctl.conf").is_symlink());
    let (_, here, plan) = diagnose(&machine.source(), None).unwrap();
    let (_, there, same) = diagnose(&Source::new(Some(to)), None).unwrap();
    assert_eq!(names(&here), names(&there));
    assert_eq!(plan.commands, same.commands);
    let contents = |plan: &Plan| -> Vec<(String, String)> {
        let files = plan.files.iter();
        files.map(|f| (f.path.clone(), f.content.clone())).collect()
    };
    assert_eq!(contents(&plan), contents(&same));
}

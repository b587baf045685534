//! Every rule against files of several kernels: what it finds, and what it leaves alone.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use weir_doctor::facts::{Facts, Protocol};
use weir_doctor::finding::{Edit, Finding, Plan, Severity};
use weir_doctor::plan::plan;
use weir_doctor::source::Source;
use weir_doctor::{report, rules};

fn source(machine: &str) -> Source {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captured")
        .join(machine);
    Source::new(Some(folder))
}

fn facts(machine: &str) -> Facts {
    Facts::read(&source(machine)).unwrap()
}

/// Returns the content that a plan gives a file.
fn content<'p>(plan: &'p Plan, path: &str) -> &'p str {
    let mut all = plan.files.iter().filter(|file| file.path == path);
    let file = all
        .next()
        .unwrap_or_else(|| panic!("{path} in {:?}", plan.files));
    assert!(all.next().is_none(), "{path} twice");
    &file.content
}

/// Returns the rule of each finding and the end of its subject.
fn names(findings: &[Finding]) -> Vec<(&str, &str)> {
    let mut all: Vec<_> = findings
        .iter()
        .map(|f| (f.rule, f.subject.rsplit(" on ").next().unwrap()))
        .collect();
    all.sort();
    all
}

fn one<'f>(findings: &'f [Finding], rule: &str, subject: &str) -> &'f Finding {
    let mut all = findings
        .iter()
        .filter(|f| f.rule == rule && f.subject.ends_with(subject));
    let found = all
        .next()
        .unwrap_or_else(|| panic!("no {rule} about {subject} in {:?}", names(findings)));
    assert!(all.next().is_none(), "{rule} about {subject} twice");
    found
}

#[test]
fn what_protection_costs_is_a_hint_about_the_mounts_that_have_it() {
    let mut facts = facts("debian-12-linux-6.1");
    assert_eq!(facts.mounts[1].options["sec"], "sys");
    assert!(
        rules::collect_findings(&facts)
            .iter()
            .all(|f| f.rule != "protection")
    );
    for (flavour, what) in [("krb5i", "summed"), ("krb5p", "encrypted")] {
        let options = &mut facts.mounts[1].options;
        options.insert("sec".to_owned(), flavour.to_owned());
        let found = rules::collect_findings(&facts);
        let hint = one(&found, "protection", "/m2");
        assert_eq!(hint.severity, Severity::Hint);
        assert!(hint.seen.contains(what), "{}", hint.seen);
        assert!(hint.fix.changes.is_empty() && !hint.fix.advice.is_empty());
    }
    let options = &mut facts.mounts[1].options;
    options.insert("sec".to_owned(), "krb5".to_owned());
    assert!(
        rules::collect_findings(&facts)
            .iter()
            .all(|f| f.rule != "protection")
    );
}

#[test]
fn a_kernel_that_was_captured() {
    let facts = facts("debian-12-linux-6.1");
    assert_eq!(facts.mounts.len(), 2);
    assert_eq!(facts.mounts[0].protocol, Protocol::Nfs3);
    assert_eq!(facts.mounts[0].connections.len(), 2);
    assert_eq!(facts.mounts[0].connections[1].most_slots, Some(200));
    assert_eq!(facts.mounts[1].protocol, Protocol::Nfs41);
    assert_eq!(facts.mounts[0].read_ahead, Some(128));
    let found = rules::collect_findings(&facts);
    assert_eq!(
        names(&found),
        [
            ("local-locks", "/m1"),
            ("nconnect", "/m2"),
            ("read-ahead", "/m1"),
            ("read-ahead", "/m2"),
            ("session-slots", "/m2"),
            ("slots", "/m1"),
            ("slots-total", "/m1")
        ]
    );
    let slots = one(&found, "slots", "/m1");
    assert_eq!(
        slots.severity,
        Severity::Slow,
        "200 were in use on one connection"
    );
    let plan = plan(&source("debian-12-linux-6.1"), &facts, &found);
    assert_eq!(
        content(&plan, "/etc/modprobe.d/sunrpc.conf"),
        "options sunrpc tcp_max_slot_table_entries=128\n"
    );
    assert_eq!(
        content(&plan, "/etc/modprobe.d/nfsclient.conf"),
        "options nfs max_session_slots=180\n"
    );
    assert_eq!(
        plan.commands,
        [
            "modprobe sunrpc",
            "sysctl -w sunrpc.tcp_max_slot_table_entries=128",
            "modprobe nfs",
            "echo 180 > /sys/module/nfs/parameters/max_session_slots",
            "umount /m2",
            "mount -t nfs -o hard,port=2050,proto=tcp,retrans=2,rsize=1048576,sec=sys,timeo=600,vers=4.1,wsize=1048576,nconnect=16 192.0.2.10:/ /m2",
            "echo 1024 > /sys/class/bdi/$(mountpoint -d /m1)/read_ahead_kb",
            "echo 15360 > /sys/class/bdi/$(mountpoint -d /m2)/read_ahead_kb",
        ]
    );
}

/// Weir grants up to 1,024 slots.
#[test]
fn more_session_slots_than_most_servers_grant_are_no_fault() {
    let mut facts = facts("debian-12-linux-6.1");
    for (set, fault) in [(64, true), (179, true), (180, false), (1024, false)] {
        facts.session_slots = Some(set);
        let found = rules::collect_findings(&facts);
        let said = found.iter().any(|f| f.rule == "session-slots");
        assert_eq!(said, fault, "{set}");
    }
}

#[test]
fn an_old_kernel_and_a_guide_taken_literally() {
    let facts = facts("rhel-8.2-linux-4.18");
    let found = rules::collect_findings(&facts);
    assert_eq!(
        names(&found),
        [
            ("misprint", "/etc/modprobe/d/nfsclient/conf:1"),
            ("misprint", "/etc/modprobe/d/nfsclient/conf:1"),
            ("misprint", "/etc/sysctl.conf:2"),
            ("misprint", "/etc/sysctl.conf:3"),
            ("nconnect", "/data"),
            ("queued", "/data"),
            ("retransmissions", "/data"),
            ("slots", "/data"),
            ("slots-total", "/data"),
            ("soft", "/data"),
            ("timeo", "/data"),
            ("transfer-size", "/data"),
        ]
    );
    assert_eq!(found[0].rule, "soft", "the gravest first");
    let soft = one(&found, "soft", "/data");
    assert_eq!(soft.fix.changes[0].set, ["hard"]);
    let plan = plan(&source("rhel-8.2-linux-4.18"), &facts, &found);
    assert_eq!(plan.mounts.len(), 1);
    assert_eq!(
        content(&plan, "/etc/fstab"),
        "# devices\nUUID=1 / ext4 defaults 0 1\n\
         nas.example.com:/data /data nfs hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576 0 0\n",
        "all rules' changes in one line"
    );
    assert!(
        plan.commands
            .ends_with(&["umount /data".to_owned(), "mount /data".to_owned()])
    );
    assert_eq!(
        content(&plan, "/etc/sysctl.conf"),
        "# from a guide\nvm.swappiness=10\n"
    );
    assert_eq!(content(&plan, "/etc/modprobe/d/nfsclient/conf"), "");
    let nconnect = one(&found, "nconnect", "/data");
    assert_eq!(nconnect.severity, Severity::Slow, "requests were waiting");
    assert!(
        nconnect.seen.contains("8.0 requests waiting") && nconnect.seen.contains("too old"),
        "{}",
        nconnect.seen
    );
    assert!(nconnect.fix.edits.is_empty() && nconnect.fix.changes.is_empty());
    let misprint = one(&found, "misprint", "/etc/sysctl.conf:3");
    assert!(misprint.seen.contains("sunrpc.max_tpc_slot_table_enteries"));
    assert_eq!(
        misprint.fix.edits[0],
        Edit::DropLine {
            file: "/etc/sysctl.conf".to_owned(),
            line: 3
        }
    );
    assert_eq!(
        content(&plan, "/etc/modprobe.d/sunrpc.conf"),
        "options sunrpc tcp_max_slot_table_entries=128\n"
    );
    let again = one(&found, "retransmissions", "/data");
    assert!(
        again.seen.starts_with("50 of 500000 requests"),
        "{}",
        again.seen
    );
    assert!(
        again
            .seen
            .contains("13 ran into a timeout; connected again 6 times"),
        "{}",
        again.seen
    );
}

#[test]
fn connections_that_an_earlier_mount_decided_on() {
    let facts = facts("ubuntu-22.04-linux-5.15");
    let found = rules::collect_findings(&facts);
    assert_eq!(
        names(&found),
        [
            ("attribute-cache", "/b c"),
            ("local-locks", "/old"),
            ("misprint", "/etc/modprobe.d/sunrpc:1"),
            ("misprint", "/etc/sysctl.d/60-nfs.conf:1"),
            ("multichannel", "/win"),
            ("nconnect", "/old"),
            ("nconnect-shared", "/a"),
            ("nconnect-shared", "/b c"),
            ("negotiated-size", "/a"),
            ("read-ahead", "/a"),
            ("session-slots", "/a"),
            ("slots", "/old"),
            ("smb-cache", "/win"),
            ("smb-dialect", "/win"),
            ("sync", "/a"),
            ("tcp-buffers", "/a"),
            ("transfer-size", "/old"),
            ("udp", "/old"),
        ]
    );
    let shared = one(&found, "nconnect-shared", "/b c");
    assert!(shared.seen.contains("nconnect=8") && shared.seen.contains("1 connections"));
    let plan = plan(&source("ubuntu-22.04-linux-5.15"), &facts, &found);
    let b = plan
        .mounts
        .iter()
        .find(|m| m.subject == "filer:/b on /b c")
        .unwrap();
    assert_eq!(b.options, "nconnect=8");
    assert!(b.effective.contains("all 2 mounts"));
    let around: Vec<&String> = plan
        .commands
        .iter()
        .filter(|c| c.contains("mount "))
        .collect();
    assert_eq!(
        around,
        [
            "umount /win",
            "umount /old",
            "umount '/b c'",
            "umount /a",
            "mount /a",
            "mount '/b c'",
            "mount -t nfs -o hard,nolock,sec=sys,vers=3,proto=tcp,rsize=1048576,wsize=1048576,nconnect=16 old:/x /old",
            "mount -t cifs -o rsize=65536,uid=0,username=u,wsize=65536,multichannel,max_channels=4,vers=3.1.1,cache=strict //win/share /win",
        ]
    );
    assert_eq!(
        content(&plan, "/etc/fstab"),
        "filer:/a /a nfs4 nconnect=8,rsize=1048576 0 0
filer:/b /b\\040c nfs4 nconnect=8 0 0
"
    );
    // 128 KiB a round trip of 5 ms.
    let ahead = one(&found, "read-ahead", "/a");
    assert!(
        ahead.gain.contains("at most 25 MiB/s now, 3000 MiB/s then"),
        "{}",
        ahead.gain
    );
    let udp = one(&found, "udp", "/old");
    assert_eq!(udp.severity, Severity::Unsafe);
}

/// The server's limits are the published ones, from the table of them.
#[test]
fn limits_are_those_of_the_source() {
    let stated = |key: &str| -> u64 {
        include_str!("../../bench/tests/fixtures/parameters.tsv")
            .lines()
            .map(|l| l.split('\t').collect::<Vec<_>>())
            .find(|f| f[1] == key)
            .unwrap()[2]
            .parse()
            .unwrap()
    };
    let limits = weir_doctor::facts::LIMITS;
    assert_eq!(limits.per_connection, stated("nfs3.outstanding_per_conn"));
    assert_eq!(
        limits.per_session,
        stated("nfs41.outstanding_per_session_max")
    );
    assert_eq!(limits.total, stated("nfs3.project_slot_total_max"));
    assert_eq!(limits.nconnect, stated("nconnect.max"));
    let found = rules::collect_findings(&facts("rhel-8.2-linux-4.18"));
    let transfer = one(&found, "transfer-size", "/data").fix.changes[0].clone();
    assert!(
        transfer
            .set
            .contains(&format!("rsize={}", stated("mount.rsize")))
    );
    assert!(
        transfer
            .set
            .contains(&format!("wsize={}", stated("mount.wsize")))
    );
    let timeo = one(&found, "timeo", "/data").fix.changes[0].clone();
    assert!(
        timeo
            .set
            .contains(&format!("timeo={}", stated("mount.timeo")))
    );
    assert!(
        timeo
            .set
            .contains(&format!("retrans={}", stated("mount.retrans")))
    );
    let multichannel = one(
        &rules::collect_findings(&facts("smb-linux-6.8")),
        "multichannel",
        "/projects",
    )
    .fix
    .changes[0]
        .clone();
    assert!(
        multichannel
            .set
            .contains(&format!("max_channels={}", stated("smb.rss_recommended_a")))
    );
}

/// SMB mounts alone, on kernels before and after multichannel (5.8).
#[test]
fn smb_mounts() {
    let new = facts("smb-linux-6.8");
    assert!(new.mounts.iter().all(|m| m.protocol == Protocol::Smb));
    let found = rules::collect_findings(&new);
    assert_eq!(
        names(&found),
        [
            ("channels-missing", "/tuned"),
            ("multichannel", "/legacy"),
            ("multichannel", "/projects"),
            ("smb-cache", "/no cache"),
            ("smb-dialect", "/legacy"),
        ]
    );
    assert_eq!(found[0].rule, "smb-dialect", "SMB 1 is the gravest");
    assert_eq!(found[0].severity, Severity::Unsafe);
    assert_eq!(
        one(&found, "multichannel", "/projects").severity,
        Severity::Slow
    );
    let plan = plan(&source("smb-linux-6.8"), &new, &found);
    assert_eq!(plan.files.len(), 1);
    assert_eq!(
        content(&plan, "/etc/fstab"),
        "//files.example.com/projects /projects cifs credentials=/etc/smb.cred,uid=1000,_netdev,multichannel,max_channels=4 0 0\n\
         //one.example.com/tuned /tuned cifs credentials=/etc/smb.cred,multichannel,max_channels=8 0 0\n",
        "what stood there stays, and what is right already is left alone"
    );
    assert!(
        plan.commands.iter().any(|c| c.starts_with("mount -t cifs")
            && c.ends_with("/legacy")
            && c.contains("vers=3.1.1")
            && c.contains("username=u")
            && c.contains("multichannel,max_channels=4")),
        "{:?}",
        plan.commands
    );
    let old = facts("smb-linux-5.4");
    let found = rules::collect_findings(&old);
    assert_eq!(
        names(&found),
        [("multichannel", "/data"), ("smb-dialect", "/data")]
    );
    assert_eq!(
        one(&found, "multichannel", "/data").severity,
        Severity::Hint,
        "5.4 cannot have it"
    );
    assert!(one(&found, "multichannel", "/data").fix.changes.is_empty());
}

#[test]
fn a_tuned_client_has_nothing_to_improve() {
    let facts = facts("tuned-linux-6.8");
    assert_eq!(facts.mounts.len(), 2);
    assert_eq!(names(&rules::collect_findings(&facts)), []);
    let mut text = Vec::new();
    report::text(&mut text, &facts, &[], &Plan::default()).unwrap();
    assert!(
        String::from_utf8(text)
            .unwrap()
            .ends_with("nothing to improve\n")
    );
}

#[test]
fn a_machine_without_mounts() {
    let facts = facts("no-mounts-linux-6.12");
    assert_eq!(names(&rules::collect_findings(&facts)), []);
    assert!(facts.clone().only_server("nas").is_err());
}

#[test]
fn only_the_server_that_was_asked_for() {
    let mut some = facts("ubuntu-22.04-linux-5.15");
    some.only_server("192.0.2.12").unwrap();
    assert_eq!(some.mounts.len(), 2);
    let mut some = facts("ubuntu-22.04-linux-5.15");
    some.only_server("filer").unwrap();
    assert_eq!(some.mounts.len(), 2);
}

#[test]
fn every_finding_can_be_acted_upon() {
    for machine in [
        "debian-12-linux-6.1",
        "rhel-8.2-linux-4.18",
        "ubuntu-22.04-linux-5.15",
        "smb-linux-6.8",
        "smb-linux-5.4",
    ] {
        let facts = facts(machine);
        let found = rules::collect_findings(&facts);
        for finding in &found {
            let fix = &finding.fix;
            assert!(
                !(fix.edits.is_empty()
                    && fix.changes.is_empty()
                    && fix.steps.is_empty()
                    && fix.advice.is_empty()),
                "{finding:?}"
            );
            assert!(
                ![&finding.seen, &finding.why, &finding.gain, &fix.effective]
                    .iter()
                    .any(|t| t.is_empty()),
                "{finding:?}"
            );
        }
        let mut json = Vec::new();
        let plan = plan(&source(machine), &facts, &found);
        report::json(&mut json, &facts, &found, &plan).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(read["findings"].as_array().unwrap().len(), found.len());
    }
}

#[test]
fn a_captured_folder_is_read_like_the_machine() {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captured/rhel-8.2-linux-4.18");
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("copy");
    Source::new(Some(from)).capture(&to).unwrap();
    let copied = Facts::read(&Source::new(Some(to.clone()))).unwrap();
    assert_eq!(
        names(&rules::collect_findings(&copied)),
        names(&rules::collect_findings(&facts("rhel-8.2-linux-4.18")))
    );
    assert!(
        Source::new(None).capture(&to).is_err(),
        "a folder that exists is not written into"
    );
}

#[test]
fn rubbish_is_no_mount() {
    for text in [
        "device",
        "device x mounted on y with fstype nfs\n\txprt:\n\topts:\n\tREAD: a b\n",
        "device x mounted on y with fstype nfs statvers=1.1\n\txprt:\ttcp 1 2\n",
    ] {
        let all = weir_doctor::mountstats::parse(text);
        assert!(all.iter().all(|m| m.operations.is_empty()), "{text}");
    }
}

//! Every rule against files of several kernels: what it finds, and what it leaves alone.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use weir_doctor::facts::{Facts, Protocol};
use weir_doctor::finding::{Finding, Severity};
use weir_doctor::source::Source;
use weir_doctor::{report, rules};

fn facts(machine: &str) -> Facts {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captured")
        .join(machine);
    Facts::read(&Source::new(Some(folder))).unwrap()
}

/// Rule and the end of the subject.
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
fn a_kernel_that_was_captured() {
    let facts = facts("debian-12-linux-6.1");
    assert_eq!(facts.mounts.len(), 2);
    assert_eq!(facts.mounts[0].protocol, Protocol::Nfs3);
    assert_eq!(facts.mounts[0].connections.len(), 2);
    assert_eq!(facts.mounts[0].connections[1].most_slots, Some(200));
    assert_eq!(facts.mounts[1].protocol, Protocol::Nfs41);
    assert_eq!(facts.mounts[0].read_ahead, Some(128));
    let found = rules::all(&facts);
    assert_eq!(
        names(&found),
        [
            ("local-locks", "/m1"),
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
    assert_eq!(slots.fix.files[0].path, "/etc/modprobe.d/sunrpc.conf");
    assert_eq!(
        slots.fix.files[0].content,
        "options sunrpc tcp_max_slot_table_entries=128\n"
    );
    let session = one(&found, "session-slots", "/m2");
    assert_eq!(session.fix.files[0].path, "/etc/modprobe.d/nfsclient.conf");
    assert_eq!(
        session.fix.files[0].content,
        "options nfs max_session_slots=180\n"
    );
    assert!(session.fix.commands[0].starts_with("systool -v -m nfs"));
    let ahead = one(&found, "read-ahead", "/m2");
    assert!(ahead.fix.commands[0].starts_with("echo 15360 > /sys/class/bdi/0:32/read_ahead_kb"));
}

#[test]
fn an_old_kernel_and_a_guide_taken_literally() {
    let facts = facts("rhel-8.2-linux-4.18");
    let found = rules::all(&facts);
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
    assert_eq!(soft.fix.change.as_ref().unwrap().set, ["hard"]);
    let mounts = rules::together(&facts, &found);
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0].fix.files[0].path, "/etc/fstab");
    assert_eq!(
        mounts[0].fix.files[0].content,
        "# devices\nUUID=1 / ext4 defaults 0 1\n\
         nas.example.com:/data /data nfs hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576 0 0\n",
        "all rules' changes in one line"
    );
    assert_eq!(mounts[0].fix.commands, ["umount /data", "mount /data"]);
    let nconnect = one(&found, "nconnect", "/data");
    assert_eq!(nconnect.severity, Severity::Slow, "requests were waiting");
    assert!(
        nconnect.seen.contains("8.0 requests waiting") && nconnect.seen.contains("too old"),
        "{}",
        nconnect.seen
    );
    assert!(nconnect.fix.files.is_empty());
    let misprint = one(&found, "misprint", "/etc/sysctl.conf:3");
    assert!(misprint.seen.contains("sunrpc.max_tpc_slot_table_enteries"));
    assert_eq!(
        misprint.fix.files[0].content,
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
    let found = rules::all(&facts);
    assert_eq!(
        names(&found),
        [
            ("attribute-cache", "/b c"),
            ("local-locks", "/old"),
            ("misprint", "/etc/modprobe.d/sunrpc:1"),
            ("misprint", "/etc/sysctl.d/60-nfs.conf:1"),
            ("multichannel", "/win"),
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
    let mounts = rules::together(&facts, &found);
    let b = mounts
        .iter()
        .find(|m| m.subject == "filer:/b on /b c")
        .unwrap();
    assert_eq!(b.options, "nconnect=8");
    assert_eq!(
        b.fix.commands,
        [
            "umount /a",
            "umount '/b c'",
            "mount '/b c'",
            "mount -a   # the others of this server again"
        ]
    );
    assert!(b.fix.effective.contains("all 2 mounts"));
    let files: Vec<_> = mounts.iter().flat_map(|m| &m.fix.files).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(
        files[0].content,
        "filer:/a /a nfs4 rsize=2097152,nconnect=8 0 0
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
    let win = mounts
        .iter()
        .find(|m| m.subject == "//win/share on /win")
        .unwrap();
    assert_eq!(
        win.fix.commands.last().unwrap(),
        "mount -t cifs -o rsize=65536,wsize=65536,multichannel,max_channels=4,vers=3.1.1,cache=strict //win/share /win"
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
    let found = rules::all(&facts("rhel-8.2-linux-4.18"));
    let transfer = one(&found, "transfer-size", "/data")
        .fix
        .change
        .clone()
        .unwrap();
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
    let timeo = one(&found, "timeo", "/data").fix.change.clone().unwrap();
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
        &rules::all(&facts("smb-linux-6.8")),
        "multichannel",
        "/projects",
    )
    .fix
    .change
    .clone()
    .unwrap();
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
    let found = rules::all(&new);
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
    let mounts = rules::together(&new, &found);
    let files: Vec<_> = mounts.iter().flat_map(|m| &m.fix.files).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(
        files[0].content,
        "//files.example.com/projects /projects cifs credentials=/etc/smb.cred,uid=1000,_netdev,multichannel,max_channels=4 0 0\n\
         //one.example.com/tuned /tuned cifs credentials=/etc/smb.cred,multichannel,max_channels=8 0 0\n",
        "what stood there stays, and what is right already is left alone"
    );
    let legacy = mounts
        .iter()
        .find(|m| m.subject.ends_with("/legacy"))
        .unwrap();
    assert!(
        legacy
            .fix
            .commands
            .iter()
            .any(|c| c.starts_with("mount -t cifs")
                && c.contains("vers=3.1.1")
                && c.contains("multichannel,max_channels=4")),
        "{:?}",
        legacy.fix.commands
    );
    let old = facts("smb-linux-5.4");
    let found = rules::all(&old);
    assert_eq!(
        names(&found),
        [("multichannel", "/data"), ("smb-dialect", "/data")]
    );
    assert_eq!(
        one(&found, "multichannel", "/data").severity,
        Severity::Hint,
        "5.4 cannot have it"
    );
}

#[test]
fn a_tuned_client_has_nothing_to_improve() {
    let facts = facts("tuned-linux-6.8");
    assert_eq!(facts.mounts.len(), 2);
    assert_eq!(names(&rules::all(&facts)), []);
    let mut text = Vec::new();
    report::text(&mut text, &facts, &[], &[]).unwrap();
    assert!(
        String::from_utf8(text)
            .unwrap()
            .ends_with("nothing to improve\n")
    );
}

#[test]
fn a_machine_without_mounts() {
    let facts = facts("no-mounts-linux-6.12");
    assert_eq!(names(&rules::all(&facts)), []);
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
        let found = rules::all(&facts);
        for finding in &found {
            let fix = &finding.fix;
            assert!(
                !fix.files.is_empty() || !fix.commands.is_empty() || fix.change.is_some(),
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
        report::json(&mut json, &facts, &found, &rules::together(&facts, &found)).unwrap();
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
        names(&rules::all(&copied)),
        names(&rules::all(&facts("rhel-8.2-linux-4.18")))
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

//! A session at an FSx for ONTAP prompt, command by command, with the replies as they were printed
//! there (a published walk through SnapMirror's throttles, May 2023), over the product's rules,
//! with scripted transfers.
#![allow(clippy::unwrap_used, clippy::panic)]

use weir_ontap::execute;
use weir_ontap::script::Script;
use weir_relations::manager::Verb;
use weir_relations::model::{LastTransfer, Path, TransferKind};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn two() -> Script {
    Script::session()
}

fn says(script: &Script, line: &str, reply: &str) {
    let text = match execute(line, script) {
        Ok(text) | Err(text) => text,
    };
    assert_eq!(text, reply, "\n::> {line}\n{text}");
}

#[test]
fn the_session() {
    let script = two();
    says(
        &script,
        "snapmirror show",
        "                                                                       Progress
Source            Destination Mirror  Relationship   Total             Last
Path        Type  Path        State   Status         Progress  Healthy Updated
----------- ---- ------------ ------- -------------- --------- ------- --------
SVM:vol_test
            XDP  SVM:vol_test_dst
                              Snapmirrored
                                      Quiesced       -         false   -
                 SVM:vol_test_1_dst
                              Snapmirrored
                                      Quiesced       -         false   -
2 entries were displayed.
",
    );
    says(
        &script,
        "snapmirror show -fields throttle",
        "source-path  destination-path throttle
------------ ---------------- ---------
SVM:vol_test SVM:vol_test_dst unlimited
SVM:vol_test SVM:vol_test_1_dst
                              unlimited
2 entries were displayed.
",
    );
    says(
        &script,
        "snapmirror show -fields status, schedule",
        "source-path  destination-path schedule status
------------ ---------------- -------- --------
SVM:vol_test SVM:vol_test_dst 5min     Quiesced
SVM:vol_test SVM:vol_test_1_dst
                              5min     Quiesced
2 entries were displayed.
",
    );
    says(
        &script,
        "snapmirro modify -source-path SVM:vol_test -destination-path SVM:vol_test_dst -schedule weekly",
        "  (snapmirror modify)
Operation succeeded: snapmirror modify for the relationship with destination \"SVM:vol_test_dst\".
",
    );
    says(
        &script,
        "snapmirro modify -source-path SVM:vol_test -destination-path SVM:vol_test_1_dst -schedule weekly",
        "  (snapmirror modify)
Operation succeeded: snapmirror modify for the relationship with destination \"SVM:vol_test_1_dst\".
",
    );
    for destination in ["SVM:vol_test_dst", "SVM:vol_test_1_dst"] {
        says(
            &script,
            &format!("snapmirror resume -source-path SVM:vol_test -destination-path {destination}"),
            &format!("Operation succeeded: snapmirror resume for destination \"{destination}\".\n"),
        );
    }
    says(
        &script,
        "snapmirror show -fields status, schedule",
        "source-path  destination-path schedule status
------------ ---------------- -------- ------
SVM:vol_test SVM:vol_test_dst weekly   Idle
SVM:vol_test SVM:vol_test_1_dst
                              weekly   Idle
2 entries were displayed.
",
    );
    says(
        &script,
        "snapmirror update -source-path SVM:vol_test -destination-path SVM:vol_test_dst",
        "Operation is queued: snapmirror update of destination \"SVM:vol_test_dst\".\n",
    );
    let transferred = |bytes, seconds: u64, end| {
        Some(LastTransfer {
            uuid: String::new(),
            snapshot: None,
            kind: TransferKind::Update,
            bytes,
            wire_bytes: bytes,
            duration_ms: seconds * 1000,
            setup_ms: 10,
            data_ms: seconds * 1000 - 20,
            finalize_ms: 10,
            rate: bytes / seconds,
            end,
            error: None,
        })
    };
    script.set("SVM:vol_test_dst", |r| {
        r.last = transferred(550_292_684, 41, 0);
        r.pending = None;
    });
    says(
        &script,
        "snapmirror show -source-path SVM:vol_test -fields last-transfer-size, last-transfer-duration",
        "source-path  destination-path last-transfer-size last-transfer-duration
------------ ---------------- ------------------ ----------------------
SVM:vol_test SVM:vol_test_dst 524.8MB            0:0:41
SVM:vol_test SVM:vol_test_1_dst
                              -                  -
2 entries were displayed.
",
    );
    says(
        &script,
        "snapmirror modify -source-path SVM:vol_test -destination-path SVM:vol_test_dst -throttle 8192",
        "Operation succeeded: snapmirror modify for the relationship with destination \"SVM:vol_test_dst\".\n",
    );
    says(
        &script,
        "snapmirror show -source-path SVM:vol_test -destination-path SVM:vol_test_dst -fields throttle",
        "source-path  destination-path throttle
------------ ---------------- --------
SVM:vol_test SVM:vol_test_dst 8192
",
    );
    says(
        &script,
        "snapshot create -vserver SVM -volume vol_test -snapshot daily.2023-0504_0957 -snapmirror-label daily",
        "",
    );
    assert_eq!(script.state().snapshots[0].label.as_deref(), Some("daily"));
    says(
        &script,
        "snapmirror update -source-path SVM:vol_test -destination-path SVM:vol_test_1_dst",
        "Operation is queued: snapmirror update of destination \"SVM:vol_test_1_dst\".\n",
    );
    script.set("SVM:vol_test_1_dst", |r| {
        r.last = transferred(550_397_542, 27, 0);
        r.pending = None;
    });
    says(
        &script,
        "snapmirror show -source-path SVM:vol_test -destination-path SVM:vol_test_1_dst -fields last-transfer-size, last-transfer-duration",
        "source-path  destination-path   last-transfer-size last-transfer-duration
------------ ------------------ ------------------ ----------------------
SVM:vol_test SVM:vol_test_1_dst 524.9MB            0:0:27
",
    );
    says(
        &script,
        "options -option-name replication.throttle.enable on",
        "\nError: There are no entries matching your query.\n",
    );
    says(
        &script,
        "options -option-name replication.throttle.incoming.max_kbs 4096",
        "1 entry was modified.\n",
    );
    says(
        &script,
        "options",
        "
FsxId05f72eb8f8d03c709
    replication.throttle.incoming.max_kbs
                                      4096                 -
    replication.throttle.outgoing.max_kbs
                                      -                    -
2 entries were displayed.
",
    );
    for (destination, bytes) in [
        ("SVM:vol_test_dst", 10_412_360),
        ("SVM:vol_test_1_dst", 64_109_937),
    ] {
        script.moving(destination, bytes, 1_683_196_890);
    }
    says(
        &script,
        "snapmirror show",
        "                                                                       Progress
Source            Destination Mirror  Relationship   Total             Last
Path        Type  Path        State   Status         Progress  Healthy Updated
----------- ---- ------------ ------- -------------- --------- ------- --------
SVM:vol_test
            XDP  SVM:vol_test_dst
                              Snapmirrored
                                      Transferring   9.93MB    true    05/04 10:41:30
                 SVM:vol_test_1_dst
                              Snapmirrored
                                      Transferring   61.14MB   true    05/04 10:41:30
2 entries were displayed.
",
    );
    script.set("SVM:vol_test_dst", |r| {
        r.last = transferred(550_397_542, 281, 1_683_197_153)
    });
    script.set("SVM:vol_test_1_dst", |r| {
        r.last = transferred(550_397_542, 255, 1_683_197_128)
    });
    says(
        &script,
        "snapmirror show -source-path SVM:vol_test -fields last-transfer-size, last-transfer-duration, last-transfer-end-timestamp",
        "source-path  destination-path last-transfer-size last-transfer-duration last-transfer-end-timestamp
------------ ---------------- ------------------ ---------------------- ---------------------------
SVM:vol_test SVM:vol_test_dst 524.9MB            0:4:41                 05/04 10:45:53
SVM:vol_test SVM:vol_test_1_dst
                              524.9MB            0:4:15                 05/04 10:45:28
2 entries were displayed.
",
    );
    says(
        &script,
        "options -option-name replication.throttle.incoming.max_kbs unlimited",
        "1 entry was modified.\n",
    );
    says(
        &script,
        "options",
        "
FsxId05f72eb8f8d03c709
    replication.throttle.incoming.max_kbs
                                      unlimited            -
    replication.throttle.outgoing.max_kbs
                                      -                    -
2 entries were displayed.
",
    );
}

#[test]
fn what_is_refused_changes_nothing() {
    let script = two();
    for (line, reply) in [
        (
            "snapmirror modify -destination-path SVM:vol_test_dst -throttle 3",
            "\nError: \"3\" is an invalid value for field \"-throttle <throttleType>\" (valid: 0 or unlimited, or 4 to 2147483648 KB/s)\n",
        ),
        (
            "snapmirror modify -destination-path SVM:vol_test_dst -throttle 2147483649",
            "\nError: \"2147483649\" is an invalid value for field \"-throttle <throttleType>\" (valid: 0 or unlimited, or 4 to 2147483648 KB/s)\n",
        ),
        (
            "snapmirror modify -destination-path SVM:nothing -throttle 8",
            "\nError: There are no entries matching your query.\n",
        ),
        (
            "snapmirror modify -destination-path SVM:vol_test_dst -schedule never",
            "\nError: command failed: Schedule \"never\" not found.\n",
        ),
        (
            "snapmirror modify -destination-path SVM:vol_test_dst -schedule weeklyy",
            "\nError: command failed: Schedule \"weeklyy\" not found.\n",
        ),
        (
            "snapmirror modify -destination-path SVM:vol_test_dst -policy X",
            "\nError: command failed: Policy lookup for \"X\" failed: entry doesn't exist.\n",
        ),
        (
            "snapmirror modify",
            "\nError: missing required argument \"-destination-path\" (a SVM:volume)\n",
        ),
        (
            "snapmirror modify -destination-path",
            "\nError: missing value for \"-destination-path\" (a SVM:volume)\n",
        ),
        (
            "snapmirror modify -colour red",
            "\nError: invalid argument \"-colour\"\n",
        ),
        (
            "snapmirror update -source SVM:x -source-path SVM:y -destination-path a:b",
            "\nError: argument \"-source\" is ambiguous: it may be -source-path, -source-snapshot\n",
        ),
        (
            "snapmirror frobnicate",
            "\nError: \"frobnicate\" is not a recognized command\n",
        ),
        (
            "snapmirror re -destination-path SVM:vol_test_dst",
            "\nError: \"re\" is ambiguous: it may be release, restore, resume, resync\n",
        ),
        (
            "snap show",
            "\nError: \"snap\" is ambiguous: it may be snapmirror, snapshot\n",
        ),
        (
            "snapmirror",
            "\nError: \"snapmirror\" is not a complete command; it may go on with abort, break, create, delete, initialize, list-destinations, modify, policy, quiesce, release, restore, resume, resync, show, update\n",
        ),
        (
            "snapmirror show -fields colour",
            "\nError: \"colour\" is an invalid value for field \"-fields <fieldname>, ...>\" (valid: source-path, source-cluster, source-vserver, source-volume, destination-path, \
             destination-cluster, destination-vserver, destination-volume, type, \
             relationship-group-type, managing-vserver, schedule, policy-type, policy, tries, \
             throttle, current-transfer-throttle, state, status, snapshot-progress, \
             total-progress, total-wire-progress, current-transfer-size, \
             network-compression-ratio, newest-snapshot, newest-snapshot-timestamp, \
             exported-snapshot, exported-snapshot-timestamp, healthy, unhealthy-reason, \
             relationship-id, current-transfer-type, current-transfer-rate, \
             current-transfer-limited-by, current-transfer-time-left, last-transfer-type, \
             last-transfer-error, last-transfer-size, last-transfer-wire-size, \
             last-transfer-network-compression-ratio, last-transfer-duration, \
             last-transfer-setup-time, last-transfer-data-time, last-transfer-finalize-time, \
             last-transfer-from, last-transfer-end-timestamp, progress-last-updated, \
             relationship-capability, lag-time)\n",
        ),
        (
            "snapmirror show \"",
            "\nError: Unbalanced quotes in command.\n",
        ),
        (
            "snapmirror create -source-path nonsense -destination-path SVM:x",
            "\nError: \"nonsense\" is an invalid value for field \"-source-path <[<cluster>:]<vserver>:<volume>>\"\n",
        ),
        (
            "snapshot delete -vserver SVM -volume vol_test -snapshot none",
            "\nError: There are no entries matching your query.\n",
        ),
        (
            "options -option-name replication.throttle.incoming.max_kbs 3",
            "\nError: \"3\" is an invalid value for field \"-option-value <throttleType>\" (valid: 0 or unlimited, or 4 to 2147483648 KB/s)\n",
        ),
    ] {
        says(&script, line, reply);
    }
    assert_eq!(script.state().changes, []);
}

#[test]
fn abbreviations_queries_and_instances() {
    let script = two();
    says(
        &script,
        "snapm sh -destination-path *_1_* -fields pol",
        "  (snapmirror show)\n\nError: \"pol\" is ambiguous: it may be policy-type, policy\n",
    );
    says(
        &script,
        "snapm sh -destination-path *_1_* -fields policy",
        "  (snapmirror show)
source-path  destination-path   policy
------------ ------------------ ----------
SVM:vol_test SVM:vol_test_1_dst XDPDefault
",
    );
    says(
        &script,
        "snapmirror show -throttle >4096",
        "\nError: There are no entries matching your query.\n",
    );
    let instance = execute(
        "snapmirror show -destination-path SVM:vol_test_dst",
        &script,
    )
    .unwrap();
    assert!(
        instance.contains("                     Mirror State: Snapmirrored\n")
            || instance.contains("Mirror State: Snapmirrored\n"),
        "{instance}"
    );
    assert!(instance.contains("Throttle (KB/sec): unlimited\n"));
    assert_eq!(execute("  ", &script).unwrap(), "");
    // All at once, by a query.
    let reply = execute("snapmirror quiesce -destination-path *", &script).unwrap();
    assert_eq!(reply.lines().count(), 2);
    assert_eq!(
        script.state().changes,
        [
            Verb::Quiesce(path("SVM:vol_test_dst")).into(),
            Verb::Quiesce(path("SVM:vol_test_1_dst")).into()
        ]
    );
    let empty = Script::empty();
    says(
        &empty,
        "snapmirror show",
        "This table is currently empty.\n",
    );
}

#[test]
fn completion() {
    let complete = |line: &str| weir_ontap::complete(line, |_| Vec::new());
    assert_eq!(complete("snapm"), ["snapmirror"]);
    assert_eq!(complete("snap"), ["snapmirror", "snapshot"]);
    assert_eq!(complete("snapmirror res"), ["restore", "resume", "resync"]);
    assert_eq!(
        complete("snapmirror quiesce "),
        ["-destination-path", "-source-path"]
    );
    assert_eq!(
        complete("snapmirror modify -destination-path a:b -th"),
        ["-throttle"]
    );
    assert_eq!(complete("snapmirror policy add"), ["add-rule"]);
    assert_eq!(complete("nothing of the kind "), Vec::<String>::new());
}

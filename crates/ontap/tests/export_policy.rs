//! `vserver export-policy` and `snapmirror list-destinations`, on the command line.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

use weir_ontap::script::Script;
use weir_ontap::{Cluster as _, execute};

fn cluster() -> Script {
    Script::running(&["SVM:a", "SVM:b"])
}

fn does(script: &Script, line: &str) -> String {
    execute(line, script).unwrap_or_else(|text| panic!("{line}: {text}"))
}

fn refused(script: &Script, line: &str) -> String {
    match execute(line, script) {
        Ok(text) => panic!("{line}: {text}"),
        Err(text) => text,
    }
}

/// Returns the index and the clients of each rule of the policy `web`.
fn rules(script: &Script) -> Vec<(String, String)> {
    let line = "vserver export-policy rule show -vserver SVM -policyname web -fields clientmatch";
    let text = does(script, line);
    let rows = text.lines().filter(|line| line.starts_with("SVM"));
    let cells = rows.map(|row| {
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    cells
        .map(|cells| (cells[2].clone(), cells[3].clone()))
        .collect()
}

#[test]
fn policies_and_their_rules() {
    let s = cluster();
    does(
        &s,
        "vserver export-policy create -vserver SVM -policyname web",
    );
    for (clients, more) in [
        ("10.0.0.0/8", ""),
        ("11.0.0.0/8", ""),
        ("12.0.0.0/8,host7", " -ruleindex 1"),
    ] {
        let rule = "vserver export-policy rule create -vserver SVM -policyname web -rorule sys -rwrule any";
        does(&s, &format!("{rule} -clientmatch {clients}{more}"));
    }
    let all = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    let three = [
        ("1", "12.0.0.0/8,host7"),
        ("2", "10.0.0.0/8"),
        ("3", "11.0.0.0/8"),
    ];
    assert_eq!(rules(&s), all(&three));
    let table = does(
        &s,
        "vserver export-policy rule show -vserver SVM -policyname web",
    );
    let wanted = "             Policy          Rule   Access   Client                RO\n\
                  Vserver      Name            Index  Protocol Match                 Rule\n\
                  ------------ --------------- ------ -------- --------------------- ---------\n\
                  SVM          web             1      any      12.0.0.0/8,host7      sys\n";
    assert!(table.starts_with(wanted), "{table}");
    let one = does(
        &s,
        "vserver export-policy rule show -vserver SVM -policyname web -ruleindex 1",
    );
    for line in [
        "                                    Vserver: SVM",
        "Superuser Security Types: none",
        "User ID To Which Anonymous Users Are Mapped: 65534",
        "RW Access Rule: any",
    ] {
        assert!(one.contains(line.trim_start()), "{line}: {one}");
    }
    does(
        &s,
        "vserver export-policy rule setindex -vserver SVM -policyname web -ruleindex 1 -newruleindex 3",
    );
    let moved = [
        ("2", "10.0.0.0/8"),
        ("3", "12.0.0.0/8,host7"),
        ("4", "11.0.0.0/8"),
    ];
    assert_eq!(rules(&s), all(&moved));
    does(
        &s,
        "vserver export-policy rule modify -vserver SVM -policyname web -ruleindex 4 -clientmatch 1.2.3.4",
    );
    does(
        &s,
        "vserver export-policy rule delete -vserver SVM -policyname web -ruleindex 3",
    );
    assert_eq!(rules(&s), all(&[("2", "10.0.0.0/8"), ("4", "1.2.3.4")]));
    for line in [
        "vserver export-policy rule delete -vserver SVM -policyname web -ruleindex 3",
        "vserver export-policy rule modify -vserver SVM -policyname web -ruleindex 2 -allow-suid false",
        "vserver export-policy rule create -vserver SVM -policyname web -rorule any -rwrule any",
        "vserver export-policy rule create -vserver SVM -policyname none -clientmatch x -rorule any -rwrule any",
        "vserver export-policy rule setindex -vserver SVM -policyname web -ruleindex 2 -newruleindex 0",
    ] {
        refused(&s, line);
    }
    does(
        &s,
        "vserver export-policy rename -vserver SVM -policyname web -newpolicyname nets",
    );
    let shown = does(
        &s,
        "vserver export-policy show -vserver SVM -policyname nets",
    );
    assert_eq!(shown, "    Vserver: SVM\nPolicy Name: nets\n");
    does(
        &s,
        "vserver export-policy delete -vserver SVM -policyname nets",
    );
    refused(
        &s,
        "vserver export-policy show -vserver SVM -policyname nets",
    );
}

#[test]
fn destinations_are_listed_as_a_table() {
    let s = cluster();
    does(
        &s,
        "snapmirror create -source-path SVM:a -destination-path SVM:b",
    );
    does(&s, "snapmirror initialize -destination-path SVM:b");
    // Each listing moves the transfer on.
    while s.relationships().iter().any(|r| r.transfer.is_some()) {}
    let listed = does(&s, "snapmirror list-destinations -source-path SVM:a");
    let heads: Vec<&str> = listed.lines().take(3).map(str::trim).collect();
    assert_eq!(heads[0], "Progress", "{listed}");
    assert_eq!(heads[2].split_whitespace().next(), Some("Path"), "{listed}");
    let row = listed
        .lines()
        .find(|line| line.starts_with("SVM:a"))
        .unwrap();
    let cells: Vec<&str> = row.split_whitespace().take(3).collect();
    assert_eq!(cells, ["SVM:a", "XDP", "SVM:b"], "{listed}");
    let one = does(&s, "snapmirror list-destinations -instance");
    assert!(one.contains("Destination Path: SVM:b"), "{one}");
}

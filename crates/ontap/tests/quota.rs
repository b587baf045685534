//! `volume quota` in ONTAP's form.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

use weir_ontap::script::Script;
use weir_ontap::storage::{QuotaLimits, QuotaRule, QuotaTarget, QuotaUse};
use weir_ontap::{Answer, Scalar, call, execute};
use weir_relations::model::Path;

const RULE: &str = "volume quota policy rule";
const AT: &str = "-vserver SVM -policy-name default -volume vol";

fn script() -> Script {
    let script = Script::running(&["SVM:vol", "SVM:other"]);
    let held = |target, bytes, used_bytes, used_files| QuotaUse {
        rule: QuotaRule {
            volume: Path::local("SVM", "vol"),
            target,
            limits: QuotaLimits {
                bytes,
                ..QuotaLimits::default()
            },
        },
        used_bytes,
        used_files,
    };
    script.state().quota_uses = vec![
        held(QuotaTarget::User(0), 0, 0, 1),
        held(QuotaTarget::User(7), 50 << 20, 49 << 20, 37),
        held(QuotaTarget::User(1001), 80 << 20, 1 << 20, 2),
    ];
    script
}

fn does(script: &Script, line: &str) -> String {
    execute(line, script).unwrap_or_else(|why| panic!("{line}: {why}"))
}

#[test]
fn rules_are_made_shown_changed_and_deleted() {
    let script = script();
    for line in [
        "create -type user -target \"\" -qtree \"\" -disk-limit 50MB -soft-disk-limit 40MB",
        "create -type user -target 1001 -qtree \"\" -user-mapping off -disk-limit 81920 -file-limit 2000",
    ] {
        let line = line.replacen("create", &format!("{RULE} create {AT}"), 1);
        assert_eq!(does(&script, &line), "");
    }
    let shown = "\
Vserver: SVM               Policy: default           Volume: vol

                                               Soft             Soft
                         User         Disk     Disk   Files    Files
Type   Target    Qtree   Mapping     Limit    Limit   Limit    Limit  Threshold
-----  --------  ------- -------  --------  -------  ------  -------  ---------
user   \"\"        \"\"      off          50MB     40MB       -        -          -
user   1001      \"\"      off          80MB        -    2000        -          -
2 entries were displayed.
";
    assert_eq!(does(&script, &format!("{RULE} show")), shown);
    let short = does(&script, "quota policy rule show -volume vol");
    assert_eq!(short, format!("  ({RULE} show)\n{shown}"));

    let modify = format!("{RULE} modify {AT} -type user -target 1001");
    assert_eq!(
        does(
            &script,
            &format!("{modify} -disk-limit 1GB -file-limit unlimited")
        ),
        ""
    );
    let fields = "-fields disk-limit,file-limit,soft-disk-limit";
    let one = does(&script, &format!("{RULE} show -target 1001 {fields}"));
    let values: Vec<&str> = one.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(
        values,
        ["SVM", "default", "vol", "user", "1001", "1GB", "-", "-"]
    );
    assert_eq!(
        does(
            &script,
            &format!("{RULE} delete {AT} -type user -target 1001")
        ),
        ""
    );
    assert_eq!(script.state().quota_rules.len(), 1);
}

#[test]
fn what_cannot_be_is_refused_in_ontaps_words() {
    let script = script();
    let create = format!("{RULE} create {AT} -type user -target 7");
    does(&script, &create);
    let modify = format!("{RULE} modify {AT} -type user -target");
    for (line, why) in [
        (create.clone(), "command failed: duplicate entry"),
        (
            format!("{modify} 8"),
            "There are no entries matching your query.",
        ),
        (
            format!("{RULE} delete -vserver SVM -volume none -type user -target 7"),
            "There are no entries",
        ),
        (
            format!("{modify} mouse"),
            "\"mouse\" is an invalid value for field \"-target",
        ),
        (
            format!("{modify} 7 -disk-limit 0"),
            "\"0\" is an invalid value for field \"-disk-limit",
        ),
        (
            format!("{modify} 7 -file-limit many"),
            "invalid value for field \"-file-limit",
        ),
        (format!("{modify} 7 -threshold 1MB"), "use -soft-disk-limit"),
        (
            format!("{modify} 7 -user-mapping on"),
            "invalid value for field \"-user-mapping",
        ),
        (
            format!("{modify} 7 -qtree q1"),
            "users and groups are limited in the whole volume",
        ),
        (
            format!("{RULE} create {AT} -type tree -target q1"),
            "Qtree \"q1\" does not exist in volume \"vol\" in Vserver \"SVM\"",
        ),
        (
            format!(
                "{RULE} modify -vserver SVM -policy-name mine -volume vol -type user -target 7"
            ),
            "Quota policy \"mine\" does not exist",
        ),
        (
            format!("{RULE} create {AT} -type host -target 7"),
            "\"host\" is an invalid value for field \"-type",
        ),
        (
            "volume quota on -vserver SVM -volume other".to_owned(),
            "command failed: No valid quota rules found in quota policy default for volume \"other\"",
        ),
        (
            "volume quota resize -vserver SVM -volume other".to_owned(),
            "Quotas are off for volume \"other\"",
        ),
        (
            "volume quota modify -vserver SVM -volume vol -state up".to_owned(),
            "\"up\" is an invalid value for field \"-state <on|off|resize>\"",
        ),
    ] {
        let said = execute(&line, &script).unwrap_err();
        assert!(said.contains(why), "{line}: {said}");
    }
}

#[test]
fn quotas_go_off_and_on() {
    let script = script();
    let state = |script: &Script| {
        let shown = does(script, "volume quota show -fields state");
        let line = |l: &str| l.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        shown
            .lines()
            .skip(2)
            .take(2)
            .map(line)
            .collect::<Vec<_>>()
            .join(", ")
    };
    does(&script, &format!("{RULE} create {AT} -type user -target 7"));
    assert_eq!(state(&script), "vol on, other off");
    let off = "volume quota off -vserver SVM -volume vol -foreground true";
    assert_eq!(
        does(&script, off),
        "Operation succeeded: \"quota off\" performed for quota policy \"default\" on volume \"vol\" in Vserver \"SVM\".\n"
    );
    assert_eq!(state(&script), "vol off, other off");
    assert_eq!(
        does(&script, "volume quota report"),
        "This table is currently empty.\n"
    );
    does(
        &script,
        "volume quota modify -vserver SVM -volume vol -state on",
    );
    does(&script, "volume quota resize -vserver SVM -volume vol");
    assert_eq!(state(&script), "vol on, other off");
}

#[test]
fn the_report_has_default_rules_and_who_uses_something() {
    let script = script();
    for (target, limit) in [("\"\"", "50MB"), ("1001", "80MB")] {
        let line = format!("{RULE} create {AT} -type user -target {target} -disk-limit {limit}");
        does(&script, &line);
    }
    assert_eq!(
        does(&script, "volume quota report"),
        "\
Vserver: SVM
                                    ----Disk----  ----Files-----   Quota
Volume   Tree      Type    ID        Used  Limit    Used   Limit   Specifier
-------  --------  ------  -------  -----  -----  ------  ------   ---------
vol                user    *           0B   50MB       0       -   *
vol                user    root        0B      -       1       -   -
vol                user    7         49MB   50MB      37       -   *
vol                user    1001       1MB   80MB       2       -   1001
4 entries were displayed.
"
    );
    let query = vec![
        ("quota_specifier".to_owned(), "1001".to_owned()),
        ("fields".to_owned(), "disk_used,disk_limit".to_owned()),
    ];
    let answer = call(&["volume", "quota", "report"], query, false, &script).unwrap();
    let Answer::Records(records) = answer else {
        panic!("no records");
    };
    let one = records.first().unwrap();
    assert_eq!(records.len(), 1);
    for (name, value) in [("disk-used", 1 << 20), ("disk-limit", 80 << 20)] {
        assert!(one.fields.contains(&(name, Scalar::Number(value))));
    }
}

#[test]
fn qtrees_and_their_rules() {
    let script = script();
    let at = "-vserver SVM -volume vol -qtree q1";
    let create = format!("volume qtree create {at} -security-style unix -unix-permissions 770");
    assert_eq!(does(&script, &create), "");
    assert_eq!(
        does(&script, "volume qtree show -volume vol"),
        "\
Vserver    Volume        Qtree        Style        Oplocks   Status
---------- ------------- ------------ ------------ --------- --------
SVM        vol           \"\"           unix         enable    normal
SVM        vol           q1           unix         enable    normal
2 entries were displayed.
"
    );
    let rule = |verb: &str, more: &str| {
        let target = format!("{RULE} {verb} {AT} -type tree -target q1 -qtree \"\" {more}");
        does(&script, &target)
    };
    rule("create", "-disk-limit 1GB");
    does(&script, &format!("volume qtree rename {at} -newname q2"));
    let shown = does(&script, &format!("{RULE} show -type tree"));
    let row = "tree   q2        \"\"      -             1GB        -       -        -          -\n";
    assert!(shown.ends_with(row), "{shown}");
    let number = script.state().qtrees.first().unwrap().number;
    let held = QuotaUse {
        rule: script.state().quota_rules.first().unwrap().clone(),
        used_bytes: 4096,
        used_files: 3,
    };
    script.state().quota_uses = vec![held];
    let report = does(&script, "volume quota report");
    let row =
        format!("vol      q2        tree    {number}        4KB    1GB       3       -   q2\n");
    assert!(report.ends_with(&row), "{report}");
    let gone = execute(&format!("volume qtree delete {at}"), &script).unwrap_err();
    assert!(
        gone.contains("There are no entries matching your query."),
        "{gone}"
    );
    let at = at.replace("q1", "q2");
    let own = |policy: &str| {
        does(
            &script,
            &format!("volume qtree modify {at} -export-policy {policy}"),
        );
        script
            .state()
            .qtrees
            .iter()
            .find(|q| q.name == "q2")
            .unwrap()
            .export_policy
            .clone()
    };
    assert_eq!(own("web"), Some("web".to_owned()));
    let inherited =
        format!("volume qtree show {at} -fields export-policy,is-export-policy-inherited");
    assert!(does(&script, &inherited).contains("web           false"));
    assert_eq!(own("\"\""), None);
    let other = format!("volume qtree modify {at} -security-style ntfs");
    let refused = execute(&other, &script).unwrap_err();
    assert!(
        refused.contains("qtrees have what their volume has"),
        "{refused}"
    );
    does(&script, &format!("volume qtree delete {at} -force true"));
    assert!(script.state().qtrees.is_empty());
}

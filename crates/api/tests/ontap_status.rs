//! Status and error codes of each resource and verb of ONTAP's interface that clients use: those of
//! NetApp's own description, which generated clients insist on.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use std::collections::BTreeMap;

use node::Node;
use serde_json::{Value, json};
use weir_ontap::execute;
use weir_ontap::script::Script;

/// Result of a change that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CompletionMode {
    /// ONTAP makes it at once: 201 of a POST, else 200, without a job.
    AtOnce,
    /// ONTAP has a job for it: 202.
    ByJob,
    /// A job that is waited for: 200.
    Waited,
}

use CompletionMode::{AtOnce, ByJob, Waited};

/// Method, path, body, result, and the name by which later rows know what was made.
type Change = (
    &'static str,
    &'static str,
    Value,
    CompletionMode,
    &'static str,
);

fn changes() -> Vec<Change> {
    let rule =
        json!({"clients": [{"match": "10.0.0.0/8"}], "ro_rule": ["any"], "rw_rule": ["any"]});
    let copies = json!([{"count": 3, "schedule": {"name": "daily"}}]);
    let of = |name: &str| json!({"name": name, "svm": {"name": "SVM"}});
    let with = |mut body: Value, name: &str, value: Value| {
        body[name] = value;
        body
    };
    let volume = json!({"name": "src"});
    vec![
        ("POST", "svm/svms", json!({"name": "S9"}), ByJob, "svm"),
        ("PATCH", "@svm", json!({"comment": "x"}), ByJob, ""),
        ("DELETE", "@svm", Value::Null, ByJob, ""),
        (
            "POST",
            "protocols/nfs/export-policies",
            of("e"),
            AtOnce,
            "policy",
        ),
        ("POST", "@policy/rules", rule, AtOnce, "rule"),
        ("PATCH", "@rule", json!({"ro_rule": ["sys"]}), AtOnce, ""),
        ("DELETE", "@rule", Value::Null, AtOnce, ""),
        ("PATCH", "@policy", json!({"name": "f"}), AtOnce, ""),
        ("DELETE", "@policy", Value::Null, AtOnce, ""),
        (
            "POST",
            "protocols/nfs/services",
            json!({"svm.name": "SVM"}),
            AtOnce,
            "nfs",
        ),
        ("PATCH", "@nfs", json!({"enabled": true}), AtOnce, ""),
        (
            "POST",
            "protocols/cifs/shares",
            with(of("s"), "path", json!("/src")),
            AtOnce,
            "share",
        ),
        ("PATCH", "@share", json!({"oplocks": true}), AtOnce, ""),
        ("DELETE", "@share", Value::Null, AtOnce, ""),
        (
            "POST",
            "storage/snapshot-policies",
            with(of("p"), "copies", copies),
            AtOnce,
            "snaps",
        ),
        ("PATCH", "@snaps", json!({"comment": "x"}), AtOnce, ""),
        (
            "POST",
            "@snaps/schedules",
            json!({"schedule": {"name": "weekly"}, "count": 2}),
            AtOnce,
            "copies",
        ),
        ("PATCH", "@copies", json!({"count": 4}), AtOnce, ""),
        ("DELETE", "@copies", Value::Null, AtOnce, ""),
        ("DELETE", "@snaps", Value::Null, AtOnce, ""),
        (
            "POST",
            "cluster/schedules",
            json!({"name": "even", "interval": "PT7M"}),
            AtOnce,
            "schedule",
        ),
        ("DELETE", "@schedule", Value::Null, AtOnce, ""),
        (
            "POST",
            "cluster/peers",
            json!({"name": "b", "fingerprint": "ab".repeat(32)}),
            AtOnce,
            "peer",
        ),
        ("DELETE", "@peer", Value::Null, AtOnce, ""),
        (
            "POST",
            "storage/qos/policies",
            with(of("q"), "fixed.max_throughput_iops", json!(9)),
            ByJob,
            "qos",
        ),
        (
            "PATCH",
            "@qos",
            json!({"fixed.max_throughput_iops": 10}),
            ByJob,
            "",
        ),
        ("DELETE", "@qos", Value::Null, Waited, ""),
        (
            "POST",
            "storage/qtrees",
            with(of("t"), "volume", volume.clone()),
            ByJob,
            "qtree",
        ),
        (
            "PATCH",
            "@qtree",
            json!({"unix_permissions": 700}),
            ByJob,
            "",
        ),
        ("DELETE", "@qtree", Value::Null, ByJob, ""),
        (
            "POST",
            "storage/quota/rules",
            json!({
            "svm": {"name": "SVM"}, "volume": volume, "type": "user", "users": [{"name": "1001"}],
            "space": {"hard_limit": 1_048_576}}),
            ByJob,
            "quota",
        ),
        (
            "PATCH",
            "@quota",
            json!({"space.hard_limit": 2_097_152}),
            ByJob,
            "",
        ),
        ("DELETE", "@quota", Value::Null, ByJob, ""),
        (
            "POST",
            "@src/snapshots",
            json!({"name": "one"}),
            ByJob,
            "snapshot",
        ),
        (
            "PATCH",
            "@snapshot",
            json!({"snapmirror_label": "daily"}),
            ByJob,
            "",
        ),
        ("DELETE", "@snapshot", Value::Null, ByJob, ""),
        ("PATCH", "@src", json!({"comment": "x"}), ByJob, ""),
        (
            "POST",
            "snapmirror/policies",
            json!({"name": "own", "type": "async"}),
            ByJob,
            "mirror",
        ),
        ("PATCH", "@mirror", json!({"comment": "x"}), ByJob, ""),
        ("DELETE", "@mirror", Value::Null, ByJob, ""),
        (
            "POST",
            "snapmirror/relationships",
            json!({
            "source": {"path": "SVM:src"}, "destination": {"path": "SVM:dst"}}),
            ByJob,
            "copy",
        ),
        ("PATCH", "@copy", json!({"throttle": 4096}), ByJob, ""),
        ("POST", "@copy/transfers", json!({}), AtOnce, "transfer"),
        ("DELETE", "@copy", Value::Null, ByJob, ""),
    ]
}

/// Returns the path behind `@NAME`.
fn resolved(path: &str, made: &BTreeMap<&str, String>) -> String {
    let Some(named) = path.strip_prefix('@') else {
        return path.to_owned();
    };
    let (name, rest) = named.split_once('/').unwrap_or((named, ""));
    let of = made.get(name).unwrap_or_else(|| panic!("{path}"));
    match rest {
        "" => of.clone(),
        rest => format!("{of}/{rest}"),
    }
}

async fn volume(n: &Node) -> String {
    let found = n.get("storage/volumes?name=src").await;
    let link = found["records"][0]["_links"]["self"]["href"]
        .as_str()
        .unwrap();
    link.strip_prefix("/api/").unwrap().to_owned()
}

#[tokio::test]
async fn changes_are_answered_as_generated_clients_want_them() {
    let n = Node::from_script(Script::running(&["SVM:src", "SVM:dst"])).await;
    let mut made = BTreeMap::from([("src", volume(&n).await)]);
    for (method, path, body, wanted, name) in changes() {
        let at = resolved(path, &made);
        let answer = n.send_request(method, &at, body).await;
        let status = match (wanted, method) {
            (ByJob, _) => 202,
            (AtOnce, "POST") => 201,
            (AtOnce | Waited, _) => 200,
        };
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        let job = !answer.body["job"].is_null();
        assert_eq!(job, wanted != AtOnce, "{method} {path}: {}", answer.body);
        if !name.is_empty() {
            let location = answer.location.strip_prefix("/api/");
            let location = location.unwrap_or_else(|| panic!("{method} {path}: no Location"));
            made.insert(name, location.to_owned());
        }
    }
}

#[tokio::test]
async fn refusals_have_codes_of_ontap() {
    let n = Node::from_script(Script::running(&["SVM:src", "SVM:dst"])).await;
    let line = |line: &str| execute(line, &*n.script).unwrap_or_else(|e| panic!("{line}: {e}"));
    let rule =
        json!({"clients": [{"match": "10.0.0.0/8"}], "ro_rule": ["any"], "rw_rule": ["any"]});
    let policy = json!({"name": "e", "svm.name": "SVM", "rules": [rule]});
    let policy = n
        .done("POST", "protocols/nfs/export-policies", policy)
        .await;
    let policy = policy.location.strip_prefix("/api/").unwrap().to_owned();
    line("job schedule interval create -name even -minutes 7");
    line("snapmirror create -source-path SVM:src -destination-path SVM:dst -schedule even");
    let uuid = |kind: &str, name: &str| weir_ontap::value::identity(kind, name);
    let (src, none) = (volume(&n).await, "00000000-0000-0000-0000-000000000000");
    let own = format!("storage/qtrees/{}/0", src.rsplit('/').next().unwrap());
    let qtree = |volume: Value| json!({"name": "t", "svm.name": "SVM", "volume": volume});
    for (method, path, body, status, code) in [
        ("GET", "storage/nothing".to_owned(), Value::Null, 404, "3"),
        (
            "GET",
            format!("storage/volumes/{none}"),
            Value::Null,
            404,
            "4",
        ),
        (
            "DELETE",
            format!("storage/volumes/{none}"),
            Value::Null,
            404,
            "4",
        ),
        (
            "GET",
            "storage/volumes?colour=red".to_owned(),
            Value::Null,
            400,
            "262179",
        ),
        (
            "PATCH",
            src.clone(),
            json!({"colour": "red"}),
            400,
            "262179",
        ),
        ("PATCH", src.clone(), json!({"size": "much"}), 400, "262197"),
        ("PATCH", src, json!({"type": "dp"}), 400, "262196"),
        (
            "POST",
            format!("{policy}/rules"),
            rule.clone(),
            409,
            "1704070",
        ),
        (
            "POST",
            format!("{policy}/rules"),
            json!({"index": 0, "clients": [{"match": "x"}],
            "ro_rule": ["any"], "rw_rule": ["any"]}),
            400,
            "3277162",
        ),
        ("DELETE", format!("{policy}/rules/7"), Value::Null, 404, "4"),
        (
            "DELETE",
            format!("cluster/schedules/{}", uuid("schedule", "even")),
            Value::Null,
            409,
            "459758",
        ),
        (
            "DELETE",
            format!("cluster/schedules/{}", uuid("schedule", "daily")),
            Value::Null,
            409,
            "459762",
        ),
        ("DELETE", own, Value::Null, 400, "5242894"),
        (
            "POST",
            "storage/qtrees".to_owned(),
            qtree(json!({"name": "none"})),
            400,
            "917927",
        ),
        (
            "POST",
            "storage/qtrees".to_owned(),
            qtree(json!({})),
            400,
            "918232",
        ),
        (
            "POST",
            "svm/svms".to_owned(),
            json!({"name": "SVM"}),
            409,
            "1",
        ),
        (
            "POST",
            "storage/qtrees".to_owned(),
            json!({"name": "t", "svm.name": "none", "volume.name": "src"}),
            404,
            "2621462",
        ),
        (
            "POST",
            "snapmirror/relationships".to_owned(),
            json!({"source.path": "SVM:src", "destination.path": "SVM:dst"}),
            409,
            "6619637",
        ),
        (
            "PATCH",
            "cluster".to_owned(),
            json!({"name": "x"}),
            405,
            "3",
        ),
    ] {
        n.refused(method, &path, body, status, code).await;
    }
}

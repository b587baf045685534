//! Every table of fields, over REST and on the command line: what a row says holds in both.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use node::Node;
use serde_json::{Value, json};
use weir_base::percent::{UNRESERVED, escaped};
use weir_ontap::commands::COMMANDS;
use weir_ontap::fields::{ALL, Access, FieldDescription, Kind, Resource};
use weir_ontap::script::Script;
use weir_ontap::storage::QuotaUse;
use weir_ontap::{Cluster as _, execute};

/// Returns a node that has a record of every resource.
async fn node() -> Node {
    let n = Node::from_script(Script::running(&["SVM:src", "SVM:dst", "A:far"])).await;
    let line = |line: &str| execute(line, &*n.script).unwrap_or_else(|e| panic!("{line}: {e}"));
    line("snapshot create -vserver SVM -volume src -snapshot s1 -snapmirror-label daily");
    line("volume qtree create -vserver SVM -volume src -qtree q1");
    line("snapmirror create -source-path SVM:src -destination-path A:far");
    line("snapmirror create -source-path SVM:src -destination-path SVM:dst -schedule daily");
    line("snapmirror initialize -destination-path SVM:dst");
    // Each listing moves the transfer on.
    while n
        .script
        .relationships()
        .iter()
        .any(|r| r.transfer.is_some())
    {}
    line("vserver cifs share create -vserver SVM -share-name s -path /src");
    line("snapmirror policy create -policy own -comment c");
    line("job schedule interval create -name even -minutes 7");
    line(&format!(
        "cluster peer create -cluster b -fingerprint {}",
        "ab".repeat(32)
    ));
    let at = "-vserver SVM -volume src -type user -target 1001";
    line(&format!(
        "volume quota policy rule create {at} -disk-limit 50MB"
    ));
    let rule = n.script.state().quota_rules.first().cloned().unwrap();
    n.script.state().quota_uses.push(QuotaUse {
        rule,
        used_bytes: 4096,
        used_files: 1,
    });
    let svm = json!({"name": "SVM"});
    let rule = json!({"clients": [{"match": "0.0.0.0/0"}], "ro_rule": ["any"], "rw_rule": ["any"]});
    let copies = json!([{"count": 3, "schedule": {"name": "daily"}}]);
    for (path, body) in [
        (
            "protocols/nfs/export-policies",
            json!({"name": "e", "svm": svm, "rules": [rule]}),
        ),
        (
            "storage/qos/policies",
            json!({"name": "q", "svm": svm, "fixed.max_throughput_iops": 9}),
        ),
        (
            "storage/snapshot-policies",
            json!({"name": "p", "svm": svm, "copies": copies}),
        ),
        ("svm/svms", json!({"name": "SVM2"})),
    ] {
        n.done("POST", path, body).await;
    }
    n
}

/// Returns the records at a path: all of a collection, or the only one.
async fn records(n: &Node, path: &str) -> Vec<Value> {
    let body = n.get(path).await;
    match body.get("records") {
        Some(all) => all.as_array().unwrap().clone(),
        None => vec![body],
    }
}

/// Returns the paths of a resource's collection: within the first record of what it is a part of.
async fn collection(n: &Node, of: &dyn Resource) -> String {
    let Some((above, below)) = of.path().split_once("/*/") else {
        return of.path().to_owned();
    };
    let all = n.get(above).await;
    format!(
        "{}/{below}",
        link(all["records"].as_array().unwrap().last().unwrap())
    )
}

fn link(record: &Value) -> &str {
    let href = record["_links"]["self"]["href"].as_str().unwrap();
    href.strip_prefix("/api/").unwrap()
}

/// Returns the value at a dotted name; null: there is none.
fn find_value<'v>(record: &'v Value, name: &str) -> &'v Value {
    name.split('.').fold(record, |of, part| &of[part])
}

/// Returns the first text in a value, as a query has it.
fn query(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(all) => all.iter().find_map(query),
        Value::Object(all) => all.values().find_map(query),
        other => Some(other.to_string()),
    }
}

#[tokio::test]
async fn every_field_is_asked_for_queried_and_ordered_by() {
    let n = node().await;
    for of in ALL {
        let path = collection(&n, *of).await;
        let all = records(&n, &format!("{path}?fields=**")).await;
        let record = all.last().unwrap_or_else(|| panic!("{path}"));
        let mut seen = 0;
        for field in of
            .describe()
            .iter()
            .filter(|f| !f.rest.is_empty() && !f.costly)
        {
            let name = field.rest;
            let value = find_value(record, name);
            n.get(&format!("{path}?order_by={name}%20desc")).await;
            let (Some(text), true) = (query(value), !value.is_object()) else {
                continue;
            };
            seen += 1;
            let got = records(&n, &format!("{path}?fields={name}")).await;
            assert_eq!(
                find_value(got.last().unwrap(), name),
                value,
                "{path} {name}"
            );
            // The cluster is one record, and in no list.
            if path == "cluster" {
                continue;
            }
            if value.is_array() && value[0].is_object() || name.contains("_links") {
                continue;
            }
            // Policies of the user belong to all machines, so that a query for one finds them.
            if path == "snapmirror/policies" && name == "scope" {
                continue;
            }
            let got = n
                .get(&format!(
                    "{path}?{name}=%22{}%22",
                    escaped(&text, UNRESERVED)
                ))
                .await;
            assert!(
                got["num_records"].as_u64() > Some(0),
                "{path} {name}={text}"
            );
            let got = n.get(&format!("{path}?{name}=never-this")).await;
            assert_eq!(got["num_records"], 0, "{path} {name}");
        }
        assert!(seen > 2, "{path}: {record}");
    }
}

#[tokio::test]
async fn what_no_table_has_is_refused() {
    let n = node().await;
    for of in ALL {
        let path = collection(&n, *of).await;
        n.refused(
            "GET",
            &format!("{path}?colour=red"),
            Value::Null,
            400,
            "262179",
        )
        .await;
        n.refused(
            "GET",
            &format!("{path}?fields=colour"),
            Value::Null,
            400,
            "262197",
        )
        .await;
        n.refused(
            "GET",
            &format!("{path}?order_by=colour"),
            Value::Null,
            400,
            "262197",
        )
        .await;
        let lenient = "colour=red&fields=colour&ignore_unknown_fields=true";
        n.get(&format!("{path}?{lenient}")).await;
        let command = of.command().join(" ");
        for line in [
            format!("{command} show -fields colour"),
            format!("{command} show -colour red"),
            format!("{command} modify -colour red"),
        ] {
            if !command.is_empty() {
                assert!(execute(&line, &*n.script).is_err(), "{line}");
            }
        }
    }
}

/// Returns two values of a kind, each as REST has it and as lines have it; none: the test sets no
/// such field by itself.
fn samples(kind: Kind) -> Vec<(Value, String)> {
    let same = |text: &str| (json!(text), text.to_owned());
    match kind {
        Kind::Text | Kind::Label => vec![same("alpha"), same("beta")],
        Kind::Path => vec![same("/alpha"), same("/beta")],
        Kind::Policy(_) => vec![same("e"), same("p")],
        Kind::Flag => vec![(json!(false), "false".into()), (json!(true), "true".into())],
        Kind::Size | Kind::Limit(1024) => {
            vec![
                (json!(3_u64 << 30), "3GB".into()),
                (json!(5_u64 << 30), "5GB".into()),
            ]
        }
        Kind::Number | Kind::Limit(_) => {
            vec![(json!(700), "700".into()), (json!(800), "800".into())]
        }
        Kind::Percent(_) => vec![(json!(7), "7%".into()), (json!(20), "20%".into())],
        Kind::Mode => {
            vec![
                (json!(700), "---rwx------".into()),
                (json!(751), "---rwxr-x--x".into()),
            ]
        }
        Kind::Words(words) => {
            let all = words.split('|');
            all.rev()
                .map(|word| (json!(word.to_lowercase()), word.to_owned()))
                .collect()
        }
        Kind::Throttle => vec![(json!(4096), "4096".into()), (json!(8192), "8192".into())],
        Kind::Schedule => vec![same("weekly"), same("hourly")],
        Kind::MirrorPolicy => vec![same("MirrorLatest"), same("MirrorAllSnapshots")],
        _ => Vec::new(),
    }
}

/// Returns the key of a record on the command line, as arguments.
async fn key(n: &Node, of: &dyn Resource, record: &Value) -> String {
    let fields = of.describe();
    let id = fields.iter().find(|f| f.rest == "uuid" || f.rest == "id");
    let mut path = format!("private/cli/{}", of.command().join("/"));
    if let Some(id) = id.filter(|id| !id.column.is_empty()) {
        path += &format!(
            "?{}={}",
            id.column,
            find_value(record, id.rest)
                .as_str()
                .map_or_else(|| find_value(record, id.rest).to_string(), str::to_owned)
        );
    }
    let got = n.get(&path).await;
    let found = got["records"].as_array().unwrap().last().unwrap();
    let keys = fields.iter().filter(|f| f.key);
    let argument = |f: &FieldDescription| {
        let value = query(&found[f.column.replace('-', "_")])?;
        Some(format!(" -{} \"{value}\"", f.column))
    };
    keys.filter_map(argument).collect()
}

/// Returns a column of a record on the command line.
fn show_column(n: &Node, of: &dyn Resource, key: &str, column: &str) -> String {
    let line = format!("{} show{key} -fields {column}", of.command().join(" "));
    let text = execute(&line, &*n.script).unwrap_or_else(|e| panic!("{line}: {e}"));
    text.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_change_over_one_is_seen_over_the_other() {
    let n = node().await;
    let mut set = [0; 2];
    for of in ALL {
        let path = collection(&n, *of).await;
        let record = records(&n, &path).await.pop().unwrap();
        let one = link(&record).to_owned();
        let command = of.command();
        let key = match command {
            [] => String::new(),
            _ => key(&n, *of, &record).await,
        };
        let modify: Vec<&str> = command.iter().copied().chain(["modify"]).collect();
        let modify = COMMANDS.iter().find(|c| c.path == modify);
        for field in of.describe().iter().filter(|f| !f.key && f.rest != "name") {
            let settable = field.set[1] == Access::Yes && !field.rest.is_empty();
            // A change of a relationship's state is a verb, and takes more than a field.
            for (rest, line) in samples(field.kind).into_iter().filter(|_| settable) {
                if field.column.is_empty() && field.rest != "comment" {
                    continue;
                }
                n.done("PATCH", &one, json!({field.rest: rest})).await;
                set[0] += 1;
                assert_eq!(
                    *find_value(&n.get(&one).await, field.rest),
                    rest,
                    "{one} {}",
                    field.rest
                );
                // Some sizes are rounded.
                let text = show_column(&n, *of, &key, field.column).replace(".00", "");
                assert!(text.contains(&line), "{one} {}: {text}", field.column);
            }
            let takes =
                |name: &str| modify.is_some_and(|c| c.parameters.iter().any(|p| p.name == name));
            if !takes(field.column) || !settable {
                continue;
            }
            for (rest, line) in samples(field.kind) {
                let verb = modify.unwrap().name();
                let line = format!("{verb}{key} -{} \"{line}\"", field.column);
                execute(&line, &*n.script).unwrap_or_else(|e| panic!("{line}: {e}"));
                set[1] += 1;
                assert_eq!(*find_value(&n.get(&one).await, field.rest), rest, "{line}");
            }
        }
    }
    assert!(set[0] > 40 && set[1] > 30, "{set:?}");
}

#[tokio::test]
async fn what_is_shown_only_is_refused_in_both() {
    let n = node().await;
    for of in ALL {
        let path = collection(&n, *of).await;
        let record = records(&n, &path).await.pop().unwrap();
        let one = link(&record);
        let modify: Vec<&str> = of.command().iter().copied().chain(["modify"]).collect();
        let modify = COMMANDS.iter().find(|c| c.path == modify);
        let fields = of.describe();
        // `X.uuid` is another way to give `X.name`.
        let is_reference = |name: &str| {
            let of = name.strip_suffix(".uuid").or(name.strip_suffix(".id"));
            let named = of.map(|of| format!("{of}.name"));
            let is_it = |f: &FieldDescription| named.as_deref() == Some(f.rest);
            fields.iter().any(|f| is_it(f) && f.set[1] == Access::Yes)
        };
        for field in &fields {
            let takes =
                |name: &str| modify.is_some_and(|c| c.parameters.iter().any(|p| p.name == name));
            let shown_only = field.set[1] == Access::No;
            if shown_only && !field.key && !field.column.is_empty() {
                assert!(!takes(field.column), "{} {}", of.path(), field.column);
            }
            let body = json!({field.rest: "never-this"});
            let answer = match field.set[1] {
                _ if field.rest.is_empty() || is_reference(field.rest) => continue,
                Access::Yes => continue,
                _ => n.send_request("PATCH", one, body).await,
            };
            // Resources that cannot be changed have no PATCH.
            if [404, 405].contains(&answer.status) {
                continue;
            }
            let code = answer.body["error"]["code"].as_str().unwrap_or_default();
            assert_eq!(code, "262196", "{one} {}: {}", field.rest, answer.body);
        }
    }
}

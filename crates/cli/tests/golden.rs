//! The command line beside gcloud's: the same commands, the same responses of a server, and then
//! the same output and the same requests.
//!
//! `golden/gcloud.json` was recorded with Google Cloud SDK 528.0.0 against a server that replied
//! from `golden/api.json`. Where Weir means to differ, the case is named below with the reason.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;
mod server;

use common::weir;
use serde_json::Value;
use server::Server;

/// Commands whose output differs on purpose.
const DIFFERENT: &[(&[&str], &str)] = &[
    (
        &["--sort-by=capacityGib"],
        "int64 values travel as strings; gcloud sorts them as such, so that 204800 comes before 40960",
    ),
    (&["--sort-by=~capacityGib"], "likewise"),
    (
        &["--sort-by=serviceLevel,name"],
        "gcloud cuts to --limit before it sorts; its documentation says after",
    ),
    (&["--page-size=1"], "gcloud prints a table for each page"),
    (
        &["storage-pools", "--uri"],
        "gcloud 528 knows no addresses of storage pools",
    ),
    (&["--format=config"], "not one of Weir's formats"),
    (&["--format=bogus"], "the list of formats is Weir's"),
    (
        &["--format=flattened(name,protocols,exportPolicy)"],
        "gcloud prints the label of a list's first column",
    ),
    (
        &["--format=table(name"],
        "gcloud shows its own default format in the message",
    ),
    (&["--format=value(name.nofn())"], "likewise"),
    (
        &["netapp", "storage-pools", "describe", "mq"],
        "gcloud has no default location",
    ),
    (
        &[
            "netapp",
            "storage-pools",
            "delete",
            "mq",
            "--location=l1",
            "--async",
            "--quiet",
        ],
        "says where to look in Weir's words",
    ),
    (
        &["netapp", "volumes", "revert"],
        "prints one line, as the other verbs do",
    ),
];

/// Weir's exit code of a usage error. gcloud has it for what its parser refuses, and 1 for wrong
/// formats, filters and missing parents.
const USAGE: u8 = 2;

/// Command lines that gcloud refuses and Weir understands.
const MORE: &[(&str, &str)] = &[(
    "--service-level=bogus",
    "a server may have levels of its own: it decides",
)];

fn expected_difference(args: &[&str]) -> bool {
    DIFFERENT.iter().any(|(words, _)| {
        let exact = words.len() > 3 || words.last() == Some(&"mq");
        match exact {
            true => args == *words,
            false => words.iter().all(|w| args.contains(w)),
        }
    })
}

/// Numbers that are equal in value become equal.
fn same_numbers(value: &mut Value) {
    match value {
        Value::Number(n) => *value = Value::from(n.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(same_numbers),
        Value::Object(map) => map.values_mut().for_each(same_numbers),
        _ => {}
    }
}

/// Returns what matters of a request: of a change, the fields in its mask; not gcloud's filler; a
/// query without regard to order or to the spelling of booleans.
fn essence(method: &str, path: &str, query: &str, body: &Value) -> (String, Vec<String>, Value) {
    let mut query: Vec<String> = query
        .split('&')
        .filter(|q| !q.is_empty())
        .map(|q| q.replace("%2C", ",").to_lowercase())
        .collect();
    let mut body = body.clone();
    same_numbers(&mut body);
    if let Value::Object(map) = &mut body {
        map.remove("name");
        map.retain(|_, v| *v != "SECURITY_STYLE_UNSPECIFIED");
        if let Some(mask) = query
            .iter_mut()
            .find_map(|q| q.strip_prefix("updatemask=").map(str::to_owned))
        {
            let mut fields: Vec<&str> = mask.split(',').collect();
            map.retain(|field, _| fields.contains(&field.to_lowercase().as_str()));
            fields.sort_unstable();
            query = vec![format!("updatemask={}", fields.join(","))];
        }
    }
    query.sort();
    (format!("{method} {path}"), query, body)
}

/// A server that replies as the recording's did.
fn recorded() -> Server {
    let api: Vec<Value> = serde_json::from_str(include_str!("golden/api.json")).unwrap();
    Server::start(Box::new(move |(method, path, ..), _| {
        let found = api
            .iter()
            .find(|e| e["method"] == *method && e["path"] == *path)?;
        Some((
            found["status"].as_u64().unwrap() as u16,
            found["body"].clone(),
        ))
    }))
}

#[test]
fn as_gcloud_does_it() {
    let server = recorded();
    let environment = [
        ("WEIR_SERVER", server.address.as_str()),
        ("WEIR_PROJECT", "p1"),
    ];
    let flags = concat!(
        "--flags-file=",
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/flags.yaml"
    );
    let cases: Vec<Value> = serde_json::from_str(include_str!("golden/gcloud.json")).unwrap();
    let mut failures = Vec::new();
    let mut compared = 0;
    for case in &cases {
        let args: Vec<&str> = case["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a.as_str().unwrap())
            .map(|a| {
                if a.starts_with("--flags-file") {
                    flags
                } else {
                    a
                }
            })
            .collect();
        if expected_difference(&args) {
            continue;
        }
        let ran = weir(&args, &environment, None);
        let expected = case["exit"].as_u64().unwrap() as u8;
        let mut problem = String::new();
        if MORE.iter().any(|(flag, _)| args.contains(flag)) {
            if ran.exit == 2 {
                problem = format!("refused: {}", ran.err);
            }
        } else if ran.exit != expected && !(expected == 1 && ran.exit == USAGE) {
            problem = format!("exit {} instead of {expected}: {}", ran.exit, ran.err);
        } else if expected == 1 {
            let theirs = case["stderr"].as_str().unwrap();
            let theirs = theirs
                .replace("(gcloud.netapp.", "(weir.")
                .replace("(gcloud.", "(weir.");
            if ran.err.trim() != theirs {
                problem = format!("says\n{}instead of\n{theirs}", ran.err);
            }
        } else if expected == 0 {
            // The address that gcloud printed was that of its own server.
            let theirs = case["stdout"]
                .as_str()
                .unwrap()
                .replace("http://127.0.0.1:46659", &server.address);
            if ran.out != theirs {
                problem = format!("prints\n{}instead of\n{theirs}", ran.out);
            }
            if let Some(warning) = case["warning"].as_str() {
                if !ran.err.contains(warning) {
                    problem.push_str(&format!("says {} instead of {warning}", ran.err));
                }
            }
        }
        let ours: Vec<_> = server
            .requests()
            .iter()
            .filter(|r| r.0 != "GET")
            .map(|(m, p, q, b)| essence(m, p, q, b))
            .collect();
        if let (Some(theirs), true) = (case["requests"].as_array(), expected == 0) {
            let theirs: Vec<_> = theirs
                .iter()
                .map(|r| {
                    essence(
                        r[0].as_str().unwrap(),
                        r[1].as_str().unwrap(),
                        r[2].as_str().unwrap(),
                        &r[3],
                    )
                })
                .collect();
            if ours != theirs {
                problem.push_str(&format!("asks\n{ours:?}\ninstead of\n{theirs:?}\n"));
            }
        }
        compared += 1;
        if !problem.is_empty() {
            failures.push(format!("weir {}\n{problem}", args.join(" ")));
        }
    }
    assert!(compared > 150, "{compared} cases only");
    assert!(
        failures.is_empty(),
        "{} of {compared}:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

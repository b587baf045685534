//! `weir active-directories`: what is sent, and where passwords come from.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;
mod server;

use common::{weir, with_password};
use serde_json::{Value, json};
use server::Server;

/// An operation that has ended so.
fn done(response: &Value) -> Value {
    json!({"name": "projects/p1/locations/l/operations/op-1", "done": true, "response": response})
}

/// Returns the request that `weir active-directories ARGS` sends besides reads, where this is the
/// password that is typed.
fn directories(args: &[&str], password: Option<&str>) -> Result<server::Request, String> {
    let server = Server::start(Box::new(|(method, ..), _| match method.as_str() {
        "GET" => Some((200, json!({"username": "admin", "labels": {"old": "1"}}))),
        _ => Some((200, done(&json!({"state": "READY"})))),
    }));
    let args = [&["active-directories"], args].concat();
    let environment = [("WEIR_SERVER", server.address.as_str())];
    let ran = with_password(&args, &environment, None, password);
    let requests = server.requests().into_iter();
    let mut changes: Vec<_> = requests.filter(|r| r.0 != "GET").collect();
    match ran.exit {
        0 => Ok(changes.remove(0)),
        _ => {
            assert!(changes.is_empty(), "{changes:?}");
            Err(ran.err)
        }
    }
}

const JOIN: &[&str] = &[
    "create",
    "ad",
    "--project=p1",
    "--location=l",
    "--domain=example.com",
    "--dns=10.0.0.53,10.0.0.54",
    "--net-bios-prefix=files",
    "--username=admin",
];

#[test]
fn a_domain_is_joined_by_a_password_that_is_asked_for() {
    let more = ["--organizational-unit=OU=Storage", "--enable-aes=true"];
    let args = [JOIN, &more, &["--labels=a=b"]].concat();
    let (method, path, query, body) = directories(&args, Some("secret")).unwrap();
    assert_eq!(
        (method.as_str(), path.as_str(), query.as_str()),
        (
            "POST",
            "/v1/projects/p1/locations/l/activeDirectories",
            "activeDirectoryId=ad"
        )
    );
    assert_eq!(
        body,
        json!({
            "name": "projects/p1/locations/l/activeDirectories/ad", "domain": "example.com",
            "dns": "10.0.0.53,10.0.0.54", "netBiosPrefix": "files", "username": "admin",
            "organizationalUnit": "OU=Storage", "aesEncryption": true, "labels": {"a": "b"},
            "password": "secret",
        })
    );
    let netapp = [&["netapp", "active-directories"], JOIN].concat();
    let server = Server::start(Box::new(|_, _| Some((200, done(&json!({}))))));
    let environment = [("WEIR_SERVER", server.address.as_str())];
    let ran = with_password(&netapp, &environment, None, Some("secret"));
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (0, "Created active directory [ad].\n")
    );
}

#[test]
fn a_password_is_in_no_command_line() {
    let error = directories(&[JOIN, &["--password=secret"]].concat(), None).unwrap_err();
    assert!(error.contains("--password-file"), "{error}");
    let error = directories(JOIN, None).unwrap_err();
    assert!(error.contains("nobody says admin's password"), "{error}");
    assert!(directories(JOIN, Some("")).is_err());

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let flag = format!("--password-file={}", file.display());
    let args = [JOIN, &[flag.as_str()]].concat();
    let error = directories(&args, Some("typed")).unwrap_err();
    assert!(error.contains("cannot read"), "{error}");
    std::fs::write(&file, " with blanks \n").unwrap();
    let (.., body) = directories(&args, Some("typed")).unwrap();
    assert_eq!(body["password"], " with blanks ");
    let args = [JOIN, &["--password-file=-"]].concat();
    let (.., body) = directories(&args, Some("typed")).unwrap();
    assert_eq!(body["password"], "typed");
}

#[test]
fn a_domain_is_joined_again_where_that_takes_a_password() {
    let of = |args: &[&str], password| {
        let args = [&["update", "ad"], args].concat();
        directories(&args, password).map(|(_, _, query, body)| (query, body["password"].clone()))
    };
    let labels = of(&["--update-labels=a=b", "--description=d"], None).unwrap();
    assert_eq!(
        labels,
        ("updateMask=description%2Clabels".to_owned(), Value::Null)
    );
    for (flag, mask) in [
        ("--username=other", "password%2Cusername"),
        ("--kdc-hostname=dc1", "kdcHostname%2Cpassword"),
        (
            "--organizational-unit=OU=A",
            "organizationalUnit%2Cpassword",
        ),
        ("--password-file=-", "password"),
    ] {
        let (query, password) = of(&[flag], Some("secret")).unwrap();
        assert_eq!(
            (query, password),
            (format!("updateMask={mask}"), json!("secret"))
        );
        assert!(of(&[flag], None).is_err(), "{flag}");
    }
    // The password is of the user who joined it last.
    let error = of(&["--password-file=-"], None).unwrap_err();
    assert!(error.contains("nobody says admin's"), "{error}");
    assert!(of(&[], None).unwrap_err().contains("nothing to change"));
    assert!(of(&["--domain=other.com"], None).is_err(), "it stays");
}

#[test]
fn domains_are_listed_and_deleted() {
    let one = json!({
        "name": "projects/p1/locations/l/activeDirectories/ad", "domain": "example.com", "netBiosPrefix": "files",
        "username": "admin", "state": "READY",
    });
    let server = Server::start(Box::new(move |(method, ..), _| match method.as_str() {
        "GET" => Some((200, json!({"activeDirectories": [one]}))),
        _ => Some((200, done(&json!({})))),
    }));
    let environment = [("WEIR_SERVER", server.address.as_str())];
    let ran = weir(&["active-directories", "list"], &environment, None);
    assert_eq!(
        ran.out,
        "ACTIVE_DIRECTORY_NAME  LOCATION  DOMAIN       NET_BIOS_PREFIX  USERNAME  STATE\n\
         ad                     l         example.com  files            admin     READY\n"
    );
    let delete = ["active-directories", "delete", "ad"];
    let ran = weir(&delete, &environment, Some("n\n"));
    assert_eq!(ran.exit, 1);
    assert!(
        ran.err
            .contains("You are about to delete an Active Directory"),
        "{}",
        ran.err
    );
    let ran = weir(&delete, &environment, Some("y\n"));
    assert!(
        ran.err.ends_with("Deleted active directory [ad].\n"),
        "{}",
        ran.err
    );
    assert_eq!(server.requests().last().unwrap().0, "DELETE");
}

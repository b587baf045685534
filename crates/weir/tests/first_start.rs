//! A start that is refused leaves no trace, and its error names the option of the command line.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::net::TcpListener;

use common::{Server, weir};

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_refused_start_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let here = format!("in use by process {} (", std::process::id());
    let catalog = format!("sqlite://{}/none/catalog.db", folder.path().display());
    for (wrong, code, words) in [
        (&["--nfs", &taken][..], 1, here.as_str()),
        (&["--smb", &taken], 1, &here),
        (&["--api", &taken], 1, &here),
        (&["--replication", &taken], 1, &here),
        (&["--catalog", "mysql://x"], 1, "mysql"),
        (&["--catalog", "postgres://127.0.0.1:1/x"], 1, "refused"),
        (&["--catalog", &catalog], 1, "does not exist"),
        (&["--service-levels", "/nope"], 1, "/nope"),
        (&["--krb5-keytab", "/nope"], 1, "/nope"),
        (&["--ready-file", "/nope/ready"], 1, "/nope"),
        // Found out when the data folder has been made already.
        (&["--log-dir", "/proc/nope"], 1, "/proc/nope"),
        (&["--log-dir", "/dev/null"], 1, "/dev/null"),
        (
            &["--api-tls-cert", "/nope", "--api-tls-key", "/nope"],
            1,
            "/nope",
        ),
        (
            &["--nfs-tls-cert", "/nope", "--nfs-tls-key", "/nope"],
            1,
            "/nope",
        ),
        (
            &["--api", "0.0.0.0:0", "--api-tls", "generate"],
            1,
            "weir tokens create",
        ),
        (&["--api", "0.0.0.0:0"], 2, "--api-tls generate"),
        (&["--memory", "999T"], 2, "--memory"),
        (&["--memory", "1M"], 2, "--memory"),
        (&["--export-options", "rw,foo"], 2, "'foo'"),
        (&["--nfs4-referral", "nowhere"], 2, "PATH=HOST:/PATH"),
    ] {
        let mut args = vec!["serve", "--data", data, "--no-rpcbind"];
        for (name, value) in [("--nfs", "127.0.0.1:0"), ("--api", "off")] {
            if !wrong.contains(&name) {
                args.extend([name, value]);
            }
        }
        args.extend(wrong);
        let ran = weir(&args);
        let said = text(&ran);
        assert_eq!(ran.status.code(), Some(code), "{wrong:?}: {said}");
        assert!(said.contains(words), "{wrong:?}: {said}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{wrong:?}: {left:?}");
    }
}

/// Created by nobody, and named.
#[test]
fn a_parent_that_cannot_be_written_is_named() {
    for data in ["/proc/nope/data", "/dev/null/data"] {
        let ran = weir(&[
            "serve",
            "--nfs",
            "127.0.0.1:0",
            "--api",
            "off",
            "--data",
            data,
        ]);
        assert_eq!(ran.status.code(), Some(1));
        assert!(text(&ran).contains(data), "{}", text(&ran));
    }
}

#[test]
fn the_first_screen_says_what_was_created() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--smb", "127.0.0.1:0"]);
    let said = server.said();
    let created = format!("Created the data folder {}:", data.display());
    for words in [created.as_str(), "\n  log ", "vol1", "Mount /vol1", "Next:"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.lines().count() <= 25, "{said}");
    // Not on a terminal.
    assert!(!said.contains('\x1b'), "{said}");
    server.stop();
    let server = Server::start(&data, &[]);
    let said = server.said();
    assert!(said.contains("Mount /vol1"), "{said}");
    assert!(
        !said.contains("Created") && !said.contains("Next:"),
        "{said}"
    );
    server.stop();
}

#[test]
fn a_refused_witness_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let node = "0".repeat(64);
    for (args, code) in [
        (&["--listen", "127.0.0.1:0"][..], 2),
        (&["--node", &node], 2),
        (&["--listen", "127.0.0.1:0", "--node", "x"], 2),
        (&["--listen", &taken, "--node", &node], 1),
    ] {
        let ran = weir(&[&["witness", "--data", data][..], args].concat());
        assert_eq!(ran.status.code(), Some(code), "{}", text(&ran));
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{args:?}: {left:?}");
    }
}

#[test]
fn an_untrusted_certificate_names_the_flag() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--api-tls", "generate"]);
    let api = format!("https://{}", server.api.unwrap());
    let ran = weir(&["volumes", "list", "--server", &api]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran).contains("--ca-cert"), "{}", text(&ran));
    let plain = api.replace("https", "http");
    let ran = weir(&["volumes", "list", "--server", &plain]);
    assert!(text(&ran).contains("use https://"), "{}", text(&ran));
    server.stop();
}

#[test]
fn a_missing_folder_is_called_one() {
    for args in [&["check", "/nope"][..], &["scrub", "/nope"]] {
        let ran = weir(args);
        assert!(text(&ran).contains("/nope"), "{}", text(&ran));
        assert!(text(&ran).contains("folder"), "{}", text(&ran));
    }
}

/// A usage error, before anything is created.
#[test]
fn wrong_words_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let (node, uuid) = ("0".repeat(64), "00000000-0000-0000-0000-000000000001");
    let listen = ["--listen", "127.0.0.1:0"];
    let partner = ["--partner", "h:1", "--partner-certificate"];
    for (command, rest, words) in [
        ("serve", &["--nfs", "localhost:2049"][..], "an IP address"),
        ("serve", &["--nfs", "127.0.0.1:99999"], "0 to 65535"),
        ("serve", &["--api", "8049"], "or off"),
        ("pair create", &listen, "--preferred"),
        (
            "pair create",
            &[&listen[..], &["--witness", "h:1"]].concat(),
            "--witness-certificate",
        ),
        (
            "pair join",
            &[
                &partner[..],
                &[&node, "--aggregate", "x", "--preferred", "a"],
            ]
            .concat(),
            "UUID",
        ),
        (
            "pair join",
            &[
                &partner[..],
                &["x", "--aggregate", uuid, "--preferred", "a"],
            ]
            .concat(),
            "SHA-256",
        ),
        ("users create u", &["--uid", "-1"], "'-1'"),
    ] {
        let named: Vec<&str> = command.split(' ').collect();
        let ran = weir(&[&named[..], &["--data", data], rest].concat());
        let said = text(&ran);
        assert_eq!(ran.status.code(), Some(2), "{command} {rest:?}: {said}");
        assert!(said.contains(words), "{command} {rest:?}: {said}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{command} {rest:?}: {left:?}");
    }
}

//! A pair whose witness is a row of PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use pairs::{Client, Node, Writer, does, free_port, refuses, until, word};
use weir_testclient::postgres::Postgres;

fn signal(postgres: &Postgres, signal: i32) {
    let pid = libc::pid_t::try_from(postgres.process()).unwrap();
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_row_of_postgresql_decides_who_serves() {
    let top = tempfile::tempdir().unwrap();
    let database = tempfile::tempdir().unwrap();
    let postgres = match Postgres::start(database.path()) {
        Ok(postgres) => postgres,
        Err(why) => {
            eprintln!("skipped: {why} (package postgresql)");
            return;
        }
    };
    let url = postgres.url("postgres");
    let (mut a, mut b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
    let listen = format!("127.0.0.1:{}", free_port());
    let create = ["pair", "create", "--data", a.data(), "--listen", &listen];
    let with = |more: &[&str]| -> Vec<String> {
        create
            .iter()
            .chain(more)
            .map(|&word| word.to_owned())
            .collect()
    };
    let words: Vec<String> = with(&["--witness", "10.0.0.1:1"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert!(refuses(&words).contains("--witness-certificate"));
    let words: Vec<String> = with(&["--witness", &url, "--mode", "memory"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let made = does(&words);
    assert!(!made.contains("secret"), "{made}");
    assert!(made.contains("--mode memory"), "{made}");
    let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
    let join = |mode| {
        [
            "pair",
            "join",
            "--data",
            b.data(),
            "--aggregate",
            &id,
            "--partner",
            &listen,
            "--partner-certificate",
            &print_a,
            "--witness",
            &url,
            "--mode",
            mode,
        ]
        .map(str::to_owned)
    };
    // Another mode than the first node's is refused when they meet.
    let joined = |mode| {
        let words = join(mode);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        word(&does(&words), "certificate")
    };
    let print_b = joined("durable");
    does(&["pair", "accept", "--data", a.data(), &print_b]);
    a.start();
    a.serves();
    b.start();
    until("it is said why", || {
        b.shows()?.contains("the same --mode").then_some(())
    });
    b.end();
    let file = b.data.join("pair.json");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replacen('{', "{ \"mode\": \"memory\",", 1);
    std::fs::write(&file, config).unwrap();
    b.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");
    a.is("replies wait for", "the partner's memory");
    let shown = b.shows().unwrap();
    assert!(shown.contains("postgres://weir@localhost"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");

    // A killed standby may have lost changes that it had received in memory: it is no standby
    // before the primary has found it complete.
    let writer = Writer::start(a.nfs, "file");
    writer.has_written(100);
    b.end();
    b.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");
    b.is("role", "standby");
    writer.has_written(150);
    a.process().kill();
    let (fh, blocks) = writer.ended();
    b.serves();
    let mut client = Client::connect(b.nfs).unwrap();
    client.holds(&fh, blocks);
    a.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");

    // While the database does not reply no node takes over; then the side that is in sync does.
    signal(&postgres, libc::SIGSTOP);
    b.process().kill();
    until("it wants to serve", || {
        let shown = a.shows()?;
        (word(&shown, "role").starts_with("taking over") && shown.contains("the witness at"))
            .then_some(())
    });
    assert!(!a.ready.exists());
    signal(&postgres, libc::SIGCONT);
    a.serves();
    Client::connect(a.nfs).unwrap().holds(&fh, blocks);
}

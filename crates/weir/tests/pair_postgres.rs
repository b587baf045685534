//! A pair whose witness is a row of PostgreSQL: a server of Debian's packages, started here on a
//! socket in a temporary folder.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pairs::{Client, Node, Writer, does, free_port, refuses, until, word};

struct Postgres {
    child: Child,
    url: String,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing in it worth an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The newest server's programs, or why not.
fn programs() -> Result<PathBuf, String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .map_err(|e| format!("/usr/lib/postgresql: {e}"))?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no initdb under /usr/lib/postgresql".to_owned())
}

/// PostgreSQL does not run as root: the user of that name from its package, if we are root.
fn user() -> Result<Option<(u32, u32)>, String> {
    if std::fs::metadata("/proc/self")
        .map_err(|e| e.to_string())?
        .uid()
        != 0
    {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(|e| e.to_string())?;
    let line = passwd.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line.ok_or("no user postgres")?.split(':').skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    match (number(), number()) {
        (Some(uid), Some(gid)) => Ok(Some((uid, gid))),
        _ => Err("user postgres has no number".to_owned()),
    }
}

impl Postgres {
    fn start(folder: &Path) -> Result<Postgres, String> {
        let (bin, user) = (programs()?, user()?);
        let command = |program: &str| {
            let mut command = Command::new(bin.join(program));
            command.current_dir(folder);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        if let Some((uid, gid)) = user {
            chown(folder, Some(uid), Some(gid)).unwrap();
        }
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.join("data");
        let made = command("initdb")
            .args(["-A", "trust", "-U", "weir", "-E", "UTF8", "--no-sync", "-D"])
            .arg(&data)
            .status();
        assert!(made.unwrap().success(), "initdb");
        let port = free_port().to_string();
        let child = command("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder)
            .args(["-p", &port, "-c", "listen_addresses="])
            .spawn()
            .unwrap();
        let socket = folder.join(format!(".s.PGSQL.{port}"));
        until("PostgreSQL listens", || socket.exists().then_some(()));
        let at = folder.display();
        let url = format!("postgres://weir:secret@localhost:{port}/postgres?host={at}");
        Ok(Postgres { child, url })
    }

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
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
    let words: Vec<String> = with(&["--witness", &postgres.url, "--mode", "memory"]);
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
            &postgres.url,
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
    postgres.signal(libc::SIGSTOP);
    b.process().kill();
    until("it wants to serve", || {
        let shown = a.shows()?;
        (word(&shown, "role").starts_with("taking over") && shown.contains("the witness at"))
            .then_some(())
    });
    assert!(!a.ready.exists());
    postgres.signal(libc::SIGCONT);
    a.serves();
    Client::connect(a.nfs).unwrap().holds(&fh, blocks);
}

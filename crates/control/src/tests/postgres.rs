//! The tests on PostgreSQL: a server from Debian's packages, started here on a socket in a
//! temporary folder.

use super::*;
use sqlx::Connection;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PORT: &str = "54329";

/// A server that ends with the test.
struct Postgres {
    child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may have ended by itself; nothing in it is worth an orderly end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the newest server's programs, or the reason why there are none.
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

/// Returns the user for PostgreSQL, which does not run as root: the one from its package, if this
/// process is root.
fn user() -> Result<Option<(u32, u32)>, String> {
    let own = std::fs::metadata("/proc/self").map_err(|e| e.to_string())?;
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
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
    async fn start() -> Result<Postgres, String> {
        let bin = programs()?;
        let user = user()?;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let command = |program: &str| {
            let mut command = Command::new(bin.join(program));
            command
                .current_dir(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        let made = command("initdb")
            .args(["-A", "trust", "-U", "weir", "-E", "UTF8", "--no-sync", "-D"])
            .arg(&data)
            .status();
        assert!(made.unwrap().success(), "initdb");
        let child = command("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-p", PORT, "-c", "listen_addresses=", "-c", "fsync=off"])
            .spawn()
            .unwrap();
        let server = Postgres { child, folder };
        sqlx::any::install_default_drivers();
        let url = server.url("postgres");
        for _ in 0..600 {
            if sqlx::AnyConnection::connect(&url).await.is_ok() {
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("PostgreSQL does not answer at {url}");
    }

    fn url(&self, database: &str) -> String {
        let folder = self.folder.path().display();
        format!("postgres://weir@localhost:{PORT}/{database}?host={folder}")
    }

    async fn database(&self, name: &str) -> String {
        let mut connection = sqlx::AnyConnection::connect(&self.url("postgres"))
            .await
            .unwrap();
        let statement = format!("CREATE DATABASE {name}");
        sqlx::query(&statement)
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        self.url(name)
    }

    async fn bench(&self, name: &str) -> Bench {
        let url = self.database(name).await;
        let node = SimBackend::new();
        let control = open(&url, &node, 1).await.unwrap();
        Bench {
            control,
            node,
            url,
            _folder: None,
        }
    }
}

#[tokio::test]
async fn the_same_code_runs_on_postgresql() {
    let server = match Postgres::start().await {
        Ok(server) => server,
        Err(why) => {
            eprintln!("skipped: {why} (package postgresql)");
            return;
        }
    };
    let mut bench = server.bench("flows").await;
    flows::cradle_to_grave(&mut bench).await;
    many::two_hundred_at_once(&server.bench("many").await).await;
    let mut bench = server.bench("random").await;
    random::keeps_the_rules(&mut bench, 11).await;
    faults::tokens(&bench.url).await;
    let mut bench = server.bench("replication").await;
    replication::relationships_are_rows(&mut bench).await;
    faults::superseded(&server.bench("superseded").await).await;
    faults::newer(&server.bench("newer").await).await;
}

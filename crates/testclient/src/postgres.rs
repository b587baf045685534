//! A PostgreSQL of Debian's packages for tests, on a socket in a folder of the test.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Number in the socket's name. Nothing listens at a port.
const PORT: &str = "54329";
/// Checks for an answer, [`PAUSE`] apart.
const CHECKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(50);

/// A server that is killed when it is dropped. It starts again on the same data.
pub struct Postgres {
    programs: PathBuf,
    user: Option<(u32, u32)>,
    folder: PathBuf,
    server: Option<Child>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the newest server's programs, or the reason why there are none.
fn programs() -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let versions = versions.map_err(|error| format!("/usr/lib/postgresql: {error}"))?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no initdb under /usr/lib/postgresql".to_owned())
}

/// Returns the user of the package if this process is root, as which PostgreSQL does not run.
fn user() -> Result<Option<(u32, u32)>, String> {
    let own = fs::metadata("/proc/self").map_err(|error| error.to_string())?;
    if own.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(|error| error.to_string())?;
    let line = passwd.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line.ok_or("no user postgres")?.split(':').skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    match (number(), number()) {
        (Some(uid), Some(gid)) => Ok(Some((uid, gid))),
        _ => Err("user postgres has no number".to_owned()),
    }
}

impl Postgres {
    /// Creates a server in an empty folder, with the user `weir`, and waits until it answers.
    ///
    /// # Errors
    /// The machine lacks PostgreSQL, or it does not start.
    pub fn start(folder: &Path) -> Result<Postgres, String> {
        let mut postgres = Postgres {
            programs: programs()?,
            user: user()?,
            folder: folder.to_owned(),
            server: None,
        };
        if let Some((uid, gid)) = postgres.user {
            chown(folder, Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        }
        fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        let words = ["-A", "trust", "-U", "weir", "-E", "UTF8", "--no-sync", "-D"];
        let mut create = postgres.command("initdb");
        done(create.args(words).arg(folder.join("data")))?;
        postgres.start_again()?;
        Ok(postgres)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts the server on its data, and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self) -> Result<(), String> {
        let mut server = self.command("postgres");
        server.arg("-D").arg(self.folder.join("data"));
        server.arg("-k").arg(&self.folder);
        server.args(["-p", PORT, "-c", "listen_addresses=", "-c", "fsync=off"]);
        self.server = Some(server.spawn().map_err(|error| error.to_string())?);
        for _ in 0..CHECKS {
            let mut check = self.command("pg_isready");
            let words = ["-p", PORT, "-U", "weir", "-d", "postgres", "-h"];
            if done(check.args(words).arg(&self.folder)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err("PostgreSQL does not answer".to_owned())
    }

    /// Kills the server, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have ended by itself; nothing in it is worth an orderly end.
            let _: io::Result<()> = server.kill();
            let _ = server.wait();
        }
    }

    /// Returns the number of the server's process; 0 if it does not run.
    pub fn process(&self) -> u32 {
        self.server.as_ref().map_or(0, Child::id)
    }

    /// Returns the address of a database, with a password that nobody checks.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.display();
        format!("postgres://weir:secret@localhost:{PORT}/{database}?host={folder}")
    }

    /// Creates a database. Returns its address.
    ///
    /// # Errors
    /// The server refuses.
    pub fn create_database(&self, name: &str) -> Result<String, String> {
        let mut create = self.command("createdb");
        create.args(["-p", PORT, "-U", "weir", "-h"]);
        done(create.arg(&self.folder).arg(name))?;
        Ok(self.url(name))
    }
}

fn done(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{}: {status}", command.get_program().display()))
}

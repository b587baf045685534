//! Users who may log on over SMB: a file in the data folder, and `weir users`, which changes it.
//!
//! An entry has the user's name, the uid and gid that it acts as, and the NT hash of its password.
//! The hash is as good as the password, so the file has mode 0600 in a folder that is closed to
//! others, and no command prints it. A server reads the file when it starts and after `weir users`
//! has changed it, never on an event loop.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_base::{hex, small_file};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::{Mutex, RwLock};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use serde_json::{Value, json};
use weir_auth::name_service;
use weir_auth::users::{User, Users};
use weir_vfs::{Groups, Identity};

use crate::cli::{CreateUser, UsersCommand};
use weir_node::control_socket::{self, Commands};
use weir_node::data_folder;

/// The file in the data folder.
pub const FILE: &str = "smb-users";
/// Request to a running server, over its control socket.
const RELOAD: &str = "users reload";
/// Longest name of a user, in characters; as Windows has it.
const MAX_NAME: usize = 104;
/// Longest password, in characters; as Windows has it.
const MAX_PASSWORD: usize = 127;
/// Users at most.
const MAX_USERS: usize = 10_000;

/// Users by name, and by the number that they act as.
#[derive(Default)]
struct Table {
    by_name: HashMap<String, Arc<User>>,
    by_uid: HashMap<u32, Arc<User>>,
    /// Those of `by_uid`, in order.
    all: Arc<[Arc<User>]>,
}

/// The users of a data folder.
pub struct Accounts {
    folder: PathBuf,
    table: RwLock<Arc<Table>>,
    /// Held by the one that reads the file.
    reading: Mutex<()>,
}

/// The name by which a user is found.
fn key(name: &str) -> String {
    name.to_lowercase()
}

fn read(folder: &Path) -> Result<Vec<User>> {
    let path = folder.join(FILE);
    let bytes = small_file::read(&path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(bytes.unwrap_or_default()).ok();
    let lines = text.with_context(|| format!("{} is damaged", path.display()))?;
    let users = lines.lines().map(parse).collect::<Option<Vec<User>>>();
    users.with_context(|| format!("{} is damaged", path.display()))
}

/// A line of the file: name, user id, group ids with commas between, hash, separated by tabs.
fn parse(line: &str) -> Option<User> {
    let mut fields = line.split('\t');
    let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
    let uid = fields.next()?.parse().ok()?;
    let gids = fields.next()?.split(',').map(str::parse);
    let gids: Vec<u32> = gids.collect::<Result<_, _>>().ok()?;
    let nt_hash = hex::decode(fields.next()?)?;
    if fields.next().is_some() {
        return None;
    }
    let (gid, more) = gids.split_first()?;
    Some(User {
        name,
        nt_hash,
        identity: Identity::unix(uid, *gid, Groups::from(more)),
    })
}

fn line(user: &User) -> String {
    let unix = &user.identity.unix;
    let gids = [unix.gid]
        .into_iter()
        .chain(unix.gids.as_slice().iter().copied());
    let gids: Vec<String> = gids.map(|gid| gid.to_string()).collect();
    let hash = hex::encode(&user.nt_hash);
    format!("{}\t{}\t{}\t{hash}\n", user.name, unix.uid, gids.join(","))
}

fn write(folder: &Path, users: &[User]) -> Result<()> {
    let text: String = users.iter().map(line).collect();
    small_file::replace(folder, FILE, text.as_bytes()).context("writing the users")
}

impl Accounts {
    /// The users of a data folder as they are now.
    pub fn open(folder: &Path) -> Result<Arc<Accounts>> {
        let accounts = Accounts {
            folder: folder.to_owned(),
            table: RwLock::default(),
            reading: Mutex::default(),
        };
        accounts.reload()?;
        Ok(Arc::new(accounts))
    }

    /// Reads the file again; how many there are.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn reload(&self) -> Result<usize> {
        let _alone = self.reading.lock();
        let mut table = Table::default();
        for user in read(&self.folder)?.into_iter().map(Arc::new) {
            let uid = user.identity.unix.uid;
            let first = table.by_uid.entry(uid).or_insert_with(|| Arc::clone(&user));
            if key(&user.name) < key(&first.name) {
                *first = Arc::clone(&user);
            }
            table.by_name.insert(key(&user.name), user);
        }
        let mut all: Vec<Arc<User>> = table.by_uid.values().cloned().collect();
        all.sort_unstable_by_key(|user| user.identity.unix.uid);
        table.all = all.into();
        let count = table.by_name.len();
        *self.table.write() = Arc::new(table);
        Ok(count)
    }
}

impl Users for Accounts {
    fn find(&self, name: &str) -> Option<Arc<User>> {
        let table = Arc::clone(&self.table.read());
        table.by_name.get(&key(name)).cloned()
    }

    fn with_uid(&self, uid: u32) -> Option<Arc<User>> {
        let table = Arc::clone(&self.table.read());
        table.by_uid.get(&uid).cloned()
    }

    fn list_users(&self) -> Arc<[Arc<User>]> {
        Arc::clone(&self.table.read().all)
    }
}

/// Commands of the control socket: reading the users again, and all others by `next`.
pub struct AccountCommands<C> {
    /// The users.
    pub accounts: Arc<Accounts>,
    /// The other commands.
    pub next: C,
}

impl<C: Commands> Commands for AccountCommands<C> {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        match request {
            RELOAD => Ok(format!("{} users", self.accounts.reload()?)),
            other => self.next.run(other, say),
        }
    }
}

/// `weir users`
pub fn run(command: &UsersCommand) -> Result<()> {
    match command {
        UsersCommand::Create(args) => create(args),
        UsersCommand::Delete { name, data, output } => {
            let mut users = read(data)?;
            let before = users.len();
            users.retain(|user| key(&user.name) != key(name));
            ensure!(
                users.len() < before,
                "cannot delete user {name}: no such user"
            );
            write(data, &users)?;
            let known = known(data);
            let done = json!({"name": name, "effective": effective(known)});
            output.print(&done, format_args!("deleted {name}{known}"))
        }
        UsersCommand::List { data, output } => {
            let users = read(data)?;
            if output.json {
                let all: Vec<_> = users.iter().map(described).collect();
                return output.print(&all.into(), "");
            }
            for user in users {
                let unix = &user.identity.unix;
                println!("{}\tuid {}\tgid {}", user.name, unix.uid, unix.gid);
            }
            Ok(())
        }
    }
}

fn create(args: &CreateUser) -> Result<()> {
    let name = args.name.as_str();
    let plain = |c: char| !c.is_control() && !r#""/\[]:;|=,+*?<>@"#.contains(c);
    ensure!(
        !name.is_empty() && name.chars().count() <= MAX_NAME && name.chars().all(plain),
        "'{name}' is no name for a user"
    );
    ensure!(
        data_folder::is_served(&args.data),
        "{} is no data folder of a server: start `weir serve` on it first",
        args.data.display()
    );
    let identity = identity(args)?;
    let mut users = read(&args.data)?;
    let there = users.iter().position(|user| key(&user.name) == key(name));
    ensure!(
        there.is_none() || args.replace,
        "cannot create user {name}: exists (--replace sets another password)"
    );
    ensure!(
        users.len() < MAX_USERS,
        "cannot create user: limit of {MAX_USERS} users reached"
    );
    let password = password(name)?;
    ensure!(!password.is_empty(), "cannot create user: empty password");
    ensure!(
        password.chars().count() <= MAX_PASSWORD,
        "cannot create user: password longer than {MAX_PASSWORD} characters"
    );
    let user = User {
        name: name.to_owned(),
        nt_hash: weir_auth::ntlm::nt_hash(&password),
        identity,
    };
    let Identity { unix, .. } = &user.identity;
    let numbers = format!("uid {}, gid {}", unix.uid, unix.gid);
    let unix = (unix.uid, unix.gid);
    match there {
        Some(at) => users[at] = user,
        None => users.push(user),
    }
    write(&args.data, &users)?;
    let known = known(&args.data);
    let mut done = json!({"name": name, "effective": effective(known)});
    done["uid"] = unix.0.into();
    done["gid"] = unix.1.into();
    let text = format_args!("{name} ({numbers}) may log on over SMB{known}");
    args.output.print(&done, text)
}

/// Returns a user for programs, without the hash of the password.
fn described(user: &User) -> Value {
    let unix = &user.identity.unix;
    json!({"name": user.name, "uid": unix.uid, "gid": unix.gid, "groups": unix.gids.as_slice()})
}

/// Returns from when on a change counts; `known` is the end of the sentence for people.
fn effective(known: &str) -> &'static str {
    match known {
        "" => "now",
        _ => "at the next start",
    }
}

/// As whom a new user acts: by the options, or as this machine's user of the same name.
fn identity(args: &CreateUser) -> Result<Identity> {
    if let Some(uid) = args.uid {
        return Ok(Identity::unix(
            uid,
            args.gid.unwrap_or(uid),
            Groups::default(),
        ));
    }
    let name = CString::new(args.name.as_str()).context("cannot look up user: NUL in its name")?;
    match name_service::identity_of(&name) {
        Some(identity) => Ok(identity),
        None => bail!(
            "no user {} on this machine: pass --uid and --gid of the account to act as",
            args.name
        ),
    }
}

/// Asks a running server to read the users again. Returns what to add to the command's output:
/// nothing if the change is in force, or that it is from the next start.
fn known(data: &Path) -> &'static str {
    match control_socket::send_request(data, RELOAD) {
        Ok(_) => "",
        Err(_) => ", from the server's next start on",
    }
}

/// Reads a password: without echo from a terminal, else the first line of the standard input.
pub fn password(name: &str) -> Result<String> {
    let stdin = io::stdin();
    let hidden = stdin.is_terminal().then(|| {
        eprint!("password of {name}: ");
        let _ = io::stderr().flush();
        EchoGuard::new()
    });
    let mut line = String::new();
    stdin
        .lock()
        .read_line(&mut line)
        .context("reading the password")?;
    if hidden.is_some() {
        eprintln!();
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A terminal that does not show what is typed, for as long as this lives.
struct EchoGuard(Option<Termios>);

impl EchoGuard {
    fn new() -> EchoGuard {
        let shown = termios::tcgetattr(io::stdin()).ok();
        if let Some(mut quiet) = shown.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
        }
        EchoGuard(shown)
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        if let Some(shown) = &self.0 {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let user = |name: &str, gids: &[u32]| User {
            name: name.to_owned(),
            nt_hash: weir_auth::ntlm::nt_hash(name),
            identity: Identity::unix(7, 8, Groups::from(gids)),
        };
        let all = [user("Alice", &[]), user("bob müller", &[1, 2, 3])];
        write(folder.path(), &all).unwrap();
        assert_eq!(read(folder.path()).unwrap(), all);
        let accounts = Accounts::open(folder.path()).unwrap();
        assert_eq!(*accounts.find("ALICE").unwrap(), all[0]);
        assert!(accounts.find("carol").is_none());
        // A server sees what changed when it is asked to.
        write(folder.path(), &all[1..]).unwrap();
        assert!(accounts.find("alice").is_some());
        assert_eq!(accounts.reload().unwrap(), 1);
        assert!(accounts.find("alice").is_none());
        for damaged in ["x", "a\t1\t2", "a\t1\t\tff", "a\t1\t2\tzz", "\t1\t2\t00"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            assert!(read(folder.path()).is_err(), "{damaged}");
        }
    }
}

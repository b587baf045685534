//! Mounts: what a volume's context says of them, mount(8), and the table of mounts.
//!
//! The server names the command that mounts a volume by each protocol. The controller takes source
//! and options out of it ([`context`]), so that a machine mounts as the server advises, and the
//! options of a StorageClass take the place of those with the same name ([`options`]).

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use crate::api::text;
use crate::requests::{Mount, Texts};
use crate::status::{Code, Outcome, Status};

/// Protocols of the API, and what their context's fields begin with.
const PROTOCOLS: [(&str, &str); 3] = [("NFSV4", "nfs4"), ("NFSV3", "nfs3"), ("SMB", "smb")];

/// Options of which each excludes the others on its line.
const EXCLUSIVE: &[&[&str]] = &[
    &["vers", "nfsvers"],
    &["hard", "soft", "softerr"],
    &["lock", "nolock"],
    &["ro", "rw"],
];

/// Returns the context of a volume: `nfs4Source`, `nfs4Options`, … for each protocol that the
/// server serves it by. `host` is in place of the address that the server names.
pub fn context(volume: &Value, host: Option<&str>) -> Value {
    let mut out = Map::new();
    let all = volume.get("mountOptions").and_then(Value::as_array);
    for option in all.into_iter().flatten() {
        let protocol = text(option, "protocol");
        let Some((_, name)) = PROTOCOLS.iter().find(|(known, _)| *known == protocol) else {
            continue;
        };
        let lines = text(option, "instructions").lines();
        let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        for words in words {
            if let ["sudo", "mount", "-t", _, "-o", options, source, _] = words.as_slice() {
                // The secrets of the mount name the user.
                let kept = options.split(',').filter(|o| !o.starts_with("username="));
                let kept: Vec<&str> = kept.collect();
                out.insert(format!("{name}Options"), Value::String(kept.join(",")));
                out.insert(
                    format!("{name}Source"),
                    Value::String(at_host(source, host)),
                );
            }
        }
    }
    Value::Object(out)
}

/// Returns a source, `HOST:/path` or `//HOST/share`, at another host.
fn at_host(source: &str, host: Option<&str>) -> String {
    let Some(host) = host else {
        return source.to_owned();
    };
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    match (source.strip_prefix("//"), source.split_once(":/")) {
        (Some(rest), _) => {
            let share = rest.split_once('/').map_or("", |(_, share)| share);
            format!("//{host}/{share}")
        }
        (None, Some((_, path))) => format!("{host}:/{path}"),
        (None, None) => source.to_owned(),
    }
}

/// A mount that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec {
    /// The type for mount(8): `nfs` or `cifs`.
    pub kind: &'static str,
    /// The source.
    pub source: String,
    /// The options.
    pub options: Vec<String>,
}

impl MountSpec {
    /// Returns the mount of a volume by its context, as a use of it asks for: SMB where the type of
    /// file system says so or nothing else is served, NFSv3 where an option says so.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the volume is not served so.
    pub fn from_context(context: &Texts, mount: &Mount) -> Outcome<MountSpec> {
        let has = |name: &str| context.contains_key(&format!("{name}Source"));
        let three = mount
            .mount_flags
            .iter()
            .flat_map(|f| f.split(','))
            .any(|flag| {
                let version = flag.strip_prefix("nfsvers=").or(flag.strip_prefix("vers="));
                version.is_some_and(|version| version.starts_with('3'))
            });
        let name = match mount.fs_type.as_str() {
            "cifs" | "smb" => "smb",
            "nfs" | "nfs4" | "" if three && has("nfs3") => "nfs3",
            "nfs" | "nfs4" | "" if has("nfs4") => "nfs4",
            "nfs" | "nfs4" | "" if has("nfs3") => "nfs3",
            "" => "smb",
            other => {
                return Err(Status::invalid(format!(
                    "fs_type {other:?}: a volume here is mounted as nfs or cifs"
                )));
            }
        };
        let field = |part: &str| context.get(&format!("{name}{part}"));
        let Some(source) = field("Source") else {
            return Err(Status::invalid(format!(
                "the volume is not served over {}: its volume_context has no {name}Source",
                if name == "smb" { "SMB" } else { "NFS" }
            )));
        };
        let advised = field("Options").map_or("", String::as_str);
        Ok(MountSpec {
            kind: if name == "smb" { "cifs" } else { "nfs" },
            source: source.clone(),
            options: options(advised, &mount.mount_flags),
        })
    }
}

/// The machine that mounts: this process's own, or one whose root is a folder here, as a container
/// has it. In the second case its own programs mount (mount.nfs among them), and paths are its own.
pub struct Host {
    root: Option<PathBuf>,
}

impl Host {
    /// Creates the machine whose root is a folder; `None`: this process's own.
    pub fn new(root: Option<PathBuf>) -> Host {
        Host { root }
    }

    /// Returns a path of the machine as this process sees it.
    pub fn seen(&self, at: &Path) -> PathBuf {
        match &self.root {
            None => at.to_owned(),
            Some(root) => root.join(at.strip_prefix("/").unwrap_or(at)),
        }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        if let Some(root) = self.root.clone() {
            let enter = move || {
                rustix::process::chroot(&root)?;
                rustix::process::chdir("/")?;
                Ok(())
            };
            // SAFETY: the closure makes two system calls on a path that was made before; it takes
            // no lock and allocates nothing that another thread could hold.
            unsafe { command.pre_exec(enter) };
        }
        command
    }

    /// Mounts a volume.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: SMB without a user. INTERNAL: mount(8) fails.
    pub fn mount(&self, wanted: &MountSpec, at: &Path, secrets: &Texts) -> Outcome<()> {
        let mut options = wanted.options.clone();
        let folder = self
            .root
            .as_ref()
            .map_or_else(std::env::temp_dir, |root| root.join("run"));
        let credentials = match wanted.kind {
            "cifs" => Some(credentials(secrets, &folder)?),
            _ => None,
        };
        if let Some(file) = &credentials {
            let path = match &self.root {
                None => file.path().to_owned(),
                Some(root) => {
                    Path::new("/").join(file.path().strip_prefix(root).unwrap_or(file.path()))
                }
            };
            options.push(format!("credentials={}", path.display()));
        }
        let options = options.join(",");
        let arguments = ["-t", wanted.kind, "-o", &options, &wanted.source];
        run(self.program("mount").args(arguments).arg(at))
    }

    /// Makes what is mounted at `from` visible at `to` too.
    ///
    /// # Errors
    /// INTERNAL: mount(8) fails; nothing is mounted at `to` then.
    pub fn bind(&self, from: &Path, to: &Path, readonly: bool) -> Outcome<()> {
        run(self.program("mount").arg("--bind").arg(from).arg(to))?;
        if !readonly {
            return Ok(());
        }
        let narrowed = run(self
            .program("mount")
            .args(["-o", "remount,bind,ro"])
            .arg(to));
        if narrowed.is_err() {
            self.unmount(to)?;
        }
        narrowed
    }

    /// Ends what is mounted at a path, if anything is.
    ///
    /// # Errors
    /// INTERNAL: umount(8) fails, or the table of mounts cannot be read.
    pub fn unmount(&self, at: &Path) -> Outcome<()> {
        while self.mounted(at)?.is_some() {
            run(self.program("umount").arg(at))?;
        }
        Ok(())
    }

    /// Returns the newest mount at a path; `None`: nothing is mounted there.
    ///
    /// # Errors
    /// INTERNAL: the table of mounts cannot be read.
    pub fn mounted(&self, at: &Path) -> Outcome<Option<Entry>> {
        let whole = whole(&self.seen(at));
        Ok(table()?.into_iter().rfind(|entry| entry.at == whole))
    }
}

/// Writes the user of a mount over SMB into a file in a folder, which only this process may read.
fn credentials(secrets: &Texts, folder: &Path) -> Outcome<tempfile::NamedTempFile> {
    let wrong = |why: &str| Status::invalid(format!("secrets of a mount over SMB: {why}"));
    let mut text = String::new();
    for name in ["username", "password", "domain"] {
        let Some(value) = secrets.get(name) else {
            match name {
                "domain" => continue,
                _ => return Err(wrong(&format!("{name} is missing"))),
            }
        };
        if value.contains(['\n', '\0']) {
            return Err(wrong(&format!("{name} has a line break")));
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        Ok(file)
    });
    written.map_err(|e| Status::new(Code::Internal, format!("cannot write the credentials: {e}")))
}

/// Returns options, with those of `own` in place of advised ones of the same name.
fn options(advised: &str, own: &[String]) -> Vec<String> {
    let key = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let own: Vec<&str> = own.iter().flat_map(|flag| flag.split(',')).collect();
    let own: Vec<&str> = own
        .into_iter()
        .map(str::trim)
        .filter(|o| !o.is_empty())
        .collect();
    let replaced = |option: &str| {
        let name = key(option);
        own.iter().any(|other| {
            let other = key(other);
            let both = |line: &&&[&str]| line.contains(&&*name) && line.contains(&&*other);
            name == other || EXCLUSIVE.iter().any(|line| both(&line))
        })
    };
    let advised = advised.split(',').filter(|o| !o.is_empty() && !replaced(o));
    advised
        .chain(own.iter().copied())
        .map(str::to_owned)
        .collect()
}

fn run(command: &mut Command) -> Outcome<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| Status::new(Code::Internal, format!("{program} failed: {why}"));
    let done = command.output().map_err(|e| failed(e.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(failed(format!("{} ({})", said.trim(), done.status)))
}

/// A line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub at: PathBuf,
    /// The source, such as `HOST:/path`.
    pub source: String,
    /// True if nothing can be written there.
    pub readonly: bool,
    /// The file system, and the folder of it that is visible.
    of: (String, String),
}

impl Entry {
    /// Returns true for mounts of the same folder of the same file system.
    pub fn is_same(&self, other: &Entry) -> bool {
        self.of == other.of
    }
}

/// Returns the table of mounts, in the order of mounting.
///
/// # Errors
/// INTERNAL: it cannot be read.
pub fn table() -> Outcome<Vec<Entry>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| {
        Status::new(
            Code::Internal,
            format!("cannot read the table of mounts: {e}"),
        )
    })?;
    Ok(text.lines().filter_map(entry).collect())
}

fn entry(line: &str) -> Option<Entry> {
    let (mount, source) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let of = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let at = plain(fields.next()?);
    let mut options = fields.next()?.split(',');
    Some(Entry {
        at,
        source: plain(source.split(' ').nth(1)?).display().to_string(),
        readonly: options.any(|option| option == "ro"),
        of,
    })
}

/// Returns a path as the table has it: without links on the way to it. What is there itself is not
/// touched: it may hang.
fn whole(at: &Path) -> PathBuf {
    let parent = at.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, at.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => at.to_owned(),
    }
}

/// Returns a path of the table, in which blanks and their like are octal numbers behind a
/// backslash.
fn plain(text: &str) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| {
            first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
        });
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0_u32, |n, digit| n * 8 + u32::from(digit - b'0'));
                out.push(value as u8);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume() -> Value {
        json!({"mountOptions": [
            {"protocol": "NFSV3", "instructions":
                "sudo mkdir -p /mnt/v\nsudo mount -t nfs -o vers=3,hard,port=9,mountport=9,nolock 10.0.0.1:/v /mnt/v"},
            {"protocol": "NFSV4", "instructions":
                "sudo mkdir -p /mnt/v\nsudo mount -t nfs -o vers=4.2,hard,port=9 10.0.0.1:/v /mnt/v"},
            {"protocol": "SMB", "instructions":
                "sudo mkdir -p /mnt/v\nsudo mount -t cifs -o vers=3.1.1,port=4450,username=USER //10.0.0.1/v /mnt/v\nnet use Z: x"},
            {"protocol": "FTP", "instructions": "sudo mount -t ftp -o x y z"},
        ]})
    }

    fn texts(value: Value) -> Texts {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_volume_is_mounted_as_its_server_advises() {
        let context = texts(context(&volume(), None));
        let of = |kind: &str, flags: &[&str]| {
            let mount = Mount {
                fs_type: kind.to_owned(),
                mount_flags: flags.iter().map(|f| (*f).to_owned()).collect(),
            };
            MountSpec::from_context(&context, &mount)
                .map(|w| (w.kind, w.source, w.options.join(",")))
        };
        let nfs = |options: &str| Ok(("nfs", "10.0.0.1:/v".to_owned(), options.to_owned()));
        assert_eq!(of("", &[]), nfs("vers=4.2,hard,port=9"));
        assert_eq!(
            of("nfs", &["nfsvers=3", "soft,timeo=5"]),
            nfs("port=9,mountport=9,nolock,nfsvers=3,soft,timeo=5")
        );
        assert_eq!(
            of("cifs", &["vers=3.0"]),
            Ok((
                "cifs",
                "//10.0.0.1/v".to_owned(),
                "port=4450,vers=3.0".to_owned()
            ))
        );
        assert_eq!(of("ext4", &[]).unwrap_err().code, Code::InvalidArgument);
        let none = MountSpec::from_context(&Texts::new(), &Mount::default()).unwrap_err();
        assert!(none.message.contains("not served"), "{}", none.message);
    }

    #[test]
    fn another_host_takes_the_place_of_the_servers() {
        let of = |host: &str| context(&volume(), Some(host));
        assert_eq!(of("weir.svc")["nfs4Source"], "weir.svc:/v");
        assert_eq!(of("weir.svc")["smbSource"], "//weir.svc/v");
        assert_eq!(of("fd00::1")["nfs3Source"], "[fd00::1]:/v");
    }

    #[test]
    fn paths_of_a_machine_are_below_its_root() {
        let of = |root: Option<&str>| Host::new(root.map(PathBuf::from)).seen(Path::new("/a/b"));
        assert_eq!(of(None), Path::new("/a/b"));
        assert_eq!(of(Some("/host")), Path::new("/host/a/b"));
    }

    #[test]
    fn the_newest_mount_at_a_path_is_found() {
        let table = "36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/x rw\n\
                     37 36 0:5 /x /mnt/a\\040b ro,noatime shared:1 - nfs4 h:/v rw\n\
                     38 36 0:5 /x /mnt/c rw - nfs4 h:/v rw\nx\n";
        let all: Vec<Entry> = table.lines().filter_map(entry).collect();
        let [first, second, third] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(first.at, Path::new("/mnt/a b"));
        assert_eq!((&*second.source, second.readonly), ("h:/v", true));
        assert!(second.is_same(third) && !second.is_same(first) && !third.readonly);
    }

    #[test]
    fn users_of_smb_are_in_a_file_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let made = |secrets: Value| credentials(&texts(secrets), folder.path());
        let file = made(json!({"username": "u", "password": "p,=w"})).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, "username=u\npassword=p,=w\n");
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.as_file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for bad in [
            json!({"username": "u"}),
            json!({"username": "u", "password": "a\nb"}),
        ] {
            assert_eq!(made(bad).unwrap_err().code, Code::InvalidArgument);
        }
    }
}

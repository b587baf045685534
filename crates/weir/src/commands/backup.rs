//! `weir backup` and `weir restore`: everything of a data folder besides the volumes' data.
//!
//! A backup is a folder of whole files and a manifest with their lengths and checksums. The
//! manifest is written last, so an incomplete backup has none. A pair's state is left out:
//! restored, it would claim that the partner has data that it lacks.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use weir_base::{hex, small_file};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{Backup, BackupCommand, Restore};
use crate::commands::verify;
use crate::progress::Task;
use crate::{kept_files, plane};

const MANIFEST: &str = "backup.json";
const MAGIC: &str = "weir-backup";
const VERSION: u32 = 1;
const CATALOG: &str = "catalog.db";
/// Makes a folder an aggregate's; restored last.
const IDENTITY: &str = "weir.json";
/// Largest file that a restore reads: the bound on a catalog that a pair's partner takes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// Returns the names of the files that are copied where they exist.
fn copied_files() -> impl Iterator<Item = &'static str> {
    [IDENTITY].into_iter().chain(kept_files::all())
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    magic: String,
    version: u32,
    /// Version of the program that made the backup.
    weir: String,
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Entry {
    fn describe(name: &str, contents: &[u8]) -> Entry {
        let sum = digest(&SHA256, contents);
        Entry {
            name: name.to_owned(),
            bytes: contents.len() as u64,
            sha256: hex::encode(sum.as_ref()),
        }
    }
}

/// Carries `weir backup` out, or what it names.
pub fn run(args: &Backup) -> Result<()> {
    match (&args.command, args.folder.as_deref()) {
        (Some(BackupCommand::Verify(args)), _) => verify::run(args),
        (None, Some(folder)) => back_up(args, folder),
        (None, None) => Err(crate::usage::error("name the backup's folder")),
    }
}

/// Copies what a data folder has besides the volumes' data, beside a running server.
fn back_up(args: &Backup, target: &Path) -> Result<()> {
    ensure!(
        args.data.join(IDENTITY).is_file(),
        "cannot back up {}: it has no {IDENTITY} (name the data folder with --data)",
        args.data.display()
    );
    let url = plane::catalog(args.catalog.as_deref(), &args.data)?;
    make_empty(target)?;
    let folder = target.display();
    let task = Task::reading(
        &format!("backing up to {folder}"),
        &format!("{folder} is no backup without {MANIFEST}: delete it"),
    )?;
    let mut files = Vec::new();
    for name in copied_files() {
        let path = args.data.join(name);
        let contents =
            small_file::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(contents) = contents {
            write(target, name, &contents)?;
            files.push(Entry::describe(name, &contents));
        }
    }
    let runtime = plane::event_loop()?;
    let copy = target.join(CATALOG);
    let copied = runtime
        .block_on(weir_control::back_up(&url, &copy))
        .with_context(|| format!("cannot copy the catalog to {}", copy.display()))?;
    if copied {
        files.push(Entry::describe(
            CATALOG,
            &read_bounded(&copy, FILE_BYTES_MAX)?,
        ));
    }
    let names: Vec<_> = files.iter().map(|entry| entry.name.clone()).collect();
    let manifest = Manifest {
        magic: MAGIC.to_owned(),
        version: VERSION,
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        files,
    };
    write(target, MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
    drop(task);
    if args.output.json {
        let data = json!({"folder": target.to_string_lossy(), "files": names, "catalog": copied});
        return args.output.print(&data, "");
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "backed up to {}: {}",
        target.display(),
        names.join(", ")
    )?;
    if !copied {
        writeln!(
            out,
            "The catalog is in PostgreSQL and not in the backup: use pg_dump."
        )?;
    }
    writeln!(
        out,
        "Not in it: the volumes' data (device and log) and a pair's configuration. The files hold keys and password hashes: keep \
         the folder closed to others."
    )?;
    Ok(())
}

/// Verifies a backup, then makes a data folder of it.
pub fn restore(args: &Restore) -> Result<()> {
    let data = args.data.display();
    let task = Task::reading(
        &format!("restoring to {data}"),
        &format!("{data} is not restored, and no server serves it: delete it"),
    )?;
    let contents = verified(&args.folder)?;
    make_empty(&args.data)?;
    // The identity last: without it a server refuses the folder, so an incomplete restore is not
    // served.
    let (identity, rest): (Vec<_>, Vec<_>) =
        contents.iter().partition(|(name, _)| name == IDENTITY);
    for (name, bytes) in rest.into_iter().chain(identity) {
        write(&args.data, name, bytes)?;
    }
    drop(task);
    let names: Vec<_> = contents.iter().map(|(name, _)| name.as_str()).collect();
    if args.output.json {
        let catalog = names.contains(&CATALOG);
        let data =
            json!({"folder": args.data.to_string_lossy(), "files": names, "catalog": catalog});
        return args.output.print(&data, "");
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "restored to {}: {}",
        args.data.display(),
        names.join(", ")
    )?;
    if !names.contains(&CATALOG) {
        writeln!(
            out,
            "The catalog was in PostgreSQL: restore it there, and name it with --catalog."
        )?;
    }
    writeln!(
        out,
        "Put the aggregate's files device and log into {} before a server is started: a backup has no data of volumes. Changes \
         through the API and of users since the backup are not in it, and a pair is to be made again (weir pair create).",
        args.data.display()
    )?;
    Ok(())
}

/// Reads every file of a backup and compares it with the manifest.
fn verified(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let path = folder.join(MANIFEST);
    let refused = || format!("cannot restore from {}", folder.display());
    let text = read_bounded(&path, MANIFEST_BYTES_MAX).with_context(refused)?;
    let value: serde_json::Value = serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged", path.display()))
        .with_context(refused)?;
    ensure!(
        value["magic"] == MAGIC,
        "{}: {} is not a backup's manifest",
        refused(),
        path.display()
    );
    ensure!(
        value["version"] == VERSION,
        "{}: the backup has version {}, this program reads version {VERSION} (use the Weir that made it: {})",
        refused(),
        value["version"],
        value["weir"]
    );
    let manifest: Manifest = serde_json::from_value(value)
        .with_context(|| format!("{} is damaged", path.display()))
        .with_context(refused)?;
    let mut contents = Vec::new();
    for entry in manifest.files {
        let name = entry.name.as_str();
        ensure!(
            copied_files().any(|file| file == name) || name == CATALOG,
            "{}: {MANIFEST} names {name:?}, which is no file of a backup",
            refused()
        );
        let bytes = read_bounded(&folder.join(name), FILE_BYTES_MAX).with_context(refused)?;
        let found = Entry::describe(name, &bytes);
        ensure!(
            found.bytes == entry.bytes && found.sha256 == entry.sha256,
            "{}: {name} is damaged: its SHA-256 is not the manifest's (use another backup)",
            refused()
        );
        contents.push((entry.name, bytes));
    }
    ensure!(
        contents.iter().any(|(name, _)| name == IDENTITY),
        "{}: {MANIFEST} does not name {IDENTITY}",
        refused()
    );
    Ok(contents)
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let place = || format!("cannot read {}", path.display());
    let bytes = fs::metadata(path).with_context(place)?.len();
    ensure!(
        bytes <= bytes_max,
        "{}: it has {bytes} bytes, more than {bytes_max}",
        place()
    );
    fs::read(path).with_context(place)
}

fn write(folder: &Path, name: &str, contents: &[u8]) -> Result<()> {
    small_file::replace(folder, name, contents)
        .with_context(|| format!("cannot write {}", folder.join(name).display()))
}

/// Makes the folder, or closes an empty one to other users.
fn make_empty(folder: &Path) -> Result<()> {
    let place = || format!("cannot use {}", folder.display());
    if let Some(process) = weir_store::folder::holder(folder) {
        bail!(
            "{}: process {process} is serving it (name a new folder)",
            place()
        );
    }
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            ensure!(
                entries.next().is_none(),
                "{}: it is not empty (name a new folder)",
                place()
            );
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).with_context(place)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => DirBuilder::new()
            .mode(0o700)
            .create(folder)
            .with_context(place),
        Err(error) => Err(error).with_context(place),
    }
}

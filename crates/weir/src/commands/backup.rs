//! `weir backup` and `weir restore`: everything of an aggregate besides the volumes' data.
//!
//! A backup is a folder of whole files and a manifest with their lengths and checksums. The
//! manifest is written last, so an incomplete backup has none. The files are those of the data
//! folder, or those that an aggregate on RADOS keeps; these are restored to an aggregate of the
//! same identity. A pair's state is left out: restored, it would claim that the partner has data
//! that it lacks.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_base::{hex, small_file};

use crate::aggregate::kept_files;
use crate::aggregate::place::AggregatePlace;
use crate::aggregate::rados::CATALOG;
use crate::cli::progress::Task;
use crate::cli::{Backup, BackupCommand, Restore};
use crate::commands::verify;

const MANIFEST: &str = "backup.json";
const MAGIC: &str = "weir-backup";
const VERSION: u32 = 1;
/// Makes a folder an aggregate's; restored last.
const IDENTITY: &str = "weir.json";
/// Largest file that a restore reads: the bound on a catalog that a pair's partner takes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 64 << 10;
/// Returns the names of the files that are copied where they exist.
fn copied_files() -> impl Iterator<Item = &'static str> {
    [IDENTITY].into_iter().chain(kept_files::list_names())
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    magic: String,
    version: u32,
    /// Version of the program that made the backup.
    weir: String,
    /// Identity of an aggregate on RADOS, which has no file of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregate: Option<String>,
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
        (None, None) => Err(crate::cli::usage::error("name the backup's folder")),
    }
}

/// Copies what an aggregate has besides the volumes' data, beside a running server.
fn back_up(args: &Backup, target: &Path) -> Result<()> {
    let source = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let in_pool = source.pool().is_some();
    ensure!(
        in_pool || args.data.join(IDENTITY).is_file(),
        "cannot back up {source}: it has no {IDENTITY} (name the data folder with --data)"
    );
    let aggregate = source.id_in_pool()?;
    make_empty(target)?;
    let folder = target.display();
    let task = Task::reading(
        &format!("backing up to {folder}"),
        &format!("{folder} is no backup without {MANIFEST}: delete it"),
    )?;
    let mut files = Vec::new();
    for name in copied_files() {
        if let Some(contents) = source.read_file(name)? {
            write(target, name, &contents)?;
            files.push(Entry::describe(name, &contents));
        }
    }
    let copied = source.copy_catalog(target)?;
    if copied {
        let contents = read_bounded(&target.join(CATALOG), FILE_BYTES_MAX)?;
        files.push(Entry::describe(CATALOG, &contents));
    }
    let names: Vec<_> = files.iter().map(|entry| entry.name.clone()).collect();
    let manifest = Manifest {
        magic: MAGIC.to_owned(),
        version: VERSION,
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        aggregate,
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
    let data = match in_pool {
        true => "the volumes' data",
        false => "the volumes' data (device and log) and a pair's configuration",
    };
    writeln!(
        out,
        "Not in it: {data}. The files hold keys and password hashes: keep \
         the folder closed to others."
    )?;
    Ok(())
}

/// Verifies a backup, then makes a data folder of it, or gives it to its aggregate on RADOS.
pub fn restore(args: &Restore) -> Result<()> {
    let place = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let in_pool = place.pool().is_some();
    let left = match in_pool {
        true => "run it again; files that are restored stay so".to_owned(),
        false => format!("{place} is not restored, and no server serves it: delete it"),
    };
    let task = Task::reading(&format!("restoring to {place}"), &left)?;
    let (of, contents) = verified(&args.folder)?;
    match place.id_in_pool()? {
        Some(id) => {
            ensure!(
                of.as_ref() == Some(&id),
                "cannot restore to {place}: it is aggregate {id}, and the backup is of {}",
                of.as_deref().unwrap_or("a data folder")
            );
            place.take("restore to")?.replace_files(&contents)?;
        }
        None => {
            ensure!(
                of.is_none(),
                "cannot restore from {}: it is of an aggregate on RADOS (name that with --aggregate)",
                args.folder.display()
            );
            make_folder(&args.data, &contents)?;
        }
    }
    drop(task);
    let names: Vec<_> = contents.iter().map(|(name, _)| name.as_str()).collect();
    let catalog = names.contains(&CATALOG);
    let kind = match in_pool {
        true => "aggregate",
        false => "folder",
    };
    let data = json!({kind: place.to_string(), "files": names, "catalog": catalog});
    let mut text = format!("restored to {place}: {}\n", names.join(", "));
    text += match (catalog, in_pool) {
        (true, _) => "",
        (false, true) => "The catalog was in PostgreSQL: restore it there.\n",
        (false, false) => {
            "The catalog was in PostgreSQL: restore it there, and name it with --catalog.\n"
        }
    };
    text += &match in_pool {
        true => "Changes through the API and of users since the backup are not in it.".to_owned(),
        false => format!(
            "Put the aggregate's files device and log into {place} before a server is started: a backup has no data of volumes. Changes \
             through the API and of users since the backup are not in it, and a pair is to be made again (weir pair create)."
        ),
    };
    args.output.print(&data, text)
}

/// Makes a data folder of files. The identity is written last: without it a server refuses the
/// folder, so an incomplete restore is not served.
fn make_folder(folder: &Path, contents: &[Contents]) -> Result<()> {
    make_empty(folder)?;
    let (identity, rest): (Vec<_>, Vec<_>) =
        contents.iter().partition(|(name, _)| name == IDENTITY);
    for (name, bytes) in rest.into_iter().chain(identity) {
        write(folder, name, bytes)?;
    }
    Ok(())
}

/// Name and contents of a file.
type Contents = (String, Vec<u8>);

/// Reads every file of a backup and compares it with the manifest. Returns the identity of an
/// aggregate on RADOS that it is of, and the files.
fn verified(folder: &Path) -> Result<(Option<String>, Vec<Contents>)> {
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
        manifest.aggregate.is_some() || contents.iter().any(|(name, _)| name == IDENTITY),
        "{}: {MANIFEST} does not name {IDENTITY}",
        refused()
    );
    Ok((manifest.aggregate, contents))
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

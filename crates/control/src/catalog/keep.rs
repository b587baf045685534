//! Copies of a catalog in the form of earlier versions, for going back to an earlier Weir after an
//! upgrade.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Catalog, CatalogError, KNOWN, inspect};

/// Returns the file beside `catalog` that keeps its version `version`: `catalog-v4.sqlite` beside
/// `catalog.db`.
fn kept_as(catalog: &Path, version: i64) -> PathBuf {
    let stem = catalog.file_stem().unwrap_or_default().to_string_lossy();
    catalog.with_file_name(format!("{stem}-v{version}.sqlite"))
}

impl Catalog {
    /// Copies the catalog's committed state beside it before a migration from version `found`.
    ///
    /// The caller holds the database's write lock, so only one process at a time is here. An
    /// earlier copy of the same version is replaced once the new one is durable. PostgreSQL is left
    /// to its own backups.
    pub(super) async fn keep(&self, found: i64) -> Result<(), CatalogError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let kept = kept_as(file, found);
        let draft = kept.with_extension("sqlite.new");
        let written = match create(&draft) {
            Ok(()) => self.draft(&draft, &kept).await,
            Err(error) => Err(error.to_string()),
        };
        written.map_err(|cause| {
            // The refusal names the cause; the next attempt replaces a leftover draft.
            let _ = fs::remove_file(&draft);
            CatalogError::Keep {
                path: kept.display().to_string(),
                found,
                known: KNOWN,
                cause,
            }
        })
    }

    /// Fills the empty file `draft` and renames it to `kept`, durably.
    async fn draft(&self, draft: &Path, kept: &Path) -> Result<(), String> {
        let to = draft.to_str().ok_or("its name is not UTF-8")?;
        self.copy_to(to).await.map_err(|error| error.to_string())?;
        publish(draft, kept).map_err(|error| error.to_string())?;
        tracing::info!(copy = %kept.display(), "kept a copy of the catalog before migrating it");
        Ok(())
    }
}

/// Copies the catalog at `url`, which a server may be using, to the new file `to`. Returns `false`
/// for PostgreSQL, which is not copied.
///
/// # Errors
/// If the catalog cannot be read, or `to` cannot be written.
pub async fn back_up(url: &str, to: &Path) -> Result<bool, CatalogError> {
    let catalog = inspect::open(url).await?;
    let copied = match (catalog.sqlite, to.to_str()) {
        (false, _) => Ok(false),
        (true, Some(name)) => {
            create(to).map_err(sqlx::Error::Io)?;
            let copied = catalog.copy_to(name).await;
            File::open(to)
                .and_then(|file| file.sync_all())
                .map_err(sqlx::Error::Io)?;
            copied
        }
        (true, None) => Err(sqlx::Error::Configuration("its name is not UTF-8".into()).into()),
    };
    catalog.close().await;
    copied
}

/// Creates `draft` empty and readable by its owner only. SQLite fills empty files, and by itself
/// would apply the umask.
fn create(draft: &Path) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)?;
    Ok(())
}

fn publish(draft: &Path, kept: &Path) -> io::Result<()> {
    File::open(draft)?.sync_all()?;
    fs::rename(draft, kept)?;
    match kept.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use sqlx::{AnyConnection, Connection, Executor, Row};

    use super::super::{MIGRATIONS, UNRELEASED};
    use super::*;

    /// Creates a catalog as left by the program of `version`, with one policy.
    async fn older(url: &str, version: i64) {
        sqlx::any::install_default_drivers();
        let mut old = AnyConnection::connect(&format!("{url}?mode=rwc"))
            .await
            .unwrap();
        let meta = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)";
        old.execute(meta).await.unwrap();
        for migration in &MIGRATIONS[..(version - UNRELEASED) as usize] {
            for statement in migration.both.iter().chain(migration.sqlite) {
                old.execute(*statement).await.unwrap();
            }
        }
        let version = format!("INSERT INTO meta VALUES ('version', '{version}')");
        old.execute(version.as_str()).await.unwrap();
        old.execute("INSERT INTO policies VALUES ('kept', '{}')")
            .await
            .unwrap();
        old.close().await.unwrap();
    }

    async fn version_and_policies(file: &Path) -> (String, i64) {
        let url = format!("sqlite://{}", file.display());
        let mut copy = AnyConnection::connect(&url).await.unwrap();
        let row = sqlx::query(
            "SELECT value, (SELECT count(*) FROM policies) FROM meta WHERE name = 'version'",
        )
        .fetch_one(&mut copy)
        .await
        .unwrap();
        copy.close().await.unwrap();
        (row.get(0), row.get(1))
    }

    /// Returns the contents by name, without SQLite's own files that every opening creates.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
        named
            .filter(|(name, path)| {
                path.is_file() && !name.ends_with("-wal") && !name.ends_with("-shm")
            })
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect()
    }

    #[tokio::test]
    async fn a_migration_keeps_the_catalog_of_before_and_replaces_an_earlier_copy() {
        for found in UNRELEASED + 1..KNOWN {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("catalog.db");
            let url = format!("sqlite://{}", path.display());
            older(&url, found).await;
            let kept = folder.path().join(format!("catalog-v{found}.sqlite"));
            fs::write(&kept, "an earlier copy").unwrap();
            fs::write(kept.with_extension("sqlite.new"), "cut short").unwrap();
            Catalog::open(&url).await.unwrap().close().await;
            assert_eq!(version_and_policies(&path).await, (KNOWN.to_string(), 1));
            assert_eq!(version_and_policies(&kept).await, (found.to_string(), 1));
            let mode = fs::metadata(&kept).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(files(folder.path()).len(), 2);

            // Restored, it is a catalog as before.
            fs::copy(&kept, &path).unwrap();
            Catalog::open(&url).await.unwrap().close().await;
            assert_eq!(version_and_policies(&path).await, (KNOWN.to_string(), 1));
        }
    }

    #[tokio::test]
    async fn a_catalog_that_needs_no_migration_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("catalog.db").display());
        for _ in 0..2 {
            Catalog::open(&url).await.unwrap().close().await;
            assert_eq!(files(folder.path()).len(), 1);
        }
    }

    #[tokio::test]
    async fn a_copy_that_fails_refuses_the_migration_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let url = format!("sqlite://{}", path.display());
        let found = KNOWN - 1;
        older(&url, found).await;
        // A folder in the copy's place: the last step fails, after the copy was written.
        fs::create_dir(folder.path().join(format!("catalog-v{found}.sqlite"))).unwrap();
        let before = version_and_policies(&path).await;
        let refused = Catalog::open(&url).await.unwrap_err();
        assert!(matches!(refused, CatalogError::Keep { found: f, .. } if f == found));
        let words = refused.to_string();
        assert!(
            words.contains(&format!("catalog-v{found}.sqlite")),
            "{words}"
        );
        assert_eq!(version_and_policies(&path).await, before);
        assert_eq!(files(folder.path()).len(), 1, "the draft is removed");
    }
}

//! The catalog: the intended state, durably.
//!
//! Identity and uniqueness are columns, with constraints. Everything else of a resource is one JSON
//! document in `body`, because nothing queries the database for it: reads come from the view in
//! memory. The same SQL runs on SQLite (in the data folder, write-ahead log) and on PostgreSQL.
//! Every transaction is flushed when it ends; lazily durable changes wait before they get here (see
//! `store`). Migrations are statements in order; a catalog with more of them than this program
//! knows is refused.
//!
//! Only one server at a time writes resources. Opening for service stores a random owner mark in
//! the catalog, and every transaction begins by checking that it is still there. So a superseded
//! server can do no harm. Any process that can open the catalog may write tokens and the audit log.

mod access;
mod inspect;
mod keep;
mod load;
mod write;

pub(crate) use access::refused;
pub use access::{AccountKey, AuditEntry, TokenHash, TokenRecord, check_secret, new_secret};
pub use inspect::{CatalogVersion, Inspection, inspect, migrate, probe, version};
pub use keep::back_up;
pub(crate) use load::CatalogContents;
pub(crate) use write::Write;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection, Executor, Row};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Mutex;

/// Number of transactions between two checkpoints of SQLite's log: about two mebibytes of pages.
const CHECKPOINT_EVERY: u32 = 64;

/// Statements that bring the catalog from one version to the next.
struct Migration {
    both: &'static [&'static str],
    /// Further statements for SQLite.
    sqlite: &'static [&'static str],
    /// Further statements for PostgreSQL.
    postgres: &'static [&'static str],
}

/// Version of catalogs before the first release, which are not read: they had instances beside
/// volumes.
const UNRELEASED: i64 = 3;

/// Migrations from an empty catalog to this program's version.
const MIGRATIONS: &[Migration] = &[
    TABLES,
    NAMED_POLICIES,
    ACTIVE_DIRECTORIES,
    TOKEN_TIMES,
    SERVICE_ACCOUNTS,
    BACKUPS,
    BACKUP_POLICIES,
];

/// Version that this program supports.
pub(crate) const KNOWN: i64 = UNRELEASED + MIGRATIONS.len() as i64;

/// A transaction writes each touched page as a whole. SQLite keeps an additional tree for every key
/// that is not the table's own order: `BIGINT PRIMARY KEY` differs from the row's number. A
/// mutation wrote twelve pages where seven suffice. Relationships are stored by their destination,
/// known destinations by their relationship's UUID.
const TABLES: Migration = Migration {
    both: &[
        "CREATE TABLE tokens (name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL, \
         created BIGINT NOT NULL, created_by TEXT NOT NULL, revoked BIGINT)",
        "CREATE TABLE policies (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE schedules (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE peers (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE throttles (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
    ],
    sqlite: &[
        "CREATE TABLE pools (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE volumes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE shares (name TEXT PRIMARY KEY, owner BIGINT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE snapshots (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE operations (name TEXT PRIMARY KEY, created BIGINT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE tombstones (volume TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE audit (seq INTEGER PRIMARY KEY, actor TEXT NOT NULL, address TEXT NOT NULL, \
         verb TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL)",
        "CREATE TABLE relationships (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE destinations (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    ],
    postgres: &[
        "CREATE TABLE pools (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE volumes (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE shares (name TEXT PRIMARY KEY, owner BIGINT NOT NULL)",
        "CREATE TABLE snapshots (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE operations (name TEXT PRIMARY KEY, created BIGINT NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE tombstones (volume TEXT PRIMARY KEY)",
        "CREATE TABLE audit (seq BIGINT PRIMARY KEY, actor TEXT NOT NULL, address TEXT NOT NULL, \
         verb TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL)",
        "CREATE TABLE relationships (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "CREATE TABLE destinations (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
    ],
};

/// Policies that volumes refer to by name.
const NAMED_POLICIES: Migration = Migration {
    both: &[],
    sqlite: &[
        "CREATE TABLE named_policies (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
    postgres: &[
        "CREATE TABLE named_policies (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
};

/// Domains of Active Directory.
const ACTIVE_DIRECTORIES: Migration = Migration {
    both: &[],
    sqlite: &[
        "CREATE TABLE active_directories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
    postgres: &[
        "CREATE TABLE active_directories (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
};

/// Expiry and last use of tokens.
const TOKEN_TIMES: Migration = Migration {
    both: &[
        "ALTER TABLE tokens ADD COLUMN expires BIGINT",
        "ALTER TABLE tokens ADD COLUMN used BIGINT",
    ],
    sqlite: &[],
    postgres: &[],
};

/// Keys of service accounts, which are tokens that nobody holds: what the key has signed counts.
const SERVICE_ACCOUNTS: Migration = Migration {
    both: &[
        "ALTER TABLE tokens ADD COLUMN public_key TEXT",
        "ALTER TABLE tokens ADD COLUMN token_uri TEXT",
    ],
    sqlite: &[],
    postgres: &[],
};

/// Vaults of backups, and backups.
const BACKUPS: Migration = Migration {
    both: &[],
    sqlite: &[
        "CREATE TABLE backup_vaults (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE backups (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
    postgres: &[
        "CREATE TABLE backup_vaults (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
        "CREATE TABLE backups (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
};

/// Policies of backups.
const BACKUP_POLICIES: Migration = Migration {
    both: &[],
    sqlite: &[
        "CREATE TABLE backup_policies (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
    postgres: &[
        "CREATE TABLE backup_policies (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)",
    ],
};

/// An error of the catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The database failed.
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    /// A newer program has written the catalog.
    #[error(
        "cannot read version {found} of the catalog: this program knows versions up to {known} (use the newer Weir that has written it, or a copy of the catalog from before)"
    )]
    Newer {
        /// Version of the catalog.
        found: i64,
        /// Newest supported version.
        known: i64,
    },
    /// A program from before the first release has written the catalog.
    #[error(
        "opening the catalog: it has version {found}, from before the first release, and this program reads versions from {oldest} on. \
         Nothing was changed: go on with the Weir that has written it, or move the catalog away and make one anew from the \
         engine's records with `weir catalog rebuild`; export rules, labels, schedules, tokens and replications are to be \
         set again then"
    )]
    Older {
        /// Version of the catalog.
        found: i64,
        /// Oldest supported version.
        oldest: i64,
    },
    /// A row is invalid.
    #[error("row {1} of table {0} is damaged: {2}")]
    Damaged(&'static str, String, String),
    /// The copy before a migration could not be made.
    #[error(
        "cannot copy the catalog to {path} before migrating it from version {found} to {known}: {cause}. Nothing was changed \
         (free space there, or move away what has that name, and start again)"
    )]
    Keep {
        /// The copy's file.
        path: String,
        /// Version of the catalog.
        found: i64,
        /// Version after the migration.
        known: i64,
        /// The cause, as reported by the database or the system.
        cause: String,
    },
    /// Another server has opened the catalog for service.
    #[error("another server has taken over the catalog")]
    Superseded,
}

impl CatalogError {
    /// Returns true if stored data is unreadable, so that a retry does not help.
    pub fn is_damage(&self) -> bool {
        match self {
            CatalogError::Damaged(..) => true,
            // SQLITE_CORRUPT and SQLITE_NOTADB; the rest of an extended code is above the lowest
            // byte.
            CatalogError::Database(sqlx::Error::Database(error)) => {
                let code = error.code().and_then(|code| code.parse::<u32>().ok());
                matches!(code.map(|code| code & 0xff), Some(11 | 26))
            }
            _ => false,
        }
    }
}

/// An open catalog. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Catalog {
    pool: AnyPool,
    /// Connection for writing resources, between two transactions.
    writer: Arc<Mutex<Option<AnyConnection>>>,
    url: String,
    /// File of a SQLite database.
    file: Option<PathBuf>,
    /// True for SQLite, false for PostgreSQL.
    sqlite: bool,
    /// Number of transactions written so far.
    written: Arc<AtomicU32>,
}

impl Catalog {
    /// Opens a catalog, `sqlite:///path/catalog.db` or `postgres://…`, and migrates it to this
    /// program's version. A missing SQLite file is created.
    ///
    /// # Errors
    /// [`CatalogError`] if the database cannot be opened, or a newer program has written it.
    pub async fn open(url: &str) -> Result<Catalog, CatalogError> {
        sqlx::any::install_default_drivers();
        let sqlite = url.starts_with("sqlite:");
        let at = if sqlite && !url.contains('?') {
            format!("{url}?mode=rwc")
        } else {
            url.to_owned()
        };
        let options = AnyConnectOptions::from_str(&at)?.disable_statement_logging();
        // A single connection: a pool retries for half a minute and does not report the cause.
        let mut first = AnyConnection::connect_with(&options).await?;
        if sqlite {
            prepare(&mut first).await?;
        }
        let pool = AnyPoolOptions::new()
            .max_connections(4)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    match sqlite {
                        true => prepare(connection).await,
                        false => Ok(()),
                    }
                })
            })
            .connect_with(options)
            .await?;
        first.close().await?;
        let catalog = Catalog::from_pool(pool, url);
        catalog.migrate().await?;
        Ok(catalog)
    }

    /// Creates a catalog over these connections.
    fn from_pool(pool: AnyPool, url: &str) -> Catalog {
        Catalog {
            pool,
            writer: Arc::default(),
            url: without_password(url),
            file: file_of(url),
            sqlite: url.starts_with("sqlite:"),
            written: Arc::default(),
        }
    }

    /// Returns true if the URL names a missing file.
    pub fn is_missing(url: &str) -> bool {
        file_of(url).is_some_and(|path| !path.exists())
    }

    /// Returns the catalog's address, without a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes all connections to the database.
    pub async fn close(&self) {
        if let Some(writer) = self.writer.lock().await.take() {
            // Written changes are in the catalog, even if closing the connection fails.
            let _ = writer.close().await;
        }
        self.pool.close().await;
    }

    async fn migrate(&self) -> Result<(), CatalogError> {
        // SQLite waits for other writers only at the beginning of a transaction. A transaction that
        // reads before it writes is refused at once if another process has written in between, for
        // example a server that has just been killed.
        let mut tx = match self.sqlite {
            true => self.pool.begin_with("BEGIN IMMEDIATE").await?,
            false => self.pool.begin().await?,
        };
        tx.execute("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            .await?;
        // Takes the lock before reading, so that two servers that open an empty catalog at once do
        // not both fill it.
        tx.execute(
            "INSERT INTO meta (name, value) VALUES ('version', '0') ON CONFLICT (name) DO NOTHING",
        )
        .await?;
        tx.execute("UPDATE meta SET value = value WHERE name = 'version'")
            .await?;
        let row = sqlx::query("SELECT value FROM meta WHERE name = 'version'")
            .fetch_one(&mut *tx)
            .await?;
        let value: String = row.try_get(0)?;
        let found: i64 = value
            .parse()
            .map_err(|_| CatalogError::Damaged("meta", "version".to_owned(), value.clone()))?;
        readable(found)?;
        if found > UNRELEASED && found < KNOWN {
            self.keep(found).await?;
        }
        for migration in MIGRATIONS.iter().skip((found - UNRELEASED).max(0) as usize) {
            let own = match self.sqlite {
                true => migration.sqlite,
                false => migration.postgres,
            };
            for statement in migration.both.iter().chain(own) {
                tx.execute(*statement).await?;
            }
        }
        sqlx::query("UPDATE meta SET value = $1 WHERE name = 'version'")
            .bind(KNOWN.to_string())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Checkpoints SQLite's log from time to time, concurrently with later transactions. Called
    /// after each transaction. Left to SQLite, the transaction that finds the log long enough does
    /// it, and its caller, or those behind it, wait for two more flushes.
    fn checkpoint_in_time(&self) {
        let written = self.written.fetch_add(1, Ordering::Relaxed);
        if !self.sqlite || written % CHECKPOINT_EVERY != CHECKPOINT_EVERY - 1 {
            return;
        }
        let pool = self.pool.clone();
        tokio::spawn(async move {
            // Parts that would have to wait for others are left to the next checkpoint.
            if let Err(error) = pool.execute("PRAGMA wal_checkpoint(PASSIVE)").await {
                tracing::debug!(%error, "no checkpoint of the catalog's log");
            }
        });
    }

    /// Copies the current catalog into the new file `to`, for another machine. Returns `false` if
    /// the catalog is not a file: then other machines reach it at its address.
    ///
    /// # Errors
    /// The database's error: the file exists already, or there is no space.
    pub async fn copy_to(&self, to: &str) -> Result<bool, CatalogError> {
        if self.sqlite {
            sqlx::query("VACUUM INTO $1")
                .bind(to.to_owned())
                .execute(&self.pool)
                .await?;
        }
        Ok(self.sqlite)
    }

    /// Marks the catalog as this server's: an earlier server can no longer write.
    pub(crate) async fn own(&self, owner: &str) -> Result<(), CatalogError> {
        sqlx::query(
            "INSERT INTO meta (name, value) VALUES ('owner', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(owner)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Returns the aggregate that it belongs to, if recorded: older catalogs lack it.
    pub(crate) async fn aggregate(&self) -> Result<Option<String>, CatalogError> {
        let row = sqlx::query("SELECT value FROM meta WHERE name = 'aggregate'")
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Returns true if the first start has created its resources.
    pub(crate) async fn settled(&self) -> Result<bool, CatalogError> {
        let row = sqlx::query("SELECT value FROM meta WHERE name = 'settled'")
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.is_some())
    }
}

/// Refuses versions that this program does not support; 0 is a catalog being created.
fn readable(found: i64) -> Result<(), CatalogError> {
    match found {
        _ if found > KNOWN => Err(CatalogError::Newer {
            found,
            known: KNOWN,
        }),
        1..=UNRELEASED => Err(CatalogError::Older {
            found,
            oldest: UNRELEASED + 1,
        }),
        _ => Ok(()),
    }
}

/// Configures a new connection to SQLite.
async fn prepare(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    // The timeout comes first, because the other statements may have to wait.
    connection.execute("PRAGMA busy_timeout = 10000").await?;
    connection.execute("PRAGMA journal_mode = WAL").await?;
    connection.execute("PRAGMA synchronous = FULL").await?;
    // In pages. Only a fallback for `checkpoint_in_time`.
    connection
        .execute("PRAGMA wal_autocheckpoint = 8192")
        .await?;
    Ok(())
}

/// Returns the file of a catalog in SQLite.
pub fn file_of(url: &str) -> Option<PathBuf> {
    if !url.starts_with("sqlite:") {
        return None;
    }
    let options = sqlx::sqlite::SqliteConnectOptions::from_str(url).ok()?;
    Some(options.get_filename().to_owned())
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_catalog_from_before_the_first_release_is_refused_by_name_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let url = format!("sqlite://{}", path.display());
        sqlx::any::install_default_drivers();
        for found in 1..=UNRELEASED {
            let mut old = AnyConnection::connect(&format!("{url}?mode=rwc"))
                .await
                .unwrap();
            for statement in [
                "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
                    .to_owned(),
                "CREATE TABLE IF NOT EXISTS instances (id BIGINT PRIMARY KEY, body TEXT NOT NULL)"
                    .to_owned(),
                format!("INSERT OR REPLACE INTO meta VALUES ('version', '{found}')"),
                format!("INSERT INTO instances VALUES ({found}, 'kept')"),
            ] {
                old.execute(statement.as_str()).await.unwrap();
            }
            old.close().await.unwrap();
            let refused = Catalog::open(&url).await.unwrap_err();
            assert!(matches!(refused, CatalogError::Older { found: f, .. } if f == found));
            let words = refused.to_string();
            assert!(words.contains("weir catalog rebuild"), "{words}");
            let mut old = AnyConnection::connect(&url).await.unwrap();
            let rows = sqlx::query("SELECT body FROM instances")
                .fetch_all(&mut old)
                .await
                .unwrap();
            assert_eq!(rows.len() as i64, found);
            old.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn tokens_of_a_catalog_without_times_and_keys_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let url = format!("sqlite://{}", path.display());
        sqlx::any::install_default_drivers();
        let mut old = AnyConnection::connect(&format!("{url}?mode=rwc"))
            .await
            .unwrap();
        old.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            .await
            .unwrap();
        // Tokens have had times since the fourth migration.
        let before = 3;
        for migration in &MIGRATIONS[..before] {
            for statement in migration.both.iter().chain(migration.sqlite) {
                old.execute(*statement).await.unwrap();
            }
        }
        for statement in [
            format!(
                "INSERT INTO meta VALUES ('version', '{}')",
                UNRELEASED + before as i64
            ),
            "INSERT INTO tokens VALUES ('ops', 'x', 'admin', 7, 'local', NULL)".to_owned(),
        ] {
            old.execute(statement.as_str()).await.unwrap();
        }
        old.close().await.unwrap();
        let catalog = Catalog::open(&url).await.unwrap();
        let tokens = catalog.tokens().await.unwrap();
        assert_eq!((tokens.len(), &*tokens[0].name), (1, "ops"));
        assert_eq!((tokens[0].expires, tokens[0].used), (None, None));
        assert_eq!(tokens[0].account, None);
        catalog.close().await;
    }

    #[tokio::test]
    async fn sqlites_log_reaches_the_catalog_beside_transactions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog.db");
        let catalog = Catalog::open(&format!("sqlite://{}", path.display()))
            .await
            .unwrap();
        catalog.own("me").await.unwrap();
        let length = || std::fs::metadata(&path).unwrap().len();
        let before = length();
        for n in 0..CHECKPOINT_EVERY {
            let one = Write::Tombstone(format!("{n:0>1000}").into());
            catalog.write("me", [one].iter()).await.unwrap();
        }
        // SQLite by itself would wait for thousands of pages.
        let checkpointed = async {
            while length() == before {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, checkpointed).await.unwrap();
        catalog.close().await;
    }
}

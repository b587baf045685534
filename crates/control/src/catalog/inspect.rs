//! Checks a catalog that no server has open against the engine's volumes: the catalog's part of
//! `weir check`.

use super::{Catalog, CatalogError, KNOWN, file_of, readable, without_password};
use crate::OpenError;
use crate::backend::is_keyed;
use crate::model::{State, Volume};
use crate::name::Surface;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, Connection as _, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Maximum number of reported lines of SQLite's own check.
const LINES: i64 = 20;

/// Results of a check of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Number of NetApp volumes.
    pub volumes: usize,
    /// Number of Filestore instances.
    pub instances: usize,
    /// Number of their snapshots.
    pub snapshots: usize,
    /// True if the database itself cannot be read, or not all of it.
    pub damaged: bool,
    /// Faults, for people.
    pub faults: Vec<String>,
}

impl Inspection {
    fn fault(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    fn broken(&mut self, what: impl Into<String>) {
        self.damaged = true;
        self.fault(what);
    }
}

/// Checks the catalog at `url` without changing it: that it can be read, that it belongs to
/// `aggregate`, and that it and the engine's volumes, by name, match.
pub async fn inspect(url: &str, aggregate: &str, engine: &BTreeSet<String>) -> Inspection {
    let mut seen = Inspection::default();
    let known = engine.iter().filter(|name| is_keyed(name)).count();
    if Catalog::is_missing(url) {
        if known > 0 {
            seen.fault(format!(
                "{url} does not exist, but the aggregate has {known} volumes that a catalog has known; if it is elsewhere, \
                 name it with --catalog; if it was lost, put a copy of it back or run `weir catalog rebuild`"
            ));
        }
        return seen;
    }
    let catalog = match open(url).await {
        Ok(catalog) => catalog,
        Err(error) => {
            seen.broken(format!("it cannot be opened: {error}"));
            return seen;
        }
    };
    if let Err(error) = examine(&catalog, aggregate, engine, &mut seen).await {
        seen.broken(error.to_string());
    }
    catalog.close().await;
    seen
}

/// Checks, without changing anything, that a new aggregate can use the catalog at `url`.
///
/// # Errors
/// If the database cannot be opened, another version has written it, or it belongs to another
/// aggregate.
pub async fn probe(url: &str) -> Result<(), OpenError> {
    if Catalog::is_missing(url) {
        return Ok(());
    }
    let shown = without_password(url);
    let looked = look(url).await;
    match looked.map_err(|error| OpenError::Catalog(shown.clone(), error))? {
        None => Ok(()),
        Some(theirs) => Err(OpenError::Foreign {
            catalog: shown,
            theirs,
            ours: "a new one".to_owned(),
        }),
    }
}

/// Returns the aggregate that a catalog belongs to, if there is one.
async fn look(url: &str) -> Result<Option<String>, CatalogError> {
    let mut meta = read_meta(url).await?;
    let version = meta.get("version").and_then(|text| text.parse().ok());
    readable(version.unwrap_or(0))?;
    Ok(meta.remove("aggregate"))
}

/// Reads what a catalog says of itself, by name; nothing if it is a new database.
async fn read_meta(url: &str) -> Result<BTreeMap<String, String>, CatalogError> {
    sqlx::any::install_default_drivers();
    // A single connection: a pool retries for half a minute and does not report the cause.
    let mut first = AnyConnection::connect(url).await?;
    let tables = sqlx::query("SELECT name, value FROM meta").fetch_all(&mut first);
    // Without that table it is a new database.
    let rows = tables.await.unwrap_or_default();
    first.close().await?;
    let mut meta: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        meta.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(meta)
}

/// Version of a catalog, and the version that this program migrates it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogVersion {
    /// Version of the catalog; `None` if it has not been created yet.
    pub found: Option<i64>,
    /// Version of this program.
    pub known: i64,
}

impl CatalogVersion {
    /// Returns true if the next opening for service migrates the catalog.
    pub fn is_older(&self) -> bool {
        self.found.is_some_and(|found| found < self.known)
    }
}

/// Returns the version of the catalog at `url`, which is not changed.
///
/// # Errors
/// The database cannot be opened, or this program does not read its version.
pub async fn version(url: &str) -> Result<CatalogVersion, CatalogError> {
    let found = match Catalog::is_missing(url) {
        true => None,
        false => read_meta(url).await?.remove("version"),
    };
    let found = match found {
        None => None,
        Some(text) => {
            let damaged = |_| CatalogError::Damaged("meta", "version".to_owned(), text.clone());
            Some(text.parse::<i64>().map_err(damaged)?)
        }
    };
    readable(found.unwrap_or(0))?;
    Ok(CatalogVersion {
        found,
        known: KNOWN,
    })
}

/// Migrates the catalog at `url` to this program's version, after a copy of it was made beside it.
///
/// # Errors
/// As [`version`]; the copy cannot be made.
pub async fn migrate(url: &str) -> Result<(), CatalogError> {
    let catalog = Catalog::open(url).await?;
    catalog.close().await;
    Ok(())
}

/// Opens it read-only, in its present version.
pub(super) async fn open(url: &str) -> Result<Catalog, CatalogError> {
    sqlx::any::install_default_drivers();
    let at = match file_of(url) {
        Some(_) if !url.contains('?') => format!("{url}?mode=ro"),
        _ => url.to_owned(),
    };
    let pool = AnyPoolOptions::new()
        .max_connections(1)
        .connect_with(AnyConnectOptions::from_str(&at)?)
        .await?;
    Ok(Catalog::from_pool(pool, url))
}

async fn examine(
    catalog: &Catalog,
    aggregate: &str,
    engine: &BTreeSet<String>,
    seen: &mut Inspection,
) -> Result<(), CatalogError> {
    if catalog.sqlite {
        let query = format!("PRAGMA integrity_check({LINES})");
        for row in sqlx::query(&query).fetch_all(&catalog.pool).await? {
            match row.try_get::<String, _>(0)? {
                fine if fine == "ok" => {}
                line => seen.broken(line),
            }
        }
    }
    let rows = sqlx::query("SELECT name, value FROM meta")
        .fetch_all(&catalog.pool)
        .await?;
    let mut meta: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        meta.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let version = meta.get("version").and_then(|text| text.parse().ok());
    match version {
        Some(found @ 1..) => {
            if let Err(other) = readable(found) {
                seen.fault(other.to_string());
                return Ok(());
            }
        }
        _ => seen.broken("it has no version"),
    }
    let settled = meta.contains_key("settled");
    let is_mark = |mark: &String| mark.len() == 32 && mark.bytes().all(|b| b.is_ascii_hexdigit());
    if settled && !meta.get("owner").is_some_and(is_mark) {
        seen.fault("its owner mark is missing or malformed");
    }
    if let Some(other) = meta.get("aggregate").filter(|id| **id != aggregate) {
        seen.fault(format!(
            "it belongs to aggregate {other}, and this is {aggregate}"
        ));
    }
    compare(catalog, version.unwrap_or(0), engine, settled, seen).await
}

/// Compares the catalog with itself and with the engine's volumes.
async fn compare(
    catalog: &Catalog,
    version: i64,
    engine: &BTreeSet<String>,
    settled: bool,
    seen: &mut Inspection,
) -> Result<(), CatalogError> {
    let loaded = catalog.load(version).await?;
    let of = |surface| move |volume: &&Volume| volume.name.surface == surface;
    seen.volumes = loaded.volumes.iter().filter(of(Surface::Netapp)).count();
    seen.instances = loaded.volumes.iter().filter(of(Surface::Filestore)).count();
    seen.snapshots = loaded.snapshots.len();
    let pools: BTreeSet<_> = loaded.pools.iter().map(|pool| &pool.name).collect();
    let mut keys: BTreeSet<&str> = loaded.tombstones.iter().map(String::as_str).collect();
    let mut paths: BTreeMap<&str, u64> = BTreeMap::new();
    for volume in &loaded.volumes {
        let Volume { name, key, .. } = volume;
        if let Some(pool) = volume.pool().filter(|pool| !pools.contains(pool)) {
            seen.fault(format!(
                "volume {} is in storage pool {}, which does not exist",
                name.id, pool.id
            ));
        }
        if !keys.insert(key) {
            seen.fault(format!("{name} has the key {key} of another volume"));
        }
        let settled = !matches!(volume.state, State::Creating | State::Deleting);
        if settled && !engine.contains(&**key) {
            seen.fault(format!(
                "{name}: the engine does not have its data (key {key})"
            ));
        }
        paths.extend(volume.paths.iter().map(|path| (&**path, volume.id)));
    }
    let rows = sqlx::query("SELECT name, owner FROM shares")
        .fetch_all(&catalog.pool)
        .await?;
    for row in rows {
        let (path, owner): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if paths.remove(path.as_str()) != Some(owner as u64) {
            seen.fault(format!(
                "the path /{path} is kept for a volume that does not have it"
            ));
        }
    }
    for path in paths.keys() {
        seen.fault(format!("the path /{path} is not kept for its volume"));
    }
    for name in engine {
        // In a folder without a catalog so far, names are adopted.
        if !keys.contains(name.as_str()) && (settled || is_keyed(name)) {
            seen.fault(format!(
                "the engine has a volume {name}, which the catalog does not know; `weir catalog rebuild` gives it a row"
            ));
        }
    }
    Ok(())
}

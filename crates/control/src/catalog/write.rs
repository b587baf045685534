//! Writing: changes as values, and batches of them as one transaction.

use super::{Catalog, CatalogError};
use crate::catalog::AuditEntry;
use crate::model::{Instance, Operation, Pool, Snapshot, Volume};
use crate::name::Collection;
use serde::Serialize;
use sqlx::{Acquire, Any, Executor, Transaction};
use std::sync::Arc;

/// The audit log keeps this many entries.
pub(crate) const AUDIT_KEPT: i64 = 100_000;

/// One change of the catalog.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Pool(Arc<Pool>),
    Volume(Arc<Volume>),
    Instance(Arc<Instance>),
    Snapshot(Arc<Snapshot>),
    Operation(Arc<Operation>),
    RemovePool(u64),
    RemoveVolume(u64),
    RemoveInstance(u64),
    RemoveSnapshot(u64),
    RemoveOperation(String),
    Share(Arc<str>, u64),
    RemoveShare(Arc<str>),
    /// The engine's volume of this key is to go.
    Doom(Arc<str>),
    /// It is gone.
    Undoom(Arc<str>),
    /// The first start has made what it makes.
    Settled,
    Audit(AuditEntry),
    /// The outcome of an audited mutation, by the entry's number.
    Outcome(i64, String),
    /// Drops the oldest entries of the audit log.
    PruneAudit,
}

const PUT_POOL: &str = "INSERT INTO pools (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_VOLUME: &str = "INSERT INTO volumes (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_INSTANCE: &str = "INSERT INTO instances (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_SNAPSHOT: &str = "INSERT INTO snapshots (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, body = excluded.body";

type Tx<'c> = Transaction<'c, Any>;

/// When a transaction is to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// When it ends.
    Now,
    /// With the next one that is flushed.
    Later,
}

impl Flush {
    /// With a write-ahead log, NORMAL leaves out nothing but the flush at the end of a transaction
    /// (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
    fn sqlite(self) -> &'static str {
        match self {
            Flush::Now => "PRAGMA synchronous = FULL",
            Flush::Later => "PRAGMA synchronous = NORMAL",
        }
    }
}

fn body<T: Serialize>(table: &'static str, name: &str, value: &T) -> Result<String, CatalogError> {
    serde_json::to_string(value)
        .map_err(|e| CatalogError::Damaged(table, name.to_owned(), e.to_string()))
}

async fn put<T: Serialize>(
    tx: &mut Tx<'_>,
    query: &'static str,
    id: u64,
    name: String,
    value: &T,
) -> Result<(), CatalogError> {
    let body = body("resources", &name, value)?;
    sqlx::query(query)
        .bind(id as i64)
        .bind(name)
        .bind(body)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn by_id(tx: &mut Tx<'_>, query: &'static str, id: u64) -> Result<(), CatalogError> {
    sqlx::query(query)
        .bind(id as i64)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn by_text(tx: &mut Tx<'_>, query: &'static str, text: &str) -> Result<(), CatalogError> {
    sqlx::query(query)
        .bind(text.to_owned())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Catalog {
    /// Writes all of it, or nothing. Nothing if `owner` no longer owns the catalog. What is not to be flushed outlives the
    /// process, but perhaps not the machine, until something is flushed after it; never does a later change outlive an
    /// earlier one.
    pub(crate) async fn write(
        &self,
        owner: &str,
        writes: impl Iterator<Item = &Write> + Send,
        flush: Flush,
    ) -> Result<(), CatalogError> {
        let mut connection = self.pool.acquire().await?;
        // Said each time: nobody relies on how somebody else left the connection.
        if self.sqlite {
            connection.execute(flush.sqlite()).await?;
        }
        let mut tx = connection.begin().await?;
        if !self.sqlite && flush == Flush::Later {
            tx.execute("SET LOCAL synchronous_commit = off").await?;
        }
        let mine = sqlx::query("UPDATE meta SET value = value WHERE name = 'owner' AND value = $1")
            .bind(owner.to_owned())
            .execute(&mut *tx)
            .await?;
        if mine.rows_affected() != 1 {
            return Err(CatalogError::Superseded);
        }
        for write in writes {
            write.apply(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Write {
    async fn apply(&self, tx: &mut Tx<'_>) -> Result<(), CatalogError> {
        match self {
            Write::Pool(pool) => {
                let name = pool.name.full(Collection::Pools);
                put(tx, PUT_POOL, pool.id, name, pool).await
            }
            Write::Volume(volume) => {
                let name = volume.name.full(Collection::Volumes);
                put(tx, PUT_VOLUME, volume.id, name, volume).await
            }
            Write::Instance(instance) => {
                let name = instance.name.full(Collection::Instances);
                put(tx, PUT_INSTANCE, instance.id, name, instance).await
            }
            Write::Snapshot(snapshot) => {
                put(
                    tx,
                    PUT_SNAPSHOT,
                    snapshot.id,
                    snapshot.name.to_string(),
                    snapshot,
                )
                .await
            }
            Write::Operation(operation) => {
                let name = operation.full_name();
                let body = body("operations", &name, operation)?;
                sqlx::query(
                    "INSERT INTO operations (name, created, body) VALUES ($1, $2, $3) \
                     ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                )
                .bind(name)
                .bind(operation.created.0)
                .bind(body)
                .execute(&mut **tx)
                .await?;
                Ok(())
            }
            Write::RemovePool(id) => by_id(tx, "DELETE FROM pools WHERE id = $1", *id).await,
            Write::RemoveVolume(id) => by_id(tx, "DELETE FROM volumes WHERE id = $1", *id).await,
            Write::RemoveInstance(id) => {
                by_id(tx, "DELETE FROM instances WHERE id = $1", *id).await
            }
            Write::RemoveSnapshot(id) => {
                by_id(tx, "DELETE FROM snapshots WHERE id = $1", *id).await
            }
            Write::RemoveOperation(name) => {
                by_text(tx, "DELETE FROM operations WHERE name = $1", name).await
            }
            Write::Share(name, owner) => {
                sqlx::query("INSERT INTO shares (name, owner) VALUES ($1, $2)")
                    .bind(name.to_string())
                    .bind(*owner as i64)
                    .execute(&mut **tx)
                    .await?;
                Ok(())
            }
            Write::RemoveShare(name) => {
                by_text(tx, "DELETE FROM shares WHERE name = $1", name).await
            }
            Write::Doom(key) => {
                by_text(
                    tx,
                    "INSERT INTO doomed (volume) VALUES ($1) ON CONFLICT (volume) DO NOTHING",
                    key,
                )
                .await
            }
            Write::Undoom(key) => by_text(tx, "DELETE FROM doomed WHERE volume = $1", key).await,
            Write::Settled => {
                by_text(
                    tx,
                    "INSERT INTO meta (name, value) VALUES ('settled', $1) ON CONFLICT (name) DO NOTHING",
                    "yes",
                )
                .await
            }
            Write::Audit(entry) => entry.insert(&mut **tx).await,
            Write::Outcome(seq, outcome) => {
                sqlx::query("UPDATE audit SET outcome = $1 WHERE seq = $2")
                    .bind(outcome.clone())
                    .bind(*seq)
                    .execute(&mut **tx)
                    .await?;
                Ok(())
            }
            Write::PruneAudit => {
                sqlx::query(
                    "DELETE FROM audit WHERE seq < (SELECT seq FROM audit ORDER BY seq DESC LIMIT 1 OFFSET $1)",
                )
                .bind(AUDIT_KEPT)
                .execute(&mut **tx)
                .await?;
                Ok(())
            }
        }
    }
}

//! Writes to the catalog: changes as values, and batches of them as one transaction.
//!
//! SQLite runs on a thread of its own, and the cost of a call is the two thread switches, not the
//! statement. So a small transaction, from BEGIN to COMMIT, is one text of several statements and
//! one call. Such texts are few, because changes have few forms, and SQLite keeps them compiled. A
//! large transaction is cut into texts that are not kept: they are too many for the memory that
//! they take. PostgreSQL takes one statement a call.

use super::{Catalog, CatalogError};
use crate::catalog::AuditEntry;
use crate::model::{
    ActiveDirectory, Backup, BackupPolicy, BackupVault, Operation, Pool, Snapshot, Volume,
};
use crate::name::{BackupName, Collection, Name, SnapshotName, VolumeName};
use crate::policies::{NamedPolicy, PolicyName};
use serde::Serialize;
use sqlx::{Any, AnyConnection, Connection};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use weir_relations::manager::{Edit, Table};

/// Number of entries that the audit log keeps.
pub(crate) const AUDIT_KEPT: i64 = 100_000;

/// Maximum number of statements in one text.
const TOGETHER: usize = 32;
/// Maximum number of statements in a kept text: an operation's end, and another's beginning.
const KEPT: usize = 12;

/// One change of the catalog.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Pool(Arc<Pool>),
    Volume(Arc<Volume>),
    Snapshot(Arc<Snapshot>),
    Operation(Arc<Operation>),
    RemovePool(u64, Name),
    RemoveVolume(u64, VolumeName),
    RemoveSnapshot(u64, SnapshotName),
    RemoveOperations(Vec<Name>),
    /// A replication row.
    Relation(Edit),
    Policy(Arc<NamedPolicy>),
    RemovePolicy(u64, PolicyName),
    Directory(Arc<ActiveDirectory>),
    RemoveDirectory(u64, Name),
    Vault(Arc<BackupVault>),
    RemoveVault(u64, Name),
    Backup(Arc<Backup>),
    RemoveBackup(u64, BackupName),
    BackupPolicy(Arc<BackupPolicy>),
    RemoveBackupPolicy(u64, Name),
    Share(Arc<str>, u64),
    RemoveShare(Arc<str>),
    /// Records that the engine's volume with this key has to be deleted.
    Tombstone(Arc<str>),
    /// Records that the engine's volume with this key is deleted.
    RemoveTombstone(Arc<str>),
    /// Records that the first start has created its resources, for this aggregate.
    Settled(Arc<str>),
    Audit(AuditEntry),
    /// Outcome of an audited mutation, by the entry's number.
    Outcome(i64, String),
    /// Drops the oldest entries of the audit log.
    PruneAudit,
}

const PUT_POOL: &str = "INSERT INTO pools (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_VOLUME: &str = "INSERT INTO volumes (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_SNAPSHOT: &str = "INSERT INTO snapshots (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, body = excluded.body";

const PUT_POLICY: &str = "INSERT INTO named_policies (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, body = excluded.body";
const PUT_DIRECTORY: &str = "INSERT INTO active_directories (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_VAULT: &str = "INSERT INTO backup_vaults (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_BACKUP: &str = "INSERT INTO backups (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_BACKUP_POLICY: &str = "INSERT INTO backup_policies (id, name, body) VALUES ($1, $2, $3) \
     ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_OPERATION: &str = "INSERT INTO operations (name, created, body) VALUES ($1, $2, $3) \
     ON CONFLICT (name) DO UPDATE SET body = excluded.body";
const PRUNE_AUDIT: &str = "DELETE FROM audit WHERE seq < \
     (SELECT seq FROM audit ORDER BY seq DESC LIMIT 1 OFFSET $1)";
const SETTLED: &str = "INSERT INTO meta (name, value) VALUES ('settled', 'yes'), ('aggregate', $1) \
     ON CONFLICT (name) DO NOTHING";
const TOMBSTONE: &str =
    "INSERT INTO tombstones (volume) VALUES ($1) ON CONFLICT (volume) DO NOTHING";

/// Statements for a table of replication rows.
pub(super) struct Sql {
    pub table: &'static str,
    put: &'static str,
    delete: &'static str,
    pub select: &'static str,
}

macro_rules! sql {
    ($table:literal) => {
        Sql {
            table: $table,
            put: concat!(
                "INSERT INTO ",
                $table,
                " (name, body) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET body = excluded.body"
            ),
            delete: concat!("DELETE FROM ", $table, " WHERE name = $1"),
            select: concat!("SELECT name, body FROM ", $table),
        }
    };
}

pub(super) fn sql(table: Table) -> Sql {
    match table {
        Table::Relationships => sql!("relationships"),
        Table::Destinations => sql!("destinations"),
        Table::Policies => sql!("policies"),
        Table::Schedules => sql!("schedules"),
        Table::Peers => sql!("peers"),
        Table::Throttles => sql!("throttles"),
    }
}

/// Fails because the name exists, unless the owner is unchanged; changes nothing then.
const OWNED: &str = "INSERT INTO meta (name, value) SELECT 'owner', '' \
     WHERE NOT EXISTS (SELECT 1 FROM meta WHERE name = 'owner' AND value = $1)";

/// A parameter of a statement.
pub(super) enum Value {
    Number(i64),
    Text(String),
}

/// A statement with its parameters, `$1` and so on.
pub(super) struct Statement {
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

impl Statement {
    pub(super) fn new(sql: &'static str, values: Vec<Value>) -> Statement {
        Statement {
            sql: Cow::Borrowed(sql),
            values,
        }
    }

    fn by_id(sql: &'static str, id: u64) -> Statement {
        Statement::new(sql, vec![Value::Number(id as i64)])
    }

    fn by_text(sql: &'static str, text: &str) -> Statement {
        Statement::new(sql, vec![Value::Text(text.to_owned())])
    }

    fn put<T: Serialize>(
        sql: &'static str,
        id: u64,
        name: String,
        value: &T,
    ) -> Result<Statement, CatalogError> {
        let body = body("resources", &name, value)?;
        let values = vec![
            Value::Number(id as i64),
            Value::Text(name),
            Value::Text(body),
        ];
        Ok(Statement::new(sql, values))
    }
}

fn body<T: Serialize>(table: &'static str, name: &str, value: &T) -> Result<String, CatalogError> {
    serde_json::to_string(value)
        .map_err(|e| CatalogError::Damaged(table, name.to_owned(), e.to_string()))
}

/// A text of statements, and their parameters in order.
#[derive(Default)]
struct Text {
    sql: String,
    values: Vec<Value>,
}

impl Text {
    /// Appends a statement; its parameters are renumbered after the existing ones.
    fn push(&mut self, statement: Statement) {
        let before = self.values.len();
        let mut parts = statement.sql.split('$');
        self.sql.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = part.split_at(digits);
            let number = before + number.parse::<usize>().unwrap_or_default();
            // Writing into a String cannot fail.
            let _ = write!(self.sql, "${number}{rest}");
        }
        self.sql.push(';');
        self.values.extend(statement.values);
    }

    /// Takes the text so far, and runs it. The compiled text is kept if `kept`.
    async fn run(
        &mut self,
        connection: &mut AnyConnection,
        kept: bool,
    ) -> Result<u64, sqlx::Error> {
        let Text { sql, values } = std::mem::take(self);
        let mut query = sqlx::query::<Any>(&sql).persistent(kept);
        for value in values {
            query = match value {
                Value::Number(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
            };
        }
        Ok(query.execute(connection).await?.rows_affected())
    }
}

/// Runs one transaction as texts.
async fn in_texts(
    connection: &mut AnyConnection,
    owner: &str,
    statements: Vec<Statement>,
) -> Result<(), sqlx::Error> {
    let mut text = Text::default();
    // At once for writing: a transaction that reads first is refused if another process has written
    // meanwhile.
    text.push(Statement::new("BEGIN IMMEDIATE", Vec::new()));
    text.push(Statement::by_text(OWNED, owner));
    let common = |statement: &Statement| matches!(statement.sql, Cow::Borrowed(_));
    let kept = statements.len() <= KEPT && statements.iter().all(common);
    for (n, statement) in statements.into_iter().enumerate() {
        if n > 0 && n % TOGETHER == 0 {
            text.run(connection, kept).await?;
        }
        text.push(statement);
    }
    text.push(Statement::new("COMMIT", Vec::new()));
    text.run(connection, kept).await?;
    Ok(())
}

/// Runs one transaction, a statement at a time.
async fn one_by_one(
    connection: &mut AnyConnection,
    owner: &str,
    statements: Vec<Statement>,
) -> Result<bool, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let mut text = Text::default();
    text.push(Statement::by_text(
        "UPDATE meta SET value = value WHERE name = 'owner' AND value = $1",
        owner,
    ));
    if text.run(&mut tx, true).await? != 1 {
        return Ok(false);
    }
    for statement in statements {
        text.push(statement);
        text.run(&mut tx, true).await?;
    }
    tx.commit().await?;
    Ok(true)
}

impl Catalog {
    /// Writes all changes or none, and flushes them. Writes none if `owner` no longer owns the
    /// catalog.
    pub(crate) async fn write(
        &self,
        owner: &str,
        writes: impl Iterator<Item = &Write> + Send,
    ) -> Result<(), CatalogError> {
        let statements: Vec<Statement> = writes.map(Write::statement).collect::<Result<_, _>>()?;
        // Kept, because the pool verifies each connection that it gives out.
        let mut kept = self.writer.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?.detach(),
        };
        let written = match self.sqlite {
            true => in_texts(&mut connection, owner, statements)
                .await
                .map(|()| true),
            false => one_by_one(&mut connection, owner, statements).await,
        };
        match written {
            Ok(true) => {
                *kept = Some(connection);
                self.checkpoint_in_time();
                Ok(())
            }
            Ok(false) => Err(CatalogError::Superseded),
            Err(error) => {
                // Rolls the transaction back. If the connection is broken, that has happened
                // already.
                let _ = connection.close().await;
                match self.owner().await {
                    Ok(now) if now != owner => Err(CatalogError::Superseded),
                    _ => Err(error.into()),
                }
            }
        }
    }

    async fn owner(&self) -> Result<String, CatalogError> {
        let row = sqlx::query("SELECT value FROM meta WHERE name = 'owner'")
            .fetch_one(&self.pool)
            .await?;
        Ok(sqlx::Row::try_get(&row, 0)?)
    }
}

impl Write {
    fn of_directories_policies_and_backups(&self) -> Result<Statement, CatalogError> {
        Ok(match self {
            Write::Policy(policy) => {
                let name = policy.name.to_string();
                Statement::put(PUT_POLICY, policy.id, name, policy)?
            }
            Write::RemovePolicy(id, _) => {
                Statement::by_id("DELETE FROM named_policies WHERE id = $1", *id)
            }
            Write::Directory(directory) => {
                let name = directory.name.full(Collection::ActiveDirectories);
                Statement::put(PUT_DIRECTORY, directory.id, name, directory)?
            }
            Write::RemoveDirectory(id, _) => {
                Statement::by_id("DELETE FROM active_directories WHERE id = $1", *id)
            }
            Write::Vault(vault) => {
                let name = vault.name.full(Collection::BackupVaults);
                Statement::put(PUT_VAULT, vault.id, name, vault)?
            }
            Write::RemoveVault(id, _) => {
                Statement::by_id("DELETE FROM backup_vaults WHERE id = $1", *id)
            }
            Write::Backup(backup) => {
                Statement::put(PUT_BACKUP, backup.id, backup.name.to_string(), backup)?
            }
            Write::RemoveBackup(id, _) => {
                Statement::by_id("DELETE FROM backups WHERE id = $1", *id)
            }
            Write::BackupPolicy(policy) => {
                let name = policy.name.full(Collection::BackupPolicies);
                Statement::put(PUT_BACKUP_POLICY, policy.id, name, policy)?
            }
            Write::RemoveBackupPolicy(id, _) => {
                Statement::by_id("DELETE FROM backup_policies WHERE id = $1", *id)
            }
            other => return other.statement(),
        })
    }

    fn statement(&self) -> Result<Statement, CatalogError> {
        Ok(match self {
            Write::Pool(pool) => {
                let name = pool.name.full(Collection::Pools);
                Statement::put(PUT_POOL, pool.id, name, pool)?
            }
            Write::Volume(volume) => {
                let name = volume.name.to_string();
                Statement::put(PUT_VOLUME, volume.id, name, volume)?
            }
            Write::Snapshot(snapshot) => {
                let name = snapshot.name.to_string();
                Statement::put(PUT_SNAPSHOT, snapshot.id, name, snapshot)?
            }
            Write::Operation(operation) => {
                let name = operation.full_name();
                let body = body("operations", &name, operation)?;
                let values = vec![
                    Value::Text(name),
                    Value::Number(operation.created.0),
                    Value::Text(body),
                ];
                Statement::new(PUT_OPERATION, values)
            }
            Write::Policy(_)
            | Write::RemovePolicy(..)
            | Write::Directory(_)
            | Write::RemoveDirectory(..)
            | Write::Vault(_)
            | Write::RemoveVault(..)
            | Write::Backup(_)
            | Write::RemoveBackup(..)
            | Write::BackupPolicy(_)
            | Write::RemoveBackupPolicy(..) => return self.of_directories_policies_and_backups(),
            Write::RemovePool(id, _) => Statement::by_id("DELETE FROM pools WHERE id = $1", *id),
            Write::RemoveVolume(id, _) => {
                Statement::by_id("DELETE FROM volumes WHERE id = $1", *id)
            }
            Write::RemoveSnapshot(id, _) => {
                Statement::by_id("DELETE FROM snapshots WHERE id = $1", *id)
            }
            Write::RemoveOperations(names) => {
                let values = names.iter().map(|name| name.full(Collection::Operations));
                let numbers: Vec<String> = (1..=names.len()).map(|n| format!("${n}")).collect();
                let numbers = numbers.join(", ");
                Statement {
                    sql: format!("DELETE FROM operations WHERE name IN ({numbers})").into(),
                    values: values.map(Value::Text).collect(),
                }
            }
            Write::Relation(edit) => {
                let (table, key) = edit.place();
                let body = edit.body();
                let damaged = |e: serde_json::Error| {
                    CatalogError::Damaged(sql(table).table, key.clone(), e.to_string())
                };
                match body.map_err(damaged)? {
                    Some(body) => {
                        let values = vec![Value::Text(key), Value::Text(body)];
                        Statement::new(sql(table).put, values)
                    }
                    None => Statement::by_text(sql(table).delete, &key),
                }
            }
            Write::Share(name, owner) => Statement::new(
                "INSERT INTO shares (name, owner) VALUES ($1, $2)",
                vec![Value::Text(name.to_string()), Value::Number(*owner as i64)],
            ),
            Write::RemoveShare(name) => {
                Statement::by_text("DELETE FROM shares WHERE name = $1", name)
            }
            Write::Tombstone(key) => Statement::by_text(TOMBSTONE, key),
            Write::RemoveTombstone(key) => {
                Statement::by_text("DELETE FROM tombstones WHERE volume = $1", key)
            }
            Write::Settled(aggregate) => Statement::by_text(SETTLED, aggregate),
            Write::Audit(entry) => entry.statement(),
            Write::Outcome(seq, outcome) => Statement::new(
                "UPDATE audit SET outcome = $1 WHERE seq = $2",
                vec![Value::Text(outcome.clone()), Value::Number(*seq)],
            ),
            Write::PruneAudit => Statement::new(PRUNE_AUDIT, vec![Value::Number(AUDIT_KEPT)]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_through_a_text() {
        let mut text = Text::default();
        text.push(Statement::new("BEGIN", Vec::new()));
        text.push(Statement::by_id("DELETE FROM a WHERE id = $1", 7));
        let values = (1..=12).map(Value::Number).collect();
        text.push(Statement::new("VALUES ($12, $1), ($2)", values));
        text.push(Statement::by_text("SELECT $1", "x"));
        assert_eq!(
            text.sql,
            "BEGIN;DELETE FROM a WHERE id = $1;VALUES ($13, $2), ($3);SELECT $14;"
        );
        assert_eq!(text.values.len(), 14);
    }
}

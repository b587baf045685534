//! Reads the whole catalog, at the start and after a failed write.

use super::write::{Sql, sql};
use super::{Catalog, CatalogError};
use crate::model::{
    ActiveDirectory, Backup, BackupPolicy, BackupVault, Operation, Pool, Snapshot, Volume,
};
use crate::policies::NamedPolicy;
use serde::de::DeserializeOwned;
use sqlx::Row;
use weir_relations::manager::{Edit, Table};

/// First version of catalogs with vaults and backups.
const BACKUPS_SINCE: i64 = 9;
/// First version of catalogs with policies of backups.
const BACKUP_POLICIES_SINCE: i64 = 10;
const BACKUP_POLICIES: &str = "SELECT name, body FROM backup_policies";
const VAULTS: &str = "SELECT name, body FROM backup_vaults";
const BACKUPS: &str = "SELECT name, body FROM backups";

/// The whole intended state.
pub(crate) struct CatalogContents {
    pub pools: Vec<Pool>,
    pub volumes: Vec<Volume>,
    pub snapshots: Vec<Snapshot>,
    /// Operations in the order in which they were accepted.
    pub operations: Vec<Operation>,
    /// Rows of all replication tables.
    pub relations: Vec<Edit>,
    /// Policies that volumes refer to.
    pub policies: Vec<NamedPolicy>,
    /// Domains of Active Directory.
    pub directories: Vec<ActiveDirectory>,
    pub vaults: Vec<BackupVault>,
    pub backups: Vec<Backup>,
    pub backup_policies: Vec<BackupPolicy>,
    /// Keys of engine volumes to be deleted.
    pub tombstones: Vec<String>,
    /// The greatest number in the audit log.
    pub last_audit: i64,
}

impl Catalog {
    /// Reads everything of a catalog of this version, which may be an earlier one.
    pub(crate) async fn load(&self, version: i64) -> Result<CatalogContents, CatalogError> {
        let has_backups = version >= BACKUPS_SINCE;
        Ok(CatalogContents {
            pools: self.table("pools", "SELECT name, body FROM pools").await?,
            volumes: self
                .table("volumes", "SELECT name, body FROM volumes")
                .await?,
            snapshots: self
                .table("snapshots", "SELECT name, body FROM snapshots")
                .await?,
            operations: self
                .table(
                    "operations",
                    "SELECT name, body FROM operations ORDER BY created, name",
                )
                .await?,
            relations: self.relations().await?,
            policies: self
                .table("named_policies", "SELECT name, body FROM named_policies")
                .await?,
            directories: self
                .table(
                    "active_directories",
                    "SELECT name, body FROM active_directories",
                )
                .await?,
            vaults: match has_backups {
                true => self.table("backup_vaults", VAULTS).await?,
                false => Vec::new(),
            },
            backups: match has_backups {
                true => self.table("backups", BACKUPS).await?,
                false => Vec::new(),
            },
            backup_policies: match version >= BACKUP_POLICIES_SINCE {
                true => self.table("backup_policies", BACKUP_POLICIES).await?,
                false => Vec::new(),
            },
            tombstones: self.tombstones().await?,
            last_audit: self.last_audit().await?,
        })
    }

    async fn table<T: DeserializeOwned>(
        &self,
        table: &'static str,
        query: &'static str,
    ) -> Result<Vec<T>, CatalogError> {
        let rows = sqlx::query(query).fetch_all(&self.pool).await?;
        let each = rows.iter().map(|row| {
            let name: String = row.try_get(0)?;
            let body: String = row.try_get(1)?;
            serde_json::from_str(&body)
                .map_err(|e| CatalogError::Damaged(table, name, e.to_string()))
        });
        each.collect()
    }

    async fn relations(&self) -> Result<Vec<Edit>, CatalogError> {
        let mut all = Vec::new();
        for of in Table::ALL {
            let Sql { table, select, .. } = sql(of);
            for row in sqlx::query(select).fetch_all(&self.pool).await? {
                let name: String = row.try_get(0)?;
                let body: String = row.try_get(1)?;
                let read = Edit::read(of, &name, &body);
                all.push(read.map_err(|e| CatalogError::Damaged(table, name, e.to_string()))?);
            }
        }
        Ok(all)
    }

    /// Returns the keys of engine volumes to be deleted.
    pub(crate) async fn tombstones(&self) -> Result<Vec<String>, CatalogError> {
        let rows = sqlx::query("SELECT volume FROM tombstones")
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

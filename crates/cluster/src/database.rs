//! The cluster's tables in PostgreSQL.
//!
//! A leader's change names the term and the holder of the lease, and the version of the row, so
//! that of two leaders only one changes anything. All times are the database's.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _};
use weir_base::limits::cluster::{
    AGGREGATES_MAX, DATABASE_PATIENCE, LEADER_LEASE, LISTING_BYTES, NODES_MAX, SETTINGS_BYTES,
    TOKENS_MAX,
};

use crate::directory::{Directory, Entry, digest};
use crate::rows::{Aggregate, Assignment, Child, Leader, Node, Target, Token, View};
use crate::rules::Change;
use crate::shares::Share;
use crate::shares::message::Grant;

/// Version of the tables.
const VERSION: i32 = 2;

/// Statements that create the tables. Heartbeats need not outlive a crash of the database.
const TABLES: [&str; 7] = [
    "CREATE TABLE weir_cluster (version INTEGER NOT NULL, secret TEXT NOT NULL, created TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp())",
    "CREATE TABLE weir_cluster_leader (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), node TEXT NOT NULL, \
     holder TEXT NOT NULL, term BIGINT NOT NULL, expires TIMESTAMPTZ NOT NULL)",
    "CREATE TABLE weir_cluster_nodes (name TEXT PRIMARY KEY, address TEXT NOT NULL, \
     version TEXT NOT NULL, memory BIGINT NOT NULL, drained BOOLEAN NOT NULL DEFAULT FALSE, \
     heartbeat TIMESTAMPTZ NOT NULL, children TEXT NOT NULL, api TEXT)",
    "CREATE TABLE weir_cluster_aggregates (name TEXT PRIMARY KEY, kind TEXT NOT NULL, place TEXT NOT NULL UNIQUE, \
     settings TEXT NOT NULL, owner TEXT, standby TEXT, target TEXT, target_epoch BIGINT, epoch BIGINT NOT NULL DEFAULT 0, \
     deleting BOOLEAN NOT NULL DEFAULT FALSE, created TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), \
     version BIGINT NOT NULL DEFAULT 0)",
    "CREATE TABLE weir_cluster_volumes (aggregate TEXT PRIMARY KEY, epoch BIGINT NOT NULL, digest BIGINT NOT NULL, content TEXT NOT NULL)",
    "CREATE TABLE weir_cluster_tokens (name TEXT PRIMARY KEY, role TEXT NOT NULL, hash TEXT NOT NULL, \
     created TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), created_by TEXT NOT NULL, expires TIMESTAMPTZ)",
    SHARES_TABLE,
];
/// Table that earlier programs of the same version of the tables did not create and do not read.
const SHARES_TABLE: &str = "CREATE TABLE IF NOT EXISTS weir_cluster_shares (limit_id BIGINT NOT NULL, part INTEGER NOT NULL, \
    rate BIGINT NOT NULL, number BIGINT NOT NULL, ceiling BIGINT NOT NULL, term BIGINT NOT NULL, PRIMARY KEY (limit_id, part))";

/// Number of the lock that keeps two programs from creating the tables at once.
const CREATION_LOCK: i64 = 0x7765_6972_636c;

const BEAT: &str = "INSERT INTO weir_cluster_nodes (name, address, version, memory, heartbeat, children, api) \
    VALUES ($1, $2, $3, $4, clock_timestamp(), $5, $6) ON CONFLICT (name) DO UPDATE SET address = $2, \
    version = $3, memory = $4, heartbeat = clock_timestamp(), children = $5, api = $6";
const LEASE: &str = "UPDATE weir_cluster_leader SET node = $1, holder = $2, \
    term = CASE WHEN holder = $2 AND term = $3 THEN term ELSE term + 1 END, \
    expires = clock_timestamp() + $4 * interval '1 second' \
    WHERE (holder = $2 AND term = $3) OR expires < clock_timestamp() RETURNING term";
const NODES: &str = "SELECT name, address, version, memory, drained, \
    extract(epoch FROM clock_timestamp() - heartbeat)::float8 AS silent, children, api FROM weir_cluster_nodes";
const TOKENS: &str = "SELECT name, role, hash, extract(epoch FROM created)::bigint AS created, created_by, \
    extract(epoch FROM expires)::bigint AS expires FROM weir_cluster_tokens ORDER BY name";
const AGGREGATES: &str = "SELECT name, kind, place, settings, owner, standby, target, target_epoch, epoch, deleting, \
    extract(epoch FROM created)::bigint AS created, version FROM weir_cluster_aggregates";
const LEADER: &str =
    "SELECT node, term FROM weir_cluster_leader WHERE expires >= clock_timestamp()";
const LISTINGS: &str = "SELECT aggregate, epoch, digest FROM weir_cluster_volumes";
const LIST: &str = "INSERT INTO weir_cluster_volumes (aggregate, epoch, digest, content) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (aggregate) DO UPDATE SET epoch = $2, digest = $3, content = $4 WHERE weir_cluster_volumes.epoch <= $2";
const UNLIST: &str = "DELETE FROM weir_cluster_volumes WHERE aggregate = $1 \
    AND NOT EXISTS (SELECT 1 FROM weir_cluster_aggregates WHERE name = $1)";
const SHARES: &str = "SELECT limit_id, part, rate, number, ceiling, term FROM weir_cluster_shares";
const LEADS: &str = "EXISTS (SELECT 1 FROM weir_cluster_leader WHERE term = $3 AND holder = $4 AND expires >= clock_timestamp())";

/// Statement of a leader that writes shares. It has to be one: the ceilings of all rows together
/// are what the limit bounds.
const GRANT: &str = "INSERT INTO weir_cluster_shares (limit_id, part, rate, number, ceiling, term) \
    SELECT *, $3::bigint FROM unnest($1::bigint[], $2::integer[], $5::bigint[], $6::bigint[], $7::bigint[]) WHERE ";
const GRANT_AGAIN: &str = " ON CONFLICT (limit_id, part) DO UPDATE SET rate = EXCLUDED.rate, number = EXCLUDED.number, \
    ceiling = EXCLUDED.ceiling, term = EXCLUDED.term";

/// A connection to the tables, which is made again after a fault.
pub struct Database {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

/// A node in its heartbeat.
pub struct Beat<'a> {
    /// Its row; `drained` and `silent` are not written.
    pub node: &'a Node,
    /// Name of this start of the daemon.
    pub holder: &'a str,
    /// Term of which the daemon is the leader; 0 if it is not.
    pub term: i64,
}

/// Answer to a heartbeat.
pub struct Round {
    /// All rows.
    pub view: View,
    /// Term of which this daemon is the leader; `None` if it is not.
    pub term: Option<i64>,
}

/// Runs a question to the database, for no longer than [`DATABASE_PATIENCE`].
async fn patient<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(DATABASE_PATIENCE, what).await;
    answer.unwrap_or_else(|_| Err(anyhow!("no answer within {DATABASE_PATIENCE:?}")))
}

impl Database {
    /// Reads an address, `postgres://USER@HOST/DATABASE`.
    ///
    /// # Errors
    /// It is none.
    pub fn new(url: &str) -> Result<Database> {
        ensure!(
            url.starts_with("postgres://") || url.starts_with("postgresql://"),
            "cannot use the address of the cluster's tables: it must begin with postgres://"
        );
        let options =
            PgConnectOptions::from_str(url).context("reading the address of PostgreSQL")?;
        Ok(Database {
            options: options.disable_statement_logging(),
            connection: None,
        })
    }

    async fn connection(&mut self) -> Result<&mut PgConnection> {
        if self.connection.is_none() {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            sqlx::query("SET synchronous_commit TO on")
                .execute(&mut connection)
                .await?;
            self.connection = Some(connection);
        }
        self.connection.as_mut().context("no connection")
    }

    /// Forgets the connection after a fault: an answer may still be under way on it.
    fn checked<T>(&mut self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.connection = None;
        }
        done
    }

    /// Creates the tables if they are not there.
    ///
    /// # Errors
    /// The database's; the tables are of another version.
    pub async fn create(&mut self, secret: &str) -> Result<()> {
        let created = patient(async {
            let mut transaction = self.connection().await?.begin().await?;
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(CREATION_LOCK)
                .execute(&mut *transaction)
                .await?;
            if version(&mut transaction).await?.is_none() {
                for table in TABLES {
                    sqlx::query(table).execute(&mut *transaction).await?;
                }
                sqlx::query("INSERT INTO weir_cluster (version, secret) VALUES ($1, $2)")
                    .bind(VERSION)
                    .bind(secret)
                    .execute(&mut *transaction)
                    .await?;
                sqlx::query("INSERT INTO weir_cluster_leader (node, holder, term, expires) VALUES ('', '', 0, '-infinity')")
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
            Ok(())
        })
        .await;
        self.checked(created)?;
        self.check().await
    }

    /// Checks that the tables are there, in the version of this program.
    ///
    /// # Errors
    /// The database's; there are no tables, or they are of another version.
    pub async fn check(&mut self) -> Result<()> {
        let found = patient(async {
            let connection = self.connection().await?;
            let version = version(connection).await?;
            if version == Some(VERSION) {
                complete(connection).await?;
            }
            Ok(version)
        })
        .await;
        match self.checked(found)? {
            Some(VERSION) => Ok(()),
            Some(other) => bail!(
                "cannot use the cluster's tables: they have version {other}, and this program knows {VERSION} (run the same version of Weir on all nodes)"
            ),
            None => {
                bail!(
                    "cannot use the database: no tables of a cluster are in it (`weir cluster init` creates them)"
                )
            }
        }
    }

    /// Sends a heartbeat, takes or renews the lease, and reads all rows.
    ///
    /// # Errors
    /// The database's; the tables are of another version.
    pub async fn beat(&mut self, beat: &Beat<'_>) -> Result<Round> {
        if self.connection.is_none() {
            self.check().await?;
        }
        let round = patient(async {
            let connection = self.connection().await?;
            send(connection, beat.node).await?;
            let term: Option<i64> = sqlx::query_scalar(LEASE)
                .bind(&beat.node.name)
                .bind(beat.holder)
                .bind(beat.term)
                .bind(LEADER_LEASE.as_secs_f64())
                .fetch_optional(&mut *connection)
                .await?;
            let view = read(connection).await?;
            Ok(Round { view, term })
        })
        .await;
        self.checked(round)
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// The database's.
    pub async fn view(&mut self) -> Result<View> {
        let view = patient(async { read(self.connection().await?).await }).await;
        self.checked(view)
    }

    /// Makes a leader's change. Returns false if the daemon does not lead any more, or the row has
    /// changed.
    ///
    /// # Errors
    /// The database's.
    pub async fn change(&mut self, term: i64, holder: &str, change: &Change) -> Result<bool> {
        let done = patient(async {
            let connection = self.connection().await?;
            let Some(to) = &change.to else {
                let remove = format!(
                    "DELETE FROM weir_cluster_aggregates WHERE name = $1 AND version = $2 AND deleting AND {LEADS}"
                );
                let removed = sqlx::query(&remove)
                    .bind(&change.aggregate)
                    .bind(change.version)
                    .bind(term)
                    .bind(holder);
                let removed = removed.execute(&mut *connection).await?.rows_affected() == 1;
                if removed {
                    let unlist = sqlx::query(UNLIST).bind(&change.aggregate);
                    unlist.execute(connection).await?;
                }
                return Ok(removed);
            };
            let update = format!(
                "UPDATE weir_cluster_aggregates SET owner = $5, standby = $6, target = $7, target_epoch = $8, epoch = $9, \
                 version = version + 1 WHERE name = $1 AND version = $2 AND {LEADS}"
            );
            let target = to.target.as_ref();
            let updated = sqlx::query(&update)
                .bind(&change.aggregate)
                .bind(change.version)
                .bind(term)
                .bind(holder)
                .bind(&to.owner)
                .bind(&to.standby)
                .bind(target.map(|target| &target.node))
                .bind(target.map(|target| number(target.epoch)).transpose()?)
                .bind(number(to.epoch)?);
            Ok(updated.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(done)
    }

    /// Writes a leader's grants. Returns false if the daemon does not lead any more.
    ///
    /// # Errors
    /// The database's.
    pub async fn grant(&mut self, term: i64, holder: &str, grants: &[Grant]) -> Result<bool> {
        let done = patient(async {
            let connection = self.connection().await?;
            let column = |of: fn(&Grant) -> i64| grants.iter().map(of).collect::<Vec<i64>>();
            let parts: Vec<i32> = grants.iter().map(|one| i32::from(one.part)).collect();
            let statement = format!("{GRANT}{LEADS}{GRANT_AGAIN}");
            let grant = sqlx::query(&statement)
                .bind(column(|one| one.limit.cast_signed()))
                .bind(parts)
                .bind(term)
                .bind(holder)
                .bind(column(|one| rate(one.share.rate)))
                .bind(column(|one| rate(one.share.number)))
                .bind(column(|one| rate(one.share.ceiling)));
            Ok(grant.execute(connection).await?.rows_affected() > 0)
        })
        .await;
        self.checked(done)
    }

    /// Deletes the rows of a limit, as the leader.
    ///
    /// # Errors
    /// The database's.
    pub async fn forget_limit(&mut self, term: i64, holder: &str, limit: u64) -> Result<()> {
        let done = patient(async {
            let connection = self.connection().await?;
            let delete = format!(
                "DELETE FROM weir_cluster_shares WHERE limit_id = $1 AND term <= $2 AND {LEADS}"
            );
            let delete = sqlx::query(&delete)
                .bind(limit.cast_signed())
                .bind(term)
                .bind(term)
                .bind(holder);
            delete.execute(connection).await?;
            Ok(())
        })
        .await;
        self.checked(done)
    }

    /// Puts the lists `own` of aggregates that this node owns into the tables, if they have others,
    /// and takes those of the other owners into `directory`. Returns the names of all lists in the
    /// tables.
    pub async fn exchange(
        &mut self,
        own: &BTreeMap<String, (Entry, String)>,
        directory: &mut Directory,
    ) -> Result<BTreeSet<String>> {
        let exchanged = patient(async {
            let connection = self.connection().await?;
            if directory.secret.is_empty() {
                directory.secret = sqlx::query_scalar("SELECT secret FROM weir_cluster")
                    .fetch_one(&mut *connection)
                    .await?;
            }
            let mut there = BTreeMap::new();
            for row in sqlx::query(LISTINGS).fetch_all(&mut *connection).await? {
                let (name, epoch, digest): (String, i64, i64) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                there.insert(name, (u64::try_from(epoch).unwrap_or(0), digest));
            }
            for (name, (entry, text)) in own {
                let row = there.get(name);
                if row.is_some_and(|(epoch, digest)| {
                    *epoch > entry.epoch || (*epoch, *digest) == (entry.epoch, entry.digest)
                }) {
                    continue;
                }
                let list = sqlx::query(LIST)
                    .bind(name)
                    .bind(number(entry.epoch)?)
                    .bind(entry.digest)
                    .bind(text);
                list.execute(&mut *connection).await?;
            }
            for (name, (epoch, digest)) in &there {
                let known = directory.entries.get(name);
                if known.is_some_and(|known| {
                    known.epoch > *epoch || (known.epoch, known.digest) == (*epoch, *digest)
                }) {
                    continue;
                }
                if let Some(entry) = listing(connection, name, *epoch).await? {
                    directory.take(name, entry);
                }
            }
            Ok(there.into_keys().collect())
        })
        .await;
        self.checked(exchanged)
    }

    /// Enters an aggregate. Returns false if there is one of this name or place.
    ///
    /// # Errors
    /// The database's; there are too many aggregates; its settings are too large.
    pub async fn enter(&mut self, aggregate: &Aggregate) -> Result<bool> {
        let settings = serde_json::to_string(&aggregate.settings)?;
        ensure!(
            settings.len() <= SETTINGS_BYTES,
            "cannot enter the aggregate: its settings have {} bytes, and {SETTINGS_BYTES} are the most",
            settings.len()
        );
        let entered = patient(async {
            let connection = self.connection().await?;
            let count: i64 = sqlx::query_scalar("SELECT count(*) FROM weir_cluster_aggregates")
                .fetch_one(&mut *connection)
                .await?;
            ensure!(
                usize::try_from(count).is_ok_and(|count| count < AGGREGATES_MAX),
                "cannot enter the aggregate: {AGGREGATES_MAX} are the most of a cluster"
            );
            let insert = sqlx::query(
                "INSERT INTO weir_cluster_aggregates (name, kind, place, settings, owner, standby, epoch) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            )
            .bind(&aggregate.name)
            .bind(aggregate.kind.name())
            .bind(&aggregate.place)
            .bind(&settings)
            .bind(&aggregate.nodes.owner)
            .bind(&aggregate.nodes.standby)
            .bind(number(aggregate.nodes.epoch)?);
            Ok(insert.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(entered)
    }

    /// Sets another wanted owner of an aggregate, in its epoch. Returns false if the row has
    /// changed.
    ///
    /// # Errors
    /// The database's.
    pub async fn set_target(&mut self, aggregate: &Aggregate, node: Option<&str>) -> Result<bool> {
        let set = patient(async {
            let connection = self.connection().await?;
            let update = sqlx::query(
                "UPDATE weir_cluster_aggregates SET target = $3, target_epoch = $4, version = version + 1 \
                 WHERE name = $1 AND version = $2 AND NOT deleting",
            )
            .bind(&aggregate.name)
            .bind(aggregate.version)
            .bind(node)
            .bind(number(aggregate.nodes.epoch)?);
            Ok(update.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(set)
    }

    /// Notes that a node is to have no aggregates, or may have some again. Returns false if there
    /// is no such node.
    ///
    /// # Errors
    /// The database's.
    pub async fn set_drained(&mut self, node: &str, drained: bool) -> Result<bool> {
        let set = patient(async {
            let connection = self.connection().await?;
            let update = sqlx::query("UPDATE weir_cluster_nodes SET drained = $2 WHERE name = $1")
                .bind(node)
                .bind(drained);
            Ok(update.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(set)
    }

    /// Makes the servers of an aggregate end, and its row go then.
    ///
    /// # Errors
    /// The database's.
    pub async fn delete(&mut self, aggregate: &str) -> Result<()> {
        let deleted = patient(async {
            let connection = self.connection().await?;
            sqlx::query(
                "UPDATE weir_cluster_aggregates SET deleting = TRUE, version = version + 1 WHERE name = $1",
            )
            .bind(aggregate)
            .execute(connection)
            .await?;
            Ok(())
        })
        .await;
        self.checked(deleted)
    }

    /// Enters a token. Returns false if there is one of this name.
    ///
    /// # Errors
    /// The database's; there are too many tokens.
    pub async fn enter_token(&mut self, token: &Token) -> Result<bool> {
        let entered = patient(async {
            let connection = self.connection().await?;
            let count: i64 = sqlx::query_scalar("SELECT count(*) FROM weir_cluster_tokens")
                .fetch_one(&mut *connection)
                .await?;
            ensure!(
                usize::try_from(count).is_ok_and(|count| count < TOKENS_MAX),
                "cannot enter the token: {TOKENS_MAX} are the most of a cluster"
            );
            let insert = sqlx::query(
                "INSERT INTO weir_cluster_tokens (name, role, hash, created_by, expires) \
                 VALUES ($1, $2, $3, $4, to_timestamp($5)) ON CONFLICT DO NOTHING",
            )
            .bind(&token.name)
            .bind(&token.role)
            .bind(&token.hash)
            .bind(&token.created_by)
            .bind(token.expires);
            Ok(insert.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(entered)
    }

    /// Deletes a token. Returns false if there is none of this name.
    ///
    /// # Errors
    /// The database's.
    pub async fn delete_token(&mut self, name: &str) -> Result<bool> {
        let deleted = patient(async {
            let connection = self.connection().await?;
            let delete = sqlx::query("DELETE FROM weir_cluster_tokens WHERE name = $1").bind(name);
            Ok(delete.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(deleted)
    }

    /// Takes the lock of a name for as long as this connection lives. Returns false if another
    /// connection has it.
    ///
    /// # Errors
    /// The database's.
    pub async fn lock(&mut self, name: &str) -> Result<bool> {
        let locked = patient(async {
            let connection = self.connection().await?;
            let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtextextended($1, 0))");
            Ok(lock.bind(name).fetch_one(connection).await?)
        })
        .await;
        self.checked(locked)
    }

    /// Removes a node that sends no heartbeats and has no aggregates. Returns false if it is not
    /// such a node.
    ///
    /// # Errors
    /// The database's.
    pub async fn remove_node(&mut self, node: &str, silence: Duration) -> Result<bool> {
        let removed = patient(async {
            let connection = self.connection().await?;
            let delete = sqlx::query(
                "DELETE FROM weir_cluster_nodes WHERE name = $1 \
                 AND heartbeat < clock_timestamp() - $2 * interval '1 second' \
                 AND NOT EXISTS (SELECT 1 FROM weir_cluster_aggregates WHERE (owner = $1 OR standby = $1) AND NOT deleting)",
            )
            .bind(node)
            .bind(silence.as_secs_f64());
            Ok(delete.execute(connection).await?.rows_affected() == 1)
        })
        .await;
        self.checked(removed)
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn number(epoch: u64) -> Result<i64> {
    i64::try_from(epoch).context("cannot store the epoch")
}

/// Returns a rate or a number for the tables.
fn rate(value: u64) -> i64 {
    // Saturates: no server has as much.
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Creates the table that an earlier program did not create.
async fn complete(connection: &mut PgConnection) -> Result<()> {
    let there: Option<String> =
        sqlx::query_scalar("SELECT to_regclass('weir_cluster_shares')::text")
            .fetch_one(&mut *connection)
            .await?;
    if there.is_some() {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(CREATION_LOCK)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(SHARES_TABLE).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// Returns the version of the tables; `None` if there are none.
async fn version(connection: &mut PgConnection) -> Result<Option<i32>> {
    let there: Option<String> = sqlx::query_scalar("SELECT to_regclass('weir_cluster')::text")
        .fetch_one(&mut *connection)
        .await?;
    if there.is_none() {
        return Ok(None);
    }
    let version = sqlx::query_scalar("SELECT version FROM weir_cluster");
    Ok(version.fetch_optional(connection).await?)
}

async fn send(connection: &mut PgConnection, node: &Node) -> Result<()> {
    // Saturates: no machine has as much.
    let memory = i64::try_from(node.memory).unwrap_or(i64::MAX);
    sqlx::query(BEAT)
        .bind(&node.name)
        .bind(&node.address)
        .bind(&node.version)
        .bind(memory)
        .bind(serde_json::to_string(&node.children)?)
        .bind(node.api.as_ref().map(serde_json::to_string).transpose()?)
        .execute(connection)
        .await?;
    Ok(())
}

async fn read(connection: &mut PgConnection) -> Result<View> {
    let mut view = View::default();
    for row in sqlx::query(NODES).fetch_all(&mut *connection).await? {
        let node = node(&row)?;
        view.nodes.insert(node.name.clone(), node);
    }
    ensure!(
        view.nodes.len() <= NODES_MAX,
        "cannot read the nodes: they are {}, and {NODES_MAX} are the most",
        view.nodes.len()
    );
    for row in sqlx::query(AGGREGATES).fetch_all(&mut *connection).await? {
        let aggregate = aggregate(&row)?;
        view.aggregates.insert(aggregate.name.clone(), aggregate);
    }
    for row in sqlx::query(TOKENS).fetch_all(&mut *connection).await? {
        view.tokens.push(token(&row)?);
    }
    for row in sqlx::query(SHARES).fetch_all(&mut *connection).await? {
        let (limit, part): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
        let unsigned = |at: usize| Ok::<_, sqlx::Error>(unsigned(row.try_get(at)?));
        let share = Share {
            rate: unsigned(2)?,
            number: unsigned(3)?,
            ceiling: unsigned(4)?,
            term: row.try_get(5)?,
        };
        let part = u8::try_from(part)?;
        view.shares.insert((limit.cast_unsigned(), part), share);
    }
    let leader = sqlx::query(LEADER).fetch_optional(connection).await?;
    view.leader = match leader {
        Some(row) => Some(Leader {
            node: row.try_get(0)?,
            term: row.try_get(1)?,
        }),
        None => None,
    };
    Ok(view)
}

/// Reads the list of an aggregate; `None` if it is gone or is none.
async fn listing(connection: &mut PgConnection, name: &str, epoch: u64) -> Result<Option<Entry>> {
    let content: Option<String> = sqlx::query_scalar(
        "SELECT content FROM weir_cluster_volumes WHERE aggregate = $1 AND length(content) <= $2",
    )
    .bind(name)
    .bind(i32::try_from(LISTING_BYTES)?)
    .fetch_optional(connection)
    .await?;
    let read = content.and_then(|text| {
        let listing = serde_json::from_str(&text).ok()?;
        let digest = digest(text.as_bytes());
        Some(Entry {
            epoch,
            digest,
            listing,
        })
    });
    Ok(read)
}

fn node(row: &PgRow) -> Result<Node> {
    let (silent, memory): (f64, i64) = (row.try_get("silent")?, row.try_get("memory")?);
    let children: String = row.try_get("children")?;
    // An unreadable report is none: the next heartbeat replaces it.
    let children: BTreeMap<String, Child> = serde_json::from_str(&children).unwrap_or_default();
    Ok(Node {
        name: row.try_get("name")?,
        address: row.try_get("address")?,
        version: row.try_get("version")?,
        memory: u64::try_from(memory).unwrap_or(0),
        drained: row.try_get("drained")?,
        silent: Duration::try_from_secs_f64(silent.max(0.0)).unwrap_or(Duration::MAX),
        children,
        api: {
            let api: Option<String> = row.try_get("api")?;
            // An unreadable place is none, as with reports.
            api.and_then(|api| serde_json::from_str(&api).ok())
        },
    })
}

fn token(row: &PgRow) -> Result<Token> {
    Ok(Token {
        name: row.try_get("name")?,
        role: row.try_get("role")?,
        hash: row.try_get("hash")?,
        created: row.try_get("created")?,
        created_by: row.try_get("created_by")?,
        expires: row.try_get("expires")?,
    })
}

fn aggregate(row: &PgRow) -> Result<Aggregate> {
    let name: String = row.try_get("name")?;
    let kind: String = row.try_get("kind")?;
    let settings: String = row.try_get("settings")?;
    let (target, at): (Option<String>, Option<i64>) =
        (row.try_get("target")?, row.try_get("target_epoch")?);
    let epoch: i64 = row.try_get("epoch")?;
    let settings = serde_json::from_str(&settings);
    Ok(Aggregate {
        kind: kind
            .parse()
            .map_err(|why| anyhow!("aggregate {name}: {why}"))?,
        settings: settings.with_context(|| format!("reading the settings of aggregate {name}"))?,
        place: row.try_get("place")?,
        nodes: Assignment {
            owner: row.try_get("owner")?,
            standby: row.try_get("standby")?,
            target: target.map(|node| Target {
                node,
                epoch: at.map_or(0, unsigned),
            }),
            epoch: unsigned(epoch),
        },
        deleting: row.try_get("deleting")?,
        created: row.try_get("created")?,
        version: row.try_get("version")?,
        name,
    })
}

#[cfg(test)]
mod tests;

//! Tokens and the audit log: the parts of the catalog that other processes may write as well.
//!
//! A token is 256 random bits; the catalog keeps its SHA-256. A slow hash would add nothing: there
//! is no dictionary of random 256-bit strings. Revoking keeps the row, so that a name in the audit
//! log stays explained.
//!
//! A service account is a row among them with a public key in place of a secret. Its hash is that
//! of the key, so that no two accounts have one key.

use super::write::{Statement, Value};
use super::{Catalog, CatalogError};
use crate::model::{Actor, Role};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use sha2::{Digest, Sha256};
use sqlx::{Any, Executor, Row};
use weir_base::{Clock, Rng, hex};

/// Prefix of every token, so that a misplaced one is recognised.
const PREFIX: &str = "weir_";

/// Prefix of the names of tokens whose secret came from outside ([`Catalog::adopt_token`]).
const ADOPTED: &str = "file-";

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Unique among the tokens of the catalog.
    pub name: String,
    /// Role that it grants.
    pub role: Role,
    /// Time of creation.
    pub created: Stamp,
    /// The name of the actor that made it.
    pub created_by: String,
    /// Time of revocation.
    pub revoked: Option<Stamp>,
    /// Time of expiry; `None`: it is valid until it is revoked.
    pub expires: Option<Stamp>,
    /// Time of last use, to about a minute.
    pub used: Option<Stamp>,
    /// The key of a service account; `None`: it is a token, which has a secret.
    pub account: Option<AccountKey>,
}

/// A service account's key, as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountKey {
    /// The public key, in PEM.
    pub public: String,
    /// Address at which the account gets access tokens: the audience of what it signs.
    pub token_uri: String,
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Number of the entry: the time of the mutation in nanoseconds since 1970, made unique.
    pub seq: i64,
    /// The token's name, or `local`.
    pub actor: String,
    /// Address of the caller; empty if it is this machine.
    pub address: String,
    /// The requested action: `create`, `update`, …
    pub verb: String,
    /// Full name of the target.
    pub target: String,
    /// `started`, `done`, `refused: …`, `failed: …`.
    pub outcome: String,
}

impl AuditEntry {
    pub(crate) fn new(seq: i64, actor: &Actor, verb: &str, target: String, outcome: &str) -> Self {
        AuditEntry {
            seq,
            actor: actor.name.to_string(),
            address: actor.address.map_or_else(String::new, |a| a.to_string()),
            verb: verb.to_owned(),
            target,
            outcome: outcome.to_owned(),
        }
    }

    /// Returns the time of the mutation.
    pub fn time(&self) -> Stamp {
        Stamp(self.seq)
    }

    /// Returns the statement that writes the entry under its own number.
    pub(super) fn statement(&self) -> Statement {
        let texts = [
            &self.actor,
            &self.address,
            &self.verb,
            &self.target,
            &self.outcome,
        ];
        let texts = texts.into_iter().map(|text| Value::Text(text.clone()));
        Statement::new(
            "INSERT INTO audit (seq, actor, address, verb, target, outcome) VALUES ($1, $2, $3, $4, $5, $6)",
            [Value::Number(self.seq)].into_iter().chain(texts).collect(),
        )
    }

    /// Writes the entry under its number, or under the next free one: for writers that do not count
    /// entries themselves, and clocks that stand still or go back.
    async fn append<'e>(
        &self,
        executor: impl Executor<'e, Database = Any>,
    ) -> Result<(), CatalogError> {
        sqlx::query(
            "INSERT INTO audit (seq, actor, address, verb, target, outcome) \
             SELECT CASE WHEN COALESCE(MAX(seq), 0) < $1 THEN $1 ELSE MAX(seq) + 1 END, $2, $3, $4, $5, $6 FROM audit",
        )
        .bind(self.seq)
        .bind(self.actor.clone())
        .bind(self.address.clone())
        .bind(self.verb.clone())
        .bind(self.target.clone())
        .bind(self.outcome.clone())
        .execute(executor)
        .await?;
        Ok(())
    }
}

/// Hash of a token: it can be looked up and not presented.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenHash(String);

impl TokenHash {
    /// Hashes a token, or another secret of the same length and randomness.
    pub fn from_secret(secret: &str) -> TokenHash {
        TokenHash(hash(secret))
    }

    /// Returns the hash that was stored as this text.
    pub fn stored(text: String) -> TokenHash {
        TokenHash(text)
    }

    /// Returns the hash as text to store.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// Creates the secret of a token.
pub fn new_secret(rng: &dyn Rng) -> String {
    let mut secret = [0u8; 32];
    rng.fill(&mut secret);
    format!("{PREFIX}{}", hex::encode(&secret))
}

/// Checks the form of a token's secret.
///
/// # Errors
/// `TOKEN_INVALID` if it is not `weir_` and 64 hexadecimal digits.
pub fn check_secret(secret: &str) -> Result<(), Refusal> {
    let digits = secret.strip_prefix(PREFIX).unwrap_or_default();
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err(Refusal::new(
        Status::InvalidArgument,
        "TOKEN_INVALID",
        format!("a token is {PREFIX} and 64 hexadecimal digits"),
    ))
}

fn hash(secret: &str) -> String {
    hex::encode(&Sha256::digest(secret.as_bytes()))
}

fn token_of(row: &sqlx::any::AnyRow) -> Result<TokenRecord, CatalogError> {
    let name: String = row.try_get(0)?;
    let role: String = row.try_get(1)?;
    let revoked: Option<i64> = row.try_get(4)?;
    let expires: Option<i64> = row.try_get(5)?;
    let used: Option<i64> = row.try_get(6)?;
    let (public, token_uri): (Option<String>, Option<String>) = (row.try_get(7)?, row.try_get(8)?);
    let account = public.zip(token_uri);
    Ok(TokenRecord {
        role: Role::from_name(&role)
            .ok_or_else(|| CatalogError::Damaged("tokens", name.clone(), role))?,
        name,
        created: Stamp(row.try_get(2)?),
        created_by: row.try_get(3)?,
        revoked: revoked.map(Stamp),
        expires: expires.map(Stamp),
        used: used.map(Stamp),
        account: account.map(|(public, token_uri)| AccountKey { public, token_uri }),
    })
}

const SELECT_TOKEN: &str = "SELECT name, role, created, created_by, revoked, expires, used, \
     public_key, token_uri FROM tokens";

impl TokenRecord {
    /// Describes a token that `actor` creates now.
    fn new(
        name: &str,
        (role, expires): (Role, Option<Stamp>),
        actor: &Actor,
        clock: &dyn Clock,
    ) -> TokenRecord {
        TokenRecord {
            name: name.to_owned(),
            role,
            created: clock.current_time().into(),
            created_by: actor.name.to_string(),
            revoked: None,
            expires,
            used: None,
            account: None,
        }
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if !name.is_empty() && name.len() <= 63 && name.chars().all(good) {
        return Ok(());
    }
    Err(Refusal::new(
        Status::InvalidArgument,
        "NAME_INVALID",
        "a token's name has 1 to 63 letters, digits and -_.@",
    ))
}

/// Returns a record if it is valid at `now`.
fn valid(record: Option<TokenRecord>, now: Stamp) -> Result<TokenRecord, Refusal> {
    let record = record
        .filter(|record| record.revoked.is_none())
        .ok_or_else(unknown_token)?;
    if record.expires.is_some_and(|expires| expires <= now) {
        return Err(Refusal::new(
            Status::Unauthenticated,
            "TOKEN_EXPIRED",
            format!(
                "token {} has expired (an administrator makes a new one)",
                record.name
            ),
        ));
    }
    Ok(record)
}

fn name_taken(name: &str) -> Refusal {
    Refusal::new(
        Status::AlreadyExists,
        "NAME_TAKEN",
        format!("there is, or was, a token {name}; names are not used twice"),
    )
}

fn no_token(name: &str) -> Refusal {
    let name: String = name.chars().take(63).collect();
    Refusal::new(
        Status::NotFound,
        "NOT_FOUND",
        format!("there is no token {name}"),
    )
}

impl Catalog {
    /// Creates a token that is valid until `expires`, if given. The secret is returned only this
    /// once and stored nowhere.
    ///
    /// # Errors
    /// `NAME_INVALID`, `NAME_TAKEN` (a revoked token keeps its name), or if the catalog cannot be
    /// written.
    pub async fn create_token(
        &self,
        name: &str,
        (role, expires): (Role, Option<Stamp>),
        actor: &Actor,
        clock: &dyn Clock,
        rng: &dyn Rng,
    ) -> Result<(TokenRecord, String), Refusal> {
        check_name(name)?;
        let secret = new_secret(rng);
        let record = TokenRecord::new(name, (role, expires), actor, clock);
        self.insert_token(&record, &secret, actor).await?;
        Ok((record, secret))
    }

    /// Creates a service account that is valid until `expires`, if given.
    ///
    /// # Errors
    /// `NAME_INVALID`, `NAME_TAKEN` (a revoked account keeps its name), `KEY_TAKEN`, or if the
    /// catalog cannot be written.
    pub(crate) async fn create_account(
        &self,
        name: &str,
        (role, expires): (Role, Option<Stamp>),
        key: AccountKey,
        actor: &Actor,
        clock: &dyn Clock,
    ) -> Result<TokenRecord, Refusal> {
        check_name(name)?;
        self.check_key(&key).await?;
        let record = TokenRecord {
            account: Some(key.clone()),
            ..TokenRecord::new(name, (role, expires), actor, clock)
        };
        self.insert_token(&record, &key.public, actor).await?;
        Ok(record)
    }

    /// Returns the record that [`Catalog::create_token`] or, with `key`, `create_account` would
    /// store, and stores nothing.
    ///
    /// # Errors
    /// Their refusal.
    pub(crate) async fn check_token(
        &self,
        name: &str,
        (role, expires): (Role, Option<Stamp>),
        key: Option<AccountKey>,
        actor: &Actor,
        clock: &dyn Clock,
    ) -> Result<TokenRecord, Refusal> {
        check_name(name)?;
        if let Some(key) = &key {
            self.check_key(key).await?;
        }
        match self.named_token(name).await {
            Ok(_) => Err(name_taken(name)),
            Err(refusal) if refusal.status == Status::NotFound => Ok(TokenRecord {
                account: key,
                ..TokenRecord::new(name, (role, expires), actor, clock)
            }),
            Err(refusal) => Err(refusal),
        }
    }

    /// Refuses a public key that an account has, or had.
    async fn check_key(&self, key: &AccountKey) -> Result<(), Refusal> {
        let of_key = sqlx::query("SELECT name FROM tokens WHERE hash = $1")
            .bind(hash(&key.public))
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        match of_key {
            None => Ok(()),
            Some(_) => Err(Refusal::new(
                Status::AlreadyExists,
                "KEY_TAKEN",
                "there is, or was, a service account with this key; keys are not used twice",
            )),
        }
    }

    /// Returns the token of this name, revoked or not.
    ///
    /// # Errors
    /// `NOT_FOUND`, or if the catalog cannot be read.
    pub(crate) async fn named_token(&self, name: &str) -> Result<TokenRecord, Refusal> {
        let row = sqlx::query(&format!("{SELECT_TOKEN} WHERE name = $1"))
            .bind(name.to_owned())
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        let row = row.ok_or_else(|| no_token(name))?;
        token_of(&row).map_err(|error| refused(&error))
    }

    async fn insert_token(
        &self,
        record: &TokenRecord,
        secret: &str,
        actor: &Actor,
    ) -> Result<(), Refusal> {
        let name = &record.name;
        let mut tx = self.pool.begin().await.map_err(unavailable)?;
        let made = sqlx::query(
            "INSERT INTO tokens (name, hash, role, created, created_by, expires, public_key, token_uri) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING",
        )
        .bind(name.clone())
        .bind(hash(secret))
        .bind(record.role.as_str())
        .bind(record.created.0)
        .bind(record.created_by.clone())
        .bind(record.expires.map(|at| at.0))
        .bind(record.account.as_ref().map(|key| key.public.clone()))
        .bind(record.account.as_ref().map(|key| key.token_uri.clone()))
        .execute(&mut *tx)
        .await
        .map_err(unavailable)?;
        if made.rows_affected() == 0 {
            return Err(name_taken(name));
        }
        let target = format!("tokens/{name}");
        let entry = AuditEntry::new(record.created.0, actor, "create", target, "done");
        entry
            .append(&mut *tx)
            .await
            .map_err(|error| refused(&error))?;
        tx.commit().await.map_err(unavailable)
    }

    /// Makes `secret` an administrator's token, named `file-` and eight digits of its hash, and
    /// revokes tokens that this function made of earlier secrets. A secret that has such a token
    /// keeps it.
    ///
    /// # Errors
    /// `TOKEN_INVALID` (not `weir_` and 64 hexadecimal digits), `TOKEN_REVOKED`, or if the catalog
    /// cannot be written.
    pub async fn adopt_token(
        &self,
        secret: &str,
        actor: &Actor,
        clock: &dyn Clock,
    ) -> Result<TokenRecord, Refusal> {
        check_secret(secret)?;
        let name = format!("{ADOPTED}{:.8}", hash(secret));
        let all = self.tokens().await?;
        let record = match all.iter().find(|token| token.name == name) {
            Some(token) if token.revoked.is_some() => {
                return Err(Refusal::new(
                    Status::FailedPrecondition,
                    "TOKEN_REVOKED",
                    format!("token {name} was revoked; a new one is needed"),
                ));
            }
            Some(token) => token.clone(),
            None => {
                let record = TokenRecord::new(&name, (Role::Admin, None), actor, clock);
                self.insert_token(&record, secret, actor).await?;
                record
            }
        };
        let adopted = all
            .iter()
            .filter(|token| token.name.starts_with(ADOPTED) && token.name != record.name);
        for token in adopted.filter(|token| token.revoked.is_none()) {
            self.revoke_token(&token.name, actor, clock).await?;
        }
        Ok(record)
    }

    /// Returns all tokens, including revoked ones, by name.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, Refusal> {
        let rows = sqlx::query(&format!("{SELECT_TOKEN} ORDER BY name"))
            .fetch_all(&self.pool)
            .await
            .map_err(unavailable)?;
        rows.iter()
            .map(|row| token_of(row).map_err(|error| refused(&error)))
            .collect()
    }

    /// Revokes a token at once. A revoked one stays so.
    ///
    /// # Errors
    /// `NOT_FOUND`, or if the catalog cannot be written.
    pub async fn revoke_token(
        &self,
        name: &str,
        actor: &Actor,
        clock: &dyn Clock,
    ) -> Result<TokenRecord, Refusal> {
        let now: Stamp = clock.current_time().into();
        let mut tx = self.pool.begin().await.map_err(unavailable)?;
        sqlx::query("UPDATE tokens SET revoked = $1 WHERE name = $2 AND revoked IS NULL")
            .bind(now.0)
            .bind(name.to_owned())
            .execute(&mut *tx)
            .await
            .map_err(unavailable)?;
        let row = sqlx::query(&format!("{SELECT_TOKEN} WHERE name = $1"))
            .bind(name.to_owned())
            .fetch_optional(&mut *tx)
            .await
            .map_err(unavailable)?;
        let Some(row) = row else {
            return Err(no_token(name));
        };
        let entry = AuditEntry::new(now.0, actor, "revoke", format!("tokens/{name}"), "done");
        entry
            .append(&mut *tx)
            .await
            .map_err(|error| refused(&error))?;
        tx.commit().await.map_err(unavailable)?;
        token_of(&row).map_err(|error| refused(&error))
    }

    /// Returns the token of this secret, if it is valid at `now`.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN`, `TOKEN_EXPIRED`, or if the catalog cannot be read.
    pub async fn token(&self, secret: &str, now: Stamp) -> Result<TokenRecord, Refusal> {
        if !secret.starts_with(PREFIX) || secret.len() > 200 {
            return Err(unknown_token());
        }
        self.token_by(&TokenHash::from_secret(secret), now).await
    }

    /// Returns the token with this hash, if it is valid at `now`.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN`, `TOKEN_EXPIRED`, or if the catalog cannot be read.
    pub async fn token_by(&self, hash: &TokenHash, now: Stamp) -> Result<TokenRecord, Refusal> {
        self.valid_token("hash", hash.0.clone(), now).await
    }

    /// Returns the service account of this name, if it is valid at `now`.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN`, `TOKEN_EXPIRED`, or if the catalog cannot be read.
    pub(crate) async fn account(
        &self,
        name: &str,
        now: Stamp,
    ) -> Result<(TokenRecord, AccountKey), Refusal> {
        let record = self.valid_token("name", name.to_owned(), now).await?;
        let key = record.account.clone().ok_or_else(unknown_token)?;
        Ok((record, key))
    }

    /// Returns the token that has `value` in `column`, if it is valid at `now`.
    async fn valid_token(
        &self,
        column: &'static str,
        value: String,
        now: Stamp,
    ) -> Result<TokenRecord, Refusal> {
        let row = sqlx::query(&format!("{SELECT_TOKEN} WHERE {column} = $1"))
            .bind(value)
            .fetch_optional(&self.pool)
            .await
            .map_err(unavailable)?;
        let record = row
            .as_ref()
            .map(token_of)
            .transpose()
            .map_err(|error| refused(&error))?;
        valid(record, now)
    }

    /// Records that a token was used.
    ///
    /// # Errors
    /// If the catalog cannot be written.
    pub(crate) async fn token_used(&self, name: &str, now: Stamp) -> Result<(), CatalogError> {
        sqlx::query("UPDATE tokens SET used = $1 WHERE name = $2 AND (used IS NULL OR used < $1)")
            .bind(now.0)
            .bind(name.to_owned())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Returns the greatest number in the audit log; 0 if it is empty.
    pub(crate) async fn last_audit(&self) -> Result<i64, CatalogError> {
        let row = sqlx::query("SELECT COALESCE(MAX(seq), 0) FROM audit")
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Returns the updates of two resources that were carried out since a moment, oldest first; of
    /// more than `limit` the newest.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub(crate) async fn updates(
        &self,
        targets: [&str; 2],
        since: Stamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, Refusal> {
        let [first, second] = targets.map(str::to_owned);
        let rows = sqlx::query(
            "SELECT seq, actor, address, verb, target, outcome FROM audit \
             WHERE seq >= $1 AND target IN ($2, $3) AND verb = 'update' AND outcome = 'done' \
             ORDER BY seq DESC LIMIT $4",
        )
        .bind(since.0)
        .bind(first)
        .bind(second)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(unavailable)?;
        let each = rows.iter().rev().map(entry_of);
        each.collect::<Result<_, sqlx::Error>>()
            .map_err(unavailable)
    }

    /// Returns the audit log, newest first, from before `before` on; at most `limit` entries.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditEntry>, Refusal> {
        let rows = sqlx::query(
            "SELECT seq, actor, address, verb, target, outcome FROM audit WHERE seq < $1 ORDER BY seq DESC LIMIT $2",
        )
        .bind(before.unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(unavailable)?;
        let each = rows.iter().map(entry_of);
        each.collect::<Result<_, sqlx::Error>>()
            .map_err(unavailable)
    }
}

fn entry_of(row: &sqlx::any::AnyRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        seq: row.try_get(0)?,
        actor: row.try_get(1)?,
        address: row.try_get(2)?,
        verb: row.try_get(3)?,
        target: row.try_get(4)?,
        outcome: row.try_get(5)?,
    })
}

fn unknown_token() -> Refusal {
    Refusal::new(
        Status::Unauthenticated,
        "TOKEN_UNKNOWN",
        "this token is not known, or was revoked",
    )
}

fn unavailable(error: sqlx::Error) -> Refusal {
    refused(&CatalogError::Database(error))
}

/// Converts a catalog's error into the refusal that clients see.
pub(crate) fn refused(error: &CatalogError) -> Refusal {
    Refusal::new(
        Status::Unavailable,
        "CATALOG_UNAVAILABLE",
        format!("the catalog cannot be used now: {error}"),
    )
}

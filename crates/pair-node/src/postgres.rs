//! A row of PostgreSQL as the witness: one for each aggregate, in a table that the first question
//! makes.
//!
//! A change is one UPDATE of the row with the version before, so of two only one is made. It is
//! committed with `synchronous_commit` on. Whatever the database promises of commits, the pair
//! relies on: one that forgets a commit which it acknowledged (without fsync, or restored, or
//! failed over to a replica that lacks it) may have both nodes serve.

use anyhow::{Context, Result, bail};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};
use weir_mirror::{Register, Side, Swap};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS weir_witness (aggregate TEXT PRIMARY KEY, version BIGINT NOT NULL, \
    term BIGINT NOT NULL, primary_side TEXT NOT NULL, mirrored BOOLEAN NOT NULL)";
const READ: &str =
    "SELECT version, term, primary_side, mirrored FROM weir_witness WHERE aggregate = $1";
const FIRST: &str = "INSERT INTO weir_witness (aggregate, version, term, primary_side, mirrored) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const SWAP: &str = "UPDATE weir_witness SET version = $2, term = $3, primary_side = $4, mirrored = $5 \
    WHERE aggregate = $1 AND version = $2 - 1";

/// Returns true if a witness's address is a database's.
pub fn is_database(address: &str) -> bool {
    address.starts_with("postgres://") || address.starts_with("postgresql://")
}

/// Returns the address without its password.
pub fn redact_password(address: &str) -> String {
    let parts = address
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?)));
    match parts {
        Some((scheme, (user, rest))) if is_database(address) => {
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{scheme}://{user}@{rest}")
        }
        _ => address.to_owned(),
    }
}

/// Reads the register, or changes it to `to`. `first` returns the register to begin with if there
/// is none.
///
/// # Errors
/// The database's: a change may have been made all the same.
pub async fn swap_register(
    address: &str,
    aggregate: &str,
    to: Option<Register>,
    first: impl FnOnce() -> Result<Register>,
) -> Result<Swap> {
    let mut connection = PgConnection::connect(address).await?;
    sqlx::query("SET synchronous_commit TO on")
        .execute(&mut connection)
        .await?;
    let known = match read(&mut connection, aggregate).await {
        Ok(known) => known,
        // The table is not there.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => {
            sqlx::query(TABLE).execute(&mut connection).await?;
            None
        }
        Err(error) => return Err(error.into()),
    };
    if known.is_none() {
        change(&mut connection, FIRST, aggregate, first()?).await?;
    }
    if let Some(to) = to
        && change(&mut connection, SWAP, aggregate, to).await?
    {
        // It is committed; how the connection ends is of no account.
        let _ = connection.close().await;
        return Ok(Swap::Done(to));
    }
    let Some(now) = read(&mut connection, aggregate).await? else {
        bail!("cannot read the register of aggregate {aggregate}: its row is gone");
    };
    // Nothing is pending on it.
    let _ = connection.close().await;
    Ok(Swap::Lost(now.context(
        "cannot read the register: the row is none of a pair",
    )?))
}

/// Reads the row; `None` if there is none, `Some(None)` if it holds no register.
async fn read(
    connection: &mut PgConnection,
    aggregate: &str,
) -> Result<Option<Option<Register>>, sqlx::Error> {
    let row = sqlx::query(READ)
        .bind(aggregate)
        .fetch_optional(connection)
        .await?;
    row.map(|row| register(&row)).transpose()
}

fn register(row: &PgRow) -> Result<Option<Register>, sqlx::Error> {
    let (version, term): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let side: String = row.try_get(2)?;
    let primary = match side.as_str() {
        "a" => Side::A,
        "b" => Side::B,
        _ => return Ok(None),
    };
    let (Ok(version), Ok(term)) = (u64::try_from(version), u64::try_from(term)) else {
        return Ok(None);
    };
    Ok(Some(Register {
        version,
        term,
        primary,
        mirrored: row.try_get(3)?,
    }))
}

/// Runs a statement; returns true if it changed or made a row.
async fn change(
    connection: &mut PgConnection,
    statement: &str,
    aggregate: &str,
    to: Register,
) -> Result<bool> {
    let side = match to.primary {
        Side::A => "a",
        Side::B => "b",
    };
    let done = sqlx::query(statement)
        .bind(aggregate)
        .bind(i64::try_from(to.version)?)
        .bind(i64::try_from(to.term)?)
        .bind(side)
        .bind(to.mirrored)
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (address, shows) in [
            (
                "postgres://weir:secret@db:5432/w",
                "postgres://weir@db:5432/w",
            ),
            ("postgres://weir@db/w", "postgres://weir@db/w"),
            ("postgresql://db/w", "postgresql://db/w"),
            ("10.0.0.3:2052", "10.0.0.3:2052"),
        ] {
            assert_eq!(redact_password(address), shows);
        }
    }
}

//! Tokens and the audit log over HTTP: Weir's own paths, since no public API has anything of the
//! kind.

use crate::assertion;
use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, ResourceBuilder, check_id, required};
use crate::json::{Object, abbreviate, decode_body};
use crate::preview;
use crate::query::Query;
use crate::route::VALIDATE_ONLY;
use crate::schema::own;
use crate::state::AppState;
use serde_json::{Value, json};
use std::time::Duration;
use weir_control::{AccountKey, Actor, AuditEntry, Role, Stamp, TokenRecord};

/// Most seconds that a token may be made for: ten years.
const MAX_TOKEN_SECONDS: u64 = 10 * 366 * 86_400;
/// Most bytes of the address at which a service account gets access tokens.
const MAX_URI: usize = 512;
/// Entries of the audit log in one response, unless the client wants fewer.
const AUDIT_PAGE: u32 = 500;

/// Returns a token as it is shown, without its secret.
pub(crate) fn token(t: &TokenRecord) -> Object {
    let mut m = ResourceBuilder::default();
    m.set("name", format!("tokens/{}", t.name))
        .set("role", t.role.as_str().to_ascii_uppercase())
        .set("createTime", t.created.rfc3339())
        .set("createdBy", t.created_by.as_str())
        .set("revokeTime", t.revoked.map(Stamp::rfc3339))
        .set("expireTime", t.expires.map(Stamp::rfc3339))
        .set("lastUseTime", t.used.map(Stamp::rfc3339));
    if let Some(key) = &t.account {
        m.set("publicKey", key.public.as_str())
            .set("tokenUri", key.token_uri.as_str());
    }
    m.done(&own::TOKEN)
}

/// Returns all tokens, without their secrets.
///
/// # Errors
/// The catalog cannot be read.
pub async fn list_tokens(app: &AppState) -> ApiResult<Value> {
    let all = app.control().tokens().await.map_err(ApiError::refused)?;
    let all: Vec<Value> = all.iter().map(|t| Value::Object(token(t))).collect();
    Ok(json!({"tokens": all}))
}

/// Makes the partner of the pair serve, or only checks that it could, if `only`. The reply leaves
/// before this node ceases to serve.
///
/// # Errors
/// INVALID_ARGUMENT naming the field; FAILED_PRECONDITION: the partner could not.
pub async fn switch_pair(
    app: &AppState,
    actor: &Actor,
    only: bool,
    body: &[u8],
) -> ApiResult<Value> {
    if !body.is_empty() {
        decode_body(&own::SWITCH_PAIR_REQUEST, body)?;
    }
    let live = app.live();
    let live = live.ok_or_else(|| ApiError::unimplemented("Live data", ""))?;
    if only {
        live.switch(true).map_err(ApiError::refused)?;
        return Ok(json!({"validateOnly": true}));
    }
    let control = app.control();
    let line = control.note(actor, "switch", "pair".to_owned()).await;
    let line = line.map_err(ApiError::refused)?;
    // The line is whole before the partner takes the catalog over.
    let checked = live.switch(true);
    let words = match &checked {
        Ok(()) => "done".to_owned(),
        Err(refusal) => format!("failed: {refusal}"),
    };
    let noted = control.note_end(line, words).await;
    checked.map_err(ApiError::refused)?;
    noted.map_err(ApiError::refused)?;
    live.switch(false).map_err(ApiError::refused)?;
    Ok(json!({}))
}

/// A token that is to be created.
pub(crate) struct NewToken {
    /// The role that it grants.
    pub role: Role,
    /// Time for which it is valid; `None`: until it is revoked.
    pub lifetime: Option<Duration>,
    /// The key of a service account.
    pub key: Option<AccountKey>,
}

/// Reads the body of a request that creates a token.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub(crate) fn new_token(body: &[u8]) -> ApiResult<NewToken> {
    let mut f = Fields::new(decode_body(&own::TOKEN, body)?);
    let role = required(f.text("role").value(), "role")?;
    let role = Role::from_name(&role.to_ascii_lowercase()).ok_or_else(|| {
        ApiError::field(
            "role",
            format!(
                "Invalid 'role' \"{}\": VIEWER, EDITOR or ADMIN",
                abbreviate(&role)
            ),
        )
    })?;
    let ttl = f.text("ttl").value();
    Ok(NewToken {
        role,
        lifetime: ttl.map(|ttl| lifetime(&ttl)).transpose()?,
        key: account_key(&mut f)?,
    })
}

/// Returns a new token, whose secret is in this response and nowhere else; or, with a public key, a
/// service account, which has no secret here.
///
/// # Errors
/// INVALID_ARGUMENT naming the field; ALREADY_EXISTS.
pub async fn create_token(
    app: &AppState,
    actor: &Actor,
    query: &Query,
    body: &[u8],
) -> ApiResult<Value> {
    let id = check_id("tokenId", query.get("tokenId"))?;
    let NewToken {
        role,
        lifetime,
        key,
    } = new_token(body)?;
    let control = app.control();
    if query.flag(VALIDATE_ONLY)? {
        let checked = control.check_token(&id, role, lifetime, key, actor).await;
        let record = checked.map_err(ApiError::refused)?;
        return Ok(checked_token(
            &record,
            "create",
            Value::Object(token(&record)),
        ));
    }
    if let Some(key) = key {
        let made = control.create_account(&id, role, lifetime, key, actor);
        let record = made.await.map_err(ApiError::refused)?;
        return Ok(Value::Object(token(&record)));
    }
    let made = control.create_token_for(&id, role, lifetime, actor).await;
    let (record, secret) = made.map_err(ApiError::refused)?;
    let mut out = token(&record);
    out.insert("token".to_owned(), Value::String(secret));
    Ok(Value::Object(out))
}

/// Reads the key of a service account; `None`: a token is asked for.
fn account_key(f: &mut Fields) -> ApiResult<Option<AccountKey>> {
    let (public, token_uri) = (f.text("publicKey").value(), f.text("tokenUri").value());
    let Some(public) = public else {
        return match token_uri {
            None => Ok(None),
            Some(_) => required(None::<()>, "publicKey").map(|()| None),
        };
    };
    assertion::check_key(&public, "publicKey")?;
    let token_uri = required(token_uri, "tokenUri")?;
    let good = token_uri.len() <= MAX_URI
        && (token_uri.starts_with("https://") || token_uri.starts_with("http://"));
    if !good {
        return Err(ApiError::field(
            "tokenUri",
            format!(
                "Invalid 'tokenUri' \"{}\": the address of this server and /token",
                abbreviate(&token_uri)
            ),
        ));
    }
    Ok(Some(AccountKey { public, token_uri }))
}

/// Reads a duration as the JSON mapping writes it, in whole seconds: `86400s`.
fn lifetime(ttl: &str) -> ApiResult<Duration> {
    let digits = ttl.strip_suffix('s').unwrap_or_default();
    let seconds = match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse().ok(),
        false => None,
    };
    let good = seconds.filter(|n| (1..=MAX_TOKEN_SECONDS).contains(n));
    good.map(Duration::from_secs).ok_or_else(|| {
        ApiError::field(
            "ttl",
            format!(
                "Invalid 'ttl' \"{}\": seconds from 1s to {MAX_TOKEN_SECONDS}s",
                abbreviate(ttl)
            ),
        )
    })
}

/// Returns the answer to a change of a token that is checked only.
fn checked_token(record: &TokenRecord, verb: &str, response: Value) -> Value {
    let target = format!("tokens/{}", record.name);
    Value::Object(preview::checked(&target, verb, response))
}

/// Revokes a token, by its id; with `only`, checks that it could.
///
/// # Errors
/// NOT_FOUND: no token has this id.
pub async fn delete_token(app: &AppState, actor: &Actor, id: &str, only: bool) -> ApiResult<Value> {
    if only {
        let checked = app.control().check_revocation(id).await;
        let record = checked.map_err(ApiError::refused)?;
        return Ok(checked_token(&record, "delete", json!({})));
    }
    let gone = app.control().revoke_token(id, actor).await;
    gone.map_err(ApiError::refused)?;
    Ok(json!({}))
}

/// Returns a page of the audit log, newest first. The page token is the number of the last entry
/// shown.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter.
pub async fn list_audit(app: &AppState, actor: &Actor, query: &Query) -> ApiResult<Value> {
    let wrong = |p: &str| ApiError::field(p, format!("Invalid '{p}'"));
    let size = match query.get("pageSize").unwrap_or_default() {
        "" => AUDIT_PAGE,
        n => match n.parse::<u32>() {
            Ok(0) => AUDIT_PAGE,
            Ok(n) => n.min(AUDIT_PAGE),
            Err(_) => return Err(wrong("pageSize")),
        },
    };
    let before = match query.get("pageToken").unwrap_or_default() {
        "" => None,
        t => Some(t.parse::<i64>().map_err(|_| wrong("pageToken"))?),
    };
    let page = app.control().audit(before, size, actor).await;
    let page = page.map_err(ApiError::refused)?;
    let full = page.len() >= size as usize;
    let next = page.last().filter(|_| full).map(|e| e.seq.to_string());
    let entries: Vec<Value> = page.iter().map(|e| Value::Object(entry(e))).collect();
    let mut out = Object::new();
    out.insert("auditEntries".to_owned(), Value::Array(entries));
    if let Some(next) = next {
        out.insert("nextPageToken".to_owned(), Value::String(next));
    }
    Ok(Value::Object(out))
}

fn entry(e: &AuditEntry) -> Object {
    let mut m = ResourceBuilder::default();
    m.set("time", e.time().rfc3339())
        .set("actor", e.actor.as_str())
        .set("address", e.address.as_str())
        .set("method", e.verb.as_str())
        .set("resource", e.target.as_str())
        .set("outcome", e.outcome.as_str());
    m.into_object()
}

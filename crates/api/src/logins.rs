//! Sign-ins of browsers: a token is exchanged for a cookie that scripts cannot read, so that no
//! page ever holds a token.
//!
//! A sign-in is in memory, as the hash of its cookie with the hash of its token; neither can be
//! presented. It ends after twelve hours, with its token, and with the server.
//!
//! Service accounts exchange what they have signed for an access token (RFC 7523). The token is the
//! same text: its signature and its times can be checked at each use, so that nothing has to be
//! stored, and the token outlives a restart and a takeover, but not its account.

use crate::assertion::{Assertion, Use, is_assertion};
use crate::body::{self, Unread};
use crate::connections::{Slot, source};
use crate::error::{ApiError, ApiResult};
use crate::gate;
use crate::query::Query;
use crate::state::{AppState, Ends};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_base::limits::api::{
    LOGIN_SECONDS, MAX_ASSERTION, MAX_LOGIN_BODY, MAX_LOGINS, MAX_WRONG_ADDRESSES,
    MAX_WRONG_TOKENS, WRONG_TOKEN_SECONDS,
};
use weir_control::{AccountKey, Actor, Status, TokenHash};

/// Most tokens that are remembered to have been right.
const MAX_RIGHT_TOKENS: usize = 1024;
/// The cookie. A browser takes one of this kind from this host only, over TLS only.
const COOKIE: &str = "__Host-weir";

/// The path of sign-ins.
pub const PATH: &str = "/v1/logins";
/// The path at which service accounts get access tokens.
pub const GRANT_PATH: &str = "/token";
/// Type of a grant by an assertion (RFC 7523 §2.1).
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Maximum size of the form in bytes.
const MAX_GRANT: usize = MAX_ASSERTION + 1024;

/// A caller's proof of who it is.
pub enum Credential {
    /// A token.
    Token(String),
    /// The cookie of a sign-in, as its hash.
    Login(TokenHash),
}

impl Credential {
    /// Returns the proof that a request carries: the token, or without one the cookie.
    ///
    /// # Errors
    /// UNAUTHENTICATED: there is none. PERMISSION_DENIED: a change by cookie that does not show
    /// that a page of this server's own sends it.
    pub fn from_head(head: &Parts) -> ApiResult<Credential> {
        let cookie = match head.headers.contains_key(header::AUTHORIZATION) {
            true => None,
            false => cookie(&head.headers),
        };
        let Some(cookie) = cookie else {
            return gate::token(head).map(|token| Credential::Token(token.into_owned()));
        };
        if head.method != Method::GET && head.method != Method::HEAD {
            gate::own_page(&head.headers)?;
        }
        Ok(Credential::Login(TokenHash::from_secret(cookie)))
    }
}

struct Login {
    token: TokenHash,
    ends: i64,
}

struct Wrong {
    tries: u32,
    since: i64,
}

#[derive(Default)]
struct LoginState {
    logins: HashMap<TokenHash, Login>,
    wrong: HashMap<IpAddr, Wrong>,
    /// Tokens that were right when they were last shown. So a program with a wrong token keeps none
    /// out that work at its address already.
    right: HashSet<TokenHash>,
}

/// All sign-ins, and who has shown wrong tokens lately.
#[derive(Default)]
pub struct Logins(Mutex<LoginState>);

impl Logins {
    fn held(&self) -> MutexGuard<'_, LoginState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token of a sign-in that holds now.
    fn token(&self, cookie: &TokenHash, now: i64) -> Option<TokenHash> {
        let held = self.held();
        let login = held.logins.get(cookie)?;
        (login.ends > now).then(|| login.token.clone())
    }

    fn begin(&self, cookie: TokenHash, token: TokenHash, now: i64) {
        let mut held = self.held();
        held.logins.retain(|_, login| login.ends > now);
        if held.logins.len() >= MAX_LOGINS {
            let oldest = held.logins.iter().min_by_key(|(_, login)| login.ends);
            if let Some(oldest) = oldest.map(|(cookie, _)| cookie.clone()) {
                held.logins.remove(&oldest);
            }
        }
        let ends = now.saturating_add(LOGIN_SECONDS);
        held.logins.insert(cookie, Login { token, ends });
    }

    fn end(&self, cookie: &TokenHash) {
        self.held().logins.remove(cookie);
    }

    /// Admits one more token of an address, or refuses it after too many wrong ones.
    pub(crate) fn may_try(&self, address: IpAddr, token: &TokenHash, now: i64) -> ApiResult<()> {
        let mut held = self.held();
        let age = |wrong: &Wrong| now.saturating_sub(wrong.since);
        let left = match held.wrong.get(&address) {
            Some(wrong) if wrong.tries >= MAX_WRONG_TOKENS => WRONG_TOKEN_SECONDS - age(wrong),
            _ => return Ok(()),
        };
        if left <= 0 || held.right.contains(token) {
            return Ok(());
        }
        held.wrong
            .retain(|_, wrong| age(wrong) < WRONG_TOKEN_SECONDS);
        let mut refusal = ApiError::new(
            Status::ResourceExhausted,
            "TOO_MANY_WRONG_TOKENS",
            format!(
                "cannot authenticate from this address: {MAX_WRONG_TOKENS} wrong tokens within \
                 {WRONG_TOKEN_SECONDS} s (retry in {left} s)"
            ),
        );
        refusal.retry_after = Some(left);
        Err(refusal)
    }

    pub(crate) fn was_right(&self, token: TokenHash) {
        let mut held = self.held();
        if held.right.len() >= MAX_RIGHT_TOKENS && !held.right.contains(&token) {
            held.right.clear();
        }
        held.right.insert(token);
    }

    pub(crate) fn was_wrong(&self, address: IpAddr, token: &TokenHash, now: i64) {
        let mut held = self.held();
        held.right.remove(token);
        let recent = |wrong: &Wrong| now.saturating_sub(wrong.since) < WRONG_TOKEN_SECONDS;
        if held.wrong.len() >= MAX_WRONG_ADDRESSES {
            held.wrong.retain(|_, wrong| recent(wrong));
        }
        if held.wrong.len() >= MAX_WRONG_ADDRESSES && !held.wrong.contains_key(&address) {
            return;
        }
        let wrong = held.wrong.entry(address).or_insert(Wrong {
            tries: 0,
            since: now,
        });
        if !recent(wrong) {
            *wrong = Wrong {
                tries: 0,
                since: now,
            };
        }
        wrong.tries = wrong.tries.saturating_add(1);
    }
}

/// Returns the actor of a request's proof. Wrong tokens are counted by address.
///
/// # Errors
/// As [`authenticate`]; RESOURCE_EXHAUSTED: the address has shown too many wrong tokens.
pub async fn admit(
    app: &AppState,
    credential: &Credential,
    from: Option<IpAddr>,
) -> ApiResult<Actor> {
    match credential {
        Credential::Token(token) => try_token(app, token, from).await,
        Credential::Login(_) => authenticate(app, credential, from).await,
    }
}

/// Returns the actor of a token, and counts a wrong one.
async fn try_token(app: &AppState, token: &str, from: Option<IpAddr>) -> ApiResult<Actor> {
    counted(app, token, from, actor_of(app, token, from)).await
}

/// Returns the outcome of showing a token, and counts a wrong one.
///
/// # Errors
/// As `shown`; RESOURCE_EXHAUSTED: the address has shown too many wrong tokens.
async fn counted<T>(
    app: &AppState,
    token: &str,
    from: Option<IpAddr>,
    shown: impl Future<Output = ApiResult<T>>,
) -> ApiResult<T> {
    let (control, logins) = (app.control(), app.logins());
    let address = source(from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    let hash = TokenHash::from_secret(token);
    logins.may_try(address, &hash, control.now_seconds())?;
    let shown = shown.await;
    match &shown {
        Ok(_) => logins.was_right(hash),
        Err(e) if e.status == Status::Unauthenticated => {
            logins.was_wrong(address, &hash, control.now_seconds());
        }
        Err(_) => {}
    }
    shown
}

/// Returns the actor of a token, or of what a service account has signed.
async fn actor_of(app: &AppState, token: &str, from: Option<IpAddr>) -> ApiResult<Actor> {
    if is_assertion(token) {
        let shown = signed(app, token, Use::Bearer, from).await;
        return shown.map(|(actor, _)| actor);
    }
    let actor = app.control().authenticate(token, from).await;
    actor.map_err(ApiError::refused)
}

/// Returns the actor of what a service account has signed, and the seconds that are left of it.
async fn signed(
    app: &AppState,
    text: &str,
    used: Use,
    from: Option<IpAddr>,
) -> ApiResult<(Actor, i64)> {
    let assertion = Assertion::parse(text)?;
    let (now, mut left) = (app.control().time_of_day(), 0);
    let check = |key: &AccountKey| {
        left = assertion.check(key, used, now)?;
        Ok(())
    };
    let account = assertion.account()?;
    let shown = app.control().authenticate_account(account, from, check);
    let actor: ApiResult<Actor> = shown.await;
    Ok((actor?, left))
}

/// Returns the actor of a proof.
///
/// # Errors
/// UNAUTHENTICATED: the token is unknown, revoked or expired, the sign-in has ended.
pub async fn authenticate(
    app: &AppState,
    credential: &Credential,
    from: Option<IpAddr>,
) -> ApiResult<Actor> {
    let control = app.control();
    let hash = match credential {
        Credential::Token(token) => return actor_of(app, token, from).await,
        Credential::Login(cookie) => app.logins().token(cookie, control.now_seconds()),
    };
    let ended = || {
        ApiError::new(
            Status::Unauthenticated,
            "LOGIN_ENDED",
            "this sign-in has ended: sign in again",
        )
    };
    control
        .authenticate_by(&hash.ok_or_else(ended)?, from)
        .await
        .map_err(ApiError::refused)
}

/// Answers a request to sign in or out; `None`: it is another request.
pub async fn answer(
    app: &AppState,
    loopback: bool,
    head: &Parts,
    from: Option<IpAddr>,
    body: Unread,
) -> ApiResult<Response> {
    gate::same_origin(&head.headers)?;
    if head.method == Method::DELETE {
        gate::own_page(&head.headers)?;
        if let Some(cookie) = cookie(&head.headers) {
            app.logins().end(&TokenHash::from_secret(cookie));
        }
        return Ok(reply(
            json!({}),
            format!("{COOKIE}=; Secure; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"),
        ));
    }
    if loopback {
        gate::same_machine(head)?;
        return Err(ApiError::new(
            Status::FailedPrecondition,
            "LOGIN_NOT_NEEDED",
            "this listener is on a loopback address and takes no tokens",
        ));
    }
    let control = app.control();
    let announced = head.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_none_or(|n| n > MAX_LOGIN_BODY) {
        return Err(ApiError::new(
            Status::InvalidArgument,
            "INVALID_LOGIN",
            format!(
                "expected {{\"token\": TOKEN}} in at most {MAX_LOGIN_BODY} bytes, with Content-Length"
            ),
        ));
    }
    let (bytes, _held) = body::read(app.bodies(), &head.headers, body).await?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let Some(token) = value.get("token").and_then(|t| t.as_str()) else {
        return Err(ApiError::field("token", "a token is missing"));
    };
    let actor = try_token(app, token, from).await?;
    let secret = control.random_text();
    let cookie = format!(
        "{COOKIE}={secret}; Secure; HttpOnly; SameSite=Strict; Path=/; Max-Age={LOGIN_SECONDS}"
    );
    app.logins().begin(
        TokenHash::from_secret(&secret),
        TokenHash::from_secret(token),
        control.now_seconds(),
    );
    Ok(reply(
        json!({"name": actor.name, "role": actor.role.as_str().to_ascii_uppercase(), "seconds": LOGIN_SECONDS}),
        cookie,
    ))
}

/// Answers a service account that asks for an access token (RFC 7523), in the form of OAuth (RFC
/// 6749 §5).
pub async fn grant(app: &AppState, loopback: bool, head: &Parts, body: Unread) -> Response {
    let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
    let (code, value, refusal) = match granted(app, loopback, head, from, body).await {
        Ok(value) => (200, value, None),
        Err(e) => {
            let error = match (e.status, &*e.reason) {
                (Status::Unauthenticated, _) => "invalid_grant",
                (Status::ResourceExhausted | Status::Unavailable, _) => "temporarily_unavailable",
                (_, "UNSUPPORTED_GRANT") => "unsupported_grant_type",
                _ => "invalid_request",
            };
            let code = if error == "invalid_grant" {
                400
            } else {
                e.code()
            };
            let value = json!({"error": error, "error_description": e.message});
            (code, value, Some(e))
        }
    };
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    let mut reply = (status, axum::Json(value)).into_response();
    let headers = reply.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(e) = refusal {
        e.add_retry_after(headers);
    }
    reply
}

async fn granted(
    app: &AppState,
    loopback: bool,
    head: &Parts,
    from: Option<IpAddr>,
    body: Unread,
) -> ApiResult<serde_json::Value> {
    gate::same_origin(&head.headers)?;
    if loopback {
        gate::same_machine(head)?;
    }
    let invalid = |what: String| ApiError::new(Status::InvalidArgument, "INVALID_GRANT", what);
    let announced = head.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_none_or(|n| n > MAX_GRANT) {
        return Err(invalid(format!(
            "expected a form of at most {MAX_GRANT} bytes, with Content-Length"
        )));
    }
    let (bytes, _held) = body::read_whole(app.bodies(), &head.headers, body).await?;
    let form = Query::parse(std::str::from_utf8(&bytes).unwrap_or_default())?;
    let field = |name: &str| {
        let value = form.get(name);
        value.ok_or_else(|| invalid(format!("the form has no field '{name}'")))
    };
    if field("grant_type")? != GRANT {
        return Err(ApiError::new(
            Status::InvalidArgument,
            "UNSUPPORTED_GRANT",
            format!("grant_type has to be {GRANT}"),
        ));
    }
    let token = field("assertion")?;
    let shown = signed(app, token, Use::Grant, from);
    let (_, left) = counted(app, token, from, shown).await?;
    if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
        slot.passed();
    }
    Ok(json!({"access_token": token, "expires_in": left, "token_type": "Bearer"}))
}

fn reply(value: serde_json::Value, cookie: String) -> Response {
    let mut reply = axum::Json(value).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    reply
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Returns the value of the sign-in's cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE);
    all.iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: usize) -> TokenHash {
        TokenHash::from_secret(&n.to_string())
    }

    #[test]
    fn a_sign_in_ends_after_its_time_and_the_table_is_bounded() {
        let logins = Logins::default();
        logins.begin(hash(0), hash(9), 100);
        assert_eq!(
            logins.token(&hash(0), 100 + LOGIN_SECONDS - 1),
            Some(hash(9))
        );
        assert_eq!(logins.token(&hash(0), 100 + LOGIN_SECONDS), None);
        assert_eq!(logins.token(&hash(1), 100), None);
        for n in 1..=MAX_LOGINS {
            logins.begin(hash(n), hash(9), 101);
        }
        assert_eq!(logins.held().logins.len(), MAX_LOGINS);
        assert_eq!(logins.token(&hash(0), 102), None);
        logins.end(&hash(MAX_LOGINS));
        assert_eq!(logins.token(&hash(MAX_LOGINS), 102), None);
    }

    #[test]
    fn wrong_tokens_are_counted_by_address_for_a_minute() {
        let logins = Logins::default();
        let [one, other] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let (right, wrong) = (hash(0), hash(1));
        logins.was_right(right.clone());
        for _ in 0..MAX_WRONG_TOKENS {
            assert!(logins.may_try(one, &wrong, 50).is_ok());
            logins.was_wrong(one, &wrong, 50);
        }
        let refused = logins.may_try(one, &wrong, 51).unwrap_err();
        assert_eq!((refused.code(), refused.retry_after), (429, Some(59)));
        assert!(logins.may_try(other, &wrong, 51).is_ok());
        assert!(
            logins
                .may_try(one, &wrong, 50 + WRONG_TOKEN_SECONDS)
                .is_ok()
        );
        // A token that works goes on working, until it is wrong itself.
        assert!(logins.may_try(one, &right, 51).is_ok());
        logins.was_wrong(one, &right, 51);
        assert!(logins.may_try(one, &right, 51).is_err());
        for n in 0..2 * MAX_WRONG_ADDRESSES {
            logins.was_wrong(IpAddr::V4(Ipv4Addr::from_bits(n as u32)), &wrong, 60);
            logins.was_right(hash(n));
        }
        let held = logins.held();
        assert!(held.wrong.len() <= MAX_WRONG_ADDRESSES);
        assert!(held.right.len() <= MAX_RIGHT_TOKENS);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("a=b; __Host-weir=x1; c=d"),
        );
        assert_eq!(cookie(&headers), Some("x1"));
        headers.clear();
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("x__Host-weir=x1; __Host-weirs=2"),
        );
        assert_eq!(cookie(&headers), None);
    }
}

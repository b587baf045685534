//! Sign-ins of browsers: a token is exchanged for a cookie that scripts cannot read, so that no
//! page ever holds a token.
//!
//! A sign-in is in memory, as the hash of its cookie with the hash of its token; neither can be
//! presented. It ends after twelve hours, with its token, and with the server.

use crate::app::AppState;
use crate::body::{self, Unread};
use crate::connections::source;
use crate::error::{ApiError, ApiResult};
use crate::gate;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_base::limits::api::{
    LOGIN_SECONDS, MAX_LOGIN_BODY, MAX_LOGINS, MAX_WRONG_ADDRESSES, MAX_WRONG_TOKENS,
    WRONG_TOKEN_SECONDS,
};
use weir_control::{Actor, Status, TokenHash};

/// Most tokens that are remembered to have been right.
const MAX_RIGHT_TOKENS: usize = 1024;
/// The cookie. A browser takes one of this kind from this host only, over TLS only.
const COOKIE: &str = "__Host-weir";

/// The path of sign-ins.
pub const PATH: &str = "/v1/logins";

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
    pub fn of(head: &Parts) -> ApiResult<Credential> {
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
        Ok(Credential::Login(TokenHash::of(cookie)))
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
struct Held {
    logins: HashMap<TokenHash, Login>,
    wrong: HashMap<IpAddr, Wrong>,
    /// Tokens that were right when they were last shown. So a program with a wrong token keeps none
    /// out that work at its address already.
    right: HashSet<TokenHash>,
}

/// All sign-ins, and who has shown wrong tokens lately.
#[derive(Default)]
pub struct Logins(Mutex<Held>);

impl Logins {
    fn held(&self) -> MutexGuard<'_, Held> {
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
    fn may_try(&self, address: IpAddr, token: &TokenHash, now: i64) -> ApiResult<()> {
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

    fn was_right(&self, token: TokenHash) {
        let mut held = self.held();
        if held.right.len() >= MAX_RIGHT_TOKENS && !held.right.contains(&token) {
            held.right.clear();
        }
        held.right.insert(token);
    }

    fn was_wrong(&self, address: IpAddr, token: &TokenHash, now: i64) {
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
    let (control, logins) = (app.control(), app.logins());
    let address = source(from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    let hash = TokenHash::of(token);
    logins.may_try(address, &hash, control.now_seconds())?;
    match control.authenticate(token, from).await {
        Ok(actor) => {
            logins.was_right(hash);
            Ok(actor)
        }
        Err(refusal) => {
            if refusal.status == Status::Unauthenticated {
                logins.was_wrong(address, &hash, control.now_seconds());
            }
            Err(ApiError::refused(refusal))
        }
    }
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
        Credential::Token(token) => {
            return control
                .authenticate(token, from)
                .await
                .map_err(ApiError::refused);
        }
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
            app.logins().end(&TokenHash::of(cookie));
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
        TokenHash::of(&secret),
        TokenHash::of(token),
        control.now_seconds(),
    );
    Ok(reply(
        json!({"name": actor.name, "role": actor.role.as_str().to_ascii_uppercase(), "seconds": LOGIN_SECONDS}),
        cookie,
    ))
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
        TokenHash::of(&n.to_string())
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

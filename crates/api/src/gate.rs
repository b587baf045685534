//! Which requests are admitted, and from where.
//!
//! Without tokens, the listener is on a loopback address, and every client that can connect is trusted. But browsers
//! connect too, on behalf of the page they show: a page can post to 127.0.0.1, and a name that its owner first resolves
//! to himself and then to 127.0.0.1 makes it a page of ours (DNS rebinding). Both show in the headers that browsers
//! always send and pages cannot forge: Origin is not ours, or Host is a name and no address. Such requests are refused.
//!
//! With tokens, a page of another site has none of its own, but a browser adds what it keeps for this server (Basic's
//! password, where a user has typed one). So Origin and Sec-Fetch-Site count there as well. Host does not: the
//! certificate binds the name that the browser believes in, which a rebound name is not, and credentials are kept by name.

use crate::error::{ApiError, ApiResult};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use std::borrow::Cow;
use std::net::IpAddr;
use weir_control::{Actor, Role, Status};

/// The token of a request: as bearer, or, as ONTAP's clients send it, as the password of whatever user.
///
/// # Errors
/// UNAUTHENTICATED: there is none.
pub fn token(head: &Parts) -> ApiResult<Cow<'_, str>> {
    let basic = text(&head.headers, header::AUTHORIZATION).and_then(|value| {
        let (scheme, rest) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let plain = base64::engine::general_purpose::STANDARD.decode(rest.trim());
        let plain = String::from_utf8(plain.ok()?).ok()?;
        let (_, password) = plain.split_once(':')?;
        Some(password.to_owned()).filter(|password| !password.is_empty())
    });
    match basic {
        Some(password) => Ok(Cow::Owned(password)),
        None => bearer(head).map(Cow::Borrowed),
    }
}

/// The token of a request that comes as bearer.
fn bearer(head: &Parts) -> ApiResult<&str> {
    let value = head
        .headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok());
    let token = value.and_then(|v| {
        let (scheme, token) = v.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(token.trim())
            .filter(|t| !t.is_empty())
    });
    token.ok_or_else(|| {
        ApiError::new(
            Status::Unauthenticated,
            "CREDENTIALS_MISSING",
            "Request is missing required authentication credential. Expected a token: Authorization: Bearer TOKEN",
        )
    })
}

/// Whether the actor's role is at least `wanted`.
///
/// # Errors
/// PERMISSION_DENIED: it is lower.
pub fn has(actor: &Actor, wanted: Role) -> ApiResult<()> {
    if actor.role >= wanted {
        return Ok(());
    }
    let mut e = ApiError::new(
        Status::PermissionDenied,
        "ROLE_INSUFFICIENT",
        format!(
            "This takes the role {}; the token '{}' has the role {}",
            wanted.as_str(),
            actor.name,
            actor.role.as_str()
        ),
    );
    e.metadata
        .push(("role".to_owned(), wanted.as_str().to_owned()));
    Err(e)
}

/// Refuses what a browser sends on behalf of another site's page.
///
/// # Errors
/// PERMISSION_DENIED: Origin is another site, or Sec-Fetch-Site is neither `same-origin` nor `none`.
pub fn same_origin(headers: &HeaderMap) -> ApiResult<()> {
    let host = text(headers, header::HOST);
    let foreign = text(headers, header::ORIGIN).is_some_and(|origin| {
        let named = origin.split_once("://").map(|(_, rest)| rest);
        !matches!((named, host), (Some(named), Some(host)) if named.eq_ignore_ascii_case(host))
    });
    let cross = text(headers, HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|s| s != "same-origin" && s != "none");
    match foreign || cross {
        false => Ok(()),
        true => Err(foreign_origin(
            "This server replies to no request that a browser sends for another site's page",
        )),
    }
}

/// Refuses what names this listener, which is on a loopback address, by a name that another site may own.
///
/// # Errors
/// PERMISSION_DENIED: Host is neither an address nor localhost.
pub fn same_machine(headers: &HeaderMap) -> ApiResult<()> {
    match text(headers, header::HOST).is_none_or(|h| is_here(authority_host(h))) {
        true => Ok(()),
        false => Err(foreign_origin(
            "This listener replies to requests that name it by address or as localhost",
        )),
    }
}

fn foreign_origin(message: &str) -> Box<ApiError> {
    ApiError::new(Status::PermissionDenied, "FOREIGN_ORIGIN", message)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // Bytes that are no text match no origin of ours.
    headers.get(name).map(|v| v.to_str().unwrap_or("?"))
}

/// The host of `host:port` or `[v6]:port`.
fn authority_host(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((v6, _)) => v6,
        None => authority.rsplit_once(':').map_or(authority, |(h, _)| h),
    }
}

fn is_here(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut b = Request::builder();
        for (k, v) in headers {
            b = b.header(*k, *v);
        }
        b.body(()).unwrap().into_parts().0
    }

    #[test]
    fn pages_of_others_are_kept_out() {
        for (headers, ok) in [
            (&[("host", "127.0.0.1:8049")][..], true),
            (&[("host", "[::1]:8049")], true),
            (&[("host", "localhost:8049")], true),
            (&[("host", "10.0.0.1")], true),
            (&[], true),
            (&[("host", "evil.example:8049")], false),
            (&[("host", "localhost.evil.example")], false),
            (
                &[
                    ("host", "127.0.0.1:8049"),
                    ("origin", "http://127.0.0.1:8049"),
                ],
                true,
            ),
            (
                &[
                    ("host", "127.0.0.1:8049"),
                    ("origin", "http://evil.example"),
                ],
                false,
            ),
            (&[("host", "127.0.0.1:8049"), ("origin", "null")], false),
            (
                &[
                    ("host", "127.0.0.1:8049"),
                    ("origin", "http://127.0.0.1:80"),
                ],
                false,
            ),
            (
                &[("host", "127.0.0.1:8049"), ("sec-fetch-site", "cross-site")],
                false,
            ),
            (
                &[
                    ("host", "127.0.0.1:8049"),
                    ("sec-fetch-site", "same-origin"),
                ],
                true,
            ),
            (
                &[("host", "127.0.0.1:8049"), ("sec-fetch-site", "same-site")],
                false,
            ),
            // An origin without a host to compare it with.
            (&[("origin", "http://127.0.0.1:8049")], false),
        ] {
            let headers = head(headers).headers;
            let passes = same_origin(&headers).and_then(|()| same_machine(&headers));
            assert_eq!(passes.is_ok(), ok, "{headers:?}");
        }
    }

    #[test]
    fn tokens_come_as_bearer() {
        assert_eq!(
            bearer(&head(&[("authorization", "Bearer abc")])).unwrap(),
            "abc"
        );
        assert_eq!(
            bearer(&head(&[("authorization", "bearer  abc ")])).unwrap(),
            "abc"
        );
        // admin:secret
        let basic = head(&[("authorization", "Basic YWRtaW46c2VjcmV0")]);
        assert_eq!(token(&basic).unwrap(), "secret");
        for h in [
            &[][..],
            &[("authorization", "Basic abc")],
            &[("authorization", "Basic YWRtaW46")],
            &[("authorization", "Bearer ")],
            &[("authorization", "abc")],
        ] {
            assert_eq!(token(&head(h)).unwrap_err().code(), 401);
        }
    }
}

//! Which requests are admitted, and from where.
//!
//! Without tokens, the listener is on a loopback address, and every client that can connect is
//! trusted. But browsers connect too, on behalf of the page they show. A page can post to
//! 127.0.0.1, and a name that its owner first resolves to himself and then to 127.0.0.1 makes it a
//! page of ours (DNS rebinding). Both show in the headers that browsers always send and pages
//! cannot forge: Origin is not ours, or Host is a name and no address. Such requests are refused.
//!
//! With tokens, a page of another site has none of its own. But a browser adds what it keeps for
//! this server (the cookie of a sign-in; Basic's password, where a user has typed one). So Origin
//! and Sec-Fetch-Site count there as well. Host does not: the certificate binds the name that the
//! browser believes in, which a rebound name is not, and credentials are kept by name.

use crate::error::{ApiError, ApiResult};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use weir_control::{Actor, Role, Status};

/// Header in which a node's daemon names the caller of a request that it passes on: the role, the
/// address or `-`, and the name. Only the daemon's socket reads it.
pub const ACTOR: HeaderName = HeaderName::from_static("weir-actor");

/// Header by which a node asks for the operations of both APIs, as calls over gRPC do.
pub const BOTH: HeaderName = HeaderName::from_static("weir-both-apis");

/// Returns a caller as the header [`ACTOR`] names it.
pub fn actor_line(actor: &Actor) -> String {
    let address = actor.address.map_or("-".to_owned(), |ip| ip.to_string());
    format!("{} {address} {}", actor.role.as_str(), actor.name)
}

/// Returns the caller on whose behalf a daemon sends a request; without the header, the daemon
/// itself.
///
/// # Errors
/// INVALID_ARGUMENT: the header is malformed.
pub fn on_behalf(head: &Parts) -> ApiResult<Actor> {
    let Some(line) = single(&head.headers, ACTOR)? else {
        return Ok(Actor::local());
    };
    let read = || {
        let mut words = line.splitn(3, ' ');
        let role = Role::from_name(words.next()?)?;
        let address = match words.next()? {
            "-" => None,
            ip => Some(ip.parse().ok()?),
        };
        let name = words.next().filter(|name| !name.is_empty())?.into();
        Some(Actor {
            name,
            role,
            address,
        })
    };
    read().ok_or_else(|| malformed(format!("Malformed header: {ACTOR}")))
}

/// Returns the token of a request: as bearer, or, as ONTAP's clients send it, as the password of
/// whatever user.
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

/// Returns the token of a request that comes as bearer.
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

/// Checks that the actor's role is at least `wanted`.
///
/// # Errors
/// PERMISSION_DENIED: it is lower.
pub fn require_role(actor: &Actor, wanted: Role) -> ApiResult<()> {
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
/// INVALID_ARGUMENT: a header that browsers send once is there twice, or Host is malformed;
/// PERMISSION_DENIED: Origin is another site, or Sec-Fetch-Site is neither `same-origin` nor
/// `none`.
pub fn same_origin(headers: &HeaderMap) -> ApiResult<()> {
    let host = single(headers, header::HOST)?;
    if host.is_some_and(|host| host_of(host).is_none()) {
        return Err(malformed(
            "Malformed Host header: expected ADDRESS[:PORT] or NAME[:PORT]",
        ));
    }
    let foreign = single(headers, header::ORIGIN)?.is_some_and(|origin| {
        let named = origin.split_once("://").map(|(_, rest)| rest);
        !matches!((named, host), (Some(named), Some(host)) if named.eq_ignore_ascii_case(host))
    });
    let cross = single(headers, HeaderName::from_static("sec-fetch-site"))?
        .is_some_and(|s| s != "same-origin" && s != "none");
    match foreign || cross {
        false => Ok(()),
        true => Err(foreign_origin(
            "This server replies to no request that a browser sends for another site's page",
        )),
    }
}

/// Refuses a change that does not show that a page of this server's own sends it. The browser adds
/// a cookie to requests that any page made it send.
///
/// # Errors
/// PERMISSION_DENIED: there is neither `Sec-Fetch-Site: same-origin` nor, of a browser without it,
/// Origin; INVALID_ARGUMENT.
pub fn own_page(headers: &HeaderMap) -> ApiResult<()> {
    same_origin(headers)?;
    let site = single(headers, HeaderName::from_static("sec-fetch-site"))?;
    let own = match site {
        Some(site) => site == "same-origin",
        None => headers.contains_key(header::ORIGIN),
    };
    match own {
        true => Ok(()),
        false => Err(foreign_origin(
            "A change by a sign-in's cookie has to come from a page of this server (Sec-Fetch-Site or Origin)",
        )),
    }
}

/// Refuses what names this listener, which is on a loopback address, by a name that another site
/// may own. The name comes in Host, or in the target's own authority (`GET http://NAME/…`), which
/// takes precedence over Host (RFC 9112 §3.2.2).
///
/// # Errors
/// PERMISSION_DENIED: the name is neither an address nor localhost.
pub fn same_machine(head: &Parts) -> ApiResult<()> {
    let target = head.uri.authority().map(Authority::as_str);
    let named = [single(&head.headers, header::HOST)?, target];
    let here = |authority: &&str| host_of(authority).is_some_and(is_here);
    match named.iter().flatten().all(here) {
        true => Ok(()),
        false => Err(foreign_origin(
            "This listener replies to requests that name it by address or as localhost",
        )),
    }
}

fn foreign_origin(message: &str) -> Box<ApiError> {
    ApiError::new(Status::PermissionDenied, "FOREIGN_ORIGIN", message)
}

fn malformed(message: impl Into<String>) -> Box<ApiError> {
    ApiError::new(Status::InvalidArgument, "INVALID_HEADER", message)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // Bytes that are no text match no origin of ours.
    headers.get(name).map(|v| v.to_str().unwrap_or("?"))
}

/// Returns a header's value. With two values, one check could read the first and another program
/// the second.
fn single(headers: &HeaderMap, name: HeaderName) -> ApiResult<Option<&str>> {
    if headers.get_all(&name).iter().nth(1).is_some() {
        return Err(malformed(format!("Repeated header: {name}")));
    }
    Ok(text(headers, name))
}

/// Returns the host of `host`, `host:port`, `[v6]` or `[v6]:port` (RFC 3986 §3.2.2); `None`: it is
/// malformed.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (v6, rest) = bracketed.split_once(']')?;
            v6.parse::<Ipv6Addr>().ok()?;
            (v6, rest)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let of_names = |b: u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:".contains(&b);
    let port = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|b| b.is_ascii_digit()),
        None => rest.is_empty(),
    };
    (port && host.bytes().all(of_names)).then_some(host)
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
            let head = head(headers);
            let passes = same_origin(&head.headers).and_then(|()| same_machine(&head));
            assert_eq!(passes.is_ok(), ok, "{headers:?}");
        }
    }

    #[test]
    fn changes_by_cookie_show_where_they_come_from() {
        let host = ("host", "weir.example");
        for (headers, ok) in [
            (&[host][..], false),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], false),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("origin", "https://weir.example")], true),
            (&[host, ("origin", "https://evil.example")], false),
            (&[host, ("origin", "null")], false),
            (
                &[
                    host,
                    ("origin", "https://weir.example"),
                    ("sec-fetch-site", "cross-site"),
                ],
                false,
            ),
        ] {
            assert_eq!(own_page(&head(headers).headers).is_ok(), ok, "{headers:?}");
        }
    }

    #[test]
    fn hosts_are_parsed_to_their_end() {
        for (authority, host) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("127.0.0.1:", Some("127.0.0.1")),
            ("weir.example.com:8049", Some("weir.example.com")),
            ("[::1]", Some("::1")),
            ("[::1]:8049", Some("::1")),
            ("", Some("")),
            ("[::1].evil", None),
            ("[::1]:8049.evil", None),
            ("[::1]8049", None),
            ("[::1", None),
            ("[evil.example]", None),
            ("[127.0.0.1]", None),
            ("::1", None),
            ("127.0.0.1:80:80", None),
            ("127.0.0.1:evil", None),
            ("evil@127.0.0.1", None),
            ("127.0.0.1/evil", None),
            ("127.0.0.1, evil.example", None),
            ("?", None),
        ] {
            assert_eq!(host_of(authority), host, "{authority}");
        }
    }

    #[test]
    fn headers_that_browsers_send_once_are_taken_once() {
        for name in ["host", "origin", "sec-fetch-site"] {
            let twice = head(&[(name, "none"), (name, "none")]);
            let refusal = same_origin(&twice.headers).unwrap_err();
            assert_eq!(
                (refusal.code(), refusal.reason.as_ref()),
                (400, "INVALID_HEADER")
            );
        }
    }

    #[test]
    fn the_targets_own_authority_counts_as_host_does() {
        for (target, ok) in [
            ("http://127.0.0.1:8049/v1", true),
            ("http://evil.example/v1", false),
            ("/v1", true),
        ] {
            let request = Request::builder().uri(target).header("host", "127.0.0.1");
            let head = request.body(()).unwrap().into_parts().0;
            assert_eq!(same_machine(&head).is_ok(), ok, "{target}");
        }
    }

    #[test]
    fn a_daemon_names_the_caller() {
        let actor = Actor {
            name: "ops team".into(),
            role: Role::Editor,
            address: Some("10.0.0.9".parse().unwrap()),
        };
        let line = actor_line(&actor);
        let read = on_behalf(&head(&[("weir-actor", &line)])).unwrap();
        assert_eq!((&*read.name, read.role), ("ops team", Role::Editor));
        assert_eq!(read.address, actor.address);
        assert_eq!(on_behalf(&head(&[])).unwrap().role, Role::Admin);
        for wrong in [
            "",
            "editor",
            "editor -",
            "king - a",
            "editor x a",
            "editor - ",
        ] {
            let refused = on_behalf(&head(&[("weir-actor", wrong)]));
            assert_eq!(refused.unwrap_err().code(), 400, "{wrong}");
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

//! Sign-ins of browsers, and what pages are served with.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use std::time::Duration;
use support::{Api, PLACE, furnished};
use tower::ServiceExt as _;
use weir_api::Gate;
use weir_control::{Actor, Role};

async fn send_request(
    api: &Api,
    gate: Gate,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, HeaderMap, String) {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "weir.example:8049");
    if !body.is_empty() {
        request = request
            .header("content-type", "application/json")
            .header("content-length", body.len());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let reply = api.router(gate).oneshot(request).await.unwrap();
    let status = reply.status().as_u16();
    let headers = reply.headers().clone();
    let body = axum::body::to_bytes(reply.into_body(), 8 << 20)
        .await
        .unwrap();
    (status, headers, String::from_utf8_lossy(&body).into_owned())
}

async fn token(api: &Api, name: &str, role: Role) -> String {
    let made = api.control.create_token(name, role, &Actor::local()).await;
    made.unwrap().1
}

/// Signs in, and returns the cookie as browsers send it.
async fn sign_in(api: &Api, token: &str) -> String {
    let body = format!(r#"{{"token": "{token}"}}"#);
    let (status, headers, text) =
        send_request(api, Gate::Tokens, "POST", "/v1/logins", &[], &body).await;
    assert_eq!(status, 200, "{text}");
    assert!(!text.contains(token));
    let set = headers["set-cookie"].to_str().unwrap().to_owned();
    let (cookie, attributes) = set.split_once(';').unwrap();
    assert_eq!(
        attributes,
        " Secure; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"
    );
    assert!(cookie.starts_with("__Host-weir=") && cookie.len() == 12 + 64);
    assert_eq!(headers["cache-control"], "no-store");
    cookie.to_owned()
}

#[tokio::test]
async fn a_cookie_has_the_role_of_its_token_and_ends_with_it() {
    let api = furnished().await;
    let viewer = token(&api, "v", Role::Viewer).await;
    let cookie = sign_in(&api, &viewer).await;
    let volumes = format!("/v1/{PLACE}/volumes");
    let pools = format!("/v1/{PLACE}/storagePools?storagePoolId=n");
    let with = [
        ("cookie", cookie.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    let get = || send_request(&api, Gate::Tokens, "GET", &volumes, &with[..1], "");
    assert_eq!(get().await.0, 200);
    let body = support::pool().to_string();
    let (status, _, text) = send_request(&api, Gate::Tokens, "POST", &pools, &with, &body).await;
    assert_eq!((status, text.contains("ROLE_INSUFFICIENT")), (403, true));
    api.control
        .revoke_token("v", &Actor::local())
        .await
        .unwrap();
    assert_eq!(get().await.0, 401);
    // Neither the token nor a cookie of one's own making.
    let forged = format!("__Host-weir={}", "0".repeat(64));
    let (status, _, text) = send_request(
        &api,
        Gate::Tokens,
        "GET",
        &volumes,
        &[("cookie", &forged)],
        "",
    )
    .await;
    assert_eq!((status, text.contains("LOGIN_ENDED")), (401, true));
}

#[tokio::test]
async fn a_cookie_ends_with_the_time_of_its_token() {
    let api = furnished().await;
    let body = r#"{"role": "VIEWER", "ttl": "1800s"}"#;
    let made = api.ok("POST", "tokens?tokenId=brief", body).await;
    let secret = made["token"].as_str().unwrap().to_owned();
    assert!(made["expireTime"].is_string(), "{made}");
    let cookie = sign_in(&api, &secret).await;
    let volumes = format!("/v1/{PLACE}/volumes");
    let bearer = format!("Bearer {secret}");
    let with = [("cookie", cookie.as_str()), ("authorization", &bearer)];
    for one in &with {
        let (status, ..) = send_request(&api, Gate::Tokens, "GET", &volumes, &[*one], "").await;
        assert_eq!(status, 200, "{}", one.0);
    }
    api.clock.advance(Duration::from_secs(1800));
    for one in &with {
        let (status, _, text) =
            send_request(&api, Gate::Tokens, "GET", &volumes, &[*one], "").await;
        assert_eq!(
            (status, text.contains("TOKEN_EXPIRED")),
            (401, true),
            "{}",
            one.0
        );
    }
    for wrong in [
        "",
        "0s",
        "-1s",
        "5",
        "1.5s",
        "99999999999999999999s",
        "s",
        "1h",
    ] {
        let body = format!(r#"{{"role": "VIEWER", "ttl": "{wrong}"}}"#);
        let (status, text) = api.send_request("POST", "tokens?tokenId=wrong", body).await;
        assert_eq!(status, 400, "{wrong}: {text}");
    }
}

#[tokio::test]
async fn wrong_bearer_tokens_are_counted_and_right_ones_go_on() {
    let api = furnished().await;
    let [used, fresh] = [
        token(&api, "u", Role::Viewer).await,
        token(&api, "f", Role::Viewer).await,
    ];
    let volumes = format!("/v1/{PLACE}/volumes");
    let get = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let with = [("authorization", bearer.as_str())];
        send_request(&api, Gate::Tokens, "GET", &volumes, &with, "").await
    };
    assert_eq!(get(&used).await.0, 200);
    let wrong = format!("weir_{}", "0".repeat(64));
    for _ in 0..10 {
        assert_eq!(get(&wrong).await.0, 401);
    }
    let (status, headers, text) = get(&wrong).await;
    assert_eq!(
        (status, text.contains("TOO_MANY_WRONG_TOKENS")),
        (429, true)
    );
    let after: i64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    let bearer = format!("Bearer {wrong}");
    let with = [("authorization", bearer.as_str())];
    let (status, headers, _) =
        send_request(&api, Gate::Tokens, "GET", "/api/cluster", &with, "").await;
    assert_eq!((status, headers.contains_key("retry-after")), (429, true));
    // A token that has been right at this address goes on; another one waits, and so does a sign-in
    // with it.
    assert_eq!((get(&used).await.0, get(&fresh).await.0), (200, 429));
    let body = format!(r#"{{"token": "{fresh}"}}"#);
    let (status, ..) = send_request(&api, Gate::Tokens, "POST", "/v1/logins", &[], &body).await;
    assert_eq!(status, 429);
    api.clock.advance(Duration::from_secs(60));
    assert_eq!(get(&fresh).await.0, 200);
}

#[tokio::test]
async fn a_sign_in_ends_after_twelve_hours_and_by_signing_out() {
    let api = furnished().await;
    let admin = token(&api, "a", Role::Admin).await;
    let [first, second] = [sign_in(&api, &admin).await, sign_in(&api, &admin).await];
    assert_ne!(first, second);
    let volumes = format!("/v1/{PLACE}/volumes");
    let get = |cookie: String| {
        let (api, path) = (&api, &volumes);
        async move {
            send_request(api, Gate::Tokens, "GET", path, &[("cookie", &cookie)], "")
                .await
                .0
        }
    };
    let out = [
        ("cookie", first.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(
        send_request(&api, Gate::Tokens, "DELETE", "/v1/logins", &out[..1], "")
            .await
            .0,
        403
    );
    assert_eq!(get(first.clone()).await, 200);
    let (status, headers, _) =
        send_request(&api, Gate::Tokens, "DELETE", "/v1/logins", &out, "").await;
    assert_eq!(status, 200);
    assert!(
        headers["set-cookie"]
            .to_str()
            .unwrap()
            .contains("Max-Age=0")
    );
    assert_eq!((get(first).await, get(second.clone()).await), (401, 200));
    api.clock.advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(get(second.clone()).await, 200);
    api.clock.advance(Duration::from_secs(1));
    assert_eq!(get(second).await, 401);
}

/// A browser adds the cookie to whatever another site's page makes it send.
#[tokio::test]
async fn changes_by_cookie_come_from_a_page_of_this_server() {
    let api = furnished().await;
    let admin = token(&api, "a", Role::Admin).await;
    let cookie = sign_in(&api, &admin).await;
    let body = support::pool().to_string();
    let before = api.everything().await;
    for foreign in [
        &[][..],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://evil.example"),
        ],
    ] {
        let mut headers = vec![("cookie", cookie.as_str())];
        headers.extend(foreign);
        for (method, path) in [
            ("POST", format!("/v1/{PLACE}/storagePools?storagePoolId=n")),
            ("PATCH", format!("/v1/{PLACE}/volumes/v1?updateMask=labels")),
            ("DELETE", format!("/v1/{PLACE}/volumes/v1")),
            ("POST", "/v1/tokens?tokenId=x".to_owned()),
            ("POST", "/api/snapmirror/policies".to_owned()),
        ] {
            let (status, _, text) =
                send_request(&api, Gate::Tokens, method, &path, &headers, &body).await;
            assert_eq!(status, 403, "{method} {path} {foreign:?}: {text}");
        }
    }
    assert_eq!(api.everything().await, before);
    for own in [
        ("sec-fetch-site", "same-origin"),
        ("origin", "https://weir.example:8049"),
    ] {
        let headers = [("cookie", cookie.as_str()), own];
        let path = format!("/v1/{PLACE}/storagePools?storagePoolId=n&validateOnly=true");
        let (status, _, text) =
            send_request(&api, Gate::Tokens, "POST", &path, &headers, &body).await;
        assert_eq!(status, 200, "{own:?}: {text}");
    }
}

/// A browser cannot send a token with a stream either.
#[tokio::test]
async fn live_data_are_streamed_to_a_sign_in() {
    let api = furnished().await;
    let viewer = token(&api, "v", Role::Viewer).await;
    let cookie = sign_in(&api, &viewer).await;
    let live = std::sync::Arc::new(weir_api::live::Live::new(1 << 20, 100));
    let state = api.state.clone().with_live(live);
    for (cookie, status) in [(cookie, 200), ("__Host-weir=0".to_owned(), 401)] {
        let request = Request::builder()
            .uri("/v1/live")
            .header("host", "weir.example:8049")
            .header("cookie", cookie);
        let router = weir_api::router(state.clone(), Gate::Tokens);
        let reply = router.oneshot(request.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.unwrap().status().as_u16(), status);
    }
}

#[tokio::test]
async fn wrong_tokens_are_refused_and_slowed_down() {
    let api = furnished().await;
    let good = token(&api, "a", Role::Admin).await;
    let try_it = |body: String| {
        let api = &api;
        async move {
            send_request(api, Gate::Tokens, "POST", "/v1/logins", &[], &body)
                .await
                .0
        }
    };
    for odd in ["{}", "[]", "no JSON", r#"{"token": 1}"#] {
        assert_eq!(try_it(odd.to_owned()).await, 400, "{odd}");
    }
    assert_eq!(
        try_it(format!(r#"{{"token": "{}"}}"#, "x".repeat(5000))).await,
        400
    );
    for _ in 0..10 {
        assert_eq!(try_it(r#"{"token": "weir_wrong"}"#.to_owned()).await, 401);
    }
    let right = format!(r#"{{"token": "{good}"}}"#);
    assert_eq!(try_it(right.clone()).await, 429);
    api.clock.advance(Duration::from_secs(60));
    assert_eq!(try_it(right).await, 200);
}

#[tokio::test]
async fn on_loopback_nobody_signs_in() {
    let api = furnished().await;
    let host = [("x", "y")];
    let body = r#"{"token": "weir_x"}"#;
    let (status, _, text) =
        send_request(&api, Gate::Loopback, "POST", "/v1/logins", &host, body).await;
    // The name of another host is refused before anything else is said.
    assert_eq!((status, text.contains("FOREIGN_ORIGIN")), (403, true));
}

#[tokio::test]
async fn pages_are_served_to_everybody_with_a_strict_policy() {
    let api = furnished().await;
    for gate in [Gate::Loopback, Gate::Tokens] {
        let html = [("accept", "text/html,*/*;q=0.8")];
        let (status, headers, _) = send_request(&api, gate, "GET", "/", &html, "").await;
        assert_eq!((status, &headers["location"] == "/console/"), (302, true));
        assert_ne!(send_request(&api, gate, "GET", "/", &[], "").await.0, 302);
        // Followed from another site, the page is shown; the requests that it makes are its own.
        let followed = [("sec-fetch-site", "cross-site")];
        let (status, headers, text) =
            send_request(&api, gate, "GET", "/console/", &followed, "").await;
        assert_eq!(status, 200);
        let policy = headers["content-security-policy"].to_str().unwrap();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "require-trusted-types-for 'script'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(rule), "{rule}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["cache-control"], "no-cache");
        assert!(text.starts_with("<!doctype html>"));
        let tag = headers["etag"].to_str().unwrap().to_owned();
        let again = [("if-none-match", tag.as_str())];
        let (status, _, text) = send_request(&api, gate, "GET", "/console/", &again, "").await;
        assert_eq!((status, text.as_str()), (304, ""));
        for odd in [
            "/console/../../etc/passwd",
            "/console/none",
            "/console/%2e%2e/x",
        ] {
            assert_eq!(
                send_request(&api, gate, "GET", odd, &[], "").await.0,
                404,
                "{odd}"
            );
        }
        assert_ne!(
            send_request(&api, gate, "POST", "/console/", &[], "")
                .await
                .0,
            200
        );
    }
    for file in weir_console::FILES.iter().filter(|f| f.gzip.is_some()) {
        let path = format!("/console/{}", file.name);
        for (encoding, packed) in [("gzip, br", true), ("gzip;q=0", false), ("br", false)] {
            let headers = [("accept-encoding", encoding)];
            let (_, headers, _) =
                send_request(&api, Gate::Tokens, "GET", &path, &headers, "").await;
            assert_eq!(
                headers.contains_key("content-encoding"),
                packed,
                "{encoding}"
            );
            let hashed = headers["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable");
            assert_eq!(hashed, file.is_hashed());
        }
    }
    let request = Request::builder()
        .uri("/openapi")
        .header("host", "127.0.0.1");
    let reply = api
        .router(Gate::Loopback)
        .oneshot(request.body(Body::empty()).unwrap());
    assert!(
        reply
            .await
            .unwrap()
            .headers()
            .contains_key("content-security-policy")
    );
}

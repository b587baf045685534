//! Which requests the gates admit, and with what.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use support::{PLACE, furnished, pool};
use weir_api::Gate;
use weir_control::{Actor, Role};

/// Checks that requests of a browser for another site's page are refused on both gates, before the
/// token is checked; and so is a body that such a page could have made it send.
#[tokio::test]
async fn other_sites_pages_are_kept_out_on_every_gate() {
    let api = furnished().await;
    let admin = api
        .control
        .create_token("a", Role::Admin, &Actor::local())
        .await
        .unwrap()
        .1;
    let before = api.everything().await;
    let pools = format!("/v1/{PLACE}/storagePools?storagePoolId=n");
    let ask = |gate, method: &'static str, path: String, headers: Vec<(&str, String)>| {
        let mut b = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:8049")
            .header("authorization", format!("Bearer {admin}"));
        for (name, value) in headers {
            b = b.header(name, value);
        }
        let body = if method == "GET" {
            String::new()
        } else {
            pool().to_string()
        };
        api.send(gate, b.body(Body::from(body)).unwrap())
    };
    let json = || ("content-type", "application/json".to_owned());
    for gate in [Gate::Loopback, Gate::Tokens] {
        for foreign in [
            ("origin", "https://evil.example".to_owned()),
            ("origin", "null".to_owned()),
            ("origin", "https://127.0.0.1:9999".to_owned()),
            ("sec-fetch-site", "cross-site".to_owned()),
            ("sec-fetch-site", "same-site".to_owned()),
        ] {
            for (method, path) in [
                ("POST", pools.clone()),
                ("GET", format!("/v1/{PLACE}/volumes")),
                ("GET", "/metrics".to_owned()),
            ] {
                let (status, answer) = ask(gate, method, path, vec![foreign.clone(), json()]).await;
                assert_eq!(
                    (status, answer["error"]["status"].as_str()),
                    (403, Some("PERMISSION_DENIED")),
                    "{foreign:?}"
                );
            }
            let path = "/api/private/cli".to_owned();
            let (status, answer) = ask(gate, "POST", path, vec![foreign, json()]).await;
            assert_eq!((status, &answer["error"]["code"]), (403, &json!("6")));
        }
        for wrong in ["text/plain", "application/x-www-form-urlencoded", ""] {
            let headers = match wrong {
                "" => vec![],
                wrong => vec![("content-type", wrong.to_owned())],
            };
            let (status, answer) = ask(gate, "POST", pools.clone(), headers.clone()).await;
            assert_eq!(
                (status, answer["error"]["status"].as_str()),
                (415, Some("INVALID_ARGUMENT")),
                "{answer}"
            );
            for method in ["POST", "PATCH", "DELETE"] {
                let path = "/api/snapmirror/policies".to_owned();
                let (status, answer) = ask(gate, method, path, headers.clone()).await;
                assert_eq!(
                    (status, &answer["error"]["code"]),
                    (415, &json!("262254")),
                    "{method} {answer}"
                );
            }
        }
        // The page of this server's own.
        let own = vec![
            ("origin", "http://127.0.0.1:8049".to_owned()),
            ("sec-fetch-site", "same-origin".to_owned()),
            json(),
        ];
        let (status, answer) = ask(gate, "POST", pools.clone(), own).await;
        assert_eq!(
            status,
            if gate == Gate::Loopback { 200 } else { 409 },
            "{answer}"
        );
        if gate == Gate::Loopback {
            assert_ne!(api.everything().await, before);
        }
    }
}

/// Every path of the port, whatever API it belongs to, reads one Host, to its end.
#[tokio::test]
async fn a_malformed_or_repeated_host_is_refused_on_every_path() {
    let api = furnished().await;
    let admin = api
        .control
        .create_token("a", Role::Admin, &Actor::local())
        .await
        .unwrap()
        .1;
    let paths = [
        format!("/v1/{PLACE}/volumes"),
        "/api/cluster".to_owned(),
        "/api/private/cli".to_owned(),
        "/metrics".to_owned(),
        "/health".to_owned(),
        "/openapi".to_owned(),
    ];
    for gate in [Gate::Loopback, Gate::Tokens] {
        for path in &paths {
            for hosts in [
                &["[::1].evil"][..],
                &["[::1]:8049.evil"],
                &["127.0.0.1:8049:evil"],
                &["127.0.0.1:8049", "evil.example"],
                &["evil.example", "127.0.0.1:8049"],
                &["127.0.0.1:8049", "127.0.0.1:8049"],
            ] {
                let authorization = format!("Bearer {admin}");
                let mut request = Request::builder()
                    .uri(path)
                    .header("authorization", authorization);
                for host in hosts {
                    request = request.header("host", *host);
                }
                let (status, answer) = api.send(gate, request.body(Body::empty()).unwrap()).await;
                assert_eq!(status, 400, "{gate:?} {path} {hosts:?}: {answer}");
            }
        }
    }
}

/// A browser that is asked for Basic keeps the password and sends it along with what other pages
/// want.
#[tokio::test]
async fn nobody_is_asked_for_a_password() {
    let api = furnished().await;
    for path in [
        format!("/v1/{PLACE}/volumes"),
        "/api/cluster".into(),
        "/metrics".into(),
    ] {
        let request = Request::builder().uri(&path).body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(api.router(Gate::Tokens), request)
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 401);
        let challenges: Vec<_> = answer
            .headers()
            .get_all("www-authenticate")
            .iter()
            .collect();
        assert_eq!(challenges, ["Bearer realm=\"weir\""], "{path}");
        assert_eq!(answer.headers()["connection"], "close");
    }
}

/// A probe has no token: it learns whether the server lives and is ready, and nothing else.
#[tokio::test]
async fn probes_need_no_token_and_learn_no_details() {
    let api = furnished().await;
    let sick = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ill = std::sync::Arc::clone(&sick);
    let state = api
        .state
        .clone()
        .with_problems(std::sync::Arc::new(move || {
            let problem = |fatal| weir_api::Problem {
                about: "space",
                fatal,
                message: "a secret".to_owned(),
            };
            // A warning alone keeps it ready.
            vec![problem(ill.load(std::sync::atomic::Ordering::Relaxed))]
        }));
    let ask = |method: &'static str, path: &'static str| {
        let router = weir_api::router(state.clone(), Gate::Tokens);
        async move {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 4096)
                .await
                .unwrap();
            (status, String::from_utf8_lossy(&body).into_owned())
        }
    };
    let ok = (200, "ok\n".to_owned());
    assert_eq!(ask("GET", "/livez").await, ok);
    assert_eq!(ask("GET", "/readyz").await, ok);
    assert_eq!(ask("POST", "/livez").await.0, 401);
    assert_eq!(ask("GET", "/health").await.0, 401);
    sick.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ask("GET", "/livez").await, ok);
    assert_eq!(ask("GET", "/readyz").await, (503, "not ready\n".to_owned()));
}

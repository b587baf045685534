//! The listener itself: where it refuses to listen, and how it ends.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use std::net::TcpListener;
use support::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use weir_api::{Access, Refused, serve};

#[tokio::test]
async fn without_tokens_only_loopback_is_served() {
    let api = Api::new().await;
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = serve(
        listener,
        api.state.clone(),
        Access::Loopback,
        std::future::pending(),
    )
    .await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Refused::Open(_)));
    assert!(refused.to_string().contains("--api-tls"), "{refused}");
}

#[tokio::test]
async fn the_end_waits_for_answers_and_not_for_idle_connections() {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(
        listener,
        api.state.clone(),
        Access::Loopback,
        async {
            drop(ended.await);
        },
    ));
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    // Half a request: its response is owed when the end comes.
    let head = "POST /v1/projects/p/locations/l/storagePools?storagePoolId=p HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{";
    busy.write_all(head.as_bytes()).await.unwrap();
    // The reply shows that both connections are accepted.
    idle.write_all(b"GET /v1/projects/p/locations HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 4096];
    let n = idle.read(&mut answer).await.unwrap();
    assert!(answer[..n].starts_with(b"HTTP/1.1 200"));
    end.send(()).unwrap();
    assert_eq!(idle.read(&mut answer).await.unwrap(), 0);
    busy.write_all(b"}").await.unwrap();
    let mut text = String::new();
    busy.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// A library that speaks gRPC, over plain TCP, gets the reply in its own protocol, while the same port serves HTTP/1.
#[tokio::test]
async fn callers_over_grpc_are_told_to_use_rest() {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(
        listener,
        api.state.clone(),
        Access::Loopback,
        std::future::pending(),
    ));
    let mut caller = TcpStream::connect(address).await.unwrap();
    // In two pieces, the first of which could be POST's. Then SETTINGS, HEADERS of a call, GOAWAY.
    caller.write_all(b"P").await.unwrap();
    tokio::task::yield_now().await;
    caller
        .write_all(b"RI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    caller
        .write_all(b"\0\0\x01\x01\x05\0\0\0\x01\x82\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0")
        .await
        .unwrap();
    let mut got = Vec::new();
    caller.read_to_end(&mut got).await.unwrap();
    let text = String::from_utf8_lossy(&got);
    assert!(text.contains("grpc-status\u{2}12"), "{text}");
    assert!(text.contains("transport='rest'"), "{text}");
    let mut other = TcpStream::connect(address).await.unwrap();
    other
        .write_all(b"PUT / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    other.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 404"), "{text}");
}

/// The parser of requests keeps both values of a repeated header, so that the gate sees them.
#[tokio::test]
async fn a_repeated_host_reaches_the_gate() {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(
        listener,
        api.state.clone(),
        Access::Loopback,
        std::future::pending(),
    ));
    for (head, status) in [
        ("GET /openapi HTTP/1.1\r\nHost: localhost", 200),
        (
            "GET /openapi HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
            400,
        ),
        ("GET /openapi HTTP/1.1\r\nHost: [::1].evil", 400),
        (
            "GET http://evil.example/openapi HTTP/1.1\r\nHost: localhost",
            403,
        ),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{head}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let begin = format!("HTTP/1.1 {status} ");
        assert!(text.starts_with(&begin), "{head}: {text}");
    }
}

//! The listener itself: where it refuses to listen, and how it ends.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use weir_api::{Access, ListenError, serve};

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
    assert!(matches!(refused, ListenError::Open(_)));
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

/// The port speaks gRPC to a client whose preface says so, however it arrives, and HTTP/1 to all
/// others.
#[tokio::test]
async fn callers_over_grpc_are_served_at_the_port_of_rest() {
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
    // In two pieces, the first of which could be POST's. Then SETTINGS.
    caller.write_all(b"P").await.unwrap();
    tokio::task::yield_now().await;
    caller
        .write_all(b"RI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut head = [0; 9];
    caller.read_exact(&mut head).await.unwrap();
    assert_eq!((head[3], head[4]), (4, 0), "SETTINGS: {head:?}");
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

/// Serves metrics of so many pieces, and counts how many were made.
async fn metrics_of(pieces: usize) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let state = api.state.clone().with_metrics(Arc::new(move || {
        let counted = Arc::clone(&counted);
        Box::new((0..pieces).map(move |n| {
            counted.fetch_add(1, Ordering::SeqCst);
            piece(n)
        }))
    }));
    tokio::spawn(serve(
        listener,
        state,
        Access::Loopback,
        std::future::pending(),
    ));
    (address, made)
}

const PIECE: usize = 16 << 10;

fn piece(n: usize) -> String {
    let line = format!("weir_limit{{volume=\"volume-{n}\"}} {n}\n");
    line.repeat(PIECE / line.len())
}

async fn scrape(address: std::net::SocketAddr, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Takes the chunks (RFC 9112 §7.1) behind a reply's head apart.
fn body_of(reply: &[u8]) -> Vec<u8> {
    let head = reply.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let text = String::from_utf8_lossy(&reply[..head]).to_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{text}");
    assert!(text.contains("transfer-encoding: chunked"), "{text}");
    let (mut rest, mut body) = (&reply[head..], Vec::new());
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            assert_eq!(rest, b"\r\n");
            return body;
        }
        body.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n");
        rest = &rest[size + 2..];
    }
}

/// Metrics are made as they are taken: what is made ahead of a slow reader fits into the sockets'
/// buffers.
#[tokio::test]
async fn metrics_are_made_as_a_slow_reader_takes_them() {
    const PIECES: usize = 4096;
    /// Most that the kernel keeps for a connection over loopback, and the server in front of it.
    const AHEAD: usize = 24 << 20;
    let (address, made) = metrics_of(PIECES).await;
    let mut stream = scrape(address, "").await;
    let (mut reply, mut part) = (Vec::new(), [0; 10_007]);
    loop {
        let n = stream.read(&mut part).await.unwrap();
        if n == 0 {
            break;
        }
        reply.extend_from_slice(&part[..n]);
        let ahead = (made.load(Ordering::SeqCst) * PIECE).saturating_sub(reply.len());
        assert!(ahead < AHEAD, "{ahead} bytes are ahead of the reader");
    }
    let whole: String = (0..PIECES).map(piece).collect();
    let body = String::from_utf8(body_of(&reply)).unwrap();
    assert!(body.contains(&whole), "the page is not whole");
}

/// A page is compressed for who asks for it, and the same.
#[tokio::test]
async fn metrics_are_compressed_for_who_asks() {
    for pieces in [0, 1, 300] {
        let (address, _) = metrics_of(pieces).await;
        let whole: String = (0..pieces).map(piece).collect();
        for (accepted, compressed) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
        ] {
            let head = format!("Accept-Encoding: {accepted}\r\n");
            let mut reply = Vec::new();
            let mut stream = scrape(address, &head).await;
            stream.read_to_end(&mut reply).await.unwrap();
            let body = body_of(&reply);
            let text = String::from_utf8_lossy(&reply).to_lowercase();
            let said = text.contains("content-encoding: gzip\r\n");
            assert_eq!(said, compressed, "{accepted}");
            if !compressed {
                let body = String::from_utf8(body).unwrap();
                assert!(body.contains(&whole), "{accepted}");
                continue;
            }
            let mut plain = String::new();
            let mut unpacked = flate2::read::GzDecoder::new(&*body);
            std::io::Read::read_to_string(&mut unpacked, &mut plain).unwrap();
            // What the API itself counts is part of the page as well.
            assert!(plain.contains(&whole), "{accepted}, {pieces} pieces");
            let own = plain.len() - whole.len();
            let bound = 64 + own + whole.len() / 20;
            assert!(body.len() < bound, "{} bytes", body.len());
        }
    }
}

/// Readers that take nothing keep only so many pages begun, and leave room when they go.
#[tokio::test]
async fn readers_of_metrics_are_bounded() {
    let (address, _) = metrics_of(4096).await;
    let mut stuck = Vec::new();
    for _ in 0..weir_base::limits::api::METRICS_READERS {
        let mut stream = scrape(address, "").await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stuck.push(stream);
    }
    let mut text = String::new();
    let mut refused = scrape(address, "").await;
    refused.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 429"), "{text}");
    assert!(text.contains("TOO_MANY_READERS"), "{text}");
    drop(stuck);
    loop {
        let mut next = scrape(address, "").await;
        let mut status = [0; 12];
        next.read_exact(&mut status).await.unwrap();
        if &status == b"HTTP/1.1 200" {
            return;
        }
        tokio::task::yield_now().await;
    }
}

//! Calls over gRPC, by a client of HTTP/2 that sends what no library would.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, Response};
use h2::client::SendRequest;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use support::{Api, PLACE, furnished};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weir_api::{Access, ListenError, serve};

const LIST: &str = "/google.cloud.netapp.v1.NetApp/ListVolumes";
const GET: &str = "/google.cloud.netapp.v1.NetApp/GetVolume";

struct Server {
    api: Api,
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ListenError>>,
}

impl Server {
    async fn start() -> Server {
        let api = furnished().await;
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
        Server {
            api,
            address,
            end: Some(end),
            serving,
        }
    }

    async fn connect(&self) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        (client.ready().await.unwrap(), tokio::spawn(connection))
    }

    fn call(&self, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("http://{}{path}", self.address))
            .header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    /// The reply to a call with this body.
    async fn send_call(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        let (mut client, _connection) = self.connect().await;
        let (reply, mut sent) = client
            .send_request(self.call(path, headers), false)
            .unwrap();
        // A call that is refused by its head may be reset before its body is sent.
        drop(sent.send_data(body.into(), true));
        Reply::from_response(reply.await.unwrap()).await
    }
}

struct Reply {
    http: u16,
    head: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
}

impl Reply {
    async fn from_response(reply: Response<h2::RecvStream>) -> Reply {
        let (head, mut stream) = reply.into_parts();
        let mut body = Vec::new();
        while let Some(part) = stream.data().await {
            let part = part.unwrap();
            drop(stream.flow_control().release_capacity(part.len()));
            body.extend_from_slice(&part);
        }
        let trailers = stream.trailers().await.unwrap().unwrap_or_default();
        Reply {
            http: head.status.as_u16(),
            head: head.headers,
            body,
            trailers,
        }
    }

    /// `grpc-status` and `grpc-message`, of the trailers or of a response of trailers only.
    fn status(&self) -> (i32, &str) {
        let one = |name: &str| {
            let value = self.trailers.get(name).or_else(|| self.head.get(name));
            value.map_or("", |v| v.to_str().unwrap())
        };
        (one("grpc-status").parse().unwrap(), one("grpc-message"))
    }
}

/// A message with its prefix, whose field 1 is this text.
fn text(value: &str) -> Vec<u8> {
    let mut message = vec![0x0a, u8::try_from(value.len()).unwrap()];
    message.extend_from_slice(value.as_bytes());
    let mut out = vec![0];
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend(message);
    out
}

#[tokio::test]
async fn a_call_is_answered_by_a_message_and_trailers() {
    let server = Server::start().await;
    let reply = server.send_call(LIST, &[], text(PLACE)).await;
    assert_eq!(reply.http, 200);
    assert_eq!(reply.head["content-type"], "application/grpc");
    assert_eq!(reply.status(), (0, ""));
    assert!(!reply.head.contains_key("grpc-status"));
    let name = format!("{PLACE}/volumes/v1");
    assert!(reply.body.windows(name.len()).any(|w| w == name.as_bytes()));
    let length = u32::from_be_bytes(reply.body[1..5].try_into().unwrap());
    assert_eq!((reply.body[0], length as usize), (0, reply.body.len() - 5));
    // Other names of the media type.
    for kind in ["application/grpc+proto", "application/grpc;x=y"] {
        let reply = server
            .send_call(LIST, &[("content-type", kind)], text(PLACE))
            .await;
        assert_eq!(reply.status().0, 0);
    }
}

#[tokio::test]
async fn refusals_are_trailers_only_and_name_the_fault() {
    let server = Server::start().await;
    let body = || text(PLACE);
    let huge = || {
        let mut body = vec![0, 0, 8, 0, 0];
        body.resize(5 + (8 << 16), 0);
        body
    };
    let nothing = format!("{PLACE}/volumes/nothing");
    for (path, headers, body, code, words) in [
        ("/x/y", &[][..], body(), 12, "No such method: /x/y"),
        (GET, &[], text("v1"), 3, "Invalid value at 'name'"),
        (GET, &[], text(&nothing), 5, "was not found"),
        (LIST, &[], vec![], 13, "no message"),
        (LIST, &[], vec![0, 0, 0, 0, 9], 13, "0 bytes"),
        (LIST, &[], [body(), body()].concat(), 13, "one message"),
        (LIST, &[], vec![1, 0, 0, 0, 0], 13, "compressed"),
        (LIST, &[], vec![0, 0, 0, 0, 1, 0xff], 3, "Invalid message"),
        (LIST, &[], huge(), 8, "exceeds the limit"),
        (LIST, &[("grpc-encoding", "gzip")], body(), 12, "Compressed"),
        (LIST, &[("grpc-timeout", "soon")], body(), 3, "grpc-timeout"),
        (
            LIST,
            &[("origin", "https://evil.example")],
            body(),
            7,
            "another site",
        ),
    ] {
        let reply = server.send_call(path, headers, body).await;
        let (status, message) = reply.status();
        assert_eq!((reply.http, status), (200, code), "{path}: {message}");
        assert!(message.contains(words), "{message}");
        assert!(reply.head.contains_key("grpc-status") && reply.body.is_empty());
        assert_eq!(reply.head["grpc-accept-encoding"], "identity");
        assert!(reply.head.contains_key("grpc-status-details-bin"));
    }
    // Another site's name for this machine.
    let (mut client, _connection) = server.connect().await;
    let mut foreign = server.call(LIST, &[]);
    *foreign.uri_mut() = format!("http://evil.example{LIST}").parse().unwrap();
    let (reply, _) = client.send_request(foreign, true).unwrap();
    assert_eq!(
        Reply::from_response(reply.await.unwrap()).await.status().0,
        7
    );
    // What is no call at all.
    for kind in ["application/json", "application/grpc-web", "text/plain"] {
        let reply = server
            .send_call(LIST, &[("content-type", kind)], body())
            .await;
        assert_eq!(reply.http, 415, "{kind}");
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_whose_message_does_not_come() {
    let server = Server::start().await;
    let (mut client, _connection) = server.connect().await;
    let call = server.call(LIST, &[("grpc-timeout", "50m")]);
    let (reply, _sent) = client.send_request(call, false).unwrap();
    let reply = Reply::from_response(reply.await.unwrap()).await;
    assert_eq!(reply.status().0, 4, "{}", reply.status().1);
}

#[tokio::test]
async fn calls_share_a_connection_and_more_than_are_allowed_wait() {
    let server = Server::start().await;
    let (mut client, _connection) = server.connect().await;
    // The client knows how many calls it may begin once a reply is there.
    let (reply, mut sent) = client.send_request(server.call(LIST, &[]), false).unwrap();
    sent.send_data(text(PLACE).into(), true).unwrap();
    assert_eq!(
        Reply::from_response(reply.await.unwrap()).await.status().0,
        0
    );
    let mut replies = Vec::new();
    for _ in 0..100 {
        client = client.ready().await.unwrap();
        let (reply, mut sent) = client.send_request(server.call(LIST, &[]), false).unwrap();
        sent.send_data(text(PLACE).into(), true).unwrap();
        replies.push(tokio::spawn(async move {
            Reply::from_response(reply.await.unwrap()).await
        }));
    }
    for reply in replies {
        assert_eq!(reply.await.unwrap().status().0, 0);
    }
    let most = weir_base::limits::api::MAX_CALLS_PER_CONNECTION as usize;
    assert_eq!(client.current_max_send_streams(), most);
}

/// A client that resets what it has just asked for, again and again, loses its connection; others
/// are served meanwhile.
#[tokio::test]
async fn resets_without_end_end_the_connection() {
    let server = Server::start().await;
    let (mut client, connection) = server.connect().await;
    let mut sent = 0;
    while sent < 100_000 {
        let Ok(ready) = client.ready().await else {
            break;
        };
        client = ready;
        for _ in 0..30 {
            let Ok((_, mut stream)) = client.send_request(server.call(LIST, &[]), false) else {
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
            sent += 1;
        }
        if sent % 3000 == 0 {
            assert_eq!(server.send_call(LIST, &[], text(PLACE)).await.status().0, 0);
        }
        if connection.is_finished() {
            break;
        }
    }
    assert_eq!(server.send_call(LIST, &[], text(PLACE)).await.status().0, 0);
}

#[tokio::test]
async fn the_end_waits_for_calls_and_says_goodbye_to_idle_connections() {
    let mut server = Server::start().await;
    let (idle, idle_connection) = server.connect().await;
    let (mut busy, busy_connection) = server.connect().await;
    let (reply, mut body) = busy.send_request(server.call(LIST, &[]), false).unwrap();
    // Both connections are accepted, and the call is begun, once a reply to another one is there.
    let (other, mut sent) = busy.send_request(server.call(LIST, &[]), false).unwrap();
    sent.send_data(text(PLACE).into(), true).unwrap();
    assert_eq!(
        Reply::from_response(other.await.unwrap()).await.status().0,
        0
    );
    drop(server.end.take());
    let ended = tokio::time::timeout(Duration::from_secs(20), idle_connection).await;
    assert!(ended.unwrap().unwrap().is_ok(), "GOAWAY says no error");
    drop(idle);
    body.send_data(text(PLACE).into(), true).unwrap();
    assert_eq!(
        Reply::from_response(reply.await.unwrap()).await.status().0,
        0
    );
    drop(busy);
    drop(busy_connection);
    let ended = tokio::time::timeout(Duration::from_secs(20), &mut server.serving).await;
    ended.unwrap().unwrap().unwrap();
    drop(server.api);
}

/// Waiting ends with the time that the caller names, and with the call's deadline.
#[tokio::test]
async fn waiting_for_an_operation_is_bounded() {
    const WAIT: &str = "/google.longrunning.Operations/WaitOperation";
    let server = Server::start().await;
    // The node stops in the middle: the operation does not end.
    server.api.node.stop_in(0, false);
    let path = format!("{PLACE}/volumes?volumeId=v2");
    let made = server
        .api
        .ok("POST", &path, support::volume("v2").to_string())
        .await;
    assert_eq!(made["done"], false, "{made}");
    let name = made["name"].as_str().unwrap();
    let mut waited = text(name);
    // Field 2: a Duration of 1,000,000 ns.
    waited.extend_from_slice(&[0x12, 4, 0x10, 0xc0, 0x84, 0x3d]);
    waited[4] += 6;
    let reply = server.send_call(WAIT, &[], waited).await;
    assert_eq!(reply.status(), (0, ""));
    let shown = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(shown.contains(name) && !shown.contains("google.cloud.netapp.v1.Volume\u{12}"));
    let reply = server
        .send_call(WAIT, &[("grpc-timeout", "50m")], text(name))
        .await;
    assert_eq!(reply.status().0, 4, "{}", reply.status().1);
    server.api.node.revive();
}

//! The API of a cluster of two aggregates: where requests go, and what is said while one is away.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use support::{Api, PLACE, pool, volume};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tower::ServiceExt as _;
use weir_api::Access;
use weir_api::fleet::{AggregateSpace, Members, Reservation, Stream, Way, router, serve};
use weir_api::live::{Condition, ConditionKind, Live, Severity};
use weir_api::serve_daemon;
use weir_base::ManualClock;
use weir_control::{Actor, Role, TokenHash, TokenRecord};
use weir_ontap::Cluster as Ontap;
use weir_ontap::script::Script;

/// A server of an aggregate, at a socket.
struct Server {
    name: &'static str,
    api: Api,
    folder: tempfile::TempDir,
    /// True if nobody can connect to it.
    away: AtomicBool,
}

/// A cluster whose servers are in this process.
struct Cluster {
    servers: Vec<Server>,
    /// Names that requests have reserved.
    reserved: Mutex<Vec<String>>,
    /// Reason why the tables cannot be reached.
    outage: Mutex<Option<String>>,
}

async fn server(name: &'static str, free: u64) -> Server {
    // Operations have other names at each server.
    let api = Api::seeded(free).await;
    let live = Arc::new(Live::new(1 << 20, 0));
    let described = json!({"aggregate": {"freeBytes": free, "usedBytes": 0, "provisionedBytes": 0, "readOnly": false}});
    live.describe(
        Box::new(|_| Value::Null),
        Box::new(move |_| described.clone()),
    );
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("api")).unwrap();
    let volumes = [1, 2, 3].map(|n| format!("SVM:{name}{n}"));
    let script = Script::running(&volumes.each_ref().map(String::as_str));
    // No two volumes have one identity; those of scripts are counted from one.
    for volume in &mut script.state().volumes {
        volume
            .uuid
            .replace_range(..8, &format!("{:08x}", free >> 40));
    }
    let script: Arc<dyn Ontap> = Arc::new(script);
    let state = api.state.clone().with_live(live);
    let state = state.with_ontap(Arc::new(move |_: &Actor| Arc::clone(&script)));
    tokio::spawn(serve_daemon(listener, state, std::future::pending()));
    Server {
        name,
        api,
        folder,
        away: AtomicBool::new(false),
    }
}

async fn cluster() -> Arc<Cluster> {
    Arc::new(Cluster {
        servers: vec![server("a", 1 << 40).await, server("b", 2 << 40).await],
        reserved: Mutex::default(),
        outage: Mutex::default(),
    })
}

impl Cluster {
    fn server(&self, name: &str) -> &Server {
        self.servers.iter().find(|one| one.name == name).unwrap()
    }

    fn set_away(&self, name: &str, away: bool) {
        self.server(name).away.store(away, Ordering::Relaxed);
    }

    /// Asks a node that has not seen anything yet.
    async fn send_request(self: &Arc<Self>, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, _, body) = self.ask_with(method, path, body, &[], true).await;
        (status, body)
    }

    async fn ask_with(
        self: &Arc<Self>,
        method: &str,
        path: &str,
        body: Value,
        headers: &[(&str, &str)],
        open: bool,
    ) -> (u16, HeaderMap, Value) {
        let clock = Arc::new(ManualClock::default());
        let node = router(Arc::clone(self) as Arc<dyn Members>, clock, open);
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/v1/{PLACE}/{path}"),
        };
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", "127.0.0.1:8049");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Value::Null => Body::empty(),
            body => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
        };
        let reply = node.oneshot(request.body(body).unwrap()).await.unwrap();
        let (head, body) = reply.into_parts();
        let bytes = to_bytes(body, 64 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (head.status.as_u16(), head.headers, value)
    }

    async fn ok(self: &Arc<Self>, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.send_request(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        assert_eq!(answer.get("error"), None, "{method} {path}: {answer}");
        answer
    }

    async fn names(self: &Arc<Self>, path: &str) -> Vec<String> {
        let answer = self.ok("GET", path, Value::Null).await;
        let all = answer.as_object().unwrap().values();
        let all = all.filter_map(Value::as_array).flatten();
        let name = |one: &Value| {
            one["name"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        };
        all.map(name).collect()
    }
}

impl Members for Cluster {
    fn aggregates(&self) -> Vec<String> {
        self.servers.iter().map(|one| one.name.to_owned()).collect()
    }

    fn ways(&self, _aggregate: &str, _here: bool) -> Vec<Way> {
        vec![Way::Here]
    }

    fn connect<'a>(
        &'a self,
        aggregate: &'a str,
        _way: &'a Way,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let server = self.server(aggregate);
            if server.away.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let stream = UnixStream::connect(server.folder.path().join("api")).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn place(&self, rooms: &[AggregateSpace]) -> Result<String, String> {
        let best = rooms.iter().max_by_key(|room| room.free);
        best.map(|room| room.aggregate.clone())
            .ok_or("none".to_owned())
    }

    fn reserve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Reservation>, String>> {
        Box::pin(async move {
            if let Some(why) = self.outage.lock().unwrap().clone() {
                return Err(why);
            }
            let mut reserved = self.reserved.lock().unwrap();
            let free = !reserved.iter().any(|one| one == name);
            reserved.push(name.to_owned());
            Ok(free.then(|| Box::new(()) as Box<dyn Any + Send>))
        })
    }

    fn holder(&self, token: &TokenHash) -> Option<(Arc<str>, Role)> {
        let is = |secret: &str| *token == TokenHash::from_secret(secret);
        match () {
            () if is("edits") => Some(("ed".into(), Role::Editor)),
            () if is("views") => Some(("vi".into(), Role::Viewer)),
            () => None,
        }
    }

    fn tokens(&self) -> BoxFuture<'_, Result<Vec<TokenRecord>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn create_token<'a>(
        &'a self,
        _name: &'a str,
        _role: Role,
        _lifetime: Option<Duration>,
        _by: &'a str,
    ) -> BoxFuture<'a, Result<Option<(TokenRecord, String)>, String>> {
        Box::pin(std::future::ready(Err("away".to_owned())))
    }

    fn delete_token<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(std::future::ready(Ok(name == "t")))
    }

    fn metrics(&self) -> String {
        "weir_cluster_leads 1\n".to_owned()
    }

    fn conditions(&self) -> Vec<Condition> {
        let kind = ConditionKind::StandbyMissing;
        let one = Condition::new(kind, Severity::Warning, "aggregates/a", "Alone", "Wait");
        vec![one]
    }

    fn describe(&self) -> Value {
        json!({"leader": "n1"})
    }
}

fn new_pool(aggregate: Option<&str>) -> Value {
    let mut body = pool();
    if let Some(aggregate) = aggregate {
        body["labels"] = json!({"weir-aggregate": aggregate});
    }
    body
}

async fn has_resource(server: &Server, path: &str) -> bool {
    let (status, _) = server
        .api
        .send_request("GET", &format!("{PLACE}/{path}"), "")
        .await;
    status == 200
}

#[tokio::test]
async fn new_resources_are_placed_and_found_again_at_any_node() {
    let cluster = cluster().await;
    let (a, b) = (cluster.server("a"), cluster.server("b"));
    cluster
        .ok("POST", "storagePools?storagePoolId=big", new_pool(None))
        .await;
    assert!(
        has_resource(b, "storagePools/big").await && !has_resource(a, "storagePools/big").await
    );
    cluster
        .ok("POST", "storagePools?storagePoolId=mq", new_pool(Some("a")))
        .await;
    assert!(has_resource(a, "storagePools/mq").await);
    // A volume goes where its pool is.
    let made = cluster
        .ok("POST", "volumes?volumeId=v1", volume("v1"))
        .await;
    assert!(has_resource(a, "volumes/v1").await);
    // Its operation, and it, at a node that knows nothing of them.
    let operation = made["name"].as_str().unwrap();
    let found = cluster
        .ok("GET", &format!("/v1/{operation}"), Value::Null)
        .await;
    assert_eq!(found["name"], made["name"]);
    let change = json!({"description": "changed"});
    cluster
        .ok("PATCH", "volumes/v1?updateMask=description", change)
        .await;
    let shown = cluster.ok("GET", "volumes/v1", Value::Null).await;
    assert_eq!(shown["description"], "changed");
    cluster
        .ok("POST", "volumes/v1/snapshots?snapshotId=s", json!({}))
        .await;
    assert_eq!(cluster.names("volumes/v1/snapshots").await, ["s"]);
    cluster
        .ok("DELETE", "volumes/v1?force=true", Value::Null)
        .await;
    let (status, answer) = cluster.send_request("GET", "volumes/v1", Value::Null).await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (404, &json!("NOT_FOUND"))
    );
}

#[tokio::test]
async fn a_name_of_another_aggregate_is_taken() {
    let cluster = cluster().await;
    cluster
        .ok("POST", "storagePools?storagePoolId=p", new_pool(Some("a")))
        .await;
    cluster.reserved.lock().unwrap().clear();
    let again = new_pool(Some("b"));
    let (status, answer) = cluster
        .send_request("POST", "storagePools?storagePoolId=p", again.clone())
        .await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (409, &json!("ALREADY_EXISTS")),
        "{answer}"
    );
    assert!(!has_resource(cluster.server("b"), "storagePools/p").await);
    // Another request creates it at this moment.
    let (status, answer) = cluster
        .send_request("POST", "storagePools?storagePoolId=p", again)
        .await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (409, &json!("ABORTED")),
        "{answer}"
    );
    let wrong = new_pool(Some("c"));
    let (status, answer) = cluster
        .send_request("POST", "storagePools?storagePoolId=q", wrong)
        .await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (400, &json!("INVALID_ARGUMENT"))
    );
    // A resource that others will refer to has to say where it is.
    let (status, _) = cluster
        .send_request("POST", "backupVaults?backupVaultId=v", json!({}))
        .await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn lists_are_merged_page_by_page() {
    let cluster = cluster().await;
    for (n, aggregate) in ["a", "b", "b", "a", "b"].into_iter().enumerate() {
        let path = format!("storagePools?storagePoolId=p{n}");
        let mut body = new_pool(Some(aggregate));
        body["description"] = json!(format!("d{}", n % 2));
        cluster.ok("POST", &path, body).await;
    }
    assert_eq!(
        cluster.names("storagePools").await,
        ["p0", "p1", "p2", "p3", "p4"]
    );
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("storagePools?pageSize=2&orderBy=description%20desc&pageToken={token}");
        let page = cluster.ok("GET", &path, Value::Null).await;
        assert_eq!(page.get("unreachable"), None);
        pages.push(page["storagePools"].as_array().unwrap().len());
        token = page["nextPageToken"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [2, 2, 1]);
    let filtered = "storagePools?filter=description%3Dd1";
    assert_eq!(cluster.names(filtered).await, ["p1", "p3"]);
    let (status, _) = cluster
        .send_request("GET", "storagePools?filter=(", Value::Null)
        .await;
    assert_eq!(status, 400);
    assert_eq!(cluster.names("operations").await.len(), 5);
    let locations = cluster
        .ok("GET", "/v1/projects/p1/locations", Value::Null)
        .await;
    assert_eq!(locations["locations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_aggregate_that_is_away_is_said_to_be() {
    let cluster = cluster().await;
    for aggregate in ["a", "b"] {
        let path = format!("storagePools?storagePoolId=in-{aggregate}");
        cluster.ok("POST", &path, new_pool(Some(aggregate))).await;
    }
    cluster.set_away("b", true);
    let list = cluster.ok("GET", "storagePools", Value::Null).await;
    assert_eq!(list["storagePools"].as_array().unwrap().len(), 1);
    assert_eq!(
        list["unreachable"],
        json!([format!("{PLACE}/aggregates/b")])
    );
    // Resources that are there go on; those that may be in the other one cannot be told.
    cluster.ok("GET", "storagePools/in-a", Value::Null).await;
    let change = json!({"description": "x"});
    cluster
        .ok(
            "PATCH",
            "storagePools/in-a?updateMask=description",
            change.clone(),
        )
        .await;
    for (method, path, body) in [
        ("PATCH", "storagePools/in-b?updateMask=description", change),
        ("GET", "storagePools/in-b", Value::Null),
        ("GET", "volumes/unknown", Value::Null),
        ("POST", "storagePools?storagePoolId=new", new_pool(None)),
    ] {
        let (status, answer) = cluster.send_request(method, path, body).await;
        let error = &answer["error"];
        assert_eq!(
            (status, &error["status"]),
            (503, &json!("UNAVAILABLE")),
            "{method} {path}"
        );
        assert!(
            error["message"].as_str().unwrap().contains("Aggregate b"),
            "{answer}"
        );
    }
    cluster.set_away("a", true);
    assert_eq!(
        cluster
            .send_request("GET", "storagePools", Value::Null)
            .await
            .0,
        503
    );
}

#[tokio::test]
async fn without_the_tables_everything_goes_on_but_placement() {
    let cluster = cluster().await;
    cluster
        .ok("POST", "storagePools?storagePoolId=mq", new_pool(Some("a")))
        .await;
    let why = "PostgreSQL has not answered for 5 s: refused";
    *cluster.outage.lock().unwrap() = Some(why.to_owned());
    let (status, answer) = cluster
        .send_request("POST", "storagePools?storagePoolId=x", new_pool(None))
        .await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(status, 503);
    assert!(
        message.contains(why) && message.contains("weir-aggregate"),
        "{message}"
    );
    cluster
        .ok("POST", "volumes?volumeId=v1", volume("v1"))
        .await;
    cluster
        .ok("POST", "storagePools?storagePoolId=y", new_pool(Some("b")))
        .await;
    assert_eq!(cluster.names("storagePools").await, ["mq", "y"]);
}

#[tokio::test]
async fn callers_are_known_to_the_servers() {
    let cluster = cluster().await;
    let with = |token: &str| format!("Bearer {token}");
    for (token, wanted) in [("views", 403), ("edits", 200), ("other", 401)] {
        let path = "storagePools?storagePoolId=p";
        let proof = with(token);
        let headers = [("authorization", proof.as_str())];
        let (status, ..) = cluster
            .ask_with("POST", path, new_pool(Some("a")), &headers, false)
            .await;
        assert_eq!(status, wanted, "{token}");
        cluster.reserved.lock().unwrap().clear();
    }
    let (status, headers, _) = cluster
        .ask_with("GET", "storagePools", Value::Null, &[], false)
        .await;
    assert_eq!(status, 401);
    assert_eq!(headers["connection"], "close");
    // The audit log of the server names the holder of the token, and not the node.
    let log = cluster.server("a").api.ok("GET", "auditEntries", "").await;
    let entries = log["auditEntries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["actor"] == "ed"), "{log}");
    // A client of the daemon cannot name another caller.
    let forged = [("weir-actor", "admin - root")];
    let (status, ..) = cluster
        .ask_with("GET", "storagePools", Value::Null, &forged, false)
        .await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_server_can_be_asked_by_its_aggregate() {
    let cluster = cluster().await;
    cluster
        .ok("POST", "storagePools?storagePoolId=p", new_pool(Some("b")))
        .await;
    let list = |name: &str| format!("/aggregates/{name}/v1/{PLACE}/storagePools");
    assert_eq!(cluster.names(&list("b")).await, ["p"]);
    let own = cluster.ok("GET", &list("a"), Value::Null).await;
    assert_eq!(own, json!({}));
    assert_eq!(
        cluster.send_request("GET", &list("c"), Value::Null).await.0,
        404
    );
    let (status, answer) = cluster
        .send_request("GET", "/v1/auditEntries", Value::Null)
        .await;
    assert_eq!(status, 400, "{answer}");
    cluster
        .ok("GET", "/aggregates/a/v1/auditEntries", Value::Null)
        .await;
    // Between nodes: the one that serves nothing says so, in a way that the other one understands.
    cluster.set_away("b", true);
    let hop = [("weir-hop", "1")];
    let (status, headers, _) = cluster
        .ask_with("GET", &list("b"), Value::Null, &hop, true)
        .await;
    assert_eq!(status, 503);
    assert!(headers.contains_key("weir-not-served"));
}

#[tokio::test]
async fn the_cluster_describes_itself() {
    let cluster = cluster().await;
    let server = cluster.ok("GET", "/v1/server", Value::Null).await;
    assert_eq!(server["cluster"]["leader"], "n1");
    assert_eq!(server["caller"]["role"], "ADMIN");
    let conditions = cluster.ok("GET", "/v1/conditions", Value::Null).await;
    assert_eq!(conditions["severity"], "WARNING", "{conditions}");
    assert_eq!(conditions["conditions"][0]["resource"], "aggregates/a");
    let (status, metrics) = cluster.send_request("GET", "/metrics", Value::Null).await;
    assert_eq!(status, 200);
    assert!(
        metrics
            .as_str()
            .unwrap()
            .starts_with("weir_cluster_leads 1\n")
    );
    let (status, answer) = cluster
        .send_request("POST", "/v1/tokens?tokenId=t", json!({"role": "ADMIN"}))
        .await;
    assert_eq!(status, 503, "{answer}");
    assert_eq!(
        cluster
            .send_request("DELETE", "/v1/tokens/t", Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(
        cluster
            .send_request("DELETE", "/v1/tokens/u", Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn records_of_all_servers_are_one_list_of_ontap() {
    let cluster = cluster().await;
    let all = ["a1", "a2", "a3", "b1", "b2", "b3"];
    let mut next = "/api/storage/volumes?max_records=2&fields=name".to_owned();
    let (mut pages, mut names) = (0, Vec::new());
    loop {
        let page = cluster.ok("GET", &next, Value::Null).await;
        let records = page["records"].as_array().unwrap();
        assert_eq!(page["num_records"], records.len());
        names.extend(
            records
                .iter()
                .map(|r| r["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        match page.pointer("/_links/next/href") {
            Some(href) => next = href.as_str().unwrap().to_owned(),
            None => break,
        }
    }
    names.sort_unstable();
    assert_eq!(
        (names.iter().map(String::as_str).collect::<Vec<_>>(), pages),
        (all.to_vec(), 3)
    );
    let whole = cluster
        .ok("GET", "/api/storage/volumes?name=*", Value::Null)
        .await;
    assert_eq!(whole["num_records"], 6);
    // One machine of each server, under the same name and so the same identity.
    let machines = cluster
        .ok("GET", "/api/svm/svms?name=SVM", Value::Null)
        .await;
    assert_eq!(machines["num_records"], 1);
    let counted = "/api/storage/volumes?return_records=false";
    assert_eq!(
        cluster.ok("GET", counted, Value::Null).await["num_records"],
        6
    );
    // One record, by its identity, wherever it is.
    let records = whole["records"].as_array().unwrap();
    let b2 = records.iter().find(|r| r["name"] == "b2").unwrap();
    let path = format!("/api/storage/volumes/{}", b2["uuid"].as_str().unwrap());
    assert_eq!(cluster.ok("GET", &path, Value::Null).await["name"], "b2");
    let comment = json!({"comment": "changed"});
    let (status, answer) = cluster.send_request("PATCH", &path, comment).await;
    assert!(status < 300, "{answer}");
    let unknown = "/api/storage/volumes/00000000-0000-0000-0000-000000000000";
    assert_eq!(
        cluster.send_request("GET", unknown, Value::Null).await.0,
        404
    );
    // A new one has to say where it goes.
    let nowhere = json!({"name": "new", "size": 1 << 30, "svm": {"name": "SVM"}});
    let (status, answer) = cluster
        .send_request("POST", "/api/storage/volumes", nowhere)
        .await;
    assert_eq!(status, 400, "{answer}");
    cluster.set_away("b", true);
    assert_eq!(
        cluster
            .send_request("GET", "/api/storage/volumes", Value::Null)
            .await
            .0,
        503
    );
}

/// The status and the body of a call over gRPC whose message has this text as field 1.
async fn call(address: std::net::SocketAddr, method: &str, text: &str) -> (i32, Vec<u8>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let path = format!("http://{address}/google.cloud.netapp.v1.NetApp/{method}");
    let request = Request::builder().method("POST").uri(path);
    let request = request.header("content-type", "application/grpc");
    let request = request.header("te", "trailers").body(()).unwrap();
    let mut client = client.ready().await.unwrap();
    let (reply, mut sent) = client.send_request(request, false).unwrap();
    let length = u8::try_from(text.len()).unwrap();
    let mut message = vec![0, 0, 0, 0, length + 2, 0x0a, length];
    message.extend_from_slice(text.as_bytes());
    sent.send_data(message.into(), true).unwrap();
    let (head, mut stream) = reply.await.unwrap().into_parts();
    let mut body = Vec::new();
    while let Some(part) = stream.data().await {
        body.extend_from_slice(&part.unwrap());
    }
    let trailers = stream.trailers().await.unwrap().unwrap_or_default();
    let status = trailers
        .get("grpc-status")
        .or(head.headers.get("grpc-status"));
    (status.unwrap().to_str().unwrap().parse().unwrap(), body)
}

#[tokio::test]
async fn calls_over_grpc_go_where_requests_go() {
    let cluster = cluster().await;
    for (pool, aggregate) in [("in-a", "a"), ("in-b", "b")] {
        let path = format!("storagePools?storagePoolId={pool}");
        cluster.ok("POST", &path, new_pool(Some(aggregate))).await;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let members = Arc::clone(&cluster) as Arc<dyn Members>;
    let clock = Arc::new(ManualClock::default());
    let end = std::future::pending::<()>();
    tokio::spawn(serve(listener, members, clock, Access::Loopback, end));
    let (status, body) = call(address, "ListStoragePools", PLACE).await;
    assert_eq!(status, 0);
    let has = |text: &str| body.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("storagePools/in-a") && has("storagePools/in-b"));
    let named = |id: &str| format!("{PLACE}/storagePools/{id}");
    assert_eq!(call(address, "GetStoragePool", &named("in-b")).await.0, 0);
    assert_eq!(call(address, "GetStoragePool", &named("none")).await.0, 5);
    cluster.set_away("b", true);
    assert_eq!(call(address, "GetStoragePool", &named("none")).await.0, 14);
}

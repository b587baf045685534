//! The router over a control plane of its own, on a simulated node.

#![allow(dead_code)] // Each test program uses a part of it.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;
use weir_api::{AppState, Gate, router};
use weir_base::{ManualClock, SeededRng};
use weir_control::sim::SimBackend;
use weir_control::{Control, Levels, Options};

pub const PLACE: &str = "projects/p1/locations/us-central1";

pub struct Api {
    pub control: Arc<Control>,
    pub state: AppState,
    pub clock: Arc<ManualClock>,
    pub node: SimBackend,
    _folder: tempfile::TempDir,
}

impl Api {
    pub async fn new() -> Api {
        Api::seeded(1).await
    }

    /// One whose identifiers are those of the seed.
    pub async fn seeded(seed: u64) -> Api {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let node = SimBackend::new();
        let control = Control::open(Options {
            catalog: format!("sqlite://{}/catalog.db", folder.path().display()),
            levels: Levels::built_in().unwrap(),
            instance_addresses: None,
            backend: Arc::new(node.clone()),
            clock: clock.clone(),
            rng: Arc::new(SeededRng::new(seed)),
            device_bytes: 1 << 40,
            copy: None,
            first_place: weir_control::LocationName::local(),
        })
        .await
        .unwrap();
        let at = weir_api::Mounts {
            nfs: "10.1.2.3:2049".parse().unwrap(),
            smb: Some(445),
            registered: true,
        };
        Api {
            state: AppState::new(Arc::clone(&control), at),
            control,
            clock,
            node,
            _folder: folder,
        }
    }

    pub fn router(&self, gate: Gate) -> Router {
        router(self.state.clone(), gate)
    }

    /// Status and body of a response.
    pub async fn send(&self, gate: Gate, request: Request<Body>) -> (u16, Value) {
        let answer = self.router(gate).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 64 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    pub async fn send_request(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> (u16, Value) {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/v1/{path}")
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:8049")
            .header("content-type", "application/json")
            .body(body.into())
            .unwrap();
        self.send(Gate::Loopback, request).await
    }

    pub async fn ok(&self, method: &str, path: &str, body: impl Into<Body>) -> Value {
        let (status, answer) = self.send_request(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// The response of an operation that has ended well.
    pub async fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let op = self.ok(method, path, body.to_string()).await;
        assert_eq!(op["done"], true, "{op}");
        assert_eq!(op.get("error"), None, "{op}");
        op["response"].clone()
    }

    /// Everything that a mutation could have changed.
    pub async fn everything(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for c in ["storagePools", "volumes", "instances", "operations"] {
            all.push(
                self.ok("GET", &format!("projects/p1/locations/-/{c}"), "")
                    .await,
            );
        }
        all
    }
}

pub fn pool() -> Value {
    json!({"serviceLevel": "PREMIUM", "capacityGib": "40960", "qosType": "MANUAL",
           "network": "projects/p1/global/networks/default"})
}

pub fn volume(share: &str) -> Value {
    json!({"storagePool": "mq", "shareName": share, "capacityGib": 1024, "protocols": ["NFSV3"], "throughputMibps": 128.0})
}

/// With a pool, a volume and an instance.
pub async fn furnished() -> Api {
    let api = Api::new().await;
    api.done(
        "POST",
        &format!("{PLACE}/storagePools?storagePoolId=mq"),
        pool(),
    )
    .await;
    api.done(
        "POST",
        &format!("{PLACE}/volumes?volumeId=v1"),
        volume("v1"),
    )
    .await;
    let instance =
        json!({"tier": "BASIC_HDD", "fileShares": [{"name": "i1", "capacityGb": "1024"}]});
    api.done(
        "POST",
        &format!("{PLACE}/instances?instanceId=i1"),
        instance,
    )
    .await;
    api
}

//! ONTAP's interface over a cluster that only remembers.

#![allow(dead_code)] // Each test program uses a part of it.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::Value;
use tower::ServiceExt as _;
use weir_api::{Gate, router};
use weir_control::Actor;
use weir_ontap::Cluster;
use weir_ontap::cluster::Change;
use weir_ontap::script::Script;
use weir_relations::manager::Verb;

use crate::support::Api;

pub struct Node {
    pub api: Api,
    pub script: Arc<Script>,
}

pub struct Answer {
    pub status: u16,
    pub location: String,
    pub body: Value,
}

impl Node {
    pub async fn from_script(script: Script) -> Node {
        let mut api = Api::new().await;
        let script = Arc::new(script);
        let cluster: Arc<dyn Cluster> = Arc::clone(&script) as _;
        api.state = api
            .state
            .with_ontap(Arc::new(move |_: &Actor| Arc::clone(&cluster)));
        Node { api, script }
    }

    pub async fn send_request(&self, method: &str, path: &str, body: Value) -> Answer {
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/{path}"))
            .header("host", "127.0.0.1:8049")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let service = router(self.api.state.clone(), Gate::Loopback);
        let answer = service.oneshot(request).await.unwrap();
        let location = answer.headers().get("location");
        let location = location.map_or("", |l| l.to_str().unwrap()).to_owned();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        Answer {
            status,
            location,
            body: serde_json::from_slice(&body).unwrap(),
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.send_request("GET", path, Value::Null).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    /// A change that has to be made; its job has to have ended well.
    pub async fn done(&self, method: &str, path: &str, body: Value) -> Answer {
        let answer = self.send_request(method, path, body).await;
        assert!(
            [200, 201, 202].contains(&answer.status),
            "{path}: {}",
            answer.body
        );
        // What ONTAP makes at once has no job.
        if let Some(href) = answer.body["job"]["_links"]["self"]["href"].as_str() {
            let job = self.get(href.strip_prefix("/api/").unwrap()).await;
            assert_eq!(job["state"], "success");
        }
        answer
    }

    pub async fn refused(&self, method: &str, path: &str, body: Value, status: u16, code: &str) {
        let answer = self.send_request(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(
            answer.body["error"]["code"], code,
            "{method} {path}: {}",
            answer.body
        );
        assert!(
            answer.body["error"]["message"]
                .as_str()
                .is_some_and(|m| !m.is_empty())
        );
    }

    pub fn last(&self) -> Verb {
        match self.script.state().changes.last() {
            Some(Change::Relation(verb)) => verb.clone(),
            other => panic!("{other:?}"),
        }
    }
}

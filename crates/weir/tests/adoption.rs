//! A data folder of a program that had no catalog: its volumes are served as they were, and are
//! what the API shows.

#![allow(clippy::unwrap_used)] // Tests fail loudly.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::Server;
use common::api::{Api, PLACE};
use common::caller::Caller;
use serde_json::json;
use weir_base::{Rng, SystemClock, SystemRng};
use weir_store::aggregate::FolderLocation;
use weir_store::{Aggregate, Env, FramePool};
use weir_volume::{Engine, EngineContext, EngineOptions, SetAttr};

/// An aggregate with these volumes, each with a directory `old-NAME`, and without a catalog.
fn old_folder(data: &Path, names: &[&str]) {
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let env = Env {
        pool: FramePool::new(4096).unwrap(),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::clone(&rng),
    };
    let now = env.clock.current_time();
    let location = FolderLocation {
        max_blocks: 1 << 16,
        device_blocks: 1 << 14,
        ..FolderLocation::new(data)
    };
    let (aggregate, replay) = Aggregate::open_or_create(&location.into(), env).unwrap();
    let engine = Engine::open(aggregate, replay, &*rng, EngineOptions::default()).unwrap();
    for name in names {
        let volume = engine
            .create_volume(name, (0, 0), 0o751, now, &*rng)
            .unwrap();
        let dir = format!("old-{name}");
        let mut cx = EngineContext::new(now);
        volume
            .drive_blocking(&mut cx, |cx| {
                volume.mkdir(cx, volume.root(), dir.as_bytes(), &SetAttr::default())
            })
            .unwrap();
    }
    engine.shutdown().unwrap();
}

#[test]
fn volumes_of_an_older_program_are_served_as_they_were() {
    let data = tempfile::tempdir().unwrap();
    old_folder(data.path(), &["vol1", "home"]);
    for _ in 0..2 {
        // The second start finds the catalog that the first one made.
        let server = Server::start(data.path(), &[]);
        let api = Api(server.api.unwrap());
        let mut caller = Caller::connect(server.address, "127.0.0.1");
        for name in ["vol1", "home"] {
            let root = caller.mount(&format!("/{name}")).unwrap();
            assert_eq!(caller.getattr(&root), Ok(0o751));
            let exists = 17;
            assert_eq!(caller.mkdir(&root, &format!("old-{name}")), Err(exists));
        }
        let (_, shown) = api.get(&format!("{PLACE}/volumes"));
        let volumes = shown["volumes"].as_array().unwrap();
        let named: Vec<&str> = volumes
            .iter()
            .map(|v| v["name"].as_str().unwrap().rsplit('/').next().unwrap())
            .collect();
        assert_eq!(named, ["home", "vol1"]);
        for volume in volumes {
            assert_eq!(
                (&volume["state"], &volume["storagePool"]),
                (&json!("READY"), &json!("default"))
            );
        }
        server.stop();
    }

    // From then on they are volumes like others: deleted, they stay so.
    let server = Server::start(data.path(), &[]);
    let api = Api(server.api.unwrap());
    api.must("DELETE", &Api::volume("home"), &serde_json::Value::Null);
    server.kill();
    let server = Server::start(data.path(), &[]);
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    assert!(caller.mount("/vol1").is_ok());
    let no_entry = 2;
    assert_eq!(caller.mount("/home"), Err(no_entry));
    let api = Api(server.api.unwrap());
    assert_eq!(api.get(&Api::volume("home")).0, 404);
}

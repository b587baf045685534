//! Failures of the node and of the catalog.

use super::*;
use crate::backend::BackendError;
use crate::sim::Fault;
use crate::{Catalog, NewSnapshot, OpenError, Refusal, Role, State, Status, VolumeChange};
use sqlx::Connection;

pub async fn sql(url: &str, statement: &str) {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    sqlx::query(statement)
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

fn failed(operation: &Operation) -> &Refusal {
    match &operation.outcome {
        Some(Outcome::Failed(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn failure() -> BackendError {
    BackendError::Failed("device error".to_owned())
}

async fn with_volume() -> Bench {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    bench.done(volume("v", "p", 10)).await;
    bench
}

fn grow() -> Mutation {
    let change = VolumeChange {
        capacity_gib: Some(20),
        ..VolumeChange::default()
    };
    Mutation::UpdateVolume(vol("v"), change)
}

#[tokio::test]
async fn a_fault_that_passes_is_not_noticed() {
    let bench = with_volume().await;
    for call in [
        "create_volume",
        "set_capacity",
        "snapshot_create",
        "revert",
        "snapshot_delete",
        "delete_volume",
        "publish",
    ] {
        bench.node.inject(call, Fault::Before(failure()));
    }
    // The second time, after the work was done: the job is run again and finds it done.
    for call in ["set_capacity", "snapshot_create", "delete_volume"] {
        bench.node.inject(call, Fault::After(failure()));
    }
    let snapshot = vol("v").snapshot("s");
    bench.done(volume("w", "p", 1)).await;
    bench.done(grow()).await;
    bench
        .done(Mutation::CreateSnapshot(
            snapshot.clone(),
            NewSnapshot::default(),
        ))
        .await;
    bench
        .done(Mutation::RevertVolume {
            name: vol("v"),
            snapshot: "s".to_owned(),
        })
        .await;
    bench.done(Mutation::DeleteSnapshot(snapshot)).await;
    bench
        .done(Mutation::DeleteVolume {
            name: vol("v"),
            force: false,
        })
        .await;
    crash::sound(
        &bench.control.view(),
        &bench.node,
        "after faults that passed",
    );
}

#[tokio::test]
async fn a_creation_without_room_leaves_nothing() {
    let mut bench = with_volume().await;
    let full = BackendError::NoSpace("no space left on the device".to_owned());
    bench
        .node
        .inject("create_volume", Fault::After(full.clone()));
    let operation = bench.submit(volume("w", "p", 1)).await.unwrap();
    assert_eq!(failed(&operation).status, Status::ResourceExhausted);
    assert!(bench.control.view().volume(&vol("w")).is_none());
    crash::sound(&bench.control.view(), &bench.node, "no room");
    // The half-created volume cannot be deleted either: that is done later, by the next start at
    // the latest.
    bench.node.inject("create_volume", Fault::After(full));
    bench.node.inject("delete_volume", Fault::Before(failure()));
    bench.submit(volume("w", "p", 1)).await.unwrap();
    let engine = bench.node.list_volumes().len();
    assert_eq!(engine, bench.control.view().volume_count() + 1);
    bench.restart(3).await;
    crash::sound(&bench.control.view(), &bench.node, "pending_delete");
    bench.done(volume("w", "p", 1)).await;
}

#[tokio::test]
async fn what_the_node_refuses_to_delete_is_served_on() {
    let bench = with_volume().await;
    let busy = BackendError::Precondition("volume has clones".to_owned());
    bench
        .node
        .inject("delete_volume", Fault::Before(busy.clone()));
    let delete = Mutation::DeleteVolume {
        name: vol("v"),
        force: false,
    };
    let operation = bench.submit(delete.clone()).await.unwrap();
    assert_eq!(failed(&operation).status, Status::FailedPrecondition);
    let view = bench.control.view();
    let v = view.volume(&vol("v")).unwrap();
    assert_eq!(v.state, State::Ready);
    assert!(v.state_details.contains("volume has clones"), "{v:?}");
    let snapshot = vol("v").snapshot("s");
    bench
        .done(Mutation::CreateSnapshot(
            snapshot.clone(),
            NewSnapshot::default(),
        ))
        .await;
    crash::sound(&bench.control.view(), &bench.node, "served on");
    let mut clone = new_volume("c", "p", 100);
    clone.clone_of = Some(snapshot.clone());
    bench.done(Mutation::CreateVolume(vol("c"), clone)).await;
    bench.node.inject("snapshot_delete", Fault::Before(busy));
    let operation = bench
        .submit(Mutation::DeleteSnapshot(snapshot.clone()))
        .await
        .unwrap();
    let refusal = failed(&operation);
    assert_eq!(refusal.reason, "ENGINE_PRECONDITION");
    let way_out = "volume has clones: c (split each clone, such as with `weir volumes split c`";
    assert!(refusal.message.contains(way_out), "{refusal:?}");
    let view = bench.control.view();
    assert_eq!(view.snapshot(&snapshot).unwrap().state, State::Ready);
    let name = vol("c");
    let force = false;
    bench.done(Mutation::DeleteVolume { name, force }).await;
    bench.done(Mutation::DeleteSnapshot(snapshot)).await;
    bench.done(delete).await;
}

#[tokio::test]
async fn a_capacity_that_the_node_does_not_take_is_tried_again() {
    let bench = with_volume().await;
    for _ in 0..4 {
        bench.node.inject("set_capacity", Fault::Before(failure()));
    }
    let operation = bench.submit(grow()).await.unwrap();
    assert_eq!(failed(&operation).reason, "ENGINE_FAILED");
    let view = bench.control.view();
    let v = view.volume(&vol("v")).unwrap();
    assert_eq!(
        (v.state, v.capacity_gib),
        (State::Error, 20),
        "the intention stands"
    );
    assert!(v.state_details.contains("device error"));
    let served = bench.node.published().unwrap();
    assert!(
        served.exports.iter().any(|e| e.paths == ["/share-v"]),
        "and is served"
    );
    crate::recover::tidy(&bench.control.context).await;
    crash::sound(&bench.control.view(), &bench.node, "tidied");
}

#[tokio::test]
async fn lost_and_unknown_volumes_are_left_as_they_are() {
    let mut bench = with_volume().await;
    let key = bench
        .control
        .view()
        .volume(&vol("v"))
        .unwrap()
        .key
        .to_string();
    bench.node.put("v-00000000000000ff", 7);
    bench.node.lose(&key);
    bench.restart(2).await;
    let view = bench.control.view();
    let v = view.volume(&vol("v")).unwrap();
    assert_eq!(v.state, State::Error);
    assert!(v.state_details.contains("does not have"), "{v:?}");
    assert!(
        !bench.node.list_volumes().contains_key(&key),
        "no empty volume in its place"
    );
    assert_eq!(bench.node.list_volumes()["v-00000000000000ff"].used, 7);
    bench
        .done(Mutation::DeleteVolume {
            name: vol("v"),
            force: true,
        })
        .await;
}

#[tokio::test]
async fn a_catalog_that_cannot_be_written_changes_nothing() {
    let bench = with_volume().await;
    sql(&bench.url, "ALTER TABLE audit RENAME TO hidden").await;
    let refusal = bench.refused(grow()).await;
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (Status::Unavailable, "CATALOG_UNAVAILABLE")
    );
    let view = bench.control.view();
    assert_eq!(view.volume(&vol("v")).unwrap().capacity_gib, 10);
    assert_eq!(view.pool_use(&name("p")).capacity_gib, 10);
    // The catalog cannot even be read now; a caller learns that at once.
    let refusal = bench.refused(grow()).await;
    assert_eq!(refusal.reason, "CATALOG_UNAVAILABLE");
    sql(&bench.url, "ALTER TABLE hidden RENAME TO audit").await;
    // The server recovers by itself.
    loop {
        match bench.submit(grow()).await {
            Ok(operation) => break assert_eq!(operation.outcome, Some(Outcome::Done)),
            Err(refusal) => assert_eq!(refusal.reason, "CATALOG_UNAVAILABLE"),
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.control.view().pool_use(&name("p")).capacity_gib, 20);
    crash::sound(&bench.control.view(), &bench.node, "written again");
}

#[tokio::test]
async fn a_snapshot_that_the_catalog_does_not_take_is_not_left_in_the_node() {
    let take = |id: &str| {
        let name = vol("v").snapshot(id);
        Mutation::CreateSnapshot(name, NewSnapshot::default())
    };
    for there in [false, true] {
        let bench = with_volume().await;
        bench.done(take("before")).await;
        let key = bench.control.view().volume(&vol("v")).unwrap().key.clone();
        if there {
            // Created below the catalog, and not adopted yet.
            bench.node.snapshots_mut(&key, |all| {
                let mut another = all[0].clone();
                another.name = "s".to_owned();
                all.push(another);
            });
        }
        sql(&bench.url, "ALTER TABLE audit RENAME TO hidden").await;
        let refusal = bench.refused(take("s")).await;
        assert_eq!(refusal.reason, "CATALOG_UNAVAILABLE");
        let left: Vec<String> = bench.node.list_volumes()[&*key]
            .snapshots
            .iter()
            .map(|s| s.name.clone())
            .collect();
        match there {
            true => assert_eq!(left, ["before", "s"]),
            false => assert_eq!(left, ["before"]),
        }
    }
}

#[tokio::test]
async fn a_server_that_was_superseded_writes_no_more() {
    superseded(&Bench::new().await).await;
}

pub async fn superseded(bench: &Bench) {
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    bench.done(volume("v", "p", 10)).await;
    let second = open(&bench.url, &bench.node, 2).await.unwrap();
    let refusal = bench.refused(grow()).await;
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (Status::Unavailable, "SUPERSEDED")
    );
    second.submit(grow(), &Actor::local()).await.unwrap();
    assert_eq!(second.view().volume(&vol("v")).unwrap().capacity_gib, 20);
}

/// Closes it, and turns it into one of a newer program.
pub async fn newer(bench: &Bench) {
    bench.control.close().await;
    sql(
        &bench.url,
        "UPDATE meta SET value = '99' WHERE name = 'version'",
    )
    .await;
    let Err(error) = open(&bench.url, &bench.node, 2).await else {
        panic!("opened");
    };
    let text = error.to_string();
    assert!(
        text.contains("version 99") && text.contains("newer Weir"),
        "{text}"
    );
}

#[tokio::test]
async fn catalogs_that_are_not_ours_are_refused() {
    let bench = with_volume().await;
    newer(&bench).await;
    sql(
        &bench.url,
        &format!(
            "UPDATE meta SET value = '{}' WHERE name = 'version'",
            crate::catalog::KNOWN
        ),
    )
    .await;
    sql(&bench.url, "UPDATE pools SET body = '{'").await;
    let Err(error) = open(&bench.url, &bench.node, 2).await else {
        panic!("opened");
    };
    assert!(
        error.to_string().contains("table pools is damaged"),
        "{error}"
    );
    let Err(error) = open("sqlite:///nonexistent/catalog.db", &SimBackend::new(), 2).await else {
        panic!("opened");
    };
    assert!(matches!(error, OpenError::Catalog(..)), "{error}");
    let Err(error) = open("postgres://u:secret@127.0.0.1:1/db", &bench.node, 2).await else {
        panic!("opened");
    };
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_level_that_pools_have_is_missed_at_the_start() {
    let bench = with_volume().await;
    bench.control.close().await;
    let body = "UPDATE pools SET body = REPLACE(body, 'PREMIUM', 'ARCHIVE')";
    sql(&bench.url, body).await;
    let Err(error) = open(&bench.url, &bench.node, 2).await else {
        panic!("opened");
    };
    let text = error.to_string();
    assert!(
        text.contains("ARCHIVE") && text.contains("--service-levels"),
        "{text}"
    );
}

#[tokio::test]
async fn tokens_count_until_revoked_in_whatever_process() {
    let bench = Bench::new().await;
    let secret = tokens(&bench.url).await;
    // Only the hash is stored.
    let path = bench.url.trim_start_matches("sqlite://");
    let wal = std::fs::read(format!("{path}-wal")).unwrap_or_default();
    let all = [std::fs::read(path).unwrap(), wal].concat();
    let needle = &secret.as_bytes()[5..];
    assert!(!all.windows(needle.len()).any(|w| w == needle));
}

/// A token is valid until its expiry, and its last use is recorded once a minute.
#[tokio::test]
async fn tokens_expire_and_show_their_last_use() {
    let bench = with_volume().await;
    let local = Actor::local();
    let hour = Some(std::time::Duration::from_secs(3600));
    let made = bench
        .control
        .create_token_for("brief", Role::Viewer, hour, &local);
    let (record, secret) = made.await.unwrap();
    let expires = record.expires.unwrap();
    assert_eq!(expires.secs() - record.created.secs(), 3600);
    assert_eq!(record.used, None);
    bench.control.authenticate(&secret, None).await.unwrap();
    // It is recorded beside the request.
    let used = loop {
        let tokens = bench.control.tokens().await.unwrap();
        match tokens[0].used {
            Some(used) => break used,
            None => tokio::task::yield_now().await,
        }
    };
    assert!(used >= record.created);
    bench.control.authenticate(&secret, None).await.unwrap();
    let catalog = bench.control.catalog();
    assert_eq!(bench.control.tokens().await.unwrap()[0].used, Some(used));
    let before = crate::Stamp(expires.0 - 1);
    assert_eq!(catalog.token(&secret, before).await.unwrap().name, "brief");
    let refusal = catalog.token(&secret, expires).await.unwrap_err();
    assert_eq!(refusal.status, Status::Unauthenticated);
    assert_eq!(refusal.reason, "TOKEN_EXPIRED");
}

/// Creates a token and revokes it again. Returns its secret.
pub async fn tokens(url: &str) -> String {
    let bench = Bench {
        control: open(url, &SimBackend::new(), 77).await.unwrap(),
        node: SimBackend::new(),
        url: url.to_owned(),
        _folder: None,
    };
    let local = Actor::local();
    assert!(!bench.control.has_tokens().await.unwrap());
    // Another process on the same catalog.
    let other = Catalog::open(&bench.url).await.unwrap();
    let (clock, rng) = (SystemClock::new(), weir_base::SystemRng);
    let made = other
        .create_token("ci", (Role::Editor, None), &local, &clock, &rng)
        .await;
    let (record, secret) = made.unwrap();
    assert_eq!((record.name.as_str(), record.role), ("ci", Role::Editor));
    assert!(
        secret.starts_with("weir_") && secret.len() == 69,
        "256 bits"
    );
    let again = other
        .create_token("ci", (Role::Admin, None), &local, &clock, &rng)
        .await;
    assert_eq!(again.unwrap_err().reason, "NAME_TAKEN");
    let actor = bench.control.authenticate(&secret, None).await.unwrap();
    assert_eq!((&*actor.name, actor.role), ("ci", Role::Editor));
    assert!(bench.control.has_tokens().await.unwrap());
    let mut wrong = secret.clone();
    wrong.replace_range(68.., if secret.ends_with('0') { "1" } else { "0" });
    for bad in ["", "weir_", "x", &wrong, &"weir_".repeat(100)] {
        let refusal = bench.control.authenticate(bad, None).await.unwrap_err();
        assert_eq!(refusal.status, Status::Unauthenticated, "{bad}");
    }
    other.revoke_token("ci", &local, &clock).await.unwrap();
    let refusal = bench.control.authenticate(&secret, None).await.unwrap_err();
    assert_eq!(refusal.reason, "TOKEN_UNKNOWN");
    let tokens = bench.control.tokens().await.unwrap();
    assert!(tokens.len() == 1 && tokens[0].revoked.is_some());
    let refusal = other
        .revoke_token("nope", &local, &clock)
        .await
        .unwrap_err();
    assert_eq!(refusal.status, Status::NotFound);
    let log = bench.control.audit(None, 2, &local).await.unwrap();
    let verbs: Vec<&str> = log.iter().map(|e| e.verb.as_str()).collect();
    assert_eq!(verbs, ["revoke", "create"]);
    assert!(log.iter().all(|entry| entry.target == "tokens/ci"));
    let [first, second] = ["1", "2"].map(|digit| format!("weir_{}", digit.repeat(64)));
    let record = bench.control.adopt_token(&first).await.unwrap();
    assert_eq!(record.role, Role::Admin);
    assert_eq!(bench.control.adopt_token(&first).await.unwrap(), record);
    bench.control.authenticate(&first, None).await.unwrap();
    bench.control.adopt_token(&second).await.unwrap();
    bench.control.authenticate(&second, None).await.unwrap();
    bench.control.authenticate(&first, None).await.unwrap_err();
    let refusal = bench.control.adopt_token(&first).await.unwrap_err();
    assert_eq!(refusal.reason, "TOKEN_REVOKED");
    bench.control.authenticate(&second, None).await.unwrap();
    for bad in [
        "",
        "weir_12",
        &"1".repeat(64),
        &format!("weir_{}", "x".repeat(64)),
    ] {
        let refusal = bench.control.adopt_token(bad).await.unwrap_err();
        assert_eq!(refusal.reason, "TOKEN_INVALID", "{bad}");
    }
    secret
}

#[tokio::test]
async fn the_audit_log_is_paged_and_bounded() {
    let bench = Bench::new().await;
    let local = Actor::local();
    for n in 0..5 {
        bench
            .done(pool(&format!("p{n}"), "PREMIUM", 1024, QosType::Auto))
            .await;
    }
    let first = bench.control.audit(None, 2, &local).await.unwrap();
    let rest = bench
        .control
        .audit(Some(first[1].seq), 10, &local)
        .await
        .unwrap();
    let targets: Vec<_> = first
        .iter()
        .chain(&rest)
        .map(|e| e.target.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(targets, ["p4", "p3", "p2", "p1", "p0"]);
    // More entries than are kept, inserted directly; the next thousandth entry drops the oldest.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100010) \
                INSERT INTO audit SELECT i, 'a', '', 'v', 't', 'o' FROM n";
    sql(&bench.url, many).await;
    for _ in 0..1000 {
        bench.refused(Mutation::DeletePool(name("nope"))).await;
    }
    bench
        .done(pool("last", "PREMIUM", 1024, QosType::Auto))
        .await;
    let oldest = bench.control.audit(Some(1000), 10, &local).await.unwrap();
    assert!(oldest.iter().all(|entry| entry.seq > 500), "{oldest:?}");
}

#[tokio::test]
async fn a_clock_that_stands_still_or_goes_back_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let url = url_in(folder.path());
    let node = SimBackend::new();
    let local = Actor::local();
    for start in [2_000_000_000, 1_000_000_000] {
        let time = weir_base::Time {
            secs: start,
            nanos: 0,
        };
        let control = Control::open(crate::Options {
            catalog: url.clone(),
            levels: Levels::built_in().unwrap(),
            instance_addresses: None,
            backend: Arc::new(node.clone()),
            clock: Arc::new(weir_base::ManualClock::new(time)),
            rng: Arc::new(SeededRng::new(start as u64)),
            device_bytes: 1 << 30,
            copy: None,
            first_place: crate::LocationName::local(),
        });
        let control = control.await.unwrap();
        for n in 0..3 {
            let id = format!("x{start}-{n}");
            control
                .create_token(&id, Role::Viewer, &local)
                .await
                .unwrap();
            let made = control
                .submit(pool(&id, "PREMIUM", 1024, QosType::Auto), &local)
                .await;
            assert_eq!(made.unwrap().outcome, Some(Outcome::Done));
            control.revoke_token(&id, &local).await.unwrap();
        }
        control.close().await;
    }
    let catalog = Catalog::open(&url).await.unwrap();
    assert_eq!(catalog.audit(None, 100).await.unwrap().len(), 18);
}

/// A deletion is durable only with the node's next checkpoint; until then the catalog remembers it.
#[tokio::test]
async fn a_deletion_that_a_crash_takes_back_is_made_again() {
    let mut bench = with_volume().await;
    let delete = |id: &str| Mutation::DeleteVolume {
        name: vol(id),
        force: false,
    };
    bench.done(volume("w", "p", 1)).await;
    let catalog = |bench: &Bench| bench.control.catalog().clone();
    bench.done(delete("v")).await;
    bench.control.context.store.drained().await;
    assert_eq!(catalog(&bench).tombstones().await.unwrap().len(), 1);
    // The node comes back with the volume, because there was no checkpoint.
    bench.restart(3).await;
    crash::sound(&bench.control.view(), &bench.node, "deleted again");
    crate::recover::tidy(&bench.control.context).await;
    bench.control.context.store.drained().await;
    assert_eq!(
        catalog(&bench).tombstones().await.unwrap().len(),
        1,
        "still not durable"
    );
    bench.node.checkpoint();
    bench.done(delete("w")).await;
    bench.control.context.store.drained().await;
    crate::recover::tidy(&bench.control.context).await;
    bench.control.context.store.drained().await;
    assert_eq!(
        catalog(&bench).tombstones().await.unwrap().len(),
        1,
        "one of the two is durable"
    );
    bench.node.checkpoint();
    crate::recover::tidy(&bench.control.context).await;
    bench.control.context.store.drained().await;
    assert_eq!(catalog(&bench).tombstones().await.unwrap().len(), 0);
    bench.restart(4).await;
    crash::sound(&bench.control.view(), &bench.node, "gone");
}

//! Active Directory domains: joined, joined again, left; no password is in the catalog.

use super::{Bench, name, new_volume, place, pool, vol};
use crate::backend::BackendError;
use crate::sim::{Fault, PASSWORD};
use crate::{
    ActiveDirectory, ActiveDirectoryChange, Actor, Mutation, NewActiveDirectory, Outcome,
    PoolChange, Protocol, QosType, Secret, State,
};
use std::sync::Arc;

fn new(password: &str) -> NewActiveDirectory {
    NewActiveDirectory {
        domain: "example.com".to_owned(),
        net_bios_prefix: "files".to_owned(),
        organizational_unit: String::new(),
        kdc_hostname: String::new(),
        username: "admin".to_owned(),
        password: Secret::new(password),
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    }
}

fn create(password: &str) -> Mutation {
    Mutation::CreateActiveDirectory(name("ad"), new(password))
}

fn update(change: ActiveDirectoryChange) -> Mutation {
    Mutation::UpdateActiveDirectory(name("ad"), change)
}

fn again(password: &str) -> ActiveDirectoryChange {
    ActiveDirectoryChange {
        password: Some(Secret::new(password)),
        ..ActiveDirectoryChange::default()
    }
}

fn found(bench: &Bench) -> Arc<ActiveDirectory> {
    let view = bench.control.view();
    Arc::clone(view.active_directory(&name("ad")).unwrap())
}

/// Returns the reason why an operation failed.
async fn failed(bench: &Bench, mutation: Mutation) -> crate::Refusal {
    match &bench.submit(mutation).await.unwrap().outcome {
        Some(Outcome::Failed(refusal)) => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_domain_is_joined_and_left() {
    let mut bench = Bench::new().await;
    bench.done(create(PASSWORD)).await;
    assert_eq!(bench.node.domain().as_deref(), Some("example.com"));
    let ad = found(&bench);
    assert_eq!(ad.state, State::Ready);
    assert_eq!(
        ad.host.as_deref(),
        Some(&*format!("{}.example.com", ad.computer()))
    );
    assert!(ad.computer().starts_with("FILES-") && ad.computer().len() == 10);
    bench.restart(2).await;
    assert_eq!(*found(&bench), *ad, "it is as it was");
    let second = Mutation::CreateActiveDirectory(name("other"), new(PASSWORD));
    assert_eq!(
        bench.refused(second).await.reason,
        "ACTIVE_DIRECTORY_EXISTS"
    );
    assert_eq!(bench.refused(create(PASSWORD)).await.reason, "NAME_TAKEN");
    bench
        .done(Mutation::DeleteActiveDirectory(name("ad")))
        .await;
    assert_eq!(bench.node.domain(), None);
    assert!(bench.control.view().active_directory(&name("ad")).is_none());
    bench.done(create(PASSWORD)).await;
}

#[tokio::test]
async fn what_a_domain_refuses_is_an_error_until_it_is_joined_anew() {
    let bench = Bench::new().await;
    assert_eq!(
        failed(&bench, create("wrong")).await.reason,
        "ENGINE_PRECONDITION"
    );
    let ad = found(&bench);
    assert_eq!(
        (ad.state, &*ad.state_details),
        (State::Error, "the password is wrong")
    );
    // A wrong password locks an account when it is retried.
    bench.done(update(again(PASSWORD))).await;
    let ad = found(&bench);
    assert_eq!((ad.state, &*ad.state_details), (State::Ready, ""));
    // A failure does not end the former membership.
    failed(&bench, update(again("wrong"))).await;
    assert_eq!(found(&bench).state, State::Error);
    assert!(found(&bench).host.is_some());
    assert_eq!(bench.node.domain().as_deref(), Some("example.com"));
    let fault = Fault::Before(BackendError::Failed("no disk".to_owned()));
    bench.node.inject("leave_domain", fault);
    let delete = Mutation::DeleteActiveDirectory(name("ad"));
    failed(&bench, delete.clone()).await;
    assert_eq!(found(&bench).state, State::Error);
    bench.done(delete).await;
}

#[tokio::test]
async fn what_joining_depends_on_is_changed_with_a_password_alone() {
    let bench = Bench::new().await;
    bench.done(create(PASSWORD)).await;
    let other = |password: Option<&str>| ActiveDirectoryChange {
        username: Some("another".to_owned()),
        description: Some("new".to_owned()),
        password: password.map(Secret::new),
        ..ActiveDirectoryChange::default()
    };
    assert_eq!(
        bench.refused(update(other(None))).await.reason,
        "PASSWORD_NEEDED"
    );
    assert_eq!(&*found(&bench).username, "admin");
    bench.done(update(other(Some(PASSWORD)))).await;
    assert_eq!(&*found(&bench).username, "another");
    // A name that stays is no change.
    bench.done(update(other(None))).await;
    assert_eq!(found(&bench).state, State::Ready);
    for (what, bad) in [
        (
            "DOMAIN_INVALID",
            NewActiveDirectory {
                domain: "no dots".into(),
                ..new("x")
            },
        ),
        (
            "DOMAIN_INVALID",
            NewActiveDirectory {
                domain: "-x.com".into(),
                ..new("x")
            },
        ),
        (
            "NET_BIOS_PREFIX_INVALID",
            NewActiveDirectory {
                net_bios_prefix: "eleven-char".into(),
                ..new("x")
            },
        ),
        (
            "NET_BIOS_PREFIX_INVALID",
            NewActiveDirectory {
                net_bios_prefix: String::new(),
                ..new("x")
            },
        ),
        (
            "HOST_INVALID",
            NewActiveDirectory {
                kdc_hostname: "--help".into(),
                ..new("x")
            },
        ),
        (
            "USER_INVALID",
            NewActiveDirectory {
                username: String::new(),
                ..new("x")
            },
        ),
        (
            "ORGANIZATIONAL_UNIT_INVALID",
            NewActiveDirectory {
                organizational_unit: "-OU=x".into(),
                ..new("x")
            },
        ),
        ("PASSWORD_INVALID", new("")),
    ] {
        let bench = Bench::new().await;
        let mutation = Mutation::CreateActiveDirectory(name("ad"), bad);
        assert_eq!(bench.refused(mutation).await.reason, what);
    }
}

#[tokio::test]
async fn a_join_that_was_cut_short_asks_for_the_password_again() {
    let mut bench = Bench::new().await;
    bench.node.stop_in(0, false);
    let control = Arc::clone(&bench.control);
    let begun = tokio::spawn(async move {
        let asked = control.submit(create(PASSWORD), &Actor::local()).await;
        drop(asked);
    });
    let stopped = async {
        while !bench.node.stopped() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), stopped)
        .await
        .unwrap();
    begun.abort();
    bench.restart(2).await;
    let ad = found(&bench);
    assert_eq!(ad.state, State::Error);
    assert!(
        ad.state_details.contains("keeps no password"),
        "{}",
        ad.state_details
    );
    bench.done(update(again(PASSWORD))).await;
}

#[tokio::test]
async fn no_password_is_stored() {
    let bench = Bench::new().await;
    failed(&bench, create("a password that nobody has")).await;
    bench.done(update(again(PASSWORD))).await;
    bench.control.close().await;
    let folder = bench.url.strip_prefix("sqlite://").unwrap();
    let folder = std::path::Path::new(folder).parent().unwrap();
    let mut read = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        read += bytes.len();
        for secret in [PASSWORD, "a password that nobody has"] {
            let mut parts = bytes.windows(secret.len());
            assert!(!parts.any(|part| part == secret.as_bytes()));
        }
        let known = b"example.com";
        assert!(bytes.is_empty() || bytes.windows(known.len()).any(|part| part == known));
    }
    assert!(read > 0);
}

#[tokio::test]
async fn pools_refer_to_it_and_their_volumes_with_smb_need_it() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    let directory = |id: &str| {
        let change = PoolChange {
            active_directory: Some(id.to_owned()),
            ..PoolChange::default()
        };
        Mutation::UpdatePool(name("p"), change)
    };
    let refusal = bench.refused(directory("ad")).await;
    assert_eq!(refusal.reason, "ACTIVE_DIRECTORY_NOT_FOUND");
    failed(&bench, create("wrong")).await;
    bench.done(directory("ad")).await;
    let mut smb = new_volume("v", "p", 10);
    smb.protocols = vec![Protocol::Nfsv3, Protocol::Smb];
    let smb = Mutation::CreateVolume(place().volume("v"), smb);
    let refusal = bench.refused(smb.clone()).await;
    assert_eq!(refusal.reason, "ACTIVE_DIRECTORY_NOT_READY");
    // NFS volumes do not need it, until they get SMB.
    let nfs = Mutation::CreateVolume(vol("n"), new_volume("n", "p", 10));
    bench.done(nfs).await;
    let both = crate::VolumeChange {
        protocols: Some(vec![Protocol::Nfsv3, Protocol::Smb]),
        ..crate::VolumeChange::default()
    };
    let both = Mutation::UpdateVolume(vol("n"), both);
    let refusal = bench.refused(both.clone()).await;
    assert_eq!(refusal.reason, "ACTIVE_DIRECTORY_NOT_READY");
    bench.done(update(again(PASSWORD))).await;
    bench.done(smb).await;
    bench.done(both).await;
    let delete = Mutation::DeleteActiveDirectory(name("ad"));
    let refusal = bench.refused(delete.clone()).await;
    assert_eq!(refusal.reason, "ACTIVE_DIRECTORY_IN_USE");
    bench.done(directory("")).await;
    bench.done(delete).await;
}

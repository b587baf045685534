//! Pairing by a passphrase, with and without knowing it: over TLS on the loopback, between nodes
//! and against a forged node that speaks the protocol.

use rustls_pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use weir_control::Role;
use weir_ontap::cluster::Failure;
use weir_relations::manager::{First, Verb};

use super::*;

fn address(of: &Station) -> String {
    of.service.listening().unwrap().to_string()
}

fn invite(by: &Station, name: &str) -> String {
    by.user.invite(name, None, false).unwrap().passphrase
}

fn join(who: &Station, whom: &Station, passphrase: &str) -> Result<String, Failure> {
    who.user.join(None, &address(whom), passphrase)
}

fn peers(of: &Station) -> Vec<(String, String)> {
    let all = of.user.peers().into_iter();
    all.map(|peer| (peer.name, peer.fingerprint)).collect()
}

fn unpaired(all: &[&Station]) {
    for station in all {
        assert_eq!(peers(station), []);
    }
}

/// Runs `work` on a runtime of its own, on this thread.
fn alone<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_passphrase_pairs_two_nodes_once() {
    let (near, far) = (Station::new(91), Station::new(92));
    let passphrase = invite(&near, "far");
    assert_eq!(near.user.offers().len(), 1);
    // As people write it.
    let written = passphrase.to_uppercase().replace('-', " ");
    assert_eq!(join(&far, &near, &written).unwrap(), "node91");
    let print = |s: &Station| s.service.fingerprint().to_owned();
    assert_eq!(peers(&near), [("far".to_owned(), print(&far))]);
    assert_eq!(peers(&far), [("node91".to_owned(), print(&near))]);
    assert_eq!(near.user.offers(), []);
    // The node that offered reaches the one that joined where it listens.
    assert_eq!(near.user.peers()[0].address, Some(address(&far)));
    far.put("a", "one", &noise(1, 100_000));
    near.does("snapmirror create -source-path far://SVM/a -destination-path SVM:b");
    near.does("snapmirror initialize -destination-path SVM:b");
    near.succeeds("SVM:b");
    // A third node that has found the passphrase.
    let third = Station::new(93);
    let used = join(&third, &near, &passphrase).unwrap_err();
    assert!(used.message.contains("was used"), "{used:?}");
    unpaired(&[&third]);
    assert_eq!(peers(&near).len(), 1);
}

#[test]
fn a_wrong_passphrase_and_an_expired_one_pair_nothing() {
    let (near, far) = (Station::new(94), Station::new(95));
    let passphrase = invite(&near, "far");
    let newer = invite(&near, "far");
    for wrong in [
        passphrase.as_str(),
        "",
        "aaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaa",
    ] {
        let refused = join(&far, &near, wrong).unwrap_err();
        assert!(refused.message.contains("is wrong"), "{refused:?}");
    }
    unpaired(&[&near, &far]);
    near.service.expire_offers();
    let refused = join(&far, &near, &newer).unwrap_err();
    assert!(refused.message.contains("has expired"), "{refused:?}");
    unpaired(&[&near, &far]);
    assert_eq!(near.user.offers(), []);
    // Failed attempts do not keep the right node out.
    let right = invite(&near, "far");
    join(&far, &near, "wrong").unwrap_err();
    join(&far, &near, &right).unwrap();
}

/// A man in the middle relays every byte of both over connections of his own, and later replays his
/// recording.
#[test]
fn a_man_in_the_middle_gets_nothing_by_relaying_or_recording() {
    let (near, far, middle) = (Station::new(96), Station::new(97), Station::new(98));
    let passphrase = invite(&near, "far");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let (accepts, connects) = (middle.service.tls_offering(), middle.service.tls_joining());
    let to = address(&near);
    let dial = |to: String, connects| async move {
        let who = ServerName::try_from("weir").unwrap();
        let stream = tokio::net::TcpStream::connect(&to).await.unwrap();
        TlsConnector::from(connects)
            .connect(who, stream)
            .await
            .unwrap()
    };
    let (from, relayed) = (to.clone(), Arc::clone(&connects));
    let relay = std::thread::spawn(move || {
        alone(async {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let mut theirs = TlsAcceptor::from(accepts).accept(stream).await.unwrap();
            let mut ours = dial(from, relayed).await;
            let mut recorded = vec![0; theirs.read_u32().await.unwrap() as usize];
            theirs.read_exact(&mut recorded).await.unwrap();
            let length = u32::try_from(recorded.len()).unwrap();
            ours.write_u32(length).await.unwrap();
            ours.write_all(&recorded).await.unwrap();
            ours.flush().await.unwrap();
            // Ends when either does.
            drop(tokio::io::copy_bidirectional(&mut theirs, &mut ours).await);
            recorded
        })
    });
    let refused = far.user.join(None, &at, &passphrase).unwrap_err();
    assert!(refused.message.contains("is wrong"), "{refused:?}");
    let recorded = relay.join().unwrap();
    assert!(String::from_utf8_lossy(&recorded).contains("Join"));
    unpaired(&[&near, &far, &middle]);
    let reply = alone(async {
        let mut again = dial(to, connects).await;
        again
            .write_u32(u32::try_from(recorded.len()).unwrap())
            .await
            .unwrap();
        again.write_all(&recorded).await.unwrap();
        again.flush().await.unwrap();
        let mut reply = vec![0; again.read_u32().await.unwrap() as usize];
        again.read_exact(&mut reply).await.unwrap();
        String::from_utf8(reply).unwrap()
    });
    assert!(reply.contains("Refused"), "{reply}");
    unpaired(&[&near, &far, &middle]);
    // The offer stands for the one that it is for.
    join(&far, &near, &passphrase).unwrap();
}

/// A node that does not know the passphrase poses as the offering one, and returns the joining
/// node's own proof.
#[test]
fn a_node_that_only_claims_to_have_offered_is_not_joined() {
    let (far, middle) = (Station::new(99), Station::new(100));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let accepts = middle.service.tls_offering();
    let poses = std::thread::spawn(move || {
        alone(async {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let mut theirs = TlsAcceptor::from(accepts).accept(stream).await.unwrap();
            let mut said = vec![0; theirs.read_u32().await.unwrap() as usize];
            theirs.read_exact(&mut said).await.unwrap();
            let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
            let reply = serde_json::json!({
                "Offer": {"name": "near", "proof": said["Join"]["proof"]},
            });
            let reply = reply.to_string();
            theirs
                .write_u32(u32::try_from(reply.len()).unwrap())
                .await
                .unwrap();
            theirs.write_all(reply.as_bytes()).await.unwrap();
            theirs.flush().await.unwrap();
            // Until it has hung up.
            let _ = theirs.read_u8().await;
        })
    });
    let refused = far.user.join(None, &at, "abcd").unwrap_err();
    assert!(refused.message.contains("does not prove"), "{refused:?}");
    poses.join().unwrap();
    unpaired(&[&far]);
}

#[test]
fn pairing_is_for_administrators_and_where_nothing_is_offered_there_is_no_door() {
    let (near, far) = (Station::new(101), Station::new(102));
    let editor = |of: &Station| {
        let actor = Actor {
            role: Role::Editor,
            ..Actor::local()
        };
        AsUser::new(Arc::clone(&of.server), actor)
    };
    let denied = editor(&near).invite("far", None, false).unwrap_err();
    assert_eq!(denied.reason, weir_ontap::Reason::Denied, "{denied:?}");
    assert_eq!(near.user.offers(), []);
    // No certificate but a peer's gets past the handshake.
    let refused = join(&far, &near, "abcd").unwrap_err();
    assert!(
        refused.message.contains("offers no pairing now"),
        "{refused:?}"
    );
    let passphrase = invite(&near, "far");
    assert_eq!(editor(&near).offers(), []);
    let denied = editor(&far).join(None, &address(&near), &passphrase);
    assert_eq!(denied.unwrap_err().reason, weir_ontap::Reason::Denied);
    unpaired(&[&near, &far]);
    // A refusal at the joining node takes nothing from the offer.
    let own = near.user.join(None, &address(&near), &passphrase);
    assert!(own.unwrap_err().message.contains("this node itself"));
    join(&far, &near, &passphrase).unwrap();
}

#[test]
fn a_relationship_waits_until_the_node_of_its_source_has_joined() {
    let (near, far) = (Station::new(103), Station::new(104));
    far.put("a", "one", &noise(5, 100_000));
    let source = Path {
        cluster: "far".to_owned(),
        ..Path::local("SVM", "a")
    };
    let create = || Verb::Create {
        source: source.clone(),
        destination: Path::local("SVM", "b"),
        policy: Some("MirrorLatest".to_owned()),
        schedule: None,
        throttle: None,
        tries: None,
        note: None,
        initialize: Some(First {
            once_paired: true,
            ..First::default()
        }),
    };
    near.user.change(create().into()).unwrap();
    let offer = near.user.invite("far", None, true).unwrap();
    // Ended, it takes the offer that was made for it along.
    near.user
        .change(Verb::End(Path::local("SVM", "b")).into())
        .unwrap();
    assert_eq!(near.user.offers(), []);
    assert!(join(&far, &near, &offer.passphrase).is_err());
    near.user.change(create().into()).unwrap();
    let offer = near.user.invite("far", None, true).unwrap();
    assert_eq!(near.relationship("SVM:b").status, Status::Queued);
    join(&far, &near, &offer.passphrase).unwrap();
    near.succeeds("SVM:b");
    let (a, b) = (far.engine_volume("a"), near.engine_volume("b"));
    assert_eq!(same(&a, &b, &["one"]), 1);
}

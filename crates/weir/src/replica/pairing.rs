//! Pairing by a passphrase: how two nodes learn each other's certificates without anybody comparing fingerprints.
//!
//! One node **offers**: it makes a passphrase of 140 random bits, which its administrator carries to the other node. That
//! one **joins**: it connects, both show their certificates (TLS 1.3 proves that each has the key), and each then proves
//! that it knows the passphrase by
//!
//! HMAC-SHA256(passphrase, protocol · side · exporter · certificate of the joining node · certificate of the offering one)
//!
//! where certificates are given by their SHA-256 and the exporter is the secret that only the two ends of this very connection
//! have (RFC 8446 §7.5, as RFC 9266 binds to channels). So the passphrase is never sent; a proof that is recorded is worth
//! nothing on another connection; a man in the middle has two connections with two exporters and two certificates, and can
//! pass neither proof on; and one side's proof is not the other's, so it cannot be sent back. A PAKE would add that a
//! passphrase that can be guessed survives a listener who tries all of them. One of 140 random bits cannot be guessed, so
//! a MAC is enough, and there is nothing to implement besides it.
//!
//! An offer is good for one pairing, for the time [`LASTS`]. It is in memory alone: a restart, or another offer of the same name, ends it.
//! The joining node writes its row first and the offering one second, and joining again goes on where a lost connection
//! has left off, so neither side is paired for good with one that has not been asked.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, CommonState, ConnectionCommon};
use weir_base::Rng;
use weir_base::limits::replica::PEER_PAIRING;
use weir_control::{Actor, Mutation};
use weir_ontap::cluster::{Failure, Offer, Reason};
use weir_relations::manager::{Now, Preconditions, Verb};

use super::cluster::{Answer, carried_out};
use super::peers::{self, Peer};
use super::{Replication, job};
use crate::identity::fingerprint;

/// By this name (ALPN) a joining node says what it wants, before it shows a certificate that nobody knows.
pub const PROTOCOL: &[u8] = b"weir-pair/1";
/// Of the secret that is exported from the connection.
const LABEL: &[u8] = b"EXPORTER-weir-pair";
/// After this an offer expires: as ONTAP's do.
const LASTS: Duration = Duration::from_secs(3600);
/// Offers at once.
const MAX_OFFERS: usize = 64;
/// Bytes of a message.
const MAX_MESSAGE: usize = 4096;
/// Of passphrases (RFC 4648 §6, in lower case): without 0, 1, 8 and 9, which are mistaken for letters.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Groups of four characters, of five bits each.
const GROUPS: usize = 7;
/// Which of the three it was would help to guess.
const WRONG: &str = "The passphrase is wrong, was used, or has expired.";

/// An offer, with what the other node and users do not see of it.
pub struct Open {
    offer: Offer,
    /// In whose name the audit log has the pairing.
    actor: Actor,
    /// By the monotonic clock, which nobody sets back.
    until: Duration,
    /// Made for relationships that wait for this peer: without them it ends.
    for_relationships: bool,
}

/// Offers that have not expired, by the name of the peer that is to be.
#[derive(Default)]
pub struct Offers(Mutex<HashMap<String, Open>>);

impl Offers {
    /// Another one; one of the same name ends.
    pub fn add(
        &self,
        (name, address): (&str, Option<String>),
        (actor, for_relationships): (&Actor, bool),
        now: Now,
        rng: &dyn Rng,
    ) -> Answer<Offer> {
        let mut all = self.0.lock();
        let at = Duration::from_millis(now.ms);
        all.retain(|_, open| open.until > at);
        if all.len() >= MAX_OFFERS && !all.contains_key(name) {
            let text = format!("There are already {MAX_OFFERS} offers of pairing.");
            return Err(Failure::new(Reason::State, text));
        }
        let offer = Offer {
            name: name.to_owned(),
            address,
            passphrase: passphrase(rng),
            expires: now.wall + LASTS.as_secs().cast_signed(),
        };
        let open = Open {
            offer: offer.clone(),
            actor: actor.clone(),
            until: at + LASTS,
            for_relationships,
        };
        all.insert(name.to_owned(), open);
        Ok(offer)
    }

    /// Those that have not expired.
    pub fn all(&self, now: Now) -> Vec<Offer> {
        let mut all = self.0.lock();
        all.retain(|_, open| open.until > Duration::from_millis(now.ms));
        all.values().map(|open| open.offer.clone()).collect()
    }

    /// Ends those that were made for relationships of which none is left.
    pub fn retain(&self, waits: impl Fn(&str) -> bool) {
        let stays = |name: &String, open: &mut Open| !open.for_relationships || waits(name);
        self.0.lock().retain(stays);
    }

    /// Takes away the one whose passphrase has made this proof: no other connection can use it.
    fn take(&self, now: Now, proves: impl Fn(&str) -> bool) -> Option<Open> {
        let mut all = self.0.lock();
        all.retain(|_, open| open.until > Duration::from_millis(now.ms));
        let found = all.values().find(|open| proves(&open.offer.passphrase));
        let name = found?.offer.name.clone();
        all.remove(&name)
    }

    /// Lets time pass until all have expired.
    #[cfg(test)]
    pub fn expire(&self) {
        let mut all = self.0.lock();
        all.values_mut()
            .for_each(|open| open.until = Duration::ZERO);
    }

    /// It has not come to a pairing: the same passphrase may be tried again, unless there is a newer one.
    fn put_back(&self, open: Open) {
        self.0.lock().entry(open.offer.name.clone()).or_insert(open);
    }
}

/// 140 random bits to read out: `abcd-efgh-…`.
fn passphrase(rng: &dyn Rng) -> String {
    let character = |_| {
        let at = usize::try_from(rng.below(32)).unwrap_or_default();
        char::from(ALPHABET.get(at).copied().unwrap_or(b'a'))
    };
    let group = |_| (0..4).map(character).collect::<String>();
    (0..GROUPS).map(group).collect::<Vec<_>>().join("-")
}

/// Which of the two a proof is of.
#[derive(Clone, Copy)]
enum Side {
    Joins,
    Offers,
}

/// What both ends of a connection know of it, and no other connection has.
struct Channel {
    exporter: [u8; 32],
    joins: String,
    offers: String,
}

impl Channel {
    fn of<Data>(
        connection: &ConnectionCommon<Data>,
        joins: String,
        offers: String,
    ) -> Result<Channel, rustls::Error> {
        let exporter = connection.export_keying_material([0; 32], LABEL, None)?;
        Ok(Channel {
            exporter,
            joins,
            offers,
        })
    }

    fn message(&self, side: Side) -> Vec<u8> {
        let side: &[u8] = match side {
            Side::Joins => b"joins",
            Side::Offers => b"offers",
        };
        let (joins, offers) = (self.joins.as_bytes(), self.offers.as_bytes());
        [PROTOCOL, b" ", side, b" ", &self.exporter, joins, offers].concat()
    }

    fn prove(&self, passphrase: &str, side: Side) -> Vec<u8> {
        let tag = hmac::sign(&key(passphrase), &self.message(side));
        tag.as_ref().to_vec()
    }

    /// In constant time.
    fn proves(&self, passphrase: &str, side: Side, proof: &[u8]) -> bool {
        hmac::verify(&key(passphrase), &self.message(side), proof).is_ok()
    }
}

/// Of a passphrase as people write it: in capitals, with blanks, without dashes.
fn key(passphrase: &str) -> hmac::Key {
    let written = passphrase.chars().filter(char::is_ascii_alphanumeric);
    let written: String = written.map(|c| c.to_ascii_lowercase()).collect();
    hmac::Key::new(hmac::HMAC_SHA256, written.as_bytes())
}

/// What the two say, each its length before it and in JSON: it is said once in a node's life.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The joining node's: what it calls itself, the port where it listens for peers, that it knows the passphrase.
    Join {
        name: String,
        port: Option<u16>,
        proof: Vec<u8>,
    },
    /// The offering node's reply.
    Offer { name: String, proof: Vec<u8> },
    /// The row of the peer is written.
    Paired,
    /// And why it is not.
    Refused(String),
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), message: &Message) -> std::io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&text).await?;
    stream.flush().await
}

async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Message> {
    let length = stream.read_u32().await? as usize;
    if length > MAX_MESSAGE {
        return Err(std::io::Error::other("a message that is too long"));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

/// The certificate that the other end has shown, and proven to be its own.
fn shown(connection: &CommonState) -> Option<String> {
    let chain = connection.peer_certificates()?;
    Some(fingerprint(chain.first()?))
}

/// Writes a peer's row in a user's name, unless it is there already, as it is when a connection was lost before its end.
async fn write(service: &Arc<Replication>, peer: Peer, actor: &Actor) -> Answer<()> {
    let there = service.peers.get(&peer.name);
    if there.is_some_and(|there| there.fingerprint == peer.fingerprint) {
        return Ok(());
    }
    let mutation = Mutation::Replicate {
        verb: Verb::PeerCreate {
            name: peer.name,
            address: peer.address,
            fingerprint: peer.fingerprint,
        },
        preconditions: Preconditions {
            fingerprint: service.peers.fingerprint.clone(),
            ..Preconditions::none()
        },
    };
    change(service, mutation, actor).await
}

async fn change(service: &Arc<Replication>, mutation: Mutation, actor: &Actor) -> Answer<()> {
    let (control, actor) = (Arc::clone(&service.control), actor.clone());
    // On the runtime that the control plane runs on.
    let done = service.runtime.spawn(carried_out(control, mutation, actor));
    let done = done.await;
    let done = done.unwrap_or_else(|error| Err(Failure::new(Reason::Failed, error.to_string())));
    done.map(|_| ())
}

/// The offering node's side of a connection that wants to join; says how it went.
pub async fn receive(
    service: &Arc<Replication>,
    mut tls: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
) -> Result<String, String> {
    let (stream, connection) = tls.get_ref();
    let from = stream.peer_addr().map_err(|e| e.to_string())?;
    let joins = shown(connection).ok_or("it has shown no certificate")?;
    let offers = service.peers.fingerprint.clone();
    let channel = Channel::of(connection, joins.clone(), offers).map_err(|e| e.to_string())?;
    let lost = |error: std::io::Error| error.to_string();
    let Message::Join { name, port, proof } = hear(&mut tls).await.map_err(lost)? else {
        return Err("it says something else".to_owned());
    };
    let proves = |passphrase: &str| channel.proves(passphrase, Side::Joins, &proof);
    let Some(open) = service.offers.take(service.now(), proves) else {
        let told = say(&mut tls, &Message::Refused(WRONG.to_owned())).await;
        return Err(told.map_or_else(lost, |()| WRONG.to_owned()));
    };
    let peer = Peer {
        name: open.offer.name.clone(),
        address: address(open.offer.address.as_deref(), from.ip(), port),
        fingerprint: joins,
    };
    let (joined, actor) = (peer.name.clone(), open.actor.clone());
    let ends = async {
        let rows = service.rows();
        if peer.address.is_none() && rows.uses_peer(&peer.name) {
            return Err("Relationships copy from this node, and it does not listen for peers: start it with \
                        --replication ADDR:PORT."
                .to_owned());
        }
        let reply = Message::Offer {
            name: service.name.clone(),
            proof: channel.prove(&open.offer.passphrase, Side::Offers),
        };
        say(&mut tls, &reply).await.map_err(lost)?;
        match hear(&mut tls).await.map_err(lost)? {
            Message::Paired => {}
            Message::Refused(why) => return Err(why),
            _ => return Err("it says something else".to_owned()),
        }
        let written = write(service, peer, &actor).await;
        written.map_err(|why| why.message)
    };
    if let Err(why) = ends.await {
        service.offers.put_back(open);
        // It may be gone.
        drop(say(&mut tls, &Message::Refused(why.clone())).await);
        return Err(why);
    }
    service.wake();
    say(&mut tls, &Message::Paired).await.map_err(lost)?;
    Ok(format!("{name} joined as {joined}"))
}

/// Where to reach a node that joins: as the offer has it, or where it comes from, with the port that it gives.
fn address(offered: Option<&str>, from: IpAddr, port: Option<u16>) -> Option<String> {
    match (offered, port) {
        (Some(offered), _) => Some(offered.to_owned()),
        (None, Some(port)) => Some(SocketAddr::new(from.to_canonical(), port).to_string()),
        (None, None) => None,
    }
}

/// Joins the node at an address, which has offered pairing; returns what it is called here.
///
/// # Errors
/// Nothing is paired then, unless the connection was lost at the very end: joining again goes on.
pub fn join(
    service: &Arc<Replication>,
    actor: &Actor,
    name: Option<String>,
    address: &str,
    passphrase: &str,
) -> Answer<String> {
    let failed = |why: String| Failure::new(Reason::Failed, why);
    let joined = job::apart(async {
        let talk = talk(service, actor, name, address, passphrase);
        tokio::time::timeout(PEER_PAIRING, talk)
            .await
            .unwrap_or_else(|_| Err(failed(format!("{address} does not answer."))))
    });
    joined.map_err(failed)?
}

async fn talk(
    service: &Arc<Replication>,
    actor: &Actor,
    name: Option<String>,
    address: &str,
    passphrase: &str,
) -> Answer<String> {
    let failed = |why: String| Failure::new(Reason::Failed, why);
    let lost = |error: std::io::Error| failed(format!("{address}: {error}"));
    let refused = |why: String| Failure::new(Reason::State, why);
    let config = service.peers.joining().map_err(|e| failed(e.to_string()))?;
    let stream = peers::connect(address)
        .map_err(|error| refused(format!("cannot connect to {address}: {error}")))?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(lost)?;
    let who = ServerName::try_from("weir").map_err(|e| failed(e.to_string()))?;
    let mut tls = TlsConnector::from(config)
        .connect(who, stream)
        .await
        .map_err(lost)?;
    let connection = tls.get_ref().1;
    if connection.alpn_protocol() != Some(PROTOCOL) {
        return Err(refused(format!("{address} offers no pairing now. {WRONG}")));
    }
    let none = || failed(format!("{address} shows no certificate."));
    let offers = shown(connection).ok_or_else(none)?;
    let own = service.peers.fingerprint.clone();
    let channel = Channel::of(connection, own, offers.clone());
    let channel = channel.map_err(|e| failed(e.to_string()))?;
    let ours = Message::Join {
        name: service.name.clone(),
        port: service.listening.map(|address| address.port()),
        proof: channel.prove(passphrase, Side::Joins),
    };
    say(&mut tls, &ours).await.map_err(lost)?;
    let theirs = match hear(&mut tls).await.map_err(lost)? {
        Message::Offer { name, proof } if channel.proves(passphrase, Side::Offers, &proof) => name,
        Message::Refused(why) => return Err(refused(why)),
        _ => {
            let why = "does not prove that it knows the passphrase: it is not the node that offers pairing.";
            return Err(refused(format!("The node at {address} {why}")));
        }
    };
    let peer = Peer {
        name: name.unwrap_or(theirs),
        address: Some(address.to_owned()),
        fingerprint: offers,
    };
    let name = peer.name.clone();
    let was = service.peers.get(&name);
    if let Err(why) = write(service, peer, actor).await {
        // It may be gone.
        drop(say(&mut tls, &Message::Refused(why.message.clone())).await);
        return Err(why);
    }
    say(&mut tls, &Message::Paired).await.map_err(lost)?;
    match hear(&mut tls).await.map_err(lost)? {
        Message::Paired => Ok(name),
        Message::Refused(why) if was.is_none() => {
            let mutation = Mutation::Replicate {
                verb: Verb::PeerDelete(name),
                preconditions: Preconditions::none(),
            };
            change(service, mutation, actor).await?;
            service.peers.deleted();
            Err(refused(why))
        }
        Message::Refused(why) => Err(refused(why)),
        _ => Err(failed(format!("{address} says something else."))),
    }
}

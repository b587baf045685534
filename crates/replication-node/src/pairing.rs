//! Pairing with other nodes ([`weir_peer_link::pairing`]): offers, and the rows of peers that
//! result.
//!
//! The joining node writes its row first and the offering node second. Joining again continues
//! after a lost connection. So neither side is paired for good with a node that has not agreed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weir_base::limits::replica::PEER_PAIRING;
use weir_control::{Actor, Mutation};
use weir_peer_link::pairing::{self, Channel, Message, PROTOCOL, Side, send, shown_fingerprint};
use weir_peer_link::stream::{connect, secure};
use weir_relations::manager::{Preconditions, Verb};
use weir_relations::model::Offer;

use super::job;
use super::offers::{Answer, PairingError};
use super::peers::Peer;
use super::state::Replication;

/// Time after which an operation of the control plane is reported as unfinished.
const LONGEST: Duration = Duration::from_secs(60);
/// One message for all three causes: naming the cause would help an attacker to guess.
const WRONG: &str = "The passphrase is wrong, was used, or has expired.";

impl Replication {
    /// Makes an offer of pairing to a node that will be called `name` here. Replaces an offer of
    /// the same name.
    ///
    /// # Errors
    /// There are too many offers.
    pub fn offer(
        &self,
        peer: (&str, Option<String>),
        made_for: (&Actor, bool),
    ) -> Result<Offer, PairingError> {
        self.offers
            .add(peer, made_for, self.current_time(), &*self.rng)
    }

    /// Returns the offers that have not expired.
    pub fn offers(&self) -> Vec<Offer> {
        self.offers.list_offers(self.current_time())
    }

    /// Ends offers that were made for relationships of which none is left.
    pub fn drop_unused_offers(&self) {
        let rows = self.rows();
        self.offers.retain(|name| rows.uses_peer(name));
    }

    /// Joins the node at an address, which has offered pairing. Returns its name on this node.
    ///
    /// # Errors
    /// Nothing is paired then, unless the connection was lost at the very end; joining again
    /// continues.
    pub fn join(
        self: &Arc<Self>,
        actor: &Actor,
        name: Option<String>,
        address: &str,
        passphrase: &str,
    ) -> Result<String, PairingError> {
        join(self, actor, name, address, passphrase)
    }
}

/// Writes a peer's row in a user's name. Does nothing if it exists already, for example after a
/// lost connection.
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
    // On the control plane's runtime.
    let carried_out = async move { control.carry_out(mutation, &actor, LONGEST).await };
    let done = service.runtime.spawn(carried_out).await;
    let done = done.map_err(|error| PairingError::Failed(error.to_string()))?;
    done?;
    Ok(())
}

/// Handles the offering node's side of a connection that wants to join. Returns a message about the
/// result.
pub async fn receive(
    service: &Arc<Replication>,
    mut tls: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
) -> Result<String, String> {
    let (stream, connection) = tls.get_ref();
    let from = stream.peer_addr().map_err(|e| e.to_string())?;
    let joins = shown_fingerprint(connection).ok_or("it has shown no certificate")?;
    let offers = service.peers.fingerprint.clone();
    let channel =
        Channel::from_connection(connection, joins.clone(), offers).map_err(|e| e.to_string())?;
    let lost = |error: std::io::Error| error.to_string();
    let Message::Join { name, port, proof } = pairing::receive(&mut tls).await.map_err(lost)?
    else {
        return Err("it says something else".to_owned());
    };
    let proves = |passphrase: &str| channel.proves(passphrase, Side::Joins, &proof);
    let Some(open) = service.offers.take(service.current_time(), proves) else {
        let told = send(&mut tls, &Message::Refused(WRONG.to_owned())).await;
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
        send(&mut tls, &reply).await.map_err(lost)?;
        match pairing::receive(&mut tls).await.map_err(lost)? {
            Message::Paired => {}
            Message::Refused(why) => return Err(why),
            _ => return Err("it says something else".to_owned()),
        }
        let written = write(service, peer, &actor).await;
        written.map_err(|why| why.to_string())
    };
    if let Err(why) = ends.await {
        service.offers.put_back(open);
        // The other side may be gone.
        drop(send(&mut tls, &Message::Refused(why.clone())).await);
        return Err(why);
    }
    service.wake();
    send(&mut tls, &Message::Paired).await.map_err(lost)?;
    Ok(format!("{name} joined as {joined}"))
}

/// Returns the address of a joining node: the offer's, or else the one that it connects from, with
/// the port that it reports.
fn address(offered: Option<&str>, from: IpAddr, port: Option<u16>) -> Option<String> {
    match (offered, port) {
        (Some(offered), _) => Some(offered.to_owned()),
        (None, Some(port)) => Some(SocketAddr::new(from.to_canonical(), port).to_string()),
        (None, None) => None,
    }
}

fn join(
    service: &Arc<Replication>,
    actor: &Actor,
    name: Option<String>,
    address: &str,
    passphrase: &str,
) -> Answer<String> {
    let failed = PairingError::Failed;
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
    let failed = PairingError::Failed;
    let lost = |error: std::io::Error| failed(format!("{address}: {error}"));
    let refused = PairingError::State;
    let config = service.peers.joining().map_err(|e| failed(e.to_string()))?;
    let stream = connect(address)
        .map_err(|error| refused(format!("cannot connect to {address}: {error}")))?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(lost)?;
    let mut tls = secure(config, stream).await.map_err(lost)?;
    let connection = tls.get_ref().1;
    if connection.alpn_protocol() != Some(PROTOCOL) {
        return Err(refused(format!("{address} offers no pairing now. {WRONG}")));
    }
    let none = || failed(format!("{address} shows no certificate."));
    let offers = shown_fingerprint(connection).ok_or_else(none)?;
    let own = service.peers.fingerprint.clone();
    let channel = Channel::from_connection(connection, own, offers.clone());
    let channel = channel.map_err(|e| failed(e.to_string()))?;
    let ours = Message::Join {
        name: service.name.clone(),
        port: service.listening.map(|address| address.port()),
        proof: channel.prove(passphrase, Side::Joins),
    };
    send(&mut tls, &ours).await.map_err(lost)?;
    let theirs = match pairing::receive(&mut tls).await.map_err(lost)? {
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
        // The other side may be gone.
        drop(send(&mut tls, &Message::Refused(why.to_string())).await);
        return Err(why);
    }
    send(&mut tls, &Message::Paired).await.map_err(lost)?;
    match pairing::receive(&mut tls).await.map_err(lost)? {
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

//! Offers of pairing that have not expired.
//!
//! An offer is good for one pairing, for the time [`LASTS`]. It is in memory only: a restart, or
//! another offer of the same name, ends it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::Rng;
use weir_control::{Actor, NotCarriedOut};
use weir_peer_link::pairing::passphrase;
use weir_relations::manager::Now;
use weir_relations::model::Offer;

/// Lifetime of an offer, the same as ONTAP's.
const LASTS: Duration = Duration::from_secs(3600);
/// Maximum number of offers at a time.
const MAX_OFFERS: usize = 64;

/// Error of pairing with another node.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// The state of one of the nodes does not allow it.
    #[error("{0}")]
    State(String),
    /// The connection failed, or the other node does not follow the protocol.
    #[error("{0}")]
    Failed(String),
    /// The control plane did not write the peer's row.
    #[error(transparent)]
    Change(#[from] NotCarriedOut),
}

/// Result of a step of pairing.
pub type Answer<T> = Result<T, PairingError>;

/// An offer, with the attributes that neither the other node nor users see.
pub struct Open {
    pub offer: Offer,
    /// User whom the audit log names for the pairing.
    pub actor: Actor,
    /// End by the monotonic clock, which cannot be set back.
    until: Duration,
    /// True if made for relationships that wait for this peer. The offer ends when none is left.
    for_relationships: bool,
}

/// Offers that have not expired, by the name of the future peer.
#[derive(Default)]
pub struct Offers(Mutex<HashMap<String, Open>>);

impl Offers {
    /// Adds an offer; replaces one of the same name.
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
            return Err(PairingError::State(text));
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

    /// Returns the offers that have not expired.
    pub fn list_offers(&self, now: Now) -> Vec<Offer> {
        let mut all = self.0.lock();
        all.retain(|_, open| open.until > Duration::from_millis(now.ms));
        all.values().map(|open| open.offer.clone()).collect()
    }

    /// Ends offers made for relationships unless `waits` returns true for their peer.
    pub fn retain(&self, waits: impl Fn(&str) -> bool) {
        let stays = |name: &String, open: &mut Open| !open.for_relationships || waits(name);
        self.0.lock().retain(stays);
    }

    /// Removes and returns the offer whose passphrase has made a proof, so that no other connection
    /// can use it.
    pub fn take(&self, now: Now, proves: impl Fn(&str) -> bool) -> Option<Open> {
        let mut all = self.0.lock();
        all.retain(|_, open| open.until > Duration::from_millis(now.ms));
        let found = all.values().find(|open| proves(&open.offer.passphrase));
        let name = found?.offer.name.clone();
        all.remove(&name)
    }

    /// Makes all offers expire.
    #[cfg(feature = "testing")]
    pub fn expire(&self) {
        let mut all = self.0.lock();
        all.values_mut()
            .for_each(|open| open.until = Duration::ZERO);
    }

    /// Returns an offer that has led to no pairing: its passphrase may be used again, unless there
    /// is a newer offer of the name.
    pub fn put_back(&self, open: Open) {
        self.0.lock().entry(open.offer.name.clone()).or_insert(open);
    }
}

//! The destination's side of a move: copies a volume that another aggregate offers, and makes it a
//! volume of this one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_base::SnapshotIdentity;
use weir_base::limits::replica::LINK_FAREWELL as FAREWELL;
use weir_control::moves::{DepartingRows, NotArrived, arriving_key};
use weir_control::{LocationName, Origin};
use weir_relations::plan;
use weir_transfer::progress::TransferError;
use weir_transfer::receive::{FrameEffect, Receiver, SnapshotRange};
use weir_transfer::session::{Ask, Cut, Offer, PeerReply, Stays};
use weir_volume::Volume;

use super::limiter::Flow;
use super::link::{Link, LinkError};
use super::moves::Moves;
use super::peers::{Peer, Peers};
use super::state::Replication;

/// Length of a round after which the next one is short enough for clients to wait for it, in
/// milliseconds.
const SHORT_MS: u64 = 700;
/// Rounds after which clients wait for the next one, however long the last one was.
const ROUNDS: u32 = 12;
/// Attempts to end a move over one connection.
const ATTEMPTS: u32 = 8;

/// Reason why a volume does not arrive now.
enum Stop {
    Stays(Stays),
    Link(LinkError),
}

impl From<LinkError> for Stop {
    fn from(error: LinkError) -> Stop {
        match error {
            LinkError::Later(why) => Stop::Stays(Stays::Later(why)),
            error => Stop::Link(error),
        }
    }
}

impl From<TransferError> for Stop {
    fn from(error: TransferError) -> Stop {
        later(error)
    }
}

fn later(why: impl ToString) -> Stop {
    Stop::Stays(Stays::Later(why.to_string()))
}

/// Returns true if the request comes from another server of the cluster.
fn is_server(peer: Option<&Peer>) -> bool {
    peer.is_some_and(Peers::is_server)
}

/// Answers a request of a move, at its destination.
pub async fn answer(
    service: &Arc<Replication>,
    link: &mut Link,
    peer: Option<&Peer>,
    ask: Ask,
) -> Result<(), LinkError> {
    let told = match ask {
        Ask::Arrive(offer) => return run(service, link, peer, offer).await,
        Ask::Decide { place, attempt } => decide(service, peer, &place, attempt),
        _ => PeerReply::Refused("no volume moves over this connection".to_owned()),
    };
    link.tell(&told).await
}

/// Decides on an attempt of which its source has lost the outcome.
fn decide(
    service: &Replication,
    peer: Option<&Peer>,
    place: &(String, String),
    attempt: u64,
) -> PeerReply {
    let Some(moves) = service.moves.as_ref().filter(|_| is_server(peer)) else {
        return PeerReply::Refused("it is no server of this cluster".to_owned());
    };
    let mut arrivals = moves.arrivals.lock();
    let arrived = service
        .control
        .has_arrived(&LocationName::new(&place.0, &place.1), attempt);
    PeerReply::Decided(arrivals.decide(attempt, arrived))
}

/// Gets a volume that is offered over `link`, which the source answers from then on.
async fn run(
    service: &Arc<Replication>,
    link: &mut Link,
    peer: Option<&Peer>,
    offer: Offer,
) -> Result<(), LinkError> {
    let Some(moves) = service.moves.as_ref().filter(|_| is_server(peer)) else {
        let why = "it is no server of this cluster".to_owned();
        return link.tell(&PeerReply::Refused(why)).await;
    };
    let departing: DepartingRows = match serde_json::from_str(&offer.departing) {
        Ok(departing) => departing,
        Err(error) => return link.tell(&PeerReply::Refused(error.to_string())).await,
    };
    if let Err(refusal) = service
        .control
        .may_arrive(&departing, offer.pool.as_deref())
    {
        return link.tell(&PeerReply::Refused(refusal.message)).await;
    }
    if !moves.receiving.lock().insert(offer.id) {
        let why = "an earlier connection for this move has not ended".to_owned();
        return link.tell(&PeerReply::Later(why)).await;
    }
    tracing::info!(volume = %departing.volume.name, "receiving a volume that moves here");
    let arrival = Arrival {
        service,
        moves,
        offer: &offer,
        key: arriving_key(offer.id),
    };
    let ended = arrival.receive(link).await;
    moves.receiving.lock().remove(&offer.id);
    ended
}

struct Arrival<'a> {
    service: &'a Arc<Replication>,
    moves: &'a Moves,
    offer: &'a Offer,
    key: String,
}

impl Arrival<'_> {
    async fn receive(&self, link: &mut Link) -> Result<(), LinkError> {
        link.tell(&PeerReply::Done).await?;
        let stop = match self.copy(link).await {
            Ok(()) => {
                self.moves.arrived.fetch_add(1, Ordering::Relaxed);
                // A source that does not hear of it asks.
                let told = link.request(&Ask::End(Ok(()))).await;
                self.tidy();
                self.service.adopt(&self.key).await;
                return told.map(|_| ());
            }
            Err(stop) => stop,
        };
        match stop {
            Stop::Stays(stays) => {
                if matches!(stays, Stays::Refused(_)) {
                    self.drop_copy().await;
                }
                link.request(&Ask::End(Err(stays))).await.map(|_| ())
            }
            // The user has ended the move.
            Stop::Link(LinkError::Refused(why)) => {
                tracing::info!(key = self.key, %why, "dropping the copy of a volume that does not move here");
                self.drop_copy().await;
                Ok(())
            }
            Stop::Link(error) => Err(error),
        }
    }

    async fn drop_copy(&self) {
        let (control, id) = (Arc::clone(&self.service.control), self.offer.id);
        let dropped = self
            .service
            .runtime
            .spawn(async move { control.drop_copy(id).await });
        // When the server stops, a later start does it.
        drop(dropped.await);
    }

    fn volume(&self) -> Result<Arc<Volume>, Stop> {
        let found = self.service.engine_volume(&self.key);
        found.map_err(|why| later(why.text))
    }

    /// Deletes the snapshots that the move has taken.
    fn tidy(&self) {
        let Ok(volume) = self.volume() else { return };
        let own = format!("move.{:016x}.", self.offer.id);
        for snapshot in volume.snapshots() {
            if snapshot.name.starts_with(&own) {
                if let Err(error) = volume.snapshot_delete(&snapshot.name) {
                    tracing::warn!(%error, snapshot = %snapshot.name, "cannot delete a snapshot of a move");
                }
            }
        }
    }

    /// Copies the volume until the last difference was short, and makes it a volume of this
    /// aggregate.
    async fn copy(&self, link: &mut Link) -> Result<(), Stop> {
        let (mut attempt, mut rounds) = (0, 0);
        while attempt < ATTEMPTS {
            let began = self.service.current_time().ms;
            self.round(link, None).await?;
            rounds += 1;
            let took = self.service.current_time().ms.saturating_sub(began);
            if took > SHORT_MS && rounds < ROUNDS {
                continue;
            }
            let cut = match self.round(link, Some(attempt)).await {
                Ok(cut) => cut,
                Err(Stop::Stays(Stays::Later(why))) => {
                    tracing::info!(key = self.key, %why, "cannot receive the last part of a volume in time; retrying");
                    attempt += 1;
                    continue;
                }
                Err(stop) => return Err(stop),
            };
            match link.request(&Ask::HandOver { cut }).await {
                Ok(PeerReply::HandedOver(over)) => {
                    let took = self.service.current_time().ms.saturating_sub(began);
                    tracing::debug!(key = self.key, took, "got a volume handed over");
                    return self.arrive(over).await;
                }
                Ok(_) => return Err(later("the source gave another answer")),
                Err(LinkError::Later(why)) => {
                    tracing::info!(key = self.key, %why, "cannot get a volume handed over; retrying");
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(later("the last part of the volume takes too long"))
    }

    /// Brings the copy to the source's present state; `hold`: clients wait from now on. Returns the
    /// number of the cut.
    async fn round(&self, link: &mut Link, hold: Option<u32>) -> Result<u32, Stop> {
        let base = match self.service.engine.volume(&self.key) {
            Some(copy) => exported(&copy),
            None => None,
        };
        let ask = Ask::Cut {
            hold: hold.is_some(),
            attempt: hold.unwrap_or_default(),
            base,
        };
        let PeerReply::Cut(Cut { number, volume }) = link.request(&ask).await? else {
            return Err(later("the source gave another answer"));
        };
        let copy = self.prepare(&volume).await?;
        let mut base = exported(&copy);
        let behind = { volume.snapshots.iter() }.position(|s| Some(s.id) == base);
        let missing = volume.snapshots.get(behind.map_or(0, |at| at + 1)..);
        for snapshot in missing.unwrap_or_default() {
            self.transfer(link, &copy, base, snapshot.id).await?;
            base = Some(snapshot.id);
        }
        for snapshot in copy.snapshots() {
            let there = volume.snapshots.iter().any(|s| s.id == snapshot.identity);
            if !there && Some(snapshot.identity) != base {
                if let Err(error) = copy.snapshot_delete(&snapshot.name) {
                    tracing::debug!(%error, snapshot = %snapshot.name, "cannot delete a snapshot of a copy now");
                }
            }
        }
        Ok(number)
    }

    /// Returns the copy, in a state on which the next difference can build.
    async fn prepare(&self, source: &plan::Volume) -> Result<Arc<Volume>, Stop> {
        let (control, id, size) = (
            Arc::clone(&self.service.control),
            self.offer.id,
            source.size,
        );
        // An earlier attempt may have ended after the copy was made writable.
        if let Some(copy) = self.service.engine.volume(&self.key) {
            let common = { copy.snapshots().into_iter().rev() }
                .find(|s| source.snapshots.iter().any(|there| there.id == s.identity));
            let good = copy
                .mirror()
                .is_some_and(|mirror| mirror.exported == common.as_ref().map(|s| s.id));
            match common {
                Some(common) if !good => {
                    let back = self.service.engine.resync(&self.key, common.identity);
                    back.map_err(later)?;
                }
                None if !good => {
                    self.drop_copy().await;
                    // Only then may another volume have its name.
                    self.service.engine.cp_now().map_err(later)?;
                }
                _ => {}
            }
        }
        let made = self
            .service
            .runtime
            .spawn(async move { control.create_copy(id, size).await });
        made.await
            .map_err(|_| later("the server stops"))?
            .map_err(|refusal| later(refusal.message))?;
        self.volume()
    }

    /// Copies one snapshot as its difference to `base`.
    async fn transfer(
        &self,
        link: &mut Link,
        copy: &Arc<Volume>,
        base: Option<SnapshotIdentity>,
        target: SnapshotIdentity,
    ) -> Result<(), Stop> {
        let send = Ask::Send {
            volume: self.offer.volume.clone(),
            relationship: String::new(),
            destination: String::new(),
            base,
            target,
            throttle: None,
            compress: false,
        };
        link.request(&send).await?;
        let wanted = SnapshotRange { base, target };
        let mut receiver = Receiver::new(copy, wanted, self.service.nanos())?;
        let flow = self.service.incoming.join(None);
        receive(self.service, link, &mut receiver, &flow).await
    }

    /// Gives snapshots the names that they have at the source by now.
    fn rename_snapshots(&self, departing: &DepartingRows) -> Result<(), Stop> {
        let copy = self.volume()?;
        for there in &departing.snapshots {
            let identity = there.engine.map(|engine| engine.identity);
            let here = identity.and_then(|identity| copy.snapshot_with(identity));
            if let Some(here) = here.filter(|here| *here.name != *there.name.id) {
                copy.snapshot_rename(&here.name, &there.name.id)
                    .map_err(later)?;
            }
        }
        Ok(())
    }

    /// Makes the copy a volume of this aggregate: from the row on, clients find it here.
    async fn arrive(&self, over: weir_transfer::session::HandedOver) -> Result<(), Stop> {
        let departing: DepartingRows = serde_json::from_str(&over.departing).map_err(later)?;
        let origin: Origin = serde_json::from_str(&over.origin).map_err(later)?;
        self.service.engine.break_off(&self.key).map_err(later)?;
        self.rename_snapshots(&departing)?;
        if !self.moves.arrivals.lock().begin(over.attempt) {
            return Err(later("the source has taken the volume back"));
        }
        let (control, pool) = (Arc::clone(&self.service.control), self.offer.pool.clone());
        let (id, attempt) = (self.offer.id, over.attempt);
        let written = self.service.runtime.spawn(async move {
            let how = (pool.as_deref(), origin);
            control.arrive(&departing, id, attempt, how).await
        });
        let stop = match written.await {
            Ok(Ok(())) => None,
            // The next start knows it; until then the attempt stays undecided.
            Err(_) | Ok(Err(NotArrived::Unknown)) => return Err(Stop::Link(LinkError::Closed)),
            Ok(Err(NotArrived::Refused(refusal))) => Some(Stays::Refused(refusal.message)),
            Ok(Err(NotArrived::Later(why))) => Some(Stays::Later(why)),
        };
        self.moves.arrivals.lock().written(attempt, stop.is_none());
        stop.map_or(Ok(()), |stays| Err(Stop::Stays(stays)))
    }
}

/// Returns the snapshot that the next difference of a copy builds on.
fn exported(copy: &Volume) -> Option<SnapshotIdentity> {
    let exported = copy.mirror()?.exported?;
    let mut all = copy.snapshots().into_iter();
    all.find(|s| s.id == exported).map(|s| s.identity)
}

/// Receives a snapshot, frame by frame.
async fn receive(
    service: &Replication,
    link: &mut Link,
    receiver: &mut Receiver,
    flow: &Flow,
) -> Result<(), Stop> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        while let Some(frame) = link.incoming.frame().map_err(LinkError::from)? {
            let mut received = receiver.frame(&frame, &mut link.out, service.nanos());
            while received == Ok(FrameEffect::Proving) {
                received = receiver.prove(&mut link.out, service.nanos());
            }
            match received {
                Ok(FrameEffect::Data(bytes)) => flow.take(bytes).await,
                // Sent together with the next request, which always follows.
                Ok(FrameEffect::Done { .. }) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    // Tells the other side the cause; the result makes no difference here.
                    let _ = tokio::time::timeout(FAREWELL, link.flush()).await;
                    return Err(error.into());
                }
            }
        }
        if !link.out.is_empty() {
            link.flush().await?;
            continue;
        }
        tokio::select! {
            filled = link.fill() => filled?,
            _ = ticks.tick() => receiver.tick(&mut link.out, service.nanos()),
        }
    }
}

//! The source's side of a move: offers a volume to other aggregates, answers the one that takes it,
//! and hands it over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_base::limits::replica::PEER_IDLE as IDLE;
use weir_control::{HandedOver, Origin, Volume, VolumeMove};
use weir_peer_link::stream;
use weir_relations::cutover::{Decision, Departure, HandOver};
use weir_relations::manager::Peer;
use weir_relations::plan;
use weir_transfer::session::{self, Ask, Cut, Offer, PeerReply, PeerVolumeName, Stays};
use weir_vfs::directory::Remote;
use weir_volume::FsError;

use super::link::{Link, LinkError, Stream};
use super::moves::Moves;
use super::serve;
use super::state::Replication;

/// Time after which a destination that was given the volume is asked for its decision.
const DECISION: Duration = Duration::from_secs(3);
/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for which requests are held at most in the first attempts to end a move.
const HOLD_MS: u64 = 1_000;
/// Number of the last attempt, from 0, that gets this time. Each further one gets twice that of the
/// one before.
const SHORT_HOLDS: u32 = 3;
/// Longest time for which requests are held: less than clients wait for a server.
const HOLD_MAX_MS: u64 = 16_000;
/// Label of the snapshots that a move takes.
const LABEL: &str = "";

/// Reason for which the next attempt has to wait.
type Later = String;

/// Takes the next step of a volume's move: offers it, asks for a decision, or ends the move.
///
/// # Errors
/// The step is to be tried again later.
pub fn run(service: &Arc<Replication>, volume: &Arc<Volume>) -> Result<(), Later> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let (Some(moves), Some(moving)) = (&service.moves, &volume.moving) else {
        return Ok(());
    };
    let step = Step {
        service,
        moves,
        volume,
        moving,
    };
    let mut stop = service.stop.subscribe();
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Err("the server stops".to_owned()),
            outcome = step.take() => outcome,
        }
    })
}

struct Step<'m> {
    service: &'m Arc<Replication>,
    moves: &'m Moves,
    volume: &'m Arc<Volume>,
    moving: &'m VolumeMove,
}

impl Step<'_> {
    async fn take(&self) -> Result<(), Later> {
        match self.machine() {
            None => Ok(()),
            Some(Departure::HandedOver) => self.ask_for_decision().await,
            Some(Departure::Left) => self.forget().await,
            Some(_) => self.offer().await,
        }
    }

    fn machine(&self) -> Option<Departure> {
        self.moves.with(&self.volume.key, |leaving| leaving.machine)
    }

    /// Runs work of the control plane on its own threads.
    async fn control<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Later> {
        let done = self.service.runtime.spawn(work).await;
        done.map_err(|_| "the server stops".to_owned())
    }

    fn prefix(&self) -> String {
        format!("move.{:016x}.", self.moving.id)
    }

    /// Deletes the snapshots of the move, except that with this identity and number.
    fn drop_cuts(&self, base: Option<weir_base::SnapshotIdentity>, newest: Option<u32>) {
        let Ok(engine) = self.service.engine_volume(&self.volume.key) else {
            return;
        };
        let prefix = self.prefix();
        for snapshot in engine.snapshots() {
            let kept = Some(snapshot.identity) == base || Some(snapshot.id) == newest;
            if snapshot.name.starts_with(&prefix) && !kept {
                if let Err(error) = engine.snapshot_delete(&snapshot.name) {
                    tracing::debug!(%error, snapshot = %snapshot.name, "cannot delete a snapshot of a move now");
                }
            }
        }
    }

    /// Ends the move: the volume stays.
    async fn fail(&self, why: String) -> Result<(), Later> {
        tracing::warn!(volume = %self.volume.name, %why, "cannot move a volume to another aggregate; it stays");
        self.moves.failed.fetch_add(1, Ordering::Relaxed);
        self.drop_cuts(None, None);
        let (control, key) = (
            Arc::clone(&self.service.control),
            self.volume.key.to_string(),
        );
        let ended = self.control(async move { control.end_move(&key, &why).await });
        ended.await?.map_err(|refusal| refusal.message)?;
        self.service.adopt(&self.volume.key).await;
        Ok(())
    }

    /// Offers the volume to the aggregates that may get it.
    async fn offer(&self) -> Result<(), Later> {
        let departing = match self.service.control.departing(&self.volume.key) {
            Ok(departing) => departing,
            Err(refusal) => return self.fail(refusal.message).await,
        };
        let place = &self.volume.name.place;
        let offer = Offer {
            id: self.moving.id,
            volume: PeerVolumeName {
                vserver: place.project.to_string(),
                volume: self.volume.name.id.to_string(),
            },
            pool: self.moving.pool.as_ref().map(ToString::to_string),
            departing: encode(&departing)?,
        };
        let directory = Arc::clone(&self.moves.vfs.directory());
        let named = |remote: &&Arc<Remote>| {
            let wanted = self.moving.aggregate.as_deref();
            wanted.is_none_or(|wanted| wanted == remote.aggregate)
        };
        let (mut refused, mut silent) = (Vec::new(), Vec::new());
        for remote in directory.servers().iter().filter(named) {
            let mut link = match dial(self.service, remote).await {
                Ok(link) => link,
                Err(why) => {
                    silent.push(format!("{}: {why}", remote.aggregate));
                    continue;
                }
            };
            match link.request(&Ask::Arrive(offer.clone())).await {
                Ok(_) => return self.serve(link, remote).await,
                Err(LinkError::Refused(why)) => {
                    refused.push(format!("aggregate {}: {why}", remote.aggregate));
                }
                Err(error) => silent.push(format!("{}: {error}", remote.aggregate)),
            }
        }
        match (silent.is_empty(), refused.is_empty()) {
            (false, _) => Err(silent.join("; ")),
            (true, false) => self.fail(refused.join("; ")).await,
            (true, true) if directory.servers().is_empty() => {
                Err("the server knows no other aggregate of a cluster yet".to_owned())
            }
            (true, true) => {
                let name = self.moving.aggregate.as_deref().unwrap_or_default();
                self.fail(format!("the cluster has no other aggregate {name}"))
                    .await
            }
        }
    }

    /// Answers the aggregate that has accepted the volume.
    async fn serve(&self, mut link: Link, remote: &Remote) -> Result<(), Later> {
        let key = &*self.volume.key;
        self.moves.with(key, |leaving| {
            leaving.aggregate = Some(remote.aggregate.as_str().into());
        });
        let peer = Peer {
            name: format!("aggregate {}", remote.aggregate),
            address: None,
            fingerprint: remote.fingerprint.clone(),
        };
        let ended = self.converse(&mut link, remote, &peer).await;
        // A cut is worth nothing without its destination.
        let released = self.moves.with(key, |leaving| {
            leaving.machine.release().then_some(leaving.volume)
        });
        if let Some(Some(volume)) = released {
            self.service.release_volume(self.moves, key, volume);
        }
        ended
    }

    async fn converse(&self, link: &mut Link, remote: &Remote, peer: &Peer) -> Result<(), Later> {
        let lost = |error: LinkError| format!("aggregate {}: {error}", remote.aggregate);
        loop {
            let patience = match self.machine() {
                Some(Departure::HandedOver) => DECISION,
                _ => IDLE,
            };
            let ask = tokio::time::timeout(patience, link.control::<Ask>()).await;
            let ask = ask.map_err(|_| lost(LinkError::Silent))?.map_err(lost)?;
            if !self.is_wanted() {
                let why = "the move was aborted".to_owned();
                self.drop_cuts(None, None);
                self.service.adopt(&self.volume.key).await;
                // The destination may be gone.
                drop(link.tell(&PeerReply::Refused(why)).await);
                return Ok(());
            }
            let told = match ask {
                Ask::Cut {
                    hold,
                    attempt,
                    base,
                } => self.cut(hold.then_some(attempt), base),
                Ask::HandOver { cut } => self.hand_over(cut, remote).await?,
                Ask::End(result) => {
                    let ended = self.end(result, remote).await;
                    // It asks for nothing more.
                    drop(link.tell(&PeerReply::Done).await);
                    return ended;
                }
                Ask::Send { .. } | Ask::Content { .. } => {
                    serve::answer(self.service, link, Some(peer), ask)
                        .await
                        .map_err(lost)?;
                    continue;
                }
                _ => PeerReply::Refused("no such request is part of a move".to_owned()),
            };
            link.tell(&told).await.map_err(lost)?;
        }
    }

    /// Returns true unless the user has ended the move.
    fn is_wanted(&self) -> bool {
        let view = self.service.control.view();
        let mut moving = view.moving();
        moving.any(|volume| {
            let id = volume.moving.as_ref().map(|moving| moving.id);
            volume.key == self.volume.key && id == Some(self.moving.id)
        })
    }

    /// Takes a snapshot; `hold`: holds requests first, at the attempt of this number.
    fn cut(&self, hold: Option<u32>, base: Option<weir_base::SnapshotIdentity>) -> PeerReply {
        let later = |error: FsError| PeerReply::Later(error.to_string());
        let key = &*self.volume.key;
        let engine = match self.service.engine_volume(key) {
            Ok(engine) => engine,
            Err(why) => return PeerReply::Refused(why.text),
        };
        let began = self.service.current_time().ms;
        if hold.is_some() {
            self.moves.vfs.relocations.hold(engine.id());
            if let Err(error) = self.service.engine.hold_changes(key) {
                self.service.release_volume(self.moves, key, engine.id());
                return later(error);
            }
        }
        let name = format!("{}{began}", self.prefix());
        let number = match engine.snapshot_take(&name, LABEL, self.service.clock.current_time()) {
            Ok(number) => number,
            Err(error) => {
                if hold.is_some() {
                    self.service.release_volume(self.moves, key, engine.id());
                }
                return later(error);
            }
        };
        if let Some(attempt) = hold {
            let more = attempt.saturating_sub(SHORT_HOLDS).min(8);
            let until = began + (HOLD_MS << more).min(HOLD_MAX_MS);
            let held = self.moves.with(key, |leaving| {
                leaving.held_since_ms = began;
                leaving.machine.hold(number, until)
            });
            if held != Some(true) {
                return PeerReply::Refused("the volume is handed over already".to_owned());
            }
        }
        self.drop_cuts(base, Some(number));
        let place = &self.volume.name.place;
        match self.service.describe(&place.project, &self.volume.name.id) {
            Ok(volume) => PeerReply::Cut(Cut {
                number,
                volume: Box::new(plan::Volume {
                    needed: Vec::new(),
                    ..volume
                }),
            }),
            Err(why) => PeerReply::Later(why.text),
        }
    }

    /// Lets the destination decide, if the cut is still held.
    async fn hand_over(&self, cut: u32, remote: &Remote) -> Result<PeerReply, Later> {
        let key = self.volume.key.to_string();
        let answer = self
            .moves
            .with(&key, |leaving| leaving.machine.hand_over(cut));
        if answer != Some(HandOver::Write) {
            return Ok(PeerReply::Later(
                "requests are not held any more".to_owned(),
            ));
        }
        let to = HandedOver {
            attempt: self.service.rng.next_u64(),
            to: remote.identity,
        };
        let (control, of) = (Arc::clone(&self.service.control), key.clone());
        let written = self.control(async move { control.hand_over(&of, to, cut).await });
        match written.await? {
            Ok(departing) => {
                self.moves.with(&key, |leaving| leaving.machine.written());
                Ok(PeerReply::HandedOver(session::HandedOver {
                    attempt: to.attempt,
                    departing: encode(&departing)?,
                    origin: encode(&self.origin()?)?,
                }))
            }
            Err(refusal) => {
                let volume = self.moves.with(&key, |leaving| {
                    leaving.machine.not_written();
                    leaving.volume
                });
                if let Some(volume) = volume {
                    self.service.release_volume(self.moves, &key, volume);
                }
                Ok(PeerReply::Later(refusal.message))
            }
        }
    }

    /// Returns the identity under which clients know the volume.
    fn origin(&self) -> Result<Origin, Later> {
        if let Some(origin) = self.volume.origin {
            return Ok(origin);
        }
        let engine = self.service.engine_volume(&self.volume.key);
        let engine = engine.map_err(|why| why.text)?;
        Ok(Origin {
            aggregate: self.service.engine.aggregate().id().0,
            secret: self.moves.secret,
            number: engine.id().0,
            fsid: engine.fsid(),
        })
    }

    /// Takes the decision of the destination.
    async fn end(&self, result: Result<(), Stays>, remote: &Remote) -> Result<(), Later> {
        match result {
            Ok(()) => {
                self.leave(remote.identity);
                Ok(())
            }
            Err(Stays::Later(why)) => {
                self.take_back().await?;
                Err(format!("aggregate {}: {why}", remote.aggregate))
            }
            Err(Stays::Refused(why)) => {
                self.take_back().await?;
                self.fail(format!("aggregate {}: {why}", remote.aggregate))
                    .await
            }
        }
    }

    /// Forwards clients to the aggregate that has the volume from now on.
    fn leave(&self, to: [u8; 16]) {
        let paths = self.volume.paths.iter().map(|path| format!("/{path}"));
        let now = self.service.current_time().ms;
        let left = self.moves.with(&self.volume.key, |leaving| {
            let news = leaving.machine.decided(true);
            let since = leaving.held_since_ms;
            news.then_some((leaving.volume, now.saturating_sub(since), since))
        });
        let Some(Some((volume, pause, since))) = left else {
            return;
        };
        self.moves
            .vfs
            .relocations
            .depart(volume, to, paths.collect());
        self.moves.departed.fetch_add(1, Ordering::Relaxed);
        if since > 0 {
            self.moves.pause_ms.store(pause, Ordering::Relaxed);
            tracing::info!(volume = %self.volume.name, "moved a volume to another aggregate; requests waited for {pause} ms");
        }
    }

    /// Serves the volume again that the destination has refused.
    async fn take_back(&self) -> Result<(), Later> {
        let key = self.volume.key.to_string();
        let view = self.service.control.view();
        let now = view
            .volume(&self.volume.name)
            .and_then(|volume| volume.moving.clone());
        if let Some(to) = now.and_then(|moving| moving.handed_over) {
            let (control, of) = (Arc::clone(&self.service.control), key.clone());
            let written = self.control(async move { control.take_back(&of, to.attempt).await });
            written.await?.map_err(|refusal| refusal.message)?;
        }
        let back = self.moves.with(&key, |leaving| {
            let news = leaving.machine.decided(false) || leaving.machine.release();
            news.then_some(leaving.volume)
        });
        if let Some(Some(volume)) = back {
            self.service.release_volume(self.moves, &key, volume);
        }
        Ok(())
    }

    /// Asks the destination of a handed over volume who serves it.
    async fn ask_for_decision(&self) -> Result<(), Later> {
        let Some(to) = self.moving.handed_over.or_else(|| self.handed_over()) else {
            return Ok(());
        };
        let directory = Arc::clone(&self.moves.vfs.directory());
        let remote = directory.of_aggregate(&to.to);
        let remote =
            remote.ok_or("the directory of the cluster lacks the aggregate that decides")?;
        let mut link = dial(self.service, remote).await?;
        let ask = Ask::Decide {
            place: Replication::place_of(self.volume),
            attempt: to.attempt,
        };
        match link.request(&ask).await {
            Ok(PeerReply::Decided(Decision::Arrived)) => {
                self.leave(to.to);
                Ok(())
            }
            Ok(PeerReply::Decided(Decision::Refused)) => self.take_back().await,
            Ok(PeerReply::Decided(Decision::Pending)) => {
                Err("the destination is deciding".to_owned())
            }
            Ok(_) => Err("the destination gave another answer".to_owned()),
            Err(error) => Err(format!("aggregate {}: {error}", remote.aggregate)),
        }
    }

    fn handed_over(&self) -> Option<HandedOver> {
        let view = self.service.control.view();
        view.volume(&self.volume.name)?.moving.as_ref()?.handed_over
    }

    /// Forgets the volume once the directory says where it is.
    async fn forget(&self) -> Result<(), Later> {
        let origin = self.origin()?;
        let number = weir_base::VolumeId(origin.number);
        if !self
            .moves
            .vfs
            .directory()
            .has_moved(origin.aggregate, number)
        {
            // It is a matter of seconds.
            self.moves
                .with(&self.volume.key, |leaving| leaving.pause_ms = 500);
            return Err("the volume has moved, and not all servers know it yet".to_owned());
        }
        let (control, key) = (
            Arc::clone(&self.service.control),
            self.volume.key.to_string(),
        );
        let gone = self.control(async move { control.departed(&key).await });
        gone.await?.map_err(|refusal| refusal.message)
    }
}

fn encode<T: serde::Serialize>(rows: &T) -> Result<String, Later> {
    serde_json::to_string(rows).map_err(|error| error.to_string())
}

/// Connects to the server of another aggregate of the cluster.
async fn dial(service: &Arc<Replication>, remote: &Remote) -> Result<Link, Later> {
    let mut why = "its server takes no volumes".to_owned();
    for address in &remote.transfers {
        let opened = async {
            let config = service.peers.client_of(&remote.fingerprint);
            let config = config.map_err(|error| error.to_string())?;
            let socket = stream::connect(&address.to_string()).map_err(|e| e.to_string())?;
            let socket = tokio::net::TcpStream::from_std(socket).map_err(|e| e.to_string())?;
            let tls = stream::secure(config, socket)
                .await
                .map_err(|e| e.to_string())?;
            let link = Link::open(Box::new(tls) as Box<dyn Stream>, service.node).await;
            link.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(HANDSHAKE, opened).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: it does not answer"),
        }
    }
    Err(format!(
        "aggregate {} cannot be reached: {why}",
        remote.aggregate
    ))
}

//! The source's side: answers a destination's requests about volumes of this node, and sends them.
//!
//! A paired node may read every volume of this one: pairing is trust between the operators of the
//! nodes, as between peered clusters of ONTAP. It may change only snapshots that were taken for its
//! own relationships. Each request and each frame checks again that the node is paired, and when a
//! peer is deleted its connections are closed at once.

use std::sync::Arc;

use weir_base::SnapshotIdentity;
use weir_base::limits::replica::PEER_IDLE as IDLE;
use weir_control::State;
use weir_control::rules::replication::offline;
use weir_relations::manager::{Reason, Step};
use weir_relations::model::Path;
use weir_relations::plan;
use weir_relations::retention::SM_CREATED;
use weir_transfer::progress::{Phase, TransferError};
use weir_transfer::send::{SendOptions, SendStep, Sender};
use weir_transfer::session::{Ask, PeerReply, PeerVolumeName};
use weir_transfer::wire::{Message, Pace};
use weir_volume::{ContentWalk, FsError};

use super::limiter::{BindingLimit, Flow};
use super::link::{Link, LinkError, Stream};
use super::peers::Peer;
use super::state::Replication;
use super::{arrive, files};

/// Compression level of zstd: fast enough for any network on which compression pays.
const LEVEL: i32 = 1;
/// Number of differing records of a snapshot that are hashed in a step.
const HASH_STEP: usize = 16_384;
/// Nanoseconds between reports to the peer that a hash is still being computed.
const WORKING: u64 = 10_000_000_000;
/// Nanoseconds between two checks of the limit that binds a transfer.
const LOOK: u64 = 200_000_000;

/// Serves a connection from its greeting to its end, on this thread.
pub fn alone(service: &Arc<Replication>, stream: Box<dyn Stream>, peer: Option<&Peer>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return;
    };
    runtime.block_on(converse(service, stream, peer));
}

/// Serves a connection from its greeting to its end, within a runtime.
pub async fn converse(service: &Arc<Replication>, stream: Box<dyn Stream>, peer: Option<&Peer>) {
    let mut stop = service.stop.subscribe();
    let session = async {
        let mut link = Link::open(stream, service.node).await?;
        loop {
            let ask = tokio::time::timeout(IDLE, link.control::<Ask>()).await;
            answer(
                service,
                &mut link,
                peer,
                ask.map_err(|_| LinkError::Silent)??,
            )
            .await?;
        }
    };
    let deleted = async {
        match peer {
            Some(peer) => service.peers.gone(peer).await,
            None => std::future::pending().await,
        }
    };
    let ended: Result<(), LinkError> = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return,
        () = deleted => Err(unpaired()),
        ended = session => ended,
    };
    match (ended, peer) {
        (Err(LinkError::Closed) | Ok(()), _) | (Err(_), None) => {}
        (Err(error), Some(peer)) => {
            tracing::info!(peer = %peer.name, %error, "replication connection ended");
        }
    }
}

fn unpaired() -> LinkError {
    LinkError::Refused("it is no peer of this node any more".to_owned())
}

/// Checks that this peer may send requests; `None` is this node itself.
fn allowed(service: &Replication, peer: Option<&Peer>) -> Result<(), LinkError> {
    match peer.is_none_or(|peer| service.peers.has_peer(peer)) {
        true => Ok(()),
        false => Err(unpaired()),
    }
}

fn no(error: FsError) -> PeerReply {
    match error {
        FsError::Busy | FsError::NoSpace | FsError::Quota | FsError::Io => {
            PeerReply::Later(error.to_string())
        }
        error => PeerReply::Refused(error.to_string()),
    }
}

pub(super) async fn answer(
    service: &Arc<Replication>,
    link: &mut Link,
    peer: Option<&Peer>,
    ask: Ask,
) -> Result<(), LinkError> {
    allowed(service, peer)?;
    match ask {
        Ask::Volume(named) => {
            let told = describe(service, &named);
            link.tell(&told).await
        }
        Ask::Take { volume, name } => {
            let told = take(service, &volume, &name).await;
            link.tell(&told.unwrap_or_else(|told| told)).await
        }
        Ask::Keep {
            volume,
            relationship,
            destination,
            newest,
        } => {
            let told = match find_source_volume(service, &volume) {
                Ok((_, found)) if found.snapshot_with(newest).is_some() => {
                    keep(service, peer, relationship, &volume, &destination, newest);
                    PeerReply::Done
                }
                Ok(_) => PeerReply::Refused("the snapshot does not exist".to_owned()),
                Err(told) => told,
            };
            link.tell(&told).await
        }
        Ask::Drop {
            volume,
            relationship,
            names,
        } => {
            let told = drop_snapshots(service, &volume, &relationship, &names).await;
            link.tell(&told.unwrap_or_else(|told| told)).await
        }
        Ask::Content { volume, snapshot } => {
            let walk = find_source_volume(service, &volume)
                .and_then(|(_, found)| found.content_walk(snapshot).map_err(no));
            match walk {
                Ok(walk) => hash(service, link, walk).await,
                Err(told) => link.tell(&told).await,
            }
        }
        Ask::File {
            volume,
            snapshot,
            path,
            throttle,
            compress,
        } => {
            let found = match find_source_volume(service, &volume) {
                Ok((_, found)) => found,
                Err(told) => return link.tell(&told).await,
            };
            let flow = service.outgoing.join(throttle);
            let how = (&flow, compress.then_some(LEVEL));
            let admitted = || {
                let of = self::path(&volume);
                match service.is_offline(&of) {
                    true => Err(LinkError::Refused(offline(&of))),
                    false => allowed(service, peer),
                }
            };
            files::send(link, &found, (snapshot, &path), how, admitted).await
        }
        Ask::Send {
            volume,
            relationship,
            destination,
            base,
            target,
            throttle,
            compress,
        } => {
            let found = match find_source_volume(service, &volume) {
                Ok((_, found)) => found,
                Err(told) => return link.tell(&told).await,
            };
            let options = SendOptions {
                compress: compress.then_some(LEVEL),
                count: true,
            };
            let sender = match Sender::new(&found, base, target, options, service.nanos()) {
                Ok(sender) => sender,
                Err(TransferError::Volume(error)) => return link.tell(&no(error)).await,
                Err(error) => return link.tell(&PeerReply::Later(error.to_string())).await,
            };
            link.tell(&PeerReply::Sending).await?;
            let flow = service.outgoing.join(throttle);
            send(service, peer, &flow, link, (sender, &volume)).await?;
            keep(service, peer, relationship, &volume, &destination, target);
            Ok(())
        }
        of_a_move => arrive::answer(service, link, peer, of_a_move).await,
    }
}

fn describe(service: &Replication, named: &PeerVolumeName) -> PeerReply {
    let found = steady(service, named).map(|_| service.describe(&named.vserver, &named.volume));
    match found {
        Err(told) => told,
        Ok(Ok(volume)) => PeerReply::Volume(Box::new(volume)),
        Ok(Err(why)) if why.reason == Reason::Failed => PeerReply::Later(why.text),
        Ok(Err(why)) => PeerReply::Refused(why.text),
    }
}

/// Takes a snapshot under a name of a relationship's own.
async fn take(
    service: &Replication,
    volume: &PeerVolumeName,
    name: &str,
) -> Result<PeerReply, PeerReply> {
    let (key, found) = find_source_volume(service, volume)?;
    if !name.starts_with(plan::OWN) {
        let why = format!("\"{name}\" is no name of a relationship's own.");
        return Err(PeerReply::Refused(why));
    }
    match found.snapshot_take(name, SM_CREATED, service.clock.current_time()) {
        Ok(_) | Err(FsError::Exists) => {
            service.adopt(&key).await;
            Ok(PeerReply::Done)
        }
        Err(error) => Err(no(error)),
    }
}

/// Deletes a relationship's own snapshots of these names, except those that another one needs.
async fn drop_snapshots(
    service: &Replication,
    volume: &PeerVolumeName,
    relationship: &str,
    names: &[String],
) -> Result<PeerReply, PeerReply> {
    let (key, found) = find_source_volume(service, volume)?;
    let prefix = plan::prefix(relationship);
    let needed = service.rows().needed(&path(volume));
    // Another copy may have requested the same snapshot.
    let spare = |name: &&String| {
        let at = found.snapshot(name);
        name.starts_with(&prefix) && at.is_some_and(|s| !needed.contains(&s.identity))
    };
    for name in names.iter().filter(spare) {
        if let Err(error) = found.snapshot_delete(name) {
            tracing::debug!(%error, snapshot = %name, "cannot delete a snapshot now");
        }
    }
    service.adopt(&key).await;
    Ok(PeerReply::Done)
}

/// Hashes the content of a snapshot.
async fn hash(
    service: &Replication,
    link: &mut Link,
    mut walk: ContentWalk,
) -> Result<(), LinkError> {
    let mut said = service.nanos();
    loop {
        match walk.advance(HASH_STEP) {
            Ok(Some(hash)) => return link.tell(&PeerReply::Content(hash)).await,
            Ok(None) => tokio::task::yield_now().await,
            Err(error) => return link.tell(&no(error)).await,
        }
        if service.nanos().saturating_sub(said) >= WORKING {
            said = service.nanos();
            link.tell(&PeerReply::Working).await?;
        }
    }
}

/// Records that a destination needs a snapshot for its next transfer. Returns once it is recorded.
fn keep(
    service: &Replication,
    peer: Option<&Peer>,
    relationship: String,
    volume: &PeerVolumeName,
    destination: &str,
    newest: SnapshotIdentity,
) {
    // A move has no relationship.
    let Some(mut destination) = Path::parse(destination) else {
        return;
    };
    destination.cluster = peer.map(|peer| peer.name.clone()).unwrap_or_default();
    let known = service.rows().destination(&relationship).cloned();
    if known.is_some_and(|known| known.newest == Some(newest) && !known.released) {
        return;
    }
    service.happened(Step::Served {
        relationship,
        source: path(volume),
        destination,
        newest,
    });
}

fn path(named: &PeerVolumeName) -> Path {
    Path::local(&named.vserver, &named.volume)
}

type SourceVolume = (String, Arc<weir_volume::Volume>);

/// Returns a volume of this node that a transfer may begin to read. Refuses one that is being
/// reverted, because the revert would delete snapshots that the transfer needs.
fn steady(
    service: &Replication,
    named: &PeerVolumeName,
) -> Result<Arc<weir_control::Volume>, PeerReply> {
    let found = service.local(&named.vserver, &named.volume);
    let volume = found.map_err(|why| PeerReply::Refused(why.text))?;
    match volume.state {
        _ if volume.assigned.offline => Err(PeerReply::Refused(offline(&path(named)))),
        State::Restoring => Err(PeerReply::Later(format!(
            "{}:{} is being reverted to a snapshot",
            named.vserver, named.volume
        ))),
        _ => Ok(volume),
    }
}

fn find_source_volume(
    service: &Replication,
    named: &PeerVolumeName,
) -> Result<SourceVolume, PeerReply> {
    let refused = |why: weir_relations::manager::VerbRefusal| PeerReply::Refused(why.text);
    let volume = steady(service, named)?;
    let found = service.engine_volume(&volume.key).map_err(refused)?;
    Ok((volume.key.to_string(), found))
}

/// Sends a snapshot, frame by frame, and reports the limit that binds.
async fn send(
    service: &Replication,
    peer: Option<&Peer>,
    flow: &Flow,
    link: &mut Link,
    (mut sender, volume): (Sender, &PeerVolumeName),
) -> Result<(), LinkError> {
    let failed = |error: TransferError| match error {
        TransferError::Wire(error) => LinkError::Wire(error),
        error => LinkError::Later(error.to_string()),
    };
    let (mut looked, mut told) = (service.nanos(), Pace::Free);
    loop {
        allowed(service, peer)?;
        // The destination's last frame is followed by its next request.
        while sender.progress().phase != Phase::Done
            && let Some(frame) = link.incoming.frame()?
        {
            sender.frame(&frame, service.nanos()).map_err(failed)?;
        }
        let step = match sender.step(&mut link.out, service.nanos()) {
            Ok(step) => step,
            Err(error) => {
                // Tells the other side the cause.
                let _ = link.flush().await;
                return Err(failed(error));
            }
        };
        match step {
            SendStep::Data(bytes) => {
                flow.take(bytes).await;
                link.flush().await?;
            }
            SendStep::Control => link.flush().await?,
            SendStep::Working => tokio::task::yield_now().await,
            SendStep::Wait => {
                link.flush().await?;
                link.fill().await?;
            }
            SendStep::Done => return link.flush().await,
        }
        let now = service.nanos();
        if sender.progress().phase == Phase::Data && now.saturating_sub(looked) >= LOOK {
            looked = now;
            service.note_sent(&volume.vserver, &volume.volume, sender.progress());
            if service.is_offline(&path(volume)) {
                return Err(LinkError::Refused(offline(&path(volume))));
            }
            let pace = match flow.bound() {
                BindingLimit::Free => Pace::Free,
                BindingLimit::Own => Pace::Relationship,
                BindingLimit::Global => Pace::Outgoing,
            };
            if pace != told {
                told = pace;
                pace.frame(&mut link.out)?;
            }
        }
    }
}

//! A job of the manager from its start to its end: the destination's side of a transfer, and a
//! break.
//!
//! A transfer asks the source for its snapshots, has one taken if needed, and plans
//! ([`weir_relations::plan`]). Then it copies one snapshot after the other; each is complete, kept
//! and visible to readers before the next begins. The snapshot that the destination reverts to or
//! builds on is compared first: nothing is discarded for a snapshot that differs between the two
//! ends. Each copy is compared at its end. So a transfer that reports success has been proven.
//!
//! On any failure the data received so far is kept, and the next attempt plans again and finds it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};
use weir_base::SnapshotIdentity;
use weir_base::limits::replica::{LINK_FAREWELL as FAREWELL, LINK_PIPE as PIPE};
use weir_control::rules::replication::offline;
use weir_peer_link::stream;
use weir_relations::manager::{
    Done, Event, Failure, Job, Now, Progress, Reason, Task, VerbRefusal, looped,
};
use weir_relations::model::{CopiedSnapshot, Path, TransferKind};
use weir_relations::plan::{self, Volume};
use weir_relations::retention::LabelledSnapshot;
use weir_transfer::progress::{Difference, Phase, TransferError};
use weir_transfer::receive::{FrameEffect, Receiver, SnapshotRange};
use weir_transfer::session::{Ask, PeerReply, PeerVolumeName};
use weir_transfer::wire::{self, Pace};
use weir_volume::FsError;

use super::limiter::{BindingLimit, Flow};
use super::link::{Link, LinkError, Stream};
use super::state::{Replication, TransferCounters};
use super::{files, serve};

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Milliseconds between reports on progress.
pub(super) const REPORT_MS: u64 = 250;
/// Approximate length in milliseconds of the interval over which a rate is the mean.
const RATE_MS: u64 = 3_000;
/// Number of differing records of a snapshot that are hashed between two checks for an abort.
const HASH_STEP: usize = 16_384;

pub(super) type Outcome<T> = Result<T, Failure>;

pub(super) fn lasting(why: impl ToString) -> Failure {
    Failure::Final(why.to_string())
}

pub(super) fn passing(why: impl ToString) -> Failure {
    Failure::Retry(why.to_string())
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        match error {
            LinkError::Refused(why) => Failure::Final(why),
            LinkError::Wire(error) => of_wire(error),
            error => passing(error),
        }
    }
}

/// Classifies an error: damage may not occur again, but another version stays.
fn of_wire(error: wire::WireError) -> Failure {
    match error {
        wire::WireError::Foreign | wire::WireError::Version { .. } => lasting(error),
        error => passing(error),
    }
}

fn of_transfer(error: TransferError) -> Failure {
    match error {
        TransferError::Wire(error) => of_wire(error),
        TransferError::Refused(refusal) => match refusal.reason {
            wire::Reason::Aborted => Failure::Aborted,
            wire::Reason::NoCommonSnapshot
            | wire::Reason::NotProtected
            | wire::Reason::Different => lasting(refusal),
            _ => passing(refusal),
        },
        TransferError::Volume(FsError::Invalid) => {
            lasting("The destination must be a data-protection volume.")
        }
        error => passing(error),
    }
}

/// Carries out a job.
pub fn run(service: &Arc<Replication>, job: &Job, abort: watch::Receiver<bool>) -> Outcome<Done> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(passing)?;
    let named = service.local(&job.destination.vserver, &job.destination.volume);
    let named = named.map_err(|why| {
        lasting(format!(
            "Failed to find destination volume \"{}\": {why}",
            job.destination
        ))
    })?;
    let transfer = Transfer {
        service,
        job,
        key: named.key.to_string(),
        abort,
        arrived: Cell::new(job.arrived),
    };
    match job.task {
        Task::Break => runtime.block_on(transfer.break_off()),
        Task::Transfer(kind) => runtime.block_on(transfer.run(kind)),
    }
}

/// Requests a peer's description of a volume.
pub fn ask_peer(service: &Arc<Replication>, path: &Path) -> Result<Volume, VerbRefusal> {
    let failed = |why: String| VerbRefusal::new(Reason::Failed, why);
    let asked = apart(async {
        let mut link = dial(service, path).await.map_err(said)?;
        match link.request(&Ask::Volume(volume_of_path(path))).await {
            Ok(PeerReply::Volume(volume)) => Ok(Ok(*volume)),
            Ok(_) => Err("the peer gave another answer".to_owned()),
            Err(LinkError::Refused(why)) => Ok(Err(why)),
            Err(error) => Err(error.to_string()),
        }
    });
    asked
        .and_then(|asked| asked)
        .map_err(failed)?
        .map_err(|why| VerbRefusal::new(Reason::NotFound, why))
}

/// Waits for `work` on a separate thread, because the caller's may belong to a runtime already.
///
/// # Errors
/// The thread or its runtime cannot be created.
pub(super) fn apart<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    apart_on(std::thread::Builder::new(), work)
}

fn apart_on<T: Send>(
    thread: std::thread::Builder,
    work: impl Future<Output = T> + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = thread.name("weir-ask".into()).spawn_scoped(scope, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| e.to_string())?;
            Ok(runtime.block_on(work))
        });
        let thread = thread.map_err(|error| format!("cannot create a thread: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err("it could not be asked".to_owned()))
    })
}

fn said(failure: Failure) -> String {
    match failure {
        Failure::Aborted => "aborted".to_owned(),
        Failure::Retry(why) | Failure::Final(why) => why,
    }
}

pub(super) fn volume_of_path(path: &Path) -> PeerVolumeName {
    PeerVolumeName {
        vserver: path.vserver.clone(),
        volume: path.volume.clone(),
    }
}

/// Connects to the node of a source.
pub(super) async fn dial(service: &Arc<Replication>, source: &Path) -> Outcome<Link> {
    if !source.cluster.is_empty() {
        let outcome = dial_peer(service, &source.cluster).await;
        let seen = outcome.as_ref().map(|_| ()).map_err(|f| said(f.clone()));
        service.peers.note(&source.cluster, seen);
        return outcome;
    }
    let (ours, theirs) = tokio::io::duplex(PIPE);
    service
        .spawn("weir-sender", move |service| {
            serve::alone(service, Box::new(theirs), None);
        })
        .map_err(passing)?;
    Ok(Link::open(Box::new(ours), service.node).await?)
}

async fn dial_peer(service: &Arc<Replication>, name: &str) -> Outcome<Link> {
    let peer = service
        .peers
        .get(name)
        .ok_or_else(|| lasting(format!("Cluster \"{name}\" is not peered with this one.")))?;
    let address = peer.address.clone().ok_or_else(|| {
        lasting(format!(
            "Peer \"{name}\" has no address: only it can connect to this node."
        ))
    })?;
    let config = service.peers.client(&peer).map_err(lasting)?;
    let unreachable = |why: &dyn std::fmt::Display| {
        passing(format!(
            "Peer \"{name}\" at {address} cannot be reached: {why}"
        ))
    };
    let socket = stream::connect(&address).map_err(|e| unreachable(&e))?;
    let socket = tokio::net::TcpStream::from_std(socket).map_err(|e| unreachable(&e))?;
    let opened = async {
        let tls = stream::secure(config, socket).await?;
        Link::open(Box::new(tls) as Box<dyn Stream>, service.node).await
    };
    match tokio::time::timeout(HANDSHAKE, opened).await {
        Err(_) => Err(unreachable(&"it does not answer")),
        Ok(Ok(link)) => Ok(link),
        Ok(Err(LinkError::Io(error))) => Err(match tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )) => lasting(format!(
                "Peer \"{name}\" at {address} shows another certificate than the one that it was paired with."
            )),
            Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => lasting(format!(
                "Peer \"{name}\" at {address} does not know this node; pair it there, too, with fingerprint {}.",
                service.peers.fingerprint
            )),
            Some(error) => lasting(format!("Peer \"{name}\" at {address}: {error}")),
            None => unreachable(&error),
        }),
        Ok(Err(error)) => Err(match Failure::from(error) {
            Failure::Final(why) => lasting(format!("Peer \"{name}\" at {address}: {why}")),
            Failure::Retry(why) => unreachable(&why),
            Failure::Aborted => Failure::Aborted,
        }),
    }
}

fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>()
}

pub(super) struct Transfer<'t> {
    pub service: &'t Arc<Replication>,
    pub job: &'t Job,
    /// Key of the destination's volume in the engine.
    pub key: String,
    abort: watch::Receiver<bool>,
    /// For single files: true once all have arrived.
    pub arrived: Cell<bool>,
}

/// Counters of the snapshots that were copied before the current one.
#[derive(Clone, Copy, Default)]
struct Before {
    logical: u64,
    wire: u64,
    /// The part of `wire` without bytes from before a restart.
    moved: u64,
    total: u64,
}

impl Transfer<'_> {
    async fn break_off(&self) -> Outcome<Done> {
        let engine = &self.service.engine;
        engine.break_off(&self.key).map_err(|error| match error {
            FsError::Invalid => lasting("No transfer into the destination has ended yet."),
            error => lasting(error),
        })?;
        self.service.adopt(&self.key).await;
        Ok(Done::default())
    }

    async fn run(&self, kind: TransferKind) -> Outcome<Done> {
        let mut abort = self.abort.clone();
        // The data loop handles aborts itself; this covers the other slow steps.
        let aborted = async {
            let _ = abort.wait_for(|abort| *abort).await;
            tokio::time::sleep(FAREWELL).await;
        };
        let (service, job) = (self.service, self.job);
        let offline = async {
            loop {
                let both = [&job.destination, &job.source].into_iter();
                if let Some(path) = both.into_iter().find(|path| service.is_offline(path)) {
                    return lasting(offline(path));
                }
                tokio::time::sleep(Duration::from_millis(REPORT_MS)).await;
            }
        };
        let single = !job.files.is_empty();
        let outcome = tokio::select! {
            biased;
            () = aborted => Err(Failure::Aborted),
            why = offline => Err(why),
            outcome = self.files(), if single => outcome,
            outcome = self.transfer(kind), if !single => outcome,
        };
        if let (true, Err(failure)) = (single, &outcome) {
            let goes_on = match failure {
                Failure::Retry(_) => true,
                Failure::Aborted => self.service.stopping(),
                Failure::Final(_) => false,
            };
            // Files that have arrived completely are kept for the next attempt.
            if !(goes_on && self.arrived.get()) {
                files::drop_arriving(self.service, &self.key, &job.relationship, &job.files);
            }
        }
        outcome
    }

    pub(super) fn tell(&self, event: Event) {
        self.service.event(self.job.id, event);
    }

    fn destination(&self) -> Outcome<Volume> {
        let path = &self.job.destination;
        let told = self.service.describe(&path.vserver, &path.volume);
        told.map_err(|why| {
            lasting(format!(
                "Failed to find destination volume \"{path}\": {why}"
            ))
        })
    }

    pub(super) async fn source(&self, link: &mut Link) -> Outcome<Volume> {
        let source = &self.job.source;
        match link.request(&Ask::Volume(volume_of_path(source))).await {
            Ok(PeerReply::Volume(volume)) => Ok(*volume),
            Ok(_) => Err(passing("the source gave another answer")),
            Err(LinkError::Refused(why)) => Err(lasting(format!(
                "Failed to find source volume \"{source}\": {why}"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    async fn transfer(&self, kind: TransferKind) -> Outcome<Done> {
        let (service, job) = (self.service, self.job);
        let mut link = dial(service, &job.source).await?;
        let mut source = self.source(&mut link).await?;
        let mut destination = self.destination()?;
        if kind != TransferKind::Restore && source.above.contains(&destination.uuid) {
            return Err(lasting(looped(&job.source, &job.destination)));
        }
        if smaller(&destination, &source) {
            return Err(lasting(
                "Destination volume size is smaller than the source volume size.",
            ));
        }
        if plan::must_take(job, &source) {
            let name = plan::own_name(job, service.current_time().wall);
            let volume = volume_of_path(&job.source);
            link.request(&Ask::Take { volume, name }).await?;
            source = self.source(&mut link).await?;
        }
        self.prepare(&source).await?;
        let volume = service.engine_volume(&self.key).map_err(passing)?;
        let partial = volume.mirror().and_then(|m| m.partial);
        let partial = partial.map(|p| p.target);
        let plan = plan::plan(job, &source, &destination, partial).map_err(lasting)?;
        if let Some(base) = &plan.base {
            self.compare(&mut link, &volume, base).await?;
        }
        if plan.back {
            if let Some(base) = &plan.base {
                self.go_back(&volume, base.id).await?;
            }
        } else if kind == TransferKind::Restore && !destination.data_protection {
            service.engine.protect(&self.key).map_err(lasting)?;
        }
        if let Some(last) = plan.copies.last() {
            self.tell(Event::Chosen(last.name.clone()));
        }
        let mut base = plan.base;
        let mut before = Before::default();
        for copy in plan.copies {
            before = self.copy(&mut link, base.as_ref(), &copy, before).await?;
            self.tell_snapshot(&volume, copy.id).await?;
            base = Some(copy);
        }
        destination = self.destination()?;
        source = self.source(&mut link).await?;
        let common = |id: &SnapshotIdentity| source.snapshots.iter().any(|s| s.id == *id);
        if kind != TransferKind::Restore
            && let Some(newest) = destination.exported.filter(common)
        {
            let keep = Ask::Keep {
                volume: volume_of_path(&self.job.source),
                relationship: self.job.relationship.clone(),
                destination: self.job.destination.to_string(),
                newest,
            };
            link.request(&keep).await?;
        }
        self.let_go(&mut link, &source, &destination).await?;
        let mut all = destination.snapshots.iter();
        let newest = all.find(|s| Some(s.id) == destination.exported);
        Ok(Done {
            newest: newest.map(|s| CopiedSnapshot {
                name: s.name.clone(),
                taken: s.created,
                id: s.id,
            }),
            above: [&[source.uuid], source.above.as_slice()].concat(),
        })
    }

    /// Prepares the destination for what the source has.
    async fn prepare(&self, source: &Volume) -> Outcome<()> {
        if self.job.anew {
            let discarded = self.service.engine.discard_partial(&self.key);
            discarded.map_err(passing)?;
        }
        let followed = self.service.follow_trees(&self.key, &source.trees);
        followed.await.map_err(passing)
    }

    /// Takes the destination back to a snapshot.
    async fn go_back(&self, volume: &weir_volume::Volume, to: SnapshotIdentity) -> Outcome<()> {
        let back = self.service.engine.resync(&self.key, to);
        back.map_err(|error| match error {
            FsError::Busy => {
                lasting("Volumes or transfers depend on later Snapshot copies of the destination.")
            }
            error => passing(error),
        })?;
        self.tell_snapshot(volume, to).await
    }

    /// Reports the snapshot that the destination is at now.
    async fn tell_snapshot(
        &self,
        volume: &weir_volume::Volume,
        id: SnapshotIdentity,
    ) -> Outcome<()> {
        self.service.adopt(&self.key).await;
        let at = volume.snapshot_with(id);
        let at = at.ok_or_else(|| passing("the snapshot is gone already"))?;
        self.tell(Event::Snapshot(CopiedSnapshot {
            name: at.name,
            taken: at.created.secs,
            id,
        }));
        Ok(())
    }

    /// Refuses a base whose content here differs from that at the source.
    async fn compare(
        &self,
        link: &mut Link,
        volume: &Arc<weir_volume::Volume>,
        base: &LabelledSnapshot,
    ) -> Outcome<()> {
        let ask = Ask::Content {
            volume: volume_of_path(&self.job.source),
            snapshot: base.id,
        };
        let PeerReply::Content(there) = link.request(&ask).await? else {
            return Err(passing("the source gave another answer"));
        };
        let mut walk = volume.content_walk(base.id).map_err(passing)?;
        let here = loop {
            if let Some(here) = walk.advance(HASH_STEP).map_err(passing)? {
                break here;
            }
            // Lets an abort proceed.
            tokio::task::yield_now().await;
        };
        match there == here {
            true => Ok(()),
            false => Err(self.different(&Difference {
                name: base.name.clone(),
                base: true,
                source_content: there,
                destination: here,
            })),
        }
    }

    fn different(&self, found: &Difference) -> Failure {
        let (source, destination) = (&self.job.source, &self.job.destination);
        tracing::error!(%source, %destination, %found, "cannot use a copy: its content differs from the source's");
        let Difference {
            name,
            base,
            source_content,
            destination: own,
        } = found;
        let kept = match base {
            true => "Nothing was changed.",
            false => "It was discarded; the copy stays at the snapshot before.",
        };
        lasting(format!(
            "Snapshot copy \"{name}\" is not the same on {source} (contents {source_content}) and on {destination} \
             (contents {own}). {kept}"
        ))
    }

    /// Deletes snapshots that are no longer kept. Those that cannot be deleted now are deleted
    /// after the next transfer.
    async fn let_go(&self, link: &mut Link, source: &Volume, destination: &Volume) -> Outcome<()> {
        let (here, there) = plan::let_go(self.job, source, destination);
        let volume = self.service.engine_volume(&self.key).map_err(passing)?;
        for name in &here {
            if let Err(error) = volume.snapshot_delete(name) {
                tracing::debug!(%error, snapshot = %name, "cannot delete a copy now");
            }
        }
        if !here.is_empty() {
            self.service.adopt(&self.key).await;
        }
        if there.is_empty() {
            return Ok(());
        }
        let drop = Ask::Drop {
            volume: volume_of_path(&self.job.source),
            relationship: self.job.relationship.clone(),
            names: there,
        };
        match link.request(&drop).await {
            Ok(_) | Err(LinkError::Refused(_) | LinkError::Later(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies one snapshot as its difference to `base`.
    async fn copy(
        &self,
        link: &mut Link,
        base: Option<&LabelledSnapshot>,
        copy: &LabelledSnapshot,
        before: Before,
    ) -> Outcome<Before> {
        let (service, job) = (self.service, self.job);
        let send = Ask::Send {
            volume: volume_of_path(&job.source),
            relationship: job.relationship.clone(),
            destination: job.destination.to_string(),
            base: base.map(|base| base.id),
            target: copy.id,
            throttle: job.throttle,
            compress: job.policy.compression,
        };
        link.request(&send).await?;
        let volume = service.engine_volume(&self.key).map_err(passing)?;
        let wanted = SnapshotRange {
            base: base.map(|base| base.id),
            target: copy.id,
        };
        let receiver = Receiver::new(&volume, wanted, service.nanos());
        let mut receiver = receiver.map_err(of_transfer)?;
        let mut report = Report::new(self, before);
        let flow = service.incoming.join(None);
        let mut abort = self.abort.clone();
        let outcome = tokio::select! {
            biased;
            _ = abort.wait_for(|abort| *abort) => Err(Failure::Aborted),
            outcome = receive(service, link, &mut receiver, &flow, &mut report) => {
                outcome.map_err(|why| match why {
                    ReceiveError::Different(found) => self.different(&found),
                    ReceiveError::Failed(failure) => failure,
                })
            }
        };
        report.report_progress(&receiver, &flow, true);
        if outcome == Err(Failure::Aborted) {
            receiver.abort(&mut link.out);
            let _ = tokio::time::timeout(FAREWELL / 2, link.flush()).await;
            return Err(Failure::Aborted);
        }
        outcome?;
        let moved = receiver.progress();
        Ok(Before {
            logical: before.logical + moved.logical,
            wire: before.wire + moved.wire,
            moved: before.moved + moved.wire.saturating_sub(moved.resumed_wire),
            total: before.total + moved.logical,
        })
    }
}

fn smaller(destination: &Volume, source: &Volume) -> bool {
    match (destination.size, source.size) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(destination), Some(source)) => destination < source,
    }
}

/// Failure of receiving a snapshot.
enum ReceiveError {
    Different(Difference),
    Failed(Failure),
}

impl From<LinkError> for ReceiveError {
    fn from(error: LinkError) -> ReceiveError {
        ReceiveError::Failed(error.into())
    }
}

/// Receives a snapshot, frame by frame.
async fn receive(
    service: &Replication,
    link: &mut Link,
    receiver: &mut Receiver,
    flow: &Flow,
    report: &mut Report<'_>,
) -> Result<(), ReceiveError> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        while let Some(frame) = link
            .incoming
            .frame()
            .map_err(|e| ReceiveError::Failed(of_wire(e)))?
        {
            #[cfg(feature = "testing")]
            let frame = {
                let mut frame = frame;
                let passed = service.forger.lock().pass(&mut frame, receiver);
                passed.map_err(|e| ReceiveError::Failed(of_transfer(e)))?;
                frame
            };
            let mut received = receiver.frame(&frame, &mut link.out, service.nanos());
            while received == Ok(FrameEffect::Proving) {
                report.report_progress(receiver, flow, false);
                // Lets an abort proceed.
                tokio::task::yield_now().await;
                received = receiver.prove(&mut link.out, service.nanos());
            }
            match received {
                Ok(FrameEffect::Data(bytes)) => {
                    report.count(receiver);
                    let mut taken = pin!(flow.take(bytes));
                    // Under a tight throttle a transfer spends its time here.
                    loop {
                        tokio::select! {
                            biased;
                            () = &mut taken => break,
                            _ = ticks.tick() => {
                                receiver.tick(&mut link.out, service.nanos());
                                report.report_progress(receiver, flow, false);
                            }
                        }
                    }
                }
                // Sent together with the next request, which always follows.
                Ok(FrameEffect::Done { .. }) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    // Tells the other side the cause; the result of that makes no difference here.
                    let _ = tokio::time::timeout(FAREWELL, link.flush()).await;
                    return Err(match error {
                        TransferError::Different(found) => ReceiveError::Different(found),
                        error => ReceiveError::Failed(of_transfer(error)),
                    });
                }
            }
            report.report_progress(receiver, flow, false);
        }
        if !link.out.is_empty() {
            link.flush().await?;
            continue;
        }
        tokio::select! {
            filled = link.fill() => filled?,
            _ = ticks.tick() => {
                receiver.tick(&mut link.out, service.nanos());
                report.report_progress(receiver, flow, false);
            }
        }
    }
}

/// Reports the progress of a transfer to the manager.
struct Report<'t> {
    transfer: &'t Transfer<'t>,
    before: Before,
    phase: Phase,
    last: u64,
    moved: Arc<TransferCounters>,
    /// Bytes of the snapshot, logical and on the wire, that are counted already or were received
    /// before a restart.
    counted: Option<(u64, u64)>,
    /// Times in milliseconds, and bytes on the wire moved until then.
    window: VecDeque<(u64, u64)>,
}

impl<'t> Report<'t> {
    fn new(transfer: &'t Transfer<'t>, before: Before) -> Report<'t> {
        Report {
            transfer,
            before,
            phase: Phase::Setup,
            last: 0,
            moved: transfer.service.moved(&transfer.job.relationship),
            counted: None,
            window: VecDeque::new(),
        }
    }

    fn time_at(&self, nanos: u64) -> Now {
        Now {
            ms: nanos / 1_000_000,
            ..self.transfer.service.current_time()
        }
    }

    /// Counts the bytes of a frame.
    fn count(&mut self, receiver: &Receiver) {
        let now = receiver.progress();
        let (logical, wire) = self.counted.unwrap_or((now.resumed, now.resumed_wire));
        let add = |to: &AtomicU64, more| to.fetch_add(more, Ordering::Relaxed);
        add(&self.moved.logical, now.logical.saturating_sub(logical));
        add(&self.moved.wire, now.wire.saturating_sub(wire));
        self.counted = Some((now.logical, now.wire));
    }

    /// Reports progress if it is due, or if `last` says that receiving has ended.
    fn report_progress(&mut self, receiver: &Receiver, flow: &Flow, last: bool) {
        let (service, job) = (self.transfer.service, self.transfer.job);
        let now = service.current_time();
        let progress = receiver.progress();
        if self.phase < Phase::Data {
            if let Some(began) = progress.data_began {
                self.phase = Phase::Data;
                service.event_at(job.id, Event::Moving, self.time_at(began));
            }
        }
        let ended = progress
            .data_ended
            .filter(|_| progress.phase >= Phase::Finalise);
        if let Some(ended) = ended.filter(|_| self.phase < Phase::Finalise) {
            self.phase = Phase::Finalise;
            service.event_at(job.id, Event::Finalizing, self.time_at(ended));
        }
        if !last && now.ms.saturating_sub(self.last) < REPORT_MS {
            return;
        }
        self.last = now.ms;
        let logical = self.before.logical + progress.logical;
        let wire = self.before.wire + progress.wire;
        self.window.push_back((now.ms, wire));
        while self.window.len() > 2
            && self
                .window
                .get(1)
                .is_some_and(|(at, _)| now.ms.saturating_sub(*at) >= RATE_MS)
        {
            self.window.pop_front();
        }
        let rate = match self.window.front() {
            Some((at, then)) if now.ms > *at => wire.saturating_sub(*then) * 1000 / (now.ms - at),
            _ => 0,
        };
        let moved = progress.wire.saturating_sub(progress.resumed_wire);
        let progress = Progress {
            bytes: logical,
            wire_bytes: wire,
            checkpoint: self.before.logical + progress.durable,
            moved: self.before.moved + moved,
            rate,
            bound_by: bound_by(flow, receiver),
            total: progress.total.map(|total| self.before.total + total),
        };
        service.event_at(job.id, Event::Progress(progress), now);
    }
}

/// Returns the limit that binds: this side's, or the one that the source reports.
fn bound_by(flow: &Flow, receiver: &Receiver) -> Option<String> {
    let limit = match (flow.bound(), receiver.pace()) {
        (BindingLimit::Global, _) => "incoming",
        (_, Pace::Outgoing) => "outgoing",
        (_, Pace::Relationship) => "relationship",
        (_, Pace::Free) => return None,
    };
    Some(limit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_thread_nothing_is_asked() {
        assert_eq!(apart(async { 7 }), Ok(7));
        let thread = std::thread::Builder::new().stack_size(1 << 60);
        let refused = apart_on(thread, async { 7 }).unwrap_err();
        assert!(refused.starts_with("cannot create a thread: "), "{refused}");
    }
}

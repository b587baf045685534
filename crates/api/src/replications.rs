//! `volumes/*/replications` of the NetApp Volumes API, over the same relationships that ONTAP's
//! interface shows.
//!
//! A replication is seen from both of its volumes under one id, with another role. Its name,
//! description and labels are kept in the relationship's row, so that there is one record of them
//! and not two that could disagree. A relationship that was made in ONTAP's words has none of this
//! and is shown under its destination's name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_control::rules::capacity;
use weir_control::{
    Actor, Labels, LocationName, Mutation, Name, Operation, Outcome, QosType, ReplicationName,
    ReplicationVerb, Role, Status, View, VolumeName,
};
use weir_ontap::cluster::Offer;
use weir_ontap::{Change, Cluster, Failure, Reason};
use weir_relations::manager;
use weir_relations::model::{
    ABORTED, MirrorState, Note, Path, Relationship, Status as Doing, TransferKind,
};

use crate::blocking::waiting;
use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, check_id, required};
use crate::json::{EnumsAs, Object, abbreviate, encode};
use crate::lro;
use crate::mask::Mask;
use crate::mount::Mounts;
use crate::netapp;
use crate::ontap::time;
use crate::preview;
use crate::route::ReplicationMethod;
use crate::schema::netapp::REPLICATION;
use crate::state::{AppState, cluster};
use crate::words::Language;

/// Making the volume to copy into waits for this at most.
const MAKING: Duration = Duration::from_secs(60);

/// The policy of the copy: all snapshots of the source and its newest state, as this API defines a
/// replication.
const POLICY: &str = "MirrorAllSnapshots";

/// The kind of a copy of a peer's volume: it goes on, until it is stopped.
const TYPE: &str = "CONTINUOUS_REPLICATION";

/// Advice for clients that name the place of a cluster that is no Weir.
const CLUSTER_LOCATION: &str =
    "Name the peer when its volume is made (hybridReplicationParameters), and leave it out";

/// Fields that a copy takes over from its source, besides its data.
const INHERITED: &[&str] = &[
    "capacityGib",
    "exportPolicy",
    "largeCapacity",
    "protocols",
    "securityStyle",
    "smbSettings",
    "snapReserve",
    "snapshotDirectory",
    "throughputMibps",
    "unixPermissions",
];

/// The schedules that a replication may have, by the names that ONTAP's words have for them.
const SCHEDULES: &[(&str, &str)] = &[
    ("EVERY_10_MINUTES", "10min"),
    ("HOURLY", "hourly"),
    ("DAILY", "daily"),
];

/// Step that a replication lacks before its first transfer can begin.
enum PeeringStep {
    /// Nothing.
    Done,
    /// Its source's node is not paired with this one. What that node joins with, if it is offered
    /// and the user may see it.
    Cluster(Option<Offer>),
    /// The node is paired, and the transfer could not begin.
    Svm,
}

fn peering(cluster: &dyn Cluster, r: &Relationship) -> PeeringStep {
    let name = &r.source.cluster;
    let begun = r.state != MirrorState::Uninitialized || r.transfer.is_some();
    match !name.is_empty() && cluster.peers().iter().all(|peer| peer.name != *name) {
        true => PeeringStep::Cluster(cluster.offers().into_iter().find(|o| o.name == *name)),
        false if name.is_empty() || begun || r.unhealthy_reason.is_none() => PeeringStep::Done,
        false if r.status == Doing::Quiesced => PeeringStep::Done,
        false => PeeringStep::Svm,
    }
}

/// Returns the details that the node that is to join has to be given.
fn peering_details(r: &Relationship, offer: Option<&Offer>, listens: Option<String>) -> Object {
    let mut out = Object::new();
    for (name, value) in [
        ("peerVolumeName", &r.source.volume),
        ("peerClusterName", &r.source.cluster),
        ("peerSvmName", &r.source.vserver),
    ] {
        out.insert(name.to_owned(), json!(value));
    }
    if let (Some(offer), Some(listens)) = (offer, listens) {
        let command = format!("weir peers join {listens}");
        out.insert("command".to_owned(), json!(command));
        out.insert("commandExpiryTime".to_owned(), rfc3339(offer.expires));
        out.insert("passphrase".to_owned(), json!(offer.passphrase));
    }
    out
}

/// Returns the note of a relationship, or a note with defaults for one that was made in ONTAP's
/// words.
fn note_of(r: &Relationship) -> Note {
    r.note.clone().unwrap_or_else(|| Note {
        id: id_of(&r.destination),
        description: None,
        labels: Labels::new(),
        created: 0,
    })
}

/// Returns an id for a relationship that came without: its destination's name, as ids are written.
fn id_of(destination: &Path) -> String {
    let kept = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let id: String = destination.volume.chars().map(kept).collect();
    format!("to-{}", id.trim_matches('-'))
}

fn refused(failure: Failure) -> Box<ApiError> {
    let (status, reason) = match failure.reason {
        Reason::NotFound => (Status::NotFound, "RESOURCE_NOT_FOUND"),
        Reason::Duplicate => (Status::AlreadyExists, "ALREADY_EXISTS"),
        Reason::Invalid => (Status::InvalidArgument, "INVALID_FIELD"),
        Reason::State => (Status::FailedPrecondition, "REPLICATION_STATE"),
        Reason::Busy => (Status::Aborted, "TRANSFER_IN_PROGRESS"),
        Reason::Unsupported => (Status::FailedPrecondition, "NOT_IMPLEMENTED"),
        Reason::Denied => (Status::PermissionDenied, "ROLE_INSUFFICIENT"),
        Reason::Failed => (Status::Internal, "REPLICATION_FAILED"),
    };
    ApiError::new(status, reason, failure.message)
}

/// A request about the replications of a volume.
pub struct ReplicationRequest<'a> {
    /// The state that all requests share.
    pub app: &'a AppState,
    /// The authenticated caller, with its role.
    pub actor: Actor,
    /// The volume that the path names: source or destination.
    pub volume: VolumeName,
    /// Form of enums in the response.
    pub enums: EnumsAs,
    /// Language of sentences in the response.
    pub language: Language,
    /// Addresses that clients mount from.
    pub at: Mounts,
    /// The change is checked and described, and not made (`validateOnly`).
    pub only: bool,
}

/// Steps of a replication that are checked together.
struct ReplicationPlan {
    verb: ReplicationVerb,
    id: String,
    /// Destination of the relationship that they change.
    destination: Path,
    /// Volume that is to be made first.
    volume: Option<Mutation>,
    steps: Vec<manager::Verb>,
}

/// A replication, as it is seen from one of its volumes.
struct ReplicationView {
    relationship: Relationship,
    note: Note,
    source: String,
    destination: String,
    is_source: bool,
}

/// Returns the volume that a path names, as its full name; by a peer's name where it is another's.
fn resolve_volume_name(path: &Path, view: &View) -> String {
    match view.volume_at(path) {
        Ok(Some(volume)) => volume.name.to_string(),
        _ => path.to_string(),
    }
}

/// Returns a relationship as it is seen from `volume`.
fn seen(relationship: Relationship, view: &View, volume: &VolumeName) -> ReplicationView {
    let source = resolve_volume_name(&relationship.source, view);
    ReplicationView {
        note: note_of(&relationship),
        is_source: source == volume.to_string(),
        source,
        destination: resolve_volume_name(&relationship.destination, view),
        relationship,
    }
}

fn seen_from(cluster: &dyn Cluster, view: &View, volume: &VolumeName) -> Vec<ReplicationView> {
    let own = volume.to_string();
    let all = cluster.replications(&path_of(volume)).into_iter();
    let all = all.map(|relationship| seen(relationship, view, volume));
    // A path has no location in it, a volume has.
    all.filter(|seen| seen.is_source || seen.destination == own)
        .collect()
}

/// Returns true if a volume is an end of a replication.
pub fn replicated(view: &View, volume: &VolumeName) -> bool {
    view.relations.volume_in_use(&path_of(volume)).is_some()
}

fn mirror_state(r: &Relationship) -> &'static str {
    let aborted = r.last.as_ref().and_then(|l| l.error.as_deref()) == Some(ABORTED);
    match (r.state, r.transfer.as_ref().map(|t| t.kind)) {
        (MirrorState::Uninitialized, Some(_))
            if matches!(r.status, Doing::Queued | Doing::Preparing) =>
        {
            "PREPARING"
        }
        (MirrorState::Uninitialized, Some(_)) | (_, Some(TransferKind::Initialize)) => {
            "BASELINE_TRANSFERRING"
        }
        (_, Some(_)) => "TRANSFERRING",
        (MirrorState::BrokenOff, None) => "STOPPED",
        // Before its first transfer has ended there is nothing to break off: it is at rest until
        // resumed.
        (MirrorState::Uninitialized, None) if r.status == Doing::Quiesced => "STOPPED",
        (_, None) if aborted => "ABORTED",
        (MirrorState::Uninitialized, None) => "PREPARING",
        (MirrorState::Snapmirrored, None) => "MIRRORED",
    }
}

fn object(s: &ReplicationView, place: &VolumeName, cluster: &dyn Cluster, at: Mounts) -> Object {
    let r = &s.relationship;
    let peering = peering(cluster, r);
    let mut out = Object::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            out.insert(name.to_owned(), value);
        }
    };
    let own = place.to_string();
    set("name", json!(format!("{own}/replications/{}", s.note.id)));
    let state = match (&peering, r.status) {
        (_, Doing::Breaking | Doing::Aborting) => "UPDATING",
        (PeeringStep::Cluster(_), _) => "PENDING_CLUSTER_PEERING",
        (PeeringStep::Svm, _) => "PENDING_SVM_PEERING",
        (PeeringStep::Done, _) => "READY",
    };
    set("state", json!(state));
    set("stateDetails", json!(r.unhealthy_reason));
    set(
        "role",
        json!(if s.is_source { "SOURCE" } else { "DESTINATION" }),
    );
    let schedule = SCHEDULES
        .iter()
        .find(|(_, name)| r.schedule.as_deref() == Some(*name));
    set(
        "replicationSchedule",
        json!(schedule.map(|(word, _)| *word)),
    );
    let pending = !matches!(peering, PeeringStep::Done);
    let mirror = if pending {
        "PENDING_PEERING"
    } else {
        mirror_state(r)
    };
    set("mirrorState", json!(mirror));
    if pending {
        let offer = match &peering {
            PeeringStep::Cluster(offer) => offer.as_ref(),
            _ => None,
        };
        let details = peering_details(r, offer, listens(cluster, at));
        set("hybridPeeringDetails", Value::Object(details));
    }
    if !r.source.cluster.is_empty() {
        set("hybridReplicationType", json!(TYPE));
    }
    set("healthy", json!(r.healthy));
    if s.note.created > 0 {
        set("createTime", rfc3339(s.note.created));
    }
    set("sourceVolume", json!(s.source));
    set("destinationVolume", json!(s.destination));
    set("description", json!(s.note.description));
    if !s.note.labels.is_empty() {
        set("labels", json!(s.note.labels));
    }
    let mut stats = Object::new();
    if let Some(t) = &r.transfer {
        stats.insert("transferBytes".to_owned(), json!(t.bytes.to_string()));
        stats.insert("updateTime".to_owned(), rfc3339(t.updated));
    }
    if let Some(last) = &r.last {
        stats.insert(
            "lastTransferBytes".to_owned(),
            json!(last.bytes.to_string()),
        );
        let took = format!("{}s", last.duration_ms / 1000);
        stats.insert("lastTransferDuration".to_owned(), json!(took));
        stats.insert("lastTransferEndTime".to_owned(), rfc3339(last.end));
        if let Some(error) = &last.error {
            stats.insert("lastTransferError".to_owned(), json!(error));
        }
    }
    if let Some(lag) = r.lag(cluster.current_time()) {
        stats.insert("lagDuration".to_owned(), json!(format!("{lag}s")));
    }
    if !stats.is_empty() {
        set("transferStats", Value::Object(stats));
    }
    out
}

/// Returns the address at which another node reaches this one. If it listens on all addresses, that
/// is the one by which the client has reached it.
fn listens(cluster: &dyn Cluster, at: Mounts) -> Option<String> {
    let address = cluster.peer_address()?;
    Some(match address.parse::<SocketAddr>() {
        Ok(all) if all.ip().is_unspecified() => SocketAddr::new(at.ip(), all.port()).to_string(),
        _ => address,
    })
}

fn rfc3339(seconds: i64) -> Value {
    match time(seconds) {
        Value::String(text) => json!(text.replace("+00:00", "Z")),
        other => other,
    }
}

impl ReplicationRequest<'_> {
    fn cluster(&self) -> ApiResult<Arc<dyn Cluster>> {
        cluster(self.app, &self.actor)
    }

    fn there(&self) -> ApiResult<()> {
        let view = self.app.control().view();
        match view.volume(&self.volume) {
            Some(_) => Ok(()),
            None => Err(ApiError::not_found(&self.volume.to_string())),
        }
    }

    /// Returns all of them, in normal form.
    ///
    /// # Errors
    /// NOT_FOUND: there is no such volume.
    pub async fn list_replications(&self) -> ApiResult<Vec<Object>> {
        self.there()?;
        let Ok(cluster) = self.cluster() else {
            return Ok(Vec::new());
        };
        let (view, volume) = (self.app.control().view(), self.volume.clone());
        let at = self.at;
        waiting(move || {
            let all = seen_from(&*cluster, &view, &volume);
            let shown = |s| object(s, &volume, &*cluster, at);
            all.iter().map(shown).collect()
        })
        .await
    }

    fn name(&self, id: &str) -> String {
        format!("{}/replications/{id}", self.volume)
    }

    async fn find(&self, id: &str) -> ApiResult<ReplicationView> {
        self.there()?;
        let missing = || ApiError::not_found(&self.name(id));
        let cluster = self.cluster().map_err(|_| missing())?;
        let (volume, wanted) = (self.volume.clone(), id.to_owned());
        let view = self.app.control().view();
        let found = waiting(move || {
            let all = seen_from(&*cluster, &view, &volume);
            all.into_iter().find(|s| s.note.id == wanted)
        });
        found.await?.ok_or_else(missing)
    }

    /// Returns one of them, in normal form.
    ///
    /// # Errors
    /// NOT_FOUND: the volume has no replication of that id.
    pub async fn get(&self, id: &str) -> ApiResult<Object> {
        let seen = self.find(id).await?;
        let cluster = self.cluster()?;
        Ok(object(&seen, &self.volume, &*cluster, self.at))
    }

    /// Returns an operation that has ended: the cluster has done, or queued, what was asked.
    async fn recorded(
        &self,
        verb: ReplicationVerb,
        id: &str,
        outcome: Outcome,
        response: Option<String>,
    ) -> ApiResult<Object> {
        let name = ReplicationName {
            volume: self.volume.clone(),
            id: id.into(),
        };
        let control = self.app.control();
        let recorded = control.record(name, verb, outcome, response, &self.actor);
        let operation = recorded.await.map_err(ApiError::refused)?;
        Ok(lro::operation(&operation, self.enums, self.at))
    }

    async fn done(&self, verb: ReplicationVerb, id: &str) -> ApiResult<Value> {
        let mut object = self.get(id).await?;
        // An operation is read by others, and for longer, than the secret that the replication
        // shows.
        let details = object.get_mut("hybridPeeringDetails");
        if let Some(details) = details.and_then(Value::as_object_mut) {
            details.remove("passphrase");
        }
        let response = Value::Object(object).to_string();
        let operation = self.recorded(verb, id, Outcome::Done, Some(response));
        Ok(Value::Object(operation.await?))
    }

    async fn change(&self, change: impl Into<Change>) -> ApiResult<()> {
        let (cluster, change) = (self.cluster()?, change.into());
        waiting(move || cluster.change(change))
            .await?
            .map_err(refused)
    }

    /// Makes one, and the volume that it copies into; the first transfer is under way when this
    /// returns.
    ///
    /// # Errors
    /// The refusal of the volume or of the replication; then neither is there.
    pub async fn create(&self, id: Option<&str>, body: Object) -> ApiResult<Value> {
        let id = check_id("replicationId", id)?;
        let cluster = self.cluster()?;
        let view = self.app.control().view();
        let own = self.volume.to_string();
        let source = view.volume(&self.volume);
        let source = source.ok_or_else(|| ApiError::not_found(&own))?;
        if let Ok(seen) = self.find(&id).await {
            let message = format!("Resource '{}' already exists", self.name(&seen.note.id));
            return Err(ApiError::new(
                Status::AlreadyExists,
                "ALREADY_EXISTS",
                message,
            ));
        }
        let mut f = Fields::new(body);
        f.without("clusterLocation", CLUSTER_LOCATION)?;
        let schedule = required(f.text("replicationSchedule").value(), "replicationSchedule")?;
        let schedule = ontap_schedule(&schedule)?;
        let note = Note {
            id: id.clone(),
            description: f
                .text("description")
                .value()
                .filter(|text| !text.is_empty()),
            labels: f.labels()?.value().unwrap_or_default(),
            created: cluster.current_time(),
        };
        let target = f.take("destinationVolumeParameters").value();
        let target = required(target, "destinationVolumeParameters")?;
        let current = lro::volume(&view, source, None, self.at);
        let (destination, new) = self.copy_of(&view, &id, &target, &current)?;
        let mut made = netapp::new_volume(&destination.place, new)?;
        made.protection = true;
        let volume = Mutation::CreateVolume(destination.clone(), made);
        let create = begins(path_of(&self.volume), &destination, (schedule, note), false);
        if self.only {
            let planned = ReplicationPlan {
                verb: ReplicationVerb::Create,
                id,
                destination: path_of(&destination),
                volume: Some(volume),
                steps: vec![create],
            };
            return self.foreseen(&planned).await;
        }
        self.make(volume).await?;
        self.begin(create, &destination, None).await?;
        self.done(ReplicationVerb::Create, &id).await
    }

    /// Makes a volume that was made for this the copy of another, by `create`. A peer that is not
    /// paired yet is invited: by name, and from an address if one is given.
    async fn begin(
        &self,
        create: manager::Verb,
        to: &VolumeName,
        invited: Option<(String, Option<String>)>,
    ) -> ApiResult<()> {
        let mut begun = self.change(create).await;
        if let (Ok(()), Some((peer, address))) = (&begun, invited) {
            begun = self.invite(&peer, address).await;
            if begun.is_err() {
                drop(self.change(manager::Verb::End(path_of(to))).await);
            }
        }
        if begun.is_err() {
            let (name, force) = (to.clone(), true);
            // If it cannot be deleted it is an empty volume that shows in lists.
            drop(self.make(Mutation::DeleteVolume { name, force }).await);
        }
        begun
    }

    /// Checks the steps of a change as they would be made, one after the other. Returns the view
    /// that they would lead to, and changes nothing.
    ///
    /// # Errors
    /// The refusal of the step that would be refused.
    async fn check(&self, planned: &ReplicationPlan) -> ApiResult<View> {
        let control = self.app.control();
        let mut mutations = Vec::new();
        let mut side = None;
        if let Some(volume) = &planned.volume {
            let view = control.preview(volume, &self.actor).await;
            side = planned_side(&view.map_err(ApiError::refused)?, &planned.destination);
            mutations.push(volume.clone());
        }
        for verb in &planned.steps {
            let (cluster, asked) = (self.cluster()?, verb.clone());
            let known = waiting(move || cluster.preconditions(&asked)).await?;
            let mut preconditions = known.map_err(refused)?;
            if let Some(side) = &side {
                preconditions.destination = Ok(side.clone());
            }
            mutations.push(Mutation::Replicate {
                verb: verb.clone(),
                preconditions,
            });
        }
        let view = control.preview_all(&mutations, &self.actor).await;
        view.map_err(|why| refused(Failure::new(why.relation_reason(), why.message)))
    }

    /// Describes the replication as the planned steps would leave it.
    ///
    /// # Errors
    /// As [`Self::check`].
    async fn foreseen(&self, planned: &ReplicationPlan) -> ApiResult<Value> {
        let view = self.check(planned).await?;
        let rows = &view.relations;
        // A reversal turns the relationship's row round.
        let named = |note: &Note| note.id == planned.id;
        let turned = || {
            let mut copies = rows.copying(&planned.destination);
            copies.find(|e| e.note.as_ref().is_some_and(named))
        };
        let entry = rows.entry(&planned.destination).or_else(turned).cloned();
        let cluster = self.cluster()?;
        let shown = waiting(move || {
            let mut shown = None;
            cluster
                .read(&mut |_, manager| shown = entry.as_ref().map(|e| manager.describe_entry(e)));
            shown
        });
        let response = match shown.await? {
            Some(relationship) if planned.verb != ReplicationVerb::Delete => {
                let seen = seen(relationship, &view, &self.volume);
                let mut object = object(&seen, &self.volume, &*self.cluster()?, self.at);
                // States that the operation ends in.
                if object.get("state") == Some(&json!("UPDATING")) {
                    object.insert("state".to_owned(), json!("READY"));
                }
                if planned.verb == ReplicationVerb::Stop {
                    object.insert("mirrorState".to_owned(), json!("STOPPED"));
                }
                encode(&REPLICATION, &object, self.enums)
            }
            _ => json!({}),
        };
        let (name, verb) = (self.name(&planned.id), planned.verb.as_str());
        Ok(Value::Object(preview::checked(&name, verb, response)))
    }

    /// Returns the volume to copy into: its name and its fields.
    fn copy_of(
        &self,
        view: &View,
        id: &str,
        target: &Value,
        source: &Object,
    ) -> ApiResult<(VolumeName, Object)> {
        const IN: &str = "destinationVolumeParameters";
        let said = |name: &str| {
            let text = target.get(name).and_then(Value::as_str).map(str::to_owned);
            text.filter(|text| !text.is_empty())
        };
        let pool = required(said("storagePool"), &format!("{IN}.storagePool"))?;
        let pool = pool_name(&self.volume.place, &pool)?;
        // Paths of replication have no location in them: one name is one volume of a project.
        let taken = |id: &str| view.namesakes(&pool.place.project, id).next().is_some();
        let volume = match said("volumeId") {
            Some(id) => id,
            None if taken(&self.volume.id) => format!("{}-{id}", self.volume.id),
            None => self.volume.id.to_string(),
        };
        let volume = check_id(&format!("{IN}.volumeId"), Some(&volume))?;
        let destination = pool.place.volume(&volume);
        if taken(&volume) && view.volume(&destination).is_none() {
            let message = format!(
                "There is a volume {volume} in another location of {}; name the copy differently",
                pool.place.project
            );
            return Err(ApiError::field(format!("{IN}.volumeId"), message));
        }
        let mut new = Object::new();
        for name in INHERITED {
            if let Some(value) = source.get(*name) {
                new.insert((*name).to_owned(), value.clone());
            }
        }
        let manual = |p: &Arc<weir_control::Pool>| p.qos_type == QosType::Manual;
        if !view.pool(&pool).is_some_and(manual) {
            new.remove("throughputMibps");
        }
        let share = said("shareName").unwrap_or_else(|| match view.is_path_free(&volume) {
            true => volume.clone(),
            false => format!("{volume}-{id}"),
        });
        new.insert("shareName".to_owned(), json!(share));
        new.insert("storagePool".to_owned(), json!(&*pool.id));
        for name in ["description", "tieringPolicy"] {
            if let Some(value) = target.get(name) {
                new.insert(name.to_owned(), value.clone());
            }
        }
        Ok((destination, new))
    }

    async fn invite(&self, peer: &str, address: Option<String>) -> ApiResult<()> {
        let (cluster, peer) = (self.cluster()?, peer.to_owned());
        let invited = waiting(move || cluster.invite(&peer, address, true));
        invited.await?.map(|_| ()).map_err(refused)
    }

    /// Makes a volume that is to be a copy of a peer's, and the replication. A node that is no peer
    /// yet is offered pairing, and the first transfer begins when it has joined.
    ///
    /// # Errors
    /// The refusal of the volume or of the replication; then neither is there.
    pub async fn create_of_peer(&self, parameters: Object, volume: Object) -> ApiResult<Value> {
        const IN: &str = "hybridReplicationParameters";
        let mut f = Fields::new(parameters);
        let id = check_id(
            &format!("{IN}.replication"),
            f.text("replication").value().as_deref(),
        )?;
        let (source, address) = peer_of(&mut f)?;
        f.without("clusterLocation", CLUSTER_LOCATION)?;
        f.refuse(
            "hybridReplicationType",
            |v| v != TYPE,
            "a replication goes on until it is stopped, and is turned round with :reverseDirection",
        )?;
        f.refuse(
            "largeVolumeConstituentCount",
            |_| true,
            "a volume has no constituents; leave it out",
        )?;
        let schedule = f.text("replicationSchedule").value();
        let schedule = ontap_schedule(schedule.as_deref().unwrap_or("HOURLY"))?;
        let cluster = self.cluster()?;
        let note = Note {
            id,
            description: f
                .text("description")
                .value()
                .filter(|text| !text.is_empty()),
            labels: f.labels()?.value().unwrap_or_default(),
            created: cluster.current_time(),
        };
        let paired = cluster.peers().iter().any(|p| p.name == source.cluster);
        if !paired && !self.only && self.actor.role != Role::Admin {
            let message = "Pairing takes an administrator's token";
            return Err(ApiError::new(
                Status::PermissionDenied,
                "ROLE_INSUFFICIENT",
                message,
            ));
        }
        let mut new = netapp::new_volume(&self.volume.place, volume)?;
        new.protection = true;
        let made = Mutation::CreateVolume(self.volume.clone(), new);
        let invited = (!paired).then(|| (source.cluster.clone(), address));
        let id = note.id.clone();
        let create = begins(source, &self.volume, (schedule, note), !paired);
        if self.only {
            let invite = invited.map(|(name, address)| manager::Verb::PeerInvite { name, address });
            let planned = ReplicationPlan {
                verb: ReplicationVerb::Create,
                id,
                destination: path_of(&self.volume),
                volume: Some(made.clone()),
                steps: [create].into_iter().chain(invite).collect(),
            };
            let view = self.check(&planned).await?;
            let asked = preview::PreviewOptions {
                enums: self.enums,
                language: self.language,
                at: self.at,
            };
            return Ok(preview::describe(&view, &made, &asked));
        }
        let made = self.make(made).await?;
        self.begin(create, &self.volume, invited).await?;
        Ok(Value::Object(lro::operation(&made, self.enums, self.at)))
    }

    /// Submits a change to the control plane, and waits for its operation.
    async fn make(&self, mutation: Mutation) -> ApiResult<Arc<Operation>> {
        let control = self.app.control();
        let operation = control.submit(mutation, &self.actor).await;
        let operation = operation.map_err(ApiError::refused)?;
        let name = operation.name.clone();
        let ended = match operation.done() {
            true => operation,
            false => control
                .wait(&name, MAKING)
                .await
                .map_err(ApiError::refused)?,
        };
        match &ended.outcome {
            Some(Outcome::Failed(refusal)) => Err(ApiError::refused(refusal.clone())),
            Some(_) => Ok(ended),
            None => Err(ApiError::new(
                Status::DeadlineExceeded,
                "SLOW_VOLUME",
                "The volume to copy into was not made in time",
            )),
        }
    }

    /// Changes what it is called, or when it runs.
    ///
    /// # Errors
    /// NOT_FOUND; INVALID_ARGUMENT naming the field.
    pub async fn update(&self, id: &str, mask: Option<&str>, body: Object) -> ApiResult<Value> {
        let seen = self.find(id).await?;
        let current = object(&seen, &self.volume, &*self.cluster()?, self.at);
        let mask = Mask::parse(&REPLICATION, mask, &body)?;
        let mut f = Fields::new(mask.apply(&current, &body));
        let mut note = seen.note;
        let schedule = f.text("replicationSchedule").kept("replicationSchedule")?;
        let schedule = match schedule {
            None => None,
            Some(word) => Some(Some(ontap_schedule(&word)?)),
        };
        if let Some(text) = f.text("description").or_default() {
            note.description = Some(text).filter(|text| !text.is_empty());
        }
        if let Some(labels) = f.labels()?.or_default() {
            note.labels = labels;
        }
        f.without("clusterLocation", CLUSTER_LOCATION)?;
        // Given when it is made, and never shown again.
        f.fixed("destinationVolumeParameters", &current)?;
        let destination = seen.relationship.destination;
        let change = manager::Verb::Modify {
            destination: destination.clone(),
            policy: None,
            schedule,
            throttle: None,
            tries: None,
            note: Some(note),
        };
        self.carry_out((ReplicationVerb::Update, id), destination, vec![change])
            .await
    }

    /// Makes the steps of a change one after the other; with `only`, checks them.
    async fn carry_out(
        &self,
        (verb, id): (ReplicationVerb, &str),
        destination: Path,
        steps: Vec<manager::Verb>,
    ) -> ApiResult<Value> {
        if self.only {
            let planned = ReplicationPlan {
                verb,
                id: id.to_owned(),
                destination,
                volume: None,
                steps,
            };
            return self.foreseen(&planned).await;
        }
        for step in steps {
            self.change(step).await?;
        }
        if verb == ReplicationVerb::Delete {
            let operation = self.recorded(verb, id, Outcome::Deleted, None).await?;
            return Ok(Value::Object(operation));
        }
        self.done(verb, id).await
    }

    /// Ends it, a running transfer first; both volumes stay, the copy becomes writable if it is not
    /// yet and has something to show.
    ///
    /// # Errors
    /// NOT_FOUND; a transfer that does not end.
    pub async fn delete(&self, id: &str) -> ApiResult<Value> {
        let destination = self.find(id).await?.relationship.destination;
        let end = manager::Verb::End(destination.clone());
        self.carry_out((ReplicationVerb::Delete, id), destination, vec![end])
            .await
    }

    /// Stops, resumes, turns it round, updates now, or offers pairing to its source's node.
    ///
    /// # Errors
    /// NOT_FOUND; FAILED_PRECONDITION where its state does not allow it.
    pub async fn act(&self, id: &str, verb: ReplicationMethod, body: Object) -> ApiResult<Value> {
        let seen = self.find(id).await?;
        let r = &seen.relationship;
        let destination = r.destination.clone();
        let (word, steps) = match verb {
            ReplicationMethod::Stop => {
                let force = body.get("force").and_then(Value::as_bool) == Some(true);
                (ReplicationVerb::Stop, vec![stop(r, force)])
            }
            ReplicationMethod::Resume => (ReplicationVerb::Resume, resume(r)?),
            ReplicationMethod::Sync => {
                let update = manager::Verb::Update {
                    destination: destination.clone(),
                    source_snapshot: None,
                    throttle: None,
                };
                (ReplicationVerb::Sync, vec![update])
            }
            ReplicationMethod::Reverse if r.state != MirrorState::BrokenOff => {
                return Err(stopped_only("reversed"));
            }
            ReplicationMethod::Reverse => {
                let reverse = manager::Verb::Reverse(destination.clone());
                (ReplicationVerb::Reverse, vec![reverse])
            }
            ReplicationMethod::EstablishPeering => {
                return self.establish_peering(id, r, body).await;
            }
        };
        self.carry_out((word, id), destination, steps).await
    }

    /// Offers pairing to the node of the source; where it is paired, begins the first transfer.
    async fn establish_peering(
        &self,
        id: &str,
        r: &Relationship,
        body: Object,
    ) -> ApiResult<Value> {
        let (peer, address) = peer_of(&mut Fields::new(body))?;
        if peer != r.source {
            let message = format!("The replication copies {}, not {peer}", r.source);
            return Err(ApiError::field("peerVolumeName", message));
        }
        let cluster = self.cluster()?;
        match peering(&*cluster, r) {
            PeeringStep::Cluster(_) => self.invite(&peer.cluster, address).await?,
            PeeringStep::Svm => self.change(first_transfer(&r.destination)).await?,
            PeeringStep::Done => {
                let message = format!("'{}' is paired already", peer.cluster);
                return Err(state(message));
            }
        }
        self.done(ReplicationVerb::EstablishPeering, id).await
    }
}

/// Returns the verb that makes a replication, with its first transfer. `invited`: the source's node
/// is not paired yet.
fn begins(
    source: Path,
    to: &VolumeName,
    (schedule, note): (String, Note),
    invited: bool,
) -> manager::Verb {
    manager::Verb::Create {
        source,
        destination: path_of(to),
        policy: Some(POLICY.to_owned()),
        schedule: Some(schedule),
        throttle: None,
        tries: None,
        note: Some(note),
        initialize: Some(manager::First {
            once_paired: invited,
            ..manager::First::default()
        }),
    }
}

fn first_transfer(destination: &Path) -> manager::Verb {
    manager::Verb::Initialize {
        destination: destination.clone(),
        source_snapshot: None,
        throttle: None,
    }
}

/// Returns the verb that brings a replication to where nothing is copied any more: the destination
/// is broken off or, before the first transfer has ended, at rest. `force`: from any state, ending
/// a running transfer.
fn stop(r: &Relationship, force: bool) -> manager::Verb {
    let at_rest = r.state == MirrorState::Uninitialized && r.transfer.is_none();
    let destination = r.destination.clone();
    if force || at_rest {
        manager::Verb::Stop(destination)
    } else {
        manager::Verb::Break(destination)
    }
}

/// Returns the verbs that make a stopped replication go on.
fn resume(r: &Relationship) -> ApiResult<Vec<manager::Verb>> {
    let destination = r.destination.clone();
    let mut steps = Vec::new();
    if r.status == Doing::Quiesced {
        steps.push(manager::Verb::Resume(destination.clone()));
    }
    match (r.state, r.status) {
        (MirrorState::Snapmirrored, Doing::Quiesced) => {}
        (MirrorState::Snapmirrored, _) => return Err(stopped_only("resumed")),
        (MirrorState::Uninitialized, _) => steps.push(first_transfer(&destination)),
        (MirrorState::BrokenOff, _) => steps.push(manager::Verb::Resync {
            destination,
            source: None,
        }),
    }
    Ok(steps)
}

/// Returns the volume at `destination`, which is not made yet, as the rules of replications will
/// see it.
fn planned_side(view: &View, destination: &Path) -> Option<manager::Side> {
    let volume = view.volume_at(destination).ok().flatten()?;
    Some(manager::Side {
        size: capacity(view, volume).bytes.filter(|bytes| *bytes > 0),
        data_protection: true,
        ..manager::Side::default()
    })
}

fn stopped_only(what: &str) -> Box<ApiError> {
    state(format!(
        "Only a stopped replication can be {what}: stop it first"
    ))
}

fn state(message: String) -> Box<ApiError> {
    ApiError::new(Status::FailedPrecondition, "REPLICATION_STATE", message)
}

/// Returns the volume of another cluster that a request names, and where that cluster listens:
/// without an address, the one from which it joins.
fn peer_of(f: &mut Fields) -> ApiResult<(Path, Option<String>)> {
    let mut name = |field: &str| required(f.text(field).value(), field);
    let path = Path {
        cluster: name("peerClusterName")?,
        vserver: name("peerSvmName")?,
        volume: name("peerVolumeName")?,
    };
    let addresses = f.take("peerIpAddresses").value();
    match addresses
        .as_ref()
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        None | Some([]) => Ok((path, None)),
        Some([Value::String(one)]) => Ok((path, Some(one.clone()))),
        Some(_) => {
            let message =
                "'peerIpAddresses' is one HOST:PORT: a node listens for peers in one place";
            Err(ApiError::field("peerIpAddresses", message))
        }
    }
}

fn path_of(name: &VolumeName) -> Path {
    Path::local(&name.place.project, &name.id)
}

fn ontap_schedule(word: &str) -> ApiResult<String> {
    let found = SCHEDULES.iter().find(|(w, _)| *w == word);
    let name = found.map(|(_, name)| (*name).to_owned());
    name.ok_or_else(|| {
        let message = "'replicationSchedule' is EVERY_10_MINUTES, HOURLY or DAILY";
        ApiError::field("replicationSchedule", message)
    })
}

/// Returns a pool by its full name, or by its id where the source is.
fn pool_name(place: &LocationName, text: &str) -> ApiResult<Name> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        [id] => Ok(place.name(id)),
        [
            "projects",
            project,
            "locations",
            location,
            "storagePools",
            id,
        ] => Ok(LocationName::new(project, location).name(id)),
        _ => Err(ApiError::field(
            "destinationVolumeParameters.storagePool",
            format!("Invalid storage pool '{}'", abbreviate(text)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_for_what_came_without() {
        let path = Path::parse("SVM:vol_test_dst").unwrap();
        assert_eq!(id_of(&path), "to-vol-test-dst");
    }

    #[test]
    fn pools_by_name_or_in_full() {
        let place = LocationName::new("p", "l");
        assert_eq!(pool_name(&place, "a").unwrap(), place.name("a"));
        let other = "projects/p/locations/m/storagePools/b";
        assert_eq!(
            pool_name(&place, other).unwrap(),
            LocationName::new("p", "m").name("b")
        );
        assert!(pool_name(&place, "x/y").is_err());
    }
}

//! Handlers of the methods.

use crate::admin;
use crate::benchmarks::Benchmarks;
use crate::blocking::waiting;
use crate::error::{ApiError, ApiResult};
use crate::fields::{check_id, required};
use crate::files;
use crate::json::{EnumsAs, Object, decode_body, encode};
use crate::live;
use crate::lro;
use crate::mask::Mask;
use crate::mount::Mounts;
use crate::page::{ListParams, ListQuery, Page};
use crate::query::Query;
use crate::route::{Action, Kind, ReplicationMethod, Route, VALIDATE_ONLY, name_of};
use crate::schema::longrunning::OPERATION;
use crate::schema::{Message, netapp as na, own};
use crate::state::{AppState, cluster, ontap, ontap_call};
use crate::words::Language;
use crate::{
    active_directory, backups, filestore, netapp, preview, quota_rules, replications, space,
    throughput,
};
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use weir_control::{
    Actor, Backup, BackupName, Collection, FILESTORE_VAULT, LocationName, Mutation, Name,
    Operation, Pool, Resource, Role, Snapshot, Status, Surface, Target, View, Volume, VolumeName,
    Within,
};

/// Wildcard of a location: all of them.
const EVERYWHERE: &str = "-";

/// An admitted request, before its action runs.
pub struct RequestContext<'a> {
    /// The state that all requests share.
    pub app: &'a AppState,
    /// The authenticated caller, with its role.
    pub actor: Actor,
    /// The row of the table that the path matched.
    pub route: &'static Route,
    /// API that the client means, where it says so.
    pub surface: Option<Surface>,
    /// The parts of the path that the route's stars matched.
    pub parts: Vec<String>,
    /// The query's parameters, decoded.
    pub query: Query,
    /// Language of sentences in the response.
    pub language: Language,
    /// Form of enums in the response.
    pub enums: EnumsAs,
    /// The body; not parsed yet.
    pub body: Bytes,
    /// Addresses that clients mount from.
    pub at: Mounts,
    /// Lists of operations show those of both APIs.
    pub both: bool,
}

/// Runs the request's action and returns the response's body.
///
/// # Errors
/// The refusal or failure that the client gets.
pub async fn handle(a: RequestContext<'_>) -> ApiResult<Value> {
    match a.route.action {
        Action::List(kind) => a.list(kind).await,
        Action::Get(kind) => a.get(kind).await,
        Action::Create(kind) => a.create(kind).await,
        Action::Update(kind) => a.update(kind).await,
        Action::Delete(kind) => a.delete(kind).await,
        Action::Revert(kind) => a.revert(kind).await,
        Action::RestoreBackupFiles => a.restore_backup_files().await,
        Action::StartSplit => a.start_split().await,
        Action::SplitStatus => a.split_status(),
        Action::Rename(kind) => a.rename(kind).await,
        Action::FindFile(kind) => a.file_of(kind)?.find(&a.query).await,
        Action::RestoreFile(kind) => {
            let only = a.query.flag(VALIDATE_ONLY)?;
            a.file_of(kind)?.restore(&a.body, only).await
        }
        Action::SwitchPool => {
            let name = a.name()?;
            a.submit(Mutation::SwitchPool(name)).await
        }
        Action::ListLocations => a.locations(),
        Action::GetLocation => {
            let place = a.place()?;
            Ok(location(&place.project, &place.location))
        }
        Action::ListOperations => a.operations(),
        Action::GetOperation => Ok(a.operation(&*a.found()?)),
        Action::DeleteOperation => {
            let name = a.found()?.name.clone();
            let done = a.app.control().delete_operation(&name, &a.actor).await;
            done.map_err(ApiError::refused)?;
            Ok(json!({}))
        }
        // Best effort, says the public API: what is under way here is over before a cancellation
        // could reach it.
        Action::CancelOperation => {
            a.found()?;
            Ok(json!({}))
        }
        Action::ListReplications
        | Action::GetReplication
        | Action::CreateReplication
        | Action::UpdateReplication
        | Action::DeleteReplication
        | Action::Replication(_) => a.replicated().await,
        Action::Ontap => a.ontap().await,
        Action::EmptyList(_) => {
            a.place_or_everywhere()?;
            Ok(json!({}))
        }
        Action::Missing => Err(ApiError::not_found(&name_of(a.route, &a.parts))),
        Action::Unimplemented(what, instead) => Err(ApiError::unimplemented(what, instead)),
        Action::ListTokens => admin::list_tokens(a.app).await,
        Action::CreateToken => admin::create_token(a.app, &a.actor, &a.query, &a.body).await,
        Action::DeleteToken => {
            let only = a.query.flag(VALIDATE_ONLY)?;
            admin::delete_token(a.app, &a.actor, a.part(0), only).await
        }
        Action::ListAudit => admin::list_audit(a.app, &a.actor, &a.query).await,
        _ => a.observed().await,
    }
}

/// Returns a page of the backups of instances.
fn instance_backups(q: &ListQuery, view: &View, within: &Within<'_>) -> (Vec<Object>, String) {
    let all = view.instance_backups(within);
    objects(q.page(
        all.map(|b| (key(&b.name.vault.place, &b.name.id), b)),
        |(k, _)| k,
        |(_, b)| filestore::backup(b),
    ))
}

/// Returns a resource as it is intended, in normal form, without figures that only the node knows.
fn current(view: &View, target: &Target, at: Mounts) -> ApiResult<Object> {
    lro::render_target(view, target, at).ok_or_else(|| ApiError::not_found(&target.to_string()))
}

impl RequestContext<'_> {
    fn live(&self) -> ApiResult<&Arc<live::Live>> {
        let none = || ApiError::unimplemented("Live data", "");
        self.app.live().ok_or_else(none)
    }

    fn benchmarks(&self) -> ApiResult<&Benchmarks> {
        let none = || ApiError::unimplemented("Benchmark reports", "");
        self.app.benchmarks().ok_or_else(none)
    }

    /// Answers a request whose reply is a file: one of a snapshot, or a benchmark's page. `None`
    /// for any other.
    pub async fn file(&self, head: &Parts) -> Option<ApiResult<Response>> {
        match self.route.action {
            Action::Download(kind) => Some(self.download(kind, head).await),
            Action::BenchmarkReport => Some(match self.benchmarks() {
                Ok(benchmarks) => benchmarks.report(self.part(0)).await,
                Err(e) => Err(e),
            }),
            _ => None,
        }
    }

    /// Answers a request about replications.
    async fn replicated(&self) -> ApiResult<Value> {
        match self.route.action {
            Action::ListReplications => self.replications().await,
            Action::GetReplication => {
                let object = self.of_volume()?.get(self.part(3)).await?;
                Ok(encode(&na::REPLICATION, &object, self.enums))
            }
            Action::CreateReplication => {
                let body = self.decode(&na::REPLICATION)?;
                let id = self.query.get("replicationId");
                self.of_volume()?.create(id, body).await
            }
            Action::UpdateReplication => {
                let body = self.decode(&na::REPLICATION)?;
                let mask = self.query.get("updateMask");
                self.of_volume()?.update(self.part(3), mask, body).await
            }
            Action::DeleteReplication => self.of_volume()?.delete(self.part(3)).await,
            Action::Replication(verb) => {
                let body = match (self.body.is_empty(), verb) {
                    (true, _) => Object::new(),
                    (_, ReplicationMethod::EstablishPeering) => {
                        self.decode(&na::ESTABLISH_PEERING_REQUEST)?
                    }
                    _ => self.decode(&na::STOP_REPLICATION_REQUEST)?,
                };
                self.of_volume()?.act(self.part(3), verb, body).await
            }
            // No other action gets here.
            _ => Err(ApiError::unimplemented("Replication", "")),
        }
    }

    /// Answers a request for what the server observes of itself, and for benchmarks.
    async fn observed(&self) -> ApiResult<Value> {
        let (control, query) = (self.app.control(), &self.query);
        match self.route.action {
            Action::History => live::history(self.live()?, control, query),
            Action::Latency => live::latency(self.live()?, control, query, self.language),
            Action::LimitChanges => live::limit_changes(self.live()?, control, query).await,
            Action::Conditions => Ok(self.live()?.conditions(self.language)),
            Action::Headline => self.headline(self.live()?).await,
            Action::Pair => Ok(self.live()?.pair(self.language)),
            Action::SwitchPair => {
                let only = query.flag(VALIDATE_ONLY)?;
                admin::switch_pair(self.app, &self.actor, only, &self.body).await
            }
            Action::Server => Ok(self.server(self.live()?)),
            Action::ListBenchmarks => self.benchmarks()?.list(self.language).await,
            Action::GetBenchmark => self.benchmarks()?.get(self.part(0), self.language).await,
            // Its reply is no single value; the dispatcher answers it.
            _ => Err(ApiError::unimplemented("A stream", "")),
        }
    }

    /// Answers a request for the sentence of a page.
    async fn headline(&self, live: &live::Live) -> ApiResult<Value> {
        let relationships = match cluster(self.app, &self.actor) {
            Ok(cluster) => waiting(move || cluster.relationships()).await?,
            Err(_) => Vec::new(),
        };
        let asked = live::HeadlineRequest {
            live,
            control: self.app.control(),
            actor: &self.actor,
            query: &self.query,
            language: self.language,
            relationships,
        };
        live::headline(&asked).await
    }

    fn file_of(&self, kind: Kind) -> ApiResult<files::FileRequest<'_>> {
        Ok(files::FileRequest {
            app: self.app,
            actor: &self.actor,
            volume: self.volume(kind.surface())?,
        })
    }

    /// Answers a request to download a file of a snapshot.
    async fn download(&self, kind: Kind, head: &Parts) -> ApiResult<Response> {
        let snapshot = self.part(3);
        let wanted = self.file_of(kind)?;
        wanted.download(snapshot, &self.query, head).await
    }

    /// Describes the server to its caller.
    fn server(&self, live: &live::Live) -> Value {
        let mut described = live.server();
        let role = self.actor.role;
        let caller = json!({
            "name": self.actor.name,
            "role": role.as_str().to_ascii_uppercase(),
            "mayChange": role >= Role::Editor,
        });
        described.insert("caller".to_owned(), caller);
        Value::Object(described)
    }

    fn part(&self, i: usize) -> &str {
        self.parts.get(i).map_or("", String::as_str)
    }

    /// Returns the place that the path names, where `-` is no place.
    fn place(&self) -> ApiResult<LocationName> {
        let place = self.place_or_everywhere()?;
        if &*place.location == EVERYWHERE {
            return Err(ApiError::field(
                "name",
                "Invalid location '-': only lists go through all locations",
            ));
        }
        Ok(place)
    }

    fn place_or_everywhere(&self) -> ApiResult<LocationName> {
        for part in [self.part(0), self.part(1)] {
            let ok = part.len() <= 63
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
            if !ok {
                let shown = crate::json::abbreviate(part);
                return Err(ApiError::field(
                    "name",
                    format!("Invalid project or location '{shown}'"),
                ));
            }
        }
        Ok(LocationName::new(self.part(0), self.part(1)))
    }

    /// Returns the resource that the path names, for those right below a place.
    fn name(&self) -> ApiResult<Name> {
        Ok(self.place()?.name(self.part(2)))
    }

    /// Returns the volume that the path names, or names something of.
    fn volume(&self, surface: Surface) -> ApiResult<VolumeName> {
        Ok(self.place()?.volume_name(surface, self.part(2)))
    }

    /// Returns the vault that the path names; those of instances are not there.
    fn vault(&self) -> ApiResult<Name> {
        let vault = self.name()?;
        if &*vault.id == FILESTORE_VAULT {
            return Err(ApiError::not_found(&vault.full(Collection::BackupVaults)));
        }
        Ok(vault)
    }

    /// Returns a backup of the vault that the path names.
    fn backup(&self, id: &str) -> ApiResult<BackupName> {
        Ok(BackupName {
            vault: self.vault()?,
            id: id.into(),
        })
    }

    fn target(&self, kind: Kind) -> ApiResult<Target> {
        Ok(match kind {
            Kind::Pool => Target::Pool(self.name()?),
            Kind::ActiveDirectory => Target::ActiveDirectory(self.name()?),
            Kind::BackupVault => Target::BackupVault(self.vault()?),
            Kind::BackupPolicy => Target::BackupPolicy(self.name()?),
            Kind::Backup => Target::Backup(self.backup(self.part(3))?),
            Kind::InstanceBackup => {
                Target::Backup(BackupName::of_instance(&self.place()?, self.part(2)))
            }
            Kind::Volume | Kind::Instance => Target::Volume(self.volume(kind.surface())?),
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => {
                Target::Snapshot(self.volume(kind.surface())?.snapshot(self.part(3)))
            }
            Kind::QuotaRule => {
                Target::QuotaRule(self.volume(kind.surface())?.quota_rule(self.part(3)))
            }
        })
    }

    fn decode(&self, message: &'static Message) -> ApiResult<Object> {
        decode_body(message, &self.body)
    }

    fn operation(&self, op: &Operation) -> Value {
        Value::Object(lro::operation(op, self.enums, self.at))
    }

    /// Returns the operation that the path names. Those of the other API are not there.
    fn found(&self) -> ApiResult<Arc<Operation>> {
        let op = self.app.control().operation(&self.name()?);
        let op = op.map_err(ApiError::refused)?;
        match self.surface.is_none_or(|surface| surface == op.surface()) {
            true => Ok(op),
            false => Err(ApiError::not_found(&op.full_name())),
        }
    }

    async fn submit(&self, mutation: Mutation) -> ApiResult<Value> {
        if self.query.flag(VALIDATE_ONLY)? {
            return self.preview(&mutation).await;
        }
        // Quick work has ended by the time this returns; the rest is polled for.
        let submitted = self.app.control().submit(mutation, &self.actor).await;
        let op = submitted.map_err(ApiError::refused)?;
        Ok(self.operation(&op))
    }

    /// Describes the resource as `mutation` would leave it, with its limit and the rest of its
    /// pool.
    async fn preview(&self, mutation: &Mutation) -> ApiResult<Value> {
        let preview = self.app.control().preview(mutation, &self.actor).await;
        let view = preview.map_err(ApiError::refused)?;
        let asked = preview::PreviewOptions {
            enums: self.enums,
            language: self.language,
            at: self.at,
        };
        Ok(preview::describe(&view, mutation, &asked))
    }

    async fn get(&self, kind: Kind) -> ApiResult<Value> {
        let target = self.target(kind)?;
        let control = self.app.control();
        let view = control.view();
        let mut object = current(&view, &target, self.at)?;
        match view.resource(&target) {
            Some(Resource::Volume(v)) => {
                let used = control.volumes_used(std::iter::once(&*v)).await;
                let used = used.first().copied().unwrap_or(0);
                let facts = control.facts();
                space::set(&mut object, space::of_volume(&v, used, &facts), &facts);
                if v.pooled().is_some() {
                    netapp::set_used(&mut object, used);
                    let replicated = replications::replicated(&view, &v.name);
                    netapp::set_replicated(&mut object, replicated);
                }
                self.set_throughput(&v, &mut object).await;
            }
            Some(Resource::Snapshot(s)) => {
                object = lro::snapshot(&s, Some(control.snapshot_used(&s).await));
            }
            Some(Resource::Pool(p)) => {
                let facts = control.facts();
                let used = self.pool_used(&view, &p).await;
                space::set(&mut object, space::of_pool(&view, used, &facts), &facts);
            }
            Some(
                Resource::ActiveDirectory(_)
                | Resource::QuotaRule(..)
                | Resource::BackupVault(_)
                | Resource::BackupPolicy(_)
                | Resource::Backup(_),
            )
            | None => {}
        }
        Ok(encode(kind.message(), &object, self.enums))
    }

    /// Adds what limits a volume now to its description.
    async fn set_throughput(&self, volume: &Volume, object: &mut Object) {
        if let Some(now) = self.app.control().throttled(&volume.name).await {
            object.insert("throughputStatus".to_owned(), throughput::status(&now));
        }
    }

    async fn create(&self, kind: Kind) -> ApiResult<Value> {
        let place = self.place()?;
        let parameter = kind.id_parameter();
        let id = self.query.get(parameter);
        let id = match kind {
            // Snapshots may have dots in their names, as those of schedules have; the control plane
            // checks them.
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => {
                required(id.filter(|id| !id.is_empty()), parameter)?.to_owned()
            }
            _ => check_id(parameter, id)?,
        };
        let mut body = self.decode(kind.message())?;
        if let (Kind::Volume, Some(peer)) = (kind, netapp::take_hybrid(&mut body)) {
            let copy = self.replications_of(place.volume(&id))?;
            return copy.create_of_peer(peer, body).await;
        }
        let mutation = match kind {
            Kind::Pool => Mutation::CreatePool(place.name(&id), netapp::new_pool(&place, body)?),
            Kind::ActiveDirectory => {
                let new = active_directory::new(body)?;
                Mutation::CreateActiveDirectory(place.name(&id), new)
            }
            Kind::BackupVault => {
                Mutation::CreateBackupVault(place.name(&id), backups::new_vault(body)?)
            }
            Kind::BackupPolicy => {
                Mutation::CreateBackupPolicy(place.name(&id), backups::new_policy(body)?)
            }
            Kind::Backup => {
                Mutation::CreateBackup(self.backup(&id)?, backups::new_backup(&place, body)?)
            }
            Kind::InstanceBackup => {
                let new = filestore::new_backup(&self.app.control().view(), &place, body)?;
                Mutation::CreateBackup(BackupName::of_instance(&place, &id), new)
            }
            Kind::Volume => {
                Mutation::CreateVolume(place.volume(&id), netapp::new_volume(&place, body)?)
            }
            Kind::Instance => {
                Mutation::CreateVolume(place.instance(&id), filestore::new_instance(&place, body)?)
            }
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => Mutation::CreateSnapshot(
                self.volume(kind.surface())?.snapshot(&id),
                netapp::new_snapshot(body)?,
            ),
            Kind::QuotaRule => Mutation::CreateQuotaRule(
                self.volume(kind.surface())?.quota_rule(&id),
                quota_rules::new(body)?,
            ),
        };
        self.submit(mutation).await
    }

    async fn update(&self, kind: Kind) -> ApiResult<Value> {
        let target = self.target(kind)?;
        let body = self.decode(kind.message())?;
        let mask = Mask::parse(kind.message(), self.query.get("updateMask"), &body)?;
        let at = self.at;
        let of = target.clone();
        // A mask may name a part of a field; the rest of it is what it is when the change's turn
        // comes.
        let make = move |view: &View| -> ApiResult<Mutation> {
            let current = current(view, &of, at)?;
            let changed = mask.apply(&current, &body);
            if changed.is_empty() && !mask.is_all() {
                return Err(ApiError::field(
                    "updateMask",
                    "'updateMask' is required: it names the fields to change",
                ));
            }
            Ok(match of.clone() {
                Target::Pool(name) => {
                    let change = netapp::pool_change(&name.place, changed, &current)?;
                    Mutation::UpdatePool(name, change)
                }
                Target::ActiveDirectory(name) => {
                    let change = active_directory::change(changed, &current)?;
                    Mutation::UpdateActiveDirectory(name, change)
                }
                Target::BackupVault(name) => {
                    Mutation::UpdateBackupVault(name, backups::vault_change(changed)?)
                }
                Target::BackupPolicy(name) => {
                    Mutation::UpdateBackupPolicy(name, backups::policy_change(changed)?)
                }
                Target::Backup(name) => {
                    let change = match name.surface() {
                        Surface::Netapp => backups::backup_change(changed, &current)?,
                        Surface::Filestore => filestore::backup_change(changed, &current)?,
                    };
                    Mutation::UpdateBackup(name, change)
                }
                Target::Volume(name) => {
                    let etag = body.get("etag").and_then(Value::as_str);
                    let change = match name.surface {
                        Surface::Netapp => netapp::volume_change(&name.place, changed, &current)?,
                        Surface::Filestore => filestore::instance_change(changed, etag, &current)?,
                    };
                    Mutation::UpdateVolume(name, change)
                }
                Target::Snapshot(name) => {
                    Mutation::UpdateSnapshot(name, netapp::snapshot_change(changed)?)
                }
                Target::QuotaRule(name) => {
                    Mutation::UpdateQuotaRule(name, quota_rules::change(changed, &current)?)
                }
                // They have methods of their own.
                other @ (Target::Replication(_) | Target::Relation(_)) => {
                    return Err(ApiError::not_found(&other.to_string()));
                }
            })
        };
        let control = self.app.control();
        if self.query.flag(VALIDATE_ONLY)? {
            return self.preview(&make(&control.view())?).await;
        }
        let op = control.submit_made(&target, make, &self.actor).await?;
        Ok(self.operation(&op))
    }

    async fn delete(&self, kind: Kind) -> ApiResult<Value> {
        let force = self.query.flag("force")?;
        let mutation = match self.target(kind)? {
            Target::Pool(name) => Mutation::DeletePool(name),
            Target::ActiveDirectory(name) => Mutation::DeleteActiveDirectory(name),
            Target::BackupVault(name) => Mutation::DeleteBackupVault(name),
            Target::BackupPolicy(name) => Mutation::DeleteBackupPolicy(name),
            Target::Backup(name) => Mutation::DeleteBackup(name),
            Target::Volume(name) => Mutation::DeleteVolume { name, force },
            Target::Snapshot(name) => Mutation::DeleteSnapshot(name),
            Target::QuotaRule(name) => Mutation::DeleteQuotaRule(name),
            other @ (Target::Replication(_) | Target::Relation(_)) => {
                return Err(ApiError::not_found(&other.to_string()));
            }
        };
        self.submit(mutation).await
    }

    async fn revert(&self, kind: Kind) -> ApiResult<Value> {
        let name = self.volume(kind.surface())?;
        let (message, field) = match kind {
            Kind::Instance => (
                &crate::schema::filestore::REVERT_INSTANCE_REQUEST,
                "targetSnapshotId",
            ),
            _ => (&na::REVERT_VOLUME_REQUEST, "snapshotId"),
        };
        let body = self.decode(message)?;
        let sent = body.get(field).and_then(Value::as_str).unwrap_or_default();
        // Some clients send the snapshot's full name.
        let snapshot = sent.rsplit('/').next().unwrap_or_default().to_owned();
        if snapshot.is_empty() {
            return Err(ApiError::field(field, format!("'{field}' is required")));
        }
        self.submit(Mutation::RevertVolume { name, snapshot }).await
    }

    async fn restore_backup_files(&self) -> ApiResult<Value> {
        let name = self.volume(Surface::Netapp)?;
        let body = self.decode(&na::RESTORE_BACKUP_FILES_REQUEST)?;
        let restore = backups::restore_files(&self.place()?, body)?;
        self.submit(Mutation::RestoreFiles(name, restore)).await
    }

    async fn start_split(&self) -> ApiResult<Value> {
        self.decode(&na::START_SPLIT_REQUEST)?;
        let name = self.volume(Surface::Netapp)?;
        self.submit(Mutation::SplitVolume(name)).await
    }

    fn split_status(&self) -> ApiResult<Value> {
        let target = Target::Volume(self.volume(Surface::Netapp)?);
        let view = self.app.control().view();
        match view.resource(&target) {
            Some(Resource::Volume(volume)) => {
                let status = netapp::split_status(&volume)?;
                Ok(encode(&na::SPLIT_STATUS, &status, self.enums))
            }
            _ => Err(ApiError::not_found(&target.to_string())),
        }
    }

    async fn rename(&self, kind: Kind) -> ApiResult<Value> {
        const FIELD: &str = "newSnapshotId";
        let body = self.decode(&own::RENAME_SNAPSHOT_REQUEST)?;
        let to = body.get(FIELD).and_then(Value::as_str);
        let to = required(to.filter(|id| !id.is_empty()), FIELD)?.to_owned();
        let Target::Snapshot(name) = self.target(kind)? else {
            return Err(ApiError::not_found(&name_of(self.route, &self.parts)));
        };
        self.submit(Mutation::RenameSnapshot { name, to }).await
    }

    fn list_query(&self, message: &'static Message) -> ApiResult<ListQuery> {
        let params = ListParams {
            page_size: self.query.get("pageSize"),
            page_token: self.query.get("pageToken"),
            filter: self.query.get("filter"),
            order_by: self.query.get("orderBy"),
        };
        ListQuery::parse(message, &name_of(self.route, &self.parts), params)
    }

    async fn list(&self, kind: Kind) -> ApiResult<Value> {
        let place = self.place_or_everywhere()?;
        let q = self.list_query(kind.message())?;
        let control = self.app.control();
        let view = control.view();
        let after = q.after().and_then(from_key);
        let within = Within {
            project: &place.project,
            location: &place.location,
            after: after.as_ref(),
        };
        let page = match kind {
            Kind::Pool => {
                let page: Page<(String, &Arc<Pool>)> = q.page(
                    view.pools(&within)
                        .map(|p| (key(&p.name.place, &p.name.id), p)),
                    |(k, _)| k,
                    |(_, p)| netapp::pool(&view, p),
                );
                let facts = control.facts();
                let mut out = Vec::with_capacity(page.items.len());
                for ((_, pool), mut object) in page.items {
                    let used = self.pool_used(&view, pool).await;
                    space::set(&mut object, space::of_pool(&view, used, &facts), &facts);
                    out.push(object);
                }
                (out, page.next)
            }
            Kind::ActiveDirectory => objects(
                q.page(
                    view.active_directories(&within)
                        .map(|a| (key(&a.name.place, &a.name.id), a)),
                    |(k, _)| k,
                    |(_, a)| active_directory::render_directory(a),
                ),
            ),
            Kind::BackupVault => objects(
                q.page(
                    view.backup_vaults(&within)
                        .map(|v| (key(&v.name.place, &v.name.id), v)),
                    |(k, _)| k,
                    |(_, v)| backups::vault(v),
                ),
            ),
            Kind::BackupPolicy => objects(
                q.page(
                    view.backup_policies(&within)
                        .map(|p| (key(&p.name.place, &p.name.id), p)),
                    |(k, _)| k,
                    |(_, p)| backups::policy(&view, p),
                ),
            ),
            Kind::Backup => self.backups(&q, &view)?,
            Kind::InstanceBackup => instance_backups(&q, &view, &within),
            Kind::Volume => self.volumes(&q, &view, &within).await?,
            Kind::Instance => self.instances(&q, &view, &within).await,
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => {
                self.snapshots(&q, &view, kind.surface()).await?
            }
            Kind::QuotaRule => self.quota_rules(&q, &view)?,
        };
        let items: Vec<Value> = page
            .0
            .iter()
            .map(|o| encode(kind.message(), o, self.enums))
            .collect();
        Ok(listed(kind.collection(), items, page.1))
    }

    /// Returns true if the filter or the order reads a figure that only the node knows.
    fn asks_for_use(&self) -> bool {
        ["filter", "orderBy"].iter().any(|p| {
            self.query
                .get(p)
                .is_some_and(|t| t.to_ascii_lowercase().contains("used"))
        })
    }

    async fn volumes(
        &self,
        q: &ListQuery,
        view: &View,
        within: &Within<'_>,
    ) -> ApiResult<(Vec<Object>, String)> {
        let control = self.app.control();
        let all = || view.volumes(Surface::Netapp, within);
        // The use of a volume is asked for only where it is shown, or where the client's question
        // needs it of all.
        let mut used: HashMap<u64, u64> = HashMap::new();
        if self.asks_for_use() {
            let bytes = control.volumes_used(all().map(|v| &**v)).await;
            used.extend(all().map(|v| v.id).zip(bytes));
        }
        let page: Page<(String, &Arc<Volume>)> = q.page(
            all().map(keyed),
            |(k, _)| k,
            |(_, v)| lro::volume(view, v, used.get(&v.id).copied(), self.at),
        );
        if used.is_empty() {
            let shown: Vec<&Volume> = page.items.iter().map(|((_, v), _)| &***v).collect();
            let bytes = control.volumes_used(shown.iter().copied()).await;
            used.extend(shown.iter().map(|v| v.id).zip(bytes));
        }
        let mut out = Vec::with_capacity(page.items.len());
        let facts = control.facts();
        for ((_, v), mut object) in page.items {
            let used = used.get(&v.id).copied().unwrap_or(0);
            netapp::set_used(&mut object, used);
            space::set(&mut object, space::of_volume(v, used, &facts), &facts);
            netapp::set_replicated(&mut object, replications::replicated(view, &v.name));
            self.set_throughput(v, &mut object).await;
            out.push(object);
        }
        Ok((out, page.next))
    }

    /// Returns the bytes that the volumes of a pool hold.
    async fn pool_used(&self, view: &View, pool: &Pool) -> u64 {
        let volumes: Vec<&Volume> = view.volumes_of(&pool.name).map(|v| &**v).collect();
        let used = self.app.control().volumes_used(volumes.into_iter()).await;
        used.into_iter().sum()
    }

    async fn instances(
        &self,
        q: &ListQuery,
        view: &View,
        within: &Within<'_>,
    ) -> (Vec<Object>, String) {
        let control = self.app.control();
        let page: Page<(String, &Arc<Volume>)> = q.page(
            view.volumes(Surface::Filestore, within).map(keyed),
            |(k, _)| k,
            |(_, v)| lro::volume(view, v, None, self.at),
        );
        let facts = control.facts();
        let shown = page.items.iter().map(|((_, v), _)| &***v);
        let shown: Vec<&Volume> = shown.collect();
        let used = control.volumes_used(shown.into_iter()).await;
        let mut out = Vec::with_capacity(page.items.len());
        for (((_, v), mut object), used) in page.items.into_iter().zip(used) {
            space::set(&mut object, space::of_volume(v, used, &facts), &facts);
            self.set_throughput(v, &mut object).await;
            out.push(object);
        }
        (out, page.next)
    }

    fn backups(&self, q: &ListQuery, view: &View) -> ApiResult<(Vec<Object>, String)> {
        let vault = self.vault()?;
        if view.backup_vault(&vault).is_none() {
            let target = Target::BackupVault(vault);
            return Err(ApiError::not_found(&target.to_string()));
        }
        let after = q.after().unwrap_or_default().to_owned();
        let page = q.page(
            view.backups_in(&vault)
                .filter(|b| *b.name.id > *after)
                .map(|b| (b.name.id.to_string(), b)),
            |(k, _): &(String, &Arc<Backup>)| k,
            |(_, b)| backups::backup(b),
        );
        Ok(objects(page))
    }

    async fn snapshots(
        &self,
        q: &ListQuery,
        view: &View,
        surface: Surface,
    ) -> ApiResult<(Vec<Object>, String)> {
        let parent = self.volume(surface)?;
        if view.volume(&parent).is_none() {
            return Err(ApiError::not_found(&parent.to_string()));
        }
        let control = self.app.control();
        let mut used: HashMap<u64, u64> = HashMap::new();
        // A volume has few snapshots; all of them are asked at once.
        for s in view.snapshots(&parent, None) {
            used.insert(s.id, control.snapshot_used(s).await);
        }
        let page = q.page(
            view.snapshots(&parent, q.after())
                .map(|s| (s.name.id.to_string(), s)),
            |(k, _): &(String, &Arc<Snapshot>)| k,
            |(_, s)| lro::snapshot(s, used.get(&s.id).copied()),
        );
        Ok(objects(page))
    }

    fn quota_rules(&self, q: &ListQuery, view: &View) -> ApiResult<(Vec<Object>, String)> {
        let name = self.volume(Surface::Netapp)?;
        let Some(volume) = view.volume(&name) else {
            return Err(ApiError::not_found(&name.to_string()));
        };
        let after = q.after().unwrap_or_default().to_owned();
        let rules = volume.quotas.rules.iter();
        let rest = rules.filter(|rule| *rule.id > *after && !rule.subject.is_tree());
        Ok(objects(q.page(
            rest.map(|rule| (rule.id.to_string(), rule)),
            |(id, _)| id,
            |(_, rule)| quota_rules::render_rule(&name.quota_rule(&rule.id), rule),
        )))
    }

    fn operations(&self) -> ApiResult<Value> {
        let place = self.place_or_everywhere()?;
        let q = self.list_query(&OPERATION)?;
        let view = self.app.control().view();
        let after = q.after().and_then(from_key);
        let within = Within {
            project: &place.project,
            location: &place.location,
            after: after.as_ref(),
        };
        // Clients of one API cannot read the other's (Python raises at metadata of a type that it
        // does not have).
        let surface = self.surface.unwrap_or(Surface::Netapp);
        let all = view
            .operations(&within)
            .filter(|o| self.both || o.surface() == surface);
        let (items, next) = objects(q.page(
            all.map(|o| (key(&o.name.place, &o.name.id), o)),
            |(k, _)| k,
            |(_, o)| lro::operation(o, self.enums, self.at),
        ));
        let items = items.into_iter().map(Value::Object).collect();
        Ok(listed("operations", items, next))
    }

    /// Locations exist because resources are in them; the one that the first start uses is always
    /// there.
    fn locations(&self) -> ApiResult<Value> {
        let project = self.part(0);
        let view = self.app.control().view();
        let within = Within::project(project);
        let mut all = BTreeSet::from([LocationName::local().location]);
        all.extend(view.pools(&within).map(|p| p.name.place.location.clone()));
        all.extend(
            view.volumes(Surface::Filestore, &within)
                .map(|v| v.name.place.location.clone()),
        );
        let all: Vec<Value> = all.iter().map(|l| location(project, l)).collect();
        Ok(json!({"locations": all}))
    }

    /// Returns the request, as one about the replications of the volume that the path names.
    fn of_volume(&self) -> ApiResult<replications::ReplicationRequest<'_>> {
        self.replications_of(self.volume(Surface::Netapp)?)
    }

    fn replications_of(
        &self,
        volume: VolumeName,
    ) -> ApiResult<replications::ReplicationRequest<'_>> {
        Ok(replications::ReplicationRequest {
            app: self.app,
            actor: self.actor.clone(),
            volume,
            enums: self.enums,
            language: self.language,
            at: self.at,
            only: self.query.flag(VALIDATE_ONLY)?,
        })
    }

    async fn replications(&self) -> ApiResult<Value> {
        let q = self.list_query(&na::REPLICATION)?;
        let mut all: Vec<(String, Object)> = Vec::new();
        for object in self.of_volume()?.list_replications().await? {
            let name = object.get("name").and_then(Value::as_str);
            all.push((name.unwrap_or_default().to_owned(), object));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let after = q.after().unwrap_or_default().to_owned();
        let rest = all.into_iter().filter(|(name, _)| *name > after);
        let (items, next) = objects(q.page(rest, |(name, _)| name.as_str(), |(_, o)| o.clone()));
        let items = items
            .iter()
            .map(|o| encode(&na::REPLICATION, o, self.enums));
        Ok(listed("replications", items.collect(), next))
    }

    async fn ontap(self) -> ApiResult<Value> {
        let pool = self.name()?;
        if self.app.control().view().pool(&pool).is_none() {
            let name = Target::Pool(pool).to_string();
            return Err(ApiError::not_found(&name));
        }
        let path = self.part(3).to_owned();
        let rest = path.strip_prefix("api/").unwrap_or_default();
        // The response of ONTAP's interface is wrapped in an envelope of its own.
        let (verb, node) = (Some(self.route.verb), self.at.nfs.ip());
        let mut call = ontap_call(verb, rest, self.query, &self.body, node)?;
        if let Some(body) = call.body.as_object_mut().and_then(|o| o.remove("body")) {
            call.body = body;
        }
        call.query
            .retain(|(name, _)| !name.trim_start_matches('$').starts_with("alt"));
        // Google has `fields` for itself; this API's clients rename ONTAP's.
        for (name, _) in call.query.iter_mut().filter(|(n, _)| n == "ontap_fields") {
            "fields".clone_into(name);
        }
        let reply = ontap(self.app, self.actor, call, |reply| reply).await?;
        if reply.status < 300 {
            return Ok(json!({"body": reply.body}));
        }
        let said = |name: &str| {
            let error = reply.body.get("error").and_then(|e| e.get(name));
            error.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let status = match reply.status {
            403 => Status::PermissionDenied,
            404 => Status::NotFound,
            409 => Status::FailedPrecondition,
            500.. => Status::Internal,
            _ => Status::InvalidArgument,
        };
        let mut e = ApiError::new(status, "ONTAP_REFUSED", said("message"));
        e.metadata.push(("ontapCode".to_owned(), said("code")));
        // Clients read ONTAP's code and status as if they spoke to ONTAP.
        e.shown_code = said("code").parse().ok();
        e.http = Some(reply.status);
        Err(e)
    }
}

fn objects<T>(page: Page<T>) -> (Vec<Object>, String) {
    let items = page.items.into_iter().map(|(_, o)| o).collect();
    (items, page.next)
}

/// Returns a response to a list; empty parts are left out, as the JSON mapping does.
fn listed(collection: &str, items: Vec<Value>, next: String) -> Value {
    let mut out = Object::new();
    if !items.is_empty() {
        out.insert(collection.to_owned(), Value::Array(items));
    }
    if !next.is_empty() {
        out.insert("nextPageToken".to_owned(), Value::String(next));
    }
    Value::Object(out)
}

fn location(project: &str, id: &str) -> Value {
    json!({"name": format!("projects/{project}/locations/{id}"), "locationId": id})
}

/// Returns a name as text that sorts as names do: part by part. In the full name, a `-` within a
/// location would sort before the `/` behind a shorter one.
fn key(place: &LocationName, id: &str) -> String {
    format!("{}\0{}\0{id}", place.project, place.location)
}

fn keyed(volume: &Arc<Volume>) -> (String, &Arc<Volume>) {
    (key(&volume.name.place, &volume.name.id), volume)
}

fn from_key(key: &str) -> Option<Name> {
    let mut parts = key.split('\0');
    let place = LocationName::new(parts.next()?, parts.next()?);
    Some(place.name(parts.next()?))
}

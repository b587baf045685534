//! The requests that the server accepts: one table, from which requests are dispatched and the
//! OpenAPI documents are made.
//!
//! A custom verb is written behind a colon in the last part of a path (AIP-136), where routers that
//! match whole segments cannot see it. Both APIs share locations and operations. So the table is
//! matched here, a few dozen rows one after the other, which costs less than reading the request's
//! headers did.

use crate::schema::{Message, filestore, netapp};
use crate::words::LANGUAGE;
use weir_base::percent;
use weir_control::Surface;

/// HTTP methods that the APIs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads; HEAD is treated alike.
    Get,
    /// Make, or a custom verb.
    Post,
    /// Changes the fields of a resource.
    Patch,
    /// Deletes a resource or a record.
    Delete,
}

impl Verb {
    /// Returns the verb of an HTTP method.
    pub fn from_method(method: &axum::http::Method) -> Option<Verb> {
        match method.as_str() {
            // A reply to HEAD is one to GET without its body, which the listener leaves out.
            "GET" | "HEAD" => Some(Verb::Get),
            "POST" => Some(Verb::Post),
            "PATCH" => Some(Verb::Patch),
            "DELETE" => Some(Verb::Delete),
            _ => None,
        }
    }
}

/// Custom methods of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationMethod {
    /// Break: the destination becomes writable.
    Stop,
    /// Resync: the destination becomes a copy again.
    Resume,
    /// The destination becomes the source.
    Reverse,
    /// A transfer begins at once.
    Sync,
    /// The node of the source is offered pairing.
    EstablishPeering,
}

/// API whose documents a row belongs to; its errors carry that API's domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Google Cloud NetApp Volumes (`netapp.googleapis.com`).
    Netapp,
    /// Google Cloud Filestore (`file.googleapis.com`).
    Filestore,
    /// Both: locations and operations.
    Both,
    /// Weir's own: what no public API has.
    Own,
}

/// Resources with the standard methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A storage pool: `storagePools/*`.
    Pool,
    /// A NetApp volume: `volumes/*`.
    Volume,
    /// A volume's snapshot: `volumes/*/snapshots/*`.
    VolumeSnapshot,
    /// A volume's quota rule: `volumes/*/quotaRules/*`.
    QuotaRule,
    /// A Filestore instance: `instances/*`.
    Instance,
    /// An instance's snapshot: `instances/*/snapshots/*`.
    InstanceSnapshot,
    /// A backup of an instance: `backups/*`.
    InstanceBackup,
    /// A domain of Active Directory: `activeDirectories/*`.
    ActiveDirectory,
    /// A vault of backups: `backupVaults/*`.
    BackupVault,
    /// A backup: `backupVaults/*/backups/*`.
    Backup,
    /// A policy of backups: `backupPolicies/*`.
    BackupPolicy,
}

impl Kind {
    /// Returns the message that describes it on the wire.
    pub fn message(self) -> &'static Message {
        match self {
            Kind::Pool => &netapp::STORAGE_POOL,
            Kind::Volume => &netapp::VOLUME,
            Kind::VolumeSnapshot => &netapp::SNAPSHOT,
            Kind::QuotaRule => &netapp::QUOTA_RULE,
            Kind::Instance => &filestore::INSTANCE,
            Kind::InstanceSnapshot => &filestore::SNAPSHOT,
            Kind::InstanceBackup => &filestore::BACKUP,
            Kind::ActiveDirectory => &netapp::ACTIVE_DIRECTORY,
            Kind::BackupVault => &netapp::BACKUP_VAULT,
            Kind::Backup => &netapp::BACKUP,
            Kind::BackupPolicy => &netapp::BACKUP_POLICY,
        }
    }

    /// Returns the parameter that names a new one.
    pub fn id_parameter(self) -> &'static str {
        match self {
            Kind::Pool => "storagePoolId",
            Kind::Volume => "volumeId",
            Kind::Instance => "instanceId",
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => "snapshotId",
            Kind::QuotaRule => "quotaRuleId",
            Kind::ActiveDirectory => "activeDirectoryId",
            Kind::BackupVault => "backupVaultId",
            Kind::Backup | Kind::InstanceBackup => "backupId",
            Kind::BackupPolicy => "backupPolicyId",
        }
    }

    /// Returns the API that has it.
    pub fn surface(self) -> Surface {
        match self {
            Kind::Pool
            | Kind::Volume
            | Kind::VolumeSnapshot
            | Kind::QuotaRule
            | Kind::ActiveDirectory
            | Kind::BackupVault
            | Kind::Backup
            | Kind::BackupPolicy => Surface::Netapp,
            Kind::Instance | Kind::InstanceSnapshot | Kind::InstanceBackup => Surface::Filestore,
        }
    }

    /// Returns the collection, as a list's response names it.
    pub fn collection(self) -> &'static str {
        match self {
            Kind::Pool => "storagePools",
            Kind::Volume => "volumes",
            Kind::Instance => "instances",
            Kind::VolumeSnapshot | Kind::InstanceSnapshot => "snapshots",
            Kind::QuotaRule => "quotaRules",
            Kind::ActiveDirectory => "activeDirectories",
            Kind::BackupVault => "backupVaults",
            Kind::Backup | Kind::InstanceBackup => "backups",
            Kind::BackupPolicy => "backupPolicies",
        }
    }
}

/// Action that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A page of a collection.
    List(Kind),
    /// One resource, by its name.
    Get(Kind),
    /// Creates a resource; returns an operation.
    Create(Kind),
    /// Changes a resource under a mask; returns an operation.
    Update(Kind),
    /// Deletes a resource; returns an operation.
    Delete(Kind),
    /// POST of `storagePools/*:switch`: returns an operation.
    SwitchPool,
    /// POST of `volumes/*:revert`, `instances/*:revert`.
    Revert(Kind),
    /// POST of `volumes/*:restore`: files of a backup; returns an operation.
    RestoreBackupFiles,
    /// POST of `volumes/*:startSplit`: returns an operation.
    StartSplit,
    /// GET of `volumes/*:getSplitStatus`: the state of a split.
    SplitStatus,
    /// GET of `volumes/*:findFile`, `instances/*:findFile`: the versions of a path.
    FindFile(Kind),
    /// POST of `volumes/*:restoreFile`, `instances/*:restoreFile`.
    RestoreFile(Kind),
    /// GET of `…/snapshots/*:download`: a file's content.
    Download(Kind),
    /// POST of `volumes/*/snapshots/*:rename`, `instances/*/snapshots/*:rename`.
    Rename(Kind),
    /// GET of `locations`: the list.
    ListLocations,
    /// GET of `locations/*`: one location.
    GetLocation,
    /// GET of `operations`: a page of them.
    ListOperations,
    /// GET of `operations/*`: what clients poll.
    GetOperation,
    /// DELETE of `operations/*`: the record only.
    DeleteOperation,
    /// POST of `operations/*:cancel`; accepted without effect.
    CancelOperation,
    /// GET of a volume's `replications`.
    ListReplications,
    /// GET of one of `replications/*`.
    GetReplication,
    /// Creates a replication of a volume.
    CreateReplication,
    /// A change of one.
    UpdateReplication,
    /// Deletes a replication; its volumes stay.
    DeleteReplication,
    /// `replications/*:stop` and its like.
    Replication(ReplicationMethod),
    /// `storagePools/*/ontap/**`: passed to ONTAP's interface.
    Ontap,
    /// A collection that the API has and this server does not: empty.
    EmptyList(&'static str),
    /// One of such a collection: not found.
    Missing,
    /// Known to the API, absent here.
    Unimplemented(&'static str, &'static str),
    /// Lists the tokens, without their secrets.
    ListTokens,
    /// Creates a token; the response holds its secret.
    CreateToken,
    /// Revokes a token, by its id.
    DeleteToken,
    /// A page of the audit log.
    ListAudit,
    /// A stream of rows by the second.
    Live,
    /// Rows of the last minutes or of the last day.
    History,
    /// Histograms of latencies over the last minutes or the last day.
    Latency,
    /// Changes of a volume's limit, and who made them.
    LimitChanges,
    /// A list of what holds or is wrong, with a sentence that sums it up.
    Conditions,
    /// The answer of a page of the console, in a sentence.
    Headline,
    /// A description of the pair.
    Pair,
    /// POST of `pair:switch`: the partner serves from now on.
    SwitchPair,
    /// A description of the server.
    Server,
    /// Runs of benchmarks, the newest first.
    ListBenchmarks,
    /// One of them, with its tables.
    GetBenchmark,
    /// GET of `benchmarks/*:report`: its page.
    BenchmarkReport,
}

/// Parameter of changes that are to be checked and described, but not made (AIP-163).
pub const VALIDATE_ONLY: &str = "validateOnly";

/// A row of the table.
#[derive(Debug)]
pub struct Route {
    /// The HTTP method that the row matches.
    pub verb: Verb,
    /// The path behind the version; `*` is one part, `**` any number of them.
    pub path: &'static str,
    /// Action that it asks for.
    pub action: Action,
    /// The API whose documents and error domain it belongs to.
    pub api: Api,
}

impl Route {
    /// Returns the parameters of the query.
    pub fn parameters(&self) -> &'static [&'static str] {
        match self.action {
            Action::List(_) | Action::ListReplications | Action::EmptyList(_) => &[
                "pageSize",
                "pageToken",
                "filter",
                "orderBy",
                "returnPartialSuccess",
            ],
            Action::ListOperations => &["pageSize", "pageToken", "filter", "returnPartialSuccess"],
            Action::ListLocations => &["pageSize", "pageToken", "filter", "extraLocationTypes"],
            Action::ListAudit => &["pageSize", "pageToken"],
            Action::Create(k) => match k {
                Kind::Pool => &["storagePoolId", VALIDATE_ONLY],
                Kind::Volume => &["volumeId", VALIDATE_ONLY],
                Kind::Instance => &["instanceId", VALIDATE_ONLY],
                Kind::VolumeSnapshot | Kind::InstanceSnapshot => &["snapshotId", VALIDATE_ONLY],
                Kind::QuotaRule => &["quotaRuleId", VALIDATE_ONLY],
                Kind::ActiveDirectory => &["activeDirectoryId", VALIDATE_ONLY],
                Kind::BackupVault => &["backupVaultId", VALIDATE_ONLY],
                Kind::Backup | Kind::InstanceBackup => &["backupId", VALIDATE_ONLY],
                Kind::BackupPolicy => &["backupPolicyId", VALIDATE_ONLY],
            },
            Action::FindFile(_) | Action::Download(_) => &["path", "pathBytes"],
            Action::CreateToken => &["tokenId", VALIDATE_ONLY],
            Action::Live => &["rows", LANGUAGE],
            Action::Conditions | Action::Pair => &[LANGUAGE],
            Action::Headline => &["page", "volume", LANGUAGE],
            Action::History => &["volume", "pool", "client", "window"],
            Action::Latency => &["volume", "pool", "window", LANGUAGE],
            Action::LimitChanges => &["volume", "pool", "window"],
            Action::CreateReplication => &["replicationId", VALIDATE_ONLY],
            Action::Update(_) | Action::UpdateReplication => &["updateMask", VALIDATE_ONLY],
            // An offer of pairing is another node's to take; it has no dry run.
            Action::Replication(ReplicationMethod::EstablishPeering) => &[],
            Action::Delete(Kind::Volume | Kind::Instance) => &["force", VALIDATE_ONLY],
            Action::Delete(_)
            | Action::SwitchPool
            | Action::SwitchPair
            | Action::Revert(_)
            | Action::StartSplit
            | Action::Rename(_)
            | Action::RestoreFile(_)
            | Action::RestoreBackupFiles
            | Action::DeleteReplication
            | Action::Replication(_)
            | Action::DeleteToken => &[VALIDATE_ONLY],
            _ => &[],
        }
    }

    /// Returns true if the body is read.
    pub fn has_body(&self) -> bool {
        matches!(self.verb, Verb::Post | Verb::Patch)
    }
}

macro_rules! routes {
    ($($verb:ident $api:ident $path:literal => $action:expr;)*) => {
        &[$(Route { verb: Verb::$verb, path: $path, action: $action, api: Api::$api }),*]
    };
}

/// The rows; the first that matches is used.
pub static ROUTES: &[Route] = routes! {
    Get Both "projects/*/locations" => Action::ListLocations;
    Get Both "projects/*/locations/*" => Action::GetLocation;
    Get Both "projects/*/locations/*/operations" => Action::ListOperations;
    Get Both "projects/*/locations/*/operations/*" => Action::GetOperation;
    Delete Both "projects/*/locations/*/operations/*" => Action::DeleteOperation;
    Post Both "projects/*/locations/*/operations/*:cancel" => Action::CancelOperation;

    Get Netapp "projects/*/locations/*/storagePools" => Action::List(Kind::Pool);
    Post Netapp "projects/*/locations/*/storagePools" => Action::Create(Kind::Pool);
    Get Netapp "projects/*/locations/*/storagePools/*" => Action::Get(Kind::Pool);
    Patch Netapp "projects/*/locations/*/storagePools/*" => Action::Update(Kind::Pool);
    Delete Netapp "projects/*/locations/*/storagePools/*" => Action::Delete(Kind::Pool);
    Post Netapp "projects/*/locations/*/storagePools/*:switch" => Action::SwitchPool;
    Post Netapp "projects/*/locations/*/storagePools/*:validateDirectoryService" => Action::Unimplemented("Directory service", "Users and groups are those that NFS clients send");
    Get Netapp "projects/*/locations/*/storagePools/*/ontap/**" => Action::Ontap;
    Post Netapp "projects/*/locations/*/storagePools/*/ontap/**" => Action::Ontap;
    Patch Netapp "projects/*/locations/*/storagePools/*/ontap/**" => Action::Ontap;
    Delete Netapp "projects/*/locations/*/storagePools/*/ontap/**" => Action::Ontap;

    Get Netapp "projects/*/locations/*/volumes" => Action::List(Kind::Volume);
    Post Netapp "projects/*/locations/*/volumes" => Action::Create(Kind::Volume);
    Get Netapp "projects/*/locations/*/volumes/*" => Action::Get(Kind::Volume);
    Patch Netapp "projects/*/locations/*/volumes/*" => Action::Update(Kind::Volume);
    Delete Netapp "projects/*/locations/*/volumes/*" => Action::Delete(Kind::Volume);
    Post Netapp "projects/*/locations/*/volumes/*:revert" => Action::Revert(Kind::Volume);
    Post Netapp "projects/*/locations/*/volumes/*:startSplit" => Action::StartSplit;
    Get Netapp "projects/*/locations/*/volumes/*:getSplitStatus" => Action::SplitStatus;
    Post Netapp "projects/*/locations/*/volumes/*:restore" => Action::RestoreBackupFiles;
    Post Netapp "projects/*/locations/*/volumes/*:establishPeering" => Action::Unimplemented("A cache of another cluster's volume", "Replicate the volume (hybridReplicationParameters)");

    Get Netapp "projects/*/locations/*/volumes/*/snapshots" => Action::List(Kind::VolumeSnapshot);
    Post Netapp "projects/*/locations/*/volumes/*/snapshots" => Action::Create(Kind::VolumeSnapshot);
    Get Netapp "projects/*/locations/*/volumes/*/snapshots/*" => Action::Get(Kind::VolumeSnapshot);
    Patch Netapp "projects/*/locations/*/volumes/*/snapshots/*" => Action::Update(Kind::VolumeSnapshot);
    Delete Netapp "projects/*/locations/*/volumes/*/snapshots/*" => Action::Delete(Kind::VolumeSnapshot);

    Get Netapp "projects/*/locations/*/volumes/*/replications" => Action::ListReplications;
    Post Netapp "projects/*/locations/*/volumes/*/replications" => Action::CreateReplication;
    Get Netapp "projects/*/locations/*/volumes/*/replications/*" => Action::GetReplication;
    Patch Netapp "projects/*/locations/*/volumes/*/replications/*" => Action::UpdateReplication;
    Delete Netapp "projects/*/locations/*/volumes/*/replications/*" => Action::DeleteReplication;
    Post Netapp "projects/*/locations/*/volumes/*/replications/*:stop" => Action::Replication(ReplicationMethod::Stop);
    Post Netapp "projects/*/locations/*/volumes/*/replications/*:resume" => Action::Replication(ReplicationMethod::Resume);
    Post Netapp "projects/*/locations/*/volumes/*/replications/*:reverseDirection" => Action::Replication(ReplicationMethod::Reverse);
    Post Netapp "projects/*/locations/*/volumes/*/replications/*:sync" => Action::Replication(ReplicationMethod::Sync);
    Post Netapp "projects/*/locations/*/volumes/*/replications/*:establishPeering" => Action::Replication(ReplicationMethod::EstablishPeering);

    Get Netapp "projects/*/locations/*/activeDirectories" => Action::List(Kind::ActiveDirectory);
    Post Netapp "projects/*/locations/*/activeDirectories" => Action::Create(Kind::ActiveDirectory);
    Get Netapp "projects/*/locations/*/activeDirectories/*" => Action::Get(Kind::ActiveDirectory);
    Patch Netapp "projects/*/locations/*/activeDirectories/*" => Action::Update(Kind::ActiveDirectory);
    Delete Netapp "projects/*/locations/*/activeDirectories/*" => Action::Delete(Kind::ActiveDirectory);

    Get Netapp "projects/*/locations/*/volumes/*/quotaRules" => Action::List(Kind::QuotaRule);
    Post Netapp "projects/*/locations/*/volumes/*/quotaRules" => Action::Create(Kind::QuotaRule);
    Get Netapp "projects/*/locations/*/volumes/*/quotaRules/*" => Action::Get(Kind::QuotaRule);
    Patch Netapp "projects/*/locations/*/volumes/*/quotaRules/*" => Action::Update(Kind::QuotaRule);
    Delete Netapp "projects/*/locations/*/volumes/*/quotaRules/*" => Action::Delete(Kind::QuotaRule);

    Get Netapp "projects/*/locations/*/kmsConfigs" => Action::EmptyList("kmsConfigs");
    Get Netapp "projects/*/locations/*/backupVaults" => Action::List(Kind::BackupVault);
    Post Netapp "projects/*/locations/*/backupVaults" => Action::Create(Kind::BackupVault);
    Get Netapp "projects/*/locations/*/backupVaults/*" => Action::Get(Kind::BackupVault);
    Patch Netapp "projects/*/locations/*/backupVaults/*" => Action::Update(Kind::BackupVault);
    Delete Netapp "projects/*/locations/*/backupVaults/*" => Action::Delete(Kind::BackupVault);
    Get Netapp "projects/*/locations/*/backupVaults/*/backups" => Action::List(Kind::Backup);
    Post Netapp "projects/*/locations/*/backupVaults/*/backups" => Action::Create(Kind::Backup);
    Get Netapp "projects/*/locations/*/backupVaults/*/backups/*" => Action::Get(Kind::Backup);
    Patch Netapp "projects/*/locations/*/backupVaults/*/backups/*" => Action::Update(Kind::Backup);
    Delete Netapp "projects/*/locations/*/backupVaults/*/backups/*" => Action::Delete(Kind::Backup);
    Get Netapp "projects/*/locations/*/backupPolicies" => Action::List(Kind::BackupPolicy);
    Post Netapp "projects/*/locations/*/backupPolicies" => Action::Create(Kind::BackupPolicy);
    Get Netapp "projects/*/locations/*/backupPolicies/*" => Action::Get(Kind::BackupPolicy);
    Patch Netapp "projects/*/locations/*/backupPolicies/*" => Action::Update(Kind::BackupPolicy);
    Delete Netapp "projects/*/locations/*/backupPolicies/*" => Action::Delete(Kind::BackupPolicy);
    Get Netapp "projects/*/locations/*/hostGroups" => Action::EmptyList("hostGroups");
    Get Netapp "projects/*/locations/*/kmsConfigs/*" => Action::Missing;
    Get Netapp "projects/*/locations/*/hostGroups/*" => Action::Missing;
    Patch Netapp "projects/*/locations/*/kmsConfigs/*" => Action::Missing;
    Patch Netapp "projects/*/locations/*/hostGroups/*" => Action::Missing;
    Delete Netapp "projects/*/locations/*/kmsConfigs/*" => Action::Missing;
    Delete Netapp "projects/*/locations/*/hostGroups/*" => Action::Missing;
    Post Netapp "projects/*/locations/*/kmsConfigs/*:encrypt" => Action::Unimplemented("Key management", "Encrypt the disk below the data folder (LUKS)");
    Post Netapp "projects/*/locations/*/kmsConfigs/*:verify" => Action::Unimplemented("Key management", "Encrypt the disk below the data folder (LUKS)");
    Post Netapp "projects/*/locations/*/kmsConfigs" => Action::Unimplemented("Key management", "Encrypt the disk below the data folder (LUKS)");
    Post Netapp "projects/*/locations/*/hostGroups" => Action::Unimplemented("A host group", "Name the clients in the volume's export policy");

    Get Filestore "projects/*/locations/*/instances" => Action::List(Kind::Instance);
    Post Filestore "projects/*/locations/*/instances" => Action::Create(Kind::Instance);
    Get Filestore "projects/*/locations/*/instances/*" => Action::Get(Kind::Instance);
    Patch Filestore "projects/*/locations/*/instances/*" => Action::Update(Kind::Instance);
    Delete Filestore "projects/*/locations/*/instances/*" => Action::Delete(Kind::Instance);
    Post Filestore "projects/*/locations/*/instances/*:revert" => Action::Revert(Kind::Instance);
    Post Filestore "projects/*/locations/*/instances/*:restore" => Action::Unimplemented("Restoring a backup into an instance that exists", "Make an instance from it (fileShares[0].sourceBackup), or use `:revert` to a snapshot");
    Post Filestore "projects/*/locations/*/instances/*:promoteReplica" => Action::Unimplemented("Replication of instances", "Replicate volumes (…/replications)");
    Get Filestore "projects/*/locations/*/instances/*/snapshots" => Action::List(Kind::InstanceSnapshot);
    Post Filestore "projects/*/locations/*/instances/*/snapshots" => Action::Create(Kind::InstanceSnapshot);
    Get Filestore "projects/*/locations/*/instances/*/snapshots/*" => Action::Get(Kind::InstanceSnapshot);
    Patch Filestore "projects/*/locations/*/instances/*/snapshots/*" => Action::Update(Kind::InstanceSnapshot);
    Delete Filestore "projects/*/locations/*/instances/*/snapshots/*" => Action::Delete(Kind::InstanceSnapshot);
    Get Filestore "projects/*/locations/*/backups" => Action::List(Kind::InstanceBackup);
    Post Filestore "projects/*/locations/*/backups" => Action::Create(Kind::InstanceBackup);
    Get Filestore "projects/*/locations/*/backups/*" => Action::Get(Kind::InstanceBackup);
    Patch Filestore "projects/*/locations/*/backups/*" => Action::Update(Kind::InstanceBackup);
    Delete Filestore "projects/*/locations/*/backups/*" => Action::Delete(Kind::InstanceBackup);

    Post Own "projects/*/locations/*/volumes/*/snapshots/*:rename" => Action::Rename(Kind::VolumeSnapshot);
    Post Own "projects/*/locations/*/instances/*/snapshots/*:rename" => Action::Rename(Kind::InstanceSnapshot);
    Get Own "projects/*/locations/*/volumes/*:findFile" => Action::FindFile(Kind::Volume);
    Get Own "projects/*/locations/*/instances/*:findFile" => Action::FindFile(Kind::Instance);
    Post Own "projects/*/locations/*/volumes/*:restoreFile" => Action::RestoreFile(Kind::Volume);
    Post Own "projects/*/locations/*/instances/*:restoreFile" => Action::RestoreFile(Kind::Instance);
    Get Own "projects/*/locations/*/volumes/*/snapshots/*:download" => Action::Download(Kind::VolumeSnapshot);
    Get Own "projects/*/locations/*/instances/*/snapshots/*:download" => Action::Download(Kind::InstanceSnapshot);
    Get Own "tokens" => Action::ListTokens;
    Post Own "tokens" => Action::CreateToken;
    Delete Own "tokens/*" => Action::DeleteToken;
    Get Own "auditEntries" => Action::ListAudit;
    Get Own "live" => Action::Live;
    Get Own "history" => Action::History;
    Get Own "latency" => Action::Latency;
    Get Own "limitChanges" => Action::LimitChanges;
    Get Own "conditions" => Action::Conditions;
    Get Own "headline" => Action::Headline;
    Get Own "pair" => Action::Pair;
    Post Own "pair:switch" => Action::SwitchPair;
    Get Own "server" => Action::Server;
    Get Own "benchmarks" => Action::ListBenchmarks;
    Get Own "benchmarks/*:report" => Action::BenchmarkReport;
    Get Own "benchmarks/*" => Action::GetBenchmark;
};

/// A request's path, found in the table.
#[derive(Debug)]
pub struct RouteMatch {
    /// The row that matched the path.
    pub route: &'static Route,
    /// The parts that the stars matched, in order; what `**` matched is one of them, with its
    /// slashes.
    pub parts: Vec<String>,
}

/// Reason why a path is not in the table.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Nothing has this path.
    NoPath,
    /// Something has, with another method.
    NoMethod,
    /// The path cannot be one.
    Broken,
}

/// Returns which of the two APIs a client means, and the path without the prefix.
///
/// If their paths are the same (locations, operations), the API follows from the request. It may
/// have a prefix of the endpoint that the client was configured with, or a version that only one
/// API has, or the command that gcloud says it runs, or be one of the Filestore CSI driver. The
/// second value is true if the API follows from the prefix.
pub fn surface<'p>(path: &'p str, agent: &str) -> (Option<Surface>, bool, &'p str) {
    for (prefix, surface) in [("/netapp", Surface::Netapp), ("/file", Surface::Filestore)] {
        if let Some(rest) = path.strip_prefix(prefix).filter(|r| r.starts_with('/')) {
            return (Some(surface), true, rest);
        }
    }
    let driver = agent.contains("Google Cloud Filestore CSI Driver/");
    let surface = if path.starts_with("/v1p1alpha1/") || driver || gcloud(agent, "filestore") {
        Some(Surface::Filestore)
    } else if path.starts_with("/v1alpha1/") || gcloud(agent, "netapp") {
        Some(Surface::Netapp)
    } else {
        None
    };
    (surface, false, path)
}

/// Returns true if a user agent is gcloud's, with a command of this group in whatever release
/// track.
fn gcloud(agent: &str, group: &str) -> bool {
    let words = agent.split_once("command/gcloud.").map(|(_, rest)| rest);
    let mut words = words.unwrap_or_default().split('.');
    words.find(|word| !["alpha", "beta"].contains(word)) == Some(group)
}

/// API versions that are treated alike; each client library and gcloud's tracks have their own.
const VERSIONS: &[&str] = &["v1", "v1beta1", "v1alpha1", "v1p1alpha1"];

/// Finds the row for a path such as `/v1/projects/p/locations/l/volumes/v:revert`.
///
/// # Errors
/// See [`NoRoute`].
pub fn find(verb: Option<Verb>, path: &str) -> Result<RouteMatch, NoRoute> {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let (version, rest) = rest.split_once('/').ok_or(NoRoute::NoPath)?;
    if !VERSIONS.contains(&version) {
        return Err(NoRoute::NoPath);
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let segments: Vec<String> = rest
        .split('/')
        .map(percent::unescape)
        .collect::<Option<_>>()
        .ok_or(NoRoute::Broken)?;
    let mut other_method = false;
    for route in ROUTES {
        if let Some(parts) = captures(route.path, &segments) {
            if Some(route.verb) == verb {
                return Ok(RouteMatch { route, parts });
            }
            other_method = true;
        }
    }
    Err(if other_method {
        NoRoute::NoMethod
    } else {
        NoRoute::NoPath
    })
}

fn captures(pattern: &str, segments: &[String]) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = segments;
    for p in pattern.split('/') {
        if p == "**" {
            parts.push(rest.join("/"));
            return Some(parts);
        }
        let (first, tail) = rest.split_first()?;
        rest = tail;
        let verb = |s: &str| s.split_once(':').map(|(_, v)| v.to_owned());
        match (p.strip_prefix('*'), verb(first)) {
            (None, _) if p == first => {}
            // A project of a domain is `example.com:name`; anywhere else a colon begins a verb.
            (Some(""), None) => parts.push(first.clone()),
            (Some(""), Some(_)) if parts.is_empty() => parts.push(first.clone()),
            (Some(wanted), Some(v)) if wanted.strip_prefix(':') == Some(v.as_str()) => {
                parts.push(first.split(':').next().unwrap_or_default().to_owned());
            }
            _ => return None,
        }
    }
    (rest.is_empty() && parts.iter().all(|p| !p.is_empty())).then_some(parts)
}

/// Returns the full name that a path of the table refers to, without version and verb.
pub fn name_of(route: &Route, parts: &[String]) -> String {
    let mut parts = parts.iter();
    let mut out = String::new();
    for p in route.path.split('/') {
        if !out.is_empty() {
            out.push('/');
        }
        if p.starts_with('*') {
            out.push_str(parts.next().map_or("", String::as_str));
        } else {
            out.push_str(p);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_which_api_it_means() {
        use Surface::{Filestore, Netapp};
        let p = "/v1/projects/p/locations/l/operations";
        for (path, agent, expected) in [
            ("/netapp/v1/x", "", (Some(Netapp), true, "/v1/x")),
            (
                "/file/v1/x",
                "command/gcloud.netapp.x",
                (Some(Filestore), true, "/v1/x"),
            ),
            ("/files/v1/x", "", (None, false, "/files/v1/x")),
            ("/file", "", (None, false, "/file")),
            ("/v1alpha1/x", "", (Some(Netapp), false, "/v1alpha1/x")),
            (
                "/v1p1alpha1/x",
                "",
                (Some(Filestore), false, "/v1p1alpha1/x"),
            ),
            (
                p,
                "google-cloud-sdk gcloud/560.0.0 command/gcloud.filestore.operations.list x",
                (Some(Filestore), false, p),
            ),
            (
                p,
                "google-api-go-client/0.5 Google Cloud Filestore CSI Driver/v1 (linux amd64)",
                (Some(Filestore), false, p),
            ),
            (
                p,
                "google-cloud-sdk gcloud/560.0.0 command/gcloud.beta.x",
                (None, false, p),
            ),
            (
                p,
                "command/gcloud.beta.netapp.operations.list",
                (Some(Netapp), false, p),
            ),
            (p, "Terraform/1.9", (None, false, p)),
        ] {
            assert_eq!(surface(path, agent), expected, "{path} {agent}");
        }
    }

    #[test]
    fn paths_of_all_versions_are_found() {
        for version in VERSIONS {
            let m = find(
                Some(Verb::Post),
                &format!("/{version}/projects/p-1/locations/us-central1/volumes/v1:revert"),
            )
            .unwrap();
            assert_eq!(m.route.action, Action::Revert(Kind::Volume));
            assert_eq!(m.parts, ["p-1", "us-central1", "v1"]);
            assert_eq!(
                name_of(m.route, &m.parts),
                "projects/p-1/locations/us-central1/volumes/v1"
            );
        }
        let m = find(
            Some(Verb::Get),
            "/v1/projects/example.com:p/locations/-/instances",
        )
        .unwrap();
        assert_eq!(m.parts, ["example.com:p", "-"]);
        let m = find(
            Some(Verb::Post),
            "/v1/projects/p/locations/l/storagePools/mq/ontap/api/private/cli",
        )
        .unwrap();
        assert_eq!(m.route.action, Action::Ontap);
        assert_eq!(m.parts, ["p", "l", "mq", "api/private/cli"]);
        let m = find(Some(Verb::Get), "/v1/projects/p/locations/l/volumes/a%20b").unwrap();
        assert_eq!(m.parts, ["p", "l", "a b"]);
    }

    #[test]
    fn other_paths_are_not() {
        for (verb, path, why) in [
            (Verb::Get, "/", NoRoute::NoPath),
            (Verb::Get, "", NoRoute::NoPath),
            (
                Verb::Get,
                "/v2/projects/p/locations/l/volumes",
                NoRoute::NoPath,
            ),
            (
                Verb::Get,
                "/v1/projects/p/locations/l/nothing",
                NoRoute::NoPath,
            ),
            (
                Verb::Get,
                "/v1/projects//locations/l/volumes",
                NoRoute::NoPath,
            ),
            (
                Verb::Get,
                "/v1/projects/p/locations/l/volumes/v/x/y",
                NoRoute::NoPath,
            ),
            (
                Verb::Post,
                "/v1/projects/p/locations/l/volumes/v:explode",
                NoRoute::NoPath,
            ),
            (
                Verb::Post,
                "/v1/projects/p/locations/l/volumes/:revert",
                NoRoute::NoPath,
            ),
            (
                Verb::Patch,
                "/v1/projects/p/locations/l/volumes",
                NoRoute::NoMethod,
            ),
            (
                Verb::Get,
                "/v1/projects/p/locations/l/volumes/%ff",
                NoRoute::Broken,
            ),
        ] {
            assert_eq!(find(Some(verb), path).unwrap_err(), why, "{path}");
        }
    }

    #[test]
    fn every_row_is_reached_by_its_own_path() {
        for route in ROUTES {
            let path = route.path.replace("**", "a/b").replace('*', "x");
            let m = find(Some(route.verb), &format!("/v1/{path}")).unwrap();
            assert!(std::ptr::eq(m.route, route), "{route:?}");
            assert!(
                route.path.starts_with("projects/*/locations/*")
                    || route.api == Api::Own
                    || route.api == Api::Both
            );
        }
    }
}

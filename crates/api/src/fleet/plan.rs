//! Which aggregates a request is about.

use crate::error::{ApiError, ApiResult};
use crate::fields::required;
use crate::json::{Object, decode_body};
use crate::query::Query;
use crate::route::{Action, Kind, RouteMatch};
use crate::schema::Message;
use crate::schema::longrunning::OPERATION;
use serde_json::Value;

/// Label of a new resource that names its aggregate.
pub(super) const LABEL: &str = "weir-aggregate";

/// Label of a new storage pool that says over how many aggregates it goes.
pub(super) const SPANS: &str = "weir-aggregates";

/// Aggregates that a request is about.
pub(super) enum Plan {
    /// All: one list of messages, by the name of its collection.
    List(&'static Message, &'static str),
    /// All: the locations that there are.
    Locations,
    /// The one that has the resource of this name.
    Named(String),
    /// One for a new resource.
    Create(Creation),
    /// Any: the answer is the same.
    Any,
    /// None: tokens are the cluster's own.
    Tokens,
    /// All, and the cluster itself.
    Conditions,
    /// None: a description of the cluster.
    Server,
    /// One that the request does not name.
    PerAggregate,
}

/// A resource that is to be created.
#[derive(Debug, PartialEq)]
pub(super) struct Creation {
    /// Its full name.
    pub name: String,
    /// Its place.
    pub site: Site,
    /// Normal form of the body, if it asks for a large volume.
    pub large: Option<Object>,
    /// Normal form of the body and the number of aggregates, if it asks for a pool that spans them.
    pub spanning: Option<(Object, String)>,
    /// The volume of the snapshot that a new volume begins as.
    pub source: Option<String>,
}

/// Place of a new resource.
#[derive(Debug, PartialEq)]
pub(super) enum Site {
    /// The aggregate of another resource, by the field that names it.
    With(&'static str, String),
    /// The aggregate of this name, which the request names.
    In(String),
    /// The aggregate with the most room.
    Roomiest,
    /// An aggregate that the request has to name, if there are several: other resources of its
    /// aggregate will refer to the new one.
    ToBeNamed,
}

/// Returns the aggregates that a request is about.
///
/// # Errors
/// INVALID_ARGUMENT: the body or the name of a new resource.
pub(super) fn plan_request(matched: &RouteMatch, query: &Query, body: &[u8]) -> ApiResult<Plan> {
    let route = matched.route;
    let below_place = route.path.split('/').count() == 5;
    Ok(match route.action {
        Action::List(kind) if below_place => Plan::List(kind.message(), kind.collection()),
        Action::ListOperations => Plan::List(&OPERATION, "operations"),
        Action::ListLocations => Plan::Locations,
        Action::Create(kind) if below_place => {
            Plan::Create(creation(kind, &matched.parts, query, body)?)
        }
        Action::GetLocation
        | Action::EmptyList(_)
        | Action::Missing
        | Action::Unimplemented(..) => Plan::Any,
        Action::ListTokens | Action::CreateToken | Action::DeleteToken => Plan::Tokens,
        Action::Conditions => Plan::Conditions,
        Action::Server => Plan::Server,
        Action::ListAudit
        | Action::Live
        | Action::History
        | Action::Latency
        | Action::LimitChanges
        | Action::Headline
        | Action::Pair
        | Action::SwitchPair
        | Action::ListBenchmarks
        | Action::GetBenchmark
        | Action::BenchmarkReport => Plan::PerAggregate,
        _ => Plan::Named(owner_of(route.path, &matched.parts)),
    })
}

/// Returns the name of the resource right below a place that a path is about.
fn owner_of(path: &str, parts: &[String]) -> String {
    let collection = path.split('/').nth(4).unwrap_or_default();
    let part = |at: usize| parts.get(at).map_or("", String::as_str);
    full_name(parts, collection, part(2))
}

fn full_name(parts: &[String], collection: &str, id: &str) -> String {
    let part = |at: usize| parts.get(at).map_or("", String::as_str);
    format!(
        "projects/{}/locations/{}/{collection}/{id}",
        part(0),
        part(1)
    )
}

fn creation(kind: Kind, parts: &[String], query: &Query, body: &[u8]) -> ApiResult<Creation> {
    let parameter = kind.id_parameter();
    let id = query.get(parameter).filter(|id| !id.is_empty());
    let id = required(id, parameter)?;
    let body = decode_body(kind.message(), body)?;
    let collection = match kind {
        Kind::InstanceBackup => "backups",
        kind => kind.collection(),
    };
    let labelled = label(&body)?;
    let with = |field: &'static str, of: Option<&str>, collection: &str| {
        let named = required(of, field)?;
        let whole = match named.contains('/') {
            true => named.to_owned(),
            false => full_name(parts, collection, named),
        };
        Ok::<_, Box<ApiError>>(Site::With(field, whole))
    };
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let site = match (kind, labelled) {
        (Kind::Volume, _) => with("storagePool", text("storagePool"), "storagePools")?,
        (Kind::InstanceBackup, _) => with("sourceInstance", text("sourceInstance"), "instances")?,
        (_, Some(aggregate)) => Site::In(aggregate),
        (Kind::Instance, None) => match source_backup(&body) {
            Some(backup) => with("fileShares.sourceBackup", Some(backup), "backups")?,
            None => Site::Roomiest,
        },
        (Kind::Pool, None) => Site::Roomiest,
        _ => Site::ToBeNamed,
    };
    let large = kind == Kind::Volume && body.get("largeCapacity") == Some(&Value::Bool(true));
    let spans = body.get("labels").and_then(|labels| labels.get(SPANS));
    let spans = spans.and_then(Value::as_str).map(str::to_owned);
    Ok(Creation {
        name: full_name(parts, collection, id),
        site,
        source: source_volume(&body),
        spanning: spans
            .filter(|_| kind == Kind::Pool)
            .map(|spans| (body.clone(), spans)),
        large: large.then_some(body),
    })
}

/// Returns the volume of the snapshot that a new volume begins as.
fn source_volume(body: &Object) -> Option<String> {
    let snapshot = body.get("restoreParameters")?.get("sourceSnapshot")?;
    let (volume, _) = snapshot.as_str()?.split_once("/snapshots/")?;
    Some(volume.to_owned())
}

/// Returns the aggregate that a new resource is to be in, as its label says.
fn label(body: &Object) -> ApiResult<Option<String>> {
    let label = body.get("labels").and_then(|labels| labels.get(LABEL));
    let Some(label) = label.and_then(Value::as_str) else {
        return Ok(None);
    };
    match label.is_empty() {
        true => Err(ApiError::field(
            "labels",
            format!("Invalid label '{LABEL}': the name of an aggregate"),
        )),
        false => Ok(Some(label.to_owned())),
    }
}

fn source_backup(body: &Object) -> Option<&str> {
    let shares = body.get("fileShares")?.as_array()?;
    shares.first()?.get("sourceBackup")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Verb, find};

    fn plan_path(verb: Verb, path: &str, query: &str, body: &str) -> ApiResult<Plan> {
        let matched = find(Some(verb), path).unwrap();
        plan_request(&matched, &Query::parse(query).unwrap(), body.as_bytes())
    }

    #[test]
    fn paths_name_the_resource_whose_aggregate_is_asked() {
        let place = "/v1/projects/p/locations/l";
        for (path, owner) in [
            ("volumes/v", "volumes/v"),
            ("volumes/v/snapshots/s", "volumes/v"),
            ("volumes/v/snapshots", "volumes/v"),
            ("volumes/v/replications/r", "volumes/v"),
            ("volumes/v:findFile", "volumes/v"),
            ("instances/i/snapshots/s:download", "instances/i"),
            ("storagePools/q/ontap/api/x", "storagePools/q"),
            ("operations/o", "operations/o"),
            ("backupVaults/b/backups", "backupVaults/b"),
            ("backups/b", "backups/b"),
        ] {
            let Ok(Plan::Named(name)) = plan_path(Verb::Get, &format!("{place}/{path}"), "", "")
            else {
                panic!("{path}");
            };
            assert_eq!(name, format!("projects/p/locations/l/{owner}"), "{path}");
        }
        for path in [
            "volumes",
            "storagePools",
            "instances",
            "operations",
            "backups",
        ] {
            let plan = plan_path(Verb::Get, &format!("{place}/{path}"), "", "");
            assert!(
                matches!(plan, Ok(Plan::List(_, name)) if name == path),
                "{path}"
            );
        }
    }

    #[test]
    fn new_resources_have_their_sites() {
        let place = "/v1/projects/p/locations/l";
        let site = |path: &str, query: &str, body: &str| {
            let plan = plan_path(Verb::Post, &format!("{place}/{path}"), query, body);
            match plan.map_err(|e| e.violations[0].field.clone()) {
                Ok(Plan::Create(creation)) => Ok(creation.site),
                Ok(_) => panic!("{path}"),
                Err(field) => Err(field),
            }
        };
        let with = |field, id: &str| {
            let name = format!("projects/p/locations/l/{id}");
            Ok(Site::With(field, name))
        };
        let pool = |body| site("storagePools", "storagePoolId=q", body);
        assert_eq!(pool("{}"), Ok(Site::Roomiest));
        let labelled = r#"{"labels": {"weir-aggregate": "b"}}"#;
        assert_eq!(pool(labelled), Ok(Site::In("b".to_owned())));
        let empty = r#"{"labels": {"weir-aggregate": ""}}"#;
        assert_eq!(pool(empty), Err("labels".to_owned()));
        assert_eq!(
            site("storagePools", "", "{}"),
            Err("storagePoolId".to_owned())
        );
        let volume = |body| site("volumes", "volumeId=v", body);
        for body in [
            r#"{"storagePool": "q", "labels": {"weir-aggregate": "b"}}"#,
            r#"{"storage_pool": "projects/p/locations/l/storagePools/q"}"#,
        ] {
            assert_eq!(
                volume(body),
                with("storagePool", "storagePools/q"),
                "{body}"
            );
        }
        assert_eq!(volume("{}"), Err("storagePool".to_owned()));
        let vault = site("backupVaults", "backupVaultId=b", "{}");
        assert_eq!(vault, Ok(Site::ToBeNamed));
        assert_eq!(site("instances", "instanceId=i", "{}"), Ok(Site::Roomiest));
        let restored = r#"{"fileShares": [{"sourceBackup": "b"}]}"#;
        assert_eq!(
            site("instances", "instanceId=i", restored),
            with("fileShares.sourceBackup", "backups/b")
        );
        // Snapshots are in their volume's aggregate.
        let plan = plan_path(Verb::Post, &format!("{place}/volumes/v/snapshots"), "", "");
        assert!(matches!(plan, Ok(Plan::Named(name)) if name.ends_with("/volumes/v")));
    }
}

//! ONTAP's REST of a cluster.
//!
//! A list goes through the aggregates one after the other: its pages are those of the servers, and
//! the link to the next one names the aggregate at which to go on. Within an aggregate the order is
//! the one that was asked for. Records that several servers have under one identity (a machine of
//! the same name) are shown once in a page.

use super::owners::Search;
use super::send::{ForwardedRequest, unavailable};
use super::{Fleet, FleetRequest};
use crate::app;
use crate::error::{ApiError, ApiResult};
use crate::gate;
use crate::ontap::Reply;
use crate::query::Query;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use weir_base::limits::api::MAX_PAGE;
use weir_base::percent::{UNRESERVED, escape, unescape};
use weir_control::{Role, Status};

/// Parameter of links to the next page: the aggregate at which the list goes on.
const AT: &str = "weir.aggregate";
/// Parameters that say which page of a list is asked for.
const START: &str = "start";
const SIZE: &str = "max_records";

/// Length of the path of one of these resources, without `api/`: an identity is its last part.
const AREAS: [(&str, usize); 8] = [
    ("protocols/cifs/shares", 5),
    ("storage/qtrees", 4),
    ("protocols", 4),
    ("network", 4),
    ("storage/qos", 4),
    ("storage/quota", 4),
    ("name-services", 4),
    ("support", 4),
];

impl Fleet {
    /// Answers a request to ONTAP's interface; `path` is the part behind `/api/`.
    pub(super) async fn answer_ontap(
        &self,
        asked: &FleetRequest<'_>,
        path: &str,
    ) -> ApiResult<Response> {
        let wanted = match asked.head.method {
            Method::GET | Method::HEAD => Role::Viewer,
            _ => Role::Editor,
        };
        gate::require_role(&asked.actor, wanted)?;
        let query = Query::parse(asked.head.uri.query().unwrap_or_default())?;
        let all = self.members.aggregates();
        let target = asked.target();
        let passed = asked.passed(&target);
        if let [only] = all.as_slice() {
            return self.send(only, &passed).await;
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.first() == Some(&"private") && wanted != Role::Viewer {
            return Err(not_named());
        }
        match owner_path(&parts) {
            Some(owner) => {
                let owner = format!("/api/{owner}?fields=uuid");
                let at = self.owner_of_path(&owner, &passed).await?;
                self.send(&at, &passed).await
            }
            None if wanted == Role::Viewer => self.list_ontap(path, &query, &passed).await,
            None => {
                let at = self.site_ontap(asked, &passed).await?;
                self.send(&at, &passed).await
            }
        }
    }

    /// Returns the aggregate that has a resource; of one that none has, any.
    async fn owner_of_path(&self, path: &str, passed: &ForwardedRequest<'_>) -> ApiResult<String> {
        let Search { at, away } = self.search_path(path, passed).await;
        match (at, away.first()) {
            (Some(at), _) => Ok(at),
            (None, Some((aggregate, why))) => Err(unavailable(aggregate, why)),
            (None, None) => {
                let first = self.members.aggregates().into_iter().next();
                first.ok_or_else(not_named)
            }
        }
    }

    /// Returns the aggregate in which a body makes something: the one with the storage pool, the
    /// volume or, if only one has it, the machine that the body names.
    async fn site_ontap(
        &self,
        asked: &FleetRequest<'_>,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<String> {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let text = |path: &[&str]| {
            let found = path.iter().try_fold(&body, |at, step| match at {
                Value::Array(items) => items.first()?.get(*step),
                other => other.get(*step),
            });
            let flat = || body.get(path.join("."));
            found.or_else(flat)?.as_str().map(str::to_owned)
        };
        let volume =
            text(&["volume", "name"]).or_else(|| text(&["clone", "parent_volume", "name"]));
        let questions = [
            ("storage/aggregates", text(&["aggregates", "name"])),
            ("storage/volumes", volume),
            ("storage/volumes", destination(&body)),
            ("svm/svms", text(&["svm", "name"])),
        ];
        for (list, name) in questions {
            let Some(name) = name else { continue };
            let mut path = format!("/api/{list}?fields=uuid&name=");
            escape(&mut path, &name, UNRESERVED);
            let replies = self.ask_all(&passed.question(&path)).await;
            let has = |reply: &Value| reply.get("num_records").and_then(Value::as_u64) > Some(0);
            let mut with = replies.good.iter().filter(|(_, reply)| has(reply));
            match (with.next(), with.next(), replies.away.first()) {
                (Some((one, _)), None, None) => return Ok(one.clone()),
                (Some((one, _)), None, Some(_)) if list != "svm/svms" => return Ok(one.clone()),
                (_, _, Some(away)) => return Err(unavailable(away, "it may have what is named")),
                (Some(_), Some(_), None) => break,
                // The server's own words say that it does not exist.
                (None, _, None) => break,
            }
        }
        Err(not_named())
    }

    /// Returns a page of the records of all aggregates, or the one record that a path is of.
    async fn list_ontap(
        &self,
        path: &str,
        query: &Query,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        let all = self.members.aggregates();
        let begin = query.get(AT).unwrap_or_default().to_owned();
        let wanted = query.get(SIZE).and_then(|text| text.parse().ok());
        let most = wanted.filter(|n| (1..=MAX_PAGE).contains(n));
        let most = most.unwrap_or(MAX_PAGE);
        let mut page = Page::default();
        let mut start = query.get(START).map(str::to_owned);
        for (at, aggregate) in all.iter().enumerate() {
            if *aggregate < begin {
                continue;
            }
            let left = most.saturating_sub(page.records.len());
            if left == 0 {
                page.next = Some(link(path, query, aggregate, None));
                break;
            }
            let start = start.take().filter(|_| *aggregate == begin);
            let target = asked_of(path, query, left, start.as_deref());
            let (status, bytes, _held) = self
                .query_aggregate(aggregate, &passed.question(&target))
                .await?;
            let reply: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if !status.is_success() || reply.get("num_records").is_none() {
                // One record, or a refusal: the first server that has it is right.
                if status.is_success() || at + 1 == all.len() || !missing(status) {
                    return Ok(reply_of(status, reply));
                }
                continue;
            }
            if let Some(next) = page.add(reply) {
                let next = next.split_once('?').map_or("", |(_, query)| query);
                let next = Query::parse(next)?;
                page.next = Some(link(path, query, aggregate, next.get(START)));
                break;
            }
        }
        Ok(reply_of(StatusCode::OK, page.body(path, query)))
    }
}

/// A page that is put together.
#[derive(Default)]
struct Page {
    records: Vec<Value>,
    seen: HashSet<String>,
    /// Records that there are, of a question that shows none.
    counted: u64,
    shown: bool,
    next: Option<String>,
}

impl Page {
    /// Adds a server's page. Returns the link to its next one.
    fn add(&mut self, mut reply: Value) -> Option<String> {
        let next = reply.pointer("/_links/next/href").and_then(Value::as_str);
        let next = next.map(str::to_owned);
        let count = reply.get("num_records").and_then(Value::as_u64);
        self.counted = self.counted.saturating_add(count.unwrap_or(0));
        if let Some(Value::Array(records)) = reply.get_mut("records").map(Value::take) {
            self.shown = true;
            for record in records {
                let uuid = record.get("uuid").and_then(Value::as_str);
                let new = uuid.is_none_or(|uuid| self.seen.insert(uuid.to_owned()));
                if new {
                    self.records.push(record);
                }
            }
        }
        next
    }

    fn body(self, path: &str, query: &Query) -> Value {
        let mut own = format!("/api/{path}");
        let mut between = '?';
        for (name, value) in query.pairs().iter().filter(|(name, _)| name != START) {
            own.push(between);
            escape(&mut own, name, UNRESERVED);
            own.push('=');
            escape(&mut own, value, UNRESERVED);
            between = '&';
        }
        let mut links = Map::new();
        links.insert("self".to_owned(), json!({"href": own}));
        if let Some(next) = self.next {
            links.insert("next".to_owned(), json!({"href": next}));
        }
        let mut out = Map::new();
        if self.shown {
            out.insert("num_records".to_owned(), json!(self.records.len()));
            out.insert("records".to_owned(), Value::Array(self.records));
        } else {
            out.insert("num_records".to_owned(), json!(self.counted));
        }
        out.insert("_links".to_owned(), Value::Object(links));
        Value::Object(out)
    }
}

/// Returns the path of a list's question to one server.
fn asked_of(path: &str, query: &Query, most: usize, start: Option<&str>) -> String {
    let mut target = format!("/api/{path}?{SIZE}={most}");
    let rest = query.pairs().iter();
    for (name, value) in rest.filter(|(name, _)| ![AT, START, SIZE].contains(&name.as_str())) {
        target.push('&');
        escape(&mut target, name, UNRESERVED);
        target.push('=');
        escape(&mut target, value, UNRESERVED);
    }
    if let Some(start) = start {
        target += &format!("&{START}=");
        escape(&mut target, start, UNRESERVED);
    }
    target
}

/// Returns the link to the next page.
fn link(path: &str, query: &Query, aggregate: &str, start: Option<&str>) -> String {
    let mut target = format!("/api/{path}?{AT}=");
    escape(&mut target, aggregate, UNRESERVED);
    let rest = query.pairs().iter();
    for (name, value) in rest.filter(|(name, _)| ![AT, START].contains(&name.as_str())) {
        target.push('&');
        escape(&mut target, name, UNRESERVED);
        target.push('=');
        escape(&mut target, value, UNRESERVED);
    }
    if let Some(start) = start {
        target += &format!("&{START}=");
        escape(&mut target, start, UNRESERVED);
    }
    target
}

/// Returns the path up to the first identity in it; `None`: there is none.
fn owner_path(parts: &[&str]) -> Option<String> {
    let whole = parts.join("/");
    let area = AREAS.iter().find(|(area, _)| whole.starts_with(area));
    let length = area.map_or(3, |(_, length)| *length);
    let owner = parts.get(..length)?;
    // Nodes and jobs are asked of all servers, as lists are.
    let everywhere = owner.first() == Some(&"cluster") || owner.first() == Some(&"private");
    (!everywhere).then(|| owner.join("/"))
}

/// Returns the volume that is the destination of a new relationship, `SVM:VOLUME`.
fn destination(body: &Value) -> Option<String> {
    let path = body.pointer("/destination/path").and_then(Value::as_str);
    let path = path.or_else(|| body.get("destination.path")?.as_str())?;
    let path = unescape(path)?;
    path.split_once(':').map(|(_, volume)| volume.to_owned())
}

/// Returns true for the status of something that another server may have.
fn missing(status: StatusCode) -> bool {
    status == StatusCode::NOT_FOUND || status.is_server_error()
}

fn reply_of(status: StatusCode, body: Value) -> Response {
    app::ontap_response(&Reply {
        status: status.as_u16(),
        location: None,
        body,
    })
}

fn not_named() -> Box<ApiError> {
    ApiError::new(
        Status::InvalidArgument,
        "AGGREGATE_NOT_NAMED",
        "The request does not say which of the cluster's aggregates it is about: name a storage pool or a volume \
         that exists (aggregates.name), or use the server's own path, /aggregates/NAME/api/…",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_found_in_paths() {
        for (path, owner) in [
            ("storage/volumes", None),
            ("storage/volumes/u", Some("storage/volumes/u")),
            ("storage/volumes/u/snapshots/s", Some("storage/volumes/u")),
            ("svm/svms/u", Some("svm/svms/u")),
            ("protocols/nfs/export-policies", None),
            (
                "protocols/nfs/export-policies/7/rules",
                Some("protocols/nfs/export-policies/7"),
            ),
            (
                "protocols/cifs/shares/u/name",
                Some("protocols/cifs/shares/u/name"),
            ),
            ("storage/qtrees/u/7", Some("storage/qtrees/u/7")),
            ("storage/qos/policies", None),
            ("storage/qos/policies/u", Some("storage/qos/policies/u")),
            (
                "snapmirror/relationships/u/transfers",
                Some("snapmirror/relationships/u"),
            ),
            ("cluster/jobs/u", None),
            ("cluster/nodes/u", None),
            ("cluster", None),
        ] {
            let parts: Vec<&str> = path.split('/').collect();
            assert_eq!(owner_path(&parts).as_deref(), owner, "{path}");
        }
    }

    #[test]
    fn links_lead_on() {
        let query = Query::parse("fields=a,b&max_records=2&start=x%20y").unwrap();
        assert_eq!(
            link("storage/volumes", &query, "agg2", Some("[1]")),
            "/api/storage/volumes?weir.aggregate=agg2&fields=a%2Cb&max_records=2&start=%5B1%5D"
        );
        assert_eq!(
            asked_of("storage/volumes", &query, 1, None),
            "/api/storage/volumes?max_records=1&fields=a%2Cb"
        );
    }
}

//! Lists of all aggregates as one.
//!
//! A page token says behind which resource to go on, so the same token is right for every server.
//! Each is asked for a page of the same size behind the same resource. The first ones of all that
//! they return, in the list's order, are the page: a server that has more than it returned has
//! none that would come before the last of them.

use super::send::ForwardedRequest;
use super::{Fleet, FleetRequest, ok, parts};
use crate::app;
use crate::error::{ApiError, ApiResult};
use crate::live;
use crate::page::{ListParams, ListQuery};
use crate::query::Query;
use crate::route::{RouteMatch, name_of};
use crate::schema::Message;
use crate::words::Language;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tokio::sync::SemaphorePermit;
use weir_base::limits::api::{MAX_CLUSTER_ASKED, MAX_CLUSTER_LIST};
use weir_base::percent::{UNRESERVED, escape};

/// Replies of all aggregates to one question.
pub(super) struct Replies<'a> {
    /// Those that answered with success, with the aggregates.
    pub good: Vec<(String, Value)>,
    /// The first refusal: a question that one server refuses, others refuse as well.
    pub refused: Option<(StatusCode, Bytes)>,
    /// Aggregates that did not answer.
    pub away: Vec<String>,
    /// The reason of the last of them.
    pub why: Option<Box<ApiError>>,
    _held: Vec<SemaphorePermit<'a>>,
}

impl Fleet {
    /// Asks all aggregates. Replies are in the order of the aggregates.
    pub(super) async fn ask_all(&self, question: &ForwardedRequest<'_>) -> Replies<'_> {
        let asked = self
            .members
            .aggregates()
            .into_iter()
            .map(|aggregate| async {
                let answer = self.query_aggregate(&aggregate, question).await;
                (aggregate, answer)
            });
        let mut asked = futures_util::stream::iter(asked).buffered(MAX_CLUSTER_ASKED);
        let mut out = Replies {
            good: Vec::new(),
            refused: None,
            away: Vec::new(),
            why: None,
            _held: Vec::new(),
        };
        while let Some((aggregate, answer)) = asked.next().await {
            match answer {
                Ok((status, bytes, held)) if status.is_success() => {
                    match serde_json::from_slice(&bytes) {
                        Ok(value) => out.good.push((aggregate, value)),
                        Err(_) => out.away.push(aggregate),
                    }
                    out._held.push(held);
                }
                Ok((status, bytes, _)) if status.is_client_error() => {
                    out.refused.get_or_insert((status, bytes));
                }
                Ok(_) => out.away.push(aggregate),
                Err(e) => {
                    out.away.push(aggregate);
                    out.why = Some(e);
                }
            }
        }
        out
    }

    /// Returns a page of the resources of all aggregates.
    pub(super) async fn list(
        &self,
        asked: &FleetRequest<'_>,
        matched: &RouteMatch,
        query: &Query,
        (message, collection): (&'static Message, &'static str),
    ) -> ApiResult<Response> {
        query.only(matched.route.parameters())?;
        let params = ListParams {
            page_size: query.get("pageSize"),
            page_token: query.get("pageToken"),
            filter: query.get("filter"),
            order_by: query.get("orderBy"),
        };
        let mut list = ListQuery::parse(message, &name_of(matched.route, &matched.parts), params)?;
        let aggregates = self.members.aggregates().len().max(1);
        list.shrink((MAX_CLUSTER_LIST / aggregates).max(1));
        let target = sized(asked, query, list.size());
        let replies = self.ask_all(&asked.passed(&target)).await;
        if let (true, Some((status, bytes))) = (replies.good.is_empty(), &replies.refused) {
            let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
            return Ok(app::json(*status, &body));
        }
        if let (true, Some(e)) = (replies.good.is_empty(), replies.why) {
            return Err(e);
        }
        let mut more = false;
        let mut items = Vec::new();
        for (_, mut reply) in replies.good {
            more |= reply.get("nextPageToken").is_some();
            if let Some(Value::Array(all)) = reply.get_mut(collection).map(Value::take) {
                items.extend(all);
            }
        }
        let items = match collection {
            "volumes" | "storagePools" => parts::seen(parts::merged(items)),
            _ => items,
        };
        let (items, next) = list.merged(items, more);
        let mut out = Map::new();
        if !items.is_empty() {
            out.insert(collection.to_owned(), Value::Array(items));
        }
        if !next.is_empty() {
            out.insert("nextPageToken".to_owned(), Value::String(next));
        }
        if !replies.away.is_empty() {
            let place = [0, 1].map(|at| matched.parts.get(at).map_or("", String::as_str));
            let place = format!("projects/{}/locations/{}", place[0], place[1]);
            let away = replies.away.iter();
            let away = away.map(|aggregate| json!(format!("{place}/aggregates/{aggregate}")));
            out.insert("unreachable".to_owned(), away.collect());
        }
        Ok(ok(&Value::Object(out)))
    }

    /// Returns the locations of all aggregates.
    pub(super) async fn locations(&self, passed: &ForwardedRequest<'_>) -> ApiResult<Response> {
        let replies = self.ask_all(passed).await;
        if let (true, Some(e)) = (replies.good.is_empty(), replies.why) {
            return Err(e);
        }
        let mut all = BTreeMap::new();
        for (_, reply) in replies.good {
            let locations = reply.get("locations").and_then(Value::as_array).cloned();
            for location in locations.into_iter().flatten() {
                let id = location.get("locationId").and_then(Value::as_str);
                all.insert(id.unwrap_or_default().to_owned(), location);
            }
        }
        let all: Vec<Value> = all.into_values().collect();
        Ok(ok(&json!({"locations": all})))
    }

    /// Returns the conditions of the cluster, and those of all its aggregates.
    pub(super) async fn conditions(&self, passed: &ForwardedRequest<'_>) -> ApiResult<Response> {
        let replies = self.ask_all(passed).await;
        let language = passed.headers.map(Language::accepted).unwrap_or_default();
        let found = live::Conditions::default();
        found.update(self.clock.current_time().secs, self.members.conditions(), 0);
        let own = found
            .report()
            .to_json(self.clock.current_time().secs, language);
        Ok(ok(&one_report(own, replies.good)))
    }
}

/// Puts the reports of aggregates to that of the cluster. The sentence is that of the worst.
fn one_report(own: Value, others: Vec<(String, Value)>) -> Value {
    const WORST: [&str; 4] = ["OK", "INFO", "WARNING", "ERROR"];
    let rank = |report: &Value| {
        let severity = report.get("severity").and_then(Value::as_str);
        WORST.iter().position(|word| Some(*word) == severity)
    };
    let mut out = own;
    if rank(&out) == Some(0) && !others.is_empty() {
        // That there are no volumes is not so.
        out["severity"] = Value::Null;
    }
    for (aggregate, mut report) in others {
        for name in ["volumes", "volumesWaiting", "omitted"] {
            let count = |of: &Value| of.get(name).and_then(Value::as_u64);
            if let Some(more) = count(&report) {
                out[name] = json!(count(&out).unwrap_or(0).saturating_add(more));
            }
        }
        if rank(&report) > rank(&out) {
            for name in ["severity", "headline"] {
                out[name] = report.get_mut(name).map(Value::take).unwrap_or_default();
            }
        }
        let theirs = report.get_mut("conditions").map(Value::take);
        let Some(all) = out.get_mut("conditions").and_then(Value::as_array_mut) else {
            break;
        };
        for mut one in theirs
            .and_then(|all| all.as_array().cloned())
            .into_iter()
            .flatten()
        {
            if let Value::Object(one) = &mut one {
                one.insert("aggregate".to_owned(), json!(aggregate));
            }
            all.push(one);
        }
    }
    out
}

/// Returns the target of a list's request with another size of the page.
fn sized(asked: &FleetRequest<'_>, query: &Query, size: usize) -> String {
    let path = asked.head.uri.path();
    let rest = query.pairs().iter();
    let rest = rest.filter(|(name, _)| name != "pageSize" && name != "page_size");
    let mut target = format!("{path}?pageSize={size}");
    for (name, value) in rest {
        target.push('&');
        escape(&mut target, name, UNRESERVED);
        target.push('=');
        escape(&mut target, value, UNRESERVED);
    }
    target
}

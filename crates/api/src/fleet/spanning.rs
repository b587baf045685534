//! Storage pools that span aggregates: a pool of one name in several aggregates, whose volumes have
//! one throughput.
//!
//! A request with the label `weir-aggregates` makes a part of the pool in each of so many
//! aggregates. Reads put the parts together, and changes go to all of them ([`super::large`]). A
//! new volume goes to the part with the most room.

use super::creation::{exists, not_placed};
use super::parts::{divide_pool, is_part, whole};
use super::plan::{Creation, SPANS};
use super::send::ForwardedRequest;
use super::{AggregateSpace, Fleet};
use crate::error::{ApiError, ApiResult};
use crate::json::Object;
use axum::body::Bytes;
use axum::response::Response;
use serde_json::{Value, json};
use weir_base::{Rng as _, SystemRng};
use weir_control::{SPAN_LABEL, Span};

impl Fleet {
    /// Creates a pool in as many aggregates as its label says, `first` among them.
    pub(super) async fn create_spanning(
        &self,
        first: &str,
        creation: &Creation,
        (body, spans): (&Object, &str),
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        if self.find(&creation.name, passed).await?.is_some() {
            return Err(exists(&creation.name));
        }
        let aggregates = self.chosen(first, spans, passed).await?;
        let id = SystemRng.next_u64();
        let mut parts = Vec::new();
        for (number, aggregate) in (0..).zip(&aggregates) {
            let span = Span {
                id,
                number,
                // At most 48.
                parts: u8::try_from(aggregates.len()).unwrap_or(u8::MAX),
            };
            parts.push((aggregate.clone(), body_of(body, span)?));
        }
        let created = self.create_parts(creation, parts, passed).await?;
        created.ok_or_else(|| not_placed("no aggregate was chosen"))
    }

    /// Chooses the aggregates of a pool: `first`, and the roomiest of the others.
    async fn chosen(
        &self,
        first: &str,
        spans: &str,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Vec<String>> {
        let most = self.members.aggregates().len().min(PARTS_MAX);
        let wanted = match spans.parse() {
            Ok(wanted) if (2..=most).contains(&wanted) => wanted,
            _ => {
                return Err(ApiError::field(
                    "labels",
                    format!(
                        "Invalid label '{SPANS}': it says over how many aggregates the pool goes, 2 to {most}; received: '{spans}'"
                    ),
                ));
            }
        };
        let mut rooms = self.rooms(passed).await?;
        let mut chosen = vec![first.to_owned()];
        while chosen.len() < wanted {
            rooms.retain(|room: &AggregateSpace| !chosen.contains(&room.aggregate));
            let next = self.members.place(&rooms).map_err(|why| not_placed(&why))?;
            chosen.push(next);
        }
        Ok(chosen)
    }

    /// Returns the aggregate of a new volume in a pool that one in `at` has: if the pool spans
    /// aggregates, that of the volume that it begins as, or the one with the most room.
    pub(super) async fn part_for(
        &self,
        at: String,
        pool: &str,
        creation: &Creation,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<String> {
        let target = format!("/v1/{pool}");
        let question = passed.question(&target);
        let (_, bytes, held) = self.query_aggregate(&at, &question).await?;
        let own: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        drop(held);
        if !is_part(&own) {
            return Ok(at);
        }
        if let Some(source) = &creation.source {
            return Ok(self.find(source, passed).await?.unwrap_or(at));
        }
        let replies = self.ask_all(&question).await;
        let room = |pool: &Value| {
            // Saturates: volumes of some levels add up to more than the pool.
            whole(pool, "capacityGib").saturating_sub(whole(pool, "volumeCapacityGib"))
        };
        let parts = replies.good.iter().filter(|(_, pool)| is_part(pool));
        // The first of equal ones.
        let best = parts.rev().max_by_key(|(_, pool)| room(pool));
        Ok(best.map_or(at, |(aggregate, _)| aggregate.clone()))
    }
}

/// Maximum number of parts.
const PARTS_MAX: usize = 48;

/// Returns the body by which a part is created.
fn body_of(body: &Object, span: Span) -> ApiResult<Bytes> {
    let mut body = body.clone();
    divide_pool(&mut body, u64::from(span.parts))?;
    let labels = body.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(SPAN_LABEL.to_owned(), json!(span.to_string()));
    }
    Ok(Bytes::from(Value::Object(body).to_string()))
}

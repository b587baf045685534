//! Large volumes: a volume of one name in several aggregates, which clients see as one.
//!
//! A request for a volume with `largeCapacity` makes a constituent in each aggregate that has a
//! storage pool of the same service level with room for its part. Reads put the constituents
//! together, and changes go to all of them.

use super::parts::{divide_volume, divided, is_part, merged, seen, text, whole};
use super::plan::{Creation, Site};
use super::send::ForwardedRequest;
use super::{Fleet, FleetRequest, WAIT_STEP, ok};
use crate::error::{ApiError, ApiResult};
use crate::json::Object;
use crate::query::Query;
use crate::route::{Action, Kind, RouteMatch};
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use weir_base::{Rng as _, SystemRng};
use weir_control::{CONSTITUENT_LABEL, Constituent};

/// Maximum number of constituents.
const MEMBERS_MAX: usize = 48;

/// A constituent to be made: its aggregate and its pool.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    aggregate: String,
    pool: String,
}

/// Request about an existing volume or pool that concerns all of its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OfAll {
    Get,
    Update,
    Delete,
}

impl OfAll {
    /// Returns the request, if it is of this kind.
    pub(super) fn from_match(matched: &RouteMatch) -> Option<OfAll> {
        match matched.route.action {
            Action::Get(Kind::Volume | Kind::Pool) => Some(OfAll::Get),
            Action::Update(Kind::Volume | Kind::Pool) => Some(OfAll::Update),
            Action::Delete(Kind::Volume | Kind::Pool) => Some(OfAll::Delete),
            _ => None,
        }
    }
}

impl Fleet {
    /// Creates a large volume whose first constituent is in the aggregate `first`; `None` if no
    /// other aggregate can have a part.
    pub(super) async fn create_large(
        &self,
        first: &str,
        creation: &Creation,
        body: &Object,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Option<Response>> {
        let parts = self.parts(first, creation, body, passed).await?;
        if parts.len() < 2 {
            return Ok(None);
        }
        let (large, secret) = (SystemRng.next_u64(), random_secret());
        // The constituent with the root is the first.
        let bodies = (0..parts.len()).filter_map(|number| {
            let body = body_of(body, &parts, number, (large, secret))?;
            Some((parts.get(number)?.aggregate.clone(), body))
        });
        self.create_parts(creation, bodies.collect(), passed).await
    }

    /// Creates the parts of a resource in their aggregates, the first one last, so that its
    /// operation ends with all of them. If one is refused, deletes the others.
    pub(super) async fn create_parts(
        &self,
        creation: &Creation,
        parts: Vec<(String, Bytes)>,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Option<Response>> {
        let first = parts.first().map(|(aggregate, _)| aggregate.clone());
        let mut made: Vec<String> = Vec::new();
        for (aggregate, body) in parts.into_iter().rev() {
            let request = ForwardedRequest {
                body,
                ..passed.clone()
            };
            let sent = self.send(&aggregate, &request).await;
            let outcome = match sent {
                Ok(reply) if reply.status().is_success() && Some(&aggregate) == first.as_ref() => {
                    return Ok(Some(reply));
                }
                Ok(reply) if reply.status().is_success() => {
                    made.push(aggregate.clone());
                    self.completed(&aggregate, reply, passed).await
                }
                other => other.map(Some),
            };
            match outcome {
                Ok(None) => {}
                Ok(Some(refusal)) => {
                    self.undo(&creation.name, &made, passed).await;
                    return Ok(Some(refusal));
                }
                Err(e) => {
                    self.undo(&creation.name, &made, passed).await;
                    return Err(e);
                }
            }
        }
        Ok(None)
    }

    /// Returns the aggregates and pools of the constituents, the first with the root.
    async fn parts(
        &self,
        first: &str,
        creation: &Creation,
        body: &Object,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Vec<Part>> {
        let Site::With(_, named) = &creation.site else {
            return Ok(Vec::new());
        };
        let (place, _) = named.rsplit_once("/storagePools/").unwrap_or_default();
        let target = format!("/v1/{place}/storagePools?pageSize=1000");
        let replies = self.ask_all(&passed.question(&target)).await;
        let pools = |reply: &Value| {
            let pools = reply.get("storagePools").and_then(Value::as_array);
            pools.cloned().unwrap_or_default()
        };
        let mut good = replies.good.iter().flat_map(|(_, reply)| pools(reply));
        let own = good.find(|pool| text(pool, "name") == named);
        // One pool that spans aggregates has all constituents.
        let spans = own.as_ref().is_some_and(is_part);
        let level = own.map(|own| text(&own, "serviceLevel").to_owned());
        let level = level.ok_or_else(|| ApiError::not_found(named))?;
        let wanted = body.get("largeCapacityConfig");
        let wanted = wanted.map_or(0, |config| whole(config, "constituentCount"));
        let most = match usize::try_from(wanted).unwrap_or(usize::MAX) {
            0 => MEMBERS_MAX,
            wanted => wanted.min(MEMBERS_MAX),
        };
        let capacity = body.get("capacityGib").and_then(Value::as_u64).unwrap_or(0);
        let mut candidates: Vec<(u64, Part)> = Vec::new();
        for (aggregate, reply) in &replies.good {
            let room = |pool: &Value| {
                whole(pool, "capacityGib").saturating_sub(whole(pool, "volumeCapacityGib"))
            };
            let pools = pools(reply).into_iter();
            let mut pools = pools.filter(|pool| text(pool, "serviceLevel") == level);
            let best = match spans || aggregate == first {
                true => pools.find(|pool| text(pool, "name") == named),
                false => pools.max_by_key(room),
            };
            if let Some(pool) = best {
                let id = text(&pool, "name").rsplit('/').next().unwrap_or_default();
                let part = Part {
                    aggregate: aggregate.clone(),
                    pool: id.to_owned(),
                };
                candidates.push((room(&pool), part));
            }
        }
        let parts = chosen(candidates, first, capacity, most);
        if wanted > 1 && parts.len() as u64 != wanted {
            return Err(ApiError::field(
                "largeCapacityConfig",
                format!(
                    "'largeCapacityConfig' asks for {wanted} constituents; {} aggregates have a storage pool of service level {level} with room for a part",
                    parts.len()
                ),
            ));
        }
        Ok(parts)
    }

    /// Waits for the operation of a reply. Returns the operation if it has failed.
    async fn completed(
        &self,
        aggregate: &str,
        reply: Response,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Option<Response>> {
        let (_, bytes, held) = self.read(reply).await?;
        let mut operation: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        drop(held);
        let target = format!("/v1/{}", text(&operation, "name"));
        while operation.get("done").and_then(Value::as_bool) != Some(true) {
            tokio::time::sleep(WAIT_STEP).await;
            let (status, bytes, _held) = self
                .query_aggregate(aggregate, &passed.question(&target))
                .await?;
            if status != StatusCode::OK {
                break;
            }
            operation = serde_json::from_slice(&bytes).unwrap_or_default();
        }
        Ok(operation.get("error").is_some().then(|| ok(&operation)))
    }

    /// Deletes the parts that were made of a resource that cannot be made whole.
    async fn undo(&self, name: &str, made: &[String], passed: &ForwardedRequest<'_>) {
        let force = match name.contains("/volumes/") {
            true => "?force=true",
            false => "",
        };
        let target = format!("/v1/{name}{force}");
        for aggregate in made {
            let request = ForwardedRequest {
                method: Method::DELETE,
                target: &target,
                body: Bytes::new(),
                ..passed.clone()
            };
            if let Err(e) = self.send(aggregate, &request).await {
                tracing::warn!(
                    "cannot delete {name} in {aggregate}, which is a part of no volume: {}",
                    e.message
                );
            }
        }
    }

    /// Passes a request about a volume or a pool on: to all aggregates that have a part of it.
    pub(super) async fn to_volume(
        &self,
        what: OfAll,
        name: &str,
        asked: &FleetRequest<'_>,
        query: &Query,
    ) -> ApiResult<Response> {
        let target = asked.target();
        let passed = asked.passed(&target);
        if what == OfAll::Get {
            let reply = self.to_owner(name, &passed).await?;
            if reply.status() != StatusCode::OK {
                return Ok(reply);
            }
            let headers = reply.headers().clone();
            let (status, bytes, _held) = self.read(reply).await?;
            let volume: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if is_part(&volume) {
                return self.whole_volume(&target, &passed).await;
            }
            let mut reply = Response::new(Body::from(bytes));
            *reply.status_mut() = status;
            *reply.headers_mut() = headers;
            return Ok(reply);
        }
        let question = format!("/v1/{name}");
        let replies = self.ask_all(&passed.question(&question)).await;
        let mut parts: Vec<&(String, Value)> = { replies.good.iter() }
            .filter(|(_, resource)| is_part(resource))
            .collect();
        // A pool with volumes refuses to be deleted, and the others stay then.
        parts.sort_by_key(|(_, resource)| whole(resource, "volumeCount") == 0);
        let parts: Vec<&String> = parts.iter().map(|(aggregate, _)| aggregate).collect();
        if parts.is_empty() {
            return self.to_owner(name, &passed).await;
        }
        if let Some(e) = replies.why {
            // A change of some parts alone would leave the volume uneven.
            return Err(e);
        }
        let request = match what {
            OfAll::Update => ForwardedRequest {
                body: divided(&asked.body, parts.len(), query, name)?,
                ..passed.clone()
            },
            _ => passed.clone(),
        };
        let mut first = None;
        for aggregate in parts {
            let reply = self.send(aggregate, &request).await?;
            if !reply.status().is_success() {
                return Ok(reply);
            }
            first.get_or_insert(reply);
        }
        first.ok_or_else(|| ApiError::not_found(name))
    }

    /// Returns a large volume, put together from its constituents.
    async fn whole_volume(
        &self,
        target: &str,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        let replies = self.ask_all(&passed.question(target)).await;
        let volumes = replies.good.into_iter().map(|(_, volume)| volume);
        let mut merged = seen(merged(volumes.collect()));
        match (merged.pop(), replies.why) {
            (Some(volume), _) => Ok(ok(&volume)),
            (None, Some(e)) => Err(e),
            (None, None) => Err(ApiError::not_found(target)),
        }
    }
}

fn random_secret() -> [u8; 16] {
    let (low, high) = (SystemRng.next_u64(), SystemRng.next_u64());
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// Chooses constituents, the one in `first` before the others: as many of the roomiest as hold
/// their equal parts of `capacity`.
fn chosen(mut candidates: Vec<(u64, Part)>, first: &str, capacity: u64, most: usize) -> Vec<Part> {
    let rank = |(room, part): &(u64, Part)| {
        let other = part.aggregate != first;
        (other, std::cmp::Reverse(*room), part.aggregate.clone())
    };
    candidates.sort_by_key(rank);
    candidates.truncate(most);
    while candidates.len() > 1 {
        let share = capacity.div_ceil(candidates.len() as u64);
        // The first is the pool that was named: its server refuses what does not fit.
        let lacks = candidates
            .iter()
            .skip(1)
            .position(|(room, _)| *room < share);
        match lacks {
            None => break,
            Some(at) => drop(candidates.remove(at + 1)),
        }
    }
    candidates.into_iter().map(|(_, part)| part).collect()
}

/// Returns the body by which a constituent is created.
fn body_of(
    body: &Object,
    parts: &[Part],
    number: usize,
    (large, secret): (u64, [u8; 16]),
) -> Option<Bytes> {
    let constituent = Constituent {
        large,
        secret,
        number: u8::try_from(number).ok()?,
        members: u8::try_from(parts.len()).ok()?,
    };
    let mut body = body.clone();
    divide_volume(&mut body, parts.len() as u64);
    body.insert("storagePool".to_owned(), json!(parts.get(number)?.pool));
    let labels = body.entry("labels").or_insert_with(|| json!({}));
    let label = json!(constituent.to_string());
    labels
        .as_object_mut()?
        .insert(CONSTITUENT_LABEL.to_owned(), label);
    Some(Bytes::from(Value::Object(body).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(aggregate: &str) -> Part {
        Part {
            aggregate: aggregate.to_owned(),
            pool: format!("pool-of-{aggregate}"),
        }
    }

    #[test]
    fn constituents_are_where_their_parts_fit() {
        let choose = |rooms: &[(&str, u64)], capacity, most| {
            let rooms = rooms.iter().map(|(name, room)| (*room, part(name)));
            let chosen = chosen(rooms.collect(), "b", capacity, most);
            let names: Vec<String> = chosen.into_iter().map(|part| part.aggregate).collect();
            names.join(" ")
        };
        let rooms = [("a", 100), ("b", 10), ("c", 60), ("d", 20)];
        assert_eq!(choose(&rooms, 60, 48), "b a c d", "15 each");
        assert_eq!(choose(&rooms, 90, 48), "b a c", "30 each, which d lacks");
        assert_eq!(choose(&rooms, 60, 2), "b a");
        assert_eq!(choose(&rooms, 1000, 48), "b");
    }

    #[test]
    fn constituents_are_one_volume_to_see() {
        let volume = |name: &str, capacity: &str, count: u64, at: &str| {
            json!({
                "name": name, "capacityGib": capacity, "state": "READY",
                "largeCapacityConfig": {"constituentCount": count},
                "mountOptions": [{"exportFull": at}],
            })
        };
        let out = merged(vec![
            volume("big", "10", 2, "10.0.0.1:/big"),
            volume("small", "5", 0, "10.0.0.1:/small"),
            volume("big", "20", 2, "10.0.0.2:/big"),
            volume("small", "6", 0, "10.0.0.2:/small"),
        ]);
        let [big, small, other] = out.as_slice() else {
            panic!("{out:?}");
        };
        assert_eq!(big["capacityGib"], "30");
        assert_eq!(big["mountOptions"][1]["exportFull"], "10.0.0.2:/big");
        assert_eq!(
            (&small["capacityGib"], &other["capacityGib"]),
            (&json!("5"), &json!("6"))
        );
        let body = json!({"capacityGib": 100, "throughputMibps": 30.0, "shareName": "big"});
        let body = body.as_object().unwrap();
        let made = body_of(body, &[part("a"), part("b"), part("c")], 2, (7, [1; 16])).unwrap();
        let made: Value = serde_json::from_slice(&made).unwrap();
        assert_eq!(
            (&made["capacityGib"], &made["throughputMibps"]),
            (&json!(34), &json!(10.0))
        );
        assert_eq!(made["storagePool"], "pool-of-c");
        let label = made["labels"][CONSTITUENT_LABEL].as_str().unwrap();
        let place = Constituent::parse(label).unwrap();
        assert_eq!((place.large, place.number, place.members), (7, 2, 3));
    }
}

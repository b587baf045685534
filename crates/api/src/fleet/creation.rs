//! New resources: their aggregate, and that no other aggregate has one of the same name.

use super::plan::{Creation, LABEL, Site};
use super::send::{ForwardedRequest, unavailable};
use super::{AggregateSpace, Fleet};
use crate::error::{ApiError, ApiResult};
use axum::response::Response;
use futures_util::StreamExt as _;
use serde_json::Value;
use weir_base::limits::api::MAX_CLUSTER_ASKED;
use weir_control::Status;

impl Fleet {
    /// Passes the creation of a resource on to the aggregate that is to have it.
    ///
    /// # Errors
    /// ALREADY_EXISTS: another aggregate has a resource of this name. UNAVAILABLE: an aggregate
    /// that may have one does not answer; or an aggregate cannot be chosen now.
    pub(super) async fn create(
        &self,
        creation: &Creation,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        let name = creation.name.as_str();
        let reserved = self.members.reserve(name).await;
        let _held = match (reserved, &creation.site) {
            (Ok(Some(held)), _) => Some(held),
            (Ok(None), _) => return Err(under_way(name)),
            (Err(why), Site::Roomiest) => return Err(not_placed(&why)),
            // The place is known already. Two that create one of the same name in different
            // aggregates at this moment are not told from each other.
            (Err(why), _) => {
                tracing::warn!("cannot reserve the name {name}: {why}; creating it without");
                None
            }
        };
        let mut at = self.site(&creation.site, passed).await?;
        if let Some((body, spans)) = &creation.spanning {
            return self
                .create_spanning(&at, creation, (body, spans), passed)
                .await;
        }
        if let Site::With("storagePool", pool) = &creation.site {
            at = self.part_for(at, pool, creation, passed).await?;
        }
        match self.find(name, passed).await? {
            Some(other) if other != at => return Err(exists(name)),
            _ => {}
        }
        if let Some(body) = &creation.large
            && let Some(reply) = self.create_large(&at, creation, body, passed).await?
        {
            return Ok(reply);
        }
        let reply = self.send(&at, passed).await?;
        if reply.status().is_success() {
            self.owners.note(name, &at);
        }
        Ok(reply)
    }

    /// Returns the aggregate of a new resource.
    async fn site(&self, site: &Site, passed: &ForwardedRequest<'_>) -> ApiResult<String> {
        let all = self.members.aggregates();
        match site {
            Site::In(aggregate) => match all.contains(aggregate) {
                true => Ok(aggregate.clone()),
                false => Err(ApiError::field(
                    "labels",
                    format!(
                        "Invalid label '{LABEL}': the cluster has no aggregate '{aggregate}' (it has {})",
                        all.join(", ")
                    ),
                )),
            },
            Site::With(field, name) => match self.owners.get(name) {
                Some(aggregate) => Ok(aggregate),
                None => self.find(name, passed).await?.ok_or_else(|| {
                    let mut e = ApiError::not_found(name);
                    e.metadata.push(("field".to_owned(), (*field).to_owned()));
                    e
                }),
            },
            Site::Roomiest => {
                let rooms = self.rooms(passed).await?;
                self.members.place(&rooms).map_err(|why| not_placed(&why))
            }
            Site::ToBeNamed => match all.as_slice() {
                [only] => Ok(only.clone()),
                all => Err(ApiError::field(
                    "labels",
                    format!(
                        "This cluster has several aggregates, and what will use the new resource has to be in the same one: \
                         name it by the label '{LABEL}' ({})",
                        all.join(", ")
                    ),
                )),
            },
        }
    }

    /// Returns the space of the aggregates that answer.
    pub(super) async fn rooms(
        &self,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Vec<AggregateSpace>> {
        let question = passed.question("/v1/server");
        let all = self.members.aggregates();
        let asked = all.into_iter().map(|aggregate| {
            let question = &question;
            async move {
                let answer = self.query_aggregate(&aggregate, question).await;
                (aggregate, answer)
            }
        });
        let mut asked = futures_util::stream::iter(asked).buffer_unordered(MAX_CLUSTER_ASKED);
        let (mut rooms, mut last) = (Vec::new(), None);
        while let Some((aggregate, answer)) = asked.next().await {
            match answer {
                Ok((status, bytes, _)) if status.is_success() => {
                    rooms.extend(room(aggregate, &bytes));
                }
                Ok((status, ..)) => {
                    let why = format!("it answers with {status}");
                    last = Some(unavailable(&aggregate, &why));
                }
                Err(e) => last = Some(e),
            }
        }
        match last {
            Some(e) if rooms.is_empty() => Err(e),
            _ => Ok(rooms),
        }
    }
}

/// Reads the space of an aggregate from a server's description.
fn room(aggregate: String, body: &[u8]) -> Option<AggregateSpace> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let space = body.get("aggregate")?;
    let number = |name: &str| space.get(name).and_then(Value::as_u64);
    Some(AggregateSpace {
        aggregate,
        free: number("freeBytes")?,
        used: number("usedBytes")?,
        provisioned: number("provisionedBytes").unwrap_or(0),
        read_only: space.get("readOnly").and_then(Value::as_bool) == Some(true),
    })
}

/// Creates the error of a name that another aggregate has.
pub(super) fn exists(name: &str) -> Box<ApiError> {
    let mut e = ApiError::new(
        Status::AlreadyExists,
        "NAME_TAKEN",
        format!("{name} already exists in another aggregate of the cluster"),
    );
    e.metadata.push(("resource".to_owned(), name.to_owned()));
    e
}

/// Creates the error of a name that another request creates now.
fn under_way(name: &str) -> Box<ApiError> {
    ApiError::new(
        Status::Aborted,
        "CREATION_UNDER_WAY",
        format!("{name} is being created by another request (try again)"),
    )
}

/// Creates the error of a resource for which no aggregate can be chosen.
pub(super) fn not_placed(why: &str) -> Box<ApiError> {
    ApiError::new(
        Status::Unavailable,
        "NOT_PLACED",
        format!(
            "No aggregate can be chosen for the new resource: {why} (try again, or name one by the label '{LABEL}')"
        ),
    )
}

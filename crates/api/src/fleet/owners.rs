//! Which aggregate has a resource, by the resource's name.
//!
//! A remembered aggregate is a hint. A resource that is not there any more is searched for again.

use super::Fleet;
use super::send::{ForwardedRequest, unavailable};
use crate::error::ApiResult;
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use std::collections::HashMap;
use weir_base::limits::api::{MAX_CLUSTER_ASKED, MAX_CLUSTER_NAMES};
use weir_base::percent;

/// Aggregates of resources, by the full names of the resources.
#[derive(Default)]
pub(super) struct Owners(Mutex<HashMap<String, String>>);

impl Owners {
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.lock().get(name).cloned()
    }

    pub fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Notes the aggregate of a resource. A full table begins anew.
    pub fn note(&self, name: &str, aggregate: &str) {
        let mut all = self.0.lock();
        if all.len() >= MAX_CLUSTER_NAMES && !all.contains_key(name) {
            all.clear();
        }
        all.insert(name.to_owned(), aggregate.to_owned());
    }
}

/// Result of a search.
pub(super) struct Search {
    /// The aggregate that has the resource.
    pub at: Option<String>,
    /// Aggregates that did not answer, with the reasons.
    pub away: Vec<(String, String)>,
}

impl Fleet {
    /// Returns the aggregate that has a resource; `None` if there is no such resource.
    ///
    /// # Errors
    /// UNAVAILABLE: it may be in an aggregate that does not answer.
    pub(super) async fn find(
        &self,
        name: &str,
        like: &ForwardedRequest<'_>,
    ) -> ApiResult<Option<String>> {
        let Search { at, away } = self.search(name, like).await;
        match (at, away.first()) {
            (Some(at), _) => Ok(Some(at)),
            (None, None) => Ok(None),
            (None, Some((aggregate, why))) => Err(unavailable(aggregate, why)),
        }
    }

    /// Searches a resource in all aggregates. `like` is the request that it is searched for.
    pub(super) async fn search(&self, name: &str, like: &ForwardedRequest<'_>) -> Search {
        let target = format!("/v1/{}", escaped(name));
        let found = self.search_path(&target, like).await;
        if let Some(at) = &found.at {
            self.owners.note(name, at);
        }
        found
    }

    /// Searches the aggregate that has a path.
    pub(super) async fn search_path(&self, target: &str, like: &ForwardedRequest<'_>) -> Search {
        let question = like.question(target);
        let all = self.members.aggregates();
        let asked = all.into_iter().map(|aggregate| {
            let question = &question;
            async move {
                let answer = self.query_aggregate(&aggregate, question).await;
                (aggregate, answer.map(|(status, ..)| status))
            }
        });
        // In order: of two that have the name, the first is meant, at every node.
        let mut asked = futures_util::stream::iter(asked).buffered(MAX_CLUSTER_ASKED);
        let mut away = Vec::new();
        while let Some((aggregate, answer)) = asked.next().await {
            match answer {
                Ok(StatusCode::OK) => {
                    let at = Some(aggregate);
                    return Search { at, away };
                }
                Ok(status) if status.is_server_error() => {
                    away.push((aggregate, format!("it answers with {status}")));
                }
                Ok(_) => {}
                Err(e) => away.push((aggregate, e.message)),
            }
        }
        Search { at: None, away }
    }
}

/// Returns a name as a path, with what has another meaning there encoded (RFC 3986 §3.3).
fn escaped(name: &str) -> String {
    percent::escaped(name, percent::PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_and_the_table_is_bounded() {
        assert_eq!(
            escaped("projects/a b/volumes/ä?"),
            "projects/a%20b/volumes/%C3%A4%3F"
        );
        let owners = Owners::default();
        for n in 0..=MAX_CLUSTER_NAMES {
            owners.note(&n.to_string(), "a");
        }
        assert_eq!(owners.get("0"), None);
        assert_eq!(
            owners.get(&MAX_CLUSTER_NAMES.to_string()).as_deref(),
            Some("a")
        );
        owners.forget(&MAX_CLUSTER_NAMES.to_string());
        assert_eq!(owners.get(&MAX_CLUSTER_NAMES.to_string()), None);
    }
}

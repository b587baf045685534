//! Client of the NetApp Volumes API of a Weir server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use ureq::{Agent, Body, http};
use weir_base::Clock;
use weir_base::limits::csi::{MAX_ANSWER, MAX_LISTED};
use weir_base::percent;
use weir_http::{Limit, Method, Request, Trust};

use crate::credentials::Credentials;
use crate::status::{Code, Outcome, Status};

/// Pause before the first look at an operation that has not ended; it grows to twenty of them.
const POLL: Duration = Duration::from_millis(50);

/// Time for which a call waits for an operation. Sidecars give up after ten seconds to some
/// minutes, and call again.
const WAIT: Duration = Duration::from_secs(60);

/// Time for a request and its response.
const CALL: Duration = Duration::from_secs(120);

/// A server, and a project of it.
pub struct Api {
    agent: Agent,
    base: String,
    project: String,
    credentials: Credentials,
    clock: Box<dyn Clock>,
}

/// A method of HTTP with what it carries.
pub enum Verb<'a> {
    /// Reads.
    Get,
    /// Makes, or a verb of the API's own.
    Post(&'a Value),
    /// Changes.
    Patch(&'a Value),
    /// Deletes.
    Delete,
}

impl Api {
    /// Creates a client of `server` (`http://` or `https://`).
    ///
    /// # Errors
    /// It is no address; the certificates cannot be read.
    pub fn new(
        server: &str,
        project: &str,
        credentials: Credentials,
        ca_cert: Option<&Path>,
        clock: Box<dyn Clock>,
    ) -> Result<Api> {
        let base = server.trim_end_matches('/');
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            bail!("--server is an http:// or https:// address; received: {server}");
        }
        let agent = weir_http::agent(Trust::of_file(ca_cert)?, Limit::Whole(CALL));
        Ok(Api {
            agent,
            base: base.to_owned(),
            project: project.to_owned(),
            credentials,
            clock,
        })
    }

    /// Returns the name of what is at `rest` in a location, such as `volumes/v1`.
    pub fn name(&self, location: &str, rest: &str) -> String {
        format!("projects/{}/locations/{location}/{rest}", self.project)
    }

    /// Makes a request and returns the body of the response.
    ///
    /// # Errors
    /// The server's refusal in CSI's terms; UNAVAILABLE: it cannot be reached.
    pub fn call(&self, verb: &Verb<'_>, name: &str, query: &[(&str, &str)]) -> Outcome<Value> {
        let uri = format!("{}/v1/{}", self.base, percent::escaped(name, percent::PATH));
        let bearer = self.credentials.bearer(&*self.clock);
        let bearer = bearer.map_err(|why| Status::new(Code::Unauthenticated, why))?;
        let (method, body) = match verb {
            Verb::Get => (Method::Get, None),
            Verb::Delete => (Method::Delete, None),
            Verb::Post(body) => (Method::Post, Some(*body)),
            Verb::Patch(body) => (Method::Patch, Some(*body)),
        };
        let request = Request {
            method,
            uri: &uri,
            query,
            bearer: bearer.as_deref(),
            body,
        };
        let sent = weir_http::send(&self.agent, &request);
        match sent {
            Ok(answer) => read(answer),
            Err(e) => Err(self.unreachable(&e.to_string())),
        }
    }

    fn unreachable(&self, why: &str) -> Status {
        Status::new(
            Code::Unavailable,
            format!("cannot reach the Weir server at {}: {why}", self.base),
        )
    }

    /// Returns a resource; `None`: there is none of this name.
    ///
    /// # Errors
    /// As [`Api::call`].
    pub fn get(&self, name: &str) -> Outcome<Option<Value>> {
        match self.call(&Verb::Get, name, &[]) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.code == Code::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns all resources of a collection, such as `volumes` of a location.
    ///
    /// # Errors
    /// As [`Api::call`].
    pub fn list(&self, name: &str, collection: &str) -> Outcome<Vec<Value>> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let query = [("pageSize", "1000"), ("pageToken", token.as_str())];
            let query = if token.is_empty() {
                &query[..1]
            } else {
                &query[..]
            };
            let mut page = self.call(&Verb::Get, name, query)?;
            if let Some(Value::Array(items)) = page.get_mut(collection) {
                all.append(items);
            }
            token = text(&page, "nextPageToken").to_owned();
            if token.is_empty() || all.len() >= MAX_LISTED {
                return Ok(all);
            }
        }
    }

    /// Makes a change and waits until it has ended; returns the resource.
    ///
    /// # Errors
    /// As [`Api::call`]; the operation's own; DEADLINE_EXCEEDED: it has not ended within [`WAIT`].
    pub fn change(&self, verb: &Verb<'_>, name: &str, query: &[(&str, &str)]) -> Outcome<Value> {
        let mut operation = self.call(verb, name, query)?;
        let (mut pause, mut waited) = (POLL, Duration::ZERO);
        loop {
            if let Some(error) = operation.get("error") {
                return Err(refusal(error));
            }
            if operation.get("done").and_then(Value::as_bool) == Some(true) {
                return Ok(operation.get("response").cloned().unwrap_or(json!({})));
            }
            let under_way = text(&operation, "name").to_owned();
            if under_way.is_empty() || waited >= WAIT {
                let why = format!("the change of {name} has not ended after {waited:?}");
                return Err(Status::new(Code::DeadlineExceeded, why));
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 3 / 2).min(POLL * 20);
            operation = self.call(&Verb::Get, &under_way, &[])?;
        }
    }

    /// Checks that the server answers and that the credentials are good.
    ///
    /// # Errors
    /// As [`Api::call`].
    pub fn probe(&self) -> Outcome<()> {
        let name = format!("projects/{}/locations", self.project);
        self.call(&Verb::Get, &name, &[]).map(drop)
    }
}

/// Returns the text of a field; empty if it has none.
pub fn text<'v>(of: &'v Value, field: &str) -> &'v str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a number, which protobuf's mapping writes as text; 0 if there is none.
pub fn number(of: &Value, field: &str) -> u64 {
    match of.get(field) {
        Some(Value::String(digits)) => digits.parse().unwrap_or(0),
        Some(number) => number.as_u64().unwrap_or(0),
        None => 0,
    }
}

fn read(mut answer: http::Response<Body>) -> Outcome<Value> {
    let http = answer.status().as_u16();
    let unread = |why: String| Status::new(Code::Unavailable, why);
    let text = answer.body_mut().with_config().limit(MAX_ANSWER);
    let text = text
        .read_to_string()
        .map_err(|e| unread(format!("cannot read the server's answer: {e}")))?;
    let body: Option<Value> = serde_json::from_str(&text).ok();
    match (http, body) {
        (200..300, Some(body)) => Ok(body),
        (_, Some(body)) if body.get("error").is_some_and(Value::is_object) => {
            Err(refusal(body.get("error").unwrap_or(&Value::Null)))
        }
        _ => Err(unread(format!(
            "the server answered with HTTP {http} and no JSON: is it a Weir server's API?"
        ))),
    }
}

/// Returns a refusal in CSI's terms.
fn refusal(error: &Value) -> Status {
    let code = error.get("code").and_then(Value::as_u64).unwrap_or(0);
    let named = Code::from_name(text(error, "status"));
    let details = error.get("details").and_then(Value::as_array);
    let mut reasons = details.into_iter().flatten().map(|d| text(d, "reason"));
    let reason = reasons.find(|r| !r.is_empty()).unwrap_or_default();
    let code = named.unwrap_or_else(|| Code::numbered(code));
    let exhausted =
        reason.ends_with("CAPACITY_EXCEEDED") || reason.ends_with("THROUGHPUT_EXCEEDED");
    Status {
        code: if exhausted {
            Code::ResourceExhausted
        } else {
            code
        },
        message: text(error, "message").to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_in_the_terms_of_csi() {
        let of = |error: Value| {
            let status = refusal(&error);
            (status.code, status.reason)
        };
        let info = |reason: &str| json!([{"@type": "x", "reason": reason}]);
        assert_eq!(
            of(
                json!({"code": 400, "status": "INVALID_ARGUMENT", "details": info("POOL_CAPACITY_EXCEEDED")})
            ),
            (Code::ResourceExhausted, "POOL_CAPACITY_EXCEEDED".to_owned())
        );
        assert_eq!(
            of(json!({"code": 404, "status": "NOT_FOUND", "details": info("X")})).0,
            Code::NotFound
        );
        // An operation's error has gRPC's number.
        assert_eq!(of(json!({"code": 9})).0, Code::FailedPrecondition);
        assert_eq!(of(json!({"code": 99})).0, Code::Internal);
        assert_eq!(
            number(&json!({"a": "7"}), "a") + number(&json!({"a": 7}), "a"),
            14
        );
    }
}

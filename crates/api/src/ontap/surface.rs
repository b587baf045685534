//! A request to ONTAP's interface with what it takes to handle it, and replies to it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use weir_control::Actor;
use weir_ontap::fields::job::Row as Job;
use weir_ontap::value::identity as uuid;
use weir_ontap::{Cluster, Clusters};
use weir_relations::model::Path;

use super::refusal::{HandlerResult, Refusal};
use crate::route::Verb;

/// Jobs that can still be asked for.
pub(super) const JOBS: usize = 1024;
/// Restores that were announced and not begun.
pub(super) const RESTORES: usize = 64;

/// The interface. What it remembers itself is bounded and gone with the process.
pub(crate) struct Surface {
    pub(super) clusters: Clusters<Actor>,
    pub(super) held: Mutex<SurfaceState>,
}

#[derive(Default)]
pub(super) struct SurfaceState {
    pub(super) jobs: VecDeque<Job>,
    pub(super) restores: VecDeque<Restore>,
    pub(super) made: u64,
}

/// `restore: true` makes a relationship that a transfer is to be asked of; the cluster does both as
/// one.
#[derive(Clone)]
pub(super) struct Restore {
    pub(super) uuid: String,
    pub(super) source: Path,
    pub(super) destination: Path,
}

/// A request, parsed, before it is dispatched.
pub(crate) struct Call {
    /// The method; `None` is one that nothing here has.
    pub verb: Option<Verb>,
    /// The parts of the path behind `api/`.
    pub path: Vec<String>,
    /// The query's parameters, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The body; `Null` where there is none.
    pub body: Value,
    /// The address at which clients reach this node.
    pub node: IpAddr,
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// HTTP's status code, such as 202.
    pub status: u16,
    /// Path of the resource that was made.
    pub location: Option<String>,
    /// The body, in ONTAP's shape.
    pub body: Value,
}

impl Reply {
    pub(super) fn ok(body: Value) -> Reply {
        Reply {
            status: 200,
            location: None,
            body,
        }
    }

    /// Returns a refusal, as the client gets it.
    pub fn refused(refusal: &Refusal) -> Reply {
        Reply {
            status: refusal.status,
            location: None,
            body: refusal.body(),
        }
    }
}

/// A request with what it takes to handle it.
pub(super) struct CallContext<'a> {
    pub(super) surface: &'a Surface,
    pub(super) cluster: &'a dyn Cluster,
    pub(super) call: &'a Call,
}

impl Surface {
    /// Creates the interface over clusters as users see them.
    pub fn new(clusters: Clusters<Actor>) -> Arc<Surface> {
        Arc::new(Surface {
            clusters,
            held: Mutex::default(),
        })
    }

    /// Returns the cluster, as a user sees it.
    pub fn cluster(&self, actor: &Actor) -> Arc<dyn Cluster> {
        (self.clusters)(actor)
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut SurfaceState) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn jobs(&self) -> Vec<Job> {
        self.with(|held| held.jobs.iter().cloned().collect())
    }

    pub(super) fn restores(&self) -> Vec<Restore> {
        self.with(|held| held.restores.iter().cloned().collect())
    }
}

impl CallContext<'_> {
    /// Returns the parts of the request's path.
    pub(super) fn path(&self) -> Vec<&str> {
        self.call.path.iter().map(String::as_str).collect()
    }

    /// Creates the refusal of a path of a known area that has no such method, or is no path after
    /// all.
    pub(super) fn not_so(&self, path: &[&str]) -> Box<Refusal> {
        match (self.call.verb, path.len()) {
            (None | Some(Verb::Get), _) | (_, 6..) => Refusal::no_api(),
            (Some(verb), _) => Refusal::no_method(match verb {
                Verb::Get => "GET",
                Verb::Post => "POST",
                Verb::Patch => "PATCH",
                Verb::Delete => "DELETE",
            }),
        }
    }

    /// Returns the path asked for, as links give it.
    pub(super) fn here(&self) -> String {
        format!("/api/{}", self.call.path.join("/"))
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.call.query.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a parameter that is true or false.
    pub(super) fn flag(&self, name: &str) -> HandlerResult<bool> {
        let text = self.parameter(name).unwrap_or("false");
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Refusal::value(name, text, "boolean")),
        }
    }

    /// Checks the parameters of a change: those that all changes take, and `more`.
    pub(super) fn only(&self, more: &[&str]) -> HandlerResult<()> {
        const ALL: &[&str] = &[
            "return_timeout",
            "return_records",
            "fields",
            "ignore_unknown_fields",
            "privilege_level",
        ];
        if let Some(text) = self.parameter("return_timeout") {
            let seconds: Option<u32> = text.parse().ok();
            if seconds.is_none_or(|s| s > 120) {
                return Err(Refusal::value("return_timeout", text, "integer, 0 to 120"));
            }
        }
        let unknown = self
            .call
            .query
            .iter()
            .find(|(name, _)| !ALL.contains(&name.as_str()) && !more.contains(&name.as_str()));
        match unknown {
            None => Ok(()),
            Some((name, _)) => Err(Refusal::unexpected(name)),
        }
    }

    /// Returns the reply to a change that was made: nothing more where ONTAP makes it at once, else
    /// a job that has ended. `made` is what was made, by its path and record.
    pub(super) fn done(&self, made: Option<(String, Value)>) -> HandlerResult<Reply> {
        let warnings = self.cluster.take_warnings();
        let posted = self.call.verb == Some(Verb::Post);
        let (mut body, status) = if self.at_once() {
            let body = match warnings.is_empty() {
                true => json!({}),
                false => json!({"warnings": warnings}),
            };
            (body, if posted { 201 } else { 200 })
        } else {
            let warnings = warnings.iter().map(|why| format!("; Warning: {why}"));
            let message = format!("success{}", warnings.collect::<String>());
            let waited = self.waited() || self.deletes_qos_policy();
            let status = match (waited, posted) {
                (false, _) => 202,
                (true, true) => 201,
                (true, false) => 200,
            };
            (self.job(message, 0), status)
        };
        if let (true, Some((_, record)), Some(body)) =
            (self.flag("return_records")?, &made, body.as_object_mut())
        {
            body.insert("num_records".to_owned(), json!(1));
            body.insert("records".to_owned(), json!([record]));
        }
        Ok(Reply {
            status,
            location: made.map(|(path, _)| path),
            body,
        })
    }

    /// Returns the reply to a change that fails after ONTAP has taken it: a job that has failed;
    /// the refusal itself if the client waits for the job.
    pub(super) fn failed(&self, refusal: Box<Refusal>) -> HandlerResult<Reply> {
        if self.waited() {
            return Err(refusal);
        }
        Ok(Reply {
            status: 202,
            location: None,
            body: self.job(refusal.message, refusal.code),
        })
    }

    /// Records the job of this request, which has ended, and returns a reply's link to it. `code`
    /// is 0 if it succeeded.
    pub(super) fn job(&self, message: String, code: u32) -> Value {
        let now = self.cluster.current_time();
        let verb = match self.call.verb {
            Some(Verb::Post) => "POST",
            Some(Verb::Patch) => "PATCH",
            _ => "DELETE",
        };
        let id = self.surface.with(|held| {
            held.made += 1;
            let name = format!("{}/{now}/{}", self.cluster.uuid(), held.made);
            let id = uuid("job", &name);
            held.jobs.push_back(Job {
                uuid: id.clone(),
                description: format!("{verb} {}", self.here()),
                message,
                code,
                at: now,
            });
            while held.jobs.len() > JOBS {
                held.jobs.pop_front();
            }
            id
        });
        let href = format!("/api/cluster/jobs/{id}");
        json!({"job": {"uuid": id, "_links": {"self": {"href": href}}}})
    }

    /// Returns true if the client waits for the job of its change.
    pub(super) fn waited(&self) -> bool {
        let given = self.parameter("return_timeout");
        given.is_some_and(|text| text != "0")
    }

    /// Returns true for a change that ONTAP makes without a job: its clients expect 201 of a POST,
    /// and 200 of others.
    pub(super) fn at_once(&self) -> bool {
        matches!(
            self.path().as_slice(),
            ["storage", "snapshot-policies", ..]
                | ["cluster", "schedules" | "peers" | "nodes", ..]
                | ["network", ..]
                | ["protocols", ..]
                | ["snapmirror", "relationships", _, "transfers", ..]
        )
    }

    /// Returns true for the one change that ONTAP has a job for and always waits for.
    pub(super) fn deletes_qos_policy(&self) -> bool {
        self.call.verb == Some(Verb::Delete)
            && matches!(self.path().as_slice(), ["storage", "qos", "policies", _])
    }
}

/// Returns a link of a record to itself.
pub(super) fn itself(path: &str) -> Value {
    json!({"self": {"href": path}})
}

/// Returns a time, RFC 3339; null is outside of the calendar.
pub(crate) fn time(seconds: i64) -> Value {
    match weir_ontap::value::iso_timestamp(seconds) {
        text if text == "-" => Value::Null,
        text => json!(text),
    }
}

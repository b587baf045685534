//! ONTAP's own interface, as far as snapshots and SnapMirror need it: its REST resources and the
//! private command line.
//!
//! Everything is asked of a [`weir_ontap::Cluster`], which may wait for a disk. So a request is
//! handled as a whole on a thread where waiting is allowed, as a plain function from a request to a
//! reply. A change has happened, or its transfer is queued, when its reply is sent; ONTAP would
//! hand out a job to poll for. Its clients insist on one, so each change leaves a job that has
//! ended already. (Ansible polls once a minute: a job that were still running would cost that
//! minute.)
//!
//! - [`listing`]: GET with queries, fields, order, pages; [`body`]: what POST and PATCH carry;
//!   [`refusal`];
//! - [`volumes`], [`snapshots`], [`svms`], [`named`] and [`exports`] (policies of volumes),
//!   [`relationships`], [`transfers`], [`policies`] (of replication), [`node`], [`network`],
//!   [`services`], [`qtrees`]: the resources; [`absent`]: those that no server of this kind has;
//!   [`private_cli`]: commands.

mod absent;
mod body;
mod exports;
mod listing;
mod named;
mod network;
mod node;
mod policies;
mod private_cli;
mod qtrees;
mod refusal;
mod relationships;
mod services;
mod snapshots;
mod svms;
mod transfers;
mod volumes;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use weir_control::Actor;
pub(crate) use weir_ontap::value::{identity as uuid, iso_duration as duration};
use weir_ontap::{Cluster, Clusters};
use weir_relations::model::Path;

use crate::route::Verb;
pub(crate) use refusal::{Answered, Refusal};

/// Jobs that can still be asked for.
const JOBS: usize = 1024;
/// Restores that were announced and not begun.
const RESTORES: usize = 64;

/// The interface. What it remembers itself is bounded and gone with the process.
pub(crate) struct Surface {
    clusters: Clusters<Actor>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    jobs: VecDeque<Job>,
    restores: VecDeque<Restore>,
    made: u64,
}

/// A change that was made, or that failed after it was taken.
#[derive(Clone)]
struct Job {
    uuid: String,
    description: String,
    message: String,
    /// ONTAP's error code; 0 if the change was made.
    code: u32,
    at: i64,
}

/// `restore: true` makes a relationship that a transfer is to be asked of; the cluster does both as
/// one.
#[derive(Clone)]
struct Restore {
    uuid: String,
    source: Path,
    destination: Path,
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
    fn ok(body: Value) -> Reply {
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
struct Asked<'a> {
    surface: &'a Surface,
    cluster: &'a dyn Cluster,
    call: &'a Call,
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

    /// Handles a request and returns its reply. May block.
    pub fn answer(&self, actor: &Actor, call: &Call) -> Reply {
        let cluster = self.cluster(actor);
        let asked = Asked {
            surface: self,
            cluster: &*cluster,
            call,
        };
        asked.answer().unwrap_or_else(|e| Reply::refused(&e))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn jobs(&self) -> Vec<Job> {
        self.with(|held| held.jobs.iter().cloned().collect())
    }

    fn restores(&self) -> Vec<Restore> {
        self.with(|held| held.restores.iter().cloned().collect())
    }
}

impl Asked<'_> {
    /// Returns the parts of the request's path.
    fn path(&self) -> Vec<&str> {
        self.call.path.iter().map(String::as_str).collect()
    }

    fn answer(&self) -> Answered<Reply> {
        use Verb::{Delete, Get, Patch, Post};
        let path = self.path();
        if let ["private", "cli", words @ ..] = path.as_slice() {
            return private_cli::run(self, words);
        }
        let Some(verb) = self.call.verb else {
            return Err(Refusal::no_method("of this kind"));
        };
        match (verb, path.as_slice()) {
            (Get, ["cluster"]) => node::cluster(self),
            (Get, ["cluster", "nodes"]) => node::nodes(self, None),
            (Get, ["cluster", "nodes", uuid]) => node::nodes(self, Some(uuid)),
            (Get, ["cluster", "jobs"]) => node::jobs(self, None),
            (Get, ["cluster", "jobs", uuid]) => node::jobs(self, Some(uuid)),
            (Get, ["cluster", "schedules"]) => node::schedules(self, None),
            (Get, ["cluster", "schedules", uuid]) => node::schedules(self, Some(uuid)),
            (Post, ["cluster", "schedules"]) => node::create_schedule(self),
            (Delete, ["cluster", "schedules", uuid]) => node::delete_schedule(self, uuid),
            (Get, ["cluster", "peers"]) => node::peers(self, None),
            (Get, ["cluster", "peers", uuid]) => node::peers(self, Some(uuid)),
            (Post, ["cluster", "peers"]) => node::create_peer(self),
            (Delete, ["cluster", "peers", uuid]) => node::delete_peer(self, uuid),
            (Get, ["svm", "svms"]) => svms::list(self, None),
            (Get, ["svm", "svms", uuid]) => svms::list(self, Some(uuid)),
            (Post, ["svm", "svms"]) => svms::create(self),
            (Patch, ["svm", "svms", uuid]) => svms::modify(self, uuid),
            (Delete, ["svm", "svms", uuid]) => svms::delete(self, uuid),
            (Get, ["svm", "peers"]) => svms::svm_peers(self),
            (_, ["network", "ip", "interfaces", rest @ ..]) => {
                network::interfaces(self, verb, rest)
            }
            (_, ["storage", "qtrees", rest @ ..]) => qtrees::qtrees(self, verb, rest),
            (_, ["storage", "quota", rest @ ..]) => qtrees::quotas(self, verb, rest),
            (_, ["protocols", "nfs", "services", rest @ ..]) => {
                services::nfs_services(self, verb, rest)
            }
            (Patch, ["cluster", "nodes", uuid]) => node::change_node(self, uuid),
            (Get, ["storage", "aggregates"]) => svms::aggregates(self, None),
            (Get, ["storage", "aggregates", uuid]) => svms::aggregates(self, Some(uuid)),
            (_, ["protocols", "nfs", "export-policies", rest @ ..]) => {
                exports::list_or_change(self, verb, rest)
            }
            (_, ["storage", "qos", "policies", rest @ ..]) => named::qos_policies(self, verb, rest),
            (_, ["storage", "snapshot-policies", rest @ ..]) => {
                named::snapshot_policies(self, verb, rest)
            }
            (Get, ["storage", "volumes"]) => volumes::list(self, None),
            (Get, ["storage", "volumes", uuid]) => volumes::list(self, Some(uuid)),
            (Post, ["storage", "volumes"]) => volumes::create(self),
            (Patch, ["storage", "volumes", uuid]) => volumes::change(self, uuid),
            (Delete, ["storage", "volumes", uuid]) => volumes::delete(self, uuid),
            (Get, ["storage", "volumes", v, "snapshots"]) => snapshots::list(self, v, None),
            (Get, ["storage", "volumes", v, "snapshots", s]) => snapshots::list(self, v, Some(s)),
            (Post, ["storage", "volumes", v, "snapshots"]) => snapshots::create(self, v),
            (Patch, ["storage", "volumes", v, "snapshots", s]) => snapshots::change(self, v, s),
            (Delete, ["storage", "volumes", v, "snapshots", s]) => snapshots::delete(self, v, s),
            (_, ["snapmirror", rest @ ..]) => self.snapmirror(verb, rest),
            (_, path) if absent::is_kind(path) => absent::answer(self, verb),
            (_, [area, ..]) if ["cluster", "svm", "storage"].contains(area) => {
                Err(self.not_so(&path))
            }
            _ => Err(Refusal::no_api()),
        }
    }

    fn snapmirror(&self, verb: Verb, path: &[&str]) -> Answered<Reply> {
        use Verb::{Delete, Get, Patch, Post};
        match (verb, path) {
            (Get, ["relationships"]) => relationships::list(self),
            (Get, ["relationships", uuid]) => relationships::get(self, uuid),
            (Post, ["relationships"]) => relationships::create(self),
            (Patch, ["relationships", uuid]) => relationships::change(self, uuid),
            (Delete, ["relationships", uuid]) => relationships::delete(self, uuid),
            (Get, ["relationships", uuid, "transfers"]) => transfers::list(self, uuid, None),
            (Get, ["relationships", uuid, "transfers", t]) => transfers::list(self, uuid, Some(t)),
            (Post, ["relationships", uuid, "transfers"]) => transfers::create(self, uuid),
            (Patch, ["relationships", uuid, "transfers", t]) => transfers::change(self, uuid, t),
            (Get, ["policies"]) => policies::list(self, None),
            (Get, ["policies", uuid]) => policies::list(self, Some(uuid)),
            (Post, ["policies"]) => policies::create(self),
            (Patch, ["policies", uuid]) => policies::change(self, uuid),
            (Delete, ["policies", uuid]) => policies::delete(self, uuid),
            (_, [collection, ..]) if ["relationships", "policies"].contains(collection) => {
                Err(self.not_so(path))
            }
            _ => Err(Refusal::no_api()),
        }
    }

    /// Creates the refusal of a path of a known area that has no such method, or is no path after
    /// all.
    fn not_so(&self, path: &[&str]) -> Box<Refusal> {
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
    fn here(&self) -> String {
        format!("/api/{}", self.call.path.join("/"))
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.call.query.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a parameter that is true or false.
    fn flag(&self, name: &str) -> Answered<bool> {
        let text = self.parameter(name).unwrap_or("false");
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Refusal::value(name, text, "boolean")),
        }
    }

    /// Checks the parameters of a change: those that all changes take, and `more`.
    fn only(&self, more: &[&str]) -> Answered<()> {
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
    fn done(&self, made: Option<(String, Value)>) -> Answered<Reply> {
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
    fn failed(&self, refusal: Box<Refusal>) -> Answered<Reply> {
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
    fn job(&self, message: String, code: u32) -> Value {
        let now = self.cluster.now();
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
    fn waited(&self) -> bool {
        let given = self.parameter("return_timeout");
        given.is_some_and(|text| text != "0")
    }

    /// Returns true for a change that ONTAP makes without a job: its clients expect 201 of a POST,
    /// and 200 of others.
    fn at_once(&self) -> bool {
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
    fn deletes_qos_policy(&self) -> bool {
        self.call.verb == Some(Verb::Delete)
            && matches!(self.path().as_slice(), ["storage", "qos", "policies", _])
    }
}

/// Returns a link of a record to itself.
fn itself(path: &str) -> Value {
    json!({"self": {"href": path}})
}

/// Returns a time, RFC 3339; null is outside of the calendar.
pub(crate) fn time(seconds: i64) -> Value {
    match weir_ontap::value::iso_timestamp(seconds) {
        text if text == "-" => Value::Null,
        text => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_identities() {
        assert_eq!(duration(0), "PT0S");
        assert_eq!(duration(41), "PT41S");
        assert_eq!(duration(3661), "PT1H1M1S");
        assert_eq!(duration(7200), "PT2H");
        let a = uuid("policy", "MirrorLatest");
        assert_eq!(
            (a.len(), a.as_bytes()[14], a.matches('-').count()),
            (36, b'8', 4)
        );
        assert!("89ab".contains(char::from(a.as_bytes()[19])), "{a}");
        assert_ne!(a, uuid("policy", "MirrorLatesu"));
        assert_eq!(time(1_683_197_153), "2023-05-04T10:45:53+00:00");
    }
}

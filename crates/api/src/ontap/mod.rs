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
//!   [`resource`]: both by tables of fields; [`refusal`];
//! - [`volumes`], [`snapshots`], [`svms`], [`policy_common`] and [`exports`] (policies of volumes),
//!   [`relationships`], [`transfers`], [`policies`] (of replication), [`node`], [`network`],
//!   [`services`], [`shares`], [`qtrees`]: the resources; [`absent`]: those that no server of this
//!   kind has;
//!   [`private_cli`]: commands.

mod absent;
mod body;
mod exports;
mod listing;
mod network;
mod node;
mod policies;
mod policy_common;
mod private_cli;
mod qtrees;
mod refusal;
mod relationships;
mod resource;
mod services;
mod shares;
mod snapshots;
mod surface;
mod svms;
mod transfers;
mod volumes;

use weir_control::Actor;

use crate::route::Verb;
pub(crate) use refusal::{HandlerResult, Refusal};
use surface::CallContext;
pub(crate) use surface::{Call, Reply, Surface, time};

impl Surface {
    /// Handles a request and returns its reply. May block.
    pub fn answer(&self, actor: &Actor, call: &Call) -> Reply {
        let cluster = self.cluster(actor);
        let asked = CallContext {
            surface: self,
            cluster: &*cluster,
            call,
        };
        asked.answer().unwrap_or_else(|e| Reply::refused(&e))
    }
}

impl CallContext<'_> {
    fn answer(&self) -> HandlerResult<Reply> {
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
            (Get, ["cluster", "nodes"]) => node::nodes(self, false),
            (Get, ["cluster", "nodes", _]) => node::nodes(self, true),
            (Get, ["cluster", "jobs"]) => node::jobs(self, false),
            (Get, ["cluster", "jobs", _]) => node::jobs(self, true),
            (Get, ["cluster", "schedules"]) => node::schedules(self, false),
            (Get, ["cluster", "schedules", _]) => node::schedules(self, true),
            (Post, ["cluster", "schedules"]) => node::create_schedule(self),
            (Delete, ["cluster", "schedules", uuid]) => node::delete_schedule(self, uuid),
            (Get, ["cluster", "peers"]) => node::peers(self, false),
            (Get, ["cluster", "peers", _]) => node::peers(self, true),
            (Post, ["cluster", "peers"]) => node::create_peer(self),
            (Delete, ["cluster", "peers", uuid]) => node::delete_peer(self, uuid),
            (Get, ["svm", "svms"]) => svms::list(self, false),
            (Get, ["svm", "svms", _]) => svms::list(self, true),
            (Post, ["svm", "svms"]) => svms::create(self),
            (Patch, ["svm", "svms", _]) => svms::modify(self),
            (Delete, ["svm", "svms", _]) => svms::delete(self),
            (Get, ["svm", "peers"]) => svms::svm_peers(self, false),
            (Get, ["svm", "peers", _]) => svms::svm_peers(self, true),
            (_, ["network", "ip", "interfaces", rest @ ..]) => {
                network::interfaces(self, verb, rest)
            }
            (_, ["storage", "qtrees", rest @ ..]) => qtrees::qtrees(self, verb, rest),
            (_, ["storage", "quota", rest @ ..]) => qtrees::quotas(self, verb, rest),
            (_, ["protocols", "nfs", "services", rest @ ..]) => {
                services::nfs_services(self, verb, rest)
            }
            (_, ["protocols", "cifs", "shares", rest @ ..]) => shares::shares(self, verb, rest),
            (Patch, ["cluster", "nodes", _]) => node::change_node(self),
            (Get, ["storage", "aggregates"]) => svms::aggregates(self, false),
            (Get, ["storage", "aggregates", _]) => svms::aggregates(self, true),
            (_, ["protocols", "nfs", "export-policies", rest @ ..]) => {
                exports::list_or_change(self, verb, rest)
            }
            (_, ["storage", "qos", "policies", rest @ ..]) => {
                policy_common::qos_policies(self, verb, rest)
            }
            (_, ["storage", "snapshot-policies", rest @ ..]) => {
                policy_common::snapshot_policies(self, verb, rest)
            }
            (Get, ["storage", "volumes"]) => volumes::list(self, false),
            (Get, ["storage", "volumes", _]) => volumes::list(self, true),
            (Post, ["storage", "volumes"]) => volumes::create(self),
            (Patch, ["storage", "volumes", uuid]) => volumes::change(self, uuid),
            (Delete, ["storage", "volumes", uuid]) => volumes::delete(self, uuid),
            (Get, ["storage", "volumes", v, "snapshots"]) => snapshots::list(self, v, false),
            (Get, ["storage", "volumes", v, "snapshots", _]) => snapshots::list(self, v, true),
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

    fn snapmirror(&self, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
        use Verb::{Delete, Get, Patch, Post};
        match (verb, path) {
            (Get, ["relationships"]) => relationships::list(self),
            (Get, ["relationships", uuid]) => relationships::get(self, uuid),
            (Post, ["relationships"]) => relationships::create(self),
            (Patch, ["relationships", uuid]) => relationships::change(self, uuid),
            (Delete, ["relationships", uuid]) => relationships::delete(self, uuid),
            (Get, ["relationships", uuid, "transfers"]) => transfers::list(self, uuid, false),
            (Get, ["relationships", uuid, "transfers", _]) => transfers::list(self, uuid, true),
            (Post, ["relationships", uuid, "transfers"]) => transfers::create(self, uuid),
            (Patch, ["relationships", uuid, "transfers", t]) => transfers::change(self, uuid, t),
            (Get, ["policies"]) => policies::list(self, false),
            (Get, ["policies", _]) => policies::list(self, true),
            (Post, ["policies"]) => policies::create(self),
            (Patch, ["policies", uuid]) => policies::change(self, uuid),
            (Delete, ["policies", uuid]) => policies::delete(self, uuid),
            (_, [collection, ..]) if ["relationships", "policies"].contains(collection) => {
                Err(self.not_so(path))
            }
            _ => Err(Refusal::no_api()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ontap::value::{identity as uuid, iso_duration as duration};

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

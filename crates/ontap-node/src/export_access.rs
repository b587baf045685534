//! `vserver export-policy check-access`: decisions of the export policies that are in force.
//!
//! The data path's own rules decide, so that an answer here is that of a mount. A rule that demands
//! a protected connection is taken to have one.

use std::time::Duration;

use weir_base::VolumeId;
use weir_control::{ExportRule, NamedKind, PolicyBody, TreeExport, View, Volume};
use weir_ontap::cluster::{Failure, Reason};
use weir_ontap::storage::{AccessCheck, AccessQuery, AuthenticationMethod};
use weir_vfs::{Export, Flavour, Protocol, Rule};

use crate::storage::{DEFAULT, own};
use crate::{Answer, AsUser, missing, qtrees};

/// Maximum time for which a client's name is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two looks for a name.
const INTERVAL: Duration = Duration::from_millis(50);

/// A policy as rows name it, with the number of entries in the data path of each of its rules, by
/// the rules' indexes.
struct NamedRules {
    name: String,
    entries: Vec<(u32, usize)>,
}

/// Returns the number of rules in the data path for one of a policy: one for each client.
fn entries(rule: &ExportRule) -> usize {
    let clients = rule.allowed_clients.split(',');
    clients.filter(|client| !client.trim().is_empty()).count()
}

/// Returns the policy with this id; without one the rules that a volume or qtree has itself.
fn named_rules(
    view: &View,
    policy: Option<u64>,
    rules: Option<&[ExportRule]>,
    owner: &str,
) -> NamedRules {
    let mut policies = view.policies().filter(|p| p.name.kind == NamedKind::Export);
    let named = policies.find(|p| Some(p.id) == policy);
    if let Some((named, PolicyBody::Export(rules))) = named.map(|p| (p, &p.body)) {
        let entries = rules.iter().map(|r| (r.index, entries(&r.rule))).collect();
        let name = named.name.id.to_string();
        return NamedRules { name, entries };
    }
    let Some(rules) = rules else {
        let (name, entries) = (DEFAULT.to_owned(), Vec::new());
        return NamedRules { name, entries };
    };
    NamedRules {
        name: own(owner),
        entries: (1..).zip(rules.iter().map(entries)).collect(),
    }
}

impl NamedRules {
    /// Returns the index of the rule that has this place in the data path.
    fn index(&self, place: usize) -> u32 {
        let mut behind = 0;
        let found = self.entries.iter().find(|(_, count)| {
            behind += count;
            place < behind
        });
        // The server's options have no indexes: their places count.
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        found.map_or(place.saturating_add(1), |(index, _)| *index)
    }
}

/// Returns the access that a rule gives, of the access that is asked for.
fn access(rule: Option<&Rule>, query: &AccessQuery, writes: bool) -> &'static str {
    let flavour = match query.method {
        AuthenticationMethod::None => Flavour::None,
        AuthenticationMethod::Sys => Flavour::Sys,
        AuthenticationMethod::Krb5 => Flavour::Krb5,
        AuthenticationMethod::Krb5i => Flavour::Krb5Integrity,
        AuthenticationMethod::Krb5p => Flavour::Krb5Privacy,
    };
    match rule {
        Some(rule) if writes && rule.writers.contains(flavour) => "read-write",
        Some(rule) if !writes && rule.flavours.contains(flavour) => "read",
        _ => "denied",
    }
}

impl AsUser {
    /// Returns the decisions on a client's access, for the volume and then for the qtree.
    pub(crate) fn decide_access(&self, query: &AccessQuery) -> Answer<Vec<AccessCheck>> {
        let volume = self.volume(&query.volume)?;
        let number = self.tree_number(query)?;
        let view = self.server.control.view();
        let exports = self.server.counters.vfs.exports();
        let export = volume.number.and_then(|id| exports.of_volume(VolumeId(id)));
        let export = export.ok_or_else(|| {
            let why = "No client reaches the volume: it is offline or not mounted.";
            Failure::new(Reason::State, why)
        })?;
        let rules = named_rules(
            &view,
            volume.assigned.export,
            volume.export_rules.as_deref(),
            &volume.name.id,
        );
        // What may be changed in a qtree with a policy of its own, that policy says.
        let tree = number.and_then(|number| Some((number, volume.trees.get(&number)?)));
        let writes = query.writes && tree.is_none();
        let mut row = self.decide(export, None, &rules, query, writes)?;
        row.owner = volume.name.id.to_string();
        let Some(qtree) = &query.qtree else {
            return Ok(vec![row]);
        };
        let path = format!("{}/{qtree}", export.path);
        let below = match tree {
            None => AccessCheck {
                path,
                ..row.clone()
            },
            Some((number, own)) => {
                let rules = tree_rules(&view, &volume, own);
                let below = self.decide(export, Some(number), &rules, query, query.writes)?;
                AccessCheck {
                    path,
                    owner: qtree.clone(),
                    by_qtree: true,
                    ..below
                }
            }
        };
        Ok(vec![row, below])
    }

    /// Returns the number of the qtree that is asked about.
    fn tree_number(&self, query: &AccessQuery) -> Answer<Option<u32>> {
        let Some(name) = &query.qtree else {
            return Ok(None);
        };
        let mut all = self.all_qtrees(Some(&query.volume)).into_iter();
        let found = all.find(|tree| tree.name == *name);
        found.map(|tree| Some(tree.number)).ok_or_else(missing)
    }

    /// Returns the decision of an export's rules, or of a tree's.
    fn decide(
        &self,
        export: &Export,
        tree: Option<u32>,
        rules: &NamedRules,
        query: &AccessQuery,
        writes: bool,
    ) -> Answer<AccessCheck> {
        let vfs = &self.server.counters.vfs;
        let protocol = match query.nfs4 {
            true => Protocol::Nfsv4,
            false => Protocol::Nfsv3,
        };
        let until = self.server.clock.monotonic() + PATIENCE;
        let found = loop {
            match vfs.find_rule(export, tree, query.client, protocol) {
                Ok(found) => break found,
                Err(wait) if wait.coming && self.server.clock.monotonic() < until => {
                    std::thread::sleep(INTERVAL);
                }
                Err(_) => {
                    let client = query.client;
                    let why = format!(
                        "A rule of export policy \"{}\" decides on {client} by name, and the name service does not answer.",
                        rules.name
                    );
                    return Err(Failure::new(Reason::Busy, why));
                }
            }
        };
        Ok(AccessCheck {
            path: export.path.clone(),
            policy: rules.name.clone(),
            owner: String::new(),
            by_qtree: false,
            index: found.map_or(0, |(place, _)| rules.index(place)),
            access: access(found.map(|(_, rule)| rule), query, writes),
        })
    }
}

/// Returns the policy of a qtree that has its own.
fn tree_rules(view: &View, volume: &Volume, own: &TreeExport) -> NamedRules {
    let mut rules = named_rules(view, own.policy, own.rules.as_deref(), &volume.name.id);
    if own.unknown.is_some() {
        rules.name = qtrees::NOBODY.to_owned();
    }
    rules
}

//! Machines, aggregates, policies by name and the settings of volumes, in ONTAP's terms.
//!
//! A machine is a project, an aggregate a storage pool, a policy by name a row of the catalog
//! ([`weir_control::NamedPolicy`]). Rules or schedules of a volume's own, without a policy, are
//! shown as a policy by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use weir_control::{
    AccessType, Assign, Copies, ExportRule, Mutation, NamedKind, NamedPolicy, NumberedRule,
    Outcome, PolicyBody, PolicyName, SecurityStyle, SquashMode, Surface, VolumeChange,
};
use weir_ontap::cluster::{Cluster as _, Event, Failure, Job, NamedSchedule, Reason};
use weir_ontap::storage::{
    self, Aggregate, Details, PolicyChange, PolicyKey, Settings, StoragePolicy, Svm,
};
use weir_relations::model::Path;

use crate::{Answer, AsUser, GIB, refusal};

/// Export policy of volumes without one of their own: the options of the server.
pub(crate) const DEFAULT: &str = "default";
/// The snapshot policy of volumes that have none.
const NONE: &str = "none";
/// Uid of the anonymous user.
const NOBODY: u32 = 65_534;

fn name_of(key: &PolicyKey) -> PolicyName {
    PolicyName::new(key.kind, &key.svm, &key.name)
}

/// Returns the policy name for a volume's own rules or schedules.
pub(crate) fn own(volume: &str) -> String {
    format!("weir:{volume}")
}

fn unsupported(message: String) -> Failure {
    Failure::new(Reason::Unsupported, message)
}

/// `Ok(true)`: those that the word admits may do it; `Ok(false)`: nobody may.
fn admits(words: &[String], field: &str) -> Answer<bool> {
    for word in words {
        match word.as_str() {
            "any" | "sys" | "none" | "never" => {}
            other => {
                let message = format!("{field}: security style \"{other}\" is not served.");
                return Err(unsupported(message).by("EXPORT_RULE_SECURITY"));
            }
        }
    }
    let never = words.iter().any(|w| w == "never");
    if words.is_empty() || (never && words.len() > 1) {
        let message = format!("{field}: name security styles, or \"never\" alone.");
        return Err(Failure::new(Reason::Invalid, message).by("EXPORT_RULE_INVALID"));
    }
    Ok(!never)
}

/// Returns true if callers become the anonymous user.
fn anonymous(words: &[String]) -> bool {
    words.iter().all(|w| w == "none")
}

/// A rule as the node enforces it.
fn enforced(rule: &storage::ExportRule) -> Answer<ExportRule> {
    let mut versions = (None, None);
    for protocol in &rule.protocols {
        let all = versions;
        versions = match protocol.as_str() {
            "any" => (None, None),
            "nfs" => (Some(true), Some(true)),
            "nfs3" => (Some(true), all.1),
            "nfs4" => (all.0, Some(true)),
            other => {
                let message = format!("protocols: \"{other}\" is not served.");
                return Err(unsupported(message).by("EXPORT_RULE_SECURITY"));
            }
        };
    }
    let invalid =
        |message: String| Failure::new(Reason::Invalid, message).by("EXPORT_RULE_INVALID");
    let (reads, writes) = (admits(&rule.ro, "ro_rule")?, admits(&rule.rw, "rw_rule")?);
    let access = match (reads, writes) {
        (true, true) => AccessType::ReadWrite,
        (true, false) => AccessType::ReadOnly,
        (false, false) => AccessType::ReadNone,
        (false, true) => {
            let message = "ro_rule: who may not read may not write either.".to_owned();
            return Err(invalid(message));
        }
    };
    let all = match (reads && anonymous(&rule.ro), writes && anonymous(&rule.rw)) {
        (read, write) if read == write || !writes => read,
        _ => {
            let message = "ro_rule and rw_rule: \"none\" for one of them alone is not served.";
            return Err(unsupported(message.to_owned()).by("EXPORT_RULE_SECURITY"));
        }
    };
    let root = admits(&rule.superuser, "superuser")?;
    let squash = match (all, root && !anonymous(&rule.superuser)) {
        (true, _) => SquashMode::AllSquash,
        (false, true) => SquashMode::NoRootSquash,
        (false, false) => SquashMode::RootSquash,
    };
    let uid = match rule.anonymous.as_str() {
        "nobody" => NOBODY,
        "root" => 0,
        digits => digits
            .parse()
            .map_err(|_| invalid(format!("anonymous_user: \"{digits}\" is no user id.")))?,
    };
    Ok(ExportRule {
        allowed_clients: rule.clients.join(","),
        access: Some(access),
        nfsv3: versions.0.or(versions.1.map(|_| false)),
        nfsv4: versions.1.or(versions.0.map(|_| false)),
        squash: Some(squash),
        anon_uid: Some(uid),
        ..ExportRule::default()
    })
}

/// A rule with the client's words for it.
fn numbered(rule: &storage::ExportRule) -> Answer<NumberedRule> {
    let lists = [
        ("protocols", &rule.protocols),
        ("ro", &rule.ro),
        ("rw", &rule.rw),
        ("superuser", &rule.superuser),
    ];
    let mut words: serde_json::Map<String, serde_json::Value> = lists
        .into_iter()
        .map(|(name, list)| (name.to_owned(), list.clone().into()))
        .collect();
    words.insert("anonymous".to_owned(), rule.anonymous.clone().into());
    Ok(NumberedRule {
        index: rule.index,
        rule: enforced(rule)?,
        words,
    })
}

/// The rule in the words that it was made with.
fn worded(rule: &NumberedRule) -> storage::ExportRule {
    let list = |name: &str| -> Vec<String> {
        let all = rule.words.get(name).and_then(|v| v.as_array());
        let all = all.into_iter().flatten().filter_map(|v| v.as_str());
        all.map(str::to_owned).collect()
    };
    let clients = rule.rule.allowed_clients.split(',');
    let anonymous = rule.words.get("anonymous").and_then(|v| v.as_str());
    storage::ExportRule {
        index: rule.index,
        clients: clients.map(|c| c.trim().to_owned()).collect(),
        protocols: list("protocols"),
        ro: list("ro"),
        rw: list("rw"),
        superuser: list("superuser"),
        anonymous: anonymous.unwrap_or("65534").to_owned(),
    }
}

/// Translates a schedule of the catalog into ONTAP's words.
fn copies_in_words(copies: &Copies) -> storage::Copies {
    storage::Copies {
        schedule: copies.schedule.to_string(),
        count: copies.keep,
        label: copies.period().map(|period| period.as_str().to_owned()),
    }
}

/// Translates a policy of the catalog into ONTAP's words.
fn in_words(body: &PolicyBody) -> storage::PolicyBody {
    let never = body.try_map(
        |rule| Ok::<_, Infallible>(worded(rule)),
        |copies| Ok(copies_in_words(copies)),
    );
    match never {
        Ok(body) => body,
    }
}

/// A policy that is no row.
fn virtual_one(key: PolicyKey, users: usize, body: storage::PolicyBody) -> StoragePolicy {
    StoragePolicy {
        key,
        id: 0,
        revision: 0,
        comment: String::new(),
        body,
        users,
        system: true,
    }
}

/// Translates a schedule in ONTAP's words into one of the catalog; `known` are the cluster's
/// schedules.
fn catalog_copies(known: &[NamedSchedule], copies: &storage::Copies) -> Answer<Copies> {
    let found = known.iter().find(|s| s.name == copies.schedule);
    let found = found.ok_or_else(|| {
        let message = format!("Schedule \"{}\" not found.", copies.schedule);
        Failure::new(Reason::NotFound, message).by("SCHEDULE_NOT_FOUND")
    })?;
    let made = Copies {
        schedule: copies.schedule.as_str().into(),
        at: found.schedule,
        keep: copies.count,
    };
    let period = made.period().map(|period| period.as_str());
    match (copies.label.as_deref(), period) {
        (Some(asked), Some(period)) if asked != period => {
            let message = format!(
                "Snapshots of schedule \"{}\" have \"{period}\" as their prefix and label, not \"{asked}\".",
                copies.schedule
            );
            Err(unsupported(message).by("SNAPSHOT_LABEL"))
        }
        _ => Ok(made),
    }
}

impl AsUser {
    /// Translates a policy in ONTAP's words into one of the catalog.
    fn catalog_body(&self, body: &storage::PolicyBody) -> Answer<PolicyBody> {
        let known = self.schedules();
        let mut body = body.try_map(numbered, |copies| catalog_copies(&known, copies))?;
        if let PolicyBody::Export(rules) = &mut body {
            rules.sort_by_key(|rule| rule.index);
        }
        Ok(body)
    }

    pub(crate) fn change_policy(&self, key: &PolicyKey, change: &PolicyChange) -> Answer<()> {
        let change = change.try_map(|body| self.catalog_body(body))?;
        self.submit(Mutation::ChangePolicy(name_of(key), change))
    }

    pub(crate) fn named_policies(&self, of: NamedKind) -> Vec<StoragePolicy> {
        let view = self.server.control.view();
        let mut users: BTreeMap<u64, usize> = BTreeMap::new();
        let mut without = 0;
        for volume in view.every_volume(Surface::Netapp) {
            let assigned = &volume.assigned;
            let (id, own) = match of {
                NamedKind::Project => (None, true),
                NamedKind::Export => (assigned.export, volume.export_rules.is_some()),
                NamedKind::Qos => (assigned.qos, true),
                NamedKind::Snapshot => (assigned.snapshot, volume.snapshot_policy.is_some()),
            };
            match id {
                Some(id) => *users.entry(id).or_default() += 1,
                None if !own => without += 1,
                None => {}
            }
        }
        let listed = |policy: &NamedPolicy| StoragePolicy {
            key: PolicyKey {
                kind: of,
                svm: policy.name.project.to_string(),
                name: policy.name.id.to_string(),
            },
            id: policy.id,
            revision: policy.revision,
            comment: policy.comment.clone(),
            body: in_words(&policy.body),
            users: users.get(&policy.id).copied().unwrap_or(0),
            system: policy.is_builtin(),
        };
        let rows = view.policies().filter(|p| p.name.kind == of);
        let mut all: Vec<StoragePolicy> = rows.map(|p| listed(p)).collect();
        let key = |name: &str| PolicyKey {
            kind: of,
            svm: String::new(),
            name: name.to_owned(),
        };
        match of {
            NamedKind::Export => {
                let body = storage::PolicyBody::Export(Vec::new());
                all.push(virtual_one(key(DEFAULT), without, body));
            }
            NamedKind::Snapshot => {
                let body = storage::PolicyBody::Snapshot {
                    enabled: false,
                    copies: Vec::new(),
                };
                all.push(virtual_one(key(NONE), without, body));
            }
            NamedKind::Project | NamedKind::Qos => {}
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    pub(crate) fn machines(&self) -> Vec<Svm> {
        let view = self.server.control.view();
        let mut names: BTreeSet<&str> = view.every_pool().map(|p| &*p.name.place.project).collect();
        names.extend(
            view.every_volume(Surface::Netapp)
                .map(|v| &*v.name.place.project),
        );
        let projects = view.policies().map(|p| &*p.name.project);
        names.extend(projects.filter(|project| !project.is_empty()));
        let svm = |name: &str| {
            let row = view.policy(&PolicyName::new(NamedKind::Project, name, name));
            let pools = view.every_pool().filter(|p| *p.name.place.project == *name);
            let mut aggregates: Vec<String> = pools.map(|p| p.name.id.to_string()).collect();
            aggregates.dedup();
            Svm {
                name: name.to_owned(),
                comment: row.map(|r| r.comment.clone()).unwrap_or_default(),
                aggregates,
            }
        };
        names.into_iter().map(svm).collect()
    }

    /// Operations that the catalog still has, newest first.
    pub(crate) fn operations(&self) -> Vec<Job> {
        let view = self.server.control.view();
        let job = |operation: &std::sync::Arc<weir_control::Operation>| {
            let target = operation.job.target();
            let (state, why) = match &operation.outcome {
                None => ("Running", String::new()),
                Some(Outcome::Failed(refusal)) => ("Failure", format!(": {}", refusal.message)),
                Some(_) => ("Success", String::new()),
            };
            let at = operation.created.0;
            Job {
                // Milliseconds of some three years: they tell apart what a log of operations holds.
                id: u64::try_from(at / 1_000_000).unwrap_or(0) % 100_000_000_000,
                name: format!("{} {}", target.noun(), operation.job.verb()),
                vserver: target.place().project.to_string(),
                state,
                description: format!("{target}{why}"),
                at: at.div_euclid(1_000_000_000),
            }
        };
        let mut all: Vec<Job> = view.every_operation().map(job).collect();
        all.sort_by_key(|job| std::cmp::Reverse(job.id));
        all
    }

    pub(crate) fn audited(&self, most: u32) -> Answer<Vec<Event>> {
        let control = &self.server.control;
        let read = control.audit(None, most, &self.actor);
        let entries = self.server.runtime.block_on(read);
        let entries = entries.map_err(|why| refusal(&why))?;
        let node = self.server.name.clone();
        let event = |entry: weir_control::AuditEntry| Event {
            number: u64::try_from(entry.seq).unwrap_or(0),
            at: entry.seq.div_euclid(1_000_000_000),
            node: node.clone(),
            severity: match entry.outcome.starts_with("refused")
                || entry.outcome.starts_with("failed")
            {
                true => "ERROR",
                false => "NOTICE",
            },
            text: format!(
                "audit.{}: {} by {}: {}",
                entry.verb, entry.target, entry.actor, entry.outcome
            ),
        };
        Ok(entries.into_iter().map(event).collect())
    }

    pub(crate) fn pools(&self) -> Vec<Aggregate> {
        let view = self.server.control.view();
        let aggregate = |pool: &std::sync::Arc<weir_control::Pool>| {
            let volumes = view.volumes_of(&pool.name);
            let used = volumes.filter_map(|v| self.server.engine.volume(&v.key));
            Aggregate {
                name: pool.name.id.to_string(),
                svm: pool.name.place.project.to_string(),
                location: pool.name.place.location.to_string(),
                size: pool.capacity_gib.saturating_mul(GIB),
                used: used.map(|v| v.used()).sum(),
                volumes: view.pool_use(&pool.name).volumes,
            }
        };
        view.every_pool().map(aggregate).collect()
    }

    /// A volume's settings.
    pub(crate) fn details(&self, volume: &weir_control::Volume) -> Details {
        let view = self.server.control.view();
        let named = |id: Option<u64>| {
            let id = id?;
            let found = view.policies().find(|p| p.id == id);
            found.map(|p| p.name.id.to_string())
        };
        let assigned = &volume.assigned;
        let or_own = |id: Option<u64>, own_one: bool, none: &str| match (named(id), own_one) {
            (Some(name), _) => name,
            (None, true) => own(&volume.name.id),
            (None, false) => none.to_owned(),
        };
        Details {
            provisioned: volume.capacity_gib.saturating_mul(GIB),
            comment: volume.description.clone(),
            online: !assigned.offline,
            export_policy: or_own(assigned.export, volume.export_rules.is_some(), DEFAULT),
            snapshot_policy: or_own(assigned.snapshot, volume.snapshot_policy.is_some(), NONE),
            qos_policy: named(assigned.qos),
            permissions: volume.unix_permissions,
            ntfs: volume.smb.style == Some(SecurityStyle::Ntfs),
            snapshot_directory: volume.snapshot_directory,
            snapshot_reserve: volume.snap_reserve.unwrap_or(0.0).round() as u32,
            splitting: volume.splitting,
            movement: self.movement(volume),
        }
    }

    /// Returns the assignments by name in `settings`: policies, path and state.
    ///
    /// # Errors
    /// The junction path does not begin with a slash.
    pub(crate) fn assigned(settings: &Settings) -> Answer<Assign> {
        let path = match &settings.junction {
            None => None,
            Some(None) => Some(None),
            Some(Some(path)) => match path.strip_prefix('/') {
                Some(path) => Some(Some(path.to_owned())),
                None => {
                    let message = format!("Junction path \"{path}\" has to begin with a slash.");
                    return Err(Failure::new(Reason::Invalid, message).by("SHARE_NAME_INVALID"));
                }
            },
        };
        let named = |name: &Option<String>, none: &[&str]| {
            let name = name.as_deref()?;
            Some(
                Some(name)
                    .filter(|name| !none.contains(name))
                    .map(str::to_owned),
            )
        };
        Ok(Assign {
            export: named(&settings.export_policy, &[DEFAULT]),
            trees: Vec::new(),
            qos: named(&settings.qos_policy, &["", "-", NONE]),
            snapshot: named(&settings.snapshot_policy, &["", "-", NONE]),
            offline: settings.online.map(|online| !online),
            path,
            synchronous: None,
        })
    }

    pub(crate) fn modify_volume(&self, path: &Path, settings: &Settings) -> Answer<()> {
        let volume = self.volume(path)?;
        // Named as it is already: nothing is asked for.
        let mut settings = settings.clone();
        let now = self.details(&volume);
        let same = |asked: &mut Option<String>, now: &str| {
            if asked.as_deref() == Some(now) {
                *asked = None;
            }
        };
        same(&mut settings.export_policy, &now.export_policy);
        same(&mut settings.snapshot_policy, &now.snapshot_policy);
        same(
            &mut settings.qos_policy,
            now.qos_policy.as_deref().unwrap_or(NONE),
        );
        let elsewhere = settings
            .aggregate
            .take_if(|pool| self.is_elsewhere(&volume, pool));
        let here = volume.pooled().map(|pooled| &*pooled.pool);
        let mode = settings.permissions.filter(|mode| *mode != now.permissions);
        // How another client wrote it is not how it is any more.
        let extra = mode.map(|_| ("unixPermissions".to_owned(), serde_json::Value::Null));
        let change = VolumeChange {
            pool: settings
                .aggregate
                .clone()
                .filter(|pool| Some(&**pool) != here),
            capacity_gib: settings.size.map(|size| size.div_ceil(GIB)),
            unix_permissions: mode,
            snapshot_directory: settings.snapshot_directory,
            snap_reserve: settings.snapshot_reserve.map(f64::from),
            description: settings.comment.clone(),
            assign: AsUser::assigned(&settings)?,
            extra: extra.into_iter().collect(),
            ..VolumeChange::default()
        };
        if change != VolumeChange::default() || elsewhere.is_none() {
            self.submit(Mutation::UpdateVolume(volume.name.clone(), change))?;
        }
        match elsewhere {
            Some(to) => self.move_volume(path, &to),
            None => Ok(()),
        }
    }

    pub(crate) fn rename_volume(&self, path: &Path, to: &str) -> Answer<()> {
        let name = self.volume(path)?.name.clone();
        if self.volume(&Path::local(&path.vserver, to)).is_ok() {
            let message = format!("Volume name \"{to}\" is already in use.");
            return Err(Failure::new(Reason::Duplicate, message));
        }
        let to = to.to_owned();
        self.unless_needed("rename", Mutation::RenameVolume { name, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(protocols: &str, ro: &str, rw: &str, superuser: &str) -> storage::ExportRule {
        let list = |text: &str| text.split(',').map(str::to_owned).collect();
        storage::ExportRule {
            index: 1,
            clients: vec!["10.0.0.0/8".to_owned(), "host7".to_owned()],
            protocols: list(protocols),
            ro: list(ro),
            rw: list(rw),
            superuser: list(superuser),
            anonymous: "nobody".to_owned(),
        }
    }

    #[test]
    fn rules_mean_what_ontap_means_by_them() {
        use AccessType::{ReadNone, ReadOnly, ReadWrite};
        use SquashMode::{AllSquash, NoRootSquash, RootSquash};
        let both = (Some(true), Some(true));
        for (words, access, versions, squash) in [
            (
                ("any", "any", "any", "any"),
                ReadWrite,
                (None, None),
                NoRootSquash,
            ),
            (("nfs", "sys", "sys", "none"), ReadWrite, both, RootSquash),
            (
                ("nfs3", "sys", "never", "sys"),
                ReadOnly,
                (Some(true), Some(false)),
                NoRootSquash,
            ),
            (
                ("nfs4", "never", "never", "any"),
                ReadNone,
                (Some(false), Some(true)),
                NoRootSquash,
            ),
            (
                ("nfs3,nfs4", "none", "none", "any"),
                ReadWrite,
                both,
                AllSquash,
            ),
            (
                ("any", "none", "never", "any"),
                ReadOnly,
                (None, None),
                AllSquash,
            ),
            (
                ("any", "sys,none", "sys,none", "never"),
                ReadWrite,
                (None, None),
                RootSquash,
            ),
        ] {
            let asked = rule(words.0, words.1, words.2, words.3);
            let made = enforced(&asked).unwrap();
            assert_eq!(made.access, Some(access), "{words:?}");
            assert_eq!((made.nfsv3, made.nfsv4), versions, "{words:?}");
            assert_eq!(made.squash, Some(squash), "{words:?}");
            assert_eq!(
                (made.anon_uid, &*made.allowed_clients),
                (Some(NOBODY), "10.0.0.0/8,host7")
            );
            // And it is shown in the words that it was made with.
            assert_eq!(worded(&numbered(&asked).unwrap()), asked);
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for (words, reason) in [
            (("any", "krb5", "any", "any"), Reason::Unsupported),
            (("cifs", "any", "any", "any"), Reason::Unsupported),
            (("any", "sys", "none", "any"), Reason::Unsupported),
            (("any", "never", "sys", "any"), Reason::Invalid),
            (("any", "never,sys", "sys", "any"), Reason::Invalid),
        ] {
            let refused = enforced(&rule(words.0, words.1, words.2, words.3)).unwrap_err();
            assert_eq!(refused.reason, reason, "{words:?}");
        }
        let mut someone = rule("any", "any", "any", "any");
        someone.anonymous = "someone".to_owned();
        assert_eq!(enforced(&someone).unwrap_err().reason, Reason::Invalid);
    }
}

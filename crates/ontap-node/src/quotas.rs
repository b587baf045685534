//! Quotas of volumes, in ONTAP's words.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_control::{
    Mutation, NewQuotaRule, QuotaRuleChange, QuotaSubject, Surface, Volume as Intended,
    VolumeChange,
};
use weir_ontap::cluster::{Failure, Reason};
use weir_ontap::storage::{QuotaLimits, QuotaRule, QuotaState, QuotaTarget, QuotaUse};
use weir_relations::model::Path;
use weir_volume::{QuotaEntry, QuotaKind, Volume};

use crate::{Answer, AsUser};

const BLOCK: u64 = 4096;

fn path(volume: &Intended) -> Path {
    Path::local(&volume.name.place.project, &volume.name.id)
}

fn target(subject: QuotaSubject) -> QuotaTarget {
    match subject {
        QuotaSubject::DefaultUser => QuotaTarget::DefaultUser,
        QuotaSubject::DefaultGroup => QuotaTarget::DefaultGroup,
        QuotaSubject::User(id) => QuotaTarget::User(id),
        QuotaSubject::Group(id) => QuotaTarget::Group(id),
        QuotaSubject::DefaultTree => QuotaTarget::DefaultTree,
        QuotaSubject::Tree(id) => QuotaTarget::Tree(id),
    }
}

fn subject(target: QuotaTarget) -> QuotaSubject {
    match target {
        QuotaTarget::DefaultUser => QuotaSubject::DefaultUser,
        QuotaTarget::DefaultGroup => QuotaSubject::DefaultGroup,
        QuotaTarget::User(id) => QuotaSubject::User(id),
        QuotaTarget::Group(id) => QuotaSubject::Group(id),
        QuotaTarget::DefaultTree => QuotaSubject::DefaultTree,
        QuotaTarget::Tree(id) => QuotaSubject::Tree(id),
    }
}

/// Returns the id of a new rule in the control plane: `user-1001`, `default-group`.
fn id_of(target: QuotaTarget) -> String {
    match target.is_default() {
        true => format!("default-{}", target.kind()),
        false => format!("{}-{}", target.kind(), target.name()),
    }
}

fn usage(volume: &Path, entry: &QuotaEntry) -> QuotaUse {
    let QuotaEntry { id, usage, limit } = *entry;
    let counted = |n: i64| u64::try_from(n).unwrap_or(0);
    QuotaUse {
        rule: QuotaRule {
            volume: volume.clone(),
            target: match id.kind {
                QuotaKind::User => QuotaTarget::User(id.id),
                QuotaKind::Group => QuotaTarget::Group(id.id),
                QuotaKind::Tree => QuotaTarget::Tree(id.id),
            },
            limits: QuotaLimits {
                bytes: limit.bytes,
                soft_bytes: limit.soft_bytes,
                files: limit.files,
                soft_files: limit.soft_files,
            },
        },
        used_bytes: counted(usage.blocks) * BLOCK,
        used_files: counted(usage.files),
    }
}

impl AsUser {
    /// Volumes that have rules.
    fn with_quotas(&self) -> Vec<Arc<Intended>> {
        let view = self.server.control.view();
        let all = view.every_volume(Surface::Netapp);
        all.filter(|v| !v.quotas.rules.is_empty())
            .cloned()
            .collect()
    }

    fn engine_volume(&self, volume: &Intended) -> Option<Arc<Volume>> {
        self.server.engine.volume(&volume.key)
    }

    pub(crate) fn all_quota_rules(&self) -> Vec<QuotaRule> {
        let volumes = self.with_quotas();
        let rules = volumes.iter().flat_map(|volume| {
            volume.quotas.rules.iter().map(|rule| QuotaRule {
                volume: path(volume),
                target: target(rule.subject),
                limits: QuotaLimits {
                    bytes: rule.limits.bytes,
                    soft_bytes: rule.limits.soft_bytes,
                    files: rule.limits.files,
                    soft_files: rule.limits.soft_files,
                },
            })
        });
        let mut rules: Vec<QuotaRule> = rules.collect();
        rules.sort_by(|a, b| (&a.volume, a.target).cmp(&(&b.volume, b.target)));
        rules
    }

    pub(crate) fn all_quota_uses(&self) -> Vec<QuotaUse> {
        let mut all = Vec::new();
        for volume in self.with_quotas() {
            let path = path(&volume);
            let report = self.engine_volume(&volume).map(|v| v.quota_report());
            all.extend(report.iter().flatten().map(|entry| usage(&path, entry)));
        }
        all.sort_by(|a, b| (&a.rule.volume, a.rule.target).cmp(&(&b.rule.volume, b.rule.target)));
        all
    }

    pub(crate) fn all_quota_states(&self) -> BTreeMap<Path, QuotaState> {
        let volumes = self.with_quotas();
        let states = volumes.iter().map(|volume| {
            let state = self.engine_volume(volume).map(|v| v.quota_state());
            let state = match state {
                Some(weir_volume::QuotaState::On) => QuotaState::On,
                Some(weir_volume::QuotaState::Initializing) => QuotaState::Initializing,
                Some(weir_volume::QuotaState::Off) | None => QuotaState::Off,
            };
            (path(volume), state)
        });
        states.collect()
    }

    /// Makes a rule, or gives one other limits.
    pub(crate) fn set_quota(
        &self,
        volume: &Path,
        target: QuotaTarget,
        new: bool,
        limits: QuotaLimits,
    ) -> Answer<()> {
        if matches!(target, QuotaTarget::DefaultTree | QuotaTarget::Tree(_))
            && !self.server.engine.has_trees()
        {
            let why = "The data folder was made by an earlier version, and has no qtrees: stop the server, run `weir upgrade`, and start it again.";
            return Err(Failure::new(Reason::Unsupported, why));
        }
        let volume = self.volume(volume)?;
        let there = volume.quotas.find_rule(subject(target));
        let mutation = match (new, there) {
            (true, _) => Mutation::CreateQuotaRule(
                volume.name.quota_rule(&id_of(target)),
                NewQuotaRule {
                    subject: subject(target),
                    limits: weir_control::QuotaLimits {
                        bytes: limits.bytes,
                        soft_bytes: limits.soft_bytes,
                        files: limits.files,
                        soft_files: limits.soft_files,
                    },
                    description: String::new(),
                    labels: Default::default(),
                    extra: Default::default(),
                },
            ),
            (false, Some(rule)) => Mutation::UpdateQuotaRule(
                volume.name.quota_rule(&rule.id),
                QuotaRuleChange {
                    bytes: Some(limits.bytes),
                    soft_bytes: Some(limits.soft_bytes),
                    files: Some(limits.files),
                    soft_files: Some(limits.soft_files),
                    ..QuotaRuleChange::default()
                },
            ),
            (false, None) => return Err(no_rule()),
        };
        self.submit(mutation)
    }

    pub(crate) fn remove_quota(&self, volume: &Path, target: QuotaTarget) -> Answer<()> {
        let volume = self.volume(volume)?;
        let rule = volume
            .quotas
            .find_rule(subject(target))
            .ok_or_else(no_rule)?;
        let name = volume.name.quota_rule(&rule.id);
        self.submit(Mutation::DeleteQuotaRule(name))
    }

    /// Switches the rules of a volume on or off.
    pub(crate) fn switch_quotas(&self, volume: &Path, on: bool) -> Answer<()> {
        let volume = self.volume(volume)?;
        let is_so = volume.quotas.off != on;
        if is_so || volume.quotas.rules.is_empty() {
            return Ok(());
        }
        let change = VolumeChange {
            quotas_on: Some(on),
            ..VolumeChange::default()
        };
        self.submit(Mutation::UpdateVolume(volume.name.clone(), change))
    }
}

fn no_rule() -> Failure {
    Failure::new(Reason::NotFound, "There is no such quota rule.")
}

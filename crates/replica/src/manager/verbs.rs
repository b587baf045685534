//! What users ask for, and what ONTAP would answer.

use super::state::{Entry, Known, State, Work};
use super::{
    DEFAULT_POLICY, Facts, Manager, NO_ENTRIES, Now, Order, Reason, Refused, Side, TRIES, Verb,
    Wanted, refuse, uuid,
};
use crate::model::{
    ABORTED, MirrorState, Path, Policy, Rule, THROTTLE_LEAST, THROTTLE_MOST, TransferKind,
    system_policies,
};
use crate::retention::common;
use crate::schedule;
use weir_base::limits::replica::{
    MAX_CLIENT_ANNOTATION, MAX_COMMENT, MAX_GIVEN_NAME, MAX_KEPT, MAX_POLICY_RULES,
};

type Outcome = Result<(), Refused>;

impl Manager {
    /// Carries out what is quick, and queues what takes time. What was accepted is in the journal when this returns.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn change(&mut self, verb: Verb, facts: &Facts, now: Now) -> Outcome {
        let mut next = self.state.clone();
        match verb {
            Verb::Create {
                source,
                shown,
                destination,
                policy,
                schedule,
                throttle,
                tries,
                annotation,
            } => {
                let mut entry = self.new_entry(source, shown, destination, facts, now)?;
                let (source, destination) = (&entry.source, &entry.destination);
                if upstream(&self.state.entries, source, destination) {
                    return refuse(Reason::State, looped(source, destination));
                }
                entry.tries = tries.unwrap_or(TRIES);
                entry.annotation = short(annotation, MAX_CLIENT_ANNOTATION)?;
                if let Some(policy) = policy {
                    entry.policy = self.known_policy(policy)?;
                }
                entry.schedule = self.known_schedule(schedule)?;
                entry.throttle = in_range(throttle)?;
                let to = destination_side(&entry.destination, facts)?;
                let from = source_side(&entry, facts)?;
                protected(&entry.destination, to)?;
                large_enough(from, to)?;
                next.entries.push(entry);
            }
            Verb::Modify {
                destination,
                policy,
                schedule,
                throttle,
                tries,
                annotation,
            } => {
                let annotation = annotation.map(|text| short(text, MAX_CLIENT_ANNOTATION));
                let annotation = annotation.transpose()?;
                let policy = policy.map(|name| self.known_policy(name)).transpose()?;
                let schedule = schedule.map(|name| self.known_schedule(name)).transpose()?;
                let throttle = throttle.map(in_range).transpose()?;
                let entry = found(&mut next, &destination)?;
                entry.policy = policy.unwrap_or(entry.policy.clone());
                if let Some(schedule) = schedule.filter(|schedule| *schedule != entry.schedule) {
                    // Its slots count from now on: what the schedule before missed is not made up for.
                    (entry.schedule, entry.scheduled) = (schedule, now.wall);
                }
                entry.throttle = throttle.unwrap_or(entry.throttle);
                entry.tries = tries.unwrap_or(entry.tries);
                entry.annotation = annotation.unwrap_or(entry.annotation.clone());
            }
            Verb::Initialize(wanted) => {
                let entry = found(&mut next, &wanted.destination)?;
                self.free(entry)?;
                awake(entry)?;
                if entry.restore {
                    return refuse(
                        Reason::State,
                        "This operation is not allowed on a restore relationship.",
                    );
                }
                match entry.state {
                    MirrorState::Uninitialized => {}
                    MirrorState::Snapmirrored => {
                        return refuse(
                            Reason::State,
                            format!(
                                "Relationship with destination \"{}\" is already initialized.",
                                entry.destination
                            ),
                        );
                    }
                    MirrorState::BrokenOff => {
                        return refuse(Reason::State, not_protected(&entry.destination));
                    }
                }
                let to = destination_side(&entry.destination, facts)?;
                protected(&entry.destination, to)?;
                // A source that cannot be reached now is tried again; one that is known must fit.
                if let Ok(from) = &facts.source {
                    large_enough(from, to)?;
                    has_snapshot(entry, &wanted, from)?;
                }
                begin(entry, TransferKind::Initialize, wanted, now)?;
            }
            Verb::Update(wanted) => {
                let entry = found(&mut next, &wanted.destination)?;
                self.free(entry)?;
                awake(entry)?;
                match entry.state {
                    MirrorState::Uninitialized => {
                        return refuse(Reason::State, not_initialized(entry));
                    }
                    MirrorState::BrokenOff => {
                        return refuse(Reason::State, not_protected(&entry.destination));
                    }
                    MirrorState::Snapmirrored => {}
                }
                if let Ok(from) = &facts.source {
                    has_snapshot(entry, &wanted, from)?;
                }
                begin(entry, TransferKind::Update, wanted, now)?;
            }
            Verb::Quiesce(destination) => found(&mut next, &destination)?.quiesced = true,
            Verb::Resume(destination) => {
                let entry = found(&mut next, &destination)?;
                if entry.quiesced {
                    entry.quiesced = false;
                    entry.scheduled = now.wall;
                }
            }
            Verb::Abort { destination, hard } => {
                let entry = found(&mut next, &destination)?;
                let moving = matches!(
                    entry.pending.as_ref().map(|p| p.work),
                    Some(Work::Transfer(_))
                );
                if !moving {
                    return refuse(
                        Reason::State,
                        format!("No transfer to abort for destination \"{destination}\"."),
                    );
                }
                entry.anew |= hard;
                let uuid = entry.uuid.clone();
                if !self.running.contains_key(&uuid) {
                    entry.pending = None;
                    entry.trouble = Some(ABORTED.to_owned());
                    self.commit(next)?;
                    self.retries.remove(&uuid);
                    return Ok(());
                }
                self.commit(next)?;
                self.abort_running(&uuid);
                return Ok(());
            }
            Verb::Break(destination) => {
                let entry = found(&mut next, &destination)?;
                self.free(entry)?;
                match entry.state {
                    MirrorState::Uninitialized => {
                        return refuse(Reason::State, not_initialized(entry));
                    }
                    MirrorState::BrokenOff => {
                        return refuse(Reason::State, not_protected(&destination));
                    }
                    MirrorState::Snapmirrored => {}
                }
                entry.begin(Work::Break, None, None, now.wall);
            }
            Verb::Resync {
                destination,
                source,
            } => self.resync(&mut next, destination, source, facts, now)?,
            Verb::Restore {
                source,
                shown,
                destination,
                source_snapshot,
                throttle,
            } => {
                let mut entry = self.new_entry(source, shown, destination, facts, now)?;
                let to = destination_side(&entry.destination, facts)?;
                let from = source_side(&entry, facts)?;
                large_enough(from, to)?;
                let wanted = Wanted {
                    source_snapshot,
                    throttle: Some(throttle),
                    ..Wanted::plain(entry.destination.clone())
                };
                has_snapshot(&entry, &wanted, from)?;
                if common(&from.snapshots, &to.snapshots).is_none() && !to.data_protection {
                    return refuse(Reason::State, no_common(&entry));
                }
                entry.restore = true;
                begin(&mut entry, TransferKind::Restore, wanted, now)?;
                next.entries.push(entry);
            }
            Verb::Release(destination) => return self.release(next, &destination),
            Verb::Delete(destination) => {
                let entry = found(&mut next, &destination)?;
                self.free(entry)?;
                let uuid = entry.uuid.clone();
                next.entries.retain(|e| e.uuid != uuid);
                self.commit(next)?;
                self.slots.remove(&uuid);
                self.retries.remove(&uuid);
                return Ok(());
            }
            verb => return self.settings(verb, next, facts),
        }
        self.commit(next)?;
        self.start_queued(now);
        Ok(())
    }

    /// Policies, schedules, global throttles.
    fn settings(&mut self, verb: Verb, mut next: State, facts: &Facts) -> Outcome {
        match verb {
            Verb::PolicyCreate {
                name,
                kind,
                comment,
                compression,
            } => {
                sound(&name, "Policy")?;
                if self.policy(&name).is_some() {
                    return refuse(Reason::Duplicate, "duplicate entry");
                }
                let comment = brief(comment)?;
                next.policies.push(Policy {
                    name,
                    kind,
                    rules: Vec::new(),
                    comment,
                    compression,
                    system: false,
                });
            }
            Verb::PolicyModify {
                name,
                comment,
                compression,
            } => {
                let comment = comment.map(brief).transpose()?;
                let policy = own_policy(&mut next, &name)?;
                policy.comment = comment.unwrap_or(policy.comment.clone());
                policy.compression = compression.unwrap_or(policy.compression);
            }
            Verb::PolicyDelete(name) => {
                own_policy(&mut next, &name)?;
                if next.entries.iter().any(|e| e.policy == name) {
                    return refuse(
                        Reason::State,
                        format!(
                            "Policy \"{name}\" is in use by one or more SnapMirror relationships."
                        ),
                    );
                }
                next.policies.retain(|p| p.name != name);
            }
            Verb::PolicyRule { name, label, keep } => {
                let policy = own_policy(&mut next, &name)?;
                sound(&label, "SnapMirror label")?;
                let at = policy.rules.iter().position(|rule| rule.label == label);
                match (at, keep) {
                    (_, Some(keep)) if !(1..=MAX_KEPT).contains(&keep) => {
                        return refuse(
                            Reason::Invalid,
                            format!("The keep count must be between 1 and {MAX_KEPT}."),
                        );
                    }
                    (None, None) => return refuse(Reason::NotFound, NO_ENTRIES),
                    (Some(at), None) => {
                        policy.rules.remove(at);
                    }
                    (Some(at), Some(keep)) => {
                        if let Some(rule) = policy.rules.get_mut(at) {
                            rule.keep = keep;
                        }
                    }
                    (None, Some(keep)) => {
                        if policy.rules.len() >= MAX_POLICY_RULES {
                            return refuse(
                                Reason::Invalid,
                                format!(
                                    "The policy already has the maximum of {MAX_POLICY_RULES} rules."
                                ),
                            );
                        }
                        policy.rules.push(Rule { label, keep });
                    }
                }
            }
            Verb::ScheduleCreate { name, schedule } => {
                sound(&name, "Schedule")?;
                if self.schedule(&name).is_some() {
                    return refuse(Reason::Duplicate, "duplicate entry");
                }
                if schedule.next(0).is_none() {
                    return refuse(Reason::Invalid, format!("Schedule \"{name}\" never runs."));
                }
                next.schedules.insert(name, schedule);
            }
            Verb::ScheduleDelete(name) => {
                if schedule::named().iter().any(|(n, ..)| *n == name) {
                    return refuse(
                        Reason::State,
                        format!("Schedule \"{name}\" cannot be deleted."),
                    );
                }
                let used = |e: &Entry| e.schedule.as_deref() == Some(name.as_str());
                if next.entries.iter().any(used) {
                    return refuse(Reason::State, format!("Schedule \"{name}\" is in use."));
                }
                if next.schedules.remove(&name).is_none() {
                    return refuse(Reason::NotFound, NO_ENTRIES);
                }
            }
            Verb::GlobalThrottle { incoming, max } => {
                if facts.synchronous && max.is_some() {
                    return refuse(
                        Reason::State,
                        "Global throttling cannot be enabled because the cluster has \
                         SnapMirror Synchronous relationships.",
                    );
                }
                next.set_throttle(incoming, in_range(max)?);
                self.commit(next)?;
                self.order_throttles();
                return Ok(());
            }
            // All others were seen to before.
            _ => {}
        }
        self.commit(next)
    }

    fn resync(
        &self,
        next: &mut State,
        destination: Path,
        source: Option<(Path, Path)>,
        facts: &Facts,
        now: Now,
    ) -> Outcome {
        if let (None, Some((source, shown))) = (next.entry(&destination), source) {
            // The other way round: what was copied before is the source now.
            let reverse = next
                .entries
                .iter()
                .find(|e| e.destination == source && e.source == destination);
            if reverse.is_some_and(|e| e.state != MirrorState::BrokenOff) {
                return refuse(Reason::State, looped(&source, &destination));
            }
            let policy = reverse.map(|e| e.policy.clone());
            let mut entry = self.new_entry(source, shown, destination.clone(), facts, now)?;
            entry.policy = policy.unwrap_or(entry.policy);
            entry.state = MirrorState::BrokenOff;
            next.entries.push(entry);
        }
        let entry = found(next, &destination)?;
        self.free(entry)?;
        awake(entry)?;
        if entry.restore || entry.state == MirrorState::Uninitialized {
            return refuse(Reason::State, not_initialized(entry));
        }
        let to = destination_side(&destination, facts)?;
        let from = source_side(entry, facts)?;
        large_enough(from, to)?;
        if common(&from.snapshots, &to.snapshots).is_none() {
            return refuse(Reason::State, no_common(entry));
        }
        let (source, destination) = (entry.source.clone(), entry.destination.clone());
        let wanted = Wanted::plain(destination.clone());
        begin(entry, TransferKind::Resync, wanted, now)?;
        let uuid = entry.uuid.clone();
        let others: Vec<Entry> = next
            .entries
            .iter()
            .filter(|e| e.uuid != uuid)
            .cloned()
            .collect();
        match upstream(&others, &source, &destination) {
            true => refuse(Reason::State, looped(&source, &destination)),
            false => Ok(()),
        }
    }

    fn release(&mut self, mut next: State, destination: &Path) -> Outcome {
        // More than one where the relationship was deleted at its destination and made again.
        let (gone, kept): (Vec<Known>, Vec<Known>) = std::mem::take(&mut next.known)
            .into_iter()
            .partition(|known| known.destination == *destination);
        next.known = kept;
        if gone.is_empty() {
            return refuse(Reason::NotFound, NO_ENTRIES);
        }
        let busy = |known: &Known| self.running.contains_key(&known.uuid);
        if gone.iter().any(busy) {
            return refuse(Reason::Busy, "Another transfer is in progress.");
        }
        self.commit(next)?;
        for known in gone {
            self.orders.push(Order::Forget {
                relationship: known.uuid,
                source: known.source,
            });
        }
        Ok(())
    }

    /// A relationship that may be, as far as its two ends go.
    fn new_entry(
        &self,
        source: Path,
        shown: Path,
        destination: Path,
        facts: &Facts,
        now: Now,
    ) -> Result<Entry, Refused> {
        if source == destination {
            return refuse(
                Reason::Invalid,
                "The source and the destination must be different volumes.",
            );
        }
        if !destination.cluster.is_empty() {
            return refuse(
                Reason::State,
                "This operation must be executed on the destination cluster.",
            );
        }
        if self.state.entry(&destination).is_some() {
            return refuse(
                Reason::Duplicate,
                format!("Relationship with destination \"{destination}\" already exists."),
            );
        }
        Ok(Entry {
            uuid: uuid(facts.unique),
            source,
            shown,
            destination,
            policy: DEFAULT_POLICY.to_owned(),
            schedule: None,
            throttle: None,
            tries: TRIES,
            state: MirrorState::Uninitialized,
            quiesced: false,
            scheduled: now.wall,
            pending: None,
            last: None,
            newest: None,
            trouble: None,
            restore: false,
            anew: false,
            transfers: 0,
            annotation: String::new(),
        })
    }

    /// Nothing is being done to it.
    fn free(&self, entry: &Entry) -> Outcome {
        match entry.pending.is_some() || self.running.contains_key(&entry.uuid) {
            true => refuse(Reason::Busy, "Another transfer is in progress."),
            false => Ok(()),
        }
    }

    fn known_policy(&self, name: String) -> Result<String, Refused> {
        match self.policy(&name) {
            Some(_) => Ok(name),
            None => refuse(
                Reason::NotFound,
                format!("Policy lookup for \"{name}\" failed: entry doesn't exist."),
            ),
        }
    }

    fn known_schedule(&self, name: Option<String>) -> Result<Option<String>, Refused> {
        match name {
            Some(name) if self.schedule(&name).is_none() => {
                refuse(Reason::NotFound, format!("Schedule \"{name}\" not found."))
            }
            name => Ok(name),
        }
    }
}

fn found<'s>(state: &'s mut State, destination: &Path) -> Result<&'s mut Entry, Refused> {
    let entry = state.entries.iter_mut();
    let mut entry = entry.filter(|e| e.destination == *destination);
    entry
        .next()
        .ok_or_else(|| Refused::new(Reason::NotFound, NO_ENTRIES))
}

fn awake(entry: &Entry) -> Outcome {
    match entry.quiesced {
        true => refuse(
            Reason::State,
            format!(
                "Relationship with destination \"{}\" is quiesced.",
                entry.destination
            ),
        ),
        false => Ok(()),
    }
}

fn begin(entry: &mut Entry, kind: TransferKind, wanted: Wanted, now: Now) -> Outcome {
    let throttle = wanted.throttle.map(in_range).transpose()?;
    entry.begin(
        Work::Transfer(kind),
        wanted.source_snapshot,
        throttle,
        now.wall,
    );
    Ok(())
}

fn in_range(throttle: Option<u64>) -> Result<Option<u64>, Refused> {
    match throttle {
        Some(0) => Ok(None),
        Some(kbs) if !(THROTTLE_LEAST..=THROTTLE_MOST).contains(&kbs) => refuse(
            Reason::Invalid,
            format!(
                "Invalid throttle value {kbs}: it must be 0, unlimited, or from {THROTTLE_LEAST} to {THROTTLE_MOST} KB/s."
            ),
        ),
        throttle => Ok(throttle),
    }
}

fn destination_side<'f>(path: &Path, facts: &'f Facts) -> Result<&'f Side, Refused> {
    let side = facts.destination.as_ref();
    side.map_err(|why| {
        Refused::new(
            Reason::NotFound,
            format!("Failed to find destination volume \"{path}\": {why}"),
        )
    })
}

fn source_side<'f>(entry: &Entry, facts: &'f Facts) -> Result<&'f Side, Refused> {
    let side = facts.source.as_ref();
    side.map_err(|why| {
        Refused::new(
            Reason::NotFound,
            format!("Failed to find source volume \"{}\": {why}", entry.shown),
        )
    })
}

fn protected(path: &Path, side: &Side) -> Outcome {
    match side.data_protection {
        true => Ok(()),
        false => refuse(Reason::State, not_protected(path)),
    }
}

fn large_enough(from: &Side, to: &Side) -> Outcome {
    let smaller = match (from.size, to.size) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(from), Some(to)) => to < from,
    };
    match smaller {
        true => refuse(
            Reason::State,
            "Destination volume size is smaller than the source volume size.",
        ),
        false => Ok(()),
    }
}

fn has_snapshot(entry: &Entry, wanted: &Wanted, from: &Side) -> Outcome {
    match &wanted.source_snapshot {
        Some(name) if !from.snapshots.iter().any(|held| held.name == *name) => refuse(
            Reason::NotFound,
            format!(
                "Snapshot copy \"{name}\" is not present on source volume \"{}\".",
                entry.shown
            ),
        ),
        _ => Ok(()),
    }
}

/// Whether `source` is, over relationships that copy, made from `destination`.
fn upstream(entries: &[Entry], source: &Path, destination: &Path) -> bool {
    let mut at = source.clone();
    for _ in 0..=entries.len() {
        if at == *destination {
            return true;
        }
        let above = entries
            .iter()
            .find(|e| e.destination == at && e.state != MirrorState::BrokenOff);
        match above {
            Some(entry) => at = entry.source.clone(),
            None => return false,
        }
    }
    true
}

fn looped(source: &Path, destination: &Path) -> String {
    format!(
        "A relationship from \"{source}\" to \"{destination}\" would make a loop: \"{source}\" is itself a copy of \
         \"{destination}\"."
    )
}

fn not_protected(path: &Path) -> String {
    format!("Destination volume \"{path}\" must be a data-protection volume.")
}

fn not_initialized(entry: &Entry) -> String {
    format!(
        "Destination volume \"{}\" is not initialized.",
        entry.destination
    )
}

fn no_common(entry: &Entry) -> String {
    format!(
        "No common Snapshot copy found between {} and {}.",
        entry.shown, entry.destination
    )
}

fn sound(name: &str, what: &str) -> Outcome {
    let good = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !name.is_empty() && name.len() <= MAX_GIVEN_NAME && name.chars().all(good) {
        true => Ok(()),
        false => refuse(
            Reason::Invalid,
            format!("{what} \"{name}\" is not a valid name."),
        ),
    }
}

fn brief(text: String) -> Result<String, Refused> {
    short(text, MAX_COMMENT)
}

fn short(text: String, most: usize) -> Result<String, Refused> {
    match text.len() <= most {
        true => Ok(text),
        false => refuse(
            Reason::Invalid,
            format!("A text is longer than {most} bytes."),
        ),
    }
}

fn own_policy<'s>(state: &'s mut State, name: &str) -> Result<&'s mut Policy, Refused> {
    if system_policies().iter().any(|p| p.name == name) {
        return refuse(
            Reason::State,
            format!("Policy \"{name}\" is a system policy and cannot be changed."),
        );
    }
    let policy = state.policies.iter_mut().find(|p| p.name == name);
    policy.ok_or_else(|| Refused::new(Reason::NotFound, NO_ENTRIES))
}

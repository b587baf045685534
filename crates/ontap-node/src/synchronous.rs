//! Volumes of a pair as synchronous relationships of ONTAP: the source is the volume, the
//! destination the same volume at the partner (`b://SVM/volume`), the policy `Sync` or
//! `StrictSync`.
//!
//! The pair copies whole aggregates, so such a relationship copies nothing. It is a property of the
//! volume, and decides about its changes while the primary is without its partner. A volume without
//! one behaves as with `Sync`, and is not listed.

use weir_control::{Assign, Mutation, Surface, Synchronous as Kept, VolumeChange};
use weir_ontap::cluster::{Failure, Reason};
use weir_relations::manager::Verb;
use weir_relations::model::{
    MirrorState, Path, Relationship, STRICT_SYNC, SYNC, Status, Synchronous,
};

use crate::uuid;
use crate::{Answer, AsUser};
use weir_pair_node::PairHealth;

fn kept(policy: &str) -> Option<Kept> {
    match policy {
        SYNC => Some(Kept::Sync),
        STRICT_SYNC => Some(Kept::StrictSync),
        _ => None,
    }
}

fn policy(of: Kept) -> &'static str {
    match of {
        Kept::Sync => SYNC,
        Kept::StrictSync => STRICT_SYNC,
    }
}

fn refused<T>(why: impl Into<String>) -> Answer<T> {
    Err(Failure::new(Reason::State, why))
}

/// Returns the destination of the relationship that a verb changes, and the name of the verb.
fn about(verb: &Verb) -> Option<(&Path, &'static str)> {
    Some(match verb {
        Verb::Create { destination, .. } => (destination, "create"),
        Verb::Modify { destination, .. } => (destination, "modify"),
        Verb::Delete(destination) | Verb::End(destination) => (destination, "delete"),
        Verb::Initialize { destination, .. } => (destination, "initialize"),
        Verb::Update { destination, .. } => (destination, "update"),
        Verb::Quiesce(destination) => (destination, "quiesce"),
        Verb::Resume(destination) => (destination, "resume"),
        Verb::Abort { destination, .. } => (destination, "abort"),
        Verb::Break(destination) | Verb::Stop(destination) => (destination, "break"),
        Verb::Resync { destination, .. } | Verb::Reverse(destination) => (destination, "resync"),
        Verb::Restore { destination, .. } => (destination, "restore"),
        Verb::Release(destination) => (destination, "release"),
        _ => return None,
    })
}

impl AsUser {
    /// Volumes with such a policy.
    pub(crate) fn synchronous_volumes(&self) -> Vec<Relationship> {
        let Some(standing) = self.server.pair.as_ref().map(|pair| pair.standing()) else {
            return Vec::new();
        };
        let view = self.server.control.view();
        let all = view.every_volume(Surface::Netapp);
        all.filter_map(|volume| self.synchronous_volume(&standing, volume))
            .collect()
    }

    fn synchronous_volume(
        &self,
        standing: &PairHealth,
        volume: &weir_control::Volume,
    ) -> Option<Relationship> {
        let kept = volume.assigned.synchronous?;
        let engine = self.server.engine.volume(&volume.key)?;
        let mut id = engine.uuid();
        // Not the volume's own.
        id[0] ^= 0xff;
        let source = Path::local(&volume.name.place.project, &volume.name.id);
        let destination = partner_path(standing, &source);
        let in_sync = standing.behind_since.is_none();
        Some(Relationship {
            state: MirrorState::Snapmirrored,
            status: match in_sync {
                true => Status::InSync,
                false => Status::OutOfSync,
            },
            healthy: in_sync,
            unhealthy_reason: (!in_sync).then(|| {
                let held = match kept {
                    Kept::StrictSync => "; changes of the volume are held",
                    Kept::Sync => "",
                };
                let why = standing.fault.as_deref().unwrap_or_default();
                let gap = if why.is_empty() { "" } else { ": " };
                format!(
                    "Node \"{}\" is not in sync{held}{gap}{why}",
                    standing.partner
                )
            }),
            synchronous: Some(Synchronous {
                behind_since: standing.behind_since,
            }),
            ..Relationship::new(uuid(id), source, destination, policy(kept))
        })
    }

    /// Carries out what is about such a relationship; `None`: the verb is about another.
    pub(crate) fn relate_synchronous(&self, verb: &Verb) -> Option<Answer<()>> {
        let (destination, word) = about(verb)?;
        let standing = self.server.pair.as_ref().map(|pair| pair.standing());
        let wanted = match verb {
            Verb::Create { policy, .. } => policy.as_deref().and_then(kept),
            _ => None,
        };
        match standing {
            None if wanted.is_some() => Some(refused(
                "Policies Sync and StrictSync are for volumes that two nodes keep together, and this node is not one of a pair \
                 (\"weir pair create\").",
            )),
            None => None,
            Some(standing) if wanted.is_some() || destination.cluster == standing.partner => {
                Some(self.relate_kept(&standing, verb, word, destination))
            }
            Some(_) => None,
        }
    }

    fn relate_kept(
        &self,
        standing: &PairHealth,
        verb: &Verb,
        word: &str,
        destination: &Path,
    ) -> Answer<()> {
        let here = Path::local(&destination.vserver, &destination.volume);
        let volume = self.volume(&here)?;
        let now = volume.assigned.synchronous;
        let next = match verb {
            Verb::Create {
                source,
                policy,
                schedule,
                throttle,
                ..
            } => {
                let Some(next) = policy.as_deref().and_then(kept) else {
                    return refused(
                        "A volume and the same volume at the partner have policy Sync or StrictSync.",
                    );
                };
                if *source != here || *destination != partner_path(standing, source) {
                    return refused(format!(
                        "The destination has to be \"{}\": the same volume at the partner.",
                        partner_path(standing, source)
                    ));
                }
                if schedule.is_some() || throttle.is_some() {
                    return refused(format!(
                        "Policy \"{}\" takes no schedule and no throttle: each change is copied at once.",
                        self::policy(next)
                    ));
                }
                if now.is_some() {
                    return Err(Failure::new(
                        Reason::Duplicate,
                        format!("Relationship with destination \"{destination}\" already exists."),
                    ));
                }
                Some(next)
            }
            _ if now.is_none() => return Err(crate::missing()),
            Verb::Modify {
                policy,
                schedule,
                throttle,
                ..
            } => {
                let other = matches!(schedule, Some(Some(_))) || matches!(throttle, Some(Some(_)));
                match policy.as_deref().map(kept) {
                    _ if other => {
                        return refused(
                            "Its schedule and throttle cannot be set: each change is copied at once.",
                        );
                    }
                    Some(None) => {
                        return refused(
                            "A volume and the same volume at the partner have policy Sync or StrictSync.",
                        );
                    }
                    Some(next) => next,
                    None => now,
                }
            }
            Verb::Delete(_) | Verb::End(_) => None,
            Verb::Break(_) | Verb::Stop(_) => {
                return refused(format!(
                    "Node \"{}\" has everything and serves it when this node is gone; \"storage failover takeover\" has it serve now.",
                    standing.partner
                ));
            }
            _ => {
                return refused(format!(
                    "Each change of \"{here}\" is copied at once: there is nothing to {word}."
                ));
            }
        };
        if next == now {
            return Ok(());
        }
        let change = VolumeChange {
            assign: Assign {
                synchronous: Some(next),
                ..Assign::default()
            },
            ..VolumeChange::default()
        };
        self.submit(Mutation::UpdateVolume(volume.name.clone(), change))
    }
}

/// Returns the path of the volume at the partner.
fn partner_path(standing: &PairHealth, volume: &Path) -> Path {
    Path {
        cluster: standing.partner.clone(),
        ..volume.clone()
    }
}

//! Moves of volumes to other aggregates of the cluster, in ONTAP's terms.

use weir_control::{MoveChange, Mutation, NotCarriedOut, Outcome, Volume};
use weir_ontap::Movement;
use weir_relations::model::Path;
use weir_replication_node::MovePhase;

use super::{Answer, AsUser, not_carried_out};

impl AsUser {
    /// Returns true if this storage pool is none of this aggregate, so that a volume that is to go
    /// there moves to another one.
    pub(crate) fn is_elsewhere(&self, volume: &Volume, pool: &str) -> bool {
        let view = self.server.control.view();
        volume.pooled().is_some() && view.pool(&volume.name.place.name(pool)).is_none()
    }

    /// Begins to move a volume to a storage pool of another aggregate, or to an aggregate.
    pub(crate) fn move_volume(&self, path: &Path, to: &str) -> Answer<()> {
        let name = self.volume(path)?.name.clone();
        let aggregate = self.server.replication.knows_aggregate(to);
        let change = match aggregate {
            true => MoveChange::Start {
                pool: None,
                aggregate: Some(to.to_owned()),
            },
            false => MoveChange::Start {
                pool: Some(to.to_owned()),
                aggregate: None,
            },
        };
        self.begin(Mutation::MoveVolume(name, change))
    }

    /// Ends the move of a volume.
    pub(crate) fn abort_move(&self, path: &Path) -> Answer<()> {
        let name = self.volume(path)?.name.clone();
        self.begin(Mutation::MoveVolume(name, MoveChange::Abort))
    }

    /// Begins an operation that may take long.
    fn begin(&self, mutation: Mutation) -> Answer<()> {
        let server = &self.server;
        let submitted = server.control.submit_long(mutation, &self.actor);
        let operation = server.runtime.block_on(submitted);
        let operation = operation.map_err(|why| not_carried_out(&NotCarriedOut::from(why)))?;
        match &operation.outcome {
            Some(Outcome::Failed(why)) => Err(not_carried_out(&NotCarriedOut::from(why.clone()))),
            _ => Ok(()),
        }
    }

    /// Returns a volume's move.
    pub(crate) fn movement(&self, volume: &Volume) -> Option<Movement> {
        let wanted = volume.moving.as_ref()?;
        let all = self.server.replication.moves();
        let now = all.into_iter().find(|one| one.volume == volume.name);
        let destination = wanted.pool.as_ref().or(wanted.aggregate.as_ref());
        let (phase, why) = match &now {
            None => ("queued", String::new()),
            Some(now) => (word(now.phase), now.why.clone()),
        };
        let percent = now.and_then(|now| {
            let total = now.total.filter(|total| *total > 0)?;
            u32::try_from(now.sent.min(total) * 100 / total).ok()
        });
        Some(Movement {
            destination: destination.map(ToString::to_string).unwrap_or_default(),
            state: if why.is_empty() { "healthy" } else { "alert" },
            phase,
            percent: percent.unwrap_or_default(),
            why,
        })
    }
}

/// Returns the identity of a volume that came from another aggregate: it keeps the one that it had
/// there.
pub(super) fn identity(volume: &Volume) -> Option<[u8; 16]> {
    let origin = volume.origin?;
    let mut identity = origin.aggregate;
    let number = origin.number.to_le_bytes();
    for (byte, of) in identity.iter_mut().rev().zip(number) {
        *byte ^= of;
    }
    Some(identity)
}

/// Returns ONTAP's word for a phase.
fn word(phase: MovePhase) -> &'static str {
    match phase {
        MovePhase::Waiting => "queued",
        MovePhase::Copying => "replicating",
        MovePhase::Cutover => "cutover",
        MovePhase::Undecided => "cutover_pending",
        MovePhase::Announcing => "finishing",
    }
}

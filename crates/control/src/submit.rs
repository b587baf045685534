//! The path of every mutation, of a user or a schedule, to a running job.

use crate::accept::{self, Inputs};
use crate::jobs::{JobContext, LaneTicket};
use crate::model::{Actor, Operation, Role};
use crate::mutation::Mutation;
use crate::name::{Name, Target};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::sync::Arc;
use weir_base::{Clock, Rng};

/// Turns a mutation into a running job. `again` recreates a mutation that was made from outdated
/// state. Returns the operation, as it was accepted, once it is in the catalog.
pub(crate) async fn begin<E: From<Refusal>>(
    context: Arc<JobContext>,
    mutation: Mutation,
    again: impl FnOnce(&View) -> Result<Option<Mutation>, E>,
    actor: Actor,
    inputs: Inputs,
    name: Name,
) -> Result<Operation, E> {
    let mut refused = None;
    let begun = context.store.change_or(|tx| {
        let newer = again(&tx.view)?;
        let mutation = newer.as_ref().unwrap_or(&mutation);
        let accepted = at_least(&actor, mutation.role()).and_then(|()| {
            accept::apply(
                context.render.get(),
                tx,
                mutation,
                &actor,
                &inputs,
                name.clone(),
            )
        });
        let accepted = accepted.inspect_err(|refusal| refused = Some(refusal.clone()))?;
        let runs = !accepted.operation.done();
        let place = runs.then(|| context.lanes.enter(accepted.lane, &name));
        let place = place.flatten();
        let label = match mutation {
            Mutation::CreateSnapshot(name, _) => tx.view.snapshot(name),
            _ => None,
        };
        let label = label.map(|snapshot| snapshot.snapmirror_label().to_owned());
        if let (Some(_), Some(secret)) = (&place, mutation.secret()) {
            let mut secrets = context.secrets.lock();
            secrets.insert(name.clone(), secret.clone());
        }
        Ok((accepted.operation, place, label))
    });
    let ((operation, place, label), ticket) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            if let Some(refusal) = refused {
                note(&context, &mutation, &actor, &refusal);
            }
            return Err(error);
        }
    };
    let early = match (&place, label) {
        (Some(place), Some(label)) => context.take_early(&operation, label, place),
        _ => None,
    };
    if let Err(why) = ticket.committed().await {
        if let Some(early) = early {
            context.rollback_snapshot(&operation, early).await;
        }
        context.secrets.lock().remove(&operation.name);
        return Err(why.into());
    }
    if let Some(place) = place {
        let operation = operation.clone();
        tokio::spawn(async move { context.run(operation, place, early).await });
    }
    Ok(operation)
}

/// Returns a name for a mutation's operation.
pub(crate) fn operation_name(clock: &dyn Clock, rng: &dyn Rng, mutation: &Mutation) -> Name {
    operation_on(clock, rng, &mutation.target())
}

/// Returns a name for an operation on `target`.
pub(crate) fn operation_on(clock: &dyn Clock, rng: &dyn Rng, target: &Target) -> Name {
    let at = clock.current_time();
    let millis = at.secs.max(0) as u64 * 1000 + u64::from(at.nanos) / 1_000_000;
    let tail = rng.next_u64() as u32;
    target
        .place()
        .name(&format!("operation-{millis}-{tail:08x}"))
}

/// Turns a mutation into a job that can be run, once it is in the catalog.
pub(crate) async fn accepted(
    context: &JobContext,
    mutation: Mutation,
    actor: &Actor,
    inputs: &Inputs,
    name: Name,
) -> Result<(Operation, Option<LaneTicket>), Refusal> {
    let begun = may_change(actor).and_then(|()| {
        context.store.change(|tx| {
            let accepted = accept::apply(
                context.render.get(),
                tx,
                &mutation,
                actor,
                inputs,
                name.clone(),
            )?;
            let place = context.lanes.enter(accepted.lane, &name);
            Ok((accepted.operation, place))
        })
    });
    let ((operation, place), ticket) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            note(context, &mutation, actor, &refusal);
            return Err(refusal);
        }
    };
    ticket.committed().await?;
    Ok((operation, place))
}

/// Writes a refusal to the audit log. No caller waits for that.
fn note(context: &JobContext, mutation: &Mutation, actor: &Actor, refusal: &Refusal) {
    let target: String = mutation.target().to_string().chars().take(300).collect();
    let words = match mutation {
        Mutation::Replicate { .. } => format!("refused: {}", refusal.message),
        _ => format!("refused: {}", refusal.reason),
    };
    let words: String = words.chars().take(300).collect();
    let noted = context.store.change(|tx| {
        tx.audit(actor, mutation.verb(), target.clone(), &words);
        Ok(())
    });
    if let Err(why) = noted {
        tracing::debug!(%why, "a refusal that is not in the audit log");
    }
}

pub(crate) fn may_change(actor: &Actor) -> Result<(), Refusal> {
    at_least(actor, Role::Editor)
}

pub(crate) fn may_administer(actor: &Actor) -> Result<(), Refusal> {
    at_least(actor, Role::Admin)
}

pub(crate) fn at_least(actor: &Actor, role: Role) -> Result<(), Refusal> {
    if actor.role >= role {
        return Ok(());
    }
    Err(Refusal::new(
        Status::PermissionDenied,
        "ROLE_INSUFFICIENT",
        format!(
            "token {} has role {}; this needs {}",
            actor.name,
            actor.role.as_str(),
            role.as_str()
        ),
    ))
}

pub(crate) fn closing() -> Refusal {
    Refusal::new(
        Status::Unavailable,
        "CLOSING",
        "the server is being stopped",
    )
}

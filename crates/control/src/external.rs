//! Replication steps, and other events from outside the catalog that concern it.
//!
//! Relationships are rows, changed by mutations
//! ([`Mutation::Replicate`](crate::Mutation::Replicate)). The progress of their transfers is
//! recorded as it happens ([`Control::record_steps`]). No client requested it, so it is not a
//! mutation, and if it were lost the transfer would be restarted and come to the same end. Clients
//! also poll operations by name ([`Control::record`]).

use crate::accept::Render;
use crate::control::Control;
use crate::job::{Job, ReplicationVerb};
use crate::model::{Actor, Operation, Outcome};
use crate::name::ReplicationName;
use crate::refusal::Refusal;
use crate::rules::replication;
use crate::submit::operation_on;
use std::sync::Arc;
use weir_relations::manager::{self, ChangeSet, Step};

impl Control {
    /// Records events of transfers. On return they are in the view. They are in the catalog soon
    /// after, or already if they must not be lost ([`Step::is_lazily_durable`]).
    ///
    /// # Errors
    /// If the catalog cannot be written, or the server stops. Nothing has been recorded in that
    /// case.
    pub async fn record_steps(&self, steps: &[Step]) -> Result<(), Refusal> {
        let ((), ticket) = self.context.store.change(|tx| {
            let rows = &tx.view.relations;
            let lazily = steps.iter().all(|step| step.is_lazily_durable(rows));
            if lazily {
                tx.lazily_durable();
            }
            let mut next = ChangeSet::to(&tx.view.relations);
            for step in steps {
                // It is still due when the volume has been reverted.
                let waits = match step {
                    Step::Due(uuid) => tx.view.relations.find_by_uuid(uuid),
                    _ => None,
                };
                if waits.is_none_or(|entry| !replication::waits(&tx.view, entry)) {
                    manager::apply_step(&mut next, step, tx.now.secs());
                }
            }
            tx.replicate(next.into_edits());
            Ok::<_, Refusal>(())
        })?;
        ticket.committed().await.map(|_| ())
    }

    /// Sets the function that renders targets of ended operations in the form of the API. Only the
    /// first call counts.
    pub fn set_render(&self, render: Render) {
        if self.context.render.set(render).is_err() {
            tracing::debug!("responses are made already");
        }
    }

    /// Records a completed operation on a replication, so that clients can poll it by its name like
    /// any other. `Outcome::Failed` is a refusal and not an operation.
    ///
    /// # Errors
    /// If the catalog cannot be written.
    pub async fn record(
        &self,
        name: ReplicationName,
        verb: ReplicationVerb,
        outcome: Outcome,
        response: Option<String>,
        actor: &Actor,
    ) -> Result<Arc<Operation>, Refusal> {
        let response: Option<Arc<str>> = response.map(Into::into);
        let job = Job::Replicate { name, verb };
        let name = operation_on(&*self.clock, &*self.rng, &job.target());
        let (operation, ticket) = self.context.store.change(|tx| {
            let audit = tx.audit(actor, job.verb(), job.target().to_string(), "done");
            let operation = Operation {
                name,
                job,
                quiet: false,
                audit: Some(audit),
                created: tx.now,
                ended: Some(tx.now),
                outcome: Some(outcome),
                warnings: Vec::new(),
                response,
            };
            tx.put_operation(operation.clone());
            Ok(operation)
        })?;
        ticket.committed().await?;
        Ok(Arc::new(operation))
    }
}

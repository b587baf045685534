//! Replication's steps, and what happens beside the catalog and yet concerns it.
//!
//! Relationships are rows, changed by mutations ([`Mutation::Replicate`](crate::Mutation::Replicate)). What has become
//! of their transfers is written down as it happens ([`Control::settle`]): no client asked for it, so it is no
//! mutation, and were it lost the transfer would be begun again and come to the same end. And clients poll operations by
//! name ([`Control::record`]).

use crate::accept::Render;
use crate::control::Control;
use crate::job::{Job, ReplicationVerb};
use crate::model::{Actor, Operation, Outcome};
use crate::name::ReplicationName;
use crate::refusal::Refusal;
use crate::rules::replication;
use crate::submit::operation_on;
use std::sync::Arc;
use weir_relations::manager::{self, Changes, Step};

impl Control {
    /// Writes down what has happened to transfers. Returns when it is in the view; it is in the catalog soon after, or by
    /// then where it must not be lost ([`Step::is_lazily_durable`]).
    ///
    /// # Errors
    /// That the catalog cannot be written, or that the server stops. Nothing has been written down then.
    pub async fn settle(&self, steps: &[Step]) -> Result<(), Refusal> {
        let ((), ticket) = self.context.store.change(|tx| {
            let rows = &tx.view.relations;
            let lazily = steps.iter().all(|step| step.is_lazily_durable(rows));
            if lazily {
                tx.lazily_durable();
            }
            let mut next = Changes::to(&tx.view.relations);
            for step in steps {
                // It is due as well when the volume is what it was.
                let waits = match step {
                    Step::Due(uuid) => tx.view.relations.named(uuid),
                    _ => None,
                };
                if waits.is_none_or(|entry| !replication::waits(&tx.view, entry)) {
                    manager::settle(&mut next, step, tx.now.secs());
                }
            }
            tx.replicate(next.into_edits());
            Ok::<_, Refusal>(())
        })?;
        ticket.committed().await.map(|_| ())
    }

    /// From now on operations keep their target's state, as the API shows it, when they end. There is one way for as
    /// long as the control plane lives.
    pub fn set_render(&self, render: Render) {
        if self.context.render.set(render).is_err() {
            tracing::debug!("responses are made already");
        }
    }

    /// An operation on a replication that has been done: clients may ask for it by its name like for any
    /// other. `Outcome::Failed` is a refusal and no operation.
    ///
    /// # Errors
    /// That the catalog cannot be written.
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

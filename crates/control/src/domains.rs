//! Jobs that join and leave domains of Active Directory.
//!
//! A job is restarted from its row, and the password is in no row: it waits in memory until the job
//! takes it. A job that a restart has interrupted fails, and reports that the password is needed
//! again. It is not retried, because three attempts with a wrong password lock the account.

use crate::backend::DomainSpec;
use crate::jobs::{JobContext, failure, gone};
use crate::model::{ActiveDirectory, State};
use crate::name::{Name, Target};
use crate::refusal::{Refusal, Status};
use std::sync::Arc;

impl JobContext {
    /// Makes the node join, and stores the result in the catalog.
    pub(crate) async fn join_domain(&self, name: &Name, operation: &Name) -> Result<(), Refusal> {
        let secret = self.secrets.lock().remove(operation);
        let joined = match (self.directory(name), secret) {
            (Err(gone), _) => return Err(gone),
            (Ok(_), None) => Err(Refusal::new(
                Status::Aborted,
                "PASSWORD_NOT_KEPT",
                "the server was restarted before it had joined the domain, and keeps no password; send it again",
            )),
            (Ok(directory), Some(password)) => {
                let spec = DomainSpec {
                    domain: directory.domain.to_string(),
                    computer: directory.computer(),
                    unit: directory.organizational_unit.to_string(),
                    controller: directory.kdc_hostname.to_string(),
                    user: directory.username.to_string(),
                    password,
                };
                let joined = self.call_node(move |node| node.join_domain(&spec)).await;
                joined.map_err(|error| failure(&error))
            }
        };
        let written = self.store.commit_with_retry(|tx| {
            let Some(now) = tx.view.active_directory(name).cloned() else {
                return;
            };
            let mut next = ActiveDirectory::clone(&now);
            match &joined {
                Ok(host) => {
                    next.state = State::Ready;
                    next.host = Some(host.as_str().into());
                    next.state_details.clear();
                }
                Err(why) => {
                    next.state = State::Error;
                    next.state_details.clone_from(&why.message);
                }
            }
            tx.put_directory(next);
        });
        written.await?;
        joined.map(drop)
    }

    /// Makes the node leave.
    pub(crate) async fn leave_domain(&self, name: &Name) -> Result<(), Refusal> {
        let domain = self.directory(name)?.domain.to_string();
        let left = self.call_node(move |node| node.leave_domain(&domain)).await;
        let Err(error) = left else {
            return Ok(());
        };
        let refusal = failure(&error);
        let written = self.store.commit_with_retry(|tx| {
            if let Some(now) = tx.view.active_directory(name).cloned() {
                let mut next = ActiveDirectory::clone(&now);
                next.state = State::Error;
                next.state_details = format!("leaving failed: {}", refusal.message);
                tx.put_directory(next);
            }
        });
        written.await?;
        Err(refusal)
    }

    fn directory(&self, name: &Name) -> Result<Arc<ActiveDirectory>, Refusal> {
        let found = self.store.view().active_directory(name).cloned();
        found.ok_or_else(|| gone(&Target::ActiveDirectory(name.clone())))
    }
}

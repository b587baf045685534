//! Named policies of storage, to which volumes refer: one form for the catalog and for ONTAP's
//! interfaces.
//!
//! The two differ only in how they word an export rule and a snapshot schedule, so those are
//! parameters.

use serde::{Deserialize, Serialize};

/// Kind of a named policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NamedKind {
    /// The record of a project (ONTAP: SVM), which exists before the project has a pool.
    Project,
    /// Export rules: access by client.
    Export,
    /// Maximum throughput.
    Qos,
    /// Snapshot schedules and retention.
    Snapshot,
}

impl NamedKind {
    /// Returns the name of the collection in resource names.
    pub fn collection(self) -> &'static str {
        match self {
            NamedKind::Project => "svms",
            NamedKind::Export => "exportPolicies",
            NamedKind::Qos => "qosPolicies",
            NamedKind::Snapshot => "snapshotPolicies",
        }
    }

    /// Returns the noun used in messages.
    pub fn noun(self) -> &'static str {
        match self {
            NamedKind::Project => "project",
            NamedKind::Export => "export policy",
            NamedKind::Qos => "QoS policy",
            NamedKind::Snapshot => "snapshot policy",
        }
    }
}

/// Maximum throughput of a volume, besides what its pool gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Bytes a second.
    pub bytes: Option<u64>,
    /// Operations a second.
    pub ops: Option<u64>,
}

/// Content of a named policy, with export rules of type `R` and snapshot schedules of type `C`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyBody<R, C> {
    /// No content.
    Project,
    /// Rules in the order of their indices, which are unique. The first that matches a client
    /// decides.
    Export(Vec<R>),
    /// A maximum for each volume that refers to the policy.
    Qos(Ceiling),
    /// Schedules.
    Snapshot {
        /// True if the schedules take snapshots.
        enabled: bool,
        /// At most one schedule for each period.
        copies: Vec<C>,
    },
}

impl<R, C> PolicyBody<R, C> {
    /// Returns the kind of policy that may have this content.
    pub fn kind(&self) -> NamedKind {
        match self {
            PolicyBody::Project => NamedKind::Project,
            PolicyBody::Export(_) => NamedKind::Export,
            PolicyBody::Qos(_) => NamedKind::Qos,
            PolicyBody::Snapshot { .. } => NamedKind::Snapshot,
        }
    }

    /// Translates rules and schedules into another wording.
    ///
    /// # Errors
    /// The first error of either translation.
    pub fn try_map<S, D, E>(
        &self,
        rule: impl FnMut(&R) -> Result<S, E>,
        copies_of: impl FnMut(&C) -> Result<D, E>,
    ) -> Result<PolicyBody<S, D>, E> {
        Ok(match self {
            PolicyBody::Project => PolicyBody::Project,
            PolicyBody::Export(rules) => {
                PolicyBody::Export(rules.iter().map(rule).collect::<Result<_, E>>()?)
            }
            PolicyBody::Qos(ceiling) => PolicyBody::Qos(*ceiling),
            PolicyBody::Snapshot { enabled, copies } => PolicyBody::Snapshot {
                enabled: *enabled,
                copies: copies.iter().map(copies_of).collect::<Result<_, E>>()?,
            },
        })
    }
}

/// Change of a named policy with content of type `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChange<B> {
    /// Creates the policy.
    Create {
        /// Free text of up to 2,048 bytes; empty is none.
        comment: String,
        /// Content.
        body: B,
    },
    /// Changes comment or content; `None` leaves either unchanged.
    Set {
        /// Revision that the change was made from. Refused if the policy has another by now.
        revision: u64,
        /// Free text of up to 2,048 bytes.
        comment: Option<String>,
        /// Content.
        body: Option<B>,
    },
    /// Renames the policy.
    Rename(String),
    /// Deletes the policy; refused while volumes refer to it.
    Delete,
}

impl<B> PolicyChange<B> {
    /// Returns the verb of the change in operation records.
    pub fn verb(&self) -> &'static str {
        match self {
            PolicyChange::Create { .. } => "create",
            PolicyChange::Set { .. } => "update",
            PolicyChange::Rename(_) => "rename",
            PolicyChange::Delete => "delete",
        }
    }

    /// Translates the content into another wording.
    ///
    /// # Errors
    /// The translation's.
    pub fn try_map<T, E>(
        &self,
        body_of: impl FnOnce(&B) -> Result<T, E>,
    ) -> Result<PolicyChange<T>, E> {
        Ok(match self {
            PolicyChange::Create { comment, body } => PolicyChange::Create {
                comment: comment.clone(),
                body: body_of(body)?,
            },
            PolicyChange::Set {
                revision,
                comment,
                body,
            } => PolicyChange::Set {
                revision: *revision,
                comment: comment.clone(),
                body: body.as_ref().map(body_of).transpose()?,
            },
            PolicyChange::Rename(to) => PolicyChange::Rename(to.clone()),
            PolicyChange::Delete => PolicyChange::Delete,
        })
    }
}

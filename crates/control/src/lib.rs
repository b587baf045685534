//! Intended state: pools, volumes, service levels; the catalog that stores it and the reconciler
//! that makes the node match.

mod accept;
mod adopt_snapshots;
pub mod backend;
mod backups;
mod bootstrap;
mod catalog;
mod constituent;
mod control;
mod domains;
mod external;
pub mod figures;
pub mod job;
mod jobs;
pub mod levels;
pub mod model;
pub mod moves;
pub mod mutation;
pub mod name;
mod open_error;
pub mod policies;
pub mod policy;
mod policy_assignment;
mod publish;
mod quota;
mod rebuild;
mod record;
mod recover;
pub mod refusal;
pub mod rules;
mod schedules;
mod secret;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod space;
mod store;
mod submit;
mod timestamp;
mod view;
mod work;

pub use accept::Render;
pub use catalog::{
    AccountKey, AuditEntry, Catalog, CatalogError, CatalogVersion, Inspection, TokenHash,
    TokenRecord, back_up, check_secret, file_of, inspect, migrate, new_secret, probe, version,
};
pub use constituent::{CONSTITUENT_LABEL, Constituent, SPAN_LABEL, Span};
pub use control::{Control, NotCarriedOut, Options};
pub use figures::PoolUse;
pub use job::{Job, ReplicationVerb, RowVerb};
pub use levels::Levels;
pub use model::*;
pub use mutation::*;
pub use name::{
    BackupName, Collection, FILESTORE_VAULT, LocationName, Name, QuotaRuleName, ReplicationName,
    SnapshotName, Surface, Target, VolumeName,
};
pub use open_error::OpenError;
pub use policies::{
    Copies, NamedKind, NamedPolicy, NumberedRule, PolicyBody, PolicyChange, PolicyName,
};
pub use policy_assignment::{Assign, Ceiling, PolicyAssignment, Synchronous, TreePolicy};
pub use quota::{NewQuotaRule, QuotaLimits, QuotaRule, QuotaRuleChange, QuotaSubject, Quotas};
pub use rebuild::{CopyOf, Rebuilt, RebuiltPool, RebuiltVolume};
pub use refusal::{Refusal, Status};
pub use rules::trees::names as tree_policies;
pub use secret::Secret;
pub use store::CatalogCopy;
pub use timestamp::Stamp;
pub use view::{View, Within};
pub use work::Work;

#[cfg(test)]
mod tests;

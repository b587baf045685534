//! Policies assigned to a volume by name, and its availability to clients.

use serde::{Deserialize, Serialize};

pub use weir_relations::policy::Ceiling;

/// Treatment of a volume's changes while the node is without its partner, for an aggregate of a
/// pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Synchronous {
    /// Changes are made on one node alone (ONTAP's policy Sync).
    Sync,
    /// Changes are held until the partner is back (ONTAP's policy StrictSync).
    StrictSync,
}

/// Policies assigned to a volume by name, and settings that hide it from clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAssignment {
    /// [`crate::NamedPolicy::id`] of its export policy.
    pub export: Option<u64>,
    /// [`crate::NamedPolicy::id`] of its QoS policy.
    pub qos: Option<u64>,
    /// [`crate::NamedPolicy::id`] of its snapshot policy.
    pub snapshot: Option<u64>,
    /// Ceiling of the QoS policy.
    #[serde(default)]
    pub ceiling: Ceiling,
    /// True if an administrator has taken it offline.
    #[serde(default)]
    pub offline: bool,
    /// True if it has no path; its former path stays reserved for it.
    #[serde(default)]
    pub unmounted: bool,
    /// SnapMirror policy of a volume in an aggregate of a pair; `None` equals
    /// [`Synchronous::Sync`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronous: Option<Synchronous>,
}

impl PolicyAssignment {
    /// Returns true if clients may reach the volume.
    pub fn served(&self) -> bool {
        !self.offline && !self.unmounted
    }

    /// Returns true if every value is the default, which is not stored.
    pub(crate) fn is_default(&self) -> bool {
        *self == PolicyAssignment::default()
    }
}

/// Changes of the assignment; `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assign {
    /// An export policy by name; `Some(None)`: the server's default.
    pub export: Option<Option<String>>,
    /// A QoS policy by name; `Some(None)`: none.
    pub qos: Option<Option<String>>,
    /// A snapshot policy by name; `Some(None)`: none.
    pub snapshot: Option<Option<String>>,
    /// True to take the volume offline, false to bring it back.
    pub offline: Option<bool>,
    /// The export path without its leading slash; `Some(None)`: none.
    pub path: Option<Option<String>>,
    /// SnapMirror policy of a volume in an aggregate of a pair; `Some(None)`: none.
    pub synchronous: Option<Option<Synchronous>>,
    /// Export policies of qtrees, by the qtree's number, in any order.
    pub trees: Vec<(u32, TreePolicy)>,
}

/// Export policy that a qtree gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreePolicy {
    /// That of its volume.
    Inherited,
    /// The server's default.
    Default,
    /// The policy of this name.
    Named(String),
}

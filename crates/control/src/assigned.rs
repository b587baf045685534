//! What a volume has by name, and whether it is served.

use serde::{Deserialize, Serialize};

pub use weir_relations::policy::Ceiling;

/// What is to become of a volume's changes while the node is without its partner, of an aggregate that two nodes keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Synchronous {
    /// They are made on one node alone (ONTAP's policy Sync).
    Sync,
    /// They are held until the partner is back (ONTAP's policy StrictSync).
    StrictSync,
}

/// What was assigned to a volume by name, and what was taken from clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// [`crate::NamedPolicy::id`] of its export policy.
    pub export: Option<u64>,
    /// [`crate::NamedPolicy::id`] of its QoS policy.
    pub qos: Option<u64>,
    /// [`crate::NamedPolicy::id`] of its snapshot policy.
    pub snapshot: Option<u64>,
    /// What the QoS policy says.
    #[serde(default)]
    pub ceiling: Ceiling,
    /// An administrator has taken it out of service.
    #[serde(default)]
    pub offline: bool,
    /// It has no path; the one that it had stays its own.
    #[serde(default)]
    pub unmounted: bool,
    /// Its SnapMirror policy, where two nodes keep the aggregate; `None` is as [`Synchronous::Sync`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronous: Option<Synchronous>,
}

impl Assigned {
    /// Whether clients may reach it.
    pub fn served(&self) -> bool {
        !self.offline && !self.unmounted
    }

    /// Whether nothing is out of the ordinary: then it is not written down.
    pub(crate) fn is_default(&self) -> bool {
        *self == Assigned::default()
    }
}

/// What is to be assigned; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assign {
    /// An export policy by name; `Some(None)`: the server's default.
    pub export: Option<Option<String>>,
    /// A QoS policy by name; `Some(None)`: none.
    pub qos: Option<Option<String>>,
    /// A snapshot policy by name; `Some(None)`: none.
    pub snapshot: Option<Option<String>>,
    /// Out of service, or back.
    pub offline: Option<bool>,
    /// The export path without its leading slash; `Some(None)`: none.
    pub path: Option<Option<String>>,
    /// Its SnapMirror policy, where two nodes keep the aggregate; `Some(None)`: none.
    pub synchronous: Option<Option<Synchronous>>,
}

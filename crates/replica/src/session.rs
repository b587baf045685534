//! What the managers of two nodes say to each other, in control frames ([`crate::wire::Kind::Control`]): JSON, one
//! question and one answer at a time. The destination's node asks. After [`Told::Sending`] the connection belongs to the
//! transfer until that has ended, and then to questions again.

use serde::{Deserialize, Serialize};

use weir_volume::{ContentHash, SnapshotIdentity};

use crate::plan::Volume;

/// A question of the destination's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// What is there of this volume.
    Volume(Named),
    /// Take a snapshot for a relationship, or find it taken.
    Take {
        /// Of which.
        volume: Named,
        /// Its name.
        name: String,
    },
    /// Delete snapshots of a relationship's own that nobody needs any more.
    Drop {
        /// Of which.
        volume: Named,
        /// The relationship.
        relationship: String,
        /// Their names.
        names: Vec<String>,
    },
    /// What a snapshot holds: compared before anything is built upon it.
    Content {
        /// Of which.
        volume: Named,
        /// The snapshot.
        snapshot: SnapshotIdentity,
    },
    /// Send a snapshot.
    Send {
        /// Of which.
        volume: Named,
        /// The relationship.
        relationship: String,
        /// Where to: `svm:volume` at the node that asks.
        destination: String,
        /// As a difference to this one; `None`: as a whole.
        base: Option<SnapshotIdentity>,
        /// This one.
        target: SnapshotIdentity,
        /// The relationship's throttle, KB/s.
        throttle: Option<u64>,
        /// Compressed.
        compress: bool,
    },
}

/// A volume of the node that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The storage virtual machine.
    pub vserver: String,
    /// The volume.
    pub volume: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// This is there.
    Volume(Box<Volume>),
    /// That is what it holds.
    Content(ContentHash),
    /// It takes longer; the answer is still to come.
    Working,
    /// That was done.
    Done,
    /// The transfer's frames follow.
    Sending,
    /// No, and asking again will not help.
    Refused(String),
    /// Not now.
    Later(String),
}

/// As bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Values without maps of odd keys always have a JSON form.
    serde_json::to_vec(message).unwrap_or_default()
}

/// From bytes.
///
/// # Errors
/// They are no such message.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes)
        .map_err(|e| format!("the peer sent a message of another shape: {e}"))
}

//! What outlives the process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::uuid;
use crate::model::{
    Copied, LastTransfer, MirrorState, Path, Policy, Relationship, SnapshotIdentity, TransferKind,
};
use crate::schedule::Schedule;

/// The form in which it is written. Version 1 knew snapshots by their names only.
const VERSION: u32 = 2;

/// As much of any version as tells which it is.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Of the hash FNV-1a, 128 bits (draft-eastlake-fnv).
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// Everything that is intended, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// In the order of their making.
    pub(super) entries: Vec<Entry>,
    /// The users' own.
    pub(super) policies: Vec<Policy>,
    /// The users' own.
    pub(super) schedules: BTreeMap<String, Schedule>,
    /// Destinations of volumes of this node.
    pub(super) known: Vec<Known>,
    /// Set, and if so to what.
    incoming: Setting,
    outgoing: Setting,
}

/// A global throttle. JSON has one null only, so an `Option` of an `Option` would not come back as it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Setting {
    #[default]
    Unset,
    Unlimited,
    Max(u64),
}

impl Default for State {
    fn default() -> State {
        State {
            version: VERSION,
            entries: Vec::new(),
            policies: Vec::new(),
            schedules: BTreeMap::new(),
            known: Vec::new(),
            incoming: Setting::Unset,
            outgoing: Setting::Unset,
        }
    }
}

/// A relationship.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub uuid: String,
    /// Where the source is found.
    pub source: Path,
    /// As users wrote it.
    pub shown: Path,
    pub destination: Path,
    pub policy: String,
    pub schedule: Option<String>,
    pub throttle: Option<u64>,
    pub tries: u32,
    pub state: MirrorState,
    pub quiesced: bool,
    /// The slot that ran last was before this; slots count from here.
    pub scheduled: i64,
    pub pending: Option<Pending>,
    pub last: Option<LastTransfer>,
    pub newest: Option<Copied>,
    /// Why it is not healthy.
    pub trouble: Option<String>,
    /// Made for a restore only.
    pub restore: bool,
    /// The next transfer forgets its checkpoint.
    pub anew: bool,
    /// How many transfers were asked for.
    pub transfers: u64,
    pub annotation: String,
}

/// What is being done, or to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The transfer's identity.
    pub uuid: String,
    pub work: Work,
    pub source_snapshot: Option<String>,
    /// For this transfer only.
    pub throttle: OwnThrottle,
    pub begun: i64,
    /// How often it has failed.
    pub failures: u32,
}

/// A transfer's throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OwnThrottle {
    Relationships,
    Unlimited,
    Max(u64),
}

impl OwnThrottle {
    pub fn of(throttle: Option<Option<u64>>) -> OwnThrottle {
        match throttle {
            None => OwnThrottle::Relationships,
            Some(None) => OwnThrottle::Unlimited,
            Some(Some(kbs)) => OwnThrottle::Max(kbs),
        }
    }

    pub fn under(self, relationships: Option<u64>) -> Option<u64> {
        match self {
            OwnThrottle::Relationships => relationships,
            OwnThrottle::Unlimited => None,
            OwnThrottle::Max(kbs) => Some(kbs),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    Transfer(TransferKind),
    Break,
}

/// A destination, as its source knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub uuid: String,
    pub source: Path,
    pub destination: Path,
    /// When it last copied.
    pub seen: Option<i64>,
    /// The snapshot that it copied last.
    pub newest: Option<SnapshotIdentity>,
}

impl Known {
    /// With the little that is known at the source.
    pub fn shown(&self) -> Relationship {
        let (source, destination) = (self.source.clone(), self.destination.clone());
        Relationship {
            state: MirrorState::Snapmirrored,
            ..Relationship::new(self.uuid.clone(), source, destination, "")
        }
    }
}

impl Entry {
    /// Puts work on the list.
    pub fn begin(
        &mut self,
        work: Work,
        source_snapshot: Option<String>,
        throttle: Option<Option<u64>>,
        now: i64,
    ) {
        self.transfers += 1;
        // Random is only the relationship's own name; a transfer's follows from it and from its number.
        let of = self
            .uuid
            .bytes()
            .fold(u128::from(self.transfers), |hash, byte| {
                (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME)
            });
        self.pending = Some(Pending {
            uuid: uuid(of),
            work,
            source_snapshot,
            throttle: OwnThrottle::of(throttle),
            begun: now,
            failures: 0,
        });
    }
}

impl State {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        // A value without maps of odd keys always has a JSON form.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// From bytes.
    ///
    /// # Errors
    /// Damaged, or of a version that is not this one.
    pub fn decode(bytes: &[u8]) -> Result<State, String> {
        let known: Versioned = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        match known.version {
            VERSION => serde_json::from_slice(bytes).map_err(|e| e.to_string()),
            other => Err(format!(
                "it is of version {other}, this program reads {VERSION}"
            )),
        }
    }

    pub(super) fn entry(&self, destination: &Path) -> Option<&Entry> {
        self.entries.iter().find(|e| e.destination == *destination)
    }

    pub(super) fn named(&mut self, uuid: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.uuid == uuid)
    }

    /// A destination of a volume of this node.
    pub(super) fn know(&mut self, uuid: &str, source: &Path, to: &Path, seen: Option<i64>) {
        match self.known.iter_mut().find(|known| known.uuid == uuid) {
            Some(known) => known.seen = seen.or(known.seen),
            None => self.known.push(Known {
                uuid: uuid.to_owned(),
                source: source.clone(),
                destination: to.clone(),
                seen,
                newest: None,
            }),
        }
    }

    pub(super) fn throttle(&self, incoming: bool) -> Option<Option<u64>> {
        match if incoming {
            self.incoming
        } else {
            self.outgoing
        } {
            Setting::Unset => None,
            Setting::Unlimited => Some(None),
            Setting::Max(kbs) => Some(Some(kbs)),
        }
    }

    pub(super) fn set_throttle(&mut self, incoming: bool, max: Option<u64>) {
        let setting = max.map_or(Setting::Unlimited, Setting::Max);
        match incoming {
            true => self.incoming = setting,
            false => self.outgoing = setting,
        }
    }
}

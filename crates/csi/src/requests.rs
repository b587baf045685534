//! Requests of CSI, by protobuf's mapping to JSON: what the driver reads of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::names::VolumeId;
use crate::status::{Outcome, Status};

/// Names and values.
pub type Texts = BTreeMap<String, String>;

/// Reads a 64-bit number, which the mapping writes as text.
fn int64<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let read = match Value::deserialize(from)? {
        Value::String(digits) => digits.parse().ok(),
        number => number.as_i64(),
    };
    read.ok_or_else(|| serde::de::Error::custom("expected a 64-bit number"))
}

/// Reads a request.
///
/// # Errors
/// INVALID_ARGUMENT: it is another one.
pub fn read<T: for<'de> Deserialize<'de>>(request: Value) -> Outcome<T> {
    serde_json::from_value(request).map_err(|e| Status::invalid(format!("invalid request: {e}")))
}

/// Range of capacities, in bytes; 0 is no bound.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRange {
    /// At least so many.
    #[serde(deserialize_with = "int64")]
    pub required_bytes: i64,
    /// At most so many.
    #[serde(deserialize_with = "int64")]
    pub limit_bytes: i64,
}

/// Use that a volume is to allow.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Capability {
    block: Option<Value>,
    /// As a mounted file system.
    pub mount: Option<Mount>,
    #[serde(rename = "accessMode")]
    access_mode: Option<AccessMode>,
}

/// A mount.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// `nfs`, `cifs` or nothing.
    pub fs_type: String,
    /// Options of mount(8).
    pub mount_flags: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AccessMode {
    mode: String,
}

impl Capability {
    /// Returns why a volume cannot be used so; `None`: it can.
    pub fn obstacle(&self) -> Option<&'static str> {
        match (&self.block, &self.mount) {
            (Some(_), _) => return Some("a volume here is a file system, not a block device"),
            (None, None) => return Some("a volume_capability has no access_type"),
            _ => {}
        }
        let mode = self.access_mode.as_ref();
        match mode.is_none_or(|of| of.mode.is_empty() || of.mode == "UNKNOWN") {
            true => Some("a volume_capability has no access_mode"),
            false => None,
        }
    }

    /// Returns the capability as it was given.
    pub fn to_json(&self) -> Value {
        let mount = self
            .mount
            .as_ref()
            .map(|of| serde_json::json!({"fsType": of.fs_type, "mountFlags": of.mount_flags}));
        let mode = self.access_mode.as_ref().map_or("", |of| &of.mode);
        serde_json::json!({"mount": mount, "accessMode": {"mode": mode}})
    }

    /// Returns true for a use by one pod of one machine.
    pub fn is_for_one(&self) -> bool {
        let mode = self.access_mode.as_ref();
        mode.is_some_and(|of| of.mode == "SINGLE_NODE_SINGLE_WRITER")
    }

    /// Returns true for a use that only reads.
    pub fn only_reads(&self) -> bool {
        let mode = self.access_mode.as_ref();
        mode.is_some_and(|of| of.mode.ends_with("READER_ONLY"))
    }
}

/// Checks that a volume can be used in each of these ways.
///
/// # Errors
/// INVALID_ARGUMENT: there are none, or one that it cannot be used in.
pub fn check(all: &[Capability]) -> Outcome<()> {
    if all.is_empty() {
        return Err(Status::invalid("volume_capabilities are missing"));
    }
    match all.iter().find_map(Capability::obstacle) {
        Some(why) => Err(Status::invalid(why)),
        None => Ok(()),
    }
}

/// A place that volumes are reached from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// Values by key.
    pub segments: Texts,
}

/// Places from which a volume has to be reached.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// One of them at least.
    pub requisite: Vec<Topology>,
    /// In this order, if it can be.
    pub preferred: Vec<Topology>,
}

/// Content of a new volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// That of a snapshot.
    pub snapshot: Option<SnapshotSource>,
    /// That of a volume as it is now.
    pub volume: Option<VolumeSource>,
}

/// A snapshot as content.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSource {
    /// The snapshot.
    pub snapshot_id: String,
}

/// A volume as content.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSource {
    /// The volume.
    pub volume_id: String,
}

/// `CreateVolume`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // The names are CSI's.
pub struct CreateVolume {
    pub name: String,
    pub capacity_range: CapacityRange,
    pub volume_capabilities: Vec<Capability>,
    pub parameters: Texts,
    pub mutable_parameters: Texts,
    pub volume_content_source: Option<Source>,
    pub accessibility_requirements: Requirement,
}

/// A request about a volume, with the fields of all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct OfVolume {
    pub volume_id: String,
    pub capacity_range: CapacityRange,
    pub volume_capabilities: Vec<Capability>,
    pub parameters: Texts,
    pub mutable_parameters: Texts,
    pub volume_context: Texts,
}

impl OfVolume {
    /// Returns the volume.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is missing; NOT_FOUND: the driver gives no such ids.
    pub fn volume(&self) -> Outcome<VolumeId> {
        if self.volume_id.is_empty() {
            return Err(Status::invalid("volume_id is missing"));
        }
        VolumeId::parse(&self.volume_id).ok_or_else(|| Status::not_found("volume", &self.volume_id))
    }
}

/// A list, or a request about a snapshot, with the fields of all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct OfSnapshots {
    pub name: String,
    pub source_volume_id: String,
    pub snapshot_id: String,
    pub parameters: Texts,
    pub max_entries: i32,
    pub starting_token: String,
}

/// `GetCapacity`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct GetCapacity {
    pub volume_capabilities: Vec<Capability>,
    pub parameters: Texts,
    pub accessible_topology: Option<Topology>,
}

/// A request to the node, with the fields of all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct OfNode {
    pub volume_id: String,
    pub volume_path: String,
    pub staging_target_path: String,
    pub target_path: String,
    pub volume_capability: Option<Capability>,
    pub readonly: bool,
    pub secrets: Texts,
    pub volume_context: Texts,
}

impl OfNode {
    /// Returns a field.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is missing.
    pub fn required<'r>(name: &str, value: &'r str) -> Outcome<&'r str> {
        match value.is_empty() {
            true => Err(Status::invalid(format!("{name} is missing"))),
            false => Ok(value),
        }
    }

    /// Returns how the volume is used.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: that is missing, or it cannot be used so.
    pub fn capability(&self) -> Outcome<&Capability> {
        let given = self.volume_capability.as_ref();
        let given = given.ok_or_else(|| Status::invalid("volume_capability is missing"))?;
        match given.obstacle() {
            Some(why) => Err(Status::invalid(why)),
            None => Ok(given),
        }
    }
}

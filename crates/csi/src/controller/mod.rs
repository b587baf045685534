//! The controller service: volumes and snapshots of CSI as volumes and snapshots of a server's
//! NetApp Volumes API.
//!
//! Each call can be repeated: names become identifiers ([`crate::names`]), and what is there
//! already is compared with what was asked for. Nothing is kept by the driver. What it made has the
//! label [`DRIVER`]; the label [`SOURCE`] says what a volume was made of.
//!
//! - [`volumes`]: making, deleting, expanding, changing; [`listing`]: lists, capacity, health;
//! - [`snapshots`]: snapshots, and those that clones of volumes stand on.

mod listing;
mod snapshots;
mod volumes;

use serde_json::{Value, json};

use crate::api::{Api, text};
use crate::inflight::InFlight;
use crate::names::VolumeId;
use crate::status::{Code, Outcome, Status};

/// Label of what the driver made.
const DRIVER: &str = "csi-driver";
/// Its value.
const WEIR: &str = "weir";
/// Label of a volume that was made of another one or of a snapshot: the hash of that one's id.
const SOURCE: &str = "csi-source";
/// Label of a snapshot that a clone of a volume stands on: the clone's identifier.
const FOR: &str = "csi-clone";

/// Bytes of a GiB.
const GIB: u64 = 1 << 30;

/// The controller.
pub struct Controller {
    api: Api,
    /// The location for volumes without topology.
    location: String,
    /// The host that machines mount from, in place of the one that the server names.
    mount_host: Option<String>,
    in_flight: InFlight,
}

impl Controller {
    /// Creates the controller of a server's volumes.
    pub fn new(api: Api, location: String, mount_host: Option<String>) -> Controller {
        Controller {
            api,
            location,
            mount_host,
            in_flight: InFlight::default(),
        }
    }

    /// Checks that the server answers.
    ///
    /// # Errors
    /// As [`Api::probe`].
    pub fn probe(&self) -> Outcome<()> {
        self.api.probe()
    }

    /// Carries out a method of the service.
    ///
    /// # Errors
    /// CSI's for the method.
    pub fn call(&self, method: &str, request: Value) -> Outcome<Value> {
        match method {
            "ControllerGetCapabilities" => Ok(capabilities()),
            "CreateVolume" => self.create_volume(request),
            "DeleteVolume" => self.delete_volume(request),
            "ControllerExpandVolume" => self.expand_volume(request),
            "ControllerModifyVolume" => self.modify_volume(request),
            "ControllerGetVolume" => self.get_volume(request),
            "ValidateVolumeCapabilities" => self.validate(request),
            "ListVolumes" => self.list_volumes(request),
            "GetCapacity" => self.capacity(request),
            "CreateSnapshot" => self.create_snapshot(request),
            "DeleteSnapshot" => self.delete_snapshot(request),
            "GetSnapshot" => self.get_snapshot(request),
            "ListSnapshots" => self.list_snapshots(request),
            // Every machine reaches every volume; the export policy decides who may.
            _ => Err(Status::new(
                Code::Unimplemented,
                format!("{method} is not needed by this driver"),
            )),
        }
    }

    fn volume_name(&self, of: &VolumeId) -> String {
        self.api.name(&of.location, &format!("volumes/{}", of.id))
    }

    /// Returns a volume.
    ///
    /// # Errors
    /// NOT_FOUND, and as [`Api::call`].
    fn volume(&self, of: &VolumeId) -> Outcome<Value> {
        let found = self.api.get(&self.volume_name(of))?;
        found.ok_or_else(|| Status::not_found("volume", &of.to_string()))
    }
}

/// Returns true for a resource with this label.
fn has_label(resource: &Value, label: &str, value: &str) -> bool {
    let labels = resource.get("labels").unwrap_or(&Value::Null);
    text(labels, label) == value
}

fn capabilities() -> Value {
    let all = [
        "CREATE_DELETE_VOLUME",
        "LIST_VOLUMES",
        "GET_CAPACITY",
        "CREATE_DELETE_SNAPSHOT",
        "LIST_SNAPSHOTS",
        "GET_SNAPSHOT",
        "CLONE_VOLUME",
        "EXPAND_VOLUME",
        "VOLUME_CONDITION",
        "GET_VOLUME",
        "SINGLE_NODE_MULTI_WRITER",
        "MODIFY_VOLUME",
    ];
    let all = all.map(|kind| json!({"rpc": {"type": kind}}));
    json!({"capabilities": all})
}

/// Returns the entries of a list behind a token, and the token of what follows. The order is that
/// of ids, so that what is made or deleted between two calls hides nothing else.
///
/// # Errors
/// ABORTED, as CSI has it: the token is none of this driver's. INVALID_ARGUMENT: a negative number.
fn page<T>(mut all: Vec<(String, T)>, most: i32, token: &str) -> Outcome<(Vec<T>, Option<String>)> {
    const AFTER: &str = "after:";
    let most = usize::try_from(most)
        .map_err(|_| Status::invalid(format!("max_entries is {most}; expected 0 or more")))?;
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    if !token.is_empty() {
        let after = token.strip_prefix(AFTER).ok_or_else(|| {
            Status::new(
                Code::Aborted,
                format!("starting_token {token:?} is none of this driver's; list from the start"),
            )
        })?;
        all.retain(|(id, _)| id.as_str() > after);
    }
    let mut next = None;
    if most > 0 && all.len() > most {
        all.truncate(most);
        next = all.last().map(|(id, _)| format!("{AFTER}{id}"));
    }
    Ok((all.into_iter().map(|(_, one)| one).collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_on_behind_what_was_deleted() {
        let all = |ids: &[&str]| -> Vec<(String, String)> {
            ids.iter()
                .map(|id| ((*id).to_owned(), (*id).to_owned()))
                .collect()
        };
        let (first, next) = page(all(&["c", "a", "b"]), 2, "").unwrap();
        assert_eq!(
            (first, next.as_deref()),
            (vec!["a".to_owned(), "b".to_owned()], Some("after:b"))
        );
        let (rest, next) = page(all(&["a", "c", "d"]), 2, "after:b").unwrap();
        assert_eq!((rest, next), (vec!["c".to_owned(), "d".to_owned()], None));
        assert_eq!(page(all(&["a"]), 0, "x").unwrap_err().code, Code::Aborted);
        assert_eq!(
            page(all(&["a"]), -1, "").unwrap_err().code,
            Code::InvalidArgument
        );
    }
}

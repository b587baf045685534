//! The node service: mounts a volume once on a machine, and makes it visible where pods are.

use std::path::Path;

use rustix::fs::StatVfs;
use serde_json::{Value, json};

use crate::identity::LOCATION_KEY;
use crate::inflight::InFlight;
use crate::mounts::{Entry, Host, MountSpec, table};
use crate::requests::{OfNode, read};
use crate::status::{Code, Outcome, Status};

/// A machine.
pub struct Node {
    id: String,
    /// The location whose volumes the machine reaches.
    location: String,
    host: Host,
    in_flight: InFlight,
}

fn internal(what: &str, path: &Path, e: &std::io::Error) -> Status {
    let path = path.display();
    Status::new(Code::Internal, format!("cannot {what} {path}: {e}"))
}

impl Node {
    /// Creates the service of the machine `id`.
    pub fn new(id: String, location: String, host: Host) -> Node {
        Node {
            id,
            location,
            host,
            in_flight: InFlight::default(),
        }
    }

    /// Carries out a method of the service.
    ///
    /// # Errors
    /// CSI's for the method.
    pub fn call(&self, method: &str, request: Value) -> Outcome<Value> {
        let request: OfNode = read(request)?;
        match method {
            "NodeGetCapabilities" => Ok(capabilities()),
            "NodeGetInfo" => Ok(json!({
                "nodeId": self.id,
                "accessibleTopology": {"segments": {LOCATION_KEY: self.location}},
            })),
            "NodeStageVolume" => self.stage(&request),
            "NodeUnstageVolume" => self.unstage(&request),
            "NodePublishVolume" => self.publish(&request),
            "NodeUnpublishVolume" => self.unpublish(&request),
            "NodeGetVolumeStats" => self.stats(&request),
            // A volume grows at the server, and clients see it at once.
            _ => Err(Status::new(
                Code::Unimplemented,
                format!("{method} is not needed by this driver"),
            )),
        }
    }

    fn make_folder(&self, path: &Path) -> Outcome<()> {
        match std::fs::create_dir_all(self.host.seen(path)) {
            // One over which something hangs, or is mounted, is there.
            Err(e) if self.host.mounted(path)?.is_none() => {
                Err(internal("make the folder", path, &e))
            }
            _ => Ok(()),
        }
    }

    fn stage(&self, request: &OfNode) -> Outcome<Value> {
        OfNode::required("volume_id", &request.volume_id)?;
        let at = OfNode::required("staging_target_path", &request.staging_target_path)?;
        let mount = request.capability()?.mount.clone().unwrap_or_default();
        let _operation = self.in_flight.begin(at)?;
        let wanted = MountSpec::from_context(&request.volume_context, &mount)?;
        let at = Path::new(at);
        self.make_folder(at)?;
        match self.host.mounted(at)? {
            Some(there) if there.source == wanted.source => {}
            Some(other) => {
                let why = format!("{} is a mount of {} already", at.display(), other.source);
                return Err(Status::new(Code::AlreadyExists, why));
            }
            None => self.host.mount(&wanted, at, &request.secrets)?,
        }
        Ok(json!({}))
    }

    fn unstage(&self, request: &OfNode) -> Outcome<Value> {
        OfNode::required("volume_id", &request.volume_id)?;
        let at = OfNode::required("staging_target_path", &request.staging_target_path)?;
        let _operation = self.in_flight.begin(at)?;
        self.host.unmount(Path::new(at))?;
        Ok(json!({}))
    }

    fn publish(&self, request: &OfNode) -> Outcome<Value> {
        OfNode::required("volume_id", &request.volume_id)?;
        let target = OfNode::required("target_path", &request.target_path)?;
        let capability = request.capability()?;
        let readonly = request.readonly || capability.only_reads();
        if request.staging_target_path.is_empty() {
            let why = "staging_target_path is missing: a volume is staged before it is published";
            return Err(Status::new(Code::FailedPrecondition, why));
        }
        let _operation = self.in_flight.begin(target)?;
        let (staged, target) = (Path::new(&request.staging_target_path), Path::new(target));
        let Some(volume) = self.host.mounted(staged)? else {
            let why = format!(
                "nothing is mounted at {}: stage the volume first",
                staged.display()
            );
            return Err(Status::new(Code::FailedPrecondition, why));
        };
        match self.host.mounted(target)? {
            Some(there) if there.is_same(&volume) && there.readonly == readonly => {}
            Some(there) => {
                let mode = if there.readonly {
                    "read-only"
                } else {
                    "writable"
                };
                let why = format!(
                    "{} is a {mode} mount of {} already",
                    target.display(),
                    there.source
                );
                return Err(Status::new(Code::AlreadyExists, why));
            }
            None => {
                if capability.is_for_one() {
                    self.check_alone(&volume)?;
                }
                self.make_folder(target)?;
                self.host.bind(staged, target, readonly)?;
            }
        }
        Ok(json!({}))
    }

    /// Checks that a volume for one pod is visible nowhere but where it is staged.
    fn check_alone(&self, volume: &Entry) -> Outcome<()> {
        let all = table()?;
        let other = all
            .iter()
            .find(|one| one.is_same(volume) && one.at != volume.at);
        match other {
            None => Ok(()),
            Some(other) => {
                let why = format!(
                    "the volume is for one pod, and is at {} already",
                    other.at.display()
                );
                Err(Status::new(Code::FailedPrecondition, why))
            }
        }
    }

    fn unpublish(&self, request: &OfNode) -> Outcome<Value> {
        OfNode::required("volume_id", &request.volume_id)?;
        let target = OfNode::required("target_path", &request.target_path)?;
        let _operation = self.in_flight.begin(target)?;
        let target = Path::new(target);
        self.host.unmount(target)?;
        match std::fs::remove_dir(self.host.seen(target)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(internal("remove the folder", target, &e))
            }
            _ => Ok(json!({})),
        }
    }

    fn stats(&self, request: &OfNode) -> Outcome<Value> {
        OfNode::required("volume_id", &request.volume_id)?;
        let path = OfNode::required("volume_path", &request.volume_path)?;
        // A mount whose server is away answers to nobody: one call waits, not all.
        let _operation = self.in_flight.begin(format!("stats {path}"))?;
        let path = Path::new(path);
        match rustix::fs::statvfs(self.host.seen(path)) {
            Ok(found) => Ok(usage(&found)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {
                let why = format!("nothing is at {}", path.display());
                Err(Status::new(Code::NotFound, why))
            }
            Err(e) if self.host.mounted(path)?.is_some() => Ok(json!({
                "volumeCondition": {"abnormal": true, "message": format!("the mount does not answer: {e}")},
            })),
            Err(e) => Err(internal("read the space of", path, &e.into())),
        }
    }
}

fn usage(found: &StatVfs) -> Value {
    let bytes =
        |blocks: u64| (u128::from(blocks) * u128::from(found.f_frsize)).min(i64::MAX as u128);
    let used = |all: u64, free: u64| all.saturating_sub(free);
    json!({
        "usage": [
            {
                "unit": "BYTES",
                "total": bytes(found.f_blocks).to_string(),
                "available": bytes(found.f_bavail).to_string(),
                "used": bytes(used(found.f_blocks, found.f_bfree)).to_string(),
            },
            {
                "unit": "INODES",
                "total": found.f_files.min(i64::MAX as u64).to_string(),
                "available": found.f_favail.min(i64::MAX as u64).to_string(),
                "used": used(found.f_files, found.f_ffree).min(i64::MAX as u64).to_string(),
            },
        ],
        "volumeCondition": {"abnormal": false, "message": "mounted"},
    })
}

fn capabilities() -> Value {
    let all = [
        "STAGE_UNSTAGE_VOLUME",
        "GET_VOLUME_STATS",
        "VOLUME_CONDITION",
        "SINGLE_NODE_MULTI_WRITER",
    ];
    let all = all.map(|kind| json!({"rpc": {"type": kind}}));
    json!({"capabilities": all})
}

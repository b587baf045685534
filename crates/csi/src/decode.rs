//! Decoding of a call by itself, without a driver that carries it out: for fuzzing.

use serde_json::Value;

use crate::messages;
use crate::names::{SnapshotId, VolumeId};
use crate::parameters::Parameters;
use crate::requests::{
    self, CreateVolume, GetCapacity, OfNode, OfSnapshots, OfVolume, Texts, read,
};
use crate::status::{Code, Outcome, Status};

/// Methods that read a request of each shape.
pub const METHODS: [&str; 8] = [
    "/csi.v1.Controller/CreateVolume",
    "/csi.v1.Controller/ControllerModifyVolume",
    "/csi.v1.Controller/ValidateVolumeCapabilities",
    "/csi.v1.Controller/CreateSnapshot",
    "/csi.v1.Controller/ListSnapshots",
    "/csi.v1.Controller/GetCapacity",
    "/csi.v1.Node/NodeStageVolume",
    "/csi.v1.Node/NodePublishVolume",
];

/// Decodes the body of a call of `path`, and all that the driver reads of it before it asks the
/// server.
///
/// # Errors
/// The refusal that the caller gets.
pub fn decode(path: &str, body: &[u8]) -> Outcome<Value> {
    let message = weir_grpc::message(body).map_err(|why| Status::new(Code::Internal, why))?;
    let request = messages::method(path)?.request(message)?;
    let read_texts = |texts: &Texts| {
        let _ = Parameters::read(texts);
        let _ = Parameters::mutable(texts);
    };
    match path.rsplit_once('/').map_or(path, |(_, method)| method) {
        "CreateVolume" => {
            let of: CreateVolume = read(request.clone())?;
            requests::check(&of.volume_capabilities)?;
            read_texts(&of.parameters);
            read_texts(&of.mutable_parameters);
        }
        "CreateSnapshot" | "ListSnapshots" => {
            let of: OfSnapshots = read(request.clone())?;
            let _ = VolumeId::parse(&of.source_volume_id);
            let _ = SnapshotId::parse(&of.snapshot_id);
        }
        "GetCapacity" => {
            let of: GetCapacity = read(request.clone())?;
            read_texts(&of.parameters);
        }
        "NodeStageVolume" | "NodePublishVolume" => {
            let of: OfNode = read(request.clone())?;
            of.capability()?;
        }
        _ => {
            let of: OfVolume = read(request.clone())?;
            of.volume()?;
            read_texts(&of.mutable_parameters);
        }
    }
    Ok(request)
}

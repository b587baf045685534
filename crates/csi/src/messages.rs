//! Messages of CSI by its own descriptors (`descriptors/make.py`), as JSON and back by protobuf's
//! mapping. Fields that the descriptors do not have are passed over, as protobuf's rule is.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

use crate::status::{Code, Outcome, Status};

static DESCRIPTORS: &[u8] = include_bytes!("../descriptors/csi.binpb");

/// A method of a service, with the messages that it takes and returns.
pub struct Method {
    input: MessageDescriptor,
    output: MessageDescriptor,
}

/// Returns the method of a call's path, such as `/csi.v1.Identity/Probe`.
///
/// # Errors
/// UNIMPLEMENTED: CSI has no such method.
pub fn method(path: &str) -> Outcome<&'static Method> {
    static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap_or_default();
        let mut all = HashMap::new();
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let made = Method {
                    input: method.input(),
                    output: method.output(),
                };
                all.insert(path, made);
            }
        }
        all
    });
    let found = METHODS.get(path);
    found.ok_or_else(|| Status::new(Code::Unimplemented, "CSI 1.12 has no such method"))
}

impl Method {
    /// Decodes a message into JSON: names in camelCase, defaults left out, 64-bit numbers as text.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is another message.
    pub fn request(&self, message: &[u8]) -> Outcome<Value> {
        let wrong = |why: String| {
            let name = self.input.full_name();
            Status::invalid(format!("invalid message: no {name}: {why}"))
        };
        let message = DynamicMessage::decode(self.input.clone(), message);
        let message = message.map_err(|e| wrong(e.to_string()))?;
        serde_json::to_value(&message).map_err(|e| wrong(e.to_string()))
    }

    /// Encodes a reply.
    ///
    /// # Errors
    /// INTERNAL: the JSON is not the method's reply.
    pub fn reply(&self, reply: Value) -> Outcome<Vec<u8>> {
        let made = DynamicMessage::deserialize(self.output.clone(), reply);
        let made = made.map_err(|e| {
            let name = self.output.full_name();
            Status::new(Code::Internal, format!("the reply is no {name}: {e}"))
        })?;
        Ok(made.encode_to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_turn_into_json_and_back() {
        let create = method("/csi.v1.Controller/CreateVolume").unwrap();
        // name "a", capacity_range.required_bytes 2^33, an unknown field 99.
        let message = b"\x0a\x01a\x12\x06\x08\x80\x80\x80\x80\x20\x98\x06\x01";
        assert_eq!(
            create.request(message).unwrap(),
            json!({"name": "a", "capacityRange": {"requiredBytes": "8589934592"}})
        );
        assert_eq!(
            create.request(b"\xff").unwrap_err().code,
            Code::InvalidArgument
        );
        let capacity = method("/csi.v1.Controller/GetCapacity").unwrap();
        let reply = capacity.reply(json!({"availableCapacity": 5, "maximumVolumeSize": "7"}));
        assert_eq!(reply.unwrap(), b"\x08\x05\x12\x02\x08\x07");
        assert_eq!(
            capacity.reply(json!({"colour": 1})).unwrap_err().code,
            Code::Internal
        );
        let unknown = method("/csi.v1.Controller/Fly").err().map(|e| e.code);
        assert_eq!(unknown, Some(Code::Unimplemented));
    }
}

//! Messages of Weir's own paths.

use super::{Kind, Message, field};

/// A token for the API.
pub static TOKEN: Message = Message {
    name: "weir.v1.Token",
    fields: &[
        field("name", Kind::String),
        field("role", Kind::String),
        field("createTime", Kind::Timestamp).output_only(),
        field("createdBy", Kind::String).output_only(),
        field("revokeTime", Kind::Timestamp).output_only(),
        field("token", Kind::String).output_only(),
    ],
};

//! Reading messages out of the public APIs' descriptors.
//!
//! A message is read once, when it is first needed, with all that it holds. What Weir has that the
//! public definition does not, and where Weir differs from it, is in [`super::differences`].

use super::differences::{INPUT_ONLY, OPEN_ENUMS, OUTPUT_ONLY, own_fields};
use super::{Enum, Field, Kind, Message};
use prost_reflect::{
    DescriptorPool, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, Kind as Type,
    MessageDescriptor, Value,
};
use std::sync::LazyLock;

/// The encoded descriptors, from Google's own libraries (`descriptors/make.py`).
static DESCRIPTORS: &[u8] = include_bytes!("../../descriptors/google.binpb");

/// Number of OUTPUT_ONLY in google.api.FieldBehavior.
const BEHAVIOUR_OUTPUT_ONLY: i32 = 3;
/// Number of INPUT_ONLY in google.api.FieldBehavior.
const BEHAVIOUR_INPUT_ONLY: i32 = 4;

/// Returns the descriptors of all public APIs that are served; they are decoded once.
pub fn pool() -> &'static DescriptorPool {
    static POOL: LazyLock<DescriptorPool> =
        LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());
    &POOL
}

/// Reads a message. It lives as long as the program: callers keep it in a static.
pub(super) fn read(name: &'static str) -> &'static Message {
    let found = pool().get_message_by_name(name);
    let behaviour = pool().get_extension_by_name("google.api.field_behavior");
    match (found, behaviour) {
        (Some(found), Some(behaviour)) => message(&found, &behaviour),
        // The descriptors are a part of the program, and a test reads every message.
        _ => unreachable!("{name} is not in the descriptors"),
    }
}

fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// Reads a message that does not hold itself.
fn message(of: &MessageDescriptor, behaviour: &ExtensionDescriptor) -> &'static Message {
    let name = leak(of.full_name());
    let fields = of.fields().map(|f| field(&f, name, behaviour));
    let fields: Vec<Field> = fields.chain(own_fields(name)).collect();
    Box::leak(Box::new(Message {
        name,
        fields: fields.leak(),
    }))
}

fn field(of: &FieldDescriptor, message: &str, behaviour: &ExtensionDescriptor) -> Field {
    let options = of.options();
    let behaviours = options.get_extension(behaviour);
    let behaviours = behaviours.as_list().unwrap_or_default();
    let is = |number: i32, table: &[(&str, &str)]| {
        let public = behaviours.contains(&Value::EnumNumber(number));
        public || table.contains(&(message, of.json_name()))
    };
    let one_of = of.containing_oneof();
    // A field that can be absent (`optional`) is alone in a group of its own, `_field`.
    let one_of = one_of.filter(|group| !group.name().starts_with('_'));
    Field {
        name: leak(of.json_name()),
        kind: if of.is_map() {
            Kind::Labels
        } else {
            kind(&of.kind(), behaviour)
        },
        repeated: of.is_list(),
        output_only: is(BEHAVIOUR_OUTPUT_ONLY, OUTPUT_ONLY),
        input_only: is(BEHAVIOUR_INPUT_ONLY, INPUT_ONLY),
        one_of: one_of.map(|group| leak(group.name())),
    }
}

/// Returns the form of a type in JSON.
fn kind(of: &Type, behaviour: &ExtensionDescriptor) -> Kind {
    match of {
        Type::String | Type::Bytes => Kind::String,
        Type::Bool => Kind::Bool,
        Type::Double | Type::Float => Kind::Double,
        Type::Int32 | Type::Sint32 | Type::Sfixed32 | Type::Uint32 | Type::Fixed32 => Kind::Int32,
        Type::Int64 | Type::Sint64 | Type::Sfixed64 | Type::Uint64 | Type::Fixed64 => Kind::Int64,
        Type::Enum(e) => Kind::Enum(enumeration(e)),
        Type::Message(m) => match m.full_name() {
            "google.protobuf.Timestamp" => Kind::Timestamp,
            "google.protobuf.Duration" | "google.protobuf.FieldMask" => Kind::String,
            "google.protobuf.Any" | "google.protobuf.Struct" => Kind::Any,
            "google.protobuf.BoolValue" => Kind::Bool,
            _ => Kind::Message(message(m, behaviour)),
        },
    }
}

fn enumeration(of: &EnumDescriptor) -> &'static Enum {
    let values = of.values().map(|v| (leak(v.name()), v.number()));
    let values: Vec<(&'static str, i32)> = values.collect();
    Box::leak(Box::new(Enum {
        name: leak(of.full_name()),
        open: OPEN_ENUMS.contains(&of.full_name()),
        values: values.leak(),
    }))
}

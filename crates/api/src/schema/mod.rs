//! The messages of the public APIs, as data.
//!
//! Both APIs are defined as protocol buffers and spoken as JSON by the mapping that protocol
//! buffers prescribe (<https://protobuf.dev/programming-guides/json/>). That mapping needs the
//! definition at run time. It takes 64-bit integers as strings or numbers and enums as names or
//! numbers, and refuses unknown names with the path. It checks masks against the definition, and
//! types filters by the field they name. Output-only fields are ignored in bodies but refused in
//! masks. So the definitions are tables here, and one decoder, one encoder, one mask, one filter
//! and the OpenAPI documents are all driven by them. A field that is in the table is accepted,
//! returned, filtered by and documented, and none of these can disagree with another. Structs with
//! derived decoders would need every one of those rules again at every field.

pub mod filestore;
pub mod netapp;
pub mod own;

/// A message: its full name in the public definition, and its fields.
#[derive(Debug)]
pub struct Message {
    /// The full name, such as `google.cloud.netapp.v1.Volume`.
    pub name: &'static str,
    /// Fields in the order of the definition.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON, lowerCamelCase.
    pub name: &'static str,
    /// The type of its value, or of each element.
    pub kind: Kind,
    /// Any number of them.
    pub repeated: bool,
    /// True if only the server sets it: ignored in bodies, refused in masks (AIP-203).
    pub output_only: bool,
    /// Never returned: a password.
    pub input_only: bool,
    /// At most one of the fields that name the same group may be set.
    pub one_of: Option<&'static str>,
}

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A JSON string; UTF-8.
    String,
    /// A JSON boolean: `true` or `false`.
    Bool,
    /// 32 bits, signed; a JSON number.
    Int32,
    /// 64 bits, signed; a JSON string.
    Int64,
    /// A finite number; 64-bit floating point.
    Double,
    /// A string as RFC 3339 defines it.
    Timestamp,
    /// An object that maps names to text.
    Labels,
    /// Any JSON value, kept as sent.
    Any,
    /// One of a set of names.
    Enum(&'static Enum),
    /// An object of another message.
    Message(&'static Message),
}

/// A set of names with numbers.
#[derive(Debug)]
pub struct Enum {
    /// Its full name in the public definition.
    pub name: &'static str,
    /// True if names outside the set are let through: an operator may define service levels and
    /// tiers of their own.
    pub open: bool,
    /// The first is the unspecified one, number 0.
    pub values: &'static [(&'static str, i32)],
}

/// Returns a singular field that clients may set.
const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        repeated: false,
        output_only: false,
        input_only: false,
        one_of: None,
    }
}

impl Field {
    const fn repeated(mut self) -> Field {
        self.repeated = true;
        self
    }

    const fn output_only(mut self) -> Field {
        self.output_only = true;
        self
    }

    const fn input_only(mut self) -> Field {
        self.input_only = true;
        self
    }

    const fn one_of(mut self, group: &'static str) -> Field {
        self.one_of = Some(group);
        self
    }
}

impl Message {
    /// Returns the field of that name, in lowerCamelCase or in the definition's own snake_case:
    /// both are valid in JSON.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|f| f.name == name || snake_equals(f.name, name))
    }
}

impl Enum {
    /// Returns the number of a name; names of an open set that the definition does not know have
    /// none.
    pub fn number(&self, name: &str) -> Option<i32> {
        self.values.iter().find(|v| v.0 == name).map(|v| v.1)
    }

    /// Returns the name of a number.
    pub fn name_of(&self, number: i64) -> Option<&'static str> {
        self.values
            .iter()
            .find(|v| i64::from(v.1) == number)
            .map(|v| v.0)
    }

    /// Returns the name that means "not said".
    pub fn unspecified(&self) -> &'static str {
        self.values.first().map_or("", |v| v.0)
    }
}

/// Returns true if `snake` is `camel` written with underscores: one before each capital, and
/// optionally one before a digit (`kerberos_5_read_only` is `kerberos5ReadOnly`). It allocates
/// nothing: it runs once a field and name.
fn snake_equals(camel: &str, snake: &str) -> bool {
    let mut s = snake.bytes().peekable();
    for c in camel.bytes() {
        if c.is_ascii_uppercase() {
            if s.next() != Some(b'_') || s.next() != Some(c.to_ascii_lowercase()) {
                return false;
            }
            continue;
        }
        if c.is_ascii_digit() {
            s.next_if_eq(&b'_');
        }
        if s.next() != Some(c) {
            return false;
        }
    }
    s.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_both_of_its_names_and_by_no_other() {
        let volume = &netapp::VOLUME;
        for name in ["throughputMibps", "throughput_mibps"] {
            assert_eq!(volume.field(name).map(|f| f.name), Some("throughputMibps"));
        }
        let rule = &netapp::SIMPLE_EXPORT_POLICY_RULE;
        for name in ["kerberos_5i_read_only", "kerberos5i_read_only"] {
            assert_eq!(rule.field(name).map(|f| f.name), Some("kerberos5iReadOnly"));
        }
        for name in ["ThroughputMibps", "throughput_Mibps", "throughput", "", "_"] {
            assert!(volume.field(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_tables_are_sound() {
        fn walk(m: &'static Message) {
            for (i, f) in m.fields.iter().enumerate() {
                assert!(!f.name.contains('_'), "{}.{}", m.name, f.name);
                assert!(m.fields.iter().skip(i + 1).all(|g| g.name != f.name));
                match f.kind {
                    Kind::Message(inner) => walk(inner),
                    Kind::Enum(e) => {
                        assert_eq!(e.number(e.unspecified()), Some(0), "{}", e.name);
                        assert!(e.unspecified().ends_with("_UNSPECIFIED"));
                    }
                    _ => {}
                }
            }
        }
        for m in [
            &netapp::STORAGE_POOL,
            &netapp::ACTIVE_DIRECTORY,
            &netapp::BACKUP_VAULT,
            &netapp::BACKUP,
            &netapp::BACKUP_POLICY,
            &netapp::VOLUME,
            &netapp::SNAPSHOT,
            &netapp::QUOTA_RULE,
            &filestore::INSTANCE,
            &filestore::SNAPSHOT,
        ] {
            walk(m);
        }
    }
}

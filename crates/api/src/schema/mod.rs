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
//!
//! The tables of the public messages are read from the descriptors that gRPC's calls are decoded by
//! ([`pool`]); [`own`] has Weir's own messages.

mod descriptors;
mod differences;
pub mod own;

pub use descriptors::pool;
use std::sync::LazyLock;

/// A message of a public API, read from the descriptors when it is first used.
pub type Public = LazyLock<&'static Message>;

/// Declares messages of the public APIs by their names in the descriptors.
macro_rules! public {
    ($package:literal; $($name:ident = $message:literal;)*) => {
        $(
            #[doc = concat!("The public message `", $package, ".", $message, "`.")]
            pub static $name: super::Public = super::Public::new(|| {
                super::descriptors::read(concat!($package, ".", $message))
            });
        )*

        /// The messages above.
        #[cfg(test)]
        pub(super) static ALL: &[&super::Public] = &[$(&$name),*];
    };
}

/// Messages of the NetApp Volumes API, version 1.
pub mod netapp {
    public! {
        "google.cloud.netapp.v1";
        STORAGE_POOL = "StoragePool";
        VOLUME = "Volume";
        SIMPLE_EXPORT_POLICY_RULE = "SimpleExportPolicyRule";
        SPLIT_STATUS = "SplitStatus";
        START_SPLIT_REQUEST = "StartSplitRequest";
        REVERT_VOLUME_REQUEST = "RevertVolumeRequest";
        SNAPSHOT = "Snapshot";
        QUOTA_RULE = "QuotaRule";
        ACTIVE_DIRECTORY = "ActiveDirectory";
        BACKUP_VAULT = "BackupVault";
        BACKUP = "Backup";
        BACKUP_POLICY = "BackupPolicy";
        BACKUP_CONFIG = "BackupConfig";
        RESTORE_BACKUP_FILES_REQUEST = "RestoreBackupFilesRequest";
        RESTORE_BACKUP_FILES_RESPONSE = "RestoreBackupFilesResponse";
        REPLICATION = "Replication";
        ESTABLISH_PEERING_REQUEST = "EstablishPeeringRequest";
        STOP_REPLICATION_REQUEST = "StopReplicationRequest";
    }
}

/// Messages of the Filestore API, version 1.
pub mod filestore {
    public! {
        "google.cloud.filestore.v1";
        INSTANCE = "Instance";
        FILE_SHARE_CONFIG = "FileShareConfig";
        NFS_EXPORT_OPTIONS = "NfsExportOptions";
        SNAPSHOT = "Snapshot";
        BACKUP = "Backup";
        REVERT_INSTANCE_REQUEST = "RevertInstanceRequest";
    }
}

/// Messages of long-running operations.
pub mod longrunning {
    public! {
        "google.longrunning";
        OPERATION = "Operation";
    }
}

/// A message: its full name in the public definition, and its fields.
#[derive(Debug)]
pub struct Message {
    /// The full name, such as `google.cloud.netapp.v1.Volume`.
    pub name: &'static str,
    /// Fields in the order of the definition.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
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
    fn behaviour_and_types_come_with_the_descriptors() {
        let field = |of: &'static Message, name: &str| of.field(name).unwrap();
        for (of, name, output_only, input_only) in [
            (&netapp::VOLUME, "usedGib", true, false),
            (&netapp::VOLUME, "capacityGib", false, false),
            (&netapp::VOLUME, "spaceStatus", true, false),
            (&netapp::BACKUP_VAULT, "sourceRegion", true, false),
            (&netapp::ACTIVE_DIRECTORY, "password", false, true),
            (&filestore::INSTANCE, "tags", false, true),
            (&filestore::INSTANCE, "capacityGb", false, false),
        ] {
            let f = field(of, name);
            assert_eq!(
                (f.output_only, f.input_only),
                (output_only, input_only),
                "{name}"
            );
        }
        let kind = |of: &'static Message, name: &str| field(of, name).kind;
        let within = |of: &'static Message, name: &str| match kind(of, name) {
            Kind::Message(inner) => inner,
            other => panic!("{name} is {other:?}"),
        };
        let stats = within(&netapp::REPLICATION, "transferStats");
        assert!(matches!(kind(stats, "lagDuration"), Kind::String));
        assert!(matches!(
            kind(&filestore::INSTANCE, "satisfiesPzs"),
            Kind::Bool
        ));
        assert!(matches!(kind(&netapp::VOLUME, "labels"), Kind::Labels));
        let restored = within(&netapp::VOLUME, "restoreParameters");
        assert_eq!(field(restored, "sourceBackup").one_of, Some("source"));
        assert_eq!(field(&netapp::BACKUP, "sourceVolume").one_of, None);
        assert!(matches!(
            kind(&longrunning::OPERATION, "metadata"),
            Kind::Any
        ));
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
        for m in [netapp::ALL, filestore::ALL, longrunning::ALL]
            .into_iter()
            .flatten()
        {
            walk(m);
        }
    }
}

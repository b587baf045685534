//! Differences between what Weir speaks and the public definitions.

use super::own::{DIRECTORY_SERVICES, SPACE_STATUS, THROUGHPUT_STATUS};
use super::{Field, Kind, field};

const POOL: &str = "google.cloud.netapp.v1.StoragePool";
const VOLUME: &str = "google.cloud.netapp.v1.Volume";
const VAULT: &str = "google.cloud.netapp.v1.BackupVault";
const BACKUP: &str = "google.cloud.netapp.v1.Backup";
const INSTANCE_BACKUP: &str = "google.cloud.filestore.v1.Backup";
const INSTANCE: &str = "google.cloud.filestore.v1.Instance";

/// Fields that only the server sets, though the public definition lets clients: message and field.
pub(super) const OUTPUT_ONLY: &[(&str, &str)] = &[(VAULT, "sourceRegion")];

/// Fields that are never returned, though the public definition does not say so: message and field.
pub(super) const INPUT_ONLY: &[(&str, &str)] =
    &[("google.cloud.netapp.v1.ActiveDirectory", "password")];

/// Enums to which operators add levels and tiers of their own.
pub(super) const OPEN_ENUMS: &[&str] = &[
    "google.cloud.netapp.v1.ServiceLevel",
    "google.cloud.filestore.v1.Instance.Tier",
];

/// Fields that the public definition of version 1 does not have, by message.
static OWN_FIELDS: &[(&str, Field)] = &[
    // Space that it holds, and the physical space below it.
    (POOL, field("spaceStatus", SPACE).output_only()),
    (VOLUME, field("spaceStatus", SPACE).output_only()),
    (INSTANCE, field("spaceStatus", SPACE).output_only()),
    // The limit that holds it back now.
    (VOLUME, field("throughputStatus", THROUGHPUT).output_only()),
    (
        INSTANCE,
        field("throughputStatus", THROUGHPUT).output_only(),
    ),
    // Reason of a state.
    (VAULT, field("stateDetails", Kind::String).output_only()),
    (BACKUP, field("stateDetails", Kind::String).output_only()),
    (
        INSTANCE_BACKUP,
        field("stateDetails", Kind::String).output_only(),
    ),
    // Paths that an instance's share is mounted by.
    (
        INSTANCE,
        field("exportPaths", Kind::String).repeated().output_only(),
    ),
    // Field of version v1beta1: capacity of the shares together.
    (INSTANCE, field("capacityGb", Kind::Int64)),
    // Field of newer definitions, which is refused by name.
    (INSTANCE, field("directoryServices", DIRECTORY)),
];

const DIRECTORY: Kind = Kind::Message(&DIRECTORY_SERVICES);
const SPACE: Kind = Kind::Message(&SPACE_STATUS);
const THROUGHPUT: Kind = Kind::Message(&THROUGHPUT_STATUS);

/// Returns Weir's own fields of a public message.
pub(super) fn own_fields(message: &str) -> impl Iterator<Item = Field> {
    let own = OWN_FIELDS.iter().filter(move |(of, _)| *of == message);
    own.map(|(_, field)| *field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::descriptors::pool;

    #[test]
    fn every_difference_is_one() {
        for (message, name) in OUTPUT_ONLY.iter().chain(INPUT_ONLY) {
            let message = pool().get_message_by_name(message).unwrap();
            let field = message.get_field_by_json_name(name).unwrap();
            let behaviour = pool().get_extension_by_name("google.api.field_behavior");
            let options = field.options();
            let said = options.get_extension(&behaviour.unwrap()).into_owned();
            for number in [3, 4] {
                let said = said.as_list().unwrap();
                assert!(!said.contains(&prost_reflect::Value::EnumNumber(number)));
            }
        }
        for (message, field) in OWN_FIELDS {
            let message = pool().get_message_by_name(message).unwrap();
            assert!(message.get_field_by_json_name(field.name).is_none());
        }
        for name in OPEN_ENUMS {
            assert!(pool().get_enum_by_name(name).is_some(), "{name}");
        }
    }
}

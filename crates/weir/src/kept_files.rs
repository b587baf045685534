//! Files of the data folder that have to go where the aggregate goes, besides the catalog: to the
//! partner of a pair, to an aggregate on RADOS, into a backup of the folder.

use weir_node::{backups, data_folder};

use crate::{accounts, ad, domains};

/// Files that belong to the aggregate, whichever server has it.
pub const OF_AGGREGATE: [&str; 6] = [
    data_folder::HANDLE_KEY,
    accounts::FILE,
    backups::KEYS,
    domains::FILE,
    ad::KEYTAB,
    ad::FILE,
];

/// Files by which others know the server.
const OF_SERVER: [&str; 5] = [
    "node-id",
    "replication-cert.pem",
    "replication-key.pem",
    "api-cert.pem",
    "api-key.pem",
];

/// Returns the names of all of them.
pub fn all() -> impl Iterator<Item = &'static str> {
    OF_AGGREGATE.into_iter().chain(OF_SERVER)
}

//! Files of the data folder that have to go where the aggregate goes, besides the catalog: to the
//! partner of a pair, to an aggregate on RADOS, into a backup of the folder.

use std::io;
use std::sync::Arc;

use anyhow::Result;
use weir_auth::ad;
use weir_control::CatalogCopy;
use weir_node::control_socket::Commands;
use weir_node::{backups, data_folder};

use crate::sign_in::{accounts, domains};

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
pub fn list_names() -> impl Iterator<Item = &'static str> {
    OF_AGGREGATE.into_iter().chain(OF_SERVER)
}

/// Carries out commands of a running server, and says that one is done when the files that it may
/// have changed are where the next owner of the aggregate finds them.
pub struct FileCopyCommands<C> {
    /// Second place of the files.
    pub copy: Option<Arc<dyn CatalogCopy>>,
    /// Commands themselves.
    pub next: C,
}

impl<C: Commands> Commands for FileCopyCommands<C> {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        let done = self.next.run(request, say)?;
        if let Some(copy) = &self.copy {
            crate::control::plane::event_loop()?.block_on(Arc::clone(copy).bring_up_to_date());
        }
        Ok(done)
    }
}

//! Records of clients in memory. See [`super::records`].

use super::record_encoding::{self, Entry};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Lsn, SipKey};
use weir_vfs::grace::{FileKey, Had, Kinds, PossibleClaims, RecordId};

/// The files of a client that its own record does not list.
#[derive(Debug, Default)]
pub(super) struct More {
    pub(super) ids: Vec<RecordId>,
    pub(super) had: Had,
}

/// The content of a client's records.
#[derive(Clone, Debug)]
pub(super) struct RecordContent {
    /// The number of its own record.
    pub(super) id: RecordId,
    /// Claims that its own record covers.
    pub(super) had: Had,
    pub(super) more: Arc<More>,
    /// The addresses in the record.
    pub(super) addresses: Vec<IpAddr>,
}

impl RecordContent {
    /// Returns true if a claim is covered.
    pub(super) fn covers(&self, claim: Option<(FileKey, Kinds)>) -> bool {
        claim.is_none_or(|(file, kinds)| {
            let covered = self.had.kinds(file).or(self.more.had.kinds(file));
            kinds.without(covered) == Kinds::NONE
        })
    }

    /// Returns all claims that are covered.
    pub(super) fn covered_claims(&self) -> Had {
        let mut all = self.more.had.clone();
        all.merge(self.had.clone());
        all
    }
}

/// The record of a client that is known.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kept: RecordContent,
    /// The log record that makes it durable.
    pub(super) lsn: Lsn,
}

/// The record from before the start of a client that has not come back.
pub(super) struct ExpectedClient {
    pub(super) kept: RecordContent,
    /// True if the refusal of a caller at another address was logged.
    pub(super) reported: bool,
}

/// Records from before the start.
#[derive(Default)]
pub(super) struct Before {
    /// Clients that have not come back, by name.
    pub(super) clients: HashMap<Box<[u8]>, ExpectedClient>,
}

impl Before {
    /// Loads the records of all clients. Returns also the records that belong to none, which are to
    /// be removed.
    pub(super) fn load(
        records: Vec<(RecordId, Box<[u8]>)>,
        owners: SipKey,
    ) -> (Before, Vec<RecordId>) {
        let mut more: HashMap<RecordId, More> = HashMap::new();
        let mut clients = HashMap::new();
        for (id, record) in records {
            match record_encoding::decode(&record, owners) {
                Some(Entry::Client(client)) => {
                    let kept = RecordContent {
                        id,
                        had: client.had,
                        more: Arc::default(),
                        addresses: client.addresses,
                    };
                    let reported = false;
                    clients.insert(client.name, ExpectedClient { kept, reported });
                }
                Some(Entry::More(of, files)) => {
                    let more = more.entry(of).or_default();
                    more.ids.push(id);
                    let whole = PossibleClaims::NOWHERE;
                    more.had.merge(Had { whole, files });
                }
                None => tracing::warn!(?record, "cannot decode the record of an NFSv4 client"),
            }
        }
        for ExpectedClient { kept, .. } in clients.values_mut() {
            kept.more = Arc::new(more.remove(&kept.id).unwrap_or_default());
        }
        let gone = more.into_values().flat_map(|more| more.ids);
        (Before { clients }, gone.collect())
    }

    /// Returns the names of the clients, and the claims that each may have had.
    pub(super) fn had(&self) -> impl Iterator<Item = (&[u8], Had)> {
        let clients = self.clients.iter();
        clients.map(|(name, expected)| (name.as_ref(), expected.kept.covered_claims()))
    }

    /// Returns the number of records of files, besides those of clients.
    pub(super) fn file_records(&self) -> usize {
        let clients = self.clients.values();
        clients.map(|expected| expected.kept.more.ids.len()).sum()
    }
}

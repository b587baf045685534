//! `gcloud netapp volumes replications`.

#![allow(rustdoc::broken_intra_doc_links)] // Brackets in help texts enclose what may be left out.

use clap::{Args, Subcommand};

use super::common::{Async, ListArgs, ResourceArgs, WordChanges, Words};
use crate::values::{self, Dict};

/// `weir volumes replications`
#[derive(Debug, Subcommand)]
pub enum Replications {
    /// Make a volume that copies another one, and keeps copying it
    Create(Box<ReplicationCreate>),
    /// List the replications of a volume
    List(ReplicationList),
    /// Show a replication
    Describe(ReplicationNamed),
    /// Change a replication's schedule, labels or description
    Update(Box<ReplicationUpdate>),
    /// Stop copying; the copy becomes writable
    Stop(ReplicationStop),
    /// Make a stopped replication's copy a copy again; what was written to it is gone
    Resume(ReplicationDo),
    /// Turn a stopped replication round: the copy becomes the source
    Reverse(ReplicationDo),
    /// Copy what has changed, now
    Sync(ReplicationDo),
    /// Offer pairing to the node of a replication's source, once more
    EstablishPeering(Box<EstablishPeering>),
    /// End a replication; both volumes stay
    Delete(ReplicationDo),
}

/// A replication.
#[derive(Debug, Args)]
pub struct ReplicationNamed {
    #[command(flatten)]
    pub named: ResourceArgs,
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
}

/// A replication, and whether its change is waited for.
#[derive(Debug, Args)]
pub struct ReplicationDo {
    #[command(flatten)]
    pub replication: ReplicationNamed,
    #[command(flatten)]
    pub wait: Async,
}

/// `weir volumes replications stop`
#[derive(Debug, Args)]
pub struct ReplicationStop {
    #[command(flatten)]
    pub one: ReplicationDo,
    /// End a transfer that is under way
    #[arg(long)]
    pub force: bool,
}

/// `weir volumes replications list`
#[derive(Debug, Args)]
pub struct ReplicationList {
    /// The volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    #[command(flatten)]
    pub listed: ListArgs,
}

/// `weir volumes replications create`
#[derive(Debug, Args)]
pub struct ReplicationCreate {
    #[command(flatten)]
    pub one: ReplicationDo,
    /// every-10-minutes, hourly, daily
    #[arg(long, value_name = "SCHEDULE", value_parser = values::enumerator)]
    pub replication_schedule: String,
    /// Destination: storage_pool=POOL[,volume_id=ID][,share_name=NAME][,description=TEXT]
    #[arg(long, value_name = "PARAMETERS", value_parser = destination)]
    pub destination_volume_parameters: Dict,
    #[command(flatten)]
    pub words: Words,
}

fn destination(text: &str) -> Result<Dict, String> {
    let keys = ["storage_pool", "volume_id", "share_name", "description"];
    let parameters = values::dict(text)?.only(&keys)?;
    parameters.required("storage_pool")?;
    Ok(parameters)
}

/// `weir volumes replications update`
#[derive(Debug, Args)]
pub struct ReplicationUpdate {
    #[command(flatten)]
    pub one: ReplicationDo,
    /// every-10-minutes, hourly, daily
    #[arg(long, value_name = "SCHEDULE", value_parser = values::enumerator)]
    pub replication_schedule: Option<String>,
    #[command(flatten)]
    pub words: WordChanges,
}

/// `weir volumes replications establish-peering`
#[derive(Debug, Args)]
pub struct EstablishPeering {
    #[command(flatten)]
    pub one: ReplicationDo,
    /// Name of the other node at this one
    #[arg(long, value_name = "NAME")]
    pub peer_cluster_name: String,
    /// The project of the source, there
    #[arg(long, value_name = "SVM")]
    pub peer_svm_name: String,
    /// The source, there
    #[arg(long, value_name = "VOLUME")]
    pub peer_volume_name: String,
    /// Address at which the other node listens for peers [default: the one that it connects from,
    /// with its own port]
    #[arg(long, value_name = "HOST:PORT")]
    pub peer_ip_addresses: Option<String>,
}

impl Replications {
    /// Returns the command's last words.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "replications.create",
            Self::List(_) => "replications.list",
            Self::Describe(_) => "replications.describe",
            Self::Update(_) => "replications.update",
            Self::Stop(_) => "replications.stop",
            Self::Resume(_) => "replications.resume",
            Self::Reverse(_) => "replications.reverse",
            Self::Sync(_) => "replications.sync",
            Self::EstablishPeering(_) => "replications.establish-peering",
            Self::Delete(_) => "replications.delete",
        }
    }
}

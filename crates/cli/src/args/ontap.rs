//! ONTAP's words: lines, the prompt, transfers with their progress; peers.

use clap::{Args, Subcommand};

use super::common::Common;

/// `weir ontap`
#[derive(Debug, Args)]
pub struct Ontap {
    #[command(flatten)]
    pub common: Common,
    /// A command, such as 'snapmirror show -fields throttle', or '?'; without one, lines are read
    /// from a prompt or a pipe
    #[arg(
        value_name = "LINE",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub line: Vec<String>,
}

/// `weir snapmirror`
#[derive(Debug, Args)]
pub struct Snapmirror {
    #[command(flatten)]
    pub common: Common,
    /// The rest of a snapmirror command: 'show', 'update -destination-path SVM:volume', '?', …;
    /// with --wait, what starts a transfer shows its progress and ends with it
    #[arg(
        value_name = "WORDS",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    pub words: Vec<String>,
}

/// `weir peers`
#[derive(Debug, Subcommand)]
pub enum Peers {
    /// Pair with another node: both ends name each other and each other's certificate
    Create(PeerCreate),
    /// Offer pairing to another node: prints the passphrase with which it joins, once and within an
    /// hour
    Invite(PeerInvite),
    /// Join a node that offers pairing
    Join(PeerJoin),
    /// List the nodes that this one is paired with
    List(PeerList),
    /// Show one of them; without a name, what a peer needs to know of this node: its address and
    /// fingerprint
    Show(PeerShow),
    /// Forget one of them
    Delete(PeerNamed),
}

/// `weir peers create`
#[derive(Debug, Args)]
pub struct PeerCreate {
    /// Name of the other node at this one
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Address at which it listens for peers; leave it out if only it connects to this node
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// SHA-256 of its certificate, as its 'weir peers show' prints it
    #[arg(long, value_name = "SHA256")]
    pub fingerprint: String,
    #[command(flatten)]
    pub common: Common,
}

/// `weir peers invite`
#[derive(Debug, Args)]
pub struct PeerInvite {
    /// Name of the other node at this one
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Address at which it listens for peers [default: the one that it connects from, with its own
    /// port]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

/// `weir peers join`
#[derive(Debug, Args)]
pub struct PeerJoin {
    /// Address at which the other node listens for peers
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
    /// Name of the other node at this one [default: the name that it gives itself]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A file with the passphrase [default: asked for, or a line of standard input]
    #[arg(long, value_name = "FILE")]
    pub passphrase_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

/// `weir peers list`
#[derive(Debug, Args)]
pub struct PeerList {
    #[command(flatten)]
    pub common: Common,
}

/// `weir peers show`
#[derive(Debug, Args)]
pub struct PeerShow {
    /// Its name [default: this node]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

/// `weir peers delete`
#[derive(Debug, Args)]
pub struct PeerNamed {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub common: Common,
}

impl Peers {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Invite(_) => "invite",
            Self::Join(_) => "join",
            Self::List(_) => "list",
            Self::Show(_) => "show",
            Self::Delete(_) => "delete",
        }
    }
}

//! Commands that gcloud has no words for: tokens and the audit log of a server, settings of this
//! command line.

use clap::{Args, Subcommand, ValueEnum};

use super::common::{Common, Listing};

/// `weir tokens`
#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Create a token and print it; it is not shown again. Or create a service account
    Create(TokenCreate),
    /// List tokens
    List(TokenList),
    /// Revoke a token
    Revoke(TokenRevoke),
}

/// Rights of a token's holder.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Role {
    /// Look
    Viewer,
    /// Look and change resources
    Editor,
    /// All, tokens and the audit log included
    Admin,
}

/// `weir tokens create`
#[derive(Debug, Args)]
pub struct TokenCreate {
    /// The token's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Role of its holder
    #[arg(long, value_enum)]
    pub role: Role,
    /// Let it count for so long only, such as 30d, 12h or 90m; without this, until it is revoked
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    pub expires: Option<std::time::Duration>,
    /// Create a service account in place of a token, and write its key to FILE, as Google's
    /// libraries read it; the server keeps the public key only
    #[arg(long, value_name = "FILE")]
    pub service_account: Option<std::path::PathBuf>,
    /// Check the change and print the result it would have; change nothing
    #[arg(long)]
    pub validate_only: bool,
    #[command(flatten)]
    pub common: Common,
}

/// `weir tokens list`
#[derive(Debug, Args)]
pub struct TokenList {
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub common: Common,
}

/// `weir tokens revoke`
#[derive(Debug, Args)]
pub struct TokenRevoke {
    /// The token's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Check that it could be revoked; change nothing
    #[arg(long)]
    pub validate_only: bool,
    #[command(flatten)]
    pub common: Common,
}

/// `weir audit`
#[derive(Debug, Args)]
pub struct Audit {
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub common: Common,
}

/// `weir conditions`
#[derive(Debug, Args)]
pub struct Conditions {
    #[command(flatten)]
    pub common: Common,
}

/// `weir status`
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub common: Common,
}

/// `weir support-bundle`
#[derive(Debug, Args)]
pub struct SupportBundle {
    /// The file to write, a tar.gz; one that exists is refused
    #[arg(value_name = "FILE")]
    pub file: std::path::PathBuf,
    #[command(flatten)]
    pub common: Common,
}

/// `weir config`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Set a setting: server, project, location, token-file or ca-cert
    Set {
        /// The setting
        name: String,
        /// Its value
        value: String,
    },
    /// Take a setting back
    Unset {
        /// The setting
        name: String,
    },
    /// Show the settings
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Tokens {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Revoke(_) => "revoke",
        }
    }
}

impl Config {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Set { .. } => "set",
            Self::Unset { .. } => "unset",
            Self::List { .. } => "list",
        }
    }
}

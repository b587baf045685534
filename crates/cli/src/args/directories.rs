//! `gcloud netapp active-directories`, but for `--password`: a command line is seen by every user
//! of a machine.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::common::{Async, DeleteOne, LabelChanges, ListArgs, ResourceArgs};
use crate::values;

/// `weir active-directories`
#[derive(Debug, Subcommand)]
pub enum ActiveDirectories {
    /// Make the server a member of a domain, for volumes with SMB
    Create(Box<DirectoryCreate>),
    /// List Active Directories
    List(ListArgs),
    /// Show an Active Directory, and whether the server is a member
    Describe(ResourceArgs),
    /// Change an Active Directory; with a password, join the domain again
    Update(Box<DirectoryUpdate>),
    /// End the membership; the account stays in the domain
    Delete(DeleteOne),
}

/// Fields that creation and change have in common.
#[derive(Debug, Args)]
pub struct DirectoryFields {
    /// A file with the user's password, or - for the standard input
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<String>,
    /// The organizational unit of the server's account, such as OU=Storage,DC=example,DC=com
    #[arg(long, value_name = "UNIT")]
    pub organizational_unit: Option<String>,
    /// The domain controller to ask, in place of one that the DNS names
    #[arg(long, value_name = "HOST")]
    pub kdc_hostname: Option<String>,
    /// Its address; kept for clients that read it
    #[arg(long, value_name = "ADDRESS")]
    pub kdc_ip: Option<String>,
    /// AES encryption of Kerberos; always
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub enable_aes: Option<bool>,
    /// Signed LDAP; always
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub enable_ldap_signing: Option<bool>,
    /// Encrypted connections to domain controllers; always
    #[arg(long, value_name = "BOOLEAN", value_parser = values::boolean)]
    pub encrypt_dc_connections: Option<bool>,
    /// A description
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
}

/// `weir active-directories create`
#[derive(Debug, Args)]
pub struct DirectoryCreate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// The domain's name in the DNS
    #[arg(long, value_name = "DOMAIN")]
    pub domain: String,
    /// Addresses of the domain's DNS servers; kept for clients that read them
    #[arg(long, value_name = "ADDRESS,…")]
    pub dns: String,
    /// Prefix of the name of the server's account
    #[arg(long, value_name = "PREFIX")]
    pub net_bios_prefix: String,
    /// A user who may join computers; the password is asked for, or read from the standard input
    #[arg(long, value_name = "USER")]
    pub username: String,
    #[command(flatten)]
    pub fields: DirectoryFields,
    /// Labels, KEY=VALUE,…
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::labels)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// `weir active-directories update`
#[derive(Debug, Args)]
pub struct DirectoryUpdate {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
    /// Addresses of the domain's DNS servers; kept for clients that read them
    #[arg(long, value_name = "ADDRESS,…")]
    pub dns: Option<String>,
    /// A user who may join computers. With it, --organizational-unit or --kdc-hostname the password
    /// is asked for, or read from the standard input
    #[arg(long, value_name = "USER")]
    pub username: Option<String>,
    #[command(flatten)]
    pub fields: DirectoryFields,
    #[command(flatten)]
    pub labels: LabelChanges,
}

impl ActiveDirectories {
    /// Returns the command's last word.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::List(_) => "list",
            Self::Describe(_) => "describe",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
        }
    }
}

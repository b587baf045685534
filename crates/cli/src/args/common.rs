//! Flags that commands share.

use std::collections::BTreeMap;

use clap::Args;

use crate::values::{self, List};

/// Heading under which the help shows them.
const COMMON: &str = "Common flags";

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Common {
    /// The project [default: weir]
    #[arg(help_heading = COMMON, long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Output format: table, json, yaml, csv, value, flattened, list or none, with a projection as
    /// in gcloud: 'table(name.basename(),state)'
    #[arg(help_heading = COMMON, long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Print JSON, like --format=json
    #[arg(help_heading = COMMON, long, conflicts_with = "format")]
    pub json: bool,
    /// Disable interactive prompts
    #[arg(help_heading = COMMON, long, short)]
    pub quiet: bool,
    /// The server's API [default: http://127.0.0.1:8049]
    #[arg(help_heading = COMMON, long, value_name = "URL")]
    pub server: Option<String>,
    /// CA certificate (PEM) used to verify the server instead of the system trust store
    #[arg(help_heading = COMMON, long, value_name = "FILE")]
    pub ca_cert: Option<String>,
    /// A file with the token to send; the variable WEIR_TOKEN may hold it as well
    #[arg(help_heading = COMMON, long, value_name = "FILE")]
    pub access_token_file: Option<String>,
    /// More flags, from a YAML or JSON file
    // Put in place before parsing; here for the help.
    #[arg(help_heading = COMMON, long, value_name = "FILE")]
    pub flags_file: Option<String>,
}

impl Common {
    /// Returns the output format that the user asked for.
    pub fn format(&self) -> Option<&str> {
        if self.json {
            return Some("json");
        }
        self.format.as_deref()
    }

    /// Returns true if whole replies are to be printed as JSON.
    pub fn is_json(&self) -> bool {
        self.format() == Some("json")
    }
}

/// The location of a resource.
#[derive(Debug, Clone, Default, Args)]
pub struct At {
    /// The location [default: local; lists take all]
    #[arg(long, visible_aliases = ["zone", "region"], value_name = "LOCATION")]
    pub location: Option<String>,
}

/// Flags of lists.
#[derive(Debug, Clone, Default, Args)]
pub struct Listing {
    /// Filter of resources: an expression such as 'serviceLevel=PREMIUM AND labels.env:*'
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Fields to sort by, ~FIELD for descending
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub sort_by: Vec<String>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Ask the server for so many at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub page_size: Option<u32>,
    /// Print addresses only
    #[arg(long)]
    pub uri: bool,
}

/// Resource to describe or to delete.
#[derive(Debug, Clone, Args)]
pub struct ResourceArgs {
    /// Its name, or its full name projects/…/locations/…/…
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub common: Common,
}

/// Resources to list.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub at: At,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub common: Common,
}

/// Mode of a change: made and waited for, made only, or only checked.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Async {
    /// Return the operation without waiting for it
    #[arg(long = "async")]
    pub no_wait: bool,
    /// Check the change and print the result it would have; change nothing
    #[arg(long, conflicts_with = "no_wait")]
    pub validate_only: bool,
}

/// Changes of labels.
#[derive(Debug, Clone, Default, Args)]
pub struct LabelChanges {
    /// Labels to add or to change, KEY=VALUE,…
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::labels)]
    pub update_labels: Option<BTreeMap<String, String>>,
    /// Labels to remove
    #[arg(long, value_name = "KEY", value_parser = values::list)]
    pub remove_labels: Option<List>,
    /// Remove all labels
    #[arg(long, conflicts_with = "remove_labels")]
    pub clear_labels: bool,
}

/// Description and labels of a new resource.
#[derive(Debug, Args)]
pub struct Words {
    /// A description
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Labels, KEY=VALUE,…
    #[arg(long, value_name = "KEY=VALUE", value_parser = values::labels)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Changes of description and labels.
#[derive(Debug, Args)]
pub struct WordChanges {
    /// A description
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    #[command(flatten)]
    pub labels: LabelChanges,
}

/// Resource to delete or to switch.
#[derive(Debug, Args)]
pub struct DeleteOne {
    #[command(flatten)]
    pub named: ResourceArgs,
    #[command(flatten)]
    pub wait: Async,
}

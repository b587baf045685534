//! `snapmirror show` and `snapmirror list-destinations`.

use std::collections::HashMap;

use weir_relations::model::Path;

use super::show::{self, Answer};
use crate::cluster::{Cluster, Failure};
use crate::fields::relationship::{FIELDS, rows};
use crate::grammar::ParsedCommand;
use crate::table::Column;

/// Runs `snapmirror show`: relationships whose destination is here.
pub fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Source", "Path"], 11).with_field("source-path"),
        Column::grouping(&["", "Type"], 4).with_field("type"),
        Column::new(&[" Destination", " Path"], 12).with_field("destination-path"),
        Column::new(&["Mirror", "State"], 7).with_field("state"),
        Column::new(&["Relationship", "Status"], 14).with_field("status"),
        Column::new(&["Total", "Progress"], 9).with_field("total-progress"),
        Column::new(&["", "Healthy"], 7).with_field("healthy"),
        Column::new(&["Progress", "Last", "Updated"], 8).with_field("progress-last-updated"),
    ];
    let one = parsed.get("destination-path").and_then(Path::parse);
    let found = match one.and_then(|path| cluster.relationship(&path)) {
        Some(one) => vec![one],
        None => cluster.relationships(),
    };
    let mut all = rows(cluster, found);
    // Relationships of one source are listed together, at the place of the first of them.
    let mut first: HashMap<Path, usize> = HashMap::new();
    for (at, r) in all.iter().enumerate() {
        first.entry(r.source.clone()).or_insert(at);
    }
    all.sort_by_key(|r| first.get(&r.source).copied());
    show::list(FIELDS, parsed, all, &["destination-path"], COLUMNS)
}

/// Runs `snapmirror list-destinations`: relationships whose source is here.
pub fn list_destinations(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["", "Source", "Path"], 11).with_field("source-path"),
        Column::grouping(&["", "", "Type"], 5).with_field("type"),
        Column::new(&["", "Destination", "Path"], 12).with_field("destination-path"),
        Column::new(&["", "", "Status"], 7).with_field("status"),
        Column::new(&["", "Transfer", "Progress"], 9).with_field("total-progress"),
        Column::new(&["Progress", "Last", "Updated"], 12).with_field("progress-last-updated"),
        Column::new(&["", "Relationship", "Id"], 15).with_field("relationship-id"),
    ];
    let all = rows(cluster, cluster.destinations());
    let keys = ["source-path", "destination-path"];
    show::list(FIELDS, parsed, all, &keys, COLUMNS)
}

//! `options`: the global throttles.

use super::show::{self, Answer};
use crate::cluster::{Cluster, Failure, Global};
use crate::fields::{Field, Value, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{failed, none, not_among};
use crate::table::{self, Column};
use crate::{query, value};
use weir_relations::manager::Verb;

const INCOMING: &str = "replication.throttle.incoming.max_kbs";
const OUTGOING: &str = "replication.throttle.outgoing.max_kbs";

/// The options that can be shown and set.
pub const NAMES: &[&str] = &[INCOMING, OUTGOING];

/// Shows options, or sets one where a value is given.
pub fn run(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let name = parsed.get("option-name");
    let meant: Vec<&str> = NAMES
        .iter()
        .copied()
        .filter(|known| name.is_none_or(|name| query::matches(name, known)))
        .collect();
    if meant.is_empty() {
        return Err(none());
    }
    let Some(text) = parsed.get("option-value") else {
        if parsed.for_programs {
            let all = meant
                .iter()
                .map(|name| (cluster.name(), *name, read_option(name, cluster)));
            return show::print(FIELDS, parsed, all.collect(), &[], |_| String::new());
        }
        return Ok(table(&meant, cluster).into());
    };
    let max = value::parse_throttle(text)
        .ok_or_else(|| not_among(text, "option-value", "throttleType", &value::throttles()))?;
    for option in &meant {
        let incoming = *option == INCOMING;
        cluster
            .change(Verb::GlobalThrottle { incoming, max }.into())
            .map_err(failed)?;
    }
    Ok(match meant.len() {
        1 => "1 entry was modified.\n".to_owned(),
        n => format!("{n} entries were modified.\n"),
    }
    .into())
}

/// Fields of options.
pub(super) const FIELDS: &[Field<(String, &str, Value)>] = rows! {
    Field::<(
        String, &str, Value)>::column("vserver", "Vserver", |(vserver,..)| vserver.clone().into(),
    ).key(),
    Field::<(
        String, &str, Value)>::column("option-name", "Option Name", |(_, name, _)| (*name).into(),
    ).key(),
    Field::<(
        String, &str, Value)>::column("option-value", "Option Value", |(.., value)| value.clone(),
    ).key(),
};

fn read_option(option: &str, cluster: &dyn Cluster) -> Value {
    match cluster.global_throttle(option == INCOMING) {
        Global::Unset => Value::None,
        Global::Unlimited => "unlimited".into(),
        Global::Max(kbs) => kbs.into(),
    }
}

fn table(options: &[&str], cluster: &dyn Cluster) -> String {
    const COLUMNS: &[Column] = &[
        Column::grouping(&[], 3),
        Column::new(&[], 33),
        Column::new(&[], 20),
        Column::new(&[], 20),
    ];
    let rows: Vec<Vec<String>> = options
        .iter()
        .map(|option| {
            let value = read_option(option, cluster).line();
            vec![String::new(), (*option).to_owned(), value, "-".to_owned()]
        })
        .collect();
    format!("\n{}\n{}", cluster.name(), table::plain(COLUMNS, &rows))
}

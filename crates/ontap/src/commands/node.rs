//! Commands for the node as a whole: schedules, peers, identity.

use weir_relations::schedule::{MONTHS, Numbers, Schedule, WEEKDAYS};

use super::show::{self, Answer, or_dash};
use crate::cluster::{Cluster, Failure};
use crate::fields::node::{FIELDS, Row, rows};
use crate::fields::{Field, Value, identity, peer, rows, schedule};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, invalid, none, not_among};
use crate::table::Column;
use crate::value;

use weir_relations::manager::Verb;

/// Runs `job schedule show`: ours and the user's.
pub fn schedules(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Name"], 12).with_field("name"),
        Column::new(&["Description"], 50).with_field("description"),
    ];
    show::list(
        schedule::FIELDS,
        parsed,
        cluster.schedules(),
        &["name"],
        COLUMNS,
    )
}

/// Runs `job schedule cron create`: what is not given is every one, but minutes, which have to be.
pub fn cron(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let numbers = |name: &str, low: u32, high: u32, words: &[&str], first: u32| {
        let text = parsed.get(name).unwrap_or("*").to_lowercase();
        let parts: Vec<String> = text
            .split(',')
            .map(|part| {
                let word = words
                    .iter()
                    .position(|word| part.len() >= 3 && word.starts_with(part));
                match word.and_then(|at| u32::try_from(at).ok()) {
                    Some(at) => (at + first).to_string(),
                    None => part.to_owned(),
                }
            })
            .collect();
        let text = if text == "all" {
            "*".to_owned()
        } else {
            parts.join(",")
        };
        Numbers::parse(&text, low, high)
            .ok_or_else(|| not_among(&text, name, "cron_value", &format!("{low} to {high}")))
    };
    argument(parsed, "minute")?;
    let change = Verb::ScheduleCreate {
        name: argument(parsed, "name")?.to_owned(),
        schedule: Schedule::At {
            minutes: numbers("minute", 0, 59, &[], 0)?,
            hours: numbers("hour", 0, 23, &[], 0)?,
            days: numbers("day", 1, 31, &[], 0)?,
            months: numbers("month", 1, 12, &MONTHS, 1)?,
            weekdays: numbers("dayofweek", 0, 6, &WEEKDAYS, 0)?,
        },
    };
    cluster.change(change.into()).map_err(failed)?;
    Ok(String::new().into())
}

/// Range of the sum of an interval's parts.
const SECONDS: &str = "1 second to 4294967295 seconds in all";

/// Runs `job schedule interval create`
pub fn interval(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let mut seconds: u32 = 0;
    for (name, factor) in [
        ("days", 86_400),
        ("hours", 3_600),
        ("minutes", 60),
        ("seconds", 1),
    ] {
        let Some(text) = parsed.get(name) else {
            continue;
        };
        let part: Option<u32> = text.parse().ok();
        let part = part.and_then(|n| n.checked_mul(factor));
        let sum = part.and_then(|n| n.checked_add(seconds));
        seconds = sum.ok_or_else(|| not_among(text, name, "integer", SECONDS))?;
    }
    if seconds == 0 {
        return Err(not_among("0", "seconds", "integer", SECONDS));
    }
    let change = Verb::ScheduleCreate {
        name: argument(parsed, "name")?.to_owned(),
        schedule: Schedule::Every(seconds),
    };
    cluster.change(change.into()).map_err(failed)?;
    Ok(String::new().into())
}

/// Runs `job schedule delete`, of one by its name.
pub fn delete_schedule(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let name = argument(parsed, "name")?;
    if !cluster.schedules().iter().any(|s| s.name == name) {
        return Err(none());
    }
    let change = Verb::ScheduleDelete(name.to_owned());
    cluster.change(change.into()).map_err(failed)?;
    Ok("1 entry was deleted.\n".to_owned().into())
}

/// Runs `cluster peer show`: nodes paired with this one.
pub fn peers(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Peer Cluster Name"], 25).with_field("cluster"),
        Column::new(&["Remote Addresses"], 26).with_field("peer-addrs"),
        Column::new(&["Availability"], 14).with_field("availability"),
    ];
    show::list(peer::FIELDS, parsed, cluster.peers(), &["cluster"], COLUMNS)
}

/// Runs `cluster peer create`: pairs with another node, whose certificate is known; or offers it
/// pairing; or joins it.
pub fn create_peer(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if let Some(passphrase) = parsed.get("passphrase") {
        let name = parsed.get("cluster").map(str::to_owned);
        let address = argument(parsed, "peer-addrs")?;
        let joined = cluster.join(name, address, passphrase).map_err(failed)?;
        return Ok(format!("Peer \"{joined}\" was created.\n").into());
    }
    if parsed.get("generate-passphrase").is_some() {
        let address = parsed.get("peer-addrs").map(str::to_owned);
        let offer = cluster.invite(argument(parsed, "cluster")?, address, false);
        let offer = offer.map_err(failed)?;
        return Ok(format!(
            "Notice:\n         Passphrase: {}\n         Expiration Time: {}\n         Intercluster LIF IP: {}\n         Peer Cluster Name: {}\n",
            offer.passphrase,
            value::event_time(offer.expires),
            or_dash(cluster.peer_address()),
            offer.name,
        )
        .into());
    }
    let fingerprint = argument(parsed, "fingerprint")?;
    let change = Verb::PeerCreate {
        name: argument(parsed, "cluster")?.to_owned(),
        address: parsed.get("peer-addrs").map(str::to_owned),
        fingerprint: self::fingerprint(fingerprint)
            .ok_or_else(|| invalid(fingerprint, "fingerprint", "SHA-256, hexadecimal"))?,
    };
    cluster.change(change.into()).map_err(failed)?;
    Ok(String::new().into())
}

/// Returns a SHA-256 as 64 lower-case hexadecimal digits; it may come with colons and in capitals,
/// as other programs print it.
pub fn fingerprint(text: &str) -> Option<String> {
    let digits: String = text
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_ascii_lowercase())
        .collect();
    (digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digits)
}

/// Runs `cluster peer delete`, of one by its name.
pub fn delete_peer(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let name = argument(parsed, "cluster")?;
    if !cluster.peers().iter().any(|p| p.name == name) {
        return Err(none());
    }
    let change = Verb::PeerDelete(name.to_owned());
    cluster.change(change.into()).map_err(failed)?;
    Ok("1 entry was deleted.\n".to_owned().into())
}

/// Runs `system node show`.
pub fn nodes(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Node"], 21).with_field("node"),
        Column::new(&["Health"], 7).with_field("health"),
        Column::new(&["Eligibility"], 12).with_field("eligibility"),
        Column::new(&["Model"], 10).with_field("model"),
    ];
    show::list(FIELDS, parsed, rows(cluster, None), &["node"], COLUMNS)
}

/// Runs `cluster show`: the machines of the cluster, or the one node that there is.
pub fn cluster_show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Node"], 21).with_field("node"),
        Column::new(&["Health"], 7).with_field("health"),
        Column::new(&["Eligibility"], 12).with_field("eligibility"),
    ];
    show::list(MEMBERS, parsed, rows(cluster, None), &["node"], COLUMNS)
}

/// Fields of the nodes of a cluster.
pub(super) const MEMBERS: &[Field<Row>] = rows! {
    Field::<Row>::column("node", "Node", |node: &Row| node.name.clone().into()).key(),
    Field::<Row>::column("health", "Health", |node: &Row| node.up.into()),
    Field::<Row>::column("eligibility", "Eligibility", |node: &Row| node.eligible.into()),
};

/// Runs `cluster date show`: the node's clock.
pub fn date(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Node"], 21).with_field("node"),
        Column::new(&["Date"], 19).with_field("date"),
        Column::new(&["Time zone"], 9).with_field("timezone"),
    ];
    let all = vec![(cluster.name(), cluster.current_time())];
    show::list(DATE, parsed, all, &["node"], COLUMNS)
}

/// Fields of the node's clock.
pub(super) const DATE: &[Field<(String, i64)>] = rows! {
    Field::<(String, i64)>::column("node", "Node", |(node, _)| node.clone().into()).key(),
    Field::<(String, i64)>::column("date", "Date", |(_, now): &(String, i64)| {
        Value::Shown(value::event_time(*now), Box::new(Value::Time(*now)))
    }),
    Field::<(String, i64)>::always("", "timezone", "Time zone", "Etc/UTC"),
};

/// Runs `cluster identity show`: what a peer is created with.
pub fn identity(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    show::list(
        identity::FIELDS,
        parsed,
        vec![identity::row(cluster)],
        &[],
        &[],
    )
}

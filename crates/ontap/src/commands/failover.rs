//! `storage failover`: the pair that this node is one of.

use super::show::{self, Answer};
use crate::cluster::{Cluster, Failover, Failure, Reason};
use crate::fields::node::reason;
use crate::fields::{Field, Value, rows};
use crate::grammar::Parsed;
use crate::refusal::{argument, failed, none};
use crate::table::Column;

/// Runs `storage failover` with this verb.
pub(super) fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    match verb {
        "show" => show(parsed, cluster),
        _ => hand_over(verb, parsed, cluster),
    }
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Node"], 14).of("node"),
        Column::new(&["", "Partner"], 14).of("partner-name"),
        Column::new(&["Takeover", "Possible"], 8).of("possible"),
        Column::new(&["", "State Description"], 37).of("state-description"),
    ];
    let all = cluster.failover().into_iter().collect();
    show::list(FIELDS, parsed, all, &["node"], COLUMNS)
}

/// Fields of the pair.
pub(super) const FIELDS: &[Field<Failover>] = rows! {
    Field::<Failover>::column("node", "Node", |f| f.node.clone().into()).key(),
    Field::<Failover>::column("partner-name", "Partner Name", |f| f.partner.clone().into()),
    Field::<Failover>::column("possible", "Takeover Possible", |f| f.possible.into()),
    Field::<Failover>::column("state-description", "State Description", |f| state(f).into()),
    Field::<Failover>::column("reason", "Reason Takeover Not Possible", |f| reason(f).into()),
    Field::<Failover>::column("interconnect-up", "Interconnect Up", |f| f.connected.into()),
    Field::<Failover>::column("lag", "Bytes Not Acknowledged", |f| f.lag.into()),
    Field::<Failover>::column("position", "Changes of the Term", |f| f.position.into()),
    Field::<Failover>::column(
        "cost-mean", "Mean Wait for the Partner (us)", |f| (f.cost.mean.as_micros() as u64).into(),
    ),
    Field::<Failover>::column(
        "cost-p99", "99th Percentile of It (us)", |f| (f.cost.p99.as_micros() as u64).into(),
    ),
    Field::<Failover>::column(
        "sent-per-written", "Bytes Sent per Byte Written",
        |f| f.cost.sent_per_written.map(Value::Decimal).into(),
    ),
    Field::<Failover>::column("trouble", "Trouble", |f| f.trouble.clone().into()),
    Field::<Failover>::always("", "mode", "Configuration Mode", "ha").aside(),
    Field::<Failover>::column(
        "partner-state", "Partner State", |f: &Failover| f.connected.then_some("up").into(),
    ).aside(),
};

fn state(f: &Failover) -> String {
    let linked = match f.connected {
        true => format!("Connected to {}", f.partner),
        false => format!("Waiting for {}", f.partner),
    };
    match reason(f) {
        None => linked,
        Some(why) => format!("{linked}, Takeover is not possible: {why}"),
    }
}

/// Runs `takeover -ofnode` this one, and `giveback -ofnode` the partner: either way the partner
/// serves from then on.
fn hand_over(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let pair = cluster.failover().ok_or_else(none)?;
    let of = argument(parsed, "ofnode")?;
    let (meant, other) = match verb {
        "takeover" => (&pair.node, &pair.partner),
        _ => (&pair.partner, &pair.node),
    };
    if of == other {
        let why = match verb {
            "takeover" => format!("Node \"{of}\" serves nothing that its partner could take over."),
            _ => format!("Node \"{of}\" serves its aggregate already."),
        };
        return Err(failed(Failure::new(Reason::State, why)));
    }
    if of != meant {
        return Err(none());
    }
    cluster.hand_over().map_err(failed)?;
    Ok(String::new().into())
}

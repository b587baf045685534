//! `storage failover`: the pair that this node is one of.

use super::refusal::{argument, failed, none};
use super::show::{self, Answer, Field, or_dash};
use crate::cluster::{Cluster, Failover, Failure, Reason};
use crate::grammar::Parsed;
use crate::table::{self, Column};

/// Runs `storage failover` with this verb.
pub(super) fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    match verb {
        "show" => show(parsed, cluster),
        _ => hand_over(verb, parsed, cluster),
    }
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Failover>] = &[
        Field::key("node", "Node", |f| f.node.clone()),
        Field::new("partner-name", "Partner Name", |f| f.partner.clone()),
        Field::new("possible", "Takeover Possible", |f| f.possible.to_string()),
        Field::new("state-description", "State Description", state),
        Field::new("reason", "Reason Takeover Not Possible", |f| {
            or_dash(reason(f).map(str::to_owned))
        }),
        Field::new("interconnect-up", "Interconnect Up", |f| {
            f.connected.to_string()
        }),
        Field::new("lag", "Bytes Not Acknowledged", |f| f.lag.to_string()),
        Field::new("position", "Changes of the Term", |f| {
            f.position.to_string()
        }),
        Field::new("cost-mean", "Mean Wait for the Partner (us)", |f| {
            f.cost.mean.as_micros().to_string()
        }),
        Field::new("cost-p99", "99th Percentile of It (us)", |f| {
            f.cost.p99.as_micros().to_string()
        }),
        Field::new("sent-per-written", "Bytes Sent per Byte Written", |f| {
            or_dash(f.cost.sent_per_written.map(|sent| format!("{sent:.3}")))
        }),
        Field::new("trouble", "Trouble", |f| or_dash(f.trouble.clone())),
        Field::new("mode", "Configuration Mode", |_: &Failover| "ha".to_owned()).aside(),
        Field::new("partner-state", "Partner State", |f: &Failover| {
            or_dash(f.connected.then(|| "up".to_owned()))
        })
        .aside(),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Node"], 14),
        Column::new(&["", "Partner"], 14),
        Column::new(&["Takeover", "Possible"], 8),
        Column::new(&["", "State Description"], 37),
    ];
    let all = cluster.failover().into_iter().collect();
    show::print(FIELDS, parsed, all, &["node"], |all| {
        let row = |f: &Failover| {
            vec![
                f.node.clone(),
                f.partner.clone(),
                f.possible.to_string(),
                state(f),
            ]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Returns ONTAP's words for why the partner may not serve.
pub fn reason(f: &Failover) -> Option<&'static str> {
    match (f.possible, f.connected) {
        (true, _) => None,
        (false, true) => Some("NVRAM log not synchronized"),
        (false, false) => Some("Storage failover interconnect error"),
    }
}

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

//! `storage failover` and `storage aggregate relocation`: the pair or the cluster that this node is
//! one of.

use super::show::{self, Answer};
use crate::cluster::{
    Cluster, Failover, Failure, MachineChange, Machines, Reason, ServedAggregate,
};
use crate::fields::node::reason;
use crate::fields::{Field, Value, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, none};
use crate::table::Column;

/// Runs `storage failover` with this verb.
pub(super) fn run(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    match verb {
        "show" => show(parsed, cluster),
        _ => hand_over(verb, parsed, cluster),
    }
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Node"], 14).with_field("node"),
        Column::new(&["", "Partner"], 14).with_field("partner-name"),
        Column::new(&["Takeover", "Possible"], 8).with_field("possible"),
        Column::new(&["", "State Description"], 37).with_field("state-description"),
    ];
    let all = match cluster.machines() {
        Some(machines) => machines.failovers(),
        None => cluster.failover().into_iter().collect(),
    };
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
    if f.in_cluster && reason(f).is_none() && f.partner.is_empty() {
        return "Owns no aggregate".to_owned();
    }
    let linked = match f.connected {
        true => format!("Connected to {}", f.partner),
        false => format!("Waiting for {}", f.partner),
    };
    match reason(f) {
        None => linked,
        Some(why) if f.in_cluster => format!("Takeover is not possible: {why}"),
        Some(why) => format!("{linked}, Takeover is not possible: {why}"),
    }
}

/// Runs `takeover -ofnode` this one, and `giveback -ofnode` the partner: either way the partner
/// serves from then on.
///
/// In a cluster `takeover -ofnode` drains a machine: others serve what it has. `giveback -ofnode`
/// lets it have aggregates again, and moves none.
fn hand_over(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if let Some(machines) = cluster.machines() {
        let of = machine(&machines, argument(parsed, "ofnode")?)?;
        let (change, said) = match verb {
            "takeover" => (
                MachineChange::Takeover(of.to_owned()),
                format!(
                    "Takeover of node \"{of}\" has begun. \"storage failover show\" shows what it still owns.\n"
                ),
            ),
            _ => (
                MachineChange::Giveback(of.to_owned()),
                format!(
                    "Node \"{of}\" may own aggregates again. \"storage aggregate relocation start\" moves them there.\n"
                ),
            ),
        };
        cluster.change_machines(&change).map_err(failed)?;
        return Ok(said.into());
    }
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

/// Returns the name of a machine that there is.
fn machine<'a>(machines: &Machines, name: &'a str) -> Result<&'a str, Failure> {
    let known = machines.nodes.iter().any(|machine| machine.name == name);
    known.then_some(name).ok_or_else(none)
}

/// Runs `storage aggregate relocation start`: an aggregate of the cluster, with all pools that are
/// in it, goes to another machine.
pub(super) fn relocate(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let machines = cluster.machines().ok_or_else(|| {
        let why = "There is no other node to which an aggregate could be relocated: this server is in no cluster.";
        failed(Failure::new(Reason::State, why))
    })?;
    let from = machine(&machines, argument(parsed, "node")?)?;
    let to = machine(&machines, argument(parsed, "destination")?)?;
    let list = argument(parsed, "aggregate-list")?;
    let owned = |name: &str| {
        let all = machines.served.iter();
        all.filter(|one| one.owner.as_deref() == Some(from))
            .any(|one| one.name == name)
    };
    let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
    if let Some(other) = wanted.iter().find(|name| !owned(name)) {
        let why = format!("Aggregate \"{other}\" is not owned by node \"{from}\".");
        return Err(failed(Failure::new(Reason::State, why)));
    }
    for aggregate in &wanted {
        let change = MachineChange::Relocate {
            aggregate: (*aggregate).to_owned(),
            to: to.to_owned(),
        };
        cluster.change_machines(&change).map_err(failed)?;
    }
    Ok(
        "Run the \"storage aggregate relocation show\" command to monitor the progress.\n"
            .to_owned()
            .into(),
    )
}

/// Runs `storage aggregate relocation show`: the aggregates of the cluster, and who owns them.
pub(super) fn relocations(
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Aggregate"], 20).with_field("aggregate"),
        Column::new(&["Owner"], 14).with_field("owner"),
        Column::new(&["Standby"], 14).with_field("standby"),
    ];
    let all = cluster.machines().map(|machines| machines.served);
    let all = all.unwrap_or_default();
    show::list(SERVED, parsed, all, &["aggregate"], COLUMNS)
}

/// Fields of the aggregates of a cluster.
pub(super) const SERVED: &[Field<ServedAggregate>] = rows! {
    Field::<ServedAggregate>::column("aggregate", "Aggregate", |one| one.name.clone().into()).key(),
    Field::<ServedAggregate>::column("owner", "Owner", |one| one.owner.clone().into()),
    Field::<ServedAggregate>::column("standby", "Standby", |one| one.standby.clone().into()),
};

//! `volume move`: moves of volumes to other aggregates of the cluster.

use super::show::{self, Answer};
use super::volume::{path, there};
use crate::cluster::{Change, Cluster, Failure, Reason, Volume};
use crate::fields::{Field, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed};
use crate::storage::Movement;
use crate::table::Column;
use weir_relations::model::Path;

/// Runs `volume move` with this verb.
pub(super) fn run(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    match verb {
        "show" => show(parsed, cluster),
        "abort" => abort(parsed, cluster),
        _ => start(parsed, cluster),
    }
}

fn start(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let to = argument(parsed, "destination-aggregate")?.to_owned();
    let said = format!(
        "Started moving volume \"{}\" in Vserver \"{}\" to aggregate \"{to}\". Use the \"volume move show -vserver {} \
         -volume {}\" command to view the status of this operation.\n",
        path.volume, path.vserver, path.vserver, path.volume
    );
    let change = Change::VolumeMove { path, to };
    cluster.change(change).map_err(failed)?;
    Ok(said.into())
}

fn abort(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let all = cluster.volumes();
    if !{ all.iter() }.any(|v| v.path == path && v.details.movement.is_some()) {
        let text = format!("Volume \"{path}\" is not being moved.");
        return Err(failed(Failure::new(Reason::State, text)));
    }
    cluster
        .change(Change::VolumeMoveAbort(path))
        .map_err(failed)?;
    Ok(String::new().into())
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 9).with_field("vserver"),
        Column::new(&["Volume"], 10).with_field("volume"),
        Column::new(&["State"], 8).with_field("state"),
        Column::new(&["Move Phase"], 16).with_field("phase"),
        Column::new(&["Percent-Complete"], 16).with_field("percent-complete"),
        Column::new(&["Destination"], 12).with_field("destination-aggregate"),
    ];
    let moving = |v: Volume| {
        let movement = v.details.movement?;
        Some(Row {
            path: v.path,
            movement,
        })
    };
    let all: Vec<Row> = cluster.volumes().into_iter().filter_map(moving).collect();
    show::list(FIELDS, parsed, all, &["vserver", "volume"], COLUMNS)
}

/// A move.
pub(super) struct Row {
    path: Path,
    movement: Movement,
}

/// Fields of a move.
pub(super) const FIELDS: &[Field<Row>] = rows! {
    Field::<Row>::column("vserver", "Vserver Name", |m| m.path.vserver.clone().into()).key(),
    Field::<Row>::column("volume", "Volume Name", |m| m.path.volume.clone().into()).key(),
    Field::<Row>::column(
        "destination-aggregate", "Destination Aggregate", |m| m.movement.destination.clone().into(),
    ),
    Field::<Row>::column("state", "Move State", |m| m.movement.state.into()),
    Field::<Row>::column("phase", "Move Phase", |m| m.movement.phase.into()),
    Field::<Row>::column(
        "percent-complete", "Percentage Complete", |m| u64::from(m.movement.percent).into(),
    ),
    Field::<Row>::column("details", "Detailed Status", |m| m.movement.why.clone().into()),
};

//! `weir cluster` and `weir aggregate`: make a machine a node of a cluster, ask its daemon, or ask
//! a server that is in no cluster about its aggregate.

use std::io::BufRead as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use weir_base::{Rng as _, SystemRng};
use weir_cluster::commands::Creation;
use weir_cluster::config::Config;
use weir_cluster::rows::{Kind, Settings};
use weir_node::os;
use weir_node::size::Size;
use weir_rados_store::RadosPlace;
use weir_store::folder::holder;

use crate::cli::usage;
use crate::cli::{AggregateCommand, AggregateCreate, ClusterCommand, ClusterNode};
use crate::process::interrupt;

/// Part of the machine's memory that a node's servers have together.
const MEMORY_SHARE: u64 = 2;
/// Words of a command that was ended while the daemon carries it out.
const GOES_ON: &str = "the cluster goes on with it; `weir cluster show` says how it stands";

/// Carries out `weir cluster`.
///
/// # Errors
/// No server or daemon runs on the folder; its reason.
pub fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Init(_) | ClusterCommand::Join(_) => {}
        ClusterCommand::Show { data, .. }
        | ClusterCommand::Takeover { data, .. }
        | ClusterCommand::Drain { data, .. }
        | ClusterCommand::Rebalance { data, .. }
        | ClusterCommand::Remove { data, .. } => check_daemon(data)?,
    }
    match command {
        ClusterCommand::Init(node) => join(node, true),
        ClusterCommand::Join(node) => join(node, false),
        ClusterCommand::Show {
            volumes,
            data,
            output,
        } => {
            let volumes = if *volumes { " --volumes" } else { "" };
            output.show(data, &format!("cluster show{volumes}"))
        }
        ClusterCommand::Takeover {
            host,
            aggregate,
            to,
            data,
            output,
        } => {
            let to = to.as_deref().unwrap_or_default();
            let request = match aggregate {
                Some(aggregate) => format!("aggregate move {aggregate} {to}"),
                None => format!("cluster takeover {}", host.as_deref().unwrap_or_default()),
            };
            interrupt::explain(GOES_ON);
            output.send_request(data, request.trim_end())
        }
        ClusterCommand::Drain {
            node,
            undo,
            data,
            output,
        } => {
            let word = if *undo { "undrain" } else { "drain" };
            interrupt::explain(GOES_ON);
            output.send_request(data, &format!("cluster {word} {node}"))
        }
        ClusterCommand::Rebalance {
            dry_run,
            data,
            output,
        } => {
            let dry = if *dry_run { " --dry-run" } else { "" };
            interrupt::explain("the move that has begun goes on, and no other one");
            output.send_request(data, &format!("cluster rebalance{dry}"))
        }
        ClusterCommand::Remove { node, data, output } => {
            output.send_request(data, &format!("cluster remove {node}"))
        }
    }
}

/// Carries out `weir aggregate`.
///
/// # Errors
/// No daemon runs on the folder; its reason.
pub fn aggregate(command: &AggregateCommand) -> Result<()> {
    interrupt::explain(GOES_ON);
    match command {
        AggregateCommand::Create(args) => check_daemon(&args.data)?,
        AggregateCommand::List { data, .. }
        | AggregateCommand::Move { data, .. }
        | AggregateCommand::Delete { data, .. } => check_daemon(data)?,
    }
    match command {
        AggregateCommand::Create(args) => create(args),
        AggregateCommand::List { data, output } => output.show(data, "aggregate list"),
        AggregateCommand::Move {
            name,
            to,
            data,
            output,
        } => output.send_request(data, &format!("aggregate move {name} {to}")),
        AggregateCommand::Delete { name, data, output } => {
            output.send_request(data, &format!("aggregate delete {name}"))
        }
    }
}

/// Checks that a daemon runs, on a folder that is a node's.
fn check_daemon(data: &Path) -> Result<()> {
    let is_node = Config::read(data)?.is_some();
    ensure!(
        !is_node || holder(data).is_some(),
        "no daemon runs on {} (start it with `weir node --data {}`)",
        data.display(),
        data.display()
    );
    Ok(())
}

/// Returns the database's address: of the options, or the first line of the standard input.
fn catalog(given: &str) -> Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.context("reading the database's address from the standard input")?;
    Ok(line.trim().to_owned())
}

fn join(node: &ClusterNode, create: bool) -> Result<()> {
    os::own_files_only();
    let usable = os::usable_memory();
    let memory = match (node.memory, usable) {
        (Some(memory), _) => memory,
        (None, Some(usable)) => Size(usable.0 / MEMORY_SHARE),
        (None, None) => Size(1 << 30),
    };
    // The daemon runs elsewhere.
    let absolute = |path: &Option<std::path::PathBuf>| {
        let path = path.as_ref().map(std::path::absolute);
        path.transpose().context("reading the current folder")
    };
    let config = Config {
        name: node.name.clone().unwrap_or_else(os::host_name),
        address: node.address,
        memory: memory.0,
        database: catalog(&node.catalog)?,
        ceph_conf: absolute(&node.ceph_conf)?,
        ceph_keyring: absolute(&node.ceph_keyring)?,
        ceph_user: node.ceph_user.clone(),
    };
    let (low, high) = (SystemRng.next_u64(), SystemRng.next_u64());
    let secret = format!("{low:016x}{high:016x}");
    config.join(&node.data, create.then_some(&*secret))?;
    let text = format!(
        "{} is a node of the cluster, with {memory} for its servers\nstart its daemon: weir node --data {}",
        config.name,
        node.data.display()
    );
    let data = json!({"node": config.name, "address": config.address, "memoryBytes": memory.0});
    node.output.print(&data, text)
}

/// Returns the kind and the place of a new aggregate.
fn place(args: &AggregateCreate) -> Result<(Kind, String)> {
    let invalid = |why: &str| usage::error(format!("invalid --on {}: {why}", args.on));
    if let Some(sides) = args.on.strip_prefix("pair:") {
        let sides: Option<Vec<_>> = sides.split(',').map(|side| side.split_once('=')).collect();
        let two = sides.is_some_and(|sides| {
            sides.len() == 2
                && sides[0].0 != sides[1].0
                && sides.iter().all(|(_, folder)| folder.starts_with('/'))
        });
        if !two {
            return Err(invalid(
                "a pair is pair:NODE=DIR,NODE=DIR, with two nodes and whole paths",
            ));
        }
        return Ok((Kind::Pair, args.on.clone()));
    }
    let place: Result<RadosPlace, _> = format!("{}/{}", args.on, args.name).parse();
    let place = place.map_err(|why| invalid(&why))?;
    Ok((Kind::Rados, place.to_string()))
}

fn create(args: &AggregateCreate) -> Result<()> {
    let (kind, place) = place(args)?;
    let is_pair = kind == Kind::Pair;
    let creation = Creation {
        name: args.name.clone(),
        kind,
        place,
        settings: Settings {
            // A pair's server has its own settings.
            nfs: (!is_pair).then(|| args.nfs.clone()),
            smb: args.smb.clone(),
            api: args.api.clone(),
            addresses: args.address.iter().map(ToString::to_string).collect(),
            memory: if is_pair { 0 } else { args.memory.0 },
        },
        node: args.node.clone(),
    };
    let request = serde_json::to_string(&creation)?;
    args.output
        .send_request(&args.data, &format!("aggregate create {request}"))
}

//! Commands at the socket of a node's daemon. What changes something is a question to PostgreSQL,
//! on a connection of its own; its progress is what the rows and the heartbeats say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_base::Clock;
use weir_base::limits::cluster::{NODE_SILENCE, SERVER_MEMORY_MIN};
use weir_node::control_socket::Commands;

use crate::config::Config;
use crate::daemon::ClusterState;
use crate::database::Database;
use crate::explain::why;
use crate::placement::{Load, counts, rebalance};
use crate::rows::{Aggregate, Assignment, Kind, Settings, View, check_name};
use crate::show::ClusterStatus;

/// Pause between two views while a command waits.
const STEP: Duration = Duration::from_millis(300);
/// Time without progress after which a command gives up.
const PATIENCE: Duration = Duration::from_secs(90);
/// Attempts to change a row that others change at the same time.
const TRIES: u32 = 5;

/// Sends a line to the client; fails when there is none any more.
type Say<'a> = dyn FnMut(&str) -> io::Result<()> + 'a;

/// A new aggregate.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Its name.
    pub name: String,
    /// Storage below it.
    pub kind: Kind,
    /// Its place.
    pub place: String,
    /// Options of its servers.
    pub settings: Settings,
    /// The node that is to own it first; `None` for the best one.
    pub node: Option<String>,
}

/// Commands of a node's daemon.
pub struct ClusterCommands {
    /// The node's settings.
    pub config: Config,
    /// The daemon's knowledge.
    pub known: Arc<Mutex<ClusterState>>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Commands for ClusterCommands {
    fn run(&self, request: &str, say: &mut Say<'_>) -> Result<String> {
        let (first, rest) = request.split_once(' ').unwrap_or((request, ""));
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match (first, word, rest) {
            ("cluster", "show", "--json") => Ok(self.with_status(|shown| shown.data().to_string())),
            ("cluster", "show", "--volumes") => {
                note_all(say, &self.with_status(|shown| shown.volumes()))
            }
            ("cluster", "show", "--volumes --json") => {
                Ok(self.with_status(|shown| shown.volumes_data().to_string()))
            }
            ("cluster", "show", "") => note_all(say, &self.with_status(|shown| shown.lines())),
            ("aggregate", "list", "") => {
                note_all(say, &self.with_status(|shown| shown.aggregates()))
            }
            ("aggregate", "list", "--json") => {
                Ok(self.with_status(|shown| shown.data()["aggregates"].to_string()))
            }
            ("aggregate", "create", text) => {
                let creation = serde_json::from_str(text).context("reading the request")?;
                Session::open(self)?.create(creation, say)
            }
            ("aggregate", "delete", name) => Session::open(self)?.delete(name, say),
            ("aggregate", "move", text) => {
                let (name, node) = text.split_once(' ').unwrap_or((text, ""));
                let node = Some(node).filter(|node| !node.is_empty());
                Session::open(self)?.move_to(name, node, say)
            }
            ("cluster", "begin-drain", node) => Session::open(self)?.begin_drain(node),
            ("aggregate", "begin-move", text) => {
                let (name, node) = text.split_once(' ').unwrap_or((text, ""));
                let node = Some(node).filter(|node| !node.is_empty());
                let to = Session::open(self)?.begin_move(name, node)?;
                Ok(format!("{name} moves to {}", to.node()))
            }
            ("cluster", "drain", node) => Session::open(self)?.drain(node, say),
            ("cluster", "undrain", node) => Session::open(self)?.undrain(node),
            ("cluster", "remove", node) => Session::open(self)?.remove(node),
            ("cluster", "rebalance", "") => Session::open(self)?.rebalance(false, say),
            ("cluster", "rebalance", "--dry-run") => Session::open(self)?.rebalance(true, say),
            ("cluster", "takeover", _) => {
                bail!("cannot switch: name the aggregate of the cluster with --aggregate")
            }
            _ => bail!(
                "cannot run '{request}': this is the daemon of a node, and its servers have folders of their own in {}",
                "aggregates/"
            ),
        }
    }
}

fn note_all(say: &mut Say<'_>, lines: &[String]) -> Result<String> {
    for line in lines {
        say(&format!("note {line}"))?;
    }
    Ok(String::new())
}

impl ClusterCommands {
    fn with_status<T>(&self, show: impl FnOnce(&ClusterStatus<'_>) -> T) -> T {
        let known = self.known.lock().clone();
        show(&ClusterStatus {
            this: &self.config.name,
            known: &known,
            now: self.clock.monotonic(),
        })
    }
}

/// Begin of a move.
enum MoveOutcome {
    /// The node owns the aggregate already.
    There(String),
    /// The aggregate goes to the node.
    Moves(String),
}

impl MoveOutcome {
    fn node(&self) -> &str {
        match self {
            MoveOutcome::There(node) | MoveOutcome::Moves(node) => node,
        }
    }
}

/// A connection for one command.
struct Session {
    runtime: tokio::runtime::Runtime,
    database: Database,
    clock: Arc<dyn Clock>,
    /// Time since which nothing has changed, and what it was.
    progress: (Duration, String),
}

impl Session {
    fn open(commands: &ClusterCommands) -> Result<Session> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let mut session = Session {
            runtime: { runtime }.enable_all().build()?,
            database: Database::new(&commands.config.database)?,
            clock: Arc::clone(&commands.clock),
            progress: (commands.clock.monotonic(), String::new()),
        };
        let Session {
            runtime, database, ..
        } = &mut session;
        let checked = runtime.block_on(database.check());
        checked.context("cannot change the cluster: PostgreSQL does not answer as it should")?;
        Ok(session)
    }

    fn view(&mut self) -> Result<View> {
        let view = self.runtime.block_on(self.database.view());
        view.context("cannot read the cluster's tables")
    }

    /// Says `text` if it is news, and waits a step.
    ///
    /// # Errors
    /// Nothing has changed for [`PATIENCE`]; nobody listens.
    fn wait(&mut self, text: &str, say: &mut Say<'_>) -> Result<()> {
        let now = self.clock.monotonic();
        if self.progress.1 != text {
            say(&format!("note {text}"))?;
            self.progress = (now, text.to_owned());
        }
        ensure!(
            now.saturating_sub(self.progress.0) < PATIENCE,
            "no progress for {} s: {text} (it goes on by itself once it can; `weir cluster show` says how it stands)",
            PATIENCE.as_secs()
        );
        std::thread::sleep(STEP);
        Ok(())
    }

    fn create(&mut self, creation: Creation, say: &mut Say<'_>) -> Result<String> {
        let name = creation.name.clone();
        check_name(&name).map_err(|why| anyhow!(why))?;
        let view = self.view()?;
        check_new(&view, &creation)?;
        let aggregate = Aggregate {
            name: name.clone(),
            kind: creation.kind,
            place: creation.place.clone(),
            settings: creation.settings,
            nodes: Assignment {
                owner: creation.node,
                ..Assignment::default()
            },
            deleting: false,
            created: 0,
            version: 0,
        };
        let entered = self.runtime.block_on(self.database.enter(&aggregate))?;
        ensure!(
            entered,
            "cannot create {name}: an aggregate of the cluster is at {}",
            creation.place
        );
        loop {
            let view = self.view()?;
            let Some(row) = view.aggregates.get(&name) else {
                bail!("{name} has been deleted meanwhile");
            };
            let others = view.nodes.values().filter(|node| node.takes_aggregates());
            let standby = why(&view, row).is_none() || others.count() < 2;
            if let Some((owner, _)) = view.real_owner(row).filter(|_| standby) {
                let standby = row.nodes.standby.as_deref().unwrap_or("nobody");
                return Ok(format!(
                    "{name} is served by {}, {standby} stands by",
                    owner.name
                ));
            }
            let text = why(&view, row).unwrap_or_else(|| "it starts".to_owned());
            self.wait(&format!("{name}: {text}"), say)?;
        }
    }

    fn delete(&mut self, name: &str, say: &mut Say<'_>) -> Result<String> {
        let view = self.view()?;
        let row = known_aggregate(&view, name)?;
        let (place, nodes) = (row.place.clone(), row.nodes.clone());
        for node in [nodes.owner, nodes.standby].into_iter().flatten() {
            let up = view.nodes.get(&node).is_some_and(|node| node.is_up());
            ensure!(
                up,
                "cannot delete {name}: its node {node} is down, and its server may run there"
            );
        }
        self.runtime.block_on(self.database.delete(name))?;
        while self.view()?.aggregates.contains_key(name) {
            self.wait(&format!("{name}: its servers end"), say)?;
        }
        Ok(format!(
            "{name} is no aggregate of the cluster any more; its data is still at {place}"
        ))
    }

    /// Sets the wanted owner of an aggregate.
    fn begin_move(&mut self, name: &str, node: Option<&str>) -> Result<MoveOutcome> {
        for _ in 0..TRIES {
            let view = self.view()?;
            let row = known_aggregate(&view, name)?.clone();
            let to = check_move(&view, &row, node)?;
            if view
                .real_owner(&row)
                .is_some_and(|(real, _)| real.name == to)
            {
                return Ok(MoveOutcome::There(to));
            }
            let done = self.database.set_target(&row, Some(&to));
            if self.runtime.block_on(done)? {
                return Ok(MoveOutcome::Moves(to));
            }
        }
        bail!("cannot move the aggregate: its row changes too often (try again)")
    }

    fn move_to(&mut self, name: &str, node: Option<&str>, say: &mut Say<'_>) -> Result<String> {
        let to = match self.begin_move(name, node)? {
            MoveOutcome::There(to) => return Ok(format!("{to} owns {name} already")),
            MoveOutcome::Moves(to) => to,
        };
        loop {
            let view = self.view()?;
            let row = known_aggregate(&view, name)?;
            let real = view.real_owner(row);
            if let Some((_, child)) = real.filter(|(real, _)| real.name == to) {
                return Ok(format!("{to} owns {name}, in epoch {}", child.epoch));
            }
            let text = why(&view, row).unwrap_or_else(|| "nothing is to be done".to_owned());
            let given_up = row.nodes.target.is_none();
            ensure!(
                !given_up || row.nodes.owner.as_ref() == Some(&to),
                "{name} does not move to {to} any more: its owner or the node changed meanwhile ({text})"
            );
            self.wait(&format!("{name}: {text}"), say)?;
        }
    }

    /// Notes that a node is to have no aggregates.
    fn begin_drain(&mut self, node: &str) -> Result<String> {
        let set = self
            .runtime
            .block_on(self.database.set_drained(node, true))?;
        ensure!(
            set,
            "cannot drain {node}: no node of the cluster has this name"
        );
        Ok(format!("{node} is being drained"))
    }

    fn drain(&mut self, node: &str, say: &mut Say<'_>) -> Result<String> {
        self.begin_drain(node)?;
        loop {
            let view = self.view()?;
            let rows = view.aggregates.values();
            // A pair's standby stays at its node.
            let left = rows.filter(|row| match row.kind {
                Kind::Rados => row.nodes.has_node(node),
                Kind::Pair => row.nodes.owner.as_deref() == Some(node),
            });
            let left: Vec<&Aggregate> = left.collect();
            let movable = |name: &&String| {
                let row = view.aggregates.get(*name);
                row.is_none_or(|row| row.kind == Kind::Rados)
            };
            let running = view.nodes.get(node).filter(|node| node.is_up());
            let running = running.map_or(0, |node| node.children.keys().filter(movable).count());
            if left.is_empty() && running == 0 {
                return Ok(format!(
                    "{node} is drained: it has no aggregates, and gets none until `weir cluster drain {node} --undo`"
                ));
            }
            let (owns, stands_by) = counts(&view, node);
            let reasons: Vec<String> = left
                .iter()
                .filter_map(|row| Some(format!("{}: {}", row.name, why(&view, row)?)))
                .collect();
            let reasons = reasons.join("; ");
            let more = if reasons.is_empty() { "" } else { ": " };
            self.wait(
                &format!(
                    "{node} still owns {owns} aggregates and stands by for {stands_by}{more}{reasons}"
                ),
                say,
            )?;
        }
    }

    fn undrain(&mut self, node: &str) -> Result<String> {
        let set = self
            .runtime
            .block_on(self.database.set_drained(node, false))?;
        ensure!(
            set,
            "cannot undo the drain of {node}: no node of the cluster has this name"
        );
        Ok(format!(
            "{node} may have aggregates again (`weir cluster rebalance` moves some there)"
        ))
    }

    fn remove(&mut self, node: &str) -> Result<String> {
        let view = self.view()?;
        let Some(found) = view.nodes.get(node) else {
            bail!("cannot remove {node}: no node of the cluster has this name");
        };
        ensure!(
            !found.is_up(),
            "{node} sends heartbeats: stop its daemon first (`weir cluster drain {node}` moves its aggregates away)"
        );
        let removed = self.database.remove_node(node, NODE_SILENCE);
        ensure!(
            self.runtime.block_on(removed)?,
            "{node} is the owner or the standby of an aggregate (`weir cluster show` has them; `weir cluster drain {node}` first)"
        );
        Ok(format!("{node} is no node of the cluster any more"))
    }

    fn rebalance(&mut self, dry: bool, say: &mut Say<'_>) -> Result<String> {
        let moves = rebalance(&self.view()?);
        for one in &moves {
            say(&format!(
                "note {} moves from {} to {}",
                one.aggregate, one.from, one.to
            ))?;
        }
        if dry || moves.is_empty() {
            let would = if dry { "would be moved" } else { "moved" };
            return Ok(format!("{} aggregates {would}", moves.len()));
        }
        for one in &moves {
            let done = self.move_to(&one.aggregate, Some(&one.to), say)?;
            say(&format!("note {done}"))?;
        }
        Ok(format!("{} aggregates moved", moves.len()))
    }
}

/// Returns the nodes and folders of a new pair.
fn sides(creation: &Creation) -> Vec<(String, String)> {
    let sides = creation.place.strip_prefix("pair:").unwrap_or_default();
    let sides = sides.split(',').filter_map(|side| side.split_once('='));
    sides
        .map(|(node, folder)| (node.to_owned(), folder.to_owned()))
        .collect()
}

fn known_aggregate<'a>(view: &'a View, name: &str) -> Result<&'a Aggregate> {
    let row = view.aggregates.get(name);
    let row = row.with_context(|| {
        format!("cannot find {name}: the cluster has no aggregate of this name")
    })?;
    ensure!(!row.deleting, "{name} is being deleted");
    Ok(row)
}

/// Returns the node to which an aggregate is to move: `node`, or else its standby.
fn check_move(view: &View, row: &Aggregate, node: Option<&str>) -> Result<String> {
    let name = &row.name;
    ensure!(
        view.real_owner(row).is_some(),
        "cannot move {name}: no node reports that it owns it; {}",
        why(view, row).unwrap_or_default()
    );
    let to = node.or(row.nodes.standby.as_deref());
    let to = to.with_context(|| format!("cannot move {name}: it has no standby"))?;
    let found = view.nodes.get(to);
    let found =
        found.with_context(|| format!("cannot move {name}: the cluster has no node {to}"))?;
    ensure!(found.is_up(), "cannot move {name}: {to} is down");
    ensure!(
        !found.drained,
        "cannot move {name}: {to} is drained (`weir cluster drain {to} --undo`)"
    );
    let has = row.kind == Kind::Pair && row.belongs_to(to);
    ensure!(
        row.kind == Kind::Rados || has,
        "cannot move {name}: {to} is no node of this pair"
    );
    ensure!(
        has || Load::from_view(view).fits(row, to),
        "cannot move {name}: {to} lacks the memory for it"
    );
    Ok(to.to_owned())
}

/// Checks a new aggregate against the others: two at one port of a node could not both be served.
fn check_new(view: &View, creation: &Creation) -> Result<()> {
    let settings = &creation.settings;
    ensure!(
        !view.aggregates.contains_key(&creation.name),
        "cannot create {}: the cluster has an aggregate of this name",
        creation.name
    );
    ensure!(
        creation.kind == Kind::Pair || settings.memory >= SERVER_MEMORY_MIN,
        "cannot create {}: a server takes {} MiB of memory at least",
        creation.name,
        SERVER_MEMORY_MIN >> 20
    );
    for other in view.aggregates.values() {
        let all = [
            ("NFS", &settings.nfs, &other.settings.nfs),
            ("SMB", &settings.smb, &other.settings.smb),
            ("the API", &settings.api, &other.settings.api),
        ];
        for (protocol, new, old) in all {
            let same = new.is_some() && new == old;
            ensure!(
                !same,
                "aggregate {} serves {protocol} at {}: pass another port, or an address of the aggregate's own",
                other.name,
                new.as_ref().map(ToString::to_string).unwrap_or_default()
            );
        }
        let shared = settings
            .addresses
            .iter()
            .find(|one| other.settings.addresses.contains(one));
        ensure!(
            shared.is_none(),
            "aggregate {} has the address {}",
            other.name,
            shared.map_or("", String::as_str)
        );
    }
    for (node, _) in sides(creation) {
        ensure!(
            view.nodes.contains_key(&node),
            "cannot create {}: the cluster has no node {node}",
            creation.name
        );
    }
    if let Some(node) = &creation.node {
        let found = view.nodes.get(node);
        let found = found.with_context(|| {
            format!("cannot create the aggregate: the cluster has no node {node}")
        })?;
        ensure!(
            found.takes_aggregates(),
            "cannot create the aggregate: {node} is down or drained"
        );
    }
    Ok(())
}

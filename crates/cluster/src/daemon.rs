//! The daemon of a node: it reads the tables, sends its heartbeat, leads if it holds the lease, and
//! has the servers run that the rows want here. It touches no data, and its end interrupts nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_base::limits::cluster::{GAP, ROUND};
use weir_base::{Clock, small_file};

use crate::conditions::{Fact, facts};
use crate::config::Config;
use crate::database::{Beat, Database, Round};
use crate::directory::{self, Directory};
use crate::grants::{Unreported, grants};
use crate::rows::{Aggregate, Assignment, Child, Node, NodeApi, Token, View};
use crate::rules::{Act, act, decide};
use crate::servers::Servers;

/// Name of the file with the newest view, for a start without the database.
const VIEW: &str = "view.json";
/// Name of the file with the newest directory, likewise.
const DIRECTORY: &str = "directory.json";

/// Knowledge of the daemon about the cluster, for commands.
#[derive(Clone, Default)]
pub struct ClusterState {
    /// The newest view.
    pub view: View,
    /// Monotonic time of the view; `None` if it is of an earlier start.
    pub read_at: Option<Duration>,
    /// Time since which the database is out of reach, and the newest reason.
    pub outage: Option<(Duration, String)>,
    /// The servers of this node now.
    pub children: BTreeMap<String, Child>,
    /// The volumes of all aggregates.
    pub directory: Arc<Directory>,
}

impl ClusterState {
    /// Returns the view with this node's own servers as they are now. While the database answers,
    /// the silence of the other nodes is measured at `now`; in an outage it is that of the view.
    pub fn view_at(&self, now: Duration, this: &str) -> View {
        let mut view = self.view.clone();
        let read_at = self.read_at.filter(|_| self.outage.is_none());
        let age = read_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        for node in view.nodes.values_mut() {
            node.silent = node.silent.saturating_add(age);
        }
        if let Some(node) = view.nodes.get_mut(this) {
            node.children.clone_from(&self.children);
            node.silent = Duration::ZERO;
        }
        view
    }

    /// Returns the faults of the cluster, as the node `this` knows them.
    pub fn facts(&self, now: Duration, this: &str) -> Vec<Fact> {
        let outage = self.outage.as_ref();
        facts(
            &self.view_at(now, this),
            outage.map(|(_, why)| why.as_str()),
        )
    }
}

/// A newest view in its file.
#[derive(Serialize, Deserialize)]
struct ViewFile {
    view: View,
}

/// The daemon.
pub struct Daemon {
    config: Config,
    folder: PathBuf,
    version: &'static str,
    clock: Arc<dyn Clock>,
    database: Database,
    servers: Servers,
    known: Arc<Mutex<ClusterState>>,
    /// Name of this start.
    holder: String,
    /// Term of which this daemon is the leader, and the time since which it leads without a gap.
    term: Option<(i64, Duration)>,
    /// Time of the last round that the database answered.
    last: Option<Duration>,
    /// Rows as they were written to the file.
    directory: Directory,
    /// Hashes of the directory as it was written to folders.
    written: BTreeMap<PathBuf, i64>,
    kept: (BTreeMap<String, Aggregate>, Vec<Token>),
    /// Place at which this node answers the API.
    api: Option<NodeApi>,
    /// Shared limits in the tables that no server reports.
    unreported: Unreported,
}

/// Parts that a daemon is started with.
pub struct Start<'a> {
    /// Its settings.
    pub config: Config,
    /// Its folder.
    pub folder: &'a Path,
    /// The file of `weir`.
    pub program: PathBuf,
    /// The version of `weir`.
    pub version: &'static str,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// A name that no other start of a daemon has.
    pub holder: String,
    /// Place at which this node answers the API.
    pub api: Option<NodeApi>,
}

impl Daemon {
    /// Begins with the view of the daemon before, and adopts its servers.
    ///
    /// # Errors
    /// The address of the database is none; a file cannot be read.
    pub fn new(start: Start<'_>) -> Result<Daemon> {
        let Start {
            config,
            folder,
            program,
            version,
            clock,
            holder,
            api,
        } = start;
        let text = small_file::read(&folder.join(VIEW)).context("reading the newest view")?;
        // A damaged file is as none: the database has the rows.
        let kept = text.and_then(|text| serde_json::from_slice::<ViewFile>(&text).ok());
        let view = kept.map(|kept| kept.view).unwrap_or_default();
        let text = small_file::read(&folder.join(DIRECTORY)).context("reading the directory")?;
        // As above.
        let directory = text.and_then(|text| serde_json::from_slice::<Directory>(&text).ok());
        let directory = directory.unwrap_or_default();
        let mut servers = Servers::new(program, folder, config.clone(), Arc::clone(&clock));
        for name in servers.left_over() {
            match view.aggregates.get(&name) {
                Some(aggregate) => servers.start(aggregate)?,
                None => tracing::warn!("{name}: a server runs here, and its row is not known yet"),
            }
        }
        let known = ClusterState {
            view: view.clone(),
            directory: Arc::new(directory.clone()),
            ..ClusterState::default()
        };
        Ok(Daemon {
            database: Database::new(&config.database)?,
            config,
            folder: folder.to_owned(),
            version,
            clock,
            servers,
            known: Arc::new(Mutex::new(known)),
            holder,
            term: None,
            last: None,
            directory,
            written: BTreeMap::new(),
            kept: (view.aggregates, view.tokens),
            api,
            unreported: Unreported::default(),
        })
    }

    /// Returns what the daemon knows, for commands.
    pub fn known(&self) -> Arc<Mutex<ClusterState>> {
        Arc::clone(&self.known)
    }

    /// Runs for ever. Dropping the future ends the daemon and leaves the servers as they are.
    pub async fn run(&mut self) {
        let mut ticks = tokio::time::interval(ROUND);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.round().await;
        }
    }

    /// Ends all servers in order.
    pub fn stop_servers(&mut self) {
        self.servers.stop_all();
    }

    /// One round: heartbeat, view, the leader's decisions, this node's servers.
    async fn round(&mut self) {
        let children = self.servers.reports();
        let node = Node {
            name: self.config.name.clone(),
            address: self.config.address.to_string(),
            version: self.version.to_owned(),
            memory: self.config.memory,
            drained: false,
            silent: Duration::ZERO,
            children: children.clone(),
            api: self.api.clone(),
        };
        let beat = Beat {
            node: &node,
            holder: &self.holder,
            term: self.term.map_or(0, |(term, _)| term),
        };
        let answer = self.database.beat(&beat).await;
        let now = self.clock.monotonic();
        let fresh = answer.is_ok();
        match answer {
            Ok(Round { view, term }) => {
                self.note_round(&view, term, now);
                self.servers.hand_shares(&children, &view);
                if let Err(error) = self.keep(&view) {
                    tracing::error!("{error:#}; a start without the database has an older view");
                }
                let mut known = self.known.lock();
                if let Some((since, _)) = known.outage.take() {
                    let seconds = now.saturating_sub(since).as_secs();
                    tracing::info!("PostgreSQL answers again after {seconds} s");
                }
                known.view = view;
                known.read_at = Some(now);
                known.children = children.clone();
            }
            Err(error) => {
                self.term = None;
                let mut known = self.known.lock();
                let text = format!("{error:#}");
                if known.outage.is_none() {
                    tracing::error!(
                        "cannot reach the cluster's tables: {text}; what is served goes on, and nothing can be changed"
                    );
                }
                let since = known.outage.take().map_or(now, |(since, _)| since);
                known.outage = Some((since, text));
                known.children = children.clone();
            }
        }
        self.exchange(now, fresh).await;
        let found = self.known.lock().facts(now, &self.config.name);
        self.servers.tell(&found);
        self.lead(now).await;
        self.grant(now).await;
        self.carry_out(&children, fresh).await;
    }

    /// Exchanges the lists of volumes with the other daemons, and hands all to the servers here.
    async fn exchange(&mut self, now: Duration, fresh: bool) {
        let own = self.servers.listings();
        for (name, (entry, _)) in &own {
            self.directory.take(name, entry.clone());
        }
        if fresh {
            match self.database.exchange(&own, &mut self.directory).await {
                Ok(there) => {
                    let known = self.known.lock();
                    let rows = &known.view.aggregates;
                    let is_there = |name: &str| rows.contains_key(name) || there.contains(name);
                    self.directory.forget(now, is_there);
                }
                Err(error) => tracing::warn!("cannot exchange the lists of volumes: {error:#}"),
            }
        }
        if *self.known.lock().directory != self.directory {
            self.known.lock().directory = Arc::new(self.directory.clone());
        }
        if let Err(error) = self.hand_out() {
            tracing::error!("{error:#}; servers here have an older directory of the cluster");
        }
    }

    /// Writes the directory to this node's folder and to those of its servers where it has changed.
    fn hand_out(&mut self) -> Result<()> {
        let view = self.known.lock().view.clone();
        let nodes = view
            .nodes
            .values()
            .filter_map(|node| node.address.parse().ok());
        let nodes: Vec<IpAddr> = nodes.collect();
        let file = serde_json::to_vec(&self.directory.file(&nodes))?;
        let kept = serde_json::to_vec(&self.directory)?;
        let mut targets = vec![(self.folder.clone(), DIRECTORY, &kept)];
        // A server creates its folder when it starts.
        let folders = self.servers.folders().filter(|folder| folder.is_dir());
        targets.extend(folders.map(|folder| (folder.to_owned(), directory::FILE, &file)));
        for (folder, name, text) in targets {
            let digest = directory::digest(text);
            if self.written.get(&folder) == Some(&digest) {
                continue;
            }
            small_file::replace(&folder, name, text)
                .with_context(|| folder.join(name).display().to_string())?;
            self.written.insert(folder, digest);
        }
        Ok(())
    }

    /// Notes a lease, and since when this daemon has led without a gap.
    fn note_round(&mut self, view: &View, term: Option<i64>, now: Duration) {
        let gap = self.last.is_none_or(|last| now.saturating_sub(last) > GAP);
        self.last = Some(now);
        self.term = match (term, self.term) {
            (Some(term), Some((before, since))) if term == before && !gap => Some((term, since)),
            (Some(term), before) => {
                if before.is_none_or(|(before, _)| before != term) {
                    tracing::info!("{} leads the cluster, in term {term}", self.config.name);
                }
                Some((term, now))
            }
            (None, before) => {
                if let (Some((term, _)), Some(leader)) = (before, &view.leader) {
                    tracing::info!("term {term} is over: {} leads the cluster", leader.node);
                }
                None
            }
        };
    }

    /// Writes the rows to the file of the newest view if they have changed.
    fn keep(&mut self, view: &View) -> Result<()> {
        if self.kept.0 == view.aggregates && self.kept.1 == view.tokens {
            return Ok(());
        }
        let kept = serde_json::to_vec(&ViewFile { view: view.clone() })?;
        small_file::replace(&self.folder, VIEW, &kept).context("writing the newest view")?;
        self.kept = (view.aggregates.clone(), view.tokens.clone());
        Ok(())
    }

    /// Makes the leader's changes, if this daemon leads.
    async fn lead(&mut self, now: Duration) {
        let Some((term, since)) = self.term else {
            return;
        };
        let view = self.known.lock().view.clone();
        for change in decide(&view, now.saturating_sub(since)) {
            let name = &change.aggregate;
            match self.database.change(term, &self.holder, &change).await {
                Ok(true) => tracing::info!("{name}: {}", described(change.to.as_ref())),
                // Another change came first; the next round sees it.
                Ok(false) => tracing::debug!("{name}: its row has changed meanwhile"),
                Err(error) => {
                    tracing::warn!("{name}: cannot change its row: {error:#}");
                    return;
                }
            }
        }
    }

    /// Grants shares of limits that several servers have together, if this daemon leads.
    async fn grant(&mut self, now: Duration) {
        let Some((term, since)) = self.term else {
            self.unreported = Unreported::default();
            return;
        };
        let view = self.known.lock().view.clone();
        let time = now.saturating_sub(since);
        let granted = grants(&view, term, time);
        if !granted.is_empty() {
            match self.database.grant(term, &self.holder, &granted).await {
                Ok(true) => tracing::debug!("granted {} shares of limits", granted.len()),
                Ok(false) => tracing::debug!("cannot grant shares of limits: term {term} is over"),
                Err(error) => tracing::warn!("cannot grant shares of limits: {error:#}"),
            }
        }
        for limit in self.unreported.forgotten(&view, now) {
            let forgotten = self.database.forget_limit(term, &self.holder, limit);
            if let Err(error) = forgotten.await {
                tracing::warn!("cannot delete the shares of a limit: {error:#}");
            }
        }
    }

    /// Starts, ends and switches this node's servers as the rows want them.
    async fn carry_out(&mut self, running: &BTreeMap<String, Child>, fresh: bool) {
        let view = self.known.lock().view.clone();
        for act in act(&view, &self.config.name, running, fresh) {
            match act {
                Act::Start(name) => {
                    let row = view.aggregates.get(&name);
                    if let Some(Err(error)) = row.map(|row| self.servers.start(row)) {
                        tracing::error!("{name}: cannot start its server: {error:#}; retrying");
                    }
                }
                Act::Stop(name) => self.servers.stop(&name),
                Act::Switch(name, process) => self.servers.switch(&name, &process),
                Act::Enter(name) => self.enter(&name, &running[&name]).await,
            }
        }
    }

    /// Enters an aggregate that is served here and that the tables lack.
    async fn enter(&mut self, name: &str, child: &Child) {
        let Some(aggregate) = self.servers.aggregate(name) else {
            return;
        };
        let mut aggregate = aggregate.clone();
        aggregate.nodes = Assignment {
            owner: Some(self.config.name.clone()),
            epoch: child.epoch,
            ..Assignment::default()
        };
        match self.database.enter(&aggregate).await {
            Ok(true) => tracing::warn!("{name} is served here, and the tables lacked it: entered"),
            Ok(false) => tracing::debug!("{name} has been entered meanwhile"),
            Err(error) => tracing::warn!("{name}: cannot enter it into the tables: {error:#}"),
        }
    }
}

fn described(to: Option<&Assignment>) -> String {
    let Some(to) = to else {
        return "its servers have ended, and it is deleted".to_owned();
    };
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
    let target = to.target.as_ref();
    let target = target.map_or_else(String::new, |target| format!(", moves to {}", target.node));
    let (owner, standby) = (name(&to.owner), name(&to.standby));
    format!(
        "owner {owner}, standby {standby}, epoch {}{target}",
        to.epoch
    )
}

//! The cluster for people and for programs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::ClusterState;
use crate::directory::Directory;
use crate::explain::why;
use crate::placement::counts;
use crate::rows::{Aggregate, Node, View};

/// A moment at which the cluster is shown.
pub struct ClusterStatus<'a> {
    /// Name of this node.
    pub this: &'a str,
    /// The daemon's knowledge.
    pub known: &'a ClusterState,
    /// The monotonic time.
    pub now: Duration,
}

fn state(node: &Node) -> String {
    let drained = if node.drained { ", drained" } else { "" };
    if node.is_up() {
        format!("up{drained}")
    } else {
        let seconds = node.silent.as_secs();
        format!("down, no heartbeat for {}{drained}", age(seconds))
    }
}

/// Returns a time for people; one that is unknown is long.
fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        172_800..=31_536_000 => format!("{} days", seconds / 86_400),
        _ => "a long time".to_owned(),
    }
}

fn word(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

impl ClusterStatus<'_> {
    fn view(&self) -> View {
        self.known.view_at(self.now, self.this)
    }

    /// Returns the lines of `weir cluster show`.
    pub fn lines(&self) -> Vec<String> {
        let view = self.view();
        let leader = match &view.leader {
            Some(leader) => format!("{} leads, in term {}", leader.node, leader.term),
            None => "no node leads".to_owned(),
        };
        let mut lines = vec![format!(
            "cluster     {} nodes, {} aggregates; {leader}",
            view.nodes.len(),
            view.aggregates.len()
        )];
        lines.push(format!("PostgreSQL  {}", self.database()));
        lines.push(String::new());
        lines.extend(table(&nodes(&view)));
        if !view.aggregates.is_empty() {
            lines.push(String::new());
            lines.extend(self.aggregates());
        }
        lines
    }

    /// Returns the lines of `weir cluster show --volumes`.
    pub fn volumes(&self) -> Vec<String> {
        let head = ["AGGREGATE", "PATH", "SHARE", "NFS", "SMB", "ANY ADDRESS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut notes = Vec::new();
        for volume in volumes(&self.known.directory) {
            rows.push(vec![
                volume.aggregate.to_owned(),
                volume.paths.join(" "),
                word(volume.share),
                volume.nfs.clone(),
                volume.smb.clone(),
                match volume.hidden_by {
                    Some(other) => format!("only at its own: {other} has the same name"),
                    None => "yes".to_owned(),
                },
            ]);
        }
        for (name, entry) in &self.known.directory.entries {
            if entry.listing.left_out > 0 {
                notes.push(format!(
                    "{name}: {} more volumes, which are reached at its own addresses only",
                    entry.listing.left_out
                ));
            }
        }
        let mut lines = table(&rows);
        lines.extend(notes);
        lines
    }

    /// Describes the volumes of the cluster for programs.
    pub fn volumes_data(&self) -> Value {
        let all = volumes(&self.known.directory).into_iter().map(|volume| {
            json!({
                "aggregate": volume.aggregate,
                "paths": volume.paths,
                "share": volume.share,
                "nfs": volume.nfs,
                "smb": volume.smb,
                "hiddenBy": volume.hidden_by,
            })
        });
        all.collect()
    }

    fn database(&self) -> String {
        let Some((since, fault)) = &self.known.outage else {
            return "answers".to_owned();
        };
        let seconds = self.now.saturating_sub(*since).as_secs();
        let seen = match self.known.read_at {
            Some(at) => format!(
                "this is the view of {} ago",
                age(self.now.saturating_sub(at).as_secs())
            ),
            None => "this is the view of an earlier start of the daemon".to_owned(),
        };
        format!(
            "has not answered for {}: {fault}; {seen}, what is served goes on, and nothing can be changed",
            age(seconds)
        )
    }

    /// Returns the lines of `weir aggregate list`.
    pub fn aggregates(&self) -> Vec<String> {
        let view = self.view();
        let head = [
            "AGGREGATE",
            "ON",
            "OWNER",
            "WANTED",
            "STANDBY",
            "EPOCH",
            "SINCE",
            "NFS",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for one in view.aggregates.values() {
            let real = view.real_owner(one);
            let since = real.map(|(_, child)| age(child.role_seconds));
            let nfs = one.settings.nfs.as_ref().map(ToString::to_string);
            rows.push(vec![
                one.name.clone(),
                one.place.clone(),
                word(real.map(|(node, _)| node.name.as_str())),
                word(wanted(one)),
                word(one.nodes.standby.as_deref()),
                epoch(&view, one).to_string(),
                word(since.as_deref()),
                word(nfs.as_deref()),
            ]);
        }
        let mut lines = table(&rows);
        for one in view.aggregates.values() {
            if let Some(why) = why(&view, one) {
                lines.push(format!("{}: {why}", one.name));
            }
        }
        lines
    }

    /// Describes the cluster for programs.
    pub fn data(&self) -> Value {
        let view = self.view();
        let outage = self.known.outage.as_ref();
        let nodes: Vec<Value> = view
            .nodes
            .values()
            .map(|one| node_data(&view, one))
            .collect();
        let aggregates = view.aggregates.values();
        let aggregates: Vec<Value> = aggregates.map(|one| aggregate_data(&view, one)).collect();
        json!({
            "node": self.this,
            "leader": view.leader.as_ref().map(|leader| leader.node.as_str()),
            "term": view.leader.as_ref().map(|leader| leader.term),
            "database": {
                "reached": outage.is_none(),
                "outageSeconds": outage.map(|(since, _)| self.now.saturating_sub(*since).as_secs()),
                "fault": outage.map(|(_, fault)| fault.as_str()),
                "viewAgeSeconds": self.known.read_at.map(|at| self.now.saturating_sub(at).as_secs()),
            },
            "nodes": nodes,
            "aggregates": aggregates,
        })
    }
}

/// A volume as it is shown.
struct ShownVolume<'a> {
    aggregate: &'a str,
    paths: &'a [String],
    share: Option<&'a str>,
    nfs: String,
    smb: String,
    /// An aggregate with a volume of the same path or share, which clients of other servers find.
    hidden_by: Option<&'a str>,
}

/// Returns the volumes of all aggregates, in the order in which servers look for a path.
fn volumes(directory: &Directory) -> Vec<ShownVolume<'_>> {
    let mut all = Vec::new();
    let mut owners: BTreeMap<String, (&str, Option<u64>)> = BTreeMap::new();
    for (name, entry) in &directory.entries {
        let listing = &entry.listing;
        let places = |all: &[SocketAddr]| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            if all.is_empty() {
                word(None)
            } else {
                all.join(" ")
            }
        };
        for volume in &listing.volumes {
            // A share's name has no slash.
            let share = volume.share.iter().map(|share| share.to_lowercase());
            let names = volume.paths.iter().cloned().chain(share);
            let large = volume.constituent.map(|(large, _)| large);
            let mut hidden_by = None;
            for one in names {
                let (owner, other) = *owners.entry(one).or_insert((name, large));
                // Constituents of a large volume have one path.
                let one_volume = large.is_some() && other == large;
                hidden_by = hidden_by.or((owner != name && !one_volume).then_some(owner));
            }
            all.push(ShownVolume {
                aggregate: name,
                paths: &volume.paths,
                share: volume.share.as_deref(),
                nfs: places(&listing.nfs),
                smb: places(&listing.smb),
                hidden_by,
            });
        }
    }
    all
}

/// Returns the node that is to own an aggregate: its target, or else its owner.
fn wanted(aggregate: &Aggregate) -> Option<&str> {
    let target = aggregate.nodes.target.as_ref().map(|target| &target.node);
    target
        .or(aggregate.nodes.owner.as_ref())
        .map(String::as_str)
}

/// Returns the epoch of an aggregate: the one that its owner reports, which the row follows.
fn epoch(view: &View, aggregate: &Aggregate) -> u64 {
    let real = view.real_owner(aggregate);
    real.map_or(aggregate.nodes.epoch, |(_, child)| child.epoch)
}

fn nodes(view: &View) -> Vec<Vec<String>> {
    let head = ["NODE", "ADDRESS", "OWNS", "STANDS BY", "VERSION", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for node in view.nodes.values() {
        let (owns, stands_by) = if node.is_up() {
            counts(view, &node.name)
        } else {
            (0, 0)
        };
        rows.push(vec![
            node.name.clone(),
            node.address.clone(),
            owns.to_string(),
            stands_by.to_string(),
            node.version.clone(),
            state(node),
        ]);
    }
    rows
}

fn node_data(view: &View, node: &Node) -> Value {
    let (owns, stands_by) = counts(view, &node.name);
    json!({
        "name": node.name,
        "address": node.address,
        "up": node.is_up(),
        "drained": node.drained,
        "silentSeconds": node.silent.as_secs(),
        "memoryBytes": node.memory,
        "version": node.version,
        "owns": if node.is_up() { owns } else { 0 },
        "standsBy": if node.is_up() { stands_by } else { 0 },
        "servers": node.children,
        "api": node.api,
    })
}

fn aggregate_data(view: &View, aggregate: &Aggregate) -> Value {
    let real = view.real_owner(aggregate);
    json!({
        "name": aggregate.name,
        "kind": aggregate.kind,
        "place": aggregate.place,
        "settings": aggregate.settings,
        "owner": real.map(|(node, _)| node.name.as_str()),
        "sinceSeconds": real.map(|(_, child)| child.role_seconds),
        "wantedOwner": wanted(aggregate),
        "standby": aggregate.nodes.standby,
        "target": aggregate.nodes.target.as_ref().map(|target| target.node.as_str()),
        "epoch": epoch(view, aggregate),
        "created": aggregate.created,
        "deleting": aggregate.deleting,
        "why": why(view, aggregate),
    })
}

/// Aligns the columns of rows of the same length.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::directory::{Entry, ListedVolume, Listing};

    #[test]
    fn columns_are_aligned_and_times_are_short() {
        let rows = [["A", "B"], ["long", "x"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), ["A     B", "long  x"]);
        assert_eq!(age(90), "90 s");
        assert_eq!(age(7200), "2 h");
        assert_eq!(age(u64::MAX), "a long time");
    }

    #[test]
    fn volumes_that_are_hidden_say_by_which() {
        let mut directory = Directory::default();
        for name in ["a", "b"] {
            let volume = |path: &str| ListedVolume {
                paths: vec![path.to_owned()],
                share: None,
                constituent: None,
                origin: None,
            };
            let mut large = volume("/zzz");
            large.constituent = Some((7, name.len() as u8));
            let listing = Listing {
                nfs: vec!["10.0.0.1:2049".parse().unwrap()],
                volumes: vec![volume("/vol1"), volume(&format!("/{name}")), large],
                left_out: 2,
                ..Listing::default()
            };
            directory.take(name, Entry::new(1, listing).unwrap().0);
        }
        let known = ClusterState {
            directory: Arc::new(directory),
            ..ClusterState::default()
        };
        let shown = ClusterStatus {
            this: "n1",
            known: &known,
            now: Duration::ZERO,
        };
        let lines = shown.volumes();
        assert_eq!(lines[1], "a          /vol1  -      10.0.0.1:2049  -    yes");
        assert!(lines[4].ends_with("only at its own: a has the same name"));
        assert!(lines[5].ends_with("yes"));
        assert!(lines[6].ends_with("yes"), "a constituent of a large volume");
        assert!(lines[7].starts_with("a: 2 more volumes"));
        assert_eq!(shown.volumes_data()[3]["hiddenBy"], "a");
    }

    #[test]
    fn an_outage_is_said() {
        let known = ClusterState {
            outage: Some((Duration::from_secs(10), "connection refused".to_owned())),
            read_at: Some(Duration::from_secs(9)),
            ..ClusterState::default()
        };
        let shown = ClusterStatus {
            this: "n1",
            known: &known,
            now: Duration::from_secs(15),
        };
        let text = shown.lines().join("\n");
        assert!(
            text.contains("has not answered for 5 s: connection refused"),
            "{text}"
        );
        assert!(text.contains("nothing can be changed"), "{text}");
        assert_eq!(shown.data()["database"]["outageSeconds"], 5);
    }
}

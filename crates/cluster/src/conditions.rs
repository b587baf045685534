//! Conditions of the cluster: what is wrong with its nodes, its aggregates and its tables.
//!
//! A daemon finds them, as facts. The API of a node shows them, and so does each server of the
//! node, which its daemon tells: then the console of an aggregate has them as well.

use serde::{Deserialize, Serialize};
use weir_api::live::{Condition, ConditionKind as Kind, Severity};
use weir_api::words::Words;

use crate::explain::why;
use crate::rows::View;

/// Maximum number of facts: a server gets them in one line.
const FACTS_MAX: usize = 16;
/// Maximum number of characters of a reason in a fact.
const WHY_MAX: usize = 160;

/// Something that is wrong with the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Fact {
    /// A node sends no heartbeats.
    NodeDown {
        /// The node.
        node: String,
    },
    /// No node reports that it owns the aggregate.
    NotServed {
        /// The aggregate.
        aggregate: String,
        /// The reason.
        why: String,
    },
    /// Nobody stands by for the aggregate.
    NoStandby {
        /// The aggregate.
        aggregate: String,
        /// The reason.
        why: String,
    },
    /// PostgreSQL does not answer.
    TablesLost {
        /// The reason.
        why: String,
    },
}

/// Returns the facts of a view, the worst first. `outage`: the reason why PostgreSQL does not
/// answer.
pub fn facts(view: &View, outage: Option<&str>) -> Vec<Fact> {
    let mut found = Vec::new();
    let rows = view.aggregates.values().filter(|row| !row.deleting);
    for row in rows.clone().filter(|row| view.real_owner(row).is_none()) {
        found.push(Fact::NotServed {
            aggregate: row.name.clone(),
            why: shortened(&why(view, row).unwrap_or_default()),
        });
    }
    if let Some(why) = outage {
        let why = shortened(why);
        found.push(Fact::TablesLost { why });
    }
    for node in view.nodes.values().filter(|node| !node.is_up()) {
        found.push(Fact::NodeDown {
            node: node.name.clone(),
        });
    }
    // One node alone has nobody who could stand by.
    let alone = view.nodes.len() < 2;
    for row in rows.filter(|row| view.real_owner(row).is_some() && !view.has_standby(row)) {
        if !alone {
            found.push(Fact::NoStandby {
                aggregate: row.name.clone(),
                why: shortened(&why(view, row).unwrap_or_default()),
            });
        }
    }
    found.truncate(FACTS_MAX);
    found
}

fn shortened(text: &str) -> String {
    text.chars().take(WHY_MAX).collect()
}

impl Fact {
    /// Returns the condition as which the fact is shown.
    pub fn condition(&self) -> Condition {
        let show = "weir cluster show".to_owned();
        let (kind, severity, resource, message, action) = match self {
            Fact::NodeDown { node } => (
                Kind::NodeDown,
                Severity::Warning,
                format!("nodes/{node}"),
                Words::new(
                    format!("node {node} of the cluster is down: it sends no heartbeats"),
                    format!(
                        "クラスターのノード {node} が停止しています（ハートビートがありません）"
                    ),
                ),
                Words::new(
                    "Start its machine or its daemon (weir-node.service)",
                    "そのマシンまたはデーモン（weir-node.service）を起動してください",
                ),
            ),
            Fact::NotServed { aggregate, why } => (
                Kind::AggregateNotServed,
                Severity::Error,
                format!("aggregates/{aggregate}"),
                Words::new(
                    format!("no node serves aggregate {aggregate}: {why}"),
                    format!("アグリゲート {aggregate} を提供しているノードがありません: {why}"),
                ),
                Words::new(
                    "Read the log of its server on the node that the reason names",
                    "原因に示されたノードで、サーバーのログを確認してください",
                ),
            ),
            Fact::NoStandby { aggregate, why } => (
                Kind::StandbyMissing,
                Severity::Warning,
                format!("aggregates/{aggregate}"),
                Words::new(
                    format!("no node stands by for aggregate {aggregate}: {why}"),
                    format!("アグリゲート {aggregate} のスタンバイがありません: {why}"),
                ),
                Words::new(
                    "Bring another node back, or give the nodes more memory",
                    "ほかのノードを復旧させるか、ノードのメモリーを増やしてください",
                ),
            ),
            Fact::TablesLost { why } => (
                Kind::ClusterTables,
                Severity::Warning,
                "cluster".to_owned(),
                Words::new(
                    format!(
                        "the cluster's PostgreSQL does not answer, so that nothing can be placed or moved: {why}"
                    ),
                    format!(
                        "クラスターの PostgreSQL が応答しないため、配置や移動ができません: {why}"
                    ),
                ),
                Words::new(
                    "Repair or restore it; nodes and clients go on meanwhile",
                    "修復または復元してください。その間もノードとクライアントは動作を続けます",
                ),
            ),
        };
        let mut condition = Condition::new(kind, severity, resource, message, action);
        condition.command = Some(show);
        condition
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rows::{Aggregate, Assignment, Child, Kind as Storage, Node, Role, Settings};

    fn node(name: &str, silent: u64, role: Option<Role>) -> Node {
        let child = role.map(|role| Child {
            role,
            epoch: 1,
            ..Child::default()
        });
        Node {
            name: name.to_owned(),
            address: String::new(),
            version: String::new(),
            memory: 0,
            drained: false,
            silent: Duration::from_secs(silent),
            children: child
                .map(|child| ("a".to_owned(), child))
                .into_iter()
                .collect(),
            api: None,
        }
    }

    fn view(nodes: Vec<Node>) -> View {
        let mut view = View::default();
        for node in nodes {
            view.nodes.insert(node.name.clone(), node);
        }
        let aggregate = Aggregate {
            name: "a".to_owned(),
            kind: Storage::Rados,
            place: String::new(),
            settings: Settings::default(),
            nodes: Assignment {
                owner: Some("n2".to_owned()),
                standby: Some("n3".to_owned()),
                epoch: 1,
                ..Assignment::default()
            },
            deleting: false,
            created: 0,
            version: 0,
        };
        view.aggregates.insert("a".to_owned(), aggregate);
        view
    }

    fn kinds(view: &View, outage: Option<&str>) -> Vec<(Kind, String)> {
        let facts = facts(view, outage);
        // A server gets them as text.
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Fact>>(&text).unwrap(), facts);
        let shown = facts.iter().map(Fact::condition);
        shown.map(|shown| (shown.kind, shown.resource)).collect()
    }

    #[test]
    fn each_fault_is_a_condition() {
        let n1 = || node("n1", 0, None);
        let owner = |silent| node("n2", silent, Some(Role::Owner));
        let standby = |silent| node("n3", silent, Some(Role::Standby));
        assert_eq!(kinds(&view(vec![n1(), owner(0), standby(0)]), None), []);
        let down = |name: &str| (Kind::NodeDown, format!("nodes/{name}"));
        let of_a = |kind| (kind, "aggregates/a".to_owned());
        assert_eq!(
            kinds(&view(vec![n1(), owner(0), standby(9)]), None),
            [down("n3"), of_a(Kind::StandbyMissing)]
        );
        assert_eq!(
            kinds(&view(vec![n1(), owner(9), standby(0)]), None),
            [of_a(Kind::AggregateNotServed), down("n2")]
        );
        let well = view(vec![n1(), owner(0), standby(0)]);
        assert_eq!(
            kinds(&well, Some("refused")),
            [(Kind::ClusterTables, "cluster".to_owned())]
        );
    }
}

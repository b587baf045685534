//! The cluster of machines, as a server asks the daemon that runs it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_cluster::config::Config;
use weir_node::control_socket;
use weir_ontap::cluster::{Machine, MachineChange, Machines, ServedAggregate};
use weir_ontap_node::MachineSource;

/// The daemon of this machine.
pub struct DaemonView {
    /// Its folder.
    folder: PathBuf,
    /// Name of its node.
    pub node: String,
}

impl DaemonView {
    /// Returns the daemon of a folder; `None` if the folder is no node's.
    pub fn open(folder: &Path) -> Option<DaemonView> {
        let config = Config::read(folder).ok().flatten()?;
        Some(DaemonView {
            folder: folder.to_owned(),
            node: config.name,
        })
    }
}

impl MachineSource for DaemonView {
    fn read(&self) -> Option<Machines> {
        match control_socket::data(&self.folder, "cluster show") {
            Ok(data) => Some(machines(&data)),
            Err(error) => {
                tracing::debug!("cannot ask the daemon of the node: {error:#}");
                None
            }
        }
    }

    fn change(&self, change: &MachineChange) -> Result<(), String> {
        let request = match change {
            MachineChange::Takeover(node) => format!("cluster begin-drain {node}"),
            MachineChange::Giveback(node) => format!("cluster undrain {node}"),
            MachineChange::Relocate { aggregate, to } => {
                format!("aggregate begin-move {aggregate} {to}")
            }
        };
        let done = control_socket::query(&self.folder, &request);
        done.map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// Reads the daemon's description of the cluster.
fn machines(data: &Value) -> Machines {
    let list = |name: &str| {
        data.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let is = |of: &Value, name: &str| of.get(name).and_then(Value::as_bool) == Some(true);
    let nodes: Vec<Machine> = list("nodes")
        .map(|node| Machine {
            name: text(node, "name").unwrap_or_default(),
            address: text(node, "address").and_then(|address| address.parse().ok()),
            up: is(node, "up"),
            eligible: is(node, "up") && !is(node, "drained"),
        })
        .collect();
    // A standby counts once it reports that it is one.
    let stands_by = |node: &str, aggregate: &str| {
        let up = nodes.iter().any(|one| one.name == node && one.up);
        let found = list("nodes").find(|one| text(one, "name").as_deref() == Some(node));
        let role = found.and_then(|one| one.get("servers")?.get(aggregate)?.get("role"));
        up && role.and_then(Value::as_str) == Some("STANDBY")
    };
    let served = list("aggregates").map(|one| {
        let name = text(one, "name").unwrap_or_default();
        ServedAggregate {
            owner: text(one, "owner"),
            standby: text(one, "standby").filter(|node| stands_by(node, &name)),
            name,
        }
    });
    Machines {
        served: served.collect(),
        nodes: nodes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_description_is_read() {
        let data = serde_json::json!({
            "nodes": [
                {"name": "n1", "address": "10.0.0.1", "up": true, "drained": false, "servers": {"a": {"role": "OWNER"}}},
                {"name": "n2", "address": "10.0.0.2", "up": true, "drained": true, "servers": {"a": {"role": "STANDBY"}}},
                {"name": "n3", "address": "?", "up": false, "drained": false, "servers": {"b": {"role": "STANDBY"}}},
            ],
            "aggregates": [
                {"name": "a", "owner": "n1", "standby": "n2"},
                {"name": "b", "owner": null, "standby": "n3"},
            ],
        });
        let read = machines(&data);
        let eligible: Vec<bool> = read.nodes.iter().map(|node| node.eligible).collect();
        assert_eq!(eligible, [true, false, false]);
        assert_eq!(read.nodes[0].address, "10.0.0.1".parse().ok());
        assert_eq!(read.served[0].standby.as_deref(), Some("n2"));
        assert_eq!(
            (&read.served[1].owner, &read.served[1].standby),
            (&None, &None)
        );
        assert_eq!(machines(&Value::Null), Machines::default());
    }
}

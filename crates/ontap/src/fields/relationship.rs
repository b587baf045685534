//! Relationships of SnapMirror.

use weir_relations::model::{
    ABORTED, LastTransfer, MirrorState, Path, PolicyKind, Relationship, Status, Transfer,
};

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::value;

/// A relationship with what it takes to show it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The relationship.
    pub relationship: Relationship,
    /// Seconds since 1970, UTC.
    pub now: i64,
    /// The node that has the destination.
    pub node: String,
    /// Kind of its policy, if that is known.
    pub kind: Option<PolicyKind>,
    /// It restores.
    pub restore: bool,
}

impl std::ops::Deref for Row {
    type Target = Relationship;

    fn deref(&self) -> &Relationship {
        &self.relationship
    }
}

/// Returns the records of relationships.
pub fn rows(cluster: &dyn Cluster, relationships: Vec<Relationship>) -> Vec<Row> {
    let (now, node) = (cluster.current_time(), cluster.name());
    let policies = cluster.policies();
    let row = |relationship: Relationship| {
        let mut all = policies.iter();
        let policy = all.find(|p| p.name == relationship.policy);
        Row {
            kind: policy.map(|p| p.kind),
            now,
            node: node.clone(),
            restore: false,
            relationship,
        }
    };
    relationships.into_iter().map(row).collect()
}

/// A relationship that is made or changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The name of its policy.
    pub policy: Option<String>,
    /// The name of its schedule; `Some(None)` is none.
    pub schedule: Option<Option<String>>,
    /// KB/s; `Some(None)` is as many as there may be.
    pub throttle: Option<Option<u64>>,
    /// Number of tries of a transfer.
    pub tries: Option<u32>,
}

/// Returns ONTAP's word for what the destination is.
pub fn state(state: MirrorState, status: Status) -> &'static str {
    match (state, status) {
        (MirrorState::BrokenOff, _) => "broken_off",
        (_, Status::InSync) => "in_sync",
        (_, Status::OutOfSync) => "out_of_sync",
        (_, Status::Quiesced) => "paused",
        (MirrorState::Uninitialized, _) => "uninitialized",
        (MirrorState::Snapmirrored, _) => "snapmirrored",
    }
}

/// Returns ONTAP's word for a transfer under way.
pub fn running(status: Status) -> &'static str {
    match status {
        Status::Queued => "queued",
        _ => "transferring",
    }
}

/// Returns ONTAP's word for how a transfer ended.
pub fn ended(error: Option<&str>) -> &'static str {
    match error {
        None => "success",
        Some(ABORTED) => "aborted",
        Some(_) => "failed",
    }
}

/// Returns the bytes per byte on the wire, such as `2.5:1`.
pub fn ratio(bytes: u64, wire: u64) -> String {
    match wire {
        0 => "1:1".to_owned(),
        wire => {
            let text = format!("{:.1}", bytes as f64 / wire as f64);
            format!("{}:1", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

/// Returns a path as lines have it, with its cluster, and as REST has it, without.
fn path(path: &Path) -> Value {
    let rest = format!("{}:{}", path.vserver, path.volume);
    Value::Apart(path.to_string(), Box::new(text(rest)))
}

fn cluster(path: &Path) -> Option<&str> {
    Some(path.cluster.as_str()).filter(|name| !name.is_empty())
}

fn cluster_uuid(path: &Path) -> Value {
    cluster(path).map(|name| identity("cluster", name)).into()
}

/// Returns a throttle in KB/s; none is 0 in REST.
fn throttle(kbs: Option<u64>) -> Value {
    match kbs {
        None => Value::Apart("unlimited".to_owned(), Box::new(Value::Number(0))),
        Some(kbs) => Value::Number(kbs),
    }
}

/// Returns a value of the running transfer.
fn running_has(r: &Row, read: impl Fn(&Transfer) -> Value) -> Value {
    r.transfer.as_ref().map(read).into()
}

/// Returns a value of the last transfer.
fn last_has(r: &Row, read: impl Fn(&LastTransfer) -> Value) -> Value {
    r.last.as_ref().map(read).into()
}

/// Returns a value of the running transfer, or else of the last one.
fn either(
    r: &Row,
    now: impl Fn(&Transfer) -> Value,
    last: impl Fn(&LastTransfer) -> Value,
) -> Value {
    match (&r.transfer, &r.last) {
        (Some(transfer), _) => now(transfer),
        (None, Some(transfer)) => last(transfer),
        (None, None) => Value::None,
    }
}

/// Returns how long a transfer took, in whole seconds that it was not longer than.
fn took(last: &LastTransfer) -> Value {
    Value::Span(last.duration_ms.div_ceil(1000))
}

fn seconds(ms: u64) -> Value {
    text(format!("{}.{:03}s", ms / 1000, ms % 1000))
}

fn unhealthy(r: &Row) -> Value {
    let Some(reason) = &r.unhealthy_reason else {
        return Value::None;
    };
    let object = Value::Object(vec![("message", text(reason)), ("code", "13303834".into())]);
    let rest = match r.healthy {
        true => Value::None,
        false => Value::List(vec![object]),
    };
    Value::Apart(reason.clone(), Box::new(rest))
}

fn transfer_link(r: &Row) -> Value {
    let link = |id: &str| text(format!("{}/transfers/{id}", TABLE.link(r)));
    either(r, |t| link(&t.uuid), |l| link(&l.uuid))
}

type F = Field<Row, Draft>;

/// The fields: those of the command line in the order of `-instance`, then those of REST alone.
pub const FIELDS: &[F] = rows! {
    F::new("source.path", "source-path", "Source Path", |r| path(&r.source)).key().itself(),
    F::new("source.cluster.name", "source-cluster", "Source Cluster",
        |r| cluster(&r.source).into()).itself(),
    F::new("source.svm.name", "source-vserver", "Source Vserver", |r| text(&r.source.vserver))
        .itself(),
    F::column("source-volume", "Source Volume", |r| text(&r.source.volume)),
    F::new("destination.path", "destination-path", "Destination Path", |r| path(&r.destination))
        .key().itself(),
    F::new("destination.cluster.name", "destination-cluster", "Destination Cluster",
        |r| cluster(&r.destination).into()).itself(),
    F::new("destination.svm.name", "destination-vserver", "Destination Vserver",
        |r| text(&r.destination.vserver)).itself(),
    F::column("destination-volume", "Destination Volume", |r| text(&r.destination.volume)),
    F::always("", "type", "Relationship Type", "XDP").only("XDP"),
    F::always("group_type", "relationship-group-type", "Relationship Group Type", "none"),
    F::column("managing-vserver", "Managing Vserver", |r| text(&r.destination.vserver)),
    F::new("transfer_schedule.name", "schedule", "SnapMirror Schedule",
        |r| r.schedule.clone().into()).sets(Kind::Schedule, |d, v| d.schedule = Some(v.text())),
    F::new("policy.type", "policy-type", "SnapMirror Policy Type", |r| {
        let line = r.kind.map_or("-", PolicyKind::word);
        let rest = r.synchronous.as_ref().map_or("async", |_| "sync");
        Value::Spelled(line, rest)
    }).itself(),
    F::new("policy.name", "policy", "SnapMirror Policy", |r| text(&r.policy))
        .sets(Kind::MirrorPolicy, |d, v| d.policy = v.text()),
    F::column(
        "tries", "Tries Limit",
        |r: &Row| match r.tries { u32::MAX => "unlimited".into(), tries => tries.into(), },
    ).sets(Kind::Tries, |d, v| d.tries = v.small()),
    F::new("throttle", "throttle", "Throttle (KB/sec)", |r: &Row| throttle(r.throttle))
        .sets(Kind::Throttle, |d, v| d.throttle = Some(v.number())),
    F::column("current-transfer-throttle", "Current Transfer Throttle (KB/sec)",
        |r| running_has(r, |t| throttle(t.throttle))),
    F::new("state", "state", "Mirror State",
        |r| Value::Spelled(r.state.word(), state(r.state, r.status))).itself(),
    F::column("status", "Relationship Status", |r: &Row| text(r.status.word())),
    F::column("snapshot-progress", "Snapshot Progress",
        |r| running_has(r, |t| Value::Bytes(t.bytes))),
    F::column("total-progress", "Total Progress", |r| running_has(r, |t| Value::Bytes(t.bytes))),
    F::column("total-wire-progress", "Total Wire Progress",
        |r| running_has(r, |t| Value::Bytes(t.wire_bytes))),
    F::column("current-transfer-size", "Current Transfer Size",
        |r| running_has(r, |t| t.total.map(Value::Bytes).into())),
    F::column("network-compression-ratio", "Network Compression Ratio",
        |r| running_has(r, |t| text(ratio(t.bytes, t.wire_bytes)))),
    F::column("newest-snapshot", "Newest Snapshot",
        |r| r.newest.as_ref().map(|n| text(&n.name)).into()),
    F::column("newest-snapshot-timestamp", "Newest Snapshot Timestamp",
        |r| r.newest.as_ref().map(|n| Value::Moment(n.taken)).into()),
    F::new("exported_snapshot", "exported-snapshot", "Exported Snapshot",
        |r| r.exported.as_ref().map(|n| text(&n.name)).into()),
    F::column("exported-snapshot-timestamp", "Exported Snapshot Timestamp",
        |r| r.exported.as_ref().map(|n| Value::Moment(n.taken)).into()),
    F::new("healthy", "healthy", "Healthy", |r| r.healthy.into()),
    F::new("unhealthy_reason", "unhealthy-reason", "Unhealthy Reason", unhealthy)
        .parts(&["message", "code"]),
    F::new("uuid", "relationship-id", "Relationship ID", |r| text(&r.uuid)),
    F::column("current-transfer-type", "Current Transfer Type",
        |r| running_has(r, |t| text(t.kind.word()))),
    F::column("current-transfer-rate", "Current Transfer Rate", |r| {
        running_has(r, |t| {
            let line = format!("{}/s", value::size(t.rate));
            Value::Shown(line, Box::new(Value::Number(t.rate)))
        })
    }),
    F::column("current-transfer-limited-by", "Current Transfer Limited By",
        |r| running_has(r, |t| t.bound_by.clone().into())),
    F::column("current-transfer-time-left", "Current Transfer Time Left",
        |r| running_has(r, |t| t.time_left().map(value::duration).into())),
    F::new("last_transfer_type", "last-transfer-type", "Last Transfer Type",
        |r| last_has(r, |l| text(l.kind.word()))),
    F::column("last-transfer-error", "Last Transfer Error",
        |r| last_has(r, |l| l.error.clone().into())),
    F::new("total_transfer_bytes", "last-transfer-size", "Last Transfer Size",
        |r| last_has(r, |l| Value::Bytes(l.bytes))),
    F::column("last-transfer-wire-size", "Last Transfer Wire Size",
        |r| last_has(r, |l| Value::Bytes(l.wire_bytes))),
    F::new(
        "last_transfer_network_compression_ratio", "last-transfer-network-compression-ratio",
        "Last Transfer Network Compression Ratio",
        |r| last_has(r, |l| text(ratio(l.bytes, l.wire_bytes))),
    ),
    F::new("total_transfer_duration", "last-transfer-duration", "Last Transfer Duration",
        |r| last_has(r, took)),
    F::column("last-transfer-setup-time", "Last Transfer Setup Time",
        |r| last_has(r, |l| seconds(l.setup_ms))),
    F::column("last-transfer-data-time", "Last Transfer Data Time",
        |r| last_has(r, |l| seconds(l.data_ms))),
    F::column("last-transfer-finalize-time", "Last Transfer Finalize Time",
        |r| last_has(r, |l| seconds(l.finalize_ms))),
    F::column("last-transfer-from", "Last Transfer From",
        |r| last_has(r, |_| text(r.source.to_string()))),
    F::column("last-transfer-end-timestamp", "Last Transfer End Timestamp",
        |r| last_has(r, |l| Value::Moment(l.end))),
    F::column("progress-last-updated", "Progress Last Updated",
        |r| running_has(r, |t| Value::Moment(t.updated))),
    F::always("", "relationship-capability", "Relationship Capability", "8.2 and above"),
    F::new("lag_time", "lag-time", "Lag Time", |r| r.lag(r.now).map(Value::Span).into()),
    F::column("destination-volume-node", "Destination Volume Node", |r| text(&r.node)).aside(),
    F::always("", "relationship-type", "Relationship Type", "extended-data-protection").aside(),
    // In REST alone.
    F::rest("source.svm.uuid", |r| identity("svm", &r.source.vserver)).itself(),
    F::rest("source.cluster.uuid", |r| cluster_uuid(&r.source)).itself(),
    F::rest("destination.svm.uuid", |r| identity("svm", &r.destination.vserver)).itself(),
    F::rest("destination.cluster.uuid", |r| cluster_uuid(&r.destination)).itself(),
    F::rest("policy.uuid", |r| identity("policy", &r.policy)),
    F::rest("transfer_schedule.uuid",
        |r| r.schedule.as_ref().map(|name| identity("schedule", name)).into()),
    F::rest("transfer._links.self.href", transfer_link),
    F::rest("transfer.uuid", |r| either(r, |t| text(&t.uuid), |l| text(&l.uuid))),
    F::rest("transfer.state",
        |r| either(r, |_| text(running(r.status)), |l| text(ended(l.error.as_deref())))),
    F::rest("transfer.type", |r| either(r, |t| text(t.kind.word()), |l| text(l.kind.word()))),
    F::rest("transfer.bytes_transferred",
        |r| either(r, |t| Value::Bytes(t.bytes), |l| Value::Bytes(l.bytes))),
    F::rest("transfer.end_time", |r| either(r, |_| Value::None, |l| Value::Time(l.end))),
    F::rest("transfer.last_updated_time", |r| running_has(r, |t| Value::Time(t.updated))),
    F::rest("transfer.total_duration", |r| {
        let since = |t: &Transfer| u64::try_from(t.updated - t.started).unwrap_or(0);
        either(r, |t| Value::Span(since(t)), took)
    }),
    F::always("backoff_level", "", "", "none"),
    F::rest("restore", |r| r.restore.into()).creates(Kind::Nested, |_, _| {}),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "snapmirror/relationships",
    command: &["snapmirror"],
    fields: FIELDS,
    absent: rows! {
        "identity_preservation", "consistency_group_failover", "svmdr_volumes",
    },
    keys: &["uuid"],
    order: &["uuid"],
    ids: |r| vec![r.uuid.clone()],
    why: "",
};

//! Transfers of a relationship: the running one, and the last.

use weir_relations::model::{LastTransfer, Relationship, Transfer};

use super::relationship::{ended, ratio, running};
use super::value::text;
use super::{Field, Kind, Table, Value};

/// Progress of a transfer, or its end.
#[derive(Clone, Debug)]
pub enum Run {
    /// It runs.
    Now(Transfer),
    /// It has ended.
    Ended(LastTransfer),
}

/// A transfer of a relationship.
#[derive(Clone, Debug)]
pub struct Row {
    /// The relationship.
    pub relationship: Relationship,
    /// The transfer.
    pub run: Run,
}

/// Returns the transfers of a relationship, the running one first.
pub fn rows(r: &Relationship) -> Vec<Row> {
    let now = r.transfer.clone().map(Run::Now);
    let last = r.last.clone().map(Run::Ended);
    let row = |run| Row {
        relationship: r.clone(),
        run,
    };
    now.into_iter().chain(last).map(row).collect()
}

impl Row {
    /// Returns the identity of the transfer.
    pub fn uuid(&self) -> &str {
        match &self.run {
            Run::Now(transfer) => &transfer.uuid,
            Run::Ended(transfer) => &transfer.uuid,
        }
    }

    fn either(
        &self,
        now: impl Fn(&Transfer) -> Value,
        ended: impl Fn(&LastTransfer) -> Value,
    ) -> Value {
        match &self.run {
            Run::Now(transfer) => now(transfer),
            Run::Ended(transfer) => ended(transfer),
        }
    }

    fn read_running(&self, read: impl Fn(&Transfer) -> Value) -> Value {
        self.either(read, |_| Value::None)
    }

    fn ended(&self, read: impl Fn(&LastTransfer) -> Value) -> Value {
        self.either(|_| Value::None, read)
    }

    fn error(&self, read: impl Fn(&str) -> Value) -> Value {
        self.ended(|l| l.error.as_deref().map(&read).into())
    }
}

/// A transfer that is begun, or ended early.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Snapshot of the source.
    pub source_snapshot: Option<String>,
    /// KB/s; `Some(None)` is as many as there may be.
    pub throttle: Option<Option<u64>>,
    /// `aborted` or `hard_aborted`.
    pub state: Option<String>,
}

/// Code of a transfer that failed.
const FAILED: u64 = 13_303_844;

type F = Field<Row, Draft>;

/// The fields. What ONTAP has none for (the rate, the limit that binds, bytes on the wire, phases)
/// is beside its own.
pub const FIELDS: &[F] = rows! {
    F::rest("uuid", |t| text(t.uuid())),
    F::rest("relationship.uuid", |t| text(&t.relationship.uuid)),
    F::rest("relationship.destination.path",
        |t| text(t.relationship.destination.to_string())),
    F::always("relationship.restore", "", "", "false"),
    F::rest("state", |t| t.either(
        |_| text(running(t.relationship.status)),
        |l| text(ended(l.error.as_deref())),
    )).modifies(Kind::Words("aborted|hard_aborted"), |d, v| d.state = v.text()),
    F::rest("type", |t| t.either(|t| text(t.kind.word()), |l| text(l.kind.word()))),
    F::rest("snapshot", |t| t.either(
        |t| t.snapshot.clone().into(),
        |l| l.snapshot.clone().into(),
    )),
    F::rest("bytes_transferred",
        |t| t.either(|t| Value::Bytes(t.bytes), |l| Value::Bytes(l.bytes))),
    F::rest("wire_bytes_transferred",
        |t| t.either(|t| Value::Bytes(t.wire_bytes), |l| Value::Bytes(l.wire_bytes))),
    F::rest("total_bytes", |t| t.read_running(|t| t.total.map(Value::Bytes).into())),
    F::rest("checkpoint_size", |t| t.read_running(|t| Value::Bytes(t.checkpoint))),
    F::rest("throttle", |t| t.read_running(|t| t.throttle.unwrap_or(0).into()))
        .creates(Kind::Throttle, |d, v| d.throttle = Some(v.number())),
    F::rest("rate", |t| t.either(|t| t.rate.into(), |l| l.rate.into())),
    F::rest("limited_by", |t| t.read_running(|t| t.bound_by.clone().into())),
    F::rest("time_left", |t| t.read_running(|t| t.time_left().map(Value::Span).into())),
    F::rest("last_updated_time", |t| t.read_running(|t| Value::Time(t.updated))),
    F::rest("end_time", |t| t.ended(|l| Value::Time(l.end))),
    F::rest("total_duration", |t| t.either(
        |t| Value::Span(u64::try_from(t.updated - t.started).unwrap_or(0)),
        |l| Value::Span(l.duration_ms / 1000),
    )),
    F::rest("phases.setup_ms", |t| t.ended(|l| l.setup_ms.into())),
    F::rest("phases.data_ms", |t| t.ended(|l| l.data_ms.into())),
    F::rest("phases.finalize_ms", |t| t.ended(|l| l.finalize_ms.into())),
    F::rest("network_compression_ratio", |t| t.either(
        |t| text(ratio(t.bytes, t.wire_bytes)),
        |l| text(ratio(l.bytes, l.wire_bytes)),
    )),
    F::rest("error_info.message", |t| t.error(|why| text(why))),
    F::rest("error_info.code", |t| t.error(|_| FAILED.into())),
    F::rest("source_snapshot", |_| Value::None)
        .creates(Kind::Text, |d, v| d.source_snapshot = v.text()),
    F::rest("files", |_| Value::None).creates(Kind::Nested, |_, _| {}),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "snapmirror/relationships/*/transfers",
    command: &[],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid"],
    order: &["uuid"],
    ids: |t| vec![t.relationship.uuid.clone(), t.uuid().to_owned()],
    why: "",
};

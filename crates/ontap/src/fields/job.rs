//! Jobs of changes that were made over REST. All of them have ended.

use super::value::text;
use super::{Field, Table, Value};

/// A change that was made, or that failed after it was taken.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its identity.
    pub uuid: String,
    /// Method and path of the request.
    pub description: String,
    /// Result, in words.
    pub message: String,
    /// ONTAP's error code; 0 if the change was made.
    pub code: u32,
    /// Time of the change, seconds since 1970.
    pub at: i64,
}

impl Row {
    fn error(&self, read: impl Fn(&Row) -> String) -> Value {
        (self.code != 0).then(|| read(self)).into()
    }
}

type F = Field<Row>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::rest("uuid", |j| text(&j.uuid)),
    F::rest("description", |j| text(&j.description)),
    F::rest("state", |j| text(if j.code == 0 { "success" } else { "failure" })),
    F::rest("message", |j| text(&j.message)),
    F::rest("code", |j| j.code.into()),
    F::rest("error.message", |j| j.error(|j| j.message.clone())),
    F::rest("error.code", |j| j.error(|j| j.code.to_string())),
    F::rest("start_time", |j| Value::Time(j.at)),
    F::rest("end_time", |j| Value::Time(j.at)),
};

/// The resource. `job show` has the operations of the control plane instead.
pub const TABLE: Table<Row> = Table {
    path: "cluster/jobs",
    command: &[],
    fields: FIELDS,
    absent: rows! { "node.name", "node.uuid", "svm.name", "svm.uuid" },
    keys: &["uuid"],
    order: &["start_time", "uuid"],
    ids: |j| vec![j.uuid.clone()],
    why: "",
};

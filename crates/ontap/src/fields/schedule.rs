//! Schedules.

use weir_relations::schedule::{Numbers, Schedule};

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::NamedSchedule;
use crate::value;

/// Returns numbers of a cron schedule; none are every one.
fn numbers(numbers: Numbers, every: Numbers) -> Value {
    let all = || numbers.list().into_iter().map(Value::from).collect();
    Some(numbers)
        .filter(|numbers| *numbers != every)
        .map(|_| Value::List(all()))
        .into()
}

/// A schedule that is made.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Its interval, ISO 8601.
    pub interval: Option<String>,
}

type F = Field<NamedSchedule, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("name", "name", "Schedule Name", |s| text(&s.name)).key()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::column("description", "Description", |s| text(&s.about)),
    F::rest("uuid", |s| identity("schedule", &s.name)),
    F::always("scope", "", "", "cluster").creates(Kind::Text, |_, _| {}),
    F::rest("type", |s| match s.schedule {
        Schedule::Every(_) => text("interval"),
        Schedule::At { .. } => text("cron"),
    }).creates(Kind::Text, |_, _| {}),
    F::rest("interval", |s| match s.schedule {
        Schedule::Every(seconds) => Value::Span(seconds.into()),
        Schedule::At { .. } => Value::None,
    }).creates(Kind::Text, |d, v| d.interval = v.text()),
    F::rest("cron.minutes", |s| match s.schedule {
        Schedule::At { minutes, .. } => {
            Value::List(minutes.list().into_iter().map(Value::from).collect())
        }
        Schedule::Every(_) => Value::None,
    }).creates(Kind::Nested, |_, _| {}),
    F::rest("cron.hours", |s| match s.schedule {
        Schedule::At { hours, .. } => numbers(hours, Numbers::from_range(0, 23)),
        Schedule::Every(_) => Value::None,
    }).creates(Kind::Nested, |_, _| {}),
    F::rest("cron.days", |s| match s.schedule {
        Schedule::At { days, .. } => numbers(days, Numbers::from_range(1, 31)),
        Schedule::Every(_) => Value::None,
    }).creates(Kind::Nested, |_, _| {}),
    F::rest("cron.months", |s| match s.schedule {
        Schedule::At { months, .. } => numbers(months, Numbers::from_range(1, 12)),
        Schedule::Every(_) => Value::None,
    }).creates(Kind::Nested, |_, _| {}),
    F::rest("cron.weekdays", |s| match s.schedule {
        Schedule::At { weekdays, .. } => numbers(weekdays, Numbers::from_range(0, 6)),
        Schedule::Every(_) => Value::None,
    }).creates(Kind::Nested, |_, _| {}),
};

/// The resource.
pub const TABLE: Table<NamedSchedule, Draft> = Table {
    path: "cluster/schedules",
    command: &["job", "schedule"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["name"],
    ids: |s| vec![value::identity("schedule", &s.name)],
    why: "",
};

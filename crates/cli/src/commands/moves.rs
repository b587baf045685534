//! `weir volumes move`: moves of volumes to other aggregates of a cluster.

use std::time::Duration;

use serde_json::{Value, json};

use super::steps::{last, open_named};
use crate::Environment;
use crate::args::VolumeMove;
use crate::error::Error;
use crate::http::Method;
use crate::session::{Io, Session};

/// Pause between two polls of a move.
const POLL: Duration = Duration::from_millis(500);
/// Polls in a row that may fail: a server may be taken over meanwhile.
const MISSES: u32 = 120;

/// Runs the command.
pub fn run(args: &VolumeMove, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut s = open_named(&args.named, environment, io)?;
    let name = s.name("volumes", &args.named.name)?;
    let before = pool(&s.call(Method::Get, &name, &[], None)?);
    let record = record(&s, &name)?;
    if args.show {
        let words = movement(&record);
        let words =
            words.unwrap_or_else(|| format!("Volume [{}] is not being moved.", last(&name)));
        return s.say(&words);
    }
    let path = format!("storage/volumes/{}", text(&record, "uuid"));
    let body = match &args.to {
        Some(to) => json!({"movement": {"destination_aggregate": {"name": to}}}),
        None => json!({"movement": {"state": "aborted"}}),
    };
    s.ontap(Method::Patch, &path, &[], Some(&body))?;
    if args.abort {
        return s.say(&format!("Ended the move of volume [{}].", last(&name)));
    }
    s.explain_interrupt(&format!(
        "the move goes on in the cluster: weir volumes move {} --show",
        args.named.name
    ));
    if args.r#async {
        return s.say(&format!("Began to move volume [{}].", last(&name)));
    }
    follow(&mut s, &name, &before)
}

/// Says how far a move is until it ends.
fn follow(s: &mut Session<'_, '_>, name: &str, before: &str) -> Result<(), Error> {
    let (mut said, mut misses) = (String::new(), 0);
    loop {
        std::thread::sleep(POLL);
        let looked = record(s, name).and_then(|record| match movement(&record) {
            Some(words) => Ok(Err(words)),
            None => s.call(Method::Get, name, &[], None).map(Ok),
        });
        match looked {
            Err(_) if misses < MISSES => misses += 1,
            Err(error) => return Err(error),
            Ok(Err(words)) => {
                misses = 0;
                if words != said {
                    s.say(&words)?;
                    said = words;
                }
            }
            Ok(Ok(now)) if pool(&now) != before => {
                let to = pool(&now);
                let to = last(&to);
                return s.say(&format!(
                    "Moved volume [{}] to storage pool [{to}].",
                    last(name)
                ));
            }
            // The old server has its row until all others know the new one.
            Ok(Ok(now)) if text(&now, "stateDetails").is_empty() => {}
            Ok(Ok(now)) => {
                let why = text(&now, "stateDetails");
                return Err(Error::Other(format!("volume {} stays: {why}", last(name))));
            }
        }
    }
}

fn pool(volume: &Value) -> String {
    text(volume, "storagePool").to_owned()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns ONTAP's record of a volume, that of a move if there are two.
fn record(s: &Session<'_, '_>, name: &str) -> Result<Value, Error> {
    let project = name.split('/').nth(1).unwrap_or_default();
    let query = [
        ("name", last(name).to_owned()),
        ("svm.name", project.to_owned()),
        ("fields", "uuid,movement".to_owned()),
    ];
    let found = s.ontap(Method::Get, "storage/volumes", &query, None)?;
    let all = found.get("records").and_then(Value::as_array);
    let all = all.map_or(&[][..], Vec::as_slice);
    let moving = all.iter().find(|record| movement(record).is_some());
    let one = moving.or(all.first()).cloned();
    one.ok_or_else(|| Error::Other(format!("there is no volume {name}")))
}

/// Returns how far a move is, in words; `None` without one.
fn movement(record: &Value) -> Option<String> {
    let movement = record.get("movement")?;
    let state = movement.get("state")?.as_str()?;
    let percent = movement.get("percent_complete").and_then(Value::as_u64);
    let to = movement.pointer("/destination_aggregate/name");
    let to = to.and_then(Value::as_str).unwrap_or_default();
    Some(match (state, percent) {
        ("replicating", Some(percent)) => format!("to {to}: replicating, {percent} %"),
        _ => format!("to {to}: {state}"),
    })
}

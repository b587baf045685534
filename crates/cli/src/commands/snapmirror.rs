//! `weir snapmirror`: ONTAP's words for replication, and with `--wait` a transfer's progress until
//! it ends.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use weir_ontap::value::{duration, size};

use super::ontap;
use super::steps::open;
use crate::Environment;
use crate::args::{At, Snapmirror};
use crate::error::Error;
use crate::http::Method;
use crate::session::{Io, Session};

/// The time between two polls of a transfer.
const POLL: Duration = Duration::from_millis(200);

/// Runs `weir snapmirror` and its verbs.
pub fn run(args: &Snapmirror, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut common = args.common.clone();
    let mut wait = false;
    let words = ontap::own(&args.words, &mut common, Some(&mut wait))?;
    let line = format!("snapmirror {}", ontap::joined(&words));
    if let Some(before) = ontap::asked_for_help(&line) {
        return ontap::show_help(&before, io);
    }
    let destination = match wait {
        true => Some(destination(&line)?),
        false => None,
    };
    let mut s = open(&common, &At::default(), environment, io)?;
    match common.is_json() {
        true => {
            let reply = ontap::data(&s, &line)?;
            s.put_json(&reply)?;
        }
        false => ontap::one(&mut s, &line)?,
    }
    match destination {
        Some(destination) => follow(&mut s, &destination),
        None => Ok(()),
    }
}

/// Returns the destination of a command that starts a transfer.
fn destination(line: &str) -> Result<String, Error> {
    let parsed = weir_ontap::grammar::parse(line, weir_ontap::commands::COMMANDS)
        .map_err(|message| Error::Refused(weir_ontap::commands::error(&message)))?;
    let starts = matches!(
        parsed.command.path,
        ["snapmirror", "initialize" | "update" | "resync" | "restore"]
    );
    match parsed.get("destination-path") {
        Some(path) if starts && !path.contains(['*', '|', '!', '<', '>']) => Ok(path.to_owned()),
        _ => Err(Error::Usage(
            "--wait is for initialize, update, resync and restore, of one destination".to_owned(),
        )),
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// Shows a transfer until it ends.
fn follow(s: &mut Session<'_, '_>, destination: &str) -> Result<(), Error> {
    let query = [
        ("destination.path", destination.to_owned()),
        ("fields", "transfer".to_owned()),
    ];
    let found = s.ontap(Method::Get, "snapmirror/relationships", &query, None)?;
    let relationship = found.get("records").and_then(|all| all.get(0));
    let relationship = relationship.cloned().unwrap_or_default();
    let transfer = relationship
        .get("transfer")
        .map(|t| text(t, "uuid"))
        .unwrap_or_default();
    if transfer.is_empty() {
        return Err(Error::Other(format!(
            "the transfer to {destination} is not to be seen"
        )));
    }
    let path = format!(
        "snapmirror/relationships/{}/transfers/{transfer}",
        text(&relationship, "uuid")
    );
    s.explain_interrupt(&format!(
        "the transfer to {destination} goes on in the server: weir snapmirror show"
    ));
    let bar = match s.shows_progress() {
        true => Some(bar()),
        false => None,
    };
    let end = loop {
        let now = s.ontap(Method::Get, &path, &[], None)?;
        match text(&now, "state") {
            "queued" | "transferring" => {}
            _ => break now,
        }
        if let Some(bar) = &bar {
            show(bar, &now);
        }
        std::thread::sleep(POLL);
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match text(&end, "state") {
        "success" => s.say(&summary(&end)),
        other => {
            let why = end.get("error_info").map(|e| text(e, "message"));
            Err(Error::Other(format!(
                "the transfer to {destination} {other}: {}",
                why.unwrap_or("no reason was given")
            )))
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = "{bar:30} {percent:>3}%  {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, now: &Value) {
    let (moved, total) = (number(now, "bytes_transferred"), number(now, "total_bytes"));
    bar.set_length(total.max(moved).max(1));
    bar.set_position(moved);
    bar.set_message(message(now));
}

/// Returns `61.14MB of 524.9MB, 2.00MB/s (incoming limit), 0:3:51 left`
fn message(now: &Value) -> String {
    let mut out = size(number(now, "bytes_transferred"));
    let total = number(now, "total_bytes");
    if total > 0 {
        out.push_str(&format!(" of {}", size(total)));
    }
    let rate = number(now, "rate");
    if rate > 0 {
        out.push_str(&format!(", {}/s", size(rate)));
        match text(now, "limited_by") {
            "" => {}
            limit => out.push_str(&format!(" ({limit} limit)")),
        }
        // The rate is one of bytes on the wire: what is left compresses as what has come did.
        let moved = u128::from(number(now, "bytes_transferred"));
        let wire = u128::from(number(now, "wire_bytes_transferred"));
        let left = u128::from(total).saturating_sub(moved) * wire;
        let left = left.checked_div(moved).unwrap_or(0) / u128::from(rate);
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        if total > 0 && moved > 0 {
            out.push_str(&format!(", {} left", duration(left)));
        }
    }
    out
}

/// Phases apart, since a limit holds while data moves.
fn summary(end: &Value) -> String {
    let phases = end.get("phases").cloned().unwrap_or_default();
    let seconds = |name: &str| number(&phases, name) as f64 / 1000.0;
    let (moved, wire) = (
        number(end, "bytes_transferred"),
        number(end, "wire_bytes_transferred"),
    );
    let data = seconds("data_ms");
    // A transfer that was begun again counts what came before in its bytes, not in its rate.
    let rate = match number(end, "rate") {
        0 => String::new(),
        rate => format!(", {}/s", size(rate)),
    };
    format!(
        "Transferred {} ({} on the wire): {:.1} s of setup, {data:.1} s of data{rate}, {:.1} s to finalize.",
        size(moved),
        size(wire),
        seconds("setup_ms"),
        seconds("finalize_ms")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_starts_one_transfer_is_waited_for() {
        assert_eq!(
            destination("snapmirror upd -dest a:b").unwrap(),
            "a:b".to_owned()
        );
        assert!(destination("snapmirror show").is_err());
        assert!(destination("snapmirror update -destination-path *").is_err());
        assert!(destination("snapmirror nonsense").is_err());
    }

    #[test]
    fn progress_and_the_end_in_words() {
        let now = json!({"bytes_transferred": 64_109_937, "wire_bytes_transferred": 64_109_937, "total_bytes": 550_397_542_u64,
                         "rate": 2_097_152, "limited_by": "incoming"});
        assert_eq!(
            message(&now),
            "61.14MB of 524.9MB, 2.00MB/s (incoming limit), 0:3:51 left"
        );
        let end = json!({"bytes_transferred": 550_397_542_u64, "wire_bytes_transferred": 550_397_542_u64,
                         "rate": 13_759_938, "phases": {"setup_ms": 500, "data_ms": 40_000, "finalize_ms": 500}});
        assert_eq!(
            summary(&end),
            "Transferred 524.9MB (524.9MB on the wire): 0.5 s of setup, 40.0 s of data, 13.12MB/s, 0.5 s to finalize."
        );
    }
}

//! `weir status`: the state of a server on one screen; and `weir support-bundle`: a file for those
//! who help.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::Environment;
use crate::archive;
use crate::args::{At, Status, SupportBundle};
use crate::error::Error;
use crate::format::{Format, Kind, size};
use crate::http::Method;
use crate::session::{Io, Session};
use crate::top::page::{self, Sample};

/// Entries of the audit log in a bundle.
const AUDIT: &str = "200";

/// The settings of a packaged server, if this is its machine.
const SETTINGS: &str = "/etc/weir/weir.toml";

/// Runs `weir status`.
///
/// # Errors
/// The server cannot be reached, or is not healthy.
pub fn status(args: &Status, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut session = Session::open(&args.common, &At::default(), environment, io)?;
    let health = session.client().health()?;
    let metrics = session.text("/metrics")?;
    let facts = facts(session.client().address(), &health, &metrics);
    let text = match args.common.is_json() {
        true => format!("{facts:#}\n"),
        false => screen(&facts),
    };
    session.put(&text)?;
    match text_of(&facts, "health") {
        "FAILED" => Err(Error::Refused(String::new())),
        _ => Ok(()),
    }
}

/// Runs `weir support-bundle`.
///
/// # Errors
/// The server cannot be reached; the file exists or cannot be written.
pub fn bundle(
    args: &SupportBundle,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let path = args.file.as_path();
    if path.exists() {
        return Err(exists(path));
    }
    let mut session = Session::open(&args.common, &At::default(), environment, io)?;
    let health = session.client().health()?;
    let metrics = session.text("/metrics")?;
    let facts = facts(session.client().address(), &health, &metrics);
    let audit = [("pageSize", AUDIT.to_owned())];
    let audit = session.call(Method::Get, "auditEntries", &audit, None);
    let mut files = vec![
        ("status.json", format!("{facts:#}\n")),
        ("health.json", format!("{health:#}\n")),
        ("metrics.txt", metrics),
        (
            "audit.json",
            match audit {
                Ok(entries) => format!("{entries:#}\n"),
                // It takes an administrator's token.
                Err(error) => error.lines("audit"),
            },
        ),
        ("versions.txt", versions(&facts)),
    ];
    if let Ok(settings) = std::fs::read_to_string(SETTINGS) {
        files.push(("weir.toml", without_passwords(&settings)));
    }
    let packed = archive::tar_gz("weir-support", &files);
    let mut own = OpenOptions::new();
    let file = own.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(path),
        _ => Error::Other(format!("cannot write {}: {error}", path.display())),
    })?;
    file.write_all(&packed)
        .map_err(|error| Error::Other(format!("cannot write {}: {error}", path.display())))?;
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let written = json!({"file": path.to_string_lossy(), "files": names});
    session.say(&format!(
        "Wrote {} ({} files, no secrets: look through it before you give it away).",
        path.display(),
        files.len()
    ))?;
    session.print(&written, &Format::plain(Kind::None))
}

fn exists(path: &Path) -> Error {
    Error::Other(format!("{} exists (name another file)", path.display()))
}

/// Returns settings with the user and password of each URL left out.
fn without_passwords(settings: &str) -> String {
    let mut out = String::new();
    for line in settings.lines() {
        let masked = line.split_once("://").and_then(|(scheme, rest)| {
            let (_, host) = rest.rsplit_once('@')?;
            Some(format!("{scheme}://…@{host}"))
        });
        out.push_str(masked.as_deref().unwrap_or(line));
        out.push('\n');
    }
    out
}

fn versions(facts: &Value) -> String {
    let kernel = std::fs::read_to_string("/proc/version").unwrap_or_default();
    format!(
        "server {}\nclient {}\n{kernel}",
        text_of(facts, "version"),
        env!("CARGO_PKG_VERSION")
    )
}

fn text_of<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Gathers what is shown, from the replies of `/health` and `/metrics`.
fn facts(server: &str, health: &Value, metrics: &str) -> Value {
    let samples = page::parse(metrics);
    let number = |name: &str| samples.iter().find(|s| s.name == name).map(|s| s.value);
    let bytes = |name: &str| number(name).map(|value| value as u64);
    let count = |name: &str| samples.iter().filter(|s| s.name == name).count();
    let mut facts = json!({
        "server": server,
        "version": text_of(health, "version"),
        "uptimeSeconds": bytes("weir_uptime_seconds"),
        "role": role(&samples),
        "health": text_of(health, "status"),
        "problems": health.get("problems").cloned().unwrap_or_else(|| json!([])),
        "capacity": {
            "sizeBytes": bytes("weir_aggregate_size_bytes"),
            "usedBytes": bytes("weir_aggregate_used_bytes"),
            "freeBytes": bytes("weir_aggregate_free_bytes"),
            "promisedBytes": bytes("weir_aggregate_provisioned_bytes"),
        },
        "pools": count("weir_pool_size_bytes"),
        "volumes": count("weir_volume_size_bytes"),
    });
    if let (Some(term), Value::Object(facts)) = (bytes("weir_pair_term"), &mut facts) {
        let is = |name: &str| number(name).is_some_and(|value| value > 0.0);
        let pair = json!({
            "term": term,
            "inSync": is("weir_pair_in_sync"),
            "partnerConnected": is("weir_pair_partner_connected"),
            "synchronising": is("weir_pair_synchronising"),
            "lagBytes": bytes("weir_pair_lag_bytes"),
            "behindSeconds": bytes("weir_pair_behind_seconds"),
        });
        facts.insert("pair".to_owned(), pair);
    }
    facts
}

/// Returns the role of a node that serves the API.
fn role(samples: &[Sample]) -> &'static str {
    match samples.iter().any(|s| s.name == "weir_pair_term") {
        true => "PRIMARY",
        false => "SINGLE",
    }
}

/// Returns the screen.
fn screen(facts: &Value) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<9} {value}");
    };
    let up = number(facts, "uptimeSeconds");
    line(
        "server",
        format!(
            "{}, version {}, up {}",
            text_of(facts, "server"),
            text_of(facts, "version"),
            duration(up)
        ),
    );
    line(
        "role",
        match text_of(facts, "role") {
            "PRIMARY" => "primary of a pair".to_owned(),
            _ => "single node".to_owned(),
        },
    );
    line("health", text_of(facts, "health").to_owned());
    for problem in facts
        .get("problems")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let (severity, about) = (text_of(problem, "severity"), text_of(problem, "about"));
        line(
            "",
            format!("{severity} {about}: {}", text_of(problem, "message")),
        );
    }
    if let Some(space) = facts.get("capacity") {
        let (capacity, promised) = capacity(space);
        line("capacity", capacity);
        line("promised", promised);
    }
    line("pools", number(facts, "pools").to_string());
    line("volumes", number(facts, "volumes").to_string());
    if let Some(state) = facts.get("pair") {
        line("pair", pair(state));
    }
    out
}

fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Returns the physical space, and the space that is promised.
fn capacity(space: &Value) -> (String, String) {
    let shown = |name| size(number(space, name) as f64);
    let capacity = format!(
        "{} physical: {} used, {} free",
        shown("sizeBytes"),
        shown("usedBytes"),
        shown("freeBytes")
    );
    let (physical, promised) = (number(space, "sizeBytes"), number(space, "promisedBytes"));
    let factor = match physical {
        0 => String::new(),
        _ => format!(
            " ({:.1} times the physical size)",
            promised as f64 / physical as f64
        ),
    };
    (capacity, format!("{}{factor}", shown("promisedBytes")))
}

/// Returns the state of a pair.
fn pair(pair: &Value) -> String {
    let is = |name: &str| pair.get(name).and_then(Value::as_bool).unwrap_or_default();
    let state = match (is("inSync"), is("synchronising"), is("partnerConnected")) {
        (true, ..) => "in sync".to_owned(),
        (_, true, _) => "synchronising".to_owned(),
        (.., true) => format!("behind for {}", duration(number(pair, "behindSeconds"))),
        _ => "partner not connected".to_owned(),
    };
    format!("{state}, term {}", number(pair, "term"))
}

/// Returns a time in its two largest units.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# TYPE weir_uptime_seconds gauge\nweir_uptime_seconds 93784.5\n\
        weir_aggregate_size_bytes 48318382080\nweir_aggregate_used_bytes 3221225472\n\
        weir_aggregate_free_bytes 45097156608\nweir_aggregate_provisioned_bytes 96636764160\n\
        weir_pool_size_bytes{pool=\"a\"} 1\nweir_volume_size_bytes{volume=\"v\"} 1\n\
        weir_volume_size_bytes{volume=\"w\"} 1\n";

    #[test]
    fn one_screen() {
        let problem = json!({"about": "space", "severity": "WARNING", "message": "80 % full"});
        let health = json!({"status": "WARNING", "version": "1.2.3", "problems": [problem]});
        let facts = super::facts("http://h", &health, METRICS);
        assert_eq!(
            screen(&facts),
            "server    http://h, version 1.2.3, up 1 d 2 h\n\
             role      single node\n\
             health    WARNING\n          WARNING space: 80 % full\n\
             capacity  45 GiB physical: 3 GiB used, 42 GiB free\n\
             promised  90 GiB (2.0 times the physical size)\n\
             pools     1\n\
             volumes   2\n"
        );
        assert!(facts.get("pair").is_none());
        let metrics = format!("{METRICS}weir_pair_term 3\nweir_pair_in_sync 1\n");
        let facts = super::facts("http://h", &health, &metrics);
        assert!(screen(&facts).ends_with("pair      in sync, term 3\n"));
        assert!(screen(&facts).contains("\nrole      primary of a pair\n"));
        let metrics = format!("{METRICS}weir_pair_term 3\nweir_pair_in_sync 0\n");
        let facts = super::facts("http://h", &health, &metrics);
        assert!(screen(&facts).ends_with("pair      partner not connected, term 3\n"));
    }

    #[test]
    fn passwords_stay_here() {
        let settings = "nfs = \"0.0.0.0:2049\"\ncatalog = \"postgres://weir:se@cret@db/weir\"\n";
        let shown = without_passwords(settings);
        assert_eq!(
            shown,
            "nfs = \"0.0.0.0:2049\"\ncatalog = \"postgres://…@db/weir\"\n"
        );
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, shown) in [
            (5, "5 s"),
            (65, "1 min 5 s"),
            (3725, "1 h 2 min"),
            (93_784, "1 d 2 h"),
        ] {
            assert_eq!(duration(seconds), shown);
        }
    }
}

//! The server and its pair as `/v1/server` and `/v1/pair` describe them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_api::live::Live;
use weir_api::words::{Language, Words};
use weir_base::Clock;
use weir_control::{Control, Stamp};
use weir_volume::Engine;

use crate::control::certificate;
use weir_net::ConnectionRegistry;
use weir_node::os;
use weir_node::size::Size;
use weir_pair_node::{Pair, PairStatus};

const GIB: u64 = 1 << 30;

/// Sources of the server's description.
pub struct Server {
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// When the server began, in seconds since 1970.
    pub began: i64,
    /// Protocols with the addresses at which they are served.
    pub addresses: Vec<(&'static str, String)>,
    /// Versions of protocols that clients may speak.
    pub protocols: Vec<&'static str>,
    /// The API's certificate.
    pub certificate: Option<PathBuf>,
    /// Memory that the server may use.
    pub memory: Size,
    /// The data folder.
    pub folder: PathBuf,
    /// The engine.
    pub engine: Arc<Engine>,
    /// The control plane.
    pub control: Arc<Control>,
}

fn stamp(secs: i64) -> String {
    Stamp::from_nanos(i128::from(secs) * 1_000_000_000).rfc3339()
}

impl Server {
    /// Returns the description.
    pub fn describe(&self) -> Value {
        let now = self.clock.current_time().secs;
        let addresses = self.addresses.iter();
        let addresses: Vec<Value> = addresses
            .map(|(protocol, address)| json!({"protocol": protocol, "address": address}))
            .collect();
        let space = self.control.facts().space;
        let provisioned = self.control.view().provisioned_gib().saturating_mul(GIB);
        let mut memory = Map::new();
        memory.insert("budgetBytes".to_owned(), json!(self.memory.0));
        if let Some(resident) = os::resident_bytes() {
            memory.insert("residentBytes".to_owned(), json!(resident));
        }
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "time": stamp(now),
            "startTime": stamp(self.began),
            // Saturates: the civil clock may step.
            "uptimeSeconds": now.saturating_sub(self.began).max(0),
            "node": os::host_name(),
            "addresses": addresses,
            "protocols": self.protocols,
            "certificates": self.certificates(now),
            "memory": memory,
            "dataFolder": self.folder.display().to_string(),
            "aggregate": {
                "id": self.engine.aggregate().id().to_string(),
                "sizeBytes": space.size,
                "usedBytes": space.used(),
                "freeBytes": space.free,
                "provisionedBytes": provisioned,
                "readOnly": self.engine.poisoned().is_some(),
            },
        })
    }

    fn certificates(&self, now: i64) -> Vec<Value> {
        let path = self.certificate.as_deref();
        let validity = path.and_then(certificate::validity_of);
        let shown = |v: certificate::Validity| {
            json!({
                "use": "api",
                "notBefore": stamp(v.not_before),
                "notAfter": stamp(v.not_after),
                "daysLeft": (v.not_after - now).div_euclid(86_400),
            })
        };
        validity.map(shown).into_iter().collect()
    }
}

/// Sets what live data says of the pair and the server, and how the pair is switched.
pub fn begin(live: &Live, pair: Option<Arc<Pair>>, server: Server) {
    let of_pair = pair.clone();
    live.describe(
        Box::new(move |language| self::pair(of_pair.as_deref(), language)),
        Box::new(move |_| server.describe()),
    );
    if let Some(pair) = pair {
        live.switch_by(Box::new(move |only| {
            let done = match only {
                true => pair.may_hand_over(),
                false => pair.hand_over(),
            };
            done.map_err(|why| format!("{why:#}"))
        }));
    }
}

/// Returns the number of connections of each protocol, by its port, as a metric.
pub fn connections(connected: &ConnectionRegistry, ports: &[(&str, Option<u16>)]) -> String {
    let counts = connected.by_port();
    let mut out = String::from(
        "# HELP weir_connections Connections of clients; NFS, MOUNT and the lock protocols share a port.\n\
         # TYPE weir_connections gauge\n",
    );
    for (protocol, port) in ports {
        if let Some(port) = port {
            let count = counts.get(port).copied().unwrap_or(0);
            out += &format!("weir_connections{{protocol=\"{protocol}\"}} {count}\n");
        }
    }
    out
}

/// Returns the ends of certificates, by their use, as a metric. The files are read anew, since they
/// are replaced while the server runs.
pub fn certificates(files: &[(&str, Option<&Path>)]) -> String {
    let mut out = String::from(
        "# HELP weir_certificate_not_after_seconds End of a certificate's validity, in seconds since 1970.\n\
         # TYPE weir_certificate_not_after_seconds gauge\n",
    );
    for (purpose, file) in files {
        if let Some(validity) = file.and_then(certificate::validity_of) {
            let end = validity.not_after;
            out += &format!("weir_certificate_not_after_seconds{{use=\"{purpose}\"}} {end}\n");
        }
    }
    out
}

/// Returns the description of a pair's witness: its address, its last reply, its fault.
fn witness((address, replied, trouble): (String, Option<Duration>, Option<String>)) -> Value {
    let mut out = json!({"address": address});
    if let Some(ago) = replied {
        out["repliedSecondsAgo"] = json!(ago.as_secs_f64());
    }
    if let Some(trouble) = trouble {
        out["trouble"] = json!(trouble);
    }
    out
}

/// Returns the sentence that says whether the pair is in sync, and what that costs.
fn standing(shown: &PairStatus) -> Words {
    let (_, partner) = &shown.nodes;
    let cost = shown.cost;
    match (shown.in_sync, cost.records) {
        (true, 0) => Words::new("The mirror is in sync.", "ミラーは同期済みです。"),
        (true, _) => {
            let mean = cost.mean.as_secs_f64() * 1e3;
            Words::new(
                format!("The mirror is in sync and adds {mean:.2} ms to a write."),
                format!("ミラーは同期済みで、書き込みに {mean:.2} ms 加わります。"),
            )
        }
        (false, _) if shown.serving => Words::new(
            format!(
                "The mirror is not in sync: node {partner} lacks changes, and this node serves alone."
            ),
            format!(
                "ミラーは同期していません。ノード {partner} に未反映の変更があり、このノードだけで提供しています。"
            ),
        ),
        (false, _) => Words::new("The mirror is not in sync.", "ミラーは同期していません。"),
    }
}

/// Returns the description of the pair that this node is one of.
pub fn pair(pair: Option<&Pair>, language: Language) -> Value {
    let Some(pair) = pair else {
        return json!({"configured": false});
    };
    let shown = pair.show();
    let (node, partner) = &shown.nodes;
    let cost = shown.cost;
    let headline = standing(&shown);
    let line = |name: &str| {
        let found = shown.lines.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    };
    let details = shown.lines.iter();
    let details: Vec<Value> = details
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let mut out = json!({
        "configured": true,
        "side": node,
        "partner": partner,
        "role": line("role"),
        "state": line("state"),
        "serving": shown.serving,
        "inSync": shown.in_sync,
        "partnerConnected": shown.connected,
        "synchronising": shown.synchronising,
        "term": shown.term,
        "lagBytes": shown.lag,
        "behindSeconds": shown.behind,
        "cost": {
            "changes": cost.records,
            "meanSeconds": cost.mean.as_secs_f64(),
            "p99Seconds": cost.p99.as_secs_f64(),
        },
        "headline": headline.text(language),
        "details": details,
    });
    if let Some(out) = out.as_object_mut() {
        let optional = [
            (
                "roundTripSeconds",
                shown.round_trip.map(|time| json!(time.as_secs_f64())),
            ),
            (
                "sentPerWritten",
                shown.amplification.map(|sent| json!(sent)),
            ),
            ("trouble", shown.fault.map(|fault| json!(fault))),
            (
                "takeoverSeconds",
                shown.takeover.map(|time| json!(time.as_secs_f64())),
            ),
            ("witness", shown.witness.map(witness)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                out.insert(name.to_owned(), value);
            }
        }
    }
    out
}

//! Two servers that are paired, and what the experiment asks of them.

use crate::qos::server::Server;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weir_bench::clock;
use weir_bench::error::BenchError;

/// The project, which is ONTAP's SVM.
pub(super) const SVM: &str = "weir";
/// The pool of each server.
const POOL: &str = "aggr1";
/// Size of each pool, in GiB.
const POOL_GIB: u64 = 1024;
/// Time between two polls of a transfer.
const LOOK: Duration = Duration::from_millis(5);
/// A transfer that moves nothing for this long hangs.
const STUCK_NS: u64 = 60_000_000_000;

/// The two servers, paired over TLS.
pub(super) struct Pair {
    pub(super) source: Server,
    pub(super) destination: Server,
}

/// A transfer that has ended.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Transfer {
    /// Name of the destination volume.
    pub(super) to: String,
    /// Bytes before compression, with those before a restart.
    pub(super) logical: u64,
    /// Bytes on the wire, with those before a restart.
    pub(super) wire: u64,
    pub(super) setup_ms: u64,
    pub(super) data_ms: u64,
    pub(super) finalize_ms: u64,
    /// Bytes a second on the wire while data moved.
    pub(super) rate: u64,
    /// From the request until its end was seen.
    pub(super) seconds: f64,
    /// Limits that were seen to bind.
    pub(super) limited_by: Vec<String>,
    /// State at its end: `success`, `aborted` or `failed`.
    pub(super) state: String,
}

/// Names by which a running transfer is waited for.
pub(super) struct RunningTransfer {
    to: String,
    began: u64,
    path: String,
    limited_by: Vec<String>,
    moved: u64,
    since: u64,
}

fn refused(what: &str, why: &str) -> BenchError {
    BenchError::Usage(format!("{what}: {why}"))
}

fn get(server: &Server, path: &str) -> Result<Value, BenchError> {
    let (status, text) = server.http("GET", path, None)?;
    match status {
        200 => serde_json::from_str(&text).map_err(|e| refused(path, &e.to_string())),
        _ => Err(refused(path, &format!("{status} {text}"))),
    }
}

/// Runs a line of ONTAP's words.
pub(super) fn does(server: &Server, line: &str) -> Result<String, BenchError> {
    let body = json!({"input": line});
    let (status, text) = server.http("POST", "/api/private/cli", Some(&body))?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    match status {
        200..300 => Ok(word(&answer, "output").to_owned()),
        _ => Err(refused(line, &text)),
    }
}

fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

impl Pair {
    /// Starts both and pairs them: the destination knows the source as `far`.
    pub(super) fn start(weir: &Path, scratch: &Path, memory: &str) -> Result<Pair, BenchError> {
        let more = ["--replication", "127.0.0.1:0"];
        let start = || Server::start_with(weir, scratch, memory, &more);
        let pair = Pair {
            source: start()?,
            destination: start()?,
        };
        let (source, destination) = (&pair.source, &pair.destination);
        for (here, there, name) in [(source, destination, "near"), (destination, source, "far")] {
            let cluster = get(there, "/api/cluster?fields=peering")?;
            let peering = cluster.get("peering").cloned().unwrap_or_default();
            does(
                here,
                &format!(
                    "cluster peer create -cluster {name} -peer-addrs {} -fingerprint {}",
                    word(&peering, "address"),
                    word(&peering, "fingerprint")
                ),
            )?;
            here.pool(POOL, "UNLIMITED", POOL_GIB, json!({}))?;
        }
        Ok(pair)
    }

    /// A volume of the source.
    pub(super) fn volume(&self, name: &str) -> Result<(), BenchError> {
        self.source.make_volume(name, POOL, 100, json!({}))
    }

    /// A destination of it, its relationship, and the first transfer.
    pub(super) fn mirror(
        &self,
        from: &str,
        to: &str,
        policy: &str,
    ) -> Result<Transfer, BenchError> {
        let at = &self.destination;
        does(
            at,
            &format!(
                "volume create -vserver {SVM} -volume {to} -size 100GB -aggregate {POOL} -type DP"
            ),
        )?;
        does(
            at,
            &format!(
                "snapmirror create -source-path far://{SVM}/{from} -destination-path {SVM}:{to} -policy {policy}"
            ),
        )?;
        let begun = self.begin("initialize", to, "")?;
        self.succeeds(begun)
    }

    /// Begins a transfer to the volume `to`.
    pub(super) fn begin(
        &self,
        verb: &str,
        to: &str,
        more: &str,
    ) -> Result<RunningTransfer, BenchError> {
        let began = clock::now_ns();
        does(
            &self.destination,
            &format!("snapmirror {verb} -destination-path {SVM}:{to}{more}"),
        )?;
        let path =
            format!("/api/snapmirror/relationships?destination.path={SVM}:{to}&fields=transfer");
        let found = get(&self.destination, &path)?;
        let one = found.get("records").and_then(|all| all.get(0));
        let one = one.cloned().unwrap_or_default();
        let transfer = one.get("transfer").map(|t| word(t, "uuid").to_owned());
        let transfer = transfer.filter(|uuid| !uuid.is_empty());
        let transfer = transfer.ok_or_else(|| refused(&path, &format!("no transfer: {found}")))?;
        Ok(RunningTransfer {
            to: to.to_owned(),
            began,
            path: format!(
                "/api/snapmirror/relationships/{}/transfers/{transfer}",
                word(&one, "uuid")
            ),
            limited_by: Vec::new(),
            moved: 0,
            since: began,
        })
    }

    /// Polls a transfer; returns its result once it has ended.
    pub(super) fn look(&self, begun: &mut RunningTransfer) -> Result<Option<Transfer>, BenchError> {
        let now = get(&self.destination, &begun.path)?;
        let state = word(&now, "state");
        let limit = word(&now, "limited_by");
        if !limit.is_empty() && !begun.limited_by.iter().any(|l| l == limit) {
            begun.limited_by.push(limit.to_owned());
        }
        let moved = number(&now, "bytes_transferred");
        if matches!(state, "queued" | "transferring") {
            let at = clock::now_ns();
            if moved != begun.moved {
                (begun.moved, begun.since) = (moved, at);
            }
            return match at - begun.since > STUCK_NS {
                true => Err(refused(&begun.to, "its transfer does not move any more")),
                false => Ok(None),
            };
        }
        let phases = now.get("phases").cloned().unwrap_or_default();
        Ok(Some(Transfer {
            to: begun.to.clone(),
            logical: moved,
            wire: number(&now, "wire_bytes_transferred"),
            setup_ms: number(&phases, "setup_ms"),
            data_ms: number(&phases, "data_ms"),
            finalize_ms: number(&phases, "finalize_ms"),
            rate: number(&now, "rate"),
            seconds: (clock::now_ns() - begun.began) as f64 / 1e9,
            limited_by: std::mem::take(&mut begun.limited_by),
            state: state.to_owned(),
        }))
    }

    /// Waits for a transfer's end, good or bad.
    pub(super) fn ends(&self, mut begun: RunningTransfer) -> Result<Transfer, BenchError> {
        loop {
            if let Some(transfer) = self.look(&mut begun)? {
                return Ok(transfer);
            }
            // A short transfer is polled often, one that takes minutes need not be.
            let age = Duration::from_nanos((clock::now_ns() - begun.began) / 50);
            std::thread::sleep(age.clamp(LOOK, LOOK * 50));
        }
    }

    /// Waits for its good end.
    pub(super) fn succeeds(&self, begun: RunningTransfer) -> Result<Transfer, BenchError> {
        let what = begun.to.clone();
        let transfer = self.ends(begun)?;
        match transfer.state.as_str() {
            "success" => Ok(transfer),
            state => Err(refused(&what, &format!("its transfer {state}"))),
        }
    }

    /// Sets the destination's global throttle of what comes in, or the source's of what goes out.
    pub(super) fn global(&self, incoming: bool, kbs: Option<u64>) -> Result<(), BenchError> {
        let (server, way) = match incoming {
            true => (&self.destination, "incoming"),
            false => (&self.source, "outgoing"),
        };
        let value = kbs.map_or("unlimited".to_owned(), |kbs| kbs.to_string());
        does(
            server,
            &format!("options -option-name replication.throttle.{way}.max_kbs {value}"),
        )
        .map(drop)
    }

    /// Bytes on the wire that the destination has received so far.
    pub(super) fn received(&self) -> Result<u64, BenchError> {
        let bytes = self
            .destination
            .metric("weir_snapmirror_wire_bytes_total")?;
        Ok(bytes as u64)
    }
}

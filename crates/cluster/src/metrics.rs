//! Metrics of a node's daemon for Prometheus, and the listener that has them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use weir_base::Clock;

use crate::conditions::Fact;
use crate::daemon::ClusterState;
use crate::rows::{Aggregate, Node, View};

/// Maximum number of connections at a time.
const CONNECTIONS: usize = 8;
/// Maximum length of a request's head, in bytes.
const HEAD: usize = 8192;
/// Time for a request and its reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the metrics of the cluster as the node `this` sees it at the monotonic time `now`.
pub fn render(known: &ClusterState, this: &str, now: Duration) -> String {
    let view = known.view_at(now, this);
    let outage = known.outage.as_ref();
    let outage = outage.map_or(0, |(since, _)| now.saturating_sub(*since).as_secs());
    let leads = view
        .leader
        .as_ref()
        .is_some_and(|leader| leader.node == this);
    let single = |value| vec![(String::new(), value)];
    let nodes = |value: fn(&Node) -> bool| {
        let all = view.nodes.values();
        let sample = |node: &Node| (format!("{{node=\"{}\"}}", node.name), value(node).into());
        all.map(sample).collect::<Vec<_>>()
    };
    let aggregates = |value: fn(&View, &Aggregate) -> bool| {
        let all = view.aggregates.values();
        let label = |one: &Aggregate| format!("{{aggregate=\"{}\"}}", one.name);
        all.map(|one| (label(one), value(&view, one).into()))
            .collect()
    };
    let families = [
        (
            "weir_cluster_database_outage_seconds",
            "Time for which the cluster's PostgreSQL has not answered this node; 0 if it answers.",
            single(outage),
        ),
        (
            "weir_cluster_leads",
            "1 if this node leads the cluster.",
            single(leads.into()),
        ),
        (
            "weir_cluster_node_up",
            "1 if the node sends heartbeats.",
            nodes(Node::is_up),
        ),
        (
            "weir_cluster_node_drained",
            "1 if the node is to have no aggregates.",
            nodes(|node| node.drained),
        ),
        (
            "weir_cluster_aggregate_served",
            "1 if a node reports that it owns the aggregate.",
            aggregates(|view, one| view.real_owner(one).is_some()),
        ),
        (
            "weir_cluster_aggregate_standby",
            "1 if a node stands by for the aggregate.",
            aggregates(View::has_standby),
        ),
    ];
    let mut text = String::new();
    for (name, help, samples) in families {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    let family = "weir_condition";
    let help = "1: the condition of the cluster holds; /v1/conditions has the words.";
    let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} gauge");
    for condition in known.facts(now, this).iter().map(Fact::condition) {
        let (kind, severity) = (condition.kind.as_str(), condition.severity.as_str());
        let resource = condition.resource;
        let labels = format!("kind=\"{kind}\",severity=\"{severity}\",resource=\"{resource}\"");
        let _ = writeln!(text, "{family}{{{labels}}} 1");
    }
    text
}

/// Listens at an address.
///
/// # Errors
/// The address cannot be listened at.
pub async fn listen(at: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(at).await;
    listener.with_context(|| format!("cannot listen for metrics at {at}"))
}

/// Answers at a listener, for ever.
pub async fn serve(
    listener: TcpListener,
    known: Arc<Mutex<ClusterState>>,
    this: String,
    clock: Arc<dyn Clock>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for metrics");
                continue;
            }
        };
        let text = render(&known.lock().clone(), &this, clock.monotonic());
        tokio::spawn(async move {
            match tokio::time::timeout(PATIENCE, answer(stream, &text)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "connection for metrics lost"),
                Err(_) => tracing::debug!("connection for metrics took too long"),
            }
            drop(place);
        });
    }
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = if head.starts_with(b"GET /metrics ") {
        ("200 OK", text)
    } else {
        ("404 Not Found", "only GET /metrics is answered here\n")
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send_request(at: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn only_metrics_are_answered() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let at = listener.local_addr().unwrap();
        let known = ClusterState {
            outage: Some((Duration::ZERO, "gone".to_owned())),
            ..ClusterState::default()
        };
        let clock: Arc<dyn Clock> = Arc::new(weir_base::SystemClock::new());
        let serving = serve(
            listener,
            Arc::new(Mutex::new(known)),
            "n1".to_owned(),
            clock,
        );
        let serving = tokio::spawn(serving);
        let reply = send_request(at, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(
            reply.contains("\nweir_cluster_database_outage_seconds 0\n"),
            "{reply}"
        );
        let condition = "\nweir_condition{kind=\"CLUSTER_TABLES\",severity=\"WARNING\",resource=\"cluster\"} 1\n";
        assert!(reply.contains(condition), "{reply}");
        assert!(
            send_request(at, "GET / HTTP/1.1\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404")
        );
        assert!(
            send_request(at, &"x".repeat(HEAD))
                .await
                .starts_with("HTTP/1.1 404")
        );
        serving.abort();
    }
}

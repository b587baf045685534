//! Latency of each address of a server: how long connecting takes, and an NFS call that does
//! nothing (NULL, procedure 0 of RFC 1813 §3.3.0), many times over one connection. The lowest
//! median names the nearest address or zone.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::args::Ping;

/// The registered port of NFS.
const PORT: u16 = 2049;
/// Longest wait for a reply of an address.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of one address.
#[derive(Debug, Serialize)]
struct Answer {
    host: String,
    address: SocketAddr,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Measured(Latency),
    Failed { error: String },
}

/// Latencies of an address, in microseconds.
#[derive(Debug, Serialize, PartialEq)]
struct Latency {
    connect: f64,
    min: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

/// Measures the addresses one after the other and prints them, the nearest first.
pub fn run(args: &Ping) -> Result<()> {
    let mut answers = Vec::new();
    for host in &args.hosts {
        for address in addresses(host)? {
            let outcome = match measure(address, args.count) {
                Ok(latency) => Outcome::Measured(latency),
                Err(error) => Outcome::Failed {
                    error: format!("{error:#}"),
                },
            };
            answers.push(Answer {
                host: host.clone(),
                address,
                outcome,
            });
        }
    }
    let median = |answer: &Answer| match &answer.outcome {
        Outcome::Measured(latency) => latency.p50,
        Outcome::Failed { .. } => f64::INFINITY,
    };
    answers.sort_by(|a, b| median(a).total_cmp(&median(b)));
    print(&answers, args.json)?;
    ensure!(
        answers.iter().any(|a| median(a).is_finite()),
        "no address answered"
    );
    Ok(())
}

fn print(answers: &[Answer], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, answers)?;
        return Ok(writeln!(out)?);
    }
    writeln!(
        out,
        "{:<40} {:>9} {:>9} {:>9} {:>9} {:>9}  microseconds",
        "ADDRESS", "CONNECT", "MIN", "P50", "P99", "MAX"
    )?;
    for answer in answers {
        let name = format!("{} ({})", answer.host, answer.address);
        match &answer.outcome {
            Outcome::Measured(l) => writeln!(
                out,
                "{name:<40} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
                l.connect, l.min, l.p50, l.p99, l.max
            )?,
            Outcome::Failed { error } => writeln!(out, "{name:<40} {error}")?,
        }
    }
    Ok(())
}

fn addresses(host: &str) -> Result<Vec<SocketAddr>> {
    let found = match host.parse::<SocketAddr>() {
        Ok(address) => vec![address],
        Err(_) => match host.parse::<std::net::IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, PORT)],
            Err(_) => {
                let named: Result<Vec<SocketAddr>, _> = match host.contains(':') {
                    true => host.to_socket_addrs().map(Iterator::collect),
                    false => (host, PORT).to_socket_addrs().map(Iterator::collect),
                };
                named.with_context(|| format!("'{host}' has no address"))?
            }
        },
    };
    ensure!(!found.is_empty(), "'{host}' has no address");
    Ok(found)
}

// A measuring client times itself; nothing below serves requests.
#[allow(clippy::disallowed_methods)]
fn measure(address: SocketAddr, count: u32) -> Result<Latency> {
    let micros = |since: Instant| since.elapsed().as_secs_f64() * 1e6;
    let start = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    let connect = micros(start);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The first call warms caches up and shows whether this is an NFS server.
    null(&mut stream, 0)?;
    let mut times = Vec::with_capacity(count as usize);
    for xid in 1..=count {
        let start = Instant::now();
        null(&mut stream, xid)?;
        times.push(micros(start));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * times.len() as f64).ceil() as usize;
        times
            .get(index.clamp(1, times.len()) - 1)
            .copied()
            .unwrap_or(f64::NAN)
    };
    Ok(Latency {
        connect,
        min: at(0.0),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
    })
}

/// One call of procedure 0 (RFC 5531 §9, record marking §11).
fn null(stream: &mut TcpStream, xid: u32) -> Result<()> {
    const CALL: [u32; 9] = [0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let mut call = Vec::with_capacity(44);
    for word in [0x8000_0028, xid].into_iter().chain(CALL) {
        call.extend_from_slice(&u32::to_be_bytes(word));
    }
    stream.write_all(&call)?;
    let mut head = [0; 16];
    stream
        .read_exact(&mut head)
        .context("no answer; is this an NFS server?")?;
    let word = |index: usize| {
        head.get(index * 4..index * 4 + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let length = word(0).unwrap_or(0) & 0x7fff_ffff;
    ensure!(
        (24..=4096).contains(&length) && word(1) == Some(xid) && word(2) == Some(1),
        "cannot use the answer: it is not NFS"
    );
    let mut rest = vec![0; length as usize - 12];
    stream.read_exact(&mut rest)?;
    ensure!(word(3) == Some(0), "call refused by the server");
    Ok(())
}

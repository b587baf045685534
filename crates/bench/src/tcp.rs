//! Throughput of TCP over loopback: pairs of threads, one sending, one receiving.

use crate::args::TcpArgs;
use crate::clock;
use crate::error::BenchError;
use serde::Serialize;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct TcpReport {
    /// The settings of the run.
    pub settings: TcpArgs,
    /// Seconds that were measured.
    pub elapsed_s: f64,
    /// Bytes that all threads received.
    pub bytes: u64,
    /// Rate in MiB a second.
    pub mib_per_s: f64,
    /// Rate in Gbit a second.
    pub gbit_per_s: f64,
    /// Processor time of all threads, in nanoseconds a KiB.
    pub cpu_ns_per_kib: f64,
}

impl TcpReport {
    /// One line for people.
    pub fn table(&self) -> String {
        format!(
            "loopback TCP, {} connection(s), {} B sends{}: {:.0} MiB/s, {:.1} Gbit/s, {:.0} ns CPU a KiB\n",
            self.settings.connections,
            self.settings.block_size,
            if self.settings.discard {
                ", discarded"
            } else {
                ""
            },
            self.mib_per_s,
            self.gbit_per_s,
            self.cpu_ns_per_kib
        )
    }
}

/// Sends for the time given over every connection at once, and counts what arrives.
pub fn tcp(args: &TcpArgs) -> Result<TcpReport, BenchError> {
    let block = usize::try_from(args.block_size.clamp(1, 64 << 20)).unwrap_or(1 << 20);
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(BenchError::io("listen on loopback"))?;
    let addr = listener
        .local_addr()
        .map_err(BenchError::io("listen on loopback"))?;
    let mut pairs = Vec::new();
    for _ in 0..args.connections {
        let sender = TcpStream::connect(addr).map_err(BenchError::io("connect"))?;
        let (receiver, _) = listener.accept().map_err(BenchError::io("accept"))?;
        pairs.push((sender, receiver));
    }
    let stop = AtomicBool::new(false);
    let start = clock::now_ns();
    let outcome = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut sender, receiver) in pairs {
            let stop = &stop;
            threads.push(scope.spawn(move || {
                let data = vec![0x5a; block];
                while !stop.load(Ordering::Relaxed) {
                    sender.write_all(&data).map_err(BenchError::io("send"))?;
                }
                Ok((0, clock::thread_cpu_ns()))
            }));
            threads.push(scope.spawn(move || {
                let bytes = drain(receiver, block, args.discard)?;
                Ok((bytes, clock::thread_cpu_ns()))
            }));
        }
        std::thread::sleep(Duration::from_secs_f64(args.duration.clamp(0.0, 3600.0)));
        stop.store(true, Ordering::Relaxed);
        let mut total = (0, 0);
        for t in threads {
            let (bytes, cpu): (u64, u64) = t
                .join()
                .unwrap_or_else(|_| Err(BenchError::Usage("a thread failed".into())))?;
            total = (total.0 + bytes, total.1 + cpu);
        }
        Ok::<_, BenchError>(total)
    });
    let (bytes, cpu) = outcome?;
    let seconds = (clock::now_ns() - start) as f64 / 1e9;
    Ok(TcpReport {
        settings: args.clone(),
        elapsed_s: seconds,
        bytes,
        mib_per_s: bytes as f64 / seconds / f64::from(1 << 20),
        gbit_per_s: bytes as f64 * 8.0 / seconds / 1e9,
        cpu_ns_per_kib: cpu as f64 / (bytes.max(1) as f64 / 1024.0),
    })
}

/// Receives until the sender closes; returns the bytes.
fn drain(mut stream: TcpStream, block: usize, discard: bool) -> Result<u64, BenchError> {
    let mut buffer = vec![0; block];
    let mut bytes = 0;
    loop {
        let result = if discard {
            // SAFETY: with MSG_TRUNC, TCP writes nothing to the null buffer (tcp(7)).
            let n = unsafe {
                libc::recv(
                    stream.as_raw_fd(),
                    std::ptr::null_mut(),
                    block,
                    libc::MSG_TRUNC,
                )
            };
            usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
        } else {
            stream.read(&mut buffer)
        };
        match result {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes += n as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(BenchError::Io("receive".into(), e)),
        }
    }
}

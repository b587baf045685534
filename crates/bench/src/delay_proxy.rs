//! A link between two machines on one: passes what comes on a port to another, later. It counts the
//! bytes of both directions.

use crate::clock;
use crate::error::BenchError;
use clap::Args;
use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// `weir bench relay`: says on a line where it listens, then for each line that it reads how many
/// bytes have passed, and ends with its input.
#[derive(Args, Debug, Clone)]
pub struct RelayArgs {
    /// Address to pass bytes on to.
    #[arg(long, value_name = "ADDR:PORT")]
    pub to: SocketAddr,
    /// Microseconds that each byte is on the way: half a round trip.
    #[arg(long, default_value_t = 0)]
    pub delay: u64,
}

/// Pieces on the way in one direction; each has at most [`PIECE`] bytes.
const PIECES: usize = 4096;
const PIECE: usize = 64 << 10;

/// Relays until the standard input ends.
pub fn relay(args: &RelayArgs) -> Result<(), BenchError> {
    // Sleeps of some tens of microseconds are to end when they should.
    // SAFETY: it takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(BenchError::io("set the timers' slack")(error));
    }
    let listening = || BenchError::io("listen on loopback");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(listening())?;
    let mut out = std::io::stdout();
    let at = listener.local_addr().map_err(listening())?;
    writeln!(out, "{at}").map_err(BenchError::io("write where it listens"))?;
    let passed = Arc::new(AtomicU64::new(0));
    let (args, counts) = (args.clone(), Arc::clone(&passed));
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect(args.to) {
                // What cannot be relayed is closed; the nodes connect again.
                let _ = connect(near, far, args.delay, &counts);
            }
        }
    });
    for line in std::io::stdin().lock().lines() {
        line.map_err(BenchError::io("read a question"))?;
        writeln!(out, "{}", passed.load(Ordering::Relaxed))
            .map_err(BenchError::io("write the bytes"))?;
    }
    Ok(())
}

fn connect(
    near: TcpStream,
    far: TcpStream,
    delay: u64,
    passed: &Arc<AtomicU64>,
) -> std::io::Result<()> {
    for end in [&near, &far] {
        end.set_nodelay(true)?;
    }
    let back = (far.try_clone()?, near.try_clone()?);
    for (from, to) in [(near, far), back] {
        let passed = Arc::clone(passed);
        std::thread::spawn(move || carry(from, to, delay, &passed));
    }
    Ok(())
}

fn carry(mut from: TcpStream, to: TcpStream, delay: u64, passed: &AtomicU64) {
    let (pieces, due) = sync_channel(PIECES);
    // The thread inherits the slack.
    std::thread::spawn(move || deliver(to, &due));
    let mut buffer = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        passed.fetch_add(length as u64, Ordering::Relaxed);
        let at = clock::now_ns() + 1000 * delay;
        let piece = buffer.get(..length).unwrap_or_default().to_vec();
        if pieces.send((at, piece)).is_err() {
            break;
        }
    }
    // The other side may have closed it already.
    let _ = from.shutdown(Shutdown::Both);
}

fn deliver(mut to: TcpStream, due: &Receiver<(u64, Vec<u8>)>) {
    for (at, piece) in due {
        // Saturates: it is due already.
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(clock::now_ns())));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // The other side may have closed it already.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_later_in_both_directions() {
        let one = TcpListener::bind("127.0.0.1:0").unwrap();
        let two = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut a = TcpStream::connect(one.local_addr().unwrap()).unwrap();
        let near = one.accept().unwrap().0;
        let far = TcpStream::connect(two.local_addr().unwrap()).unwrap();
        let mut b = two.accept().unwrap().0;
        let passed = Arc::default();
        connect(near, far, 10_000, &passed).unwrap();
        let began = clock::now_ns();
        a.write_all(b"to").unwrap();
        let mut got = [0; 2];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"to");
        b.write_all(b"fro").unwrap();
        let mut got = [0; 3];
        a.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"fro");
        assert!(clock::now_ns() - began >= 20_000_000);
        assert_eq!(passed.load(Ordering::Relaxed), 5);
        drop(a);
        assert_eq!(b.read(&mut got).unwrap(), 0, "the end passes, too");
    }
}

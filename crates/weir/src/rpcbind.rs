//! Registering with this machine's rpcbind, so that clients find the service without port
//! options and Linux can lock (a client's kernel asks rpcbind where the lock manager is).
//!
//! Everything here is best effort: a server without rpcbind serves, and says what that means.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_base::{Rng, SystemRng};
use weir_nfs::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM, portmap};

/// Where rpcbind takes registrations. It takes them over TCP only when told to be insecure.
const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];

/// How long rpcbind may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer: a reply to SET is 28 bytes.
const MAX_ANSWER: usize = 512;

/// What is registered: program, version, and the name that `rpcinfo` gives it.
const PROGRAMS: [(u32, u32, &str); 4] = [
    (NFS_PROGRAM, 3, "nfs"),
    (MOUNT_PROGRAM, 3, "mountd"),
    (NLM_PROGRAM, 4, "nlockmgr"),
    (NSM_PROGRAM, 1, "status"),
];

/// Programs that rpcbind knows as ours. Dropping it takes them back.
#[derive(Default)]
pub struct Registration {
    address: Option<SocketAddr>,
    programs: Vec<(u32, u32, &'static str)>,
}

impl Registration {
    /// Registers all programs that nobody else has registered; says what did not work.
    pub fn register(address: SocketAddr) -> Registration {
        let mut ours = Registration {
            address: Some(address),
            programs: Vec::new(),
        };
        let mut refused = Vec::new();
        for (program, version, name) in PROGRAMS {
            match set(program, version, &address) {
                Ok(true) => ours.programs.push((program, version, name)),
                Ok(false) => refused.push(name),
                Err(error) => {
                    tracing::info!(
                        "not registered with rpcbind ({error}); clients need port options and cannot lock"
                    );
                    return ours;
                }
            }
        }
        if !refused.is_empty() {
            tracing::warn!(
                "rpcbind already has, or refuses, {} (see `rpcinfo -p`); is another NFS server running?",
                refused.join(", ")
            );
        }
        ours
    }

    /// True when clients can find the lock manager.
    pub fn has_locks(&self) -> bool {
        self.programs
            .iter()
            .any(|(program, ..)| *program == NLM_PROGRAM)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        for (program, version, name) in self.programs.drain(..) {
            if !matches!(
                ask(|xid| portmap::unset(xid, program, version, &address)),
                Ok(true)
            ) {
                tracing::warn!("{name} stays registered with rpcbind");
            }
        }
    }
}

/// Registers one program. A registration that a dead server left behind is replaced.
fn set(program: u32, version: u32, address: &SocketAddr) -> io::Result<bool> {
    let set = || ask(|xid| portmap::set(xid, program, version, address));
    if set()? {
        return Ok(true);
    }
    if !left_behind(program, version, address.port()) {
        return Ok(false);
    }
    ask(|xid| portmap::unset(xid, program, version, address))?;
    set()
}

/// True when the registered port of `program` is ours now, or nobody listens there.
fn left_behind(program: u32, version: u32, ours: u16) -> bool {
    let xid = fresh_xid();
    let port = connect(portmap::PORT)
        .and_then(|stream| {
            let call = portmap::getport(xid, program, version, portmap::Transport::Tcp);
            exchange(stream, &call)
        })
        .ok()
        .and_then(|answer| portmap::reply_port(xid, &answer));
    match port {
        Some(port) if port == ours => true,
        Some(port) => {
            connect(port).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        }
        None => false,
    }
}

/// Makes one call to rpcbind that is answered with yes or no.
fn ask(call: impl FnOnce(u32) -> Vec<u8>) -> io::Result<bool> {
    let xid = fresh_xid();
    let call = call(xid);
    let answer = match SOCKETS
        .iter()
        .find_map(|path| UnixStream::connect(path).ok())
    {
        Some(stream) => {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            exchange(stream, &call)
        }
        None => match connect(portmap::PORT) {
            Ok(stream) => exchange(stream, &call),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(io::Error::other("none is running"))
            }
            Err(error) => Err(error),
        },
    };
    portmap::reply_bool(xid, &answer?).ok_or_else(|| io::Error::other("it refused the call"))
}

fn fresh_xid() -> u32 {
    SystemRng.next_u64() as u32
}

/// Connects to a port of this machine.
fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends one call and returns the message that answers it.
fn exchange(mut stream: impl Read + Write, call: &[u8]) -> io::Result<Vec<u8>> {
    // Calls are a hundred bytes: one fragment (RFC 5531 §11).
    let mark = 0x8000_0000 | call.len() as u32;
    stream.write_all(&[&mark.to_be_bytes()[..], call].concat())?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let len = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
    if len > MAX_ANSWER {
        return Err(io::Error::other("its answer is too long"));
    }
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

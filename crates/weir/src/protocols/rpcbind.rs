//! Registering with this machine's rpcbind, so that clients find the service without port
//! options and Linux can lock (a client's kernel asks rpcbind where the lock manager is).
//!
//! Everything here is best effort: a server without rpcbind serves, and says what that means.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_base::{Rng, SystemRng};
use weir_nfs::portmap::{self, Entry, Transport};
use weir_nfs::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, NSM_PROGRAM, RQUOTA_PROGRAM};

/// Sockets at which rpcbind takes registrations. It takes them over TCP only when configured to be
/// insecure.
const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];

/// Longest time that rpcbind may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer: a reply to SET is 28 bytes.
const MAX_ANSWER: usize = 512;

/// Programs that are registered, with their names in `rpcinfo`. Linux calls the status monitor
/// over UDP: a client's kernel on this machine, and when a client has restarted.
const PROGRAMS: [(Entry, &str); 10] = [
    (entry(NFS_PROGRAM, 3, Transport::Tcp), "nfs"),
    (entry(MOUNT_PROGRAM, 3, Transport::Tcp), "mountd"),
    (entry(NLM_PROGRAM, 4, Transport::Tcp), "nlockmgr"),
    (entry(NLM_PROGRAM, 4, Transport::Udp), "nlockmgr (UDP)"),
    (entry(NSM_PROGRAM, 1, Transport::Tcp), "status"),
    (entry(NSM_PROGRAM, 1, Transport::Udp), "status (UDP)"),
    (entry(RQUOTA_PROGRAM, 1, Transport::Tcp), "rquotad"),
    (entry(RQUOTA_PROGRAM, 1, Transport::Udp), "rquotad (UDP)"),
    (entry(RQUOTA_PROGRAM, 2, Transport::Tcp), "rquotad"),
    (entry(RQUOTA_PROGRAM, 2, Transport::Udp), "rquotad (UDP)"),
];

const fn entry(program: u32, version: u32, transport: Transport) -> Entry {
    Entry {
        program,
        version,
        transport,
    }
}

/// Programs that rpcbind knows as ours. Dropping it takes them back.
#[derive(Default)]
pub struct Registration {
    address: Option<SocketAddr>,
    entries: Vec<(Entry, &'static str)>,
}

impl Registration {
    /// Registers all programs that no other server has registered; says what did not work.
    pub fn register(address: SocketAddr) -> Registration {
        let mut ours = Registration {
            address: Some(address),
            entries: Vec::new(),
        };
        let mut refused = Vec::new();
        for (entry, name) in PROGRAMS {
            match set(entry, &address) {
                Ok(true) => ours.entries.push((entry, name)),
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
        self.entries
            .iter()
            .any(|(entry, _)| entry.program == NLM_PROGRAM)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        for (entry, name) in self.entries.drain(..) {
            if !matches!(
                call_rpcbind(|xid| portmap::unset(xid, entry, &address)),
                Ok(true)
            ) {
                tracing::warn!("{name} stays registered with rpcbind");
            }
        }
    }
}

/// Registers one program. A registration that a dead server left behind is replaced.
fn set(entry: Entry, address: &SocketAddr) -> io::Result<bool> {
    let set = || call_rpcbind(|xid| portmap::set(xid, entry, address));
    if set()? {
        return Ok(true);
    }
    if !left_behind(entry, address.port()) {
        return Ok(false);
    }
    call_rpcbind(|xid| portmap::unset(xid, entry, address))?;
    set()
}

/// True when the registered port of `entry` is ours now, or no program listens there.
fn left_behind(entry: Entry, ours: u16) -> bool {
    let xid = fresh_xid();
    let port = connect(portmap::PORT)
        .and_then(|stream| exchange(stream, &portmap::getport(xid, entry)))
        .ok()
        .and_then(|answer| portmap::reply_port(xid, &answer));
    match port {
        Some(port) if port == ours => true,
        Some(port) => match entry.transport {
            Transport::Tcp => connect(port).err(),
            Transport::Udp => ping(entry, port).err(),
        }
        .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused),
        None => false,
    }
}

/// Calls NULL over UDP on a port of this machine: a port that no program has open is refused.
fn ping(entry: Entry, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let mut call = Vec::new();
    weir_nfs::rpc::put_call(&mut call, fresh_xid(), entry.program, entry.version, 0);
    socket.send(&call)?;
    socket.recv(&mut [0; MAX_ANSWER]).map(|_| ())
}

/// Makes one call to rpcbind that is answered with yes or no.
fn call_rpcbind(call: impl FnOnce(u32) -> Vec<u8>) -> io::Result<bool> {
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

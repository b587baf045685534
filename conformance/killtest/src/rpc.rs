//! One TCP connection with ONC RPC (RFC 5531): record marks, AUTH_SYS as root, replies in any
//! order.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_testclient::nfs3::JUKEBOX;
use weir_testclient::{Call, Caller, DecodeError, In, Reply, rpc};

use crate::fault::Fault;

/// The server went away, or what it said is wrong. Only the second is a finding.
#[derive(Debug)]
pub enum Broken {
    Gone,
    Wrong(Fault),
}

impl From<Fault> for Broken {
    fn from(f: Fault) -> Self {
        Broken::Wrong(f)
    }
}

impl From<DecodeError> for Broken {
    fn from(what: DecodeError) -> Self {
        Broken::Wrong(what.0.into())
    }
}

impl From<io::Error> for Broken {
    /// A reply that does not come in time is a hang, which is a finding; every other failure is
    /// what a killed server looks like.
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Broken::Wrong("no reply within 60 s".into())
            }
            _ => Broken::Gone,
        }
    }
}

/// The connection's reading and sending side. Requests gather until [`Connection::flush`].
pub struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    xid: u32,
}

impl Connection {
    /// `xid` should be random: servers remember what they answered to an address and a number.
    pub fn open(to: SocketAddr, xid: u32) -> Result<Self, Broken> {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connection {
            stream,
            out: Vec::new(),
            xid,
        })
    }

    /// Queues a call and gives its XID.
    pub fn send(&mut self, call: &Call) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        let message = call.message(self.xid, &Caller::default());
        let mark = message.len() as u32 | 1 << 31;
        self.out.extend(mark.to_be_bytes());
        self.out.extend(message);
        self.xid
    }

    pub fn flush(&mut self) -> Result<(), Broken> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        Ok(sent?)
    }

    /// The next reply's XID and body after the RPC header.
    pub fn receive(&mut self) -> Result<(u32, Vec<u8>), Broken> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = (mark & !(1 << 31)) as usize;
            if length > 4 << 20 {
                return Err(Broken::Wrong(format!("a reply of {length} bytes")));
            }
            let start = record.len();
            record.resize(start + length, 0);
            self.stream
                .read_exact(record.get_mut(start..).unwrap_or_default())?;
            if mark >> 31 == 1 {
                break;
            }
        }
        let (xid, results) = rpc::accepted(&record)?;
        let body = results.0.to_vec();
        Ok((xid, body))
    }

    /// One call and its reply, with nothing else in flight. A server in its grace period is asked
    /// again.
    pub fn call(&mut self, call: &Call) -> Result<Reply, Broken> {
        for _ in 0..1200 {
            let sent = self.send(call);
            self.flush()?;
            let (xid, body) = self.receive()?;
            if xid != sent {
                return Err(Broken::Wrong(format!(
                    "reply to {xid:#x}, {sent:#x} was asked"
                )));
            }
            let reply = decode(call, &body)?;
            if !matches!(reply, Reply::Error(JUKEBOX)) {
                return Ok(reply);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Broken::Wrong("NFS3ERR_JUKEBOX for a minute".into()))
    }
}

/// The reply to `call` that `body` is.
pub fn decode(call: &Call, body: &[u8]) -> Result<Reply, Broken> {
    let decoded = call.decode(In(body));
    decoded.map_err(|what| Broken::Wrong(format!("a reply to {call:?}: {}", what.0)))
}

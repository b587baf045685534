//! A client with an address of its own: one NFS connection from any address of the loopback network.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::{PATIENCE, record, reply, unique, words};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// What a connection's bytes go through.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// See the module's head.
pub struct Caller {
    stream: Box<dyn Stream>,
    xid: u32,
    uid: u32,
}

/// XDR's variable-length opaque: the length, then the bytes (RFC 4506 section 4.10).
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[bytes.len() as u32]);
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A `sattr3` with a mode.
fn sattr(mode: u32) -> Vec<u8> {
    words(&[1, mode, 0, 0, 0, 0, 0])
}

impl Caller {
    /// Connects `from` there, as root.
    pub fn connect(server: SocketAddr, from: &str) -> Caller {
        let from: IpAddr = from.parse().unwrap();
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect(&server.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Caller::over(Box::new(stream))
    }

    /// As root, on a connection that stands.
    pub fn over(stream: Box<dyn Stream>) -> Caller {
        Caller {
            stream,
            xid: unique() as u32,
            uid: 0,
        }
    }

    /// The same connection as another user.
    pub fn user(mut self, uid: u32) -> Caller {
        self.uid = uid;
        self
    }

    /// The words of the results of a call.
    pub fn call(&mut self, program: u32, procedure: u32, args: &[u8]) -> Vec<u32> {
        let xid = self.send(program, procedure, args);
        let answer = self.reply();
        assert_eq!(answer[..6], [xid, 1, 0, 0, 0, 0], "not accepted");
        answer[6..].to_vec()
    }

    /// The words of the next reply.
    pub fn reply(&mut self) -> Vec<u32> {
        reply(&mut *self.stream)
    }

    /// Sends a call without waiting for its reply; its transaction id.
    pub fn send(&mut self, program: u32, procedure: u32, args: &[u8]) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        let mut cred = words(&[7]);
        cred.extend(opaque(b"caller"));
        cred.extend(words(&[self.uid, self.uid, 0]));
        let mut body = words(&[self.xid, 0, 2, program, 3, procedure, 1]);
        body.extend(opaque(&cred));
        body.extend(words(&[0, 0]));
        body.extend_from_slice(args);
        self.stream.write_all(&record(&body)).unwrap();
        self.stream.flush().unwrap();
        self.xid
    }

    /// MNT: the root's handle, or the status.
    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let answer = self.call(MOUNT, 1, &opaque(path.as_bytes()));
        match answer[0] {
            0 => Ok(words(&answer[2..2 + answer[1] as usize / 4])),
            status => Err(status),
        }
    }

    /// EXPORT: the words of the list.
    pub fn exports(&mut self) -> String {
        let answer = words(&self.call(MOUNT, 5, &[]));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// GETATTR: mode, or the status.
    pub fn getattr(&mut self, object: &[u8]) -> Result<u32, u32> {
        let answer = self.call(NFS, 1, &opaque(object));
        match answer[0] {
            0 => Ok(answer[2]),
            status => Err(status),
        }
    }

    /// MKDIR: the owner of the new directory, or the status.
    pub fn mkdir(&mut self, dir: &[u8], name: &str) -> Result<u32, u32> {
        let args = [opaque(dir), opaque(name.as_bytes()), sattr(0o755)].concat();
        let answer = self.call(NFS, 9, &args);
        match answer[0] {
            // status; handle follows, length, handle; attributes follow, type, mode, nlink, uid
            0 => Ok(answer[1 + 1 + 1 + 8 + 1 + 3]),
            status => Err(status),
        }
    }

    /// SETATTR of the mode: the status.
    pub fn chmod(&mut self, object: &[u8], mode: u32) -> u32 {
        let args = [opaque(object), sattr(mode), words(&[0])].concat();
        self.call(NFS, 2, &args)[0]
    }
}

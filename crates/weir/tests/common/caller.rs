//! A client with an address of its own: one NFS connection from any address of the loopback
//! network.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use weir_testclient::nfs3::{self, Call, Reply, Sattr};
use weir_testclient::{In, rpc};

use super::{PATIENCE, record, reply, unique, words};

/// Byte stream of a connection.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// See the module's head.
pub struct Caller {
    stream: Box<dyn Stream>,
    xid: u32,
    uid: u32,
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
        Caller::from_stream(Box::new(stream))
    }

    /// Returns a caller as root, on an open connection.
    pub fn from_stream(stream: Box<dyn Stream>) -> Caller {
        Caller {
            stream,
            xid: unique() as u32,
            uid: 0,
        }
    }

    /// Continues on the same connection as another user.
    pub fn user(mut self, uid: u32) -> Caller {
        self.uid = uid;
        self
    }

    /// Sends the message that `message` makes for the caller, with a new stamp each time.
    fn put(&mut self, message: impl FnOnce(&rpc::Caller) -> Vec<u8>) {
        let caller = rpc::Caller {
            stamp: unique() as u32,
            uid: self.uid,
            gid: self.uid,
            gids: Vec::new(),
        };
        self.stream.write_all(&record(&message(&caller))).unwrap();
        self.stream.flush().unwrap();
    }

    /// The words of the next reply.
    pub fn reply(&mut self) -> Vec<u32> {
        reply(&mut *self.stream)
    }

    /// The results in the next reply, which is to this XID.
    fn results(&mut self, xid: u32) -> Vec<u8> {
        let reply = words(&self.reply());
        rpc::results(&reply, xid).unwrap().0.to_vec()
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// The results of any call of any program.
    pub fn call(&mut self, program: (u32, u32), procedure: u32, args: &[u8]) -> Vec<u8> {
        let xid = self.next_xid();
        self.put(|caller| {
            let mut call = rpc::call(xid, program.0, program.1, procedure, caller);
            call.0.extend_from_slice(args);
            call.0
        });
        self.results(xid)
    }

    /// The reply to a call with this XID.
    pub fn send(&mut self, xid: u32, call: &Call) -> Reply {
        self.put(|caller| call.message(xid, caller));
        call.decode(In(&self.results(xid))).unwrap()
    }

    /// Sends a call without waiting for its reply; its XID.
    pub fn post(&mut self, call: &Call) -> u32 {
        let xid = self.next_xid();
        self.put(|caller| call.message(xid, caller));
        xid
    }

    pub fn request_reply(&mut self, call: &Call) -> Reply {
        let xid = self.next_xid();
        self.send(xid, call)
    }

    /// MNT: the root's handle, or the status.
    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        match self.request_reply(&Call::Mnt(path.into())) {
            Reply::Root(root) => Ok(root),
            other => Err(status(&other)),
        }
    }

    /// EXPORT: the bytes of the list.
    pub fn exports(&mut self) -> String {
        let list = self.call((nfs3::MOUNT_PROGRAM, 3), 5, &[]);
        String::from_utf8_lossy(&list).into_owned()
    }

    /// GETATTR: mode, or the status.
    pub fn getattr(&mut self, object: &[u8]) -> Result<u32, u32> {
        match self.request_reply(&Call::Getattr(object.into())) {
            Reply::Attr(attr) => Ok(attr.mode),
            other => Err(status(&other)),
        }
    }

    /// MKDIR: the owner of the new directory, or the status.
    pub fn mkdir(&mut self, dir: &[u8], name: &str) -> Result<u32, u32> {
        match self.request_reply(&Call::Mkdir(dir.into(), name.into(), Sattr::mode(0o755))) {
            Reply::Made(_, Some(attr), _) => Ok(attr.uid),
            other => Err(status(&other)),
        }
    }

    /// SETATTR of the mode: the status.
    pub fn chmod(&mut self, object: &[u8], mode: u32) -> u32 {
        status(&self.request_reply(&Call::Setattr(object.into(), Sattr::mode(mode), None)))
    }
}

/// The `nfsstat3` of a reply.
pub fn status(reply: &Reply) -> u32 {
    match reply {
        Reply::Error(status) => *status,
        _ => 0,
    }
}

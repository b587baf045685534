//! A client of NFSv4.2 with one session of a few slots, over TCP, which outlives its server as the
//! protocol has it (RFC 8881).

#![allow(clippy::unwrap_used)] // A client of tests fails loudly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::compound::{self, BADSESSION, OK, Ops, READ_WRITE, Results, UNCHECKED};
use crate::{Args, Caller, Fields, rpc};

/// A client with a session, over TCP.
#[derive(Debug)]
pub struct Client4 {
    stream: TcpStream,
    xid: u32,
    owner: String,
    /// Identifier of the session.
    pub session: Vec<u8>,
    /// `csr_flags` of the session.
    pub flags: u32,
    sequence: u32,
}

impl Client4 {
    /// Introduces a client at a server and makes a session. It may still claim what it had.
    pub fn introduced(to: SocketAddr, owner: &str) -> Client4 {
        let mut client = Client4 {
            stream: connect(to),
            xid: 1,
            owner: owner.to_owned(),
            session: Vec::new(),
            flags: 0,
            sequence: 0,
        };
        client.introduce();
        client
    }

    /// Introduces a client that claims nothing of before.
    pub fn new(to: SocketAddr, owner: &str) -> Client4 {
        let mut client = Client4::introduced(to, owner);
        assert_eq!(client.run(&Ops::new().reclaim_complete()).status, OK);
        client
    }

    /// Makes a session at a server that does not know the one that the client had.
    pub fn introduce(&mut self) {
        let exchange = compound::exchange(self.owner.as_bytes(), 7, 0);
        let mut r = self.send(&Ops::new().op(42, exchange));
        let r = r.ok(42);
        let (id, sequence) = (r.h(), r.u());
        let creation = compound::creation(id, sequence, 4);
        let mut r = self.send(&Ops::new().op(43, creation));
        let r = r.ok(43);
        self.session = r.raw(16);
        let _sequence = r.u();
        self.flags = r.u();
        self.sequence = 0;
    }

    /// Connects to another server.
    pub fn moves(&mut self, to: SocketAddr) {
        self.stream = connect(to);
    }

    fn exchange(&mut self, ops: &Ops) -> std::io::Result<Results> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = rpc::call(self.xid, 100_003, 4, 1, &Caller::default()).0;
        call.extend(ops.compound(b"", 2).0);
        let mark = call.len() as u32 | 0x8000_0000;
        self.stream
            .write_all(&[&mark.to_be_bytes()[..], &call].concat())?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut body)?;
        let results = rpc::results(&body, self.xid).unwrap();
        let at = body.len() - results.0.len();
        Ok(Results::from_fields(Fields(body, at), b""))
    }

    /// Sends operations without a session.
    fn send(&mut self, ops: &Ops) -> Results {
        self.exchange(ops).unwrap()
    }

    /// Returns the next request of the session, to be sent once or more often.
    pub fn request(&mut self, ops: &Ops) -> Ops {
        self.sequence += 1;
        let x = Args::new().raw(&self.session).u(self.sequence);
        Ops::new().op(53, x.u(0).u(0).u(1)).and(ops)
    }

    /// Sends a request, perhaps again; returns the results behind its SEQUENCE.
    pub fn sends(&mut self, request: &Ops) -> Results {
        let mut results = self.send(request);
        if results.status != BADSESSION {
            results.sequence();
        }
        results
    }

    /// Sends operations in the session.
    pub fn run(&mut self, ops: &Ops) -> Results {
        let request = self.request(ops);
        self.sends(&request)
    }

    /// Returns the handle of `/vol1`.
    pub fn volume(&mut self) -> Vec<u8> {
        let mut r = self.run(&Ops::new().root().lookup("vol1").getfh());
        r.ok(24);
        r.ok(15);
        r.handle()
    }

    /// Opens a file of the volume's root; returns its handle and the stateid.
    pub fn open(&mut self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let root = self.volume();
        let mut r = self.run(
            &Ops::new()
                .fh(&root)
                .open(name, "o", READ_WRITE, Some(UNCHECKED))
                .getfh(),
        );
        r.ok(22);
        let state = r.opened();
        (r.handle(), state)
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

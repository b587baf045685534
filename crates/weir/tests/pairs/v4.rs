//! A client of NFSv4.2 with one session of a few slots, which outlives its server as the protocol has it (RFC 8881).

#![allow(dead_code)] // Each test uses a part.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_testclient::{Caller, In, rpc};

use crate::common::record;

pub const OK: u32 = 0;
pub const DENIED: u32 = 10_010;
pub const GRACE: u32 = 10_013;
pub const BAD_STATEID: u32 = 10_025;
pub const BADSESSION: u32 = 10_052;

/// FILE_SYNC4 and UNSTABLE4.
pub const STABLE: u32 = 2;
pub const UNSTABLE: u32 = 0;

/// Arguments, or operations with their number.
#[derive(Clone, Default)]
pub struct Ops(u32, Vec<u8>);

impl Ops {
    pub fn new() -> Ops {
        Ops::default()
    }
    fn u(mut self, v: u32) -> Ops {
        self.1.extend(v.to_be_bytes());
        self
    }
    fn h(mut self, v: u64) -> Ops {
        self.1.extend(v.to_be_bytes());
        self
    }
    fn raw(mut self, v: &[u8]) -> Ops {
        self.1.extend(v);
        self
    }
    fn o(self, v: &[u8]) -> Ops {
        let pad = [0; 3];
        let rest = v.len().next_multiple_of(4) - v.len();
        self.u(v.len() as u32).raw(v).raw(&pad[..rest])
    }
    fn op(mut self, number: u32) -> Ops {
        self.0 += 1;
        self.u(number)
    }
    fn and(mut self, more: &Ops) -> Ops {
        self.0 += more.0;
        self.raw(&more.1)
    }
    pub fn root(self) -> Ops {
        self.op(24)
    }
    pub fn fh(self, handle: &[u8]) -> Ops {
        self.op(22).o(handle)
    }
    pub fn getfh(self) -> Ops {
        self.op(10)
    }
    pub fn lookup(self, name: &str) -> Ops {
        self.op(15).o(name.as_bytes())
    }
    pub fn remove(self, name: &str) -> Ops {
        self.op(28).o(name.as_bytes())
    }
    /// OPEN for reading and writing, which makes the file if it is not there; `CLAIM_NULL`.
    pub fn open(self, name: &str, owner: &str) -> Ops {
        let x = self.op(18).u(0).u(3).u(0).h(0).o(owner.as_bytes());
        // OPEN4_CREATE, UNCHECKED4, no attributes.
        x.u(1).u(0).u(0).o(&[]).u(0).o(name.as_bytes())
    }
    /// OPEN of the current file by `CLAIM_PREVIOUS`.
    pub fn open_again(self, owner: &str) -> Ops {
        let x = self.op(18).u(0).u(3).u(0).h(0).o(owner.as_bytes());
        x.u(0).u(1).u(0)
    }
    /// LOCK for writing of the bytes 0 to 99 by the open's stateid; `again`: it was held before.
    pub fn lock(self, again: bool, open: &[u8], owner: &str) -> Ops {
        let x = self.op(12).u(2).u(again.into()).h(0).h(100);
        x.u(1).u(0).raw(open).u(0).h(0).o(owner.as_bytes())
    }
    pub fn write(self, state: &[u8], stable: u32, data: &[u8]) -> Ops {
        self.op(38).raw(state).h(0).u(stable).o(data)
    }
    pub fn read(self, state: &[u8], count: u32) -> Ops {
        self.op(25).raw(state).h(0).u(count)
    }
    pub fn reclaim_complete(self) -> Ops {
        self.op(58).u(0)
    }
}

/// Results of a COMPOUND.
pub struct Results {
    pub status: u32,
    body: Vec<u8>,
    at: usize,
}

impl Results {
    fn take<T>(
        &mut self,
        take: impl FnOnce(&mut In<'_>) -> Result<T, weir_testclient::Malformed>,
    ) -> T {
        let mut rest = In(&self.body[self.at..]);
        let taken = take(&mut rest).unwrap();
        self.at = self.body.len() - rest.0.len();
        taken
    }
    pub fn u(&mut self) -> u32 {
        self.take(|rest| rest.u32())
    }
    pub fn h(&mut self) -> u64 {
        self.take(|rest| rest.u64())
    }
    pub fn o(&mut self) -> Vec<u8> {
        self.take(|rest| rest.opaque().map(<[u8]>::to_vec))
    }
    pub fn raw(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.body[self.at..self.at + bytes].to_vec();
        self.at += bytes;
        taken
    }
    /// The next result, which has to be this operation's, done.
    pub fn ok(&mut self, operation: u32) -> &mut Results {
        assert_eq!((self.u(), self.u()), (operation, OK));
        self
    }
    pub fn handle(&mut self) -> Vec<u8> {
        self.ok(10).o()
    }
    /// The stateid of an OPEN.
    pub fn opened(&mut self) -> Vec<u8> {
        let r = self.ok(18);
        let state = r.raw(16);
        r.raw(20 + 4);
        let words = r.u() as usize;
        r.raw(4 * words);
        // A delegation is not asked for, and comes with its reason at most.
        if r.u() == 3 {
            r.u();
        }
        state
    }
    pub fn locked(&mut self) -> Vec<u8> {
        self.ok(12).raw(16)
    }
    /// Count, committed, verifier of a WRITE.
    pub fn written(&mut self) -> (u32, u32, Vec<u8>) {
        let r = self.ok(38);
        (r.u(), r.u(), r.raw(8))
    }
    pub fn data(&mut self) -> Vec<u8> {
        let r = self.ok(25);
        r.u();
        r.o()
    }
}

pub struct Client4 {
    stream: TcpStream,
    xid: u32,
    owner: String,
    pub session: Vec<u8>,
    sequence: u32,
}

impl Client4 {
    /// A client that introduces itself at a server, with a session; it may still claim what it had.
    pub fn introduced(to: SocketAddr, owner: &str) -> Client4 {
        let mut client = Client4 {
            stream: connect(to),
            xid: 1,
            owner: owner.to_owned(),
            session: Vec::new(),
            sequence: 0,
        };
        client.introduce();
        client
    }

    /// The same, which claims nothing.
    pub fn new(to: SocketAddr, owner: &str) -> Client4 {
        let mut client = Client4::introduced(to, owner);
        assert_eq!(client.run(&Ops::new().reclaim_complete()).status, OK);
        client
    }

    /// A session of its own, at a server that does not know the one it had.
    pub fn introduce(&mut self) {
        let owner = self.owner.clone();
        let exchange = Ops::new().op(42).h(7).o(owner.as_bytes());
        let mut r = self.send(&exchange.u(0).u(0).u(0));
        let r = r.ok(42);
        let (id, sequence) = (r.h(), r.u());
        let create = Ops::new().op(43).h(id).u(sequence);
        // Persistent; both channels.
        let create = [0, 65_536, 65_536, 3000, 16, 4, 0]
            .into_iter()
            .chain([0, 4096, 4096, 0, 2, 4, 0])
            .fold(create.u(1), Ops::u);
        let mut r = self.send(&create.u(0x4000_0000).u(1).u(0));
        self.session = r.ok(43).raw(16);
        self.sequence = 0;
    }

    /// Its server is another one now.
    pub fn moves(&mut self, to: SocketAddr) {
        self.stream = connect(to);
    }

    fn exchange(&mut self, ops: &Ops) -> std::io::Result<Results> {
        self.xid = self.xid.wrapping_add(1);
        let mut call = rpc::call(self.xid, 100_003, 4, 1, &Caller::default()).0;
        call.extend(Ops::new().o(b"").u(2).u(ops.0).1);
        call.extend(&ops.1);
        self.stream.write_all(&record(&call))?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut body)?;
        let results = rpc::results(&body, self.xid).unwrap();
        let mut results = Results {
            status: 0,
            at: body.len() - results.0.len(),
            body,
        };
        results.status = results.u();
        results.o();
        results.u();
        Ok(results)
    }

    /// Sends operations without a session.
    fn send(&mut self, ops: &Ops) -> Results {
        self.exchange(ops).unwrap()
    }

    /// The next request of the session, to be sent once or more often.
    pub fn request(&mut self, ops: &Ops) -> Ops {
        self.sequence += 1;
        let sequence = Ops::new().op(53).raw(&self.session);
        sequence.u(self.sequence).u(0).u(0).u(1).and(ops)
    }

    /// Sends a request, perhaps again: what comes behind its SEQUENCE.
    pub fn sends(&mut self, request: &Ops) -> Results {
        let mut results = self.send(request);
        if results.status != BADSESSION {
            results.ok(53).raw(16 + 5 * 4);
        }
        results
    }

    pub fn run(&mut self, ops: &Ops) -> Results {
        let request = self.request(ops);
        self.sends(&request)
    }

    /// The root of `/vol1`.
    pub fn volume(&mut self) -> Vec<u8> {
        let mut r = self.run(&Ops::new().root().lookup("vol1").getfh());
        r.ok(24);
        r.ok(15);
        r.handle()
    }

    /// Opens a file of the volume's root: its handle and the stateid.
    pub fn open(&mut self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let root = self.volume();
        let mut r = self.run(&Ops::new().fh(&root).open(name, "o").getfh());
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

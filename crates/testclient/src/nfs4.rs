//! A client of NFSv4.2 with one session of a few slots, which outlives its server as the protocol
//! has it (RFC 8881): COMPOUNDs that are built operation by operation, and their results.

#![allow(clippy::unwrap_used, clippy::panic)] // A client of tests fails loudly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{Caller, In, Malformed, Out, rpc};

/// NFS4_OK.
pub const OK: u32 = 0;
/// NFS4ERR_DENIED: the lock is held by another owner.
pub const DENIED: u32 = 10_010;
/// NFS4ERR_GRACE.
pub const GRACE: u32 = 10_013;
/// NFS4ERR_BAD_STATEID.
pub const BAD_STATEID: u32 = 10_025;
/// NFS4ERR_BADSESSION.
pub const BADSESSION: u32 = 10_052;

/// FILE_SYNC4.
pub const STABLE: u32 = 2;
/// UNSTABLE4.
pub const UNSTABLE: u32 = 0;

/// Operations of a COMPOUND under construction, with their number.
#[derive(Clone, Debug, Default)]
pub struct Ops(u32, Out);

impl Ops {
    /// No operations.
    #[must_use]
    pub fn new() -> Ops {
        Ops::default()
    }

    /// Appends an unsigned 32-bit integer to the arguments.
    #[must_use]
    pub fn u(mut self, value: u32) -> Ops {
        self.1.u32(value);
        self
    }

    /// Appends an unsigned 64-bit integer to the arguments.
    #[must_use]
    pub fn h(mut self, value: u64) -> Ops {
        self.1.u64(value);
        self
    }

    /// Appends bytes that are encoded already.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Ops {
        self.1.0.extend_from_slice(bytes);
        self
    }

    /// Appends a variable-length opaque.
    #[must_use]
    pub fn o(mut self, bytes: &[u8]) -> Ops {
        self.1.opaque(bytes);
        self
    }

    /// Begins an operation; its arguments follow.
    #[must_use]
    pub fn op(mut self, number: u32) -> Ops {
        self.0 += 1;
        self.u(number)
    }

    /// Appends operations.
    #[must_use]
    pub fn and(mut self, more: &Ops) -> Ops {
        self.0 += more.0;
        self.raw(&more.1.0)
    }

    /// PUTROOTFH.
    #[must_use]
    pub fn root(self) -> Ops {
        self.op(24)
    }

    /// PUTFH.
    #[must_use]
    pub fn fh(self, handle: &[u8]) -> Ops {
        self.op(22).o(handle)
    }

    /// GETFH.
    #[must_use]
    pub fn getfh(self) -> Ops {
        self.op(10)
    }

    /// LOOKUP.
    #[must_use]
    pub fn lookup(self, name: &str) -> Ops {
        self.op(15).o(name.as_bytes())
    }

    /// REMOVE.
    #[must_use]
    pub fn remove(self, name: &str) -> Ops {
        self.op(28).o(name.as_bytes())
    }

    /// OPEN for reading and writing, which makes the file if it is not there; `CLAIM_NULL`.
    #[must_use]
    pub fn open(self, name: &str, owner: &str) -> Ops {
        let x = self.op(18).u(0).u(3).u(0).h(0).o(owner.as_bytes());
        // OPEN4_CREATE, UNCHECKED4, no attributes.
        x.u(1).u(0).u(0).o(&[]).u(0).o(name.as_bytes())
    }

    /// OPEN for reading and writing that makes the file with mode 0644, and fails if it is there.
    #[must_use]
    pub fn open_guarded(self, name: &str, owner: &str) -> Ops {
        let x = self.op(18).u(0).u(3).u(0).h(0).o(owner.as_bytes());
        // OPEN4_CREATE, GUARDED4.
        x.u(1).u(1).mode().u(0).o(name.as_bytes())
    }

    /// CREATE of a directory with mode 0644.
    #[must_use]
    pub fn mkdir(self, name: &str) -> Ops {
        self.op(6).u(2).o(name.as_bytes()).mode()
    }

    /// SAVEFH and RENAME within the current directory.
    #[must_use]
    pub fn rename(self, from: &str, to: &str) -> Ops {
        self.op(32).op(29).o(from.as_bytes()).o(to.as_bytes())
    }

    /// `fattr4` with the mode 0644.
    fn mode(self) -> Ops {
        self.u(2).u(0).u(2).o(&0o644_u32.to_be_bytes())
    }

    /// OPEN of the current file by `CLAIM_PREVIOUS`.
    #[must_use]
    pub fn open_again(self, owner: &str) -> Ops {
        let x = self.op(18).u(0).u(3).u(0).h(0).o(owner.as_bytes());
        x.u(0).u(1).u(0)
    }

    /// LOCK for writing of the bytes 0 to 99 by the open's stateid; `again`: it was held before.
    #[must_use]
    pub fn lock(self, again: bool, open: &[u8], owner: &str) -> Ops {
        let x = self.op(12).u(2).u(again.into()).h(0).h(100);
        x.u(1).u(0).raw(open).u(0).h(0).o(owner.as_bytes())
    }

    /// WRITE at offset 0.
    #[must_use]
    pub fn write(self, state: &[u8], stable: u32, data: &[u8]) -> Ops {
        self.op(38).raw(state).h(0).u(stable).o(data)
    }

    /// READ at offset 0.
    #[must_use]
    pub fn read(self, state: &[u8], count: u32) -> Ops {
        self.op(25).raw(state).h(0).u(count)
    }

    /// RECLAIM_COMPLETE of all that was held before.
    #[must_use]
    pub fn reclaim_complete(self) -> Ops {
        self.op(58).u(0)
    }
}

/// Results of a COMPOUND.
#[derive(Debug)]
pub struct Results {
    /// Status of the last operation that was carried out.
    pub status: u32,
    body: Vec<u8>,
    at: usize,
}

impl Results {
    fn take<T>(&mut self, take: impl FnOnce(&mut In<'_>) -> Result<T, Malformed>) -> T {
        let mut rest = In(&self.body[self.at..]);
        let taken = take(&mut rest).unwrap();
        self.at = self.body.len() - rest.0.len();
        taken
    }

    /// Takes an unsigned 32-bit integer.
    pub fn u(&mut self) -> u32 {
        self.take(|rest| rest.u32())
    }

    /// Takes an unsigned 64-bit integer.
    pub fn h(&mut self) -> u64 {
        self.take(|rest| rest.u64())
    }

    /// Takes a variable-length opaque.
    pub fn o(&mut self) -> Vec<u8> {
        self.take(|rest| rest.opaque().map(<[u8]>::to_vec))
    }

    /// Takes so many bytes.
    pub fn raw(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.body[self.at..self.at + bytes].to_vec();
        self.at += bytes;
        taken
    }

    /// Returns the bytes that have not been taken.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.body[self.at..]
    }

    /// Begins the next result, which has to be this operation's, done.
    pub fn ok(&mut self, operation: u32) -> &mut Results {
        assert_eq!((self.u(), self.u()), (operation, OK));
        self
    }

    /// Takes the handle of a GETFH.
    pub fn handle(&mut self) -> Vec<u8> {
        self.ok(10).o()
    }

    /// Takes the stateid of an OPEN.
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

    /// Takes the stateid of a LOCK.
    pub fn locked(&mut self) -> Vec<u8> {
        self.ok(12).raw(16)
    }

    /// Takes count, committed and verifier of a WRITE.
    pub fn written(&mut self) -> (u32, u32, Vec<u8>) {
        let r = self.ok(38);
        (r.u(), r.u(), r.raw(8))
    }

    /// Takes the data of a READ.
    pub fn data(&mut self) -> Vec<u8> {
        let r = self.ok(25);
        r.u();
        r.o()
    }
}

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
        call.extend(Ops::new().o(b"").u(2).u(ops.0).1.0);
        call.extend(&ops.1.0);
        let mark = call.len() as u32 | 0x8000_0000;
        self.stream
            .write_all(&[&mark.to_be_bytes()[..], &call].concat())?;
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

    /// Returns the next request of the session, to be sent once or more often.
    pub fn request(&mut self, ops: &Ops) -> Ops {
        self.sequence += 1;
        let sequence = Ops::new().op(53).raw(&self.session);
        sequence.u(self.sequence).u(0).u(0).u(1).and(ops)
    }

    /// Sends a request, perhaps again; returns the results behind its SEQUENCE.
    pub fn sends(&mut self, request: &Ops) -> Results {
        let mut results = self.send(request);
        if results.status != BADSESSION {
            results.ok(53).raw(16 + 5 * 4);
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

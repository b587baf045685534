//! A client of NFSv4.1 and 4.2 for tests: builds COMPOUNDs by hand and takes their results apart.

use super::{R, Server, X};
use std::cell::{Cell, RefCell};
use weir_base::Lsn;
use weir_nfs::Outcome;

pub const NFS4: (u32, u32) = (100_003, 4);

pub const OK: u32 = 0;
pub const NOENT: u32 = 2;
pub const ACCESS: u32 = 13;
pub const EXIST: u32 = 17;
pub const INVAL: u32 = 22;
pub const ROFS: u32 = 30;
pub const STALE: u32 = 70;
pub const DELAY: u32 = 10_008;
pub const SAME: u32 = 10_009;
pub const DENIED: u32 = 10_010;
pub const LOCKED: u32 = 10_012;
pub const GRACE: u32 = 10_013;
pub const SHARE_DENIED: u32 = 10_015;
pub const WRONGSEC: u32 = 10_016;
pub const MINOR_VERS_MISMATCH: u32 = 10_021;
pub const OLD_STATEID: u32 = 10_024;
pub const BAD_STATEID: u32 = 10_025;
pub const NOT_SAME: u32 = 10_027;
pub const NO_GRACE: u32 = 10_033;
pub const RECLAIM_BAD: u32 = 10_034;
pub const BADXDR: u32 = 10_036;
pub const LOCKS_HELD: u32 = 10_037;
pub const OPENMODE: u32 = 10_038;
pub const OP_ILLEGAL: u32 = 10_044;
pub const BADSESSION: u32 = 10_052;
pub const SEQ_MISORDERED: u32 = 10_063;
pub const REP_TOO_BIG: u32 = 10_066;
pub const RETRY_UNCACHED_REP: u32 = 10_068;
pub const TOO_MANY_OPS: u32 = 10_070;
pub const OP_NOT_IN_SESSION: u32 = 10_071;
pub const SEQ_FALSE_RETRY: u32 = 10_076;
pub const NOT_ONLY_OP: u32 = 10_081;
pub const NOXATTR: u32 = 10_095;

/// Operations of a COMPOUND under construction, with their count.
#[derive(Clone, Default)]
pub struct Ops {
    pub count: u32,
    pub x: X,
}

impl Ops {
    pub fn new() -> Ops {
        Ops::default()
    }
    pub fn op(mut self, number: u32, args: X) -> Ops {
        self.count += 1;
        self.x = self.x.u(number).raw(&args.0);
        self
    }
    pub fn root(self) -> Ops {
        self.op(24, X::new())
    }
    pub fn fh(self, handle: &[u8]) -> Ops {
        self.op(22, X::new().o(handle))
    }
    pub fn save(self) -> Ops {
        self.op(32, X::new())
    }
    pub fn getfh(self) -> Ops {
        self.op(10, X::new())
    }
    pub fn lookup(self, name: &[u8]) -> Ops {
        self.op(15, X::new().o(name))
    }
    /// The attributes with these numbers, below 64.
    pub fn getattr(self, numbers: &[u32]) -> Ops {
        self.op(9, bitmap(X::new(), numbers))
    }
    pub fn remove(self, name: &[u8]) -> Ops {
        self.op(28, X::new().o(name))
    }
    pub fn read(self, state: &[u8], offset: u64, count: u32) -> Ops {
        self.op(25, X::new().raw(state).h(offset).u(count))
    }
    pub fn write(self, state: &[u8], offset: u64, data: &[u8]) -> Ops {
        self.op(38, X::new().raw(state).h(offset).u(2).o(data))
    }
    /// OPEN by name; `create`: 0 UNCHECKED4, 1 GUARDED4 with mode 0644.
    pub fn open(self, name: &[u8], owner: &[u8], shares: (u32, u32), create: Option<u32>) -> Ops {
        let x = X::new().u(0).u(shares.0).u(shares.1).h(0).o(owner);
        let x = match create {
            None => x.u(0),
            Some(how) => bitmap(x.u(1).u(how), &[33]).o(&0o644u32.to_be_bytes()),
        };
        self.op(18, x.u(0).o(name))
    }
    /// OPEN of the current file.
    pub fn open_fh(self, owner: &[u8], shares: (u32, u32)) -> Ops {
        let x = X::new().u(0).u(shares.0).u(shares.1).h(0).o(owner);
        self.op(18, x.u(0).u(4))
    }
    /// OPEN of the current file, which was open before a restart.
    pub fn open_again(self, owner: &[u8], shares: (u32, u32)) -> Ops {
        let x = X::new().u(0).u(shares.0).u(shares.1).h(0).o(owner);
        self.op(18, x.u(0).u(1).u(0))
    }
    pub fn close(self, state: &[u8]) -> Ops {
        self.op(4, X::new().u(0).raw(state))
    }
    /// LOCK by the open's stateid.
    pub fn lock(self, kind: u32, (offset, length): (u64, u64), open: &[u8], owner: &[u8]) -> Ops {
        let x = X::new().u(kind).u(0).h(offset).h(length);
        self.op(12, x.u(1).u(0).raw(open).u(0).h(0).o(owner))
    }
    pub fn locku(self, (offset, length): (u64, u64), state: &[u8]) -> Ops {
        let x = X::new().u(2).u(0).raw(state).h(offset).h(length);
        self.op(14, x)
    }
}

pub fn bitmap(x: X, numbers: &[u32]) -> X {
    let mut words = [0u32; 3];
    for n in numbers {
        words[*n as usize / 32] |= 1 << (n % 32);
    }
    x.u(3).u(words[0]).u(words[1]).u(words[2])
}

/// `fattr4` of an ACL: entries of type, flags, mask and name.
pub fn acl(entries: &[(u32, u32, u32, &[u8])]) -> X {
    let x = X::new().u(entries.len() as u32);
    entries.iter().fold(x, |x, (kind, flags, mask, who)| {
        x.u(*kind).u(*flags).u(*mask).o(who)
    })
}

/// Results of a COMPOUND.
pub struct Results {
    pub status: u32,
    pub count: u32,
    pub r: R,
}

impl Results {
    /// Returns the status of the next result, which must be of this operation.
    pub fn next(&mut self, operation: u32) -> u32 {
        assert_eq!(self.r.u(), operation, "another operation");
        self.r.u()
    }
    /// Returns the next result, which must be of this operation and successful.
    pub fn ok(&mut self, operation: u32) -> &mut R {
        assert_eq!(self.next(operation), OK, "operation {operation}");
        &mut self.r
    }
    pub fn sequence(&mut self) {
        self.ok(53).raw(16 + 5 * 4);
    }
    /// The stateid of an OPEN.
    pub fn opened(&mut self) -> Vec<u8> {
        let r = self.ok(18);
        let state = r.raw(16);
        r.raw(20);
        let _flags = r.u();
        let words = r.u() as usize;
        r.raw(4 * words);
        assert_eq!(r.u(), 0, "a delegation");
        state
    }
    /// The stateid of an OPEN behind a PUTFH.
    pub fn tail_open(mut self) -> Vec<u8> {
        self.ok(22);
        self.opened()
    }
    pub fn handle(&mut self) -> Vec<u8> {
        self.ok(10).o()
    }
    /// Values of the attributes of a GETATTR.
    pub fn attrs(&mut self) -> R {
        let r = self.ok(9);
        let words = r.u() as usize;
        r.raw(4 * words);
        R(r.o(), 0)
    }
}

/// A client with a session.
pub struct Client<'s> {
    pub s: &'s Server,
    pub addr: &'static str,
    pub minor: u32,
    pub id: u64,
    pub session: Vec<u8>,
    pub slots: RefCell<Vec<u32>>,
    pub last_lsn: Cell<Option<Lsn>>,
}

/// The arguments of EXCHANGE_ID.
pub fn exchange(owner: &[u8], verifier: u64, flags: u32) -> X {
    X::new().h(verifier).o(owner).u(flags).u(0).u(0)
}

/// The arguments of CREATE_SESSION.
pub fn creation(client: u64, sequence: u32, slots: u32) -> X {
    let fore = [0, 1_049_620, 1_049_480, 3428, 8, slots, 0];
    let back = [0, 4096, 4096, 0, 2, 16, 0];
    // CREATE_SESSION4_FLAG_PERSIST, CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
    let x = X::new().h(client).u(sequence).u(3);
    let x = fore.into_iter().chain(back).fold(x, X::u);
    x.u(0x4000_0000).u(1).u(0)
}

/// Sends the arguments of a COMPOUND.
pub fn send(s: &Server, addr: &str, args: &X) -> Results {
    let mut r = s.from(addr).call(NFS4, 1, args);
    let status = r.u();
    assert_eq!(r.o(), b"tag");
    let count = r.u();
    Results { status, count, r }
}

impl<'s> Client<'s> {
    pub fn new(s: &'s Server, addr: &'static str, owner: &[u8]) -> Client<'s> {
        Client::again(s, addr, owner, 1)
    }

    /// A client that introduces itself with this verifier, and claims nothing of before.
    pub fn again(s: &'s Server, addr: &'static str, owner: &[u8], verifier: u64) -> Client<'s> {
        let client = Client::reclaiming(s, addr, owner, verifier);
        assert_eq!(client.status(&Ops::new().op(58, X::new().u(0))), OK);
        client
    }

    /// A client that may still claim what it had.
    pub fn reclaiming(
        s: &'s Server,
        addr: &'static str,
        owner: &[u8],
        verifier: u64,
    ) -> Client<'s> {
        let mut client = Client {
            s,
            addr,
            minor: 2,
            id: 0,
            session: Vec::new(),
            slots: RefCell::new(vec![0; 4]),
            last_lsn: Cell::new(None),
        };
        let mut r = client.alone(42, exchange(owner, verifier, 0));
        let r = r.ok(42);
        client.id = r.h();
        let sequence = r.u();
        let mut r = client.alone(43, creation(client.id, sequence, 4));
        client.session = r.ok(43).raw(16);
        client
    }

    /// The arguments of a COMPOUND.
    pub fn compound(&self, ops: &Ops) -> X {
        let head = X::new().o(b"tag").u(self.minor).u(ops.count);
        head.raw(&ops.x.0)
    }

    /// One operation without a session.
    pub fn alone(&self, number: u32, args: X) -> Results {
        self.send(&self.compound(&Ops::new().op(number, args)))
    }

    pub fn send(&self, args: &X) -> Results {
        let results = send(self.s, self.addr, args);
        self.last_lsn.set(self.s.last_lsn.get());
        results
    }

    /// The operations behind a SEQUENCE with these numbers.
    pub fn in_slot(&self, ops: &Ops, slot: u32, sequence: u32, cache: bool) -> Ops {
        let x = X::new().raw(&self.session).u(sequence).u(slot).u(slot);
        let mut all = Ops::new().op(53, x.u(cache.into()));
        all.count += ops.count;
        all.x = all.x.raw(&ops.x.0);
        all
    }

    /// The next request in the first slot, encoded.
    pub fn next_args(&self, ops: &Ops, cache: bool) -> X {
        let sequence = {
            let mut slots = self.slots.borrow_mut();
            slots[0] += 1;
            slots[0]
        };
        self.compound(&self.in_slot(ops, 0, sequence, cache))
    }

    /// Operations in the session, in the first slot.
    pub fn run(&self, ops: &Ops) -> Results {
        let mut results = self.send(&self.next_args(ops, true));
        results.sequence();
        results
    }

    /// Returns the status of the operations.
    pub fn status(&self, ops: &Ops) -> u32 {
        self.run(ops).status
    }

    pub fn volume(&self) -> Vec<u8> {
        let mut r = self.run(&Ops::new().root().lookup(b"vol1").getfh());
        r.ok(24);
        r.ok(15);
        r.handle()
    }

    /// Opens a file in the volume's root, making it if it is not there: its handle and the open's
    /// stateid.
    pub fn open(&self, name: &[u8], owner: &[u8], shares: (u32, u32)) -> (Vec<u8>, Vec<u8>) {
        let root = self.volume();
        let ops = Ops::new().fh(&root).open(name, owner, shares, Some(0));
        let mut r = self.run(&ops.getfh());
        r.ok(22);
        let state = r.opened();
        (r.handle(), state)
    }

    /// Sends a request that may have to wait, and returns its outcome.
    pub fn begin(&self, args: &X) -> Outcome {
        let record = self.s.from(self.addr).encode(NFS4, 1, args);
        let conn = self.s.conn();
        self.s.service.handle(&conn, &record, self.s.now())
    }
}

/// OPEN of a file in the volume's root that is there.
pub fn open(c: &Client<'_>, name: &[u8], shares: (u32, u32)) -> Ops {
    let root = c.volume();
    Ops::new().fh(&root).open(name, b"o", shares, None)
}

/// Returns `sr_status_flags` for the client, from the reply to SEQUENCE.
pub fn flags(c: &Client<'_>) -> u32 {
    let mut r = c.send(&c.next_args(&Ops::new(), false));
    let r = r.ok(53);
    r.raw(32);
    r.u()
}

//! A client of NFSv4.1 and 4.2 at a server without a network.

use super::{Server, X};
use std::cell::{Cell, RefCell};
use weir_base::Lsn;
use weir_nfs::Outcome;

pub use weir_testclient::compound::*;

pub const NFS4: (u32, u32) = (100_003, 4);

pub fn bitmap(x: X, numbers: &[u32]) -> X {
    x.bitmap(numbers)
}

/// `fattr4` of an ACL: entries of type, flags, mask and name.
pub fn acl(entries: &[(u32, u32, u32, &[u8])]) -> X {
    let x = X::new().u(entries.len() as u32);
    entries.iter().fold(x, |x, (kind, flags, mask, who)| {
        x.u(*kind).u(*flags).u(*mask).o(who)
    })
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

/// Sends the arguments of a COMPOUND.
pub fn send(s: &Server, addr: &str, args: &X) -> Results {
    Results::from_fields(s.from(addr).call(NFS4, 1, args), b"tag")
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
        ops.compound(b"tag", self.minor)
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
        Ops::new().op(53, x.u(cache.into())).and(ops)
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
        self.s.service.handle(&conn, &record, self.s.current_time())
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

//! A process that locks a file, over NLM.

use super::{NLM, R, Server, X};

pub const GRANTED: u32 = 0;
pub const DENIED: u32 = 1;
pub const BLOCKED: u32 = 3;
pub const GRACE_PERIOD: u32 = 4;
pub const DEADLOCK: u32 = 5;
pub const NOLOCKS: u32 = 2;
pub const ROFS: u32 = 6;
pub const STALE: u32 = 7;
pub const FBIG: u32 = 8;
pub const FAILED: u32 = 9;

/// A process of a host that locks `file`.
#[derive(Clone)]
pub struct Locker<'s> {
    pub s: &'s Server,
    pub host: &'static str,
    pub addr: &'static str,
    pub svid: u32,
    pub file: Vec<u8>,
}

impl Locker<'_> {
    pub fn alock(&self, x: X, start: u64, len: u64) -> X {
        let owner = format!("{}@{}", self.svid, self.host);
        x.o(self.host.as_bytes())
            .o(&self.file)
            .o(owner.as_bytes())
            .u(self.svid)
            .h(start)
            .h(len)
    }
    pub fn call(&self, procedure: u32, args: &X) -> R {
        let mut r = self.s.from(self.addr).call(NLM, procedure, args);
        assert_eq!(r.o(), b"cookie");
        r
    }
    pub fn lock_args(
        &self,
        block: bool,
        exclusive: bool,
        start: u64,
        len: u64,
        reclaim: bool,
    ) -> X {
        let head = X::new().o(b"cookie").u(block.into()).u(exclusive.into());
        self.alock(head, start, len).u(reclaim.into()).u(3)
    }
    pub fn lock(&self, block: bool, exclusive: bool, start: u64, len: u64) -> u32 {
        self.call(2, &self.lock_args(block, exclusive, start, len, false))
            .u()
    }
    pub fn reclaim(&self, start: u64, len: u64) -> u32 {
        self.call(2, &self.lock_args(false, true, start, len, true))
            .u()
    }
    pub fn unlock(&self, start: u64, len: u64) -> u32 {
        self.call(4, &self.alock(X::new().o(b"cookie"), start, len))
            .u()
    }
    pub fn cancel(&self, exclusive: bool, start: u64, len: u64) -> u32 {
        let head = X::new().o(b"cookie").u(1).u(exclusive.into());
        self.call(3, &self.alock(head, start, len)).u()
    }
    pub fn test(&self, exclusive: bool, start: u64, len: u64) -> R {
        let head = X::new().o(b"cookie").u(exclusive.into());
        self.call(1, &self.alock(head, start, len))
    }
}

pub fn lockers<'s>(s: &'s Server, file: &[u8]) -> [Locker<'s>; 3] {
    let l = |host, addr, svid| Locker {
        s,
        host,
        addr,
        svid,
        file: file.to_vec(),
    };
    [
        l("alpha", "10.0.0.1", 1),
        l("alpha", "10.0.0.1", 2),
        l("beta", "10.0.0.2", 1),
    ]
}

//! COMPOUNDs of NFSv4.1 and 4.2 (RFC 8881, RFC 7862): operations one by one, and their results.

#![allow(clippy::panic)] // A client of tests fails loudly.

use crate::{Args, Fields, Out};

/// NFS4_OK.
pub const OK: u32 = 0;
/// NFS4ERR_NOENT.
pub const NOENT: u32 = 2;
/// NFS4ERR_ACCESS.
pub const ACCESS: u32 = 13;
/// NFS4ERR_EXIST.
pub const EXIST: u32 = 17;
/// NFS4ERR_INVAL.
pub const INVAL: u32 = 22;
/// NFS4ERR_ROFS.
pub const ROFS: u32 = 30;
/// NFS4ERR_STALE.
pub const STALE: u32 = 70;
/// NFS4ERR_DELAY.
pub const DELAY: u32 = 10_008;
/// NFS4ERR_SAME.
pub const SAME: u32 = 10_009;
/// NFS4ERR_DENIED.
pub const DENIED: u32 = 10_010;
/// NFS4ERR_LOCKED.
pub const LOCKED: u32 = 10_012;
/// NFS4ERR_GRACE.
pub const GRACE: u32 = 10_013;
/// NFS4ERR_SHARE_DENIED.
pub const SHARE_DENIED: u32 = 10_015;
/// NFS4ERR_WRONGSEC.
pub const WRONGSEC: u32 = 10_016;
/// NFS4ERR_MINOR_VERS_MISMATCH.
pub const MINOR_VERS_MISMATCH: u32 = 10_021;
/// NFS4ERR_OLD_STATEID.
pub const OLD_STATEID: u32 = 10_024;
/// NFS4ERR_BAD_STATEID.
pub const BAD_STATEID: u32 = 10_025;
/// NFS4ERR_NOT_SAME.
pub const NOT_SAME: u32 = 10_027;
/// NFS4ERR_NO_GRACE.
pub const NO_GRACE: u32 = 10_033;
/// NFS4ERR_RECLAIM_BAD.
pub const RECLAIM_BAD: u32 = 10_034;
/// NFS4ERR_BADXDR.
pub const BADXDR: u32 = 10_036;
/// NFS4ERR_LOCKS_HELD.
pub const LOCKS_HELD: u32 = 10_037;
/// NFS4ERR_OPENMODE.
pub const OPENMODE: u32 = 10_038;
/// NFS4ERR_OP_ILLEGAL.
pub const OP_ILLEGAL: u32 = 10_044;
/// NFS4ERR_BADSESSION.
pub const BADSESSION: u32 = 10_052;
/// NFS4ERR_SEQ_MISORDERED.
pub const SEQ_MISORDERED: u32 = 10_063;
/// NFS4ERR_REP_TOO_BIG.
pub const REP_TOO_BIG: u32 = 10_066;
/// NFS4ERR_RETRY_UNCACHED_REP.
pub const RETRY_UNCACHED_REP: u32 = 10_068;
/// NFS4ERR_TOO_MANY_OPS.
pub const TOO_MANY_OPS: u32 = 10_070;
/// NFS4ERR_OP_NOT_IN_SESSION.
pub const OP_NOT_IN_SESSION: u32 = 10_071;
/// NFS4ERR_SEQ_FALSE_RETRY.
pub const SEQ_FALSE_RETRY: u32 = 10_076;
/// NFS4ERR_NOT_ONLY_OP.
pub const NOT_ONLY_OP: u32 = 10_081;
/// NFS4ERR_NOXATTR.
pub const NOXATTR: u32 = 10_095;

/// FILE_SYNC4.
pub const STABLE: u32 = 2;
/// UNSTABLE4.
pub const UNSTABLE: u32 = 0;

/// OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_NONE.
pub const READ_WRITE: (u32, u32) = (3, 0);

/// Way of an OPEN to make its file: UNCHECKED4.
pub const UNCHECKED: u32 = 0;
/// Way of an OPEN to make its file: GUARDED4.
pub const GUARDED: u32 = 1;

/// Operations of a COMPOUND under construction, with their count.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    /// Number of operations.
    pub count: u32,
    /// The operations, encoded.
    pub out: Out,
}

impl Ops {
    /// No operations.
    #[must_use]
    pub fn new() -> Ops {
        Ops::default()
    }

    /// Begins an operation; its arguments follow.
    pub fn begin(&mut self, number: u32) -> &mut Out {
        self.count += 1;
        self.out.u32(number)
    }

    /// Appends an operation.
    #[must_use]
    pub fn op(mut self, number: u32, args: Args) -> Ops {
        self.begin(number).0.extend(args.0);
        self
    }

    /// Appends operations.
    #[must_use]
    pub fn and(mut self, more: &Ops) -> Ops {
        self.count += more.count;
        self.out.0.extend(&more.out.0);
        self
    }

    /// The arguments of the COMPOUND.
    #[must_use]
    pub fn compound(&self, tag: &[u8], minor: u32) -> Args {
        Args::new().o(tag).u(minor).u(self.count).raw(&self.out.0)
    }

    /// PUTROOTFH.
    #[must_use]
    pub fn root(self) -> Ops {
        self.op(24, Args::new())
    }

    /// PUTFH.
    #[must_use]
    pub fn fh(self, handle: &[u8]) -> Ops {
        self.op(22, Args::new().o(handle))
    }

    /// SAVEFH.
    #[must_use]
    pub fn save(self) -> Ops {
        self.op(32, Args::new())
    }

    /// GETFH.
    #[must_use]
    pub fn getfh(self) -> Ops {
        self.op(10, Args::new())
    }

    /// LOOKUP.
    #[must_use]
    pub fn lookup(self, name: impl AsRef<[u8]>) -> Ops {
        self.op(15, Args::new().o(name.as_ref()))
    }

    /// GETATTR of the attributes with these numbers.
    #[must_use]
    pub fn getattr(self, numbers: &[u32]) -> Ops {
        self.op(9, Args::new().bitmap(numbers))
    }

    /// REMOVE.
    #[must_use]
    pub fn remove(self, name: impl AsRef<[u8]>) -> Ops {
        self.op(28, Args::new().o(name.as_ref()))
    }

    /// CREATE of a directory with mode 0644.
    #[must_use]
    pub fn mkdir(self, name: impl AsRef<[u8]>) -> Ops {
        let x = Args::new().u(2).o(name.as_ref());
        self.op(6, x.bitmap(&[33]).o(&0o644u32.to_be_bytes()))
    }

    /// SAVEFH and RENAME within the current directory.
    #[must_use]
    pub fn rename(self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Ops {
        let x = Args::new().o(from.as_ref()).o(to.as_ref());
        self.save().op(29, x)
    }

    /// READ.
    #[must_use]
    pub fn read(self, state: &[u8], offset: u64, count: u32) -> Ops {
        self.op(25, Args::new().raw(state).h(offset).u(count))
    }

    /// WRITE with FILE_SYNC4.
    #[must_use]
    pub fn write(self, state: &[u8], offset: u64, data: &[u8]) -> Ops {
        self.write_as(STABLE, state, offset, data)
    }

    /// WRITE with this `stable_how4`.
    #[must_use]
    pub fn write_as(self, stable: u32, state: &[u8], offset: u64, data: &[u8]) -> Ops {
        self.op(38, Args::new().raw(state).h(offset).u(stable).o(data))
    }

    /// OPEN by name, with access and deny; `create`: [`UNCHECKED`] or [`GUARDED`] with mode 0644.
    #[must_use]
    pub fn open(
        self,
        name: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
        shares: (u32, u32),
        create: Option<u32>,
    ) -> Ops {
        let x = opening(owner.as_ref(), shares);
        let x = match create {
            None => x.u(0),
            Some(how) => x.u(1).u(how).bitmap(&[33]).o(&0o644u32.to_be_bytes()),
        };
        self.op(18, x.u(0).o(name.as_ref()))
    }

    /// OPEN of the current file.
    #[must_use]
    pub fn open_fh(self, owner: impl AsRef<[u8]>, shares: (u32, u32)) -> Ops {
        self.op(18, opening(owner.as_ref(), shares).u(0).u(4))
    }

    /// OPEN of the current file, which was open before a restart.
    #[must_use]
    pub fn open_again(self, owner: impl AsRef<[u8]>, shares: (u32, u32)) -> Ops {
        self.op(18, opening(owner.as_ref(), shares).u(0).u(1).u(0))
    }

    /// CLOSE.
    #[must_use]
    pub fn close(self, state: &[u8]) -> Ops {
        self.op(4, Args::new().u(0).raw(state))
    }

    /// LOCK by the open's stateid; the range is offset and length.
    #[must_use]
    pub fn lock(self, kind: u32, range: (u64, u64), open: &[u8], owner: impl AsRef<[u8]>) -> Ops {
        self.op(12, locking(kind, false, range, open, owner.as_ref()))
    }

    /// LOCK by the open's stateid, of what was locked before a restart.
    #[must_use]
    pub fn lock_again(
        self,
        kind: u32,
        range: (u64, u64),
        open: &[u8],
        owner: impl AsRef<[u8]>,
    ) -> Ops {
        self.op(12, locking(kind, true, range, open, owner.as_ref()))
    }

    /// LOCKU.
    #[must_use]
    pub fn locku(self, (offset, length): (u64, u64), state: &[u8]) -> Ops {
        let x = Args::new().u(2).u(0).raw(state).h(offset).h(length);
        self.op(14, x)
    }

    /// RECLAIM_COMPLETE of all that was held before.
    #[must_use]
    pub fn reclaim_complete(self) -> Ops {
        self.op(58, Args::new().u(0))
    }
}

fn opening(owner: &[u8], (access, deny): (u32, u32)) -> Args {
    Args::new().u(0).u(access).u(deny).h(0).o(owner)
}

fn locking(kind: u32, again: bool, range: (u64, u64), open: &[u8], owner: &[u8]) -> Args {
    let x = Args::new().u(kind).u(again.into()).h(range.0).h(range.1);
    x.u(1).u(0).raw(open).u(0).h(0).o(owner)
}

/// Arguments of EXCHANGE_ID.
#[must_use]
pub fn exchange(owner: &[u8], verifier: u64, flags: u32) -> Args {
    Args::new().h(verifier).o(owner).u(flags).u(0).u(0)
}

/// CREATE_SESSION4_FLAG_PERSIST.
pub const PERSISTENT: u32 = 1;
/// CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
pub const BACK_CHANNEL: u32 = 2;

/// Arguments of CREATE_SESSION with so many slots, persistent and with a back channel.
#[must_use]
pub fn creation(client: u64, sequence: u32, slots: u32) -> Args {
    creation_as(PERSISTENT | BACK_CHANNEL, client, sequence, slots)
}

/// Arguments of CREATE_SESSION with these flags and so many slots.
#[must_use]
pub fn creation_as(flags: u32, client: u64, sequence: u32, slots: u32) -> Args {
    let fore = [0, 1_049_620, 1_049_480, 3428, 8, slots, 0];
    let back = [0, 4096, 4096, 0, 2, 16, 0];
    let x = Args::new().h(client).u(sequence).u(flags);
    let x = fore.into_iter().chain(back).fold(x, Args::u);
    x.u(0x4000_0000).u(1).u(0)
}

/// Results of a COMPOUND.
#[derive(Debug)]
pub struct Results {
    /// Status of the last operation that was carried out.
    pub status: u32,
    /// Number of results.
    pub count: u32,
    /// The results.
    pub r: Fields,
}

impl Results {
    /// Takes the head of a reply's results.
    #[must_use]
    pub fn from_fields(mut r: Fields, tag: &[u8]) -> Results {
        let status = r.u();
        assert_eq!(r.o(), tag);
        let count = r.u();
        Results { status, count, r }
    }

    /// Returns the status of the next result, which must be of this operation.
    pub fn next(&mut self, operation: u32) -> u32 {
        assert_eq!(self.r.u(), operation, "another operation");
        self.r.u()
    }

    /// Returns the next result, which must be of this operation and successful.
    pub fn ok(&mut self, operation: u32) -> &mut Fields {
        assert_eq!(self.next(operation), OK, "operation {operation}");
        &mut self.r
    }

    /// Takes the result of a SEQUENCE.
    pub fn sequence(&mut self) {
        self.ok(53).raw(16 + 5 * 4);
    }

    /// Takes the stateid of an OPEN, which comes without a delegation.
    pub fn opened(&mut self) -> Vec<u8> {
        let r = self.ok(18);
        let state = r.raw(16);
        r.raw(20);
        let _flags = r.u();
        let words = r.u() as usize;
        r.raw(4 * words);
        match r.u() {
            0 => {}
            // OPEN_DELEGATE_NONE_EXT: why there is none.
            3 => _ = r.u(),
            delegation => panic!("a delegation: {delegation}"),
        }
        state
    }

    /// Takes the stateid of an OPEN behind a PUTFH.
    #[must_use]
    pub fn tail_open(mut self) -> Vec<u8> {
        self.ok(22);
        self.opened()
    }

    /// Takes the stateid of a LOCK.
    pub fn locked(&mut self) -> Vec<u8> {
        self.ok(12).raw(16)
    }

    /// Takes the handle of a GETFH.
    pub fn handle(&mut self) -> Vec<u8> {
        self.ok(10).o()
    }

    /// Takes the values of the attributes of a GETATTR.
    pub fn attrs(&mut self) -> Fields {
        let r = self.ok(9);
        let words = r.u() as usize;
        r.raw(4 * words);
        Fields(r.o(), 0)
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

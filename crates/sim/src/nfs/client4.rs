//! A client of NFSv4.1 in the simulator: one session with one slot, and what the client believes it
//! has.
//!
//! Encoded from RFC 8881 and RFC 5662, apart from the server's own codec.

use std::net::SocketAddr;

use weir_nfs::{ConnInfo, Later, NFS_PROGRAM, Outcome};
use weir_testclient::compound::{BACK_CHANNEL, creation_as, exchange};
pub use weir_testclient::compound::{
    DELAY, DENIED, GRACE, NO_GRACE, OK, Ops, RECLAIM_BAD, SHARE_DENIED,
};
use weir_testclient::rpc::{call, results};
use weir_testclient::{Args, Caller, DecodeError, In, Out};

use super::server::{Server, block_on};
use crate::machine::Machine;

/// A stateid, with its sequence number (RFC 8881 §3.3.12).
pub type State = [u8; 16];

/// SEQ4_STATUS_RECALLABLE_STATE_REVOKED.
pub const REVOKED: u32 = 0x40;
/// OPEN4_SHARE_ACCESS_WANT_ANY_DELEG.
pub const WANT_ANY: u32 = 0x300;

/// Operation numbers (RFC 8881 §18).
pub mod op {
    pub const CLOSE: u32 = 4;
    pub const DELEGRETURN: u32 = 8;
    pub const LOCK: u32 = 12;
    pub const LOCKU: u32 = 14;
    pub const OPEN: u32 = 18;
    pub const PUTFH: u32 = 22;
    pub const READ: u32 = 25;
    pub const WRITE: u32 = 38;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const FREE_STATEID: u32 = 45;
    pub const SEQUENCE: u32 = 53;
    pub const RECLAIM_COMPLETE: u32 = 58;
}

/// Claim of an OPEN.
#[derive(Clone, Copy)]
pub enum Claim {
    /// A new open of the current file handle.
    File,
    /// An open from before the server's restart, with this kind of delegation
    /// (`open_delegation_type4`).
    Previous(u32),
}

/// A reply, or a request that waits for other clients.
pub enum SendOutcome {
    Reply(Reply),
    Waits(Later),
}

/// Results of a COMPOUND after those of its SEQUENCE.
pub struct Reply {
    pub status: u32,
    /// `sr_status_flags`.
    pub flags: u32,
    pub rest: Vec<u8>,
    /// LSN up to which the log has to be durable before the client gets the reply.
    pub lsn: u64,
}

impl Reply {
    /// Returns the results after those of `before` and the status of `operation`, which succeeded.
    pub fn results_after(&self, before: u32, operation: u32) -> Result<In<'_>, DecodeError> {
        let mut r = In(&self.rest);
        for (number, what) in [(before, "first"), (operation, "second")] {
            if r.u32()? != number || r.u32()? != OK {
                return Err(DecodeError(what));
            }
        }
        Ok(r)
    }
}

/// See the module's head.
pub struct Client {
    pub number: u64,
    conn: ConnInfo,
    id: u64,
    session: State,
    sequence: u32,
    xid: u32,
    /// The last request, and its reply.
    last: Option<(Vec<u8>, Vec<u8>)>,
}

type ClientResult<T> = Result<T, String>;

fn text(why: DecodeError) -> String {
    why.0.to_owned()
}

impl Client {
    pub fn new(number: u64) -> Client {
        Client {
            number,
            conn: Client::connect(number),
            id: 0,
            session: [0; 16],
            sequence: 0,
            xid: 0,
            last: None,
        }
    }

    fn connect(number: u64) -> ConnInfo {
        let peer = SocketAddr::from(([10, 0, 1, number as u8], 900));
        let local = SocketAddr::from(([10, 0, 0, 99], 2049));
        ConnInfo::new(number + 1, peer, local)
    }

    /// The next call, of these operations.
    fn call(&mut self, ops: &Ops) -> Vec<u8> {
        self.xid += 1;
        let mut out = call(self.xid, NFS_PROGRAM, 4, 1, &Caller::default());
        out.0.extend(ops.compound(b"", 2).0);
        out.0
    }

    fn handle(&self, server: &Server, machine: &Machine, message: &[u8]) -> Outcome {
        match server
            .service
            .handle(&self.conn, message, machine.current_time())
        {
            Outcome::Later(later) | Outcome::Held(later) => block_on(later),
            other => other,
        }
    }

    /// The results of a COMPOUND without a session, behind the operation's number.
    fn alone(&mut self, server: &Server, machine: &Machine, ops: &Ops) -> ClientResult<Vec<u8>> {
        let message = self.call(ops);
        let Outcome::Reply(reply, _) = self.handle(server, machine, &message) else {
            return Err("no reply".to_owned());
        };
        let bytes = reply.message();
        let mut r = results(&bytes, self.xid).map_err(text)?;
        let mut decode = || {
            let (status, _tag, _count) = (r.u32()?, r.opaque()?, r.u32()?);
            let _operation = r.u32()?;
            match (status, r.u32()?) {
                (OK, OK) => Ok(r.0.to_vec()),
                _ => Err(DecodeError("a session is refused")),
            }
        };
        decode().map_err(text)
    }

    /// Connects, introduces itself, and makes a session. What it had before stays to be claimed.
    pub fn begin(&mut self, server: &Server, machine: &Machine) -> ClientResult<()> {
        self.conn = Client::connect(self.number);
        let owner = format!("client {}", self.number);
        let ops = Ops::new().op(op::EXCHANGE_ID, exchange(owner.as_bytes(), 1, 0));
        let bytes = self.alone(server, machine, &ops)?;
        let mut r = In(&bytes);
        self.id = r.u64().map_err(text)?;
        let sequence = r.u32().map_err(text)?;
        let ops = Ops::new().op(
            op::CREATE_SESSION,
            creation_as(BACK_CHANNEL, self.id, sequence, 1),
        );
        let bytes = self.alone(server, machine, &ops)?;
        self.session = In(&bytes).fixed().map_err(text)?;
        (self.sequence, self.last) = (0, None);
        Ok(())
    }

    /// Sends operations in the session's slot.
    pub fn send(
        &mut self,
        server: &Server,
        machine: &Machine,
        ops: &Ops,
    ) -> ClientResult<SendOutcome> {
        self.sequence += 1;
        let x = Args::new().raw(&self.session).u(self.sequence);
        let all = Ops::new().op(op::SEQUENCE, x.u(0).u(0).u(1)).and(ops);
        let message = self.call(&all);
        self.last = Some((message.clone(), Vec::new()));
        match self.handle(server, machine, &message) {
            Outcome::Parked(later, ..) => Ok(SendOutcome::Waits(later)),
            handled => self.ended(handled).map(SendOutcome::Reply),
        }
    }

    /// Decodes the outcome of this client's last request.
    pub fn ended(&mut self, handled: Outcome) -> ClientResult<Reply> {
        let Outcome::Reply(reply, lsn) = handled else {
            return Err("no reply".to_owned());
        };
        let bytes = reply.message();
        let mut r = results(&bytes, self.xid).map_err(text)?;
        let mut decode = || {
            let (status, _tag, _count) = (r.u32()?, r.opaque()?, r.u32()?);
            if r.u32()? != op::SEQUENCE {
                return Err(DecodeError("no SEQUENCE"));
            }
            match r.u32()? {
                OK => {}
                // Named, since each of them means something else.
                10_052 => return Err(DecodeError("SEQUENCE: BADSESSION")),
                10_063 => return Err(DecodeError("SEQUENCE: SEQ_MISORDERED")),
                10_008 => return Err(DecodeError("SEQUENCE: DELAY")),
                _ => return Err(DecodeError("SEQUENCE is refused")),
            }
            let session: State = r.fixed()?;
            let (sequence, _slot, _highest, _target) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            if (session, sequence) != (self.session, self.sequence) {
                return Err(DecodeError("a reply to another request"));
            }
            Ok(Reply {
                status,
                flags: r.u32()?,
                rest: r.0.to_vec(),
                lsn: lsn.map_or(0, |lsn| lsn.0),
            })
        };
        let reply = decode().map_err(text)?;
        if let Some(last) = &mut self.last {
            last.1 = bytes;
        }
        Ok(reply)
    }

    /// Sends the last request once more: it must get the same reply, byte by byte.
    pub fn repeat(&mut self, server: &Server, machine: &Machine) -> ClientResult<()> {
        let Some((message, reply)) = &self.last else {
            return Ok(());
        };
        match self.handle(server, machine, message) {
            Outcome::Reply(again, _) if again.message() == *reply => Ok(()),
            Outcome::Reply(..) => Err("another reply to a retransmission".to_owned()),
            _ => Err("no reply to a retransmission".to_owned()),
        }
    }

    /// Adds the owner of this client's opens, or of its locks.
    pub fn owner<'o>(&self, out: &'o mut Out) -> &'o mut Out {
        out.u64(0).opaque(b"owner")
    }

    /// The operations of an OPEN by handle.
    pub fn open(&self, file: &[u8], access: u32, deny: u32, claim: Claim) -> Ops {
        let mut ops = Ops::new().fh(file);
        let out = ops.begin(op::OPEN).u32(0).u32(access).u32(deny);
        self.owner(out).u32(0);
        match claim {
            Claim::File => out.u32(4),
            Claim::Previous(delegation) => out.u32(1).u32(delegation),
        };
        ops
    }

    /// Returns the operations of a LOCK, under an open or under existing locks.
    pub fn lock(
        &self,
        file: &[u8],
        (exclusive, reclaim): (bool, bool),
        (offset, length): (u64, u64),
        open: &State,
        locks: Option<&State>,
    ) -> Ops {
        let mut ops = Ops::new().fh(file);
        let out = ops.begin(op::LOCK).u32(1 + u32::from(exclusive));
        out.bool(reclaim).u64(offset).u64(length);
        match locks {
            Some(locks) => {
                out.bool(false).fixed(locks).u32(0);
            }
            None => {
                out.bool(true).u32(0).fixed(open).u32(0);
                self.owner(out);
            }
        }
        ops
    }

    /// Replies to a call of the server's: that it is done, or will be.
    pub fn obey(&self, server: &Server, machine: &Machine, recall: &Recall) -> ClientResult<()> {
        let mut out = Out::default();
        for word in [recall.xid, 1, 0, 0, 0, 0, OK] {
            out.u32(word);
        }
        out.opaque(b"").u32(2).u32(11).u32(OK);
        out.fixed(&recall.session).u32(recall.sequence);
        out.u32(recall.slot).u32(15).u32(15);
        out.u32(recall.operation).u32(OK);
        let handled = server
            .service
            .handle(&self.conn, &out.0, machine.current_time());
        match handled {
            Outcome::Drop => Ok(()),
            _ => Err("a reply to a reply".to_owned()),
        }
    }
}

/// Reads the results of an OPEN: the open's stateid, and a delegation with its kind.
pub fn opened(r: &mut In<'_>) -> Result<(State, Option<(u32, State)>), DecodeError> {
    let open = r.fixed()?;
    let _change = (r.bool()?, r.u64()?, r.u64()?);
    let _flags = r.u32()?;
    for _ in 0..r.u32()? {
        r.u32()?;
    }
    let given = match r.u32()? {
        kind @ (1 | 2) => Some((kind, r.fixed()?)),
        0 | 3 => None,
        _ => return Err(DecodeError("a delegation of another kind")),
    };
    Ok((open, given))
}

/// A callback, as far as the stories need it.
pub struct Recall {
    xid: u32,
    session: State,
    sequence: u32,
    slot: u32,
    operation: u32,
    /// Stateid of the delegation that is to be returned.
    pub state: State,
}

/// Reads a CB_RECALL from a message to a client; `None` for other callbacks.
pub fn recall(message: &[u8]) -> Result<Option<Recall>, DecodeError> {
    let mut r = In(message);
    let xid = r.u32()?;
    // CALL, version, program, its version, CB_COMPOUND.
    for _ in 0..5 {
        r.u32()?;
    }
    let (_flavour, _credential) = (r.u32()?, r.opaque()?);
    let (_flavour, _verifier) = (r.u32()?, r.opaque()?);
    let (_tag, _minor, _ident, _count) = (r.opaque()?, r.u32()?, r.u32()?, r.u32()?);
    let _cb_sequence = r.u32()?;
    let session = r.fixed()?;
    let (sequence, slot) = (r.u32()?, r.u32()?);
    let _rest = (r.u32()?, r.u32()?, r.u32()?);
    let operation = r.u32()?;
    Ok(match operation {
        4 => Some(Recall {
            xid,
            session,
            sequence,
            slot,
            operation,
            state: r.fixed()?,
        }),
        _ => None,
    })
}

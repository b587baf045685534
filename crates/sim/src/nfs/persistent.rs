//! A client of NFSv4.2 with a persistent session, which sends COMPOUNDs that change names and
//! attributes.

use weir_nfs::Outcome;
use weir_testclient::compound::{Ops, PERSISTENT, creation_as, exchange};
use weir_testclient::rpc::{Caller, call, results};
use weir_testclient::{Args, DecodeError, In, Out};

use super::repeat::{CallOutcome, CheckResult, NAMES};
use super::server::Server;
use crate::machine::Machine;
use crate::rand::Choices;

/// Operation numbers (RFC 8881 §18).
mod op {
    pub const CREATE: u32 = 6;
    pub const LINK: u32 = 11;
    pub const OPEN: u32 = 18;
    pub const PUTFH: u32 = 22;
    pub const REMOVE: u32 = 28;
    pub const RENAME: u32 = 29;
    pub const SAVEFH: u32 = 32;
    pub const SETATTR: u32 = 34;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const SEQUENCE: u32 = 53;
}

/// Bytes of a handle.
const HANDLE: usize = 32;

/// The operations of a request behind SEQUENCE.
#[derive(Clone, Default)]
pub struct Compound {
    ops: Ops,
    /// The last one returns the handle of what was made.
    makes: bool,
}

/// `fattr4` with a mode.
fn mode(out: &mut Out, mode: u32) {
    out.u32(2).u32(0).u32(1 << 1).opaque(&mode.to_be_bytes());
}

impl From<Ops> for Compound {
    fn from(ops: Ops) -> Compound {
        Compound { ops, makes: false }
    }
}

impl Compound {
    fn op(&mut self, number: u32) -> &mut Out {
        self.ops.begin(number)
    }

    fn from_handle(handle: &[u8]) -> Compound {
        Compound::from(Ops::new().fh(handle))
    }

    fn making(mut self) -> Compound {
        self.ops = self.ops.getfh();
        self.makes = true;
        self
    }

    /// OPEN of a name for reading and writing, up to where the way of creating it follows.
    fn open(root: &[u8]) -> Compound {
        let mut new = Compound::from_handle(root);
        new.op(op::OPEN).u32(0).u32(3).u32(0).u64(0).opaque(b"o");
        new.ops.out.u32(1);
        new
    }

    /// Any change, in `root` or of the file `target`, which is never removed.
    pub fn random(choices: &Choices, verifier: u32, root: &[u8], target: &[u8]) -> Compound {
        let name = || choices.pick(&NAMES).as_bytes();
        let bits = choices.below(0o1000) as u32;
        match choices.below(9) {
            0 => {
                // GUARDED4: a second execution would fail.
                let mut new = Compound::open(root);
                mode(new.ops.out.u32(1), bits);
                new.ops.out.u32(0).opaque(name());
                new.making()
            }
            1 => {
                // EXCLUSIVE4_1.
                let mut new = Compound::open(root);
                mode(new.ops.out.u32(3).u64(verifier.into()), bits);
                new.ops.out.u32(0).opaque(name());
                new.making()
            }
            2 => {
                // UNCHECKED4 with the size 0: makes the file, or cuts it.
                let mut new = Compound::open(root);
                new.ops.out.u32(0).u32(1).u32(1 << 4).opaque(&[0; 8]);
                new.ops.out.u32(0).opaque(name());
                new.making()
            }
            3 => {
                let mut new = Compound::from_handle(root);
                mode(new.op(op::CREATE).u32(2).opaque(name()), bits);
                new.making()
            }
            4 => {
                let mut new = Compound::from_handle(root);
                let link = new.op(op::CREATE).u32(5).opaque(b"target");
                mode(link.opaque(name()), bits);
                new.making()
            }
            5 => {
                let mut new = Compound::from_handle(root);
                new.op(op::REMOVE).opaque(name());
                new
            }
            6 => {
                let mut new = Compound::from_handle(root);
                new.op(op::SAVEFH);
                new.op(op::RENAME).opaque(name()).opaque(name());
                new
            }
            7 => {
                let mut new = Compound::from_handle(target);
                new.op(op::SAVEFH);
                new.op(op::PUTFH).opaque(root);
                new.op(op::LINK).opaque(name());
                new
            }
            _ => {
                let mut new = Compound::from_handle(target);
                mode(new.op(op::SETATTR).fixed(&[0; 16]), bits);
                new
            }
        }
    }

    /// The call with these operations.
    fn call(&self) -> Vec<u8> {
        let mut out = call(1, weir_nfs::NFS_PROGRAM, 4, 1, &Caller::default());
        out.0.extend(self.ops.compound(b"", 2).0);
        out.0
    }
}

/// A persistent session, of which the first slot is used.
pub struct Session {
    id: Vec<u8>,
    sequence: u32,
}

fn send_message(server: &Server, machine: &Machine, message: &[u8]) -> CheckResult<(Vec<u8>, u64)> {
    let Outcome::Reply(reply, lsn) = server.handle(message, machine.current_time()) else {
        return Err("no reply".into());
    };
    let bytes = reply.message();
    let rest = results(&bytes, 1).map_err(|e| e.0.to_owned())?;
    Ok((rest.0.to_vec(), lsn.map_or(0, |lsn| lsn.0)))
}

impl Session {
    /// NFS4ERR_BADSESSION: the session has ended, and the request was not carried out over it.
    pub const ENDED: u32 = 10_052;

    /// A new session, in a new life of the server.
    ///
    /// # Errors
    /// What the server refused.
    pub fn begin(server: &Server, machine: &Machine) -> CheckResult<Session> {
        // Status, tag, count, then operation and status of the result.
        const HEAD: usize = 5 * 4;
        let alone = |compound: &Compound| -> CheckResult<Vec<u8>> {
            let (bytes, _) = send_message(server, machine, &compound.call())?;
            match bytes.get(..4) {
                Some([0, 0, 0, 0]) => Ok(bytes.get(HEAD..).unwrap_or_default().to_vec()),
                status => Err(format!("no session: {status:?}")),
            }
        };
        let introduce = Ops::new().op(op::EXCHANGE_ID, exchange(b"client", 1, 0));
        let introduced = alone(&introduce.into())?;
        let mut r = In(&introduced);
        let text = |e: DecodeError| e.0.to_owned();
        let (id, sequence) = (r.u64().map_err(text)?, r.u32().map_err(text)?);
        let create = Ops::new().op(op::CREATE_SESSION, creation_as(PERSISTENT, id, sequence, 1));
        let created = alone(&create.into())?;
        let mut session = Session {
            id: created.get(..16).unwrap_or_default().to_vec(),
            sequence: 0,
        };
        if created.get(20..24) != Some(&[0, 0, 0, 1]) {
            return Err("the session is not persistent".into());
        }
        let complete = Compound::from(Ops::new().reclaim_complete());
        let message = session.message(&complete);
        match session.send(server, machine, &message, &complete)? {
            (0, ..) => Ok(session),
            (status, ..) => Err(format!("RECLAIM_COMPLETE: status {status}")),
        }
    }

    /// The next request of the session.
    pub fn message(&mut self, compound: &Compound) -> Vec<u8> {
        self.sequence += 1;
        let x = Args::new().raw(&self.id).u(self.sequence);
        let all = Ops::new().op(op::SEQUENCE, x.u(0).u(0).u(1));
        Compound::from(all.and(&compound.ops)).call()
    }

    /// Sends a request of this session or of an earlier one.
    ///
    /// # Errors
    /// A reply that is none.
    pub fn send(
        &self,
        server: &Server,
        machine: &Machine,
        message: &[u8],
        compound: &Compound,
    ) -> CheckResult<CallOutcome> {
        let (bytes, lsn) = send_message(server, machine, message)?;
        let status = bytes.first_chunk().map(|b| u32::from_be_bytes(*b));
        let status = status.ok_or("an empty reply")?;
        let handle = match compound.makes && status == 0 {
            // The last result.
            true => bytes.last_chunk::<HANDLE>().map(|h| h.to_vec()),
            false => None,
        };
        Ok((status, handle, lsn))
    }
}

//! A client id with its sessions: made before a measurement, ended after it.
//!
//! A client has two sessions: one for what comes before and after the load, whose slots [`Control`]
//! uses, and one for the load, whose slots are dealt out to the connections once and for all. The
//! numbers in the slots are then known to one thread each, and nothing is shared or locked; a pool
//! of slots over all connections, as Linux has it, admits the same number of calls.

use super::results::{self, MAX_OPAQUE};
use super::{Session, VERSION, op};
use crate::clock;
use crate::control::{Control, Verdict};
use crate::error::BenchError;
use crate::nfs3::{Handle, NFS_PROGRAM};
use crate::rpc::{self, CallPrefix, Credential};
use crate::wire::Id;
use crate::xdr::{Reader, XdrError, put_opaque, put_u32, put_u64};
use std::sync::Arc;

/// Slots of the session for what is not measured.
const SLOTS: u32 = 64;
/// Most slots that a session of the load asks for; Linux's own limit (`NFS4_MAX_SLOT_TABLE`).
pub const MAX_SLOTS: u32 = 1024;
/// Longest reply that is asked to be kept, and most operations of a COMPOUND, as Linux asks.
const CACHED: u32 = 3428;
const MAX_OPS: u32 = 8;
/// Room for what surrounds the data of a READ or WRITE.
const AROUND: u64 = 1044;
/// OPENs and CLOSEs in flight while the working set is opened or closed.
const WINDOW: usize = 32;

/// A client id (RFC 8881 §18.35).
pub struct Client {
    prefix: CallPrefix,
    cred: Credential,
    minor: u32,
    id: u64,
    /// Number of the next CREATE_SESSION.
    sequence: u32,
    /// Greatest READ or WRITE, in bytes.
    block: u64,
    sessions: Vec<[u8; 16]>,
}

impl Client {
    /// A new client with its first session, which `control` uses from now on. `block`: bytes of the
    /// greatest READ or WRITE; `number`: of the client in this run.
    pub fn begin(
        control: &mut Control,
        cred: &Credential,
        minor: u32,
        block: u64,
        number: u32,
    ) -> Result<(Self, Arc<Session>), BenchError> {
        let now = clock::now_ns();
        // Unique on this machine; on a network, as unique as the clocks are.
        let owner = format!("weir-bench {} {number} {now}", std::process::id());
        let mut client = Self {
            prefix: CallPrefix::new(NFS_PROGRAM, VERSION, 1, Some(cred)),
            cred: cred.clone(),
            minor,
            id: 0,
            sequence: 0,
            block,
            sessions: Vec::new(),
        };
        (client.id, client.sequence) = client.alone(
            control,
            ("EXCHANGE_ID", op::EXCHANGE_ID),
            |o| {
                put_u64(o, now);
                put_opaque(o, owner.as_bytes());
                // No flags, SP4_NONE, no implementation id.
                for v in [0, 0, 0] {
                    put_u32(o, v);
                }
            },
            exchanged,
        )?;
        let session = client.session(control, SLOTS)?;
        control.speak(session.clone(), session.slots());
        control.one(
            "RECLAIM_COMPLETE",
            |_, o, id| session.reclaim_complete(o, id),
            |r| results::ok(r, op::RECLAIM_COMPLETE),
        )?;
        Ok((client, session))
    }

    /// A further session, of as many slots as the server grants of those asked for.
    pub fn session(
        &mut self,
        control: &mut Control,
        slots: u32,
    ) -> Result<Arc<Session>, BenchError> {
        let size = u32::try_from(self.block.max(1 << 20) + AROUND).unwrap_or(u32::MAX);
        let (id, [_, request, reply, _, operations, granted]) = self.alone(
            control,
            ("CREATE_SESSION", op::CREATE_SESSION),
            |o| {
                put_u64(o, self.id);
                put_u32(o, self.sequence);
                put_u32(o, 0);
                for v in [0, size, size, CACHED, MAX_OPS, slots, 0] {
                    put_u32(o, v);
                }
                for v in [0, 4096, 4096, 0, 2, 1, 0] {
                    put_u32(o, v);
                }
                // The program of callbacks, which AUTH_NONE would do for.
                for v in [0x4000_0000, 1, 0] {
                    put_u32(o, v);
                }
            },
            |r| {
                let mut id = [0; 16];
                id.copy_from_slice(r.fixed(16)?);
                // Sequence number and flags.
                r.fixed(8)?;
                let fore = channel(r)?;
                channel(r)?;
                Ok((id, fore))
            },
        )?;
        if operations < MAX_OPS || u64::from(request.min(reply)) < self.block {
            return Err(BenchError::Usage(format!(
                "the server grants {operations} operations a COMPOUND and {} bytes a call",
                request.min(reply)
            )));
        }
        if granted == 0 {
            return Err(BenchError::Protocol("a session without slots".into()));
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.sessions.push(id);
        let slots = granted.min(slots);
        let session = Session::new(Some(&self.cred), self.minor, self.id, id, slots);
        Ok(Arc::new(session))
    }

    /// Ends the client and its sessions. No file may be open.
    pub fn end(self, control: &mut Control) -> Result<(), BenchError> {
        for id in self.sessions.iter().rev() {
            self.alone(
                control,
                ("DESTROY_SESSION", op::DESTROY_SESSION),
                |o| o.extend_from_slice(id),
                |_| Ok(()),
            )?;
        }
        self.alone(
            control,
            ("DESTROY_CLIENTID", op::DESTROY_CLIENTID),
            |o| put_u64(o, self.id),
            |_| Ok(()),
        )
    }

    /// Makes a COMPOUND of one operation, outside any session.
    fn alone<T>(
        &self,
        control: &mut Control,
        (what, operation): (&'static str, u32),
        arguments: impl Fn(&mut Vec<u8>),
        results: impl Fn(&mut Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, BenchError> {
        control.call(
            |out, xid| {
                let start = self.prefix.begin(out, xid);
                for v in [0, self.minor, 1, operation] {
                    put_u32(out, v);
                }
                arguments(out);
                rpc::finish(out, start, 0);
            },
            |r| {
                let status = r.u32()?;
                if status != 0 {
                    return Err(BenchError::Status(what, status));
                }
                r.opaque(MAX_OPAQUE)?;
                r.u32()?;
                results::ok(r, operation)?;
                Ok(results(r)?)
            },
        )
    }
}

/// Takes EXCHANGE_ID's results: the client id, and the number of the first CREATE_SESSION.
fn exchanged(r: &mut Reader<'_>) -> Result<(u64, u32), XdrError> {
    let answer = (r.u64()?, r.u32()?);
    r.u32()?;
    match r.u32()? {
        0 => {}
        found => {
            return Err(XdrError::Unexpected {
                what: "state protection that was not asked for",
                found,
            });
        }
    }
    // Server owner, scope, implementation id.
    r.u64()?;
    r.opaque(MAX_OPAQUE)?;
    r.opaque(MAX_OPAQUE)?;
    if r.bool()? {
        r.opaque(MAX_OPAQUE)?;
        r.opaque(MAX_OPAQUE)?;
        r.fixed(12)?;
    }
    Ok(answer)
}

/// Takes channel_attrs4: header padding, request, reply, cached reply, operations, slots.
fn channel(r: &mut Reader<'_>) -> Result<[u32; 6], XdrError> {
    let mut values = [0; 6];
    for value in &mut values {
        *value = r.u32()?;
    }
    if r.bool()? {
        r.u32()?;
    }
    Ok(values)
}

/// NULL of version 4: whether a server replies at all.
pub fn null(control: &mut Control, cred: &Credential) -> Result<(), BenchError> {
    let prefix = CallPrefix::new(NFS_PROGRAM, VERSION, 0, Some(cred));
    control.call(
        |out, xid| {
            let start = prefix.begin(out, xid);
            rpc::finish(out, start, 0);
        },
        |_| Ok(()),
    )
}

/// Opens `files` for reading and writing, on the session that `control` uses.
pub fn open_all(
    control: &mut Control,
    session: &Session,
    files: &[Handle],
) -> Result<Vec<Handle>, BenchError> {
    let mut opened = files.to_vec();
    let file = |n: u64| files.get(n as usize).copied().unwrap_or(Handle::empty());
    control.many(
        files.len() as u64,
        WINDOW,
        |_, out, n, id| session.open(out, id, &file(n)),
        |n, status, r| {
            if status != 0 {
                return Err(BenchError::Status("OPEN", status));
            }
            let state = results::opened(r)?;
            if let Some(place) = opened.get_mut(n as usize) {
                *place = place.opened(state);
            }
            Ok(Verdict::Done)
        },
    )?;
    Ok(opened)
}

/// Closes what [`open_all`] opened.
pub fn close_all(control: &mut Control, files: &[Handle]) -> Result<(), BenchError> {
    let file = |n: u64| files.get(n as usize).copied().unwrap_or(Handle::empty());
    control.many(
        files.len() as u64,
        WINDOW,
        |wire, out, n, id| wire.close(out, id, &file(n)),
        |_, status, _| match status {
            0 => Ok(Verdict::Done),
            s => Err(BenchError::Status("CLOSE", s)),
        },
    )
}

/// The root of an export: a walk from the server's root by the names of the path.
pub fn walk(control: &mut Control, export: &str) -> Result<Handle, BenchError> {
    let mut dir = Handle::empty();
    for name in export.split('/').filter(|name| !name.is_empty()) {
        dir = control
            .lookup(&dir, name.as_bytes())?
            .ok_or(BenchError::Status("LOOKUP", crate::nfs3::NOENT))?;
    }
    match dir.is_empty() {
        false => Ok(dir),
        true => Err(BenchError::Usage("--export names no directory".into())),
    }
}

impl Session {
    fn reclaim_complete(&self, out: &mut Vec<u8>, id: Id) {
        self.compound(out, id, (1, true), 0, |o| {
            put_u32(o, op::RECLAIM_COMPLETE);
            put_u32(o, 0);
        });
    }
}

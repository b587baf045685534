//! A blocking client for what happens before and after the measured load:
//! MOUNT, making and removing the working set, filling it.
//!
//! Calls are pipelined within a window, so that filling a gigabyte or making
//! 30,000 files costs seconds, but everything is on one connection and in order
//! of need, not of speed: the measured load uses [`crate::engine`] instead.

use crate::error::BenchError;
use crate::interrupt;
use crate::nfs3::{self};
use crate::nfs3::{Calls, Fsinfo, Handle, MOUNT_PROGRAM, Proc, VERSION};
use crate::rpc::{self, CallPrefix, Credential, LAST_FRAGMENT};
use crate::wire::{Id, Turn, Wire};
use crate::xdr::{Reader, put_opaque, put_u32};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const MAX_RECORD: usize = 4 << 20;
const JUKEBOX_PAUSE: Duration = Duration::from_millis(50);
/// Most calls in flight.
const MAX_WINDOW: u32 = 64;

/// One blocking RPC connection.
pub struct Control {
    stream: TcpStream,
    wire: Arc<dyn Wire>,
    /// The session's slots that no call is in flight on.
    free: Vec<Turn>,
    xid: u32,
    out: Vec<u8>,
    record: Vec<u8>,
}

/// Reaction of [`Control::many`] to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is done.
    Done,
    /// Send it again after a pause.
    Again,
}

impl Control {
    /// Connects; no call may take longer than `timeout`.
    pub fn connect(
        addr: SocketAddr,
        cred: Option<&Credential>,
        xid: u32,
        timeout: Duration,
    ) -> Result<Self, BenchError> {
        let stream = TcpStream::connect_timeout(&addr, timeout)
            .map_err(BenchError::io(format!("connect to {addr}")))?;
        Self::from_stream(stream, cred, xid, timeout)
    }

    /// As [`Control::connect`], over a connection that exists.
    pub fn from_stream(
        stream: TcpStream,
        cred: Option<&Credential>,
        xid: u32,
        timeout: Duration,
    ) -> Result<Self, BenchError> {
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(timeout)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)))
            .map_err(BenchError::io("socket options"))?;
        let mut control = Self {
            stream,
            wire: Arc::new(Calls::new(cred)),
            free: Vec::new(),
            xid,
            out: Vec::new(),
            record: Vec::new(),
        };
        control.speak(control.wire.clone(), u32::from(u16::MAX));
        Ok(control)
    }

    /// Goes on in this protocol, with so many calls in flight at most: the slots of a session that
    /// nothing was called on.
    pub fn speak(&mut self, wire: Arc<dyn Wire>, slots: u32) {
        self.wire = wire;
        let slot = |slot| Turn { slot, sequence: 0 };
        self.free = (0..slots.min(MAX_WINDOW)).rev().map(slot).collect();
    }

    /// Returns the encoding of calls: NFSv3's until [`Control::speak`].
    pub fn wire(&self) -> Arc<dyn Wire> {
        self.wire.clone()
    }

    /// The next call's place, on a free slot.
    fn next_turn(&mut self) -> Result<Turn, BenchError> {
        let mut turn = self
            .free
            .pop()
            .ok_or_else(|| BenchError::Usage("more calls than slots".into()))?;
        turn.sequence += 1;
        Ok(turn)
    }

    /// A call's slot is free again. Its number counts if the server carried it out.
    fn release(&mut self, mut turn: Turn, sequenced: bool) {
        turn.sequence -= u32::from(!sequenced);
        self.free.push(turn);
    }

    fn send(&mut self) -> Result<(), BenchError> {
        self.stream
            .write_all(&self.out)
            .map_err(BenchError::io("send"))?;
        self.out.clear();
        Ok(())
    }

    /// Receives one record into `self.record`.
    fn receive(&mut self) -> Result<(), BenchError> {
        self.record.clear();
        loop {
            let mut mark = [0; 4];
            self.stream
                .read_exact(&mut mark)
                .map_err(BenchError::io("receive"))?;
            let mark = u32::from_be_bytes(mark);
            let len = (mark & !LAST_FRAGMENT) as usize;
            let start = self.record.len();
            if start + len > MAX_RECORD {
                return Err(BenchError::Protocol(format!("record of {len} bytes")));
            }
            self.record.resize(start + len, 0);
            if let Some(tail) = self.record.get_mut(start..) {
                self.stream
                    .read_exact(tail)
                    .map_err(BenchError::io("receive"))?;
            }
            if mark & LAST_FRAGMENT != 0 {
                return Ok(());
            }
        }
    }

    /// Makes one call, whatever its results begin with; `encode` gets the XID.
    pub fn call<T>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, u32),
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        self.xid = self.xid.wrapping_add(1);
        encode(&mut self.out, self.xid);
        self.send()?;
        self.receive()?;
        let mut r = Reader::new(&self.record);
        let xid = r.u32()?;
        if xid != self.xid {
            return Err(BenchError::Protocol(format!(
                "reply to XID {xid:#x} instead of {:#x}",
                self.xid
            )));
        }
        rpc::accept(&mut r)?;
        decode(&mut r)
    }

    /// Makes one call with results that begin with a status; returns what `decode` makes of
    /// the results behind it.
    pub fn one<T>(
        &mut self,
        what: &'static str,
        encode: impl Fn(&dyn Wire, &mut Vec<u8>, Id),
        decode: impl Fn(&mut Reader<'_>) -> Result<T, crate::xdr::XdrError>,
    ) -> Result<T, BenchError> {
        loop {
            let turn = self.next_turn()?;
            let wire = self.wire.clone();
            let called = self.call(
                |out, xid| encode(&*wire, out, Id { xid, turn }),
                |r| {
                    let head = wire.head(r, turn)?;
                    if head.status != 0 {
                        return Ok((head, None));
                    }
                    let value = decode(r)?;
                    if !r.rest().is_empty() {
                        return Err(BenchError::Protocol(format!(
                            "{} bytes behind the results of {what}",
                            r.rest().len()
                        )));
                    }
                    Ok((head, Some(value)))
                },
            );
            self.release(turn, called.as_ref().is_ok_and(|(head, _)| head.sequenced));
            let (head, value) = called?;
            match value {
                Some(value) => return Ok(value),
                None if wire.again(head.status) => std::thread::sleep(JUKEBOX_PAUSE),
                None => return Err(BenchError::Status(what, head.status)),
            }
        }
    }

    /// Makes `count` calls, `window` of them in flight. `encode` gets the call's
    /// number and id; `reply` gets its number, status and results.
    pub fn many(
        &mut self,
        count: u64,
        window: usize,
        mut encode: impl FnMut(&dyn Wire, &mut Vec<u8>, u64, Id),
        mut reply: impl FnMut(u64, u32, &mut Reader<'_>) -> Result<Verdict, BenchError>,
    ) -> Result<(), BenchError> {
        let wire = self.wire.clone();
        let window = window.min(self.free.len());
        let mut flying: HashMap<u32, (u64, Turn)> = HashMap::with_capacity(window);
        let mut next = 0;
        let mut again = Vec::new();
        loop {
            while flying.len() < window {
                let number = match again.pop() {
                    Some(n) => n,
                    None if next < count => {
                        next += 1;
                        next - 1
                    }
                    None => break,
                };
                self.xid = self.xid.wrapping_add(1);
                let id = Id {
                    xid: self.xid,
                    turn: self.next_turn()?,
                };
                encode(&*wire, &mut self.out, number, id);
                flying.insert(id.xid, (number, id.turn));
            }
            self.send()?;
            if interrupt::requested() {
                return Err(BenchError::Interrupted);
            }
            if flying.is_empty() {
                return Ok(());
            }
            // Half a window at a time keeps the server busy and the calls batched.
            for _ in 0..flying.len().div_ceil(2) {
                self.receive()?;
                let mut r = Reader::new(&self.record);
                let xid = r.u32()?;
                let Some((number, turn)) = flying.remove(&xid) else {
                    return Err(BenchError::Protocol(format!("reply to no call: {xid:#x}")));
                };
                rpc::accept(&mut r)?;
                let head = wire.head(&mut r, turn)?;
                let verdict = if wire.again(head.status) {
                    Verdict::Again
                } else {
                    reply(number, head.status, &mut r)?
                };
                self.release(turn, head.sequenced);
                if verdict == Verdict::Again {
                    std::thread::sleep(JUKEBOX_PAUSE);
                    again.push(number);
                }
            }
        }
    }

    /// FSINFO of the export.
    pub fn fsinfo(&mut self, root: &Handle) -> Result<Fsinfo, BenchError> {
        let wire = self.wire();
        self.one(
            "FSINFO",
            |c, out, id| c.of_handle(out, id, Proc::Fsinfo, root),
            |r| wire.fsinfo(r),
        )
    }

    /// FSSTAT of the export: the bytes free for the caller.
    pub fn fsstat(&mut self, root: &Handle) -> Result<u64, BenchError> {
        let wire = self.wire();
        self.one(
            "FSSTAT",
            |c, out, id| c.of_handle(out, id, Proc::Fsstat, root),
            |r| wire.fsstat(r),
        )
    }

    /// NULL: whether a server of this version replies at all.
    pub fn null(&mut self) -> Result<(), BenchError> {
        let (wire, turn) = (self.wire(), Turn::default());
        self.call(|out, xid| wire.null(out, Id { xid, turn }), |_| Ok(()))
    }

    /// LOOKUP; `None` when there is no such name.
    pub fn lookup(&mut self, dir: &Handle, name: &[u8]) -> Result<Option<Handle>, BenchError> {
        let wire = self.wire();
        let found = self.one(
            "LOOKUP",
            |c, out, id| c.of_name(out, id, Proc::Lookup, dir, name),
            |r| wire.found(r),
        );
        match found {
            Ok(fh) => Ok(Some(fh)),
            Err(BenchError::Status(_, nfs3::NOENT)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// MKDIR, or LOOKUP of what exists there already.
    pub fn directory(&mut self, dir: &Handle, name: &[u8]) -> Result<Handle, BenchError> {
        let wire = self.wire();
        let made = self.one(
            "MKDIR",
            |c, out, id| c.mkdir(out, id, dir, name),
            |r| wire.made_directory(r),
        );
        match made {
            Ok(Some(fh)) => return Ok(fh),
            Ok(None) | Err(BenchError::Status(_, nfs3::EXIST)) => {}
            Err(e) => return Err(e),
        }
        self.lookup(dir, name)?
            .ok_or(BenchError::Status("LOOKUP", nfs3::NOENT))
    }

    /// MNT: the handle of an export's root.
    pub fn mount(&mut self, export: &str, cred: Option<&Credential>) -> Result<Handle, BenchError> {
        let prefix = CallPrefix::new(MOUNT_PROGRAM, VERSION, 1, cred);
        self.one(
            "MNT",
            |_, out, id| {
                let start = prefix.begin(out, id.xid);
                put_opaque(out, export.as_bytes());
                rpc::finish(out, start, 0);
            },
            nfs3::mounted,
        )
    }
}

/// Asks the rpcbind at `addr` for a program's TCP port (portmapper version 2,
/// PMAPPROC_GETPORT, RFC 1833 §3).
pub fn rpcbind_port(addr: SocketAddr, program: u32, timeout: Duration) -> Result<u16, BenchError> {
    let mut control = Control::connect(addr, None, 0x77_0000, timeout)?;
    let prefix = CallPrefix::new(100_000, 2, 3, None);
    let port = control.call(
        |out, xid| {
            let start = prefix.begin(out, xid);
            for v in [program, VERSION, 6, 0] {
                put_u32(out, v);
            }
            rpc::finish(out, start, 0);
        },
        |r| Ok(r.u32()?),
    )?;
    match u16::try_from(port) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(BenchError::Protocol(format!(
            "rpcbind at {addr} knows no TCP port of program {program}"
        ))),
    }
}

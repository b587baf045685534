//! A blocking client for what happens before and after the measured load:
//! MOUNT, making and removing the working set, filling it.
//!
//! Calls are pipelined within a window, so that filling a gigabyte or making
//! 30,000 files costs seconds, but everything is on one connection and in order
//! of need, not of speed: the measured load uses [`crate::engine`] instead.

use crate::error::BenchError;
use crate::interrupt;
use crate::nfs3::{self};
use crate::nfs3::{Calls, Fsinfo, Handle, JUKEBOX, MOUNT_PROGRAM, Proc, VERSION};
use crate::rpc::{self, CallPrefix, Credential, LAST_FRAGMENT};
use crate::xdr::{Reader, put_opaque, put_u32};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const MAX_RECORD: usize = 4 << 20;
const JUKEBOX_PAUSE: Duration = Duration::from_millis(50);

/// One blocking RPC connection.
pub struct Control {
    stream: TcpStream,
    calls: Calls,
    xid: u32,
    out: Vec<u8>,
    record: Vec<u8>,
}

/// What [`Control::many`] does with a reply.
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
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(timeout)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)))
            .map_err(BenchError::io("socket options"))?;
        Ok(Self {
            stream,
            calls: Calls::new(cred),
            xid,
            out: Vec::new(),
            record: Vec::new(),
        })
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

    /// Makes one call with results that begin with a status; returns what `decode` makes of
    /// the results behind it.
    pub fn one<T>(
        &mut self,
        what: &'static str,
        encode: impl Fn(&Calls, &mut Vec<u8>, u32),
        decode: impl Fn(&mut Reader<'_>) -> Result<T, crate::xdr::XdrError>,
    ) -> Result<T, BenchError> {
        loop {
            self.xid = self.xid.wrapping_add(1);
            encode(&self.calls, &mut self.out, self.xid);
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
            match r.u32()? {
                0 => {
                    let value = decode(&mut r)?;
                    if !r.rest().is_empty() {
                        return Err(BenchError::Protocol(format!(
                            "{} bytes behind the results of {what}",
                            r.rest().len()
                        )));
                    }
                    return Ok(value);
                }
                JUKEBOX => std::thread::sleep(JUKEBOX_PAUSE),
                status => return Err(BenchError::Status(what, status)),
            }
        }
    }

    /// Makes `count` calls, `window` of them in flight. `encode` gets the call's
    /// number and XID; `reply` gets its number, status and results.
    pub fn many(
        &mut self,
        count: u64,
        window: usize,
        mut encode: impl FnMut(&Calls, &mut Vec<u8>, u64, u32),
        mut reply: impl FnMut(u64, u32, &mut Reader<'_>) -> Result<Verdict, BenchError>,
    ) -> Result<(), BenchError> {
        let mut flying: HashMap<u32, u64> = HashMap::with_capacity(window);
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
                encode(&self.calls, &mut self.out, number, self.xid);
                flying.insert(self.xid, number);
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
                let Some(number) = flying.remove(&xid) else {
                    return Err(BenchError::Protocol(format!("reply to no call: {xid:#x}")));
                };
                rpc::accept(&mut r)?;
                let status = r.u32()?;
                let verdict = if status == JUKEBOX {
                    Verdict::Again
                } else {
                    reply(number, status, &mut r)?
                };
                if verdict == Verdict::Again {
                    std::thread::sleep(JUKEBOX_PAUSE);
                    again.push(number);
                }
            }
        }
    }

    /// FSINFO of the export.
    pub fn fsinfo(&mut self, root: &Handle) -> Result<Fsinfo, BenchError> {
        self.one(
            "FSINFO",
            |c, out, xid| c.of_handle(out, xid, Proc::Fsinfo, root),
            nfs3::fsinfo,
        )
    }

    /// FSSTAT of the export: the bytes free for the caller.
    pub fn fsstat(&mut self, root: &Handle) -> Result<u64, BenchError> {
        self.one(
            "FSSTAT",
            |c, out, xid| c.of_handle(out, xid, Proc::Fsstat, root),
            nfs3::fsstat,
        )
    }

    /// NULL: whether an NFSv3 server replies at all.
    pub fn null(&mut self) -> Result<(), BenchError> {
        self.xid = self.xid.wrapping_add(1);
        self.calls.null(&mut self.out, self.xid);
        self.send()?;
        self.receive()?;
        let mut r = Reader::new(&self.record);
        if r.u32()? != self.xid {
            return Err(BenchError::Protocol("reply to another call".into()));
        }
        Ok(rpc::accept(&mut r)?)
    }

    /// LOOKUP; `None` when there is no such name.
    pub fn lookup(&mut self, dir: &Handle, name: &[u8]) -> Result<Option<Handle>, BenchError> {
        let found = self.one(
            "LOOKUP",
            |c, out, xid| c.of_name(out, xid, Proc::Lookup, dir, name),
            nfs3::found,
        );
        match found {
            Ok(fh) => Ok(Some(fh)),
            Err(BenchError::Status(_, nfs3::NOENT)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// MKDIR, or LOOKUP of what exists there already.
    pub fn directory(&mut self, dir: &Handle, name: &[u8]) -> Result<Handle, BenchError> {
        let made = self.one(
            "MKDIR",
            |c, out, xid| c.mkdir(out, xid, dir, name),
            nfs3::created,
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
            |_, out, xid| {
                let start = prefix.begin(out, xid);
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
    control.xid = control.xid.wrapping_add(1);
    let start = prefix.begin(&mut control.out, control.xid);
    for v in [program, VERSION, 6, 0] {
        put_u32(&mut control.out, v);
    }
    rpc::finish(&mut control.out, start, 0);
    control.send()?;
    control.receive()?;
    let mut r = Reader::new(&control.record);
    r.u32()?;
    rpc::accept(&mut r)?;
    match u16::try_from(r.u32()?) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(BenchError::Protocol(format!(
            "rpcbind at {addr} knows no TCP port of program {program}"
        ))),
    }
}

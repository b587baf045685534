//! The NFS service on a simulated machine, as a subject.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use weir_base::{Clock, Time};
use weir_nfs::{Config, ConnInfo, Handled, Service};
use weir_store::aggregate::Aggregate;
use weir_vfs::grace::Records;
use weir_vfs::{Export, HandleKey, Rule, Squash, Vfs};

use super::client::{Caller, Page, call, get_page, get_results, put_args, put_readdir, results};
use super::xdr::{In, Malformed, Out};
use crate::machine::{Machine, Running};
use crate::model::{Errno, Op, Slot};
use crate::subject::{Answer, Entry, Handle, Subject};

/// The service over a running engine.
pub struct Server {
    /// The service that calls are handed to.
    pub service: Arc<Service>,
    aggregate: Arc<Aggregate>,
    conn: ConnInfo,
    xid: Cell<u32>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

impl Server {
    /// The service for `running`, exporting its volume as `/vol1` to all
    /// clients, root not squashed.
    ///
    /// # Errors
    /// If an address does not parse.
    pub fn new(machine: &Machine, running: &Running) -> Result<Server, String> {
        let vfs = Vfs::new(HandleKey::new([9; 16], [0; 16]));
        vfs.publish(vec![Export::new(
            "/vol1",
            Arc::clone(&running.volume),
            vec![Rule::open(Squash::None)],
        )]);
        let service = Service::new(Config {
            vfs,
            clock: Arc::clone(&machine.clock) as Arc<dyn Clock>,
            // No identity of an earlier life is made again.
            rng: Arc::new(weir_base::SeededRng::new(running.engine.durable().0)),
            drc_bytes: 1 << 20,
            done_calls: running.engine.done_calls(),
            records: Records::of(&running.engine),
            grace: Duration::from_secs(1),
            name: "weir".into(),
        });
        let address = |text: &str| -> Result<SocketAddr, String> {
            text.parse().map_err(|e| format!("{text}: {e}"))
        };
        Ok(Server {
            service,
            aggregate: Arc::clone(running.engine.aggregate()),
            conn: ConnInfo::new(1, address("10.0.0.1:900")?, address("10.0.0.99:2049")?),
            // Never one of an earlier life: its calls are known.
            xid: Cell::new((running.engine.durable().0 as u32) << 12),
        })
    }

    /// Sends one RPC message and waits for what becomes of it.
    #[must_use]
    pub fn handle(&self, message: &[u8], now: Time) -> Handled {
        match self.service.handle(&self.conn, message, now) {
            Handled::Later(future) | Handled::Held(future) | Handled::Parked(future, _) => {
                block_on(future)
            }
            at_once => at_once,
        }
    }

    /// Performs a call as root; returns the results and the LSN that they wait for.
    fn rpc(
        &self,
        program: u32,
        procedure: u32,
        args: &Out,
        now: Time,
    ) -> Result<(Vec<u8>, u64), Malformed> {
        let xid = self.xid.replace(self.xid.get().wrapping_add(1));
        let mut message = call(xid, program, 3, procedure, &Caller::default());
        message.0.extend_from_slice(&args.0);
        match self.handle(&message.0, now) {
            Handled::Reply(reply, lsn) => {
                let bytes = reply.message();
                if bytes.len() + 4 != reply.len() {
                    return Err(Malformed("the reply's length is not that of its pieces"));
                }
                let rest = results(&bytes, xid)?.0.to_vec();
                Ok((rest, lsn.map_or(0, |lsn| lsn.0)))
            }
            _ => Err(Malformed("no reply")),
        }
    }

    fn perform(
        &self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Result<Answer, Errno>, Malformed> {
        if let Op::Readdir { dir, entries } = op {
            return self.list(&handle(*dir), *entries, now);
        }
        let mut args = Out::default();
        let procedure = put_args(&mut args, op, handle, guard);
        let (reply, lsn) = self.rpc(weir_nfs::NFS_PROGRAM, procedure, &args, now)?;
        Ok(get_results(op, In(&reply))?.map(|answer| Answer { lsn, ..answer }))
    }

    /// The whole directory, in small pages, by READDIR or READDIRPLUS.
    fn list(
        &self,
        dir: &[u8],
        entries: u32,
        now: Time,
    ) -> Result<Result<Answer, Errno>, Malformed> {
        let plus = entries % 2 == 0;
        let (mut cookie, mut verifier) = (0, [0; 8]);
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let mut args = Out::default();
            put_readdir(&mut args, dir, cookie, verifier, entries, plus);
            let (reply, _) = self.rpc(weir_nfs::NFS_PROGRAM, 16 + u32::from(plus), &args, now)?;
            let page = match get_page(In(&reply), plus)? {
                Ok(page) => page,
                Err(errno) => return Ok(Err(errno)),
            };
            let Page {
                verifier: given,
                entries: mut some,
                eof,
                ..
            } = page;
            verifier = given;
            if some.is_empty() && !eof {
                return Err(Malformed("an empty page that is not the last"));
            }
            cookie = some.last().map_or(cookie, |entry| entry.cookie);
            all.append(&mut some);
            if eof {
                return Ok(Ok(Answer {
                    entries: Some(all),
                    ..Answer::default()
                }));
            }
        }
    }
}

impl Subject for Server {
    fn root(&mut self) -> Handle {
        let mut args = Out::default();
        args.opaque(b"/vol1");
        let reply = self.rpc(weir_nfs::MOUNT_PROGRAM, 1, &args, Time::EPOCH);
        let decoded = reply.and_then(|(bytes, _)| {
            let mut reader = In(&bytes);
            match reader.u32()? {
                0 => Ok(reader.opaque()?.to_vec()),
                _ => Err(Malformed("mount refused")),
            }
        });
        decoded.unwrap_or_else(|what| panic!("MNT: {}", what.0))
    }

    fn call(
        &mut self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Answer, Errno> {
        self.perform(op, now, handle, guard)
            .unwrap_or_else(|what| panic!("malformed reply to {op:?}: {}", what.0))
    }

    fn durable(&self) -> u64 {
        self.aggregate.log().durable().0
    }
}

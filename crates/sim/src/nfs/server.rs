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
use weir_nfs::{Config, ConnInfo, Outcome, Service};
use weir_store::aggregate::Aggregate;
use weir_testclient::nfs3::{CreateHow3, Sattr};
use weir_testclient::rpc::results;
use weir_testclient::{Call, Caller, DecodeError, Reply};
use weir_vfs::grace::Records;
use weir_vfs::{Export, HandleKey, Rule, Squash, Vfs};

use super::client::{answer, call_of, readdir};
use crate::machine::{Machine, RunningEngine};
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
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
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
    pub fn new(machine: &Machine, running: &RunningEngine) -> Result<Server, String> {
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
            records: Records::from_engine(&running.engine),
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
    pub fn handle(&self, message: &[u8], now: Time) -> Outcome {
        match self.service.handle(&self.conn, message, now) {
            Outcome::Later(future) | Outcome::Held(future) | Outcome::Parked(future, ..) => {
                block_on(future)
            }
            at_once => at_once,
        }
    }

    /// Performs a call as root; returns the reply and the LSN that it waits for.
    fn rpc(&self, call: &Call, now: Time) -> Result<(Reply, u64), DecodeError> {
        let xid = self.xid.replace(self.xid.get().wrapping_add(1));
        match self.handle(&call.message(xid, &Caller::default()), now) {
            Outcome::Reply(reply, lsn) => {
                let bytes = reply.message();
                if bytes.len() + 4 != reply.len() {
                    return Err(DecodeError("the reply's length is not that of its pieces"));
                }
                let reply = call.decode(results(&bytes, xid)?)?;
                Ok((reply, lsn.map_or(0, |lsn| lsn.0)))
            }
            _ => Err(DecodeError("no reply")),
        }
    }

    /// Makes a file of `size` bytes, which is durable; its handle.
    ///
    /// # Errors
    /// What the server replied.
    pub fn make(&self, root: &[u8], name: &[u8], size: u64, now: Time) -> Result<Handle, String> {
        let attr = Sattr {
            size: Some(size),
            ..Sattr::mode(0o644)
        };
        let call = Call::Create(root.to_vec(), name.to_vec(), CreateHow3::Unchecked(attr));
        let (reply, lsn) = self.rpc(&call, now).map_err(|what| what.0.to_owned())?;
        let Reply::Made(Some(handle), ..) = reply else {
            return Err(format!("not made: {reply:?}"));
        };
        let durable = self.aggregate.log().wait_blocking(weir_base::Lsn(lsn));
        durable.map_err(|e| format!("{e:?}"))?;
        Ok(handle)
    }

    fn perform(
        &self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Result<Answer, Errno>, DecodeError> {
        if let Op::Readdir { dir, entries } = op {
            return self.list(&handle(*dir), *entries, now);
        }
        let (reply, lsn) = self.rpc(&call_of(op, handle, guard), now)?;
        Ok(answer(reply)?.map(|answer| Answer { lsn, ..answer }))
    }

    /// The whole directory, in small pages, by READDIR or READDIRPLUS.
    fn list(
        &self,
        dir: &[u8],
        entries: u32,
        now: Time,
    ) -> Result<Result<Answer, Errno>, DecodeError> {
        let (mut cookie, mut given) = (0, [0; 8]);
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let call = readdir(dir.to_vec(), cookie, given, entries, entries % 2 == 0);
            let (reply, _) = self.rpc(&call, now)?;
            if let Reply::Entries { verifier, .. } = reply {
                given = verifier;
            }
            let (mut some, eof) = match answer(reply)? {
                Ok(page) => (page.entries.unwrap_or_default(), page.eof == Some(true)),
                Err(errno) => return Ok(Err(errno)),
            };
            if some.is_empty() && !eof {
                return Err(DecodeError("an empty page that is not the last"));
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
        match self.rpc(&Call::Mnt(b"/vol1".to_vec()), Time::EPOCH) {
            Ok((Reply::Root(root), _)) => root,
            other => panic!("MNT: {other:?}"),
        }
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

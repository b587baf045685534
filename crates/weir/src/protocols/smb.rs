//! SMB as the event loops see it.

use std::sync::Arc;
use std::task::Context;

use weir_base::Clock;
use weir_conn::{Arrival, Begin, DirectTcp, Outcome};
use weir_smb::{ConnInfo, Reply, Service, Slot};
use weir_vfs::stats::{Cause, Stats};
use weir_vfs::throttle::Throttle;
use weir_volume::Engine;

use weir_net::Backend;

use crate::protocols::reply_gate::ReplyGate;

/// The service behind its connections.
pub struct Smb {
    service: Arc<Service>,
    throttle: Arc<Throttle>,
    stats: Arc<Stats>,
    clock: Arc<dyn Clock>,
    engine: Arc<Engine>,
}

impl Smb {
    /// The service over an open engine.
    pub fn new(
        service: Arc<Service>,
        throttle: Arc<Throttle>,
        stats: Arc<Stats>,
        clock: Arc<dyn Clock>,
        engine: Arc<Engine>,
    ) -> Arc<Smb> {
        Arc::new(Smb {
            service,
            throttle,
            stats,
            clock,
            engine,
        })
    }

    /// The service itself.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }
}

impl Backend for Smb {
    type Framing = DirectTcp;
    type Reply = Reply;
    type State = Slot;
    type Log = ReplyGate;

    fn unasked(&self, message: Box<[u8]>) -> Reply {
        Reply::unasked(&message)
    }

    fn handle(&self, conn: &ConnInfo, record: &[u8], now: Arrival) -> Outcome<Reply> {
        self.service.handle(conn, record, now)
    }

    fn together<T>(&self, calls: impl FnOnce() -> T) -> T {
        let _gather = self.engine.aggregate().log().gather();
        calls()
    }

    fn may_read(&self, conn: &ConnInfo, cx: &mut Context<'_>) -> bool {
        self.throttle.poll_credit(conn.peer.ip(), cx)
    }

    fn begin(
        &self,
        conn: &ConnInfo,
        head: &[u8],
        bytes: usize,
        _: &mut Context<'_>,
    ) -> Begin<Reply> {
        match self.service.takes_long(conn, head, bytes) {
            true => Begin::Go(None),
            false => Begin::Close("a long message of no user"),
        }
    }

    fn reply_bound(&self, record: &[u8], _reads: usize) -> usize {
        weir_smb::reply_bound(record)
    }

    fn knows(&self, conn: &ConnInfo) -> bool {
        self.service.knows(conn)
    }

    fn under_pressure(&self) -> bool {
        let (held, limits) = self.throttle.held();
        held > limits.total / 8
    }

    fn answered(&self, conn: &ConnInfo, replies: &mut dyn Iterator<Item = &Reply>) {
        let done = replies.flat_map(Reply::done);
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.stats.record(conn.id, conn.peer.ip(), now, done);
    }

    fn logged(&self, conn: &ConnInfo, waited: &mut dyn Iterator<Item = (&Reply, u64)>) {
        // The first operation stands for all of a reply to several.
        let waits = waited.filter_map(|(reply, nanos)| Some((reply.done().next()?.volume, nanos)));
        self.stats.wait_all(conn.id, Cause::Log, waits);
    }

    fn ended(&self, conn: &ConnInfo) {
        self.service.connection_ended(conn);
    }
}

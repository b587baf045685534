//! SMB as the event loops see it.

use std::sync::Arc;
use std::task::Context;

use weir_base::Clock;
use weir_nfs::{Arrival, ConnInfo};
use weir_smb::{Arrived, Service};
use weir_vfs::stats::Stats;
use weir_vfs::throttle::Throttle;
use weir_volume::Engine;

use crate::net::{self, Answer, Backend, DirectTcp, Handled, Pieces, Reply};

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

impl Reply for weir_smb::Reply {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn pieces<'a>(&'a self, skip: usize, out: &mut Pieces<'a>) {
        self.slices(skip, out);
    }

    fn into_failure(self) -> weir_smb::Reply {
        weir_smb::Reply::into_failure(self)
    }
}

async fn answer(work: weir_smb::Later) -> Option<Answer<weir_smb::Reply>> {
    work.await
}

fn came_to(handled: weir_smb::Handled) -> Handled<weir_smb::Reply> {
    match handled {
        weir_smb::Handled::Reply(reply, after) => Handled::Reply(reply, after),
        weir_smb::Handled::Later(work) => Handled::Later(Box::pin(answer(work))),
        weir_smb::Handled::Held(work) => Handled::Held(Box::pin(answer(work))),
        weir_smb::Handled::Parked(work, refusal, interim) => {
            Handled::Parked(Box::pin(answer(work)), refusal, interim)
        }
        weir_smb::Handled::Larger(handled, more) => {
            Handled::Larger(Box::new(came_to(*handled)), more)
        }
        weir_smb::Handled::Drop => Handled::Drop,
        weir_smb::Handled::Close(why) => Handled::Close(why),
    }
}

impl Backend for Smb {
    type Framing = DirectTcp;
    type Reply = weir_smb::Reply;
    type Log = Engine;

    fn unasked(&self, message: Box<[u8]>) -> weir_smb::Reply {
        weir_smb::Reply::unasked(&message)
    }

    fn handle(&self, conn: &ConnInfo, record: &[u8], now: Arrival) -> Handled<weir_smb::Reply> {
        let at = Arrived {
            connection: conn.id,
            peer: conn.peer.ip(),
            local: conn.local.ip(),
            admitted: &conn.admitted,
            time: now.time,
            monotonic: now.monotonic,
        };
        came_to(self.service.handle(at, record))
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
    ) -> net::Begin<weir_smb::Reply> {
        match self.service.takes_long(conn.id, head, bytes) {
            true => net::Begin::Go(None),
            false => net::Begin::Close("a long message of no user"),
        }
    }

    fn reply_bound(&self, record: &[u8], _reads: usize) -> usize {
        weir_smb::reply_bound(record)
    }

    fn knows(&self, conn: &ConnInfo) -> bool {
        self.service.knows(conn.id)
    }

    fn under_pressure(&self) -> bool {
        let (held, limits) = self.throttle.held();
        held > limits.total / 8
    }

    fn answered(&self, conn: &ConnInfo, replies: &mut dyn Iterator<Item = &weir_smb::Reply>) {
        let done = replies.flat_map(weir_smb::Reply::done);
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.stats.record(conn.id, conn.peer.ip(), now, done);
    }

    fn ended(&self, conn: &ConnInfo) {
        self.service.connection_ended(conn.id);
    }
}

//! The gate that replies pass: the log, the partner of a strict volume, and the lease of a pair.

use std::sync::Arc;

use weir_base::Lsn;
use weir_net as net;
use weir_pair_node::Lease;
use weir_volume::Engine;

/// Gate that replies pass.
#[derive(Clone)]
pub struct ReplyGate {
    engine: Arc<Engine>,
    lease: Arc<Lease>,
}

impl ReplyGate {
    /// Creates the gate of an open engine; replies leave within the lease.
    pub fn new(engine: Arc<Engine>, lease: Arc<Lease>) -> ReplyGate {
        ReplyGate { engine, lease }
    }
}

impl net::Log for ReplyGate {
    fn durable(&self) -> Lsn {
        self.engine.durable()
    }

    fn log_failed(&self) -> bool {
        self.engine.aggregate().log().is_poisoned()
    }

    fn withholds(&self, lsn: Lsn) -> bool {
        self.engine.withholds(lsn)
    }

    fn may_reply(&self) -> bool {
        self.lease.holds()
    }
}

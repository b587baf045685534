//! Connections of clients, as a pair reports them to the partner.

use std::pin::Pin;
use std::sync::Arc;

use weir_pair_node::{Connections, Ends};

use weir_net::ConnectionRegistry;

/// Connections of the event loops.
pub struct PairConnections(pub Arc<ConnectionRegistry>);

impl Connections for PairConnections {
    fn begun(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.begun.notified())
    }

    fn wake(&self) {
        self.0.begun.notify_one();
    }

    fn since(&self, version: u64, wanted: &dyn Fn(&Ends) -> bool) -> Option<(u64, Vec<Ends>)> {
        self.0.since(version, wanted)
    }
}

//! From a data folder to the service that the event loops call.

use std::sync::Arc;

use anyhow::Result;
use weir_base::{Clock, Lsn, SystemRng, Time};
use weir_nfs::{ConnInfo, ReplyBuf};

use crate::cli::Serve;
use crate::net::{Backend, Handled, Pieces, Reply, Wakeups};
use crate::size::Size;

/// Bytes of the duplicate-request cache.
const DRC_BYTES: usize = 16 << 20;

/// The open data folder.
pub struct Storage {
    backend: Arc<Protocols>,
}

impl Storage {
    /// Opens the data folder, or makes a new aggregate in an empty one.
    pub fn open(
        _args: &Serve,
        _memory: Size,
        clock: &Arc<dyn Clock>,
        _wakeups: &Wakeups,
    ) -> Result<Storage> {
        let service = weir_nfs::Service::new(weir_nfs::Config {
            vfs: weir_vfs::Vfs::new(weir_vfs::HandleKey::new([0; 16])),
            clock: Arc::clone(clock),
            rng: Arc::new(SystemRng),
            drc_bytes: DRC_BYTES,
            hosts: Arc::new(NoHosts),
            grace: std::time::Duration::ZERO,
            name: String::new(),
        });
        Ok(Storage {
            backend: Arc::new(Protocols { service }),
        })
    }

    /// The service behind the connections.
    pub fn backend(&self) -> Arc<Protocols> {
        Arc::clone(&self.backend)
    }

    /// Paths of the exports.
    pub fn exports(&self) -> Vec<String> {
        vec!["/vol1".to_owned()]
    }

    /// Makes everything durable and ends the engine.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
}

/// The NFS service as the event loops see it.
pub struct Protocols {
    service: Arc<weir_nfs::Service>,
}

impl Reply for ReplyBuf {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn pieces<'a>(&'a self, skip: usize, out: &mut Pieces<'a>) {
        self.slices(skip, out);
    }

    fn into_failure(self) -> ReplyBuf {
        ReplyBuf::into_failure(self)
    }
}

impl Backend for Protocols {
    type Reply = ReplyBuf;

    fn handle(&self, conn: &ConnInfo, record: &[u8], now: Time) -> Handled<ReplyBuf> {
        match self.service.handle(conn, record, now) {
            weir_nfs::Handled::Reply(reply, after) => Handled::Reply(reply, after),
            weir_nfs::Handled::Later(work) => Handled::Later(Box::pin(async move {
                match work.await {
                    weir_nfs::Handled::Reply(reply, after) => Some((reply, after)),
                    _ => None,
                }
            })),
            weir_nfs::Handled::Drop => Handled::Drop,
            weir_nfs::Handled::Close(why) => Handled::Close(why),
        }
    }

    fn durable(&self) -> Lsn {
        Lsn(u64::MAX)
    }

    fn log_failed(&self) -> bool {
        false
    }

    fn disconnected(&self, _conn: &ConnInfo) {}
}

/// Keeps no record of lock holders.
struct NoHosts;

impl weir_nfs::HostStore for NoHosts {
    fn load(&self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn save(&self, _record: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

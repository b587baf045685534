//! Requests that wait deliberately (MS-SMB2 §3.3.4.2, §3.3.5.16): for another client, or for a
//! change.
//!
//! The client is sent an interim response at once, which gives the request an async id and grants
//! its credits; the response itself has that id and grants none. CANCEL ends the wait, by that id
//! or by the request's number.
//!
//! The interim response is not signed: it says nothing, and under AES-GMAC it would use the nonce
//! of the response itself.

use crate::conn::reply::{self, Part, Reply};
use crate::context::run::Chain;
use crate::open::line::{Line, Wait};
use crate::proto::header::{Header, command, flag};
use crate::proto::keys::Signer;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_vfs::signal::Signal;

/// The place of a waiting request in its connection, which it leaves when it is dropped.
pub(crate) struct PendingEntry {
    line: Arc<Line>,
    id: u64,
    cancelled: Arc<Signal<Status>>,
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        self.line.remove(self.id);
    }
}

impl PendingEntry {
    /// Enters the request that `chain` stopped at among those that wait.
    pub fn new(line: &Arc<Line>, id: u64, header: &Header, chain: &Chain) -> PendingEntry {
        let cancelled = Arc::<Signal<Status>>::default();
        let wait = Wait {
            id,
            message: header.message,
            session: header.session,
            over: match header.command {
                command::CHANGE_NOTIFY => Status::NOTIFY_CLEANUP,
                _ => Status::CANCELLED,
            },
            cancelled: Arc::clone(&cancelled),
        };
        let session = chain.session.as_ref();
        line.add(wait, || session.is_some_and(|session| session.has_ended()));
        PendingEntry {
            line: Arc::clone(line),
            id,
            cancelled,
        }
    }

    /// Returns the signal that the request is cancelled, and with what status.
    pub fn cancelled(&self) -> Arc<Signal<Status>> {
        Arc::clone(&self.cancelled)
    }
}

/// The interim response to the request that `chain` stopped at, which is the only one of its
/// message; its response itself gets the async id.
pub(crate) fn interim(chain: &mut Chain, id: u64) -> Option<(Header, Reply)> {
    let begun = chain.stopped_at()?;
    let (header, credits) = (begun.header, begun.credits);
    begun.credits = 0;
    chain.async_id = Some(id);
    let reply = short(chain, header, (Status::PENDING, credits), None, Some(id));
    Some((header, reply))
}

/// Returns the response to send if too many requests wait.
pub(crate) fn refusal(chain: &mut Chain) -> Option<Reply> {
    let begun = chain.stopped_at()?;
    let (header, credits, signer) = (begun.header, begun.credits, begun.signer.clone());
    let what = (Status::INSUFFICIENT_RESOURCES, credits);
    Some(short(chain, header, what, signer, None))
}

fn short(
    chain: &Chain,
    mut header: Header,
    (status, credits): (Status, u16),
    signer: Option<Arc<Signer>>,
    async_id: Option<u64>,
) -> Reply {
    if signer.is_none() {
        header.flags &= !flag::SIGNED;
    }
    let mut out = reply::start();
    let at = out.len();
    header.put_response(&mut out, status.0, credits);
    if let Some(id) = async_id {
        reply::put_async(&mut out[at..], id);
    }
    reply::put_error(&mut out);
    let part = Part {
        at,
        header,
        credits,
        signer,
        promises: false,
        async_id,
    };
    Reply::new(out, None, vec![part], chain.sealed.clone())
}

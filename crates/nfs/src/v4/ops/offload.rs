//! Copies in the background: starts, runs and ends them. See [`crate::v4::offload`].

use crate::rpc::message::Credential;
use crate::rpc::xdr::Put;
use crate::v4::args::{Copy, Head};
use crate::v4::callback::Callback;
use crate::v4::client::Client;
use crate::v4::connection_cache::ConnInfo;
use crate::v4::copy_progress::CopyProgress;
use crate::v4::cursor::{Cursor, OperationResult, Run};
use crate::v4::offload::{MOST_OF_ALL, MOST_OF_CLIENT, Offload};
use crate::v4::server::Nfs4;
use crate::v4::status::Status;
use crate::v4::types::StateId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use weir_vfs::{FileId, Stop, Suspend};

/// A slot among the copies under way.
struct CopySlot(Arc<Nfs4>);

impl CopySlot {
    fn take(s: &Arc<Nfs4>) -> Option<CopySlot> {
        let more = |n: usize| (n < MOST_OF_ALL).then_some(n + 1);
        let order = Ordering::Relaxed;
        let taken = s.offloads.under_way.fetch_update(order, order, more);
        taken.is_ok().then(|| CopySlot(Arc::clone(s)))
    }
}

impl Drop for CopySlot {
    fn drop(&mut self) {
        self.0.offloads.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Arguments and progress of a copy in the background.
struct Job {
    place: CopySlot,
    client: Arc<Client>,
    offload: Arc<Offload>,
    conn: ConnInfo,
    credential: Credential,
    args: Copy,
    from: FileId,
    copying: CopyProgress,
}

/// Result of a turn of a copy.
enum Turn {
    /// A piece was copied.
    Piece,
    /// The copy is complete.
    End,
    Waits(Suspend),
}

impl Job {
    /// Copies a piece, or continues one.
    fn turn(&mut self, cursor: &mut Cursor) -> Result<Turn, Status> {
        let s = &self.place.0;
        if self.offload.is_cancelled() || self.client.is_expired() {
            return Err(Status::Expired);
        }
        let table = s.vfs.exports();
        let mut run = Run {
            s,
            conn: &self.conn,
            credential: &self.credential,
            table: &table,
            bytes: 0,
            args: &[],
            unread: None,
            c: cursor,
        };
        let before = self.copying.done();
        let ran = run.copy_piece(&mut self.copying, &self.args, self.from, self.offload.file);
        let done = self.copying.done();
        self.offload.copied.store(done, Ordering::Release);
        match ran {
            Ok(()) if done == before || self.copying.is_done() => Ok(Turn::End),
            Ok(()) => Ok(Turn::Piece),
            Err(Stop::Failed(status)) => Err(status),
            Err(Stop::Suspended(wait)) => Ok(Turn::Waits(wait)),
        }
    }

    async fn run(mut self) {
        let s = Arc::clone(&self.place.0);
        let status = loop {
            let mut cursor = s.cursor_for(&self.client, &self.conn);
            let turned = loop {
                match self.turn(&mut cursor) {
                    // A name service that does not answer is not waited for.
                    Ok(Turn::Waits(Suspend::NameService(wait))) if !wait.coming => {
                        break Err(Status::Delay);
                    }
                    Ok(Turn::Waits(wait)) => match cursor.cx.resume(&s.vfs, wait).await {
                        Ok(()) => {}
                        Err(error) => break Err(error.into()),
                    },
                    turned => break turned,
                }
            };
            cursor.cx.settle_charge(&s.vfs.throttle);
            match turned {
                Ok(Turn::End) => break Status::Ok,
                Ok(_) => pass().await,
                Err(status) => break status,
            }
        };
        let _ = self.offload.ended.set(status);
        if !self.offload.is_cancelled() {
            s.call_back(&self.client, Callback::Offload(Arc::clone(&self.offload)));
        }
    }
}

/// Lets other tasks run.
async fn pass() {
    let mut passed = false;
    std::future::poll_fn(|cx| match std::mem::replace(&mut passed, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

impl Nfs4 {
    /// Returns a cursor for a client's work without a request.
    fn cursor_for(&self, client: &Arc<Client>, conn: &ConnInfo) -> Cursor {
        let head = Head {
            tag: &[],
            minor: 2,
            count: 0,
        };
        let mut cursor = Cursor::new(0, &head, 0, self.current_time().into(), conn.id);
        cursor.on_behalf = Some(Arc::clone(client));
        cursor
    }

    /// Forgets a copy whose end the client has acknowledged, or which it has cancelled.
    pub(in crate::v4) fn forget_offload(&self, client: &Client, offload: &Offload) {
        client.offloads.lock().retain(|o| o.id != offload.id);
    }
}

impl Run<'_> {
    /// Starts a COPY in the background; `None` if it has to be done before the reply.
    pub(in crate::v4) fn offload(
        &self,
        a: &Copy,
        (from, to): (FileId, FileId),
        verifier: [u8; 8],
    ) -> Option<Arc<Offload>> {
        let run = self.s.offloads.run.get()?;
        let count = self.c.copying.as_ref()?.count();
        if !self.is_callable() {
            return None;
        }
        let place = CopySlot::take(&self.s.me.upgrade()?)?;
        let client = self.client();
        let offload = {
            let mut offloads = client.offloads.lock();
            if offloads.len() >= MOST_OF_CLIENT {
                let ended = offloads.iter().position(|o| o.ended().is_some())?;
                offloads.remove(ended);
            }
            let offload = Arc::new(Offload {
                id: client.states.write().id_of_copy(),
                file: to,
                verifier,
                copied: AtomicU64::new(0),
                cancelled: AtomicBool::new(false),
                ended: OnceLock::new(),
            });
            offloads.push(Arc::clone(&offload));
            offload
        };
        // The copy depends on the states of these stateids, but not on their seqids.
        let newest = |id: &StateId| match self.resolved(id) {
            Ok(known) if !matches!(known, StateId::ANONYMOUS | StateId::BYPASS) => {
                StateId { seqid: 0, ..known }
            }
            _ => *id,
        };
        let mut conn = ConnInfo::new(self.conn.id, self.conn.peer, self.conn.local);
        conn.transport = self.conn.transport;
        let job = Job {
            place,
            client,
            offload: Arc::clone(&offload),
            conn,
            credential: self.credential.clone(),
            args: Copy {
                from: newest(&a.from),
                to: newest(&a.to),
                ..*a
            },
            from,
            copying: CopyProgress::in_pieces(count),
        };
        run(Box::pin(job.run()));
        Some(offload)
    }

    fn offload_of(&self, id: &StateId) -> Result<Arc<Offload>, Status> {
        let file = self.file(Status::WrongType)?;
        let id = self.resolved(id)?;
        let offloads = self.client_ref().offloads.lock();
        let mut known = offloads.iter();
        let known = known.find(|o| o.id.other == id.other && o.file == file);
        known.cloned().ok_or(Status::BadStateId)
    }

    /// OFFLOAD_STATUS (RFC 7862 §15.9): reports the progress of a copy.
    pub(in crate::v4) fn offload_status(&mut self, id: &StateId) -> OperationResult {
        let offload = self.offload_of(id)?;
        // Read before the number of bytes, which is final once the copy has ended.
        let ended = offload.ended();
        let out = &mut self.c.out;
        out.put_u64(offload.copied());
        out.put_u32(u32::from(ended.is_some()));
        if let Some(status) = ended {
            out.put_u32(status as u32);
        }
        Ok(Status::Ok)
    }

    /// OFFLOAD_CANCEL (RFC 7862 §15.8): ends a copy, whose end is not reported then.
    pub(in crate::v4) fn offload_cancel(&mut self, id: &StateId) -> OperationResult {
        let offload = self.offload_of(id)?;
        offload.cancelled.store(true, Ordering::Release);
        self.s.forget_offload(self.client_ref(), &offload);
        Ok(Status::Ok)
    }
}

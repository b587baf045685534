//! Copies in the background: a COPY that its client need not wait for (RFC 7862 §15.2.3, §15.8, §15.9, §16.1).
//!
//! A long COPY that asks for it, and whose blocks cannot be shared, is answered at once with a stateid. It is carried out piece
//! by piece by what the server runs such work on ([`Background`]), under the limits of both volumes and as the user who asked for it,
//! whether or not the connection lasts. Each piece is copied only while both opens are the client's still. CB_OFFLOAD reports the end;
//! OFFLOAD_STATUS asks how far it is, OFFLOAD_CANCEL ends it.
//!
//! **Bounds.** A client has [`MOST_OF_CLIENT`] copies at once, all have [`MOST_OF_ALL`], each with one piece in memory; a further one, and
//! that of a client that cannot be called, is copied before the reply, in part (see [`super::copy_ops`]). What has ended and was
//! not acknowledged counts, and the oldest of it goes when a new one needs its place.
//!
//! After a restart of the server nothing is known of a copy: its client learns of the restart and copies again what it has not
//! seen acknowledged.

use super::args::{Copy, Head};
use super::callback::Callback;
use super::client::Client;
use super::compound::{Cursor, OperationResult, Run};
use super::copy_ops::Copying;
use super::remembered::ConnInfo;
use super::serve::Nfs4;
use super::status::Status;
use super::types::StateId;
use crate::rpc::Credential;
use crate::xdr::Put;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use weir_vfs::{FileId, Stop, Suspend};

/// Work that no connection waits for.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Copies of a client that are under way or not acknowledged.
const MOST_OF_CLIENT: usize = 16;
/// Copies under way of all clients.
const MOST_OF_ALL: usize = 64;

/// A copy in the background.
pub struct Offload {
    /// Its stateid.
    pub id: StateId,
    /// The file that is written.
    pub file: FileId,
    /// The write verifier as the copy began.
    pub verifier: [u8; 8],
    copied: AtomicU64,
    cancelled: AtomicBool,
    ended: OnceLock<Status>,
}

impl Offload {
    /// Bytes that were copied so far.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        self.ended.get().copied()
    }

    /// Nobody wants it any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// The copies of all clients.
#[derive(Default)]
pub(crate) struct Offloads {
    run: OnceLock<Arc<dyn Fn(Background) + Send + Sync>>,
    under_way: AtomicUsize,
}

impl Offloads {
    /// Has `run` carry copies out. Only the first counts.
    pub(crate) fn run_with(&self, run: Arc<dyn Fn(Background) + Send + Sync>) {
        let _ = self.run.set(run);
    }
}

/// A place among those under way.
struct Place(Arc<Nfs4>);

impl Place {
    fn take(s: &Arc<Nfs4>) -> Option<Place> {
        let more = |n: usize| (n < MOST_OF_ALL).then_some(n + 1);
        let order = Ordering::Relaxed;
        let taken = s.offloads.under_way.fetch_update(order, order, more);
        taken.is_ok().then(|| Place(Arc::clone(s)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.offloads.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a copy goes by.
struct Job {
    place: Place,
    client: Arc<Client>,
    offload: Arc<Offload>,
    conn: ConnInfo,
    credential: Credential,
    args: Copy,
    from: FileId,
    copying: Copying,
}

/// How a turn of a copy ended.
enum Turn {
    /// A piece was copied.
    Piece,
    /// All was.
    End,
    Waits(Suspend),
}

impl Job {
    /// Copies a piece, or goes on with it.
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
                    // What is not coming is not waited for.
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
            cursor.cx.settle(&s.vfs.throttle);
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

/// Lets others run.
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
    /// A cursor for work of a client that no request waits for.
    fn cursor_for(&self, client: &Arc<Client>, conn: &ConnInfo) -> Cursor {
        let head = Head {
            tag: &[],
            minor: 2,
            count: 0,
        };
        let mut cursor = Cursor::new(0, &head, 0, self.now().into(), conn.id);
        cursor.on_behalf = Some(Arc::clone(client));
        cursor
    }

    /// The client has acknowledged the end of a copy, or does not want to know.
    pub(super) fn forget_offload(&self, client: &Client, offload: &Offload) {
        client.offloads.lock().retain(|o| o.id != offload.id);
    }
}

impl Run<'_> {
    /// Has a COPY carried out in the background; `None` if it has to be done at once.
    pub(super) fn offload(
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
        let place = Place::take(&self.s.me.upgrade()?)?;
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
        // A copy is held under what these stateids name, whatever becomes of their count.
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
            copying: Copying::in_pieces(count),
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

    /// OFFLOAD_STATUS (RFC 7862 §15.9): how far a copy is.
    pub(super) fn offload_status(&mut self, id: &StateId) -> OperationResult {
        let offload = self.offload_of(id)?;
        // First how it ended: what was copied by then is all.
        let ended = offload.ended();
        let out = &mut self.c.out;
        out.put_u64(offload.copied());
        out.put_u32(u32::from(ended.is_some()));
        if let Some(status) = ended {
            out.put_u32(status as u32);
        }
        Ok(Status::Ok)
    }

    /// OFFLOAD_CANCEL (RFC 7862 §15.8): ends a copy, of which nothing is reported any more.
    pub(super) fn offload_cancel(&mut self, id: &StateId) -> OperationResult {
        let offload = self.offload_of(id)?;
        offload.cancelled.store(true, Ordering::Release);
        self.s.forget_offload(self.client_ref(), &offload);
        Ok(Status::Ok)
    }
}

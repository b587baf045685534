//! Removal of files with their last close (FILE_DELETE_ON_CLOSE, FileDispositionInformation).
//!
//! The table of claims reports the last close of a file that was marked for deletion, over any
//! protocol ([`weir_vfs::claims`]). If that was an SMB CLOSE, the CLOSE removes the name before it
//! is answered, so that the client can create another file of the name at once. Otherwise (a lost
//! connection, a close over NFS) a background task removes it, on behalf of the user who marked the
//! file. The task skips files that a CLOSE is about to remove: it would remove them before the
//! open's oplock is given up, and so cause a needless break.

use crate::open::channel::Security;
use crate::open::session::{Base, Session};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use weir_vfs::claims::{Owner, Removal};
use weir_vfs::{ClientKey, FileId, Identity, Vfs};

/// The object of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalKind {
    /// A name of a file or directory: one may become the other between the mark and the removal.
    Name,
    /// A stream of the file that is in the place of the directory.
    Stream,
}

impl RemovalKind {
    /// Returns the object to remove with an open of a stream of `base`, or of a file itself if
    /// `None`.
    pub fn from_base(base: Option<&Base>) -> RemovalKind {
        match base {
            Some(_) => RemovalKind::Stream,
            None => RemovalKind::Name,
        }
    }
}

/// Identity and client of the session that marked a file.
#[derive(Clone)]
pub struct Marker {
    /// The identity that the file is removed as.
    pub identity: Arc<Identity>,
    /// The client that limits charge for the removal.
    pub client: ClientKey,
    /// The client's address.
    pub origin: IpAddr,
    /// Security of the request that marked it; `None`: it was before the start, and admitted then.
    pub security: Option<Security>,
    /// The owner that others' claims are compared with.
    pub owner: Owner,
    /// The holder of the client's lease on the directory.
    pub parent: Option<Owner>,
}

impl Marker {
    /// A session, by a request that came from `origin` with so much security, with its client's
    /// lease on the directory.
    pub fn from_session(
        session: &Session,
        parent: Option<Owner>,
        (origin, security): (IpAddr, Security),
    ) -> Marker {
        Marker {
            identity: Arc::clone(&session.identity),
            client: session.client_key,
            origin,
            security: Some(security),
            owner: session.walker.clone(),
            parent,
        }
    }
}

/// A file's mark for deletion: the session that made it, and the object to remove.
#[derive(Clone)]
pub struct Mark {
    pub(crate) by: Marker,
    pub(crate) what: RemovalKind,
}

/// A name that is to be removed now.
#[derive(Clone)]
pub struct Deletion {
    pub(crate) file: FileId,
    pub(crate) removal: Removal,
    pub(crate) mark: Mark,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) marks: HashMap<FileId, Mark>,
    pub(crate) due: VecDeque<Deletion>,
    /// The files of the CLOSEs that are being carried out.
    pub(crate) closing: Vec<FileId>,
    pub(crate) waker: Option<Waker>,
}

impl State {
    /// Wakes the task in the background, if there is something for it.
    pub(crate) fn wake(&mut self) {
        if self.first().is_some()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// The place of the first deletion that no CLOSE takes.
    pub(crate) fn first(&self) -> Option<usize> {
        self.due
            .iter()
            .position(|d| !self.closing.contains(&d.file))
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Deletions {
    pub(crate) state: Mutex<State>,
    pub(crate) vfs: Weak<Vfs>,
}

impl Deletions {
    /// Starts without marks.
    pub fn new(vfs: &Arc<Vfs>) -> Deletions {
        Deletions {
            state: Mutex::default(),
            vfs: Arc::downgrade(vfs),
        }
    }

    /// Notes who marks a file, before the table is asked to.
    pub fn mark(&self, file: FileId, by: Marker, what: RemovalKind) {
        self.state.lock().marks.insert(file, Mark { by, what });
    }

    /// The mark of a file was taken back.
    pub fn unmark(&self, file: FileId) {
        self.state.lock().marks.remove(&file);
    }

    /// A CLOSE ends an open of a file by `end`: returns the file's deletion, if it is due then.
    pub fn close(&self, file: FileId, end: impl FnOnce()) -> Option<Deletion> {
        self.state.lock().closing.push(file);
        end();
        let mut state = self.state.lock();
        let at = state.closing.iter().position(|of| *of == file);
        let Some(at) = at else {
            unreachable!("each CLOSE takes out what it has put in");
        };
        state.closing.swap_remove(at);
        let due = state.due.iter().position(|d| d.file == file);
        let deletion = due.and_then(|due| state.due.remove(due));
        state.wake();
        deletion
    }

    /// The next deletion that is due.
    pub async fn next(&self) -> Deletion {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let first = state.first();
            match first.and_then(|first| state.due.remove(first)) {
                Some(deletion) => Poll::Ready(deletion),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Hands a deletion that was taken out and cannot be completed back to the background task.
    pub fn put_back(&self, deletion: Deletion) {
        let mut state = self.state.lock();
        state.due.push_back(deletion);
        state.wake();
    }

    /// The last open of a file was closed.
    pub fn due(&self, file: FileId, removal: Removal) {
        let mark = self.state.lock().marks.remove(&file);
        match mark {
            Some(mark) => self.put_back(Deletion {
                file,
                removal,
                mark,
            }),
            None => {
                if let Some(vfs) = self.vfs.upgrade() {
                    vfs.claims.deleted(file);
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;
    use weir_base::{Ino, VolumeId};
    use weir_vfs::Namespace;
    use weir_vfs::claims::{Client, OwnerId, ServiceId};

    #[test]
    fn a_close_takes_its_deletion_and_no_other_does_meanwhile() {
        let deletions = Deletions::default();
        let file = |n| FileId {
            volume: VolumeId(1),
            ino: Ino(n),
            namespace: Namespace::Live,
        };
        let (origin, name) = (IpAddr::from([10, 0, 0, 1]), Arc::<[u8]>::from(*b"f"));
        let removal = Removal {
            dir: Ino(2),
            name: Arc::clone(&name),
            alone: false,
        };
        let by = Marker {
            identity: Arc::new(Identity::unix(1, 1, weir_vfs::Groups::default())),
            client: ClientKey::OTHERS,
            origin,
            security: None,
            owner: Owner {
                client: Client {
                    service: ServiceId(1),
                    address: origin,
                    name: Arc::clone(&name),
                },
                who: OwnerId::Process(1),
                shown: name,
            },
            parent: None,
        };
        for n in [3, 4] {
            deletions.mark(file(n), by.clone(), RemovalKind::Name);
        }
        let mut next = pin!(deletions.next());
        let mut cx = Context::from_waker(Waker::noop());
        let taken = deletions.close(file(3), || {
            deletions.due(file(3), removal.clone());
            assert!(next.as_mut().poll(&mut cx).is_pending());
            deletions.due(file(4), removal.clone());
        });
        assert_eq!(taken.map(|d| d.file), Some(file(3)));
        let Poll::Ready(other) = next.as_mut().poll(&mut cx) else {
            panic!("the other one is due");
        };
        assert_eq!(other.file, file(4));
        assert!(deletions.close(file(4), || {}).is_none());
    }
}

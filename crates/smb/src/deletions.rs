//! What goes with the last close (FILE_DELETE_ON_CLOSE, FileDispositionInformation).
//!
//! The table of claims says when the last open of a file is closed that was marked for deletion, whatever protocol closed it
//! ([`weir_vfs::claims`]). If it was a CLOSE of SMB, that removes the name before it is answered, so that the client can make another
//! file of the name at once. Otherwise (a connection that broke, a close over NFS) a task in the background does: it leaves alone
//! what a CLOSE is about to take, which it would remove before the open's oplock is given up, with a break of it that nobody asked for.
//! It is done on behalf of the user who marked the file.

use crate::chain::Failure;
use crate::channel::Security;
use crate::service::Service;
use crate::session::{Access, Base, Session};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use weir_vfs::claims::{Event, Owner, Passage, Removal, Style};
use weir_vfs::{
    AccessModel, Admissions, Changes, ClientKey, FileId, Flavour, Identity, Namespace, OpContext,
    OpResult, Protocol, Stop, Suspend, Transport, Vfs,
};

/// What is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A name of a file or directory: one may become the other between the mark and the removal.
    Name,
    /// A stream of the file that is in the place of the directory.
    Stream,
}

impl What {
    /// What goes when an open of this stream of a file goes; `None`: of the file itself.
    pub fn of(base: Option<&Base>) -> What {
        match base {
            Some(_) => What::Stream,
            None => What::Name,
        }
    }
}

/// Who marked a file.
#[derive(Clone)]
pub struct Marker {
    /// On whose behalf it is removed.
    pub identity: Arc<Identity>,
    /// To whom limits charge that.
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
    /// A session, by a request that came from `origin` with so much security, with its client's lease on the directory.
    pub fn of(
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

/// Has others close what they have closed and keep open for a later use, before a file is marked: nothing else may be in
/// the way of its removal (MS-FSA §2.1.5.15.3).
///
/// # Errors
/// Wait for that.
pub(crate) fn outlast_caches(
    vfs: &Vfs,
    file: FileId,
    access: Access<'_>,
) -> Result<(), Stop<Failure>> {
    match vfs
        .claims
        .names(file, access.actor(), Event::Name, Style::Unix)
    {
        Passage::Breaking(ticket) => Err(Suspend::Recall(ticket).into()),
        Passage::Free | Passage::Denied | Passage::Locked => Ok(()),
    }
}

/// Who marked a file, and what it is.
#[derive(Clone)]
pub struct Mark {
    by: Marker,
    what: What,
}

/// A name that is to be removed now.
#[derive(Clone)]
pub struct Deletion {
    file: FileId,
    removal: Removal,
    mark: Mark,
}

#[derive(Default)]
struct State {
    marks: HashMap<FileId, Mark>,
    due: VecDeque<Deletion>,
    /// The files of the CLOSEs that are being carried out.
    closing: Vec<FileId>,
    waker: Option<Waker>,
}

impl State {
    /// Wakes the task in the background, if there is something for it.
    fn wake(&mut self) {
        if self.first().is_some()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// The place of the first deletion that no CLOSE takes.
    fn first(&self) -> Option<usize> {
        self.due
            .iter()
            .position(|d| !self.closing.contains(&d.file))
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Deletions {
    state: Mutex<State>,
    vfs: Weak<Vfs>,
}

impl Deletions {
    /// None yet.
    pub fn new(vfs: &Arc<Vfs>) -> Deletions {
        Deletions {
            state: Mutex::default(),
            vfs: Arc::downgrade(vfs),
        }
    }

    /// Notes who marks a file, before the table is asked to.
    pub fn mark(&self, file: FileId, by: Marker, what: What) {
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

    /// Has the background do a deletion that was taken out and cannot be done to its end.
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

impl Service {
    /// Removes the name of a deletion; once it has ended, new opens of the file are possible again.
    pub(crate) fn remove(
        &self,
        deletion: &Deletion,
        cx: &mut OpContext,
    ) -> OpResult<Option<weir_base::Lsn>> {
        let Deletion {
            file,
            removal,
            mark,
        } = deletion;
        let removed = self.remove_name(removal, *file, mark, cx);
        if !matches!(removed, Err(Stop::Suspended(_))) {
            self.vfs.claims.deleted(*file);
        }
        removed
    }

    fn remove_name(
        &self,
        removal: &Removal,
        file: FileId,
        mark: &Mark,
        cx: &mut OpContext,
    ) -> OpResult<Option<weir_base::Lsn>> {
        let table = self.vfs.exports();
        let before = (Flavour::Ntlm, Transport::MutualTls);
        let (flavour, transport) = mark.by.security.unwrap_or(before);
        let session = weir_vfs::Session {
            origin: mark.by.origin,
            protocol: Protocol::Smb,
            flavour,
            transport,
            identity: Some(&mark.by.identity),
            access: Access::Within(&mark.by.owner, mark.by.parent.as_ref()),
            client: mark.by.client,
            admitted: &Admissions::default(),
        };
        let dir = FileId {
            volume: file.volume,
            ino: removal.dir,
            namespace: Namespace::Live,
        };
        let admitted = match mark.by.security {
            Some(_) => self.vfs.admit_file(&table, dir, &session)?,
            None => self.vfs.admit_any_flavour(&table, dir, &session)?,
        };
        let (dir, charged) = admitted.charge(&self.vfs, cx, Changes)?;
        // Another file may have the name by now.
        let found = match mark.what {
            What::Stream => dir.stream(cx, &removal.name).map(|(s, _)| s.attr.ino),
            What::Name => dir.listed(cx, &removal.name).map(|(f, _)| f.ino),
        };
        match found {
            Ok(ino) if ino == file.ino => {}
            Ok(_) => return Ok(None),
            Err(Stop::Failed(weir_vfs::Error::NotFound)) => return Ok(None),
            Err(why) => return Err(why),
        }
        Ok(match mark.what {
            What::Name => dir.remove_any(cx, charged, &removal.name)?.lsn,
            What::Stream => dir.move_stream(cx, charged, &removal.name, None)?.lsn,
        })
    }

    /// Does a deletion to its end.
    pub(crate) async fn delete(&self, deletion: Deletion) {
        let mut cx = OpContext::new(self.clock.now(), 0, None);
        while let Err(Stop::Suspended(suspend)) = self.remove(&deletion, &mut cx) {
            if cx.resume(&self.vfs, suspend).await.is_err() {
                self.vfs.claims.deleted(deletion.file);
                break;
            }
        }
        cx.settle(&self.vfs.throttle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;
    use weir_base::{Ino, VolumeId};
    use weir_vfs::claims::{Client, ServiceId, Who};

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
                who: Who::Process(1),
                shown: name,
            },
            parent: None,
        };
        for n in [3, 4] {
            deletions.mark(file(n), by.clone(), What::Name);
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

//! Files that go with their last open: SMB's delete-on-close and delete-pending (MS-FSA 2.1.5.5,
//! 2.1.5.15.3).
//!
//! An open that may delete marks its file, at once or when it is closed. From then on new opens of
//! the file are refused ([`OpenOutcome::DeletePending`](super::OpenOutcome::DeletePending));
//! existing opens stay valid. When the last open is closed, of whatever protocol and for whatever
//! reason, the service that marked the file is notified ([`Notice::Delete`]), removes the name, and
//! reports that ([`Claims::deleted`]). Until then new opens wait
//! ([`OpenOutcome::Breaking`](super::OpenOutcome::Breaking)) and look the name up again. So no
//! client opens a file that is about to be deleted, and none finds a name taken that nobody has
//! open. A mark with POSIX semantics ([`Removal::alone`]) does not wait for other opens: the name
//! goes with the close of the open that set it. It is in memory only, as opens are: what a crash
//! interrupts is not deleted.

use super::file::holder::Holder;
use super::file::{DeleteMark, File};
use super::ledger::DOOMED;
use super::types::{MarkOutcome, Modes, Notice, OpenOutcome, Owner, Removal, Ticket};
use super::{Claims, Effects};
use crate::handle::FileId;
use std::sync::Arc;

/// Time at which a file is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMode {
    /// Marked when this open is closed (FILE_DELETE_ON_CLOSE).
    OnClose,
    /// Marked by the call itself (FileDispositionInformation).
    Now,
}

/// Returns the memory that a mark takes beside its owner, in bytes.
fn extra(removal: &Removal) -> usize {
    DOOMED + removal.name.len()
}

impl Claims {
    /// Marks a file to be removed with its last close, for an open that uses deletion. What was
    /// marked before counts. The removal's name is charged to the client until it is done or taken
    /// back.
    pub fn mark(
        &self,
        file: FileId,
        owner: &Owner,
        when: DeleteMode,
        removal: &Removal,
    ) -> MarkOutcome {
        self.with_room(owner.client.address, |_| {
            let mut shard = self.shard(file);
            let holder = shard.get(&file).and_then(|f| f.deleter(owner)).cloned();
            let (Some(holder), Some(f)) = (holder, shard.get_mut(&file)) else {
                return (MarkOutcome::NotOpen, false);
            };
            if f.doomed().is_some() {
                return (MarkOutcome::Yes, false);
            }
            // As an owner of its own, which may outlive all others in the file.
            let client = self.ledger.enter(&owner.client, file, extra(removal));
            let Some(client) = client else {
                return (MarkOutcome::Full, true);
            };
            let doomed = DeleteMark {
                by: Owner {
                    client,
                    ..holder.owner.clone()
                },
                removal: removal.clone(),
                pending: when == DeleteMode::Now,
                removing: None,
            };
            f.more_mut().doomed = Some(Box::new(doomed));
            (MarkOutcome::Yes, false)
        })
    }

    /// Takes a mark back, for an open that uses deletion, unless the last open is closed already;
    /// whether there is none now.
    pub fn unmark(&self, file: FileId, owner: &Owner) -> bool {
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            return true;
        };
        if f.deleter(owner).is_none() {
            return f.doomed().is_none();
        }
        self.end_doomed(f, file);
        true
    }

    /// Returns true if a file is to be removed with its last close.
    pub fn delete_pending(&self, file: FileId) -> bool {
        let shard = self.shard(file);
        shard.get(&file).is_some_and(|f| f.delete_pending())
    }

    /// Returns the removal of a file, while it is under way.
    pub fn removing(&self, file: FileId) -> Option<Ticket> {
        self.shard(file).get(&file)?.doomed()?.removing.clone()
    }

    /// Ends the mark: the removal that [`Notice::Delete`] asked for was done, or cannot be.
    pub fn deleted(&self, file: FileId) {
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            // Its volume was revoked meanwhile.
            return;
        };
        self.end_doomed(f, file);
        self.leave_empty(&mut shard, file);
    }

    /// Removes a file's mark, if it has one, and refunds its memory.
    pub(super) fn end_doomed(&self, f: &mut File, file: FileId) {
        if f.doomed().is_none() {
            return;
        }
        if let Some(doomed) = f.more_mut().doomed.take() {
            let extra = extra(&doomed.removal);
            if let Some(ticket) = &doomed.removing {
                ticket.0.set(());
            }
            self.ledger.leave(&doomed.by.client, file, extra);
        }
    }

    /// Notes that an open of a file was closed.
    pub(super) fn closed(
        &self,
        f: &mut File,
        file: FileId,
        holder: &Arc<Holder>,
        effects: &mut Effects,
    ) {
        if f.doomed().is_none() {
            return;
        }
        let more = f.more_mut();
        let last = more.opens.is_empty();
        let Some(doomed) = more.doomed.as_mut() else {
            // Not marked: see above.
            return;
        };
        let own = doomed.by == holder.owner;
        doomed.pending |= own;
        // Marked for its own close by one that goes, or pending.
        if (last || own && doomed.removal.alone) && doomed.pending && doomed.removing.is_none() {
            doomed.removing = Some(Ticket(Arc::default()));
            effects.notices.push(Notice::Delete {
                file,
                owner: doomed.by.clone(),
                removal: doomed.removal.clone(),
            });
        }
    }
}

impl File {
    /// Returns the holder of an open that uses deletion.
    fn deleter(&self, owner: &Owner) -> Option<&Arc<Holder>> {
        let holder = self.holder(owner)?;
        let open = self.more()?.opens.get(holder.id)?;
        open.access.has(Modes::DELETE).then_some(holder)
    }

    fn doomed(&self) -> Option<&DeleteMark> {
        self.more()?.doomed.as_deref()
    }

    /// Returns the refusal or the wait of new opens, if the file is to go.
    pub(super) fn going(&self) -> Option<OpenOutcome> {
        let doomed = self.doomed().filter(|doomed| doomed.pending)?;
        Some(match &doomed.removing {
            Some(ticket) => OpenOutcome::Breaking(ticket.clone()),
            None => OpenOutcome::DeletePending,
        })
    }

    pub(super) fn delete_pending(&self) -> bool {
        self.doomed().is_some_and(|doomed| doomed.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOTHING, Notices, client, file, open, smb, table};
    use super::*;
    use weir_base::{Ino, VolumeId};

    fn removal(name: &[u8]) -> Removal {
        Removal {
            dir: Ino(1),
            name: Arc::from(name),
            alone: false,
        }
    }

    #[test]
    fn a_file_marked_for_deletion_goes_with_its_last_close() {
        let t = table();
        let sink = Notices::attached(&t);
        let (a, b, c) = (smb(1, 1), smb(1, 2), smb(2, 1));
        let f = file(1);
        let deletes = Modes::READ | Modes::DELETE;
        let delete = |owner: &Owner| Notice::Delete {
            file: f,
            owner: owner.clone(),
            removal: removal(b"name"),
        };
        let name = removal(b"name");
        assert_eq!(t.mark(f, &a, DeleteMode::Now, &name), MarkOutcome::NotOpen);
        assert_eq!(open(&t, f, &a, deletes, Modes::NONE), OpenOutcome::Granted);
        assert_eq!(
            open(&t, f, &b, Modes::READ, Modes::NONE),
            OpenOutcome::Granted
        );
        assert_eq!(
            t.mark(f, &b, DeleteMode::Now, &name),
            MarkOutcome::NotOpen,
            "it may not"
        );

        // At its close: until then others open it.
        assert_eq!(t.mark(f, &a, DeleteMode::OnClose, &name), MarkOutcome::Yes);
        assert!(!t.delete_pending(f));
        assert_eq!(
            open(&t, f, &c, Modes::READ, Modes::NONE),
            OpenOutcome::Granted
        );
        t.close(f, &c);
        t.close(f, &a);
        assert!(t.delete_pending(f));
        assert_eq!(
            open(&t, f, &c, Modes::READ, Modes::NONE),
            OpenOutcome::DeletePending
        );
        // An existing open stays valid, and may change its modes.
        assert_eq!(
            open(&t, f, &b, Modes::BOTH, Modes::NONE),
            OpenOutcome::Granted
        );
        assert_eq!(sink.take(), []);
        assert!(t.close(f, &b));
        assert_eq!(sink.take(), [delete(&a)]);
        // Until the name is gone nobody gets at it, and who asks waits.
        let OpenOutcome::Breaking(removal) = open(&t, f, &c, Modes::READ, Modes::NONE) else {
            panic!("it is being removed");
        };
        assert_eq!(t.removing(f).as_ref(), Some(&removal));
        assert!(!removal.is_over());
        t.deleted(f);
        assert!(removal.is_over());
        assert_eq!(t.totals(), NOTHING);
        assert_eq!(
            open(&t, f, &c, Modes::READ, Modes::NONE),
            OpenOutcome::Granted
        );
        t.close(f, &c);

        // At once, and taken back.
        assert_eq!(open(&t, f, &a, deletes, Modes::NONE), OpenOutcome::Granted);
        assert_eq!(t.mark(f, &a, DeleteMode::Now, &name), MarkOutcome::Yes);
        assert_eq!(
            open(&t, f, &c, Modes::READ, Modes::NONE),
            OpenOutcome::DeletePending
        );
        assert!(!t.unmark(f, &c));
        assert!(t.unmark(f, &a));
        assert_eq!(
            open(&t, f, &c, Modes::READ, Modes::NONE),
            OpenOutcome::Granted
        );
        // Whatever ends the opens: a client that goes.
        assert_eq!(t.mark(f, &a, DeleteMode::Now, &name), MarkOutcome::Yes);
        t.close(f, &c);
        t.release(&[client(9), a.client.clone()]);
        assert_eq!(sink.take(), [delete(&a)]);
        // With its volume, nothing is left to remove.
        t.revoke(VolumeId(2));
        assert!(t.delete_pending(f));
        let removal = t.removing(f).expect("nobody has it open");
        t.revoke(VolumeId(1));
        assert!(removal.is_over());
        t.deleted(f);
        assert_eq!((t.totals(), sink.take()), (NOTHING, vec![]));
    }
}

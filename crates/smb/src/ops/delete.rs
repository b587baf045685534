//! Removing the names of files that are marked for deletion. See [`crate::open::deletions`].

use crate::conn::server::Service;
use crate::context::run::Failure;
use crate::open::deletions::{Deletion, Mark, RemovalKind};
use crate::open::session::Access;
use weir_vfs::claims::{Event, Passage, Removal, Style};
use weir_vfs::{
    AccessModel, Admissions, FileId, Flavour, MetadataWrite, Namespace, OpContext, OpResult,
    Protocol, Stop, Suspend, Transport, Vfs,
};

/// Breaks the handle caching of others, so that they close files that they keep open for later use,
/// before a file is marked. No cached open may be in the way of the removal (MS-FSA §2.1.5.15.3).
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
        let (dir, charged) = admitted.charge(&self.vfs, cx, MetadataWrite)?;
        // Another file may have the name by now.
        let found = match mark.what {
            RemovalKind::Stream => dir.stream(cx, &removal.name).map(|(s, _)| s.attr.ino),
            RemovalKind::Name => dir.listed(cx, &removal.name).map(|(f, _)| f.ino),
        };
        match found {
            Ok(ino) if ino == file.ino => {}
            Ok(_) => return Ok(None),
            Err(Stop::Failed(weir_vfs::Error::NotFound)) => return Ok(None),
            Err(why) => return Err(why),
        }
        Ok(match mark.what {
            RemovalKind::Name => dir.remove_any(cx, charged, &removal.name)?.lsn,
            RemovalKind::Stream => dir.move_stream(cx, charged, &removal.name, None)?.lsn,
        })
    }

    /// Does a deletion to its end.
    pub(crate) async fn delete(&self, deletion: Deletion) {
        let mut cx = OpContext::new(self.clock.current_time(), 0, None);
        while let Err(Stop::Suspended(suspend)) = self.remove(&deletion, &mut cx) {
            if cx.resume(&self.vfs, suspend).await.is_err() {
                self.vfs.claims.deleted(deletion.file);
                break;
            }
        }
        cx.settle_charge(&self.vfs.throttle);
    }
}

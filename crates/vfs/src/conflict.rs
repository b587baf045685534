//! Questions of operations to the table of claims: for data that are read, written and cut and for
//! attributes ([`with_claims_check`]), and for names ([`Operand::pass_names`]).
//!
//! They are asked after permissions, and nothing is logged before they have passed. On files and
//! volumes without claims that bind others that is one relaxed load (`claims::hints`, also for why
//! it is taken under the file's lock). One more load says that no client may claim anything binding
//! again.
//!
//! **While clients may claim again** what they had before a start (`grace`), operations outside of
//! what has been claimed since then could conflict with it. They wait if one of these clients may
//! have had something in the file that binds reads, or writes and names. Directories are not waited
//! for: what may be claimed again of one conflicts with no change of its entries. A client that has
//! claimed holds only what does not conflict with the others' claims.

use crate::EngineContext;
use crate::claims::{ClaimsVersion, Event, Passage, Range};
use crate::error::{Error, Halt};
use crate::grace::Kinds;
use crate::handle::{FileId, Namespace};
use crate::pipeline::Operand;
use crate::session::AccessModel;
use weir_base::Ino;
use weir_volume::{self as volume, FileKind, FsError};

/// Kinds of claims that bind reads and writes.
const BINDING: Kinds = Kinds::READS.or(Kinds::WRITES);

/// A name in a directory that is about to change, and whether something has it that goes or moves.
pub(crate) type Change<'a> = (Ino, Option<&'a [u8]>);

/// Bytes of a file that are about to be read or written; `None`: all behind the offset.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    pub(crate) ino: Ino,
    pub(crate) write: bool,
    pub(crate) offset: u64,
    pub(crate) len: Option<u64>,
}

impl Io {
    pub(crate) fn read(ino: Ino, offset: u64, len: usize) -> Io {
        Io {
            ino,
            write: false,
            offset,
            len: Some(len as u64),
        }
    }

    pub(crate) fn write(ino: Ino, offset: u64, len: usize) -> Io {
        Io {
            write: true,
            ..Io::read(ino, offset, len)
        }
    }

    /// Returns the bytes of a file that a cut to `size` concerns: all behind what is left of it.
    pub(crate) fn cut(ino: Ino, size: u64) -> Io {
        Io {
            ino,
            write: true,
            offset: size,
            len: None,
        }
    }
}

impl<A: AccessModel> Operand<'_, A> {
    pub(crate) fn claimed(&self, ino: Ino) -> FileId {
        FileId {
            volume: self.export.volume.id(),
            ino,
            namespace: Namespace::Live,
        }
    }

    /// Waits for the clients that may reclaim something of a kind in a file.
    fn await_reclaims(&self, kind: Kinds, file: FileId) -> Result<(), Halt> {
        if !self.access.awaits_reclaims() {
            return Ok(());
        }
        let waits = self.grace.ticket(kind, file);
        waits.map_or(Ok(()), |ticket| Err(Halt::Recall(ticket)))
    }

    /// Checks that what the table said when `version` was read still holds; without `version`, that
    /// it need not be asked. It is called under the file's lock, before anything is done.
    pub(crate) fn check_claims_version(
        &self,
        ino: Ino,
        version: Option<ClaimsVersion>,
    ) -> Result<(), Halt> {
        // The content of a snapshot does not change.
        if self.file.namespace != Namespace::Live {
            return Ok(());
        }
        let file = self.claimed(ino);
        let now = self.claims.version_of(file);
        let may_wait = || self.grace.binds(BINDING, file) && self.access.awaits_reclaims();
        match (now.none() && !may_wait()) || Some(now) == version {
            true => Ok(()),
            false => Err(Halt::Claimed),
        }
    }

    /// Asks the table whether others let bytes be read or written.
    pub(crate) fn check_io_claims(&self, io: Io) -> Result<ClaimsVersion, Halt> {
        let file = self.claimed(io.ino);
        let version = self.claims.version_of(file);
        let kind = match io.write {
            true => Kinds::WRITES,
            false => Kinds::READS,
        };
        self.await_reclaims(kind, file)?;
        let behind = Range {
            start: io.offset,
            last: u64::MAX,
        };
        let range = io.len.and_then(|len| Range::exact(io.offset, len));
        let range = range.unwrap_or(behind);
        result(self.claims.io(file, self.access.actor(), io.write, range))?;
        Ok(version)
    }

    /// Asks the table whether others let attributes of a file be changed, or another name be given
    /// to it.
    pub(crate) fn check_attribute_claims(&self) -> Result<ClaimsVersion, Halt> {
        let version = self.claims.version_of(self.claimed(self.file.ino));
        self.check_file_claims(self.file.ino, Event::Attributes)?;
        Ok(version)
    }

    fn check_file_claims(&self, ino: Ino, event: Event) -> Result<(), Halt> {
        let (file, actor) = (self.claimed(ino), self.access.actor());
        self.await_reclaims(Kinds::WRITES, file)?;
        result(self.claims.names(file, actor, event, self.export.style))
    }

    /// Asks the table whether others let a directory's entries or its name be changed.
    fn check_directory_claims(&self, dir: Ino, event: Event) -> Result<(), Halt> {
        let actor = self.access.actor();
        result(
            self.claims
                .names(self.claimed(dir), actor, event, self.export.style),
        )
    }

    /// Checks that others let these names be changed; with `linked`, also that this file gets
    /// another one.
    pub(crate) fn pass_names(
        &self,
        cx: &mut EngineContext,
        changes: &[Change<'_>],
        linked: Option<Ino>,
    ) -> Result<ClaimsVersion, Halt> {
        let volume = self.export.volume.id();
        let version = self.claims.version_in(volume);
        let may_wait =
            || self.grace.binds_in(Kinds::WRITES, volume) && self.access.awaits_reclaims();
        if version.none() && !may_wait() {
            return Ok(version);
        }
        for (dir, name) in changes {
            self.check_directory_claims(*dir, Event::Entries)?;
            let Some(name) = name else {
                // Only the directory changes.
                continue;
            };
            match self.export.volume.lookup(cx, *dir, name) {
                Ok(found) if found.attr.kind == FileKind::Directory => {
                    self.check_directory_claims(found.ino, Event::Name)?;
                }
                Ok(found) => self.check_file_claims(found.ino, Event::Name)?,
                Err(volume::Stop::Fail(FsError::NotFound)) => {}
                Err(stop) => return Err(stop.into()),
            }
        }
        linked.map_or(Ok(()), |ino| self.check_file_claims(ino, Event::Attributes))?;
        Ok(version)
    }

    /// Names have been changed. Has caches broken that were granted since `version`, for which the
    /// change did not wait.
    pub(crate) fn names_changed<const N: usize>(
        &self,
        version: ClaimsVersion,
        changed: [(Option<Ino>, Event); N],
    ) {
        if self.claims.version_in(self.export.volume.id()) == version {
            return;
        }
        for (ino, event) in changed {
            if let Some(ino) = ino {
                let (file, actor) = (self.claimed(ino), self.access.actor());
                // The change is made: whatever this says.
                let _ = self.claims.names(file, actor, event, self.export.style);
            }
        }
    }
}

/// Runs `operation`, which calls [`Operand::check_claims_version`] with what it is given before it
/// does anything; has the table asked when there are claims, and runs it again.
pub(crate) fn with_claims_check<C, H: Copy, T>(
    cx: &mut C,
    mut operation: impl FnMut(&mut C, Option<H>) -> Result<T, Halt>,
    mut ask: impl FnMut(&mut C) -> Result<H, Halt>,
) -> Result<T, Halt> {
    let mut version = None;
    loop {
        match operation(cx, version) {
            Err(Halt::Claimed) => version = Some(ask(cx)?),
            done => return done,
        }
    }
}

pub(crate) fn result(passage: Passage) -> Result<(), Halt> {
    match passage {
        Passage::Free => Ok(()),
        Passage::Denied | Passage::Locked => Err(Error::Locked.into()),
        Passage::Breaking(ticket) => Err(Halt::Recall(ticket)),
    }
}

//! Where operations ask the table of claims: reads, writes and cuts in [`Operand::pass_io`], names and attributes in
//! [`Operand::pass_names`] and [`Operand::pass_attributes`]. NFSv3 has no opens, so it asks as nobody.
//!
//! They are asked after permissions and before the volume is, which logs nothing before they have passed. On files and
//! volumes without claims that bind others that is one relaxed load.

use crate::Cx;
use crate::claims::{Actor, Event, Passage, Range, Style};
use crate::error::{Error, Halt};
use crate::handle::{FileId, Namespace};
use crate::pipeline::Operand;
use weir_base::Ino;
use weir_volume::{FsError, Stop};

/// A name in a directory that is about to change, and whether something has it that goes or moves.
pub(crate) type Change<'a> = (Ino, Option<&'a [u8]>);

/// What NFSv3 replies: ACCES where another client forbids it, JUKEBOX while one answers a break.
fn result(passage: Passage) -> Result<(), Error> {
    match passage {
        Passage::Free => Ok(()),
        Passage::Denied | Passage::Locked => Err(Error::Access),
        Passage::Breaking(_) => Err(Error::Delay),
    }
}

impl<A> Operand<'_, A> {
    fn claimed(&self, ino: Ino) -> FileId {
        FileId {
            volume: self.export.volume.id(),
            ino,
            namespace: Namespace::Live,
        }
    }

    /// Whether others let `len` bytes from `offset` be read or written; `None`: all behind it.
    pub(crate) fn pass_io(&self, write: bool, offset: u64, len: Option<u64>) -> Result<(), Error> {
        self.pass_io_of(self.file.ino, write, offset, len)
    }

    /// As [`Operand::pass_io`], of another file of the volume.
    pub(crate) fn pass_io_of(
        &self,
        ino: Ino,
        write: bool,
        offset: u64,
        len: Option<u64>,
    ) -> Result<(), Error> {
        let file = self.claimed(ino);
        // What is in a snapshot does not change.
        if self.file.namespace != Namespace::Live || self.claims.unclaimed(file) {
            return Ok(());
        }
        let behind = Range {
            start: offset,
            last: u64::MAX,
        };
        let range = len.and_then(|len| Range::exact(offset, len));
        let range = range.unwrap_or(behind);
        result(self.claims.io(file, Actor::Stateless, write, range))
    }

    /// Whether others let attributes of a file be changed, or another name be given to it.
    pub(crate) fn pass_attributes(&self) -> Result<(), Error> {
        self.pass(self.file.ino, Event::Attributes)
    }

    fn pass(&self, ino: Ino, event: Event) -> Result<(), Error> {
        let file = self.claimed(ino);
        if self.claims.unclaimed(file) {
            return Ok(());
        }
        // Security styles come with SMB.
        let style = Style::Unix;
        result(self.claims.names(file, Actor::Stateless, event, style))
    }

    /// Whether others let these names be changed.
    pub(crate) fn pass_names(&self, cx: &mut Cx, changes: &[Change<'_>]) -> Result<(), Halt> {
        if self.claims.unclaimed_volume(self.export.volume.id()) {
            return Ok(());
        }
        for (dir, name) in changes {
            self.pass(*dir, Event::Entries)?;
            let Some(name) = name else {
                // Only the directory changes.
                continue;
            };
            match self.export.volume.lookup(cx, *dir, name) {
                Ok(found) => self.pass(found.ino, Event::Name)?,
                Err(Stop::Fail(FsError::NotFound)) => {}
                Err(stop) => return Err(stop.into()),
            }
        }
        Ok(())
    }
}

//! Merges a difference into the manifest of the backup before.
//!
//! Differences come in the order of their keys. Segments between them are referred to again without
//! being read.

use std::collections::VecDeque;

use weir_base::limits::backup as limits;
use weir_volume::Position;

use crate::chunk::Chunk;
use crate::error::BackupError;
use crate::manifest::{Entry, Segment, Segments};
use crate::pack::Packer;
use crate::refs::packs_of;

/// A segment under construction.
struct Open {
    /// Position of its first entry.
    first: Position,
    /// Its entries, encoded.
    bytes: Vec<u8>,
    /// Chunks that they refer to.
    pieces: Vec<Chunk>,
}

/// A manifest under construction.
pub(crate) struct Merge<'v> {
    old: Segments<'v>,
    /// Entries of the old segment that differences are in.
    entries: VecDeque<Entry>,
    open: Option<Open>,
    segments: Vec<Segment>,
    lists: Vec<Chunk>,
    packer: Packer<'v>,
}

impl<'v> Merge<'v> {
    /// Begins with the manifest of `lists`, which may be none.
    pub(crate) fn new(packer: Packer<'v>, lists: Vec<Chunk>) -> Merge<'v> {
        Merge {
            old: Segments::new(packer.vault(), lists),
            entries: VecDeque::new(),
            open: None,
            segments: Vec::new(),
            lists: Vec::new(),
            packer,
        }
    }

    /// Returns the packer, which takes chunks.
    pub(crate) fn packer(&mut self) -> &mut Packer<'v> {
        &mut self.packer
    }

    /// Takes over all old entries before `at`, and returns the one that is there.
    pub(crate) fn advance(&mut self, at: Position) -> Result<Option<Entry>, BackupError> {
        loop {
            while let Some(entry) = self.entries.front() {
                if entry.position() >= at {
                    let found = entry.position() == at;
                    return Ok(match found {
                        true => self.entries.pop_front(),
                        false => None,
                    });
                }
                if let Some(entry) = self.entries.pop_front() {
                    self.push(&entry)?;
                }
            }
            let Some((segment, end)) = self.old.peek()? else {
                return Ok(None);
            };
            if at < segment.first {
                return Ok(None);
            }
            self.old.pass();
            match end <= at {
                true => self.keep(segment)?,
                false => self.entries = segment.entries(self.packer.vault())?,
            }
        }
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: &Entry) -> Result<(), BackupError> {
        let open = self.open.get_or_insert_with(|| Open {
            first: entry.position(),
            bytes: Vec::new(),
            pieces: Vec::new(),
        });
        entry.put(&mut open.bytes);
        if let Entry::Window { window, .. } = entry {
            open.pieces.extend(&window.pieces);
        }
        match open.bytes.len() >= limits::SEGMENT_BYTES {
            true => self.close(),
            false => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), BackupError> {
        if let Some(open) = self.open.take() {
            let packs = packs_of(open.pieces.iter());
            let chunk = self.packer.add_segment(&open.bytes, packs)?;
            let first = open.first;
            self.segments.push(Segment { first, chunk });
        }
        self.write_list(limits::SEGMENTS_PER_LIST)
    }

    fn keep(&mut self, segment: Segment) -> Result<(), BackupError> {
        self.close()?;
        self.segments.push(segment);
        self.write_list(limits::SEGMENTS_PER_LIST)
    }

    fn write_list(&mut self, least: usize) -> Result<(), BackupError> {
        if self.segments.len() >= least {
            let mut bytes = Vec::new();
            self.segments
                .iter()
                .for_each(|segment| segment.put(&mut bytes));
            self.lists.push(self.packer.add(&bytes)?);
            self.segments.clear();
        }
        Ok(())
    }

    /// Takes over what is left, and uploads all. Returns the lists of segments, and the bytes sent
    /// to the bucket.
    pub(crate) fn finish(mut self) -> Result<(Vec<Chunk>, u64), BackupError> {
        if let Some(last) = self.advance(Position::END)? {
            self.push(&last)?;
        }
        while let Some((segment, _)) = self.old.peek()? {
            self.old.pass();
            self.keep(segment)?;
        }
        self.close()?;
        self.write_list(1)?;
        self.packer.flush()?;
        Ok((self.lists, self.packer.moved()))
    }
}

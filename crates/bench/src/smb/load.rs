//! The loads: which operation comes next on a connection, and whether its responses are right.

use super::args::{SmbArgs, SmbLoad};
use super::wire::{FileId, Open, Request, Response, SAME, status};
use super::working_set::Set;
use crate::args::Pattern;
use crate::counters::{Class, Tally};
use crate::error::BenchError;
use crate::pattern::{self, Rand};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most requests of an operation.
pub const MOST: usize = 3;
/// Bytes of the constant region beyond the greatest block: room for data to start at different
/// places.
const SLACK: usize = 256 << 10;
/// Bytes of a WRITE or READ while the set is made and read once.
pub const CHUNK: u64 = 256 << 10;
/// Longest response to QUERY_DIRECTORY, in bytes.
const LISTING: u32 = 64 << 10;
/// Mismatches described in full; the others are only counted.
const MISMATCHES_SHOWN: u64 = 5;

/// The first letter of a family of names.
pub type Letter = char;
/// Files made beforehand.
pub const FILE: Letter = 'f';
/// Files that the load makes.
pub const CREATED: Letter = 'c';
/// Directories that the load makes.
pub const MADE: Letter = 'm';

/// Work of the connections together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The load.
    Load(SmbLoad),
    /// Make the small files of the set.
    Make,
    /// Fill the files of a data load.
    Fill,
    /// Read them once.
    Preread,
    /// Remove a family of files or directories, numbered below `count`.
    Remove {
        /// The family.
        letter: Letter,
        /// Most of them.
        count: u64,
    },
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// ECHO.
    Echo,
    /// READ of so many bytes.
    Read {
        /// Number of the file.
        file: u32,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
    },
    /// WRITE of so many bytes.
    Write {
        /// Number of the file.
        file: u32,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
        /// Version that the pattern carries; `None`: constant bytes.
        version: Option<u64>,
    },
    /// FLUSH of a file of the set.
    Flush {
        /// Number of the file.
        file: u32,
    },
    /// Opens by name and closes: with a WRITE or a QUERY_INFO between, or nothing.
    Named {
        /// The family of names.
        letter: Letter,
        /// Its number there.
        number: u64,
        /// Parameters of the open.
        how: Open,
        /// Operation on it.
        then: FileAction,
    },
    /// QUERY_DIRECTORY of the slot's directory.
    List {
        /// From its first entry on.
        restart: bool,
    },
}

/// Operation on a file between open and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// Nothing.
    Close,
    /// WRITE of a block.
    Write,
    /// QUERY_INFO.
    Query,
}

/// Load of one connection.
pub struct Load<'a> {
    args: &'a SmbArgs,
    set: &'a Set,
    work: Work,
    /// The number of the next piece of work that the connections share.
    next: &'a AtomicU64,
    files: &'a [FileId],
    listings: &'a [FileId],
    index: u64,
    rand: Rand,
    /// Sequential position: file and offset.
    position: (u64, u64),
    versions: u64,
    /// Files with WRITEs that no FLUSH has followed.
    dirty: Vec<bool>,
    flushes: VecDeque<u32>,
    /// True if the slot's listing begins anew.
    ended: Vec<bool>,
    path: String,
    scratch: Vec<u8>,
}

/// The constant bytes that WRITEs take their data from.
pub fn region(args: &SmbArgs) -> Vec<u8> {
    let mut region = vec![0; args.block_size as usize + SLACK];
    // Seeded apart from the working set: these bytes stand for no file's place.
    let mut rand = Rand::new(!args.run.seed);
    for word in region.chunks_mut(8) {
        let bytes = rand.draw().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    region
}

impl<'a> Load<'a> {
    /// The work of the connection numbered `index`, whose client has these files and listings open.
    pub fn new(
        args: &'a SmbArgs,
        set: &'a Set,
        work: Work,
        next: &'a AtomicU64,
        (files, listings): (&'a [FileId], &'a [FileId]),
        index: u32,
    ) -> Self {
        let index = u64::from(index);
        // Connections beyond one a file start in the middle of theirs.
        let sharing = u64::from(args.connections).div_ceil(set.file_count);
        let start =
            set.file_size / sharing * (index / set.file_count) / args.block_size * args.block_size;
        Self {
            args,
            set,
            work,
            next,
            files,
            listings,
            index,
            rand: Rand::new(args.run.seed ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            position: (index % set.file_count, start),
            versions: 0,
            dirty: vec![false; files.len()],
            flushes: VecDeque::new(),
            ended: vec![true; args.depth as usize],
            path: String::new(),
            scratch: Vec::new(),
        }
    }

    /// The next operation for `slot`; `None` when there is none left.
    pub fn next(&mut self, slot: usize) -> Option<Op> {
        let named = |letter, number, how, then| Op::Named {
            letter,
            number,
            how,
            then,
        };
        Some(match self.work {
            Work::Load(load) => match load {
                SmbLoad::Echo => Op::Echo,
                SmbLoad::Read => self.read(),
                SmbLoad::Write => self.write(),
                SmbLoad::Mix => match self.rand.below(100) < u64::from(self.args.read_percent) {
                    true => self.read(),
                    false => self.write(),
                },
                SmbLoad::Create => named(CREATED, self.number(), Open::NEW, FileAction::Close),
                SmbLoad::CreateWrite => named(CREATED, self.number(), Open::NEW, FileAction::Write),
                SmbLoad::Mkdir => {
                    named(MADE, self.number(), Open::DIRECTORY_NEW, FileAction::Close)
                }
                SmbLoad::Stat => {
                    let number = self.rand.below(self.set.file_count);
                    named(FILE, number, Open::STAT, FileAction::Query)
                }
                SmbLoad::Remove => {
                    let number = self.number_below(self.set.file_count)?;
                    named(FILE, number, Open::DELETE, FileAction::Close)
                }
                SmbLoad::List => Op::List {
                    restart: *self.ended.get(slot)?,
                },
            },
            Work::Make => {
                let number = self.number_below(self.set.file_count)?;
                named(FILE, number, Open::DATA, FileAction::Close)
            }
            Work::Remove { letter, count } => {
                let number = self.number_below(count)?;
                named(letter, number, Open::DELETE, FileAction::Close)
            }
            Work::Fill | Work::Preread => {
                let each = self.set.file_size.div_ceil(CHUNK);
                let number = self.number_below(each * self.set.file_count)?;
                let (file, offset) = ((number / each) as u32, number % each * CHUNK);
                let len = (self.set.file_size - offset).min(CHUNK) as u32;
                match self.work == Work::Fill {
                    true => Op::Write {
                        file,
                        offset,
                        len,
                        version: Some(0),
                    },
                    false => Op::Read { file, offset, len },
                }
            }
        })
    }

    /// Once nothing is in flight and nothing new begins: the FLUSHes still owed.
    pub fn last(&mut self) -> Option<Op> {
        let file = self.dirty.iter().position(|dirty| *dirty)?;
        self.dirty[file] = false;
        Some(Op::Flush { file: file as u32 })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn number_below(&self, count: u64) -> Option<u64> {
        Some(self.number()).filter(|number| *number < count)
    }

    fn block(&mut self) -> (u32, u64) {
        let block = self.args.block_size;
        if self.args.pattern == Pattern::Random {
            let file = self.rand.below(self.set.file_count) as u32;
            return (file, self.rand.below(self.set.file_size / block) * block);
        }
        let (file, offset) = self.position;
        self.position = match offset + 2 * block > self.set.file_size {
            false => (file, offset + block),
            true => {
                if self.dirty.get(file as usize) == Some(&true) {
                    self.flushes.push_back(file as u32);
                }
                // The files of a connection: its own number, then every so many on.
                let after = file + u64::from(self.args.connections);
                let first = self.index % self.set.file_count;
                (
                    if after < self.set.file_count {
                        after
                    } else {
                        first
                    },
                    0,
                )
            }
        };
        (file as u32, offset)
    }

    fn read(&mut self) -> Op {
        let (file, offset) = self.block();
        let len = self.args.block_size as u32;
        Op::Read { file, offset, len }
    }

    fn write(&mut self) -> Op {
        if let Some(file) = self.flushes.pop_front() {
            self.dirty[file as usize] = false;
            return Op::Flush { file };
        }
        let (file, offset) = self.block();
        self.versions += 1;
        let version = (self.index + 1) << 40 | self.versions;
        Op::Write {
            file,
            offset,
            len: self.args.block_size as u32,
            version: self.args.run.verify.then_some(version),
        }
    }

    /// Hands the operation's requests to `send`.
    pub fn encode<R>(
        &mut self,
        slot: usize,
        op: &Op,
        region: &[u8],
        send: impl FnOnce(&[Request<'_>]) -> R,
    ) -> R {
        let file = |file: u32| self.files[file as usize];
        let start = self.rand.below(SLACK as u64 / 64) as usize * 64;
        let constant = |len: usize| &region[start..start + len];
        match *op {
            Op::Echo => send(&[Request::Echo]),
            Op::Read {
                file: f,
                offset,
                len,
            } => send(&[Request::Read {
                file: file(f),
                offset,
                len,
            }]),
            Op::Write {
                file: f,
                offset,
                len,
                version,
            } => {
                let through = self.args.write_through && matches!(self.work, Work::Load(_));
                self.dirty[f as usize] |= !through;
                let data = match version {
                    None => constant(len as usize),
                    Some(version) => {
                        self.scratch.resize(len as usize, 0);
                        let seed = self.args.run.seed;
                        pattern::fill(&mut self.scratch, u64::from(f), offset, seed, version);
                        &self.scratch[..]
                    }
                };
                send(&[Request::Write {
                    file: self.files[f as usize],
                    offset,
                    data,
                    through,
                }])
            }
            Op::Flush { file: f } => send(&[Request::Flush(file(f))]),
            Op::List { restart } => {
                let per = self.args.depth as usize;
                send(&[Request::List {
                    file: self.listings
                        [self.index as usize % self.args.connections as usize * per + slot],
                    restart,
                    len: LISTING,
                }])
            }
            Op::Named {
                letter,
                number,
                how,
                then,
            } => {
                self.path.clear();
                let dir = number % u64::from(self.args.dirs);
                // Writing to a String cannot fail.
                let _ = write!(
                    self.path,
                    "{}\\d{dir:05}\\{letter}{number:010}",
                    self.args.dir
                );
                let create = Request::Create(&self.path, how);
                let close = Request::Close(SAME);
                match then {
                    FileAction::Close => send(&[create, close]),
                    FileAction::Query => send(&[create, Request::Query(SAME), close]),
                    FileAction::Write => {
                        let write = Request::Write {
                            file: SAME,
                            offset: 0,
                            data: constant(self.args.block_size as usize),
                            through: self.args.write_through,
                        };
                        send(&[create, write, close])
                    }
                }
            }
        }
    }

    /// Returns the class of the whole operation, and the bytes that it moves.
    pub fn counts(&self, op: &Op) -> (Class, u64) {
        match *op {
            Op::Read { len, .. } => (Class::Read, u64::from(len)),
            Op::Write { len, .. } => (Class::Write, u64::from(len)),
            Op::Flush { .. } => (Class::Commit, 0),
            Op::Named {
                then: FileAction::Write,
                ..
            } => (Class::Op, self.args.block_size),
            _ => (Class::Op, 0),
        }
    }

    /// Judges the response to the request `place` of an operation: whether that one has succeeded.
    pub fn reply(
        &mut self,
        slot: usize,
        op: &Op,
        place: usize,
        response: &Response<'_>,
        tally: &mut Tally,
    ) -> Result<bool, BenchError> {
        let tolerated = match (op, self.work) {
            (Op::List { .. }, _) if response.status == status::NO_MORE_FILES => {
                self.ended[slot] = true;
                return Ok(true);
            }
            // What another run left, or the load has used up.
            (_, Work::Remove { .. }) => matches!(
                response.status,
                status::OBJECT_NAME_NOT_FOUND | status::DIRECTORY_NOT_EMPTY
            ),
            _ => false,
        };
        if response.status != 0 {
            if !tolerated {
                tally.bad_status(response.status);
            }
            return Ok(false);
        }
        match *op {
            Op::Read { file, offset, len } => {
                let data = response.read()?;
                self.check(file, offset, len, data, tally)?;
            }
            Op::Write { len, .. } => written(response, len, tally)?,
            Op::List { .. } => {
                self.ended[slot] = false;
                tally.entries += response.listed()?;
            }
            Op::Named { then, .. } => match (place, then) {
                (0, _) => {
                    response.created()?;
                }
                (1, FileAction::Write) => written(response, self.args.block_size as u32, tally)?,
                (1, FileAction::Query) => {
                    response.output()?;
                }
                _ => {}
            },
            Op::Echo | Op::Flush { .. } => {}
        }
        Ok(true)
    }

    fn check(
        &self,
        file: u32,
        offset: u64,
        len: u32,
        data: &[u8],
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        if data.len() > len as usize {
            return Err(BenchError::Protocol(format!(
                "READ of {len} bytes: {} came",
                data.len()
            )));
        }
        if data.len() < len as usize {
            tally.short_reads += 1;
        } else if self.args.run.verify
            && let Err((at, mismatch)) =
                pattern::check(data, u64::from(file), offset, self.args.run.seed)
        {
            tally.mismatches += 1;
            if tally.mismatches <= MISMATCHES_SHOWN {
                let note = format!("file {file}, offset {at}: {mismatch}");
                tally.notes.push(note);
            }
        }
        Ok(())
    }
}

fn written(response: &Response<'_>, asked: u32, tally: &mut Tally) -> Result<(), BenchError> {
    match response.written()? {
        count if count == asked => {}
        count if count < asked => tally.short_writes += 1,
        count => {
            return Err(BenchError::Protocol(format!(
                "WRITE of {asked} bytes: {count} written"
            )));
        }
    }
    Ok(())
}

//! The loads: which call comes next on a connection, and whether its reply is right.
//!
//! Each connection has one [`Load`] of its own, so deciding needs no lock; what
//! connections share is two counters ([`RunState`]). A load names calls by small
//! copies ([`Call`]), which lets the engine send one again after NFS3ERR_JUKEBOX. What they
//! look like is the protocol's ([`Wire`]).

use crate::args::{LoadKind, NfsArgs, Pattern};
use crate::counters::{Class, Tally};
use crate::eda_mix::{self, Blend, Kind};
use crate::error::BenchError;
use crate::nfs3::{Handle, ListingReply, Name, Proc, Stable};
use crate::outbox::Outbox;
use crate::pattern::{self, Rand};
use crate::wire::{Id, Turn, Wire};
use crate::working_set::{CREATED, FILE, MADE_DIR, RENAMED, WorkingSet};
use crate::xdr::{Reader, padding};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the constant region beyond the greatest block: room for payloads to
/// start at different places.
const REGION_SLACK: u64 = 256 << 10;
/// All bits of ACCESS (RFC 1813 §3.3.4).
const ACCESS_ALL: u32 = 0x3f;
/// Mode that CREATE gives files and SETATTR gives them again.
const FILE_MODE: u32 = 0o644;
/// Mismatches described in full; the others are only counted.
const MISMATCHES_SHOWN: u64 = 5;

/// One call, small enough to be copied about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// NULL, which does nothing.
    Null,
    /// READ of a block, or of the part that earlier READs of it have not returned.
    Read {
        /// Number of the file in the set.
        file: u32,
        /// Byte offset of the block in the file.
        offset: u64,
        /// Bytes of the block.
        len: u32,
        /// Bytes of the block that were read before.
        had: u32,
    },
    /// WRITE of a block.
    Write {
        /// Number of the file in the set.
        file: u32,
        /// Byte offset in the file.
        offset: u64,
        /// Bytes of the block.
        len: u32,
        /// Version that the pattern carries.
        version: u64,
    },
    /// COMMIT of a file of the set.
    Commit {
        /// Number of the file in the set.
        file: u32,
    },
    /// GETATTR of a file of the set.
    Getattr {
        /// Number of the file in the set.
        file: u32,
    },
    /// ACCESS of a file of the set.
    Access {
        /// Number of the file in the set.
        file: u32,
    },
    /// LOOKUP of a file of the set.
    Lookup {
        /// Number of the file in the set.
        file: u32,
    },
    /// SETATTR of the mode of a file of the set.
    Chmod {
        /// Number of the file in the set.
        file: u32,
    },
    /// CREATE of a new file.
    Create {
        /// Number of the new file.
        number: u64,
    },
    /// WRITE of one block to the file this slot just made.
    WriteNew,
    /// COMMIT of the file this slot just made.
    CommitNew,
    /// CLOSE of the file this slot just made, where making opened it.
    CloseNew,
    /// MKDIR of a new directory.
    Mkdir {
        /// Number of the new directory.
        number: u64,
    },
    /// REMOVE of a file that the load made.
    RemoveMade {
        /// Number that the load gave the file.
        number: u64,
    },
    /// REMOVE of a file of the set.
    Remove {
        /// Number of the file in the set.
        number: u64,
    },
    /// RENAME of a file of the set to its other name, or back.
    Rename {
        /// Number of the file in the set.
        number: u64,
        /// Back to the first name.
        back: bool,
    },
    /// READDIR or READDIRPLUS from a position on.
    List {
        /// Number of the directory in the set.
        dir: u32,
        /// Cookie and cookie verifier.
        position: (u64, [u8; 8]),
    },
}

/// Next step of a slot after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The operation is complete.
    Done {
        /// Class of the operation.
        class: Class,
        /// Bytes of file data moved.
        bytes: u64,
    },
    /// The operation goes on with this call.
    Then(Call),
    /// The call is sent again later.
    Again,
    /// The operation failed; the tally knows.
    Failed,
    /// More of the reply is needed to judge it.
    Incomplete,
}

/// State that the connections of a run share.
#[derive(Debug, Default)]
pub struct RunState {
    /// Next number of what the load makes or uses up.
    pub next: AtomicU64,
}

/// Part of a connection in its client.
#[derive(Clone, Copy)]
pub struct ClientContext<'a> {
    /// Encoding of calls and replies.
    pub wire: &'a dyn Wire,
    /// The files of the working set, by number, opened where files are.
    pub files: &'a [Handle],
    /// The connection's first slot in its session.
    pub first_slot: u32,
}

/// Load of one connection.
pub struct Load<'a> {
    args: &'a NfsArgs,
    set: &'a WorkingSet,
    shared: &'a RunState,
    seat: ClientContext<'a>,
    region_len: u64,
    rand: Rand,
    /// This connection's number in the run.
    index: u64,
    /// Sequential position: file and offset.
    position: (u64, u64),
    versions: u64,
    /// By file; empty if writes are stable.
    written: Vec<FileWrites>,
    commits: VecDeque<u32>,
    slots: Vec<SlotState>,
    /// Numbers of the files that the blend made and has not removed.
    made: VecDeque<u64>,
}

/// Writes of a connection to one file.
#[derive(Debug, Clone, Copy, Default)]
struct FileWrites {
    /// The write verifier of the last reply: each server of a large volume has its own.
    verifier: Option<[u8; 8]>,
    /// WRITEs without a reply yet.
    flying: u32,
    /// Bytes acknowledged since the last COMMIT was sent.
    uncommitted: u64,
    /// After a pass over the file: replies until its WRITEs can be taken as complete (servers reply
    /// nearly in order), which is when its COMMIT is due.
    closing: Option<u32>,
}

/// State of a slot between operations.
#[derive(Clone, Copy, Default)]
struct SlotState {
    /// Calls that the server counts in the slot of the session, and the number of the call in
    /// flight.
    counted: u32,
    sent: u32,
    new_file: Option<Handle>,
    /// The write verifier of the WRITE to it.
    verifier: Option<[u8; 8]>,
    /// The number that the load gave it.
    new_number: u64,
    list: (u64, [u8; 8]),
    list_dir: u32,
    renames: u64,
}

/// Length of the constant region for blocks of `block` bytes.
pub fn region_len(block: u64) -> u64 {
    block + REGION_SLACK
}

impl<'a> Load<'a> {
    /// The load of the connection numbered `index`.
    pub fn new(
        args: &'a NfsArgs,
        set: &'a WorkingSet,
        shared: &'a RunState,
        seat: ClientContext<'a>,
        index: u32,
    ) -> Self {
        let index = u64::from(index);
        // Connections beyond one a file start in the middle of theirs.
        let sharing = (u64::from(args.connections)).div_ceil(set.file_count);
        let start =
            set.file_size / sharing * (index / set.file_count) / args.block_size * args.block_size;
        let slots = (0..args.depth)
            .map(|s| SlotState {
                list_dir: (s + args.depth * index as u32) % args.dirs.max(1),
                ..SlotState::default()
            })
            .collect();
        Self {
            args,
            set,
            shared,
            seat,
            region_len: region_len(args.block_size),
            rand: Rand::new(args.run.seed ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            index,
            position: (index % set.file_count, start),
            versions: 0,
            // Stable writes need no COMMIT and survive a restart; sets may have very many files.
            written: match args.stability {
                Stable::Unstable => vec![FileWrites::default(); set.files.len()],
                Stable::DataSync | Stable::FileSync => Vec::new(),
            },
            commits: VecDeque::new(),
            slots,
            made: VecDeque::new(),
        }
    }

    /// Returns true if READ data may be discarded unread.
    pub fn discards_reads(&self) -> bool {
        !self.args.run.verify
    }

    /// The next operation's first call for `slot`; `None` when there is none left.
    pub fn next(&mut self, slot: usize) -> Option<Call> {
        Some(match self.args.load {
            LoadKind::Null => Call::Null,
            LoadKind::Read => self.next_read(),
            LoadKind::Write => self.next_write(),
            LoadKind::Mix | LoadKind::EdaBackEnd => {
                if self.rand.below(100) < u64::from(self.args.read_percent) {
                    self.next_read()
                } else {
                    self.next_write()
                }
            }
            LoadKind::Eda => self.next_of_blend(eda_mix::EDA_LIKE, slot)?,
            LoadKind::EdaFrontEnd => self.next_of_blend(eda_mix::FRONT_END, slot)?,
            LoadKind::Getattr => Call::Getattr {
                file: self.random_file(),
            },
            LoadKind::Access => Call::Access {
                file: self.random_file(),
            },
            LoadKind::Lookup => Call::Lookup {
                file: self.random_file(),
            },
            LoadKind::Create | LoadKind::CreateWriteCommit => Call::Create {
                number: self.take_number(),
            },
            LoadKind::Mkdir => Call::Mkdir {
                number: self.take_number(),
            },
            LoadKind::Remove => {
                let number = self.take_number();
                if number >= self.set.file_count {
                    return None;
                }
                Call::Remove { number }
            }
            LoadKind::Rename => self.next_rename(slot)?,
            LoadKind::Readdir | LoadKind::Readdirplus => {
                let state = self.slots.get(slot)?;
                Call::List {
                    dir: state.list_dir,
                    position: state.list,
                }
            }
        })
    }

    fn next_of_blend(&mut self, blend: &Blend, slot: usize) -> Option<Call> {
        Some(match eda_mix::draw(blend, &mut self.rand) {
            Kind::Getattr => Call::Getattr {
                file: self.random_file(),
            },
            Kind::Access => Call::Access {
                file: self.random_file(),
            },
            Kind::Lookup => Call::Lookup {
                file: self.random_file(),
            },
            Kind::Chmod => Call::Chmod {
                file: self.random_file(),
            },
            Kind::Readdirplus => {
                let state = self.slots.get(slot)?;
                Call::List {
                    dir: state.list_dir,
                    position: state.list,
                }
            }
            Kind::Create => Call::Create {
                number: self.take_number(),
            },
            Kind::Mkdir => Call::Mkdir {
                number: self.take_number(),
            },
            Kind::Remove => match self.made.pop_front() {
                Some(number) => Call::RemoveMade { number },
                None => Call::Create {
                    number: self.take_number(),
                },
            },
            Kind::Read => self.next_read(),
            Kind::Write => self.next_write(),
            Kind::ReadFile => self.read_part(1),
            Kind::ReadPart => self.read_part(eda_mix::PARTS),
            Kind::WriteFile => self.write_part(1),
            Kind::WritePart => self.write_part(eda_mix::PARTS),
        })
    }

    /// Returns true if directories are listed with attributes.
    fn lists_attributes(&self) -> bool {
        self.args.load == LoadKind::Readdirplus || self.args.load.is_blend()
    }

    /// Once nothing is in flight and nothing new begins: the COMMITs still owed.
    pub fn last(&mut self) -> Option<Call> {
        if let Some(file) = self.commits.pop_front() {
            return Some(self.commit(file));
        }
        let file = self.written.iter().position(|w| w.uncommitted > 0)?;
        Some(self.commit(file as u32))
    }

    fn take_number(&self) -> u64 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    fn random_file(&mut self) -> u32 {
        self.rand.below(self.set.file_count) as u32
    }

    /// Returns the file and the offset of one of the `parts` of a block, drawn from all files.
    fn random_part(&mut self, parts: u64) -> (u32, u64, u64) {
        let file = self.random_file();
        let len = self.args.block_size / parts;
        let places = self.set.file_size / len;
        (file, self.rand.below(places) * len, len)
    }

    fn read_part(&mut self, parts: u64) -> Call {
        let (file, offset, len) = self.random_part(parts);
        Call::Read {
            file,
            offset,
            len: len as u32,
            had: 0,
        }
    }

    fn write_part(&mut self, parts: u64) -> Call {
        let (file, offset, len) = self.random_part(parts);
        self.write(file, offset, len)
    }

    fn next_block(&mut self) -> (u32, u64) {
        let block = self.args.block_size;
        match self.args.pattern {
            Pattern::Random => {
                let file = self.random_file();
                let blocks = self.set.file_size / block;
                (file, self.rand.below(blocks) * block)
            }
            Pattern::Sequential => {
                let (file, offset) = self.position;
                let mut next = (file, offset + block);
                if next.1 + block > self.set.file_size {
                    // The files of a connection: its own number, then every so many on.
                    let step = u64::from(self.args.connections);
                    let file_count = self.set.file_count;
                    let next_file = file + step;
                    next = (
                        if next_file < file_count {
                            next_file
                        } else {
                            self.index % file_count
                        },
                        0,
                    );
                    if let Some(w) = self.written.get_mut(file as usize) {
                        w.closing = Some(w.flying + 1);
                    }
                }
                self.position = next;
                (file as u32, offset)
            }
        }
    }

    fn commit(&mut self, file: u32) -> Call {
        if let Some(w) = self.written.get_mut(file as usize) {
            w.uncommitted = 0;
        }
        Call::Commit { file }
    }

    fn next_read(&mut self) -> Call {
        let (file, offset) = self.next_block();
        Call::Read {
            file,
            offset,
            len: self.args.block_size as u32,
            had: 0,
        }
    }

    fn next_write(&mut self) -> Call {
        if let Some(file) = self.commits.pop_front() {
            return self.commit(file);
        }
        let (file, offset) = self.next_block();
        self.write(file, offset, self.args.block_size)
    }

    fn write(&mut self, file: u32, offset: u64, len: u64) -> Call {
        if let Some(w) = self.written.get_mut(file as usize) {
            w.flying += 1;
        }
        self.versions += 1;
        Call::Write {
            file,
            offset,
            len: len as u32,
            version: (self.index + 1) << 40 | self.versions,
        }
    }

    /// Slots own disjoint sets of files, so that two renames never meet.
    fn next_rename(&mut self, slot: usize) -> Option<Call> {
        let slots = u64::from(self.args.connections) * u64::from(self.args.depth);
        let first = self.index * u64::from(self.args.depth) + slot as u64;
        if first >= self.set.file_count {
            return None;
        }
        let own = (self.set.file_count - first).div_ceil(slots);
        let state = self.slots.get_mut(slot)?;
        let turn = state.renames;
        state.renames += 1;
        Some(Call::Rename {
            number: first + (turn % own) * slots,
            back: (turn / own) % 2 == 1,
        })
    }

    fn file(&self, file: u32) -> Option<&Handle> {
        self.seat.files.get(file as usize)
    }

    /// Encodes `call` for sending.
    pub fn encode(&mut self, slot: usize, call: &Call, xid: u32, out: &mut Outbox) {
        let c = self.seat.wire;
        let Some(state) = self.slots.get_mut(slot) else {
            return;
        };
        state.sent = state.counted + 1;
        let id = Id {
            xid,
            turn: Turn {
                slot: self.seat.first_slot + slot as u32,
                sequence: state.sent,
            },
        };
        let set = self.set;
        let block = self.args.block_size as u32;
        match *call {
            Call::Null => out.encode(|o| c.null(o, id)),
            Call::Read {
                file,
                offset,
                len,
                had,
            } => {
                if let Some(fh) = self.file(file) {
                    let offset = offset + u64::from(had);
                    out.encode(|o| c.read(o, id, fh, offset, len.saturating_sub(had)));
                }
            }
            Call::Write {
                file,
                offset,
                len,
                version,
            } => {
                self.encode_write(id, (file, offset, len), version, out);
            }
            Call::WriteNew => {
                let Some(fh) = self.slots.get(slot).and_then(|s| s.new_file) else {
                    return;
                };
                let stability = self.args.stability;
                out.encode(|o| c.write_head(o, id, &fh, 0, block, stability));
                self.constant_payload(out, u64::from(block));
                out.encode(|o| c.write_tail(o));
            }
            Call::CommitNew => {
                if let Some(fh) = self.slots.get(slot).and_then(|s| s.new_file) {
                    out.encode(|o| c.commit(o, id, &fh));
                }
            }
            Call::CloseNew => {
                if let Some(fh) = self.slots.get(slot).and_then(|s| s.new_file) {
                    out.encode(|o| c.close(o, id, &fh));
                }
            }
            Call::Commit { file } => {
                if let Some(fh) = self.file(file) {
                    out.encode(|o| c.commit(o, id, fh));
                }
            }
            Call::Getattr { file } => {
                if let Some(fh) = self.file(file) {
                    out.encode(|o| c.of_handle(o, id, Proc::Getattr, fh));
                }
            }
            Call::Access { file } => {
                if let Some(fh) = self.file(file) {
                    out.encode(|o| c.access(o, id, fh, ACCESS_ALL));
                }
            }
            Call::Chmod { file } => {
                if let Some(fh) = self.file(file) {
                    out.encode(|o| c.set_mode(o, id, fh, FILE_MODE));
                }
            }
            Call::Lookup { file } => {
                let number = u64::from(file);
                let name = name_bytes(FILE, number);
                out.encode(|o| c.of_name(o, id, Proc::Lookup, set.dir_of(number), &name));
            }
            Call::Create { number } => {
                let name = name_bytes(CREATED, number);
                out.encode(|o| c.create(o, id, set.dir_of(number), &name));
            }
            Call::Mkdir { number } => {
                let name = name_bytes(MADE_DIR, number);
                out.encode(|o| c.mkdir(o, id, set.dir_of(number), &name));
            }
            Call::RemoveMade { number } => {
                let name = name_bytes(CREATED, number);
                out.encode(|o| c.of_name(o, id, Proc::Remove, set.dir_of(number), &name));
            }
            Call::Remove { number } => {
                let name = name_bytes(FILE, number);
                out.encode(|o| c.of_name(o, id, Proc::Remove, set.dir_of(number), &name));
            }
            Call::Rename { number, back } => {
                let dir = set.dir_of(number);
                let (from, to) = if back {
                    (RENAMED, FILE)
                } else {
                    (FILE, RENAMED)
                };
                let (from, to) = (name_bytes(from, number), name_bytes(to, number));
                out.encode(|o| c.rename(o, id, (dir, &from), (dir, &to)));
            }
            Call::List { dir, position } => {
                let plus = self.lists_attributes();
                if let Some(fh) = set.dirs.get(dir as usize) {
                    out.encode(|o| c.readdir(o, id, fh, position, block, plus));
                }
            }
        }
    }

    /// Encodes a WRITE of a block, which is a file, an offset and a length.
    fn encode_write(
        &mut self,
        id: Id,
        (file, offset, len): (u32, u64, u32),
        version: u64,
        out: &mut Outbox,
    ) {
        let wire = self.seat.wire;
        let seed = self.args.run.seed;
        let verify = self.args.run.verify;
        let stability = self.args.stability;
        let Some(fh) = self.file(file) else { return };
        out.encode(|o| {
            wire.write_head(o, id, fh, offset, len, stability);
            if verify {
                let start = o.len();
                o.resize(start + len as usize, 0);
                if let Some(data) = o.get_mut(start..) {
                    pattern::fill(data, u64::from(file), offset, seed, version);
                }
            }
        });
        if !verify {
            self.constant_payload(out, u64::from(len));
        }
        out.encode(|o| wire.write_tail(o));
    }

    /// Payloads start at changing places of the region, so that no two neighbours on
    /// the device are alike.
    fn constant_payload(&mut self, out: &mut Outbox, len: u64) {
        let start = self.rand.below((self.region_len - len) / 64) * 64;
        out.constant(start as usize, len as usize);
    }

    /// Judges the reply to `call`: `r` is positioned after the RPC header, and `missing` bytes of
    /// the record are not received yet (only for READs with data that is discarded).
    pub fn reply(
        &mut self,
        slot: usize,
        call: &Call,
        r: &mut Reader<'_>,
        missing: usize,
        tally: &mut Tally,
    ) -> Result<Step, BenchError> {
        let op = Step::Done {
            class: Class::Op,
            bytes: 0,
        };
        if *call == Call::Null {
            return Ok(op);
        }
        let wire = self.seat.wire;
        let status = {
            let Some(state) = self.slots.get_mut(slot) else {
                return Ok(Step::Failed);
            };
            let turn = Turn {
                slot: self.seat.first_slot + slot as u32,
                sequence: state.sent,
            };
            let head = match wire.head(r, turn) {
                Err(_) if missing > 0 => return Ok(Step::Incomplete),
                other => other?,
            };
            if head.sequenced {
                state.counted = state.sent;
            }
            head.status
        };
        if status != 0 {
            if missing > 0 {
                return Ok(Step::Incomplete);
            }
            if wire.again(status) {
                return Ok(Step::Again);
            }
            tally.bad_status(status);
            if let Call::Write { file, .. } = *call {
                self.write_landed(file, 0);
            }
            return Ok(Step::Failed);
        }
        let step = match *call {
            Call::Null => op,
            Call::Read {
                file,
                offset,
                len,
                had,
            } => {
                return self.read_reply((file, offset, len, had), r, missing, tally);
            }
            Call::Write { file, len, .. } => {
                let (bytes, verifier) = self.write_reply(u64::from(len), r, tally)?;
                self.see_verifier(file, verifier, tally);
                self.write_landed(file, bytes);
                Step::Done {
                    class: Class::Write,
                    bytes,
                }
            }
            Call::Commit { file } => {
                let verifier = wire.committed(r)?;
                self.see_verifier(file, verifier, tally);
                Step::Done {
                    class: Class::Commit,
                    bytes: 0,
                }
            }
            Call::WriteNew => {
                let (_, verifier) = self.write_reply(self.args.block_size, r, tally)?;
                self.see_new_verifier(slot, verifier, tally);
                if self.args.stability == Stable::Unstable {
                    Step::Then(Call::CommitNew)
                } else {
                    self.end_new(slot)
                }
            }
            Call::CommitNew => {
                let verifier = wire.committed(r)?;
                self.see_new_verifier(slot, verifier, tally);
                self.end_new(slot)
            }
            Call::CloseNew => {
                wire.closed(r)?;
                self.forget_new(slot)
            }
            Call::Getattr { .. } => {
                wire.got_attributes(r)?;
                op
            }
            Call::Chmod { .. } => {
                wire.mode_set(r)?;
                op
            }
            Call::Access { .. } => {
                let granted = wire.accessed(r)?;
                if granted & !ACCESS_ALL != 0 {
                    return Err(BenchError::Protocol(format!(
                        "ACCESS granted {granted:#x}, which was not asked for"
                    )));
                }
                op
            }
            Call::Lookup { .. } => {
                wire.found(r)?;
                op
            }
            Call::Create { number } => {
                let fh = wire.created(r)?;
                if let Some(s) = self.slots.get_mut(slot) {
                    (s.new_file, s.new_number) = (fh, number);
                }
                if self.args.load != LoadKind::CreateWriteCommit {
                    self.end_new(slot)
                } else if fh.is_some() {
                    Step::Then(Call::WriteNew)
                } else {
                    return Err(BenchError::Protocol(
                        "CREATE gave no handle, which this load needs".into(),
                    ));
                }
            }
            Call::Mkdir { .. } => {
                wire.made_directory(r)?;
                op
            }
            Call::Remove { .. } | Call::RemoveMade { .. } => {
                wire.removed(r)?;
                op
            }
            Call::Rename { .. } => {
                wire.renamed(r)?;
                op
            }
            Call::List { dir, .. } => {
                let listed = wire.listed(r, self.lists_attributes())?;
                tally.entries += u64::from(listed.entries);
                self.move_list(slot, dir, listed)?;
                op
            }
        };
        if !r.rest().is_empty() {
            return Err(BenchError::Protocol(format!(
                "{} bytes behind the results of {call:?}",
                r.rest().len()
            )));
        }
        Ok(step)
    }

    /// Moves a slot on in its listing: behind the entries of a reply, or to the next directory.
    fn move_list(&mut self, slot: usize, dir: u32, listed: ListingReply) -> Result<(), BenchError> {
        let Some(s) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        if listed.eof {
            s.list = (0, [0; 8]);
            s.list_dir = (dir + 1) % self.args.dirs.max(1);
        } else if listed.entries == 0 {
            return Err(BenchError::Protocol(
                "a listing without entries and without end".into(),
            ));
        } else {
            s.list = listed.position;
        }
        Ok(())
    }

    /// Returns the step after the last call on a new file: its CLOSE, if it is open.
    fn end_new(&mut self, slot: usize) -> Step {
        let new = self.slots.get(slot).and_then(|s| s.new_file);
        match new.is_some_and(|fh| fh.is_open()) {
            true => Step::Then(Call::CloseNew),
            false => self.forget_new(slot),
        }
    }

    /// Ends the operation that made a file.
    fn forget_new(&mut self, slot: usize) -> Step {
        if let Some(s) = self.slots.get_mut(slot) {
            s.new_file = None;
            s.verifier = None;
            if self.args.load.is_blend() {
                self.made.push_back(s.new_number);
            }
        }
        let writes = self.args.load == LoadKind::CreateWriteCommit;
        Step::Done {
            class: Class::Op,
            bytes: if writes { self.args.block_size } else { 0 },
        }
    }

    /// Judges a READ's results. A server may return a part of what was asked for (RFC 1813 §3.3.6);
    /// the operation goes on with the rest, as clients' kernels do. A READ inside a file that
    /// returns nothing, or says that the file ends, is a fault.
    fn read_reply(
        &mut self,
        (file, offset, len, had): (u32, u64, u32, u32),
        r: &mut Reader<'_>,
        missing: usize,
        tally: &mut Tally,
    ) -> Result<Step, BenchError> {
        let head = match self.seat.wire.read_head(r) {
            Err(_) if missing > 0 => return Ok(Step::Incomplete),
            other => other?,
        };
        let asked = u64::from(len.saturating_sub(had));
        let data_len = head.data_len as usize;
        if head.data_len != head.count
            || u64::from(head.count) > asked
            || r.rest().len() + missing != data_len + padding(data_len)
        {
            return Err(BenchError::Protocol(format!(
                "READ of {asked} bytes: count {}, data of {} bytes, {} bytes in the record",
                head.count,
                head.data_len,
                r.rest().len() + missing
            )));
        }
        let offset_read = offset + u64::from(had);
        if self.args.run.verify {
            let data = r.fixed(data_len)?;
            if let Err((at, mismatch)) =
                pattern::check(data, u64::from(file), offset_read, self.args.run.seed)
            {
                tally.mismatches += 1;
                if tally.mismatches <= MISMATCHES_SHOWN {
                    tally
                        .notes
                        .push(format!("file {file}, offset {at}: {mismatch}"));
                }
            }
        }
        let had = had + head.count;
        if u64::from(head.count) < asked {
            if head.count > 0 && !head.eof {
                return Ok(Step::Then(Call::Read {
                    file,
                    offset,
                    len,
                    had,
                }));
            }
            tally.short_reads += 1;
        }
        Ok(Step::Done {
            class: Class::Read,
            bytes: u64::from(had),
        })
    }

    /// Judges the results of a WRITE of `asked` bytes; returns the bytes written and the write
    /// verifier.
    fn write_reply(
        &mut self,
        asked: u64,
        r: &mut Reader<'_>,
        tally: &mut Tally,
    ) -> Result<(u64, [u8; 8]), BenchError> {
        let w = self.seat.wire.written(r)?;
        if u64::from(w.count) > asked {
            return Err(BenchError::Protocol(format!(
                "WRITE of {asked} bytes: {} written",
                w.count
            )));
        }
        if u64::from(w.count) < asked {
            tally.short_writes += 1;
        }
        match w.committed {
            None => {
                return Err(BenchError::Protocol(
                    "WRITE with an unknown stable_how".into(),
                ));
            }
            Some(c) if c < self.args.stability => tally.weak_stability += 1,
            Some(_) => {}
        }
        Ok((u64::from(w.count), w.verifier))
    }

    fn see_verifier(&mut self, file: u32, verifier: [u8; 8], tally: &mut Tally) {
        if let Some(w) = self.written.get_mut(file as usize) {
            compare_verifiers(&mut w.verifier, verifier, tally);
        }
    }

    fn see_new_verifier(&mut self, slot: usize, verifier: [u8; 8], tally: &mut Tally) {
        if let Some(s) = self.slots.get_mut(slot) {
            compare_verifiers(&mut s.verifier, verifier, tally);
        }
    }

    fn write_landed(&mut self, file: u32, bytes: u64) {
        if self.args.stability != Stable::Unstable {
            return;
        }
        let every = self.args.commit_every;
        if let Some(w) = self.written.get_mut(file as usize) {
            w.flying = w.flying.saturating_sub(1);
            w.uncommitted += bytes;
            w.closing = w.closing.map(|n| n.saturating_sub(1));
            let closed = w.closing == Some(0);
            if closed {
                w.closing = None;
            }
            let due = every > 0 && w.uncommitted >= every;
            if (due || closed) && !self.commits.contains(&file) {
                self.commits.push_back(file);
            }
        }
    }
}

/// Counts a write verifier that differs from the one `seen` before: unstable data may be lost
/// (RFC 1813 §4.8).
fn compare_verifiers(seen: &mut Option<[u8; 8]>, verifier: [u8; 8], tally: &mut Tally) {
    if seen.is_some_and(|before| before != verifier) {
        tally.verifier_changes += 1;
    }
    *seen = Some(verifier);
}

fn name_bytes(letter: u8, number: u64) -> [u8; 16] {
    Name { letter, number }.bytes()
}

//! The working set: what the export holds before the load begins.
//!
//! Data loads use a few large files filled with [`crate::pattern`]; metadata loads
//! use many small ones, spread over directories by their number, so that a name is
//! known from its number and nothing needs to be listed.

use crate::args::{LoadKind, NfsArgs};
use crate::control::{Control, Verdict};
use crate::error::BenchError;
use crate::nfs3::{EXIST, Fsinfo, Handle, NOENT, NOTEMPTY, Name, Proc, Stable, WriteReply};
use crate::pattern;

/// Calls in flight while the set is made or removed.
const WINDOW: usize = 64;
/// Bytes in flight while it is filled.
const FILL_WINDOW_BYTES: u64 = 4 << 20;

/// Letter of the names of files made beforehand.
pub const FILE: u8 = b'f';
/// Letter of a file's other name in the rename load.
pub const RENAMED: u8 = b'r';
/// Letter of files that the load makes.
pub const CREATED: u8 = b'c';
/// Letter of directories that the load makes.
pub const MADE_DIR: u8 = b'm';

/// Stands for a directory or file that the set does not have.
const NOWHERE: Handle = Handle::empty();

/// Handles of the working set.
pub struct WorkingSet {
    /// The directories that hold the files.
    pub dirs: Vec<Handle>,
    /// The files, by number; empty for loads that do not need handles.
    pub files: Vec<Handle>,
    /// Number of files.
    pub file_count: u64,
    /// Size of each file, in bytes, for data loads.
    pub file_size: u64,
    /// Limits that the server states.
    pub fsinfo: Fsinfo,
    /// The export's root and the directory that holds the set; `None` for no set.
    place: Option<(Handle, Handle)>,
}

impl WorkingSet {
    /// No working set, for a load that touches no file.
    pub fn none() -> Self {
        Self {
            dirs: Vec::new(),
            files: Vec::new(),
            file_count: 1,
            file_size: 0,
            fsinfo: Fsinfo {
                rtmax: 0,
                wtmax: 0,
                dtpref: 0,
            },
            place: None,
        }
    }

    /// The directory that holds the file of this number.
    pub fn dir_of(&self, number: u64) -> &Handle {
        let len = self.dirs.len().max(1) as u64;
        self.dirs.get((number % len) as usize).unwrap_or(&NOWHERE)
    }

    /// Makes the working set that `args` asks for below the export's root.
    pub fn prepare(
        control: &mut Control,
        root: Handle,
        args: &NfsArgs,
    ) -> Result<Self, BenchError> {
        let fsinfo = control.fsinfo(&root)?;
        let top = control.directory(&root, args.dir.as_bytes())?;
        let mut set = Self {
            dirs: Vec::new(),
            files: Vec::new(),
            file_count: args.file_count().max(1),
            file_size: 0,
            fsinfo,
            place: Some((root, top)),
        };
        let together = matches!(args.load, LoadKind::Read | LoadKind::Write | LoadKind::Mix);
        let dirs = if together { 1 } else { args.dirs };
        for n in 0..dirs {
            let name = dir_name(n);
            set.dirs.push(control.directory(&top, name.as_bytes())?);
        }
        let needs_files = !matches!(
            args.load,
            LoadKind::Create | LoadKind::CreateWriteCommit | LoadKind::Mkdir
        );
        if needs_files {
            set.create_files(control)?;
        }
        if args.load.is_data() {
            set.file_size = args.size / set.file_count / args.block_size * args.block_size;
            if set.file_size == 0 {
                return Err(BenchError::Usage(format!(
                    "a working set of {} bytes has no block of {} for each of {} files",
                    args.size, args.block_size, set.file_count
                )));
            }
            set.fill(control, args)?;
            let reads = match args.load {
                LoadKind::Read | LoadKind::Eda | LoadKind::EdaFrontEnd => true,
                LoadKind::Mix | LoadKind::EdaBackEnd => args.read_percent > 0,
                _ => false,
            };
            if reads && !args.run.no_preread {
                set.read_once(control)?;
            }
        }
        Ok(set)
    }

    /// The working set that is there already, for removing it; `None` when none does.
    pub fn open(
        control: &mut Control,
        root: Handle,
        args: &NfsArgs,
    ) -> Result<Option<Self>, BenchError> {
        let fsinfo = control.fsinfo(&root)?;
        let Some(top) = control.lookup(&root, args.dir.as_bytes())? else {
            return Ok(None);
        };
        let mut dirs = Vec::new();
        while let Some(dir) = control.lookup(&top, dir_name(dirs.len() as u32).as_bytes())? {
            dirs.push(dir);
        }
        Ok(Some(Self {
            dirs,
            // Removal goes by names; one handle says that there are files.
            files: vec![top],
            file_count: args.file_count().max(1),
            file_size: 0,
            fsinfo,
            place: Some((root, top)),
        }))
    }

    /// Makes the files and remembers their handles.
    fn create_files(&mut self, control: &mut Control) -> Result<(), BenchError> {
        let mut handles: Vec<Option<Handle>> = vec![None; self.file_count as usize];
        let mut missing = Vec::new();
        let wire = control.wire();
        control.many(
            self.file_count,
            WINDOW,
            |c, out, n, id| c.make(out, id, self.dir_of(n), &file_name(n)),
            |n, status, r| {
                let fh = match status {
                    0 => wire.made(r)?,
                    EXIST => None,
                    s => return Err(BenchError::Status("CREATE", s)),
                };
                match (fh, handles.get_mut(n as usize)) {
                    (Some(fh), Some(slot)) => *slot = Some(fh),
                    _ => missing.push(n),
                }
                Ok(Verdict::Done)
            },
        )?;
        control.many(
            missing.len() as u64,
            WINDOW,
            |c, out, i, id| {
                let n = missing.get(i as usize).copied().unwrap_or(0);
                c.of_name(out, id, Proc::Lookup, self.dir_of(n), &file_name(n));
            },
            |i, status, r| {
                if status != 0 {
                    return Err(BenchError::Status("LOOKUP", status));
                }
                let n = missing.get(i as usize).copied().unwrap_or(0);
                if let Some(slot) = handles.get_mut(n as usize) {
                    *slot = Some(wire.found(r)?);
                }
                Ok(Verdict::Done)
            },
        )?;
        self.files = handles.into_iter().flatten().collect();
        if self.files.len() as u64 != self.file_count {
            return Err(BenchError::Protocol("handles missing".into()));
        }
        Ok(())
    }

    /// Fills the files with the pattern, unless an earlier run did and it may be
    /// reused; then COMMITs them.
    fn fill(&self, control: &mut Control, args: &NfsArgs) -> Result<(), BenchError> {
        let empty = match args.run.reuse {
            true => self.unfilled(control)?,
            false => (0..self.files.len()).collect(),
        };
        let chunk = u64::from(self.fsinfo.wtmax)
            .min(256 << 10)
            .max(pattern::BLOCK as u64)
            / pattern::BLOCK as u64
            * pattern::BLOCK as u64;
        if self.file_size <= chunk {
            return self.fill_small(control, args.run.seed, &empty);
        }
        for file in empty {
            self.fill_large(control, args.run.seed, file, chunk)?;
        }
        Ok(())
    }

    /// Numbers of the files that have another size than the set's.
    fn unfilled(&self, control: &mut Control) -> Result<Vec<usize>, BenchError> {
        let mut unfilled = Vec::new();
        let wire = control.wire();
        control.many(
            self.files.len() as u64,
            WINDOW,
            |c, out, n, id| c.of_handle(out, id, Proc::Getattr, self.file(n as usize)),
            |n, status, r| {
                if status != 0 {
                    return Err(BenchError::Status("GETATTR", status));
                }
                if wire.got_attributes(r)?.0 != self.file_size {
                    unfilled.push(n as usize);
                }
                Ok(Verdict::Done)
            },
        )?;
        unfilled.sort_unstable();
        Ok(unfilled)
    }

    /// The handle of a file that there is.
    fn file(&self, number: usize) -> &Handle {
        self.files.get(number).unwrap_or(&NOWHERE)
    }

    /// Fills files of one WRITE each, many at a time, stably.
    fn fill_small(
        &self,
        control: &mut Control,
        seed: u64,
        files: &[usize],
    ) -> Result<(), BenchError> {
        let mut data = vec![0; self.file_size as usize];
        let window = (FILL_WINDOW_BYTES / self.file_size.max(1)).clamp(2, WINDOW as u64);
        let wire = control.wire();
        control.many(
            files.len() as u64,
            window as usize,
            |c, out, n, id| {
                let file = files.get(n as usize).copied().unwrap_or(0);
                pattern::fill(&mut data, file as u64, 0, seed, 0);
                let len = data.len() as u32;
                c.write_head(out, id, self.file(file), 0, len, Stable::FileSync);
                out.extend_from_slice(&data);
                c.write_tail(out);
            },
            |_, status, r| {
                if status != 0 {
                    return Err(BenchError::Status("WRITE", status));
                }
                wrote_all(wire.written(r)?, self.file_size)
            },
        )
    }

    /// Fills a file by WRITEs of `chunk` bytes, and COMMITs it.
    fn fill_large(
        &self,
        control: &mut Control,
        seed: u64,
        file: usize,
        chunk: u64,
    ) -> Result<(), BenchError> {
        let mut data = Vec::new();
        let window = (FILL_WINDOW_BYTES / chunk).clamp(2, 64) as usize;
        let wire = control.wire();
        let fh = self.file(file);
        control.many(
            self.file_size.div_ceil(chunk),
            window,
            |c, out, n, id| {
                let offset = n * chunk;
                let len = chunk.min(self.file_size - offset);
                data.resize(len as usize, 0);
                pattern::fill(&mut data, file as u64, offset, seed, 0);
                c.write_head(out, id, fh, offset, len as u32, Stable::Unstable);
                out.extend_from_slice(&data);
                c.write_tail(out);
            },
            |n, status, r| {
                if status != 0 {
                    return Err(BenchError::Status("WRITE", status));
                }
                wrote_all(wire.written(r)?, chunk.min(self.file_size - n * chunk))
            },
        )?;
        control
            .one(
                "COMMIT",
                |c, out, id| c.commit(out, id, fh),
                |r| wire.committed(r),
            )
            .map(|_| ())
    }

    /// Reads everything once, so that what fits into the server's memory is there.
    fn read_once(&self, control: &mut Control) -> Result<(), BenchError> {
        let chunk = u64::from(self.fsinfo.rtmax).clamp(4096, 256 << 10);
        let each = self.file_size.div_ceil(chunk).max(1);
        let wire = control.wire();
        control.many(
            each * self.files.len() as u64,
            8,
            |c, out, n, id| {
                let file = self.file((n / each) as usize);
                c.read(out, id, file, n % each * chunk, chunk as u32);
            },
            |_, status, r| {
                if status != 0 {
                    return Err(BenchError::Status("READ", status));
                }
                wire.read_head(r)?;
                Ok(Verdict::Done)
            },
        )
    }

    /// Removes the working set from the directory `dir`, and what the load made: files
    /// numbered below `created`.
    pub fn remove(
        &self,
        control: &mut Control,
        dir: &str,
        kind: LoadKind,
        created: u64,
    ) -> Result<(), BenchError> {
        if !self.files.is_empty() {
            self.remove_family(control, FILE, self.file_count, Proc::Remove)?;
        }
        self.remove_made(control, kind, created)?;
        if let Some((root, top)) = &self.place {
            for n in 0..self.dirs.len() as u32 {
                rmdir(control, top, dir_name(n).as_bytes())?;
            }
            rmdir(control, root, dir.as_bytes())?;
        }
        Ok(())
    }

    /// Removes what the load made, but not the working set.
    pub fn remove_made(
        &self,
        control: &mut Control,
        kind: LoadKind,
        created: u64,
    ) -> Result<(), BenchError> {
        match kind {
            LoadKind::Rename => self.remove_family(control, RENAMED, self.file_count, Proc::Remove),
            LoadKind::Create | LoadKind::CreateWriteCommit | LoadKind::Eda => {
                self.remove_family(control, CREATED, created, Proc::Remove)
            }
            LoadKind::Mkdir => self.remove_family(control, MADE_DIR, created, Proc::Rmdir),
            LoadKind::EdaFrontEnd => {
                self.remove_family(control, CREATED, created, Proc::Remove)?;
                self.remove_family(control, MADE_DIR, created, Proc::Rmdir)
            }
            _ => Ok(()),
        }
    }

    /// Removes the files or directories of one letter, numbered below `count`.
    fn remove_family(
        &self,
        control: &mut Control,
        letter: u8,
        count: u64,
        proc: Proc,
    ) -> Result<(), BenchError> {
        control.many(
            count,
            WINDOW,
            |c, out, number, id| {
                let name = Name { letter, number }.bytes();
                c.of_name(out, id, proc, self.dir_of(number), &name);
            },
            |_, status, _| match status {
                0 | NOENT => Ok(Verdict::Done),
                s => Err(BenchError::Status("REMOVE", s)),
            },
        )
    }
}

/// Checks that a WRITE of the set's contents wrote `len` bytes.
fn wrote_all(reply: WriteReply, len: u64) -> Result<Verdict, BenchError> {
    if u64::from(reply.count) != len {
        return Err(BenchError::Protocol(format!(
            "{} bytes written instead of {len} while filling",
            reply.count
        )));
    }
    Ok(Verdict::Done)
}

/// Removes a directory; one that holds what another run left behind stays.
fn rmdir(control: &mut Control, dir: &Handle, name: &[u8]) -> Result<(), BenchError> {
    let wire = control.wire();
    let removed = control.one(
        "RMDIR",
        |c, out, id| c.of_name(out, id, Proc::Rmdir, dir, name),
        |r| wire.removed(r),
    );
    match removed {
        Err(BenchError::Status(_, NOTEMPTY)) => Ok(()),
        other => other,
    }
}

fn dir_name(n: u32) -> String {
    format!("d{n:05}")
}

fn file_name(number: u64) -> [u8; 16] {
    Name {
        letter: FILE,
        number,
    }
    .bytes()
}

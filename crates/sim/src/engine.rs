//! The engine as a subject: operations straight on a volume.

use std::sync::{Arc, Mutex};

use weir_base::{Ino, Time};
use weir_volume::{
    Attr, Change, Conversion, CreateHow, Done, EngineContext, FileKind, FsError, Pin, ReadDirLimit,
    SetAttr, SetHow, SetIds, SetTime, Stability, Stop, Volume,
};

use crate::machine::RunningEngine;
use crate::model::{CreateMode, Data, Errno, Kind, Op, Set, SetTo, Slot, Stable, listed_xattrs};
use crate::runner::Mismatch;
use crate::subject::{Answer, Around, Before, Entry, Handle, ReportedAttr, Subject};

/// Called before an operation waits for a checkpoint or for its data (`true`), and after: a test
/// that holds devices releases them.
pub type OnWait<'a> = dyn Fn(bool) + Send + Sync + 'a;

/// A volume of the engine.
pub struct EngineSubject<'a> {
    /// The volume that operations are performed on.
    pub volume: Arc<Volume>,
    /// Returns the last LSN that is durable.
    pub durable: &'a (dyn Fn() -> u64 + Send + Sync),
    /// Called around waits: see [`OnWait`].
    pub on_wait: &'a OnWait<'a>,
    /// Objects that are open, kept by these pins.
    pub pins: &'a Mutex<Vec<Pin>>,
}

/// Runs `call` with the volume of a running machine as its subject.
pub(crate) fn with<T>(
    running: &RunningEngine,
    call: impl FnOnce(&mut EngineSubject<'_>) -> Result<T, Mismatch>,
) -> Result<T, String> {
    let durable = || running.engine.durable().0;
    let mut subject = EngineSubject {
        volume: Arc::clone(&running.volume),
        durable: &durable,
        on_wait: &|_| {},
        pins: &running.pins,
    };
    call(&mut subject).map_err(|m| m.0)
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Dir,
        FileKind::Block => Kind::Block,
        FileKind::Char => Kind::Char,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Socket => Kind::Socket,
        FileKind::Fifo => Kind::Fifo,
    }
}

fn special(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::Regular,
        Kind::Dir => FileKind::Directory,
        Kind::Block => FileKind::Block,
        Kind::Char => FileKind::Char,
        Kind::Symlink => FileKind::Symlink,
        Kind::Socket => FileKind::Socket,
        Kind::Fifo => FileKind::Fifo,
    }
}

/// The tests' view of attributes.
#[must_use]
pub fn seen(attr: &Attr) -> ReportedAttr {
    ReportedAttr {
        kind: kind_of(attr.kind),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: attr.rdev,
        fileid: attr.ino.0,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        change: Some(attr.change),
    }
}

fn around(change: &Change) -> Around {
    Around {
        before: Some(Before {
            size: change.before.size,
            mtime: change.before.mtime,
            ctime: change.before.ctime,
            change: Some(change.before.change),
        }),
        after: Some(seen(&change.after)),
    }
}

fn set_time(set: SetTo) -> SetTime {
    match set {
        SetTo::Keep => SetTime::Keep,
        SetTo::Server => SetTime::Server,
        SetTo::Client(time) => SetTime::Client(time),
    }
}

fn set_attr(set: &Set) -> SetAttr {
    SetAttr {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set_time(set.atime),
        mtime: set_time(set.mtime),
        ..SetAttr::default()
    }
}

/// The tests' name of an error.
#[must_use]
pub fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NotFound,
        FsError::Exists => Errno::Exists,
        FsError::NotDir => Errno::NotDir,
        FsError::IsDir => Errno::IsDir,
        FsError::NotEmpty => Errno::NotEmpty,
        FsError::NameTooLong => Errno::NameTooLong,
        FsError::NoSpace => Errno::NoSpace,
        FsError::Quota => Errno::Quota,
        FsError::FileTooBig => Errno::FileTooBig,
        FsError::ReadOnly => Errno::ReadOnly,
        FsError::Stale => Errno::Stale,
        FsError::Invalid => Errno::Invalid,
        FsError::TooManyLinks => Errno::TooManyLinks,
        FsError::CrossDevice => Errno::CrossDevice,
        FsError::Io => Errno::Io,
        FsError::NotSync => Errno::NotSync,
        FsError::BadCookie => Errno::BadCookie,
        FsError::Perm => Errno::Perm,
        FsError::Access => Errno::Access,
        FsError::NotSupported => Errno::NotSupported,
        FsError::Delay | FsError::Busy => Errno::Delay,
    }
}

fn handle_of(ino: Ino) -> Handle {
    ino.0.to_le_bytes().to_vec()
}

fn ino_of(handle: &Handle) -> Ino {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(handle);
    Ino(u64::from_le_bytes(bytes))
}

fn lsn<T>(done: &Done<T>) -> u64 {
    done.lsn.map_or(0, |lsn| lsn.0)
}

impl EngineSubject<'_> {
    /// Runs an operation to its end.
    ///
    /// # Errors
    /// As the operation.
    pub fn drive<T>(
        &self,
        cx: &mut EngineContext,
        mut op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        // An operation that makes no progress must fail the test, not hang it.
        for _ in 0..10_000 {
            match op(cx) {
                Ok(value) => return Ok(value),
                Err(stop @ (Stop::Wait(_) | Stop::Land)) => {
                    (self.on_wait)(true);
                    let result = self.volume.resume_blocking(cx, stop);
                    (self.on_wait)(false);
                    result?;
                }
                Err(stop) => self.volume.resume_blocking(cx, stop)?,
            }
        }
        panic!("an operation was stopped 10,000 times");
    }

    /// The whole directory, in pages of `limit` entries.
    fn list(&self, cx: &mut EngineContext, dir: Ino, limit: u32) -> Result<Vec<Entry>, FsError> {
        let vol = &self.volume;
        let mut entries: Vec<Entry> = Vec::new();
        let mut cookie = 0;
        loop {
            let mut page: Vec<Entry> = Vec::new();
            let limits = ReadDirLimit {
                entries: limit as usize,
                bytes: 1 << 16,
                attrs: limit % 2 == 0,
            };
            let out = self.drive(cx, |cx| {
                page.clear();
                vol.readdir(cx, dir, cookie, limits, &mut |entry| {
                    page.push(Entry {
                        name: entry.name.into(),
                        fileid: entry.ino.0,
                        cookie: entry.cookie,
                        attr: entry.attr.as_ref().map(seen),
                    });
                    true
                })
            })?;
            assert!(page.len() <= limit as usize, "more entries than asked for");
            assert!(
                out.eof || !page.is_empty(),
                "an empty page that is not the last"
            );
            cookie = page.last().map_or(cookie, |entry| entry.cookie);
            entries.append(&mut page);
            if out.eof {
                return Ok(entries);
            }
        }
    }
}

impl Subject for EngineSubject<'_> {
    fn root(&mut self) -> Handle {
        handle_of(self.volume.root())
    }

    fn call(
        &mut self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Answer, Errno> {
        self.perform(op, now, handle, guard).map_err(errno)
    }

    fn durable(&self) -> u64 {
        (self.durable)()
    }
}

impl EngineSubject<'_> {
    fn perform(
        &self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Answer, FsError> {
        let vol = &self.volume;
        let cx = &mut EngineContext::new(now);
        let ino = |slot: Slot| ino_of(&handle(slot));
        let mut answer = Answer::default();
        match op {
            Op::Getattr { object } => {
                let attr = self.drive(cx, |cx| vol.getattr(cx, ino(*object)))?;
                answer.attr = Some(seen(&attr));
            }
            Op::Lookup { dir, name } => {
                let found = self.drive(cx, |cx| vol.lookup(cx, ino(*dir), name))?;
                answer.object = Some(handle_of(found.ino));
                answer.attr = Some(seen(&found.attr));
            }
            Op::Setattr { object, set, .. } => {
                let set = set_attr(set);
                let done = self.drive(cx, |cx| vol.setattr(cx, ino(*object), &set, guard))?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::Readlink { object } => {
                let (target, _) = self.drive(cx, |cx| vol.readlink(cx, ino(*object)))?;
                answer.data = Some(target);
            }
            Op::Read {
                object,
                offset,
                len,
            } => {
                let out =
                    self.drive(cx, |cx| vol.read(cx, ino(*object), *offset, *len as usize))?;
                answer.data = Some(out.to_vec());
                answer.eof = Some(out.eof);
            }
            Op::Write {
                object,
                offset,
                data,
                stable,
            } => {
                let stability = match stable {
                    Stable::Unstable => Stability::Unstable,
                    Stable::Data => Stability::DataSync,
                    Stable::File => Stability::FileSync,
                };
                let bytes = data.bytes();
                let done = self.drive(cx, |cx| {
                    vol.write(cx, ino(*object), *offset, &bytes, stability)
                })?;
                answer.changed = vec![around(&done.value.change)];
                let granted = match done.value.granted {
                    Stability::Unstable => Stable::Unstable,
                    Stability::DataSync => Stable::Data,
                    Stability::FileSync => Stable::File,
                };
                let len = u32::try_from(done.value.len).unwrap_or(u32::MAX);
                answer.written = Some((granted, len));
                answer.lsn = lsn(&done);
            }
            Op::Punch {
                object,
                offset,
                len,
            } => {
                let done = self.drive(cx, |cx| vol.punch(cx, ino(*object), *offset, *len))?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::Clone {
                source,
                from,
                object,
                to,
                len,
            } => {
                let (from, to) = ((ino(*source), *from), (ino(*object), *to));
                let done =
                    self.drive(cx, |cx| vol.clone_range(SetIds::Keep, cx, from, to, *len))?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::Convert {
                object,
                dir,
                name,
                target,
            } => {
                let place = (ino(*dir), &**name);
                let to = match target {
                    Some(target) => Conversion::Link(target),
                    None => Conversion::Plain(None),
                };
                let done = self.drive(cx, |cx| vol.convert(cx, place, ino(*object), to))?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::SetXattr {
                object,
                name,
                value,
            } => {
                let value = value.map(Data::bytes);
                let done = self.drive(cx, |cx| {
                    let how = SetHow::Either;
                    vol.set_xattr(cx, ino(*object), name, value.as_deref(), how)
                })?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::Xattrs { object } => {
                let mut names = self.drive(cx, |cx| vol.xattrs(cx, ino(*object)))?;
                names.sort();
                let mut all = Vec::new();
                for name in &names {
                    let value = self.drive(cx, |cx| vol.xattr(cx, ino(*object), name))?;
                    all.push((&**name, value));
                }
                answer.data = Some(listed_xattrs(all.into_iter()));
            }
            Op::Open { object } => {
                let pin = self.drive(cx, |cx| vol.pin(cx, ino(*object)))?;
                self.pins.lock().unwrap().push(pin);
            }
            Op::Commit {
                object,
                offset,
                len,
            } => {
                let done = self.drive(cx, |cx| {
                    vol.commit(cx, ino(*object), *offset, u64::from(*len))
                })?;
                answer.changed = vec![around(&done.value)];
                answer.lsn = lsn(&done);
            }
            Op::Create {
                dir,
                name,
                how,
                set,
            } => {
                let how = match how {
                    CreateMode::Unchecked => CreateHow::Unchecked,
                    CreateMode::Guarded => CreateHow::Guarded,
                    CreateMode::Exclusive(verifier) => CreateHow::Exclusive(*verifier),
                };
                // No attributes come with an exclusive creation.
                let set = match how {
                    CreateHow::Exclusive(_) => SetAttr::default(),
                    _ => set_attr(set),
                };
                let done = self.drive(cx, |cx| vol.create(cx, ino(*dir), name, how, &set))?;
                created(&mut answer, &done);
            }
            Op::Mkdir { dir, name, set } => {
                let set = set_attr(set);
                let done = self.drive(cx, |cx| vol.mkdir(cx, ino(*dir), name, &set))?;
                created(&mut answer, &done);
            }
            Op::Symlink {
                dir,
                name,
                target,
                set,
            } => {
                let set = set_attr(set);
                let done = self.drive(cx, |cx| vol.symlink(cx, ino(*dir), name, target, &set))?;
                created(&mut answer, &done);
            }
            Op::Mknod {
                dir,
                name,
                kind,
                rdev,
                set,
            } => {
                let set = set_attr(set);
                let kind = special(*kind);
                let done =
                    self.drive(cx, |cx| vol.mknod(cx, ino(*dir), name, kind, *rdev, &set))?;
                created(&mut answer, &done);
            }
            Op::Remove { dir, name } => {
                let done = self.drive(cx, |cx| vol.remove(cx, ino(*dir), name))?;
                answer.changed = vec![around(&done.value.dir)];
                answer.lsn = lsn(&done);
            }
            Op::Rmdir { dir, name } => {
                let done = self.drive(cx, |cx| vol.rmdir(cx, ino(*dir), name))?;
                answer.changed = vec![around(&done.value.dir)];
                answer.lsn = lsn(&done);
            }
            Op::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => {
                let done = self.drive(cx, |cx| {
                    vol.rename(cx, ino(*from_dir), from, ino(*to_dir), to)
                })?;
                answer.changed = vec![around(&done.value.from), around(&done.value.to)];
                answer.lsn = lsn(&done);
            }
            Op::Link { object, dir, name } => {
                let done = self.drive(cx, |cx| vol.link(cx, ino(*object), ino(*dir), name))?;
                answer.changed = vec![around(&done.value.dir)];
                answer.attr = Some(seen(&done.value.attr));
                answer.lsn = lsn(&done);
            }
            Op::Readdir { dir, entries } => {
                answer.entries = Some(self.list(cx, ino(*dir), *entries)?);
            }
        }
        Ok(answer)
    }
}

fn created(answer: &mut Answer, done: &Done<weir_volume::CreateOut>) {
    answer.object = Some(handle_of(done.value.ino));
    answer.attr = Some(seen(&done.value.attr));
    answer.changed = vec![around(&done.value.dir)];
    answer.lsn = lsn(done);
}

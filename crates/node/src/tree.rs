//! Access to the files of a volume or a snapshot for copies of single files.

use std::sync::Arc;

use weir_base::{Ino, Time};
use weir_transfer::session::FileHead;
use weir_volume::{EngineContext, FsError, Seek, SetAttr, SetHow, SetTime, Sought, Stop, Volume};

/// Number of bytes of a file that are copied and hashed together.
pub const PIECE: u64 = 64 << 10;
/// Prefix of the names under which files arrive.
pub const ARRIVING: &str = ".weir-restore-";

/// A volume, or a snapshot, and the time stamp of changes.
#[derive(Clone, Copy)]
pub struct Tree<'v> {
    /// The volume, or the snapshot's view of it.
    pub volume: &'v Arc<Volume>,
    now: Time,
}

impl<'v> Tree<'v> {
    /// A snapshot, opened as a volume.
    pub fn of_snapshot(volume: &'v Arc<Volume>) -> Tree<'v> {
        let now = Time::EPOCH;
        Tree { volume, now }
    }

    /// A volume, of which changes are stamped with `now`.
    pub fn new(volume: &'v Arc<Volume>, now: Time) -> Tree<'v> {
        Tree { volume, now }
    }

    /// Runs an operation, and waits for what it waits for.
    ///
    /// # Errors
    /// The operation's.
    pub fn run<T>(
        self,
        mut op: impl FnMut(&Volume, &mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let mut cx = EngineContext::new(self.now);
        self.volume
            .drive_blocking(&mut cx, |cx| op(self.volume, cx))
    }
}

/// Returns the next piece of a file that is not all zeroes, at or behind `at`, and its offset.
///
/// # Errors
/// The file cannot be read.
pub fn piece(tree: Tree<'_>, ino: Ino, at: u64) -> Result<Option<(u64, Vec<u8>)>, FsError> {
    let mut at = at;
    loop {
        let from = match tree.run(|volume, cx| volume.seek(cx, ino, at, Seek::Data))? {
            Sought::At(from) => at.max(from / PIECE * PIECE),
            Sought::NotBefore(from) => {
                at = from;
                continue;
            }
            Sought::End(_) => return Ok(None),
        };
        let from = from / PIECE * PIECE;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < PIECE {
            let (off, left) = (from + bytes.len() as u64, PIECE as usize - bytes.len());
            let read = tree
                .run(|volume, cx| volume.read(cx, ino, off, left))?
                .to_vec();
            if read.is_empty() {
                break;
            }
            bytes.extend(read);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(Some((from, bytes)));
        }
        at = from + PIECE;
    }
}

/// Returns the metadata of a file, and the inodes of its contents: its own, and those of its
/// streams.
///
/// # Errors
/// The file cannot be read.
pub fn head(tree: Tree<'_>, ino: Ino) -> Result<(FileHead, Vec<Ino>), FsError> {
    let streams = tree.run(|volume, cx| volume.streams(cx, ino))?;
    let inodes = [ino].into_iter().chain(streams.iter().map(|s| s.attr.ino));
    let inodes = inodes.collect();
    let attr = tree.run(|volume, cx| volume.getattr(cx, ino))?;
    let names = tree.run(|volume, cx| volume.xattrs(cx, ino))?;
    let each = names.into_iter().map(|name| {
        let value = tree.run(|volume, cx| volume.xattr(cx, ino, &name))?;
        Ok((name, value))
    });
    let pair = |time: Time| (time.secs, time.nanos);
    let head = FileHead {
        size: attr.size,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        atime: pair(attr.atime),
        mtime: pair(attr.mtime),
        btime: pair(attr.btime),
        dos: attr.dos,
        xattrs: each.collect::<Result<_, FsError>>()?,
        acl: tree.run(|volume, cx| volume.acl(cx, ino))?,
        streams: streams
            .into_iter()
            .map(|s| (s.name.into(), s.attr.size))
            .collect(),
    };
    Ok((head, inodes))
}

/// Returns the sizes of a file's contents: its own, and those of its streams.
pub fn sizes(head: &FileHead) -> impl Iterator<Item = u64> {
    let streams = head.streams.iter().map(|(_, size)| *size);
    [head.size].into_iter().chain(streams)
}

/// Sets the metadata of a file.
///
/// # Errors
/// The file cannot be changed.
pub fn dress(tree: Tree<'_>, ino: Ino, head: &FileHead) -> Result<(), FsError> {
    for (name, value) in &head.xattrs {
        tree.run(|volume, cx| volume.set_xattr(cx, ino, name, Some(value), SetHow::Either))?;
    }
    if let Some(acl) = &head.acl {
        tree.run(|volume, cx| volume.set_acl(cx, ino, Some(acl)))?;
    }
    let time = |(secs, nanos)| Time { secs, nanos };
    let set = SetAttr {
        mode: Some(head.mode),
        uid: Some(head.uid),
        gid: Some(head.gid),
        atime: SetTime::Client(time(head.atime)),
        mtime: SetTime::Client(time(head.mtime)),
        btime: Some(time(head.btime)),
        dos: Some(head.dos),
        ..SetAttr::default()
    };
    tree.run(|volume, cx| volume.setattr(cx, ino, &set, None))
        .map(drop)
}

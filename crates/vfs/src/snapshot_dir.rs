//! The directory of snapshots, `.snapshot`.
//!
//! Like ONTAP's, it is below every directory of the volume under the name `.snapshot`. Each
//! snapshot that has that directory has a name in it, and below that name is the directory as it
//! was. It is listed in the volume's root only, so that programs that walk the tree see each
//! snapshot once. It is listed only while the volume has snapshots, so that a new volume is as
//! empty as `initdb` and its like demand. It can be entered everywhere, with and without snapshots.
//!
//! It is not stored. Its handle names the directory that it belongs to, and that it is
//! meant ([`Namespace::Snapshots`]); a handle below it carries the snapshot's identity. A
//! snapshot has a file-system id of its own, so an inode number is the file's own number
//! in all of them without two files being taken for one. The directory itself is part of
//! the volume's file system and has its directory's number with the top bit set, which
//! no inode has. Cookies of its entries are the snapshots' identities: stable.

use weir_base::Ino;
use weir_volume::{Attr, DirEntry, FileKind, Guard, LookupOut, ReadDirLimit, ReadDirOut};

use crate::access::{self, X};
use crate::error::{Error, Halt};
use crate::handle::Namespace;
use crate::pipeline::Operand;
use crate::session::AccessModel;
use crate::{EngineContext, Volume};
use std::ops::Deref;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Halt>;

/// The name under which each directory shows its snapshots.
pub const SNAPSHOT_DIRECTORY: &[u8] = b".snapshot";

/// Its cookie in the root: behind "." and "..", before all others.
pub(crate) const COOKIE: u64 = 3;

/// Bit that the number of a directory of snapshots has beside that of its directory.
const VIRTUAL: u64 = 1 << 63;

/// Number that is added to a snapshot's identity for its cookie.
const FIRST: u64 = 16;

/// Something in a volume that a handle can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The inode, in the namespace below.
    pub ino: Ino,
    /// The namespace: the volume itself, a snapshot, or a directory of snapshots.
    pub namespace: Namespace,
}

impl FileRef {
    /// Returns the object of an inode in the volume as it is now.
    pub fn live(ino: Ino) -> FileRef {
        FileRef {
            ino,
            namespace: Namespace::Live,
        }
    }
}

/// A volume or a view of one of its snapshots.
pub(crate) enum ReadSource<'t> {
    Live(&'t Volume),
    View(Arc<Volume>),
}

impl<'t> ReadSource<'t> {
    pub(crate) fn new(volume: &'t Arc<Volume>, namespace: Namespace) -> Result<ReadSource<'t>> {
        match namespace {
            // The destination of a replication is read as it last was completely.
            Namespace::Live if volume.protected() => Ok(match volume.serving()? {
                Some(view) => ReadSource::View(view),
                None => ReadSource::Live(volume),
            }),
            Namespace::Live => Ok(ReadSource::Live(volume)),
            Namespace::Snapshot(id) => Ok(ReadSource::View(volume.view(id)?)),
            Namespace::Snapshots => Err(Error::Invalid.into()),
        }
    }
}

impl Deref for ReadSource<'_> {
    type Target = Volume;
    fn deref(&self) -> &Volume {
        match self {
            ReadSource::Live(volume) => volume,
            ReadSource::View(view) => view,
        }
    }
}

impl<A: AccessModel> Operand<'_, A> {
    /// Returns the file of another inode of the same volume or snapshot.
    pub fn near(&self, ino: Ino) -> FileRef {
        FileRef {
            ino,
            namespace: self.file.namespace,
        }
    }

    /// Returns true if this directory is the volume's root, in the volume as it is now.
    pub fn is_live_root(&self) -> bool {
        self.file == FileRef::live(self.export.volume.root())
    }

    /// Returns true if listing the volume's root shows the directory of snapshots.
    fn lists_snapshots(&self) -> bool {
        self.export.snapshot_directory && self.export.volume.has_snapshots()
    }

    /// Refuses what would change the directory of snapshots, or hide behind it.
    pub(crate) fn not_reserved(&self, name: &[u8], error: Error) -> std::result::Result<(), Error> {
        match self.export.snapshot_directory && name == SNAPSHOT_DIRECTORY {
            true => Err(error),
            false => Ok(()),
        }
    }

    /// Returns the attributes of the directory of snapshots of `dir`, which must exist.
    pub(crate) fn snapshots_attr(&self, cx: &mut EngineContext, dir: Ino) -> Result<Attr> {
        let volume = &self.export.volume;
        let of = ReadSource::new(volume, Namespace::Live)?.getattr(cx, dir)?;
        if of.kind != FileKind::Directory {
            return Err(Error::Stale.into());
        }
        let (changed, change) = volume.snapshots_changed();
        Ok(Attr {
            mode: 0o555,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            ino: Ino(dir.0 | VIRTUAL),
            atime: changed,
            mtime: changed,
            ctime: changed,
            btime: changed,
            dos: 0,
            change,
            guard: Guard::Mode,
            ..of
        })
    }

    /// Looks a name up that has to do with the directory of snapshots; `None` if it is
    /// an ordinary one.
    pub(crate) fn lookup_snapshots(
        &self,
        cx: &mut EngineContext,
        name: &[u8],
    ) -> Result<Option<(LookupOut, FileRef)>> {
        let (volume, ino) = (&self.export.volume, self.file.ino);
        let (dir, namespace, attr) = match self.file.namespace {
            Namespace::Live if self.export.snapshot_directory && name == SNAPSHOT_DIRECTORY => {
                let of = self.attr(cx)?;
                if of.kind != FileKind::Directory {
                    return Err(Error::NotDir.into());
                }
                access::require(&of, &self.who.unix, X)?;
                (of, Namespace::Snapshots, self.snapshots_attr(cx, ino)?)
            }
            Namespace::Live => return Ok(None),
            // Above the root of a snapshot is the directory of snapshots.
            Namespace::Snapshot(_) if name == b".." && ino == volume.root() => {
                let below = self.attr(cx)?;
                (below, Namespace::Snapshots, self.snapshots_attr(cx, ino)?)
            }
            Namespace::Snapshot(_) => return Ok(None),
            Namespace::Snapshots => {
                let own = self.snapshots_attr(cx, ino)?;
                let namespace = match name {
                    b"." => Namespace::Snapshots,
                    b".." => Namespace::Live,
                    _ => {
                        let name = std::str::from_utf8(name).map_err(|_| Error::NotFound)?;
                        let found = volume.snapshot(name).ok_or(Error::NotFound)?;
                        Namespace::Snapshot(found.id)
                    }
                };
                let attr = match self.attr_in(cx, namespace) {
                    // The snapshot is older than the directory.
                    Err(Halt::Failed(Error::Stale)) => return Err(Error::NotFound.into()),
                    other => other?,
                };
                (own, namespace, attr)
            }
        };
        let found = LookupOut {
            ino: attr.ino,
            attr,
            dir,
        };
        Ok(Some((found, FileRef { ino, namespace })))
    }

    /// Lists the directory of snapshots of `dir`. Attributes would cost a look-up in each snapshot;
    /// a client that wants them looks the names up.
    pub(crate) fn list_snapshots(
        &self,
        cx: &mut EngineContext,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<FileRef>) -> bool,
    ) -> Result<ReadDirOut> {
        let dir = self.file.ino;
        let own = self.snapshots_attr(cx, dir)?;
        let mut out = ReadDirOut {
            eof: true,
            dir: own,
            verifier: [0; 8],
        };
        let dots: [(u64, &[u8], Ino); 2] = [(1, b".", own.ino), (2, b"..", dir)];
        for (at, name, ino) in dots {
            let entry = DirEntry {
                cookie: at,
                name,
                ino,
                kind: FileKind::Directory,
                attr: None,
            };
            if at > cookie && !each(&entry, None) {
                out.eof = false;
                return Ok(out);
            }
        }
        // Saturates: a cookie from a client.
        let after = u32::try_from(cookie.saturating_sub(FIRST)).unwrap_or(u32::MAX);
        self.export
            .volume
            .snapshots_of(dir, after, &mut |id, name| {
                let entry = DirEntry {
                    cookie: u64::from(id) + FIRST,
                    name: name.as_bytes(),
                    ino: dir,
                    kind: FileKind::Directory,
                    attr: None,
                };
                out.eof = each(&entry, None);
                out.eof
            });
        Ok(out)
    }

    /// Returns the entries of a directory, or of a directory of snapshots.
    pub(crate) fn entries(
        &self,
        cx: &mut EngineContext,
        cookie: u64,
        limit: ReadDirLimit,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<FileRef>) -> bool,
    ) -> Result<ReadDirOut> {
        if self.file.namespace == Namespace::Snapshots {
            return self.list_snapshots(cx, cookie, each);
        }
        // Also where it is not listed (any more): a listing that began with it goes on.
        if self.is_live_root() && cookie <= COOKIE {
            return self.list_with_snapshots(cx, cookie, limit, each);
        }
        let mut each = |entry: &DirEntry<'_>| each(entry, Some(self.near(entry.ino)));
        let (reading, dir) = (self.read_source()?, self.file.ino);
        Ok(reading.readdir(cx, dir, cookie, limit, &mut each)?)
    }

    /// Lists the volume's root, with the directory of snapshots if that is to be listed.
    pub(crate) fn list_with_snapshots(
        &self,
        cx: &mut EngineContext,
        cookie: u64,
        limit: ReadDirLimit,
        each: &mut dyn FnMut(&DirEntry<'_>, Option<FileRef>) -> bool,
    ) -> Result<ReadDirOut> {
        let dir = self.file.ino;
        let attr = self.snapshots_attr(cx, dir)?;
        let own = DirEntry {
            cookie: COOKIE,
            name: SNAPSHOT_DIRECTORY,
            ino: attr.ino,
            kind: FileKind::Directory,
            attr: limit.attrs.then_some(attr),
        };
        let file = FileRef {
            ino: dir,
            namespace: Namespace::Snapshots,
        };
        let mut due = cookie < COOKIE && self.lists_snapshots();
        let mut fits = true;
        let reading = self.read_source()?;
        let mut out = reading.readdir(cx, dir, cookie.min(COOKIE - 1), limit, &mut |entry| {
            if due && entry.cookie > COOKIE {
                due = false;
                fits = each(&own, Some(file));
            }
            fits = fits && each(entry, Some(self.near(entry.ino)));
            fits
        })?;
        if due && fits && out.eof {
            out.eof = each(&own, Some(file));
        }
        Ok(out)
    }
}

//! Files of snapshots for the API: the versions of one, its content, and a copy of it in the
//! volume.
//!
//! A path is followed name by name from the root, through directories only. A copy is written under
//! a temporary name in the same directory. Once it is complete and durable it is renamed in one
//! step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use weir_api::files::{
    FilePath, FileState, FileVersion, Files, OpenFile, RestorePlacement, Versions, bounded,
    name_beside,
};
use weir_base::{Clock, Ino, Rng};
use weir_control::{Refusal, Status};
use weir_transfer::session::FileHead;
use weir_vfs::claims::Event::{Entries, Name};
use weir_vfs::claims::{self, Passage};
use weir_vfs::{FileId, Namespace, Vfs};
use weir_volume::{Attr, CreateHow, Engine, FileKind, FsError, SetAttr, Stability, Volume};

use crate::tree::{ARRIVING, Tree, dress, head, piece, sizes};

/// Files of this node's volumes and snapshots.
pub struct SnapshotFiles {
    engine: Arc<Engine>,
    vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// The control plane's runtime.
    runtime: Handle,
    stopping: Arc<AtomicBool>,
}

impl SnapshotFiles {
    /// Serves the files of an engine; calls wait on `runtime` for clients to give up their caches.
    pub fn new(
        engine: Arc<Engine>,
        vfs: Arc<Vfs>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        runtime: Handle,
    ) -> SnapshotFiles {
        SnapshotFiles {
            engine,
            vfs,
            clock,
            rng,
            runtime,
            stopping: Arc::default(),
        }
    }

    /// Ends copies and searches when another's flag is set.
    pub fn stopped_by(mut self, flag: Arc<AtomicBool>) -> SnapshotFiles {
        self.stopping = flag;
        self
    }

    /// Copies files of a snapshot, opened as a volume, into a directory of a volume, each under its
    /// own name. None replaces what has that name; one that is there already, with the same
    /// attributes and contents, counts as copied.
    ///
    /// # Errors
    /// A path that is none; a name that is taken; the volumes'.
    pub fn copy_into(
        &self,
        from: &Arc<Volume>,
        volume: &Arc<Volume>,
        files: &[String],
        directory: &str,
    ) -> Result<(), Refusal> {
        writable(volume)?;
        let invalid = |why: String| Refusal::new(Status::InvalidArgument, "PATH_INVALID", why);
        let names: Vec<Vec<u8>> = match directory.trim_matches('/') {
            "" => Vec::new(),
            _ => {
                let path = FilePath::parse(directory.as_bytes()).map_err(invalid)?;
                path.names().to_vec()
            }
        };
        let from = Tree::of_snapshot(from);
        for path in files {
            let path = FilePath::parse(path.as_bytes()).map_err(invalid)?;
            let source = regular(from, "of the backup", &path)?;
            let (_, name) = path.split();
            let target = format!(
                "{}/{}",
                directory.trim_end_matches('/'),
                String::from_utf8_lossy(name)
            );
            let target = FilePath::parse(target.as_bytes()).map_err(invalid)?;
            let tree = self.live(volume);
            let restore = Restore {
                files: self,
                tree,
                dir: directory_at(tree, &names, &target)?,
                name: name.to_vec(),
                target,
                over: false,
            };
            if !restore.is_there(from, source.ino)? {
                restore.run(from, source.ino)?;
            }
        }
        Ok(())
    }

    /// Ends copies and searches that are under way.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    fn live<'v>(&self, volume: &'v Arc<Volume>) -> Tree<'v> {
        Tree::new(volume, self.clock.current_time())
    }

    fn volume(&self, key: &str) -> Result<Arc<Volume>, Refusal> {
        let found = self.engine.volume(key);
        found.ok_or_else(|| {
            Refusal::new(
                Status::Unavailable,
                "VOLUME_NOT_SERVED",
                "this node does not have the volume's data now (retry)",
            )
        })
    }
}

fn state(attr: &Attr) -> FileState {
    FileState {
        kind: match attr.kind {
            FileKind::Regular => "FILE",
            FileKind::Directory => "DIRECTORY",
            FileKind::Symlink => "SYMLINK",
            _ => "OTHER",
        },
        size: attr.size,
        modified: attr.mtime,
        identity: (attr.ino.0, attr.change),
    }
}

/// Follows names from the root.
fn walk(tree: Tree<'_>, names: &[Vec<u8>]) -> Result<Attr, FsError> {
    let root = tree.volume.root();
    let mut at = tree.run(|volume, cx| volume.getattr(cx, root))?;
    for name in names {
        if at.kind != FileKind::Directory {
            return Err(FsError::NotDir);
        }
        at = tree.run(|volume, cx| volume.lookup(cx, at.ino, name))?.attr;
    }
    Ok(at)
}

/// Returns the attributes of the file at the whole path; `None`: there is none.
fn there(tree: Tree<'_>, path: &FilePath) -> Result<Option<Attr>, Refusal> {
    let (dirs, name) = path.split();
    let names: Vec<Vec<u8>> = dirs.iter().cloned().chain([name.to_vec()]).collect();
    match walk(tree, &names) {
        Ok(attr) => Ok(Some(attr)),
        Err(FsError::NotFound | FsError::NotDir | FsError::Stale) => Ok(None),
        Err(error) => Err(refusal(path, error)),
    }
}

fn refusal(path: &FilePath, error: FsError) -> Refusal {
    let (status, reason) = match error {
        FsError::NotFound | FsError::Stale => (Status::NotFound, "FILE_NOT_FOUND"),
        FsError::Exists => (Status::AlreadyExists, "FILE_EXISTS"),
        FsError::NotDir => (Status::FailedPrecondition, "NOT_A_DIRECTORY"),
        FsError::NoSpace | FsError::Quota => (Status::FailedPrecondition, "NO_SPACE"),
        FsError::Delay => (Status::Unavailable, "BUSY"),
        FsError::Io => (Status::Internal, "UNREADABLE"),
        _ => (Status::FailedPrecondition, "FILE_REFUSED"),
    };
    let next = match error {
        FsError::NotDir => " (symbolic links are not followed: give the path of the directory)",
        FsError::NoSpace | FsError::Quota => " (give the volume more capacity)",
        FsError::Delay => " (retry)",
        _ => "",
    };
    Refusal::new(status, reason, format!("{path}: {error}{next}"))
}

/// A regular file of a snapshot, by its path.
fn regular(tree: Tree<'_>, snapshot: &str, path: &FilePath) -> Result<Attr, Refusal> {
    let (dirs, name) = path.split();
    let dir = walk(tree, dirs).map_err(|error| refusal(path, error))?;
    let found = match dir.kind {
        FileKind::Directory => tree.run(|volume, cx| volume.lookup(cx, dir.ino, name)),
        _ => Err(FsError::NotDir),
    };
    let attr = match found {
        Ok(found) => found.attr,
        Err(FsError::NotFound) => {
            return Err(Refusal::new(
                Status::NotFound,
                "FILE_NOT_FOUND",
                format!("snapshot {snapshot} has no {path} (`:findFile` says which have it)"),
            ));
        }
        Err(error) => return Err(refusal(path, error)),
    };
    match attr.kind {
        FileKind::Regular => Ok(attr),
        _ => Err(Refusal::new(
            Status::FailedPrecondition,
            "NOT_A_FILE",
            format!(
                "{path} is no regular file but of type {} (copy it out of .snapshot, over NFS or SMB)",
                state(&attr).kind
            ),
        )),
    }
}

fn no_snapshot(name: &str) -> Refusal {
    Refusal::new(
        Status::NotFound,
        "SNAPSHOT_NOT_FOUND",
        format!("the volume has no snapshot {name}"),
    )
}

impl Files for SnapshotFiles {
    fn find(&self, key: &str, path: &FilePath) -> Result<Versions, Refusal> {
        let volume = self.volume(key)?;
        let all = volume.snapshots();
        let mut versions: Vec<FileVersion> = Vec::new();
        for snapshot in all.iter().rev() {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(refusal(path, FsError::Delay));
            }
            let view = match volume.open_snapshot(&snapshot.name) {
                Ok(view) => view,
                // Deleted meanwhile.
                Err(FsError::NotFound) => continue,
                Err(error) => return Err(refusal(path, error)),
            };
            let Some(found) = there(Tree::of_snapshot(&view), path)? else {
                continue;
            };
            let state = state(&found);
            match versions.last_mut() {
                Some(version) if version.state.identity == state.identity => {
                    version.first.clone_from(&snapshot.name);
                    version.taken.0 = snapshot.created;
                    version.snapshots += 1;
                }
                _ => versions.push(FileVersion {
                    first: snapshot.name.clone(),
                    last: snapshot.name.clone(),
                    taken: (snapshot.created, snapshot.created),
                    snapshots: 1,
                    state,
                }),
            }
        }
        // Of the destination of a replication, what its clients see.
        let serving = match volume.protected() {
            true => volume.serving().ok().flatten(),
            false => Some(Arc::clone(&volume)),
        };
        let live = match &serving {
            Some(serving) => there(self.live(serving), path)?,
            None => None,
        };
        let (versions, omitted) = bounded(versions);
        Ok(Versions {
            live: live.as_ref().map(state),
            versions,
            omitted,
            searched: all.len() as u64,
        })
    }

    fn open(&self, key: &str, snapshot: &str, path: &FilePath) -> Result<OpenFile, Refusal> {
        let volume = self.volume(key)?;
        let named = volume.snapshot(snapshot);
        let named = named.ok_or_else(|| no_snapshot(snapshot))?;
        let view = volume.open_snapshot(snapshot);
        let view = view.map_err(|_| no_snapshot(snapshot))?;
        let attr = regular(Tree::of_snapshot(&view), snapshot, path)?;
        Ok(OpenFile {
            key: key.to_owned(),
            snapshot: named.id,
            ino: attr.ino.0,
            state: state(&attr),
        })
    }

    fn read(&self, file: &OpenFile, at: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        let volume = self.volume(&file.key)?;
        let gone = |error: FsError| {
            Refusal::new(
                Status::Aborted,
                "DOWNLOAD_BROKEN",
                format!("the snapshot cannot be read any more: {error}"),
            )
        };
        let live = self.live(&volume);
        let view = live.run(|volume, _| volume.view(file.snapshot));
        let view = view.map_err(gone)?;
        let tree = Tree::of_snapshot(&view);
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let (off, left) = (at + bytes.len() as u64, len - bytes.len());
            let read = tree.run(|volume, cx| volume.read(cx, Ino(file.ino), off, left));
            let read = read.map_err(gone)?.to_vec();
            if read.is_empty() {
                break;
            }
            bytes.extend(read);
        }
        Ok(bytes)
    }

    fn restore(
        &self,
        key: &str,
        snapshot: &str,
        path: &FilePath,
        place: RestorePlacement,
    ) -> Result<(FilePath, FileState), Refusal> {
        let wanted = (snapshot, path, place);
        self.restoring(key, wanted, |restore, from, source| {
            restore.run(from, source.ino)
        })
    }

    fn check_restore(
        &self,
        key: &str,
        snapshot: &str,
        path: &FilePath,
        place: RestorePlacement,
    ) -> Result<(FilePath, FileState), Refusal> {
        let wanted = (snapshot, path, place);
        self.restoring(key, wanted, |restore, _, source| {
            restore.free()?;
            Ok((restore.target.clone(), state(source)))
        })
    }
}

impl SnapshotFiles {
    /// Calls `then` with a restore that nothing speaks against so far, the snapshot's tree, and the
    /// file in it.
    fn restoring<T>(
        &self,
        key: &str,
        (snapshot, path, place): (&str, &FilePath, RestorePlacement),
        then: impl FnOnce(&Restore<'_>, Tree<'_>, &Attr) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let volume = self.volume(key)?;
        writable(&volume)?;
        let named = volume.snapshot(snapshot);
        let named = named.ok_or_else(|| no_snapshot(snapshot))?;
        // It is not deleted before the copy is made.
        let hold = volume.hold_identity(named.identity);
        let _hold = hold.map_err(|_| no_snapshot(snapshot))?;
        let view = volume.open_snapshot(snapshot);
        let view = view.map_err(|_| no_snapshot(snapshot))?;
        let from = Tree::of_snapshot(&view);
        let source = regular(from, snapshot, path)?;

        let (dirs, own) = path.split();
        let name = match place {
            RestorePlacement::Beside => name_beside(own, snapshot)?,
            RestorePlacement::Own | RestorePlacement::Over => own.to_vec(),
        };
        let target = path.beside(&name);
        let restore = Restore {
            files: self,
            tree: self.live(&volume),
            dir: directory_at(self.live(&volume), dirs, path)?,
            name,
            target,
            over: place == RestorePlacement::Over,
        };
        then(&restore, from, &source)
    }
}

/// Refuses the destination of a replication.
fn writable(volume: &Volume) -> Result<(), Refusal> {
    match volume.mirror() {
        None => Ok(()),
        Some(_) => Err(Refusal::new(
            Status::FailedPrecondition,
            "VOLUME_READ_ONLY",
            "the volume is the destination of a replication (restore at the source, or break it first)",
        )),
    }
}

/// The directory of the volume that a file is restored into.
fn directory_at(tree: Tree<'_>, dirs: &[Vec<u8>], path: &FilePath) -> Result<Ino, Refusal> {
    match walk(tree, dirs) {
        Ok(attr) if attr.kind == FileKind::Directory => Ok(attr.ino),
        Ok(_) => Err(refusal(path, FsError::NotDir)),
        Err(FsError::NotFound) => Err(Refusal::new(
            Status::FailedPrecondition,
            "DIRECTORY_NOT_FOUND",
            format!(
                "the volume no longer has the directory of {path} (make it first, or download the file)"
            ),
        )),
        Err(error) => Err(refusal(path, error)),
    }
}

/// A file on its way into a directory of the volume.
struct Restore<'a> {
    files: &'a SnapshotFiles,
    tree: Tree<'a>,
    dir: Ino,
    name: Vec<u8>,
    target: FilePath,
    /// A file that has the name is replaced.
    over: bool,
}

impl Restore<'_> {
    fn run(&self, from: Tree<'_>, source: Ino) -> Result<(FilePath, FileState), Refusal> {
        self.free()?;
        // A part that a crash has left is not in the way of the next one.
        let nonce = self.files.rng.next_u64();
        let arriving = format!("{ARRIVING}{nonce:016x}").into_bytes();
        let failed = |error| refusal(&self.target, error);
        let bare = SetAttr {
            mode: Some(0),
            ..SetAttr::default()
        };
        let made = self
            .tree
            .run(|volume, cx| volume.create(cx, self.dir, &arriving, CreateHow::Guarded, &bare));
        let ino = made.map_err(failed)?.value.attr.ino;
        let done = self
            .fill(from, source, ino)
            .and_then(|()| self.place(ino, &arriving));
        if done.is_err() {
            let gone = self
                .tree
                .run(|volume, cx| volume.remove(cx, self.dir, &arriving));
            match gone {
                Ok(_) | Err(FsError::NotFound) => {}
                Err(error) => tracing::warn!(%error, "part of a restored file stays"),
            }
        }
        done?;
        let attr = self.tree.run(|volume, cx| volume.getattr(cx, ino));
        Ok((self.target.clone(), state(&attr.map_err(failed)?)))
    }

    /// Returns true if the volume has the file already, with the same attributes and contents.
    fn is_there(&self, from: Tree<'_>, source: Ino) -> Result<bool, Refusal> {
        let failed = |error| refusal(&self.target, error);
        let found = self
            .tree
            .run(|volume, cx| volume.lookup(cx, self.dir, &self.name));
        let there = match found {
            Ok(found) if found.attr.kind == FileKind::Regular => found.attr.ino,
            Ok(_) | Err(FsError::NotFound) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let (was, sources) = head(from, source).map_err(failed)?;
        let (is, inodes) = head(self.tree, there).map_err(failed)?;
        let same = |a: &FileHead, b: &FileHead| {
            (a.size, a.mode, a.uid, a.gid, a.mtime) == (b.size, b.mode, b.uid, b.gid, b.mtime)
                && a.streams == b.streams
        };
        if !same(&was, &is) {
            return Ok(false);
        }
        for (a, b) in sources.into_iter().zip(inodes) {
            let mut at = 0;
            loop {
                let wanted = piece(from, a, at).map_err(failed)?;
                if wanted != piece(self.tree, b, at).map_err(failed)? {
                    return Ok(false);
                }
                let Some((start, bytes)) = wanted else { break };
                at = start + bytes.len() as u64;
            }
        }
        Ok(true)
    }

    /// Refuses a name that is taken, or by what is no file.
    fn free(&self) -> Result<(), Refusal> {
        let taken = self
            .tree
            .run(|volume, cx| volume.lookup(cx, self.dir, &self.name));
        let target = &self.target;
        match taken {
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(refusal(target, error)),
            Ok(found) if self.over && found.attr.kind == FileKind::Regular => Ok(()),
            Ok(_) if self.over => Err(Refusal::new(
                Status::FailedPrecondition,
                "NOT_A_FILE",
                format!("{target} is not a regular file now: it is not replaced"),
            )),
            Ok(_) => Err(self.taken()),
        }
    }

    fn taken(&self) -> Refusal {
        let target = &self.target;
        Refusal::new(
            Status::AlreadyExists,
            "FILE_EXISTS",
            format!(
                "{target} exists and is not replaced (rename it, or ask to overwrite the original)"
            ),
        )
    }

    /// Copies contents, streams, and what else belongs to the file.
    fn fill(&self, from: Tree<'_>, source: Ino, ino: Ino) -> Result<(), Refusal> {
        let failed = |error| refusal(&self.target, error);
        let (about, sources) = head(from, source).map_err(failed)?;
        let mut inodes = vec![ino];
        for (name, _) in &about.streams {
            let made = self
                .tree
                .run(|volume, cx| volume.make_stream(cx, ino, name));
            inodes.push(made.map_err(failed)?.value.attr.ino);
        }
        for ((source, to), size) in sources.into_iter().zip(inodes).zip(sizes(&about)) {
            let mut at = 0;
            while let Some((start, bytes)) = piece(from, source, at).map_err(failed)? {
                if self.files.stopping.load(Ordering::Relaxed) {
                    return Err(failed(FsError::Delay));
                }
                let mut written = 0;
                while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
                    let off = start + written as u64;
                    let done = self
                        .tree
                        .run(|volume, cx| volume.write(cx, to, off, rest, Stability::Unstable));
                    written += done.map_err(failed)?.value.len;
                }
                at = start + bytes.len() as u64;
            }
            let sized = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            let set = self
                .tree
                .run(|volume, cx| volume.setattr(cx, to, &sized, None));
            set.map_err(failed)?;
        }
        dress(self.tree, ino, &about).map_err(failed)?;
        self.files.engine.cp_now().map_err(failed)
    }

    /// Gives the complete file its name.
    fn place(&self, ino: Ino, arriving: &[u8]) -> Result<(), Refusal> {
        let failed = |error| refusal(&self.target, error);
        self.recall()?;
        self.free()?;
        let lsn = match self.over {
            true => {
                let done = self
                    .tree
                    .run(|volume, cx| volume.rename(cx, self.dir, arriving, self.dir, &self.name));
                let done = done.map_err(failed)?;
                // What was granted meanwhile.
                if let Some(replaced) = done.value.replaced {
                    self.breaks(replaced, Name);
                }
                done.lsn
            }
            false => {
                // Unlike a rename, this never replaces.
                let done = self
                    .tree
                    .run(|volume, cx| volume.link(cx, ino, self.dir, &self.name));
                match done {
                    Ok(_) => {}
                    Err(FsError::Exists) => return Err(self.taken()),
                    Err(error) => return Err(failed(error)),
                }
                let gone = self
                    .tree
                    .run(|volume, cx| volume.remove(cx, self.dir, arriving));
                gone.map_err(failed)?.lsn
            }
        };
        self.breaks(self.dir, Entries);
        self.files.engine.wait_durable(lsn).map_err(failed)
    }

    /// Breaks clients' caches of an inode for a change of this kind.
    fn breaks(&self, ino: Ino, event: claims::Event) -> Passage {
        let file = FileId {
            volume: self.tree.volume.id(),
            ino,
            namespace: Namespace::Live,
        };
        let claims = &self.files.vfs.claims;
        claims.names(file, claims::Actor::Stateless, event, claims::Style::Unix)
    }

    /// Waits until no client caches a file that is about to be replaced, or its directory's
    /// entries.
    fn recall(&self) -> Result<(), Refusal> {
        loop {
            let there = self
                .tree
                .run(|volume, cx| volume.lookup(cx, self.dir, &self.name));
            let replaced = there.ok().map(|found| self.breaks(found.attr.ino, Name));
            let passages = [Some(self.breaks(self.dir, Entries)), replaced];
            let mut ticket = None;
            for passage in passages.into_iter().flatten() {
                match passage {
                    Passage::Free => {}
                    Passage::Denied | Passage::Locked => {
                        return Err(Refusal::new(
                            Status::FailedPrecondition,
                            "FILE_IN_USE",
                            format!(
                                "{}: a client has it open and denies others to replace it",
                                self.target
                            ),
                        ));
                    }
                    Passage::Breaking(breaking) => ticket = Some(breaking),
                }
            }
            match ticket {
                Some(ticket) => self.files.runtime.block_on(ticket.wait()),
                None => return Ok(()),
            };
        }
    }
}

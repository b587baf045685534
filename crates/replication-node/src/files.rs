//! Copies single files of a snapshot into a writable volume (`snapmirror restore -file-list`).
//!
//! Nothing else of the volume changes. Each file is copied to a temporary name beside its target,
//! and compared with the source by a hash of its contents. When all have arrived and are durable,
//! that is recorded in the relationship's row; then they are renamed over their targets. So a
//! restore that fails, is aborted or is cut short by a crash has changed nothing. A restore that
//! was interrupted during the renames does not copy again, because users may have written since: it
//! only renames the temporary files that are left.
//!
//! Contents are sent and hashed in pieces of [`weir_node::tree::PIECE`] bytes from the file's
//! start. Pieces that are all zeroes, such as holes, are neither sent nor hashed.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use weir_base::Ino;
use weir_base::SnapshotIdentity;
use weir_node::tree::{ARRIVING, Tree, dress, head, piece, sizes};
use weir_relations::manager::{Done, Event, Failure, Progress, Step};
use weir_relations::model::FileRestore;
use weir_transfer::session::{Ask, PeerReply};
use weir_transfer::wire::{self, Kind};
use weir_vfs::claims::{self, Event::Entries, Event::Name};
use weir_vfs::{FileId, Namespace};
use weir_volume::{CreateHow, FileKind, FsError, SetAttr, Stability, Volume};

use super::job::{Outcome, REPORT_MS, Transfer, dial, lasting, passing, volume_of_path};
use super::limiter::Flow;
use super::link::{Link, LinkError};
use super::state::Replication;

type Sum = [u8; 32];

/// Returns the directory of a path, and the last name of the path. Symbolic links are not followed.
fn parent<'p>(tree: Tree<'_>, path: &'p str) -> Result<(Ino, &'p [u8]), FsError> {
    let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
    let mut at = tree.volume.root();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return Ok((at, name.as_bytes()));
        }
        at = tree
            .run(|volume, cx| volume.lookup(cx, at, name.as_bytes()))?
            .ino;
    }
    Err(FsError::IsDir)
}

/// Returns the regular file at a path.
fn file(tree: Tree<'_>, path: &str) -> Result<Ino, FsError> {
    let (dir, name) = parent(tree, path)?;
    let found = tree.run(|volume, cx| volume.lookup(cx, dir, name))?;
    match found.attr.kind {
        FileKind::Regular => Ok(found.ino),
        FileKind::Directory => Err(FsError::IsDir),
        _ => Err(FsError::Invalid),
    }
}

/// Hash of a file's contents: SHA-256 of its size, and of each piece's offset and bytes.
struct Hash(Context);

impl Hash {
    fn new(size: u64) -> Hash {
        let mut hash = Context::new(&SHA256);
        hash.update(&size.to_le_bytes());
        Hash(hash)
    }

    fn add(&mut self, at: u64, bytes: &[u8]) {
        self.0.update(&at.to_le_bytes());
        self.0.update(bytes);
    }

    fn sum(self) -> Sum {
        let mut sum = [0; 32];
        sum.copy_from_slice(self.0.finish().as_ref());
        sum
    }
}

/// Sends a file of a snapshot. `admitted` checks before each piece that the peer may still read it.
pub async fn send(
    link: &mut Link,
    volume: &Arc<Volume>,
    (snapshot, path): (SnapshotIdentity, &str),
    (flow, level): (&Flow, Option<i32>),
    admitted: impl Fn() -> Result<(), LinkError>,
) -> Result<(), LinkError> {
    let opened = volume.hold_identity(snapshot).and_then(|hold| {
        let named = volume.snapshot_with(snapshot).ok_or(FsError::NotFound)?;
        Ok((hold, volume.open_snapshot(&named.name)?))
    });
    let found = opened.and_then(|(hold, view)| {
        let tree = Tree::of_snapshot(&view);
        let ino = file(tree, path)?;
        let (head, inodes) = head(tree, ino)?;
        Ok((hold, view, inodes, head))
    });
    let (_hold, view, inodes, head) = match found {
        Ok(found) => found,
        Err(error) => {
            return link
                .tell(&PeerReply::Refused(format!("\"{path}\": {error}")))
                .await;
        }
    };
    let tree = Tree::of_snapshot(&view);
    let sizes: Vec<u64> = sizes(&head).collect();
    link.tell(&PeerReply::File(Box::new(head))).await?;
    let failed = |error: FsError| LinkError::Later(error.to_string());
    for (ino, size) in inodes.into_iter().zip(sizes) {
        let (mut hash, mut at) = (Hash::new(size), 0);
        while let Some((from, bytes)) = piece(tree, ino, at).map_err(failed)? {
            admitted()?;
            hash.add(from, &bytes);
            at = from + bytes.len() as u64;
            let begin = wire::begin_frame(&mut link.out);
            link.out.extend(from.to_le_bytes());
            link.out.extend(bytes);
            let wire = wire::end_frame(&mut link.out, begin, Kind::Records, level)?;
            flow.take(wire as u64).await;
            link.flush().await?;
        }
        link.tell(&PeerReply::FileEnd(hash.sum())).await?;
    }
    Ok(())
}

/// Returns the temporary name of a relationship's file, in the directory of its target.
fn arriving(relationship: &str, n: usize) -> String {
    format!("{ARRIVING}{relationship}-{n}")
}

/// Deletes the temporary files of a relationship.
pub fn drop_arriving(service: &Replication, key: &str, relationship: &str, files: &[FileRestore]) {
    let Ok(volume) = service.engine_volume(key) else {
        return;
    };
    let tree = Tree::new(&volume, service.clock.current_time());
    for (n, wanted) in files.iter().enumerate() {
        let name = arriving(relationship, n);
        let gone = parent(tree, &wanted.destination)
            .and_then(|(dir, _)| tree.run(|volume, cx| volume.remove(cx, dir, name.as_bytes())));
        match gone {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => tracing::warn!(%error, name, "cannot delete part of a restored file"),
        }
    }
}

impl Transfer<'_> {
    /// Copies single files, and then renames all of them over their targets.
    pub async fn files(&self) -> Outcome<Done> {
        let (service, job) = (self.service, self.job);
        let volume = service.engine_volume(&self.key).map_err(passing)?;
        if volume.mirror().is_some() {
            return Err(lasting(format!(
                "Destination volume \"{}\" must be a read-write volume.",
                job.destination
            )));
        }
        let tree = Tree::new(&volume, service.clock.current_time());
        if !self.arrived.get() {
            self.fetch_all(tree).await?;
            service.engine.cp_now().map_err(passing)?;
            self.arrived.set(true);
            service.happened(Step::Arrived(job.relationship.clone()));
        }
        self.tell(Event::Finalizing);
        for (n, wanted) in job.files.iter().enumerate() {
            self.recall(tree, &wanted.destination).await;
            let renamed = parent(tree, &wanted.destination).and_then(|(dir, name)| {
                let from = arriving(&job.relationship, n);
                let done =
                    tree.run(|volume, cx| volume.rename(cx, dir, from.as_bytes(), dir, name))?;
                // Breaks claims that were granted in the meantime.
                let claimed = [(Some(dir), Entries), (done.value.replaced, Name)];
                for (ino, event) in claimed {
                    ino.map(|ino| self.breaks(tree, ino, event));
                }
                Ok(done)
            });
            match renamed {
                Ok(done) => service.engine.wait_durable(done.lsn).map_err(passing)?,
                // An attempt that a crash has cut short has renamed it.
                Err(FsError::NotFound) if job.arrived => {}
                Err(error) => {
                    let path = &wanted.destination;
                    return Err(lasting(format!(
                        "File \"{path}\" cannot be replaced: {error}"
                    )));
                }
            }
        }
        Ok(Done::default())
    }

    /// Breaks clients' caches of an inode for a change of this kind. Returns the ticket of a break
    /// that has to end before the change.
    fn breaks(&self, tree: Tree<'_>, ino: Ino, event: claims::Event) -> Option<claims::Ticket> {
        let file = FileId {
            volume: tree.volume.id(),
            ino,
            namespace: Namespace::Live,
        };
        self.service.counters.vfs.claims.recall(file, event)
    }

    /// Waits until no client caches the file that is about to be replaced, or its directory's
    /// entries.
    async fn recall(&self, tree: Tree<'_>, path: &str) {
        loop {
            let ticket = parent(tree, path).ok().and_then(|(dir, name)| {
                let there = tree.run(|volume, cx| volume.lookup(cx, dir, name));
                self.breaks(tree, dir, Entries)
                    .or_else(|| self.breaks(tree, there.ok()?.ino, Name))
            });
            match ticket {
                Some(ticket) => ticket.wait().await,
                None => return,
            }
        }
    }

    async fn fetch_all(&self, tree: Tree<'_>) -> Outcome<()> {
        let job = self.job;
        let mut link = dial(self.service, &job.source).await?;
        let source = self.source(&mut link).await?;
        let wanted =
            |s: &&weir_relations::plan::Snapshot| match (&job.source_snapshot, source.exported) {
                (Some(name), _) => s.name == *name,
                (None, Some(seen)) => s.id == seen,
                (None, None) => true,
            };
        let snapshot = source.snapshots.iter().rev().find(wanted);
        let snapshot = snapshot.ok_or_else(|| {
            let name = job.source_snapshot.as_deref().unwrap_or("-");
            lasting(format!(
                "Snapshot copy \"{name}\" is not present on source volume \"{}\".",
                job.source
            ))
        })?;
        self.tell(Event::Chosen(snapshot.name.clone()));
        self.tell(Event::Moving);
        let mut progress = Progress::default();
        for (n, wanted) in job.files.iter().enumerate() {
            self.fetch(&mut link, tree, snapshot.id, (n, wanted), &mut progress)
                .await?;
        }
        self.tell(Event::Progress(progress));
        Ok(())
    }

    async fn fetch(
        &self,
        link: &mut Link,
        tree: Tree<'_>,
        snapshot: SnapshotIdentity,
        (n, wanted): (usize, &FileRestore),
        progress: &mut Progress,
    ) -> Outcome<()> {
        let job = self.job;
        let ask = Ask::File {
            volume: volume_of_path(&job.source),
            snapshot,
            path: wanted.source.clone(),
            throttle: job.throttle,
            compress: job.policy.compression,
        };
        let PeerReply::File(head) = link.request(&ask).await? else {
            return Err(passing("the source gave another answer"));
        };
        let at_destination = |error: FsError| at_destination(wanted, error);
        let (dir, name) = parent(tree, &wanted.destination).map_err(at_destination)?;
        match tree.run(|volume, cx| volume.lookup(cx, dir, name)) {
            Ok(there) if there.attr.kind == FileKind::Directory => {
                return Err(at_destination(FsError::IsDir));
            }
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(at_destination(error)),
        }
        let arriving = arriving(&job.relationship, n);
        // From an earlier attempt.
        match tree.run(|volume, cx| volume.remove(cx, dir, arriving.as_bytes())) {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(at_destination(error)),
        }
        let bare = SetAttr {
            mode: Some(0),
            ..SetAttr::default()
        };
        let made = tree.run(|volume, cx| {
            volume.create(cx, dir, arriving.as_bytes(), CreateHow::Guarded, &bare)
        });
        let ino = made.map_err(at_destination)?.value.attr.ino;
        let mut inodes = vec![ino];
        for (name, _) in &head.streams {
            let made = tree.run(|volume, cx| volume.make_stream(cx, ino, name));
            inodes.push(made.map_err(at_destination)?.value.attr.ino);
        }
        for part in inodes.into_iter().zip(sizes(&head)) {
            self.contents(link, tree, part, wanted, progress).await?;
        }
        dress(tree, ino, &head).map_err(at_destination)
    }

    /// Receives the contents of a file or of one of its streams, of `size` bytes.
    async fn contents(
        &self,
        link: &mut Link,
        tree: Tree<'_>,
        (ino, size): (Ino, u64),
        wanted: &FileRestore,
        progress: &mut Progress,
    ) -> Outcome<()> {
        let (service, job) = (self.service, self.job);
        let at_destination = |error: FsError| at_destination(wanted, error);
        let flow = service.incoming.join(None);
        let mut reported = service.current_time().ms;
        let said = loop {
            let (kind, payload, wire) = link.frame().await?;
            match (kind, payload.split_first_chunk()) {
                (Kind::Records, Some((from, bytes))) => {
                    let from = u64::from_le_bytes(*from);
                    if from
                        .checked_add(bytes.len() as u64)
                        .is_none_or(|end| end > size)
                    {
                        return Err(passing("the source sent more than the file holds"));
                    }
                    let mut written = 0;
                    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
                        let off = from + written as u64;
                        let done = tree.run(|volume, cx| {
                            volume.write(cx, ino, off, rest, Stability::Unstable)
                        });
                        written += done.map_err(at_destination)?.value.len;
                    }
                    progress.bytes += bytes.len() as u64;
                    progress.wire_bytes += wire as u64;
                    progress.moved = progress.wire_bytes;
                    flow.take(wire as u64).await;
                }
                (Kind::Control, _) => match weir_transfer::session::decode(&payload) {
                    Ok(PeerReply::FileEnd(sum)) => break sum,
                    Ok(_) => return Err(passing("the source gave another answer")),
                    Err(why) => return Err(passing(why)),
                },
                _ => return Err(passing("the source sent a frame out of turn")),
            }
            if service.current_time().ms >= reported + REPORT_MS {
                reported = service.current_time().ms;
                self.tell(Event::Progress(progress.clone()));
            }
        };
        let sized = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        tree.run(|volume, cx| volume.setattr(cx, ino, &sized, None))
            .map_err(at_destination)?;
        let (mut hash, mut at) = (Hash::new(size), 0);
        while let Some((from, bytes)) = piece(tree, ino, at).map_err(at_destination)? {
            hash.add(from, &bytes);
            at = from + bytes.len() as u64;
            // Lets an abort proceed.
            tokio::task::yield_now().await;
        }
        if hash.sum() != said {
            tracing::error!(source = %job.source, path = wanted.source, "cannot restore a file: its content differs from the source's");
            return Err(lasting(format!(
                "File \"{}\" is not the same on {} and on {}. Nothing was changed.",
                wanted.source, job.source, job.destination
            )));
        }
        Ok(())
    }
}

fn at_destination(wanted: &FileRestore, error: FsError) -> Failure {
    match error {
        FsError::NoSpace | FsError::Quota | FsError::Io | FsError::Delay => passing(error),
        error => {
            let path = &wanted.destination;
            lasting(format!("File \"{path}\" cannot be made: {error}"))
        }
    }
}

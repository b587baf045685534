//! Changes of qtrees by the server itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use weir_base::{Ino, Lsn, Time};
use weir_control::backend::DELETED_TREE;
use weir_vfs::claims::{BREAK_PATIENCE, Claims, Event, Ticket};
use weir_vfs::{FileId, Namespace};
use weir_volume::{EngineContext, FsError, Volume};

/// Interval between two checks of whether the server stops, while clients are waited for.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until no client caches any of these inodes in a way that the change of its kind affects.
/// A client that does not answer loses its cache in the end; the wait ends before that if `stopped`
/// says so.
pub fn recall(
    (claims, volume): (&Claims, &Volume),
    changes: &[(Ino, Event)],
    runtime: &Handle,
    stopped: &dyn Fn() -> bool,
) {
    if claims.version_in(volume.id()).none() {
        return;
    }
    let breaks = |(ino, event): &(Ino, Event)| {
        let file = FileId {
            volume: volume.id(),
            ino: *ino,
            namespace: Namespace::Live,
        };
        claims.recall(file, *event)
    };
    // A break is over at the latest when its time is, if anything in the process counts that.
    for _ in 0..BREAK_PATIENCE.as_secs().saturating_mul(2) {
        // All of them at once: then they wait for the same time.
        let tickets: Vec<Ticket> = changes.iter().filter_map(breaks).collect();
        if tickets.is_empty() || stopped() {
            return;
        }
        let over = async {
            for ticket in tickets {
                ticket.wait().await;
            }
        };
        // Late clients are asked about once more, and the next break has the same end.
        let _ = runtime.block_on(async { tokio::time::timeout(LOOK, over).await });
    }
}

/// The deletion of a qtree.
pub(crate) struct Deletion<'d> {
    pub volume: &'d Volume,
    pub claims: &'d Claims,
    pub now: Time,
    pub stopping: &'d AtomicBool,
}

impl Deletion<'_> {
    fn stopped(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Takes the qtree's name away, and deletes all that is in it. Returns the position of the log
    /// behind that.
    pub fn run(&self, number: u32) -> Result<Option<Lsn>, FsError> {
        let gone = format!("{DELETED_TREE}{number}");
        loop {
            let trees = self.volume.trees(self.now)?;
            let Some(tree) = trees.into_iter().find(|tree| tree.number == number) else {
                return Ok(None);
            };
            if *tree.name == *gone.as_bytes() {
                break;
            }
            match self.rename(&tree.name, gone.as_bytes()) {
                // A client has renamed it meanwhile.
                Err(FsError::NotFound) => {}
                Ok(()) => {
                    let file = |ino| FileId {
                        volume: self.volume.id(),
                        ino,
                        namespace: Namespace::Live,
                    };
                    // The request has waited for those that were granted before.
                    self.claims.recall(file(self.volume.root()), Event::Entries);
                    self.claims.recall(file(tree.ino), Event::Name);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let runtime = Handle::current();
        let recall = |dir: Ino, files: &[Ino]| {
            let names = files.iter().map(|ino| (*ino, Event::Name));
            let changes: Vec<_> = std::iter::once((dir, Event::Entries))
                .chain(names)
                .collect();
            let stopped = || self.stopped();
            recall((self.claims, self.volume), &changes, &runtime, &stopped);
        };
        self.volume
            .remove_all(self.now, gone.as_bytes(), &recall, &|| self.stopped())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), FsError> {
        let root = self.volume.root();
        let mut cx = EngineContext::new(self.now);
        let done = self
            .volume
            .drive_blocking(&mut cx, |cx| self.volume.rename(cx, root, from, root, to));
        done.map(drop)
    }
}

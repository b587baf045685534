//! The files of the data folder that a node which takes over has to have: the secret of handles, the catalog, the users of SMB, the
//! numbers of users of domains, the membership of a domain.
//!
//! They are sent whole when they have changed, over the link of the stream, and an entry of the stream is made behind them: when the partner has
//! acknowledged that, it has the files. A change through the API is reported to the client that made it only then
//! ([`Pair::mirror_files`]); what changes without one is found by a check every [`EVERY`].

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_base::small_file;

use anyhow::{Context, Result, anyhow, bail};
use weir_base::Lsn;
use weir_mirror::Role;
use weir_mirror::wire::{Message, PIECE};

use super::{Pair, Serving};

/// How often it is checked whether they have changed.
const EVERY: Duration = Duration::from_millis(100);
/// A file that is larger is not sent.
const MOST: usize = 256 << 20;
/// The catalog's name on the way: each side has it where it has it.
const CATALOG: &str = "catalog";
/// Before it is tried again to send them.
const AGAIN: Duration = Duration::from_millis(20);

/// How often it is checked whether the partner has them.
const POLL: Duration = Duration::from_millis(1);

/// Sends what has changed, for as long as the process runs.
pub async fn ship(pair: &Arc<Pair>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = pair.shipped.lock().await.send(pair, false).await {
            pair.note_fault(not_sent(&error));
        }
    }
}

fn not_sent(error: &anyhow::Error) -> String {
    format!("the partner does not get the catalog or a file: {error:#}")
}

/// What was sent last.
#[derive(Default)]
pub struct Shipped {
    /// The link they were sent over.
    link: u64,
    generation: Option<u64>,
    others: HashMap<&'static str, Vec<u8>>,
}

/// Files on their way.
struct Sent {
    /// The link.
    link: u64,
    /// Of the entry behind them.
    lsn: Lsn,
}

impl Shipped {
    /// Sends what has changed; with `catalog` the catalog in any case. `None`: no partner goes on from here, or there is nothing to send.
    async fn send(&mut self, pair: &Arc<Pair>, catalog: bool) -> Result<Option<Sent>> {
        let Some(Serving { control, .. }) = pair.serving.get() else {
            return Ok(None);
        };
        let (number, first) = {
            let inner = pair.inner.lock();
            let joined = inner.link.as_ref().filter(|link| link.joined.is_some());
            // A check does not add to what the link has not sent yet.
            let ready = joined.filter(|link| catalog || link.queued() == 0);
            let Some(link) = ready.filter(|_| !inner.stopping) else {
                return Ok(None);
            };
            if !matches!(inner.role, Role::Alone | Role::Primary) {
                return Ok(None);
            }
            (link.number, !inner.files)
        };
        if self.link != number {
            *self = Shipped {
                link: number,
                ..Shipped::default()
            };
        }
        let mut messages = Vec::new();
        for name in pair.shipped_files {
            let bytes = small_file::read(&pair.folder.join(name))?;
            if let Some(bytes) = bytes.filter(|bytes| self.others.get(name) != Some(bytes)) {
                pieces(name, &bytes, &mut messages)?;
                self.others.insert(name, bytes);
            }
        }
        let generation = control.view().generation;
        if catalog || self.generation != Some(generation) {
            let copy = pair.folder.join("catalog.copy");
            let _ = std::fs::remove_file(&copy);
            let to = copy
                .to_str()
                .context("the data folder's name is not UTF-8")?;
            if control.catalog().copy_to(to).await? {
                let bytes = std::fs::read(&copy)?;
                std::fs::remove_file(&copy)?;
                pieces(CATALOG, &bytes, &mut messages)?;
            }
            self.generation = Some(generation);
        }
        if messages.is_empty() && !first {
            return Ok(None);
        }
        {
            let mut inner = pair.inner.lock();
            let link = inner.link.as_mut().filter(|link| link.number == number);
            let Some(link) = link else {
                return Ok(None);
            };
            messages.iter().for_each(|message| link.say(message));
            inner.files = true;
        }
        // Travels behind the files.
        let at = pair.engine.position();
        let noted = pair.engine.note_position(at);
        let lsn = noted.map_err(|stop| anyhow!("{stop:?}"));
        pair.send.notify_one();
        if lsn.is_err() {
            *self = Shipped::default();
        }
        Ok(Some(Sent {
            link: number,
            lsn: lsn?,
        }))
    }
}

impl Pair {
    /// Returns once the partner has the files as they are now durable, or this node is primary without one, or does not
    /// serve yet.
    pub(super) async fn mirror_files(self: &Arc<Self>) {
        if self.serving.get().is_none() {
            return;
        }
        loop {
            let sent = self.shipped.lock().await.send(self, true).await;
            match sent {
                Ok(Some(sent)) => {
                    while self.engine.durable() < sent.lsn {
                        if self.needs_no_partner(&self.inner.lock()) {
                            return;
                        }
                        tokio::time::sleep(POLL).await;
                    }
                    // The entry may have gone on over another link than the files.
                    let inner = self.inner.lock();
                    let link = inner.link.as_ref().map(|link| link.number);
                    if link == Some(sent.link) || self.needs_no_partner(&inner) {
                        return;
                    }
                }
                Ok(None) => {
                    if self.needs_no_partner(&self.inner.lock()) {
                        return;
                    }
                }
                Err(error) => self.note_fault(not_sent(&error)),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// No partner could take over: one that comes gets the files before it may. Or this node ends, and has waited for long enough.
    fn needs_no_partner(&self, inner: &super::Inner) -> bool {
        let joined = inner
            .link
            .as_ref()
            .is_some_and(|link| link.joined.is_some());
        let ended = self
            .ends
            .get()
            .is_some_and(|at| self.clock.monotonic() >= *at);
        ended || inner.stopping || inner.role == Role::Alone && !joined
    }
}

fn pieces(name: &str, bytes: &[u8], messages: &mut Vec<Message>) -> Result<()> {
    if bytes.len() > MOST {
        bail!("{name} has {} bytes", bytes.len());
    }
    let count = bytes.len().div_ceil(PIECE).max(1);
    for n in 0..count {
        let piece = bytes.get(n * PIECE..bytes.len().min((n + 1) * PIECE));
        messages.push(Message::File {
            name: name.to_owned(),
            bytes: piece.unwrap_or_default().to_vec(),
            first: n == 0,
            last: n + 1 == count,
        });
    }
    Ok(())
}

/// A file that is coming.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// The next piece.
    ///
    /// # Errors
    /// It is none of those files, too large, or cannot be written.
    pub fn take(
        &mut self,
        pair: &Pair,
        name: &str,
        bytes: &[u8],
        first: bool,
        last: bool,
    ) -> Result<()> {
        if first {
            self.bytes.clear();
        }
        if self.bytes.len() + bytes.len() > MOST {
            bail!("{name} is too large");
        }
        self.bytes.extend(bytes);
        if !last {
            return Ok(());
        }
        if pair.inner.lock().serving {
            bail!("a file for a node that serves");
        }
        let whole = std::mem::take(&mut self.bytes);
        if let Some(name) = pair.shipped_files.iter().find(|other| **other == name) {
            return Ok(small_file::replace(&pair.folder, name, &whole)?);
        }
        match (name, &pair.catalog) {
            (CATALOG, Some(path)) => put_catalog(path, &whole),
            _ => bail!("{name} is no file of a pair"),
        }
    }
}

fn put_catalog(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("the catalog's folder")?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .context("the catalog's name")?;
    // Those of a catalog that was served from here.
    for tail in ["-wal", "-shm"] {
        match std::fs::remove_file(folder.join(format!("{name}{tail}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(small_file::replace(folder, name, bytes)?)
}

//! The files of the data folder that a node which takes over has to have: the secret of handles, the catalog, the users of SMB.
//!
//! They are sent whole when they have changed, beside the stream. So a change of the catalog that was acknowledged up to
//! [`EVERY`] before an unplanned takeover may be missing there; what it did to the engine is not (`weir catalog rebuild`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use weir_mirror::Role;
use weir_mirror::wire::{Message, PIECE};

use super::Pair;
use crate::state;

/// How often it is checked whether they have changed.
const EVERY: Duration = Duration::from_millis(100);
/// A file that is larger is not sent.
const MOST: usize = 256 << 20;
/// The catalog's name on the way: each side has it where it has it.
const CATALOG: &str = "catalog";
/// What is stored in the data folder under its own name.
const OTHERS: [&str; 2] = [state::HANDLE_KEY, crate::accounts::FILE];

/// Sends what has changed, for as long as the process runs.
pub async fn ship(pair: &Arc<Pair>) {
    let mut shipped = Shipped::default();
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = shipped.look(pair).await {
            pair.troubled(format!(
                "the partner does not get the catalog or a file: {error:#}"
            ));
        }
    }
}

#[derive(Default)]
struct Shipped {
    /// The link they were sent over.
    link: u64,
    generation: Option<u64>,
    others: HashMap<&'static str, Vec<u8>>,
}

impl Shipped {
    async fn look(&mut self, pair: &Arc<Pair>) -> Result<()> {
        let Some(control) = pair.control.get() else {
            return Ok(());
        };
        let (number, first) = {
            let inner = pair.inner.lock();
            if inner.stopping {
                return Ok(());
            }
            let joined = inner.link.as_ref().filter(|link| link.joined.is_some());
            let Some(link) = joined.filter(|link| link.queued() == 0) else {
                return Ok(());
            };
            if !matches!(inner.role, Role::Alone | Role::Primary) {
                return Ok(());
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
        for name in OTHERS {
            let bytes = state::read(&pair.folder.join(name))?;
            if let Some(bytes) = bytes.filter(|bytes| self.others.get(name) != Some(bytes)) {
                pieces(name, &bytes, &mut messages)?;
                self.others.insert(name, bytes);
            }
        }
        let generation = control.view().generation;
        if self.generation != Some(generation) {
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
            return Ok(());
        }
        let mut inner = pair.inner.lock();
        let link = inner.link.as_mut().filter(|link| link.number == number);
        let Some(link) = link else {
            return Ok(());
        };
        messages.iter().for_each(|message| link.say(message));
        pair.send.notify_one();
        if first {
            inner.files = true;
            drop(inner);
            // The partner is caught up when it has acknowledged this, which travels behind the files.
            let at = pair.engine.position();
            pair.engine
                .note_position(at)
                .map_err(|stop| anyhow!("{stop:?}"))?;
        }
        Ok(())
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
        if let Some(name) = OTHERS.into_iter().find(|other| *other == name) {
            return Ok(state::replace(&pair.folder, name, &whole)?);
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
    Ok(state::replace(folder, name, bytes)?)
}

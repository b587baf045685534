//! The files of the data folder that a node which takes over has to have: the secret of handles,
//! the catalog, the users of SMB, the numbers of users of domains, the membership of a domain.
//!
//! They are sent whole over the stream's link when they have changed, followed by an entry of the
//! stream. Once the partner has acknowledged that entry, it has the files. A change through the API
//! is reported to its client only then ([`Pair::mirror_files`]). Changes made otherwise are found
//! by a check every [`EVERY`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_base::small_file;

use anyhow::{Context, Result, anyhow, bail};
use weir_base::Lsn;
use weir_control::CatalogCopy;
use weir_mirror::Role;
use weir_mirror::wire::{Message, PIECE};

use super::pair::{Inner, Pair};
use super::service::ServiceParts;

/// Maximum number of bytes of a file that is sent.
pub const MOST: usize = 256 << 20;
/// Name of the catalog on the way: each side has its own path for it.
pub const CATALOG: &str = "catalog";
/// Interval between checks for changed files.
const EVERY: Duration = Duration::from_millis(100);
/// Delay before the next attempt to send files.
const AGAIN: Duration = Duration::from_millis(20);

/// Interval between checks whether the partner has acknowledged the files.
const POLL: Duration = Duration::from_millis(1);

/// Sends changed files, for as long as the process runs.
pub async fn ship(pair: &Arc<Pair>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = pair.shipped.lock().await.send(pair, false).await {
            pair.note_passing(not_sent(&error));
        }
    }
}

fn not_sent(error: &anyhow::Error) -> String {
    format!("the partner does not get the catalog or a file: {error:#}")
}

/// Contents that were sent last.
#[derive(Default)]
pub struct FileSender {
    /// Number of the link over which they were sent.
    link: u64,
    generation: Option<u64>,
    others: HashMap<&'static str, Vec<u8>>,
}

/// Files on their way.
struct InFlightFiles {
    /// Number of the link.
    link: u64,
    /// LSN of the entry that follows the files.
    lsn: Lsn,
}

impl FileSender {
    /// Sends changed files, and with `catalog` the catalog in any case. Returns `None` if no
    /// partner has joined, or nothing is to be sent.
    async fn send(&mut self, pair: &Arc<Pair>, catalog: bool) -> Result<Option<InFlightFiles>> {
        let Some(ServiceParts { control, .. }) = pair.service.serving() else {
            return Ok(None);
        };
        let (number, first) = {
            let inner = pair.inner.lock();
            let joined = inner.partner.link().filter(|link| link.joined.is_some());
            // A check does not add to what the link has not sent yet.
            let ready = joined.filter(|link| catalog || link.queued() == 0);
            let Some(link) = ready.filter(|_| !inner.rules.stopping()) else {
                return Ok(None);
            };
            if !matches!(inner.rules.role(), Role::Alone | Role::Primary) {
                return Ok(None);
            }
            (link.number, !inner.partner.has_files())
        };
        if self.link != number {
            *self = FileSender {
                link: number,
                ..FileSender::default()
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
                .context("cannot copy the catalog: the data folder's name is not UTF-8")?;
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
            let link = inner.partner.numbered(number);
            let Some(link) = link else {
                return Ok(None);
            };
            messages.iter().for_each(|message| link.say(message));
            inner.partner.set_files(true);
        }
        // Travels behind the files.
        let at = pair.engine.position();
        let noted = pair.engine.note_position(at);
        let lsn = noted.map_err(|stop| anyhow!("{stop:?}"));
        pair.send.notify_one();
        if lsn.is_err() {
            *self = FileSender::default();
        }
        Ok(Some(InFlightFiles {
            link: number,
            lsn: lsn?,
        }))
    }
}

impl CatalogCopy for Pair {
    fn bring_up_to_date(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.mirror_files().await })
    }
}

impl Pair {
    /// Returns once the partner has the files as they are now durable, or this node is primary
    /// without one, or does not serve yet.
    pub(super) async fn mirror_files(self: &Arc<Self>) {
        if self.service.serving().is_none() {
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
                    let link = inner.partner.link().map(|link| link.number);
                    if link == Some(sent.link) || self.needs_no_partner(&inner) {
                        return;
                    }
                }
                Ok(None) => {
                    if self.needs_no_partner(&self.inner.lock()) {
                        return;
                    }
                }
                Err(error) => self.note_passing(not_sent(&error)),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Returns true if no partner could take over: it gets the files before it may. Returns true as
    /// well if this node ends and has waited for long enough.
    fn needs_no_partner(&self, inner: &Inner) -> bool {
        let joined = inner
            .partner
            .link()
            .is_some_and(|link| link.joined.is_some());
        let ended = self.service.has_ended(self.clock.monotonic());
        ended || inner.rules.stopping() || inner.rules.role() == Role::Alone && !joined
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

//! Search for silent divergence: both copies are hashed at one mark and compared.
//!
//! The primary makes a mark, whose position in the stream is the same on both sides, so clients
//! continue meanwhile. Only the nodes of the trees are hashed, which contain the checksums of all
//! blocks. The blocks themselves are not read; a scrub reads them and compares the checksums.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weir_base::VolumeId;
use weir_mirror::Role;
use weir_mirror::wire::{HASHES, Message, VolumeHash};
use weir_volume::MarkId;

use super::pair::Pair;
use super::partner::Comparison;

/// Interval between checks for replies and entries.
const POLL: Duration = Duration::from_millis(10);

/// Guard that removes the comparison when dropped.
struct Ends<'p>(&'p Pair);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().partner.comparison().take();
    }
}

impl Pair {
    /// Waits until the partner has sent its hashes over the connection with this number.
    fn hashes_of_partner(&self, number: u64) -> Result<Vec<VolumeHash>> {
        loop {
            let mut inner = self.inner.lock();
            if inner.partner.link().map(|link| link.number) != Some(number) {
                bail!("cannot compare: lost the connection to the partner (try again)");
            }
            if let Some(comparison) = inner
                .partner
                .comparison()
                .take_if(|comparison| comparison.done)
            {
                return Ok(comparison.theirs);
            }
            self.changed.wait_for(&mut inner, POLL);
        }
    }

    /// Compares the two copies; with `repair`, a copy that differs is brought up anew, from
    /// nothing.
    ///
    /// # Errors
    /// The two are not or no longer in sync, another comparison runs, the copies differ and
    /// `repair` is false, or a disk fails.
    pub(super) fn verify(&self, repair: bool) -> Result<String> {
        {
            let mut inner = self.inner.lock();
            let in_sync = inner.rules.role() == Role::Primary && inner.rules.register().mirrored;
            ensure!(
                in_sync && inner.rules.serving(),
                "cannot compare: this node is not the primary of a pair in sync"
            );
            ensure!(!inner.partner.is_compared(), "cannot compare: in progress");
            *inner.partner.comparison() = Some(Comparison::default());
        }
        let _ends = Ends(self);
        let mark = self.engine.make_mark();
        let mark = mark.map_err(|e| anyhow!("no mark can be made now: {e}"))?;
        let at = self.engine.position();
        let number = {
            let mut inner = self.inner.lock();
            *inner.partner.comparison() = Some(Comparison {
                mark: mark.0,
                ..Comparison::default()
            });
            let link = inner.partner.link_mut().context("no link to the partner")?;
            link.say(&Message::Verify {
                term: at.term,
                mark: mark.0,
                sequence: at.sequence,
            });
            link.number
        };
        self.send.notify_one();
        let ours = self.hashes(mark)?;
        let theirs = self.hashes_of_partner(number)?;
        let mut names: Vec<String> = ours
            .iter()
            .filter(|hash| !theirs.contains(hash))
            .chain(theirs.iter().filter(|hash| !ours.contains(hash)))
            .map(|hash| self.name_of(hash.volume))
            .collect();
        if names.is_empty() {
            let said = format!("the same on both at mark {mark}: {} volumes", ours.len());
            tracing::info!("{said}");
            self.inner.lock().partner.set_verified(said.clone());
            return Ok(said);
        }
        names.sort();
        names.dedup();
        let said = format!("the copies differ at mark {mark} in {}", names.join(", "));
        tracing::error!("{said}");
        let mut inner = self.inner.lock();
        inner.partner.set_verified(said.clone());
        if !repair {
            bail!(
                "{said}. `weir pair verify --repair` has the standby's copy brought up anew, from nothing; \
                 if this one is in doubt, `weir scrub` reads it"
            );
        }
        let link = inner.partner.numbered(number);
        let link = link.context("cannot repair the standby's copy: the partner is gone")?;
        link.say(&Message::Again);
        drop(inner);
        self.send.notify_one();
        Ok(format!(
            "{said}; the standby's copy is brought up anew, from nothing"
        ))
    }

    fn name_of(&self, volume: u64) -> String {
        let mut all = self.engine.volumes().into_iter();
        let found = all.find(|vol| vol.id() == VolumeId(volume));
        found.map_or_else(|| format!("volume {volume}"), |vol| vol.name().to_owned())
    }

    fn hashes(&self, mark: MarkId) -> Result<Vec<VolumeHash>> {
        let hashes = self.engine.mark_hashes(mark);
        let hashes = hashes.map_err(|e| anyhow!("mark {mark} cannot be read: {e}"))?;
        let hashes = hashes.into_iter().map(|(volume, hash)| VolumeHash {
            volume: volume.0,
            hash,
        });
        Ok(hashes.collect())
    }

    /// Starts the thread that hashes this copy for the primary, at a mark that is applied by entry
    /// `sequence`.
    pub(super) fn is_verified(self: &Arc<Self>, number: u64, mark: MarkId, sequence: u64) {
        let pair = Arc::clone(self);
        let thread = std::thread::Builder::new().name("weir-verify".to_owned());
        let begun = thread.spawn(move || {
            if let Err(error) = pair.says_hashes(number, mark, sequence) {
                pair.note_passing(format!("this copy cannot be compared: {error:#}"));
                let mut inner = pair.inner.lock();
                if let Some(link) = inner.partner.numbered(number) {
                    link.close();
                }
                drop(inner);
                pair.send.notify_one();
            }
        });
        if let Err(error) = begun {
            self.note_passing(format!("this copy cannot be compared: {error}"));
        }
    }

    fn says_hashes(&self, number: u64, mark: MarkId, sequence: u64) -> Result<()> {
        while self.engine.position().sequence < sequence {
            let inner = self.inner.lock();
            if inner.partner.link().map(|link| link.number) != Some(number) {
                return Ok(());
            }
            drop(inner);
            std::thread::sleep(POLL);
        }
        self.engine.cp_now().map_err(|e| anyhow!("{e}"))?;
        let hashes = self.hashes(mark)?;
        let mut inner = self.inner.lock();
        let Some(link) = inner.partner.numbered(number) else {
            return Ok(());
        };
        let mut pieces = hashes.chunks(HASHES).peekable();
        if pieces.peek().is_none() {
            link.say(&Message::Verified {
                mark: mark.0,
                last: true,
                hashes: Vec::new(),
            });
        }
        while let Some(piece) = pieces.next() {
            link.say(&Message::Verified {
                mark: mark.0,
                last: pieces.peek().is_none(),
                hashes: piece.to_vec(),
            });
        }
        drop(inner);
        self.send.notify_one();
        Ok(())
    }

    /// Takes hashes of the partner's copy.
    pub(super) fn compares(&self, mark: u64, last: bool, hashes: Vec<VolumeHash>) {
        let mut inner = self.inner.lock();
        let comparison = inner.partner.comparison().as_mut();
        if let Some(comparison) = comparison.filter(|c| c.mark == mark && !c.done) {
            comparison.theirs.extend(hashes);
            comparison.done = last;
            self.changed.notify_all();
        }
    }
}

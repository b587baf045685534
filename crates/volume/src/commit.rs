//! COMMIT: making what was written without stability durable.
//!
//! A few pages go into the log, with the attributes. Many are left to a
//! consistency point: the data has to be written to its place anyway, and writing
//! it to the log first would do it twice.

use smallvec::SmallVec;
use weir_base::{BLOCK_SIZE, Ino};
use weir_store::Frame;

use crate::attr::SMALL_OP;
use crate::cx::Cx;
use crate::delta::Layer;
use crate::edit::Edits;
use crate::inode::State;
use crate::types::{Change, Done, FileKind, FsError, Pressure, Stop};
use crate::volume::{Volume, alive};

/// Pages up to which a commit goes through the log: 256 KiB. At the rates that
/// were measured for the log (1.3 ms a MiB) that costs less than the two flushes
/// of a consistency point.
const LOG_PAGES: usize = 64;

impl Volume {
    /// Makes the data written so far to `len` bytes at `off` durable (0: to the
    /// end of the file). May need a consistency point, which it waits for.
    ///
    /// # Errors
    /// `IsDir`, `Invalid`, `ReadOnly` if the aggregate is poisoned, `Stale`, `Io`.
    pub fn commit(&self, cx: &mut Cx, ino: Ino, off: u64, len: u64) -> Result<Done<Change>, Stop> {
        self.writable()?;
        let inode = self.inode(cx, ino)?;
        let block = BLOCK_SIZE as u64;
        let first = off / block;
        let last = match len {
            0 => u64::MAX,
            _ => off.saturating_add(len - 1) / block,
        };
        let pass = self.enter()?;
        let mut st = inode.state.write();
        alive(&st)?;
        match st.rec.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsDir.into()),
            _ => return Err(FsError::Invalid.into()),
        }
        let attr = self.attr_of(ino, &st);
        let value = Change {
            before: attr,
            after: attr,
        };
        // It has waited for the consistency point after what it has to commit.
        if cx.commit_epoch.is_some_and(|e| self.core.is_durable(e)) {
            return Ok(Done { value, lsn: None });
        }
        let most = LOG_PAGES.min(self.core.agg.log().max_record().1);
        let pages = unlogged(&st, first, last, most);
        if pages.len() > most {
            let epoch = pass.epoch();
            cx.commit_epoch = Some(epoch);
            return Err(Stop::Wait(Pressure::Epoch(epoch)));
        }
        if pages.is_empty() && !st.unlogged {
            // What another call has appended must be durable all the same.
            return Ok(Done {
                value,
                lsn: self.core.last_appended(),
            });
        }
        self.core
            .admit((pages.len() * BLOCK_SIZE) as u64 + SMALL_OP)?;
        let mut edits = Edits::new(self.id, 256);
        edits.inode(ino, &st.rec);
        edits.pages(ino, pages.iter().map(|(b, f)| (*b, f)));
        let lsn = self.core.append(edits)?;
        for delta in st.layers() {
            if let Some(data) = &delta.data {
                for (block, _) in &pages {
                    data.mark_logged(*block);
                }
            }
        }
        st.unlogged = false;
        Ok(Done {
            value,
            lsn: Some(lsn),
        })
    }
}

/// The visible pages in a range that the log does not have, in order; if there
/// are more than `most`, not all of them but more than `most`.
fn unlogged(st: &State, first: u64, last: u64, most: usize) -> SmallVec<[(u64, Frame); 4]> {
    let mut found: SmallVec<[(u64, Frame); 4]> = SmallVec::new();
    for (depth, layer) in st.layers().enumerate() {
        let Some(data) = layer.data.as_deref() else {
            continue;
        };
        // What a newer layer hides is not to be made durable again.
        let visible = |block: u64| {
            let mut above = st.layers().take(depth);
            above.all(|a| matches!(a.block(block), Layer::Below))
        };
        let pages = data
            .unlogged_in(first..=last)
            .filter(|(block, _)| visible(*block))
            .take(most + 1);
        found.extend(pages.map(|(block, page)| (block, page.frame.clone())));
    }
    found.sort_unstable_by_key(|(block, _)| *block);
    found
}

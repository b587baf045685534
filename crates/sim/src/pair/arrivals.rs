//! Pages that a standby of a story has received before their entries.

use std::collections::HashMap;
use std::sync::Arc;

use weir_volume::{
    Advance, AdvanceId, AdvanceWrite, Ahead, Carrier, ChangeStream, Engine, Entry, Frame,
};

/// Pages received in advance over one connection.
#[derive(Default)]
pub(super) struct Arrivals {
    carrier: Option<Carrier>,
    held: HashMap<AdvanceId, AdvanceWrite>,
}

impl Arrivals {
    /// Drops everything received, as the connection has ended.
    pub(super) fn lose(&mut self) {
        self.carrier = None;
        self.held.clear();
    }

    /// Delivers the pages under way to the standby's engine. The first call only makes the
    /// connection; pages sent after it are under way.
    pub(super) fn arrive(&mut self, stream: &Arc<ChangeStream>, standby: &Engine) {
        let Some(carrier) = self.carrier.as_ref().filter(|c| c.is_of(stream)) else {
            self.held.clear();
            self.carrier = Some(Carrier::new(stream));
            return;
        };
        for advance in carrier.take() {
            match advance {
                Advance::Pages { id, pages, .. } => {
                    if let Some(placing) = standby.place(&boxes(&pages)) {
                        self.held.insert(id, placing);
                    }
                }
                Advance::Back(id) => drop(self.held.remove(&id)),
            }
        }
    }

    /// Returns the pages that come with an entry, and those that came before it.
    pub(super) fn entry(&mut self, entry: &Entry) -> (Vec<Frame>, Option<Ahead>) {
        let mut pages = entry.pages.to_vec();
        let came = entry.advance.and_then(|advance| {
            let placing = self.held.remove(&advance.id)?;
            Some((advance, placing))
        });
        let ahead = came.map(|(advance, placing)| {
            pages.drain(advance.first..advance.first + advance.count);
            Ahead {
                first: advance.first,
                placing,
            }
        });
        (pages, ahead)
    }
}

/// Pages as they are received.
pub(super) fn boxes(pages: &[Frame]) -> Vec<Box<[u8]>> {
    pages.iter().map(|page| Box::from(&page[..])).collect()
}

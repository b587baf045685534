//! What a standby of a story has got before the entries that have it.

use std::collections::HashMap;
use std::sync::Arc;

use weir_volume::{
    Advance, AdvanceId, Ahead, Carrier, ChangeStream, Engine, Entry, Frame, Placing,
};

/// Of one connection.
#[derive(Default)]
pub(super) struct Arrivals {
    carrier: Option<Carrier>,
    held: HashMap<AdvanceId, Placing>,
}

impl Arrivals {
    /// The connection is over.
    pub(super) fn lose(&mut self) {
        self.carrier = None;
        self.held.clear();
    }

    /// What is under way arrives at the standby's engine. The first time the connection is made,
    /// and what is sent after that is under way.
    pub(super) fn arrive(&mut self, stream: &Arc<ChangeStream>, standby: &Engine) {
        let Some(carrier) = self.carrier.as_ref().filter(|c| c.is_of(stream)) else {
            self.held.clear();
            self.carrier = Some(Carrier::of(stream));
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

    /// An entry arrives: the pages that come with it, and those that came before.
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

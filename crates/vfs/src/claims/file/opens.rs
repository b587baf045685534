//! Opens of a file: the modes that each holder uses and denies to others. They are counted by mode,
//! so that a test costs the same however many there are.

use super::holder::Holder;
use super::tree::HolderId;
use crate::claims::types::{Modes, OwnerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::invariant;

/// One holder's open of the file: the modes that it uses and denies.
pub(in crate::claims) struct Open {
    pub(in crate::claims) holder: Arc<Holder>,
    pub(in crate::claims) access: Modes,
    pub(in crate::claims) deny: Modes,
    enforced: bool,
    /// Under which the owner's client has a grant for it.
    pub(in crate::claims) key: OwnerId,
    parked: bool,
}

impl Open {
    pub(in crate::claims) fn new(
        holder: Arc<Holder>,
        access: Modes,
        deny: Modes,
        enforced: bool,
        key: OwnerId,
    ) -> Open {
        Open {
            holder,
            access,
            deny,
            enforced,
            key,
            parked: false,
        }
    }

    /// Returns true if another owner's open with these modes conflicts with it.
    fn excludes(&self, access: Modes, deny: Modes) -> bool {
        self.deny.any(access) || self.access.any(deny)
    }

    /// Returns true if it stops uses of others that come without an open.
    fn stops(&self, access: Modes) -> bool {
        self.enforced && self.deny.any(access)
    }
}

/// Opens that use a mode, deny it, and deny it to those without an open.
#[derive(Clone, Copy, Default)]
struct Counts {
    access: [u32; 3],
    deny: [u32; 3],
    enforced: [u32; 3],
}

fn bits(modes: Modes) -> [u32; 3] {
    [Modes::READ, Modes::WRITE, Modes::DELETE].map(|m| u32::from(modes.has(m)))
}

impl Counts {
    fn from_open(open: &Open) -> Counts {
        let deny = bits(open.deny);
        Counts {
            access: bits(open.access),
            deny,
            enforced: if open.enforced { deny } else { [0; 3] },
        }
    }

    fn change(&mut self, open: &Open, add: bool) {
        let by = Counts::from_open(open);
        let all = [
            (&mut self.access, by.access),
            (&mut self.deny, by.deny),
            (&mut self.enforced, by.enforced),
        ];
        for (counts, by) in all {
            for (count, by) in counts.iter_mut().zip(by) {
                if add {
                    *count += by;
                } else if invariant!(*count >= by, "fewer opens than none") {
                    *count -= by;
                }
            }
        }
    }
}

/// Returns true if opens other than one's own count in any of `modes`.
fn clash(all: [u32; 3], own: [u32; 3], modes: Modes) -> bool {
    let others = all.iter().zip(own).map(|(all, own)| all - own);
    bits(modes)
        .iter()
        .zip(others)
        .any(|(bit, n)| *bit != 0 && n != 0)
}

/// Opens of a file (see the module's head).
#[derive(Default)]
pub(in crate::claims) struct Opens {
    by_holder: BTreeMap<HolderId, Open>,
    live: Counts,
    parked: Counts,
}

impl Opens {
    pub(in crate::claims) fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    pub(in crate::claims) fn len(&self) -> usize {
        self.by_holder.len()
    }

    pub(in crate::claims) fn iter(&self) -> impl Iterator<Item = &Open> {
        self.by_holder.values()
    }

    pub(in crate::claims) fn get(&self, id: HolderId) -> Option<&Open> {
        self.by_holder.get(&id)
    }

    /// Returns the modes that any open uses, and those that any denies.
    pub(in crate::claims) fn modes(&self) -> (Modes, Modes) {
        let all = [&self.live, &self.parked];
        let any = |of: fn(&Counts) -> [u32; 3]| {
            let modes = [Modes::READ, Modes::WRITE, Modes::DELETE];
            let used = modes.into_iter().filter(|mode| {
                let mut counts = all.iter();
                counts.any(|counts| clash(of(counts), [0; 3], *mode))
            });
            used.fold(Modes::NONE, |sum, mode| sum | mode)
        };
        (any(|counts| counts.access), any(|counts| counts.deny))
    }

    /// Returns true if anything is denied to those without an open.
    pub(in crate::claims) fn enforced(&self) -> bool {
        let any = |counts: &Counts| counts.enforced != [0; 3];
        any(&self.live) || any(&self.parked)
    }

    /// Returns the counts of one's own open among the live or the parked ones.
    fn own(&self, me: Option<HolderId>, parked: bool) -> Counts {
        let own = me.and_then(|id| self.by_holder.get(&id));
        own.filter(|o| o.parked == parked)
            .map_or(Counts::default(), Counts::from_open)
    }

    fn counts(&self, parked: bool) -> &Counts {
        match parked {
            true => &self.parked,
            false => &self.live,
        }
    }

    /// Returns true if a live (or parked) open of another owner excludes one with these modes.
    pub(in crate::claims) fn excluded(
        &self,
        me: Option<HolderId>,
        access: Modes,
        deny: Modes,
        parked: bool,
    ) -> bool {
        let (all, own) = (self.counts(parked), self.own(me, parked));
        clash(all.access, own.access, deny) || clash(all.deny, own.deny, access)
    }

    /// Returns true if a live (or parked) open stops uses without an open.
    pub(in crate::claims) fn stopped(
        &self,
        me: Option<HolderId>,
        access: Modes,
        parked: bool,
    ) -> bool {
        let own = self.own(me, parked);
        clash(self.counts(parked).enforced, own.enforced, access)
    }

    /// Returns the holders among `ids` whose open excludes these modes; with `deny` `None`, those
    /// whose open stops such a use.
    pub(in crate::claims) fn in_the_way<'a>(
        &'a self,
        ids: impl Iterator<Item = HolderId> + 'a,
        access: Modes,
        deny: Option<Modes>,
    ) -> impl Iterator<Item = &'a Arc<Holder>> {
        ids.filter_map(|id| self.by_holder.get(&id))
            .filter(move |open| match deny {
                Some(deny) => open.excludes(access, deny),
                None => open.stops(access),
            })
            .map(|open| &open.holder)
    }

    /// Enters an open in place of its holder's previous one; whether there was none.
    pub(in crate::claims) fn put(&mut self, open: Open) -> bool {
        let id = open.holder.id;
        self.live.change(&open, true);
        match self.by_holder.insert(id, open) {
            Some(old) => {
                self.change_counts(&old, false);
                false
            }
            None => true,
        }
    }

    pub(in crate::claims) fn remove(&mut self, id: HolderId) -> Option<Open> {
        let old = self.by_holder.remove(&id)?;
        self.change_counts(&old, false);
        Some(old)
    }

    fn change_counts(&mut self, open: &Open, add: bool) {
        match open.parked {
            true => self.parked.change(open, add),
            false => self.live.change(open, add),
        }
    }

    /// Parks a holder's open, or ends that.
    pub(in crate::claims) fn park(&mut self, id: HolderId, parked: bool) {
        if let Some(mut open) = self.remove(id) {
            open.parked = parked;
            self.change_counts(&open, true);
            self.by_holder.insert(id, open);
        }
    }
}

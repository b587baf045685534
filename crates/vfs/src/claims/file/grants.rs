//! The caching grants of a file, and their breaks.
//!
//! They are sorted by what they are and allow, and by whether a break is under way. So an operation
//! that takes a bit away finds its holders without passing the others, and a second operation finds
//! the break that it must wait for at once. Neither thousands of readers nor thousands of
//! operations while they are broken cost more than one pass over those concerned.

use super::holder::Holder;
use super::tree::{HolderId, step};
use crate::claims::rules::{Event, Kind};
use crate::claims::types::{CacheRights, Question, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::invariant;

/// A caching grant of one holder, with the break and the question that are outstanding.
pub(in crate::claims) struct Held {
    pub(in crate::claims) holder: Arc<Holder>,
    pub(in crate::claims) kind: Kind,
    pub(in crate::claims) caching: CacheRights,
    /// To what it is being broken, and what waits for that.
    pub(in crate::claims) breaking: Option<(CacheRights, Ticket)>,
    /// Question that the holder was asked.
    pub(in crate::claims) asked: Option<Question>,
}

/// Returns the number of the class that a grant is sorted into.
fn class(kind: Kind, caching: CacheRights, breaking: bool) -> u8 {
    u8::from(breaking) << 4 | u8::from(kind == Kind::Delegation) << 3 | caching.0
}

impl Held {
    fn class(&self) -> u8 {
        class(self.kind, self.caching, self.breaking.is_some())
    }
}

/// Grants of caching in a file (see the module's head).
#[derive(Default)]
pub(in crate::claims) struct Grants {
    by_class: BTreeMap<(u8, HolderId), Held>,
    class_of: BTreeMap<HolderId, u8>,
}

impl Grants {
    pub(in crate::claims) fn is_empty(&self) -> bool {
        self.class_of.is_empty()
    }

    pub(in crate::claims) fn get(&self, id: HolderId) -> Option<&Held> {
        self.by_class.get(&(*self.class_of.get(&id)?, id))
    }

    /// Enters a grant in place of its holder's previous one; whether there was none.
    pub(in crate::claims) fn put(&mut self, held: Held) -> bool {
        let id = held.holder.id;
        let new = self.remove(id).is_none();
        self.class_of.insert(id, held.class());
        let old = self.by_class.insert((held.class(), id), held);
        invariant!(old.is_none(), "a grant in a class that it is not known in");
        new
    }

    pub(in crate::claims) fn remove(&mut self, id: HolderId) -> Option<Held> {
        let class = self.class_of.remove(&id)?;
        let held = self.by_class.remove(&(class, id));
        invariant!(held.is_some(), "a grant is not in its class");
        held
    }

    /// Returns the grants that an event takes something from: those that are to be broken now, and
    /// a break under way that its cause must wait for as well.
    pub(in crate::claims) fn hit(
        &self,
        exempt: Option<HolderId>,
        event: Event,
    ) -> (Vec<HolderId>, Option<Ticket>) {
        let (mut now, mut ticket) = (Vec::new(), None);
        for kind in [Kind::Lease, Kind::Delegation] {
            let taken = event.takes(kind);
            for caching in (1..=7).map(CacheRights).filter(|c| c.any(taken)) {
                for breaking in [false, true] {
                    let class = class(kind, caching, breaking);
                    let members = self.by_class.range((class, 0)..=(class, HolderId::MAX));
                    let mut others = members.filter(|((_, id), _)| Some(*id) != exempt);
                    step();
                    if breaking {
                        let under_way = others.next().and_then(|(_, held)| held.breaking.as_ref());
                        ticket = ticket.or_else(|| under_way.map(|(_, ticket)| ticket.clone()));
                    } else {
                        now.extend(others.map(|((_, id), _)| *id));
                    }
                }
            }
        }
        (now, ticket)
    }

    /// Returns another holder that may have writes that it has not sent, and is not asked to send
    /// them.
    pub(in crate::claims) fn writer(&self, me: Option<HolderId>) -> Option<&Held> {
        let classes =
            (0..=u8::MAX >> 4).filter(|class| CacheRights(class & 7).any(CacheRights::WRITE));
        let mut members = classes.flat_map(|class| {
            step();
            self.by_class.range((class, 0)..=(class, HolderId::MAX))
        });
        members
            .find(|((_, id), _)| Some(*id) != me)
            .map(|(_, held)| held)
    }

    /// Returns true if another holder has any of `caching`, or is to answer a break.
    pub(in crate::claims) fn others_have(
        &self,
        me: Option<HolderId>,
        caching: CacheRights,
    ) -> bool {
        let classes = (0..=u8::MAX >> 3).filter(|class| {
            let breaking = class >> 4 != 0;
            breaking || CacheRights(class & 7).any(caching)
        });
        classes.into_iter().any(|class| {
            step();
            let mut members = self.by_class.range((class, 0)..=(class, HolderId::MAX));
            members.any(|((_, id), _)| Some(*id) != me)
        })
    }

    /// Returns all grants of the file, in order of their class.
    #[cfg(test)]
    pub(in crate::claims) fn iter(&self) -> impl Iterator<Item = &Held> {
        assert_eq!(self.by_class.len(), self.class_of.len());
        self.by_class.values()
    }
}

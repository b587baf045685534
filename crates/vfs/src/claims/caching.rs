//! Caching grants: granting, breaking, acknowledgement, revocation.

use super::file::File;
use super::file::grants::Held;
use super::file::holder::Holder;
use super::file::opens::Open;
use super::ledger::GRANT;
use super::rules::{Event, Kind};
use super::types::{
    Actor, CacheRights, HolderAttr, Modes, Notice, Owner, OwnerId, Question, Ticket,
};
use super::{BREAK_PATIENCE, Claims, Effects, Shard};
use crate::handle::{FileId, Namespace};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Owners in a file that are compared before a grant; with more in it the grant is refused, which
/// is always allowed.
const FEW: usize = 64;

/// Breaks since the last tick of which those that are over are not searched for.
const UNSEARCHED: usize = 1024;

/// Breaks that wait for an answer, in the order in which they began.
#[derive(Default)]
pub(super) struct Breaks {
    /// Since the last tick: their time is not known yet.
    new: Vec<(FileId, Owner, Ticket)>,
    /// With the tick that first saw them.
    old: VecDeque<(Duration, FileId, Owner, Ticket)>,
    /// New ones that were not over when they were last searched.
    searched: usize,
}

impl Breaks {
    pub(super) fn add(&mut self, breaks: Vec<(FileId, Owner, Ticket)>) {
        self.new.extend(breaks);
        // Answered ones take no memory that nobody is charged for, however many there are between
        // two ticks.
        if self.new.len() > 2 * self.searched + UNSEARCHED {
            self.new.retain(|(.., ticket)| !ticket.is_over());
            self.searched = self.new.len();
        }
    }

    /// Takes out those that have waited for too long.
    fn overdue(&mut self, now: Duration) -> Vec<(FileId, Owner, Ticket)> {
        self.searched = 0;
        let new = std::mem::take(&mut self.new).into_iter();
        self.old
            .extend(new.map(|(file, owner, ticket)| (now, file, owner, ticket)));
        self.old.retain(|(.., ticket)| !ticket.is_over());
        // Saturates: what never is over is not late.
        let late = |since: Duration| now >= since.saturating_add(BREAK_PATIENCE);
        let count = self.old.iter().take_while(|(since, ..)| late(*since));
        let count = count.count();
        let late = self.old.drain(..count);
        let late = late.map(|(_, file, owner, ticket)| (file, owner, ticket));
        let late = late.collect();
        if self.old.capacity() > 64 && self.old.len() < self.old.capacity() / 4 {
            self.old.shrink_to(self.old.len() * 2);
        }
        late
    }
}

/// Returns the holder of a grant: the client under the key.
pub(super) fn under_key(owner: &Owner, key: &OwnerId) -> Owner {
    Owner {
        client: owner.client.clone(),
        who: key.clone(),
        shown: Arc::default(),
    }
}

impl Claims {
    /// Lets a holder cache what of `wanted` others leave room for; returns what it now may, all in
    /// all. `owner` is the client under the key of the grant, and opens of the client under that
    /// key do not count as others'.
    ///
    /// Files of snapshots never change: there everything but writes is cached, and nothing has to
    /// be remembered of it.
    pub fn grant(
        &self,
        file: FileId,
        owner: &Owner,
        kind: Kind,
        wanted: CacheRights,
    ) -> CacheRights {
        if file.namespace != Namespace::Live {
            return kind.left(wanted & !CacheRights::WRITE, CacheRights::NONE);
        }
        self.with_room(owner.client.address, |effects| {
            let given = self.try_grant(file, owner, kind, wanted, effects);
            (given.unwrap_or(CacheRights::NONE), given.is_none())
        })
    }

    /// Returns the caching that is granted; `None` if there is no memory.
    fn try_grant(
        &self,
        file: FileId,
        owner: &Owner,
        kind: Kind,
        wanted: CacheRights,
        _: &mut Effects,
    ) -> Option<CacheRights> {
        let mut shard = self.shard(file);
        let had = shard.get(&file).and_then(|f| {
            let id = f.holder(owner)?.id;
            let held = f.more()?.grants.get(id)?;
            Some((held.caching, held.breaking.is_some()))
        });
        let may = shard
            .get(&file)
            .map_or(wanted, |f| room_for(f, owner, kind, wanted));
        let may = kind.left(may, CacheRights::NONE);
        match had {
            // First the break is answered. And nothing is taken away by asking.
            Some((caching, breaking)) if breaking || !may.has(caching) => return Some(caching),
            _ if may.is_none() => return Some(CacheRights::NONE),
            _ => {}
        }
        let address = owner.client.address;
        let holder = self.enter(&mut shard, file, owner)?;
        if !self.ledger.take(address, GRANT) {
            self.leave(&mut shard, file, &holder);
            return None;
        }
        let new = shard.get_mut(&file).is_some_and(|f| {
            let grants = &mut f.more_mut().grants;
            let before = grants.remove(holder.id);
            let new = before.is_none();
            grants.put(Held {
                holder: holder.clone(),
                kind,
                caching: may,
                breaking: None,
                // The holder still has to answer the question that it was asked.
                asked: before.and_then(|held| held.asked),
            });
            new
        });
        match new {
            true => {
                holder.count(false, 1);
                self.grants.fetch_add(1, Ordering::Relaxed);
            }
            false => self.ledger.give(address, GRANT),
        }
        self.leave(&mut shard, file, &holder);
        Some(may)
    }

    /// Notes that a holder acknowledges a break, or releases its grant of itself: it caches no more
    /// than `keeps` from now on. Returns false if it keeps more than it may.
    pub fn acknowledge(&self, file: FileId, owner: &Owner, keeps: CacheRights) -> bool {
        let mut shard = self.shard(file);
        let Some(f) = shard.get_mut(&file) else {
            return keeps.is_none();
        };
        let Some(holder) = f.holder(owner).cloned() else {
            return keeps.is_none();
        };
        let held = f.more().and_then(|m| m.grants.get(holder.id));
        let most = held.map_or(CacheRights::NONE, |h| {
            h.breaking.as_ref().map_or(h.caching, |(to, _)| *to)
        });
        if !most.has(keeps) {
            return false;
        }
        self.reduce(&mut shard, file, &holder, keeps);
        self.leave(&mut shard, file, &holder);
        true
    }

    /// Leaves a holder no more than `keeps`, and ends its break.
    pub(super) fn reduce(
        &self,
        shard: &mut Shard,
        file: FileId,
        holder: &Holder,
        keeps: CacheRights,
    ) {
        let Some(f) = shard.get_mut(&file) else {
            // Nothing is claimed of the file any more.
            return;
        };
        if f.more().is_none() {
            return;
        }
        let grants = &mut f.more_mut().grants;
        let Some(mut held) = grants.remove(holder.id) else {
            // It holds no grant: nothing to take.
            return;
        };
        let left = held.kind.left(keeps, CacheRights::NONE);
        if left.is_none() {
            self.end_grant(&held);
            self.ledger.give(holder.owner.client.address, GRANT);
            return;
        }
        held.caching = left;
        if let Some((_, ticket)) = held.breaking.take() {
            ticket.0.set(());
        }
        if let Some(question) = held.asked.take() {
            question.ticket.0.set(());
        }
        grants.put(held);
    }

    /// Counts a grant out that was removed from its file.
    pub(super) fn end_grant(&self, held: &Held) {
        held.holder.count(false, -1);
        self.grants.fetch_sub(1, Ordering::Relaxed);
        if let Some((_, ticket)) = &held.breaking {
            ticket.0.set(());
        }
        if let Some(question) = &held.asked {
            question.ticket.0.set(());
        }
    }

    /// Asks the holder of a write cache for the file's attributes, on behalf of another client.
    /// `None`: there is none, or it is parked and has lost what it had, or has a break to answer
    /// anyway. Concurrent requests share one answer; a holder that does not answer in
    /// [`BREAK_PATIENCE`] loses its cache.
    pub fn request_attributes(&self, file: FileId, actor: Actor<'_>) -> Option<Question> {
        self.in_shard(file, |shard, effects| {
            let f = shard.get(&file)?;
            let me = actor.holder();
            let me = me.and_then(|(owner, key)| f.holder(&under_key(owner, key)));
            let held = f.more()?.grants.writer(me.map(|h| h.id))?;
            let holder = Arc::clone(&held.holder);
            if f.parked(holder.id) {
                self.drop_parked(shard, file, &holder, effects);
                return None;
            }
            let grants = &mut shard.get_mut(&file)?.more_mut().grants;
            let mut held = grants.remove(holder.id)?;
            let new = held.asked.is_none();
            let question = held.asked.get_or_insert_with(|| Question {
                ticket: Ticket(Arc::default()),
                answer: Arc::default(),
            });
            let question = question.clone();
            grants.put(held);
            if new {
                let owner = holder.owner.clone();
                let ticket = question.ticket.clone();
                effects.breaks.push((file, owner.clone(), ticket));
                effects.notices.push(Notice::Asked { file, owner });
            }
            Some(question)
        })
    }

    /// Notes the answer of a holder that was asked; returns false if it was not.
    pub fn reply(&self, file: FileId, owner: &Owner, answer: HolderAttr) -> bool {
        let mut shard = self.shard(file);
        let asked = shard.get_mut(&file).and_then(|f| {
            let id = f.holder(owner)?.id;
            f.more()?;
            let grants = &mut f.more_mut().grants;
            let mut held = grants.remove(id)?;
            let asked = held.asked.take();
            grants.put(held);
            asked
        });
        drop(shard);
        let Some(question) = asked else {
            return false;
        };
        // It is the only one: the question was taken out.
        let _ = question.answer.set(answer);
        question.ticket.0.set(());
        true
    }

    /// Takes from others what `event` takes. A ticket if one of them must answer first.
    pub(super) fn break_for(
        &self,
        shard: &mut Shard,
        file: FileId,
        by: Option<(&Owner, &OwnerId)>,
        event: Event,
        effects: &mut Effects,
    ) -> Option<Ticket> {
        let f = shard.get(&file)?;
        let grants = &f.more()?.grants;
        if grants.is_empty() {
            return None;
        }
        let exempt = by.and_then(|(owner, key)| f.holder(&under_key(owner, key)));
        let (now, mut wait) = grants.hit(exempt.map(|h| h.id), event);
        for id in now {
            let f = shard.get_mut(&file)?;
            let parked = f.more().and_then(|m| m.parked.get(&id)).cloned();
            if let Some(holder) = parked {
                self.drop_parked(shard, file, &holder, effects);
                continue;
            }
            let grants = &mut f.more_mut().grants;
            let Some(mut held) = grants.remove(id) else {
                // It was closed meanwhile.
                continue;
            };
            let holder = Arc::clone(&held.holder);
            let to = held.kind.left(held.caching, event.takes(held.kind));
            let answer = held.kind.must_answer(held.caching);
            effects.notices.push(Notice::Break {
                file,
                owner: holder.owner.clone(),
                kind: held.kind,
                to,
                answer,
            });
            if answer {
                self.broken.fetch_add(1, Ordering::Relaxed);
                let ticket = Ticket(Arc::default());
                held.breaking = Some((to, ticket.clone()));
                grants.put(held);
                let owner = holder.owner.clone();
                effects.breaks.push((file, owner, ticket.clone()));
                wait.get_or_insert(ticket);
            } else {
                grants.put(held);
                self.reduce(shard, file, &holder, to);
                self.leave(shard, file, &holder);
            }
        }
        wait
    }

    /// Revokes what holders did not answer for in time. To be called about once a second with the
    /// monotonic time.
    pub fn tick(&self, now: Duration) {
        self.recalled.store(false, Ordering::Relaxed);
        let overdue = self.breaks.lock().overdue(now);
        for (file, owner, ticket) in overdue {
            self.revoke_late(file, owner, &ticket);
        }
    }

    /// Revokes what a holder caches that owes an answer for `ticket`, unless it has given it
    /// meanwhile.
    fn revoke_late(&self, file: FileId, owner: Owner, ticket: &Ticket) {
        let mut shard = self.shard(file);
        let holder = shard.get(&file).and_then(|f| f.holder(&owner)).cloned();
        let same = |holder: &Arc<Holder>| {
            let held = shard.get(&file)?.more()?.grants.get(holder.id)?;
            let breaking = held.breaking.as_ref().map(|(_, ticket)| ticket);
            let asked = held.asked.as_ref().map(|question| &question.ticket);
            Some(breaking == Some(ticket) || asked == Some(ticket))
        };
        let Some(holder) = holder.filter(|h| same(h) == Some(true)) else {
            // It was broken, answered or closed meanwhile.
            return;
        };
        self.reduce(&mut shard, file, &holder, CacheRights::NONE);
        self.leave(&mut shard, file, &holder);
        drop(shard);
        self.revoked.fetch_add(1, Ordering::Relaxed);
        self.deliver(Effects {
            notices: vec![Notice::Revoked { file, owner }],
            ..Effects::default()
        });
    }
}

/// Returns the part of `wanted` that others in the file leave room for.
fn room_for(f: &File, owner: &Owner, kind: Kind, wanted: CacheRights) -> CacheRights {
    let me = f.holder(owner).map(|h| h.id);
    let mut may = wanted;
    if f.has_ranges() || !f.waiting.is_empty() {
        // Their holders expect their effect to be seen by all clients except those that share the
        // cache.
        let shares = |h: &Holder| {
            let open = f.more().and_then(|m| m.opens.get(h.id));
            let keyed = || open.is_some_and(|open| open.key == owner.who);
            h.owner.client == owner.client
                && (kind == Kind::Delegation || h.owner.who == owner.who || keyed())
        };
        let mut owners = f.owners();
        if !owners.by_ref().take(FEW).all(|h| shares(h)) || owners.next().is_some() {
            return CacheRights::NONE;
        }
    }
    let Some(more) = f.more() else {
        return may;
    };
    // W of others excludes any; any of others excludes W; and a break under way is not overtaken.
    if more.grants.others_have(me, CacheRights::WRITE) {
        return CacheRights::NONE;
    }
    if more.grants.others_have(me, CacheRights::ALL) {
        may = may & !CacheRights::WRITE;
    }
    // Beside an open stands what the same open would leave of it.
    let (access, deny) = match more.opens.len() > FEW {
        true => more.opens.modes(),
        false => {
            let own =
                |open: &&Open| open.holder.owner.client == owner.client && open.key == owner.who;
            let others = more.opens.iter().filter(|open| !own(open));
            others.fold((Modes::NONE, Modes::NONE), |(access, deny), open| {
                (access | open.access, deny | open.deny)
            })
        }
    };
    match Event::of_open(access, deny, false) {
        Some(event) => may & !event.takes(kind),
        None => may,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Style;
    use super::super::tests::{NOTHING, Notices, file, smb, table};
    use super::super::types::{Passage, Range};
    use super::*;

    #[test]
    fn a_parked_holder_is_not_asked_and_loses_its_cache() {
        let t = table();
        let sink = Notices::attached(&t);
        let (a, f) = (smb(1, 1), file(1));
        assert_eq!(
            t.grant(f, &a, Kind::Lease, CacheRights::ALL),
            CacheRights::ALL
        );
        t.park(&a.client);
        assert!(t.request_attributes(f, Actor::Stateless).is_none());
        assert_eq!(sink.take(), [Notice::Dropped { file: f, owner: a }]);
        assert_eq!(t.totals().grants, 0);
    }

    #[test]
    fn nothing_is_granted_beside_a_break_that_is_under_way() {
        let t = table();
        let (a, b, f) = (smb(1, 1), smb(2, 1), file(1));
        let (lease, both) = (Kind::Lease, CacheRights::READ | CacheRights::HANDLE);
        assert_eq!(t.grant(f, &a, lease, both), both);
        let renamed = t.names(f, Actor::Stateless, Event::Name, Style::Unix);
        assert!(matches!(renamed, Passage::Breaking(_)));
        assert_eq!(t.grant(f, &b, lease, CacheRights::READ), CacheRights::NONE);
        assert!(t.acknowledge(f, &a, CacheRights::READ));
        assert_eq!(t.grant(f, &b, lease, CacheRights::READ), CacheRights::READ);
    }

    #[test]
    fn what_was_answered_as_its_time_ran_out_is_not_revoked() {
        let t = table();
        let (a, f, kind) = (smb(1, 1), file(1), Kind::Delegation);
        let both = CacheRights::READ_HANDLE;
        assert_eq!(t.grant(f, &a, kind, both), both);
        let written = t.io(f, Actor::Stateless, true, Range::ALL);
        assert!(matches!(written, Passage::Breaking(_)), "{written:?}");
        assert!(t.breaks.lock().overdue(Duration::ZERO).is_empty());
        let late = t.breaks.lock().overdue(BREAK_PATIENCE);
        assert!(t.acknowledge(f, &a, CacheRights::NONE));
        assert_eq!(t.grant(f, &a, kind, both), both);
        assert_eq!(late.len(), 1);
        for (file, owner, ticket) in late {
            t.revoke_late(file, owner, &ticket);
        }
        assert_eq!(t.totals().grants, 1);
    }

    #[test]
    fn the_holder_of_a_write_cache_is_asked_once_for_all() {
        let t = table();
        let sink = Notices::attached(&t);
        let (a, b) = (smb(1, 1), smb(2, 1));
        let f = file(1);
        let answer = HolderAttr {
            size: 7,
            change: 9,
            ..HolderAttr::default()
        };
        let ask = |who: &Owner| {
            let actor = Actor::Mandatory {
                owner: who,
                key: &who.who,
                parent: None,
            };
            t.request_attributes(f, actor)
        };
        assert!(t.request_attributes(f, Actor::Stateless).is_none());
        assert_eq!(
            t.grant(f, &a, Kind::Lease, CacheRights::ALL),
            CacheRights::ALL
        );
        assert!(ask(&a).is_none(), "not itself");
        let (first, second) = (
            ask(&b).unwrap(),
            t.request_attributes(f, Actor::Stateless).unwrap(),
        );
        let asked = Notice::Asked {
            file: f,
            owner: a.clone(),
        };
        assert_eq!(sink.take(), std::slice::from_ref(&asked));
        assert!(!first.ticket().is_over());
        // A grant that is made anew still has its question to answer.
        assert_eq!(
            t.grant(f, &a, Kind::Lease, CacheRights::ALL),
            CacheRights::ALL
        );
        assert!(t.reply(f, &a, answer) && !t.reply(f, &a, answer));
        for question in [&first, &second] {
            assert!(question.ticket().is_over());
            assert_eq!(question.answer(), Some(answer));
        }
        // A later request asks anew; what is given up needs no answer.
        let third = ask(&b).unwrap();
        assert_eq!(sink.take(), std::slice::from_ref(&asked));
        assert!(t.acknowledge(f, &a, CacheRights::NONE));
        assert!(third.ticket().is_over() && third.answer().is_none());
        // A holder that does not answer loses its cache.
        assert_eq!(
            t.grant(f, &a, Kind::Lease, CacheRights::ALL),
            CacheRights::ALL
        );
        let fourth = ask(&b).unwrap();
        t.tick(Duration::from_secs(1));
        assert!(!fourth.ticket().is_over());
        t.tick(Duration::from_secs(1) + BREAK_PATIENCE);
        assert!(fourth.ticket().is_over() && fourth.answer().is_none());
        let revoked = Notice::Revoked { file: f, owner: a };
        assert_eq!(sink.take(), [asked, revoked]);
        assert_eq!(t.totals(), NOTHING);
    }
}

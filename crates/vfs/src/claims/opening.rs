//! Opens, and what opens and ranges stop.

use super::file::opens::Open;
use super::ledger::OPEN;
use super::rules::{Event, Style};
use super::types::{
    Actor, Modes, OpenOutcome, OpenRequest, Owner, OwnerId, Passage, Range, Ticket,
};
use super::{Claims, Effects, Shard};
use crate::handle::FileId;

/// Returns true if another client's open of the file uses something of it, or denies that.
fn others_use(shard: &Shard, file: FileId, owner: &Owner) -> bool {
    let more = shard.get(&file).and_then(|f| f.more());
    more.is_some_and(|more| {
        more.opens.iter().any(|open| {
            let uses = !open.access.is_none() || !open.deny.is_none();
            uses && open.holder.owner.client != owner.client
        })
    })
}

impl Claims {
    /// Opens a file, or changes the owner's open of it.
    pub fn open(&self, file: FileId, request: &OpenRequest<'_>) -> OpenOutcome {
        self.with_room(request.owner.client.address, |effects| {
            let opened = self.try_open(file, request, effects);
            let full = opened == OpenOutcome::Full;
            (opened, full)
        })
    }

    fn try_open(&self, file: FileId, r: &OpenRequest<'_>, effects: &mut Effects) -> OpenOutcome {
        let mut shard = self.shard(file);
        let by = Some((r.owner, r.key));
        let going = shard.get(&file).and_then(|f| {
            let own = f.holder(r.owner).map(|h| h.id);
            let has = |id| f.more().is_some_and(|m| m.opens.get(id).is_some());
            f.going().filter(|_| !own.is_some_and(has))
        });
        if let Some(going) = going {
            return going;
        }
        if self.excluded(&mut shard, file, r, effects) {
            // A close that its holder has not sent yet may make room.
            let event = Event::ShareConflict;
            if let Some(ticket) = self.break_for(&mut shard, file, by, event, effects) {
                return OpenOutcome::Breaking(ticket);
            }
            // A grant that needed no answer changes nothing about the opens.
            return OpenOutcome::Denied;
        }
        if let Some(event) = Event::of_open(r.access, r.deny, r.overwrite)
            && let Some(ticket) = self.break_for(&mut shard, file, by, event, effects)
        {
            return OpenOutcome::Breaking(ticket);
        }
        let address = r.owner.client.address;
        let Some(holder) = self.enter(&mut shard, file, r.owner) else {
            return OpenOutcome::Full;
        };
        if !self.ledger.take(address, OPEN) {
            self.leave(&mut shard, file, &holder);
            return OpenOutcome::Full;
        }
        let new = shard.get_mut(&file).is_some_and(|f| {
            let open = Open::new(holder.clone(), r.access, r.deny, r.enforced, r.key.clone());
            f.more_mut().opens.put(open)
        });
        match new {
            true => {
                holder.count(false, 1);
                self.count(1);
            }
            false => self.ledger.give(address, OPEN),
        }
        self.leave(&mut shard, file, &holder);
        OpenOutcome::Granted
    }

    /// Returns true if another's open excludes this one, after parked ones that did have gone.
    fn excluded(
        &self,
        shard: &mut Shard,
        file: FileId,
        r: &OpenRequest<'_>,
        effects: &mut Effects,
    ) -> bool {
        let Some(f) = shard.get(&file) else {
            return false;
        };
        let Some(more) = f.more() else {
            return false;
        };
        let me = f.holder(r.owner).map(|h| h.id);
        let excluded = |parked| more.opens.excluded(me, r.access, r.deny, parked);
        if excluded(false) {
            return true;
        }
        if excluded(true) {
            for holder in f.parked_opens(r.access, Some(r.deny)) {
                if holder.owner != *r.owner {
                    self.drop_parked(shard, file, &holder, effects);
                }
            }
        }
        false
    }

    /// Checks that no other client than this owner's has the file open for its data or its
    /// deletion, or denies such a use. Opens that are kept for clients without a connection end for
    /// it; a close that its client has put off is waited for.
    pub fn sole(&self, file: FileId, owner: &Owner, key: &OwnerId) -> Passage {
        self.in_shard(file, |shard, effects| {
            if !others_use(shard, file, owner) {
                return Passage::Free;
            }
            let all = Modes::BOTH | Modes::DELETE;
            let parked = shard.get(&file).map(|f| f.parked_opens(all, Some(all)));
            for holder in parked.into_iter().flatten() {
                if holder.owner.client != owner.client {
                    self.drop_parked(shard, file, &holder, effects);
                }
            }
            let (by, event) = (Some((owner, key)), Event::ShareConflict);
            match self.break_for(shard, file, by, event, effects) {
                Some(ticket) => Passage::Breaking(ticket),
                None if others_use(shard, file, owner) => Passage::Denied,
                None => Passage::Free,
            }
        })
    }

    /// Ends the owner's open of a file; whether it was the last open of the file by anyone.
    pub fn close(&self, file: FileId, owner: &Owner) -> bool {
        self.in_shard(file, |shard, effects| {
            let Some(f) = shard.get_mut(&file) else {
                return false;
            };
            let Some(holder) = f.holder(owner).cloned() else {
                return false;
            };
            if f.more().is_none() || f.more_mut().opens.remove(holder.id).is_none() {
                return false;
            }
            let last = f.more_mut().opens.is_empty();
            holder.count(false, -1);
            self.count(-1);
            self.ledger.give(owner.client.address, OPEN);
            self.closed(f, file, &holder, effects);
            self.leave(shard, file, &holder);
            last
        })
    }

    /// Checks that bytes of a file may be read or written. [`Claims::version_of`] first spares this
    /// call.
    pub fn io(&self, file: FileId, actor: Actor<'_>, write: bool, range: Range) -> Passage {
        self.in_shard(file, |shard, effects| {
            self.try_io(shard, file, actor, write, range, effects)
        })
    }

    fn try_io(
        &self,
        shard: &mut Shard,
        file: FileId,
        actor: Actor<'_>,
        write: bool,
        range: Range,
        effects: &mut Effects,
    ) -> Passage {
        if actor.is_stateless() {
            let mode = match write {
                true => Modes::WRITE,
                false => Modes::READ,
            };
            if self.stopped(shard, file, None, mode, effects) {
                return Passage::Denied;
            }
        }
        loop {
            let Some(f) = shard.get(&file) else {
                return Passage::Free;
            };
            let me = actor.owner().and_then(|o| f.holder(o)).map(|h| h.id);
            let found = match actor {
                Actor::Mandatory { .. } => f.against_smb_use(me, &range, write),
                _ if write => f.against_nfs_write(me, &range),
                _ => None,
            };
            match found {
                None => break,
                Some(holder) if f.parked(holder.id) && Some(holder.id) != me => {
                    self.drop_parked(shard, file, &holder, effects);
                }
                Some(_) => return Passage::Locked,
            }
        }
        let event = match write {
            true => Event::Write,
            false => Event::Read,
        };
        match self.break_for(shard, file, actor.holder(), event, effects) {
            Some(ticket) => Passage::Breaking(ticket),
            None => Passage::Free,
        }
    }

    /// Returns true if an open stops such a use without an open, after parked ones that did have
    /// gone.
    fn stopped(
        &self,
        shard: &mut Shard,
        file: FileId,
        owner: Option<&Owner>,
        mode: Modes,
        effects: &mut Effects,
    ) -> bool {
        let Some(f) = shard.get(&file) else {
            return false;
        };
        let Some(more) = f.more() else {
            return false;
        };
        let me = owner.and_then(|o| f.holder(o)).map(|h| h.id);
        if more.opens.stopped(me, mode, false) {
            return true;
        }
        if more.opens.stopped(me, mode, true) {
            for holder in f.parked_opens(mode, None) {
                if Some(&holder.owner) != owner {
                    self.drop_parked(shard, file, &holder, effects);
                }
            }
        }
        false
    }

    /// Checks that a name, attributes or (of a directory) entries of a file may be changed. It is
    /// asked of everything that a change concerns before it is made: of RENAME the file, what it
    /// replaces, and both directories.
    pub fn names(&self, file: FileId, actor: Actor<'_>, event: Event, style: Style) -> Passage {
        self.in_shard(file, |shard, effects| {
            self.try_names(shard, file, actor, event, style, effects)
        })
    }

    /// Breaks clients' caches of a file for a change of this kind that the server itself makes.
    /// Returns the ticket of a break that should end before the change.
    pub fn recall(&self, file: FileId, event: Event) -> Option<Ticket> {
        match self.names(file, Actor::Stateless, event, Style::Unix) {
            Passage::Breaking(ticket) => Some(ticket),
            Passage::Free | Passage::Denied | Passage::Locked => None,
        }
    }

    fn try_names(
        &self,
        shard: &mut Shard,
        file: FileId,
        actor: Actor<'_>,
        event: Event,
        style: Style,
        effects: &mut Effects,
    ) -> Passage {
        // A break first: a close that its holder has not sent yet may end a denial.
        let by = actor.holder_for(event);
        if let Some(ticket) = self.break_for(shard, file, by, event, effects) {
            return Passage::Breaking(ticket);
        }
        let binds = style == Style::Ntfs && event == Event::Name;
        if binds && self.stopped(shard, file, actor.owner(), Modes::DELETE, effects) {
            return Passage::Denied;
        }
        Passage::Free
    }
}

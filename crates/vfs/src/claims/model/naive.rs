//! The naive table: plain lists, every rule written out again.

use super::super::*;
use crate::Namespace;
use weir_base::{Ino, VolumeId};

pub(super) const BYTES: u64 = 40;
pub(super) fn file(n: u64) -> FileId {
    FileId {
        namespace: Namespace::Live,
        volume: VolumeId(1),
        ino: Ino(n),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Protocol {
    Nlm,
    V4,
    Smb,
}

/// One that makes requests.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) protocol: Protocol,
    pub(super) owner: Owner,
    pub(super) key: OwnerId,
}

impl Part {
    /// The client of an NFSv4 open, as it acts without an open.
    pub(super) fn client(&self) -> Option<Part> {
        let who = self.key.clone();
        (self.protocol == Protocol::V4).then(|| Part {
            owner: Owner {
                who,
                ..self.owner.clone()
            },
            ..self.clone()
        })
    }

    pub(super) fn is_client(&self) -> bool {
        self.protocol == Protocol::V4 && self.owner.who == self.key
    }
}

#[derive(Clone, Debug)]
pub(super) struct MOpen {
    pub(super) file: u64,
    pub(super) owner: Owner,
    pub(super) key: OwnerId,
    pub(super) access: Modes,
    pub(super) deny: Modes,
    pub(super) enforced: bool,
}

#[derive(Clone, Debug)]
pub(super) struct MGrant {
    pub(super) file: u64,
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    pub(super) caching: CacheRights,
    /// To what, and the number of the tick that saw it first.
    pub(super) breaking: Option<(CacheRights, Option<u64>)>,
    /// Number of the question that its holder is asked, and that of the tick that saw it first.
    pub(super) asked: Option<(usize, Option<u64>)>,
}

/// A mark for deletion.
#[derive(Clone, Debug)]
pub(super) struct MMark {
    pub(super) file: u64,
    pub(super) by: Owner,
    pub(super) removal: Removal,
    pub(super) pending: bool,
    /// The name is being removed.
    pub(super) noticed: bool,
}

/// The bytes of an advisory range.
pub(super) fn bytes(r: Range) -> impl Iterator<Item = u64> {
    r.start..=r.last.min(BYTES - 1)
}

/// Returns true if two ranges touch: they share a byte, or one is empty and strictly inside of the
/// other.
pub(super) fn meet(a: Range, b: Range) -> bool {
    let inside = |e: Range, r: Range| e.start > 0 && r.start < e.start && e.start <= r.last;
    if a == Range::NOWHERE || b == Range::NOWHERE {
        return false;
    }
    match (a.is_empty(), b.is_empty()) {
        (true, true) => false,
        (true, false) => inside(a, b),
        (false, true) => inside(b, a),
        (false, false) => bytes(a).any(|byte| bytes(b).any(|other| byte == other)),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Granted,
    Denied,
    Locked,
    Queued,
    Deadlock,
    Breaking,
    DeletePending,
}

#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) opens: Vec<MOpen>,
    /// File, byte, owner, and whether the lock is exclusive.
    pub(super) advisory: Vec<(u64, u64, Owner, bool)>,
    pub(super) mandatory: Vec<(u64, Lock)>,
    pub(super) queue: Vec<(u64, Lock)>,
    pub(super) grants: Vec<MGrant>,
    pub(super) parked: Vec<(u64, Owner)>,
    pub(super) marks: Vec<MMark>,
    pub(super) notices: Vec<Notice>,
    pub(super) ticks: u64,
    /// Questions so far.
    pub(super) questions: usize,
}

impl Model {
    /// The owners of advisory locks that conflict.
    pub(super) fn advisory_against(
        &self,
        f: u64,
        me: Option<&Owner>,
        r: Range,
        exclusive: bool,
    ) -> Vec<Owner> {
        let of = |b: u64| {
            let at = self.advisory.iter().filter(move |l| l.0 == f && l.1 == b);
            at.filter(|l| Some(&l.2) != me && (l.3 || exclusive))
        };
        let mut out = Vec::new();
        if r == Range::NOWHERE {
            return out;
        }
        if r.is_empty() {
            // Between two bytes of one lock.
            for l in of(r.start - 1) {
                out.extend(
                    of(r.start)
                        .find(|n| n.2 == l.2 && n.3 == l.3)
                        .map(|n| n.2.clone()),
                );
            }
        } else {
            out.extend(bytes(r).flat_map(of).map(|l| l.2.clone()));
        }
        out
    }

    /// The owners of what is in the way of a lock.
    pub(super) fn against_lock(&self, f: u64, want: &Lock) -> Vec<Owner> {
        let me = Some(&want.owner);
        let mut out = self.advisory_against(f, me, want.range, want.exclusive);
        for (_, held) in self.mandatory.iter().filter(|(file, _)| *file == f) {
            let own = held.owner == want.owner;
            let clash = match (held.exclusive, want.exclusive) {
                (false, false) => false,
                // Even one's own, if it is SMB that asks.
                (_, true) => !own || want.mandatory,
                (true, false) => !own,
            };
            if clash && meet(held.range, want.range) {
                out.push(held.owner.clone());
            }
        }
        out
    }

    pub(super) fn against_io(
        &self,
        f: u64,
        by: Option<&Part>,
        write: bool,
        r: Range,
    ) -> Vec<Owner> {
        let me = by.map(|p| &p.owner);
        let smb = by.is_some_and(|p| p.protocol == Protocol::Smb);
        let mut out = match smb {
            true => self.advisory_against(f, me, r, write),
            false => Vec::new(),
        };
        for (_, held) in self.mandatory.iter().filter(|(file, _)| *file == f) {
            let own = Some(&held.owner) == me;
            let stops = match (smb, write, held.exclusive) {
                (true, _, true) => !own,
                (true, true, false) => true,
                (true, false, false) => false,
                (false, true, true) => !own,
                (false, ..) => false,
            };
            if stops && meet(held.range, r) {
                out.push(held.owner.clone());
            }
        }
        out
    }

    pub(super) fn is_parked(&self, f: u64, owner: &Owner) -> bool {
        self.parked.contains(&(f, owner.clone()))
    }

    /// Removes all that an owner has in a file.
    pub(super) fn strip(&mut self, f: u64, owner: &Owner) {
        self.close(f, owner);
        self.advisory.retain(|l| l.0 != f || l.2 != *owner);
        self.mandatory.retain(|l| l.0 != f || l.1.owner != *owner);
        self.queue.retain(|l| l.0 != f || l.1.owner != *owner);
        self.grants.retain(|g| g.file != f || g.owner != *owner);
        self.parked.retain(|p| p.0 != f || p.1 != *owner);
    }

    /// Ends an open, and the file with it if that was the last one of a file that is to go; whether
    /// there was one.
    pub(super) fn close(&mut self, f: u64, owner: &Owner) -> bool {
        let before = self.opens.len();
        self.opens.retain(|o| o.file != f || o.owner != *owner);
        if self.opens.len() == before {
            return false;
        }
        let last = !self.opens.iter().any(|o| o.file == f);
        if let Some(mark) = self.marks.iter_mut().find(|m| m.file == f) {
            let own = mark.by == *owner;
            mark.pending |= own;
            if (last || own && mark.removal.alone) && mark.pending && !mark.noticed {
                mark.noticed = true;
                self.notices.push(Notice::Delete {
                    file: file(f),
                    owner: mark.by.clone(),
                    removal: mark.removal.clone(),
                });
            }
        }
        true
    }

    /// Returns true if an owner has an open that uses deletion.
    fn may_delete(&self, f: u64, owner: &Owner) -> bool {
        let mut opens = self.opens.iter();
        opens.any(|o| o.file == f && o.owner == *owner && o.access.has(Modes::DELETE))
    }

    /// Marks a file, if the owner may; the first mark counts.
    pub(super) fn mark(&mut self, f: u64, owner: &Owner, now: bool, removal: &Removal) -> bool {
        if !self.may_delete(f, owner) {
            return false;
        }
        if !self.marks.iter().any(|m| m.file == f) {
            self.marks.push(MMark {
                file: f,
                by: owner.clone(),
                removal: removal.clone(),
                pending: now,
                noticed: false,
            });
        }
        true
    }

    /// Takes a mark back, if the owner may; whether there is none.
    pub(super) fn unmark(&mut self, f: u64, owner: &Owner) -> bool {
        if self.may_delete(f, owner) {
            self.marks.retain(|m| m.file != f);
        }
        !self.marks.iter().any(|m| m.file == f)
    }

    pub(super) fn delete_pending(&self, f: u64) -> bool {
        self.marks.iter().any(|m| m.file == f && m.pending)
    }

    /// Asks the one other holder that may have unsent writes and is not to give them up anyway; the
    /// number of the question.
    pub(super) fn request_attributes(&mut self, f: u64, by: Option<&Part>) -> Option<usize> {
        let exempt = by.map(|p| (p.owner.client.clone(), p.key.clone()));
        let writes = |g: &&mut MGrant| {
            let own = exempt == Some((g.owner.client.clone(), g.owner.who.clone()));
            g.file == f && !own && g.caching.has(CacheRights::WRITE) && g.breaking.is_none()
        };
        let owner = self.grants.iter_mut().find(writes)?.owner.clone();
        if self.is_parked(f, &owner) {
            self.drop_parked(f, &owner);
            return None;
        }
        let held = self.grants.iter_mut().find(writes)?;
        if let Some((number, _)) = held.asked {
            return Some(number);
        }
        self.questions += 1;
        held.asked = Some((self.questions, None));
        let file = file(f);
        self.notices.push(Notice::Asked { file, owner });
        Some(self.questions)
    }

    /// The holder's answer; whether it was asked.
    pub(super) fn reply(&mut self, f: u64, owner: &Owner) -> bool {
        let mut grants = self.grants.iter_mut();
        let held = grants.find(|g| g.file == f && g.owner == *owner);
        held.is_some_and(|held| held.asked.take().is_some())
    }

    pub(super) fn drop_parked(&mut self, f: u64, owner: &Owner) {
        self.strip(f, owner);
        let notice = Notice::Dropped {
            file: file(f),
            owner: owner.clone(),
        };
        self.notices.push(notice);
    }

    /// Drops those of `owners` that are parked.
    pub(super) fn drop_all_parked(&mut self, f: u64, owners: Vec<Owner>, but: Option<&Owner>) {
        for owner in owners {
            if self.is_parked(f, &owner) && Some(&owner) != but {
                self.drop_parked(f, &owner);
            }
        }
    }

    pub(super) fn has_claim(&self, f: u64, owner: &Owner) -> bool {
        self.opens.iter().any(|o| o.file == f && o.owner == *owner)
            || self.advisory.iter().any(|l| l.0 == f && l.2 == *owner)
            || self
                .mandatory
                .iter()
                .any(|l| l.0 == f && l.1.owner == *owner)
            || self.grants.iter().any(|g| g.file == f && g.owner == *owner)
    }

    /// An owner that holds nothing any more is not parked either.
    pub(super) fn forget_idle(&mut self) {
        let parked = std::mem::take(&mut self.parked).into_iter();
        self.parked = parked.filter(|p| self.has_claim(p.0, &p.1)).collect();
    }

    pub(super) fn set_advisory(&mut self, f: u64, l: &Lock) {
        self.clear_advisory(f, &l.owner, l.range);
        for b in bytes(l.range) {
            self.advisory.push((f, b, l.owner.clone(), l.exclusive));
        }
    }

    pub(super) fn clear_advisory(&mut self, f: u64, owner: &Owner, r: Range) {
        let gone: Vec<u64> = bytes(r).collect();
        self.advisory
            .retain(|l| l.0 != f || l.2 != *owner || !gone.contains(&l.1));
    }

    pub(super) fn take_lock(&mut self, f: u64, l: &Lock) {
        match l.mandatory {
            true => self.mandatory.push((f, l.clone())),
            false => self.set_advisory(f, l),
        }
    }

    /// Grants what waits, in order, until nothing more goes.
    pub(super) fn wake(&mut self) {
        loop {
            let free = |(f, l): &(u64, Lock)| self.against_lock(*f, l).is_empty();
            let Some(at) = self.queue.iter().position(free) else {
                // Nothing more can be granted.
                break;
            };
            let (f, lock) = self.queue.remove(at);
            self.take_lock(f, &lock);
            self.forget_idle();
            let file = file(f);
            self.notices.push(Notice::Granted(Grant { file, lock }));
        }
    }

    pub(super) fn deadlock(&self, f: u64, want: &Lock) -> bool {
        let (mut seen, mut next) = (Vec::new(), vec![(f, want.clone())]);
        while let Some((f, l)) = next.pop() {
            for o in self.advisory_against(f, Some(&l.owner), l.range, l.exclusive) {
                if o == want.owner {
                    return true;
                }
                if !seen.contains(&o) {
                    next.extend(self.queue.iter().filter(|w| w.1.owner == o).cloned());
                    seen.push(o);
                }
            }
        }
        false
    }

    /// Returns the caching that others lose by an event, by the book.
    pub(super) fn lost(kind: Kind, event: Event) -> &'static str {
        match (kind, event) {
            (_, Event::Entries) => "RWH",
            (_, Event::OpenRead | Event::Read) => "W",
            (Kind::Lease, Event::OpenWrite) => "W",
            (Kind::Lease, Event::Overwrite | Event::Write) => "RW",
            (Kind::Lease, Event::LockShared | Event::LockExclusive) => "RW",
            (Kind::Lease, Event::ShareConflict | Event::Name) => "H",
            (Kind::Lease, Event::Attributes) => "",
            (Kind::Delegation, Event::LockShared) => "W",
            (Kind::Delegation, _) => "RWH",
        }
    }

    /// Breaks what an event takes; whether one must be acknowledged.
    pub(super) fn break_for(&mut self, f: u64, by: Option<&Part>, event: Event) -> bool {
        let mut wait = false;
        let exempt = by.map(|p| (p.owner.client.clone(), p.key.clone()));
        for g in self.grants.clone() {
            let own = exempt == Some((g.owner.client.clone(), g.owner.who.clone()));
            let lost = Model::lost(g.kind, event);
            let letters = [
                ("R", CacheRights::READ),
                ("W", CacheRights::WRITE),
                ("H", CacheRights::HANDLE),
            ];
            let kept = |l: &str, c| g.caching.has(c) && !lost.contains(l);
            let hit = letters
                .iter()
                .any(|(l, c)| g.caching.has(*c) && lost.contains(l));
            if g.file != f || own || !hit {
                continue;
            }
            if g.breaking.is_some() {
                wait = true;
                continue;
            }
            if self.is_parked(f, &g.owner) {
                self.drop_parked(f, &g.owner);
                continue;
            }
            let mut to = CacheRights::NONE;
            if g.kind == Kind::Lease && kept("R", CacheRights::READ) {
                let left = letters.iter().filter(|(l, c)| kept(l, *c));
                to = left.fold(to, |sum, (_, c)| sum | *c);
            }
            let answer = g.kind == Kind::Delegation || g.caching != CacheRights::READ;
            self.notices.push(Notice::Break {
                file: file(f),
                owner: g.owner.clone(),
                kind: g.kind,
                to,
                answer,
            });
            let mut all = self.grants.iter_mut();
            let held = all.find(|h| h.file == f && h.owner == g.owner).unwrap();
            if answer {
                held.breaking = Some((to, None));
                wait = true;
            } else {
                assert_eq!(to, CacheRights::NONE);
                self.grants.retain(|h| h.file != f || h.owner != g.owner);
                self.forget_idle();
            }
        }
        wait
    }

    pub(super) fn lock(&mut self, f: u64, p: &Part, want: &Lock, wait: bool) -> Outcome {
        let event = match want.exclusive {
            true => Event::LockExclusive,
            false => Event::LockShared,
        };
        if self.break_for(f, Some(p), event) {
            return Outcome::Breaking;
        }
        let mut blockers = self.against_lock(f, want);
        let queued = self.queue.contains(&(f, want.clone()));
        if !blockers.is_empty() {
            self.drop_all_parked(f, blockers, Some(&want.owner));
            blockers = self.against_lock(f, want);
        }
        if blockers.is_empty() {
            self.queue.retain(|w| *w != (f, want.clone()));
            self.take_lock(f, want);
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::Denied;
        }
        if !queued {
            if !want.mandatory && self.deadlock(f, want) {
                return Outcome::Deadlock;
            }
            self.queue.push((f, want.clone()));
        }
        Outcome::Queued
    }

    pub(super) fn open(
        &mut self,
        f: u64,
        p: &Part,
        access: Modes,
        deny: Modes,
        overwrite: bool,
    ) -> Outcome {
        let own = |o: &MOpen| o.file == f && o.owner == p.owner;
        if self.delete_pending(f) && !self.opens.iter().any(own) {
            return match self.marks.iter().any(|m| m.file == f && m.noticed) {
                true => Outcome::Breaking,
                false => Outcome::DeletePending,
            };
        }
        let clashes = |o: &MOpen| {
            o.file == f && o.owner != p.owner && (o.access.any(deny) || o.deny.any(access))
        };
        let all: Vec<Owner> = self
            .opens
            .iter()
            .filter(|o| clashes(o))
            .map(|o| o.owner.clone())
            .collect();
        if all.iter().any(|o| !self.is_parked(f, o)) {
            return match self.break_for(f, Some(p), Event::ShareConflict) {
                true => Outcome::Breaking,
                false => Outcome::Denied,
            };
        }
        self.drop_all_parked(f, all, None);
        let writes = access.has(Modes::WRITE) || deny.has(Modes::READ);
        let reads = access != Modes::NONE || deny.has(Modes::WRITE);
        let event = match (overwrite, writes, reads) {
            (true, ..) => Some(Event::Overwrite),
            (_, true, _) => Some(Event::OpenWrite),
            (_, _, true) => Some(Event::OpenRead),
            _ => None,
        };
        if event.is_some_and(|event| self.break_for(f, Some(p), event)) {
            return Outcome::Breaking;
        }
        self.opens.retain(|o| o.file != f || o.owner != p.owner);
        self.opens.push(MOpen {
            file: f,
            owner: p.owner.clone(),
            key: p.key.clone(),
            access,
            deny,
            enforced: p.protocol != Protocol::Nlm,
        });
        Outcome::Granted
    }

    /// Returns true if denials stop a use without an open.
    pub(super) fn stopped(&mut self, f: u64, by: Option<&Part>, mode: Modes) -> bool {
        let me = by.map(|p| &p.owner);
        let stops =
            |o: &&MOpen| o.file == f && Some(&o.owner) != me && o.enforced && o.deny.has(mode);
        let all: Vec<Owner> = self
            .opens
            .iter()
            .filter(stops)
            .map(|o| o.owner.clone())
            .collect();
        if all.iter().any(|o| !self.is_parked(f, o)) {
            return true;
        }
        self.drop_all_parked(f, all, None);
        false
    }

    pub(super) fn io(&mut self, f: u64, by: Option<&Part>, write: bool, r: Range) -> Outcome {
        let mode = match write {
            true => Modes::WRITE,
            false => Modes::READ,
        };
        if by.is_none_or(Part::is_client) && self.stopped(f, None, mode) {
            return Outcome::Denied;
        }
        // One after the other: which parked ones go depends on which is found first, unless none
        // but parked ones are.
        let found = self.against_io(f, by, write, r);
        let me = by.map(|p| &p.owner);
        if found.iter().any(|o| !self.is_parked(f, o) || Some(o) == me) {
            return Outcome::Locked;
        }
        self.drop_all_parked(f, found, None);
        let event = match write {
            true => Event::Write,
            false => Event::Read,
        };
        match self.break_for(f, by, event) {
            true => Outcome::Breaking,
            false => Outcome::Granted,
        }
    }

    pub(super) fn names(
        &mut self,
        f: u64,
        by: Option<&Part>,
        event: Event,
        style: Style,
    ) -> Outcome {
        if self.break_for(f, by, event) {
            return Outcome::Breaking;
        }
        let binds = style == Style::Ntfs && event == Event::Name;
        match binds && self.stopped(f, by, Modes::DELETE) {
            true => Outcome::Denied,
            false => Outcome::Granted,
        }
    }

    pub(super) fn grant(
        &mut self,
        f: u64,
        owner: &Owner,
        kind: Kind,
        wanted: CacheRights,
    ) -> CacheRights {
        let mine = |g: &&MGrant| g.file == f && g.owner == *owner;
        let had = self.grants.iter().find(mine).cloned();
        let others = self
            .grants
            .iter()
            .filter(|g| g.file == f && g.owner != *owner);
        let others: Vec<_> = others.cloned().collect();
        let keyed = |who: &Owner| {
            let open = self.opens.iter().find(|o| o.file == f && o.owner == *who);
            open.is_some_and(|o| o.key == owner.who)
        };
        // True if this holder's ranges are no news to the asking cache.
        let shares = |who: &Owner| {
            who.client == owner.client
                && (kind == Kind::Delegation || who.who == owner.who || keyed(who))
        };
        let foreign: Vec<_> = self
            .opens
            .iter()
            .filter(|o| o.file == f && !(o.owner.client == owner.client && o.key == owner.who))
            .collect();
        let ranges = self.advisory.iter().any(|l| l.0 == f)
            || self.mandatory.iter().any(|l| l.0 == f)
            || self.queue.iter().any(|l| l.0 == f);
        let everybody = self.advisory.iter().filter(|l| l.0 == f).map(|l| &l.2);
        let everybody = everybody
            .chain(
                self.mandatory
                    .iter()
                    .filter(|l| l.0 == f)
                    .map(|l| &l.1.owner),
            )
            .chain(self.queue.iter().filter(|l| l.0 == f).map(|l| &l.1.owner))
            .chain(self.opens.iter().filter(|o| o.file == f).map(|o| &o.owner))
            .chain(others.iter().map(|g| &g.owner));
        let mut may = wanted;
        if ranges && everybody.into_iter().any(|who| !shares(who)) {
            may = CacheRights::NONE;
        }
        if others
            .iter()
            .any(|g| g.breaking.is_some() || g.caching.has(CacheRights::WRITE))
        {
            may = CacheRights::NONE;
        }
        let excludes = |o: &&MOpen| o.access.has(Modes::WRITE) || o.deny.has(Modes::READ);
        if kind == Kind::Delegation && foreign.iter().any(excludes) {
            may = CacheRights::NONE;
        }
        let bears = |o: &&MOpen| o.access != Modes::NONE || o.deny.any(Modes::BOTH);
        if !others.is_empty() || foreign.iter().any(bears) {
            may = may & !CacheRights::WRITE;
        }
        if !may.has(CacheRights::READ) {
            may = CacheRights::NONE;
        }
        if let Some(had) = &had
            && (had.breaking.is_some() || !may.has(had.caching))
        {
            return had.caching;
        }
        if !may.is_none() {
            self.grants.retain(|g| g.file != f || g.owner != *owner);
            self.grants.push(MGrant {
                file: f,
                owner: owner.clone(),
                kind,
                caching: may,
                breaking: None,
                asked: had.and_then(|had| had.asked),
            });
        }
        may
    }

    pub(super) fn acknowledge(&mut self, f: u64, owner: &Owner, keeps: CacheRights) -> bool {
        let mine = |g: &&mut MGrant| g.file == f && g.owner == *owner;
        let Some(g) = self.grants.iter_mut().find(mine) else {
            return keeps.is_none();
        };
        let most = g.breaking.map_or(g.caching, |(to, _)| to);
        if !most.has(keeps) {
            return false;
        }
        if keeps.has(CacheRights::READ) {
            (g.caching, g.breaking, g.asked) = (keeps, None, None);
        } else {
            self.grants.retain(|g| g.file != f || g.owner != *owner);
            self.forget_idle();
        }
        true
    }

    pub(super) fn park(&mut self, f: u64, owner: &Owner) {
        self.queue.retain(|l| l.0 != f || l.1.owner != *owner);
        if !self.has_claim(f, owner) {
            return;
        }
        if !self.is_parked(f, owner) {
            self.parked.push((f, owner.clone()));
        }
        let of = |g: &MGrant| g.file == f && g.owner == *owner && g.breaking.is_some();
        let breaking = self.grants.iter().any(of);
        let waits = |w: &(u64, Lock)| w.0 == f && self.against_lock(f, &w.1).contains(owner);
        if breaking || self.queue.iter().any(waits) {
            self.drop_parked(f, owner);
        }
    }

    pub(super) fn unpark(&mut self, f: u64, owner: &Owner) {
        self.parked.retain(|p| p.0 != f || p.1 != *owner);
    }

    /// A second passes, or a long time.
    pub(super) fn tick(&mut self, long: bool) {
        for g in self.grants.iter_mut() {
            if let Some((_, since @ None)) = &mut g.breaking {
                *since = Some(self.ticks);
            }
            if let Some((_, since @ None)) = &mut g.asked {
                *since = Some(self.ticks);
            }
        }
        if long {
            self.ticks += 1;
        }
        for g in self.grants.clone() {
            let since = [g.breaking.map(|b| b.1), g.asked.map(|a| a.1)];
            let late = |since: &u64| *since < self.ticks;
            if since
                .into_iter()
                .flatten()
                .flatten()
                .any(|since| late(&since))
            {
                self.grants
                    .retain(|h| h.file != g.file || h.owner != g.owner);
                self.forget_idle();
                let (file, owner) = (file(g.file), g.owner);
                self.notices.push(Notice::Revoked { file, owner });
            }
        }
    }
}

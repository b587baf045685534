//! Runs operations against a subject and the model and compares everything that comes back.
//!
//! For crashes the runner keeps a second model, `base`: the state up to the last acknowledged
//! operation, and the operations since. The intent log is a sequence, so a recovered volume must be
//! the base plus some prefix of those operations; what UNSTABLE writes left unsettled may be old or
//! new (see [`crate::model::content`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;

use weir_base::Time;

use crate::model::listed_xattrs;
use crate::model::{
    Body, Data, Errno, Errors, Expect, Guard, Kind, Model, Name, Node, Op, PAGE, ROOT, RootAttr,
    Rules, Slot, Stable, WriteAttr,
};
use crate::rand::Choices;
use crate::subject::{Answer, Around, Before, Entry, Handle, ReportedAttr, Subject};

/// A difference between subject and model, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(pub String);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! differ {
    ($($arg:tt)*) => { return Err(Mismatch(format!($($arg)*))) };
}

type CheckResult<T = ()> = Result<T, Mismatch>;

/// An operation that was performed but not yet acknowledged.
#[derive(Clone, Debug)]
struct PendingOp {
    id: Slot,
    op: Op,
    now: Time,
    lsn: u64,
}

#[derive(Clone, Debug)]
struct HandleBinding {
    handle: Handle,
    fileid: u64,
}

/// State found in the subject where the model allows a choice.
#[derive(Default)]
struct Findings {
    moved: Vec<(Slot, WriteAttr)>,
    pages: Vec<(Slot, u64, Vec<u8>)>,
}

/// Strictness of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// Every attribute and byte equals the model's.
    Exact,
    /// Unsettled data and attributes may be older.
    AfterCrash,
}

/// Model and subject side by side.
pub struct Runner {
    /// Expected state of the subject.
    pub model: Model,
    base: Model,
    pending: VecDeque<PendingOp>,
    bound: HashMap<Slot, HandleBinding>,
    changes: HashMap<Slot, u64>,
    now: Time,
    next: u32,
    /// Errors that any operation may return at present (injected failures, a full disk). The
    /// operation must have changed nothing then.
    pub tolerate: Errors,
    /// Number of such errors that were returned.
    pub tolerated: u64,
}

/// Returns the operation that was carried out in effect if a stable WRITE wrote less than it was
/// given. A WRITE for which a record of the log is too small does so (RFC 1813 §3.3.7 allows it).
fn done_in_part(op: &Op, answer: Option<&Answer>) -> Option<Op> {
    let (_, count) = answer?.written?;
    match op.clone() {
        Op::Write {
            object,
            offset,
            data,
            stable,
        } if stable != Stable::Unstable && (1..data.len).contains(&count) => Some(Op::Write {
            object,
            offset,
            data: Data { len: count, ..data },
            stable,
        }),
        _ => None,
    }
}

impl Runner {
    /// A runner for a fresh volume.
    ///
    /// # Errors
    /// If the root directory cannot be examined.
    pub fn new(subject: &mut dyn Subject, now: Time, rules: Rules) -> CheckResult<Runner> {
        let root = subject.root();
        let op = Op::Getattr { object: ROOT };
        let answer = subject.call(&op, now, &|_| root.clone(), None);
        let Ok(Answer {
            attr: Some(attr), ..
        }) = answer
        else {
            differ!("the root has no attributes: {answer:?}");
        };
        let mut model = Model::new(
            RootAttr {
                mode: attr.mode,
                uid: attr.uid,
                gid: attr.gid,
                time: attr.mtime,
            },
            rules,
        );
        model.adopt_moved(
            ROOT,
            WriteAttr {
                size: 0,
                mtime: attr.mtime,
                ctime: attr.ctime,
            },
        );
        Ok(Runner {
            base: model.clone(),
            model,
            pending: VecDeque::new(),
            bound: HashMap::from([(
                ROOT,
                HandleBinding {
                    handle: root,
                    fileid: attr.fileid,
                },
            )]),
            changes: HashMap::new(),
            now,
            next: 0,
            tolerate: Errors::NONE,
            tolerated: 0,
        })
    }

    /// The present time of the run.
    #[must_use]
    pub fn current_time(&self) -> Time {
        self.now
    }

    /// The slot that the next operation gets if it is numbered automatically.
    pub fn next_id(&mut self) -> Slot {
        self.next += 1;
        Slot(self.next)
    }

    /// Highest log sequence number that an operation waits for.
    #[must_use]
    pub fn last_lsn(&self) -> u64 {
        self.pending.iter().map(|p| p.lsn).max().unwrap_or(0)
    }

    /// The log sequence number that the newest operation waits for, if it is this one and changes
    /// something; 0: it waits for none.
    #[must_use]
    pub fn lsn_of(&self, id: Slot) -> Option<u64> {
        let newest = self.pending.back().filter(|newest| newest.id == id);
        newest.map(|newest| newest.lsn)
    }

    /// Operations that are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.pending.len()
    }

    /// Performs `op` on both and compares. Operations on slots that were never bound are skipped.
    ///
    /// # Errors
    /// The first difference.
    pub fn step(&mut self, subject: &mut dyn Subject, id: Slot, op: &Op) -> CheckResult {
        if op
            .slots()
            .iter()
            .flatten()
            .any(|slot| !self.bound.contains_key(slot))
        {
            return Ok(());
        }
        self.now = self.now.plus(std::time::Duration::from_micros(1500));
        let guard = self.guard(op);
        let bound = &self.bound;
        let handle = |slot: Slot| bound[&slot].handle.clone();
        let answer = subject.call(op, self.now, &handle, guard);
        let done = done_in_part(op, answer.as_ref().ok());
        let op = done.as_ref().unwrap_or(op);
        let before: Vec<(Slot, WriteAttr)> = op
            .slots()
            .iter()
            .flatten()
            .filter_map(|slot| self.model.node(*slot).map(|node| (*slot, node.moved)))
            .collect();
        let mut next = self.model.clone();
        let expected = next.apply(op, self.now, id);
        match (answer, expected) {
            (Ok(answer), Ok(expect)) => {
                self.model = next;
                self.compare(op, &answer, &expect, &before)?;
                if op.mutates() {
                    self.pending.push_back(PendingOp {
                        id,
                        op: op.clone(),
                        now: self.now,
                        lsn: answer.lsn,
                    });
                }
                Ok(())
            }
            (Err(got), Err(admitted)) if admitted.admits(got) => Ok(()),
            (Err(got), _) if self.tolerate.admits(got) => {
                self.tolerated += 1;
                Ok(())
            }
            (Err(got), Err(admitted)) => differ!("failed with {got:?}, expected {admitted:?}"),
            (Ok(answer), Err(admitted)) => {
                differ!("succeeded, expected one of {admitted:?}: {answer:?}")
            }
            (Err(got), Ok(_)) => differ!("failed with {got:?}, expected success"),
        }
    }

    fn guard(&self, op: &Op) -> Option<Time> {
        let Op::Setattr { object, guard, .. } = op else {
            return None;
        };
        let ctime = self
            .model
            .node(*object)
            .map_or(self.now, |node| node.moved.ctime);
        match guard {
            Guard::None => None,
            Guard::Right => Some(ctime),
            Guard::Wrong => Some(ctime.plus(std::time::Duration::from_secs(1))),
        }
    }

    fn compare(
        &mut self,
        op: &Op,
        answer: &Answer,
        expect: &Expect,
        before: &[(Slot, WriteAttr)],
    ) -> CheckResult {
        if let Some(slot) = expect.object {
            self.compare_object(op, slot, answer)?;
        }
        let short = self.tolerate.admits(Errno::Io)
            && matches!(op, Op::Read { .. })
            && answer.eof == Some(false)
            && matches!((&expect.data, &answer.data), (Some(e), Some(g)) if !g.is_empty() && e.starts_with(g));
        if short {
            // A READ may end before a block that cannot be read (RFC 1813 §3.3.6 allows short
            // reads).
            return Ok(());
        }
        if expect.data != answer.data {
            differ!(
                "data differs: {}",
                first_difference(&expect.data, &answer.data)
            );
        }
        if expect.eof != answer.eof {
            differ!("eof is {:?}, expected {:?}", answer.eof, expect.eof);
        }
        if let Op::Write { data, stable, .. } = op {
            match answer.written {
                Some((granted, count)) if count == data.len && rank(granted) >= rank(*stable) => {}
                other => differ!(
                    "wrote {other:?}, asked for {stable:?} and {} bytes",
                    data.len
                ),
            }
        }
        for (slot, around) in expect.changed.iter().zip(&answer.changed) {
            self.compare_around(op, *slot, around, before)?;
        }
        if let Some(listing) = &expect.listing {
            let Some(entries) = &answer.entries else {
                differ!("no listing");
            };
            let slot = op.slots()[0].unwrap_or(ROOT);
            self.compare_listing(slot, listing, entries)?;
        }
        Ok(())
    }

    fn compare_object(&mut self, op: &Op, slot: Slot, answer: &Answer) -> CheckResult {
        if let Some(handle) = &answer.object {
            match self.bound.get(&slot) {
                Some(bound) if bound.handle == *handle => {}
                Some(bound) => differ!(
                    "answered object {handle:02x?}, expected {slot:?} = {:02x?}",
                    bound.handle
                ),
                None => {
                    let taken = self.bound.values().any(|bound| bound.handle == *handle);
                    let Some(attr) = answer.attr else {
                        differ!("a created object came without attributes");
                    };
                    if taken {
                        differ!("the new object's handle {handle:02x?} is that of another");
                    }
                    self.bound.insert(
                        slot,
                        HandleBinding {
                            handle: handle.clone(),
                            fileid: attr.fileid,
                        },
                    );
                }
            }
        } else if !matches!(op, Op::Getattr { .. } | Op::Link { .. }) {
            differ!("no object in the answer");
        }
        if let Some(attr) = answer.attr {
            self.compare_attr(slot, &attr, Strictness::Exact, &mut Findings::default())?;
            self.track_change(slot, &attr, op.mutates())?;
        }
        Ok(())
    }

    /// The change counter never goes back, and after a crash it is above all that was shown before.
    fn track_change(&mut self, slot: Slot, attr: &ReportedAttr, _mutated: bool) -> CheckResult {
        if let Some(change) = attr.change {
            let last = self.changes.insert(slot, change);
            if last.is_some_and(|last| change < last) {
                differ!("the change counter of {slot:?} went from {last:?} to {change}");
            }
        }
        Ok(())
    }

    fn compare_around(
        &mut self,
        op: &Op,
        slot: Slot,
        around: &Around,
        before: &[(Slot, WriteAttr)],
    ) -> CheckResult {
        if let Some(after) = &around.after {
            self.compare_attr(slot, after, Strictness::Exact, &mut Findings::default())?;
            self.track_change(slot, after, true)?;
        }
        let was = before
            .iter()
            .find(|(s, _)| *s == slot)
            .map(|(_, moved)| *moved);
        if let (Some(before), Some(was)) = (around.before, was) {
            let is_file = self
                .model
                .node(slot)
                .is_some_and(|node| node.kind() == Kind::File);
            let Before {
                size,
                mtime,
                ctime,
                change,
            } = before;
            if mtime != was.mtime || ctime != was.ctime || (is_file && size != was.size) {
                differ!("attributes before {op:?} were {before:?}, expected {was:?}");
            }
            let moved = self.model.node(slot).map(|node| node.moved);
            if let (Some(old), Some(new)) = (change, around.after.and_then(|after| after.change)) {
                if moved != Some(was) && new <= old {
                    differ!("the change counter of {slot:?} stayed at {old} through {op:?}");
                }
            }
        }
        Ok(())
    }

    fn compare_attr(
        &self,
        slot: Slot,
        seen: &ReportedAttr,
        strictness: Strictness,
        findings: &mut Findings,
    ) -> CheckResult {
        let Some(node) = self.model.node(slot) else {
            differ!("{slot:?} is gone but has attributes {seen:?}");
        };
        let fileid = self.bound.get(&slot).map(|bound| bound.fileid);
        compare_node(slot, node, seen, fileid, strictness, findings)
    }

    fn compare_listing(
        &self,
        dir: Slot,
        listing: &BTreeMap<Name, Slot>,
        entries: &[Entry],
    ) -> CheckResult {
        let parent = match self.model.node(dir).map(|node| &node.body) {
            Some(Body::Dir { parent, .. }) => *parent,
            _ => dir,
        };
        let mut cookies = BTreeSet::new();
        let mut seen = BTreeMap::new();
        for entry in entries {
            if !cookies.insert(entry.cookie) {
                differ!("cookie {} twice in {dir:?}", entry.cookie);
            }
            if seen.insert(&entry.name, entry.fileid).is_some() {
                differ!("name {:?} twice in {dir:?}", entry.name);
            }
        }
        let wanted = listing
            .iter()
            .map(|(name, slot)| (name.clone(), *slot))
            .chain([(".".into(), dir), ("..".into(), parent)]);
        let mut count = 0;
        for (name, slot) in wanted {
            count += 1;
            let expected = self.bound.get(&slot).map(|bound| bound.fileid);
            let got = seen.get(&name).copied();
            if got.is_none() || got != expected {
                differ!(
                    "entry {:?} of {dir:?} is {got:?}, expected {slot:?} = {expected:?}",
                    name
                );
            }
        }
        if count != seen.len() {
            let extra: Vec<_> = seen
                .keys()
                .filter(|name| !listing.contains_key(**name) && !name.starts_with(b"."))
                .collect();
            differ!(
                "{dir:?} has {} entries, expected {count}; extra: {extra:?}",
                seen.len()
            );
        }
        for entry in entries {
            let slot = listing.get(&entry.name);
            if let (Some(slot), Some(attr)) = (slot, &entry.attr) {
                self.compare_attr(
                    *slot,
                    attr,
                    Strictness::AfterCrash,
                    &mut Findings::default(),
                )?;
            }
        }
        Ok(())
    }

    /// The power failed during `op`, so its result was not reported: it may or may not be found
    /// after recovery; a write also in part, since writes were never atomic.
    pub fn in_doubt(&mut self, id: Slot, op: &Op) {
        if !op.mutates() {
            return;
        }
        let mut op = op.clone();
        if let Op::Write { stable, .. } = &mut op {
            *stable = Stable::Unstable;
        }
        self.pending.push_back(PendingOp {
            id,
            op,
            now: self.now,
            lsn: u64::MAX,
        });
    }

    /// Notes that the log is durable up to LSN `durable`: what waited for that is acknowledged.
    pub fn acknowledge(&mut self, durable: u64) {
        while self
            .pending
            .front()
            .is_some_and(|first| first.lsn <= durable)
        {
            if let Some(first) = self.pending.pop_front() {
                // It succeeded before, so it succeeds again.
                let _ = self.base.apply(&first.op, first.now, first.id);
            }
        }
    }

    /// Notes that everything performed so far is durable (a checkpoint or a clean stop).
    pub fn acknowledge_all(&mut self) {
        self.acknowledge(u64::MAX);
    }

    /// A clean stop: even what was never committed is on the device now.
    pub fn stopped_cleanly(&mut self) {
        self.acknowledge_all();
        self.model.forget_opens();
        self.base = self.model.clone();
    }

    /// Compares the whole state exactly.
    ///
    /// # Errors
    /// The first difference.
    pub fn verify(&mut self, subject: &mut dyn Subject, choices: &Choices) -> CheckResult {
        let model = self.model.clone();
        self.match_state(subject, &model, Strictness::Exact, choices)?;
        Ok(())
    }

    /// Compares everything the subject holds with a state of before, exactly but for times of
    /// access.
    ///
    /// # Errors
    /// The first difference.
    pub fn holds(
        &mut self,
        subject: &mut dyn Subject,
        model: &Model,
        choices: &Choices,
    ) -> CheckResult {
        let mut model = model.clone();
        model.forget_access_times();
        self.match_state(subject, &model, Strictness::Exact, choices)?;
        Ok(())
    }

    /// Continues on another machine from an earlier state; `kept` returns true for operations that
    /// the state includes.
    pub fn taken_over(&mut self, model: &Model, kept: impl Fn(Slot) -> bool) {
        self.model = model.clone();
        self.model.forget_access_times();
        self.model.forget_opens();
        self.base = self.model.clone();
        self.changes.values_mut().for_each(|last| *last += 1);
        let pending = std::mem::take(&mut self.pending);
        let lost: Vec<Slot> = pending
            .iter()
            .filter(|operation| operation.op.creates() && !kept(operation.id))
            .map(|operation| operation.id)
            .collect();
        self.bound.retain(|slot, _| !lost.contains(slot));
        self.changes.retain(|slot, _| !lost.contains(slot));
    }

    /// Finds the prefix of unacknowledged operations that explains the subject's state after a
    /// crash and recovery, and continues from there.
    ///
    /// # Errors
    /// The difference to every candidate, if none explains it.
    pub fn recovered(&mut self, subject: &mut dyn Subject, choices: &Choices) -> CheckResult {
        let pending = std::mem::take(&mut self.pending);
        let mut candidates = vec![self.base.clone()];
        for operation in &pending {
            let mut next = candidates[candidates.len() - 1].clone();
            // It succeeded before, so it succeeds again.
            let _ = next.apply(&operation.op, operation.now, operation.id);
            candidates.push(next);
        }
        let mut report = String::new();
        // The longest prefix first: with equal namespaces it admits the most.
        for (count, candidate) in candidates.into_iter().enumerate().rev() {
            match self.match_state(subject, &candidate, Strictness::AfterCrash, choices) {
                Ok(findings) => {
                    self.model = candidate;
                    self.model.forget_access_times();
                    self.model.forget_opens();
                    for (slot, moved) in findings.moved {
                        self.model.adopt_moved(slot, moved);
                    }
                    for (slot, index, bytes) in findings.pages {
                        self.model.adopt_page(slot, index, &bytes);
                    }
                    self.base = self.model.clone();
                    // What was shown may be lost, and its value must not come again.
                    self.changes.values_mut().for_each(|last| *last += 1);
                    // Objects of lost creations never existed; their numbers may be given to
                    // others.
                    let lost: Vec<Slot> = pending
                        .iter()
                        .skip(count)
                        .filter(|operation| operation.op.creates())
                        .map(|operation| operation.id)
                        .collect();
                    self.bound.retain(|slot, _| !lost.contains(slot));
                    self.changes.retain(|slot, _| !lost.contains(slot));
                    return Ok(());
                }
                Err(mismatch) => {
                    let _ = writeln!(
                        report,
                        "- not the first {count} of {} unacknowledged operations: {mismatch}",
                        pending.len()
                    );
                }
            }
        }
        for operation in &pending {
            let _ = writeln!(
                report,
                "  {:?} lsn {} {:?}",
                operation.id, operation.lsn, operation.op
            );
        }
        differ!("no acknowledged state explains what was recovered:\n{report}")
    }

    /// Compares everything the subject holds with `model`.
    fn match_state(
        &mut self,
        subject: &mut dyn Subject,
        model: &Model,
        strictness: Strictness,
        choices: &Choices,
    ) -> CheckResult<Findings> {
        let mut findings = Findings::default();
        let kept = std::mem::replace(&mut self.model, model.clone());
        let result = self.match_nodes(subject, strictness, choices, &mut findings);
        self.model = kept;
        self.model.forget_access_times();
        self.tolerated += result?;
        Ok(findings)
    }

    fn match_nodes(
        &self,
        subject: &mut dyn Subject,
        strictness: Strictness,
        choices: &Choices,
        findings: &mut Findings,
    ) -> CheckResult<u64> {
        let bound = &self.bound;
        let handle = |slot: Slot| bound.get(&slot).map_or_else(Vec::new, |b| b.handle.clone());
        let tolerated = std::cell::Cell::new(0);
        let mut ask = |op: &Op| -> CheckResult<Option<Answer>> {
            match subject.call(op, self.now, &handle, None) {
                Ok(answer) => Ok(Some(answer)),
                Err(errno) if self.tolerate.admits(errno) => {
                    tolerated.set(tolerated.get() + 1);
                    Ok(None)
                }
                Err(errno) => Err(Mismatch(format!("{op:?} failed with {errno:?}"))),
            }
        };
        for (slot, node) in self.model.nodes() {
            if !bound.contains_key(&slot) {
                differ!("{slot:?} was never created");
            }
            let op = Op::Getattr { object: slot };
            let Some(answer) = ask(&op)? else {
                continue;
            };
            let Some(attr) = answer.attr else {
                differ!("{op:?} came without attributes");
            };
            self.compare_attr(slot, &attr, strictness, findings)?;
            if !self.model.rules().unix {
                let op = Op::Xattrs { object: slot };
                let all = node.xattrs.iter();
                let want = listed_xattrs(all.map(|(name, value)| (&*name.0, value.bytes())));
                if ask(&op)?.is_some_and(|answer| answer.data != Some(want)) {
                    differ!("the extended attributes of {slot:?} differ");
                }
            }
            match &node.body {
                Body::Dir { entries, .. } => {
                    let op = Op::Readdir {
                        dir: slot,
                        entries: *choices.pick(&[2, 5, 50]),
                    };
                    let Some(answer) = ask(&op)? else {
                        continue;
                    };
                    let Some(listed) = answer.entries else {
                        differ!("{op:?} came without entries");
                    };
                    self.compare_listing(slot, entries, &listed)?;
                }
                Body::Symlink(target) => {
                    let op = Op::Readlink { object: slot };
                    if ask(&op)?.is_some_and(|answer| answer.data.as_ref() != Some(target)) {
                        differ!("the target of {slot:?} differs");
                    }
                }
                Body::File(_) => {
                    let longest = if self.tolerate == Errors::NONE { 64 } else { 1 };
                    let how = (choices, longest);
                    match_content(&mut ask, slot, node, attr.size, strictness, how, findings)?;
                }
                Body::Special(_) => {}
            }
        }
        Ok(tolerated.get())
    }
}

fn rank(stable: Stable) -> u8 {
    match stable {
        Stable::Unstable => 0,
        Stable::Data => 1,
        Stable::File => 2,
    }
}

fn first_difference(expected: &Option<Vec<u8>>, got: &Option<Vec<u8>>) -> String {
    match (expected, got) {
        (Some(expected), Some(got)) => {
            let at = expected.iter().zip(got).position(|(a, b)| a != b);
            format!(
                "{} bytes, expected {}; first difference at {at:?}",
                got.len(),
                expected.len()
            )
        }
        (expected, got) => format!(
            "present: {}, expected: {}",
            got.is_some(),
            expected.is_some()
        ),
    }
}

fn compare_node(
    slot: Slot,
    node: &Node,
    seen: &ReportedAttr,
    fileid: Option<u64>,
    strictness: Strictness,
    findings: &mut Findings,
) -> CheckResult {
    let same = node.kind() == seen.kind
        && node.mode == seen.mode
        && node.uid == seen.uid
        && node.gid == seen.gid
        && node.nlink == seen.nlink
        && node.rdev == seen.rdev
        && fileid.is_none_or(|fileid| fileid == seen.fileid);
    let sized = matches!(node.kind(), Kind::File | Kind::Symlink);
    let moved = WriteAttr {
        size: if sized { seen.size } else { node.moved.size },
        mtime: seen.mtime,
        ctime: seen.ctime,
    };
    let known = moved == node.moved
        || (strictness == Strictness::AfterCrash && node.unsettled.contains(&moved));
    if !same || !known {
        let mut node = node.clone();
        if let Body::Dir { entries, .. } = &mut node.body {
            entries.clear();
        }
        if let Body::File(content) = &mut node.body {
            *content = crate::model::Content::default();
        }
        differ!(
            "attributes of {slot:?} are\n    {seen:?}, expected fileid {fileid:?}\n    {node:?}"
        );
    }
    if let Some(atime) = node.atime {
        if strictness == Strictness::Exact && atime != seen.atime {
            differ!("atime of {slot:?} is {:?}, expected {atime:?}", seen.atime);
        }
    }
    if moved != node.moved || !node.unsettled.is_empty() {
        findings.moved.push((slot, moved));
    }
    Ok(())
}

/// Compares a file's bytes: every page the model knows, its neighbours, and some places that must
/// be holes.
fn match_content(
    ask: &mut dyn FnMut(&Op) -> CheckResult<Option<Answer>>,
    slot: Slot,
    node: &Node,
    size: u64,
    strictness: Strictness,
    (choices, longest): (&Choices, u64),
    findings: &mut Findings,
) -> CheckResult {
    let Body::File(content) = &node.body else {
        return Ok(());
    };
    let mut wanted: BTreeSet<u64> = content
        .indexes()
        .flat_map(|index| [index.saturating_sub(1), index, index + 1])
        .collect();
    wanted.insert(size / PAGE);
    wanted.insert(choices.below(size / PAGE + 1));
    wanted.insert(choices.below(size.min(1 << 24) / PAGE + 1));
    let wanted: Vec<u64> = wanted
        .into_iter()
        .filter(|index| index * PAGE < size)
        .collect();
    let known: BTreeSet<u64> = content.indexes().collect();
    // Neighbouring pages are read together, up to a length that varies.
    let mut rest = &wanted[..];
    while let Some(&first) = rest.first() {
        let longest = choices.between(1, longest) as usize;
        let run = rest
            .iter()
            .zip(first..)
            .take(longest)
            .take_while(|(index, expected)| **index == *expected)
            .count();
        rest = &rest[run..];
        let start = first * PAGE;
        let len = (run as u64 * PAGE).min(size - start) as u32;
        let op = Op::Read {
            object: slot,
            offset: start,
            len,
        };
        let Some(answer) = ask(&op)? else {
            continue;
        };
        let Some(data) = answer.data else {
            differ!("{op:?} came without data");
        };
        if data.len() != len as usize {
            differ!("{op:?} gave {} bytes of a file of {size}", data.len());
        }
        for (index, found) in (first..).zip(data.chunks(PAGE as usize)) {
            let fits = match strictness {
                Strictness::Exact => content.read(index * PAGE, found.len()) == found,
                Strictness::AfterCrash => content.admits(index, found),
            };
            if !fits {
                let expected = content.read(index * PAGE, found.len());
                differ!(
                    "page {index} of {slot:?} (size {size}): {}",
                    describe_page(found, &expected)
                );
            }
            if strictness == Strictness::AfterCrash && known.contains(&index) {
                findings.pages.push((slot, index, found.to_vec()));
            }
        }
    }
    Ok(())
}

fn describe_page(found: &[u8], expected: &[u8]) -> String {
    let differing: Vec<usize> = (0..found.len())
        .filter(|&i| found[i] != expected[i])
        .collect();
    let zeros = differing.iter().all(|&i| found[i] == 0);
    format!(
        "{} of {} bytes differ, from {:?} to {:?}{}",
        differing.len(),
        found.len(),
        differing.first(),
        differing.last(),
        if zeros { ", all read as zero" } else { "" }
    )
}

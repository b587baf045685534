//! The decider: carries out requests on the directories of its constituent.

use std::collections::BTreeMap;

use weir_base::{Ino, invariant};

use crate::lock::Hold;
use crate::message::{Message, Ticket, Token};
use crate::number::{Constituent, ROOT};
use crate::part::Part;
use crate::protocol::{Protocol, wrong_kind};
use crate::record::{Change, Kind, Namespace, Note, Object, Record, Target};
use crate::request::{Attributes, Refusal, Request};

/// Ticks after which a change that is not decided is given up.
pub(crate) const OPERATION_TICKS: u32 = 8;

/// A change under way that is not decided.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) caller: u64,
    request: Request,
    parts: Vec<PartRequest>,
    /// Directory that the walk from the target to the root has come to.
    walk: Walk,
    /// Closings of the gates, for a snapshot.
    closed: BTreeMap<Constituent, Ticket>,
    age: u32,
}

/// A part that was requested.
#[derive(Debug)]
struct PartRequest {
    on: Constituent,
    part: Part,
    vote: Option<(Ticket, Option<Target>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    NotBegun,
    At(Ino),
    Done,
}

/// Next step of a change.
enum Step {
    /// Something that was requested has not been answered.
    Wait,
    /// Parts are needed.
    Request(Vec<(Constituent, Part)>),
    /// The parent of this directory is needed.
    Walk(Ino),
    /// Everything is prepared.
    Decide(Vec<Change>, Option<Ino>),
    /// Nothing is to be done: both names are of one file.
    Nothing,
}

/// Changes of one constituent, with the inode that they make.
type Here = (Vec<Change>, Option<Ino>);

impl Operation {
    /// Returns the target of the first part.
    fn first_target(&self) -> Option<Target> {
        self.parts.first()?.vote?.1
    }

    fn has_requested(&self, part: impl Fn(&Part) -> bool) -> bool {
        self.parts.iter().any(|requested| part(&requested.part))
    }
}

impl Protocol {
    /// Begins to carry out a request.
    pub(crate) fn begin(&mut self, namespace: &mut impl Namespace, caller: u64, request: Request) {
        match self.carry_out_here(namespace, &request) {
            Err(refusal) => self.reply(caller, Err(refusal)),
            Ok(Some((changes, made))) => {
                let mut reply = Ok(made);
                if !changes.is_empty() {
                    let appended = namespace.append(Record {
                        changes,
                        note: Note::None,
                        caller: Some(caller),
                    });
                    reply = appended.and(reply);
                }
                self.reply(caller, reply);
            }
            Ok(None) => {
                let token = self.new_token();
                if let Some((directory, name)) = request.entry() {
                    self.locks.lock_entry(directory, name, Hold::Deciding);
                }
                let operation = Operation {
                    caller,
                    request,
                    parts: Vec::new(),
                    walk: Walk::NotBegun,
                    closed: BTreeMap::new(),
                    age: 0,
                };
                self.operations.insert(token, operation);
                self.step(namespace, token);
            }
        }
    }

    /// Takes a change as far as it can go now.
    fn step(&mut self, namespace: &mut impl Namespace, token: Token) {
        let Some(operation) = self.operations.get(&token) else {
            return;
        };
        match self.next_step(namespace, operation) {
            Err(refusal) => self.end(token, Err(refusal)),
            Ok(Step::Wait) => {}
            Ok(Step::Nothing) => self.end(token, Ok(None)),
            Ok(Step::Decide(changes, made)) => self.decide(namespace, token, changes, made),
            Ok(Step::Walk(directory)) => {
                self.set_walk(token, Walk::At(directory));
                self.repeat_requests_of(token);
            }
            Ok(Step::Request(parts)) => {
                let requested = parts.into_iter().map(|(on, part)| PartRequest {
                    on,
                    part,
                    vote: None,
                });
                if let Some(operation) = self.operations.get_mut(&token) {
                    operation.parts.extend(requested);
                }
                self.repeat_requests_of(token);
            }
        }
        if let Some(operation) = self.operations.get(&token) {
            if operation.request == Request::Snapshot && operation.closed.is_empty() {
                self.repeat_requests_of(token);
            }
        }
    }

    fn set_walk(&mut self, token: Token, walk: Walk) {
        if let Some(operation) = self.operations.get_mut(&token) {
            operation.walk = walk;
        }
    }

    fn next_step(
        &self,
        namespace: &impl Namespace,
        operation: &Operation,
    ) -> Result<Step, Refusal> {
        if operation.parts.iter().any(|part| part.vote.is_none()) {
            return Ok(Step::Wait);
        }
        match &operation.request {
            Request::Rename {
                from_directory,
                from,
                to_directory,
                to,
            } => {
                let Some(moved) = operation.first_target() else {
                    let part = Part::TakeEntry {
                        directory: *from_directory,
                        name: from.clone(),
                    };
                    return Ok(request_on(*from_directory, part));
                };
                let moves = moved.kind == Kind::Directory && from_directory != to_directory;
                let replaced = namespace.entry(*to_directory, to);
                self.next_of_rename(namespace, operation, moved, moves, replaced)
            }
            Request::Snapshot => Ok(self.next_of_snapshot(operation)),
            request => next_of_entry(namespace, operation, request),
        }
    }

    /// Returns the step of a rename whose source is prepared. `moves` is true if a directory gets
    /// another parent.
    fn next_of_rename(
        &self,
        namespace: &impl Namespace,
        operation: &Operation,
        moved: Target,
        moves: bool,
        replaced: Option<Target>,
    ) -> Result<Step, Refusal> {
        let Some((to_directory, to)) = operation.request.entry() else {
            return Err(Refusal::Stale);
        };
        if let Some(replaced) = replaced {
            if replaced.ino == moved.ino {
                return Ok(Step::Nothing);
            }
            if replaced.kind != moved.kind {
                return Err(wrong_kind(replaced.kind));
            }
        }
        if moves && !operation.has_requested(|part| *part == Part::LockMoves) {
            let root = Constituent::of_inode(ROOT);
            return Ok(Step::Request(vec![(root, Part::LockMoves)]));
        }
        match operation.walk {
            Walk::NotBegun if moves && to_directory == moved.ino => return Err(Refusal::Loop),
            Walk::NotBegun if moves && to_directory != ROOT => return Ok(Step::Walk(to_directory)),
            Walk::At(_) => return Ok(Step::Wait),
            Walk::NotBegun | Walk::Done => {}
        }
        let mut parts = Vec::new();
        if let Some(replaced) = replaced {
            let on = Constituent::of_inode(replaced.ino);
            parts.push((on, removal_of(replaced)));
        }
        if moves {
            let depth = namespace.object(to_directory).map_or(0, |to| to.depth);
            let part = Part::MoveDirectory {
                directory: moved.ino,
                to: to_directory,
                depth: depth.saturating_add(1),
            };
            parts.push((Constituent::of_inode(moved.ino), part));
        }
        if parts
            .iter()
            .any(|(_, part)| !operation.has_requested(|other| other == part))
        {
            return Ok(Step::Request(parts));
        }
        let mut changes = Vec::new();
        changes.extend(replaced.map(|replaced| remove(to_directory, to, replaced.kind)));
        changes.push(insert(to_directory, to, moved));
        Ok(Step::Decide(changes, None))
    }

    fn next_of_snapshot(&self, operation: &Operation) -> Step {
        if !operation.parts.is_empty() {
            return Step::Decide(Vec::new(), None);
        }
        if operation.closed.len() < self.members.len() {
            return Step::Wait;
        }
        let part =
            |(on, closing): (&Constituent, &Ticket)| (*on, Part::Snapshot { closing: *closing });
        Step::Request(operation.closed.iter().map(part).collect())
    }

    /// Decides a change: by this record it is carried out.
    fn decide(
        &mut self,
        namespace: &mut impl Namespace,
        token: Token,
        changes: Vec<Change>,
        made: Option<Ino>,
    ) {
        let Some(operation) = self.operations.get(&token) else {
            return;
        };
        let parts = operation.parts.iter();
        let parts: Vec<(Constituent, Ticket)> = parts
            .filter_map(|part| Some((part.on, part.vote?.0)))
            .collect();
        let decided = namespace.append(Record {
            changes,
            note: Note::Decided {
                token,
                parts: parts.clone(),
            },
            caller: Some(operation.caller),
        });
        if let Err(refusal) = decided {
            self.end(token, Err(refusal));
            return;
        }
        let Some(operation) = self.operations.remove(&token) else {
            return;
        };
        for (on, ticket) in &parts {
            let finish = Message::Finish {
                token,
                ticket: *ticket,
                commit: true,
            };
            self.send(*on, finish);
        }
        self.decided.insert(token, parts);
        self.unlock_request(&operation.request);
        self.reply(operation.caller, Ok(made));
    }

    /// Ends a change that is not decided.
    fn end(&mut self, token: Token, reply: Result<Option<Ino>, Refusal>) {
        let Some(operation) = self.operations.remove(&token) else {
            return;
        };
        // The reply is right as long as the parts are locked.
        self.reply(operation.caller, reply);
        self.unlock_request(&operation.request);
        for part in &operation.parts {
            if let Some((ticket, _)) = part.vote {
                let finish = Message::Finish {
                    token,
                    ticket,
                    commit: false,
                };
                self.send(part.on, finish);
            }
        }
    }

    fn unlock_request(&mut self, request: &Request) {
        if let Some((directory, name)) = request.entry() {
            self.locks.unlock_entry(directory, name);
        }
    }

    /// Handles a vote.
    pub(crate) fn voted(
        &mut self,
        namespace: &mut impl Namespace,
        from: Constituent,
        token: Token,
        part: &Part,
        answer: Result<(Ticket, Option<Target>), Refusal>,
    ) {
        let Some(operation) = self.operations.get_mut(&token) else {
            if let Ok((ticket, _)) = answer {
                self.answer(from, token, ticket);
            }
            return;
        };
        let requested = |other: &&mut PartRequest| other.on == from && other.part == *part;
        let Some(requested) = operation.parts.iter_mut().find(requested) else {
            return;
        };
        match answer {
            Err(refusal) if requested.vote.is_none() => self.end(token, Err(refusal)),
            // A vote that was overtaken: the part is prepared.
            Err(_) => {}
            Ok(vote) => {
                requested.vote = Some(vote);
                self.step(namespace, token);
            }
        }
    }

    /// Answers for a prepared part: it ends as was decided. While nothing is decided there is no
    /// answer.
    pub(crate) fn answer(&mut self, from: Constituent, token: Token, ticket: Ticket) {
        if self.operations.contains_key(&token) {
            return;
        }
        let parts = self.decided.get(&token);
        let commit = parts.is_some_and(|parts| parts.contains(&(from, ticket)));
        let finish = Message::Finish {
            token,
            ticket,
            commit,
        };
        self.send(from, finish);
    }

    /// Notes that a part is finished, and forgets the change with the last one.
    pub(crate) fn part_finished(
        &mut self,
        namespace: &mut impl Namespace,
        from: Constituent,
        token: Token,
        ticket: Ticket,
    ) {
        let Some(parts) = self.decided.get_mut(&token) else {
            return;
        };
        parts.retain(|part| *part != (from, ticket));
        if parts.is_empty() {
            self.forget_finished(namespace);
        }
    }

    /// Forgets the changes whose parts are all finished, as far as the namespace lets it.
    pub(crate) fn forget_finished(&mut self, namespace: &mut impl Namespace) {
        self.decided.retain(|token, parts| {
            if !parts.is_empty() {
                return true;
            }
            let forgotten = namespace.append(Record {
                changes: Vec::new(),
                note: Note::Forgotten(*token),
                caller: None,
            });
            forgotten.is_err()
        });
    }

    /// Handles the answer to the question for a directory's parent.
    pub(crate) fn walked(
        &mut self,
        namespace: &mut impl Namespace,
        token: Token,
        directory: Ino,
        answer: Result<Ino, Refusal>,
    ) {
        let Some(operation) = self.operations.get(&token) else {
            return;
        };
        let (true, Some(moved)) = (
            operation.walk == Walk::At(directory),
            operation.first_target(),
        ) else {
            return;
        };
        match answer {
            Err(_) => self.end(token, Err(Refusal::Busy)),
            Ok(parent) if parent == moved.ino => self.end(token, Err(Refusal::Loop)),
            Ok(ROOT) => {
                self.set_walk(token, Walk::Done);
                self.step(namespace, token);
            }
            Ok(parent) => {
                self.set_walk(token, Walk::At(parent));
                self.repeat_requests_of(token);
            }
        }
    }

    /// Notes that a constituent has closed its gate.
    pub(crate) fn gate_closed(
        &mut self,
        namespace: &mut impl Namespace,
        from: Constituent,
        token: Token,
        ticket: Ticket,
    ) {
        let Some(operation) = self.operations.get_mut(&token) else {
            return;
        };
        if operation.parts.is_empty() {
            operation.closed.insert(from, ticket);
            self.step(namespace, token);
        }
    }

    /// Ends changes that have waited for too long.
    pub(crate) fn age_operations(&mut self) {
        let mut old = Vec::new();
        for (token, operation) in &mut self.operations {
            operation.age += 1;
            if operation.age > OPERATION_TICKS {
                old.push(*token);
            }
        }
        for token in old {
            self.end(token, Err(Refusal::Busy));
        }
    }

    /// Repeats the requests of all changes.
    pub(crate) fn repeat_requests(&mut self) {
        let tokens: Vec<Token> = self.operations.keys().copied().collect();
        for token in tokens {
            self.repeat_requests_of(token);
        }
    }

    /// Sends the requests of a change that have no answer.
    fn repeat_requests_of(&mut self, token: Token) {
        let Some(operation) = self.operations.get(&token) else {
            return;
        };
        let mut messages = Vec::new();
        for requested in operation.parts.iter().filter(|part| part.vote.is_none()) {
            let part = requested.part.clone();
            messages.push((requested.on, Message::Prepare { token, part }));
        }
        if let Walk::At(directory) = operation.walk {
            let on = Constituent::of_inode(directory);
            messages.push((on, Message::Parent { token, directory }));
        }
        if operation.request == Request::Snapshot && operation.parts.is_empty() {
            for member in &self.members {
                if !operation.closed.contains_key(member) {
                    messages.push((*member, Message::Close { token }));
                }
            }
        }
        for (to, message) in messages {
            self.send(to, message);
        }
    }

    /// Returns the changes of a request that concerns this constituent alone, with the inode that
    /// it makes; `None` if it concerns others, too.
    fn carry_out_here(
        &self,
        namespace: &mut impl Namespace,
        request: &Request,
    ) -> Result<Option<Here>, Refusal> {
        let Some((directory, name)) = request.entry() else {
            return Ok(None);
        };
        let found = self.check_entry(namespace, directory, name)?;
        let is_here = |ino: Ino| Constituent::of_inode(ino) == self.own;
        match request {
            Request::Create { .. } | Request::MakeDirectory { .. } | Request::Link { .. }
                if found.is_some() =>
            {
                Err(Refusal::Exists)
            }
            Request::Create { .. } => {
                let new = (Object::file(), Attributes::default());
                Ok(Some(make(namespace, directory, name, new)))
            }
            Request::MakeDirectory { on, .. } if *on != self.own => Ok(None),
            Request::MakeDirectory { attributes, .. } => {
                let parent = namespace.object(directory).ok_or(Refusal::Stale)?;
                let object = Object::directory(directory, parent.depth.saturating_add(1));
                Ok(Some(make(
                    namespace,
                    directory,
                    name,
                    (object, *attributes),
                )))
            }
            Request::Remove { .. } | Request::RemoveDirectory { .. } => {
                let target = found.ok_or(Refusal::NotFound)?;
                let wanted = match request {
                    Request::Remove { .. } => Kind::File,
                    _ => Kind::Directory,
                };
                if target.kind != wanted {
                    return Err(wrong_kind(target.kind));
                }
                if !is_here(target.ino) {
                    return Ok(None);
                }
                let lost = self.lose(namespace, target)?;
                Ok(Some((
                    vec![remove(directory, name, target.kind), lost],
                    None,
                )))
            }
            Request::Link { file, .. } if is_here(*file) => {
                self.check_file(namespace, *file)?;
                let (ino, kind) = (*file, Kind::File);
                let insert = insert(directory, name, Target { ino, kind });
                Ok(Some((vec![insert, Change::AddLink { ino }], None)))
            }
            Request::Rename {
                from_directory,
                from,
                ..
            } if is_here(*from_directory) => {
                let from = (*from_directory, &**from);
                self.rename_here(namespace, from, (directory, name), found)
            }
            Request::Link { .. } | Request::Rename { .. } | Request::Snapshot => Ok(None),
        }
    }

    /// Returns the changes of a rename between directories of this constituent; `None` if it
    /// concerns others, or moves a directory and so needs the lock of moves.
    fn rename_here(
        &self,
        namespace: &impl Namespace,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        replaced: Option<Target>,
    ) -> Result<Option<Here>, Refusal> {
        let moved = self.check_entry(namespace, from.0, from.1)?;
        let moved = moved.ok_or(Refusal::NotFound)?;
        let mut changes = vec![remove(from.0, from.1, moved.kind)];
        if let Some(replaced) = replaced {
            if replaced.ino == moved.ino {
                return Ok(Some((Vec::new(), None)));
            }
            if replaced.kind != moved.kind {
                return Err(wrong_kind(replaced.kind));
            }
            if Constituent::of_inode(replaced.ino) != self.own {
                return Ok(None);
            }
        }
        if moved.kind == Kind::Directory && from.0 != to.0 {
            return Ok(None);
        }
        if let Some(replaced) = replaced {
            let lost = self.lose(namespace, replaced)?;
            changes.extend([remove(to.0, to.1, replaced.kind), lost]);
        }
        changes.push(insert(to.0, to.1, moved));
        Ok(Some((changes, None)))
    }

    /// Returns the change of an inode of this constituent that loses an entry.
    fn lose(&self, namespace: &impl Namespace, target: Target) -> Result<Change, Refusal> {
        let ino = target.ino;
        match target.kind {
            Kind::File => {
                self.check_file(namespace, ino)?;
                Ok(Change::DropLink { ino })
            }
            Kind::Directory => {
                self.check_removable(namespace, ino, None)?;
                Ok(Change::Delete { ino })
            }
        }
    }
}

/// Returns the step of a change that has one part.
fn next_of_entry(
    namespace: &impl Namespace,
    operation: &Operation,
    request: &Request,
) -> Result<Step, Refusal> {
    let first = operation.parts.is_empty();
    match request {
        Request::MakeDirectory {
            directory,
            name,
            on,
            attributes,
        } => match operation.first_target() {
            None => {
                let parent = namespace.object(*directory).ok_or(Refusal::Stale)?;
                let part = Part::MakeDirectory {
                    parent: *directory,
                    depth: parent.depth.saturating_add(1),
                    attributes: *attributes,
                };
                Ok(Step::Request(vec![(*on, part)]))
            }
            Some(made) => {
                let insert = insert(*directory, name, made);
                Ok(Step::Decide(vec![insert], Some(made.ino)))
            }
        },
        Request::Remove { directory, name } | Request::RemoveDirectory { directory, name } => {
            let target = namespace.entry(*directory, name).ok_or(Refusal::NotFound)?;
            if first {
                return Ok(request_on(target.ino, removal_of(target)));
            }
            let remove = remove(*directory, name, target.kind);
            Ok(Step::Decide(vec![remove], None))
        }
        Request::Link {
            file,
            directory,
            name,
        } => {
            if first {
                return Ok(request_on(*file, Part::AddLink { file: *file }));
            }
            let (ino, kind) = (*file, Kind::File);
            let insert = insert(*directory, name, Target { ino, kind });
            Ok(Step::Decide(vec![insert], None))
        }
        Request::Create { .. } | Request::Rename { .. } | Request::Snapshot => {
            invariant!(false, "{request:?} has no single part");
            Err(Refusal::Busy)
        }
    }
}

/// Returns the step that requests a part of the constituent that has the inode.
fn request_on(ino: Ino, part: Part) -> Step {
    Step::Request(vec![(Constituent::of_inode(ino), part)])
}

/// Returns the part of an inode that loses an entry.
fn removal_of(target: Target) -> Part {
    match target.kind {
        Kind::File => Part::DropLink { file: target.ino },
        Kind::Directory => Part::RemoveDirectory {
            directory: target.ino,
        },
    }
}

fn insert(directory: Ino, name: &[u8], target: Target) -> Change {
    Change::Insert {
        directory,
        name: name.into(),
        target,
    }
}

fn remove(directory: Ino, name: &[u8], kind: Kind) -> Change {
    Change::Remove {
        directory,
        name: name.into(),
        kind,
    }
}

fn make(
    namespace: &mut impl Namespace,
    directory: Ino,
    name: &[u8],
    (object, attributes): (Object, Attributes),
) -> Here {
    let ino = namespace.new_number();
    let target = Target {
        ino,
        kind: object.kind,
    };
    let changes = vec![
        Change::Make {
            ino,
            object,
            attributes,
        },
        insert(directory, name, target),
    ];
    (changes, Some(ino))
}

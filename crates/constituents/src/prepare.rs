//! The participant: prepares parts, and finishes them as the decider says.

use weir_base::Ino;
use weir_base::limits::MAX_LINKS;

use crate::lock::Hold;
use crate::message::{Message, Ticket, Token};
use crate::number::Constituent;
use crate::part::{Part, PreparedPart};
use crate::protocol::Protocol;
use crate::record::{Kind, Namespace, Note, Object, Record, Target};
use crate::request::Refusal;

impl Protocol {
    /// Handles a request to prepare a part. A part that is prepared already keeps its ticket.
    pub(crate) fn prepare(
        &mut self,
        namespace: &mut impl Namespace,
        from: Constituent,
        token: Token,
        part: Part,
    ) {
        let same = |prepared: &PreparedPart| prepared.token == token && prepared.part == part;
        let known = self.prepared.iter().find(|(_, prepared)| same(prepared));
        let known = known.map(|(ticket, prepared)| (*ticket, prepared.target));
        let answer = match known {
            Some(known) => Ok(known),
            None => self.prepare_anew(namespace, token, &part),
        };
        let vote = Message::Vote {
            token,
            part,
            answer,
        };
        self.send(from, vote);
    }

    fn prepare_anew(
        &mut self,
        namespace: &mut impl Namespace,
        token: Token,
        part: &Part,
    ) -> Result<(Ticket, Option<Target>), Refusal> {
        let target = self.check_part(namespace, token, part)?;
        let prepared = PreparedPart {
            token,
            part: part.clone(),
            target,
        };
        let ticket = self.new_ticket();
        namespace.append(Record {
            changes: prepared.changes(),
            note: Note::Prepared {
                ticket,
                prepared: prepared.clone(),
            },
            caller: None,
        })?;
        self.locks.lock(&prepared);
        self.prepared.insert(ticket, prepared);
        if let Part::Snapshot { .. } = part {
            self.open_gate();
        }
        Ok((ticket, target))
    }

    /// Checks that a part can be prepared. Returns the inode that it concerns.
    fn check_part(
        &self,
        namespace: &mut impl Namespace,
        token: Token,
        part: &Part,
    ) -> Result<Option<Target>, Refusal> {
        match part {
            Part::MakeDirectory { .. } => {
                let ino = namespace.new_number();
                let kind = Kind::Directory;
                Ok(Some(Target { ino, kind }))
            }
            Part::RemoveDirectory { directory } => {
                self.check_removable(namespace, *directory, Some(token))?;
                Ok(None)
            }
            Part::AddLink { file } => {
                self.check_file(namespace, *file)?;
                let links = namespace.object(*file).map_or(0, |object| object.links);
                match links < MAX_LINKS {
                    true => Ok(None),
                    false => Err(Refusal::TooManyLinks),
                }
            }
            Part::DropLink { file } => {
                self.check_file(namespace, *file)?;
                Ok(None)
            }
            Part::TakeEntry { directory, name } => {
                let target = self.check_entry(namespace, *directory, name)?;
                target.map(Some).ok_or(Refusal::NotFound)
            }
            Part::MoveDirectory { directory, .. } => {
                self.check_object(namespace, *directory)?;
                Ok(None)
            }
            Part::LockMoves if self.locks.has_moves() => Err(Refusal::Busy),
            Part::Snapshot { closing } if self.closing() != Some(*closing) => Err(Refusal::Busy),
            Part::LockMoves | Part::Snapshot { .. } => Ok(None),
        }
    }

    /// Returns an inode that is not locked.
    fn check_object(&self, namespace: &impl Namespace, ino: Ino) -> Result<Object, Refusal> {
        let object = namespace.object(ino).ok_or(Refusal::Stale)?;
        if self.locks.has_inode(ino) {
            return Err(Refusal::Busy);
        }
        Ok(object)
    }

    /// Checks that the links of a file can change.
    pub(crate) fn check_file(&self, namespace: &impl Namespace, ino: Ino) -> Result<(), Refusal> {
        match self.check_object(namespace, ino)?.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Refusal::IsDirectory),
        }
    }

    /// Returns what an entry names, if it can be changed.
    pub(crate) fn check_entry(
        &self,
        namespace: &impl Namespace,
        directory: Ino,
        name: &[u8],
    ) -> Result<Option<Target>, Refusal> {
        // A file that is locked may be gone.
        let object = self.check_object(namespace, directory)?;
        if object.kind != Kind::Directory {
            return Err(Refusal::NotDirectory);
        }
        if self.locks.entry(directory, name).is_some() {
            return Err(Refusal::Busy);
        }
        Ok(namespace.entry(directory, name))
    }

    /// Checks that a directory is empty, and that no change is under way that may fill it. An entry
    /// that leaves by the same change `token` is still there.
    pub(crate) fn check_removable(
        &self,
        namespace: &impl Namespace,
        directory: Ino,
        token: Option<Token>,
    ) -> Result<(), Refusal> {
        let object = self.check_object(namespace, directory)?;
        if object.kind != Kind::Directory {
            return Err(Refusal::NotDirectory);
        }
        let leaves = |hold: &Hold| match hold {
            Hold::Deciding => false,
            Hold::Leaving(other) => Some(*other) != token,
        };
        let leaving = self.locks.entries_in(directory).filter(leaves).count();
        if object.entries > leaving as u64 {
            return Err(Refusal::NotEmpty);
        }
        match self.locks.entries_in(directory).next() {
            Some(_) => Err(Refusal::Busy),
            None => Ok(()),
        }
    }

    /// Handles the decider's word on a prepared part. A ticket that is not known is of a part that
    /// was finished before.
    pub(crate) fn finish(
        &mut self,
        namespace: &mut impl Namespace,
        from: Constituent,
        token: Token,
        ticket: Ticket,
        commit: bool,
    ) {
        if let Some(prepared) = self.prepared.get(&ticket) {
            let finished = namespace.append(Record {
                changes: prepared.end(commit),
                note: Note::Finished(ticket),
                caller: None,
            });
            if finished.is_err() {
                // The decider says it again.
                return;
            }
            self.locks.unlock(prepared);
            self.prepared.remove(&ticket);
        }
        if commit {
            self.send(from, Message::Finished { token, ticket });
        }
    }

    /// Handles the question for a directory's parent.
    pub(crate) fn answer_parent(
        &mut self,
        namespace: &impl Namespace,
        from: Constituent,
        token: Token,
        directory: Ino,
    ) {
        let object = self.check_object(namespace, directory);
        let answer = object.map(|object| object.parent);
        let message = Message::ParentIs {
            token,
            directory,
            answer,
        };
        self.send(from, message);
    }
}

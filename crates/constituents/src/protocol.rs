//! The rules of one constituent.
//!
//! A constituent *decides* the changes of its own directories and *prepares* parts of changes that
//! others decide. Everything it hands out in [`Output`]s may leave only when all records that were
//! appended before are durable: so nobody learns of a state that a crash can take back.
//!
//! **Presumed abort.** A change is decided by one record of the decider, which also changes the
//! directory. A change that has no such record and is not under way in the decider's memory is not
//! decided and never will be: so the decider can answer for every token, and forgets a change once
//! all parts are finished.

use std::collections::BTreeMap;

use weir_base::Ino;

use crate::decide::Operation;
use crate::gate::{Gate, Input};
use crate::lock::Locks;
use crate::message::{Message, Ticket, Token};
use crate::number::Constituent;
use crate::part::PreparedPart;
use crate::record::{Kind, Namespace, Note, Record};
use crate::request::{Refusal, Reply, Request};

/// A message or reply, which may leave once all records appended before it are durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A message to a constituent, perhaps to the own one.
    Send {
        /// Constituent that gets it.
        to: Constituent,
        /// The message.
        message: Message,
    },
    /// The result of a request.
    Reply {
        /// Request, as its caller numbered it.
        caller: u64,
        /// Its result.
        reply: Reply,
    },
}

/// State of the protocol that the records make.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Durable {
    /// Epoch of the last start.
    pub epoch: u64,
    /// Parts that are prepared and not finished.
    pub prepared: BTreeMap<Ticket, PreparedPart>,
    /// Changes that were decided and not forgotten, with their parts.
    pub decided: BTreeMap<Token, Vec<(Constituent, Ticket)>>,
}

impl Durable {
    /// Carries out a record's note.
    pub fn apply(&mut self, note: &Note) {
        match note {
            Note::None => {}
            Note::Epoch(epoch) => self.epoch = *epoch,
            Note::Prepared { ticket, prepared } => {
                self.prepared.insert(*ticket, prepared.clone());
            }
            Note::Finished(ticket) => {
                self.prepared.remove(ticket);
            }
            Note::Decided { token, parts } => {
                self.decided.insert(*token, parts.clone());
            }
            Note::Forgotten(token) => {
                self.decided.remove(token);
            }
        }
    }
}

/// A constituent.
#[derive(Debug)]
pub struct Protocol {
    pub(crate) own: Constituent,
    pub(crate) members: Vec<Constituent>,
    epoch: u64,
    next: u64,
    /// Changes under way that this constituent decides. They end with the process.
    pub(crate) operations: BTreeMap<Token, Operation>,
    /// Parts that are prepared.
    pub(crate) prepared: BTreeMap<Ticket, PreparedPart>,
    /// Changes that were decided, with the parts that are not known to be finished.
    pub(crate) decided: BTreeMap<Token, Vec<(Constituent, Ticket)>>,
    pub(crate) locks: Locks,
    pub(crate) gate: Gate,
    outputs: Vec<Output>,
}

impl Protocol {
    /// Starts the constituent `own` of `members` with the state that its records have made. All
    /// parts that are prepared are locked, and are settled by asking their deciders.
    ///
    /// # Errors
    /// The namespace's, if it cannot log the start.
    pub fn start(
        own: Constituent,
        members: Vec<Constituent>,
        durable: Durable,
        namespace: &mut impl Namespace,
    ) -> Result<Protocol, Refusal> {
        let mut locks = Locks::default();
        for prepared in durable.prepared.values() {
            locks.lock(prepared);
        }
        let epoch = durable.epoch + 1;
        namespace.append(Record {
            changes: Vec::new(),
            note: Note::Epoch(epoch),
            caller: None,
        })?;
        let mut protocol = Protocol {
            own,
            members,
            epoch,
            next: 0,
            operations: BTreeMap::new(),
            prepared: durable.prepared,
            decided: durable.decided,
            locks,
            gate: Gate::default(),
            outputs: Vec::new(),
        };
        protocol.repeat_messages();
        Ok(protocol)
    }

    /// Takes the messages and replies since the last call, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns true if no change that concerns several constituents is under way here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let none = self.operations.is_empty() && self.prepared.is_empty();
        none && self.decided.is_empty() && self.gate.held.is_empty()
    }

    /// Returns the request that this change carries out, if the change is under way here.
    #[must_use]
    pub fn caller(&self, token: Token) -> Option<u64> {
        self.operations
            .get(&token)
            .map(|operation| operation.caller)
    }

    /// Handles a request of a client. The result is an [`Output::Reply`] to `caller`, at once or
    /// later.
    pub fn request(&mut self, namespace: &mut impl Namespace, caller: u64, request: Request) {
        self.handle(namespace, Input::Request(caller, request));
    }

    /// Handles a message.
    pub fn message(&mut self, namespace: &mut impl Namespace, from: Constituent, message: Message) {
        self.handle(namespace, Input::Message(from, message));
    }

    /// Called at regular intervals, of about the time that a message and its answer take: repeats
    /// messages without an answer, and ends changes that have waited for too long.
    pub fn tick(&mut self, namespace: &mut impl Namespace) {
        if self.closing().is_none() {
            self.forget_finished(namespace);
        }
        self.age_gate();
        self.age_operations();
        self.repeat_messages();
    }

    /// Handles the oldest input that a gate held which is open again. Returns false if there is
    /// none. To be called after each input until it returns false.
    pub fn handle_held(&mut self, namespace: &mut impl Namespace) -> bool {
        if self.closing().is_some() {
            return false;
        }
        let input = self.gate.held.pop_front();
        let found = input.is_some();
        if let Some(input) = input {
            self.handle(namespace, input);
        }
        found
    }

    fn handle(&mut self, namespace: &mut impl Namespace, input: Input) {
        // These append no record, except for the snapshot itself.
        let passes = match &input {
            Input::Message(_, Message::Close { .. } | Message::Closed { .. }) => true,
            Input::Message(_, Message::Prepare { part, .. }) => part.is_snapshot(),
            Input::Message(_, Message::Vote { answer, .. }) => answer.is_err(),
            Input::Request(..) | Input::Message(..) => false,
        };
        if self.closing().is_some() && !passes {
            self.gate.held.push_back(input);
            return;
        }
        match input {
            Input::Request(caller, request) => self.begin(namespace, caller, request),
            Input::Message(from, message) => self.receive(namespace, from, message),
        }
    }

    fn receive(&mut self, namespace: &mut impl Namespace, from: Constituent, message: Message) {
        match message {
            Message::Prepare { token, part } => self.prepare(namespace, from, token, part),
            Message::Vote {
                token,
                part,
                answer,
            } => self.voted(namespace, from, token, &part, answer),
            Message::Finish {
                token,
                ticket,
                commit,
            } => self.finish(namespace, from, token, ticket, commit),
            Message::Finished { token, ticket } => {
                self.part_finished(namespace, from, token, ticket);
            }
            Message::Ask { token, ticket } => self.answer(from, token, ticket),
            Message::Parent { token, directory } => {
                self.answer_parent(namespace, from, token, directory);
            }
            Message::ParentIs {
                token,
                directory,
                answer,
            } => self.walked(namespace, token, directory, answer),
            Message::Close { token } => self.close_gate(from, token),
            Message::Closed { token, ticket } => self.gate_closed(namespace, from, token, ticket),
        }
    }

    /// Sends the messages whose answers are missing.
    fn repeat_messages(&mut self) {
        self.repeat_requests();
        let mut messages = Vec::new();
        for (token, parts) in &self.decided {
            for (constituent, ticket) in parts {
                let finish = Message::Finish {
                    token: *token,
                    ticket: *ticket,
                    commit: true,
                };
                messages.push((*constituent, finish));
            }
        }
        for (ticket, prepared) in &self.prepared {
            let ask = Message::Ask {
                token: prepared.token,
                ticket: *ticket,
            };
            messages.push((prepared.token.decider, ask));
        }
        for (to, message) in messages {
            self.send(to, message);
        }
    }

    pub(crate) fn send(&mut self, to: Constituent, message: Message) {
        self.outputs.push(Output::Send { to, message });
    }

    pub(crate) fn reply(&mut self, caller: u64, reply: Reply) {
        self.outputs.push(Output::Reply { caller, reply });
    }

    pub(crate) fn new_token(&mut self) -> Token {
        self.next += 1;
        Token {
            decider: self.own,
            epoch: self.epoch,
            number: self.next,
        }
    }

    pub(crate) fn new_ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket {
            epoch: self.epoch,
            number: self.next,
        }
    }

    /// Checks that a name of a directory can be looked up now.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: another constituent may have decided that the entry has left, or that the
    /// directory is gone.
    pub fn check_lookup(&self, directory: Ino, name: &[u8]) -> Result<(), Refusal> {
        let leaving = matches!(
            self.locks.entry(directory, name),
            Some(crate::lock::Hold::Leaving(_))
        );
        if leaving || self.locks.has_inode(directory) {
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    /// Checks that an entry can be made, replaced or removed now by a record of this constituent
    /// alone.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: a change that concerns several constituents has the entry or the
    /// directory.
    pub fn check_name(&self, directory: Ino, name: &[u8]) -> Result<(), Refusal> {
        match self.locks.entry(directory, name) {
            None => self.check_inode(directory),
            Some(_) => Err(Refusal::Busy),
        }
    }

    /// Checks that an inode can get or lose a link now by a record of this constituent alone.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: a change that concerns several constituents has the inode.
    pub fn check_inode(&self, ino: Ino) -> Result<(), Refusal> {
        match self.locks.has_inode(ino) {
            true => Err(Refusal::Busy),
            false => Ok(()),
        }
    }

    /// Checks that a directory can be removed now by a record of this constituent alone, if it is
    /// empty.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: a change that concerns several constituents has the directory, or an
    /// entry of it.
    pub fn check_emptiness(&self, directory: Ino) -> Result<(), Refusal> {
        match self.locks.entries_in(directory).next() {
            None => self.check_inode(directory),
            Some(_) => Err(Refusal::Busy),
        }
    }

    /// Checks that the attributes of an inode, or a directory's listing, can be read now.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: another constituent may have decided to change them.
    pub fn check_attributes(&self, ino: Ino) -> Result<(), Refusal> {
        if self.locks.has_inode(ino) || self.locks.has_leaving(ino) {
            return Err(Refusal::Busy);
        }
        Ok(())
    }
}

/// Returns the kind's refusal where the other kind is needed.
pub(crate) fn wrong_kind(found: Kind) -> Refusal {
    match found {
        Kind::Directory => Refusal::IsDirectory,
        Kind::File => Refusal::NotDirectory,
    }
}

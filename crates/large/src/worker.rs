//! The thread of a constituent.
//!
//! It takes requests of clients, frames of other servers and the passing of time, and hands them to
//! the rules. All that came together is handled at once, and its replies and messages leave when
//! the log is durable, so that many changes share one write of the log.
//!
//! A change that the rules refuse as busy is made again, first soon and then less often, for as
//! long as its caller waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weir_base::limits::cluster::{
    LARGE_FRAME_BYTES, LARGE_INBOX_MAX, LARGE_REQUESTS_MAX, LARGE_TICK,
};
use weir_base::signal::Signal;
use weir_base::{Ino, invariant};
use weir_constituents::{Constituent, Message, Output, Refusal, Reply, Request};
use weir_volume::CallKey;

use crate::frame::{self, Content, InodeAnswer};
use crate::member::{SharedState, State};

/// First pause before a change is made again that was refused as busy. It doubles up to a tick.
const PAUSE: Duration = Duration::from_millis(2);

/// Maximum number of inputs that are handled before the log is waited for.
const BATCH: usize = 256;

/// An input of the thread.
pub(crate) enum Input {
    /// A change that a client requests.
    Request {
        request: Request,
        call: Option<CallKey>,
        reply: Arc<Signal<Reply>>,
    },
    /// A question about an inode of another constituent.
    Inspect {
        ino: Ino,
        name: Option<Box<[u8]>>,
        answer: Arc<Signal<Result<InodeAnswer, Refusal>>>,
    },
    /// A frame of another constituent, or of this one.
    Frame(Constituent, Content),
}

#[derive(Default)]
struct Queue {
    inputs: VecDeque<Input>,
    stopping: bool,
}

/// Inputs that wait for the thread.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Inbox {
    /// Adds an input. Returns false, and drops it, if `most` wait already or the thread ends.
    pub(crate) fn push(&self, input: Input, most: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.stopping || queue.inputs.len() >= most {
            return false;
        }
        queue.inputs.push_back(input);
        self.arrived.notify_one();
        true
    }

    /// Ends the thread soon.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Returns the next inputs, after `patience` at the latest; `None` if the thread is to end.
    fn take(&self, patience: Duration) -> Option<Vec<Input>> {
        let mut queue = self.queue.lock();
        if queue.inputs.is_empty() && !queue.stopping {
            self.arrived.wait_for(&mut queue, patience);
        }
        if queue.stopping {
            return None;
        }
        let count = queue.inputs.len().min(BATCH);
        Some(queue.inputs.drain(..count).collect())
    }
}

/// A client that waits for its change.
struct Caller {
    request: Request,
    reply: Arc<Signal<Reply>>,
    /// True if the reply is kept for a client that sends its call again.
    kept: bool,
    /// Pause before the change is made again.
    pause: Duration,
}

impl Caller {
    /// Returns true if nobody waits for the reply any more.
    fn is_given_up(&self) -> bool {
        !self.kept && is_given_up(&self.reply)
    }
}

/// A question without an answer.
struct Question {
    to: Constituent,
    content: Content,
    answer: Arc<Signal<Result<InodeAnswer, Refusal>>>,
}

/// State of the thread.
pub(crate) struct Worker {
    shared: Arc<SharedState>,
    /// Number of the next caller or question.
    next: u64,
    callers: BTreeMap<u64, Caller>,
    /// Changes to make again, by their monotonic times.
    again: BTreeSet<(Duration, u64)>,
    questions: BTreeMap<u64, Question>,
    /// Callers that have their replies, and whose keys are still kept.
    answered: Vec<u64>,
    /// Frames of this constituent for itself.
    own: VecDeque<Input>,
    tick_at: Duration,
    /// True once the log has failed: nothing leaves any more.
    failed: bool,
}

/// Returns true if nobody waits for a signal any more.
fn is_given_up<T>(signal: &Arc<Signal<T>>) -> bool {
    Arc::strong_count(signal) == 1
}

impl Worker {
    pub(crate) fn new(shared: Arc<SharedState>) -> Worker {
        Worker {
            shared,
            next: 0,
            callers: BTreeMap::new(),
            again: BTreeSet::new(),
            questions: BTreeMap::new(),
            answered: Vec::new(),
            own: VecDeque::new(),
            tick_at: Duration::ZERO,
            failed: false,
        }
    }

    /// Runs until the member is stopped.
    pub(crate) fn run(mut self) {
        loop {
            let now = self.shared.parts.clock.monotonic();
            let again = self.again.first().map_or(self.tick_at, |(at, _)| *at);
            let patience = match self.own.is_empty() {
                true => again.min(self.tick_at).saturating_sub(now),
                false => Duration::ZERO,
            };
            let Some(mut inputs) = self.shared.inbox.take(patience) else {
                self.refuse_all();
                return;
            };
            inputs.extend(self.own.drain(..));
            self.round(inputs);
        }
    }

    /// Handles inputs and the time that has passed, waits for the log, and lets out what waited for
    /// it.
    fn round(&mut self, inputs: Vec<Input>) {
        let shared = Arc::clone(&self.shared);
        let now = shared.parts.clock.monotonic();
        let mut frames = Vec::new();
        let (outputs, last) = {
            let mut state = shared.state.write();
            let State { protocol, names } = &mut *state;
            for caller in self.answered.drain(..) {
                names.calls.remove(&caller);
            }
            for input in inputs {
                match input {
                    Input::Request { reply, .. } if self.callers.len() >= LARGE_REQUESTS_MAX => {
                        reply.set(Err(Refusal::Busy));
                    }
                    Input::Request {
                        request,
                        call,
                        reply,
                    } => {
                        let caller = self.enter(request.clone(), reply, call.is_some());
                        if let Some(call) = call {
                            names.calls.insert(caller, call);
                        }
                        protocol.request(names, caller, request);
                    }
                    Input::Frame(from, Content::Rules(message)) => {
                        protocol.message(names, from, message);
                    }
                    other => frames.push(other),
                }
            }
            for caller in self.due(now) {
                match self.callers.get(&caller) {
                    Some(waiting) if waiting.is_given_up() => {
                        self.callers.remove(&caller);
                        names.calls.remove(&caller);
                    }
                    Some(waiting) => protocol.request(names, caller, waiting.request.clone()),
                    None => {}
                }
            }
            if now >= self.tick_at {
                protocol.tick(names);
            }
            while protocol.handle_held(names) {}
            (protocol.take_outputs(), names.last)
        };
        for frame in frames {
            self.converse(frame);
        }
        if now >= self.tick_at {
            self.tick(now);
        }
        if let Err(error) = (shared.parts.durable)(last)
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::error!("cannot write the log of a constituent of a large volume: {error}");
        }
        if !self.failed {
            outputs.into_iter().for_each(|output| self.let_out(output));
        }
        shared.note_change();
    }

    fn enter(&mut self, request: Request, reply: Arc<Signal<Reply>>, kept: bool) -> u64 {
        self.next += 1;
        let pause = PAUSE;
        let caller = Caller {
            request,
            reply,
            kept,
            pause,
        };
        self.callers.insert(self.next, caller);
        self.next
    }

    /// Returns the callers whose changes are to be made again now.
    fn due(&mut self, now: Duration) -> Vec<u64> {
        let later = self.again.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.again, later);
        due.into_iter().map(|(_, caller)| caller).collect()
    }

    /// Handles questions and answers.
    fn converse(&mut self, input: Input) {
        match input {
            Input::Inspect { ino, name, answer } => self.inspect_inode(ino, name, answer),
            Input::Frame(from, Content::Question { number, ino, name }) => {
                let answer = self.shared.look(ino, name.as_deref());
                self.send(from, &Content::Answer { number, answer });
            }
            Input::Frame(from, Content::Answer { number, answer }) => {
                let asked = self.questions.get(&number);
                if asked.is_some_and(|question| question.to == from)
                    && let Some(question) = self.questions.remove(&number)
                {
                    question.answer.set(answer);
                }
            }
            Input::Request { .. } | Input::Frame(..) => {}
        }
    }

    fn inspect_inode(
        &mut self,
        ino: Ino,
        name: Option<Box<[u8]>>,
        answer: Arc<Signal<Result<InodeAnswer, Refusal>>>,
    ) {
        let to = Constituent::of_inode(ino);
        if to == self.shared.parts.membership.own {
            answer.set(self.shared.look(ino, name.as_deref()));
            return;
        }
        if self.questions.len() >= LARGE_REQUESTS_MAX {
            answer.set(Err(Refusal::Busy));
            return;
        }
        self.next += 1;
        let number = self.next;
        let content = Content::Question { number, ino, name };
        self.send(to, &content);
        let question = Question {
            to,
            content,
            answer,
        };
        self.questions.insert(number, question);
    }

    /// Repeats questions, and tells the others this constituent's space.
    fn tick(&mut self, now: Duration) {
        self.tick_at = now + LARGE_TICK;
        self.questions
            .retain(|_, question| !is_given_up(&question.answer));
        let asked = self.questions.values();
        let asked: Vec<_> = asked.map(|q| (q.to, q.content.clone())).collect();
        for (to, content) in asked {
            self.send(to, &content);
        }
        let membership = self.shared.parts.membership;
        let space = Content::Space(self.shared.own_space());
        for other in (0..membership.members).map(Constituent) {
            if other != membership.own {
                self.send(other, &space);
            }
        }
    }

    fn let_out(&mut self, output: Output) {
        match output {
            Output::Send { to, message } if to == self.shared.parts.membership.own => {
                self.deliver_here(message);
            }
            Output::Send { to, message } => self.send(to, &Content::Rules(message)),
            Output::Reply { caller, reply } => self.reply(caller, reply),
        }
    }

    fn deliver_here(&mut self, message: Message) {
        let own = self.shared.parts.membership.own;
        // Repeated at the next tick, like a message that was lost.
        if self.own.len() < LARGE_INBOX_MAX {
            self.own
                .push_back(Input::Frame(own, Content::Rules(message)));
        }
    }

    fn send(&self, to: Constituent, content: &Content) {
        let membership = &self.shared.parts.membership;
        let frame = frame::encode(membership.large, membership.own, to, content);
        invariant!(
            frame.len() <= LARGE_FRAME_BYTES,
            "a frame has {} bytes",
            frame.len()
        );
        self.shared.parts.link.send(membership.large, to, frame);
    }

    fn reply(&mut self, caller: u64, reply: Reply) {
        let Some(waiting) = self.callers.get_mut(&caller) else {
            return;
        };
        if reply == Err(Refusal::Busy) && !waiting.is_given_up() {
            let at = self.shared.parts.clock.monotonic() + waiting.pause;
            waiting.pause = (waiting.pause * 2).min(LARGE_TICK);
            self.again.insert((at, caller));
            return;
        }
        if let Some(waiting) = self.callers.remove(&caller) {
            waiting.reply.set(reply);
        }
        self.answered.push(caller);
    }

    /// Refuses everything that waits: the thread ends.
    fn refuse_all(&mut self) {
        for caller in std::mem::take(&mut self.callers).into_values() {
            caller.reply.set(Err(Refusal::Busy));
        }
        for question in std::mem::take(&mut self.questions).into_values() {
            question.answer.set(Err(Refusal::Busy));
        }
        self.shared.inbox.refuse_all();
        self.shared.note_change();
    }
}

impl Inbox {
    /// Refuses the requests that wait for a thread that has ended.
    fn refuse_all(&self) {
        for input in std::mem::take(&mut self.queue.lock().inputs) {
            match input {
                Input::Request { reply, .. } => reply.set(Err(Refusal::Busy)),
                Input::Inspect { answer, .. } => answer.set(Err(Refusal::Busy)),
                Input::Frame(..) => {}
            }
        }
    }
}

//! State of the connection to the partner, and of the stream of changes that goes over it.

use std::sync::Arc;
use std::time::Duration;

use weir_mirror::wire::{Message, VolumeHash};
use weir_volume::{ChangeStream, Sequence};

use crate::config::Lineage;
use crate::connection::{Hello, Link};
use crate::fault::Fault;

/// Comparison of the two copies, on the primary.
#[derive(Default)]
pub struct Comparison {
    /// The mark at which they are compared.
    pub mark: u64,
    /// Hashes of the partner's copy so far.
    pub theirs: Vec<VolumeHash>,
    /// True once all of them have come.
    pub done: bool,
}

/// The partner as this node knows it.
#[derive(Default)]
pub struct Partner {
    /// The current connection.
    link: Option<Link>,
    /// Number of the last connection.
    count: u64,
    /// Time at which that ended, by the clock, if no other has followed.
    unlinked: Option<Duration>,
    /// A primary's stream of changes.
    stream: Option<Arc<ChangeStream>>,
    /// Positions from which a copy can go on with the stream.
    lineage: Option<Lineage>,
    /// Entry that the partner has to acknowledge to be caught up. Replies wait for the partner
    /// while this is set.
    catching: Option<Sequence>,
    /// Time at which the partner acknowledged something last, or replies began to wait for it, by
    /// the clock.
    progressed: Duration,
    /// Number of rounds since the partner was in sync last.
    rounds: u32,
    /// True if the files that the partner needs are on its side.
    has_files: bool,
    /// Comparison of the two copies that runs.
    comparison: Option<Comparison>,
    /// Result of the last comparison.
    verified: Option<String>,
    /// Fault that was seen last.
    fault: Option<Fault>,
    /// Reason for which the clocks of the two nodes were found to run apart.
    clocks_apart: Option<String>,
    /// Time that the partner took to reply to the last beat.
    round_trip: Option<Duration>,
}

impl Partner {
    /// Returns the current connection.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Returns the current connection.
    pub fn link_mut(&mut self) -> Option<&mut Link> {
        self.link.as_mut()
    }

    /// Returns the connection with this number, if it is the current one.
    pub fn numbered(&mut self, number: u64) -> Option<&mut Link> {
        self.link.as_mut().filter(|link| link.number == number)
    }

    /// Returns true if this is the number of the current connection.
    pub fn is_current(&self, number: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.number == number)
    }

    /// Takes a connection as the current one; returns its number.
    pub fn open(&mut self, hello: Hello) -> u64 {
        self.count += 1;
        self.unlinked = None;
        self.link = Some(Link::new(self.count, hello));
        self.count
    }

    /// Notes that the connection has ended at `now`; false if it is not the current one.
    pub fn ended(&mut self, number: u64, now: Duration) -> bool {
        if !self.is_current(number) {
            return false;
        }
        self.link = None;
        self.unlinked = Some(now);
        self.has_files = false;
        true
    }

    /// Returns the time at which the last connection ended, if no other has followed.
    pub fn unlinked(&self) -> Option<Duration> {
        self.unlinked
    }

    /// Queues a message, if the partner is connected.
    pub fn say(&mut self, message: &Message) {
        if let Some(link) = &mut self.link {
            link.say(message);
        }
    }

    /// Ends the connection once what is queued was sent.
    pub fn close(&mut self) {
        if let Some(link) = &mut self.link {
            link.close();
        }
    }

    /// Returns a primary's stream of changes.
    pub fn stream(&self) -> Option<&Arc<ChangeStream>> {
        self.stream.as_ref()
    }

    /// Begins a stream, from which copies of this lineage go on.
    pub fn set_stream(&mut self, stream: Arc<ChangeStream>, lineage: Lineage) {
        self.stream = Some(stream);
        self.lineage = Some(lineage);
    }

    /// Ends the stream: a round begins.
    pub fn begin_round(&mut self) {
        self.stream = None;
        self.catching = None;
        self.rounds += 1;
    }

    /// Returns the lineage of the stream.
    pub fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    /// Notes that this side answers in another term with the same stream.
    pub fn add_term(&mut self, term: u64) {
        if let Some(lineage) = &mut self.lineage {
            lineage.terms.push(term);
        }
    }

    /// Number of rounds since the partner was in sync last.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Notes that the partner has everything that replies waited for.
    pub fn caught_up(&mut self) {
        self.catching = None;
        self.rounds = 0;
    }

    /// Returns the position that the partner has to acknowledge to be caught up.
    pub fn catching(&self) -> Option<Sequence> {
        self.catching
    }

    /// Makes replies wait for the partner until it has acknowledged `to`.
    pub fn catch(&mut self, to: Sequence, now: Duration) {
        self.catching = Some(to);
        self.progressed = now;
    }

    /// Stops replies from waiting for the partner.
    pub fn stop_catching(&mut self) {
        self.catching = None;
    }

    /// Notes that the partner has acknowledged something.
    pub fn progress(&mut self, now: Duration) {
        self.progressed = now;
    }

    /// Returns the time of the last progress, by the clock.
    pub fn progressed(&self) -> Duration {
        self.progressed
    }

    /// Returns true if the files that the partner needs are on its side.
    pub fn has_files(&self) -> bool {
        self.has_files
    }

    /// Notes whether the partner has the files that it needs.
    pub fn set_files(&mut self, has: bool) {
        self.has_files = has;
    }

    /// Returns the comparison that runs.
    pub fn comparison(&mut self) -> &mut Option<Comparison> {
        &mut self.comparison
    }

    /// Returns true if a comparison runs.
    pub fn is_compared(&self) -> bool {
        self.comparison.is_some()
    }

    /// Returns the result of the last comparison.
    pub fn verified(&self) -> Option<&String> {
        self.verified.as_ref()
    }

    /// Notes the result of a comparison.
    pub fn set_verified(&mut self, result: String) {
        self.verified = Some(result);
    }

    /// Returns the fault that was seen last.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Sets the fault that was seen last.
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Notes that nothing is in the way.
    pub fn clear_fault(&mut self) {
        self.fault = None;
    }

    /// Returns the reason for which the clocks of the two nodes run apart.
    pub fn clocks_apart(&self) -> Option<&String> {
        self.clocks_apart.as_ref()
    }

    /// Notes that the clocks of the two nodes run apart.
    pub fn set_clocks_apart(&mut self, why: String) {
        self.clocks_apart = Some(why);
    }

    /// Returns the time that the partner took to reply to the last beat.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Notes the time that the partner took to reply to a beat.
    pub fn set_round_trip(&mut self, time: Duration) {
        self.round_trip = Some(time);
    }
}

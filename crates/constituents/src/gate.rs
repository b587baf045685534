//! The gate of a constituent: while it is closed, the constituent appends no record, so that
//! snapshots of all constituents are of one moment.

use std::collections::VecDeque;

use crate::message::{Message, Ticket, Token};
use crate::number::Constituent;
use crate::protocol::Protocol;
use crate::request::Request;

/// Ticks after which a gate opens by itself. The snapshot is not taken then.
pub(crate) const GATE_TICKS: u32 = 3;

/// An input that waits for the gate.
#[derive(Debug)]
pub(crate) enum Input {
    Request(u64, Request),
    Message(Constituent, Message),
}

/// The gate.
#[derive(Default, Debug)]
pub(crate) struct Gate {
    /// Snapshot for which the gate is closed, with the ticket of the closing.
    closed: Option<(Token, Ticket)>,
    /// Ticks since it was closed.
    age: u32,
    /// Inputs that came since, in order.
    pub(crate) held: VecDeque<Input>,
}

impl Protocol {
    /// Returns the ticket of the closing while the gate is closed.
    pub(crate) fn closing(&self) -> Option<Ticket> {
        self.gate.closed.map(|(_, ticket)| ticket)
    }

    /// Closes the gate for a snapshot. A closing is not prolonged: a repeated request gets
    /// its ticket. Another snapshot has to wait.
    pub(crate) fn close_gate(&mut self, from: Constituent, token: Token) {
        let ticket = match self.gate.closed {
            Some((closed_for, ticket)) if closed_for == token => ticket,
            Some(_) => return,
            None => {
                let ticket = self.new_ticket();
                self.gate.closed = Some((token, ticket));
                self.gate.age = 0;
                ticket
            }
        };
        self.send(from, Message::Closed { token, ticket });
    }

    /// Opens the gate. The inputs that it held are handled after the present one
    /// ([`Protocol::handle_held`]).
    pub(crate) fn open_gate(&mut self) {
        self.gate.closed = None;
    }

    /// Opens a gate that has been closed for too long.
    pub(crate) fn age_gate(&mut self) {
        if self.gate.closed.is_some() {
            self.gate.age += 1;
            if self.gate.age > GATE_TICKS {
                self.open_gate();
            }
        }
    }
}

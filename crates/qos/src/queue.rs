//! The queue of a leaf: first come first served within a flow (a connection), round robin over
//! flows.
//!
//! With round robin over connections, a client with sixteen of them does not have fifteen starved
//! by the first. It gives the client no more throughput: limits and shares are counted by the leaf,
//! which is the client.

use std::collections::{BTreeMap, VecDeque};

use crate::meter::Nanos;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct QueuedRequest<T> {
    pub(crate) flow: u64,
    pub(crate) bytes: u64,
    pub(crate) since: Nanos,
    pub(crate) payload: T,
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    flows: BTreeMap<u64, VecDeque<QueuedRequest<T>>>,
    /// Flows that have requests, the next one first.
    turns: VecDeque<u64>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(crate) fn push(&mut self, waiting: QueuedRequest<T>) {
        let flow = self.flows.entry(waiting.flow).or_default();
        if flow.is_empty() {
            self.turns.push_back(waiting.flow);
        }
        flow.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedRequest<T>> {
        let turn = self.turns.pop_front()?;
        let flow = self.flows.get_mut(&turn)?;
        let waiting = flow.pop_front()?;
        if flow.is_empty() {
            self.flows.remove(&turn);
        } else {
            self.turns.push_back(turn);
        }
        Some(waiting)
    }

    /// Returns the flow to serve next.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turns.front().copied()
    }

    /// Removes all requests of a flow, because its connection is closed.
    pub(crate) fn remove_flow(&mut self, flow: u64) -> VecDeque<QueuedRequest<T>> {
        let gone = self.flows.remove(&flow).unwrap_or_default();
        self.turns.retain(|turn| *turn != flow);
        gone
    }
}

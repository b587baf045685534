//! Queue of calls that the service makes to clients: lock grants and restart notices. They are
//! queued as encoded messages. The connection layer finds the port, sends, and returns the reply by
//! its token.
//!
//! Each destination has a queue of its own, and the queues take turns, so a host with thousands of
//! pending calls that takes none does not delay others.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use weir_base::limits::protocol::{MAX_CALL_BYTES as MAX_BYTES, MAX_CALLS as MAX_WAITING};

/// Memory of one message besides its bytes, in bytes.
const ENTRY: usize = 256;

/// One call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingCall {
    /// Identifies the call in `Service::outgoing_done`.
    pub token: u64,
    /// The host to call. Its rpcbind has the port.
    pub to: IpAddr,
    /// The server's address to call from, if it still has it: clients accept a grant only from the
    /// address that they asked.
    pub from: IpAddr,
    /// Program to ask the port of.
    pub program: u32,
    /// Version of the program to ask the port of.
    pub version: u32,
    /// The whole RPC call, without record mark.
    pub message: Arc<[u8]>,
}

impl OutgoingCall {
    /// Returns the address that selects the queue: the host's, or the IPv6 network's, since one
    /// host may use all addresses of a network (RFC 4291 §2.5.4).
    pub fn destination(&self) -> IpAddr {
        match self.to {
            IpAddr::V4(_) => self.to,
            IpAddr::V6(to) => Ipv6Addr::from_bits(to.to_bits() >> 64 << 64).into(),
        }
    }
}

#[derive(Default)]
struct Queues {
    waiting: HashMap<IpAddr, VecDeque<OutgoingCall>>,
    /// Destinations with a queue, in the order of their turns.
    turns: VecDeque<IpAddr>,
    bytes: usize,
}

/// The messages that have not been taken yet.
#[derive(Default)]
pub(crate) struct Outbox {
    queues: Mutex<Queues>,
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Outbox {
    /// Queues a message, unless it is queued already; returns false if there is no room.
    pub(crate) fn push(&self, out: OutgoingCall) -> bool {
        let mut queues = self.queues.lock();
        let (to, bytes) = (out.destination(), ENTRY + out.message.len());
        let waiting = queues.waiting.get(&to);
        if waiting.is_some_and(|w| w.iter().any(|o| o.token == out.token)) {
            return true;
        }
        if waiting.is_some_and(|w| w.len() >= MAX_WAITING) || queues.bytes + bytes > MAX_BYTES {
            return false;
        }
        if waiting.is_none() {
            queues.turns.push_back(to);
        }
        queues.bytes += bytes;
        queues.waiting.entry(to).or_default().push_back(out);
        drop(queues);
        let wake = self.wake.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
        true
    }

    /// Takes a message for the next destination that passes `may`; destinations take turns.
    pub(crate) fn take(&self, may: &mut dyn FnMut(IpAddr) -> bool) -> Option<OutgoingCall> {
        let mut queues = self.queues.lock();
        let at = queues.turns.iter().position(|to| may(*to))?;
        let to = queues.turns.remove(at)?;
        let queue = queues.waiting.get_mut(&to)?;
        let out = queue.pop_front();
        match queue.is_empty() {
            true => drop(queues.waiting.remove(&to)),
            false => queues.turns.push_back(to),
        }
        queues.bytes -= out.as_ref().map_or(0, |o| ENTRY + o.message.len());
        out
    }

    pub(crate) fn on_push(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        *self.wake.lock() = Some(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(address: [u8; 4], token: u64) -> OutgoingCall {
        OutgoingCall {
            token,
            to: address.into(),
            from: address.into(),
            program: 1,
            version: 1,
            message: Arc::from([0; 4]),
        }
    }

    #[test]
    fn destinations_take_turns_and_have_bounded_queues() {
        let outbox = Outbox::default();
        let silent = [10, 0, 0, 1];
        let accepted = (0..4000).filter(|n| outbox.push(to(silent, *n))).count();
        assert_eq!(accepted, MAX_WAITING);
        assert!(outbox.push(to(silent, 5)), "it waits already");
        assert!(outbox.push(to([10, 0, 0, 2], 9000)) && outbox.push(to([10, 0, 0, 3], 9001)));
        let mut all = std::iter::from_fn(|| outbox.take(&mut |_| true)).map(|o| o.token);
        let first: Vec<u64> = all.by_ref().take(4).collect();
        assert_eq!(first, [0, 9000, 9001, 1]);
        assert_eq!(all.count(), MAX_WAITING - 2);
        assert_eq!(outbox.queues.lock().bytes, 0);
    }

    #[test]
    fn a_destination_that_may_not_be_called_keeps_its_calls() {
        let outbox = Outbox::default();
        let (busy, free) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        (0..3).for_each(|n| assert!(outbox.push(to(busy, n))));
        assert!(outbox.push(to(free, 9)));
        let mut may = |a: IpAddr| a == IpAddr::from(free);
        assert_eq!(outbox.take(&mut may).map(|o| o.token), Some(9));
        assert_eq!(outbox.take(&mut may), None);
        assert_eq!(outbox.take(&mut |_| true).map(|o| o.token), Some(0));
    }

    #[test]
    fn bytes_are_bounded_over_all_destinations() {
        let outbox = Outbox::default();
        let large = |n: u32| OutgoingCall {
            message: Arc::from(vec![0; 2048]),
            ..to(n.to_be_bytes(), u64::from(n))
        };
        let accepted = (0..100_000).filter(|n| outbox.push(large(*n))).count();
        assert_eq!(accepted, MAX_BYTES / (2048 + ENTRY));
    }

    #[test]
    fn an_ipv6_network_is_one_destination() {
        let at = |text: &str| OutgoingCall {
            to: text.parse().unwrap(),
            ..to([0; 4], 0)
        };
        assert_eq!(
            at("fd00::1").destination(),
            at("fd00::ffff:1:2:3").destination()
        );
        assert_ne!(
            at("fd00::1").destination(),
            at("fd00:0:0:1::1").destination()
        );
    }
}

//! The byte credit: how much of what clients send may wait for its limits in memory.
//!
//! A request that waits has been taken off its socket, so that the requests behind it, which may be
//! for other volumes, can be served. That costs memory, which is bounded twice: for each client, so
//! that one cannot take the room of the others, and in all. A client that has used up its credit is
//! not read from until it holds clearly less ([`low`]: a connection that is woken at the first byte
//! released sleeps again at the next). What all hold together pauses only those that hold
//! something; a client whose requests never wait is not made to wait for others'.
//!
//! A large request takes its credit before it is read. A request that is begun with credit is read
//! to its end whatever has been used up since, because only whole requests can be served and give
//! credit back. A request that came whole with others in one read is there already and is accounted
//! as it is. Reading stops with the one that used the credit up.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use weir_base::limits::net;
use weir_base::{invariant, less};

/// A request of the largest size, with what it takes besides.
const LARGEST: usize = weir_base::limits::MAX_IO + (8 << 10);

/// Locks over which clients are spread.
const SHARDS: usize = 16;

/// Limits of the bytes that requests may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditLimits {
    /// Bytes for all clients together.
    pub total: usize,
    /// Bytes for each client.
    pub client: usize,
}

impl CreditLimits {
    /// Returns the credit out of a budget of `network` bytes for everything that connections hold
    /// (see [`net`]). A client can always have a request of the largest size waiting.
    pub fn of_budget(network: usize) -> CreditLimits {
        let parts = |count| network / net::PARTS * count;
        CreditLimits {
            total: parts(net::HELD),
            client: parts(net::HELD_PER_CLIENT)
                .max(2 << 20)
                .min(parts(net::HELD)),
        }
    }
}

#[derive(Default)]
struct Client {
    held: usize,
    /// Bytes of these that belong to requests that are being run: see [`HeldBytes::lend`].
    lent: usize,
    paused: Vec<Waker>,
}

type Shard = HashMap<IpAddr, Client>;

/// Bytes that requests hold now, and clients that wait.
pub(super) struct Credit {
    limits: CreditLimits,
    held: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
}

/// Returns the number of bytes held below which it is worth reading on: less than three quarters of
/// a limit, and room for a request of the largest size. So a refused connection is refused above
/// this mark and woken when it is passed.
fn low(limit: usize) -> usize {
    // Saturates: nothing may be held beside a request of the largest size.
    limit.saturating_sub((limit / 4).max(LARGEST))
}

fn shard_of(client: IpAddr) -> usize {
    let last = match client {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    usize::from(last) % SHARDS
}

impl Credit {
    pub(super) fn new(limits: CreditLimits) -> Arc<Credit> {
        Arc::new(Credit {
            limits,
            held: AtomicUsize::new(0),
            shards: Default::default(),
        })
    }

    pub(super) fn limits(&self) -> CreditLimits {
        self.limits
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn shard(&self, client: IpAddr) -> &Mutex<Shard> {
        // `shard_of` is below SHARDS.
        &self.shards[shard_of(client)]
    }

    pub(super) fn hold(self: &Arc<Self>, client: IpAddr, bytes: usize) -> HeldBytes {
        {
            let mut shard = self.shard(client).lock();
            let own = shard.entry(client).or_default();
            let lent = own.lent.min(bytes);
            own.lent -= lent;
            own.held += bytes - lent;
            self.held.fetch_add(bytes - lent, Ordering::Relaxed);
        }
        HeldBytes {
            credit: Arc::clone(self),
            client,
            bytes,
        }
    }

    /// Returns true if more may be read from `client`. If not, the task of `cx` is woken when it is
    /// worth asking again.
    pub(super) fn poll(&self, client: IpAddr, cx: &Context<'_>) -> bool {
        if self.held() == 0 {
            return true;
        }
        let mut shard = self.shard(client).lock();
        let Some(own) = shard.get_mut(&client) else {
            return true;
        };
        let used_up = own.held >= self.limits.client || self.held() >= self.limits.total;
        if used_up && !own.paused.iter().any(|w| w.will_wake(cx.waker())) {
            own.paused.push(cx.waker().clone());
        }
        !used_up
    }

    /// Holds `bytes` for a request that is still to come, if there is room for them. Unlike what is
    /// there already and has to be put somewhere, it can be left where it is, so all that is held
    /// in all counts for every client. If there is no room, the task of `cx` is woken when it is
    /// worth asking again.
    pub(super) fn poll_hold(
        self: &Arc<Self>,
        client: IpAddr,
        bytes: usize,
        cx: &Context<'_>,
    ) -> Option<HeldBytes> {
        let room = |limit: usize| {
            move |held: usize| {
                // A request that is larger than the limit goes when nothing else is held.
                // Saturates: a length that a client has announced.
                let with = held.saturating_add(bytes);
                (with <= limit || held == 0).then_some(with)
            }
        };
        let mut shard = self.shard(client).lock();
        let own = shard.entry(client).or_default();
        let held = room(self.limits.client)(own.held).filter(|_| {
            let order = Ordering::Relaxed;
            self.held
                .fetch_update(order, order, room(self.limits.total))
                .is_ok()
        });
        match held {
            Some(held) => own.held = held,
            None => {
                if !own.paused.iter().any(|w| w.will_wake(cx.waker())) {
                    own.paused.push(cx.waker().clone());
                }
                return None;
            }
        }
        drop(shard);
        Some(HeldBytes {
            credit: Arc::clone(self),
            client,
            bytes,
        })
    }

    fn give_back(&self, client: IpAddr, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut woken = Vec::new();
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        let total = less(before, bytes, "bytes that are held for all clients");
        {
            let mut shard = self.shard(client).lock();
            let own = shard.get_mut(&client);
            invariant!(
                own.is_some(),
                "{bytes} bytes are held for a client for which none are"
            );
            if let Some(own) = own {
                own.held = less(own.held, bytes, "bytes that are held for a client");
                let enough = own.held <= low(self.limits.client) && total <= low(self.limits.total);
                if enough || own.held == 0 {
                    woken.append(&mut own.paused);
                }
                if own.held == 0 {
                    shard.remove(&client);
                }
            }
        }
        let low = low(self.limits.total);
        if before > low && total <= low {
            for shard in &self.shards {
                shard.lock().retain(|_, other| {
                    woken.append(&mut other.paused);
                    other.held > 0
                });
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Bytes held for a request that waits; released when dropped.
pub struct HeldBytes {
    credit: Arc<Credit>,
    client: IpAddr,
    bytes: usize,
}

impl HeldBytes {
    /// Lends the bytes to the first request that holds some for the same client, until the result
    /// is dropped. A request that was read with credit is run. If it has to wait, its credit passes
    /// to it, and never counts twice nor, in between, as another request's room.
    pub fn lend(self) -> LentBytes {
        if let Some(own) = self.credit.shard(self.client).lock().get_mut(&self.client) {
            own.lent += self.bytes;
        }
        LentBytes(self)
    }
}

/// Bytes lent to the same client's requests; see [`HeldBytes::lend`].
pub struct LentBytes(HeldBytes);

impl Drop for LentBytes {
    fn drop(&mut self) {
        let held = &mut self.0;
        // Bytes that others have lent are as good: all that is lent is released or taken up in the
        // end.
        let mut shard = held.credit.shard(held.client).lock();
        let left = shard.get_mut(&held.client).map_or(0, |own| {
            let left = own.lent.min(held.bytes);
            own.lent -= left;
            left
        });
        drop(shard);
        held.bytes = left;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.credit.give_back(self.client, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// In this unit, limits are some requests large.
    const UNIT: usize = LARGEST / 4;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_client_is_paused_at_its_credit_and_goes_on_well_below_it() {
        let credit = Credit::new(CreditLimits {
            total: 1000 * UNIT,
            client: 100 * UNIT,
        });
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        assert!(credit.poll(ip(1), &cx));
        let held: Vec<_> = (0..10).map(|_| credit.hold(ip(1), 10 * UNIT)).collect();
        assert!(!credit.poll(ip(1), &cx));
        assert!(credit.poll(ip(2), &cx), "another client's affair");
        let mut held = held.into_iter();
        drop((held.next(), held.next()));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        drop(held.next());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(credit.poll(ip(1), &cx));
        drop(held);
        assert_eq!(credit.held(), 0);
        assert!(
            credit.shards.iter().all(|s| s.lock().is_empty()),
            "nothing is left behind"
        );
    }

    #[test]
    fn what_all_hold_pauses_those_that_hold_something() {
        let credit = Credit::new(CreditLimits {
            total: 100 * UNIT,
            client: 60 * UNIT,
        });
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let first = credit.hold(ip(1), 50 * UNIT);
        let _second = credit.hold(ip(2), 50 * UNIT);
        assert!(!credit.poll(ip(1), &cx) && !credit.poll(ip(2), &cx));
        assert!(credit.poll(ip(3), &cx), "it holds nothing");
        drop(first);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn credit_passes_to_the_request_that_it_was_taken_for() {
        let credit = Credit::new(CreditLimits {
            total: 100 * UNIT,
            client: 60 * UNIT,
        });
        let cx = Context::from_waker(Waker::noop());
        let begin = || credit.poll_hold(ip(1), UNIT, &cx).map(HeldBytes::lend);
        // Two that run at once, of which one waits.
        let (one, two) = (begin(), begin());
        let waits = credit.hold(ip(1), UNIT);
        assert_eq!(credit.held(), 2 * UNIT);
        drop(one);
        assert_eq!(credit.held(), UNIT);
        drop(two);
        assert_eq!(credit.held(), UNIT);
        // And one that is larger than what it was begun with.
        let three = begin();
        let more = credit.hold(ip(1), 3 * UNIT);
        drop(three);
        assert_eq!(credit.held(), 4 * UNIT);
        drop((waits, more));
        assert_eq!(credit.held(), 0);
        assert!(credit.shards.iter().all(|s| s.lock().is_empty()));
    }

    #[test]
    fn what_is_still_to_come_never_passes_a_limit_and_is_asked_for_again() {
        let limits = CreditLimits {
            total: 10 * LARGEST,
            client: 4 * LARGEST,
        };
        let credit = Credit::new(limits);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let mut held = Vec::new();
        for client in 0..4 {
            while let Some(one) = credit.poll_hold(ip(client), LARGEST, &cx) {
                held.push(one);
            }
            assert_eq!(held.len(), [4, 8, 10, 10][usize::from(client)]);
            assert!(credit.held() <= limits.total);
        }
        // The refused connections are notified, and then there is room.
        while count.0.load(Ordering::Relaxed) < 4 {
            held.pop().expect("a waiter was never notified");
        }
        assert!((1..4).all(|client| credit.poll_hold(ip(client), LARGEST, &cx).is_some()));
        held.clear();
        assert_eq!(credit.held(), 0);
        let huge = credit.poll_hold(ip(1), 100 * LARGEST, &cx);
        assert!(huge.is_some() && credit.poll_hold(ip(2), 1, &cx).is_none());
        drop(huge);
        assert!(credit.shards.iter().all(|s| s.lock().is_empty()));
    }
}

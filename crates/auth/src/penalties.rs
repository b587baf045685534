//! Delays after wrong passwords. The answer is delayed, so that guessing is slow, and the attempt
//! is logged.
//!
//! Windows delays each answer by 2 s. An address with too many delayed answers is disconnected, so
//! that more connections gain it nothing.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_vfs::signal::Signal;

/// Minimum delay of the answer to a wrong password.
pub const PENALTY: Duration = Duration::from_secs(2);
/// Maximum number of delayed answers to one address.
pub const MOST: usize = 16;
/// Maximum number of delayed answers in all.
const MOST_IN_ALL: usize = 4096;

struct Penalty {
    peer: IpAddr,
    due: Duration,
    over: Arc<Signal<()>>,
}

/// See the module's head.
#[derive(Default)]
pub struct Penalties(Mutex<Vec<Penalty>>);

impl Penalties {
    /// Returns the signal that the answer to `peer` has to wait for; `None` if too many answers
    /// wait already.
    pub fn add(&self, peer: IpAddr, now: Duration) -> Option<Arc<Signal<()>>> {
        let mut all = self.0.lock();
        let same = all.iter().filter(|p| p.peer == peer).count();
        if same >= MOST || all.len() >= MOST_IN_ALL {
            return None;
        }
        let over = Arc::new(Signal::default());
        all.push(Penalty {
            peer,
            due: now + PENALTY,
            over: Arc::clone(&over),
        });
        Some(over)
    }

    /// Ends the delays that are over.
    pub fn tick(&self, now: Duration) {
        let mut over = Vec::new();
        self.0.lock().retain(|p| {
            let stays = p.due > now;
            if !stays {
                over.push(Arc::clone(&p.over));
            }
            stays
        });
        over.iter().for_each(|signal| signal.set(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_slow_and_few() {
        let penalties = Penalties::default();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let first = penalties.add(one, Duration::ZERO).unwrap();
        for _ in 1..MOST {
            assert!(penalties.add(one, Duration::from_secs(1)).is_some());
        }
        assert!(penalties.add(one, Duration::from_secs(1)).is_none());
        assert!(penalties.add(other, Duration::from_secs(1)).is_some());
        penalties.tick(Duration::from_millis(1999));
        assert_eq!(first.get(), None);
        penalties.tick(Duration::from_secs(2));
        assert_eq!(first.get(), Some(()));
        assert!(penalties.add(one, Duration::from_secs(2)).is_some());
    }
}

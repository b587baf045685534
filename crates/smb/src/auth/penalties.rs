//! Wrong passwords: who sends one waits for the answer, so that guessing is slow, and is written down, so that it is seen.
//!
//! Windows waits 2 s for each. An address that has as many answers outstanding as may wait is hung up on, so that it gains nothing
//! by more connections.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_vfs::signal::Signal;

/// How long the answer to a wrong password waits, at least.
pub const PENALTY: Duration = Duration::from_secs(2);
/// Answers that wait, of one address.
pub const MOST: usize = 16;
/// Answers that wait, of all.
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
    /// What the answer to `peer` is to wait for; `None` if too many wait already.
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

    /// Ends those whose time has come.
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

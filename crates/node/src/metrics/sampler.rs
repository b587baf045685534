//! The thread that reads the counters once a second, and then what follows from them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};

use super::Metrics;
use weir_base::Clock;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends it.
pub struct Sampler {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins to read. `then` is called after each reading with its second, since 1970.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        mut then: impl FnMut(u64) + Send + 'static,
    ) -> Result<Sampler> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weir-sample".to_owned())
            .spawn(move || {
                let (stop, woken) = &*stopped;
                let began = u64::try_from(clock.current_time().secs).unwrap_or(0);
                let start = clock.monotonic();
                let mut stop = stop.lock();
                while !*stop {
                    // By the monotonic clock: the civil one may step.
                    let at = began + (clock.monotonic() - start).as_secs();
                    parking_lot::MutexGuard::unlocked(&mut stop, || {
                        metrics.sample(at);
                        then(at);
                    });
                    let since = clock.monotonic() - start;
                    let next = Duration::from_secs(since.as_secs()) + PERIOD;
                    if !*stop {
                        woken.wait_for(&mut stop, next.saturating_sub(since));
                    }
                }
            })
            .context("starting a thread")?;
        Ok(Sampler {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has ended the process.
            let _ = thread.join();
        }
    }
}

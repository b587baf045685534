//! The thread that reads the counters once a second.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};

use super::Metrics;

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends it.
pub struct Sampler {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins to read.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(metrics: Arc<Metrics>) -> Result<Sampler> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weir-sample".to_owned())
            .spawn(move || {
                let (stop, woken) = &*stopped;
                let mut stop = stop.lock();
                while !*stop {
                    parking_lot::MutexGuard::unlocked(&mut stop, || metrics.sample());
                    if !*stop {
                        woken.wait_for(&mut stop, PERIOD);
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

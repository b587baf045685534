//! Table of established contexts, by handle.

use super::IDLE;
use super::window::{Window, WindowOutcome};
use crate::rpc;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_auth::gss::{Protection, SecurityContext};
use weir_base::{Budget, Clock, Reservation, Rng, SipKey};

/// Number of bytes of a handle. A handle without the keys of its context reveals only that the
/// context exists, and a random one is not guessed.
pub(super) const HANDLE: usize = 16;
/// Bytes that a context is charged for: the window, the keys, the table's entry, and each copy's
/// part of the mechanism.
const BYTES: usize = 4096;
const BYTES_A_COPY: usize = 2048;

/// One context.
pub(super) struct Context {
    /// The credential with which the user's calls are served ([`rpc::established`]).
    pub(super) credential: Box<[u8]>,
    protections: Box<[Box<dyn Protection>]>,
    window: Mutex<Window>,
    /// On the monotonic clock.
    ends: Duration,
    /// Seconds on the monotonic clock when it was used last.
    used: AtomicU64,
    _memory: Reservation,
}

impl Context {
    /// Returns a copy of the protection; every number is valid.
    pub(super) fn copy(&self, number: usize) -> &dyn Protection {
        &*self.protections[number % self.protections.len()]
    }

    /// Registers the sequence number of a call.
    pub(super) fn see(&self, number: u32, now: Duration) -> WindowOutcome {
        // Written once a second, not at each call.
        if self.used.load(Ordering::Relaxed) != now.as_secs() {
            self.used.store(now.as_secs(), Ordering::Relaxed);
        }
        self.window.lock().see(number)
    }
}

type Table = HashMap<[u8; HANDLE], Arc<Context>>;

/// See the parent module's head.
pub(super) struct Contexts {
    table: RwLock<Table>,
    budget: Arc<Budget>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Key under which principals' names are hashed.
    names: SipKey,
}

impl Contexts {
    pub(super) fn new(budget: Arc<Budget>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Contexts {
        let mut secret = [0; 16];
        for half in secret.chunks_mut(8) {
            half.copy_from_slice(&rng.next_u64().to_be_bytes());
        }
        Contexts {
            names: SipKey::new(secret),
            table: RwLock::default(),
            budget,
            clock,
            rng,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.read().len()
    }

    pub(super) fn current_time(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Adds a context; `None` if there is no room even after others were removed.
    pub(super) fn add(&self, made: SecurityContext) -> Option<([u8; HANDLE], Arc<Context>)> {
        // Never 0.
        let name = self.names.hash(made.peer.principal.as_bytes()).max(1);
        let credential = rpc::established(&made.peer.identity, name).into_boxed_slice();
        let bytes = BYTES + credential.len() + made.protections.len() * BYTES_A_COPY;
        let mut memory = self.budget.try_reserve(bytes);
        while memory.is_none() && self.remove_oldest() {
            memory = self.budget.try_reserve(bytes);
        }
        let now = self.current_time();
        let context = Arc::new(Context {
            credential,
            protections: made.protections.into(),
            window: Mutex::default(),
            ends: now.saturating_add(made.lifetime),
            used: AtomicU64::new(now.as_secs()),
            _memory: memory?,
        });
        let mut handle = [0; HANDLE];
        for half in handle.chunks_mut(8) {
            half.copy_from_slice(&self.rng.next_u64().to_be_bytes());
        }
        self.table.write().insert(handle, Arc::clone(&context));
        Some((handle, context))
    }

    pub(super) fn get(&self, handle: &[u8]) -> Option<Arc<Context>> {
        let context = self.table.read().get(handle).map(Arc::clone)?;
        (self.current_time() < context.ends).then_some(context)
    }

    pub(super) fn remove(&self, handle: &[u8]) {
        self.table.write().remove(handle);
    }

    /// Removes the context that was used the longest time ago; `false` if there is none.
    fn remove_oldest(&self) -> bool {
        let mut table = self.table.write();
        let used =
            |(_, context): &(&[u8; HANDLE], &Arc<Context>)| context.used.load(Ordering::Relaxed);
        let oldest = table.iter().min_by_key(used).map(|(handle, _)| *handle);
        oldest.is_some_and(|handle| table.remove(&handle).is_some())
    }

    pub(super) fn tick(&self) {
        let now = self.current_time();
        let over = |c: &Context| {
            let used = Duration::from_secs(c.used.load(Ordering::Relaxed));
            now >= c.ends || now.saturating_sub(used) > IDLE
        };
        if self.table.read().values().any(|c| over(c)) {
            self.table.write().retain(|_, c| !over(c));
        }
    }
}

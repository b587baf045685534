//! What moves to the node that serves: addresses, and what `--address-hook` does besides.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use weir_mirror::Role;

use super::address::{ALONE, LEASED, POLL};
use super::pair::Pair;

impl Pair {
    /// Keeps the addresses where they belong, on a thread of its own: what the kernel does to
    /// interfaces may take long, and beats must not wait.
    pub(super) fn keep_addresses(self: &Arc<Self>) -> Result<()> {
        if self.service.addresses().is_empty() {
            return Ok(());
        }
        let pair = Arc::clone(self);
        let thread = std::thread::Builder::new().name("weir-address".to_owned());
        let thread = thread.spawn(move || {
            loop {
                pair.keep_address();
                std::thread::sleep(POLL);
            }
        });
        thread
            .map(drop)
            .context("starting the thread for addresses")
    }

    fn keep_address(&self) {
        let lifetime = self.address_lifetime();
        let (addresses, clients) = (self.service.addresses(), self.service.clients());
        let kept = addresses.keep(self.clock.monotonic(), lifetime, || clients.all());
        if let Err(why) = kept {
            self.note_passing(why);
        }
    }

    /// For how long this node may have the addresses from now on; `None`: it may not.
    fn address_lifetime(&self) -> Option<Duration> {
        let inner = self.inner.lock();
        if !inner.rules.serving() || inner.rules.stopping() {
            return None;
        }
        match inner.rules.role() {
            Role::Alone => Some(ALONE),
            // The first lease begins when the partner has answered, and it does not serve as soon
            // as that.
            Role::Primary
                if self.lease.holds() || self.clock.monotonic() < inner.rules.turned() + LEASED =>
            {
                Some(LEASED)
            }
            // Its partner may serve, or will.
            _ => None,
        }
    }

    /// Clients are to come to this node from now on.
    pub(super) fn begin_to_serve(&self) {
        self.keep_address();
        self.service.run_hook("add");
    }
}

//! Addresses that move to the node that serves, and the calls of `--address-hook`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use weir_mirror::Role;

use super::address::{ALONE, LEASED, POLL};
use super::pair::Pair;

impl Pair {
    /// Starts the thread that keeps the addresses on the node that serves. Changes to interfaces
    /// may take long in the kernel, and beats must not wait for them.
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
        let kept = addresses.keep(self.clock.monotonic(), lifetime, || {
            clients.list_connections()
        });
        if let Err(why) = kept {
            self.note_passing(why);
        }
    }

    /// Returns the lifetime that the addresses get here from now on; `None` if this node may not
    /// have them.
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

    /// Directs clients to this node.
    pub(super) fn begin_to_serve(&self) {
        self.keep_address();
        self.service.run_hook("add");
    }
}
